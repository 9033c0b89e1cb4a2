//! The parts of an open file's description.

use std::fmt;
use std::str::FromStr;

use crate::error::{named, Error, Result};
use crate::set::{Member, Set};

crate::named_enum! {
    /// How a process uses a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum Use {
        /// An open descriptor: `/proc/PID/fd`.
        Fd => "fd",
        /// The working directory.
        Cwd => "cwd",
        /// The root directory.
        Root => "root",
        /// The program that it executes.
        Exe => "exe",
        /// A mapping of the file.
        Map => "map",
    }
    /// The name: `fd`, `cwd`, `root`, `exe`, `map`.
    pub fn name;
    impl Display;
    impl Member(ALL);
}

impl Use {
    /// All of them, in the order in which a process's files are listed.
    pub const ALL: [Use; 5] = [Use::Cwd, Use::Root, Use::Exe, Use::Map, Use::Fd];
}

crate::set_by_or!(Use);

/// Parses the name of a use, or `all`. The error lists the known names.
impl FromStr for Set<Use> {
    type Err = Error;

    fn from_str(name: &str) -> Result<Set<Use>> {
        let known = Use::ALL.map(|one| (one.name(), Set::from(one)));
        named(name, known.into_iter().chain([("all", Set::from(Use::ALL))]))
    }
}

/// What kind of file it is: the file type of stat(2), or a kernel object without a file type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A regular file, including one without a name (memfd_create(2)).
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
    /// A symbolic link. Only `O_PATH` opens one.
    Link,
    /// A kernel object that has only a descriptor.
    Anon(AnonKind),
}

crate::named_enum! {
    /// A kernel object that has a descriptor and no file type.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum AnonKind {
        /// eventfd(2).
        Eventfd => "eventfd",
        /// epoll(7).
        Epoll => "epoll",
        /// timerfd_create(2).
        Timerfd => "timerfd",
        /// signalfd(2).
        Signalfd => "signalfd",
        /// inotify(7).
        Inotify => "inotify",
        /// pidfd_open(2).
        Pidfd => "pidfd",
        /// A program, map, link or type information of bpf(2).
        Bpf => "bpf",
        /// io_uring(7).
        IoUring => "io_uring",
        /// userfaultfd(2).
        Userfaultfd => "userfaultfd",
        /// perf_event_open(2).
        Perf => "perf",
        /// A buffer shared between devices.
        Dmabuf => "dmabuf",
        /// Any other; its name identifies it.
        Other => "other",
    }
    /// All kinds of objects.
    pub const ALL;
    /// The name: `eventfd`, `epoll`, `io_uring` and so on.
    pub fn name;
    impl Display;
}

impl Kind {
    /// The kind of a file with this `st_mode` of stat(2), and this text of readlink(2) on its
    /// descriptor. `None`: the mode has an unknown file type.
    #[doc(hidden)]
    pub fn new(mode: u32, name: &[u8]) -> Option<Kind> {
        // Linux 6.9 moved pidfds into a separate file system, at first with different names.
        if name.starts_with(b"anon_inode:") || name.starts_with(b"pidfd:[") {
            return Some(Kind::Anon(AnonKind::new(name)));
        }
        match mode & libc::S_IFMT {
            0 => Some(Kind::Anon(AnonKind::new(name))),
            mode => PLAIN.iter().find(|plain| plain.1 == mode).map(|plain| plain.0),
        }
    }

    /// All kinds.
    pub(crate) fn all() -> impl Iterator<Item = Kind> {
        PLAIN
            .map(|plain| plain.0)
            .into_iter()
            .chain(AnonKind::ALL.map(Kind::Anon))
    }

    /// The name: `file`, `dir`, `char`, `block`, `fifo`, `socket`, `link`, `anon`.
    pub fn name(self) -> &'static str {
        PLAIN.get(self.place()).map_or("anon", |plain| plain.2)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl AnonKind {
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
}

/// The kinds other than kernel objects, in the order of their places: the file type of stat(2), and
/// the name.
const PLAIN: [(Kind, u32, &str); 7] = [
    (Kind::File, libc::S_IFREG, "file"),
    (Kind::Dir, libc::S_IFDIR, "dir"),
    (Kind::Char, libc::S_IFCHR, "char"),
    (Kind::Block, libc::S_IFBLK, "block"),
    (Kind::Fifo, libc::S_IFIFO, "fifo"),
    (Kind::Socket, libc::S_IFSOCK, "socket"),
    (Kind::Link, libc::S_IFLNK, "link"),
];

impl Member for Kind {
    fn place(self) -> usize {
        match self {
            Kind::Anon(kind) => 16 + kind as usize,
            plain => PLAIN.iter().take_while(|row| row.0 != plain).count(),
        }
    }

    fn at(place: usize) -> Option<Kind> {
        Kind::all().find(|kind| kind.place() == place)
    }
}

crate::set_by_or!(Kind);

/// Parses the name of a kind, such as `socket` or `epoll`, or `anon` for all kernel objects. The
/// error lists the known names.
impl FromStr for Set<Kind> {
    type Err = Error;

    fn from_str(name: &str) -> Result<Set<Kind>> {
        let plain = PLAIN.map(|(kind, _, name)| (name, Set::from(kind)));
        let anon = AnonKind::ALL.map(|kind| (kind.name(), Set::from(Kind::Anon(kind))));
        let every = ("anon", Set::from(AnonKind::ALL.map(Kind::Anon)));
        named(name, plain.into_iter().chain([every]).chain(anon))
    }
}

/// What a descriptor was opened for, from the open(2) flags in `/proc/PID/fdinfo`.
pub fn access(flags: u32) -> Access {
    let flags = flags as i32;
    if flags & libc::O_PATH != 0 {
        return Access::Path;
    }
    // musl's O_ACCMODE includes O_PATH.
    match flags & libc::O_ACCMODE & 3 {
        libc::O_RDONLY => Access::Read,
        libc::O_WRONLY => Access::Write,
        libc::O_RDWR => Access::ReadWrite,
        _ => Access::Ioctl,
    }
}

crate::named_enum! {
    /// What a descriptor was opened for: `O_ACCMODE` of open(2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum Access {
        /// `O_RDONLY`.
        Read => "r",
        /// `O_WRONLY`.
        Write => "w",
        /// `O_RDWR`.
        ReadWrite => "rw",
        /// Mode 3, specific to Linux: neither reading nor writing, only ioctl(2).
        Ioctl => "ioctl",
        /// `O_PATH`: only identifies a place in a file system.
        Path => "path",
    }
    pub(crate) const ALL;
    /// The name: `r`, `w`, `rw`, `ioctl`, `path`.
    pub fn name;
    impl Display;
}

/// The kinds of maps by their numbers (`enum bpf_map_type`), as bpftool(8) writes them.
const BPF_MAPS: &str =
    "unspec hash array prog_array perf_event_array percpu_hash percpu_array stack_trace cgroup_array \
    lru_hash lru_percpu_hash lpm_trie array_of_maps hash_of_maps devmap sockmap cpumap xskmap sockhash cgroup_storage \
    reuseport_sockarray percpu_cgroup_storage queue stack sk_storage devmap_hash struct_ops ringbuf inode_storage \
    task_storage bloom_filter user_ringbuf cgrp_storage arena";

/// The kinds of programs by their numbers (`enum bpf_prog_type`).
const BPF_PROGRAMS: &str = "unspec socket_filter kprobe sched_cls sched_act tracepoint xdp perf_event cgroup_skb \
    cgroup_sock lwt_in lwt_out lwt_xmit sock_ops sk_skb cgroup_device sk_msg raw_tracepoint cgroup_sock_addr \
    lwt_seg6local lirc_mode2 sk_reuseport flow_dissector cgroup_sysctl raw_tracepoint_writable cgroup_sockopt tracing \
    struct_ops ext lsm sk_lookup syscall netfilter";

/// The kind of an object of bpf(2), by the lines of its `fdinfo`: the word for its number; the
/// number, if the kernel is newer than these lists; of a link the kernel's word.
pub fn bpf_type(detail: &[u8]) -> Option<&[u8]> {
    members(detail).find_map(|(key, value)| {
        let words = match key {
            b"map_type" => BPF_MAPS,
            b"prog_type" => BPF_PROGRAMS,
            b"link_type" => "",
            _ => return None,
        };
        let number = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
        let word = number.and_then(|number| words.split_ascii_whitespace().nth(number));
        Some(word.map_or(value, str::as_bytes))
    })
}

/// Each line of an `fdinfo` that has a key, with its value.
pub fn members(detail: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    detail.split(|&byte| byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that modes and names determine kinds, and that a path that looks like an object is a
    /// file.
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

    /// Check that kinds and uses have names, and that an error lists the known ones.
    #[test]
    fn kinds_and_uses_have_names() {
        let kinds = |name: &str| name.parse::<Set<Kind>>();
        let uses = |name: &str| name.parse::<Set<Use>>();
        let same = |name, expected| kinds(name).is_ok_and(|found| found == expected);
        for kind in Kind::all() {
            let is_object = matches!(kind, Kind::Anon(_));
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

    /// Check the access modes, and that `O_PATH` takes precedence over them.
    #[test]
    fn access_is_of_flags() {
        let names = [0o0, 0o100_001, 0o2_002_002, 0o3, 0o10_000_000, 0o12_000_002].map(|flags| access(flags).name());
        assert_eq!(names, ["r", "w", "rw", "ioctl", "path", "path"]);
    }

    /// Check that numbers of BPF have words, that links have the kernel's, and that new numbers stay.
    #[test]
    fn bpf_objects_have_kinds() {
        for (detail, expected) in [
            ("map_type:\t2\nkey_size:\t4\nowner_prog_type:\t2\n", Some("array")),
            ("map_type:\t33\n", Some("arena")),
            ("map_type:\t999\n", Some("999")),
            ("prog_type:\t32\nprog_jited:\t1\n", Some("netfilter")),
            ("link_type:\ttracing\nlink_id:\t7\nprog_tag:\tab\n", Some("tracing")),
            ("eventfd-count: 1\n", None),
            ("", None),
        ] {
            assert_eq!(bpf_type(detail.as_bytes()), expected.map(str::as_bytes), "{detail}");
        }
    }
}
