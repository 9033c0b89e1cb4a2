//! A broker for a test, and clients in worlds of their own.

// Every test file uses a part of this.
#![allow(dead_code)]

pub mod passed;
pub mod stall;

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use taskdiag::{Handle, SourceId};
use taskdiag_protocol::wire::{self, Message, Messages, Request, Strategy};

/// Tells a client where the broker listens.
const SOCKET: &str = "TASKDIAG_TEST_SOCKET";

/// A broker, until it is dropped.
pub struct Broker {
    pub child: Child,
    pub socket: PathBuf,
    args: Vec<String>,
    limits: Limits,
}

/// What a broker is given.
pub struct Limits {
    pub descriptors: u64,
    /// Where processes are added to a cgroup that it is started in.
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
    /// Starts one with its sandbox. Returns when it answers.
    pub fn start(args: &[&str]) -> Broker {
        Broker::start_within(Limits::default(), args)
    }

    /// The same with other limits.
    pub fn start_within(limits: Limits, args: &[&str]) -> Broker {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("taskdiagd-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        let socket = directory.join("socket");
        let mut broker = Broker {
            child: spawn(&socket, &args, &limits),
            socket,
            args,
            limits,
        };
        broker.wait();
        broker
    }

    fn wait(&mut self) {
        for _ in 0..600 {
            if let Some(status) = self.child.try_wait().expect("the broker") {
                panic!("the broker ended: {status}; these tests need root and BPF");
            }
            if try_connect(&self.socket).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the broker does not begin");
    }

    /// Kills it as hard as can be, and starts another one in its place.
    pub fn kill_and_restart(&mut self) {
        self.child.kill().expect("a kill");
        self.child.wait().expect("its end");
        self.child = spawn(&self.socket, &self.args, &self.limits);
        self.wait();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as systemd would.
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

/// Where a client of this test finds the broker.
pub fn socket() -> PathBuf {
    std::env::var_os(SOCKET).expect("a broker's socket").into()
}

/// Tells clients that are started from now on where the broker listens.
pub fn tell_clients(broker: &Broker) {
    std::env::set_var(SOCKET, &broker.socket);
}

/// On a machine that has more to do than these tests, a process that holds nobody may take long to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A handle that asks the broker alone.
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

/// A request, as it goes over the wire.
pub fn request(show: u64, strategy: Strategy, pid: u32) -> [u8; wire::REQUEST_MAX] {
    Request {
        seq: 5,
        show,
        strategy,
        pid,
    }
    .encode()
}

/// A message about a task: pid, tgid, flags, attributes.
#[derive(Debug)]
pub struct TaskMessage {
    pub pid: u32,
    pub tgid: u32,
    pub flags: u32,
    pub attributes: Vec<Attribute>,
}

impl Connection {
    pub fn send(&self, packet: &[u8]) {
        rustix::net::send(&self.socket, packet, rustix::net::SendFlags::NOSIGNAL).expect("sending");
    }

    /// One packet; `None` at the end.
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

    /// Asks, and returns all messages, or the error: `EPIPE` if the broker ended the connection.
    pub fn ask(&self, show: u64, strategy: Strategy, pid: u32) -> Result<Vec<TaskMessage>, i32> {
        const SEQ: u32 = 77;
        let request = Request {
            seq: SEQ,
            show,
            strategy,
            pid,
        };
        if let Err(errno) = rustix::net::send(&self.socket, &request.encode(), rustix::net::SendFlags::NOSIGNAL) {
            return Err(errno.raw_os_error());
        }
        let mut tasks = Vec::new();
        loop {
            let packet = self.receive().ok_or(libc::EPIPE)?;
            if let Some(Ok(Message::Error(errno))) = Messages::new(&packet, 0).next() {
                return Err(errno);
            }
            for message in Messages::new(&packet, SEQ) {
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

/// A socket to hand over to a broker.
pub fn listener(path: &Path) -> std::os::fd::OwnedFd {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("a name");
    rustix::net::listen(&socket, 16).expect("listening");
    socket
}

/// Starts a broker as systemd would. The variable with its number is set by a shell, which becomes the broker.
pub fn activate(listener: &std::os::fd::OwnedFd) -> Child {
    use std::os::fd::AsRawFd as _;
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ exec \"$0\"", env!("CARGO_BIN_EXE_taskdiagd")]);
    command
        .env("LISTEN_FDS", "1")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let fd = listener.as_raw_fd();
    // SAFETY: system calls that are safe behind fork(2), on numbers.
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

/// Refuses a record in which something is not zero that nobody writes: what is reserved, and the padding behind what is there.
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
            "behind attribute {kind}"
        );
        assert!(kind < attr::ACCESS, "attribute {kind} is none of a client's business");
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
            base.reserved == [0; 7] && base.comm[end..].iter().all(|&byte| byte == 0),
            "{base:?}"
        );
    }
    assert_eq!(record.get::<Cpu>(attr::CPU).map_or(0, |cpu| cpu.reserved.get()), 0);
    assert_eq!(
        record.get::<Defer>(attr::DEFER).map_or(0, |defer| defer.reserved.get()),
        0
    );
}
