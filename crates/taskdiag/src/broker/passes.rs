//! Passes over tasks for the broker: records with all that decides about access, in the numbers and paths of a client.

use std::fmt;
use std::ops::Range;

use crate::broker::access::Object;
use crate::error::{Error, ErrorKind, Result};
use crate::field::Groups;
use crate::pin;
use crate::plan::BpfWay;
use crate::query::Scope;
use crate::record::{attr, value, KernelTest, Record, View};
use crate::snapshot::{Row, Snapshot};
pub use crate::source::bpf::pass::Taker;
use crate::source::bpf::pass::{Bpf, Request, Standpoint};

/// The groups that somebody may ask for most of the time; a program of its own answers them, which is smaller.
const COMMON: Groups = Groups(0b101);

/// What may be held without a pass in sight.
const MEMORY: usize = 256 << 10;

/// What a pass is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Which tasks.
    pub scope: Tasks,
    /// The groups of fields, by their bits. What decides about access comes with every record.
    pub groups: u32,
    /// The address of the task in whose namespaces the answer is to be, from its [`View`]; 0 for this process.
    pub as_task: u64,
    /// Whether Landlock domains of tasks decide, as they do if who asks is in one. Otherwise they are not looked up.
    pub domains: bool,
}

/// Which tasks a pass is to visit. Numbers are those of `as_task`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tasks {
    /// Every process.
    Processes,
    /// Every thread of every process.
    Threads,
    /// One process.
    Process(u32),
    /// The threads of one process.
    ThreadsOf(u32),
    /// The children of one process.
    ChildrenOf(u32),
}

/// Programs that are loaded.
pub struct Passes {
    common: Bpf,
    plain: Bpf,
    sleepable: Bpf,
    landlock: u32,
    snapshot: Snapshot,
}

/// The records of one pass.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    /// Runs of them by ascending thread id, one behind the other: several walkers leave some, which are not worth a copy.
    runs: Vec<Range<usize>>,
}

impl Records {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of them, in no particular order.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All of them, some at a time, in the order of their thread ids: who reads them need not sort them.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.runs.iter().map(|run| &self.bytes[run.clone()])
    }

    /// One by one, in that order.
    pub fn each(&self) -> impl Iterator<Item = Record<'_>> {
        self.parts().flat_map(Record::each)
    }
}

/// Where the records of `rows`, in this order, lie in `bytes`: those that follow each other there together.
fn runs(rows: &[Row], bytes: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for row in rows {
        let len = Record::split_first(&bytes[row.record..]).map_or(0, |(record, _)| record.as_bytes().len());
        match runs.last_mut() {
            Some(run) if run.end == row.record => run.end += len,
            _ => runs.push(row.record..row.record + len),
        }
    }
    runs
}

impl fmt::Debug for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passes").finish_non_exhaustive()
    }
}

impl Passes {
    /// Loads all programs. From then on no capability is needed for passes (Linux 6.0 and later).
    pub fn load() -> Result<Passes> {
        let load = |groups: Groups| {
            let mut bpf = Bpf::default();
            let groups = groups.or(Groups::ACCESS).or(Groups::VIEW).or(Groups::TESTABLE);
            bpf.prepare(BpfWay::ToLoad, groups, &pin::directory())?;
            Ok(bpf)
        };
        let mut passes = Passes {
            common: load(COMMON)?,
            plain: load(Groups::ALL.without(Groups::FROM_USER_MEMORY))?,
            sleepable: load(Groups::ALL)?,
            landlock: 0,
            snapshot: Snapshot::default(),
        };
        // What the first pass of each reads of this host, it reads now.
        let own = std::process::id();
        for groups in [Groups::NONE, Groups::ALL.without(Groups::FROM_USER_MEMORY), Groups::ALL] {
            let ask = Ask {
                scope: Tasks::Process(own),
                groups: groups.0,
                as_task: 0,
                domains: false,
            };
            let records = passes.run(&ask)?;
            if records.each().next().and_then(Object::of).is_none() {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "this kernel does not show this process to BPF iterators",
                ));
            }
        }
        Ok(passes)
    }

    /// Tells the programs which word of a task's security data names its Landlock domain.
    pub fn set_landlock_word(&mut self, word: usize) {
        self.landlock = word as u32 + 1;
    }

    /// The records of one pass.
    pub fn run(&mut self, ask: &Ask) -> Result<Records> {
        self.pass(ask, Groups::NONE, None)
    }

    /// Hands over the records of one pass, some at a time, while it is being made if the kernel allows it.
    pub fn run_through(&mut self, ask: &Ask, take: &mut Taker<'_>) -> Result<()> {
        let rest = self.pass(ask, Groups::NONE, Some(take))?;
        rest.parts().for_each(take);
        self.reuse(rest);
        Ok(())
    }

    /// The records of the threads of one process of this namespace, with where they stand.
    pub fn view(&mut self, pid: u32, groups: u32, as_task: u64) -> Result<Records> {
        // A walk goes on at numbers of this namespace.
        let scope = match as_task {
            0 => Tasks::ThreadsOf(pid),
            _ => Tasks::Process(pid),
        };
        let ask = Ask {
            scope,
            groups,
            as_task,
            domains: true,
        };
        self.pass(&ask, Groups::VIEW, None)
    }

    fn pass(&mut self, ask: &Ask, view: Groups, taker: Option<&mut Taker<'_>>) -> Result<Records> {
        let fields = Groups(ask.groups).and(Groups::ALL);
        let bpf = match fields {
            _ if fields.intersects(Groups::FROM_USER_MEMORY) => &mut self.sleepable,
            _ if COMMON.covers(fields) => &mut self.common,
            _ => &mut self.plain,
        };
        let mut tests = Vec::new();
        let scope = match ask.scope {
            Tasks::Processes => Scope::Processes,
            Tasks::Threads => Scope::Threads,
            Tasks::ChildrenOf(pid) => Scope::ChildrenOf(pid),
            // Iterators are pointed at numbers of this namespace only.
            Tasks::Process(pid) | Tasks::ThreadsOf(pid) if ask.as_task != 0 && view.is_empty() => {
                tests.push(KernelTest {
                    what: value::PID.into(),
                    value: [u64::from(pid).into(), 0.into()],
                    ..KernelTest::default()
                });
                match ask.scope {
                    Tasks::Process(_) => Scope::Processes,
                    _ => Scope::Threads,
                }
            }
            Tasks::Process(pid) => Scope::Process(pid),
            Tasks::ThreadsOf(pid) => Scope::ThreadsOf(pid),
        };
        let request = Request {
            scope,
            pids: &[],
            groups: fields.or(Groups::ACCESS).or(view),
            remember: false,
            tests: &tests,
            changed: false,
            standpoint: Standpoint {
                task: ask.as_task,
                landlock: if ask.domains { self.landlock } else { 0 },
            },
        };
        self.snapshot.clear(Default::default());
        bpf.read_through(&request, &mut self.snapshot, taker)?;
        if self.snapshot.counters().malformed > 0 {
            return Err(Error::new(ErrorKind::Malformed, "records of the BPF program are torn"));
        }
        self.snapshot.put_in_order();
        let records = &mut self.snapshot.records;
        let runs = runs(&self.snapshot.rows, records);
        let bytes = match records.len() {
            // Few, which leave the memory for many where it is.
            ..=MEMORY => records.clone(),
            _ => std::mem::take(records),
        };
        Ok(Records { bytes, runs })
    }

    /// Takes back the memory of records that are not needed any more, for those of the next pass: several megabytes that need not
    /// grow again.
    pub fn reuse(&mut self, records: Records) {
        if records.bytes.capacity() > self.snapshot.records.capacity() {
            self.snapshot.records = records.bytes;
        }
    }

    /// Whether it holds much memory for a next pass.
    pub fn holds_memory(&self) -> bool {
        self.snapshot.records.capacity() > MEMORY
    }

    /// Gives that back.
    pub fn release(&mut self) {
        self.snapshot = Snapshot::default();
    }
}

/// Where the task of a record stands.
pub fn view(record: Record<'_>) -> Option<&View> {
    record.get(attr::VIEW)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::{Header, Writer};

    proptest! {
        /// Check that records come in the order of their thread ids, each once, wherever they lie and whatever the order of rows.
        #[test]
        fn records_come_in_order(tids in Just((0..50_u32).collect::<Vec<_>>()).prop_shuffle(), parts in 1..9_usize) {
            let mut snapshot = Snapshot::default();
            for &tid in &tids {
                let start = snapshot.records.len();
                let header = Header { tid: tid.into(), ..Header::default() };
                Writer::new(&mut snapshot.records).finish(header);
                snapshot.add_row(start);
            }
            // As walkers leave them: rows of one behind those of the other, whose records lie between.
            snapshot.rows.sort_by_key(|row| row.tid as usize % parts);
            snapshot.put_in_order();
            let runs = runs(&snapshot.rows, &snapshot.records);
            let records = Records { bytes: snapshot.records, runs };
            let found: Vec<u32> = records.each().map(|record| record.header().tid.get()).collect();
            prop_assert_eq!(found, (0..50).collect::<Vec<_>>());
        }
    }
}
