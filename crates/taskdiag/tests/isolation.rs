//! Many readers at once. The kernel can interrupt a BPF program in the middle of one reader's
//! record while another reader runs it. The answer to one reader, or the record of one process,
//! must never contain data copied for another.

use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::{Child, Stdio};
use std::thread;

use taskdiag::{Field, Fields, Handle, Query, Snapshot, SourceId};
use taskdiag_testkit::{
    animal,
    child::{self, World},
    handle, scaled, test_name, SOURCES,
};
use taskdiag_zoo::{Animal, Churn, Farm};

/// How many processes sleep beside the tests.
fn farm_size() -> usize {
    scaled(200).max(60)
}

const READERS: usize = 4;

/// The environment variable that tells a second process what to expect: `pid=index` of the farm,
/// separated by commas.
const EXPECTED: &str = "TASKDIAG_TEST_EXPECTED";

/// Processes with known arguments, all different.
struct Known(BTreeMap<u32, Vec<u8>>);

impl Known {
    fn new(farm: &Farm, animals: &[Animal]) -> Known {
        let indexes = farm
            .pids()
            .iter()
            .enumerate()
            .map(|(index, &pid)| (pid as u32, farm_arguments(index)));
        let raw = |animal: &Animal| animal.facts.cmdline_raw.clone().expect("known arguments");
        Known(
            indexes
                .chain(animals.iter().map(|animal| (animal.pid as u32, raw(animal))))
                .collect(),
        )
    }

    fn of_farm(farm: &Farm) -> Known {
        Known::new(farm, &[])
    }

    /// The farm of the process that started this one.
    fn inherited() -> Known {
        let text = std::env::var(EXPECTED).expect("what to expect");
        let pid = |pid: &str| pid.parse().expect("a pid");
        Known(
            text.split(',')
                .enumerate()
                .map(|(index, text)| (pid(text), farm_arguments(index)))
                .collect(),
        )
    }

    /// Fails unless the snapshot has each of the processes once, with its own arguments.
    fn check(&self, what: &str, snapshot: &Snapshot) {
        assert_eq!(snapshot.counters().malformed, 0, "{what}");
        let mut met = 0;
        for task in snapshot.tasks() {
            let pid = task.pid().expect("a pid");
            let Some(known) = self.0.get(&pid) else { continue };
            let ours = task
                .cmdline()
                .unwrap_or_else(|reason| panic!("{what}: the arguments of {pid} are {reason}"));
            let shown = |bytes: &[u8]| bytes[..bytes.len().min(100)].escape_ascii().to_string();
            assert_eq!(shown(ours.as_bytes()), shown(known), "{what}: arguments of {pid}");
            assert!(
                ours.as_bytes() == known,
                "{what}: arguments of {pid}, behind their beginning"
            );
            met += 1;
        }
        assert_eq!(met, self.0.len(), "{what}: processes");
    }

    fn check_often(&self, what: &str, handle: &mut Handle) {
        let mut snapshot = Snapshot::default();
        for round in 0..scaled(200) {
            // With and without other groups, so that arguments are at varying offsets in the
            // records.
            let fields = if round % 2 == 0 {
                Field::Cmdline.into()
            } else {
                Fields::all()
            };
            handle
                .query_into(&Query::processes().fields(fields), &mut snapshot)
                .expect("an answer");
            self.check(what, &snapshot);
        }
    }
}

fn farm_arguments(index: usize) -> Vec<u8> {
    format!("zoo\0farm\0--index\0{index:07}\0").into_bytes()
}

/// Second processes that read, and check what they have read.
fn readers(test: &str, farm: &Farm) -> Vec<Child> {
    let pids: Vec<String> = farm.pids().iter().map(i32::to_string).collect();
    let start = |_| {
        let mut command = child::command(test, "reader", World::default());
        command
            .env(EXPECTED, pids.join(","))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("starting a reader")
    };
    (0..READERS).map(start).collect()
}

fn join(readers: Vec<Child>) {
    for reader in readers {
        let output = reader.wait_with_output().expect("a reader's end");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && text.contains("part reader is done"),
            "a reader failed:\n{text}"
        );
    }
}

fn is_reader() -> bool {
    child::part().as_deref() == Some("reader")
}

/// Check that threads with their own handles get each process's own arguments.
#[test]
fn threads_do_not_mix_arguments() {
    let farm = Farm::start(farm_size(), 1).expect("a farm");
    let animals = [
        "args-odd",
        "args-4096",
        "args-8191",
        "args-8192",
        "args-8193",
        "args-100k",
    ]
    .map(animal);
    let known = Known::new(&farm, &animals);
    let _churn = Churn::start(200).expect("churn");
    for source in SOURCES {
        thread::scope(|scope| {
            for reader in 0..READERS {
                let known = &known;
                scope.spawn(move || {
                    let mut handle = handle(source);
                    if reader % 2 == 0 {
                        handle = handle.one_shot();
                    }
                    known.check_often(&format!("{source}, reader {reader}"), &mut handle);
                });
            }
        });
    }
}

/// Check that processes with their own handles get each process's own arguments.
#[test]
fn processes_do_not_mix_arguments() {
    child_readers(test_name!(), || handle(SourceId::Bpf));
}

fn child_readers(test: &str, handle: fn() -> Handle) {
    if is_reader() {
        return child::run(test, "reader", World::default(), || {
            Known::inherited().check_often("reader", &mut handle());
        });
    }
    let farm = Farm::start(farm_size(), 1).expect("a farm");
    let readers = readers(test, &farm);
    Known::of_farm(&farm).check_often("their starter", &mut handle());
    join(readers);
}

/// A handle that uses pinned programs, and fails if there are none.
fn pinned() -> Handle {
    let mut handle = taskdiag_testkit::unasked(SourceId::Bpf);
    assert!(handle.support().pinned.is_yes(), "{:?}", handle.support().pinned);
    handle
}

/// Check that readers of pinned programs, threads and processes, get each process's own arguments.
#[test]
fn pinned_programs_do_not_mix_arguments() {
    let test = test_name!();
    if is_reader() {
        return child_readers(test, pinned);
    }
    child::run(test, "pinned", child::nothing_pinned(), || {
        taskdiag::pin::pin().expect("pinning");
        let farm = Farm::start(farm_size(), 1).expect("a farm");
        let animals = ["args-odd", "args-8191", "args-8192", "args-8193"].map(animal);
        let known = Known::new(&farm, &animals);
        let readers = readers(test, &farm);
        thread::scope(|scope| {
            for reader in 0..READERS {
                let known = &known;
                scope.spawn(move || known.check_often(&format!("pinned, thread {reader}"), &mut pinned()));
            }
        });
        join(readers);
        taskdiag::pin::unpin().expect("unpinning");
    });
}

/// Uses one handle in a process and in its forked child at the same time. Both must get correct
/// answers.
fn use_after_fork(what: &str, handle: &mut Handle, known: &Known) {
    let query = Query::processes().fields(Field::Cmdline | Field::Comm);
    known.check(what, &handle.query(&query).expect("an answer before the fork"));
    // SAFETY: the test has this process to itself: no other thread holds a lock that the child
    // could need.
    let child = unsafe { libc::fork() };
    assert_ne!(child, -1);
    let here = if child == 0 { "child" } else { "parent" };
    let answered = catch_unwind(AssertUnwindSafe(|| {
        let mut snapshot = Snapshot::default();
        for _ in 0..scaled(100) {
            handle
                .query_into(&query, &mut snapshot)
                .unwrap_or_else(|error| panic!("{what}, {here}: {error}"));
            known.check(&format!("{what}, {here}"), &snapshot);
        }
    }));
    if child == 0 {
        // SAFETY: the child must not clean up anything of the parent's.
        unsafe { libc::_exit(answered.is_err().into()) };
    }
    let mut status = -1;
    // SAFETY: the kernel writes one integer.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(answered.is_ok(), "{what}: the parent's answers");
    assert_eq!(status, 0, "{what}: the child's answers");
}

/// Check that using a handle in a forked child does not disturb the parent's, and that both answer.
#[test]
fn forked_handles_do_not_disturb_each_other() {
    child::run(test_name!(), "private", World::default(), || {
        let farm = Farm::start(farm_size(), 1).expect("a farm");
        for source in SOURCES {
            use_after_fork(source.name(), &mut handle(source), &Known::of_farm(&farm));
        }
    });
    child::run(test_name!(), "pinned", child::nothing_pinned(), || {
        taskdiag::pin::pin().expect("pinning");
        let farm = Farm::start(farm_size(), 1).expect("a farm");
        use_after_fork("pinned", &mut pinned(), &Known::of_farm(&farm));
        taskdiag::pin::unpin().expect("unpinning");
    });
}
