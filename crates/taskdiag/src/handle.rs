//! The handle: what is kept from one query to the next.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::absent::Absent;
use crate::broker::wire::{self, Strategy};
use crate::error::{Error, ErrorKind, Result};
use crate::field::{Field, Fields, Group, Groups};
use crate::filter::Filter;
use crate::memory::{self, absent_record, Progress, Rollups, StillThere};
use crate::pin;
use crate::plan::{plan, BpfWay, Cost, Explanation, Plan, State};
use crate::query::{Query, Scope};
use crate::record::{self, attr, Record};
use crate::snapshot::{Row, Snapshot, SourceId};
use crate::source::bpf::pass::{deferred, Bpf, Request, Standpoint};
use crate::source::bpf::recipe;
use crate::source::broker::Broker;
use crate::source::host;
use crate::source::procfs::{self, Procfs};
use crate::support::{Fact, Support, Verdict};

/// Start times of procfs are in ticks, which are as long on all machines that we support.
const TICK_NS: u64 = 10_000_000;

/// From so many tasks on, a file of all of them is asked of the broker rather than packets.
const BROKER_FILE_TASKS: u32 = 500;

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
    support: Option<Support>,
    regret_ns: u64,
    bpf: Bpf,
    procfs: Option<Procfs>,
    broker: Option<Broker>,
    broker_path: Option<PathBuf>,
    broker_in_packets: bool,
    /// Processes that this kernel does not show to iterators, once that is known.
    hidden: Option<Vec<u32>>,
    changes: Changes,
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
    /// [`Counters::deferred`](crate::snapshot::Counters::deferred).
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

    /// Where the broker listens, if not at [`SOCKET`](crate::broker::wire::SOCKET).
    pub fn with_socket(mut self, path: impl Into<PathBuf>) -> Handle {
        self.broker_path = Some(path.into());
        self
    }

    /// Has the broker answer in packets even where a file would be faster.
    pub fn broker_in_packets(mut self) -> Handle {
        self.broker_in_packets = true;
        self
    }

    /// Keeps queries about tasks from starting a thread.
    ///
    /// Otherwise one helps with passes over some thousand tasks, for a few milliseconds, where there is a second processor. It
    /// shows in the answer as one of the caller's own.
    pub fn on_one_thread(mut self) -> Handle {
        self.bpf.stay_alone();
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
            let built = [recipe::TASK.as_ref(), recipe::TASK_SLEEPABLE.as_ref()];
            let why_not = built.into_iter().find_map(|recipe| recipe.err().copied());
            host::probe(why_not.unwrap_or_default(), &pin::directory(), broker)
        })
    }

    /// Who would answer `query`, and at what price.
    pub fn plan(&mut self, query: &Query) -> Result<Plan> {
        self.try_broker();
        let state = State {
            forced: self.source,
            forced_rollup: self.rollup_source,
            loaded: self.bpf.loaded(),
            regret_ns: self.regret_ns,
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
            pids: descendants.keys().copied().collect(),
            ..query.clone()
        };
        self.answer_whole(&listed.with_fields_read(Field::StartNs), snapshot)?;
        // One that ended, and whose number went to another process, is none.
        snapshot.retain(|task| {
            let header = task.record().header();
            descendants
                .get(&header.pid.get())
                .is_some_and(|start| start / TICK_NS == header.start_ns.get() / TICK_NS)
        });
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
                began,
                is_threads: query.scope.is_threads(),
                hidden: self.hidden.as_deref().unwrap_or_default(),
            };
            let bpf = &mut self.bpf;
            let mut still_there = || {
                let mut ids = Snapshot::default();
                bpf.read(&Request::ids(Scope::Processes), &mut ids).ok()?;
                Some(ids)
            };
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
                self.procfs()?.read(query, fields, snapshot)?;
                false
            }
        };
        self.regret_ns = self.regret_ns.saturating_add(plan.regret_ns);
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
        let is_large = !self.broker_in_packets && self.support().tasks.is_some_and(|tasks| tasks > BROKER_FILE_TASKS);
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
                match broker.read(strategy, pid, groups, false, snapshot) {
                    Err(error) if error.kind() == ErrorKind::NoSuchTask => snapshot.missing.push(pid),
                    result => result?,
                }
            }
        } else if !query.scope.is_listed() || !query.pids.is_empty() {
            broker.read(strategy, pid, groups, is_large && pid == 0, snapshot)?;
            if query.scope.is_listed() {
                retain_listed(query, snapshot);
                find_missing(query, snapshot);
            }
        }
        self.filter_and_fill_in(query, snapshot);
        snapshot.put_in_order();
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
            groups,
            remember: !self.one_shot,
            tests: &tests,
            changed,
            standpoint: Standpoint::default(),
        };
        if !is_listed || !query.pids.is_empty() {
            self.bpf.read(&request, snapshot)?;
        }
        if is_listed && !plan.one_by_one {
            retain_listed(query, snapshot);
        }
        if is_listed {
            find_missing(query, snapshot);
        }
        self.filter_and_fill_in(query, snapshot);
        snapshot.put_in_order();
        Ok(changed)
    }

    /// Drops the rows that are not meant, and asks procfs for what is deferred of the others.
    fn filter_and_fill_in(&mut self, query: &Query, snapshot: &mut Snapshot) {
        if let Some(filter) = &query.filter {
            // What is deferred may still make it true.
            snapshot.retain(|task| filter.decide(task) != Some(false));
        }
        self.fill_in_deferred(query, snapshot);
        if let Some(filter) = &query.filter {
            let mut counters = snapshot.counters;
            snapshot.retain(|task| filter.admits(task, &mut counters));
            snapshot.counters = counters;
        }
    }

    /// The processes that descend from one, each with the time it started.
    fn descendants(&mut self, pid: u32) -> Result<BTreeMap<u32, u64>> {
        let mut all = Snapshot::default();
        self.answer(&Query::processes().fields(Field::Ppid | Field::StartNs), &mut all)?;
        let mut children: HashMap<u32, Vec<(u32, u64)>> = HashMap::new();
        let mut is_there = false;
        for task in all.tasks() {
            let header = task.record().header();
            let child = header.pid.get();
            is_there |= child == pid;
            if let Ok(parent) = task.ppid() {
                children.entry(parent).or_default().push((child, header.start_ns.get()));
            }
        }
        if !is_there {
            return Err(Error::no_such_process(pid));
        }
        let mut descendants = BTreeMap::new();
        let mut left = vec![pid];
        while let Some(parent) = left.pop() {
            for (child, start) in children.remove(&parent).unwrap_or_default() {
                descendants.insert(child, start);
                left.push(child);
            }
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
            let needed = match plan.tested {
                true => groups.or(Groups::TESTABLE),
                false => groups,
            };
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

    /// Some kernels keep processes from iterators that `/proc` shows, such as the first process of a sandbox. An answer
    /// without them would not be the same from both sources, so procfs adds them.
    fn add_hidden(&mut self, query: &Query, groups: Groups, snapshot: &mut Snapshot) -> Result<()> {
        self.find_hidden()?;
        let mut fields = fields_of(snapshot.fields, groups);
        if let Scope::ChildrenOf(_) = query.scope {
            fields |= Field::Ppid;
        }
        for pid in self.hidden.clone().unwrap_or_default() {
            let is_asked = match query.scope {
                Scope::Process(asked) | Scope::ThreadsOf(asked) => asked == pid,
                Scope::Listed | Scope::ThreadsOfListed => query.pids.contains(&pid),
                _ => true,
            };
            if !is_asked {
                continue;
            }
            let scope = match query.scope.is_threads() {
                true => Scope::ThreadsOf(pid),
                false => Scope::Process(pid),
            };
            let known = snapshot.rows.len();
            let result = self.procfs()?.read(&Query::new(scope), fields, snapshot);
            match result {
                Err(error) if matches!(error.kind(), ErrorKind::NoSuchTask | ErrorKind::Denied) => continue,
                result => result?,
            }
            if let Scope::ChildrenOf(parent) = query.scope {
                let is_child = |row: &Row| parent_of(&snapshot.records[row.record..]) == Some(parent);
                if !snapshot.rows[known..].iter().all(is_child) {
                    snapshot.rows.truncate(known);
                }
            }
        }
        snapshot.counters.hidden = snapshot.rows.len() as u64;
        Ok(())
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
        self.procfs()?.read(&Query::processes(), Fields::NONE, &mut listed)?;
        self.bpf.read(&Request::ids(Scope::Processes), &mut shown)?;
        let shown: HashSet<u32> = pids(&shown).collect();
        let mut hidden = Vec::new();
        for pid in pids(&listed).filter(|pid| !shown.contains(pid)) {
            // Most have just ended. One that is hidden is there, and still not shown.
            let mut found = Snapshot::default();
            self.bpf.read(&Request::ids(Scope::Process(pid)), &mut found)?;
            let is_shown = !found.is_empty();
            if !is_shown
                && self
                    .procfs()?
                    .read(&Query::process(pid), Fields::NONE, &mut found)
                    .is_ok()
            {
                hidden.push(pid);
            }
        }
        self.hidden = Some(hidden);
        Ok(())
    }

    /// Whether all threads that the kernel counts are those that it shows and those of process 1. To list `/proc` takes longer than
    /// all else. In a pid namespace, or where tasks come and go meanwhile, this is not known, and false.
    fn shows_all_but_the_first(&mut self) -> Result<bool> {
        let own = std::process::id();
        let counted = host::threads();
        let mut threads = Snapshot::default();
        self.bpf.read(&Request::ids(Scope::Threads), &mut threads)?;
        // One of our own may have helped with that.
        let others = pids(&threads).filter(|&pid| pid != own).count();
        threads.clear(Fields::NONE);
        self.bpf.read(&Request::ids(Scope::ThreadsOf(own)), &mut threads)?;
        self.procfs()?.read(&Query::threads_of(1), Fields::NONE, &mut threads)?;
        let all = others + threads.len();
        Ok(counted == all as u16 && counted == host::threads())
    }

    /// Asks procfs for what the BPF program met but could not answer exactly.
    fn fill_in_deferred(&mut self, query: &Query, snapshot: &mut Snapshot) {
        for index in std::mem::take(&mut snapshot.unsettled) {
            let Some((record, _)) = Record::split_first(&snapshot.records[snapshot.rows[index].record..]) else {
                continue;
            };
            let fields = fields_of(snapshot.fields, deferred(record));
            if fields == Fields::NONE {
                continue;
            }
            let header = record.header();
            let (pid, tid, start_ns) = (header.pid.get(), header.tid.get(), header.start_ns.get());
            snapshot.counters.deferred += 1;
            let supplement = match self.procfs() {
                Ok(procfs) => procfs.read_one(
                    query.scope.is_threads(),
                    pid,
                    tid,
                    start_ns,
                    fields,
                    &mut snapshot.records,
                ),
                Err(_) => Err(Absent::Unsupported),
            };
            let offset = supplement.unwrap_or_else(|reason| absent_record(fields, reason, &mut snapshot.records));
            snapshot.rows[index].more(&mut snapshot.more).supplement = Some(offset);
        }
    }
}

/// The processor times of an earlier answer, to tell which tasks have changed where the kernel's side does not.
#[derive(Debug, Default)]
struct Changes {
    /// By thread id: when the task started, and its processor time, in nanoseconds.
    seen: HashMap<u32, (u64, u64)>,
}

impl Changes {
    /// Drops the tasks that are as they were in the answer before, and remembers this one.
    fn retain_changed(&mut self, snapshot: &mut Snapshot) {
        let before = std::mem::take(&mut self.seen);
        snapshot.retain(|task| {
            let header = task.record().header();
            let (Ok(utime), Ok(stime)) = (task.utime_ns(), task.stime_ns()) else {
                return true;
            };
            let now = (header.start_ns.get(), utime + stime);
            self.seen.insert(header.tid.get(), now);
            before.get(&header.tid.get()) != Some(&now)
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
        ErrorKind::Denied => Cow::Borrowed(host::capability_remedy("run as root, or with CAP_BPF and CAP_PERFMON")),
        _ => Cow::Borrowed(""),
    }
}
