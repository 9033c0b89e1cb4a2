//! A broker for a test, and clients in worlds of their own.

// Every test file uses a part of this.
#![allow(dead_code)]

use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use taskdiag::broker::wire::{self, show, Message, Messages, Request, Strategy};
use taskdiag::{Handle, SourceId};

/// Tells a client where the broker listens.
const SOCKET: &str = "TASKDIAG_TEST_SOCKET";

/// A broker, until it is dropped.
pub struct Broker {
    pub child: Child,
    pub socket: PathBuf,
    args: Vec<String>,
}

impl Broker {
    /// Starts one with its sandbox. Returns when it answers.
    pub fn start(args: &[&str]) -> Broker {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("taskdiagd-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        let socket = directory.join("socket");
        let mut broker = Broker {
            child: spawn(&socket, &args),
            socket,
            args,
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
        self.child = spawn(&self.socket, &self.args);
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

fn spawn(socket: &Path, args: &[String]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskdiagd"));
    command.arg("--socket").arg(socket).args(args).stdin(Stdio::null());
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
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

/// A handle that asks the broker alone.
pub fn handle(socket: &Path) -> Handle {
    Handle::new().with_source(SourceId::Broker).with_socket(socket)
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

    /// Asks, and returns all messages, or the error.
    pub fn ask(&self, show: u64, strategy: Strategy, pid: u32) -> Result<Vec<TaskMessage>, i32> {
        const SEQ: u32 = 77;
        assert_eq!(show & show::MEMFD, 0);
        let request = Request {
            seq: SEQ,
            show,
            strategy,
            pid,
        };
        self.send(&request.encode());
        let mut tasks = Vec::new();
        loop {
            let packet = self.receive().expect("an answer");
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
