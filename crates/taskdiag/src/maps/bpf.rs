//! Mappings by BPF: what the programs tell, and the names that one of them leaves to be asked for.
//!
//! The program that walks tells of each mapping of a file a number that stands for its name. The name itself is asked of
//! `PROCMAP_QUERY`, once for each number: it is the kernel's own text. It counts only if the mapping that it was asked of is shown to
//! have that number, and its memory was not mapped anew from then until after the name was told.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use super::batch;
use super::list::Name;
use super::source::IoctlCursor;
use super::{Device, Filter, Known, Mapping, Mappings, Maps, Perms, Source, Wants};
use crate::absent::Absent;
use crate::error::{ErrorKind, Result};
use crate::source::bpf::vma::{self, Met, Record, Request, VmaProgram};
use crate::source::bpf::vma_walk::{Outcome, VmaWalk, Which};
use crate::sys::procmap::QueryFlags;

/// The programs of a handle.
#[derive(Debug)]
pub(super) struct Bpf {
    /// Not on every kernel.
    walk: Option<VmaWalk>,
    /// Where that is missing, or what it leaves out may not be asked for.
    iterator: Option<VmaProgram>,
    /// Names may not be asked for of every process: the iterator tells them.
    names_are_denied: bool,
    /// Memory for names.
    names: Vec<u8>,
}

/// What a pass brought.
pub(super) struct Pass {
    pub(super) mappings: Mappings,
    /// Processes that the text has to be asked about, in order.
    pub(super) deferred: Vec<u32>,
    pub(super) met: Met,
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

impl Bpf {
    /// Loads what this kernel can run.
    pub(super) fn load() -> Result<Bpf> {
        // What keeps a walk from being loaded need not keep the iterator from it.
        let walk = VmaWalk::load().unwrap_or_default();
        let iterator = match walk {
            Some(_) => None,
            None => Some(VmaProgram::load()?),
        };
        Ok(Bpf {
            walk,
            iterator,
            names_are_denied: false,
            names: Vec::new(),
        })
    }

    /// Whether this process may use it.
    pub(super) fn is_ours(&self) -> bool {
        self.walk.as_ref().is_none_or(VmaWalk::is_ours) && self.iterator.as_ref().is_none_or(VmaProgram::is_ours)
    }

    /// Whether it answers about single addresses, and not by listing all mappings.
    pub(super) fn walks(&self) -> bool {
        self.walk.is_some()
    }

    /// The mappings of all processes.
    pub(super) fn machine(&mut self, filter: Filter, wants: Wants) -> Result<Pass> {
        let is_denied = self.names_are_denied && wants.contains(Wants::NAMES);
        if let Some(walk) = self.walk.as_mut().filter(|_| !is_denied) {
            match walk_machine(walk, &mut self.names, filter, wants)? {
                Some(pass) => return Ok(pass),
                None => self.names_are_denied = true,
            }
        }
        pass(self.iterator()?, None, filter, wants)
    }

    /// Mappings of a process, whose maps file is open; `None` if another source has to be asked.
    pub(super) fn process(
        &mut self,
        maps: BorrowedFd<'_>,
        pid: u32,
        asked: Asked<'_>,
        wants: Wants,
    ) -> Result<Option<Mappings>> {
        if let Some(walk) = &mut self.walk {
            return walk_process(walk, &mut self.names, maps, pid, asked, wants);
        }
        let filter = match asked {
            Asked::Passing(filter) => filter,
            Asked::At(_) => Filter::empty(),
        };
        let pass = pass(self.iterator()?, Some(pid), filter, wants)?;
        // Some are hidden from iterators.
        let is_whole = pass.met.processes > 0 && pass.deferred.is_empty();
        Ok(is_whole.then_some(pass.mappings))
    }

    fn iterator(&mut self) -> Result<&mut VmaProgram> {
        let iterator = match self.iterator.take() {
            Some(iterator) => iterator,
            None => VmaProgram::load()?,
        };
        Ok(self.iterator.insert(iterator))
    }
}

/// A pass of the iterator, over one process or all.
fn pass(program: &mut VmaProgram, pid: Option<u32>, filter: Filter, wants: Wants) -> Result<Pass> {
    let request = Request {
        pid,
        filter: filter.bits() as u32,
        names: wants.contains(Wants::NAMES),
    };
    let mut mappings = Mappings::new(Source::Bpf);
    let mut deferred = Vec::new();
    // By the program's numbers.
    let mut names: Vec<Option<Name>> = Vec::new();
    // The threads that speak for processes whose first thread has ended.
    let mut speakers: HashMap<u32, u32> = HashMap::new();
    // The end of the mapping before, and whose it is.
    let mut before = (0, 0);
    let met = program.run(request, |record, name| {
        if record.tid != record.pid && *speakers.entry(record.pid).or_insert(record.tid) != record.tid {
            return;
        }
        if record.flags & vma::DEFER != 0 {
            deferred.push(record.pid);
            return;
        }
        let mut mapping = mapping(record, wants);
        let end = if before.0 == record.pid { before.1 } else { 0 };
        before = (record.pid, record.end);
        if !batch::cut(&mut mapping, end) {
            return;
        }
        let list = &mut mappings;
        let name = match wants.contains(Wants::NAMES) {
            false => Err(Absent::NotAsked),
            true if record.flags & vma::LONG_NAME != 0 => Err(Absent::Truncated),
            true if record.name_id == 0 => Ok(list.name(name)),
            true if record.name_len > 0 => {
                let name = list.name(name);
                names.resize(names.len().max(record.name_id as usize + 1), None);
                names[record.name_id as usize] = Some(name);
                Ok(name)
            }
            true => names
                .get(record.name_id as usize)
                .copied()
                .flatten()
                .ok_or(Absent::Gone),
        };
        list.push_named(record.pid, &mapping, name);
    })?;
    Ok(Pass {
        mappings,
        deferred: in_order(deferred),
        met,
    })
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

/// All processes by a walk; `None` if the names are not ours to ask for.
fn walk_machine(walk: &mut VmaWalk, buffer: &mut Vec<u8>, filter: Filter, wants: Wants) -> Result<Option<Pass>> {
    walk.begin_pass(filter.bits() as u32, wants.contains(Wants::NAMES));
    let mut walked = Walked::new(wants);
    let met = walk.machine(|record, name| walked.push(record.pid, record, name))?;
    let mut deferred = in_order(walked.deferred);
    let (mut mappings, numbers) = (walked.mappings, walked.numbers);
    let mut names = Names::new(&numbers);
    let mut index = 0;
    while index < numbers.len() {
        let pid = mappings.pid(index);
        let mut addresses = Vec::new();
        while index < numbers.len() && mappings.pid(index) == pid {
            if names.is_wanted(numbers[index]) {
                addresses.push(mappings.get(index).start);
            }
            index += 1;
        }
        if addresses.is_empty() || deferred.binary_search(&pid).is_ok() {
            continue;
        }
        match Maps::open(pid) {
            Ok(maps) => {
                if let Some(maps) = maps.fd() {
                    names.ask(walk, buffer, maps, &addresses, &mut mappings)?;
                }
            }
            Err(error) if error.kind() == ErrorKind::Denied => return Ok(None),
            Err(_) => {}
        }
    }
    for (index, &number) in numbers.iter().enumerate() {
        match names.known(number) {
            Some(name) => mappings.set_name(index, name),
            None if number != 0 => deferred.push(mappings.pid(index)),
            None => {}
        }
    }
    Ok(Some(Pass {
        mappings,
        deferred: in_order(deferred),
        met,
    }))
}

/// One process by a walk; `None` if another source has to be asked.
fn walk_process(
    walk: &mut VmaWalk,
    buffer: &mut Vec<u8>,
    maps: BorrowedFd<'_>,
    pid: u32,
    asked: Asked<'_>,
    wants: Wants,
) -> Result<Option<Mappings>> {
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
        let Some(name) = ask_name(maps, buffer, index, &mut mappings)? else {
            return Ok(None);
        };
        names.by_number[number as usize] = Some(name);
        mappings.set_name(index, name);
    }
    // A name that was asked of another mapping is this one's if all stayed as it was.
    let holds = !shared || walk.is_unchanged(maps)?;
    Ok(holds.then_some(mappings))
}

/// Asks for the name of a mapping; `None` if it is no longer there as it was.
fn ask_name(
    maps: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    index: usize,
    mappings: &mut Mappings,
) -> Result<Option<Known<Name>>> {
    let mapping = mappings.get(index);
    let place = |mapping: &Mapping<'_>| {
        (
            mapping.start,
            mapping.end,
            mapping.offset_bytes,
            mapping.device,
            mapping.inode,
        )
    };
    let expected = place(&mapping);
    let mut cursor = IoctlCursor::new(maps, Wants::NAMES, buffer);
    match cursor.query(mapping.start, QueryFlags::empty()) {
        Ok(Some(found)) if place(&found) == expected => Ok(Some(found.name.map(|name| mappings.name(name)))),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NoMemory => Ok(None),
        Err(error) => Err(error),
    }
}

/// Names by their numbers.
struct Names {
    by_number: Vec<Option<Known<Name>>>,
    failures: Vec<u32>,
}

impl Names {
    fn new(numbers: &[u32]) -> Names {
        let len = numbers.iter().max().map_or(0, |&most| most as usize + 1);
        Names {
            by_number: vec![None; len],
            failures: vec![0; len],
        }
    }

    fn known(&self, number: u32) -> Option<Known<Name>> {
        *self.by_number.get(number as usize)?
    }

    fn is_wanted(&self, number: u32) -> bool {
        number != 0 && self.known(number).is_none() && self.failures[number as usize] < ATTEMPTS
    }

    /// Asks the process of a maps file for the names of the mappings at some addresses, and takes in those that are proven.
    fn ask(
        &mut self,
        walk: &mut VmaWalk,
        buffer: &mut Vec<u8>,
        maps: BorrowedFd<'_>,
        addresses: &[u64],
        all: &mut Mappings,
    ) -> Result<()> {
        let mut walked = Walked::new(Wants::NAMES);
        let outcome = walk.memory(maps, Which::At(addresses), |record, name| walked.push(0, record, name))?;
        let mut told = Vec::new();
        for index in 0..walked.numbers.len() {
            let number = walked.numbers[index];
            // What is mapped there now can be something that was not met before.
            if outcome != Outcome::Whole || number as usize >= self.by_number.len() || !self.is_wanted(number) {
                continue;
            }
            self.failures[number as usize] += 1;
            if let Some(name) = ask_name(maps, buffer, index, &mut walked.mappings)? {
                walked.mappings.set_name(index, name);
                told.push(index);
            }
        }
        if !told.is_empty() && walk.is_unchanged(maps)? {
            for index in told {
                let name = walked.mappings.get(index).name.map(|name| all.name(name));
                self.by_number[walked.numbers[index] as usize] = Some(name);
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
            size => Ok(size.into()),
        },
        build_id: match wants.contains(Wants::BUILD_IDS) {
            true => Ok(None),
            false => Err(Absent::NotAsked),
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

    use super::*;
    use crate::source::host;

    /// `None` where BPF can't be loaded.
    fn loaded() -> Option<Bpf> {
        Bpf::load().ok()
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

    /// Check that kernels which count changes of mappings are walked, that a walk answers about a process, by list and by
    /// address, and about all, and that the iterator is not even loaded for it.
    #[test]
    fn walks_answer_where_they_can() {
        let Some(mut bpf) = loaded() else { return };
        let can = host::kernel_version() >= Some((6, 11));
        assert_eq!(bpf.walks(), can);
        if !can {
            return;
        }
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
        let pass = bpf.machine(Filter::empty(), Wants::NAMES).expect("an answer");
        assert!(pass.deferred.binary_search(&pid).is_err());
        let ours = (0..pass.mappings.len()).filter(|&index| pass.mappings.pid(index) == pid);
        assert!(ours.map(|index| row(pass.mappings.get(index))).eq(expected));
        assert!(bpf.walk.is_some() && bpf.iterator.is_none());
        child.kill().expect("our child");
        child.wait().expect("our child");
    }

    /// Check that what is mapped anew all the time is told as it was at one time, or not at all: file, offset and name belong
    /// together, and a mapping that never changes is always there.
    #[test]
    fn torn_walks_are_not_answers() {
        const LEN: usize = 64 << 10;
        let Some(mut bpf) = loaded().filter(Bpf::walks) else {
            return;
        };
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
