//! Rows in the layout of ps(1).

use taskdiag::Task;

use super::cell::Cell;
use super::columns::{self, ColumnContent};
use super::forest::Tree;
use super::host::Host;
use super::lines::{Lines, Screen};
use super::options::{Branches, PsOptions};
use super::specifiers::{Justify, Level, Specifier, SET, WIDE_SETS};
use super::Args;
use crate::listing::{Answers, LateTexts};
use crate::outcome::{self, Failure};
use crate::output::cell::Cells;
use crate::output::relation::Absences;
use crate::output::table::terminal_width;
use crate::output::tasks;
use crate::output::terminal::from_environment;
use crate::output::Output;

/// A line to write.
#[derive(Debug)]
pub struct PsRow<'a> {
    task: Task<'a>,
    /// [`Level::Process`] for a process with threads below it, [`Level::Thread`] for one of these
    /// threads.
    level: Level,
    branches: &'a str,
}

impl PsRow<'_> {
    /// Whether the column is about threads and this row is a process, or vice versa.
    fn lacks(&self, specifier: &Specifier) -> bool {
        specifier.level != Level::Both && self.level != Level::Both && self.level != specifier.level
    }

    /// The branches for a column of this width. Like ps, leaves out those that do not fit.
    fn branches_in(&self, room: usize, ps_options: &PsOptions) -> &[u8] {
        let width = ps_options.forest.map_or(1, Branches::width);
        let whole = room - room % width;
        let branches = self.branches.as_bytes();
        &branches[..branches.len().min(whole)]
    }
}

/// A row for each task, followed by its threads if there are any.
pub fn rows<'a>(tasks: &[Task<'a>], threads: Option<&'a Answers>, tree: Option<&'a Tree>) -> Vec<PsRow<'a>> {
    let branches = |index: usize| tree.map_or("", |tree| tree.branches[index].as_str());
    let row = |(index, &task): (usize, &Task<'a>)| PsRow {
        task,
        level: Level::Both,
        branches: branches(index),
    };
    let rows = tasks.iter().enumerate().map(row);
    let Some(threads) = threads else {
        return rows.collect();
    };
    let threads = threads.tasks();
    let with_threads = |row: PsRow<'a>| {
        let pid = row.task.record().header().pid.get();
        let threads = threads
            .iter()
            .filter(move |thread| thread.record().header().pid.get() == pid);
        let below = threads.map(|&task| PsRow {
            task,
            level: Level::Thread,
            branches: "",
        });
        let process = PsRow {
            level: Level::Process,
            ..row
        };
        std::iter::once(process).chain(below).collect::<Vec<_>>()
    };
    rows.flat_map(with_threads).collect()
}

/// Writes rows as ps does.
pub fn write_lines(
    args: &Args,
    columns: &[columns::Column],
    rows: &[PsRow<'_>],
    (host, late): (&mut Host, &mut LateTexts<'_>),
    missing: &mut Absences,
) -> Result<(), Failure> {
    let (options, ps_options) = (&args.options, &args.ps_options);
    let has_header = !options.no_header && columns.iter().any(|column| !column.header.is_empty());
    let mut places = columns::places(columns, ps_options);
    let screen = ps_options.screen();
    let sets = columns.iter().filter(|column| column.is_of_signals()).count();
    host.has_wide_sets = screen.has_room(&places, sets * WIDE_SETS);
    let more = if host.has_wide_sets { WIDE_SETS } else { 0 };
    for (place, _) in places
        .iter_mut()
        .zip(columns)
        .filter(|(_, column)| column.is_of_signals())
    {
        place.width = place.width.map(|width| width + more);
        place.justify = Justify::RightIn(SET + more);
    }
    let mut rooms: Vec<usize> = places.iter().map(|place| place.width.unwrap_or(usize::MAX)).collect();
    if let Some(last) = rooms.last_mut() {
        *last = usize::MAX;
    }
    let mut lines = Lines::new(places, has_header);
    if has_header {
        for column in columns {
            lines.cell(|out| out.extend_from_slice(column.header.as_bytes()));
        }
    }
    let mut cells = Cells::new(options.bytes, options.names);
    let (mut output, page) = (Output::default(), ps_options.page());
    for row in rows {
        let task = late.task(&row.task, lines.kept());
        for (column, &room) in columns.iter().zip(&rooms) {
            lines.cell(|out| match column.shows {
                ColumnContent::Native(shown) => shown.write(out, &tasks::RELATION, &task, &mut cells, missing),
                ColumnContent::Specifier(specifier) if row.lacks(specifier) => out.push(b'-'),
                ColumnContent::Specifier(specifier) => (specifier.show)(&mut Cell {
                    out,
                    task: &task,
                    host,
                    missing: column.is_named.then_some(&mut *missing),
                    branches: row.branches_in(room, ps_options),
                }),
            });
        }
        lines.end_line(&mut output, screen, page)?;
    }
    lines.write(&mut output, screen, page)?;
    Ok(output.finish()?)
}

impl PsOptions {
    /// How long lines are handled.
    fn screen(&self) -> Screen {
        let told = self.columns.or_else(|| from_environment("COLUMNS"));
        match (self.wider, told, terminal_width()) {
            (2.., ..) | (_, None, None) => Screen::Endless,
            (1, Some(columns), _) | (1, None, Some(columns)) => Screen::Wraps(columns.max(WIDER)),
            (_, Some(columns), _) => Screen::Wraps(columns),
            (_, None, Some(columns)) if outcome::is_procps() => Screen::Wraps(columns),
            (_, None, Some(columns)) => Screen::Cuts(columns),
        }
    }

    /// The number of lines on a page, if each page has a header.
    fn page(&self) -> Option<usize> {
        let lines = || self.rows.or_else(|| from_environment("LINES")).unwrap_or(PAGE);
        self.has_pages.then(lines)
    }
}

/// The minimum width with a single `-w`.
const WIDER: usize = 132;

/// The number of lines on a page, unless an option or a variable sets it.
const PAGE: usize = 24;
