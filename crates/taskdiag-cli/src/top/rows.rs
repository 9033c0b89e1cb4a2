//! The rows of the table: their kinds, their identities, and the processes that they stand for.

use taskdiag::Identity;

use super::groups::{Name, CYCLE};
use crate::grouping::{Grouping, OF_PROCESSES};

/// The kind of the table's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    /// Processes.
    #[default]
    Processes,
    /// Processes below their parents.
    Tree,
    /// Threads.
    Threads,
    /// Sums of processes.
    By(&'static Grouping),
}

impl Rows {
    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Rows::Processes => "processes",
            Rows::Tree => "tree",
            Rows::Threads => "threads",
            Rows::By(by) => by.name,
        }
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Rows> {
        let others = [Rows::Processes, Rows::Tree, Rows::Threads];
        others.into_iter().chain(OF_PROCESSES.map(|(_, by, _)| Rows::By(by)))
    }

    /// Switches to these rows, or back to processes if they are already shown.
    pub fn toggled(self, rows: Rows) -> Rows {
        if self == rows {
            Rows::Processes
        } else {
            rows
        }
    }

    /// The next kind of sums.
    pub fn next_by(self) -> Rows {
        let Rows::By(by) = self else {
            return Rows::By(CYCLE[0]);
        };
        let next = CYCLE.iter().skip_while(|&&other| other != by).nth(1);
        next.map_or(Rows::Processes, |&by| Rows::By(by))
    }
}

/// Identifies a row across samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Id {
    /// A process or a thread.
    Task(Identity),
    /// A sum.
    Group(Name),
}

/// A process or thread that is the target of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The process.
    pub pid: u32,
    /// The thread; for a process, its leader.
    pub tid: u32,
    /// Its start time shows whether it is still the same.
    pub identity: Identity,
    /// Its name.
    pub name: Vec<u8>,
    /// The name of its user; empty if unknown.
    pub user: Vec<u8>,
    /// Its nice value, if known.
    pub nice: Option<i64>,
}
