//! Addresses and networks of IP. IPv4 within IPv6, as in the addresses of clients of a socket that
//! takes both, counts as IPv4.

use std::net::IpAddr;
use std::str::{from_utf8, FromStr as _};

use super::comparison::{Operand, Relation};

/// Where IPv4 begins in an IPv6 address that has it.
const MAPPED: u32 = 96;

/// A network: an address, and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    first: IpAddr,
    bits: u32,
}

/// The operand that the text of an address or network stands for. The number of a machine (vsock(7))
/// is compared as text.
pub(super) fn operand(text: &[u8]) -> Option<Operand> {
    if text.iter().all(u8::is_ascii_digit) && !text.is_empty() {
        return Some(Operand::Text(text.to_vec()));
    }
    let text = from_utf8(text).ok()?;
    let (addr, bits) = text
        .split_once('/')
        .map_or((text, None), |(addr, bits)| (addr, Some(bits)));
    let (addr, bits) = (IpAddr::from_str(addr).ok()?, bits.map(u32::from_str).transpose().ok()?);
    let longest = word(addr).1;
    let bits = bits.unwrap_or(longest);
    if bits > longest {
        return None;
    }
    Some(Operand::Network(match addr.to_canonical() {
        first @ IpAddr::V4(_) if addr.is_ipv6() && bits >= MAPPED => Network {
            first,
            bits: bits - MAPPED,
        },
        _ => Network { first: addr, bits },
    }))
}

/// The bits of an address, and how many there are.
fn word(addr: IpAddr) -> (u128, u32) {
    match addr {
        IpAddr::V4(addr) => (addr.to_bits().into(), u32::BITS),
        IpAddr::V6(addr) => (addr.to_bits(), u128::BITS),
    }
}

impl Network {
    fn has(self, addr: IpAddr) -> bool {
        let ((first, len), (addr, other)) = (word(self.first), word(addr));
        len == other && (first ^ addr).checked_shr(len - self.bits).unwrap_or(0) == 0
    }

    /// Whether the relation holds for the text of an address. It is equal to a network that has it.
    pub(super) fn relates(self, relation: Relation, text: &[u8]) -> Option<bool> {
        let addr = from_utf8(text).ok().and_then(|text| IpAddr::from_str(text).ok());
        let has = addr.is_some_and(|addr| self.has(addr) || self.has(addr.to_canonical()));
        match relation {
            Relation::Equal => Some(has),
            Relation::NotEqual => Some(!has),
            relation => Some(relation.holds(&addr?.to_canonical(), &self.first)),
        }
    }
}
