//! The program that reads mappings (`bpf/vma.bpf.c`): loads it, and decodes its records.
//! [`vma_walk`](crate::vma_walk) runs it.

use std::os::fd::OwnedFd;

use taskdiag_core::error::Result;
pub use taskdiag_core::record::mappings::*;
use taskdiag_sys::bpf::{MapFlags, MapKind, MapSpec, SharedMemory};
use taskdiag_sys::host;

use crate::load::load_sharing;
use crate::{named_records, recipe};

impl named_records::Record for Record {
    const SUBJECT: &'static str = "a mapping";

    fn len(&self) -> usize {
        self.len as usize
    }

    fn text_len(&self) -> usize {
        self.name_len.into()
    }
}

/// The settings for this host, which are the same for all passes.
pub fn settings_of_this_host() -> Settings {
    let version = host::kernel_version().unwrap_or_default();
    Settings {
        page_shift: rustix::param::page_size().trailing_zeros(),
        backing_mode: backing_mode(version),
        ..Settings::default()
    }
}

/// The number of files whose names are remembered during a pass.
const NAMES: u32 = 16_384;

/// Loads the program. Its memory must have this size.
pub fn load(size: usize) -> Result<(OwnedFd, SharedMemory)> {
    let names = MapSpec {
        kind: MapKind::Hash,
        name: "names",
        key_size: size_of::<NameKey>() as u32,
        value_size: size_of::<NameId>() as u32,
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
