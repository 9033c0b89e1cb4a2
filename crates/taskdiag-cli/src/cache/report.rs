//! Filters and sorts rows, or writes them as they arrive.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use taskdiag::pagecache::{ByteRange, Quantity, Source};
use taskdiag::Value;

use super::row::{compare, Column, Entry, OwnedEntry, SortKey};
use crate::choice::Chosen;
use crate::listing::{Format, Machine};
use crate::output::document::{counts, Document, Head};
use crate::output::table::{terminal_width, Align, Table};
use crate::output::{csv, json, people, text, Absences, Key as _, Output};

/// How many rows of a table are written together. The columns of later rows can only be wider.
const PIECE: usize = 1000;

/// The longest time that a row waits to be written.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// How many rows beyond the limit are kept before they are sorted and the excess is dropped.
const SLACK: usize = 4096;

/// How to write sizes in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Rounded, for people.
    People,
    /// Bytes.
    Bytes,
    /// Pages.
    Pages,
}

/// Which rows to write, and how.
#[derive(Clone, Debug)]
pub struct Style {
    /// Table, JSON or CSV.
    pub format: Format,
    /// The chosen columns.
    pub chosen: Chosen<Column>,
    /// Whether rows are sums of files.
    pub sums: bool,
    /// How to write sizes in tables.
    pub unit: Unit,
    /// Whether there is a header.
    pub header: bool,
    /// The source.
    pub source: Source,
    /// The part of each file that was asked about.
    pub range: ByteRange,
    /// The sort keys. If empty, rows are written as they arrive.
    pub sort: Vec<SortKey>,
    /// The maximum number of rows.
    pub limit: usize,
    /// Only rows with at least this much cached.
    pub min_cached: u64,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileColumn {
    /// A value with a heading.
    Value(&'static str, Column),
    /// The cached part of the file.
    Percent,
    /// The number of files in a sum.
    Count,
}

/// How much of several files is cached, in total.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cached {
    /// The number of files.
    pub files: u64,
    /// The number of files for which it is known.
    pub known: u64,
    /// The cached bytes of those.
    pub bytes: u64,
}

/// The table without `-o`.
const TABLE: [FileColumn; 9] = [
    FileColumn::Value("CACHED", Column::Bytes(Quantity::Cached)),
    FileColumn::Percent,
    FileColumn::Value("DIRTY", Column::Bytes(Quantity::Dirty)),
    FileColumn::Value("WRITEBACK", Column::Bytes(Quantity::Writeback)),
    FileColumn::Value("EVICTED", Column::Bytes(Quantity::Evicted)),
    FileColumn::Value("RECENTLY", Column::Bytes(Quantity::RecentlyEvicted)),
    FileColumn::Count,
    FileColumn::Value("SIZE", Column::Bytes(Quantity::Size)),
    FileColumn::Value("PATH", Column::Path),
];

impl FileColumn {
    fn of(column: Column) -> FileColumn {
        FileColumn::Value(column.name(), column)
    }

    fn heading(self) -> &'static str {
        match self {
            FileColumn::Value(heading, _) => heading,
            FileColumn::Percent => "%",
            FileColumn::Count => "FILES",
        }
    }

    fn align(self) -> Align {
        match self {
            FileColumn::Value(_, column) => column.align(),
            FileColumn::Percent | FileColumn::Count => Align::Right,
        }
    }
}

/// Converts rows to text.
enum Writer {
    /// The table, its columns, and the number of rows that have not been written.
    Table(Box<Table>, Vec<FileColumn>, usize),
    Machine(Machine, Document, Vec<Column>, json::Rows<Column>),
}

/// Takes rows and writes them.
pub struct Report {
    style: Style,
    writer: Option<Writer>,
    output: Output,
    /// Rows to sort.
    kept: Vec<OwnedEntry>,
    written: usize,
    cached: Cached,
    flushed: Instant,
    flushed_rows: usize,
    absences: Absences<Column>,
}

impl Writer {
    fn new(style: &Style, out: &mut Vec<u8>) -> Writer {
        let Format::Machine(machine) = style.format else {
            let columns = table_columns(style);
            let mut table = Table::new(columns.iter().map(|column| column.align()), PIECE);
            if style.header {
                table.headings(columns.iter().map(|column| column.heading()));
            }
            return Writer::Table(Box::new(table), columns, 0);
        };
        let columns = style.chosen.keys(&Column::usual(style.sums));
        let header = style.header.then(|| columns.iter().map(|column| column.name()));
        let document = Document::begin(out, machine, &head(style.source), header);
        let rows = json::Rows::new(&columns, false);
        Writer::Machine(machine, document, columns, rows)
    }
}

impl Report {
    /// A report without rows.
    pub fn new(style: Style) -> Report {
        let mut output = Output::new();
        Report {
            writer: Some(Writer::new(&style, output.buffer())),
            style,
            output,
            kept: Vec::new(),
            written: 0,
            cached: Cached::default(),
            flushed: Instant::now(),
            flushed_rows: 0,
            absences: Absences::new(),
        }
    }

    /// Whether rows are kept until the last one has arrived.
    fn sorts(&self) -> bool {
        !self.style.sort.is_empty()
    }

    /// Takes a row. Breaks when no more rows are needed.
    pub fn row(&mut self, entry: &Entry<'_>) -> io::Result<ControlFlow<()>> {
        let min = self.style.min_cached;
        if min > 0 && !entry.bytes(Quantity::Cached).is_ok_and(|cached| cached >= min) {
            return Ok(ControlFlow::Continue(()));
        }
        if self.sorts() {
            self.kept.push(OwnedEntry::new(entry));
            if self.kept.len() >= self.style.limit.saturating_mul(2).saturating_add(SLACK) {
                self.sort();
            }
            return Ok(ControlFlow::Continue(()));
        }
        if self.written < self.style.limit {
            self.write(entry)?;
        }
        Ok(if self.written < self.style.limit {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    }

    /// Whether rows have waited long enough.
    pub fn is_due(&self) -> bool {
        self.written > self.flushed_rows && self.flushed.elapsed() >= LONGEST_WAIT
    }

    /// Writes the waiting rows.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.flushed_rows = self.written;
        self.write_table()?;
        self.output.flush()
    }

    /// Writes the remaining rows, and the counters.
    pub fn finish(&mut self, counted: &[(&'static str, u64)]) -> io::Result<()> {
        self.sort();
        for kept in std::mem::take(&mut self.kept) {
            self.write(&kept.entry())?;
        }
        self.write_table()?;
        if let Some(Writer::Machine(_, document, ..)) = self.writer.take() {
            document.end(self.output.buffer(), |out| counts(out, counted.iter().copied()));
        }
        self.output.flush()
    }

    /// How much is cached of the files in the written rows.
    pub fn written(&self) -> Cached {
        self.cached
    }

    fn sort(&mut self) {
        let keys = &self.style.sort;
        self.kept.sort_unstable_by(|a, b| compare(keys, &a.entry(), &b.entry()));
        self.kept.truncate(self.style.limit);
    }

    fn write(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let (style, absences) = (&self.style, &mut self.absences);
        match &mut self.writer {
            Some(Writer::Table(table, columns, waiting)) => {
                for &column in &*columns {
                    table.cell(|out| cell(out, column, entry, style, absences));
                }
                *waiting += 1;
                if *waiting == PIECE {
                    self.write_table()?;
                }
            }
            Some(Writer::Machine(machine, document, columns, rows)) => {
                document.row(self.output.buffer(), |out| match machine {
                    Machine::Csv => csv::row(out, columns, entry, &[], None, absences),
                    Machine::Json | Machine::Jsonl => rows.write(out, entry, &[], absences),
                });
            }
            None => {}
        }
        self.written += 1;
        self.cached.files += 1;
        if let Ok(bytes) = entry.bytes(Quantity::Cached) {
            self.cached.known += 1;
            self.cached.bytes += bytes;
        }
        self.output.row_ended()
    }

    /// Writes the waiting rows of a table.
    fn write_table(&mut self) -> io::Result<()> {
        if let Some(Writer::Table(table, _, waiting)) = &mut self.writer {
            table.write(&mut self.output, terminal_width())?;
            table.clear();
            *waiting = 0;
        }
        Ok(())
    }
}

/// The head of a document.
pub fn head(source: Source) -> Head<'static> {
    Head::streaming("cache", vec![("pagecache", source.name())])
}

/// The columns of a table. Without `-o`, those that the source can answer.
fn table_columns(style: &Style) -> Vec<FileColumn> {
    let is_answered = |column: &FileColumn| match column {
        FileColumn::Value(_, Column::Bytes(quantity)) => style.source.gives(*quantity),
        FileColumn::Count => style.sums,
        _ => true,
    };
    style
        .chosen
        .columns(TABLE.into_iter().filter(is_answered), FileColumn::of)
}

fn cell(out: &mut Vec<u8>, column: FileColumn, entry: &Entry<'_>, style: &Style, absences: &mut Absences<Column>) {
    let value = match column {
        FileColumn::Percent => {
            return match entry.permille(style.range) {
                Some(permille) => {
                    people::number(out, permille / 10);
                    out.extend_from_slice(&[b'.', b'0' + (permille % 10) as u8]);
                }
                None => out.push(b'-'),
            }
        }
        FileColumn::Count => return out.extend_from_slice(entry.count().as_bytes()),
        FileColumn::Value(_, column) => absences.value(entry, column),
    };
    match value {
        Ok(Value::Unsigned(count)) if matches!(column, FileColumn::Value(_, Column::Files | Column::Missing)) => {
            people::number(out, count);
        }
        Ok(Value::Unsigned(bytes)) => size(out, bytes, style.unit),
        Ok(Value::Text(path)) => text::escape(out, path),
        _ => out.push(b'-'),
    }
}

/// Appends a number of bytes in a unit.
pub fn size(out: &mut Vec<u8>, bytes: u64, unit: Unit) {
    match unit {
        Unit::People => people::size(out, bytes),
        Unit::Bytes => people::number(out, bytes),
        Unit::Pages => people::number(out, bytes.div_ceil(rustix::param::page_size() as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::sort_keys;
    use super::*;

    fn report(sort: &[&str], limit: usize) -> Report {
        let sort: Vec<String> = sort.iter().map(|&key| key.to_owned()).collect();
        Report::new(Style {
            format: Format::Machine(Machine::Jsonl),
            chosen: Column::chosen(&[]).expect("nothing"),
            sums: false,
            unit: Unit::People,
            header: true,
            source: Source::Cachestat,
            range: ByteRange::ALL,
            sort: sort_keys(&sort).expect("names"),
            limit,
            min_cached: 0,
        })
    }

    /// Check that sorting with a limit keeps the right rows, and few others.
    #[test]
    fn a_limit_bounds_what_is_kept() {
        let mut report = report(&["-size_bytes"], 10);
        for number in 0..100_000_u64 {
            // Each value once, in no order.
            let size_bytes = Ok(number * 77_777 % 100_000);
            let entry = Entry::file(b"x", size_bytes, Err(taskdiag::Absent::Denied));
            assert!(report.row(&entry).expect("nothing is written yet").is_continue());
        }
        assert!(report.kept.len() <= 20 + SLACK);
        report.sort();
        let sizes: Vec<_> = report.kept.iter().map(|kept| kept.entry().size_bytes).collect();
        assert_eq!(sizes, (99_990..100_000).rev().map(Ok).collect::<Vec<_>>());
    }
}
