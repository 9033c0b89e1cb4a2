//! Check that the broker does not grow, and answers other clients: after malformed requests, and
//! with clients that leave in the middle of an answer, that do not read, or that ask without end.
//! Also check that clients find the broker again after it was killed.

mod daemon;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use taskdiag::maps::{MapField, Maps, Perms};
use taskdiag::{Field, Handle, Query, SourceId};
use taskdiag_protocol::wire::{attribute, show, Message, Messages, Request, Strategy, FILES_REQUEST};
use taskdiag_testkit::{child, numbers::Numbers, scaled, test_name};

use daemon::{connect, request, try_connect, Broker, Limits};

const BASE: u64 = 1 << show::GROUPS_SHIFT;

/// The number of open descriptors, and the resident set in KiB.
fn size(pid: u32) -> (usize, u64) {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("descriptors")
        .count();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    (
        files,
        line.split_ascii_whitespace()
            .nth(1)
            .expect("a number")
            .parse()
            .expect("a number"),
    )
}

/// Waits until at most `files` descriptors are open, and returns the size.
fn settled(broker: &Broker, files: usize) -> (usize, u64) {
    for _ in 0..200 {
        if size(broker.pid()).0 <= files {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    size(broker.pid())
}

/// Checks that the broker answers.
fn check_answers(broker: &Broker) {
    let own = std::process::id();
    let mut handle = daemon::handle(&broker.socket);
    let snapshot = handle
        .query(&Query::process(own).fields(Field::Comm | Field::Uid))
        .expect("an answer");
    assert_eq!(snapshot.task(0).pid(), Ok(own));
}

/// Check that each of a million malformed or truncated requests is answered with an error, and that
/// the broker does not grow.
#[test]
fn malformed_requests_are_refused() {
    let broker = Broker::start(&[]);
    check_answers(&broker);
    let before = settled(&broker, 0);
    let mut numbers = Numbers(88_172_645_463_325_252);
    let mut answered = 0;
    let mut errors = BTreeSet::new();
    let total = scaled(1_000_000);
    while answered < total {
        let connection = connect(&broker.socket);
        let mut expected = Vec::new();
        for _ in 0..100.min(total - answered) {
            let mut packet = [0_u8; 256];
            let valid = request(BASE, Strategy::One, 1);
            packet[..valid.len()].copy_from_slice(&valid);
            let len = match numbers.below(4) {
                // Too short, but not the form without padding.
                0 => 1 + numbers.below(35),
                // Too long.
                1 => valid.len() + 1 + numbers.below(200),
                // A wrong type, length, or strategy.
                2 => {
                    let at = [0, 1, 2, 4, 5, 25, 26, 30][numbers.below(8)];
                    packet[at] ^= 1 + numbers.below(255) as u8;
                    valid.len()
                }
                // Unknown bits.
                _ => {
                    let bit = match 35 + numbers.below(26) {
                        // Those of the last group, network traffic, follow.
                        bit @ ..37 => bit,
                        bit => bit + 1,
                    };
                    packet[16 + bit / 8] |= 1 << (bit % 8);
                    valid.len()
                }
            };
            connection.send(&packet[..len]);
            let seq = if (16..=FILES_REQUEST + 8).contains(&len) { 5 } else { 0 };
            expected.push((packet, len, seq));
        }
        for (packet, len, seq) in expected {
            let answer = connection.receive().expect("an error");
            match Messages::new(&answer, seq).next() {
                Some(Ok(Message::Error(errno))) => errors.insert(errno),
                other => panic!("{:?}: {other:?}", &packet[..len]),
            };
            answered += 1;
        }
    }
    assert_eq!(errors, BTreeSet::from([libc::EINVAL, libc::EMSGSIZE]));
    check_answers(&broker);
    let after = settled(&broker, before.0);
    assert_eq!(after.0, before.0, "descriptors");
    assert!(after.1 <= before.1 + 1024, "{} KiB instead of {}", after.1, before.1);
}

/// The results of clients that come and go.
#[derive(Default)]
struct Outcomes {
    right: AtomicU64,
    wrong: AtomicU64,
}

/// Keeps `at_once` clients connected until `until`. Each picks at random: asks and leaves, asks and
/// does not read, sends half a request, or asks and reads.
fn come_and_go(broker: &Broker, seed: u64, at_once: usize, until: Instant, outcomes: &Outcomes) {
    const SHOW: [u64; 4] = [
        BASE,
        BASE | 1 << 18,
        show::BASE | show::CRED | show::CMDLINE,
        BASE | show::CMDLINE | show::VMA,
    ];
    let mut numbers = Numbers(seed);
    let mut clients = Vec::new();
    while Instant::now() < until {
        while clients.len() < at_once {
            match try_connect(&broker.socket) {
                Ok(connection) => clients.push(connection),
                Err(Errno::AGAIN) => break,
                Err(errno) => panic!("{errno}"),
            }
        }
        if clients.is_empty() {
            continue;
        }
        let index = numbers.below(clients.len());
        let show = SHOW[numbers.below(4)];
        let strategy = if numbers.below(8) == 0 {
            Strategy::All
        } else {
            Strategy::One
        };
        let packet = request(show, strategy, std::process::id());
        match numbers.below(5) {
            // Asks and leaves.
            0 => {
                clients[index].try_send(&packet);
                clients.swap_remove(index);
            }
            // Asks again and again, and does not read.
            1 => {
                for _ in 0..20 {
                    clients[index].try_send(&packet);
                }
            }
            // Sends part of a request, and leaves.
            2 => {
                clients[index].try_send(&packet[..7]);
                clients.swap_remove(index);
            }
            // Asks and reads.
            _ => converse(broker, outcomes),
        }
    }
}

/// Asks about itself over a new connection.
fn converse(broker: &Broker, outcomes: &Outcomes) {
    let own = std::process::id();
    match connect(&broker.socket).ask(BASE, Strategy::One, own) {
        Ok(tasks) if tasks.len() == 1 && tasks[0].tgid == own => {
            outcomes.right.fetch_add(1, Ordering::Relaxed);
        }
        // It was refused, or closed for another client before it asked.
        Err(libc::EBUSY | libc::EPIPE | libc::ECONNRESET) => {}
        other => {
            println!("{other:?}");
            outcomes.wrong.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Check that 500 clients at a time, which come and go at random for a minute, get correct answers,
/// and that the broker does not grow. Some leave in the middle of answers, do not read, or send
/// half requests.
#[test]
fn clients_that_come_and_go_cost_only_themselves() {
    const WORKERS: u64 = 4;
    let _turn = taskdiag_zoo::run_first();
    let broker = Broker::start(&["--patience", "2"]);
    check_answers(&broker);
    let churn = |lasts: Duration, at_once: usize| {
        let until = Instant::now() + lasts;
        let outcomes = Outcomes::default();
        thread::scope(|scope| {
            for worker in 1..=WORKERS {
                let (broker, outcomes) = (&broker, &outcomes);
                let seed = 0x9e37_79b9_7f4a_7c15 ^ worker;
                scope.spawn(move || come_and_go(broker, seed, at_once / WORKERS as usize, until, outcomes));
            }
        });
        assert_eq!(outcomes.wrong.into_inner(), 0, "wrong answers");
        // Far fewer than any machine manages.
        assert!(outcomes.right.into_inner() > scaled(20) as u64 * lasts.as_secs());
    };
    let files = size(broker.pid()).0;
    churn(Duration::from_secs(3), 500);
    let before = settled(&broker, files);
    churn(Duration::from_secs(scaled(60) as u64), 500);
    check_answers(&broker);
    // Helpers that were started remain.
    let most = before.0 + 16;
    let after = settled(&broker, most);
    assert!(after.0 <= most, "{} descriptors instead of {}", after.0, before.0);
    assert!(after.1 <= before.1 + 8192, "{} KiB instead of {}", after.1, before.1);
}

/// Check that a client that repeatedly asks for everything and reads nothing delays nobody, and is
/// disconnected.
#[test]
fn a_client_that_does_not_read_delays_nobody() {
    let _turn = taskdiag_zoo::run_first();
    let broker = Broker::start(&["--patience", "1"]);
    let lazy = connect(&broker.socket);
    let all = request(BASE | 1 << 18 | 1 << 20, Strategy::AllThreads, 0);
    while lazy.try_send(&all) {}
    let began = Instant::now();
    for _ in 0..20 {
        check_answers(&broker);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // It is disconnected.
    let mut polled = [PollFd::new(&lazy.socket, PollFlags::RDHUP)];
    let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(poll(&mut polled, Some(&patience)), Ok(1), "it is still connected");
}

/// Check that clients that repeatedly ask for open files and read none do not stop others from
/// getting theirs: the kernel limits how many descriptors one user has in flight.
#[test]
fn unread_files_are_few() {
    let broker = Broker::start_within(
        Limits {
            descriptors: 256,
            ..Limits::default()
        },
        &[],
    );
    let own = std::process::id();
    let maps = request(show::MAPS, Strategy::One, own);
    let lazy: Vec<_> = (0..8).map(|_| connect(&broker.socket)).collect();
    let mut sent = 0;
    for _ in 0..200 {
        for connection in &lazy {
            sent += usize::from(connection.try_send(&maps));
        }
    }
    assert!(sent > 800, "{sent} requests");
    for _ in 0..50 {
        let mut handle = daemon::handle(&broker.socket);
        assert!(handle.maps(own).expect("its maps").fd().is_some());
    }
    let mut opened = 0;
    for connection in &lazy {
        let packet = connection.receive().expect("an answer");
        let first = Messages::new(&packet, 5).next();
        opened += usize::from(matches!(first, Some(Ok(Message::Task { .. }))));
        let packet = connection.receive().expect("another answer");
        let second = Messages::new(&packet, 5).next();
        assert!(matches!(second, Some(Ok(Message::Error(libc::EBUSY)))), "{second:?}");
    }
    assert_eq!(opened, lazy.len());
    drop(lazy);
    check_answers(&broker);
}

/// Check that a handle opens all files about mappings through one connection.
#[test]
fn mappings_take_one_connection() {
    let broker = Broker::start(&[]);
    let path = broker.socket.to_str().expect("a path");
    // The listening socket, and the broker's end of each connection.
    let sockets = || {
        let sockets = std::fs::read_to_string("/proc/net/unix").expect("the sockets");
        sockets.lines().filter(|line| line.ends_with(path)).count()
    };
    // The connection that found out whether the broker was ready ends soon.
    for _ in 0..200 {
        if sockets() == 1 {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(sockets(), 1, "{path}");
    let mut handle = daemon::handle(&broker.socket);
    let own = std::process::id();
    let mut opened: Vec<Maps> = (0..8).map(|_| handle.maps(own).expect("its maps")).collect();
    for maps in &mut opened {
        // From another file, which is opened for it.
        let listed = maps.list(Perms::EXEC, MapField::RssBytes).expect("mappings");
        assert!(!listed.is_empty() && listed.source() == SourceId::Broker, "{listed:?}");
    }
    let all = handle.all_maps(Perms::EXEC, MapField::Name).expect("mappings");
    assert_eq!(all.mappings.source(), SourceId::Broker);
    assert!(all.mappings.iter().any(|mapping| mapping.pid == Some(own)));
    assert_eq!(sockets(), 2);
}

/// Check that each of many tasks is in an answer exactly once, also where several clients share a
/// pass.
#[test]
fn each_task_is_shown_once() {
    const PROCESSES: usize = 500;
    const THREADS: usize = 10;
    let farm = taskdiag_zoo::Farm::start(PROCESSES, THREADS).expect("a farm");
    let pids: BTreeSet<u32> = farm.pids().iter().map(|&pid| pid as u32).collect();
    let broker = Broker::start(&[]);
    thread::scope(|scope| {
        for client in 0..4 {
            let (pids, socket) = (&pids, &broker.socket);
            scope.spawn(move || {
                let mut handle = daemon::handle(socket);
                let mut snapshot = taskdiag::Snapshot::default();
                let query = Query::threads().fields(Field::Pid | Field::Tid | Field::Comm);
                for _ in 0..scaled(50) {
                    handle.query_into(&query, &mut snapshot).expect("an answer");
                    assert_eq!(snapshot.counters().malformed, 0);
                    let of_farm = snapshot
                        .tasks()
                        .filter(|task| task.pid().is_ok_and(|pid| pids.contains(&pid)));
                    let tids: Vec<u32> = of_farm.map(|task| task.tid().expect("a number")).collect();
                    assert_eq!(tids.len(), PROCESSES * THREADS, "client {client}");
                    assert!(tids.is_sorted_by(|tid, next| tid < next));
                }
            });
        }
    });
}

/// Check that the connections of a killed broker end, and that handles reconnect to the next
/// broker.
#[test]
fn handles_find_the_next_broker() {
    let mut broker = Broker::start(&[]);
    let mut handle = daemon::handle(&broker.socket);
    let query = Query::process(std::process::id()).fields(Field::Comm | Field::Uid);
    let mut snapshot = handle.query(&query).expect("an answer");
    for _ in 0..3 {
        let waiting = connect(&broker.socket);
        broker.kill_and_restart();
        assert!(waiting.receive().is_none());
        handle
            .query_into(&query, &mut snapshot)
            .expect("an answer of the next broker");
        assert_eq!(snapshot.len(), 1);
    }
    assert!(broker.terminate().success());
    for _ in 0..2 {
        let error = handle.query_into(&query, &mut snapshot).expect_err("nobody listens");
        check_nobody(&error, &broker.socket);
    }
}

/// Check that an error says that nobody listens at a socket, and what to do about it.
fn check_nobody(error: &taskdiag::Error, socket: &Path) {
    let text = format!("{error:#}");
    let socket = socket.display();
    assert_eq!(error.kind(), taskdiag::ErrorKind::Unsupported, "{text}");
    assert!(text.starts_with(&format!("no broker answers at {socket}: ")), "{text}");
    assert!(
        text.ends_with(&format!(" (start it as root: taskdiagd --socket {socket})")),
        "{text}"
    );
}

/// Check that a handle that chose the broker uses other sources once the broker has ended.
#[test]
fn handles_do_without_a_dead_broker() {
    // The broker shows a process what the least of its threads may see: here this is of no other test.
    child::run(test_name!(), "asks", child::World::default(), || {
        let mut broker = Broker::start(&["--observers", "0"]);
        let mut handle = Handle::new().with_socket(&broker.socket);
        let (asked, was_asked) = mpsc::channel();
        let (ended, has_ended) = mpsc::channel();
        let ask = move || {
            // This thread may not load programs or end the broker.
            child::set_capabilities(0).expect("no capabilities");
            let query = Query::processes().fields(Field::Comm | Field::Uid);
            let mut sources = Vec::new();
            for turn in 0..3 {
                let snapshot = handle.query(&query).expect("an answer");
                let own = std::process::id();
                assert!(snapshot
                    .tasks()
                    .any(|task| task.pid() == Ok(own) && task.uid() == Ok(0)));
                sources.extend(snapshot.answers().map(|(_, source)| source.ok()));
                if turn == 0 {
                    asked.send(()).expect("the test");
                    has_ended.recv().expect("the end of the broker");
                }
            }
            let fact = &handle.support().broker;
            assert!(fact.why.starts_with("no broker answers at "), "{fact}");
            assert!(fact.remedy.starts_with("start it as root: taskdiagd "), "{fact}");
            sources
        };
        let asking = thread::spawn(ask);
        was_asked.recv().expect("an answer of the broker");
        assert!(broker.terminate().success());
        ended.send(()).expect("the thread");
        let sources = asking.join().expect("answers");
        let (broker, procfs) = (Some(SourceId::Broker), Some(SourceId::Procfs));
        assert_eq!(sources, [broker, broker, procfs, procfs, procfs, procfs]);
    });
}

/// Check that a handle that found no broker when it first asked finds the one that starts later.
#[test]
fn handles_find_a_later_broker() {
    let mut broker = Broker::start(&[]);
    assert!(broker.terminate().success());
    let mut handle = daemon::handle(&broker.socket);
    let query = Query::process(std::process::id()).fields(Field::Comm | Field::Uid);
    for _ in 0..2 {
        let error = handle.query(&query).expect_err("nobody listens");
        check_nobody(&error, &broker.socket);
    }
    broker.kill_and_restart();
    assert_eq!(handle.query(&query).expect("an answer of the broker").len(), 1);
}

/// Check that a broker that is asked to end as soon as clients can connect ends in the same orderly
/// way as later.
#[test]
fn an_early_end_is_orderly() {
    for _ in 0..scaled(20) {
        let mut broker = Broker::spawn(&[]);
        while try_connect(&broker.socket).is_err() {
            std::hint::spin_loop();
        }
        assert!(broker.terminate().success());
    }
}

/// Check that each of many simultaneous clients gets its own answers: with the sequence number and
/// the task that it asked for, and nothing else.
#[test]
fn answers_are_not_mixed_up() {
    let broker = Broker::start(&[]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let connection = connect(&broker.socket);
                while !stop.load(Ordering::Relaxed) {
                    let tasks = connection.ask(BASE | show::CMDLINE, Strategy::All, 0).expect("all");
                    assert!(tasks.iter().any(|task| task.tgid == std::process::id()));
                }
            });
        }
        let askers: Vec<_> = (0..4_u32)
            .map(|number| {
                let broker = &broker;
                scope.spawn(move || {
                    let connection = connect(&broker.socket);
                    for round in 0..scaled(300) as u32 {
                        let seq = number << 16 | round;
                        let asked = Request {
                            seq,
                            show: BASE,
                            strategy: Strategy::One,
                            pid: std::process::id(),
                        };
                        connection.send(&asked.encode());
                        let packet = connection.receive().expect("an answer");
                        let messages: Vec<_> = Messages::new(&packet, seq)
                            .map(|message| message.expect("its own"))
                            .collect();
                        let [Message::Task { header, attributes, .. }, Message::Done] = messages[..] else {
                            panic!("{messages:?}");
                        };
                        assert_eq!(header.tgid.get(), std::process::id());
                        let kinds: Vec<_> = taskdiag_protocol::wire::attributes(attributes)
                            .map(|(kind, ..)| kind)
                            .collect();
                        assert_eq!(kinds, [attribute::RECORD]);
                    }
                })
            })
            .collect();
        askers.into_iter().for_each(|asker| asker.join().expect("its answers"));
        stop.store(true, Ordering::Relaxed);
    });
}

/// Check that a broker without requests does not wake up.
#[test]
fn an_idle_broker_sleeps() {
    let broker = Broker::start(&[]);
    check_answers(&broker);
    settled(&broker, 0);
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", broker.pid())).expect("status");
        let line = status
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt_switches"))
            .expect("switches");
        line.split_ascii_whitespace().nth(1).expect("a number").to_owned()
    };
    thread::sleep(Duration::from_millis(200));
    let before = switches();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(switches(), before);
    println!("{} KiB resident", size(broker.pid()).1);
}
