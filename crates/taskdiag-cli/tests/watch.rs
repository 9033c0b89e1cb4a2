//! `taskdiag watch`, run as a program.

mod common;

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{command, free_pid, run, run_as_nobody, run_on_terminal, start, status, Run, Sleeper};
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

/// The rows of a running `taskdiag watch`, which ends when dropped.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn begin(args: &[&str]) -> Watch {
        let shown = ["watch", "-d", "0.2", "--jsonl", "-o", "pid,cpu_percent,comm"];
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

/// More than one processor can give, because samples are late on a busy machine.
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

/// Check that watching shows samples, all with rates, and rejects wrong usage.
#[test]
fn watching_shows_rates() {
    let busy = busy();
    let pid = busy.pid();
    let args = [
        "watch",
        "-d",
        "0.3",
        "-n",
        "3",
        "-p",
        &pid,
        "-o",
        "pid,cpu_percent,comm",
    ];
    let lines = run(&[&args[..], &["--jsonl"]].concat()).complete();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("lines are JSON"))
        .collect();
    let (samples, rows): (Vec<Value>, Vec<Value>) = lines.into_iter().partition(|line| line.get("rows").is_some());
    for (index, sample) in samples.iter().enumerate() {
        assert_eq!((&sample["sample"], &sample["rows"]), (&json!(index), &json!(1)));
        assert!(
            sample["time"].as_str().is_some_and(|time| time.ends_with('Z')),
            "{sample}"
        );
    }
    assert_eq!((samples.len(), rows.len()), (3, 3));
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row["sample"].as_u64(), Some(index as u64));
        check_is_rate_of_one_processor(row);
    }
    let csv = run(&[&args[..], &["--csv"]].concat()).complete();
    let lines: Vec<&str> = csv.lines().collect();
    // The sample, and what -o names in its order.
    assert_eq!((lines[0], lines.len()), ("sample,time,pid,cpu_percent,comm", 4));
    let cells: Vec<&str> = lines[1].split(',').collect();
    assert_eq!((cells[0], cells[2], cells[4]), ("0", pid.as_str(), "sh"));
    assert!(
        cells[1].ends_with('Z') && cells[3].parse::<f64>().is_ok_and(|rate| rate > 0.0),
        "{csv}"
    );
    let table = run(&[&args[..], &["--no-header"]].concat()).complete();
    let first: Vec<&str> = table.lines().next().expect("a row").split_whitespace().collect();
    assert_eq!((first[0], first[2]), (&pid[..], "sh"));
    assert!(first[1].parse::<f64>().is_ok_and(|rate| rate > 0.0), "{table}");
    for wrong in [
        &["watch", "--json"][..],
        &["ps", "--watch", "0"],
        &["watch", "--sort", "cpu_percents"],
        &["watch", "-d", "0"],
        &["watch", "--explain"],
    ] {
        let run = run(wrong);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{wrong:?}");
    }
}

/// Check that samples without rows are also announced: in JSON lines by their line, in CSV by a row
/// of empty cells.
#[test]
fn empty_samples_are_announced() {
    let args = [
        "watch",
        "-d",
        "0.01",
        "-n",
        "2",
        "--where",
        "pid == 0",
        "-o",
        "pid,comm,cpu_percent",
    ];
    let text = run(&[&args[..], &["--jsonl"]].concat()).complete();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 2, "{text}");
    for (index, line) in lines.iter().enumerate() {
        assert_eq!((&line["sample"], &line["rows"]), (&json!(index), &json!(0)), "{text}");
    }
    let csv = run(&[&args[..], &["--csv"]].concat()).complete();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        (lines[0], lines.len()),
        ("sample,time,pid,comm,cpu_percent", 3),
        "{csv}"
    );
    for (index, line) in lines[1..].iter().enumerate() {
        assert!(
            line.starts_with(&format!("{index},20")) && line.ends_with("Z,,,"),
            "{csv}"
        );
    }
}

/// Check that a task that starts to match has no rates yet: it did not do its earlier work within
/// one interval.
#[test]
fn a_task_that_begins_to_match_has_no_rates_yet() {
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

/// Check that a task that starts during watching has rates at once, with and without a filter.
#[test]
fn new_tasks_have_rates() {
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

/// Check that missing processes are reported only once, and that denied values make the answer
/// partial.
#[test]
fn missing_things_are_reported_once() {
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
        let of_two = [
            "watch",
            "-n",
            "2",
            "-d",
            "0.01",
            "-o",
            "pid,read_bytes,read_bytes_per_s",
        ];
        let pids = format!("{},{}", sleeper.pid(), std::process::id());
        let of_two = run_as_nobody(&[&of_two[..], &["-p", &pids, "--sort", "read_bytes"]].concat()).expect("as above");
        assert!(
            of_two
                .stderr
                .starts_with("taskdiag: read_bytes: denied for all 2 tasks ("),
            "{}",
            of_two.stderr
        );
        let text = run.text();
        let row: Value = serde_json::from_str(text.lines().nth(1).expect("a row")).expect("JSON");
        assert_eq!(row["absent"], json!({"read_bytes_per_s": "denied"}));
    }
}

/// Check that filters use the same `cpu_percent` as the column, for the time since the previous
/// sample: every row has a value, and the filter is true for it.
#[test]
fn filters_are_about_the_time_between_samples() {
    let busy = busy();
    let pid = busy.pid();
    let expression = format!("pid == {pid} and (cpu_percent > 0.5 or uid == 4242)");
    let mut watch = Watch::begin(&["--where", &expression]);
    for _ in 0..3 {
        let row = watch.row_of(&busy);
        check_is_rate_of_one_processor(&row);
        assert!(row["cpu_percent"].as_f64() > Some(0.5), "{row}");
    }
    let expression = format!("pid == {pid} and cpu_percent > 100000");
    let nothing = run(&["watch", "-d", "0.2", "-n", "3", "--jsonl", "--where", &expression]);
    let lines = nothing.complete();
    assert_eq!(lines.lines().count(), 3, "{lines}");
}

/// Check that watching ends when all named processes have ended, but not while an idle one is left.
#[test]
fn watching_ends_with_its_processes() {
    let idle = Sleeper::new("idle");
    let mut short = Command::new("cat");
    let mut short = short.stdin(Stdio::piped()).spawn().expect("cat exists");
    let pids = format!("{},{}", idle.pid(), short.id());
    let mut watch = Watch::begin(&["-p", &pids]);
    let mut next = || {
        let line = watch.lines.next().expect("it goes on").expect("text");
        serde_json::from_str::<Value>(&line).expect("JSON")["sample"]
            .as_u64()
            .expect("a number")
    };
    // Both exist at the first sample.
    assert_eq!(next(), 0);
    drop(short.stdin.take());
    short.wait().expect("it ends");
    while next() < 5 {}
    drop(idle);
    let status = watch.child.wait().expect("a child");
    assert_eq!(status.code(), Some(0));
}

/// Check that the line above the table counts the tasks that do not fit the terminal, too.
#[test]
fn summaries_count_all_tasks() {
    let sleepers = [(); 4].map(|()| Sleeper::new("counted"));
    let pids = sleepers.each_ref().map(Sleeper::pid).join(",");
    let mut watch = command(&["watch", "-d", "0.1", "-n", "1", "-p", &pids]);
    let text = run_on_terminal(&mut watch, 120, 5).text();
    assert!(text.contains("  4 tasks shown\n"), "{text}");
    assert_eq!(text.matches("counted").count(), 2, "{text}");
    let text = run_on_terminal(&mut watch, 40, 5).text();
    assert!(text.lines().next().is_some_and(|line| line.ends_with('…')), "{text}");
}

/// Check that a line about the machine precedes each table unless --no-header is given, and that
/// threads have their own names.
#[test]
fn tables_have_a_summary_and_threads_names() {
    let threads = Sleeper::new("another name");
    let pid = threads.pid();
    let args = ["watch", "-d", "0.1", "-n", "2", "-p", &pid, "-T"];
    let text = run(&args).complete();
    let summaries: Vec<&str> = text.lines().filter(|line| line.contains("  load ")).collect();
    assert_eq!(summaries.len(), 2, "{text}");
    assert!(
        summaries[1].contains("  cpu ") && summaries[1].contains("  memory "),
        "{text}"
    );
    let name = status(&pid, "Name");
    let heading = text.lines().find(|line| line.contains("TID")).expect("a heading");
    assert!(heading.ends_with("NAME"), "{text}");
    assert!(text.lines().any(|line| line.ends_with(&format!(" {name}"))), "{text}");
    // It has the local time, and so have dates in the table.
    let local = [&args[..], &["-o", "pid,start_time"]].concat();
    let output = command(&local).env("TZ", "XXX-14").output();
    let text = Run::new(output.expect("the binary runs")).complete();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec + 14 * 3600;
    let hour = format!(" {:02}:", now / 3600 % 24);
    let is_local = |line: &str| line.contains(&hour) || line.contains(&format!(" {:02}:", (now - 60) / 3600 % 24));
    let dates: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(" 20") || line.starts_with("20"))
        .collect();
    assert!(dates.len() > 2 && dates.iter().all(|line| is_local(line)), "{text}");
    let without = run(&[&args[..], &["--no-header"]].concat()).complete();
    assert!(!without.contains("load") && !without.contains("NAME"), "{without}");
}
