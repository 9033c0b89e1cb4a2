//! Memory maps: which file an address belongs to, and every mapping of a process or of the machine.
//!
//! [`Maps`] is a handle on one process's mappings. It answers from the `PROCMAP_QUERY` ioctl (Linux
//! 6.11), the text of `/proc/PID/maps` (proc_pid_maps(5)), or BPF, whichever is best for the
//! question. All three give the same answer. [`normalize()`] turns addresses into places in files.
//! [`Machine`] lists the mappings of all processes.
//!
//! ```
//! use taskdiag::maps::{Filter, Maps, Wants};
//!
//! let mut maps = Maps::open(std::process::id())?;
//! for mapping in &maps.list(Filter::EXECUTABLE, Wants::NAMES)? {
//!     let name = mapping.name.unwrap_or_default().escape_ascii().to_string();
//!     println!("{:x}-{:x} {} {name}", mapping.start, mapping.end, mapping.perms);
//! }
//! # Ok::<(), taskdiag::Error>(())
//! ```
//!
//! A handle stays with the address space that it was opened on. Once the process has ended, or has
//! replaced its memory by execve(2), answers are errors of kind
//! [`NoMemory`](crate::ErrorKind::NoMemory), never those of another program. What a process changes
//! while its mappings are listed may be in the list or not; no address is in it twice, and what
//! stays mapped all the while is in it. Only the text of Linux 6.17 and later may lack some of that
//! (`docs/maps.md`).
//!
//! No answer has `[vsyscall]`, the kernel's page for old system calls. The text has it for most
//! processes, but it is no mapping of theirs, and neither the ioctl nor BPF knows it.

mod batch;
mod bpf;
mod build_id;
mod elf;
mod field;
mod list;
mod machine;
mod normalize;
mod opener;
mod plan;
#[cfg(feature = "serde")]
mod serialize;
mod source;
mod space;

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use bitflags::bitflags;
#[cfg(any(doc, test))]
use taskdiag_core::absent::Absent;
use taskdiag_core::absent::Known;
#[cfg(doc)]
use taskdiag_core::error::ErrorKind;
use taskdiag_core::error::{Error, Result};
use taskdiag_sys::procmap::QueryFlags;

use crate::mutex::lock;
use crate::readers;
use batch::Pages;
use build_id::BuildIds;
use opener::Opener;
use space::{Asked, Space};

pub use elf::BuildId;
pub use field::{MapField, Row};
pub use list::{Iter, Mappings};
pub use machine::{Machine, MachineMappings};
pub use normalize::{normalize, MappedFile, Normalized, Normalizer, Outcome, Reason};
pub use opener::Broker;
pub use taskdiag_core::mapping::{Device, Perms, Usage};

/// What the fuzz target `elf` calls.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz {
    /// The build id in the bytes of an ELF file.
    pub fn build_id(file: &[u8]) -> Option<super::BuildId> {
        super::elf::build_id(file).expect("memory is read")
    }
}

/// The name of the library that the kernel maps into each process (vdso(7)).
const VDSO: &[u8] = b"[vdso]";

bitflags! {
    /// Which mappings to list: those that have all of these properties. The default lists all
    /// mappings.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Filter: u64 {
        /// The process can read it.
        const READABLE = QueryFlags::READABLE.bits();
        /// The process can write to it.
        const WRITABLE = QueryFlags::WRITABLE.bits();
        /// The process can execute it.
        const EXECUTABLE = QueryFlags::EXECUTABLE.bits();
        /// Changes reach all who map the same (`MAP_SHARED` of mmap(2)).
        const SHARED = QueryFlags::SHARED.bits();
        /// It maps a file. For anonymous memory that is shared, the kernel makes a file of its own.
        const FILE_BACKED = QueryFlags::FILE_BACKED.bits();
    }
}

bitflags! {
    /// What to read of mappings besides addresses, permissions, device, inode number and offset,
    /// which every answer has.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Wants: u8 {
        /// Their names.
        const NAMES = 1;
        /// The sizes of their pages, which the text of `maps` does not have.
        const PAGE_SIZES = 2;
        /// Their build ids.
        const BUILD_IDS = 4;
        /// How much of them is in memory, which only the text of `smaps` has. The kernel looks at
        /// every page for it.
        const USAGE = 8;
    }
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The `PROCMAP_QUERY` ioctl on `/proc/PID/maps` (Linux 6.11).
    Procmap,
    /// A BPF program that walks over mappings (Linux 6.11).
    Bpf,
    /// The text of `/proc/PID/maps` or `/proc/PID/smaps`.
    Procfs,
}

impl Source {
    /// The name, as reports have it: `procmap`, `bpf`, `procfs`.
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
        f.pad(self.name())
    }
}

/// A range of addresses of a process, as a line of proc_pid_maps(5) has it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping<'a> {
    /// Its first address.
    pub start: u64,
    /// The address after its last one.
    pub end: u64,
    /// What the process may do there.
    pub perms: Perms,
    /// Where it begins in its file; 0 if it has none.
    pub offset_bytes: u64,
    /// The device of its file; 0:0 if it has none.
    pub device: Device,
    /// The inode number of its file; 0 if it has none.
    pub inode: u64,
    /// The kernel's own text, unescaped: the path of its file, with " (deleted)" behind it if that
    /// is gone, or a word in brackets, or nothing. A name longer than 4095 bytes is
    /// [`Absent::Truncated`], whatever source answers. [`Absent::NotAsked`] without
    /// [`Wants::NAMES`].
    pub name: Known<&'a [u8]>,
    /// The size of its pages. Sources may have it without [`Wants::PAGE_SIZES`].
    pub page_size_bytes: Known<u64>,
    /// The build id of its file or of the vdso. `None`: it has none. [`Absent::NotAsked`] without
    /// [`Wants::BUILD_IDS`].
    pub build_id: Known<Option<BuildId>>,
    /// How much of it is in memory. [`Absent::NotAsked`] without [`Wants::USAGE`].
    pub usage: Known<Usage>,
}

impl fmt::Debug for Mapping<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.map(|name| name.escape_ascii().to_string());
        f.debug_struct("Mapping")
            .field("start", &format_args!("{:#x}", self.start))
            .field("end", &format_args!("{:#x}", self.end))
            .field("perms", &format_args!("{}", self.perms))
            .field("offset_bytes", &format_args!("{:#x}", self.offset_bytes))
            .field("device", &self.device)
            .field("inode", &self.inode)
            .field("name", &name)
            .field("page_size_bytes", &self.page_size_bytes)
            .field("build_id", &self.build_id)
            .field("usage", &self.usage)
            .finish()
    }
}

impl Mapping<'_> {
    /// Whether it is of a file.
    pub(crate) fn is_file_backed(&self) -> bool {
        self.inode != 0 || self.device != Device::default()
    }

    /// Whether it has all properties of the filter.
    pub(crate) fn passes(&self, filter: Filter) -> bool {
        let (of_file, perms) = (Filter::FILE_BACKED, filter.difference(Filter::FILE_BACKED));
        u64::from(self.perms.bits()) & perms.bits() == perms.bits()
            && (!filter.contains(of_file) || self.is_file_backed())
    }
}

/// The mappings of many addresses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Found {
    /// For each address, in the order given, an index into `mappings`; `None` if nothing is mapped
    /// there.
    pub places: Vec<Option<usize>>,
    /// The mappings of these addresses, each once, by ascending address.
    pub mappings: Mappings,
}

/// A handle on the mappings of one process.
///
/// The kernel checks rights when the handle is opened. After that it needs none, and its descriptor
/// can be handed to somebody who has none ([`Maps::fd`], [`Maps::from_fd`]).
///
/// A process can keep the reader of its mappings waiting. So other threads read them, and a
/// question that gets no answer within the patience fails with [`NoAnswer`](ErrorKind::NoAnswer).
/// So do all later ones, as long as that thread waits. The calling thread itself reads the mappings
/// of its own process.
pub struct Maps {
    /// Locked by the thread that asks, which may be a reader that does not come back.
    space: Arc<Mutex<Space>>,
    /// The maps file, as it was after the last answer.
    file: Option<Arc<OwnedFd>>,
    pid: Option<u32>,
    forced: Option<Source>,
    patience: Duration,
    /// The calling thread asks.
    waits: bool,
    build_ids: BuildIds,
    /// The answer to the last question about one address.
    last: Mappings,
}

impl fmt::Debug for Maps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maps")
            .field("pid", &self.pid)
            .field("forced", &self.forced)
            .field("patience", &self.patience)
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}

impl Broker {
    /// A handle on the mappings of a process. The broker has its own patience for opening the maps
    /// file.
    ///
    /// # Errors
    ///
    /// As [`Maps::open`], and [`System`](ErrorKind::System) or [`Malformed`](ErrorKind::Malformed)
    /// if the broker fails.
    pub fn open(&self, pid: u32) -> Result<Maps> {
        Ok(Maps::new(self.open_space(pid)?, Some(pid)))
    }
}

impl Maps {
    /// A handle on the mappings of a process. Takes the right to trace it (ptrace(2),
    /// `PTRACE_MODE_READ_FSCREDS`): the same user, or `CAP_SYS_PTRACE`.
    ///
    /// If the first thread of the process has ended, another of its threads is asked: they share
    /// their memory.
    ///
    /// # Errors
    ///
    /// [`NoSuchTask`](ErrorKind::NoSuchTask), [`Denied`](ErrorKind::Denied), or
    /// [`NoAnswer`](ErrorKind::NoAnswer) if the process did not let its maps file be opened for 0.2
    /// seconds. A process without memory can be opened: questions then fail with
    /// [`NoMemory`](ErrorKind::NoMemory).
    pub fn open(pid: u32) -> Result<Maps> {
        Maps::open_within(pid, readers::PATIENCE)
    }

    /// As [`open`](Maps::open), with another patience than 0.2 seconds for opening and for
    /// questions.
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

    /// A handle made of an open `/proc/PID/maps`. Whoever has such a descriptor sees these
    /// mappings.
    ///
    /// It has nothing that takes the process's number: BPF as a source, [`Wants::USAGE`], and build
    /// ids that the kernel does not find.
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

    /// The maps file, to be handed on. `None` if the process had no memory when the handle was
    /// made.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }

    /// Lets only this source answer: a question that it can't answer fails. Build ids that it does
    /// not have are still read from files.
    pub fn with_source(mut self, source: Source) -> Maps {
        self.forced = Some(source);
        self
    }

    /// How long one system call of a question may take without progress. 0.2 seconds unless this is
    /// called.
    ///
    /// `None` asks in the calling thread, however long that takes: for processes that are trusted
    /// not to keep the caller waiting. A question about one address then takes less than a
    /// microsecond, rather than the time in which one thread wakes another.
    pub fn with_patience(mut self, patience: impl Into<Option<Duration>>) -> Maps {
        match patience.into() {
            Some(patience) => self.patience = patience,
            None => self.waits = true,
        }
        self
    }

    /// The mapping that covers an address and passes `filter`, if there is one.
    ///
    /// # Errors
    ///
    /// [`NoMemory`](ErrorKind::NoMemory) once the address space is gone,
    /// [`NoAnswer`](ErrorKind::NoAnswer) if the process did not let its mappings be read,
    /// [`Unsupported`](ErrorKind::Unsupported) if no source, or not the one of
    /// [`with_source`](Maps::with_source), can answer.
    pub fn at(&mut self, address: u64, filter: Filter, wants: Wants) -> Result<Option<Mapping<'_>>> {
        let found = self.at_or_after(address, filter, wants)?;
        Ok(found.filter(|mapping| mapping.start <= address))
    }

    /// The first mapping that passes `filter` and ends behind an address: the one that covers it,
    /// or the next one.
    ///
    /// # Errors
    ///
    /// As [`at`](Maps::at).
    pub fn at_or_after(&mut self, address: u64, filter: Filter, wants: Wants) -> Result<Option<Mapping<'_>>> {
        self.last = self.ask(Asked::AtOrAfter(address, filter), wants)?;
        Ok((!self.last.is_empty()).then(|| self.last.get(0)))
    }

    /// The mappings of many addresses, given in any order. It takes one look-up for each mapping
    /// that is found, and one more at most.
    ///
    /// # Errors
    ///
    /// As [`at`](Maps::at).
    pub fn at_each(&mut self, addresses: &[u64], wants: Wants) -> Result<Found> {
        let pages = Arc::new(Pages::new(addresses));
        let mappings = self.ask(Asked::At(Arc::clone(&pages)), wants)?;
        Ok(Found {
            places: pages.places(&mappings),
            mappings,
        })
    }

    /// All mappings that pass `filter`, by ascending address.
    ///
    /// # Errors
    ///
    /// As [`at`](Maps::at).
    pub fn list(&mut self, filter: Filter, wants: Wants) -> Result<Mappings> {
        self.ask(Asked::Passing(filter), wants)
    }

    fn ask(&mut self, asked: Asked, wants: Wants) -> Result<Mappings> {
        // A reader that has the lock still waits with an earlier question.
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

    /// What is kept from question to question. `None` while a reader does not come back with it.
    fn space(&mut self) -> Option<MutexGuard<'_, Space>> {
        match self.space.try_lock() {
            Ok(space) => Some(space),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Does work that may wait for a process: in this thread, or in a reader that is given up when the
/// patience ends. `what` is what the process may hold.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of a file, with an offset that is like its address.
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

    /// Check that permissions are parsed as they are printed, and that nothing else is parsed.
    #[test]
    fn permissions_are_parsed_as_printed() {
        for bits in 0..16 {
            let perms = Perms::from_bits_truncate(bits);
            assert_eq!(Perms::parse(perms.to_string().as_bytes()), Some(perms));
        }
        assert_eq!(Perms::parse(b"rwxx"), None);
        assert_eq!(Perms::parse(b"rwzp"), None);
    }

    /// Check that a mapping passes only if it has all properties of the filter.
    #[test]
    fn filters_want_all_properties() {
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

    /// Check that `Debug` of a mapping is readable and harmless.
    #[test]
    fn mappings_print_their_names() {
        let printed = format!("{:?}", mapping(0x1000, 0x2000, b"/a\x1b"));
        assert!(
            printed.contains("start: 0x1000") && printed.contains("perms: r--p"),
            "{printed}"
        );
        assert!(printed.contains("/a\\\\x1b"), "{printed}");
    }
}
