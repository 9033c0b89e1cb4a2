//! Counts what happens between two samples, from events.

use std::collections::HashSet;
use std::time::Duration;

use taskdiag::events::{EventSource, Options};
use taskdiag::{Event, EventKind, Events, Field, Handle, Value};
use taskdiag_history::events::{IntervalEvents, Sum};

use crate::events::{Cgroups, Stop};
use crate::proc;

/// The maximum number of single events in a sample. The sums have all events.
const MAX_EVENTS: usize = 2000;

/// The additional room for processes that the OOM killer ended: when memory is short, very many
/// other processes may end.
const MAX_KILLS: usize = 200;

/// The maximum number of programs and units with their own sum in a sample. All others share one
/// sum.
const MAX_SUMS: usize = 1000;

/// The maximum number of remembered processes that started since the last sample.
const MAX_BORN: usize = 1 << 17;

/// How long events are batched before they are counted.
const GATHER: Duration = Duration::from_millis(100);

/// Counts events.
#[derive(Debug)]
pub struct Tally {
    events: Events,
    cgroups: Cgroups,
    happened: IntervalEvents,
    begun: Begun,
    lost: u64,
}

/// Which processes began after the last sample.
#[derive(Debug, Default)]
struct Begun {
    /// When the last two samples were taken, in nanoseconds since boot. Events are read after a
    /// sample that were before it.
    samples_ns: [Option<u64>; 2],
    /// Those that began since the last sample, for sources that do not tell when a process began.
    pids: HashSet<u32>,
}

impl Begun {
    /// Whether no sample has a process that ends now.
    fn is_unseen(&mut self, event: &Event<'_>) -> bool {
        let is_new = self.pids.remove(&event.pid());
        let is_before = |sample_ns: &u64| *sample_ns <= event.time_ns();
        let sample_ns = self.samples_ns.into_iter().flatten().find(is_before);
        match (event.start_ns(), sample_ns) {
            (Ok(start_ns), Some(sample_ns)) => start_ns > sample_ns as i64,
            _ => is_new,
        }
    }
}

impl Tally {
    /// Opens the event source. Exits have the network traffic that the handle counts.
    pub fn open(handle: &mut Handle) -> Result<Tally, String> {
        let options = handle.events_with_network(Options::default().gather(GATHER));
        let events = options.and_then(|options| proc::events(&options));
        let events = events.map_err(|error| format!("{error:#}"))?;
        Ok(Tally {
            events,
            cgroups: Cgroups::for_any_source(),
            happened: IntervalEvents::default(),
            begun: Begun::default(),
            lost: 0,
        })
    }

    pub fn source(&self) -> EventSource {
        self.events.source()
    }

    /// Counts events for this time, or until a stop is requested.
    pub fn wait(&mut self, time: Duration, stop: &Stop) -> Result<(), String> {
        let waited = self.events.wait(Some(time), Some(stop.as_fd()));
        waited.and_then(|()| self.read()).map_err(|error| format!("{error:#}"))
    }

    fn read(&mut self) -> taskdiag::Result<()> {
        let Tally {
            events,
            cgroups,
            happened,
            begun,
            ..
        } = self;
        for event in events.read()? {
            if !event.is_thread() {
                add(&event, cgroups, happened, begun);
            }
        }
        Ok(())
    }

    /// Returns what happened since the last call, for a sample that was taken at this time.
    pub fn take(&mut self, sample_ns: u64) -> IntervalEvents {
        self.begun.samples_ns = [Some(sample_ns), self.begun.samples_ns[0]];
        // Errors are reported by the next wait.
        let _ = self.read();
        let lost = self.events.lost().count;
        self.happened.left_out += lost - std::mem::replace(&mut self.lost, lost);
        self.begun.pids.clear();
        std::mem::take(&mut self.happened)
    }
}

fn add(event: &Event<'_>, cgroups: &mut Cgroups, happened: &mut IntervalEvents, begun: &mut Begun) {
    let mut sum = Sum::default();
    match event.kind() {
        EventKind::Fork => {
            sum.forks_count = 1;
            if begun.pids.len() < MAX_BORN {
                begun.pids.insert(event.pid());
            }
        }
        EventKind::Exec => sum.execs_count = 1,
        EventKind::Exit => {
            sum.ended_count = 1;
            sum.unseen_count = begun.is_unseen(event).into();
            // The recorder kills its helpers, which ask what may not answer, once they have.
            let is_own = event.ppid().ok() == Some(proc::own_pid());
            sum.failed_count = (event.exit_code() != Ok(0) && !is_own).into();
            sum.runtime_ns = event.runtime_ns().unwrap_or(0);
            sum.net_sent_bytes = event.net_sent_bytes().unwrap_or(0);
            sum.net_received_bytes = event.net_received_bytes().unwrap_or(0);
            sum.peak_rss_bytes = event.peak_rss_bytes().unwrap_or(0);
        }
        _ => return,
    }
    if event.kind() != EventKind::Fork {
        let is_kill = event.oom_killed() == Ok(true);
        let most = if is_kill { MAX_EVENTS + MAX_KILLS } else { MAX_EVENTS };
        if happened.events.len() < most {
            happened.events.push(event.to_bytes());
        } else {
            happened.left_out += 1;
        }
    }
    let of = (unit(event, cgroups), event.comm().unwrap_or_default().to_vec());
    happened.add_sum(of, sum, MAX_SUMS);
}

/// The unit of an event's process; its cgroup if it has no unit; empty if unknown.
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

#[cfg(test)]
mod tests {
    use taskdiag_core::event::wire;

    use super::*;

    /// The exit of a process by signal 9.
    fn exit(flags: u16) -> Vec<u8> {
        const STATUS: usize = size_of::<wire::Header>();
        let mut bytes = vec![0; STATUS + size_of::<wire::Exit>()];
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes[4..6].copy_from_slice(&wire::EXIT.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[STATUS..STATUS + 4].copy_from_slice(&9_u32.to_ne_bytes());
        bytes
    }

    /// Check that a process is in no sample if it began after the last one before its end, also if
    /// its events are read only after the next one.
    #[test]
    fn processes_are_seen_by_time() {
        let begun = || Begun {
            samples_ns: [Some(200), Some(100)],
            pids: HashSet::from([7]),
        };
        let unseen = |start_ns: u64, end_ns: u64, mut begun: Begun| {
            let mut bytes = exit(0);
            bytes[8..16].copy_from_slice(&end_ns.to_ne_bytes());
            bytes[16..24].copy_from_slice(&start_ns.to_ne_bytes());
            bytes[32..36].copy_from_slice(&7_u32.to_ne_bytes());
            begun.is_unseen(&Event::decode(&bytes).expect("an event"))
        };
        for (start_ns, end_ns, is_unseen) in [
            (50, 150, false),
            (110, 190, true),
            (110, 210, false),
            (210, 220, true),
            (90, 210, false),
        ] {
            assert_eq!(unseen(start_ns, end_ns, begun()), is_unseen, "{start_ns} to {end_ns}");
        }
        // Before the first sample, only processes that began while events were counted are known to
        // be in none.
        for pids in [HashSet::from([7]), HashSet::new()] {
            let is_unseen = !pids.is_empty();
            let samples_ns = [None; 2];
            assert_eq!(unseen(5, 6, Begun { samples_ns, pids }), is_unseen);
        }
    }

    /// Check that a program which a signal ended failed, but not if the recorder killed it.
    #[test]
    fn own_helpers_do_not_fail() {
        for (ppid, failed) in [(1, 1), (std::process::id(), 0)] {
            let (mut cgroups, mut happened, mut begun) =
                (Cgroups::for_any_source(), IntervalEvents::default(), Begun::default());
            let mut bytes = exit(0);
            let at = std::mem::offset_of!(wire::Header, ppid);
            bytes[at..at + 4].copy_from_slice(&ppid.to_ne_bytes());
            add(
                &Event::decode(&bytes).expect("an event"),
                &mut cgroups,
                &mut happened,
                &mut begun,
            );
            let sums = happened.sums.values().map(|sum| (sum.ended_count, sum.failed_count));
            assert_eq!(sums.collect::<Vec<_>>(), [(1, failed)], "{ppid}");
        }
    }

    /// Check that processes ended by the OOM killer are recorded, up to their own limit, even when
    /// very many other processes end.
    #[test]
    fn kills_are_told_among_very_many() {
        let (mut cgroups, mut happened, mut begun) =
            (Cgroups::for_any_source(), IntervalEvents::default(), Begun::default());
        let mut all = vec![0; 3000];
        all.extend(vec![wire::OOM_VICTIM; 300]);
        for flags in all {
            let bytes = exit(flags);
            let event = Event::decode(&bytes).expect("an event");
            add(&event, &mut cgroups, &mut happened, &mut begun);
        }
        let decoded = happened.events.iter().filter_map(|bytes| Event::decode(bytes));
        let kills = decoded.filter(|event| event.oom_killed() == Ok(true)).count();
        assert_eq!((happened.events.len(), kills), (MAX_EVENTS + MAX_KILLS, MAX_KILLS));
        assert_eq!(happened.left_out, 1100);
        assert_eq!(happened.sums.values().map(|sum| sum.ended_count).sum::<u64>(), 3300);
    }
}
