//! The parser of `/proc/PID/stat`.

use memchr::{memchr, memrchr};

use super::super::number::decimal;

names! {
    /// The words of `stat` (proc_pid_stat(5)).
    Word:
        pid comm state ppid pgrp session tty_nr tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime
        priority nice num_threads itrealvalue starttime vsize rss rsslim startcode endcode startstack kstkesp kstkeip
        signal blocked sigignore sigcatch wchan nswap cnswap exit_signal processor rt_priority policy
        delayacct_blkio_ticks guest_time cguest_time start_data end_data start_brk arg_start arg_end env_start env_end
        exit_code
}

/// The numbers of `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// The name.
    pub comm: &'a [u8],
    /// The letter of the state.
    pub state: u8,
    /// By position; negative ones as in two's complement. The last word, `exit_code`, has no field and is
    /// left out.
    numbers: [u64; Word::ALL.len()],
    /// The positions of the numbers that were parsed.
    found: u64,
}

/// A set of positions of numbers in `stat`, as proc_pid_stat(5) counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions(u64);

impl Positions {
    /// Those that the methods of [`Stat`] read. They are always parsed.
    pub const BASIC: Positions = Positions(
        1 << at(Word::ppid)
            | 1 << at(Word::tty_nr)
            | 1 << at(Word::flags)
            | 1 << at(Word::num_threads)
            | 1 << at(Word::starttime)
            | 1 << VSIZE
            | 1 << EXIT_SIGNAL,
    );

    /// All.
    pub const ALL: Positions = Positions(u64::MAX);

    /// The set with one more position.
    pub const fn with(self, position: u8) -> Positions {
        Positions(self.0 | 1 << position)
    }
}

/// `PF_KTHREAD`, in the flags of `stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;

const VSIZE: usize = at(Word::vsize);
const EXIT_SIGNAL: usize = at(Word::exit_signal);
const POLICY: usize = at(Word::policy);

/// The position of a word, as proc_pid_stat(5) counts them: from 1.
const fn at(word: Word) -> usize {
    word as usize + 1
}

impl Stat<'_> {
    /// The number at a position of proc_pid_stat(5), which starts at 1; the state is a number here.
    /// `None` if it was not parsed, is malformed, or this kernel does not print it.
    pub fn number(&self, position: usize) -> Option<u64> {
        let is_there = self.found >> position & 1 != 0;
        is_there.then(|| self.numbers[position])
    }

    /// Whether the kernel hides the addresses from this reader: it prints 1 for `startcode` and
    /// `endcode`, and 0 for the others.
    pub fn are_addresses_denied(&self) -> bool {
        (self.number(at(Word::startcode)), self.number(at(Word::endcode))) == (Some(1), Some(1))
    }

    /// Whether the task is a kernel thread (`PF_KTHREAD`).
    pub fn is_kernel_thread(&self) -> bool {
        self.numbers[at(Word::flags)] & KERNEL_THREAD != 0
    }

    /// Whether the task has an address space: the kernel prints its size, and 0 if there is none.
    pub fn has_memory(&self) -> bool {
        self.numbers[VSIZE] != 0
    }

    /// Whether the task is its process's leader. It makes the same test as the kernel's
    /// thread_group_leader().
    pub fn is_leader(&self) -> bool {
        self.numbers[EXIT_SIGNAL] as i64 >= 0
    }

    /// The process id of the parent.
    pub fn ppid(&self) -> u32 {
        self.numbers[at(Word::ppid)] as u32
    }

    /// The device number of the terminal.
    pub fn tty_nr(&self) -> u32 {
        self.numbers[at(Word::tty_nr)] as u32
    }

    /// The number of threads.
    pub fn threads_count(&self) -> u32 {
        self.numbers[at(Word::num_threads)] as u32
    }

    /// The start time, in clock ticks.
    pub fn start_ticks(&self) -> u64 {
        self.numbers[at(Word::starttime)]
    }

    /// Whether the task was released while the kernel wrote the line, or is about to be (state X).
    /// The kernel then can't lock the task's `signal_struct`, so it prints initial values for
    /// everything in it. One of them is the number of threads, which is 0 in no other case.
    pub fn is_released(&self) -> bool {
        self.threads_count() == 0 || self.state == b'X'
    }
}

/// Parses the `wanted` numbers of `stat`, and the basic ones. It does not look at what follows them.
///
/// The kernel prints the name unescaped, between the first `(` and the last `)`. The name can have
/// parentheses, blanks and newlines. Only the state and numbers follow it.
pub fn stat(text: &[u8], wanted: Positions) -> Option<Stat<'_>> {
    let open = memchr(b'(', text)?;
    let close = memrchr(b')', text)?;
    let comm = text.get(open + 1..close)?;
    let words = &mut Text(text.get(close + 1..)?.strip_prefix(b" ")?);
    let &[state] = words.word()? else { return None };
    let mut numbers = [0; Word::ALL.len()];
    let mut found = 1 << at(Word::state);
    numbers[at(Word::state)] = state.into();
    let wanted = wanted.0 | Positions::BASIC.0;
    for (position, place) in numbers.iter_mut().enumerate().skip(at(Word::ppid)) {
        if wanted >> position == 0 {
            break;
        }
        let number = match position {
            _ if wanted >> position & 1 == 0 => match words.word() {
                None if position <= POLICY => return None,
                _ => None,
            },
            ..=VSIZE | EXIT_SIGNAL..=POLICY => Some(words.number()?),
            ..EXIT_SIGNAL => decimal(words.word()?),
            // Not all kernels print these.
            _ => words.word().and_then(decimal),
        };
        if let Some(number) = number {
            *place = number;
            found |= 1 << position;
        }
    }
    Some(Stat {
        comm,
        state,
        numbers,
        found,
    })
}

/// Words, each followed by one blank or newline. The last may lack it.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn word(&mut self) -> Option<&'a [u8]> {
        let len = self.0.iter().position(|&byte| byte <= b' ').unwrap_or(self.0.len());
        let word = &self.0[..len];
        self.0 = self.0.get(len + 1..).unwrap_or_default();
        (len != 0).then_some(word)
    }

    /// A number, of which the kernel prints some as int, with -1 for the ids of a task that was
    /// released during the read. It also prints device numbers as int, whose top bit may be set.
    fn number(&mut self) -> Option<u64> {
        let word = self.word()?;
        match word.strip_prefix(b"-") {
            Some(digits) => Some(0i64.checked_sub_unsigned(decimal(digits)?)? as u64),
            None => decimal(word),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in super::super) const CAT: &[u8] = b"11182 (cat) R 11169 11169 8755 34816 -1 4194304 122 1 2 3 4 5 6 7 20 0 1 0 249640 3133440 397 \
        18446744073709551615 94705657503744 94705657523625 140729606887040 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 94705657539632 \
        94705657541248 94706473099264 140729606892144 140729606892221 140729606892221 140729606893547 0\n";

    /// Check that each field is read from its position.
    #[test]
    fn stat_of_a_process() {
        let stat = stat(CAT, Positions::ALL).unwrap();
        assert_eq!(stat.comm, b"cat");
        assert_eq!((stat.state, stat.ppid(), stat.tty_nr()), (b'R', 11169, 34816));
        assert_eq!((stat.threads_count(), stat.start_ticks()), (1, 249640));
        let numbers = (3..=23).chain(38..=41).filter_map(|position| stat.number(position));
        let state = u64::from(b'R');
        let expected = [
            state,
            11169,
            11169,
            8755,
            34816,
            -1_i64 as u64,
            4194304,
            122,
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            20,
            0,
            1,
            0,
        ]
        .into_iter()
        .chain([249640, 3133440, 17, 1, 0, 0]);
        assert!(numbers.eq(expected), "{stat:?}");
        assert!(stat.is_leader() && stat.has_memory() && !stat.is_kernel_thread() && !stat.is_released());
        assert_eq!((stat.number(24), stat.number(28)), (Some(397), Some(140729606887040)));
        assert_eq!(
            (stat.number(45), stat.number(51)),
            (Some(94705657539632), Some(140729606893547))
        );
        assert_eq!(
            (stat.number(1), stat.number(52), stat.number(40)),
            (None, None, Some(0))
        );
        assert!(!stat.are_addresses_denied());
    }

    /// Check that numbers that are not wanted are not looked at, and that those behind them are found.
    #[test]
    fn stat_of_wanted_numbers() {
        let stat = stat(CAT, Positions::BASIC.with(39)).unwrap();
        assert_eq!(
            (stat.number(39), stat.number(23), stat.number(22)),
            (Some(1), Some(3133440), Some(249640))
        );
        assert_eq!([5, 24, 40, 45].map(|position| stat.number(position)), [None; 4]);
    }

    /// Check that kernel threads, and tasks that were released while their line was written, are
    /// recognized.
    #[test]
    fn stat_of_unusual_tasks() {
        let kthreadd =
            b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 1 0 0 20 0 1 0 0 0 0 18446744073709551615 0 0 0 0 0 0 0 \
            2147483647 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        let stat_of_kthreadd = stat(kthreadd, Positions::BASIC).unwrap();
        assert!(stat_of_kthreadd.is_kernel_thread() && !stat_of_kthreadd.has_memory());
        let released =
            b"9 (x) X 0 -1 -1 0 -1 4 0 0 0 0 0 0 0 0 20 0 0 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 -1 0 0 0 0 0 0";
        let released = stat(released, Positions::BASIC).unwrap();
        assert!(released.is_released() && !released.is_leader());
    }

    /// Check which words a line needs, and which values mean that a task was released, is a leader,
    /// or hides its addresses.
    #[test]
    fn stat_needs_its_words() {
        let text = std::str::from_utf8(CAT).unwrap();
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        // The policy is the 41st word.
        assert!(stat(words[..41].join(" ").as_bytes(), Positions::ALL).is_some());
        assert!(stat(words[..40].join(" ").as_bytes(), Positions::ALL).is_none());
        assert!(stat(b"1 (x) RR 1", Positions::BASIC).is_none());
        assert!(
            stat(b"1 (x", Positions::BASIC).is_none()
                && stat(b"1 x) R", Positions::BASIC).is_none()
                && stat(b"1 )x( R", Positions::BASIC).is_none()
        );
        let with = |at: usize, word: &str| {
            let mut words = words.clone();
            words[at] = word;
            let text = words.join(" ");
            stat(text.as_bytes(), Positions::ALL)
                .map(|stat| (stat.is_released(), stat.is_leader(), stat.are_addresses_denied()))
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
        let are_denied = |words: &[&str]| {
            let text = words.join(" ");
            stat(text.as_bytes(), Positions::ALL).unwrap().are_addresses_denied()
        };
        assert!(are_denied(&denied));
        denied[26] = "2";
        assert!(!are_denied(&denied));
    }

    proptest! {
        /// Check that any name is read as it was printed, and so are the numbers after it.
        #[test]
        fn stat_returns_any_name(comm in proptest::collection::vec(any::<u8>(), 0..64), tpgid: i32, start: u64) {
            let mut text = b"7 (".to_vec();
            text.extend_from_slice(&comm);
            text.extend_from_slice(format!(") S 1 2 3 4 {tpgid} 5 6 7 8 9 10 11 12 13 -2 -20 14 0 {start} 1 1 1").as_bytes());
            text.extend_from_slice(b" 1 1 1 1 1 1 1 1 1 1 1 1 17 2 99 1 0 0 0\n");
            let stat = stat(&text, Positions::ALL).unwrap();
            prop_assert_eq!(stat.comm, &comm[..]);
            let number = |position| stat.number(position).unwrap() as i64;
            prop_assert_eq!((number(8), stat.start_ticks()), (tpgid.into(), start));
            prop_assert_eq!((number(18), number(19), number(20)), (-2, -20, 14));
            prop_assert_eq!([38, 39, 40, 41].map(number), [17, 2, 99, 1]);
        }
    }
}
