//! The program that walks over mappings (`bpf/vma.bpf.c`): loads it, and takes its records apart. `vma_walk` runs it.

use std::os::fd::{AsFd as _, OwnedFd};

use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::support::Verdict;
use taskdiag_sys::bpf::{Map, MapFlags, MapKind, MapSpec, SharedMemory};
use taskdiag_sys::host;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::pass::{built, kernel_btf, load_error};
use super::recipe;
use super::relocate::Linker;
use crate::rights;

/// Flags of a [`Record`]; those below are permissions.
pub const FILE: u16 = 1 << 5;
/// The text alone tells what it is of.
pub const DEFER: u16 = 1 << 9;

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

impl Record {
    /// Takes the first record and its name off `bytes`; `None` if no whole one is there.
    pub fn split_first(bytes: &[u8]) -> Option<(Record, &[u8], &[u8])> {
        let (record, _) = Record::read_from_prefix(bytes).ok()?;
        let (whole, rest) = bytes.split_at_checked(record.len as usize)?;
        let name = whole.get(size_of::<Record>()..)?.get(..record.name_len.into())?;
        Some((record, name, rest))
    }
}

/// `struct td_vma_pass`: what the library tells the program, and what that tells of a pass.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs)] // bpf/vma.h has the meanings
pub struct Settings {
    pub filter: u32,
    pub epoch: u32,
    pub names: u32,
    pub page_shift: u32,
    pub backing_mode: u32,
    pub saw_first: u32,
    pub next_name: u32,
    pub pid: u32,
}

impl Settings {
    /// What does not change from pass to pass: how this host differs from others.
    pub fn of_this_host() -> Settings {
        let version = host::kernel_version().unwrap_or_default();
        Settings {
            page_shift: rustix::param::page_size().trailing_zeros(),
            backing_mode: backing_mode(version),
            ..Settings::default()
        }
    }

    /// Begins a pass, in which nothing is known of names from before.
    pub fn begin(&mut self, filter: u32, names: bool) {
        self.filter = filter;
        self.names = names.into();
        self.epoch = self.epoch.wrapping_add(1).max(1);
    }
}

/// The size of `struct td_vma_name_key`.
pub const KEY_SIZE: u32 = 48;
/// The size of `struct td_vma_name`.
pub const NAME_SIZE: u32 = 8;

/// Files whose paths are remembered within a pass.
const NAMES: u32 = 16_384;

/// Loads the program, its memory being of that size.
pub fn load(size: usize) -> Result<(OwnedFd, SharedMemory)> {
    let recipe = built(&recipe::VMA_WALK)?;
    let right = rights::bpf_load();
    if right.verdict == Verdict::No {
        let message = format!("BPF can't be loaded: {}; {}", right.why, right.remedy);
        return Err(Error::new(ErrorKind::Denied, message));
    }
    let btf = kernel_btf()?;
    let mut linker = Linker::new(recipe, btf.bytes()).map_err(|error| load_error(error.into()))?;
    let names = Map::create(&MapSpec {
        kind: MapKind::Hash,
        name: "names",
        key_size: KEY_SIZE,
        value_size: NAME_SIZE,
        max_entries: NAMES,
        flags: MapFlags::NO_PREALLOCATION,
    })
    .map_err(making)?;
    let section = match recipe.data {
        [section] if section.size as usize == size => section,
        _ => {
            return Err(Error::new(
                ErrorKind::Malformed,
                "the BPF program is not laid out as vma.h says",
            ))
        }
    };
    let data = section.create(section.content).map_err(making)?;
    let memory = data.share(size).map_err(making)?;
    let find = |name: &str| {
        if name == section.name {
            Some(data.as_fd())
        } else {
            Some(names.as_fd())
        }
    };
    let program = linker.load("vma_walk", &find).map_err(load_error)?;
    Ok((program, memory))
}

/// The flag of files that stand behind those of another file system, which came with mappings of overlayfs in 6.8 and moved in 6.14.
fn backing_mode(version: (u32, u32)) -> u32 {
    match version {
        (0..6, _) | (6, 0..8) => 0,
        (6, 8..14) => 1 << 25,
        _ => 1 << 24,
    }
}

/// The answer made no sense.
pub fn torn() -> Error {
    Error::new(ErrorKind::Malformed, "a record of a BPF program is torn")
}

fn making(error: std::io::Error) -> Error {
    Error::io("making a BPF map", error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Check that a record comes back with its name, and that a part of one is none.
    #[test]
    fn records_are_taken_apart() {
        let record = Record {
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
        };
        let bytes = [record.as_bytes(), b"abc\0\0\0\0\0rest"].concat();
        let (read, name, rest) = Record::split_first(&bytes).expect("a record");
        assert_eq!(
            (read.as_bytes(), name, rest),
            (record.as_bytes(), &b"abc"[..], &b"rest"[..])
        );
        assert!((0..72).all(|len| Record::split_first(&bytes[..len]).is_none()));
    }

    proptest! {
        /// Check that any bytes are survived, and that every record takes some of them.
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while let Some((_, _, behind)) = Record::split_first(rest) {
                prop_assert!(behind.len() < rest.len());
                rest = behind;
            }
        }
    }
}
