//! System calls that no library has, or that these libraries do not offer safely.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::process::Pid;

pub use taskdiag_sys::descriptors::{receive_with_file, send_with_file};

/// `SO_PEERPIDFD` (Linux 6.5).
const SO_PEERPIDFD: i32 = 77;

/// `SO_PASSRIGHTS` (Linux 6.16).
const SO_PASSRIGHTS: i32 = 83;

/// `lsm_list_modules(2)` (Linux 6.8), the same number on all machines.
const SYS_LSM_LIST_MODULES: i64 = 461;

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Reads an option of a socket into `value`, numbers that may have any bits. Returns the length that
/// the kernel wrote.
fn get_option<T: zerocopy::FromBytes + ?Sized>(
    socket: BorrowedFd<'_>,
    option: i32,
    value: &mut T,
) -> Result<usize, Errno> {
    let mut len = size_of_val(value) as libc::socklen_t;
    let place = (&raw mut *value).cast();
    // SAFETY: the kernel writes at most the given length, and the length. Any bytes are a value.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, place, &mut len) } {
        0 => Ok(len as usize),
        _ => Err(last_errno()),
    }
}

/// A pidfd of the process that connected, even if another process has its pid by now.
pub fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut fd: i32 = -1;
    get_option(socket, SO_PEERPIDFD, &mut fd)?;
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the kernel has just opened it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The process that connected, and its effective user and group ids at that time. The pid is 0 if
/// it has none in this pid namespace.
///
/// rustix has this call and `SCM_CREDENTIALS`, but its `UCred` can't hold pid 0, which both can
/// return.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> Result<libc::ucred, Errno> {
    let mut numbers = [0_u32; 3];
    if get_option(socket, libc::SO_PEERCRED, &mut numbers)? != size_of::<libc::ucred>() {
        return Err(Errno::INVAL);
    }
    let [pid, uid, gid] = numbers;
    Ok(libc::ucred {
        pid: pid as i32,
        uid,
        gid,
    })
}

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// How many of its bytes are in the buffer. 0: the connection has ended, or the packet is
    /// empty.
    pub len: usize,
    /// The packet is longer than the buffer.
    pub is_truncated: bool,
    /// The pid of its sender; 0 if the kernel does not say.
    pub sender: i32,
    /// Descriptors came with it.
    pub has_descriptors: bool,
}

/// Receives a packet and the pid of its sender. Does not wait for a packet. There is no room for
/// descriptors, so the kernel closes any that were sent, which may wait. With `peek`, the packet
/// and its descriptors stay in the socket.
pub fn receive_from(socket: BorrowedFd<'_>, buffer: &mut [u8], peek: bool) -> Result<Packet, Errno> {
    /// Room for one `struct ucred` after its header, with the header's alignment.
    #[repr(C, align(8))]
    struct Control([u8; 32]);
    let mut control = Control([0; 32]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: zeros are a value of this structure of numbers and pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the buffers have the given lengths and outlive the call.
    let len = unsafe {
        libc::recvmsg(
            socket.as_raw_fd(),
            &mut message,
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | if peek { libc::MSG_PEEK } else { 0 },
        )
    };
    let len = usize::try_from(len).map_err(|_| last_errno())?;
    let mut sender = 0;
    // SAFETY: the kernel has filled in the message. What is read lies within its control buffer.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        if !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_CREDENTIALS
            && (*header).cmsg_len as usize >= libc::CMSG_LEN(size_of::<libc::ucred>() as u32) as usize
        {
            sender = libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned().pid;
        }
    }
    Ok(Packet {
        len,
        is_truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        sender,
        has_descriptors: message.msg_flags & libc::MSG_CTRUNC != 0,
    })
}

/// Makes a socket refuse packets with descriptors (`SO_PASSRIGHTS`). Returns whether it already
/// did; `None` if this kernel can't.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> Option<bool> {
    let mut accepts: libc::c_int = 1;
    let len = get_option(socket, SO_PASSRIGHTS, &mut accepts).ok()?;
    let refused = accepts == 0;
    accepts = 0;
    let value = (&raw const accepts).cast();
    // SAFETY: the kernel reads one int.
    if unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, value, len as _) } != 0 {
        return None;
    }
    Some(refused)
}

/// Forks a process that has one thread. Returns `None` in the child, which is killed when its
/// parent ends.
pub fn fork() -> io::Result<Option<Pid>> {
    let parent = rustix::process::getpid();
    // SAFETY: the process has one thread, so no lock is held in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let signal = rustix::process::Signal::KILL;
            let is_set = rustix::process::set_parent_process_death_signal(Some(signal)).is_ok();
            // The parent may have ended before the call.
            if is_set && rustix::process::getppid() == Some(parent) {
                Ok(None)
            } else {
                std::process::exit(1)
            }
        }
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Closes all descriptors but the standard ones and `kept`. The closed ones must not be used
/// afterwards.
pub fn close_all_but(kept: &OwnedFd) {
    let kept = kept.as_raw_fd() as libc::c_uint;
    for (first, last) in [(3, kept - 1), (kept + 1, libc::c_uint::MAX)] {
        if first <= last {
            // SAFETY: numbers only. The caller uses none of these descriptors any more.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Becomes another user and group, without supplementary groups.
pub fn become_user(user: u32, group: u32) -> io::Result<()> {
    // Changing ids clears the signal that this process gets when its parent ends.
    let signal = rustix::process::parent_process_death_signal()?;
    // SAFETY: numbers, and an empty list. libc changes all threads.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(group, group, group) == 0
            && libc::setresuid(user, user, user) == 0
    };
    if done {
        Ok(rustix::process::set_parent_process_death_signal(signal)?)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Handles SIGSYS: names the system call that seccomp refused, and ends the process.
extern "C" fn handle_refused_call(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    const TEXT: &[u8] = b"taskdiagd: error: system call       is not in the list of this process: it ends\n";
    let mut line = [0_u8; TEXT.len()];
    line.copy_from_slice(TEXT);
    // `si_syscall`, which the libc crate does not have: it follows three ints, padding, and
    // `si_call_addr`. SAFETY: the kernel passes a whole siginfo_t.
    let mut number = unsafe { info.cast::<u8>().add(24).cast::<i32>().read_unaligned() };
    for place in (30..35).rev() {
        line[place] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    // SAFETY: both are safe in a signal handler, and the line outlives the call.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
        libc::_exit(128 + libc::SIGSYS);
    }
}

/// Makes this process and those that it starts name a system call that seccomp refuses, before they
/// end.
pub fn name_refused_calls() {
    // SAFETY: zeros are a value of this structure. The handler is safe in a signal handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle_refused_call as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut());
    }
}

/// Blocks the signals that ask this process to end, until it can handle them, or unblocks them.
pub fn block_termination(blocked: bool) {
    // SAFETY: the set is of this function, and the old one is not asked for.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        for signal in [libc::SIGTERM, libc::SIGINT] {
            libc::sigaddset(&mut signals, signal);
        }
        let how = if blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
        libc::pthread_sigmask(how, &signals, std::ptr::null_mut());
    }
}

/// Makes this process and those that it starts ignore the signals that ask them to end. The loop
/// handles these signals and ends the others.
pub fn ignore_termination() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: numbers only.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// How much the peer has not read yet, in bytes of kernel memory, which is more than was sent.
pub fn unread(socket: BorrowedFd<'_>) -> Result<usize, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) } {
        0 => Ok(bytes as usize),
        _ => Err(last_errno()),
    }
}

/// The events that a descriptor has now, out of those asked for; HUP and ERR always. Does not wait.
pub fn poll_now(fd: BorrowedFd<'_>, events: PollFlags) -> Result<PollFlags, Errno> {
    let mut polled = [PollFd::from_borrowed_fd(fd, events)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(polled[0].revents())
}

/// The security label that the process had when it connected (`SO_PEERSEC`).
pub fn peer_label(socket: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let mut label = vec![0_u8; 1024];
    let len = get_option(socket, libc::SO_PEERSEC, label.as_mut_slice())?;
    label.truncate(len);
    Ok(label)
}

/// The active security modules, separated by commas, from lsm_list_modules(2) or else from the file
/// in securityfs. If securityfs is not mounted, it is mounted for this process alone.
pub fn security_modules() -> Option<String> {
    listed_modules()
        .or_else(|| std::fs::read_to_string("/sys/kernel/security/lsm").ok())
        .or_else(|| {
            let context = rustix::mount::fsopen("securityfs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
            rustix::mount::fsconfig_create(&context).ok()?;
            let mount = rustix::mount::fsmount(
                &context,
                FsMountFlags::FSMOUNT_CLOEXEC,
                MountAttrFlags::MOUNT_ATTR_RDONLY,
            )
            .ok()?;
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            let file = rustix::fs::openat(&mount, "lsm", flags, rustix::fs::Mode::empty()).ok()?;
            let mut text = String::new();
            File::from(file).read_to_string(&mut text).ok()?;
            Some(text)
        })
}

/// The same from lsm_list_modules(2) (Linux 6.8).
fn listed_modules() -> Option<String> {
    // `LSM_ID_…` of `include/uapi/linux/lsm.h`.
    const FIRST_ID: u64 = 100;
    const NAMES: [&str; 14] = [
        "capability",
        "selinux",
        "smack",
        "tomoyo",
        "apparmor",
        "yama",
        "loadpin",
        "safesetid",
        "lockdown",
        "bpf",
        "landlock",
        "ima",
        "evm",
        "ipe",
    ];
    let mut ids = [0_u64; 64];
    let mut size = size_of_val(&ids) as u32;
    // SAFETY: the kernel writes at most the given size, and the size of the list.
    let count = unsafe { libc::syscall(SYS_LSM_LIST_MODULES, ids.as_mut_ptr(), &mut size, 0_u32) };
    let ids = ids.get(..usize::try_from(count).ok()?)?;
    let name = |id: &u64| {
        NAMES
            .get(id.wrapping_sub(FIRST_ID) as usize)
            .copied()
            .unwrap_or("unknown")
    };
    Some(ids.iter().map(name).collect::<Vec<_>>().join(","))
}

/// Returns freed memory to the kernel. The allocator would keep much of it.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: only free memory changes.
    unsafe {
        libc::malloc_trim(0);
    }
}
