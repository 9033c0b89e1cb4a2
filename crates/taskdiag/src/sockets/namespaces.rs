//! Finds the network namespaces that something keeps alive.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use rustix::fs::stat;
use taskdiag_core::absent::Absent;
use taskdiag_core::snapshot::Snapshot;
use taskdiag_core::text::process;
use taskdiag_sys::host::proc_file;

use crate::readers;
use crate::source::procfs::Proc;

/// The maximum number of ways kept for a namespace: the task behind a way can leave at any time.
const MAX_WAYS: usize = 32;
/// The maximum number of these through one process, whose threads may all end together.
const MAX_THREADS: usize = 4;
/// The maximum number of tasks of a mount namespace that are asked for its mounts.
const MAX_TASKS: usize = 8;

/// A network namespace, and paths that lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// It is the caller's own: no way is needed.
    pub(super) is_own: bool,
    /// The shortest ways first; no file system can block these.
    pub(super) ways: Vec<Vec<u8>>,
    /// The process and the descriptor of a socket in it, if nothing else is known to keep it alive.
    pub(super) socket: Option<(u32, u32)>,
    /// Nothing is left to do.
    pub(super) is_done: bool,
}

/// The namespaces that were found so far, each once.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    /// The procfs that leads to them.
    pub(super) proc: Proc,
    pub(super) found: Vec<Namespace>,
    /// Indexes in `found` by inode number.
    places: HashMap<u64, usize>,
    device: u64,
    /// Processes that hide their namespace.
    pub(super) hidden: HashSet<u32>,
    /// Processes of which nothing may be seen.
    pub(super) denied: u64,
    /// Processes and mount namespaces that no thread could read.
    pub(super) unread: u64,
}

/// Tasks that show mounts, by their mount namespace. Without the caller's own.
#[derive(Debug, Default)]
pub(super) struct Mounts(HashMap<u64, Vec<(u32, u32)>>);

impl Mounts {
    pub(super) fn of_tasks(tasks: &Snapshot) -> Mounts {
        let own = stat(proc_file("thread-self/ns/mnt")).map_or(0, |own| own.st_ino);
        let mut by_mount_namespace: HashMap<u64, Vec<(u32, u32)>> = HashMap::new();
        for task in tasks.tasks() {
            if let (Ok(pid), Ok(tid), Ok(inode)) = (task.pid(), task.tid(), task.ns_mnt()) {
                let tasks = by_mount_namespace.entry(inode).or_default();
                let is_other = tasks.last().is_none_or(|&(last, _)| last != pid);
                if inode != own && is_other && tasks.len() < MAX_TASKS {
                    tasks.push((pid, tid));
                }
            }
        }
        Mounts(by_mount_namespace)
    }
}

impl Namespaces {
    /// The caller's own.
    pub(super) fn own(proc: Proc) -> Namespaces {
        let mut namespaces = Namespaces {
            proc,
            ..Namespaces::default()
        };
        // Without /proc its number is unknown, and it is the only one.
        let own = stat(proc_file("thread-self/ns/net")).ok();
        namespaces.device = own.as_ref().map_or(0, |own| own.st_dev);
        let place = namespaces.place(own.map_or(0, |own| own.st_ino));
        namespaces.found[place].is_own = true;
        namespaces
    }

    /// The device of the file system that namespaces are on.
    pub(super) fn device(&self) -> u64 {
        self.device
    }

    /// The index of a namespace in `found`.
    fn place(&mut self, inode: u64) -> usize {
        *self.places.entry(inode).or_insert_with(|| {
            self.found.push(Namespace {
                device: self.device,
                inode,
                is_own: false,
                ways: Vec::new(),
                socket: None,
                is_done: false,
            });
            self.found.len() - 1
        })
    }

    /// Adds a way, which is a path below the procfs.
    fn add_in_proc(&mut self, inode: u64, way: std::fmt::Arguments<'_>) {
        let proc = self.proc.clone();
        self.add(inode, || proc.join(way.to_string()).into_os_string().into_vec());
    }

    fn add(&mut self, inode: u64, way: impl FnOnce() -> Vec<u8>) {
        let place = self.place(inode);
        let namespace = &mut self.found[place];
        if !namespace.is_done && !namespace.is_own && namespace.ways.len() < MAX_WAYS {
            namespace.ways.push(way());
        }
    }

    /// Whether something is left to do. Forgets the ways, which did not lead there.
    pub(super) fn forget_ways(&mut self) -> bool {
        let left = self.found.iter_mut().filter(|namespace| !namespace.is_done);
        left.map(|namespace| namespace.ways.clear()).count() > 0
    }

    /// Adds the namespaces of tasks.
    pub(super) fn add_of_tasks(&mut self, tasks: &Snapshot) {
        let mut of_process: HashMap<(u64, u32), usize> = HashMap::new();
        for task in tasks.tasks() {
            match (task.pid(), task.tid(), task.ns_net()) {
                (Ok(pid), Ok(tid), Ok(inode)) => {
                    let threads = of_process.entry((inode, pid)).or_default();
                    *threads += 1;
                    if *threads <= MAX_THREADS {
                        self.add_in_proc(inode, format_args!("{pid}/task/{tid}/ns/net"));
                    }
                }
                (Ok(pid), _, Err(Absent::Denied | Absent::NoAnswer)) => {
                    self.hidden.insert(pid);
                }
                _ => {}
            }
        }
    }

    /// Adds the namespaces that are mounted. Returns the number of mount namespaces that no thread
    /// could read.
    pub(super) fn add_of_mounts(&mut self, mounts: Mounts, patience: Duration) -> u64 {
        let mut unread = 0;
        // This thread's own, not that of a reader.
        self.add_mounted(
            b"",
            &std::fs::read(proc_file("thread-self/mountinfo")).unwrap_or_default(),
        );
        for (inode, tasks) in mounts.0 {
            for (pid, tid) in tasks {
                let task = self.proc.join(format!("{pid}/task/{tid}"));
                let path = task.clone();
                let read = move || {
                    // Each file system writes a part of it.
                    let mounts = std::fs::read(path.join("mountinfo"))?;
                    // The task may be elsewhere by now.
                    let is_there = stat(path.join("ns/mnt"))?.st_ino == inode;
                    Ok(is_there.then_some(mounts))
                };
                let read: Result<std::io::Result<_>, _> = readers::call(&self.proc, 0, 0, patience, read);
                match read {
                    Ok(Ok(Some(mounts))) => {
                        self.add_mounted(task.as_os_str().as_bytes(), &mounts);
                        break;
                    }
                    Ok(_) => {}
                    // The others would not answer in time either.
                    Err(reason) => {
                        unread += u64::from(reason == Absent::NoThread);
                        break;
                    }
                }
            }
        }
        unread
    }

    /// Adds those in the `mountinfo` of a task. `task` is its directory, or empty for the caller's
    /// own.
    fn add_mounted(&mut self, task: &[u8], text: &[u8]) {
        for mount in process::mounts(text).filter(|mount| mount.kind == b"nsfs") {
            if let Some(inode) = inode(mount.root) {
                let root: &[u8] = if task.is_empty() { b"" } else { b"/root" };
                let mut path = [task, root].concat();
                path.extend(process::unescape(mount.point));
                self.add(inode, || path);
            }
        }
    }

    /// Adds the namespace of a socket. Returns whether it was not known.
    pub(super) fn add_of_socket(&mut self, inode: u64, pid: u32, fd: u32) -> bool {
        let known = self.found.len();
        let place = self.place(inode);
        let is_new = self.found.len() > known;
        if is_new {
            self.found[place].socket = Some((pid, fd));
        }
        is_new
    }

    /// Adds the namespace of a descriptor of a process, or of a file, by the name of that file.
    pub(super) fn add_of_descriptor(&mut self, pid: u32, fd: u32, name: &[u8]) {
        if let Some(inode) = inode(name) {
            self.add_in_proc(inode, format_args!("{pid}/fd/{fd}"));
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

    /// Check that mounted namespaces are found, each once, with the paths that lead there.
    #[test]
    fn mounted_namespaces_are_found() {
        let mut namespaces = Namespaces::own(Proc::default());
        let own = namespaces.found[0].clone();
        assert!(own.inode != 0 && own.device != 0 && own.is_own && own.ways.is_empty());
        let text = b"40 39 0:4 net:[4026532281] /run/netns/a\\040b rw shared:5 - nsfs nsfs rw\n\
                     41 39 0:4 net:[4026532281] /run/netns/c rw - nsfs nsfs rw\n\
                     42 39 0:4 mnt:[4026532282] /run/x rw - nsfs nsfs rw\n\
                     43 39 0:5 /net:[4026532283] /run/y rw - tmpfs net rw\n";
        namespaces.add_mounted(b"", text);
        namespaces.add_mounted(b"/proc/7/task/8", text);
        namespaces.add_mounted(b"/proc/7/task/8", b"40 39 0:4 net:[9] /a rw - nsfs nsfs rw\n");
        let ways = |namespace: &Namespace| -> Vec<String> {
            let text = |way: &Vec<u8>| String::from_utf8_lossy(way).into_owned();
            namespace.ways.iter().map(text).collect()
        };
        assert_eq!(namespaces.found.len(), 3);
        let [_, first, second] = &namespaces.found[..] else {
            unreachable!()
        };
        assert_eq!((first.inode, second.inode), (4026532281, 9));
        let paths = ["/run/netns/a b", "/run/netns/c"];
        let elsewhere = paths.map(|path| format!("/proc/7/task/8/root{path}"));
        assert_eq!(ways(first), [paths.map(str::to_owned), elsewhere].concat());
        assert_eq!(ways(second), ["/proc/7/task/8/root/a"]);
    }

    /// Check that the number of ways to a namespace is limited, that none is added for one that is
    /// done, and that it is known what is left to do.
    #[test]
    fn ways_are_bounded() {
        let mut namespaces = Namespaces::own(Proc::default());
        namespaces.found[0].is_done = true;
        for fd in 0..100 {
            namespaces.add_of_descriptor(7, fd, b"net:[11]");
        }
        assert_eq!(namespaces.found[1].ways.len(), MAX_WAYS);
        assert!(namespaces.forget_ways());
        namespaces.add_of_descriptor(7, 3, b"net:[11]");
        assert_eq!(namespaces.found[1].ways, [b"/proc/7/fd/3"]);
        namespaces.found[1].is_done = true;
        assert!(!namespaces.forget_ways());
        namespaces.add_of_descriptor(7, 4, b"net:[11]");
        assert_eq!(namespaces.found[1].ways.len(), 1);
    }

    /// Check that a descriptor is recognized by its name.
    #[test]
    fn descriptors_have_names() {
        let mut namespaces = Namespaces::own(Proc::default());
        namespaces.add_of_descriptor(7, 3, b"net:[11]");
        for name in [&b"mnt:[12]"[..], b"net:[13", b"net:[x]", b"/net:[14]", b"net:[]"] {
            namespaces.add_of_descriptor(7, 4, name);
        }
        assert_eq!(namespaces.found.len(), 2);
        assert_eq!(namespaces.found[1].ways, [b"/proc/7/fd/3"]);
    }
}
