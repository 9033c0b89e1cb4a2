//! `/proc` as a source: the same records as from BPF, made of the kernel's texts.
//!
//! This file opens and reads; `parse` makes values of texts and `encode` makes records of values. A task costs one open,
//! read and close for each file that the fields need, and nothing else: no `fstat`, no seek, no second read to see the end.
//!
//! # One task, several files
//!
//! A number can pass to another task between the opening of one file and of the next, and a record mixed of two tasks would
//! be a lie. An open file, though, stays with its task: once that one is released, reading it is `ESRCH`. So the first file
//! of a task, its anchor, is opened before and read after all others. If the read succeeds, the number was the task's all the
//! while, and the other files, opened by number in between, were its own. That costs no system call; holding the task's
//! directory open instead costs two.

mod encode;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom, CWD};
use rustix::io::Errno;

use crate::absent::Absent;
use crate::error::{Error, ErrorKind};
use crate::field::{Field, Fields, Files};
use crate::filter::Filter;
use crate::query::{Query, Scope};
use crate::snapshot::Snapshot;
use crate::source::host;
use encode::{Encoder, Evidence, NoRecord, Plan, FILES, NAMESPACES, PATHS};
use parse::Stat;

/// The names of files, by [`encode::index`].
const NAMES: [&str; FILES] = [
    "stat",
    "status",
    "schedstat",
    "cmdline",
    "oom_score_adj",
    "oom_score",
    "cgroup",
    "io",
    "limits",
    "environ",
    "loginuid",
    "sessionid",
    "personality",
    "timerslack_ns",
];

/// The names of links, in the order of [`PATHS`].
const PATH_LINKS: [&str; PATHS.len()] = ["exe", "cwd", "root"];

/// The names of links, in the order of [`NAMESPACES`].
const NAMESPACE_LINKS: [&str; NAMESPACES.len()] = [
    "ns/pid",
    "ns/pid_for_children",
    "ns/mnt",
    "ns/net",
    "ns/user",
    "ns/uts",
    "ns/ipc",
    "ns/cgroup",
    "ns/time",
];

/// Room for all files of a task in one read each, but for the longest command lines and lists of groups.
const BUFFER: usize = 64 << 10;

/// The least room that a read is given. Nearly every file is shorter, so that one read has it all.
const ROOM: usize = 16 << 10;

/// Room for the names of 10000 threads, which are listed at once, for where a list of threads goes on after some ended is
/// uncertain. What is not needed of it is never touched.
const DIRECTORY: usize = 256 << 10;

/// Room for the names of some hundred processes. They are read before more are listed: what the kernel touches to list a
/// process is then still in the processor's cache. The list of processes goes on at the number where it was interrupted.
const PROCESSES: usize = 8 << 10;

const PROC_MAGIC: u64 = 0x9fa0;
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// Reads `/proc`.
#[derive(Debug)]
pub(crate) struct Procfs {
    proc: OwnedFd,
    /// The process that opened it. A child of it has the same descriptor, and with it the same place in the directory.
    owner: rustix::process::Pid,
    pids: Listing,
    worker: Worker,
    lacks: Lacks,
}

impl Procfs {
    pub(crate) fn open() -> Result<Procfs, Error> {
        const MOUNT: &str = "mount it with: mount -t proc proc /proc";
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::openat(CWD, c"/proc", flags, Mode::empty())
            .map_err(|errno| Error::io(format!("can't open /proc ({MOUNT})"), errno))?;
        let kind = rustix::fs::fstatfs(&proc).map_err(|errno| Error::io("/proc", errno))?;
        if kind.f_type as u64 != PROC_MAGIC {
            let message = format!("/proc is not the kernel's: {MOUNT}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        // All numbers in it are those of the pid namespace that it was mounted in. Ours has to be that one.
        let mut target = [0; 16];
        let len = rustix::fs::readlinkat_raw(&proc, c"self", &mut target[..]).unwrap_or(0);
        let own = parse::task_id(&target[..len]);
        if own != Some(rustix::process::getpid().as_raw_nonzero().get() as u32) {
            let message = format!("/proc shows another pid namespace than the caller's: {MOUNT}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(Procfs {
            proc,
            owner: rustix::process::getpid(),
            pids: Listing::default(),
            worker: Worker::new(rustix::param::clock_ticks_per_second()),
            lacks: Lacks::default(),
        })
    }

    /// The directory, for others who read in it.
    pub(crate) fn directory(&self) -> Result<OwnedFd, Error> {
        self.proc.try_clone().map_err(|error| Error::io("/proc", error))
    }

    /// The clock ticks that the text has for a start time.
    pub(crate) fn ticks(&self, ns: u64) -> u64 {
        self.worker.encoder.ticks(ns)
    }

    /// Whether this process opened it.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner == rustix::process::getpid()
    }

    /// Appends a record and a row for each task of `scope`, by ascending ids, with the values of `fields` and no others, and
    /// counts the tasks that it lost.
    pub(crate) fn read(&mut self, query: &Query, fields: Fields, snapshot: &mut Snapshot) -> Result<(), Error> {
        let scope = query.scope;
        let mut pass = match scope {
            Scope::Process(_) | Scope::Listed => self.pass(fields, Files::STAT, Only::Leader)?,
            Scope::ChildrenOf(pid) => self.pass(fields, Files::STAT, Only::ChildOf(pid))?,
            _ => self.pass(fields, Files::NONE, Only::Any)?,
        };
        pass.filter = query.filter.as_ref().map(|filter| Sieve::new(filter, pass.only));
        let first = snapshot.rows.len();
        let proc = self.proc.as_fd();
        let worker = &mut self.worker;
        match scope {
            Scope::Process(pid) => {
                worker
                    .add(&Place::process(proc, pid), &pass, snapshot)
                    .map_err(|lost| lost.about(pid))?;
                return Ok(());
            }
            // The directory of any thread leads to all threads of its process: ask first whether this one is the leader.
            Scope::ThreadsOf(pid) => {
                worker.leader(proc, pid).map_err(|lost| lost.about(pid))?;
                worker
                    .threads(proc, pid, &pass, snapshot)
                    .map_err(|lost| lost.about(pid))?;
                // It ended after it was listed.
                if snapshot.rows.len() == first && pass.filter.is_none() {
                    return Err(Lost::Gone.about(pid));
                }
            }
            Scope::Listed | Scope::ThreadsOfListed => {
                for &pid in &query.pids {
                    let before = snapshot.rows.len();
                    let done = match scope {
                        Scope::Listed => worker.add(&Place::process(proc, pid), &pass, snapshot),
                        _ => worker
                            .leader(proc, pid)
                            .and_then(|()| worker.threads(proc, pid, &pass, snapshot)),
                    };
                    match done {
                        Err(Lost::Gone | Lost::Other) => snapshot.missing.push(pid),
                        Err(lost) => lost.count(snapshot).map_err(|lost| lost.about(pid))?,
                        Ok(()) if scope == Scope::ThreadsOfListed && pass.filter.is_none() => {
                            if snapshot.rows.len() == before {
                                snapshot.missing.push(pid);
                            }
                        }
                        Ok(()) => {}
                    }
                }
            }
            Scope::Processes | Scope::Threads | Scope::ChildrenOf(_) | Scope::DescendantsOf(_) => {
                if let Scope::ChildrenOf(pid) = scope {
                    worker.leader(proc, pid).map_err(|lost| lost.about(pid))?;
                }
                let unlisted = |errno| Error::io("can't list /proc", errno);
                rustix::fs::seek(proc, SeekFrom::Start(0)).map_err(unlisted)?;
                while self.pids.part(proc, PROCESSES).map_err(unlisted)? {
                    for &pid in &self.pids.ids {
                        let done = match scope {
                            Scope::Threads => worker.threads(proc, pid, &pass, snapshot),
                            _ => worker.add(&Place::process(proc, pid), &pass, snapshot),
                        };
                        if let Err(lost) = done {
                            lost.count(snapshot).map_err(|lost| lost.about(pid))?;
                        }
                    }
                }
            }
        }
        if matches!(scope, Scope::Threads | Scope::ThreadsOfListed) {
            snapshot.rows[first..].sort_by_key(|row| row.tid);
        }
        Ok(())
    }

    /// Appends a record with `fields` of one task, unless it is not the one that started at `start_ns`. Returns its offset.
    ///
    /// Start times are compared in whole clock ticks, for that is all that the text has.
    pub(crate) fn read_one(
        &mut self,
        is_thread: bool,
        pid: u32,
        tid: u32,
        start_ns: u64,
        fields: Fields,
        records: &mut Vec<u8>,
    ) -> Result<usize, Absent> {
        let started = Only::Started(self.worker.encoder.ticks(start_ns));
        let pass = self
            .pass(fields, Files::STAT, started)
            .map_err(|_| Absent::Unsupported)?;
        let proc = self.proc.as_fd();
        let place = match is_thread {
            true => Place::thread(proc, pid, tid),
            false => Place::process(proc, pid),
        };
        let offset = records.len();
        match self.worker.task(&place, &pass, &pass.plan, records) {
            Ok(()) => Ok(offset),
            Err(Lost::Gone | Lost::Other) => Err(Absent::Gone),
            Err(Lost::Denied) => Err(Absent::Denied),
            Err(Lost::Malformed | Lost::System(_)) => Err(Absent::Unsupported),
        }
    }

    fn pass<'a>(&mut self, fields: Fields, also: Files, only: Only) -> Result<Pass<'a>, Error> {
        let plan = Plan::new(fields, also);
        self.lacks.probe(self.proc.as_fd(), &plan);
        self.worker.cgroups.clear();
        let mount = match plan.fields.contains(Field::CgroupId) {
            true => Mount::find(self.proc.as_fd())?,
            false => None,
        };
        Ok(Pass {
            plan,
            only,
            lacks: self.lacks,
            mount,
            filter: None,
        })
    }
}

/// What is the same for all tasks of a pass.
#[derive(Debug)]
struct Pass<'a> {
    plan: Plan,
    only: Only,
    lacks: Lacks,
    mount: Option<Mount>,
    filter: Option<Sieve<'a>>,
}

/// A filter, and the part of it that few files are enough for.
#[derive(Debug)]
struct Sieve<'a> {
    filter: &'a Filter,
    first: Option<(Filter, Plan)>,
}

impl<'a> Sieve<'a> {
    fn new(filter: &'a Filter, only: Only) -> Sieve<'a> {
        let also = match only {
            Only::Any => Files::NONE,
            _ => Files::STAT,
        };
        let first = filter.cheap_part().map(|part| {
            let plan = Plan::new(part.fields(), also);
            (part, plan)
        });
        Sieve { filter, first }
    }
}

/// Which of the tasks that are looked at are meant. All but the first need `stat`.
#[derive(Clone, Copy, Debug)]
enum Only {
    Any,
    /// A thread's number leads to a directory too, though it is not listed.
    Leader,
    /// There is `task/TID/children`, but the kernel promises it to be right only while the children are frozen.
    ChildOf(u32),
    /// Start time in ticks.
    Started(u64),
}

impl Only {
    fn admits(self, stat: &Stat<'_>) -> bool {
        match self {
            Only::Any => true,
            Only::Leader => stat.is_leader(),
            Only::ChildOf(pid) => stat.ppid == pid,
            Only::Started(ticks) => stat.start_ticks == ticks,
        }
    }
}

/// Why a task has no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Gone,
    Denied,
    Malformed,
    /// It is not one of those that are meant.
    Other,
    /// We ran out of something.
    System(Errno),
}

impl From<NoRecord> for Lost {
    fn from(reason: NoRecord) -> Lost {
        match reason {
            NoRecord::Gone => Lost::Gone,
            NoRecord::Malformed => Lost::Malformed,
        }
    }
}

impl Lost {
    /// Counts the loss of one task among many. Fails if all others would be lost as well.
    fn count(self, snapshot: &mut Snapshot) -> Result<(), Lost> {
        match self {
            Lost::Gone => snapshot.counters.gone += 1,
            Lost::Denied => snapshot.counters.denied += 1,
            Lost::Malformed => snapshot.counters.malformed += 1,
            Lost::Other => {}
            Lost::System(_) => return Err(self),
        }
        Ok(())
    }

    /// The loss of the one that was asked for.
    fn about(self, pid: u32) -> Error {
        match self {
            Lost::Gone | Lost::Other => Error::no_such_process(pid),
            Lost::Denied => Error::new(
                ErrorKind::Denied,
                format!("process {pid} is hidden from you (/proc is mounted with hidepid)"),
            ),
            Lost::Malformed => Error::new(
                ErrorKind::Malformed,
                format!("/proc/{pid} has a file that makes no sense"),
            ),
            Lost::System(errno) => Error::io(format!("can't read /proc/{pid}"), errno),
        }
    }
}

/// What a refusal means for the values of one file.
fn reason(errno: Errno) -> Result<Absent, Lost> {
    match errno {
        Errno::NOENT | Errno::SRCH => Ok(Absent::Gone),
        Errno::ACCESS | Errno::PERM => Ok(Absent::Denied),
        Errno::NAMETOOLONG => Ok(Absent::Truncated),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Err(Lost::System(errno)),
        _ => Ok(Absent::Unsupported),
    }
}

/// What a refusal of the first file means for the task: everybody who may see the task may read that one.
fn first_reason(errno: Errno) -> Result<Absent, Lost> {
    match reason(errno)? {
        Absent::Gone => Err(Lost::Gone),
        Absent::Denied => Err(Lost::Denied),
        reason => Ok(reason),
    }
}

/// A path below `/proc`, on the stack.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// Ends with a NUL at least.
    bytes: [u8; 56],
    len: usize,
}

impl Path {
    const EMPTY: Path = Path { bytes: [0; 56], len: 0 };

    fn text(mut self, text: &str) -> Path {
        // The longest is 4294967295/task/4294967295/ns/pid_for_children.
        let room = &mut self.bytes[self.len..55];
        let len = room.len().min(text.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        self
    }

    fn number(mut self, number: u32) -> Path {
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        let mut rest = number;
        for place in self.bytes[self.len..self.len + digits].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.len += digits;
        self
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// Where a task's files are.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    directory: BorrowedFd<'a>,
    /// Ends with a slash.
    path: Path,
    /// The way from `directory` to `/proc`.
    up: &'static str,
    pid: u32,
    tid: u32,
}

impl<'a> Place<'a> {
    fn process(proc: BorrowedFd<'a>, pid: u32) -> Place<'a> {
        Place {
            directory: proc,
            path: Path::EMPTY.number(pid).text("/"),
            up: "",
            pid,
            tid: pid,
        }
    }

    fn thread(proc: BorrowedFd<'a>, pid: u32, tid: u32) -> Place<'a> {
        Place {
            directory: proc,
            path: Path::EMPTY.number(pid).text("/task/").number(tid).text("/"),
            up: "",
            pid,
            tid,
        }
    }

    /// The same, from the process's `task` directory.
    fn thread_in(task: BorrowedFd<'a>, pid: u32, tid: u32) -> Place<'a> {
        Place {
            directory: task,
            path: Path::EMPTY.number(tid).text("/"),
            up: "../../",
            pid,
            tid,
        }
    }

    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        self.open_as(self.path.text(name), OFlags::RDONLY)
    }

    fn open_as(&self, path: Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(self.directory, path.as_c_str(), flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// Opens one of [`NAMES`].
    fn open_file(&self, file: usize) -> Result<OwnedFd, Errno> {
        match NAMES[file] {
            // The directories of threads do not have it. Each thread has a directory as if it were a process, though.
            name @ "timerslack_ns" => {
                let path = Path::EMPTY.text(self.up).number(self.tid).text("/").text(name);
                self.open_as(path, OFlags::RDONLY)
            }
            name => self.open(name),
        }
    }

    /// How many files are open. Since f1f1f2569901 ("proc: report open files as size in stat() for /proc/pid/fd", 6.2) that is
    /// the size of the directory, which everybody may ask for; before, it has to be listed.
    fn fd_count(&self, is_size: bool, listing: &mut Listing) -> Result<u32, Errno> {
        let path = self.path.text("fd");
        if is_size {
            let stat = rustix::fs::statat(self.directory, path.as_c_str(), AtFlags::empty())?;
            return u32::try_from(stat.st_size).or(Err(Errno::INVAL));
        }
        let directory = self.open_as(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        listing.all(directory.as_fd())?;
        Ok(listing.ids.len() as u32)
    }

    /// The inode number that a link in `ns/` has in its target.
    fn namespace(&self, name: &str) -> Result<u64, Errno> {
        let path = self.path.text(name);
        let mut target = [0; 64];
        let len = rustix::fs::readlinkat_raw(self.directory, path.as_c_str(), &mut target[..])?;
        parse::namespace(&target[..len]).ok_or(Errno::INVAL)
    }
}

/// The texts of one task, one behind the other.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    used: usize,
}

type Span = (usize, usize);

impl Buffer {
    /// Reads a file from its beginning to its end.
    ///
    /// A read that returns less than it has room for has all: these files give what they have, in one piece, to whoever has
    /// room for it.
    fn read(&mut self, file: &OwnedFd) -> Result<Span, Errno> {
        let start = self.used;
        let mut end = start;
        loop {
            if self.bytes.len() - end < ROOM {
                self.bytes.resize((end + ROOM).next_power_of_two().max(BUFFER), 0);
            }
            let room = &mut self.bytes[end..];
            match rustix::io::read(file, &mut *room) {
                Ok(len) => {
                    let is_all = len < room.len();
                    end += len;
                    if is_all {
                        self.used = end;
                        return Ok((start, end));
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Reads where a link leads to.
    fn read_link(&mut self, place: &Place<'_>, name: &str) -> Result<Span, Errno> {
        // The kernel prints paths into one page.
        let start = self.used;
        if self.bytes.len() - start < ROOM {
            self.bytes.resize((start + ROOM).next_power_of_two().max(BUFFER), 0);
        }
        let path = place.path.text(name);
        let len = rustix::fs::readlinkat_raw(place.directory, path.as_c_str(), &mut self.bytes[start..])?;
        self.used = start + len;
        Ok((start, self.used))
    }

    fn text(&self, (start, end): Span) -> &[u8] {
        &self.bytes[start..end]
    }
}

/// The ids that a directory lists.
#[derive(Debug, Default)]
struct Listing {
    /// Only ever its spare capacity is used.
    buffer: Vec<u8>,
    ids: Vec<u32>,
}

impl Listing {
    /// Makes `ids` the next part of the directory's, what the kernel gives in `room` bytes. Returns whether there is any.
    fn part(&mut self, directory: BorrowedFd<'_>, room: usize) -> Result<bool, Errno> {
        self.ids.clear();
        self.more(directory, room)
    }

    /// Makes `ids` all of the directory's.
    fn all(&mut self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        self.ids.clear();
        while self.more(directory, DIRECTORY)? {}
        // Threads are listed in the order in which they were made.
        self.ids.sort_unstable();
        self.ids.dedup();
        Ok(())
    }

    fn more(&mut self, directory: BorrowedFd<'_>, room: usize) -> Result<bool, Errno> {
        self.buffer.reserve(room);
        let mut entries = RawDir::new(directory, &mut self.buffer.spare_capacity_mut()[..room]);
        while let Some(entry) = entries.next() {
            self.ids.extend(parse::task_id(entry?.file_name().to_bytes()));
            if entries.is_buffer_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Reads tasks one by one.
#[derive(Debug)]
struct Worker {
    buffer: Buffer,
    encoder: Encoder,
    tids: Listing,
    /// What of a task is read before the rest.
    first: Snapshot,
    fds: Listing,
    /// Whether the size of `fd` is the number of open files.
    fds_have_size: bool,
    /// The ids of cgroups that were met in this pass.
    cgroups: HashMap<Box<[u8]>, Result<u64, Absent>>,
}

impl Worker {
    fn new(ticks_per_second: u64) -> Worker {
        Worker {
            buffer: Buffer {
                bytes: Vec::new(),
                used: 0,
            },
            encoder: Encoder::new(ticks_per_second),
            tids: Listing::default(),
            first: Snapshot::default(),
            fds: Listing::default(),
            fds_have_size: host::kernel_version().is_none_or(|version| version >= (6, 2)),
            cgroups: HashMap::new(),
        }
    }

    /// Adds one task to the answer.
    fn add(&mut self, place: &Place<'_>, pass: &Pass<'_>, snapshot: &mut Snapshot) -> Result<(), Lost> {
        let record = snapshot.records.len();
        let Some(sieve) = &pass.filter else {
            self.task(place, pass, &pass.plan, &mut snapshot.records)?;
            snapshot.add_row(record);
            return Ok(());
        };
        // Nobody pays for the command line of a task that its user already ruled out.
        if let Some((part, plan)) = sieve.first.as_ref().filter(|(_, plan)| plan.files != pass.plan.files) {
            self.first.clear(plan.fields);
            let mut records = std::mem::take(&mut self.first.records);
            let read = self.task(place, pass, plan, &mut records);
            self.first.records = records;
            read?;
            self.first.add_row(0);
            if part.decide(&self.first.task(0)) == Some(false) {
                return Ok(());
            }
        }
        self.task(place, pass, &pass.plan, &mut snapshot.records)?;
        snapshot.add_row(record);
        let mut counters = snapshot.counters;
        let is_meant = sieve
            .filter
            .admits(&snapshot.task(snapshot.rows.len() - 1), &mut counters);
        snapshot.counters = counters;
        if !is_meant {
            snapshot.rows.pop();
            snapshot.records.truncate(record);
        }
        Ok(())
    }

    /// Adds the threads of a process to the answer. Fails if the process is gone as a whole.
    fn threads(
        &mut self,
        proc: BorrowedFd<'_>,
        pid: u32,
        pass: &Pass<'_>,
        snapshot: &mut Snapshot,
    ) -> Result<(), Lost> {
        let path = Path::EMPTY.number(pid).text("/task");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let refused = |errno| match first_reason(errno) {
            Err(lost) => lost,
            Ok(_) => Lost::System(errno),
        };
        let directory = rustix::fs::openat(proc, path.as_c_str(), flags, Mode::empty()).map_err(refused)?;
        let mut tids = std::mem::take(&mut self.tids);
        let listed = tids.all(directory.as_fd()).map_err(refused);
        let done = listed.and_then(|()| {
            tids.ids.iter().try_for_each(|&tid| {
                let place = Place::thread_in(directory.as_fd(), pid, tid);
                match self.add(&place, pass, snapshot) {
                    Err(lost) => lost.count(snapshot),
                    Ok(()) => Ok(()),
                }
            })
        });
        self.tids = tids;
        done
    }

    /// Checks that there is a process with this number.
    fn leader(&mut self, proc: BorrowedFd<'_>, pid: u32) -> Result<(), Lost> {
        self.buffer.used = 0;
        match Only::Leader.admits(&look(&mut self.buffer, &Place::process(proc, pid))?) {
            true => Ok(()),
            false => Err(Lost::Other),
        }
    }

    /// Appends the record of one task, with what `plan` reads.
    fn task(&mut self, place: &Place<'_>, pass: &Pass<'_>, plan: &Plan, records: &mut Vec<u8>) -> Result<(), Lost> {
        let only = &pass.only;
        self.buffer.used = 0;
        // Most processes are no child of the one asked about: find that out before more is read.
        if matches!(only, Only::ChildOf(_)) && plan.files != Files::STAT {
            if !only.admits(&look(&mut self.buffer, place)?) {
                return Err(Lost::Other);
            }
            self.buffer.used = 0;
        }

        let Worker {
            buffer,
            encoder,
            cgroups,
            fds,
            fds_have_size,
            ..
        } = self;
        let mut spans = [Err(Absent::NotAsked); FILES];
        let mut namespaces = [Err(Absent::NotAsked); NAMESPACES.len()];
        let mut anchor = None;
        for file in (0..FILES).filter(|&file| encode::contains(plan.files, file)) {
            if encode::contains(pass.lacks.files, file) {
                spans[file] = Err(Absent::Unsupported);
                continue;
            }
            let opened = place.open_file(file);
            if anchor.is_none() {
                match opened {
                    Ok(opened) => anchor = Some((file, opened)),
                    Err(errno) => spans[file] = Err(first_reason(errno)?),
                }
                continue;
            }
            spans[file] = match opened.and_then(|opened| buffer.read(&opened)) {
                Ok(span) => Ok(span),
                Err(errno) => Err(reason(errno)?),
            };
        }
        for which in (0..NAMESPACES.len()).filter(|which| plan.namespaces >> which & 1 != 0) {
            namespaces[which] = match pass.lacks.namespaces >> which & 1 != 0 {
                true => Err(Absent::Unsupported),
                false => match place.namespace(NAMESPACE_LINKS[which]) {
                    Ok(inode) => Ok(inode),
                    Err(errno) => Err(reason(errno)?),
                },
            };
        }
        let mut paths = [Err(Absent::NotAsked); PATHS.len()];
        for which in (0..PATHS.len()).filter(|&which| plan.reads(PATHS[which].0)) {
            paths[which] = match buffer.read_link(place, PATH_LINKS[which]) {
                Ok(span) => Ok(span),
                Err(errno) => Err(reason(errno)?),
            };
        }
        let mut fd_count = Err(Absent::NotAsked);
        if plan.reads(Files::FD) {
            fd_count = match place.fd_count(*fds_have_size, fds) {
                Ok(count) => Ok(count),
                Err(errno) => Err(reason(errno)?),
            };
        }
        let mut no_memory = false;
        if let Some((file, anchor)) = &anchor {
            spans[*file] = match buffer.read(anchor) {
                Ok(span) => Ok(span),
                Err(errno) => Err(first_reason(errno)?),
            };
            // Empty are the command lines and environments of tasks without memory, and of processes that emptied them; no
            // executable have tasks without memory, and some that the kernel started. The size of the memory tells which, if
            // it is looked at afterwards: memory that is gone does not come back. As an anchor, stat was. Else read it now,
            // and then a byte of the anchor once more, to see that the task is still there.
            let is_empty = |file| spans[encode::index(file)].is_ok_and(|(start, end)| start == end);
            let is_unclear = is_empty(Files::CMDLINE) || is_empty(Files::ENVIRON) || paths[0] == Err(Absent::Gone);
            if is_unclear && !plan.reads(Files::STAT) {
                no_memory = !look(buffer, place)?.has_memory();
                if let Err(errno) = rustix::io::pread(anchor, &mut [0; 1][..], 0) {
                    first_reason(errno)?;
                }
            }
        }

        let mut evidence = Evidence {
            texts: spans.map(|span| span.map(|span| buffer.text(span))),
            namespaces,
            paths: paths.map(|path| path.map(|span| buffer.text(span))),
            fd_count,
            no_memory,
            ..Evidence::NONE
        };
        if !matches!(only, Only::Any) && !only.admits(&evidence.stat().ok_or(Lost::Malformed)?) {
            return Err(Lost::Other);
        }
        if plan.fields.contains(Field::CgroupId) {
            evidence.cgroup_id = match evidence.text(Files::CGROUP).map(parse::cgroup) {
                Ok(Some(path)) => known_cgroup_id(cgroups, pass.mount.as_ref(), path),
                Ok(None) => Err(Absent::Unsupported),
                Err(reason) => Err(reason),
            };
        }
        encoder.encode(plan, (place.pid, place.tid), &evidence, records)?;
        Ok(())
    }
}

/// Reads `stat` behind what is in the buffer, which stays.
fn look<'a>(buffer: &'a mut Buffer, place: &Place<'_>) -> Result<Stat<'a>, Lost> {
    let read = place.open("stat").and_then(|file| buffer.read(&file));
    let span = match read {
        Ok(span) => span,
        Err(errno) => {
            first_reason(errno)?;
            return Err(Lost::Malformed);
        }
    };
    let stat = parse::stat(buffer.text(span)).ok_or(Lost::Malformed)?;
    match stat.is_released() {
        true => Err(Lost::Gone),
        false => Ok(stat),
    }
}

/// What this kernel is known not to have, so that its absence is not taken for that of the task.
#[derive(Clone, Copy, Debug)]
struct Lacks {
    files: Files,
    namespaces: u16,
    /// Of which of them it is known.
    probed: (Files, u16),
}

impl Default for Lacks {
    fn default() -> Lacks {
        Lacks {
            files: Files::NONE,
            namespaces: 0,
            probed: (Files::NONE, 0),
        }
    }
}

impl Lacks {
    /// Looks at the calling thread's own files, which it may read and which are there if the kernel has them at all.
    fn probe(&mut self, proc: BorrowedFd<'_>, plan: &Plan) {
        let own = Place {
            directory: proc,
            path: Path::EMPTY.text("thread-self/"),
            up: "",
            pid: 0,
            tid: 0,
        };
        for file in [
            Files::SCHEDSTAT,
            Files::CGROUP,
            Files::IO,
            Files::LOGINUID,
            Files::SESSIONID,
        ] {
            if !plan.reads(file) || self.probed.0.intersects(file) {
                continue;
            }
            self.probed.0 = self.probed.0.or(file);
            let mut text = [0; 64];
            let read = own
                .open(NAMES[encode::index(file)])
                .and_then(|opened| rustix::io::read(opened, &mut text[..]));
            // A kernel that does not keep these times prints three zeros. A thread that runs has more.
            let idle = |len| file == Files::SCHEDSTAT && parse::schedstat(&text[..len]) == Some([0; 3]);
            if read == Err(Errno::NOENT) || read.is_ok_and(idle) {
                self.files = self.files.or(file);
            }
        }
        for (which, name) in NAMESPACE_LINKS.iter().enumerate() {
            let bit = 1 << which;
            if plan.namespaces & bit == 0 || self.probed.1 & bit != 0 {
                continue;
            }
            self.probed.1 |= bit;
            if own.namespace(name) == Err(Errno::NOENT) {
                self.namespaces |= bit;
            }
        }
    }
}

/// Where the unified cgroup hierarchy is mounted. Kept for a pass only: an open file would keep it from being unmounted.
#[derive(Debug)]
struct Mount {
    directory: OwnedFd,
    device: u64,
}

impl Mount {
    fn find(proc: BorrowedFd<'_>) -> Result<Option<Mount>, Error> {
        let failed = |errno| Error::io("can't read /proc/thread-self/mountinfo", errno);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = c"thread-self/mountinfo";
        let file = rustix::fs::openat(proc, path, flags, Mode::empty()).map_err(failed)?;
        let mut text = vec![0; BUFFER];
        let mut len = 0;
        // Unlike the files of a task this one comes in pieces.
        loop {
            match rustix::io::read(&file, &mut text[len..]) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
            if len == text.len() {
                text.resize(len * 2, 0);
            }
        }
        // One that another file system was mounted over does not lead to cgroups.
        let mount = parse::cgroup_mounts(&text[..len]).find_map(|place| {
            let place: Vec<u8> = parse::unescape(place).collect();
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let place = OsStr::from_bytes(&place);
            let directory = rustix::fs::openat(CWD, place, flags, Mode::empty()).ok()?;
            let kind = rustix::fs::fstatfs(&directory).ok()?;
            let device = rustix::fs::fstat(&directory).ok()?.st_dev;
            (kind.f_type as u64 == CGROUP2_MAGIC).then_some(Mount { directory, device })
        });
        Ok(mount)
    }

    fn id(&self, path: &[u8]) -> Result<u64, Absent> {
        // Outside of the reader's cgroup namespace, and so of the mount. The path must not lead out of it.
        if path == b"/.." || path.starts_with(b"/../") {
            return Err(Absent::Unsupported);
        }
        // The cgroup of a zombie may be removed, and the kernel then says so here.
        if path.ends_with(b" (deleted)") {
            return Err(Absent::Gone);
        }
        let below = path.strip_prefix(b"/").ok_or(Absent::Unsupported)?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::statat(&self.directory, OsStr::from_bytes(below), flags) {
            Ok(stat) if stat.st_dev == self.device => Ok(stat.st_ino),
            Ok(_) => Err(Absent::Unsupported),
            Err(errno) => Err(reason(errno).unwrap_or(Absent::Unsupported)),
        }
    }
}

/// When the task started that a `stat` is of, in clock ticks; none if it is gone, or the text makes no sense.
pub(crate) fn start_ticks(stat: &[u8]) -> Option<u64> {
    parse::stat(stat)
        .filter(|stat| !stat.is_released())
        .map(|stat| stat.start_ticks)
}

/// The id of a cgroup by its path, as far as the unified hierarchy can be seen.
pub(crate) fn cgroup_id(path: &[u8]) -> Option<u64> {
    let proc = rustix::fs::openat(CWD, c"/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    Mount::find(proc.as_fd()).ok()??.id(path).ok()
}

fn known_cgroup_id(
    known: &mut HashMap<Box<[u8]>, Result<u64, Absent>>,
    mount: Option<&Mount>,
    path: &[u8],
) -> Result<u64, Absent> {
    let mount = mount.ok_or(Absent::Unsupported)?;
    if let Some(&id) = known.get(path) {
        return id;
    }
    let id = mount.id(path);
    known.insert(path.into(), id);
    id
}
