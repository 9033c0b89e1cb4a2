//! Facts about this host: its kernel, processors, tasks and memory.

use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::time::{clock_gettime, ClockId};

use crate::pages::FreshPages;

static OWN_PROC: OnceLock<String> = OnceLock::new();

/// The longest path of a procfs for which [`OwnPath`] has room.
const MAX_PROC_PATH: usize = 192;

/// Where this process finds its own files: `/proc`, or where that has none, what [`use_proc`] got.
pub fn own_proc() -> &'static str {
    OWN_PROC.get().map_or("/proc", String::as_str)
}

/// The path of a file there.
pub fn proc_file(name: &str) -> PathBuf {
    Path::new(own_proc()).join(name)
}

/// Finds this process's own files in this procfs if `/proc` does not have them, as in a chroot.
pub fn use_proc(path: &Path) {
    let path = path.to_str().filter(|path| path.len() <= MAX_PROC_PATH);
    if let (Some(path), Err(_)) = (path, fs::metadata("/proc/self/status")) {
        let _ = OWN_PROC.set(path.to_owned());
    }
}

/// A path of words and numbers, made without memory from the heap.
#[derive(Debug)]
pub struct StackPath<const LEN: usize>([u8; LEN]);

impl<const LEN: usize> StackPath<LEN> {
    /// The path with this text.
    pub fn new(text: fmt::Arguments<'_>) -> StackPath<LEN> {
        let mut bytes = [0; LEN];
        let mut room = &mut bytes[..LEN - 1];
        room.write_fmt(text).expect("there is room for words and numbers");
        StackPath(bytes)
    }

    /// The path.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// The path of a file in [`own_proc`].
pub type OwnPath = StackPath<{ MAX_PROC_PATH + 64 }>;

impl OwnPath {
    /// The path of the file with this name, of words and numbers.
    pub fn of(name: fmt::Arguments<'_>) -> OwnPath {
        StackPath::new(format_args!("{}/{name}", own_proc()))
    }
}

/// The number of tasks, threads included, from `/proc/loadavg` or else from sysinfo(2), which
/// counts them modulo 65536.
pub fn tasks() -> Option<u32> {
    let from_loadavg = || {
        fs::read_to_string(proc_file("loadavg"))
            .ok()?
            .split_whitespace()
            .nth(3)?
            .split_once('/')?
            .1
            .parse()
            .ok()
    };
    from_loadavg().or_else(|| Some(threads().into()))
}

/// The inode number of the initial user namespace: `PROC_USER_INIT_INO`, since Linux 3.8.
pub const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Whether this process is in the initial user namespace. True where that can't be determined.
pub fn is_initial_user_namespace() -> bool {
    rustix::fs::stat(proc_file("self/ns/user")).map_or(true, |namespace| namespace.st_ino == INITIAL_USER_NAMESPACE)
}

/// Whether this process is in the initial pid namespace, from which all processes of the machine can
/// be seen. True where that can't be determined.
pub fn is_initial_pid_namespace() -> bool {
    /// `PROC_PID_INIT_INO`, since Linux 3.8.
    const INITIAL: u64 = 0xEFFF_FFFC;
    rustix::fs::stat(proc_file("self/ns/pid")).map_or(true, |namespace| namespace.st_ino == INITIAL)
}

/// Whether this process's user namespace owns its pid namespace, or is above the one that does: its
/// capabilities count for all tasks that have ids there. False where that can't be determined.
pub fn owns_pid_namespace() -> bool {
    /// `NS_GET_USERNS` of ioctl_nsfs(2).
    const OWNER: libc::c_ulong = 0xb701;
    let Ok(namespace) = fs::File::open(proc_file("self/ns/pid")) else {
        return false;
    };
    // SAFETY: the ioctl has no argument, and the file is of no other kind.
    let owner = unsafe { libc::ioctl(namespace.as_raw_fd(), OWNER as _) };
    // SAFETY: the ioctl returned a new descriptor.
    owner >= 0 && unsafe { OwnedFd::from_raw_fd(owner) }.as_raw_fd() == owner
}

/// The time of a clock, in nanoseconds. The clock must not go below 0.
pub fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The major and minor version of the kernel.
pub fn kernel_version() -> Option<(u32, u32)> {
    let name = rustix::system::uname();
    let mut numbers = name.release().to_str().ok()?.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The number of possible processors: the highest number plus one.
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

/// The number of threads on this machine modulo 65536, from sysinfo(2).
pub fn threads() -> u16 {
    rustix::system::sysinfo().procs
}

/// The size of memory and swap in pages. `oom_score` is relative to it.
pub fn total_pages() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram + info.totalswap) * u64::from(info.mem_unit) / rustix::param::page_size() as u64
}

/// The resident pages of this process, as `/proc` counts them.
pub fn resident_pages() -> Option<usize> {
    let statm = fs::read_to_string(proc_file("self/statm")).ok()?;
    statm.split_whitespace().nth(1)?.parse().ok()
}

/// Whether `/proc` adds the per-processor parts of a process's memory counters to the central part.
///
/// It does since 82241a83cd15 ("mm: fix the inaccurate memory statistics issue for users", 6.16),
/// which some stable kernels have and others do not. So this function tries it on the calling
/// process. The central part changes only in batches of 32 pages or more, so growth by fewer pages
/// shows that the parts are added. Other threads may allocate memory at the same time, so one such
/// observation is not enough.
pub fn sums_memory_counters() -> bool {
    const PAGES: usize = 3;
    const BATCH: usize = 32;
    const TRIES: usize = 8;
    let growth = || -> Option<usize> {
        let before = resident_pages()?;
        let pages = FreshPages::new(PAGES).ok()?;
        let after = resident_pages()?;
        drop(pages);
        Some(after.saturating_sub(before))
    };
    if resident_pages().is_none() {
        return kernel_version().is_some_and(|version| version >= (6, 16));
    }
    let small_growths = (0..TRIES)
        .filter_map(|_| growth())
        .filter(|growth| (1..BATCH).contains(growth));
    small_growths.take(2).count() == 2
}
