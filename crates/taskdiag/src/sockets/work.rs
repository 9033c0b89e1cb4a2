//! Errands about sockets, which the other process runs.
//!
//! That process enters network namespaces, so that no thread of ours has to. And a dump can wait:
//! for TCP_INFO the kernel takes the lock of each socket. A process holds that lock while it sends
//! from memory of a file system that does not answer, and no signal ends that wait. Before Linux
//! 6.9, all dumps of the machine wait for each other.

use std::ffi::{CStr, CString};
use std::io::{IoSliceMut, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{fstat, openat, Mode, OFlags, CWD};
use rustix::io::{read, retry_on_intr, Errno};
use rustix::net::netdevice::index_to_name_inlined;
use rustix::net::{
    recvmsg, send, socket_with, AddressFamily, Protocol, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags,
    SocketFlags, SocketType,
};
use rustix::process::{pidfd_getfd, pidfd_open, Pid, PidfdFlags, PidfdGetfdFlags};
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};
use taskdiag_core::socket::diag::REQUEST;
use taskdiag_sys::descriptors::namespace_of;
use taskdiag_sys::host::OwnPath;
use taskdiag_sys::isolated::WorkFiles;

use crate::errands;

/// An errand: enters a network namespace, opens a socket there that answers about sockets, and
/// writes the inode number of that socket. The numbers are device and inode of the namespace, and a
/// [`socket_number`] or 0. Without a path and a socket, it stays where it is.
pub(super) fn enter(
    files: &mut WorkFiles,
    [device, inode, socket]: [u64; 3],
    path: &CStr,
    room: &mut [u8],
) -> Result<usize, Errno> {
    (files.path, files.file) = (None, None);
    if socket != 0 {
        let namespace = namespace_of(socket_of(socket)?.as_fd())?;
        let stat = fstat(&namespace)?;
        if (stat.st_dev, stat.st_ino) != (device, inode) {
            return Err(Errno::SRCH);
        }
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    } else if !path.is_empty() {
        let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&found)?;
        // The path may lead elsewhere by now. Another user can make it lead to a device, and
        // opening that can be enough to make it act.
        if (stat.st_dev, stat.st_ino) != (device, inode) {
            return Err(Errno::SRCH);
        }
        files.path = Some(found);
        move_into_link_name_space(errands::opened(files)?, Some(LinkNameSpaceType::Network))?;
        (files.path, files.file) = (None, None);
    }
    const SOCK_DIAG: u32 = libc::NETLINK_SOCK_DIAG as u32;
    let protocol = std::num::NonZeroU32::new(SOCK_DIAG).map(Protocol::from_raw);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    let inode = fstat(&socket)?.st_ino;
    files.file = Some(socket);
    Ok(errands::put_numbers([inode], room))
}

/// A descriptor of a process, as one number.
pub(super) fn socket_number(pid: u32, fd: u32) -> u64 {
    u64::from(pid) << 32 | u64::from(fd)
}

/// A copy of a descriptor of a process (Linux 5.6).
fn socket_of(number: u64) -> Result<OwnedFd, Errno> {
    let pid = Pid::from_raw((number >> 32) as i32).ok_or(Errno::SRCH)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    pidfd_getfd(process, number as u32 as i32, PidfdGetfdFlags::empty())
}

/// An errand: writes the inode number of the network namespace of a socket. The numbers are a
/// [`socket_number`] and the inode number of the socket.
pub(super) fn namespace(
    _: &mut WorkFiles,
    [socket, inode, _]: [u64; 3],
    _: &CStr,
    room: &mut [u8],
) -> Result<usize, Errno> {
    let socket = socket_of(socket)?;
    if fstat(&socket)?.st_ino != inode {
        return Err(Errno::NOENT);
    }
    let namespace = fstat(namespace_of(socket.as_fd())?)?.st_ino;
    Ok(errands::put_numbers([namespace], room))
}

/// The request of sock_diag(7) for [`ask`], which takes text: in hexadecimal.
pub(super) fn in_digits(request: &[u8]) -> CString {
    let digits: String = request.iter().map(|byte| format!("{byte:02x}")).collect();
    CString::new(digits).unwrap_or_default()
}

/// An errand: sends a request, which is the path, made by [`in_digits`], and writes the first
/// datagram of the answer.
pub(super) fn ask(files: &mut WorkFiles, _: [u64; 3], request: &CStr, room: &mut [u8]) -> Result<usize, Errno> {
    let mut bytes = [0; REQUEST];
    let digits = request.to_bytes();
    let len = digits.len() / 2;
    let place = bytes.get_mut(..len).ok_or(Errno::INVAL)?;
    for (byte, pair) in place.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| Errno::INVAL)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| Errno::INVAL)?;
    }
    let socket = opened(files)?;
    retry_on_intr(|| send(socket, &bytes[..len], SendFlags::empty()))?;
    receive(socket, room)
}

/// An errand: writes the next datagram of the answer.
pub(super) fn next(files: &mut WorkFiles, _: [u64; 3], _: &CStr, room: &mut [u8]) -> Result<usize, Errno> {
    receive(opened(files)?, room)
}

fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> Result<usize, Errno> {
    let mut parts = [IoSliceMut::new(room)];
    let received = retry_on_intr(|| {
        recvmsg(
            socket,
            &mut parts,
            &mut RecvAncillaryBuffer::default(),
            RecvFlags::empty(),
        )
    })?;
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    Ok(received.bytes)
}

/// An errand: writes the name of a network interface of the namespace.
pub(super) fn interface(
    files: &mut WorkFiles,
    [index, ..]: [u64; 3],
    _: &CStr,
    mut room: &mut [u8],
) -> Result<usize, Errno> {
    let name = index_to_name_inlined(opened(files)?, index as u32)?;
    let name = name.as_bytes();
    room.write_all(name).map_err(|_| Errno::NAMETOOLONG)?;
    Ok(name.len())
}

/// An errand: writes the next part of a file in `/proc/self/net`, or the first part.
pub(super) fn text(
    files: &mut WorkFiles,
    [begins, ..]: [u64; 3],
    name: &CStr,
    room: &mut [u8],
) -> Result<usize, Errno> {
    if begins != 0 {
        let name = name.to_str().map_err(|_| Errno::NOENT)?;
        files.path = Some(openat(
            CWD,
            OwnPath::of(format_args!("self/net/{name}")).as_c_str(),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
    }
    let file = files.path.as_ref().ok_or(Errno::BADF)?;
    retry_on_intr(|| read(file, &mut *room))
}

fn opened(files: &WorkFiles) -> Result<BorrowedFd<'_>, Errno> {
    files.file.as_ref().map(|file| file.as_fd()).ok_or(Errno::BADF)
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt as _;

    use rustix::fs::inotify::{add_watch, init, CreateFlags, Reader, WatchFlags};
    use rustix::fs::{mknodat, unlink, FileType};

    use super::*;

    /// Check that nothing but the meant namespace is opened: to open a device can be enough to make
    /// it act. This one is a FIFO.
    #[test]
    fn devices_are_not_opened() {
        let path = std::env::temp_dir().join(format!("taskdiag device {}", std::process::id()));
        let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).expect("a FIFO");
        let watch = init(CreateFlags::NONBLOCK).expect("inotify");
        add_watch(&watch, &path, WatchFlags::OPEN).expect("a watch");
        let entered = enter(&mut WorkFiles::default(), [1, 1, 0], &path, &mut [0; 8]);
        let mut room = [MaybeUninit::uninit(); 512];
        let opened = Reader::new(&watch, &mut room).next().map(|event| event.events());
        unlink(&path).expect("our own file");
        assert_eq!((entered, opened), (Err(Errno::SRCH), Err(Errno::AGAIN)));
    }
}
