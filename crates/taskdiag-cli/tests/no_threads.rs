//! Commands where neither a thread nor a process can be started: a limit of threads is reached, or a
//! filter of system calls refuses clone3(2).

mod common;

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;

use common::{command, Run, Sleeper};
use serde_json::json;
use taskdiag_testkit::child::without_threads;
use taskdiag_testkit::temporary::Directory;
use taskdiag_zoo::Zoo;

fn run(args: &[&str]) -> Run {
    Run::new(without_threads(&mut command(args)).output().expect("the binary runs"))
}

/// Check that each command answers what needs no thread, or says why not and nothing else, and that
/// none panics.
#[test]
fn each_command_says_what_is_missing() {
    const THREAD: &str = "can't start a thread";
    let scratch = Directory::new("no-thread-commands");
    // A name that nobody has looked up yet.
    let uncached = scratch.join("name").display().to_string();
    let recording = scratch.join("recording").display().to_string();
    let recording = recording.as_str();
    let page = scratch.join("page").display().to_string();
    let page = page.as_str();
    let sleeper = Sleeper::new("sleep");
    let pid = sleeper.pid();
    let pid = pid.as_str();
    for (args, code, said) in [
        (&["ps", "-f", "-p", pid][..], 1, THREAD),
        (&["ps", "aux"], 1, THREAD),
        (&["ps", "-p", pid, "-o", "pid,user,comm,rss_bytes", "--json"], 0, ""),
        (&["tree", pid], 1, THREAD),
        (&["mem", "-p", pid], 1, THREAD),
        (&["watch", "-p", pid, "--watch", "0.01", "--count", "2"], 1, THREAD),
        (&["maps", pid], 2, THREAD),
        (&["inspect", pid], 1, THREAD),
        (&["normalize", pid, "0x1000"], 2, THREAD),
        (&["pgrep", "-f", "sleep"], 3, THREAD),
        (&["pkill", "-f", "no such command line"], 3, THREAD),
        (&["cache", "-s", "/etc"], 1, THREAD),
        (&["cache", "/etc/passwd"], 0, ""),
        (&["cache", "--of-process", pid], 1, THREAD),
        (&["metrics"], 2, THREAD),
        (&["sockets", pid, "--source", "procfs"], 1, THREAD),
        (&["files", pid, "--source", "procfs"], 1, THREAD),
        (&["files", "--path", "/etc"], 1, THREAD),
        (&["files", "--deleted"], 1, THREAD),
        (&["files", "--path", &uncached], 2, THREAD),
        (&["cache", "--top", "3"], 1, THREAD),
        (&["cache", "--by", "user"], 1, THREAD),
        (&["ps", "--where", "cmdline ~ 'x'"], 1, THREAD),
        (
            &["record", "--dir", recording, "--every", "0.1s", "--count", "1"],
            1,
            THREAD,
        ),
        (&["ps", "--history", recording], 1, "could start no thread"),
        (&["report", "-o", page], 1, THREAD),
        (&["doctor"], 0, ""),
    ] {
        let run = run(args);
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{args:?}: {}", run.stderr);
        assert!(!run.stderr.contains("panicked"), "{args:?}: {}", run.stderr);
        let other = [
            "keeps its memory locked",
            "has no answer",
            "may not be seen",
            "did not come in time",
            "leads to a file",
            "system error",
        ];
        let said = other.into_iter().find(|reason| run.stderr.contains(reason));
        assert_eq!(said, None, "{args:?}: {}", run.stderr);
    }
}

/// Check that the sockets of the own network namespace and the files of a path are found, and that
/// what waits for a socket or a process is missing.
#[test]
fn sockets_and_files_are_found() {
    // BPF leaves this process to a thread.
    let zoo = Zoo::new().expect("a zoo");
    let _animal = zoo.start("dead-leader").expect("an animal");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let scratch = std::env::temp_dir().join(format!("taskdiag-no-threads-{}", std::process::id()));
    let socket = UnixListener::bind(&scratch).expect("a socket");
    let own = std::process::id().to_string();
    let row = |found: &Run| -> serde_json::Value {
        let line = String::from_utf8_lossy(&found.stdout);
        serde_json::from_str(line.trim()).unwrap_or_else(|error| panic!("{error}: {found:?}"))
    };
    let _both = (
        TcpStream::connect(("127.0.0.1", port)).expect("a connection"),
        listener.accept(),
    );
    // A socket that listens has no round trips, with and without threads.
    for (state, reason) in [("listen", "none"), ("estab", "no thread")] {
        let expected = json!({"local_port": port, "absent": {"rtt_ns": reason}});
        let filter = format!("local_port == {port}");
        let args = [
            "sockets",
            &own,
            "--state",
            state,
            "--where",
            &filter,
            "--jsonl",
            "-o",
            "local_port,rtt_ns",
        ];
        let found = run(&args);
        assert_eq!((found.code, row(&found)), (Some(1), expected), "{found:?}");
    }
    let path = scratch.to_str().expect("UTF-8");
    let found = run(&[
        "files", "-p", &own, "--use", "fd", "--path", path, "--jsonl", "-o", "fd",
    ]);
    assert_eq!(row(&found), json!({"fd": socket.as_raw_fd()}));
    let found = run(&["files", "-p", &own, "--path", path, "--jsonl", "-o", "fd"]);
    assert_eq!((found.code, row(&found)), (Some(1), json!({"fd": socket.as_raw_fd()})));
    std::fs::remove_file(&scratch).expect("our own file");
    assert!(
        found
            .stderr
            .contains("files of 1 process missing: can't start a thread"),
        "{found:?}"
    );
}

/// Check that a page does not count the descriptors that no thread could read.
#[test]
fn unread_descriptors_are_not_none() {
    let own = std::process::id().to_string();
    let page = run(&["inspect", &own, "--json", "--source", "procfs"]).json();
    for section in ["files", "sockets", "mappings"] {
        assert_eq!(page["rows"][0]["absent"][section], json!("no thread"), "{page}");
    }
}

/// Check that users have their names, from the local file, and that a name is matched.
#[test]
fn users_have_names() {
    let sleeper = Sleeper::new("sleep");
    let pid = sleeper.pid();
    for args in [
        &["ps", "-o", "user=", "-p", &pid][..],
        &["ps", "-o", "user", "--csv", "--no-header", "-p", &pid],
        &["ps", "-o", "user=", "-p", &pid, "--where", "user == 'root'"],
    ] {
        assert_eq!(run(args).complete().trim(), "root", "{args:?}");
    }
    let found = run(&["pgrep", "-x", "sleep"]).text();
    assert!(found.lines().any(|line| line == pid), "{found}");
}
