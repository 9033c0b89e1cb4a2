//! Tests with messages as the kernel makes them, and with broken ones.

use proptest::prelude::*;

use super::super::{Address, Queues, TimerKind};
use super::*;
use crate::absent::Absent;
use crate::mapping::Device;

const TCP: List = List::new(Family::Inet, libc::IPPROTO_TCP);
const UNIX: List = List::new(Family::Unix, 0);

fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
    let len = (ATTRIBUTE + payload.len()) as u16;
    let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(payload);
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER + payload.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
    bytes.extend([1_u32, 99].map(u32::to_ne_bytes).concat());
    bytes.extend_from_slice(payload);
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

/// A socket of TCP from 127.0.0.1:22 to 127.0.0.2:5000.
fn tcp(state: u8) -> Vec<u8> {
    let mut bytes = vec![2, state, 1, 3];
    bytes.extend([22_u16.to_be_bytes(), 5000_u16.to_be_bytes()].concat());
    bytes.extend([127, 0, 0, 1]);
    bytes.extend([0; 12]);
    bytes.extend([127, 0, 0, 2]);
    bytes.extend([0; 12]);
    let words: [u32; 8] = [7, 0x11, 0x22, 250, 10, 20, 1000, 4242];
    bytes.extend(words.map(u32::to_ne_bytes).concat());
    bytes
}

/// A connected UNIX socket with this name.
fn unix(state: u8, name: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, 1, state, 0];
    bytes.extend([77_u32, 1, 2].map(u32::to_ne_bytes).concat());
    bytes.extend(attribute(0, name));
    bytes.extend(attribute(1, &[99_u32, 8 << 20 | 300].map(u32::to_ne_bytes).concat()));
    bytes.extend(attribute(2, &88_u32.to_ne_bytes()));
    bytes.extend(attribute(4, &[5_u32, 6].map(u32::to_ne_bytes).concat()));
    bytes.extend(attribute(7, &1000_u32.to_ne_bytes()));
    bytes
}

/// Check each value of a TCP socket, and that unknown attributes do no harm.
#[test]
fn tcp_sockets_are_parsed() {
    let mut bytes = tcp(1);
    bytes.extend(attribute(500, b"what"));
    bytes.extend(attribute(2, &[1; 104]));
    bytes.extend(attribute(4, b"cubic\0"));
    bytes.extend(attribute(15, &3_u32.to_ne_bytes()));
    bytes.extend(attribute(21, &9_u64.to_ne_bytes()));
    let socket = socket(TCP, &bytes).expect("a socket");
    assert_eq!(
        (socket.family, socket.socket_type, socket.state),
        (Family::Inet, Type::Stream, State::Estab)
    );
    let at = |end: super::super::Endpoint| (end.addr.map(|addr| addr.to_string()), end.port);
    assert_eq!(at(socket.local), (Some("127.0.0.1".to_owned()), Some(22)));
    assert_eq!(at(socket.remote), (Some("127.0.0.2".to_owned()), Some(5000)));
    assert_eq!(
        (socket.interface_index, socket.interface),
        (Some(7), Err(Absent::NotAsked))
    );
    assert_eq!(
        (socket.inode, socket.uid, socket.cookie),
        (Some(4242), Ok(1000), 0x22 << 32 | 0x11)
    );
    let queues = Queues::Data {
        recv_bytes: 10,
        send_bytes: 20,
    };
    assert_eq!(socket.queues, Ok(queues));
    let timer = socket.timer.expect("a timer");
    assert_eq!(
        (timer.kind, timer.left_ns, timer.retransmits),
        (TimerKind::Retransmit, 250_000_000, 3)
    );
    assert_eq!((socket.mark, socket.cgroup_id), (Ok(Some(3)), Ok(Some(9))));
    let info = socket.info.expect("asked for").expect("TCP");
    assert_eq!(
        (info.congestion(), info.cwnd_count),
        (Some(&b"cubic"[..]), Some(0x0101_0101))
    );
}

/// Check that listeners have a backlog and no other end, and that a missing mark is denied.
#[test]
fn listeners_have_a_backlog() {
    let mut bytes = tcp(10);
    bytes[6..8].fill(0);
    bytes[24..40].fill(0);
    let socket = socket(TCP, &bytes).expect("a socket");
    assert_eq!((socket.remote.addr, socket.remote.port), (None, None));
    assert_eq!(socket.queues, Ok(Queues::Backlog { count: 10, limit: 20 }));
    assert_eq!(
        (socket.mark, socket.cgroup_id),
        (Err(Absent::Denied), Err(Absent::Unsupported))
    );
    assert_eq!(socket.info, Ok(None));
}

/// Check that there is no TCP information without a connection: where other sockets have
/// unacknowledged packets, the kernel has the backlog.
#[test]
fn listeners_have_no_connection() {
    let mut bytes = tcp(10);
    bytes.extend(attribute(2, &[3; 232]));
    bytes.extend(attribute(4, b"cubic\0"));
    let socket = socket(TCP, &bytes).expect("a socket");
    let info = socket.info.expect("asked for").expect("TCP");
    assert_eq!(info.congestion(), Some(&b"cubic"[..]));
    assert_eq!((info.unacked_count, info.rtt_ns, info.cwnd_count), (None, None, None));
}

/// Check that a socket in TIME-WAIT has no inode, no user and no cgroup.
#[test]
fn time_wait_has_no_owner() {
    let mut bytes = tcp(6);
    bytes[2] = 3;
    bytes[64..72].fill(0);
    let socket = socket(TCP, &bytes).expect("a socket");
    assert_eq!((socket.inode, socket.uid), (None, Err(Absent::Unsupported)));
    assert_eq!((socket.mark, socket.cgroup_id), (Ok(None), Ok(None)));
    assert_eq!(socket.timer.map(|timer| timer.kind), Some(TimerKind::TimeWait));
}

/// Check that a request for a connection has no user, unlike a socket in the same state.
#[test]
fn requests_have_no_owner() {
    let mut bytes = tcp(3);
    assert_eq!(socket(TCP, &bytes).expect("a socket").uid, Ok(1000));
    bytes[64..72].fill(0);
    assert_eq!(socket(TCP, &bytes).expect("a socket").uid, Err(Absent::Unsupported));
}

/// Check IPv6 addresses, and that an IPv4 address within one stays one.
#[test]
fn inet6_has_addresses() {
    let mut bytes = tcp(1);
    bytes[0] = 10;
    bytes[8..24].copy_from_slice(&"::ffff:10.0.0.1".parse::<std::net::Ipv6Addr>().expect("one").octets());
    bytes[24..40].copy_from_slice(&"fe80::1".parse::<std::net::Ipv6Addr>().expect("one").octets());
    let list = List::new(Family::Inet6, libc::IPPROTO_TCP);
    let socket = socket(list, &bytes).expect("a socket");
    let shown = [socket.local, socket.remote].map(|end| end.addr.expect("an address").to_string());
    assert_eq!(shown, ["::ffff:10.0.0.1", "fe80::1"]);
    assert_eq!(socket.ipv6_only, Err(Absent::Unsupported));
    bytes.extend(attribute(11, &[1]));
    assert_eq!(super::socket(list, &bytes).expect("a socket").ipv6_only, Ok(Some(true)));
}

/// Check that raw sockets have a protocol, from the attribute or from the port, and no ports.
#[test]
fn raw_sockets_have_a_protocol() {
    let raw = List::new(Family::Inet, libc::IPPROTO_RAW);
    let mut bytes = tcp(7);
    bytes[4..6].copy_from_slice(&1_u16.to_be_bytes());
    let protocol = |bytes: &[u8]| socket(raw, bytes).expect("a socket").protocol;
    assert_eq!(protocol(&bytes), Some(Protocol::Ip(1)));
    bytes.extend(attribute(10, &[89]));
    assert_eq!(protocol(&bytes), Some(Protocol::Ip(89)));
    let socket = socket(raw, &bytes).expect("a socket");
    assert_eq!(
        (socket.socket_type, socket.local.port, socket.remote.port),
        (Type::Raw, None, None)
    );
}

/// Check each value of UNIX sockets, and that names are either paths, without their NUL, or
/// abstract.
#[test]
fn unix_sockets_are_parsed() {
    let bytes = unix(1, b"/run/a\0");
    let parsed = socket(UNIX, &bytes).expect("a socket");
    assert_eq!(
        (parsed.socket_type, parsed.state, parsed.path),
        (Type::Stream, State::Estab, Some(&b"/run/a"[..]))
    );
    assert_eq!(
        (parsed.inode, parsed.peer_inode, parsed.uid),
        (Some(77), Some(88), Ok(1000))
    );
    assert_eq!(parsed.file, Some((Device { major: 8, minor: 300 }, 99)));
    let queues = Queues::Data {
        recv_bytes: 5,
        send_bytes: 6,
    };
    assert_eq!(parsed.queues, Ok(queues));
    let bytes = unix(10, b"\0a\0b");
    let parsed = socket(UNIX, &bytes).expect("a socket");
    assert_eq!(parsed.path, Some(&b"\0a\0b"[..]));
    assert_eq!(parsed.queues, Ok(Queues::Backlog { count: 5, limit: 6 }));
    let bytes = unix(7, b"");
    assert_eq!(socket(UNIX, &bytes).expect("a socket").path, None);
}

/// Check netlink, packet and vsock sockets.
#[test]
fn other_families_are_parsed() {
    let list = |family| List::new(family, 0);
    let mut bytes = vec![16, 3, 15, 0];
    bytes.extend([4000_u32, 0, 0, 55, 1, 2].map(u32::to_ne_bytes).concat());
    bytes.extend(attribute(0, &[100_u32, 0, 200, 0].map(u32::to_ne_bytes).concat()));
    let netlink = socket(list(Family::Netlink), &bytes).expect("a socket");
    assert_eq!(
        (netlink.local.port, netlink.remote.port, netlink.inode),
        (Some(4000), None, Some(55))
    );
    assert_eq!(
        netlink.protocol.map(|protocol| protocol.to_string()).as_deref(),
        Some("kobject_uevent")
    );
    let queues = Queues::Data {
        recv_bytes: 100,
        send_bytes: 200,
    };
    assert_eq!((netlink.state, netlink.queues), (State::Unconn, Ok(queues)));

    let mut bytes = vec![17, 3];
    bytes.extend(3_u16.to_ne_bytes());
    bytes.extend([66_u32, 1, 2].map(u32::to_ne_bytes).concat());
    bytes.extend(attribute(0, &[4_u32, 0, 0, 0, 0, 0].map(u32::to_ne_bytes).concat()));
    bytes.extend(attribute(5, &12_u32.to_ne_bytes()));
    let packet = socket(list(Family::Packet), &bytes).expect("a socket");
    assert_eq!(
        (packet.interface_index, packet.uid, packet.inode),
        (Some(4), Ok(12), Some(66))
    );
    assert_eq!(packet.protocol, Some(Protocol::Ether(3)));

    let mut bytes = vec![40, 1, 10, 0];
    bytes.extend(
        [u32::MAX, 1024, u32::MAX, u32::MAX, 33, 1, 2]
            .map(u32::to_ne_bytes)
            .concat(),
    );
    let vsock = socket(list(Family::Vsock), &bytes).expect("a socket");
    assert_eq!(
        (vsock.local.addr, vsock.local.port),
        (Some(Address::Cid(u32::MAX)), Some(1024))
    );
    assert_eq!(
        (vsock.remote.addr, vsock.state, vsock.inode),
        (None, State::Listen, Some(33))
    );
}

/// Check that messages are returned one by one, with those that end a list, and that a flag says
/// that the list may be incomplete.
#[test]
fn datagrams_have_messages() {
    let mut datagram = message(SOCK_DIAG_BY_FAMILY, 2, &tcp(1));
    datagram.extend(message(SOCK_DIAG_BY_FAMILY, 2, b"odd"));
    datagram.extend(message(1, 0, b""));
    let mut messages = Messages::new(&datagram);
    assert_eq!(messages.next(), Some(Message::Socket(&tcp(1))));
    assert_eq!(messages.next(), Some(Message::Socket(b"odd")));
    assert_eq!((messages.next(), messages.next()), (Some(Message::Other), None));
    assert!(!messages.is_interrupted);
    let ends = [
        (message(NLMSG_DONE, 0, &0_i32.to_ne_bytes()), Message::Done(None)),
        (message(NLMSG_DONE, 0, b""), Message::Done(None)),
        (
            message(NLMSG_DONE, 0, &(-105_i32).to_ne_bytes()),
            Message::Done(Some(105)),
        ),
        (message(NLMSG_ERROR, 0, &(-2_i32).to_ne_bytes()), Message::Error(2)),
        (
            message(NLMSG_ERROR, 0, &i32::MIN.to_ne_bytes()),
            Message::Error(i32::MAX),
        ),
        (message(NLMSG_ERROR, 0, b"x"), Message::Malformed),
        (message(NLMSG_OVERRUN, 0, b""), Message::Overrun),
        (vec![17, 0, 0, 0, 20, 0, 0, 0], Message::Malformed),
        (
            vec![3, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            Message::Malformed,
        ),
    ];
    for (datagram, end) in ends {
        assert_eq!(Messages::new(&datagram).collect::<Vec<_>>(), [end]);
    }
    let interrupted = message(NLMSG_DONE, NLM_F_DUMP_INTR, b"");
    let mut messages = Messages::new(&interrupted);
    messages.next();
    assert!(messages.is_interrupted);
}

/// Check the requests against the structures of the kernel's headers.
#[test]
fn requests_are_well_formed() {
    let only = |state| [state].into_iter().collect::<Set<State>>();
    let bytes = request(TCP, only(State::Listen), &[], false);
    assert_eq!((bytes.len(), word(&bytes, 0)), (76, Some(76)));
    assert_eq!((half(&bytes, 4), half(&bytes, 6)), (Some(18), Some(0x301)));
    assert_eq!((&bytes[16..20], word(&bytes, 68)), (&[2, 0, 0, 0][..], Some(1 << 10)));
    assert_eq!(&bytes[60..68], [0xff; 8]);
    assert_eq!(request(TCP, State::ALL.into(), &[], true)[19], 1 << 1 | 1 << 3);
    let udp = List::new(Family::Inet, libc::IPPROTO_UDP);
    let bytes = request(udp, only(State::Estab), &[], false);
    assert_eq!((half(&bytes, 4), half(&bytes, 6)), (Some(20), Some(0x301)));
    assert_eq!((&bytes[16..20], word(&bytes, 20)), (&[2, 17, 0, 0][..], Some(1 << 1)));
    assert_eq!(&bytes[64..72], [0xff; 8]);
    // Sockets that are only bound, and requests that are not sockets yet.
    assert_eq!(
        word(&request(TCP, only(State::Unconn), &[], false), 68),
        Some(1 << 7 | 1 << 13)
    );
    assert_eq!(
        word(&request(TCP, only(State::SynRecv), &[], false), 68),
        Some(1 << 3 | 1 << 12)
    );
    let mptcp = List::new(Family::Inet, libc::IPPROTO_MPTCP);
    let bytes = request(mptcp, State::ALL.into(), &[], false);
    assert_eq!(
        (bytes.len(), half(&bytes, 4), word(&bytes, 80)),
        (84, Some(18), Some(262))
    );
    assert_eq!((half(&bytes, 76), half(&bytes, 78)), (Some(8), Some(3)));
    let bytes = request(UNIX, State::ALL.into(), &[], false);
    assert_eq!((bytes.len(), bytes[16], word(&bytes, 28)), (40, 1, Some(0x57)));
    assert_eq!(word(&bytes, 20), Some(0xffe));
    let bytes = request(List::new(Family::Netlink, 0), State::ALL.into(), &[], false);
    assert_eq!(
        (bytes.len(), &bytes[16..18], word(&bytes, 24)),
        (36, &[16, 0xff][..], Some(3))
    );
    let bytes = request(List::new(Family::Packet, 0), State::ALL.into(), &[], false);
    assert_eq!(
        (bytes.len(), &bytes[16..18], word(&bytes, 24)),
        (36, &[17, 0][..], Some(0x11))
    );
    let bytes = request(List::new(Family::Vsock, 0), State::ALL.into(), &[], false);
    assert_eq!(
        (bytes.len(), bytes[16], word(&bytes, 20), word(&bytes, 28)),
        (40, 40, Some(0xffe), Some(0))
    );
}

/// Check that a request for ports selects sockets with one of them at either end, by running its
/// program as the kernel does.
#[test]
fn ports_are_asked_for() {
    let run = |request: &[u8], ends: [u16; 2]| {
        let program = &request[76 + 4..];
        let mut at = 0;
        while at < program.len() {
            let if_true = usize::from(program[at + 1]);
            let if_not = usize::from(half(program, at + 2).expect("an operation"));
            let is_true = match program[at] {
                1 => false,
                code @ (11 | 12) => half(program, at + 6) == Some(ends[usize::from(code) - 11]),
                other => panic!("operation {other}"),
            };
            at += if is_true { if_true } else { if_not };
        }
        at == program.len()
    };
    for ports in [&[443][..], &[1, 80, 443], &[7; 64]] {
        let request = request(TCP, State::ALL.into(), ports, false);
        assert!(request.len() <= REQUEST);
        assert_eq!(
            (word(&request, 0), half(&request, 78)),
            (Some(request.len() as u32), Some(1))
        );
        assert_eq!(usize::from(half(&request, 76).expect("a length")), request.len() - 76);
        for port in [1, 7, 80, 443, 8080] {
            for ends in [[port, 9], [9, port]] {
                assert_eq!(run(&request, ends), ports.contains(&port), "{ports:?} {ends:?}");
            }
        }
    }
    // These are more than fit, and other families have no ports.
    assert_eq!(request(TCP, State::ALL.into(), &[7; 65], false).len(), 76);
    assert_eq!(request(UNIX, State::ALL.into(), &[7], false).len(), 40);
}

/// Check that a request for one socket has the socket's identity.
#[test]
fn one_socket_can_be_asked_about() {
    let bytes = info_request(TCP, &tcp(1)).expect("a request");
    assert_eq!((bytes.len(), half(&bytes, 6), bytes[18]), (72, Some(1), 0xa));
    assert_eq!(bytes[24..72], tcp(1)[4..52]);
    assert_eq!(bytes[16..18], [tcp(1)[0], 6]);
    assert!(info_request(TCP, &tcp(1)[..51]).is_none());
    assert!(info_request(UNIX, &tcp(1)).is_none());
}

/// Check that each kind of socket is in a list, and that lists have names.
#[test]
fn kinds_have_lists() {
    for kind in Kind::ALL {
        assert!(List::of(kind).count() > 0, "{kind:?}");
    }
    assert_eq!(List::of(Kind::ALL).count(), 12);
    assert!(List::of(Kind::Raw).all(|list| list.name() == "raw"));
    assert!(List::of(Kind::ALL).all(|list| list.is_of_chains() != List::of(Kind::Tcp).any(|tcp| tcp == list)));
    assert_eq!(
        List::of(Kind::Unix | Kind::Vsock).map(List::name).collect::<Vec<_>>(),
        ["unix", "vsock"]
    );
}

/// Check that every truncated message is refused, or gives only what it contains.
#[test]
fn cut_messages_are_refused() {
    let whole = [(TCP, tcp(1), 72), (UNIX, unix(1, b"/a\0"), 16)];
    for (list, bytes, head) in whole {
        for len in 0..bytes.len() {
            assert_eq!(socket(list, &bytes[..len]).is_some(), len >= head, "{len} bytes");
        }
    }
    for (family, head) in [(Family::Netlink, 28), (Family::Packet, 16), (Family::Vsock, 32)] {
        for len in 0..40 {
            let bytes = vec![1; len];
            let parsed = socket(List::new(family, 0), &bytes);
            assert_eq!(parsed.is_some(), len >= head, "{family} {len}");
        }
    }
    for state in [0, 14, 255] {
        assert!(socket(TCP, &tcp(state)).is_none() && socket(UNIX, &unix(state, b"")).is_none());
    }
}

fn lists() -> impl Strategy<Value = List> {
    proptest::sample::select(List::of(Kind::ALL).collect::<Vec<_>>())
}

proptest! {
    /// Check that any bytes can be parsed, and that the resulting sockets can be displayed.
    #[test]
    fn any_bytes_parse(list in lists(), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut messages = Messages::new(&bytes);
        prop_assert!(messages.by_ref().count() <= bytes.len());
        if let Some(socket) = socket(list, &bytes) {
            let row = super::super::Row::new(&socket);
            for &field in super::super::SocketField::ALL {
                let _ = format!("{:?}", row.value(field));
            }
        }
    }

    /// Check the same with whole messages in which bytes are changed.
    #[test]
    fn broken_messages_parse(at in 0..90_usize, byte: u8, state in 0..14_u8, list in lists()) {
        let mut bytes = tcp(state);
        bytes.extend(attribute(2, &[7; 40]));
        bytes[at] = byte;
        let datagram = message(SOCK_DIAG_BY_FAMILY, 2, &bytes);
        let _ = socket(list, &bytes);
        let _ = socket(list, &unix(state, &bytes[..at]));
        prop_assert!(Messages::new(&datagram).count() == 1);
    }
}

/// Check which directions are closed, where the kernel says so, and that other sockets have none.
#[test]
fn closed_directions_are_told() {
    let of = |list: List, mut bytes: Vec<u8>, bits: Option<u8>| {
        let kind = if list == UNIX { 6 } else { 8 };
        bytes.extend(bits.into_iter().flat_map(|bits| attribute(kind, &[bits])));
        socket(list, &bytes).expect("a socket").shutdown
    };
    for (bits, expected) in [
        (Some(0), Ok(Some(Shutdown::Nothing))),
        (Some(1), Ok(Some(Shutdown::Receive))),
        (Some(2), Ok(Some(Shutdown::Send))),
        (Some(3), Ok(Some(Shutdown::Both))),
        (None, Err(Absent::Unsupported)),
    ] {
        assert_eq!(of(UNIX, unix(1, b""), bits), expected, "{bits:?}");
        assert_eq!(of(TCP, tcp(1), bits), expected, "{bits:?}");
    }
    // A socket in TIME-WAIT is not a full one.
    assert_eq!(of(TCP, tcp(6), None), Ok(None));
    let netlink = vec![0; 28];
    assert_eq!(of(List::new(Family::Netlink, 0), netlink, None), Ok(None));
}

/// Check that the bits of groups are numbers from 1, beyond the first word too.
#[test]
fn netlink_sockets_have_groups() {
    let groups = |words: Option<&[usize]>| {
        let mut bytes = vec![0; 28];
        let words: Option<Vec<u8>> = words.map(|words| words.iter().flat_map(|word| word.to_ne_bytes()).collect());
        bytes.extend(words.into_iter().flat_map(|words| attribute(1, &words)));
        let socket = socket(List::new(Family::Netlink, 0), &bytes).expect("a socket");
        socket.netlink_groups.expect("netlink").iter().collect::<Vec<u32>>()
    };
    assert_eq!(groups(None), [0_u32; 0]);
    assert_eq!(groups(Some(&[0b1001, 1])), [1, 4, usize::BITS + 1]);
    assert_eq!(socket(TCP, &tcp(1)).expect("a socket").netlink_groups, None);
}
