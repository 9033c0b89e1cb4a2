//! Network namespaces that only one thing keeps alive: a thread, a mount, a descriptor.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Sender};
use std::thread::JoinHandle;

use taskdiag::sockets::{Kinds, Where};
use taskdiag::Query;

use super::{by_inode, handle, inode, list_with, network, request, Seen};

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

/// Begins a thread in a new network namespace.
pub fn held_by_a_thread() -> Held {
    let (tell, told) = channel();
    let (end, ended) = channel::<()>();
    let thread = std::thread::spawn(move || {
        network::enter_new();
        // SAFETY: a system call without pointers.
        let tid = unsafe { libc::gettid() };
        tell.send((network::own_namespace(), tid as u32))
            .expect("the test waits");
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
    let mut request = request(Kinds::TCP | Kinds::NETLINK);
    request.place = Where::Everywhere;
    let (seen, answer) = list_with(&mut handle(), Query::these([std::process::id()]), &request);
    assert_eq!(answer.namespaces_denied, 0);
    seen
}

/// Whether there are sockets of a namespace: each has some of the kernel's own.
fn has(seen: &[Seen], namespace: u64) -> bool {
    seen.iter().any(|socket| socket.netns == namespace)
}

/// Check that the namespace of a thread that is not its process's is found, and goes with the
/// thread.
#[test]
fn threads_keep_namespaces_alive() {
    let held = held_by_a_thread();
    assert!(has(&everywhere(), held.namespace));
    let namespace = held.namespace;
    drop(held);
    assert!(!has(&everywhere(), namespace));
}

/// Check that a namespace that only a descriptor keeps alive is found, with a socket in it whose
/// owner is in another one.
#[test]
fn descriptors_keep_namespaces_alive() {
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
    assert!(!has(&everywhere(), namespace));
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

/// A process in a mount namespace of its own, in which a network namespace is mounted that nobody is
/// in.
struct Mounted {
    child: Child,
    place: PathBuf,
}

impl Mounted {
    fn new() -> Mounted {
        let place = std::env::temp_dir().join(format!("taskdiag netns {}", std::process::id()));
        File::create(&place).expect("a file");
        let script = "mount --bind /proc/self/ns/net \"$1\" && stat -L -c %i \"$1\" && exec unshare --net sleep 1000";
        let child = Command::new("unshare")
            .args(["--mount", "--net", "sh", "-c", script, "sh"])
            .arg(&place)
            .stdout(Stdio::piped())
            .spawn();
        let child = child.expect("unshare(1)");
        Mounted { child, place }
    }

    /// The number of the namespace, once it is mounted.
    fn namespace(&mut self) -> u64 {
        use std::io::{BufRead as _, BufReader};

        let mut line = String::new();
        let out = self.child.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        line.trim().parse().unwrap_or_else(|_| panic!("{line:?} is no number"))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.place);
    }
}

/// Check that a namespace that is only mounted, in a mount namespace that only another process is
/// in, is found.
#[test]
fn mounts_keep_namespaces_alive() {
    let mut mounted = Mounted::new();
    let namespace = mounted.namespace();
    let pid = mounted.child.id();
    // The process itself has left it.
    network::eventually("it never leaves", || {
        fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|stat| stat.ino() != namespace)
    });
    assert!(has(&everywhere(), namespace));
    drop(mounted);
    assert!(!has(&everywhere(), namespace));
}
