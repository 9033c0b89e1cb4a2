//! Sockets: what the kernel reports about a socket, and the table of their fields.

pub mod diag;
mod field;
mod info;
mod names;
#[cfg(feature = "serde")]
mod serialize;

use std::fmt;
use std::net::IpAddr;

use crate::absent::{Absent, Known};
use crate::mapping::Device;
use crate::value::debug_row;

pub use field::{Row, SocketField};
pub use info::TcpInfo;
pub(crate) use names::{is_protocol, protocols};

crate::named_enum! {
    /// The family of a socket's addresses (address_families(7)).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    #[repr(u8)]
    pub enum Family {
        /// IPv4: ip(7).
        Inet = libc::AF_INET as u8 => "inet",
        /// IPv6, which can also carry IPv4: ipv6(7).
        Inet6 = libc::AF_INET6 as u8 => "inet6",
        /// unix(7).
        Unix = libc::AF_UNIX as u8 => "unix",
        /// netlink(7).
        Netlink = libc::AF_NETLINK as u8 => "netlink",
        /// packet(7).
        Packet = libc::AF_PACKET as u8 => "packet",
        /// vsock(7).
        Vsock = libc::AF_VSOCK as u8 => "vsock",
    }
    pub(crate) const ALL;
    /// The name: `inet`, `inet6`, `unix`, `netlink`, `packet`, `vsock`.
    pub fn name;
    impl Display;
}

crate::named_enum! {
    /// A kind of sockets, which the kernel lists together.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum Kind {
        /// TCP, also with several paths (MPTCP).
        Tcp => "tcp",
        /// UDP, and UDP-Lite where the kernel has it.
        Udp => "udp",
        /// Sockets for any other protocol over IP (raw(7)).
        Raw => "raw",
        /// unix(7).
        Unix => "unix",
        /// netlink(7).
        Netlink => "netlink",
        /// packet(7).
        Packet => "packet",
        /// vsock(7).
        Vsock => "vsock",
    }
    /// All of them.
    pub const ALL;
    /// The name: `tcp`, `udp`, `raw`, `unix`, `netlink`, `packet`, `vsock`.
    pub fn name;
    impl Display;
    impl Member(ALL);
}

crate::set_by_or!(Kind);

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
    /// Any other, by its number.
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
    /// What a packet socket receives, by the protocol number in Ethernet frames (packet(7)).
    Ether(u16),
}

/// Displays the name, such as `tcp` or `route`, or the number if there is no name. Numbers of
/// protocols in Ethernet frames are in hexadecimal.
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

crate::named_enum! {
    /// The state of a socket. The states of TCP are used for other protocols too.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    #[repr(u8)]
    pub enum State {
        /// Connected.
        Estab = 1 => "ESTAB",
        /// It has requested a connection.
        SynSent = 2 => "SYN-SENT",
        /// It has received a request for a connection.
        SynRecv = 3 => "SYN-RECV",
        /// It has closed its side, and waits for the other side's acknowledgement.
        FinWait1 = 4 => "FIN-WAIT-1",
        /// It has closed its side, and the other side has acknowledged this.
        FinWait2 = 5 => "FIN-WAIT-2",
        /// Both sides are closed. It waits until no old packet can arrive.
        TimeWait = 6 => "TIME-WAIT",
        /// Not connected.
        Unconn = 7 => "UNCONN",
        /// The other side is closed, this one is not.
        CloseWait = 8 => "CLOSE-WAIT",
        /// It has closed its side after the other side closed, and waits for the acknowledgement.
        LastAck = 9 => "LAST-ACK",
        /// It listens for connections.
        Listen = 10 => "LISTEN",
        /// Both sides closed at the same time.
        Closing = 11 => "CLOSING",
    }
    /// All states.
    pub const ALL;
    /// The name that ss(8) uses: `ESTAB`, `SYN-SENT`, `LISTEN`, `UNCONN` and so on.
    pub fn name;
    impl Display;
    impl Member(ALL);
}

impl State {
    /// The state with this kernel number. `None` if the number is unknown.
    pub(crate) fn new(number: u8) -> Option<State> {
        /// A request for a connection that has not become a socket.
        const NEW_SYN_RECV: u8 = 12;
        /// A socket that is bound, but neither connected nor listening.
        const BOUND_INACTIVE: u8 = 13;
        match number {
            NEW_SYN_RECV => Some(State::SynRecv),
            BOUND_INACTIVE => Some(State::Unconn),
            _ => State::ALL.into_iter().find(|&state| state as u8 == number),
        }
    }
}

/// The state with this name, in the spelling of ss(8), its filters, or netstat(8). The error lists
/// the names of ss.
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

/// The address of a socket without its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Address {
    /// An IPv4 or IPv6 address.
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
pub struct Endpoint {
    /// `None` if it has no address.
    pub addr: Option<Address>,
    /// `None` if it has no port. For netlink sockets, the port id.
    pub port: Option<u32>,
}

crate::named_enum! {
    /// Which directions of a socket were closed by shutdown(2), or by the other side.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Shutdown {
        /// None.
        Nothing => "",
        /// Nothing more is received.
        Receive => "receive",
        /// Nothing more is sent.
        Send => "send",
        /// Both.
        Both => "both",
    }
    pub(crate) const ALL;
    /// The name: `receive`, `send`, `both`; empty for none.
    pub fn name;
}

impl Shutdown {
    /// The directions in these bits, as the kernel has them.
    fn new(bits: u8) -> Shutdown {
        match bits & 3 {
            0 => Shutdown::Nothing,
            1 => Shutdown::Receive,
            2 => Shutdown::Send,
            _ => Shutdown::Both,
        }
    }
}

/// The multicast groups of netlink that a socket has joined (netlink(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetlinkGroups<'a>(&'a [u8]);

impl<'a> NetlinkGroups<'a> {
    /// Their numbers, ascending, from 1.
    pub fn iter(self) -> impl Iterator<Item = u32> + use<'a> {
        // A bit for each group, in an array of `unsigned long`.
        let words = self
            .0
            .chunks_exact(size_of::<usize>())
            .zip((1..).step_by(usize::BITS as usize));
        words.flat_map(|(word, first)| {
            let word = word.try_into().map_or(0, usize::from_ne_bytes);
            (0..usize::BITS)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| first + bit)
        })
    }
}

crate::named_enum! {
    /// What a TCP timer waits for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum TimerKind {
        /// Retransmitting what the other side has not acknowledged.
        Retransmit => "on",
        /// Probing whether the other side still exists (`SO_KEEPALIVE`), or giving up on it.
        Keepalive => "keepalive",
        /// The end of TIME-WAIT.
        TimeWait => "timewait",
        /// Probing whether the other side's window is still closed.
        Persist => "persist",
    }
    pub(crate) const ALL;
    /// The name that ss(8) uses: `on`, `keepalive`, `timewait`, `persist`.
    pub fn name;
}

/// A running timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timer {
    /// What it waits for.
    pub kind: TimerKind,
    /// The time left, in nanoseconds.
    pub left_ns: u64,
    /// How often it has expired in a row.
    pub retransmits: u32,
}

/// What is queued in a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Queues {
    /// Data: the number of bytes that have not been read, and the number of bytes that were sent
    /// but not acknowledged, or not taken by the other side.
    Data {
        /// Bytes not read.
        recv_bytes: u64,
        /// Bytes not acknowledged, or not taken.
        send_bytes: u64,
    },
    /// For a listening socket: connections that have not been accepted.
    Backlog {
        /// The number of connections.
        count: u32,
        /// The maximum number.
        limit: u32,
    },
}

/// A descriptor of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The process.
    pub pid: u32,
    /// The number of the descriptor.
    pub fd: u32,
    /// The name of the process, if the query about processes asked for it.
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
/// Where a value is an [`Option`], `None` means that a socket of this kind has no such value.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Socket<'a> {
    /// The family of its addresses.
    pub family: Family,
    /// Its type.
    pub socket_type: Type,
    /// Its protocol.
    pub protocol: Option<Protocol>,
    /// Its state.
    pub state: State,
    /// Which directions are closed.
    pub shutdown: Known<Option<Shutdown>>,
    /// What it is bound to.
    pub local: Endpoint,
    /// What it is connected to.
    pub remote: Endpoint,
    /// Whether it takes only IPv6 (`IPV6_V6ONLY`), or IPv4 as well. The kernel says so of sockets of
    /// IPv6 that are not connected.
    pub ipv6_only: Known<Option<bool>>,
    /// The name of the network interface that it is bound to (`SO_BINDTODEVICE`, packet sockets,
    /// link-local addresses).
    pub interface: Known<Option<&'a [u8]>>,
    /// The number of that interface.
    pub interface_index: Option<u32>,
    /// The name of a UNIX socket: the path to which it is bound, or an abstract name, which begins
    /// with a NUL.
    pub path: Option<&'a [u8]>,
    /// The file that a UNIX socket is bound to: the kernel's number of its file system, and the lower
    /// 32 bits of its inode number.
    #[doc(hidden)]
    pub file: Option<(Device, u32)>,
    /// The inode number of the UNIX socket at the other end.
    pub peer_inode: Option<u64>,
    /// The multicast groups of a netlink socket.
    pub netlink_groups: Option<NetlinkGroups<'a>>,
    /// The inode number, as in `socket:[N]` of descriptors. A TCP socket has none before it is
    /// accepted and after its last descriptor is closed. TIME-WAIT sockets never have one.
    pub inode: Option<u64>,
    /// The user who created it. [`Absent::Unsupported`] where the kernel does not report this.
    pub uid: Known<u32>,
    /// The inode number of its network namespace. 0 if it is the caller's own namespace and there
    /// is no `/proc` from which to read the number.
    pub netns: u64,
    /// What is queued in it.
    pub queues: Known<Queues>,
    /// Its running timer.
    pub timer: Option<Timer>,
    /// The mark of its packets (`SO_MARK`). Reading it needs `CAP_NET_ADMIN`.
    pub mark: Known<Option<u32>>,
    /// The id of the cgroup that it was created in.
    pub cgroup_id: Known<Option<u64>>,
    /// What TCP knows about the connection. [`Absent::NotAsked`] unless asked for.
    pub info: Known<Option<TcpInfo>>,
    /// The descriptors of this socket in the queried processes. `None` if it has no inode, so that
    /// no descriptor can exist. [`Absent::NotAsked`] unless asked for. [`Absent::Denied`] if none
    /// was found and the caller may not see the descriptors of some processes.
    pub owners: Known<Option<&'a [Owner]>>,
    /// The descriptors of the socket at the other end. `None` if the other end is not here: the
    /// socket is not connected, or it is connected to another machine or network namespace, or it
    /// is a UDP socket to which no socket has connected back. An empty list if no process has the
    /// other end: it was not accepted, or is closed. [`Absent::NotAsked`] unless asked for.
    /// [`Absent::Denied`] if none was found and the caller may not see the descriptors of some
    /// processes. [`Absent::Gone`] if no list had a socket with the addresses of the other end.
    pub peers: Known<Option<&'a [Owner]>>,
    /// Distinguishes it from the other sockets of its namespace as long as it exists.
    #[doc(hidden)]
    pub cookie: u64,
}

impl<'a> Socket<'a> {
    /// A socket of which nothing else is known.
    pub(crate) fn new(family: Family, socket_type: Type, state: State, cookie: u64) -> Socket<'a> {
        Socket {
            family,
            socket_type,
            protocol: None,
            state,
            shutdown: Ok(None),
            local: Endpoint::default(),
            remote: Endpoint::default(),
            ipv6_only: Ok(None),
            interface: Ok(None),
            interface_index: None,
            path: None,
            file: None,
            peer_inode: None,
            netlink_groups: None,
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
            State::Unconn => !matches!(self.socket_type, Type::Stream | Type::Seqpacket),
            _ => false,
        }
    }
}

/// Whether an IP socket has this port at one of its ends.
pub fn has_port(socket: &Socket<'_>, port: u16) -> bool {
    let port = Some(u32::from(port));
    matches!(socket.family, Family::Inet | Family::Inet6) && (socket.local.port == port || socket.remote.port == port)
}

impl fmt::Debug for Socket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = Row::new(self);
        let cells = SocketField::ALL.iter().map(|&field| (field.name(), row.value(field)));
        debug_row(f, "Socket", cells)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A socket of user 33 that listens on 127.0.0.1:80.
    pub(crate) fn listener() -> Socket<'static> {
        Socket {
            protocol: Some(Protocol::Ip(6)),
            local: Endpoint {
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

    /// Check that states have the kernel's numbers, including those that ss shows as another state.
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

    /// Check that a port is found at both ends, and that a netlink port id does not count.
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
        assert!(["tcp", "17", "253", "0x9999"].iter().all(|text| is_protocol(text)));
        assert!(!["6", "132", "6tcp", "0x0003", "0X9999", "+253", "70000", ""]
            .iter()
            .any(|text| is_protocol(text)));
    }
}
