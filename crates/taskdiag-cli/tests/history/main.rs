//! `record`, `history`, and commands that read a recording.

mod browser;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod day;
mod report;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{recorded_samples, run, run_as_nobody, start, Recorder, Recording, Run, Sleeper};
use jiff::Timestamp;
use serde_json::Value;
use taskdiag_testkit::temporary::Killed;

/// The files of the finest tier.
fn full(recording: &Recording) -> Vec<PathBuf> {
    let entries = fs::read_dir(recording.path()).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut full: Vec<PathBuf> = paths.filter(|path| name(path).starts_with("full-")).collect();
    full.sort();
    full
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("a name")
}

/// Records this many samples.
#[track_caller]
fn record(directory: &Recording, args: &[&str]) -> Run {
    let run = run(&[&["record", "--dir", directory.path(), "--every", "0.1"], args].concat());
    assert!(run.code == Some(0) || run.stderr.contains("no events"), "{run:?}");
    run
}

fn rows(run: &Run) -> Vec<Value> {
    run.json()["rows"].as_array().expect("rows").clone()
}

/// Check that a container is found in a recording if only a hierarchy of version 1 names it.
/// This machine may not have that version.
#[test]
fn containers_of_version_1_are_recorded() {
    let below = Path::new("/sys/fs/cgroup/memory");
    if !below.join("cgroup.procs").exists() {
        println!("no hierarchy of version 1 with the memory controller");
        return;
    }
    let directory = Recording::new("history-cgroup1");
    let sleeper = Sleeper::new("contained");
    let id = format!("{:064x}", std::process::id());
    let path = below.join(&id);
    fs::create_dir(&path).expect("a cgroup");
    fs::write(path.join("cgroup.procs"), sleeper.pid()).expect("a move into a cgroup");
    record(&directory, &["-n", "1"]);
    let found = [
        "ps",
        "--history",
        directory.path(),
        "--container",
        &id,
        "--no-header",
        "-o",
        "pid",
    ];
    assert_eq!(run(&found).complete().trim(), sleeper.pid());
    drop(sleeper);
    // It is busy for a moment after its last process has been reaped.
    while fs::remove_dir(&path).is_err() {
        sleep(Duration::from_millis(5));
    }
}

/// Check that all commands take the directory of a recording as the others do.
#[test]
fn commands_name_a_recording_alike() {
    let directory = Recording::new("history-named");
    let path = directory.path();
    for option in [&["--dir", path][..], &["--history", path], &[path]] {
        for command in [&["record", "-n", "1"][..], &["history"]] {
            let run = run(&[command, option].concat());
            assert_ne!(run.code, Some(2), "{command:?} {option:?}: {run:?}");
        }
    }
    for option in ["--dir", "--history"] {
        assert_ne!(run(&["ps", option, path, "-o", "pid"]).code, Some(2), "{option}");
    }
}

/// Check that what happened in a period is one table, so every format can have it.
#[test]
fn rates_of_a_period_have_an_end() {
    let directory = Recording::new("history-rates");
    record(&directory, &["-n", "2"]);
    for command in [
        &["watch"][..],
        &["ps", "-o", "pid,cpu_percent,min_faults_per_s", "--from", "-1h"],
    ] {
        let of = |format| run(&[command, &["--history", directory.path(), format]].concat());
        let (lines, document, file) = (of("--jsonl"), of("--json"), of("--parquet"));
        assert_eq!(
            [lines.code, document.code, file.code],
            [Some(0); 3],
            "{document:?} {}",
            file.stderr
        );
        // The first line is about the sample.
        let lines = String::from_utf8_lossy(&lines.stdout).lines().count() - 1;
        assert!(lines > 0 && rows(&document).len() == lines, "{command:?} {lines}");
        assert!(file.stdout.starts_with(b"PAR1"), "{command:?}");
    }
}

/// Check that a recording has every value of an idle process, and that derived values, which are
/// computed on reading, equal the current ones.
#[test]
fn values_are_those_of_the_moment() {
    for source in ["bpf", "procfs"] {
        check_values(source);
    }
}

#[track_caller]
fn check_values(source: &str) {
    let directory = Recording::new(&format!("history-{source}"));
    let sleeper = Sleeper::new("recorded\u{7}");
    record(&directory, &["-n", "3", "--source", source]);
    let fields =
        "base,tty,cred,groups,utime_ns,stime_ns,cutime_ns,runtime_ns,run_delay_ns,nice,priority,policy,affinity,voluntary_switches,\
                  involuntary_switches,timeslices_count,block_delay_ns,timer_slack_ns,faults,mem,args,oom,namespaces,cgroup,io,signals,limits,paths,fds,audit,user,\
                  group,start_time,stat,tty,unit,slice,container_id,container_name,mem_percent";
    let args = ["ps", "--json", "-p", &sleeper.pid(), "-o", fields];
    let now = run(&[&args[..], &["--source", source]].concat());
    let then = run(&[&args[..], &["--history", directory.path()]].concat());
    let (now_rows, then_rows) = (rows(&now), rows(&then));
    assert_eq!((now_rows.len(), then_rows.len()), (1, 1));
    let (now_row, then_row) = (
        now_rows[0].as_object().expect("a row"),
        then_rows[0].as_object().expect("a row"),
    );
    assert!(then_row.len() > 100, "{then_row:?}");
    for (key, value) in now_row {
        // The machine may change these values while the process sleeps.
        if !["oom_score", "sig_queued_count"].contains(&key.as_str()) {
            assert_eq!(Some(value), then_row.get(key), "{key} by {source}");
        }
    }
    let (now, then) = (now.json(), then.json());
    for key in ["host", "boot_id", "kernel"] {
        assert_eq!(now[key], then[key], "{key}");
    }
    assert!(then["time"].as_str() < now["time"].as_str());
}

/// Check that samples between the complete ones have all values of processes that ran, and for
/// processes that did not run the values that others changed: here the OOM score adjustment, and
/// the end of a child.
#[test]
fn idle_processes_are_as_they_are() {
    let directory = Recording::new("history-idle");
    let sleeper = Sleeper::new("idle");
    let adjust = format!("/proc/{}/oom_score_adj", sleeper.pid());
    let mut recorder = start(&["record", "--dir", directory.path(), "--every", "0.1"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    let until_sampled = |count: u64| {
        while (!directory.0.exists() || recorded_samples(&directory) < count) && Instant::now() < deadline {
            sleep(Duration::from_millis(10));
        }
    };
    until_sampled(3);
    fs::write(&adjust, "77").expect("it is ours");
    let busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
    let busy = Killed(busy.expect("sh exists"));
    until_sampled(recorded_samples(&directory) + 4);
    let at = |pid: &str, fields: &str| {
        let args = ["ps", "--history", directory.path(), "--json", "-p", pid, "-o", fields];
        let run = run(&args);
        rows(&run).first().cloned().unwrap_or_else(|| panic!("{run:?}"))
    };
    let busy_pid = busy.0.id().to_string();
    let (idle, then) = (
        at(&sleeper.pid(), "oom_score_adj,cmdline,limits,exe"),
        at(&busy_pid, "utime_ns,cmdline"),
    );
    assert_eq!(
        (&idle["oom_score_adj"], &idle["cmdline"][1]),
        (&Value::from(77), &Value::from("1000"))
    );
    assert!(idle["limits"].is_object() && idle["exe"].is_string(), "{idle}");
    until_sampled(recorded_samples(&directory) + 3);
    let later = at(&busy_pid, "utime_ns,cmdline");
    assert!(later["utime_ns"].as_u64() > then["utime_ns"].as_u64(), "{then} {later}");
    assert_eq!(
        (&then["cmdline"], later["cmdline"][0].as_str()),
        (&later["cmdline"], Some("sh"))
    );
    drop(busy);
    until_sampled(recorded_samples(&directory) + 2);
    let gone = run(&["ps", "--history", directory.path(), "-p", &busy_pid]);
    assert_eq!(gone.code, Some(1), "{gone:?}");
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
}

/// Check that a recorder, which writes nothing to its standard output, needs no reader of it.
#[test]
fn recorders_need_no_reader() {
    let directory = Recording::new("history-reader");
    let mut recorder = start(&["record", "--dir", directory.path(), "--every", "0.1"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut until_sampled = |count: u64| {
        while (!directory.0.exists() || recorded_samples(&directory) < count) && Instant::now() < deadline {
            assert_eq!(recorder.try_wait().expect("our own child"), None);
            sleep(Duration::from_millis(10));
        }
        drop(recorder.stdout.take());
    };
    until_sampled(1);
    until_sampled(recorded_samples(&directory) + 3);
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
}

/// Check that PSS is recorded if it has a budget, and that values beyond the budget are absent with
/// that reason.
#[test]
fn pss_has_a_budget() {
    let sleeper = Sleeper::new("proportional");
    let fields = "rss_bytes,pss_bytes,uss_bytes,cmdline";
    let args = ["ps", "--json", "-p", &sleeper.pid(), "-o", fields];
    let now = rows(&run(&args))[0].clone();
    for (budget, is_enough) in [("100%", true), ("0.0001%", false)] {
        let directory = Recording::new(if is_enough { "history-pss" } else { "history-no-pss" });
        let recorded = run(&[
            "record",
            "--dir",
            directory.path(),
            "-n",
            "1",
            "--every",
            "20s",
            "--pss-budget",
            budget,
        ]);
        assert!(
            recorded.code == Some(0) || recorded.stderr.contains("no events"),
            "{recorded:?}"
        );
        let then = rows(&run(&[&args[..], &["--history", directory.path()]].concat()))[0].clone();
        assert_eq!(then["cmdline"], now["cmdline"], "{budget}");
        if is_enough {
            // Other processes map the same program, and come and go.
            let bytes = |field: &str| then[field].as_u64().unwrap_or_else(|| panic!("{then}"));
            let pss = bytes("pss_bytes");
            assert!(
                pss > 0 && bytes("uss_bytes") <= pss && pss <= bytes("rss_bytes"),
                "{then}"
            );
        } else {
            for field in ["pss_bytes", "uss_bytes"] {
                assert_eq!(then["absent"][field], "over budget", "{then}");
            }
        }
    }
}

/// Check that a process is found while it lived, and not before or after.
#[test]
fn processes_come_and_go() {
    let directory = Recording::new("history-come-and-go");
    record(&directory, &["-n", "2"]);
    let sleeper = Sleeper::new("passing");
    record(&directory, &["-n", "2"]);
    let then = run(&["ps", "--history", directory.path(), "--json", "-o", "pid"]).json();
    let pid = sleeper.pid();
    drop(sleeper);
    sleep(Duration::from_millis(20));
    record(&directory, &["-n", "2"]);
    let has = |args: &[&str]| {
        let all = [
            &["ps", "--history", directory.path(), "--csv", "--no-header", "-o", "pid"],
            args,
        ]
        .concat();
        let run = run(&all);
        assert_eq!(run.code, Some(0), "{run:?}");
        run.text().lines().any(|line| line == pid)
    };
    assert!(!has(&[]));
    assert!(has(&["--at", then["time"].as_str().expect("a time")]));
    let first = run(&["history", "--json", directory.path()]).json();
    let first = first["rows"][0]["first_time"].as_str().expect("a time").to_owned();
    assert!(!has(&["--at", &first]));
    // The tree has the same process. Others may have arguments that are too large to be recorded.
    let tree = run(&[
        "tree",
        "--history",
        directory.path(),
        "--at",
        then["time"].as_str().expect("a time"),
        &pid,
    ]);
    // Arguments of other processes may have been too long.
    assert!(tree.text().contains("passing 1000"));
}

/// Check that the time of a sample is that of its values, also if another process held its reader after
/// they were read: a process with one thread uses no more than one processor.
#[test]
fn slow_samples_have_the_time_of_their_values() {
    let zoo = taskdiag_zoo::Zoo::new().expect("a zoo");
    let spinner = Sleeper::run(Command::new("sh").args(["-c", "while :; do :; done"]));
    let recording = Recording::new("slow");
    let recorder = Recorder::start(&recording, &["--every", "0.3s", "--patience", "0.5"]);
    let holders: Vec<_> = (0..4)
        .map(|_| {
            let holder = zoo.start("holds-lock").expect("a holder");
            recorder.wait_for_samples(2);
            holder
        })
        .collect();
    recorder.end();
    drop(holders);
    let pid = spinner.pid();
    drop(spinner);
    let mut at = Timestamp::now();
    let mut later: Option<(Timestamp, u64)> = None;
    let mut compared = 0;
    loop {
        let at_text = at.to_string();
        let args = ["ps", "--history", recording.path(), "--at", &at_text, "-p", &pid];
        let run = run(&[&args[..], &["-o", "utime_ns,stime_ns", "--json"]].concat());
        if run.code != Some(0) {
            break;
        }
        let document = run.json();
        let time: Timestamp = document["time"].as_str().expect("a time").parse().expect("a time");
        let row = &document["rows"][0];
        let used = ["utime_ns", "stime_ns"].map(|name| row[name].as_u64().expect("a time"));
        let used = used[0] + used[1];
        if let Some((later, used_later)) = later {
            let passed_ns = later.as_nanosecond() - time.as_nanosecond();
            let grown_ns = i128::from(used_later - used);
            // The clock ticks, and times are shown in milliseconds.
            assert!(
                grown_ns <= passed_ns + 30_000_000,
                "{grown_ns} of {passed_ns} ns at {later}"
            );
            compared += 1;
        }
        later = Some((time, used));
        at = time - jiff::SignedDuration::from_millis(1);
    }
    assert!(compared > 4, "{compared}");
}

/// Check that a period has every process that was in one of its samples, each as it was last seen,
/// and that percentages refer to the processor time used in the period.
#[test]
fn times_have_every_process() {
    let directory = Recording::new("history-times");
    let spinner = Sleeper::run(Command::new("sh").args(["-c", "while :; do :; done"]));
    record(&directory, &["-n", "2"]);
    let passing = Sleeper::new("passing");
    record(&directory, &["-n", "2"]);
    let (busy, passed) = (spinner.pid(), passing.pid());
    let ended = last_of(&directory, &passed);
    drop(passing);
    sleep(Duration::from_millis(20));
    record(&directory, &["-n", "3"]);
    drop(spinner);
    let history = |args: &[&str]| run(&[&["ps", "--history", directory.path(), "--json"], args].concat());
    let columns = "pid,utime_ns,stime_ns,cpu_percent,elapsed_ns,stat";
    let all = history(&["--from", "-1h", "-o", columns]);
    assert_eq!(all.code, Some(0), "{all:?}");
    let row = |run: &Run, pid: &str| {
        rows(run)
            .into_iter()
            .find(|row| row["pid"].as_u64() == pid.parse().ok())
    };
    // The process, including its age, is as in its last sample.
    let found = row(&all, &passed).expect("it was there");
    for field in ["utime_ns", "stat"] {
        assert_eq!(found[field], ended[field], "{field}");
    }
    assert_eq!(found["elapsed_ns"], ended["elapsed_ns"]);
    // The processor time is divided by the time between the first and the last sample.
    let file = run(&["history", "--json", directory.path()]);
    let full: Vec<Value> = rows(&file).into_iter().filter(|row| row["tier"] == "full").collect();
    let (first, last) = (&full[0]["first_time"], &full[full.len() - 1]["last_time"]);
    let at = |time: &Value| {
        let time = time.as_str().expect("a time");
        row(&history(&["--at", time, "-p", &busy, "-o", columns]), &busy).expect("it was there")
    };
    let (before, after) = (at(first), at(last));
    let ns = |row: &Value, field: &str| row[field].as_f64().expect("a number");
    let used = |row: &Value| ns(row, "utime_ns") + ns(row, "stime_ns");
    let elapsed = ns(&after, "elapsed_ns") - ns(&before, "elapsed_ns");
    let percent = (used(&after) - used(&before)) / elapsed * 100.0;
    let shown = ns(&row(&all, &busy).expect("it is there"), "cpu_percent");
    assert!(
        percent > 0.0 && (shown - percent).abs() < 0.01,
        "{shown} is not {percent}"
    );
    // A table of ps shows the same, in whole ticks of 10 ms.
    let line = run(&[
        "ps",
        "--history",
        directory.path(),
        "--from",
        "-1h",
        "-p",
        &busy,
        "-o",
        "pcpu=",
    ])
    .text();
    let cell: f64 = line.trim().parse().expect("a percentage");
    let ticks = 2.0 * 10e6 / elapsed * 100.0 + 0.1;
    assert!((cell - percent).abs() < ticks, "{cell} is not {percent} within {ticks}");
    // The process is absent after its end, and before its start.
    let begun = full
        .iter()
        .filter_map(|row| row["first_time"].as_str())
        .max()
        .expect("a file");
    for args in [["--from", begun], ["--to", begun]] {
        let run = history(&[&args[..], &["-o", "pid"]].concat());
        assert_eq!(row(&run, &passed).is_some(), args[0] == "--to", "{args:?}");
    }
    let tree = run(&["tree", "--history", directory.path(), "--from", "-1h"]);
    // Arguments of other processes may have been too long.
    assert!(tree.text().contains("passing 1000"));
    for (args, said) in [
        (
            &["--from", "2020-01-01", "--to", "2020-01-02"][..],
            "nothing was recorded in that time",
        ),
        (&["--from", "-1h", "--to", "-2h"], "--from has to be before --to"),
        (&["--from", "-1h", "--at", "-1h"], "cannot be used with"),
        (&["--from", "-1h", "--watch", "1"], "cannot be used with"),
    ] {
        let run = history(args);
        assert!(run.code == Some(2) && run.stderr.contains(said), "{run:?}");
    }
}

/// A process in the last sample.
#[track_caller]
fn last_of(directory: &Recording, pid: &str) -> Value {
    let fields = "pid,utime_ns,elapsed_ns,stat";
    let run = run(&["ps", "--history", directory.path(), "--json", "-p", pid, "-o", fields]);
    rows(&run)[0].clone()
}

/// Check that the account of the machine describes the recorded moment, and says that PSS was not
/// recorded.
#[test]
fn accounts_are_recorded() {
    let directory = Recording::new("history-account");
    let args = [
        "record",
        "--dir",
        directory.path(),
        "--every",
        "60",
        "-n",
        "1",
        "--pss-budget",
        "100%",
    ];
    let recorded = run(&args);
    assert!(
        recorded.code == Some(0) || recorded.stderr.contains("no events"),
        "{recorded:?}"
    );
    let info = fs::read_to_string("/proc/meminfo").expect("/proc is mounted");
    let total: u64 = info
        .split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .expect("MemTotal");
    let account = |args: &[&str]| run(&[&["mem", "--system", "--history", directory.path(), "--json"], args].concat());
    let then = account(&[]);
    let bytes = |run: &Run, item: &str| {
        let rows = rows(run);
        let row = rows
            .iter()
            .find(|row| row["item"] == item)
            .unwrap_or_else(|| panic!("no {item} in {run:?}"));
        row["bytes"].as_i64()
    };
    assert_eq!(bytes(&then, "total_bytes"), Some(total as i64 * 1024));
    assert!(
        bytes(&then, "processes_bytes") > Some(0) && bytes(&then, "free_bytes") > Some(0),
        "{then:?}"
    );
    let time = run(&["ps", "--history", directory.path(), "--json", "-o", "pid"]).json()["time"].clone();
    assert_eq!(then.json()["time"], time);
    let other = Recording::new("history-no-account");
    record(&other, &["-n", "1"]);
    let without = run(&["mem", "--system", "--history", other.path(), "--json"]);
    assert_eq!(
        (bytes(&without, "processes_bytes"), without.code),
        (None, Some(1)),
        "{without:?}"
    );
    assert!(without.stderr.contains("pss_anon_bytes"), "{}", without.stderr);
    // The kernel's counters are there without PSS, and kernel threads have none.
    let own = format!("pid == {} or kernel_thread", std::process::id());
    let table = run(&["mem", "--history", other.path(), "--no-header", "--where", &own]).text();
    let rows: Vec<Vec<&str>> = table.lines().map(|row| row.split_whitespace().collect()).collect();
    let is_size = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    assert_eq!(rows.len(), 2, "{table}");
    assert!(
        is_size(rows[0][2]) && rows[0][3..5] == ["-", "-"] && is_size(rows[0][5]),
        "{table}"
    );
    assert_eq!(
        rows[1],
        [&["total"], &rows[0][2..6], &["1", "process"]].concat(),
        "{table}"
    );
    for sums in [&["--total"][..], &["--by", "user"]] {
        let args = [
            &["mem", "--history", other.path(), "--no-header", "--where", &own][..],
            sums,
        ]
        .concat();
        let table = run(&args).text();
        let sum: Vec<&str> = table.lines().next().expect("a sum").split_whitespace().collect();
        assert_eq!(sum[..5], [&["1"], &rows[0][2..6]].concat(), "{table}");
    }
}

/// Check that killing the recorder loses nothing that was recorded, and that the next recorder
/// continues.
#[test]
fn killed_recorders_lose_nothing() {
    let directory = Recording::new("history-killed");
    let mut counted = 0;
    for round in 0..3 {
        let mut recorder = start(&["record", "--dir", directory.path(), "--every", "0.02"]);
        let deadline = Instant::now() + Duration::from_secs(60);
        while recorded_samples(&directory) < counted + 3 + round && Instant::now() < deadline {
            sleep(Duration::from_millis(7));
        }
        recorder.kill().expect("it runs");
        recorder.wait().expect("it ends");
        let run = run(&["history", "--verify", "--json", directory.path()]);
        // The last sample may be torn.
        assert!(
            run.code == Some(0) || run.stderr.lines().count() as u64 <= round + 1,
            "{run:?}"
        );
        let samples = recorded_samples(&directory);
        assert!(samples > counted + 1, "{samples} samples, {counted} before");
        counted = samples;
    }
    let here = std::process::id().to_string();
    let text = run(&["ps", "--history", directory.path(), "-p", &here, "-o", "pid="]).text();
    assert_eq!(text.trim(), here);
}

/// Check that two recorders can't write to one directory, that other users can't read it, and that
/// reading works during recording.
#[test]
fn a_directory_has_one_recorder() {
    let directory = Recording::new("history-one");
    let mut first = start(&["record", "--dir", directory.path(), "--every", "0.05"]);
    let deadline = Instant::now() + Duration::from_secs(30);
    while (!directory.0.exists() || recorded_samples(&directory) == 0) && Instant::now() < deadline {
        sleep(Duration::from_millis(10));
    }
    let second = run(&["record", "--dir", directory.path(), "-n", "1"]);
    assert_eq!(second.code, Some(2));
    assert!(
        second.stderr.contains(&format!("process {}", first.id())),
        "{}",
        second.stderr
    );
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&directory.0), 0o700);
    assert_eq!(mode(&full(&directory)[0]), 0o600);
    for _ in 0..20 {
        let run = run(&["ps", "--history", directory.path(), "--csv", "-o", "pid"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.text().lines().count() > 1);
    }
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let open = run(&["record", "--dir", directory.path(), "-n", "1"]);
    assert_eq!(open.code, Some(2));
    assert!(open.stderr.contains("chmod 700"), "{}", open.stderr);
}

/// Check that processes which ran and ended between two samples are there, as single events and in
/// sums.
#[test]
fn short_lived_processes_are_recorded() {
    let directory = Recording::new("history-events");
    let mut recorder = start(&["record", "--dir", directory.path(), "--every", "0.3"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while (!directory.0.exists() || recorded_samples(&directory) == 0) && Instant::now() < deadline {
        sleep(Duration::from_millis(10));
    }
    let ended = Command::new("sh").args(["-c", "exit 77"]).spawn().expect("sh exists");
    let pid = ended.id();
    assert_eq!(ended.wait_with_output().expect("it ends").status.code(), Some(77));
    let counted = recorded_samples(&directory);
    while recorded_samples(&directory) < counted + 2 && Instant::now() < deadline {
        sleep(Duration::from_millis(10));
    }
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    let run = run(&[
        "events",
        "--history",
        directory.path(),
        "--json",
        "--kind",
        "exit",
        "--where",
        &format!("pid == {pid}"),
    ]);
    let rows = rows(&run);
    assert_eq!(rows.len(), 1, "{run:?}");
    assert_eq!(
        (&rows[0]["exit_code"], &rows[0]["comm"]),
        (&Value::from(77), &Value::from("sh"))
    );
    let refused = common::run(&["events", "--history", directory.path(), "-p", "1"]);
    assert_eq!(refused.code, Some(2));
    let none = common::run(&["events", "--history", directory.path(), "--to", "2020-01-01"]);
    assert!(
        none.code == Some(2) && none.stderr.contains("nothing was recorded in that time"),
        "{none:?}"
    );
}

/// Check that secrets are not recorded: never environments, and on request no command lines.
#[test]
fn secrets_are_left_out() {
    let directory = Recording::new("history-secrets");
    let sleeper = Sleeper::start(Command::new("sleep").env("TOKEN", "recorded-secret"));
    record(&directory, &["-n", "1", "--no-cmdline"]);
    let row = run(&[
        "ps",
        "--history",
        directory.path(),
        "--json",
        "-p",
        &sleeper.pid(),
        "-o",
        "pid,comm,cmdline,environ",
    ]);
    assert_eq!(row.code, Some(1), "{row:?}");
    let rows = rows(&row);
    assert_eq!(rows[0]["comm"], "sleep");
    for field in ["cmdline", "environ"] {
        assert_eq!(rows[0]["absent"][field], "unsupported", "{row:?}");
    }
    let asked = run(&["record", "--dir", directory.path(), "-n", "1", "-o", "pid,environ"]);
    assert_eq!(asked.code, Some(2));
    assert!(asked.stderr.contains("never recorded"), "{}", asked.stderr);
    let noted = run(&["history", directory.path()]);
    assert!(noted.text().contains("command lines were left out"));
}

/// Check that an export of another period loses nothing that was exported before: a file becomes
/// what an export of both periods at once makes.
#[test]
fn exports_only_grow() {
    let directory = Recording::new("history-grow");
    record(&directory, &["-n", "4"]);
    let file = run(&["history", "--json", directory.path()]).json();
    let last = file["rows"][0]["last_time"].as_str().expect("a time").to_owned();
    let (whole, parts) = (
        Recording::new("history-grow-whole"),
        Recording::new("history-grow-parts"),
    );
    let export = |out: &Recording, args: &[&str], said: &str| {
        let run = run(&[&["history", "export", directory.path(), "--parquet", out.path()], args].concat());
        assert!(
            run.code == Some(0) && run.stderr.starts_with(&format!("taskdiag: {said} exported")),
            "{run:?}"
        );
    };
    export(&whole, &[], "4 samples");
    export(&parts, &["--to", &last], "3 samples");
    export(&parts, &["--from", &last], "1 sample");
    export(&parts, &["--to", &last], "3 samples");
    for table in ["processes", "memory"] {
        let bytes = |out: &Recording| {
            let found = Command::new("find")
                .arg(out.0.join(table))
                .args(["-type", "f"])
                .output();
            let found = String::from_utf8(found.expect("find exists").stdout).expect("a path");
            let mut files: Vec<Vec<u8>> = found.lines().map(|path| fs::read(path).expect("it is ours")).collect();
            files.sort();
            files
        };
        assert!(!bytes(&whole).is_empty() && bytes(&whole) == bytes(&parts), "{table}");
    }
}
