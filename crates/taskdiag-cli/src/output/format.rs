//! The formats of output.

use clap::{Args, ValueEnum};

use super::csv;

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
    /// members of lists. `safe`: a text that a spreadsheet would take for a formula begins with an
    /// apostrophe
    #[arg(long, value_name = "TEXTS", num_args = 0..=1, require_equals = true, default_missing_value = "exact")]
    csv: Option<Texts>,
    /// A Parquet file on standard output: missing values are null, with a reason in "absent"
    #[cfg(feature = "arrow")]
    #[arg(long)]
    parquet: bool,
    /// A stream of Arrow's IPC on standard output, with the same columns
    #[cfg(feature = "arrow")]
    #[arg(long)]
    arrow: bool,
}

/// The texts of CSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Texts {
    /// As they are
    Exact,
    /// Without formulas of spreadsheets
    Safe,
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
    /// Columns of bytes.
    #[cfg(feature = "arrow")]
    Columnar(Columnar),
}

/// A form of columns.
#[cfg(feature = "arrow")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columnar {
    /// A file of Parquet.
    Parquet,
    /// A stream of Arrow.
    Arrow,
}

impl Machine {
    /// Whether rows can be written without an end.
    pub fn is_endless(self) -> bool {
        match self {
            Machine::Jsonl | Machine::Csv => true,
            Machine::Json => false,
            #[cfg(feature = "arrow")]
            Machine::Columnar(form) => form == Columnar::Arrow,
        }
    }
}

impl Formats {
    /// The format that the options choose.
    pub fn format(self) -> Format {
        match self {
            Formats { json: true, .. } => Format::Machine(Machine::Json),
            Formats { jsonl: true, .. } => Format::Machine(Machine::Jsonl),
            Formats { csv: Some(texts), .. } => {
                csv::choose_safe_texts(texts == Texts::Safe);
                Format::Machine(Machine::Csv)
            }
            #[cfg(feature = "arrow")]
            Formats { parquet: true, .. } => Format::Machine(Machine::Columnar(Columnar::Parquet)),
            #[cfg(feature = "arrow")]
            Formats { arrow: true, .. } => Format::Machine(Machine::Columnar(Columnar::Arrow)),
            _ => Format::Table,
        }
    }
}
