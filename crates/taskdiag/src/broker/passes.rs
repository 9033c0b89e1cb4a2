//! Passes over tasks for the broker: records with all that decides about access, in the numbers and paths of a client.

use std::fmt;

use crate::broker::access::Object;
use crate::error::{Error, ErrorKind, Result};
use crate::field::Groups;
use crate::pin;
use crate::plan::BpfWay;
use crate::query::Scope;
use crate::record::{attr, value, KernelTest, Record, View};
use crate::snapshot::Snapshot;
use crate::source::bpf::pass::{Bpf, Request, Standpoint};

/// The groups that somebody may ask for most of the time; a program of its own answers them, which is smaller.
const COMMON: Groups = Groups(0b101);

/// What a pass is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Which tasks.
    pub scope: Tasks,
    /// The groups of fields, by their bits. What decides about access comes with every record.
    pub groups: u32,
    /// The address of the task in whose namespaces the answer is to be, from its [`View`]; 0 for this process.
    pub as_task: u64,
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
            };
            let records = passes.run(&ask)?;
            let is_told = Record::split_first(&records)
                .and_then(|(record, _)| Object::of(record))
                .is_some();
            if !is_told {
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
    pub fn run(&mut self, ask: &Ask) -> Result<Vec<u8>> {
        self.pass(ask, Groups::NONE)
    }

    /// The records of the threads of one process of this namespace, with where they stand.
    pub fn view(&mut self, pid: u32, groups: u32, as_task: u64) -> Result<Vec<u8>> {
        // A walk goes on at numbers of this namespace.
        let scope = match as_task {
            0 => Tasks::ThreadsOf(pid),
            _ => Tasks::Process(pid),
        };
        let ask = Ask { scope, groups, as_task };
        self.pass(&ask, Groups::VIEW)
    }

    fn pass(&mut self, ask: &Ask, view: Groups) -> Result<Vec<u8>> {
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
                landlock: self.landlock,
            },
        };
        self.snapshot.clear(Default::default());
        bpf.read(&request, &mut self.snapshot)?;
        if self.snapshot.counters().malformed > 0 {
            return Err(Error::new(ErrorKind::Malformed, "records of the BPF program are torn"));
        }
        self.snapshot.rows = Vec::new();
        Ok(std::mem::take(&mut self.snapshot.records))
    }
}

/// Where the task of a record stands.
pub fn view(record: Record<'_>) -> Option<&View> {
    record.get(attr::VIEW)
}
