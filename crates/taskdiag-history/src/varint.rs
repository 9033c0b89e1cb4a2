//! Numbers in as few bytes as they need, and taking them out again.

use crate::Damage;

/// Appends a number: seven bits in each byte, the lowest first; the top bit says that more follow.
pub(crate) fn number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a signed number: small ones of both signs are short.
pub(crate) fn signed(out: &mut Vec<u8>, value: i64) {
    number(out, (value << 1 ^ value >> 63) as u64);
}

/// Appends bytes, with their length in front.
pub(crate) fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Bytes that are being taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

const SHORT: Damage = Damage("a sample ends before its last value");

impl<'a> Input<'a> {
    pub(crate) fn number(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(SHORT)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Damage("a number has more than 64 bits"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Damage> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// A number of things that follow, which take a byte each at least.
    pub(crate) fn count(&mut self) -> Result<usize, Damage> {
        let count = self.number()?;
        if count > self.0.len() as u64 {
            return Err(Damage("a list has more members than there are bytes"));
        }
        Ok(count as usize)
    }

    pub(crate) fn small(&mut self) -> Result<u32, Damage> {
        u32::try_from(self.number()?).map_err(|_| Damage("a number has more than 32 bits"))
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
        /// Check that numbers come out as they went in.
        #[test]
        fn numbers_come_back(plain: u64, value: i64, bytes: Vec<u8>) {
            let mut out = Vec::new();
            number(&mut out, plain);
            signed(&mut out, value);
            text(&mut out, &bytes);
            let mut input = Input(&out);
            prop_assert_eq!(input.number(), Ok(plain));
            prop_assert_eq!(input.signed(), Ok(value));
            prop_assert_eq!(input.text(), Ok(&bytes[..]));
            prop_assert!(input.0.is_empty() && input.number().is_err());
        }
    }

    /// Check that small numbers of both signs take a byte, and that a length beyond the end is no
    /// reason to make room.
    #[test]
    fn small_numbers_are_short() {
        for value in -64..64 {
            let mut out = Vec::new();
            signed(&mut out, value);
            assert_eq!(out.len(), 1);
        }
        let mut out = Vec::new();
        number(&mut out, 1 << 40);
        assert!(Input(&out).text().is_err() && Input(&[0xff; 11]).number().is_err());
    }
}
