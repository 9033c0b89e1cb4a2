//! The handle: what is kept from one query to the next, and the way of a query: it is planned, asked, and completed.

mod changes;
mod hidden;
mod supplement;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use taskdiag_bpf::pass::Bpf;
use taskdiag_bpf::pin;
use taskdiag_bpf::recipe;
use taskdiag_bpf::rights;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::{Field, Fields, Group, Groups};
use taskdiag_core::filter::Filter;
use taskdiag_core::identity::Identity;
use taskdiag_core::kept::{Arguments, Times};
use taskdiag_core::plan::{plan, BpfWay, Cost, Explanation, Plan, State};
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::record::{self, attr, Record};
use taskdiag_core::snapshot::{Snapshot, SourceId};
use taskdiag_core::support::{Fact, Support, Verdict};
use taskdiag_protocol::wire::{self};

use crate::memory::{self, Progress, Rollups, StillThere};
use crate::probe;
use crate::source::broker::Broker;
use crate::source::procfs::{self, Procfs};
use crate::source::{Source, TaskRequest};
use changes::Changes;
use supplement::ids_of_all;

/// Asks the kernel. Making one is free: what a query needs is opened or loaded when it is first needed, and kept.
///
/// A handle is used by one thread at a time; several handles do not disturb each other. After `fork()` the child's copy
/// notices and begins afresh, so that the two never share a program's memory.
///
/// Capabilities are needed only while something is loaded: after [`prepare`](Handle::prepare), or after a first query that
/// was answered by BPF, they can be dropped (on Linux 6.0 and later).
#[derive(Debug, Default)]
pub struct Handle {
    source: Option<SourceId>,
    one_shot: bool,
    patience: Option<Duration>,
    support: Option<Support>,
    regret_ns: u64,
    bpf: Bpf,
    procfs: Option<Procfs>,
    broker: Option<Broker>,
    broker_path: Option<PathBuf>,
    /// Processes that this kernel does not show to iterators, once that is known.
    hidden: Option<Vec<u32>>,
    changes: Changes,
    arguments: Arguments,
    /// Of processes, and of threads.
    times: [Times; 2],
    rollup_source: Option<SourceId>,
    rollups: Rollups,
}

impl Handle {
    /// A handle that chooses its sources itself.
    pub fn new() -> Handle {
        Handle::default()
    }

    /// Lets only this source answer: a query that it can't answer fails.
    ///
    /// What a source meets but can't answer exactly for single tasks is still asked of procfs and counted in
    /// [`Counters::deferred`](taskdiag_core::snapshot::Counters::deferred).
    ///
    /// [`SourceId::SmapsRollup`] and [`SourceId::Smaps`] answer [`Group::Rollup`] and nothing else; which
    /// source answers that, and which all the rest, are two choices.
    pub fn with_source(mut self, source: SourceId) -> Handle {
        match source {
            SourceId::SmapsRollup | SourceId::Smaps => self.rollup_source = Some(source),
            _ => self.source = Some(source),
        }
        self
    }

    /// How far the query that is being answered has come with [`Group::Rollup`], which can take long.
    pub fn progress(&self) -> Arc<Progress> {
        self.rollups.progress()
    }

    /// Where the broker listens, if not at [`SOCKET`](taskdiag_protocol::wire::SOCKET).
    pub fn with_socket(mut self, path: impl Into<PathBuf>) -> Handle {
        self.broker_path = Some(path.into());
        self
    }

    /// How long a process may keep a reader waiting in one system call: see [`Query::patience`]. 0.2 seconds unless it is said.
    pub fn with_patience(mut self, patience: Duration) -> Handle {
        self.patience = Some(patience);
        self
    }

    /// Says that there will be only one query, so that nothing is worth being remembered for a next one.
    pub fn one_shot(mut self) -> Handle {
        self.one_shot = true;
        self
    }

    /// What this host can answer with, as far as is known without loading anything.
    pub fn support(&mut self) -> &Support {
        let broker = broker_path(&self.broker_path);
        self.support.get_or_insert_with(|| {
            let built = [recipe::TASK_CALLED.as_ref(), recipe::TASK_WALK.as_ref()];
            let why_not = built.into_iter().find_map(|recipe| recipe.err().copied());
            probe::probe(why_not.unwrap_or_default(), &pin::directory(), broker)
        })
    }

    /// Whether a path, as [`Filter::within_cgroup`] takes it, is that of a cgroup. None where that can't be seen: outside of the
    /// caller's cgroup namespace, or if the unified hierarchy is not mounted.
    pub fn is_cgroup(&self, path: &[u8]) -> Option<bool> {
        probe::is_cgroup(path)
    }

    /// Who would answer `query`, and at what price.
    pub fn plan(&mut self, query: &Query) -> Result<Plan> {
        self.try_broker();
        let state = State {
            forced: self.source,
            forced_rollup: self.rollup_source,
            loaded: self.bpf.loaded(),
            regret_ns: self.regret_ns,
            is_last: self.one_shot,
        };
        plan(query, self.support(), &state, &Cost::default())
    }

    /// How `query` would be answered: who reads what, and which part of its filter is decided where.
    pub fn explain(&mut self, query: &Query) -> Result<Explanation> {
        let plan = self.plan(query)?;
        let filter = query.filter.as_ref();
        let first = match plan.bpf {
            Some(_) if !plan.tested => None,
            Some(_) => filter.map(|filter| filter.kernel_tests(&|path| procfs::cgroup_id(path)).to_string()),
            None if plan.broker.is_some() => None,
            None => filter.and_then(|filter| Some(filter.cheap_part()?.to_string())),
        };
        Ok(Explanation {
            plan,
            first: first.filter(|part| !part.is_empty()),
            last: filter.map(Filter::to_string),
        })
    }

    /// Loads the BPF programs that can answer `fields`, whether or not that is worth it for one query. Errors say why it
    /// can't be done; queries then are answered by procfs.
    pub fn prepare(&mut self, fields: impl Into<Fields>) -> Result<()> {
        let groups = fields.into().groups();
        if self.bpf.loaded().is_some_and(|loaded| loaded.covers(groups)) {
            return Ok(());
        }
        let result = self.bpf.prepare(BpfWay::ToLoad, groups, &pin::directory());
        self.support();
        let fact = match &result {
            Ok(()) if self.bpf.finds_tasks_itself() => Fact::yes("loaded; it finds the tasks itself"),
            Ok(()) => Fact::yes("loaded; the kernel calls it for each task"),
            Err(error) => Fact::no(error.to_string(), remedy(error)),
        };
        if let Some(support) = &mut self.support {
            support.task_iterator = fact;
        }
        result.and_then(|()| self.find_hidden())
    }

    /// Connects to the broker, whether or not a query would be its. Errors say why it can't be asked.
    pub fn prepare_broker(&mut self) -> Result<()> {
        let opened = self.broker().map(|broker| broker.shows_of_all());
        self.support();
        if let Some(support) = &mut self.support {
            match &opened {
                Ok(groups) => {
                    support.broker = Fact::yes("it answers");
                    support.broker_shows = *groups;
                }
                Err(error) => support.broker = Fact::no(error.to_string(), "as root: taskdiagd"),
            }
        }
        opened.map(drop)
    }

    /// Asks.
    pub fn query(&mut self, query: &Query) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        self.query_into(query, &mut snapshot)?;
        Ok(snapshot)
    }

    /// Asks, and puts the answer into the memory of an earlier one. What that held is gone, also after an error.
    pub fn query_into(&mut self, query: &Query, snapshot: &mut Snapshot) -> Result<()> {
        let Scope::DescendantsOf(pid) = query.scope else {
            return self.answer_whole(query, snapshot);
        };
        let descendants = self.descendants(pid)?;
        let listed = Query {
            scope: Scope::Listed,
            pids: descendants.iter().map(|task| task.tid()).collect(),
            ..query.clone()
        };
        self.answer_whole(&listed.with_fields_read(Field::StartNs), snapshot)?;
        // One that ended, and whose number went to another process, is none.
        snapshot.retain(|task| descendants.contains(&Identity::of(task.record().header())));
        snapshot.missing.clear();
        snapshot.counters.tasks = snapshot.rows.len() as u64;
        Ok(())
    }

    /// Answers with all groups: those that are cheap first, and then the rollups of what is left.
    fn answer_whole(&mut self, query: &Query, snapshot: &mut Snapshot) -> Result<()> {
        if !query.fields_read().groups().contains(Group::Rollup) {
            return self.answer(query, snapshot);
        }
        let began = Instant::now();
        let mut cheap = query.clone();
        if self.one_shot {
            cheap.budget.max_age = Duration::ZERO;
        }
        let (budget, fields) = (cheap.budget, cheap.fields_read());
        let rollup = self.plan(&cheap)?.answer(Group::Rollup);
        cheap.fields = fields.without_group(Group::Rollup);
        cheap.filter = cheap.filter.and_then(|filter| filter.part_without(Group::Rollup));
        self.answer(&cheap, snapshot)?;
        snapshot.fields = fields;
        snapshot.answers[Group::Rollup as usize] = rollup;
        if let Some(Ok(source)) = rollup {
            self.procfs()?;
            let request = memory::RollupRequest {
                source,
                budget: &budget,
                patience: self.patience(query),
                began,
                is_threads: query.scope.is_threads(),
                hidden: self.hidden.as_deref().unwrap_or_default(),
            };
            let bpf = &mut self.bpf;
            let mut still_there = || ids_of_all(bpf, false);
            let is_by_bpf = snapshot.answers[Group::Mem as usize] == Some(Ok(SourceId::Bpf));
            let still_there: StillThere<'_> = if is_by_bpf { Some(&mut still_there) } else { None };
            if let Some(procfs) = &self.procfs {
                self.rollups.read(procfs, &request, still_there, snapshot)?;
            }
        }
        if let Some(filter) = query
            .filter
            .as_ref()
            .filter(|filter| filter.fields().groups().contains(Group::Rollup))
        {
            let mut counters = snapshot.counters;
            counters.candidates = 0;
            snapshot.retain(|task| filter.admits(task, &mut counters));
            snapshot.counters = counters;
            snapshot.counters.tasks = snapshot.rows.len() as u64;
        }
        Ok(())
    }

    fn answer(&mut self, query: &Query, snapshot: &mut Snapshot) -> Result<()> {
        snapshot.clear(query.fields_read());
        // To iterators, 0 stands for every task.
        if let Scope::Process(0) | Scope::ThreadsOf(0) | Scope::ChildrenOf(0) = query.scope {
            return Err(Error::no_such_process(0));
        }
        let plan = self.ready_plan(query)?;
        for group in snapshot.fields.groups().iter() {
            snapshot.answers[group as usize] = plan.answer(group);
        }
        let left_out = self.ask_first(query, &plan, snapshot)?;
        if plan.first().0 != SourceId::Procfs {
            self.complete(query, &plan, snapshot)?;
        }
        self.regret_ns = self.regret_ns.saturating_add(plan.regret_ns);
        self.raise_times(query, snapshot);
        let is_empty = snapshot.is_empty();
        if query.changed && !left_out {
            self.changes.retain_changed(snapshot);
        }
        snapshot.counters.tasks = snapshot.rows.len() as u64;
        let is_filtered = query.filter.is_some() || query.changed;
        match query.scope {
            Scope::Process(pid) | Scope::ThreadsOf(pid) if is_empty && !is_filtered => Err(Error::no_such_process(pid)),
            // No rows may also mean that it has no children.
            Scope::ChildrenOf(pid) if is_empty && plan.bpf.is_some() && !self.iterators_show(pid)? => {
                Err(Error::no_such_process(pid))
            }
            _ => Ok(()),
        }
    }

    /// Finds out whether there is a broker, where a query may come to be its.
    fn try_broker(&mut self) {
        let support = self.support();
        let is_tried = support.broker.verdict != Verdict::Unknown;
        let may_load = support.bpf_load.verdict == Verdict::Yes || support.pinned.is_yes();
        match self.source {
            Some(SourceId::Broker) => {}
            None if !may_load => {}
            _ => return,
        }
        if !is_tried {
            // What came of it is a fact now.
            let _ = self.prepare_broker();
        }
    }

    fn broker(&mut self) -> Result<&mut Broker> {
        let opened = self.broker.take().filter(Broker::is_ours);
        let broker = opened.map_or_else(|| Broker::open(broker_path(&self.broker_path)), Ok)?;
        Ok(self.broker.insert(broker))
    }

    /// Asks who says which tasks there are. Returns whether it left out those that have not changed.
    fn ask_first(&mut self, query: &Query, plan: &Plan, snapshot: &mut Snapshot) -> Result<bool> {
        if query.scope.is_listed() && query.pids.is_empty() {
            return Ok(false);
        }
        let (first, groups) = plan.first();
        let tests = match &query.filter {
            Some(filter) if plan.tested => filter.kernel_tests(&|path| procfs::cgroup_id(path)).tests,
            _ => Vec::new(),
        };
        let asked = TaskRequest {
            query,
            fields: fields_of(snapshot.fields, groups),
            groups: if plan.run { groups.with(Group::Args) } else { groups },
            tests: &tests,
            changed: query.changed && plan.tested,
            one_by_one: plan.one_by_one,
            patience: self.patience(query),
        };
        let source: &mut dyn Source = match first {
            SourceId::Bpf => &mut self.bpf,
            SourceId::Broker => self.broker()?,
            _ => self.procfs()?,
        };
        source.read_tasks(&asked, snapshot)
    }

    /// Completes the answer of a source that is not procfs: with tasks that it does not see, without those that are not meant, and with
    /// what procfs reads of the rest.
    fn complete(&mut self, query: &Query, plan: &Plan, snapshot: &mut Snapshot) -> Result<()> {
        if let Some((_, groups)) = plan.bpf {
            self.add_hidden(query, groups, snapshot)?;
            self.ask_again(query, groups, snapshot)?;
        }
        if query.scope.is_listed() {
            retain_listed(query, snapshot);
            find_missing(query, snapshot);
        }
        snapshot.put_in_order();
        self.filter_and_fill_in(query, plan, snapshot);
        Ok(())
    }

    /// Drops the rows that are not meant, and asks procfs for what is its part of the others, and for what is deferred.
    fn filter_and_fill_in(&mut self, query: &Query, plan: &Plan, snapshot: &mut Snapshot) {
        if let Some(filter) = &query.filter {
            // What is deferred may still make it true.
            snapshot.retain(|task| filter.decide(task) != Some(false));
        }
        self.fill_in(query, plan, snapshot);
        if let Some(filter) = &query.filter {
            let mut counters = snapshot.counters;
            snapshot.retain(|task| filter.admits(task, &mut counters));
            snapshot.counters = counters;
        }
    }

    /// The processes that descend from one.
    fn descendants(&mut self, pid: u32) -> Result<BTreeSet<Identity>> {
        let mut all = Snapshot::default();
        self.answer(&Query::processes().fields(Field::Ppid | Field::StartNs), &mut all)?;
        let mut children: HashMap<u32, Vec<Identity>> = HashMap::new();
        let mut is_there = false;
        for task in all.tasks() {
            let child = Identity::of(task.record().header());
            is_there |= child.tid() == pid;
            if let Ok(parent) = task.ppid() {
                children.entry(parent).or_default().push(child);
            }
        }
        if !is_there {
            return Err(Error::no_such_process(pid));
        }
        let mut descendants = BTreeSet::new();
        let mut left = vec![pid];
        while let Some(parent) = left.pop() {
            let found = children.remove(&parent).unwrap_or_default();
            left.extend(found.iter().map(|child| child.tid()));
            descendants.extend(found);
        }
        Ok(descendants)
    }

    /// A plan whose programs are loaded. What can't be loaded changes the facts, and so the plan.
    fn ready_plan(&mut self, query: &Query) -> Result<Plan> {
        loop {
            let plan = self.plan(query)?;
            let Some((way, groups)) = plan.bpf.filter(|(way, _)| *way != BpfWay::Loaded) else {
                return Ok(plan);
            };
            let mut needed = if plan.tested {
                groups.or(Groups::TESTABLE)
            } else {
                groups
            };
            if plan.run {
                needed = needed.with(Group::Args);
            }
            let Err(error) = self.bpf.prepare(way, needed, &pin::directory()) else {
                return Ok(plan);
            };
            let fact = Fact::no(error.to_string(), remedy(&error));
            self.support();
            match (&mut self.support, way) {
                (Some(support), BpfWay::Pinned) => support.pinned = fact,
                (Some(support), _) => support.task_iterator = fact,
                (None, _) => return Err(error),
            }
        }
    }

    fn procfs(&mut self) -> Result<&mut Procfs> {
        let opened = self.procfs.take().filter(Procfs::is_ours);
        let procfs = opened.map_or_else(Procfs::open, Ok)?;
        Ok(self.procfs.insert(procfs))
    }

    fn patience(&self, query: &Query) -> Duration {
        query.patience.or(self.patience).unwrap_or(crate::readers::PATIENCE)
    }

    /// Asks procfs what a query asks.
    fn read_procfs(&mut self, query: &Query, fields: Fields, snapshot: &mut Snapshot) -> Result<()> {
        let patience = self.patience(query);
        self.procfs()?.read(query, fields, patience, snapshot)
    }

    /// Sees to it that no time of a task is below what this handle told before.
    fn raise_times(&mut self, query: &Query, snapshot: &mut Snapshot) {
        if self.one_shot || !snapshot.fields.groups().contains(Group::Cpu) {
            return;
        }
        let times = &mut self.times[usize::from(query.scope.is_threads())];
        for row in &snapshot.rows {
            let bytes = &mut snapshot.records[row.record..];
            let Some((record, _)) = Record::split_first(bytes) else {
                continue;
            };
            let task = Identity::of(record.header());
            if let Some(cpu) = record::part_mut(bytes, attr::CPU) {
                times.raise(task, cpu);
            }
        }
        times.settle(is_of_all(query));
    }
}

/// Whether the answer has all tasks that there are.
fn is_of_all(query: &Query) -> bool {
    matches!(query.scope, Scope::Processes | Scope::Threads) && query.filter.is_none() && !query.changed
}

fn broker_path(path: &Option<PathBuf>) -> &Path {
    path.as_deref().unwrap_or(Path::new(wire::SOCKET))
}

fn retain_listed(query: &Query, snapshot: &mut Snapshot) {
    snapshot.retain(|task| query.pids.binary_search(&task.record().header().pid.get()).is_ok());
}

/// Says which of the listed processes have no row.
fn find_missing(query: &Query, snapshot: &mut Snapshot) {
    let mut found: Vec<u32> = pids(snapshot).collect();
    found.sort_unstable();
    let is_missing = |pid: &&u32| found.binary_search(pid).is_err();
    snapshot.missing = query.pids.iter().filter(is_missing).copied().collect();
}

fn fields_of(fields: Fields, groups: Groups) -> Fields {
    let is_wanted = |field: &Field| matches!(field, Field::Pid | Field::Tid) || groups.contains(field.group());
    if groups.is_empty() {
        Fields::NONE
    } else {
        fields.iter().filter(is_wanted).collect()
    }
}

fn remedy(error: &Error) -> Cow<'static, str> {
    match error.kind() {
        ErrorKind::Denied => Cow::Borrowed(rights::capability_remedy(
            "run as root, or with CAP_BPF and CAP_PERFMON",
        )),
        _ => Cow::Borrowed(""),
    }
}

fn pids(snapshot: &Snapshot) -> impl Iterator<Item = u32> + '_ {
    snapshot.tasks().map(|task| task.record().header().pid.get())
}
