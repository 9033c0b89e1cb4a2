//! Turns the files of a cgroup into values of the page.

use taskdiag::{Absent, Value};
use taskdiag_core::text::cgroup::{self, Pressure};

use super::page::{limit, Cell};
use crate::choice::distinct;
use crate::output::owned::OwnedValue;
use crate::output::relation::{columns, ColumnInfo};

/// The text of a file, or why it is missing.
pub type Text = Result<Vec<u8>, Absent>;

/// How to read a number from a text.
#[derive(Clone, Copy, Debug)]
enum Read {
    /// The whole text.
    Number,
    /// The whole text, which may be `max`.
    Limit,
    /// The whole text, which may be the largest number of whole pages.
    ByteLimit,
    /// The number after a word.
    Value(&'static [u8]),
    /// The number after a word, in microseconds.
    Microseconds(&'static [u8]),
    /// The first number as a percentage of the second.
    Quota,
    /// A sum over all devices.
    Io(&'static [u8]),
    /// The whole text, as a percentage of the number in another file.
    QuotaOf(&'static str),
    /// Whether the text says that all tasks are frozen.
    Frozen,
}

/// A file of the unified hierarchy, and one of version 1 that has the same figure.
type Figure = ((&'static str, Read), (&'static str, Read));

/// Version 1 has no such figure, or has it in a file of the same name. What `blkio` counts depends on
/// the kernel and on the device's scheduler.
const NONE: (&str, Read) = ("", Read::Number);

/// Figures, each with its column and its source: a file and how to read it, and of version 1, if it
/// has the figure, the same.
macro_rules! figures {
    ($($name:literal: $kind:ident, $meaning:literal =>
        ($file:literal, $read:expr)$(, ($other:literal, $other_read:expr))?;)*) => {
        /// The figures of a cgroup.
        pub const CGROUP_USE: [ColumnInfo; FIGURES.len()] = columns! { $($name: $kind, $meaning;)* };

        /// The source of each value of [`CGROUP_USE`]. Version 1 is described in
        /// `Documentation/admin-guide/cgroup-v1`.
        const FIGURES: [Figure; [$($name),*].len()] = {
            use Read::*;
            [$((($file, $read), [$(($other, $other_read),)? NONE][0])),*]
        };
    };
}

figures! {
    "frozen": Flag, "Whether all its tasks are frozen: cgroup.events, frozen." =>
        ("cgroup.events", Frozen), ("freezer.state", Frozen);
    "memory_bytes": Bytes, "memory.current" => ("memory.current", Number), ("memory.usage_in_bytes", Number);
    "memory_peak_bytes": Bytes, "memory.peak" => ("memory.peak", Number), ("memory.max_usage_in_bytes", Number);
    "memory_high_bytes": Bytes, "memory.high: above it, processes are throttled." => ("memory.high", Limit);
    "memory_max_bytes": Bytes, "memory.max: above, processes are killed." =>
        ("memory.max", Limit), ("memory.limit_in_bytes", ByteLimit);
    "swap_bytes": Bytes, "memory.swap.current" =>
        ("memory.swap.current", Number), ("memory.stat", Value(b"total_swap"));
    "swap_max_bytes": Bytes, "memory.swap.max" => ("memory.swap.max", Limit);
    "oom_kills_count": Count, "memory.events, oom_kill" =>
        ("memory.events", Value(b"oom_kill")), ("memory.oom_control", Value(b"oom_kill"));
    "cpu_ns": Nanoseconds, "cpu.stat, usage_usec" =>
        ("cpu.stat", Microseconds(b"usage_usec")), ("cpuacct.usage", Number);
    "cpu_user_ns": Nanoseconds, "cpu.stat, user_usec" =>
        ("cpu.stat", Microseconds(b"user_usec")), ("cpuacct.usage_user", Number);
    "cpu_system_ns": Nanoseconds, "cpu.stat, system_usec" =>
        ("cpu.stat", Microseconds(b"system_usec")), ("cpuacct.usage_sys", Number);
    "cpu_max_percent": Percent, "cpu.max, in percent of one processor" =>
        ("cpu.max", Quota), ("cpu.cfs_quota_us", QuotaOf("cpu.cfs_period_us"));
    "throttled_count": Count, "cpu.stat, nr_throttled" => ("cpu.stat", Value(b"nr_throttled"));
    "throttled_ns": Nanoseconds, "cpu.stat, throttled_usec" =>
        ("cpu.stat", Microseconds(b"throttled_usec")), ("cpu.stat", Value(b"throttled_time"));
    "read_bytes": Bytes, "io.stat, rbytes of all devices" => ("io.stat", Io(b"rbytes"));
    "write_bytes": Bytes, "io.stat, wbytes of all devices" => ("io.stat", Io(b"wbytes"));
    "read_count": Count, "io.stat, rios of all devices" => ("io.stat", Io(b"rios"));
    "write_count": Count, "io.stat, wios of all devices" => ("io.stat", Io(b"wios"));
    "tasks_count": Count, "pids.current" => ("pids.current", Number);
    "tasks_max_count": Count, "pids.max" => ("pids.max", Limit);
}

/// The pressure files, each with its resource.
const PRESSURES: [(&str, &str); 3] = [
    ("cpu.pressure", "cpu"),
    ("memory.pressure", "memory"),
    ("io.pressure", "io"),
];

/// The files to read, in the order that [`used`] and [`pressures`] expect.
pub fn files() -> Vec<&'static str> {
    let figures = FIGURES.iter().flat_map(|(unified, other)| [unified.0, other.0]);
    let pressures = PRESSURES.iter().map(|(file, _)| *file);
    let files = figures.chain(pressures).chain(["cpu.cfs_period_us"]);
    distinct(files.filter(|file| !file.is_empty()))
}

fn text<'a>(texts: &'a [Text], file: &str) -> Result<&'a [u8], Absent> {
    let at = files().iter().position(|other| *other == file);
    let text = at.and_then(|at| texts.get(at)).ok_or(Absent::NotAsked)?;
    text.as_deref().map_err(|reason| *reason)
}

/// The values of [`CGROUP_USE`].
pub fn used(texts: &[Text]) -> Vec<Cell> {
    let figures = FIGURES.iter().map(|&(unified, other)| match figure(texts, unified) {
        Err(UNSUPPORTED) => figure(texts, other),
        // Each hierarchy freezes its own cgroups.
        Ok(known) if known.value() == Value::Flag(false) => match figure(texts, other) {
            Err(UNSUPPORTED) => Ok(known),
            other => other,
        },
        known => known,
    });
    figures.collect()
}

/// For what this kernel or this cgroup does not have.
pub const UNSUPPORTED: &str = "unsupported";

fn figure(texts: &[Text], (file, read): (&str, Read)) -> Cell {
    if file.is_empty() {
        return Err(UNSUPPORTED);
    }
    let text = |file| text(texts, file).map_err(Absent::as_str);
    let of_file = text(file)?;
    let percent = |(quota, period): (Option<u64>, u64)| match quota {
        Some(quota) => OwnedValue::Float(quota as f64 * 100.0 / period.max(1) as f64),
        None => limit(None),
    };
    let value = |word| cgroup::value(of_file, word);
    let known = match read {
        Read::Number => cgroup::number(of_file).map(OwnedValue::Unsigned),
        Read::Limit => cgroup::limit(of_file).map(limit),
        Read::ByteLimit => cgroup::byte_limit(of_file).map(limit),
        Read::Value(word) => value(word).map(OwnedValue::Unsigned),
        Read::Microseconds(word) => value(word)
            .and_then(|us| us.checked_mul(1000))
            .map(OwnedValue::Unsigned),
        Read::Io(word) => cgroup::io_sum(of_file, word).map(OwnedValue::Unsigned),
        Read::Frozen => cgroup::is_frozen(of_file).map(OwnedValue::Flag),
        Read::Quota => cgroup::quota(of_file).map(percent),
        Read::QuotaOf(file) => cgroup::quota1(of_file, text(file)?).map(percent),
    };
    known.ok_or(UNSUPPORTED)
}

/// A row for each resource and each kind of waiting. The error says why nothing is known.
pub fn pressures(texts: &[Text]) -> Result<Vec<Vec<Cell>>, &'static str> {
    let mut rows = Vec::new();
    let mut reason = Absent::Unsupported.as_str();
    // The root has pressure files, too, but they are about the machine.
    let not_root = text(texts, "cgroup.events").map(drop);
    for (file, resource) in PRESSURES {
        match not_root.and_then(|()| text(texts, file)) {
            Err(absent) => reason = absent.as_str(),
            Ok(text) => {
                for line in ["some", "full"] {
                    if let Some(pressure) = cgroup::pressure(text, line.as_bytes()) {
                        rows.push(row(resource, line, &pressure));
                    }
                }
            }
        }
    }
    if rows.is_empty() {
        return Err(reason);
    }
    Ok(rows)
}

fn row(resource: &str, line: &str, pressure: &Pressure) -> Vec<Cell> {
    vec![
        Ok(OwnedValue::Text(resource.into())),
        Ok(OwnedValue::Text(line.into())),
        Ok(OwnedValue::Float(pressure.avg10)),
        Ok(OwnedValue::Float(pressure.avg60)),
        Ok(OwnedValue::Float(pressure.avg300)),
        Ok(OwnedValue::Unsigned(pressure.total_us.saturating_mul(1000))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(of: &[(&str, &str)]) -> Vec<Text> {
        let text = |file: &&str| {
            let found = of.iter().find(|(name, _)| name == file);
            found
                .map(|(_, text)| text.as_bytes().to_vec())
                .ok_or(Absent::Unsupported)
        };
        files().iter().map(text).collect()
    }

    fn value<'a>(cells: &'a [Cell], key: &str) -> Result<Value<'a>, &'static str> {
        let at = CGROUP_USE.iter().position(|known| known.name == key).expect("a key");
        cells[at].as_ref().map(OwnedValue::value).map_err(|reason| *reason)
    }

    /// Check units, limits and sums, and that a missing number is not shown as 0.
    #[test]
    fn figures_are_those_of_the_files() {
        let used = used(&texts(&[
            ("memory.current", "4096\n"),
            ("memory.max", "max\n"),
            ("cpu.stat", "usage_usec 3\nuser_usec 2\nsystem_usec 1\n"),
            ("cpu.max", "50000 100000\n"),
            ("io.stat", "8:0 rbytes=10 wbytes=5\n8:1 rbytes=1\n"),
        ]));
        assert_eq!(value(&used, "memory_bytes"), Ok(Value::Unsigned(4096)));
        assert_eq!(value(&used, "memory_max_bytes"), Ok(Value::Text(b"unlimited")));
        assert_eq!(value(&used, "swap_bytes"), Err("unsupported"));
        assert_eq!(value(&used, "cpu_ns"), Ok(Value::Unsigned(3000)));
        assert_eq!(value(&used, "cpu_max_percent"), Ok(Value::Float(50.0)));
        assert_eq!(value(&used, "throttled_count"), Err("unsupported"));
        assert_eq!(value(&used, "read_bytes"), Ok(Value::Unsigned(11)));
    }

    /// Check that each hierarchy can freeze the process.
    #[test]
    fn either_hierarchy_freezes() {
        for (unified, other, expected) in [
            ("frozen 0\n", "FROZEN\n", Ok(Value::Flag(true))),
            ("frozen 1\n", "THAWED\n", Ok(Value::Flag(true))),
            ("frozen 0\n", "THAWED\n", Ok(Value::Flag(false))),
            ("frozen 0\n", "", Ok(Value::Flag(false))),
            ("populated 1\n", "FROZEN\n", Ok(Value::Flag(true))),
            ("", "", Err("unsupported")),
        ] {
            let used = used(&texts(&[("cgroup.events", unified), ("freezer.state", other)]));
            assert_eq!(value(&used, "frozen"), expected, "{unified:?} {other:?}");
        }
    }

    /// Check that pressure has a row for each line, or a reason if there is none.
    #[test]
    fn pressure_has_rows() {
        let line = "avg10=1.00 avg60=0.00 avg300=0.00 total=7";
        let both = format!("some {line}\nfull {line}\n");
        let some = format!("some {line}\n");
        let files = [
            ("cpu.pressure", &both[..]),
            ("io.pressure", &some),
            ("cgroup.events", "frozen 0\n"),
        ];
        assert_eq!(pressures(&texts(&files)).map(|rows| rows.len()), Ok(3));
        assert!(pressures(&texts(&files[..2])).is_err_and(|reason| reason == "unsupported"));
        assert!(pressures(&texts(&[])).is_err_and(|reason| reason == "unsupported"));
        assert!(pressures(&[]).is_err_and(|reason| reason == "not asked"));
    }
}
