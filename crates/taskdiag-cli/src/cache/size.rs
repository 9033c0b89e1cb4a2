//! Sizes and ranges as people write them.

use taskdiag::pagecache::ByteRange;

/// Reads a size: a number of bytes, or of a binary unit: `4096`, `4K`, `1.5G`, `2TiB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size: a number of bytes, or of K, M, G, T, P or E, like 4K or 1.5G");
    let digits = text
        .find(|character: char| !(character.is_ascii_digit() || character == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        "P" | "PB" | "PIB" => 50,
        "E" | "EB" | "EIB" => 60,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let (Ok(whole), true) = (
        whole.parse::<u64>(),
        !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit()),
    ) else {
        return Err(wrong());
    };
    // Digits beyond these are below a byte in any unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let parts: u128 = fraction.parse().map_err(|_| wrong())?;
    let bytes = (u128::from(whole) << shift) + (parts << shift) / 10_u128.pow(fraction.len() as u32);
    u64::try_from(bytes).map_err(|_| format!("{text:?} is more than 64 bits can say"))
}

/// Reads a range: `OFF:LEN`, `OFF:` for all from there on, `:LEN` for the beginning.
pub fn parse_range(text: &str) -> Result<ByteRange, String> {
    let Some((offset, len)) = text.split_once(':') else {
        return Err(format!(
            "{text:?} is no range: say OFF:LEN, like 1G:64M; OFF: or :LEN will do"
        ));
    };
    let or_zero = |part: &str| if part.is_empty() { Ok(0) } else { parse_size(part) };
    let (offset, size) = (or_zero(offset)?, or_zero(len)?);
    if size == 0 && !len.is_empty() {
        return Err("a range of no bytes has no pages: leave LEN out for all up to the end of the file".to_owned());
    }
    ByteRange::new(offset, size).ok_or_else(|| format!("{text:?} ends beyond what 64 bits can say"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Check sizes with and without units, and what is none.
    #[test]
    fn sizes_have_units() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("4K", 4096),
            ("4kib", 4096),
            ("1.5G", 3 << 29),
            ("0.5B", 0),
            ("15.999E", 18_445_591_152_204_944_769),
            ("2T", 2 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "K",
            ".5K",
            "1.",
            "1.5.5",
            "-1",
            "1 K",
            "4X",
            "16E",
            "18446744073709551616",
            "1e3",
            "é",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    /// Check that both ends of a range can be left out, and that none is empty or endless by accident.
    #[test]
    fn ranges_have_two_ends() {
        assert_eq!(parse_range("4K:8K"), Ok(ByteRange::new(4096, 8192).expect("a range")));
        assert_eq!(parse_range("4K:"), Ok(ByteRange::new(4096, 0).expect("a range")));
        assert_eq!(parse_range(":8K"), Ok(ByteRange::new(0, 8192).expect("a range")));
        assert_eq!(parse_range(":"), Ok(ByteRange::ALL));
        for text in ["", "4K", "4K:0", "1:2:3", "15E:2E", "a:b"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }

    proptest! {
        /// Check that any text is a size or is not, and that whole numbers are themselves.
        #[test]
        fn any_text_is_read(text in ".{0,24}", number in any::<u64>()) {
            let _ = parse_size(&text);
            let _ = parse_range(&text);
            prop_assert_eq!(parse_size(&number.to_string()), Ok(number));
        }
    }
}
