//! Rows that change over time: the changes between two samples, column by column.

use crate::coder::Coder;
use crate::{Damage, MAX_VALUES};

/// A row: one number per column.
pub type Numbers = Box<[u64]>;

/// A table. Each row has a slot, a small number that is reused after the row is removed.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Option<Numbers>>,
    /// The last new row. The next one probably resembles it.
    latest: Numbers,
}

/// Changes to a table. Slots are in ascending order.
#[derive(Debug, Default)]
pub struct Changes {
    /// Rows to remove.
    pub ended: Vec<u32>,
    /// Rows with new values.
    pub changed: Vec<(u32, Numbers)>,
    /// Rows for free slots.
    pub new: Vec<(u32, Numbers)>,
}

/// A kernel has fewer process ids than this.
const MAX_SLOTS: usize = 1 << 22;

const TOO_MANY: &str = "there are more processes than any kernel has";

impl Table {
    /// An empty table with so many columns.
    pub(crate) fn new(columns: usize) -> Table {
        Table {
            rows: Vec::new(),
            latest: vec![0; columns].into(),
        }
    }

    /// The row in a slot.
    pub fn row(&self, slot: u32) -> Option<&Numbers> {
        self.rows.get(slot as usize)?.as_ref()
    }

    /// All rows, by slot.
    pub fn rows(&self) -> impl Iterator<Item = &Numbers> {
        self.rows.iter().flatten()
    }

    /// Codes changes, and applies them. When decoding, there are none yet. If they are invalid, the
    /// table may be partly changed, and the segment cannot be read further.
    pub(crate) fn code(&mut self, mut changes: Changes, coder: &mut impl Coder) -> Result<(), Damage> {
        code_slots(&mut changes.ended, coder)?;
        for slot in changes.ended {
            let row = self.rows.get_mut(slot as usize).and_then(Option::take);
            row.ok_or(Damage("a process ends that is not there"))?;
        }
        self.code_rows(changes.changed, coder)?;
        self.code_rows(changes.new, coder)
    }

    /// Codes rows. A row is probably like the one in its slot. If there is none, it is new, and
    /// probably like the new row before it.
    fn code_rows(&mut self, changes: Vec<(u32, Numbers)>, coder: &mut impl Coder) -> Result<(), Damage> {
        let columns = self.latest.len();
        let (mut slots, mut rows): (Vec<u32>, Vec<Numbers>) = changes.into_iter().unzip();
        code_slots(&mut slots, coder)?;
        let before: Vec<Option<&Numbers>> = slots.iter().map(|&slot| self.row(slot)).collect();
        let new_count = before.iter().filter(|row| row.is_none()).count();
        if (self.rows().count() + new_count).saturating_mul(columns) > MAX_VALUES {
            return Err(Damage("there are more processes than can be recorded"));
        }
        rows.resize(slots.len(), vec![0; columns].into());
        for column in 0..columns {
            let mut latest = self.latest[column];
            for (row, before) in rows.iter_mut().zip(&before) {
                coder.near(&mut row[column], before.map_or(latest, |before| before[column]))?;
                if before.is_none() {
                    latest = row[column];
                }
            }
        }
        for (slot, row) in slots.into_iter().zip(rows) {
            let slot = slot as usize;
            if slot >= self.rows.len() {
                self.rows.resize(slot + 1, None);
            }
            if self.rows[slot].is_none() {
                self.latest.clone_from(&row);
            }
            self.rows[slot] = Some(row);
        }
        Ok(())
    }
}

/// Codes ascending slots.
fn code_slots(slots: &mut Vec<u32>, coder: &mut impl Coder) -> Result<(), Damage> {
    slots.resize(coder.count(slots.len(), MAX_SLOTS, TOO_MANY)?, 0);
    let mut next = 0;
    for slot in slots {
        let step = coder.number(u64::from(*slot).wrapping_sub(next))?;
        let at = next.saturating_add(step);
        if at >= MAX_SLOTS as u64 {
            return Err(Damage(TOO_MANY));
        }
        *slot = at as u32;
        next = at + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::coder::{Reader, Writer};
    use crate::varint::Input;

    const COLUMNS: usize = 5;

    fn encode(table: &mut Table, changes: Changes) -> Vec<u8> {
        let mut coder = Writer::default();
        table.code(changes, &mut coder).expect("they are valid");
        coder.finish()
    }

    /// The changes that make the table match: for each slot, no row or these values.
    fn step(table: &Table, wanted: &[Option<[u64; COLUMNS]>]) -> Changes {
        let mut changes = Changes::default();
        for (slot, wanted) in wanted.iter().enumerate() {
            let slot = slot as u32;
            match (table.row(slot), wanted) {
                (Some(_), None) => changes.ended.push(slot),
                (Some(row), Some(wanted)) if **row != wanted[..] => changes.changed.push((slot, wanted[..].into())),
                (None, Some(wanted)) => changes.new.push((slot, wanted[..].into())),
                _ => {}
            }
        }
        changes
    }

    fn value() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..3_u64,
            Just(u64::MAX),
            Just(1 << 63),
            any::<u64>(),
            (0..9_u64).prop_map(|pages| pages << 12)
        ]
    }

    proptest! {
        /// Check that every step survives encoding and decoding, with values of any size, and
        /// reused slots.
        #[test]
        fn steps_come_back(steps in proptest::collection::vec(
            proptest::collection::vec(proptest::option::of(proptest::array::uniform5(value())), 20), 1..6))
        {
            let (mut written, mut read) = (Table::new(COLUMNS), Table::new(COLUMNS));
            for wanted in &steps {
                let changes = step(&written, wanted);
                let out = encode(&mut written, changes);
                prop_assert_eq!(read.code(Changes::default(), &mut Reader::new(Input(&out))), Ok(()));
                let rows: Vec<Numbers> = wanted.iter().flatten().map(|row| row[..].into()).collect();
                prop_assert_eq!(read.rows().cloned().collect::<Vec<_>>(), rows);
            }
        }

        /// Check that arbitrary bytes are decoded or refused.
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut table = Table::new(COLUMNS);
            let mut coder = Reader::new(Input(&bytes));
            // Zeros may go on for very long.
            let mut samples = 0..100;
            while samples.next().is_some() && table.code(Changes::default(), &mut coder).is_ok() {}
            prop_assert!(table.rows().count() * COLUMNS <= MAX_VALUES);
        }
    }

    /// Check that unchanged rows take no bytes, and a row that changes takes few.
    #[test]
    fn idle_rows_cost_nothing() {
        let mut table = Table::new(COLUMNS);
        let all: Vec<_> = (0..1000).map(|slot| Some([slot, 1, 2, 3, 4])).collect();
        let changes = step(&table, &all);
        encode(&mut table, changes);
        let changes = step(&table, &all);
        assert!(encode(&mut table, changes).len() <= 3);
        let mut grown = all;
        grown[500] = Some([500 + 4096, 1 + 4096, 2, 3, 4]);
        let changes = step(&table, &grown);
        let out = encode(&mut table, changes);
        assert!(out.len() <= 11, "{out:?}");
    }
}
