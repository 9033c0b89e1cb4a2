//! The socket to listen on: the one that systemd passes, or a new one.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::sys;

/// How many connections the kernel holds until they are accepted.
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
    let parent = directory_of(path);
    fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    check_directories(parent)?;
    remove_stale(path, &address)?;
    let socket = socket(SocketFlags::empty())?;
    // Everybody may connect: what a client sees is decided for each one. The mode is set through
    // the umask, because the owner of the directory could replace the socket before a chmod by
    // path.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o111));
    let bound = rustix::net::bind(&socket, &address);
    rustix::process::umask(before);
    bound?;
    // Before anybody can connect: connections inherit it.
    let _ = sys::refuse_descriptors(socket.as_fd());
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Fails if others own a directory on the path to the socket, or may rename its entries: they could
/// put their own socket in its place, and answer clients.
fn check_directories(parent: &Path) -> io::Result<()> {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let own = rustix::process::geteuid().as_raw();
    for directory in fs::canonicalize(parent)?.ancestors() {
        let found = fs::metadata(directory)?;
        let who = if ![0, own].contains(&found.uid()) {
            format!("belongs to user {}", found.uid())
        } else if found.mode() & OTHERS_WRITE != 0 && found.mode() & STICKY == 0 {
            "may be written by others".to_owned()
        } else {
            continue;
        };
        return Err(io::Error::other(format!(
            "{} {who}, so that another socket could be put in its place: use a directory that only root may change",
            directory.display()
        )));
    }
    Ok(())
}

/// Removes the socket of a broker that was killed. Fails if anything else is there.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::other("there is another file: use another --socket"));
    }
    // Does not wait for a program with a full backlog.
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
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Check that only the socket of a killed broker is replaced: not the socket of a running
    /// broker, not that of a program with another socket type, and not a file.
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

    /// Check that a name alone is one in the current directory.
    #[test]
    fn every_socket_has_a_directory() {
        for (path, directory) in [("name", "."), ("./name", "."), ("a/name", "a"), ("/name", "/")] {
            assert_eq!(directory_of(Path::new(path)), Path::new(directory), "{path}");
        }
    }

    /// Check that no socket is made where others could replace it: in their directory, in one to
    /// which they may write, or below one of these.
    #[test]
    fn others_can_not_replace_a_socket() {
        let directory = std::env::temp_dir().join(format!("taskdiagd-place-{}", std::process::id()));
        let below = directory.join("below");
        fs::create_dir_all(&below).expect("a directory");
        let set_mode = |mode| fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).expect("our own");
        let refusal = |parent: &Path| {
            bind(&parent.join("socket"))
                .expect_err("others may replace it")
                .to_string()
        };
        for mode in [0o777, 0o775] {
            set_mode(mode);
            for parent in [&directory, &below] {
                let said = format!("{} may be written by others", directory.display());
                assert!(refusal(parent).contains(&said), "{}", refusal(parent));
            }
        }
        set_mode(0o1777);
        drop(bind(&directory.join("socket")).expect("a sticky directory"));
        set_mode(0o755);
        drop(bind(&below.join("socket")).expect("a directory of our own"));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&directory, Some(65534), None).expect("root");
            assert!(refusal(&below).contains("belongs to user 65534"), "{}", refusal(&below));
        }
        let _ = fs::remove_dir_all(directory);
    }
}
