//! Signals as something to wait for, or to be left alone by.

use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::ptr;

/// Keeps these signals from interrupting the calling thread, and returns what becomes readable when one of them comes. To
/// be called before other threads are started, which take over what this one keeps away.
pub fn hold_back(signals: &[c_int]) -> io::Result<OwnedFd> {
    // SAFETY: all zeros are a valid set, and sigemptyset makes it an empty one on any system.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `set` outlives the calls, which change nothing else.
    unsafe {
        libc::sigemptyset(&mut set);
        signals.iter().for_each(|&signal| {
            libc::sigaddset(&mut set, signal);
        });
    }
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
    // SAFETY: the kernel has just opened this descriptor for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// While it lives, no signal interrupts the thread that made it; those that came meanwhile are delivered then.
#[derive(Debug)]
pub struct Deferral {
    before: libc::sigset_t,
    /// The mask is a thread's own.
    _of_this_thread: PhantomData<*const ()>,
}

impl Deferral {
    /// Begins it.
    pub fn begin() -> Deferral {
        // SAFETY: all zeros are a valid set; sigfillset makes it a full one.
        let mut all: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: the same.
        let mut before: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: both sets outlive the calls.
        unsafe {
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        }
        Deferral {
            before,
            _of_this_thread: PhantomData,
        }
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        // SAFETY: the set outlives the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}
