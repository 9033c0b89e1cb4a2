//! Facts about an animal that are known because it was made that way, and the lines that carry them
//! from the helper to the test.

use std::fmt::Write as _;

/// The value of a fact, as one word of text.
trait Word: Sized {
    fn write(&self) -> String;
    fn read(word: &str) -> Option<Self>;
    /// For people.
    fn show(&self) -> String {
        self.write()
    }
}

macro_rules! plain_words {
    ($($type:ty),*) => {$(impl Word for $type {
        fn write(&self) -> String { self.to_string() }
        fn read(word: &str) -> Option<Self> { word.parse().ok() }
    })*};
}
plain_words!(i32, u32, u64, i64, bool, char);

macro_rules! list_words {
    ($($type:ty),*) => {$(impl Word for Vec<$type> {
        fn write(&self) -> String {
            let words: Vec<String> = self.iter().map(|item| item.to_string()).collect();
            format!("[{}]", words.join(","))
        }
        fn read(word: &str) -> Option<Self> {
            let inner = word.strip_prefix('[')?.strip_suffix(']')?;
            inner.split(',').filter(|item| !item.is_empty()).map(|item| item.parse().ok()).collect()
        }
    })*};
}
list_words!(i32, u32);

/// Bytes are sent as hexadecimal digits after an `x`.
impl Word for Vec<u8> {
    fn write(&self) -> String {
        // Without the formatting machinery, which takes seconds for 2 MiB in a debug build.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = vec![b'x'; 1 + 2 * self.len()];
        for (i, &byte) in self.iter().enumerate() {
            text[1 + 2 * i] = DIGITS[(byte >> 4) as usize];
            text[2 + 2 * i] = DIGITS[(byte & 15) as usize];
        }
        String::from_utf8(text).unwrap_or_default()
    }
    fn read(word: &str) -> Option<Self> {
        let digits = word.strip_prefix('x')?.as_bytes();
        let digit = |byte| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = Self::with_capacity(digits.len() / 2);
        for pair in digits.chunks(2) {
            bytes.push(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
        }
        Some(bytes)
    }
    fn show(&self) -> String {
        // Nobody reads 2 MiB, and the end is cut off anyway.
        format!("\"{}\"", self[..self.len().min(200)].escape_ascii())
    }
}

/// A byte string as one word of text. [`bytes_of_word`] is the inverse.
pub(crate) fn word_of_bytes(bytes: &[u8]) -> String {
    bytes.to_vec().write()
}

pub(crate) fn bytes_of_word(word: &str) -> Option<Vec<u8>> {
    Word::read(word)
}

impl Word for Vec<Vec<u8>> {
    fn write(&self) -> String {
        let words: Vec<String> = self.iter().map(Word::write).collect();
        words.join(",")
    }
    fn read(word: &str) -> Option<Self> {
        word.split(',')
            .filter(|item| !item.is_empty())
            .map(Word::read)
            .collect()
    }
    fn show(&self) -> String {
        let words: Vec<String> = self.iter().take(8).map(Word::show).collect();
        format!("[{}{}]", words.join(", "), if self.len() > 8 { ", ..." } else { "" })
    }
}

macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// Facts about an animal that are known because it was made that way. None: nothing in
        /// particular was arranged.
        ///
        /// Ids of processes and users are those of the reader: those in the namespaces of whoever
        /// started the zoo.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Facts {
            /// The animal's own process.
            pub pid: i32,
            $($(#[$doc])* pub $name: Option<$type>,)*
        }

        impl Facts {
            /// One line for each fact. The other end passes each line to [`Facts::read_line`].
            pub(crate) fn lines(&self) -> String {
                let mut text = format!("pid {}\n", self.pid);
                $(if let Some(value) = &self.$name {
                    let _ = writeln!(text, "{} {}", stringify!($name), value.write());
                })*
                text
            }

            /// Takes a line. False if it does not hold a fact.
            pub(crate) fn read_line(&mut self, line: &str) -> bool {
                let Some((name, word)) = line.trim_end().split_once(' ').or(Some((line.trim_end(), ""))) else {
                    return false;
                };
                match name {
                    "pid" => word.parse().map(|pid| self.pid = pid).is_ok(),
                    $(stringify!($name) => {
                        self.$name = Word::read(word);
                        self.$name.is_some()
                    })*
                    _ => false,
                }
            }

            /// For people: `name=value` for every known fact, with long values cut.
            pub fn describe(&self) -> Vec<String> {
                let mut list = Vec::new();
                $(if let Some(value) = &self.$name {
                    let value: String = value.show();
                    let cut: String = value.chars().take(72).collect();
                    let more = if cut.len() < value.len() { "..." } else { "" };
                    list.push(format!("{}={cut}{more}", stringify!($name)));
                })*
                list
            }
        }
    };
}

facts! {
    /// The name, at most 15 bytes, as set.
    comm: Vec<u8>,
    /// The argument list given to exec, if that is exactly what /proc shows.
    cmdline: Vec<Vec<u8>>,
    /// The exact bytes of /proc/PID/cmdline.
    cmdline_raw: Vec<u8>,
    /// The environment given to exec.
    environ: Vec<Vec<u8>>,
    /// The path of the executable as /proc/PID/exe shows it.
    exe: Vec<u8>,
    /// The letter of proc(5). Animals without this fact sleep (S).
    state: char,
    /// The parent.
    ppid: i32,
    /// The process group.
    pgid: i32,
    /// The session.
    sid: i32,
    /// The controlling terminal in the kernel's encoding.
    tty_nr: i32,
    /// The foreground process group of that terminal.
    tpgid: i32,
    /// The process that traces this one.
    tracer_pid: i32,
    /// The number of threads that /proc counts, a dead leader included.
    threads_count: u64,
    /// All thread ids, sorted.
    tids: Vec<i32>,
    /// All children, sorted.
    children: Vec<i32>,
    /// A process that is not a thread of this one but shares its memory.
    memory_shared_with: i32,
    /// The ids of the animal in the pid namespaces from the reader's down to its own.
    nspids: Vec<i32>,
    /// The namespaces (by their names in /proc/PID/ns) that differ from the reader's.
    own_namespaces: Vec<Vec<u8>>,
    /// How many seconds its clock of time since boot is ahead of the reader's.
    boottime_offset_s: i64,
    /// Real, effective, saved and file system user ids.
    uids: Vec<u32>,
    /// Real, effective, saved and file system group ids.
    gids: Vec<u32>,
    /// Supplementary groups in ascending order.
    groups: Vec<u32>,
    /// Inheritable capabilities.
    cap_inheritable: u64,
    /// Permitted capabilities.
    cap_permitted: u64,
    /// Effective capabilities.
    cap_effective: u64,
    /// The capability bounding set.
    cap_bounding: u64,
    /// Ambient capabilities.
    cap_ambient: u64,
    /// Whether exec can no longer raise privileges.
    no_new_privs: bool,
    /// The seccomp mode: 0 none, 1 strict, 2 filter.
    seccomp: u32,
    /// False: other users' processes, and tracers, are denied access to its /proc files.
    dumpable: bool,
    /// The nice value.
    nice: i32,
    /// The scheduling policy's number.
    policy: u32,
    /// The real-time priority.
    rt_priority: u32,
    /// The processors it may run on.
    affinity: Vec<u32>,
    /// The adjustment of the out-of-memory killer's score.
    oom_score_adj: i32,
    /// Blocked signals (bit 0: signal 1).
    sig_blocked: u64,
    /// Signals pending for the first thread.
    sig_pending: u64,
    /// Signals pending for the process.
    sig_shared_pending: u64,
    /// Ignored signals.
    sig_ignored: u64,
    /// Signals with a handler.
    sig_caught: u64,
    /// Resident anonymous memory is at least this, and not much more.
    anon_at_least_bytes: u64,
    /// Resident file memory is at least this, and not much more.
    file_at_least_bytes: u64,
    /// Resident shared memory is at least this, and not much more.
    shmem_at_least_bytes: u64,
    /// Locked memory, exactly.
    locked_bytes: u64,
    /// The peak of resident memory is at least this much above the present value.
    peak_above_current_bytes: u64,
    /// CPU time used by the process, ended threads included, is at least this.
    cpu_at_least_ns: u64,
    /// CPU time used by each living thread except the leader is at least this.
    thread_cpu_at_least_ns: u64,
    /// CPU time of the children that were waited for is at least this.
    child_cpu_at_least_ns: u64,
    /// Minor faults of the children that were waited for, exactly.
    child_min_faults: u64,
    /// The number of open file descriptors is this, or slightly more.
    fd_at_least_count: u64,
    /// The path in the cgroup v2 tree.
    cgroup: Vec<u8>,
    /// Some of its mappings, each as `START-END PERMS OFFSET NAME`, with numbers in hexadecimal and
    /// the name unescaped.
    mappings: Vec<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_carry_every_kind_of_fact() {
        let facts = Facts {
            pid: 7,
            comm: Some(b"a) \n\xff".to_vec()),
            cmdline: Some(vec![vec![], b"b".to_vec(), vec![]]),
            cmdline_raw: Some(vec![]),
            environ: Some(vec![]),
            state: Some('D'),
            tids: Some(vec![7, 8]),
            groups: Some(vec![]),
            boottime_offset_s: Some(-3),
            dumpable: Some(false),
            cap_bounding: Some(u64::MAX),
            ..Facts::default()
        };
        let mut read = Facts::default();
        for line in facts.lines().lines() {
            assert!(read.read_line(line), "{line:?}");
        }
        assert_eq!(read, facts);
        assert!(!read.read_line("ready"));
    }
}
