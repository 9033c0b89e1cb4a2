use proptest::prelude::*;
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::IntoBytes as _;

// proptest has a `Strategy` too.
use super::Strategy;
use super::*;

fn request() -> Request {
    Request {
        seq: 7,
        show: show::BASE | show::CRED | 1 << 16,
        strategy: Strategy::One,
        pid: 42,
    }
}

/// Check that structures have the sizes that they have in C.
#[test]
fn structures_have_their_sizes() {
    assert_eq!(size_of::<TaskDiagPid>(), 24);
    assert_eq!(size_of::<Base>(), 44);
    assert_eq!(size_of::<Creds>(), 64);
    assert_eq!(size_of::<Vma>(), 64);
    assert_eq!(size_of::<VmaStat>(), 80);
    assert_eq!(size_of::<Stat>(), 72);
    assert_eq!(size_of::<Statm>(), 120);
}

/// Check the bytes of the messages that end an answer. `struct nlmsgerr` also has the header of the
/// request (netlink(7)).
#[test]
fn errors_are_those_of_netlink() {
    let header = |len: u32, kind: u16, flags: u16| {
        let header = MessageHeader {
            len: U32::new(len),
            kind: U16::new(kind),
            flags: U16::new(flags),
            seq: U32::new(7),
            ..MessageHeader::default()
        };
        header.as_bytes().to_vec()
    };
    let mut out = Vec::new();
    put_error(&mut out, 7, libc::EPERM);
    let error = (-libc::EPERM).to_ne_bytes().to_vec();
    assert_eq!(out, [header(36, 2, 0), error, header(0, 0xd101, 1)].concat());
    out.clear();
    put_done(&mut out, 7);
    assert_eq!(out, [header(20, 3, 2), 0_i32.to_ne_bytes().to_vec()].concat());
}

/// Check every number in docs/protocol.md.
#[test]
fn numbers_are_those_of_the_document() {
    let bits = [
        show::BASE,
        show::CRED,
        show::VMA,
        show::VMA_STAT,
        show::STAT,
        show::STATM,
        show::CMDLINE,
    ];
    assert_eq!(bits, [1, 2, 4, 8, 16, 32, 64]);
    assert_eq!(show::TASK_DIAG, 0x7f);
    assert_eq!(show::MAPPINGS, 0xc);
    assert_eq!(show::MAPS, 0x1000_0000_0000_0000);
    assert_eq!(show::SMAPS, 0x2000_0000_0000_0000);
    assert_eq!(show::OPENED, 0x3000_0000_0000_0000);
    assert_eq!(show::FILES, 0x4000_0000_0000_0000);
    assert_eq!(show::BITS, 0x8000_0000_0000_0000);
    // Two of the last three of the 22 groups, rollups and texts, are not served.
    assert_eq!(GROUP_BITS, 0x27_ffff_0000);
    assert_eq!(ALL_BITS, 0xf000_0027_ffff_007f);
    assert_eq!((PACKET, REQUEST_MAX, MESSAGE_ROOM), (65_536, 40, 65_508));
}

/// Check the numbers of the strategies against task_diag's, and which strategies are about threads.
#[test]
fn strategies_have_their_numbers() {
    let all = [
        (0, Strategy::All, false),
        (1, Strategy::One, false),
        (2, Strategy::AllThreads, true),
        (3, Strategy::Children, false),
        (4, Strategy::Thread, true),
    ];
    for (number, strategy, is_threads) in all {
        assert_eq!(strategy as u64, number);
        assert_eq!(strategy.is_threads(), is_threads, "{strategy:?}");
        let asked = Request {
            strategy,
            pid: if matches!(number, 0 | 2) { 0 } else { i32::MAX as u32 },
            ..request()
        };
        assert_eq!(Request::parse(&asked.encode()), Ok(asked));
    }
}

/// Check which groups a request asks for, and the group of each attribute of a record.
#[test]
fn attributes_belong_to_groups() {
    let asked = Request {
        show: show::BASE | 1 << 16 | 1 << 18 | show::MAPS,
        ..request()
    };
    assert_eq!(asked.groups(), Groups(0b101));
    let kinds = [
        (Group::Base, vec![attr::BASE, attr::NAME]),
        (Group::Tty, vec![attr::TTY]),
        (Group::Cred, vec![attr::CRED]),
        (Group::Groups, vec![attr::GROUPS]),
        (Group::Cpu, vec![attr::CPU, attr::AFFINITY]),
        (Group::Faults, vec![attr::FAULTS]),
        (Group::Mem, vec![attr::MEM]),
        (Group::Args, vec![attr::ARGS]),
        (Group::Oom, vec![attr::OOM]),
        (Group::Namespaces, vec![attr::NAMESPACES, attr::NSPIDS]),
        (Group::Cgroup, vec![attr::CGROUP, attr::CGROUP_PATH]),
        (Group::Io, vec![attr::IO]),
        (Group::Net, vec![attr::NET]),
        (Group::Signals, vec![attr::SIGNALS]),
        (Group::Limits, vec![attr::LIMITS]),
        (Group::Env, vec![attr::ENV]),
        (Group::Paths, vec![attr::EXE, attr::CWD, attr::ROOT, attr::UMASK]),
        (Group::Fds, vec![attr::FDS]),
        (Group::Audit, vec![attr::AUDIT]),
        (Group::Layout, vec![attr::LAYOUT, attr::PERSONALITY]),
        (Group::Text, vec![attr::WCHAN, attr::SECURITY_LABEL, attr::CGROUPS]),
    ];
    for kind in 0..=u16::MAX {
        let of = kinds.iter().find(|(_, kinds)| kinds.contains(&kind));
        assert_eq!(group_of(kind), of.map(|(group, _)| *group), "{kind}");
    }
}

/// Check the length of a message, and the flag that the next message continues it.
#[test]
fn messages_have_a_length() {
    let mut out = vec![0; 8];
    let task = TaskHeader {
        pid: U32::new(1),
        tgid: U32::new(2),
        flags: U32::new(0),
    };
    let mut message = MessageWriter::task(&mut out, 7, task);
    assert!(message.is_empty());
    assert_eq!(message.len(), 28);
    message.attribute(attribute::CMDLINE, |out| out.push(b'x'));
    assert!(!message.is_empty());
    assert_eq!(message.len(), 36);
    message.continued();
    message.finish();
    let Some(Ok(Message::Task {
        header,
        attributes: list,
        ..
    })) = Messages::new(&out[8..], 7).next()
    else {
        panic!("{out:?}");
    };
    assert_eq!(
        (header.pid.get(), header.tgid.get(), header.flags.get()),
        (1, 2, CONTINUED)
    );
    assert_eq!(
        attributes(list).collect::<Vec<_>>(),
        [(attribute::CMDLINE, &b"x"[..], 4)]
    );
}

/// Check the flag that a message is incomplete.
#[test]
fn messages_can_be_incomplete() {
    let mut out = Vec::new();
    let mut message = MessageWriter::task(&mut out, 7, TaskHeader::default());
    message.incomplete();
    message.finish();
    let Some(Ok(Message::Task { header, .. })) = Messages::new(&out, 7).next() else {
        panic!("{out:?}");
    };
    assert_eq!(header.flags.get(), INCOMPLETE);
}

/// The bytes of a message whose header has the length `len`, whatever its real length.
fn with_length(len: u32, kind: u16, body: &[u8]) -> Vec<u8> {
    let header = MessageHeader {
        len: U32::new(len),
        kind: U16::new(kind),
        seq: U32::new(7),
        ..MessageHeader::default()
    };
    [header.as_bytes(), body].concat()
}

/// Check that messages with impossible lengths end an answer, and that messages of the minimum
/// length do not.
#[test]
fn impossible_lengths_end_an_answer() {
    let short = with_length(16, DONE, &[]);
    assert!(matches!(Messages::new(&short, 7).next(), Some(Ok(Message::Done))));
    for len in [0, 15, 17, 21, u32::MAX] {
        let wrong = with_length(len, DONE, &[]);
        let decoded = Messages::new(&wrong, 7).next();
        let reason = decoded
            .expect("the bytes are not empty")
            .expect_err("the length is impossible")
            .to_string();
        assert_eq!(reason, "a message has an impossible length", "{len}");
        let mut both = [short.clone(), wrong].concat();
        assert_eq!(number_packet(&mut both, 9).len(), 16, "{len}");
    }
    let mut two = [short.clone(), short].concat();
    assert_eq!(number_packet(&mut two, 9).len(), 32);
}

/// Check that an error message must hold a negative number.
#[test]
fn errors_have_a_number() {
    for (number, errno) in [
        (-libc::EPERM, Some(libc::EPERM)),
        (-4095, Some(4095)),
        (-4096, None),
        (i32::MIN, None),
        (0, None),
        (1, None),
    ] {
        let message = with_length(20, ERROR, &number.to_ne_bytes());
        let decoded = match Messages::new(&message, 7).next() {
            Some(Ok(Message::Error(errno))) => Some(errno),
            _ => None,
        };
        assert_eq!(decoded, errno, "{number}");
    }
}

/// Check that an encoded request decodes to the same request: also without the padding of its
/// structure, and with any bytes in the padding.
#[test]
fn requests_decode() {
    let mut packet = request().encode();
    assert_eq!(Request::parse(&packet), Ok(request()));
    packet[36..].fill(0xff);
    assert_eq!(Request::parse(&packet), Ok(request()));
    packet[..4].copy_from_slice(&36_u32.to_ne_bytes());
    assert_eq!(Request::parse(&packet[..36]), Ok(request()));
}

/// A request as the test program of task_diag's patches writes it: `nlmsg_total_size(0) +
/// nla_total_size(sizeof(struct task_diag_pid))` bytes, of which it leaves type, flags, sequence
/// number, port, and all after the pid as they were on its stack.
fn of_patches(show: u64, strategy: u64, pid: u32) -> Vec<u8> {
    let mut packet = vec![0; 44];
    packet[0] = 44;
    packet[8] = 7;
    packet[16..24].copy_from_slice(&show.to_ne_bytes());
    packet[24..32].copy_from_slice(&strategy.to_ne_bytes());
    packet[32..36].copy_from_slice(&pid.to_ne_bytes());
    packet[36..].fill(0xa5);
    packet
}

/// Check that what the test program of task_diag's patches sends is served, for all its commands
/// and options, with and without a type; and that nothing else of that length is.
#[test]
fn requests_of_the_patches_decode() {
    for (number, strategy) in (0..5).zip([
        Strategy::All,
        Strategy::One,
        Strategy::AllThreads,
        Strategy::Children,
        Strategy::Thread,
    ]) {
        // It knows no more than the bits 0 to 6.
        for show in 1..0x80 {
            let pid = if matches!(number, 0 | 2) { 0 } else { 42 };
            let mut packet = of_patches(show, number, pid);
            let asked = Request {
                seq: 7,
                show,
                strategy,
                pid,
            };
            assert_eq!(Request::parse(&packet), Ok(asked));
            packet[4..8].copy_from_slice(&[0x01, 0xd1, 1, 0]);
            assert_eq!(Request::parse(&packet), Ok(asked));
        }
    }
    let refused = |packet: &[u8]| assert_eq!(Request::parse(packet).unwrap_err().errno, libc::EINVAL, "{packet:?}");
    for (at, value) in [
        (4, 1),
        (5, 0xd1),
        (6, 1),
        (7, 1),
        (0, 43),
        (0, 45),
        (24, 5),
        (31, 1),
        (16, 0x81),
        (18, 1),
        (23, 0x80),
    ] {
        let mut packet = of_patches(1, 1, 42);
        packet[at] = value;
        refused(&packet);
    }
    for len in [36, 40, 43, 45, 48, 184] {
        let mut packet = of_patches(1, 1, 42);
        packet.resize(len, 0);
        packet[0] = len as u8;
        refused(&packet);
    }
}

/// Check that requests with a wrong length, type, strategy, bit or pid are refused, with the
/// request's sequence number if it has one.
#[test]
fn invalid_requests_are_refused() {
    let packet = request().encode();
    for len in 0..packet.len() {
        let seq = if len >= 16 { 7 } else { 0 };
        let refused = Err(BadRequest {
            seq,
            errno: libc::EINVAL,
        });
        assert_eq!(Request::parse(&packet[..len]), refused, "{len}");
    }
    for (at, value) in [(4, 0), (6, 0), (6, 2), (24, 5), (31, 1), (21, 0x80), (0, 41)] {
        let mut packet = packet;
        packet[at] = value;
        let refused = BadRequest {
            seq: 7,
            errno: libc::EINVAL,
        };
        assert_eq!(Request::parse(&packet), Err(refused), "{at}");
    }
    for (show, strategy, is_valid) in [
        (show::MAPS, Strategy::One, true),
        (show::SMAPS, Strategy::Thread, true),
        (show::MAPS, Strategy::All, false),
        (show::SMAPS, Strategy::Children, false),
        (show::OPENED, Strategy::One, false),
        (show::MAPS | show::BASE, Strategy::One, false),
        (1 << 59, Strategy::All, false),
        (show::FILES, Strategy::All, true),
        (show::FILES, Strategy::One, true),
        (show::FILES, Strategy::Children, true),
        (show::FILES, Strategy::AllThreads, false),
        (show::FILES, Strategy::Thread, false),
        (show::FILES | show::BASE, Strategy::One, false),
        (show::FILES | show::MAPS, Strategy::One, false),
        (show::FILES | show::BITS, Strategy::AllThreads, true),
    ] {
        let asked = Request {
            show,
            strategy,
            ..request()
        };
        assert_eq!(Request::parse(&asked.encode()).is_ok(), is_valid, "{asked:?}");
    }
    for pid in [0, 1 << 31, u32::MAX] {
        let asked = Request { pid, ..request() };
        assert_eq!(Request::parse(&asked.encode()).unwrap_err().errno, libc::ESRCH);
    }
}

/// Check that the part about files is decoded, that it may be left out, and that only a request
/// about files may have it.
#[test]
fn requests_about_files_decode() {
    let about_files = Request {
        show: show::FILES,
        ..request()
    };
    assert_eq!((size_of::<Files>(), FILES_REQUEST), (144, 184));
    let asked = Files {
        uses: U32::new(uses::FD),
        wants: U32::new(wants::STAT),
        types: U32::new(1 << 12),
        deleted: U32::new(1),
        matches: [FileMatch {
            dev_major: U32::new(8),
            dev_minor: U32::new(1),
            inode: U64::new(u64::MAX),
        }; 8],
    };
    let packet = about_files.encode_with(&asked);
    assert_eq!(
        (Request::parse(&packet), Files::parse(&packet)),
        (Ok(about_files), asked)
    );
    assert_eq!(Files::parse(&about_files.encode()), Files::default());
    assert_eq!(
        (Files::default().uses.get(), Files::default().wants.get()),
        (uses::ALL, 0b111)
    );
    let refused = |packet: &[u8]| Request::parse(packet).unwrap_err();
    let invalid = BadRequest {
        seq: 7,
        errno: libc::EINVAL,
    };
    assert_eq!(refused(&request().encode_with(&asked)), invalid);
    assert_eq!(refused(&packet[..FILES_REQUEST - 1]), invalid);
    // The first unknown bit of each, and a number that is neither 0 nor 1.
    for (at, value) in [(40, 0x10), (44, 0x08), (44, 0x20), (50, 1), (52, 2)] {
        let mut packet = about_files.encode_with(&Files::default());
        packet[at] = value;
        assert_eq!(refused(&packet), invalid, "{at}");
    }
}

fn sample() -> Vec<u8> {
    let mut out = Vec::new();
    for pid in 1..4 {
        let task = TaskHeader {
            pid: U32::new(pid),
            tgid: U32::new(pid),
            flags: U32::new(0),
        };
        let mut message = MessageWriter::task(&mut out, 0, task);
        message.attribute(attribute::CMDLINE, |out| out.extend_from_slice(b"sleep\x00100"));
        message.attribute(attribute::BASE, |out| out.extend_from_slice(Base::default().as_bytes()));
        message.finish();
    }
    put_done(&mut out, 0);
    out
}

/// Check that messages decode to what was written, with the sequence number of the request.
#[test]
fn messages_decode() {
    let mut bytes = sample();
    let len = bytes.len();
    let packet = number_packet(&mut bytes, 9);
    assert_eq!(packet.len(), len);
    let messages: Vec<_> = Messages::new(packet, 9).collect::<Result<_, _>>().unwrap();
    assert_eq!(messages.len(), 4);
    let Message::Task {
        header,
        attributes: list,
        offset,
    } = messages[2]
    else {
        panic!("{messages:?}");
    };
    assert_eq!(header.pid.get(), 3);
    let list: Vec<_> = attributes(list).collect();
    assert_eq!(list[0].1, b"sleep\x00100");
    assert_eq!(&packet[offset + list[0].2..][..5], b"sleep");
    assert_eq!(list[1].0, attribute::BASE);
    assert!(matches!(messages[3], Message::Done));
    assert!(Messages::new(packet, 8).next().unwrap().is_err());
}

proptest! {
    /// Check that any bytes either are a request or are refused.
    #[test]
    fn any_packet_decodes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Request::parse(&bytes), Files::parse(&bytes));
    }

    /// Check that a request with one byte changed decodes or is refused, and never has an unknown
    /// bit.
    #[test]
    fn changed_requests_decode(at in 0..REQUEST_MAX, byte: u8) {
        let mut packet = request().encode();
        packet[at] = byte;
        if let Ok(request) = Request::parse(&packet) {
            prop_assert_eq!(request.show & !ALL_BITS, 0);
            prop_assert!(request.pid <= i32::MAX as u32);
        }
    }

    /// Check that any bytes can be decoded as messages, and that decoding ends.
    #[test]
    fn any_answer_decodes(bytes in proptest::collection::vec(any::<u8>(), 0..512), seq in 0..3_u32) {
        for message in Messages::new(&bytes, seq) {
            if let Ok(Message::Task { attributes: list, offset, .. }) = message {
                prop_assert_eq!(&bytes[offset..offset + list.len()], list);
                for (_, payload, at) in attributes(list) {
                    prop_assert_eq!(&list[at..at + payload.len()], payload);
                }
            }
        }
    }

    /// Check that answers with some bytes changed can be decoded.
    #[test]
    fn changed_answers_decode(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4)) {
        let mut bytes = sample();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        for message in Messages::new(&bytes, 0).flatten() {
            if let Message::Task { attributes: list, .. } = message {
                prop_assert!(attributes(list).count() <= bytes.len());
            }
        }
        let len = bytes.len();
        let packet = number_packet(&mut bytes, 1);
        prop_assert!(packet.len() <= len.min(PACKET));
    }

    /// Check that packets hold only whole messages, as many as fit, and that none is lost.
    #[test]
    fn packets_are_whole(lens in proptest::collection::vec(0..30_000_usize, 0..20)) {
        let mut bytes = Vec::new();
        for &len in &lens {
            let mut message = MessageWriter::task(&mut bytes, 0, TaskHeader::default());
            message.attribute(attribute::RECORD, |out| out.resize(out.len() + len, 1));
            message.finish();
        }
        let (mut at, mut count) = (0, 0);
        while at < bytes.len() {
            let packet = number_packet(&mut bytes[at..], 3);
            prop_assert!(!packet.is_empty() && packet.len() <= PACKET);
            for message in Messages::new(packet, 3) {
                prop_assert!(message.is_ok());
                count += 1;
            }
            at += packet.len();
        }
        prop_assert_eq!(count, lens.len());
    }
}
