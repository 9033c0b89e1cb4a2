//! Walks and batches of look-ups over whatever gives mappings by address. No I/O of its own.

use super::{Filter, Mapping, Mappings};
use crate::error::{Error, ErrorKind, Result};

/// Gives mappings by ascending address.
pub(super) trait Cursor {
    /// The first mapping that passes `filter` and ends behind `address`. No call has a lower address than the one before.
    fn seek(&mut self, address: u64, filter: Filter) -> Result<Option<Mapping<'_>>>;
}

/// Gives all mappings that pass `filter` to `each`.
///
/// While a process is at work its mappings grow and join: the next one may then begin before the end of the last. What was given
/// already is cut off, so that no address comes twice.
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

/// Cuts off what of a mapping lies before `from`; false if nothing is left.
pub(super) fn cut(mapping: &mut Mapping<'_>, from: u64) -> bool {
    if mapping.start < from {
        if mapping.is_file_backed() {
            mapping.offset_bytes = mapping.offset_bytes.wrapping_add(from - mapping.start);
        }
        mapping.start = from;
    }
    mapping.start < mapping.end
}

/// Finds for each address, in the order given, the mapping that covers it: an index into `found`, which gets each mapping that
/// is met once.
///
/// There is one look-up for each mapping, and one at most for all addresses behind the last: a look-up in a gap gives the mapping
/// behind the gap, and so the answer for all addresses up to its end.
pub(super) fn resolve(
    cursor: &mut dyn Cursor,
    addresses: &[u64],
    pid: u32,
    found: &mut Mappings,
) -> Result<Vec<Option<usize>>> {
    let mut places = vec![None; addresses.len()];
    let mut order: Vec<u32> = Vec::new();
    if !addresses.is_sorted() {
        order.extend(0..addresses.len() as u32);
        order.sort_unstable_by_key(|&index| addresses[index as usize]);
    }
    // The mapping that was looked up last, which is the last of `found`, and whether any address was in it.
    let (mut start, mut end, mut is_met) = (0, 0, true);
    for turn in 0..addresses.len() {
        let index = order.get(turn).map_or(turn, |&index| index as usize);
        let address = addresses[index];
        if address >= end {
            if !is_met {
                found.truncate(found.len() - 1);
                is_met = true;
            }
            let Some(mapping) = cursor.seek(address, Filter::empty())? else {
                break;
            };
            (start, end, is_met) = (mapping.start, mapping.end, false);
            found.push(pid, &mapping);
        }
        if (start..end).contains(&address) {
            places[index] = Some(found.len() - 1);
            is_met = true;
        }
    }
    if !is_met {
        found.truncate(found.len() - 1);
    }
    Ok(places)
}

/// Mappings in memory.
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
    use super::super::Source;
    use super::*;

    /// Counts the look-ups.
    struct Counting<'a>(ListCursor<'a>, usize);

    impl Cursor for Counting<'_> {
        fn seek(&mut self, address: u64, filter: Filter) -> Result<Option<Mapping<'_>>> {
            self.1 += 1;
            self.0.seek(address, filter)
        }
    }

    fn list(ranges: &[(u64, u64)]) -> Mappings {
        let mut list = Mappings::new(Source::Procfs);
        for &(start, end) in ranges {
            list.push(7, &mapping(start, end, b"/a"));
        }
        list
    }

    /// Check that a walk gives no address twice where mappings have joined under it, and that offsets follow.
    #[test]
    fn joined_mappings_are_cut() {
        let list = list(&[(0x1000, 0x3000), (0x2000, 0x5000), (0x5000, 0x6000)]);
        let mut met = Vec::new();
        walk(&mut ListCursor::new(&list), Filter::empty(), |mapping| {
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
        /// Check that each address gets the mapping that covers it, in any order and number, with one look-up for each mapping at
        /// most and one more.
        #[test]
        fn addresses_meet_their_mappings(
            steps in prop::collection::vec((0..4_u64, 1..4_u64), 0..20),
            addresses in prop::collection::vec(0..100_u64, 0..60),
        ) {
            let mut ranges = Vec::new();
            let mut at = 3;
            for (gap, len) in steps {
                ranges.push((at + gap, at + gap + len));
                at += gap + len;
            }
            let list = list(&ranges);
            let mut cursor = Counting(ListCursor::new(&list), 0);
            let mut found = Mappings::new(Source::Procfs);
            let places = resolve(&mut cursor, &addresses, 7, &mut found).expect("no I/O");
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
    }
}
