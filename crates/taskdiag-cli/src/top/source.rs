//! Sources of samples, and the content of samples.

use std::sync::Arc;

use taskdiag::{Query, Snapshot};

use super::bursts::News;
use super::details::{Details, Inquiry};
use super::rows::Rows;
use crate::history::past;
use crate::host::Host;
use crate::watch::SampleTime;

/// A move in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This many samples forward or back.
    Samples(i64),
    /// This many seconds forward or back.
    Seconds(i64),
    /// To the next or previous spike.
    Spike(bool),
    /// To the last sample at or before this time, in nanoseconds since 1970.
    To(i64),
    /// To the first sample.
    First,
    /// To the last sample.
    Last,
}

/// Identifies the order that a survey answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The kind of the rows.
    pub rows: Rows,
    /// The number of the order.
    pub serial: u64,
}

/// The position of a sample in a recording.
#[derive(Debug)]
pub struct RecordingPosition {
    /// The moment: names, clocks, the host.
    pub moment: Arc<past::MachineState>,
    /// The tier of the samples.
    pub tier: &'static str,
    /// Remarks about the position: ends, gaps, damage.
    pub notes: Vec<String>,
    /// The result of the last step, if it is to be shown, and whether it is an error.
    pub said: Option<(String, bool)>,
}

/// All tasks that a query selects, and the values of the header at that time.
pub struct Sample {
    /// The tasks.
    pub snapshot: Snapshot,
    /// When that was.
    pub moment: SampleTime,
    /// The machine.
    pub host: Host,
    /// What happened since the previous sample.
    pub news: News,
}

/// Samples to show.
pub struct Samples {
    /// The last one is to be shown. The earlier ones provide its history.
    pub samples: Vec<Sample>,
    /// Whether the first one does not follow the last shown sample in time.
    pub restarts: bool,
    /// The position of the last one, in a recording.
    pub at: Option<Box<RecordingPosition>>,
}

/// A source of samples.
pub trait Source: Send {
    /// Whether there are new samples as time passes.
    fn is_live(&self) -> bool;
    /// Answers a query about all tasks, using the memory of an earlier answer. A different tag
    /// means a different query.
    fn survey(&mut self, tag: Tag, query: &Query, memory: Snapshot) -> Result<Samples, String>;
    /// Answers a query about some tasks, at the same time or later.
    fn look(&mut self, query: &Query, memory: Snapshot) -> Result<Snapshot, String>;
    /// Examines one process.
    fn details(&mut self, inquiry: &Inquiry) -> Details;
    /// Moves to another sample, which the next survey is about.
    fn go(&mut self, step: Step);
}
