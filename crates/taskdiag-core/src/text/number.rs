//! Numbers in texts. An invalid number is `None`, never 0.

/// Parses all of `text` as a decimal number.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    // So many digits can't overflow.
    let (head, tail) = text.split_at(text.len().min(19));
    let digit = |byte: &u8| Some(u64::from(byte.wrapping_sub(b'0'))).filter(|&digit| digit <= 9);
    let value = head.iter().try_fold(0, |value, byte| Some(value * 10 + digit(byte)?))?;
    let value = tail.iter().try_fold(value, |value: u64, byte| {
        value.checked_mul(10)?.checked_add(digit(byte)?)
    })?;
    (!text.is_empty()).then_some(value)
}

/// Parses all of `text` as a decimal number that may have a minus sign.
pub(super) fn signed(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(digits) => 0i64.checked_sub_unsigned(decimal(digits)?),
        None => decimal(text)?.try_into().ok(),
    }
}

/// Parses all of `text` as a hexadecimal number.
pub(super) fn hexadecimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0, |value, &byte| {
        let digit = char::from(byte).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

/// Parses all of `text` as an octal number.
pub(super) fn octal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| {
        let digit = char::from(byte).to_digit(8)?;
        Some(value << 3 | u64::from(digit))
    })
}

/// Parses a size like ` 12 kB` as a number of bytes.
pub(super) fn kibibytes(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii().strip_suffix(b" kB")?;
    decimal(digits)?.checked_mul(1024)
}

/// Parses the hexadecimal number, in lower case, at the start of `text`. Also returns what follows
/// it.
pub(super) fn leading_hexadecimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    leading(text, 16, 16, digit)
}

/// Parses the decimal number at the start of `text`. Also returns what follows it.
pub(super) fn leading_decimal(text: &[u8]) -> Option<(u64, &[u8])> {
    leading(text, 20, 10, |byte| byte.is_ascii_digit().then(|| byte - b'0'))
}

fn leading(text: &[u8], most_digits: usize, base: u64, digit: impl Fn(u8) -> Option<u8>) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut at = 0;
    while let Some(digit) = text.get(at).copied().and_then(&digit) {
        if at == most_digits {
            return None;
        }
        value = value.checked_mul(base)?.checked_add(digit.into())?;
        at += 1;
    }
    (at > 0).then_some((value, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the largest octal and hexadecimal numbers, and that invalid numbers are refused.
    #[test]
    fn numbers_of_other_bases() {
        assert_eq!(
            (octal(b"0"), octal(b"17"), octal(b"8"), octal(b"")),
            (Some(0), Some(0o17), None, None)
        );
        let most = [b'7'; 21];
        assert_eq!((octal(&most[..20]), octal(&most)), (Some((1 << 60) - 1), None));
        let most = [b'f'; 17];
        assert_eq!((hexadecimal(&most[..16]), hexadecimal(&most)), (Some(u64::MAX), None));
        assert_eq!(
            (hexadecimal(b"1F"), hexadecimal(b"g"), hexadecimal(b"")),
            (Some(0x1f), None, None)
        );
    }

    /// Check that a number at the start has a digit, and is separated from what follows.
    #[test]
    fn numbers_at_the_start_have_digits() {
        assert_eq!(leading_decimal(b"12 x"), Some((12, &b" x"[..])));
        for text in [&b""[..], b"x", b" 1"] {
            assert_eq!(leading_decimal(text), None, "{}", text.escape_ascii());
        }
    }

    /// Check that sizes need their unit, and do not overflow.
    #[test]
    fn sizes_are_in_kibibytes() {
        assert_eq!((kibibytes(b"   12 kB"), kibibytes(b"0 kB")), (Some(12 << 10), Some(0)));
        for text in [&b""[..], b" kB", b"12", b"x kB", b"18014398509481984 kB"] {
            assert_eq!(kibibytes(text), None, "{}", text.escape_ascii());
        }
        assert_eq!(kibibytes(b"18014398509481983 kB"), Some(u64::MAX - 1023));
    }
}
