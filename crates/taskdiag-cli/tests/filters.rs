//! `taskdiag ps --where` and its like from outside.

mod common;

use common::{free_pid, run, run_as_nobody, Sleeper};

fn pids(text: &str) -> Vec<u32> {
    let pids = text.lines().filter_map(|line| line.trim().parse().ok());
    pids.collect()
}

/// Check that a mistake in an expression is pointed at, and is wrong usage.
#[test]
fn wrong_expressions_are_pointed_at() {
    for (expression, part) in [
        ("uid = 0", "equality is `==`\n  uid = 0\n      ^"),
        ("rss > 1M", "rss_bytes"),
        ("comm ~ '('", "not a regular expression"),
        ("uid == 'no such user'", "no user id has the name"),
        ("", "name of a field"),
    ] {
        for source in ["procfs", "auto"] {
            let run = run(&["ps", "--source", source, "--where", expression]);
            assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{expression}");
            assert!(
                run.stderr.contains("--where") && run.stderr.contains(part),
                "{}",
                run.stderr
            );
        }
    }
}

/// Check that only what an expression is true of is listed, names of users included, and that the parts are explained.
#[test]
fn expressions_choose_rows() {
    let sleeper = Sleeper::new("sleep");
    let pid: u32 = sleeper.pid().parse().expect("a pid");
    let expression = format!("pid == {pid} and comm == 'sleep' and not kernel_thread and cmdline ~ '^sleep [0-9]+$'");
    let chosen = run(&["ps", "--no-header", "-o", "pid", "--where", &expression]).complete();
    assert_eq!(pids(&chosen), [pid]);
    let other = run(&[
        "ps",
        "--no-header",
        "-o",
        "pid",
        "--where",
        &format!("pid == {pid} and comm == 'x'"),
    ])
    .complete();
    assert_eq!(pids(&other), [0; 0]);

    let explained = run(&[
        "ps",
        "--source",
        "procfs",
        "-o",
        "pid",
        "--no-header",
        "--explain",
        "--where",
        &expression,
    ]);
    assert_eq!(explained.code, Some(0));
    for part in [
        "read by procfs: base, args",
        "decided first",
        &format!("pid == {pid} and comm == 'sleep' and not kernel_thread\n"),
        "rows: 1",
    ] {
        assert!(explained.stderr.contains(part), "{part}: {}", explained.stderr);
    }
}

/// Check that descendants are found from the command line, and that a process that is not there is said to be missing.
#[test]
fn descendants_are_listed() {
    let sleeper = Sleeper::new("sleep");
    let here = std::process::id().to_string();
    let below = run(&["ps", "--no-header", "-o", "pid", "--descendants", &here]).complete();
    assert!(pids(&below).contains(&sleeper.pid().parse().expect("a pid")), "{below}");
    let missing = free_pid();
    let run = run(&["ps", "--descendants", &missing]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains(&format!("pid {missing}: no such process")),
        "{}",
        run.stderr
    );
}

/// Check that tasks which can't be judged make the answer partial.
#[test]
fn what_may_not_be_seen_makes_the_answer_partial() {
    let Some(run) = run_as_nobody(&["ps", "-o", "pid", "--where", "read_chars >= 0"]) else {
        return;
    };
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains("left out: what they are filtered by"),
        "{}",
        run.stderr
    );
}

/// Check that numbers become names where that is asked for.
#[test]
fn numbers_have_names() {
    let here = std::process::id().to_string();
    let document = run(&[
        "ps",
        "-p",
        &here,
        "-o",
        "uid,cap_effective,sig_caught,limits",
        "--names",
        "--json",
    ])
    .json();
    let row = &document["rows"][0];
    assert!(row["uid"].is_string() && row["cap_effective"].is_array() && row["sig_caught"].is_array());
    assert!(row["limits"]["nofile"]["soft"].is_u64(), "{row}");
    let document = run(&["ps", "-p", &here, "-o", "uid,cap_effective", "--json"]).json();
    let row = &document["rows"][0];
    assert!(row["uid"].is_u64() && row["cap_effective"].as_str().is_some_and(|set| set.starts_with("0x")));
}

/// Check that a cgroup which is none is said to be missing, like a process, and that an empty answer about one is an answer.
#[test]
fn cgroups_that_are_none_are_said() {
    for command in [
        &["ps"][..],
        &["ps", "-T", "--json"],
        &["mem"],
        &["mem", "--by", "user"],
        &["watch", "--watch", "0.01", "--count", "2"],
    ] {
        for name in ["/no such cgroup", "/cgroup.procs", "user.slice"] {
            let run = run(&[command, &["--cgroup", name]].concat());
            let said = format!(
                "taskdiag: cgroup {name:?}: no such cgroup (`taskdiag ps -o cgroup` shows those that have processes)\n"
            );
            assert_eq!((run.code, run.stderr), (Some(1), said), "{command:?}");
        }
        run(&[command, &["--cgroup", "/", "--where", "pid == 0"]].concat()).complete();
    }
    let all = run(&["ps", "--cgroup", "/", "--no-header", "-o", "pid"]).complete();
    assert!(pids(&all).contains(&std::process::id()), "{all}");
}
