//! The socket to listen on: systemd's, or one of our own.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::sys;

/// Clients that may wait to be let in.
const BACKLOG: i32 = 512;

/// The socket that was handed over, or a new one of this name.
pub fn listen(path: &Path) -> Result<OwnedFd, String> {
    match handed_over()? {
        Some(socket) => Ok(socket),
        None => bind(path).map_err(|error| format!("{}: {error}", path.display())),
    }
}

/// sd_listen_fds(3).
fn handed_over() -> Result<Option<OwnedFd>, String> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    if number("LISTEN_FDS") != Some(1) {
        return Err("systemd has to hand over one socket".to_owned());
    }
    // SAFETY: systemd has opened the first descriptor behind the standard ones for this process, and nothing else here uses it.
    let socket = unsafe { OwnedFd::from_raw_fd(3) };
    let _ = rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC);
    match rustix::net::sockopt::socket_type(&socket) {
        Ok(SocketType::SEQPACKET) => Ok(Some(socket)),
        Ok(_) => Err("the socket that systemd handed over has to be ListenSequentialPacket=".to_owned()),
        Err(errno) => Err(format!("the socket that systemd handed over: {errno}")),
    }
}

fn bind(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    match fs::symlink_metadata(path) {
        // One that nobody listens on was left behind.
        Ok(found) if found.file_type().is_socket() => match rustix::net::connect(&socket()?, &address) {
            Ok(()) => return Err(io::Error::other("another broker listens there")),
            Err(_) => fs::remove_file(path)?,
        },
        Ok(_) => return Err(io::Error::other("there is something that is no socket")),
        Err(_) => {}
    }
    let socket = socket()?;
    // Everybody may ask; what they see is decided for each of them. The name is made as it is to be: who has the directory could put
    // another one in its place before that could be changed.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o111));
    let bound = rustix::net::bind(&socket, &address);
    rustix::process::umask(before);
    bound?;
    // Before anybody can connect: sockets of clients have it from this one.
    let _ = sys::refuse_rights(socket.as_fd());
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The number of a group, by its number or its name in `/etc/group`.
pub fn group(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let text = fs::read_to_string("/etc/group").ok()?;
    text.lines().find_map(|line| {
        let mut parts = line.split(':');
        (parts.next()? == name).then(|| parts.nth(1)?.parse().ok())?
    })
}

/// The numbers of a user and its group, by `/etc/passwd`.
pub fn user(name: &str) -> Option<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    text.lines().find_map(|line| {
        let mut parts = line.split(':');
        let found = parts.next()? == name;
        let (user, group) = (parts.nth(1)?.parse().ok()?, parts.next()?.parse().ok()?);
        found.then_some((user, group))
    })
}
