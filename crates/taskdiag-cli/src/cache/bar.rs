//! `taskdiag cache --map`: which parts of a file are cached.

use std::fs::File;
use std::path::Path;

use rustix::fs::{open, seek, stat, FileType, Mode, OFlags, SeekFrom};
use taskdiag::pagecache::{map, ByteRange, Quantity, Run, Source, State};
use taskdiag::{Absent, Error, ErrorKind, Value};

use super::report::{head, Style};
use crate::listing::{Format, Machine};
use crate::outcome::{Failure, Outcome, WhoMay};
use crate::output::document::counters;
use crate::output::relation::{columns, Cell, ColumnInfo};
use crate::output::rows::{RowOptions, Rows};
use crate::output::table::{fitted, terminal_width};
use crate::output::text::{escaped, locale_is_utf8, written};
use crate::output::{cell, Output};

/// The length of the bar if the output is not a terminal, including brackets.
const WIDTH: usize = 80;

/// The columns of a run of pages.
pub const RUN_RELATION: [ColumnInfo; 6] = columns! {
    "offset_bytes": Bytes, "";
    "size_bytes": Bytes, "";
    "state": Text, "";
    "cached_bytes": Bytes, "";
    "dirty_bytes": Bytes, "";
    "writeback_bytes": Bytes, "";
};

/// The value of a run in a column.
fn cell_of(run: &Run, column: usize) -> Cell<'static> {
    let bytes = |quantity| run.bytes(quantity).map(Value::Unsigned).map_err(Absent::as_str);
    match column {
        0 => Ok(Value::Unsigned(run.first_page * rustix::param::page_size() as u64)),
        1 => bytes(Quantity::Size),
        2 => Ok(Value::Text(run.state.name().as_bytes())),
        3 => bytes(Quantity::Cached),
        4 => bytes(Quantity::Dirty),
        _ => bytes(Quantity::Writeback),
    }
}

/// Shows which parts of a file are cached.
pub fn run(path: &Path, style: &Style) -> Result<Outcome, Failure> {
    let failure = |why: &dyn std::fmt::Display| {
        let name = escaped(path.as_os_str().as_encoded_bytes());
        Failure::Unanswered(format!("{name}: {why}"))
    };
    let kind = stat(path).map_err(|errno| failure(&errno))?.st_mode;
    let kind = FileType::from_raw_mode(kind);
    if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
        return Err(failure(&"only a regular file or a block device has a map"));
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(path, flags, Mode::empty()).map_err(|errno| failure(&errno))?;
    let file = File::from(file);
    let refused = |error: Error| match error.kind() {
        ErrorKind::Denied => failure(&format_args!("{error:#} ({})", WhoMay::see_denied())),
        _ => failure(&format_args!("{error:#}")),
    };
    let mut output = Output::default();
    match style.format {
        Format::Table => {
            // fstat(2) does not know the size of a block device.
            let size_bytes = seek(&file, SeekFrom::End(0)).map_err(|errno| failure(&errno))?;
            let drawing = Drawing::new(style.range, size_bytes, style.source);
            drawing.draw(path, &file, style, &mut output.buffer).map_err(refused)?;
        }
        Format::Machine(machine) => write_runs(&file, style, machine)?.map_err(refused)?,
    }
    output.finish()?;
    Ok(Outcome::Complete)
}

/// Writes runs in machine-readable output, each as soon as it is known.
fn write_runs(file: &File, style: &Style, machine: Machine) -> std::io::Result<Result<(), Error>> {
    let options = RowOptions {
        header: style.header,
        ..RowOptions::default()
    };
    let mut rows = Rows::begin(machine, &head(style.source), RUN_RELATION, options);
    let mut written = Ok(());
    let answer = map(style.source, file, style.range, 1, &mut |run| {
        if written.is_ok() {
            written = rows.row(|column| cell_of(&run, column));
        }
    });
    written?;
    // Nothing is written of a file that the kernel refuses to tell about.
    if answer.is_ok() {
        rows.finish_with(|out| counters(out, &[]))?;
    }
    Ok(answer)
}

/// A bar. Each of its characters stands for about `grain` pages.
struct Drawing {
    pages: u64,
    grain: u64,
    first_page: u64,
    source: Source,
}

/// The content of a character of the bar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    cached: u64,
    dirty: bool,
}

impl Drawing {
    fn new(range: ByteRange, size_bytes: u64, source: Source) -> Drawing {
        let width = terminal_width().unwrap_or(WIDTH).saturating_sub(2).max(1) as u64;
        let (first_page, pages) = range.pages(size_bytes);
        Drawing {
            pages,
            grain: pages.div_ceil(width).max(1),
            first_page,
            source,
        }
    }

    fn draw(&self, path: &Path, file: &File, style: &Style, out: &mut Vec<u8>) -> Result<(), Error> {
        let mut marks = vec![Mark::default(); self.pages.div_ceil(self.grain) as usize];
        let (mut cached, mut dirty, mut writeback) = (0, Ok::<_, Absent>(0), Ok::<_, Absent>(0));
        map(self.source, file, style.range, self.grain, &mut |run| {
            cached += run.bytes(Quantity::Cached).unwrap_or(0);
            dirty = dirty.and_then(|sum| Ok(sum + run.bytes(Quantity::Dirty)?));
            writeback = writeback.and_then(|sum| Ok(sum + run.bytes(Quantity::Writeback)?));
            self.mark(&mut marks, &run);
        })?;
        let signs = if locale_is_utf8() { &UTF8 } else { &ASCII };
        let page_size = rustix::param::page_size() as u64;
        let cells = style.cells();
        let amount = |bytes| written(|out| cells.size(out, bytes));
        let name = escaped(path.as_os_str().as_encoded_bytes());
        let (cached, all) = (amount(cached), amount(self.pages * page_size));
        let mut head = format!("{name}: {cached} of {all} cached");
        if let (Ok(dirty), Ok(writeback)) = (dirty, writeback) {
            let (dirty, writeback) = (amount(dirty), amount(writeback));
            head += &format!(", {dirty} dirty, {writeback} being written");
        }
        let grain = amount(self.grain * page_size);
        head += &format!("; a character is {grain}");
        cell::formatted(out, format_args!("{}[", fitted(&head)));
        for (index, mark) in marks.iter().enumerate() {
            let pages = self.grain.min(self.pages - index as u64 * self.grain);
            out.extend_from_slice(signs.of(*mark, pages).as_bytes());
        }
        out.extend_from_slice(b"]\n");
        let [none, few, some, most, all] = signs.0;
        let legend = format!("{all} cached, {few}{some}{most} in part, {none} not, D dirty or being written");
        out.extend_from_slice(fitted(&legend).as_bytes());
        Ok(())
    }

    /// Marks the characters that a run covers. A run begins at the start of a character.
    fn mark(&self, marks: &mut [Mark], run: &Run) {
        let page_size = rustix::param::page_size() as u64;
        let is_dirty = [Quantity::Dirty, Quantity::Writeback]
            .into_iter()
            .any(|quantity| run.bytes(quantity).is_ok_and(|bytes| bytes > 0));
        let first = run.first_page - self.first_page;
        for (index, mark) in marks.iter_mut().enumerate().skip((first / self.grain) as usize) {
            let begin = index as u64 * self.grain;
            if begin >= first + run.pages {
                break;
            }
            let pages = self.grain.min(self.pages - begin);
            mark.cached = match run.state {
                State::Mixed => run.bytes(Quantity::Cached).unwrap_or(0) / page_size,
                State::Uncached => 0,
                _ => pages,
            };
            mark.dirty = is_dirty;
        }
    }
}

/// The characters of a bar for no pages; few, some or most of them; all of them.
struct Signs([&'static str; 5]);

const UTF8: Signs = Signs(["·", "░", "▒", "▓", "█"]);
const ASCII: Signs = Signs([".", "-", "=", "+", "#"]);

impl Signs {
    fn of(&self, mark: Mark, pages: u64) -> &'static str {
        match mark {
            Mark { dirty: true, .. } => "D",
            Mark { cached: 0, .. } => self.0[0],
            Mark { cached, .. } => self.0[1 + (cached * 3 / pages).min(3) as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a part is never drawn as all or as nothing.
    #[test]
    fn parts_are_neither_nothing_nor_all() {
        let sign = |cached, dirty| ASCII.of(Mark { cached, dirty }, 1000);
        assert_eq!([sign(0, false), sign(1, false), sign(500, false)], [".", "-", "="]);
        assert_eq!([sign(999, false), sign(1000, false), sign(1000, true)], ["+", "#", "D"]);
    }
}
