//! The other commands from outside.

mod common;

use std::process::{Command, Stdio};

use common::{free_pid, run, run_as_nobody, Run, Sleeper};
use serde_json::json;

/// Check that a process stands below its parent, in the table and in JSON.
#[test]
fn children_stand_below_their_parents() {
    let here = std::process::id().to_string();
    let sleeper = Sleeper::new("leaf");
    let text = run(&["tree", &here]).complete();
    let root = text.lines().nth(1).expect("a row");
    assert!(root.trim_start().starts_with(&here), "{text}");
    let leaf = text.lines().find(|line| line.trim_start().starts_with(&sleeper.pid()));
    assert!(leaf.is_some_and(|line| line.contains("─leaf 1000")), "{text}");
    let ascii = run(&["tree", "--ascii", "-o", "uid", &here]).complete();
    assert!(ascii.is_ascii() && ascii.contains("-leaf 1000"), "{ascii}");

    let document = run(&["tree", "--json", &here]).json();
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!((&document["command"], &rows[0]["depth"]), (&json!("tree"), &json!(0)));
    let leaf = rows
        .iter()
        .find(|row| row["pid"] == sleeper.pid().parse::<u32>().expect("a number"))
        .expect("the leaf");
    assert_eq!((&leaf["depth"], leaf["ppid"].to_string()), (&json!(1), here));
}

/// Check that the tree has every process once, and that one that does not exist is said.
#[test]
fn the_tree_has_every_process() {
    let text = run(&["tree", "--csv", "--no-header", "-o", "pid"]).complete();
    let mut pids: Vec<&str> = text
        .lines()
        .map(|line| line.split(',').next().unwrap_or(line))
        .collect();
    let count = pids.len();
    pids.sort_unstable();
    pids.dedup();
    assert!(pids.len() == count && count > 1);
    let missing = run(&["tree", &free_pid()]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("no such process"), "{}", missing.stderr);
}

/// Check that a long chain of processes is drawn, with numbers where branches would be too many.
#[test]
fn deep_trees_are_drawn() {
    // Each shell starts the next one and waits; the last one's reading ends when its standard input does.
    let script = r#"[ "$1" -eq 0 ] && { echo ready; read x; exit; }; sh -c "$0" "$0" $(($1 - 1)); :"#;
    let mut child = Command::new("sh")
        .args(["-c", script, script, "150"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh exists");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("it says so");
    let text = run(&["tree", &child.id().to_string()]).complete();
    drop(child.stdin.take());
    let _ = child.wait();
    assert_eq!(text.lines().count(), 152);
    assert!(
        text.lines().last().is_some_and(|line| line.contains("(150) └─")),
        "{text}"
    );
}

/// Check that all fields are listed in all forms.
#[test]
fn all_fields_are_listed() {
    let text = run(&["fields"]).complete();
    assert!(text.lines().any(|line| line.starts_with("rss_bytes ")));
    let document = run(&["fields", "--json"]).json();
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), text.lines().count() - 1);
    assert_eq!((&rows[0]["name"], &rows[0]["group"]), (&json!("pid"), &json!("base")));
}

/// Check that the documentation is what the table of fields makes of it.
#[test]
fn the_documentation_of_fields_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fields.md");
    let documented = std::fs::read_to_string(path).unwrap_or_default();
    let made = run(&["fields", "--markdown"]).complete();
    assert!(
        documented == made,
        "docs/fields.md is not up to date: taskdiag fields --markdown > docs/fields.md"
    );
}

/// Check that the doctor gives every fact a verdict and knows who would answer, with and without privileges.
#[test]
fn the_doctor_has_a_verdict_on_everything() {
    let text = run(&["doctor"]).complete();
    for part in ["kernel", "procfs", "bpf-load", "Who would answer"] {
        assert!(text.contains(part), "{text}");
    }
    for run in [Some(run(&["doctor", "--json"])), run_as_nobody(&["doctor", "--json"])]
        .into_iter()
        .flatten()
    {
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        let document = run.json();
        let rows = document["rows"].as_array().expect("rows");
        assert!(
            rows.iter()
                .all(|row| row["fact"].is_string() && row["verdict"].is_string() && row["why"].is_string()),
            "{document}"
        );
        assert!(
            document["sources"]["base"].is_string() && document["host"]["kernel"].is_string(),
            "{document}"
        );
    }
}

/// Check that the doctor tries the broker at the socket that it is told of, whoever asks.
#[test]
fn the_doctor_tries_the_broker() {
    let path = std::env::temp_dir().join(format!("taskdiag-test-{}.sock", std::process::id()));
    let socket = path.to_str().expect("the path is UTF-8");
    let fact = || {
        let document = run(&["doctor", "--json", "--socket", socket]).json();
        let rows = document["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["fact"] == "broker").expect("a verdict");
        assert_eq!(row["verdict"], "no", "{row}");
        row["why"].as_str().expect("a reason").to_owned()
    };
    assert!(fact().contains(socket));
    // A socket of another kind is no broker's.
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let why = fact();
    drop(listener);
    std::fs::remove_file(&path).expect("it is ours");
    assert!(why.contains(socket) && !why.contains("not tried"), "{why}");
}

/// Check that in a pid namespace the doctor counts the tasks of that one.
#[test]
fn the_doctor_counts_the_tasks_of_its_namespace() {
    let tasks = |run: Run| -> usize {
        let text = run.json()["host"]["tasks"].as_str().expect("a number").to_owned();
        text.parse().expect("a number")
    };
    let mut command = Command::new("unshare");
    command.args([
        "--fork",
        "--pid",
        "--mount-proc",
        env!("CARGO_BIN_EXE_taskdiag"),
        "doctor",
        "--json",
    ]);
    assert_eq!(tasks(Run::new(command.output().expect("unshare exists"))), 1);
    let _sleeper = Sleeper::new("one more");
    assert!(tasks(run(&["doctor", "--json"])) > 2);
}

/// Check that a socket alone means the broker, for every command that asks it.
#[test]
fn a_socket_means_the_broker() {
    let socket = std::env::temp_dir().join(format!("taskdiag-test-no-{}.sock", std::process::id()));
    let socket = socket.to_str().expect("the path is UTF-8");
    for args in [
        &["ps"][..],
        &["tree"],
        &["watch", "--count", "1"],
        &["mem"],
        &["mem", "--system"],
        &["maps", "1"],
        &["normalize", "1", "1"],
        &["doctor"],
    ] {
        let run = run(&[args, &["--socket", socket]].concat());
        assert_eq!(run.code, Some(2), "{args:?}");
        assert!(
            run.stderr.contains(socket) && run.stderr.contains("broker"),
            "{}",
            run.stderr
        );
    }
    run(&["ps", "-p", "1", "--socket", socket, "--source", "procfs"]).complete();
}

/// Check what the command calls itself.
#[test]
fn the_version_has_the_name_of_the_command() {
    for option in ["-V", "--version"] {
        let expected = format!("taskdiag {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(run(&[option]).complete(), expected);
    }
}

/// Check that pinning says why it can't be done and what then.
#[test]
fn nobody_can_pin() {
    let Some(run) = run_as_nobody(&["pin"]) else { return };
    assert_eq!((run.code, run.stdout.len()), (Some(2), 0));
    assert!(
        run.stderr.starts_with("taskdiag: ") && run.stderr.contains("taskdiag doctor"),
        "{}",
        run.stderr
    );
}

/// Check that help is there for all commands.
#[test]
fn commands_have_help() {
    for name in [
        "ps",
        "tree",
        "watch",
        "maps",
        "normalize",
        "cache",
        "events",
        "mem",
        "fields",
        "doctor",
        "pin",
        "unpin",
    ] {
        assert!(run(&[name, "--help"]).complete().contains("Usage: taskdiag"), "{name}");
    }
    assert!(run(&[]).stderr.contains("Usage: taskdiag"));
}
