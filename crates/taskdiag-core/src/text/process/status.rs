//! The parser of `/proc/PID/status`.

use memchr::memchr;

use super::super::number::{decimal, hexadecimal, octal};
use super::{id, words};

macro_rules! lines {
    ($($id:ident $key:literal $form:ident;)*) => {
        /// The lines of `status` that taskdiag uses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // proc_pid_status(5) has the meanings
        pub enum Line { $($id),* }

        impl Line {
            const COUNT: usize = [$(Line::$id),*].len();

            #[cfg(test)]
            pub(super) const ALL: [(Line, &'static [u8]); Line::COUNT] = [$((Line::$id, $key)),*];

            /// The line with this name.
            pub fn named(name: &str) -> Option<Line> {
                Line::of_key(name.as_bytes())
            }

            fn of_key(key: &[u8]) -> Option<Line> {
                match key {
                    $($key => Some(Line::$id),)*
                    _ => None,
                }
            }

            fn form(self) -> Form {
                const FORMS: [Form; Line::COUNT] = [$(Form::$form),*];
                FORMS[self as usize]
            }
        }
    };
}

/// What the value of a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Words, of which the first is read.
    Words,
    /// A number of at most 32 bits.
    Id,
    /// Any number of ids.
    Ids,
    /// Real, effective, saved and file-system id.
    FourIds,
    Decimal,
    Octal,
    Hexadecimal,
    /// A size in kB, which is read as bytes.
    Kilobytes,
    /// A number and its maximum, with a slash between them. The number is read.
    OfMaximum,
    /// A mask of processors, in hexadecimal words of 32 bits, the highest processors first.
    Cpus,
}

lines! {
    State b"State" Words;
    Ppid b"PPid" Id;
    TracerPid b"TracerPid" Id;
    Uid b"Uid" FourIds;
    Gid b"Gid" FourIds;
    Groups b"Groups" Ids;
    NsPid b"NSpid" Ids;
    VmPeak b"VmPeak" Kilobytes;
    VmSize b"VmSize" Kilobytes;
    VmLck b"VmLck" Kilobytes;
    VmPin b"VmPin" Kilobytes;
    VmHwm b"VmHWM" Kilobytes;
    RssAnon b"RssAnon" Kilobytes;
    RssFile b"RssFile" Kilobytes;
    RssShmem b"RssShmem" Kilobytes;
    VmData b"VmData" Kilobytes;
    VmStk b"VmStk" Kilobytes;
    VmExe b"VmExe" Kilobytes;
    VmLib b"VmLib" Kilobytes;
    VmPte b"VmPTE" Kilobytes;
    VmSwap b"VmSwap" Kilobytes;
    Hugetlb b"HugetlbPages" Kilobytes;
    Threads b"Threads" Id;
    CapInh b"CapInh" Hexadecimal;
    CapPrm b"CapPrm" Hexadecimal;
    CapEff b"CapEff" Hexadecimal;
    CapBnd b"CapBnd" Hexadecimal;
    CapAmb b"CapAmb" Hexadecimal;
    SigQ b"SigQ" OfMaximum;
    SigPnd b"SigPnd" Hexadecimal;
    ShdPnd b"ShdPnd" Hexadecimal;
    SigBlk b"SigBlk" Hexadecimal;
    SigIgn b"SigIgn" Hexadecimal;
    SigCgt b"SigCgt" Hexadecimal;
    Umask b"Umask" Octal;
    FdSize b"FDSize" Id;
    NoNewPrivs b"NoNewPrivs" Id;
    Seccomp b"Seccomp" Id;
    CpusAllowed b"Cpus_allowed" Cpus;
    Voluntary b"voluntary_ctxt_switches" Decimal;
    Involuntary b"nonvoluntary_ctxt_switches" Decimal;
}

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
    values: [(u64, &'a [u8]); Line::COUNT],
    found: Lines,
}

/// Finds the `wanted` lines of `status`. Stops when it has found them all.
///
/// The kernel escapes newlines in the name, so a name can't forge a line.
pub fn status(text: &[u8], wanted: Lines) -> Status<'_> {
    let mut status = Status {
        values: [(0, b""); Line::COUNT],
        found: Lines::NONE,
    };
    let mut rest = text;
    while !wanted.is_subset(status.found) && !rest.is_empty() {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        // The longest key has 26 bytes.
        let Some(colon) = line.iter().take(27).position(|&byte| byte == b':') else {
            continue;
        };
        let Some(id) = Line::of_key(&line[..colon]).filter(|&id| wanted.contains(id)) else {
            continue;
        };
        let value = &line[colon + 1..];
        if let Some(number) = parse_value(id.form(), value) {
            status.values[id as usize] = (number, value);
            status.found = status.found.or(Lines::of(&[id]));
        }
    }
    status
}

/// The number in a value, or 0 if it is of another kind. `None` if the value is malformed.
fn parse_value(form: Form, value: &[u8]) -> Option<u64> {
    let mut words = words(value);
    match form {
        Form::Words => words.next().map(|_| 0),
        Form::Id => id(words.next()?).map(u64::from),
        Form::Ids => words.all(|word| id(word).is_some()).then_some(0),
        Form::FourIds => {
            let four = words.by_ref().take(4).filter_map(id).count() == 4;
            (four && words.next().is_none()).then_some(0)
        }
        Form::Decimal => decimal(words.next()?),
        Form::Octal => octal(words.next()?),
        Form::Hexadecimal => hexadecimal(words.next()?),
        Form::Kilobytes => decimal(words.next()?)?.checked_mul(1024),
        Form::OfMaximum => decimal(words.next()?.split(|&byte| byte == b'/').next()?),
        Form::Cpus => {
            let mut parts = words.next()?.split(|&byte| byte == b',');
            parts
                .all(|part| part.len() <= 8 && hexadecimal(part).is_some())
                .then_some(0)
        }
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

    /// The number of a line whose numbers have at most 32 bits.
    pub fn id(&self, line: Line) -> u32 {
        self.number(line) as u32
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
        let text = self.words(Line::CpusAllowed).next().unwrap_or_default();
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

    pub(in super::super) const STATUS: &[u8] =
        b"Name:\ta\\nUid:\nUmask:\t0022\nState:\tR (running)\nTgid:\t11182\nPPid:\t11169\nTracerPid:\t0\n\
        Uid:\t0\t1\t2\t4294967295\nGid:\t0\t0\t0\t0\nGroups:\t4 27 \nNSpid:\t11182\t7\nVmPeak:\t    3060 kB\n\
        VmSize:\t    3050 kB\nRssAnon:\t     112 kB\nThreads:\t1\nCapPrm:\t000001fffeffffff\nNoNewPrivs:\t1\n\
        Seccomp:\t2\nSeccomp_filters:\t3\nCpus_allowed:\t5,80000000,00000003\nCpus_allowed_list:\t0-1,63,64,66\n\
        voluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t11\n";

    pub(in super::super) fn all_lines() -> Lines {
        Line::ALL
            .iter()
            .fold(Lines::NONE, |lines, &(line, _)| lines.or(Lines::of(&[line])))
    }

    /// Check that the wanted lines have their values, and that no others are found.
    #[test]
    fn status_of_a_process() {
        let status = status(STATUS, all_lines());
        assert_eq!(status.state(), Some(b'R'));
        assert_eq!(status.id(Line::Ppid), 11169);
        assert_eq!(status.ids(Line::Uid).collect::<Vec<_>>(), [0, 1, 2, u32::MAX]);
        assert_eq!(status.ids(Line::Groups).collect::<Vec<_>>(), [4, 27]);
        assert_eq!(status.ids(Line::NsPid).collect::<Vec<_>>(), [11182, 7]);
        assert_eq!(status.number(Line::VmPeak), 3060 * 1024);
        assert_eq!(status.number(Line::RssAnon), 112 * 1024);
        assert_eq!(status.number(Line::CapPrm), 0x1fffeffffff);
        assert_eq!((status.id(Line::NoNewPrivs), status.id(Line::Seccomp)), (1, 2));
        assert_eq!(status.processors().collect::<Vec<_>>(), [0x8000_0000_0000_0003, 5]);
        assert_eq!(
            (status.number(Line::Voluntary), status.number(Line::Involuntary)),
            (10, 11)
        );
        assert!(!status.found().contains(Line::VmSwap));
        let some = super::status(STATUS, Lines::of(&[Line::Uid]));
        assert_eq!(some.found(), Lines::of(&[Line::Uid]));
    }

    /// Check the number of each line, and that no other line is found.
    #[test]
    fn each_line_has_its_number() {
        for (line, key) in Line::ALL {
            let (value, number) = match line.form() {
                Form::Words => ("R (running)", 0),
                Form::Id => ("9", 9),
                Form::Ids => ("1 2", 0),
                Form::FourIds => ("1 2 3 4", 0),
                Form::Decimal => ("5000000000", 5_000_000_000),
                Form::Octal => ("0137", 0o137),
                Form::Hexadecimal => ("8000000000000001", 1 << 63 | 1),
                Form::Kilobytes => ("      9 kB", 9 * 1024),
                Form::OfMaximum => ("3/100", 3),
                Form::Cpus => ("ffffffff,00000001", 0),
            };
            let key = std::str::from_utf8(key).unwrap();
            let wanted = Lines::of(&[line]);
            let text = format!("Name:\tx\n{key}:\t{value}\nUnknown:\t1\n{key}:\t0\n");
            let status = status(text.as_bytes(), wanted);
            assert_eq!(status.found(), wanted, "{key}");
            assert!(status.found().contains(line) && wanted.is_subset(all_lines()), "{key}");
            assert!(!all_lines().is_subset(wanted), "{key}");
            assert_eq!(status.number(line), number, "{key}");
        }
        let none = status(STATUS, Lines::NONE);
        assert_eq!(none.found(), Lines::NONE);
        let two = Lines::of(&[Line::Ppid]).or(Lines::of(&[Line::Uid]));
        assert_eq!(status(STATUS, two).found(), two);
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
