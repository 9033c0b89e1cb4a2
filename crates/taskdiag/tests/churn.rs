//! Snapshots while thousands of processes start and end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::hint::spin_loop;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use taskdiag::maps::{MapField, Perms};
use taskdiag::{ErrorKind, Field, Fields, Query, Set, Snapshot, SourceId};
use taskdiag_testkit::{child, handle, scaled, start_ticks, test_name, text::TICK_NS, Stop, SOURCES};
use taskdiag_zoo::{Churn, Farm};

const FORKS_PER_SECOND: u32 = 2000;
const FARM: usize = 100;
const THREADS_EACH: usize = 2;

/// The values of a farm process that never change.
#[derive(Clone, Debug, PartialEq)]
struct Identity {
    start_ns: i64,
    ppid: u32,
    pgid: u32,
    sid: u32,
    threads_count: u32,
    uid: u32,
    comm: Vec<u8>,
    cmdline: Vec<u8>,
}

/// A machine can bear only one churn: several at once would leave no time for anything else.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn check_under_churn(source: SourceId, query: Query) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let farm = Farm::start(FARM, THREADS_EACH).expect("a farm");
    let steady: BTreeMap<u32, usize> = farm
        .pids()
        .iter()
        .enumerate()
        .map(|(index, &pid)| (pid as u32, index))
        .collect();
    let mut churn =
        Churn::start((FORKS_PER_SECOND as usize).min(scaled(FORKS_PER_SECOND as usize)) as u32).expect("churn");
    let churner = churn.pid() as u32;
    let mut handle = handle(source);
    let mut snapshot = Snapshot::default();
    let mut identities: BTreeMap<(u32, u32), Identity> = BTreeMap::new();
    let (mut mayflies, mut gone) = (0, 0);
    let before = churn.made().expect("a count");
    let snapshots = scaled(200);
    for round in 0..snapshots {
        handle.query_into(&query, &mut snapshot).expect("a snapshot");
        let counters = snapshot.counters();
        assert_eq!(counters.malformed, 0, "{source} {:?}", query.scope);
        gone += counters.gone;
        let (mut rows, mut met) = (BTreeSet::new(), BTreeMap::<u32, usize>::new());
        for task in snapshot.tasks() {
            let (pid, tid) = (task.pid().expect("a pid"), task.tid().expect("a tid"));
            let start_ns = task.start_ns().expect("a start");
            assert!(
                rows.insert((pid, tid, start_ns)),
                "{source} {:?} {round}: {pid}/{tid} is there twice",
                query.scope
            );
            if !query.scope.is_threads() {
                assert_eq!(pid, tid);
            }
            let cmdline = task.cmdline().map(|args| args.as_bytes().to_vec());
            let state = task.state().expect("a state");
            // A released task has no id, and so no row.
            assert_ne!(state, 'X', "{source} {:?} {round}: {pid}/{tid}", query.scope);
            assert!(
                task.threads_count().expect("a count") >= 1,
                "{source} {:?} {round}: {pid}/{tid} in state {state} has no thread",
                query.scope
            );
            if task.ppid() == Ok(churner) {
                mayflies += 1;
                // A process of the churn has its name and arguments, or after execve(2) those of
                // the program, or is ending.
                let comm = task.comm().expect("a name");
                assert!(
                    comm == b"zoo" || comm == b"exe",
                    "a child of the churn is {:?}",
                    comm.escape_ascii().to_string()
                );
                if let Ok(cmdline) = &cmdline {
                    let known = [b"zoo\0churn\0".as_slice(), b"zoo\0mayfly\0", b""];
                    assert!(
                        known.contains(&cmdline.as_slice()),
                        "{:?}",
                        cmdline.escape_ascii().to_string()
                    );
                }
                // They stay in the session and group of the churn, have one thread each, and belong
                // to its user.
                assert_eq!(
                    (task.pgid(), task.sid()),
                    (Ok(churner), Ok(churner)),
                    "{source} {round} {pid} in state {state}"
                );
                assert_eq!(
                    (task.threads_count(), task.uid()),
                    (Ok(1), Ok(0)),
                    "{source} {round} {pid} in state {state}"
                );
            }
            let Some(index) = steady.get(&pid) else { continue };
            *met.entry(pid).or_default() += 1;
            let cmdline =
                cmdline.unwrap_or_else(|reason| panic!("{source} {round}: the arguments of {pid} are {reason}"));
            assert_eq!(
                cmdline,
                format!("zoo\0farm\0--index\0{index:07}\0").into_bytes(),
                "{source} {round} {pid}"
            );
            let identity = Identity {
                start_ns,
                ppid: task.ppid().expect("a parent"),
                pgid: task.pgid().expect("a group"),
                sid: task.sid().expect("a session"),
                threads_count: task.threads_count().expect("a count"),
                uid: task.uid().expect("a user"),
                comm: task.comm().expect("a name").to_vec(),
                cmdline,
            };
            assert_eq!(identity.threads_count as usize, THREADS_EACH, "{source} {round} {pid}");
            assert!(
                matches!(state, 'S' | 'R'),
                "{source} {round}: {pid}/{tid}, which sleeps, is in state {state}"
            );
            let first = identities.entry((pid, tid)).or_insert_with(|| identity.clone());
            assert_eq!(*first, identity, "{source} {round}: {pid}/{tid} changed");
        }
        let rows_each = if query.scope.is_threads() { THREADS_EACH } else { 1 };
        for pid in steady.keys() {
            assert_eq!(
                met.get(pid),
                Some(&rows_each),
                "{source} {:?} {round}: rows of {pid}",
                query.scope
            );
        }
    }
    for ((pid, tid), identity) in &identities {
        let ticks = start_ticks(&format!("/proc/{pid}/task/{tid}/stat"));
        assert_eq!(identity.start_ns as u64 / TICK_NS, ticks, "{source} {pid}/{tid}");
    }
    let made = churn.made().expect("a count") - before;
    println!(
        "{source} {:?}: {snapshots} snapshots, {made} forks meanwhile, {mayflies} met, {gone} lost on the way",
        query.scope
    );
    assert!(made as usize >= snapshots, "the churn made {made} processes only");
    // They are listed last, so slow procfs may find all of them gone. Then it must have counted
    // them.
    assert!(
        mayflies + gone > 0,
        "no snapshot met any of the processes that came and went"
    );
    assert!(
        source == SourceId::Procfs || mayflies > 0,
        "BPF met none of the processes that came and went"
    );
}

/// Check that churn does not disturb BPF's answers about processes.
#[test]
fn bpf_processes_are_whole_under_churn() {
    check_under_churn(SourceId::Bpf, Query::processes().fields(Fields::all()));
}

/// Check that churn does not disturb BPF's answers about threads.
#[test]
fn bpf_threads_are_whole_under_churn() {
    check_under_churn(SourceId::Bpf, Query::threads().fields(Fields::all()));
}

/// Check that churn does not disturb the answers of procfs about processes.
#[test]
fn procfs_processes_are_whole_under_churn() {
    check_under_churn(SourceId::Procfs, Query::processes().fields(Fields::all()));
}

/// Check that churn does not disturb the answers of procfs about threads.
#[test]
fn procfs_threads_are_whole_under_churn() {
    check_under_churn(SourceId::Procfs, Query::threads().fields(Fields::all()));
}

/// The limit of process ids, which applies to the whole machine before Linux 6.14. Restored at the
/// end.
struct PidMax {
    before: String,
}

impl PidMax {
    const PATH: &str = "/proc/sys/kernel/pid_max";

    fn set(max: u32) -> PidMax {
        let before = fs::read_to_string(PidMax::PATH).expect("a limit");
        fs::write(PidMax::PATH, max.to_string()).expect("root may set it");
        PidMax { before }
    }
}

impl Drop for PidMax {
    fn drop(&mut self) {
        let _ = fs::write(PidMax::PATH, &self.before);
    }
}

/// Starts a process that waits, and whose last argument is a number of ours.
fn numbered(number: usize) -> Child {
    Command::new("sh")
        .args(["-c", "read line", &number.to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// Check that a process id and a start time never identify two processes, while the kernel reuses
/// the same few ids over and over.
#[test]
fn reused_numbers_name_one_process_each() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    child::run(test_name!(), "inside", child::first_of_namespace(), || {
        const AT_ONCE: usize = 60;
        const EACH_ROUND: usize = 20;
        // From 300 on, where the kernel starts again.
        let _limit = PidMax::set(300 + 150);
        let mut handles = SOURCES.map(|source| (source, handle(source), BTreeMap::new()));
        let query = Query::processes().fields(Field::StartNs | Field::Cmdline);
        let mut living: VecDeque<(usize, Child)> = VecDeque::new();
        let mut made = 0;
        for _ in 0..scaled(300) {
            for _ in 0..EACH_ROUND {
                living.push_back((made, numbered(made)));
                made += 1;
            }
            for (source, handle, names) in &mut handles {
                let snapshot = handle.query(&query).expect("processes");
                let mut met = 0;
                for task in snapshot.tasks() {
                    let pid = task.pid().expect("a pid");
                    let Some((number, _)) = living.iter().find(|(_, child)| child.id() == pid) else {
                        continue;
                    };
                    let cmdline = task.cmdline().expect("arguments").as_bytes().to_vec();
                    // It may not have called execve(2) yet.
                    if cmdline.starts_with(b"sh\0") {
                        let expected = format!("sh\0-c\0read line\0{number}\0");
                        assert_eq!(cmdline, expected.into_bytes(), "{source} {pid}");
                    }
                    let name = (pid, task.start_ns().expect("a start"));
                    let first = *names.entry(name).or_insert(*number);
                    assert_eq!(first, *number, "{source}: {name:?} names two processes");
                    met += 1;
                }
                assert_eq!(met, living.len(), "{source}");
            }
            while living.len() > AT_ONCE - EACH_ROUND {
                let (_, mut child) = living.pop_front().expect("a process");
                child.kill().expect("it lives");
                child.wait().expect("it ends");
            }
        }
        for (source, _, names) in &handles {
            let numbers: BTreeSet<u32> = names.keys().map(|(pid, _)| *pid).collect();
            println!("{source}: {} processes under {} numbers", names.len(), numbers.len());
            assert!(names.len() > numbers.len() + 100, "numbers were not used again");
        }
        for (_, mut child) in living {
            child.kill().expect("it lives");
            child.wait().expect("it ends");
        }
    });
}

/// Makes processes whose id is above all others, one after the other, until it is stopped. Each
/// adds a new root to the kernel's tree of ids, which is then removed again.
fn make_new_roots(stop: &AtomicBool) -> usize {
    let mut made = 0;
    while !stop.load(Ordering::Relaxed) {
        fs::write("/proc/sys/kernel/ns_last_pid", "4999").expect("root may set it");
        let mut child = Command::new("true").spawn().expect("a process");
        assert!(child.id() >= 5000);
        child.wait().expect("it ends");
        made += 1;
    }
    made
}

/// Check that walks lose no task while the tree of ids that they follow gains a new root and loses
/// it again.
#[test]
fn new_roots_lose_no_task() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    child::run(test_name!(), "inside", child::first_of_namespace(), || {
        let farm = Farm::start(scaled(3000), 1).expect("a farm");
        let steady: BTreeSet<u32> = farm.pids().iter().map(|&pid| pid as u32).collect();
        assert!(steady.iter().all(|&pid| pid < 4096), "another root would stay");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let worker = scope.spawn(|| make_new_roots(&stop));
            let guard = Stop(&stop);
            // Enough other work to interrupt a walk for long.
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        spin_loop();
                    }
                });
            }
            // A program that can sleep does not keep a root from being freed.
            for (what, fields) in [("base", Field::Pid.into()), ("arguments", Fields::from(Field::Cmdline))] {
                let mut handle = handle(SourceId::Bpf).one_shot();
                for round in 0..scaled(200) {
                    let snapshot = handle.query(&Query::processes().fields(fields)).expect("processes");
                    let met = snapshot.tasks().map(|task| task.record().header().pid.get());
                    assert_eq!(
                        met.filter(|pid| steady.contains(pid)).count(),
                        steady.len(),
                        "{what}, {round}"
                    );
                }
            }
            let mut handle = handle(SourceId::Bpf);
            // Before 6.11 BPF does not read mappings.
            let walks = !matches!(handle.all_maps(Perms::EXEC, Set::NONE), Err(error) if error.kind() == ErrorKind::Unsupported);
            for round in (0..scaled(100)).filter(|_| walks) {
                let all = handle.all_maps(Perms::EXEC, MapField::Name).expect("mappings").mappings;
                let met: BTreeSet<u32> = all.iter().filter_map(|mapping| mapping.pid).collect();
                assert!(met.is_superset(&steady), "mappings, {round}");
            }
            drop(guard);
            println!("{} new roots", worker.join().expect("the worker"));
        });
    });
}
