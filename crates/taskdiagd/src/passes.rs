//! Passes over tasks for the broker: records with all that decides about access, in the numbers and paths of a client.

use std::fmt;
use std::time::{Duration, Instant};

use taskdiag_bpf::pass::{Bpf, PassRequest, Standpoint};
use taskdiag_bpf::pin;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::Groups;
use taskdiag_core::plan::BpfWay;
use taskdiag_core::query::Scope;
use taskdiag_core::record::{attr, value, KernelTest, Record, View};
use taskdiag_core::snapshot::Snapshot;
use taskdiag_protocol::access::Object;

/// The groups that somebody may ask for most of the time; a program of its own answers them, which is smaller.
const COMMON: Groups = Groups(0b101);

/// How often tasks are looked at whose numbers became others', or that change what decides about access, as an exec does.
const ATTEMPTS: usize = 4;

/// How long they are given.
const BETWEEN_ATTEMPTS: Duration = Duration::from_micros(100);

/// What looking again may take in all, but for the last look: a process that keeps itself in that state costs each pass, and each request of its
/// own, no more.
pub const LOOKING_AGAIN: Duration = Duration::from_millis(1);

/// Of processes with more threads than this together, threads are looked at once.
const THREADS_AGAIN: usize = 256;

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
    /// It ends early once there are so many tasks, or some more.
    pub most: usize,
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
    all: Bpf,
    landlock: u32,
    snapshot: Snapshot,
}

/// The records of one pass, by ascending thread ids.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
}

impl Records {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// One by one.
    pub fn each(&self) -> impl Iterator<Item = Record<'_>> {
        Record::each(&self.bytes)
    }
}

impl fmt::Debug for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passes").finish_non_exhaustive()
    }
}

impl Passes {
    /// Loads all programs, for passes of this thread. From then on no capability is needed for them (Linux 6.0 and later).
    pub fn load() -> Result<Passes> {
        let load = |groups: Groups| {
            let mut bpf = Bpf::default();
            let groups = groups.or(Groups::ACCESS).or(Groups::VIEW).or(Groups::TESTABLE);
            bpf.prepare(BpfWay::ToLoad, groups, &pin::directory())?;
            bpf.keep_to_this_thread()?;
            Ok(bpf)
        };
        let mut passes = Passes {
            common: load(COMMON)?,
            all: load(Groups::ALL)?,
            landlock: 0,
            snapshot: Snapshot::default(),
        };
        // What the first pass of each reads of this host, it reads now.
        let own = std::process::id();
        for groups in [Groups::NONE, Groups::ALL] {
            let ask = Ask {
                scope: Tasks::Process(own),
                groups: groups.0,
                as_task: 0,
                domains: false,
                most: usize::MAX,
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

    /// Whether the programs find their tasks themselves. Others are told what to do by bpf(2).
    pub fn find_tasks_themselves(&self) -> bool {
        self.common.finds_tasks_itself() && self.all.finds_tasks_itself()
    }

    /// Tells the programs which word of a task's security data names its Landlock domain.
    pub fn set_landlock_word(&mut self, word: usize) {
        self.landlock = word as u32 + 1;
    }

    /// The records of one pass.
    pub fn run(&mut self, ask: &Ask) -> Result<Records> {
        self.pass(ask, Groups::NONE, ATTEMPTS)
    }

    /// The records of the threads of one process of this namespace, with where they stand: each is looked at once. Of a process with more
    /// than `most` threads there are more than `most` records, and not all.
    pub fn view(&mut self, pid: u32, groups: u32, as_task: u64, most: usize) -> Result<Records> {
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
            most: most.saturating_add(1),
        };
        self.pass(&ask, Groups::VIEW, 1)
    }

    fn pass(&mut self, ask: &Ask, view: Groups, attempts: usize) -> Result<Records> {
        let fields = Groups(ask.groups).and(Groups::ALL);
        let bpf = match fields {
            _ if COMMON.covers(fields) => &mut self.common,
            _ => &mut self.all,
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
        let request = PassRequest {
            scope,
            pids: &[],
            groups: fields.or(Groups::ACCESS).or(view),
            tests: &tests,
            changed: false,
            standpoint: Standpoint {
                task: ask.as_task,
                landlock: if ask.domains { self.landlock } else { 0 },
            },
            most: ask.most,
        };
        self.snapshot.clear(Default::default());
        bpf.read(&request, &mut self.snapshot)?;
        // Who is not certain after all attempts is shown to those only who see all tasks.
        let began = Instant::now();
        for _ in 1..attempts {
            let uncertain = uncertain(&self.snapshot, scope);
            if uncertain.is_empty() || began.elapsed() >= LOOKING_AGAIN {
                break;
            }
            wait_a_little();
            match (scope, ask.as_task) {
                (Scope::Processes | Scope::Threads, 0) => {
                    let request = PassRequest {
                        pids: &uncertain,
                        ..request
                    };
                    let mut once_more = Snapshot::default();
                    bpf.read(&request, &mut once_more)?;
                    replace(&mut self.snapshot, &uncertain, once_more);
                }
                // These numbers are of another namespace, or it is few tasks.
                _ => {
                    self.snapshot.clear(Default::default());
                    bpf.read(&request, &mut self.snapshot)?;
                }
            }
        }
        if self.snapshot.counters().malformed > 0 {
            return Err(Error::new(ErrorKind::Malformed, "records of the BPF program are torn"));
        }
        let records = &mut self.snapshot.records;
        let bytes = match records.len() {
            // Few, which leave the memory for many where it is.
            ..=MEMORY => records.clone(),
            _ => std::mem::take(records),
        };
        Ok(Records { bytes })
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

/// Gives a task that changes time to be done with it, a tenth of a millisecond: to sleep would take longer.
pub fn wait_a_little() {
    let start = Instant::now();
    while start.elapsed() < BETWEEN_ATTEMPTS {
        std::hint::spin_loop();
    }
}

/// The processes of which records do not tell for certain, by ascending numbers; where it is threads that are looked at, those that are worth
/// looking at again.
fn uncertain(snapshot: &Snapshot, scope: Scope) -> Vec<u32> {
    let pid = |record: Record<'_>| record.header().pid.get();
    let changing = Record::each(&snapshot.records)
        .filter(|record| Object::of(*record).is_some_and(|object| !object.is_stable()))
        .map(pid);
    let mut pids: Vec<u32> = snapshot.again.iter().copied().chain(changing).collect();
    pids.sort_unstable();
    pids.dedup();
    if scope.is_threads() && !pids.is_empty() {
        let mut threads = vec![0; pids.len()];
        for record in Record::each(&snapshot.records) {
            if let Ok(index) = pids.binary_search(&pid(record)) {
                threads[index] += 1;
            }
        }
        let mut rest = THREADS_AGAIN;
        let mut threads = threads.into_iter();
        pids.retain(|_| {
            let taken = threads.next().and_then(|threads| rest.checked_sub(threads));
            rest = taken.unwrap_or(rest);
            taken.is_some()
        });
    }
    pids
}

/// Puts records of processes in the place of earlier ones. Both are in order.
fn replace(snapshot: &mut Snapshot, pids: &[u32], by: Snapshot) {
    let tid = |record: &Record<'_>| record.header().tid.get();
    let is_replaced = |record: &Record<'_>| pids.binary_search(&record.header().pid.get()).is_ok();
    let mut fresh: Vec<Record<'_>> = Record::each(&by.records).collect();
    fresh.sort_unstable_by_key(tid);
    let mut fresh = fresh.into_iter().peekable();
    let mut merged = Vec::with_capacity(snapshot.records.len());
    for record in Record::each(&snapshot.records).filter(|record| !is_replaced(record)) {
        while let Some(before) = fresh.next_if(|fresh| tid(fresh) < tid(&record)) {
            merged.extend_from_slice(before.as_bytes());
        }
        merged.extend_from_slice(record.as_bytes());
    }
    fresh.for_each(|record| merged.extend_from_slice(record.as_bytes()));
    snapshot.again.retain(|pid| pids.binary_search(pid).is_err());
    snapshot.again.extend(by.again.iter().copied());
    snapshot.records = merged;
}

/// Where the task of a record stands.
pub fn view(record: Record<'_>) -> Option<&View> {
    record.get(attr::VIEW)
}
