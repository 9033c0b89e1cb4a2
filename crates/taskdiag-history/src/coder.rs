//! Numbers as bytes.
//!
//! What is the same in every sample or in every row is a zero here: numbers are written as
//! differences from a guess. So similar numbers have to follow each other, and zstd finds the rest.
//! A decoder asks for the same numbers in the same order as the encoder did. So one function both
//! encodes and decodes, and the two directions cannot differ.

use crate::varint::{self, Input};
use crate::Damage;

/// An encoder or a decoder. Every method returns or sets the number. When decoding, the argument is
/// ignored.
pub(crate) trait Coder {
    /// Codes a number.
    fn number(&mut self, number: u64) -> Result<u64, Damage>;

    /// Whether anything follows. When encoding, always.
    fn has_more(&self) -> bool {
        true
    }

    /// Codes a number that is probably near this guess.
    fn near(&mut self, number: &mut u64, guess: u64) -> Result<(), Damage> {
        // The sign is the lowest bit, so that small differences are short.
        let difference = number.wrapping_sub(guess) as i64;
        let coded = self.number((difference << 1 ^ difference >> 63) as u64)?;
        *number = guess.wrapping_add(coded >> 1 ^ (coded & 1).wrapping_neg());
        Ok(())
    }

    /// Codes the number of items that follow. An item may take almost no bytes, so the limit is
    /// `most`.
    fn count(&mut self, count: usize, most: usize, too_many: &'static str) -> Result<usize, Damage> {
        let count = self.number(count as u64)?;
        let count = usize::try_from(count).ok().filter(|count| *count <= most);
        count.ok_or(Damage(too_many))
    }

    /// Codes rows, column by column. In the first `alike` columns, a number is probably near the one
    /// above it; in the others it is near 0. When decoding, there are no rows yet.
    fn rows<const COLUMNS: usize>(
        &mut self,
        rows: &mut Vec<[u64; COLUMNS]>,
        alike: usize,
        too_many: &'static str,
    ) -> Result<(), Damage> {
        rows.resize(self.count(rows.len(), MAX_ROWS, too_many)?, [0; COLUMNS]);
        for column in 0..COLUMNS {
            let mut guess = 0;
            for row in rows.iter_mut() {
                self.near(&mut row[column], guess)?;
                if column < alike {
                    guess = row[column];
                }
            }
        }
        Ok(())
    }
}

/// No sample has this many figures, or events, or sums.
const MAX_ROWS: usize = 1 << 20;

/// Encodes numbers to bytes.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
    /// How many zeros are not yet written. They are written as one 0 and how many follow it.
    zeros: u64,
}

impl Writer {
    /// The bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.put_zeros();
        self.out
    }

    fn put_zeros(&mut self) {
        if let Some(more) = std::mem::take(&mut self.zeros).checked_sub(1) {
            self.out.push(0);
            varint::number(&mut self.out, more);
        }
    }
}

impl Coder for Writer {
    fn number(&mut self, number: u64) -> Result<u64, Damage> {
        if number == 0 {
            self.zeros += 1;
        } else {
            self.put_zeros();
            varint::number(&mut self.out, number);
        }
        Ok(number)
    }
}

/// Decodes numbers from bytes.
#[derive(Debug)]
pub(crate) struct Reader<'i> {
    input: Input<'i>,
    /// How many zeros come before the rest of the input.
    zeros: u64,
}

impl<'i> Reader<'i> {
    /// Reads these bytes.
    pub(crate) fn new(input: Input<'i>) -> Reader<'i> {
        Reader { input, zeros: 0 }
    }
}

impl Coder for Reader<'_> {
    fn has_more(&self) -> bool {
        self.zeros > 0 || !self.input.0.is_empty()
    }

    fn number(&mut self, _: u64) -> Result<u64, Damage> {
        if let Some(zeros) = self.zeros.checked_sub(1) {
            self.zeros = zeros;
            return Ok(0);
        }
        let number = self.input.number()?;
        if number == 0 {
            self.zeros = self.input.number()?;
        }
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![3 => Just(0), 1 => 0..3_u64, 1 => any::<u64>(), 1 => Just(1 << 63)]
    }

    proptest! {
        /// Check that numbers and rows survive encoding and decoding, after any others.
        #[test]
        fn numbers_come_back(numbers in proptest::collection::vec((number(), number()), 0..300)) {
            let mut writer = Writer::default();
            for &(mut number, guess) in &numbers {
                writer.number(number).expect("any number");
                writer.near(&mut number, guess).expect("any number");
            }
            let mut rows: Vec<[u64; 2]> = numbers.iter().map(|&(a, b)| [a, b]).collect();
            writer.rows(&mut rows, 1, "").expect("few rows");
            let out = writer.finish();
            let mut reader = Reader::new(Input(&out));
            for &(number, guess) in &numbers {
                prop_assert_eq!(reader.number(7), Ok(number));
                let mut near = 7;
                prop_assert_eq!(reader.near(&mut near, guess).map(|()| near), Ok(number));
            }
            let mut read = Vec::new();
            prop_assert_eq!(reader.rows(&mut read, 1, "").map(|()| read), Ok(rows));
            prop_assert!(reader.number(7).is_err());
        }
    }

    /// Check that very many zeros take a few bytes, and other numbers little more than their bits.
    #[test]
    fn zeros_are_short() {
        let bytes = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut writer = Writer::default();
            numbers.for_each(|number| _ = writer.number(number));
            writer.finish().len()
        };
        assert_eq!(bytes(&mut std::iter::repeat_n(0, 10_000)), 3);
        assert_eq!(bytes(&mut [0, 1, 0, 0, 127].into_iter()), 6);
        let mut near = (1 << 40) - 1;
        let mut writer = Writer::default();
        writer.near(&mut near, 1 << 40).expect("any number");
        assert_eq!(writer.finish(), [1]);
    }

    /// Check that missing input is detected, and that counts above the limit are refused.
    #[test]
    fn what_is_missing_is_noticed() {
        assert!(Reader::new(Input(&[])).number(0).is_err());
        // How many zeros follow is not there.
        assert!(Reader::new(Input(&[0])).number(0).is_err());
        let count = |most| Reader::new(Input(&[11])).count(0, most, "too many");
        assert_eq!((count(11), count(10)), (Ok(11), Err(Damage("too many"))));
    }
}
