//! The texts of `/proc/PID`: bytes in, values out.
//!
//! Nothing here does I/O, allocates, or panics, whatever the bytes are. What does not parse is `None`, never a 0.

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

/// The number that a file of one number holds.
pub(super) fn number(text: &[u8]) -> Option<i32> {
    signed(text.trim_ascii())?.try_into().ok()
}

/// The number that a directory's name is, if it is that of a task.
pub(super) fn task_id(name: &[u8]) -> Option<u32> {
    id(name)
}

/// The fields of `stat` that are of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat<'a> {
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
}

/// `PF_KTHREAD`, in the flags of `stat`.
const KERNEL_THREAD: u32 = 0x0020_0000;

impl Stat<'_> {
    pub(super) fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether the task has an address space: the kernel gives the size of the one it has, else 0.
    pub(super) fn has_memory(&self) -> bool {
        self.vsize_bytes != 0
    }

    /// Whether the task leads its process. This is the kernel's own definition of a leader.
    pub(super) fn is_leader(&self) -> bool {
        self.exit_signal >= 0
    }

    /// Whether the task was released while the kernel wrote the line: without the lock on its signals, all that is in their
    /// structure stays at what it was initialized with. No process has 0 threads otherwise.
    pub(super) fn is_released(&self) -> bool {
        self.threads_count == 0
    }
}

/// Parses `stat`.
///
/// The name stands as it is between the first `(` and the last `)`, and may have both in it, and blanks and newlines; behind
/// it there are only numbers.
pub(super) fn stat(text: &[u8]) -> Option<Stat<'_>> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let comm = text.get(open + 1..close)?;
    let numbers = text.get(close + 1..)?.strip_prefix(b" ")?.trim_ascii_end();
    let mut words = numbers.split(|&byte| byte == b' ');

    fn unsigned<'a, T: TryFrom<u64>>(words: &mut impl Iterator<Item = &'a [u8]>) -> Option<T> {
        decimal(words.next()?)?.try_into().ok()
    }
    fn integer<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Option<i32> {
        signed(words.next()?)?.try_into().ok()
    }
    // Ids are printed as int, and as -1 for a task that was released meanwhile; so are device numbers, whose top bit may be set.
    fn number<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Option<u32> {
        Some(integer(words)? as u32)
    }

    let words = &mut words;
    let &[state] = words.next()? else { return None };
    Some(Stat {
        comm,
        state,
        ppid: number(words)?,
        pgid: number(words)?,
        sid: number(words)?,
        tty_nr: number(words)?,
        tpgid: integer(words)?,
        flags: unsigned(words)?,
        min_faults: unsigned(words)?,
        child_min_faults: unsigned(words)?,
        maj_faults: unsigned(words)?,
        child_maj_faults: unsigned(words)?,
        utime_ticks: unsigned(words)?,
        stime_ticks: unsigned(words)?,
        cutime_ticks: unsigned(words)?,
        cstime_ticks: unsigned(words)?,
        priority: integer(words)?,
        nice: integer(words)?,
        threads_count: unsigned(words)?,
        start_ticks: {
            words.next()?; // itrealvalue
            unsigned(words)?
        },
        vsize_bytes: unsigned(words)?,
        exit_signal: {
            words.nth(13)?; // rss to cnswap
            integer(words)?
        },
        processor: unsigned(words)?,
        rt_priority: unsigned(words)?,
        policy: unsigned(words)?,
    })
}

macro_rules! lines {
    ($($id:ident $key:literal;)*) => {
        /// The lines of `status` that are of use.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Line { $($id),* }

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
    VmSwap b"VmSwap"; Threads b"Threads"; CapInh b"CapInh"; CapPrm b"CapPrm"; CapEff b"CapEff"; CapBnd b"CapBnd"; CapAmb b"CapAmb";
    NoNewPrivs b"NoNewPrivs"; Seccomp b"Seccomp"; CpusAllowed b"Cpus_allowed";
    Voluntary b"voluntary_ctxt_switches"; Involuntary b"nonvoluntary_ctxt_switches";
}

/// A set of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines(u64);

impl Lines {
    pub(super) const NONE: Lines = Lines(0);

    pub(super) const fn of(lines: &[Line]) -> Lines {
        let mut bits = 0;
        let mut at = 0;
        while at < lines.len() {
            bits |= 1 << lines[at] as u64;
            at += 1;
        }
        Lines(bits)
    }

    pub(super) fn or(self, other: Lines) -> Lines {
        Lines(self.0 | other.0)
    }

    pub(super) fn is_subset(self, other: Lines) -> bool {
        self.0 & !other.0 == 0
    }

    pub(super) fn contains(self, line: Line) -> bool {
        self.0 >> line as u64 & 1 != 0
    }
}

/// The lines of a `status` that were wanted and are there, their values well formed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status<'a> {
    values: [(u64, &'a [u8]); Line::COUNT],
    found: Lines,
}

/// Finds the `wanted` lines of `status`, and stops when it has them all.
///
/// The kernel escapes newlines in the name, so that each line is what it seems to be.
pub(super) fn status(text: &[u8], wanted: Lines) -> Status<'_> {
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
        // In kB, all that begin with a V or an R.
        _ if (Line::VmPeak as u8..=Line::VmSwap as u8).contains(&(line as u8)) => {
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
    pub(super) fn found(&self) -> Lines {
        self.found
    }

    /// The number or bit mask of a line; bytes, of one in kB. 0 if the line was not found.
    pub(super) fn number(&self, line: Line) -> u64 {
        self.values[line as usize].0
    }

    /// The same of a line that has nothing larger than an id.
    pub(super) fn id(&self, line: Line) -> u32 {
        self.number(line) as u32
    }

    fn words(&self, line: Line) -> impl Iterator<Item = &'a [u8]> {
        words(self.values[line as usize].1)
    }

    /// The ids of a line.
    pub(super) fn ids(&self, line: Line) -> impl Iterator<Item = u32> + 'a {
        self.words(line).map_while(id)
    }

    /// The state.
    pub(super) fn state(&self) -> Option<u8> {
        self.words(Line::State).next()?.first().copied()
    }

    /// The words of the processor mask, that of the lowest processors first. The line has 32 bits a word, the highest first.
    pub(super) fn processors(&self) -> impl Iterator<Item = u64> + 'a {
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
pub(super) fn schedstat(text: &[u8]) -> Option<[u64; 3]> {
    let mut words = text.trim_ascii_end().split(|&byte| byte == b' ');
    Some([
        decimal(words.next()?)?,
        decimal(words.next()?)?,
        decimal(words.next()?)?,
    ])
}

/// The path in the unified hierarchy, from `cgroup`. The kernel lets no cgroup have a newline in its name.
pub(super) fn cgroup(text: &[u8]) -> Option<&[u8]> {
    text.split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))
}

/// The inode number in the target of a link in `ns/`, such as `pid:[4026531836]`.
pub(super) fn namespace(target: &[u8]) -> Option<u64> {
    let open = target.iter().position(|&byte| byte == b'[')?;
    decimal(target.get(open + 1..)?.strip_suffix(b"]")?)
}

/// The places where the whole of the unified cgroup hierarchy is mounted, as far as the reader sees it, from `mountinfo`. They
/// are escaped: see [`unescape`].
pub(super) fn cgroup_mounts(text: &[u8]) -> impl Iterator<Item = &[u8]> {
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
pub(super) fn unescape(text: &[u8]) -> impl Iterator<Item = u8> + '_ {
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
