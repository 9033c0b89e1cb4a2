//! The parts of an open file's description.

use std::fmt;

use bitflags::bitflags;

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

bitflags! {
    /// A set of [`Use`]s.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Uses: u8 {
        /// [`Use::Fd`].
        const FD = 1;
        /// [`Use::Cwd`].
        const CWD = 2;
        /// [`Use::Root`].
        const ROOT = 4;
        /// [`Use::Exe`].
        const EXE = 8;
        /// [`Use::Map`].
        const MAP = 16;
    }
}

impl Uses {
    /// The use with this name, or all of them for `all`.
    ///
    /// # Errors
    ///
    /// If there is none: the names that are known.
    pub fn named(name: &str) -> Result<Uses, Vec<&'static str>> {
        let found = Use::ALL.into_iter().find(|one| one.name() == name).map(Uses::from);
        found
            .or((name == "all").then(Uses::all))
            .ok_or_else(|| Use::ALL.iter().map(|one| one.name()).chain(["all"]).collect())
    }
}

impl From<Use> for Uses {
    fn from(one: Use) -> Uses {
        match one {
            Use::Fd => Uses::FD,
            Use::Cwd => Uses::CWD,
            Use::Root => Uses::ROOT,
            Use::Exe => Uses::EXE,
            Use::Map => Uses::MAP,
        }
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

bitflags! {
    /// A set of [`Kind`]s.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Kinds: u32 {
        /// [`Kind::File`].
        const FILE = 1;
        /// [`Kind::Dir`].
        const DIR = 1 << 1;
        /// [`Kind::Char`].
        const CHAR = 1 << 2;
        /// [`Kind::Block`].
        const BLOCK = 1 << 3;
        /// [`Kind::Fifo`].
        const FIFO = 1 << 4;
        /// [`Kind::Socket`].
        const SOCKET = 1 << 5;
        /// [`Kind::Link`].
        const LINK = 1 << 6;
        /// [`Kind::Anon`], whatever the object is.
        const ANON = 0xffff << 16;
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

impl Kinds {
    /// The kind with this name, such as `socket`, `anon` or `epoll`.
    ///
    /// # Errors
    ///
    /// If there is none: the names that are known.
    pub fn named(name: &str) -> Result<Kinds, Vec<&'static str>> {
        let plain = PLAIN.map(|kind| (kind.name(), Kinds::from(kind)));
        let anon = AnonKind::ALL.map(|kind| (kind.name(), Kinds::from(kind)));
        let known = plain.into_iter().chain([("anon", Kinds::ANON)]).chain(anon);
        let found = known.clone().find(|(known, _)| *known == name);
        found
            .map(|(_, kinds)| kinds)
            .ok_or_else(|| known.map(|(name, _)| name).collect())
    }
}

impl From<Kind> for Kinds {
    fn from(kind: Kind) -> Kinds {
        match kind {
            Kind::File => Kinds::FILE,
            Kind::Dir => Kinds::DIR,
            Kind::Char => Kinds::CHAR,
            Kind::Block => Kinds::BLOCK,
            Kind::Fifo => Kinds::FIFO,
            Kind::Socket => Kinds::SOCKET,
            Kind::Link => Kinds::LINK,
            Kind::Anon(kind) => Kinds::from(kind),
        }
    }
}

impl From<AnonKind> for Kinds {
    fn from(kind: AnonKind) -> Kinds {
        Kinds::from_bits_retain(1 << (16 + kind as u32))
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

    /// Check that each kind has a bit of its own, and that those of objects are within `ANON`.
    #[test]
    fn kinds_have_bits() {
        let anon = AnonKind::ALL.map(Kind::Anon);
        let mut all = Kinds::empty();
        for kind in PLAIN.into_iter().chain(anon) {
            let bit = Kinds::from(kind);
            assert_eq!(bit.bits().count_ones(), 1);
            assert!(!all.intersects(bit), "{kind:?}");
            assert_eq!(Kinds::ANON.contains(bit), kind.anon().is_some());
            all |= bit;
        }
    }

    /// Check that kinds and uses have names, and that an error has those that are known.
    #[test]
    fn kinds_and_uses_have_names() {
        assert_eq!(Kinds::named("socket"), Ok(Kinds::SOCKET));
        assert_eq!(Kinds::named("anon"), Ok(Kinds::ANON));
        assert_eq!(Kinds::named("epoll"), Ok(Kinds::from(AnonKind::Epoll)));
        assert!(Kinds::named("sock").is_err_and(|known| known.len() == 20 && known.contains(&"eventfd")));
        assert_eq!(Uses::named("cwd"), Ok(Uses::CWD));
        assert_eq!(Uses::named("all"), Ok(Uses::all()));
        assert!(Uses::named("mem").is_err_and(|known| known.contains(&"map")));
    }

    /// Check the access modes, and that `O_PATH` comes before them.
    #[test]
    fn access_is_of_flags() {
        let names = [0o0, 0o100_001, 0o2_002_002, 0o3, 0o10_000_000, 0o12_000_002].map(|flags| access(flags).name());
        assert_eq!(names, ["r", "w", "rw", "ioctl", "path", "path"]);
    }
}
