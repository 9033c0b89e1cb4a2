//! Sockets: what the kernel says of one, and the table of their fields.

pub mod diag;
mod field;
mod info;
mod names;
#[cfg(feature = "serde")]
mod serialize;

use std::fmt;
use std::net::IpAddr;

use bitflags::bitflags;

use crate::absent::{Absent, Known};
use crate::set::Member;

pub use field::{Row, SocketField};
pub use info::TcpInfo;

/// The family of a socket's addresses (address_families(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Family {
    /// IPv4: ip(7).
    Inet = libc::AF_INET as u8,
    /// IPv6, which can carry IPv4, too: ipv6(7).
    Inet6 = libc::AF_INET6 as u8,
    /// unix(7).
    Unix = libc::AF_UNIX as u8,
    /// netlink(7).
    Netlink = libc::AF_NETLINK as u8,
    /// packet(7).
    Packet = libc::AF_PACKET as u8,
    /// vsock(7).
    Vsock = libc::AF_VSOCK as u8,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 6] = [
        Family::Inet,
        Family::Inet6,
        Family::Unix,
        Family::Netlink,
        Family::Packet,
        Family::Vsock,
    ];

    /// The name: `inet`, `inet6`, `unix`, `netlink`, `packet`, `vsock`.
    pub fn name(self) -> &'static str {
        match self {
            Family::Inet => "inet",
            Family::Inet6 => "inet6",
            Family::Unix => "unix",
            Family::Netlink => "netlink",
            Family::Packet => "packet",
            Family::Vsock => "vsock",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

bitflags! {
    /// A set of kinds of sockets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Kinds: u8 {
        /// TCP, also with several paths (MPTCP).
        const TCP = 1;
        /// UDP, and UDP-Lite where the kernel has it.
        const UDP = 1 << 1;
        /// Sockets for any other protocol over IP (raw(7)).
        const RAW = 1 << 2;
        /// unix(7).
        const UNIX = 1 << 3;
        /// netlink(7).
        const NETLINK = 1 << 4;
        /// packet(7).
        const PACKET = 1 << 5;
        /// vsock(7).
        const VSOCK = 1 << 6;
    }
}

/// How a socket passes data: its type, as socket(2) takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Type {
    /// `SOCK_STREAM`.
    Stream,
    /// `SOCK_DGRAM`.
    Dgram,
    /// `SOCK_RAW`.
    Raw,
    /// `SOCK_SEQPACKET`.
    Seqpacket,
    /// `SOCK_PACKET`, which is obsolete.
    Packet,
    /// Another one, by its number.
    Other(u8),
}

impl Type {
    fn new(number: u8) -> Type {
        match i32::from(number) {
            libc::SOCK_STREAM => Type::Stream,
            libc::SOCK_DGRAM => Type::Dgram,
            libc::SOCK_RAW => Type::Raw,
            libc::SOCK_SEQPACKET => Type::Seqpacket,
            10 => Type::Packet,
            _ => Type::Other(number),
        }
    }

    /// The name: `stream`, `dgram`, `raw`, `seqpacket`, `packet`, `other`.
    pub fn name(self) -> &'static str {
        match self {
            Type::Stream => "stream",
            Type::Dgram => "dgram",
            Type::Raw => "raw",
            Type::Seqpacket => "seqpacket",
            Type::Packet => "packet",
            Type::Other(_) => "other",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The protocol of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Protocol {
    /// A protocol over IP, by its number (protocols(5)).
    Ip(u16),
    /// A protocol over netlink, by its number (netlink(7)).
    Netlink(u8),
    /// What a packet socket receives, by the number in Ethernet frames (packet(7)).
    Ether(u16),
}

/// Displays the name, as in `tcp` and `route`, or the number where it has none: of protocols in
/// Ethernet frames in hexadecimal.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (names::protocol(*self), self) {
            (Some(name), _) => f.write_str(name),
            (None, Protocol::Ip(number)) => write!(f, "{number}"),
            (None, Protocol::Netlink(number)) => write!(f, "{number}"),
            (None, Protocol::Ether(number)) => write!(f, "0x{number:04x}"),
        }
    }
}

/// The state of a socket. The states of TCP also stand for those of other protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum State {
    /// Connected.
    Estab = 1,
    /// It has asked for a connection.
    SynSent = 2,
    /// It was asked for a connection.
    SynRecv = 3,
    /// It has closed its side, and the other one has not said that it knows.
    FinWait1 = 4,
    /// It has closed its side.
    FinWait2 = 5,
    /// Both sides are closed; it waits until no old packet can arrive.
    TimeWait = 6,
    /// Not connected.
    Unconn = 7,
    /// The other side is closed, this one is not.
    CloseWait = 8,
    /// It has closed its side after the other one, which has not said that it knows.
    LastAck = 9,
    /// It waits for connections.
    Listen = 10,
    /// Both sides closed at the same time.
    Closing = 11,
}

impl State {
    /// All of them.
    pub const ALL: [State; 11] = [
        State::Estab,
        State::SynSent,
        State::SynRecv,
        State::FinWait1,
        State::FinWait2,
        State::TimeWait,
        State::Unconn,
        State::CloseWait,
        State::LastAck,
        State::Listen,
        State::Closing,
    ];

    /// The state with this number of the kernel. `None`: no kernel has it.
    pub(crate) fn new(number: u8) -> Option<State> {
        /// A request for a connection that has not become a socket.
        const NEW_SYN_RECV: u8 = 12;
        /// A socket that is bound, and neither connected nor waiting.
        const BOUND_INACTIVE: u8 = 13;
        match number {
            NEW_SYN_RECV => Some(State::SynRecv),
            BOUND_INACTIVE => Some(State::Unconn),
            _ => State::ALL.into_iter().find(|&state| state as u8 == number),
        }
    }

    /// The name, as ss(8) has it: `ESTAB`, `SYN-SENT`, `LISTEN`, `UNCONN` and so on.
    pub fn name(self) -> &'static str {
        match self {
            State::Estab => "ESTAB",
            State::SynSent => "SYN-SENT",
            State::SynRecv => "SYN-RECV",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::TimeWait => "TIME-WAIT",
            State::Unconn => "UNCONN",
            State::CloseWait => "CLOSE-WAIT",
            State::LastAck => "LAST-ACK",
            State::Listen => "LISTEN",
            State::Closing => "CLOSING",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The state with this name, as ss(8), its filters or netstat(8) have it. The error has the names of ss.
pub fn state_named(name: &str) -> Result<State, String> {
    let upper = name.to_ascii_uppercase().replace('_', "-");
    let alias = match upper.as_str() {
        "ESTABLISHED" => "ESTAB",
        "LISTENING" => "LISTEN",
        "CLOSE" | "CLOSED" | "UNCONNECTED" => "UNCONN",
        "FIN-WAIT1" => "FIN-WAIT-1",
        "FIN-WAIT2" => "FIN-WAIT-2",
        other => other,
    };
    let found = State::ALL.into_iter().find(|state| state.name() == alias);
    found.ok_or_else(|| {
        let known: Vec<&str> = State::ALL.iter().map(|state| state.name()).collect();
        format!("known are {}", known.join(", "))
    })
}

impl Member for State {
    fn members() -> impl Iterator<Item = State> {
        State::ALL.into_iter()
    }

    fn place(self) -> usize {
        self as usize
    }
}

/// The address of a socket without its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Address {
    /// Of IPv4 and IPv6.
    Ip(IpAddr),
    /// The number of a machine (vsock(7)).
    Cid(u32),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Cid(cid) => cid.fmt(f),
        }
    }
}

/// One end of a connection, or what a socket is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct End {
    /// `None` if it has no address.
    pub addr: Option<Address>,
    /// `None` if it has no port. Of netlink sockets it is the port id.
    pub port: Option<u32>,
}

/// What a timer of TCP waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimerKind {
    /// Sending again what the other side has not confirmed.
    Retransmit,
    /// Asking the other side whether it is there (`SO_KEEPALIVE`), or giving up waiting for it.
    Keepalive,
    /// The end of TIME-WAIT.
    TimeWait,
    /// Asking whether the window of the other side is still closed.
    Persist,
}

impl TimerKind {
    /// The name, as ss(8) has it: `on`, `keepalive`, `timewait`, `persist`.
    pub fn name(self) -> &'static str {
        match self {
            TimerKind::Retransmit => "on",
            TimerKind::Keepalive => "keepalive",
            TimerKind::TimeWait => "timewait",
            TimerKind::Persist => "persist",
        }
    }
}

/// A timer that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timer {
    /// What it waits for.
    pub kind: TimerKind,
    /// The time that is left, in nanoseconds.
    pub left_ns: u64,
    /// How often it has run out in a row.
    pub retransmits: u32,
}

/// What waits in a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Queues {
    /// Data: the number of bytes that were not read, and of those that were sent and not confirmed
    /// or not taken by the other side.
    Data {
        /// What was not read.
        recv_bytes: u64,
        /// What was not confirmed, or not taken.
        send_bytes: u64,
    },
    /// Connections that were not accepted, of a socket that waits for connections.
    Backlog {
        /// How many there are.
        count: u32,
        /// How many there can be.
        limit: u32,
    },
}

/// A descriptor that a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The process.
    pub pid: u32,
    /// The number of the descriptor.
    pub fd: u32,
    /// The name of the process, if the query of the processes asked for it.
    pub comm: Known<Vec<u8>>,
}

impl Owner {
    #[doc(hidden)]
    pub fn new(pid: u32, fd: u32, comm: Known<&[u8]>) -> Owner {
        Owner {
            pid,
            fd,
            comm: comm.map(<[u8]>::to_vec),
        }
    }
}

/// A socket.
///
/// Where a value is an [`Option`], `None` means that such a socket has no such value.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Socket<'a> {
    /// The family of its addresses.
    pub family: Family,
    /// Its type.
    pub kind: Type,
    /// Its protocol.
    pub protocol: Option<Protocol>,
    /// Its state.
    pub state: State,
    /// What it is bound to.
    pub local: End,
    /// What it is connected to.
    pub remote: End,
    /// The name of the network interface that it is bound to (`SO_BINDTODEVICE`, packet sockets,
    /// link-local addresses).
    pub interface: Known<Option<&'a [u8]>>,
    /// The number of that interface.
    pub interface_index: Option<u32>,
    /// The name of a UNIX socket: the path that it was bound to, or an abstract name, which begins
    /// with a NUL.
    pub path: Option<&'a [u8]>,
    /// The inode number of the UNIX socket at the other end.
    pub peer_inode: Option<u64>,
    /// The inode number, as in `socket:[N]` of descriptors. TCP sockets have none while nobody has
    /// accepted them, and when the last descriptor is closed: TIME-WAIT sockets never have one.
    pub inode: Option<u64>,
    /// The user who created it. [`Absent::Unsupported`] where the kernel does not tell.
    pub uid: Known<u32>,
    /// The inode number of its network namespace. It is 0 if it is the caller's own and there is no
    /// `/proc` that tells the number.
    pub netns: u64,
    /// What waits in it.
    pub queues: Known<Queues>,
    /// The timer that runs.
    pub timer: Option<Timer>,
    /// The mark of its packets (`SO_MARK`). It takes `CAP_NET_ADMIN` to see it.
    pub mark: Known<Option<u32>>,
    /// The id of the cgroup that it was created in.
    pub cgroup_id: Known<Option<u64>>,
    /// What TCP knows of the connection. [`Absent::NotAsked`] unless asked for.
    pub info: Known<Option<TcpInfo>>,
    /// The descriptors that the processes asked about have of it; `None` if it has no inode, so that
    /// there are none.
    /// [`Absent::NotAsked`] unless asked for, and [`Absent::Denied`] if none was found and the
    /// descriptors of some processes may not be seen.
    pub owners: Known<Option<&'a [Owner]>>,
    /// The descriptors of the socket at the other end; `None` if there is none here: it is not
    /// connected, or with another machine or network namespace, or it is a UDP socket that nobody
    /// has connected back. An empty list if nobody has the other end: it was not accepted, or is
    /// closed. [`Absent::NotAsked`] unless asked for, [`Absent::Denied`] if none was found and the
    /// descriptors of some processes may not be seen, [`Absent::Gone`] if the socket with the
    /// addresses of the other end was in no list.
    pub peers: Known<Option<&'a [Owner]>>,
    /// What tells it from others of its namespace as long as it exists.
    #[doc(hidden)]
    pub cookie: u64,
}

impl<'a> Socket<'a> {
    /// A socket of which nothing else is known.
    pub(crate) fn new(family: Family, kind: Type, state: State, cookie: u64) -> Socket<'a> {
        Socket {
            family,
            kind,
            protocol: None,
            state,
            local: End::default(),
            remote: End::default(),
            interface: Ok(None),
            interface_index: None,
            path: None,
            peer_inode: None,
            inode: None,
            uid: Err(Absent::Unsupported),
            netns: 0,
            queues: Err(Absent::Unsupported),
            timer: None,
            mark: Ok(None),
            cgroup_id: Ok(None),
            info: Ok(None),
            owners: Err(Absent::NotAsked),
            peers: Err(Absent::NotAsked),
            cookie,
        }
    }

    /// Whether it waits for a peer, in the sense of `ss -l`: it listens, or it receives from
    /// anybody.
    pub fn is_listening(&self) -> bool {
        match self.state {
            State::Listen => true,
            State::Unconn => !matches!(self.kind, Type::Stream | Type::Seqpacket),
            _ => false,
        }
    }
}

/// Whether one of the ports of a socket of IP is this one.
pub fn has_port(socket: &Socket<'_>, port: u16) -> bool {
    let port = Some(u32::from(port));
    matches!(socket.family, Family::Inet | Family::Inet6) && (socket.local.port == port || socket.remote.port == port)
}

impl fmt::Debug for Socket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &[u8]| text.escape_ascii().to_string();
        f.debug_struct("Socket")
            .field("family", &self.family)
            .field("kind", &self.kind)
            .field("protocol", &self.protocol)
            .field("state", &self.state)
            .field("local", &self.local)
            .field("remote", &self.remote)
            .field("interface", &self.interface.map(|name| name.map(text)))
            .field("path", &self.path.map(text))
            .field("peer_inode", &self.peer_inode)
            .field("inode", &self.inode)
            .field("uid", &self.uid)
            .field("netns", &self.netns)
            .field("queues", &self.queues)
            .field("timer", &self.timer)
            .field("info", &self.info)
            .field("owners", &self.owners)
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A socket of user 33 that listens on 127.0.0.1:80.
    pub(crate) fn listener() -> Socket<'static> {
        Socket {
            protocol: Some(Protocol::Ip(6)),
            local: End {
                addr: Some(Address::Ip(IpAddr::from([127, 0, 0, 1]))),
                port: Some(80),
            },
            queues: Ok(Queues::Backlog { count: 1, limit: 128 }),
            uid: Ok(33),
            inode: Some(42),
            netns: 41,
            ..Socket::new(Family::Inet, Type::Stream, State::Listen, 1)
        }
    }

    /// Check that states have the names of ss, of its filters and of netstat.
    #[test]
    fn states_have_several_names() {
        for (name, expected) in [
            ("ESTAB", State::Estab),
            ("established", State::Estab),
            ("listen", State::Listen),
            ("time-wait", State::TimeWait),
            ("TIME_WAIT", State::TimeWait),
            ("FIN_WAIT2", State::FinWait2),
            ("closed", State::Unconn),
        ] {
            assert_eq!(state_named(name), Ok(expected), "{name}");
        }
        assert!(state_named("open").is_err_and(|error| error.contains("SYN-SENT")));
    }

    /// Check that states have the kernel's numbers, and that those that ss shows as others do, too.
    #[test]
    fn states_have_numbers() {
        for state in State::ALL {
            assert_eq!(State::new(state as u8), Some(state));
        }
        assert_eq!(State::new(12), Some(State::SynRecv));
        assert_eq!(State::new(13), Some(State::Unconn));
        assert_eq!((State::new(0), State::new(14)), (None, None));
    }

    /// Check which sockets wait for a peer.
    #[test]
    fn listening_is_what_ss_says() {
        let of = |kind, state| Socket::new(Family::Unix, kind, state, 0).is_listening();
        assert!(of(Type::Stream, State::Listen) && of(Type::Dgram, State::Unconn));
        assert!(!of(Type::Stream, State::Unconn) && !of(Type::Seqpacket, State::Unconn));
        assert!(!of(Type::Dgram, State::Estab));
    }

    /// Check that a port is found at both ends, and that a netlink port id is none.
    #[test]
    fn ports_are_of_ip() {
        let mut socket = Socket::new(Family::Inet, Type::Stream, State::Estab, 0);
        socket.local.port = Some(22);
        socket.remote.port = Some(5000);
        assert!(has_port(&socket, 22) && has_port(&socket, 5000) && !has_port(&socket, 80));
        socket.family = Family::Netlink;
        assert!(!has_port(&socket, 22));
    }

    /// Check that protocols have names, or numbers.
    #[test]
    fn protocols_have_names() {
        let shown = [
            Protocol::Ip(6),
            Protocol::Ip(262),
            Protocol::Ip(253),
            Protocol::Netlink(0),
            Protocol::Netlink(99),
            Protocol::Ether(3),
            Protocol::Ether(0x88cc),
            Protocol::Ether(0x9999),
        ];
        let shown = shown.map(|protocol| protocol.to_string());
        assert_eq!(shown, ["tcp", "mptcp", "253", "route", "99", "all", "lldp", "0x9999"]);
    }
}
