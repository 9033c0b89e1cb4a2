//! Where this process's command line is in memory, and how to tell the kernel that it is elsewhere.

use std::io;

use crate::sys::cvt;

/// Where the kernel expects the command line and environment of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArgArea {
    pub(crate) arg_start: usize,
    pub(crate) arg_end: usize,
    pub(crate) env_end: usize,
}

/// The fields of /proc/self/stat, starting with the state (field 3 is at index 0).
fn own_stat() -> io::Result<Vec<u64>> {
    let stat = std::fs::read("/proc/self/stat")?;
    let after_name = stat.iter().rposition(|&b| b == b')').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&stat[after_name..]);
    Ok(text
        .split_ascii_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect())
}

impl ArgArea {
    pub(crate) fn of_this_process() -> io::Result<ArgArea> {
        let stat = own_stat()?;
        let field = |number: usize| stat.get(number - 3).map_or(0, |&value| value as usize);
        Ok(ArgArea {
            arg_start: field(48),
            arg_end: field(49),
            env_end: field(51),
        })
    }

    /// The arguments, and the environment, which directly follows.
    ///
    /// # Safety
    /// No other reference to these bytes may be alive: `std::env` must not be used while the slice
    /// is, nor after the bytes have been changed.
    pub(crate) unsafe fn bytes(&self) -> &'static mut [u8] {
        // SAFETY: at exec the kernel put argument and environment strings there, in one writable
        // piece.
        unsafe { std::slice::from_raw_parts_mut(self.arg_start as *mut u8, self.env_end - self.arg_start) }
    }
}

/// The kernel's `struct prctl_mm_map`.
#[repr(C)]
struct PrctlMmMap {
    start_code: u64,
    end_code: u64,
    start_data: u64,
    end_data: u64,
    start_brk: u64,
    brk: u64,
    start_stack: u64,
    arg_start: u64,
    arg_end: u64,
    env_start: u64,
    env_end: u64,
    auxv: u64,
    auxv_size: u32,
    exe_fd: u32,
}

/// Tells the kernel that the command line of this process is elsewhere. Sets all fields in one call,
/// which needs no capability, but CONFIG_CHECKPOINT_RESTORE.
pub(crate) fn move_args(start: usize, end: usize) -> io::Result<()> {
    let stat = own_stat()?;
    let field = |number: usize| stat.get(number - 3).copied().unwrap_or(0);
    // SAFETY: sbrk(0) only queries, and changes nothing.
    let brk = unsafe { libc::sbrk(0) } as u64;
    let map = PrctlMmMap {
        start_code: field(26),
        end_code: field(27),
        start_data: field(45),
        end_data: field(46),
        start_brk: field(47),
        brk,
        start_stack: field(28),
        arg_start: start as u64,
        arg_end: end as u64,
        env_start: field(50),
        env_end: field(51),
        auxv: 0,
        auxv_size: 0,
        exe_fd: u32::MAX,
    };
    // SAFETY: everything but the argument area is as before, so the process continues unaffected.
    cvt(unsafe { libc::prctl(libc::PR_SET_MM, libc::PR_SET_MM_MAP, &map, size_of_val(&map), 0) }.into()).map(drop)
}

/// Strings in the form of the kernel's argument list: each followed by NUL.
pub(crate) fn joined(strings: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = strings.join(&0);
    if !strings.is_empty() {
        bytes.push(0);
    }
    bytes
}
