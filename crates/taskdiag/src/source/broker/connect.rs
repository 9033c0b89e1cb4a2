//! Connects to a socket where a broker may listen, and reports if none does.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::support::Fact;

use crate::interrupt::is_interrupted_now;

/// The errors of connect(2) if there was no broker or it has ended.
const NOBODY: [Errno; 2] = [Errno::NOENT, Errno::CONNREFUSED];

/// The fact that nobody listens at a path. Its sentence is also the message of the error.
pub(crate) fn nobody_at(path: &Path, cause: &io::Error) -> Fact {
    let path = path.display();
    Fact::no(
        format!("no broker answers at {path}: {cause}"),
        format!("start it as root: taskdiagd --socket {path}"),
    )
}

/// The fact about the broker at a path that an error gives.
pub(crate) fn fact_of(path: &Path, error: &Error) -> Fact {
    let text = format!("{error:#}");
    let nobody = NOBODY.map(|errno| nobody_at(path, &errno.into()));
    let found = nobody.into_iter().find(|fact| fact.sentence() == text);
    found.unwrap_or_else(|| Fact::no(text, ""))
}

/// A connection to the program that listens at `path`. Waits for it no longer than the patience.
pub(super) fn connect(path: &Path, patience: Duration) -> Result<OwnedFd> {
    let failed = |errno: Errno| Error::io(format!("the broker's socket {}", path.display()), errno);
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)?;
    for which in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, which, Some(patience)).map_err(failed)?;
    }
    loop {
        // This waits while the kernel's queue of connections is full.
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) if !is_interrupted_now() => {}
            Err(errno) if NOBODY.contains(&errno) => {
                let nobody = nobody_at(path, &errno.into()).sentence();
                return Err(Error::new(ErrorKind::Unsupported, nobody));
            }
            // The sockets of other programs are often of another type.
            Err(Errno::PROTOTYPE) => {
                let other = format!("the server at {} is not a broker", path.display());
                return Err(Error::new(ErrorKind::Malformed, other));
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
}
