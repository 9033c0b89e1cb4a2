//! The self-test of task_diag, with the broker in the kernel's place.

mod daemon;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use taskdiag_protocol::wire::{show, Strategy};
use taskdiag_testkit::scaled;
use taskdiag_zoo::{copy_program, settle};

use daemon::{connect, Broker};

/// Users without other processes: everything that one sees belongs to its test. The tests run at the
/// same time.
const USER: u32 = 61_234;
const USER_OF_BYTES: u32 = 61_235;
const USER_OF_PATCHES: u32 = 61_236;
const STRANGER: u32 = 61_237;

/// A copy of a program of `dev/task_diag` that every user can reach.
fn program(broker: &Broker, name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_taskdiagd")).with_file_name(name);
    let copy = broker.socket.with_file_name(name);
    copy_program(&built, &copy).expect("a program that `cargo build --workspace --bins` makes");
    copy
}

/// Processes that end when this is dropped. All their threads sleep.
struct Forked(Child);

impl Forked {
    fn start(user: u32, fork: &Path, processes: usize, threads: usize) -> Forked {
        let mut command = Command::new(fork);
        command.args([processes.to_string(), threads.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).uid(user).gid(user);
        let mut child = command.spawn().expect("fork");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), processes.to_string());
        for pid in [vec![child.id()], daemon::children(child.id())].concat() {
            for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads") {
                let name = task.expect("a thread").file_name();
                let tid = name.to_str().and_then(|name| name.parse().ok());
                settle(tid.expect("a number"), 'S').expect("a thread that sleeps");
            }
        }
        Forked(child)
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The output of `task_diag_all` for the user.
fn run(tool: &Path, broker: &Broker, args: &[&str]) -> String {
    let mut command = Command::new(tool);
    command
        .args(args)
        .env("TASKDIAG_SOCKET", &broker.socket)
        .uid(USER)
        .gid(USER);
    let output = command.output().expect("task_diag_all");
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How many lines begin a task, and how many tasks are named fork.
fn count(text: &str) -> (usize, usize) {
    let starts = text.lines().filter(|line| line.starts_with("Start getting"));
    let forks = text
        .lines()
        .filter(|line| line.starts_with("pid ") && line.ends_with("comm fork"));
    (starts.count(), forks.count())
}

/// Check its five assertions: all processes, all threads, children, one process, and the threads of
/// one process. Each is run with some of mappings, sizes, credentials and command lines.
#[test]
fn task_diag_passes_its_own_test() {
    let broker = Broker::start(&[]);
    let (fork, tool) = (program(&broker, "fork"), program(&broker, "task_diag_all"));
    let (processes, threads) = (scaled(1000), 10);
    {
        let forked = Forked::start(USER, &fork, processes, threads);
        let parent = forked.0.id().to_string();
        // The program that forked is one more, and the tool itself another.
        let text = run(&tool, &broker, &["all", "--maps"]);
        assert_eq!(count(&text), (processes + 2, processes + 1));
        assert!(text.lines().filter(|line| line.ends_with("[vdso]")).count() > processes);
        let text = run(&tool, &broker, &["All", "--smaps", "--cred"]);
        assert_eq!(count(&text), (processes * threads + 2, processes * threads + 1));
        let owned = format!("uid: {USER} {USER} {USER} {USER}");
        assert_eq!(
            text.lines().filter(|line| **line == owned).count(),
            processes * threads + 2
        );
        // Only leaders have mappings.
        assert!(text.lines().filter(|line| line.ends_with("[vdso]")).count() <= processes + 2);
        assert!(text
            .lines()
            .filter(|line| line.starts_with("Rss:"))
            .any(|line| !line.ends_with(" 0 kB")));
        let text = run(&tool, &broker, &["children", "--pid", &parent]);
        assert_eq!(count(&text), (processes, processes));
        let text = run(&tool, &broker, &["one", "--pid", &parent, "-x", "-l"]);
        assert!(
            text.contains("threads: 1") && text.contains(&format!("cmdline: {}", fork.display())),
            "{text}"
        );
        assert_eq!(
            run(&tool, &broker, &["children", "-q", "--pid", &parent]),
            format!("tasks: {processes}\n")
        );
    }
    let forked = Forked::start(USER, &fork, 1, 1234);
    let text = run(&tool, &broker, &["children", "--pid", &forked.0.id().to_string()]);
    let pid = text
        .split_ascii_whitespace()
        .skip_while(|word| *word != "pid")
        .nth(1)
        .expect("a pid");
    let text = run(&tool, &broker, &["thread", "--maps", "--cred", "--smaps", "--pid", pid]);
    assert_eq!(count(&text), (1234, 1234));
    assert!(text.lines().filter(|line| line.ends_with("[vdso]")).count() == 1);
}

/// Check that the very bytes that the test program of task_diag's patches sends get the answer of a
/// request of this protocol: 44 of them, without type and flags, and what was on its stack behind
/// the pid.
#[test]
fn the_bytes_of_the_patches_are_answered() {
    let broker = Broker::start(&[]);
    let forked = Forked::start(USER_OF_BYTES, &program(&broker, "fork"), 3, 4);
    let pid = forked.0.id();
    let child = daemon::children(pid)[0];
    for (show, strategy, pid, count) in [
        (show::BASE | show::CRED, Strategy::One, pid, 1),
        (show::BASE | show::CMDLINE, Strategy::Children, pid, 3),
        (show::BASE | show::VMA, Strategy::One, child, 1),
        (show::BASE | show::VMA | show::VMA_STAT, Strategy::Thread, child, 4),
        (show::BASE, Strategy::All, 0, 5),
        (show::BASE | show::STAT, Strategy::AllThreads, 0, 14),
    ] {
        let mut packet = vec![0; 44];
        packet[..4].copy_from_slice(&44_u32.to_ne_bytes());
        packet[8] = 5;
        packet[16..24].copy_from_slice(&show.to_ne_bytes());
        packet[24..32].copy_from_slice(&(strategy as u64).to_ne_bytes());
        packet[32..36].copy_from_slice(&pid.to_ne_bytes());
        packet[40] = 7;
        let connection = connect(&broker.socket);
        connection.send(&packet);
        let answer = connection.receive_answer().expect("an answer");
        let asked = connect(&broker.socket).ask(show, strategy, pid).expect("an answer");
        // Times and sizes may change from one answer to the next.
        let facts = |tasks: &[daemon::TaskMessage]| -> BTreeSet<_> {
            let tasks = tasks.iter().map(|task| {
                let attributes = task.attributes.iter().filter(|(kind, _)| matches!(kind, 0 | 1 | 6));
                (task.pid, task.tgid, attributes.cloned().collect::<Vec<_>>())
            });
            tasks.filter(|(.., attributes)| !attributes.is_empty()).collect()
        };
        if pid == 0 {
            assert!(facts(&answer).len() >= count, "{strategy:?}");
        } else {
            assert_eq!(
                (facts(&answer).len(), facts(&answer)),
                (count, facts(&asked)),
                "{strategy:?}"
            );
        }
        // The bytes that the kernel never took for a request are none here either.
        packet[4] = 1;
        connection.send(&packet);
        assert_eq!(connection.receive_answer().unwrap_err(), libc::EINVAL);
    }
}

/// The program of task_diag's patches that `TASK_DIAG_ALL` names, with a library that opens the
/// broker's socket in the place of `/proc/task-diag`.
fn original(broker: &Broker, user: u32, args: &[&str]) -> String {
    let program = std::env::var("TASK_DIAG_ALL").expect("TASK_DIAG_ALL: the path of task_diag_all");
    let copy = broker.socket.with_file_name("original");
    let shim = broker.socket.with_file_name("shim.so");
    if !shim.exists() {
        copy_program(Path::new(&program), &copy).expect("task_diag_all");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dev/task_diag/shim.c");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&shim)
            .arg(source);
        assert!(compiler.status().expect("cc").success());
    }
    let mut command = Command::new(copy);
    command
        .args(args)
        .uid(user)
        .gid(user)
        .env("TASKDIAG_SOCKET", &broker.socket)
        .env("LD_PRELOAD", shim);
    let output = command.output().expect("task_diag_all");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{args:?}: {} {text}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// The rows that `taskdiag` prints for the user, with the broker.
fn rows(broker: &Broker, user: u32, args: &[&str]) -> Vec<Value> {
    let mut command = Command::new(program(broker, "taskdiag"));
    command
        .args(args)
        .arg("--jsonl")
        .arg("--socket")
        .arg(&broker.socket)
        .uid(user)
        .gid(user);
    let output = command.output().expect("taskdiag");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect()
}

/// Check that the unchanged program of task_diag's patches prints what `taskdiag` does, for each of
/// its commands and options, for root, the owner of the processes and another user.
#[test]
#[ignore = "needs task_diag_all of the patches: make test-task-diag TASK_DIAG_ALL=PATH"]
fn the_program_of_the_patches_prints_what_taskdiag_does() {
    let broker = Broker::start(&[]);
    let forked = Forked::start(USER_OF_PATCHES, &program(&broker, "fork"), 20, 5);
    let parent = forked.0.id().to_string();
    let child = daemon::children(forked.0.id())[0].to_string();
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
    let sorted = |mut lines: Vec<String>| {
        lines.sort_unstable();
        lines
    };
    const FIELDS: &str = "tid,pid,ppid,sid,pgid,comm,uid,euid,suid,fsuid,cap_inheritable,cap_permitted,cap_effective,cap_bounding,cmdline";
    let tasks = |user: u32, args: &[&str]| {
        let args = [&["ps", "-o", FIELDS], args].concat();
        let lines = rows(&broker, user, &args).into_iter().map(|row| {
            let [tid, pid, ppid, sid, pgid] = ["tid", "pid", "ppid", "sid", "pgid"].map(|name| number(&row, name));
            let [uid, euid, suid, fsuid] = ["uid", "euid", "suid", "fsuid"].map(|name| number(&row, name));
            let ids = format!("{uid} {euid} {suid} {fsuid}");
            let caps = ["inheritable", "permitted", "effective", "bounding"].map(|set| {
                let text = row[format!("cap_{set}")].as_str().expect("a set");
                let set = u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a set");
                format!("{set:016x}")
            });
            let words: Vec<&str> = row["cmdline"].as_array().expect("words").iter().filter_map(Value::as_str).collect();
            format!(
                "pid {tid:5} tgid {pid:5} ppid {ppid:5} sid {sid:5} pgid {pgid:5} comm {} uid: {ids} gid: {ids} CapInh: {} CapPrm: {} CapEff: {} CapBnd: {} cmdline: {}",
                row["comm"].as_str().expect("a name"), caps[0], caps[1], caps[2], caps[3], words.join(" ")
            )
        });
        sorted(lines.collect())
    };
    let printed = |user: u32, args: &[&str]| {
        let text = original(&broker, user, args);
        let tasks = text.split("Start getting information about ").skip(1);
        let lines = tasks.map(|task| task.lines().skip(1).collect::<Vec<_>>().join(" "));
        sorted(lines.filter(|line| line.contains("comm fork uid: 61236 ")).collect())
    };
    for user in [0, USER_OF_PATCHES] {
        for (theirs, ours, count) in [
            (
                &["one", "--pid", &child, "--cred", "--cmdline"][..],
                &["--pid", &child][..],
                1,
            ),
            (&["children", "-p", &parent, "-c", "-l"], &["--children", &parent], 20),
            (
                &["all", "-c", "-l"],
                &["--where", "comm == 'fork' and uid == 61236"],
                21,
            ),
            (
                &["thread", "-p", &child, "-c", "-l"],
                &["--threads", "--pid", &child],
                5,
            ),
            (
                &["All", "-c", "-l"],
                &["--threads", "--where", "comm == 'fork' and uid == 61236"],
                101,
            ),
        ] {
            let printed = printed(user, theirs);
            assert_eq!(
                (printed.len(), &printed),
                (count, &tasks(user, ours)),
                "{user} {theirs:?}"
            );
        }
        for option in ["--maps", "--smaps"] {
            let text = original(&broker, user, &["one", "--pid", &child, option]);
            let starts: Vec<_> = text
                .lines()
                .filter(|line| line.as_bytes().get(16) == Some(&b'-'))
                .collect();
            let maps = rows(&broker, user, &["maps", "-o", "start,end,perms,name,rss_bytes", &child]);
            assert!(maps.len() > 5);
            assert_eq!(starts.len(), maps.len(), "{text}");
            let hex =
                |text: &Value| u64::from_str_radix(&text.as_str().expect("an address")[2..], 16).expect("an address");
            for (line, row) in starts.iter().zip(&maps) {
                let range = format!("{:016x}-{:016x} ", hex(&row["start"]), hex(&row["end"]));
                assert!(line.starts_with(&range), "{line} {row}");
                let flags = u64::from_str_radix(&line[34..50], 16).expect("flags");
                let perms: String = (0..4)
                    .zip("rwxs".chars())
                    .zip("---p".chars())
                    .map(|((bit, yes), no)| if flags >> bit & 1 == 1 { yes } else { no })
                    .collect();
                assert_eq!(row["perms"], perms, "{line}");
                let name = row["name"].as_str().unwrap_or_default();
                // The patches name no stack and no heap.
                assert!(line[51..] == *name || name.starts_with('['), "{line} {row}");
            }
            let sum = text.lines().filter_map(|line| line.strip_prefix("Rss:"));
            let sum: u64 = sum
                .map(|line| line.trim_end_matches(" kB").trim().parse::<u64>().expect("a size"))
                .sum();
            let resident: u64 = maps
                .iter()
                .map(|row| row["rss_bytes"].as_u64().unwrap_or(0) >> 10)
                .sum();
            assert_eq!(sum, if option == "--maps" { 0 } else { resident });
        }
        assert!(original(&broker, user, &["one", "-p", &child, "-x"]).contains("threads: 5"));
    }
    // Somebody else sees none of them.
    let text = original(&broker, STRANGER, &["all", "-c"]);
    assert_eq!(count(&text), (1, 0));
}
