//! The other ends of pipes, UNIX sockets and connections.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};

use rustix::net::SendFlags;
use taskdiag::files;
use taskdiag::sockets::Kind;
use taskdiag::{Absent, Field, Handle, Query, SourceId};
use taskdiag_sys::descriptors::{receive_with_file, send_with_file};
use taskdiag_testkit::temporary::Killed;
use taskdiag_testkit::{child, test_name};

use super::network::{self, eventually, inode};
use super::{handle, request, turn};

/// Descriptors: process ids and numbers.
type Ends = Result<Option<Vec<(u32, u32)>>, Absent>;

fn own(file: &impl AsFd) -> (u32, u32) {
    (std::process::id(), file.as_fd().as_raw_fd() as u32)
}

/// The descriptors that count here: other tests start processes, which have copies of all
/// descriptors until they execute their programs.
fn of_tests(owners: &[files::Owner]) -> Vec<(u32, u32)> {
    let is_of_test = |owner: &&files::Owner| owner.pid == std::process::id() || owner.comm.as_deref() == Ok(b"sleep");
    let mut ends: Vec<(u32, u32)> = owners
        .iter()
        .filter(is_of_test)
        .map(|owner| (owner.pid, owner.fd))
        .collect();
    ends.sort_unstable();
    ends
}

/// The other ends of a descriptor of a process, according to `files`. `None`: the process did not
/// answer in time.
fn of_descriptor(handle: &mut Handle, (pid, fd): (u32, u32)) -> Option<Ends> {
    let processes = handle.query(&Query::these([pid]).fields(Field::StartNs));
    let mut request = files::Request::default();
    request.fields = files::FileField::Peers.into();
    let mut found = None;
    let answer = handle.files(&processes.expect("the process"), &request, |_, file| {
        if file.fd == Some(fd) {
            assert_eq!(file.kind, Err(Absent::NotAsked));
            found = Some(file.peers.map(|owners| owners.map(of_tests)));
        }
        ControlFlow::Continue(())
    });
    let answer = answer.expect("files");
    assert!(found.is_some() || !answer.silent.is_empty(), "{fd}: {answer:?}");
    found
}

/// The same from the list of sockets.
fn of_socket(handle: &mut Handle, inode: u64) -> Option<Ends> {
    let mut request = request(Kind::ALL);
    request.own_namespace = true;
    request.fields = taskdiag::sockets::SocketField::Peers.into();
    let mut found = None;
    let answer = handle.sockets(&Default::default(), &request, |socket| {
        if socket.inode == Some(inode) {
            assert_eq!(socket.owners, Err(Absent::NotAsked));
            found = Some(socket.peers.map(|owners| owners.map(of_tests)));
        }
        ControlFlow::Continue(())
    });
    answer.expect("sockets");
    assert!(found.is_some(), "no socket {inode}");
    found
}

/// Queries until all processes answer in time: other tests keep the machine busy, and this process.
#[track_caller]
fn answered(mut ask: impl FnMut() -> Option<Ends>) -> Ends {
    let mut found = None;
    eventually("no answer", || {
        found = ask();
        !matches!(found, None | Some(Err(Absent::NoAnswer)))
    });
    found.expect("it was asked for")
}

/// Checks where a descriptor leads. A denial may mean that some process did not answer.
#[track_caller]
fn leads_to(handle: &mut Handle, end: (u32, u32), expected: impl Into<Vec<(u32, u32)>>) {
    let mut expected = expected.into();
    expected.sort_unstable();
    let found = answered(|| of_descriptor(handle, end).filter(|found| *found != Err(Absent::Denied)));
    assert_eq!(found, Ok(Some(expected)));
}

/// Checks that a descriptor leads nowhere.
#[track_caller]
fn leads_nowhere(handle: &mut Handle, end: (u32, u32)) {
    assert_eq!(answered(|| of_descriptor(handle, end)), Ok(None));
}

/// Checks where a socket leads, by its descriptor and by the list.
#[track_caller]
fn socket_leads_to(handle: &mut Handle, socket: &impl AsFd, expected: impl Into<Vec<(u32, u32)>>) {
    let mut expected = expected.into();
    expected.sort_unstable();
    leads_to(handle, own(socket), expected.clone());
    let found = answered(|| of_socket(handle, inode(socket)).filter(|found| *found != Err(Absent::Denied)));
    assert_eq!(found, Ok(Some(expected)));
}

/// Checks that a socket leads nowhere, by its descriptor and by the list.
#[track_caller]
fn socket_leads_nowhere(handle: &mut Handle, socket: &impl AsFd) {
    leads_nowhere(handle, own(socket));
    assert_eq!(answered(|| of_socket(handle, inode(socket))), Ok(None));
}

/// Handles that use BPF and procfs.
fn handles() -> [Handle; 2] {
    [SourceId::Bpf, SourceId::Procfs].map(|source| handle().with_source(source))
}

/// Whether all descriptors are visible. Some systems shield process 1 from everybody.
fn hides_nobody(handle: &mut Handle) -> bool {
    let processes = handle.query(&Query::processes().fields(Field::StartNs));
    let mut request = files::Request::default();
    request.uses = files::Use::Fd.into();
    request.kinds = Some(files::Kind::Socket.into());
    let answer = handle.files(&processes.expect("processes"), &request, |_, _| {
        ControlFlow::Continue(())
    });
    answer.expect("files").denied == 0
}

fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptors are new, and nobody else's.
    let [reader, writer] = ends.map(|fd| unsafe { File::from_raw_fd(fd) });
    (reader, writer)
}

/// A child that has a file as its standard input, until this is dropped.
struct Sleep(Killed);

impl Sleep {
    fn with(file: impl Into<Stdio>) -> Sleep {
        let mut command = Command::new("sleep");
        let command = command
            .arg("1000")
            .stdin(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Sleep(Killed(command.spawn().expect("sleep")))
    }

    fn input(&self) -> (u32, u32) {
        (self.0 .0.id(), 0)
    }
}

/// Check that each end of a pipe shared with a child leads to all of the other end, and to nobody
/// after that is closed.
#[test]
fn pipes_lead_to_the_other_end() {
    let _turn = turn();
    for mut handle in handles() {
        let (reader, writer) = pipe();
        let copy = writer.try_clone().expect("a descriptor");
        let sleep = Sleep::with(reader.try_clone().expect("a descriptor"));
        leads_to(&mut handle, own(&writer), [own(&reader), sleep.input()]);
        for end in [own(&reader), sleep.input()] {
            leads_to(&mut handle, end, [own(&writer), own(&copy)]);
        }
        drop((writer, copy));
        if hides_nobody(&mut handle) {
            leads_to(&mut handle, sleep.input(), []);
            leads_to(&mut handle, own(&reader), []);
        } else {
            assert_eq!(
                answered(|| of_descriptor(&mut handle, own(&reader))),
                Err(Absent::Denied)
            );
        }
    }
}

/// Check that a fifo that was opened for both directions counts at both ends, that `O_PATH` is no
/// end, and that a pipe is not confused with a fifo with the same inode number on another file
/// system.
#[test]
fn fifos_can_be_both_ends() {
    let _turn = turn();
    let path = std::env::temp_dir().join(format!("taskdiag-fifo-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    let open = |options: &mut OpenOptions| options.open(&path).expect("the fifo");
    let both = open(OpenOptions::new().read(true).write(true));
    let reader = open(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK));
    let place = open(OpenOptions::new().read(true).custom_flags(libc::O_PATH));
    let file = File::open("/dev/null").expect("a file");
    for mut handle in handles() {
        leads_to(&mut handle, own(&both), [own(&reader)]);
        leads_to(&mut handle, own(&reader), [own(&both)]);
        leads_nowhere(&mut handle, own(&place));
        leads_nowhere(&mut handle, own(&file));
    }
    std::fs::remove_file(&path).expect("our own fifo");
}

/// Check UNIX sockets: a pair, an end that a child has, one that was passed over a socket and
/// closed by the sender, ends that are closed or were not accepted, and sockets that are not
/// connected.
#[test]
fn unix_sockets_lead_to_their_peers() {
    let _turn = turn();
    network::enter_new();
    for mut handle in handles() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let sleep = Sleep::with(OwnedFd::from(other.try_clone().expect("a descriptor")));
        socket_leads_to(&mut handle, &one, [own(&other), sleep.input()]);
        leads_to(&mut handle, sleep.input(), [own(&one)]);
        // Passed to another process, and closed here.
        let (to, from) = UnixStream::pair().expect("a pair");
        let (passed, stays) = UnixStream::pair().expect("a pair");
        let passed = OwnedFd::from(passed);
        send_with_file(&to, b"x", Some(passed.as_fd()), SendFlags::DONTWAIT).expect("it is sent");
        drop(passed);
        let (_, passed) = receive_with_file(&from, &mut [0]).expect("it is received");
        let passed = passed.expect("a descriptor");
        socket_leads_to(&mut handle, &stays, [own(&passed)]);
        // Without the other end.
        drop(passed);
        socket_leads_to(&mut handle, &stays, []);
        // Half closed is still connected.
        other.shutdown(std::net::Shutdown::Both).expect("a socket");
        leads_to(&mut handle, own(&other), [own(&one)]);
        let path = std::env::temp_dir().join(format!("taskdiag-peers-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        let waiting = UnixStream::connect(&path).expect("a connection");
        socket_leads_to(&mut handle, &waiting, []);
        leads_nowhere(&mut handle, own(&listener));
        let (accepted, _) = listener.accept().expect("a connection");
        socket_leads_to(&mut handle, &waiting, [own(&accepted)]);
        std::fs::remove_file(&path).expect("our own socket");
        // The connected socket knows the other end, which does not know it.
        let receiver = UnixDatagram::bind(&path).expect("a socket");
        let sender = UnixDatagram::unbound().expect("a socket");
        leads_nowhere(&mut handle, own(&sender));
        sender.connect(&path).expect("a receiver");
        leads_to(&mut handle, own(&sender), [own(&receiver)]);
        leads_nowhere(&mut handle, own(&receiver));
        std::fs::remove_file(&path).expect("our own socket");
    }
}

/// Check that owners and other ends can be requested together: the other ends are the same
/// whichever processes owners are searched among, and owners are only among these.
#[test]
fn other_ends_are_found_beside_owners() {
    let _turn = turn();
    network::enter_new();
    for mut handle in handles() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let sleep = Sleep::with(OwnedFd::from(other.try_clone().expect("a descriptor")));
        let mut ends = [own(&other), sleep.input()];
        ends.sort_unstable();
        let named = Field::StartNs | Field::Comm;
        for (pids, fields) in [
            (None, named),
            (Some(vec![std::process::id()]), named),
            (Some(vec![sleep.input().0]), named),
            (Some(vec![]), named),
            (None, Field::StartNs.into()),
        ] {
            let query = pids.clone().map_or_else(Query::processes, Query::these).fields(fields);
            let mut owners = None;
            let peers = answered(|| {
                let processes = handle.query(&query).expect("processes");
                let mut request = request(Kind::Unix);
                request.own_namespace = true;
                request.fields |= taskdiag::sockets::SocketField::Peers;
                let mut peers = None;
                let answer = handle.sockets(&processes, &request, |socket| {
                    if socket.inode == Some(inode(&other)) {
                        owners = Some(socket.owners.map(|owners| owners.map(of_tests)));
                    }
                    if socket.inode == Some(inode(&one)) {
                        peers = Some(socket.peers.map(|owners| owners.map(of_tests)));
                    }
                    ControlFlow::Continue(())
                });
                answer.expect("sockets");
                peers.filter(|found| *found != Err(Absent::Denied))
            });
            assert_eq!(peers, Ok(Some(ends.to_vec())), "{pids:?}");
            if fields == named {
                let is_among = |end: &&(u32, u32)| pids.as_ref().is_none_or(|pids| pids.contains(&end.0));
                let expected = ends.iter().filter(is_among).copied().collect();
                assert_eq!(owners, Some(Ok(Some(expected))), "{pids:?}");
            }
        }
    }
}

/// Check connections over the loopback interface, from both ends: TCP, also through IPv6, half
/// closed and left by one side, UDP; and sockets that are not connected, or connected elsewhere.
#[test]
fn connections_lead_to_the_other_end() {
    let _turn = turn();
    network::enter_new();
    let listener = TcpListener::bind("[::]:0").expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let (mut server, _) = listener.accept().expect("the other end");
    let [a, b, lonely, alone] = [(); 4].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    a.connect(b.local_addr().expect("an address")).expect("a peer");
    b.connect(a.local_addr().expect("an address")).expect("a peer");
    lonely.connect(a.local_addr().expect("an address")).expect("a peer");
    let [mut by_bpf, mut by_procfs] = handles();
    for handle in [&mut by_bpf, &mut by_procfs] {
        socket_leads_to(handle, &client, [own(&server)]);
        socket_leads_to(handle, &server, [own(&client)]);
        socket_leads_nowhere(handle, &listener);
        socket_leads_to(handle, &a, [own(&b)]);
        socket_leads_nowhere(handle, &lonely);
        socket_leads_nowhere(handle, &alone);
    }
    client.shutdown(std::net::Shutdown::Write).expect("one side");
    assert_eq!(server.read(&mut [0]).expect("the end"), 0);
    server.write_all(b"x").expect("the other direction");
    client.read_exact(&mut [0]).expect("the other direction");
    leads_to(&mut by_bpf, own(&server), [own(&client)]);
    drop(client);
    // Nobody has a descriptor of the other end any more.
    leads_to(&mut by_bpf, own(&server), []);
}

/// Check that the same addresses in another network namespace are another connection, that a socket
/// of another namespace leads to its own peer, and that owners in other namespaces are found.
#[test]
fn namespaces_are_kept_apart() {
    let _turn = turn();
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = std::sync::Mutex::new(ended);
    let connect = || {
        network::enter_new();
        let listener = TcpListener::bind("127.0.0.1:7777").expect("a listener");
        let socket = network::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        let client = socket_bound_to(socket, 8888);
        let (server, _) = listener.accept().expect("the other end");
        tell.send((client, server)).expect("the test waits");
        // The thread keeps the namespace until the test ends.
        let _ = ended.lock().map(|ended| ended.recv());
    };
    let pairs = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(connect));
        // Both ends are passed here, into another namespace.
        let pairs = [(); 2].map(|()| told.recv().expect("a connection"));
        let [(one, other), (second, last)] = &pairs;
        for mut handle in handles() {
            leads_to(&mut handle, own(one), [own(other)]);
            leads_to(&mut handle, own(other), [own(one)]);
            leads_to(&mut handle, own(second), [own(last)]);
        }
        drop(end);
        for thread in threads {
            thread.join().expect("it does not fail");
        }
        pairs
    });
    // A namespace that only its sockets keep alive is not found. The result says so, and not that
    // there is nobody.
    for mut handle in handles() {
        let found = answered(|| of_descriptor(&mut handle, own(&pairs[0].0)));
        assert!(matches!(found, Err(Absent::Unsupported | Absent::Denied)), "{found:?}");
    }
}

/// Connects a socket with this port to port 7777.
fn socket_bound_to(socket: OwnedFd, port: u16) -> TcpStream {
    let address = |port: u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as _,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes([127, 0, 0, 1]),
        },
        sin_zero: [0; 8],
    };
    let (from, to) = (address(port), address(7777));
    let len = size_of_val(&from) as libc::socklen_t;
    // SAFETY: the address is as long as it says.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const from).cast(), len) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the address is as long as it says.
    let connected = unsafe { libc::connect(socket.as_raw_fd(), (&raw const to).cast(), len) };
    assert_eq!(connected, 0, "{}", std::io::Error::last_os_error());
    TcpStream::from(socket)
}

/// Check that a user who may not see the other end gets a denial, and not an empty result.
#[test]
fn hidden_ends_are_denied() {
    let _turn = turn();
    // The other ends belong to root, who waits in the first process.
    let _writer = child::part().is_none().then(|| {
        let (reader, writer) = pipe();
        // SAFETY: the second process must inherit it, under this number.
        assert_eq!(unsafe { libc::dup2(reader.as_raw_fd(), 77) }, 77);
        writer
    });
    child::run(test_name!(), "nobody", child::nobody(0), || {
        let own_pipe = pipe();
        let mut handle = Handle::new().with_source(SourceId::Procfs);
        leads_to(&mut handle, own(&own_pipe.0), [own(&own_pipe.1)]);
        let denied = Some(Err(Absent::Denied));
        assert_eq!(of_descriptor(&mut handle, (std::process::id(), 77)), denied);
        let unbound = network::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        assert_eq!(of_descriptor(&mut handle, own(&unbound)), denied);
    });
}
