//! Styles, with colours and without.

use crossterm::style::{Color, Stylize as _};

use crate::output::terminal;
use crate::top::canvas::Style;

/// The styles of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Palette {
    /// Whether there are colours.
    pub colored: bool,
    /// Whether the background is bright.
    pub light: bool,
    /// Whether the terminal understands UTF-8.
    pub utf8: bool,
}

impl Palette {
    fn color(self, color: Color) -> Style {
        if self.colored {
            Style::new().with(color)
        } else {
            Style::new()
        }
    }

    /// One of two colours: the first one can be read on a dark background, the other on a bright one.
    fn either(self, dark: Color, light: Color) -> Style {
        self.color(if self.light { light } else { dark })
    }

    /// The headings of the table.
    pub fn heading(self) -> Style {
        Style::new().reverse()
    }

    /// The heading of the column that rows are sorted by.
    pub fn sorted(self) -> Style {
        self.heading().bold()
    }

    /// The row of the cursor.
    pub fn cursor(self) -> Style {
        match (self.colored, self.light) {
            (false, _) => Style::new().reverse(),
            (_, false) => Style::new().black().on_dark_cyan(),
            (_, true) => Style::new().white().on_dark_blue(),
        }
    }

    /// Words before values.
    pub fn label(self) -> Style {
        self.either(Color::DarkCyan, Color::DarkBlue)
    }

    /// Important values.
    pub fn value(self) -> Style {
        Style::new().bold()
    }

    /// Less important text.
    pub fn dim(self) -> Style {
        if self.light {
            self.color(Color::DarkGrey)
        } else {
            Style::new().dim()
        }
    }

    pub fn error(self) -> Style {
        self.color(Color::DarkRed).bold()
    }

    /// Something that needs attention.
    pub fn warning(self) -> Style {
        self.either(Color::DarkYellow, Color::DarkMagenta)
    }

    /// What is tagged, also without colours.
    pub fn tag(self) -> Style {
        self.warning().bold().underlined()
    }

    /// Good or normal: user mode, used memory, running tasks.
    pub fn green(self) -> Style {
        self.color(Color::DarkGreen)
    }

    /// Kernel mode.
    pub fn red(self) -> Style {
        self.color(Color::DarkRed)
    }

    /// Nice processes, the page cache.
    pub fn blue(self) -> Style {
        self.color(Color::DarkBlue)
    }

    /// Interrupts and stolen time.
    pub fn magenta(self) -> Style {
        self.color(Color::DarkMagenta)
    }

    /// The style for a cell whose style is defined by other tables.
    pub fn of(self, style: terminal::Style) -> Style {
        match style {
            terminal::Style::Plain => Style::new(),
            terminal::Style::Bold => self.value(),
            terminal::Style::Dim => self.dim(),
            terminal::Style::Green => self.green(),
            terminal::Style::Yellow => self.warning(),
            terminal::Style::Red => self.red(),
            terminal::Style::Cyan => self.label(),
        }
    }
}
