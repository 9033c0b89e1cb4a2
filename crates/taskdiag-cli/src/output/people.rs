//! Numbers for people: sizes, times, dates, terminals.

use std::io::Write;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use rustix::time::ClockId;
use taskdiag_sys::host::now_ns;

use super::text;
use crate::history;

const SECOND: u64 = 1_000_000_000;

/// Appends a number.
#[inline]
pub fn number(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a number with at least `width` digits.
fn padded(out: &mut Vec<u8>, value: u64, width: usize) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value);
    out.resize(out.len() + width.saturating_sub(digits.len()), b'0');
    out.extend_from_slice(digits.as_bytes());
}

/// Appends a number of bytes in the largest binary unit in which it is at least 1: `12.3M`.
pub fn size(out: &mut Vec<u8>, bytes: u64) {
    const UNITS: &[u8; 6] = b"KMGTPE";
    if bytes < 1024 {
        number(out, bytes);
        return out.push(b'B');
    }
    let mut unit = ((63 - bytes.leading_zeros()) / 10).min(6);
    // Rounded. The remainder is below 2^60, so ten times the remainder fits.
    let tenths = |unit: u32| {
        let left = bytes & ((1 << (unit * 10)) - 1);
        (bytes >> (unit * 10)) * 10 + ((left * 10 + (1 << (unit * 10 - 1))) >> (unit * 10))
    };
    if tenths(unit) >= 10_240 && unit < 6 {
        unit += 1;
    }
    let tenths = tenths(unit);
    number(out, tenths / 10);
    out.extend_from_slice(&[b'.', b'0' + (tenths % 10) as u8, UNITS[unit as usize - 1]]);
}

/// The same as a text.
pub fn size_text(bytes: u64) -> String {
    text::written(|out| size(out, bytes))
}

/// Appends a time span as `[dd-]hh:mm:ss`.
pub fn duration(out: &mut Vec<u8>, ns: u64) {
    let seconds = ns / SECOND;
    let days = seconds / 86_400;
    if days > 0 {
        padded(out, days, 2);
        out.push(b'-');
    }
    padded(out, seconds / 3600 % 24, 2);
    out.push(b':');
    padded(out, seconds / 60 % 60, 2);
    out.push(b':');
    padded(out, seconds % 60, 2);
}

/// Appends a time span as `[dd-]hh:mm:ss.mmm`; below a millisecond as `0.mmmms`, below a microsecond
/// in nanoseconds, so that only nothing looks like nothing.
pub fn exact_duration(out: &mut Vec<u8>, ns: u64) {
    match ns {
        0 | 1_000_000.. => {}
        1..1_000 => {
            number(out, ns);
            return out.extend_from_slice(b"ns");
        }
        _ => {
            out.extend_from_slice(b"0.");
            padded(out, ns / 1000, 3);
            return out.extend_from_slice(b"ms");
        }
    }
    duration(out, ns);
    out.push(b'.');
    padded(out, ns % SECOND / 1_000_000, 3);
}

/// Appends the name of the terminal with this device number: `pts/3`, `tty1`. Like ps, `?` if there
/// is none.
pub fn terminal(out: &mut Vec<u8>, device: u32) {
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let (name, number_from): (&[u8], u32) = match (major, minor) {
        (0, 0) => return out.push(b'?'),
        (4, 0..=63) => (b"tty", 0),
        (4, _) => (b"ttyS", 64),
        (5, 0) => return out.extend_from_slice(b"tty"),
        (5, 1) => return out.extend_from_slice(b"console"),
        // Pseudo-terminals: 256 per major number.
        (136..=143, _) => {
            out.extend_from_slice(b"pts/");
            return number(out, minor + (major - 136) * 256);
        }
        (166, _) => (b"ttyACM", 0),
        (188, _) => (b"ttyUSB", 0),
        (204, 64..) => (b"ttyAMA", 64),
        (229, _) => (b"hvc", 0),
        _ => {
            number(out, major);
            out.push(b':');
            return number(out, minor);
        }
    };
    out.extend_from_slice(name);
    number(out, minor - number_from);
}

/// The wall clock. Converts times since boot to dates.
#[derive(Debug)]
pub struct Clock {
    zone: TimeZone,
    /// The time of boot, in nanoseconds since 1970.
    boot_ns: i128,
    now: Zoned,
}

impl Clock {
    /// The clock of this host, or the clock of a recording at its moment, in the caller's time
    /// zone.
    pub fn new() -> Clock {
        let (now_ns, since_boot_ns): (i128, u64) = match history::shown() {
            Some(moment) => (moment.time.wall_ns.into(), moment.time.boot_ns),
            None => (now_ns(ClockId::Realtime).into(), now_ns(ClockId::Boottime)),
        };
        let zone = TimeZone::system();
        Clock {
            now: timestamp(now_ns).to_zoned(zone.clone()),
            boot_ns: now_ns - i128::from(since_boot_ns),
            zone,
        }
    }

    /// The same clock for times in whole seconds, as if the machine had booted at the start of a
    /// second.
    pub fn in_whole_seconds(mut self) -> Clock {
        self.boot_ns -= self.boot_ns.rem_euclid(SECOND.into());
        self
    }

    /// Appends the date and time at this time since boot: `2026-11-21 19:58:03`.
    pub fn date(&self, out: &mut Vec<u8>, since_boot_ns: i64) {
        self.write_as(out, "%Y-%m-%d %H:%M:%S", since_boot_ns);
    }

    /// Appends a time in RFC 3339 as the local date and time, with milliseconds if it has these.
    pub fn local(&self, out: &mut Vec<u8>, utc: &[u8]) {
        let (utc, digits) = (String::from_utf8_lossy(utc), if utc.contains(&b'.') { 3 } else { 0 });
        let local = |then: Timestamp| format!("{:.digits$}", self.zone.to_datetime(then)).replace('T', " ");
        text::escape(out, utc.parse().map_or(utc.to_string(), local).as_bytes());
    }

    /// Appends the time of day with milliseconds: `19:58:03.123`.
    pub fn time_of_day(&self, out: &mut Vec<u8>, since_boot_ns: i64) {
        self.write_as(out, "%H:%M:%S.%3f", since_boot_ns);
    }

    /// Appends the time in five characters, like ps: the time for today, the day for this year, or
    /// the year. Each row of many tables has one, so it is not [written as a format says](Clock::write_as).
    pub fn short_date(&self, out: &mut Vec<u8>, since_boot_ns: i64) {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let then = self.civil(since_boot_ns);
        if then.date() == self.now.date() {
            padded(out, then.hour().unsigned_abs().into(), 2);
            out.push(b':');
            padded(out, then.minute().unsigned_abs().into(), 2);
        } else if then.year() == self.now.year() {
            out.extend_from_slice(MONTHS[usize::from(then.month().unsigned_abs()) - 1].as_bytes());
            padded(out, then.day().unsigned_abs().into(), 2);
        } else {
            padded(out, then.year().unsigned_abs().into(), 4);
        }
    }

    /// Appends the local time at this time since boot, in a format of strftime(3).
    pub fn write_as(&self, out: &mut Vec<u8>, format: &str, since_boot_ns: i64) {
        let _ = write!(out, "{}", self.civil(since_boot_ns).strftime(format));
    }

    /// The local date and time at this time since boot.
    fn civil(&self, since_boot_ns: i64) -> DateTime {
        self.zone
            .to_datetime(timestamp(self.boot_ns + i128::from(since_boot_ns)))
    }
}

fn timestamp(ns: i128) -> Timestamp {
    Timestamp::from_nanosecond(ns).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("numbers are ASCII")
    }

    /// Check sizes around the changes of unit.
    #[test]
    fn sizes_change_unit_where_they_round() {
        let cases = [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0K"),
            (12_900_000, "12.3M"),
            ((1 << 20) - 1, "1.0M"),
            ((1 << 30) - (1 << 20), "1023.0M"),
            (u64::MAX, "16.0E"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(text(|out| size(out, bytes)), expected, "{bytes}");
        }
    }

    /// Check time spans with and without days.
    #[test]
    fn durations_read_like_those_of_ps() {
        assert_eq!(text(|out| duration(out, 59 * SECOND + 999_999_999)), "00:00:59");
        assert_eq!(text(|out| duration(out, 90_061 * SECOND)), "01-01:01:01");
        assert_eq!(text(|out| exact_duration(out, 1_002_999_999)), "00:00:01.002");
    }

    /// Check the names of common terminals.
    #[test]
    fn terminals_have_the_names_of_their_files() {
        let device = |major: u32, minor: u32| minor & 0xff | major << 8 | (minor & !0xff) << 12;
        for (device, expected) in [
            (0, "?"),
            (device(136, 3), "pts/3"),
            (device(136, 300), "pts/300"),
            (device(4, 1), "tty1"),
            (device(4, 64), "ttyS0"),
            (device(5, 1), "console"),
            (device(250, 7), "250:7"),
        ] {
            assert_eq!(text(|out| terminal(out, device)), expected);
        }
    }

    /// Check that dates are counted from boot, and that dates of today are shown as times.
    #[test]
    fn dates_count_from_boot() {
        let now: Timestamp = "2026-11-21T19:58:03Z".parse().expect("a time");
        let now = now.to_zoned(TimeZone::UTC);
        let clock = Clock {
            zone: TimeZone::UTC,
            boot_ns: now.timestamp().as_nanosecond() - 400 * 86_400 * i128::from(SECOND),
            now,
        };
        let day = 86_400 * SECOND as i64;
        for (utc, local) in [
            ("2026-11-23T03:12:05Z", "2026-11-23 03:12:05"),
            ("2026-11-23T03:12:05.500Z", "2026-11-23 03:12:05.500"),
            ("no time\n", "no time\\n"),
        ] {
            assert_eq!(text(|out| clock.local(out, utc.as_bytes())), local);
        }
        assert_eq!(text(|out| clock.date(out, 400 * day)), "2026-11-21 19:58:03");
        assert_eq!(
            text(|out| clock.time_of_day(out, 400 * day + 7_654_321)),
            "19:58:03.007"
        );
        assert_eq!(text(|out| clock.short_date(out, 400 * day)), "19:58");
        assert_eq!(text(|out| clock.short_date(out, 399 * day)), "Nov20");
        assert_eq!(text(|out| clock.short_date(out, 0)), "2025");
        assert_eq!(
            text(|out| clock.date(out, 400 * day + 2 * 60 * SECOND as i64)),
            "2026-11-21 20:00:03"
        );
    }
}
