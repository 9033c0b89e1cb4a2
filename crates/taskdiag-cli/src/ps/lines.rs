//! Lines in the layout of ps(1).
//!
//! Columns have fixed widths. A number that is wider than its column shifts the rest of its line to
//! the right. The following columns give up padding until the line is aligned again. Text is either
//! cut to the width of its column or shifts the rest like a number, depending on the specifier. In
//! the last column, text is cut at the edge of the screen, except for names of users and groups.

use std::io;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::specifiers::Justify;
use crate::output::terminal::{is_colored, Style};
use crate::output::Output;

/// Alignment and width of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnLayout {
    /// Its alignment.
    pub justify: Justify,
    /// Its width. `None`: as wide as its widest cell.
    pub width: Option<usize>,
}

/// The minimum width of the last column, however narrow the screen is.
const MIN_LAST_WIDTH: usize = 3;

/// How long lines are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    /// Lines never end early.
    Endless,
    /// Lines end at this column. A line whose fixed columns are wider wraps, and ends at the edge
    /// of its last row on the screen, as in ps.
    Wraps(usize),
    /// Lines always end at this column.
    Cuts(usize),
}

impl Screen {
    /// Whether columns are wider by `more` in all where they need no more rows of the screen for it.
    pub fn has_room(self, places: &[ColumnLayout], more: usize) -> bool {
        let Some((last, before)) = places.split_last() else {
            return true;
        };
        let last = match last.justify {
            Justify::Left => MIN_LAST_WIDTH,
            _ => last.width.unwrap_or(0),
        };
        let width = before.iter().map(|place| place.width.unwrap_or(0) + 1).sum::<usize>() + last;
        let room = match self {
            Screen::Endless => usize::MAX,
            Screen::Cuts(columns) => columns,
            Screen::Wraps(columns) => width.div_ceil(columns.max(1)) * columns.max(1),
        };
        width + more <= room
    }

    /// The column where the last column ends.
    fn end(self, widths: &[usize]) -> usize {
        match self {
            Screen::Endless => usize::MAX,
            Screen::Cuts(columns) => columns,
            Screen::Wraps(columns) => {
                let before_last = &widths[..widths.len() - 1];
                let least = before_last.iter().map(|width| width + 1).sum::<usize>() + MIN_LAST_WIDTH;
                least.div_ceil(columns.max(1)) * columns.max(1)
            }
        }
    }
}

/// Lines that are collected cell by cell and written together, or as soon as they are long if no
/// width depends on later ones.
#[derive(Debug)]
pub struct Lines {
    places: Vec<ColumnLayout>,
    bytes: Vec<u8>,
    /// The end of each cell.
    ends: Vec<usize>,
    has_header: bool,
    /// How many lines were written, without the header.
    written: usize,
}

/// Lines of this many bytes are written if they can be: command lines may have megabytes each.
const LONG: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

impl Lines {
    /// Starts without lines. With `has_header`, the first line will be the header.
    pub fn new(places: Vec<ColumnLayout>, has_header: bool) -> Lines {
        Lines {
            places,
            bytes: Vec::new(),
            ends: Vec::new(),
            has_header,
            written: 0,
        }
    }

    /// Appends the next cell. `write` appends its text.
    pub fn cell(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// How many bytes are not written yet.
    pub fn kept(&self) -> usize {
        self.bytes.len()
    }

    /// Ends a line. Writes the lines if they are long and can be written.
    pub fn end_line(&mut self, output: &mut Output, screen: Screen, rows: Option<usize>) -> io::Result<()> {
        if self.bytes.len() > LONG && self.places.iter().all(|place| place.width.is_some()) {
            self.write_lines(output, screen, rows)?;
        }
        Ok(())
    }

    /// Writes all lines. With `rows`, the header is repeated on each page of that many lines.
    pub fn write(mut self, output: &mut Output, screen: Screen, rows: Option<usize>) -> io::Result<()> {
        self.write_lines(output, screen, rows)
    }

    /// Writes the lines so far, and keeps the header.
    fn write_lines(&mut self, output: &mut Output, screen: Screen, rows: Option<usize>) -> io::Result<()> {
        let widths = self.widths();
        let count = self.places.len();
        let cells_of = |line: usize| -> Vec<&[u8]> {
            let cell = |index: usize| {
                let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
                &self.bytes[start..self.ends[index]]
            };
            (line * count..(line + 1) * count).map(cell).collect()
        };
        let body = usize::from(self.has_header);
        // A page of one line has no room for rows. As in ps, the header is then printed once.
        let page = rows
            .map(|rows| rows.saturating_sub(1))
            .filter(|&page| page > 0 && self.has_header);
        let header = |output: &mut Output| {
            if self.has_header {
                let out = &mut output.buffer;
                Style::Bold.apply(out, is_colored(), |out| {
                    self.line(out, &widths, &cells_of(0), None, screen);
                });
                out.push(b'\n');
            }
        };
        let end = screen.end(&widths);
        for line in body..self.ends.len() / count {
            let before = self.written + line - body;
            let starts_page = match page {
                Some(page) => before % page == 0,
                None => before == 0,
            };
            if starts_page {
                header(output);
            }
            let out = &mut output.buffer;
            self.line(out, &widths, &cells_of(line), Some(end), screen);
            out.push(b'\n');
            output.row_ended()?;
        }
        let written = self.ends.len() / count - body;
        if self.written + written == 0 {
            header(output);
        }
        self.written += written;
        self.ends.truncate(count * body);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        Ok(())
    }

    /// The width of each column.
    fn widths(&self) -> Vec<usize> {
        let count = self.places.len();
        let mut widths: Vec<usize> = self.places.iter().map(|place| place.width.unwrap_or(0)).collect();
        let mut start = 0;
        for (index, &end) in self.ends.iter().enumerate() {
            let column = index % count;
            if self.places[column].width.is_none() {
                widths[column] = widths[column].max(width_of(&self.bytes[start..end]));
            }
            start = end;
        }
        widths
    }

    /// Appends one line, which ends at `end`. `None` for a header, which is never cut.
    fn line(&self, out: &mut Vec<u8>, widths: &[usize], cells: &[&[u8]], end: Option<usize>, screen: Screen) {
        let start = out.len();
        let last = cells.len() - 1;
        let (is_header, end) = (end.is_none(), end.unwrap_or(usize::MAX));
        // The position in the line, and the position if all earlier cells had fitted.
        let (mut at, mut place) = (0, 0);
        for (index, (&text, (&width, column))) in cells.iter().zip(widths.iter().zip(&self.places)).enumerate() {
            let mut is_cut = false;
            let (text, taken) = match (column.justify, column.width, index == last) {
                _ if is_header => (text, width_of(text)),
                (Justify::Left, _, true) => prefix(text, end.saturating_sub(place.max(at))),
                (Justify::Left, Some(_), false) => prefix(text, width),
                (Justify::Name, Some(_), false) if width_of(text) > width => {
                    is_cut = true;
                    prefix(text, width.saturating_sub(1))
                }
                _ => (text, width_of(text)),
            };
            let begin = match column.justify {
                Justify::Right => (place + width.saturating_sub(taken)).max(at),
                Justify::RightIn(width) => (place + width.saturating_sub(taken)).max(at),
                Justify::Left | Justify::Name | Justify::Whole => place.max(at),
            };
            out.resize(out.len() + begin - at, b' ');
            out.extend_from_slice(text);
            at = begin + taken;
            if is_cut {
                out.push(b'+');
                at += 1;
            }
            if index != last {
                out.push(b' ');
                at += 1;
            }
            place += width + 1;
        }
        if let Screen::Cuts(columns) = screen {
            let len = prefix(&out[start..], columns).0.len();
            out.truncate(start + len);
        }
    }
}

/// The width of a text on a screen.
fn width_of(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    std::str::from_utf8(text).map_or(text.len(), UnicodeWidthStr::width)
}

/// The longest prefix that is at most `width` wide, and its width.
pub fn prefix(text: &[u8], width: usize) -> (&[u8], usize) {
    if text.is_ascii() {
        let text = &text[..text.len().min(width)];
        return (text, text.len());
    }
    let Ok(characters) = std::str::from_utf8(text) else {
        let text = &text[..text.len().min(width)];
        return (text, text.len());
    };
    let mut taken = 0;
    for (at, character) in characters.char_indices() {
        let more = character.width().unwrap_or(0);
        if taken + more > width {
            return (&text[..at], taken);
        }
        taken += more;
    }
    (text, taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(
        places: &[ColumnLayout],
        cells: &[&str],
        header: bool,
        columns: Option<usize>,
        rows: Option<usize>,
    ) -> String {
        let mut lines = Lines::new(places.to_vec(), header);
        for text in cells {
            lines.cell(|out| out.extend_from_slice(text.as_bytes()));
        }
        let mut output = Output::default();
        let screen = columns.map_or(Screen::Endless, Screen::Wraps);
        lines.write(&mut output, screen, rows).expect("nothing is written yet");
        String::from_utf8(std::mem::take(&mut output.buffer)).expect("the cells are UTF-8")
    }

    const fn place(justify: Justify, width: usize) -> ColumnLayout {
        ColumnLayout {
            justify,
            width: Some(width),
        }
    }

    const NUMBER: ColumnLayout = place(Justify::Right, 5);
    const TEXT: ColumnLayout = place(Justify::Left, 5);
    const NAME: ColumnLayout = place(Justify::Name, 5);

    /// Check that a number that is too long shifts what follows no further than necessary.
    #[test]
    fn long_numbers_use_up_the_padding_behind_them() {
        let line = |cells: &[&str]| written(&[NUMBER, NUMBER, TEXT, NUMBER], cells, false, None, None);
        assert_eq!(line(&["1", "22", "abc", "4"]), "    1    22 abc       4\n");
        assert_eq!(line(&["1234567", "22", "abc", "4"]), "1234567  22 abc       4\n");
        assert_eq!(line(&["123456789", "22", "abc", "4"]), "123456789 22 abc      4\n");
        assert_eq!(
            line(&["123456789", "22", "abcde", "55555"]),
            "123456789 22 abcde 55555\n"
        );
    }

    /// Check that text is cut to its column, names with a mark, and that the last column extends to
    /// the end of the screen.
    #[test]
    fn text_is_cut_unless_it_is_last() {
        let line = |columns| {
            written(
                &[TEXT, NAME, TEXT],
                &["abcdefg", "abcdefg", "abcdefg"],
                false,
                columns,
                None,
            )
        };
        assert_eq!(line(None), "abcde abcd+ abcdefg\n");
        assert_eq!(line(Some(15)), "abcde abcd+ abc\n");
        assert_eq!(line(Some(17)), "abcde abcd+ abcde\n");
        // Three characters do not fit: the line wraps.
        assert_eq!(line(Some(14)), "abcde abcd+ abcdefg\n");
        assert_eq!(line(Some(8)), "abcde abcd+ abcd\n");
        assert_eq!(line(Some(0)), "abcde abcd+ abc\n");
        assert_eq!(
            written(&[TEXT, NUMBER], &["日本語", "1"], false, None, None),
            "日本      1\n"
        );
        assert_eq!(
            written(&[NAME, NUMBER], &["abcde", "1"], false, None, None),
            "abcde     1\n"
        );
    }

    /// Check that nothing is wider than a terminal, not even the header.
    #[test]
    fn terminals_cut_all_lines() {
        let written = |columns| {
            let mut lines = Lines::new(vec![NUMBER, NUMBER, TEXT], true);
            for text in ["PID", "PPID", "COMMAND", "1", "2", "日本語"] {
                lines.cell(|out| out.extend_from_slice(text.as_bytes()));
            }
            let mut output = Output::default();
            lines
                .write(&mut output, Screen::Cuts(columns), None)
                .expect("nothing is written yet");
            String::from_utf8(std::mem::take(&mut output.buffer)).expect("the cells are UTF-8")
        };
        assert_eq!(written(30), "  PID  PPID COMMAND\n    1     2 日本語\n");
        assert_eq!(written(17), "  PID  PPID COMMA\n    1     2 日本\n");
        assert_eq!(written(8), "  PID  P\n    1   \n");
        assert_eq!(written(0), "\n\n");
    }

    /// Check that long lines are written when they come if their widths are known, with a header on
    /// each page, and that what is written is the same as all at once.
    #[test]
    fn long_lines_are_not_kept() {
        let long = "x".repeat(LONG / 3);
        for (places, page, is_kept) in [
            ([NUMBER, TEXT], None, false),
            ([NUMBER, TEXT], Some(4), false),
            (
                [
                    NUMBER,
                    ColumnLayout {
                        justify: Justify::Left,
                        width: None,
                    },
                ],
                None,
                true,
            ),
        ] {
            let mut all = vec!["PID".to_owned(), "COMMAND".to_owned()];
            let (mut lines, mut output) = (Lines::new(places.to_vec(), true), Output::default());
            all.iter()
                .for_each(|text| lines.cell(|out| out.extend_from_slice(text.as_bytes())));
            let mut most = 0;
            for number in 0..20 {
                for text in [number.to_string(), long.clone()] {
                    lines.cell(|out| out.extend_from_slice(text.as_bytes()));
                    all.push(text);
                }
                // Nothing reaches standard output.
                lines.end_line(&mut output, Screen::Endless, page).expect("a buffer");
                most = most.max(lines.bytes.len());
            }
            lines.write(&mut output, Screen::Endless, page).expect("a buffer");
            let texts: Vec<&str> = all.iter().map(String::as_str).collect();
            let at_once = written(&places, &texts, true, None, page);
            assert!(std::mem::take(&mut output.buffer) == at_once.as_bytes(), "{page:?}");
            assert_eq!(most > 2 * LONG, is_kept);
        }
    }

    /// Check that the last column is not padded after its text, and that all other columns are
    /// padded.
    #[test]
    fn lines_end_where_their_last_cell_ends() {
        assert_eq!(written(&[TEXT, TEXT], &["a", "b"], false, None, None), "a     b\n");
        assert_eq!(written(&[NUMBER, TEXT], &["1", ""], false, None, None), "    1 \n");
        assert_eq!(written(&[TEXT, TEXT], &["a", ""], false, None, None), "a     \n");
        assert_eq!(written(&[TEXT, NUMBER], &["a", ""], false, None, None), "a          \n");
    }

    /// Check that columns without a width are as wide as their widest cell.
    #[test]
    fn columns_can_be_measured() {
        let measured = ColumnLayout {
            justify: Justify::Right,
            width: None,
        };
        assert_eq!(
            written(
                &[measured, TEXT],
                &["rss_bytes", "X", "1", "a", "1234567890", "b"],
                true,
                None,
                None
            ),
            " rss_bytes X\n         1 a\n1234567890 b\n"
        );
    }

    /// Check that the header is printed once or on each page, even without rows, and is never cut.
    #[test]
    fn headers_stand_once_or_on_each_page() {
        let cells = ["A", "HEADER", "1", "a", "2", "b", "3", "c"];
        let once = "    A HEADER\n    1 a\n    2 b\n    3 c\n";
        assert_eq!(written(&[NUMBER, TEXT], &cells, true, None, None), once);
        assert_eq!(written(&[NUMBER, TEXT], &cells, true, Some(9), None), once);
        assert_eq!(
            written(&[NUMBER, TEXT], &cells, true, None, Some(3)),
            "    A HEADER\n    1 a\n    2 b\n    A HEADER\n    3 c\n"
        );
        assert_eq!(written(&[NUMBER, TEXT], &cells, true, None, Some(1)), once);
        assert_eq!(
            written(&[NUMBER, TEXT], &cells[..2], true, None, Some(3)),
            "    A HEADER\n"
        );
        assert_eq!(written(&[NUMBER, TEXT], &[], false, None, None), "");
    }
}
