//! Processes that begin and end between two samples, from events.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taskdiag::events::{EventSource, Options};
use taskdiag::{Event, EventKind, Events};

use crate::events::listener::{Listener, Listening};
use crate::outcome::lock;

/// How many names are kept for an interval. Others are only counted.
const MAX_NAMES: usize = 256;

/// How many processes that began in an interval are remembered.
const MAX_BORN: usize = 1 << 16;

/// Room for some ten thousand events. It is small enough to be left running.
const RING: u32 = 1 << 20;

/// How long events may gather before they are counted.
const GATHER: Duration = Duration::from_millis(100);

/// What happened in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Processes that began.
    pub forks: u64,
    /// Programs that were executed.
    pub execs: u64,
    /// Processes that ended.
    pub exits: u64,
    /// Processes that began and ended, by name: their number, and their processor time, as far as known.
    ended: HashMap<Vec<u8>, (u64, u64)>,
    /// How many more there were, with other names.
    pub others: u64,
    /// Processes that began and have not ended.
    born: HashSet<u32>,
}

impl Tally {
    /// A tally from known numbers: forks, execs and exits, and by name the number and processor
    /// time of processes that began and ended. The caller bounds the names.
    pub fn of([forks, execs, exits]: [u64; 3], ended: HashMap<Vec<u8>, (u64, u64)>) -> Tally {
        Tally {
            forks,
            execs,
            exits,
            ended,
            ..Tally::default()
        }
    }

    /// Counts an event.
    fn add(&mut self, event: &Event<'_>) {
        if event.is_thread() {
            return;
        }
        let pid = event.pid();
        match event.kind() {
            EventKind::Fork => {
                self.forks += 1;
                if self.born.len() < MAX_BORN {
                    self.born.insert(pid);
                }
            }
            EventKind::Exec => self.execs += 1,
            EventKind::Exit => {
                self.exits += 1;
                if self.born.remove(&pid) {
                    let runtime_ns = event.runtime_ns().unwrap_or(0);
                    self.end(event.comm().unwrap_or_default(), runtime_ns);
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &[u8], runtime_ns: u64) {
        let is_full = self.ended.len() >= MAX_NAMES;
        match self.ended.get_mut(name) {
            Some((count, total)) => {
                *count += 1;
                *total = total.saturating_add(runtime_ns);
            }
            None if is_full => self.others += 1,
            None => {
                self.ended.insert(name.to_owned(), (1, runtime_ns));
            }
        }
    }

    /// The names of processes that began and ended, the most frequent first, each with the number of
    /// the processes and their processor time in nanoseconds.
    pub fn ended(&self) -> Vec<(&[u8], u64, u64)> {
        let ended = self.ended.iter();
        let ended = ended.map(|(name, &(count, runtime_ns))| (&**name, count, runtime_ns));
        let mut ended: Vec<(&[u8], u64, u64)> = ended.collect();
        ended.sort_by_key(|&(name, count, _)| (Reverse(count), name));
        ended
    }
}

/// Shared between the thread and its owner.
#[derive(Debug, Default)]
struct Shared {
    tally: Tally,
    /// Whether events arrive, or why not.
    state: Option<Result<(), String>>,
    lost: u64,
}

/// Counts events until it is dropped.
#[derive(Debug)]
pub struct Bursts {
    shared: Arc<Mutex<Shared>>,
    _listening: Listening,
}

/// What is known about an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Events are not open yet.
    NotYet,
    /// There are no events, for this reason.
    None(String),
    /// What happened, and how many events have been lost since the beginning.
    Tally(Tally, u64),
}

impl Bursts {
    /// Begins to open the event source, which takes some tens of milliseconds.
    pub fn begin() -> io::Result<Bursts> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let options = Options::default().gather(GATHER).ring_bytes(RING);
        let listening = Listening::begin(options, Counting(shared.clone()))?;
        Ok(Bursts {
            shared,
            _listening: listening,
        })
    }

    /// What happened since the last call.
    pub fn take(&self) -> News {
        let mut shared = lock(&self.shared);
        match &shared.state {
            None => News::NotYet,
            Some(Err(reason)) => News::None(reason.clone()),
            Some(Ok(())) => {
                let lost = shared.lost;
                News::Tally(std::mem::take(&mut shared.tally), lost)
            }
        }
    }
}

/// The thread's side, which stores what it counts.
struct Counting(Arc<Mutex<Shared>>);

impl Listener for Counting {
    fn opened(&mut self, _: EventSource) {
        lock(&self.0).state = Some(Ok(()));
    }

    fn read(&mut self, events: &mut Events) -> taskdiag::Result<()> {
        let mut shared = lock(&self.0);
        for event in events.read()? {
            shared.tally.add(&event);
        }
        shared.lost = events.lost().count;
        Ok(())
    }

    fn failed(&mut self, reason: String) {
        lock(&self.0).state = Some(Err(reason));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Check that names are counted, that the most frequent come first, and that no more are kept
    /// than there is room for.
    #[test]
    fn the_most_frequent_come_first() {
        let mut tally = Tally::default();
        for name in ["b", "a", "b", "c"] {
            tally.end(name.as_bytes(), 10);
        }
        let expected = [("b", 2, 20), ("a", 1, 10), ("c", 1, 10)];
        assert_eq!(
            tally.ended(),
            expected.map(|(name, count, ns)| (name.as_bytes(), count, ns))
        );
        for number in 0..2 * MAX_NAMES {
            tally.end(number.to_string().as_bytes(), 0);
        }
        assert_eq!(tally.ended().len(), MAX_NAMES);
        assert_eq!(tally.others, MAX_NAMES as u64 + 3);
    }

    /// Check that a process that begins and ends between two samples is seen, where events are
    /// available.
    #[test]
    fn short_lived_processes_are_seen() {
        let bursts = Bursts::begin().expect("a thread");
        let mut seen = Tally::default();
        for _ in 0..100 {
            std::process::Command::new("true").status().expect("true exists");
            thread::sleep(Duration::from_millis(50));
            match bursts.take() {
                News::NotYet => {}
                News::None(reason) => panic!("these tests need root: {reason}"),
                News::Tally(tally, _) => {
                    seen.forks += tally.forks;
                    seen.exits += tally.exits;
                    if tally.ended().iter().any(|(name, ..)| *name == b"true") {
                        assert!(seen.forks > 0 && seen.exits > 0);
                        return;
                    }
                }
            }
        }
        panic!("no process called true in {seen:?}");
    }
}
