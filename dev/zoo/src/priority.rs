//! Priorities, so that times which tests measure do not depend on what else the machine does.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::sys::set_scheduler;

/// Lets this process, and all that it starts from now on, run before all processes of normal
/// priority. Changes nothing without `CAP_SYS_NICE`: a process of another user inherits it.
pub fn run_first() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("our threads").flatten();
        tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
    };
    // One that was started meanwhile is met the second time. Threads that have ended do not matter.
    for tid in threads().chain(threads()) {
        let _ = set_scheduler(tid, libc::SCHED_RR, 1);
    }
}

/// Starts a process with normal priority.
pub fn run_normally(command: &mut Command) -> &mut Command {
    // SAFETY: a system call.
    unsafe { command.pre_exec(|| set_scheduler(0, libc::SCHED_OTHER, 0)) }
}
