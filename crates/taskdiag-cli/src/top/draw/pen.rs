//! Writes text into one line of a picture.

use super::Palette;
use crate::output::text::locale_is_utf8;
use crate::top::canvas::{self, Area, Canvas, Spot, Style};
use crate::top::keys::Action;

/// The key that goes back.
const BACK: &str = "q: back";

/// A position in a line, and the limit up to which text may be written.
pub struct Pen<'a> {
    canvas: &'a mut Canvas,
    /// The current column.
    pub x: u16,
    y: u16,
    /// The first column, and the one after the last.
    begin: u16,
    end: u16,
}

impl<'a> Pen<'a> {
    /// A pen at the start of a line of an area. A line below the area has no room.
    pub fn new(canvas: &'a mut Canvas, area: Area, line: u16) -> Pen<'a> {
        let end = if line < area.height { area.width } else { 0 };
        Pen {
            canvas,
            x: 0,
            y: area.y.saturating_add(line),
            begin: 0,
            end,
        }
    }

    /// The number of columns left.
    pub fn room(&self) -> usize {
        usize::from(self.end.saturating_sub(self.x))
    }

    /// Writes as much of a text as fits; an ellipsis at the end stands for the rest. Control characters
    /// are left out.
    pub fn put(&mut self, text: &str, style: Style) -> &mut Self {
        let is_cut = canvas::width(text.trim_end()) > self.room();
        if self.x < self.end {
            self.x = self.canvas.put((self.x, self.y), self.end, text, style);
        }
        if is_cut && self.begin < self.end {
            let sign = if locale_is_utf8() { "…" } else { "+" };
            self.x = self.canvas.put((self.end - 1, self.y), self.end, sign, style);
        }
        self
    }

    /// Makes clicks do this, from a column of the line up to here.
    pub fn spot(&mut self, begin: u16, action: Action) {
        self.canvas.spots.push(Spot {
            line: self.y,
            columns: begin..self.x,
            action,
        });
    }

    /// Writes a value behind its label.
    pub fn fact(&mut self, label: &str, value: &str, palette: Palette) {
        self.put(label, palette.label()).put(value, palette.value());
    }

    pub fn skip(&mut self, columns: usize) -> &mut Self {
        self.x = self.x.saturating_add(columns.min(self.room()) as u16);
        self
    }

    /// Moves to a column of the line, counted from its start.
    pub fn go(&mut self, x: u16) -> &mut Self {
        self.x = x.min(self.end);
        self
    }

    /// Writes a text at the right end of the remaining columns.
    pub fn put_right(&mut self, text: &str, style: Style) {
        let padding = self.room().saturating_sub(canvas::width(text));
        self.skip(padding).put(text, style);
    }

    /// Writes the title of a page, and at the right end its keys, if they have room, and how one goes
    /// back, where a click does it.
    pub fn title(&mut self, title: &str, keys: &str, palette: Palette) {
        let right = format!("  {keys}, {BACK}");
        let has_room = right.len() + canvas::width(title) <= self.room();
        let right = if has_room { &right } else { &format!("  {BACK}") };
        let room = self.room().saturating_sub(right.len());
        self.part(room).put(title, palette.value());
        self.put_right(right, palette.dim());
        let begin = self.x.saturating_sub(BACK.len() as u16);
        self.spot(begin, Action::Close);
    }

    /// Sets the style of the rest of the line.
    pub fn fill(&mut self, style: Style) {
        if self.x < self.end {
            self.canvas.paint((self.x, self.y), self.end, style);
        }
    }

    /// A pen for a part of the remaining columns, at most `width` wide. This pen continues after
    /// it.
    pub fn part(&mut self, width: usize) -> Pen<'_> {
        let width = width.min(self.room()) as u16;
        let x = self.x;
        self.x += width;
        Pen {
            canvas: self.canvas,
            x,
            y: self.y,
            begin: x,
            end: x + width,
        }
    }
}

/// Draws a bar: a label, then in brackets the parts, each with its share of the whole, and a text
/// at the right end. Uses all the room.
pub fn bar(pen: &mut Pen<'_>, label: (&str, Style), parts: &[(f64, Style)], text: &str) {
    pen.put(label.0, label.1);
    let room = pen.room();
    if room < 3 {
        return;
    }
    pen.put("[", Style::new());
    let inside = room - 2;
    let start = pen.x;
    let (mut done, mut sum) = (0, 0.0);
    for &(share, style) in parts {
        sum += share.clamp(0.0, 1.0);
        let until = ((sum * inside as f64).round() as usize).min(inside);
        for _ in done..until {
            pen.put("|", style);
        }
        done = done.max(until);
    }
    let text_width = canvas::width(text).min(inside);
    pen.go(start + (inside - text_width) as u16)
        .part(text_width)
        .put(text, Style::new());
    pen.go(start + inside as u16).put("]", Style::new());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a line, with the sign of UTF-8 locales.
    fn line(canvas: &Canvas) -> String {
        canvas.lines().concat().replace('+', "…")
    }

    /// Check that nothing is written beyond the line, not even part of a wide character, that what is
    /// missing has a sign, and that control characters are not written.
    #[test]
    fn text_stays_in_its_place() {
        let mut canvas = Canvas::new(8, 1);
        let area = canvas.area;
        let mut pen = Pen::new(&mut canvas, area, 0);
        pen.part(3).put("日本", Style::new());
        pen.put("\x1babc日本", Style::new());
        assert_eq!(pen.room(), 0);
        assert_eq!(line(&canvas), "日 …abc …");
        let mut below = Pen::new(&mut canvas, area, 1);
        below.put("x", Style::new()).fill(Style::new());
        assert_eq!(below.room(), 0);
    }

    /// Check that a bar is as long as its parts, and that its text is in it.
    #[test]
    fn bars_have_parts() {
        let drawn = |width, shares: &[f64], text: &str| {
            let mut canvas = Canvas::new(width, 1);
            let area = canvas.area;
            let parts: Vec<(f64, Style)> = shares.iter().map(|&share| (share, Style::new())).collect();
            bar(&mut Pen::new(&mut canvas, area, 0), ("0", Style::new()), &parts, text);
            line(&canvas)
        };
        assert_eq!(drawn(13, &[0.25, 0.25], "x"), "0[|||||    x]");
        assert_eq!(drawn(13, &[0.9, 0.9], "12%"), "0[|||||||12%]");
        assert_eq!(drawn(13, &[f64::NAN], ""), "0[          ]");
        assert_eq!(drawn(3, &[1.0], "12%"), "0  ");
        assert_eq!(drawn(5, &[1.0], "12345"), "0[1…]");
    }

    /// Check that a page says how one goes back, at every width with room for it, and that its other
    /// keys are named whole.
    #[test]
    fn pages_have_a_way_back() {
        for (width, drawn) in [
            (30, "1 name        t: next, q: back"),
            (24, "1 name  t: next, q: back"),
            (23, "1 name          q: back"),
            (13, "1 n…  q: back"),
        ] {
            let mut canvas = Canvas::new(width, 1);
            let area = canvas.area;
            let palette = Palette {
                colored: true,
                light: false,
                utf8: true,
            };
            Pen::new(&mut canvas, area, 0).title("1 name", "t: next", palette);
            assert_eq!(line(&canvas), drawn);
            assert_eq!(canvas.spots[0].columns, width - 7..width);
        }
    }

    /// Check that a text of which nothing has room has a sign, too, but not blanks, and not where another
    /// pen writes.
    #[test]
    fn whatever_is_cut_has_a_sign() {
        let mut canvas = Canvas::new(6, 1);
        let area = canvas.area;
        let mut pen = Pen::new(&mut canvas, area, 0);
        pen.part(3).put("abc", Style::new()).put("  ", Style::new());
        pen.part(0).put("x", Style::new());
        pen.part(3).put("abc", Style::new()).put("d", Style::new());
        assert_eq!(line(&canvas), "abcab…");
    }
}
