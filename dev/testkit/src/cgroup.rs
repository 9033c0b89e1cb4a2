//! Cgroups for tests.

use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup with limits on memory, of whichever version has the memory controller. When this is
/// dropped, this process returns to the parent cgroup, and the cgroup is removed.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    is_v1: bool,
}

impl MemoryGroup {
    /// Makes a cgroup without a limit.
    pub fn new(name: &str) -> MemoryGroup {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let is_v1 = v1.join("cgroup.procs").exists();
        if !is_v1 {
            let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
        }
        let root = if is_v1 { v1 } else { Path::new("/sys/fs/cgroup") };
        let path = root.join(format!("taskdiag-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a cgroup");
        MemoryGroup { path, is_v1 }
    }

    /// Moves this process into the cgroup.
    pub fn join(&self) {
        fs::write(self.processes(), std::process::id().to_string()).expect("joining our own cgroup");
    }

    /// The file through which processes are moved into the cgroup.
    pub fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Makes the kernel reclaim memory above this number of bytes. Version 1 kills a process if
    /// nothing can be reclaimed.
    pub fn shrink(&self, bytes: u64) {
        let file = self.file("memory.limit_in_bytes", "memory.high");
        self.write(file, &bytes.to_string());
    }

    /// Makes the kernel kill a process when the cgroup needs more than this number of bytes.
    pub fn limit(&self, bytes: u64) {
        let file = self.file("memory.limit_in_bytes", "memory.max");
        self.write(file, &bytes.to_string());
        if !self.is_v1 {
            // Without swap the file may not exist. Then nothing is swapped.
            let _ = fs::write(self.path.join("memory.swap.max"), "0");
        }
    }

    /// How many of its processes the OOM killer has killed.
    pub fn oom_kills(&self) -> u64 {
        let file = self.file("memory.oom_control", "memory.events");
        let text = fs::read_to_string(self.path.join(file)).expect("a file of our own cgroup");
        let mut counts = text.lines().filter_map(|line| line.strip_prefix("oom_kill "));
        counts.next().and_then(|count| count.parse().ok()).expect("a number")
    }

    fn file(&self, v1: &'static str, v2: &'static str) -> &'static str {
        if self.is_v1 {
            v1
        } else {
            v2
        }
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.path.join(file), text).expect("a limit");
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let limits: &[&str] = if self.is_v1 {
            &["memory.limit_in_bytes"]
        } else {
            &["memory.high", "memory.max"]
        };
        for limit in limits {
            let none = if self.is_v1 { "-1" } else { "max" };
            let _ = fs::write(self.path.join(limit), none);
        }
        if fs::remove_dir(&self.path).is_ok() {
            return;
        }
        let root = self.path.parent().expect("a parent");
        let _ = fs::write(root.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&self.path);
    }
}
