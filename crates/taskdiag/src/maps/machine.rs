//! The mappings of all processes.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use taskdiag_bpf::recipe;
use taskdiag_bpf::rights;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::support::Verdict;
use taskdiag_sys::host;

use super::bpf::Bpf;
use super::opener::Opener;
use super::plan::{plan_machine, MachineFacts};
use super::space::{Asked, Space};
use super::{build_id, lock, Broker, BuildId, BuildIds, Device, Filter, Known, Mappings, Source, Wants};
use crate::errands::Errands;
use crate::readers;

/// Asks about all processes. What it loads is kept for the next question.
#[derive(Debug)]
pub struct Machine {
    forced: Option<Source>,
    broker: Option<Broker>,
    patience: Duration,
    bpf: Option<Bpf>,
    /// Loading has failed.
    cannot_load: bool,
    /// Processes that BPF does not show, once that is known.
    hidden: Option<Vec<u32>>,
    build_ids: BuildIds,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
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
    /// Processes that kept their reader waiting for longer than the patience, in order. All their mappings are missing, or names that
    /// nobody else could tell.
    pub silent: Vec<u32>,
}

impl Machine {
    /// A handle that chooses its source itself.
    pub fn new() -> Machine {
        Machine {
            forced: None,
            broker: None,
            patience: readers::PATIENCE,
            bpf: None,
            cannot_load: false,
            hidden: None,
            build_ids: BuildIds::default(),
        }
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

    /// How long a process may keep its reader waiting. 0.2 seconds unless it is said.
    pub fn with_patience(mut self, patience: Duration) -> Machine {
        self.patience = patience;
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
            can_load: !self.cannot_load && recipe::VMA_WALK.is_ok() && rights::bpf_load().verdict != Verdict::No,
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
            silent: Vec::new(),
        };
        match source {
            Source::Bpf => self.by_bpf(filter, wants, &mut answer)?,
            _ => {
                let pids = self.broker.as_ref().map_or_else(processes, Broker::processes)?;
                self.add_texts(&pids, filter, wants, &mut answer)?;
            }
        }
        if wants.contains(Wants::BUILD_IDS) {
            build_id::read_vdsos(self.patience, &mut answer.mappings);
            self.read_build_ids(&mut answer.mappings);
        }
        answer.silent.sort_unstable();
        answer.silent.dedup();
        Ok(answer)
    }

    fn by_bpf(&mut self, filter: Filter, wants: Wants, answer: &mut MachineMappings) -> Result<()> {
        let Some(bpf) = &mut self.bpf else {
            return Err(Error::new(ErrorKind::Unsupported, "no BPF program is loaded"));
        };
        let pass = bpf.machine(filter, wants, self.patience)?;
        answer.mappings = pass.mappings;
        if pass.met_first {
            self.hidden = Some(Vec::new());
        }
        answer.mappings.remove_pids(&pass.deferred);
        let nameless = (0..answer.mappings.len()).filter(|&at| answer.mappings.get(at).name == Err(Absent::NoAnswer));
        answer.silent = nameless.map(|at| answer.mappings.pid(at)).collect();
        answer.deferred = pass.deferred.len() as u64;
        self.add_texts(&pass.deferred, filter, wants, answer)?;
        match self.hidden.clone() {
            Some(hidden) => {
                let read = self.add_texts(&hidden, filter, wants, answer)?;
                answer.hidden = read.len() as u64;
            }
            None => self.find_hidden(filter, wants, answer)?,
        }
        answer.mappings.sort_by_pid();
        Ok(())
    }

    /// Adds the processes that procfs shows and the pass did not, and keeps them in mind. The first process of a pid namespace always
    /// exists: where BPF shows that one, it hides none.
    fn find_hidden(&mut self, filter: Filter, wants: Wants, answer: &mut MachineMappings) -> Result<()> {
        let mut shown: Vec<u32> = (0..answer.mappings.len())
            .map(|index| answer.mappings.pid(index))
            .collect();
        shown.sort_unstable();
        let mut others = processes()?;
        others.retain(|pid| shown.binary_search(pid).is_err());
        let hidden = self.add_texts(&others, filter, wants, answer)?;
        answer.hidden = hidden.len() as u64;
        // Every process has something that can be executed, but not of everything else.
        if [Filter::empty(), Filter::EXECUTABLE].contains(&filter) {
            self.hidden = Some(hidden);
        }
        Ok(())
    }

    /// Adds what the text says of some processes. Returns those that have mappings.
    fn add_texts(
        &mut self,
        pids: &[u32],
        filter: Filter,
        wants: Wants,
        answer: &mut MachineMappings,
    ) -> Result<Vec<u32>> {
        let mut with_mappings = Vec::new();
        for pids in pids.chunks(if self.broker.is_some() { TOGETHER } else { usize::MAX }) {
            let opened = |pid: u32| self.broker.as_ref().map(|broker| broker.open_space(pid));
            let about: Vec<_> = pids.iter().map(|&pid| (pid, (pid, Mutex::new(opened(pid))))).collect();
            let listed = readers::each(about, readers::MAPPINGS, self.patience, move |(pid, opened)| {
                let opened = lock(opened).take();
                let mut space = opened.unwrap_or_else(|| Space::open(Opener::Path(None), *pid))?;
                space.answer(&Asked::Passing(filter), Some(Source::Procfs), wants)
            });
            for (&pid, listed) in pids.iter().zip(listed) {
                match listed.unwrap_or_else(|| Err(Error::no_answer(Some(pid)))) {
                    Ok(listed) => {
                        listed.iter().for_each(|mapping| answer.mappings.push(pid, &mapping));
                        with_mappings.extend((!listed.is_empty()).then_some(pid));
                    }
                    Err(error) => match error.kind() {
                        ErrorKind::NoMemory => {}
                        ErrorKind::NoSuchTask => answer.gone += 1,
                        ErrorKind::Denied => answer.denied += 1,
                        ErrorKind::Malformed => answer.malformed += 1,
                        ErrorKind::NoAnswer => answer.silent.push(pid),
                        _ => return Err(error),
                    },
                }
            }
        }
        Ok(with_mappings)
    }

    /// Reads the build ids from the files, each file once.
    fn read_build_ids(&mut self, mappings: &mut Mappings) {
        let mut errands = Errands::new(self.patience);
        let mut known: HashMap<(Device, u64), Known<Option<BuildId>>> = HashMap::new();
        for index in 0..mappings.len() {
            let mapping = mappings.get(index);
            if !mapping.is_file_backed() {
                continue;
            }
            let pid = mappings.pid(index);
            let id = *known
                .entry((mapping.device, mapping.inode))
                .or_insert_with(|| self.build_ids.read(&mut errands, Some(pid), &mapping));
            mappings.set_build_id(index, id);
        }
    }
}

/// Processes whose files the broker opens before they are read.
const TOGETHER: usize = 64;

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
