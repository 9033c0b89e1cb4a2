//! What processes send and receive, beside what they were told to. A transfer is made in a process
//! of its own, which nothing else uses.

#![allow(
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    reason = "tests; system calls on own memory"
)]

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use std::time::Duration;

use taskdiag::events::{EventSource, Options};
use taskdiag::network::{Remote, RemoteParts, Remotes};
use taskdiag::{Absent, EventField, EventKind, Events, Field, Fields, Group, Handle, Query, SourceId, Value};
use taskdiag_testkit::{child, test_name};

/// What a process moved, in the order of the fields: sent and received bytes, sent and received
/// calls.
type Moved = [u64; 4];

const NOTHING: Moved = [0; 4];

/// One test at a time: a child has copies of all descriptors of this process.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that makes a transfer, and then waits.
struct Transfer {
    pid: i32,
    end: Option<File>,
}

impl Transfer {
    fn start(transfer: &dyn Fn()) -> Transfer {
        let (mut done, mut tell) = pipe();
        let (mut wait, end) = pipe();
        // The child does only what the tests say, in its own memory, and ends.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            drop((done, end));
            let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(transfer));
            if made.is_ok() {
                tell.write_all(b"x").unwrap();
                let _ = wait.read(&mut [0]);
            }
            unsafe { libc::_exit(0) };
        }
        drop((tell, wait));
        done.read_exact(&mut [0]).expect("the transfer succeeds");
        Transfer { pid, end: Some(end) }
    }

    /// What was counted: of other machines, of this one, and of UNIX sockets.
    fn counted(&self, handle: &mut Handle) -> [Moved; 3] {
        counted(handle, self.pid as u32).expect("it is counted")
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        drop(self.end.take());
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

fn counted(handle: &mut Handle, pid: u32) -> Result<[Moved; 3], Absent> {
    let fields = Fields::of_group(Group::Net);
    let snapshot = handle.query(&Query::process(pid).fields(fields)).expect("an answer");
    let task = snapshot.tasks().next().expect("it waits");
    let mut values = fields
        .iter()
        .filter(|&field| field != Field::NetSinceNs)
        .map(|field| match task.value(field) {
            Ok(Value::Unsigned(value)) => Ok(value),
            Ok(other) => panic!("{field}: {other:?}"),
            Err(reason) => Err(reason),
        });
    let mut all = [NOTHING; 3];
    for value in all.iter_mut().flatten() {
        *value = values.next().expect("a field")?;
    }
    Ok(all)
}

fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) }
}

/// One handle counts for all tests, so that they see what others do, too.
fn counting() -> Handle {
    let mut handle = Handle::new();
    handle
        .count_network()
        .expect("these tests need root, BPF and Linux 6.3");
    handle
}

fn send(socket: &impl AsRawFd, bytes: &[u8], flags: i32) -> usize {
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).expect("it is sent")
}

fn receive(socket: &impl AsRawFd, bytes: &mut [u8], flags: i32) -> usize {
    let received = unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    usize::try_from(received).expect("it is received")
}

fn tcp(listening: &str, connected: &str) -> [TcpStream; 2] {
    let listener = TcpListener::bind((listening, 0)).expect("a port");
    let one = TcpStream::connect((connected, listener.local_addr().unwrap().port())).expect("a connection");
    [one, listener.accept().expect("a connection").0]
}

/// Sends 1,000 bytes in one call, and receives them in one.
fn move_1000([mut one, mut other]: [impl Read + Write; 2]) {
    one.write_all(&[1; 1000]).unwrap();
    other.read_exact(&mut [0; 1000]).unwrap();
}

fn unix(kind: i32) -> [OwnedFd; 2] {
    let mut ends = [0; 2];
    assert_eq!(
        unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) },
        0
    );
    ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) })
}

/// A file of this many bytes.
fn file(len: usize) -> File {
    let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"network".as_ptr(), libc::MFD_CLOEXEC)) };
    file.write_all(&vec![1; len]).unwrap();
    file
}

const MOVED: Moved = [1000, 1000, 1, 1];

/// Check transfers of every kind within this machine, to the byte and to the call.
#[test]
fn transfers_are_counted() {
    let _turn = turn();
    let on_loopback = [NOTHING, MOVED, NOTHING];
    let through_unix = [NOTHING, NOTHING, MOVED];
    type Kind = (&'static str, fn(), [Moved; 3]);
    let kinds: &[Kind] = &[
        ("nothing", || drop(tcp("127.0.0.1", "127.0.0.1")), [NOTHING; 3]),
        ("tcp", || move_1000(tcp("127.0.0.1", "127.0.0.1")), on_loopback),
        (
            "tcp, another of 127/8",
            || move_1000(tcp("127.8.9.1", "127.8.9.1")),
            on_loopback,
        ),
        ("tcp6", || move_1000(tcp("::1", "::1")), on_loopback),
        ("tcp, mapped", || move_1000(tcp("::", "127.0.0.1")), on_loopback),
        (
            "tcp6, mapped",
            || move_1000(tcp("127.0.0.1", "::ffff:127.0.0.1")),
            on_loopback,
        ),
        (
            "udp",
            || {
                let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
                one.connect(other.local_addr().unwrap()).unwrap();
                assert_eq!(one.send(&[1; 1000]).unwrap(), 1000);
                assert_eq!(other.recv(&mut [0; 2000]).unwrap(), 1000);
            },
            on_loopback,
        ),
        (
            "udp, not connected",
            || {
                let [one, other] = [(); 2].map(|()| UdpSocket::bind("[::1]:0").unwrap());
                assert_eq!(one.send_to(&[1; 1000], other.local_addr().unwrap()).unwrap(), 1000);
                assert_eq!(other.recv(&mut [0; 2000]).unwrap(), 1000);
            },
            on_loopback,
        ),
        (
            "unix, stream",
            || move_1000(<[UnixStream; 2]>::from(UnixStream::pair().unwrap())),
            through_unix,
        ),
        (
            "unix, datagrams",
            || {
                let (one, other) = UnixDatagram::pair().unwrap();
                assert_eq!(one.send(&[1; 1000]).unwrap(), 1000);
                assert_eq!(other.recv(&mut [0; 2000]).unwrap(), 1000);
            },
            through_unix,
        ),
        (
            "unix, packets",
            || {
                let [one, other] = unix(libc::SOCK_SEQPACKET);
                assert_eq!(
                    (send(&one, &[1; 1000], 0), receive(&other, &mut [0; 2000], 0)),
                    (1000, 1000)
                );
            },
            through_unix,
        ),
        (
            "an empty datagram",
            || {
                let (one, other) = UnixDatagram::pair().unwrap();
                assert_eq!((one.send(&[]).unwrap(), other.recv(&mut [0; 10]).unwrap()), (0, 0));
            },
            [NOTHING, NOTHING, [0, 0, 1, 1]],
        ),
        (
            "errors",
            || {
                let [one, _other] = unix(libc::SOCK_STREAM);
                let none = unsafe { libc::recv(one.as_raw_fd(), [0_u8; 9].as_mut_ptr().cast(), 9, libc::MSG_DONTWAIT) };
                assert_eq!(none, -1);
            },
            [NOTHING; 3],
        ),
        (
            "MSG_PEEK",
            || {
                let [one, other] = tcp("127.0.0.1", "127.0.0.1");
                send(&one, &[1; 1000], 0);
                for _ in 0..5 {
                    receive(&other, &mut [0; 1000], libc::MSG_PEEK);
                }
                assert_eq!(receive(&other, &mut [0; 1000], 0), 1000);
            },
            on_loopback,
        ),
        (
            "MSG_TRUNC",
            || {
                let (one, other) = UnixDatagram::pair().unwrap();
                one.send(&[1; 1000]).unwrap();
                assert_eq!(receive(&other, &mut [0; 10], libc::MSG_TRUNC), 1000);
            },
            through_unix,
        ),
        (
            "a datagram that is cut",
            || {
                let (one, other) = UnixDatagram::pair().unwrap();
                one.send(&[1; 1000]).unwrap();
                assert_eq!(receive(&other, &mut [0; 10], 0), 10);
            },
            [NOTHING, NOTHING, [1000, 10, 1, 1]],
        ),
        (
            "MSG_ZEROCOPY",
            || {
                let [one, mut other] = tcp("127.0.0.1", "127.0.0.1");
                let on = 1_i32;
                let set = unsafe {
                    libc::setsockopt(
                        one.as_raw_fd(),
                        libc::SOL_SOCKET,
                        libc::SO_ZEROCOPY,
                        (&raw const on).cast(),
                        4,
                    )
                };
                assert_eq!((set, send(&one, &[1; 1000], libc::MSG_ZEROCOPY)), (0, 1000));
                other.read_exact(&mut [0; 1000]).unwrap();
                // The news that the memory is free again.
                receive(&one, &mut [0; 10], libc::MSG_ERRQUEUE);
            },
            on_loopback,
        ),
        (
            "vectors",
            || {
                let [mut one, mut other] = tcp("127.0.0.1", "127.0.0.1");
                let parts = [std::io::IoSlice::new(&[1; 400]), std::io::IoSlice::new(&[1; 600])];
                assert_eq!(one.write_vectored(&parts).unwrap(), 1000);
                other.read_exact(&mut [0; 1000]).unwrap();
            },
            on_loopback,
        ),
        (
            "sendfile",
            || {
                let [one, mut other] = tcp("127.0.0.1", "127.0.0.1");
                let sent = unsafe { libc::sendfile(one.as_raw_fd(), file(1000).as_raw_fd(), &mut 0, 1000) };
                assert_eq!(sent, 1000);
                other.read_exact(&mut [0; 1000]).unwrap();
            },
            on_loopback,
        ),
        (
            "splice",
            || {
                let [one, mut other] = tcp("127.0.0.1", "127.0.0.1");
                let (from, mut to) = pipe();
                to.write_all(&[1; 1000]).unwrap();
                let none = std::ptr::null_mut();
                let sent = unsafe { libc::splice(from.as_raw_fd(), none, one.as_raw_fd(), none, 1000, 0) };
                assert_eq!(sent, 1000);
                other.read_exact(&mut [0; 1000]).unwrap();
            },
            on_loopback,
        ),
        (
            "splice from a socket, which is not counted",
            || {
                let [mut one, other] = tcp("127.0.0.1", "127.0.0.1");
                one.write_all(&[1; 1000]).unwrap();
                let (_from, to) = pipe();
                let none = std::ptr::null_mut();
                let received = unsafe { libc::splice(other.as_raw_fd(), none, to.as_raw_fd(), none, 1000, 0) };
                assert_eq!(received, 1000);
            },
            [NOTHING, [1000, 0, 1, 0], NOTHING],
        ),
        (
            "mptcp",
            || {
                const MPTCP: i32 = 262;
                let socket = || unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, MPTCP) };
                let (listener, one) = unsafe { (TcpListener::from_raw_fd(socket()), TcpStream::from_raw_fd(socket())) };
                assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
                let to = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: listener.local_addr().unwrap().port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(Ipv4Addr::LOCALHOST.octets()),
                    },
                    sin_zero: [0; 8],
                };
                assert_eq!(unsafe { libc::connect(one.as_raw_fd(), (&raw const to).cast(), 16) }, 0);
                move_1000([one, listener.accept().unwrap().0]);
            },
            on_loopback,
        ),
        (
            "threads",
            || {
                let [mut one, mut other] = tcp("127.0.0.1", "127.0.0.1");
                std::thread::spawn(move || one.write_all(&[1; 1000]).unwrap())
                    .join()
                    .unwrap();
                std::thread::spawn(move || other.read_exact(&mut [0; 1000]).unwrap())
                    .join()
                    .unwrap();
            },
            on_loopback,
        ),
        // Its own side only; what a child moves is the child's.
        (
            "a child with the same socket",
            || {
                let [one, other] = unix(libc::SOCK_STREAM);
                let child = Transfer::start(&|| assert_eq!(send(&one, &[1; 300], 0), 300));
                assert_eq!(receive(&other, &mut [0; 1000], 0), 300);
                drop(child);
                assert_eq!(send(&one, &[1; 1000], 0), 1000);
            },
            [NOTHING, NOTHING, [1000, 300, 1, 1]],
        ),
    ];
    let mut handle = counting();
    for (name, transfer, expected) in kinds {
        assert_eq!(Transfer::start(transfer).counted(&mut handle), *expected, "{name}");
    }
}

/// Check that a large transfer is counted to the byte, whatever calls it takes.
#[test]
fn every_byte_counts() {
    let _turn = turn();
    const LEN: usize = 10_000_001;
    let mut handle = counting();
    let moved = Transfer::start(&|| {
        let [mut one, mut other] = tcp("127.0.0.1", "127.0.0.1");
        let sender = std::thread::spawn(move || one.write_all(&vec![1; LEN]).unwrap());
        other.read_exact(&mut vec![0; LEN]).unwrap();
        sender.join().unwrap();
    });
    let [net, loopback, unix] = moved.counted(&mut handle);
    assert_eq!((net, unix), (NOTHING, NOTHING));
    assert_eq!(loopback[..2], [LEN as u64; 2]);
}

/// Check that a socket counts for the process that calls, to which it was passed, and that execve(2)
/// keeps what was counted.
#[test]
fn the_caller_counts() {
    let _turn = turn();
    static PATH: OnceLock<String> = OnceLock::new();
    let path = PATH.get_or_init(|| format!("/tmp/taskdiag network {}", std::process::id()));
    let listener = UnixListener::bind(path).expect("a socket");
    let mut handle = counting();
    let (mut done, tell) = pipe();
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut stream = UnixStream::connect(PATH.get().unwrap()).unwrap();
        stream.write_all(&[1; 700]).unwrap();
        // The shell writes 6 bytes into the socket, and tells through the pipe, which is no socket.
        unsafe {
            libc::dup2(stream.as_raw_fd(), 1);
            libc::dup2(tell.as_raw_fd(), 2);
            let arguments = [
                c"sh".as_ptr(),
                c"-c".as_ptr(),
                c"echo hello; echo >&2; kill -STOP $$".as_ptr(),
                std::ptr::null(),
            ];
            libc::execv(c"/bin/sh".as_ptr(), arguments.as_ptr());
            libc::_exit(1);
        }
    }
    let (mut stream, _) = listener.accept().unwrap();
    std::fs::remove_file(path).unwrap();
    done.read_exact(&mut [0]).unwrap();
    stream.read_exact(&mut [0; 706]).unwrap();
    let found = counted(&mut handle, child as u32);
    unsafe { libc::kill(child, libc::SIGKILL) };
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert_eq!(found, Ok([NOTHING, NOTHING, [706, 0, 2, 0]]));
}

/// Check that nothing is known where nobody counts, that another handle's counting is not this one's,
/// that counting begins with nothing, and that the time is the later one.
#[test]
fn counting_has_a_beginning() {
    let _turn = turn();
    let mut handle = Handle::new();
    let pid = std::process::id();
    assert_eq!(counted(&mut handle, pid), Err(Absent::NotCounted));
    let transfer = Transfer::start(&|| move_1000(tcp("127.0.0.1", "127.0.0.1")));
    let mut counting = counting();
    assert_eq!(counted(&mut handle, pid), Err(Absent::NotCounted));
    assert_eq!(transfer.counted(&mut counting), [NOTHING; 3]);
    let since = |handle: &mut Handle, pid: u32| {
        let snapshot = handle
            .query(&Query::process(pid).fields(Field::NetSinceNs | Field::StartNs))
            .unwrap();
        let task = snapshot.tasks().next().unwrap();
        (task.net_since_ns().unwrap(), task.start_ns().unwrap() as u64)
    };
    let later = Transfer::start(&|| {});
    let (began, started) = since(&mut counting, pid);
    assert!(began > started);
    let (since_later, started) = since(&mut counting, later.pid as u32);
    assert!(
        since_later == started && started >= began,
        "{since_later} {started} {began}"
    );
    let threads = counting
        .query(&Query::threads_of(pid).fields(Field::NetSinceNs))
        .unwrap();
    assert!(threads.tasks().all(|thread| thread.net_since_ns() == Ok(began)));
}

/// Moves packets between two network namespaces, as a cable does, and returns the address of an
/// echoing server at the other end. This thread is at one end.
fn other_machine() -> (Ipv4Addr, u16) {
    let (tell, told) = std::sync::mpsc::channel();
    let ours = tunnel([10, 9, 0, 1]);
    std::thread::spawn(move || {
        let theirs = tunnel([10, 9, 0, 2]);
        let listener = TcpListener::bind("10.9.0.2:0").unwrap();
        let datagrams = UdpSocket::bind(listener.local_addr().unwrap()).unwrap();
        tell.send((theirs, listener.local_addr().unwrap().port())).unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 2000];
            while let Ok((len, from)) = datagrams.recv_from(&mut bytes) {
                datagrams.send_to(&bytes[..len], from).unwrap();
            }
        });
        for stream in listener.incoming() {
            let (mut from, mut to) = (stream.as_ref().unwrap(), stream.as_ref().unwrap());
            std::io::copy(&mut from, &mut to).unwrap();
        }
    });
    let (theirs, port) = told.recv().unwrap();
    let ends = [(ours.try_clone().unwrap(), theirs.try_clone().unwrap()), (theirs, ours)];
    for (mut from, mut to) in ends {
        std::thread::spawn(move || {
            let mut packet = [0; 2000];
            while let Ok(len) = from.read(&mut packet) {
                let _ = to.write(&packet[..len]);
            }
        });
    }
    (Ipv4Addr::new(10, 9, 0, 2), port)
}

/// A network device of this thread, which gets a network namespace of its own, and its other side.
fn tunnel(address: [u8; 4]) -> File {
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .expect("/dev/net/tun");
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let set = |file: &dyn AsRawFd, request: libc::c_ulong, value: &[u8]| {
        let mut bytes = [0_u8; 40];
        bytes[..4].copy_from_slice(b"tun0");
        bytes[16..16 + value.len()].copy_from_slice(value);
        let set = unsafe { libc::ioctl(file.as_raw_fd(), request, bytes.as_mut_ptr()) };
        assert_eq!(set, 0, "{request:#x}: {}", std::io::Error::last_os_error());
    };
    let in_family = |address: [u8; 4]| [&(libc::AF_INET as u16).to_ne_bytes()[..], &[0; 2], &address].concat();
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    set(
        &device,
        TUNSETIFF,
        &((libc::IFF_TUN | libc::IFF_NO_PI) as u16).to_ne_bytes(),
    );
    set(&socket, libc::SIOCSIFADDR as libc::c_ulong, &in_family(address));
    set(
        &socket,
        libc::SIOCSIFNETMASK as libc::c_ulong,
        &in_family([255, 255, 255, 0]),
    );
    set(
        &socket,
        libc::SIOCSIFFLAGS as libc::c_ulong,
        &(libc::IFF_UP as u16).to_ne_bytes(),
    );
    device
}

/// Check traffic with another machine, and with an address of this one that is not of 127/8; by
/// protocol, and by the other end.
#[test]
fn other_machines_are_apart() {
    let _turn = turn();
    let server = other_machine();
    let mut handle = counting();
    let [of_all, of_some, none] = [[true; 3], [false, true, false], [false; 3]]
        .map(|[process, address, port]| Remotes::count(RemoteParts { process, address, port }).expect("it counts"));
    let with_tcp = Transfer::start(&|| {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.write_all(&[1; 1000]).unwrap();
        stream.read_exact(&mut [0; 1000]).unwrap();
    });
    let [net, loopback, unix] = with_tcp.counted(&mut handle);
    assert_eq!((&net[..3], loopback, unix), (&[1000, 1000, 1][..], NOTHING, NOTHING));
    let with_udp = Transfer::start(&|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(&[1; 1000], server).unwrap();
        assert_eq!(socket.recv(&mut [0; 2000]).unwrap(), 1000);
        socket.connect(server).unwrap();
        socket.send(&[1; 50]).unwrap();
        assert_eq!(socket.recv(&mut [0; 2000]).unwrap(), 50);
    });
    assert_eq!(with_udp.counted(&mut handle), [[1050, 1050, 2, 2], NOTHING, NOTHING]);
    let mapped = Transfer::start(&|| {
        let stream = TcpStream::connect((server.0.to_ipv6_mapped(), server.1)).unwrap();
        (&stream).write_all(&[1; 300]).unwrap();
        (&stream).read_exact(&mut [0; 300]).unwrap();
    });

    let fields = [
        Field::NetTcpSentBytes,
        Field::NetTcpReceivedBytes,
        Field::NetUdpSentBytes,
        Field::NetUdpReceivedBytes,
    ];
    for (transfer, bytes) in [(&with_tcp, [1000, 1000, 0, 0]), (&with_udp, [0, 0, 1050, 1050])] {
        let query = Query::process(transfer.pid as u32).fields(fields.into_iter().collect::<Fields>());
        let snapshot = handle.query(&query).unwrap();
        let task = snapshot.tasks().next().unwrap();
        assert_eq!(
            fields.map(|field| task.value(field)),
            bytes.map(|bytes| Ok(Value::Unsigned(bytes)))
        );
    }

    let (tcp, udp) = (libc::IPPROTO_TCP as u16, libc::IPPROTO_UDP as u16);
    let (ends, uncounted) = of_all.read().unwrap();
    assert_eq!(uncounted, 0);
    let of = |transfer: &Transfer, protocol: u16| {
        let is_its = |end: &&Remote| {
            let process = end.process.expect("a process");
            end.protocol == protocol && process.tid() == transfer.pid as u32
        };
        let mut ends: Vec<_> = ends.iter().filter(is_its).collect();
        ends.sort_by_key(|end| end.port);
        let end = |end: &Remote| {
            (
                end.address.unwrap().to_canonical(),
                end.port.unwrap(),
                end.sent_bytes,
                end.received_bytes,
            )
        };
        ends.into_iter().map(end).collect::<Vec<_>>()
    };
    let there = std::net::IpAddr::from(server.0);
    let nowhere = std::net::IpAddr::from(Ipv4Addr::UNSPECIFIED);
    assert_eq!(of(&with_tcp, tcp), [(there, server.1, 1000, 1000)]);
    assert_eq!(
        of(&with_udp, udp),
        [(nowhere, 0, 1000, 1000), (there, server.1, 50, 50)]
    );
    assert_eq!(of(&mapped, tcp), [(there, server.1, 300, 300)]);
    // What tells them apart was the only thing that was kept. The server is among them.
    let (ends, _) = of_some.read().unwrap();
    let end = ends
        .iter()
        .find(|end| end.protocol == tcp && end.address == Some(server.0.to_ipv6_mapped()));
    let end = end.expect("it was counted");
    assert_eq!(
        (end.process, end.port, end.sent_bytes, end.received_bytes),
        (None, None, 1300, 1300)
    );
    let (ends, _) = none.read().unwrap();
    let moved: Vec<u64> = ends
        .iter()
        .filter(|end| end.protocol == udp)
        .map(|end| end.sent_bytes)
        .collect();
    assert_eq!(moved, [2100]);
}

/// Check that what a process moved is forgotten with it, however many there are.
#[test]
fn counts_end_with_their_processes() {
    let _turn = turn();
    let mut handle = counting();
    for _ in 0..200 {
        drop(Transfer::start(&|| {
            move_1000(<[UnixStream; 2]>::from(UnixStream::pair().unwrap()))
        }));
    }
    let mut left = handle.query(&Query::processes().fields(Field::UnixSentBytes)).unwrap();
    left.retain(|task| task.unix_sent_bytes().is_ok_and(|bytes| bytes == 1000));
    assert_eq!(left.len(), 0);
}

/// Check that a process has its counts as long as anybody can ask for it, and that its exit has
/// them, also that of one that lives too short for any pass.
#[test]
fn ended_processes_have_their_counts() {
    let _turn = turn();
    let mut handle = counting();
    let exits = Options::default().kinds([EventKind::Exit]).source(EventSource::Bpf);
    let mut events = Events::open(&handle.events_with_network(exits.clone()).unwrap()).unwrap();
    let mut uncounted = Events::open(&exits).unwrap();
    let transfer = Transfer::start(&|| move_1000(tcp("127.0.0.1", "127.0.0.1")));
    let pid = transfer.pid as u32;
    unsafe { libc::kill(transfer.pid, libc::SIGKILL) };
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("nobody waits for it");
    while !stat().contains(") Z ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(counted(&mut handle, pid), Ok([NOTHING, MOVED, NOTHING]));
    drop(transfer);
    let quiet = Transfer::start(&|| ()).pid as u32;

    let mut known = HashMap::new();
    while known.len() < 2 {
        events.wait(Some(Duration::from_secs(10)), None).unwrap();
        for event in events.read().unwrap() {
            if [pid, quiet].contains(&event.pid()) && !event.is_thread() {
                let value = |field| match event.value(field) {
                    Ok(Value::Unsigned(bytes)) => bytes,
                    other => panic!("{field}: {other:?}"),
                };
                let moved = [
                    EventField::NetSentBytes,
                    EventField::NetReceivedBytes,
                    EventField::LoopbackSentBytes,
                    EventField::LoopbackReceivedBytes,
                    EventField::UnixSentBytes,
                    EventField::UnixReceivedBytes,
                ];
                known.insert(event.pid(), moved.map(value));
                assert_eq!(event.net_sent_bytes(), Ok(0));
            }
        }
    }
    assert_eq!((known[&pid], known[&quiet]), ([0, 0, 1000, 1000, 0, 0], [0; 6]));
    uncounted.wait(Some(Duration::from_secs(10)), None).unwrap();
    for event in uncounted.read().unwrap() {
        assert_eq!(event.net_received_bytes(), Err(Absent::NotCounted));
    }
}

/// Check that pinned programs count for every handle, with or without a program of its own, that
/// their counts go on in a handle that would count itself, and that unpinning ends them.
#[test]
fn pinned_programs_count_for_all() {
    let _turn = turn();
    child::run(test_name!(), "pinned", child::nothing_pinned(), || {
        taskdiag::pin::pin().expect("pinning");
        let pid = std::process::id();
        assert_eq!(counted(&mut Handle::new(), pid), Err(Absent::NotCounted));
        taskdiag::pin::pin_with_network().expect("pinning");
        let transfer = Transfer::start(&|| move_1000(tcp("127.0.0.1", "127.0.0.1")));
        let (mut free, mut own, mut counting) = (Handle::new(), Handle::new().with_source(SourceId::Bpf), counting());
        let mut opened = Handle::new();
        for handle in [&mut own, &mut opened] {
            handle.prepare(Field::NetSentBytes).expect("a program");
        }
        for handle in [&mut free, &mut own, &mut opened, &mut counting] {
            assert_eq!(transfer.counted(handle), [NOTHING, MOVED, NOTHING]);
        }
        taskdiag::pin::unpin().expect("unpinning");
        for handle in [&mut free, &mut own, &mut opened, &mut counting, &mut Handle::new()] {
            assert_eq!(counted(handle, pid), Err(Absent::NotCounted));
        }
        taskdiag::pin::pin().expect("pinning");
        assert_eq!(counted(&mut Handle::new(), pid), Err(Absent::NotCounted));
        taskdiag::pin::unpin().expect("unpinning");
    });
}
