//! What has to be known of this host besides its tasks. Small reads, made once.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{access, Access};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{capabilities, CapabilitySet};

use crate::field::Groups;
use crate::source::bpf::load::missing_capabilities;
use crate::support::{Fact, Support};
use crate::sys::pages::FreshPages;
use crate::sys::procmap::{self, QueryFlags};

/// Inode number of the initial user namespace, the same on every kernel since 3.8 (`PROC_USER_INIT_INO`).
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Finds out what can answer on this host, without loading anything.
pub(crate) fn probe(built: &'static str, pinned: &Path, broker: &Path) -> Support {
    let status = fs::read("/proc/self/status");
    Support {
        procfs: procfs(status.as_deref().ok()),
        procfs_complete: procfs_complete(),
        bpf_built: match built {
            "" => Fact::yes("built in"),
            why => Fact::no(
                format!("built without the BPF programs: {why}"),
                "install clang and libbpf-dev, and build again",
            ),
        },
        btf: btf(),
        bpf_load: bpf_load(),
        task_iterator: match kernel_version() {
            Some(version) if version < (5, 18) => Fact::no(
                format!(
                    "Linux {}.{}; sleepable task iterators came with 5.18",
                    version.0, version.1
                ),
                "",
            ),
            _ => Fact::unknown("not tried yet"),
        },
        iterator_by_pid: came_with((6, 1)),
        task_walk: came_with((6, 2)),
        pinned: pinned_programs(pinned),
        broker: broker_socket(broker),
        broker_shows: Groups::NONE,
        cgroup2: cgroup2(),
        cachestat: crate::pagecache::probe(),
        procmap_query: procmap_query(),
        smaps_rollup: own_file(
            "/proc/self/smaps_rollup",
            "proportional sizes are read in one piece",
            "this kernel lacks smaps_rollup, which came with 4.14: smaps is added up",
        ),
        smaps: own_file(
            "/proc/self/smaps",
            "the kernel tells what mappings hold",
            "this kernel was built without CONFIG_PROC_PAGE_MONITOR: there are no proportional sizes",
        ),
        tasks: tasks(),
    }
}

fn came_with(needed: (u32, u32)) -> Fact {
    match kernel_version() {
        Some(version) if version >= needed => Fact::yes(format!("Linux {}.{}", version.0, version.1)),
        Some(version) => Fact::no(
            format!(
                "Linux {}.{}; it came with {}.{}",
                version.0, version.1, needed.0, needed.1
            ),
            "",
        ),
        None => Fact::unknown("the kernel's version is not a number"),
    }
}

fn procfs(status: Option<&[u8]>) -> Fact {
    let Some(status) = status else {
        let remedy = "mount it: mount -t proc proc /proc";
        return match Path::new("/proc/uptime").exists() || Path::new("/proc/1").exists() {
            true => Fact::no("/proc shows another pid namespace than the caller's", remedy),
            false => Fact::no("/proc is not mounted", remedy),
        };
    };
    let line = |key: &str| {
        let text = std::str::from_utf8(status).unwrap_or_default();
        text.lines()
            .find_map(|line| Some(line.strip_prefix(key)?.split_whitespace().count()))
    };
    // One number for each pid namespace from that of the mount inward: more than one, and the mount is not ours.
    match line("NSpid:") {
        Some(levels) if levels > 1 => Fact::no(
            "/proc shows an outer pid namespace, whose ids are not the caller's",
            "mount one of this namespace: mount -t proc proc /proc",
        ),
        _ => Fact::yes("/proc is mounted"),
    }
}

fn procfs_complete() -> Fact {
    let Ok(mounts) = fs::read("/proc/self/mountinfo") else {
        return Fact::unknown("/proc/self/mountinfo can't be read");
    };
    let mounts = String::from_utf8_lossy(&mounts);
    // The last mount on a mount point is the one that is seen.
    let options = mounts
        .lines()
        .filter(|line| line.split(' ').nth(4) == Some("/proc"))
        .filter_map(|line| line.split(" - ").nth(1)?.split(' ').nth(2))
        .next_back()
        .unwrap_or_default();
    let trusted = effective_capabilities().is_some_and(|held| held.contains(CapabilitySet::SYS_PTRACE));
    let hides = |option: &&str| {
        option.starts_with("subset=pid")
            || (option.starts_with("hidepid=") && !trusted && !matches!(*option, "hidepid=0" | "hidepid=off"))
    };
    match options.split(',').find(hides) {
        Some(option) if option.starts_with("hidepid") => Fact::no(
            format!("/proc is mounted with {option}: tasks of other users are hidden without CAP_SYS_PTRACE"),
            capability_remedy("run as root, or join the group of the mount's gid= option"),
        ),
        Some(option) => Fact::no(
            format!("/proc is mounted with {option}: only the directories of tasks are there"),
            "nothing is lost for tasks; mount another /proc for the rest",
        ),
        None => Fact::yes("/proc shows every task"),
    }
}

fn btf() -> Fact {
    match fs::metadata(BTF) {
        Ok(_) => Fact::yes(BTF),
        Err(error) => Fact::no(
            format!("{BTF}: {error}"),
            "mount sysfs, or use a kernel built with CONFIG_DEBUG_INFO_BTF",
        ),
    }
}

fn effective_capabilities() -> Option<CapabilitySet> {
    Some(capabilities(None).ok()?.effective)
}

/// What to do about a missing capability: `others` is for those who are not root.
pub(crate) fn capability_remedy(others: &'static str) -> &'static str {
    match geteuid().is_root() {
        true => "this root was started without: in containers, --cap-add gives it back",
        false => others,
    }
}

pub(crate) fn bpf_load() -> Fact {
    if effective_capabilities().is_none() {
        return Fact::unknown("the capabilities of this thread can't be read");
    }
    let remedy = capability_remedy(
        "run as root, or with both capabilities (setcap cap_bpf,cap_perfmon+ep), or let root run: taskdiag pin",
    );
    let missing = missing_capabilities();
    if !missing.is_empty() {
        let verb = if missing.len() == 1 { "is" } else { "are" };
        return Fact::no(format!("{} {verb} missing", missing.join(" and ")), remedy);
    }
    match fs::read_link("/proc/self/ns/user") {
        Ok(namespace) if namespace.as_os_str() != INITIAL_USER_NAMESPACE => Fact::no(
            "CAP_BPF and CAP_PERFMON count only in the initial user namespace",
            "run outside of the container",
        ),
        _ => Fact::yes("CAP_BPF and CAP_PERFMON are held"),
    }
}

fn pinned_programs(directory: &Path) -> Fact {
    match access(directory.join("readers"), Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => Fact::yes(format!("pinned in {}", directory.display())),
        Err(Errno::NOENT) => Fact::no("no programs are pinned", "as root: taskdiag pin"),
        Err(error) => Fact::no(
            format!("{}: {error}", directory.display()),
            "pinned programs are root's, since they see every task",
        ),
    }
}

fn broker_socket(path: &Path) -> Fact {
    match fs::metadata(path) {
        Ok(_) => Fact::unknown(format!("{} is there, not tried yet", path.display())),
        Err(error) => Fact::no(format!("{}: {error}", path.display()), "as root: taskdiagd"),
    }
}

fn cgroup2() -> Fact {
    match fs::read("/proc/self/cgroup") {
        Ok(text) if text.starts_with(b"0::") || text.windows(4).any(|window| window == b"\n0::") => {
            Fact::yes("the unified hierarchy is there")
        }
        Ok(_) => Fact::no(
            "the unified cgroup hierarchy is not mounted",
            "mount -t cgroup2 none /sys/fs/cgroup",
        ),
        Err(error) => Fact::unknown(format!("/proc/self/cgroup: {error}")),
    }
}

/// Whether the kernel has a file, which it then has of this process.
fn own_file(path: &'static str, there: &'static str, missing: &'static str) -> Fact {
    match fs::File::open(path) {
        Ok(_) => Fact::yes(there),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Fact::no(missing, ""),
        Err(error) => Fact::unknown(format!("{path}: {error}")),
    }
}

/// Asks for the first of our own mappings.
fn procmap_query() -> Fact {
    let maps = match fs::File::open("/proc/self/maps") {
        Ok(maps) => maps,
        Err(error) => return Fact::unknown(format!("/proc/self/maps: {error}")),
    };
    match procmap::query(maps.as_fd(), 0, QueryFlags::COVERING_OR_NEXT, &mut [], &mut []) {
        Ok(_) => Fact::yes("mappings are looked up by ioctl"),
        Err(Errno::NOTTY) => Fact::no(
            "this kernel lacks the PROCMAP_QUERY ioctl, which came with 6.11: mappings are read as text",
            "",
        ),
        Err(error) => Fact::unknown(format!("PROCMAP_QUERY: {error}")),
    }
}

/// The number of tasks, threads included: the fourth value of `/proc/loadavg`, else what sysinfo(2) says.
pub(crate) fn tasks() -> Option<u32> {
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
pub(crate) fn kernel_version() -> Option<(u32, u32)> {
    let name = rustix::system::uname();
    let mut numbers = name.release().to_str().ok()?.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// How many processors there may be: one more than the highest number.
pub(crate) fn possible_cpus() -> u32 {
    let from_sysfs = || {
        let list = fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
        list.trim().rsplit([',', '-']).next()?.parse::<u32>().ok()
    };
    match from_sysfs() {
        Some(highest) => highest + 1,
        None => std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
    }
}

/// How many processors this thread may run on.
pub(crate) fn usable_cpus() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count())
}

/// Moves this thread off a processor, if it may run on another one. If that has other work, the first may have it back.
pub(crate) fn leave_cpu(cpu: usize) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        return;
    };
    let mut others = allowed;
    if cpu < rustix::thread::CpuSet::MAX_CPU {
        others.unset(cpu);
    }
    if others.count() > 0 {
        // Refusals leave it where it is.
        let _ = rustix::thread::sched_setaffinity(None, &others);
        let _ = rustix::thread::sched_setaffinity(None, &allowed);
    }
}

/// How many threads there are on this machine, modulo 65536 (`sysinfo(2)`).
pub(crate) fn threads() -> u16 {
    rustix::system::sysinfo().procs
}

/// Memory and swap in pages, as `oom_score` is relative to.
pub(crate) fn total_pages() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram + info.totalswap) * u64::from(info.mem_unit) / rustix::param::page_size() as u64
}

/// Whether `/proc` adds up the per-processor parts of a process's memory counters, or prints the central part alone.
///
/// That changed with 82241a83cd15 ("mm: fix the inaccurate memory statistics issue for users", 6.16), which went into some
/// stable kernels and not into others. So it is tried. The central part moves only by whole batches of 32 pages or more:
/// a growth by fewer shows that the parts are counted. Other threads of the caller may touch memory meanwhile, so one
/// try proves nothing.
pub(crate) fn sums_memory_counters() -> bool {
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

/// A page of this process's memory that can be told from all others.
#[derive(Debug)]
pub(crate) struct KnownPage {
    memory: Vec<u64>,
    /// Where in it the page begins.
    start: usize,
}

impl KnownPage {
    const WORDS: usize = 4096 / size_of::<u64>();

    /// A page that begins with random numbers.
    pub(crate) fn new() -> KnownPage {
        let mut memory = vec![0_u64; 2 * KnownPage::WORDS];
        let start = (memory.as_ptr().addr() / size_of::<u64>()).wrapping_neg() % KnownPage::WORDS;
        memory[start] = RandomState::new().hash_one(start);
        memory[start + 1] = RandomState::new().hash_one(start);
        KnownPage { memory, start }
    }

    /// What it begins with.
    pub(crate) fn words(&self) -> [u64; 2] {
        [self.memory[self.start], self.memory[self.start + 1]]
    }

    /// Where in the machine's memory it is, if the caller may know that: `/proc/PID/pagemap`.
    pub(crate) fn physical_address(&self) -> Option<u64> {
        const FRAME: u64 = (1 << 55) - 1;
        let page = self.memory[self.start..].as_ptr().addr() as u64 / 4096;
        let mut entry = [0; 8];
        let pagemap = fs::File::open("/proc/self/pagemap").ok()?;
        pagemap.read_exact_at(&mut entry, page * 8).ok()?;
        Some((u64::from_ne_bytes(entry) & FRAME) * 4096).filter(|&address| address != 0)
    }
}
