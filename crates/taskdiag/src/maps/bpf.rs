//! Mappings by BPF: what the program tells, and the names that it leaves to be asked for.
//!
//! The program tells of each mapping of a file a number that stands for its name. The name itself is asked of
//! `PROCMAP_QUERY`, once for each number: it is the kernel's own text. It counts only if the mapping that it was asked of is shown to
//! have that number, and its memory was not mapped anew from then until after the name was told.
//!
//! The program waits for nothing. Who asks for a name waits for the process: that is done by readers, for many processes together.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use taskdiag_bpf::vma::{self, Record};
use taskdiag_bpf::vma_walk::{Outcome, Position, VmaWalk, Which};
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_sys::procmap::QueryFlags;

use super::list::Name;
use super::opener::{MemoryFile, Opener};
use super::source::IoctlCursor;
use super::{Device, Filter, Known, Mapping, Mappings, Perms, Source, Wants};
use crate::readers;

/// The program of a handle.
#[derive(Debug)]
pub(super) struct Bpf {
    walk: VmaWalk,
    /// Memory for names.
    names: Vec<u8>,
}

/// What a pass over all processes brought.
pub(super) struct Pass {
    pub(super) mappings: Mappings,
    /// Processes that the text has to be asked about, in order.
    pub(super) deferred: Vec<u32>,
    /// Process 1 was met.
    pub(super) met_first: bool,
}

/// What was asked of the memory of one process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked<'a> {
    /// All mappings that pass.
    Passing(Filter),
    /// What these addresses lie in; they are in order.
    At(&'a [u64]),
}

/// Processes that a name is asked of before the text is asked about all that need it.
const ATTEMPTS: u32 = 8;

/// Processes that are asked together: each has a file open meanwhile.
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

    /// Whether this process may use it.
    pub(super) fn is_ours(&self) -> bool {
        self.walk.is_ours()
    }

    /// The mappings of all processes. A name that nobody tells within the patience is missing.
    pub(super) fn machine(&mut self, filter: Filter, wants: Wants, patience: Duration) -> Result<Pass> {
        let walk = &mut self.walk;
        walk.begin_pass(filter.bits() as u32, wants.contains(Wants::NAMES));
        let mut walked = Walked::new(wants);
        let met_first = walk.machine(|record, name| walked.push(record.pid, record, name))?;
        let mut deferred = in_order(walked.deferred);
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
            deferred: in_order(deferred),
            met_first,
        })
    }

    /// Mappings of a process, whose maps file is open; `None` if another source has to be asked. It asks for names, and so waits for
    /// the process.
    pub(super) fn process(
        &mut self,
        maps: BorrowedFd<'_>,
        pid: u32,
        asked: Asked<'_>,
        wants: Wants,
    ) -> Result<Option<Mappings>> {
        let (walk, buffer) = (&mut self.walk, &mut self.names);
        walk.begin_pass(0, wants.contains(Wants::NAMES));
        let mut walked = Walked::new(wants);
        let which = match asked {
            Asked::Passing(filter) => Which::Passing(filter.bits() as u32),
            Asked::At(addresses) => Which::At(addresses),
        };
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
        // A name that was asked of another mapping is this one's if all stayed as it was.
        let holds = !shared || walk.is_unchanged(maps, walk.position())?;
        Ok(holds.then_some(mappings))
    }
}

/// Mappings as a walk tells them, and for each the number of its name: 0 if it has none or is known.
struct Walked {
    mappings: Mappings,
    numbers: Vec<u32>,
    deferred: Vec<u32>,
    wants: Wants,
}

impl Walked {
    fn new(wants: Wants) -> Walked {
        Walked {
            mappings: Mappings::new(Source::Bpf),
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
        let name = match self.wants.contains(Wants::NAMES) {
            true if record.name_id == 0 => Ok(self.mappings.name(name)),
            true => Err(Absent::Gone),
            false => Err(Absent::NotAsked),
        };
        self.mappings.push_named(pid, &mapping(record, self.wants), name);
        self.numbers.push(record.name_id);
    }
}

/// Asks for the name of a mapping; `None` if it is no longer there as it was.
fn ask_name(maps: BorrowedFd<'_>, buffer: &mut Vec<u8>, mapping: &Mapping<'_>) -> Result<Option<Known<Vec<u8>>>> {
    let place = |mapping: &Mapping<'_>| {
        (
            mapping.start,
            mapping.end,
            mapping.offset_bytes,
            mapping.device,
            mapping.inode,
        )
    };
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
    /// Why the last process that was asked did not tell.
    refused: Vec<Option<Absent>>,
}

/// What is asked of one process: the names of what is mapped at some addresses.
struct Group {
    pid: u32,
    addresses: Vec<u64>,
    /// The numbers of those names when all were walked over.
    numbers: Vec<u32>,
}

/// What a process is about to tell.
struct Telling {
    maps: OwnedFd,
    walked: Walked,
    position: Position,
    /// The mappings whose names are asked for.
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

    /// Chooses some processes to be asked, for each name that is not known the next one that has it.
    fn choose(&self, numbers: &[u32], mappings: &Mappings, deferred: &[u32]) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        // How many processes that have a name were passed, and the last of them.
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
            // It was asked before.
            if *count != self.failures[number as usize] + 1 {
                continue;
            }
            if groups.last().is_none_or(|group| group.pid != pid) {
                if groups.len() == TOGETHER {
                    break;
                }
                groups.push(Group {
                    pid,
                    addresses: Vec::new(),
                    numbers: Vec::new(),
                });
            }
            if let Some(group) = groups.last_mut() {
                group.addresses.push(mappings.get(index).start);
                group.numbers.push(number);
            }
        }
        groups
    }

    /// Asks processes, and takes in what names are proven.
    fn ask(&mut self, walk: &mut VmaWalk, groups: Vec<Group>, patience: Duration, all: &mut Mappings) -> Result<()> {
        let about = groups.iter().map(|group| (group.pid, group.pid)).collect();
        let opened = readers::each(about, readers::MAPPINGS, patience, |&pid| {
            Opener::Path(None).open(pid, MemoryFile::Maps)
        });
        let mut tellings = Vec::new();
        for (group, opened) in groups.iter().zip(opened) {
            let refused = match &opened {
                Some(Ok(_)) => None,
                Some(Err(error)) if error.kind() == ErrorKind::Denied => Some(Absent::Denied),
                Some(Err(_)) => None,
                None => Some(Absent::NoAnswer),
            };
            for &number in &group.numbers {
                self.failures[number as usize] += 1;
                self.refused[number as usize] = refused;
            }
            let Some(Ok(Some(maps))) = opened else { continue };
            let mut walked = Walked::new(Wants::NAMES);
            let outcome = walk.memory(maps.as_fd(), Which::At(&group.addresses), |record, name| {
                walked.push(group.pid, record, name);
            })?;
            if outcome != Outcome::Whole {
                continue;
            }
            // What is mapped there now can be something that was not met before.
            let is_meant = |&index: &usize| group.numbers.contains(&walked.numbers[index]);
            let indexes = (0..walked.numbers.len()).filter(is_meant).collect();
            let telling = Telling {
                maps,
                walked,
                position: walk.position(),
                indexes,
            };
            tellings.push((group.pid, Arc::new(telling)));
        }
        let told = readers::each(tellings.clone(), readers::MAPPINGS, patience, |telling| {
            let mut buffer = Vec::new();
            let mappings = &telling.walked.mappings;
            let ask = |&index: &usize| ask_name(telling.maps.as_fd(), &mut buffer, &mappings.get(index));
            telling.indexes.iter().map(ask).collect::<Result<Vec<_>>>()
        });
        for ((_, telling), told) in tellings.iter().zip(told) {
            let numbers = telling
                .indexes
                .iter()
                .map(|&index| telling.walked.numbers[index] as usize);
            let Some(told) = told else {
                numbers.for_each(|number| self.refused[number] = Some(Absent::NoAnswer));
                continue;
            };
            let told = told?;
            if !walk.is_unchanged(telling.maps.as_fd(), telling.position)? {
                continue;
            }
            for (number, name) in numbers.zip(told) {
                let name = name.map(|name| name.map(|name| all.name(&name)));
                self.by_number[number] = self.by_number[number].or(name);
            }
        }
        Ok(())
    }
}

fn in_order(mut pids: Vec<u32>) -> Vec<u32> {
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
        name: Err(Absent::NotAsked),
        page_size_bytes: match record.page_size {
            0 => Err(Absent::Unsupported),
            size => Ok(size),
        },
        build_id: if wants.contains(Wants::BUILD_IDS) {
            Ok(None)
        } else {
            Err(Absent::NotAsked)
        },
        usage: Err(Absent::NotAsked),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt as _;
    use std::process;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::mm::{MapFlags, ProtFlags};
    use taskdiag_sys::host;

    use super::super::Maps;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// `None` on kernels before 6.11. That it can't be loaded for another reason is a failure if it is root who tests.
    fn loaded() -> Option<Bpf> {
        match Bpf::load() {
            Ok(bpf) => Some(bpf),
            Err(error) if host::kernel_version() < Some((6, 11)) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Denied),
                    "{error}"
                );
                None
            }
            Err(error) => {
                assert!(!rustix::process::geteuid().is_root(), "these tests need BPF: {error}");
                None
            }
        }
    }

    fn lines(maps: &mut Maps) -> Vec<(u64, u64, String, Vec<u8>)> {
        let listed = maps.list(Filter::empty(), Wants::NAMES).expect("mappings");
        rows(&listed)
    }

    fn row(mapping: Mapping<'_>) -> (u64, u64, String, Vec<u8>) {
        let name = mapping.name.expect("a name").to_vec();
        (mapping.start, mapping.end, mapping.perms.to_string(), name)
    }

    fn rows(listed: &Mappings) -> Vec<(u64, u64, String, Vec<u8>)> {
        listed.iter().map(row).collect()
    }

    /// Check that kernels which count changes of mappings are walked, and that a walk answers about a process, by list and by
    /// address, and about all.
    #[test]
    fn walks_answer_where_they_can() {
        let Some(mut bpf) = loaded() else { return };
        let mut child = process::Command::new("sleep").arg("1000").spawn().expect("a process");
        let pid = child.id();
        // It maps its libraries first.
        while !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(" S ")) {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        let maps = Maps::open(pid).expect("our child");
        let fd = maps.fd().expect("memory");
        let expected = lines(&mut Maps::open(pid).expect("our child").with_source(Source::Procfs));
        let all = bpf
            .process(fd, pid, Asked::Passing(Filter::empty()), Wants::NAMES)
            .expect("an answer")
            .expect("nothing changes there");
        assert_eq!(rows(&all), expected);
        let addresses: Vec<u64> = expected.iter().step_by(3).map(|line| line.1 - 1).collect();
        let some = bpf
            .process(fd, pid, Asked::At(&addresses), Wants::NAMES)
            .expect("an answer")
            .expect("nothing changes there");
        assert!(rows(&some).iter().eq(expected.iter().step_by(3)));
        let pass = bpf.machine(Filter::empty(), Wants::NAMES, PATIENCE).expect("an answer");
        assert!(pass.deferred.binary_search(&pid).is_err());
        let ours = (0..pass.mappings.len()).filter(|&index| pass.mappings.pid(index) == pid);
        assert!(ours.map(|index| row(pass.mappings.get(index))).eq(expected));
        child.kill().expect("our child");
        child.wait().expect("our child");
    }

    /// Check that what is mapped anew all the time is told as it was at one time, or not at all: file, offset and name belong
    /// together, and a mapping that never changes is always there.
    #[test]
    fn torn_walks_are_not_answers() {
        const LEN: usize = 64 << 10;
        let Some(mut bpf) = loaded() else { return };
        let names =
            ["one", "two"].map(|name| std::env::temp_dir().join(format!("taskdiag-torn-{}-{name}", process::id())));
        let files: Vec<(File, u64)> = names
            .iter()
            .zip([0x1000, 0x5000])
            .map(|(path, offset)| {
                let file = File::options()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .open(path);
                let file = file.expect("a file");
                file.set_len(1 << 20).expect("room");
                (file, offset)
            })
            .collect();
        let map = |at: usize, turn: usize, flags: MapFlags| {
            let (file, offset) = &files[turn % 2];
            // SAFETY: a mapping of our own at a place of the kernel's choice, or in place of that one; nobody reads there.
            let at = unsafe {
                rustix::mm::mmap(
                    at as *mut _,
                    LEN,
                    ProtFlags::READ,
                    MapFlags::PRIVATE | flags,
                    file,
                    *offset,
                )
            };
            at.expect("a mapping") as usize
        };
        let at = map(0, 0, MapFlags::empty());
        let done = AtomicBool::new(false);
        let (mut whole, mut seen) = (0, [0; 2]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut turn = 0;
                while !done.load(Ordering::Relaxed) {
                    turn += 1;
                    map(at, turn, MapFlags::FIXED);
                    if turn % 63 == 0 {
                        std::thread::sleep(std::time::Duration::from_micros(50));
                    }
                }
            });
            let own = Maps::own().expect("our own");
            let fd = own.fd().expect("memory");
            for round in 0..3000 {
                let asked = match round % 2 {
                    0 => Asked::Passing(Filter::READABLE),
                    _ => Asked::At(&[at as u64, (at + LEN - 1) as u64]),
                };
                let answer = bpf.process(fd, process::id(), asked, Wants::NAMES).expect("an answer");
                let Some(listed) = answer else { continue };
                whole += 1;
                let met = listed
                    .iter()
                    .find(|mapping| mapping.start <= at as u64 && mapping.end > at as u64);
                let met = met.expect("something is always mapped there");
                let turn = usize::from(met.offset_bytes - (at as u64 - met.start) != files[0].1);
                let (file, offset) = &files[turn];
                assert_eq!(met.offset_bytes, *offset + (at as u64 - met.start));
                assert_eq!(met.inode, file.metadata().expect("a file").ino());
                assert_eq!(met.name, Ok(names[turn].as_os_str().as_encoded_bytes()));
                seen[turn] += 1;
            }
            done.store(true, Ordering::Relaxed);
        });
        println!("{whole} of 3000 walks were whole, {seen:?}");
        assert!(whole > 0);
        // SAFETY: our own mapping, which nothing refers to.
        unsafe { rustix::mm::munmap(at as *mut _, LEN) }.expect("our own");
        names
            .iter()
            .for_each(|path| std::fs::remove_file(path).expect("our own"));
    }
}
