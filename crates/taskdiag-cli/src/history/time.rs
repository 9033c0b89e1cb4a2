//! Times as users write them, and as they are shown.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use taskdiag_core::filter;

/// Parses a time: RFC 3339, local date and time, local time of today, or a duration before now,
/// preceded by a minus. Returns nanoseconds since 1970.
pub fn moment(text: &str) -> Result<i64, String> {
    let moment = filter::moment(text, Zoned::now).and_then(|moment| moment.as_nanosecond().try_into().ok());
    moment.ok_or_else(|| {
        format!(
            "{text:?} is not a time: give 2026-11-23T03:12:00Z, \"2026-11-23 03:12\" or 03:12 by the local clock, or \
             -2h for so long ago"
        )
    })
}

/// Formats a time for people, in local time.
pub fn shown(wall_ns: i64) -> String {
    local(wall_ns, "%Y-%m-%d %H:%M:%S")
}

/// As [`shown`], to the millisecond.
pub fn precise(wall_ns: i64) -> String {
    local(wall_ns, "%Y-%m-%d %H:%M:%S.%3f")
}

fn local(wall_ns: i64, format: &str) -> String {
    let timestamp = Timestamp::from_nanosecond(wall_ns.into()).unwrap_or_default();
    timestamp.to_zoned(TimeZone::system()).strftime(format).to_string()
}

/// Formats a time for programs: RFC 3339 in UTC, to the millisecond.
pub fn exact(wall_ns: i64) -> String {
    format!("{:.3}", Timestamp::from_nanosecond(wall_ns.into()).unwrap_or_default())
}
