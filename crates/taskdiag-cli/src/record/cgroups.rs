//! Figures of the tasks' cgroups: the kernel's counters for units and containers.

use std::collections::BTreeSet;

use taskdiag::{Handle, Snapshot};
use taskdiag_core::text::process::hierarchies;
use taskdiag_history::figures::{self, Figure, Figures, Part};

/// The files that are read for each cgroup (cgroup-v2 and cgroup-v1 of the kernel's documentation).
const FILES: [&str; 11] = [
    "cpu.stat",
    "memory.current",
    "memory.stat",
    "memory.events",
    "io.stat",
    "cpu.pressure",
    "memory.pressure",
    "io.pressure",
    "memory.usage_in_bytes",
    "memory.oom_control",
    "cpuacct.usage",
];

/// Not every sample reads these files: the kernel sums up `memory.stat` each time it is read.
const EVERY_NS: u64 = 30_000_000_000;

/// The maximum number of cgroups.
const MAX_CGROUPS: usize = 1000;

/// The figures of the last reading.
#[derive(Debug, Default)]
pub struct CgroupFigures {
    figures: Figures,
    read_ns: Option<u64>,
}

impl CgroupFigures {
    /// The figures, read again when they are old enough.
    pub fn part(&mut self, snapshot: &Snapshot, handle: &Handle, now_ns: u64) -> Part<'_> {
        if self
            .read_ns
            .is_none_or(|read_ns| now_ns.saturating_sub(read_ns) >= EVERY_NS)
        {
            let left_out = self.read(snapshot, handle);
            let mut set = |key: &[u8], number| figures::set(&mut self.figures, b"cgroups", key, Figure::Number(number));
            set(b"read_ns", now_ns);
            set(b"left_out_count", left_out);
            self.read_ns = Some(now_ns);
        }
        Part {
            figures: &self.figures,
            version: self.read_ns.unwrap_or(0),
        }
    }

    /// Reads the figures. Returns how many cgroups were left out.
    fn read(&mut self, snapshot: &Snapshot, handle: &Handle) -> u64 {
        self.figures.clear();
        // Each with the controllers of its hierarchy.
        let mut cgroups: BTreeSet<(&[u8], &[u8])> = BTreeSet::new();
        for task in snapshot.tasks() {
            let unified = task.cgroup().map(|path| (&b""[..], path));
            let all = task.cgroups().ok().into_iter().flat_map(hierarchies);
            for (controllers, mut path) in all.chain(unified) {
                // Ancestors count their descendants, too.
                while cgroups.insert((controllers, path)) {
                    match path.iter().rposition(|&byte| byte == b'/') {
                        Some(at) if at > 0 => path = &path[..at],
                        _ => break,
                    }
                }
            }
        }
        let left_out = cgroups.len().saturating_sub(MAX_CGROUPS) as u64;
        for (controllers, path) in cgroups.into_iter().take(MAX_CGROUPS) {
            let object = [b"cgroup:", path].concat();
            let line = [b"0:", controllers, b":", path].concat();
            for (file, text) in FILES.iter().zip(handle.cgroup_files(&line, &FILES)) {
                let Ok(text) = text else { continue };
                let text = String::from_utf8_lossy(&text);
                for (key, number) in numbers(file, &text) {
                    figures::set(&mut self.figures, &object, key.as_bytes(), Figure::Number(number));
                }
            }
        }
        left_out
    }
}

/// The numbers in a file, by name.
fn numbers(file: &str, text: &str) -> Vec<(String, u64)> {
    let mut numbers = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let first = words.next().unwrap_or_default();
        match (first.parse(), file) {
            // A file with a single number.
            (Ok(number), _) => numbers.push((file.to_owned(), number)),
            (Err(_), "io.stat" | "cpu.pressure" | "memory.pressure" | "io.pressure") => {
                let pairs = words.filter_map(|word| word.split_once('='));
                for (key, number) in pairs.filter_map(|(key, value)| Some((key, value.parse::<u64>().ok()?))) {
                    numbers.push((format!("{file}.{first}.{key}"), number));
                }
            }
            (Err(_), _) => {
                if let Some(number) = words.next().and_then(|word| word.parse().ok()) {
                    numbers.push((format!("{file}.{first}"), number));
                }
            }
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the three formats of files, and that averages are omitted: they cannot be summed.
    #[test]
    fn files_have_three_forms() {
        let of = |file, text| {
            let numbers = numbers(file, text);
            numbers
                .iter()
                .map(|(key, number)| format!("{key}={number}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(of("memory.current", "4096\n"), "memory.current=4096");
        assert_eq!(of("cpu.stat", "usage_usec 5\nx y\n"), "cpu.stat.usage_usec=5");
        assert_eq!(
            of("io.stat", "8:0 rbytes=1 wbytes=2\n"),
            "io.stat.8:0.rbytes=1 io.stat.8:0.wbytes=2"
        );
        assert_eq!(
            of("io.pressure", "some avg10=0.00 total=7\n"),
            "io.pressure.some.total=7"
        );
    }
}
