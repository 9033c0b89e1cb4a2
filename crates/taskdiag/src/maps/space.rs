//! The address space of one process, and the choice of the best source for a question about it.
//! Everything that may wait for the process is done here, so readers do it ([`crate::readers`]),
//! unless the caller wants to wait.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

use taskdiag_bpf::vma_walk::MappingSelection;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::plan::Cost;
use taskdiag_core::snapshot::SourceId;

use super::batch::{resolve, walk, Cursor, ListCursor, Pages};
use super::bpf::Bpf;
use super::opener::{has_memory, MemoryFile, Opener};
use super::plan::{plan, Facts, Question};
use super::source::{self, IoctlCursor, TextCursor};
use super::{Filter, Mappings, Wants};
use crate::source::procfs::Proc;

/// Whether the running kernel has the ioctl: 0 unknown, 1 yes, 2 no.
static HAS_IOCTL: AtomicU8 = AtomicU8::new(0);

fn has_ioctl() -> Option<bool> {
    match HAS_IOCTL.load(Ordering::Relaxed) {
        0 => None,
        seen => Some(seen == 1),
    }
}

/// A question.
#[derive(Clone, Debug)]
pub(super) enum MapsRequest {
    /// The first mapping that passes and ends above an address.
    AtOrAfter(u64, Filter),
    /// The mappings of some pages.
    At(Arc<Pages>),
    /// All mappings that pass.
    Passing(Filter),
}

impl MapsRequest {
    /// Reads the answer from the cursor of a source.
    fn read(&self, cursor: &mut dyn Cursor, pid: u32, found: &mut Mappings) -> Result<()> {
        match self {
            MapsRequest::AtOrAfter(address, filter) => {
                if let Some(mapping) = cursor.seek(*address, *filter)? {
                    found.push(pid, &mapping);
                }
                Ok(())
            }
            MapsRequest::At(pages) => resolve(cursor, pages.starts(), pid, found),
            MapsRequest::Passing(filter) => walk(cursor, *filter, |mapping| found.push(pid, mapping)),
        }
    }
}

/// How often another thread is turned to.
const TURNS: u32 = 64;

/// What is kept of an address space between questions.
#[derive(Debug)]
pub(super) struct Space {
    /// The maps file; `None` if the process has no address space.
    file: Option<Arc<OwnedFd>>,
    pid: Option<u32>,
    /// How the file was opened, and how to open other files of the process.
    opener: Opener,
    /// The file does not have the ioctl.
    has_no_ioctl: bool,
    /// There was an answer, or all threads have been tried: the maps file stays the same.
    is_settled: bool,
    /// How often another thread was turned to: the text is there only as long as its thread lives
    /// (`m_start` in `fs/proc/task_mmu.c`).
    turns: u32,
    /// The number of mappings when all were last listed.
    mappings: Option<usize>,
    /// Memory for names and texts.
    pub(super) names: Vec<u8>,
    pub(super) text: Vec<u8>,
    pub(super) bpf: Option<Bpf>,
}

impl Space {
    /// The address space of a process. Opens its maps file.
    pub(super) fn open(opener: Opener, pid: u32) -> Result<Space> {
        let file = opener.open(pid, MemoryFile::Maps)?;
        Ok(Space {
            opener,
            ..Space::new(file, Some(pid))
        })
    }

    /// The address space of an open maps file.
    pub(super) fn from_fd(file: OwnedFd) -> Space {
        Space::new(Some(file), None)
    }

    fn new(file: Option<OwnedFd>, pid: Option<u32>) -> Space {
        Space {
            file: file.map(Arc::new),
            pid,
            opener: Opener::Path(Proc::default(), None),
            has_no_ioctl: false,
            is_settled: false,
            turns: 0,
            mappings: None,
            names: Vec::new(),
            text: Vec::new(),
            bpf: None,
        }
    }

    /// The maps file.
    pub(super) fn file(&self) -> Option<Arc<OwnedFd>> {
        self.file.clone()
    }

    /// Lets the source of the plan answer, without build ids.
    pub(super) fn answer(&mut self, asked: &MapsRequest, forced: Option<SourceId>, wants: Wants) -> Result<Mappings> {
        let question = match asked {
            MapsRequest::AtOrAfter(..) => Question::LookUp {
                addresses: 1,
                mappings: self.mappings,
            },
            MapsRequest::At(pages) => Question::LookUp {
                addresses: pages.starts().len(),
                mappings: self.mappings,
            },
            MapsRequest::Passing(filter) => Question::Walk(*filter),
        };
        loop {
            let facts = Facts {
                forced: forced.or(self.has_no_ioctl.then_some(SourceId::Procfs)),
                has_ioctl: has_ioctl(),
                walks: self.pid.is_some() && self.bpf.as_ref().is_some_and(Bpf::is_ours),
            };
            let source = plan(question, wants, &facts, &Cost::default())?;
            let mut found = Mappings::new(source);
            match self.read(source, wants, asked, &mut found) {
                Ok(()) => {
                    self.is_settled = true;
                    if matches!(asked, MapsRequest::Passing(filter) if *filter == Filter::default()) {
                        self.mappings = Some(found.len());
                    }
                    if self.opener.is_broker() {
                        found.set_source(SourceId::Broker);
                    }
                    return Ok(found);
                }
                Err(error) if error.kind() == ErrorKind::NoMemory && self.turn_to_another_thread()? => {}
                // A descriptor from somebody else may be of another file, and tells nothing about
                // the kernel.
                Err(error)
                    if error.kind() == ErrorKind::Unsupported && source == SourceId::Procmap && self.pid.is_some() =>
                {
                    HAS_IOCTL.store(2, Ordering::Relaxed);
                }
                Err(error)
                    if error.kind() == ErrorKind::Unsupported && source == SourceId::Procmap && forced.is_none() =>
                {
                    self.has_no_ioctl = true;
                }
                Err(error) => return Err(self.describe(error)),
            }
        }
    }

    fn read(&mut self, source: SourceId, wants: Wants, asked: &MapsRequest, found: &mut Mappings) -> Result<()> {
        let pid = self.pid.unwrap_or_default();
        let file = self.file.as_ref().ok_or_else(source::no_memory)?.as_fd();
        match source {
            SourceId::Procmap => {
                asked.read(&mut IoctlCursor::new(file, wants, &mut self.names), pid, found)?;
                HAS_IOCTL.store(1, Ordering::Relaxed);
                Ok(())
            }
            SourceId::Procfs if wants.contains(Wants::USAGE) => {
                let pid = self.pid.ok_or_else(needs_pid)?;
                let smaps = self.opener.open(pid, MemoryFile::Smaps)?;
                let smaps = smaps.ok_or_else(source::no_memory)?;
                asked.read(&mut TextCursor::new(smaps.as_fd(), wants, &mut self.text), pid, found)?;
                has_memory(file).then_some(()).ok_or_else(source::no_memory)
            }
            SourceId::Procfs => asked.read(&mut TextCursor::new(file, wants, &mut self.text), pid, found),
            SourceId::Bpf => {
                let pid = self.pid.ok_or_else(needs_pid)?;
                let which = match asked {
                    MapsRequest::AtOrAfter(..) => MappingSelection::Passing(0),
                    MapsRequest::At(pages) => MappingSelection::At(pages.starts()),
                    MapsRequest::Passing(filter) => MappingSelection::Passing(filter.flags().bits() as u32),
                };
                let is_at = matches!(asked, MapsRequest::At(_));
                let bpf = match self.bpf.take().filter(Bpf::is_ours) {
                    Some(bpf) => bpf,
                    None => Bpf::load()?,
                };
                let bpf = self.bpf.insert(bpf);
                match bpf.process(file, pid, which, wants)? {
                    // It has only the mappings of these addresses.
                    Some(list) if is_at => {
                        *found = list;
                        Ok(())
                    }
                    Some(list) => asked.read(&mut ListCursor::new(&list), pid, found),
                    // The process is changing its mappings. The text then omits some
                    // (docs/maps.md).
                    None => {
                        *found = Mappings::new(SourceId::Procmap);
                        asked.read(&mut IoctlCursor::new(file, wants, &mut self.names), pid, found)
                    }
                }
            }
            _ => Err(Error::new(
                ErrorKind::Unsupported,
                format!("the source {source} does not answer about mappings: procmap, bpf and procfs do"),
            )),
        }
    }

    /// Switches to another thread of a process whose first thread has ended but whose memory still
    /// exists. False if there is none. Fails if the caller may not see it. Never switches after the
    /// first answer: another address space must not answer in place of one that is gone.
    fn turn_to_another_thread(&mut self) -> Result<bool> {
        let Some(pid) = self.pid.filter(|_| !self.is_settled) else {
            return Ok(false);
        };
        self.turns += 1;
        let live = self.opener.live(pid)?.filter(|_| self.turns < TURNS);
        self.is_settled = live.is_none();
        if let Some((opener, file)) = live {
            (self.file, self.opener) = (Some(Arc::new(file)), opener);
        }
        Ok(!self.is_settled)
    }

    fn describe(&self, error: Error) -> Error {
        match (error.kind(), self.pid) {
            (ErrorKind::NoMemory, Some(pid)) => Error::new(ErrorKind::NoMemory, format!("pid {pid}: {error:#}")),
            (ErrorKind::NoAnswer, pid) => Error::no_answer(pid),
            _ => error,
        }
    }
}

fn needs_pid() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this takes the number of the process, and only a descriptor of its maps file is known",
    )
}
