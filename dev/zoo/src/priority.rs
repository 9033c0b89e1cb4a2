//! Priorities, so that times which tests measure do not depend on what else the machine does.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{flock, FlockOperation};

use crate::sys::set_scheduler;

/// The variable that tells a process, which a test started, what part of the test to run.
pub const TEST_PART: &str = "TASKDIAG_TEST_PART";

/// The turn of a test that measures time: one on a machine, whichever program it is in.
#[derive(Debug)]
#[must_use]
pub struct Turn(Option<File>);

/// Waits for a turn. Until it ends, this process, and all that it starts, run before all processes of
/// normal priority. Changes nothing in a process that a test started: that has the test's priority
/// already, and its turn.
pub fn run_first() -> Turn {
    if std::env::var_os(TEST_PART).is_some() {
        return Turn(None);
    }
    let file = File::create(std::env::temp_dir().join("taskdiag-turn")).expect("a place for files");
    flock(&file, FlockOperation::LockExclusive).expect("a turn");
    set_own_scheduler(libc::SCHED_RR, 1);
    Turn(Some(file))
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            set_own_scheduler(libc::SCHED_OTHER, 0);
            // A process that was forked meanwhile may still have the file.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// Changes all threads. Does nothing without `CAP_SYS_NICE`.
fn set_own_scheduler(policy: i32, priority: i32) {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("our threads").flatten();
        tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
    };
    // One that was started meanwhile is met the second time. Threads that have ended do not matter.
    for tid in threads().chain(threads()) {
        let _ = set_scheduler(tid, policy, priority);
    }
}

/// Starts a process with normal priority.
pub fn run_normally(command: &mut Command) -> &mut Command {
    // SAFETY: a system call.
    unsafe { command.pre_exec(|| set_scheduler(0, libc::SCHED_OTHER, 0)) }
}
