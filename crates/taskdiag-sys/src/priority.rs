//! I/O priorities (ioprio_set(2)), which neither rustix nor libc have.

use rustix::io::Errno;
use rustix::process::Pid;

use crate::checked;

/// `IOPRIO_WHO_PROCESS`: one thread.
const THREAD: libc::c_int = 1;

/// The I/O priority of a thread: its class, and in the lower 13 bits the level.
pub fn io_priority(thread: Pid) -> Result<i32, Errno> {
    // SAFETY: all arguments are numbers.
    let priority = checked(unsafe { libc::syscall(libc::SYS_ioprio_get, THREAD, thread.as_raw_pid()) })?;
    Ok(priority as i32)
}

/// Sets the I/O priority of a thread.
pub fn set_io_priority(thread: Pid, priority: i32) -> Result<(), Errno> {
    // SAFETY: all arguments are numbers.
    checked(unsafe { libc::syscall(libc::SYS_ioprio_set, THREAD, thread.as_raw_pid(), priority) }).map(drop)
}
