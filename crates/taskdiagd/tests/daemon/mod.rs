//! Shared by the tests: a broker, connections to it without the library's client, and the tools for
//! attacks.

// Each test file uses a part of this.
#![allow(dead_code)]

pub mod attack;
pub mod files;
pub mod passed;
pub mod scene;
pub mod stall;

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use taskdiag::{Handle, SourceId};
use taskdiag_protocol::wire::{self, Message, Messages, Request, Strategy};

/// The environment variable that names the broker's socket to the clients of a test.
const SOCKET: &str = "TASKDIAG_TEST_SOCKET";

/// Whether this kernel can neither make records for clients in other pid or time namespaces nor
/// build names from the roots of clients.
pub fn is_too_old() -> bool {
    taskdiag_testkit::kernel() < (6, 2)
}

/// A running broker. It is killed when this is dropped.
pub struct Broker {
    pub child: Child,
    pub socket: PathBuf,
    args: Vec<String>,
    limits: Limits,
}

/// The limits under which a broker is started.
pub struct Limits {
    pub descriptors: u64,
    /// The `cgroup.procs` file of the cgroup to start it in.
    pub cgroup: Option<PathBuf>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            descriptors: 4096,
            cgroup: None,
        }
    }
}

impl Broker {
    /// Starts a broker with its sandbox, and waits until it accepts connections.
    pub fn start(args: &[&str]) -> Broker {
        Broker::start_within(Limits::default(), args)
    }

    /// Starts a broker as [`start`](Broker::start) does, with limits.
    pub fn start_within(limits: Limits, args: &[&str]) -> Broker {
        let mut broker = Broker::spawn_within(limits, args);
        broker.wait();
        broker
    }

    /// Starts a broker without waiting for it.
    pub fn spawn(args: &[&str]) -> Broker {
        Broker::spawn_within(Limits::default(), args)
    }

    fn spawn_within(limits: Limits, args: &[&str]) -> Broker {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("taskdiagd-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        let socket = directory.join("socket");
        Broker {
            child: spawn(&socket, &args, &limits),
            socket,
            args,
            limits,
        }
    }

    fn wait(&mut self) {
        for _ in 0..600 {
            if let Some(status) = self.child.try_wait().expect("the broker") {
                panic!("the broker has ended: {status}; these tests need root and BPF");
            }
            if try_connect(&self.socket).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the broker does not start");
    }

    /// Kills it, and starts another one with the same socket.
    pub fn kill_and_restart(&mut self) {
        self.child.kill().expect("a kill");
        self.child.wait().expect("its end");
        self.child = spawn(&self.socket, &self.args, &self.limits);
        self.wait();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it as systemd would.
    pub fn terminate(&mut self) -> std::process::ExitStatus {
        // SAFETY: numbers only, and the child has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        self.child.wait().expect("its end")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(directory) = self.socket.parent() {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

fn spawn(socket: &Path, args: &[String], limits: &Limits) -> Child {
    let descriptors = limits.descriptors;
    let open = |path: &PathBuf| std::fs::OpenOptions::new().write(true).open(path).expect("a cgroup");
    let mut cgroup = limits.cgroup.as_ref().map(open);
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskdiagd"));
    command.arg("--socket").arg(socket).args(args).stdin(Stdio::null());
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            let limit = libc::rlimit {
                rlim_cur: descriptors.min(1024),
                rlim_max: descriptors,
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            match &mut cgroup {
                Some(cgroup) => cgroup.write_all(b"0"),
                None => Ok(()),
            }
        })
    };
    command.spawn().expect("the broker")
}

/// The broker's socket, for a client of this test.
pub fn socket() -> PathBuf {
    std::env::var_os(SOCKET).expect("a broker's socket").into()
}

/// Names the broker's socket to the clients that are started from now on.
pub fn publish(broker: &Broker) {
    std::env::set_var(SOCKET, &broker.socket);
}

/// Waits until these processes have done what they can do: all sleep for half a second without a
/// break.
pub fn wait_until_they_sleep(pids: &[u32]) {
    let until = Instant::now() + Duration::from_secs(60);
    // The states, and how often the processes have left their processors.
    let sleep = || -> Vec<String> {
        let statuses = pids
            .iter()
            .map(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")));
        let lines = statuses.map(|status| {
            let status = status.expect("a status");
            let is_of_sleep = |line: &&str| line.starts_with("State:") || line.contains("ctxt_switches");
            status.lines().filter(is_of_sleep).collect()
        });
        lines.collect()
    };
    loop {
        assert!(Instant::now() < until, "{pids:?} do not sleep");
        let before = sleep();
        std::thread::sleep(Duration::from_millis(500));
        if before.iter().all(|lines| lines.starts_with("State:\tS")) && sleep() == before {
            return;
        }
    }
}

/// How long reading a process may take. On a busy machine, even a process that holds no reader may
/// take long.
const PATIENCE: Duration = Duration::from_secs(5);

/// A handle that uses only the broker.
pub fn handle(socket: &Path) -> Handle {
    Handle::new()
        .with_source(SourceId::Broker)
        .with_socket(socket)
        .with_patience(PATIENCE)
}

pub fn try_connect(path: &Path) -> rustix::io::Result<Connection> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let timeout = Some(Duration::from_secs(60));
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, timeout)?;
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Send, timeout)?;
    Ok(Connection { socket })
}

pub fn connect(path: &Path) -> Connection {
    try_connect(path).expect("a connection")
}

/// A connection without the library's client.
pub struct Connection {
    pub socket: std::os::fd::OwnedFd,
}

/// An attribute: type and payload.
pub type Attribute = (u16, Vec<u8>);

/// The sequence number of a [`request`].
const REQUEST_SEQ: u32 = 5;

/// The packet of a request.
pub fn request(show: u64, strategy: Strategy, pid: u32) -> [u8; wire::REQUEST_MAX] {
    Request {
        seq: REQUEST_SEQ,
        show,
        strategy,
        pid,
    }
    .encode()
}

/// A message about a task.
#[derive(Debug)]
pub struct TaskMessage {
    /// The thread id, as task_diag names it.
    pub pid: u32,
    pub tgid: u32,
    pub flags: u32,
    pub attributes: Vec<Attribute>,
}

impl Connection {
    /// Sends a packet.
    pub fn send(&self, packet: &[u8]) {
        rustix::net::send(&self.socket, packet, rustix::net::SendFlags::NOSIGNAL).expect("sending");
    }

    /// Sends a packet if there is room for it. Returns whether there was.
    pub fn try_send(&self, packet: &[u8]) -> bool {
        let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
        rustix::net::send(&self.socket, packet, flags).is_ok()
    }

    /// Receives one packet. `None` if the connection has ended.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut packet = vec![0; wire::PACKET + 1];
        let flags = rustix::net::RecvFlags::empty();
        let len = match rustix::net::recv(self.socket.as_fd(), &mut packet[..], flags) {
            Ok((len, _)) => len,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(errno) => panic!("receiving: {errno}"),
        };
        assert!(len <= wire::PACKET, "a packet of {len} bytes");
        packet.truncate(len);
        (len > 0).then_some(packet)
    }

    /// Sends a request and receives its answer: all messages, or the error. `EPIPE` if the broker
    /// ended the connection.
    pub fn ask(&self, show: u64, strategy: Strategy, pid: u32) -> Result<Vec<TaskMessage>, i32> {
        let packet = request(show, strategy, pid);
        if let Err(errno) = rustix::net::send(&self.socket, &packet, rustix::net::SendFlags::NOSIGNAL) {
            return Err(errno.raw_os_error());
        }
        self.receive_answer()
    }

    /// Receives the answer to a [`request`].
    pub fn receive_answer(&self) -> Result<Vec<TaskMessage>, i32> {
        let mut tasks = Vec::new();
        loop {
            let packet = self.receive().ok_or(libc::EPIPE)?;
            if let Some(Ok(Message::Error(errno))) = Messages::new(&packet, 0).next() {
                return Err(errno);
            }
            for message in Messages::new(&packet, REQUEST_SEQ) {
                match message.expect("a message") {
                    Message::Task { header, attributes, .. } => tasks.push(TaskMessage {
                        pid: header.pid.get(),
                        tgid: header.tgid.get(),
                        flags: header.flags.get(),
                        attributes: wire::attributes(attributes)
                            .map(|(kind, payload, _)| (kind, payload.to_vec()))
                            .collect(),
                    }),
                    Message::Done => return Ok(tasks),
                    Message::Error(errno) => return Err(errno),
                }
            }
        }
    }
}

/// A listening socket to pass to a broker.
pub fn listener(path: &Path) -> std::os::fd::OwnedFd {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("a name");
    rustix::net::listen(&socket, 16).expect("listening");
    socket
}

/// The children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
    text.split_ascii_whitespace()
        .map(|pid| pid.parse().expect("a pid"))
        .collect()
}

/// Starts a broker with a listening socket, as systemd would. A shell sets `LISTEN_PID` to its own
/// pid, and becomes the broker.
pub fn activate(listener: &std::os::fd::OwnedFd) -> Child {
    use std::os::fd::AsRawFd as _;
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ exec \"$0\"", env!("CARGO_BIN_EXE_taskdiagd")]);
    command
        .env("LISTEN_FDS", "1")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let fd = listener.as_raw_fd();
    // SAFETY: system calls that are safe after fork(2), on numbers.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            match fd {
                3 => libc::fcntl(fd, libc::F_SETFD, 0),
                _ => libc::dup2(fd, 3),
            };
            Ok(())
        })
    };
    command.spawn().expect("the broker")
}

/// Checks that reserved fields and padding of a record are zero, and that it holds nothing that
/// decides access.
pub fn check_record(bytes: &[u8]) {
    use taskdiag_core::record::{attr, Base, Cpu, Defer, Record};
    let (record, rest) = Record::split_first(bytes).expect("a record");
    assert!(rest.is_empty());
    let mut at = size_of::<taskdiag_core::record::Header>();
    while at < bytes.len() {
        let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (len, kind) = (number(at) as usize, number(at + 4) as u16);
        let payload = at + 8;
        let end = payload + len.next_multiple_of(8);
        assert!(
            bytes[payload + len..end].iter().all(|&byte| byte == 0),
            "padding of attribute {kind}"
        );
        assert!(kind < attr::ACCESS, "attribute {kind} is not for clients");
        at = end;
    }
    assert_eq!(at, bytes.len());
    if let Some(base) = record.get::<Base>(attr::BASE) {
        let end = base
            .comm
            .iter()
            .position(|&byte| byte == 0)
            .expect("an end of the name");
        assert!(
            base.reserved == [0; 3] && base.comm[end..].iter().all(|&byte| byte == 0),
            "{base:?}"
        );
    }
    assert_eq!(record.get::<Cpu>(attr::CPU).map_or(0, |cpu| cpu.reserved.get()), 0);
    assert_eq!(
        record.get::<Defer>(attr::DEFER).map_or(0, |defer| defer.reserved.get()),
        0
    );
}
