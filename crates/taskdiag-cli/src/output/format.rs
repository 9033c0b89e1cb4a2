//! The formats of output.

use clap::Args;

/// The options that choose a format.
#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
pub struct Formats {
    /// One JSON document: rows, sources, counters. A missing value has no key but a reason under "absent"
    #[arg(long)]
    json: bool,
    /// The rows alone as JSON, one a line
    #[arg(long)]
    jsonl: bool,
    /// Comma-separated values (RFC 4180): missing values are empty cells, members of lists have a space between them
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
    /// How the rows are to be written.
    pub fn format(self) -> Format {
        self.formats.format()
    }
}

/// How the rows are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An aligned table.
    Table,
    /// For programs.
    Machine(Machine),
}

/// How rows are written for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// One document.
    Json,
    /// A document a row.
    Jsonl,
    /// Comma-separated values.
    Csv,
}

impl Formats {
    /// How the rows are to be written.
    pub fn format(self) -> Format {
        match self {
            Formats { json: true, .. } => Format::Machine(Machine::Json),
            Formats { jsonl: true, .. } => Format::Machine(Machine::Jsonl),
            Formats { csv: true, .. } => Format::Machine(Machine::Csv),
            _ => Format::Table,
        }
    }
}
