use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use taskdiag_core::record;
use taskdiag_protocol::wire::MessageWriter;
use zerocopy::native_endian::{U32, U64};

use super::Strategy;
use super::*;

/// A connection to a broker that gets each request, and a function that sends a packet, which says
/// whether the connection lasts.
pub(super) fn broker_that(mut answers: impl FnMut(&[u8], &dyn Fn(&[u8]) -> bool) + Send + 'static) -> Broker {
    let flags = SocketFlags::CLOEXEC;
    let (socket, other_end) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
    std::thread::spawn(move || {
        let mut request = [0; wire::FILES_REQUEST];
        while let Ok((len @ 1.., _)) = rustix::net::recv(&other_end, &mut request[..], RecvFlags::empty()) {
            answers(&request[..len], &|packet| {
                rustix::net::send(&other_end, packet, SendFlags::NOSIGNAL).is_ok()
            });
        }
    });
    let limits = Limits {
        patience: PATIENCE,
        bytes: u64::MAX,
    };
    let mut broker = Broker::new(socket, "/test".into(), limits);
    broker.bits.bits = U64::new(wire::ALL_BITS);
    broker
}

/// Check that an error names an older broker and what it lacks, and that it is not asked for that.
#[test]
fn an_older_broker_is_not_asked_for_new_groups() {
    let lacking = 1 << 34;
    let mut broker = broker_that(move |packet, send| {
        let request = Request::parse(packet).expect("a request");
        assert_eq!(request.show & lacking, 0);
        let mut packet = Vec::new();
        wire::put_done(&mut packet, request.seq);
        send(&packet);
    });
    broker.bits.bits = U64::new(wire::ALL_BITS & !lacking);
    let groups = Groups(((wire::ALL_BITS & lacking) >> show::GROUPS_SHIFT) as u32);
    let name = groups.iter().next().expect("a group").name();
    let mut ask = |groups| broker.read(Strategy::All, 0, groups, &mut Snapshot::default());
    ask(Groups(1)).expect("an answer");
    let error = ask(Groups(groups.0 | 1)).expect_err("an unknown group");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(
        text.contains("/test") && text.contains(&format!("the fields of {name}: install it in the same version")),
        "{text}"
    );
}

/// One that sends an answer without end, a packet after each pause.
fn endless(pause: Duration, limits: Limits) -> Broker {
    let broker = broker_that(move |request, send| {
        let seq = Request::parse(request).expect("a request").seq;
        let mut packet = Vec::new();
        let mut message = MessageWriter::task(&mut packet, seq, Default::default());
        message.attribute(attribute::CMDLINE, |out| out.resize(out.len() + 60_000, 1));
        message.finish();
        while send(&packet) {
            std::thread::sleep(pause);
        }
    });
    Broker { limits, ..broker }
}

/// Check that an answer without end is given up, whether it comes fast or slowly.
#[test]
fn an_answer_without_end_ends() {
    let limits = Limits {
        patience: Duration::from_millis(500),
        bytes: 4 << 20,
    };
    for (pause, message) in [
        (0, "larger than a quarter of this machine's memory"),
        (200, "does not answer"),
    ] {
        let mut broker = endless(Duration::from_millis(pause), limits);
        let mut snapshot = Snapshot::default();
        let error = broker
            .read(Strategy::All, 0, Groups(1), &mut snapshot)
            .expect_err("an end");
        assert!(error.to_string().contains(message), "{error}");
        assert!(!broker.is_ours(), "it would be used again");
    }
    let mut broker = endless(Duration::ZERO, limits);
    assert!(matches!(broker.ask_bits(), Err(Refusal::Malformed(_))));
}

/// Check that an answer ends long before it has a quarter of the memory if the tasks of this machine
/// can't have as much as it has: the limit follows from what was asked for.
#[test]
fn an_answer_is_no_larger_than_its_tasks_can_make_it() {
    let without = Limits {
        patience: PATIENCE,
        bytes: u64::MAX,
    };
    let base = Groups(1 << Group::Base as u32);
    let with_texts = Groups(base.0 | 1 << Group::Args as u32);
    for (strategy, groups, most) in [
        (Strategy::One, base, 2 << 20),
        (Strategy::One, with_texts, 2 << 20),
        (Strategy::All, base, most_bytes(base, most_tasks() + 1000)),
        (
            Strategy::AllThreads,
            with_texts,
            most_bytes(with_texts, most_tasks() + 1000),
        ),
    ] {
        let mut broker = endless(Duration::ZERO, without);
        let mut snapshot = Snapshot::default();
        let error = broker.read(strategy, 1, groups, &mut snapshot).expect_err("an end");
        assert!(error.to_string().contains("than all tasks of this machine"), "{error}");
        let received = snapshot.records.len() as u64;
        assert!(
            received <= most + wire::PACKET as u64,
            "{strategy:?}: {received} of {most}"
        );
        assert!(!broker.is_ours(), "it would be used again");
    }
    // What real answers have is far from it.
    assert!(most_bytes(base, 1) > 4 << 10 && most_bytes(Groups::ALL, 1) - SMALL_ANSWER > 64 << 10);
}

fn answer() -> Vec<u8> {
    let mut bytes = Vec::new();
    for pid in 1..4_u32 {
        let task = wire::TaskHeader {
            pid: U32::new(pid),
            tgid: U32::new(pid),
            flags: U32::new(0),
        };
        let mut message = MessageWriter::task(&mut bytes, 5, task);
        message.attribute(attribute::RECORD, |out| {
            let writer = record::Writer::new(out);
            writer.finish(record::Header {
                pid: U32::new(pid),
                tid: U32::new(pid),
                ..record::Header::default()
            });
        });
        message.finish();
    }
    wire::put_done(&mut bytes, 5);
    bytes
}

fn take(bytes: Vec<u8>) -> (Snapshot, std::result::Result<bool, Refusal>) {
    let mut snapshot = Snapshot {
        records: bytes,
        ..Snapshot::default()
    };
    let taken = add_rows(&mut snapshot, 0, 5);
    (snapshot, taken)
}

/// Check that each record becomes a row, and that an answer to another request is refused.
#[test]
fn records_become_rows() {
    let (snapshot, taken) = take(answer());
    assert!(matches!(taken, Ok(true)));
    let pids: Vec<u32> = snapshot.tasks().map(|task| task.record().header().pid.get()).collect();
    assert_eq!(pids, [1, 2, 3]);
    let mut other = answer();
    other[8] = 6;
    assert!(matches!(take(other).1, Err(Refusal::Malformed(_))));
}

/// Check that an error with a number that is no errno is refused.
#[test]
fn errors_are_errnos() {
    for (number, is_errno) in [(libc::EIO, true), (4095, true), (4096, false), (100_000, false)] {
        let mut packet = Vec::new();
        wire::put_error(&mut packet, 5, number);
        let is_malformed = matches!(take(packet).1, Err(Refusal::Malformed(_)));
        assert_eq!(is_malformed, !is_errno, "{number}");
    }
}

/// Check that a packet says whether the requested file comes with it, and that a packet without the
/// end of the answer is refused.
#[test]
fn packets_say_whether_a_file_comes() {
    let packet = |bits: Option<u64>| {
        let mut bytes = Vec::new();
        let mut message = MessageWriter::task(&mut bytes, 5, wire::TaskHeader::default());
        if let Some(bit) = bits {
            message.attribute(attribute::OPENED, |out| out.extend_from_slice(&bit.to_ne_bytes()));
        }
        message.finish();
        let cut = bytes.len();
        wire::put_done(&mut bytes, 5);
        (bytes, cut)
    };
    let announced = |bits| opened(&packet(bits).0, 5, show::MAPS);
    assert!(matches!(announced(Some(show::MAPS)), Ok(true)));
    assert!(matches!(announced(Some(show::SMAPS)), Ok(false)));
    assert!(matches!(announced(None), Ok(false)));
    let (bytes, cut) = packet(Some(show::MAPS));
    assert!(matches!(
        opened(&bytes[..cut], 5, show::MAPS),
        Err(Refusal::Malformed(_))
    ));
    assert!(matches!(opened(&bytes, 6, show::MAPS), Err(Refusal::Malformed(_))));
    let mut error = Vec::new();
    wire::put_error(&mut error, 5, libc::ESRCH);
    assert!(matches!(
        opened(&error, 5, show::MAPS),
        Err(Refusal::Errno(Errno::SRCH))
    ));
}

proptest! {
    /// Check that an answer with bytes changed, cut off or appended leads to rows that can be read,
    /// or to none.
    #[test]
    fn broken_answers_are_handled(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..5), cut: usize, tail: Vec<u8>) {
        let mut bytes = answer();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(cut % (bytes.len() + 1));
        bytes.extend(tail);
        let (snapshot, _) = take(bytes);
        for task in snapshot.tasks() {
            let _ = (task.pid(), task.comm(), task.uid(), task.cmdline());
        }
    }
}
