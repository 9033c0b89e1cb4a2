//! A network namespace for one test, and sockets in it.

use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

/// Moves this thread into a new network namespace, in which the loopback interface is up. Each test
/// runs in its own thread, so nothing else is in it.
pub fn enter_new() {
    // SAFETY: a system call without pointers; nothing here relies on the namespace of this thread.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(unshared, 0, "{}", std::io::Error::last_os_error());
    loopback_up();
}

fn loopback_up() {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
    // SAFETY: the structure is numbers, for which zeros are values.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as _;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as _;
    // SAFETY: the request belongs to this thread, and has the form that the kernel expects.
    let set = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// The number of this thread's network namespace.
pub fn own_namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").expect("a namespace").ino()
}

/// socket(2).
pub fn socket(family: i32, kind: i32, protocol: i32) -> OwnedFd {
    // SAFETY: a system call without pointers, which returns a new descriptor or -1.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The inode number of a file.
pub fn inode(file: &impl std::os::fd::AsFd) -> u64 {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    fs::metadata(path).expect("an open file").ino()
}

/// Retries until it is true.
#[track_caller]
pub fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Sockets of TCP in all states that can be made.
#[derive(Debug)]
pub struct Tcp {
    pub listener: TcpListener,
    /// Connected to each other.
    pub pair: [TcpStream; 2],
    /// The first one has closed its side.
    pub half_closed: [TcpStream; 2],
    /// Connections that nobody answers, because the backlog is full.
    _waiting: Vec<OwnedFd>,
    _full: TcpListener,
    pub inet6: (TcpListener, TcpStream, TcpStream),
    /// The port of an end that is in TIME-WAIT.
    pub time_wait: u16,
    /// Bound only.
    pub bound: OwnedFd,
}

fn connected(listener: &TcpListener) -> [TcpStream; 2] {
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (server, _) = listener.accept().expect("the other end");
    [client, server]
}

impl Tcp {
    pub fn new() -> Tcp {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let pair = connected(&listener);
        let half_closed = connected(&listener);
        half_closed[0].shutdown(std::net::Shutdown::Write).expect("one side");
        let [client, mut server] = connected(&listener);
        let time_wait = client.local_addr().expect("an address").port();
        // The client closes first, so that it is the end that must wait.
        drop(client);
        assert_eq!(server.read(&mut [0]).expect("the end"), 0);
        drop(server);
        let inet6 = TcpListener::bind("[::1]:0").expect("a listener");
        let [client6, server6] = connected(&inet6);
        let (full, waiting) = full_backlog();
        let bound = socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        bind(&bound);
        Tcp {
            listener,
            pair,
            half_closed,
            _waiting: waiting,
            _full: full,
            inet6: (inet6, client6, server6),
            time_wait,
            bound,
        }
    }
}

/// A listener that accepts no more connections, and sockets that wait for one.
fn full_backlog() -> (TcpListener, Vec<OwnedFd>) {
    let full = TcpListener::bind("127.0.0.1:0").expect("a listener");
    // SAFETY: a system call without pointers.
    assert_eq!(unsafe { libc::listen(full.as_raw_fd(), 0) }, 0);
    let address = address(full.local_addr().expect("an address"));
    let clients: Vec<OwnedFd> = (0..4)
        .map(|_| {
            let client = socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0);
            let len = size_of_val(&address) as u32;
            // SAFETY: the address is as long as it says. The result does not matter: the socket
            // does not wait.
            unsafe { libc::connect(client.as_raw_fd(), (&raw const address).cast(), len) };
            client
        })
        .collect();
    (full, clients)
}

fn address(address: SocketAddr) -> libc::sockaddr_in {
    let SocketAddr::V4(address) = address else {
        panic!("{address} is not IPv4")
    };
    libc::sockaddr_in {
        sin_family: libc::AF_INET as _,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

pub fn bind(socket: &OwnedFd) {
    let address = address(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let len = size_of_val(&address) as u32;
    // SAFETY: the address is as long as it says.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
}

/// A netlink socket with a port id: those without one are in no list of the kernel.
pub fn bound_netlink(protocol: i32) -> OwnedFd {
    let netlink = socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol);
    // SAFETY: the structure is numbers, for which zeros are values.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as _;
    let len = size_of_val(&address) as u32;
    // SAFETY: the address is as long as it says.
    let bound = unsafe { libc::bind(netlink.as_raw_fd(), (&raw const address).cast(), len) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    netlink
}
