//! Finds the network namespaces that something keeps alive.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use rustix::fs::stat;
use taskdiag_core::absent::Absent;
use taskdiag_core::snapshot::Snapshot;
use taskdiag_core::text::process;

use crate::readers;

/// A network namespace, and a path that leads to it. Without a path it is the caller's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) path: Vec<u8>,
}

/// The namespaces that were found so far, each once.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    pub(super) found: Vec<Namespace>,
    seen: HashSet<u64>,
    device: u64,
    /// Processes that do not show which namespace is theirs.
    pub(super) hidden: HashSet<u32>,
}

impl Namespaces {
    /// The caller's own.
    pub(super) fn own() -> Namespaces {
        let mut namespaces = Namespaces::default();
        // Without /proc its number is not known, and it is the only one.
        let own = stat("/proc/thread-self/ns/net").ok();
        namespaces.device = own.as_ref().map_or(0, |own| own.st_dev);
        namespaces.add(own.map_or(0, |own| own.st_ino), Vec::new());
        namespaces
    }

    /// The device of the file system that namespaces are on.
    pub(super) fn device(&self) -> u64 {
        self.device
    }

    pub(super) fn add(&mut self, inode: u64, path: Vec<u8>) {
        if self.seen.insert(inode) {
            let device = self.device;
            self.found.push(Namespace { device, inode, path });
        }
    }

    /// Adds those that tasks are in.
    pub(super) fn add_of_tasks(&mut self, tasks: &Snapshot) {
        for task in tasks.tasks() {
            match (task.pid(), task.tid(), task.ns_net()) {
                (Ok(pid), Ok(tid), Ok(inode)) if !self.seen.contains(&inode) => {
                    self.add(inode, format!("/proc/{pid}/task/{tid}/ns/net").into_bytes());
                }
                (Ok(pid), _, Err(Absent::Denied | Absent::NoAnswer)) => {
                    self.hidden.insert(pid);
                }
                _ => {}
            }
        }
    }

    /// Adds those that are mounted, in the mount namespace of any of these tasks.
    pub(super) fn add_of_mounts(&mut self, tasks: &Snapshot, patience: Duration) {
        let mut by_mount_namespace: HashMap<u64, String> = HashMap::new();
        if let Ok(own) = stat("/proc/thread-self/ns/mnt") {
            by_mount_namespace.insert(own.st_ino, String::new());
        }
        for task in tasks.tasks() {
            if let (Ok(pid), Ok(tid), Ok(inode)) = (task.pid(), task.tid(), task.ns_mnt()) {
                let task = || format!("/proc/{pid}/task/{tid}");
                by_mount_namespace.entry(inode).or_insert_with(task);
            }
        }
        for task in by_mount_namespace.into_values() {
            let path = match task.as_str() {
                "" => "/proc/thread-self/mountinfo".to_owned(),
                task => format!("{task}/mountinfo"),
            };
            let mounts = match task.as_str() {
                // Of this thread, not of a reader.
                "" => std::fs::read(path),
                // Each file system writes a part of it.
                _ => readers::call(0, 0, patience, move || std::fs::read(path)).unwrap_or(Ok(Vec::new())),
            };
            self.add_mounted(&task, &mounts.unwrap_or_default());
        }
    }

    /// Adds those of a text of `mountinfo` of a task, the directory of which is given; it is empty
    /// for the caller's own.
    fn add_mounted(&mut self, task: &str, text: &[u8]) {
        for mount in process::mounts(text).filter(|mount| mount.kind == b"nsfs") {
            if let Some(inode) = inode(mount.root) {
                let root = if task.is_empty() { "" } else { "/root" };
                let mut path = [task, root].concat().into_bytes();
                path.extend(process::unescape(mount.point));
                self.add(inode, path);
            }
        }
    }

    /// Adds one that a process has a descriptor of, or of a file, by the name of that.
    pub(super) fn add_of_descriptor(&mut self, pid: u32, fd: u32, name: &[u8]) {
        if let Some(inode) = inode(name) {
            self.add(inode, format!("/proc/{pid}/fd/{fd}").into_bytes());
        }
    }
}

/// The number in the name of a network namespace: `net:[N]`.
fn inode(name: &[u8]) -> Option<u64> {
    let number = name.strip_prefix(b"net:[")?.strip_suffix(b"]")?;
    std::ffi::OsStr::from_bytes(number).to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that mounted namespaces are found, each once, with the path that leads there.
    #[test]
    fn mounted_namespaces_are_found() {
        let mut namespaces = Namespaces::own();
        let own = namespaces.found[0].clone();
        assert!(own.inode != 0 && own.device != 0 && own.path.is_empty());
        let text = b"40 39 0:4 net:[4026532281] /run/netns/a\\040b rw shared:5 - nsfs nsfs rw\n\
                     41 39 0:4 net:[4026532281] /run/netns/c rw - nsfs nsfs rw\n\
                     42 39 0:4 mnt:[4026532282] /run/x rw - nsfs nsfs rw\n\
                     43 39 0:5 /net:[4026532283] /run/y rw - tmpfs net rw\n";
        namespaces.add_mounted("", text);
        namespaces.add_mounted("/proc/7/task/8", text);
        namespaces.add_mounted("/proc/7/task/8", b"40 39 0:4 net:[9] /a rw - nsfs nsfs rw\n");
        let found: Vec<(u64, &[u8])> = namespaces.found[1..]
            .iter()
            .map(|namespace| (namespace.inode, namespace.path.as_slice()))
            .collect();
        assert_eq!(
            found,
            [(4026532281, &b"/run/netns/a b"[..]), (9, b"/proc/7/task/8/root/a")]
        );
    }

    /// Check that a descriptor counts by its name.
    #[test]
    fn descriptors_have_names() {
        let mut namespaces = Namespaces::own();
        namespaces.add_of_descriptor(7, 3, b"net:[11]");
        for name in [&b"mnt:[12]"[..], b"net:[13", b"net:[x]", b"/net:[14]", b"net:[]"] {
            namespaces.add_of_descriptor(7, 4, name);
        }
        assert_eq!(namespaces.found.len(), 2);
        assert_eq!(namespaces.found[1].path, b"/proc/7/fd/3");
    }
}
