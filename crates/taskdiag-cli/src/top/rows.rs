//! The rows of the table: their kinds, their identities, and the processes that they stand for.

use taskdiag::Identity;

use super::groups::{By, CYCLE};
use crate::choice::{distinct, unknown};
use crate::grouping::{Grouping, Name, OF_PROCESSES};
use crate::outcome::Failure;

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
    By(By),
}

const WORDS: [(&str, Rows); 3] = [
    ("processes", Rows::Processes),
    ("tree", Rows::Tree),
    ("threads", Rows::Threads),
];

impl Rows {
    /// Sums by these, which stay in memory: they are chosen once.
    pub fn by(by: &[&'static Grouping]) -> Rows {
        Rows::By(distinct(by.iter().copied()).leak())
    }

    /// Its name in settings.
    pub fn name(self) -> String {
        match self {
            Rows::By(by) => by.iter().map(|by| by.name).collect::<Vec<_>>().join(","),
            rows => WORDS
                .iter()
                .find(|(_, known)| *known == rows)
                .map_or("", |(word, _)| word)
                .to_owned(),
        }
    }

    pub fn named(name: &str) -> Result<Rows, Failure> {
        if let Some((_, rows)) = WORDS.iter().find(|(word, _)| *word == name) {
            return Ok(*rows);
        }
        let by = |name| {
            OF_PROCESSES
                .iter()
                .find(|(known, ..)| *known == name)
                .map(|(_, by, _)| *by)
        };
        let by: Option<Vec<_>> = name.split(',').map(by).collect();
        let known = WORDS
            .iter()
            .map(|(word, _)| *word)
            .chain(OF_PROCESSES.map(|(name, ..)| name));
        by.map(|by| Rows::by(&by))
            .ok_or_else(|| unknown("kind of rows", name, known))
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
    Group(Vec<Name>),
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
    pub name: Vec<u8>,
    /// The name of its user; empty if unknown.
    pub user: Vec<u8>,
    /// Its nice value, if known.
    pub nice: Option<i64>,
}
