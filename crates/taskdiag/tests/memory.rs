//! Reading an answer allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use taskdiag::pagecache::{residency, ByteRange, Source};
use taskdiag::{Field, Fields, Handle, Query, Snapshot, Value};
use taskdiag_testkit::{child, handle, test_name, SOURCES};
use taskdiag_zoo::{Churn, Farm};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many allocations `action` makes in this thread.
fn allocations(action: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    action();
    ALLOCATIONS.with(Cell::get) - before
}

/// How many processes sleep beside the tests.
fn farm_size() -> usize {
    taskdiag_testkit::scaled(500).max(100)
}

/// More than a query may allocate, but far fewer than there are tasks.
const FEW: usize = 40;

/// Reads every field of every task completely.
fn read_all(snapshot: &Snapshot) -> u64 {
    let mut sum = 0;
    for task in snapshot.tasks() {
        for &field in Field::ALL {
            sum += match task.value(field) {
                Ok(Value::Unsigned(number) | Value::Mask(number)) => number & 1,
                Ok(Value::Signed(number)) => number as u64 & 1,
                Ok(Value::Float(number)) => number as u64 & 1,
                Ok(Value::Flag(flag)) => flag.into(),
                Ok(Value::Letter(letter)) => letter as u64 & 1,
                Ok(Value::Text(text)) => text.len() as u64,
                Ok(Value::Texts(texts)) => texts.iter().map(|text| text.len() as u64).sum(),
                Ok(Value::Ids(ids)) => ids.iter().count() as u64,
                Ok(Value::Cpus(cpus)) => cpus.iter().count() as u64,
                Ok(Value::Limits(limits)) => limits.iter().count() as u64,
                Ok(other) => panic!("a kind of value that this does not read: {other:?}"),
                Err(_) => 1,
            };
        }
    }
    sum
}

/// Check that the counting allocator counts.
#[test]
fn allocations_are_counted() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
    assert_eq!(allocations(|| ()), 0);
}

/// Check that reading all values of all tasks allocates nothing.
#[test]
fn reading_allocates_nothing() {
    let _farm = Farm::start(farm_size(), 1).expect("a farm");
    let _zombie = taskdiag_testkit::animal("zombie");
    for source in SOURCES {
        let mut handle = handle(source);
        for query in [Query::processes(), Query::threads()] {
            // Twice: remembered arguments are read from another place.
            for _ in 0..2 {
                let snapshot = handle.query(&query.clone().fields(Fields::all())).expect("an answer");
                assert!(snapshot.len() > farm_size());
                let mut sum = 0;
                assert_eq!(
                    allocations(|| sum = read_all(&snapshot)),
                    0,
                    "{source} {:?}",
                    query.scope
                );
                assert!(sum > farm_size() as u64);
            }
        }
    }
}

/// Check that a query planner can find out how much of a file is cached without an allocation, from
/// either source.
#[test]
fn residency_allocates_nothing() {
    let file = std::fs::File::open("/proc/self/exe").expect("this program");
    // The source is determined once.
    residency(&file, ByteRange::ALL).expect("an answer");
    let part = ByteRange::new(4096, 1 << 20).expect("a range");
    let mut pages = 0;
    let count = allocations(|| {
        for range in [ByteRange::ALL, part] {
            pages += residency(&file, range).map_or(0, |answer| answer.cached_pages);
            pages += Source::Mincore
                .ask(&file, range)
                .map_or(0, |usage| usage.cached_pages());
        }
    });
    assert_eq!(count, 0);
    assert!(pages > 0);
}

/// Check that a warm handle reuses an old snapshot without an allocation for each task.
#[test]
fn repeated_queries_hardly_allocate() {
    // In a process that sees only its own farm: procfs reads parts of 64 tasks, and each part needs
    // some allocations, so that their number would depend on what else runs on the machine.
    child::run(test_name!(), "alone", child::first_of_namespace(), ask_again_and_again);
}

fn ask_again_and_again() {
    let _farm = Farm::start(farm_size(), 1).expect("a farm");
    for source in SOURCES {
        let mut handle = handle(source);
        let mut snapshot = Snapshot::default();
        let mut fields = Fields::all().without(Field::Cmdline | Field::Environ);
        if Handle::has_cgroup1() {
            // As arguments, what they are made of is in files of /proc, which are read in parts.
            let made_of_cgroup = |field: &Field| field.info().made_of.contains(&Field::Cgroup);
            fields = fields.without(fields.iter().filter(made_of_cgroup).collect::<Fields>());
        }
        for query in [Query::processes(), Query::threads()] {
            let query = query.fields(fields);
            // Capacities grow for a while, and other processes start. Most of the later passes must
            // be as expected.
            let counts: Vec<usize> = (0..12)
                .map(|_| allocations(|| handle.query_into(&query, &mut snapshot).expect("an answer")))
                .collect();
            assert!(snapshot.len() > farm_size());
            println!(
                "{source} {:?}: {} tasks, allocations of each query: {counts:?}",
                query.scope,
                snapshot.len()
            );
            let mut late = counts[4..].to_vec();
            late.sort_unstable();
            assert!(late[late.len() / 2] <= FEW, "{source} {:?}: {counts:?}", query.scope);
        }
    }
}

/// What this process holds: the number of open files, and its own resident memory in KiB.
fn held() -> (usize, u64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let anon = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let anon = anon.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    let files = std::fs::read_dir("/proc/self/fd").expect("fd").count();
    (files, anon.expect("a size"))
}

/// Check that a handle that is queried again and again while processes start and end holds no more
/// at the end than soon after the beginning: no descriptors, no maps, no memory.
#[test]
fn memory_stays_flat_under_churn() {
    // In a process of its own, which sees only the processes of its churn: neither the resources of
    // other tests nor the arguments of other processes count.
    child::run(test_name!(), "alone", child::first_of_namespace(), ask_under_churn);
}

fn ask_under_churn() {
    const SLACK_KIB: u64 = 4 << 10;
    let _churn = Churn::start(1000).expect("churn");
    let everything = Query::processes().fields(Fields::all());
    let changed = Query::threads().fields(Field::UtimeNs | Field::Cmdline).only_changed();
    let few = Query::these(1..20).fields(Field::Comm);
    let own = format!("pid == {} or comm ~ '^zoo'", std::process::id());
    let filtered = Query::processes()
        .fields(Field::Cmdline)
        .filter(taskdiag::Filter::parse(&own).expect("a filter"));
    for source in SOURCES {
        let mut handle = handle(source);
        let mut snapshot = Snapshot::default();
        let rounds = match source {
            taskdiag::SourceId::Bpf => taskdiag_testkit::scaled(10_000),
            _ => taskdiag_testkit::scaled(1_000),
        } / 4;
        let mut early = None;
        for round in 0..rounds {
            for query in [&everything, &changed, &few, &filtered] {
                handle.query_into(query, &mut snapshot).expect("an answer");
            }
            if round == rounds / 5 {
                early = Some(held());
            }
        }
        let (early, late) = (early.expect("there are rounds"), held());
        println!(
            "{source}: {early:?} after {} answers, {late:?} after {}",
            rounds / 5 * 4,
            rounds * 4
        );
        assert!(late.0 <= early.0, "{source}: {early:?} {late:?}");
        assert!(late.1 <= early.1 + SLACK_KIB, "{source}: {early:?} {late:?}");
    }
}
