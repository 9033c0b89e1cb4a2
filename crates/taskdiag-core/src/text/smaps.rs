//! The parser of `/proc/PID/smaps_rollup`, and of `/proc/PID/smaps` as a whole.
//!
//! Both have the same lines, `smaps` once for each mapping, so the values of each line are added
//! up. Any bytes are safe to parse.

use zerocopy::IntoBytes as _;

use super::number::kibibytes;
use crate::record::{Rollup, NO_NUMBER};

names! {
    /// The lines, in the order of [`Rollup`].
    SmapsLine:
        Rss Pss Pss_Dirty Pss_Anon Pss_File Pss_Shmem Shared_Clean Shared_Dirty Private_Clean Private_Dirty Referenced
        Anonymous KSM LazyFree AnonHugePages ShmemPmdMapped FilePmdMapped Shared_Hugetlb Private_Hugetlb Swap SwapPss
        Locked
}

const RSS: usize = 0;
const PSS: usize = 1;

/// The maximum length of a line in [`SmapsLine::NAMES`]. Only the lines of mappings with long names are
/// longer.
const MAX_LINE_BYTES: usize = 256;

/// Adds up lines. The text may come in pieces.
#[derive(Debug)]
pub struct Sum {
    bytes: [u64; SmapsLine::NAMES.len()],
    /// Bit `n` is set once a line `SmapsLine::NAMES[n]` was added.
    found: u32,
    /// The start of a line whose end has not arrived.
    partial: Vec<u8>,
    /// The index in [`SmapsLine::NAMES`] that is expected next: the kernel keeps the order.
    next: usize,
    is_empty: bool,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum {
            bytes: [0; SmapsLine::NAMES.len()],
            found: 0,
            partial: Vec::with_capacity(MAX_LINE_BYTES),
            next: 0,
            is_empty: true,
        }
    }
}

impl Sum {
    /// Forgets all added lines.
    pub fn clear(&mut self) {
        self.bytes = [0; SmapsLine::NAMES.len()];
        self.found = 0;
        self.partial.clear();
        self.next = 0;
        self.is_empty = true;
    }

    /// Adds the next piece of the text, which may start and end within a line.
    pub fn add(&mut self, mut text: &[u8]) {
        self.is_empty &= text.is_empty();
        if !self.partial.is_empty() {
            let end = text.iter().position(|&byte| byte == b'\n');
            let rest = &text[..end.unwrap_or(text.len())];
            let room = MAX_LINE_BYTES.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&rest[..rest.len().min(room)]);
            let Some(end) = end else { return };
            let line = std::mem::take(&mut self.partial);
            self.line(&line);
            self.partial = line;
            self.partial.clear();
            text = &text[end + 1..];
        }
        while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
            self.line(&text[..end]);
            text = &text[end + 1..];
        }
        self.partial.extend_from_slice(&text[..text.len().min(MAX_LINE_BYTES)]);
    }

    fn line(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            return;
        };
        let name = &line[..colon];
        let index = match SmapsLine::NAMES.get(self.next) {
            Some(&expected) if expected.as_bytes() == name => self.next,
            _ => match SmapsLine::NAMES.iter().position(|known| known.as_bytes() == name) {
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

    /// Whether no text was added.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    fn has(&self, index: usize) -> bool {
        self.found >> index & 1 != 0
    }

    /// The sums. `None` unless the text had the lines that both files have on all kernels.
    pub fn rollup(&self) -> Option<Rollup> {
        if !(self.has(RSS) && self.has(PSS)) {
            return None;
        }
        let mut rollup = Rollup::default();
        let members = rollup.as_mut_bytes().chunks_exact_mut(size_of::<u64>());
        for (index, member) in members.take(SmapsLine::NAMES.len()).enumerate() {
            let bytes = if self.has(index) { self.bytes[index] } else { NO_NUMBER };
            member.copy_from_slice(&bytes.to_ne_bytes());
        }
        Some(rollup)
    }
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

    /// Check that lines are added up in bytes, that a line that the kernel does not print differs
    /// from a zero, and that other lines do not count.
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

    /// Check that nothing is left after clearing, and which text counts as none.
    #[test]
    fn a_cleared_sum_is_empty() {
        let mut sum = Sum::default();
        assert!(sum.is_empty());
        sum.add(b"");
        assert!(sum.is_empty());
        sum.add(FIRST);
        sum.add(b"");
        sum.add(b"Rss: 1");
        assert!(!sum.is_empty());
        sum.clear();
        assert!(sum.is_empty() && sum.rollup().is_none());
        sum.add(FIRST);
        let once = sum.rollup().expect("a sum");
        assert_eq!((once.rss_bytes.get(), sum.is_empty()), (1812 << 10, false));
    }

    /// Check that other texts have no sum.
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
        // The last line has no newline, so it may be incomplete.
        assert!(sum(&[b"Rss: 4 kB\nPss: 1 kB"]).is_none());
    }

    proptest! {
        /// Check that the sums do not depend on where the text is cut.
        #[test]
        fn pieces_are_the_whole(cuts in proptest::collection::vec(0..1000usize, 0..6)) {
            let text = [FIRST, FIRST, FIRST].concat();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % text.len()).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            prop_assert_eq!(format!("{:?}", sum(&pieces)), format!("{:?}", sum(&[&text])));
        }

        /// Check that any bytes can be added, however long the lines are.
        #[test]
        fn any_bytes_are_added(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 0..6)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let _ = sum(&pieces);
        }
    }
}
