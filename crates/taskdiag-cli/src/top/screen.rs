//! Converts the changed cells to text, and writes as much of it as the terminal takes.

use std::io;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Print, SetAttribute, SetStyle};
use crossterm::terminal::{Clear, ClearType, EnterAlternateScreen};
use crossterm::QueueableCommand as _;

use super::canvas::{Canvas, Style};
use super::terminal::{write, MOUSE_OFF, MOUSE_ON, PASTE_ON};
use crate::output::terminal;

/// The terminal on standard output.
#[derive(Debug, Default)]
pub struct Screen {
    /// Text that has not been written.
    text: Vec<u8>,
    /// The picture on the terminal, if it is known.
    shown: Option<Canvas>,
    /// Whether the terminal reports the mouse.
    has_mouse: bool,
}

impl Screen {
    /// Begins to draw on a terminal that has just been taken, or that others have used in between.
    pub fn begin(&mut self) -> io::Result<()> {
        self.text.clear();
        self.text.queue(EnterAlternateScreen)?.queue(Hide)?;
        self.text.extend_from_slice(PASTE_ON);
        self.has_mouse = false;
        self.clear();
        Ok(())
    }

    /// Makes the terminal report the mouse, or not.
    pub fn listen(&mut self, has_mouse: bool) {
        if self.has_mouse != has_mouse {
            self.text
                .extend_from_slice(if has_mouse { MOUSE_ON } else { MOUSE_OFF });
            self.has_mouse = has_mouse;
        }
    }

    /// Makes the next picture be drawn whole.
    pub fn clear(&mut self) {
        self.shown = None;
    }

    /// Whether there is text that the terminal has not taken yet.
    pub fn is_left(&self) -> bool {
        !self.text.is_empty()
    }

    /// A blank canvas of the terminal's size. A terminal that does not know its size counts as 80 by
    /// 24.
    pub fn canvas() -> Canvas {
        let size = terminal::size().unwrap_or(terminal::Size { columns: 80, rows: 24 });
        // A larger picture would only cost time.
        let at_most = |number: usize, most: u16| u16::try_from(number).unwrap_or(most).min(most);
        Canvas::new(at_most(size.columns, 500), at_most(size.rows, 200))
    }

    /// Draws a picture, with a cursor if it has a position.
    pub fn draw(&mut self, canvas: Canvas, cursor: Option<(u16, u16)>) -> io::Result<()> {
        let text = &mut self.text;
        // A terminal that knows this mode shows no half of a picture.
        text.extend_from_slice(b"\x1b[?2026h");
        let shown = match self.shown.take().filter(|shown| shown.area == canvas.area) {
            Some(shown) => shown,
            None => {
                text.queue(Clear(ClearType::All))?;
                Canvas::new(canvas.area.width, canvas.area.height)
            }
        };
        let mut before = Style::default();
        let mut expected = None;
        for (x, y, cell) in canvas.changes(&shown) {
            if expected != Some((x, y)) {
                text.queue(MoveTo(x, y))?;
            }
            if cell.style != before {
                text.queue(SetAttribute(Attribute::Reset))?
                    .queue(SetStyle(cell.style))?;
                before = cell.style;
            }
            let character = cell.character.unwrap_or(' ');
            text.queue(Print(character))?;
            if let Some(marks) = &cell.marks {
                text.queue(Print(marks))?;
            }
            // After a wide character, and where terminals disagree about widths, the cursor is
            // positioned again.
            let is_plain = character.is_ascii() && cell.marks.is_none();
            expected = is_plain.then_some((x + 1, y));
        }
        if before != Style::default() {
            text.queue(SetAttribute(Attribute::Reset))?;
        }
        match cursor {
            None => text.queue(Hide)?,
            Some((x, y)) => text.queue(Show)?.queue(MoveTo(x, y))?,
        };
        text.extend_from_slice(b"\x1b[?2026l");
        self.shown = Some(canvas);
        Ok(())
    }

    /// Writes as much as the terminal takes. [`Screen::is_left`] tells whether some is left.
    pub fn flush(&mut self) -> io::Result<()> {
        let written = write(&self.text)?;
        self.text.drain(..written);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use vt100::Parser;

    use super::*;

    /// Check that nothing of a picture remains on a terminal after the next one, whatever the
    /// widths of the characters in both.
    #[test]
    fn nothing_of_the_picture_before_is_left() {
        let texts = [
            "",
            "abcdefghijklmnopq",
            "中文字中文字中文字中文字",
            "a中文字中文字中文字中文字",
            "e\u{301}\u{301}\u{301}xe\u{301}",
            "x\u{301}中\u{301}y",
            "👨👩x👨👩",
            "a👨\u{1f3fd}bc",
            "♥\u{fe0f}♥\u{fe0f}x",
            "\u{1100}\u{1161}\u{11a8}x",
            "\u{fe0f}\u{301}x",
        ];
        let picture = |text: &str| {
            let mut canvas = Canvas::new(16, 2);
            for (line, text) in (0..).zip([text, "below"]) {
                canvas.put((0, line), 16, text, Style::new());
            }
            canvas
        };
        let show = |texts: &[&str]| {
            let (mut screen, mut parser) = (Screen::default(), Parser::new(2, 16, 0));
            for text in texts {
                screen.draw(picture(text), None).expect("memory");
                let is_one = screen.text.starts_with(b"\x1b[?2026h") && screen.text.ends_with(b"\x1b[?2026l");
                assert!(is_one, "{:?}", screen.text);
                parser.process(&std::mem::take(&mut screen.text));
            }
            let rows = parser.screen().rows(0, 16);
            rows.map(|row| row.trim_end().to_owned()).collect::<Vec<_>>()
        };
        for before in texts {
            for after in texts {
                let (drawn, anew) = (show(&[before, after]), show(&[after]));
                assert_eq!(drawn, anew, "{after:?} after {before:?}");
            }
        }
    }
}
