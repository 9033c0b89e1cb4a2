//! Checks the documents that commands write against the JSON Schemas of docs/schema.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use common::{command, run, run_as_nobody, Sleeper};
use jsonschema::Validator;
use serde_json::{json, Value};

fn schema(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/schema")
        .join(format!("{name}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("a schema is JSON")
}

/// Checks documents, or their rows.
struct Checker(Validator);

impl Checker {
    fn of_documents(name: &str) -> Checker {
        Checker::new(&schema(name))
    }

    fn of_rows(name: &str) -> Checker {
        let schema = schema(name);
        Checker::new(&json!({"$schema": schema["$schema"], "$ref": "#/$defs/row", "$defs": schema["$defs"]}))
    }

    fn new(schema: &Value) -> Checker {
        let options = jsonschema::options().should_validate_formats(true);
        Checker(options.build(schema).expect("a schema is valid"))
    }

    #[track_caller]
    fn check(&self, value: &Value) {
        let errors = self.0.iter_errors(value);
        let errors: Vec<String> = errors
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}

/// Check that docs/schema is up to date with the tables, and has no other schemas.
#[test]
fn schemas_are_fresh() {
    let names = run(&["schema"]).complete();
    let names: BTreeSet<&str> = names.lines().collect();
    for name in &names {
        let made: Value = serde_json::from_str(&run(&["schema", name]).complete()).expect("JSON");
        assert!(
            made == schema(name),
            "docs/schema/{name}.json is not up to date: taskdiag schema {name} > docs/schema/{name}.json"
        );
        jsonschema::meta::validate(&made).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let files: BTreeSet<String> = fs::read_dir(directory)
        .expect("the directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
        .collect();
    assert_eq!(files, names.iter().map(|&name| name.to_owned()).collect());
}

/// Check that a schema rejects wrong documents. Otherwise the other tests would prove nothing.
#[test]
fn schemas_refuse_other_documents() {
    let tasks = Checker::of_documents("tasks");
    let good = run(&["ps", "-p", "1", "--json"]).json();
    tasks.check(&good);
    let change = |key: &str, value: Value| {
        let mut document = good.clone();
        document[key] = value;
        tasks.0.is_valid(&document)
    };
    assert!(!change("schema", json!(2)));
    assert!(!change("time", json!(5)));
    assert!(!change("colour", json!("red")));
    assert!(!change("rows", json!([{"pid": "1"}])));
    assert!(!change("rows", json!([{"pids": 1}])));
    assert!(!change("rows", json!([{"cap_effective": 1}])));
    assert!(change("rows", json!([])));
}

/// An open file without a name, so that `files --deleted` has a row even if no other process has
/// one.
fn open_deleted_file() -> fs::File {
    let path = std::env::temp_dir().join(format!("taskdiag-schema-{}", std::process::id()));
    let file = fs::File::create(&path).expect("a file");
    fs::remove_file(&path).expect("it is ours");
    file
}

/// The commands that write documents, each with its schema.
fn documents(pid: &str) -> Vec<(&'static str, Vec<String>)> {
    let lists: [(&'static str, &[&str]); 38] = [
        ("tasks", &["ps"]),
        ("tasks", &["ps", "-T"]),
        ("tasks", &["ps", "-o", "all,rollup", "--names"]),
        ("tasks", &["ps", "-p", pid, "-o", "all"]),
        ("tasks", &["tree"]),
        ("tasks", &["tree", "-o", "uid,cgroup", "--names", pid]),
        ("tasks", &["mem"]),
        ("tasks", &["mem", "-o", "pid,comm,rollup", "-p", pid]),
        ("mem-by", &["mem", "--by", "program"]),
        ("mem-by", &["mem", "--by", "user"]),
        ("mem-by", &["mem", "--by", "cgroup"]),
        ("mem-by", &["mem", "--total"]),
        ("mem-system", &["mem", "--system"]),
        ("maps", &["maps", pid]),
        ("maps", &["maps", "-x", "--build-id", pid]),
        ("maps", &["maps", "--all", "--exec", "-o", "+size_bytes,build_id"]),
        ("files", &["files"]),
        ("files", &["files", "-o", "all", "--use", "all", pid]),
        ("files", &["files", "--deleted"]),
        ("files-by", &["files", "--by", "user"]),
        ("files-by", &["files", "--by", "unit"]),
        ("files-by", &["files", "--by", "path", pid]),
        ("sockets", &["sockets"]),
        ("sockets", &["sockets", "--info", "--unix", "--tcp"]),
        ("sockets", &["sockets", "-o", "all", "--sort", "-inode", "--limit", "3"]),
        ("sockets-by", &["sockets", "--by", "program"]),
        ("sockets-by", &["sockets", "--by", "port"]),
        (
            "sockets-by",
            &["sockets", "--by", "remote_port,remote_addr,protocol", "--info"],
        ),
        ("inspect", &["inspect", pid]),
        ("inspect", &["inspect", "--environ", pid]),
        ("normalize", &["normalize", pid, "0x1000", "0xffffffffff600000"]),
        ("cache", &["cache", "-s", "/etc", "/missing"]),
        ("cache", &["cache", "--top", "5", "-o", "all"]),
        ("cache-by", &["cache", "--by", "program,user"]),
        ("cache-by", &["cache", "--by", "unit", "--of-process", pid]),
        ("cache-map", &["cache", "--map", "/etc/passwd"]),
        ("fields", &["fields"]),
        ("doctor", &["doctor"]),
    ];
    let owned = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect();
    lists.iter().map(|(name, list)| (*name, owned(list))).collect()
}

/// Check that documents and JSON lines of all commands match their schemas, for root and for
/// nobody.
#[test]
fn documents_fit_their_schemas() {
    let sleeper = Sleeper::new("schema \u{1b}[31m");
    let _deleted = open_deleted_file();
    let _listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    for (name, args) in documents(&sleeper.pid()) {
        let (documents, rows) = (Checker::of_documents(name), Checker::of_rows(name));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let document = [&args[..], &["--json"]].concat();
        let lines = [&args[..], &["--jsonl"]].concat();
        let runs = [Some(run(&document)), run_as_nobody(&document)];
        for run in runs.into_iter().flatten() {
            // Some commands have no answer for the user nobody.
            if run.code == Some(2) {
                assert!(run.stdout.is_empty(), "{args:?}: {run:?}");
                continue;
            }
            println!("{args:?}: {name}");
            let document = run.json();
            documents.check(&document);
            assert_eq!(document["command"], args[0]);
        }
        let run = run(&lines);
        assert!(matches!(run.code, Some(0 | 1)), "{args:?}: {run:?}");
        let text = run.text();
        let mut count = 0;
        for line in text.lines().take(200) {
            rows.check(&serde_json::from_str(line).expect("lines are JSON"));
            count += 1;
        }
        assert!(count > 0, "{args:?}");
    }
}

/// Check that samples match their schemas, and that the line before their rows has the number of
/// rows.
#[test]
fn samples_fit_their_schemas() {
    let busy = Sleeper::run(std::process::Command::new("sh").args(["-c", "while :; do :; done"]));
    let samples = Checker::of_documents("sample");
    for (name, args) in [
        ("tasks", &["watch", "-d", "0.1", "-n", "3"][..]),
        (
            "tasks",
            &[
                "watch",
                "-d",
                "0.1",
                "-n",
                "2",
                "-p",
                &busy.pid(),
                "-o",
                "+uid",
                "--names",
            ],
        ),
        ("tasks", &["watch", "-d", "0.1", "-n", "2", "--where", "pid == 0"]),
        ("tasks", &["mem", "--watch", "0.1", "-n", "2", "-p", &busy.pid()]),
        ("mem-by", &["mem", "--watch", "0.1", "-n", "2", "--by", "user"]),
        ("net-by", &["net", "--watch", "0.1", "-n", "2", "--by", "unit,user"]),
        (
            "net-by",
            &[
                "net",
                "--watch",
                "0.1",
                "-n",
                "2",
                "--by",
                "remote_addr,remote_port,protocol,program",
            ],
        ),
    ] {
        let rows = Checker::of_rows(name);
        let run = run(&[args, &["--jsonl"]].concat());
        assert!(matches!(run.code, Some(0 | 1)), "{args:?}: {run:?}");
        let text = run.text();
        let mut lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("lines are JSON"));
        let mut number = 0;
        while let Some(head) = lines.next() {
            samples.check(&head);
            assert_eq!(head["sample"], number, "{args:?}");
            for _ in 0..head["rows"].as_u64().expect("a number") {
                let row = lines.next().expect("as many rows as the line says");
                assert_eq!(row["sample"], number, "{args:?}");
                rows.check(&row);
            }
            number += 1;
        }
        assert!(number >= 2, "{args:?}");
        let whole = command(&[args, &["--json"]].concat()).output().expect("it runs");
        let document: Value = serde_json::from_slice(&whole.stdout).expect("one document");
        Checker::of_documents(name).check(&document);
        assert_eq!(document["counters"], serde_json::json!({"samples": number}), "{args:?}");
        let rows = document["rows"].as_array().expect("rows");
        assert!(rows
            .iter()
            .all(|row| row["time"].is_string() && row["sample"].as_u64() < Some(number)));
    }
}

/// Check that events match their schema, with and without names.
#[test]
fn events_fit_their_schema() {
    let documents = Checker::of_documents("events");
    let _busy = Sleeper::run(std::process::Command::new("sh").args(["-c", "while :; do /bin/true; sleep 0.01; done"]));
    for args in [
        &["events", "--json", "-n", "20", "-T", "-o", "all", "--names"][..],
        &["events", "--json", "-n", "5", "--source", "connector"],
    ] {
        let output = command(args).output().expect("the binary runs");
        let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
        documents.check(&document);
        assert!(document["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
    }
}
