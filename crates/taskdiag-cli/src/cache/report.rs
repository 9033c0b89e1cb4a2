//! Filters rows, and writes them sorted or as they arrive.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use taskdiag::pagecache::{ByteRange, Quantity, Source};
use taskdiag::Value;

use super::row::{Entry, EntryRow, CACHED};
use crate::output::cell::{Cells, Scale};
use crate::output::document::{counts, Head};
use crate::output::format::Format;
use crate::output::listing::{Form, Layout, Listing};

/// The longest time that a row waits to be written.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// Which rows to write, and how.
#[derive(Debug)]
pub struct Style {
    /// Table, JSON or CSV.
    pub format: Format,
    /// The columns, the order and the limit.
    pub layout: Layout,
    /// How to write sizes in tables: for people, as bytes, or as pages.
    pub scale: Option<Scale>,
    /// Whether there is a header.
    pub header: bool,
    pub source: Source,
    /// The part of each file that was asked about.
    pub range: ByteRange,
    /// Only rows with at least this much cached.
    pub min_cached: u64,
}

impl Style {
    /// Writes the cells of tables.
    pub fn cells(&self) -> Cells {
        Cells::new(false, false).in_scale(self.scale)
    }

    /// How to write rows, or sums.
    pub fn form(&self) -> Form {
        Form {
            streams: true,
            ..Form::new(self.format, self.cells(), self.header)
        }
    }

    /// Whether there is a row for this.
    pub fn shows(&self, entry: &Entry<'_>) -> bool {
        let min = self.min_cached;
        min == 0 || entry.bytes(Quantity::Cached).is_ok_and(|cached| cached >= min)
    }
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

/// Takes rows and writes them.
pub struct Report<'a> {
    style: &'a Style,
    listing: Listing<'a>,
    flushed: Instant,
    flushed_rows: usize,
}

impl<'a> Report<'a> {
    /// A report without rows.
    pub fn new(style: &'a Style) -> Report<'a> {
        Report {
            listing: Listing::begin(&style.layout, style.form(), &head(style.source)),
            style,
            flushed: Instant::now(),
            flushed_rows: 0,
        }
    }

    /// Takes a row. Breaks when no more rows are needed.
    pub fn row(&mut self, entry: &Entry<'_>) -> ControlFlow<()> {
        if !self.style.shows(entry) {
            return ControlFlow::Continue(());
        }
        self.listing.row(&EntryRow(*entry, self.style.range))
    }

    /// Whether rows have waited long enough.
    pub fn is_due(&self) -> bool {
        self.listing.written > self.flushed_rows && self.flushed.elapsed() >= LONGEST_WAIT
    }

    /// Writes the waiting rows.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.flushed_rows = self.listing.written;
        self.listing.flush()
    }

    /// Writes the remaining rows, and the counters. Returns how much is cached of the files in the
    /// rows that were sorted.
    pub fn finish(mut self, counted: &[(&'static str, u64)]) -> io::Result<Cached> {
        let mut cached = Cached::default();
        self.listing.end_rows(|row| {
            cached.files += 1;
            if let Ok(Value::Unsigned(bytes)) = row.cell(CACHED) {
                cached.known += 1;
                cached.bytes += bytes;
            }
        })?;
        self.listing.finish(|out| counts(out, counted.iter().copied()))?;
        Ok(cached)
    }
}

/// The head of a document.
pub fn head(source: Source) -> Head<'static> {
    Head::streaming("cache", vec![("pagecache", source.name())])
}
