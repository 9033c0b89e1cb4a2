//! The limits of the cgroup that this program runs in, such as a container's.

use std::fs;

use taskdiag::{Absent, Handle};
use taskdiag_core::text::cgroup::{byte_limit, limit, quota, quota1};

use crate::proc;

/// The least limits that its cgroup and those above it have, as far as they are shown here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processor time, in processors.
    pub processors: Option<f64>,
}

/// Of the unified hierarchy, and of version 1.
const FILES: [&str; 5] = [
    "memory.max",
    "memory.limit_in_bytes",
    "cpu.max",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
];

impl Limits {
    /// Reads them. The machine of an outer procfs is not that of a container's limits.
    pub fn read(handle: &Handle) -> Limits {
        let mut limits = Limits::default();
        let mut lines = fs::read(proc::path("self/cgroup")).ok();
        while let Some(cgroups) = lines.filter(|_| !proc::chosen().is_outer()) {
            limits.add(&handle.cgroup_files(&cgroups, &FILES));
            lines = above(&cgroups);
        }
        limits
    }

    fn add(&mut self, texts: &[Result<Vec<u8>, Absent>]) {
        let text = |index: usize| texts.get(index)?.as_deref().ok();
        let memory = text(0).and_then(limit).or_else(|| text(1).and_then(byte_limit));
        let time = text(2).and_then(quota).or_else(|| quota1(text(3)?, text(4)?));
        let processors = time.and_then(|(quota, period)| Some(quota? as f64 / period.max(1) as f64));
        let known = |both: [Option<f64>; 2]| both.into_iter().flatten().reduce(f64::min);
        self.memory = self.memory.into_iter().chain(memory.flatten()).min();
        self.processors = known([self.processors, processors]);
    }
}

/// The cgroups that contain these, in the form of `/proc/PID/cgroup`. `None` if all are roots.
fn above(lines: &[u8]) -> Option<Vec<u8>> {
    let mut above = Vec::new();
    let mut has_other = false;
    for line in lines.split(|&byte| byte == b'\n') {
        let mut slashes = (0..line.len()).filter(|&at| line[at] == b'/');
        let Some(root) = slashes.next() else { continue };
        has_other |= line.len() > root + 1;
        above.extend(&line[..slashes.next_back().unwrap_or(root + 1)]);
        above.push(b'\n');
    }
    has_other.then_some(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: [&str; 5]) -> Limits {
        let mut limits = Limits::default();
        limits.add(&texts.map(|text| {
            let text = Some(text.as_bytes().to_vec()).filter(|text| !text.is_empty());
            text.ok_or(Absent::Unsupported)
        }));
        limits
    }

    fn limits(memory: Option<u64>, processors: Option<f64>) -> Limits {
        Limits { memory, processors }
    }

    /// Check the files of both versions, and that the least limit counts.
    #[test]
    fn files_have_limits() {
        assert_eq!(of(["", "", "", "", ""]), Limits::default());
        assert_eq!(of(["max\n", "", "max 100000\n", "", ""]), Limits::default());
        let mut unified = of(["4096\n", "", "150000 100000\n", "", ""]);
        assert_eq!(unified, limits(Some(4096), Some(1.5)));
        let none = "9223372036854771712\n";
        assert_eq!(of(["", none, "", "-1\n", "100000\n"]), Limits::default());
        assert_eq!(
            of(["", "8192\n", "", "50000\n", "100000\n"]),
            limits(Some(8192), Some(0.5))
        );
        unified.add(&[
            Ok(b"8192\n".to_vec()),
            Err(Absent::Unsupported),
            Ok(b"50000 100000\n".to_vec()),
        ]);
        assert_eq!(unified, limits(Some(4096), Some(0.5)));
    }

    /// Check that each path loses its last name, up to the root.
    #[test]
    fn cgroups_are_in_others() {
        let up = |lines: &str| above(lines.as_bytes()).map(|lines| String::from_utf8(lines).expect("text"));
        let (first, second) = (
            "9:cpu,cpuacct:/a/b\n4:memory:/c\n0::/\n",
            "9:cpu,cpuacct:/a\n4:memory:/\n0::/\n",
        );
        assert_eq!(up(first).as_deref(), Some(second));
        assert_eq!(up(second).as_deref(), Some("9:cpu,cpuacct:/\n4:memory:/\n0::/\n"));
        assert_eq!(up("9:cpu,cpuacct:/\n0::/\n"), None);
        assert_eq!(up(""), None);
    }
}
