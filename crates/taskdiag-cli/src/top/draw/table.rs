//! The table. Only rows that are on the screen are formatted.

use taskdiag::{Absent, Field, Identity};

use super::layout::Layout;
use super::pen::Pen;
use super::{Palette, Scene};
use crate::grouping::Grouping;
use crate::output::cell::Cells;
use crate::output::listing::Content;
use crate::output::relation::{Absences, Row as _};
use crate::output::table::Align;
use crate::output::{people, tasks, terminal, text};
use crate::top::canvas::{self, Area, Canvas, Style};
use crate::top::column::{fit, SortKey, TopColumn, TREND_WIDTH};
use crate::top::groups::{Group, COLUMNS};
use crate::top::keys::Action;
use crate::top::model::ShownTask;
use crate::top::rows::Rows;
use crate::top::trend::sparkline;
use crate::top::view::Table as _;
use crate::tree::{Drawing, ASCII, UTF8};
use crate::watch::Rate;

/// What is kept from one picture to the next.
#[derive(Debug)]
pub struct Memory {
    cells: Cells,
    /// The width of the highest id.
    id_width: usize,
    /// The previous widths of the columns. They do not become narrower while they show the same.
    widths: Vec<usize>,
    /// The headings to which the widths belong.
    of: Vec<&'static str>,
}

impl Memory {
    /// Starts with sizes and times for people, or exact, and with the width of the highest id.
    pub fn new(exact: bool, named: bool, id_width: usize) -> Memory {
        Memory {
            cells: Cells::new(exact, named),
            id_width,
            widths: Vec::new(),
            of: Vec::new(),
        }
    }

    /// Forgets names and clocks, because they now belong to another moment.
    pub fn forget_names(&mut self, exact: bool, named: bool) {
        self.cells = Cells::new(exact, named);
    }

    fn widen(&mut self, columns: &[Heading], rows: &[Vec<String>]) {
        let headings = || columns.iter().map(|column| column.text);
        if !self.of.iter().copied().eq(headings()) {
            let width = |column: &Heading| canvas::width(column.text).max(column.least_width);
            self.widths = columns.iter().map(width).collect();
            self.of = headings().collect();
        }
        for cells in rows {
            for (width, cell) in self.widths.iter_mut().zip(cells) {
                *width = (*width).max(canvas::width(cell));
            }
        }
    }
}

/// The heading of a column.
#[derive(Clone, Copy)]
struct Heading {
    text: &'static str,
    align: Align,
    /// What a click sorts by.
    key: Option<SortKey>,
    is_sorted: bool,
    least_width: usize,
}

impl Heading {
    /// Which columns stay where there is no room for all, the lowest first: the first one and what rows are
    /// sorted by; the nice value goes before others.
    fn rank(&self, place: usize) -> u8 {
        match self.key {
            _ if self.is_sorted || place == 0 => 0,
            Some(SortKey::Field(Field::Nice)) => 2,
            _ => 1,
        }
    }
}

/// The headings, the cells of rows, and the styles of these.
type Contents = (Vec<Heading>, Vec<Vec<String>>, Vec<Vec<Style>>);

/// What the rows from `first` to `end` have.
fn contents(scene: &Scene<'_>, (first, end): (usize, usize), memory: &mut Memory) -> Contents {
    let columns: Vec<Heading>;
    let mut rows: Vec<Vec<String>> = Vec::with_capacity(end.saturating_sub(first));
    let mut styles: Vec<Vec<Style>> = Vec::new();
    if let Rows::By(by) = scene.model.rows {
        let sorted = Some(scene.view.order.key);
        let mut groups = (first..end).filter_map(|index| scene.model.group(index));
        let pss = Some(SortKey::Field(Field::PssBytes));
        let has_pss = sorted == pss || groups.any(|group| group.pss_bytes.is_some());
        let usual = COLUMNS.into_iter().filter(|(_, column)| has_pss || *column != pss);
        let rates = scene.shown.iter().filter_map(|show| match show {
            TopColumn::Rate(rate) if *rate != Rate::Cpu => Some((rate.heading(), Some(show.sort_key()))),
            _ => None,
        });
        let shown: Vec<_> = usual.chain(rates).collect();
        let number = |&(text, column): &(&'static str, Option<SortKey>)| Heading {
            text,
            align: Align::Right,
            key: column,
            is_sorted: column == sorted,
            least_width: if column.is_none() { TREND_WIDTH } else { 0 },
        };
        let name = |by: &&Grouping| Heading {
            text: by.heading,
            align: Align::Left,
            key: None,
            is_sorted: false,
            least_width: 0,
        };
        columns = shown.iter().map(number).chain(by.iter().map(name)).collect();
        for group in (first..end).filter_map(|index| scene.model.group(index)) {
            rows.push(sum_cells(group, &shown, scene, &mut memory.cells));
        }
    } else {
        let shown = scene.shown;
        let key = scene.view.order.key;
        let heading = |show: &TopColumn| Heading {
            text: show.heading(),
            align: show.align(),
            key: Some(show.sort_key()),
            is_sorted: show.sort_key() == key && *show != TopColumn::Trend,
            least_width: show.least_width(memory.id_width),
        };
        columns = shown.iter().map(heading).collect();
        let mut drawing = Drawing::default();
        let is_tree = scene.view.rows == Rows::Tree;
        if is_tree {
            for line in &scene.model.lines[..first.min(end)] {
                drawing.pass(line);
            }
        }
        for index in first..end {
            let Some(row) = scene.model.row(index) else { continue };
            let branches = if is_tree { Some(&mut drawing) } else { None };
            rows.push(task_cells(&row, scene, branches, memory));
            let is_tagged = scene.view.is_tagged(Identity::of(row.task.record().header()));
            styles.push(if is_tagged {
                vec![scene.palette.tag(); shown.len()]
            } else {
                task_styles(&row, shown, scene.palette)
            });
        }
    }
    memory.widen(&columns, &rows);
    (columns, rows, styles)
}

/// The headings and all rows as lines of this width; without one, they are as long as their cells.
pub fn lines(scene: &Scene<'_>, memory: &mut Memory, width: Option<usize>) -> Vec<String> {
    let (columns, mut rows, _) = contents(scene, (0, scene.model.len()), memory);
    let widths = fit(&memory.widths, width.unwrap_or(MAX_CELL_BYTES), |place| {
        columns[place].rank(place)
    });
    leave_out_directories(&columns, &mut rows, &widths);
    let headings = columns.iter().map(|column| column.text.to_owned()).collect();
    let line = |cells: &Vec<String>| {
        // Only the last cell is as long as its text.
        let mut cells: Vec<_> = (columns.iter().zip(cells).zip(&widths))
            .filter_map(|((column, cell), width)| Some((column.align, cell, (*width)?)))
            .collect();
        if let Some((_, cell, width)) = cells.last_mut() {
            *width = canvas::width(cell).min(*width);
        }
        let length: usize = cells.iter().map(|(.., width)| width + 1).sum();
        let mut canvas = Canvas::new(length.try_into().unwrap_or(u16::MAX), 1);
        let area = canvas.area;
        let mut pen = Pen::new(&mut canvas, area, 0);
        for (align, cell, width) in cells {
            put_cell(&mut pen, (cell, Style::new()), width, align, 0);
        }
        canvas.lines().concat()
    };
    std::iter::once(&headings).chain(&rows).map(line).collect()
}

/// Draws headings and rows.
pub fn draw(canvas: &mut Canvas, area: Area, layout: &Layout, scene: &Scene<'_>, memory: &mut Memory) {
    let first = scene.view.first;
    let end = (first + usize::from(layout.rows)).min(scene.model.len());
    let (columns, mut rows, styles) = contents(scene, (first, end), memory);
    let widths = fit(&memory.widths, area.width.into(), |place| columns[place].rank(place));
    if scene.view.shift == 0 {
        leave_out_directories(&columns, &mut rows, &widths);
    }
    heading(canvas, area, layout, &columns, &widths, scene.palette);
    for (number, cells) in rows.iter().enumerate() {
        let line = layout.first_row + number as u16;
        let mut pen = Pen::new(canvas, area, line);
        let is_at_cursor = first + number == scene.view.cursor;
        for (index, cell) in cells.iter().enumerate() {
            let Some(width) = widths[index] else { continue };
            let is_last = index + 1 == cells.len();
            let style = styles.get(number).map_or(Style::new(), |styles| styles[index]);
            let style = if is_at_cursor { Style::new() } else { style };
            let shift = if is_last { scene.view.shift } else { 0 };
            put_cell(&mut pen, (cell, style), width, columns[index].align, shift);
        }
        let mut pen = Pen::new(canvas, area, line);
        if is_at_cursor {
            pen.fill(scene.palette.cursor());
        }
        pen.skip(usize::MAX).spot(0, Action::Choose(first + number));
    }
}

/// Leaves out the directories of programs whose paths have no room, so that one sees their names. A
/// sign stands for them.
fn leave_out_directories(columns: &[Heading], rows: &mut [Vec<String>], widths: &[Option<usize>]) {
    for cells in rows {
        for ((column, cell), width) in columns.iter().zip(cells).zip(widths) {
            let is_program = matches!(column.key, Some(SortKey::Field(Field::Comm | Field::Exe)));
            // Before it are the branches of a tree.
            let begin = cell
                .find(|sign: char| sign == '/' || sign.is_alphanumeric())
                .unwrap_or(0);
            let end = cell[begin..].find(' ').map_or(cell.len(), |length| begin + length);
            let name = cell[begin..end].rfind('/').map_or(begin, |length| begin + length + 1);
            let is_path = cell[begin..].starts_with('/');
            if is_program && is_path && width.is_some_and(|width| canvas::width(&cell[..end]) > width) {
                cell.replace_range(begin..name, "<");
            }
        }
    }
}

fn heading(
    canvas: &mut Canvas,
    area: Area,
    layout: &Layout,
    columns: &[Heading],
    widths: &[Option<usize>],
    palette: Palette,
) {
    let mut pen = Pen::new(canvas, area, layout.heading);
    for (index, column) in columns.iter().enumerate() {
        let Some(width) = widths[index] else { continue };
        let style = if column.is_sorted {
            palette.sorted()
        } else {
            palette.heading()
        };
        let begin = pen.x;
        put_cell(&mut pen, (column.text, style), width, column.align, 0);
        column
            .key
            .into_iter()
            .for_each(|key| pen.spot(begin, Action::Sort(key)));
    }
    Pen::new(canvas, area, layout.heading).fill(palette.heading());
}

/// Writes a cell and the space after it. A sign stands for what is skipped of its text.
fn put_cell(pen: &mut Pen<'_>, (mut text, style): (&str, Style), width: usize, align: Align, shift: usize) {
    let mut cell = pen.part(width);
    if shift > 0 && !text.is_empty() {
        cell.put("<", style);
        let begin = text
            .char_indices()
            .nth(shift + 1)
            .map_or(text.len(), |(index, _)| index);
        text = &text[begin..];
    }
    if align == Align::Right {
        cell.put_right(text, style);
    } else {
        cell.put(text, style);
    }
    pen.skip(1);
}

/// The most bytes of a cell that are used: a command line can be megabytes long.
const MAX_CELL_BYTES: usize = 8192;

fn task_cells(
    row: &ShownTask<'_>,
    scene: &Scene<'_>,
    branches: Option<&mut Drawing>,
    memory: &mut Memory,
) -> Vec<String> {
    let mut absences = Absences::default();
    let mut branches = branches;
    let cell = |show: &TopColumn| {
        let mut out = Vec::new();
        let out = &mut out;
        match show {
            TopColumn::Rate(rate) => rate.write(out, row.rates.get(*rate), &mut memory.cells),
            TopColumn::Trend => {
                let identity = Identity::of(row.task.record().header());
                let values = scene.model.trends.of(&identity, TREND_WIDTH);
                sparkline(out, &values, 1000, scene.palette.utf8);
            }
            // The value arrives with the close look, a moment later.
            TopColumn::Cell(shown)
                if row.look.is_none() && shown.content.needs().all(|column| is_not_asked(row, column)) => {}
            TopColumn::Cell(shown) => {
                let is_last = scene.shown.last() == Some(show);
                if let (true, Some(drawing)) = (is_last, branches.as_deref_mut()) {
                    drawing.line(out, row.line, if scene.palette.utf8 { &UTF8 } else { &ASCII });
                }
                shown.write(out, &tasks::RELATION, row, &mut memory.cells, &mut absences);
            }
        }
        // Lossy, because the cut may be within a character.
        out.truncate(MAX_CELL_BYTES);
        String::from_utf8_lossy(out).into_owned()
    };
    scene.shown.iter().map(cell).collect()
}

fn is_not_asked(row: &ShownTask<'_>, column: usize) -> bool {
    row.cell(column) == Err(Absent::NotAsked.as_str())
}

fn task_styles(row: &ShownTask<'_>, shown: &[TopColumn], palette: Palette) -> Vec<Style> {
    let style = |show: &TopColumn| match show {
        TopColumn::Cell(shown) if shown.content == Content::Column(Field::State as usize) => {
            let state = row.task.state().unwrap_or(' ');
            palette.of(terminal::Style::of_state(state.encode_utf8(&mut [0; 4]).as_bytes()))
        }
        TopColumn::Trend => palette.green(),
        TopColumn::Rate(Rate::Cpu) if row.rates.get(Rate::Cpu) >= Some(50.0) => palette.value(),
        _ if row.task.kernel_thread() == Ok(true) => palette.dim(),
        _ => Style::new(),
    };
    shown.iter().map(style).collect()
}

fn sum_cells(
    group: &Group,
    columns: &[(&str, Option<SortKey>)],
    scene: &Scene<'_>,
    written: &mut Cells,
) -> Vec<String> {
    let mut cell = |column: Option<SortKey>| match column {
        None => {
            let values = scene.model.group_trends.of(&group.names, TREND_WIDTH);
            text::written(|out| sparkline(out, &values, 1000, scene.palette.utf8))
        }
        Some(SortKey::Rate(rate)) => text::written(|out| rate.write(out, group.rates[rate as usize], written)),
        Some(SortKey::Time) => text::written(|out| people::duration(out, group.time_ns)),
        Some(SortKey::Field(Field::RssBytes)) => people::size_text(group.rss_bytes),
        Some(SortKey::Field(Field::PssBytes)) => match group.pss_bytes {
            None => "-".to_owned(),
            Some((bytes, count)) if count == group.processes => people::size_text(bytes),
            // Kernel threads and zombies have no memory, and the budget may exclude others.
            Some((bytes, count)) => format!("{} of {count}", people::size_text(bytes)),
        },
        Some(SortKey::Field(_)) => group.processes.to_string(),
    };
    let numbers = columns.iter().map(|&(_, column)| cell(column));
    numbers.chain(group.drawn.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the name of a program is there if its path has no room, also in a tree, and that nothing
    /// else is left out.
    #[test]
    fn programs_have_their_names() {
        let heading = |key| Heading {
            text: "",
            align: Align::Left,
            key: Some(SortKey::Field(key)),
            is_sorted: false,
            least_width: 0,
        };
        for (key, width, cell, shown) in [
            (Field::Comm, 19, "/usr/lib/gcc/12/cc1 /a/b", "/usr/lib/gcc/12/cc1 /a/b"),
            (Field::Comm, 18, "/usr/lib/gcc/12/cc1 /a/b", "<cc1 /a/b"),
            (Field::Comm, 18, "|- /usr/lib/gcc/12/cc1 /a/b", "|- <cc1 /a/b"),
            (Field::Exe, 8, "/usr/lib/gcc/12/cc1", "<cc1"),
            (Field::Comm, 8, "sh -c /usr/bin/env", "sh -c /usr/bin/env"),
            (Field::Comm, 8, "[kworker/u4:2]", "[kworker/u4:2]"),
            (Field::Cgroup, 8, "/system.slice/a.service", "/system.slice/a.service"),
        ] {
            let mut rows = vec![vec![cell.to_owned()]];
            leave_out_directories(&[heading(key)], &mut rows, &[Some(width)]);
            assert_eq!(rows, [[shown]], "{cell} in {width}");
        }
    }
}
