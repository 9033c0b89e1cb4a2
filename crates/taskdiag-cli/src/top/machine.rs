//! Samples of this machine in its current state.

use std::io;

use taskdiag::{Handle, Query, Snapshot};

use super::bursts::{Bursts, News};
use super::details::{Details, Inquiry, Inspector};
use super::source::{Sample, Samples, Source, Step, Tag};
use crate::host::Host;
use crate::limits::Limits;
use crate::source::count_network_for;
use crate::watch::SampleTime;

/// This machine, now.
pub struct Machine {
    handle: Handle,
    inspector: Inspector,
    bursts: io::Result<Bursts>,
    /// Counting network traffic has not failed.
    may_count: bool,
}

impl Machine {
    /// Queries `handle`, and counts events from now on. `inspector` examines single processes.
    pub fn new(handle: Handle, inspector: Inspector) -> Machine {
        Machine {
            handle,
            inspector,
            bursts: Bursts::begin(),
            may_count: true,
        }
    }

    fn ask(&mut self, query: &Query, mut memory: Snapshot) -> Result<Snapshot, String> {
        // If it fails, the values are absent, and it is not tried again for each sample.
        self.may_count = self.may_count && count_network_for(&mut self.handle, query).is_ok();
        let answer = self.handle.query_into(query, &mut memory);
        answer.map(|()| memory).map_err(|error| format!("{error:#}"))
    }
}

impl Source for Machine {
    fn is_live(&self) -> bool {
        true
    }

    fn survey(&mut self, _: Tag, query: &Query, memory: Snapshot) -> Result<Samples, String> {
        let (answer, moment) = SampleTime::of(|| self.ask(query, memory));
        let sample = Sample {
            snapshot: answer?,
            moment,
            host: Host {
                limits: Limits::read(&self.handle),
                ..Host::read()
            },
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
        let mut ask = |query: &Query| SampleTime::of(|| handle.query(query));
        self.inspector.details(&mut ask, inquiry)
    }

    fn go(&mut self, _: Step) {}
}
