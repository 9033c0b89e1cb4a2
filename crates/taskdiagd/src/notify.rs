//! Tells systemd that the loop is ready and alive: sd_notify(3).
//!
//! The crates for this open a socket for each message. The loop may not open sockets, so it keeps
//! one.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// The connection to systemd, if systemd wants notifications.
#[derive(Debug)]
pub struct Notify {
    socket: Option<OwnedFd>,
    /// How often the watchdog must be notified.
    period: Option<Duration>,
    next: Option<Instant>,
}

impl Notify {
    /// Connects to the socket that the environment names, if it names one.
    pub fn connect() -> Notify {
        let timeout = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let is_ours = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let socket = socket();
        let period = timeout
            .filter(|_| is_ours && socket.is_some())
            .map(|timeout: u64| Duration::from_micros(timeout) / 3);
        Notify {
            socket,
            period,
            next: period.map(|_| Instant::now()),
        }
    }

    /// Says that clients are served.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// Notifies the watchdog if that is due. Returns when it is due next.
    pub fn alive(&mut self) -> Option<Instant> {
        let (period, next) = (self.period?, self.next?);
        let now = Instant::now();
        if next <= now {
            self.send("WATCHDOG=1");
            self.next = Some(now + period);
        }
        self.next
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(socket, message.as_bytes(), flags);
        }
    }
}

fn socket() -> Option<OwnedFd> {
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
