//! Signals: sending them to a process through a pidfd, with or without a value, and blocking them,
//! either to receive them from a descriptor or not to be interrupted.

use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::process::{getpid, getuid};

use crate::checked;

fn set_of(signals: &[c_int]) -> libc::sigset_t {
    // SAFETY: all zeros are a valid set, which sigemptyset() makes an empty one on any system.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `set` outlives the calls, which change nothing else.
    unsafe {
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
    }
    set
}

/// Blocks `signals` in the calling thread, and returns a signalfd(2) that becomes readable when one
/// of them arrives. Call it before starting other threads, because these inherit the mask.
pub fn signalfd(signals: &[c_int]) -> io::Result<OwnedFd> {
    let set = set_of(signals);
    // SAFETY: `set` outlives the call; the old set is not asked for.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: `set` outlives the call, which asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for us, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Delivers a pending signal that this thread has blocked, with its usual effect, and blocks it
/// again.
pub fn let_through(signal: c_int) {
    let set = set_of(&[signal]);
    // SAFETY: `set` outlives the calls; the old sets are not asked for.
    unsafe {
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
    }
}

/// Blocks all signals in the thread that created it until it is dropped.
#[derive(Debug)]
pub struct SignalsBlocked {
    before: libc::sigset_t,
    /// Not `Send`, because each thread has its own mask.
    _of_this_thread: PhantomData<*const ()>,
}

impl SignalsBlocked {
    /// Blocks all signals in the calling thread.
    pub fn begin() -> SignalsBlocked {
        // SAFETY: all zeros are a valid set, which sigfillset() makes a full one.
        let mut all: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: the same.
        let mut before: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: both sets outlive the calls.
        unsafe {
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        }
        SignalsBlocked {
            before,
            _of_this_thread: PhantomData,
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set outlives the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

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
    /// `union sigval`. The kernel passes it on unchanged.
    value: usize,
}

/// All bytes of `siginfo_t`.
#[repr(C)]
union SignalInfo {
    queued: QueuedSignal,
    bytes: [u8; 128],
}

const _: () = assert!(size_of::<SignalInfo>() == size_of::<libc::siginfo_t>());

/// Frees the memory of the process of a pidfd that a signal is ending, with process_mrelease(2)
/// (Linux 5.15).
pub fn release_memory(process: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: numbers only.
    checked(unsafe { libc::syscall(libc::SYS_process_mrelease, process.as_raw_fd(), 0) }).map(drop)
}

/// Sends a signal to the process of a pidfd, with pidfd_send_signal(2) (Linux 5.1). With `value`
/// the signal is queued, as by sigqueue(3). Signal 0 only checks whether a signal could be sent.
///
/// `ESRCH`: the process has ended. `EPERM`: the caller may not send it signals.
pub fn send(process: BorrowedFd<'_>, signal: i32, value: Option<i32>) -> Result<(), Errno> {
    let mut info = SignalInfo { bytes: [0; 128] };
    let queued = value.map(|value| QueuedSignal {
        signo: signal,
        errno: 0,
        code: libc::SI_QUEUE,
        sender: Sender {
            pid: getpid().as_raw_pid(),
            uid: getuid().as_raw(),
            // C stores the int of `union sigval` in its first bytes.
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
        None => ptr::null(),
    };
    // SAFETY: the descriptor is open while it is borrowed, and `place` is null or points to a whole
    // siginfo, all of whose bytes are set, that lives until the call has returned.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, place, 0) };
    checked(result).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::process::Command;

    use rustix::process::{pidfd_open, Pid, PidfdFlags};

    use super::*;

    /// Check that a signal ends the right process, with and without a value, and that a process
    /// that has ended is distinguished from one that exists.
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
