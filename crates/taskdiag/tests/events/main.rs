//! Every fork, exec and exit is reported once, or counted as lost.
//!
//! Where exact numbers matter, the reader is the first process of a new pid namespace, in which
//! nothing else makes processes.

mod connector;
mod threads;

use rustix::time::ClockId;
use std::collections::BTreeMap;
use std::ffi::{c_int, CStr, CString};
use std::fs;
use std::os::fd::AsFd as _;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use taskdiag::events::{EventSource, Options};
use taskdiag::{Absent, ErrorKind, Event, EventKind, Events, Field, Query, SourceId};
use taskdiag_testkit::{
    cgroup::MemoryGroup,
    child::{self, first_of_namespace, nobody, Proc, World, BOTH, NOBODY},
    handle, kernel, scaled, start_ticks, test_name,
    text::TICK_NS,
};

const CAP_NET_ADMIN: u32 = 12;

/// The part of an event that a test keeps.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    kind: EventKind,
    pid: u32,
    tid: u32,
    is_thread: bool,
    ppid: Result<u32, Absent>,
    start_ns: Result<i64, Absent>,
    time_ns: u64,
    uid: Result<u32, Absent>,
    comm: Result<Vec<u8>, Absent>,
    caller: Option<Result<u32, Absent>>,
    filename: Option<Result<Vec<u8>, Absent>>,
    exit_code: Option<u32>,
    term_signal: Option<u32>,
    oom_killed: Option<Result<bool, Absent>>,
    runtime_ns: Option<Result<u64, Absent>>,
    peak_rss_bytes: Option<Result<u64, Absent>>,
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Seen {
        Seen {
            kind: event.kind(),
            pid: event.pid(),
            tid: event.tid(),
            is_thread: event.is_thread(),
            ppid: event.ppid(),
            start_ns: event.start_ns(),
            time_ns: event.time_ns(),
            uid: event.uid(),
            comm: event.comm().map(<[u8]>::to_vec),
            caller: if_any(event.caller_pid()),
            filename: if_any(event.filename().map(<[u8]>::to_vec)),
            exit_code: event.exit_code().ok(),
            term_signal: event.term_signal().ok(),
            oom_killed: if_any(event.oom_killed()),
            runtime_ns: if_any(event.runtime_ns()),
            peak_rss_bytes: if_any(event.peak_rss_bytes()),
        }
    }
}

/// A value, or why it is missing; `None` if such an event has none.
fn if_any<T>(value: Result<T, Absent>) -> Option<Result<T, Absent>> {
    value.map_or_else(
        |reason| (reason != Absent::NotApplicable).then_some(Err(reason)),
        |value| Some(Ok(value)),
    )
}

fn options() -> Options {
    Options::default().gather(Duration::ZERO)
}

fn open(options: &Options) -> Events {
    Events::open(options).unwrap_or_else(|error| panic!("these tests need events: {error}"))
}

fn by(source: EventSource) -> Options {
    options().source(source)
}

/// Reads until `is_enough`, which is called after each batch.
fn read_until(events: &mut Events, mut is_enough: impl FnMut(&[Seen]) -> bool) -> Vec<Seen> {
    let patience = Instant::now() + Duration::from_secs(60);
    let mut seen: Vec<Seen> = Vec::new();
    loop {
        seen.extend(events.read().expect("events").map(Seen::from));
        if is_enough(&seen) {
            return seen;
        }
        assert!(Instant::now() < patience, "only {} events came: {seen:#?}", seen.len());
        events.wait(Some(Duration::from_millis(100)), None).expect("waiting");
    }
}

/// Runs `body` in a child, and waits for it to end. Returns its id and its status.
fn in_child(body: impl FnOnce()) -> (u32, Ended) {
    let pid = fork(body);
    (pid, wait(pid))
}

fn fork(body: impl FnOnce()) -> u32 {
    // SAFETY: the child only runs `body`, which in these tests makes system calls and starts
    // threads.
    let pid = unsafe { libc::fork() };
    assert_ne!(pid, -1);
    if pid == 0 {
        // It ends with its parent if that test fails. SAFETY: numbers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        body();
        exit(0);
    }
    pid as u32
}

fn exit(code: c_int) -> ! {
    // SAFETY: ends the process, which must not clean up anything.
    unsafe { libc::_exit(code) }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Ended {
    status: c_int,
    cpu_ns: u64,
    peak_rss_bytes: u64,
}

fn wait(pid: u32) -> Ended {
    let mut status = 0;
    // SAFETY: all zeros are a valid `rusage`, a structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes an integer and a `rusage`.
    let waited = unsafe { libc::wait4(pid as i32, &mut status, 0, &mut usage) };
    assert_eq!(waited, pid as i32);
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    Ended {
        status,
        cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
        peak_rss_bytes: usage.ru_maxrss as u64 * 1024,
    }
}

/// Executes `/bin/true` under this name. Returns only if that fails.
fn exec(path: &CStr) {
    let args = [c"true".as_ptr(), ptr::null()];
    // SAFETY: path and arguments end with a NUL and live on.
    unsafe { libc::execv(path.as_ptr(), args.as_ptr()) };
}

fn own_comm() -> Vec<u8> {
    let comm = fs::read("/proc/thread-self/comm").expect("our name");
    comm.strip_suffix(b"\n").unwrap_or(&comm).to_vec()
}

/// Makes processes that end in four ways, and checks that each event is right.
fn check_processes(events: &mut Events, count: usize) {
    let (own, comm) = (std::process::id(), own_comm());
    let mut children = BTreeMap::new();
    for index in 0..count {
        let (pid, ended) = in_child(|| match index % 4 {
            0 => exit((index / 4 % 256) as c_int),
            1 => exec(c"/bin/true"),
            2 => {
                // SAFETY: numbers only.
                unsafe { libc::syscall(libc::SYS_setresuid, 1234, 1234, 1234) };
                exec(c"/bin/../bin/true");
            }
            // SAFETY: numbers only.
            _ => unsafe {
                libc::kill(libc::getpid(), libc::SIGKILL);
            },
        });
        assert!(
            children.insert(pid, (index, ended)).is_none(),
            "the number {pid} came twice"
        );
    }
    let is_ours = |seen: &&Seen| children.contains_key(&seen.pid);
    let execs = (0..count).filter(|index| matches!(index % 4, 1 | 2)).count();
    let all = read_until(events, |seen| seen.iter().filter(is_ours).count() >= 2 * count + execs);
    let mut by_pid: BTreeMap<u32, Vec<&Seen>> = BTreeMap::new();
    all.iter()
        .filter(is_ours)
        .for_each(|seen| by_pid.entry(seen.pid).or_default().push(seen));
    for (pid, (index, ended)) in &children {
        let reported = by_pid.get(pid).unwrap_or_else(|| panic!("no event of {pid}"));
        let kinds: Vec<EventKind> = reported.iter().map(|seen| seen.kind).collect();
        let (fork, last) = (reported[0], reported[reported.len() - 1]);
        let execs = matches!(index % 4, 1 | 2);
        if execs {
            assert_eq!(kinds, EventKind::ALL, "{reported:#?}")
        } else {
            assert_eq!(kinds, [EventKind::Fork, EventKind::Exit], "{reported:#?}")
        }
        assert!(reported
            .iter()
            .all(|seen| seen.ppid == Ok(own) && seen.tid == *pid && !seen.is_thread));
        assert!(
            reported.iter().all(|seen| seen.start_ns == fork.start_ns),
            "{reported:#?}"
        );
        assert!(reported.is_sorted_by_key(|seen| seen.time_ns) && fork.start_ns <= Ok(fork.time_ns as i64));
        assert_eq!(
            (fork.comm.as_ref(), fork.uid, fork.caller),
            (Ok(&comm), Ok(0), Some(Ok(own)))
        );
        if execs {
            let (name, uid) = match index % 4 {
                1 => (&b"/bin/true"[..], 0),
                _ => (&b"/bin/../bin/true"[..], 1234),
            };
            assert_eq!(reported[1].filename, Some(Ok(name.to_vec())));
            assert_eq!((&reported[1].comm, reported[1].uid), (&Ok(b"true".to_vec()), Ok(uid)));
            assert_eq!((&last.comm, last.uid), (&reported[1].comm, Ok(uid)));
        }
        let code = libc::WIFEXITED(ended.status).then(|| libc::WEXITSTATUS(ended.status) as u32);
        let signal = libc::WIFSIGNALED(ended.status).then(|| libc::WTERMSIG(ended.status) as u32);
        assert_eq!((last.exit_code, last.term_signal), (code, signal), "{reported:#?}");
        assert_eq!((code.is_some(), signal.is_some()), (index % 4 != 3, index % 4 == 3));
        assert_eq!(last.oom_killed, signal.map(|_| Ok(false)));
        assert_eq!(last.peak_rss_bytes, Some(Ok(ended.peak_rss_bytes)), "{reported:#?}");
        let Some(Ok(runtime_ns)) = last.runtime_ns else {
            panic!("{last:?}")
        };
        // User and system time are cut to microseconds, each.
        assert!(runtime_ns < ended.cpu_ns + 2000, "{runtime_ns} ns of {}", ended.cpu_ns);
    }
}

/// Check that each of thousands of short-lived processes is reported once, in order, with correct
/// values.
#[test]
fn every_process_is_reported_once() {
    let mut events = open(&by(EventSource::Bpf));
    check_processes(&mut events, scaled(2000));
    assert!(events.lost().is_exact);
}

/// Check the same in a pid namespace, where ids differ, and that processes outside it are not
/// reported.
#[test]
fn a_pid_namespace_has_its_own_events() {
    child::run(test_name!(), "first", first_of_namespace(), || {
        let mut events = open(&options());
        let count = scaled(400);
        check_processes(&mut events, count);
        let lost = events.lost();
        assert_eq!((lost.count, lost.is_exact), (0, true));
        let (pid, _) = in_child(|| ());
        // Numbers begin at 1, and the parts of these tests start no other processes.
        assert!((pid as usize) < 10 * count + 100, "{pid}");
        let rest = read_until(&mut events, |seen| seen.len() == 2);
        assert!(rest.iter().all(|seen| seen.pid == pid));
    });
}

/// Check that a process that the OOM killer chose is distinguished from one that another process
/// killed.
#[test]
fn the_oom_killer_is_told() {
    let mut events = open(&by(EventSource::Bpf));
    let group = MemoryGroup::new("oom");
    group.limit(16 << 20);
    let (victim, ended) = in_child(|| {
        group.join();
        let mut all = Vec::new();
        loop {
            all.push(vec![1_u8; 1 << 20]);
        }
    });
    assert_eq!((ended.status, group.oom_kills()), (libc::SIGKILL, 1));
    // SAFETY: numbers only.
    let (killed, _) = in_child(|| unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
    });
    let is_end = |seen: &&Seen, pid| seen.kind == EventKind::Exit && seen.pid == pid;
    let all = read_until(&mut events, |seen| seen.iter().any(|seen| is_end(&seen, killed)));
    let told = |pid| {
        let end = all.iter().find(|seen| is_end(seen, pid)).expect("its end");
        (end.term_signal, end.oom_killed)
    };
    let nine = Some(libc::SIGKILL as u32);
    assert_eq!(
        [told(victim), told(killed)],
        [(nine, Some(Ok(true))), (nine, Some(Ok(false)))]
    );
}

/// Check that a reader sees the processes of a pid namespace below its own, with ids of its own
/// namespace.
#[test]
fn namespaces_below_are_seen() {
    let mut events = open(&by(EventSource::Bpf));
    let pid = fork(|| {
        // SAFETY: numbers only. The child of a child is the first process of a new namespace.
        let first = unsafe {
            libc::unshare(libc::CLONE_NEWPID);
            libc::fork()
        };
        if first == 0 {
            exit(77);
        }
        wait(first as u32);
    });
    let seen = read_until(&mut events, |seen| {
        seen.iter().any(|seen| seen.kind == EventKind::Exit && seen.pid == pid)
    });
    let first = seen
        .iter()
        .find(|seen| seen.kind == EventKind::Fork && seen.ppid == Ok(pid))
        .expect("the first process of the namespace");
    assert_ne!(first.pid, 1);
    assert!(seen
        .iter()
        .any(|seen| seen.pid == first.pid && seen.exit_code == Some(77)));
    wait(pid);
}

/// Check that events that do not fit are counted: events and losses add up to what happened.
#[test]
fn what_does_not_fit_is_counted() {
    child::run(test_name!(), "tiny", first_of_namespace(), || {
        let mut events = open(&options().ring_bytes(1));
        let mut reported = 0;
        let mut happened = 0;
        for burst in [0, 10, 1000, 3, 300] {
            for _ in 0..scaled(burst) {
                in_child(|| ());
                happened += 2;
            }
            reported += events.read().expect("events").count() as u64;
            let lost = events.lost();
            assert_eq!(
                (reported + lost.count, lost.is_exact),
                (happened, true),
                "{reported} reported"
            );
        }
        assert!(
            reported > 0 && events.lost().count > 0,
            "{reported} reported, {:?}",
            events.lost()
        );
        // And the ring works as before.
        let (pid, _) = in_child(|| ());
        assert_eq!(read_until(&mut events, |seen| seen.len() == 2)[0].pid, pid);
    });
}

/// Check that file names are complete however long they are, and that one that does not fit is
/// truncated.
#[test]
fn file_names_are_whole_or_truncated() {
    child::run(test_name!(), "names", first_of_namespace(), || {
        for (ring_bytes, fits) in [(1 << 20, true), (1, false)] {
            let mut events = open(&options().ring_bytes(ring_bytes));
            for len in [254, 255, 256, 257, 1000, 4095] {
                let path = format!("/bin/{}true", "/".repeat(len - "/bin/true".len()));
                let path = CString::new(path).expect("no NUL");
                let (_, ended) = in_child(|| {
                    exec(&path);
                    exit(1);
                });
                assert_eq!(ended.status, 0, "{len}");
                let seen = read_until(&mut events, |seen| seen.iter().any(|seen| seen.kind == EventKind::Exit));
                let exec = seen.iter().find(|seen| seen.kind == EventKind::Exec).expect("an exec");
                let expected = if fits || len < 255 {
                    Ok(path.as_bytes().to_vec())
                } else {
                    Err(Absent::Truncated)
                };
                assert_eq!(exec.filename, Some(expected), "{len}");
                assert_eq!(exec.comm, Ok(b"true".to_vec()));
            }
            assert_eq!(events.lost().count, 0);
        }
    });
}

/// Check that each of several programs that a process executes is reported.
#[test]
fn every_exec_is_reported() {
    child::run(test_name!(), "execs", first_of_namespace(), || {
        let mut events = open(&options());
        // Each shell replaces itself by the next.
        let script = r#"[ "$1" -eq 0 ] || exec sh -c "$0" "$0" $(($1 - 1))"#;
        let times = 30;
        let mut command = std::process::Command::new("/bin/sh");
        let status = command.args(["-c", script, script, &times.to_string()]).status();
        assert!(status.expect("sh exists").success());
        let seen = read_until(&mut events, |seen| seen.iter().any(|seen| seen.kind == EventKind::Exit));
        let execs = seen.iter().filter(|seen| seen.kind == EventKind::Exec).count();
        assert_eq!((seen.len(), execs), (times + 3, times + 1));
    });
}

/// Check that two readers, one of which requests less, do not disturb each other.
#[test]
fn readers_do_not_disturb_each_other() {
    child::run(test_name!(), "two", first_of_namespace(), || {
        let mut all = open(&options());
        let mut ends = open(&options().kinds([EventKind::Exit]).ring_bytes(1 << 16));
        let made: Vec<u32> = (0..50).map(|_| in_child(|| ()).0).collect();
        let seen = read_until(&mut ends, |seen| seen.len() >= made.len());
        assert!(seen.iter().all(|seen| seen.kind == EventKind::Exit));
        assert_eq!(seen.iter().map(|seen| seen.pid).collect::<Vec<_>>(), made);
        drop(ends);
        let (after, _) = in_child(|| ());
        let seen = read_until(&mut all, |seen| seen.len() >= 2 * made.len() + 2);
        let expected: Vec<u32> = made.iter().chain([&after]).flat_map(|&pid| [pid, pid]).collect();
        assert_eq!(seen.iter().map(|seen| seen.pid).collect::<Vec<_>>(), expected);
    });
}

/// Check that an event's identity equals that of snapshots and of `/proc`, even for readers in
/// other namespaces.
#[test]
fn identities_are_those_of_snapshots() {
    let worlds = [
        ("here", World::default()),
        ("pid namespace", first_of_namespace()),
        (
            "time namespace",
            World {
                boottime_offset_s: 100_000,
                ..first_of_namespace()
            },
        ),
    ];
    for (name, world) in worlds {
        child::run(test_name!(), name, world, || {
            let mut events = open(&by(EventSource::Bpf));
            let before = boottime_ns();
            let pid = fork(|| thread::sleep(Duration::from_secs(1000)));
            let query = Query::process(pid).fields(Field::StartNs | Field::Ppid | Field::Uid | Field::Euid);
            let snapshot = handle(SourceId::Bpf).query(&query).expect("the child");
            let ticks = start_ticks(&format!("/proc/{pid}/stat"));
            // SAFETY: numbers only.
            unsafe { libc::kill(pid as i32, libc::SIGTERM) };
            wait(pid);
            let after = boottime_ns();
            let task = snapshot.task(0);
            let seen = read_until(&mut events, |seen| {
                seen.iter().filter(|seen| seen.pid == pid).count() >= 2
            });
            for event in seen.iter().filter(|seen| seen.pid == pid) {
                assert_eq!(
                    (event.start_ns, event.ppid, event.uid),
                    (task.start_ns(), task.ppid(), task.uid())
                );
                assert_eq!(event.start_ns.map(|ns| ns as u64 / TICK_NS), Ok(ticks));
                assert!((before..=after).contains(&event.time_ns), "{before} {after} {event:?}");
            }
        });
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn boottime_ns() -> u64 {
    clock_ns(ClockId::Boottime)
}

/// Check that two capabilities are enough, and that they can be dropped once the stream is open.
#[test]
fn open_streams_outlive_capabilities() {
    child::run(test_name!(), "dropped", nobody(BOTH), || {
        let mut events = open(&by(EventSource::Bpf));
        child::set_capabilities(0).expect("dropping capabilities");
        let refused = Events::open(&by(EventSource::Bpf)).expect_err("a refusal");
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        let (pid, _) = in_child(|| exit(9));
        let seen = read_until(&mut events, |seen| {
            seen.iter().any(|seen| seen.pid == pid && seen.exit_code.is_some())
        });
        let exit = seen.iter().rfind(|seen| seen.pid == pid).expect("an exit");
        assert_eq!((exit.exit_code, exit.uid), (Some(9), Ok(NOBODY)));
        assert!(events.lost().is_exact);
    });
}

/// Check that the error names the missing capability, and what to do.
#[test]
fn missing_capabilities_are_named() {
    for (name, capabilities, message) in child::TOO_FEW {
        child::run(test_name!(), name, nobody(capabilities), || {
            let error = Events::open(&by(EventSource::Bpf)).expect_err("a refusal");
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            let text = error.to_string();
            assert!(text.contains(message) && text.contains("run as root"), "{text}");
        });
    }
}

/// Check that waiting uses no processor time while nothing happens, and ends at events,
/// interruptions and the timeout.
#[test]
fn waiting_is_idle() {
    child::run(test_name!(), "idle", first_of_namespace(), || {
        let mut events = open(&Options::default());
        let used = || {
            let usage = |who| {
                // SAFETY: all zeros are a valid `rusage`, a structure of numbers, and the kernel
                // writes one.
                unsafe {
                    let mut usage: libc::rusage = std::mem::zeroed();
                    libc::getrusage(who, &mut usage);
                    usage
                }
            };
            usage(libc::RUSAGE_THREAD).ru_nvcsw
        };
        let (before, start) = (used(), Instant::now());
        events.wait(Some(Duration::from_millis(500)), None).expect("waiting");
        assert!(start.elapsed() >= Duration::from_millis(500));
        assert!(used() - before <= 3, "{} switches", used() - before);

        let (reading, writing) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::write(&writing, b"x").expect("room for a byte");
        let start = Instant::now();
        events.wait(None, Some(reading.as_fd())).expect("waiting");
        in_child(|| ());
        events.wait(None, None).expect("waiting");
        assert_eq!(events.read().expect("events").count(), 2);
        assert!(start.elapsed() < Duration::from_secs(20));
    });
}

/// Check that a child after fork(2) can't take events from its parent's open stream.
#[test]
fn streams_are_not_inherited() {
    let mut events = open(&by(EventSource::Bpf));
    let (pid, ended) = in_child(|| {
        let is_refused = events.read().is_err() && events.wait(None, None).is_err();
        exit(is_refused.into());
    });
    assert_eq!(libc::WEXITSTATUS(ended.status), 1);
    let is_its = |seen: &&Seen| seen.pid == pid;
    read_until(&mut events, |seen| seen.iter().filter(is_its).count() == 2);
}
