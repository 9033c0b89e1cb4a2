//! Messages of the proc connector: bytes in, values out. Any bytes are safe to parse.
//!
//! A datagram is a netlink header, a connector header (`struct cn_msg`, `linux/connector.h`) and an
//! event (`struct proc_event`, `linux/cn_proc.h`).

use taskdiag_core::event::EventKind;

const NETLINK_HEADER: usize = 16;
const CONNECTOR_HEADER: usize = 20;
/// The offset of the event, and the offset of the fields that depend on its kind.
const EVENT: usize = NETLINK_HEADER + CONNECTOR_HEADER;
const DETAILS: usize = EVENT + 16;

/// The offset of the subscriber's number. The acknowledgement has that number plus 1, and nothing
/// else of the request.
const ACK: usize = NETLINK_HEADER + 12;

const NLMSG_DONE: u16 = 3;
/// `CN_IDX_PROC` and `CN_VAL_PROC`.
const ID: [u32; 2] = [1, 1];

/// Bits of `enum proc_cn_event`.
const ACKNOWLEDGEMENT: u32 = 0;
const FORK: u32 = 1;
const EXEC: u32 = 2;
const EXIT: u32 = 0x8000_0000;

/// The request of a subscriber: `enum proc_cn_mcast_op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Operation {
    Listen = 1,
    Ignore = 2,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The answer to a subscriber, identified by the number that it chose. The error is 0 or an
    /// errno.
    Acknowledged { subscriber: u32, error: u32 },
    /// An event happened.
    Happened(Happening),
    /// An event of another kind.
    Other,
}

/// A fork, exec or exit. Ids are those of the initial pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Happening {
    pub(crate) kind: EventKind,
    /// The time on `CLOCK_MONOTONIC`, which stops while the machine is suspended.
    pub(crate) monotonic_ns: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// The parent's process id; 0 for an exec, for which the connector does not send it.
    pub(crate) ppid: u32,
    /// The status of an exit, as wait(2) returns it.
    pub(crate) status: i32,
}

/// Parses a datagram. `None` if it is not the proc connector's.
pub(crate) fn parse(datagram: &[u8]) -> Option<Message> {
    let word = |offset: usize| -> Option<u32> {
        let bytes = datagram.get(offset..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let len = word(0)? as usize;
    if len < DETAILS || len > datagram.len() || [word(NETLINK_HEADER)?, word(NETLINK_HEADER + 4)?] != ID {
        return None;
    }
    let detail = |index: usize| word(DETAILS + 4 * index);
    let time = datagram.get(EVENT + 8..)?.first_chunk()?;
    let happened = |kind, [tid, pid, ppid, status]: [u32; 4]| {
        Message::Happened(Happening {
            kind,
            monotonic_ns: u64::from_ne_bytes(*time),
            pid,
            tid,
            ppid,
            status: status as i32,
        })
    };
    Some(match word(EVENT)? {
        ACKNOWLEDGEMENT => Message::Acknowledged {
            subscriber: word(ACK)?.wrapping_sub(1),
            error: detail(0)?,
        },
        FORK => happened(EventKind::Fork, [detail(2)?, detail(3)?, detail(1)?, 0]),
        EXEC => happened(EventKind::Exec, [detail(0)?, detail(1)?, 0, 0]),
        EXIT => happened(EventKind::Exit, [detail(0)?, detail(1)?, detail(5)?, detail(2)?]),
        _ => Message::Other,
    })
}

/// A request from `subscriber`.
pub(crate) fn request(subscriber: u32, operation: Operation) -> [u8; EVENT + 4] {
    let mut datagram = [0; EVENT + 4];
    let mut put = |offset: usize, bytes: &[u8]| datagram[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0, &((EVENT + 4) as u32).to_ne_bytes());
    put(4, &NLMSG_DONE.to_ne_bytes());
    put(NETLINK_HEADER, &ID[0].to_ne_bytes());
    put(NETLINK_HEADER + 4, &ID[1].to_ne_bytes());
    put(ACK, &subscriber.to_ne_bytes());
    put(NETLINK_HEADER + 16, &4_u16.to_ne_bytes());
    put(EVENT, &(operation as u32).to_ne_bytes());
    datagram
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A datagram as the kernel makes it, with 24 bytes of details for every kind.
    fn datagram(what: u32, details: [u32; 6]) -> Vec<u8> {
        let words = [76, 3, 0, 0, 1, 1, 5, 78, 40, what, 1, 0x1234_5678, 9];
        words.into_iter().chain(details).flat_map(u32::to_ne_bytes).collect()
    }

    fn happening(message: Option<Message>) -> Happening {
        match message {
            Some(Message::Happened(happening)) => happening,
            other => panic!("{other:?}"),
        }
    }

    /// Check that each kind of message is parsed.
    #[test]
    fn messages_are_parsed() {
        let fork = happening(parse(&datagram(FORK, [10, 11, 20, 21, 0, 0])));
        assert_eq!(
            (fork.kind, fork.tid, fork.pid, fork.ppid),
            (EventKind::Fork, 20, 21, 11)
        );
        assert_eq!(fork.monotonic_ns, 9 << 32 | 0x1234_5678);
        let exec = happening(parse(&datagram(EXEC, [20, 21, 99, 99, 99, 99])));
        assert_eq!(
            (exec.kind, exec.tid, exec.pid, exec.ppid, exec.status),
            (EventKind::Exec, 20, 21, 0, 0)
        );
        let exit = happening(parse(&datagram(EXIT, [20, 21, 3 << 8, 17, 10, 11])));
        assert_eq!(
            (exit.kind, exit.tid, exit.pid, exit.ppid, exit.status),
            (EventKind::Exit, 20, 21, 11, 3 << 8)
        );
        let answer = Message::Acknowledged {
            subscriber: 77,
            error: 1,
        };
        assert_eq!(parse(&datagram(ACKNOWLEDGEMENT, [1, 0, 0, 0, 0, 0])), Some(answer));
        assert_eq!(parse(&datagram(0x200, [0; 6])), Some(Message::Other));
    }

    /// Check that datagrams from others and truncated datagrams are refused.
    #[test]
    fn other_datagrams_are_refused() {
        let whole = datagram(EXIT, [1; 6]);
        assert!(parse(&whole).is_some());
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), None, "{len} bytes");
        }
        let mut other = whole.clone();
        other[NETLINK_HEADER] = 2;
        assert_eq!(parse(&other), None);
        let mut short = whole;
        short[0] = 40;
        assert_eq!(parse(&short), None);
    }

    /// Check that a request is what the kernel expects.
    #[test]
    fn requests_are_well_formed() {
        let request = request(77, Operation::Listen);
        let words: Vec<u32> = request
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes")))
            .collect();
        assert_eq!(words, [40, 3, 0, 0, 1, 1, 0, 77, 4, 1]);
    }

    proptest! {
        /// Check that any bytes can be parsed.
        #[test]
        fn any_bytes_parse(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&bytes);
        }

        /// Check that a message with any byte changed can be parsed.
        #[test]
        fn broken_messages_parse(at in 0..76_usize, byte: u8, what in prop_oneof![Just(FORK), Just(EXEC), Just(EXIT), any::<u32>()]) {
            let mut bytes = datagram(what, [1, 2, 3, 4, 5, 6]);
            bytes[at] = byte;
            let _ = parse(&bytes);
        }
    }
}
