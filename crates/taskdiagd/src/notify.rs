//! Tells systemd that the loop turns: sd_notify(3), without the library.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// Whoever wants to know.
#[derive(Debug)]
pub struct Notify {
    socket: Option<OwnedFd>,
    /// How often it is to be told.
    every: Option<Duration>,
    next: Option<Instant>,
}

impl Notify {
    /// Who the environment says, while the socket can still be reached.
    pub fn find() -> Notify {
        let every = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let is_ours = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let socket = connect();
        let every = every
            .filter(|_| is_ours && socket.is_some())
            .map(|every: u64| Duration::from_micros(every) / 3);
        Notify {
            socket,
            every,
            next: every.map(|_| Instant::now()),
        }
    }

    /// Clients are served from now on.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// The loop has turned. Says when it is to turn again, at the latest.
    pub fn is_alive(&mut self) -> Option<Instant> {
        let (every, next) = (self.every?, self.next?);
        let now = Instant::now();
        if next <= now {
            self.tell("WATCHDOG=1");
            self.next = Some(now + every);
        }
        self.next
    }

    fn tell(&self, what: &str) {
        if let Some(socket) = &self.socket {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(socket, what.as_bytes(), flags);
        }
    }
}

fn connect() -> Option<OwnedFd> {
    let name = std::env::var_os("NOTIFY_SOCKET")?;
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name),
        None => SocketAddrUnix::new(name.as_os_str()),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
    rustix::net::connect(&socket, &address.ok()?).ok()?;
    Some(socket)
}
