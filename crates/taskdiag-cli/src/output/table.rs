//! Aligned tables. Cells are collected in one piece of memory, measured, and then written.
//!
//! On a terminal, no line is longer than the terminal is wide. Text is shortened first, starting
//! with the widest columns, and an ellipsis marks the cut. If that is not enough, columns are left
//! out from the right, except a last column of text, and those before text that keeps its end. Widths are those of Unicode characters on a
//! terminal.

use std::io;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::terminal::{self, Style};
use super::text::locale_is_utf8;
use super::Output;

/// The side on which a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Left: text.
    Left,
    /// Right: numbers.
    Right,
}

/// Writes a title above a table.
pub fn write_title(output: &mut Output, title: &str) -> io::Result<()> {
    let mut table = Table::new([Align::Left], 1).wrapping();
    table.style(0, |_| Style::Bold);
    table.cell(|out| out.extend_from_slice(title.as_bytes()));
    table.write(output, terminal_width())
}

/// The minimum width of a column of text. Narrower columns are left out.
const MIN_TEXT_WIDTH: usize = 8;

/// A table that is filled row by row and cell by cell.
#[derive(Debug)]
pub struct Table {
    columns: Vec<TableColumn>,
    bytes: Vec<u8>,
    cells: Vec<Cell>,
    heading: Heading,
    /// Whether long text in the last column wraps.
    wraps: bool,
    /// Which columns were shown for the rows before a [`Table::clear`], under the headings.
    before: Option<Vec<bool>>,
}

#[derive(Debug)]
struct TableColumn {
    align: Align,
    /// The width of the widest cell so far.
    width: usize,
    style: fn(&[u8]) -> Style,
    is_hidden: bool,
    /// Whether long text loses its beginning.
    keeps_end: bool,
}

/// The first row, if it is a heading.
#[derive(Debug, Default)]
struct Heading {
    bytes: Vec<u8>,
    cells: Vec<Cell>,
    is_due: bool,
}

/// The end of a cell in the table's bytes, and its width on a terminal.
#[derive(Clone, Copy, Debug)]
struct Cell {
    end: usize,
    width: usize,
}

impl Table {
    /// A table without rows, with room for about `rows`.
    pub fn new(aligns: impl IntoIterator<Item = Align>, rows: usize) -> Table {
        let column = |align| TableColumn {
            align,
            width: 0,
            style: |_| Style::Plain,
            is_hidden: false,
            keeps_end: false,
        };
        let columns: Vec<TableColumn> = aligns.into_iter().map(column).collect();
        Table {
            bytes: Vec::with_capacity(rows * columns.len() * 10),
            cells: Vec::with_capacity((rows + 1) * columns.len()),
            heading: Heading::default(),
            wraps: false,
            before: None,
            columns,
        }
    }

    /// Makes long text in the last column wrap at the width of the terminal.
    pub fn wrapping(mut self) -> Table {
        self.wrap();
        self
    }

    /// The same for a table that is being filled.
    pub fn wrap(&mut self) {
        self.wraps = true;
    }

    /// Styles the cells of a column: `style` chooses a style by their text.
    pub fn style(&mut self, column: usize, style: fn(&[u8]) -> Style) {
        self.columns[column].style = style;
    }

    pub fn hide(&mut self, column: usize) {
        self.columns[column].is_hidden = true;
    }

    /// Cuts text of a column at its beginning, not at its end: ports and names of files stay.
    pub fn keep_end(&mut self, column: usize) {
        self.columns[column].keeps_end = true;
    }

    /// Makes a column at least this wide, for tables that are written before all rows are known.
    pub fn widen(&mut self, column: usize, width: usize) {
        let known = &mut self.columns[column].width;
        *known = (*known).max(width);
    }

    /// Puts these headings above the rows.
    pub fn headings<'a>(&mut self, headings: impl IntoIterator<Item = &'a str>) {
        for (column, heading) in self.columns.iter_mut().zip(headings) {
            let width = heading.width();
            column.width = column.width.max(width);
            self.heading.bytes.extend_from_slice(heading.as_bytes());
            self.heading.cells.push(Cell {
                end: self.heading.bytes.len(),
                width,
            });
        }
        self.heading.is_due = true;
    }

    /// How many bytes are not written yet.
    pub fn kept(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the next cell. `write` appends its text, which must already be escaped.
    #[inline]
    pub fn cell(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let text = &self.bytes[start..];
        let width = if text.is_ascii() {
            text.len()
        } else {
            std::str::from_utf8(text).map_or(text.len(), UnicodeWidthStr::width)
        };
        let column = self.cells.len() % self.columns.len();
        let widest = &mut self.columns[column].width;
        *widest = (*widest).max(width);
        self.cells.push(Cell {
            end: self.bytes.len(),
            width,
        });
    }

    /// Writes the table, in lines of at most `limit` columns if there is a limit.
    pub fn write(&mut self, output: &mut Output, limit: Option<usize>) -> io::Result<()> {
        let layout = Layout::new(&self.columns, limit, self.wraps);
        let shown: Vec<bool> = layout.widths.iter().map(Option::is_some).collect();
        // If different columns are shown than before, the rows need their own headings.
        let is_other = self.before.as_ref().is_some_and(|before| *before != shown);
        if self.heading.is_due || is_other {
            let cells = cells(&self.heading.bytes, 0, &self.heading.cells);
            layout.line(&mut output.buffer, &self.columns, cells, |_, _| Style::Bold);
            output.row_ended()?;
            self.heading.is_due = false;
            self.before = Some(shown);
        }
        let style = |column: usize, text: &[u8]| match text {
            b"-" => Style::Dim,
            text => (self.columns[column].style)(text),
        };
        let mut start = 0;
        for row in self.cells.chunks_exact(self.columns.len()) {
            let cells = cells(&self.bytes, start, row);
            layout.line(&mut output.buffer, &self.columns, cells, style);
            start = row[row.len() - 1].end;
            output.row_ended()?;
        }
        Ok(())
    }

    /// Forgets the rows but keeps their widths, for tables that are written in pieces.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.cells.clear();
    }
}

/// The texts of cells, each with its width.
fn cells<'a>(bytes: &'a [u8], start: usize, cells: &'a [Cell]) -> impl Iterator<Item = (&'a [u8], usize)> {
    let mut start = start;
    cells.iter().map(move |cell| {
        let text = &bytes[start..cell.end];
        start = cell.end;
        (text, cell.width)
    })
}

/// Divides a line among the columns of a table.
#[derive(Debug)]
struct Layout {
    /// The width of each column. `None` for a column that is left out.
    widths: Vec<Option<usize>>,
    /// The last column that is shown.
    last: usize,
    wraps: bool,
    ellipsis: &'static str,
    colored: bool,
}

impl Layout {
    fn new(columns: &[TableColumn], limit: Option<usize>, wraps: bool) -> Layout {
        let width = |column: &TableColumn| (!column.is_hidden).then_some(column.width);
        let all = || columns.iter().map(width).collect();
        let widths = limit.map_or_else(all, |limit| fitting(columns, limit, wraps));
        Layout {
            last: widths.iter().rposition(Option::is_some).unwrap_or(0),
            widths,
            wraps,
            ellipsis: if locale_is_utf8() { "…" } else { "+" },
            colored: terminal::is_colored(),
        }
    }

    /// Appends a line.
    #[inline]
    fn line<'a>(
        &self,
        out: &mut Vec<u8>,
        columns: &[TableColumn],
        cells: impl Iterator<Item = (&'a [u8], usize)>,
        style: impl Fn(usize, &[u8]) -> Style,
    ) {
        for (index, (text, width)) in cells.enumerate() {
            let Some(room) = self.widths[index] else { continue };
            let is_last = index == self.last;
            let style = if self.colored { style(index, text) } else { Style::Plain };
            let padding = room.saturating_sub(width);
            if width > room {
                self.long(out, text, (room, columns[index].keeps_end), is_last, style);
            } else if columns[index].align == Align::Right {
                out.resize(out.len() + padding, b' ');
                style.apply(out, self.colored, |out| out.extend_from_slice(text));
            } else {
                style.apply(out, self.colored, |out| out.extend_from_slice(text));
                if !is_last {
                    out.resize(out.len() + padding, b' ');
                }
            }
            out.push(if is_last { b'\n' } else { b' ' });
            if is_last && width == 0 {
                end_of_spaces(out);
            }
        }
    }

    /// Appends a text that is wider than its column: either its beginning or end, or all of it on
    /// several lines.
    #[cold]
    fn long(&self, out: &mut Vec<u8>, text: &[u8], (room, keeps_end): (usize, bool), is_last: bool, style: Style) {
        let text = std::str::from_utf8(text).unwrap_or_default();
        if !(is_last && self.wraps) {
            let room = room.saturating_sub(1);
            let cut = if keeps_end {
                end(text, room)
            } else {
                beginning(text, room).0
            };
            let mut parts = [cut, self.ellipsis];
            parts.rotate_left(keeps_end.into());
            style.apply(out, self.colored, |out| {
                out.extend_from_slice(parts.concat().as_bytes())
            });
            if !is_last {
                out.resize(out.len() + room.saturating_sub(cut.width()), b' ');
            }
            return;
        }
        let others = self.widths[..self.last].iter().flatten();
        let indent = others.map(|width| width + 1).sum::<usize>();
        for (index, line) in wrap(text, room).into_iter().enumerate() {
            if index > 0 {
                out.push(b'\n');
                out.resize(out.len() + indent, b' ');
            }
            style.apply(out, self.colored, |out| out.extend_from_slice(line.as_bytes()));
        }
    }
}

/// Removes the spaces before the last line end.
#[cold]
fn end_of_spaces(out: &mut Vec<u8>) {
    out.pop();
    while out.last() == Some(&b' ') {
        out.pop();
    }
    out.push(b'\n');
}

/// Computes widths for which no line is longer than `limit`.
fn fitting(columns: &[TableColumn], limit: usize, wraps: bool) -> Vec<Option<usize>> {
    let least = |index: usize| match columns[index].align {
        Align::Left => columns[index].width.min(MIN_TEXT_WIDTH),
        Align::Right => columns[index].width,
    };
    let mut shown: Vec<usize> = (0..columns.len()).filter(|&index| !columns[index].is_hidden).collect();
    while let [.., before, last] = shown[..] {
        let narrowest = shown.iter().map(|&index| least(index) + 1).sum::<usize>() - 1;
        if narrowest <= limit {
            break;
        }
        let keeps_last = columns[last].align == Align::Left && shown.len() > 2;
        let usual = if keeps_last { before } else { last };
        // What keeps its end is what one looks for: all before it but the first go first.
        let mut others = shown[1..]
            .iter()
            .filter(|&&index| columns[usual].keeps_end && index < usual);
        let dropped = *others.rfind(|&&index| !columns[index].keeps_end).unwrap_or(&usual);
        shown.retain(|&index| index != dropped);
    }
    let mut widths = vec![None; columns.len()];
    let Some(&last) = shown.last() else { return widths };
    if shown.len() == 1 {
        widths[last] = Some(columns[last].width.min(limit));
        return widths;
    }
    let width = |index: usize, cut: usize| match columns[index].align {
        Align::Left if wraps && index == last => least(index),
        Align::Left => columns[index].width.min(cut),
        Align::Right => columns[index].width,
    };
    let length = |cut: usize| shown.iter().map(|&index| width(index, cut) + 1).sum::<usize>() - 1;
    // The greatest width of a column of text.
    let (mut cut, mut most) = (MIN_TEXT_WIDTH, limit.max(MIN_TEXT_WIDTH));
    while cut < most {
        let middle = (cut + most).div_ceil(2);
        if length(middle) <= limit {
            cut = middle;
        } else {
            most = middle - 1;
        }
    }
    for &index in &shown {
        widths[index] = Some(width(index, cut));
    }
    // The remainder is too small to widen all columns.
    let rest = limit.saturating_sub(length(cut));
    widths[last] = widths[last].map(|width| columns[last].width.min(width + rest));
    widths
}

/// The longest prefix of `text` that fits into `room` columns, and its width.
fn beginning(text: &str, room: usize) -> (&str, usize) {
    let mut taken = 0;
    let mut fits = |&(_, character): &(usize, char)| {
        taken += character.width().unwrap_or(0);
        taken <= room
    };
    let mut end = text
        .char_indices()
        .find(|at| !fits(at))
        .map_or(text.len(), |(index, _)| index);
    // Characters can be wider together than the sum of their widths.
    while text[..end].width() > room {
        end = text[..end].char_indices().next_back().map_or(0, |(index, _)| index);
    }
    (&text[..end], text[..end].width())
}

/// The longest end of `text` that fits into `room` columns.
pub fn end(text: &str, room: usize) -> &str {
    let reversed: String = text.chars().rev().collect();
    &text[text.len() - beginning(&reversed, room).0.len()..]
}

/// Lines of at most `room` columns, broken at spaces where possible.
fn wrap(text: &str, room: usize) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    loop {
        let (line, _) = beginning(rest, room);
        if line.len() == rest.len() {
            lines.push(rest);
            return lines;
        }
        let at_space = if rest[line.len()..].starts_with(' ') {
            Some(line.len())
        } else {
            line.rfind(' ')
        };
        let one = rest.chars().next().map_or(0, char::len_utf8);
        let end = at_space.filter(|&end| end > 0).unwrap_or(line.len()).max(one);
        lines.push(rest[..end].trim_end_matches(' '));
        rest = rest[end..].trim_start_matches(' ');
        if rest.is_empty() {
            return lines;
        }
    }
}

/// A text in lines that fit the terminal, if standard output is one.
pub fn fitted(text: &str) -> String {
    let width = terminal_width().unwrap_or(usize::MAX);
    let lines = text.lines().flat_map(|line| wrap(line, width));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The number of characters on a line, if standard output is a terminal.
pub fn terminal_width() -> Option<usize> {
    terminal::size().map(|size| size.columns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(aligns: &[Align], cells: &[&str]) -> Table {
        let mut table = Table::new(aligns.iter().copied(), 2);
        for text in cells {
            table.cell(|out| out.extend_from_slice(text.as_bytes()));
        }
        table
    }

    fn text(table: &mut Table, limit: Option<usize>) -> String {
        let mut output = Output::default();
        table.write(&mut output, limit).expect("nothing is written yet");
        let text = String::from_utf8(std::mem::take(&mut output.buffer)).expect("the cells are UTF-8");
        // Independent of the locale of the tests.
        text.replace('+', "…")
    }

    fn written(aligns: &[Align], cells: &[&str], limit: Option<usize>) -> String {
        text(&mut filled(aligns, cells), limit)
    }

    const RIGHT: Align = Align::Right;
    const LEFT: Align = Align::Left;

    /// Check that a hidden column takes no space, on a terminal and elsewhere.
    #[test]
    fn columns_can_be_hidden() {
        for limit in [None, Some(80)] {
            let mut table = filled(&[RIGHT, LEFT, LEFT], &["1", "long", "x", "12", "b", "y"]);
            table.hide(1);
            assert_eq!(text(&mut table, limit), " 1 x\n12 y\n");
        }
    }

    /// Check that a column can keep the ends of its texts.
    #[test]
    fn ends_can_be_kept() {
        let path = "/usr/lib/a/long/path/of/a/libx.so";
        let mut table = filled(&[RIGHT, LEFT], &["1", path, "2", "日本日本日本日本日本日本"]);
        table.keep_end(1);
        assert_eq!(text(&mut table, Some(16)), "1 …/of/a/libx.so\n2 …日本日本日本\n");
    }

    /// Check that other columns but the first go before a text that keeps its end.
    #[test]
    fn numbers_go_before_addresses() {
        let cells = ["tcp", "1024", "0", "127.0.0.1:8080", "127.0.0.1:443", "sh"];
        let mut table = filled(&[LEFT, RIGHT, RIGHT, LEFT, LEFT, LEFT], &cells);
        [3, 4].into_iter().for_each(|column| table.keep_end(column));
        assert_eq!(text(&mut table, Some(24)), "tcp ….1:8080 …0.1:443 sh\n");
        assert_eq!(text(&mut table, Some(29)), "tcp 1024 ….1:8080 …0.1:443 sh\n");
        assert_eq!(text(&mut table, Some(20)), "tcp …7.0.0.1:8080 sh\n");
    }

    /// Check that columns are as wide as their widest cell, measured as on a terminal, and that no
    /// line ends in spaces.
    #[test]
    fn columns_are_aligned() {
        let cells = ["PID", "USER", "NAME", "1", "größe", "x", "12345", "日本", "y"];
        let expected = "  PID USER  NAME\n    1 größe x\n12345 日本  y\n";
        assert_eq!(written(&[RIGHT, LEFT, LEFT], &cells, None), expected);
        assert_eq!(written(&[RIGHT, LEFT, LEFT], &cells, Some(16)), expected);
        assert_eq!(
            written(&[LEFT, LEFT, LEFT], &["a", "", "", "bc", "d", "e"], None),
            "a\nbc d e\n"
        );
    }

    /// Check that text is shortened to fit the terminal, the widest column first, and that numbers
    /// and short columns never are.
    #[test]
    fn text_is_cut_to_the_terminal() {
        let cells = ["12", "日本日本日本日本"];
        assert_eq!(written(&[RIGHT, LEFT], &cells, Some(14)), "12 日本日本日…\n");
        assert_eq!(written(&[RIGHT, LEFT], &cells, Some(15)), "12 日本日本日…\n");
        let cells = ["12", "0123456789"];
        assert_eq!(written(&[RIGHT, LEFT], &cells, Some(13)), "12 0123456789\n");
        assert_eq!(written(&[RIGHT, LEFT], &cells, Some(12)), "12 01234567…\n");
        assert_eq!(written(&[RIGHT, LEFT], &cells, Some(11)), "12 0123456…\n");
        let cells = ["abcdefghijklmnop", "abc", "1", "x", "y", "22"];
        assert_eq!(
            written(&[LEFT, LEFT, RIGHT], &cells, Some(17)),
            "abcdefghi… abc  1\nx          y   22\n"
        );
        // Where all columns are cut, the remainder goes to the last one.
        let cells = ["0123456789ab", "0123456789ab"];
        assert_eq!(written(&[LEFT, LEFT], &cells, Some(20)), "01234567… 012345678…\n");
    }

    /// Check that columns are left out where cutting does not help, except a last column of text,
    /// and that at least one column is always shown.
    #[test]
    fn columns_are_left_out() {
        let cells = ["1", "22", "333", "a command"];
        let aligns = [RIGHT, RIGHT, RIGHT, LEFT];
        assert_eq!(written(&aligns, &cells, Some(17)), "1 22 333 a comma…\n");
        assert_eq!(written(&aligns, &cells, Some(16)), "1 22 a command\n");
        assert_eq!(written(&aligns, &cells, Some(12)), "1 a command\n");
        assert_eq!(written(&aligns, &cells, Some(9)), "1\n");
        let aligns = [LEFT, RIGHT, RIGHT];
        assert_eq!(written(&aligns, &["name", "1", "22"], Some(8)), "name 1\n");
        assert_eq!(written(&[RIGHT], &["1234567"], Some(4)), "123…\n");
        assert_eq!(written(&[RIGHT], &["1234567"], Some(1)), "…\n");
    }

    /// Check that a text wraps where this is requested, and that the other columns keep their
    /// widths.
    #[test]
    fn text_is_wrapped() {
        let cells = ["a long name", "words of a text that goes on and on"];
        let mut table = filled(&[LEFT, LEFT], &cells).wrapping();
        let expected = "a long name words of a text that\n            goes on and on\n";
        assert_eq!(text(&mut table, Some(36)), expected);
        assert_eq!(
            text(&mut table, None),
            "a long name words of a text that goes on and on\n"
        );
        assert_eq!(wrap("ab cd", 2), ["ab", "cd"]);
        assert_eq!(wrap("abcd  ef", 3), ["abc", "d", "ef"]);
        assert_eq!(wrap("日本", 1), ["日", "本"]);
        assert_eq!(wrap("", 1), [""]);
    }

    /// Check that a table that is written in pieces repeats its headings exactly where its columns
    /// change.
    #[test]
    fn pieces_have_the_right_headings() {
        let mut table = filled(&[RIGHT, RIGHT, LEFT], &["1", "2", "x"]);
        table.headings(["A", "B", "NAME"]);
        assert_eq!(text(&mut table, Some(12)), "A B NAME\n1 2 x\n");
        table.clear();
        for cell in ["1", "2", "y"] {
            table.cell(|out| out.extend_from_slice(cell.as_bytes()));
        }
        assert_eq!(text(&mut table, Some(12)), "1 2 y\n");
        table.clear();
        for cell in ["1", "222222", "0123456789"] {
            table.cell(|out| out.extend_from_slice(cell.as_bytes()));
        }
        assert_eq!(text(&mut table, Some(12)), "A NAME\n1 0123456789\n");
    }

    proptest! {
        /// Check that no line is longer than the limit, for any cells and limit, and that no row is
        /// lost.
        #[test]
        fn no_line_is_too_long(
            cells in prop::collection::vec("[a-z 日\u{301}☺\u{fe0f}]{0,30}", 1..24),
            aligns in prop::collection::vec(any::<bool>(), 1..6),
            limit in 1..60_usize,
            wraps in any::<bool>(),
        ) {
            let aligns: Vec<Align> = aligns.iter().map(|&right| if right { RIGHT } else { LEFT }).collect();
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            let rows = cells.len() / aligns.len();
            let mut table = filled(&aligns, &cells[..rows * aligns.len()]);
            if wraps {
                table = table.wrapping();
            }
            let text = text(&mut table, Some(limit));
            // A character of width two does not fit into one column.
            let limit = if wraps { limit.max(2) } else { limit };
            for line in text.lines() {
                prop_assert!(line.width() <= limit, "{line:?}");
            }
            let lines = text.lines().count();
            prop_assert!(lines == rows || wraps && lines > rows, "{lines} of {rows}");
        }
    }
}
