//! Processes that block the readers of their memory: answers report this in time, and lack nothing
//! about other processes.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use taskdiag::memory::Budget;
use taskdiag::{Absent, Field, Fields, Handle, Query, Snapshot, SourceId};
use taskdiag_testkit::temporary::Killed;
use taskdiag_testkit::{animal, child, test_name};
use taskdiag_zoo::{margin, run_first, Animal, Farm};

const PATIENCE: Duration = Duration::from_millis(500);

const FARM: usize = 40;

/// `None`: the library chooses.
const WAYS: [Option<SourceId>; 3] = [None, Some(SourceId::Bpf), Some(SourceId::Procfs)];

/// A handle with loaded programs and started readers, so that only the waiting is measured.
fn ready(way: Option<SourceId>) -> Handle {
    let mut handle = Handle::new().with_patience(PATIENCE);
    if let Some(source) = way {
        handle = handle.with_source(source);
    }
    if way == Some(SourceId::Bpf) {
        let prepared = handle.prepare(Fields::all());
        prepared.unwrap_or_else(|error| panic!("these tests need BPF: {error}"));
    }
    handle
}

fn holders(count: usize) -> Vec<Animal> {
    (0..count).map(|_| animal("holds-lock")).collect()
}

/// Whether each of these processes blocks `cat`, as these tests assume.
fn hold_cats(holders: &[Animal]) -> bool {
    let start = |holder: &Animal| {
        let mut cat = Command::new("cat");
        cat.arg(format!("/proc/{}/cmdline", holder.pid)).stdout(Stdio::null());
        Killed(cat.spawn().expect("cat"))
    };
    let mut cats: Vec<Killed> = holders.iter().map(start).collect();
    std::thread::sleep(Duration::from_millis(700));
    cats.iter_mut()
        .all(|cat| cat.0.try_wait().expect("its state").is_none())
}

/// Checks an answer about arguments: holders are reported, and all others have their values.
/// Returns how many processes did not answer.
fn check(what: &str, snapshot: &Snapshot, holders: &[Animal], farm: &Farm) -> usize {
    let find = |pid: i32| {
        let task = snapshot.tasks().find(|task| task.pid() == Ok(pid as u32));
        task.unwrap_or_else(|| panic!("{what}: process {pid} is missing"))
    };
    for holder in holders {
        let task = find(holder.pid);
        assert_eq!(task.cmdline().err(), Some(Absent::NoAnswer), "{what}");
        assert_eq!(task.comm(), Ok(b"holds-lock".as_slice()), "{what}");
        assert!(task.start_ns().is_ok(), "{what}");
    }
    for (index, &pid) in farm.pids().iter().enumerate() {
        let cmdline = find(pid).cmdline().map(|args| args.as_bytes().to_vec());
        let expected = format!("zoo\0farm\0--index\0{index:07}\0").into_bytes();
        assert_eq!(cmdline, Ok(expected), "{what}: {pid}");
    }
    let counted = snapshot.counters().no_answer as usize;
    let others = snapshot
        .tasks()
        .filter(|task| task.cmdline().err() == Some(Absent::NoAnswer));
    let others = others.count();
    assert!(
        (others..=others + holders.len()).contains(&counted),
        "{what}: {counted} counted, {others} shown"
    );
    assert!(counted >= holders.len(), "{what}");
    counted
}

/// Queries, and measures the time.
fn ask(handle: &mut Handle, query: &Query) -> (Snapshot, Duration) {
    let start = Instant::now();
    let snapshot = handle.query(query).expect("an answer");
    (snapshot, start.elapsed())
}

/// The fastest of three answers.
fn quickest(handle: &mut Handle, query: &Query) -> (Snapshot, Duration) {
    let answers = (0..3).map(|_| ask(handle, query));
    answers.min_by_key(|(_, took)| *took).expect("three")
}

/// Check that each source answers in time if some processes block their readers, and does not read
/// those again that still do.
#[test]
fn holders_are_reported_and_nothing_else_is_missing() {
    let _turn = run_first();
    let farm = Farm::start(FARM, 1).expect("a farm");
    for way in WAYS {
        let holders = holders(3);
        assert!(hold_cats(&holders), "nobody is held");
        let mut handle = ready(way);
        for fields in [
            Field::Cmdline | Field::Comm | Field::StartNs,
            Field::Cmdline | Field::Comm | Field::StartNs | Field::Environ,
        ] {
            let query = Query::processes().fields(fields);
            let what = format!("{way:?}, {} fields", fields.iter().count());
            let (snapshot, took) = ask(&mut handle, &query);
            println!("{what}: {took:?}");
            assert!(took < PATIENCE + margin(), "{what}: {took:?}");
            check(&what, &snapshot, &holders, &farm);
            // They are known now. Other processes, which are not ours, may start to block readers.
            let (snapshot, took) = quickest(&mut handle, &query);
            println!("{what}, again: {took:?}");
            assert!(took < PATIENCE, "{what}, again: {took:?}");
            check(&what, &snapshot, &holders, &farm);
        }
        // Another handle of this process knows them, too.
        let query = Query::processes().fields(Field::Cmdline | Field::Comm | Field::StartNs);
        let mut other = ready(way);
        let (snapshot, took) = quickest(&mut other, &query);
        assert!(took < PATIENCE, "{way:?}, another handle: {took:?}");
        check("another handle", &snapshot, &holders, &farm);
        // A query about one of them only.
        let pid = holders[0].pid as u32;
        let (snapshot, took) = ask(&mut handle, &Query::process(pid).fields(Field::Cmdline | Field::Comm));
        assert!(took < PATIENCE, "{way:?}, one: {took:?}");
        assert_eq!(snapshot.task(0).cmdline().err(), Some(Absent::NoAnswer));
        assert_eq!(snapshot.counters().no_answer, 1);
        // They have ended, and are forgotten.
        drop(holders);
        let (snapshot, _) = ask(&mut handle, &query);
        assert_eq!(snapshot.counters().no_answer, 0, "{way:?}");
    }
}

/// Check that a process with silent arguments blocks no reader, however often it is queried.
#[test]
fn silent_arguments_hold_no_reader() {
    let _turn = run_first();
    let silent = animal("silent-args");
    for way in WAYS {
        let mut handle = ready(way);
        let query = Query::processes().fields(Field::Cmdline | Field::Comm);
        let start = Instant::now();
        let mut asked = 0;
        while start.elapsed() < Duration::from_secs(2) {
            let (snapshot, took) = ask(&mut handle, &query);
            assert!(took < PATIENCE + margin(), "{way:?}: {took:?}");
            let task = snapshot.tasks().find(|task| task.pid() == Ok(silent.pid as u32));
            let cmdline = task
                .expect("it is there")
                .cmdline()
                .map(|args| args.as_bytes().to_vec());
            // Its text, new memory to which the text is being written, or nothing if the file is
            // mapped.
            match cmdline {
                Ok(cmdline) => assert!(
                    cmdline
                        .iter()
                        .zip(b"silent\0args\0")
                        .all(|(ours, text)| [text, &0].contains(&ours)),
                    "{way:?}: {}",
                    cmdline.escape_ascii()
                ),
                Err(reason) => assert_eq!(reason, Absent::NoAnswer, "{way:?}"),
            }
            asked += 1;
        }
        println!("{way:?}: asked {asked} times");
        assert!(asked > 10, "{way:?}: {asked}");
    }
}

/// Check that rollups meet their deadline despite holders, whose sizes are reported as missing.
#[test]
fn rollups_end_at_their_deadline() {
    let _turn = run_first();
    let holders = holders(2);
    let deadline = Duration::from_millis(1500);
    for way in WAYS {
        let mut handle = ready(way);
        let budget = Budget::default().deadline(Some(deadline));
        let query = Query::processes().fields(Field::PssBytes | Field::Comm).budget(budget);
        let (snapshot, took) = ask(&mut handle, &query);
        println!("{way:?}: {took:?}");
        assert!(took < deadline + margin(), "{way:?}: {took:?}");
        for holder in &holders {
            let task = snapshot.tasks().find(|task| task.pid() == Ok(holder.pid as u32));
            let reason = task.expect("it is there").pss_bytes().err();
            assert!(
                matches!(reason, Some(Absent::NoAnswer | Absent::OverBudget)),
                "{way:?}: {reason:?}"
            );
        }
        let own = snapshot.tasks().find(|task| task.pid() == Ok(std::process::id()));
        assert!(own.expect("this process").pss_bytes().is_ok(), "{way:?}");
    }
}

/// How many threads this process has.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("threads").count()
}

/// Check that more holders than readers that may be lost cost a bounded time and a bounded number
/// of threads. This needs a process of its own, which can lose no more readers afterwards.
#[test]
fn more_holders_than_may_be_lost() {
    let _turn = run_first();
    child::run(test_name!(), "inside", child::World::default(), || {
        let farm = Farm::start(FARM, 1).expect("a farm");
        let holders = holders(60);
        for way in WAYS {
            let mut handle = ready(way).with_patience(Duration::from_millis(100));
            let query = Query::processes().fields(Field::Cmdline | Field::Comm | Field::StartNs);
            let (snapshot, took) = ask(&mut handle, &query);
            let (lost, before) = (snapshot.counters().no_answer, threads());
            println!("{way:?}: {took:?}, {lost} without an answer, {before} threads");
            // Lost readers are waited for, some at a time.
            assert!(took < Duration::from_secs(12), "{way:?}: {took:?}");
            assert!(before < 80, "{way:?}: {before} threads");
            for holder in &holders {
                let task = snapshot.tasks().find(|task| task.pid() == Ok(holder.pid as u32));
                assert_eq!(
                    task.expect("it is there").cmdline().err(),
                    Some(Absent::NoAnswer),
                    "{way:?}"
                );
            }
            // Once the holders are known, a query is fast, and needs no more threads.
            let (_, took) = ask(&mut handle, &query);
            assert!(took < Duration::from_secs(2), "{way:?}, again: {took:?}");
            assert!(threads() <= before + 8, "{way:?}: {} threads", threads());
            // What does not wait is answered as before.
            let all = handle.query(&Query::processes().fields(Field::Comm)).expect("names");
            assert_eq!(all.counters().no_answer, 0);
        }
        // The holders are released, and readers come back.
        drop(holders);
        let mut handle = ready(Some(SourceId::Procfs));
        let start = Instant::now();
        loop {
            let query = Query::processes().fields(Field::Cmdline | Field::Comm | Field::StartNs);
            let (snapshot, _) = ask(&mut handle, &query);
            if snapshot.counters().no_answer == 0 {
                check("afterwards", &snapshot, &[], &farm);
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "readers do not come back");
        }
    });
}

/// Check that one user can't block all readers: everybody else's arguments are still read, however
/// many processes block readers. In a process of its own, as above.
#[test]
fn one_user_can_not_hold_all_readers() {
    let _turn = run_first();
    child::run(test_name!(), "inside", child::World::default(), || {
        let farm = Farm::start(FARM, 1).expect("a farm");
        let holders: Vec<Animal> = (0..60).map(|_| animal("holds-lock-of-nobody")).collect();
        for way in WAYS {
            let mut handle = ready(way);
            let query = Query::processes().fields(Field::Cmdline | Field::Comm | Field::StartNs);
            for round in 0..3 {
                let (snapshot, took) = ask(&mut handle, &query);
                println!("{way:?}, {round}: {took:?}, {} threads", threads());
                assert!(took < Duration::from_secs(12), "{way:?}: {took:?}");
                check(&format!("{way:?}, {round}"), &snapshot, &holders, &farm);
            }
        }
    });
}

/// Check that a process can end while one of its threads is blocked.
#[test]
fn a_process_with_held_readers_can_end() {
    let _turn = run_first();
    let _holder = holders(1);
    let start = Instant::now();
    child::run(test_name!(), "inside", child::World::default(), || {
        let mut handle = ready(None);
        let (snapshot, _) = ask(&mut handle, &Query::processes().fields(Field::Cmdline));
        assert!(snapshot.counters().no_answer >= 1);
    });
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// Check that arguments and environments of 2 MiB are read completely, even if that takes longer
/// than the patience.
#[test]
fn long_texts_are_whole() {
    let _turn = run_first();
    for name in ["environment-2m", "args-2m"] {
        let animal = animal(name);
        let mut direct = Vec::new();
        let file = if name == "args-2m" { "cmdline" } else { "environ" };
        let opened = File::open(format!("/proc/{}/{file}", animal.pid));
        opened
            .and_then(|mut file| file.read_to_end(&mut direct))
            .expect("its text");
        assert!(direct.len() >= 2 << 20);
        for way in WAYS {
            let mut handle = ready(way);
            let query = Query::process(animal.pid as u32).fields(Field::Cmdline | Field::Environ);
            let snapshot = handle.query(&query).expect("an answer");
            let task = snapshot.task(0);
            let ours = if name == "args-2m" {
                task.cmdline()
            } else {
                task.environ()
            };
            let ours = ours.map(|texts| texts.as_bytes().to_vec());
            assert!(
                ours.as_deref() == Ok(direct.as_slice()),
                "{name}, {way:?}: {:?}",
                ours.map(|text| text.len())
            );
        }
    }
}
