//! What a program knows about its reader: `struct td_reader` of `bpf/record.h`, and the constants
//! of a program.

use taskdiag_core::field::Groups;
use taskdiag_core::record::{KernelTest, TESTS};
use zerocopy::{Immutable, IntoBytes};

/// `struct td_constants` of `bpf/record.h`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Constants {
    groups: u32,
    page_shift: u32,
}

impl Constants {
    pub(crate) fn of_this_host(groups: Groups) -> Constants {
        Constants {
            groups: groups.0,
            page_shift: rustix::param::page_size().trailing_zeros(),
        }
    }
}

/// `struct td_config` of `bpf/record.h`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct Config {
    pub(crate) groups: u32,
    pub(crate) threads: u32,
    pub(crate) ppid: u32,
    pub(crate) rss_sum: u32,
    pub(crate) cpus: u32,
    pub(crate) full_names: u32,
    pub(crate) total_pages: u64,
    pub(crate) tests_count: u32,
    pub(crate) changed: u32,
    pub(crate) changed_epoch: u32,
    pub(crate) seen_mask: u32,
    pub(crate) landlock: u32,
    pub(crate) reserved: u32,
    pub(crate) as_task: u64,
    pub(crate) tests: [KernelTest; TESTS],
}

/// The maximum number of processors for summing up memory counters: `TD_CPUS_MAX`.
const CPUS_MAX: usize = 512;

/// The offset of `scratch` in `struct td_reader`.
pub const BEFORE_SCRATCH: usize = size_of::<Config>() + 8 + 8 + 8 * 4 + 8 + 2 * 4 + (5 * 4 * 8 + 8) + 8 + CPUS_MAX * 8;

/// The size of `struct td_reader` of the program that the kernel calls for each task.
pub const CALLED_SIZE: u32 = (BEFORE_SCRATCH + 0x8000 + 0x2000 + 1024 + 256 + 256) as u32;
