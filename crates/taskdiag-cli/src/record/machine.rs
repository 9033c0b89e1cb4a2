//! The machine's figures in each sample: memory, processors, pressure and facts about the kernel.

use std::fs;

use crate::host::{MemInfo, Times};
use crate::proc;
use taskdiag::Handle;
use taskdiag_history::figures::{self, Figure, Figures};

/// Adds the current figures.
pub fn add(into: &mut Figures) {
    let mut set = |object: &str, key: &str, number: u64| {
        figures::set(into, object.as_bytes(), key.as_bytes(), Figure::Number(number));
    };
    let text = |name: &str| fs::read_to_string(proc::path(name)).unwrap_or_default();
    if let Ok(info) = MemInfo::read() {
        for (name, bytes) in info.entries() {
            set("meminfo", name, bytes);
        }
    }
    for line in text("stat").lines() {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let numbers = words.flat_map(str::parse::<u64>);
        match name {
            "cpu" => {
                for (key, ticks) in Times::NAMES.iter().zip(numbers) {
                    set("cpu", key, ticks);
                }
            }
            "ctxt" | "processes" | "procs_running" | "procs_blocked" => {
                numbers.take(1).for_each(|number| set("stat", name, number));
            }
            _ => {}
        }
    }
    for line in text("vmstat").lines() {
        if let Some((name, Ok(count))) = line.split_once(' ').map(|(name, count)| (name, count.parse())) {
            if VMSTAT.contains(&name) {
                set("vmstat", name, count);
            }
        }
    }
    for (index, average) in text("loadavg").split(' ').take(3).enumerate() {
        if let Ok(average) = average.parse::<f64>() {
            set("load", ["1", "5", "15"][index], (average * 100.0).round() as u64);
        }
    }
    for what in ["cpu", "memory", "io"] {
        add_pressure(what, &text(&format!("pressure/{what}")), &mut set);
    }
    let info = rustix::system::sysinfo();
    set(
        "context",
        "memory_bytes",
        info.totalram.saturating_mul(info.mem_unit.into()),
    );
    set("context", "has_cgroup1", Handle::has_cgroup1().into());
}

/// Adds pressure stall information: microseconds since boot in which some or all tasks waited
/// (Linux 4.20).
fn add_pressure(what: &str, text: &str, set: &mut impl FnMut(&str, &str, u64)) {
    for line in text.lines() {
        let total = line.rsplit_once("total=").and_then(|(_, total)| total.parse().ok());
        if let (Some(kind), Some(total)) = (line.split(' ').next(), total) {
            set("pressure", &format!("{what}.{kind}.total_us"), total);
        }
    }
}

/// The counters of `/proc/vmstat` that reveal a shortage of memory.
const VMSTAT: [&str; 6] = [
    "oom_kill",
    "pgmajfault",
    "pswpin",
    "pswpout",
    "pgscan_direct",
    "allocstall_normal",
];
