//! What happens between two samples, from events.

use std::collections::HashSet;
use std::time::Duration;

use taskdiag::events::{EventSource, Options};
use taskdiag::{Event, EventKind, Events, Field, Value};
use taskdiag_history::events::{Happened, Sum};

use crate::events::{Cgroups, Stop};

/// Single events that a sample has at most. All are in the sums.
const MOST_EVENTS: usize = 2000;

/// Programs and units that a sample has sums of at most; of others there is one sum.
const MOST_SUMS: usize = 1000;

/// Processes that are remembered as begun since the last sample.
const MOST_BORN: usize = 1 << 17;

/// How long events may gather before they are counted.
const GATHER: Duration = Duration::from_millis(100);

/// Counts events.
#[derive(Debug)]
pub struct Tally {
    events: Events,
    cgroups: Cgroups,
    happened: Happened,
    born: HashSet<u32>,
    lost: u64,
}

impl Tally {
    /// Begins to watch.
    pub fn open() -> Result<Tally, String> {
        let events = Events::open(&Options::default().gather(GATHER)).map_err(|error| format!("{error:#}"))?;
        Ok(Tally {
            events,
            cgroups: Cgroups::for_any_source(),
            happened: Happened::default(),
            born: HashSet::new(),
            lost: 0,
        })
    }

    /// Where the events come from.
    pub fn source(&self) -> EventSource {
        self.events.source()
    }

    /// Counts what comes in the next time, or until it is time to end.
    pub fn wait(&mut self, time: Duration, stop: &Stop) -> Result<(), String> {
        let waited = self.events.wait(Some(time), Some(stop.as_fd()));
        waited.and_then(|()| self.read()).map_err(|error| format!("{error:#}"))
    }

    fn read(&mut self) -> taskdiag::Result<()> {
        let Tally {
            events,
            cgroups,
            happened,
            born,
            ..
        } = self;
        for event in events.read()? {
            if !event.is_thread() {
                add(&event, cgroups, happened, born);
            }
        }
        Ok(())
    }

    /// What happened since this was last called.
    pub fn take(&mut self) -> Happened {
        // What is broken is noticed when it is waited for.
        let _ = self.read();
        let lost = self.events.lost().count;
        self.happened.left_out += lost - std::mem::replace(&mut self.lost, lost);
        self.born.clear();
        std::mem::take(&mut self.happened)
    }
}

fn add(event: &Event<'_>, cgroups: &mut Cgroups, happened: &mut Happened, born: &mut HashSet<u32>) {
    let pid = event.pid();
    let mut sum = Sum::default();
    match event.kind() {
        EventKind::Fork => {
            sum.forks_count = 1;
            if born.len() < MOST_BORN {
                born.insert(pid);
            }
        }
        EventKind::Exec => sum.execs_count = 1,
        EventKind::Exit => {
            sum.ended_count = 1;
            sum.unseen_count = born.remove(&pid).into();
            sum.failed_count = (event.exit_code() != Some(0)).into();
            sum.runtime_ns = event.runtime_ns().and_then(Result::ok).unwrap_or(0);
            sum.peak_rss_bytes = event.peak_rss_bytes().and_then(Result::ok).unwrap_or(0);
        }
        _ => return,
    }
    if event.kind() != EventKind::Fork {
        if happened.events.len() < MOST_EVENTS {
            happened.events.push(event.to_bytes());
        } else {
            happened.left_out += 1;
        }
    }
    let of = (unit(event, cgroups), event.comm().unwrap_or_default().to_vec());
    happened.add_sum(of, sum, MOST_SUMS);
}

/// The unit of an event's process, or its cgroup if that is of no unit. Empty if it could not be
/// found out.
fn unit(event: &Event<'_>, cgroups: &mut Cgroups) -> Vec<u8> {
    let Some(cgroup) = cgroups.of(event) else {
        return Vec::new();
    };
    let text = |field| match cgroup.value(field) {
        Ok(Value::Text(text)) if !text.is_empty() => Some(text.to_vec()),
        _ => None,
    };
    text(Field::Unit).or_else(|| text(Field::Cgroup)).unwrap_or_default()
}
