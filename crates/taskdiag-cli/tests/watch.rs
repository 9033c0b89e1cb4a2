//! `taskdiag watch` from outside.

mod common;

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command};

use common::{free_pid, run, run_as_nobody, start, status, Sleeper};
use rustix::process::{kill_process, Pid, Signal};
use serde_json::{json, Value};

/// A process that uses all the processor time that it gets.
fn busy() -> Sleeper {
    Sleeper::run(Command::new("sh").args(["-c", "while :; do :; done"]))
}

fn signal(sleeper: &Sleeper, signal: Signal) {
    let pid = sleeper.pid().parse().ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a pid"), signal).expect("it is ours");
}

/// The rows of a watch, until it is dropped.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn begin(args: &[&str]) -> Watch {
        let shown = ["watch", "--watch", "0.2", "--jsonl", "-o", "pid,cpu_percent,comm"];
        let mut child = start(&[&shown[..], args].concat());
        let output = child.stdout.take().expect("a pipe");
        Watch {
            child,
            lines: BufReader::new(output).lines(),
        }
    }

    /// The next row of a process.
    fn row_of(&mut self, sleeper: &Sleeper) -> Value {
        let pid: u32 = sleeper.pid().parse().expect("a pid");
        let lines = self.lines.by_ref().map(|line| line.expect("text"));
        let mut rows = lines.map(|line| serde_json::from_str::<Value>(&line).expect("rows are JSON"));
        rows.find(|row| row["pid"] == pid).expect("it goes on")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// More than one processor can give, for on a busy machine samples are not taken just when they should be.
const LIKELY: f64 = 400.0;

#[track_caller]
fn check_is_rate_of_one_processor(row: &Value) {
    let percent = row["cpu_percent"].as_f64();
    assert!(
        percent.is_some_and(|percent| percent > 0.0 && percent < LIKELY),
        "{row}"
    );
    assert_eq!(row.get("absent"), None, "{row}");
}

#[track_caller]
fn check_has_no_rate_yet(row: &Value) {
    assert_eq!(row.get("cpu_percent"), None, "{row}");
    assert_eq!(row["absent"], json!({"cpu_percent": "no earlier sample"}), "{row}");
}

/// Check that watching shows samples, with rates from the second one on, and refuses what makes no sense.
#[test]
fn watching_shows_rates() {
    let busy = busy();
    let pid = busy.pid();
    let args = [
        "watch",
        "--watch",
        "0.3",
        "--count",
        "3",
        "-p",
        &pid,
        "-o",
        "pid,cpu_percent,comm",
    ];
    let lines = run(&[&args[..], &["--jsonl"]].concat()).complete();
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("rows are JSON"))
        .collect();
    assert_eq!(rows.len(), 3, "{lines}");
    check_has_no_rate_yet(&rows[0]);
    for (index, row) in rows.iter().enumerate().skip(1) {
        assert_eq!(row["sample"].as_u64(), Some(index as u64));
        check_is_rate_of_one_processor(row);
    }
    let csv = run(&[&args[..], &["--csv"]].concat()).complete();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines[0], lines.len()), ("pid,comm,sample,cpu_percent", 4));
    assert_eq!(lines[1], format!("{pid},sh,0,"));
    let table = run(&[&args[..], &["--no-header"]].concat()).complete();
    let first: Vec<&str> = table.lines().next().expect("a row").split_whitespace().collect();
    assert_eq!(first, [&pid, "-", "sh"]);
    for wrong in [
        &["watch", "--json"][..],
        &["ps", "--watch", "0"],
        &["watch", "--sort", "cpu_percents"],
    ] {
        let run = run(wrong);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{wrong:?}");
    }
}

/// Check that who begins to match has no rates at first: what it did before was not done in one interval.
#[test]
fn who_begins_to_match_has_no_rates_yet() {
    let (pacer, late) = (busy(), busy());
    signal(&late, Signal::STOP);
    while status(&late.pid(), "State") != "T (stopped)" {
        std::thread::yield_now();
    }
    let expression = format!("pid == {} or pid == {} and state != 'T'", pacer.pid(), late.pid());
    let mut watch = Watch::begin(&["--where", &expression]);
    for _ in 0..3 {
        watch.row_of(&pacer);
    }
    signal(&late, Signal::CONT);
    check_has_no_rate_yet(&watch.row_of(&late));
    for _ in 0..3 {
        check_is_rate_of_one_processor(&watch.row_of(&late));
    }
}

/// Check that who starts while it is watched has rates at once, whether or not there is a filter.
#[test]
fn who_is_new_has_rates() {
    let here = std::process::id().to_string();
    for args in [
        &["--where", &format!("ppid == {here}")][..],
        &["--children", &here],
        &[],
    ] {
        let pacer = busy();
        let mut watch = Watch::begin(args);
        for _ in 0..3 {
            watch.row_of(&pacer);
        }
        let new = busy();
        let row = watch.row_of(&new);
        assert!(
            row["cpu_percent"].as_f64().is_some_and(|percent| percent < LIKELY),
            "{row}"
        );
    }
}

/// Check that what is not there is said, once, and that what may not be seen makes the answer partial.
#[test]
fn what_is_missing_is_said() {
    let gone = free_pid();
    for selection in ["--pid", "--children", "--descendants"] {
        let run = run(&["watch", "--watch", "0.01", "--count", "2", selection, &gone]);
        let said = format!("taskdiag: pid {gone}: no such process\n");
        assert_eq!((run.code, run.stderr.as_str()), (Some(1), said.as_str()), "{selection}");
    }
    let sleeper = Sleeper::new("secret");
    let args = ["watch", "--watch", "0.01", "--count", "2", "-p", &sleeper.pid()];
    if let Some(run) = run_as_nobody(&[&args[..], &["--jsonl", "-o", "pid,read_bytes_per_s"]].concat()) {
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(
            run.stderr.starts_with("taskdiag: read_bytes: denied ("),
            "{}",
            run.stderr
        );
        let row: Value = serde_json::from_slice(&run.stdout).expect("one row");
        assert_eq!(row["absent"], json!({"read_bytes_per_s": "denied"}));
    }
}
