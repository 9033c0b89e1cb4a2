//! `taskdiag events`, run as a program.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{free_pid, run, run_as_nobody, start, Run, Sleeper};
use serde_json::{json, Value};
use taskdiag_testkit::cgroup_mount;

/// A run of `taskdiag events` that has started to watch.
struct Watch {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Watch {
    /// Starts to watch, as CSV with a header. Once the header appears, the programs are attached.
    fn new(args: &[&str]) -> Watch {
        let mut child = start(&[&["events", "--csv"], args].concat());
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut header = String::new();
        stdout.read_line(&mut header).expect("a header");
        assert!(header.ends_with('\n') && !header.ends_with("\r\n"), "{header:?}");
        Watch { child, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.stdout.read_line(&mut line).expect("a row");
        assert!(length > 0, "the command ended");
        line.trim_end().to_owned()
    }

    /// Sends a signal. Returns the rest of the output, the messages, and the exit status.
    fn end(mut self, signal: &str) -> (String, String, Option<i32>) {
        let kill = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(kill.expect("kill exists").success());
        let (mut rest, mut said) = (String::new(), String::new());
        self.stdout.read_to_string(&mut rest).expect("rows");
        let stderr = self.child.stderr.as_mut().expect("a pipe");
        stderr.read_to_string(&mut said).expect("a message");
        (rest, said, self.child.wait().expect("it ends").code())
    }
}

/// Returns when `taskdiag events` waits for events. It writes nothing before the first event.
fn wait_until_it_waits(watching: &Child) {
    let place = format!("/proc/{}/wchan", watching.id());
    let start = Instant::now();
    while !std::fs::read_to_string(&place).is_ok_and(|function| function.contains("poll")) {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not wait");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a script in a shell while `taskdiag events` watches the shell.
fn watch_shell(script: &str, args: &[&str]) -> (u32, Run) {
    let mut shell = Command::new("sh")
        .args(["-c", &format!("read x; {script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("sh exists");
    let pid = shell.id();
    let watching = start(&[&["events", "-p", &pid.to_string()], args].concat());
    wait_until_it_waits(&watching);
    drop(shell.stdin.take());
    let output = watching.wait_with_output().expect("it ends with the shell");
    shell.wait().expect("the shell ends");
    (pid, Run::new(output))
}

fn rows(run: &Run) -> Vec<Value> {
    let text = String::from_utf8(run.stdout.clone()).expect("the output is UTF-8");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("rows are JSON"))
        .collect()
}

/// Check that a process is watched with its descendants until all have ended.
#[test]
fn a_family_is_watched_to_its_end() {
    let script = "(exit 3); sh -c 'kill -9 $$'; sh -c '/bin/true & wait'; exit 7";
    let (pid, run) = watch_shell(script, &["--jsonl", "-o", "all"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let rows = rows(&run);
    let of_kind = |kind: &str| rows.iter().filter(|row| row["event"] == kind).count();
    // The shell itself started before.
    assert_eq!((of_kind("fork"), of_kind("exit")), (4, 5), "{rows:#?}");
    let last = rows.last().expect("an event");
    assert_eq!(
        (&last["event"], &last["pid"], &last["exit_code"]),
        (&json!("exit"), &json!(pid), &json!(7))
    );
    assert!(rows
        .iter()
        .any(|row| row["term_signal"] == 9 && row.get("exit_code").is_none()));
    assert!(rows.iter().any(|row| row["exit_code"] == 3 && row["ppid"] == pid));
    assert!(rows
        .iter()
        .any(|row| row["filename"] == "/bin/true" && row["comm"] == "true"));
    // What does not apply to this kind of event says so; nothing else is missing.
    let reasons = |row: &Value| row["absent"].as_object().cloned().unwrap_or_default();
    assert!(rows
        .iter()
        .all(|row| reasons(row).values().all(|reason| reason == "none")
            && row["start_ns"].as_u64() <= row["time_ns"].as_u64()));
    let fork = rows.iter().find(|row| row["event"] == "fork").expect("a fork");
    assert_eq!(reasons(fork)["filename"], "none", "{fork}");
    assert!(
        run.stderr.contains(&format!("{} events, 0 lost", rows.len())),
        "{}",
        run.stderr
    );
}

/// A cgroup, removed with its slice when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates `tdevents<pid>.slice/<name>`. `None` if the unified hierarchy is not mounted.
    fn new(name: &str) -> Option<Cgroup> {
        let slice = format!("tdevents{}.slice", std::process::id());
        let path = cgroup_mount()?.join(slice).join(name);
        std::fs::create_dir_all(&path).expect("a cgroup");
        Some(Cgroup(path))
    }

    /// Runs a shell that enters the cgroup, runs a program, and ends.
    fn run(&self, program: &str) -> u32 {
        let script = format!("echo $$ >{}/cgroup.procs && {program} && :", self.0.display());
        let mut shell = Command::new("sh").args(["-c", &script]).spawn().expect("sh exists");
        assert!(shell.wait().expect("it ends").success());
        shell.id()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has ended may stay in the cgroup for a moment.
        let start = Instant::now();
        while std::fs::remove_dir(&self.0).is_err() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = std::fs::remove_dir(self.0.parent().expect("a slice"));
    }
}

/// Check that events are selected by the cgroup of their process, even if the cgroup is new, or
/// gone when the event is read.
#[test]
fn events_are_selected_by_cgroup() {
    let unit = format!("events{}.service", std::process::id());
    let Some(before) = Cgroup::new(&unit) else {
        let systems = std::fs::read_to_string("/proc/filesystems").expect("file systems");
        println!("no unified cgroups are mounted: {systems}");
        return;
    };
    let path = format!("/tdevents{}.slice", std::process::id());
    let expression = format!("unit == '{unit}' and uid == 0 and cgroup ~ 'slice'");
    for selected in [["--unit", &unit], ["--cgroup", &path], ["--where", &expression]] {
        let watch = Watch::new(&[&selected[..], &["-o", "event,pid,cgroup_id"]].concat());
        let shell = before.run("/bin/true");
        let (rest, said, _) = watch.end("-TERM");
        let id = std::os::unix::fs::MetadataExt::ino(&before.0.metadata().expect("a cgroup"));
        let rows: Vec<Vec<&str>> = rest.lines().map(|row| row.split(',').collect()).collect();
        let kinds: Vec<&str> = rows.iter().map(|row| row[0]).collect();
        assert_eq!(kinds, ["fork", "exec", "exit", "exit"], "{selected:?} {rest} {said}");
        assert_eq!(rows[3][1], shell.to_string(), "{rest}");
        assert!(rows.iter().all(|row| row[2] == id.to_string()), "{id} {rest}");
    }
}

/// Check that events are selected by what only events have, and that those of other kinds count as
/// not selected, not as undecided.
#[test]
fn ends_are_selected_by_their_status() {
    let watch = Watch::new(&[
        "--where",
        "exit_code == 7 or term_signal == 9",
        "-o",
        "event,pid,exit_code",
    ]);
    let mut pids = Vec::new();
    for script in ["exit 7", "exit 0", "kill -9 $$"] {
        let mut child = Command::new("sh").args(["-c", script]).spawn().expect("a shell");
        pids.push(child.id());
        child.wait().expect("it ends");
    }
    let (rest, said, _) = watch.end("-TERM");
    let ours = rest
        .lines()
        .filter(|row| pids.iter().any(|pid| row.contains(&format!(",{pid},"))));
    let expected = [format!("exit,{},7", pids[0]), format!("exit,{},", pids[2])];
    assert_eq!(ours.collect::<Vec<_>>(), expected, "{rest}");
    assert!(!said.contains("left out"), "{said}");
}

/// Check that children are watched, but not their parent.
#[test]
fn children_are_watched() {
    let mut parent = Command::new("sh")
        .args(["-c", "sh -c 'read x; exit 5'; exit 0"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh exists");
    let pid = parent.id().to_string();
    let begun = Instant::now();
    while run(&["ps", "--children", &pid, "-o", "pid", "--no-header"])
        .stdout
        .is_empty()
    {
        assert!(begun.elapsed() < Duration::from_secs(60), "it has no child");
    }
    let watching = start(&["events", "--children", &pid, "-o", "event,ppid,exit_code", "--csv"]);
    wait_until_it_waits(&watching);
    drop(parent.stdin.take());
    let run = Run::new(watching.wait_with_output().expect("it ends with the child"));
    assert!(parent.wait().expect("it ends").success());
    let rows = String::from_utf8_lossy(&run.stdout);
    assert_eq!(rows, format!("event,ppid,exit_code\nexit,{pid},5\n"), "{}", run.stderr);
}

/// Check the table, and that only the chosen kinds are shown.
#[test]
fn the_table_shows_chosen_kinds() {
    let (pid, run) = watch_shell("(exit 3); exec /bin/sleep 0", &["--kind", "exec,exit"]);
    let text = run.text();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["TIME", "EVENT", "PID", "PPID", "USER", "NAME", "DETAIL"]);
    let pid = pid.to_string();
    assert_eq!(
        (lines[1][1], lines[1][3], &lines[1][6..]),
        ("exit", pid.as_str(), &["code", "3"][..]),
        "{text}"
    );
    assert_eq!(
        (lines[2][1], lines[2][2], lines[2][5]),
        ("exec", pid.as_str(), "sleep"),
        "{text}"
    );
    assert!(lines[2][6].ends_with("/sleep"), "{text}");
    assert_eq!(
        (lines[3][1], &lines[3][6..], lines.len()),
        ("exit", &["code", "0"][..], 4),
        "{text}"
    );
}

/// Check that the JSON document has rows, the source and counters.
#[test]
fn a_document_is_whole_at_the_end() {
    let (_, run) = watch_shell("(exit 3); :", &["--json", "--count", "2"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let document = run.json();
    assert_eq!(
        (&document["command"], &document["sources"]["events"]),
        (&json!("events"), &json!("bpf"))
    );
    assert_eq!(
        document["counters"],
        json!({"events": 2, "lost": 0, "lost_is_exact": true})
    );
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(
        (rows.len(), &rows[0]["event"], &rows[1]["exit_code"]),
        (2, &json!("fork"), &json!(3))
    );
}

/// Check that rows appear at once, and that both signals end the command with the counters.
#[test]
fn signals_end_it_with_its_counters() {
    for signal in ["-INT", "-TERM"] {
        let mut watch = Watch::new(&["--kind", "exec", "-o", "event,filename"]);
        let start = Instant::now();
        // Another process's row may come first.
        let marker = format!("/bin/../bin/{}true", "./".repeat(7));
        Command::new(&marker).status().expect("true exists");
        while watch.line() != format!("exec,{marker}") {}
        assert!(start.elapsed() < Duration::from_secs(10));
        let (_, said, code) = watch.end(signal);
        assert!(
            said.starts_with("taskdiag: ") && said.trim_end().ends_with(" lost (bpf)"),
            "{said}"
        );
        assert_eq!(code, Some(i32::from(!said.contains(" 0 lost"))), "{said}");
    }
}

/// Check that the command ends when its reader goes away: silently, and without waiting for an
/// event.
#[test]
fn a_closed_pipe_is_silent() {
    let Watch { mut child, stdout } = Watch::new(&["-u", "4000000000"]);
    drop(stdout);
    let start = Instant::now();
    let status = child.wait().expect("it ends");
    let mut said = String::new();
    child
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut said)
        .expect("a message");
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// Check that the command uses no processor time while it waits.
#[test]
fn waiting_costs_nothing() {
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("sleep exists");
    let watch = Watch::new(&["-p", &sleeper.id().to_string(), "--kind", "exec"]);
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", watch.child.id())).expect("it runs");
        let values: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
        [12, 13]
            .iter()
            .map(|&index| values[index].parse::<u64>().expect("a number"))
            .sum()
    };
    wait_until_it_waits(&watch.child);
    // Processes of other tests wake it sometimes, so one quiet second is enough.
    let costs_nothing = || {
        let before = ticks();
        std::thread::sleep(Duration::from_secs(1));
        ticks() - before <= 3
    };
    assert!((0..60).any(|_| costs_nothing()), "it has used {} ticks", ticks());
    sleeper.kill().expect("it is ours");
    sleeper.wait().expect("it ends");
    let (rest, said, code) = watch.end("-TERM");
    assert_eq!((rest.as_str(), code), ("", Some(0)), "{said}");
}

/// Check that the command ends after the given time, with each source.
#[test]
fn it_ends_in_time() {
    for source in ["bpf", "connector"] {
        let start = Instant::now();
        let run = run(&[
            "events",
            "--for",
            "0.5",
            "--source",
            source,
            "-u",
            "4000000000",
            "--jsonl",
            "-o",
            "pid",
        ]);
        assert!(start.elapsed() >= Duration::from_millis(500));
        assert!(run.stdout.is_empty() && run.stderr.contains("0 events, "), "{run:?}");
    }
}

/// Check that wrong usage and missing processes have their own exit status.
#[test]
fn wrong_usage_is_refused() {
    let unknown = run(&["events", "-o", "pid,rss"]);
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.stderr.contains("\"rss\"") && unknown.stderr.contains("peak_rss_bytes"),
        "{}",
        unknown.stderr
    );
    for fields in ["cmdline", "+args", "pid,command"] {
        let unknown = run(&["events", "--kind", "exec", "-o", fields]);
        assert_eq!(unknown.code, Some(2));
        assert!(unknown.stderr.contains("events have no arguments"), "{unknown:?}");
    }
    let nobody = run(&["events", "--for", "0.01", "--unit", "nosuch"]);
    assert!(nobody.stderr.contains("\"nosuch\": it has no process ("), "{nobody:?}");
    for args in [["--for", "-1"], ["--for", "x"], ["--count", "0"], ["--kind", "clone"]] {
        assert_eq!(run(&["events", args[0], args[1]]).code, Some(2), "{args:?}");
    }
    for (expression, field) in [
        ("rss_bytes > 1M", "rss_bytes"),
        ("pid > rss", "rss_bytes"),
        ("cpu > 99", "cpu"),
    ] {
        let absent = run(&["events", "--where", expression]);
        assert_eq!(absent.code, Some(2));
        let said = format!("events do not have {field}: ");
        assert!(absent.stderr.contains(&said), "{}", absent.stderr);
        assert_eq!(absent.stderr.matches("taskdiag: ").count(), 1, "{}", absent.stderr);
    }
    let missing = run(&["events", "-p", &free_pid()]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("no such process"), "{}", missing.stderr);
    // The document is whole, whether there is nobody to watch or nobody ever was.
    let childless = Sleeper::new("childless");
    for (pid, code) in [(childless.pid(), 0), (free_pid(), 1)] {
        for option in ["--children", "--descendants"] {
            let nobody = run(&["events", option, &pid, "--json"]);
            assert_eq!(nobody.code, Some(code), "{nobody:?}");
            assert_eq!(nobody.stderr.contains("no such process"), code == 1, "{nobody:?}");
            assert_eq!(nobody.json()["rows"], json!([]), "{nobody:?}");
        }
    }
}

/// Check that the user nobody gets a refusal with the missing capabilities and what to do.
#[test]
fn nobody_is_refused_with_the_reason() {
    let Some(run) = run_as_nobody(&["events", "--source", "bpf", "--for", "1"]) else {
        return;
    };
    assert_eq!((run.code, run.stdout.len()), (Some(2), 0));
    assert!(
        run.stderr.contains("CAP_BPF and CAP_PERFMON are missing"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("run as root"), "{}", run.stderr);
}

/// Check that the documentation names all fields.
#[test]
fn the_documentation_names_all_fields() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.md");
    let documented = std::fs::read_to_string(path).expect("docs/events.md");
    for field in taskdiag::EventField::ALL {
        let row = format!("| `{field}` | {} |", field.meaning());
        assert!(documented.contains(&row), "docs/events.md lacks: {row}");
    }
}
