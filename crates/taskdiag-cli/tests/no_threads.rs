//! Commands where neither a thread nor a process can be started: a limit of threads is reached, or a
//! filter of system calls refuses clone3(2).

mod common;

use common::{command, Run, Sleeper};
use taskdiag_testkit::child::without_threads;

fn run(args: &[&str]) -> Run {
    Run::new(without_threads(&mut command(args)).output().expect("the binary runs"))
}

/// Check that each command answers what needs no thread, or says why not, and that none panics.
#[test]
fn each_command_says_what_is_missing() {
    const THREAD: &str = "can't start a thread";
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
        (&["sockets", pid], 2, THREAD),
        (&["files", "--path", "/etc"], 2, "Resource temporarily unavailable"),
        (&["doctor"], 0, ""),
    ] {
        let run = run(args);
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{args:?}: {}", run.stderr);
        assert!(!run.stderr.contains("panicked"), "{args:?}: {}", run.stderr);
        assert!(
            !run.stderr.contains("keeps its memory locked"),
            "{args:?}: {}",
            run.stderr
        );
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
