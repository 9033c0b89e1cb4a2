//! Mappings from BPF, and their names from the ioctl.
//!
//! For each mapping of a file, the program returns a number that stands for its name.
//! `PROCMAP_QUERY` returns the name itself, which is the kernel's own text, once for each number. A
//! name counts only if a walk shows that the queried mapping has that number, and if the process's
//! mappings have not changed from then until after the answer.
//!
//! The program waits for nothing. Querying a name waits for the process, so readers do that, for
//! many processes at once.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use taskdiag_bpf::vma::{self, Position, Record};
use taskdiag_bpf::vma_walk::{MappingSelection, Outcome, VmaWalk};
use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::snapshot::SourceId;
use taskdiag_sys::procmap::QueryFlags;

use super::list::Name;
use super::opener::{MemoryFile, Opener};
use super::source::IoctlCursor;
use super::{Device, Filter, Mapping, Mappings, Perms, Wants};
use crate::readers;
use crate::source::procfs::Proc;

/// The loaded program.
#[derive(Debug)]
pub(super) struct Bpf {
    walk: VmaWalk,
    /// Memory for names.
    names: Vec<u8>,
}

/// The answer about all processes.
pub(super) struct Pass {
    pub(super) mappings: Mappings,
    /// Processes that must be queried one by one, ascending.
    pub(super) deferred: Vec<u32>,
    /// The kernel shows process 1.
    pub(super) shows_first: bool,
}

/// After this many processes were queried for a name, all processes that need it are queried one by
/// one.
const ATTEMPTS: u32 = 8;

/// This many processes are queried at once. Each needs an open file.
const TOGETHER: usize = 128;

impl Bpf {
    /// Loads the program.
    pub(super) fn load() -> Result<Bpf> {
        let walk = VmaWalk::load()?.ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "BPF can't walk over mappings on this kernel (it takes Linux 6.11, CONFIG_PER_VMA_LOCK, and no PREEMPT_RT)",
            )
        })?;
        Ok(Bpf {
            walk,
            names: Vec::new(),
        })
    }

    /// Whether the calling process loaded it.
    pub(super) fn is_ours(&self) -> bool {
        self.walk.is_ours()
    }

    /// The mappings of all processes. A name that could not be read from any process within the
    /// patience is absent.
    pub(super) fn machine(&mut self, filter: Filter, wants: Wants, patience: Duration) -> Result<Pass> {
        let walk = &mut self.walk;
        walk.begin_pass(filter.flags().bits() as u32, wants.contains(Wants::NAMES));
        let mut walked = Walked::new(wants);
        let shows_first = walk.machine(|record, name| walked.push(record.pid, record, name))?;
        let mut deferred = sorted(walked.deferred);
        let (mut mappings, numbers) = (walked.mappings, walked.numbers);
        let mut names = Names::new(&numbers);
        loop {
            let asked = names.choose(&numbers, &mappings, &deferred);
            if asked.is_empty() {
                break;
            }
            names.ask(walk, asked, patience, &mut mappings)?;
        }
        for (index, &number) in numbers.iter().enumerate().filter(|(_, &number)| number != 0) {
            match (names.known(number), names.refused[number as usize]) {
                (Some(name), _) => mappings.set_name(index, name),
                (None, Some(reason)) => mappings.set_name(index, Err(reason)),
                (None, None) => deferred.push(mappings.pid(index)),
            }
        }
        Ok(Pass {
            mappings,
            deferred: sorted(deferred),
            shows_first,
        })
    }

    /// Mappings of a process whose maps file is open; `None` if another source must answer. Queries
    /// names, and so may wait for the process.
    pub(super) fn process(
        &mut self,
        maps: BorrowedFd<'_>,
        pid: u32,
        which: MappingSelection<'_>,
        wants: Wants,
    ) -> Result<Option<Mappings>> {
        let (walk, buffer) = (&mut self.walk, &mut self.names);
        walk.begin_pass(0, wants.contains(Wants::NAMES));
        let mut walked = Walked::new(wants);
        match walk.memory(maps, which, |record, name| walked.push(pid, record, name))? {
            Outcome::Whole if walked.deferred.is_empty() => {}
            Outcome::Whole | Outcome::Changed => return Ok(None),
            Outcome::Gone => return Err(super::source::no_memory()),
        }
        let (mut mappings, numbers) = (walked.mappings, walked.numbers);
        let mut names = Names::new(&numbers);
        let mut shared = false;
        for (index, &number) in numbers.iter().enumerate().filter(|(_, &number)| number != 0) {
            if let Some(name) = names.known(number) {
                mappings.set_name(index, name);
                shared = true;
                continue;
            }
            let Some(name) = ask_name(maps, buffer, &mappings.get(index))? else {
                return Ok(None);
            };
            let name = name.map(|name| mappings.name(&name));
            names.by_number[number as usize] = Some(name);
            mappings.set_name(index, name);
        }
        // A name that was queried for another mapping counts for this one if nothing has changed
        // meanwhile.
        let holds = !shared || walk.is_unchanged(maps, walk.position())?;
        Ok(holds.then_some(mappings))
    }
}

/// Mappings from a walk, and for each the number of its name: 0 if the name is known.
struct Walked {
    mappings: Mappings,
    numbers: Vec<u32>,
    deferred: Vec<u32>,
    wants: Wants,
}

impl Walked {
    fn new(wants: Wants) -> Walked {
        Walked {
            mappings: Mappings::new(SourceId::Bpf),
            numbers: Vec::new(),
            deferred: Vec::new(),
            wants,
        }
    }

    fn push(&mut self, pid: u32, record: &Record, name: &[u8]) {
        if record.flags & vma::DEFER != 0 {
            self.deferred.push(pid);
            return;
        }
        let name = if !self.wants.contains(Wants::NAMES) {
            Err(Absent::NotAsked)
        } else if record.name_id == 0 {
            Ok(self.mappings.name(name))
        } else {
            Err(Absent::Gone)
        };
        self.mappings.push_named(pid, &mapping(record, self.wants), name);
        self.numbers.push(record.name_id);
    }
}

/// Queries the name of a mapping; `None` if the mapping has changed.
fn ask_name(maps: BorrowedFd<'_>, buffer: &mut Vec<u8>, mapping: &Mapping<'_>) -> Result<Option<Known<Vec<u8>>>> {
    let place = |of: &Mapping<'_>| (of.start, of.end, of.offset_bytes, of.device, of.inode);
    let expected = place(mapping);
    let mut cursor = IoctlCursor::new(maps, Wants::NAMES, buffer);
    match cursor.query(mapping.start, QueryFlags::empty()) {
        Ok(Some(found)) if place(&found) == expected => Ok(Some(found.name.map(<[u8]>::to_vec))),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NoMemory => Ok(None),
        Err(error) => Err(error),
    }
}

/// Names by their numbers.
struct Names {
    by_number: Vec<Option<Known<Name>>>,
    failures: Vec<u32>,
    /// Why the last queried process did not answer.
    refused: Vec<Option<Absent>>,
}

/// A process to be queried for the names of some of its mappings.
struct Candidate {
    pid: u32,
    addresses: Vec<u64>,
    /// The numbers of those names in the pass over all processes.
    numbers: Vec<u32>,
}

/// A process that is being queried.
struct NameRequest {
    maps: OwnedFd,
    walked: Walked,
    position: Position,
    /// The mappings whose names are queried.
    indexes: Vec<usize>,
}

impl Names {
    fn new(numbers: &[u32]) -> Names {
        let len = numbers.iter().max().map_or(0, |&most| most as usize + 1);
        Names {
            by_number: vec![None; len],
            failures: vec![0; len],
            refused: vec![None; len],
        }
    }

    fn known(&self, number: u32) -> Option<Known<Name>> {
        *self.by_number.get(number as usize)?
    }

    fn is_wanted(&self, number: u32) -> bool {
        number != 0 && self.known(number).is_none() && self.failures[number as usize] < ATTEMPTS
    }

    /// Chooses processes to query: for each unknown name, the next process that has it.
    fn choose(&self, numbers: &[u32], mappings: &Mappings, deferred: &[u32]) -> Vec<Candidate> {
        let mut chosen: Vec<Candidate> = Vec::new();
        // For each name, the number of processes passed that have it, and the last of them.
        let mut passed = vec![(0, 0); self.by_number.len()];
        for (index, &number) in numbers.iter().enumerate() {
            let pid = mappings.pid(index);
            if !self.is_wanted(number) || deferred.binary_search(&pid).is_ok() {
                continue;
            }
            let (count, last) = &mut passed[number as usize];
            if *last == pid {
                continue;
            }
            (*count, *last) = (*count + 1, pid);
            // This process was queried before.
            if *count != self.failures[number as usize] + 1 {
                continue;
            }
            if chosen.last().is_none_or(|candidate| candidate.pid != pid) {
                if chosen.len() == TOGETHER {
                    break;
                }
                chosen.push(Candidate {
                    pid,
                    addresses: Vec::new(),
                    numbers: Vec::new(),
                });
            }
            if let Some(candidate) = chosen.last_mut() {
                candidate.addresses.push(mappings.get(index).start);
                candidate.numbers.push(number);
            }
        }
        chosen
    }

    /// Queries processes, and takes in the names that count.
    fn ask(
        &mut self,
        walk: &mut VmaWalk,
        chosen: Vec<Candidate>,
        patience: Duration,
        all: &mut Mappings,
    ) -> Result<()> {
        let requests = self.open(walk, chosen, patience)?;
        let answers = readers::each(
            &Proc::default(),
            requests.clone(),
            readers::MAPPINGS,
            patience,
            |request| {
                let mut buffer = Vec::new();
                let mappings = &request.walked.mappings;
                let ask = |&index: &usize| ask_name(request.maps.as_fd(), &mut buffer, &mappings.get(index));
                request.indexes.iter().map(ask).collect::<Result<Vec<_>>>()
            },
        );
        for ((_, request), names) in requests.iter().zip(answers) {
            let numbers = request
                .indexes
                .iter()
                .map(|&index| request.walked.numbers[index] as usize);
            let names = match names {
                Ok(names) => names?,
                Err(reason) => {
                    numbers.for_each(|number| self.refused[number] = Some(reason));
                    continue;
                }
            };
            if !walk.is_unchanged(request.maps.as_fd(), request.position)? {
                continue;
            }
            for (number, name) in numbers.zip(names) {
                let name = name.map(|name| name.map(|name| all.name(&name)));
                self.by_number[number] = self.by_number[number].or(name);
            }
        }
        Ok(())
    }

    /// Opens the maps files of processes, and walks over the mappings whose names are queried.
    fn open(
        &mut self,
        walk: &mut VmaWalk,
        chosen: Vec<Candidate>,
        patience: Duration,
    ) -> Result<Vec<(u32, Arc<NameRequest>)>> {
        let about = chosen.iter().map(|candidate| (candidate.pid, candidate.pid)).collect();
        let opened = readers::each(&Proc::default(), about, readers::MAPPINGS, patience, |&pid| {
            Opener::Path(Proc::default(), None).open(pid, MemoryFile::Maps)
        });
        let mut requests = Vec::new();
        for (candidate, opened) in chosen.iter().zip(opened) {
            let refused = match &opened {
                Ok(Ok(_)) => None,
                Ok(Err(error)) if error.kind() == ErrorKind::Denied => Some(Absent::Denied),
                Ok(Err(_)) => None,
                Err(reason) => Some(*reason),
            };
            for &number in &candidate.numbers {
                self.failures[number as usize] += 1;
                self.refused[number as usize] = refused;
            }
            let Ok(Ok(Some(maps))) = opened else { continue };
            let mut walked = Walked::new(Wants::NAMES);
            let outcome = walk.memory(
                maps.as_fd(),
                MappingSelection::At(&candidate.addresses),
                |record, name| {
                    walked.push(candidate.pid, record, name);
                },
            )?;
            if outcome != Outcome::Whole {
                continue;
            }
            // Something else may be mapped there by now.
            let is_meant = |&index: &usize| candidate.numbers.contains(&walked.numbers[index]);
            let indexes = (0..walked.numbers.len()).filter(is_meant).collect();
            let request = NameRequest {
                maps,
                walked,
                position: walk.position(),
                indexes,
            };
            requests.push((candidate.pid, Arc::new(request)));
        }
        Ok(requests)
    }
}

/// The processes, ascending, each once.
pub(super) fn sorted(mut pids: Vec<u32>) -> Vec<u32> {
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn mapping(record: &Record, wants: Wants) -> Mapping<'static> {
    Mapping {
        start: record.start,
        end: record.end,
        perms: Perms::from_bits_truncate(record.flags as u8 & 15),
        offset_bytes: record.offset,
        device: Device {
            major: record.dev_major,
            minor: record.dev_minor,
        },
        inode: record.inode,
        page_size_bytes: match record.page_size {
            0 => Err(Absent::Unsupported),
            size => Ok(size),
        },
        ..Mapping::unread(wants)
    }
}

#[cfg(all(test, feature = "bpf"))]
mod tests;
