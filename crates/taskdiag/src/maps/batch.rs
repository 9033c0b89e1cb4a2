//! Lists of mappings and batches of look-ups, built from the look-ups of any source. No I/O of its
//! own.

use taskdiag_core::error::{Error, ErrorKind, Result};

use super::{Filter, Mapping, Mappings};

/// Looks up mappings by ascending address.
pub(super) trait Cursor {
    /// The first mapping that passes `filter` and ends above `address`. Addresses must not decrease
    /// from call to call.
    fn seek(&mut self, address: u64, filter: Filter) -> Result<Option<Mapping<'_>>>;
}

/// Calls `each` with all mappings that pass `filter`.
///
/// While a process runs, its mappings grow and merge, so the next mapping may start before the end
/// of the last one. The part that was listed already is cut off, so that no address is listed
/// twice.
pub(super) fn walk(cursor: &mut dyn Cursor, filter: Filter, mut each: impl FnMut(&Mapping<'_>)) -> Result<()> {
    let mut from = 0;
    while let Some(mut mapping) = cursor.seek(from, filter)? {
        if !cut(&mut mapping, from) {
            return Err(Error::new(ErrorKind::Malformed, "mappings that are not in order"));
        }
        from = mapping.end;
        each(&mapping);
    }
    Ok(())
}

/// Cuts off the part of a mapping before `from`. False if nothing is left.
pub(super) fn cut(mapping: &mut Mapping<'_>, from: u64) -> bool {
    if mapping.start < from {
        if mapping.is_file_backed() {
            mapping.offset_bytes = mapping.offset_bytes.wrapping_add(from - mapping.start);
        }
        mapping.start = from;
    }
    mapping.start < mapping.end
}

/// The pages of some addresses. Mappings consist of whole pages, so all addresses of a page have
/// the same mapping.
#[derive(Debug)]
pub(super) struct Pages {
    /// Their first addresses, ascending, each once.
    starts: Vec<u64>,
    /// The page of each address, in the order given.
    of: Vec<u32>,
}

/// The number of bits of an address that are its offset in its page.
fn page_shift() -> u32 {
    rustix::param::page_size().trailing_zeros()
}

impl Pages {
    pub(super) fn new(addresses: &[u64]) -> Pages {
        let mut order: Vec<(u64, u32)> = addresses.iter().copied().zip(0..).collect();
        order.sort_unstable_by_key(|&(address, _)| address);
        let mut starts: Vec<u64> = Vec::new();
        let mut of = vec![0; addresses.len()];
        let page_shift = page_shift();
        for (address, index) in order {
            let start = address >> page_shift << page_shift;
            if starts.last() != Some(&start) {
                starts.push(start);
            }
            of[index as usize] = starts.len() as u32 - 1;
        }
        Pages { starts, of }
    }

    /// Their first addresses, ascending.
    pub(super) fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// The mapping of each address, in the order given, as an index into `found`, which has the
    /// mappings of the pages, sorted.
    pub(super) fn places(&self, found: &Mappings) -> Vec<Option<usize>> {
        let mut next = 0;
        let places: Vec<Option<usize>> = self
            .starts
            .iter()
            .map(|&start| {
                while next < found.len() && found.get(next).end <= start {
                    next += 1;
                }
                (next < found.len() && found.get(next).start <= start).then_some(next)
            })
            .collect();
        self.of.iter().map(|&page| places[page as usize]).collect()
    }
}

/// Appends the mappings of some sorted addresses to `found`, each once.
///
/// Needs one look-up for each mapping, and at most one for all addresses above the last mapping: a
/// look-up in a gap returns the mapping above the gap, and so answers for all addresses up to its
/// end.
pub(super) fn resolve(cursor: &mut dyn Cursor, addresses: &[u64], pid: u32, found: &mut Mappings) -> Result<()> {
    // The mapping that was looked up last, which is the last of `found`, and whether an address is
    // in it.
    let (mut start, mut end, mut is_hit) = (0, 0, true);
    for &address in addresses {
        if address >= end {
            if !is_hit {
                found.truncate(found.len() - 1);
                is_hit = true;
            }
            let Some(mapping) = cursor.seek(address, Filter::default())? else {
                break;
            };
            (start, end, is_hit) = (mapping.start, mapping.end, false);
            found.push(pid, &mapping);
        }
        is_hit |= (start..end).contains(&address);
    }
    if !is_hit {
        found.truncate(found.len() - 1);
    }
    Ok(())
}

/// Looks up mappings in a list.
#[derive(Debug)]
pub(super) struct ListCursor<'a> {
    list: &'a Mappings,
    next: usize,
}

impl<'a> ListCursor<'a> {
    pub(super) fn new(list: &'a Mappings) -> ListCursor<'a> {
        ListCursor { list, next: 0 }
    }
}

impl Cursor for ListCursor<'_> {
    fn seek(&mut self, address: u64, filter: Filter) -> Result<Option<Mapping<'_>>> {
        while self.next < self.list.len() {
            let mapping = self.list.get(self.next);
            if mapping.end > address && mapping.passes(filter) {
                return Ok(Some(mapping));
            }
            self.next += 1;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::mapping;
    use super::*;
    use taskdiag_core::snapshot::SourceId;

    /// Counts look-ups.
    struct Counting<'a>(ListCursor<'a>, usize);

    impl Cursor for Counting<'_> {
        fn seek(&mut self, address: u64, filter: Filter) -> Result<Option<Mapping<'_>>> {
            self.1 += 1;
            self.0.seek(address, filter)
        }
    }

    /// Ranges of pages from page `at` on, with a gap before each.
    fn ranges(mut at: u64, steps: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let range = |&(gap, len): &(u64, u64)| {
            let start = at + gap;
            at = start + len;
            (start << page_shift(), at << page_shift())
        };
        steps.iter().map(range).collect()
    }

    fn list(ranges: &[(u64, u64)]) -> Mappings {
        let mut list = Mappings::new(SourceId::Procfs);
        for &(start, end) in ranges {
            list.push(7, &mapping(start, end, b"/a"));
        }
        list
    }

    /// Check that no address is listed twice if mappings have merged meanwhile, and that offsets
    /// fit.
    #[test]
    fn joined_mappings_are_cut() {
        let list = list(&[(0x1000, 0x3000), (0x2000, 0x5000), (0x5000, 0x6000)]);
        let mut met = Vec::new();
        walk(&mut ListCursor::new(&list), Filter::default(), |mapping| {
            met.push((mapping.start, mapping.end, mapping.offset_bytes));
        })
        .expect("in order");
        assert_eq!(
            met,
            [
                (0x1000, 0x3000, 0x1000),
                (0x3000, 0x5000, 0x3000),
                (0x5000, 0x6000, 0x5000)
            ]
        );
    }

    proptest! {
        /// Check that each address gets its mapping, in any order and number, with at most one
        /// look-up for each mapping, and one more.
        #[test]
        fn addresses_meet_their_mappings(
            steps in prop::collection::vec((0..4_u64, 1..4_u64), 0..20),
            addresses in prop::collection::vec(0..100_u64 << page_shift(), 0..60),
        ) {
            let ranges = ranges(3, &steps);
            let list = list(&ranges);
            let mut cursor = Counting(ListCursor::new(&list), 0);
            let mut found = Mappings::new(SourceId::Procfs);
            let pages = Pages::new(&addresses);
            resolve(&mut cursor, pages.starts(), 7, &mut found).expect("no I/O");
            let places = pages.places(&found);
            prop_assert_eq!(places.len(), addresses.len());
            for (&address, place) in addresses.iter().zip(&places) {
                let covering = ranges.iter().copied().find(|&(start, end)| (start..end).contains(&address));
                let met = place.map(|index| (found.get(index).start, found.get(index).end));
                prop_assert_eq!(met, covering);
            }
            let met: Vec<u64> = found.iter().map(|mapping| mapping.start).collect();
            prop_assert!(met.is_sorted_by(|a, b| a < b));
            prop_assert!((0..found.len()).all(|index| places.contains(&Some(index))));
            prop_assert!(cursor.1 <= ranges.len() + 1);
        }

        /// Check that pages are ascending, each once, and lead each address to its mapping.
        #[test]
        fn pages_stand_for_their_addresses(
            steps in prop::collection::vec((0..3_u64, 1..4_u64), 0..20),
            addresses in prop::collection::vec(0..0x50_000_u64, 0..200),
        ) {
            let ranges = ranges(0, &steps);
            let list = list(&ranges);
            let pages = Pages::new(&addresses);
            prop_assert!(pages.starts.is_sorted_by(|a, b| a < b));
            for (&address, place) in addresses.iter().zip(pages.places(&list)) {
                prop_assert_eq!(place, ranges.iter().position(|&(start, end)| (start..end).contains(&address)));
            }
        }
    }

    proptest! {
        /// Check that pages are found for any addresses, including none, the first and the last.
        #[test]
        fn any_addresses_have_pages(addresses: Vec<u64>) {
            let pages = Pages::new(&addresses);
            for (&address, &page) in addresses.iter().zip(&pages.of) {
                prop_assert_eq!(pages.starts[page as usize], address >> page_shift() << page_shift());
            }
        }
    }
}
