//! Rows of sockets.

use std::io::Write as _;

use taskdiag::sockets::{Address, Endpoint, Family, Queues, Row, Socket, SocketField};
use taskdiag::{Absent, Value};

use crate::output::named::{self, keys_of, OwnedValue, RowKey};
use crate::output::Cell;
use crate::output::{people, text};

/// The keys of a row: [`SocketField::ALL`].
pub const KEYS: [RowKey; SocketField::ALL.len()] = keys_of!(SocketField);

/// The value shown where a field does not apply.
const NONE: &str = "none";

/// The value of a field.
pub fn cell<'a>(row: &'a Row<'a>, field: SocketField) -> Cell<'a> {
    row.value(field).map_err(Absent::as_str)?.ok_or(NONE)
}

/// The value of a field to sort by.
pub fn sorted_by(row: &Row<'_>, field: SocketField) -> Result<OwnedValue, &'static str> {
    Ok(OwnedValue::new(named::sorted_by(cell(row, field)?)?))
}

/// Appends the kind of a socket: the protocol, or the family with type or protocol.
pub fn protocol(out: &mut Vec<u8>, socket: &Socket<'_>) {
    // Writing to memory does not fail.
    let _ = match (socket.family, socket.protocol) {
        (Family::Inet | Family::Inet6, Some(protocol)) => write!(out, "{protocol}"),
        (Family::Netlink, Some(protocol)) => write!(out, "{}/{protocol}", socket.family),
        (family, _) => write!(out, "{family}/{}", socket.socket_type),
    };
}

/// Appends the number of unread bytes; for a listening socket, the number of waiting connections.
pub fn recv_queue(out: &mut Vec<u8>, socket: &Socket<'_>) {
    match socket.queues {
        Ok(Queues::Data { recv_bytes, .. }) => people::number(out, recv_bytes),
        Ok(Queues::Backlog { count, .. }) => people::number(out, count),
        _ => out.push(b'-'),
    }
}

/// Appends the number of unacknowledged bytes; for a listening socket, the maximum number of
/// waiting connections.
pub fn send_queue(out: &mut Vec<u8>, socket: &Socket<'_>) {
    match socket.queues {
        Ok(Queues::Data { send_bytes, .. }) => people::number(out, send_bytes),
        Ok(Queues::Backlog { limit, .. }) => people::number(out, limit),
        _ => out.push(b'-'),
    }
}

/// Appends the local address of a socket.
pub fn local(out: &mut Vec<u8>, row: &Row<'_>, socket: &Socket<'_>) {
    match socket.family {
        Family::Unix => match row.value(SocketField::Path) {
            Ok(Some(Value::Text(path))) => text::escape(out, path),
            _ => out.push(b'*'),
        },
        Family::Netlink => port(out, socket.local.port),
        Family::Packet => match socket.interface {
            Ok(Some(name)) => text::escape(out, name),
            _ => out.push(b'*'),
        },
        _ => {
            // Any address, of IPv4 too.
            match (socket.local.addr, socket.ipv6_only) {
                (Some(Address::Ip(addr)), Ok(Some(false))) if addr.is_unspecified() => out.push(b'*'),
                _ => address(out, socket.local),
            }
            if let Ok(Some(name)) = socket.interface {
                out.push(b'%');
                text::escape(out, name);
            }
            if socket.local.port.is_some() {
                out.push(b':');
                port(out, socket.local.port);
            }
        }
    }
}

/// Appends the peer of a socket; for UNIX sockets, the inode number.
pub fn peer(out: &mut Vec<u8>, socket: &Socket<'_>) {
    match (socket.family, socket.peer_inode) {
        (Family::Unix, Some(inode)) => people::number(out, inode),
        (_, _) if socket.remote.addr.is_some() => {
            address(out, socket.remote);
            if socket.remote.port.is_some() {
                out.push(b':');
                port(out, socket.remote.port);
            }
        }
        _ => match socket.remote.port {
            Some(number) => people::number(out, number),
            None => out.push(b'*'),
        },
    }
}

fn address(out: &mut Vec<u8>, end: Endpoint) {
    let Some(addr) = end.addr else {
        out.push(b'*');
        return;
    };
    let begin = out.len();
    // Writing to memory does not fail.
    let _ = write!(out, "{addr}");
    if out[begin..].contains(&b':') {
        out.insert(begin, b'[');
        out.push(b']');
    }
}

/// Appends a duration: short ones in milliseconds, others in whole seconds.
pub fn duration(out: &mut Vec<u8>, ns: u64) {
    const SECOND: u64 = 1_000_000_000;
    // Writing to memory does not fail.
    let _ = if ns < SECOND {
        write!(out, "{}.{:03}ms", ns / 1_000_000, ns / 1000 % 1000)
    } else {
        write!(out, "{}s", ns / SECOND)
    };
}

/// Appends a port; 0 means any.
fn port(out: &mut Vec<u8>, port: Option<u32>) {
    match port {
        Some(0) | None => out.push(b'*'),
        Some(number) => people::number(out, number),
    }
}

/// A kept value, for comparison.
pub fn kept_cell<'a>(kept: &'a Result<OwnedValue, &'static str>) -> Cell<'a> {
    kept.as_ref().map(OwnedValue::value).map_err(|reason| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each field has a key at the same index.
    #[test]
    fn keys_are_fields() {
        for (index, field) in SocketField::ALL.iter().enumerate() {
            assert_eq!((KEYS[index].name, *field as usize), (field.name(), index));
        }
    }
}
