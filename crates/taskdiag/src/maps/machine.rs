//! The mappings of all processes.

use std::collections::HashMap;

use super::list::Name;
use super::plan::{plan_machine, MachineFacts};
use super::{batch, BuildId, BuildIds, Device, Filter, Known, Mapping, Mappings, Maps, Perms, Source, Wants};
use crate::absent::Absent;
use crate::error::{Error, ErrorKind, Result};
use crate::source::bpf::recipe;
use crate::source::bpf::vma::{self, Met, Record, Request, VmaProgram};
use crate::source::host;
use crate::support::Verdict;

/// Asks about all processes. What it loads is kept for the next question.
#[derive(Debug, Default)]
pub struct Machine {
    forced: Option<Source>,
    bpf: Option<VmaProgram>,
    /// Loading has failed.
    cannot_load: bool,
    /// Processes that iterators do not show, once that is known.
    hidden: Option<Vec<u32>>,
    build_ids: BuildIds,
    text: Vec<u8>,
}

/// The mappings of all processes.
#[derive(Clone, Debug)]
pub struct MachineMappings {
    /// The mappings, in the order of processes and addresses.
    pub mappings: Mappings,
    /// Processes whose mappings the caller may not see.
    pub denied: u64,
    /// Processes that ended while they were looked at.
    pub gone: u64,
    /// Processes of which the kernel's answer made no sense.
    pub malformed: u64,
    /// Processes that the iterator does not show, and that were read as text.
    pub hidden: u64,
    /// Processes of which the iterator can't tell all, and that were read as text.
    pub deferred: u64,
}

impl Machine {
    /// A handle that chooses its source itself.
    pub fn new() -> Machine {
        Machine::default()
    }

    /// Lets only this source answer. (The ioctl can't: it is asked about single processes.)
    pub fn with_source(mut self, source: Source) -> Machine {
        self.forced = Some(source);
        self
    }

    /// Loads the BPF program, whether or not that is worth it for one question.
    pub fn prepare(&mut self) -> Result<()> {
        if !self.is_loaded() {
            self.bpf = Some(VmaProgram::load()?);
        }
        Ok(())
    }

    fn is_loaded(&self) -> bool {
        self.bpf.as_ref().is_some_and(VmaProgram::is_ours)
    }

    /// All mappings that pass `filter`, of all processes that the caller may see.
    pub fn list(&mut self, filter: Filter, wants: Wants) -> Result<MachineMappings> {
        if wants.contains(Wants::USAGE) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "resident and dirty sizes can be asked of single processes only",
            ));
        }
        let facts = MachineFacts {
            forced: self.forced,
            is_loaded: self.is_loaded(),
            can_load: !self.cannot_load && recipe::VMA.is_ok() && host::bpf_load().verdict != Verdict::No,
            tasks: host::tasks(),
        };
        let source = match plan_machine(&facts) {
            Source::Bpf => match self.prepare() {
                Ok(()) => Source::Bpf,
                Err(error) if self.forced.is_some() => return Err(error),
                Err(_) => {
                    self.cannot_load = true;
                    Source::Procfs
                }
            },
            Source::Procmap => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the ioctl is for single processes: choose bpf or procfs",
                ))
            }
            Source::Procfs => Source::Procfs,
        };
        let mut answer = MachineMappings {
            mappings: Mappings::new(source),
            denied: 0,
            gone: 0,
            malformed: 0,
            hidden: 0,
            deferred: 0,
        };
        match source {
            Source::Bpf => self.by_bpf(filter, wants, &mut answer)?,
            _ => {
                for pid in processes()? {
                    self.add_text(pid, filter, wants, &mut answer)?;
                }
            }
        }
        if wants.contains(Wants::BUILD_IDS) {
            self.read_build_ids(&mut answer.mappings);
        }
        Ok(answer)
    }

    fn by_bpf(&mut self, filter: Filter, wants: Wants, answer: &mut MachineMappings) -> Result<()> {
        let Some(program) = &mut self.bpf else {
            return Err(Error::new(ErrorKind::Unsupported, "no BPF program is loaded"));
        };
        let pass = pass(program, None, filter, wants)?;
        answer.mappings = pass.mappings;
        if pass.met.first {
            self.hidden = Some(Vec::new());
        }
        answer.mappings.remove_pids(&pass.deferred);
        for &pid in &pass.deferred {
            answer.deferred += 1;
            self.add_text(pid, filter, wants, answer)?;
        }
        match self.hidden.clone() {
            Some(hidden) => {
                for pid in hidden {
                    let known = answer.mappings.len();
                    self.add_text(pid, filter, wants, answer)?;
                    answer.hidden += u64::from(answer.mappings.len() > known);
                }
            }
            None => self.find_hidden(filter, wants, answer)?,
        }
        answer.mappings.sort_by_pid();
        Ok(())
    }

    /// Adds the processes that procfs shows and the pass did not, and keeps them in mind. The first process of a pid namespace always
    /// exists: where iterators show that one, they hide none.
    fn find_hidden(&mut self, filter: Filter, wants: Wants, answer: &mut MachineMappings) -> Result<()> {
        let mut shown: Vec<u32> = (0..answer.mappings.len())
            .map(|index| answer.mappings.pid(index))
            .collect();
        shown.sort_unstable();
        let mut hidden = Vec::new();
        for pid in processes()? {
            if shown.binary_search(&pid).is_ok() {
                continue;
            }
            let known = answer.mappings.len();
            self.add_text(pid, filter, wants, answer)?;
            if answer.mappings.len() > known {
                hidden.push(pid);
            }
        }
        answer.hidden = hidden.len() as u64;
        // Every process has something that can be executed, but not of everything else.
        if [Filter::empty(), Filter::EXECUTABLE].contains(&filter) {
            self.hidden = Some(hidden);
        }
        Ok(())
    }

    /// Adds what the text says of one process.
    fn add_text(&mut self, pid: u32, filter: Filter, wants: Wants, answer: &mut MachineMappings) -> Result<()> {
        let listed = Maps::open(pid)
            .map(|maps| maps.with_source(Source::Procfs))
            .and_then(|mut maps| {
                maps.text = std::mem::take(&mut self.text);
                let listed = maps.list(filter, wants.difference(Wants::BUILD_IDS));
                self.text = maps.text;
                listed
            });
        match listed {
            Ok(listed) => {
                for mut mapping in listed.iter() {
                    if wants.contains(Wants::BUILD_IDS) {
                        mapping.build_id = Ok(None);
                    }
                    answer.mappings.push(pid, &mapping);
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::NoMemory => {}
                ErrorKind::NoSuchTask => answer.gone += 1,
                ErrorKind::Denied => answer.denied += 1,
                ErrorKind::Malformed => answer.malformed += 1,
                _ => return Err(error),
            },
        }
        Ok(())
    }

    /// Reads the build ids from the files, each file once.
    fn read_build_ids(&mut self, mappings: &mut Mappings) {
        let mut known: HashMap<(Device, u64), Known<Option<BuildId>>> = HashMap::new();
        for index in 0..mappings.len() {
            let mapping = mappings.get(index);
            let pid = mappings.pid(index);
            let id = match mapping.is_file_backed() {
                true => *known
                    .entry((mapping.device, mapping.inode))
                    .or_insert_with(|| self.build_ids.read(Some(pid), &mapping)),
                false => self.build_ids.read(Some(pid), &mapping),
            };
            mappings.set_build_id(index, id);
        }
    }
}

/// The processes that procfs lists, in order.
fn processes() -> Result<Vec<u32>> {
    let unlisted = |error| Error::io("can't list /proc (mount it with: mount -t proc proc /proc)", error);
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc").map_err(unlisted)? {
        let name = entry.map_err(unlisted)?.file_name();
        pids.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    pids.sort_unstable();
    Ok(pids)
}

/// What a pass brought.
struct Pass {
    mappings: Mappings,
    /// Processes that the text has to be asked about, in order.
    deferred: Vec<u32>,
    met: Met,
}

/// The mappings of one process as the iterator shows them; `None` if the text has to be asked.
pub(super) fn read_bpf(program: &mut VmaProgram, pid: u32, filter: Filter, wants: Wants) -> Result<Option<Mappings>> {
    let pass = pass(program, Some(pid), filter, wants)?;
    // Some are hidden from iterators.
    let is_whole = pass.met.processes > 0 && pass.deferred.is_empty();
    Ok(is_whole.then_some(pass.mappings))
}

fn pass(program: &mut VmaProgram, pid: Option<u32>, filter: Filter, wants: Wants) -> Result<Pass> {
    let request = Request {
        pid,
        filter: filter.bits() as u32,
        names: wants.contains(Wants::NAMES),
    };
    let mut pass = Pass {
        mappings: Mappings::new(Source::Bpf),
        deferred: Vec::new(),
        met: Met {
            first: false,
            processes: 0,
        },
    };
    // By the program's numbers.
    let mut names: Vec<Option<Name>> = Vec::new();
    // The threads that speak for processes whose first thread has ended.
    let mut speakers: HashMap<u32, u32> = HashMap::new();
    // The end of the mapping before, and whose it is.
    let mut before = (0, 0);
    pass.met = program.run(request, |record, name| {
        if record.tid != record.pid && *speakers.entry(record.pid).or_insert(record.tid) != record.tid {
            return;
        }
        if record.flags & vma::DEFER != 0 {
            pass.deferred.push(record.pid);
            return;
        }
        let mut mapping = mapping(record, wants);
        let end = if before.0 == record.pid { before.1 } else { 0 };
        before = (record.pid, record.end);
        if !batch::cut(&mut mapping, end) {
            return;
        }
        let list = &mut pass.mappings;
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
    pass.deferred.sort_unstable();
    pass.deferred.dedup();
    Ok(pass)
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
