//! The parser of `/proc/PID/stat`.

use super::super::number::decimal;

/// The fields of `stat` that taskdiag uses.
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
    /// The text after `vsize`.
    rest: &'a [u8],
}

/// `PF_KTHREAD`, in the flags of `stat`.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// The numbers of `stat` after `vsize`, by their positions in proc_pid_stat(5), which start at 1.
/// Few queries need them, so they are parsed separately.
#[derive(Clone, Copy, Debug)]
pub struct LateNumbers([Option<u64>; LateNumbers::LAST - LateNumbers::FIRST + 1]);

impl LateNumbers {
    const FIRST: usize = 24;
    const LAST: usize = 51;

    /// The number at a position. `None` if it is negative, or if this kernel does not print it.
    pub fn get(&self, position: usize) -> Option<u64> {
        *self.0.get(position.checked_sub(LateNumbers::FIRST)?)?
    }

    /// Whether the kernel hides the addresses from this reader: it prints 1 for `startcode` and
    /// `endcode`, and 0 for the others.
    pub fn are_addresses_denied(&self) -> bool {
        (self.get(26), self.get(27)) == (Some(1), Some(1))
    }
}

impl Stat<'_> {
    /// Parses the numbers after `vsize`.
    pub fn late_numbers(&self) -> LateNumbers {
        let mut words = Words(self.rest);
        LateNumbers([(); LateNumbers::LAST - LateNumbers::FIRST + 1].map(|()| decimal(words.word()?)))
    }

    /// Whether the task is a kernel thread (`PF_KTHREAD`).
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether the task has an address space: the kernel prints its size, and 0 if there is none.
    pub fn has_memory(&self) -> bool {
        self.vsize_bytes != 0
    }

    /// Whether the task is its process's leader. It makes the same test as the kernel's
    /// thread_group_leader().
    pub fn is_leader(&self) -> bool {
        self.exit_signal >= 0
    }

    /// Whether the task was released while the kernel wrote the line, or is about to be (state X).
    /// The kernel then can't lock the task's `signal_struct`, so it prints initial values for
    /// everything in it. One of them is the number of threads, which is 0 in no other case.
    pub fn is_released(&self) -> bool {
        self.threads_count == 0 || self.state == b'X'
    }
}

/// Parses `stat`.
///
/// The kernel prints the name unescaped, between the first `(` and the last `)`. The name can have
/// parentheses, blanks and newlines. Only the state and numbers follow it.
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

/// Words, each followed by one blank or newline. The last may lack it.
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

    /// An id. The kernel prints ids as int, with -1 for a task that was released during the read.
    /// It also prints device numbers as int, whose top bit may be set.
    fn id(&mut self) -> Option<u32> {
        Some(self.signed()? as u32)
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

    /// Check that kernel threads, and tasks that were released while their line was written, are
    /// recognized.
    #[test]
    fn stat_of_unusual_tasks() {
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

    /// Check which words a line needs, and which values mean that a task was released, is a leader,
    /// or hides its addresses.
    #[test]
    fn stat_needs_its_words() {
        let text = std::str::from_utf8(CAT).unwrap();
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        // The policy is the 41st word.
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

    proptest! {
        /// Check that any name is read as it was printed, and so are the numbers after it.
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
    }
}
