//! Draws the screen. Nothing here does I/O.

mod details;
mod header;
mod help;
mod layout;
mod palette;
mod pen;
mod plot;
mod setup;
mod status;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::bursts::News;
use super::canvas::{Area, Canvas};
use super::column::TopColumn;
use super::details::Details;
use super::model::Model;
use super::source::RecordingPosition;
use super::view::{self, View};
use crate::host::Host;
pub use layout::{layout, HeaderPart, Layout};
pub use palette::Palette;
use pen::Pen;
pub use table::Memory;

/// The width of bars that are printed.
const BARS_WIDTH: u16 = 100;

/// The most characters on a line of the header that is printed.
const MAX_HEADER_WIDTH: u16 = 2048;

/// Everything that is drawn.
pub struct Scene<'a> {
    pub view: &'a View,
    pub model: &'a Model,
    /// The columns of the table.
    pub shown: &'a [TopColumn],
    pub host: &'a Host,
    /// The machine at the previous sample.
    pub before: Option<&'a Host>,
    /// The time between the two samples.
    pub interval: Option<Duration>,
    pub news: &'a News,
    /// The position in a recording.
    pub at: Option<&'a RecordingPosition>,
    pub details: Option<&'a Details>,
    /// Why there is no newer sample.
    pub failure: Option<&'a str>,
    /// Whether the rows are a selection of all tasks.
    pub is_selected: bool,
    pub palette: Palette,
}

/// What drawing determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// The position of the terminal's cursor, if it is visible.
    pub cursor: Option<(u16, u16)>,
    /// The last line at which the page of help or details can begin.
    pub last_scroll: usize,
}

/// The width of bars in lines of text of this width, which may be any.
pub fn bars_width(width: Option<usize>) -> u16 {
    const MAX_BARS_WIDTH: usize = 1000;
    width.map_or(BARS_WIDTH, |width| width.min(MAX_BARS_WIDTH) as u16)
}

/// The header and all rows as lines of text of this width; without one, as long as they need to be.
pub fn lines(scene: &Scene<'_>, layout: &Layout, memory: &mut Memory, width: Option<usize>) -> Vec<String> {
    let most = width.map_or(MAX_HEADER_WIDTH, |width| width.min(MAX_HEADER_WIDTH.into()) as u16);
    let mut canvas = Canvas::new(most, layout.status + 1);
    let area = canvas.area;
    let bars = Area {
        width: most.min(bars_width(width)),
        ..area
    };
    for (number, &line) in (0..).zip(&layout.header) {
        let area = if line.has_bars() { bars } else { area };
        header::draw(&mut canvas, area, number, line, scene);
    }
    status::status(&mut canvas, area, layout.status, scene);
    let mut lines = canvas.lines();
    lines.extend(table::lines(scene, memory, width));
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Draws the screen.
pub fn draw(canvas: &mut Canvas, scene: &Scene<'_>, layout: &Layout, memory: &mut Memory) -> Drawn {
    let area = canvas.area;
    let mut drawn = Drawn::default();
    // On a page, questions are on the last line.
    let bottom = area.height.saturating_sub(1);
    let page = Area { height: bottom, ..area };
    let mut line = bottom;
    match &scene.view.screen {
        view::Screen::Table => {
            for (number, &line) in (0..).zip(&layout.header) {
                header::draw(canvas, area, number, line, scene);
            }
            table::draw(canvas, area, layout, scene, memory);
            if let Some(line) = layout.keys {
                status::keys(canvas, area, line, scene);
            }
            line = layout.status;
        }
        view::Screen::Setup(cursor) => drawn.last_scroll = setup::draw(canvas, page, *cursor, scene),
        view::Screen::Help(scroll) => drawn.last_scroll = help::draw(canvas, page, *scroll, scene),
        view::Screen::Details(target, kind, scroll) => {
            drawn.last_scroll = details::draw(canvas, page, (target, *kind, *scroll), scene.details, scene);
        }
    }
    match &scene.view.prompt {
        Some(prompt) => drawn.cursor = Some(status::prompt(canvas, area, line, prompt, scene.palette)),
        None if line < bottom || scene.view.message.is_some() => status::status(canvas, area, line, scene),
        None => position(&mut Pen::new(canvas, area, line), page.height, drawn.last_scroll, scene),
    }
    drawn
}

/// Writes which lines of a page are on the screen, if it has others.
fn position(pen: &mut Pen<'_>, height: u16, last: usize, scene: &Scene<'_>) {
    // The title stays.
    let room = usize::from(height.saturating_sub(2));
    let (first, count) = match scene.view.screen {
        view::Screen::Table => return,
        view::Screen::Setup(cursor) => ((cursor.min(last) + 1).saturating_sub(room), last + 1),
        view::Screen::Help(scroll) | view::Screen::Details(_, _, scroll) => (scroll.min(last), last + room),
    };
    if count > room {
        let lines = format!("lines {} to {} of {count}", first + 1, first + room);
        pen.put(&lines, scene.palette.dim());
    }
}
