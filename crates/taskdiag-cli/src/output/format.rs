//! The formats of output.

use clap::Args;

/// The options that choose a format.
#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
pub struct Formats {
    /// One JSON document: rows, sources, counters. A missing value has no key, but a reason under
    /// "absent"
    #[arg(long)]
    json: bool,
    /// Only the rows, as one JSON object per line
    #[arg(long)]
    jsonl: bool,
    /// Comma-separated values (RFC 4180): missing values are empty cells; spaces separate the
    /// members of lists
    #[arg(long)]
    csv: bool,
}

/// Options about the output of rows that are not tasks.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    #[command(flatten)]
    formats: Formats,
    /// Exact numbers in tables: bytes and nanoseconds
    #[arg(long)]
    pub bytes: bool,
    /// No header above tables and CSV
    #[arg(long, visible_alias = "no-headers")]
    pub no_header: bool,
}

impl OutputOptions {
    /// The format that the options choose.
    pub fn format(self) -> Format {
        self.formats.format()
    }
}

/// The format of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An aligned table.
    Table,
    /// Output for programs.
    Machine(Machine),
}

/// The format of rows for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// One JSON document.
    Json,
    /// One document for each row.
    Jsonl,
    /// Comma-separated values.
    Csv,
}

impl Formats {
    /// The format that the options choose.
    pub fn format(self) -> Format {
        match self {
            Formats { json: true, .. } => Format::Machine(Machine::Json),
            Formats { jsonl: true, .. } => Format::Machine(Machine::Jsonl),
            Formats { csv: true, .. } => Format::Machine(Machine::Csv),
            _ => Format::Table,
        }
    }
}
