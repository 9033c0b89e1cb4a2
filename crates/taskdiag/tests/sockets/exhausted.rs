//! A caller that can't send requests gets an error, not an empty list, and sends them itself where no
//! process can be started.

use std::ops::ControlFlow;

use rustix::process::{setrlimit, Resource, Rlimit};
use taskdiag::{ErrorKind, Set, Snapshot};
use taskdiag_testkit::{child, kernel, test_name};

use super::{handle, request, turn, Kind};

/// Check that it is an error if there are no descriptors for the process that sends requests. If no
/// further process is allowed, the caller sends them, except where lists wait for others.
#[test]
fn asking_can_fail() {
    let _turn = turn();
    let limits = [
        ("files", child::World::default(), Resource::Nofile, 3),
        ("processes", child::nobody(0), Resource::Nproc, 1),
    ];
    for (name, world, resource, limit) in limits {
        child::run(test_name!(), name, world, || {
            let mut request = request(Kind::ALL);
            request.fields = Set::NONE;
            request.own_namespace = true;
            let mut handle = handle();
            let mut ask = || handle.sockets(&Snapshot::default(), &request, |_| ControlFlow::Continue(()));
            assert!(ask().expect("sockets").sockets > 0);
            let lower = Rlimit {
                current: Some(limit),
                maximum: Some(limit),
            };
            setrlimit(resource, lower).expect("a lower limit");
            let is_answered = name == "processes" && kernel() >= (6, 9);
            match ask() {
                Ok(answer) => assert!(is_answered && answer.sockets > 0, "{answer:?}"),
                Err(error) => {
                    assert_eq!((is_answered, error.kind()), (false, ErrorKind::System), "{error}");
                    assert!(error.to_string().contains("sock_diag"), "{error}");
                }
            }
        });
    }
}
