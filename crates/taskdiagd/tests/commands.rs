//! Check that the commands work through the broker for a user who may not load BPF programs, and
//! print the same as without it.

mod daemon;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use taskdiag_testkit::temporary::Killed;
use taskdiag_zoo::copy_program;

use daemon::Broker;

const NOBODY: u32 = 65534;

/// A user who has no other processes: what just ends has values that nobody may read.
const ALONE: u32 = 61_534;

/// A copy of the command that every user may execute.
fn copy_command(directory: &Path) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_taskdiagd")).with_file_name("taskdiag");
    let copy = directory.join("taskdiag");
    copy_program(&built, &copy).expect("target/debug/taskdiag, which `cargo build --workspace --bins` makes");
    copy
}

fn as_user(user: u32, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.uid(user).gid(user).stdin(Stdio::null());
    command
}

fn as_nobody(program: &Path) -> Command {
    as_user(NOBODY, program)
}

/// A sleeping process of the user nobody.
fn sleeper() -> Killed {
    sleeper_of(NOBODY)
}

fn sleeper_of(user: u32) -> Killed {
    let mut command = as_user(user, Path::new("/bin/sleep"));
    let sleeper = Killed(command.arg("1000").stdout(Stdio::null()).spawn().expect("a process"));
    // Until it sleeps, its memory changes.
    taskdiag_zoo::settle(sleeper.0.id() as i32, 'S').expect("a process that sleeps");
    sleeper
}

/// The first address of its code.
fn code_of(pid: u32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its maps");
    let line = text.lines().find(|line| line.contains(" r-xp ")).expect("code");
    format!("0x{}", line.split('-').next().expect("an address"))
}

/// Check that a broker which counts network traffic gives a client that of its own processes, and of
/// no others, and that one which does not count says so.
#[test]
fn traffic_is_of_those_who_may_see_it() {
    let counting = Broker::start(&["--count-network"]);
    let other = Broker::start(&[]);
    let taskdiag = copy_command(counting.socket.parent().expect("a directory"));
    let moves =
        "import socket as s; a, b = s.socketpair(); a.send(b'x' * 4321); b.recv(9999); print(flush=True); input()";
    let mover = |mut command: Command| {
        let command = command.args(["-c", moves]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut mover = Killed(command.spawn().expect("python3"));
        let stdout = mover.0.stdout.as_mut().expect("a pipe");
        stdout.read_exact(&mut [0]).expect("it moved");
        mover
    };
    let python = Path::new("/usr/bin/python3");
    let (own, of_root) = (mover(as_nobody(python)), mover(Command::new(python)));
    let pids = format!("{},{}", own.0.id(), of_root.0.id());
    let ask = |broker: &Broker, args: &[&str]| {
        let output = as_nobody(&taskdiag)
            .args(args)
            .arg("--socket")
            .arg(&broker.socket)
            .output();
        let output = output.expect("the command");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(output.stdout), text(output.stderr))
    };
    let (rows, said) = ask(&counting, &["ps", "-p", &pids, "-o", "pid,unix_sent_bytes", "--csv"]);
    assert_eq!(rows, format!("pid,unix_sent_bytes\n{},4321\n", own.0.id()), "{said}");
    assert!(
        said.contains(&format!("pid {}: you may not see it", of_root.0.id())),
        "{said}"
    );
    let (rows, said) = ask(&counting, &["net", "-o", "pid,unix_sent_bytes", "--csv"]);
    assert!(rows.contains(&format!(",{},4321\n", own.0.id())), "{rows}{said}");

    let own = own.0.id().to_string();
    let (rows, said) = ask(&other, &["ps", "-p", &own, "-o", "pid,unix_sent_bytes", "--csv"]);
    assert_eq!(rows, format!("pid,unix_sent_bytes\n{own},\n"));
    assert!(said.contains("unix_sent_bytes: not counted"), "{said}");
    let (rows, said) = ask(&other, &["net"]);
    assert!(rows.is_empty() && said.contains("--count-network"), "{rows}{said}");
}

/// Check that each command prints the same with and without the broker, names the broker in JSON,
/// and shows nothing of other users.
#[test]
fn commands_print_the_same() {
    let broker = Broker::start(&[]);
    let directory = broker.socket.parent().expect("a directory");
    let taskdiag = copy_command(directory);
    let sleeper = sleeper();
    let pid = sleeper.0.id().to_string();
    let code = code_of(sleeper.0.id());
    let run = |args: &[&str], with_broker: bool| -> Output {
        let mut command = as_nobody(&taskdiag);
        command.args(args);
        if with_broker {
            command.arg("--socket").arg(&broker.socket);
        }
        command.output().expect("the command")
    };
    for args in [
        &["ps", "-p", &pid, "-o", "pid,ppid,comm,uid,cmdline,rss_bytes"][..],
        &["ps", "-T", "-p", &pid],
        &["tree", "--csv", "-o", "pid,comm", &pid],
        &["mem", "-p", &pid, "-o", "pid,comm,pss_anon_bytes"],
        &["maps", &pid],
        &["maps", "--csv", "--build-id", &pid],
        &["maps", "--addr", &code, &pid],
        &["maps", "-x", &pid],
        &["normalize", &pid, &code],
        // An address that is not mapped, and a process of another user.
        &["normalize", &pid, "1"],
        &["ps", "-p", "1", "-o", "pid,exe"],
    ] {
        let (printed, expected) = (run(args, true), run(args, false));
        let hidden = args.contains(&"1") && args[0] == "ps";
        if hidden {
            assert!(printed.stdout.len() < expected.stdout.len(), "{args:?}")
        } else {
            assert_eq!(printed, expected, "{args:?}")
        }
    }
    // JSON names the broker as the source.
    for args in [
        &["ps", "--json", "-p", &pid][..],
        &["tree", "--json", &pid],
        &["mem", "--json", "-p", &pid],
        &["maps", "--json", &pid],
        &["normalize", "--json", &pid, &code],
        &["doctor", "--json"],
    ] {
        let printed = String::from_utf8(run(args, true).stdout).expect("text");
        assert!(printed.contains("\":\"broker\""), "{printed}");
        // With another source, JSON does not name it.
        if args[0] != "doctor" {
            let printed = run(&[args, &["--source", "procfs"]].concat(), true).stdout;
            assert!(!String::from_utf8_lossy(&printed).contains("\":\"broker\""), "{args:?}");
        }
    }
    // The processes of nobody, and no others.
    let all = String::from_utf8(run(&["maps", "--all", "--exec", "--csv"], true).stdout).expect("text");
    let own = String::from_utf8(run(&["maps", "--exec", "--csv", &pid], true).stdout).expect("text");
    let of_sleeper: Vec<&str> = all
        .lines()
        .filter(|line| line.starts_with(&format!("{pid},")))
        .collect();
    assert_eq!(of_sleeper.len(), own.lines().count() - 1, "{all}");
    let own_pid = std::process::id();
    assert!(!all.contains(&format!("\n{own_pid},")), "{all}");
    // Who has a socket may be a process that the broker does not show.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let sockets = run(&["sockets", "--port", &port], true);
    let said = String::from_utf8_lossy(&sockets.stderr);
    assert!(
        sockets.status.code() == Some(1) && said.contains("owners of 1 socket not known"),
        "{said}"
    );
    // `/proc` shows that these exist, and that another id is one of their threads.
    let own_pid = own_pid.to_string();
    let tid = rustix::thread::gettid().as_raw_nonzero().to_string();
    for args in [
        &["maps", &own_pid][..],
        &["ps", "-p", &own_pid],
        &["tree", &own_pid],
        &["inspect", &own_pid],
        &["normalize", &own_pid, "1"],
    ] {
        let hidden = run(args, true);
        let said = String::from_utf8_lossy(&hidden.stderr);
        assert!(
            !hidden.status.success() && said.contains("you may not see it (root may"),
            "{args:?} {said}"
        );
        let of_thread: Vec<&str> = args
            .iter()
            .map(|&arg| if arg == own_pid { &tid } else { arg })
            .collect();
        let said = run(&of_thread, true).stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(
            said.contains(&format!("it is a thread of process {own_pid}")),
            "{of_thread:?} {said}"
        );
    }
}

/// Check that metrics through the broker cover exactly what the broker shows.
#[test]
fn metrics_come_through_the_broker() {
    let broker = Broker::start(&[]);
    let taskdiag = copy_command(broker.socket.parent().expect("a directory"));
    let _sleeper = sleeper();
    let mut command = as_nobody(&taskdiag);
    command
        .args(["metrics", "--listen", "127.0.0.1:0", "--socket"])
        .arg(&broker.socket);
    let mut exporter = Killed(command.stderr(Stdio::piped()).spawn().expect("the command"));
    let mut said = String::new();
    let mut stderr = BufReader::new(exporter.0.stderr.take().expect("a pipe"));
    stderr.read_line(&mut said).expect("a message");
    let address = said
        .trim()
        .strip_prefix("taskdiag: listening: http://")
        .and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{said}"));
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it listens");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    for series in [
        "taskdiag_metrics_sources{group=\"base\",source=\"broker\"} 1",
        "taskdiag_metrics_stale 0",
    ] {
        assert!(text.lines().any(|line| line == series), "{series}\n{text}");
    }
    assert!(text.contains("read_bytes_total{groupname=\"sleep\"} "), "{text}");
    // Other tests have processes of nobody too.
    for name in ["sleep", "taskdiag"] {
        assert!(
            text.contains(&format!("num_procs{{groupname=\"{name}\"}} ")),
            "{name}\n{text}"
        );
    }
    let own = std::fs::read_to_string("/proc/self/comm").expect("/proc is mounted");
    let own = format!("groupname=\"{}\"", own.trim_end());
    assert!(!text.contains(&own), "it shows processes of nobody: {text}");
}

/// Check that a recording through the broker has exactly what the broker shows, and says that it
/// has no events: the broker has none.
#[test]
fn recordings_are_made_through_the_broker() {
    let broker = Broker::start(&[]);
    let place = broker.socket.parent().expect("a directory");
    let taskdiag = copy_command(place);
    let sleeper = sleeper_of(ALONE);
    // Recording stops before a file system is full, and the file system of the build may be.
    let memory = Path::new("/dev/shm").join(format!("taskdiag-broker-recording-{}", std::process::id()));
    let directory = if memory.parent().is_some_and(Path::is_dir) {
        memory
    } else {
        place.join("recording")
    };
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir(&directory).expect("it is ours");
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    std::os::unix::fs::chown(&directory, Some(ALONE), Some(ALONE)).expect("as root");
    let run = |args: &[&str], options: &[&str]| {
        let mut command = as_user(ALONE, &taskdiag);
        command.args(args).arg(&directory).args(options);
        let output = command.output().expect("the command");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            output.status.code(),
            String::from_utf8(output.stdout).expect("text"),
            said,
        )
    };
    let socket = broker.socket.to_str().expect("text");
    let (code, _, said) = run(&["record", "--dir"], &["-n", "3", "--every", "0.1", "--socket", socket]);
    assert_eq!(code, Some(0), "{said}");
    let (code, listed, _) = run(&["history"], &[]);
    assert_eq!(code, Some(0));
    assert_eq!(
        said.contains("no events"),
        listed.contains("no events"),
        "{said}{listed}"
    );
    let (code, text, _) = run(&["ps", "--json", "-o", "pid", "--history"], &[]);
    assert_eq!(code, Some(0));
    let text: String = text.split_whitespace().collect();
    assert!(text.contains("\"sources\":{\"base\":\"broker\""), "{text}");
    let fields = "pid,comm,rss_bytes,read_bytes,cmdline";
    let (code, text, said) = run(&["ps", "--csv", "--no-header", "-o", fields, "--history"], &[]);
    assert_eq!(code, Some(0), "{said}");
    let row = |pid: u32| text.lines().find(|line| line.starts_with(&format!("{pid},")));
    let slept: Vec<&str> = row(sleeper.0.id()).expect("the process of nobody").split(',').collect();
    assert!(slept[1] == "sleep" && slept[4].contains("1000"), "{slept:?}");
    let numbers: Vec<Option<u64>> = slept[2..4].iter().map(|number| number.parse().ok()).collect();
    assert!(numbers[0] > Some(0) && numbers[1].is_some(), "{slept:?}");
    assert!(
        row(std::process::id()).is_none(),
        "it shows processes of nobody: {text}"
    );
    std::fs::remove_dir_all(&directory).expect("it is ours");
}

/// Check that the broker serves the page about a process, that what it does not show is not
/// counted, and that another user's process has no page.
#[test]
fn pages_are_there_through_the_broker() {
    let broker = Broker::start(&[]);
    let taskdiag = copy_command(broker.socket.parent().expect("a directory"));
    let sleeper = sleeper();
    let inspect = |pid: u32| {
        let mut command = as_nobody(&taskdiag);
        command.args(["inspect", "--json", &pid.to_string(), "--socket"]);
        command.arg(&broker.socket).output().expect("the command")
    };
    let printed = inspect(sleeper.0.id());
    assert_eq!(printed.status.code(), Some(0), "{printed:?}");
    let page = String::from_utf8(printed.stdout).expect("text");
    for said in [
        "\"base\":\"broker\"",
        "\"comm\":\"sleep\"",
        "\"name\":\"[stack]\"",
        "\"sockets\":[]",
        "\"files\":[{\"kind\":",
        "\"absent\":{\"used\":\"unsupported\",",
        "\"limit\":\"nofile\"",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let hidden = inspect(std::process::id());
    assert_eq!((hidden.status.code(), hidden.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8_lossy(&hidden.stderr).contains("you may not see it"));
}

/// Check that `watch` prints one sample after another.
#[test]
fn watch_continues() {
    let broker = Broker::start(&[]);
    let taskdiag = copy_command(broker.socket.parent().expect("a directory"));
    let mut command = as_nobody(&taskdiag);
    command.args(["watch", "--jsonl", "--watch", "0.05", "-o", "pid", "--socket"]);
    let mut watch = Killed(
        command
            .arg(&broker.socket)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command"),
    );
    let stdout = watch.0.stdout.take().expect("its output");
    let third = BufReader::new(stdout)
        .lines()
        .map(|line| line.expect("a line"))
        .find(|line| line.contains("\"sample\":3"));
    assert!(third.is_some());
}
