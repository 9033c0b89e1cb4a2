//! What the kernel is and how much it has: small reads, made once.

use std::fs;

use crate::pages::FreshPages;

/// The number of tasks, threads included: the fourth value of `/proc/loadavg`, else what sysinfo(2) says.
pub fn tasks() -> Option<u32> {
    let from_loadavg = || {
        fs::read_to_string("/proc/loadavg")
            .ok()?
            .split_whitespace()
            .nth(3)?
            .split_once('/')?
            .1
            .parse()
            .ok()
    };
    from_loadavg().or_else(|| Some(rustix::system::sysinfo().procs.into()))
}

/// Major and minor version of the kernel.
pub fn kernel_version() -> Option<(u32, u32)> {
    let name = rustix::system::uname();
    let mut numbers = name.release().to_str().ok()?.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// How many processors there may be: one more than the highest number.
pub fn possible_cpus() -> u32 {
    let from_sysfs = || {
        let list = fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
        list.trim().rsplit([',', '-']).next()?.parse::<u32>().ok()
    };
    match from_sysfs() {
        Some(highest) => highest + 1,
        None => std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
    }
}

/// How many threads there are on this machine, modulo 65536 (`sysinfo(2)`).
pub fn threads() -> u16 {
    rustix::system::sysinfo().procs
}

/// Memory and swap in pages, as `oom_score` is relative to.
pub fn total_pages() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram + info.totalswap) * u64::from(info.mem_unit) / rustix::param::page_size() as u64
}

/// Whether `/proc` adds up the per-processor parts of a process's memory counters, or prints the central part alone.
///
/// That changed with 82241a83cd15 ("mm: fix the inaccurate memory statistics issue for users", 6.16), which went into some
/// stable kernels and not into others. So it is tried. The central part moves only by whole batches of 32 pages or more:
/// a growth by fewer shows that the parts are counted. Other threads of the caller may touch memory meanwhile, so one
/// try proves nothing.
pub fn sums_memory_counters() -> bool {
    const PAGES: usize = 3;
    const BATCH: usize = 32;
    const TRIES: usize = 8;
    let resident = || -> Option<usize> {
        let statm = fs::read_to_string("/proc/self/statm").ok()?;
        statm.split_whitespace().nth(1)?.parse().ok()
    };
    let growth = || -> Option<usize> {
        let before = resident()?;
        let pages = FreshPages::new(PAGES).ok()?;
        let after = resident()?;
        drop(pages);
        Some(after.saturating_sub(before))
    };
    if resident().is_none() {
        return kernel_version().is_some_and(|version| version >= (6, 16));
    }
    let small = (0..TRIES)
        .filter_map(|_| growth())
        .filter(|growth| (1..BATCH).contains(growth));
    small.take(2).count() == 2
}
