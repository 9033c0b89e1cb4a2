//! Gives the items of a job to readers, and gives up readers that are blocked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use taskdiag_core::absent::Absent;

use super::holders::{are_scarce, lost};
use super::pool::{forget_parents, Reader, Work};
use super::{Job, Pulse, Wait, MAX_LOST, MAX_READERS};
use crate::interrupt::is_interrupted;
use crate::mutex::lock;

/// How often readers are checked.
const TICK: Duration = Duration::from_millis(10);

/// A reader that has been quiet for this long is probably blocked: another one takes the items that
/// wait behind it.
const QUIET: Duration = Duration::from_millis(20);

/// The items of a job.
struct Batch<J: Job> {
    job: Arc<J>,
    state: Mutex<State<J>>,
    changed: Condvar,
}

struct State<J: Job> {
    waiting: VecDeque<J::Item>,
    /// By the number that an item got when it was taken.
    under_way: HashMap<u64, Arc<UnderWay<J>>>,
    done: Vec<J::Done>,
    next_ticket: u64,
    /// There are no items beyond those that wait.
    is_exhausted: bool,
    /// Nobody waits for the batch any more.
    is_closed: bool,
}

struct UnderWay<J: Job> {
    item: J::Item,
    done: Mutex<J::Done>,
    /// The thread id of its reader.
    tid: u32,
}

impl<J: Job> State<J> {
    fn is_done(&self) -> bool {
        self.is_exhausted && self.waiting.is_empty() && self.under_way.is_empty()
    }

    fn has_more(&self) -> bool {
        !self.waiting.is_empty() || !self.is_exhausted
    }

    /// Takes the next item to read.
    fn take(&mut self, job: &J) -> Option<J::Item> {
        if let Some(item) = self.waiting.pop_front() {
            return Some(item);
        }
        if self.is_exhausted {
            return None;
        }
        let item = job.more();
        self.is_exhausted = item.is_none();
        item
    }
}

impl<J: Job> Work for Batch<J> {
    fn work(&self, pulse: &Pulse) {
        let mut tools = self.job.tools();
        let tid = pulse.tid();
        loop {
            let (ticket, taken) = {
                let mut state = lock(&self.state);
                if state.is_closed {
                    return;
                }
                let Some(item) = state.take(&self.job) else {
                    if state.is_done() {
                        self.changed.notify_all();
                    }
                    return;
                };
                let taken = Arc::new(UnderWay {
                    item,
                    done: Mutex::default(),
                    tid,
                });
                let ticket = state.next_ticket;
                state.next_ticket += 1;
                state.under_way.insert(ticket, Arc::clone(&taken));
                // The last mark belongs to the item before.
                pulse.mark(0);
                (ticket, taken)
            };
            self.job.read(&taken.item, &mut tools, pulse, &taken.done);
            pulse.beat();
            let mut state = lock(&self.state);
            // The reader was given up meanwhile, and others have read the item.
            if state.under_way.remove(&ticket).is_none() {
                return;
            }
            let done = std::mem::take(&mut *lock(&taken.done));
            state.done.push(done);
            if state.is_done() {
                self.changed.notify_all();
            }
        }
    }
}

/// Does a job, and returns the results of its items, in no particular order. Leaves out items that
/// are not done at the deadline, or when the caller is interrupted. `items` are the first ones,
/// [`Job::more`] returns the others; there are about `expected` of them.
pub(crate) fn run<J: Job>(job: &Arc<J>, items: Vec<J::Item>, expected: usize, wait: Wait) -> Vec<J::Done> {
    if is_interrupted() {
        return Vec::new();
    }
    forget_parents();
    let wanted = thread::available_parallelism().map_or(1, |count| count.get());
    let wanted = wanted.min(MAX_READERS).min(expected.max(1));
    let batch = Arc::new(Batch {
        job: Arc::clone(job),
        state: Mutex::new(State {
            waiting: items.into(),
            under_way: HashMap::new(),
            done: Vec::new(),
            next_ticket: 0,
            is_exhausted: false,
            is_closed: false,
        }),
        changed: Condvar::new(),
    });
    let mut watch = Watch {
        batch: &batch,
        engaged: Vec::new(),
        reason: Absent::NoAnswer,
        wait,
    };
    for _ in 0..wanted {
        watch.engage();
    }
    watch.finish();
    let mut state = lock(&batch.state);
    std::mem::take(&mut state.done)
}

/// The state of a reader at the last check.
#[derive(Default)]
struct Seen {
    beats: u64,
    /// How long it has waited in a system call since then. While it ran, or waited for a processor,
    /// it was slow but not blocked.
    quiet: Duration,
    has_stand_in: bool,
}

/// Watches the readers of a batch.
struct Watch<'b, J: Job> {
    batch: &'b Arc<Batch<J>>,
    engaged: Vec<(Reader, Seen)>,
    /// Why no reader is left.
    reason: Absent,
    wait: Wait,
}

impl<J: Job> Watch<'_, J> {
    fn work(&self) -> Arc<dyn Work> {
        Arc::clone(self.batch) as Arc<dyn Work>
    }

    /// Lets one more reader work on the batch. False if none is left.
    fn engage(&mut self) -> bool {
        // A stand-in for a quiet reader may be blocked as well. So some readers are kept back until
        // it is known which processes block readers.
        let most = if are_scarce() { MAX_LOST } else { MAX_LOST / 2 };
        if lost() + self.engaged.len() >= most + MAX_READERS {
            return false;
        }
        // A reader whose thread has just ended takes no work.
        for _ in 0..MAX_READERS {
            let Some(reader) = Reader::take() else {
                self.reason = Absent::NoThread;
                return false;
            };
            if reader.send(self.work()) {
                self.engaged.push((reader, Seen::default()));
                break;
            }
        }
        true
    }

    /// Waits until the batch is done, and replaces readers that are blocked. Readers that come back
    /// in time are kept for the next batch.
    fn finish(&mut self) {
        let mut last_look = Instant::now();
        loop {
            let tick = match self.wait.deadline {
                Some(deadline) => TICK.min(deadline.saturating_duration_since(Instant::now())),
                None => TICK,
            };
            let state = lock(&self.batch.state);
            if state.is_done() || tick.is_zero() {
                break;
            }
            let waited = self.batch.changed.wait_timeout(state, tick);
            let state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_done() {
                break;
            }
            let has_more = state.has_more();
            drop(state);
            // Items under way are then lost until their readers come back.
            if is_interrupted() {
                break;
            }
            // If this thread itself did not get to run, that says nothing about the readers.
            let passed = last_look.elapsed().min(2 * TICK);
            last_look = Instant::now();
            self.look(passed, has_more);
            if self.engaged.is_empty() {
                read_without(self.batch, self.reason);
                break;
            }
        }
        let mut state = lock(&self.batch.state);
        state.is_closed = true;
        for (reader, _) in self.engaged.drain(..) {
            if state.under_way.values().any(|taken| taken.tid == reader.pulse.tid()) {
                reader.lose()
            } else {
                reader.give_back()
            }
        }
        state.under_way.clear();
    }

    /// Checks the readers: gives up those that are blocked, and engages others in their place.
    fn look(&mut self, passed: Duration, has_more: bool) {
        let patience = self.wait.patience;
        let mut vacant = 0;
        let mut index = 0;
        while let Some((reader, seen)) = self.engaged.get_mut(index) {
            let beats = reader.pulse.beats();
            if beats != seen.beats {
                *seen = Seen {
                    beats,
                    ..Seen::default()
                };
            } else if !reader.pulse.is_running() {
                seen.quiet += passed;
            }
            if seen.quiet >= patience {
                if give_up(self.batch, reader) {
                    reader.lose();
                    vacant += usize::from(!seen.has_stand_in);
                    self.engaged.swap_remove(index);
                    continue;
                }
                // It had no more work. Items of readers that were given up may have come since, and
                // perhaps nobody else can read them.
                seen.quiet = Duration::ZERO;
                if lock(&self.batch.state).has_more() {
                    reader.send(Arc::clone(self.batch) as Arc<dyn Work>);
                }
            } else if seen.quiet >= QUIET.min(patience) && has_more && !seen.has_stand_in {
                seen.has_stand_in = true;
                vacant += 1;
            }
            index += 1;
        }
        // With no reader left, one is tried even if all had stand-ins.
        for _ in 0..vacant.max(usize::from(self.engaged.is_empty())) {
            if !lock(&self.batch.state).has_more() {
                break;
            }
            self.engage();
        }
    }
}

/// Takes the item from a reader, and leaves the rest of it to others. False if it has none.
fn give_up<J: Job>(batch: &Batch<J>, reader: &Reader) -> bool {
    let mut state = lock(&batch.state);
    let tid = reader.pulse.tid();
    let found = state.under_way.iter().find(|(_, taken)| taken.tid == tid);
    let Some((&ticket, _)) = found else {
        return false;
    };
    let Some(taken) = state.under_way.remove(&ticket) else {
        return false;
    };
    let (mark, mut done) = {
        // A mark under this lock tells how much is done.
        let mut done = lock(&taken.done);
        (reader.pulse.last_mark(), std::mem::take(&mut *done))
    };
    let rest = batch.job.rest_of(&taken.item, mark, &reader.hold(), &mut done);
    for item in rest.into_iter().rev() {
        state.waiting.push_front(item);
    }
    state.done.push(done);
    true
}

/// Does the rest of a batch as far as that needs no reader.
fn read_without<J: Job>(batch: &Batch<J>, reason: Absent) {
    let mut state = lock(&batch.state);
    while let Some(item) = state.take(&batch.job) {
        let mut done = J::Done::default();
        batch.job.without_reader(&item, reason, &mut done);
        state.done.push(done);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, Receiver};

    use super::super::Hold;
    use super::*;

    /// The first item leaves a mark, the second is never done.
    struct Blocked(Mutex<Receiver<()>>);

    impl Job for Blocked {
        type Item = bool;
        type Done = Vec<u64>;
        type Tools = ();

        fn tools(&self) {}

        fn read(&self, &is_first: &bool, (): &mut (), pulse: &Pulse, _: &Mutex<Vec<u64>>) {
            if is_first {
                pulse.mark(7);
            } else {
                let _ = lock(&self.0).recv();
            }
        }

        fn rest_of(&self, _: &bool, mark: u64, _: &Hold, done: &mut Vec<u64>) -> Vec<bool> {
            done.push(mark);
            Vec::new()
        }

        fn without_reader(&self, _: &bool, _: Absent, _: &mut Vec<u64>) {}
    }

    /// Check that a reader that is given up before its first mark has none from the item before.
    #[test]
    fn marks_belong_to_one_item() {
        let (end, ended) = channel();
        let job = Arc::new(Blocked(Mutex::new(ended)));
        let wait = Wait {
            patience: Duration::from_millis(50),
            deadline: None,
        };
        let done = run(&job, vec![true, false], 1, wait);
        assert_eq!(done.concat(), [0]);
        drop(end);
    }
}
