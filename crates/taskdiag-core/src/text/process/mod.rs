//! The parsers of the text files of `/proc/PID`.
//!
//! They do no I/O, allocate nothing, and never panic, whatever the bytes are. Anything invalid is
//! `None`, never 0.

mod mountinfo;
mod stat;
mod status;
#[cfg(test)]
mod tests;

use super::number::{decimal, hexadecimal, signed};
use crate::record::LIMITS;
pub use mountinfo::{cgroup_mounts, has_controller, mounts, swaps, unescape, Mount};
pub use stat::{stat, Positions, Stat, Word};
pub use status::{status, Line, Lines, Status};

/// Parses a file that has one number, such as `oom_score_adj`.
pub fn number<T: TryFrom<i64>>(text: &[u8]) -> Option<T> {
    signed(text.trim_ascii())?.try_into().ok()
}

/// Parses a file that has one bit mask in hexadecimal, such as `personality`.
pub fn mask(text: &[u8]) -> Option<u32> {
    hexadecimal(text.trim_ascii())?.try_into().ok()
}

/// Parses the name of a directory in `/proc`: the id of a task. `None` for other names.
pub fn task_id(name: &[u8]) -> Option<u32> {
    id(name)
}

/// Parses `schedstat`: the time on a processor and the time waiting for one, in nanoseconds, and
/// the number of timeslices.
pub fn schedstat(text: &[u8]) -> Option<[u64; 3]> {
    let mut words = text.trim_ascii_end().split(|&byte| byte == b' ');
    Some([
        decimal(words.next()?)?,
        decimal(words.next()?)?,
        decimal(words.next()?)?,
    ])
}

names! {
    /// The lines of `io`.
    IoLine: rchar wchar syscr syscw read_bytes write_bytes cancelled_write_bytes
}

/// Parses `io`: the numbers of its lines, in the order of [`IoLine`].
pub fn io(text: &[u8]) -> Option<[u64; IoLine::ALL.len()]> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let mut numbers = [0; IoLine::ALL.len()];
    for (number, key) in numbers.iter_mut().zip(IoLine::NAMES) {
        let value = lines.next()?.strip_prefix(key.as_bytes())?;
        *number = decimal(value.strip_prefix(b": ")?)?;
    }
    Some(numbers)
}

/// Parses `limits`: the soft and hard limits, in the order of `RLIMIT_CPU` to `RLIMIT_RTTIME`. All
/// ones mean no limit.
///
/// The names of limits have blanks, so the numbers are found by their column, which is the same in
/// each line.
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

/// The name in `wchan`. Empty if there is none: the kernel then prints `0`.
pub fn wchan(text: &[u8]) -> &[u8] {
    match text.trim_ascii_end() {
        b"0" => b"",
        name => name,
    }
}

/// The label in `attr/current`. Some modules end it with a newline or a NUL.
pub fn security_label(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte != b'\n' && byte != 0);
    &text[..end.map_or(0, |last| last + 1)]
}

/// Parses `cgroup`: the path in the unified hierarchy. The kernel allows no newline in the name of
/// a cgroup.
pub fn cgroup(text: &[u8]) -> Option<&[u8]> {
    text.split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))
}

/// The lines of `cgroup`, without the newline at the end.
pub fn cgroups(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}

/// Parses the lines of `cgroup`: the controllers, or the name of a hierarchy without any
/// (`name=systemd`), and the path. There are no controllers in the line of the unified hierarchy.
pub fn hierarchies(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut parts = line.splitn(3, |&byte| byte == b':').skip(1);
        Some((parts.next()?, parts.next()?))
    })
}

names! {
    /// The links in `ns/`, in the order of [`crate::record::Namespaces`].
    NamespaceLink: pid pid_for_children mnt net user uts ipc cgroup time
}

/// Parses the target of a link in `ns/`, such as `pid:[4026531836]`: the inode number.
pub fn namespace(target: &[u8]) -> Option<u64> {
    let open = target.iter().position(|&byte| byte == b'[')?;
    decimal(target.get(open + 1..)?.strip_suffix(b"]")?)
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn id(word: &[u8]) -> Option<u32> {
    decimal(word)?.try_into().ok()
}
