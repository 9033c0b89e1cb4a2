//! Snapshots: the answers to queries.

mod row;
mod task;
mod values;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::absent::Known;
use crate::field::{Field, Fields, Group};
use crate::identity::Identity;
#[cfg(doc)]
use crate::record;
use crate::record::Record;
use crate::room;

pub use row::{Indexer, More, Place, Row};
pub use task::Task;

pub use crate::counters::Counters;

crate::named_enum! {
    /// A source that can answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum SourceId {
        /// BPF programs (Linux 5.17).
        Bpf => "bpf",
        /// The text files of `/proc` (proc(5)).
        Procfs => "procfs",
        /// `/proc/PID/smaps_rollup`, which answers [`Group::Rollup`] only (Linux 4.14).
        SmapsRollup => "smaps_rollup",
        /// `/proc/PID/smaps`, added up, which answers [`Group::Rollup`] only, on kernels without
        /// `smaps_rollup`.
        Smaps => "smaps",
        /// The broker, `taskdiagd`, which shows the tasks that the caller may trace.
        Broker => "broker",
        /// The `PROCMAP_QUERY` ioctl on `/proc/PID/maps`, which answers only about the mappings of
        /// single processes (Linux 6.11).
        Procmap => "procmap",
    }
    /// All of them.
    #[doc(hidden)]
    pub const ALL;
    /// The name, as reports have it: `bpf`, `procfs`, `smaps_rollup`, `smaps`, `broker`,
    /// `procmap`.
    pub fn name;
    impl Display;
}

/// The answer to a query: one row for each task, read in place.
///
/// Reading it copies and allocates nothing. `Handle::query_into` reuses its memory for the next
/// answer.
#[derive(Default)]
pub struct Snapshot {
    #[doc(hidden)]
    pub fields: Fields,
    #[doc(hidden)]
    pub records: Vec<u8>,
    #[doc(hidden)]
    pub rows: Vec<Row>,
    #[doc(hidden)]
    pub more: Vec<More>,
    /// The offsets of records whose source deferred a group to procfs, ascending. Their rows may
    /// have been dropped since.
    #[doc(hidden)]
    pub deferred: Vec<usize>,
    /// Processes that must be read again, in another way: see [`record::AGAIN`].
    #[doc(hidden)]
    pub again: Vec<u32>,
    /// Records that reader threads made, or that the handle remembers from earlier snapshots.
    #[doc(hidden)]
    pub chunks: Vec<Arc<Vec<u8>>>,
    #[doc(hidden)]
    pub answers: [Option<Known<SourceId>>; Group::ALL.len()],
    #[doc(hidden)]
    pub missing: Vec<u32>,
    #[doc(hidden)]
    pub counters: Counters,
    /// When the source that found the tasks had answered, since boot: values of others may be later.
    /// 0 in an answer from a recording.
    #[doc(hidden)]
    pub read_ns: u64,
}

/// The number of tasks and what the query asked for, not the tasks.
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<&str> = self.fields.iter().map(Field::name).collect();
        f.debug_struct("Snapshot")
            .field("tasks", &self.rows.len())
            .field("fields", &fields)
            .field("missing", &self.missing)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<'a> IntoIterator for &'a Snapshot {
    type Item = Task<'a>;
    type IntoIter = Tasks<'a>;

    fn into_iter(self) -> Tasks<'a> {
        Tasks {
            snapshot: self,
            rows: 0..self.rows.len(),
        }
    }
}

/// The tasks of a snapshot, by ascending id.
#[derive(Clone, Debug)]
pub struct Tasks<'a> {
    snapshot: &'a Snapshot,
    rows: Range<usize>,
}

impl<'a> Iterator for Tasks<'a> {
    type Item = Task<'a>;

    fn next(&mut self) -> Option<Task<'a>> {
        Some(self.snapshot.task(self.rows.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl ExactSizeIterator for Tasks<'_> {}

impl Snapshot {
    /// The number of tasks.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The fields that the query asked for, and those that its filter or its budget reads.
    pub fn fields(&self) -> Fields {
        self.fields
    }

    /// The tasks, by ascending id.
    pub fn tasks(&self) -> Tasks<'_> {
        self.into_iter()
    }

    /// The task at `index`.
    ///
    /// # Panics
    ///
    /// If `index` is not less than [`len`](Snapshot::len).
    pub fn task(&self, index: usize) -> Task<'_> {
        let row = &self.rows[index];
        Task {
            snapshot: self,
            record: Record::split_first(&self.records[row.record..])
                .expect("each row has a whole record")
                .0,
            row,
        }
    }

    /// The listed processes that were not found, ascending: they have ended, or the caller may not
    /// see them.
    pub fn missing(&self) -> &[u32] {
        &self.missing
    }

    /// The groups that the query needed, each with the source that answered it, or why none did.
    /// [`Field::Pid`] and [`Field::Tid`] alone need none.
    pub fn answers(&self) -> impl Iterator<Item = (Group, Known<SourceId>)> + '_ {
        Group::ALL
            .into_iter()
            .filter_map(|group| Some((group, self.answers[group as usize]?)))
    }

    /// Counts of what answering the query took, and of what was lost on the way.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn record_at(&self, place: Place) -> Option<Record<'_>> {
        let bytes = match place.chunk {
            0 => &self.records,
            chunk => &self.chunks.get(chunk as usize - 1)?[..],
        };
        Some(Record::split_first(bytes.get(place.offset..)?)?.0)
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Snapshot {
    /// Empties it for the answer to a query for `fields`, and keeps its memory as [`room::empty`] does.
    pub fn clear(&mut self, fields: Fields) {
        self.fields = fields;
        room::empty(&mut self.records);
        room::empty(&mut self.rows);
        room::empty(&mut self.more);
        room::empty(&mut self.deferred);
        room::empty(&mut self.again);
        room::empty(&mut self.chunks);
        room::empty(&mut self.missing);
        self.answers = [None; Group::ALL.len()];
        self.counters = Counters::default();
        self.read_ns = 0;
    }

    /// The current lengths and counters, for [`rewind`](Snapshot::rewind).
    pub fn mark(&self) -> ([usize; 4], Counters) {
        let lengths = [
            self.rows.len(),
            self.records.len(),
            self.deferred.len(),
            self.again.len(),
        ];
        (lengths, self.counters)
    }

    /// Drops what was added since [`mark`](Snapshot::mark), and does not count its losses: they will
    /// be counted again. Its reads were made.
    pub fn rewind(&mut self, ([rows, records, deferred, again], counters): ([usize; 4], Counters)) {
        self.counters = Counters {
            reads: self.counters.reads,
            longest_run_ns: self.counters.longest_run_ns,
            ..counters
        };
        self.rows.truncate(rows);
        self.records.truncate(records);
        self.deferred.truncate(deferred);
        self.again.truncate(again);
    }

    /// Moves the rows of `other`, which have one record each, to the end, and adds its counters.
    pub fn append(&mut self, other: &mut Snapshot) {
        let offset = self.records.len();
        self.records.append(&mut other.records);
        self.rows.extend(other.rows.drain(..).map(|row| Row {
            record: row.record + offset,
            ..row
        }));
        let Counters {
            gone,
            denied,
            candidates,
            undecided,
            no_answer,
            malformed,
            ..
        } = std::mem::take(&mut other.counters);
        let counters = &mut self.counters;
        counters.gone += gone;
        counters.denied += denied;
        counters.candidates += candidates;
        counters.undecided += undecided;
        counters.no_answer += no_answer;
        counters.malformed += malformed;
    }

    /// Makes the row of the record at `offset`.
    pub fn add_row(&mut self, offset: usize) {
        let (record, _) = Record::split_first(&self.records[offset..]).expect("there is a whole record at the offset");
        self.rows.push(Row::new(record, offset));
    }

    /// Sorts the rows by thread id, unless they are sorted.
    pub fn sort(&mut self) {
        if !self.rows.is_sorted_by_key(|row| row.tid) {
            self.rows.sort_by_key(|row| row.tid);
        }
    }

    /// Whether it has a row of this task. The rows must be sorted.
    pub fn has(&self, task: Identity) -> bool {
        let found = self.rows.binary_search_by_key(&task.tid(), |row| row.tid);
        found.is_ok_and(|index| Identity::of(self.task(index).record().header()) == task)
    }

    /// Drops the rows of tasks for which `keep` returns false. Their records stay.
    pub fn retain(&mut self, mut keep: impl FnMut(&Task<'_>) -> bool) {
        let mut kept = 0;
        for index in 0..self.rows.len() {
            if keep(&self.task(index)) {
                self.rows[kept] = self.rows[index];
                kept += 1;
            }
        }
        self.rows.truncate(kept);
    }

    /// Whether the source deferred a group of this row to procfs.
    pub fn is_deferred(&self, row: usize) -> bool {
        self.deferred.binary_search(&self.rows[row].record).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::native_endian::U32;

    use super::*;
    use crate::record::{self, attr, Header, Writer};

    /// Check that a row stays deferred when rows are sorted and dropped, which happens before
    /// procfs is asked.
    #[test]
    fn rows_move_and_stay_deferred() {
        let mut snapshot = Snapshot::default();
        let (records, mut indexer) = Indexer::split(&mut snapshot);
        for (tid, flags) in [(7, record::DEFERRED), (9, 0), (3, 0), (5, record::DEFERRED), (4, 0)] {
            let header = Header {
                pid: U32::new(tid),
                tid: U32::new(tid),
                flags: U32::new(flags),
                ..Header::default()
            };
            Writer::new(records).finish(header);
        }
        indexer.index(records, 0).unwrap();
        snapshot.sort();
        snapshot.retain(|task| task.tid() != Ok(4));
        let rows = 0..snapshot.len();
        let deferred = rows
            .filter(|&row| snapshot.is_deferred(row))
            .map(|row| snapshot.rows[row].tid);
        assert_eq!(deferred.collect::<Vec<_>>(), [5, 7]);
    }

    /// Check that what is added anew is not counted twice, and that reads are counted.
    #[test]
    fn rewound_losses_are_not_counted() {
        let mut snapshot = Snapshot::default();
        snapshot.counters.gone = 1;
        let before = snapshot.mark();
        snapshot.counters.gone += 1;
        snapshot.counters.malformed += 1;
        snapshot.counters.count_read();
        snapshot.rewind(before);
        let Counters {
            gone, malformed, reads, ..
        } = snapshot.counters;
        assert_eq!((gone, malformed, reads), (1, 0, Some(1)));
    }

    /// Check that a record with the largest numbers has values: any broker may have written it.
    #[test]
    fn largest_numbers_have_values() {
        let mut snapshot = Snapshot::default();
        Field::ALL.iter().for_each(|&field| snapshot.fields.insert(field));
        let (records, mut indexer) = Indexer::split(&mut snapshot);
        let mut writer = Writer::new(records);
        for kind in attr::BASE..=attr::ROLLUP {
            writer.put(kind, 0, &[u8::MAX; 512]);
        }
        writer.finish(Header::default());
        indexer.index(records, 0).unwrap();
        let task = snapshot.task(0);
        assert_eq!(task.rss_bytes(), Ok(u64::MAX));
        // This asks for each field.
        assert!(format!("{task:?}").contains(&format!("rss_bytes: {}", u64::MAX)));
    }

    /// Check that `Debug` of a task prints its values and why values are absent, and that `Debug`
    /// of a snapshot prints neither.
    #[test]
    fn tasks_print_their_values() {
        let mut snapshot = Snapshot::default();
        snapshot.clear(Field::Pid | Field::Comm | Field::RssBytes);
        let (records, mut indexer) = Indexer::split(&mut snapshot);
        let mut writer = Writer::new(records);
        let mut base = record::Base::default();
        base.comm[..3].copy_from_slice(b"a\x1bb");
        writer.put(attr::BASE, 0, zerocopy::IntoBytes::as_bytes(&base));
        writer.finish(Header {
            pid: U32::new(7),
            tid: U32::new(7),
            flags: U32::new(record::NO_MM),
            ..Header::default()
        });
        indexer.index(records, 0).unwrap();
        let printed = format!("{:?}", snapshot.task(0));
        assert_eq!(printed, "Task { pid: 7, comm: \"a\\u{1b}b\", rss_bytes: no memory }");
        let printed = format!("{snapshot:?}");
        assert!(printed.contains("tasks: 1") && !printed.contains("a\\"), "{printed}");
    }
}
