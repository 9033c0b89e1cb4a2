//! The machine's figures in each sample: memory, processors, pressure, disks and facts about the
//! kernel.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;

use crate::host::{MemInfo, Times};
use crate::proc;
use taskdiag::Handle;
use taskdiag_core::text::cgroup::pressure;
use taskdiag_core::text::process::{mounts, unescape, Mount};
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
    let mut processors = 0;
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
            _ => processors += u64::from(name.starts_with("cpu")),
        }
    }
    if processors > 0 {
        set("stat", "processors", processors);
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
    // Microseconds since boot in which some or all tasks waited (Linux 4.20).
    for what in ["cpu", "memory", "io"] {
        let text = text(&format!("pressure/{what}"));
        for kind in ["some", "full"] {
            if let Some(pressure) = pressure(text.as_bytes(), kind.as_bytes()) {
                set("pressure", &format!("{what}.{kind}.total_us"), pressure.total_us);
            }
        }
    }
    let info = rustix::system::sysinfo();
    set(
        "context",
        "memory_bytes",
        info.totalram.saturating_mul(info.mem_unit.into()),
    );
    set("context", "has_cgroup1", Handle::has_cgroup1().into());
    add_disks(into);
}

/// File systems on disks. They answer at once.
const ON_DISKS: [&[u8]; 10] = [
    b"ext2",
    b"ext3",
    b"ext4",
    b"xfs",
    b"btrfs",
    b"f2fs",
    b"bcachefs",
    b"zfs",
    b"vfat",
    b"exfat",
];

/// File systems in memory, or above others: a path through them waits for nobody either.
const LOCAL: [&[u8]; 6] = [b"rootfs", b"overlay", b"tmpfs", b"devtmpfs", b"proc", b"sysfs"];

/// Adds how full the file systems on disks are, in bytes as df(1) has them: what is used, and what is
/// free for users. Each device counts once.
fn add_disks(into: &mut Figures) {
    // Mount points are those of this process, whatever /proc is read.
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let waits = |mount: &Mount<'_>| !ON_DISKS.contains(&mount.kind) && !LOCAL.contains(&mount.kind);
    let waiting: Vec<&[u8]> = mounts(&text).filter(waits).map(|mount| mount.point).collect();
    let is_below = |point: &[u8], other: &&[u8]| {
        let rest = point.strip_prefix(*other);
        rest.is_some_and(|rest| *other == b"/" || rest.starts_with(b"/"))
    };
    let mut known = BTreeSet::new();
    for mount in mounts(&text).filter(|mount| ON_DISKS.contains(&mount.kind)) {
        let device = (mount.device.major, mount.device.minor);
        if waiting.iter().any(|other| is_below(mount.point, other)) || !known.insert(device) {
            continue;
        }
        let path: Vec<u8> = unescape(mount.point).collect();
        let object = [b"disk:", &path[..]].concat();
        let Ok(disk) = rustix::fs::statvfs(OsString::from_vec(path)) else {
            continue;
        };
        let used = disk.f_blocks.saturating_sub(disk.f_bfree);
        for (key, blocks) in [("used_bytes", used), ("free_bytes", disk.f_bavail)] {
            let bytes = Figure::Number(blocks.saturating_mul(disk.f_frsize));
            figures::set(into, &object, key.as_bytes(), bytes);
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
