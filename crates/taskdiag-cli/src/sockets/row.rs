//! Rows of sockets.

use std::io::Write as _;

use taskdiag::sockets::{Family, Row as SocketRow, SocketField};
use taskdiag::{Absent, Value};

use crate::output::listing::{CompositeCell, ListingColumn};
use crate::output::relation::{columns_of, Cell, ColumnInfo, Row};
use crate::output::table::Align;
use crate::output::{people, text};

/// The columns of a row: [`SocketField::ALL`].
pub const RELATION: [ColumnInfo; SocketField::ALL.len()] = columns_of!(SocketField::ALL);

impl Row for SocketRow<'_> {
    fn cell(&self, column: usize) -> Cell<'_> {
        self.value(SocketField::ALL[column]).map_err(Absent::as_str)
    }
}

/// The column of a field, with its name as heading.
pub fn shown(column: usize) -> ListingColumn {
    ListingColumn::column(RELATION[column].name, column)
}

/// The column of a field under another heading.
pub const fn shown_as(heading: &'static str, field: SocketField) -> ListingColumn {
    ListingColumn::column(heading, field as usize)
}

fn cell(row: &dyn Row, field: SocketField) -> Cell<'_> {
    row.cell(field as usize)
}

fn is_of(row: &dyn Row, family: Family) -> bool {
    cell(row, SocketField::Family) == Ok(Value::Text(family.name().as_bytes()))
}

/// Appends a text, escaped, or a number.
fn write(out: &mut Vec<u8>, value: Cell<'_>) {
    match value {
        Ok(Value::Text(bytes)) => text::escape(out, bytes),
        Ok(Value::Unsigned(number)) => people::number(out, number),
        _ => out.push(b'*'),
    }
}

const FAMILY: usize = SocketField::Family as usize;

/// The protocol, or the family with type or protocol.
pub static PROTOCOL: CompositeCell = CompositeCell {
    align: Align::Left,
    needs: &[FAMILY, SocketField::Protocol as usize, SocketField::Type as usize],
    write: |out, row, _| {
        let protocol = cell(row, SocketField::Protocol);
        let is_ip = is_of(row, Family::Inet) || is_of(row, Family::Inet6);
        if is_ip && protocol.is_ok() {
            return write(out, protocol);
        }
        write(out, row.cell(FAMILY));
        out.push(b'/');
        let is_netlink = is_of(row, Family::Netlink) && protocol.is_ok();
        write(
            out,
            if is_netlink {
                protocol
            } else {
                cell(row, SocketField::Type)
            },
        );
    },
};

/// The receive queue: unread bytes; for a listening socket, the number of waiting connections.
pub static RECV_QUEUE: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[SocketField::RecvQueueBytes as usize, SocketField::BacklogCount as usize],
    write: |out, row, _| queue(out, row, SocketField::RecvQueueBytes, SocketField::BacklogCount),
};

/// The send queue: unacknowledged bytes; for a listening socket, the maximum number of waiting
/// connections.
pub static SEND_QUEUE: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[
        SocketField::SendQueueBytes as usize,
        SocketField::BacklogLimitCount as usize,
    ],
    write: |out, row, _| queue(out, row, SocketField::SendQueueBytes, SocketField::BacklogLimitCount),
};

fn queue(out: &mut Vec<u8>, row: &dyn Row, data: SocketField, backlog: SocketField) {
    match cell(row, data).or(cell(row, backlog)) {
        Ok(Value::Unsigned(number)) => people::number(out, number),
        _ => out.push(b'-'),
    }
}

/// The local address.
pub static LOCAL: CompositeCell = CompositeCell {
    align: Align::Left,
    needs: &[
        FAMILY,
        SocketField::Path as usize,
        SocketField::Interface as usize,
        SocketField::LocalAddr as usize,
        SocketField::LocalPort as usize,
        SocketField::Ipv6Only as usize,
    ],
    write: |out, row, _| {
        let interface = cell(row, SocketField::Interface);
        if is_of(row, Family::Unix) {
            return write(out, cell(row, SocketField::Path));
        }
        if is_of(row, Family::Netlink) {
            return port(out, cell(row, SocketField::LocalPort));
        }
        if is_of(row, Family::Packet) {
            return write(out, interface);
        }
        let addr = cell(row, SocketField::LocalAddr);
        // Any address, of IPv4 too.
        let takes_both = cell(row, SocketField::Ipv6Only) == Ok(Value::Flag(false));
        if takes_both && addr == Ok(Value::Text(b"::")) {
            out.push(b'*');
        } else {
            address(out, addr);
        }
        if interface.is_ok() {
            out.push(b'%');
            write(out, interface);
        }
        if let local @ Ok(_) = cell(row, SocketField::LocalPort) {
            out.push(b':');
            port(out, local);
        }
    },
};

/// The peer's address; for UNIX sockets, the inode number.
pub static PEER: CompositeCell = CompositeCell {
    align: Align::Left,
    needs: &[
        FAMILY,
        SocketField::PeerInode as usize,
        SocketField::RemoteAddr as usize,
        SocketField::RemotePort as usize,
    ],
    write: |out, row, _| {
        let (addr, remote) = (cell(row, SocketField::RemoteAddr), cell(row, SocketField::RemotePort));
        match cell(row, SocketField::PeerInode) {
            Ok(inode) if is_of(row, Family::Unix) => write(out, Ok(inode)),
            _ if addr.is_ok() => {
                address(out, addr);
                if remote.is_ok() {
                    out.push(b':');
                    port(out, remote);
                }
            }
            _ => write(out, remote),
        }
    },
};

/// Appends an address, in brackets if it has colons.
fn address(out: &mut Vec<u8>, addr: Cell<'_>) {
    let begin = out.len();
    match addr {
        Ok(Value::Text(addr)) => out.extend_from_slice(addr),
        Ok(other) => drop(write!(out, "{other}")),
        Err(_) => out.push(b'*'),
    }
    if out[begin..].contains(&b':') {
        out.insert(begin, b'[');
        out.push(b']');
    }
}

/// Appends a port; 0 means any.
fn port(out: &mut Vec<u8>, port: Cell<'_>) {
    match port {
        Ok(Value::Unsigned(number @ 1..)) => people::number(out, number),
        _ => out.push(b'*'),
    }
}

/// The columns whose values only TCP has, in the table of `--info`.
pub const INFO: [ListingColumn; 5] = [
    shown_as("RTT", SocketField::RttNs),
    shown_as("CWND", SocketField::CwndCount),
    shown_as("RETRANS", SocketField::RetransmittedCount),
    shown_as("SENT", SocketField::SentBytes),
    shown_as("RECEIVED", SocketField::ReceivedBytes),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each field has a column at the same index.
    #[test]
    fn columns_are_fields() {
        for (index, field) in SocketField::ALL.iter().enumerate() {
            assert_eq!((RELATION[index].name, *field as usize), (field.name(), index));
        }
    }

    /// Check that an address with colons is in brackets, and that port 0 is any.
    #[test]
    fn addresses_are_told_from_ports() {
        let written = |addr: &'static str, number| {
            let mut out = Vec::new();
            address(&mut out, Ok(Value::Text(addr.as_bytes())));
            port(&mut out, Ok(Value::Unsigned(number)));
            String::from_utf8(out).expect("text")
        };
        assert_eq!(written("::1", 80), "[::1]80");
        assert_eq!(written("127.0.0.1", 0), "127.0.0.1*");
    }
}
