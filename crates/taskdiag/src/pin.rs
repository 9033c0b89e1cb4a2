//! BPF programs that are loaded once, and used by many processes.
//!
//! Pinned programs stay in the kernel until they are unpinned, or until the next boot. A handle
//! uses them if they are there, which saves the time of loading. They see the tasks of all users,
//! so only root may use them.

use std::path::PathBuf;

use taskdiag_core::error::Result;

/// Loads the programs and pins them. Returns their directory, which is in `/sys/fs/bpf`, and mounts
/// bpffs there if it is not mounted. Programs that were pinned before are replaced.
///
/// # Errors
///
/// [`Denied`](crate::ErrorKind::Denied) for others than root,
/// [`Unsupported`](crate::ErrorKind::Unsupported) if the kernel can't load the programs (Linux
/// 5.17), [`System`](crate::ErrorKind::System) if they can't be pinned.
pub fn pin() -> Result<PathBuf> {
    taskdiag_bpf::pin::pin(false)
}

/// The same, with programs that count what processes send and receive from now on (Linux 6.3): for
/// the fields of [`Group::Net`](crate::Group::Net).
///
/// # Errors
///
/// As [`pin`].
pub fn pin_with_network() -> Result<PathBuf> {
    taskdiag_bpf::pin::pin(true)
}

/// Unpins the programs, and returns the directory where they were; `None` if there were none.
/// Processes that have opened them can still use them.
///
/// # Errors
///
/// [`Denied`](crate::ErrorKind::Denied) for others than root, [`System`](crate::ErrorKind::System)
/// otherwise.
pub fn unpin() -> Result<Option<PathBuf>> {
    taskdiag_bpf::pin::unpin()
}
