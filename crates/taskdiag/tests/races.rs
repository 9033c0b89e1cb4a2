//! Processes that change while they are read: every answer must have been true at some moment.
//!
//! `TASKDIAG_TEST_SCALE` sets how often each race is run. The soak runs them for longer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use taskdiag::{Absent, Field, Fields, Query, SourceId};
use taskdiag::{Snapshot, Task};
use taskdiag_testkit::{handle, scaled, SOURCES};
use taskdiag_zoo::{Churn, Race, Racers};

/// One race at a time: each needs the processors for itself.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// How often a source is queried. procfs takes longer.
fn passes(source: SourceId, count: usize) -> usize {
    match source {
        SourceId::Bpf => scaled(count),
        _ => scaled(count / 10),
    }
}

/// Queries again and again, and checks each answer. Fails at the end, with what was wrong and how
/// often.
fn race(
    race: Race,
    query: impl Fn(&[i32]) -> Query,
    count: usize,
    mut judge: impl FnMut(SourceId, &Racers, &Task<'_>) -> Option<String>,
) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for source in SOURCES {
        let racers = Racers::start(race).expect("racers");
        let query = query(racers.pids());
        let mut handle = handle(source);
        let mut snapshot = Snapshot::default();
        let (mut wrong, mut first, mut judged) = (0, None, 0);
        let count = passes(source, count);
        for _ in 0..count {
            handle.query_into(&query, &mut snapshot).expect("an answer");
            for task in snapshot.tasks() {
                judged += 1;
                if let Some(what) = judge(source, &racers, &task) {
                    wrong += 1;
                    first.get_or_insert(what);
                }
            }
        }
        println!("{source} {race:?}: {count} passes, {judged} rows, {wrong} wrong");
        assert!(judged >= count, "{source} {race:?}: {judged} rows in {count} passes");
        assert_eq!(
            wrong, 0,
            "{source} {race:?}: {first:?}, among others, in {count} passes"
        );
    }
}

/// A query about these processes.
fn these(pids: &[i32], fields: Fields) -> Query {
    Query::these(pids.iter().map(|&pid| pid as u32)).fields(fields)
}

/// Check that a process never has the network namespace of another one while its set of namespaces
/// is replaced again and again.
#[test]
fn namespaces_are_those_of_the_process() {
    let fields = Field::NsNet | Field::NsUser;
    let mut known = BTreeMap::new();
    race(
        Race::Unshares,
        |pids| these(pids, fields),
        30_000,
        |_, _, task| {
            let pid = task.pid().expect("a pid");
            let [net, user] = *known.entry(pid).or_insert_with(|| {
                ["net", "user"].map(|kind| {
                    fs::metadata(format!("/proc/{pid}/ns/{kind}"))
                        .expect("a namespace")
                        .ino()
                })
            });
            let told = (task.ns_net(), task.ns_user());
            (told != (Ok(net), Ok(user))).then(|| format!("{pid}: {told:?}, not {net}, {user}"))
        },
    );
}

/// Check that a process is never missing while threads other than its first one call execve(2), and
/// that no ending thread is shown as the process.
#[test]
fn a_process_that_execs_in_a_thread_is_there() {
    let fields = Fields::from(Field::State)
        | Field::Pgid
        | Field::Sid
        | Field::ThreadsCount
        | Field::VsizeBytes
        | Field::StartNs;
    let mut starts = BTreeMap::new();
    race(
        Race::Execs,
        |_| Query::processes().fields(fields | Field::Ppid),
        6_000,
        |source, racers, task| {
            let pid = task.pid().expect("a pid");
            if !racers.pids().contains(&(pid as i32)) {
                return None;
            }
            let start = *starts.entry(pid).or_insert(task.start_ns());
            // While the thread that calls execve(2) waits for the others, the first one ends, and
            // then waits for it. Procfs reads memory and threads from two files, at two moments.
            let is_first_over = task.threads_count().is_ok_and(|count| count > 1) || source == SourceId::Procfs;
            let has_memory = task.vsize_bytes().is_ok() || task.vsize_bytes() == Err(Absent::NoMemory) && is_first_over;
            let is_whole = has_memory
                && task.threads_count().is_ok_and(|count| count > 0)
                && task.state().is_ok_and(|state| state != 'X')
                && task.pgid().is_ok_and(|pgid| pgid > 0)
                && task.sid().is_ok_and(|sid| sid > 0)
                && task.start_ns() == start;
            (!is_whole).then(|| {
                let shown: Vec<_> = fields.iter().map(|field| task.value(field)).collect();
                format!("{pid}: {shown:?}")
            })
        },
    );
}

/// Check that each pass over all processes has both processes whose threads call execve(2), once.
#[test]
fn a_process_that_execs_in_a_thread_is_not_left_out() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for source in SOURCES {
        let racers = Racers::start(Race::Execs).expect("racers");
        let mut handle = handle(source);
        let mut snapshot = Snapshot::default();
        let count = passes(source, 6_000);
        let mut left_out = 0;
        for _ in 0..count {
            let query = Query::processes().fields(Field::State);
            handle.query_into(&query, &mut snapshot).expect("an answer");
            for &pid in racers.pids() {
                let rows = snapshot.tasks().filter(|task| task.pid() == Ok(pid as u32)).count();
                assert!(rows <= 1, "{source}: {pid} is there {rows} times");
                left_out += 1 - rows;
            }
        }
        println!("{source}: {count} passes, {left_out} left out");
        assert_eq!(left_out, 0, "{source}: in {count} passes");
    }
}

/// Check that no row describes a task that has been released already: such a task has neither group
/// nor session.
#[test]
fn released_tasks_have_no_rows() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let fields = Field::State | Field::Ppid | Field::Pgid | Field::Sid | Field::ThreadsCount;
    for source in SOURCES {
        let churn = Churn::start(4_000).expect("churn");
        let churner = churn.pid() as u32;
        let mut handle = handle(source);
        let mut snapshot = Snapshot::default();
        let count = passes(source, 6_000);
        let (mut met, mut ghosts, mut first) = (0, 0, None);
        let session = fs::read_to_string(format!("/proc/{churner}/stat")).expect("a stat");
        let session: u32 = session
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split(' ').nth(4)?.parse().ok())
            .expect("a session");
        for _ in 0..count {
            let query = Query::processes().fields(fields);
            handle.query_into(&query, &mut snapshot).expect("an answer");
            for task in snapshot.tasks() {
                let is_released = task.threads_count() == Ok(0);
                let is_child = task.ppid() == Ok(churner);
                met += usize::from(is_child);
                if is_released || is_child && (task.pgid(), task.sid()) != (Ok(session), Ok(session)) {
                    ghosts += 1;
                    let shown: Vec<_> = fields.iter().map(|field| task.value(field)).collect();
                    first.get_or_insert(format!("{:?}: {shown:?}", task.pid()));
                }
            }
        }
        println!("{source}: {count} passes, {met} children met, {ghosts} ghosts");
        assert!(met > 0, "{source}: none was met");
        assert_eq!(ghosts, 0, "{source}: {first:?}");
    }
}

/// Check that no processor time of a running process ever decreases.
#[test]
fn times_never_fall() {
    let mut before = BTreeMap::new();
    let fields = Field::UtimeNs | Field::StimeNs | Field::MinFaults;
    race(
        Race::Computes,
        |pids| these(pids, fields),
        30_000,
        |_, _, task| {
            let pid = task.pid().expect("a pid");
            let now = [
                task.utime_ns().expect("a time"),
                task.stime_ns().expect("a time"),
                task.min_faults().expect("a count"),
            ];
            let before = before.insert(pid, now).unwrap_or_default();
            let falls = now.iter().zip(before).any(|(&now, before)| now < before);
            falls.then(|| format!("{pid}: {before:?}, then {now:?}"))
        },
    );
}

/// Check that resident memory is never less than the amount that was resident all the time.
#[test]
fn resident_memory_is_never_too_small() {
    race(
        Race::Faults,
        |pids| these(pids, Field::RssBytes | Field::RssAnonBytes),
        60_000,
        |_, _, task| {
            let told = (
                task.rss_bytes().expect("a size"),
                task.rss_anon_bytes().expect("a size"),
            );
            let is_enough = told.0 >= Race::HELD && told.1 >= Race::HELD;
            (!is_enough).then(|| format!("{told:?} bytes, not {} at least", Race::HELD))
        },
    );
}

/// Check that a process whose first thread has ended has all that its threads share, also while each
/// of them ends after a millisecond and another takes its place.
#[test]
fn processes_live_on_in_their_threads() {
    let fields = Field::Exe
        | Field::Cwd
        | Field::Cmdline
        | Field::Environ
        | Field::NsNet
        | Field::RssBytes
        | Field::FdCount
        | Field::FdTableSize
        | Field::StartCode;
    race(
        Race::Relays,
        |pids| these(pids, fields),
        1_000,
        |_, _, task| {
            let is_whole = fields.iter().all(|field| task.value(field).is_ok())
                && task.fd_count().is_ok_and(|count| count as usize >= Race::DESCRIPTORS);
            (!is_whole).then(|| {
                let shown: Vec<_> = fields
                    .without(Field::Environ)
                    .iter()
                    .map(|field| task.value(field))
                    .collect();
                format!("{shown:?}")
            })
        },
    );
}

/// Check that the files and mappings of such a process are whole, each time.
#[test]
fn files_live_on_in_their_threads() {
    use taskdiag::files::{FileField, Request, Use};
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let racers = Racers::start(Race::Relays).expect("racers");
    let pid = racers.pids()[0] as u32;
    let mut request = Request::default();
    request.fields = FileField::Name | FileField::AllocatedBytes;
    request.uses = Use::ALL.into();
    for source in SOURCES {
        for _ in 0..scaled(200).max(20) {
            let mut handle = handle(source);
            let process = handle
                .query(&Query::process(pid).fields(Field::StartNs))
                .expect("it lives");
            let mut found: BTreeMap<Use, usize> = BTreeMap::new();
            let each = |_: &Task<'_>, file: &taskdiag::files::OpenFile<'_>| {
                *found.entry(file.used_as).or_default() += 1;
                std::ops::ControlFlow::Continue(())
            };
            let answer = handle.files(&process, &request, each).expect("an answer");
            let is_whole = found.get(&Use::Fd) >= Some(&Race::DESCRIPTORS)
                && [Use::Cwd, Use::Root, Use::Exe]
                    .iter()
                    .all(|used_as| found.get(used_as) == Some(&1))
                && found.contains_key(&Use::Map);
            assert!(is_whole, "{source}: {found:?} {answer:?}");
            let mut maps = handle.maps(pid).expect("it lives");
            assert!(
                maps.list(taskdiag::maps::Filter::default(), taskdiag::Set::NONE)
                    .expect("mappings")
                    .len()
                    > 5
            );
        }
    }
}

/// Check that no thread is missed while the one before it in the kernel's list ends. A listing of
/// `/proc/PID/task` omits one at that moment.
#[test]
fn threads_are_listed_beside_ends() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for source in SOURCES {
        let mut handle = handle(source);
        let query = Query::threads_of(std::process::id()).fields(Field::Tid);
        for round in 0..scaled(200).max(20) {
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let mut stay = Vec::new();
                for place in 0..PAIRS {
                    scope.spawn(move || std::thread::sleep(Duration::from_micros(place * 40)));
                    let (sender, receiver) = std::sync::mpsc::channel();
                    let is_over = &is_over;
                    scope.spawn(move || {
                        sender.send(rustix::thread::gettid()).expect("a receiver");
                        while !is_over.load(Ordering::Relaxed) {
                            std::thread::park_timeout(Duration::from_millis(5));
                        }
                    });
                    stay.push(receiver.recv().expect("a thread").as_raw_nonzero().get() as u32);
                }
                for _ in 0..10 {
                    let answer = handle.query(&query).expect("an answer");
                    let found: BTreeSet<u32> = answer.tasks().map(|task| task.tid().expect("an id")).collect();
                    let missed: Vec<_> = stay.iter().filter(|tid| !found.contains(tid)).collect();
                    if !missed.is_empty() {
                        is_over.store(true, Ordering::Relaxed);
                        panic!("{source}, round {round}: {missed:?} of {stay:?}");
                    }
                }
                is_over.store(true, Ordering::Relaxed);
            });
        }
    }
}

/// The number of threads that stay, each after one that ends.
const PAIRS: u64 = 40;
