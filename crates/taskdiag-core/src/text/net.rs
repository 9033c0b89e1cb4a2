//! The parsers of `/proc/net/raw` and `raw6`, and of `sockstat` and `sockstat6`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::number::{decimal, hexadecimal};
use crate::absent::Absent;
use crate::socket::{Address, Endpoint, Family, Protocol, Queues, Socket, State, Type};

/// Parses the line of a raw socket. The number after the local address is the protocol; the number
/// after the remote address has no meaning.
pub fn raw(family: Family, line: &[u8]) -> Option<Socket<'static>> {
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    // The number of the line.
    words.next()?.strip_suffix(b":")?;
    let (local, protocol) = address(family, words.next()?)?;
    let (remote, _) = address(family, words.next()?)?;
    let state = State::new(hexadecimal(words.next()?)?.try_into().ok()?)?;
    let (send, recv) = pair(words.next()?)?;
    let (uid, inode) = (words.nth(2)?, words.nth(1)?);
    let mut socket = Socket::new(family, Type::Raw, state, 0);
    socket.protocol = Some(Protocol::Ip(protocol));
    socket.local = Endpoint {
        addr: Some(Address::Ip(local)),
        port: None,
    };
    if !remote.is_unspecified() {
        socket.remote = Endpoint {
            addr: Some(Address::Ip(remote)),
            port: None,
        };
    }
    socket.queues = Ok(Queues::Data {
        recv_bytes: recv,
        send_bytes: send,
    });
    socket.uid = Ok(decimal(uid)?.try_into().ok()?);
    socket.inode = decimal(inode).filter(|&inode| inode != 0);
    // The text has none of these.
    if family == Family::Inet6 {
        socket.ipv6_only = Err(Absent::Unsupported);
    }
    socket.interface = Err(Absent::Unsupported);
    socket.shutdown = Err(Absent::Unsupported);
    socket.mark = Err(Absent::Unsupported);
    socket.cgroup_id = Err(Absent::Unsupported);
    Some(socket)
}

/// Whether `sockstat` or `sockstat6` counts at most one socket, and no protocol has one: sockets that
/// the kernel made for itself, and those that wait for the end of a connection without a process.
/// `orphan`, `alloc`, `mem` and `memory` are of the whole machine, or of no socket.
pub fn has_one_socket(text: &[u8]) -> bool {
    text.split(|&byte| byte == b'\n').all(|line| {
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        words.windows(2).all(|pair| match pair[0] {
            b"used" => matches!(pair[1], b"0" | b"1"),
            b"inuse" | b"tw" => pair[1] == b"0",
            _ => true,
        })
    })
}

/// An address and the number after it. The address is written in words of the processor's byte
/// order.
fn address(family: Family, word: &[u8]) -> Option<(IpAddr, u16)> {
    let colon = word.iter().position(|&byte| byte == b':')?;
    let (digits, number) = (&word[..colon], &word[colon + 1..]);
    let number = hexadecimal(number)?.try_into().ok()?;
    let part = |digits: &[u8]| Some(u32::try_from(hexadecimal(digits)?).ok()?.to_ne_bytes());
    let address = match (family, digits.len()) {
        (Family::Inet, 8) => IpAddr::V4(Ipv4Addr::from(part(digits)?)),
        (Family::Inet6, 32) => {
            let mut bytes = [0; 16];
            for (place, digits) in bytes.chunks_exact_mut(4).zip(digits.chunks_exact(8)) {
                place.copy_from_slice(&part(digits)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some((address, number))
}

/// Two numbers with a colon between them.
fn pair(word: &[u8]) -> Option<(u64, u64)> {
    let colon = word.iter().position(|&byte| byte == b':')?;
    Some((hexadecimal(&word[..colon])?, hexadecimal(&word[colon + 1..])?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str =
        "    1: 0100007F:0001 00000000:0000 07 00000005:00000120 00:00000000 00000000  1000        0 12345 2 \
                        000000001e2f3a4b 0";

    /// Check each value, on a little-endian machine.
    #[test]
    #[cfg(target_endian = "little")]
    fn raw_sockets_are_parsed() {
        let socket = raw(Family::Inet, LINE.as_bytes()).expect("a socket");
        assert_eq!(
            (socket.socket_type, socket.state, socket.inode),
            (Type::Raw, State::Unconn, Some(12345))
        );
        assert_eq!(
            socket.local.addr.map(|addr| addr.to_string()).as_deref(),
            Some("127.0.0.1")
        );
        assert_eq!((socket.remote.addr, socket.uid), (None, Ok(1000)));
        assert_eq!(
            socket.protocol.map(|protocol| protocol.to_string()).as_deref(),
            Some("icmp")
        );
        let queues = Queues::Data {
            recv_bytes: 0x120,
            send_bytes: 5,
        };
        assert_eq!(socket.queues, Ok(queues));
        let line = LINE.replace("0100007F", "00000000000000000000000001000000");
        let line = line.replace(" 00000000:0000 ", &format!(" {}:0000 ", "0".repeat(32)));
        let socket = raw(Family::Inet6, line.as_bytes()).expect("a socket");
        assert_eq!(socket.local.addr.map(|addr| addr.to_string()).as_deref(), Some("::1"));
    }

    /// Check that truncated lines and lines of the other family are refused.
    #[test]
    fn other_lines_are_refused() {
        assert!(raw(Family::Inet6, LINE.as_bytes()).is_none());
        let inode = LINE.find("12345").expect("it is there");
        for len in 0..inode {
            assert!(raw(Family::Inet, &LINE.as_bytes()[..len]).is_none(), "{len}");
        }
    }

    proptest! {
        /// Check that any line, and any that is nearly valid, can be parsed.
        #[test]
        fn any_line_parses(at in 0..LINE.len(), byte: u8, any in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut line = LINE.as_bytes().to_vec();
            line[at] = byte;
            for family in [Family::Inet, Family::Inet6] {
                let _ = (raw(family, &line), raw(family, &any));
            }
        }
    }
}
