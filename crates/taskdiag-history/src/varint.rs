//! Variable-length numbers: encoding and decoding.

use crate::Damage;

/// Appends a number: seven bits per byte, lowest first. The top bit says that more bytes follow.
pub(crate) fn number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends bytes, preceded by their length.
pub(crate) fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Input that is being decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

const SHORT: Damage = Damage("a sample ends before its last value");

impl<'a> Input<'a> {
    pub(crate) fn number(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(SHORT)?;
            self.0 = rest;
            // The tenth byte has one bit of the number.
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Damage("a number has more than 64 bits"))
    }

    /// The number of items that follow, each of at least one byte.
    pub(crate) fn count(&mut self) -> Result<usize, Damage> {
        let count = self.number()?;
        if count > self.0.len() as u64 {
            return Err(Damage("a list has more members than there are bytes"));
        }
        Ok(count as usize)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Damage> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a [u8], Damage> {
        let len = self.count()?;
        self.bytes(len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Check that numbers and texts survive encoding and decoding.
        #[test]
        fn numbers_come_back(plain: u64, bytes: Vec<u8>) {
            let mut out = Vec::new();
            number(&mut out, plain);
            text(&mut out, &bytes);
            let mut input = Input(&out);
            prop_assert_eq!(input.number(), Ok(plain));
            prop_assert_eq!(input.text(), Ok(&bytes[..]));
            prop_assert!(input.0.is_empty() && input.number().is_err());
        }
    }

    /// Check that small numbers take one byte, and that a length beyond the end is refused.
    #[test]
    fn small_numbers_are_short() {
        for value in 0..128 {
            let mut out = Vec::new();
            number(&mut out, value);
            assert_eq!(out.len(), 1);
        }
        let mut out = Vec::new();
        number(&mut out, 1 << 40);
        assert!(Input(&out).text().is_err() && Input(&[0xff; 11]).number().is_err());
        let largest = [&[0xff; 9][..], &[1]].concat();
        let larger = [&[0xff; 9][..], &[2]].concat();
        assert_eq!(Input(&largest).number(), Ok(u64::MAX));
        assert!(Input(&larger).number().is_err());
    }
}
