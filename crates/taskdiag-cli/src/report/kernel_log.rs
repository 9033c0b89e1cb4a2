//! The kernel's log: the processes that the OOM killer killed.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;

use super::incidents::Kill;

/// The content of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The processes that were killed, by their ids in the initial pid namespace. Each with its time
    /// in nanoseconds since boot, by the kernel's own clock, which stops while the machine sleeps.
    pub kills: Vec<(u64, Kill)>,
    /// How far back the log goes, in nanoseconds since boot.
    pub first_ns: Option<u64>,
}

/// At most this much of a log is read. No kernel has a larger one.
const MAX_BYTES: usize = 64 << 20;

/// Reads the log as far as the kernel still has it.
pub fn read() -> io::Result<Log> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open("/dev/kmsg")?;
    let mut log = Log::default();
    // Each read returns a record, or an error if the record does not fit.
    let mut record = [0; 8192];
    let mut bytes = 0;
    while bytes < MAX_BYTES {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(count) => {
                bytes += count;
                log.add(&record[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // The record was overwritten in between. The next read continues after it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(log)
}

impl Log {
    /// Adds a record of `/dev/kmsg`: `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT`, and lines that
    /// begin with a space.
    fn add(&mut self, record: &[u8]) {
        let Some((priority, since_boot_ns, text)) = parts(record) else {
            return;
        };
        self.first_ns.get_or_insert(since_boot_ns);
        // Programs can write to the log too. The facility of their messages is not 0, which is the
        // kernel's.
        if priority >> 3 == 0 {
            self.kills.extend(kill(text).map(|kill| (since_boot_ns, kill)));
        }
    }
}

fn parts(record: &[u8]) -> Option<(u64, u64, &[u8])> {
    let semicolon = record.iter().position(|&byte| byte == b';')?;
    let head = std::str::from_utf8(&record[..semicolon]).ok()?;
    let mut words = head.split(',');
    let priority = words.next()?.parse().ok()?;
    let us: u64 = words.nth(1)?.parse().ok()?;
    let text = &record[semicolon + 1..];
    let end = text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len());
    Some((priority, us.saturating_mul(1000), &text[..end]))
}

/// The line `oom-kill:constraint=…,task_memcg=PATH,task=NAME,pid=NUMBER,uid=NUMBER` (Linux 5.0).
fn kill(text: &[u8]) -> Option<Kill> {
    let rest = text.strip_prefix(b"oom-kill:")?;
    // A name may contain anything, so search for what follows it from the end.
    let (rest, _) = split_last(rest, b",uid=")?;
    let (rest, pid) = split_last(rest, b",pid=")?;
    let pid = std::str::from_utf8(pid).ok()?.parse().ok()?;
    // What precedes it contains no comma: a cgroup's path may, but no path made by systemd or a
    // container runtime does.
    let at = find(rest, b",task=")?;
    let cgroup = find(&rest[..at], b",task_memcg=").map(|from| &rest[from + b",task_memcg=".len()..at]);
    Some(Kill {
        pid,
        comm: unescape(&rest[at + b",task=".len()..]),
        cgroup: Some(unescape(cgroup.unwrap_or_default())),
        is_logged: true,
    })
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn split_last<'t>(text: &'t [u8], what: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let at = text.windows(what.len()).rposition(|window| window == what)?;
    Some((&text[..at], &text[at + what.len()..]))
}

/// The kernel writes unprintable bytes, and backslashes, as `\xHH`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        let escaped = match rest {
            [b'\\', b'x', high, low, ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                digit(*high).zip(digit(*low)).map(|(high, low)| (high * 16 + low) as u8)
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &rest[4..] } else { behind };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a.slice,\
                        task_memcg=/a.slice/b.service,task=NAME,pid=4711,uid=0";

    fn log(records: &[String]) -> Log {
        let mut log = Log::default();
        records.iter().for_each(|record| log.add(record.as_bytes()));
        log
    }

    /// Check that kills are found with their time, whatever names contain, that messages from
    /// programs are not taken for kills, and how far back the log goes.
    #[test]
    fn kills_are_those_of_the_kernel() {
        let record = |priority: u32, us: u64, name: &str| {
            format!("{priority},9,{us},-;{}\n SUBSYSTEM=x\n", LINE.replace("NAME", name))
        };
        let log = log(&[
            "6,1,500000,-;Linux version\n".to_owned(),
            record(6, 600_000, "ruby"),
            record(14, 700_000, "forged"),
            record(6, 800_000, "a,pid=1,uid=2"),
            record(6, 900_000, "\\x3cscript>\\x5c"),
        ]);
        assert_eq!(log.first_ns, Some(500_000_000));
        let kills = log
            .kills
            .iter()
            .map(|(since_boot_ns, kill)| (*since_boot_ns, kill.pid, &*kill.comm, kill.cgroup.as_deref()));
        let cgroup = Some(&b"/a.slice/b.service"[..]);
        assert_eq!(
            kills.collect::<Vec<_>>(),
            [
                (600_000_000, 4711, &b"ruby"[..], cgroup),
                (800_000_000, 4711, b"a,pid=1,uid=2", cgroup),
                (900_000_000, 4711, b"<script>\\", cgroup),
            ]
        );
    }

    /// Check that other lines are ignored, including truncated ones.
    #[test]
    fn nonsense_is_no_kill() {
        for text in ["", ";", "6,1,2,-;", "6,1,x,-;oom-kill:", "x"] {
            assert_eq!(log(&[text.to_owned()]).kills, Vec::<(u64, Kill)>::new(), "{text}");
        }
        let whole = format!("6,9,600000,-;{}", LINE);
        for end in 0..whole.len() - ",uid=0".len() {
            assert_eq!(
                log(&[whole[..end].to_owned()]).kills,
                Vec::<(u64, Kill)>::new(),
                "{end}"
            );
        }
    }
}
