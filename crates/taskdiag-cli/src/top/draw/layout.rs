//! Which lines of the screen show what.

/// A line of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderLine {
    /// Which moment of a recording it is.
    Recorded,
    /// Time since boot, load, threads.
    Machine,
    /// Tasks by state.
    Tasks,
    /// Some of the processors: the first, and how many in each line.
    Processors {
        /// Index of the first.
        first: usize,
        /// How many in a line.
        columns: usize,
    },
    /// All processors together.
    AllProcessors,
    /// Memory and swap space.
    Memory,
    /// All processors together, and memory.
    ProcessorsAndMemory,
    /// Pressure, and processes that begin and end.
    Pressure,
    /// What ran and ended between two samples.
    Ended,
}

/// The lines of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The header.
    pub header: Vec<HeaderLine>,
    /// The line of questions, messages, and what is shown.
    pub status: u16,
    /// The headings of the table.
    pub heading: u16,
    /// The first row of the table.
    pub first_row: u16,
    /// How many rows there are.
    pub rows: u16,
    /// The line of the most important keys, if there is room.
    pub keys: Option<u16>,
}

/// The width of a bar of a processor, with its share in numbers.
const BAR: usize = 25;

/// Lines from which on nothing has to be left out.
const TALL: u16 = 16;

/// The layout of a screen. `processors` have bars of their own if `each` is true and there is room.
/// That of a recording begins with the moment.
pub fn layout(width: u16, height: u16, processors: usize, each: bool, is_past: bool) -> Layout {
    let recorded = is_past.then_some(HeaderLine::Recorded).into_iter();
    let header: Vec<HeaderLine> = if height >= TALL {
        recorded.chain(tall(width, height, processors, each)).collect()
    } else {
        let lines = [HeaderLine::Tasks, HeaderLine::ProcessorsAndMemory, HeaderLine::Machine];
        // The table comes first: a third of the lines at most.
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
    let mut lines = vec![HeaderLine::Machine, HeaderLine::Tasks];
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
        lines.push(HeaderLine::AllProcessors);
    }
    lines.extend([HeaderLine::Memory, HeaderLine::Pressure, HeaderLine::Ended]);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that there are rows on every screen that is not tiny, and that no line is used twice.
    #[test]
    fn every_screen_has_rows() {
        for height in 1..=100 {
            for width in [1, 40, 80, 300] {
                for processors in [0, 1, 4, 64, 1024] {
                    let layout = layout(width, height, processors, true, width % 2 == 0);
                    let end = layout.keys.unwrap_or(height);
                    assert!(layout.rows == end.saturating_sub(layout.first_row));
                    assert!(height < 5 || layout.rows >= height / 3, "{layout:?} at {height}");
                    assert_eq!(usize::from(layout.status), layout.header.len());
                }
            }
        }
    }

    /// Check that processors have bars of their own where there is room, each one.
    #[test]
    fn processors_have_bars() {
        let bars = |width, height, processors| -> Vec<usize> {
            let header = layout(width, height, processors, true, false).header;
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
        let all = layout(80, 24, 2, false, false).header;
        assert!(all.contains(&HeaderLine::AllProcessors));
        for height in [10, 24] {
            assert_eq!(layout(80, height, 0, true, true).header[0], HeaderLine::Recorded);
        }
    }
}
