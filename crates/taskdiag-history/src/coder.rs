//! An adaptive binary range coder.
//!
//! A number is coded as a sequence of binary symbols: is it zero, how long is it, which bits does
//! it have. Each symbol has a model, which learns the symbol's probability from the symbols before
//! it. A probable symbol takes a fraction of a bit. The decoder asks for the same symbols in the
//! same order, and its models learn the same. So one function both encodes and decodes, and the two
//! directions cannot differ.

use crate::Damage;

/// The model of a symbol: the probability that it is 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitModel {
    /// The probability, in units of 1/65,536.
    yes: u16,
    /// How many symbols this model has learned from, up to [`MOST_SEEN`].
    seen: u8,
}

/// From this many symbols on, the adaptation rate is constant, so that recent symbols count most:
/// what processes do changes.
const MOST_SEEN: u8 = 30;

/// The adaptation rate after each number of symbols, in units of 1/16,384.
const STEPS: [i32; MOST_SEEN as usize + 1] = {
    let mut steps = [0; MOST_SEEN as usize + 1];
    let mut seen = 0;
    while seen < steps.len() {
        steps[seen] = (1 << 15) / (2 * seen as i32 + 3);
        seen += 1;
    }
    steps
};

impl Default for BitModel {
    fn default() -> BitModel {
        BitModel { yes: 1 << 15, seen: 0 }
    }
}

impl BitModel {
    /// The probability to code with. It is never 0 or 1, so that either symbol can be coded.
    fn probability(self) -> u16 {
        const LEAST: u16 = 32;
        self.yes.clamp(LEAST, u16::MAX - LEAST)
    }

    fn learn(&mut self, is: bool) {
        let target = if is { i32::from(u16::MAX) } else { 0 };
        let yes = i32::from(self.yes);
        let step = (target - yes) * STEPS[usize::from(self.seen)];
        self.yes = (yes + (step >> 14)) as u16;
        self.seen = (self.seen + 1).min(MOST_SEEN);
    }
}

/// The models for one kind of number.
#[derive(Clone, Debug, Default)]
pub(crate) struct NumberModel {
    is_some: BitModel,
    is_negative: BitModel,
    /// Models for the bit length, a tree of six symbols; then, for each length, a model for the bit
    /// below the highest one. Empty before the first nonzero number: very many kinds never have
    /// one.
    bits: Vec<BitModel>,
}

const LENGTHS: usize = 64;

/// An encoder or a decoder. Every method returns the symbol or number. When decoding, the argument
/// is ignored.
pub(crate) trait Coder {
    /// Whether this is a decoder.
    const READS: bool;

    /// Codes a symbol that is 1 with this probability, in units of 1/65,536.
    fn answer(&mut self, probability: u16, is: bool) -> bool;

    /// Codes a symbol with a model, and updates the model.
    fn bit(&mut self, model: &mut BitModel, is: bool) -> bool {
        let is = self.answer(model.probability(), is);
        model.learn(is);
        is
    }

    /// Codes a number.
    fn number(&mut self, model: &mut NumberModel, number: u64) -> u64 {
        if !self.bit(&mut model.is_some, number != 0) {
            return 0;
        }
        if model.bits.is_empty() {
            model.bits = vec![BitModel::default(); 2 * LENGTHS];
        }
        let (lengths, next) = model.bits.split_at_mut(LENGTHS);
        let length = number.max(1).ilog2();
        let mut node = 1;
        for at in (0..6).rev() {
            let is = self.bit(&mut lengths[node], length >> at & 1 != 0);
            node = node << 1 | usize::from(is);
        }
        let length = node - LENGTHS;
        let mut read = 1;
        for at in (0..length).rev() {
            let is = number >> at & 1 != 0;
            let is = if at + 1 == length {
                self.bit(&mut next[length], is)
            } else {
                // The lower bits are nearly random: no model.
                self.answer(1 << 15, is)
            };
            read = read << 1 | u64::from(is);
        }
        read
    }

    /// Codes a signed number.
    fn signed(&mut self, model: &mut NumberModel, number: i64) -> i64 {
        let size = self.number(model, number.unsigned_abs()) as i64;
        if size != 0 && self.bit(&mut model.is_negative, number < 0) {
            size.wrapping_neg()
        } else {
            size
        }
    }
}

/// The interval of the range coder. Each symbol narrows it.
#[derive(Debug)]
struct Range {
    low: u32,
    high: u32,
}

impl Range {
    const ALL: Range = Range { low: 0, high: u32::MAX };

    /// The last number of the part that stands for 1.
    fn middle(&self, probability: u16) -> u32 {
        let part = u64::from(self.high - self.low) * u64::from(probability);
        self.low + (part >> 16) as u32
    }

    fn choose(&mut self, middle: u32, is: bool) {
        if is {
            self.high = middle;
        } else {
            self.low = middle + 1;
        }
    }

    /// Removes and returns the highest byte, if all numbers of the interval share it.
    fn take(&mut self) -> Option<u8> {
        let byte = (self.high >> 24) as u8;
        if (self.low ^ self.high) >> 24 != 0 {
            return None;
        }
        self.low <<= 8;
        self.high = self.high << 8 | 0xff;
        Some(byte)
    }
}

/// Encodes symbols to bytes.
#[derive(Debug)]
pub(crate) struct Writer<'o> {
    range: Range,
    out: &'o mut Vec<u8>,
}

impl<'o> Writer<'o> {
    /// Appends to these bytes.
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Writer<'o> {
        Writer { range: Range::ALL, out }
    }

    /// Appends the fewest bytes that identify a number in the interval. Past the end, the decoder
    /// reads zeros.
    pub(crate) fn finish(self) {
        let Range { low, high } = self.range;
        for bytes in 0..=4 {
            let zeros = u32::MAX.checked_shr(8 * bytes).unwrap_or(0);
            match low.checked_add(zeros).map(|number| number & !zeros) {
                Some(number) if number <= high => {
                    self.out.extend_from_slice(&number.to_be_bytes()[..bytes as usize]);
                    return;
                }
                _ => {}
            }
        }
    }
}

impl Coder for Writer<'_> {
    const READS: bool = false;

    fn answer(&mut self, probability: u16, is: bool) -> bool {
        self.range.choose(self.range.middle(probability), is);
        while let Some(byte) = self.range.take() {
            self.out.push(byte);
        }
        is
    }
}

/// Decodes symbols from bytes.
#[derive(Debug)]
pub(crate) struct Reader<'i> {
    range: Range,
    /// The next four bytes of input: a number in the interval.
    number: u32,
    rest: &'i [u8],
    /// How many zeros were read past the end.
    zeros: usize,
}

impl<'i> Reader<'i> {
    /// Reads these bytes.
    pub(crate) fn new(bytes: &'i [u8]) -> Reader<'i> {
        let mut reader = Reader {
            range: Range::ALL,
            number: 0,
            rest: bytes,
            zeros: 0,
        };
        (0..4).for_each(|_| reader.shift());
        reader
    }

    fn shift(&mut self) {
        let byte = match self.rest.split_first() {
            Some((&byte, rest)) => {
                self.rest = rest;
                byte
            }
            None => {
                self.zeros += 1;
                0
            }
        };
        self.number = self.number << 8 | u32::from(byte);
    }

    /// Checks that the input did not end early. Symbols decoded past the end are arbitrary.
    ///
    /// # Errors
    ///
    /// If it ended early.
    pub(crate) fn check(&self) -> Result<(), Damage> {
        if self.zeros > 4 {
            return Err(Damage("a sample ends before its last value"));
        }
        Ok(())
    }

    /// Decodes the number of items that follow. An item may take almost no bytes, so the limit is
    /// `most`.
    pub(crate) fn count(
        &mut self,
        model: &mut NumberModel,
        most: usize,
        too_many: &'static str,
    ) -> Result<usize, Damage> {
        let count = self.number(model, 0);
        self.check()?;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(Damage(too_many)),
        }
    }

    /// Decodes a number of at most 32 bits.
    pub(crate) fn small(&mut self, model: &mut NumberModel) -> Result<u32, Damage> {
        u32::try_from(self.number(model, 0)).map_err(|_| Damage("a number has more than 32 bits"))
    }
}

impl Coder for Reader<'_> {
    const READS: bool = true;

    fn answer(&mut self, probability: u16, _: bool) -> bool {
        let middle = self.range.middle(probability);
        let is = self.number <= middle;
        self.range.choose(middle, is);
        while self.range.take().is_some() {
            self.shift();
        }
        is
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Check that numbers of any size and sign survive encoding and decoding, after any others.
        #[test]
        fn numbers_come_back(numbers in proptest::collection::vec(prop_oneof![-3..3_i64, any::<i64>(), Just(i64::MIN)], 0..300)) {
            let mut out = Vec::new();
            let (mut writer, mut model) = (Writer::new(&mut out), NumberModel::default());
            for &number in &numbers {
                writer.signed(&mut model, number);
                writer.number(&mut model, number as u64);
            }
            writer.finish();
            let (mut reader, mut model) = (Reader::new(&out), NumberModel::default());
            for &number in &numbers {
                prop_assert_eq!(reader.signed(&mut model, 7), number);
                prop_assert_eq!(reader.number(&mut model, 7), number as u64);
            }
            prop_assert_eq!(reader.check(), Ok(()));
        }
    }

    /// Check that constant numbers take almost no bytes, and random ones little more than their
    /// bits.
    #[test]
    fn habits_are_short() {
        let bytes = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut out = Vec::new();
            let (mut writer, mut model) = (Writer::new(&mut out), NumberModel::default());
            numbers.for_each(|number| {
                writer.number(&mut model, number);
            });
            writer.finish();
            out.len()
        };
        assert!(bytes(&mut std::iter::repeat_n(0, 10_000)) < 30);
        assert!(bytes(&mut std::iter::repeat_n(3, 1000)) < 60);
        let random = |index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        assert!(bytes(&mut (0..1000).map(random)) < 2100);
    }

    /// Check that missing input is detected, and that counts above the limit are refused.
    #[test]
    fn what_is_missing_is_noticed() {
        let mut reader = Reader::new(&[]);
        assert_eq!(reader.check(), Ok(()));
        reader.number(&mut NumberModel::default(), 0);
        assert!(reader.check().is_err());
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.number(&mut NumberModel::default(), 11);
        writer.finish();
        let count = |most| Reader::new(&out).count(&mut NumberModel::default(), most, "too many");
        assert_eq!((count(11), count(10)), (Ok(11), Err(Damage("too many"))));
    }
}
