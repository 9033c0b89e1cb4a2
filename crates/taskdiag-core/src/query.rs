//! What is asked.

use std::time::Duration;

use crate::budget::Budget;
use crate::field::{Field, Fields, Group};
use crate::filter::Filter;

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
    /// The children of one process, their children, and so on, as they are found in one pass.
    DescendantsOf(u32),
    /// The processes of [`Query::pids`].
    Listed,
    /// Every thread of these.
    ThreadsOfListed,
}

impl Scope {
    /// Whether the answer has a row for each thread rather than for each process.
    pub fn is_threads(self) -> bool {
        matches!(self, Scope::Threads | Scope::ThreadsOf(_) | Scope::ThreadsOfListed)
    }

    /// Whether it is about the processes of [`Query::pids`].
    pub fn is_listed(self) -> bool {
        matches!(self, Scope::Listed | Scope::ThreadsOfListed)
    }
}

/// A question: which fields of which tasks.
///
/// The fields decide what the kernel is asked to do: what is not asked for is not read.
///
/// ```
/// # mod taskdiag { pub use taskdiag_core::{field::Field, query::Query}; }
/// use taskdiag::{Field, Query};
///
/// let query = Query::processes().fields(Field::Pid | Field::Comm | Field::RssBytes);
/// ```
#[derive(Clone, Debug)]
pub struct Query {
    /// Which tasks.
    pub scope: Scope,
    /// The processes of [`Scope::Listed`] and [`Scope::ThreadsOfListed`], ascending, each once.
    pub pids: Vec<u32>,
    /// Which fields.
    pub fields: Fields,
    /// Which of the tasks.
    pub filter: Option<Filter>,
    /// Only tasks that have used processor time since this handle was last asked for changed tasks, or started since. The
    /// first answer has all.
    pub changed: bool,
    /// How much reading [`Group::Rollup`] may cost, if the query asks for it.
    pub budget: Budget,
    /// How long a process may keep its reader waiting in one system call, which some can for ever. What it holds is
    /// [`Absent::NoAnswer`](crate::absent::Absent::NoAnswer) then. Unless it is said here, as the handle was told.
    pub patience: Option<Duration>,
}

impl Query {
    /// Asks about what `scope` says. Until [`fields`](Query::fields) are named, that is [`Field::Pid`] and [`Field::Tid`].
    pub fn new(scope: Scope) -> Query {
        Query {
            scope,
            pids: Vec::new(),
            fields: Field::Pid | Field::Tid,
            filter: None,
            changed: false,
            budget: Budget::default(),
            patience: None,
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

    /// Asks about all that descends from one process.
    pub fn descendants_of(pid: u32) -> Query {
        Query::new(Scope::DescendantsOf(pid))
    }

    /// Asks about some processes. Those that are not there are in [`Snapshot::missing`](crate::snapshot::Snapshot::missing).
    pub fn these(pids: impl IntoIterator<Item = u32>) -> Query {
        Query::new(Scope::Listed).with_pids(pids)
    }

    /// Asks about the threads of some processes.
    pub fn threads_of_these(pids: impl IntoIterator<Item = u32>) -> Query {
        Query::new(Scope::ThreadsOfListed).with_pids(pids)
    }

    fn with_pids(mut self, pids: impl IntoIterator<Item = u32>) -> Query {
        self.pids = pids.into_iter().collect();
        self.pids.sort_unstable();
        self.pids.dedup();
        self
    }

    /// Asks for these fields, and [`Field::Pid`] and [`Field::Tid`], which every answer has.
    pub fn fields(mut self, fields: impl Into<Fields>) -> Query {
        self.fields = fields.into() | Field::Pid | Field::Tid;
        self
    }

    /// Asks only about tasks that the filter is true of. Its fields are in the answer as well.
    pub fn filter(mut self, filter: Filter) -> Query {
        self.filter = Some(match self.filter {
            Some(before) => before.and(filter),
            None => filter,
        });
        self
    }

    /// Asks only about tasks that have changed: see [`Query::changed`].
    pub fn only_changed(mut self) -> Query {
        self.changed = true;
        self
    }

    /// How much reading [`Group::Rollup`] may cost: see [`Budget`].
    pub fn budget(mut self, budget: Budget) -> Query {
        self.budget = budget;
        self
    }

    /// How long a process may keep its reader waiting: see [`Query::patience`].
    pub fn patience(mut self, patience: Duration) -> Query {
        self.patience = Some(patience);
        self
    }

    /// The same with other fields besides, which only the library looks at.
    #[doc(hidden)]
    pub fn with_fields_read(mut self, fields: impl Into<Fields>) -> Query {
        self.fields |= fields.into();
        self
    }

    /// All fields that have to be read: those asked for, and those that decide which tasks are meant.
    #[doc(hidden)]
    pub fn fields_read(&self) -> Fields {
        let mut fields = self.fields;
        if let Some(filter) = &self.filter {
            fields |= filter.fields();
        }
        if self.changed {
            fields |= Field::StartNs | Field::UtimeNs | Field::StimeNs;
        }
        if fields.groups().contains(Group::Rollup) {
            fields |= self.budget.fields();
        }
        fields
    }
}
