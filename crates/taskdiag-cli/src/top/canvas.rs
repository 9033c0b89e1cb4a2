//! A picture made of cells, and what is different in the next one.

use std::ops::Range;

use crossterm::style::Attributes;
pub use crossterm::style::ContentStyle as Style;
use unicode_width::UnicodeWidthChar as _;

use super::keys::Action;
use crate::output::text::changes_the_display;

/// Some lines of a canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The first line.
    pub y: u16,
    pub width: u16,
    pub height: u16,
}

/// One column of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The second column of a wide character has none.
    pub character: Option<char>,
    /// Characters that need no column of their own, such as accents. Most cells have none, and
    /// those are compared faster than empty texts.
    pub marks: Option<String>,
    pub style: Style,
}

impl Cell {
    const BLANK: Cell = Cell {
        character: Some(' '),
        marks: None,
        style: Style {
            foreground_color: None,
            background_color: None,
            underline_color: None,
            attributes: Attributes::none(),
        },
    };

    /// Adds to the style of the cell.
    fn add(&mut self, style: Style) {
        let own = &mut self.style;
        own.foreground_color = style.foreground_color.or(own.foreground_color);
        own.background_color = style.background_color.or(own.background_color);
        own.attributes.extend(style.attributes);
    }
}

/// The characters of a text that are drawn, each with its columns. A terminal obeys some of the
/// others, and terminals disagree about what variation selectors do to the width of a character.
fn drawn(text: &str) -> impl Iterator<Item = (char, u16)> + '_ {
    let is_drawn = |&character: &char| !changes_the_display(character) && !matches!(character, '\u{fe0e}' | '\u{fe0f}');
    let characters = text.chars().filter(is_drawn);
    characters.filter_map(|character| Some((character, character.width()? as u16)))
}

/// The number of columns that a text needs.
pub fn width(text: &str) -> usize {
    drawn(text).map(|(_, width)| usize::from(width)).sum()
}

/// A part of a line, and what a click on it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    pub line: u16,
    pub columns: Range<u16>,
    pub action: Action,
}

/// The cells of a screen.
#[derive(Debug)]
pub struct Canvas {
    pub area: Area,
    cells: Vec<Cell>,
    /// Where clicks have an effect.
    pub spots: Vec<Spot>,
}

impl Canvas {
    /// A blank one.
    pub fn new(width: u16, height: u16) -> Canvas {
        Canvas {
            area: Area { y: 0, width, height },
            spots: Vec::new(),
            cells: vec![Cell::BLANK; usize::from(width) * usize::from(height)],
        }
    }

    fn line(&mut self, y: u16) -> &mut [Cell] {
        let width = usize::from(self.area.width);
        &mut self.cells[usize::from(y) * width..][..width]
    }

    /// Writes as much of a text as fits before the column `end`, and returns the column after it.
    pub fn put(&mut self, (mut x, y): (u16, u16), end: u16, text: &str, style: Style) -> u16 {
        let line = self.line(y);
        let mut last = None;
        for (character, width) in drawn(text) {
            if width == 0 {
                if let Some(last) = last {
                    line[usize::from(last)].marks.get_or_insert_default().push(character);
                }
                continue;
            }
            if x + width > end {
                break;
            }
            let (first, after) = (usize::from(x), usize::from(x + width));
            // Nothing is left of a wide character of which only one half is visible.
            if line[first].character.is_none() {
                line[first - 1].character = Some(' ');
                line[first - 1].marks = None;
            }
            if let Some(half @ Cell { character: None, .. }) = line.get_mut(after) {
                half.character = Some(' ');
            }
            line[first].character = Some(character);
            line[first].marks = None;
            line[first].add(style);
            line[first + 1..after].fill(Cell {
                character: None,
                ..Cell::BLANK
            });
            (last, x) = (Some(x), x + width);
        }
        x
    }

    /// Adds to the style of columns.
    pub fn paint(&mut self, (x, y): (u16, u16), end: u16, style: Style) {
        for cell in &mut self.line(y)[usize::from(x)..usize::from(end)] {
            cell.add(style);
        }
    }

    /// The cells to draw on a terminal that shows a picture of the same size. A wide character draws
    /// its second column.
    pub fn changes<'a>(&'a self, before: &'a Canvas) -> impl Iterator<Item = (u16, u16, &'a Cell)> {
        let width = usize::from(self.area.width);
        let cells = self.cells.iter().zip(&before.cells).enumerate();
        cells
            .filter(|(_, (cell, before))| cell != before && cell.character.is_some())
            .map(move |(index, (cell, _))| ((index % width) as u16, (index / width) as u16, cell))
    }

    /// The lines as text, which has a space for the second column of a wide character.
    pub fn lines(&self) -> Vec<String> {
        let add = |mut line: String, cell: &Cell| {
            line.push(cell.character.unwrap_or(' '));
            line + cell.marks.as_deref().unwrap_or_default()
        };
        let lines = self.cells.chunks(self.area.width.into());
        lines.map(|cells| cells.iter().fold(String::new(), add)).collect()
    }
}

#[cfg(test)]
mod tests {
    use crossterm::style::Stylize as _;

    use super::*;

    /// Check that a text needs as many columns as its width says, and that nothing is drawn of what
    /// a terminal obeys.
    #[test]
    fn texts_have_a_width() {
        for (text, drawn) in [
            ("abc", "abc"),
            ("a日b", "a日 b"),
            ("e\u{301}\u{308}x", "e\u{301}\u{308}x"),
            ("\u{301}x", "x"),
            ("♥\u{fe0f}\u{200b}\x1b[m\u{9b}x\u{202e}\n", "♥[mx"),
        ] {
            let mut canvas = Canvas::new(8, 1);
            let end = canvas.put((0, 0), 8, text, Style::new());
            assert_eq!(usize::from(end), width(text), "{text:?}");
            assert_eq!(canvas.lines()[0].trim_end(), drawn);
        }
    }

    /// Check that no half of a wide character stays beside what was written over the other one.
    #[test]
    fn wide_characters_are_whole() {
        for (x, text, drawn) in [
            (1, "x", " x本\u{301} "),
            (2, "x", "日\u{301} x "),
            (1, "中", " 中  "),
            (3, "x", "日\u{301}  x"),
        ] {
            let mut canvas = Canvas::new(4, 1);
            canvas.put((0, 0), 4, "日\u{301}本\u{301}", Style::new());
            canvas.put((x, 0), 4, text, Style::new());
            assert_eq!(canvas.lines(), [drawn]);
        }
    }

    /// Check that only what is different is drawn, and that styles are a difference.
    #[test]
    fn differences_are_drawn() {
        let picture = |text: &str| {
            let mut canvas = Canvas::new(6, 2);
            canvas.put((0, 1), 6, text, Style::new());
            canvas
        };
        let changes = |now: &Canvas, before: &str| -> Vec<(u16, u16)> {
            now.changes(&picture(before)).map(|(x, y, _)| (x, y)).collect()
        };
        assert_eq!(changes(&picture("abc"), "abc"), []);
        assert_eq!(changes(&picture("abc"), "axc "), [(1, 1)]);
        assert_eq!(changes(&picture("日c"), "abc"), [(0, 1)]);
        assert_eq!(changes(&picture("abc"), "日c"), [(0, 1), (1, 1)]);
        assert_eq!(changes(&picture("e\u{301}b"), "eb"), [(0, 1)]);
        let mut painted = picture("日c");
        painted.paint((1, 1), 4, Style::new().bold());
        assert_eq!(changes(&painted, "日c"), [(2, 1), (3, 1)]);
    }
}
