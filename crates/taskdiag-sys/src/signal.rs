//! Signals to a process that is known by a descriptor, with or without a value.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// `struct siginfo` of the kernel as far as sigqueue(3) fills it.
#[derive(Clone, Copy)]
#[repr(C)]
struct QueuedSignal {
    signo: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    sender: Sender,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Sender {
    pid: libc::pid_t,
    uid: libc::uid_t,
    /// `union sigval`: the kernel hands it on as it is.
    value: usize,
}

/// All bytes of `siginfo_t`.
#[repr(C)]
union SignalInfo {
    queued: QueuedSignal,
    bytes: [u8; 128],
}

const _: () = assert!(size_of::<SignalInfo>() == size_of::<libc::siginfo_t>());

/// Sends a signal to the process of a descriptor of pidfd_open(2) (Linux 5.1). With `value` it is
/// queued as by sigqueue(3). Signal 0 only checks whether one could be sent.
///
/// `ESRCH`: the process has ended. `EPERM`: the caller may not send it signals.
pub fn send(process: BorrowedFd<'_>, signal: i32, value: Option<i32>) -> Result<(), Errno> {
    let mut info = SignalInfo { bytes: [0; 128] };
    let queued = value.map(|value| QueuedSignal {
        signo: signal,
        errno: 0,
        code: libc::SI_QUEUE,
        sender: Sender {
            // SAFETY: these two have no arguments and can't fail.
            pid: unsafe { libc::getpid() },
            // SAFETY: as above.
            uid: unsafe { libc::getuid() },
            // As C puts the int of `union sigval` into its first bytes.
            value: if cfg!(target_endian = "little") {
                value as u32 as usize
            } else {
                (value as u32 as usize) << (usize::BITS - u32::BITS)
            },
        },
    });
    let place: *const SignalInfo = match queued {
        Some(queued) => {
            info.queued = queued;
            &info
        }
        None => std::ptr::null(),
    };
    // SAFETY: the descriptor is open while it is borrowed, and `place` is null or points to a whole
    // siginfo, all of whose bytes are set, that lives until the call has returned.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, place, 0) };
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::process::Command;

    use rustix::process::{pidfd_open, Pid, PidfdFlags};

    use super::*;

    /// Check that a signal ends the process that is meant, with and without a value, and that one
    /// that has ended is told from one that is there.
    #[test]
    fn signals_reach_the_process() {
        for value in [None, Some(-7)] {
            let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep exists");
            let pid = Pid::from_child(&child);
            let process = pidfd_open(pid, PidfdFlags::empty()).expect("it is there");
            assert_eq!(send(process.as_fd(), 0, None), Ok(()));
            assert_eq!(send(process.as_fd(), 1000, None), Err(Errno::INVAL));
            assert_eq!(send(process.as_fd(), libc::SIGTERM, value), Ok(()));
            let status = child.wait().expect("it ends");
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&status),
                Some(libc::SIGTERM)
            );
            assert_eq!(send(process.as_fd(), 0, None), Err(Errno::SRCH));
        }
    }
}
