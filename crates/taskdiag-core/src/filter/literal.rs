//! The literals of an expression: numbers with units, and times.

use jiff::civil::{DateTime, Time};
use jiff::{SignedDuration, Timestamp, Zoned};

use super::comparison::Class;
use crate::field::shortened;

/// No valid number with its unit has more characters.
const MAX_CHARS: usize = 64;

/// Digits after the point. More would not change a value, but could overflow.
const MAX_DECIMALS: usize = 18;

/// A decimal or hexadecimal number with a unit that fits the class.
pub(super) fn number(text: &str, class: Class) -> Result<i128, String> {
    let not_a_number = || format!("{:?} is not a number of 64 bits", shortened(text));
    if text.len() > MAX_CHARS {
        return Err(not_a_number());
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (radix, digits) = match digits.strip_prefix("0x") {
        Some(digits) => (16, digits),
        None => (10, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let (decimals, unit) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let factor = factor(class, unit)?;
    let whole = u64::from_str_radix(whole, radix).map_err(|_| not_a_number())?;
    let value = i128::from(whole) * factor + fraction(decimals, factor)?;
    Ok(sign * value)
}

/// The part of a unit that the decimals stand for, rounded to a whole number.
fn fraction(decimals: &str, factor: i128) -> Result<i128, String> {
    if decimals.is_empty() {
        return Ok(0);
    }
    if factor == 1 {
        return Err("only numbers with a unit, and percentages, have a fraction".to_owned());
    }
    if decimals.len() > MAX_DECIMALS {
        return Err(format!("a fraction has at most {MAX_DECIMALS} digits"));
    }
    let parts: i128 = decimals.parse().map_err(|_| "not a fraction".to_owned())?;
    let whole = 10_i128.pow(decimals.len() as u32);
    Ok((parts * factor + whole / 2) / whole)
}

/// The number of bytes or nanoseconds in a unit, or of thousandths in a percent.
fn factor(class: Class, unit: &str) -> Result<i128, String> {
    Ok(match (class, unit) {
        (Class::Percent, "") => 1000,
        (_, "") => 1,
        (Class::Nanoseconds, "ns") => 1,
        (Class::Nanoseconds, "us") => 1_000,
        (Class::Nanoseconds, "ms") => 1_000_000,
        (Class::Nanoseconds, "s") => 1_000_000_000,
        (Class::Nanoseconds, "m") => 60_000_000_000,
        (Class::Nanoseconds, "h") => 3_600_000_000_000,
        (Class::Nanoseconds, "d") => 86_400_000_000_000,
        (Class::Bytes, unit) => {
            let shift = binary_unit(unit);
            1 << shift.ok_or_else(|| format!("the units of bytes are K, M, G, T, P and E, not {unit:?}"))?
        }
        (Class::Nanoseconds, unit) => {
            return Err(format!("the units of time are ns, us, ms, s, m, h and d, not {unit:?}"))
        }
        (_, unit) => return Err(format!("this number has no unit such as {unit:?}")),
    })
}

/// The power of two that a unit of sizes stands for: `K`, `kB` and `KiB` are 10.
pub fn binary_unit(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_uppercase();
    let letter = unit.strip_suffix("IB").filter(|letter| !letter.is_empty());
    let letter = letter.or(unit.strip_suffix('B')).unwrap_or(&unit);
    let units = ["", "K", "M", "G", "T", "P", "E"];
    Some(units.iter().position(|unit| *unit == letter)? as u32 * 10)
}

/// A time as people write it: RFC 3339, local date and time, local time of today, `now`, or a duration
/// before now, preceded by a minus.
pub fn moment(text: &str, now: impl FnOnce() -> Zoned) -> Option<Timestamp> {
    let text = text.trim();
    // The parsers would pass over a time zone in brackets.
    if text.contains('[') {
        return None;
    }
    if let Ok(timestamp) = text.parse() {
        return Some(timestamp);
    }
    // Try this before the time of day, which would parse from a date and time, too.
    let date_and_time = text.parse::<DateTime>();
    let now = now();
    if text == "now" {
        return Some(now.timestamp());
    }
    if let Some(ago) = text.strip_prefix('-') {
        let unit = ["", "s"][usize::from(ago.ends_with(|last: char| last.is_ascii_digit()))];
        let ago = number(&format!("{ago}{unit}"), Class::Nanoseconds).ok()?;
        let ago = SignedDuration::from_nanos(u64::try_from(ago).ok()?.try_into().ok()?);
        return now.timestamp().checked_sub(ago).ok();
    }
    let local = date_and_time.or_else(|_| text.parse::<Time>().map(|time| now.date().to_datetime(time)));
    Some(local.ok()?.to_zoned(now.time_zone().clone()).ok()?.timestamp())
}

/// A time in the form of time fields: RFC 3339 in UTC with whole seconds, so that a later time
/// compares as larger.
pub(super) fn time(text: &str, now: impl FnOnce() -> Zoned) -> Result<Vec<u8>, String> {
    let wrong = || {
        let text = shortened(text);
        format!("{text:?} is not a time such as '2026-11-23 03:12', '03:12' (local), '2026-11-23T03:12:00Z' or '-2h'")
    };
    let whole = |now: Zoned| now.with().subsec_nanosecond(0).build().unwrap_or(now);
    let timestamp = moment(text, || whole(now())).ok_or_else(wrong)?;
    if timestamp.subsec_nanosecond() != 0 {
        return Err("times are compared in whole seconds".to_owned());
    }
    let text = timestamp.to_string();
    // Another length means a year that is negative or too large to be compared as text.
    if text.len() == "2026-11-23T03:12:00Z".len() {
        Ok(text.into_bytes())
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that units multiply, and that fractions are of the unit.
    #[test]
    fn numbers_have_units() {
        for (text, class, value) in [
            ("2K", Class::Bytes, 2048),
            ("1.5G", Class::Bytes, 3 << 29),
            ("0.5K", Class::Bytes, 512),
            ("0.0001K", Class::Bytes, 0),
            ("1.001K", Class::Bytes, 1025),
            ("1.0006K", Class::Bytes, 1025),
            ("3M", Class::Bytes, 3 << 20),
            ("3T", Class::Bytes, 3 << 40),
            ("100MB", Class::Bytes, 100 << 20),
            ("100MiB", Class::Bytes, 100 << 20),
            ("100kB", Class::Bytes, 100 << 10),
            ("1.5g", Class::Bytes, 3 << 29),
            ("7B", Class::Bytes, 7),
            (
                "18446744073709551615.5E",
                Class::Bytes,
                (u64::MAX as i128 * 2 + 1) << 59,
            ),
            ("-3", Class::Number, -3),
            ("0xff", Class::Mask, 255),
            ("5ms", Class::Nanoseconds, 5_000_000),
            ("1.5s", Class::Nanoseconds, 1_500_000_000),
            ("2d", Class::Nanoseconds, 172_800_000_000_000),
            ("7ns", Class::Nanoseconds, 7),
            ("1.000000000000000001s", Class::Nanoseconds, 1_000_000_000),
            ("12.5", Class::Percent, 12_500),
            ("100", Class::Percent, 100_000),
        ] {
            assert_eq!(number(text, class), Ok(value), "{text}");
        }
        for (text, class) in [
            ("-", Class::Number),
            ("0x", Class::Number),
            ("1.5", Class::Bytes),
            ("1.5", Class::Number),
            ("5K", Class::Number),
            ("5s", Class::Bytes),
            ("5iB", Class::Bytes),
            ("5Ki", Class::Bytes),
            ("5MS", Class::Nanoseconds),
            ("1.5x", Class::Nanoseconds),
            ("1.0000000000000000001s", Class::Nanoseconds),
            ("99999999999999999999", Class::Bytes),
        ] {
            assert!(number(text, class).is_err(), "{text}");
        }
        assert_eq!(number(&"0".repeat(MAX_CHARS), Class::Number), Ok(0));
        assert!(number(&"0".repeat(MAX_CHARS + 1), Class::Number).is_err());
    }

    /// Check that times are converted to UTC, from local time, from an offset, or from now.
    #[test]
    fn times_come_out_in_utc() {
        let time = |text: &str| {
            let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(2));
            let now = "2026-11-23T10:00:00.5Z".parse::<Timestamp>().unwrap().to_zoned(zone);
            super::time(text, || now).map(|time| String::from_utf8(time).unwrap())
        };
        for (text, utc) in [
            ("2026-11-23 03:12", "2026-11-23T01:12:00Z"),
            ("2026-11-23", "2026-11-22T22:00:00Z"),
            ("2026-11-23T03:12:05", "2026-11-23T01:12:05Z"),
            ("2026-11-23T03:12:05Z", "2026-11-23T03:12:05Z"),
            ("2026-11-23T03:12:05-05:00", "2026-11-23T08:12:05Z"),
            ("03:12", "2026-11-23T01:12:00Z"),
            (" 10:30:05", "2026-11-23T08:30:05Z"),
            ("now", "2026-11-23T10:00:00Z"),
            ("-2h", "2026-11-23T08:00:00Z"),
            ("-90", "2026-11-23T09:58:30Z"),
            ("-1.5m", "2026-11-23T09:58:30Z"),
        ] {
            assert_eq!(time(text), Ok(utc.to_owned()), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "25:00",
            "-",
            "-x",
            "--2h",
            "-0.3s",
            "-9999999999h",
            "2026-13-01",
            "2026-11-23T03:12:05.5Z",
            "-000100-01-01",
            "2026-11-23 03:12[America/New_York]",
            "2026-11-23T03:12:05Z[UTC]",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
