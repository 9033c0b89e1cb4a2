//! Why a value is missing.

crate::named_enum! {
    /// Why a task has no value for a field. A missing value is never 0 and never an empty string.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    #[repr(u16)]
    pub enum Absent {
        /// The query did not ask for the field.
        NotAsked = 1 => "not asked",
        /// This kernel, or the source that answered, does not have it.
        Unsupported = 2 => "unsupported",
        /// The caller may not see it (`EACCES`, `EPERM`).
        Denied = 3 => "denied",
        /// The task has no memory: it is a kernel thread, a zombie, or a thread that has ended
        /// before others of its process.
        NoMemory = 4 => "no memory",
        /// While it was being read, the task ended or lost what was asked for.
        Gone = 5 => "gone",
        /// Only a part could be read.
        Truncated = 6 => "truncated",
        /// Reading it would take longer than the query's [`Budget`](crate::budget::Budget) allows.
        OverBudget = 7 => "over budget",
        /// The process could not be read within [`Query::patience`](crate::query::Query::patience):
        /// it held a lock that reading takes.
        NoAnswer = 8 => "no answer",
        /// Reading it may wait for a process or a file system, so a thread of its own would have to
        /// do it, and none can be started (`EAGAIN`, `EPERM`: limits of threads, seccomp(2)).
        NoThread = 9 => "no thread",
        /// Nobody counts it, or there was no room to count it for this process.
        NotCounted = 10 => "not counted",
        /// Such a row has no such value: a process without a terminal has no foreground process
        /// group, a UNIX socket no port, a working directory no descriptor.
        NotApplicable = 11 => "none",
    }
    pub(crate) const EVERY;
    /// The reason in a few words, as the command line prints it.
    pub fn as_str;
    impl Display;
}

/// A value, or why there is none.
pub type Known<T> = Result<T, Absent>;

impl Absent {
    /// The reasons that a caller may be able to remove. The others are normal: kernel threads have
    /// no memory, and tasks end.
    pub const REMOVABLE: [Absent; 7] = [
        Absent::Denied,
        Absent::Unsupported,
        Absent::Truncated,
        Absent::OverBudget,
        Absent::NoAnswer,
        Absent::NoThread,
        Absent::NotCounted,
    ];

    /// The reason with this number in a record. A number unknown to this version is `Unsupported`.
    #[doc(hidden)]
    pub fn from_wire(reason: u16) -> Absent {
        let found = Absent::EVERY.into_iter().find(|&known| known as u16 == reason);
        found.unwrap_or(Absent::Unsupported)
    }
}

impl std::error::Error for Absent {}
