//! The handle: it plans a query, asks a source, and completes the answer.
//!
//! [`Sources`] are opened when they are first needed, [`scope`] decides which tasks a query is
//! about, [`Completion`] adds what the first source lacks, [`Derived`] adds derived fields, and
//! [`Remembered`] is what is kept about tasks until the next query. `files` and `lists` answer
//! about open files and sockets, `maps` about mappings.

mod complete;
mod derived;
mod explanation;
mod files;
mod hidden;
mod lists;
mod maps;
mod past;
mod remembered;
mod scope;
mod sources;
mod supplement;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::ClockId;
use taskdiag_bpf::pin;
use taskdiag_bpf::recipe;
use taskdiag_bpf::rights;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::event::Options;
use taskdiag_core::field::{has_group, Field, Fields, Group, Groups};
use taskdiag_core::plan::{plan, BpfWay, Cost, Plan, State};
use taskdiag_core::query::{Preparation, Query, Scope};
use taskdiag_core::snapshot::{Snapshot, SourceId};
use taskdiag_core::support::{Fact, Support, Verdict};
use taskdiag_sys::host::now_ns;

use crate::files::Files;
use crate::maps::Machine;
use crate::memory::{Progress, RollupRequest, Rollups, StillThere};
use crate::probe;
use crate::readers;
use crate::source::broker;
use crate::source::procfs::{self, Proc};
use crate::source::TaskRequest;
use complete::{fields_of, Completion};
use derived::Derived;
use hidden::Hidden;
use remembered::Remembered;
use sources::{all_shown, Sources};

pub use explanation::Explanation;
pub use past::{answer_past, Past};

/// Asks the kernel about tasks, and about their files, sockets and mappings.
///
/// Making a handle is free. It opens or loads what a query needs at the first need, and keeps it:
/// keep the handle.
///
/// Only one thread at a time can use a handle; several handles do not disturb each other. After
/// fork(2) the child's copy notices and starts afresh, so parent and child never share the memory
/// of a BPF program.
///
/// Capabilities are needed only for loading: they can be dropped after
/// [`prepare`](Handle::prepare), or after the first query that BPF answered (Linux 6.0 and later).
#[derive(Default)]
pub struct Handle {
    /// The only source that may answer.
    source: Option<SourceId>,
    /// The only source that may answer [`Group::Rollup`].
    rollup_source: Option<SourceId>,
    /// The only source that may answer about mappings, if it answers nothing else
    /// ([`SourceId::Procmap`]). Otherwise `source` counts for them, too.
    maps_source: Option<SourceId>,
    /// There will be only one query.
    one_shot: bool,
    patience: Option<Duration>,
    support: Option<Support>,
    /// The time that queries lost because BPF was not loaded: see [`State::regret_ns`].
    regret_ns: u64,
    sources: Sources,
    hidden: Hidden,
    remembered: Remembered,
    derived: Derived,
    rollups: Rollups,
    files: Files,
    machine: Machine,
    /// Answers instead of all sources.
    past: Option<Box<dyn Past>>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("source", &self.source)
            .field("rollup_source", &self.rollup_source)
            .field("maps_source", &self.maps_source)
            .field("one_shot", &self.one_shot)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// A handle that chooses its sources itself.
    pub fn new() -> Handle {
        Handle::default()
    }

    /// Lets only this source answer. A query that it can't answer fails.
    ///
    /// What a source can't answer exactly for single tasks, procfs still answers;
    /// [`Counters::deferred`](crate::Counters::deferred) counts these tasks.
    ///
    /// [`SourceId::SmapsRollup`] and [`SourceId::Smaps`] answer only [`Group::Rollup`]. Choosing
    /// one of them does not change the source of any other group. [`SourceId::Procmap`] answers only
    /// about mappings ([`maps`](Handle::maps)), and does not change the source of anything else.
    pub fn with_source(mut self, source: SourceId) -> Handle {
        match source {
            SourceId::SmapsRollup | SourceId::Smaps => self.rollup_source = Some(source),
            SourceId::Procmap => self.maps_source = Some(source),
            _ => self.source = Some(source),
        }
        self
    }

    /// Sets the path of the broker's socket; the default is `/run/taskdiag/taskdiag.sock`.
    pub fn with_socket(mut self, path: impl Into<PathBuf>) -> Handle {
        self.sources.broker_path = Some(path.into());
        self
    }

    /// Reads another procfs than `/proc`. If its pid namespace is an outer one, only procfs answers:
    /// what asks another source fails with [`Unsupported`](ErrorKind::Unsupported).
    pub fn with_proc(mut self, proc: Proc) -> Handle {
        self.files.proc = proc.clone();
        self.sources.set_proc(proc);
        self.support = None;
        self
    }

    /// Sets the default of [`Query::patience`]: how long one system call on a process may make no
    /// progress. 0.2 seconds unless this is called.
    pub fn with_patience(mut self, patience: Duration) -> Handle {
        self.patience = Some(patience);
        self
    }

    /// Sets how much memory an answer read here may take before command lines and environments of
    /// more than 32 KiB are absent as [`Truncated`](Absent::Truncated): 128 MiB unless this is
    /// called. A query about one process has them.
    pub fn with_max_memory(mut self, bytes: usize) -> Handle {
        self.sources.max_records = Some(bytes);
        self
    }

    /// Says that there will be only one query, so nothing need be remembered for the next.
    pub fn one_shot(mut self) -> Handle {
        self.one_shot = true;
        self
    }

    /// Which sources and features work on this host, as far as is known without loading anything.
    /// Probed once; [`prepare`](Handle::prepare) and queries add what they find out.
    pub fn support(&mut self) -> &Support {
        self.facts()
    }

    /// How `query` would be answered now: which source reads which group, and where the parts of
    /// its filter are decided.
    ///
    /// # Errors
    ///
    /// As [`query`](Handle::query), if no source can answer.
    pub fn explain(&mut self, query: &Query) -> Result<Explanation> {
        Ok(Explanation::new(query, self.plan_of(query)?))
    }

    /// Prepares the source that answers about `fields`, even if one query alone would not be worth
    /// it: loads the BPF programs, or connects to the broker if only the broker may answer
    /// ([`with_source`](Handle::with_source)). Procfs needs nothing. Loading takes some ten
    /// milliseconds, and needs `CAP_BPF` and `CAP_PERFMON` (Linux 5.17).
    ///
    /// # Errors
    ///
    /// - [`Denied`](ErrorKind::Denied) or [`Unsupported`](ErrorKind::Unsupported), with what is
    ///   missing. Unless a source was chosen, another one then answers queries.
    /// - For the broker also [`Malformed`](ErrorKind::Malformed) if the listener is not a broker,
    ///   and [`System`](ErrorKind::System) if it does not answer.
    pub fn prepare(&mut self, fields: impl Into<Fields>) -> Result<()> {
        self.prepare_groups(Groups::of(fields.into()))
    }

    fn prepare_groups(&mut self, groups: Groups) -> Result<()> {
        match self.forced()? {
            None | Some(SourceId::Bpf) => self.load_programs(groups),
            Some(SourceId::Broker) => self.connect_to_broker(),
            Some(_) => Ok(()),
        }
    }

    /// Begins to count what processes send and receive through sockets: for the fields of
    /// [`Group::Net`], and until the handle is dropped. Pinned programs
    /// ([`pin_with_network`](crate::pin::pin_with_network)) and the broker
    /// (`taskdiagd --count-network`) may count already: then it begins nothing.
    ///
    /// # Errors
    ///
    /// [`Denied`](ErrorKind::Denied) without `CAP_BPF` and `CAP_PERFMON`,
    /// [`Unsupported`](ErrorKind::Unsupported) if the kernel has no tracepoints for it (Linux 6.3).
    pub fn count_network(&mut self) -> Result<()> {
        let refuse = |message: String| Err(Error::new(ErrorKind::Unsupported, message));
        let begun = match self.forced()? {
            None | Some(SourceId::Bpf) => self.sources.bpf.count_network(&pin::directory()),
            Some(SourceId::Broker) => {
                refuse("the broker does not count network traffic: taskdiagd --count-network does".to_owned())
            }
            Some(other) => refuse(format!("{other} has no network traffic: BPF counts it")),
        };
        match begun {
            Err(_) if self.network_source()? == Some(SourceId::Broker) => Ok(()),
            begun => begun,
        }
    }

    /// Lets the exits of a stream of events have what the process moved through sockets, if that is
    /// counted for this handle.
    ///
    /// # Errors
    ///
    /// [`System`](ErrorKind::System) if there is no file descriptor left.
    pub fn events_with_network(&mut self, mut options: Options) -> Result<Options> {
        let bpf = &mut self.sources.bpf;
        bpf.knows_network(&pin::directory());
        let table = bpf.network_table().map(|table| table.try_clone_to_owned()).transpose();
        let table = table.map_err(|error| Error::io("duplicating a file descriptor", error))?;
        options.network = table.map(Arc::new);
        Ok(options)
    }

    /// Answers a query.
    ///
    /// # Errors
    ///
    /// - [`NoSuchTask`](ErrorKind::NoSuchTask): the query is about one process, which does not
    ///   exist.
    /// - [`Denied`](ErrorKind::Denied), [`Unsupported`](ErrorKind::Unsupported): no source can
    ///   answer, or the one of [`with_source`](Handle::with_source) can't.
    /// - [`System`](ErrorKind::System), [`Malformed`](ErrorKind::Malformed): a source failed.
    ///
    /// A value that can't be read is no error: it is absent, with its reason.
    pub fn query(&mut self, query: &Query) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        self.query_into(query, &mut snapshot)?;
        Ok(snapshot)
    }

    /// Answers a query, and reuses the memory of an earlier answer. The earlier content is lost,
    /// even after an error.
    ///
    /// # Errors
    ///
    /// As [`query`](Handle::query).
    pub fn query_into(&mut self, query: &Query, snapshot: &mut Snapshot) -> Result<()> {
        if let Some(past) = &mut self.past {
            return past::answer_past(&mut **past, query, snapshot);
        }
        let Scope::DescendantsOf(pid) = query.scope else {
            return self.answer(query, snapshot);
        };
        let parents = Query::processes().fields(Field::Ppid | Field::StartNs);
        let mut all = Snapshot::default();
        self.read(&self.prepared(&parents)?, &mut all)?;
        let descendants = scope::descendants(&all, pid)?;
        let mut listed = query.clone();
        listed.scope = Scope::Listed;
        listed.pids = descendants.iter().map(|task| task.tid()).collect();
        self.answer(&listed.with_fields_read(Field::StartNs), snapshot)?;
        // A process may have ended meanwhile, and its id may belong to another process now.
        snapshot.retain(|task| descendants.contains(&scope::identity(task)));
        snapshot.missing.clear();
        snapshot.counters.tasks = snapshot.rows.len() as u64;
        Ok(())
    }

    /// How far the running query has come with [`Group::Rollup`], which can take long. Another
    /// thread can read it.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.rollups.progress)
    }

    /// Answers with all groups: first those that sources read, then derived fields, then the
    /// rollups of the remaining tasks. Each part of the filter is decided as soon as its fields are
    /// there.
    fn answer(&mut self, query: &Query, snapshot: &mut Snapshot) -> Result<()> {
        let began = Instant::now();
        let mut prepared = self.prepared(query)?;
        let made_of_cgroup = |field: Field| field.info().made_of.contains(&Field::Cgroup);
        if prepared.fields.iter().any(made_of_cgroup) && self.derived.has_cgroup1() {
            prepared.query.fields |= Field::Cgroups;
        }
        self.read(&prepared, snapshot)?;
        for (group, filter) in &prepared.late {
            match (group, snapshot.answers[*group as usize]) {
                (Group::Derived, _) => self.derived.add(prepared.patience, snapshot),
                (_, Some(Ok(source))) => self.add_rollups(&prepared, source, began, snapshot)?,
                _ => {}
            }
            if let Some(filter) = filter {
                snapshot.counters.candidates = 0;
                filter.retain(snapshot);
                snapshot.counters.tasks = snapshot.rows.len() as u64;
            }
        }
        snapshot.fields = prepared.fields;
        Ok(())
    }

    fn add_rollups(
        &mut self,
        prepared: &Preparation,
        source: SourceId,
        began: Instant,
        snapshot: &mut Snapshot,
    ) -> Result<()> {
        let request = RollupRequest {
            source,
            budget: &prepared.query.budget,
            patience: prepared.patience,
            began,
            is_threads: prepared.query.scope.is_threads(),
            hidden: self.hidden.known(),
        };
        let (procfs, bpf) = self.sources.procfs_and_bpf()?;
        let mut still_there = || all_shown(bpf, false);
        let is_by_bpf = snapshot.answers[Group::Mem as usize] == Some(Ok(SourceId::Bpf));
        let still_there: StillThere<'_> = if is_by_bpf { Some(&mut still_there) } else { None };
        self.rollups.read(procfs, &request, still_there, snapshot)
    }

    /// Answers with all groups that sources find: not [`Group::Derived`] and [`Group::Rollup`].
    fn read(&mut self, prepared: &Preparation, snapshot: &mut Snapshot) -> Result<()> {
        let query = &prepared.query;
        let (plan, knows_changes) = self.ask_first(prepared, snapshot)?;
        snapshot.read_ns = now_ns(ClockId::Boottime);
        let had_rows = !snapshot.is_empty();
        if plan.first().0 != SourceId::Procfs {
            let mut completion = Completion {
                query,
                plan: &plan,
                patience: prepared.patience,
                is_last: self.one_shot,
                sources: &mut self.sources,
                hidden: &mut self.hidden,
                remembered: &mut self.remembered,
            };
            completion.complete(snapshot)?;
        }
        self.regret_ns = self.regret_ns.saturating_add(plan.regret_ns);
        if !self.one_shot && Groups::of(snapshot.fields).contains(Group::Cpu) {
            self.remembered.raise_times(query, snapshot);
        }
        let is_empty = snapshot.is_empty();
        if query.changed && !knows_changes {
            self.remembered.retain_changed(snapshot);
        }
        snapshot.counters.tasks = snapshot.rows.len() as u64;
        match query.scope {
            Scope::Process(pid) | Scope::ThreadsOf(pid) | Scope::ChildrenOf(pid)
                if is_empty && !self.exists(query, &plan, had_rows, pid)? =>
            {
                Err(Error::no_such_process(pid))
            }
            _ => Ok(()),
        }
    }

    /// Whether the process exists that a query without result was about. `had_rows`: its source
    /// gave rows, which others have dropped.
    fn exists(&mut self, query: &Query, plan: &Plan, had_rows: bool, pid: u32) -> Result<bool> {
        let needs_rows = !matches!(query.scope, Scope::ChildrenOf(_));
        if needs_rows && query.filter.is_none() && !query.changed {
            return Ok(false);
        }
        match plan.first().0 {
            // Its programs make a part of the tests.
            SourceId::Bpf => Ok(had_rows || self.hidden.or_shown(&mut self.sources, pid)?),
            SourceId::Broker => Ok(had_rows || !needs_rows),
            // It reports this itself.
            _ => Ok(true),
        }
    }

    /// Plans, and asks the first source. If this is a broker that has ended, other sources may
    /// answer.
    fn ask_first(&mut self, prepared: &Preparation, snapshot: &mut Snapshot) -> Result<(Plan, bool)> {
        loop {
            snapshot.clear(prepared.query.fields);
            let plan = self.loaded_plan(prepared)?;
            for group in Groups::of(snapshot.fields).iter() {
                snapshot.answers[group as usize] = plan.answer(group);
            }
            let may_fall_back = self.only_source().is_none() && plan.first().0 == SourceId::Broker;
            match self.ask(prepared, &plan, snapshot) {
                Ok(knows_changes) => return Ok((plan, knows_changes)),
                Err(error) if may_fall_back && error.kind() == ErrorKind::Unsupported => {
                    self.note_no_broker(&error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks the source that finds the tasks. Returns whether it left out unchanged tasks.
    fn ask(&mut self, prepared: &Preparation, plan: &Plan, snapshot: &mut Snapshot) -> Result<bool> {
        let query = &prepared.query;
        if query.scope.is_listed() && query.pids.is_empty() {
            return Ok(false);
        }
        let (first, groups) = plan.first();
        let tests = match &query.filter {
            Some(filter) if plan.tested => filter.kernel_tests(&|path| procfs::cgroup_id(path)).tests,
            _ => Vec::new(),
        };
        let request = TaskRequest {
            query,
            fields: fields_of(snapshot.fields, groups),
            groups: if plan.run { groups.with(Group::Args) } else { groups },
            tests: &tests,
            changed: query.changed && plan.tested,
            one_by_one: plan.one_by_one,
            patience: prepared.patience,
        };
        self.sources.get(first)?.read_tasks(&request, snapshot)
    }

    fn plan_of(&mut self, query: &Query) -> Result<Plan> {
        self.plan(&self.prepared(query)?)
    }

    fn plan(&mut self, prepared: &Preparation) -> Result<Plan> {
        self.try_broker()?;
        let state = State {
            forced: self.forced()?,
            forced_rollup: self.rollup_source,
            network: if has_group(prepared.fields, Group::Net) {
                self.network_source()?
            } else {
                None
            },
            loaded: self.sources.bpf.loaded(),
            regret_ns: self.regret_ns,
            is_last: self.one_shot,
        };
        plan(prepared, self.facts(), &state, &Cost::default())
    }

    /// The source that knows network traffic.
    fn network_source(&mut self) -> Result<Option<SourceId>> {
        let forced = self.forced()?;
        if forced != Some(SourceId::Broker) && self.sources.bpf.knows_network(&pin::directory()) {
            return Ok(Some(SourceId::Bpf));
        }
        if !matches!(forced, None | Some(SourceId::Broker)) {
            return Ok(None);
        }
        if self.facts().broker.verdict == Verdict::Unknown {
            // The facts have the outcome.
            let _ = self.connect_to_broker();
        }
        let counts = self.facts().broker.is_yes() && self.sources.broker()?.counts_network();
        Ok(counts.then_some(SourceId::Broker))
    }

    /// A plan whose programs are loaded. A failure to load changes the facts, and so the plan.
    fn loaded_plan(&mut self, prepared: &Preparation) -> Result<Plan> {
        loop {
            let plan = self.plan(prepared)?;
            let Some((way, mut needed)) = plan.bpf.filter(|(way, _)| *way != BpfWay::Loaded) else {
                return Ok(plan);
            };
            if plan.tested {
                needed = needed.or(Groups::TESTABLE);
            }
            if plan.run {
                needed = needed.with(Group::Args);
            }
            let Err(error) = self.sources.bpf.prepare(way, needed, &pin::directory()) else {
                return Ok(plan);
            };
            let facts = self.facts();
            match way {
                BpfWay::Pinned => facts.pinned = refused(&error),
                _ => facts.task_iterator = refused(&error),
            }
        }
    }

    fn load_programs(&mut self, groups: Groups) -> Result<()> {
        if self.sources.bpf.loaded().is_some_and(|loaded| loaded.covers(groups)) {
            return Ok(());
        }
        let result = self.sources.bpf.prepare(BpfWay::ToLoad, groups, &pin::directory());
        self.facts().task_iterator = match &result {
            Ok(()) if self.sources.bpf.finds_tasks_itself() => Fact::yes("loaded; it finds the tasks itself"),
            Ok(()) => Fact::yes("loaded; the kernel calls it for each task"),
            Err(error) => refused(error),
        };
        result?;
        let patience = self.patience_of_calls();
        self.hidden.find(&mut self.sources, patience)?;
        Ok(())
    }

    fn connect_to_broker(&mut self) -> Result<()> {
        match self.sources.broker().map(|broker| broker.shows_of_all()) {
            Ok(groups) => {
                let facts = self.facts();
                facts.broker = Fact::yes("it answers");
                facts.broker_shows = groups;
                Ok(())
            }
            Err(error) => {
                self.note_no_broker(&error);
                Err(error)
            }
        }
    }

    fn note_no_broker(&mut self, error: &Error) {
        let fact = broker::fact_of(self.sources.broker_path(), error);
        self.facts().broker = fact;
    }

    /// Finds out whether there is a broker, if the planner may choose it. Fails if the broker was
    /// chosen and the listener refuses or is not a broker.
    fn try_broker(&mut self) -> Result<()> {
        let source = self.forced()?;
        let facts = self.facts();
        let is_tried = match source {
            // If nobody listened before, somebody may now: no other source can answer.
            Some(SourceId::Broker) => facts.broker.is_yes(),
            _ => facts.broker.verdict != Verdict::Unknown,
        };
        let may_load = facts.bpf_load.verdict == Verdict::Yes || facts.pinned.is_yes();
        let may_be_chosen = source == Some(SourceId::Broker) || source.is_none() && !may_load;
        if may_be_chosen && !is_tried {
            match self.connect_to_broker() {
                // Starting a broker would not help.
                Err(error) if source.is_some() && error.kind() != ErrorKind::System => return Err(error),
                // The facts have the outcome.
                _ => {}
            }
        }
        Ok(())
    }

    /// The facts about this host, extended as more is found out.
    fn facts(&mut self) -> &mut Support {
        let (proc, broker) = (self.sources.proc(), self.sources.broker_path());
        self.support.get_or_insert_with(|| {
            let built = [recipe::TASK_CALLED.as_ref(), recipe::TASK_WALK.as_ref()];
            let why_not = built.into_iter().find_map(|recipe| recipe.err().copied());
            let mut support = probe::probe(proc, why_not.unwrap_or_default(), &pin::directory(), broker);
            if let Some(why) = proc.why_no_ids() {
                let no = Fact::no(why, procfs::SHARE);
                (support.bpf_load, support.pinned, support.broker) = (no.clone(), no.clone(), no);
            }
            support
        })
    }

    fn prepared(&self, query: &Query) -> Result<Preparation> {
        Preparation::new(query, self.patience_of_calls(), self.one_shot)
    }

    /// How long one system call on a process may make no progress, unless a query says otherwise.
    pub(crate) fn patience_of_calls(&self) -> Duration {
        self.patience.unwrap_or(readers::PATIENCE)
    }

    /// Which procfs is read.
    pub(crate) fn proc(&self) -> &Proc {
        self.sources.proc()
    }

    /// The only source that may answer.
    pub(crate) fn only_source(&self) -> Option<SourceId> {
        let only_procfs = self.proc().is_outer().then_some(SourceId::Procfs);
        self.source.or(only_procfs)
    }

    /// The only source that may answer, if it can.
    fn forced(&self) -> Result<Option<SourceId>> {
        if let Some(source) = self.source.filter(|&source| source != SourceId::Procfs) {
            self.proc().check_ids(&format!("{source} can't answer"))?;
        }
        Ok(self.only_source())
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Handle {
    /// A handle with the settings of a client; `None` is the default. A socket alone selects the
    /// broker.
    pub fn of_settings(source: Option<SourceId>, socket: Option<&Path>, patience: Option<Duration>) -> Handle {
        let mut handle = Handle {
            patience,
            ..Handle::default()
        };
        if let Some(path) = socket {
            handle = handle.with_socket(path);
        }
        match source.or(socket.map(|_| SourceId::Broker)) {
            Some(source) => handle.with_source(source),
            None => handle,
        }
    }

    /// Lets a recording answer instead of all sources.
    pub fn of_past(past: Box<dyn Past>) -> Handle {
        Handle {
            past: Some(past),
            ..Handle::default()
        }
    }

    /// Whether hierarchies of version 1 are in use. Derived values depend on this, so recordings
    /// need it.
    pub fn has_cgroup1() -> bool {
        derived::has_cgroup1()
    }

    /// Like [`prepare`](Handle::prepare), for all that a query needs: also what decides which tasks
    /// it is about.
    pub fn prepare_query(&mut self, query: &Query) -> Result<()> {
        let groups = Groups::of(query.fields_read());
        let is_tested = query.filter.is_some() || query.changed;
        self.prepare_groups(if is_tested { groups.or(Groups::TESTABLE) } else { groups })
    }

    /// Calls `ask` with the patience of a query, if that has its own: for the files and sockets of
    /// its tasks.
    pub fn with_patience_of<T>(&mut self, query: &Query, ask: impl FnOnce(&mut Handle) -> T) -> T {
        let before = self.patience;
        self.patience = query.patience.or(before);
        let answer = ask(self);
        self.patience = before;
        answer
    }

    /// Whether BPF answers a query about changed tasks and leaves out the others in the kernel.
    /// Other sources must read all tasks to find the changed ones. Loads what BPF needs.
    pub fn knows_changes(&mut self, query: &Query) -> bool {
        let plan = self.prepared(query).and_then(|prepared| self.loaded_plan(&prepared));
        plan.is_ok_and(|plan| plan.first().0 == SourceId::Bpf) && self.sources.bpf.knows_changes()
    }

    /// Whether a path, in the form that [`Filter::within_cgroup`](crate::Filter::within_cgroup)
    /// takes, is that of a cgroup. `None` if this can't be seen: outside the caller's cgroup
    /// namespace, or if no hierarchy is mounted.
    pub fn is_cgroup(&self, path: &[u8]) -> Option<bool> {
        probe::is_cgroup(path)
    }

    /// The contents of files of a task's cgroups. `lines` have the form of [`Field::Cgroups`]. The
    /// kernel itself provides them, so no process can block the reader. [`Absent::Unsupported`] if
    /// the hierarchy is not mounted, does not show the cgroup here, or lacks the file.
    pub fn cgroup_files(&self, lines: &[u8], names: &[&str]) -> Vec<std::result::Result<Vec<u8>, Absent>> {
        procfs::cgroup_files(lines, names)
    }
}

/// The fact that programs can't be loaded.
fn refused(error: &Error) -> Fact {
    let why = format!("{error:#}");
    match error.kind() {
        ErrorKind::Denied => Fact::denied(
            why,
            rights::capability_remedy("it needs CAP_BPF and CAP_PERFMON: run as root, or ask the broker"),
        ),
        _ => Fact::no(why, ""),
    }
}

#[cfg(all(test, not(feature = "bpf")))]
mod tests;
