//! Rows that change over time: the changes between two samples, column by column.

use std::cmp::Reverse;

use crate::coder::{BitModel, Coder, NumberModel, Reader};
use crate::{Damage, MOST_VALUES};

/// A row: one number per column.
pub type Numbers = Box<[u64]>;

/// A table. Each row has a slot, a small number that is reused after the row is removed.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Option<Numbers>>,
    /// The rows added last, latest at the end. The next new row probably resembles one of them.
    latest: Vec<Numbers>,
    habits: Habits,
}

/// The models of a table's changes.
#[derive(Debug, Default)]
struct Habits {
    ended: Slots,
    changed: Slots,
    new: Slots,
    like: NumberModel,
    of_changed: Vec<ColumnModels>,
    of_new: Vec<ColumnModels>,
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

/// For each column, the columns whose changes add up to its expected change.
pub type Expected = [Vec<usize>];

/// A kernel has fewer process ids than this.
const MOST_SLOTS: usize = 1 << 22;

/// A new row may refer to one of this many latest rows.
const LATEST: usize = 8;

const TOO_MANY: &str = "there are more processes than any kernel has";

impl Table {
    /// The row in a slot.
    pub fn row(&self, slot: u32) -> Option<&Numbers> {
        self.rows.get(slot as usize)?.as_ref()
    }

    /// All rows, by slot.
    pub fn rows(&self) -> impl Iterator<Item = &Numbers> {
        self.rows.iter().flatten()
    }

    /// Applies changes, and encodes them.
    pub(crate) fn encode(&mut self, changes: Changes, expected: &Expected, coder: &mut impl Coder) {
        self.habits.ended.put(&changes.ended, coder);
        for &slot in &changes.ended {
            self.rows[slot as usize] = None;
        }
        let (slots, rows): (Vec<u32>, Vec<Numbers>) = changes.changed.into_iter().unzip();
        self.habits.changed.put(&slots, coder);
        self.change(&slots, rows, expected, coder);
        let (slots, rows): (Vec<u32>, Vec<Numbers>) = changes.new.into_iter().unzip();
        self.habits.new.put(&slots, coder);
        let rows = self.add(rows, expected, coder);
        let rows = rows.expect("each is like one that is there");
        for (slot, row) in slots.into_iter().zip(rows) {
            self.place(slot).replace(row);
        }
    }

    /// Decodes changes and applies them. If they are invalid, the table may be partly changed, and
    /// the segment cannot be read further.
    pub(crate) fn decode(&mut self, expected: &Expected, coder: &mut Reader<'_>) -> Result<(), Damage> {
        for slot in self.habits.ended.take(coder)? {
            let row = self.rows.get_mut(slot as usize).and_then(Option::take);
            row.ok_or(Damage("a process ends that is not there"))?;
        }
        let slots = self.habits.changed.take(coder)?;
        let rows = slots.iter().map(|&slot| self.row(slot).cloned());
        let rows: Option<Vec<Numbers>> = rows.collect();
        let rows = rows.ok_or(Damage("a process changes that is not there"))?;
        self.change(&slots, rows, expected, coder);
        coder.check()?;
        let slots = self.habits.new.take(coder)?;
        if (slots.len() + self.rows().count()).saturating_mul(expected.len()) > MOST_VALUES {
            return Err(Damage("there are more processes than are recorded"));
        }
        let rows: Vec<Numbers> = vec![vec![0; expected.len()].into(); slots.len()];
        let rows = self.add(rows, expected, coder)?;
        coder.check()?;
        for (slot, row) in slots.into_iter().zip(rows) {
            if self.place(slot).replace(row).is_some() {
                return Err(Damage("a process begins in the place of another"));
            }
        }
        Ok(())
    }

    fn place(&mut self, slot: u32) -> &mut Option<Numbers> {
        let slot = slot as usize;
        if slot >= self.rows.len() {
            self.rows.resize(slot + 1, None);
        }
        &mut self.rows[slot]
    }

    /// Changes rows. When decoding, `rows` has the old values.
    fn change(&mut self, slots: &[u32], mut rows: Vec<Numbers>, expected: &Expected, coder: &mut impl Coder) {
        if rows.is_empty() {
            return;
        }
        let before = slots.iter().map(|&slot| self.rows[slot as usize].as_deref());
        let before: Vec<&[u64]> = before
            .map(|row| row.expect("only rows that are there change"))
            .collect();
        let columns = &mut self.habits.of_changed;
        columns.resize_with(expected.len(), ColumnModels::default);
        let mut differences = vec![0; rows.len()];
        for (index, column) in columns.iter_mut().enumerate() {
            for ((difference, row), before) in differences.iter_mut().zip(&rows).zip(&before) {
                *difference = row[index].wrapping_sub(likely(index, expected, row, before)) as i64;
            }
            column.code(&mut differences, coder);
            for ((difference, row), before) in differences.iter().zip(&mut rows).zip(&before) {
                row[index] = likely(index, expected, row, before).wrapping_add(*difference as u64);
            }
        }
        for (&slot, row) in slots.iter().zip(rows) {
            self.rows[slot as usize] = Some(row);
        }
    }

    /// Codes new rows, each relative to a similar earlier one. When decoding, `rows` has zeros.
    fn add<C: Coder>(
        &mut self,
        rows: Vec<Numbers>,
        expected: &Expected,
        coder: &mut C,
    ) -> Result<Vec<Numbers>, Damage> {
        if rows.is_empty() {
            return Ok(rows);
        }
        let known = self.latest.len();
        let mut all: Vec<Numbers> = self.latest.drain(..).chain(rows).collect();
        let mut alike: Vec<Option<usize>> = Vec::new();
        for place in known..all.len() {
            let back = if C::READS { 0 } else { most_alike(&all[..=place]) };
            let back = coder.number(&mut self.habits.like, back as u64);
            // 0 means none: this is the first row of all.
            let like = usize::try_from(back).ok().and_then(|back| place.checked_sub(back));
            let like = like.ok_or(Damage("a process is like one that was not there"))?;
            alike.push(Some(like).filter(|&like| like != place));
        }
        let zeros: Numbers = vec![0; expected.len()].into();
        let mut differences = vec![0; alike.len()];
        self.habits.of_new.resize_with(expected.len(), ColumnModels::default);
        for (index, column) in self.habits.of_new.iter_mut().enumerate() {
            let likely = |all: &[Numbers], (place, like): (usize, &Option<usize>)| {
                let like = like.map_or(&zeros, |like| &all[like]);
                likely(index, expected, &all[place], like)
            };
            for (difference, alike) in differences.iter_mut().zip((known..).zip(&alike)) {
                *difference = all[alike.0][index].wrapping_sub(likely(&all, alike)) as i64;
            }
            column.code(&mut differences, coder);
            for (difference, alike) in differences.iter().zip((known..).zip(&alike)) {
                all[alike.0][index] = likely(&all, alike).wrapping_add(*difference as u64);
            }
        }
        self.latest = all[all.len().saturating_sub(LATEST)..].to_vec();
        Ok(all.split_off(known))
    }
}

/// How far back the row is that has most values in common with the last one; 0 if there is no
/// other.
fn most_alike(rows: &[Numbers]) -> usize {
    let Some((row, others)) = rows.split_last() else {
        return 0;
    };
    let common = |other: &Numbers| row.iter().zip(other).filter(|(a, b)| a == b).count();
    let latest = (1..).zip(others.iter().rev().take(LATEST));
    let most = latest.max_by_key(|&(back, other)| (common(other), Reverse(back)));
    most.map_or(0, |(back, _)| back)
}

/// The predicted value in a row: the value of the reference row, plus the changes in the columns
/// that this one is expected to follow.
fn likely(index: usize, expected: &Expected, row: &[u64], before: &[u64]) -> u64 {
    let grown = |&from: &usize| row[from].wrapping_sub(before[from]);
    expected[index].iter().map(grown).fold(before[index], u64::wrapping_add)
}

/// The models of the differences in a column.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnModels {
    is_any: BitModel,
    is_finer: BitModel,
    /// The greatest common divisor of all differences so far.
    unit: u64,
    parts: NumberModel,
}

impl ColumnModels {
    /// Codes differences. When decoding, their values are ignored.
    pub(crate) fn code<C: Coder>(&mut self, differences: &mut [i64], coder: &mut C) {
        let mut unit = self.unit;
        if !C::READS {
            let sizes = differences.iter().map(|difference| difference.unsigned_abs());
            let all = sizes.fold(0, gcd);
            if !coder.bit(&mut self.is_any, all != 0) {
                return;
            }
            unit = gcd(unit, all);
        } else if !coder.bit(&mut self.is_any, false) {
            differences.fill(0);
            return;
        }
        if coder.bit(&mut self.is_finer, unit != self.unit) {
            // Rare, so a fresh model will do.
            self.unit = coder.number(&mut NumberModel::default(), unit);
        }
        for difference in differences {
            let size = difference.unsigned_abs().checked_div(self.unit).unwrap_or(0) as i64;
            // A size of 64 bits has a unit of 1 and wraps.
            let parts = if *difference < 0 { size.wrapping_neg() } else { size };
            *difference = coder.signed(&mut self.parts, parts).wrapping_mul(self.unit as i64);
        }
    }
}

/// The models of ascending slots: their count, and the steps between them.
#[derive(Debug, Default)]
struct Slots {
    count: NumberModel,
    step: NumberModel,
}

impl Slots {
    fn put(&mut self, slots: &[u32], coder: &mut impl Coder) {
        coder.number(&mut self.count, slots.len() as u64);
        let mut next = 0;
        for &slot in slots {
            coder.number(&mut self.step, u64::from(slot - next));
            next = slot + 1;
        }
    }

    fn take(&mut self, coder: &mut Reader<'_>) -> Result<Vec<u32>, Damage> {
        let count = coder.count(&mut self.count, MOST_SLOTS, TOO_MANY)?;
        let mut next = 0;
        let mut slots = Vec::with_capacity(count);
        for _ in 0..count {
            let slot = coder.number(&mut self.step, 0).saturating_add(next);
            if slot >= MOST_SLOTS as u64 {
                return Err(Damage(TOO_MANY));
            }
            slots.push(slot as u32);
            next = slot + 1;
        }
        coder.check()?;
        Ok(slots)
    }
}

/// The greatest common divisor. That of 0 and a number is the number.
fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::coder::Writer;

    const COLUMNS: usize = 5;

    fn expected() -> Vec<Vec<usize>> {
        let mut expected = vec![Vec::new(); COLUMNS];
        expected[4] = vec![0, 1];
        expected
    }

    fn encode(table: &mut Table, changes: Changes) -> Vec<u8> {
        let mut out = Vec::new();
        let mut coder = Writer::new(&mut out);
        table.encode(changes, &expected(), &mut coder);
        coder.finish();
        out
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
        /// Check that every step survives encoding and decoding, with values of any size, reused
        /// slots, and columns that are expected to follow others.
        #[test]
        fn steps_come_back(steps in proptest::collection::vec(
            proptest::collection::vec(proptest::option::of(proptest::array::uniform5(value())), 20), 1..6))
        {
            let (mut written, mut read) = (Table::default(), Table::default());
            let expected = expected();
            for wanted in &steps {
                let changes = step(&written, wanted);
                let out = encode(&mut written, changes);
                prop_assert_eq!(read.decode(&expected, &mut Reader::new(&out)), Ok(()));
                let rows: Vec<Numbers> = wanted.iter().flatten().map(|row| row[..].into()).collect();
                prop_assert_eq!(read.rows().cloned().collect::<Vec<_>>(), rows);
            }
        }

        /// Check that arbitrary bytes are decoded or refused.
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut table = Table::default();
            let mut coder = Reader::new(&bytes);
            while table.decode(&expected(), &mut coder).is_ok() && coder.check().is_ok() {}
            prop_assert!(table.rows().count() * COLUMNS <= MOST_VALUES);
        }
    }

    /// Check that unchanged rows take no bytes, and a row that grows as expected takes few.
    #[test]
    fn idle_rows_cost_nothing() {
        let mut table = Table::default();
        let all: Vec<_> = (0..1000).map(|slot| Some([slot, 1, 2, 3, 4])).collect();
        let changes = step(&table, &all);
        encode(&mut table, changes);
        let changes = step(&table, &all);
        assert!(encode(&mut table, changes).len() <= 3);
        let mut grown = all;
        grown[500] = Some([500 + 4096, 1 + 4096, 2, 3, 4 + 8192]);
        let changes = step(&table, &grown);
        let out = encode(&mut table, changes);
        assert!(out.len() <= 14, "{out:?}");
    }
}
