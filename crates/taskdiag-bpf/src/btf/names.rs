//! Names of types: which ones are wanted, and a fast way to exclude all others.

use super::{Kinds, TypeId};

/// A type to look for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'n> {
    /// Its name, without a `___flavour`.
    pub name: &'n str,
    /// The kinds that it may have.
    pub kinds: Kinds,
}

/// A name without its `___flavour`, which distinguishes several types of a program that stand for
/// one kernel type.
pub fn without_flavour(name: &[u8]) -> &[u8] {
    let is_separator = |window: &[u8]| window[0] != b'_' && &window[1..4] == b"___" && window[4] != b'_';
    match name.windows(5).rposition(is_separator) {
        Some(position) => &name[..=position],
        None => name,
    }
}

/// Whether the name at `offset` is exactly `name`.
pub(super) fn starts_with_name(strings: &[u8], offset: u32, name: &[u8]) -> bool {
    strings
        .get(offset as usize..)
        .and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| rest.first() == Some(&0))
}

/// Excludes names quickly: very few names of a BTF are wanted.
#[derive(Debug)]
pub(super) struct NameFilter<'w> {
    wanted: &'w [Wanted<'w>],
    pub(super) kinds: Kinds,
    /// One bit for each hash of a name's first eight bytes. It is set if a wanted name has that
    /// hash. 512 bytes stay in the first-level cache.
    bits: [u64; FILTER_WORDS],
}

const FILTER_WORDS: usize = 64;

impl<'w> NameFilter<'w> {
    pub(super) fn new(wanted: &'w [Wanted<'w>]) -> Self {
        let mut filter = Self {
            wanted,
            kinds: Kinds::NONE,
            bits: [0; FILTER_WORDS],
        };
        for one in wanted {
            filter.kinds = filter.kinds.union(one.kinds);
            let mut head = [0; 8];
            let len = one.name.len().min(8);
            head[..len].copy_from_slice(&one.name.as_bytes()[..len]);
            let (word, bit) = Self::position(u64::from_le_bytes(head));
            filter.bits[word] |= 1 << bit;
        }
        filter
    }

    /// The word and bit for the first eight bytes of a name.
    fn position(head: u64) -> (usize, u32) {
        let hash = head.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        ((hash >> 6) as usize, (hash & 63) as u32)
    }

    #[inline(always)]
    pub(super) fn may_match(&self, strings: &[u8], name_offset: u32) -> bool {
        let (word, bit) = Self::position(name_head(strings, name_offset as usize));
        self.bits[word] >> bit & 1 != 0
    }

    #[cold]
    pub(super) fn note_matches(
        &self,
        strings: &[u8],
        name_offset: u32,
        kind: u32,
        id: TypeId,
        found: &mut [Vec<TypeId>],
    ) {
        for (one, ids) in self.wanted.iter().zip(found) {
            if one.kinds.has_number(kind) && starts_with_name(strings, name_offset, one.name.as_bytes()) {
                ids.push(id);
            }
        }
    }
}

/// The first eight bytes of a name, followed by zeros if it is shorter.
#[inline(always)]
pub(super) fn name_head(strings: &[u8], offset: usize) -> u64 {
    let head = match strings.get(offset..).and_then(|rest| rest.first_chunk()) {
        Some(head) => u64::from_le_bytes(*head),
        None => {
            let mut head = [0; 8];
            let rest = strings.get(offset..).unwrap_or(&[]);
            head[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(head)
        }
    };
    // The lowest set bit is the top bit of the first zero byte. The bits above it have no meaning.
    let zeros = head.wrapping_sub(0x0101_0101_0101_0101) & !head & 0x8080_8080_8080_8080;
    if zeros == 0 {
        return head;
    }
    let first_zero_byte = (zeros & zeros.wrapping_neg()) >> 7;
    head & (first_zero_byte - 1)
}
