//! The handle: what is kept from one query to the next.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use taskdiag_bpf::pass::{deferred, Bpf, Request, Standpoint};
use taskdiag_bpf::pin;
use taskdiag_bpf::recipe;
use taskdiag_bpf::rights;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::{Field, Fields, Group, Groups};
use taskdiag_core::filter::Filter;
use taskdiag_core::identity::Identity;
use taskdiag_core::kept::{Arguments, Times};
use taskdiag_core::plan::{plan, BpfWay, Cost, Explanation, Plan, State};
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::record::{self, attr, Record};
use taskdiag_core::snapshot::{Place, Snapshot, SourceId};
use taskdiag_core::support::{Fact, Support, Verdict};
use taskdiag_protocol::wire::{self, Strategy};
use taskdiag_sys::host;

use crate::memory::{self, absent_record, Progress, Rollups, StillThere};
use crate::probe;
use crate::source::broker::Broker;
use crate::source::procfs::{self, Procfs, Supplements, Wanted};

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
            let request = memory::Request {
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
            let still_there: StillThere<'_> = match is_by_bpf {
                true => Some(&mut still_there),
                false => None,
            };
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
        let known_before = match plan.bpf {
            Some((_, groups)) => self.ask_bpf(query, groups, &plan, snapshot)?,
            None if plan.broker.is_some() => {
                self.ask_broker(query, &plan, snapshot)?;
                false
            }
            None => {
                let fields = fields_of(snapshot.fields, plan.procfs);
                self.read_procfs(query, fields, snapshot)?;
                false
            }
        };
        self.regret_ns = self.regret_ns.saturating_add(plan.regret_ns);
        self.raise_times(query, snapshot);
        let is_empty = snapshot.is_empty();
        if query.changed && !known_before {
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

    /// Asks the broker.
    fn ask_broker(&mut self, query: &Query, plan: &Plan, snapshot: &mut Snapshot) -> Result<()> {
        let groups = plan.broker.unwrap_or_default();
        let broker = self.broker()?;
        let (strategy, pid) = match query.scope {
            Scope::Process(pid) => (Strategy::One, pid),
            Scope::ThreadsOf(pid) => (Strategy::Thread, pid),
            Scope::ChildrenOf(pid) => (Strategy::Children, pid),
            Scope::Threads | Scope::ThreadsOfListed => (Strategy::AllThreads, 0),
            Scope::Processes | Scope::Listed | Scope::DescendantsOf(_) => (Strategy::All, 0),
        };
        if query.scope.is_listed() && plan.one_by_one {
            let strategy = match query.scope {
                Scope::Listed => Strategy::One,
                _ => Strategy::Thread,
            };
            for &pid in &query.pids {
                match broker.read(strategy, pid, groups, snapshot) {
                    Err(error) if error.kind() == ErrorKind::NoSuchTask => snapshot.missing.push(pid),
                    result => result?,
                }
            }
        } else if !query.scope.is_listed() || !query.pids.is_empty() {
            broker.read(strategy, pid, groups, snapshot)?;
            if query.scope.is_listed() {
                retain_listed(query, snapshot);
                find_missing(query, snapshot);
            }
        }
        snapshot.put_in_order();
        self.filter_and_fill_in(query, plan, snapshot);
        Ok(())
    }

    /// Makes a pass with BPF. Says whether that left out what has not changed, if it was to.
    fn ask_bpf(&mut self, query: &Query, groups: Groups, plan: &Plan, snapshot: &mut Snapshot) -> Result<bool> {
        self.add_hidden(query, groups, snapshot)?;
        let is_listed = query.scope.is_listed();
        let tests = match &query.filter {
            Some(filter) if plan.tested => filter.kernel_tests(&|path| procfs::cgroup_id(path)).tests,
            _ => Vec::new(),
        };
        let changed = query.changed && plan.tested && self.bpf.knows_changes();
        let scope = match query.scope {
            Scope::Listed => Scope::Processes,
            Scope::ThreadsOfListed => Scope::Threads,
            scope => scope,
        };
        let request = Request {
            scope,
            pids: if is_listed && plan.one_by_one { &query.pids } else { &[] },
            groups: if plan.run { groups.with(Group::Args) } else { groups },
            tests: &tests,
            changed,
            standpoint: Standpoint::default(),
            most: usize::MAX,
        };
        if !is_listed || !query.pids.is_empty() {
            self.bpf.read(&request, snapshot)?;
        }
        self.ask_again(query, groups, snapshot)?;
        if is_listed && !plan.one_by_one {
            retain_listed(query, snapshot);
        }
        if is_listed {
            find_missing(query, snapshot);
        }
        snapshot.put_in_order();
        self.filter_and_fill_in(query, plan, snapshot);
        Ok(changed)
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

    /// Whether there is a process of this number, as far as iterators and procfs, which fills in for them, can tell.
    fn iterators_show(&mut self, pid: u32) -> Result<bool> {
        let mut found = Snapshot::default();
        self.bpf.read(&Request::ids(Scope::Process(pid)), &mut found)?;
        let is_hidden = self.hidden.as_ref().is_some_and(|hidden| hidden.contains(&pid));
        Ok(is_hidden || !found.is_empty())
    }

    /// A plan whose programs are loaded. What can't be loaded changes the facts, and so the plan.
    fn ready_plan(&mut self, query: &Query) -> Result<Plan> {
        loop {
            let plan = self.plan(query)?;
            let Some((way, groups)) = plan.bpf.filter(|(way, _)| *way != BpfWay::Loaded) else {
                return Ok(plan);
            };
            let mut needed = match plan.tested {
                true => groups.or(Groups::TESTABLE),
                false => groups,
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

    /// Some kernels keep processes from iterators that `/proc` shows, such as the first process of a sandbox. An answer
    /// without them would not be the same from both sources, so procfs adds them.
    fn add_hidden(&mut self, query: &Query, groups: Groups, snapshot: &mut Snapshot) -> Result<()> {
        self.find_hidden()?;
        let hidden = self.hidden.clone().unwrap_or_default();
        let is_asked = |pid: &u32| match query.scope {
            Scope::Process(asked) | Scope::ThreadsOf(asked) => asked == *pid,
            Scope::Listed | Scope::ThreadsOfListed => query.pids.contains(pid),
            _ => true,
        };
        let added = self.add_by_procfs(hidden.into_iter().filter(is_asked), query, groups, snapshot)?;
        snapshot.counters.hidden = added as u64;
        Ok(())
    }

    /// Asks procfs about processes whose numbers passed to other tasks while BPF read them, as in an exec.
    fn ask_again(&mut self, query: &Query, groups: Groups, snapshot: &mut Snapshot) -> Result<()> {
        let mut again = std::mem::take(&mut snapshot.again);
        again.sort_unstable();
        again.dedup();
        if again.is_empty() {
            return Ok(());
        }
        let known = snapshot.rows.len();
        let asked = again.len();
        let added = self.add_by_procfs(again, query, groups, snapshot)?;
        snapshot.counters.gone += asked.saturating_sub(added) as u64;
        // Of threads, most had been read already.
        let mut seen: HashSet<u32> = snapshot.rows[..known].iter().map(|row| row.tid).collect();
        let mut fresh = snapshot.rows.split_off(known);
        fresh.retain(|row| seen.insert(row.tid));
        snapshot.rows.append(&mut fresh);
        Ok(())
    }

    /// Adds rows of procfs for some processes, or for their threads. Returns how many there are.
    fn add_by_procfs(
        &mut self,
        pids: impl IntoIterator<Item = u32>,
        query: &Query,
        groups: Groups,
        snapshot: &mut Snapshot,
    ) -> Result<usize> {
        let mut fields = fields_of(snapshot.fields, groups);
        if let Scope::ChildrenOf(_) = query.scope {
            fields |= Field::Ppid;
        }
        let asked = match query.scope.is_threads() {
            true => Query::threads_of_these(pids),
            false => Query::these(pids),
        };
        if asked.pids.is_empty() {
            return Ok(0);
        }
        let mut found = Snapshot::default();
        found.clear(fields);
        self.read_procfs(&asked.patience(self.patience(query)), fields, &mut found)?;
        if let Scope::ChildrenOf(parent) = query.scope {
            found.retain(|task| parent_of(task.record().as_bytes()) == Some(parent));
        }
        let added = found.rows.len();
        snapshot.take_in(&mut found);
        Ok(added)
    }

    /// Finds the processes that procfs lists and iterators pass over, once in a handle. The first process of a pid namespace
    /// always exists: where iterators show that one they hide none.
    fn find_hidden(&mut self) -> Result<()> {
        if self.hidden.is_some() {
            return Ok(());
        }
        let mut shown = Snapshot::default();
        self.bpf.read(&Request::ids(Scope::Process(1)), &mut shown)?;
        if !shown.is_empty() || self.procfs().is_err() {
            self.hidden = Some(Vec::new());
            return Ok(());
        }
        if self.shows_all_but_the_first().unwrap_or(false) {
            self.hidden = Some(vec![1]);
            return Ok(());
        }
        let mut listed = Snapshot::default();
        self.read_procfs(&Query::processes(), Fields::NONE, &mut listed)?;
        self.bpf.read(&Request::ids(Scope::Processes), &mut shown)?;
        let shown: HashSet<u32> = pids(&shown).collect();
        let mut hidden = Vec::new();
        for pid in pids(&listed).filter(|pid| !shown.contains(pid)) {
            // Most have just ended. One that is hidden is there, and still not shown.
            let mut found = Snapshot::default();
            self.bpf.read(&Request::ids(Scope::Process(pid)), &mut found)?;
            let is_shown = !found.is_empty();
            if !is_shown && self.read_procfs(&Query::process(pid), Fields::NONE, &mut found).is_ok() {
                hidden.push(pid);
            }
        }
        self.hidden = Some(hidden);
        Ok(())
    }

    /// Whether all threads that the kernel counts are those that it shows and those of process 1. To list `/proc` takes longer than
    /// all else. In a pid namespace, or where tasks come and go meanwhile, this is not known, and false.
    fn shows_all_but_the_first(&mut self) -> Result<bool> {
        let counted = host::threads();
        let mut threads = Snapshot::default();
        self.bpf.read(&Request::ids(Scope::Threads), &mut threads)?;
        self.read_procfs(&Query::threads_of(1), Fields::NONE, &mut threads)?;
        Ok(counted == threads.len() as u16 && counted == host::threads())
    }

    /// Asks procfs for the groups that are its part, and for what the other source met but could not answer exactly. Arguments that
    /// were read for an earlier answer, and of a process that has not run since, are not read again.
    fn fill_in(&mut self, query: &Query, plan: &Plan, snapshot: &mut Snapshot) {
        let part = fields_of(snapshot.fields, plan.procfs);
        if part == Fields::NONE && snapshot.unsettled.is_empty() {
            return;
        }
        let is_of_all = is_of_all(query);
        let keeps_arguments = part.contains(Field::Cmdline) && !self.one_shot;
        if keeps_arguments {
            self.arguments.begin(snapshot);
        }
        let mut wanted = self.wanted(query, part, keeps_arguments, snapshot);
        let lists_all = wanted.len() >= MANY && !query.scope.is_threads() && plan.bpf.is_some();
        if lists_all {
            let hidden = self.hidden.as_deref().unwrap_or_default();
            wanted
                .iter_mut()
                .for_each(|task| task.is_sure = !hidden.contains(&task.pid));
        }
        let patience = self.patience(query);
        let supplements = match self.procfs() {
            Ok(procfs) => procfs.supplement(&wanted, patience),
            Err(error) => Err(error),
        };
        let supplements = supplements.unwrap_or_default();
        // Who is not found in /proc has ended, or is hidden there.
        let is_missing =
            |supplements: &Supplements| supplements.of.iter().any(|(_, offset)| *offset == Err(Absent::Gone));
        let there = match plan.bpf {
            Some(_) if lists_all || supplements.iter().any(is_missing) => {
                ids_of_all(&mut self.bpf, query.scope.is_threads()).unwrap_or_default()
            }
            _ => Snapshot::default(),
        };
        let times = &mut self.times[usize::from(query.scope.is_threads())];
        let mut absent: HashMap<(Fields, Absent), Place> = HashMap::new();
        let mut is_filled = vec![false; wanted.len()];
        for supplements in supplements {
            let chunk = snapshot.chunks.len() as u32 + 1;
            let Supplements {
                mut records,
                of,
                no_answer,
            } = supplements;
            snapshot.counters.no_answer += no_answer;
            for (index, offset) in of {
                let task = &wanted[index];
                is_filled[index] = true;
                let offset = match offset {
                    Ok(_) if task.is_sure && !there.has(task.task) => Err(Absent::Gone),
                    Err(Absent::Gone) if there.has(task.task) => Err(Absent::Denied),
                    offset => offset,
                };
                let place = match offset {
                    Ok(offset) => Place { chunk, offset },
                    Err(reason) => absent_place(task.fields, reason, &mut absent, snapshot),
                };
                let row = &mut snapshot.rows[task.row];
                row.more(&mut snapshot.more).supplement = Some(place);
                let Ok(offset) = offset else { continue };
                if let Some(cpu) = record::part_mut(&mut records[offset..], attr::CPU) {
                    times.raise(task.task, cpu);
                }
                let read = Record::split_first(&records[offset..]);
                let first = Record::split_first(&snapshot.records[row.record..]);
                if let (true, Some((read, _)), Some((first, _))) = (keeps_arguments, read, first) {
                    if read.attribute(attr::ARGS).is_some() {
                        self.arguments.keep(first, place);
                    }
                }
            }
            snapshot.chunks.push(Arc::new(records));
        }
        // Without /proc, nobody can tell.
        for (task, _) in wanted.iter().zip(is_filled).filter(|(_, is_filled)| !is_filled) {
            let place = absent_place(task.fields, Absent::Unsupported, &mut absent, snapshot);
            snapshot.rows[task.row].more(&mut snapshot.more).supplement = Some(place);
        }
        if keeps_arguments {
            self.arguments.settle(snapshot, is_of_all);
        }
    }

    /// The rows of which procfs has to be asked for something, and for what.
    fn wanted(&mut self, query: &Query, part: Fields, keeps_arguments: bool, snapshot: &mut Snapshot) -> Vec<Wanted> {
        let is_thread = query.scope.is_threads();
        let mut wanted = Vec::new();
        let mut unsettled = std::mem::take(&mut snapshot.unsettled).into_iter().peekable();
        for index in 0..snapshot.rows.len() {
            let is_deferred = unsettled.next_if_eq(&index).is_some();
            if part == Fields::NONE && !is_deferred {
                continue;
            }
            let Some((record, _)) = Record::split_first(&snapshot.records[snapshot.rows[index].record..]) else {
                continue;
            };
            let mut fields = part;
            if is_deferred {
                let of_record = fields_of(snapshot.fields, deferred(record));
                snapshot.counters.deferred += u64::from(of_record != Fields::NONE);
                fields |= of_record;
            }
            if record.has(record::NO_MM) {
                fields = fields.iter().filter(|field| !field.needs_memory()).collect();
            }
            let header = record.header();
            if keeps_arguments && fields.contains(Field::Cmdline) {
                if let Some(place) = self.arguments.find(record) {
                    fields = fields.without(Field::Cmdline);
                    snapshot.rows[index].more(&mut snapshot.more).args = Some(place);
                    snapshot.counters.remembered += 1;
                }
            }
            let ids = Field::Pid | Field::Tid;
            if fields.without(ids) != Fields::NONE {
                wanted.push(Wanted {
                    row: index,
                    pid: header.pid.get(),
                    task: Identity::of(header),
                    is_thread,
                    fields,
                    is_sure: false,
                });
            }
        }
        wanted
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

/// For so many tasks a list of all is cheaper than to look at each whether it is still the same.
const MANY: usize = 50;

/// Whether the answer has all tasks that there are.
fn is_of_all(query: &Query) -> bool {
    matches!(query.scope, Scope::Processes | Scope::Threads) && query.filter.is_none() && !query.changed
}

/// The tasks that there are, by ids; none if that is not known.
fn ids_of_all(bpf: &mut Bpf, threads: bool) -> Option<Snapshot> {
    let mut ids = Snapshot::default();
    let scope = if threads { Scope::Threads } else { Scope::Processes };
    bpf.read(&Request::ids(scope), &mut ids).ok()?;
    ids.put_in_order();
    Some(ids)
}

/// Where a record lies that says why fields are absent.
fn absent_place(
    fields: Fields,
    reason: Absent,
    known: &mut HashMap<(Fields, Absent), Place>,
    snapshot: &mut Snapshot,
) -> Place {
    *known
        .entry((fields, reason))
        .or_insert_with(|| Place::own(absent_record(fields, reason, &mut snapshot.records)))
}

/// The processor times of an earlier answer, to tell which tasks have changed where the kernel's side does not.
#[derive(Debug, Default)]
struct Changes {
    /// In nanoseconds.
    seen: HashMap<Identity, u64>,
}

impl Changes {
    /// Drops the tasks that are as they were in the answer before, and remembers this one.
    fn retain_changed(&mut self, snapshot: &mut Snapshot) {
        let before = std::mem::take(&mut self.seen);
        snapshot.retain(|task| {
            let (Ok(utime), Ok(stime)) = (task.utime_ns(), task.stime_ns()) else {
                return true;
            };
            let (identity, now) = (Identity::of(task.record().header()), utime.saturating_add(stime));
            self.seen.insert(identity, now);
            before.get(&identity) != Some(&now)
        });
    }
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

fn pids(snapshot: &Snapshot) -> impl Iterator<Item = u32> + '_ {
    snapshot.tasks().map(|task| task.record().header().pid.get())
}

fn parent_of(record: &[u8]) -> Option<u32> {
    let (record, _) = Record::split_first(record)?;
    Some(record.get::<record::Base>(attr::BASE)?.ppid.get())
}

fn fields_of(fields: Fields, groups: Groups) -> Fields {
    let is_wanted = |field: &Field| matches!(field, Field::Pid | Field::Tid) || groups.contains(field.group());
    match groups.is_empty() {
        true => Fields::NONE,
        false => fields.iter().filter(is_wanted).collect(),
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
