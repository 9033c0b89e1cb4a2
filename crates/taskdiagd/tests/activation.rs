//! Check that the broker serves a socket passed to it, as systemd does, and the client that
//! connected before it started.

mod daemon;

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use taskdiag_protocol::wire::{show, Message, Messages, Request, Strategy};
use taskdiag_testkit::child::without_threads;

use daemon::{activate, connect};

const BASE: u64 = 1 << show::GROUPS_SHIFT;

fn listener(path: &Path, kind: SocketType) -> OwnedFd {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("a name");
    rustix::net::listen(&socket, 16).expect("listening");
    socket
}

fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("taskdiagd-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// Check that a client that sent its request before the broker was started gets an answer.
#[test]
fn the_client_that_started_the_broker_is_answered() {
    let directory = directory("activation");
    let path = directory.join("socket");
    let listener = listener(&path, SocketType::SEQPACKET);
    // Before the broker is started.
    let client = connect(&path);
    let request = Request {
        seq: 5,
        show: BASE,
        strategy: Strategy::One,
        pid: std::process::id(),
    };
    client.send(&request.encode());
    let mut broker = activate(&listener);
    let packet = client.receive().expect("an answer");
    let messages: Vec<_> = Messages::new(&packet, 5)
        .map(|message| message.expect("a message"))
        .collect();
    let [Message::Task { header, .. }, Message::Done] = messages[..] else {
        panic!("{messages:?}");
    };
    assert_eq!(header.tgid.get(), std::process::id());
    assert!(connect(&path).ask(BASE, Strategy::One, std::process::id()).is_ok());
    // SAFETY: numbers only, and the child has not been waited for.
    unsafe { libc::kill(broker.id() as i32, libc::SIGTERM) };
    assert!(broker.wait().expect("its end").success());
    assert!(path.exists(), "the broker removed a socket that is not its own");
    let _ = std::fs::remove_dir_all(directory);
}

/// Check that a socket of another type is refused, with a message that names the setting the unit
/// needs.
#[test]
fn a_socket_of_another_type_is_refused() {
    let directory = directory("stream");
    let listener = listener(&directory.join("socket"), SocketType::STREAM);
    let mut broker = activate(&listener);
    assert_eq!(broker.wait().expect("its end").code(), Some(1));
    let mut messages = String::new();
    let mut stderr = broker.stderr.take().expect("standard error");
    stderr.read_to_string(&mut messages).expect("text");
    assert!(messages.contains("ListenSequentialPacket="), "{messages}");
    let _ = std::fs::remove_dir_all(directory);
}

/// Check that a broker that can't start says why, and quotes nothing that controls a terminal.
#[test]
fn a_broker_that_cannot_start_says_why() {
    let directory = directory("no-start");
    let broker = || Command::new(env!("CARGO_BIN_EXE_taskdiagd"));
    let said = |command: &mut Command| {
        let output = command.output().expect("the broker runs");
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(!said.trim_end().contains(char::is_control), "{said:?}");
        said
    };
    let said_of = |args: &[&str]| said(broker().args(args));
    let path = directory.join("socket");
    let without = said(without_threads(broker().arg("--socket").arg(&path)));
    assert!(
        without.contains("can't start the process that starts helpers"),
        "{without}"
    );
    assert!(said_of(&["--\x1b[31m"]).contains("--\\x1b[31m"));
    assert!(said_of(&["--socket", "/dev/null/\x1b]0;\n\u{202e}/x"]).contains("\\n\\u{202e}/x"));
    let _ = std::fs::remove_dir_all(directory);
}
