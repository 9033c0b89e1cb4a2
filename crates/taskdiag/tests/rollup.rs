//! Proportional and unique sizes equal the kernel's rollup, within the budget, and known amounts of
//! memory have the known sizes.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use taskdiag::{Absent, Budget, Field, Fields, Filter, Group, Handle, Query, Scope, SourceId, Task};
use taskdiag_testkit::{
    child::{self, World},
    handle, scaled, test_name, SOURCES,
};
use taskdiag_zoo::{Churn, Farm};

/// How often values that move are read again until they hold still.
const ROUNDS: usize = 40;

/// The lines of the text, and their fields.
const LINES: [(&str, Field); 22] = [
    ("Rss", Field::RollupRssBytes),
    ("Pss", Field::PssBytes),
    ("Pss_Dirty", Field::PssDirtyBytes),
    ("Pss_Anon", Field::PssAnonBytes),
    ("Pss_File", Field::PssFileBytes),
    ("Pss_Shmem", Field::PssShmemBytes),
    ("Shared_Clean", Field::SharedCleanBytes),
    ("Shared_Dirty", Field::SharedDirtyBytes),
    ("Private_Clean", Field::PrivateCleanBytes),
    ("Private_Dirty", Field::PrivateDirtyBytes),
    ("Referenced", Field::ReferencedBytes),
    ("Anonymous", Field::AnonymousBytes),
    ("KSM", Field::KsmBytes),
    ("LazyFree", Field::LazyfreeBytes),
    ("AnonHugePages", Field::AnonHugeBytes),
    ("ShmemPmdMapped", Field::ShmemHugeBytes),
    ("FilePmdMapped", Field::FileHugeBytes),
    ("Shared_Hugetlb", Field::SharedHugetlbBytes),
    ("Private_Hugetlb", Field::PrivateHugetlbBytes),
    ("Swap", Field::RollupSwapBytes),
    ("SwapPss", Field::SwapPssBytes),
    ("Locked", Field::RollupLockedBytes),
];

fn rollup() -> Fields {
    Fields::of_group(Group::Rollup) | Field::Comm
}

/// Reads everything, every time.
fn exactly(query: Query) -> Query {
    query.fields(rollup()).budget(Budget::UNLIMITED)
}

/// The kernel's rollup of a process: bytes by line.
type Text = BTreeMap<String, u64>;

/// The text, or why there is none.
fn text(path: &str) -> Result<Text, Absent> {
    let text = fs::read_to_string(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => Absent::NoMemory,
        Some(libc::EACCES) => Absent::Denied,
        _ => panic!("{path}: {error}"),
    })?;
    let mut sums = Text::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let Some(kib) = value.trim().strip_suffix(" kB") else {
            continue;
        };
        *sums.entry(name.to_owned()).or_default() += kib.trim().parse::<u64>().expect("a number") * 1024;
    }
    Ok(sums)
}

fn file(pid: u32, name: &str) -> String {
    format!("/proc/{pid}/{name}")
}

/// The text of a process; if its first thread has ended, that of another one.
fn text_of(pid: u32, name: &str) -> Result<Text, Absent> {
    let own = text(&file(pid, name));
    let threads = taskdiag_testkit::text::threads_of(pid)
        .into_iter()
        .filter(|id| id.tid != pid);
    match own {
        Err(Absent::NoMemory) => threads
            .map(|id| text(&file(pid, &format!("task/{}/{name}", id.tid))))
            .find(Result::is_ok)
            .unwrap_or(own),
        own => own,
    }
}

/// The value for a field in a text.
fn says(text: &Result<Text, Absent>, field: Field) -> Result<u64, Absent> {
    let text = text.as_ref().map_err(|&reason| reason)?;
    if field == Field::UssBytes {
        let line = |name: &str| text.get(name).copied().unwrap_or(0);
        return Ok(line("Private_Clean") + line("Private_Dirty"));
    }
    let (name, _) = LINES.iter().find(|(_, of)| *of == field).expect("a line");
    text.get(*name).copied().ok_or(Absent::Unsupported)
}

fn ours(task: &Task<'_>, field: Field) -> Result<u64, Absent> {
    match task.value(field)? {
        taskdiag::Value::Unsigned(number) => Ok(number),
        other => panic!("{field} is {other:?}"),
    }
}

/// Compares the rollups of all processes with the kernel's file, read before and after. Processes
/// whose values moved are queried again.
fn compare_all(handle: &mut Handle, what: &str) {
    let mut left: Option<Vec<u32>> = None;
    let mut counts: BTreeMap<Field, (usize, usize)> = BTreeMap::new();
    let mut stories = Vec::new();
    // Those whose two texts differed in the last round: another process's memory may never be at
    // rest, such as a compiler's.
    let mut restless = Vec::new();
    for _ in 0..ROUNDS {
        let pids: Vec<u32> = match &left {
            None => taskdiag_testkit::text::processes()
                .into_iter()
                .map(|id| id.pid)
                .collect(),
            Some(left) => left.clone(),
        };
        if pids.is_empty() {
            break;
        }
        let read = |pids: &[u32]| -> BTreeMap<u32, Result<Text, Absent>> {
            pids.iter().map(|&pid| (pid, text_of(pid, "smaps_rollup"))).collect()
        };
        let before = read(&pids);
        let snapshot = handle
            .query(&exactly(Query::these(pids.iter().copied())))
            .expect("an answer");
        let after = read(&pids);
        assert_eq!(snapshot.counters().malformed, 0);
        assert_eq!(snapshot.counters().over_budget, 0);
        stories.clear();
        restless.clear();
        let mut moved = Vec::new();
        for task in snapshot.tasks() {
            let pid = task.pid().expect("a pid");
            let mut is_right = true;
            let fields: Vec<Field> = LINES.iter().map(|(_, field)| *field).chain([Field::UssBytes]).collect();
            for &field in &fields {
                let (said, ours, says) = (
                    says(&before[&pid], field),
                    ours(&task, field),
                    says(&after[&pid], field),
                );
                if ours != said && ours != says {
                    is_right = false;
                    stories.push(format!(
                        "{pid} {:?} {field}: {ours:?}, the text {said:?} and {says:?}",
                        task.comm()
                    ));
                }
            }
            if !is_right {
                moved.push(pid);
                if before[&pid] != after[&pid] {
                    restless.push(pid);
                }
            } else {
                for &field in &fields {
                    let (values, absent) = counts.entry(field).or_default();
                    *if ours(&task, field).is_ok() { values } else { absent } += 1;
                }
            }
        }
        left = Some(moved);
    }
    println!("{what}:");
    for (field, (values, absent)) in &counts {
        println!("  {field:<24} {values:>6} values {absent:>6} absent");
    }
    // This process's memory moves while it is read.
    restless.push(std::process::id());
    let mut left = left.unwrap_or_default();
    left.retain(|pid| !restless.contains(pid));
    assert!(
        left.is_empty(),
        "{what}: {left:?} never matched:\n{}",
        stories.join("\n")
    );
    assert!(
        counts[&Field::PssBytes].0 >= 20,
        "{what}: only {:?} were compared",
        counts[&Field::PssBytes]
    );
}

/// Check that each field equals the kernel's rollup, for every running process, whichever source
/// lists the processes.
#[test]
fn rollups_equal_the_text() {
    let animals = taskdiag_testkit::everything();
    for source in SOURCES {
        compare_all(&mut handle(source), &format!("{source}, {} animals", animals.len()));
    }
}

/// Check that the sums over `smaps` have the same values, except for the rounding of each mapping's
/// proportional size, and that values that only the rollup has are unsupported.
#[test]
fn sums_equal_the_rollup() {
    let animals = taskdiag_testkit::everything();
    let quiet: Vec<u32> = animals.iter().map(|animal| animal.pid as u32).collect();
    let query = exactly(Query::these(quiet));
    let (mut rollups, mut sums) = (
        handle(SourceId::Procfs),
        handle(SourceId::Procfs).with_source(SourceId::Smaps),
    );
    let mut compared = 0;
    for round in 0.. {
        let (rollup, sum) = (
            rollups.query(&query).expect("rollups"),
            sums.query(&query).expect("sums"),
        );
        let answers: Vec<_> = sum.answers().filter(|(group, _)| *group == Group::Rollup).collect();
        assert_eq!(answers, [(Group::Rollup, Ok(SourceId::Smaps))]);
        compared = 0;
        let mut wrong = Vec::new();
        for (rollup, sum) in rollup.tasks().zip(sum.tasks()) {
            let pid = rollup.pid().expect("a pid");
            assert_eq!(sum.pid(), Ok(pid));
            let lines = |path| fs::read_to_string(path).map_or(0, |text| text.lines().count()) as u64;
            let threads = taskdiag_testkit::text::threads_of(pid).into_iter();
            let maps = threads.map(|id| lines(file(pid, &format!("task/{}/maps", id.tid))));
            let maps = maps.max().unwrap_or_default();
            for (_, field) in LINES {
                let (whole, summed) = (ours(&rollup, field), ours(&sum, field));
                let is_proportional = field.name().contains("pss") || field == Field::RollupLockedBytes;
                let is_right = match (whole, summed) {
                    // The kernel has sizes by kind only for the whole process.
                    (Ok(_), Err(Absent::Unsupported)) => {
                        matches!(field, Field::PssAnonBytes | Field::PssFileBytes | Field::PssShmemBytes)
                    }
                    (Ok(whole), Ok(summed)) if is_proportional => summed <= whole && whole - summed <= maps * 1024,
                    (whole, summed) => whole == summed,
                };
                compared += usize::from(whole.is_ok() && summed.is_ok());
                if !is_right {
                    wrong.push(format!(
                        "{pid} {field}: {whole:?} in all, {summed:?} summed up, {maps} mappings"
                    ));
                }
            }
        }
        if wrong.is_empty() {
            break;
        }
        assert!(round < ROUNDS, "{}", wrong.join("\n"));
    }
    println!("{compared} values compared");
    assert!(compared > 20 * LINES.len());
}

/// Check that tasks without memory are reported as such, that threads have the values of their
/// process, even after its leader has ended, and that values that were not asked for are not there.
#[test]
fn threads_share_and_others_have_none() {
    let (zombie, dead) = (
        taskdiag_testkit::animal("zombie"),
        taskdiag_testkit::animal("dead-leader"),
    );
    for source in SOURCES {
        let mut handle = handle(source);
        let mut ask = |query: Query| handle.query(&exactly(query)).expect("an answer");
        let none = ask(Query::these([2, zombie.pid as u32]));
        assert_eq!(none.len(), 2);
        for task in none.tasks() {
            assert_eq!(task.pss_bytes(), Err(Absent::NoMemory), "{source} {:?}", task.comm());
            assert_eq!(task.rollup_age_ns(), Err(Absent::NoMemory));
        }
        // Other processes that share its program start and end.
        let is_so = (0..ROUNDS).any(|_| {
            let threads = ask(Query::threads_of(dead.pid as u32));
            assert_eq!(threads.counters().walked, 1, "{source}");
            assert!(threads.len() > 1);
            let process = ask(Query::process(dead.pid as u32));
            let mut living = threads
                .tasks()
                .filter(|task| task.tid() != task.pid())
                .chain(process.tasks());
            living.all(|task| {
                let said = says(&text_of(dead.pid as u32, "smaps_rollup"), Field::PssBytes);
                said.is_ok() && ours(&task, Field::PssBytes) == said
            })
        });
        assert!(is_so, "{source}");
        let alone = Query::process(dead.pid as u32).fields(Field::Comm);
        let alone = handle.query(&alone).expect("an answer");
        assert_eq!(alone.task(0).pss_bytes(), Err(Absent::NotAsked));
    }
}

/// Check that a process that the caller may not trace is denied, and that other processes are still
/// answered.
#[test]
fn denied_is_not_absent() {
    child::run(test_name!(), "nobody", child::nobody(0), || {
        let own = std::process::id();
        let snapshot = Handle::new()
            .query(&exactly(Query::these([own, std::os::unix::process::parent_id()])))
            .expect("an answer");
        for task in snapshot.tasks() {
            let value = ours(&task, Field::PssBytes);
            if task.pid() == Ok(own) {
                assert!(value.is_ok_and(|bytes| bytes > 0), "{value:?}")
            } else {
                assert_eq!(value, Err(Absent::Denied))
            }
        }
        assert_eq!(snapshot.len(), 2);
        let big = Filter::parse("pss_bytes > 0").expect("a filter");
        let filtered = Handle::new().query(&Query::processes().filter(big)).expect("an answer");
        let pids: Vec<_> = filtered.tasks().filter_map(|task| task.pid().ok()).collect();
        assert!(pids.contains(&own), "{pids:?}");
        assert!(filtered.counters().undecided.total() > 0);
    });
}

/// Check that a filter decides by rollups, and that only the tasks that the rest of the filter
/// admits are walked.
#[test]
fn filters_come_before_walks() {
    let farm = Farm::start(50, 1).expect("a farm");
    let own = std::process::id();
    for source in SOURCES {
        let mut handle = handle(source);
        let mut ask = |text: &str| {
            let filter = Filter::parse(text).expect("a filter");
            handle
                .query(&exactly(Query::processes()).filter(filter))
                .expect("an answer")
        };
        let all = ask(&format!(
            "comm == 'zoo' and pss_bytes > 0 or pid == {own} and uss_bytes > 4K"
        ));
        assert!(all.len() > farm.pids().len(), "{source}: {}", all.len());
        let one = ask(&format!("pid == {own} and pss_bytes > 4K"));
        assert_eq!((one.len(), one.counters().walked), (1, 1), "{source}");
        let none = ask(&format!("pid == {own} and pss_bytes > 1T"));
        assert_eq!((none.len(), none.counters().walked), (0, 1), "{source}");
        assert_eq!(none.counters().tasks, 0);
    }
}

/// Check that processes that start and end do not stop the answer, and that it has only values and
/// absences.
#[test]
fn processes_vanish() {
    let _farm = Farm::start(20, 1).expect("a farm");
    let _churn = Churn::start(500).expect("churn");
    for source in SOURCES {
        let mut handle = handle(source);
        let mut gone = 0;
        for _ in 0..scaled(10) {
            let snapshot = handle.query(&exactly(Query::processes())).expect("an answer");
            assert_eq!(snapshot.counters().malformed, 0);
            let mut values = 0;
            for task in snapshot.tasks() {
                match ours(&task, Field::PssBytes) {
                    Ok(_) => values += 1,
                    Err(Absent::Gone) => gone += 1,
                    Err(Absent::NoMemory | Absent::Denied) => {}
                    Err(reason) => panic!("{source} {:?}: {reason}", task.comm()),
                }
            }
            assert!(values > 20);
        }
        println!("{source}: {gone} were gone when they were looked at");
    }
}

/// Resident memory of many pages made of few: the same pages, mapped again and again.
struct Resident {
    at: *mut libc::c_void,
    len: usize,
}

impl Resident {
    fn new(len: usize) -> Resident {
        const PIECE: usize = 2 << 20;
        // SAFETY: a new mapping at any address, a new file, and mappings of that file over the
        // first one.
        unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            let file = libc::memfd_create(c"taskdiag-test".as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0);
            assert_eq!(libc::ftruncate(file, PIECE as i64), 0);
            for offset in (0..len).step_by(PIECE) {
                let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE;
                let piece = libc::mmap(
                    at.byte_add(offset),
                    PIECE,
                    libc::PROT_READ | libc::PROT_WRITE,
                    flags,
                    file,
                    0,
                );
                assert_ne!(piece, libc::MAP_FAILED);
            }
            libc::close(file);
            Resident { at, len }
        }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.at, self.len) };
    }
}

/// Check that a process above the limit is left out and counted, and that others are not.
#[test]
fn large_processes_are_over_budget() {
    let farm = Farm::start(20, 1).expect("a farm");
    let own = std::process::id();
    let _large = Resident::new(256 << 20);
    let budget = Budget::default().max_rss_bytes(Some(128 << 20)).deadline(None);
    let pids = farm.pids().iter().map(|&pid| pid as u32).chain([own]);
    let query = Query::these(pids).fields(rollup()).budget(budget);
    for source in SOURCES {
        let snapshot = handle(source).query(&query).expect("an answer");
        assert_eq!(snapshot.counters().over_budget, 1);
        assert_eq!(snapshot.counters().walked, 20);
        for task in snapshot.tasks() {
            let value = ours(&task, Field::PssBytes);
            if task.pid() == Ok(own) {
                assert_eq!(value, Err(Absent::OverBudget))
            } else {
                assert!(value.is_ok(), "{value:?}")
            }
            assert!(task.rss_bytes().is_ok(), "what is cheap is there");
        }
    }
}

/// Check that nothing is read without time, only small processes if the time is too short for a
/// large one, and all if it is enough.
#[test]
fn the_cheapest_are_read_first() {
    let farm = Farm::start(20, 1).expect("a farm");
    let own = std::process::id();
    // A walk that takes at least some milliseconds on any machine.
    let _large = Resident::new(1 << 30);
    let pids: Vec<u32> = farm.pids().iter().map(|&pid| pid as u32).chain([own]).collect();
    let ask = |handle: &mut Handle, deadline: Option<Duration>| {
        let budget = Budget::UNLIMITED.deadline(deadline);
        let query = Query::these(pids.iter().copied()).fields(rollup()).budget(budget);
        let snapshot = handle.query(&query).expect("an answer");
        let is_there = |is_large: bool| {
            let tasks = snapshot.tasks().filter(|task| (task.pid() == Ok(own)) == is_large);
            tasks.filter(|task| ours(task, Field::PssBytes).is_ok()).count()
        };
        (is_there(false), is_there(true), snapshot.counters().over_budget)
    };
    for source in SOURCES {
        let mut handle = handle(source);
        assert_eq!(ask(&mut handle, Some(Duration::ZERO)), (0, 0, 21), "{source}");
        assert_eq!(ask(&mut handle, None), (20, 1, 0), "{source}");
        // The time that the small ones took, and half of the time of the large one, so that it fits
        // any machine.
        let began = Instant::now();
        let query = exactly(Query::these(farm.pids().iter().map(|&pid| pid as u32)));
        handle.query(&query).expect("an answer");
        let small = began.elapsed();
        let began = Instant::now();
        handle.query(&exactly(Query::process(own))).expect("an answer");
        let large = began.elapsed();
        println!("{source}: {small:?} for the small ones, {large:?} for the large one");
        let mut seen = Vec::new();
        let is_so = (1..20).any(|tries| {
            let answer = ask(&mut handle, Some(small * tries + large / 4));
            seen.push(answer);
            (answer.0, answer.1) == (20, 0) && answer.2 == 1
        });
        assert!(is_so, "{source}: {seen:?}");
    }
}

/// Check that a handle walks only processes that have changed, that values have their age, and that
/// none is older than allowed.
#[test]
fn unchanged_processes_are_not_walked_again() {
    // In a process of its own: other tests in this process allocate and free memory meanwhile.
    child::run(test_name!(), "alone", World::default(), || {
        let farm = Farm::start(50, 1).expect("a farm");
        let own = std::process::id();
        let pids: Vec<u32> = farm.pids().iter().map(|&pid| pid as u32).chain([own]).collect();
        let query = |max_age: Duration| {
            let budget = Budget::UNLIMITED.max_age(max_age);
            Query::these(pids.iter().copied()).fields(rollup()).budget(budget)
        };
        let long = Duration::from_secs(3600);
        for source in SOURCES {
            let mut handle = handle(source);
            let first = handle.query(&query(long)).expect("an answer");
            assert_eq!(
                (first.counters().walked, first.counters().unchanged),
                (51, 0),
                "{source}"
            );
            let second = handle.query(&query(long)).expect("an answer");
            let counters = second.counters();
            assert_eq!(counters.walked + counters.unchanged, 51, "{source}");
            // This process has changed. By its clock ticks it may not seem to have run.
            assert!(counters.walked <= 1, "{source}: {counters:?}");
            for (before, after) in first.tasks().zip(second.tasks()) {
                if after.pid() == Ok(own) {
                    continue;
                }
                assert_eq!(before.pss_bytes(), after.pss_bytes());
                assert!(
                    before.rollup_age_ns().expect("an age") < after.rollup_age_ns().expect("an age"),
                    "{source}"
                );
            }
            // Without files: the kernel may take back pages of the program at any time.
            let before = says(&text_of(own, "smaps_rollup"), Field::AnonymousBytes).expect("a value");
            let pages = vec![1_u8; 64 << 20];
            let third = handle.query(&query(long)).expect("an answer");
            let mut tasks = third.tasks();
            let task = tasks.find(|task| task.pid() == Ok(own)).expect("this process");
            let after = ours(&task, Field::AnonymousBytes).expect("a value");
            assert_eq!(third.counters().walked, 1, "{source}");
            assert!(after >= before + pages.len() as u64, "{source}: {before}, {after}");
            for max_age in [Duration::ZERO, Duration::from_nanos(1)] {
                let fresh = handle.query(&query(max_age)).expect("an answer");
                assert_eq!(
                    (fresh.counters().walked, fresh.counters().unchanged),
                    (51, 0),
                    "{source}"
                );
            }
        }
    });
}

/// Check that a child after fork(2) can continue to query with its parent's handle.
#[test]
fn forked_handles_begin_afresh() {
    child::run(test_name!(), "alone", World::default(), || {
        let mut handle = Handle::new();
        let query = exactly(Query::process(std::process::id()));
        handle.query(&query).expect("an answer");
        // SAFETY: the child asks and ends. It may allocate: no other thread of this process does.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let query = exactly(Query::process(std::process::id()));
            let is_right = handle
                .query(&query)
                .is_ok_and(|snapshot| snapshot.task(0).pss_bytes().is_ok());
            // SAFETY: ends the child.
            unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0);
    });
}

/// Check that the rollups of a process's descendants are read, and no others.
#[test]
fn scopes_bound_what_is_walked() {
    // Without the children of other tests, which may end before their turn.
    child::run(test_name!(), "alone", World::default(), || {
        let farm = Farm::start(10, 1).expect("a farm");
        let mut handle = Handle::new();
        let snapshot = handle
            .query(&exactly(Query::new(Scope::DescendantsOf(std::process::id()))))
            .expect("an answer");
        assert!(snapshot.len() > 10);
        assert_eq!(snapshot.counters().walked, snapshot.len() as u64);
        assert!(farm.pids().len() == 10);
    });
}

/// Check that a caller without free descriptors gets an error: no process seems to have ended.
#[test]
fn too_few_descriptors_are_an_error() {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

    child::run(test_name!(), "few", World::default(), || {
        let sleeper = taskdiag_testkit::animal("stopped");
        // Listing the tasks needs no descriptor.
        let mut handle = handle(SourceId::Bpf);
        let query = Query::these([sleeper.pid as u32]).fields(Field::PssBytes);
        assert!(handle.query(&query).expect("processes").task(0).pss_bytes().is_ok());
        let before = getrlimit(Resource::Nofile);
        let free = std::os::fd::AsRawFd::as_raw_fd(&fs::File::open("/dev/null").expect("it exists"));
        let found: Vec<Option<bool>> = (0..8)
            .map(|more| {
                let current = Some(free as u64 + more);
                setrlimit(Resource::Nofile, Rlimit { current, ..before }).expect("a lower limit");
                // What was read lately is not read again.
                let mut fresh = query.clone().budget(Budget::default().max_age(Duration::ZERO));
                fresh = fresh.patience(Duration::from_secs(5));
                let answer = handle.query(&fresh);
                setrlimit(Resource::Nofile, before).expect("the limit from before");
                match answer {
                    Ok(snapshot) => Some(snapshot.len() == 1 && snapshot.task(0).pss_bytes().is_ok()),
                    Err(error) => {
                        assert_eq!(error.kind(), taskdiag::ErrorKind::System, "{error}");
                        None
                    }
                }
            })
            .collect();
        assert!(!found.contains(&Some(false)), "{found:?}");
        assert_eq!((found[1], found[7]), (None, Some(true)), "{found:?}");
    });
}
