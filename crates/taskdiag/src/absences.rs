//! Records that say why fields are absent.

use std::collections::HashMap;

use taskdiag_core::absent::Absent;
use taskdiag_core::field::{Field, Fields};
use taskdiag_core::record::{self, attr, AbsentField, Header, Writer};
use zerocopy::native_endian::{U16, U32};
use zerocopy::IntoBytes as _;

/// Appends a record that says of all `fields` of a task why they are absent.
pub(crate) fn put(fields: Fields, reason: Absent, header: Header, records: &mut Vec<u8>) {
    let entries: Vec<AbsentField> = fields
        .iter()
        .filter(|field| !matches!(field, Field::Pid | Field::Tid))
        .map(|field| AbsentField {
            field: U16::new(field as u16),
            reason: U16::new(reason as u16),
        })
        .collect();
    let mut writer = Writer::new(records);
    writer.put(attr::ABSENT, 0, entries.as_bytes());
    writer.finish(Header {
        flags: U32::new(record::HAS_ABSENT),
        ..header
    });
}

/// The records of one answer that are shared by all tasks with the same absent fields.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    offsets: HashMap<(Fields, Absent), usize>,
}

impl Absences {
    /// The offset of the record that says of `fields` why they are absent. It is appended to
    /// `records` if it is not there.
    pub(crate) fn offset(&mut self, fields: Fields, reason: Absent, records: &mut Vec<u8>) -> usize {
        *self.offsets.entry((fields, reason)).or_insert_with(|| {
            let offset = records.len();
            put(fields, reason, Header::default(), records);
            offset
        })
    }
}
