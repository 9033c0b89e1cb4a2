//! What the options of ps(1) mean.

use crate::ps::host::Modifiers;
use crate::ps::presets;

/// The options of ps(1) that were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meant {
    /// Whether the command was called by the name `ps`.
    pub is_called_ps: bool,
    /// Whether there were any, so that the output is that of ps.
    pub is_given: bool,
    /// Whether there were any in BSD style.
    pub is_bsd: bool,
    /// Which processes.
    pub choice: Choice,
    /// Which predefined format.
    pub preset: presets::Preset,
    /// Threads.
    pub threads: Threads,
    /// How a forest is drawn, if there is one.
    pub forest: Option<Branches>,
    /// The modifiers of cells.
    pub modifiers: Modifiers,
    /// Headers on each page.
    pub has_pages: bool,
    /// How many characters a line has.
    pub columns: Option<usize>,
    /// How many lines a page has.
    pub rows: Option<usize>,
    /// How often `w` or `-w` was given.
    pub wider: usize,
    /// Something else than a listing.
    pub instead: Option<Instead>,
}

/// Which processes are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// All.
    pub all: bool,
    /// `-a`: on a terminal, leaders of sessions excepted.
    pub others_on_terminals: bool,
    /// `-d`: leaders of sessions excepted.
    pub others: bool,
    /// `a`: on a terminal.
    pub on_terminals: bool,
    /// `x`: the caller's.
    pub own: bool,
    /// Only those that run.
    pub running: bool,
    /// All but those that are chosen.
    pub is_negated: bool,
    /// Those in lists.
    pub lists: Vec<List>,
    /// These, in this order.
    pub quick: Vec<u32>,
}

impl Choice {
    /// Whether no option selects processes. `r` and `-N` only change what others select.
    pub fn is_empty(&self) -> bool {
        let unconditional = Choice {
            running: self.running,
            is_negated: self.is_negated,
            ..Choice::default()
        };
        *self == unconditional
    }
}

/// An option that selects processes by a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// Process ids.
    Pids(Vec<u32>),
    /// Process ids of parents.
    Parents(Vec<u32>),
    /// Session ids.
    Sessions(Vec<u32>),
    /// Effective users.
    Users(Vec<u32>),
    /// Real users.
    RealUsers(Vec<u32>),
    /// Effective groups.
    Groups(Vec<u32>),
    /// Real groups.
    RealGroups(Vec<u32>),
    /// Terminals as device numbers, 0 for none.
    Terminals(Vec<u32>),
    /// The caller's terminal.
    OwnTerminal,
    /// Names.
    Names(Vec<String>),
}

/// Whether threads are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// Processes only.
    #[default]
    No,
    /// A row for each thread, none for processes.
    Rows,
    /// A row for each process, and below it one for each of its threads.
    Below,
}

/// How a forest is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branches {
    /// With ASCII characters.
    Drawn,
    /// By indentation.
    Indented,
}

impl Branches {
    /// How many characters a level takes.
    pub fn width(self) -> usize {
        match self {
            Branches::Drawn => 4,
            Branches::Indented => 2,
        }
    }
}

/// What to do instead of listing processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// The format specifiers are listed.
    Specifiers,
    /// The version is printed.
    Version,
}
