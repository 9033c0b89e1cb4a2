//! Exported recordings: the questions of docs/history.md, answered by DuckDB.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{copy_program, place_for_recordings, run, Sleeper};
use serde_json::Value;

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
    assert_eq!(questions.len(), 5);
    questions
}

/// Check that the document has the tables as they are.
#[test]
fn tables_are_documented() {
    let tables = run(&["history", "tables"]).complete();
    let document = fs::read_to_string(root().join("docs/history.md")).expect("the document");
    assert!(
        document.contains(tables.trim_end()),
        "docs/history.md should have what `taskdiag history tables` prints"
    );
}

/// Runs a query in a directory. The rows, as objects.
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

/// Check that of many hosts' tables a question about one reads only its files.
#[track_caller]
fn check_fleet(export: &Path, fleet: &Path) {
    let output = Command::new(root().join("dev/duckdb.sh").canonicalize().expect("the script"))
        .arg(root().join("dev/fleet.py").canonicalize().expect("the program"))
        .args([export, fleet])
        .args(["--hosts", "3", "--every", "10", "--json"])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["tables"]["processes"]["files"], 3);
    let questions = report["questions"].as_array().expect("a list");
    assert_eq!(questions.len(), 5);
    for question in questions {
        let read = |of: &str| question[of]["files_read"].as_u64().expect("a number");
        assert!(read("one") > 0 && read("all") == 3 * read("one"), "{question}");
        assert!(question["all"]["rows"].as_u64() > Some(0), "{question}");
    }
}

/// Check that the questions of the document have answers, and that the answers are right.
#[test]
fn questions_have_answers() {
    let directory = std::env::temp_dir().join(format!("taskdiag-sql-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).expect("a directory");
    let history = place_for_recordings().join(format!("taskdiag-sql-{}", std::process::id()));
    let _ = fs::remove_dir_all(&history);
    let (history, out) = (history.to_str().expect("a path"), directory.join("out"));
    let record = |count| {
        let run = run(&["record", "--dir", history, "--every", "0.2", "-n", count]);
        assert_eq!(run.code, Some(0), "{run:?}");
    };
    record("2");
    let program = directory.join("newprogram");
    copy_program("/bin/sleep".as_ref(), &program).expect("it is there");
    let sleeper = Sleeper::start(&mut Command::new(&program));
    let busy = Sleeper::run(Command::new("sh").args([
        "-c",
        "while :; do /bin/true; i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; done",
    ]));
    record("6");
    let args = ["history", "export", history, "--parquet", out.to_str().expect("a path")];
    let exported = run(&args);
    assert_eq!(exported.code, Some(0), "{exported:?}");
    // Once more makes no copies.
    assert_eq!(run(&args).code, Some(0));

    let counted = query(
        &out,
        "SELECT count(DISTINCT time) AS samples FROM 'processes/*/*/*.parquet'",
    );
    assert_eq!(counted[0]["samples"], 8);
    let pid = sleeper.pid();
    let row = query(
        &out,
        &format!("SELECT comm, cmdline, uid, host FROM 'processes/*/*/*.parquet' WHERE pid = {pid} ORDER BY time"),
    );
    assert_eq!(row.len(), 6);
    // It is the same process in all of them.
    let which = format!(
        "SELECT count(DISTINCT start_ns || boot_id) AS processes FROM 'processes/*/*/*.parquet' WHERE pid = {pid}"
    );
    assert_eq!(query(&out, &which)[0]["processes"], 1);
    let host = run(&["ps", "--json", "-p", &pid]).json()["host"].clone();
    assert_eq!(
        row[5],
        serde_json::json!({"comm": "newprogram", "cmdline": format!("{} 1000", program.display()), "uid": rustix::process::getuid().as_raw(), "host": host})
    );

    // The recording was made just now.
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
    assert!(answers[1][0]["forks"].as_u64() > Some(10), "{:?}", answers[1]);
    let new: Vec<&Value> = answers[2].iter().map(|row| &row["comm"]).collect();
    assert!(
        new.contains(&&Value::from("newprogram")) && !new.contains(&&Value::from("init")),
        "{new:?}"
    );
    assert!(answers[3][0]["p99_bytes"].as_f64() > Some(0.0), "{:?}", answers[3]);
    let shell = answers[4]
        .iter()
        .find(|row| row["pid"] == busy.pid().parse::<u64>().expect("a number"));
    let percent = shell.and_then(|row| row["cpu_percent"].as_f64()).expect("it ran");
    assert!(percent > 1.0 && percent < 400.0, "{percent}");
    check_fleet(&out, &directory.join("fleet"));
    fs::remove_dir_all(history).expect("it is ours");
    fs::remove_dir_all(&directory).expect("it is ours");
}
