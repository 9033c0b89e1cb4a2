//! System calls that no crate has: all of the unsafe code.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use rustix::process::Pid;

/// `SO_PEERPIDFD` (Linux 6.5).
const SO_PEERPIDFD: i32 = 77;

/// `SO_PASSRIGHTS` (Linux 6.16).
const SO_PASSRIGHTS: i32 = 83;

/// `lsm_list_modules(2)` (Linux 6.8), the same on all machines.
const SYS_LSM_LIST_MODULES: i64 = 461;

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// A descriptor of the process that connected, whatever has become of its number.
pub fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut fd: i32 = -1;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes one int at most, and how much it wrote.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &mut len,
        )
    };
    match result {
        // SAFETY: the kernel has just made it for us.
        0 if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        0 => Err(Errno::BADF),
        _ => Err(last_errno()),
    }
}

/// Who connected: process, user and group, the process 0 where it has no number here.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> Result<libc::ucred, Errno> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes one structure of plain numbers at most, and how much it wrote.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut len,
        )
    };
    match result {
        0 if len as usize == size_of::<libc::ucred>() => Ok(credentials),
        0 => Err(Errno::INVAL),
        _ => Err(last_errno()),
    }
}

/// A packet that was received.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// How many bytes of it are in the buffer; 0 is the end of a connection, or an empty packet.
    pub len: usize,
    /// There was more of it.
    pub is_cut: bool,
    /// The process that sent it, 0 if the kernel does not say.
    pub sender: i32,
    /// There is something with it that nobody asked for: descriptors.
    pub has_more: bool,
}

/// Receives one packet and who sent it. Does not wait. There is no room for descriptors: the kernel closes those that come along, and
/// who closes a descriptor may have to wait. With `peek` the packet stays where it is, and they with it.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], peek: bool) -> Result<Packet, Errno> {
    /// Room for one `struct ucred` behind its header, aligned as that.
    #[repr(C, align(8))]
    struct Control([u8; 32]);
    let mut control = Control([0; 32]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all zero is a value of this structure of numbers and pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the buffers are as long as said and outlive the call.
    let len = unsafe {
        libc::recvmsg(
            socket.as_raw_fd(),
            &mut message,
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | if peek { libc::MSG_PEEK } else { 0 },
        )
    };
    let len = usize::try_from(len).map_err(|_| last_errno())?;
    let mut sender = 0;
    // SAFETY: the kernel has filled in the message, whose control buffer is ours; what is read lies within it.
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
        is_cut: message.msg_flags & libc::MSG_TRUNC != 0,
        sender,
        has_more: message.msg_flags & libc::MSG_CTRUNC != 0,
    })
}

/// Has a socket refuse packets with descriptors. Says whether it did so before; `None` where the kernel can't.
pub fn refuse_rights(socket: BorrowedFd<'_>) -> Option<bool> {
    let mut takes: libc::c_int = 1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw mut takes).cast();
    // SAFETY: the kernel writes one int at most, and how much it wrote.
    if unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, value, &mut len) } != 0 {
        return None;
    }
    let refused = takes == 0;
    takes = 0;
    let value = (&raw const takes).cast();
    // SAFETY: the kernel reads one int.
    if unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, value, len) } != 0 {
        return None;
    }
    Some(refused)
}

/// Sends a packet, and a file with it.
pub fn send(socket: BorrowedFd<'_>, packet: &[u8], file: Option<BorrowedFd<'_>>, at_once: bool) -> Result<(), Errno> {
    let flags = if at_once {
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT
    } else {
        SendFlags::NOSIGNAL
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, flags) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Receives a packet from one of ours, and the file that may come with it.
pub fn receive_with_file(socket: &OwnedFd, packet: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(packet)];
    let received = rustix::net::recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((received.bytes, files.last()))
}

/// fork(2), for processes with a single thread: `None` in the child, which ends with its parent.
pub fn fork() -> io::Result<Option<Pid>> {
    let parent = rustix::process::getpid();
    // SAFETY: there is one thread, so the child is whole.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // It may have ended before that was said.
            if rustix::process::getppid() == Some(parent) {
                Ok(None)
            } else {
                std::process::exit(1)
            }
        }
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Closes all descriptors but one and the standard ones. Whoever had them must not use them any more.
pub fn close_all_but(kept: &OwnedFd) {
    let kept = kept.as_raw_fd() as libc::c_uint;
    for (first, last) in [(3, kept - 1), (kept + 1, libc::c_uint::MAX)] {
        if first <= last {
            // SAFETY: numbers only. Nothing that is left of the parent in this process uses its descriptors.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Becomes another user and group, without others.
pub fn become_user(user: u32, group: u32) -> io::Result<()> {
    // Whoever wanted this process to end with it still does.
    let ends_with_parent = rustix::process::parent_process_death_signal()?;
    // SAFETY: numbers, and an empty list. libc has all threads do it.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(group, group, group) == 0
            && libc::setresuid(user, user, user) == 0
    };
    if done {
        Ok(rustix::process::set_parent_process_death_signal(ends_with_parent)?)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// What a process says that is about to end for a system call that it may not make.
extern "C" fn refused(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    const TEXT: &[u8] = b"taskdiagd: error: system call       is not in the list of this process: it ends\n";
    let mut line = [0_u8; TEXT.len()];
    line.copy_from_slice(TEXT);
    // `_call_addr` and `_syscall` of the part of siginfo_t for SIGSYS, behind three numbers and their padding.
    // SAFETY: the kernel hands a whole siginfo_t over.
    let mut number = unsafe { info.cast::<u8>().add(24).cast::<i32>().read_unaligned() };
    for place in (30..35).rev() {
        line[place] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    // SAFETY: system calls on memory of ours; nothing else is done.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
        libc::_exit(128 + libc::SIGSYS);
    }
}

/// Has this process, and those that it starts, say which system call they were not to make before they end.
pub fn name_refused_calls() {
    // SAFETY: all zero is a value of this structure; the handler makes system calls only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = refused as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut());
    }
}

/// Has this process, and those that it starts, go on when it is told to end: whoever asks them to do something ends them.
pub fn ignore_ends() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: numbers only.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// How much memory that was sent waits to be received, the kernel's own for each packet included.
pub fn unread(socket: BorrowedFd<'_>) -> Result<usize, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) } {
        0 => Ok(bytes as usize),
        _ => Err(last_errno()),
    }
}

/// What a descriptor has to say now, of what is asked for; that it was hung up is always told.
pub fn events_now(fd: BorrowedFd<'_>, asked: PollFlags) -> Result<PollFlags, Errno> {
    let mut polled = [PollFd::from_borrowed_fd(fd, asked)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(polled[0].revents())
}

/// The security label of the process that connected.
pub fn peer_label(socket: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let mut label = vec![0_u8; 1024];
    let mut len = label.len() as libc::socklen_t;
    // SAFETY: the kernel writes no more than the length it is told, and how much it wrote.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERSEC,
            label.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if result != 0 {
        return Err(last_errno());
    }
    label.truncate(len as usize);
    Ok(label)
}

/// The active security modules: by system call, or from the file that says so wherever its file system is.
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

/// Gives memory that was freed back to the kernel, of which the allocator would keep much for later.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches nothing but what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn listed_modules() -> Option<String> {
    // `LSM_ID_…` of `include/uapi/linux/lsm.h`.
    const NAMES: [&str; 12] = [
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
    ];
    let mut ids = [MaybeUninit::<u64>::uninit(); 64];
    let mut size = size_of_val(&ids) as u32;
    // SAFETY: the kernel writes no more than the size it is told, and how much it wrote.
    let count = unsafe { libc::syscall(SYS_LSM_LIST_MODULES, ids.as_mut_ptr(), &mut size, 0_u32) };
    let count = usize::try_from(count).ok()?;
    let written = ids.get(..count.min(size as usize / size_of::<u64>()))?;
    let name = |id: &MaybeUninit<u64>| {
        // SAFETY: these have been written.
        let id = unsafe { id.assume_init() };
        NAMES.get((id as usize).wrapping_sub(100)).copied().unwrap_or(match id {
            112 => "evm",
            113 => "ipe",
            _ => "unknown",
        })
    };
    Some(written.iter().map(name).collect::<Vec<_>>().join(","))
}

/// Major and minor version of the kernel.
pub fn kernel_version() -> (u32, u32) {
    let name = rustix::system::uname();
    let text = name.release().to_string_lossy().into_owned();
    let mut numbers = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
