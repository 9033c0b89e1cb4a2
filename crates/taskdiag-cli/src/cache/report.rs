//! Rows on their way out: filtered, sorted, written as they come.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use taskdiag::pagecache::{ByteRange, Quantity, Source};
use taskdiag::Value;

use super::row::{compare, Column, Entry, Kept, SortKey};
use crate::listing::{Format, Machine};
use crate::output::table::{terminal_width, Align, Table};
use crate::output::{cell, csv, json, people, text, Absences, Key as _, Output};

/// A piece of a table: the widths of its columns are known once it is full. Those of later pieces can only be wider.
const PIECE: usize = 1000;

/// No row waits longer for others to be written with it.
const PATIENCE: Duration = Duration::from_millis(250);

/// Rows beyond the limit that are sorted before they are thrown away.
const SLACK: usize = 4096;

/// How sizes stand in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Rounded, for people.
    People,
    /// Bytes.
    Bytes,
    /// Pages.
    Pages,
}

/// Which rows are written, and how.
#[derive(Clone, Debug)]
pub struct Style {
    /// For whom.
    pub format: Format,
    /// The columns that were chosen, if any were.
    pub columns: Vec<Column>,
    /// Whether rows are sums of files.
    pub sums: bool,
    /// How sizes stand in tables.
    pub unit: Unit,
    /// Whether there is a header.
    pub header: bool,
    /// Who answers.
    pub source: Source,
    /// Which part of each file was asked about.
    pub range: ByteRange,
    /// What to sort by. Without, rows are written as they come.
    pub sort: Vec<SortKey>,
    /// The most rows.
    pub limit: usize,
    /// Only rows with so much cached.
    pub min_cached: u64,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileColumn {
    /// A value under a heading.
    Value(&'static str, Column),
    /// How much of it is cached.
    Percent,
    /// How many files are in it.
    Count,
}

/// What is cached of some files together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cached {
    /// How many files.
    pub files: u64,
    /// How many of them were told about.
    pub told: u64,
    /// What is cached of those.
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

/// How rows become text.
enum Writer {
    Table(Box<Table>, Vec<FileColumn>, usize),
    Json(json::Rows<Column>),
    Jsonl(json::Rows<Column>),
    Csv(Vec<Column>),
}

/// Takes rows and writes them.
pub struct Report {
    style: Style,
    writer: Writer,
    output: Output,
    /// Rows that wait to be sorted.
    kept: Vec<Kept>,
    written: usize,
    cached: Cached,
    flushed: Instant,
    flushed_rows: usize,
    absences: Absences<Column>,
}

impl Report {
    /// A report without rows.
    pub fn new(style: Style) -> Report {
        let chosen = if style.columns.is_empty() {
            Column::usual(style.sums)
        } else {
            style.columns.clone()
        };
        let mut output = Output::new();
        let writer = match style.format {
            Format::Machine(Machine::Json) => {
                begin_document(output.buffer(), style.source);
                Writer::Json(json::Rows::new(&chosen, false))
            }
            Format::Machine(Machine::Jsonl) => Writer::Jsonl(json::Rows::new(&chosen, false)),
            Format::Machine(Machine::Csv) => {
                if style.header {
                    csv::header(output.buffer(), &chosen, &[]);
                }
                Writer::Csv(chosen)
            }
            Format::Table => {
                let shown = shown(&style);
                let mut table = Table::new(shown.iter().map(|shown| shown.align()), PIECE);
                if style.header {
                    for shown in &shown {
                        table.cell(|out| out.extend_from_slice(shown.heading().as_bytes()));
                    }
                }
                Writer::Table(Box::new(table), shown, 0)
            }
        };
        Report {
            style,
            writer,
            output,
            kept: Vec::new(),
            written: 0,
            cached: Cached::default(),
            flushed: Instant::now(),
            flushed_rows: 0,
            absences: Absences::new(),
        }
    }

    /// Whether rows are kept until all are there.
    fn sorts(&self) -> bool {
        !self.style.sort.is_empty()
    }

    /// Takes a row. Breaks when no more are wanted.
    pub fn row(&mut self, entry: &Entry<'_>) -> io::Result<ControlFlow<()>> {
        let min = self.style.min_cached;
        if min > 0 && !entry.bytes(Quantity::Cached).is_ok_and(|cached| cached >= min) {
            return Ok(ControlFlow::Continue(()));
        }
        if self.sorts() {
            self.kept.push(Kept::new(entry));
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

    /// Whether rows have waited for others for long enough.
    pub fn is_due(&self) -> bool {
        self.written > self.flushed_rows && self.flushed.elapsed() >= PATIENCE
    }

    /// Writes the rows that wait for others.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.flushed_rows = self.written;
        self.write_table()?;
        self.output.flush()
    }

    /// Writes what is left, and the counters.
    pub fn finish(&mut self, counters: &[(&'static str, u64)]) -> io::Result<()> {
        self.sort();
        for kept in std::mem::take(&mut self.kept) {
            self.write(&kept.entry())?;
        }
        self.write_table()?;
        if let Writer::Json(_) = self.writer {
            let out = self.output.buffer();
            out.extend_from_slice(b"\n],\"counters\":");
            json::object(out, counters, |&(name, count)| {
                (name, move |out: &mut Vec<u8>| people::number(out, count))
            });
            out.extend_from_slice(b"}\n");
        }
        self.output.flush()
    }

    /// What is cached of the rows that were written.
    pub fn written(&self) -> Cached {
        self.cached
    }

    fn sort(&mut self) {
        let keys = &self.style.sort;
        self.kept.sort_unstable_by(|a, b| compare(keys, &a.entry(), &b.entry()));
        self.kept.truncate(self.style.limit);
    }

    fn write(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let out = self.output.buffer();
        match &mut self.writer {
            Writer::Table(table, shown, waiting) => {
                for &shown in &*shown {
                    let (style, absences) = (&self.style, &mut self.absences);
                    table.cell(|out| cell(out, shown, entry, style, absences));
                }
                *waiting += 1;
                if *waiting == PIECE {
                    self.write_table()?;
                }
            }
            Writer::Json(rows) => {
                out.extend_from_slice(if self.written > 0 { b",\n" } else { b"\n" });
                rows.write(out, entry, &[], &mut self.absences);
            }
            Writer::Jsonl(rows) => {
                rows.write(out, entry, &[], &mut self.absences);
                out.push(b'\n');
            }
            Writer::Csv(columns) => csv::row(out, columns, entry, &[], None, &mut self.absences),
        }
        self.written += 1;
        self.cached.files += 1;
        if let Ok(bytes) = entry.bytes(Quantity::Cached) {
            self.cached.told += 1;
            self.cached.bytes += bytes;
        }
        self.output.row_ended()
    }

    /// Writes the rows of a table that wait.
    fn write_table(&mut self) -> io::Result<()> {
        if let Writer::Table(table, _, waiting) = &mut self.writer {
            table.write(&mut self.output, terminal_width())?;
            table.clear();
            *waiting = 0;
        }
        Ok(())
    }
}

/// Appends all of a document that stands before its rows.
pub fn begin_document(out: &mut Vec<u8>, source: Source) {
    cell::formatted(
        out,
        format_args!(
            "{{\"schema\":1,\"command\":\"cache\",\"sources\":{{\"pagecache\":\"{}\"}},\"rows\":[",
            source.name()
        ),
    );
}

/// What was chosen; else all that the source can tell.
fn shown(style: &Style) -> Vec<FileColumn> {
    let tells = |shown: &FileColumn| match shown {
        FileColumn::Value(_, Column::Bytes(quantity)) => style.source.gives(*quantity),
        FileColumn::Count => style.sums,
        _ => true,
    };
    if style.columns.is_empty() {
        TABLE.into_iter().filter(tells).collect()
    } else {
        style
            .columns
            .iter()
            .map(|&column| FileColumn::Value(column.name(), column))
            .collect()
    }
}

fn cell(out: &mut Vec<u8>, shown: FileColumn, entry: &Entry<'_>, style: &Style, absences: &mut Absences<Column>) {
    let value = match shown {
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
        Ok(Value::Unsigned(count)) if matches!(shown, FileColumn::Value(_, Column::Files | Column::Missing)) => {
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
    use super::*;

    fn report(sort: &[&str], limit: usize) -> Report {
        let sort: Vec<String> = sort.iter().map(|&key| key.to_owned()).collect();
        Report::new(Style {
            format: Format::Machine(Machine::Jsonl),
            columns: Vec::new(),
            sums: false,
            unit: Unit::People,
            header: true,
            source: Source::Cachestat,
            range: ByteRange::ALL,
            sort: SortKey::parse_list(&sort).expect("names"),
            limit,
            min_cached: 0,
        })
    }

    /// Check that sorting with a limit keeps the right rows and few others.
    #[test]
    fn a_limit_bounds_what_is_kept() {
        let mut report = report(&["-size_bytes"], 10);
        for number in 0..100_000_u64 {
            // Each once, in no order.
            let size_bytes = Ok(number * 77_777 % 100_000);
            let entry = Entry::file(b"x", size_bytes, Err(taskdiag::Absent::Denied));
            assert!(report.row(&entry).expect("memory").is_continue());
        }
        assert!(report.kept.len() <= 20 + SLACK);
        report.sort();
        let sizes: Vec<_> = report.kept.iter().map(|kept| kept.entry().size_bytes).collect();
        assert_eq!(sizes, (99_990..100_000).rev().map(Ok).collect::<Vec<_>>());
    }
}
