//! The identity of a task, by which tasks of two answers are compared.
//!
//! The kernel reuses the ids of tasks, so a task's start time is part of its identity. `/proc` has
//! the start time in whole clock ticks and BPF has it in nanoseconds, and the source can change
//! from one answer to the next. So identities compare ticks. No other code compares tasks.

use crate::record::Header;

/// A clock tick of `/proc` in nanoseconds (`USER_HZ` is 100 on all supported machines).
pub const TICK_NS: u64 = 10_000_000;

/// Which process or thread it is: its id and its start time. Two tasks that had the same id at
/// different times have different identities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    tid: u32,
    start_ticks: u64,
}

impl Identity {
    /// The thread id; for a process, the process id.
    pub fn tid(self) -> u32 {
        self.tid
    }

    /// When it started, in clock ticks of 10 ms since boot, as `starttime` of proc_pid_stat(5).
    pub fn start_ticks(self) -> u64 {
        self.start_ticks
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Identity {
    /// The task that a record describes. The query must have asked for
    /// [`Field::StartNs`](crate::field::Field::StartNs).
    pub fn of(header: &Header) -> Identity {
        Identity::new(header.tid.get(), header.start_ns.get())
    }

    /// The task with this id and this start time since boot.
    pub fn new(tid: u32, start_ns: u64) -> Identity {
        Identity {
            tid,
            start_ticks: start_ns / TICK_NS,
        }
    }

    /// Whether it started at this time since boot or later. A task that started in the same clock
    /// tick counts as later.
    pub fn has_started_since(self, boot_ns: u64) -> bool {
        // A start before the zero of the clock is a number that is too large for a time.
        self.start_ticks >= boot_ns / TICK_NS && self.start_ticks <= i64::MAX as u64 / TICK_NS
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::native_endian::{U32, U64};

    use super::*;

    fn identity(tid: u32, start_ns: u64) -> Identity {
        Identity::of(&Header {
            pid: U32::new(tid),
            tid: U32::new(tid),
            start_ns: U64::new(start_ns),
            ..Header::default()
        })
    }

    /// Check that both sources give a task the same identity, and that another id or tick gives
    /// another identity.
    #[test]
    fn tasks_are_the_same_in_whole_ticks() {
        let (by_bpf, by_procfs) = (identity(7, 1_441_868_994_326), identity(7, 1_441_860_000_000));
        assert_eq!(by_bpf, by_procfs);
        assert_ne!(by_bpf, identity(8, 1_441_868_994_326));
        assert_ne!(by_bpf, identity(7, 1_441_870_000_000));
        assert_ne!(by_procfs, identity(7, 1_441_859_999_999));
    }

    /// Check that a task that started in the same tick as a moment counts as started after it,
    /// whichever source gave the start time.
    #[test]
    fn starts_are_compared_in_whole_ticks() {
        for start_ns in [1_441_868_994_326, 1_441_860_000_000] {
            let task = identity(7, start_ns);
            assert!(task.has_started_since(1_441_869_999_999) && task.has_started_since(0));
            assert!(!task.has_started_since(1_441_870_000_000));
        }
        // Older than the zero of the reader's time namespace.
        assert!(!Identity::new(7, -10_000_000_i64 as u64).has_started_since(0));
    }
}
