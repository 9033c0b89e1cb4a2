//! Open files: descriptors, mapped files, directories and programs of processes.
//!
//! [`Handle::files`] passes each file of the processes of a snapshot to a closure: descriptors, the
//! working and the root directory, the program, and on request mapped files. Values equal those of
//! `/proc/PID/fd`, `/proc/PID/fdinfo` and statx(2); a missing value has a reason.
//!
//! ```
//! use std::ops::ControlFlow;
//! use taskdiag::files::Request;
//! use taskdiag::{Field, Handle, Query};
//!
//! let mut handle = Handle::new();
//! let processes = handle.query(&Query::these([std::process::id()]).fields(Field::StartNs))?;
//! let answer = handle.files(&processes, &Request::default(), |_, file| {
//!     let name = file.name.unwrap_or_default().escape_ascii().to_string();
//!     println!("{} {:?} {name}", file.used_as, file.fd);
//!     ControlFlow::Continue(())
//! })?;
//! println!("{} files, {} processes denied", answer.files, answer.denied);
//! # Ok::<(), taskdiag::Error>(())
//! ```
//!
//! To see the files of a process, the caller needs the right to trace it (ptrace(2),
//! `PTRACE_MODE_READ_FSCREDS`): the same user, or `CAP_SYS_PTRACE`. Processes whose files the
//! caller may not see are left out and counted.
//!
//! No path of a process is walked, and no file is opened, so no request goes to a file server.
//! Sizes and link counts are those that this kernel knows already (`AT_STATX_DONT_SYNC`).

mod answer;
mod batch;
mod bpf;
mod bpf_names;
mod broker;
mod field;
mod filter;
mod kernel_use;
mod mapping;
mod path;
mod procfs;
#[cfg(feature = "serde")]
mod serialize;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use bitflags::bitflags;
use rustix::io::Errno;
use taskdiag_bpf::files::{FilesWalk, Match};
use taskdiag_bpf::vma_walk::VmaWalk;
use taskdiag_bpf::{recipe, rights};
use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::error::{Error, ErrorKind, Result};
#[cfg(doc)]
use taskdiag_core::field::Field;
use taskdiag_core::identity::Identity;
use taskdiag_core::open_file::access;
use taskdiag_core::plan::{Cost, WalkChoice};
use taskdiag_core::set::Set;
use taskdiag_core::snapshot::{Snapshot, SourceId, Task};
use taskdiag_core::support::Verdict;
use taskdiag_core::value::debug_row;

use crate::owners::{borrowed, FoundOwners};
use crate::readers;
use crate::source::broker::Broker;
use crate::source::procfs::Proc;
#[cfg(doc)]
use crate::Handle;
use batch::Batch;
use bpf_names::BpfNames;

pub use answer::Answer;
pub use field::{FileField, Row};
pub use filter::Filter;
pub use kernel_use::KernelUse;
pub use path::PathMatch;
pub use taskdiag_core::mapping::Device;
pub use taskdiag_core::open_file::{Access, AnonKind, Kind, Use};
pub use taskdiag_core::socket::Owner;
use taskdiag_core::socket::Socket;

bitflags! {
    /// What to read about files besides the process, the use and the number of the descriptor.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Wants: u8 {
        /// Names.
        const NAMES = 1;
        /// Flags, offset and mount.
        const FLAGS = 2;
        /// Kind, device, inode number, size and link count.
        const STAT = 4;
        /// The remaining lines of `/proc/PID/fdinfo`.
        const DETAIL = 8;
        /// The space that they occupy.
        const SPACE = 16;
        /// The other ends of pipes and sockets. This reads the descriptors of all processes.
        const PEERS = 32;
        /// Names of maps and programs of bpf(2).
        const BPF_NAMES = 64;
    }
}

/// Selects files, which must pass all of these tests, and the values to read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// What the files are used for.
    pub uses: Set<Use>,
    /// The kinds of the files; `None` for any.
    pub kinds: Option<Set<Kind>>,
    /// Only files without a name: their link count is 0.
    pub deleted: bool,
    /// Only files that one of these paths selects; all if there are none.
    pub paths: Vec<PathMatch>,
    /// Only files for which this expression is true; all if there is none.
    pub filter: Option<Filter>,
    /// The values to read. Values that the kernel provides together are read together.
    pub fields: Set<FileField>,
    /// UNIX sockets by device and inode number, each with whether the paths select the file that it
    /// is bound to. Found by [`Handle::files`].
    pub(crate) sockets: HashMap<(Device, u64), Known<bool>>,
}

/// All but mapped files, with all values except [`FileField::Detail`], [`FileField::BpfType`],
/// [`FileField::BpfName`], [`FileField::AllocatedBytes`], [`FileField::Peers`] and
/// [`FileField::User`].
impl Default for Request {
    fn default() -> Request {
        Request {
            uses: Set::from(Use::ALL).without(Use::Map),
            kinds: None,
            deleted: false,
            paths: Vec::new(),
            filter: None,
            fields: FileField::usual(),
            sockets: HashMap::new(),
        }
    }
}

impl Request {
    /// The files by the kernel's own numbers. `None` if these numbers do not decide.
    fn kernel_matches(&self) -> Option<Vec<Match>> {
        let sockets = self
            .sockets
            .keys()
            .map(|&(device, inode)| Some(path::kernel_match(device, inode)));
        self.paths.iter().map(PathMatch::kernel_match).chain(sockets).collect()
    }

    /// Whether a UNIX socket may pass, by the path that it is bound to.
    pub(crate) fn may_have_sockets(&self) -> bool {
        let is_of_kind = self.kinds.is_none_or(|kinds| kinds.contains(Kind::Socket));
        !self.paths.is_empty() && !self.deleted && is_of_kind && self.uses.contains(Use::Fd)
    }

    /// Whether the paths select a file that a UNIX socket is bound to, or why that is not known.
    pub(crate) fn is_about_socket(&self, socket: &Socket<'_>) -> Known<bool> {
        let is_about = |path: &PathMatch| Some(path.is_about_socket(socket.file?, socket.path));
        first(true, self.paths.iter().filter_map(is_about))
    }

    /// What to read for the answer.
    pub(crate) fn wants(&self) -> Wants {
        self.fields.iter().map(Wants::from).collect()
    }

    /// What to read for the answer and for the tests.
    fn needs(&self) -> Wants {
        let of_filter = self.filter.as_ref().map(Filter::fields).unwrap_or_default();
        let mut needs = self.wants() | of_filter.iter().map(Wants::from).collect::<Wants>();
        if needs.contains(Wants::PEERS) {
            needs |= Wants::STAT | Wants::FLAGS;
        }
        if needs.contains(Wants::BPF_NAMES) {
            needs |= Wants::DETAIL;
        }
        if self.kinds.is_some() || self.deleted {
            needs |= Wants::STAT;
        }
        if !self.paths.is_empty() {
            needs |= Wants::STAT;
            // Names and mounts decide what is below a directory.
            if self.paths.iter().any(PathMatch::is_tree) {
                needs |= Wants::NAMES | Wants::FLAGS;
            }
        }
        needs
    }
}

/// Combines several tests: if one has the result `decisive`, so has the whole. Otherwise the whole
/// is unknown if one test is.
fn first(decisive: bool, tests: impl IntoIterator<Item = Known<bool>>) -> Known<bool> {
    let mut decided = Ok(!decisive);
    for test in tests {
        match test {
            Ok(result) if result == decisive => return Ok(decisive),
            Err(_) if decided.is_ok() => decided = test,
            _ => {}
        }
    }
    decided
}

/// A file that a process uses.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenFile<'a> {
    /// What the process uses it for.
    pub used_as: Use,
    /// The number of the descriptor; `None` if the file is not one.
    pub fd: Option<u32>,
    /// The thread that has it for itself: it does not share its directories or its descriptors with
    /// the process (unshare(2), `CLONE_FS`, `CLONE_FILES`). `None` for a file of the process.
    pub tid: Option<u32>,
    /// The flags of open(2), as in `fdinfo`: with `O_CLOEXEC` if execve(2) closes the descriptor.
    /// `None` if the file is not a descriptor. [`Absent::NotAsked`] without
    /// [`FileField::OpenFlags`].
    pub open_flags: Known<Option<u32>>,
    /// Where the next read or write starts, in bytes. Offsets in memory devices can be negative.
    /// `None` if the file is not a descriptor. [`Absent::NotAsked`] without
    /// [`FileField::OpenFlags`].
    pub offset_bytes: Known<Option<i64>>,
    /// The id of the mount that the file was opened on, as in `/proc/PID/mountinfo`.
    /// [`Absent::NotAsked`] without [`FileField::OpenFlags`]. [`Absent::Unsupported`] for
    /// directories, programs and mappings before Linux 5.8.
    pub mnt_id: Known<u32>,
    /// The kind of the file. This value and the following ones are [`Absent::NotAsked`] without one
    /// of their fields, and [`Absent::NoAnswer`] if the file system did not provide them within the
    /// patience.
    pub kind: Known<Kind>,
    /// The length in bytes, `st_size` of stat(2).
    pub size_bytes: Known<u64>,
    /// The occupied space, `st_blocks` of stat(2) in bytes. [`Absent::NotAsked`] without
    /// [`FileField::AllocatedBytes`].
    pub allocated_bytes: Known<u64>,
    /// The device of the file, `st_dev` of stat(2).
    pub device: Known<Device>,
    /// The inode number, `st_ino` of stat(2).
    pub inode: Known<u64>,
    /// The number of names (hard links), `st_nlink` of stat(2).
    pub nlink: Known<u32>,
    /// The text of readlink(2) on `/proc/PID/fd/FD`, or on `cwd`, `root` and `exe`: a path, with "
    /// (deleted)" after it if the path is gone, or the kernel's word for a file without a path. For
    /// mapped files, the name in `/proc/PID/maps`. [`Absent::Truncated`] for a name of 4096 bytes
    /// or more. [`Absent::NotAsked`] without [`FileField::Name`].
    pub name: Known<&'a [u8]>,
    /// The lines of `fdinfo` that only some files have, such as the count of an eventfd, the
    /// targets of an epoll, or locks (proc_pid_fdinfo(5)). `None` if the file is not a descriptor.
    /// [`Absent::NotAsked`] without [`FileField::Detail`].
    pub detail: Known<Option<&'a [u8]>>,
    /// The descriptors at the other end of a pipe, a fifo or a socket; `None` if there is no other
    /// end. See [`Socket::peers`](crate::sockets::Socket::peers). For a descriptor that can write
    /// to a pipe, those that can read from it, and the reverse. [`Absent::Gone`] if the file was
    /// opened after the other descriptors were read, [`Absent::Unsupported`] for a socket that is
    /// in none of the kernel's lists. [`Absent::NotAsked`] without [`FileField::Peers`].
    pub peers: Known<Option<&'a [Owner]>>,
    /// The name that its creator gave a map or a program of bpf(2). `None` if it gave none, and for
    /// other files. [`Absent::Denied`] without `CAP_SYS_ADMIN`. [`Absent::NotAsked`] without
    /// [`FileField::BpfName`].
    pub bpf_name: Known<Option<&'a [u8]>>,
}

impl OpenFile<'static> {
    /// A file without any values.
    pub(crate) fn bare(used_as: Use) -> OpenFile<'static> {
        OpenFile {
            used_as,
            fd: None,
            tid: None,
            open_flags: Err(Absent::NotAsked),
            offset_bytes: Err(Absent::NotAsked),
            mnt_id: Err(Absent::NotAsked),
            kind: Err(Absent::NotAsked),
            size_bytes: Err(Absent::NotAsked),
            allocated_bytes: Err(Absent::NotAsked),
            device: Err(Absent::NotAsked),
            inode: Err(Absent::NotAsked),
            nlink: Err(Absent::NotAsked),
            name: Err(Absent::NotAsked),
            detail: Err(Absent::NotAsked),
            peers: Err(Absent::NotAsked),
            bpf_name: Err(Absent::NotAsked),
        }
    }

    /// A file that is not a descriptor, without any other values.
    fn no_descriptor(used_as: Use, needs: Wants) -> OpenFile<'static> {
        let asked = |values| needs.contains(values).then_some(()).ok_or(Absent::NotAsked);
        OpenFile {
            open_flags: asked(Wants::FLAGS).map(|()| None),
            offset_bytes: asked(Wants::FLAGS).map(|()| None),
            detail: asked(Wants::DETAIL).map(|()| None),
            ..OpenFile::bare(used_as)
        }
    }
}

impl OpenFile<'_> {
    /// What the descriptor was opened for. `None` if the file is not a descriptor.
    pub fn access(&self) -> Known<Option<Access>> {
        Ok(self.open_flags?.map(access))
    }

    /// Whether the file has no name: its link count is 0. This includes files that never had a
    /// name, such as those of memfd_create(2).
    pub fn is_deleted(&self) -> Known<bool> {
        Ok(self.nlink? == 0)
    }

    /// Whether the file passes the tests of a request, or why that is not known.
    fn passes(&self, request: &Request) -> Known<bool> {
        let is_of_kind = |kinds: Set<Kind>| Ok(kinds.contains(self.kind?));
        let paths = request.paths.iter().map(|path| path.is_about(self));
        let paths = paths.chain([self.is_bound(request)]);
        let tests = [
            Ok(request.uses.contains(self.used_as)),
            request.kinds.map_or(Ok(true), is_of_kind),
            if request.deleted { self.is_deleted() } else { Ok(true) },
            if request.paths.is_empty() {
                Ok(true)
            } else {
                first(true, paths)
            },
        ];
        first(false, tests)
    }

    /// Whether it is a UNIX socket that is bound to a file of the paths.
    fn is_bound(&self, request: &Request) -> Known<bool> {
        *request.sockets.get(&(self.device?, self.inode?)).unwrap_or(&Ok(false))
    }

    /// Removes the values that were read only for the tests.
    fn only(self, wants: Wants) -> Self {
        self.without(wants.complement(), Absent::NotAsked)
    }

    /// Marks these values as absent for this reason.
    fn without(self, values: Wants, reason: Absent) -> Self {
        let mut file = self;
        if values.contains(Wants::NAMES) {
            file.name = Err(reason);
        }
        if values.contains(Wants::FLAGS) {
            file.open_flags = Err(reason);
            file.offset_bytes = Err(reason);
            file.mnt_id = Err(reason);
        }
        if values.contains(Wants::STAT) {
            file.kind = Err(reason);
            file.size_bytes = Err(reason);
            file.device = Err(reason);
            file.inode = Err(reason);
            file.nlink = Err(reason);
        }
        if values.contains(Wants::SPACE) {
            file.allocated_bytes = Err(reason);
        }
        if values.contains(Wants::DETAIL) {
            file.detail = Err(reason);
        }
        if values.contains(Wants::PEERS) {
            file.peers = Err(reason);
        }
        if values.contains(Wants::BPF_NAMES) {
            file.bpf_name = Err(reason);
        }
        file
    }
}

impl fmt::Debug for OpenFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = FileField::ALL.iter().filter(|field| field.of_tasks().is_none());
        debug_row(f, "OpenFile", own.map(|&field| (field.name(), self.value(field))))
    }
}

/// Receives files.
pub(crate) type Each<'e> = dyn FnMut(&Task<'_>, &OpenFile<'_>) -> ControlFlow<()> + 'e;

/// Finds the other ends of pipes and sockets.
pub(crate) trait OtherEnds {
    /// The other end of a descriptor of a process.
    fn of_file(&self, pid: u32, file: &OpenFile<'_>) -> FoundOwners<'_>;
}

/// A process of the snapshot: its row, and its identity.
#[derive(Clone, Copy, Debug)]
struct Process {
    row: usize,
    identity: Identity,
}

/// The processes of a snapshot, without those that ended before they were read.
fn processes(snapshot: &Snapshot) -> Result<Vec<Process>> {
    let mut processes = Vec::with_capacity(snapshot.len());
    for (row, task) in snapshot.tasks().enumerate() {
        match task.identity() {
            Ok(identity) => processes.push(Process { row, identity }),
            Err(Absent::NotAsked) => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "the query of the processes must ask for start_ns, which tells one process from another",
                ))
            }
            Err(_) => {}
        }
    }
    Ok(processes)
}

/// What a handle keeps between queries about files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Which procfs is read.
    pub(crate) proc: Proc,
    walk: Option<FilesWalk>,
    /// Loading has failed.
    cannot_load: bool,
    vma_walk: Option<VmaWalk>,
    /// Loading has failed, or there is no such program for this kernel.
    cannot_walk_maps: bool,
}

impl Files {
    /// Chooses the source, and loads what it needs.
    pub(crate) fn prepare(&mut self, forced: Option<SourceId>, processes: usize) -> Result<SourceId> {
        let cost = Cost::default();
        let walk = WalkChoice {
            is_loaded: self.is_loaded(),
            can_load: !self.cannot_load && recipe::FILES_WALK.is_ok() && rights::bpf_load().verdict != Verdict::No,
            is_denied: rights::sees_values(&self.proc.join("1/exe")).verdict == Verdict::No,
            processes: processes as u64,
            procfs_extra_ns: cost.files_ns,
        };
        let mut source = walk.source("answer about open files", forced, &cost)?;
        // BPF reads most files without a thread.
        if source == SourceId::Procfs && forced.is_none() && walk.can_load && !readers::can_start() {
            source = SourceId::Bpf;
        }
        if source != SourceId::Bpf || self.is_loaded() {
            return Ok(source);
        }
        match FilesWalk::load() {
            Ok(walk) => self.walk = Some(walk),
            Err(error) if forced.is_some() => return Err(error),
            Err(_) => {
                self.cannot_load = true;
                return Ok(SourceId::Procfs);
            }
        }
        Ok(source)
    }

    /// The processes that map none of the wanted files, as far as BPF can tell. BPF is used only
    /// where that pays off.
    fn map_others(&mut self, request: &Request, processes: usize) -> HashSet<u32> {
        let is_looked_for = request.uses.contains(Use::Map) && !request.paths.is_empty();
        let Some(files) = request.kernel_matches().filter(|_| is_looked_for) else {
            return HashSet::new();
        };
        let mut walk = self.vma_walk.take().filter(VmaWalk::is_ours);
        let cost = Cost::default();
        let question = WalkChoice {
            is_loaded: false,
            can_load: !self.cannot_walk_maps,
            is_denied: false,
            processes: processes as u64,
            procfs_extra_ns: cost.mapped_ns,
        };
        if walk.is_none()
            && question
                .source("answer", None, &cost)
                .is_ok_and(|source| source == SourceId::Bpf)
        {
            walk = VmaWalk::load().ok().flatten();
            self.cannot_walk_maps = walk.is_none();
        }
        let others = walk.as_mut().and_then(|walk| mapping::map_others(walk, &files).ok());
        self.vma_walk = walk;
        others.unwrap_or_default()
    }

    fn is_loaded(&self) -> bool {
        self.walk.as_ref().is_some_and(FilesWalk::is_ours)
    }
}

/// Which source answers.
#[derive(Debug)]
pub(crate) enum Via<'a> {
    /// BPF or procfs, whichever [`Files::prepare`] chose.
    Own(SourceId),
    Broker(&'a mut Broker),
}

impl Via<'_> {
    fn source(&self) -> SourceId {
        match self {
            Via::Own(source) => *source,
            Via::Broker(_) => SourceId::Broker,
        }
    }
}

/// Answers [`Handle::files`]. `other_ends` is given if the request asks for them.
pub(crate) fn answer(
    files: &mut Files,
    via: Via<'_>,
    snapshot: &Snapshot,
    request: &Request,
    other_ends: Option<&dyn OtherEnds>,
    patience: Duration,
    each: &mut Each<'_>,
) -> Result<Answer> {
    let processes = processes(snapshot)?;
    let source = via.source();
    let map_others = match source {
        SourceId::Bpf => files.map_others(request, processes.len()),
        _ => HashSet::new(),
    };
    let mut answer = Answer::new(source);
    answer.gone = (snapshot.len() - processes.len()) as u64;
    let mut pass = Pass {
        proc: &files.proc,
        patience,
        snapshot,
        request,
        wants: request.wants(),
        needs: request.needs(),
        map_others,
        other_ends,
        bpf_names: BpfNames::default(),
        answer,
        failure: None,
        each,
    };
    // A break means that the closure ended the pass.
    let _ = match (via, &mut files.walk) {
        (Via::Broker(broker), _) => broker::read(broker, &processes, &mut pass)?,
        (Via::Own(SourceId::Bpf), Some(walk)) => bpf::read(walk, &processes, &mut pass)?,
        _ => procfs::read(&processes, &mut pass),
    };
    if let Some(failure) = pass.failure {
        return Err(failure);
    }
    let mut answer = pass.answer;
    answer.silent.sort_unstable();
    answer.silent.dedup();
    Ok(answer)
}

/// The state of a pass, through which files reach the closure.
struct Pass<'a> {
    proc: &'a Proc,
    patience: Duration,
    snapshot: &'a Snapshot,
    request: &'a Request,
    /// What the closure receives.
    wants: Wants,
    /// What is read.
    needs: Wants,
    /// Processes that map none of the wanted files.
    map_others: HashSet<u32>,
    /// Given if the request asks for other ends.
    other_ends: Option<&'a dyn OtherEnds>,
    bpf_names: BpfNames,
    answer: Answer,
    /// The error that ended the pass.
    failure: Option<Error>,
    each: &'a mut Each<'a>,
}

impl Pass<'_> {
    /// Ends the pass at a process whose files can't be read because a resource is exhausted.
    fn fail<T>(&mut self, process: &Process, errno: Errno) -> ControlFlow<(), T> {
        let pid = process.identity.tid();
        self.failure = Some(Error::io(format!("can't read the files of process {pid}"), errno));
        ControlFlow::Break(())
    }

    /// Passes on the files of a process, or those of a thread.
    fn deliver(&mut self, process: &Process, tid: Option<u32>, files: &Batch) -> ControlFlow<()> {
        files
            .iter()
            .try_for_each(|file| self.deliver_one(process, &OpenFile { tid, ..file }))
    }

    /// Passes on a file of a process.
    fn deliver_one(&mut self, process: &Process, file: &OpenFile<'_>) -> ControlFlow<()> {
        match file.passes(self.request) {
            Ok(true) => {
                let task = self.snapshot.task(process.row);
                let pid = process.identity.tid();
                let mut file = *file;
                if self.needs.contains(Wants::BPF_NAMES) {
                    file.bpf_name = match self.bpf_names.of_object(file.detail) {
                        Ok(name) => name,
                        Err(errno) => return self.fail(process, errno),
                    };
                }
                let row = Row::new(&task, &file);
                let filter = self.request.filter.as_ref();
                if filter.is_some_and(|filter| !filter.admits(&row, &mut self.answer.undecided)) {
                    return ControlFlow::Continue(());
                }
                self.answer.files += 1;
                let found = self.other_ends.map(|ends| ends.of_file(pid, &file));
                let mut file = file.only(self.wants);
                if let Some(found) = &found {
                    file.peers = borrowed(found);
                }
                (self.each)(&task, &file)
            }
            Ok(false) | Err(Absent::Gone) => ControlFlow::Continue(()),
            Err(reason) => {
                self.answer.undecided.count([(reason, "name")]);
                self.answer.unplaced_sockets +=
                    u64::from(reason == Absent::Unsupported && file.is_bound(self.request) == Err(reason));
                ControlFlow::Continue(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn file() -> OpenFile<'static> {
        OpenFile {
            used_as: Use::Fd,
            fd: Some(3),
            tid: None,
            open_flags: Ok(Some(0o100_001)),
            offset_bytes: Ok(Some(0)),
            mnt_id: Ok(1),
            kind: Ok(Kind::File),
            size_bytes: Ok(4),
            allocated_bytes: Ok(4096),
            device: Ok(Device { major: 8, minor: 1 }),
            inode: Ok(42),
            nlink: Ok(1),
            name: Ok(b"/a\x1b"),
            detail: Err(Absent::NotAsked),
            peers: Err(Absent::NotAsked),
            bpf_name: Err(Absent::NotAsked),
        }
    }

    /// Check that a file must pass all tests of a request, and that unknown results are reported as
    /// such.
    #[test]
    fn files_pass_all_tests() {
        let all = Request::default();
        assert_eq!(file().passes(&all), Ok(true));
        let mapped = OpenFile {
            used_as: Use::Map,
            ..file()
        };
        assert_eq!(mapped.passes(&all), Ok(false));
        let sockets = Request {
            kinds: Some(Kind::Socket | Kind::File),
            ..Request::default()
        };
        let silent = OpenFile {
            kind: Err(Absent::NoAnswer),
            nlink: Err(Absent::NoAnswer),
            ..file()
        };
        let no_answer = Err(Absent::NoAnswer);
        assert_eq!(
            (file().passes(&sockets), silent.passes(&sockets)),
            (Ok(true), no_answer)
        );
        let deleted = Request {
            deleted: true,
            ..Request::default()
        };
        let unlinked = OpenFile { nlink: Ok(0), ..file() };
        assert_eq!(
            (file().passes(&deleted), unlinked.passes(&deleted)),
            (Ok(false), Ok(true))
        );
        assert_eq!(silent.passes(&deleted), no_answer);
        // What one test rules out need not be known for another.
        let ruled_out = OpenFile { nlink: Ok(1), ..silent };
        let both = Request {
            kinds: sockets.kinds,
            ..deleted
        };
        assert_eq!((ruled_out.passes(&both), silent.passes(&both)), (Ok(false), no_answer));
        assert_eq!(file().access(), Ok(Some(Access::Write)));
    }

    /// Check that values needed by the tests are read, but shown only if the request asks for them.
    #[test]
    fn tests_read_what_they_need() {
        let mut request = Request {
            fields: Set::NONE,
            ..Request::default()
        };
        assert_eq!(request.needs(), Wants::empty());
        request.deleted = true;
        assert_eq!(request.needs(), Wants::STAT);
        let shown = file().only(Wants::FLAGS);
        assert_eq!(
            (shown.name, shown.inode),
            (Err(Absent::NotAsked), Err(Absent::NotAsked))
        );
        assert_eq!(shown.open_flags, file().open_flags);
        assert_eq!(file().only(Wants::NAMES).mnt_id, Err(Absent::NotAsked));
    }

    /// Check that `Debug` of a file is readable and harmless.
    #[test]
    fn files_print_their_names() {
        let printed = format!("{:?}", file());
        assert!(
            printed.contains(r#"name: "/a\u{1b}""#) && printed.contains(r#"kind: "file""#),
            "{printed}"
        );
    }
}
