//! The files of a cgroup of the unified hierarchy (`Documentation/admin-guide/cgroup-v2.rst`), and of
//! those of version 1 (`Documentation/admin-guide/cgroup-v1`).

use super::number::decimal;

/// A number, as in `memory.current`.
pub fn number(text: &[u8]) -> Option<u64> {
    decimal(text.trim_ascii())
}

/// A limit, as in `memory.max`. `Some(None)` is `max`, which means no limit.
pub fn limit(text: &[u8]) -> Option<Option<u64>> {
    match text.trim_ascii() {
        b"max" => Some(None),
        digits => Some(Some(decimal(digits)?)),
    }
}

/// A limit, as in `memory.limit_in_bytes`. `Some(None)` is the largest number of whole pages, which
/// means no limit.
pub fn byte_limit(text: &[u8]) -> Option<Option<u64>> {
    const MAX_PAGE_BYTES: u64 = 64 << 10;
    Some(Some(number(text)?).filter(|&limit| limit <= i64::MAX as u64 - MAX_PAGE_BYTES))
}

/// The number after the word at the start of a line, as in `cpu.stat` and `memory.events`.
pub fn value(text: &[u8], word: &[u8]) -> Option<u64> {
    let mut lines = text.split(|&byte| byte == b'\n');
    lines.find_map(|line| decimal(line.strip_prefix(word)?.strip_prefix(b" ")?.trim_ascii()))
}

/// `cpu.max`: the processor time allowed in each period, and the period, both in microseconds.
/// `None` for the first means no limit.
pub fn quota(text: &[u8]) -> Option<(Option<u64>, u64)> {
    let mut words = text.trim_ascii().split(|&byte| byte == b' ');
    let quota = limit(words.next()?)?;
    Some((quota, decimal(words.next()?)?))
}

/// The same from `cpu.cfs_quota_us`, where -1 means no limit, and `cpu.cfs_period_us`.
pub fn quota1(quota: &[u8], period: &[u8]) -> Option<(Option<u64>, u64)> {
    let quota = match quota.trim_ascii() {
        b"-1" => None,
        digits => Some(decimal(digits)?),
    };
    Some((quota, number(period)?))
}

/// The sum over all devices of a number in `io.stat`, such as `rbytes`. The text is empty for a
/// cgroup that has not done any I/O.
pub fn io_sum(text: &[u8], word: &[u8]) -> Option<u64> {
    let values = text
        .split(|&byte| byte == b'\n' || byte == b' ')
        .filter_map(|pair| pair.strip_prefix(word)?.strip_prefix(b"="));
    let mut sum = 0u64;
    for value in values {
        sum = sum.checked_add(decimal(value)?)?;
    }
    Some(sum)
}

/// Whether all tasks are frozen, by an ancestor too: `cgroup.events`, or version 1's
/// `freezer.state`.
pub fn is_frozen(text: &[u8]) -> Option<bool> {
    match text.trim_ascii() {
        b"FROZEN" => Some(true),
        b"FREEZING" | b"THAWED" => Some(false),
        events => Some(value(events, b"frozen")? == 1),
    }
}

/// The share of time that tasks waited for a resource (`Documentation/accounting/psi.rst`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// In percent, over the last 10 seconds.
    pub avg10: f64,
    /// Over the last minute.
    pub avg60: f64,
    /// Over the last five minutes.
    pub avg300: f64,
    /// In microseconds, since the cgroup was made.
    pub total_us: u64,
}

/// A line of a pressure file: `some` if any task waits, `full` if all do.
pub fn pressure(text: &[u8], line: &[u8]) -> Option<Pressure> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let rest = lines.find_map(|other| other.strip_prefix(line)?.strip_prefix(b" "))?;
    let value = |word: &[u8]| {
        let mut pairs = rest.trim_ascii().split(|&byte| byte == b' ');
        pairs.find_map(|pair| pair.strip_prefix(word)?.strip_prefix(b"="))
    };
    let average = |word: &[u8]| -> Option<f64> {
        let text = std::str::from_utf8(value(word)?).ok()?;
        let number: f64 = text.parse().ok()?;
        (0.0..=100.0).contains(&number).then_some(number)
    };
    Some(Pressure {
        avg10: average(b"avg10")?,
        avg60: average(b"avg60")?,
        avg300: average(b"avg300")?,
        total_us: decimal(value(b"total")?)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Check numbers, limits and the numbers of lines, and that an invalid number is not 0.
    #[test]
    fn files_have_numbers() {
        assert_eq!(
            (number(b"4096\n"), number(b"max\n"), number(b"")),
            (Some(4096), None, None)
        );
        assert_eq!(
            (limit(b"max\n"), limit(b"7\n"), limit(b"x")),
            (Some(None), Some(Some(7)), None)
        );
        let limits = [
            &b"9223372036854771712\n"[..],
            b"9223372036854710272\n",
            b"4096\n",
            b"max\n",
        ]
        .map(byte_limit);
        assert_eq!(limits, [Some(None), Some(None), Some(Some(4096)), None]);
        assert_eq!(
            (
                quota1(b"-1\n", b"100000\n"),
                quota1(b"50000\n", b"100000\n"),
                quota1(b"x", b"1")
            ),
            (Some((None, 100_000)), Some((Some(50_000), 100_000)), None)
        );
        let stat = b"usage_usec 12\nuser_usec 5\nnr_throttled 0\n";
        assert_eq!((value(stat, b"user_usec"), value(stat, b"usec")), (Some(5), None));
        assert_eq!(value(stat, b"nr_throttled"), Some(0));
        assert_eq!(
            (quota(b"max 100000\n"), quota(b"50000 100000")),
            (Some((None, 100_000)), Some((Some(50_000), 100_000)))
        );
        assert_eq!(quota(b"50000"), None);
    }

    /// Check both versions, and that Linux before 5.2, whose `cgroup.events` lacks the line, is
    /// not 0.
    #[test]
    fn cgroups_are_frozen() {
        let texts = [
            "populated 1\nfrozen 1\n",
            "populated 1\nfrozen 0\n",
            "populated 1\n",
            "FROZEN\n",
            "FREEZING\n",
            "THAWED\n",
            "",
        ];
        assert_eq!(
            texts.map(|text| is_frozen(text.as_bytes())),
            [
                Some(true),
                Some(false),
                None,
                Some(true),
                Some(false),
                Some(false),
                None
            ]
        );
    }

    /// Check that the numbers of all devices are added up, and that a cgroup without I/O has 0.
    #[test]
    fn devices_are_added_up() {
        let text = b"8:0 rbytes=10 wbytes=5 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=7 wbytes=0\n";
        assert_eq!((io_sum(text, b"rbytes"), io_sum(text, b"wbytes")), (Some(17), Some(5)));
        assert_eq!(
            (io_sum(b"", b"rbytes"), io_sum(b"8:0 rbytes=x", b"rbytes")),
            (Some(0), None)
        );
    }

    /// Check both lines of a pressure file.
    #[test]
    fn pressure_has_two_lines() {
        let text =
            b"some avg10=1.50 avg60=0.20 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n";
        let some = pressure(text, b"some").expect("a line");
        assert_eq!((some.avg10, some.avg60, some.total_us), (1.5, 0.2, 123));
        assert_eq!(pressure(text, b"full").map(|full| full.total_us), Some(4));
        assert_eq!(
            pressure(b"some avg10=x avg60=0.20 avg300=0.00 total=123", b"some"),
            None
        );
        assert_eq!(pressure(b"", b"some"), None);
    }

    proptest! {
        /// Check that any bytes can be parsed.
        #[test]
        fn any_bytes_can_be_parsed(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (number(&text), limit(&text), quota(&text), value(&text, b"a"));
            let _ = (io_sum(&text, b"a"), pressure(&text, b"some"), is_frozen(&text));
        }
    }
}
