//! Facts about this host, found out once by a few small reads.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::{fs, io};

use rustix::fs::{access, Access};
use rustix::io::Errno;
use rustix::process::{getegid, getgroups};
use taskdiag_bpf::rights::{bpf_load, capability_remedy, may_trace, sees_values};
use taskdiag_core::support::{Fact, Support};
use taskdiag_sys::host::{is_initial_pid_namespace, kernel_version, proc_file, tasks};
use taskdiag_sys::procmap::{self, QueryFlags};

use crate::pagecache;
use crate::source::broker::nobody_at;
use crate::source::procfs::{self, Proc};

const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Finds out which sources work on this host, without loading anything. `built` says why the BPF
/// programs were not built; it is empty if they were.
pub(crate) fn probe(proc: &Proc, built: &'static str, pinned: &Path, broker: &Path) -> Support {
    let status = fs::read(proc.join("self/status"));
    let mut support = Support::default();
    support.procfs = procfs(proc, status.as_deref());
    support.procfs_complete = procfs_complete(proc);
    support.may_trace = sees_values(&proc.join("1/exe"));
    support.bpf_built = bpf_built(built);
    support.btf = btf();
    support.bpf_load = bpf_load();
    support.task_iterator = match kernel_version() {
        Some(version) if version < (5, 17) => Fact::no(
            format!(
                "Linux {}.{}; bpf_loop(), which the programs need, came with 5.17",
                version.0, version.1
            ),
            "",
        ),
        _ => Fact::unknown("not tried yet"),
    };
    support.iterator_by_pid = came_with((6, 1));
    support.task_walk = came_with((6, 2));
    support.pinned = pinned_programs(pinned);
    support.broker = broker_socket(broker);
    support.cgroup2 = cgroup2();
    support.cachestat = pagecache::probe();
    support.procmap_query = procmap_query();
    support.smaps_rollup = own_file(
        "smaps_rollup",
        "proportional sizes are read in one piece",
        "this kernel lacks smaps_rollup, which came with 4.14: smaps is added up",
    );
    support.smaps = own_file(
        "smaps",
        "the kernel has the sizes of mappings",
        "this kernel was built without CONFIG_PROC_PAGE_MONITOR: there are no proportional sizes",
    );
    support.plain_times = plain_times(fs::read_to_string("/sys/devices/system/cpu/nohz_full"));
    support.tasks = tasks();
    support.processes = processes(proc.path());
    support.processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    support
}

/// Whether taskdiag was built with its BPF programs. `why_not` is empty if it was.
pub(crate) fn bpf_built(why_not: &'static str) -> Fact {
    if why_not.is_empty() {
        Fact::yes("built in")
    } else if cfg!(not(feature = "bpf")) {
        Fact::no("built without the BPF programs", "build it with the feature bpf")
    } else {
        Fact::no(
            format!("built without the BPF programs: {why_not}"),
            "install clang and libbpf-dev, and build again",
        )
    }
}

/// Whether BPF can read processor times. On a processor without ticks the kernel updates a task's
/// counters only when somebody asks the kernel for them (`vtime_delta()` in
/// `kernel/sched/cputime.c`).
fn plain_times(list: std::io::Result<String>) -> Fact {
    match list {
        // The kernel prints "(null)" if there is no list of processors.
        Ok(list) if !matches!(list.trim(), "" | "(null)") => Fact::no(
            format!(
                "processors {} run without ticks (nohz_full): only /proc has processor times",
                list.trim()
            ),
            "",
        ),
        _ => Fact::yes("every processor has ticks"),
    }
}

/// The number of processes: the link count of `/proc` counts each process, and some other
/// directories (`proc_root_getattr()` in `fs/proc/root.c`).
fn processes(proc: &Path) -> Option<u32> {
    const OTHERS: u32 = 8;
    let links = u32::try_from(rustix::fs::stat(proc).ok()?.st_nlink).ok()?; // its type is the architecture's
    Some(links.saturating_sub(OTHERS))
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

fn procfs(proc: &Proc, status: Result<&[u8], &io::Error>) -> Fact {
    let status = match status {
        Ok(status) => status,
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Fact::no(format!("{}/self/status: {error}", proc.path().display()), "");
        }
        Err(_) => {
            let remedy = "mount it: mount -t proc proc /proc";
            let path = proc.path().display();
            return if proc.join("uptime").exists() || proc.join("1").exists() {
                Fact::no(format!("{path} shows another pid namespace than the caller's"), remedy)
            } else {
                Fact::no(format!("{path} is not mounted"), remedy)
            };
        }
    };
    match procfs::namespaces(status) {
        Some(count) if count > 1 && !proc.is_outer() => Fact::no(
            format!(
                "{} shows an outer pid namespace, whose ids are not the caller's",
                proc.path().display()
            ),
            "mount one of this namespace: mount -t proc proc /proc",
        ),
        _ => Fact::yes(format!("{} is mounted", proc.path().display())),
    }
}

fn procfs_complete(proc: &Proc) -> Fact {
    let shown = proc.path().display();
    if proc.check().is_err() {
        return Fact::unknown(format!("{shown} can't be asked"));
    }
    let options = match proc.mount_options() {
        Ok(options) => options,
        Err(error) => return Fact::unknown(format!("the mount options of {shown} can't be read: {error}")),
    };
    match options.split(',').find(|option| hides(option, &options)) {
        Some(option) if option.starts_with("hidepid") => {
            let others = match option {
                "hidepid=4" | "hidepid=ptraceable" => "run as root",
                _ => "run as root, or join the group of the mount's gid= option",
            };
            Fact::denied(
                format!("{shown} is mounted with {option}: tasks of other users are hidden without CAP_SYS_PTRACE in their user namespaces"),
                capability_remedy(others),
            )
        }
        Some(option) => Fact::no(
            format!("{shown} is mounted with {option}: it has only the directories of tasks"),
            "nothing is lost for tasks; mount another /proc for the rest",
        ),
        None if !is_initial_pid_namespace() => Fact::yes(format!(
            "{shown} shows every task of its pid namespace; others are outside of it"
        )),
        None => Fact::yes(format!("{shown} shows every task")),
    }
}

/// Whether an option of a mount hides something of a procfs from the caller.
fn hides(option: &str, options: &str) -> bool {
    let trusted = may_trace().is_yes();
    match option.strip_prefix("hidepid=") {
        Some("0" | "off") => false,
        Some("4" | "ptraceable") => !trusted,
        Some(_) => !trusted && !is_in_group_of_mount(options),
        None => option.starts_with("subset=pid"),
    }
}

impl Proc {
    /// The option of its mount that leaves tasks of others out of its list: `hidepid=invisible`.
    #[doc(hidden)]
    pub fn hidden_by(&self) -> Option<String> {
        let options = self.mount_options().ok()?;
        let is_hiding = |option: &&str| {
            let has_directories = matches!(*option, "hidepid=1" | "hidepid=noaccess");
            option.starts_with("hidepid=") && !has_directories && hides(option, &options)
        };
        options.split(',').find(is_hiding).map(str::to_owned)
    }

    /// The options that the kernel lists behind the type of its mount.
    fn mount_options(&self) -> std::io::Result<String> {
        let directory = fs::File::open(self.path())?;
        let about = self.join(format!("self/fdinfo/{}", directory.as_raw_fd()));
        let about = fs::read_to_string(about)?;
        let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        let mounts = fs::read(self.join("self/mountinfo"))?;
        let mounts = String::from_utf8_lossy(&mounts);
        let mount = mounts.lines().find(|line| line.split(' ').next() == id.map(str::trim));
        let options = mount.and_then(|line| line.split(" - ").nth(1)?.split(' ').nth(2));
        Ok(options.unwrap_or_default().to_owned())
    }
}

/// Whether the caller is in the group from which `hidepid` hides nothing: 0 if the mount names none.
fn is_in_group_of_mount(options: &str) -> bool {
    let named = options.split(',').find_map(|option| option.strip_prefix("gid="));
    let Ok(gid) = named.unwrap_or("0").parse::<u32>() else {
        return false;
    };
    // In another user namespace than the first, group 0 is another one.
    let map = fs::read_to_string(proc_file("self/gid_map")).unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
        && (getegid().as_raw() == gid
            || getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == gid)))
}

pub(crate) fn btf() -> Fact {
    match fs::metadata(BTF) {
        Ok(_) => Fact::yes(BTF),
        Err(error) => Fact::no(
            format!("{BTF}: {error}"),
            "mount sysfs, or use a kernel built with CONFIG_DEBUG_INFO_BTF",
        ),
    }
}

fn pinned_programs(directory: &Path) -> Fact {
    match access(directory.join("readers"), Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => {
            let network = if directory.join("net").exists() {
                ", where they count network traffic"
            } else {
                ""
            };
            Fact::yes(format!("pinned in {}{network}", directory.display()))
        }
        Err(Errno::NOENT) => Fact::no("no programs are pinned", "as root: taskdiag pin"),
        Err(error) => Fact::no(
            format!("{}: {error}", directory.display()),
            "only root may use pinned programs, since they see every task",
        ),
    }
}

fn broker_socket(path: &Path) -> Fact {
    match fs::metadata(path) {
        Ok(_) => Fact::unknown(format!("{} exists; not tried yet", path.display())),
        Err(error) => nobody_at(path, &error),
    }
}

fn cgroup2() -> Fact {
    let path = proc_file("self/cgroup");
    match fs::read(&path) {
        Ok(text) if text.starts_with(b"0::") || text.windows(4).any(|window| window == b"\n0::") => {
            Fact::yes("the unified hierarchy is there")
        }
        Ok(_) => Fact::no(
            "the unified cgroup hierarchy is not mounted",
            "mount -t cgroup2 none /sys/fs/cgroup",
        ),
        Err(error) => Fact::unknown(format!("{}: {error}", path.display())),
    }
}

/// Whether a path, in the form that [`Filter::within_cgroup`](crate::Filter::within_cgroup) takes,
/// is that of a cgroup of any hierarchy. `None` if this can't be seen: outside the caller's cgroup
/// namespace, or if no hierarchy is mounted.
pub(crate) fn is_cgroup(path: &[u8]) -> Option<bool> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if path == b"/.." || path.starts_with(b"/../") {
        return None;
    }
    // The dot makes sure that it is a directory.
    let is_there = |path: &[u8]| procfs::is_cgroup(&[path, b"/."].concat());
    let mut names = path.split(|&byte| byte == b'/');
    // The kernel writes each path in one way only.
    let is_plain = names.next() == Some(b"") && names.all(|name| !matches!(name, b"" | b"." | b".."));
    if is_plain && is_there(path) {
        Some(true)
    } else {
        is_there(b"").then_some(false)
    }
}

/// Whether the kernel has a file for this process; then it has the file for every process.
fn own_file(name: &str, there: &'static str, missing: &'static str) -> Fact {
    let path = proc_file("self").join(name);
    match fs::File::open(&path) {
        Ok(_) => Fact::yes(there),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Fact::unknown(format!("{}: {error}", path.display()))
        }
        Err(_) if proc_file("self/status").exists() => Fact::no(missing, ""),
        Err(error) => Fact::no(format!("{}: {error}", path.display()), ""),
    }
}

/// Looks up the first of our own mappings.
fn procmap_query() -> Fact {
    let path = proc_file("self/maps");
    let maps = match fs::File::open(&path) {
        Ok(maps) => maps,
        Err(error) => return Fact::unknown(format!("{}: {error}", path.display())),
    };
    match procmap::query(maps.as_fd(), 0, QueryFlags::COVERING_OR_NEXT, &mut [], &mut []) {
        Ok(_) => Fact::yes("the ioctl looks up mappings"),
        Err(Errno::NOTTY) => Fact::no(
            "this kernel lacks the PROCMAP_QUERY ioctl, which came with 6.11: mappings are read as text",
            "",
        ),
        Err(error) => Fact::unknown(format!("PROCMAP_QUERY: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only directories of the hierarchy count as cgroups, and that the result is
    /// unknown for what can't be seen.
    #[test]
    fn cgroups_are_directories_of_the_hierarchy() {
        let own = fs::read_to_string("/proc/self/cgroup").expect("/proc is mounted");
        let own = own.lines().find_map(|line| line.strip_prefix("0::"));
        for path in ["/", own.expect("the unified hierarchy")] {
            assert_eq!(is_cgroup(path.as_bytes()), Some(true), "{path}");
        }
        for path in [
            "cgroup.procs",
            "/cgroup.procs",
            "/no such cgroup",
            "/.",
            "//",
            "/sys/fs/cgroup",
        ] {
            assert_eq!(is_cgroup(path.as_bytes()), Some(false), "{path}");
        }
        for path in ["/..", "/../beside"] {
            assert_eq!(is_cgroup(path.as_bytes()), None, "{path}");
        }
    }
}
