//! Blocking signals: to receive them from a descriptor, or not to be interrupted.

use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::ptr;

/// Blocks `signals` in the calling thread, and returns a signalfd(2) that becomes readable when one
/// of them arrives. Call it before starting other threads, which inherit the mask.
pub fn signalfd(signals: &[c_int]) -> io::Result<OwnedFd> {
    // SAFETY: all zeros are a valid set, which sigemptyset() makes an empty one on any system.
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
    // SAFETY: the kernel has just opened this descriptor for us, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
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
