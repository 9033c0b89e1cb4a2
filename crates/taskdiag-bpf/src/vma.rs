//! The program that reads mappings (`bpf/vma.bpf.c`): loads it, and decodes its records.
//! [`vma_walk`](crate::vma_walk) runs it.

use std::os::fd::OwnedFd;

use taskdiag_core::error::Result;
use taskdiag_sys::bpf::{MapFlags, MapKind, MapSpec, SharedMemory};
use taskdiag_sys::host;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::files::{Match, MATCHES};
use crate::load::load_sharing;
use crate::{named_records, recipe};

/// A flag of a [`Record`]: the mapping is of a file. The lower bits are its permissions.
pub const FILE: u16 = 1 << 5;
/// A flag of a [`Record`]: only the text of the maps file has the right values.
pub const DEFER: u16 = 1 << 9;
/// A flag of a [`Record`]: it is not a mapping. Apart from the mappings that have records, the
/// process maps none of the files to look for.
pub const NO_OTHER: u16 = 1 << 10;

/// `struct td_vma`: a mapping, followed by its name.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)] // bpf/vma.h has the meanings
pub struct Record {
    pub len: u32,
    pub pid: u32,
    pub name_id: u32,
    pub flags: u16,
    pub name_len: u16,
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub inode: u64,
    pub dev_major: u32,
    pub dev_minor: u32,
    pub page_size: u64,
}

impl named_records::Record for Record {
    const SUBJECT: &'static str = "a mapping";

    fn len(&self) -> usize {
        self.len as usize
    }

    fn text_len(&self) -> usize {
        self.name_len.into()
    }
}

/// `struct td_vma_pass`: the settings and results of a pass.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs)] // bpf/vma.h has the meanings
pub struct Settings {
    pub filter: u32,
    pub epoch: u32,
    pub names: u32,
    pub page_shift: u32,
    pub backing_mode: u32,
    pub saw_init: u32,
    pub next_name: u32,
    pub pid: u32,
    pub matches_count: u32,
    pub reserved: u32,
    pub matches: [Match; MATCHES],
}

impl Settings {
    /// The settings for this host, which are the same for all passes.
    pub fn of_this_host() -> Settings {
        let version = host::kernel_version().unwrap_or_default();
        Settings {
            page_shift: rustix::param::page_size().trailing_zeros(),
            backing_mode: backing_mode(version),
            ..Settings::default()
        }
    }

    /// Begins a pass, and forgets the names of earlier passes.
    pub fn begin(&mut self, filter: u32, names: bool) {
        self.filter = filter;
        self.names = names.into();
        self.matches_count = 0;
        self.epoch = self.epoch.wrapping_add(1).max(1);
    }
}

/// The size of `struct td_vma_name_key`.
pub const KEY_SIZE: u32 = 48;
/// The size of `struct td_vma_name`.
pub const NAME_SIZE: u32 = 8;

/// The number of files whose names are remembered during a pass.
const NAMES: u32 = 16_384;

/// Loads the program. Its memory must have this size.
pub fn load(size: usize) -> Result<(OwnedFd, SharedMemory)> {
    let names = MapSpec {
        kind: MapKind::Hash,
        name: "names",
        key_size: KEY_SIZE,
        value_size: NAME_SIZE,
        max_entries: NAMES,
        flags: MapFlags::NO_PREALLOCATION,
    };
    load_sharing(&recipe::VMA_WALK, "vma_walk", size, &[names])
}

/// `FMODE_BACKING`, the mode of a file that backs an open file of another file system (overlayfs).
/// Linux 6.8 introduced it, and 6.14 moved it.
fn backing_mode(version: (u32, u32)) -> u32 {
    match version {
        (0..6, _) | (6, 0..8) => 0,
        (6, 8..14) => 1 << 25,
        _ => 1 << 24,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a record is decoded with its name, and that a partial record is not.
    #[test]
    fn records_are_decoded() {
        named_records::tests::is_decoded(Record {
            len: 72,
            pid: 1,
            name_id: 7,
            flags: 5,
            name_len: 3,
            start: 1,
            end: 2,
            offset: 3,
            inode: 4,
            dev_major: 5,
            dev_minor: 6,
            page_size: 4096,
        });
    }
}
