//! Scopes: single processes, threads, children; and callers in other namespaces.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use taskdiag::maps::{MapField, Perms};
use taskdiag::pagecache;
use taskdiag::{ErrorKind, Field, Fields, Filter, Handle, Query, Scope, Snapshot, SourceId};
use taskdiag_testkit::{
    animal,
    child::{self, World},
    compare::compare,
    handle, kernel, test_name, SOURCES,
};
use taskdiag_zoo::{Animal, Farm};

fn pids(snapshot: &Snapshot) -> Vec<i32> {
    snapshot.tasks().map(|task| task.pid().expect("a pid") as i32).collect()
}

fn tids(snapshot: &Snapshot) -> Vec<i32> {
    snapshot.tasks().map(|task| task.tid().expect("a tid") as i32).collect()
}

/// Both sources, each with a new handle and with one that has been used.
fn each_source(check: impl Fn(SourceId, &mut Handle)) {
    for source in SOURCES {
        let mut handle = handle(source);
        check(source, &mut taskdiag_testkit::unasked(source));
        check(source, &mut handle);
        check(source, &mut handle);
    }
}

/// Check that a query about one process returns only that process, equal to the text.
#[test]
fn process_is_one_row() {
    let animal = animal("threads-5");
    let pid = animal.pid as u32;
    each_source(|source, handle| {
        let snapshot = handle
            .query(&Query::process(pid).fields(Fields::all()))
            .expect("a process");
        assert_eq!((pids(&snapshot), tids(&snapshot)), (vec![animal.pid], vec![animal.pid]));
        compare(handle, source, Scope::Process(pid)).check("one process", 1);
    });
}

/// Check that all threads of a process are returned, once each, sorted, equal to the text.
#[test]
fn threads_of_is_every_thread() {
    for name in ["threads-5", "threads-500", "dead-leader"] {
        let animal = animal(name);
        let known = animal.facts.tids.clone().expect("known threads");
        each_source(|source, handle| {
            let query = Query::threads_of(animal.pid as u32).fields(Fields::all());
            let snapshot = handle.query(&query).expect("threads");
            assert_eq!(tids(&snapshot), known, "{source} {name}");
            assert!(pids(&snapshot).iter().all(|&pid| pid == animal.pid), "{source} {name}");
            compare(handle, source, query.scope).check(name, known.len() - usize::from(name == "dead-leader"));
        });
    }
}

/// Check that children are found: living ones, zombies, adopted ones, none.
#[test]
fn children_of_is_every_child() {
    let families = ["family", "vfork-parent", "memory-shared", "pid-namespace", "terminal"].map(animal);
    let childless = animal("nice-7");
    let orphan = animal("orphan-of-subreaper");
    each_source(|source, handle| {
        let mut children = |pid: i32| {
            let query = Query::children_of(pid as u32).fields(Field::Ppid | Field::State);
            let snapshot = handle
                .query(&query)
                .unwrap_or_else(|error| panic!("{source} {pid}: {error}"));
            assert!(snapshot.tasks().all(|task| task.ppid() == Ok(pid as u32)));
            pids(&snapshot)
        };
        for family in &families {
            // The ids of a family are those that its parent saw. A process in another namespace has
            // other ids.
            let text = fs::read_to_string(format!("/proc/{0}/task/{0}/children", family.pid)).expect("children");
            let mut known: Vec<i32> = text.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect();
            known.sort_unstable();
            assert!(!known.is_empty(), "{} has no children", family.name);
            assert_eq!(children(family.pid), known, "{source} {}", family.name);
        }
        assert_eq!(children(childless.pid), [0; 0], "{source}");
        let parent = orphan.facts.ppid.expect("a known parent");
        assert_eq!(children(parent), [orphan.pid], "{source}");
    });
}

/// Check that children are found whether or not their parents are asked for.
#[test]
fn children_do_not_depend_on_the_fields() {
    let family = animal("family");
    let known = family.facts.children.clone().expect("known children");
    for source in SOURCES {
        for fields in [
            Field::Pid.into(),
            Field::Uid.into(),
            Field::Cmdline.into(),
            Fields::all(),
        ] {
            let query = Query::children_of(family.pid as u32).fields(fields);
            let snapshot = handle(source).query(&query).expect("children");
            assert_eq!(pids(&snapshot), known, "{source} {fields:?}");
        }
    }
}

/// A thread that is not the leader.
fn last_thread(animal: &Animal) -> u32 {
    let tids = animal.facts.tids.as_ref().expect("known threads");
    *tids.last().expect("a thread") as u32
}

/// Check that unknown ids are errors, including the ids of threads that are not leaders.
#[test]
fn unknown_ids_are_errors() {
    let animal = animal("threads-5");
    let thread = last_thread(&animal);
    assert_ne!(thread as i32, animal.pid);
    let gone = {
        let mut child = Command::new("/proc/self/exe")
            .arg("--list")
            .stdout(Stdio::null())
            .spawn()
            .expect("a child");
        child.wait().expect("its end");
        child.id()
    };
    let mut wrong = Vec::new();
    for source in SOURCES {
        let mut handle = handle(source);
        for pid in [gone, thread, 0, 4_194_305, i32::MAX as u32, u32::MAX] {
            for scope in [Scope::Process(pid), Scope::ThreadsOf(pid), Scope::ChildrenOf(pid)] {
                // Another test checks the threads and children for the id of a thread.
                if pid == thread && !matches!(scope, Scope::Process(_)) {
                    continue;
                }
                let query = Query::new(scope);
                let tested = query.clone().filter(Filter::parse("uid == 0").expect("a filter"));
                let changed = query.clone().only_changed();
                for query in [query.fields(Fields::all()), tested, changed] {
                    match handle.query(&query) {
                        Err(error) if error.kind() == ErrorKind::NoSuchTask => {}
                        Err(error) => wrong.push(format!("{source} {query:?}: {:?}: {error}", error.kind())),
                        Ok(found) => wrong.push(format!("{source} {query:?}: {} rows", found.len())),
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "no NoSuchTask but\n{}", wrong.join("\n"));
}

/// Check that a process that does not pass a filter is no error.
#[test]
fn processes_may_fail_a_filter() {
    let own = std::process::id();
    for source in SOURCES {
        let mut handle = handle(source);
        for scope in [Scope::Process(own), Scope::ThreadsOf(own), Scope::ChildrenOf(own)] {
            for filter in ["uid == 4242", "cmdline == ''"] {
                let filter = Filter::parse(filter).expect("a filter");
                let found = handle.query(&Query::new(scope).filter(filter)).expect("an answer");
                assert!(found.is_empty(), "{source} {scope:?}");
            }
        }
    }
}

/// Check that in every scope both sources interpret the id of a thread alike.
#[test]
fn thread_ids_mean_the_same_to_both_sources() {
    let animal = animal("threads-5");
    let thread = last_thread(&animal);
    for scope in [Scope::ThreadsOf(thread), Scope::ChildrenOf(thread)] {
        let answers = SOURCES.map(|source| {
            let answer = handle(source).query(&Query::new(scope));
            answer.map(|snapshot| tids(&snapshot)).map_err(|error| error.kind())
        });
        assert_eq!(answers[0], answers[1], "{scope:?}");
    }
}

/// Check that processes are sorted by id.
#[test]
fn processes_are_in_order() {
    each_source(|source, handle| {
        let snapshot = handle.query(&Query::processes()).expect("processes");
        assert!(pids(&snapshot).is_sorted(), "{source}");
        assert!(snapshot.len() > 2, "{source}");
    });
}

/// Check that after an error a snapshot has nothing from an earlier answer.
#[test]
fn errors_leave_an_empty_snapshot() {
    each_source(|_, handle| {
        let mut snapshot = Snapshot::default();
        handle
            .query_into(&Query::processes(), &mut snapshot)
            .expect("processes");
        assert!(!snapshot.is_empty());
        let error = handle.query_into(&Query::process(u32::MAX), &mut snapshot);
        assert!(error.is_err() && snapshot.is_empty());
    });
}

/// Check that in a pid namespace with its own `/proc` all ids are those of the namespace.
#[test]
fn pid_namespace_has_its_own_ids() {
    child::run(test_name!(), "inside", child::first_of_namespace(), || {
        assert_eq!(std::process::id(), 1);
        let farm = Farm::start(30, 2).expect("a farm");
        let deeper = ["pid-namespace", "pid-namespace-deep", "zombie", "traced"].map(animal);
        each_source(|source, handle| {
            let snapshot = handle
                .query(&Query::processes().fields(Fields::all()))
                .expect("processes");
            let first = snapshot.task(0);
            assert_eq!(
                (first.pid(), first.ppid(), first.sid()),
                (Ok(1), Ok(0), Ok(0)),
                "{source}"
            );
            assert!(pids(&snapshot).is_sorted());
            for pid in farm
                .pids()
                .iter()
                .copied()
                .chain(deeper.iter().map(|animal| animal.pid))
            {
                assert!(pids(&snapshot).contains(&pid), "{source} {pid}");
            }
            let one = handle
                .query(&Query::process(farm.pids()[7] as u32).fields(Field::Cmdline))
                .expect("one");
            assert!(one
                .task(0)
                .cmdline()
                .expect("arguments")
                .as_bytes()
                .ends_with(b"0000007\0"));
            let two = handle
                .query(&Query::threads_of(farm.pids()[7] as u32))
                .expect("two threads");
            assert_eq!(two.len(), 2, "{source}");
            for scope in [Scope::Processes, Scope::Threads, Scope::ChildrenOf(1)] {
                let what = format!("{source} {scope:?} in a pid namespace");
                compare(handle, source, scope).check(&what, if scope.is_threads() { 20 } else { 3 });
            }
        });
    });
}

/// Check that in a container both sources agree with its `/proc`, even for paths outside its root.
#[test]
fn containers_have_their_own_proc() {
    let world = World {
        pid_namespace: true,
        ..World::default()
    };
    child::run(test_name!(), "inside", world, || {
        child::enter_container(c"/tmp").expect("a container");
        let _animals = ["threads-5", "pid-namespace", "exe-deleted", "zombie", "set-uid"].map(animal);
        for source in SOURCES {
            for scope in [Scope::Processes, Scope::Threads] {
                compare(&mut handle(source), source, scope).check(&format!("{source} {scope:?} in a container"), 5);
            }
        }
    });
}

/// Check that in a time namespace start times equal those of its text.
#[test]
fn time_namespace_has_its_own_start_times() {
    let world = World {
        boottime_offset_s: 86_400,
        ..World::default()
    };
    child::run(test_name!(), "inside", world, || {
        let uptime = fs::read_to_string("/proc/uptime").expect("uptime");
        let uptime: f64 = uptime.split(' ').next().expect("a number").parse().expect("a number");
        assert!(uptime > 86_400.0);
        let _animals = ["nice-7", "time-namespace", "zombie", "threads-5"].map(animal);
        for source in SOURCES {
            for scope in [Scope::Processes, Scope::Process(std::process::id())] {
                let report = compare(&mut handle(source), source, scope);
                report.check(&format!("{source} {scope:?} in a time namespace"), 1);
            }
        }
    });
}

/// Check that a `/proc` of another pid namespace does not count as the caller's: BPF answers with
/// the caller's own ids, and procfs reports what is wrong.
#[test]
fn foreign_proc_is_noticed() {
    let world = World {
        pid_namespace: true,
        ..World::default()
    };
    child::run(test_name!(), "inside", world, || {
        let refused = Handle::new()
            .with_source(SourceId::Procfs)
            .query(&Query::processes())
            .expect_err("a wrong /proc");
        let cached = pagecache::Source::of_this_host();
        let mut finder = pagecache::Finder::new(cached, pagecache::ByteRange::ALL, Duration::from_secs(1));
        let (mut seen, perms) = (pagecache::Seen::default(), Perms::EXEC);
        // An id may be that of another process there.
        let own = std::process::id();
        let errors = [
            refused,
            Handle::new().maps(own).map(drop).expect_err("a wrong /proc"),
            Handle::new()
                .all_maps(perms, MapField::Name)
                .map(drop)
                .expect_err("a wrong /proc"),
            finder
                .held_files(own, &mut seen, &mut |_| {})
                .expect_err("a wrong /proc"),
        ];
        for error in errors {
            assert!(error.to_string().contains("mount -t proc"), "{error}");
        }
        let mut bpf = handle(SourceId::Bpf);
        let snapshot = bpf
            .query(&Query::processes().fields(Field::Ppid | Field::StartNs))
            .expect("processes");
        assert_eq!(pids(&snapshot), [1]);
        assert_eq!(snapshot.task(0).ppid(), Ok(0));
    });
}

/// Check that programs find tasks themselves on every kernel that allows it (Linux 6.2), with and
/// without arguments.
#[test]
fn programs_find_tasks_themselves() {
    let version = kernel();
    for fields in [Field::Ppid | Field::Uid, Field::Ppid | Field::Cmdline] {
        let mut handle = Handle::new();
        handle.prepare(fields).expect("BPF");
        let why = handle.support().task_iterator.why.clone();
        assert_eq!(
            why == "loaded; it finds the tasks itself",
            version >= (6, 2),
            "Linux {version:?}: {why}"
        );
    }
}
