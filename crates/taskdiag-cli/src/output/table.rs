//! Aligned tables: cells gathered in one piece of memory, measured, then written.

use std::io;

use rustix::termios::{isatty, tcgetwinsize};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Output;

/// On which side a column is straight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// On the left: text.
    Left,
    /// On the right: numbers.
    Right,
}

/// However narrow the terminal is, a column of text keeps so many characters.
const LEAST: usize = 8;

/// A table that is being filled, row by row and cell by cell.
#[derive(Debug)]
pub struct Table {
    aligns: Vec<Align>,
    widths: Vec<usize>,
    bytes: Vec<u8>,
    cells: Vec<Cell>,
}

/// Where a cell ends in the table's bytes, and how many columns of a terminal it takes.
#[derive(Clone, Copy, Debug)]
struct Cell {
    end: usize,
    width: usize,
}

impl Table {
    /// A table without rows, for about `rows` of them.
    pub fn new(aligns: impl IntoIterator<Item = Align>, rows: usize) -> Table {
        let aligns: Vec<Align> = aligns.into_iter().collect();
        Table {
            widths: vec![0; aligns.len()],
            bytes: Vec::with_capacity(rows * aligns.len() * 10),
            cells: Vec::with_capacity((rows + 1) * aligns.len()),
            aligns,
        }
    }

    /// Appends the next cell: `write` appends its text, which must not need escaping any more.
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
        let column = self.cells.len() % self.aligns.len();
        self.widths[column] = self.widths[column].max(width);
        self.cells.push(Cell {
            end: self.bytes.len(),
            width,
        });
    }

    /// Writes the table. With a limit, columns of text are cut so that no line is longer, the widest first.
    pub fn write(&self, output: &mut Output, limit: Option<usize>) -> io::Result<()> {
        let last = self.aligns.len() - 1;
        let cut = limit.map_or(usize::MAX, |limit| self.cut(limit));
        let mut start = 0;
        for row in self.cells.chunks_exact(self.aligns.len()) {
            let out = output.buffer();
            for (column, cell) in row.iter().enumerate() {
                let text = &self.bytes[start..cell.end];
                start = cell.end;
                let padding = self.widths[column] - cell.width;
                match self.aligns[column] {
                    Align::Right => {
                        out.resize(out.len() + padding, b' ');
                        out.extend_from_slice(text);
                    }
                    Align::Left if cell.width > cut => shorten(out, text, cut, column != last),
                    Align::Left => {
                        out.extend_from_slice(text);
                        if column != last {
                            out.resize(out.len() + self.widths[column].min(cut) - cell.width, b' ');
                        }
                    }
                }
                out.push(if column == last { b'\n' } else { b' ' });
            }
            output.row_ended()?;
        }
        Ok(())
    }

    /// Forgets the rows, but not how wide they were: for tables that are written piece by piece.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.cells.clear();
    }

    /// How wide columns of text may be for lines to have no more than `limit` characters.
    fn cut(&self, limit: usize) -> usize {
        let length = |cut: usize| {
            let widths = self.aligns.iter().zip(&self.widths);
            let shown = widths.map(|(align, &width)| if *align == Align::Left { width.min(cut) } else { width } + 1);
            shown.sum::<usize>() - 1
        };
        if length(usize::MAX) <= limit {
            return usize::MAX;
        }
        let (mut least, mut most) = (LEAST, limit.max(LEAST));
        while least < most {
            let middle = (least + most).div_ceil(2);
            if length(middle) <= limit {
                least = middle
            } else {
                most = middle - 1
            }
        }
        least
    }
}

/// Appends as much of `text` as takes no more than `width` columns, filled up to that. In the midst of a line, a plus sign
/// says that there is more.
fn shorten(out: &mut Vec<u8>, text: &[u8], width: usize, midst: bool) {
    let width = width - usize::from(midst);
    let text = std::str::from_utf8(text).unwrap_or_default();
    let mut taken = 0;
    for character in text.chars() {
        let more = character.width().unwrap_or(0);
        if taken + more > width {
            break;
        }
        taken += more;
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    if midst {
        out.resize(out.len() + width - taken, b' ');
        out.push(b'+');
    }
}

/// How many characters fit on a line, if standard output is a terminal that knows it.
pub fn terminal_width() -> Option<usize> {
    let stdout = rustix::stdio::stdout();
    if !isatty(stdout) {
        return None;
    }
    let columns = tcgetwinsize(stdout).ok()?.ws_col;
    (columns > 0).then_some(columns.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(aligns: &[Align], cells: &[&str], limit: Option<usize>) -> String {
        let mut table = Table::new(aligns.iter().copied(), 2);
        for text in cells {
            table.cell(|out| out.extend_from_slice(text.as_bytes()));
        }
        let mut output = Output::new();
        table.write(&mut output, limit).expect("nothing is written yet");
        String::from_utf8(std::mem::take(output.buffer())).expect("the cells are UTF-8")
    }

    /// Check that columns are as wide as their widest cell, in columns of a terminal, and that no line ends in spaces.
    #[test]
    fn columns_are_aligned() {
        let aligns = [Align::Right, Align::Left, Align::Left];
        let text = written(
            &aligns,
            &["PID", "USER", "NAME", "1", "größe", "x", "12345", "日本", "y"],
            None,
        );
        assert_eq!(text, "  PID USER  NAME\n    1 größe x\n12345 日本  y\n");
    }

    /// Check that lines are cut to the terminal, the widest column first, numbers and short columns never.
    #[test]
    fn text_is_cut_to_the_terminal() {
        let aligns = [Align::Right, Align::Left];
        assert_eq!(
            written(&aligns, &["12", "日本日本日本日本"], Some(14)),
            "12 日本日本日\n"
        );
        assert_eq!(written(&aligns, &["12", "0123456789"], Some(4)), "12 01234567\n");
        assert_eq!(written(&aligns, &["12", "0123456789"], Some(13)), "12 0123456789\n");
        let aligns = [Align::Left, Align::Left, Align::Right];
        let cells = ["abcdefghijklmnop", "abc", "1", "x", "y", "22"];
        assert_eq!(
            written(&aligns, &cells, Some(17)),
            "abcdefghi+ abc  1\nx          y   22\n"
        );
    }
}
