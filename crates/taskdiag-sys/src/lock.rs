//! Record locks of fcntl(2).

use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Whether another process holds a write lock on some part of a file.
pub fn is_locked(file: BorrowedFd<'_>) -> bool {
    // SAFETY: zeros are a valid flock: from the file's start, to its end.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as libc::c_short;
    // SAFETY: the descriptor is open while it is borrowed, and `lock` lives until the call has
    // returned.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut lock) };
    result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    /// Check that a lock of an open file description, which has no owner pid, is seen.
    #[test]
    fn locks_without_a_process_are_seen() {
        let path = std::env::temp_dir().join(format!("taskdiag-lock-{}", std::process::id()));
        let holder = std::fs::File::create(&path).expect("a file");
        let other = std::fs::File::open(&path).expect("it is there");
        std::fs::remove_file(&path).expect("it is ours");
        assert!(!is_locked(other.as_fd()));
        // SAFETY: zeros are a valid flock.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        // SAFETY: the descriptor is open, and `lock` lives until the call has returned.
        let result = unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
        assert_eq!(result, 0);
        assert!(is_locked(other.as_fd()));
    }
}
