//! Records: any bytes can be decoded, and written records are read back unchanged. A snapshot of
//! them has a value or a reason for each field of each task.

use arbitrary::{Result, Unstructured};
use taskdiag_core::field::Field;
use taskdiag_core::record::{self, Attribute, Header, Record, Writer};
use taskdiag_core::snapshot::{Indexer, Snapshot};
use taskdiag_core::value::Value;
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::change;

pub fn run(data: &[u8]) {
    decode(data);
    values(data);
    let mut input = Unstructured::new(data);
    let mut written = write(&mut input).expect("what is missing at the end is made up");
    values(&written);
    change(&mut input, &mut written).expect("what is missing at the end is made up");
    decode(&written);
    values(&written);
}

fn parts<'a>(attribute: Attribute<'a>) -> (u16, u16, &'a [u8]) {
    (attribute.kind, attribute.flags, attribute.payload)
}

/// Decodes any bytes. The decoded attributes, written again, decode to the same.
fn decode(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some((record, behind)) = Record::split_first(rest) {
        assert_eq!(record.as_bytes().len() + behind.len(), rest.len());
        let mut copy = Vec::new();
        let mut writer = Writer::new(&mut copy);
        for attribute in record.attributes() {
            writer.put(attribute.kind, attribute.flags, attribute.payload);
        }
        writer.finish(*record.header());
        let (again, nothing) = Record::split_first(&copy).expect("a whole record");
        assert!(nothing.is_empty());
        assert!(again.attributes().map(parts).eq(record.attributes().map(parts)));
        rest = behind;
    }
}

/// Writes some records, and reads them back.
fn write(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut records = Vec::new();
    for _ in 0..input.int_in_range(1..=3)? {
        let start = records.len();
        let mut header = Header::read_from_bytes(&input.arbitrary::<[u8; size_of::<Header>()]>()?).expect("its size");
        let mut attributes = Vec::new();
        let mut writer = Writer::new(&mut records);
        for _ in 0..input.int_in_range(0..=6)? {
            // Most types are small numbers; the types of attributes for access checks begin at
            // 1024.
            let kind = input.int_in_range(0..=63)? + if input.ratio(1, 8)? { 1024 } else { 0 };
            let flags = input.int_in_range(0..=3)?;
            let mut payload = vec![0; input.int_in_range(0..=40)? * 8 + input.int_in_range(0..=3)?];
            input.fill_buffer(&mut payload)?;
            writer.put(kind, flags, &payload);
            attributes.push((kind, flags, payload));
        }
        writer.finish(header);
        let (record, rest) = Record::split_first(&records[start..]).expect("a whole record");
        assert!(rest.is_empty());
        header.len = record.header().len;
        assert_eq!(record.header().as_bytes(), header.as_bytes());
        let written = attributes
            .iter()
            .map(|(kind, flags, payload)| (*kind, *flags, &payload[..]));
        assert!(record.attributes().map(parts).eq(written));
    }
    Ok(records)
}

/// Visits all members of a value.
fn members(value: Value<'_>) -> usize {
    match value {
        Value::Texts(texts) => texts.iter().count(),
        Value::Ids(ids) => ids.iter().count(),
        Value::Cpus(cpus) => cpus.iter().count(),
        Value::Limits(limits) => limits.iter().count(),
        _ => 1,
    }
}

/// Makes a snapshot of records, and reads everything in it.
fn values(records: &[u8]) {
    let mut snapshot = Snapshot::default();
    snapshot.clear(Field::ALL.iter().copied().collect());
    let (own, mut indexer) = Indexer::split(&mut snapshot);
    own.extend_from_slice(records);
    if indexer.index(records, 0).is_err() {
        // Fails only if a program did not know its reader.
        assert!(Record::each(records).any(|record| record.has(record::NO_READER)));
        return;
    }
    snapshot.sort();
    let again = Record::each(records).filter(|record| record.has(record::AGAIN)).count();
    assert_eq!(snapshot.len() + again, Record::each(records).count());
    for task in &snapshot {
        for &field in Field::ALL {
            let _ = task.value(field).map_or(0, members);
        }
        // Otherwise most of the time would be spent here.
        if records.last() == Some(&0) {
            let _ = format!("{task:?}");
        }
    }
}
