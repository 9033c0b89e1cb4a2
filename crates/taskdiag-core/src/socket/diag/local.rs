//! Sockets that do not use IP: `linux/unix_diag.h`, `netlink_diag.h`, `packet_diag.h` and
//! `vm_sockets_diag.h`.

use super::super::{Address, Endpoint, NetlinkGroups, Queues, Shutdown};
use super::{attributes, cookie, half, inet, inode, shutdown, word, Family, Protocol, Socket, State, Type};
use crate::absent::Absent;
use crate::mapping::Device;
use crate::set::Set;

/// Attributes of UNIX sockets.
mod unix_attribute {
    pub(super) const NAME: u16 = 0;
    pub(super) const VFS: u16 = 1;
    pub(super) const PEER: u16 = 2;
    pub(super) const RQLEN: u16 = 4;
    pub(super) const SHUTDOWN: u16 = 6;
    pub(super) const UID: u16 = 7;
}

/// What to report about UNIX sockets: name, file, peer, queues and user.
const UNIX_SHOW: u32 = 1 | 2 | 4 | 0x10 | 0x40;
/// What to report about netlink and packet sockets: memory; for netlink sockets, also the groups;
/// for packet sockets, also the interface.
const NETLINK_SHOW: u32 = 1 | 2;
const PACKET_SHOW: u32 = 1 | 0x10;
/// All protocols of netlink.
const ALL_PROTOCOLS: u8 = 0xff;

// Attributes of netlink and packet sockets.
const NETLINK_MEMINFO: u16 = 0;
const NETLINK_GROUPS: u16 = 1;
const PACKET_INFO: u16 = 0;
const PACKET_UID: u16 = 5;
const PACKET_MEMINFO: u16 = 6;

/// Appends a request. The families' structures differ in the order of their members.
pub(super) fn add_request(family: Family, states: Set<State>, out: &mut Vec<u8>) {
    let states: u32 = states.iter().map(|state| 1 << state as u32).sum();
    let (protocol, len, first, second) = match family {
        Family::Netlink => (ALL_PROTOCOLS, 20, 0, NETLINK_SHOW),
        Family::Packet => (0, 20, 0, PACKET_SHOW),
        // The cookie comes after three words here.
        Family::Unix => (0, 24, states, 0),
        _ => (0, 24, states, 0),
    };
    let third = if family == Family::Unix { UNIX_SHOW } else { 0 };
    let begin = out.len();
    out.extend([family as u8, protocol, 0, 0]);
    out.extend([first, second, third].into_iter().flat_map(u32::to_ne_bytes));
    out.resize(begin + len - 8, 0);
    // No cookie.
    out.extend([0xff; 8]);
}

/// A UNIX socket.
pub(super) fn unix(message: &[u8]) -> Option<Socket<'_>> {
    const LEN: usize = 16;
    let head = message.get(..LEN)?;
    let state = State::new(head[2])?;
    let mut socket = Socket::new(Family::Unix, Type::new(head[1]), state, cookie(head, 8)?);
    socket.inode = inode(word(head, 4)?);
    socket.shutdown = Err(Absent::Unsupported);
    for (kind, payload) in attributes(&message[LEN..]) {
        match kind {
            unix_attribute::NAME => socket.path = unix_name(payload),
            unix_attribute::VFS => {
                socket.file = word(payload, 0).zip(word(payload, 4)).map(|(inode, device)| {
                    // The kernel's own form: 12 bits and 20.
                    let (major, minor) = (device >> 20, device & 0xf_ffff);
                    (Device { major, minor }, inode)
                });
            }
            unix_attribute::PEER => socket.peer_inode = word(payload, 0).and_then(inode),
            unix_attribute::RQLEN => {
                if let (Some(recv), Some(send)) = (word(payload, 0), word(payload, 4)) {
                    socket.queues = Ok(inet::queues(state, recv, send));
                }
            }
            unix_attribute::SHUTDOWN => socket.shutdown = shutdown(payload),
            unix_attribute::UID => socket.uid = word(payload, 0).ok_or(Absent::Truncated),
            _ => {}
        }
    }
    Some(socket)
}

/// A path ends with a NUL. An abstract name begins with one and may contain others.
fn unix_name(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [] => None,
        [0, ..] => Some(bytes),
        path => path.split(|&byte| byte == 0).next(),
    }
}

/// A netlink socket.
pub(super) fn netlink(message: &[u8]) -> Option<Socket<'_>> {
    const LEN: usize = 28;
    const CONNECTED: u8 = 1;
    let head = message.get(..LEN)?;
    let state = if head[3] == CONNECTED {
        State::Estab
    } else {
        State::Unconn
    };
    let mut socket = Socket::new(Family::Netlink, Type::new(head[1]), state, cookie(head, 20)?);
    socket.protocol = Some(Protocol::Netlink(head[2]));
    socket.local.port = Some(word(head, 4)?);
    // Every socket is connected to the kernel, which is port 0.
    socket.remote.port = word(head, 8).filter(|&port| port != 0);
    socket.inode = inode(word(head, 16)?);
    // A socket that has never joined one has no list.
    socket.netlink_groups = Some(NetlinkGroups(&[]));
    for (kind, payload) in attributes(&message[LEN..]) {
        match kind {
            NETLINK_MEMINFO => socket.queues = memory(payload),
            NETLINK_GROUPS => socket.netlink_groups = Some(NetlinkGroups(payload)),
            _ => {}
        }
    }
    Some(socket)
}

/// A packet socket.
pub(super) fn packet(message: &[u8]) -> Option<Socket<'_>> {
    const LEN: usize = 16;
    let head = message.get(..LEN)?;
    let mut socket = Socket::new(Family::Packet, Type::new(head[1]), State::Unconn, cookie(head, 8)?);
    socket.protocol = Some(Protocol::Ether(half(head, 2)?));
    socket.inode = inode(word(head, 4)?);
    for (kind, payload) in attributes(&message[LEN..]) {
        match kind {
            PACKET_INFO => {
                socket.interface_index = word(payload, 0).filter(|&index| index != 0);
                if socket.interface_index.is_some() {
                    socket.interface = Err(Absent::NotAsked);
                }
            }
            PACKET_UID => socket.uid = word(payload, 0).ok_or(Absent::Truncated),
            PACKET_MEMINFO => socket.queues = memory(payload),
            _ => {}
        }
    }
    Some(socket)
}

/// A vsock socket.
pub(super) fn vsock(message: &[u8]) -> Option<Socket<'_>> {
    const LEN: usize = 32;
    /// No machine, or any.
    const ANY: u32 = u32::MAX;
    let head = message.get(..LEN)?;
    let state = State::new(head[2])?;
    let mut socket = Socket::new(Family::Vsock, Type::new(head[1]), state, cookie(head, 24)?);
    socket.shutdown = Ok(Some(Shutdown::new(head[3])));
    let end = |at: usize| {
        Some(Endpoint {
            addr: Some(Address::Cid(word(head, at)?)),
            port: Some(word(head, at + 4)?),
        })
    };
    socket.local = end(4)?;
    if word(head, 12)? != ANY {
        socket.remote = end(12)?;
    }
    socket.inode = inode(word(head, 20)?);
    Some(socket)
}

/// The queued bytes, from `SK_MEMINFO_RMEM_ALLOC` and `SK_MEMINFO_WMEM_ALLOC` of
/// `linux/sock_diag.h`. They include the kernel's overhead.
fn memory(words: &[u8]) -> Result<Queues, Absent> {
    match (word(words, 0), word(words, 8)) {
        (Some(recv), Some(send)) => Ok(Queues::Data {
            recv_bytes: recv.into(),
            send_bytes: send.into(),
        }),
        _ => Err(Absent::Truncated),
    }
}
