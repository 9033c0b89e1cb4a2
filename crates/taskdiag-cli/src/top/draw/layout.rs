//! Assigns the lines of the screen.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderLine {
    /// The moment of a recording.
    Recorded,
    /// What a part of the header has: of processors, all together.
    Part(HeaderPart),
    /// Some of the processors: the index of the first, and the number on each line.
    Processors {
        /// The index of the first.
        first: usize,
        /// The number on a line.
        columns: usize,
    },
    /// All processors together, and memory.
    ProcessorsAndMemory,
}

taskdiag_core::named_enum! {
    /// What the header can have.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum HeaderPart {
        /// Load, threads, time since boot.
        Load => "load",
        /// Tasks by state.
        Processes => "processes",
        /// The bars of processors.
        Processors => "processors",
        /// Memory and swap space.
        Memory => "memory",
        /// Pressure, and processes that begin and end.
        Pressure => "pressure",
        /// Disks and network interfaces.
        Devices => "devices",
        /// What ran and ended between two samples.
        Ended => "ended",
    }
    /// All, in the order of their lines.
    pub const ALL;
    /// Its name in settings.
    pub fn name;
}

impl HeaderLine {
    /// Whether it has bars, which take all the room that there is.
    pub fn has_bars(self) -> bool {
        match self {
            HeaderLine::Part(part) => matches!(part, HeaderPart::Processors | HeaderPart::Memory),
            HeaderLine::Processors { .. } | HeaderLine::ProcessorsAndMemory => true,
            HeaderLine::Recorded => false,
        }
    }

    /// Whether a header with these parts has the line.
    fn is_in(self, parts: &[HeaderPart]) -> bool {
        let part = match self {
            HeaderLine::Recorded => return true,
            HeaderLine::Part(part) => part,
            HeaderLine::Processors { .. } => HeaderPart::Processors,
            HeaderLine::ProcessorsAndMemory => HeaderPart::Memory,
        };
        parts.contains(&part)
    }
}

/// The lines of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub header: Vec<HeaderLine>,
    /// The line of questions, messages, and the current view.
    pub status: u16,
    /// The headings of the table.
    pub heading: u16,
    /// The first row of the table.
    pub first_row: u16,
    /// The number of rows.
    pub rows: u16,
    /// The line of the most important keys, if there is room.
    pub keys: Option<u16>,
}

/// The width of a processor's bar, with its share as a number.
const BAR: usize = 25;

/// From this many lines on, nothing is left out.
const TALL: u16 = 16;

/// From this many lines on, devices have one.
const ROOMY: u16 = 24;

/// The layout of a screen, with these parts of the header. Processors have separate bars if `each` is
/// true and there is room. The layout of a recording begins with the moment.
pub fn layout(
    (width, height): (u16, u16),
    processors: usize,
    parts: &[HeaderPart],
    each: bool,
    is_past: bool,
) -> Layout {
    let recorded = is_past.then_some(HeaderLine::Recorded).into_iter();
    let header: Vec<HeaderLine> = if height >= TALL {
        let mut lines = tall(width, height, processors, each);
        // A recording does not have them.
        lines.retain(|line| {
            line.is_in(parts) && (*line != HeaderLine::Part(HeaderPart::Devices) || !is_past && height >= ROOMY)
        });
        recorded.chain(lines).collect()
    } else {
        let mut lines = vec![
            HeaderLine::Part(HeaderPart::Processes),
            HeaderLine::ProcessorsAndMemory,
            HeaderLine::Part(HeaderPart::Load),
        ];
        lines.retain(|line| line.is_in(parts));
        // The table has priority: the header gets at most a third of the lines.
        let most = usize::from(height.saturating_sub(3) / 3);
        recorded.chain(lines).take(most).collect()
    };
    let keys = (height >= TALL).then(|| height - 1);
    let status = header.len() as u16;
    let first_row = status + 2;
    let end = keys.unwrap_or(height);
    Layout {
        header,
        status,
        heading: status + 1,
        first_row,
        rows: end.saturating_sub(first_row),
        keys,
    }
}

fn tall(width: u16, height: u16, processors: usize, each: bool) -> Vec<HeaderLine> {
    let mut lines = [HeaderPart::Load, HeaderPart::Processes].map(HeaderLine::Part).to_vec();
    let columns = (usize::from(width) / BAR).max(1);
    let needed = processors.div_ceil(columns);
    if each && processors > 0 && needed <= usize::from(height / 6) {
        // As even as possible.
        let columns = processors.div_ceil(needed);
        lines.extend((0..needed).map(|line| HeaderLine::Processors {
            first: line * columns,
            columns,
        }));
    } else {
        lines.push(HeaderLine::Part(HeaderPart::Processors));
    }
    let others = HeaderPart::ALL
        .into_iter()
        .skip_while(|part| *part != HeaderPart::Memory);
    lines.extend(others.map(HeaderLine::Part));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every screen that is not tiny has rows, and that no line is used twice.
    #[test]
    fn every_screen_has_rows() {
        for height in 1..=100 {
            for width in [1, 40, 80, 300] {
                for processors in [0, 1, 4, 64, 1024] {
                    let layout = layout((width, height), processors, &HeaderPart::ALL, true, width % 2 == 0);
                    let end = layout.keys.unwrap_or(height);
                    assert!(layout.rows == end.saturating_sub(layout.first_row));
                    assert!(height < 5 || layout.rows >= height / 3, "{layout:?} at {height}");
                    assert_eq!(usize::from(layout.status), layout.header.len());
                }
            }
        }
    }

    /// Check that each processor has its own bar where there is room.
    #[test]
    fn processors_have_bars() {
        let bars = |width, height, processors| -> Vec<usize> {
            let header = layout((width, height), processors, &HeaderPart::ALL, true, false).header;
            let lines = header.into_iter().filter_map(|line| match line {
                HeaderLine::Processors { columns, .. } => Some(columns),
                _ => None,
            });
            lines.collect()
        };
        assert_eq!(bars(80, 24, 2), [2]);
        assert_eq!(bars(80, 24, 8), [3, 3, 3]);
        assert_eq!(bars(80, 24, 64), [] as [usize; 0]);
        assert_eq!(bars(300, 100, 64), [11, 11, 11, 11, 11, 11]);
        assert_eq!(bars(80, 10, 2), [] as [usize; 0]);
        let all = layout((80, 24), 2, &HeaderPart::ALL, false, false).header;
        assert!(all.contains(&HeaderLine::Part(HeaderPart::Processors)));
        for height in [10, 24] {
            assert_eq!(
                layout((80, height), 0, &HeaderPart::ALL, true, true).header[0],
                HeaderLine::Recorded
            );
        }
    }
}
