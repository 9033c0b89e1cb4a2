//! Where the exporter listens: an address, or a UNIX socket.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Internet(Vec<SocketAddr>),
    Unix(PathBuf),
}

/// Parses an address: `ADDR:PORT`, `:PORT` for all addresses, or the path of a UNIX socket, which has a
/// slash or begins with `unix:`.
pub fn parse(text: &str) -> Result<Address, String> {
    if let Some(path) = text
        .strip_prefix("unix:")
        .or_else(|| text.contains('/').then_some(text))
    {
        return Ok(Address::Unix(PathBuf::from(path)));
    }
    let wrong = |why: &str| {
        format!("{text:?} is no place to listen at ({why}): give ADDR:PORT like 127.0.0.1:9256, :PORT for all addresses, or the path of a UNIX socket")
    };
    if let Some(port) = text.strip_prefix(':') {
        let port: u16 = port.parse().map_err(|_| wrong("not a port"))?;
        return Ok(Address::Internet(vec![
            SocketAddr::from(([0_u16; 8], port)),
            SocketAddr::from(([0_u8; 4], port)),
        ]));
    }
    let found = text
        .to_socket_addrs()
        .map_err(|error| wrong(&crate::outcome::message(&error)))?;
    let found: Vec<SocketAddr> = found.collect();
    if found.is_empty() {
        return Err(wrong("no such address"));
    }
    Ok(Address::Internet(found))
}

/// A socket that listens. That of a path is removed at the end.
#[derive(Debug)]
pub enum Listener {
    Internet(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    ///
    /// A message that names the place.
    pub fn open(address: &Address) -> Result<Listener, String> {
        let opened = match address {
            Address::Internet(addresses) => TcpListener::bind(addresses.as_slice()).map(Listener::Internet),
            Address::Unix(path) => open_unix(path),
        };
        let listener = opened.and_then(|listener| {
            match &listener {
                Listener::Internet(socket) => socket.set_nonblocking(true)?,
                Listener::Unix(socket, _) => socket.set_nonblocking(true)?,
            }
            Ok(listener)
        });
        listener.map_err(|error| {
            let place = match address {
                Address::Internet(addresses) => addresses[0].to_string(),
                Address::Unix(path) => path.display().to_string(),
            };
            format!("--listen {place}: {}", crate::outcome::message(&error))
        })
    }

    /// Where it listens, as clients name it.
    pub fn place(&self) -> String {
        match self {
            Listener::Internet(socket) => match socket.local_addr() {
                Ok(address) => format!("http://{address}/metrics"),
                Err(error) => crate::outcome::message(&error),
            },
            Listener::Unix(_, path) => path.display().to_string(),
        }
    }

    /// Takes a connection, if one waits.
    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Internet(socket) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Internet(stream))
            }
            Listener::Unix(socket, _) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(stream))
            }
        }
    }
}

/// Listens at a path. What an exporter that was killed left there is removed.
fn open_unix(path: &Path) -> io::Result<Listener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && is_left(path)? {
        fs::remove_file(path)?;
    }
    let socket = UnixListener::bind(path)?;
    // Of the user and the group; a directory can narrow that.
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    Ok(Listener::Unix(socket, path.to_owned()))
}

/// Whether nobody listens at a socket any more. Does not wait for a program whose backlog is full.
fn is_left(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) == Err(Errno::CONNREFUSED))
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Internet(socket) => socket.as_fd(),
            Listener::Unix(socket, _) => socket.as_fd(),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub enum Stream {
    Internet(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Says that nothing more will be sent.
    pub fn shutdown(&self) -> io::Result<()> {
        match self {
            Stream::Internet(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Internet(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Internet(stream) => stream.write(buffer),
            Stream::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Internet(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check addresses of each kind, and texts that are none.
    #[test]
    fn places_have_three_forms() {
        assert_eq!(parse("/run/x.sock"), Ok(Address::Unix("/run/x.sock".into())));
        assert_eq!(parse("unix:x.sock"), Ok(Address::Unix("x.sock".into())));
        assert_eq!(parse("./x.sock"), Ok(Address::Unix("./x.sock".into())));
        let of = |text: &str| match parse(text) {
            Ok(Address::Internet(found)) => found.iter().map(ToString::to_string).collect(),
            other => vec![format!("{other:?}")],
        };
        assert_eq!(of("127.0.0.1:9256"), ["127.0.0.1:9256"]);
        assert_eq!(of("[::1]:0"), ["[::1]:0"]);
        assert_eq!(of(":9256"), ["[::]:9256", "0.0.0.0:9256"]);
        for text in ["", "9256", "127.0.0.1", ":", ":99999", "1.2.3.4:x"] {
            assert!(parse(text).is_err_and(|wrong| wrong.contains("ADDR:PORT")), "{text}");
        }
    }

    /// Check that a program that accepts nobody, and whose backlog is full, is not waited for.
    #[test]
    fn a_full_backlog_holds_nobody() {
        let path = std::env::temp_dir().join(format!("taskdiag-listen-{}", std::process::id()));
        let address = SocketAddrUnix::new(&path).expect("a path");
        let socket = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket")
        };
        let other = socket();
        rustix::net::bind(&other, &address).expect("a free path");
        rustix::net::listen(&other, 0).expect("a bound socket");
        let clients = [socket(), socket()];
        let connected = clients.each_ref().map(|client| rustix::net::connect(client, &address));
        assert_eq!(connected[1], Err(Errno::AGAIN), "there is room");
        let (sender, receiver) = std::sync::mpsc::channel();
        let place = Address::Unix(path.clone());
        std::thread::spawn(move || sender.send(Listener::open(&place).map(|_| ())));
        let opened = receiver.recv_timeout(std::time::Duration::from_secs(20));
        let is_kept = fs::remove_file(&path).is_ok();
        let refusal = opened.expect("it waits").expect_err("somebody else listens");
        assert!(refusal.contains("in use") && is_kept, "{refusal}");
    }
}
