//! How long a request waits that needs a reader. It has a file of its own, because the count depends
//! on who else wants a processor.

mod daemon;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use taskdiag_protocol::wire::{show, Strategy};

use daemon::{connect, request, Broker};

/// Check that a request that needs a reader waits only for the pass that is under way, however many
/// clients ask about all threads: few of their answers come meanwhile.
#[test]
fn readers_wait_for_one_pass() {
    let _turn = taskdiag_zoo::run_first();
    let _farm = taskdiag_zoo::Farm::start(500, 20).expect("a farm");
    let broker = Broker::start(&[]);
    let (stop, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let own = std::process::id();
    let counts = thread::scope(|scope| {
        for client in 0..8 {
            // Each asks for other groups: no two can have the same pass.
            let show = (0xffff ^ 1 << client) << show::GROUPS_SHIFT;
            let (broker, stop, answers) = (&broker, &stop, &answers);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // It leaves when the answer comes, so that another pass is made at once.
                    let connection = connect(&broker.socket);
                    connection.send(&request(show, Strategy::AllThreads, 0));
                    connection.receive();
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(Duration::from_secs(1));
        let connection = connect(&broker.socket);
        let counts = [show::CMDLINE, show::VMA].map(|show| {
            let mut meanwhile: Vec<Option<u64>> = (0..7)
                .map(|_| {
                    let before = answers.load(Ordering::Relaxed);
                    connection.ask(show, Strategy::One, own).ok()?;
                    Some(answers.load(Ordering::Relaxed) - before)
                })
                .collect();
            meanwhile.sort_unstable();
            meanwhile
        });
        // Before anything is checked: a failure waits for all clients.
        stop.store(true, Ordering::Relaxed);
        counts
    });
    println!("{counts:?}");
    // When a job went to a reader after a pass, and its result out after the next one, each request
    // waited for several. A reader that must wait for a processor may do so still: one that need not
    // is enough.
    for meanwhile in &counts {
        assert!(matches!(meanwhile[0], Some(0 | 1)), "{counts:?}");
    }
}
