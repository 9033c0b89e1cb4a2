//! Arguments that a handle remembers from one query to the next, and arguments that change.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use taskdiag::{Field, Fields, Handle, Query, Scope, SourceId};
use taskdiag_testkit::{animal, handle, scaled, SOURCES};
use taskdiag_zoo::Farm;

fn cmdline(handle: &mut Handle, scope: Scope, pid: i32) -> Vec<u8> {
    let snapshot = handle
        .query(&Query::new(scope).fields(Field::Cmdline))
        .expect("an answer");
    let task = snapshot
        .tasks()
        .find(|task| task.tid() == Ok(pid as u32))
        .expect("the task");
    task.cmdline().expect("arguments").as_bytes().to_vec()
}

fn text(pid: i32) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/cmdline")).expect("cmdline")
}

/// Check that unchanged arguments are remembered, and stay correct.
#[test]
fn unchanged_arguments_are_remembered() {
    let count = scaled(3000).max(200);
    let farm = Farm::start(count, 1).expect("a farm");
    let indices: HashMap<u32, usize> = farm.pids().iter().map(|&pid| pid as u32).zip(0..).collect();
    let mut handle = taskdiag_testkit::unasked(SourceId::Bpf);
    let query = Query::processes().fields(Fields::all());
    let first = handle.query(&query).expect("processes");
    assert_eq!(first.counters().remembered, 0);
    let mut kept = vec![first];
    for round in 0..scaled(10) {
        let snapshot = handle.query(&query).expect("processes");
        assert!(
            snapshot.counters().remembered >= count as u64,
            "{round}: {:?}",
            snapshot.counters()
        );
        kept.push(snapshot);
    }
    // Earlier answers must stay correct while later ones are made.
    for snapshot in &kept {
        let mut met = 0;
        for task in snapshot.tasks() {
            if let Some(index) = task.pid().ok().and_then(|pid| indices.get(&pid)) {
                let known = format!("zoo\0farm\0--index\0{index:07}\0");
                assert_eq!(task.cmdline().expect("arguments").as_bytes(), known.as_bytes());
                met += 1;
            }
        }
        assert_eq!(met, count);
    }
}

/// Check that a handle for one query remembers nothing.
#[test]
fn one_shot_remembers_nothing() {
    let mut handle = handle(SourceId::Bpf).one_shot();
    for _ in 0..3 {
        let snapshot = handle
            .query(&Query::processes().fields(Field::Cmdline))
            .expect("processes");
        assert_eq!(snapshot.counters().remembered, 0);
    }
}

/// Check that the next answer has a new title, every time, in every scope.
#[test]
fn new_titles_show_at_once() {
    let mut changer = animal("title-changer");
    for source in SOURCES {
        let mut handle = handle(source);
        for round in 0..scaled(100) {
            // All have the same length, so that only the bytes differ; now and then one is longer.
            let mut title = format!("title {round:04} of {source:>6}");
            if round % 10 == 9 {
                title += &"x".repeat(300);
            }
            changer.set_title(title.as_bytes()).expect("a new title");
            let known = changer.facts.cmdline_raw.clone().expect("the new arguments");
            for scope in [Scope::Processes, Scope::Process(changer.pid as u32), Scope::Threads] {
                // With BPF alone they are remembered. For all processes by procfs, reading them
                // only now and then is enough.
                if source == SourceId::Procfs && !matches!(scope, Scope::Process(_)) && round % 20 != 0 {
                    continue;
                }
                let ours = cmdline(&mut handle, scope, changer.pid);
                assert_eq!(
                    ours,
                    known,
                    "{source} {scope:?} {round}: {:?}",
                    ours.escape_ascii().to_string()
                );
            }
        }
    }
}

/// Check that a title is one argument although NULs fill the rest of the arguments it was written
/// over, and that empty arguments behind others stay.
#[test]
fn titles_are_one_argument() {
    for (name, expected) in [
        ("title-short", &[&b"zoo: idle"[..]][..]),
        ("args-one-empty", &[b""]),
        (
            "args-odd",
            &[
                b"zoo",
                b"two\nlines",
                b"",
                b"",
                b"\xff\xfe",
                b" ",
                b"tab\t\x1b[31m",
                b"back\\slash",
                b"",
            ],
        ),
    ] {
        let animal = animal(name);
        for source in SOURCES {
            let query = Query::process(animal.pid as u32).fields(Field::Cmdline);
            let snapshot = handle(source).query(&query).expect("an answer");
            let task = snapshot.tasks().next().expect("the task");
            let arguments = task.cmdline().expect("arguments");
            assert_eq!(arguments.iter().collect::<Vec<_>>(), expected, "{source} {name}");
            // The kernel's own text stays available.
            assert_eq!(arguments.as_bytes(), text(animal.pid), "{source} {name}");
        }
    }
}

/// Check that the next answer has the arguments of a new program, every time.
#[test]
fn new_programs_show_at_once() {
    let mut changer = animal("title-changer");
    for source in SOURCES {
        let mut handle = handle(source);
        for round in 0..scaled(50) {
            let number = format!("{round:04}");
            changer
                .exec_with(&[b"zoo", b"--round", number.as_bytes()])
                .expect("a new program");
            for scope in [Scope::Processes, Scope::Process(changer.pid as u32)] {
                if source == SourceId::Procfs && scope == Scope::Processes && round % 20 != 0 {
                    continue;
                }
                let ours = cmdline(&mut handle, scope, changer.pid);
                let known = format!("zoo\0--round\0{number}\0");
                assert_eq!(
                    ours,
                    known.as_bytes(),
                    "{source} {round}: {:?}",
                    ours.escape_ascii().to_string()
                );
            }
        }
    }
}

/// Overwrites the arguments of a process through `/proc/PID/mem`. Returns the resulting arguments.
fn rewrite_from_outside(pid: i32, bytes: &[u8]) -> Vec<u8> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).expect("stat");
    let stat = String::from_utf8_lossy(&stat).into_owned();
    // Word 48 of the file is arg_start; word 3 is the first one after the name.
    let words = stat.rsplit(')').next().expect("words");
    let arg_start: u64 = words
        .split_whitespace()
        .nth(45)
        .expect("arg_start")
        .parse()
        .expect("a number");
    assert_ne!(arg_start, 0);
    let memory = File::options()
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .expect("mem");
    memory.write_all_at(bytes, arg_start).expect("writing");
    let text = text(pid);
    assert!(text.starts_with(bytes));
    text
}

/// Check that arguments that a tracer wrote into a process are in the next answer, even though the
/// process itself does not run.
#[test]
fn changes_by_a_tracer_show_at_once() {
    let traced = animal("traced");
    let mut handle = handle(SourceId::Bpf);
    for round in 0..scaled(10) {
        let known = rewrite_from_outside(traced.pid, format!("{round:02}").as_bytes());
        assert_eq!(cmdline(&mut handle, Scope::Processes, traced.pid), known);
        assert_eq!(cmdline(&mut handle, Scope::Processes, traced.pid), known);
    }
}

/// Check the documented behaviour of `/proc/PID/mem`: if a process writes there without tracing, it
/// changes the arguments of a sleeping process, and a handle that remembers them does not notice. A
/// handle for a single query does notice, and so does every handle once the process has run.
#[test]
fn untraced_changes_show_once_the_process_has_run() {
    let sleeper = animal("args-4096");
    let mut remembering = handle(SourceId::Bpf);
    let before = cmdline(&mut remembering, Scope::Processes, sleeper.pid);
    assert_eq!(before, text(sleeper.pid));
    let known = rewrite_from_outside(sleeper.pid, b"new");
    let ours = cmdline(&mut remembering, Scope::Processes, sleeper.pid);
    println!(
        "written from outside, a remembering handle shows the {} text",
        if ours == known { "new" } else { "old" }
    );
    assert!(ours == known || ours == before);
    let mut once = handle(SourceId::Bpf).one_shot();
    assert_eq!(cmdline(&mut once, Scope::Processes, sleeper.pid), known);
    let mut procfs = handle(SourceId::Procfs);
    assert_eq!(cmdline(&mut procfs, Scope::Processes, sleeper.pid), known);
    for signal in [libc::SIGSTOP, libc::SIGCONT] {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::kill(sleeper.pid, signal) }, 0);
        let state = if signal == libc::SIGSTOP { 'T' } else { 'S' };
        taskdiag_zoo::settle(sleeper.pid, state).expect("its state");
    }
    assert_eq!(cmdline(&mut remembering, Scope::Processes, sleeper.pid), known);
}
