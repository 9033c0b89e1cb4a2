//! Facts about an animal that are known because it was made that way. The helper tells them to the
//! test in JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Byte strings in JSON: texts, in which the number of each character is a byte. Lists of numbers
/// take seconds for 2 MiB in a debug build.
mod bytes {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn text(bytes: &[u8]) -> String {
        bytes.iter().copied().map(char::from).collect()
    }

    pub(super) fn of_text(text: String) -> Vec<u8> {
        text.chars().map(|byte| byte as u8).collect()
    }

    pub(super) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        bytes.as_deref().map(text).serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
        Ok(Option::deserialize(from)?.map(of_text))
    }
}

/// The same for lists of them.
mod lists {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::bytes::{of_text, text};

    pub(super) fn serialize<S: Serializer>(list: &Option<Vec<Vec<u8>>>, to: S) -> Result<S::Ok, S::Error> {
        let texts = |list: &[Vec<u8>]| list.iter().map(|bytes| text(bytes)).collect::<Vec<String>>();
        list.as_deref().map(texts).serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Option<Vec<Vec<u8>>>, D::Error> {
        let list: Option<Vec<String>> = Option::deserialize(from)?;
        Ok(list.map(|list| list.into_iter().map(of_text).collect()))
    }
}

/// Facts about an animal that are known because it was made that way. None: nothing in particular
/// was arranged.
///
/// Ids of processes and users are those of the reader: those in the namespaces of whoever started
/// the zoo.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The animal's own process.
    pub pid: i32,
    /// The name, at most 15 bytes, as set.
    #[serde(with = "bytes")]
    pub comm: Option<Vec<u8>>,
    /// The argument list given to exec, if that is exactly what /proc shows.
    #[serde(with = "lists")]
    pub cmdline: Option<Vec<Vec<u8>>>,
    /// The exact bytes of /proc/PID/cmdline.
    #[serde(with = "bytes")]
    pub cmdline_raw: Option<Vec<u8>>,
    /// The environment given to exec.
    #[serde(with = "lists")]
    pub environ: Option<Vec<Vec<u8>>>,
    /// The path of the executable as /proc/PID/exe shows it.
    #[serde(with = "bytes")]
    pub exe: Option<Vec<u8>>,
    /// The letter of proc(5). Animals without this fact sleep (S).
    pub state: Option<char>,
    /// The parent.
    pub ppid: Option<i32>,
    /// The process group.
    pub pgid: Option<i32>,
    /// The session.
    pub sid: Option<i32>,
    /// The controlling terminal in the kernel's encoding.
    pub tty_nr: Option<i32>,
    /// The foreground process group of that terminal.
    pub tpgid: Option<i32>,
    /// The process that traces this one.
    pub tracer_pid: Option<i32>,
    /// The number of threads that /proc counts, a dead leader included.
    pub threads_count: Option<u64>,
    /// All thread ids, sorted.
    pub tids: Option<Vec<i32>>,
    /// All children, sorted.
    pub children: Option<Vec<i32>>,
    /// A process that is not a thread of this one but shares its memory.
    pub memory_shared_with: Option<i32>,
    /// The ids of the animal in the pid namespaces from the reader's down to its own.
    pub nspids: Option<Vec<i32>>,
    /// The namespaces (by their names in /proc/PID/ns) that differ from the reader's.
    #[serde(with = "lists")]
    pub own_namespaces: Option<Vec<Vec<u8>>>,
    /// How many seconds its clock of time since boot is ahead of the reader's.
    pub boottime_offset_s: Option<i64>,
    /// Real, effective, saved and file system user ids.
    pub uids: Option<Vec<u32>>,
    /// Real, effective, saved and file system group ids.
    pub gids: Option<Vec<u32>>,
    /// Supplementary groups in ascending order.
    pub groups: Option<Vec<u32>>,
    /// Inheritable capabilities.
    pub cap_inheritable: Option<u64>,
    /// Permitted capabilities.
    pub cap_permitted: Option<u64>,
    /// Effective capabilities.
    pub cap_effective: Option<u64>,
    /// The capability bounding set.
    pub cap_bounding: Option<u64>,
    /// Ambient capabilities.
    pub cap_ambient: Option<u64>,
    /// Whether exec can no longer raise privileges.
    pub no_new_privs: Option<bool>,
    /// The seccomp mode: 0 none, 1 strict, 2 filter.
    pub seccomp: Option<u32>,
    /// False: other users' processes, and tracers, are denied access to its /proc files.
    pub dumpable: Option<bool>,
    /// The nice value.
    pub nice: Option<i32>,
    /// The scheduling policy's number.
    pub policy: Option<u32>,
    /// The real-time priority.
    pub rt_priority: Option<u32>,
    /// The processors it may run on.
    pub affinity: Option<Vec<u32>>,
    /// The adjustment of the out-of-memory killer's score.
    pub oom_score_adj: Option<i32>,
    /// The user who logged in.
    pub loginuid: Option<u32>,
    /// Blocked signals (bit 0: signal 1).
    pub sig_blocked: Option<u64>,
    /// Signals pending for the first thread.
    pub sig_pending: Option<u64>,
    /// Signals pending for the process.
    pub sig_shared_pending: Option<u64>,
    /// Ignored signals.
    pub sig_ignored: Option<u64>,
    /// Signals with a handler.
    pub sig_caught: Option<u64>,
    /// Resident anonymous memory is at least this, and not much more.
    pub anon_at_least_bytes: Option<u64>,
    /// Resident file memory is at least this, and not much more.
    pub file_at_least_bytes: Option<u64>,
    /// Resident shared memory is at least this, and not much more.
    pub shmem_at_least_bytes: Option<u64>,
    /// Locked memory, exactly.
    pub locked_bytes: Option<u64>,
    /// The peak of resident memory is at least this much above the present value.
    pub peak_above_current_bytes: Option<u64>,
    /// CPU time used by the process, ended threads included, is at least this.
    pub cpu_at_least_ns: Option<u64>,
    /// CPU time used by each living thread except the leader is at least this.
    pub thread_cpu_at_least_ns: Option<u64>,
    /// CPU time of the children that were waited for is at least this.
    pub child_cpu_at_least_ns: Option<u64>,
    /// Minor faults of the children that were waited for, exactly.
    pub child_min_faults: Option<u64>,
    /// The number of open file descriptors is this, or slightly more.
    pub fd_at_least_count: Option<u64>,
    /// The path in the cgroup v2 tree.
    #[serde(with = "bytes")]
    pub cgroup: Option<Vec<u8>>,
    /// Some of its mappings, each as `START-END PERMS OFFSET NAME`, with numbers in hexadecimal and
    /// the name unescaped.
    #[serde(with = "lists")]
    pub mappings: Option<Vec<Vec<u8>>>,
}

impl Facts {
    /// For people: `name=value` for every known fact, with long values cut.
    pub fn describe(&self) -> Vec<String> {
        let facts = serde_json::to_value(self).unwrap_or_default();
        let known = facts.as_object().into_iter().flatten();
        let known = known.filter(|(name, value)| *name != "pid" && **value != Value::Null);
        let described = known.map(|(name, value)| {
            let value = value.to_string();
            let cut: String = value.chars().take(72).collect();
            let more = if cut.len() < value.len() { "..." } else { "" };
            format!("{name}={cut}{more}")
        });
        described.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_carries_every_kind_of_fact() {
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
        let text = serde_json::to_string(&facts).expect("facts are JSON");
        let read: Facts = serde_json::from_str(&text).expect("and are read from it");
        assert_eq!(read, facts);
        assert!(serde_json::from_str::<Facts>("ready").is_err());
    }
}
