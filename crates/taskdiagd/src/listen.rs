//! The socket to listen on: the one that systemd passes, or a new one.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::sys;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 512;

/// The socket that systemd passed, or a new one at `path`.
pub fn listen(path: &Path) -> Result<OwnedFd, String> {
    match passed_socket()? {
        Some(socket) => Ok(socket),
        None => bind(path).map_err(|error| format!("can't listen on {}: {error}", path.display())),
    }
}

/// The socket that systemd passed: sd_listen_fds(3).
fn passed_socket() -> Result<Option<OwnedFd>, String> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    if number("LISTEN_FDS") != Some(1) {
        return Err("systemd has to pass one socket: its unit needs one ListenSequentialPacket=".to_owned());
    }
    // SAFETY: systemd has opened descriptor 3 for this process, and nothing else here uses it.
    let socket = unsafe { OwnedFd::from_raw_fd(3) };
    let _ = rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC);
    match rustix::net::sockopt::socket_type(&socket) {
        Ok(SocketType::SEQPACKET) => Ok(Some(socket)),
        Ok(_) => Err("systemd passed a socket of another type: its unit needs ListenSequentialPacket=".to_owned()),
        Err(errno) => Err(format!("can't use the socket that systemd passed: {errno}")),
    }
}

fn bind(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    remove_stale(path, &address)?;
    let socket = socket(SocketFlags::empty())?;
    // Everybody may connect: what a client sees is decided for each. The mode is set by umask,
    // because the owner of the directory could replace the socket before a chmod by its path.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o111));
    let bound = rustix::net::bind(&socket, &address);
    rustix::process::umask(before);
    bound?;
    // Before anybody can connect: connections inherit it.
    let _ = sys::refuse_descriptors(socket.as_fd());
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Removes the socket of a broker that was killed. Fails if there is anything else.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::other("there is another file: use another --socket"));
    }
    // Does not wait for a program whose backlog is full.
    let connection = socket(SocketFlags::NONBLOCK)?;
    let other = "does already: stop it, or use another --socket";
    match rustix::net::connect(&connection, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Ok(()) | Err(Errno::AGAIN) => Err(io::Error::other(format!("another broker {other}"))),
        Err(Errno::PROTOTYPE) => Err(io::Error::other(format!("another program {other}"))),
        Err(errno) => Err(errno.into()),
    }
}

fn socket(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Check that the socket of a broker that was killed is replaced, and nothing else: neither the
    /// socket of a running broker, nor that of a program with sockets of another type, nor a file.
    #[test]
    fn only_stale_sockets_are_replaced() {
        let directory = std::env::temp_dir().join(format!("taskdiagd-listen-{}", std::process::id()));
        let path = directory.join("socket");
        let killed = bind(&path).expect("a new socket");
        let is_kept = |what: &str| {
            let error = bind(&path).expect_err(what);
            assert!(fs::symlink_metadata(&path).is_ok(), "{what} was removed");
            error.to_string()
        };
        assert!(is_kept("a broker's").contains("another broker"));
        drop(killed);
        drop(bind(&path).expect("a socket in place of the stale one"));
        fs::remove_file(&path).expect("a socket");
        let other = UnixListener::bind(&path).expect("a stream socket");
        assert!(is_kept("a program's").contains("another program"));
        drop(other);
        fs::remove_file(&path).expect("a socket");
        fs::write(&path, "").expect("a file");
        assert!(is_kept("a file").contains("another file"));
        let _ = fs::remove_dir_all(directory);
    }
}
