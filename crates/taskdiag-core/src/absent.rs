//! Why a value is missing.

use std::fmt;

/// Why a task has no value for a field. A missing value is never 0 and never an empty string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u16)]
pub enum Absent {
    /// The query did not ask for the field.
    NotAsked = 1,
    /// This kernel, or the source that answered, does not have it.
    Unsupported = 2,
    /// The caller may not see it (`EACCES`, `EPERM`).
    Denied = 3,
    /// The task has no memory of its own: it is a kernel thread, a zombie, or a thread-group leader
    /// that ended before its threads.
    NoMemory = 4,
    /// The task ended, or lost the thing asked for, while it was being read.
    Gone = 5,
    /// Only a part could be read.
    Truncated = 6,
    /// Reading it would take longer than the query's [`Budget`](crate::budget::Budget) allows.
    OverBudget = 7,
    /// The process did not let itself be read within
    /// [`Query::patience`](crate::query::Query::patience): it held a lock that reading takes.
    NoAnswer = 8,
}

/// A value, or why there is none.
pub type Known<T> = Result<T, Absent>;

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

    /// The reason with this number in a record. A number from a newer writer is `Unsupported`.
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
        f.pad(self.as_str())
    }
}

impl std::error::Error for Absent {}
