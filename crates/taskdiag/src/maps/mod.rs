//! Memory maps: which file lies behind an address, and every mapping of a process or of the machine.
//!
//! [`Maps`] is a handle on one process's mappings. It answers from the `PROCMAP_QUERY` ioctl (Linux 6.11), the text of
//! `/proc/PID/maps`, or BPF, whichever is best for the question; all three say the same.
//! [`normalize()`] turns addresses into places in files. [`Machine`] lists the mappings of all processes.
//!
//! A handle stays with the address space that it was opened on: once the process has ended or replaced it by exec, answers are
//! errors of kind [`NoMemory`](crate::ErrorKind::NoMemory), never those of another program. What a process changes while a list of its
//! mappings is being made may be in it or not; no address comes twice, and what lies there all the while is there.
//!
//! The kernel's page for old system calls, `[vsyscall]`, is in the text of most processes. It is no mapping of theirs, neither
//! ioctl nor BPF knows it, and no answer has it.

mod batch;
mod bpf;
mod build_id;
mod elf;
mod list;
mod machine;
mod normalize;
mod opener;
mod plan;
mod source;
mod space;

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use bitflags::bitflags;
use taskdiag_core::absent::Absent;
#[cfg(doc)]
use taskdiag_core::error::ErrorKind;
use taskdiag_core::error::{Error, Result};
use taskdiag_sys::procmap::QueryFlags;

use crate::readers;
use batch::Pages;
use build_id::BuildIds;
use opener::Opener;
use space::{Asked, Space};

pub use build_id::BuildId;
pub use list::Mappings;
pub use machine::{Machine, MachineMappings};
pub use normalize::{normalize, MappedFile, Normalized, Normalizer, Outcome, Reason};
pub use opener::Broker;
pub use taskdiag_core::mapping::{Device, Perms, Usage};

/// A value, or why there is none.
pub type Known<T> = std::result::Result<T, Absent>;

/// The name of the kernel's library in a process's memory.
const VDSO: &[u8] = b"[vdso]";

bitflags! {
    /// Which mappings are meant: those that have all of these.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Filter: u64 {
        /// It can be read.
        const READABLE = QueryFlags::READABLE.bits();
        /// It can be written to.
        const WRITABLE = QueryFlags::WRITABLE.bits();
        /// It can be executed.
        const EXECUTABLE = QueryFlags::EXECUTABLE.bits();
        /// Changes are seen by others who map the same.
        const SHARED = QueryFlags::SHARED.bits();
        /// It is of a file; memory that is shared without one is of a file of the kernel's own.
        const FILE_BACKED = QueryFlags::FILE_BACKED.bits();
    }
}

bitflags! {
    /// What is wanted of mappings besides addresses, permissions, device, inode number and offset, which are always there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Wants: u8 {
        /// Their names.
        const NAMES = 1;
        /// The sizes of their pages, which the text does not have.
        const PAGE_SIZES = 2;
        /// Their build ids.
        const BUILD_IDS = 4;
        /// How much of them is in memory, which only the text has. For this the kernel looks at every page.
        const USAGE = 8;
    }
}

/// Who can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The `PROCMAP_QUERY` ioctl.
    Procmap,
    /// A BPF program that walks over mappings (Linux 6.11).
    Bpf,
    /// The text of `/proc/PID/maps` or `smaps`.
    Procfs,
}

impl Source {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Source::Procmap => "procmap",
            Source::Bpf => "bpf",
            Source::Procfs => "procfs",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A range of addresses of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Its first address.
    pub start: u64,
    /// The address after its last one.
    pub end: u64,
    /// What it allows.
    pub perms: Perms,
    /// Where it begins in its file; 0 if it has none.
    pub offset_bytes: u64,
    /// The device of its file; 0:0 if it has none.
    pub device: Device,
    /// The inode number of its file; 0 if it has none.
    pub inode: u64,
    /// The kernel's own text, unescaped: the path of its file, with " (deleted)" behind it if it is gone, or a word in brackets, or
    /// nothing. Longer ones than 4095 bytes are [`Absent::Truncated`], whoever answers.
    pub name: Known<&'a [u8]>,
    /// The size of its pages.
    pub page_size_bytes: Known<u64>,
    /// The build id of its file or of the kernel's library. `None`: it is known to have none.
    pub build_id: Known<Option<BuildId>>,
    /// How much of it is in memory.
    pub usage: Known<Usage>,
}

impl Mapping<'_> {
    /// Whether it is of a file.
    pub fn is_file_backed(&self) -> bool {
        self.inode != 0 || self.device != Device::default()
    }

    /// Whether it has all that the filter asks for.
    pub fn passes(&self, filter: Filter) -> bool {
        let (of_file, perms) = (Filter::FILE_BACKED, filter.difference(Filter::FILE_BACKED));
        u64::from(self.perms.bits()) & perms.bits() == perms.bits()
            && (!filter.contains(of_file) || self.is_file_backed())
    }
}

/// What each of many addresses lies in.
#[derive(Clone, Debug)]
pub struct Found {
    /// For each address, in the order given, an index into `mappings`.
    pub places: Vec<Option<usize>>,
    /// The mappings that were met, each once, by ascending address.
    pub mappings: Mappings,
}

/// A handle on the mappings of one process.
///
/// What may be seen is checked when it is opened: after that it needs no rights, and its descriptor can be handed to somebody who
/// has none ([`Maps::fd`], [`Maps::from_fd`]).
///
/// A process can keep whoever looks at its mappings waiting. So other threads do that, and a question that gets no answer within the
/// patience is an error of kind [`NoAnswer`](ErrorKind::NoAnswer); so are all later ones, as long as that thread waits. Questions about
/// the own process are asked in the calling thread.
#[derive(Debug)]
pub struct Maps {
    /// Locked by who asks it, which can be a reader that does not come back.
    space: Arc<Mutex<Space>>,
    /// The maps file, when it was last known.
    file: Option<Arc<OwnedFd>>,
    pid: Option<u32>,
    forced: Option<Source>,
    patience: Duration,
    /// Questions are asked in the calling thread.
    waits: bool,
    build_ids: BuildIds,
    /// The answer to the last question about one address.
    last: Mappings,
}

impl Maps {
    /// A handle on the mappings of a process. Takes the right to trace it: the same user, or `CAP_SYS_PTRACE`.
    ///
    /// Of a process whose first thread has ended, those of another one are meant, for they are the process's.
    pub fn open(pid: u32) -> Result<Maps> {
        Maps::open_within(pid, readers::PATIENCE)
    }

    /// The same with another patience than 0.2 seconds, for opening it and for questions.
    pub fn open_within(pid: u32, patience: Duration) -> Result<Maps> {
        Maps::open_by(Opener::Path(None), pid, patience)
    }

    fn open_by(opener: Opener, pid: u32, patience: Duration) -> Result<Maps> {
        let waits = pid == own_pid();
        let open = move || Space::open(opener, pid);
        let space = ask_about(Some(pid), readers::MAPPINGS, patience, waits, open)??;
        Ok(Maps {
            patience,
            waits,
            ..Maps::new(space, Some(pid))
        })
    }

    /// A handle on the mappings of this process.
    pub fn own() -> Result<Maps> {
        Maps::open(own_pid())
    }

    /// A handle made of an open `/proc/PID/maps`. Such a descriptor lets everyone who has it see these mappings.
    ///
    /// Nothing can be had that only the process's number leads to: what BPF answers, how much is in memory, build ids that the
    /// kernel does not find.
    pub fn from_fd(file: OwnedFd) -> Maps {
        Maps::new(Space::from_fd(file), None)
    }

    fn new(space: Space, pid: Option<u32>) -> Maps {
        Maps {
            file: space.file(),
            space: Arc::new(Mutex::new(space)),
            pid,
            forced: None,
            patience: readers::PATIENCE,
            waits: false,
            build_ids: BuildIds::default(),
            last: Mappings::new(Source::Procfs),
        }
    }

    /// The maps file, to be handed on; `None` if the process had no memory when the handle was made.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }

    /// Lets only this source answer. Build ids that it does not give are read from files all the same.
    pub fn with_source(mut self, source: Source) -> Maps {
        self.forced = Some(source);
        self
    }

    /// How long the process may keep a question waiting. 0.2 seconds unless it is said.
    pub fn with_patience(mut self, patience: Duration) -> Maps {
        self.patience = patience;
        self
    }

    /// Asks in the calling thread, for as long as it takes: for processes that are known to keep nobody waiting. A question about one
    /// address then takes less than a microsecond, rather than the time in which one thread wakes another.
    pub fn waiting(mut self) -> Maps {
        self.waits = true;
        self
    }

    /// The mapping that covers an address and passes `filter`, if there is one.
    pub fn at(&mut self, address: u64, filter: Filter, wants: Wants) -> Result<Option<Mapping<'_>>> {
        let found = self.at_or_after(address, filter, wants)?;
        Ok(found.filter(|mapping| mapping.start <= address))
    }

    /// The first mapping that passes `filter` and ends behind an address: the one that covers it, or the next.
    pub fn at_or_after(&mut self, address: u64, filter: Filter, wants: Wants) -> Result<Option<Mapping<'_>>> {
        self.last = self.ask(Asked::AtOrAfter(address, filter), wants)?;
        Ok((!self.last.is_empty()).then(|| self.last.get(0)))
    }

    /// What lies at many addresses, given in any order: one look-up for each mapping that they meet, and one more at most.
    pub fn at_each(&mut self, addresses: &[u64], wants: Wants) -> Result<Found> {
        let pages = Arc::new(Pages::new(addresses));
        let mappings = self.ask(Asked::At(Arc::clone(&pages)), wants)?;
        Ok(Found {
            places: pages.places(&mappings),
            mappings,
        })
    }

    /// All mappings that pass `filter`, by ascending address.
    pub fn list(&mut self, filter: Filter, wants: Wants) -> Result<Mappings> {
        self.ask(Asked::Passing(filter), wants)
    }

    fn ask(&mut self, asked: Asked, wants: Wants) -> Result<Mappings> {
        // Who holds it is still at an earlier question.
        if matches!(self.space.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(Error::no_answer(self.pid));
        }
        let (space, forced) = (Arc::clone(&self.space), self.forced);
        let answer = move || {
            let mut space = lock(&space);
            let found = space.answer(&asked, forced, wants);
            (found, space.file())
        };
        let what = if wants.contains(Wants::USAGE) {
            readers::MEMORY
        } else {
            readers::MAPPINGS
        };
        let (found, file) = ask_about(self.pid, what, self.patience, self.waits, answer)?;
        self.file = file;
        let mut found = found?;
        if wants.contains(Wants::BUILD_IDS) {
            let maps = self.file.as_ref().map(|file| file.as_fd());
            build_id::read_vdsos(self.patience, &mut found);
            self.build_ids.fill(self.pid, maps, self.patience, &mut found);
        }
        Ok(found)
    }

    /// What is kept from question to question, unless a reader does not come back with it.
    fn space(&mut self) -> Option<MutexGuard<'_, Space>> {
        match self.space.try_lock() {
            Ok(space) => Some(space),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Does something that waits for a process, or something of it: here, or where it is given up when the patience ends.
fn ask_about<T: Send + 'static>(
    pid: Option<u32>,
    what: u32,
    patience: Duration,
    waits: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    if waits {
        Ok(work())
    } else {
        readers::call(pid.unwrap_or(0), what, patience, work).ok_or_else(|| Error::no_answer(pid))
    }
}

fn own_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// A lock whose holder panicked guards nothing that could be half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of a file, its offset like its address.
    pub(super) fn mapping(start: u64, end: u64, name: &[u8]) -> Mapping<'_> {
        Mapping {
            start,
            end,
            perms: Perms::READ,
            offset_bytes: start,
            device: Device { major: 8, minor: 1 },
            inode: 42,
            name: Ok(name),
            page_size_bytes: Ok(4096),
            build_id: Err(Absent::NotAsked),
            usage: Err(Absent::NotAsked),
        }
    }

    /// Check that permissions are read as they are written, and nothing else is.
    #[test]
    fn permissions_come_back() {
        for bits in 0..16 {
            let perms = Perms::from_bits_truncate(bits);
            assert_eq!(Perms::parse(perms.to_string().as_bytes()), Some(perms));
        }
        assert_eq!(Perms::parse(b"rwxx"), None);
        assert_eq!(Perms::parse(b"rwzp"), None);
    }

    /// Check that a filter takes what has all of it.
    #[test]
    fn filters_want_all() {
        let of_file = mapping(0, 1, b"");
        assert!(of_file.passes(Filter::empty()) && of_file.passes(Filter::READABLE | Filter::FILE_BACKED));
        assert!(!of_file.passes(Filter::READABLE | Filter::EXECUTABLE));
        let anonymous = Mapping {
            inode: 0,
            device: Device::default(),
            ..of_file
        };
        assert!(!anonymous.passes(Filter::FILE_BACKED) && anonymous.passes(Filter::READABLE));
    }
}
