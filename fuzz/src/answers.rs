//! The broker's answers to any request, from any viewer, about any record. An answer consists of
//! whole messages that the client's decoder accepts, and contains nothing that decides about
//! access. The requests, viewers and records are made from the fuzzer's bytes.

use arbitrary::{Result, Unstructured};
use taskdiag_bpf::files;
use taskdiag_core::field::{Group, Groups};
use taskdiag_core::record::{self, attr, Record};
use taskdiag_protocol::access::{OwnProcess, Subject, INITIAL_USER_NS};
use taskdiag_protocol::wire::{self, attribute, show, Message, Messages, Request, Strategy};
use taskdiagd::fuzz::{put_mappings, put_process, put_remainder, put_task, split_packet};
use taskdiagd::fuzz::{IdMap, ProcFacts, Remainder, Viewer, VmaEncoder};
use zerocopy::native_endian::U32;
use zerocopy::FromBytes as _;

use crate::change;

/// Makes a request, a viewer and a record from `data`, and checks the answer.
pub fn run(data: &[u8]) {
    exchange(&mut Unstructured::new(data)).expect("missing bytes count as 0");
}

fn below(input: &mut Unstructured<'_>, limit: usize) -> Result<usize> {
    input.int_in_range(0..=limit - 1)
}

fn bytes(input: &mut Unstructured<'_>, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    input.fill_buffer(&mut bytes)?;
    Ok(bytes)
}

fn subject(input: &mut Unstructured<'_>) -> Result<Subject> {
    let id = *input.choose(&[0, 1000])?;
    Ok(Subject {
        pid: input.int_in_range(1..=3)?,
        own: OwnProcess::default(),
        fsuid: id,
        fsgid: id,
        euid: id,
        capabilities: *input.choose(&[0, u64::MAX, 1 << 19])?,
        user_ns: INITIAL_USER_NS,
        user_ns_level: input.int_in_range(0..=1)?,
        landlock: input.int_in_range(0..=1)?,
        hidden_pid: 0,
        confined: input.ratio(1, 8)?,
        counts_files: input.arbitrary()?,
        may_attach: input.arbitrary()?,
    })
}

/// The types of attributes, with the right length of each.
const SIZES: [(u16, usize); 16] = [
    (attr::ACCESS, size_of::<record::Access>()),
    (attr::BASE, size_of::<record::Base>()),
    (attr::CRED, size_of::<record::Cred>()),
    (attr::CPU, size_of::<record::Cpu>()),
    (attr::FAULTS, size_of::<record::Faults>()),
    (attr::MEM, size_of::<record::Mem>()),
    (attr::GROUPS, 12),
    (attr::AUDIT, size_of::<record::Audit>()),
    (attr::FDS, size_of::<record::Fds>()),
    (attr::DEFER, size_of::<record::Defer>()),
    (attr::USER_NS, 8),
    (attr::VIEW, 300),
    (attr::EXE, 20),
    (attr::PERSONALITY, 4),
    (attr::RUN, 16),
    (999, 24),
];

/// A payload, usually of the right length.
fn payload(input: &mut Unstructured<'_>, kind: u16, size: usize) -> Result<Vec<u8>> {
    let mut payload = bytes(input, size)?;
    if kind == attr::ACCESS && !input.ratio(1, 4)? {
        payload.fill(0);
        // Stable, dumpable, in the initial namespace: some viewers see it.
        let len = payload.len();
        payload[len - 8..len - 4].copy_from_slice(&1_u32.to_ne_bytes());
        payload[len - 4..].copy_from_slice(&1_u32.to_ne_bytes());
        payload[len - 24..len - 20].copy_from_slice(&INITIAL_USER_NS.to_ne_bytes());
        payload[len - 20..len - 16].copy_from_slice(&INITIAL_USER_NS.to_ne_bytes());
    }
    if input.ratio(1, 16)? {
        payload.truncate(below(input, size + 1)?);
    }
    Ok(payload)
}

/// A record with attributes of all kinds.
fn record(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut kinds = Vec::new();
    if !input.ratio(1, 16)? {
        kinds.push(SIZES[0]);
    }
    for _ in 0..below(input, 8)? {
        kinds.push(*input.choose(&SIZES[1..])?);
    }
    let mut bytes = Vec::new();
    let mut writer = record::Writer::new(&mut bytes);
    for (kind, size) in kinds {
        writer.put(kind, 0, &payload(input, kind, size)?);
    }
    writer.finish(record::Header {
        pid: U32::new(input.int_in_range(1..=3)?),
        tid: U32::new(input.int_in_range(1..=3)?),
        flags: U32::new(input.int_in_range(0..=31)?),
        ..record::Header::default()
    });
    // Some records have one wrong byte.
    if input.ratio(1, 8)? {
        // In the header of the first attribute, which decides access, or anywhere.
        let first = size_of::<record::Header>()..size_of::<record::Header>() + 8;
        let at = if input.arbitrary()? {
            below(input, bytes.len())?
        } else {
            (first.start + below(input, first.len())?).min(bytes.len() - 1)
        };
        bytes[at] = input.arbitrary()?;
    }
    Ok(bytes)
}

/// Check that an answer consists of whole messages that the client's decoder accepts, and holds
/// nothing of what decides access.
fn check(answer: &[u8]) {
    let mut total = 0;
    for message in Messages::new(answer, 0) {
        let Ok(Message::Task { attributes: list, .. }) = message else {
            panic!("{message:?}");
        };
        total += 1;
        for (kind, payload, _) in wire::attributes(list) {
            assert!(payload.len() <= wire::PACKET);
            if kind == attribute::FILES {
                let mut clean = Vec::new();
                files::decode(payload, |record, text| record.put(text, &mut clean)).expect("whole records");
                assert_eq!(payload, clean);
            }
            if kind != attribute::RECORD {
                continue;
            }
            let (record, rest) = Record::split_first(payload).expect("a record");
            assert!(rest.is_empty());
            assert!(record.attributes().all(|attribute| attribute.kind < attr::ACCESS));
        }
    }
    assert!(total > 0 || answer.is_empty());
}

/// Records of files with any content, in the form that the broker keeps between its passes.
fn file_records(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut records = Vec::new();
    for _ in 0..below(input, 6)? {
        let header = bytes(input, size_of::<files::Record>())?;
        let record = files::Record {
            used_as: *input.choose(&[0, 1, 3, 16, 17])?,
            ..files::Record::read_from_bytes(&header).expect("its size")
        };
        let len = below(input, 40)?;
        record.put(&bytes(input, len)?, &mut records);
    }
    Ok(records)
}

/// Makes the answer about the files of a process, with facts from before and after they were read.
fn put_files(input: &mut Unstructured<'_>, viewer: &Viewer, before: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let files = wire::Files::read_from_bytes(&bytes(input, size_of::<wire::Files>())?).expect("its size");
    let after = if input.ratio(1, 4)? {
        record(input)?
    } else {
        before.to_vec()
    };
    let records = file_records(input)?;
    if let (Some((before, _)), Some((after, _))) = (Record::split_first(before), Record::split_first(&after)) {
        let start_ns = if input.ratio(1, 8)? { 1 } else { 0 };
        put_process(viewer, &files, [before, after], start_ns, &records, out);
    }
    Ok(())
}

/// A packet from a client: a request, with some bytes changed or cut off.
fn packet(input: &mut Unstructured<'_>, request: &Request) -> Result<Vec<u8>> {
    let mut packet = request.encode().to_vec();
    change(input, &mut packet)?;
    packet.truncate(packet.len() - below(input, 8)?.saturating_sub(4));
    Ok(packet)
}

fn viewer(input: &mut Unstructured<'_>) -> Result<Viewer> {
    let map = IdMap::parse("0 1000 1\n1 100000 65536\n").expect("a map");
    let users = if input.ratio(1, 4)? { map } else { IdMap::default() };
    Ok(Viewer {
        before: subject(input)?,
        now: subject(input)?,
        is_observer: input.ratio(1, 4)?,
        users: users.clone(),
        groups: users,
        lacks: if input.ratio(1, 4)? {
            Groups::NONE.with(Group::Paths)
        } else {
            Groups::NONE
        },
    })
}

/// Decodes bytes as if helpers had sent them.
fn decode_as_helpers(bytes: &[u8]) {
    let _ = ProcFacts::parse(bytes, None);
    let _ = split_packet(bytes);
    let mut encoder = VmaEncoder::new(true);
    let _ = encoder.push::<()>(bytes, &mut |_| Ok(()));
}

/// Decodes an answer as a client does, with some bytes changed.
fn decode_as_client(input: &mut Unstructured<'_>, mut answer: Vec<u8>) -> Result<()> {
    change(input, &mut answer)?;
    for message in Messages::new(&answer, 0).flatten() {
        if let Message::Task { attributes: list, .. } = message {
            for (_, payload, _) in wire::attributes(list) {
                let _ = files::decode(payload, |record, text| assert_eq!(record.name_len as usize, text.len()));
                let attributes: usize = Record::each(payload).map(|record| record.attributes().count()).sum();
                assert!(attributes <= payload.len());
            }
        }
    }
    Ok(())
}

/// Returns whether the broker accepts the request, and whether the viewer sees the task.
fn exchange(input: &mut Unstructured<'_>) -> Result<(bool, bool)> {
    let intended = Request {
        seq: input.arbitrary()?,
        show: 1 << below(input, 64)? | 1 << below(input, 64)? | 1 << 16,
        strategy: *input.choose(&[Strategy::All, Strategy::One, Strategy::Thread])?,
        pid: input.int_in_range(0..=4)?,
    };
    let parsed = Request::parse(&packet(input, &intended)?);
    let request = parsed.unwrap_or(Request {
        show: show::BASE | show::CRED | show::STAT | wire::GROUP_BITS,
        ..intended
    });
    let viewer = viewer(input)?;
    let record_bytes = record(input)?;
    let mut answer = Vec::new();
    let mut is_answered = false;
    if let Some((record, _)) = Record::split_first(&record_bytes) {
        is_answered = put_task(&request, &viewer, record, &mut answer);
        let len = below(input, 65)?;
        let payload = bytes(input, len)?;
        let is_first = input.arbitrary()?;
        put_mappings(&request, &viewer, record, &payload, is_first, &mut answer);
        let rest = Remainder {
            cmdline: Some(&payload),
            is_only: false,
            is_incomplete: input.arbitrary()?,
        };
        put_remainder(&request, &viewer, record, rest, &mut answer);
        put_files(input, &viewer, &record_bytes, &mut answer)?;
    }
    check(&answer);
    decode_as_helpers(&record_bytes);
    decode_as_client(input, answer)?;
    Ok((parsed.is_ok(), is_answered))
}

#[cfg(test)]
mod tests {
    use taskdiag_testkit::numbers::Numbers;

    use super::*;

    /// Check that no record, request or viewer makes the encoder or a decoder panic, and that each
    /// answer passes [`check`].
    #[test]
    fn any_input_is_handled() {
        const RUNS: u32 = 20_000;
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let (mut answered, mut requests) = (0, 0);
        for _ in 0..RUNS {
            // More than most records need.
            let data: Vec<u8> = (0..128).flat_map(|_| numbers.number().to_le_bytes()).collect();
            let (is_request, is_answered) = exchange(&mut Unstructured::new(&data)).expect("enough bytes");
            requests += u32::from(is_request);
            answered += u32::from(is_answered);
        }
        assert!(
            answered > RUNS / 20 && requests > RUNS / 20,
            "{requests} requests, {answered} answers"
        );
    }
}
