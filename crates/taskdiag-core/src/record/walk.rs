//! What programs that read tasks are asked for, and the memory of those that find the tasks
//! themselves (`bpf/task.bpf.c` of `taskdiag-bpf`).

use super::define::{constants, enumerations, memory};
use super::{KernelTest, TESTS};

constants! {
    prefix "TD_";

    /// The maximum number of processes in the list of a walk.
    LISTED: usize = 1024;
    /// The number of tasks that are read together, so that the processor's waits for their memory
    /// overlap.
    BLOCK: usize = 64;
    /// The maximum number of processors for summing up memory counters. With more, memory counters
    /// are deferred.
    CPUS_MAX: usize = 512;
}

enumerations! {
    /// How a run of a walk ended.
    enum td_walk_state "TD_WALK_" as state: u32 {
        /// The program did not run, or this kernel's IDR is not as expected.
        NOWHERE = 0,
        /// There is more: fetch the records and run the program again.
        GOES_ON = 1,
        ENDED = 2,
        /// The thread after which to continue has ended: start again.
        LOST = 3,
    }
}

memory! {
    /// Constants that the library sets before it loads a program.
    struct td_constants as Constants {
        /// The groups that it can be asked for: code for the others is dead.
        groups: u32,
        page_shift: u32,
    }

    /// What the library asks for. It is written before a pass.
    struct td_config as Config {
        groups: u32,
        /// 1: a record for every thread; 0: one for every process.
        threads: u32,
        /// Not 0: only children of this process, whose id is one of the reader's pid namespace.
        ppid: u32,
        /// 1: /proc adds the per-processor parts to the memory counters.
        rss_sum: u32,
        /// Possible processors.
        cpus: u32,
        /// 1: /proc shows the full names of workqueue workers (Linux 6.11).
        full_names: u32,
        /// Of memory and swap, for oom_score.
        total_pages: u64,
        tests_count: u32,
        /// 1: only tasks that used processor time since the handle's last pass with this set.
        changed: u32,
        /// Entries of `seen` with another epoch are outdated.
        changed_epoch: u32,
        /// The number of entries of `seen`, minus one.
        seen_mask: u32,
        /// The index in `View::security` of the Landlock domain, plus one; 0 if it is not wanted.
        landlock: u32,
        reserved: u32,
        /// Not 0: use the namespaces and root of this task instead of the reader's (Linux 6.2).
        as_task: u64,
        tests: [KernelTest; TESTS],
    }

    /// The state of a walk, in which the program finds its tasks itself.
    struct td_walk as Position {
        /// One of `state`.
        state: u32,
        /// The number of processes in `list`; 0 visits all. For threads, 1.
        listed: u32,
        /// The id visited last; for listed processes, the position in the list, from 1. 0 at the
        /// start.
        cursor: u32,
        /// Bytes of records in `scratch`.
        filled: u32,
        /// The number of entries of `tasks`.
        found: u32,
        /// The index of the next to be visited.
        next: u32,
        /// How often reading that one failed.
        attempts: u32,
        /// Tasks whose pid led to none when they were visited.
        gone: u32,
        /// For pid_idr_leaf().
        leaf_end: u32,
        /// The work of this run: a visit is one step, plus some for what it iterates over.
        steps: u32,
        /// Steps between two looks at the clock.
        check_every: u32,
        /// The steps at which to look at the clock next.
        next_check: u32,
        /// How long a run may keep RCU waiting; it ends when the clock shows more.
        max_run_ns: u64,
        run_start_ns: u64, longest_run_ns: u64,
        /// Of the pid IDR.
        root: u64,
        /// Of the thread list of a process.
        head: u64,
        node: u64,
        /// The task whose memory, files and namespaces are read: the visited one or, if that is the
        /// first thread of a process and has ended, another thread.
        live: u64,
        /// In the thread list: the next one that may be it.
        live_node: u64,
    } then Arrays {
        slots: [u64; BLOCK],
        /// The struct pid through which each task was found.
        pids: [u64; BLOCK],
        tasks: [u64; BLOCK],
        /// `cursor` once that task was visited.
        cursors: [u32; BLOCK],
        list: [u32; LISTED],
    }
}
