//! The mappings of all processes.

use std::collections::HashMap;

use super::bpf::Bpf;
use super::plan::{plan_machine, MachineFacts};
use super::{Broker, BuildId, BuildIds, Device, Filter, Known, Mappings, Maps, Source, Wants};
use crate::error::{Error, ErrorKind, Result};
use crate::source::bpf::recipe;
use crate::source::host;
use crate::support::Verdict;

/// Asks about all processes. What it loads is kept for the next question.
#[derive(Debug, Default)]
pub struct Machine {
    forced: Option<Source>,
    broker: Option<Broker>,
    bpf: Option<Bpf>,
    /// Loading has failed.
    cannot_load: bool,
    /// Processes that BPF does not show, once that is known.
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
    /// Processes that BPF does not show, and that were read as text.
    pub hidden: u64,
    /// Processes of which BPF can't tell all, or that changed meanwhile, and that were read as text.
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

    /// Has the broker say which processes there are, and open their files, which are read as text.
    pub fn with_broker(mut self, broker: Broker) -> Machine {
        self.forced = Some(Source::Procfs);
        self.broker = Some(broker);
        self
    }

    /// Loads the BPF program, whether or not that is worth it for one question.
    pub fn prepare(&mut self) -> Result<()> {
        if !self.is_loaded() {
            self.bpf = Some(Bpf::load()?);
        }
        Ok(())
    }

    fn is_loaded(&self) -> bool {
        self.bpf.as_ref().is_some_and(Bpf::is_ours)
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
                let pids = self.broker.as_ref().map_or_else(processes, Broker::processes)?;
                for pid in pids {
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
        let Some(bpf) = &mut self.bpf else {
            return Err(Error::new(ErrorKind::Unsupported, "no BPF program is loaded"));
        };
        let pass = bpf.machine(filter, wants)?;
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
        let opened = match &self.broker {
            Some(broker) => broker.open(pid),
            None => Maps::open(pid),
        };
        let listed = opened
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
