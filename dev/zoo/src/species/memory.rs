//! Known amounts of memory.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;

use libc::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED};
use rustix::fs::fstatfs;

use super::Species;
use crate::facts::Facts;
use crate::keeper::{fork_child, Doing as _, Keeper};
use crate::sys;

const MIB: usize = 1 << 20;
const TMPFS_MAGIC: u64 = 0x0102_1994;

pub(super) const SPECIES: &[Species] = species! {
    "memory-anon": "8 MiB of anonymous memory resident" => |_| {
        fork_child(|report| {
            report.facts.anon_at_least_bytes = Some(8 * MIB as u64);
            touched(8 * MIB, MAP_PRIVATE).map(drop)
        })
    };
    "memory-file": "4 MiB of a mapped file resident" => mapped_file;
    "memory-shmem": "4 MiB of shared memory resident" => |_| {
        fork_child(|report| {
            report.facts.shmem_at_least_bytes = Some(4 * MIB as u64);
            touched(4 * MIB, MAP_SHARED).map(drop)
        })
    };
    "memory-locked": "1 MiB of memory locked" => |_| {
        fork_child(|report| {
            report.facts.locked_bytes = Some(MIB as u64);
            sys::lock_memory(touched(MIB, MAP_PRIVATE)?, MIB).doing("mlock")
        })
    };
    "memory-peak": "once had 16 MiB more than now" => |_| {
        fork_child(|report| {
            let at = touched(16 * MIB, MAP_PRIVATE)?;
            sys::unmap(at, 16 * MIB)?;
            // Less than the maximum: the kernel takes the peak from counters that lag behind, since
            // 6.2 by 32 pages of each kind for each processor, and the rest may have grown since.
            report.facts.peak_above_current_bytes = Some(14 * MIB as u64);
            Ok(())
        })
    };
};

fn touched(len: usize, sharing: i32) -> io::Result<*mut u8> {
    let at = sys::map(len, sharing | MAP_ANONYMOUS, None)?;
    sys::touch(at, len, true);
    Ok(at)
}

fn mapped_file(keeper: &mut Keeper) -> io::Result<Facts> {
    let path = keeper.dir()?.join("mapped");
    fs::write(&path, vec![7; 4 * MIB])?;
    fork_child(|report| {
        let file = File::open(&path)?;
        let at = sys::map(4 * MIB, MAP_PRIVATE, Some(file.as_raw_fd()))?;
        sys::touch(at, 4 * MIB, false);
        // The pages of files on tmpfs are shared memory.
        let fact = if fstatfs(&file)?.f_type as u64 == TMPFS_MAGIC {
            &mut report.facts.shmem_at_least_bytes
        } else {
            &mut report.facts.file_at_least_bytes
        };
        *fact = Some(4 * MIB as u64);
        Ok(())
    })
}
