//! The number of tasks for a measurement.

use std::str::FromStr;

/// The size of a farm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The total number of processes. At 100, existing processes count; otherwise the farm is in
    /// addition to them.
    Processes(usize),
    /// 2,000 processes with 5 threads each.
    Threads,
}

impl Scale {
    /// The whole matrix.
    pub const ALL: [Scale; 5] = [
        Scale::Processes(100),
        Scale::Processes(1_000),
        Scale::Processes(10_000),
        Scale::Threads,
        Scale::Processes(30_000),
    ];

    /// The number of processes of the farm if there are `present` without it, and of threads of
    /// each.
    pub fn farm(self, present: usize) -> (usize, usize) {
        match self {
            Scale::Processes(processes @ ..=100) => (processes.saturating_sub(present), 1),
            Scale::Processes(processes) => (processes, 1),
            Scale::Threads => (2_000, 5),
        }
    }

    /// The heading.
    pub fn title(self) -> String {
        match self {
            Scale::Processes(processes @ ..=100) => format!("About {processes} processes"),
            Scale::Processes(processes) => format!("{processes} idle processes"),
            Scale::Threads => "2000 idle processes with 5 threads each".to_owned(),
        }
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Scale, String> {
        match text {
            "threads" => Ok(Scale::Threads),
            number => match number.parse() {
                Ok(processes @ 1..) => Ok(Scale::Processes(processes)),
                _ => Err(format!("{text:?} is neither a number of processes nor `threads`")),
            },
        }
    }
}
