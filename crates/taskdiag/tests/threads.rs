//! A process with very many threads: reading it delays nothing else, and its sums are right.

use std::fs;

use taskdiag::{Field, Handle, Query, Snapshot, SourceId};
use taskdiag_testkit::{handle, kernel, text::TICK_NS, SOURCES};
use taskdiag_zoo::Farm;

const THREADS: usize = 25_000;

/// The longest time that RCU may wait for a program.
const LONGEST_NS: u64 = 1_000_000;

/// The numbers in `stat`, from the state on (field 3 is at 0).
fn stat(pid: i32) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a stat");
    let rest = text.rsplit(')').next().expect("more behind the name");
    rest.split_ascii_whitespace()
        .map(|word| word.parse().unwrap_or(0))
        .collect()
}

/// A number in `/proc/PID/io`.
fn io(pid: i32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).expect("an io");
    let word = text.lines().find_map(|line| line.strip_prefix(name));
    word.and_then(|word| word.trim_start_matches(':').trim().parse().ok())
        .expect("a number")
}

/// Queries before all ordinary work of the machine, which would otherwise interrupt each run and make
/// it look long.
fn ask_first(handle: &mut Handle, query: &Query) -> Snapshot {
    let set_policy = |policy: i32, sched_priority: i32| {
        let priority = libc::sched_param { sched_priority };
        // SAFETY: the kernel reads the structure.
        let result = unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const priority) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    };
    set_policy(libc::SCHED_FIFO, 1);
    let answer = handle.query(query);
    set_policy(libc::SCHED_OTHER, 0);
    answer.expect("an answer")
}

/// Check that a process of 25,000 threads is read in short runs, for all groups that are summed
/// over threads, and that the sums equal the text.
#[test]
fn many_threads_are_read_in_short_runs() {
    let farm = Farm::start(1, THREADS).expect("a farm");
    let pid = farm.pids()[0];
    let sums = Field::UtimeNs
        | Field::StimeNs
        | Field::MinFaults
        | Field::MajFaults
        | Field::ReadChars
        | Field::WriteChars
        | Field::ReadSyscalls
        | Field::Cmdline
        | Field::ThreadsCount;
    // If the kernel calls the program for each task, the program does not measure itself.
    let is_measured = kernel() >= (6, 2);
    for source in SOURCES {
        let mut handle = handle(source);
        // procfs takes longer, but delays nothing.
        let rounds = if source == SourceId::Bpf { 10 } else { 2 };
        let processes = [
            Query::processes(),
            Query::process(pid as u32),
            Query::children_of(std::process::id()),
        ];
        let changed = Query::processes().only_changed();
        for query in processes.into_iter().chain([changed]) {
            let scope = query.scope;
            let query = query.fields(sums);
            // Interrupts can make a run look long, but not all of them.
            let mut shortest = u64::MAX;
            for _ in 0..rounds {
                let before = (stat(pid), io(pid, "rchar"));
                let snapshot = ask_first(&mut handle, &query);
                shortest = shortest.min(snapshot.counters().longest_run_ns.unwrap_or(0));
                let Some(task) = snapshot.tasks().find(|task| task.pid() == Ok(pid as u32)) else {
                    // It is not our child, and it has not changed if it has not run.
                    assert!(!matches!(scope, taskdiag::Scope::Process(_)), "{source}");
                    continue;
                };
                let after = (stat(pid), io(pid, "rchar"));
                let within = |told: u64, at: usize| (before.0[at]..=after.0[at]).contains(&told);
                assert_eq!(task.threads_count(), Ok(THREADS as u32), "{source} {scope:?}");
                let ticks = |time: Result<u64, taskdiag::Absent>| time.expect("a time") / TICK_NS;
                assert!(
                    within(ticks(task.utime_ns()), 11),
                    "{source} {scope:?}: {:?}",
                    task.utime_ns()
                );
                assert!(
                    within(ticks(task.stime_ns()), 12),
                    "{source} {scope:?}: {:?}",
                    task.stime_ns()
                );
                assert!(
                    within(task.min_faults().expect("a count"), 7),
                    "{source} {scope:?}: {:?}",
                    task.min_faults()
                );
                let read = task.read_chars().expect("a count");
                assert!((before.1..=after.1).contains(&read), "{source} {scope:?}: {read}");
            }
            println!("{source} {scope:?}: longest stretch {shortest} ns");
            if source == SourceId::Bpf && is_measured {
                assert!((1..LONGEST_NS).contains(&shortest), "{scope:?}: {shortest} ns");
            }
        }
        // Its threads, one by one.
        let query = Query::threads_of(pid as u32).fields(Field::UtimeNs | Field::State | Field::ReadChars);
        let mut shortest = u64::MAX;
        for _ in 0..rounds / 2 {
            let snapshot = ask_first(&mut handle, &query);
            assert_eq!(snapshot.len(), THREADS, "{source}");
            shortest = shortest.min(snapshot.counters().longest_run_ns.unwrap_or(0));
        }
        println!("{source}, its threads: longest stretch {shortest} ns");
        assert!(
            source == SourceId::Procfs || !is_measured || (1..LONGEST_NS).contains(&shortest),
            "{shortest} ns"
        );
    }
}
