//! Times as users write them, and as they are shown.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::quantity;

/// Parses a time: RFC 3339, local date and time, local time of today, or a duration before now,
/// preceded by a minus. Returns nanoseconds since 1970.
pub fn moment(text: &str) -> Result<i64, String> {
    parse(text, &Zoned::now()).ok_or_else(|| {
        format!(
            "{text:?} is not a time: give 2026-11-23T03:12:00Z, \"2026-11-23 03:12\" or 03:12 by the local clock, or \
             -2h for so long ago"
        )
    })
}

fn parse(text: &str, now: &Zoned) -> Option<i64> {
    let text = text.trim();
    // The parsers would pass over a time zone in brackets.
    if text.contains('[') {
        return None;
    }
    if text == "now" {
        return nanoseconds(now.timestamp());
    }
    if let Some(ago) = text.strip_prefix('-') {
        let ago = i64::try_from(quantity::duration(ago).ok()?.as_nanos()).ok()?;
        return nanoseconds(now.timestamp())?.checked_sub(ago);
    }
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return nanoseconds(timestamp);
    }
    // Try this first: the time of day would parse from a date and time, too.
    let local: DateTime = match text.parse() {
        Ok(local) => local,
        Err(_) => now.date().to_datetime(text.parse::<Time>().ok()?),
    };
    nanoseconds(local.to_zoned(now.time_zone().clone()).ok()?.timestamp())
}

fn nanoseconds(timestamp: Timestamp) -> Option<i64> {
    i64::try_from(timestamp.as_nanosecond()).ok()
}

/// Formats a time for people, in local time.
pub fn shown(wall_ns: i64) -> String {
    let timestamp = Timestamp::from_nanosecond(wall_ns.into()).unwrap_or_default();
    timestamp
        .to_zoned(TimeZone::system())
        .strftime("%Y-%m-%d %H:%M:%S")
        .to_string()
}

/// As [`shown`], to the millisecond.
pub fn precise(wall_ns: i64) -> String {
    format!(
        "{}.{:03}",
        shown(wall_ns),
        wall_ns.div_euclid(1_000_000).rem_euclid(1000)
    )
}

/// Formats a time for programs: RFC 3339 in UTC, to the millisecond.
pub fn exact(wall_ns: i64) -> String {
    format!("{:.3}", Timestamp::from_nanosecond(wall_ns.into()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use jiff::tz::offset;

    use super::*;

    /// Check every format, and invalid texts.
    #[test]
    fn moments_have_many_forms() {
        let zone = TimeZone::fixed(offset(1));
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let now = at("2026-11-23T10:00:00Z").to_zoned(zone);
        for (text, meant) in [
            ("2026-11-23T03:12:00Z", "2026-11-23T03:12:00Z"),
            ("2026-11-23T03:12:00+01:00", "2026-11-23T02:12:00Z"),
            ("2026-11-23 03:12", "2026-11-23T02:12:00Z"),
            ("2026-11-22T03:12:05.5", "2026-11-22T02:12:05.5Z"),
            ("03:12", "2026-11-23T02:12:00Z"),
            ("-2h", "2026-11-23T08:00:00Z"),
            ("-90", "2026-11-23T09:58:30Z"),
            ("now", "2026-11-23T10:00:00Z"),
        ] {
            assert_eq!(parse(text, &now), nanoseconds(at(meant)), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "2026-13-01",
            "25:00",
            "-",
            "-x",
            "2026-11-23 03:12[Asia/Tokyo]",
        ] {
            assert_eq!(parse(text, &now), None, "{text}");
        }
    }
}
