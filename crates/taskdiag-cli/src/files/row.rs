//! Rows of open files.

use taskdiag::files::{OpenFile, Use};
use taskdiag::{Absent, Kind, Known, Task, Value};

use crate::output::descriptors::{self, Item, Shown};
use crate::output::named::{key, Cell, RowKey};

/// What rows have.
pub const KEYS: [RowKey; 21] = [
    key("pid", Kind::Id, "The process."),
    key("comm", Kind::Text, "The name of the process."),
    key("use", Kind::Text, "What it has the file for: fd, cwd, root, exe, map."),
    key("fd", Kind::Id, "The number of the descriptor."),
    key(
        "kind",
        Kind::Text,
        "What the file is: file, dir, char, block, fifo, socket, link, anon.",
    ),
    key(
        "anon_kind",
        Kind::Text,
        "What it is if it is anon: eventfd, epoll, timerfd, signalfd, inotify, pidfd, bpf, io_uring, userfaultfd, \
         perf, dmabuf, other.",
    ),
    key(
        "access",
        Kind::Text,
        "What the descriptor was opened for: r, w, rw, path (O_PATH), ioctl (mode 3).",
    ),
    key(
        "open_flags",
        Kind::Mask,
        "The flags of open(2), with O_CLOEXEC if the descriptor is closed on execve(2).",
    ),
    key("offset_bytes", Kind::Signed, "Where the next read or write begins."),
    key("size_bytes", Kind::Bytes, "The length of the file."),
    key("allocated_bytes", Kind::Bytes, "What the file occupies."),
    key(
        "dev_major",
        Kind::Id,
        "Major number of the device that the file is on, as stat(2) has it.",
    ),
    key("dev_minor", Kind::Id, "Minor number of that device."),
    key("inode", Kind::Id, "Inode number, as stat(2) has it."),
    key("nlink", Kind::Count, "How many names the file has."),
    key(
        "deleted",
        Kind::Flag,
        "Whether it has no name: it was deleted, or never had one.",
    ),
    key(
        "mnt_id",
        Kind::Id,
        "The mount that it was opened on, as in /proc/PID/mountinfo.",
    ),
    key(
        "name",
        Kind::Text,
        "What readlink(2) says of /proc/PID/fd/FD: a path, with \" (deleted)\" if it is gone, or the kernel's word.",
    ),
    key(
        "detail",
        Kind::Text,
        "The lines of /proc/PID/fdinfo/FD that not all files have. With -o detail.",
    ),
    key(
        "user",
        Kind::Text,
        "The effective user of the process, by name. With -o user.",
    ),
    key(
        "peers",
        Kind::Texts,
        "The descriptors at the other end of a pipe or a socket: pid, comm and fd of each. With -o peers.",
    ),
];

// The indexes of the keys.
pub const PID: usize = 0;
pub const COMM: usize = 1;
pub const USE: usize = 2;
pub const FD: usize = 3;
pub const KIND: usize = 4;
pub const ANON_KIND: usize = 5;
pub const ACCESS: usize = 6;
pub const OPEN_FLAGS: usize = 7;
pub const OFFSET: usize = 8;
pub const SIZE: usize = 9;
pub const ALLOCATED: usize = 10;
pub const MAJOR: usize = 11;
pub const MINOR: usize = 12;
pub const INODE: usize = 13;
pub const NLINK: usize = 14;
pub const DELETED: usize = 15;
pub const MNT_ID: usize = 16;
pub const NAME: usize = 17;
pub const DETAIL: usize = 18;
pub const USER: usize = 19;
pub const PEERS: usize = 20;

/// The keys for programs without `-o`.
pub const USUAL_KEYS: [usize; 17] = [
    PID, COMM, USE, FD, KIND, ANON_KIND, ACCESS, OPEN_FLAGS, OFFSET, SIZE, MAJOR, MINOR, INODE, NLINK, DELETED, MNT_ID,
    NAME,
];

/// The value of a row that has no such value: it is no descriptor, or no object of the kernel.
const NONE: &str = "none";

/// The values of a row, each under one of [`KEYS`].
pub type Cells<'a> = [Item<'a>; KEYS.len()];

fn known<T>(value: Known<T>, make: impl Fn(T) -> Value<'static>) -> Cell<'static> {
    value.map(make).map_err(Absent::as_str)
}

/// A value that only descriptors have.
fn of_descriptor<'a, T>(value: Known<Option<T>>, make: impl Fn(T) -> Value<'a>) -> Cell<'a> {
    match value {
        Ok(Some(value)) => Ok(make(value)),
        Ok(None) => Err(NONE),
        Err(reason) => Err(reason.as_str()),
    }
}

fn word(word: &'static str) -> Value<'static> {
    Value::Text(word.as_bytes())
}

/// The values of a file of a process.
pub fn cells<'a>(task: &Task<'a>, file: &OpenFile<'a>) -> Cells<'a> {
    let number = |number: u32| Value::Unsigned(number.into());
    let anon = file.kind.map(|kind| kind.anon());
    let plain: [Cell<'a>; PEERS] = [
        task.pid().map(number).map_err(Absent::as_str),
        task.comm().map(Value::Text).map_err(Absent::as_str),
        Ok(word(file.used_as.name())),
        of_descriptor(Ok(file.fd), number),
        known(file.kind, |kind| word(kind.name())),
        of_descriptor(anon, |kind| word(kind.name())),
        of_descriptor(file.access(), |access| word(access.name())),
        of_descriptor(file.open_flags, |flags| Value::Mask(flags.into())),
        of_descriptor(file.offset_bytes, Value::Signed),
        known(file.size_bytes, Value::Unsigned),
        known(file.allocated_bytes, Value::Unsigned),
        known(file.device, |device| number(device.major)),
        known(file.device, |device| number(device.minor)),
        known(file.inode, Value::Unsigned),
        known(file.nlink, number),
        known(file.is_deleted(), Value::Flag),
        known(file.mnt_id, number),
        file.name.map(Value::Text).map_err(Absent::as_str),
        of_descriptor(file.detail, Value::Text),
        task.user().map(Value::Text).map_err(Absent::as_str),
    ];
    let peers = match file.peers {
        Ok(peers) => peers.map(Shown::Descriptors).ok_or(NONE),
        Err(reason) => Err(reason.as_str()),
    };
    std::array::from_fn(|key| match plain.get(key) {
        Some(cell) => cell.map(Shown::Plain),
        None => peers,
    })
}

/// The values of a row that is kept, to be sorted.
pub struct Kept(Vec<Result<descriptors::Kept, &'static str>>);

impl Kept {
    /// Keeps a row.
    pub fn new(cells: &Cells<'_>) -> Kept {
        Kept(cells.iter().map(|cell| cell.map(descriptors::Kept::new)).collect())
    }

    /// What is compared under one of [`KEYS`].
    pub fn compared(&self, key: usize) -> Cell<'_> {
        self.item(key)?.compared()
    }

    fn item(&self, key: usize) -> Item<'_> {
        let kept = self.0[key].as_ref();
        kept.map(descriptors::Kept::shown).map_err(|reason| *reason)
    }

    /// All values.
    pub fn cells(&self) -> Cells<'_> {
        std::array::from_fn(|key| self.item(key))
    }
}

/// The column that says what a file is used for: the number of the descriptor, or the use.
pub fn fd_or_use<'a>(cells: &Cells<'a>) -> Item<'a> {
    let is_fd = cells[USE] == Ok(Shown::Plain(word(Use::Fd.name())));
    if is_fd {
        cells[FD]
    } else {
        cells[USE]
    }
}

/// The column that says what a file is: the object of the kernel, if it is one.
pub fn object_or_kind<'a>(cells: &Cells<'a>) -> Item<'a> {
    match cells[ANON_KIND] {
        Ok(Shown::Plain(Value::Text(b"other"))) | Err(_) => cells[KIND],
        anon => anon,
    }
}
