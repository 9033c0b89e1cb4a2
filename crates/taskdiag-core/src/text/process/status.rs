//! The parser of `/proc/PID/status`.

use memchr::memchr;

use super::super::number::{decimal, hexadecimal, octal};
use super::{id, words};
use crate::field::{Files, Kind, TABLE};

names! {
    /// The lines of `status` (proc_pid_status(5)). Not all kernels have all of them.
    Line:
        Name Umask State Tgid Ngid Pid PPid TracerPid Uid Gid FDSize Groups NStgid NSpid NSpgid NSsid Kthread VmPeak
        VmSize VmLck VmPin VmHWM VmRSS RssAnon RssFile RssShmem VmData VmStk VmExe VmLib VmPTE VmPMD VmSwap
        HugetlbPages CoreDumping THP_enabled untag_mask Threads SigQ SigPnd ShdPnd SigBlk SigIgn SigCgt CapInh CapPrm
        CapEff CapBnd CapAmb NoNewPrivs Seccomp Seccomp_filters Speculation_Store_Bypass SpeculationIndirectBranch
        Cpus_allowed Cpus_allowed_list Mems_allowed Mems_allowed_list voluntary_ctxt_switches
        nonvoluntary_ctxt_switches x86_Thread_features x86_Thread_features_locked
}

impl Line {
    /// The kind of its fields.
    fn kind(self) -> Option<Kind> {
        KINDS[self as usize]
    }
}

/// The kinds of the lines that have fields.
const KINDS: [Option<Kind>; Line::ALL.len()] = {
    let mut kinds = [None; Line::ALL.len()];
    let mut at = 0;
    while at < TABLE.len() {
        let [one, other] = TABLE[at].places;
        if one.file.bits() == Files::STATUS.bits() {
            kinds[one.at as usize] = Some(TABLE[at].kind);
        }
        if other.file.bits() == Files::STATUS.bits() {
            kinds[other.at as usize] = Some(TABLE[at].kind);
        }
        at += 1;
    }
    kinds
};

/// A set of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines(u64);

impl Lines {
    /// No line.
    pub const NONE: Lines = Lines(0);

    /// The set of these lines.
    pub const fn of(lines: &[Line]) -> Lines {
        let mut bits = 0;
        let mut at = 0;
        while at < lines.len() {
            bits |= 1 << lines[at] as u64;
            at += 1;
        }
        Lines(bits)
    }

    /// The lines in either set.
    pub fn or(self, other: Lines) -> Lines {
        Lines(self.0 | other.0)
    }

    /// Whether all its lines are in `other`.
    pub fn is_subset(self, other: Lines) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether `line` is in the set.
    pub fn contains(self, line: Line) -> bool {
        self.0 >> line as u64 & 1 != 0
    }
}

/// The lines that were wanted and found, with well-formed values.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a> {
    values: [(u64, &'a [u8]); Line::ALL.len()],
    found: Lines,
}

/// Finds the `wanted` lines of `status`. Stops when it has found them all.
///
/// The kernel escapes newlines in the name, so a name can't forge a line.
pub fn status(text: &[u8], wanted: Lines) -> Status<'_> {
    let mut status = Status {
        values: [(0, b""); Line::ALL.len()],
        found: Lines::NONE,
    };
    let mut rest = text;
    let mut next = 0;
    while !wanted.is_subset(status.found) && !rest.is_empty() {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        // The kernel keeps the order, but not all tasks have all lines.
        let is_key = |key: &str| line.get(key.len()) == Some(&b':') && line.starts_with(key.as_bytes());
        let Some(skipped) = Line::NAMES[next..]
            .iter()
            .chain(&Line::NAMES[..next])
            .position(|key| is_key(key))
        else {
            continue;
        };
        let id = (next + skipped) % Line::ALL.len();
        next = id + 1;
        let id = Line::ALL[id];
        let Some(kind) = id.kind().filter(|_| wanted.contains(id)) else {
            continue;
        };
        let value = &line[Line::NAMES[id as usize].len() + 1..];
        if let Some(number) = parse_value(kind, value) {
            status.values[id as usize] = (number, value);
            status.found = status.found.or(Lines::of(&[id]));
        }
    }
    status
}

/// The number in a value, or 0 if it is of another kind. `None` if the value is malformed.
fn parse_value(kind: Kind, value: &[u8]) -> Option<u64> {
    let mut words = words(value);
    match kind {
        Kind::Letter => words.next().map(|_| 0),
        Kind::Ids => words.all(|word| id(word).is_some()).then_some(0),
        // Real, effective, saved and file-system id.
        Kind::User | Kind::GroupId => {
            let four = words.by_ref().take(4).filter_map(id).count() == 4;
            (four && words.next().is_none()).then_some(0)
        }
        Kind::Mode => octal(words.next()?),
        Kind::Capabilities | Kind::Signals => hexadecimal(words.next()?),
        Kind::Bytes => decimal(words.next()?)?.checked_mul(1024),
        // Hexadecimal words of 32 bits, the highest processors first.
        Kind::Cpus => {
            let mut parts = words.next()?.split(|&byte| byte == b',');
            parts
                .all(|part| part.len() <= 8 && hexadecimal(part).is_some())
                .then_some(0)
        }
        Kind::Id | Kind::Flag => id(words.next()?).map(u64::from),
        // A number and its maximum have a slash between them.
        _ => decimal(words.next()?.split(|&byte| byte == b'/').next()?),
    }
}

impl<'a> Status<'a> {
    /// The lines that were found.
    pub fn found(&self) -> Lines {
        self.found
    }

    /// The number or bit mask of a line, or a size in bytes. 0 if the line was not found.
    pub fn number(&self, line: Line) -> u64 {
        self.values[line as usize].0
    }

    /// The number in a word of a line, or the letter of the state. `None` if the line was not found.
    pub fn word(&self, line: Line, word: u8) -> Option<u64> {
        if !self.found.contains(line) {
            return None;
        }
        match line.kind()? {
            Kind::Letter => self.state().map(u64::from),
            Kind::User | Kind::GroupId => self.words(line).nth(word.into()).and_then(id).map(u64::from),
            _ => Some(self.number(line)),
        }
    }

    fn words(&self, line: Line) -> impl Iterator<Item = &'a [u8]> {
        words(self.values[line as usize].1)
    }

    /// The ids of a line.
    pub fn ids(&self, line: Line) -> impl Iterator<Item = u32> + 'a {
        self.words(line).map_while(id)
    }

    /// The letter of the state.
    pub fn state(&self) -> Option<u8> {
        self.words(Line::State).next()?.first().copied()
    }

    /// The processor mask in words of 64 bits, the lowest processors first. The line has words of
    /// 32 bits, the highest processors first.
    pub fn processors(&self) -> impl Iterator<Item = u64> + 'a {
        let text = self.words(Line::Cpus_allowed).next().unwrap_or_default();
        let mut words = text.rsplit(|&byte| byte == b',').map_while(hexadecimal).fuse();
        std::iter::from_fn(move || {
            let low = words.next()?;
            Some(low & 0xffff_ffff | words.next().unwrap_or(0) << 32)
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in super::super) const TEXT: &[u8] =
        b"Name:\ta\\nUid:\nUmask:\t0022\nState:\tR (running)\nTgid:\t11182\nPPid:\t11169\nTracerPid:\t0\n\
        Uid:\t0\t1\t2\t4294967295\nGid:\t0\t0\t0\t0\nGroups:\t4 27 \nNSpid:\t11182\t7\nVmPeak:\t    3060 kB\n\
        VmSize:\t    3050 kB\nRssAnon:\t     112 kB\nThreads:\t1\nCapPrm:\t000001fffeffffff\nNoNewPrivs:\t1\n\
        Seccomp:\t2\nSeccomp_filters:\t3\nCpus_allowed:\t5,80000000,00000003\nCpus_allowed_list:\t0-1,63,64,66\n\
        voluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t11\n";

    pub(in super::super) fn all_lines() -> Lines {
        all().fold(Lines::NONE, |lines, line| lines.or(Lines::of(&[line])))
    }

    /// The lines that have fields.
    pub(in super::super) fn all() -> impl Iterator<Item = Line> {
        Line::ALL.into_iter().filter(|line| line.kind().is_some())
    }

    /// Check that the wanted lines have their values, and that no others are found.
    #[test]
    fn status_of_a_process() {
        let status = status(TEXT, all_lines());
        assert_eq!(status.state(), Some(b'R'));
        assert_eq!(status.number(Line::PPid), 11169);
        assert_eq!(status.ids(Line::Uid).collect::<Vec<_>>(), [0, 1, 2, u32::MAX]);
        assert_eq!(status.ids(Line::Groups).collect::<Vec<_>>(), [4, 27]);
        assert_eq!(status.ids(Line::NSpid).collect::<Vec<_>>(), [11182, 7]);
        assert_eq!(status.number(Line::VmPeak), 3060 * 1024);
        assert_eq!(status.number(Line::RssAnon), 112 * 1024);
        assert_eq!(status.number(Line::CapPrm), 0x1fffeffffff);
        assert_eq!((status.number(Line::NoNewPrivs), status.number(Line::Seccomp)), (1, 2));
        assert_eq!(status.processors().collect::<Vec<_>>(), [0x8000_0000_0000_0003, 5]);
        assert_eq!(
            (
                status.number(Line::voluntary_ctxt_switches),
                status.number(Line::nonvoluntary_ctxt_switches)
            ),
            (10, 11)
        );
        assert!(!status.found().contains(Line::VmSwap));
        let some = super::status(TEXT, Lines::of(&[Line::Uid]));
        assert_eq!(some.found(), Lines::of(&[Line::Uid]));
    }

    /// Check the number of each line, and that no other line is found.
    #[test]
    fn each_line_has_its_number() {
        for line in all() {
            let key = Line::NAMES[line as usize];
            let (value, number) = match line.kind().unwrap() {
                Kind::Letter => ("R (running)", 0),
                Kind::Id | Kind::Flag => ("9", 9),
                Kind::Ids => ("1 2", 0),
                Kind::User | Kind::GroupId => ("1 2 3 4", 0),
                Kind::Mode => ("0137", 0o137),
                Kind::Capabilities | Kind::Signals => ("8000000000000001", 1 << 63 | 1),
                Kind::Bytes => ("      9 kB", 9 * 1024),
                Kind::Cpus => ("ffffffff,00000001", 0),
                _ if line == Line::SigQ => ("3/100", 3),
                _ => ("5000000000", 5_000_000_000),
            };
            let wanted = Lines::of(&[line]);
            let text = format!("Name:\tx\n{key}:\t{value}\nUnknown:\t1\n{key}:\t0\n");
            let status = status(text.as_bytes(), wanted);
            assert_eq!(status.found(), wanted, "{key}");
            assert!(status.found().contains(line) && wanted.is_subset(all_lines()), "{key}");
            assert!(!all_lines().is_subset(wanted), "{key}");
            assert_eq!(status.number(line), number, "{key}");
        }
        let none = status(TEXT, Lines::NONE);
        assert_eq!(none.found(), Lines::NONE);
        let two = Lines::of(&[Line::PPid]).or(Lines::of(&[Line::Uid]));
        assert_eq!(status(TEXT, two).found(), two);
    }

    /// Check that a line with a malformed value counts as missing.
    #[test]
    fn malformed_lines_are_missing() {
        for line in [
            "Uid:\t1 2 3\n",
            "Uid:\t1 2 3 4 5\n",
            "Gid:\t0 0 0 -1\n",
            "PPid:\t\n",
            "PPid:\t4294967296\n",
            "VmSize:\t99999999999999999999 kB\n",
            "VmSize:\t18446744073709551615 kB\n",
            "CapInh:\t00000000000000000\n",
            "Groups:\t1 x\n",
            "Cpus_allowed:\t1,,1\n",
            "State:\t\n",
        ] {
            assert_eq!(status(line.as_bytes(), all_lines()).found(), Lines::NONE, "{line:?}");
        }
    }

    proptest! {
        /// Check that any processor mask is read as it was printed.
        #[test]
        fn status_returns_any_mask(words in proptest::collection::vec(any::<u32>(), 1..300)) {
            let text: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
            let text = format!("Cpus_allowed:\t{}\n", text.join(","));
            let status = status(text.as_bytes(), all_lines());
            let found: Vec<u32> = status.processors().flat_map(|word| [word as u32, (word >> 32) as u32]).collect();
            prop_assert_eq!(&found[..words.len()], &words[..]);
        }
    }
}
