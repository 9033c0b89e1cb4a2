//! Sockets of IPv4 and IPv6: `linux/inet_diag.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::{Address, Endpoint, Queues, TcpInfo, Timer, TimerKind};
use super::{attributes, cookie, inode, shutdown, word, Family, List, Protocol, Socket, State, Type, ATTRIBUTE};
use crate::absent::Absent;
use crate::set::Set;

/// The length of `struct inet_diag_req`, the longer one of the two requests; and the offset of the
/// identity in the other one, `struct inet_diag_req_v2`.
pub(super) const REQUEST_LEN: usize = 60;
pub(super) const REQUEST_ID_AT: usize = 8;
/// The length of the attribute for a protocol number that does not fit in a byte.
pub(super) const PROTOCOL_LEN: usize = 8;

/// The length of `struct inet_diag_msg`, the offset in it of the identity (`struct
/// inet_diag_sockid`), and the length of the identity.
const MESSAGE_LEN: usize = 72;
const ID_AT: usize = 4;
const ID_LEN: usize = 48;

const INET_DIAG_REQ_BYTECODE: u16 = 1;
const INET_DIAG_REQ_PROTOCOL: u16 = 3;

// Operations of filter programs.
const INET_DIAG_BC_JMP: u8 = 1;
const INET_DIAG_BC_S_EQ: u8 = 11;
const INET_DIAG_BC_D_EQ: u8 = 12;

/// The most ports for which the kernel filters.
const MAX_PORTS: usize = 64;
/// The length of the attribute with a program for that many ports.
pub(super) const LONGEST_PROGRAM: usize = ATTRIBUTE + MAX_PORTS * 24 - 4;

// Attributes.
const ATTRIBUTE_INFO: u16 = 2;
const ATTRIBUTE_CONGESTION: u16 = 4;
const ATTRIBUTE_SHUTDOWN: u16 = 8;
const ATTRIBUTE_PROTOCOL: u16 = 10;
const ATTRIBUTE_IPV6_ONLY: u16 = 11;
const ATTRIBUTE_MARK: u16 = 15;
const ATTRIBUTE_CGROUP_ID: u16 = 21;

/// A bit that asks for sockets that are bound, but neither connected nor listening (Linux 6.8). The
/// kernel reports them as not connected.
const BOUND_INACTIVE: u32 = 1 << 13;
/// A bit that asks for connection requests that have not become sockets.
const NEW_SYN_RECV: u32 = 1 << 12;

/// The bits of states, for the kernel.
fn state_bits(states: Set<State>) -> u32 {
    let mut bits: u32 = states.iter().map(|state| 1 << state as u32).sum();
    if states.contains(State::SynRecv) {
        bits |= NEW_SYN_RECV;
    }
    if states.contains(State::Unconn) {
        bits |= BOUND_INACTIVE;
    }
    bits
}

/// The information about TCP that a request asks for.
fn info_bits(with_info: bool) -> u8 {
    if with_info {
        1 << (ATTRIBUTE_INFO - 1) | 1 << (ATTRIBUTE_CONGESTION - 1)
    } else {
        0
    }
}

/// Appends a request.
pub(super) fn add_request(list: List, states: Set<State>, ports: &[u16], with_info: bool, out: &mut Vec<u8>) {
    out.extend([list.family as u8, list.protocol as u8, info_bits(with_info), 0]);
    out.extend(state_bits(states).to_ne_bytes());
    add_any_id(out);
    add_program(list, ports, out);
}

/// Appends a request for sockets of both families: `struct inet_diag_req`, which is for TCP, and whose
/// family does not matter (`inet_diag_dump_compat` in `net/ipv4/inet_diag.c`).
pub(super) fn add_request_of_both(list: List, states: Set<State>, ports: &[u16], with_info: bool, out: &mut Vec<u8>) {
    out.extend([list.family as u8, 0, 0, info_bits(with_info)]);
    add_any_id(out);
    out.extend(state_bits(states).to_ne_bytes());
    out.extend([0; 4]);
    if !list.is_tcp() {
        append_attribute(INET_DIAG_REQ_PROTOCOL, &u32::from(list.protocol).to_ne_bytes(), out);
    }
    add_program(list, ports, out);
}

/// Appends the identity of any socket.
fn add_any_id(out: &mut Vec<u8>) {
    out.extend([0; ID_LEN - 8]);
    // No cookie.
    out.extend([0xff; 8]);
}

fn add_program(list: List, ports: &[u16], out: &mut Vec<u8>) {
    if (1..=MAX_PORTS).contains(&ports.len()) && list.has_ports() {
        append_attribute(INET_DIAG_REQ_BYTECODE, &program(ports), out);
    }
}

/// Appends an attribute whose payload is a multiple of a word long.
fn append_attribute(kind: u16, payload: &[u8], out: &mut Vec<u8>) {
    out.extend(((ATTRIBUTE + payload.len()) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend_from_slice(payload);
}

/// A program for `inet_diag_bc_run` (`net/ipv4/inet_diag.c`). It accepts sockets that have one of
/// these ports at either end. An operation has a code and two jump distances in bytes: one if it is
/// true, one if it is not. A jump exactly to the end accepts the socket; a jump past the end
/// refuses it.
fn program(ports: &[u16]) -> Vec<u8> {
    const OPERATION: usize = 4;
    const TEST: usize = 2 * OPERATION;
    let ends = [INET_DIAG_BC_S_EQ, INET_DIAG_BC_D_EQ];
    let tests = ports.iter().flat_map(|&port| ends.map(|code| (code, port)));
    let len = ports.len() * ends.len() * (TEST + OPERATION) - OPERATION;
    let mut program = Vec::with_capacity(len);
    let mut add = |code: u8, if_true: usize, if_not: usize| {
        program.extend([code, if_true as u8]);
        program.extend((if_not as u16).to_ne_bytes());
        len - program.len()
    };
    for (code, port) in tests {
        // The port is in the following operation. A true test then jumps to the end; otherwise the
        // next test follows.
        add(code, TEST, TEST + OPERATION);
        let left = add(0, 0, port.into());
        if left > 0 {
            add(INET_DIAG_BC_JMP, OPERATION, left);
        }
    }
    program
}

/// The identity in a message.
pub(super) fn id(message: &[u8]) -> Option<&[u8]> {
    message.get(ID_AT..ID_AT + ID_LEN)
}

/// The socket of a message.
pub(super) fn socket(list: List, message: &[u8]) -> Option<Socket<'_>> {
    let head = message.get(..MESSAGE_LEN)?;
    let family = match i32::from(head[0]) {
        libc::AF_INET => Family::Inet,
        libc::AF_INET6 => Family::Inet6,
        _ => return None,
    };
    let state = State::new(head[1])?;
    let kind = match list.name() {
        "raw" => Type::Raw,
        "udp" | "udplite" => Type::Dgram,
        _ => Type::Stream,
    };
    let mut socket = Socket::new(family, kind, state, cookie(head, 44)?);
    socket.protocol = Some(Protocol::Ip(list.protocol));
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let local = address(family, &head[8..24])?;
    let remote = address(family, &head[24..40])?;
    let is_raw = kind == Type::Raw;
    socket.local = Endpoint {
        addr: Some(Address::Ip(local)),
        port: (!is_raw).then_some(port(4).into()),
    };
    if port(6) != 0 && !is_raw || !remote.is_unspecified() {
        socket.remote = Endpoint {
            addr: Some(Address::Ip(remote)),
            port: (!is_raw).then_some(port(6).into()),
        };
    }
    socket.interface_index = word(head, 40).filter(|&index| index != 0);
    if socket.interface_index.is_some() {
        socket.interface = Err(Absent::NotAsked);
    }
    socket.timer = timer(head[2], head[3], word(head, 52)?);
    socket.queues = Ok(queues(state, word(head, 56)?, word(head, 60)?));
    socket.uid = Ok(word(head, 64)?);
    socket.inode = inode(word(head, 68)?);
    // A TIME-WAIT socket is not a full socket, and does not record who created it. Nor is a request
    // for a connection, unlike a socket in the same state that has a file.
    if state == State::TimeWait || state == State::SynRecv && socket.inode.is_none() {
        socket.uid = Err(Absent::Unsupported);
    }
    if is_raw {
        // In older kernels, which do not send the attribute, the port is the protocol.
        socket.protocol = Some(Protocol::Ip(port(4)));
    }
    read_attributes(&mut socket, list, &message[MESSAGE_LEN..]);
    Some(socket)
}

fn read_attributes<'a>(socket: &mut Socket<'a>, list: List, rest: &'a [u8]) {
    let (mut info, mut congestion) = (None, &[][..]);
    socket.mark = Err(Absent::Denied);
    socket.cgroup_id = Err(Absent::Unsupported);
    socket.shutdown = Err(Absent::Unsupported);
    if socket.family == Family::Inet6 {
        socket.ipv6_only = Err(Absent::Unsupported);
    }
    for (kind, payload) in attributes(rest) {
        match kind {
            ATTRIBUTE_INFO if list.is_tcp() => info = Some(payload),
            ATTRIBUTE_CONGESTION => congestion = payload,
            ATTRIBUTE_PROTOCOL if socket.socket_type == Type::Raw => {
                let number = payload.first().map(|&number| Protocol::Ip(number.into()));
                socket.protocol = number.or(socket.protocol);
            }
            ATTRIBUTE_SHUTDOWN => socket.shutdown = shutdown(payload),
            ATTRIBUTE_IPV6_ONLY => {
                let flag = payload.first().map(|&flag| Some(flag != 0));
                socket.ipv6_only = flag.ok_or(Absent::Truncated);
            }
            ATTRIBUTE_MARK => socket.mark = word(payload, 0).map(Some).ok_or(Absent::Truncated),
            ATTRIBUTE_CGROUP_ID => {
                let id = payload.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
                socket.cgroup_id = id.map(Some).ok_or(Absent::Truncated);
            }
            _ => {}
        }
    }
    // These are not full sockets, and have no such values.
    if matches!(socket.state, State::TimeWait | State::SynRecv) {
        if socket.mark == Err(Absent::Denied) {
            socket.mark = Ok(None);
        }
        if socket.cgroup_id == Err(Absent::Unsupported) {
            socket.cgroup_id = Ok(None);
        }
        socket.ipv6_only = Ok(None);
        if socket.shutdown == Err(Absent::Unsupported) {
            socket.shutdown = Ok(None);
        }
    }
    // There is no connection. The kernel sends zeros, and its backlog in place of unacknowledged
    // packets.
    if socket.state == State::Listen {
        info = info.map(|_| &[][..]);
    }
    socket.info = Ok(info.map(|info| TcpInfo::new(info, congestion)));
}

fn address(family: Family, words: &[u8]) -> Option<IpAddr> {
    Some(match family {
        Family::Inet => IpAddr::V4(Ipv4Addr::from(*words.first_chunk::<4>()?)),
        _ => IpAddr::V6(Ipv6Addr::from(*words.first_chunk::<16>()?)),
    })
}

fn timer(kind: u8, retransmits: u8, milliseconds: u32) -> Option<Timer> {
    let kind = match kind {
        1 => TimerKind::Retransmit,
        2 => TimerKind::Keepalive,
        3 => TimerKind::TimeWait,
        4 => TimerKind::Persist,
        _ => return None,
    };
    Some(Timer {
        kind,
        left_ns: u64::from(milliseconds) * 1_000_000,
        retransmits: retransmits.into(),
    })
}

pub(super) fn queues(state: State, recv: u32, send: u32) -> Queues {
    match state {
        State::Listen => Queues::Backlog {
            count: recv,
            limit: send,
        },
        _ => Queues::Data {
            recv_bytes: recv.into(),
            send_bytes: send.into(),
        },
    }
}
