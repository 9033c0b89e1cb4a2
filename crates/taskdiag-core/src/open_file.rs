//! The parts of an open file's description.

use std::fmt;
use std::str::FromStr;

use crate::error::{named, Error, Result};
use crate::set::{Member, Set};

/// What a process has a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Use {
    /// An open descriptor: `/proc/PID/fd`.
    Fd,
    /// The working directory.
    Cwd,
    /// The root directory.
    Root,
    /// The program that it executes.
    Exe,
    /// A mapping of the file.
    Map,
}

impl Use {
    /// All of them, in the order in which a process's files are listed.
    pub const ALL: [Use; 5] = [Use::Cwd, Use::Root, Use::Exe, Use::Map, Use::Fd];

    /// The name: `fd`, `cwd`, `root`, `exe`, `map`.
    pub fn name(self) -> &'static str {
        match self {
            Use::Fd => "fd",
            Use::Cwd => "cwd",
            Use::Root => "root",
            Use::Exe => "exe",
            Use::Map => "map",
        }
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Member for Use {
    fn members() -> impl Iterator<Item = Use> {
        Use::ALL.into_iter()
    }

    fn place(self) -> usize {
        self as usize
    }
}

crate::set_by_or!(Use);

/// The use with this name, or all of them for `all`. The error has the names that are known.
impl FromStr for Set<Use> {
    type Err = Error;

    fn from_str(name: &str) -> Result<Set<Use>> {
        let known = Use::ALL.map(|one| (one.name(), Set::from(one)));
        named(name, known.into_iter().chain([("all", Set::from(Use::ALL))]))
    }
}

/// What kind of file it is: the type that stat(2) has, or an object that has no file type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A regular file, also one without a name (memfd_create(2)).
    File,
    /// A directory.
    Dir,
    /// A character device.
    Char,
    /// A block device.
    Block,
    /// A pipe, or a FIFO (fifo(7)).
    Fifo,
    /// A socket.
    Socket,
    /// A symbolic link, which only `O_PATH` opens.
    Link,
    /// An object of the kernel that only has a descriptor.
    Anon(AnonKind),
}

/// An object of the kernel that has a descriptor and no file type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AnonKind {
    /// eventfd(2).
    Eventfd,
    /// epoll(7).
    Epoll,
    /// timerfd_create(2).
    Timerfd,
    /// signalfd(2).
    Signalfd,
    /// inotify(7).
    Inotify,
    /// pidfd_open(2).
    Pidfd,
    /// A program, map, link or type information of bpf(2).
    Bpf,
    /// io_uring(7).
    IoUring,
    /// userfaultfd(2).
    Userfaultfd,
    /// perf_event_open(2).
    Perf,
    /// A buffer that devices share.
    Dmabuf,
    /// Another one: the name says which.
    Other,
}

impl Kind {
    /// The kind of a file with this `st_mode` of stat(2), and this text of readlink(2) on its
    /// descriptor. `None`: the mode has a type that no kernel has.
    #[doc(hidden)]
    pub fn new(mode: u32, name: &[u8]) -> Option<Kind> {
        // Linux 6.9 put pidfds into a file system of their own, at first with names of their own.
        if name.starts_with(b"anon_inode:") || name.starts_with(b"pidfd:[") {
            return Some(Kind::Anon(AnonKind::new(name)));
        }
        Some(match mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File,
            libc::S_IFDIR => Kind::Dir,
            libc::S_IFCHR => Kind::Char,
            libc::S_IFBLK => Kind::Block,
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            libc::S_IFLNK => Kind::Link,
            0 => Kind::Anon(AnonKind::new(name)),
            _ => return None,
        })
    }

    /// The name: `file`, `dir`, `char`, `block`, `fifo`, `socket`, `link`, `anon`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Dir => "dir",
            Kind::Char => "char",
            Kind::Block => "block",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::Link => "link",
            Kind::Anon(_) => "anon",
        }
    }

    /// Which object it is, if it is [`Kind::Anon`].
    pub fn anon(self) -> Option<AnonKind> {
        match self {
            Kind::Anon(kind) => Some(kind),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl AnonKind {
    /// All of them.
    pub const ALL: [AnonKind; 12] = [
        AnonKind::Eventfd,
        AnonKind::Epoll,
        AnonKind::Timerfd,
        AnonKind::Signalfd,
        AnonKind::Inotify,
        AnonKind::Pidfd,
        AnonKind::Bpf,
        AnonKind::IoUring,
        AnonKind::Userfaultfd,
        AnonKind::Perf,
        AnonKind::Dmabuf,
        AnonKind::Other,
    ];

    /// The object with this text of readlink(2) on its descriptor.
    #[doc(hidden)]
    pub fn new(name: &[u8]) -> AnonKind {
        let class = name.strip_prefix(b"anon_inode:").unwrap_or(name);
        match class {
            b"[eventfd]" => AnonKind::Eventfd,
            b"[eventpoll]" => AnonKind::Epoll,
            b"[timerfd]" => AnonKind::Timerfd,
            b"[signalfd]" => AnonKind::Signalfd,
            b"inotify" => AnonKind::Inotify,
            b"[pidfd]" => AnonKind::Pidfd,
            b"[io_uring]" => AnonKind::IoUring,
            b"[userfaultfd]" => AnonKind::Userfaultfd,
            b"[perf_event]" => AnonKind::Perf,
            b"btf" => AnonKind::Bpf,
            class if class.starts_with(b"bpf") => AnonKind::Bpf,
            class if class.starts_with(b"pidfd:[") => AnonKind::Pidfd,
            class if class.starts_with(b"/dmabuf:") => AnonKind::Dmabuf,
            _ => AnonKind::Other,
        }
    }

    /// The name: `eventfd`, `epoll`, `io_uring` and so on.
    pub fn name(self) -> &'static str {
        match self {
            AnonKind::Eventfd => "eventfd",
            AnonKind::Epoll => "epoll",
            AnonKind::Timerfd => "timerfd",
            AnonKind::Signalfd => "signalfd",
            AnonKind::Inotify => "inotify",
            AnonKind::Pidfd => "pidfd",
            AnonKind::Bpf => "bpf",
            AnonKind::IoUring => "io_uring",
            AnonKind::Userfaultfd => "userfaultfd",
            AnonKind::Perf => "perf",
            AnonKind::Dmabuf => "dmabuf",
            AnonKind::Other => "other",
        }
    }
}

impl fmt::Display for AnonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The kinds but those of objects of the kernel.
const PLAIN: [Kind; 7] = [
    Kind::File,
    Kind::Dir,
    Kind::Char,
    Kind::Block,
    Kind::Fifo,
    Kind::Socket,
    Kind::Link,
];

impl Member for Kind {
    fn members() -> impl Iterator<Item = Kind> {
        PLAIN.into_iter().chain(AnonKind::ALL.map(Kind::Anon))
    }

    fn place(self) -> usize {
        match self {
            Kind::File => 0,
            Kind::Dir => 1,
            Kind::Char => 2,
            Kind::Block => 3,
            Kind::Fifo => 4,
            Kind::Socket => 5,
            Kind::Link => 6,
            Kind::Anon(kind) => 16 + kind as usize,
        }
    }
}

crate::set_by_or!(Kind);

/// The kind with this name, such as `socket` or `epoll`, or all of objects for `anon`. The error has
/// the names that are known.
impl FromStr for Set<Kind> {
    type Err = Error;

    fn from_str(name: &str) -> Result<Set<Kind>> {
        let plain = PLAIN.map(|kind| (kind.name(), Set::from(kind)));
        let anon = AnonKind::ALL.map(|kind| (kind.name(), Set::from(Kind::Anon(kind))));
        let every = ("anon", Set::from(AnonKind::ALL.map(Kind::Anon)));
        named(name, plain.into_iter().chain([every]).chain(anon))
    }
}

/// What a descriptor with these flags of open(2), as `/proc/PID/fdinfo` has them, was opened for.
pub fn access(flags: u32) -> Access {
    let flags = flags as i32;
    if flags & libc::O_PATH != 0 {
        return Access::Path;
    }
    match flags & libc::O_ACCMODE & 3 {
        libc::O_RDONLY => Access::Read,
        libc::O_WRONLY => Access::Write,
        libc::O_RDWR => Access::ReadWrite,
        _ => Access::Ioctl,
    }
}

/// What a descriptor was opened for: `O_ACCMODE` of open(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Access {
    /// `O_RDONLY`.
    Read,
    /// `O_WRONLY`.
    Write,
    /// `O_RDWR`.
    ReadWrite,
    /// Mode 3 of Linux: neither reading nor writing, for ioctl(2) only.
    Ioctl,
    /// `O_PATH`: it only stands for a place in a file system.
    Path,
}

impl Access {
    /// The name: `r`, `w`, `rw`, `ioctl`, `path`.
    pub fn name(self) -> &'static str {
        match self {
            Access::Read => "r",
            Access::Write => "w",
            Access::ReadWrite => "rw",
            Access::Ioctl => "ioctl",
            Access::Path => "path",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that modes and names make kinds, and that a path that looks like an object is a file.
    #[test]
    fn kinds_are_of_modes_and_names() {
        let kind = |mode, name: &str| Kind::new(mode, name.as_bytes());
        assert_eq!(kind(libc::S_IFREG | 0o644, "/a"), Some(Kind::File));
        assert_eq!(kind(libc::S_IFREG, "/memfd:x (deleted)"), Some(Kind::File));
        assert_eq!(kind(libc::S_IFSOCK | 0o777, "socket:[1]"), Some(Kind::Socket));
        assert_eq!(kind(libc::S_IFDIR, "/anon_inode:[eventfd]"), Some(Kind::Dir));
        assert_eq!(kind(0o600, "anon_inode:[eventfd]"), Some(Kind::Anon(AnonKind::Eventfd)));
        assert_eq!(kind(0o600, "anon_inode:[what]"), Some(Kind::Anon(AnonKind::Other)));
        assert_eq!(
            kind(libc::S_IFREG | 0o700, "anon_inode:[pidfd]"),
            Some(Kind::Anon(AnonKind::Pidfd))
        );
        assert_eq!(kind(0o700, "pidfd:[12]"), Some(Kind::Anon(AnonKind::Pidfd)));
        assert_eq!(kind(0o600, "/dmabuf:"), Some(Kind::Anon(AnonKind::Dmabuf)));
        assert_eq!(kind(0o130_000, "/a"), None);
        for (class, kind) in [
            ("bpf-map", "bpf"),
            ("bpf_link", "bpf"),
            ("btf", "bpf"),
            ("inotify", "inotify"),
        ] {
            assert_eq!(AnonKind::new(format!("anon_inode:{class}").as_bytes()).name(), kind);
        }
    }

    /// Check that kinds and uses have names, and that an error has those that are known.
    #[test]
    fn kinds_and_uses_have_names() {
        let kinds = |name: &str| name.parse::<Set<Kind>>();
        let uses = |name: &str| name.parse::<Set<Use>>();
        let same = |name, expected| kinds(name).is_ok_and(|found| found == expected);
        for kind in Kind::members() {
            let is_object = kind.anon().is_some();
            assert!(
                kinds("anon").is_ok_and(|anon| anon.contains(kind) == is_object),
                "{kind:?}"
            );
        }
        assert!(same("socket", Kind::Socket.into()) && same("epoll", Kind::Anon(AnonKind::Epoll).into()));
        let known = kinds("sock").expect_err("no kind").to_string();
        assert!(
            known.starts_with("known are file, dir") && known.matches(", ").count() == 19,
            "{known}"
        );
        assert!(uses("cwd").is_ok_and(|uses| uses == Use::Cwd.into()));
        assert!(uses("all").is_ok_and(|uses| uses == Use::ALL.into()));
        assert!(uses("mem").is_err_and(|error| error.to_string().contains("map")));
    }

    /// Check the access modes, and that `O_PATH` comes before them.
    #[test]
    fn access_is_of_flags() {
        let names = [0o0, 0o100_001, 0o2_002_002, 0o3, 0o10_000_000, 0o12_000_002].map(|flags| access(flags).name());
        assert_eq!(names, ["r", "w", "rw", "ioctl", "path", "path"]);
    }
}
