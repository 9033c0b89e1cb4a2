//! The library's serialized values equal the JSON that the command writes.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{run, start, Run, Sleeper};
use serde_json::{to_value, Value};
use taskdiag::events::{Events, Options};
use taskdiag::maps::{Filter, MapField};
use taskdiag::{Field, Fields, Group, Handle, Query, SourceId};

/// The rows of a JSON document.
fn rows(args: &[&str]) -> Value {
    let run = run(args);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
    run.json()["rows"].clone()
}

/// Calls a function until it returns two equal values: a process may change between the two reads.
fn check_equal(mut both: impl FnMut() -> [Value; 2]) {
    let start = Instant::now();
    let [mut library, mut command] = both();
    while library != command && start.elapsed() < Duration::from_secs(10) {
        [library, command] = both();
    }
    assert_eq!(library, command);
    assert!(library.as_array().is_some_and(|rows| !rows.is_empty()));
}

/// Check all fields of a process and of a kernel thread, which lacks many.
#[test]
fn tasks() {
    // Proportional sizes depend on other processes, and time passes.
    let moving = Field::ElapsedNs | Field::CpuPercent;
    let fields = Fields::all().without(Fields::of_group(Group::Rollup) | moving);
    let names: Vec<&str> = fields.iter().map(Field::name).collect();
    let sleeper = Sleeper::new("serialized");
    for pid in [&sleeper.pid()[..], "2"] {
        let query = Query::process(pid.parse().expect("a number")).fields(fields);
        check_equal(|| {
            let snapshot = Handle::new()
                .with_source(SourceId::Procfs)
                .query(&query)
                .expect("the process exists");
            let library = to_value(&snapshot).expect("tasks are JSON");
            let run = run(&["ps", "--source", "procfs", "--json", "-o", &names.join(","), "-p", pid]);
            // Not every host has a security module with labels.
            let is_known = |line: &str| line.starts_with("taskdiag: security_label: unsupported ");
            assert!(
                run.code == Some(0) || run.stderr.lines().all(is_known),
                "{}",
                run.stderr
            );
            [library, run.json()["rows"].clone()]
        });
    }
}

/// Check the mappings of a process, with all optional values.
#[test]
fn mappings() {
    let sleeper = Sleeper::new("serialized");
    let pid = sleeper.pid();
    check_equal(|| {
        let maps = Handle::new().maps(pid.parse().expect("a number"));
        let mut maps = maps.expect("the process exists");
        let fields = MapField::Name | MapField::PageSizeBytes | MapField::BuildId | MapField::RssBytes;
        let list = maps.list(Filter::default(), fields).expect("the process exists");
        let library = to_value(&list).expect("mappings are JSON");
        [library, rows(&["maps", "--build-id", "--usage", "--json", &pid])]
    });
}

/// Check the open files of a process, with all optional values.
#[test]
fn open_files() {
    let sleeper = Sleeper::new("serialized");
    let pid = sleeper.pid();
    let query = Query::process(pid.parse().expect("a number")).fields(Field::StartNs);
    let mut request = taskdiag::files::Request::default();
    request.fields = taskdiag::files::FileField::ALL.iter().copied().collect();
    check_equal(|| {
        let mut handle = Handle::new().with_source(SourceId::Procfs);
        let snapshot = handle.query(&query).expect("the process exists");
        let mut library = Vec::new();
        let answer = handle.files(&snapshot, &request, |_, file| {
            library.push(to_value(file).expect("files are JSON"));
            std::ops::ControlFlow::Continue(())
        });
        answer.expect("the process exists");
        let run = run(&["files", "--source", "procfs", "--json", "-o", "all", &pid]);
        // The other end of an inherited pipe may be in a process that the kernel hides from
        // everybody.
        let is_known = run.stderr.is_empty() || run.stderr.contains("denies it even to root");
        assert!(run.code == Some(0) && is_known, "{run:?}");
        let mut command = run.json()["rows"].clone();
        // In the library, the process is not part of the file.
        for row in command.as_array_mut().expect("rows") {
            let row = row.as_object_mut().expect("an object");
            assert!(["pid", "comm", "user"].iter().all(|&key| row.remove(key).is_some()));
        }
        [Value::Array(library), command]
    });
}

/// Check the sockets of a process, with all optional values.
#[test]
fn sockets() {
    let pair = std::os::unix::net::UnixStream::pair().expect("two sockets");
    let own = std::process::id();
    let query = Query::process(own).fields(Field::StartNs | Field::Comm);
    let mut request = taskdiag::sockets::Request::default();
    request.kinds = taskdiag::sockets::Kind::Unix.into();
    request.fields = taskdiag::sockets::SocketField::ALL.iter().copied().collect();
    request.owned = true;
    request.own_namespace = true;
    check_equal(|| {
        let mut handle = Handle::new();
        let snapshot = handle.query(&query).expect("the process exists");
        let mut library = Vec::new();
        let answer = handle.sockets(&snapshot, &request, |socket| {
            library.push(to_value(socket).expect("sockets are JSON"));
            std::ops::ControlFlow::Continue(())
        });
        answer.expect("sockets");
        assert!(!library.is_empty());
        [
            Value::Array(library),
            rows(&[
                "sockets",
                "--own-netns",
                "--unix",
                "--json",
                "-o",
                "all",
                &own.to_string(),
            ]),
        ]
    });
    drop(pair);
}

/// Check the events of a process that calls fork and exec, and ends.
#[test]
fn events() {
    let mut handle = Handle::new();
    handle.count_network().expect("these tests need Linux 6.3");
    let options = handle.events_with_network(Options::default()).expect("a descriptor");
    let mut events = Events::open(&options).expect("we may watch");
    // Our children run one program each: an event is known by its kind and task.
    let own = u64::from(std::process::id());
    let of_children = format!("ppid == {own}");
    let mut command = start(&[
        "events",
        "--jsonl",
        "-o",
        "all",
        "--count",
        "40",
        "--where",
        &of_children,
    ]);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut library = BTreeMap::new();
    // The same event has the same kind and task in both. The times differ: each reads the clock,
    // one after the other.
    let key = |event: &Value| (event["event"].to_string(), event["tid"].as_u64());
    let mut collect = |library: &mut BTreeMap<_, _>| {
        for event in events.read().expect("we may watch") {
            let event = to_value(event).expect("events are JSON");
            if event["ppid"] == own {
                library.insert(key(&event), event);
            }
        }
    };
    // Other tests' processes may have sent bytes before both counted.
    let mut started = BTreeSet::new();
    while command.try_wait().expect("our child").is_none() {
        assert!(Instant::now() < deadline, "the command sees no events");
        let mut child = Command::new("true").spawn().expect("true exists");
        started.insert(u64::from(child.id()));
        child.wait().expect("our child");
        collect(&mut library);
    }
    let run = Run::new(command.wait_with_output().expect("our child"));
    let rows: Vec<Value> = run
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    while !rows.iter().all(|row| library.contains_key(&key(row))) {
        assert!(Instant::now() < deadline, "the library has not seen all events");
        collect(&mut library);
    }
    assert_eq!(rows.len(), 40);
    let is_started = |row: &Value| row["pid"].as_u64().is_some_and(|pid| started.contains(&pid));
    let of_started: Vec<Value> = rows.into_iter().filter(is_started).collect();
    assert!(of_started.len() >= 3);
    for mut row in of_started {
        let mut event = library.remove(&key(&row)).expect("it was found");
        for time in ["time_ns", "runtime_ns"] {
            let of_both = [&mut row, &mut event].map(|event| event.as_object_mut().expect("an object").remove(time));
            assert_eq!(of_both[0].is_some(), of_both[1].is_some(), "{row} {event}");
        }
        assert_eq!(event, row);
    }
}
