//! Queries: which fields of which tasks.

use std::time::Duration;

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::field::{has_group, with_made_of, Field, Fields, Group, Groups};
use crate::filter::Filter;

/// Which tasks a query is about. Ids are those of the caller's pid namespace.
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
    /// The descendants of one process: its children, their children, and so on, as one pass finds
    /// them.
    DescendantsOf(u32),
    /// The processes in [`Query::pids`].
    Listed,
    /// Every thread of the processes in [`Query::pids`].
    ThreadsOfListed,
}

impl Scope {
    /// Whether the answer has a row for each thread rather than for each process.
    pub fn is_threads(self) -> bool {
        matches!(self, Scope::Threads | Scope::ThreadsOf(_) | Scope::ThreadsOfListed)
    }

    /// Whether it is about the processes in [`Query::pids`].
    pub fn is_listed(self) -> bool {
        matches!(self, Scope::Listed | Scope::ThreadsOfListed)
    }
}

/// Asks for some fields of some tasks.
///
/// Only the fields that are asked for are read, so the choice of fields decides how much work the
/// kernel does.
///
/// ```
/// # mod taskdiag { pub use taskdiag_core::{field::Field, filter::{Filter, ParseError}, query::Query}; }
/// use taskdiag::{Field, Filter, Query};
///
/// let query = Query::processes()
///     .fields(Field::Comm | Field::RssBytes)
///     .filter(Filter::parse("uid == 0 and rss_bytes > 100M")?);
/// # Ok::<(), taskdiag::ParseError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Query {
    /// Which tasks.
    #[doc(hidden)]
    pub scope: Scope,
    /// The processes of [`Scope::Listed`] and [`Scope::ThreadsOfListed`], ascending, each once.
    #[doc(hidden)]
    pub pids: Vec<u32>,
    /// Which fields.
    #[doc(hidden)]
    pub fields: Fields,
    /// Which tasks of the scope.
    #[doc(hidden)]
    pub filter: Option<Filter>,
    /// Only tasks that have changed: see [`Query::only_changed`].
    #[doc(hidden)]
    pub changed: bool,
    /// What reading [`Group::Rollup`] may cost, if the query asks for it.
    #[doc(hidden)]
    pub budget: Budget,
    /// The patience of this query. `None`: that of the handle.
    #[doc(hidden)]
    pub patience: Option<Duration>,
}

impl Query {
    /// Asks about every process.
    pub fn processes() -> Query {
        Query::new(Scope::Processes)
    }

    /// Asks about every thread of every process.
    pub fn threads() -> Query {
        Query::new(Scope::Threads)
    }

    /// Asks about one process. If it does not exist the query fails with
    /// [`NoSuchTask`](crate::error::ErrorKind::NoSuchTask).
    pub fn process(pid: u32) -> Query {
        Query::new(Scope::Process(pid))
    }

    /// Asks about the threads of one process. If it does not exist the query fails with
    /// [`NoSuchTask`](crate::error::ErrorKind::NoSuchTask).
    pub fn threads_of(pid: u32) -> Query {
        Query::new(Scope::ThreadsOf(pid))
    }

    /// Asks about the children of one process, which may have none. If the process does not exist
    /// the query fails with [`NoSuchTask`](crate::error::ErrorKind::NoSuchTask).
    pub fn children_of(pid: u32) -> Query {
        Query::new(Scope::ChildrenOf(pid))
    }

    /// Asks about the children of one process, their children, and so on. If the process does not
    /// exist the query fails with [`NoSuchTask`](crate::error::ErrorKind::NoSuchTask).
    pub fn descendants_of(pid: u32) -> Query {
        Query::new(Scope::DescendantsOf(pid))
    }

    /// Asks about the listed processes. [`Snapshot::missing`](crate::snapshot::Snapshot::missing)
    /// lists those that do not exist.
    pub fn these(pids: impl IntoIterator<Item = u32>) -> Query {
        Query::new(Scope::Listed).with_pids(pids)
    }

    /// Asks about the threads of some processes.
    /// [`Snapshot::missing`](crate::snapshot::Snapshot::missing) has the processes that do not
    /// exist.
    pub fn threads_of_these(pids: impl IntoIterator<Item = u32>) -> Query {
        Query::new(Scope::ThreadsOfListed).with_pids(pids)
    }

    fn with_pids(mut self, pids: impl IntoIterator<Item = u32>) -> Query {
        self.pids = pids.into_iter().collect();
        self.pids.sort_unstable();
        self.pids.dedup();
        self
    }

    /// Asks for `fields`, in addition to [`Field::Pid`] and [`Field::Tid`], which every answer has.
    pub fn fields(mut self, fields: impl Into<Fields>) -> Query {
        self.fields = fields.into() | Field::Pid | Field::Tid;
        self
    }

    /// Asks only about tasks for which `filter` is true. A second filter narrows the first. The
    /// answer also has the fields that the filter reads.
    pub fn filter(mut self, filter: Filter) -> Query {
        self.filter = Some(match self.filter {
            Some(before) => before.and(filter),
            None => filter,
        });
        self
    }

    /// Asks only about tasks that have used processor time, or have started, since the handle was
    /// last asked for changed tasks. The first such answer has all tasks.
    pub fn only_changed(mut self) -> Query {
        self.changed = true;
        self
    }

    /// Limits what reading [`Group::Rollup`] may cost: see [`Budget`].
    pub fn budget(mut self, budget: Budget) -> Query {
        self.budget = budget;
        self
    }

    /// How long one system call about a process may make no progress. By holding a lock, a process
    /// can make it take for ever. Values that could not be read in this time are
    /// [`Absent::NoAnswer`](crate::absent::Absent::NoAnswer). The handle's default is 0.2 seconds.
    pub fn patience(mut self, patience: Duration) -> Query {
        self.patience = Some(patience);
        self
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Query {
    /// Asks about the tasks of a scope. Without a call of [`fields`](Query::fields), it asks for
    /// [`Field::Pid`] and [`Field::Tid`].
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

    /// Adds fields that the library needs for its own use.
    pub fn with_fields_read(mut self, fields: impl Into<Fields>) -> Query {
        self.fields |= fields.into();
        self
    }

    /// All fields that must be read: those asked for, those that select the tasks, and those that
    /// derived fields among them are made of.
    pub fn fields_read(&self) -> Fields {
        let mut fields = self.fields;
        if let Some(filter) = &self.filter {
            fields |= filter.fields();
        }
        if self.changed {
            fields |= Field::StartNs | Field::UtimeNs | Field::StimeNs;
        }
        if Groups::of(fields).contains(Group::Rollup) {
            fields |= self.budget.fields();
        }
        with_made_of(fields)
    }
}

/// A query as the way through the library has it: what follows from its fields and its filter is
/// worked out once.
#[derive(Clone, Debug)]
pub struct Preparation {
    /// The query that sources get: its fields are all that must be read, its filter is the part
    /// that these decide.
    pub query: Query,
    /// The fields of the answer.
    pub fields: Fields,
    /// The groups that are added after the sources have answered, in this order, each with the part
    /// of the filter that it completes.
    pub late: Vec<(Group, Option<Filter>)>,
    /// How long one system call about a process may make no progress.
    pub patience: Duration,
}

impl Preparation {
    /// `patience` counts unless the query has its own. `is_last`: no other query will follow, so no
    /// earlier value is there to be used. Fails for process 0, which does not exist: to BPF
    /// iterators, 0 means every task.
    pub fn new(query: &Query, patience: Duration, is_last: bool) -> Result<Preparation> {
        if let Scope::Process(0) | Scope::ThreadsOf(0) | Scope::ChildrenOf(0) = query.scope {
            return Err(Error::no_such_process(0));
        }
        let mut query = query.clone();
        if is_last {
            query.budget.max_age = Duration::ZERO;
        }
        query.fields = query.fields_read();
        let mut late = Vec::new();
        // The last one first: the filter of each is without those that come later.
        for group in [Group::Rollup, Group::Derived] {
            if !has_group(query.fields, group) {
                continue;
            }
            let completed = query.filter.take_if(|filter| has_group(filter.fields(), group));
            if let Some(filter) = &completed {
                query.filter = filter.part_without(|field| field.group() == group);
                // Derived values cost little: what is open is counted with all of them. Page tables are
                // not walked for tasks that the rest leaves open.
                if group == Group::Derived {
                    query.filter = query.filter.map(Filter::into_part);
                }
            }
            late.insert(0, (group, completed));
        }
        Ok(Preparation {
            fields: query.fields,
            patience: query.patience.unwrap_or(patience),
            query,
            late,
        })
    }
}
