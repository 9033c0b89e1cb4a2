//! Network namespaces that a single thing keeps alive: a thread, a mount, a descriptor.

use std::ffi::CString;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{channel, Sender, TryRecvError};
use std::thread::JoinHandle;

use taskdiag::sockets::{Family, Kind, SocketField};
use taskdiag::Query;

use super::{by_inode, handle, inode, list_with, network, request, turn, Seen};

/// A thread that is in a network namespace of its own until this is dropped.
#[derive(Debug)]
pub struct Held {
    pub namespace: u64,
    pub tid: u32,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.end.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()));
    }
}

/// Starts a thread in a new network namespace.
pub fn held_by_a_thread() -> Held {
    held_by(|| {
        network::enter_new();
        network::own_namespace()
    })
}

/// Starts a thread that holds the namespace with the number that `begin` returns.
fn held_by(begin: impl FnOnce() -> u64 + Send + 'static) -> Held {
    let (tell, told) = channel();
    let (end, ended) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let namespace = begin();
        // SAFETY: a system call without pointers.
        let tid = unsafe { libc::gettid() };
        tell.send((namespace, tid as u32)).expect("the test waits");
        let _ = ended.recv();
    });
    let (namespace, tid) = told.recv().expect("the thread lives");
    Held {
        namespace,
        tid,
        end: Some(end),
        thread: Some(thread),
    }
}

fn everywhere() -> Vec<Seen> {
    let mut request = request(Kind::Tcp | Kind::Netlink);
    request.own_namespace = false;
    let (seen, answer) = list_with(&mut handle(), Query::these([std::process::id()]), &request);
    assert_eq!(answer.namespaces_denied, 0);
    seen
}

/// Whether there are sockets of a namespace: each has some of the kernel's own.
fn has(seen: &[Seen], namespace: u64) -> bool {
    seen.iter().any(|socket| socket.netns == namespace)
}

/// Waits until the namespace no longer exists. Another test may make one with the same number.
#[track_caller]
fn goes(namespace: u64) {
    network::eventually("it does not go", || !has(&everywhere(), namespace));
}

/// Check that the namespace of a thread that is not its process's is found, and disappears with the
/// thread.
#[test]
fn threads_keep_namespaces_alive() {
    let _turn = turn();
    let held = held_by_a_thread();
    assert!(has(&everywhere(), held.namespace));
    let namespace = held.namespace;
    drop(held);
    goes(namespace);
}

/// Check that a namespace that only a descriptor keeps alive is found, with a socket in it whose
/// owner is in another namespace.
#[test]
fn descriptors_keep_namespaces_alive() {
    let _turn = turn();
    let held = held_by_a_thread();
    let path = format!("/proc/self/task/{}/ns/net", held.tid);
    let (descriptor, namespace) = (File::open(path).expect("our own"), held.namespace);
    drop(held);
    let listener = listen_in(&descriptor);
    let seen = everywhere();
    let listener_seen = by_inode(&seen, inode(&listener));
    assert_eq!(listener_seen.netns, namespace);
    let owner = (std::process::id(), listener.as_raw_fd() as u32);
    assert_eq!(listener_seen.owners, Ok(Some(vec![owner])));
    drop(listener);
    drop(descriptor);
    goes(namespace);
}

/// Check that for the sockets of one process no namespace is read but those that have them, however
/// many others there are, and that a socket of another namespace is found.
#[test]
fn other_namespaces_cost_nothing() {
    let _turn = turn();
    let held = held_by_a_thread();
    let elsewhere = File::open(format!("/proc/self/task/{}/ns/net", held.tid)).expect("our own");
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let listener = listen_in(&elsewhere);
    let sockets = [
        (OwnedFd::from(theirs), network::own_namespace(), 1),
        (listener.into(), held.namespace, 2),
    ];
    for (socket, namespace, at_least) in sockets {
        let number = inode(&socket);
        let mut child = Command::new("sleep")
            .arg("1000")
            .stdin(socket)
            .spawn()
            .expect("it starts");
        let mut request = request(Kind::ALL);
        (request.own_namespace, request.owned) = (false, true);
        request.fields = SocketField::Owners | SocketField::Peers;
        let (seen, answer) = list_with(&mut handle(), Query::these([child.id()]), &request);
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!(by_inode(&seen, number).netns, namespace);
        assert!(
            answer.namespaces >= at_least && (at_least > 1 || answer.namespaces == 1),
            "{answer:?}"
        );
        assert_eq!(answer.unlisted, Some(Vec::new()));
    }
    drop(ours);
}

/// Check that a socket of any kind is found though it is alone in its namespace, and the kernel
/// counts sockets in several places: it may be bound only, in no table, or without a process.
#[test]
fn lone_sockets_are_found() {
    let _turn = turn();
    type Make = fn() -> Option<OwnedFd>;
    let kinds: &[(&str, Make)] = &[
        ("bound", || {
            let socket = network::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
            network::bind(&socket);
            Some(socket)
        }),
        ("listening", || {
            Some(TcpListener::bind("[::1]:0").expect("a socket").into())
        }),
        ("udp", || Some(UdpSocket::bind("127.0.0.1:0").expect("a socket").into())),
        ("udp6", || Some(UdpSocket::bind("[::1]:0").expect("a socket").into())),
        ("unix", || Some(network::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0))),
        ("packet", || Some(network::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0))),
        ("raw", || {
            Some(network::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP))
        }),
        ("raw6", || {
            Some(network::socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6))
        }),
        ("time-wait", || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
            let ours = TcpStream::connect(listener.local_addr().expect("a port")).expect("a connection");
            let theirs = listener.accept().expect("a connection").0;
            drop(ours);
            drop(theirs);
            None
        }),
    ];
    for (name, make) in kinds {
        let held = held_by(|| {
            network::enter_new();
            // For as long as the test runs.
            std::mem::forget(make());
            network::own_namespace()
        });
        let mut request = request(Kind::ALL);
        request.own_namespace = false;
        let (seen, _) = list_with(&mut handle(), Query::these([std::process::id()]), &request);
        let is_it = |socket: &&Seen| socket.netns == held.namespace && socket.family != Family::Netlink;
        assert_eq!(seen.iter().filter(is_it).count(), 1, "{name}: {seen:?}");
    }
}

/// Check that a thread that enters and leaves a namespace does not hide those that stay in it.
#[test]
fn visitors_hide_nobody() {
    let _turn = turn();
    let (tell, told) = channel::<Option<File>>();
    let (ready, is_ready) = channel();
    // It started first, so it is found first.
    let visitor = std::thread::spawn(move || {
        let own = File::open("/proc/thread-self/ns/net").expect("our own");
        let other = told.recv().expect("the test lives").expect("a namespace");
        while matches!(told.try_recv(), Err(TryRecvError::Empty)) {
            for namespace in [&other, &own] {
                // SAFETY: a system call without pointers.
                let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
            }
        }
    });
    let resident = held_by(move || {
        network::enter_new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        ready.send(inode(&listener)).expect("the test lives");
        // For as long as the test runs.
        std::mem::forget(listener);
        network::own_namespace()
    });
    let listener = is_ready.recv().expect("the thread lives");
    let path = format!("/proc/self/task/{}/ns/net", resident.tid);
    tell.send(Some(File::open(path).expect("our own"))).expect("it lives");
    for _ in 0..20 {
        let seen = everywhere();
        assert_eq!(by_inode(&seen, listener).netns, resident.namespace);
    }
    drop(tell);
    visitor.join().expect("it does not fail");
}

/// A socket that listens in a namespace.
fn listen_in(namespace: &File) -> TcpListener {
    let namespace = namespace.try_clone().expect("a descriptor");
    let thread = std::thread::spawn(move || {
        // SAFETY: a system call without pointers.
        let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
        TcpListener::bind("127.0.0.1:0").expect("a socket")
    });
    thread.join().expect("it does not fail")
}

/// Mounts the network namespace of this thread in a mount namespace of its own, and leaves the
/// network namespace.
fn mount_and_leave(place: &Path) {
    let call = |result: i32| assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    let place = CString::new(place.as_os_str().as_bytes()).expect("no NUL");
    let none = std::ptr::null();
    // SAFETY: a system call without pointers.
    call(unsafe { libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS) });
    // SAFETY: all texts end with a NUL.
    call(unsafe {
        libc::mount(
            c"none".as_ptr(),
            c"/".as_ptr(),
            none,
            libc::MS_REC | libc::MS_PRIVATE,
            none.cast(),
        )
    });
    // SAFETY: all texts end with a NUL.
    call(unsafe {
        libc::mount(
            c"/proc/thread-self/ns/net".as_ptr(),
            place.as_ptr(),
            none,
            libc::MS_BIND,
            none.cast(),
        )
    });
    network::enter_new();
}

/// Check that a namespace that is only mounted, in a mount namespace that only another thread is
/// in, is found, and disappears with that mount namespace.
#[test]
fn mounts_keep_namespaces_alive() {
    let _turn = turn();
    let place = std::env::temp_dir().join(format!("taskdiag netns {}", std::process::id()));
    File::create(&place).expect("a file");
    let mounted_at = place.clone();
    let held = held_by(move || {
        network::enter_new();
        let namespace = network::own_namespace();
        mount_and_leave(&mounted_at);
        assert_ne!(network::own_namespace(), namespace);
        namespace
    });
    assert!(has(&everywhere(), held.namespace));
    let namespace = held.namespace;
    drop(held);
    fs::remove_file(&place).expect("our own file");
    goes(namespace);
}
