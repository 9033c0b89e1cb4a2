//! Open files from BPF, and from procfs what the program can't answer exactly.

use std::collections::HashMap;
use std::io::Write as _;
use std::ops::ControlFlow;

use taskdiag_bpf::files::{self, name, used_as, wants, FilesPassRequest, FilesWalk, Record};
use taskdiag_core::absent::Absent;
use taskdiag_core::error::Result;
use taskdiag_core::identity::TICK_NS;

use super::batch::Batch;
use super::procfs::{self, End, ReadScope};
use super::{Device, Kind, OpenFile, Pass, Process, Request, Set, Use, Wants};

/// A flag beside those of records (`files::DEFER_*`): procfs must read the detail.
const DEFER_DETAIL: u16 = 1 << 15;

/// How far a process has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// The program has not reached it, or did not find it.
    #[default]
    Unseen,
    /// It is the right process. The next descriptor has this number or a higher one.
    Read(u32),
    /// Another process has its id.
    Other,
    /// It was read completely.
    Ended,
    /// The same, except what its threads have for themselves.
    Threads,
    /// procfs must read its files from this descriptor on; `None`: all of them.
    Deferred(Option<u32>),
}

/// The files that one run of the program found, in the order of processes.
#[derive(Default)]
pub(super) struct Run {
    files: Batch,
    /// For each file, the process as an index of the list, and what is deferred.
    about: Vec<(usize, u16)>,
    name: Vec<u8>,
}

/// Reads the files of processes, and passes them on.
pub(super) fn read(walk: &mut FilesWalk, processes: &[Process], pass: &mut Pass<'_>) -> Result<ControlFlow<()>> {
    let needs = pass.needs;
    let asked = kernel_asked(pass.request);
    for chunk in processes.chunks(files::LISTED) {
        match read_mapped(chunk, pass) {
            ControlFlow::Continue(true) => {}
            ControlFlow::Continue(false) => continue,
            ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
        }
        let pids: Vec<u32> = chunk.iter().map(|process| process.identity.tid()).collect();
        walk.begin(&pids, &asked);
        let mut states = vec![State::default(); chunk.len()];
        let mut goes_on = true;
        while goes_on {
            let mut run = Run::default();
            goes_on = walk.more(|record, text| run.take(record, text, chunk, &mut states, needs))?;
            pass.answer.longest_run_ns = pass.answer.longest_run_ns.max(Some(walk.longest_run_ns()));
            if deliver(&run, chunk, pass).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if read_rest(chunk, &states, pass).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Reads mapped files, if the request asks for them. Returns whether it also asks for other files.
pub(super) fn read_mapped(chunk: &[Process], pass: &mut Pass<'_>) -> ControlFlow<(), bool> {
    let uses = pass.request.uses;
    if uses.contains(Use::Map) {
        let unseen = procfs::read_mapped(chunk, pass)?;
        if uses == Use::Map.into() {
            pass.answer.denied += unseen.denied;
            pass.answer.gone += unseen.gone;
            return ControlFlow::Continue(false);
        }
        // The program sees all other files of these processes.
        pass.answer.maps_denied += unseen.denied;
    }
    ControlFlow::Continue(true)
}

/// The request in the program's form. Its tests rule out no file that may pass.
pub(super) fn kernel_asked(request: &Request) -> FilesPassRequest {
    let mut asked = FilesPassRequest {
        uses: kernel_uses(request.uses),
        wants: kernel_wants(request.needs()),
        types: request.kinds.map_or(0, kernel_types),
        deleted: request.deleted,
        ..FilesPassRequest::default()
    };
    if let Some(matches) = request
        .kernel_matches()
        .filter(|matches| matches.len() <= files::MATCHES)
    {
        asked.matches[..matches.len()].copy_from_slice(&matches);
    }
    asked
}

/// The types of files that have one of these kinds.
fn kernel_types(kinds: Set<Kind>) -> u32 {
    let mode = |kind| match kind {
        Kind::File => libc::S_IFREG,
        Kind::Dir => libc::S_IFDIR,
        Kind::Char => libc::S_IFCHR,
        Kind::Block => libc::S_IFBLK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
        Kind::Link => libc::S_IFLNK,
        _ => 0,
    };
    kinds.iter().fold(0, |all, kind| all | 1 << (mode(kind) >> 12))
}

/// The uses, in the program's form.
fn kernel_uses(uses: Set<Use>) -> u32 {
    let bits = [
        (Use::Fd, used_as::FD),
        (Use::Cwd, used_as::CWD),
        (Use::Root, used_as::ROOT),
        (Use::Exe, used_as::EXE),
    ];
    let asked = bits.into_iter().filter(|(one, _)| uses.contains(*one));
    asked.fold(0, |all, (_, bit)| all | 1 << bit)
}

/// What to read, in the program's form.
fn kernel_wants(needs: Wants) -> u32 {
    let bits = [
        (Wants::NAMES, wants::NAMES),
        (Wants::FLAGS, wants::FLAGS),
        (Wants::STAT, wants::STAT),
        (Wants::SPACE, wants::SPACE),
    ];
    let asked = bits.into_iter().filter(|(one, _)| needs.contains(*one));
    asked.fold(0, |all, (_, bit)| all | bit)
}

impl Run {
    /// Takes in a record.
    pub(super) fn take(&mut self, record: &Record, text: &[u8], chunk: &[Process], states: &mut [State], needs: Wants) {
        let index = record.index as usize;
        let (Some(process), Some(state)) = (chunk.get(index), states.get_mut(index)) else {
            return;
        };
        match record.used_as {
            used_as::PROCESS => {
                let is_meant = record.start_ns / TICK_NS == process.identity.start_ticks();
                let is_deferred = record.flags & files::DEFER_ALL != 0;
                *state = match *state {
                    _ if !is_meant => State::Other,
                    State::Unseen if is_deferred => State::Deferred(None),
                    State::Read(fd) if is_deferred => State::Deferred(Some(fd)),
                    State::Unseen => State::Read(0),
                    other => other,
                };
            }
            used_as::END => {
                if matches!(state, State::Read(_)) {
                    let has_threads = record.flags & files::DEFER_THREADS != 0;
                    *state = if has_threads { State::Threads } else { State::Ended };
                }
            }
            _ => {
                let (State::Read(next), Some(used_as)) = (&mut *state, used(record.used_as)) else {
                    return;
                };
                if used_as == Use::Fd {
                    *next = record.fd.saturating_add(1);
                }
                let mut deferred = record.flags;
                if needs.contains(Wants::DETAIL) && used_as == Use::Fd {
                    deferred |= DEFER_DETAIL;
                }
                self.push(record, text, used_as, needs);
                self.about.push((index, deferred));
            }
        }
    }

    fn push(&mut self, record: &Record, text: &[u8], used_as: Use, needs: Wants) {
        self.name.clear();
        put_name(record, text, &mut self.name);
        let is_fd = used_as == Use::Fd;
        let mut file = OpenFile {
            fd: is_fd.then_some(record.fd),
            ..OpenFile::bare(used_as)
        };
        if needs.contains(Wants::FLAGS) {
            file.open_flags = Ok(is_fd.then_some(record.open_flags));
            file.offset_bytes = Ok(is_fd.then_some(record.offset));
            file.mnt_id = Ok(record.mnt_id);
        }
        if needs.contains(Wants::STAT) {
            file.kind = Kind::new(record.mode.into(), &self.name).ok_or(Absent::Unsupported);
            file.size_bytes = Ok(record.size);
            file.device = Ok(Device {
                major: record.dev_major,
                minor: record.dev_minor,
            });
            file.inode = Ok(record.inode);
            file.nlink = Ok(record.nlink);
        }
        if needs.contains(Wants::SPACE) {
            // It is deferred for files that can occupy space.
            file.allocated_bytes = Ok(0);
        }
        if needs.contains(Wants::DETAIL) {
            file.detail = if is_fd { Err(Absent::Gone) } else { Ok(None) };
        }
        let file = OpenFile {
            name: if needs.contains(Wants::NAMES) {
                Ok(&self.name[..])
            } else {
                Err(Absent::NotAsked)
            },
            ..file
        };
        self.files.push(&file);
    }
}

fn used(as_what: u16) -> Option<Use> {
    match as_what {
        used_as::FD => Some(Use::Fd),
        used_as::CWD => Some(Use::Cwd),
        used_as::ROOT => Some(Use::Root),
        used_as::EXE => Some(Use::Exe),
        _ => None,
    }
}

/// Appends the name of a file to `out`, as readlink(2) has it.
fn put_name(record: &Record, text: &[u8], out: &mut Vec<u8>) {
    match record.name {
        name::WHOLE => out.extend_from_slice(text),
        name::SOCKET => put_number(out, "socket", record.inode),
        name::PIPE => put_number(out, "pipe", record.inode),
        name::ANON => {
            out.extend_from_slice(b"anon_inode:");
            out.extend_from_slice(text);
        }
        name::SIMPLE => {
            out.push(b'/');
            out.extend_from_slice(text);
            out.extend_from_slice(b" (deleted)");
        }
        _ => {}
    }
}

fn put_number(out: &mut Vec<u8>, what: &str, inode: u64) {
    // Writing to memory does not fail.
    let _ = write!(out, "{what}:[{inode}]");
}

/// A use of a file: the index of its process in the chunk, the use, and the descriptor.
type Place = (usize, Use, u32);

fn place(file: &OpenFile<'_>, index: usize) -> Place {
    (index, file.used_as, file.fd.unwrap_or(0))
}

/// The inode, if it is all that procfs must be asked about: how much space it occupies.
fn inode_alone(file: &OpenFile<'_>, deferred: u16) -> Option<(Device, u64)> {
    let inode = (file.device.ok()?, file.inode.ok()?);
    (deferred == files::DEFER_SPACE).then_some(inode)
}

/// What procfs reports about deferred files.
#[derive(Default)]
struct Completed {
    /// By process.
    found: HashMap<usize, std::result::Result<procfs::ReaderResult, Absent>>,
    /// Where each file is in the result of its process.
    at: HashMap<Place, usize>,
}

impl Completed {
    /// Reads files that were deferred.
    fn read(
        &mut self,
        asked: HashMap<usize, Vec<(Use, u32)>>,
        chunk: &[Process],
        pass: &mut Pass<'_>,
    ) -> ControlFlow<()> {
        let mut rest: Vec<(usize, Vec<(Use, u32)>)> = asked.into_iter().collect();
        rest.sort_unstable_by_key(|(index, _)| *index);
        let (indexes, files): (Vec<usize>, Vec<_>) = rest.into_iter().unzip();
        let units = indexes.iter().zip(files).map(|(&index, files)| {
            let process = chunk[index];
            (process, procfs::unit(pass, &process, ReadScope::These(files)))
        });
        let units = units.collect();
        let parts = procfs::read_units(units, pass)?;
        for (index, (_, _, found)) in indexes.into_iter().zip(parts) {
            if let Ok(found) = &found {
                let files = found.files.iter().enumerate();
                self.at.extend(files.map(|(at, file)| (place(&file, index), at)));
            }
            self.found.insert(index, found);
        }
        ControlFlow::Continue(())
    }

    /// The file at a place; `None` if it no longer exists. `file` is what the program reported, and
    /// `deferred` what it did not know.
    fn complete<'a>(&'a self, place: Place, file: &OpenFile<'a>, deferred: u16, needs: Wants) -> Option<OpenFile<'a>> {
        let without = |reason| Some(without(*file, deferred, needs, reason));
        let found = match self.found.get(&place.0)? {
            Ok(found) => found,
            Err(reason) => return without(*reason),
        };
        match found.end {
            End::Denied => without(Absent::Denied),
            _ => Some(found.files.get(*self.at.get(&place)?)),
        }
    }

    /// The file, with the space of its inode, which was asked for through the descriptor at a place.
    /// `None` if that leads to another file by now, or does not tell.
    fn with_space<'a>(&'a self, place: Place, file: &OpenFile<'a>, needs: Wants) -> Option<OpenFile<'a>> {
        let other = self.complete(place, file, files::DEFER_SPACE, needs)?;
        let is_same = (other.device, other.inode) == (file.device, file.inode);
        (is_same && other.allocated_bytes.is_ok()).then_some(OpenFile {
            allocated_bytes: other.allocated_bytes,
            ..*file
        })
    }
}

/// A file without its deferred values.
fn without<'a>(file: OpenFile<'a>, deferred: u16, needs: Wants, reason: Absent) -> OpenFile<'a> {
    let lost = [
        (files::DEFER_ALL, Wants::all()),
        (files::DEFER_NAME, Wants::NAMES),
        (files::DEFER_STAT, Wants::STAT.union(Wants::SPACE)),
        (files::DEFER_SPACE, Wants::SPACE),
        (DEFER_DETAIL, Wants::DETAIL),
    ];
    let lost = lost.into_iter().filter(|(flag, _)| deferred & flag != 0);
    let lost: Wants = lost.map(|(_, values)| values).collect();
    let kind = match file.kind {
        Ok(_) if deferred & files::DEFER_ALL != 0 => Err(reason),
        // The name tells which kernel object it is.
        Ok(Kind::Anon(_)) if deferred & files::DEFER_NAME != 0 => Err(reason),
        // File systems may report other numbers than those of the kernel's inode, but the same
        // type.
        kind => kind,
    };
    OpenFile {
        kind,
        ..file.without(lost.intersection(needs), reason)
    }
}

/// Passes on what a run found. procfs completes what is deferred: it is asked once about the space
/// of an inode, and about each file that needs more.
pub(super) fn deliver(run: &Run, chunk: &[Process], pass: &mut Pass<'_>) -> ControlFlow<()> {
    let mut asked: HashMap<usize, Vec<(Use, u32)>> = HashMap::new();
    let mut of_inode: HashMap<(Device, u64), Place> = HashMap::new();
    for (file, &(index, deferred)) in run.files.iter().zip(&run.about) {
        if deferred == 0 || !may_pass(&file, deferred, pass) {
            continue;
        }
        let place @ (_, used_as, fd) = place(&file, index);
        let inode = inode_alone(&file, deferred);
        if inode.is_none_or(|inode| *of_inode.entry(inode).or_insert(place) == place) {
            asked.entry(index).or_default().push((used_as, fd));
        }
    }
    pass.answer.deferred += asked.len() as u64;
    let needs = pass.needs;
    let mut completed = Completed::default();
    completed.read(asked, chunk, pass)?;
    // If the descriptor that was asked is closed by now, the others are asked themselves.
    let mut left: HashMap<usize, Vec<(Use, u32)>> = HashMap::new();
    for (file, &(index, deferred)) in run.files.iter().zip(&run.about) {
        let place @ (_, used_as, fd) = place(&file, index);
        let through = inode_alone(&file, deferred).and_then(|inode| of_inode.get(&inode));
        let is_lost =
            through.is_some_and(|&through| through != place && completed.with_space(through, &file, needs).is_none());
        if is_lost {
            left.entry(index).or_default().push((used_as, fd));
        }
    }
    let mut again = Completed::default();
    again.read(left, chunk, pass)?;
    for (file, &(index, deferred)) in run.files.iter().zip(&run.about) {
        let place = place(&file, index);
        let through = inode_alone(&file, deferred).and_then(|inode| of_inode.get(&inode));
        let file = match (deferred, through) {
            (0, _) => Some(file),
            (_, Some(&through)) if through != place => completed
                .with_space(through, &file, needs)
                .or_else(|| again.complete(place, &file, deferred, needs)),
            _ => completed.complete(place, &file, deferred, needs),
        };
        if let Some(file) = file {
            pass.deliver_one(&chunk[index], &file)?;
        }
    }
    ControlFlow::Continue(())
}

/// Whether a file with deferred values may pass the tests, by the values that are known.
fn may_pass(file: &OpenFile<'_>, deferred: u16, pass: &Pass<'_>) -> bool {
    let request = pass.request;
    if deferred & (files::DEFER_ALL | files::DEFER_NAME | files::DEFER_STAT) == 0 {
        return file.passes(request) != Ok(false);
    }
    if deferred & (files::DEFER_ALL | files::DEFER_NAME) != 0 {
        return true;
    }
    // Only the type is certain: the file system may report other numbers than those of the inode.
    let (Some(kinds), Ok(kind)) = (request.kinds, file.kind) else {
        return true;
    };
    match kind {
        Kind::Anon(_) => true,
        kind => kinds.contains(kind),
    }
}

/// Reads from procfs what the program left to it, and the processes that the program did not find.
pub(super) fn read_rest(chunk: &[Process], states: &[State], pass: &mut Pass<'_>) -> ControlFlow<()> {
    let uses = pass.request.uses.without(Use::Map);
    let mut units = Vec::new();
    for (process, state) in chunk.iter().zip(states) {
        let what = match state {
            State::Ended => continue,
            State::Other => {
                pass.answer.gone += 1;
                continue;
            }
            State::Threads => {
                pass.answer.deferred += 1;
                ReadScope::All(Set::NONE)
            }
            State::Unseen => ReadScope::All(uses),
            State::Deferred(None) => {
                pass.answer.deferred += 1;
                ReadScope::All(uses)
            }
            State::Deferred(Some(fd)) | State::Read(fd) => {
                pass.answer.deferred += 1;
                ReadScope::From(*fd)
            }
        };
        units.push((*process, procfs::unit(pass, process, what)));
    }
    procfs::read_to_end(units, pass)
}
