//! Records with a text, as the programs that read mappings and open files leave them in their
//! memory.

use taskdiag_core::error::{Error, ErrorKind, Result};
use zerocopy::FromBytes;

/// A structure that is followed by a text and by padding.
pub(crate) trait Record: FromBytes {
    /// What it describes, for messages.
    const SUBJECT: &'static str;

    /// The length of the structure, its text and the padding.
    fn len(&self) -> usize;

    /// The length of the text.
    fn text_len(&self) -> usize;
}

/// The record at the start of `bytes`, its text, and the bytes after it. `None` unless the record
/// is complete.
fn split_first<R: Record>(bytes: &[u8]) -> Option<(R, &[u8], &[u8])> {
    let (record, _) = R::read_from_prefix(bytes).ok()?;
    let (whole, rest) = bytes.split_at_checked(record.len())?;
    let text = whole.get(size_of::<R>()..)?.get(..record.text_len())?;
    Some((record, text, rest))
}

/// Passes each record and its text to `each`.
///
/// # Errors
///
/// `Malformed` if the bytes are not whole records.
pub(crate) fn decode<R: Record>(mut bytes: &[u8], mut each: impl FnMut(&R, &[u8])) -> Result<()> {
    while !bytes.is_empty() {
        let (record, text, rest) = split_first(bytes)
            .ok_or_else(|| Error::new(ErrorKind::Malformed, format!("an incomplete record of {}", R::SUBJECT)))?;
        each(&record, text);
        bytes = rest;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;
    use zerocopy::{Immutable, IntoBytes};

    use super::*;
    use crate::{files, vma};

    /// Check that a record is decoded with its text, and that a partial record is not. Its text
    /// must have three bytes, followed by five bytes of padding.
    pub(crate) fn is_decoded<R: Record + IntoBytes + Immutable + Debug>(record: R) {
        let bytes = [record.as_bytes(), b"abc\0\0\0\0\0rest"].concat();
        let (read, text, rest) = split_first::<R>(&bytes).expect("a record");
        assert_eq!(
            (read.as_bytes(), text, rest),
            (record.as_bytes(), &b"abc"[..], &b"rest"[..])
        );
        let whole = size_of::<R>() + 8;
        assert!((0..whole).all(|len| split_first::<R>(&bytes[..len]).is_none()));

        let mut decoded = Vec::new();
        let twice = bytes[..whole].repeat(2);
        let each = |record: &R, text: &[u8]| decoded.push([record.as_bytes(), text].concat());
        decode(&twice, each).expect("two records");
        assert_eq!(decoded, [&bytes[..whole - 5]; 2]);
        let error = decode::<R>(&bytes, |_, _| {}).expect_err("the rest is no record");
        assert!(error.to_string().contains(R::SUBJECT), "{error}");
    }

    /// Whether decoding ends.
    fn ends<R: Record>(bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Some((_, _, after)) = split_first::<R>(rest) {
            if after.len() >= rest.len() {
                return false;
            }
            rest = after;
        }
        true
    }

    proptest! {
        /// Check that any bytes can be decoded, and that decoding ends.
        #[test]
        fn any_bytes_decode(bytes: Vec<u8>) {
            prop_assert!(ends::<files::Record>(&bytes) && ends::<vma::Record>(&bytes));
        }
    }
}
