//! The handle: it plans a query, asks a source, and completes the answer.
//!
//! [`Sources`] are opened when they are needed, [`scope`] says which tasks a query is about,
//! [`Completion`] adds what the first source does not have, [`Derived`] adds derived fields, and
//! [`Remembered`] is what is kept of tasks until the next query.

mod complete;
mod derived;
mod explanation;
mod hidden;
mod past;
mod remembered;
mod scope;
mod sources;
mod supplement;

use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use taskdiag_bpf::pin;
use taskdiag_bpf::recipe;
use taskdiag_bpf::rights;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::{Field, Fields, Group, Groups};
use taskdiag_core::filter::Filter;
use taskdiag_core::plan::{plan, BpfWay, Cost, Plan, State};
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::snapshot::{Snapshot, SourceId, Task};
use taskdiag_core::support::{Fact, Support, Verdict};

use crate::files::{self, Files};
use crate::memory::{Progress, RollupRequest, Rollups, StillThere};
use crate::peers::Peers;
use crate::probe;
use crate::readers;
use crate::sockets;
use crate::source::procfs;
use crate::source::TaskRequest;
use complete::{fields_of, Completion};
use derived::Derived;
use hidden::Hidden;
use remembered::Remembered;
use sources::{all_shown, Sources};

pub use explanation::Explanation;
pub use past::{answer as answer_past, Past};

/// Asks the kernel about tasks.
///
/// Making a handle is free. What a query needs is opened or loaded when it is first needed, and
/// kept: keep the handle.
///
/// A handle is used by one thread at a time; several handles do not disturb each other. After
/// fork(2) the child's copy notices and begins afresh, so parent and child never share the memory
/// of a BPF program.
///
/// Capabilities are needed only while something is loaded: they can be dropped after
/// [`prepare`](Handle::prepare), or after a first query that BPF answered (Linux 6.0 and later).
#[derive(Default)]
pub struct Handle {
    /// The only source that may answer.
    source: Option<SourceId>,
    /// The only source that may answer [`Group::Rollup`].
    rollup_source: Option<SourceId>,
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
    /// What is asked instead of all sources.
    past: Option<Box<dyn Past>>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("source", &self.source)
            .field("rollup_source", &self.rollup_source)
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

    /// Lets only this source answer: a query that it can't answer fails.
    ///
    /// What a source can't answer exactly for single tasks is still asked of procfs, and counted in
    /// [`Counters::deferred`](crate::Counters::deferred).
    ///
    /// [`SourceId::SmapsRollup`] and [`SourceId::Smaps`] answer [`Group::Rollup`] and nothing else.
    /// Choosing one of these does not change who answers all other groups.
    pub fn with_source(mut self, source: SourceId) -> Handle {
        match source {
            SourceId::SmapsRollup | SourceId::Smaps => self.rollup_source = Some(source),
            _ => self.source = Some(source),
        }
        self
    }

    /// Lets a recording answer, and no source.
    #[doc(hidden)]
    pub fn of_past(past: Box<dyn Past>) -> Handle {
        Handle {
            past: Some(past),
            ..Handle::default()
        }
    }

    /// Whether hierarchies of version 1 are in use: what derived values depend on, for recordings.
    #[doc(hidden)]
    pub fn has_cgroup1() -> bool {
        derived::has_cgroup1()
    }

    /// The path of the broker's socket, if it is not `/run/taskdiag/taskdiag.sock`.
    pub fn with_socket(mut self, path: impl Into<PathBuf>) -> Handle {
        self.sources.set_broker_path(path.into());
        self
    }

    /// The default of [`Query::patience`]: how long one system call on a process may take without
    /// progress. 0.2 seconds unless this is called.
    pub fn with_patience(mut self, patience: Duration) -> Handle {
        self.patience = Some(patience);
        self
    }

    /// Says that there will be only one query: nothing is worth being remembered for the next.
    pub fn one_shot(mut self) -> Handle {
        self.one_shot = true;
        self
    }

    /// What this host can answer with, as far as is known without loading anything. Probed once;
    /// what [`prepare`](Handle::prepare) and queries find out is added.
    pub fn support(&mut self) -> &Support {
        self.facts()
    }

    /// How `query` would be answered now: which source reads what, and where the parts of its
    /// filter are decided.
    ///
    /// # Errors
    ///
    /// As [`query`](Handle::query), when no source can answer.
    pub fn explain(&mut self, query: &Query) -> Result<Explanation> {
        Ok(Explanation::new(query, self.plan(query)?))
    }

    /// Loads the BPF programs that can answer `fields`, even if that is not worth it for one query.
    /// It takes some ten milliseconds, and `CAP_BPF` and `CAP_PERFMON` (Linux 5.17).
    ///
    /// # Errors
    ///
    /// [`Denied`](ErrorKind::Denied) or [`Unsupported`](ErrorKind::Unsupported), with what is
    /// missing. Queries are then answered by procfs.
    pub fn prepare(&mut self, fields: impl Into<Fields>) -> Result<()> {
        let groups = Groups::of(fields.into());
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
        self.hidden
            .find(&mut self.sources, self.patience.unwrap_or(readers::PATIENCE))?;
        Ok(())
    }

    /// Whether BPF answers a query about changed tasks and leaves out the others, of which other sources
    /// have to read all to find that out. Loads what that takes.
    #[doc(hidden)]
    pub fn knows_changes(&mut self, query: &Query) -> bool {
        let is_by_bpf = self
            .prepared_plan(query)
            .is_ok_and(|plan| plan.first().0 == SourceId::Bpf);
        is_by_bpf && self.sources.bpf.knows_changes()
    }

    /// Connects to the broker, even if the planner would not choose it.
    ///
    /// # Errors
    ///
    /// [`Denied`](ErrorKind::Denied), [`Unsupported`](ErrorKind::Unsupported) if it speaks another
    /// version, or [`System`](ErrorKind::System) if nobody listens or answers.
    pub fn prepare_broker(&mut self) -> Result<()> {
        let shows = self.sources.broker().map(|broker| broker.shows_of_all());
        let facts = self.facts();
        match shows {
            Ok(groups) => {
                facts.broker = Fact::yes("it answers");
                facts.broker_shows = groups;
                Ok(())
            }
            Err(error) => {
                facts.broker = Fact::no(format!("{error:#}"), "as root: taskdiagd");
                Err(error)
            }
        }
    }

    /// Asks.
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

    /// Asks, and puts the answer into the memory of an earlier one. What that had is lost, also
    /// after an error.
    ///
    /// # Errors
    ///
    /// As [`query`](Handle::query).
    pub fn query_into(&mut self, query: &Query, snapshot: &mut Snapshot) -> Result<()> {
        if let Some(past) = &mut self.past {
            return past::answer(&mut **past, query, snapshot);
        }
        let Scope::DescendantsOf(pid) = query.scope else {
            return self.answer(query, snapshot);
        };
        let parents = Query::processes().fields(Field::Ppid | Field::StartNs);
        let mut all = Snapshot::default();
        self.answer_cheap(&parents, &mut all)?;
        let descendants = scope::descendants(&all, pid)?;
        let mut listed = query.clone();
        listed.scope = Scope::Listed;
        listed.pids = descendants.iter().map(|task| task.tid()).collect();
        self.answer(&listed.with_fields_read(Field::StartNs), snapshot)?;
        // One may have ended meanwhile, and its number may be another process's.
        snapshot.retain(|task| descendants.contains(&scope::identity(task)));
        snapshot.missing.clear();
        snapshot.counters.tasks = snapshot.rows.len() as u64;
        Ok(())
    }

    /// Passes each file that the processes of a snapshot use to `each`, which ends the pass with
    /// [`ControlFlow::Break`]. The files of a process come one after the other, in the order of the
    /// snapshot: mapped files, working directory, root directory, program, descriptors by number.
    /// `each` gets the process, too, with the fields that its query asked for.
    ///
    /// The memory that this takes does not depend on how many files there are.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the query of the processes did not ask for
    /// [`Field::StartNs`], which tells one process from another; otherwise as
    /// [`prepare_files`](Handle::prepare_files).
    ///
    /// A process that has ended or may not be seen is no error: the [`Answer`](files::Answer)
    /// counts it.
    pub fn files(
        &mut self,
        processes: &Snapshot,
        request: &files::Request,
        mut each: impl FnMut(&Task<'_>, &files::OpenFile<'_>) -> ControlFlow<()>,
    ) -> Result<files::Answer> {
        let patience = self.patience.unwrap_or(readers::PATIENCE);
        let source = self.prepare_files(processes)?;
        let peers = if request.fields.contains(files::FileField::Peers) {
            Some(Peers::for_files(self)?)
        } else {
            None
        };
        let via = match source {
            SourceId::Broker => files::Via::Broker(self.sources.broker()?),
            source => files::Via::Own(source),
        };
        files::answer(&mut self.files, via, processes, request, peers, patience, &mut each)
    }

    /// Says who will answer [`files`](Handle::files) about these processes, and loads what that
    /// takes.
    ///
    /// # Errors
    ///
    /// [`Denied`](ErrorKind::Denied) or [`Unsupported`](ErrorKind::Unsupported) if the source of
    /// [`with_source`](Handle::with_source) can't answer; an older broker can't.
    /// [`Unsupported`](ErrorKind::Unsupported) or [`System`](ErrorKind::System) if `/proc` is not
    /// mounted: BPF and the broker leave to it what they can't tell exactly.
    pub fn prepare_files(&mut self, processes: &Snapshot) -> Result<SourceId> {
        let source = self.files.prepare(self.source, processes.len())?;
        self.sources.procfs()?;
        if source == SourceId::Broker {
            self.sources.broker()?.check_files()?;
        }
        Ok(source)
    }

    /// Whether this source does not show every process.
    pub(crate) fn hides_processes(&mut self, source: SourceId) -> bool {
        match source {
            SourceId::Broker => !self.sources.broker().is_ok_and(|broker| broker.sees_all()),
            SourceId::Procfs => self.facts().procfs_complete.verdict == Verdict::No,
            _ => false,
        }
    }

    /// Passes each socket of the machine to `each`, which ends the pass with
    /// [`ControlFlow::Break`]. Those of a network namespace come one after the other, the caller's
    /// own first. The owners are found among `processes`.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) if owners are asked for and the query of the
    /// processes did not ask for [`Field::StartNs`];
    /// [`Unsupported`](ErrorKind::Unsupported) if the source of
    /// [`with_source`](Handle::with_source) does not know about descriptors; otherwise as
    /// [`files`](Handle::files).
    ///
    /// A namespace that may not be entered, or a list that the kernel does not have, is no error:
    /// the [`Answer`](sockets::Answer) counts it.
    pub fn sockets(
        &mut self,
        processes: &Snapshot,
        request: &sockets::Request,
        mut each: impl FnMut(&sockets::Socket<'_>) -> ControlFlow<()>,
    ) -> Result<sockets::Answer> {
        let patience = self.patience.unwrap_or(readers::PATIENCE);
        let source = self.source;
        sockets::answer(self, source, processes, request, patience, &mut each)
    }

    /// How far the query that is running has come with [`Group::Rollup`], which can take long.
    /// Another thread can look at it.
    pub fn progress(&self) -> Arc<Progress> {
        self.rollups.progress()
    }

    /// Whether a path, as [`Filter::within_cgroup`](crate::Filter::within_cgroup) takes it, is that
    /// of a cgroup. `None` where that can't be seen: outside of the caller's cgroup namespace, or
    /// if the unified hierarchy is not mounted.
    #[doc(hidden)]
    pub fn is_cgroup(&self, path: &[u8]) -> Option<bool> {
        probe::is_cgroup(path)
    }

    /// The texts of files of a cgroup of the unified hierarchy, by its path as [`Field::Cgroup`] has
    /// it. They are the kernel's own, and no process can hold who reads them.
    /// [`Absent::Unsupported`] if the hierarchy is not mounted, does not show the cgroup here, or
    /// has no such file in it.
    #[doc(hidden)]
    pub fn cgroup_files(&self, path: &[u8], names: &[&str]) -> Vec<std::result::Result<Vec<u8>, Absent>> {
        procfs::cgroup_files(path, names)
    }

    /// Answers with all groups: first those that sources read, then derived fields, then the rollups
    /// of the tasks that are left. Each part of the filter is decided as soon as the fields that it
    /// looks at are there.
    fn answer(&mut self, query: &Query, snapshot: &mut Snapshot) -> Result<()> {
        let fields = query.fields_read();
        let has_derived = has_group(fields, Group::Derived);
        let has_rollup = has_group(fields, Group::Rollup);
        if !has_derived && !has_rollup {
            return self.answer_cheap(query, snapshot);
        }
        let began = Instant::now();
        let mut cheap = query.clone();
        if self.one_shot {
            cheap.budget.max_age = Duration::ZERO;
        }
        let fields = cheap.fields_read();
        let rollup = if has_rollup {
            self.plan(&cheap)?.answer(Group::Rollup)
        } else {
            None
        };
        cheap.fields = fields.without(Fields::of_group(Group::Rollup));
        let filter = cheap.filter.take();
        let without_rollup = filter.and_then(|filter| filter.part_without(Group::Rollup));
        let filter = without_rollup.as_ref();
        cheap.filter = filter.and_then(|filter| filter.part_without(Group::Derived));
        self.answer_cheap(&cheap, snapshot)?;
        snapshot.fields = fields;
        if has_derived {
            let patience = self.patience(query);
            self.derived.add(patience, snapshot);
            retain_late(without_rollup.as_ref(), Group::Derived, snapshot);
        }
        if has_rollup {
            snapshot.answers[Group::Rollup as usize] = rollup;
            if let Some(Ok(source)) = rollup {
                self.add_rollups(&cheap, source, began, snapshot)?;
            }
            retain_late(query.filter.as_ref(), Group::Rollup, snapshot);
        }
        Ok(())
    }

    fn add_rollups(&mut self, query: &Query, source: SourceId, began: Instant, snapshot: &mut Snapshot) -> Result<()> {
        let request = RollupRequest {
            source,
            budget: &query.budget,
            patience: self.patience(query),
            began,
            is_threads: query.scope.is_threads(),
            hidden: self.hidden.known(),
        };
        let (procfs, bpf) = self.sources.procfs_and_bpf()?;
        let mut still_there = || all_shown(bpf, false);
        let is_by_bpf = snapshot.answers[Group::Mem as usize] == Some(Ok(SourceId::Bpf));
        let still_there: StillThere<'_> = if is_by_bpf { Some(&mut still_there) } else { None };
        self.rollups.read(procfs, &request, still_there, snapshot)
    }

    /// Answers with all groups but [`Group::Derived`] and [`Group::Rollup`].
    fn answer_cheap(&mut self, query: &Query, snapshot: &mut Snapshot) -> Result<()> {
        snapshot.clear(query.fields_read());
        scope::check(query)?;
        let plan = self.prepared_plan(query)?;
        for group in Groups::of(snapshot.fields).iter() {
            snapshot.answers[group as usize] = plan.answer(group);
        }
        let knows_changes = self.ask(query, &plan, snapshot)?;
        if plan.first().0 != SourceId::Procfs {
            let patience = self.patience(query);
            let mut completion = Completion {
                query,
                plan: &plan,
                patience,
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
        let is_filtered = query.filter.is_some() || query.changed;
        match query.scope {
            Scope::Process(pid) | Scope::ThreadsOf(pid) if is_empty && !is_filtered => Err(Error::no_such_process(pid)),
            // The process may also have no children.
            Scope::ChildrenOf(pid)
                if is_empty && plan.bpf.is_some() && !self.hidden.or_shown(&mut self.sources, pid)? =>
            {
                Err(Error::no_such_process(pid))
            }
            _ => Ok(()),
        }
    }

    /// Asks the source that says which tasks there are. Returns whether it left out tasks that have
    /// not changed.
    fn ask(&mut self, query: &Query, plan: &Plan, snapshot: &mut Snapshot) -> Result<bool> {
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
            patience: self.patience(query),
        };
        self.sources.get(first)?.read_tasks(&request, snapshot)
    }

    fn plan(&mut self, query: &Query) -> Result<Plan> {
        self.try_broker()?;
        let state = State {
            forced: self.source,
            forced_rollup: self.rollup_source,
            loaded: self.sources.bpf.loaded(),
            regret_ns: self.regret_ns,
            is_last: self.one_shot,
        };
        plan(query, self.facts(), &state, &Cost::default())
    }

    /// A plan whose programs are loaded. What can't be loaded changes the facts, and with them the
    /// plan.
    fn prepared_plan(&mut self, query: &Query) -> Result<Plan> {
        loop {
            let plan = self.plan(query)?;
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

    /// Finds out whether there is a broker, if the planner may choose it. Fails if it was chosen, and
    /// who listens refuses or is none.
    fn try_broker(&mut self) -> Result<()> {
        let source = self.source;
        let facts = self.facts();
        let is_tried = match source {
            // If nobody listened, somebody may now: nobody else can answer.
            Some(SourceId::Broker) => facts.broker.is_yes(),
            _ => facts.broker.verdict != Verdict::Unknown,
        };
        let may_load = facts.bpf_load.verdict == Verdict::Yes || facts.pinned.is_yes();
        let may_be_chosen = source == Some(SourceId::Broker) || source.is_none() && !may_load;
        if may_be_chosen && !is_tried {
            match self.prepare_broker() {
                // To start a broker is no remedy.
                Err(error) if source.is_some() && error.kind() != ErrorKind::System => return Err(error),
                // The facts have what came of it.
                _ => {}
            }
        }
        Ok(())
    }

    /// The facts about this host, to which more is added as it is found out.
    fn facts(&mut self) -> &mut Support {
        let broker = self.sources.broker_path();
        self.support.get_or_insert_with(|| {
            let built = [recipe::TASK_CALLED.as_ref(), recipe::TASK_WALK.as_ref()];
            let why_not = built.into_iter().find_map(|recipe| recipe.err().copied());
            probe::probe(why_not.unwrap_or_default(), &pin::directory(), broker)
        })
    }

    fn patience(&self, query: &Query) -> Duration {
        query.patience.or(self.patience).unwrap_or(readers::PATIENCE)
    }
}

/// Whether some field is of `group`.
fn has_group(fields: Fields, group: Group) -> bool {
    fields.iter().any(|field| field.group() == group)
}

/// Drops the rows that a filter is not true of, if it looks at `group`, whose values were just
/// added.
fn retain_late(filter: Option<&Filter>, group: Group, snapshot: &mut Snapshot) {
    if let Some(filter) = filter.filter(|filter| has_group(filter.fields(), group)) {
        let mut counters = snapshot.counters;
        counters.candidates = 0;
        snapshot.retain(|task| filter.admits(task, &mut counters));
        snapshot.counters = counters;
        snapshot.counters.tasks = snapshot.rows.len() as u64;
    }
}

/// The fact that programs can't be loaded.
fn refused(error: &Error) -> Fact {
    let why = format!("{error:#}");
    match error.kind() {
        ErrorKind::Denied => {
            let remedy = rights::capability_remedy("run as root, or with CAP_BPF and CAP_PERFMON");
            Fact::denied(why, remedy)
        }
        _ => Fact::no(why, ""),
    }
}

#[cfg(all(test, not(feature = "bpf")))]
mod tests_without_bpf;
