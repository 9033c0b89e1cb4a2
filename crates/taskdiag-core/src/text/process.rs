//! The texts of `/proc/PID`: bytes in, values out.
//!
//! Nothing here does I/O, allocates, or panics, whatever the bytes are. What does not parse is `None`, never a 0.

use crate::record::LIMITS;

/// The number that `text` is, all of it.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

fn signed(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(digits) => 0i64.checked_sub_unsigned(decimal(digits)?),
        None => decimal(text)?.try_into().ok(),
    }
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0, |value, &byte| {
        let digit = char::from(byte).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

fn octal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| {
        let digit = char::from(byte).to_digit(8)?;
        Some(value << 3 | u64::from(digit))
    })
}

/// The number that a file of one number holds.
pub fn number<T: TryFrom<i64>>(text: &[u8]) -> Option<T> {
    signed(text.trim_ascii())?.try_into().ok()
}

/// The bit mask that a file holds, in hexadecimal.
pub fn mask(text: &[u8]) -> Option<u32> {
    hexadecimal(text.trim_ascii())?.try_into().ok()
}

/// The number that a directory's name is, if it is that of a task.
pub fn task_id(name: &[u8]) -> Option<u32> {
    id(name)
}

/// The fields of `stat` that are of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // proc_pid_stat(5) has the meanings
pub struct Stat<'a> {
    pub comm: &'a [u8],
    pub state: u8,
    pub ppid: u32,
    pub pgid: u32,
    pub sid: u32,
    pub tty_nr: u32,
    pub tpgid: i32,
    pub flags: u32,
    pub min_faults: u64,
    pub child_min_faults: u64,
    pub maj_faults: u64,
    pub child_maj_faults: u64,
    pub utime_ticks: u64,
    pub stime_ticks: u64,
    pub cutime_ticks: u64,
    pub cstime_ticks: u64,
    pub priority: i32,
    pub nice: i32,
    pub threads_count: u32,
    pub start_ticks: u64,
    pub vsize_bytes: u64,
    pub exit_signal: i32,
    pub processor: u32,
    pub rt_priority: u32,
    pub policy: u32,
    /// What stands behind `vsize`.
    rest: &'a [u8],
}

/// `PF_KTHREAD`, in the flags of `stat`.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// The numbers of `stat` behind `vsize`, by their numbers in proc(5). Few ask for them.
#[derive(Clone, Copy, Debug)]
pub struct LateNumbers([Option<u64>; LateNumbers::LAST - LateNumbers::FIRST + 1]);

impl LateNumbers {
    const FIRST: usize = 24;
    const LAST: usize = 51;

    /// `None` also for a number below 0, and for one that this kernel does not print.
    pub fn get(&self, number: usize) -> Option<u64> {
        *self.0.get(number.checked_sub(LateNumbers::FIRST)?)?
    }

    /// Whether the kernel keeps the addresses from the reader. In their places it prints 1 twice, and zeros.
    pub fn are_addresses_denied(&self) -> bool {
        (self.get(26), self.get(27)) == (Some(1), Some(1))
    }
}

impl Stat<'_> {
    /// The numbers behind `vsize`.
    pub fn late_numbers(&self) -> LateNumbers {
        let mut words = Words(self.rest);
        LateNumbers([(); LateNumbers::LAST - LateNumbers::FIRST + 1].map(|()| decimal(words.word()?)))
    }

    /// Whether its flags say `PF_KTHREAD`.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether the task has an address space: the kernel gives the size of the one it has, else 0.
    pub fn has_memory(&self) -> bool {
        self.vsize_bytes != 0
    }

    /// Whether the task leads its process. This is the kernel's own definition of a leader.
    pub fn is_leader(&self) -> bool {
        self.exit_signal >= 0
    }

    /// Whether the task was released while the kernel wrote the line: without the lock on its signals, all that is in their
    /// structure stays at what it was initialized with. No process has 0 threads otherwise.
    /// One in state X is about to be.
    pub fn is_released(&self) -> bool {
        self.threads_count == 0 || self.state == b'X'
    }
}

/// Parses `stat`.
///
/// The name stands as it is between the first `(` and the last `)`, and may have both in it, and blanks and newlines; behind
/// it there are only numbers.
pub fn stat(text: &[u8]) -> Option<Stat<'_>> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let comm = text.get(open + 1..close)?;
    let numbers = &mut Words(text.get(close + 1..)?.strip_prefix(b" ")?);
    let &[state] = numbers.word()? else { return None };
    Some(Stat {
        comm,
        state,
        ppid: numbers.id()?,
        pgid: numbers.id()?,
        sid: numbers.id()?,
        tty_nr: numbers.id()?,
        tpgid: numbers.signed()?,
        flags: numbers.unsigned()?.try_into().ok()?,
        min_faults: numbers.unsigned()?,
        child_min_faults: numbers.unsigned()?,
        maj_faults: numbers.unsigned()?,
        child_maj_faults: numbers.unsigned()?,
        utime_ticks: numbers.unsigned()?,
        stime_ticks: numbers.unsigned()?,
        cutime_ticks: numbers.unsigned()?,
        cstime_ticks: numbers.unsigned()?,
        priority: numbers.signed()?,
        nice: numbers.signed()?,
        threads_count: numbers.unsigned()?.try_into().ok()?,
        start_ticks: {
            numbers.word()?; // itrealvalue
            numbers.unsigned()?
        },
        vsize_bytes: numbers.unsigned()?,
        rest: numbers.0,
        exit_signal: {
            for _ in 24..38 {
                numbers.word()?; // rss to cnswap
            }
            numbers.signed()?
        },
        processor: numbers.unsigned()?.try_into().ok()?,
        rt_priority: numbers.unsigned()?.try_into().ok()?,
        policy: numbers.unsigned()?.try_into().ok()?,
    })
}

/// Words with one blank or newline behind each, the last perhaps without.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn word(&mut self) -> Option<&'a [u8]> {
        let len = self.0.iter().position(|&byte| byte <= b' ').unwrap_or(self.0.len());
        let word = &self.0[..len];
        self.0 = self.0.get(len + 1..).unwrap_or_default();
        (len != 0).then_some(word)
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for (len, byte) in self.0.iter().enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                self.0 = &self.0[len + 1..];
                return (len != 0 && matches!(byte, b' ' | b'\n')).then_some(value);
            }
            value = value.checked_mul(10)?.checked_add(digit.into())?;
        }
        let is_word = !self.0.is_empty();
        self.0 = b"";
        is_word.then_some(value)
    }

    fn signed(&mut self) -> Option<i32> {
        match self.0.strip_prefix(b"-") {
            Some(digits) => {
                self.0 = digits;
                0i64.checked_sub_unsigned(self.unsigned()?)?.try_into().ok()
            }
            None => self.unsigned()?.try_into().ok(),
        }
    }

    /// Ids are printed as int, and as -1 for a task that was released meanwhile; so are device numbers, whose top bit may be set.
    fn id(&mut self) -> Option<u32> {
        Some(self.signed()? as u32)
    }
}

macro_rules! lines {
    ($($id:ident $key:literal;)*) => {
        /// The lines of `status` that are of use.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // proc_pid_status(5) has the meanings
        pub enum Line { $($id),* }

        impl Line {
            const COUNT: usize = [$(Line::$id),*].len();

            #[cfg(test)]
            const ALL: [(Line, &'static [u8]); Line::COUNT] = [$((Line::$id, $key)),*];

            fn of_key(key: &[u8]) -> Option<Line> {
                match key {
                    $($key => Some(Line::$id),)*
                    _ => None,
                }
            }
        }
    };
}

lines! {
    State b"State"; Ppid b"PPid"; TracerPid b"TracerPid"; Uid b"Uid"; Gid b"Gid"; Groups b"Groups"; NsPid b"NSpid";
    VmPeak b"VmPeak"; VmSize b"VmSize"; VmLck b"VmLck"; VmPin b"VmPin"; VmHwm b"VmHWM"; VmRss b"VmRSS"; RssAnon b"RssAnon";
    RssFile b"RssFile"; RssShmem b"RssShmem"; VmData b"VmData"; VmStk b"VmStk"; VmExe b"VmExe"; VmLib b"VmLib"; VmPte b"VmPTE";
    VmSwap b"VmSwap"; Hugetlb b"HugetlbPages"; Threads b"Threads"; CapInh b"CapInh"; CapPrm b"CapPrm"; CapEff b"CapEff"; CapBnd b"CapBnd"; CapAmb b"CapAmb";
    SigQ b"SigQ"; SigPnd b"SigPnd"; ShdPnd b"ShdPnd"; SigBlk b"SigBlk"; SigIgn b"SigIgn"; SigCgt b"SigCgt";
    Umask b"Umask"; FdSize b"FDSize"; NoNewPrivs b"NoNewPrivs"; Seccomp b"Seccomp"; CpusAllowed b"Cpus_allowed";
    Voluntary b"voluntary_ctxt_switches"; Involuntary b"nonvoluntary_ctxt_switches";
}

/// A set of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines(u64);

impl Lines {
    /// No line.
    pub const NONE: Lines = Lines(0);

    /// Those lines.
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

    /// Whether all of them are in `other`.
    pub fn is_subset(self, other: Lines) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether `line` is in the set.
    pub fn contains(self, line: Line) -> bool {
        self.0 >> line as u64 & 1 != 0
    }
}

/// The lines of a `status` that were wanted and are there, their values well formed.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a> {
    values: [(u64, &'a [u8]); Line::COUNT],
    found: Lines,
}

/// Finds the `wanted` lines of `status`, and stops when it has them all.
///
/// The kernel escapes newlines in the name, so that each line is what it seems to be.
pub fn status(text: &[u8], wanted: Lines) -> Status<'_> {
    let mut status = Status {
        values: [(0, b""); Line::COUNT],
        found: Lines::NONE,
    };
    let mut rest = text;
    while !wanted.is_subset(status.found) && !rest.is_empty() {
        let end = find(rest, b'\n').unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        // No key of ours is longer than 26 bytes.
        let Some(colon) = line.iter().take(27).position(|&byte| byte == b':') else {
            continue;
        };
        let Some(id) = Line::of_key(&line[..colon]).filter(|&id| wanted.contains(id)) else {
            continue;
        };
        let value = &line[colon + 1..];
        if let Some(number) = checked(id, value) {
            status.values[id as usize] = (number, value);
            status.found = status.found.or(Lines::of(&[id]));
        }
    }
    status
}

/// The number in a line, 0 if it has letters or several. `None` if the line is not what it should be.
fn checked(line: Line, value: &[u8]) -> Option<u64> {
    let mut words = words(value);
    match line {
        Line::State => words.next().map(|_| 0),
        Line::Groups | Line::NsPid => words.all(|word| id(word).is_some()).then_some(0),
        Line::Uid | Line::Gid => {
            let four = words.by_ref().take(4).filter_map(id).count() == 4;
            (four && words.next().is_none()).then_some(0)
        }
        Line::CpusAllowed => {
            let mut parts = words.next()?.split(|&byte| byte == b',');
            parts
                .all(|part| part.len() <= 8 && hexadecimal(part).is_some())
                .then_some(0)
        }
        Line::CapInh | Line::CapPrm | Line::CapEff | Line::CapBnd | Line::CapAmb => hexadecimal(words.next()?),
        Line::SigPnd | Line::ShdPnd | Line::SigBlk | Line::SigIgn | Line::SigCgt => hexadecimal(words.next()?),
        // How many there are, and may be.
        Line::SigQ => decimal(words.next()?.split(|&byte| byte == b'/').next()?),
        Line::Umask => octal(words.next()?),
        // In kB, all that begin with a V, an R or an H.
        _ if (Line::VmPeak as u8..=Line::Hugetlb as u8).contains(&(line as u8)) => {
            decimal(words.next()?)?.checked_mul(1024)
        }
        Line::Voluntary | Line::Involuntary => decimal(words.next()?),
        _ => id(words.next()?).map(u64::from),
    }
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn id(word: &[u8]) -> Option<u32> {
    decimal(word)?.try_into().ok()
}

impl<'a> Status<'a> {
    /// The lines that were there.
    pub fn found(&self) -> Lines {
        self.found
    }

    /// The number or bit mask of a line; bytes, of one in kB. 0 if the line was not found.
    pub fn number(&self, line: Line) -> u64 {
        self.values[line as usize].0
    }

    /// The same of a line that has nothing larger than an id.
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

    /// The state.
    pub fn state(&self) -> Option<u8> {
        self.words(Line::State).next()?.first().copied()
    }

    /// The words of the processor mask, that of the lowest processors first. The line has 32 bits a word, the highest first.
    pub fn processors(&self) -> impl Iterator<Item = u64> + 'a {
        let text = self.words(Line::CpusAllowed).next().unwrap_or_default();
        let mut words = text.rsplit(|&byte| byte == b',').map_while(hexadecimal).fuse();
        std::iter::from_fn(move || {
            let low = words.next()?;
            Some(low & 0xffff_ffff | words.next().unwrap_or(0) << 32)
        })
    }
}

/// The position of the first `byte`, looked for in eight bytes at a time: the lines that are passed over are most of a `status`.
fn find(text: &[u8], byte: u8) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let pattern = ONES * u64::from(byte);
    let words = text.chunks_exact(8);
    let tail = words.remainder();
    for (index, word) in words.enumerate() {
        let differs = u64::from_le_bytes(word.try_into().ok()?) ^ pattern;
        let zeros = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
        if zeros != 0 {
            return Some(index * 8 + zeros.trailing_zeros() as usize / 8);
        }
    }
    let at = tail.iter().position(|&found| found == byte)?;
    Some(text.len() - tail.len() + at)
}

/// Parses `schedstat`: the time on a processor and the time waiting for one, in nanoseconds, and how often it got one.
pub fn schedstat(text: &[u8]) -> Option<[u64; 3]> {
    let mut words = text.trim_ascii_end().split(|&byte| byte == b' ');
    Some([
        decimal(words.next()?)?,
        decimal(words.next()?)?,
        decimal(words.next()?)?,
    ])
}

/// Parses `io`: the numbers of its seven lines, in the order of [`crate::record::Io`].
pub fn io(text: &[u8]) -> Option<[u64; 7]> {
    const KEYS: [&[u8]; 7] = [
        b"rchar: ",
        b"wchar: ",
        b"syscr: ",
        b"syscw: ",
        b"read_bytes: ",
        b"write_bytes: ",
        b"cancelled_write_bytes: ",
    ];
    let mut lines = text.split(|&byte| byte == b'\n');
    let mut numbers = [0; 7];
    for (number, key) in numbers.iter_mut().zip(KEYS) {
        *number = decimal(lines.next()?.strip_prefix(key)?)?;
    }
    Some(numbers)
}

/// Parses `limits`: soft and hard limit by number, all ones being no limit. The names of limits have blanks in them, so the
/// columns count, which are as wide in each line as in the first.
pub fn limits(text: &[u8]) -> Option<[(u64, u64); LIMITS]> {
    const NAME: usize = 26;
    let mut lines = text.split(|&byte| byte == b'\n');
    if !lines.next()?.get(NAME..)?.starts_with(b"Soft Limit ") {
        return None;
    }
    let mut limits = [(0, 0); LIMITS];
    for limit in &mut limits {
        let mut numbers = words(lines.next()?.get(NAME..)?).map(|word| match word {
            b"unlimited" => Some(u64::MAX),
            number => decimal(number),
        });
        *limit = (numbers.next()??, numbers.next()??);
    }
    Some(limits)
}

/// The path in the unified hierarchy, from `cgroup`. The kernel lets no cgroup have a newline in its name.
pub fn cgroup(text: &[u8]) -> Option<&[u8]> {
    text.split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))
}

/// The inode number in the target of a link in `ns/`, such as `pid:[4026531836]`.
pub fn namespace(target: &[u8]) -> Option<u64> {
    let open = target.iter().position(|&byte| byte == b'[')?;
    decimal(target.get(open + 1..)?.strip_suffix(b"]")?)
}

/// The places where the whole of the unified cgroup hierarchy is mounted, as far as the reader sees it, from `mountinfo`. They
/// are escaped: see [`unescape`].
pub fn cgroup_mounts(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut words = line.split(|&byte| byte == b' ');
        let root = words.nth(3)?;
        let place = words.next()?;
        // Optional words end with a lone dash, behind which the type is.
        words.find(|word| word == b"-")?;
        (root == b"/" && words.next()? == b"cgroup2").then_some(place)
    })
}

/// The bytes of a path in `mountinfo`, where blanks, newlines and backslashes are a backslash and three octal digits.
pub fn unescape(text: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] = rest {
            rest = tail;
            return Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
        }
        let (&first, tail) = rest.split_first()?;
        rest = tail;
        Some(first)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAT: &[u8] = b"11182 (cat) R 11169 11169 8755 34816 -1 4194304 122 1 2 3 4 5 6 7 20 0 1 0 249640 3133440 397 \
        18446744073709551615 94705657503744 94705657523625 140729606887040 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 94705657539632 \
        94705657541248 94706473099264 140729606892144 140729606892221 140729606892221 140729606893547 0\n";

    const STATUS: &[u8] =
        b"Name:\ta\\nUid:\nUmask:\t0022\nState:\tR (running)\nTgid:\t11182\nPPid:\t11169\nTracerPid:\t0\n\
        Uid:\t0\t1\t2\t4294967295\nGid:\t0\t0\t0\t0\nGroups:\t4 27 \nNSpid:\t11182\t7\nVmPeak:\t    3060 kB\n\
        VmSize:\t    3050 kB\nRssAnon:\t     112 kB\nThreads:\t1\nCapPrm:\t000001fffeffffff\nNoNewPrivs:\t1\n\
        Seccomp:\t2\nSeccomp_filters:\t3\nCpus_allowed:\t5,80000000,00000003\nCpus_allowed_list:\t0-1,63,64,66\n\
        voluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t11\n";

    const IO: &[u8] = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
        cancelled_write_bytes: 18446744073709551615\n";

    /// Check that limits come from their columns.
    #[test]
    fn limits_of_a_process() {
        let mut text = format!(
            "{:<25} {:<20} {:<20} {:<10}\n",
            "Limit", "Soft Limit", "Hard Limit", "Units"
        );
        for number in 0..LIMITS {
            let name = format!("Max open files {number}");
            text += &format!("{name:<25} {:<20} {:<20} {:<10}\n", number * 2, "unlimited", "");
        }
        let expected: Vec<_> = (0..LIMITS as u64).map(|number| (number * 2, u64::MAX)).collect();
        assert_eq!(limits(text.as_bytes()).map(|limits| limits.to_vec()), Some(expected));
        let (cut, _) = text.rsplit_once("Max").unwrap();
        assert_eq!((limits(cut.as_bytes()), limits(b"")), (None, None));
    }

    fn all_lines() -> Lines {
        Line::ALL
            .iter()
            .fold(Lines::NONE, |lines, &(line, _)| lines.or(Lines::of(&[line])))
    }

    /// Check that each field of stat comes from its place.
    #[test]
    fn stat_of_a_process() {
        let stat = stat(CAT).unwrap();
        assert_eq!(stat.comm, b"cat");
        assert_eq!((stat.state, stat.ppid, stat.pgid, stat.sid), (b'R', 11169, 11169, 8755));
        assert_eq!((stat.tty_nr, stat.tpgid, stat.flags), (34816, -1, 4194304));
        assert_eq!((stat.min_faults, stat.child_min_faults), (122, 1));
        assert_eq!((stat.maj_faults, stat.child_maj_faults), (2, 3));
        assert_eq!((stat.utime_ticks, stat.stime_ticks), (4, 5));
        assert_eq!((stat.cutime_ticks, stat.cstime_ticks), (6, 7));
        assert_eq!((stat.priority, stat.nice, stat.threads_count), (20, 0, 1));
        assert_eq!(
            (stat.start_ticks, stat.vsize_bytes, stat.exit_signal),
            (249640, 3133440, 17)
        );
        assert_eq!((stat.processor, stat.rt_priority, stat.policy), (1, 0, 0));
        assert!(stat.is_leader() && stat.has_memory() && !stat.is_kernel_thread() && !stat.is_released());
        let late = stat.late_numbers();
        assert_eq!((late.get(24), late.get(28)), (Some(397), Some(140729606887040)));
        assert_eq!(
            (late.get(45), late.get(51)),
            (Some(94705657539632), Some(140729606893547))
        );
        assert_eq!((late.get(23), late.get(52)), (None, None));
        assert!(!late.are_addresses_denied());
    }

    /// Check that a kernel thread, and a task released while its line was written, are known as what they are.
    #[test]
    fn stat_of_tasks_that_are_no_usual_process() {
        let kthreadd =
            b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 1 0 0 20 0 1 0 0 0 0 18446744073709551615 0 0 0 0 0 0 0 \
            2147483647 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        let stat_of_kthreadd = stat(kthreadd).unwrap();
        assert!(stat_of_kthreadd.is_kernel_thread() && !stat_of_kthreadd.has_memory());
        let released =
            b"9 (x) X 0 -1 -1 0 -1 4 0 0 0 0 0 0 0 0 20 0 0 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 -1 0 0 0 0 0 0";
        let released = stat(released).unwrap();
        assert!(released.is_released() && !released.is_leader());
    }

    /// Check that the lines of status give their values, those asked for and no others.
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

    /// Check the number of every line that has one, alone and among others, and that it is the line that was asked for.
    #[test]
    fn each_line_has_its_number() {
        for (line, key) in Line::ALL {
            let (value, number) = match line {
                Line::State => ("R (running)", 0),
                Line::Uid | Line::Gid => ("1 2 3 4", 0),
                Line::Groups | Line::NsPid => ("1 2", 0),
                Line::CpusAllowed => ("ffffffff,00000001", 0),
                Line::CapInh | Line::CapPrm | Line::CapEff | Line::CapBnd | Line::CapAmb => {
                    ("000001ffffffffff", 0x1ff_ffff_ffff)
                }
                Line::SigPnd | Line::ShdPnd | Line::SigBlk | Line::SigIgn | Line::SigCgt => {
                    ("8000000000000001", 1 << 63 | 1)
                }
                Line::SigQ => ("3/100", 3),
                Line::Umask => ("0137", 0o137),
                Line::Voluntary | Line::Involuntary => ("5000000000", 5_000_000_000),
                Line::Ppid | Line::TracerPid | Line::Threads | Line::FdSize | Line::NoNewPrivs | Line::Seccomp => {
                    ("9", 9)
                }
                _ => ("      9 kB", 9 * 1024),
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

    /// Check that masks are no longer than they can be.
    #[test]
    fn numbers_of_other_bases() {
        assert_eq!(
            (octal(b"0"), octal(b"17"), octal(b"8"), octal(b"")),
            (Some(0), Some(0o17), None, None)
        );
        let most = [b'7'; 21];
        assert_eq!((octal(&most[..20]), octal(&most)), (Some((1 << 60) - 1), None));
        let most = [b'f'; 17];
        assert_eq!((hexadecimal(&most[..16]), hexadecimal(&most)), (Some(u64::MAX), None));
        assert_eq!(
            (hexadecimal(b"1F"), hexadecimal(b"g"), hexadecimal(b"")),
            (Some(0x1f), None, None)
        );
    }

    /// Check what a stat line says without its end, and which of its states are those of a task that has gone.
    #[test]
    fn stat_needs_what_is_asked_of_it() {
        let text = std::str::from_utf8(CAT).unwrap();
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        // Up to the policy, the 41st word.
        assert!(stat(words[..41].join(" ").as_bytes()).is_some());
        assert!(stat(words[..40].join(" ").as_bytes()).is_none());
        assert!(stat(b"1 (x) RR 1").is_none());
        assert!(stat(b"1 (x").is_none() && stat(b"1 x) R").is_none() && stat(b"1 )x( R").is_none());
        let with = |at: usize, word: &str| {
            let mut words = words.clone();
            words[at] = word;
            let text = words.join(" ");
            stat(text.as_bytes()).map(|stat| {
                (
                    stat.is_released(),
                    stat.is_leader(),
                    stat.late_numbers().are_addresses_denied(),
                )
            })
        };
        assert_eq!(with(2, "S"), Some((false, true, false)));
        assert_eq!(with(2, "X"), Some((true, true, false)));
        assert_eq!(with(19, "0"), Some((true, true, false)));
        assert_eq!(with(37, "-1"), Some((false, false, false)));
        assert_eq!(with(37, "0"), Some((false, true, false)));
        assert_eq!(with(9, "x"), None);
        assert_eq!(with(9, ""), None);
        let mut denied = words.clone();
        (denied[25], denied[26]) = ("1", "1");
        assert!(stat(denied.join(" ").as_bytes())
            .unwrap()
            .late_numbers()
            .are_addresses_denied());
        denied[26] = "2";
        assert!(!stat(denied.join(" ").as_bytes())
            .unwrap()
            .late_numbers()
            .are_addresses_denied());
    }

    /// Check that a line whose value is not what it should be counts as missing.
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

    /// Check the small files.
    #[test]
    fn small_files() {
        assert_eq!(number(b"-1000\n"), Some(-1000));
        assert_eq!(number(b"666\n"), Some(666));
        assert_eq!(number(b"4294967295"), Some(u32::MAX));
        assert_eq!(number::<u32>(b"-1"), None);
        assert_eq!(
            (number::<i32>(b""), number::<i32>(b"-\n"), number::<i32>(b"1 2")),
            (None, None, None)
        );
        assert_eq!((mask(b"00040000\n"), mask(b"x")), (Some(0x40000), None));
        assert_eq!(io(IO), Some([1, 2, 3, 4, 5, 6, u64::MAX]));
        assert_eq!((io(b"rchar: 1\nwchar: \n"), io(b"")), (None, None));
        assert_eq!(schedstat(b"235881677 30486716 453\n"), Some([235881677, 30486716, 453]));
        assert_eq!(schedstat(b"1 2\n"), None);
        assert_eq!(cgroup(b"1:cpu:/x\n0::/a b (deleted)\n"), Some(&b"/a b (deleted)"[..]));
        assert_eq!(cgroup(b"10::/x\n"), None);
        assert_eq!(namespace(b"pid_for_children:[4026531836]"), Some(4026531836));
        assert_eq!(namespace(b"pid:[]"), None);
        assert_eq!((task_id(b"1"), task_id(b"self"), task_id(b"")), (Some(1), None, None));
    }

    /// Check that the mount of all cgroups is found, whatever it is called, and one of a part is not.
    #[test]
    fn mounts_of_cgroups() {
        let text = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n40 31 0:37 / /cpu rw - cgroup cgroup rw,cpu\n\
            41 31 0:38 /part /part rw - cgroup2 cgroup2 rw\n42 31 0:38 / /a\\040b\\134 rw shared:1 master:2 - cgroup2 cgroup2 rw\n";
        let places: Vec<Vec<u8>> = cgroup_mounts(text).map(|place| unescape(place).collect()).collect();
        assert_eq!(places, [b"/a b\\"]);
    }

    proptest! {
        /// Check that a name comes out of stat as it went in, whatever is in it, and the numbers behind it too.
        #[test]
        fn stat_returns_any_name(comm in proptest::collection::vec(any::<u8>(), 0..64), tpgid: i32, start: u64) {
            let mut text = b"7 (".to_vec();
            text.extend_from_slice(&comm);
            text.extend_from_slice(format!(") S 1 2 3 4 {tpgid} 5 6 7 8 9 10 11 12 13 -2 -20 14 0 {start} 1 1 1").as_bytes());
            text.extend_from_slice(b" 1 1 1 1 1 1 1 1 1 1 1 1 17 2 99 1 0 0 0\n");
            let stat = stat(&text).unwrap();
            prop_assert_eq!(stat.comm, &comm[..]);
            prop_assert_eq!((stat.tpgid, stat.start_ticks), (tpgid, start));
            prop_assert_eq!((stat.priority, stat.nice, stat.threads_count), (-2, -20, 14));
            prop_assert_eq!((stat.exit_signal, stat.processor, stat.rt_priority, stat.policy), (17, 2, 99, 1));
        }

        /// Check that a processor mask comes out as it went in.
        #[test]
        fn masks_return(words in proptest::collection::vec(any::<u32>(), 1..300)) {
            let text: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
            let text = format!("Cpus_allowed:\t{}\n", text.join(","));
            let status = status(text.as_bytes(), all_lines());
            let found: Vec<u32> = status.processors().flat_map(|word| [word as u32, (word >> 32) as u32]).collect();
            prop_assert_eq!(&found[..words.len()], &words[..]);
        }

        /// Check that looking for a byte eight at a time finds what looking for it one by one finds.
        #[test]
        fn find_finds_the_first(text in proptest::collection::vec(0u8..4, 0..40)) {
            prop_assert_eq!(find(&text, 3), text.iter().position(|&byte| byte == 3));
        }

        /// Check that nothing makes the parsers panic.
        #[test]
        fn parsers_take_any_bytes(text in hostile()) {
            let _ = stat(&text).map(|stat| stat.late_numbers());
            let status = status(&text, all_lines());
            for (line, _) in Line::ALL {
                let _ = (status.ids(line).count(), status.number(line), status.state());
            }
            let _ = (status.processors().count(), number::<i32>(&text), schedstat(&text), cgroup(&text), namespace(&text));
            let _ = (io(&text), limits(&text), mask(&text));
            let _ = (cgroup_mounts(&text).count(), unescape(&text).count(), task_id(&text));
        }
    }

    /// Bytes of any kind, and texts of the kernel with some of their bytes changed.
    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let change = |text: &'static [u8]| {
            proptest::collection::vec((0..text.len(), any::<u8>()), 0..8).prop_map(move |changes| {
                let mut text = text.to_vec();
                changes.into_iter().for_each(|(at, byte)| text[at] = byte);
                text
            })
        };
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            change(CAT),
            change(IO),
            change(STATUS)
        ]
    }
}
