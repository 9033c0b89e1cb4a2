//! What a program knows about its reader: `struct td_reader` of `bpf/record.h`, and the constants
//! of a program.

use taskdiag_core::field::Groups;
use taskdiag_core::record::walk::{Config, Constants, CPUS_MAX};

/// The constants of a program on this host.
pub(crate) fn constants_of_this_host(groups: Groups) -> Constants {
    Constants {
        groups: groups.0,
        page_shift: rustix::param::page_size().trailing_zeros(),
    }
}

/// The offset of `scratch` in `struct td_reader`.
pub const BEFORE_SCRATCH: usize = size_of::<Config>() + 8 + 8 + 8 * 4 + 8 + 2 * 4 + (5 * 4 * 8 + 8) + 8 + CPUS_MAX * 8;

/// The size of `struct td_reader` of the program that the kernel calls for each task.
pub const CALLED_SIZE: u32 = (BEFORE_SCRATCH + 0x8000 + 0x2000 + 1024 + 256 + 256) as u32;
