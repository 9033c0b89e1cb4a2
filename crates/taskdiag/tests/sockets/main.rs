//! Sockets equal those of `/proc/net`, in all network namespaces, and their owners are the
//! processes that have them open.
//!
//! Each test makes its sockets in a network namespace of its own, which needs root.

mod churn;
mod exhausted;
mod namespaces;
mod network;
mod peers;
mod text;
mod vsock;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::{TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use network::{eventually, inode, own_namespace, socket, Tcp};
use taskdiag::sockets::{
    Address, Answer, Endpoint, Family, Filter, Kind, Queues, Request, Row, Socket, SocketField, State, Type,
};
use taskdiag::{Absent, ErrorKind, Field, Handle, Query, Set, SourceId};
use taskdiag_testkit::{child, test_name};
use text::Line;

/// Held by each test that starts a process or compares who has a socket: a new process has copies
/// of all descriptors until it executes its program. And processes of nobody see each other's
/// sockets.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket as it was passed on, with memory of its own.
#[derive(Clone, Debug)]
pub struct Seen {
    family: Family,
    kind: Type,
    state: State,
    local: Endpoint,
    remote: Endpoint,
    path: Option<Vec<u8>>,
    peer_inode: Option<u64>,
    inode: Option<u64>,
    uid: Result<u32, Absent>,
    netns: u64,
    queues: Result<Queues, Absent>,
    interface: Result<Option<Vec<u8>>, Absent>,
    protocol: Option<String>,
    owners: Result<Option<Vec<(u32, u32)>>, Absent>,
    rtt_ns: Result<Option<u64>, Absent>,
    mss_bytes: Result<Option<u32>, Absent>,
}

impl Seen {
    fn new(socket: &Socket<'_>) -> Seen {
        Seen {
            family: socket.family,
            kind: socket.socket_type,
            state: socket.state,
            local: socket.local,
            remote: socket.remote,
            path: socket.path.map(<[u8]>::to_vec),
            peer_inode: socket.peer_inode,
            inode: socket.inode,
            uid: socket.uid,
            netns: socket.netns,
            queues: socket.queues,
            interface: socket.interface.map(|name| name.map(<[u8]>::to_vec)),
            protocol: socket.protocol.map(|protocol| protocol.to_string()),
            owners: socket
                .owners
                .map(|owners| owners.map(|owners| owners.iter().map(|owner| (owner.pid, owner.fd)).collect())),
            rtt_ns: socket.info.map(|info| info.as_ref().and_then(|info| info.rtt_ns)),
            mss_bytes: socket.info.map(|info| info.as_ref().and_then(|info| info.mss_bytes)),
        }
    }
}

fn handle() -> Handle {
    Handle::new().with_patience(Duration::from_secs(5))
}

fn request(kinds: impl Into<Set<Kind>>) -> Request {
    let mut request = Request::default();
    request.kinds = kinds.into();
    request
}

fn list_with(handle: &mut Handle, query: Query, request: &Request) -> (Vec<Seen>, Answer) {
    let processes = handle
        .query(&query.fields(Field::StartNs | Field::Comm))
        .expect("processes");
    let mut seen = Vec::new();
    let answer = handle.sockets(&processes, request, |socket| {
        seen.push(Seen::new(socket));
        ControlFlow::Continue(())
    });
    let answer = answer.expect("sockets");
    assert_eq!(
        (answer.malformed, answer.failed, answer.silent),
        (0, 0, 0),
        "{answer:?}"
    );
    assert_eq!(answer.sockets, seen.len() as u64);
    (seen, answer)
}

/// The sockets of this thread's network namespace.
fn list_here(request: &Request) -> Vec<Seen> {
    let mut request = request.clone();
    request.own_namespace = true;
    let (seen, answer) = list_with(&mut handle(), Query::these([std::process::id()]), &request);
    assert_eq!((answer.namespaces, answer.namespaces_denied), (1, 0));
    let here = own_namespace();
    assert!(seen.iter().all(|socket| socket.netns == here));
    seen
}

fn end(family: Family, end: Endpoint) -> String {
    match (family, end.addr, end.port) {
        (Family::Inet, None, None) => "0.0.0.0:0".to_owned(),
        (_, None, None) => "[::]:0".to_owned(),
        (Family::Inet, Some(address), Some(port)) => format!("{address}:{port}"),
        (_, Some(address), Some(port)) => format!("[{address}]:{port}"),
        other => panic!("half an end: {other:?}"),
    }
}

/// Sockets of IP as the text has them.
fn as_text(seen: &[Seen], family: Family) -> Vec<Line> {
    let mut lines: Vec<Line> = seen
        .iter()
        .filter(|socket| socket.family == family)
        .map(|socket| Line {
            local: end(family, socket.local),
            remote: end(family, socket.remote),
            state: socket.state as u8,
            uid: socket.uid.unwrap_or(0),
            inode: socket.inode.unwrap_or(0),
        })
        .collect();
    lines.sort();
    lines
}

#[track_caller]
fn by_inode(seen: &[Seen], inode: u64) -> &Seen {
    let found: Vec<&Seen> = seen.iter().filter(|socket| socket.inode == Some(inode)).collect();
    match found[..] {
        [one] => one,
        _ => panic!("{} sockets have inode {inode}: {seen:#?}", found.len()),
    }
}

/// Check the sockets of TCP in each state against `/proc/net/tcp` and `tcp6`.
#[test]
fn tcp_is_that_of_proc_net() {
    let _turn = turn();
    network::enter_new();
    let tcp = Tcp::new();
    let mut states = Vec::new();
    // The states of some change until all packets have arrived.
    eventually("the answer and the text are never the same", || {
        let seen = list_here(&request(Kind::Tcp));
        states = seen.iter().map(|socket| socket.state).collect();
        // The text does not show sockets that are only bound.
        let seen: Vec<Seen> = seen
            .into_iter()
            .filter(|socket| socket.state != State::Unconn)
            .collect();
        let is_acknowledged = !states.contains(&State::FinWait1);
        let is_same = |family, name| as_text(&seen, family) == text::lines(name);
        is_acknowledged && is_same(Family::Inet, "tcp") && is_same(Family::Inet6, "tcp6")
    });
    for state in [
        State::Listen,
        State::Estab,
        State::CloseWait,
        State::FinWait2,
        State::TimeWait,
        State::SynSent,
    ] {
        assert!(states.contains(&state), "{state}: {states:?}");
    }
    let seen = list_here(&request(Kind::Tcp));
    let of = |file: &TcpStream| by_inode(&seen, inode(file)).clone();
    assert_eq!(of(&tcp.half_closed[0]).state, State::FinWait2);
    assert_eq!(of(&tcp.half_closed[1]).state, State::CloseWait);
    assert_eq!(of(&tcp.inet6.1).family, Family::Inet6);
    let time_wait = seen.iter().find(|socket| socket.state == State::TimeWait).expect("one");
    assert_eq!(time_wait.local.port, Some(tcp.time_wait.into()));
    assert_eq!((time_wait.inode, &time_wait.owners), (None, &Ok(None)));
    let listener = by_inode(&seen, inode(&tcp.listener));
    assert!(
        matches!(listener.queues, Ok(Queues::Backlog { count: 0, .. })),
        "{listener:?}"
    );
    assert_eq!(
        (listener.remote.addr, listener.protocol.as_deref()),
        (None, Some("tcp"))
    );
    // Linux 6.8 lists it.
    if taskdiag_testkit::kernel() >= (6, 8) {
        let bound = by_inode(&seen, inode(&tcp.bound));
        assert_eq!((bound.state, bound.kind), (State::Unconn, Type::Stream));
    }
}

/// Check that MPTCP's list has the listeners of both families, each once, and none of TCP alone.
#[test]
fn mptcp_has_both_families() {
    let _turn = turn();
    network::enter_new();
    let _tcp = Tcp::new();
    let listeners = [libc::AF_INET, libc::AF_INET6].map(|family| {
        let socket = network::socket(family, libc::SOCK_STREAM, libc::IPPROTO_MPTCP);
        // SAFETY: an unbound socket that listens is bound to a free port.
        assert_eq!(unsafe { libc::listen(socket.as_raw_fd(), 1) }, 0);
        socket
    });
    let seen = list_here(&request(Kind::Tcp));
    let is_mptcp = |socket: &&Seen| socket.protocol.as_deref() == Some("mptcp");
    let mut found: Vec<_> = seen
        .iter()
        .filter(is_mptcp)
        .map(|socket| (socket.inode, socket.family))
        .collect();
    found.sort_unstable_by_key(|(inode, _)| *inode);
    let [inet, inet6] = listeners.each_ref().map(inode);
    assert_eq!(found, [(Some(inet), Family::Inet), (Some(inet6), Family::Inet6)]);
}

/// Compares sockets of TCP and UDP with ss(8), which also asks the kernel.
#[test]
fn ss_sees_the_same() {
    let _turn = turn();
    network::enter_new();
    let _tcp = Tcp::new();
    let udp = UdpSocket::bind("[::1]:0").expect("a socket");
    let shown = |family: Family, end: Endpoint| match (family, end.addr, end.port) {
        (Family::Inet, None, _) => "0.0.0.0:*".to_owned(),
        (_, None, _) => "[::]:*".to_owned(),
        (Family::Inet, Some(address), Some(port)) => format!("{address}:{port}"),
        (_, Some(address), port) => format!("[{address}]:{}", port.expect("a port")),
    };
    eventually("the answer and that of ss are never the same", || {
        let seen = list_here(&request(Kind::Tcp | Kind::Udp));
        let mut ours: Vec<String> = seen
            .iter()
            // ss does not request sockets that are only bound.
            .filter(|socket| socket.kind == Type::Dgram || socket.state != State::Unconn)
            .map(|socket| {
                let protocol = socket.protocol.as_deref().expect("a protocol");
                let (local, remote) = (shown(socket.family, socket.local), shown(socket.family, socket.remote));
                format!("{protocol} {} {local} {remote}", socket.state)
            })
            .collect();
        let ss = std::process::Command::new("ss").args(["-Htuan"]).output();
        let ss = String::from_utf8(ss.expect("ss: dev/setup.sh installs it").stdout).expect("UTF-8");
        let mut theirs: Vec<String> = ss
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split_ascii_whitespace().collect();
                [words[0], words[1], words[4], words[5]].join(" ")
            })
            .collect();
        ours.sort();
        theirs.sort();
        let is_complete = ours.len() > 8 && ours.iter().any(|line| line.starts_with("udp UNCONN [::1]:"));
        is_complete && ours == theirs
    });
    drop(udp);
}

/// Check that data waiting in a connection is counted, at both ends.
#[test]
fn queues_have_what_waits() {
    let _turn = turn();
    network::enter_new();
    let tcp = Tcp::new();
    let [client, server] = &tcp.pair;
    (&*client).write_all(&[7; 1000]).expect("there is room");
    eventually("what was sent never arrives", || {
        let seen = list_here(&request(Kind::Tcp));
        let arrived = by_inode(&seen, inode(server)).queues;
        let sent = by_inode(&seen, inode(client)).queues;
        matches!(
            arrived,
            Ok(Queues::Data {
                recv_bytes: 1000,
                send_bytes: 0,
                ..
            })
        ) && matches!(
            sent,
            Ok(Queues::Data {
                recv_bytes: 0,
                send_bytes: 0,
                ..
            })
        )
    });
}

/// Check UDP, connected or not, bound to an interface or not, against the text.
#[test]
fn udp_is_that_of_proc_net() {
    let _turn = turn();
    network::enter_new();
    let plain = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let connected = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    connected
        .connect(plain.local_addr().expect("an address"))
        .expect("a peer");
    let inet6 = UdpSocket::bind("[::1]:0").expect("a socket");
    let bound = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // SAFETY: the name is as long as it says.
    let set = unsafe {
        libc::setsockopt(
            bound.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            c"lo".as_ptr().cast(),
            3,
        )
    };
    assert_eq!(set, 0);
    let seen = list_here(&request(Kind::Udp));
    assert_eq!(as_text(&seen, Family::Inet), text::lines("udp"));
    assert_eq!(as_text(&seen, Family::Inet6), text::lines("udp6"));
    assert_eq!(seen.len(), 4);
    assert_eq!(by_inode(&seen, inode(&connected)).state, State::Estab);
    assert_eq!(by_inode(&seen, inode(&plain)).state, State::Unconn);
    assert_eq!(
        by_inode(&seen, inode(&inet6)).local.addr,
        Some(Address::Ip([0, 0, 0, 0, 0, 0, 0, 1].into()))
    );
    assert_eq!(by_inode(&seen, inode(&bound)).interface, Ok(Some(b"lo".to_vec())));
}

/// Check UNIX sockets of each type, with paths, abstract names and none, against the text, and that
/// both ends of a pair know each other.
#[test]
fn unix_is_that_of_proc_net() {
    let _turn = turn();
    network::enter_new();
    let path = std::env::temp_dir().join(format!("taskdiag-sockets-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let named = UnixListener::bind(&path).expect("a socket");
    std::fs::remove_file(&path).expect("our own socket");
    let name = format!("taskdiag-{}\0x", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).expect("a name");
    let listener = UnixListener::bind_addr(&abstract_name).expect("a socket");
    let client = UnixStream::connect_addr(&abstract_name).expect("a connection");
    let pair = UnixDatagram::pair().expect("a pair");
    let unbound = UnixDatagram::unbound().expect("a socket");
    let seqpacket = socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
    // Read first: the socket that sent the request may exist for a while.
    let mut from_text = text::unix();
    let seen = list_here(&request(Kind::Unix));
    // A connection that nobody has accepted has no number.
    assert!(from_text.remove(&0).is_some());
    let from_kernel: BTreeMap<u64, text::UnixLine> = seen
        .iter()
        .filter_map(|socket| {
            let kind = match socket.kind {
                Type::Stream => libc::SOCK_STREAM,
                Type::Dgram => libc::SOCK_DGRAM,
                Type::Seqpacket => libc::SOCK_SEQPACKET,
                other => panic!("{other:?}"),
            };
            let name = socket.path.as_ref().map(|path| {
                let text: Vec<u8> = path.iter().map(|&byte| if byte == 0 { b'@' } else { byte }).collect();
                String::from_utf8(text).expect("our own names")
            });
            Some((socket.inode?, (kind as u16, socket.state as u8, name)))
        })
        .collect();
    assert_eq!(from_kernel, from_text);
    let of = |file: u64| by_inode(&seen, file);
    assert_eq!(
        of(inode(&named)).path.as_deref(),
        Some(path.to_str().expect("UTF-8").as_bytes())
    );
    assert_eq!(of(inode(&listener)).path, Some([b"\0", name.as_bytes()].concat()));
    assert!(matches!(
        of(inode(&listener)).queues,
        Ok(Queues::Backlog { count: 1, .. })
    ));
    assert_eq!(of(inode(&client)).state, State::Estab);
    let ends = [inode(&pair.0), inode(&pair.1)];
    assert_eq!(ends.map(|end| of(end).peer_inode), [Some(ends[1]), Some(ends[0])]);
    assert_eq!(
        (of(inode(&unbound)).path.as_ref(), of(inode(&unbound)).peer_inode),
        (None, None)
    );
    assert_eq!(of(inode(&seqpacket)).kind, Type::Seqpacket);
    // SAFETY: a system call without pointers.
    assert_eq!(of(ends[0]).uid, Ok(unsafe { libc::geteuid() }));
}

/// Check raw, netlink and packet sockets: from the kernel's list, or its text.
#[test]
fn other_families_are_listed() {
    let _turn = turn();
    network::enter_new();
    let raw = [
        socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
        socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6),
    ];
    let netlink = network::bound_netlink(libc::NETLINK_ROUTE);
    let packet = socket(libc::AF_PACKET, libc::SOCK_DGRAM, i32::from(0x0800_u16.to_be()));
    let seen = list_here(&request(Kind::Raw | Kind::Netlink | Kind::Packet));
    let protocol = |file: &OwnedFd| by_inode(&seen, inode(file)).protocol.clone().expect("a protocol");
    assert_eq!(raw.each_ref().map(protocol), ["icmp", "ipv6-icmp"]);
    assert_eq!(
        (protocol(&netlink), protocol(&packet)),
        ("route".to_owned(), "ip".to_owned())
    );
    let raw = by_inode(&seen, inode(&raw[0]));
    assert_eq!((raw.kind, raw.local.port, raw.remote.addr), (Type::Raw, None, None));
    assert_eq!(
        raw.owners.as_ref().map(|owners| owners.as_ref().map(Vec::len)),
        Ok(Some(1))
    );
}

/// Check that all descriptors of a socket are its owners, including those of other processes, and
/// that the sockets that send requests are not listed.
#[test]
fn owners_are_all_descriptors() {
    let _turn = turn();
    network::enter_new();
    let tcp = Tcp::new();
    let copy = tcp.listener.try_clone().expect("a descriptor");
    // Nothing can be received through it.
    let link = format!("/proc/self/fd/{}", copy.as_raw_fd());
    let place = File::options().read(true).custom_flags(libc::O_PATH).open(link);
    let place = place.expect("our own descriptor");
    assert_eq!(inode(&place), inode(&copy));
    let own = std::process::id();
    let sources = [None, Some(SourceId::Procfs)];
    for source in sources {
        let mut handle = source.map_or_else(handle, |source| handle().with_source(source));
        let (seen, _) = list_with(&mut handle, Query::processes(), &{
            let mut request = request(Kind::ALL);
            request.own_namespace = true;
            request
        });
        let listener = by_inode(&seen, inode(&copy));
        let fds = [tcp.listener.as_raw_fd(), copy.as_raw_fd()].map(|fd| (own, fd as u32));
        assert_eq!(listener.owners, Ok(Some(fds.to_vec())), "{source:?}");
        // Only sockets of the test and the kernel's own are here.
        for socket in seen.iter().filter(|socket| socket.inode.is_some()) {
            let owned = matches!(&socket.owners, Ok(Some(owners)) if owners.iter().any(|owner| owner.0 == own));
            let is_kernels = socket.family == Family::Netlink;
            assert!(owned || is_kernels, "{socket:?}");
        }
    }
    // A child has it, too.
    let mut sleep = std::process::Command::new("sleep");
    let child = sleep
        .arg("1000")
        .stdin(copy.try_clone().map(OwnedFd::from).expect("one"));
    let mut child = child.spawn().expect("sleep");
    let seen = list_with(&mut handle(), Query::these([child.id(), own]), &request(Kind::Tcp)).0;
    let owners = by_inode(&seen, inode(&copy)).owners.clone();
    child.kill().expect("our own child");
    child.wait().expect("our own child");
    assert!(owners.is_ok_and(|owners| owners.is_some_and(|owners| owners.contains(&(child.id(), 0)))));
}

/// Check that kinds, states, ports, owners and expressions exclude the same sockets in the kernel
/// and here.
#[test]
fn requests_choose_sockets() {
    let _turn = turn();
    network::enter_new();
    let tcp = Tcp::new();
    let all = list_here(&request(Kind::ALL));
    let chosen = |change: &dyn Fn(&mut Request)| {
        let mut request = request(Kind::ALL);
        change(&mut request);
        let mut seen: Vec<u64> = list_here(&request).iter().filter_map(|socket| socket.inode).collect();
        seen.sort_unstable();
        seen
    };
    let expected = |test: &dyn Fn(&Seen) -> bool| {
        let chosen = all.iter().filter(|socket| test(socket));
        let mut inodes: Vec<u64> = chosen.filter_map(|socket| socket.inode).collect();
        inodes.sort_unstable();
        assert!(!inodes.is_empty());
        inodes
    };
    let listen = expected(&|socket| socket.state == State::Listen);
    assert_eq!(
        chosen(&|request| request.states = [State::Listen].into_iter().collect()),
        listen
    );
    let tcp_listen = chosen(&|request| {
        request.kinds = Kind::Tcp.into();
        request.listening = true;
    });
    assert_eq!(tcp_listen, listen);
    let port = tcp.listener.local_addr().expect("an address").port();
    let has_port = |socket: &Seen| [socket.local.port, socket.remote.port].contains(&Some(port.into()));
    // The kernel is asked for a few ports; for many, it is asked for all sockets.
    for others in [0, 1, 100] {
        let ports: Vec<u16> = (1..=others).chain([port]).collect();
        assert_eq!(chosen(&|request| request.ports = ports.clone()), expected(&has_port));
    }
    let filter = |text: &str| Filter::parse(text).expect("a filter");
    let at_port = format!("local_port == {port} and state == 'LISTEN' and family == 'inet'");
    assert_eq!(
        chosen(&|request| request.filter = Some(filter(&at_port))),
        [inode(&tcp.listener)]
    );
    let by_owner = format!("pid == {} and fd == {}", std::process::id(), tcp.listener.as_raw_fd());
    assert_eq!(
        chosen(&|request| request.filter = Some(filter(&by_owner))),
        [inode(&tcp.listener)]
    );
    let owned = expected(&|socket| matches!(&socket.owners, Ok(Some(owners)) if !owners.is_empty()));
    assert_eq!(chosen(&|request| request.owned = true), owned);
}

/// Check that values that are not asked for are not there, and that the closure ends the pass.
#[test]
fn only_what_is_asked_for_is_there() {
    let _turn = turn();
    network::enter_new();
    let tcp = Tcp::new();
    let mut plain = request(Kind::Tcp);
    plain.fields = Set::NONE;
    let seen = list_here(&plain);
    let listener = by_inode(&seen, inode(&tcp.listener));
    assert_eq!(
        (listener.owners.clone(), listener.rtt_ns),
        (Err(Absent::NotAsked), Err(Absent::NotAsked))
    );
    let mut handle = handle();
    let processes = handle
        .query(&Query::these([1]).fields(Field::StartNs))
        .expect("processes");
    let answer = handle.sockets(&processes, &plain, |_| ControlFlow::Break(()));
    assert_eq!(answer.expect("sockets").sockets, 1);
    // Without owners no processes are needed; with owners, their query must distinguish them.
    let processes = handle.query(&Query::these([1])).expect("processes");
    assert!(handle
        .sockets(&processes, &plain, |_| ControlFlow::Continue(()))
        .is_ok());
    let error = handle.sockets(&processes, &request(Kind::Tcp), |_| ControlFlow::Continue(()));
    assert_eq!(error.expect_err("no start_ns").kind(), ErrorKind::InvalidInput);
    let broker = Handle::new().with_source(SourceId::Broker);
    let error = { broker }.sockets(&processes, &plain, |_| ControlFlow::Continue(()));
    assert_eq!(error.expect_err("not the broker").kind(), ErrorKind::Unsupported);
}

/// Compares TCP's information with that of getsockopt(2) for one's own socket.
#[test]
fn info_is_that_of_the_socket() {
    let _turn = turn();
    network::enter_new();
    let tcp = Tcp::new();
    let mut request = request(Kind::Tcp | Kind::Unix);
    request.fields = SocketField::RttNs.into();
    let own_info = || {
        // SAFETY: the structure is numbers, for which zeros are values.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of_val(&info) as u32;
        // SAFETY: the structure is as long as it says.
        let got = unsafe {
            libc::getsockopt(
                tcp.pair[0].as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut len,
            )
        };
        assert_eq!(got, 0);
        (u64::from(info.tcpi_rtt) * 1000, info.tcpi_snd_mss)
    };
    eventually("it changes all the time", || {
        let before = own_info();
        let seen = list_here(&request);
        let socket = by_inode(&seen, inode(&tcp.pair[0]));
        let found = (socket.rtt_ns.expect("a value"), socket.mss_bytes.expect("a value"));
        assert!(seen
            .iter()
            .filter(|socket| socket.state == State::TimeWait)
            .all(|socket| socket.rtt_ns == Ok(None)));
        before == own_info() && found == (Some(before.0), Some(before.1))
    });
}

/// Check that a process that holds the lock of a socket blocks nobody: TCP's information about that
/// socket is missing, and all else is there, in time.
#[test]
fn a_held_socket_blocks_no_list() {
    let _turn = turn();
    const PATIENCE: Duration = Duration::from_millis(500);
    // Before Linux 6.9, lists wait for each other.
    if taskdiag_testkit::kernel() < (6, 9) {
        return;
    }
    let _first = taskdiag_zoo::run_first();
    let holder = taskdiag_testkit::animal("holds-socket");
    let namespace = std::fs::metadata(format!("/proc/{}/ns/net", holder.pid)).expect("a namespace");
    let namespace = std::os::unix::fs::MetadataExt::ino(&namespace);
    let mut request = request(Kind::Tcp);
    let mut handle = Handle::new().with_patience(PATIENCE);
    for fields in [Set::NONE, SocketField::RttNs.into()] {
        request.fields = fields;
        let (mut held, mut others) = (0, 0);
        let start = std::time::Instant::now();
        let answer = handle.sockets(&taskdiag::Snapshot::default(), &request, |socket| {
            if socket.netns == namespace {
                match socket.info {
                    Err(Absent::NoAnswer) => held += 1,
                    _ => others += 1,
                }
            }
            ControlFlow::Continue(())
        });
        let (answer, taken) = (answer.expect("sockets"), start.elapsed());
        let expected = if fields == Set::NONE { (0, 3) } else { (1, 2) };
        assert_eq!((held, others), expected, "{answer:?}");
        assert_eq!((answer.silent, answer.malformed), (0, 0), "{answer:?}");
        // It is waited for in the list of all sockets, and when it is requested alone.
        assert!(taken < 2 * PATIENCE + taskdiag_zoo::margin(), "{taken:?}");
    }
}

/// Check that a row has the value of each field, and that its texts are those of the socket.
#[test]
fn rows_have_all_fields() {
    let _turn = turn();
    network::enter_new();
    let tcp = Tcp::new();
    let mut request = request(Kind::Tcp);
    request.own_namespace = true;
    request.fields = SocketField::RttNs.into();
    let mut handle = handle();
    let mut is_found = false;
    let answer = handle.sockets(&taskdiag::Snapshot::default(), &request, |socket| {
        let row = Row::new(socket);
        if socket.inode == Some(inode(&tcp.pair[0])) {
            is_found = true;
            let text = |field| match row.value(field) {
                Err(Absent::NotApplicable) => None,
                value => Some(value.expect("a value").to_string()),
            };
            let port = |address: std::net::SocketAddr| Some(address.port().to_string());
            assert_eq!(text(SocketField::LocalAddr).as_deref(), Some("127.0.0.1"));
            assert_eq!(
                text(SocketField::LocalPort),
                port(tcp.pair[0].local_addr().expect("one"))
            );
            assert_eq!(
                text(SocketField::RemotePort),
                port(tcp.pair[0].peer_addr().expect("one"))
            );
            assert_eq!(text(SocketField::State).as_deref(), Some("ESTAB"));
            assert!(text(SocketField::Congestion).is_some_and(|name| !name.is_empty()));
            assert!(text(SocketField::CwndCount).is_some());
        }
        ControlFlow::Continue(())
    });
    answer.expect("sockets");
    assert!(is_found);
}

/// Check that a user sees the sockets of their own namespace, and that hidden ones are counted.
#[test]
fn users_see_their_own_namespace() {
    let _turn = turn();
    let _other = child::part().is_none().then(namespaces::held_by_a_thread);
    child::run(test_name!(), "nobody", child::nobody(0), || {
        let listener = std::os::unix::net::UnixListener::bind_addr(
            &SocketAddr::from_abstract_name(format!("taskdiag-nobody-{}", std::process::id())).expect("a name"),
        );
        let listener = listener.expect("a socket");
        let (seen, answer) = list_with(&mut handle(), Query::processes(), &request(Kind::Unix));
        assert_eq!(answer.namespaces, 1);
        assert!(answer.processes_hidden > 0 && answer.processes_denied > 0, "{answer:?}");
        let own = by_inode(&seen, inode(&listener));
        assert_eq!(
            own.owners,
            Ok(Some(vec![(std::process::id(), listener.as_raw_fd() as u32)]))
        );
        assert_eq!(own.netns, own_namespace());
        // The owners of the others can't be known.
        let others = seen
            .iter()
            .filter(|socket| socket.inode.is_some() && socket.inode != own.inode);
        for socket in others {
            let is_own =
                matches!(&socket.owners, Ok(Some(owners)) if owners.iter().all(|owner| owner.0 == std::process::id()));
            assert!(socket.owners == Err(Absent::Denied) || is_own, "{socket:?}");
        }
    });
}
