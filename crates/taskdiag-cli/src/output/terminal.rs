//! The terminal on standard output, if there is one: its size, and whether it gets colours.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use rustix::termios::{isatty, tcgetwinsize};

/// The size assumed for a terminal that does not know it, such as a serial line.
const USUAL: Size = Size { columns: 80, rows: 24 };

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters per line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

impl Size {
    /// The size from the terminal driver, which reports 0 for an unknown number.
    fn new(columns: u16, rows: u16) -> Size {
        let or = |number: u16, usual| if number == 0 { usual } else { number.into() };
        Size {
            columns: or(columns, USUAL.columns),
            rows: or(rows, USUAL.rows),
        }
    }
}

/// The size of the terminal on standard output. `None` if standard output is not a terminal.
pub fn size() -> Option<Size> {
    size_of(rustix::stdio::stdout())
}

/// The size that a variable has, COLUMNS or LINES.
pub fn from_environment(variable: &str) -> Option<usize> {
    let value = std::env::var(variable).ok()?;
    value.parse().ok().filter(|&number| number > 0)
}

/// The characters per line on standard error, if that is a terminal.
pub fn error_width() -> Option<usize> {
    size_of(rustix::stdio::stderr()).map(|size| size.columns)
}

fn size_of(terminal: BorrowedFd<'_>) -> Option<Size> {
    if !isatty(terminal) {
        return None;
    }
    Some(tcgetwinsize(terminal).map_or(USUAL, |size| Size::new(size.ws_col, size.ws_row)))
}

/// The values of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`
    #[default]
    Auto,
    /// Into files and pipes too
    Always,
    /// Never
    Never,
}

static COLORED: AtomicBool = AtomicBool::new(false);

/// Decides, once at the start of the command, whether output has colours.
pub fn choose_color(color: Color) {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == OsStr::new("dumb"));
    let colored = match color {
        Color::Auto => isatty(rustix::stdio::stdout()) && !is_set("NO_COLOR") && !is_dumb,
        Color::Always => true,
        Color::Never => false,
    };
    COLORED.store(colored, Ordering::Relaxed);
}

/// Whether output has colours.
pub fn is_colored() -> bool {
    COLORED.load(Ordering::Relaxed)
}

/// The style of a text on a terminal with colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Ordinary text.
    #[default]
    Plain,
    /// Headings.
    Bold,
    /// Less important text: missing values, the branches of trees.
    Dim,
    /// Success, or something that runs.
    Green,
    /// Something that needs attention.
    Yellow,
    /// Failure.
    Red,
    /// Something that started anew.
    Cyan,
}

impl Style {
    /// Appends the text from `write`, in this style if there are colours.
    pub fn apply(self, out: &mut Vec<u8>, colored: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let code: &[u8] = match self {
            _ if !colored => b"",
            Style::Plain => b"",
            Style::Bold => b"\x1b[1m",
            Style::Dim => b"\x1b[2m",
            Style::Green => b"\x1b[32m",
            Style::Yellow => b"\x1b[33m",
            Style::Red => b"\x1b[31m",
            Style::Cyan => b"\x1b[36m",
        };
        out.extend_from_slice(code);
        write(out);
        if !code.is_empty() {
            out.extend_from_slice(b"\x1b[0m");
        }
    }

    /// The style of a state letter of proc(5).
    pub fn of_state(text: &[u8]) -> Style {
        match text {
            b"R" => Style::Green,
            b"D" => Style::Yellow,
            b"Z" | b"X" => Style::Red,
            b"T" | b"t" => Style::Cyan,
            _ => Style::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a terminal that does not know its size counts as 80 by 24.
    #[test]
    fn unknown_sizes_are_usual_ones() {
        let size = |columns, rows| {
            let size = Size::new(columns, rows);
            (size.columns, size.rows)
        };
        assert_eq!(size(0, 0), (80, 24));
        assert_eq!(size(0, 50), (80, 50));
        assert_eq!(size(132, 0), (132, 24));
        assert_eq!(size(1, 1), (1, 1));
    }

    /// Check that styles are written only where there are colours, and that each is ended.
    #[test]
    fn styles_end() {
        let styled = |style: Style, colored| {
            let mut out = Vec::new();
            style.apply(&mut out, colored, |out| out.extend_from_slice(b"x"));
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(styled(Style::Bold, true), "\x1b[1mx\x1b[0m");
        assert_eq!(styled(Style::Bold, false), "x");
        assert_eq!(styled(Style::Plain, true), "x");
    }
}
