//! What is asked.

use crate::field::{Field, Fields};

/// Which tasks are asked about. Ids are those of the caller's pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every process.
    Processes,
    /// Every thread of every process.
    Threads,
    /// One process.
    Process(u32),
    /// Every thread of one process.
    ThreadsOf(u32),
    /// The children of one process.
    ChildrenOf(u32),
}

impl Scope {
    /// Whether the answer has a row for each thread rather than for each process.
    pub fn is_threads(self) -> bool {
        matches!(self, Scope::Threads | Scope::ThreadsOf(_))
    }
}

/// A question: which fields of which tasks.
///
/// The fields decide what the kernel is asked to do: what is not asked for is not read.
///
/// ```
/// use taskdiag::{Field, Query};
///
/// let query = Query::processes().fields(Field::Pid | Field::Comm | Field::RssBytes);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Which tasks.
    pub scope: Scope,
    /// Which fields.
    pub fields: Fields,
}

impl Query {
    /// Asks about what `scope` says. Until [`fields`](Query::fields) are named, that is [`Field::Pid`] and [`Field::Tid`].
    pub fn new(scope: Scope) -> Query {
        Query {
            scope,
            fields: Field::Pid | Field::Tid,
        }
    }

    /// Asks about every process.
    pub fn processes() -> Query {
        Query::new(Scope::Processes)
    }

    /// Asks about every thread of every process.
    pub fn threads() -> Query {
        Query::new(Scope::Threads)
    }

    /// Asks about one process.
    pub fn process(pid: u32) -> Query {
        Query::new(Scope::Process(pid))
    }

    /// Asks about the threads of one process.
    pub fn threads_of(pid: u32) -> Query {
        Query::new(Scope::ThreadsOf(pid))
    }

    /// Asks about the children of one process.
    pub fn children_of(pid: u32) -> Query {
        Query::new(Scope::ChildrenOf(pid))
    }

    /// Asks for these fields, and [`Field::Pid`] and [`Field::Tid`], which every answer has.
    pub fn fields(mut self, fields: impl Into<Fields>) -> Query {
        self.fields = fields.into() | Field::Pid | Field::Tid;
        self
    }
}
