//! The pages about one process.

use taskdiag::{Absent, Field, Identity, Task};

use super::pen::Pen;
use super::plot::plot;
use super::{Palette, Scene};
use crate::inspect::{self, Section, Shape, Texts, NAMESPACES, PATHS, SECTIONS};
use crate::output::cell::{formatted, Cells};
use crate::output::owned::OwnedValue;
use crate::output::relation::Row as _;
use crate::output::table::end;
use crate::output::{people, tasks, text};
use crate::top::canvas::{self, Area, Canvas, Style};
use crate::top::details::{Activity, Details, Lists};
use crate::top::keys::Action;
use crate::top::page::Page;
use crate::top::rows::{Id, Target};
use crate::top::trend::{Trends, LENGTH};
use crate::top::view::Table as _;
use crate::watch::Rate;

/// The fields of the first page, in sections: those of `inspect`, without the section that needs a
/// walk of page tables.
fn sections() -> Vec<(&'static str, Vec<Field>)> {
    let sections = SECTIONS.into_iter().filter_map(|(section, info)| match info.shape {
        _ if section == Section::Namespaces => Some((info.title, NAMESPACES.map(|(_, field)| field).to_vec())),
        Shape::Fields(fields) if section != Section::Rollup => Some((info.title, fields.to_vec())),
        _ => None,
    });
    sections.collect()
}

/// A line of a page: pieces of text with their styles.
type Line = Vec<(String, Style)>;

/// Draws a page. Returns the last line at which the screen can begin.
pub fn draw(
    canvas: &mut Canvas,
    area: Area,
    (target, page, scroll): (&Target, Page, usize),
    details: Option<&Details>,
    scene: &Scene<'_>,
) -> usize {
    title(canvas, area, target, page, scene.palette);
    let details = details.filter(|details| details.target == *target);
    let body = Area {
        y: area.y + area.height.min(2),
        height: area.height.saturating_sub(2),
        ..area
    };
    let lines = match details {
        None => Vec::new(),
        Some(Details {
            process: Err(reason), ..
        }) => vec![vec![(sentence(reason), scene.palette.error())]],
        Some(details) => lines(page, details, target, body, scene),
    };
    let last = lines.len().saturating_sub(usize::from(body.height));
    for (number, line) in (0..body.height).zip(lines.iter().skip(scroll.min(last))) {
        let mut pen = Pen::new(canvas, body, number);
        let mut skipped = scene.view.shift;
        for (text, style) in line {
            let begin = text.char_indices().nth(skipped).map_or(text.len(), |(index, _)| index);
            skipped -= text[..begin].chars().count();
            pen.put(&text[begin..], *style);
        }
    }
    last
}

fn sentence(reason: &str) -> String {
    text::escaped(&reason.replace('\n', "; "))
}

fn title(canvas: &mut Canvas, area: Area, target: &Target, page: Page, palette: Palette) {
    let title = format!("{} {}", target.pid, text::escaped(&target.name));
    Pen::new(canvas, area, 0).title(&title, "Tab: next", palette);
    let mut pen = Pen::new(canvas, area, 1);
    // The page that is shown has its name on the screen.
    let mut others = Page::ALL.as_slice();
    let end = |pages: &[Page]| -> usize {
        let named = pages.iter().take_while(|other| **other != page).chain([&page]);
        named.map(|other| other.title().len() + 2).sum()
    };
    while end(others) > pen.room() && others.len() > 1 {
        others = &others[1..];
    }
    for &other in others {
        let style = if other == page { palette.heading() } else { Style::new() };
        let begin = pen.x;
        let title = format!(" {} ", other.title());
        if pen.room() < title.len() {
            break;
        }
        pen.put(&title, style);
        pen.spot(begin, Action::Open(other));
    }
}

fn lines(page: Page, details: &Details, target: &Target, body: Area, scene: &Scene<'_>) -> Vec<Line> {
    let snapshot = details.process.as_ref().ok();
    let Some(task) = snapshot.and_then(|snapshot| snapshot.tasks().next()) else {
        return Vec::new();
    };
    let palette = scene.palette;
    match page {
        Page::Process => process(&task, palette),
        Page::History => history(target.identity, details.activity, body, scene),
        _ => match &details.lists {
            None => Vec::new(),
            Some(Err(reason)) => vec![vec![(sentence(reason), palette.error())]],
            // What is cut can be scrolled to.
            Some(Ok(found)) if scene.view.shift > 0 => lists(found, usize::MAX, palette),
            Some(Ok(found)) => lists(found, body.width.into(), palette),
        },
    }
}

fn process(task: &Task<'_>, palette: Palette) -> Vec<Line> {
    let mut forms = [true, false].map(|named| Cells::new(false, named));
    let sections = sections();
    let fields = sections.iter().flat_map(|(_, fields)| fields.iter());
    let width = fields.map(|field| field.name().len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (section, fields) in &sections {
        if !lines.is_empty() {
            lines.push(Vec::new());
        }
        lines.push(vec![((*section).to_owned(), palette.value())]);
        for &field in fields {
            let cell = task.cell(field as usize).map(OwnedValue::new);
            let style = if cell.is_ok() { Style::new() } else { palette.dim() };
            for (name, text) in inspect::described(&tasks::RELATION[field as usize], &cell, &mut forms) {
                lines.push(vec![(format!("{name:width$} "), palette.label()), (text, style)]);
            }
        }
    }
    lines
}

/// The lines of the lists of a page, after what is missing in them.
fn lists(lists: &Lists, width: usize, palette: Palette) -> Vec<Line> {
    let mut lines = Vec::new();
    if !lists.missing.is_empty() {
        lines.push(vec![(format!("not all: {}", lists.missing), palette.warning())]);
    }
    for texts in &lists.lists {
        lines.extend(list(texts, width, palette));
        if texts.1.is_empty() && lists.missing.is_empty() {
            lines.push(vec![("none".to_owned(), palette.dim())]);
        }
    }
    lines
}

/// The lines of a list: the headings, and a line for each row. Of a path in the last column, the end is
/// shown where there is no room in this width.
fn list((columns, rows): &Texts, limit: usize, palette: Palette) -> Vec<Line> {
    // Units are in the cells.
    let headings = columns.iter().map(|(name, _)| {
        let short = name.strip_suffix("_bytes").or_else(|| name.strip_suffix("_count"));
        short.unwrap_or(name).to_uppercase()
    });
    let headings: Vec<String> = headings.collect();
    let width = |at: usize| {
        let texts = rows
            .iter()
            .filter_map(|row| row.get(at))
            .map(|text| canvas::width(text));
        texts.chain([headings[at].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let before: usize = widths.iter().rev().skip(1).map(|width| width + 1).sum();
    let room = limit.saturating_sub(before).max(1);
    let shown = |at: usize, text: &str| match columns[at].0 {
        PATHS if at > 0 && canvas::width(text) > room => format!("<{}", end(text, room - 1)),
        _ => text.to_owned(),
    };
    let aligned = |at: usize, text: &str| {
        let padding = " ".repeat(widths[at].saturating_sub(canvas::width(text)));
        if columns[at].1 {
            format!("{padding}{text} ")
        } else {
            format!("{text}{padding} ")
        }
    };
    let heading = headings.iter().enumerate().map(|(at, heading)| aligned(at, heading));
    let mut lines = vec![vec![(heading.collect(), palette.heading())]];
    for row in rows {
        let line = row.iter().enumerate().map(|(at, text)| {
            let style = if at == 0 { palette.label() } else { Style::new() };
            (aligned(at, &shown(at, text)), style)
        });
        lines.push(line.collect());
    }
    lines
}

/// Plots of what the process did in the last samples.
fn history(identity: Identity, activity: Option<Activity>, body: Area, scene: &Scene<'_>) -> Vec<Line> {
    let palette = scene.palette;
    let width = usize::from(body.width).min(LENGTH);
    let height = (usize::from(body.height) / 4).clamp(3, 12) - 1;
    let model = scene.model;
    let bytes = |kib: &Trends<Identity, u32>| -> Vec<f64> {
        let kib = kib.of(&identity, width).into_iter();
        kib.map(|kib| f64::from(kib) * 1024.0).collect()
    };
    let tenths = model.trends.of(&identity, width).into_iter();
    let percent: Vec<f64> = tenths.map(|tenths| f64::from(tenths) / 10.0).collect();
    let plots = [
        ("processor time, %", percent, 100.0),
        ("resident memory", bytes(&model.sizes), 0.0),
        ("read from storage, a second", bytes(&model.reads), 0.0),
        ("written to storage, a second", bytes(&model.writes), 0.0),
    ];
    let row = model.position(&Id::Task(identity)).and_then(|row| model.row(row));
    let no_memory = row
        .and_then(|row| row.task.rss_bytes().err())
        .filter(|&reason| reason == Absent::NoMemory);
    // Why the current value of a plot is not known.
    let missing = |index: usize| {
        if index == 1 && no_memory.is_some() {
            return no_memory.map(Absent::as_str);
        }
        let rate = [None, None, Some(Rate::ReadBytes), Some(Rate::WriteBytes)][index]?;
        activity?[rate as usize].err()
    };
    let mut lines = Vec::new();
    for (index, (title, values, least)) in plots.into_iter().enumerate() {
        let most = values.iter().copied().fold(least, f64::max);
        let now = values.last().copied().unwrap_or(0.0);
        let number = |value: f64| {
            if index == 0 {
                format!("{value:.1}")
            } else {
                people::size_text(value as u64)
            }
        };
        let heading = match missing(index) {
            Some(reason) => format!("{title}: {reason}"),
            None => format!(
                "{title}: now {}, the most {}",
                number(now),
                number(values.iter().copied().fold(0.0, f64::max))
            ),
        };
        let heading = if canvas::width(&heading) > usize::from(body.width) {
            title.to_owned()
        } else {
            heading
        };
        lines.push(vec![(heading, palette.label())]);
        for line in plot(&values, most, width, height, palette.utf8) {
            lines.push(vec![(line, palette.green())]);
        }
    }
    let seconds = scene.view.delay.as_secs_f64();
    let note = text::written(|out| match scene.at {
        Some(_) => {
            out.extend_from_slice(b"one column is a sample of the recording; memory, reads and writes: while shown")
        }
        None => formatted(
            out,
            format_args!("one column is a sample; {seconds} s between two; memory, reads and writes: while shown"),
        ),
    });
    lines.push(vec![(note, palette.dim())]);
    lines
}
