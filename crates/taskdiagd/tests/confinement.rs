//! Check which rights the broker's processes keep, and that answers hold nothing but what was
//! written for them.

mod daemon;

use std::os::unix::fs::PermissionsExt as _;

use taskdiag_protocol::wire::{attribute, show, Strategy, GROUP_BITS};
use taskdiag_testkit::{
    child::{self, World},
    test_name,
};

use daemon::attack::{user, BASE, OTHER, USER};
use daemon::{children, connect, Broker};

/// A value of `/proc/PID/status`.
fn status(pid: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = text.lines().find_map(|line| line.strip_prefix(key)).expect(key);
    line.trim().to_owned()
}

/// Check that no process of the broker belongs to root or has a capability beyond those that
/// SECURITY.md names, that each is under seccomp, and that the socket has its mode.
#[test]
fn processes_keep_what_they_need() {
    let _turn = taskdiag_zoo::run_first();
    let broker = Broker::start(&[]);
    let own = std::process::id();
    let connection = connect(&broker.socket);
    connection.ask(show::VMA, Strategy::One, own).expect("its mappings");
    let keeper = children(broker.pid());
    assert_eq!(keeper.len(), 1, "the keeper");
    let helpers = children(keeper[0]);
    let (none, sys_ptrace) = (format!("{:016x}", 0), format!("{:016x}", 1_u64 << 19));
    // Before Linux 6.16 there are closers too. They have no capability.
    let (readers, closers): (Vec<u32>, Vec<u32>) = helpers
        .into_iter()
        .partition(|&pid| status(pid, "CapPrm:") == sys_ptrace);
    assert!(!readers.is_empty(), "a reader");
    assert!(
        closers.is_empty() || taskdiag_testkit::kernel() < (6, 16),
        "{closers:?}"
    );
    let with_none = [broker.pid()].into_iter().chain(closers);
    let with_one = keeper.into_iter().chain(readers);
    let processes = with_none
        .map(|pid| (pid, &none))
        .chain(with_one.map(|pid| (pid, &sys_ptrace)));
    for (pid, capabilities) in processes {
        for key in ["CapPrm:", "CapEff:"] {
            assert_eq!(&status(pid, key), capabilities, "{pid} {key}");
        }
        assert_eq!(status(pid, "CapInh:").trim_matches('0'), "");
        assert!(!status(pid, "Uid:").split_ascii_whitespace().any(|id| id == "0"));
        assert!(!status(pid, "Gid:").split_ascii_whitespace().any(|id| id == "0"));
        assert_eq!(status(pid, "Groups:"), "");
        assert_eq!(
            (status(pid, "NoNewPrivs:"), status(pid, "Seccomp:")),
            ("1".to_owned(), "2".to_owned())
        );
        assert_eq!(status(pid, "Threads:"), "1");
    }
    let mode = std::fs::metadata(&broker.socket)
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o666);
}

/// Check that reserved fields and padding of records are zero, for any client and any request.
#[test]
fn reserved_bytes_are_zero() {
    let _turn = taskdiag_zoo::run_first();
    let broker = child::part().is_none().then(|| Broker::start(&["--observers", "1001"]));
    if let Some(broker) = &broker {
        daemon::publish(broker);
    }
    for (name, world) in [
        ("root", World::default()),
        ("user", user(USER)),
        ("observer", user(OTHER)),
    ] {
        child::run(test_name!(), name, world, || {
            let connection = connect(&daemon::socket());
            let mut records = 0;
            for strategy in [Strategy::All, Strategy::AllThreads] {
                for show in [
                    GROUP_BITS,
                    GROUP_BITS | show::TASK_DIAG & !(show::MAPPINGS | show::CMDLINE),
                    BASE | 1 << 18,
                    1 << 20,
                ] {
                    for task in connection.ask(show, strategy, 0).expect("an answer") {
                        for (kind, payload) in &task.attributes {
                            if *kind == attribute::RECORD {
                                daemon::check_record(payload);
                                records += 1;
                            }
                        }
                    }
                }
            }
            assert!(records > 5, "{records} records");
        });
    }
}
