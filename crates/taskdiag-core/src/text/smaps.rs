//! The texts of `smaps_rollup` and `smaps`: bytes in, sums out.
//!
//! Both have the same lines, `smaps` once for each mapping: adding up is all there is to do. Any bytes are fine.

use zerocopy::native_endian::U64;

use crate::record::{Rollup, NO_NUMBER};

/// The lines, in the order of [`Rollup`].
const LINES: [&[u8]; 22] = [
    b"Rss",
    b"Pss",
    b"Pss_Dirty",
    b"Pss_Anon",
    b"Pss_File",
    b"Pss_Shmem",
    b"Shared_Clean",
    b"Shared_Dirty",
    b"Private_Clean",
    b"Private_Dirty",
    b"Referenced",
    b"Anonymous",
    b"KSM",
    b"LazyFree",
    b"AnonHugePages",
    b"ShmemPmdMapped",
    b"FilePmdMapped",
    b"Shared_Hugetlb",
    b"Private_Hugetlb",
    b"Swap",
    b"SwapPss",
    b"Locked",
];

const RSS: usize = 0;
const PSS: usize = 1;

/// Longer lines are the heads of mappings with long names: none of ours.
const LONGEST: usize = 256;

/// Adds up lines as they come.
#[derive(Debug)]
pub struct Sum {
    bytes: [u64; LINES.len()],
    /// Bit `n` is set once there was a line `LINES[n]`.
    found: u32,
    /// The beginning of a line whose end is yet to come.
    begun: Vec<u8>,
    /// Where in [`LINES`] the next line is expected: they keep their order.
    next: usize,
    is_empty: bool,
}

/// Of nothing yet.
impl Default for Sum {
    fn default() -> Sum {
        Sum {
            bytes: [0; LINES.len()],
            found: 0,
            begun: Vec::with_capacity(LONGEST),
            next: 0,
            is_empty: true,
        }
    }
}

impl Sum {
    /// Forgets what was added.
    pub fn clear(&mut self) {
        self.bytes = [0; LINES.len()];
        self.found = 0;
        self.begun.clear();
        self.next = 0;
        self.is_empty = true;
    }

    /// Adds the next piece of the text, which may begin and end anywhere.
    pub fn add(&mut self, mut text: &[u8]) {
        self.is_empty &= text.is_empty();
        if !self.begun.is_empty() {
            let end = text.iter().position(|&byte| byte == b'\n');
            let rest = &text[..end.unwrap_or(text.len())];
            let room = LONGEST.saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&rest[..rest.len().min(room)]);
            let Some(end) = end else { return };
            let line = std::mem::take(&mut self.begun);
            self.line(&line);
            self.begun = line;
            self.begun.clear();
            text = &text[end + 1..];
        }
        while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
            self.line(&text[..end]);
            text = &text[end + 1..];
        }
        self.begun.extend_from_slice(&text[..text.len().min(LONGEST)]);
    }

    fn line(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            return;
        };
        let name = &line[..colon];
        let index = match LINES.get(self.next) {
            Some(&expected) if expected == name => self.next,
            _ => match LINES.iter().position(|&known| known == name) {
                Some(index) => index,
                None => return,
            },
        };
        self.next = index + 1;
        let Some(bytes) = kibibytes(&line[colon + 1..]) else {
            return;
        };
        self.bytes[index] = self.bytes[index].saturating_add(bytes);
        self.found |= 1 << index;
    }

    /// Whether there was no text at all.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The sums; none if the text was not of this kind.
    pub fn rollup(&self) -> Option<Rollup> {
        if self.found & (1 << RSS | 1 << PSS) != 1 << RSS | 1 << PSS {
            return None;
        }
        let line = |index: usize| {
            U64::new(match self.found >> index & 1 {
                0 => NO_NUMBER,
                _ => self.bytes[index],
            })
        };
        let mut index = 0;
        let mut next = || {
            index += 1;
            line(index - 1)
        };
        // Evaluated in this order.
        Some(Rollup {
            rss_bytes: next(),
            pss_bytes: next(),
            pss_dirty_bytes: next(),
            pss_anon_bytes: next(),
            pss_file_bytes: next(),
            pss_shmem_bytes: next(),
            shared_clean_bytes: next(),
            shared_dirty_bytes: next(),
            private_clean_bytes: next(),
            private_dirty_bytes: next(),
            referenced_bytes: next(),
            anonymous_bytes: next(),
            ksm_bytes: next(),
            lazyfree_bytes: next(),
            anon_huge_bytes: next(),
            shmem_huge_bytes: next(),
            file_huge_bytes: next(),
            shared_hugetlb_bytes: next(),
            private_hugetlb_bytes: next(),
            swap_bytes: next(),
            swap_pss_bytes: next(),
            locked_bytes: next(),
            age_ns: U64::new(0),
        })
    }
}

/// The number of bytes that `   12 kB` says.
fn kibibytes(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii().strip_suffix(b" kB")?;
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(digit.into())
    })?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(pieces: &[&[u8]]) -> Option<Rollup> {
        let mut sum = Sum::default();
        pieces.iter().for_each(|piece| sum.add(piece));
        sum.rollup()
    }

    const FIRST: &[u8] = b"5651b9a0a000-7fffed799000 r--p 00000000 00:00 0   /a: 7 kB\nSize:   8 kB\nRss:       1812 kB\n\
        Pss:                 546 kB\nPss_Dirty:           120 kB\nShared_Clean:       1628 kB\nPrivate_Clean:       64 kB\n\
        Private_Dirty:       120 kB\nSwap:                  4 kB\nSwapPss:               2 kB\nLocked:                0 kB\nVmFlags: rd\n";

    /// Check that lines are bytes, that those which the kernel lacks are told apart from zeros, and that others don't count.
    #[test]
    fn lines_are_added_up() {
        let one = sum(&[FIRST]).expect("a sum");
        assert_eq!(one.rss_bytes.get(), 1812 << 10);
        assert_eq!(one.pss_dirty_bytes.get(), 120 << 10);
        assert_eq!(one.locked_bytes.get(), 0);
        assert_eq!(one.pss_anon_bytes.get(), NO_NUMBER);
        let two = sum(&[FIRST, FIRST]).expect("a sum");
        assert_eq!(two.pss_bytes.get(), (2 * 546) << 10);
        assert_eq!(two.swap_pss_bytes.get(), 4 << 10);
    }

    /// Check that what is no rollup is none.
    #[test]
    fn other_texts_have_no_sum() {
        for text in [
            &b""[..],
            b"Rss: 4 kB\n",
            b"Rss: x kB\nPss: 1 kB\n",
            b"Rss: 4\nPss: 4\n",
            b"\xff\n:\n",
        ] {
            assert!(sum(&[text]).is_none(), "{text:?}");
        }
        // A line without an end is not whole.
        assert!(sum(&[b"Rss: 4 kB\nPss: 1 kB"]).is_none());
    }

    proptest! {
        /// Check that it does not matter where the text was cut.
        #[test]
        fn pieces_are_the_whole(cuts in proptest::collection::vec(0..1000usize, 0..6)) {
            let text = [FIRST, FIRST, FIRST].concat();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % text.len()).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            prop_assert_eq!(format!("{:?}", sum(&pieces)), format!("{:?}", sum(&[&text])));
        }

        /// Check that any bytes can be added, however long their lines are.
        #[test]
        fn any_bytes_are_added(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 0..6)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let _ = sum(&pieces);
        }
    }
}
