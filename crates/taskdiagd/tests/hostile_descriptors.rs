//! Check that descriptors that clients send along with requests make no other client wait.

mod daemon;

use std::time::Duration;

use taskdiag_protocol::wire::Strategy;
use taskdiag_testkit::{child, test_name};

use daemon::attack::{max_wait, slowest_request, user, BASE, USERS};
use daemon::passed::send_lingering;
use daemon::{connect, Broker};

/// Check that sending the broker a socket whose closing waits delays nobody.
#[test]
fn sent_sockets_delay_nobody() {
    let _turn = taskdiag_zoo::run_first();
    let broker = child::part().is_none().then(|| Broker::start(&[]));
    if let Some(broker) = &broker {
        daemon::publish(broker);
    }
    for (name, id) in USERS {
        child::run(test_name!(), name, user(id), || {
            let socket = daemon::socket();
            for _ in 0..3 {
                let connection = connect(&socket);
                let is_sent = send_lingering(&connection);
                // A request that is not received. Its descriptor is closed with the connection.
                let unread = connect(&socket);
                let _ = send_lingering(&unread);
                drop(unread);
                let slowest = slowest_request(&socket, Duration::from_millis(500));
                assert!(slowest < max_wait(), "{slowest:?}, sent: {is_sent}");
            }
        });
    }
}

/// Check the same where descriptors can't be refused: they were sent before the broker was started.
#[test]
fn sockets_that_were_sent_before_delay_nobody() {
    let _turn = taskdiag_zoo::run_first();
    let directory = std::env::temp_dir().join(format!("taskdiagd-before-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("socket");
    let listener = daemon::listener(&path);
    let before: Vec<_> = (0..6)
        .map(|_| {
            let connection = connect(&path);
            assert!(send_lingering(&connection));
            connection
        })
        .collect();
    let mut broker = daemon::activate(&listener);
    let first = connect(&path).ask(BASE, Strategy::One, std::process::id());
    assert!(first.is_ok());
    let while_open = slowest_request(&path, Duration::from_millis(500));
    // Their connections were ended without an answer.
    assert!(before.iter().all(|connection| connection.receive().is_none()));
    let after = slowest_request(&path, Duration::from_millis(500));
    assert!(
        while_open < max_wait() && after < max_wait(),
        "{while_open:?} {after:?}"
    );
    let _ = broker.kill();
    let _ = broker.wait();
    let _ = std::fs::remove_dir_all(directory);
}
