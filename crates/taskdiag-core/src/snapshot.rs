//! The answer to a query.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::native_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::absent::Absent;
use crate::error::{Error, ErrorKind};
use crate::field::{Field, Fields, Group};
use crate::identity::Identity;
use crate::record::{self, attr, Record};

/// Who answered a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceId {
    /// A BPF task iterator.
    Bpf,
    /// The text files of `/proc`.
    Procfs,
    /// `/proc/PID/smaps_rollup`, which answers [`Group::Rollup`] and nothing else (Linux 4.14).
    SmapsRollup,
    /// `/proc/PID/smaps`, added up: the same on kernels without a rollup.
    Smaps,
    /// `taskdiagd`, which shows what the caller may trace.
    Broker,
}

impl SourceId {
    /// The name, as `--source` takes it.
    pub fn name(self) -> &'static str {
        match self {
            SourceId::Bpf => "bpf",
            SourceId::Procfs => "procfs",
            SourceId::SmapsRollup => "smaps_rollup",
            SourceId::Smaps => "smaps",
            SourceId::Broker => "broker",
        }
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What happened to a group of the query: who answered it, or why nobody did.
pub type Answer = Result<SourceId, Absent>;

/// What a pass did, and what was lost on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Rows.
    pub tasks: u64,
    /// Bytes of records that came from the sources.
    pub record_bytes: u64,
    /// `read(2)` calls on iterators.
    pub reads: u64,
    /// Tasks that ended while they were being read and have no row.
    pub gone: u64,
    /// Tasks that the caller is not allowed to see anything of and that have no row.
    pub denied: u64,
    /// Tasks for which a group was asked of procfs after all, because the chosen source could not answer it exactly.
    pub deferred: u64,
    /// Tasks that the kernel keeps from iterators and that procfs answered for instead.
    pub hidden: u64,
    /// Tasks that the filter was tried on with all it looks at; what was ruled out before is not counted.
    pub candidates: u64,
    /// Tasks left out because the filter looks at values of theirs that are denied, unsupported, truncated, over budget or without an
    /// answer.
    pub undecided: u64,
    /// Rows whose arguments were known from an earlier snapshot, unchanged.
    pub remembered: u64,
    /// Rows with values that are missing because the process did not answer within [`Query::patience`](crate::query::Query::patience).
    pub no_answer: u64,
    /// Processes whose [`Group::Rollup`] was left out, because it would have taken longer than the budget allows.
    pub over_budget: u64,
    /// Processes whose page tables were walked for [`Group::Rollup`].
    pub walked: u64,
    /// Processes without a sign of change, whose values of [`Group::Rollup`] are those of an earlier answer.
    pub unchanged: u64,
    /// The longest run of a BPF program, in nanoseconds: for so long RCU had to wait. 0 where the kernel calls the program for each task.
    pub longest_run_ns: u64,
    /// Records that made no sense and were left out. Anything but 0 is a defect.
    pub malformed: u64,
}

impl Counters {
    /// The counters with their names, in the order of a report.
    pub fn named(&self) -> [(&'static str, u64); 16] {
        [
            ("tasks", self.tasks),
            ("record_bytes", self.record_bytes),
            ("reads", self.reads),
            ("gone", self.gone),
            ("denied", self.denied),
            ("deferred", self.deferred),
            ("hidden", self.hidden),
            ("candidates", self.candidates),
            ("undecided", self.undecided),
            ("remembered", self.remembered),
            ("no_answer", self.no_answer),
            ("over_budget", self.over_budget),
            ("walked", self.walked),
            ("unchanged", self.unchanged),
            ("longest_run_ns", self.longest_run_ns),
            ("malformed", self.malformed),
        ]
    }
}

/// Where a task's answer lies. Small: four of them are in a cache line, and lists are made and put in order of nothing else.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Row {
    /// Offset of the record.
    pub record: usize,
    /// The thread id: what rows are in order of, told without a look at the record.
    pub tid: u32,
    /// Index of more in [`Snapshot::more`]; [`NO_MORE`] if there is none.
    more: u32,
}

const _: () = assert!(size_of::<Row>() == 16);

const NO_MORE: u32 = u32::MAX;

/// Where a record lies that is not the first of a row: in the snapshot's own memory, or in a chunk that it shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Place {
    /// 0: in [`Snapshot::records`]; otherwise one more than the index of one of [`Snapshot::chunks`].
    pub chunk: u32,
    pub offset: usize,
}

impl Place {
    /// In the snapshot's own memory.
    #[doc(hidden)]
    pub fn own(offset: usize) -> Place {
        Place { chunk: 0, offset }
    }
}

/// The parts of an answer that are not in its first record.
#[derive(Clone, Copy, Debug, Default)]
#[doc(hidden)]
pub struct More {
    /// A second record, for groups that another source answered.
    pub supplement: Option<Place>,
    /// A record with [`Group::Rollup`], or with why it is absent.
    pub rollup: Option<Place>,
    /// A record with the arguments, and maybe with what else was read when they were: that is of another time.
    pub args: Option<Place>,
}

impl Row {
    /// A row of one record, which lies at an offset.
    #[doc(hidden)]
    pub fn new(record: Record<'_>, offset: usize) -> Row {
        Row {
            record: offset,
            tid: record.header().tid.get(),
            more: NO_MORE,
        }
    }

    /// The place for more in the snapshot's list of it.
    #[doc(hidden)]
    pub fn more<'a>(&mut self, list: &'a mut Vec<More>) -> &'a mut More {
        if self.more == NO_MORE {
            self.more = list.len() as u32;
            list.push(More::default());
        }
        &mut list[self.more as usize]
    }
}

/// Where rows go that are made of records.
#[doc(hidden)]
#[derive(Debug)]
pub struct Found<'a> {
    pub rows: &'a mut Vec<Row>,
    /// As [`Snapshot::unsettled`].
    pub unsettled: &'a mut Vec<usize>,
    /// As [`Snapshot::again`].
    pub again: &'a mut Vec<u32>,
    pub counters: &'a mut Counters,
}

impl<'a> Found<'a> {
    /// Makes the rows of `records`, which begin `start` bytes behind the first record of all.
    pub fn index(&mut self, records: &[u8], start: usize) -> Result<(), Error> {
        let mut rest = records;
        while let Some((record, behind)) = Record::split_first(rest) {
            if record.has(record::NO_READER) {
                return Err(Error::new(
                    ErrorKind::System,
                    "the BPF program does not know this reader",
                ));
            }
            self.push(record, start + records.len() - rest.len());
            rest = behind;
        }
        if !rest.is_empty() {
            self.counters.malformed += 1;
        }
        Ok(())
    }

    /// A snapshot's memory of records, and the place for their rows.
    #[doc(hidden)]
    pub fn of(snapshot: &'a mut Snapshot) -> (&'a mut Vec<u8>, Found<'a>) {
        let Snapshot {
            records,
            rows,
            unsettled,
            again,
            counters,
            ..
        } = snapshot;
        let found = Found {
            rows,
            unsettled,
            again,
            counters,
        };
        (records, found)
    }

    /// Makes a row of a record, which lies at an offset.
    #[doc(hidden)]
    pub fn push(&mut self, record: Record<'_>, offset: usize) {
        if record.has(record::AGAIN) {
            self.again.push(record.header().pid.get());
            return;
        }
        if record.has(record::DEFERRED) {
            self.unsettled.push(offset);
        }
        self.rows.push(Row::new(record, offset));
        self.counters.record_bytes += record.as_bytes().len() as u64;
    }
}

/// The answer to a query: rows to read in place.
///
/// Reading it copies nothing and allocates nothing. Given back to `Handle::query_into`, its
/// memory serves the next answer.
#[derive(Debug, Default)]
pub struct Snapshot {
    #[doc(hidden)]
    pub fields: Fields,
    #[doc(hidden)]
    pub records: Vec<u8>,
    #[doc(hidden)]
    pub rows: Vec<Row>,
    #[doc(hidden)]
    pub more: Vec<More>,
    /// Where records begin that procfs may have to be asked about, ascending. Rows of them may have been dropped.
    #[doc(hidden)]
    pub unsettled: Vec<usize>,
    /// Processes that have to be asked about once more, in another way: see [`record::AGAIN`].
    #[doc(hidden)]
    pub again: Vec<u32>,
    /// Records that readers made, or that earlier snapshots of the handle brought.
    #[doc(hidden)]
    pub chunks: Vec<Arc<Vec<u8>>>,
    #[doc(hidden)]
    pub answers: [Option<Answer>; Group::ALL.len()],
    #[doc(hidden)]
    pub missing: Vec<u32>,
    #[doc(hidden)]
    pub counters: Counters,
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
    /// Empties it for the answer to a query for `fields`, keeping its memory.
    #[doc(hidden)]
    pub fn clear(&mut self, fields: Fields) {
        self.fields = fields;
        self.records.clear();
        self.rows.clear();
        self.more.clear();
        self.unsettled.clear();
        self.again.clear();
        self.chunks.clear();
        self.missing.clear();
        self.answers = [None; Group::ALL.len()];
        self.counters = Counters::default();
    }

    /// How far it has come, to go back to.
    #[doc(hidden)]
    pub fn mark(&self) -> [usize; 4] {
        [
            self.rows.len(),
            self.records.len(),
            self.unsettled.len(),
            self.again.len(),
        ]
    }

    /// Drops what has come since.
    #[doc(hidden)]
    pub fn go_back_to(&mut self, [rows, records, unsettled, again]: [usize; 4]) {
        self.rows.truncate(rows);
        self.records.truncate(records);
        self.unsettled.truncate(unsettled);
        self.again.truncate(again);
    }

    /// Appends the rows of another one, and adds up what was counted. Its rows are of one record each.
    #[doc(hidden)]
    pub fn take_in(&mut self, other: &mut Snapshot) {
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

    /// Makes a row of the record that begins at `offset`.
    #[doc(hidden)]
    pub fn add_row(&mut self, offset: usize) {
        let (record, _) = Record::split_first(&self.records[offset..]).expect("a whole record");
        self.rows.push(Row::new(record, offset));
    }

    /// Puts rows in the order of their thread ids, if they are not.
    #[doc(hidden)]
    pub fn put_in_order(&mut self) {
        if !self.rows.is_sorted_by_key(|row| row.tid) {
            self.rows.sort_by_key(|row| row.tid);
        }
    }

    /// Whether it has a task. Rows are in order.
    #[doc(hidden)]
    pub fn has(&self, task: Identity) -> bool {
        let found = self.rows.binary_search_by_key(&task.tid(), |row| row.tid);
        found.is_ok_and(|index| Identity::of(self.task(index).record().header()) == task)
    }

    /// How many tasks there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no task.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The fields that were asked for.
    pub fn fields(&self) -> Fields {
        self.fields
    }

    /// The tasks, by ascending id.
    pub fn tasks(&self) -> Tasks<'_> {
        self.into_iter()
    }

    /// One of the tasks, by its position.
    ///
    /// # Panics
    ///
    /// If there are not so many tasks.
    pub fn task(&self, index: usize) -> Task<'_> {
        let row = &self.rows[index];
        Task {
            snapshot: self,
            record: Record::split_first(&self.records[row.record..])
                .expect("rows are made of whole records")
                .0,
            row,
        }
    }

    /// Of the processes that the query listed, those that are not there, ascending: they may have ended, or be hidden.
    pub fn missing(&self) -> &[u32] {
        &self.missing
    }

    /// Drops the rows of tasks that `keep` is false of. Their records stay where they are.
    #[doc(hidden)]
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

    /// Whether procfs may have to be asked about a row.
    #[doc(hidden)]
    pub fn is_unsettled(&self, row: usize) -> bool {
        self.unsettled.binary_search(&self.rows[row].record).is_ok()
    }

    /// The groups that the query needed, each with who answered it.
    pub fn answers(&self) -> impl Iterator<Item = (Group, Answer)> + '_ {
        Group::ALL
            .into_iter()
            .filter_map(|group| Some((group, self.answers[group as usize]?)))
    }

    /// What the pass did, and what was lost on the way.
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

/// One task of a snapshot. Its fields are methods of the same names, or [`value`](Task::value)s.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    snapshot: &'a Snapshot,
    record: Record<'a>,
    row: &'a Row,
}

impl fmt::Debug for Task<'_> {
    /// The values of the fields that were asked for, and the reasons of those that are absent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self
            .snapshot
            .fields
            .iter()
            .map(|field| (field.name(), self.value(field)));
        f.debug_map().entries(values).finish()
    }
}

impl<'a> Task<'a> {
    /// Which task it is, for comparison with other answers. `NotAsked` unless [`Field::StartNs`] was asked for.
    pub fn identity(&self) -> Result<Identity, Absent> {
        self.check(Field::StartNs)?;
        Ok(Identity::of(self.record.header()))
    }

    /// The record that the task's primary source wrote.
    #[doc(hidden)]
    pub fn record(&self) -> Record<'a> {
        self.record
    }

    /// What is not in the first record.
    fn more(&self) -> Option<&'a More> {
        self.snapshot.more.get(self.row.more as usize)
    }

    /// The other records of the task.
    fn supplements(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let snapshot = self.snapshot;
        let places = self.more().map_or([None; 2], |more| [more.supplement, more.rollup]);
        places
            .into_iter()
            .flatten()
            .filter_map(move |place| snapshot.record_at(place))
    }

    /// An error unless the field was asked for and is not absent for a reason of its own.
    #[doc(hidden)]
    pub fn check(&self, field: Field) -> Result<(), Absent> {
        if !self.snapshot.fields.contains(field) {
            return Err(Absent::NotAsked);
        }
        if self.row.more == NO_MORE && !self.record.has(record::HAS_ABSENT) {
            return Ok(());
        }
        let mut records = std::iter::once(self.record).chain(self.supplements());
        match records.find_map(|record| own_reason(record, field)) {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }

    /// The payload of an attribute, or why there is none.
    #[doc(hidden)]
    pub fn payload(&self, field: Field, kind: u16) -> Result<&'a [u8], Absent> {
        let attribute = self
            .record
            .attribute(kind)
            .or_else(|| self.supplements().find_map(|record| record.attribute(kind)));
        Ok(attribute.ok_or_else(|| self.reason(field))?.payload)
    }

    /// The fixed part of a group, or why there is none.
    #[doc(hidden)]
    pub fn part<T>(&self, field: Field, kind: u16) -> Result<&'a T, Absent>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        match T::ref_from_prefix(self.payload(field, kind)?) {
            Ok((part, _)) => Ok(part),
            Err(_) => Err(Absent::Truncated),
        }
    }

    /// Why a field is missing with all that came with it.
    fn reason(&self, field: Field) -> Absent {
        match self.snapshot.answers[field.group() as usize] {
            Some(Err(reason)) => reason,
            _ if field.needs_memory() && self.record.has(record::NO_MM) => Absent::NoMemory,
            _ => Absent::Gone,
        }
    }

    #[doc(hidden)]
    pub fn comm_bytes(&self) -> Result<&'a [u8], Absent> {
        let comm = &self.part::<record::Base>(Field::Comm, attr::BASE)?.comm;
        // Only names that fill comm, and those of kernel threads, have more to them.
        if comm[14] != 0 || self.record.has(record::KERNEL_THREAD) {
            if let Some(name) = self.record.attribute(attr::NAME) {
                return Ok(name.payload);
            }
        }
        Ok(until_nul(comm))
    }

    #[doc(hidden)]
    pub fn args(&self) -> Result<&'a [u8], Absent> {
        let Some(place) = self.more().and_then(|more| more.args) else {
            return self.payload(Field::Cmdline, attr::ARGS);
        };
        let record = self.snapshot.record_at(place).ok_or(Absent::Gone)?;
        let args = record.attribute(attr::ARGS).ok_or(Absent::Gone)?;
        Ok(args.payload)
    }

    /// A number that some kernels are built without.
    #[doc(hidden)]
    pub fn number(&self, number: U64) -> Result<u64, Absent> {
        match number.get() {
            record::NO_NUMBER => Err(Absent::Unsupported),
            number => Ok(number),
        }
    }

    /// The same of one with 32 bits.
    #[doc(hidden)]
    pub fn small_number(&self, number: U32) -> Result<u32, Absent> {
        match number.get() {
            u32::MAX => Err(Absent::Unsupported),
            number => Ok(number),
        }
    }

    /// What nobody else has mapped, as smem adds it up.
    #[doc(hidden)]
    pub fn uss(&self) -> Result<u64, Absent> {
        let rollup = self.part::<record::Rollup>(Field::UssBytes, attr::ROLLUP)?;
        let hugetlb = self.number(rollup.private_hugetlb_bytes).unwrap_or(0);
        let private = self
            .number(rollup.private_clean_bytes)?
            .saturating_add(self.number(rollup.private_dirty_bytes)?);
        Ok(private.saturating_add(hugetlb))
    }

    #[doc(hidden)]
    pub fn executable(&self) -> Result<&'a [u8], Absent> {
        self.payload(Field::Exe, attr::EXE).map_err(|reason| match reason {
            Absent::Gone if self.record.has(record::NO_MM) => Absent::NoMemory,
            reason => reason,
        })
    }

    #[doc(hidden)]
    pub fn namespace(&self, field: Field, pick: impl Fn(&record::Namespaces) -> U64) -> Result<u64, Absent> {
        match pick(self.part(field, attr::NAMESPACES)?).get() {
            0 => Err(Absent::Gone),
            inode => Ok(inode),
        }
    }
}

/// The reason that a record gives for the absence of just this field.
fn own_reason(record: Record<'_>, field: Field) -> Option<Absent> {
    let payload = record.attribute(attr::ABSENT)?.payload;
    let absent =
        <[record::AbsentField]>::ref_from_prefix_with_elems(payload, payload.len() / size_of::<record::AbsentField>());
    let (absent, _) = absent.ok()?;
    let entry = absent.iter().find(|entry| entry.field.get() == field as u16)?;
    Some(Absent::from_wire(entry.reason.get()))
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use zerocopy::native_endian::U32;

    use super::*;
    use crate::record::{Header, Writer};

    /// Check that a record stays unsettled wherever its row goes: rows are put in order, and dropped, before procfs is asked.
    #[test]
    fn rows_move_and_stay_unsettled() {
        let mut snapshot = Snapshot::default();
        let (records, mut found) = Found::of(&mut snapshot);
        for (tid, flags) in [(7, record::DEFERRED), (9, 0), (3, 0), (5, record::DEFERRED), (4, 0)] {
            let header = Header {
                pid: U32::new(tid),
                tid: U32::new(tid),
                flags: U32::new(flags),
                ..Header::default()
            };
            Writer::new(records).finish(header);
        }
        found.index(records, 0).unwrap();
        snapshot.put_in_order();
        snapshot.retain(|task| task.tid() != Ok(4));
        let rows = 0..snapshot.len();
        let unsettled = rows
            .filter(|&row| snapshot.is_unsettled(row))
            .map(|row| snapshot.rows[row].tid);
        assert_eq!(unsettled.collect::<Vec<_>>(), [5, 7]);
    }
}
