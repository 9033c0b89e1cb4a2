//! Why a value is missing.

use std::fmt;

/// The reason for which a task has no value for a field. A missing value is never 0 and never an empty string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Absent {
    /// The query did not ask for the field.
    NotAsked = 1,
    /// This kernel, or the source that answered, can't give it.
    Unsupported = 2,
    /// The caller may not see it (`EACCES`, `EPERM`).
    Denied = 3,
    /// The task has no memory of its own: a kernel thread, a zombie, a thread-group leader that ended before its threads.
    NoMemory = 4,
    /// The task ended, or lost the thing asked for, while it was being looked at.
    Gone = 5,
    /// Only a part was to be had.
    Truncated = 6,
    /// It would have taken longer than the query's [`Budget`](crate::budget::Budget) allows, or be dearer for a single process.
    OverBudget = 7,
    /// The process did not answer: it held what reading it takes for longer than [`Query::patience`](crate::query::Query::patience).
    NoAnswer = 8,
}

impl Absent {
    /// The reason in a few words, as the command line prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Absent::NotAsked => "not asked",
            Absent::Unsupported => "unsupported",
            Absent::Denied => "denied",
            Absent::NoMemory => "no memory",
            Absent::Gone => "gone",
            Absent::Truncated => "truncated",
            Absent::OverBudget => "over budget",
            Absent::NoAnswer => "no answer",
        }
    }

    #[doc(hidden)]
    pub fn from_wire(reason: u16) -> Absent {
        match reason {
            1 => Absent::NotAsked,
            3 => Absent::Denied,
            4 => Absent::NoMemory,
            5 => Absent::Gone,
            6 => Absent::Truncated,
            7 => Absent::OverBudget,
            8 => Absent::NoAnswer,
            _ => Absent::Unsupported,
        }
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Absent {}
