//! Sizes, ranges and times as people write them on the command line.
//!
//! These are value parsers for clap, which names the option in its message.

use std::time::Duration;

use taskdiag::pagecache::ByteRange;
use taskdiag_core::filter::binary_unit;

/// The longest time: over a century, so that a multiple of it can be added to any time.
const MAX_TIME: Duration = Duration::from_secs(u32::MAX as u64);

/// Parses a size: a number of bytes, or a number with a binary unit: `4096`, `4K`, `1.5G`, `2TiB`.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size: give bytes, or a number with K, M, G, T, P or E, like 4K or 1.5G");
    let (number, unit) = number_and_unit(text);
    let shift = binary_unit(unit).ok_or_else(wrong)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let (Ok(whole), true) = (
        whole.parse::<u64>(),
        !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit()),
    ) else {
        return Err(wrong());
    };
    // Further digits are below one byte in any unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let parts: u128 = fraction.parse().map_err(|_| wrong())?;
    let bytes = (u128::from(whole) << shift) + (parts << shift) / 10_u128.pow(fraction.len() as u32);
    u64::try_from(bytes).map_err(|_| format!("{text:?} is too much: all sizes are below 16E"))
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let digits = text.find(|character: char| !(character.is_ascii_digit() || character == '.'));
    text.split_at(digits.unwrap_or(text.len()))
}

/// Parses a size, or `none` for no limit.
pub fn size_or_none(text: &str) -> Result<Limit<u64>, String> {
    limit(text, size)
}

/// Parses a range: `OFF:LEN`, `OFF:` to the end, or `:LEN` from the start.
pub fn range(text: &str) -> Result<ByteRange, String> {
    let Some((offset, len)) = text.split_once(':') else {
        return Err(format!(
            "{text:?} is not a range: give OFF:LEN, like 1G:64M; either number may be left out"
        ));
    };
    let or_zero = |part: &str| if part.is_empty() { Ok(0) } else { size(part) };
    let (offset, bytes) = (or_zero(offset)?, or_zero(len)?);
    if bytes == 0 && !len.is_empty() {
        return Err("a range of 0 bytes has no pages: leave out LEN to reach the end of the file".to_owned());
    }
    ByteRange::new(offset, bytes).ok_or_else(|| format!("{text:?} ends beyond 64 bits"))
}

/// Parses a process id.
pub fn pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|&pid| pid > 0);
    pid.ok_or_else(|| format!("{text:?} is not a process id, which is a number like 1234"))
}

/// Parses a time: seconds, or a number with a unit: `5`, `0.2`, `200ms`, `2m`, `1h`, `7d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("{text:?} is not a time: give seconds, or a number with ms, s, m, h or d, like 0.5 or 200ms");
    let (number, unit) = number_and_unit(text);
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(number * scale).ok();
    time.filter(|&time| time <= MAX_TIME)
        .ok_or_else(|| format!("{text:?} is too long a time"))
}

/// Parses a time, or `none` for no limit.
pub fn duration_or_none(text: &str) -> Result<Limit<Duration>, String> {
    limit(text, duration)
}

/// Parses how many samples or events to wait for.
pub fn count(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|&count| count > 0);
    count.ok_or_else(|| "give a whole number from 1 on".to_owned())
}

/// Parses an interval to sleep or to wait for an answer: at least 10 ms.
pub fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < Duration::from_millis(10) {
        Err("the shortest time is 0.01 seconds".to_owned())
    } else {
        Ok(interval)
    }
}

/// Parses a part of the time, in percent: `2%`.
pub fn percentage(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).parse() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err(format!("{text:?} is not a part of the time: give a percentage like 2%")),
    }
}

/// A limit, or none. Not an `Option`, because clap treats an `Option` as an optional argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<T>(pub Option<T>);

fn limit<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Limit<T>, String> {
    if text == "none" {
        return Ok(Limit(None));
    }
    let value = parse(text).map_err(|message| format!("{message}, or none"))?;
    Ok(Limit(Some(value)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Check sizes with and without units, and texts that are not sizes.
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
            assert_eq!(size(text), Ok(bytes), "{text}");
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
            assert!(size(text).is_err(), "{text}");
        }
    }

    /// Check that either end of a range can be left out, and that no range becomes empty or endless
    /// by accident.
    #[test]
    fn ranges_have_two_ends() {
        assert_eq!(range("4K:8K"), Ok(ByteRange::new(4096, 8192).expect("a range")));
        assert_eq!(range("4K:"), Ok(ByteRange::new(4096, 0).expect("a range")));
        assert_eq!(range(":8K"), Ok(ByteRange::new(0, 8192).expect("a range")));
        assert_eq!(range(":"), Ok(ByteRange::ALL));
        for text in ["", "4K", "4K:0", "1:2:3", "15E:2E", "a:b"] {
            assert!(range(text).is_err(), "{text}");
        }
    }

    /// Check that only numbers are process ids.
    #[test]
    fn process_ids_are_numbers() {
        assert_eq!(pid("1234"), Ok(1234));
        for text in ["", "x", "-1", "1x", "4294967296"] {
            assert!(
                pid(text).is_err_and(|error| error.contains("not a process id")),
                "{text}"
            );
        }
    }

    /// Check times with and without units, the shortest interval, limits, and texts that are not
    /// times.
    #[test]
    fn times_have_units() {
        let cases = [
            ("0", 0),
            ("2", 2_000),
            ("0.5", 500),
            (".5", 500),
            ("1.", 1_000),
            ("200ms", 200),
            ("1.5s", 1_500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
        ];
        for (text, milliseconds) in cases {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in [
            "", ".", "s", "-1", "1 s", "1e3", "inf", "NaN", "1w", "1S", "1ms5", "é", "1.5.5",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        for long in ["9".repeat(40), "4294967296".to_owned(), "49711d".to_owned()] {
            assert!(duration(&long).is_err_and(|error| error.contains("too long")), "{long}");
        }
        assert!(interval("9ms").is_err());
        assert_eq!(interval("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration_or_none("none"), Ok(Limit(None)));
        assert_eq!(duration_or_none("1"), Ok(Limit(Some(Duration::from_secs(1)))));
        assert!(duration_or_none("soon").is_err_and(|error| error.ends_with(", or none")));
        assert_eq!(size_or_none("1K"), Ok(Limit(Some(1024))));
    }

    proptest! {
        /// Check that no text causes a panic, and that whole numbers keep their value.
        #[test]
        fn any_text_is_parsed(text in ".{0,24}", number in any::<u64>(), seconds in any::<u32>()) {
            let _ = (size(&text), range(&text), duration(&text));
            prop_assert_eq!(size(&number.to_string()), Ok(number));
            prop_assert_eq!(duration(&seconds.to_string()), Ok(Duration::from_secs(seconds.into())));
        }
    }
}
