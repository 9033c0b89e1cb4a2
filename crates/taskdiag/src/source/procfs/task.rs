//! Reads single tasks: their files, and what comes of them.
//!
//! # One task, several files
//!
//! A number can pass to another task between the opening of one file and of the next, and a record mixed of two tasks would
//! be a lie. An open file, though, stays with its task: once that one is released, reading it is `ESRCH`. So the first file
//! of a task, its anchor, is opened before and read after all others. If the read succeeds, the number was the task's all the
//! while, and the other files, opened by number in between, were its own. That costs no system call; holding the task's
//! directory open instead costs two.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind};
use taskdiag_core::field::{Field, Files};
use taskdiag_core::filter::Filter;
use taskdiag_core::snapshot::Snapshot;
use taskdiag_core::text::process::{self, Line, Lines, Stat};
use taskdiag_sys::host;

use super::encode::{self, Encoder, Evidence, NoRecord, Plan, FILES, NAMESPACES, PATHS};
use super::kernel::{known_cgroup_id, Cgroups, Missing, Mount};
use super::place::{Listing, Path, Place, NAMESPACE_LINKS, PATH_LINKS};
use crate::readers::{self, Pulse};

/// Room for all files of a task in one read each, but for the longest command lines and lists of groups.
const BUFFER: usize = 64 << 10;

/// The least room that a read is given. Nearly every file is shorter, so that one read has it all.
const ROOM: usize = 16 << 10;

/// The most: a longer text comes in pieces, so that each is a sign of life.
const PIECE: usize = 128 << 10;

/// Files of a task that the kernel reads under a lock which the process can keep for itself: that of its mappings.
const UNDER_MAPS_LOCK: Files = Files::CMDLINE.or(Files::ENVIRON);

/// And that of its executable, which an exec keeps while it waits for the other one.
const UNDER_EXEC_LOCK: Files = Files::IO.or(Files::ENVIRON).or(Files::PERSONALITY);

/// All files that may keep their reader waiting.
pub(super) const WAITS: Files = UNDER_MAPS_LOCK.or(UNDER_EXEC_LOCK);

/// What is not tried again of a task once the reader of one of its files is held: all, if that was none of those that wait.
pub(super) fn held_with(file: usize) -> Files {
    if file >= FILES {
        return Files::ALL;
    }
    match Files(1 << file) {
        Files::CMDLINE => UNDER_MAPS_LOCK,
        Files::IO => UNDER_EXEC_LOCK,
        file if file.intersects(WAITS) => file,
        _ => Files::ALL,
    }
}

/// What is the same for all tasks of a pass.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) plan: Plan,
    pub(super) only: Only,
    pub(super) missing: Missing,
    pub(super) mount: Option<Arc<Mount>>,
    pub(super) filter: Option<Test>,
}

impl Pass {
    /// Whether it reads files that may keep their reader waiting.
    pub(super) fn waits(&self) -> bool {
        let waits = |plan: &Plan| plan.files.intersects(WAITS);
        let first = self.filter.as_ref().and_then(|test| test.first.as_ref());
        waits(&self.plan) || first.is_some_and(|(_, plan)| waits(plan))
    }
}

/// A filter, and the part of it that few files are enough for.
#[derive(Clone, Debug)]
pub(super) struct Test {
    filter: Arc<Filter>,
    first: Option<(Arc<Filter>, Plan)>,
}

impl Test {
    pub(super) fn new(filter: &Filter, only: Only) -> Test {
        let also = match only {
            Only::Any => Files::NONE,
            _ => Files::STAT,
        };
        let first = filter.cheap_part().map(|part| {
            let plan = Plan::new(part.fields(), also);
            (Arc::new(part), plan)
        });
        Test {
            filter: Arc::new(filter.clone()),
            first,
        }
    }
}

/// Which of the tasks that are looked at are meant. All but the first need `stat`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Only {
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
pub(super) enum Lost {
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
    pub(super) fn count(self, snapshot: &mut Snapshot) -> Result<(), Lost> {
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
    pub(super) fn about(self, pid: u32) -> Error {
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
pub(super) fn reason(errno: Errno) -> Result<Absent, Lost> {
    match errno {
        Errno::NOENT | Errno::SRCH => Ok(Absent::Gone),
        Errno::ACCESS | Errno::PERM => Ok(Absent::Denied),
        Errno::NAMETOOLONG => Ok(Absent::Truncated),
        Errno::TIMEDOUT => Ok(Absent::NoAnswer),
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

/// The texts of one task, one behind the other.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    used: usize,
    /// When the task was begun.
    began: Instant,
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
            let piece = self.bytes.len().min(end + PIECE);
            let room = &mut self.bytes[end..piece];
            readers::beat();
            match rustix::io::read(file, &mut *room) {
                Ok(len) => {
                    let is_all = len < room.len();
                    end += len;
                    if is_all {
                        self.used = end;
                        return Ok((start, end));
                    }
                    if self.began.elapsed() > readers::LONGEST {
                        return Err(Errno::TIMEDOUT);
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

/// Reads tasks one by one.
#[derive(Debug)]
pub(super) struct Worker {
    buffer: Buffer,
    pub(super) encoder: Encoder,
    tids: Listing,
    /// What of a task is read before the rest.
    first: Snapshot,
    fds: Listing,
    /// Whether the size of `fd` is the number of open files.
    fds_have_size: bool,
    /// The ids of cgroups that were met in this pass.
    pub(super) cgroups: Cgroups,
}

impl Worker {
    pub(super) fn new(ticks_per_second: u64) -> Worker {
        Worker {
            buffer: Buffer {
                bytes: Vec::new(),
                used: 0,
                began: Instant::now(),
            },
            encoder: Encoder::new(ticks_per_second),
            tids: Listing::default(),
            first: Snapshot::default(),
            fds: Listing::default(),
            fds_have_size: host::kernel_version().is_none_or(|version| version >= (6, 2)),
            cgroups: Cgroups::new(),
        }
    }

    /// Adds one task to the answer.
    pub(super) fn add(
        &mut self,
        place: &Place<'_>,
        pass: &Pass,
        with: &With<'_>,
        snapshot: &mut Snapshot,
    ) -> Result<(), Lost> {
        let record = snapshot.records.len();
        if let Some(test) = &pass.filter {
            // Nobody pays for the command line of a task that its user already ruled out.
            if let Some((part, plan)) = test.first.as_ref().filter(|(_, plan)| plan.files != pass.plan.files) {
                self.first.clear(plan.fields);
                let mut records = std::mem::take(&mut self.first.records);
                let read = self.task(place, pass, plan, with, &mut records);
                self.first.records = records;
                read?;
                self.first.add_row(0);
                if part.decide(&self.first.task(0)) == Some(false) {
                    return Ok(());
                }
            }
        }
        let has_all = self.task(place, pass, &pass.plan, with, &mut snapshot.records)?;
        snapshot.add_row(record);
        if let Some(test) = &pass.filter {
            let mut counters = snapshot.counters;
            let is_meant = test
                .filter
                .admits(&snapshot.task(snapshot.rows.len() - 1), &mut counters);
            snapshot.counters = counters;
            if !is_meant {
                snapshot.rows.pop();
                snapshot.records.truncate(record);
                return Ok(());
            }
        }
        snapshot.counters.no_answer += u64::from(!has_all);
        Ok(())
    }

    /// Adds the threads of a process to the answer, from one on, and tells of each as it is done. Fails if the process is gone as a
    /// whole.
    pub(super) fn threads(
        &mut self,
        (proc, pid, from): (BorrowedFd<'_>, u32, u32),
        pass: &Pass,
        with: &With<'_>,
        snapshot: &mut Snapshot,
        told: &mut dyn FnMut(&mut Snapshot),
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
            let rest = tids.ids.iter().filter(|&&tid| tid >= from);
            rest.copied().try_for_each(|tid| {
                let place = Place::thread_in(directory.as_fd(), pid, tid);
                let done = match self.add(&place, pass, with, snapshot) {
                    Err(lost) => lost.count(snapshot),
                    Ok(()) => Ok(()),
                };
                told(snapshot);
                done
            })
        });
        self.tids = tids;
        done
    }

    /// Checks that there is a process with this number.
    pub(super) fn leader(&mut self, proc: BorrowedFd<'_>, pid: u32) -> Result<(), Lost> {
        self.buffer.used = 0;
        if Only::Leader.admits(&look(&mut self.buffer, &Place::process(proc, pid))?) {
            Ok(())
        } else {
            Err(Lost::Other)
        }
    }

    /// The real user of a process; none if that can't be had.
    pub(super) fn user(&mut self, proc: BorrowedFd<'_>, pid: u32) -> Option<u32> {
        self.buffer.used = 0;
        let file = Place::process(proc, pid).open("status").ok()?;
        let text = self.buffer.read(&file).ok()?;
        let status = process::status(self.buffer.text(text), Lines::of(&[Line::Uid]));
        status.ids(Line::Uid).next()
    }

    /// Appends the record of one task, with what `plan` reads. Says whether all that was to be read has been.
    ///
    /// In an exec by another thread than the first, the first one is released, and its number is that other thread's from then
    /// on; what was opened just before may be that of a number that is no more. So one whose task seems to be gone is looked at again.
    pub(super) fn task(
        &mut self,
        place: &Place<'_>,
        pass: &Pass,
        plan: &Plan,
        with: &With<'_>,
        records: &mut Vec<u8>,
    ) -> Result<bool, Lost> {
        const TRIES: usize = 4;
        let start = records.len();
        for _ in 1..TRIES {
            match self.try_task(place, pass, plan, with, false, records) {
                Err(Lost::Gone) => records.truncate(start),
                end => return end,
            }
        }
        self.try_task(place, pass, plan, with, true, records)
    }

    /// What the last try finds of a task that ends meanwhile is kept.
    fn try_task(
        &mut self,
        place: &Place<'_>,
        pass: &Pass,
        plan: &Plan,
        with: &With<'_>,
        is_last: bool,
        records: &mut Vec<u8>,
    ) -> Result<bool, Lost> {
        let only = with.started.map_or(pass.only, Only::Started);
        self.buffer.used = 0;
        self.buffer.began = Instant::now();
        if with.held == Files::ALL {
            self.encoder.encode_nothing(plan, (place.pid, place.tid), records);
            return Ok(false);
        }
        with.mark(place.tid, NO_FILE);
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
        let files = plan.files_but(with.held);
        let mut anchor = None;
        for file in (0..FILES).filter(|&file| encode::contains(plan.files, file)) {
            if encode::contains(with.held, file) {
                spans[file] = Err(Absent::NoAnswer);
            }
        }
        for file in (0..FILES).filter(|&file| encode::contains(files, file)) {
            if encode::contains(pass.missing.files, file) {
                spans[file] = Err(Absent::Unsupported);
                continue;
            }
            with.mark(place.tid, file);
            let opened = place.open_file(file);
            if anchor.is_none() && plan.has_anchor() {
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
        with.mark(place.tid, NO_FILE);
        for which in (0..NAMESPACES.len()).filter(|which| plan.namespaces >> which & 1 != 0) {
            namespaces[which] = if pass.missing.namespaces >> which & 1 != 0 {
                Err(Absent::Unsupported)
            } else {
                match place.namespace(NAMESPACE_LINKS[which]) {
                    Ok(inode) => Ok(inode),
                    Err(errno) => Err(reason(errno)?),
                }
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
        // Empty are the command lines and environments of tasks without memory, and of processes that emptied them; no
        // executable have tasks without memory, and some that the kernel started. The size of the memory tells which, if
        // it is looked at afterwards: memory that is gone does not come back. As an anchor, stat was. Else read it then,
        // and a byte of the anchor once more, to see that the task is still there.
        let is_unclear = |spans: &[Result<Span, Absent>; FILES]| {
            let is_empty = |file| spans[encode::index(file)].is_ok_and(|(start, end)| start == end);
            // Before 6.15 that of a task without memory is empty, later it can't be opened.
            let environ = is_empty(Files::ENVIRON) || spans[ENVIRON] == Err(Absent::Gone);
            is_empty(Files::CMDLINE) || environ || paths[0] == Err(Absent::Gone)
        };
        let mut no_memory = false;
        if let Some((file, anchor)) = &anchor {
            with.mark(place.tid, *file);
            spans[*file] = match buffer.read(anchor) {
                Ok(span) => Ok(span),
                Err(errno) => Err(first_reason(errno)?),
            };
            if is_unclear(&spans) && !files.intersects(Files::STAT) {
                no_memory = !look(buffer, place)?.has_memory();
                readers::beat();
                if let Err(errno) = rustix::io::pread(anchor, &mut [0; 1][..], 0) {
                    first_reason(errno)?;
                }
            }
        } else if is_unclear(&spans) {
            no_memory = !look(buffer, place)?.has_memory();
        }

        let stat = || process::stat(buffer.text(spans[encode::index(Files::STAT)].ok()?));
        let lacks_memory = || no_memory || stat().is_some_and(|stat| !stat.has_memory());
        let is_gone = |file: usize| spans[file] == Err(Absent::Gone) && !(file == ENVIRON && lacks_memory());
        if !is_last && (0..FILES).any(is_gone) {
            return Err(Lost::Gone);
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
            evidence.cgroup_id = match evidence.text(Files::CGROUP).map(process::cgroup) {
                Ok(Some(path)) => known_cgroup_id(cgroups, pass.mount.as_deref(), path),
                Ok(None) => Err(Absent::Unsupported),
                Err(reason) => Err(reason),
            };
        }
        let has_all = spans.iter().all(|span| *span != Err(Absent::NoAnswer));
        encoder.encode(plan, (place.pid, place.tid), &evidence, records)?;
        Ok(has_all)
    }
}

/// How a task is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct With<'a> {
    /// Files that it does not let be read: a reader hangs on one of them.
    pub(super) held: Files,
    /// When it started, in clock ticks; another one is not meant.
    pub(super) started: Option<u64>,
    /// Where its reader tells how far it is, and which of the tasks it was given this is.
    pub(super) pulse: Option<(&'a Pulse, usize)>,
}

impl Default for With<'_> {
    fn default() -> Self {
        With {
            held: Files::NONE,
            started: None,
            pulse: None,
        }
    }
}

const ENVIRON: usize = encode::index(Files::ENVIRON);

/// In a mark: no file that may keep its reader waiting.
const NO_FILE: usize = 0xff;

impl With<'_> {
    fn mark(&self, tid: u32, file: usize) {
        if let Some((pulse, index)) = self.pulse {
            pulse.mark((index as u64) << 40 | u64::from(tid) << 8 | file as u64);
        }
    }
}

/// Which of the tasks, which thread and which file a mark is of.
pub(super) fn unmark(mark: u64) -> (usize, u32, usize) {
    ((mark >> 40) as usize, (mark >> 8) as u32, (mark & 0xff) as usize)
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
    let stat = process::stat(buffer.text(span)).ok_or(Lost::Malformed)?;
    if stat.is_released() {
        Err(Lost::Gone)
    } else {
        Ok(stat)
    }
}
