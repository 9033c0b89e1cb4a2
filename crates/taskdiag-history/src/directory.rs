//! The files of a recording: their names, and when they are removed.

use crate::store::RecordingFile;

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * SECOND_NS;

/// The name of the file that a recorder locks.
pub const LOCK: &str = "lock";

/// A tier: the interval between samples, and how long they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name, which is also the prefix of its file names.
    pub name: &'static str,
    /// The interval between two samples, in nanoseconds; 0 means the interval of the recorder.
    pub every_ns: u64,
    /// The time that a segment covers, in nanoseconds.
    pub segment_ns: u64,
    /// How long segments are kept, in nanoseconds.
    pub kept_ns: u64,
}

/// The tiers, finest first. All are recorded from the start, so nothing must be read back and
/// reduced later. Counters are cumulative, so any two samples can be compared.
pub const TIERS: [Tier; 3] = [
    Tier {
        name: "full",
        every_ns: 0,
        segment_ns: 600 * SECOND_NS,
        kept_ns: DAY_NS,
    },
    Tier {
        name: "1min",
        every_ns: 60 * SECOND_NS,
        segment_ns: 6 * 3600 * SECOND_NS,
        kept_ns: 14 * DAY_NS,
    },
    Tier {
        name: "10min",
        every_ns: 600 * SECOND_NS,
        segment_ns: DAY_NS,
        kept_ns: 365 * DAY_NS,
    },
];

/// What to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// As long as the tiers say.
    Usual,
    /// At most this long, in nanoseconds.
    Time(u64),
    /// At most this many bytes.
    Bytes(u64),
}

/// The name of a segment that begins at this time. `attempt` distinguishes segments of the same
/// millisecond.
pub fn file_name(tier: &str, wall_ns: i64, attempt: u32) -> String {
    let ms = wall_ns.div_euclid(1_000_000);
    match attempt {
        0 => format!("{tier}-{ms:014}.tdh"),
        attempt => format!("{tier}-{ms:014}-{attempt}.tdh"),
    }
}

/// The tier of a segment and its start time, in nanoseconds since 1970, from its name. `None` if it
/// is not a segment's name.
pub fn parse(name: &str) -> Option<(&str, i64)> {
    let (tier, rest) = name.strip_suffix(".tdh")?.split_once('-')?;
    let (ms, attempt) = rest.split_once('-').unwrap_or((rest, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(ms) || !is_number(attempt) {
        return None;
    }
    Some((tier, ms.parse::<i64>().ok()?.checked_mul(1_000_000)?))
}

/// The segments to remove, in order of removal: those that are too old and, under a size limit, the
/// oldest of the finest tier that has any. Files that are being written (`open`) are kept.
pub fn to_remove(files: &[RecordingFile], open: &[String], keep: Keep, now_ns: i64) -> Vec<String> {
    let mut segments: Vec<(usize, i64, &RecordingFile)> = files
        .iter()
        .filter_map(|file| {
            let (name, begin_ns) = parse(&file.name)?;
            let tier = TIERS.iter().position(|tier| tier.name == name)?;
            Some((tier, begin_ns, file))
        })
        .collect();
    segments.sort_by_key(|&(tier, begin_ns, _)| (tier, begin_ns));
    let mut bytes: u64 = segments.iter().map(|(.., file)| file.bytes).sum();
    let mut removed = Vec::new();
    for (tier, begin_ns, file) in segments {
        let tier = &TIERS[tier];
        let kept_ns = match keep {
            Keep::Time(time) => tier.kept_ns.min(time),
            _ => tier.kept_ns,
        };
        let age_ns = i128::from(now_ns) - i128::from(begin_ns);
        let is_old = age_ns > i128::from(kept_ns) + i128::from(tier.segment_ns);
        let is_too_much = matches!(keep, Keep::Bytes(most) if bytes > most);
        if (is_old || is_too_much) && !open.contains(&file.name) {
            bytes -= file.bytes;
            removed.push(file.name.clone());
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(tier: &str, hours_ago: i64, bytes: u64) -> RecordingFile {
        RecordingFile {
            name: file_name(tier, NOW - hours_ago * 3600 * 1_000_000_000, 0),
            bytes,
        }
    }

    const NOW: i64 = 1_795_000_000_000_000_000;

    /// Check that names sort by time and can be parsed, and that the names of other files are not.
    #[test]
    fn names_have_times() {
        assert_eq!(parse(&file_name("full", NOW, 0)), Some(("full", NOW)));
        assert_eq!(parse(&file_name("1min", NOW, 2)), Some(("1min", NOW)));
        assert!(file_name("full", NOW, 0) < file_name("full", NOW + 1_000_000, 0));
        for name in [
            "lock",
            "full-.tdh",
            "full-12x.tdh",
            "full-12-.tdh",
            "full-12-\x1b[2J.tdh",
            "full-12-3-4.tdh",
            "full-12",
            "full-99999999999999999999.tdh",
            "12.tdh",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    /// Check that each tier has its own retention, that a time limit applies to all tiers, and that
    /// a size limit removes the oldest of the finest tier first, but no open file.
    #[test]
    fn the_finest_goes_first() {
        let files = [
            file("full", 26, 10),
            file("full", 2, 10),
            file("full", 0, 10),
            file("1min", 300, 10),
            file("1min", 400, 10),
            file("10min", 400, 10),
            RecordingFile {
                name: "notes.txt".to_owned(),
                bytes: 1 << 40,
            },
        ];
        let open = [files[2].name.clone()];
        let removed = |keep| {
            let removed = to_remove(&files, &open, keep, NOW);
            removed
                .iter()
                .map(|name| files.iter().position(|file| file.name == *name).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(removed(Keep::Usual), [0, 4]);
        assert_eq!(removed(Keep::Time(DAY_NS)), [0, 4, 3, 5]);
        assert_eq!(removed(Keep::Bytes(35)), [0, 1, 4]);
        assert_eq!(removed(Keep::Bytes(0)), [0, 1, 4, 3, 5]);
    }
}
