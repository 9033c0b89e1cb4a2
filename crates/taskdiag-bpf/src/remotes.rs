//! Counts what goes to other machines, and comes from them, by the other end.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;

use taskdiag_core::error::{Error, Result};
use taskdiag_core::identity::Identity;
use taskdiag_sys::bpf::{Map, MapFlags, MapKind, MapSpec};
use zerocopy::big_endian;
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout};

use crate::load::{attach_to_tracepoints, not_created};
use crate::network::{check_loading, load};

/// The name of the table in the programs.
const TABLE: &str = "remotes";

/// The maximum number of other ends. What goes to others is only counted as calls.
const MAX_REMOTES: u32 = 1 << 18;

/// `struct remote_key`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Key {
    start_ns: U64,
    pid: U32,
    protocol: U16,
    port: big_endian::U16,
    address: [u8; 16],
}

/// `struct remote`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Totals {
    sent_bytes: U64,
    received_bytes: U64,
    parts: U64,
    uncounted: U64,
}

/// What tells the other ends apart, besides the protocol. The fewer, the more of them there is room
/// for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteParts {
    /// The process at this end.
    pub process: bool,
    /// The address.
    pub address: bool,
    /// The port.
    pub port: bool,
}

/// Payload to one other end, and from it, since counting began. A part that does not tell the other
/// ends apart is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The process at this end.
    pub process: Option<Identity>,
    /// The number of the protocol (protocols(5)).
    pub protocol: u16,
    /// The address, of IPv4 as IPv6 maps it. Unspecified, if the socket is not connected.
    pub address: Option<Ipv6Addr>,
    /// The port; 0, if the socket is not connected or the protocol has no ports.
    pub port: Option<u16>,
    /// Sent, in bytes.
    pub sent_bytes: u64,
    /// Received, in bytes.
    pub received_bytes: u64,
}

/// The attached programs and their table: they count until this is dropped.
#[derive(Debug)]
pub struct Remotes {
    table: Map,
    parts: RemoteParts,
    _links: Vec<OwnedFd>,
}

impl Remotes {
    /// Begins to count (Linux 6.3).
    ///
    /// # Errors
    ///
    /// [`Denied`](taskdiag_core::error::ErrorKind::Denied) without `CAP_BPF` and `CAP_PERFMON`,
    /// [`Unsupported`](taskdiag_core::error::ErrorKind::Unsupported) if the kernel has no tracepoints
    /// for it.
    pub fn count(parts: RemoteParts) -> Result<Remotes> {
        check_loading()?;
        let table = Map::create(&MapSpec {
            kind: MapKind::Hash,
            name: TABLE,
            key_size: size_of::<Key>() as u32,
            value_size: size_of::<Totals>() as u32,
            max_entries: MAX_REMOTES,
            flags: MapFlags::NO_PREALLOCATION,
        });
        let table = table.map_err(not_created)?;
        let bits = [(parts.process, 1), (parts.address, 2), (parts.port, 4)];
        let mut about = Totals::new_zeroed();
        about.parts = bits
            .into_iter()
            .map(|(is_wanted, bit)| u64::from(is_wanted) * bit)
            .sum::<u64>()
            .into();
        table
            .update(Key::new_zeroed().as_bytes(), about.as_bytes())
            .map_err(not_created)?;
        let programs = ["on_send_to_remote", "on_receive_from_remote"];
        let links = attach_to_tracepoints(&load((TABLE, &table), programs.into_iter())?)?;
        Ok(Remotes {
            table,
            parts,
            _links: links,
        })
    }

    /// What was counted, and the number of calls for whose other end there was no room.
    ///
    /// # Errors
    ///
    /// [`System`](taskdiag_core::error::ErrorKind::System) if the table can't be read.
    pub fn read(&self) -> Result<(Vec<Remote>, u64)> {
        self.entries().map_err(|error| Error::io("reading a BPF map", error))
    }

    fn entries(&self) -> io::Result<(Vec<Remote>, u64)> {
        let offset_ns = own_boottime_ns();
        let (mut remotes, mut uncounted, mut bytes) = (Vec::new(), 0, None);
        while self.table.next_key(&mut bytes)? {
            let key_bytes = bytes.as_deref().unwrap_or_default();
            let mut totals = Totals::new_zeroed();
            if !self.table.lookup(key_bytes, totals.as_mut_bytes())? {
                continue;
            }
            let Ok(key) = Key::read_from_bytes(key_bytes) else {
                continue;
            };
            if key.protocol.get() == 0 {
                uncounted = totals.uncounted.get();
                continue;
            }
            let RemoteParts { process, address, port } = self.parts;
            remotes.push(Remote {
                process: process
                    .then(|| Identity::new(key.pid.get(), key.start_ns.get().wrapping_add_signed(offset_ns))),
                protocol: key.protocol.get(),
                address: address.then(|| key.address.into()),
                port: port.then(|| key.port.get()),
                sent_bytes: totals.sent_bytes.get(),
                received_bytes: totals.received_bytes.get(),
            });
        }
        Ok((remotes, uncounted))
    }
}

/// What this process's time namespace adds to times from boot (time_namespaces(7)).
fn own_boottime_ns() -> i64 {
    let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = line.unwrap_or_default().split_ascii_whitespace().map(str::parse::<i64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(seconds)), Some(Ok(ns))) => seconds.saturating_mul(1_000_000_000).saturating_add(ns),
        _ => 0,
    }
}
