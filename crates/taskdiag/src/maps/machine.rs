//! The mappings of all processes.

use std::collections::HashMap;
use std::sync::Mutex;

use taskdiag_bpf::recipe;
use taskdiag_bpf::rights;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::plan::{Cost, WalkChoice};
use taskdiag_core::snapshot::SourceId;
use taskdiag_core::support::Verdict;
use taskdiag_sys::host;

use super::bpf::{sorted, Bpf};
use super::opener::Opener;
use super::space::{MapsRequest, Space};
use super::{build_id, Broker, BuildId, BuildIds, Device, Filter, Mappings, Perms, Settings, Wants};
use crate::errands::Errands;
use crate::mutex::lock;
use crate::readers;
use crate::source::procfs;

/// What a handle keeps between lists of the mappings of all processes.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    bpf: Option<Bpf>,
    /// Loading has failed.
    cannot_load: bool,
    /// Processes that this kernel hides from BPF, once they are known.
    hidden: Option<Vec<u32>>,
    build_ids: BuildIds,
}

/// The mappings of all processes, and what is missing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MachineMappings {
    /// The mappings, by ascending process and address.
    pub mappings: Mappings,
    /// Processes whose mappings the caller may not see.
    pub denied: u64,
    /// Processes that ended while they were being read.
    pub gone: u64,
    /// Invalid answers of the kernel. Anything but 0 is a defect.
    pub malformed: u64,
    /// Processes that the kernel hides from BPF. They were read one by one.
    pub hidden: u64,
    /// Processes that BPF could not answer about exactly, or that changed meanwhile. They were read
    /// one by one.
    pub deferred: u64,
    /// Processes that could not be read within the patience, ascending. All their mappings are
    /// missing, or the names that no other process has.
    pub silent: Vec<u32>,
}

/// What to list.
struct Question<'a> {
    settings: &'a Settings,
    filter: Filter,
    wants: Wants,
}

impl Machine {
    /// Loads the BPF program.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        if !self.is_loaded() {
            self.bpf = Some(Bpf::load()?);
        }
        Ok(())
    }

    fn is_loaded(&self) -> bool {
        self.bpf.as_ref().is_some_and(Bpf::is_ours)
    }

    /// Answers [`Handle::all_maps`](crate::Handle::all_maps).
    pub(crate) fn list(&mut self, settings: &Settings, filter: Filter, wants: Wants) -> Result<MachineMappings> {
        if wants.contains(Wants::USAGE) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "only single processes can be asked for resident and dirty sizes",
            ));
        }
        let source = self.choose(settings)?;
        let asked = Question {
            settings,
            filter,
            wants,
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
        if source == SourceId::Bpf {
            self.by_bpf(&asked, &mut answer)?;
        } else {
            let pids = settings
                .broker
                .as_ref()
                .map_or_else(|| procfs::pids(&settings.proc), Broker::processes)?;
            add_singly(&pids, &asked, &mut answer)?;
        }
        if wants.contains(Wants::BUILD_IDS) {
            build_id::read_vdsos(&settings.proc, settings.patience, &mut answer.mappings);
            self.read_build_ids(settings, &mut answer.mappings);
        }
        if wants.contains(Wants::GO_BUILD_IDS) {
            let ids = build_id::go_build_ids(&settings.proc, settings.patience, &answer.mappings);
            answer.mappings.set_go_build_ids(ids);
        }
        answer.silent = sorted(answer.silent);
        Ok(answer)
    }

    /// Chooses the source that answers, and loads what it needs.
    fn choose(&mut self, settings: &Settings) -> Result<SourceId> {
        if settings.broker.is_some() {
            return Ok(SourceId::Broker);
        }
        let cost = Cost::default();
        let walk = WalkChoice {
            is_loaded: self.is_loaded(),
            can_load: !self.cannot_load && recipe::VMA_WALK.is_ok() && rights::bpf_load().verdict != Verdict::No,
            is_denied: false,
            // If unknown, few.
            processes: host::tasks().unwrap_or(100).into(),
            procfs_extra_ns: cost.mappings_ns,
        };
        match walk.source("answer about the mappings of all processes", settings.forced, &cost)? {
            SourceId::Bpf => match self.prepare() {
                Ok(()) => Ok(SourceId::Bpf),
                Err(error) if settings.forced.is_some() => Err(error),
                Err(_) => {
                    self.cannot_load = true;
                    Ok(SourceId::Procfs)
                }
            },
            source => Ok(source),
        }
    }

    fn by_bpf(&mut self, asked: &Question<'_>, answer: &mut MachineMappings) -> Result<()> {
        let Some(bpf) = &mut self.bpf else {
            return Err(Error::new(ErrorKind::Unsupported, "no BPF program is loaded"));
        };
        let pass = bpf.machine(asked.filter, asked.wants, asked.settings.patience)?;
        answer.mappings = pass.mappings;
        if pass.shows_first {
            self.hidden = Some(Vec::new());
        }
        answer.mappings.remove_pids(&pass.deferred);
        let nameless = (0..answer.mappings.len()).filter(|&at| answer.mappings.get(at).name == Err(Absent::NoAnswer));
        answer.silent = nameless.map(|at| answer.mappings.pid(at)).collect();
        answer.deferred = pass.deferred.len() as u64;
        add_singly(&pass.deferred, asked, answer)?;
        match &mut self.hidden {
            Some(hidden) => {
                // Some may have started while the first list was made, or have ended since.
                let shown = pids_of(&answer.mappings);
                let is_there = |pid: &u32| asked.settings.proc.join(pid.to_string()).exists();
                hidden.retain(|pid| shown.binary_search(pid).is_err() && is_there(pid));
                let read = add_singly(hidden, asked, answer)?;
                answer.hidden = read.len() as u64;
            }
            None => self.find_hidden(asked, answer)?,
        }
        answer.mappings.sort_by_pid();
        Ok(())
    }

    /// Adds the processes that procfs shows and BPF did not, and remembers them. The first process
    /// of a pid namespace always exists: a kernel that shows it hides no process.
    fn find_hidden(&mut self, asked: &Question<'_>, answer: &mut MachineMappings) -> Result<()> {
        let shown = pids_of(&answer.mappings);
        let mut others = procfs::pids(&asked.settings.proc)?;
        others.retain(|pid| shown.binary_search(pid).is_err());
        let hidden = add_singly(&others, asked, answer)?;
        answer.hidden = hidden.len() as u64;
        // Every process has an executable mapping. With another filter, a process without a mapping
        // in the answer may still be shown.
        if [Filter::default(), Perms::EXEC.into()].contains(&asked.filter) {
            self.hidden = Some(hidden);
        }
        Ok(())
    }

    /// Reads build ids from the mapped files, each file once.
    fn read_build_ids(&mut self, settings: &Settings, mappings: &mut Mappings) {
        let mut errands = Errands::new(settings.patience);
        let mut known: HashMap<(Device, u64), Option<BuildId>> = HashMap::new();
        for index in 0..mappings.len() {
            let mapping = mappings.get(index);
            if !mapping.is_file_backed() {
                continue;
            }
            let (pid, file) = (mappings.pid(index), (mapping.device, mapping.inode));
            let id = match known.get(&file) {
                Some(&id) => Ok(id),
                None => self
                    .build_ids
                    .read(&mut errands, Some(&settings.proc.join(pid.to_string())), &mapping),
            };
            // Another process may lead to a file that this one does not.
            if let Ok(id) = id {
                known.insert(file, id);
            }
            mappings.set_build_id(index, id);
        }
    }
}

/// The processes of mappings, ascending.
fn pids_of(mappings: &Mappings) -> Vec<u32> {
    sorted((0..mappings.len()).map(|index| mappings.pid(index)).collect())
}

/// How many files the broker opens before they are read.
const TOGETHER: usize = 64;

/// Adds the mappings of some processes, read one by one: by ioctl if the kernel has it, otherwise
/// as text. Returns the processes that have any.
fn add_singly(pids: &[u32], asked: &Question<'_>, answer: &mut MachineMappings) -> Result<Vec<u32>> {
    let &Question {
        settings,
        filter,
        wants,
    } = asked;
    let mut with_mappings = Vec::new();
    let forced = settings.forced.filter(|&source| source == SourceId::Procfs);
    let broker = settings.broker.as_ref();
    let opener = Opener::Path(settings.proc.clone(), None);
    for pids in pids.chunks(if broker.is_some() { TOGETHER } else { usize::MAX }) {
        let opened = |pid: u32| broker.map(|broker| Space::open(Opener::Broker(broker.clone()), pid));
        let about: Vec<_> = pids.iter().map(|&pid| (pid, (pid, Mutex::new(opened(pid))))).collect();
        let opener = opener.clone();
        let listed = readers::each(
            &settings.proc,
            about,
            readers::MAPPINGS,
            settings.patience,
            move |(pid, opened)| {
                let opened = lock(opened).take();
                let mut space = opened.unwrap_or_else(|| Space::open(opener.clone(), *pid))?;
                space.answer(&MapsRequest::Passing(filter), forced, wants)
            },
        );
        for (&pid, listed) in pids.iter().zip(listed) {
            match listed.unwrap_or_else(|reason| Err(Error::not_read(Some(pid), reason))) {
                Ok(listed) => {
                    if answer.mappings.source() != SourceId::Bpf {
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
