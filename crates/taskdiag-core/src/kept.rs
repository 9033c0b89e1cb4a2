//! What a handle remembers about tasks from one answer to the next: times and arguments.

use std::sync::Arc;

use zerocopy::native_endian::U64;

use crate::identity::Identity;
use crate::record::{attr, Cpu, Record, Run};
use crate::snapshot::{Place, Snapshot};

/// One value for each of some tasks. Values that are set during one answer can be found from the
/// next answer on.
#[derive(Debug)]
struct PerTask<T> {
    /// Entries of earlier answers, by ascending id, at most one for each id.
    known: Vec<Entry<T>>,
    /// The index in `known` where the next task is expected: answers list tasks in the same order.
    next: usize,
    /// Entries of the current answer.
    fresh: Vec<Entry<T>>,
    /// The number of the current answer.
    turn: u32,
    /// The number of the answer after which entries were forgotten last.
    forgotten_at: u32,
    /// The maximum number of entries; beyond it, some are forgotten.
    most: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    task: Identity,
    /// The answer that it was in last.
    turn: u32,
    value: T,
}

impl<T> Default for PerTask<T> {
    fn default() -> PerTask<T> {
        PerTask {
            known: Vec::new(),
            next: 0,
            fresh: Vec::new(),
            turn: 0,
            forgotten_at: 0,
            most: MAX_ENTRIES,
        }
    }
}

/// A caller that queries only single tasks never reports which have ended. At this many entries,
/// those are forgotten that have been in no answer since entries were last forgotten.
const MAX_ENTRIES: usize = 1 << 16;

/// Fewer fresh entries than this are inserted one by one; more are merged by sorting.
const MIN_MERGED: usize = 64;

impl<T: Copy> PerTask<T> {
    /// The value of a task.
    fn find(&mut self, task: Identity) -> Option<T> {
        if self.known.get(self.next).is_none_or(|entry| entry.task != task) {
            self.next = self.known.partition_point(|entry| entry.task < task);
        }
        let entry = self.known.get(self.next).filter(|entry| entry.task == task)?;
        self.next += 1;
        Some(entry.value)
    }

    /// Sets the value of a task, for later answers.
    fn put(&mut self, task: Identity, value: T) {
        self.fresh.push(Entry {
            task,
            turn: self.turn,
            value,
        });
    }

    /// Ends an answer. If it was about all tasks, forgets the tasks that were not in it.
    fn end_answer(&mut self, is_of_all: bool) {
        self.merge(is_of_all);
        if self.known.len() > self.most {
            let since = self.forgotten_at;
            self.known
                .retain(|entry| entry.turn.wrapping_sub(since) <= u32::MAX / 2);
            self.forgotten_at = self.turn.wrapping_add(1);
            self.most = MAX_ENTRIES.max(2 * self.known.len());
        }
        self.turn = self.turn.wrapping_add(1);
    }

    fn merge(&mut self, is_of_all: bool) {
        self.next = 0;
        if self.fresh.is_empty() && !is_of_all {
            return;
        }
        if !is_of_all && self.fresh.len() < MIN_MERGED {
            for entry in self.fresh.drain(..) {
                // An earlier task with this id has ended.
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
            // The sort is stable, so of two entries with the same id the fresh one is kept.
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

/// The times that a handle has reported for tasks. The kernel never lets a time in `/proc`
/// decrease. BPF reads only the values from which these times are computed, so the handle must
/// ensure the same.
#[derive(Debug, Default)]
pub struct Times(PerTask<[u64; TIMES]>);

const TIMES: usize = 7;

impl Times {
    /// Raises the times of a record to those that were reported for the task before, and remembers
    /// them.
    pub fn raise(&mut self, task: Identity, cpu: &mut Cpu) {
        if let Some(before) = self.0.find(task) {
            for (now, before) in Times::of(cpu).into_iter().zip(before) {
                if now.get() < before {
                    now.set(before);
                }
            }
        }
        let (utime, stime) = cpu.scaled_times();
        let mut reported = Times::of(cpu).map(|time| time.get());
        (reported[0], reported[1]) = (utime, stime);
        self.0.put(task, reported);
    }

    /// The lower bounds of user and system time, and the times whose precision depends on the
    /// source.
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

    /// Ends an answer. If it was about all tasks, forgets the tasks that were not in it.
    pub fn end_answer(&mut self, is_of_all: bool) {
        self.0.end_answer(is_of_all);
    }
}

/// The arguments of processes, with the run time and context switches at which they were read. A
/// process that has not run since then has not changed its arguments.
#[derive(Debug, Default)]
pub struct Arguments {
    known: PerTask<(u64, u64, Place)>,
    /// The memory that the [`Place`]s refer to: records, only some of which are still needed.
    chunks: Vec<Arc<Vec<u8>>>,
    /// About how many bytes are needed: they are counted when chunks are joined.
    needed: usize,
}

/// If there are more chunks than this, they are joined into one.
const MAX_CHUNKS: usize = 512;

/// Chunks are joined once they hold twice the needed bytes plus this many. A chunk also holds
/// records of processes whose arguments were read again since, which can be megabytes.
const MAX_UNNEEDED: usize = 4 << 20;

/// Beyond this many bytes, only what is in the last answer is kept: the processes of others may have
/// ended.
const MAX_NEEDED: usize = 16 << 20;

impl Arguments {
    /// Begins an answer, which may refer to all remembered arguments.
    pub fn begin_answer(&mut self, snapshot: &mut Snapshot) {
        snapshot.chunks.clone_from(&self.chunks);
    }

    /// Where the arguments of a process are, if it has not run since they were read.
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

    /// Remembers the arguments of a process, which were read after its record was made.
    pub fn keep(&mut self, record: Record<'_>, place: Place) {
        if let Some(run) = record.get::<Run>(attr::RUN) {
            let value = (run.runtime_ns.get(), run.switches.get(), place);
            self.known.put(Identity::of(record.header()), value);
        }
    }

    /// Ends an answer. Its chunks are kept as long as something in them is needed.
    pub fn end_answer(&mut self, snapshot: &Snapshot, is_of_all: bool) {
        self.known.end_answer(is_of_all || self.needed > MAX_NEEDED);
        self.chunks.clone_from(&snapshot.chunks);
        let mut is_used = vec![false; self.chunks.len() + 1];
        self.known
            .values_mut()
            .for_each(|(_, _, place)| is_used[place.chunk as usize] = true);
        // An empty chunk replaces one that is not needed, so that the others keep their numbers.
        for (chunk, is_used) in self.chunks.iter_mut().zip(&is_used[1..]) {
            if !is_used && !chunk.is_empty() {
                *chunk = Arc::default();
            }
        }
        // Fewer may be needed by now: they are counted again after some answers.
        self.needed -= self.needed / 16;
        if self.chunks.len() > MAX_CHUNKS || self.held() > 2 * self.needed + MAX_UNNEEDED {
            self.join();
        }
    }

    /// The total size of all chunks, in bytes.
    fn held(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.capacity()).sum()
    }

    /// Copies the needed parts of all chunks into one.
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

    /// Check that a value is found only for its own task, whatever was looked up before.
    #[test]
    fn start_times_distinguish_tasks() {
        const START: u64 = 1 << 40;
        let mut kept = PerTask::default();
        for id in [5, 3, 9] {
            kept.put(task(id, START), id);
        }
        assert_eq!(kept.find(task(3, START)), None);
        kept.end_answer(true);
        let found = [9, 3, 5, 4].map(|id| kept.find(task(id, START)));
        assert_eq!(found, [Some(9), Some(3), Some(5), None]);
        let (later, ninth) = (task(3, 2 * START), task(9, START));
        assert_eq!(kept.find(later), None);
        kept.put(later, 7);
        kept.end_answer(false);
        assert_eq!(
            (kept.find(later), kept.find(task(3, START)), kept.find(ninth)),
            (Some(7), None, Some(9))
        );
        for id in 100..100 + MIN_MERGED as u32 {
            kept.put(task(id, START), id);
        }
        kept.put(ninth, 1);
        kept.end_answer(false);
        assert_eq!((kept.find(later), kept.find(ninth)), (Some(7), Some(1)));
        kept.put(ninth, 2);
        kept.end_answer(true);
        assert_eq!((kept.find(later), kept.find(ninth)), (None, Some(2)));
    }

    /// Check that entries of single tasks, whose end is never reported, do not accumulate, and that
    /// those that appear in answers again and again are kept.
    #[test]
    fn ended_tasks_are_forgotten() {
        const OFTEN: u32 = 4_000_000;
        let often = task(OFTEN, 0);
        let mut kept = PerTask::default();
        let mut largest = 0;
        for turn in 0..3 * MAX_ENTRIES as u32 {
            kept.put(task(turn, 0), turn);
            if turn % 1000 == 0 {
                kept.put(often, turn);
            }
            kept.end_answer(false);
            largest = largest.max(kept.known.len());
            assert!(kept.find(often).is_some() && kept.find(task(turn, 0)) == Some(turn));
        }
        assert!(largest <= 2 * MAX_ENTRIES + 8, "{largest}");
        // The entries of large answers are all kept.
        for round in 0..3 {
            let all = 0..3 * MAX_ENTRIES as u32;
            all.clone().for_each(|id| kept.put(task(id, 1 << 40), id + round));
            kept.end_answer(false);
            assert!(all.clone().all(|id| kept.find(task(id, 1 << 40)) == Some(id + round)));
        }
    }

    /// Check that remembered arguments do not keep much else of their chunks in memory.
    #[test]
    fn unneeded_bytes_are_bounded() {
        const CHUNK: usize = 1 << 20;
        let mut arguments = Arguments::default();
        let mut snapshot = Snapshot::default();
        for tid in 1..100 {
            arguments.begin_answer(&mut snapshot);
            let header = Header {
                len: U32::new(size_of::<Header>() as u32),
                tid: U32::new(tid),
                ..Header::default()
            };
            let mut chunk = Vec::with_capacity(CHUNK);
            chunk.extend_from_slice(header.as_bytes());
            snapshot.chunks.push(Arc::new(chunk));
            let place = Place {
                chunk: snapshot.chunks.len() as u32,
                offset: 0,
            };
            arguments.known.put(task(tid, 0), (0, 0, place));
            arguments.end_answer(&snapshot, false);
            assert!(arguments.held() <= MAX_UNNEEDED + CHUNK, "{}", arguments.held());
        }
        for tid in 1..100 {
            let (_, _, place) = arguments.known.find(task(tid, 0)).unwrap();
            let bytes = &arguments.chunks[place.chunk as usize - 1][place.offset..];
            let (record, _) = Record::split_first(bytes).unwrap();
            assert_eq!(record.header().tid.get(), tid);
        }
    }

    /// Check that the arguments of processes that were asked about once, and have ended since, are not
    /// kept for ever, and that those of a process that each answer has are.
    #[test]
    fn arguments_of_ended_processes_are_forgotten() {
        const LEN: usize = 1 << 20;
        let mut arguments = Arguments::default();
        let mut snapshot = Snapshot::default();
        let record_of = |tid| {
            let header = Header {
                len: U32::new(LEN as u32),
                tid: U32::new(tid),
                ..Header::default()
            };
            let mut bytes = header.as_bytes().to_vec();
            bytes.resize(LEN, 0);
            bytes
        };
        for tid in 1..300 {
            arguments.begin_answer(&mut snapshot);
            if let Some(value) = arguments.known.find(task(0, 0)) {
                arguments.known.put(task(0, 0), value);
            }
            let new = if tid == 1 { &[0, 1][..] } else { &[tid] };
            for &tid in new {
                snapshot.chunks.push(Arc::new(record_of(tid)));
                let chunk = snapshot.chunks.len() as u32;
                arguments.known.put(task(tid, 0), (0, 0, Place { chunk, offset: 0 }));
            }
            arguments.end_answer(&snapshot, false);
            assert!(arguments.held() <= 3 * MAX_NEEDED, "{}", arguments.held());
        }
        assert!(arguments.known.find(task(0, 0)).is_some());
        for _ in 0..100 {
            arguments.begin_answer(&mut snapshot);
            let value = arguments.known.find(task(0, 0)).expect("it is kept");
            arguments.known.put(task(0, 0), value);
            arguments.end_answer(&snapshot, true);
        }
        assert!(arguments.held() <= MAX_UNNEEDED + 3 * LEN, "{}", arguments.held());
    }

    proptest! {
        /// Check that no time of a task decreases from one answer to the next as long as the run
        /// time grows, whatever the kernel's raw times are.
        #[test]
        fn times_never_decrease(raw in proptest::collection::vec((0..1000_u64, 0..1000_u64, 0..50_u64, any::<bool>()), 1..20)) {
            let mut times = Times::default();
            let (mut runtime, mut before) = (0, (0, 0));
            for (utime, stime, ran, is_text) in raw {
                runtime += ran;
                let mut now = if is_text { cpu(before.0 / 10 * 10, before.1 / 10 * 10, 0, before.0 / 10 * 10, before.1 / 10 * 10) } else { cpu(utime, stime, runtime, 0, 0) };
                times.raise(task(7, 0), &mut now);
                times.end_answer(true);
                let reported = now.scaled_times();
                prop_assert!(reported.0 >= before.0 && reported.1 >= before.1, "{before:?} {reported:?}");
                before = reported;
            }
        }
    }
}
