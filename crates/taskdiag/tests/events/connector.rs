//! The proc connector.

use super::*;

/// Whether everybody may use the connector, as is the case since Linux 6.6.
fn connector_is_free() -> bool {
    kernel() >= (6, 6)
}

/// Check that without capabilities the connector reports events if the kernel allows it, and that
/// otherwise the error has both refusals.
#[test]
fn callers_without_rights_get_what_the_kernel_allows() {
    child::run(test_name!(), "none", nobody(0), || {
        if connector_is_free() {
            let mut events = open(&options());
            assert_eq!(events.source(), EventSource::Connector);
            check_connector(&mut events);
        } else {
            let error = Events::open(&options()).expect_err("a refusal");
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            let text = error.to_string();
            assert!(text.contains("CAP_BPF and CAP_PERFMON are missing"), "{text}");
            assert!(text.contains("CAP_NET_ADMIN is missing"), "{text}");
        }
    });
    child::run(test_name!(), "net admin", nobody(1 << CAP_NET_ADMIN), || {
        check_connector(&mut open(&options()));
    });
}

fn check_connector(events: &mut Events) {
    assert_eq!(events.source(), EventSource::Connector);
    let own = std::process::id();
    for index in 0..50 {
        // Until it is reported, so that /proc shows it too.
        let pid = fork(|| thread::sleep(Duration::from_secs(1000)));
        let seen = read_until(events, |seen| seen.iter().any(|seen| seen.pid == pid));
        let fork = seen.iter().find(|seen| seen.pid == pid).expect("a fork");
        assert_eq!(
            (fork.kind, fork.ppid, fork.tid, fork.is_thread),
            (EventKind::Fork, Ok(own), pid, false)
        );
        assert_eq!(fork.uid, Ok(rustix::process::getuid().as_raw()));
        assert_eq!(fork.comm, Ok(own_comm()));
        assert_eq!(fork.caller, Some(Err(Absent::Unsupported)));
        assert!(
            fork.start_ns <= Ok(fork.time_ns as i64) && fork.start_ns > Ok(fork.time_ns as i64 - 1_000_000_000),
            "{fork:?}"
        );
        let now = boottime_ns();
        assert!(
            fork.time_ns <= now && now - fork.time_ns < 60_000_000_000,
            "{now} {fork:?}"
        );
        // SAFETY: numbers only.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        let is_end = |seen: &&Seen| seen.pid == pid && seen.kind == EventKind::Exit;
        let seen = read_until(events, |seen| seen.iter().any(|seen| is_end(&seen)));
        let end = seen.iter().find(is_end).expect("an exit");
        assert_eq!((end.term_signal, end.exit_code, end.ppid), (Some(9), None, Ok(own)));
        assert_eq!((end.start_ns, &end.comm), (fork.start_ns, &fork.comm));
        wait(pid);
        let (pid, _) = in_child(|| {
            exec(c"/bin/true");
            exit(index);
        });
        let is_ours = |seen: &&Seen| seen.pid == pid;
        let seen = read_until(events, |seen| seen.iter().filter(is_ours).count() >= 3);
        let kinds: Vec<EventKind> = seen.iter().filter(is_ours).map(|seen| seen.kind).collect();
        assert_eq!(kinds, EventKind::ALL);
        let exec = seen
            .iter()
            .find(|seen| seen.kind == EventKind::Exec && seen.pid == pid)
            .expect("an exec");
        assert_eq!(exec.filename, Some(Err(Absent::Unsupported)));
        // It had been reaped before anything was read.
        assert!(seen.iter().filter(is_ours).all(|seen| seen.comm == Err(Absent::Gone)));
    }
}

/// Check that the connector reports processes and threads, and counts the events for which its
/// socket had no room.
#[test]
fn the_connector_reports_and_counts() {
    // In a process of its own: a small socket also loses events of the other tests.
    child::run(test_name!(), "connector", World::default(), || {
        check_connector(&mut open(&by(EventSource::Connector)));
        let mut events = open(&by(EventSource::Connector).threads(true));
        let started = thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let tid = started.join().expect("a thread");
        let is_its = |seen: &&Seen| seen.tid == tid;
        let seen = read_until(&mut events, |seen| seen.iter().filter(is_its).count() >= 2);
        let reported: Vec<&Seen> = seen.iter().filter(is_its).collect();
        assert_eq!((reported[0].kind, reported[1].kind), (EventKind::Fork, EventKind::Exit));
        assert!(reported
            .iter()
            .all(|seen| seen.is_thread && seen.pid == std::process::id()));
        assert!(reported.iter().all(|seen| seen.uid == Err(Absent::Unsupported)));

        let mut events = open(&by(EventSource::Connector).ring_bytes(1));
        assert_eq!(events.lost().count, 0);
        for _ in 0..100 {
            in_child(|| ());
        }
        read_until(&mut events, |seen| !seen.is_empty());
        let lost = events.lost();
        assert!(lost.count > 0 && !lost.is_exact, "{lost:?}");
    });
}

/// Check that in a pid namespace, where the connector would send nothing, it is refused.
#[test]
fn the_connector_is_for_the_initial_namespace() {
    child::run(test_name!(), "namespace", first_of_namespace(), || {
        let error = Events::open(&by(EventSource::Connector)).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("initial pid namespace"), "{error}");
    });
    // If nothing tells which namespace this is, the kernel's silence does.
    let world = World {
        proc: Proc::None,
        ..first_of_namespace()
    };
    child::run(test_name!(), "unknown", world, || {
        let error = Events::open(&by(EventSource::Connector)).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("does not answer"), "{error}");
        // The tracepoints need no /proc.
        let mut events = open(&options());
        let (pid, _) = in_child(|| ());
        assert!(read_until(&mut events, |seen| seen.len() == 2)
            .iter()
            .all(|seen| seen.pid == pid));
    });
}
