//! A socket that exists all the time is in each list, once, whatever comes and goes beside it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use taskdiag::Set;

use super::{inode, list_here, network, request, Kind};

fn unix() -> OwnedFd {
    network::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)
}

/// Check UNIX sockets: the kernel keeps them in few chains, and starts each part of a list after a
/// number of sockets of a chain.
#[test]
fn churn_hides_nothing() {
    const STEADY: usize = 2500;
    let limit = getrlimit(Resource::Nofile);
    let highest = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, highest).expect("the own limit");
    network::enter_new();
    let steady: Vec<OwnedFd> = (0..STEADY).map(|_| unix()).collect();
    let inodes: Vec<u64> = steady.iter().map(inode).collect();
    let mut request = request(Kind::Unix);
    request.fields = Set::NONE;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut others: Vec<OwnedFd> = (0..300).map(|_| unix()).collect();
            let mut at = 0;
            while !is_over.load(Ordering::Relaxed) {
                at = (at + 7) % others.len();
                others[at] = unix();
            }
        });
        // In a thread, so that the other one ends whatever this one finds.
        let asks = scope.spawn(|| {
            for _ in 0..100 {
                let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
                for socket in list_here(&request) {
                    *seen.entry(socket.inode.unwrap_or(0)).or_default() += 1;
                }
                let odd = inodes.iter().filter(|inode| seen.get(inode) != Some(&1));
                assert_eq!(odd.count(), 0, "of {} sockets", inodes.len());
            }
        });
        let asked = asks.join();
        is_over.store(true, Ordering::Relaxed);
        asked.expect("each socket is there once");
    });
}
