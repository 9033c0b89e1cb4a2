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
mod text;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};

use bitflags::bitflags;

use crate::absent::Absent;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::procmap::QueryFlags;
use batch::{resolve, walk, Cursor, ListCursor, Pages};
use bpf::{Asked, Bpf};
use build_id::BuildIds;
use opener::{MemoryFile, Opener};
use plan::{plan, Cost, Facts, Question};
use source::{IoctlCursor, TextCursor};

pub use build_id::BuildId;
pub use list::Mappings;
pub use machine::{Machine, MachineMappings};
pub use normalize::{normalize, MappedFile, Normalized, Normalizer, Outcome, Reason};
pub use opener::Broker;

/// A value, or why there is none.
pub type Known<T> = std::result::Result<T, Absent>;

/// The name of the kernel's library in a process's memory.
const VDSO: &[u8] = b"[vdso]";

bitflags! {
    /// What a mapping allows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Perms: u8 {
        /// To read.
        const READ = 1;
        /// To write.
        const WRITE = 2;
        /// To execute.
        const EXEC = 4;
        /// Changes are seen by others who map the same.
        const SHARED = 8;
    }
}

impl Perms {
    /// From the four letters of the text.
    fn parse(letters: &[u8]) -> Option<Perms> {
        let choices = [
            (b'r', b'-', Perms::READ),
            (b'w', b'-', Perms::WRITE),
            (b'x', b'-', Perms::EXEC),
            (b's', b'p', Perms::SHARED),
        ];
        let mut perms = Perms::empty();
        for (&letter, (yes, no, flag)) in letters.iter().zip(choices) {
            match letter {
                letter if letter == yes => perms |= flag,
                letter if letter == no => {}
                _ => return None,
            }
        }
        Some(perms)
    }
}

/// Four letters as in the text: `r-xp`.
impl fmt::Display for Perms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |flag, yes, no| if self.contains(flag) { yes } else { no };
        write!(
            f,
            "{}{}{}{}",
            letter(Perms::READ, 'r', '-'),
            letter(Perms::WRITE, 'w', '-'),
            letter(Perms::EXEC, 'x', '-'),
            letter(Perms::SHARED, 's', 'p'),
        )
    }
}

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
    /// BPF programs: one that walks over mappings (Linux 6.11), or the iterator over them.
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

/// The device of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Its major number.
    pub major: u32,
    /// Its minor number.
    pub minor: u32,
}

impl Device {
    /// From the form that stat(2) has.
    fn from_raw(device: u64) -> Device {
        Device {
            major: rustix::fs::major(device),
            minor: rustix::fs::minor(device),
        }
    }
}

/// How much of a mapping is in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident.
    pub rss_bytes: u64,
    /// Resident and changed since it was read from its file, or of no file and written to.
    pub dirty_bytes: u64,
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

/// Whether the running kernel has the ioctl, once that was seen.
static HAS_IOCTL: AtomicU8 = AtomicU8::new(0);

fn has_ioctl() -> Option<bool> {
    match HAS_IOCTL.load(Ordering::Relaxed) {
        0 => None,
        seen => Some(seen == 1),
    }
}

/// A handle on the mappings of one process.
///
/// What may be seen is checked when it is opened: after that it needs no rights, and its descriptor can be handed to somebody who
/// has none ([`Maps::fd`], [`Maps::from_fd`]).
#[derive(Debug)]
pub struct Maps {
    /// The maps file; `None` if the kernel refused to open one because there is no address space.
    file: Option<OwnedFd>,
    pid: Option<u32>,
    /// How the file was opened, and others of the process are.
    opener: Opener,
    forced: Option<Source>,
    /// Whose memory it is about is settled: there was an answer, or all threads have been tried.
    is_settled: bool,
    /// How many mappings there were when last all were listed.
    mappings: Option<usize>,
    /// The answer to the last question about one address.
    last: Mappings,
    names: Vec<u8>,
    text: Vec<u8>,
    build_ids: BuildIds,
    bpf: Option<Bpf>,
}

impl Maps {
    /// A handle on the mappings of a process. Takes the right to trace it: the same user, or `CAP_SYS_PTRACE`.
    ///
    /// Of a process whose first thread has ended, those of another one are meant, for they are the process's.
    pub fn open(pid: u32) -> Result<Maps> {
        Maps::open_by(Opener::Path(None), pid)
    }

    fn open_by(opener: Opener, pid: u32) -> Result<Maps> {
        let file = opener.open(pid, MemoryFile::Maps)?;
        Ok(Maps {
            opener,
            ..Maps::new(file, Some(pid))
        })
    }

    /// A handle on the mappings of this process.
    pub fn own() -> Result<Maps> {
        Maps::open(rustix::process::getpid().as_raw_nonzero().get() as u32)
    }

    /// A handle made of an open `/proc/PID/maps`. Such a descriptor lets everyone who has it see these mappings.
    ///
    /// Nothing can be had that only the process's number leads to: what BPF answers, how much is in memory, build ids that the
    /// kernel does not find.
    pub fn from_fd(file: OwnedFd) -> Maps {
        Maps::new(Some(file), None)
    }

    fn new(file: Option<OwnedFd>, pid: Option<u32>) -> Maps {
        Maps {
            file,
            pid,
            opener: Opener::Path(None),
            forced: None,
            is_settled: false,
            mappings: None,
            last: Mappings::new(Source::Procfs),
            names: Vec::new(),
            text: Vec::new(),
            build_ids: BuildIds::default(),
            bpf: None,
        }
    }

    /// The maps file, to be handed on; `None` if the process had no memory when the handle was made.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(OwnedFd::as_fd)
    }

    /// Lets only this source answer. Build ids that it does not give are read from files all the same.
    pub fn with_source(mut self, source: Source) -> Maps {
        self.forced = Some(source);
        self
    }

    /// The mapping that covers an address and passes `filter`, if there is one.
    pub fn at(&mut self, address: u64, filter: Filter, wants: Wants) -> Result<Option<Mapping<'_>>> {
        let found = self.at_or_after(address, filter, wants)?;
        Ok(found.filter(|mapping| mapping.start <= address))
    }

    /// The first mapping that passes `filter` and ends behind an address: the one that covers it, or the next.
    pub fn at_or_after(&mut self, address: u64, filter: Filter, wants: Wants) -> Result<Option<Mapping<'_>>> {
        let question = Question::LookUp {
            addresses: 1,
            mappings: self.mappings,
        };
        self.last = self.ask(question, None, wants, &mut |cursor, found, pid| {
            if let Some(mapping) = cursor.seek(address, filter)? {
                found.push(pid, &mapping);
            }
            Ok(())
        })?;
        Ok((!self.last.is_empty()).then(|| self.last.get(0)))
    }

    /// What lies at many addresses, given in any order: one look-up for each mapping that they meet, and one more at most.
    pub fn at_each(&mut self, addresses: &[u64], wants: Wants) -> Result<Found> {
        let question = Question::LookUp {
            addresses: addresses.len(),
            mappings: self.mappings,
        };
        let pages = Pages::new(addresses);
        let mappings = self.ask(question, Some(&pages), wants, &mut |cursor, found, pid| {
            resolve(cursor, pages.starts(), pid, found)
        })?;
        Ok(Found {
            places: pages.places(&mappings),
            mappings,
        })
    }

    /// All mappings that pass `filter`, by ascending address.
    pub fn list(&mut self, filter: Filter, wants: Wants) -> Result<Mappings> {
        let found = self.ask(Question::Walk(filter), None, wants, &mut |cursor, found, pid| {
            walk(cursor, filter, |mapping| found.push(pid, mapping))
        })?;
        if filter.is_empty() {
            self.mappings = Some(found.len());
        }
        Ok(found)
    }

    /// Lets the source that the plan says answer, by whatever `read` does with a cursor of it. `pages` are those that it
    /// looks up, if it does no more than that.
    fn ask(
        &mut self,
        question: Question,
        pages: Option<&Pages>,
        wants: Wants,
        read: &mut Read<'_>,
    ) -> Result<Mappings> {
        loop {
            let facts = Facts {
                forced: self.forced,
                has_ioctl: has_ioctl(),
                walks: self.pid.is_some() && self.bpf.as_ref().is_some_and(|bpf| bpf.is_ours() && bpf.walks()),
            };
            let source = plan(question, wants, &facts, &Cost::default())?;
            let mut found = Mappings::new(source);
            let result = self.read(source, wants, question, pages, &mut found, read);
            match result {
                Ok(()) => {
                    self.is_settled = true;
                    if wants.contains(Wants::BUILD_IDS) {
                        self.read_build_ids(&mut found);
                    }
                    return Ok(found);
                }
                Err(error) if error.kind() == ErrorKind::NoMemory && self.turn_to_another_thread() => {}
                // A descriptor that was handed to us can be of another file; of ours we know what they are.
                Err(error)
                    if error.kind() == ErrorKind::Unsupported && source == Source::Procmap && self.pid.is_some() =>
                {
                    HAS_IOCTL.store(2, Ordering::Relaxed);
                }
                Err(error)
                    if error.kind() == ErrorKind::Unsupported && source == Source::Procmap && self.forced.is_none() =>
                {
                    self.forced = Some(Source::Procfs);
                }
                Err(error) => return Err(self.describe(error)),
            }
        }
    }

    fn read(
        &mut self,
        source: Source,
        wants: Wants,
        question: Question,
        pages: Option<&Pages>,
        found: &mut Mappings,
        read: &mut Read<'_>,
    ) -> Result<()> {
        let pid = self.pid.unwrap_or_default();
        let file = self.file.as_ref().ok_or_else(source::no_memory)?.as_fd();
        match source {
            Source::Procmap => {
                read(&mut IoctlCursor::new(file, wants, &mut self.names), found, pid)?;
                HAS_IOCTL.store(1, Ordering::Relaxed);
                Ok(())
            }
            Source::Procfs if wants.contains(Wants::USAGE) => {
                let pid = self.pid.ok_or_else(needs_pid)?;
                let smaps = self.opener.open(pid, MemoryFile::Smaps)?;
                let smaps = smaps.ok_or_else(source::no_memory)?;
                read(&mut TextCursor::new(smaps.as_fd(), wants, &mut self.text), found, pid)?;
                still_there(file)
            }
            Source::Procfs => read(&mut TextCursor::new(file, wants, &mut self.text), found, pid),
            Source::Bpf => {
                let pid = self.pid.ok_or_else(needs_pid)?;
                let asked = match (question, pages) {
                    (Question::Walk(filter), _) => Asked::Passing(filter),
                    (Question::LookUp { .. }, Some(pages)) => Asked::At(pages.starts()),
                    (Question::LookUp { .. }, None) => Asked::Passing(Filter::empty()),
                };
                let bpf = match self.bpf.take().filter(Bpf::is_ours) {
                    Some(bpf) => bpf,
                    None => Bpf::load()?,
                };
                let bpf = self.bpf.insert(bpf);
                let listed = bpf.process(file, pid, asked, wants)?;
                let walks = bpf.walks();
                if !walks {
                    still_there(file)?;
                }
                match listed {
                    // What was asked for, and no more.
                    Some(list) if walks && pages.is_some() => {
                        *found = list;
                        Ok(())
                    }
                    Some(list) => read(&mut ListCursor::new(&list), found, pid),
                    None if walks && pages.is_some() => {
                        *found = Mappings::new(Source::Procmap);
                        read(&mut IoctlCursor::new(file, wants, &mut self.names), found, pid)
                    }
                    None => {
                        *found = Mappings::new(Source::Procfs);
                        read(&mut TextCursor::new(file, wants, &mut self.text), found, pid)
                    }
                }
            }
        }
    }

    /// The memory of a process whose first thread has ended is that of its other threads. True if one of them has been turned to.
    /// Not once there was an answer: another address space must not answer in the place of one that is gone.
    fn turn_to_another_thread(&mut self) -> bool {
        let Some(pid) = self.pid.filter(|_| !self.is_settled) else {
            return false;
        };
        self.is_settled = true;
        for opener in self.opener.others(pid) {
            let Ok(Some(file)) = opener.open(pid, MemoryFile::Maps) else {
                continue;
            };
            if still_there(file.as_fd()).is_ok() {
                (self.file, self.opener) = (Some(file), opener);
                return true;
            }
        }
        false
    }

    /// Reads from files what build ids the source did not give: once for each file.
    fn read_build_ids(&mut self, found: &mut Mappings) {
        for index in 0..found.len() {
            let mapping = found.get(index);
            if mapping.build_id != Ok(None) {
                continue;
            }
            let same = |earlier: &usize| {
                let earlier = found.get(*earlier);
                mapping.is_file_backed() && (earlier.inode, earlier.device) == (mapping.inode, mapping.device)
            };
            let id = match (0..index).rev().take(NEAR).find(same) {
                Some(earlier) => found.get(earlier).build_id,
                None => self.build_ids.read(self.pid, &mapping),
            };
            found.set_build_id(index, id);
        }
    }

    fn describe(&self, error: Error) -> Error {
        match (error.kind(), self.pid) {
            (ErrorKind::NoMemory, Some(pid)) => Error::new(ErrorKind::NoMemory, format!("pid {pid}: {error}")),
            _ => error,
        }
    }
}

/// How far back a mapping of the same file is looked for; further away the cache has it.
const NEAR: usize = 8;

/// What is done with a cursor: it adds to the list what it finds, of the process with that number.
type Read<'a> = dyn FnMut(&mut dyn Cursor, &mut Mappings, u32) -> Result<()> + 'a;

fn needs_pid() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "a maps file alone does not lead to this: the number of its process is not known",
    )
}

/// Fails if the address space of a maps file is gone. What was asked meanwhile by the process's number was then another one's.
fn still_there(file: BorrowedFd<'_>) -> Result<()> {
    match rustix::io::pread(file, &mut [0][..], 0) {
        Ok(1..) => Ok(()),
        _ => Err(source::no_memory()),
    }
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
