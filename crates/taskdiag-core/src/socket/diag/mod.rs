//! Messages of sock_diag(7): requests out, sockets in. Any bytes are safe to parse.
//!
//! A datagram consists of messages, each with a header (`struct nlmsghdr`, `linux/netlink.h`). A
//! message about a socket has a structure specific to its family, followed by attributes (`struct
//! nlattr`).

mod inet;
mod local;
#[cfg(test)]
mod tests;

use super::{Family, Kind, Protocol, Shutdown, Socket, State, Type};
use crate::absent::{Absent, Known};
use crate::set::Set;

/// The length of the header of a message.
const HEADER: usize = 16;
/// The length of the header of an attribute.
const ATTRIBUTE: usize = 4;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DIAG_BY_FAMILY: u16 = 20;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
/// Something changed while the list was made, so the list may be incomplete.
const NLM_F_DUMP_INTR: u16 = 0x10;

/// The longest request, in bytes.
pub const REQUEST: usize = HEADER + inet::REQUEST_LEN + inet::PROTOCOL_LEN + inet::LONGEST_PROGRAM;

/// A list of sockets that the kernel can make: the sockets of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct List {
    /// The family. Lists of TCP and MPTCP have both, [`Family::Inet`] and [`Family::Inet6`]: the kernel
    /// walks over one table, which takes it longer than to list a hundred sockets.
    pub family: Family,
    /// The protocol of [`Family::Inet`] and [`Family::Inet6`]; 0 for all other families.
    pub protocol: u16,
}

impl List {
    const fn new(family: Family, protocol: i32) -> List {
        List {
            family,
            protocol: protocol as u16,
        }
    }

    /// The lists that have these kinds of sockets.
    pub fn of(kinds: impl Into<Set<Kind>>) -> impl Iterator<Item = List> {
        use Family::{Inet, Inet6, Netlink, Packet, Unix, Vsock};
        let all = [
            (Kind::Tcp, List::new(Inet, libc::IPPROTO_TCP)),
            (Kind::Tcp, List::new(Inet, libc::IPPROTO_MPTCP)),
            (Kind::Udp, List::new(Inet, libc::IPPROTO_UDP)),
            (Kind::Udp, List::new(Inet6, libc::IPPROTO_UDP)),
            (Kind::Udp, List::new(Inet, libc::IPPROTO_UDPLITE)),
            (Kind::Udp, List::new(Inet6, libc::IPPROTO_UDPLITE)),
            (Kind::Raw, List::new(Inet, libc::IPPROTO_RAW)),
            (Kind::Raw, List::new(Inet6, libc::IPPROTO_RAW)),
            (Kind::Unix, List::new(Unix, 0)),
            (Kind::Netlink, List::new(Netlink, 0)),
            (Kind::Packet, List::new(Packet, 0)),
            (Kind::Vsock, List::new(Vsock, 0)),
        ];
        let kinds = kinds.into();
        all.into_iter()
            .filter(move |(kind, _)| kinds.contains(*kind))
            .map(|(_, list)| list)
    }

    /// The name of the list, for messages and counters.
    pub fn name(self) -> &'static str {
        match (self.family, i32::from(self.protocol)) {
            (Family::Inet | Family::Inet6, libc::IPPROTO_TCP) => "tcp",
            (Family::Inet | Family::Inet6, libc::IPPROTO_MPTCP) => "mptcp",
            (Family::Inet | Family::Inet6, libc::IPPROTO_UDP) => "udp",
            (Family::Inet | Family::Inet6, libc::IPPROTO_UDPLITE) => "udplite",
            (Family::Inet | Family::Inet6, _) => "raw",
            (family, _) => family.name(),
        }
    }

    /// Whether `/proc/net` has the list as text with everything that matters. This holds for raw
    /// sockets.
    pub fn has_text(self) -> bool {
        self.name() == "raw"
    }

    /// Whether the kernel keeps these sockets in few, long chains. The kernel makes a list in
    /// parts, and starts each part after a number of sockets of a chain. If some of those were
    /// closed in between, it skips others. TCP connections are many, but have so many chains that
    /// most chains hold only one socket.
    pub fn is_of_chains(self) -> bool {
        !self.has_both_families()
    }

    fn has_both_families(self) -> bool {
        matches!(self.name(), "tcp" | "mptcp")
    }

    /// Whether its sockets have 16-bit ports.
    pub fn has_ports(self) -> bool {
        matches!(self.family, Family::Inet | Family::Inet6) && self.name() != "raw"
    }

    /// Whether TCP has information about its sockets.
    pub fn is_tcp(self) -> bool {
        self.protocol == libc::IPPROTO_TCP as u16
    }
}

/// A request for all sockets of a list that are in one of these states and have one of these ports
/// at either end. Ports are ignored if there are none or too many for the kernel. With `with_info`,
/// the kernel also sends TCP's information about each socket; for this it waits for the current
/// user of the socket.
pub fn request(list: List, states: Set<State>, ports: &[u16], with_info: bool) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    let kind = if list.has_both_families() {
        inet::add_request_of_both(list, states, ports, with_info, &mut bytes);
        TCPDIAG_GETSOCK
    } else {
        match list.family {
            Family::Inet | Family::Inet6 => inet::add_request(list, states, ports, with_info, &mut bytes),
            _ => local::add_request(list.family, states, &mut bytes),
        }
        SOCK_DIAG_BY_FAMILY
    };
    put_header(&mut bytes, kind, NLM_F_REQUEST | NLM_F_DUMP);
    bytes
}

/// Writes the header before a request.
fn put_header(bytes: &mut [u8], kind: u16, flags: u16) {
    let len = bytes.len() as u32;
    bytes[0..4].copy_from_slice(&len.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes[8..12].copy_from_slice(&1_u32.to_ne_bytes());
}

/// A request for a single TCP socket with what TCP knows about it. `payload` is the message about
/// that socket in an answer. `None` if it is not a TCP socket.
pub fn info_request(list: List, payload: &[u8]) -> Option<Vec<u8>> {
    if !list.is_tcp() {
        return None;
    }
    let mut bytes = vec![0; HEADER];
    inet::add_request(list, State::ALL.into(), &[], true, &mut bytes);
    bytes[HEADER] = *payload.first()?;
    bytes[HEADER + inet::REQUEST_ID_AT..].copy_from_slice(inet::id(payload)?);
    put_header(&mut bytes, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST);
    Some(bytes)
}

/// One message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// About a socket. [`socket`] parses it.
    Socket(&'a [u8]),
    /// The list ends; with an errno if it is incomplete.
    Done(Option<i32>),
    /// The kernel refused: an errno, or 0 for none.
    Error(i32),
    /// Messages were lost.
    Overrun,
    /// Something else.
    Other,
    /// The rest of the datagram is malformed.
    Malformed,
}

/// The messages of a datagram.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
    /// Whether one of the messages so far said that something changed while the list was made.
    pub is_interrupted: bool,
}

impl<'a> Messages<'a> {
    /// The messages of a datagram.
    pub fn new(datagram: &'a [u8]) -> Messages<'a> {
        Messages {
            rest: datagram,
            is_interrupted: false,
        }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let len = word(self.rest, 0).map_or(0, |len| len as usize);
        let (Some(kind), Some(flags), Some(payload)) =
            (half(self.rest, 4), half(self.rest, 6), self.rest.get(HEADER..len))
        else {
            self.rest = &[];
            return Some(Message::Malformed);
        };
        self.rest = self.rest.get(aligned(len)..).unwrap_or_default();
        self.is_interrupted |= flags & NLM_F_DUMP_INTR != 0;
        let code = word(payload, 0).map(|code| code as i32);
        Some(match (kind, code) {
            (SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK, _) => Message::Socket(payload),
            (NLMSG_DONE, Some(code)) if code < 0 => Message::Done(Some(code.saturating_neg())),
            (NLMSG_DONE, _) => Message::Done(None),
            (NLMSG_ERROR, Some(code)) => Message::Error(code.saturating_neg()),
            (NLMSG_ERROR, None) => Message::Malformed,
            (NLMSG_OVERRUN, _) => Message::Overrun,
            _ => Message::Other,
        })
    }
}

/// The socket in a message that answers a request for this list. `None` if the message is
/// malformed.
pub fn socket(list: List, payload: &[u8]) -> Option<Socket<'_>> {
    match list.family {
        Family::Inet | Family::Inet6 => inet::socket(list, payload),
        Family::Unix => local::unix(payload),
        Family::Netlink => local::netlink(payload),
        Family::Packet => local::packet(payload),
        Family::Vsock => local::vsock(payload),
    }
}

/// The attributes after a structure. A truncated one ends them.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Flags about the payload. They are not part of the type.
    const FLAGS: u16 = 0xc000;
    std::iter::from_fn(move || {
        let len = half(rest, 0)? as usize;
        let kind = half(rest, 2)? & !FLAGS;
        let payload = rest.get(ATTRIBUTE..len)?;
        rest = rest.get(aligned(len)..).unwrap_or_default();
        Some((kind, payload))
    })
}

fn aligned(len: usize) -> usize {
    len.div_ceil(4) * 4
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Two words that form a cookie.
fn cookie(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(word(bytes, at)?) | u64::from(word(bytes, at + 4)?) << 32)
}

/// An inode number; 0 stands for none.
fn inode(number: u32) -> Option<u64> {
    (number != 0).then_some(number.into())
}

/// The directions that are closed, in an attribute.
fn shutdown(payload: &[u8]) -> Known<Option<Shutdown>> {
    let bits = payload.first().ok_or(Absent::Truncated)?;
    Ok(Some(Shutdown::new(*bits)))
}
