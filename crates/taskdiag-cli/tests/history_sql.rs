//! Exported recordings: the questions of docs/history.md, answered by DuckDB.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{copy_program, place_for_recordings, run, start, Recording, Sleeper};
use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;
use taskdiag_testkit::cgroup::MemoryGroup;
use taskdiag_testkit::temporary::{Directory, Killed};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The blocks of SQL of the document.
fn questions() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/history.md")).expect("the document");
    let blocks = text.split("```sql\n").skip(1);
    let questions: Vec<String> = blocks
        .map(|block| block.split("```").next().expect("a block ends").to_owned())
        .collect();
    assert_eq!(questions.len(), 6);
    questions
}

/// Check that the document describes the tables as they are.
#[test]
fn tables_are_documented() {
    let tables = run(&["history", "tables"]).complete();
    let document = fs::read_to_string(root().join("docs/history.md")).expect("the document");
    assert!(
        document.contains(tables.trim_end()),
        "docs/history.md should have what `taskdiag history tables` prints"
    );
}

/// Runs a query in a directory. Returns the rows as objects.
#[track_caller]
fn query(directory: &Path, sql: &str) -> Vec<Value> {
    const SCRIPT: &str = "import sys, json, duckdb\n\
        result = duckdb.sql(sys.argv[1])\n\
        print(json.dumps([dict(zip(result.columns, row)) for row in result.fetchall()], default=str))\n";
    let output = Command::new(root().join("dev/duckdb.sh").canonicalize().expect("the script"))
        .args(["-c", SCRIPT, sql])
        .current_dir(directory)
        .output()
        .expect("it runs");
    assert!(
        output.status.success(),
        "{sql}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Check that a question about one host reads only that host's files, not those of all hosts.
#[track_caller]
fn check_fleet(export: &Path, fleet: &Path) {
    let output = Command::new(root().join("dev/duckdb.sh").canonicalize().expect("the script"))
        .arg(root().join("dev/fleet.py").canonicalize().expect("the program"))
        .args([export, fleet])
        .args(["--hosts", "3", "--json"])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let exported = files_below(&export.join("processes")).len();
    assert_eq!(report["tables"]["processes"]["files"], 3 * exported);
    let questions = report["questions"].as_array().expect("a list");
    assert_eq!(questions.len(), 5);
    for question in questions {
        let read = |of: &str| question[of]["files_read"].as_u64().expect("a number");
        assert!(read("one") > 0 && read("all") == 3 * read("one"), "{question}");
        assert!(question["all"]["rows"].as_u64() > Some(0), "{question}");
    }
}

/// Check that the questions of the document have answers, and that these are right.
#[test]
fn questions_have_answers() {
    let directory = std::env::temp_dir().join(format!("taskdiag-sql-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).expect("a directory");
    let history = place_for_recordings().join(format!("taskdiag-sql-{}", std::process::id()));
    let _ = fs::remove_dir_all(&history);
    let (history, out) = (history.to_str().expect("a path"), directory.join("out"));
    let recorded = run(&["record", "--dir", history, "--every", "0.2", "-n", "2"]);
    assert_eq!(recorded.code, Some(0), "{recorded:?}");
    let program = directory.join("newprogram");
    copy_program("/bin/sleep".as_ref(), &program).expect("it is there");
    let sleeper = Sleeper::start(&mut Command::new(&program));
    let busy = Sleeper::run(Command::new("sh").args([
        "-c",
        "while :; do /bin/true; i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; done",
    ]));
    let group = MemoryGroup::new("sql");
    group.limit(16 << 20);
    let victim = format!("echo $$ >{}; sleep 1; exec tail /dev/zero", group.processes().display());
    let script = format!("while :; do sh -c '{victim}'; done");
    let victims = Sleeper::run(Command::new("sh").args(["-c", &script]));
    let samples_count = || {
        let rows = run(&["history", "--json", history]).json()["rows"].take();
        let full = rows
            .as_array()
            .expect("rows")
            .iter()
            .filter(|row| row["tier"] == "full");
        full.map(|row| row["samples_count"].as_u64().expect("a number"))
            .sum::<u64>()
    };
    let mut recorder = Killed(start(&["record", "--dir", history, "--every", "0.2"]));
    let deadline = Instant::now() + Duration::from_secs(120);
    let wait_until = |is: &dyn Fn() -> bool| {
        while !is() {
            assert!(Instant::now() < deadline, "it takes too long");
            sleep(Duration::from_millis(50));
        }
    };
    wait_until(&|| samples_count() >= 4);
    // Of two more victims, the second one begins after a sample, and is in several.
    let before = group.oom_kills();
    wait_until(&|| group.oom_kills() >= before + 2);
    sleep(Duration::from_secs(1));
    kill_process(Pid::from_child(&recorder.0), Signal::TERM).expect("it runs");
    recorder.0.wait().expect("it ends");
    drop(victims);
    let busy_pid = busy.pid().parse::<u64>().expect("a number");
    // What was recorded is asked about from here on.
    drop(busy);
    let samples = samples_count();
    let args = ["history", "export", history, "--parquet", out.to_str().expect("a path")];
    let exported = run(&args);
    assert_eq!(exported.code, Some(0), "{exported:?}");
    // Exporting again makes no copies.
    assert_eq!(run(&args).code, Some(0));

    let counted = query(
        &out,
        "SELECT count(DISTINCT time) AS samples FROM 'processes/*/*/*.parquet'",
    );
    assert_eq!(counted[0]["samples"], samples);
    let pid = sleeper.pid();
    let row = query(
        &out,
        &format!("SELECT comm, cmdline, uid, host FROM 'processes/*/*/*.parquet' WHERE pid = {pid} ORDER BY time"),
    );
    assert_eq!(row.len() as u64, samples - 2);
    // All tables have the same process.
    let which = format!(
        "SELECT count(DISTINCT start_ns || boot_id) AS processes FROM 'processes/*/*/*.parquet' WHERE pid = {pid}"
    );
    assert_eq!(query(&out, &which)[0]["processes"], 1);
    let host = run(&["ps", "--json", "-p", &pid]).json()["host"].clone();
    assert_eq!(
        row[row.len() - 1],
        serde_json::json!({"comm": "newprogram", "cmdline": format!("{} 1000", program.display()), "uid": rustix::process::getuid().as_raw(), "host": host})
    );

    // The recording is new.
    let last = run(&["ps", "--history", history, "--json", "-o", "pid"]).json();
    let last = last["time"].as_str().expect("a time").to_owned();
    let moment = |sql: &String| {
        let begun = sql.replace("2026-11-23 02:52:00Z", "2026-01-01 00:00:00Z");
        begun.replace("2026-11-23 03:12:00Z", &format!("{}999Z", last.trim_end_matches('Z')))
    };
    let questions: Vec<String> = questions().iter().map(moment).collect();
    let answers: Vec<Vec<Value>> = questions.iter().map(|sql| query(&out, sql)).collect();
    for (question, answer) in questions.iter().zip(&answers) {
        assert!(!answer.is_empty(), "{question}");
    }
    assert!(
        answers[0].iter().all(|row| row["processes"].as_u64() > Some(0)),
        "{:?}",
        answers[0]
    );
    let kills = &answers[1];
    assert!(kills.len() as u64 <= group.oom_kills(), "{kills:?}");
    let kill = kills.iter().find(|kill| kill["last_rss_bytes"].as_u64() > Some(0));
    let kill = kill.unwrap_or_else(|| panic!("none of those killed is in a sample: {kills:?}"));
    assert_eq!(kill["comm"], "tail", "{kill}");
    assert!(kill["peak_rss_bytes"].as_u64() > Some(8 << 20), "{kill}");
    assert!(answers[2][0]["forks"].as_u64() > Some(10), "{:?}", answers[2]);
    let new: Vec<&Value> = answers[3].iter().map(|row| &row["comm"]).collect();
    assert!(
        new.contains(&&Value::from("newprogram")) && !new.contains(&&Value::from("init")),
        "{new:?}"
    );
    assert!(answers[4][0]["p99_bytes"].as_f64() > Some(0.0), "{:?}", answers[4]);
    let shell = answers[5].iter().find(|row| row["pid"] == busy_pid);
    let percent = shell.and_then(|row| row["cpu_percent"].as_f64()).expect("it ran");
    assert!(percent > 1.0 && percent < 400.0, "{percent}");
    check_fleet(&out, &directory.join("fleet"));
    fs::remove_dir_all(history).expect("it is ours");
    fs::remove_dir_all(&directory).expect("it is ours");
}

/// What is below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] })
        .collect()
}

/// Check that incomplete output does not exist, and that an export that is killed, and several at
/// once, leave nothing that looks complete but is not.
#[test]
fn exports_are_whole_or_not_there() {
    let history = Recording::new("export-whole");
    let recorded = run(&["record", "--dir", history.path(), "--every", "0.2", "-n", "5"]);
    assert_eq!(recorded.code, Some(0), "{recorded:?}");
    let place = Directory::new("export-whole-out");
    let (out, page) = (place.join("out"), place.join("page.html"));
    let words = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let export = ["history", "export", history.path(), "--parquet", &words(&out)].map(str::to_owned);
    let report = ["report", "--history", history.path(), "-o", &words(&page)].map(str::to_owned);
    // Limits the size of files to this many blocks of 512 bytes.
    for args in [&export, &report] {
        let limited = Command::new("sh")
            .args([
                "-c",
                "trap '' XFSZ; ulimit -f 4; exec \"$@\"",
                "sh",
                env!("CARGO_BIN_EXE_taskdiag"),
            ])
            .args(args)
            .output()
            .expect("a shell");
        let said = String::from_utf8_lossy(&limited.stderr);
        assert!(
            limited.status.code() == Some(2) && said.contains("File too large"),
            "{said}"
        );
        let left: Vec<PathBuf> = files_below(&place);
        assert!(
            left.iter().all(|path| path.extension() == Some("parquet".as_ref())),
            "{left:?}"
        );
        check_whole(&left);
    }
    let start = |args: &[String]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_taskdiag"));
        command
            .args(args)
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs")
    };
    for ms in [10, 60, 200] {
        for args in [&export, &report] {
            let mut child = start(args);
            sleep(Duration::from_millis(ms));
            child.kill().expect("our own child");
            child.wait().expect("our own child");
        }
        check_whole(&files_below(&place));
    }
    let together = [(); 4].map(|()| start(&export));
    for mut child in together {
        assert_eq!(child.wait().expect("our own child").code(), Some(0));
    }
    let all = files_below(&out);
    check_whole(&all);
    assert!(
        all.iter()
            .filter(|path| path.extension() == Some("parquet".as_ref()))
            .count()
            >= 3,
        "{all:?}"
    );
}

/// Check that files whose names say that they are whole begin and end as such do.
#[track_caller]
fn check_whole(files: &[PathBuf]) {
    for path in files {
        let bytes = fs::read(path).expect("it is ours");
        let is_whole = match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => bytes.len() > 8 && bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"),
            Some("html") => bytes.ends_with(b"</html>\n"),
            extension => extension == Some("unfinished"),
        };
        assert!(is_whole, "{} has {} bytes", path.display(), bytes.len());
    }
}
