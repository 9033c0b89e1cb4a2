//! What samples are taken of: this machine, or a recording.

use std::io;

use taskdiag::{Handle, Query, Snapshot};

use super::bursts::{Bursts, News};
use super::details::{Details, Inquiry, Inspector};
use super::recording::At;
use super::sampler::Tag;
use crate::host::Host;
use crate::watch::Moment;

/// Where to go in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many samples on, or back.
    Samples(i64),
    /// So many seconds on, or back.
    Seconds(i64),
    /// To the next spike, or to the one before.
    Spike(bool),
    /// To the last sample that is not later than this: nanoseconds since 1970.
    To(i64),
    /// To the first sample.
    First,
    /// To the last sample.
    Last,
}

/// All tasks that a query selects, and what the header says of that time.
pub struct Sample {
    /// The tasks.
    pub snapshot: Snapshot,
    /// When that was.
    pub moment: Moment,
    /// The machine.
    pub host: Host,
    /// What happened since the sample before.
    pub news: News,
}

/// What there is to be shown.
pub struct Samples {
    /// The last one is to be shown; those before say what was before it.
    pub samples: Vec<Sample>,
    /// Whether the first one does not come after what was shown last.
    pub restarts: bool,
    /// Where that is, in a recording.
    pub at: Option<Box<At>>,
}

/// What samples are taken of.
pub trait Source: Send {
    /// Whether there are new samples as time goes on.
    fn is_live(&self) -> bool;
    /// Answers a query about all tasks, into the memory of an earlier answer. It is another query if
    /// the tag is another one.
    fn survey(&mut self, tag: Tag, query: &Query, memory: Snapshot) -> Result<Samples, String>;
    /// Answers a query about some tasks, of the same time or later.
    fn look(&mut self, query: &Query, memory: Snapshot) -> Result<Snapshot, String>;
    /// Looks into one process.
    fn details(&mut self, inquiry: &Inquiry) -> Details;
    /// Goes to another sample, which the next survey is of.
    fn go(&mut self, step: Step);
}

/// This machine, now.
pub struct Machine {
    handle: Handle,
    inspector: Inspector,
    bursts: io::Result<Bursts>,
}

impl Machine {
    /// Asks `handle`, and counts events from now on. `inspector` looks into single processes.
    pub fn new(handle: Handle, inspector: Inspector) -> Machine {
        Machine {
            handle,
            inspector,
            bursts: Bursts::begin(),
        }
    }

    fn ask(&mut self, query: &Query, mut memory: Snapshot) -> Result<Snapshot, String> {
        let answer = self.handle.query_into(query, &mut memory);
        answer.map(|()| memory).map_err(|error| format!("{error:#}"))
    }
}

impl Source for Machine {
    fn is_live(&self) -> bool {
        true
    }

    fn survey(&mut self, _: Tag, query: &Query, memory: Snapshot) -> Result<Samples, String> {
        let (answer, moment) = Moment::of(|| self.ask(query, memory));
        let sample = Sample {
            snapshot: answer?,
            moment,
            host: Host::read(),
            news: match &self.bursts {
                Ok(bursts) => bursts.take(),
                Err(error) => News::None(error.to_string()),
            },
        };
        Ok(Samples {
            samples: vec![sample],
            restarts: false,
            at: None,
        })
    }

    fn look(&mut self, query: &Query, memory: Snapshot) -> Result<Snapshot, String> {
        self.ask(query, memory)
    }

    fn details(&mut self, inquiry: &Inquiry) -> Details {
        let handle = &mut self.handle;
        let mut ask = |query: &Query| Moment::of(|| handle.query(query));
        self.inspector.details(&mut ask, inquiry)
    }

    fn go(&mut self, _: Step) {}
}
