//! The mappings of all processes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use taskdiag_bpf::recipe;
use taskdiag_bpf::rights;
use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::support::Verdict;
use taskdiag_sys::host;

use super::bpf::Bpf;
use super::opener::Opener;
use super::plan::{plan_machine, MachineFacts};
use super::space::{Asked, Space};
use super::{build_id, Broker, BuildId, BuildIds, Device, Filter, Mappings, Source, Wants};
use crate::errands::Errands;
use crate::mutex::lock;
use crate::readers;
use crate::source::procfs;

/// Asks about the mappings of all processes. It keeps what it loads for the next question.
///
/// ```
/// use taskdiag::maps::{Filter, Machine, Wants};
///
/// let answer = Machine::new().list(Filter::EXECUTABLE | Filter::FILE_BACKED, Wants::NAMES)?;
/// println!("{} mappings by {}, {} processes denied", answer.mappings.len(), answer.mappings.source(), answer.denied);
/// # Ok::<(), taskdiag::Error>(())
/// ```
pub struct Machine {
    forced: Option<Source>,
    broker: Option<Broker>,
    patience: Duration,
    bpf: Option<Bpf>,
    /// Loading has failed.
    cannot_load: bool,
    /// Processes that this kernel does not show to BPF, once they are known.
    hidden: Option<Vec<u32>>,
    build_ids: BuildIds,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine")
            .field("forced", &self.forced)
            .field("broker", &self.broker)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}

/// The mappings of all processes, and what is missing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MachineMappings {
    /// The mappings, by ascending process and address.
    pub mappings: Mappings,
    /// How many processes the caller may not see the mappings of.
    pub denied: u64,
    /// How many processes ended while they were being read.
    pub gone: u64,
    /// How many answers of the kernel made no sense. Anything but 0 is a defect.
    pub malformed: u64,
    /// How many processes the kernel does not show to BPF. They were asked about one by one.
    pub hidden: u64,
    /// How many processes BPF could not answer about exactly, or changed meanwhile. They were asked
    /// about one by one.
    pub deferred: u64,
    /// Processes that did not let themselves be read within the patience, ascending. All their
    /// mappings are missing, or names that no other process has.
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

    /// Lets only this source answer: BPF or procfs. The ioctl answers about single processes only.
    pub fn with_source(mut self, source: Source) -> Machine {
        self.forced = Some(source);
        self
    }

    /// Lets the broker say which processes there are, and open their files.
    pub fn with_broker(mut self, broker: Broker) -> Machine {
        self.broker = Some(broker);
        self
    }

    /// How long one system call on a process may take without progress. 0.2 seconds unless this is
    /// called.
    pub fn with_patience(mut self, patience: Duration) -> Machine {
        self.patience = patience;
        self
    }

    /// Loads the BPF program, even if that is not worth it for one question. Takes `CAP_BPF` and
    /// `CAP_PERFMON` (Linux 6.11).
    ///
    /// # Errors
    ///
    /// [`Denied`](ErrorKind::Denied) or [`Unsupported`](ErrorKind::Unsupported), with what is
    /// missing.
    pub fn prepare(&mut self) -> Result<()> {
        if !self.is_loaded() {
            self.bpf = Some(Bpf::load()?);
        }
        Ok(())
    }

    fn is_loaded(&self) -> bool {
        self.bpf.as_ref().is_some_and(Bpf::is_ours)
    }

    /// All mappings that pass `filter`, of all processes whose mappings the caller may see.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) for [`Wants::USAGE`], which only single processes
    /// can be asked for, and where the source of [`with_source`](Machine::with_source) can't
    /// answer; [`System`](ErrorKind::System) if `/proc` can't be listed.
    pub fn list(&mut self, filter: Filter, wants: Wants) -> Result<MachineMappings> {
        if wants.contains(Wants::USAGE) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "only single processes can be asked for resident and dirty sizes",
            ));
        }
        let facts = MachineFacts {
            forced: self.forced.or(self.broker.is_some().then_some(Source::Procfs)),
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
                    "the ioctl answers about single processes: choose bpf or procfs",
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
                let pids = self.broker.as_ref().map_or_else(procfs::pids, Broker::processes)?;
                self.add_singly(&pids, filter, wants, &mut answer)?;
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
        if pass.shows_first {
            self.hidden = Some(Vec::new());
        }
        answer.mappings.remove_pids(&pass.deferred);
        let nameless = (0..answer.mappings.len()).filter(|&at| answer.mappings.get(at).name == Err(Absent::NoAnswer));
        answer.silent = nameless.map(|at| answer.mappings.pid(at)).collect();
        answer.deferred = pass.deferred.len() as u64;
        self.add_singly(&pass.deferred, filter, wants, answer)?;
        match self.hidden.clone() {
            Some(hidden) => {
                let read = self.add_singly(&hidden, filter, wants, answer)?;
                answer.hidden = read.len() as u64;
            }
            None => self.find_hidden(filter, wants, answer)?,
        }
        answer.mappings.sort_by_pid();
        Ok(())
    }

    /// Adds the processes that procfs shows and BPF did not, and remembers them. The first process
    /// of a pid namespace always exists: a kernel that shows it hides none.
    fn find_hidden(&mut self, filter: Filter, wants: Wants, answer: &mut MachineMappings) -> Result<()> {
        let mut shown: Vec<u32> = (0..answer.mappings.len())
            .map(|index| answer.mappings.pid(index))
            .collect();
        shown.sort_unstable();
        let mut others = procfs::pids()?;
        others.retain(|pid| shown.binary_search(pid).is_err());
        let hidden = self.add_singly(&others, filter, wants, answer)?;
        answer.hidden = hidden.len() as u64;
        // Every process has an executable mapping. With another filter, one without a mapping may
        // be shown.
        if [Filter::empty(), Filter::EXECUTABLE].contains(&filter) {
            self.hidden = Some(hidden);
        }
        Ok(())
    }

    /// Adds the mappings of some processes, which are asked about one by one: by ioctl if the kernel
    /// has it, else as text. Returns the processes that have any.
    fn add_singly(
        &mut self,
        pids: &[u32],
        filter: Filter,
        wants: Wants,
        answer: &mut MachineMappings,
    ) -> Result<Vec<u32>> {
        let mut with_mappings = Vec::new();
        let forced = self.forced.filter(|&source| source == Source::Procfs);
        for pids in pids.chunks(if self.broker.is_some() { TOGETHER } else { usize::MAX }) {
            let opened = |pid: u32| self.broker.as_ref().map(|broker| broker.open_space(pid));
            let about: Vec<_> = pids.iter().map(|&pid| (pid, (pid, Mutex::new(opened(pid))))).collect();
            let listed = readers::each(about, readers::MAPPINGS, self.patience, move |(pid, opened)| {
                let opened = lock(opened).take();
                let mut space = opened.unwrap_or_else(|| Space::open(Opener::Path(None), *pid))?;
                space.answer(&Asked::Passing(filter), forced, wants)
            });
            for (&pid, listed) in pids.iter().zip(listed) {
                match listed.unwrap_or_else(|| Err(Error::no_answer(Some(pid)))) {
                    Ok(listed) => {
                        if answer.mappings.source() != Source::Bpf {
                            answer.mappings.set_source(listed.source());
                        }
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

    /// Reads build ids from the mapped files, each file once.
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

/// How many files the broker opens before they are read.
const TOGETHER: usize = 64;
