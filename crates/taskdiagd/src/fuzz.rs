//! Structure-aware fuzzing of what the broker makes messages of, and of what it hears: records with anything in them, asked for in any way,
//! by anybody. As many runs as `TASKDIAG_FUZZ_RUNS` says.

use taskdiag_core::record::{self, attr, Record};
use taskdiag_protocol::access::{Own, Subject};
use taskdiag_protocol::wire::{self, attribute, show, Message, Messages, Request, Strategy};
use zerocopy::native_endian::U32;

use crate::encode::{self, Viewer};
use crate::facts::Particulars;
use crate::ids::IdMap;
use crate::smaps::Payloads;
use taskdiag_testkit::numbers::Numbers;

/// Who is in the initial namespace.
const USER_NS: u32 = 0xEFFF_FFFD;

fn subject(numbers: &mut Numbers) -> Subject {
    let id = [0, 1000][numbers.below(2)];
    Subject {
        pid: 1 + numbers.below(3) as u32,
        own: Own::default(),
        fsuid: id,
        fsgid: id,
        euid: id,
        capabilities: [0, u64::MAX, 1 << 19][numbers.below(3)],
        user_ns: USER_NS,
        user_ns_level: numbers.below(2) as u32,
        landlock: numbers.number() % 2,
        kept: 0,
        confined: numbers.below(8) == 0,
        counts_files: numbers.below(2) == 0,
        may_attach: numbers.below(2) == 0,
    }
}

/// A record with attributes of all kinds, of their right lengths and of others.
fn record(numbers: &mut Numbers) -> Vec<u8> {
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
    let mut bytes = Vec::new();
    let mut writer = record::Writer::new(&mut bytes);
    let mut put = |kind: u16, size: usize, numbers: &mut Numbers| {
        let mut payload: Vec<u8> = (0..size).map(|_| numbers.number() as u8).collect();
        if kind == attr::ACCESS && numbers.below(4) > 0 {
            payload.fill(0);
            // Stable, dumpable, in the initial namespace: seen by somebody.
            let len = payload.len();
            payload[len - 8..len - 4].copy_from_slice(&1_u32.to_ne_bytes());
            payload[len - 4..].copy_from_slice(&1_u32.to_ne_bytes());
            payload[len - 24..len - 20].copy_from_slice(&USER_NS.to_ne_bytes());
            payload[len - 20..len - 16].copy_from_slice(&USER_NS.to_ne_bytes());
        }
        if numbers.below(16) == 0 {
            payload.truncate(numbers.below(size + 1));
        }
        writer.put(kind, 0, &payload);
    };
    if numbers.below(16) > 0 {
        put(SIZES[0].0, SIZES[0].1, numbers);
    }
    for _ in 0..numbers.below(8) {
        let (kind, size) = SIZES[1 + numbers.below(SIZES.len() - 1)];
        put(kind, size, numbers);
    }
    writer.finish(record::Header {
        pid: U32::new(1 + numbers.below(3) as u32),
        tid: U32::new(1 + numbers.below(3) as u32),
        flags: U32::new(numbers.below(32) as u32),
        ..record::Header::default()
    });
    // And now and then one whose lengths are others.
    if numbers.below(8) == 0 {
        // The header of the first attribute, which decides about access, or anything.
        let first = size_of::<record::Header>()..size_of::<record::Header>() + 8;
        let at = match numbers.below(2) {
            0 => numbers.below(bytes.len()),
            _ => (first.start + numbers.below(first.len())).min(bytes.len() - 1),
        };
        bytes[at] = numbers.number() as u8;
    }
    bytes
}

/// Check that whatever is answered is whole messages, which the client's decoder reads, and that nothing that decides about access ever
/// leaves.
fn check(answer: &[u8]) {
    let mut total = 0;
    for message in Messages::new(answer, 0) {
        let Ok(Message::Task { attributes: list, .. }) = message else {
            panic!("{message:?}");
        };
        total += 1;
        for (kind, payload, _) in wire::attributes(list) {
            assert!(payload.len() <= wire::PACKET);
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

#[test]
fn anything_is_survived() {
    let runs = std::env::var("TASKDIAG_FUZZ_RUNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let runs: u64 = runs.unwrap_or(20_000);
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut answered, mut requests) = (0_u64, 0_u64);
    let map = IdMap::parse("0 1000 1\n1 100000 65536\n").expect("a map");
    for _ in 0..runs {
        // What a client sends: a request with some bytes changed.
        let asked = Request {
            seq: numbers.number() as u32,
            show: 1 << numbers.below(64) | 1 << numbers.below(64) | 1 << 16,
            strategy: [Strategy::All, Strategy::One, Strategy::Thread][numbers.below(3)],
            pid: numbers.below(5) as u32,
        };
        let mut packet = asked.encode().to_vec();
        for _ in 0..numbers.below(3) {
            let at = numbers.below(packet.len());
            packet[at] = numbers.number() as u8;
        }
        packet.truncate(packet.len() - numbers.below(8).saturating_sub(4));
        let request = Request::parse(&packet);
        requests += u64::from(request.is_ok());
        let request = request.unwrap_or(Request {
            show: show::BASE | show::CRED | show::STAT | wire::GROUP_BITS,
            ..asked
        });
        let users = if numbers.below(4) == 0 {
            map.clone()
        } else {
            IdMap::default()
        };
        let viewer = Viewer {
            before: subject(&mut numbers),
            now: subject(&mut numbers),
            observer: numbers.below(4) == 0,
            users: users.clone(),
            groups: users,
        };
        let bytes = record(&mut numbers);
        let mut out = Vec::new();
        if let Some((record, _)) = Record::split_first(&bytes) {
            answered += u64::from(encode::put(&request, &viewer, record, &mut out));
            let len = numbers.below(65);
            let payload: Vec<u8> = (0..len).map(|_| numbers.number() as u8).collect();
            encode::put_mappings(&request, &viewer, record, &payload, numbers.below(2) == 0, &mut out);
            encode::put_rest(&request, &viewer, record, Some(&payload), false, &mut out);
        }
        check(&out);
        // What helpers bring, and what the client reads.
        let _ = Particulars::parse(&bytes);
        let _ = crate::reader::split_head(&bytes);
        let mut payloads = Payloads::new(true);
        let _ = payloads.take::<()>(&bytes, &mut |_| Ok(()));
        for at in 0..numbers.below(3) {
            let place = numbers.below(out.len().max(1));
            if let Some(byte) = out.get_mut(place) {
                *byte = at as u8;
            }
        }
        for message in Messages::new(&out, 0).flatten() {
            if let Message::Task { attributes: list, .. } = message {
                for (_, payload, _) in wire::attributes(list) {
                    let attributes: usize = Record::each(payload).map(|record| record.attributes().count()).sum();
                    assert!(attributes <= payload.len());
                }
            }
        }
    }
    println!("{runs} runs: {requests} requests, {answered} answers");
    assert!(
        answered > runs / 20 && requests > runs / 20,
        "{requests} requests, {answered} answers"
    );
}
