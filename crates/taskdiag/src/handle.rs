//! The handle: what is kept from one query to the next.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::absent::Absent;
use crate::error::{Error, ErrorKind, Result};
use crate::field::{Field, Fields, Groups};
use crate::pin;
use crate::plan::{plan, BpfWay, Cost, Plan, State};
use crate::query::{Query, Scope};
use crate::record::{self, attr, AbsentField, Record};
use crate::snapshot::{Row, Snapshot, SourceId};
use crate::source::bpf::pass::{deferred, Bpf};
use crate::source::bpf::recipe;
use crate::source::host;
use crate::source::procfs::Procfs;
use crate::support::{Fact, Support};

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
    /// Processes that this kernel does not show to iterators, once that is known.
    hidden: Option<Vec<u32>>,
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
    pub fn with_source(mut self, source: SourceId) -> Handle {
        self.source = Some(source);
        self
    }

    /// Says that there will be only one query, so that nothing is worth being remembered for a next one.
    pub fn one_shot(mut self) -> Handle {
        self.one_shot = true;
        self
    }

    /// What this host can answer with, as far as is known without loading anything.
    pub fn support(&mut self) -> &Support {
        self.support.get_or_insert_with(|| {
            let built = [recipe::TASK.as_ref(), recipe::TASK_SLEEPABLE.as_ref()];
            let why_not = built.into_iter().find_map(|recipe| recipe.err().copied());
            host::probe(why_not.unwrap_or_default(), &pin::directory())
        })
    }

    /// Who would answer `query`, and at what price.
    pub fn plan(&mut self, query: &Query) -> Result<Plan> {
        let state = State {
            forced: self.source,
            loaded: self.bpf.loaded(),
            regret_ns: self.regret_ns,
        };
        plan(query, self.support(), &state, &Cost::default())
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
            Ok(()) => Fact::yes("loaded and attached"),
            Err(error) => Fact::no(error.to_string(), remedy(error)),
        };
        if let Some(support) = &mut self.support {
            support.task_iterator = fact;
        }
        result.and_then(|()| self.find_hidden())
    }

    /// Asks.
    pub fn query(&mut self, query: &Query) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        self.query_into(query, &mut snapshot)?;
        Ok(snapshot)
    }

    /// Asks, and puts the answer into the memory of an earlier one. What that held is gone, also after an error.
    pub fn query_into(&mut self, query: &Query, snapshot: &mut Snapshot) -> Result<()> {
        snapshot.clear(query.fields);
        // To iterators, 0 stands for every task.
        if let Scope::Process(0) | Scope::ThreadsOf(0) | Scope::ChildrenOf(0) = query.scope {
            return Err(no_such_process(0));
        }
        let plan = self.ready_plan(query)?;
        for group in query.fields.groups().iter() {
            snapshot.answers[group as usize] = plan.answer(group);
        }
        match plan.bpf {
            Some((_, groups)) => {
                self.add_hidden(query, groups, snapshot)?;
                self.bpf.read(query.scope, groups, !self.one_shot, snapshot)?;
                self.fill_in_deferred(query, snapshot);
                put_in_order(query.scope, snapshot.counters.hidden as usize, snapshot);
            }
            None => {
                let fields = fields_of(query.fields, plan.procfs);
                self.procfs()?.read(query.scope, fields, snapshot)?;
            }
        }
        self.regret_ns = self.regret_ns.saturating_add(plan.regret_ns);
        snapshot.counters.tasks = snapshot.rows.len() as u64;
        match query.scope {
            Scope::Process(pid) | Scope::ThreadsOf(pid) if snapshot.is_empty() => Err(no_such_process(pid)),
            // No rows may also mean that it has no children.
            Scope::ChildrenOf(pid) if snapshot.is_empty() && plan.bpf.is_some() && !self.iterators_show(pid)? => {
                Err(no_such_process(pid))
            }
            _ => Ok(()),
        }
    }

    /// Whether there is a process of this number, as far as iterators and procfs, which fills in for them, can tell.
    fn iterators_show(&mut self, pid: u32) -> Result<bool> {
        let mut found = Snapshot::default();
        self.bpf.read(Scope::Process(pid), Groups::NONE, false, &mut found)?;
        let is_hidden = self.hidden.as_ref().is_some_and(|hidden| hidden.contains(&pid));
        Ok(is_hidden || !found.is_empty())
    }

    /// A plan whose programs are loaded. What can't be loaded changes the facts, and so the plan.
    fn ready_plan(&mut self, query: &Query) -> Result<Plan> {
        loop {
            let plan = self.plan(query)?;
            let Some((way, groups)) = plan.bpf else {
                return Ok(plan);
            };
            let Err(error) = self.bpf.prepare(way, groups, &pin::directory()) else {
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
        let fields = fields_of(query.fields, groups);
        for pid in self.hidden.clone().unwrap_or_default() {
            let scope = match query.scope {
                Scope::Process(asked) | Scope::ThreadsOf(asked) if asked != pid => continue,
                Scope::Threads | Scope::ThreadsOf(_) => Scope::ThreadsOf(pid),
                Scope::Processes | Scope::Process(_) | Scope::ChildrenOf(_) => Scope::Process(pid),
            };
            let known = snapshot.rows.len();
            let result = match query.scope {
                Scope::ChildrenOf(_) => self.procfs()?.read(scope, fields | Field::Ppid, snapshot),
                _ => self.procfs()?.read(scope, fields, snapshot),
            };
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
        self.bpf.read(Scope::Process(1), Groups::NONE, false, &mut shown)?;
        if !shown.is_empty() || self.procfs().is_err() {
            self.hidden = Some(Vec::new());
            return Ok(());
        }
        let mut listed = Snapshot::default();
        self.procfs()?.read(Scope::Processes, Fields::NONE, &mut listed)?;
        self.bpf.read(Scope::Processes, Groups::NONE, false, &mut shown)?;
        let shown: HashSet<u32> = pids(&shown).collect();
        let mut hidden = Vec::new();
        for pid in pids(&listed).filter(|pid| !shown.contains(pid)) {
            // Most have just ended. One that is hidden is there, and still not shown.
            let mut found = Snapshot::default();
            self.bpf.read(Scope::Process(pid), Groups::NONE, false, &mut found)?;
            let is_shown = !found.is_empty();
            if !is_shown
                && self
                    .procfs()?
                    .read(Scope::Process(pid), Fields::NONE, &mut found)
                    .is_ok()
            {
                hidden.push(pid);
            }
        }
        self.hidden = Some(hidden);
        Ok(())
    }

    /// Asks procfs for what the BPF program met but could not answer exactly.
    fn fill_in_deferred(&mut self, query: &Query, snapshot: &mut Snapshot) {
        for index in std::mem::take(&mut snapshot.unsettled) {
            let Some((record, _)) = Record::split_first(&snapshot.records[snapshot.rows[index].record..]) else {
                continue;
            };
            let fields = fields_of(query.fields, deferred(record));
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
            snapshot.rows[index].supplement = match supplement {
                Ok(offset) => offset,
                Err(reason) => absent_record(fields, reason, &mut snapshot.records),
            };
        }
    }
}

fn pids(snapshot: &Snapshot) -> impl Iterator<Item = u32> + '_ {
    snapshot.tasks().map(|task| task.record().header().pid.get())
}

/// Brings the rows into the order of their thread ids. In that order they are already, but for a process's own threads, which
/// the kernel lists as they were made, and the first `added` of them, which are in order among themselves.
fn put_in_order(scope: Scope, added: usize, snapshot: &mut Snapshot) {
    let records = &snapshot.records;
    let tid = |row: &Row| Record::split_first(&records[row.record..]).map(|(record, _)| record.header().tid.get());
    let border = added.saturating_sub(1)..snapshot.rows.len().min(added + 1);
    let is_sorted = match scope {
        Scope::ThreadsOf(_) => snapshot.rows.is_sorted_by_key(tid),
        _ => snapshot.rows[border].is_sorted_by_key(tid),
    };
    if !is_sorted {
        snapshot.rows.sort_by_key(tid);
    }
}

fn parent_of(record: &[u8]) -> Option<u32> {
    let (record, _) = Record::split_first(record)?;
    Some(record.get::<record::Base>(attr::BASE)?.ppid.get())
}

/// A record that says of all `fields` why they are absent; returns its place.
fn absent_record(fields: Fields, reason: Absent, records: &mut Vec<u8>) -> usize {
    use zerocopy::native_endian::{U16, U32};
    use zerocopy::IntoBytes as _;

    let place = records.len();
    let entries: Vec<AbsentField> = fields
        .iter()
        .filter(|field| !matches!(field, Field::Pid | Field::Tid))
        .map(|field| AbsentField {
            field: U16::new(field as u16),
            reason: U16::new(reason as u16),
        })
        .collect();
    let mut writer = record::Writer::new(records);
    writer.put(attr::ABSENT, 0, entries.as_bytes());
    writer.finish(record::Header {
        flags: U32::new(record::HAS_ABSENT),
        ..record::Header::default()
    });
    place
}

fn fields_of(fields: Fields, groups: Groups) -> Fields {
    let is_wanted = |field: &Field| matches!(field, Field::Pid | Field::Tid) || groups.contains(field.group());
    match groups.is_empty() {
        true => Fields::NONE,
        false => fields.iter().filter(is_wanted).collect(),
    }
}

fn no_such_process(pid: u32) -> Error {
    Error::new(
        ErrorKind::NoSuchTask,
        format!("no process with pid {pid} (it may have ended, or be hidden from you)"),
    )
}

fn remedy(error: &Error) -> Cow<'static, str> {
    match error.kind() {
        ErrorKind::Denied => Cow::Borrowed("run as root, or with CAP_BPF and CAP_PERFMON"),
        _ => Cow::Borrowed(""),
    }
}
