//! Reads the files of single tasks.
//!
//! # One task, several files
//!
//! A task's id can pass to another task between the opening of two files, and a record made from
//! two tasks would be wrong. But an open file stays with its task: once the task is released,
//! reading the file fails with `ESRCH`. So the first file of a task, its *anchor*, is opened before
//! all others and read after them. If that read succeeds, the task had the id all the time, and the
//! other files, which were opened by id in between, belong to it. This takes no additional system
//! call. Keeping the task's directory open would take two.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::io::{retry_on_intr, Errno};
use rustix::process::{getpriority_process, pidfd_open, Pid, PidfdFlags};
use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::field::{Field, Fields, Files, Group};
use taskdiag_core::filter::Filter;
use taskdiag_core::record::Header;
use taskdiag_core::snapshot::{Snapshot, SourceId};
use taskdiag_core::text::process::{self, Line, Lines, NamespaceLink, Positions, Stat};
use taskdiag_sys::host;
use zerocopy::native_endian::U32;

use super::encode::{self, Encoder, Plan, RawTask, FILES, PATHS};
use super::kernel::{known_cgroup_id, Cgroups, Missing, Mount};
use super::place::{other_threads, Base, Listing, Place};
use super::task_failure::{reason, TaskFailure};
use crate::absences;
use crate::readers::{self, Pulse};

/// Room for all files of a task in one read each, except for the longest command lines and lists of
/// groups.
const BUFFER: usize = 64 << 10;

/// The least room given to a read. Nearly every file is shorter, so one read returns all of it.
const MIN_READ_BYTES: usize = 16 << 10;

/// The kernel lets a program start with at most 6 MiB of arguments and environment, but a process can
/// make it show any part of its memory as these. A longer text is absent as truncated.
const LONGEST_TEXT: usize = 8 << 20;

/// The maximum length of command lines and environments once the records of an answer take all the
/// memory that they may. All children of a process can have its arguments without a page of their
/// own.
const SHORT_TEXT: usize = 32 << 10;

/// The most room. A longer text arrives in pieces, each of which is a sign of life.
const MAX_READ_BYTES: usize = 128 << 10;

/// Files that the kernel reads under the lock of the task's mappings (`mmap_lock`), which the
/// process can hold.
const UNDER_MAPS_LOCK: Files = Files::CMDLINE.union(Files::ENVIRON);

/// Files that the kernel reads under `exec_update_lock`, which an execve(2) holds while it waits
/// for `mmap_lock`.
const UNDER_EXEC_LOCK: Files = Files::IO.union(Files::ENVIRON).union(Files::PERSONALITY);

/// All files that may keep a reader waiting.
pub(super) const WAITS: Files = UNDER_MAPS_LOCK.union(UNDER_EXEC_LOCK);

/// The files of a task that are no longer read once a reader is stuck at `file`. If that file
/// should never wait, this is all files.
pub(super) fn held_with(file: usize) -> Files {
    if file >= FILES {
        return Files::all();
    }
    match Files::from_bits_retain(1 << file) {
        Files::CMDLINE => UNDER_MAPS_LOCK,
        Files::IO => UNDER_EXEC_LOCK,
        file if file.intersects(WAITS) => file,
        _ => Files::all(),
    }
}

/// How the tasks of a pass are read.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) plan: Plan,
    pub(super) only: TaskMatch,
    pub(super) missing: Missing,
    /// Ids are those of an outer pid namespace, and mean other tasks to system calls.
    pub(super) is_outer: bool,
    pub(super) mount: Option<Arc<Mount>>,
    pub(super) filter: Option<Test>,
    /// The fields that the query asks for, and which source answers each group: a filter may read
    /// what none has.
    pub(super) asked: (Fields, [Option<Known<SourceId>>; Group::ALL.len()]),
}

impl Pass {
    /// Clears a snapshot, for tasks of this pass.
    pub(super) fn begin(&self, snapshot: &mut Snapshot) {
        let (asked, answers) = self.asked;
        let is_lacking = |field: &Field| matches!(answers[field.group() as usize], Some(Err(_)));
        snapshot.clear(self.plan.fields | asked.iter().filter(is_lacking).collect::<Fields>());
        snapshot.answers = answers;
    }

    /// Whether it reads files that may keep a reader waiting.
    pub(super) fn waits(&self) -> bool {
        let waits = |plan: &Plan| plan.files.intersects(WAITS);
        let first = self.filter.as_ref().and_then(|test| test.first.as_ref());
        waits(&self.plan) || first.is_some_and(|(_, plan)| waits(plan))
    }
}

/// A filter, and the part of it that needs few files.
#[derive(Clone, Debug)]
pub(super) struct Test {
    filter: Arc<Filter>,
    first: Option<(Arc<Filter>, Plan)>,
}

impl Test {
    pub(super) fn new(filter: &Filter, only: TaskMatch) -> Test {
        let also = match only {
            TaskMatch::Any => Files::NONE,
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

/// Which tasks are read. All kinds but the first need `stat`.
#[derive(Clone, Copy, Debug)]
pub(super) enum TaskMatch {
    Any,
    /// Processes. The id of another thread leads to a directory too, though `/proc` does not list
    /// it.
    Leader,
    /// Children of a process. The kernel has `task/TID/children`, but that is exact only while the
    /// children are frozen.
    ChildOf(u32),
    /// The task that started at this time, in clock ticks.
    Started(u64),
}

impl TaskMatch {
    fn admits(self, stat: &Stat<'_>) -> bool {
        match self {
            TaskMatch::Any => true,
            TaskMatch::Leader => stat.is_leader(),
            TaskMatch::ChildOf(pid) => stat.ppid() == pid,
            TaskMatch::Started(ticks) => stat.start_ticks() == ticks,
        }
    }
}

/// A value, or the reason for its absence. Fails if this process ran out of a resource.
fn value<T>(read: Result<T, Errno>) -> Result<Result<T, Absent>, TaskFailure> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(errno) => Ok(Err(reason(errno)?)),
    }
}

/// What an error of the first file means for the task. Everybody who may see the task may read that
/// file.
fn first_reason(errno: Errno) -> Result<Absent, TaskFailure> {
    match reason(errno)? {
        Absent::Gone => Err(TaskFailure::Gone),
        Absent::Denied => Err(TaskFailure::Denied),
        reason => Ok(reason),
    }
}

/// The texts of one task, one after the other.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    used: usize,
    /// When reading the task began.
    began: Instant,
}

type Span = (usize, usize);

impl Buffer {
    /// Reads a file from beginning to end. Fails if it is longer than `most`.
    ///
    /// A read that returns less than the room has reached the end: these files return as much as
    /// fits.
    fn read(&mut self, file: &OwnedFd, most: usize) -> Result<Span, Errno> {
        let start = self.used;
        let mut end = start;
        loop {
            if self.bytes.len() - end < MIN_READ_BYTES {
                self.bytes
                    .resize((end + MIN_READ_BYTES).next_power_of_two().max(BUFFER), 0);
            }
            let piece = self.bytes.len().min(end + MAX_READ_BYTES);
            let room = &mut self.bytes[end..piece];
            readers::beat();
            let len = retry_on_intr(|| rustix::io::read(file, &mut *room))?;
            end += len;
            if end - start > most {
                return Err(Errno::NAMETOOLONG);
            }
            if len < room.len() {
                self.used = end;
                return Ok((start, end));
            }
            if self.began.elapsed() > readers::MAX_TASK_TIME {
                return Err(Errno::TIMEDOUT);
            }
        }
    }

    /// Reads the target of a link.
    fn read_link(&mut self, place: &Place<'_>, name: &str) -> Result<Span, Errno> {
        // The kernel prints paths into one page.
        let start = self.used;
        if self.bytes.len() - start < MIN_READ_BYTES {
            self.bytes
                .resize((start + MIN_READ_BYTES).next_power_of_two().max(BUFFER), 0);
        }
        let path = place.path(name);
        let len = rustix::fs::readlinkat_raw(place.directory, path.as_c_str(), &mut self.bytes[start..])?;
        self.used = start + len;
        Ok((start, self.used))
    }

    fn text(&self, (start, end): Span) -> &[u8] {
        &self.bytes[start..end]
    }
}

/// One task, and how to read it.
#[derive(Clone, Copy)]
pub(super) struct TaskRead<'a> {
    pub(super) place: &'a Place<'a>,
    pub(super) pass: &'a Pass,
    pub(super) plan: &'a Plan,
    pub(super) with: &'a ReadOptions<'a>,
}

/// Reads tasks one by one.
#[derive(Debug)]
pub(super) struct Worker {
    buffer: Buffer,
    pub(super) encoder: Encoder,
    tids: Listing,
    /// What the cheap part of a filter reads about a task.
    first: Snapshot,
    fds: Listing,
    /// The size of the directory `fd` is the number of open files.
    fds_have_size: bool,
    /// The ids of the cgroups of this pass.
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

    /// Adds a task to the answer.
    pub(super) fn add(
        &mut self,
        place: &Place<'_>,
        pass: &Pass,
        with: &ReadOptions<'_>,
        snapshot: &mut Snapshot,
    ) -> Result<(), TaskFailure> {
        let record = snapshot.records.len();
        let plan = &pass.plan;
        let one = TaskRead {
            place,
            pass,
            plan,
            with,
        };
        if let Some(test) = &pass.filter {
            // The command line of a task need not be read if its user does not pass.
            if let Some((part, plan)) = test.first.as_ref().filter(|(_, plan)| plan.files != pass.plan.files) {
                self.first.clear(plan.fields);
                let mut records = std::mem::take(&mut self.first.records);
                let read = self.task(TaskRead { plan, ..one }, &mut records);
                self.first.records = records;
                read?;
                self.first.add_row(0);
                if part.decide(&self.first.task(0)) == Some(false) {
                    return Ok(());
                }
            }
        }
        let has_all = self.task(one, &mut snapshot.records)?;
        snapshot.add_row(record);
        if let Some(test) = &pass.filter {
            let mut undecided = snapshot.counters.undecided;
            let is_meant = test
                .filter
                .admits(&snapshot.task(snapshot.rows.len() - 1), &mut undecided);
            snapshot.counters.undecided = undecided;
            snapshot.counters.candidates += 1;
            if !is_meant {
                snapshot.rows.pop();
                snapshot.records.truncate(record);
                return Ok(());
            }
        }
        snapshot.counters.no_answer += u64::from(!has_all);
        Ok(())
    }

    /// Adds the threads of a process to the answer, starting at `from`, and calls `hand_over` after
    /// each. Fails if the whole process is gone.
    pub(super) fn threads(
        &mut self,
        (proc, pid, from): (BorrowedFd<'_>, u32, u32),
        pass: &Pass,
        with: &ReadOptions<'_>,
        snapshot: &mut Snapshot,
        hand_over: &mut dyn FnMut(&mut Snapshot, u32),
    ) -> Result<(), TaskFailure> {
        let refused = |errno| match first_reason(errno) {
            Err(lost) => lost,
            Ok(_) => TaskFailure::System(errno),
        };
        let directory = Place::process(proc, pid).open("task").map_err(refused)?;
        let mut tids = std::mem::take(&mut self.tids);
        let listed = tids.threads(directory.as_fd()).map_err(refused);
        let done = listed.and_then(|()| {
            let rest = tids.ids.iter().filter(|&&tid| tid >= from);
            rest.copied().try_for_each(|tid| {
                let place = Place {
                    directory: directory.as_fd(),
                    base: Base::InTask,
                    pid,
                    tid,
                };
                let done = match self.add(&place, pass, with, snapshot) {
                    Err(lost) => lost.count(snapshot),
                    Ok(()) => Ok(()),
                };
                hand_over(snapshot, tid);
                done
            })
        });
        self.tids = tids;
        done
    }

    /// Checks that an id is that of a process.
    pub(super) fn leader(&mut self, proc: BorrowedFd<'_>, pid: u32) -> Result<(), TaskFailure> {
        self.buffer.used = 0;
        if TaskMatch::Leader.admits(&look(&mut self.buffer, &Place::process(proc, pid))?) {
            Ok(())
        } else {
            Err(TaskFailure::Other)
        }
    }

    /// The real user of a process. `None` if it can't be read.
    pub(super) fn user(&mut self, proc: BorrowedFd<'_>, pid: u32) -> Option<u32> {
        self.buffer.used = 0;
        let file = Place::process(proc, pid).open("status").ok()?;
        let text = self.buffer.read(&file, LONGEST_TEXT).ok()?;
        let status = process::status(self.buffer.text(text), Lines::of(&[Line::Uid]));
        status.ids(Line::Uid).next()
    }

    /// Appends the record of one task with everything that `plan` reads. Returns false if a file
    /// could not be read within the patience.
    ///
    /// If a thread other than the leader calls execve(2), the leader is released and the other
    /// thread gets its id. A file that was opened just before then belongs to a task that is gone.
    /// So a task that seems to be gone is read again, if its id is still in use.
    pub(super) fn task(&mut self, one: TaskRead<'_>, records: &mut Vec<u8>) -> Result<bool, TaskFailure> {
        let TaskRead { place, pass, .. } = one;
        // Each may meet another such call, the more so if other programs delay this one.
        const TRIES: usize = 16;
        let start = records.len();
        // Callers list numbers that nobody has. To open a file in vain takes much longer.
        if matches!(pass.only, TaskMatch::Leader) && !pass.is_outer && !has_priority(place.tid) && !is_in_use(place.tid)
        {
            return Err(TaskFailure::Gone);
        }
        for tries in 1..TRIES {
            match self.try_task(one, false, records) {
                Err(TaskFailure::Gone) => records.truncate(start),
                // The other thread gets the id a moment before the exit signal of a leader.
                Err(TaskFailure::Other) if tries < 4 && matches!(pass.only, TaskMatch::Leader) => {
                    records.truncate(start)
                }
                end => return end,
            }
            let is_there = if pass.is_outer {
                place.exists()
            } else {
                is_in_use(place.tid)
            };
            if !is_there {
                return Err(TaskFailure::Gone);
            }
        }
        self.try_task(one, true, records)
    }

    /// Tries to read a task. The last attempt keeps what it finds of a task that is ending.
    fn try_task(&mut self, one: TaskRead<'_>, is_last: bool, records: &mut Vec<u8>) -> Result<bool, TaskFailure> {
        let TaskRead {
            place,
            pass,
            plan,
            with,
        } = one;
        let only = with.started.map_or(pass.only, TaskMatch::Started);
        self.buffer.used = 0;
        self.buffer.began = Instant::now();
        if with.held == Files::all() {
            let header = Header {
                pid: U32::new(place.pid),
                tid: U32::new(place.tid),
                ..Header::default()
            };
            absences::put(plan.fields, with.reason, header, records);
            return Ok(false);
        }
        with.mark(place.tid, NO_FILE);
        // Most processes are not children of that process: find this out before reading more.
        if matches!(only, TaskMatch::ChildOf(_)) && plan.files != Files::STAT {
            if !only.admits(&look(&mut self.buffer, place)?) {
                return Err(TaskFailure::Other);
            }
            self.buffer.used = 0;
        }

        let found = self.collect(one)?;
        if !is_last && found.lacks_a_file(&self.buffer) {
            return Err(TaskFailure::Gone);
        }
        let live = self.read_live(one, is_last, &found)?;
        let Worker {
            buffer,
            encoder,
            cgroups,
            ..
        } = self;
        let mut raw = found.raw(buffer);
        if !matches!(only, TaskMatch::Any) && !only.admits(&raw.stat().ok_or(TaskFailure::Malformed)?) {
            return Err(TaskFailure::Other);
        }
        if plan.fields.contains(Field::CgroupId) {
            raw.cgroup_id = match raw.text(Files::CGROUP).map(process::cgroup) {
                Ok(Some(path)) => known_cgroup_id(cgroups, pass.mount.as_deref(), path),
                Ok(None) => Err(Absent::Unsupported),
                Err(reason) => Err(reason),
            };
        }
        let live_raw = live.as_ref().map(|live| live.raw(buffer));
        encoder.encode(plan, (place.pid, place.tid), (&raw, live_raw.as_ref()), records)?;
        let mut texts = found.texts.iter().chain(live.iter().flat_map(|live| &live.texts));
        Ok(texts.all(|text| *text != Err(Absent::NoAnswer)))
    }

    /// If the first thread of a process has ended, reads another one, which has what threads share.
    /// `None` if there is none, or if nothing of it is asked for.
    fn read_live(
        &mut self,
        one: TaskRead<'_>,
        is_last: bool,
        found: &Collected,
    ) -> Result<Option<Collected>, TaskFailure> {
        let place = one.place;
        if place.base != Base::Process || !one.plan.reads_shared || !found.may_have_ended(&self.buffer) {
            return Ok(None);
        }
        let stat = look(&mut self.buffer, place)?;
        let start_ticks = stat.start_ticks();
        if stat.has_memory() || stat.threads_count() < 2 {
            return Ok(None);
        }
        let mut live = None;
        let used = self.buffer.used;
        for tid in other_threads(place.directory, place.pid).unwrap_or_default() {
            let thread = Place::thread(place.directory, place.pid, tid);
            self.buffer.used = used;
            match self.read_thread(TaskRead { place: &thread, ..one }) {
                Err(TaskFailure::Gone) | Ok(None) => {}
                Err(lost) => return Err(lost),
                Ok(thread) => {
                    live = thread;
                    break;
                }
            }
        }
        // If the process ended meanwhile, its id may have passed to another one.
        let stat = look(&mut self.buffer, place)?;
        // All threads that were listed may have ended, and others live.
        let has_others = live.is_none() && stat.threads_count() > 1 && !is_last;
        if stat.start_ticks() != start_ticks || has_others {
            return Err(TaskFailure::Gone);
        }
        Ok(live)
    }

    /// Reads a thread, if it has memory.
    fn read_thread(&mut self, one: TaskRead<'_>) -> Result<Option<Collected>, TaskFailure> {
        if !look(&mut self.buffer, one.place)?.has_memory() {
            return Ok(None);
        }
        let found = self.collect(one)?;
        let has_memory = look(&mut self.buffer, one.place)?.has_memory();
        Ok(has_memory.then_some(found))
    }

    /// Reads all that the plan asks for.
    fn collect(&mut self, one: TaskRead<'_>) -> Result<Collected, TaskFailure> {
        let mut found = Collected::NOTHING;
        self.read_files(one, &mut found)?;
        one.with.mark(one.place.tid, NO_FILE);
        self.read_links(one, &mut found)?;
        self.read_anchor(one, &mut found)?;
        Ok(found)
    }

    /// Opens the anchor, and reads the other files.
    fn read_files(&mut self, one: TaskRead<'_>, found: &mut Collected) -> Result<(), TaskFailure> {
        let TaskRead {
            place,
            pass,
            plan,
            with,
        } = one;
        for file in (0..FILES).filter(|&file| encode::contains(plan.files, file)) {
            if encode::contains(with.held, file) {
                found.texts[file] = Err(with.reason);
            }
        }
        let files = plan.files_but(with.held);
        for file in (0..FILES).filter(|&file| encode::contains(files, file)) {
            if encode::contains(pass.missing.files, file) {
                found.texts[file] = Err(Absent::Unsupported);
                continue;
            }
            with.mark(place.tid, file);
            let opened = place.open_file(file);
            if found.anchor.is_none() && !plan.is_sure {
                match opened {
                    Ok(opened) => found.anchor = Some((file, opened)),
                    Err(errno) => found.texts[file] = Err(first_reason(errno)?),
                }
            } else {
                found.texts[file] = value(opened.and_then(|opened| self.buffer.read(&opened, with.most(file))))?;
            }
        }
        Ok(())
    }

    /// Reads links, and counts open files.
    fn read_links(&mut self, one: TaskRead<'_>, found: &mut Collected) -> Result<(), TaskFailure> {
        let TaskRead { place, pass, plan, .. } = one;
        for which in (0..NamespaceLink::NAMES.len()).filter(|which| plan.namespaces >> which & 1 != 0) {
            found.namespaces[which] = if pass.missing.namespaces >> which & 1 != 0 {
                Err(Absent::Unsupported)
            } else {
                value(place.namespace(NamespaceLink::NAMES[which]))?
            };
        }
        for which in (0..PATHS.len()).filter(|&which| plan.reads(PATHS[which])) {
            found.paths[which] = value(self.buffer.read_link(place, PATHS[which].name()))?;
        }
        if plan.reads(Files::WCHAN) {
            // The kernel prints 0 for a task that does not wait and for one that the caller may not
            // trace. Links of namespaces distinguish the two, because they make the same check.
            let wchan = encode::index(Files::WCHAN);
            if found.texts[wchan].is_ok_and(|span| process::wchan(self.buffer.text(span)).is_empty()) {
                if let Err(Absent::Denied) = value(place.namespace(NamespaceLink::NAMES[0]))? {
                    found.texts[wchan] = Err(Absent::Denied);
                }
            }
        }
        if plan.reads(Files::FD) {
            found.fd_count = value(place.fd_count(self.fds_have_size, &mut self.fds))?;
        }
        Ok(())
    }

    /// Reads the anchor, and finds out whether the task has memory if its files do not show it.
    ///
    /// Tasks without memory have an empty command line and environment, but so do processes that
    /// emptied theirs. Tasks without memory have no executable, but neither do some processes that
    /// the kernel started. The size of the memory in `stat` decides, if it is read after the other
    /// files: memory that is gone does not come back. Unless `stat` is the anchor, it is read now,
    /// followed by a byte of the anchor to check that the task still exists.
    fn read_anchor(&mut self, one: TaskRead<'_>, found: &mut Collected) -> Result<(), TaskFailure> {
        let TaskRead { place, plan, with, .. } = one;
        let Some((file, anchor)) = found.anchor.take() else {
            if found.may_lack_memory() {
                found.no_memory = !look(&mut self.buffer, place)?.has_memory();
            }
            return Ok(());
        };
        with.mark(place.tid, file);
        found.texts[file] = match self.buffer.read(&anchor, with.most(file)) {
            Ok(span) => Ok(span),
            Err(errno) => Err(first_reason(errno)?),
        };
        if found.may_lack_memory() && !plan.files_but(with.held).intersects(Files::STAT) {
            found.no_memory = !look(&mut self.buffer, place)?.has_memory();
            readers::beat();
            if let Err(errno) = rustix::io::pread(&anchor, &mut [0; 1][..], 0) {
                first_reason(errno)?;
            }
        }
        Ok(())
    }
}

/// What has been read about a task: places in the buffer, and numbers.
struct Collected {
    /// By [`encode::index`].
    texts: [Result<Span, Absent>; FILES],
    /// In the order of [`NamespaceLink::NAMES`].
    namespaces: [Result<u64, Absent>; NamespaceLink::NAMES.len()],
    /// In the order of [`PATHS`].
    paths: [Result<Span, Absent>; PATHS.len()],
    fd_count: Result<u32, Absent>,
    /// The first file and its index, until it is read.
    anchor: Option<(usize, OwnedFd)>,
    /// The task is known to have no memory.
    no_memory: bool,
}

impl Collected {
    const NOTHING: Collected = Collected {
        texts: [Err(Absent::NotAsked); FILES],
        namespaces: [Err(Absent::NotAsked); NamespaceLink::NAMES.len()],
        paths: [Err(Absent::NotAsked); PATHS.len()],
        fd_count: Err(Absent::NotAsked),
        anchor: None,
        no_memory: false,
    };

    /// Whether something was found that all tasks without memory have, and others may have.
    fn may_lack_memory(&self) -> bool {
        let is_empty = |file| self.texts[encode::index(file)].is_ok_and(|(start, end)| start == end);
        // Before 6.15 the environment of a task without memory is empty. Since then it can't be
        // opened.
        let environ = is_empty(Files::ENVIRON) || self.texts[ENVIRON] == Err(Absent::Gone);
        is_empty(Files::CMDLINE) || environ || self.paths[0] == Err(Absent::Gone)
    }

    /// Whether the task may be one that has ended, though others of its process live.
    fn may_have_ended(&self, buffer: &Buffer) -> bool {
        let text = |file| self.texts[encode::index(file)].ok().map(|span| buffer.text(span));
        if let Some(stat) = text(Files::STAT).and_then(|text| process::stat(text, Positions::BASIC)) {
            return !stat.has_memory() && stat.threads_count() > 1;
        }
        if let Some(text) = text(Files::STATUS) {
            return process::status(text, Lines::of(&[Line::State])).state() == Some(b'Z');
        }
        let gone = Some(Absent::Gone);
        self.may_lack_memory()
            || self.fd_count == Ok(0)
            || self.paths.iter().any(|path| path.err() == gone)
            || self.namespaces.iter().any(|inode| inode.err() == gone)
    }

    /// Whether a file that every such task has could not be found.
    fn lacks_a_file(&self, buffer: &Buffer) -> bool {
        let stat = || {
            process::stat(
                buffer.text(self.texts[encode::index(Files::STAT)].ok()?),
                Positions::BASIC,
            )
        };
        let lacks_memory = || self.no_memory || stat().is_some_and(|stat| !stat.has_memory());
        let is_gone = |file: usize| self.texts[file] == Err(Absent::Gone) && !(file == ENVIRON && lacks_memory());
        (0..FILES).any(is_gone)
    }

    fn raw<'a>(&self, buffer: &'a Buffer) -> RawTask<'a> {
        RawTask {
            texts: self.texts.map(|text| text.map(|span| buffer.text(span))),
            namespaces: self.namespaces,
            paths: self.paths.map(|path| path.map(|span| buffer.text(span))),
            fd_count: self.fd_count,
            no_memory: self.no_memory,
            ..RawTask::NONE
        }
    }
}

/// How to read one task.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOptions<'a> {
    /// Files that must not be read, because a reader is stuck at one of them.
    pub(super) held: Files,
    /// Why.
    pub(super) reason: Absent,
    /// Its start time in clock ticks. Another task with its id is not the intended one.
    pub(super) started: Option<u64>,
    /// The pulse of its reader, and the index of the task among those that the reader was given.
    pub(super) pulse: Option<(&'a Pulse, usize)>,
    /// The records of the answer take all the memory that they may.
    pub(super) is_full: bool,
}

impl Default for ReadOptions<'_> {
    fn default() -> Self {
        ReadOptions {
            held: Files::NONE,
            reason: Absent::NoAnswer,
            started: None,
            pulse: None,
            is_full: false,
        }
    }
}

const ENVIRON: usize = encode::index(Files::ENVIRON);

/// In a mark: the reader is at no file that may keep it waiting.
const NO_FILE: usize = 0xff;

impl ReadOptions<'_> {
    fn mark(&self, tid: u32, file: usize) {
        if let Some((pulse, index)) = self.pulse {
            pulse.mark((index as u64) << 40 | u64::from(tid) << 8 | file as u64);
        }
    }

    /// The maximum length of a file.
    fn most(&self, file: usize) -> usize {
        if self.is_full && encode::contains(UNDER_MAPS_LOCK, file) {
            SHORT_TEXT
        } else {
            LONGEST_TEXT
        }
    }

    /// Reports that the reader is done with a thread.
    pub(super) fn mark_next_thread(&self, tid: u32) {
        self.mark(tid + 1, NO_FILE);
    }

    /// Reports that the reader is done with the task.
    pub(super) fn mark_next_task(&self) {
        if let Some((pulse, index)) = self.pulse {
            pulse.mark((index as u64 + 1) << 40 | NO_FILE as u64);
        }
    }
}

/// The index of the task, the thread and the file in a mark.
pub(super) fn unmark(mark: u64) -> (usize, u32, usize) {
    ((mark >> 40) as usize, (mark >> 8) as u32, (mark & 0xff) as usize)
}

/// Whether an id belongs to a task, or to a thread group that has lost its leader. An execve(2)
/// passes an id to another thread without a gap. `ESRCH` is the only certain answer: pidfd_open(2)
/// does not exist before Linux 5.3, and a sandbox may forbid it.
pub(super) fn is_in_use(number: u32) -> bool {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| pidfd_open(pid, PidfdFlags::empty()).err() != Some(Errno::SRCH))
}

/// Whether an id belongs to a task, according to getpriority(2), the fastest call that tells. Before
/// Linux 5.8, an id has no task for a moment of an execve(2).
fn has_priority(number: u32) -> bool {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| getpriority_process(Some(pid)) != Err(Errno::SRCH))
}

/// Reads `stat` into the buffer, after the text that is already there.
fn look<'a>(buffer: &'a mut Buffer, place: &Place<'_>) -> Result<Stat<'a>, TaskFailure> {
    let read = place.open("stat").and_then(|file| buffer.read(&file, LONGEST_TEXT));
    let span = match read {
        Ok(span) => span,
        Err(errno) => {
            first_reason(errno)?;
            return Err(TaskFailure::Malformed);
        }
    };
    let stat = process::stat(buffer.text(span), Positions::BASIC).ok_or(TaskFailure::Malformed)?;
    if stat.is_released() {
        Err(TaskFailure::Gone)
    } else {
        Ok(stat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that long texts are not read to their end, and that those of processes are limited
    /// once an answer is large.
    #[test]
    fn texts_have_a_limit() {
        let mut buffer = Worker::new(100).buffer;
        let file = OwnedFd::from(std::fs::File::open("/proc/self/status").expect("a file"));
        assert_eq!(buffer.read(&file, 10), Err(Errno::NAMETOOLONG));
        let most_if = |is_full: bool| {
            let with = ReadOptions {
                is_full,
                ..ReadOptions::default()
            };
            [Files::STATUS, Files::CMDLINE, Files::ENVIRON].map(|file| with.most(encode::index(file)))
        };
        let (before, after) = (most_if(false), most_if(true));
        assert_eq!(before, [LONGEST_TEXT; 3]);
        assert_eq!(after, [LONGEST_TEXT, SHORT_TEXT, SHORT_TEXT]);
    }
}
