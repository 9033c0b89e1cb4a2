//! Where the exporter listens: an address, or a UNIX socket.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{flock, FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{sockopt, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::umask;
use tokio::io::{AsyncRead, AsyncWrite};

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 128;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Internet(Vec<SocketAddr>),
    Unix(PathBuf),
}

/// Parses an address: `ADDR:PORT`, `:PORT` for all addresses, or the path of a UNIX socket, which
/// contains a slash or begins with `unix:`.
pub fn parse(text: &str) -> Result<Address, String> {
    if let Some(path) = text
        .strip_prefix("unix:")
        .or_else(|| text.contains('/').then_some(text))
    {
        return Ok(Address::Unix(PathBuf::from(path)));
    }
    let wrong = |why: &str| {
        format!("can't listen at {text:?} ({why}): give ADDR:PORT like 127.0.0.1:9256, :PORT for all addresses, or the path of a UNIX socket")
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

/// A listening socket. A UNIX socket's file is removed at the end.
#[derive(Debug)]
pub enum Listener {
    Internet(TcpListener),
    Unix(UnixListener, SocketFile),
}

#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Its device and inode: meanwhile another exporter may have put its own there.
    which: (u64, u64),
}

impl Listener {
    /// Listens. The error names the address.
    pub fn open(address: &Address) -> Result<Listener, String> {
        let opened = match address {
            Address::Internet(addresses) => open_internet(addresses).map(Listener::Internet),
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

    /// The address, as clients name it.
    pub fn place(&self) -> String {
        match self {
            Listener::Internet(socket) => match socket.local_addr() {
                Ok(address) => format!("http://{address}/metrics"),
                Err(error) => crate::outcome::message(&error),
            },
            Listener::Unix(_, place) => place.path.display().to_string(),
        }
    }

    /// The same socket, in tokio's runtime, which has to run.
    pub fn accepting(&self) -> io::Result<Accepting> {
        Ok(match self {
            Listener::Internet(socket) => Accepting::Internet(tokio::net::TcpListener::from_std(socket.try_clone()?)?),
            Listener::Unix(socket, _) => Accepting::Unix(tokio::net::UnixListener::from_std(socket.try_clone()?)?),
        })
    }
}

/// A socket that accepts connections.
#[derive(Debug)]
pub enum Accepting {
    Internet(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Accepting {
    /// Waits for a connection.
    pub async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Accepting::Internet(socket) => Box::new(socket.accept().await?.0),
            Accepting::Unix(socket) => Box::new(socket.accept().await?.0),
        })
    }
}

/// A connection.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// Listens at the first address at which this is possible. As in Go, all addresses are those of
/// both versions of IP, whatever `net.ipv6.bindv6only` says.
fn open_internet(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let open = |address: &SocketAddr| -> io::Result<TcpListener> {
        let family = if address.is_ipv6() {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, !address.ip().is_unspecified())?;
        }
        rustix::net::bind(&socket, address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket.into())
    };
    let mut opened = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in addresses {
        opened = open(address);
        if opened.is_ok() {
            break;
        }
    }
    opened
}

/// Listens at a path. Removes the socket of an exporter that was killed.
fn open_unix(path: &Path) -> io::Result<Listener> {
    // Without this lock, of two that start at the same time, the second could remove the first's
    // socket.
    let _alone = alone(path);
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && is_left(path)? {
        fs::remove_file(path)?;
    }
    // Only the user and the group may connect, from the start. The directory can restrict this
    // further.
    let before = umask(Mode::from_raw_mode(0o117));
    let bound = UnixListener::bind(path);
    umask(before);
    let socket = bound?;
    let which = which(path)?;
    let path = path.to_owned();
    Ok(Listener::Unix(socket, SocketFile { path, which }))
}

fn which(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Locks the directory of a socket until the file is dropped. Gives up waiting after a short time:
/// anyone who may open the directory can hold the lock.
fn alone(path: &Path) -> Option<File> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or(Path::new("."))).ok()?;
    let end = Instant::now() + PATIENCE;
    while flock(&directory, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        if Instant::now() >= end {
            break;
        }
        sleep(Duration::from_millis(5));
    }
    Some(directory)
}

/// Whether nobody listens at a socket any more. Does not wait for a program whose backlog is full.
fn is_left(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) == Err(Errno::CONNREFUSED))
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, place) = self {
            let _alone = alone(&place.path);
            if which(&place.path).is_ok_and(|which| which == place.which) {
                let _ = fs::remove_file(&place.path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use taskdiag_testkit::temporary::Directory;

    use super::*;

    /// Check addresses of each form, and invalid ones.
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

    /// Check that this does not wait for a program that never accepts and whose backlog is full.
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

    /// Check that when many start at the same time, where a killed one left its socket, one listens
    /// and clients reach it.
    #[test]
    fn one_of_many_listens() {
        let directory = Directory::new("listen-many");
        let path = directory.join("metrics.sock");
        for _ in 0..20 {
            drop(UnixListener::bind(&path).expect("a new socket"));
            let place = Address::Unix(path.clone());
            let opened: Vec<Result<Listener, String>> = std::thread::scope(|scope| {
                let open = || scope.spawn(|| Listener::open(&place));
                let threads = [(); 8].map(|()| open());
                threads
                    .into_iter()
                    .map(|thread| thread.join().expect("it ends"))
                    .collect()
            });
            assert_eq!(
                opened.iter().filter(|listener| listener.is_ok()).count(),
                1,
                "{opened:?}"
            );
            UnixStream::connect(&path).expect("it listens");
            drop(opened);
            assert!(!path.exists());
        }
    }

    /// Check that an exporter whose socket was replaced does not remove its successor's.
    #[test]
    fn the_socket_of_another_stays() {
        let directory = Directory::new("listen-other");
        let path = directory.join("metrics.sock");
        let open = || Listener::open(&Address::Unix(path.clone())).expect("a free path");
        let first = open();
        fs::remove_file(&path).expect("its socket");
        let second = open();
        drop(first);
        UnixStream::connect(&path).expect("the second listens");
        drop(second);
        assert!(!path.exists());
    }
}
