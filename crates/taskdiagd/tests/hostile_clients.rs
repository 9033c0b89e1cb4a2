//! Check that clients that take as much as they can do not take what belongs to others:
//! connections, time, and an error for those who are refused.

mod daemon;

use std::time::Duration;

use taskdiag::{Fields, Group};
use taskdiag_protocol::wire::{show, Message, Messages, Strategy};
use taskdiag_testkit::{
    child::{self, NOBODY},
    test_name,
};

use daemon::attack::{attack_time, is_part, max_wait, slowest_of_both, user, Attacker, BASE, OTHER, USER};
use daemon::{connect, request, Broker, Limits};

/// All groups of fields that the kernel reads without the memory of a process.
const MANY_GROUPS: u64 = 0xffff << show::GROUPS_SHIFT;

/// Connects 20 times and asks about itself.
fn connect_and_ask() {
    for _ in 0..20 {
        let connection = connect(&daemon::socket());
        let answer = connection.ask(BASE, Strategy::One, std::process::id());
        assert_eq!(answer.map(|tasks| tasks.len()), Ok(1));
    }
}

fn sleep() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

/// Check that users who connect as often as they can delay neither root nor others, that they
/// themselves are sent an error, and that their idle connections are closed to make room for
/// others.
#[test]
fn nobody_is_locked_out() {
    let _turn = taskdiag_zoo::run_first();
    let test = test_name!();
    if is_part("greedy-1") || is_part("greedy-2") {
        let socket = daemon::socket();
        let mut connections = Vec::new();
        for _ in 0..150 {
            connections.extend(daemon::try_connect(&socket));
        }
        // Half of them are idle. The others have sent a request, and do not read.
        for connection in connections.iter().step_by(2) {
            connection.try_send(&request(BASE, Strategy::All, 0));
        }
        sleep();
    }
    if is_part("modest") {
        return child::run(test, "modest", user(NOBODY), connect_and_ask);
    }
    let limits = Limits {
        descriptors: 600,
        ..Limits::default()
    };
    let broker = Broker::start_within(limits, &[]);
    daemon::publish(&broker);
    let mut greedy = [("greedy-1", USER), ("greedy-2", OTHER)].map(|(name, id)| Attacker::start(test, name, user(id)));
    std::thread::sleep(Duration::from_secs(2));
    greedy.iter_mut().for_each(Attacker::check_runs);
    connect_and_ask();
    child::run(test, "modest", user(NOBODY), connect_and_ask);
    // A user at its limit gets an error, or one of its own idle connections is closed.
    let connections: Vec<_> = (0..400).map(|_| connect(&broker.socket)).collect();
    let errors: Vec<i32> = connections
        .iter()
        .filter_map(|connection| connection.ask(BASE, Strategy::One, std::process::id()).err())
        .collect();
    let expected = [libc::EBUSY, libc::EPIPE, libc::ECONNRESET];
    assert!(errors.iter().all(|errno| expected.contains(errno)), "{errors:?}");
    drop(connections);
    connect_and_ask();
}

/// Starts threads that sleep.
fn start_threads(threads: usize) {
    for _ in 0..threads {
        let thread = std::thread::Builder::new().stack_size(32 << 10);
        let _ = thread.spawn(|| std::thread::sleep(Duration::from_secs(1000)));
    }
}

/// Sends a request without end over 40 connections, and reads what comes.
fn flood(packet: &[u8]) -> ! {
    start_threads(1000);
    let connections: Vec<_> = (0..40).map(|_| connect(&daemon::socket())).collect();
    loop {
        for connection in &connections {
            connection.try_send(packet);
            let mut answer = [0; 64];
            let flags = rustix::net::RecvFlags::DONTWAIT;
            while matches!(
                rustix::net::recv(&connection.socket, &mut answer[..], flags),
                Ok((1.., _))
            ) {}
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs what an attacker with many threads does.
fn attack_with_threads(name: &str) {
    let own = std::process::id();
    match name {
        "connects" => {
            start_threads(1000);
            loop {
                let _ = daemon::try_connect(&daemon::socket());
            }
        }
        "asks" => flood(&request(MANY_GROUPS, Strategy::One, own)),
        "dumps" => flood(&request(MANY_GROUPS, Strategy::All, 0)),
        "changes" => {
            std::thread::spawn(|| loop {
                // SAFETY: numbers only.
                unsafe {
                    libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
                    libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
                }
            });
            flood(&request(MANY_GROUPS, Strategy::Thread, own))
        }
        _ => {}
    }
}

/// Check that clients with many threads, all of which the broker must look at, delay nobody: while
/// they connect, ask about themselves or about all, or change what decides access, each without
/// end.
#[test]
fn threads_of_clients_delay_nobody() {
    let _turn = taskdiag_zoo::run_first();
    let test = test_name!();
    if let Some(part) = child::part() {
        attack_with_threads(&part);
    }
    let broker = child::part().is_none().then(|| Broker::start(&[]));
    if let Some(broker) = &broker {
        daemon::publish(broker);
    }
    for attack in ["connects", "asks", "dumps", "changes"] {
        let attacker = child::part()
            .is_none()
            .then(|| Attacker::start_and_wait(test, attack, user(USER), Duration::from_secs(1)));
        child::run(test, &format!("beside-{attack}"), user(OTHER), || {
            let slowest = slowest_of_both(&daemon::socket(), attack_time());
            println!("{attack}: {slowest:?}");
            assert!(slowest < max_wait(), "{attack}: {slowest:?}");
        });
        drop(attacker);
    }
}

/// Check that one user does not get all connections of a broker that has few.
#[test]
fn no_user_gets_all_connections() {
    let _turn = taskdiag_zoo::run_first();
    let test = test_name!();
    if is_part("holds") {
        // Connections with a request are not closed for others. These do not read their answers.
        let _held: Vec<_> = (0..60)
            .map(|_| {
                let connection = connect(&daemon::socket());
                for _ in 0..100 {
                    connection.try_send(&request(MANY_GROUPS, Strategy::AllThreads, 0));
                }
                connection
            })
            .collect();
        sleep();
    }
    let few = Limits {
        descriptors: 256,
        ..Limits::default()
    };
    let broker = child::part().is_none().then(|| Broker::start_within(few, &[]));
    if let Some(broker) = &broker {
        daemon::publish(broker);
    }
    let _holder = child::part()
        .is_none()
        .then(|| Attacker::start_and_wait(test, "holds", user(USER), Duration::from_secs(2)));
    child::run(test, "beside", user(OTHER), connect_and_ask);
}

/// Check that root's idle connections, which have no limit of their own, keep nobody out.
#[test]
fn root_leaves_room_for_others() {
    let _turn = taskdiag_zoo::run_first();
    let test = test_name!();
    if is_part("beside") {
        return child::run(test, "beside", user(OTHER), connect_and_ask);
    }
    let broker = Broker::start(&["--max-clients", "4"]);
    daemon::publish(&broker);
    let _idle: Vec<_> = (0..4)
        .map(|_| {
            let connection = connect(&broker.socket);
            let answer = connection.ask(BASE, Strategy::One, std::process::id());
            answer.expect("an answer");
            connection
        })
        .collect();
    child::run(test, "beside", user(OTHER), connect_and_ask);
}

/// Check that a client that is refused receives an error, whether or not it sends a request first.
#[test]
fn refused_clients_get_an_error() {
    let _turn = taskdiag_zoo::run_first();
    let broker = Broker::start(&["--max-clients", "2", "--patience", "1000"]);
    daemon::publish(&broker);
    let groups = BASE | (1 << Group::Cpu as u32 | 1 << Group::Signals as u32) << show::GROUPS_SHIFT;
    let packet = request(groups, Strategy::AllThreads, 0);
    let _busy: Vec<_> = (0..2)
        .map(|_| {
            let connection = connect(&broker.socket);
            // Send more requests than its socket has room for answers, and read none.
            for _ in 0..100 {
                connection.try_send(&packet);
            }
            connection
        })
        .collect();
    // Until its socket is full, a connection that has just been answered is idle for a moment.
    daemon::wait_until_they_sleep(&[broker.pid()]);
    for asks_first in [false, true] {
        let refused = connect(&broker.socket);
        if asks_first {
            std::thread::sleep(Duration::from_millis(100));
            refused.send(&packet);
        }
        let packet = refused.receive().expect("an error");
        let first = Messages::new(&packet, 0).next();
        assert!(matches!(first, Some(Ok(Message::Error(libc::EBUSY)))), "{first:?}");
    }
    // The library puts the error into words.
    let error = daemon::handle(&broker.socket)
        .prepare(Fields::all())
        .expect_err("no connection");
    assert!(error.to_string().contains("busy"), "{error}");
}
