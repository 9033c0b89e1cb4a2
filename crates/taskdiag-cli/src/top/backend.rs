//! Converts the changed cells to text, and writes as much of it as the terminal takes.

use std::io;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Color as Ansi, Print, SetAttribute, SetBackgroundColor, SetForegroundColor};
use crossterm::terminal::{Clear, ClearType, EnterAlternateScreen};
use crossterm::QueueableCommand as _;
use ratatui_core::backend::{Backend, ClearType as Region, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};

use super::terminal::write;
use crate::output::terminal;

/// The terminal on standard output. A terminal that does not know its size counts as 80 by 24.
#[derive(Debug, Default)]
pub struct Screen {
    /// Text that has not been written.
    text: Vec<u8>,
    cursor: Position,
}

/// The colours of the terminal's palette, which its user chose.
fn ansi(color: Color) -> Ansi {
    match color {
        Color::Black => Ansi::Black,
        Color::Red => Ansi::DarkRed,
        Color::Green => Ansi::DarkGreen,
        Color::Yellow => Ansi::DarkYellow,
        Color::Blue => Ansi::DarkBlue,
        Color::Magenta => Ansi::DarkMagenta,
        Color::Cyan => Ansi::DarkCyan,
        Color::Gray => Ansi::Grey,
        Color::DarkGray => Ansi::DarkGrey,
        Color::White => Ansi::White,
        _ => Ansi::Reset,
    }
}

const ATTRIBUTES: [(Modifier, Attribute); 4] = [
    (Modifier::BOLD, Attribute::Bold),
    (Modifier::DIM, Attribute::Dim),
    (Modifier::REVERSED, Attribute::Reverse),
    (Modifier::UNDERLINED, Attribute::Underlined),
];

/// The look of the last cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Look {
    fg: Color,
    bg: Color,
    modifier: Modifier,
}

impl Look {
    fn write(self, text: &mut Vec<u8>) -> io::Result<()> {
        text.queue(SetAttribute(Attribute::Reset))?;
        for (modifier, attribute) in ATTRIBUTES {
            if self.modifier.contains(modifier) {
                text.queue(SetAttribute(attribute))?;
            }
        }
        if self.fg != Color::Reset {
            text.queue(SetForegroundColor(ansi(self.fg)))?;
        }
        if self.bg != Color::Reset {
            text.queue(SetBackgroundColor(ansi(self.bg)))?;
        }
        Ok(())
    }
}

impl Screen {
    /// Begins to draw on a terminal that has just been taken, or that others have used in between.
    pub fn begin(&mut self) -> io::Result<()> {
        self.text.clear();
        self.text.queue(EnterAlternateScreen)?;
        self.hide_cursor()
    }

    /// Whether there is text that the terminal has not taken yet.
    pub fn is_left(&self) -> bool {
        !self.text.is_empty()
    }
}

impl Backend for Screen {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut before = Look::default();
        let mut expected = None;
        for (x, y, cell) in content {
            if expected != Some((x, y)) {
                self.text.queue(MoveTo(x, y))?;
            }
            let look = Look {
                fg: cell.fg,
                bg: cell.bg,
                modifier: cell.modifier,
            };
            if look != before {
                look.write(&mut self.text)?;
                before = look;
            }
            self.text.queue(Print(cell.symbol()))?;
            // After a wide character, and where terminals disagree about widths, the cursor is
            // positioned again.
            expected = (cell.symbol().len() == 1).then_some((x + 1, y));
        }
        if before != Look::default() {
            self.text.queue(SetAttribute(Attribute::Reset))?;
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.text.queue(Hide)?;
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.text.queue(Show)?;
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.cursor = position.into();
        self.text.queue(MoveTo(self.cursor.x, self.cursor.y))?;
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.text.queue(Clear(ClearType::All))?;
        Ok(())
    }

    fn clear_region(&mut self, region: Region) -> io::Result<()> {
        self.text.queue(Clear(match region {
            Region::All => ClearType::All,
            Region::AfterCursor => ClearType::FromCursorDown,
            Region::BeforeCursor => ClearType::FromCursorUp,
            Region::CurrentLine => ClearType::CurrentLine,
            Region::UntilNewLine => ClearType::UntilNewLine,
        }))?;
        Ok(())
    }

    fn size(&self) -> io::Result<Size> {
        let size = terminal::size().unwrap_or(terminal::Size { columns: 80, rows: 24 });
        // A larger picture would only cost time.
        let at_most = |number: usize, most: u16| u16::try_from(number).unwrap_or(most).min(most);
        Ok(Size::new(at_most(size.columns, 500), at_most(size.rows, 200)))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size()?,
            pixels: Size::default(),
        })
    }

    /// Writes as much as the terminal takes. [`Screen::is_left`] tells whether some is left.
    fn flush(&mut self) -> io::Result<()> {
        let written = write(&self.text)?;
        self.text.drain(..written);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ratatui_core::buffer::Buffer;
    use ratatui_core::layout::Rect;
    use ratatui_core::style::Style;
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
            let mut buffer = Buffer::empty(Rect::new(0, 0, 16, 2));
            for (line, text) in [text, "below"].into_iter().enumerate() {
                buffer.set_stringn(0, line as u16, text, 16, Style::new());
            }
            buffer
        };
        let show = |pictures: &[Buffer]| {
            let (mut screen, mut parser) = (Screen::default(), Parser::new(2, 16, 0));
            let mut before = Buffer::empty(Rect::new(0, 0, 16, 2));
            for picture in pictures {
                screen.draw(before.diff(picture).into_iter()).expect("memory");
                parser.process(&std::mem::take(&mut screen.text));
                before = picture.clone();
            }
            let rows = parser.screen().rows(0, 16);
            rows.map(|row| row.trim_end().to_owned()).collect::<Vec<_>>()
        };
        for before in texts {
            for after in texts {
                let (drawn, anew) = (show(&[picture(before), picture(after)]), show(&[picture(after)]));
                assert_eq!(drawn, anew, "{after:?} after {before:?}");
            }
        }
    }
}
