//! Who may query what, and what follows from a missing right or a missing part of the system. The
//! host is not changed: second processes with mounts of their own lack these things.

use std::collections::BTreeSet;

use taskdiag::{Absent, ErrorKind, Field, Fields, Group, Handle, Query, Scope, Snapshot, SourceId, Verdict};
use taskdiag_testkit::{
    animal,
    child::{self, nothing_pinned, Proc, World, BOTH, CAP_BPF, NOBODY},
    compare::{compare, Report},
    handle, kernel, test_name, text, SOURCES,
};

fn nobody(capabilities: u64) -> World {
    World {
        user: Some(NOBODY),
        capabilities,
        ..nothing_pinned()
    }
}

fn everything() -> Query {
    Query::processes().fields(Fields::all() | Field::Environ)
}

fn pids(snapshot: &Snapshot) -> Vec<u32> {
    snapshot.tasks().map(|task| task.pid().expect("a pid")).collect()
}

fn is_answered_by(snapshot: &Snapshot, source: SourceId) -> bool {
    // No other source reads the memory of processes.
    let source_of = |group| match group {
        Group::Args | Group::Env => SourceId::Procfs,
        _ => source,
    };
    snapshot
        .answers()
        .all(|(group, answer)| answer == Ok(source_of(group)) || answer == Err(Absent::Unsupported))
}

fn check_right(what: &str, report: &Report, least: usize) {
    println!(
        "{what}: {} tasks, {} values that the text denies",
        report.tasks, report.beyond_text
    );
    assert!(
        report.wrong.is_empty(),
        "{what}: {} wrong:\n{}",
        report.wrong.len(),
        report.wrong.join("\n")
    );
    assert!(report.tasks >= least, "{what}: {} tasks only", report.tasks);
}

/// Check that the worlds of these tests match their description.
#[test]
fn worlds_are_as_described() {
    child::run(test_name!(), "nobody", nobody(1 << CAP_BPF), || {
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        assert!(status.contains("\nUid:\t65534\t65534\t65534\t65534\n"), "{status}");
        assert!(status.contains("\nCapEff:\t0000008000000000\n"), "{status}");
    });
}

/// Check that BPF needs only `CAP_BPF` and `CAP_PERFMON`, and that it then shows what the text
/// denies.
#[test]
fn two_capabilities_suffice() {
    let _animals = child::part().is_none().then(taskdiag_testkit::everything);
    child::run(test_name!(), "both", nobody(BOTH), || {
        let mut handle = handle(SourceId::Bpf);
        for scope in [Scope::Processes, Scope::Threads] {
            let report = compare(&mut handle, SourceId::Bpf, scope);
            check_right("with two capabilities", &report, 20);
            assert!(report.beyond_text > 0, "no namespace of root's processes");
            assert!(report.counts[&Field::Cmdline].0 > 20);
        }
        let own = handle
            .query(&Query::process(std::process::id()).fields(Fields::all()))
            .expect("this process");
        assert_eq!(
            (own.task(0).uid(), own.task(0).cap_effective().map(|set| set.0)),
            (Ok(NOBODY), Ok(BOTH))
        );
    });
}

/// Check that one capability is not enough, that the error names the missing one, and that procfs
/// answers instead.
#[test]
fn missing_capabilities_are_named() {
    for (name, capabilities, message) in child::TOO_FEW {
        child::run(test_name!(), name, nobody(capabilities), || {
            let error = Handle::new()
                .with_source(SourceId::Bpf)
                .query(&everything())
                .expect_err("a refusal");
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(error.to_string().contains(message), "{error}");
            let error = Handle::new().prepare(Fields::all()).expect_err("a refusal");
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            let mut free = Handle::new();
            // Enough queries to make loading worth it.
            for _ in 0..30 {
                let snapshot = free.query(&everything()).expect("an answer");
                assert!(is_answered_by(&snapshot, SourceId::Procfs));
                assert!(pids(&snapshot).contains(&std::process::id()));
            }
        });
    }
}

/// Check that a caller without rights gets from procfs what the text shows it, and the right
/// reasons for the rest.
#[test]
fn callers_without_rights_see_what_the_text_shows() {
    let animal = child::part().is_none().then(|| animal("zombie"));
    child::run(test_name!(), "nobody", nobody(0), || {
        for scope in [Scope::Processes, Scope::Threads] {
            check_right(
                "nobody",
                &compare(&mut handle(SourceId::Procfs), SourceId::Procfs, scope),
                20,
            );
        }
        let snapshot = handle(SourceId::Procfs).query(&everything()).expect("processes");
        let own = snapshot
            .tasks()
            .find(|task| task.pid() == Ok(std::process::id()))
            .expect("this process");
        assert!(own.ns_net().is_ok());
        let denied = snapshot
            .tasks()
            .filter(|task| task.uid() == Ok(0) && task.ns_net() == Err(Absent::Denied))
            .count();
        assert!(denied >= 2, "namespaces of {denied} processes of root are denied");
        assert!(!snapshot
            .tasks()
            .any(|task| task.uid() == Ok(0) && task.ns_net().is_ok()));
    });
    drop(animal);
}

/// Check that capabilities can be dropped once a handle has loaded its program.
#[test]
fn loaded_programs_outlive_capabilities() {
    child::run(test_name!(), "dropped", nobody(BOTH), || {
        let mut prepared = handle(SourceId::Bpf);
        let mut used = taskdiag_testkit::unasked(SourceId::Bpf);
        used.query(&everything()).expect("an answer with capabilities");
        child::set_capabilities(0).expect("dropping capabilities");
        let refused = Handle::new()
            .with_source(SourceId::Bpf)
            .query(&everything())
            .expect_err("a refusal");
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        for handle in [&mut prepared, &mut used] {
            for scope in [Scope::Processes, Scope::Threads, Scope::Process(std::process::id())] {
                check_right("after dropping", &compare(handle, SourceId::Bpf, scope), 1);
            }
            let parent = Query::children_of(std::os::unix::process::parent_id()).fields(Fields::all());
            assert!(pids(&handle.query(&parent).expect("children")).contains(&std::process::id()));
        }
    });
}

/// Check that `/proc` with `hidepid=2` hides other users' processes from procfs, and that the facts
/// about the host say so.
#[test]
fn hidepid_hides() {
    let world = World {
        proc: Proc::New(c"hidepid=2"),
        ..nobody(0)
    };
    child::run(test_name!(), "hidden", world, || {
        let mut free = Handle::new();
        let fact = free.support().procfs_complete.clone();
        assert!(fact.verdict == Verdict::No && fact.why.contains("hidepid"), "{fact:?}");
        let own = std::process::id();
        for handle in [&mut free, &mut handle(SourceId::Procfs)] {
            for query in [everything(), Query::threads().fields(Fields::all())] {
                let snapshot = handle.query(&query).expect("an answer");
                assert!(pids(&snapshot).contains(&own));
                assert!(snapshot.tasks().all(|task| task.uid() == Ok(NOBODY)));
                check_right("hidepid", &compare(handle, SourceId::Procfs, query.scope), 1);
            }
            let parent = std::os::unix::process::parent_id();
            for scope in [
                Scope::Process(1),
                Scope::Process(parent),
                Scope::ThreadsOf(parent),
                Scope::ThreadsOf(1),
            ] {
                let answer = handle.query(&Query::new(scope).fields(Fields::all()));
                assert_eq!(
                    answer.map(|_| ()).map_err(|error| error.kind()),
                    Err(ErrorKind::NoSuchTask),
                    "{scope:?}"
                );
            }
        }
    });
    // BPF does not know hidepid. That is why it answers only the caller's own process.
    let world = World {
        proc: Proc::New(c"hidepid=2"),
        ..nobody(BOTH)
    };
    child::run(test_name!(), "not hidden from BPF", world, || {
        let snapshot = handle(SourceId::Bpf).query(&everything()).expect("an answer");
        let parent = std::os::unix::process::parent_id();
        let parent = snapshot
            .tasks()
            .find(|task| task.pid() == Ok(parent))
            .expect("root's process");
        assert_eq!(parent.uid(), Ok(0));
        assert!(parent.ns_net().is_ok() && parent.oom_score().is_ok());
        // The contents of its memory come from /proc, which hides it.
        assert_eq!(parent.cmdline().err(), Some(Absent::Denied));
        assert_eq!(parent.environ().err(), Some(Absent::Denied));
    });
}

/// Check that `/proc` hides nothing from the group of its mount, and that the facts about the host say
/// so.
#[test]
fn hidepid_has_a_group() {
    for (options, sees) in [
        (c"hidepid=2,gid=65534", true),
        (c"hidepid=2,gid=65533", false),
        (c"hidepid=4,gid=65534", false),
    ] {
        let world = World {
            proc: Proc::New(options),
            ..nobody(0)
        };
        child::run(test_name!(), options.to_str().expect("a text"), world, || {
            let fact = Handle::new().support().procfs_complete.clone();
            assert_eq!(fact.is_yes(), sees, "{fact:?}");
            let snapshot = handle(SourceId::Procfs).query(&everything()).expect("an answer");
            assert_eq!(pids(&snapshot).contains(&std::os::unix::process::parent_id()), sees);
        });
    }
}

/// Check that `/proc` with `subset=pid` has all that is needed.
#[test]
fn subset_of_proc_is_enough() {
    let _animals = child::part()
        .is_none()
        .then(|| ["zombie", "threads-5", "args-100k"].map(animal));
    let world = World {
        proc: Proc::New(c"subset=pid"),
        ..nothing_pinned()
    };
    child::run(test_name!(), "subset", world, || {
        assert!(!std::path::Path::new("/proc/uptime").exists());
        for source in SOURCES {
            let report = compare(&mut handle(source), source, Scope::Processes);
            report.check(&format!("{source} with subset=pid"), 2);
        }
        assert!(Handle::new().query(&everything()).expect("an answer").len() > 2);
    });
}

/// Check that without `/proc` BPF answers, that the error of a forced procfs says what to do, and
/// that without both the error names both.
#[test]
fn bpf_needs_no_proc() {
    let known: BTreeSet<u32> = text::processes().into_iter().map(|id| id.pid).collect();
    let world = World {
        proc: Proc::None,
        ..nothing_pinned()
    };
    child::run(test_name!(), "none", world, || {
        assert!(known.is_empty(), "/proc is mounted");
        let error = Handle::new()
            .with_source(SourceId::Procfs)
            .query(&everything())
            .expect_err("a refusal");
        assert!(error.to_string().contains("/proc is not mounted"), "{error}");
        assert!(error.to_string().contains("mount -t proc"), "{error}");
        // Programs that the kernel calls identify their reader by its entry in /proc.
        if kernel() < (6, 2) {
            let error = Handle::new().prepare(Fields::all()).expect_err("a refusal");
            assert!(error.to_string().contains("/proc/self/ns/pid"), "{error}");
            return;
        }
        for handle in [&mut Handle::new(), &mut handle(SourceId::Bpf)] {
            let snapshot = handle.query(&everything()).expect("an answer");
            assert!(
                is_answered_by(&snapshot, SourceId::Bpf),
                "{:?}",
                snapshot.answers().collect::<Vec<_>>()
            );
            assert!(snapshot.len() > 2);
            let own = snapshot
                .tasks()
                .find(|task| task.pid() == Ok(std::process::id()))
                .expect("this process");
            for field in Fields::all().iter() {
                let value = own.value(field);
                let has_value = value.is_ok() || value == Err(Absent::NotApplicable);
                // Without /proc it is not known whether there is a unified hierarchy, and neither
                // the memory of a process nor texts can be read. Nothing else is missing.
                let is_missing = |field: Field| {
                    matches!(field, Field::Cgroup | Field::CgroupId | Field::Cmdline | Field::Environ)
                        || field.group() == Group::Text
                };
                let may_miss = is_missing(field) || field.info().made_of.iter().any(|&field| is_missing(field));
                assert!(has_value || may_miss, "{field} is {:?}", own.value(field));
            }
            assert_eq!(own.cmdline().err(), Some(Absent::Unsupported));
            assert_eq!(own.ppid(), Ok(std::os::unix::process::parent_id()));
            for scope in [Scope::Process(u32::MAX), Scope::ThreadsOf(u32::MAX)] {
                assert_eq!(
                    handle.query(&Query::new(scope)).expect_err("none").kind(),
                    ErrorKind::NoSuchTask
                );
            }
        }
        child::set_capabilities(0).expect("dropping capabilities");
        let error = Handle::new().query(&everything()).expect_err("nothing can answer");
        assert!(
            error.to_string().contains("/proc") && error.to_string().contains("CAP_BPF"),
            "{error}"
        );
    });
    assert!(child::part().is_some() || known.len() > 2);
}

/// Check that without the kernel's type information procfs answers, and that the error of a forced
/// BPF says what is missing.
#[test]
fn without_btf_procfs_answers() {
    let world = World {
        hidden: Some(c"/sys/kernel/btf"),
        ..nothing_pinned()
    };
    child::run(test_name!(), "hidden", world, || {
        let mut free = Handle::new();
        assert_eq!(free.support().btf.verdict, Verdict::No);
        for _ in 0..30 {
            assert!(is_answered_by(
                &free.query(&everything()).expect("an answer"),
                SourceId::Procfs
            ));
        }
        let error = Handle::new()
            .with_source(SourceId::Bpf)
            .query(&everything())
            .expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("/sys/kernel/btf"), "{error}");
        let error = Handle::new().prepare(Fields::all()).expect_err("a refusal");
        assert!(error.to_string().contains("/sys/kernel/btf"), "{error}");
    });
}

/// Check that only root may use pinned programs.
#[test]
fn pinned_programs_are_for_root_alone() {
    // Here, because in a closure it would be the closure's name.
    let test = test_name!();
    child::run(test, "root", nothing_pinned(), || {
        taskdiag::pin::pin().expect("pinning");
        // The next process has the same world, with a little more.
        let output = child::command(test, "nobody", child::nobody(0))
            .output()
            .expect("starting the second process");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && text.contains("part nobody is done"),
            "{text}"
        );
        taskdiag::pin::unpin().expect("unpinning");
    });
    if child::part().as_deref() == Some("nobody") {
        child::run(test, "nobody", World::default(), || {
            let mut free = Handle::new();
            let fact = free.support().pinned.clone();
            assert_eq!(fact.verdict, Verdict::No, "{fact:?}");
            assert!(is_answered_by(
                &free.query(&everything()).expect("an answer"),
                SourceId::Procfs
            ));
            assert_eq!(taskdiag::pin::pin().expect_err("a refusal").kind(), ErrorKind::Denied);
            assert_eq!(taskdiag::pin::unpin().expect_err("a refusal").kind(), ErrorKind::Denied);
        });
    }
}
