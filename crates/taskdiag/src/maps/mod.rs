//! Memory mappings: the file that an address belongs to, and every mapping of a process or of the
//! machine.
//!
//! [`Handle::maps`] opens the mappings of one process: [`Maps`]. They are read by the
//! `PROCMAP_QUERY` ioctl (Linux 6.11), as the text of `/proc/PID/maps` (proc_pid_maps(5)), or by
//! BPF, whichever is best for the question. All three give the same answer. [`Normalizer`] turns
//! addresses into places in files. [`Handle::all_maps`] lists the mappings of all processes.
//!
//! ```
//! use taskdiag::maps::{MapField, Perms};
//! use taskdiag::Handle;
//!
//! let mut maps = Handle::new().maps(std::process::id())?;
//! for mapping in &maps.list(Perms::EXEC, MapField::Name)? {
//!     let name = mapping.name.unwrap_or_default().escape_ascii().to_string();
//!     println!("{:x}-{:x} {} {name}", mapping.start, mapping.end, mapping.perms);
//! }
//! # Ok::<(), taskdiag::Error>(())
//! ```
//!
//! [`Maps`] stays with the address space that it was opened on. Once the process has ended, or has
//! replaced its memory by execve(2), calls fail with [`NoMemory`](crate::ErrorKind::NoMemory); they
//! never answer about another program. If a process changes its mappings while they are listed, the
//! list may have the changed parts or not; no address is in it twice, and what stays mapped all the
//! time is in it. Only the text of Linux 6.17 and later may lack some of that (`docs/maps.md`).
//!
//! No answer has `[vsyscall]`, the kernel's page for old system calls. The text shows it for most
//! processes, but it is not one of their mappings, and neither the ioctl nor BPF reports it.

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
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use bitflags::bitflags;
use taskdiag_core::absent::{Absent, Known};
#[cfg(doc)]
use taskdiag_core::error::ErrorKind;
use taskdiag_core::error::{Error, Result};
use taskdiag_core::set::Set;
use taskdiag_core::snapshot::SourceId;
use taskdiag_core::value::debug_row;
use taskdiag_sys::procmap::QueryFlags;

use crate::mutex::lock;
use crate::readers;
use crate::source::procfs::Proc;
#[cfg(doc)]
use crate::Handle;
use batch::Pages;
use build_id::{BuildIds, GoBuildId};
use opener::Opener;
use space::{MapsRequest, Space};

pub use elf::{BuildId, Segment};
pub use field::{MapField, Row};
pub use list::{Iter, Mappings};
pub(crate) use machine::Machine;
pub use machine::MachineMappings;
pub use normalize::{MappedFile, Normalized, Normalizer, Outcome};
pub(crate) use opener::Broker;
pub use taskdiag_core::mapping::{Device, Perms};

/// The build id in the bytes of an ELF file, for the fuzz target `elf`.
#[doc(hidden)]
pub fn elf_build_id(file: &[u8]) -> Option<BuildId> {
    elf::build_id(&file).expect("memory is read").ok().flatten()
}

/// The name of the library that the kernel maps into each process (vdso(7)).
const VDSO: &[u8] = b"[vdso]";

/// Selects mappings that have all of these properties. The default is all mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// Permissions that the mappings have, perhaps among others.
    pub perms: Perms,
    /// Only mappings of files. For shared anonymous memory the kernel makes a file of its own, so
    /// it counts.
    pub file_backed: bool,
}

/// Selects the mappings that have these permissions, perhaps among others.
impl From<Perms> for Filter {
    fn from(perms: Perms) -> Filter {
        Filter {
            perms,
            ..Filter::default()
        }
    }
}

impl Filter {
    /// The equivalent flags of [`PROCMAP_QUERY`](taskdiag_sys::procmap).
    fn flags(self) -> QueryFlags {
        let mut flags = QueryFlags::from_bits_truncate(self.perms.bits().into());
        flags.set(QueryFlags::FILE_BACKED, self.file_backed);
        flags
    }
}

bitflags! {
    /// What to read about mappings besides addresses, permissions, device, inode number and offset,
    /// which every answer has.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Wants: u8 {
        /// Names.
        const NAMES = 1;
        /// Page sizes, which the text of `maps` does not have.
        const PAGE_SIZES = 2;
        /// Build ids.
        const BUILD_IDS = 4;
        /// How much of a mapping is in memory, which only the text of `smaps` has. The kernel walks
        /// every page for it.
        const USAGE = 8;
        /// Build ids of Go.
        const GO_BUILD_IDS = 16;
    }
}

impl Wants {
    /// What to read for the values of fields.
    pub(crate) fn of(fields: impl Into<Set<MapField>>) -> Wants {
        fields.into().iter().map(Wants::from).collect()
    }
}

/// A range of addresses of a process, as a line of proc_pid_maps(5) has it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping<'a> {
    /// The process. `None` if only a descriptor of its maps file is known ([`Handle::maps_of_fd`]).
    pub pid: Option<u32>,
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// What the process may do with the memory.
    pub perms: Perms,
    /// The offset of the mapping in its file, in bytes; 0 without a file.
    pub offset_bytes: u64,
    /// The device of the file; 0:0 without a file.
    pub device: Device,
    /// The inode number of the file; 0 without a file.
    pub inode: u64,
    /// The kernel's own text, unescaped: the path of the file, with " (deleted)" after it if the
    /// path is gone, or a word in brackets, or nothing. A name longer than 4095 bytes is
    /// [`Absent::Truncated`], whichever source answers. [`Absent::NotAsked`] without
    /// [`MapField::Name`].
    pub name: Known<&'a [u8]>,
    /// The page size in bytes. Sources may provide it without [`MapField::PageSizeBytes`].
    pub page_size_bytes: Known<u64>,
    /// The build id of the file or of the vdso; `None` if there is none. [`Absent::NotAsked`]
    /// without [`MapField::BuildId`].
    pub build_id: Known<Option<BuildId>>,
    /// The resident part, `Rss` of `smaps`, in bytes. This value and the next two are
    /// [`Absent::NotAsked`] unless one of [`MapField::RssBytes`], [`MapField::DirtyBytes`] and
    /// [`MapField::HugetlbBytes`] is asked for.
    pub rss_bytes: Known<u64>,
    /// The modified part of the resident memory, `Shared_Dirty` and `Private_Dirty` of `smaps`, in
    /// bytes.
    pub dirty_bytes: Known<u64>,
    /// The resident part of a mapping of hugetlbfs, `Shared_Hugetlb` and `Private_Hugetlb` of
    /// `smaps`, in bytes. The other two do not include it.
    pub hugetlb_bytes: Known<u64>,
    /// `None` if it was not asked for.
    go_build_id: Option<&'a GoBuildId>,
}

impl fmt::Debug for Mapping<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = Row::new(*self);
        let cells = MapField::ALL.iter().map(|&field| (field.name(), row.value(field)));
        debug_row(f, "Mapping", cells)
    }
}

impl Mapping<'static> {
    /// A mapping of which nothing has been read.
    fn unread(wants: Wants) -> Mapping<'static> {
        Mapping {
            pid: None,
            start: 0,
            end: 0,
            perms: Perms::empty(),
            offset_bytes: 0,
            device: Device::default(),
            inode: 0,
            name: Err(Absent::NotAsked),
            page_size_bytes: Err(Absent::Unsupported),
            // It is filled in afterwards.
            build_id: if wants.contains(Wants::BUILD_IDS) {
                Ok(None)
            } else {
                Err(Absent::NotAsked)
            },
            rss_bytes: Err(Absent::NotAsked),
            dirty_bytes: Err(Absent::NotAsked),
            hugetlb_bytes: Err(Absent::NotAsked),
            go_build_id: None,
        }
    }
}

impl<'a> Mapping<'a> {
    /// The build id that Go's linker wrote into the file, as `go tool buildid` has it; `None` if
    /// there is none. [`Absent::Truncated`] beyond 256 bytes, [`Absent::NotAsked`] without
    /// [`MapField::GoBuildId`].
    pub fn go_build_id(&self) -> Known<Option<&'a [u8]>> {
        match self.go_build_id {
            Some(id) => id.as_ref().map(Option::as_deref).map_err(|reason| *reason),
            None => Err(Absent::NotAsked),
        }
    }

    /// Whether it maps a file.
    pub(crate) fn is_file_backed(&self) -> bool {
        self.inode != 0 || self.device != Device::default()
    }

    /// Whether it has all properties of the filter.
    pub(crate) fn passes(&self, filter: Filter) -> bool {
        self.perms.contains(filter.perms) && (!filter.file_backed || self.is_file_backed())
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

/// How to read mappings: the settings of a [`Handle`](crate::Handle).
#[derive(Debug)]
pub(crate) struct Settings {
    /// Which procfs is read.
    pub(crate) proc: Proc,
    /// The only source that may answer.
    pub(crate) forced: Option<SourceId>,
    /// Opens files, instead of this process, and lists processes.
    pub(crate) broker: Option<Broker>,
    /// How long one system call on a process may make no progress.
    pub(crate) patience: Duration,
}

/// The mappings of one process, from [`Handle::maps`].
///
/// The kernel checks rights only when the maps file is opened. Later calls need no rights, so the
/// descriptor can be passed to a process that has none ([`Maps::fd`], [`Handle::maps_of_fd`]).
///
/// A process can block the reader of its mappings. So reader threads read them, and a call without
/// an answer within the patience fails with [`NoAnswer`](ErrorKind::NoAnswer). So do all later
/// calls, as long as that thread waits. The mappings of the caller's own process are read in the
/// calling thread.
pub struct Maps {
    /// Locked by the thread that reads, which may be a reader that does not return.
    space: Arc<Mutex<Space>>,
    /// The maps file after the last answer.
    file: Option<Arc<OwnedFd>>,
    proc: Proc,
    pid: Option<u32>,
    forced: Option<SourceId>,
    patience: Duration,
    /// The calling thread reads.
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

impl Maps {
    /// Opens the maps file of a process.
    pub(crate) fn open(settings: &Settings, pid: u32) -> Result<Maps> {
        // The broker applies its own patience to opening the file.
        let (waits, space) = match &settings.broker {
            Some(broker) => (false, Space::open(Opener::Broker(broker.clone()), pid)?),
            None => {
                let waits = settings.proc.own_pid() == Some(pid);
                let opener = Opener::Path(settings.proc.clone(), None);
                let open = move || Space::open(opener, pid);
                let Settings { proc, patience, .. } = settings;
                (
                    waits,
                    ask_about(proc, Some(pid), readers::MAPPINGS, *patience, waits, open)??,
                )
            }
        };
        Ok(Maps::new(settings, space, Some(pid), waits))
    }

    /// Takes an open maps file.
    pub(crate) fn from_fd(settings: &Settings, file: OwnedFd) -> Maps {
        Maps::new(settings, Space::from_fd(file), None, false)
    }

    fn new(settings: &Settings, space: Space, pid: Option<u32>, waits: bool) -> Maps {
        Maps {
            file: space.file(),
            space: Arc::new(Mutex::new(space)),
            proc: settings.proc.clone(),
            pid,
            forced: settings.forced,
            patience: settings.patience,
            waits,
            build_ids: BuildIds::default(),
            last: Mappings::new(SourceId::Procfs),
        }
    }

    /// The maps file, to be passed on. `None` if the process had no memory when it was opened.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }

    /// Reads in the calling thread, however long one system call takes: for processes that are
    /// trusted not to block the caller. A question about one address then takes less than a
    /// microsecond, instead of the time for one thread to wake another. Questions that take more
    /// than five seconds in total still fail.
    pub fn in_calling_thread(mut self) -> Maps {
        self.waits = true;
        self
    }

    /// The mapping that contains an address and passes `filter`, if there is one. Names, page
    /// sizes, build ids and resident sizes are read only if they are among the `fields`.
    ///
    /// # Errors
    ///
    /// [`NoMemory`](ErrorKind::NoMemory) once the address space is gone,
    /// [`NoAnswer`](ErrorKind::NoAnswer) if the mappings could not be read within the patience,
    /// [`Unsupported`](ErrorKind::Unsupported) if no source, or not the one of
    /// [`Handle::with_source`], can answer.
    pub fn at(
        &mut self,
        address: u64,
        filter: impl Into<Filter>,
        fields: impl Into<Set<MapField>>,
    ) -> Result<Option<Mapping<'_>>> {
        let found = self.at_or_after(address, filter, fields)?;
        Ok(found.filter(|mapping| mapping.start <= address))
    }

    /// The first mapping that passes `filter` and ends above an address: the one that contains it,
    /// or the next one.
    ///
    /// # Errors
    ///
    /// As [`at`](Maps::at).
    pub fn at_or_after(
        &mut self,
        address: u64,
        filter: impl Into<Filter>,
        fields: impl Into<Set<MapField>>,
    ) -> Result<Option<Mapping<'_>>> {
        self.last = self.ask(MapsRequest::AtOrAfter(address, filter.into()), Wants::of(fields))?;
        Ok((!self.last.is_empty()).then(|| self.last.get(0)))
    }

    /// The mappings of many addresses, given in any order. Needs one look-up for each mapping that
    /// is found, and at most one more.
    ///
    /// # Errors
    ///
    /// As [`at`](Maps::at).
    pub fn at_each(&mut self, addresses: &[u64], fields: impl Into<Set<MapField>>) -> Result<Found> {
        let pages = Arc::new(Pages::new(addresses));
        let mappings = self.ask(MapsRequest::At(Arc::clone(&pages)), Wants::of(fields))?;
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
    pub fn list(&mut self, filter: impl Into<Filter>, fields: impl Into<Set<MapField>>) -> Result<Mappings> {
        self.ask(MapsRequest::Passing(filter.into()), Wants::of(fields))
    }

    fn ask(&mut self, asked: MapsRequest, wants: Wants) -> Result<Mappings> {
        // The reader that has the lock still waits for an earlier question.
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
        let (found, file) = ask_about(&self.proc, self.pid, what, self.patience, self.waits, answer)?;
        self.file = file;
        let mut found = found?;
        if wants.contains(Wants::BUILD_IDS) {
            let maps = self.file.as_ref().map(|file| file.as_fd());
            build_id::read_vdsos(&self.proc, self.patience, &mut found);
            self.build_ids
                .fill(self.directory().as_deref(), maps, self.patience, &mut found);
        }
        if wants.contains(Wants::GO_BUILD_IDS) {
            let ids = build_id::go_build_ids(&self.proc, self.patience, &found);
            found.set_go_build_ids(ids);
        }
        Ok(found)
    }

    /// The directory of the process.
    fn directory(&self) -> Option<PathBuf> {
        self.pid.map(|pid| self.proc.join(pid.to_string()))
    }

    /// What is kept between questions. `None` while a reader does not return with it.
    fn space(&mut self) -> Option<MutexGuard<'_, Space>> {
        match self.space.try_lock() {
            Ok(space) => Some(space),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Does work that may wait for a process: in this thread, or in a reader that is given up after the
/// patience. `what` is what the process may block.
fn ask_about<T: Send + 'static>(
    proc: &Proc,
    pid: Option<u32>,
    what: u32,
    patience: Duration,
    waits: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    if waits {
        Ok(work())
    } else {
        readers::call(proc, pid.unwrap_or(0), what, patience, work).map_err(|reason| Error::not_read(pid, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of a file, with an offset derived from its address.
    pub(super) fn mapping(start: u64, end: u64, name: &[u8]) -> Mapping<'_> {
        Mapping {
            pid: None,
            start,
            end,
            perms: Perms::READ,
            offset_bytes: start,
            device: Device { major: 8, minor: 1 },
            inode: 42,
            name: Ok(name),
            page_size_bytes: Ok(4096),
            build_id: Err(Absent::NotAsked),
            rss_bytes: Err(Absent::NotAsked),
            dirty_bytes: Err(Absent::NotAsked),
            hugetlb_bytes: Err(Absent::NotAsked),
            go_build_id: None,
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
        let readable = Filter::from(Perms::READ);
        let file_backed = Filter {
            file_backed: true,
            ..readable
        };
        assert!(of_file.passes(Filter::default()) && of_file.passes(file_backed));
        assert!(!of_file.passes(Filter::from(Perms::READ | Perms::EXEC)));
        let anonymous = Mapping {
            inode: 0,
            device: Device::default(),
            ..of_file
        };
        assert!(!anonymous.passes(file_backed) && anonymous.passes(readable));
        assert_eq!(file_backed.flags(), QueryFlags::READABLE | QueryFlags::FILE_BACKED);
    }

    /// Check that `Debug` of a mapping is readable and harmless.
    #[test]
    fn mappings_print_their_names() {
        let printed = format!("{:?}", mapping(0x1000, 0x2000, b"/a\x1b"));
        assert!(
            printed.contains("start: 0x1000") && printed.contains(r#"perms: "r--p""#),
            "{printed}"
        );
        assert!(printed.contains(r#"name: "/a\u{1b}""#), "{printed}");
    }
}
