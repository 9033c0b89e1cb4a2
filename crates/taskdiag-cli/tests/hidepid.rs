//! What commands say where `/proc` hides the processes of others.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use common::{run_with_proc, Run, Sleeper};
use taskdiag_testkit::temporary::Directory;

/// What is said of all that is hidden.
const SAID: &str = "tasks of other users, if any, are left out: /proc is mounted with hidepid=";

/// Check that each command that asks about all processes says that some are hidden, once, and that
/// those that the kernel names are counted.
#[test]
fn hidden_processes_are_mentioned() {
    for args in [
        &["ps"][..],
        &["ps", "-o", "pid,comm"],
        &["ps", "-u", "root"],
        &["tree"],
        &["watch", "-n", "1", "-o", "pid"],
        &["sockets"],
        &["sockets", "-o", "state"],
        &["sockets", "--by", "program"],
        &["files", "--by", "program"],
        &["files", "--path", "/etc"],
        &["mem"],
        &["mem", "--total"],
        &["mem", "--by", "program"],
        &["maps", "--all"],
        &["cache", "--top", "1"],
        &["cache", "--by", "user"],
    ] {
        for (options, counted) in [(c"hidepid=2", 0), (c"hidepid=4", 0), (c"hidepid=1", 1)] {
            let Some(run) = run_with_proc(options, None, args) else {
                return;
            };
            let names = run.stderr.matches(SAID).count();
            let counts = [
                "tasks left out",
                "processes left out",
                "you may not see the files of",
                "not known: there may be more",
            ];
            let counts = usize::from(counts.iter().any(|count| run.stderr.contains(count)));
            assert_eq!(
                (run.code, names, counts),
                (Some(1), 1 - counted, counted),
                "{args:?}: {run:?}"
            );
        }
    }
}

/// Check that what /proc hides nothing from is not called incomplete.
#[test]
fn the_group_of_the_mount_sees_all() {
    for options in [c"hidepid=2,gid=65534", c"hidepid=0"] {
        let Some(run) = run_with_proc(options, None, &["ps", "-A", "-o", "pid="]) else {
            return;
        };
        assert!(run.complete().lines().count() > 2);
    }
}

/// Check that a hidden process is not said to be missing.
#[test]
fn a_hidden_process_may_exist() {
    let sleeper = Sleeper::new("hidden");
    let pid = &sleeper.pid()[..];
    for args in [
        &["ps", "-p", pid][..],
        &["ps", "--children", pid],
        &["tree", pid],
        &["inspect", pid],
        &["files", pid],
        &["sockets", pid],
        &["maps", pid],
        &["mem", "-p", pid],
        &["normalize", pid, "0x1000"],
        &["cache", "--of-process", pid],
    ] {
        let said = format!("pid {pid}: no such process, or /proc (hidepid=invisible) hides it (root may: try sudo)");
        let Some(run) = run_with_proc(c"hidepid=2", None, args) else {
            return;
        };
        assert!(
            matches!(run.code, Some(1 | 2)) && run.stderr.contains(&said),
            "{args:?}: {run:?}"
        );
        let Some(run) = run_with_proc(c"hidepid=1", None, args) else {
            return;
        };
        let is_said = ["you may not see", "is hidden from you"]
            .into_iter()
            .any(|said| run.stderr.contains(said));
        assert!(is_said && !run.stderr.contains("no such process"), "{args:?}: {run:?}");
    }
}

/// Check that pgrep and pkill find none only where they see all, and that those of procps' names end
/// as procps' do.
#[test]
fn none_is_not_found_among_some() {
    let sleeper = Sleeper::new("unseen-sleeper");
    for options in [c"hidepid=1", c"hidepid=2"] {
        for (command, args) in [
            ("pgrep", &["-f", "unseen-sleeper 1000"][..]),
            ("pkill", &["-0", "-f", "unseen-sleeper 1000"]),
        ] {
            let arguments = [&[command], args].concat();
            let Some(run) = run_with_proc(options, None, &arguments) else {
                return;
            };
            assert!(run.code == Some(3) && run.stdout.is_empty(), "{arguments:?}: {run:?}");
            assert!(
                run.stderr.contains("none of the processes that could be read"),
                "{run:?}"
            );
            let Some(run) = run_with_proc(options, Some(command), args) else {
                return;
            };
            assert_eq!(
                (run.code, run.stderr.contains("hidepid")),
                (Some(1), false),
                "{arguments:?}: {run:?}"
            );
        }
    }
    let found: Option<Run> = run_with_proc(c"hidepid=2", None, &["pgrep", "-x", "taskdiag-no-such"]);
    assert!(found.is_none_or(|run| run.code == Some(3)));
    drop(sleeper);
}

/// Check that a recording says which tasks it lacks.
#[test]
fn recordings_say_what_they_lack() {
    for (options, said) in [
        (c"hidepid=1", "tasks are missing: you may not see them"),
        (c"hidepid=2", SAID),
    ] {
        let place = Directory::new("hidepid-record");
        fs::set_permissions(&*place, fs::Permissions::from_mode(0o777)).expect("it is ours");
        let directory = place.join("recording").display().to_string();
        let Some(run) = run_with_proc(options, None, &["record", "--dir", &directory, "-n", "1"]) else {
            return;
        };
        assert!(run.stderr.contains(said), "{run:?}");
    }
}
