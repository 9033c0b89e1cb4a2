//! The meaning of the options of ps(1).

use taskdiag::Field;

use crate::ps::host::Modifiers;
use crate::ps::presets;

/// The options of ps(1) that were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PsOptions {
    /// Whether the command was called by the name `ps`.
    pub is_called_ps: bool,
    /// Whether any were given, so that the output is that of ps.
    pub is_given: bool,
    /// Whether any were given in BSD style.
    pub is_bsd: bool,
    /// Which processes to show.
    pub choice: Choice,
    /// The predefined format.
    pub preset: presets::Preset,
    /// Whether to show threads.
    pub threads: Threads,
    /// How a forest is drawn, if there is one.
    pub forest: Option<Branches>,
    /// The modifiers of cells.
    pub modifiers: Modifiers,
    /// Whether each page has a header.
    pub has_pages: bool,
    /// The number of characters on a line.
    pub columns: Option<usize>,
    /// The number of lines on a page.
    pub rows: Option<usize>,
    /// How often `w` or `-w` was given.
    pub wider: usize,
    /// An action other than listing processes.
    pub instead: Option<Instead>,
}

/// Which processes to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// All processes.
    pub all: bool,
    /// `-a`: processes on a terminal, except session leaders.
    pub others_on_terminals: bool,
    /// `-d`: all processes except session leaders.
    pub others: bool,
    /// `a`: processes on a terminal.
    pub on_terminals: bool,
    /// `x`: the caller's processes.
    pub own: bool,
    /// Only running processes.
    pub running: bool,
    /// All processes except the selected ones.
    pub is_negated: bool,
    /// Processes in lists.
    pub lists: Vec<List>,
    /// These processes, in this order.
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
    /// Those whose field is one of these numbers.
    OneOf(Field, Vec<u32>),
    /// The caller's terminal.
    OwnTerminal,
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
    /// A row for each process, followed by one for each of its threads.
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
    /// The width of a level, in characters.
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
    /// List the format specifiers.
    Specifiers,
    /// Print the version.
    Version,
}
