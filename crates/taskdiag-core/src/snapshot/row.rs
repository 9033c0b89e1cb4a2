//! Rows: where the records of each task are.

use super::{Counters, Snapshot};
use crate::error::{Error, ErrorKind};
#[cfg(doc)]
use crate::field::Group;
use crate::record::{self, Record};

/// Where the records of a task are. Small, so that four fit into a cache line: sorting and
/// filtering rows touches nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The offset of the first record.
    pub record: usize,
    /// The thread id, by which rows are sorted: a copy, so that sorting does not read records.
    pub tid: u32,
    /// The index in [`Snapshot::more`] of what is not in the first record; [`NO_MORE`] if all is.
    pub(super) more: u32,
}

const _: () = assert!(size_of::<Row>() == 16);

pub(super) const NO_MORE: u32 = u32::MAX;

/// Where a further record of a row is: in the snapshot's own memory, or in a chunk that it shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 0 is [`Snapshot::records`]; other numbers are an index in [`Snapshot::chunks`] plus one.
    pub chunk: u32,
    /// The offset in it.
    pub offset: usize,
}

impl Place {
    /// A place in the snapshot's own memory.
    pub fn own(offset: usize) -> Place {
        Place { chunk: 0, offset }
    }
}

/// The records of a task besides the first.
#[derive(Clone, Copy, Debug, Default)]
pub struct More {
    /// The record of groups that another source answered.
    pub supplement: Option<Place>,
    /// The record of [`Group::Rollup`], or of why it is absent.
    pub rollup: Option<Place>,
    /// A record with the arguments. Its other attributes may be from an earlier answer.
    pub args: Option<Place>,
    /// The record of derived values, or of why they are absent.
    pub derived: Option<Place>,
}

impl Row {
    /// A row of one record, which is at `offset`.
    pub fn new(record: Record<'_>, offset: usize) -> Row {
        Row {
            record: offset,
            tid: record.header().tid.get(),
            more: NO_MORE,
        }
    }

    /// The row's entry in [`Snapshot::more`], which is made if there is none.
    pub fn more<'a>(&mut self, list: &'a mut Vec<More>) -> &'a mut More {
        if self.more == NO_MORE {
            self.more = list.len() as u32;
            list.push(More::default());
        }
        &mut list[self.more as usize]
    }
}

/// Makes rows for the records of a snapshot.
#[derive(Debug)]
pub struct Indexer<'a> {
    rows: &'a mut Vec<Row>,
    deferred: &'a mut Vec<usize>,
    again: &'a mut Vec<u32>,
    /// The counters of the snapshot.
    pub counters: &'a mut Counters,
}

impl<'a> Indexer<'a> {
    /// Makes the rows of `records`, which are `start` bytes into the snapshot's records.
    pub fn index(&mut self, records: &[u8], start: usize) -> Result<(), Error> {
        let mut rest = records;
        while let Some((record, after)) = Record::split_first(rest) {
            if record.has(record::NO_READER) {
                return Err(Error::new(
                    ErrorKind::System,
                    "the BPF program has no memory for this thread; use the source procfs",
                ));
            }
            self.push(record, start + records.len() - rest.len());
            rest = after;
        }
        if !rest.is_empty() {
            self.counters.malformed += 1;
        }
        Ok(())
    }

    /// Splits a snapshot into the memory of its records and the indexer for them.
    pub fn split(snapshot: &'a mut Snapshot) -> (&'a mut Vec<u8>, Indexer<'a>) {
        let Snapshot {
            records,
            rows,
            deferred,
            again,
            counters,
            ..
        } = snapshot;
        let indexer = Indexer {
            rows,
            deferred,
            again,
            counters,
        };
        (records, indexer)
    }

    /// Makes the row of a record, which is at `offset`.
    pub fn push(&mut self, record: Record<'_>, offset: usize) {
        if record.has(record::AGAIN) {
            self.again.push(record.header().pid.get());
            return;
        }
        if record.has(record::DEFERRED) {
            self.deferred.push(offset);
        }
        self.rows.push(Row::new(record, offset));
        *self.counters.record_bytes.get_or_insert(0) += record.as_bytes().len() as u64;
    }
}
