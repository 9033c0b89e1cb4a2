//! One task of a snapshot.

use std::fmt;

use zerocopy::native_endian::U64;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::row::{More, Row, NO_MORE};
use super::values::known;
use super::Snapshot;
use crate::absent::Absent;
use crate::field::{Field, Fields, Group};
use crate::identity::Identity;
use crate::record::{self, attr, Attribute, Record};
use crate::value::{debug_row, FromDerived};

/// One task of a snapshot. Each field has a method of its name; [`value`](Task::value) takes any
/// field.
///
/// `Debug` prints the values of the task.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) record: Record<'a>,
    pub(super) row: &'a Row,
}

/// The fields that were asked for, each with its value or the reason why it is absent.
impl fmt::Debug for Task<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = self.snapshot.fields.iter();
        debug_row(f, "Task", cells.map(|field| (field.name(), self.value(field))))
    }
}

impl<'a> Task<'a> {
    /// The identity of the task, to find it again in another answer. [`Absent::NotAsked`] unless
    /// [`Field::StartNs`] was asked for.
    pub fn identity(&self) -> Result<Identity, Absent> {
        self.check(Field::StartNs)?;
        Ok(Identity::of(self.record.header()))
    }

    /// Where the other records are.
    fn more(&self) -> Option<&'a More> {
        self.snapshot.more.get(self.row.more as usize)
    }

    /// The other records, except that of the arguments.
    fn supplements(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let snapshot = self.snapshot;
        let places = self.more().map_or([None; 2], |more| [more.supplement, more.rollup]);
        places
            .into_iter()
            .flatten()
            .filter_map(move |place| snapshot.record_at(place))
    }

    /// Why the attribute of a field is missing.
    fn reason(&self, field: Field) -> Absent {
        match self.snapshot.answers[field.group() as usize] {
            Some(Err(reason)) => reason,
            _ if field.group() == Group::Net => Absent::NotCounted,
            _ if field.needs_memory() && self.record.has(record::NO_MM) => Absent::NoMemory,
            _ => Absent::Gone,
        }
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl<'a> Task<'a> {
    /// The fields of the snapshot.
    pub fn fields(&self) -> Fields {
        self.snapshot.fields
    }

    /// The first record, from the source that found the task.
    pub fn record(&self) -> Record<'a> {
        self.record
    }

    /// The bytes of its record, if it is the only one: a task with the same bytes as before has the
    /// same values.
    pub fn sole_record(&self) -> Option<&'a [u8]> {
        (self.row.more == NO_MORE).then(|| self.record.as_bytes())
    }

    /// The attributes of all records. If several have the same type, the first counts, except for
    /// [`attr::ABSENT`]: each record may have one.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute<'a>> + use<'a> {
        let snapshot = self.snapshot;
        let place = self.more().and_then(|more| more.args);
        let args = place
            .and_then(|place| snapshot.record_at(place))
            .and_then(|record| record.attribute(attr::ARGS));
        let records = std::iter::once(self.record).chain(self.supplements());
        let all = records.flat_map(|record| record.attributes());
        // Remembered arguments replace those that were read.
        let is_ours = move |attribute: &Attribute<'a>| place.is_none() || attribute.kind != attr::ARGS;
        all.filter(is_ours).chain(args)
    }

    /// Fails if the field was not asked for, or if a record gives a reason for its absence.
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

    /// Whether a value that was asked for is absent for a reason that a record gives.
    pub fn gives(&self, reason: Absent) -> bool {
        if self.row.more == NO_MORE && !self.record.has(record::HAS_ABSENT) {
            return false;
        }
        let derived = self.more().and_then(|more| self.snapshot.record_at(more.derived?));
        let records = std::iter::once(self.record).chain(self.supplements()).chain(derived);
        let mut absent = records.flat_map(absences);
        absent.any(|entry| entry.reason.get() == reason as u16)
    }

    /// The payload of an attribute, or why `field`, which is read from it, is absent.
    pub fn payload(&self, field: Field, kind: u16) -> Result<&'a [u8], Absent> {
        let attribute = self
            .record
            .attribute(kind)
            .or_else(|| self.supplements().find_map(|record| record.attribute(kind)));
        Ok(attribute.ok_or_else(|| self.reason(field))?.payload)
    }

    /// The payload of an attribute as a `T`, or why `field`, which is read from it, is absent.
    pub fn part<T>(&self, field: Field, kind: u16) -> Result<&'a T, Absent>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        match T::ref_from_prefix(self.payload(field, kind)?) {
            Ok((part, _)) => Ok(part),
            Err(_) => Err(Absent::Truncated),
        }
    }

    /// The name of the task: all of it, where the kernel has more than `comm` holds.
    pub fn comm_bytes(&self) -> Result<&'a [u8], Absent> {
        let comm = &self.part::<record::Base>(Field::Comm, attr::BASE)?.comm;
        // Only a name that fills comm, or one of a kernel thread, can be longer.
        if comm[14] != 0 || self.record.has(record::KERNEL_THREAD) {
            if let Some(name) = self.record.attribute(attr::NAME) {
                return Ok(name.payload);
            }
        }
        Ok(until_nul(comm))
    }

    /// The bytes of the arguments.
    pub fn args(&self) -> Result<&'a [u8], Absent> {
        let Some(place) = self.more().and_then(|more| more.args) else {
            return self.payload(Field::Cmdline, attr::ARGS);
        };
        let record = self.snapshot.record_at(place).ok_or(Absent::Gone)?;
        let args = record.attribute(attr::ARGS).ok_or(Absent::Gone)?;
        Ok(args.payload)
    }

    /// The value of a derived field.
    pub fn derived<T: FromDerived<'a>>(&self, field: Field) -> Result<T, Absent> {
        if !self.snapshot.fields.contains(field) {
            return Err(Absent::NotAsked);
        }
        let place = self.more().and_then(|more| more.derived);
        let record = place.and_then(|place| self.snapshot.record_at(place));
        let record = record.ok_or(Absent::Unsupported)?;
        let is_it = |attribute: &Attribute<'_>| (attribute.kind, attribute.flags) == (attr::DERIVED, field as u16);
        match record.attributes().find(is_it) {
            Some(attribute) => T::from_bytes(attribute.payload).ok_or(Absent::Truncated),
            None => Err(own_reason(record, field).unwrap_or(Absent::Unsupported)),
        }
    }

    /// The unique set size: memory that no other process maps, added up as in ps and smem. Like Rss
    /// and Pss, without pages of hugetlbfs.
    pub fn uss(&self) -> Result<u64, Absent> {
        let rollup = self.part::<record::Rollup>(Field::UssBytes, attr::ROLLUP)?;
        let [clean, dirty] = [rollup.private_clean_bytes, rollup.private_dirty_bytes].map(U64::get);
        Ok(known(clean, Absent::Unsupported)?.saturating_add(known(dirty, Absent::Unsupported)?))
    }

    /// The path of the executable.
    pub fn executable(&self) -> Result<&'a [u8], Absent> {
        self.payload(Field::Exe, attr::EXE).map_err(|reason| match reason {
            Absent::Gone if self.record.has(record::NO_MM) => Absent::NoMemory,
            reason => reason,
        })
    }

    /// The inode number of a namespace. A task that is exiting has none.
    pub fn namespace(&self, field: Field, pick: impl Fn(&record::Namespaces) -> U64) -> Result<u64, Absent> {
        match pick(self.part(field, attr::NAMESPACES)?).get() {
            0 => Err(Absent::Gone),
            inode => Ok(inode),
        }
    }
}

/// The fields for whose absence a record gives a reason.
fn absences(record: Record<'_>) -> &[record::AbsentField] {
    let payload = record.attribute(attr::ABSENT).map_or(&[][..], |absent| absent.payload);
    let count = payload.len() / size_of::<record::AbsentField>();
    <[record::AbsentField]>::ref_from_prefix_with_elems(payload, count).map_or(&[], |(absent, _)| absent)
}

/// The reason that a record gives for the absence of `field`.
fn own_reason(record: Record<'_>, field: Field) -> Option<Absent> {
    let entry = absences(record)
        .iter()
        .find(|entry| entry.field.get() == field as u16)?;
    Some(Absent::from_wire(entry.reason.get()))
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}
