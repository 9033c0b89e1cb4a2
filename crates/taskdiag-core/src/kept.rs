//! What a handle keeps of tasks from one answer to the next.

use std::sync::Arc;

use zerocopy::native_endian::U64;

use crate::identity::Identity;
use crate::record::{attr, Cpu, Record, Run};
use crate::snapshot::{Place, Snapshot};

/// Something about each of some tasks.
#[derive(Debug)]
pub struct Kept<T> {
    /// By ascending ids, one of each.
    known: Vec<Entry<T>>,
    /// Where in it the last one was found: answers come in the same order.
    at: usize,
    fresh: Vec<Entry<T>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    task: Identity,
    value: T,
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept {
            known: Vec::new(),
            at: 0,
            fresh: Vec::new(),
        }
    }
}

/// So few are put in their places one by one.
const FEW: usize = 64;

impl<T: Copy> Kept<T> {
    /// What was kept of a task.
    pub fn find(&mut self, task: Identity) -> Option<T> {
        if self.known.get(self.at).is_none_or(|entry| entry.task != task) {
            self.at = self.known.partition_point(|entry| entry.task < task);
        }
        let entry = self.known.get(self.at).filter(|entry| entry.task == task)?;
        self.at += 1;
        Some(entry.value)
    }

    /// Keeps something of a task, from the next answer on.
    pub fn put(&mut self, task: Identity, value: T) {
        self.fresh.push(Entry { task, value });
    }

    /// Ends an answer. One about all tasks leaves nothing known of those that were not in it.
    pub fn settle(&mut self, is_of_all: bool) {
        self.at = 0;
        if self.fresh.is_empty() && !is_of_all {
            return;
        }
        if !is_of_all && self.fresh.len() < FEW {
            for entry in self.fresh.drain(..) {
                // Of an earlier one with its number nothing is needed any more.
                match self
                    .known
                    .binary_search_by_key(&entry.task.tid(), |known| known.task.tid())
                {
                    Ok(at) => self.known[at] = entry,
                    Err(at) => self.known.insert(at, entry),
                }
            }
            return;
        }
        if !is_of_all {
            // What is fresh comes first, and so is what is left of two.
            self.fresh.append(&mut self.known);
        }
        self.fresh.sort_by_key(|entry| entry.task.tid());
        self.fresh.dedup_by_key(|entry| entry.task.tid());
        std::mem::swap(&mut self.known, &mut self.fresh);
        self.fresh.clear();
    }

    fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.known.iter_mut().map(|entry| &mut entry.value)
    }
}

/// The times that a handle told of tasks. The kernel sees to it that none of what `/proc` shows ever falls; who divides run time into
/// user and system time by itself has to do the same.
#[derive(Debug, Default)]
pub struct Times(Kept<[u64; TIMES]>);

const TIMES: usize = 7;

impl Times {
    /// Raises the times of a record to what was told of the task before, and keeps them.
    pub fn raise(&mut self, task: Identity, cpu: &mut Cpu) {
        if let Some(before) = self.0.find(task) {
            for (now, before) in Times::of(cpu).into_iter().zip(before) {
                if now.get() < before {
                    now.set(before);
                }
            }
        }
        let (utime, stime) = cpu.scaled_times();
        let mut told = Times::of(cpu).map(|time| time.get());
        (told[0], told[1]) = (utime, stime);
        self.0.put(task, told);
    }

    /// The two that times are never below, and those that sources have in different units.
    fn of(cpu: &mut Cpu) -> [&mut U64; TIMES] {
        [
            &mut cpu.prev_utime,
            &mut cpu.prev_stime,
            &mut cpu.cutime_ns,
            &mut cpu.cstime_ns,
            &mut cpu.guest_ns,
            &mut cpu.cguest_ns,
            &mut cpu.block_delay_ns,
        ]
    }

    /// Ends an answer.
    pub fn settle(&mut self, is_of_all: bool) {
        self.0.settle(is_of_all);
    }
}

/// The arguments of processes, and what tells that these have not run since they were read.
#[derive(Debug, Default)]
pub struct Arguments {
    known: Kept<(u64, u64, Place)>,
    /// Records that have them.
    chunks: Vec<Arc<Vec<u8>>>,
    /// How many bytes were needed when chunks were last joined.
    needed: usize,
}

/// More chunks than this are joined into one.
const MOST_CHUNKS: usize = 512;

/// So many bytes may be held besides as many as were needed, twice, before chunks are joined. What was read together with the arguments
/// of a process at rest, and is not needed any more, can be megabytes each time.
const MOST_BESIDES: usize = 4 << 20;

impl Arguments {
    /// Begins an answer: what is known is at hand in it.
    pub fn begin(&mut self, snapshot: &mut Snapshot) {
        snapshot.chunks.clone_from(&self.chunks);
    }

    /// Where the arguments of a process lie, if it has not run since they were read.
    pub fn find(&mut self, record: Record<'_>) -> Option<Place> {
        let run: &Run = record.get(attr::RUN)?;
        let task = Identity::of(record.header());
        let (runtime_ns, switches, place) = self.known.find(task)?;
        if (runtime_ns, switches) != (run.runtime_ns.get(), run.switches.get()) {
            return None;
        }
        self.known.put(task, (runtime_ns, switches, place));
        Some(place)
    }

    /// Keeps the arguments of a process, which were read after its record was made.
    pub fn keep(&mut self, record: Record<'_>, place: Place) {
        if let Some(run) = record.get::<Run>(attr::RUN) {
            let value = (run.runtime_ns.get(), run.switches.get(), place);
            self.known.put(Identity::of(record.header()), value);
        }
    }

    /// Ends an answer. Its chunks are kept as long as something in them is known.
    pub fn settle(&mut self, snapshot: &Snapshot, is_of_all: bool) {
        self.known.settle(is_of_all);
        self.chunks.clone_from(&snapshot.chunks);
        let mut is_used = vec![false; self.chunks.len() + 1];
        self.known
            .values_mut()
            .for_each(|(_, _, place)| is_used[place.chunk as usize] = true);
        // An empty chunk in the place of one that nobody needs: the others keep their numbers.
        for (chunk, is_used) in self.chunks.iter_mut().zip(&is_used[1..]) {
            if !is_used && !chunk.is_empty() {
                *chunk = Arc::default();
            }
        }
        if self.chunks.len() > MOST_CHUNKS || self.held() > 2 * self.needed + MOST_BESIDES {
            self.join();
        }
    }

    /// The bytes of all chunks.
    fn held(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.capacity()).sum()
    }

    fn join(&mut self) {
        let mut joined = Vec::new();
        let chunks = std::mem::take(&mut self.chunks);
        for (_, _, place) in self.known.values_mut() {
            let chunk = (place.chunk as usize)
                .checked_sub(1)
                .and_then(|index| chunks.get(index));
            let bytes = chunk.and_then(|chunk| chunk.get(place.offset..)).unwrap_or_default();
            let start = joined.len();
            if let Some((record, _)) = Record::split_first(bytes) {
                joined.extend_from_slice(record.as_bytes());
            }
            *place = Place {
                chunk: 1,
                offset: start,
            };
        }
        joined.shrink_to_fit();
        self.needed = joined.len();
        self.chunks.push(Arc::new(joined));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::native_endian::U32;
    use zerocopy::IntoBytes as _;

    use super::*;
    use crate::record::tests::cpu;
    use crate::record::Header;

    fn task(tid: u32, start_ns: u64) -> Identity {
        Identity::of(&Header {
            tid: U32::new(tid),
            start_ns: U64::new(start_ns),
            ..Header::default()
        })
    }

    /// Check that what is kept is found for the task that it is of, whatever else is asked before, and for no other.
    #[test]
    fn tasks_are_told_apart_by_their_start() {
        const START: u64 = 1 << 40;
        let mut kept = Kept::default();
        for id in [5, 3, 9] {
            kept.put(task(id, START), id);
        }
        assert_eq!(kept.find(task(3, START)), None);
        kept.settle(true);
        let found = [9, 3, 5, 4].map(|id| kept.find(task(id, START)));
        assert_eq!(found, [Some(9), Some(3), Some(5), None]);
        let (later, ninth) = (task(3, 2 * START), task(9, START));
        assert_eq!(kept.find(later), None);
        kept.put(later, 7);
        kept.settle(false);
        assert_eq!(
            (kept.find(later), kept.find(task(3, START)), kept.find(ninth)),
            (Some(7), None, Some(9))
        );
        for id in 100..100 + FEW as u32 {
            kept.put(task(id, START), id);
        }
        kept.put(ninth, 1);
        kept.settle(false);
        assert_eq!((kept.find(later), kept.find(ninth)), (Some(7), Some(1)));
        kept.put(ninth, 2);
        kept.settle(true);
        assert_eq!((kept.find(later), kept.find(ninth)), (None, Some(2)));
    }

    /// Check that what was read together with something that is kept does not stay for as long.
    #[test]
    fn arguments_keep_little_besides() {
        const OF_EACH: usize = 1 << 20;
        let mut arguments = Arguments::default();
        let mut snapshot = Snapshot::default();
        for tid in 1..100 {
            arguments.begin(&mut snapshot);
            let header = Header {
                len: U32::new(size_of::<Header>() as u32),
                tid: U32::new(tid),
                ..Header::default()
            };
            let mut chunk = Vec::with_capacity(OF_EACH);
            chunk.extend_from_slice(header.as_bytes());
            snapshot.chunks.push(Arc::new(chunk));
            let place = Place {
                chunk: snapshot.chunks.len() as u32,
                offset: 0,
            };
            arguments.known.put(task(tid, 0), (0, 0, place));
            arguments.settle(&snapshot, false);
            assert!(arguments.held() <= MOST_BESIDES + OF_EACH, "{}", arguments.held());
        }
        for tid in 1..100 {
            let (_, _, place) = arguments.known.find(task(tid, 0)).unwrap();
            let bytes = &arguments.chunks[place.chunk as usize - 1][place.offset..];
            let (record, _) = Record::split_first(bytes).unwrap();
            assert_eq!(record.header().tid.get(), tid);
        }
    }

    proptest! {
        /// Check that no time of a task falls from one answer to the next, whatever the kernel's raw numbers do, as long as run time grows.
        #[test]
        fn times_never_fall(raw in proptest::collection::vec((0..1000_u64, 0..1000_u64, 0..50_u64, any::<bool>()), 1..20)) {
            let mut times = Times::default();
            let (mut runtime, mut before) = (0, (0, 0));
            for (utime, stime, ran, is_text) in raw {
                runtime += ran;
                let mut now = if is_text { cpu(before.0 / 10 * 10, before.1 / 10 * 10, 0, before.0 / 10 * 10, before.1 / 10 * 10) } else { cpu(utime, stime, runtime, 0, 0) };
                times.raise(task(7, 0), &mut now);
                times.settle(true);
                let told = now.scaled_times();
                prop_assert!(told.0 >= before.0 && told.1 >= before.1, "{before:?} {told:?}");
                before = told;
            }
        }
    }
}
