//! What processes did in a period of a recording.

use std::collections::HashMap;

use taskdiag::{Identity, Snapshot, Task};

/// What one process did in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// When it was last seen, in nanoseconds since boot.
    pub last_ns: u64,
    /// The processor time used before the period: its own, and that of its children that ended.
    pub before_ns: [u64; 2],
    /// The length of the period, in nanoseconds.
    pub of_ns: u64,
}

/// Processes that lived between two samples, and moved something to or from other machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// How many there are.
    pub count: u64,
    /// What they sent and received, in bytes.
    pub moved: u64,
    /// Events that were lost or not recorded: there may be more such processes.
    pub left_out: u64,
}

/// What all processes did in a period.
#[derive(Debug, Default)]
pub struct Span {
    /// The length of the period, in nanoseconds.
    pub of_ns: u64,
    /// Those that are in no sample.
    pub unseen: Unseen,
    lives: HashMap<Identity, (u64, [u64; 2])>,
}

impl Span {
    /// What a process did.
    pub fn life(&self, process: Identity) -> Option<Life> {
        let &(last_ns, before_ns) = self.lives.get(&process)?;
        Some(Life {
            last_ns,
            before_ns,
            of_ns: self.of_ns,
        })
    }

    /// Adds the processes of a sample. `before_ns` is the time of the previous sample.
    pub fn add(&mut self, snapshot: &Snapshot, now_ns: u64, before_ns: Option<u64>) {
        for task in snapshot.tasks() {
            let identity = Identity::of(task.record().header());
            // If it started after the previous sample, all its processor time belongs to the
            // period.
            let is_new = before_ns.is_some_and(|before_ns| identity.has_started_since(before_ns));
            let first = || if is_new { [0; 2] } else { used_ns(&task) };
            self.lives.entry(identity).or_insert_with(|| (0, first())).0 = now_ns;
        }
    }
}

/// The processor time of a process, and that of its children that ended. 0 if it was not recorded;
/// then no percentage is shown.
fn used_ns(task: &Task<'_>) -> [u64; 2] {
    let sum =
        |one: Result<u64, _>, other: Result<u64, taskdiag::Absent>| one.unwrap_or(0).saturating_add(other.unwrap_or(0));
    [
        sum(task.utime_ns(), task.stime_ns()),
        sum(task.cutime_ns(), task.cstime_ns()),
    ]
}
