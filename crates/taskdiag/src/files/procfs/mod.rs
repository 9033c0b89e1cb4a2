//! Open files from `/proc`.
//!
//! A descriptor is opened with `O_PATH`, which opens no file and walks no path: the kernel follows
//! its own link. Name and stat(2) are then read from that one file, so they belong together.
//! `fdinfo` is read from the process's descriptor, which may refer to another file by then: it
//! counts only if mount and inode number are the same.
//!
//! [`place`] opens and reads, [`reader`] reads the files of a process, [`mapped`] those that it
//! maps.

mod mapped;
mod place;
mod reader;

use std::ops::ControlFlow;

use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::identity::Identity;

use super::batch::Batch;
use super::{Pass, Process, Set, Use, Wants};
use crate::readers;
use crate::source::procfs::{is_exhausted, Proc};
use reader::Reader;

pub(super) use mapped::read_mapped;
pub(super) use place::{absent, own_link};

/// This many processes are read before their files are passed on.
const TOGETHER: usize = 256;

/// Work for a reader.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) proc: Proc,
    pub(super) identity: Identity,
    /// The thread, to read what it has for itself.
    pub(super) tid: Option<u32>,
    pub(super) what: ReadScope,
    /// What to look for in the threads of the process.
    pub(super) of_threads: Set<Use>,
    pub(super) needs: Wants,
    /// File systems are not asked, because one of them did not answer.
    pub(super) is_silent: bool,
}

/// What to read of a process.
#[derive(Clone, Debug)]
pub(super) enum ReadScope {
    /// These uses, and all descriptors.
    All(Set<Use>),
    /// Descriptors from this number on.
    From(u32),
    /// Only these: the use, and the number of a descriptor.
    These(Vec<(Use, u32)>),
}

/// What a reader found.
pub(super) struct ReaderResult {
    pub(super) files: Batch,
    pub(super) end: End,
    /// Threads with what they have for themselves.
    threads: Vec<(u32, Set<Use>)>,
    changed: u64,
    malformed: u64,
}

/// How a part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// There is more, from this descriptor on.
    More(u32),
    Whole,
    Denied,
    Gone,
    /// A resource is exhausted.
    Exhausted(Errno),
}

/// Reads the files of processes, and passes them on.
pub(super) fn read(processes: &[Process], pass: &mut Pass<'_>) -> ControlFlow<()> {
    let uses = pass.request.uses;
    for chunk in processes.chunks(TOGETHER) {
        if uses.contains(Use::Map) {
            let unseen = read_mapped(chunk, pass)?;
            // Otherwise the pass over the descriptors reports the same.
            if uses == Use::Map.into() {
                pass.answer.denied += unseen.denied;
                pass.answer.gone += unseen.gone;
            }
        }
        if uses != Use::Map.into() {
            let what = ReadScope::All(uses.without(Use::Map));
            let units = chunk
                .iter()
                .map(|&process| (process, unit(pass, &process, what.clone())));
            read_to_end(units.collect(), pass)?;
        }
    }
    ControlFlow::Continue(())
}

/// The work for a process.
pub(super) fn unit(pass: &Pass<'_>, process: &Process, what: ReadScope) -> Unit {
    let uses = match what {
        ReadScope::These(_) => Set::NONE,
        _ => pass.request.uses,
    };
    let of_threads = [Use::Fd, Use::Cwd, Use::Root].into_iter();
    Unit {
        proc: pass.proc.clone(),
        identity: process.identity,
        tid: None,
        what,
        of_threads: of_threads.filter(|&used_as| uses.contains(used_as)).collect(),
        needs: pass.needs,
        is_silent: false,
    }
}

/// Reads files of processes, part by part, and passes them on.
pub(super) fn read_to_end(mut units: Vec<(Process, Unit)>, pass: &mut Pass<'_>) -> ControlFlow<()> {
    while !units.is_empty() {
        let mut rest = Vec::new();
        for (process, mut unit, found) in read_units(units, pass)? {
            let found = match found {
                Ok(found) => found,
                Err(reason) => {
                    pass.answer.no_thread += u64::from(reason == Absent::NoThread);
                    continue;
                }
            };
            pass.deliver(&process, unit.tid, &found.files)?;
            let of_thread = |(tid, uses)| Unit {
                tid: Some(tid),
                what: ReadScope::All(uses),
                of_threads: Set::NONE,
                ..unit.clone()
            };
            rest.extend(found.threads.into_iter().map(|thread| (process, of_thread(thread))));
            match found.end {
                End::More(fd) => {
                    unit.what = ReadScope::From(fd);
                    rest.push((process, unit));
                }
                End::Whole => {}
                End::Denied => pass.answer.denied += 1,
                // Of a process that goes on, one thread less.
                End::Gone => pass.answer.gone += u64::from(unit.tid.is_none()),
                End::Exhausted(errno) => return pass.fail(&process, errno),
            }
        }
        units = rest;
    }
    ControlFlow::Continue(())
}

/// A part of a process, or why nothing was read in time.
type UnitResult = (Process, Unit, Result<ReaderResult, Absent>);

/// Reads a part of each process.
pub(super) fn read_units(units: Vec<(Process, Unit)>, pass: &mut Pass<'_>) -> ControlFlow<(), Vec<UnitResult>> {
    let read = |units: &[(Process, Unit)]| {
        let about = units.iter().map(|(_, unit)| (unit.identity.tid(), unit.clone()));
        readers::each(
            pass.proc,
            about.collect(),
            readers::FILE_SYSTEMS,
            pass.patience,
            read_unit,
        )
    };
    let found = read(&units);
    let mut parts: Vec<UnitResult> = units
        .into_iter()
        .zip(found)
        .map(|((process, unit), found)| (process, unit, found))
        .collect();
    // A file system did not answer. All else of these processes is read without asking it.
    let mut places = Vec::new();
    let mut silent = Vec::new();
    for (place, (process, unit, found)) in parts.iter_mut().enumerate() {
        if found.as_ref().err() == Some(&Absent::NoAnswer) {
            pass.answer.silent.push(unit.identity.tid());
            unit.is_silent = true;
            places.push(place);
            silent.push((*process, unit.clone()));
        }
    }
    if !silent.is_empty() {
        let about = silent.iter().map(|(_, unit)| (unit.identity.tid(), unit.clone()));
        let again = readers::each(pass.proc, about.collect(), 0, pass.patience, read_unit);
        for (place, found) in places.into_iter().zip(again) {
            parts[place].2 = found;
        }
    }
    for (process, _, found) in &parts {
        if let Ok(found) = found {
            pass.answer.changed += found.changed;
            pass.answer.malformed += found.malformed;
            if let End::Exhausted(errno) = found.end {
                pass.fail(process, errno)?;
            }
        }
    }
    ControlFlow::Continue(parts)
}

/// Reads one part of a process.
fn read_unit(unit: &Unit) -> ReaderResult {
    let mut reader = Reader::new(unit);
    let end = match reader.read() {
        Ok(end) => end,
        Err(errno) => End::of(errno),
    };
    ReaderResult {
        files: reader.files,
        end,
        threads: reader.threads,
        changed: reader.changed,
        malformed: reader.malformed,
    }
}

impl End {
    /// The end for a process whose directory can't be read.
    fn of(errno: Errno) -> End {
        match errno {
            Errno::ACCESS | Errno::PERM => End::Denied,
            errno if is_exhausted(errno) => End::Exhausted(errno),
            _ => End::Gone,
        }
    }
}
