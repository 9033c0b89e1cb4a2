//! Processes with threads: their ends, their execs, and the processor time of all of them.

use super::*;

static READY: AtomicU32 = AtomicU32::new(0);

extern "C" fn end_with_the_others(threads: *mut libc::c_void) -> *mut libc::c_void {
    end_together(threads as u32)
}

/// Ends only this thread, as nearly as possible at the same time as `threads` others.
fn end_together<T>(threads: u32) -> T {
    READY.fetch_add(1, Ordering::SeqCst);
    while READY.load(Ordering::SeqCst) < threads {
        std::hint::spin_loop();
    }
    end_thread()
}

/// Ends only this thread.
fn end_thread<T>() -> T {
    // SAFETY: the thread ends without cleaning up. The end of its process does that.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("the thread has ended")
}

extern "C" fn exec_true(_: *mut libc::c_void) -> *mut libc::c_void {
    exec(c"/bin/true");
    ptr::null_mut()
}

type Start = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;

fn start(thread: Start, argument: usize) {
    let mut id = 0;
    // SAFETY: the function takes a number for a pointer; the C library copies what it needs.
    let error = unsafe { libc::pthread_create(&mut id, ptr::null(), thread, argument as *mut libc::c_void) };
    assert_eq!(error, 0);
}

/// Check that the end of a process is reported once, however many of its threads end at the same
/// time.
#[test]
fn the_end_of_threads_is_reported_once() {
    const THREADS: u32 = 4;
    child::run(test_name!(), "threads", first_of_namespace(), || {
        for threads in [false, true] {
            let mut events = open(&options().threads(threads));
            let count = scaled(300);
            let mut pids = BTreeMap::new();
            for _ in 0..count {
                let (pid, ended) = in_child(|| {
                    (1..THREADS).for_each(|_| start(end_with_the_others, THREADS as usize));
                    end_together(THREADS)
                });
                assert_eq!(pids.insert(pid, ended), None);
            }
            let each = if threads { 2 * THREADS } else { 2 } as usize;
            let seen = read_until(&mut events, |seen| seen.len() >= each * count);
            for pid in seen.iter().map(|seen| seen.pid) {
                let reported: Vec<&Seen> = seen.iter().filter(|seen| seen.pid == pid).collect();
                assert!(reported.len() == each && pids.contains_key(&pid), "{reported:#?}");
            }
            for pid in pids.keys() {
                let of_kind = |kind: EventKind, is_thread: bool| {
                    let is_meant = |seen: &&Seen| seen.pid == *pid && seen.kind == kind && seen.is_thread == is_thread;
                    let mut tids: Vec<u32> = seen.iter().filter(is_meant).map(|seen| seen.tid).collect();
                    tids.sort_unstable();
                    tids
                };
                for kind in [EventKind::Fork, EventKind::Exit] {
                    assert_eq!(of_kind(kind, false), [*pid]);
                }
                let begun = of_kind(EventKind::Fork, true);
                assert_eq!(begun.len() as u32, if threads { THREADS - 1 } else { 0 });
                assert_eq!(begun, of_kind(EventKind::Exit, true));
            }
            assert_eq!(events.lost().count, 0);
        }
    });
}

/// Check that a thread that executes a program becomes its process.
#[test]
fn an_exec_of_a_thread_is_of_its_process() {
    child::run(test_name!(), "exec", first_of_namespace(), || {
        let mut events = open(&options());
        for _ in 0..scaled(50) {
            let (pid, ended) = in_child(|| {
                start(exec_true, 0);
                thread::sleep(Duration::from_secs(1000));
            });
            assert_eq!(ended.status, 0);
            let seen = read_until(&mut events, |seen| seen.iter().any(|seen| seen.kind == EventKind::Exit));
            let kinds: Vec<EventKind> = seen.iter().map(|seen| seen.kind).collect();
            assert_eq!(kinds, EventKind::ALL);
            assert!(seen
                .iter()
                .all(|event| (event.pid, event.tid, event.start_ns) == (pid, pid, seen[0].start_ns)));
        }
    });
}

/// The processor time that each busy thread uses.
const WORK_NS: u64 = 60_000_000;

fn work(ns: u64) {
    while clock_ns(ClockId::ThreadCPUTime) < ns {
        std::hint::spin_loop();
    }
}

extern "C" fn work_and_end(_: *mut libc::c_void) -> *mut libc::c_void {
    work(WORK_NS);
    end_thread()
}

extern "C" fn work_until_killed(_: *mut libc::c_void) -> *mut libc::c_void {
    work(u64::MAX);
    ptr::null_mut()
}

extern "C" fn exec_when_worked(threads: *mut libc::c_void) -> *mut libc::c_void {
    wait_for_work(threads as u64);
    exec_true(ptr::null_mut())
}

/// Waits until this process has used the time of this many busy threads.
fn wait_for_work(threads: u64) {
    while clock_ns(ClockId::ProcessCPUTime) < threads * WORK_NS {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Check that an exit has the processor time of all threads, as wait4(2) reports it: of threads
/// that ended earlier, of a first thread that ended first, of threads killed by the exit or by an
/// exec of one of them.
#[test]
fn exits_have_the_time_of_all_threads() {
    const THREADS: usize = 4;
    let busy = |thread: Start| (1..THREADS).for_each(|_| start(thread, 0));
    let first_ends_first = || {
        busy(work_and_end);
        end_thread()
    };
    let first_ends_last = || {
        busy(work_and_end);
        work(WORK_NS);
        wait_for_work(THREADS as u64);
        thread::sleep(Duration::from_millis(20));
    };
    let first_ends_all = || {
        busy(work_until_killed);
        wait_for_work(THREADS as u64);
    };
    let other_execs = || {
        busy(work_until_killed);
        start(exec_when_worked, THREADS);
        thread::sleep(Duration::from_secs(1000));
    };
    let cases: [(&str, &dyn Fn()); 4] = [
        ("the first thread ends first", &first_ends_first),
        ("the first thread ends last", &first_ends_last),
        ("the first thread ends all", &first_ends_all),
        ("another thread executes a program", &other_execs),
    ];
    for threads in [false, true] {
        let mut events = open(&by(EventSource::Bpf).threads(threads));
        for (name, case) in cases {
            let (pid, ended) = in_child(case);
            let is_end = |seen: &Seen| seen.kind == EventKind::Exit && seen.pid == pid && !seen.is_thread;
            let seen = read_until(&mut events, |seen| seen.iter().any(is_end));
            let runtime = |seen: &Seen| seen.runtime_ns.and_then(Result::ok).expect("a processor time");
            let end = seen.iter().find(|seen| is_end(seen)).map(runtime).expect("an end");
            // wait4(2) rounds twice, to microseconds, and includes what the last thread did at its
            // end.
            assert!(end <= ended.cpu_ns + 2000, "{name}: {end} ns of {}", ended.cpu_ns);
            let least = ended.cpu_ns - ended.cpu_ns / 4;
            assert!(end >= least, "{name}: {end} ns of {}", ended.cpu_ns);
            assert!(end >= (THREADS as u64 - 1) * WORK_NS * 3 / 4, "{name}: {end}");
            let is_thread = |seen: &&Seen| seen.kind == EventKind::Exit && seen.pid == pid && seen.is_thread;
            let of_threads: Vec<u64> = seen.iter().filter(is_thread).map(runtime).collect();
            // Before Linux 6.16 they may come later.
            assert!(threads || of_threads.is_empty(), "{name}");
            assert!(
                of_threads.iter().all(|&ns| ns <= end),
                "{name}: {of_threads:?} of {end}"
            );
        }
    }
}
