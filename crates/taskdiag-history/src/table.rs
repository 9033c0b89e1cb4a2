//! Rows that change over time: what has changed between two samples, by column.

use crate::varint::{self, Input};
use crate::{Damage, MOST_VALUES};

/// A row: a number for each column.
pub type Row = Box<[u64]>;

/// The rows of a table. Each has a slot, a small number that is used again when it is gone.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Option<Row>>,
    /// The row that was added last: the next new one is probably like it.
    last: Row,
}

/// What happened to a table. All slots ascend.
#[derive(Debug, Default)]
pub struct Changes {
    /// Rows that are gone.
    pub ended: Vec<u32>,
    /// Rows that have other values.
    pub changed: Vec<(u32, Row)>,
    /// Rows in slots that are free.
    pub new: Vec<(u32, Row)>,
}

/// For each column, the columns whose changes add up to the change that is expected of it.
pub type Expected = [Vec<usize>];

/// More slots than a kernel has process ids.
const MOST_SLOTS: u64 = 1 << 22;

impl Table {
    /// The row in a slot.
    pub fn row(&self, slot: u32) -> Option<&Row> {
        self.rows.get(slot as usize)?.as_ref()
    }

    /// All rows, by slot.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().flatten()
    }

    /// Makes changes, and appends what decoding makes them of.
    pub fn encode(&mut self, changes: Changes, expected: &Expected, out: &mut Vec<u8>) {
        slots(out, changes.ended.iter().copied());
        for &slot in &changes.ended {
            self.rows[slot as usize] = None;
        }
        slots(out, changes.changed.iter().map(|&(slot, _)| slot));
        self.encode_changed(&changes.changed, expected, out);
        for (slot, row) in changes.changed {
            self.rows[slot as usize] = Some(row);
        }
        slots(out, changes.new.iter().map(|&(slot, _)| slot));
        for column in 0..expected.len() {
            let mut before = self.last.get(column).copied().unwrap_or(0);
            for (_, row) in &changes.new {
                varint::signed(out, row[column].wrapping_sub(before) as i64);
                before = row[column];
            }
        }
        if let Some((_, row)) = changes.new.last() {
            self.last = row.clone();
        }
        for (slot, row) in changes.new {
            let slot = slot as usize;
            if slot >= self.rows.len() {
                self.rows.resize(slot + 1, None);
            }
            self.rows[slot] = Some(row);
        }
    }

    /// For each column in which something is not as expected: its number, which rows those are, the
    /// largest number that divides all differences, the differences.
    fn encode_changed(&self, changed: &[(u32, Row)], expected: &Expected, out: &mut Vec<u8>) {
        let mut next = 0;
        let mut differences = vec![0_i64; changed.len()];
        for (column, from) in expected.iter().enumerate() {
            for (difference, (slot, row)) in differences.iter_mut().zip(changed) {
                let before = self.row(*slot).expect("only rows that are there change");
                let grown = |column: usize| row[column].wrapping_sub(before[column]);
                let sum = from.iter().fold(0_u64, |sum, &from| sum.wrapping_add(grown(from)));
                *difference = grown(column).wrapping_sub(sum) as i64;
            }
            let divisor = differences
                .iter()
                .fold(0, |divisor, &difference| gcd(divisor, difference.unsigned_abs()));
            if divisor == 0 {
                continue;
            }
            varint::number(out, (column - next + 1) as u64);
            next = column + 1;
            for chunk in differences.chunks(8) {
                let bits = chunk
                    .iter()
                    .rev()
                    .fold(0, |bits, &difference| bits << 1 | u8::from(difference != 0));
                out.push(bits);
            }
            varint::number(out, divisor);
            for &difference in differences.iter().filter(|&&difference| difference != 0) {
                let parts = difference.unsigned_abs() / divisor;
                // Of 64 bits, the lowest has the sign: a part of 64 bits has a divisor of 1 and wraps.
                varint::signed(
                    out,
                    if difference < 0 {
                        (parts as i64).wrapping_neg()
                    } else {
                        parts as i64
                    },
                );
            }
        }
        out.push(0);
    }

    /// Makes the changes that were encoded. What was there stays as it was if they make no sense,
    /// or is partly changed: the segment can't be read further.
    pub(crate) fn decode(&mut self, input: &mut Input<'_>, expected: &Expected) -> Result<(), Damage> {
        for slot in taken_slots(input)? {
            let row = self.rows.get_mut(slot as usize).and_then(Option::take);
            row.ok_or(Damage("a process ends that is not there"))?;
        }
        let changed = taken_slots(input)?;
        self.decode_changed(&changed, input, expected)?;
        let new = taken_slots(input)?;
        let new_values = new.len().saturating_mul(expected.len());
        if new_values > input.0.len() {
            return Err(Damage("there are more new processes than bytes"));
        }
        if new_values + self.rows().count() * expected.len() > MOST_VALUES {
            return Err(Damage("there are more processes than are recorded"));
        }
        let mut rows: Vec<Row> = vec![vec![0; expected.len()].into(); new.len()];
        for column in 0..expected.len() {
            let mut before = self.last.get(column).copied().unwrap_or(0);
            for row in &mut rows {
                before = before.wrapping_add(input.signed()? as u64);
                row[column] = before;
            }
        }
        if let Some(row) = rows.last() {
            self.last = row.clone();
        }
        for (slot, row) in new.into_iter().zip(rows) {
            let slot = slot as usize;
            if slot >= self.rows.len() {
                self.rows.resize(slot + 1, None);
            }
            if self.rows[slot].replace(row).is_some() {
                return Err(Damage("a process begins in the place of another"));
            }
        }
        Ok(())
    }

    fn decode_changed(&mut self, changed: &[u32], input: &mut Input<'_>, expected: &Expected) -> Result<(), Damage> {
        const NOT_THERE: Damage = Damage("a process changes that is not there");
        let before: Vec<Row> = changed
            .iter()
            .map(|&slot| self.row(slot).cloned().ok_or(NOT_THERE))
            .collect::<Result<_, Damage>>()?;
        let mut after = before.clone();
        let mut next = input.number()?;
        for (column, from) in expected.iter().enumerate() {
            for (after, before) in after.iter_mut().zip(&before) {
                let grown = |column: &usize| after[*column].wrapping_sub(before[*column]);
                let sum = from.iter().map(grown).fold(0, u64::wrapping_add);
                after[column] = before[column].wrapping_add(sum);
            }
            next = match next {
                0 => 0,
                1 => {
                    let bits = input.bytes(changed.len().div_ceil(8))?;
                    let divisor = input.number()? as i64;
                    for (index, after) in after.iter_mut().enumerate() {
                        if bits[index / 8] >> (index % 8) & 1 != 0 {
                            let difference = input.signed()?.wrapping_mul(divisor);
                            after[column] = after[column].wrapping_add(difference as u64);
                        }
                    }
                    input.number()?
                }
                far => far - 1,
            };
        }
        if next != 0 {
            return Err(Damage("a column changes that is not there"));
        }
        for (&slot, row) in changed.iter().zip(after) {
            self.rows[slot as usize] = Some(row);
        }
        Ok(())
    }
}

/// Appends ascending slots: their number, and the steps between them.
fn slots(out: &mut Vec<u8>, slots: impl ExactSizeIterator<Item = u32>) {
    varint::number(out, slots.len() as u64);
    let mut next = 0;
    for slot in slots {
        varint::number(out, u64::from(slot - next));
        next = slot + 1;
    }
}

fn taken_slots(input: &mut Input<'_>) -> Result<Vec<u32>, Damage> {
    let count = input.count()?;
    let mut next = 0;
    let mut slots = Vec::with_capacity(count);
    for _ in 0..count {
        let slot = input.number()?.saturating_add(next);
        if slot >= MOST_SLOTS {
            return Err(Damage("there are more processes than any kernel has"));
        }
        slots.push(slot as u32);
        next = slot + 1;
    }
    Ok(slots)
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

    const COLUMNS: usize = 5;

    fn expected() -> Vec<Vec<usize>> {
        let mut expected = vec![Vec::new(); COLUMNS];
        expected[4] = vec![0, 1];
        expected
    }

    /// What becomes of each slot: nothing, an end, or these values.
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
        /// Check that every step comes out as it went in, with values of any size, slots that are used
        /// again, and columns that are expected to follow others.
        #[test]
        fn steps_come_back(steps in proptest::collection::vec(
            proptest::collection::vec(proptest::option::of(proptest::array::uniform5(value())), 20), 1..6))
        {
            let (mut written, mut read) = (Table::default(), Table::default());
            let expected = expected();
            for wanted in &steps {
                let mut out = Vec::new();
                let changes = step(&written, wanted);
                written.encode(changes, &expected, &mut out);
                let mut input = Input(&out);
                prop_assert_eq!(read.decode(&mut input, &expected), Ok(()));
                prop_assert!(input.0.is_empty());
                let rows: Vec<Row> = wanted.iter().flatten().map(|row| row[..].into()).collect();
                prop_assert_eq!(read.rows().cloned().collect::<Vec<_>>(), rows);
            }
        }

        /// Check that any bytes are refused or decoded, and take no more memory than they are worth.
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(0..12_u8, 0..200)) {
            let mut table = Table::default();
            let mut input = Input(&bytes);
            while table.decode(&mut input, &expected()).is_ok() && !input.0.is_empty() {}
            prop_assert!(table.rows().count() <= bytes.len());
        }
    }

    /// Check that rows that are as before take nothing, and one that grows as expected next to nothing.
    #[test]
    fn idle_rows_cost_nothing() {
        let (mut table, expected) = (Table::default(), expected());
        let all: Vec<_> = (0..1000).map(|slot| Some([slot, 1, 2, 3, 4])).collect();
        let changes = step(&table, &all);
        table.encode(changes, &expected, &mut Vec::new());
        let mut out = Vec::new();
        let changes = step(&table, &all);
        table.encode(changes, &expected, &mut out);
        assert_eq!(out.len(), 4);
        let mut grown = all;
        grown[500] = Some([500 + 4096, 1 + 4096, 2, 3, 4 + 8192]);
        out.clear();
        let changes = step(&table, &grown);
        table.encode(changes, &expected, &mut out);
        assert!(out.len() <= 17, "{out:?}");
    }
}
