//! Passes of the BPF programs. They give records of tasks with everything that decides access, in
//! the namespaces of a client.

use std::fmt;
use std::time::{Duration, Instant};

use taskdiag_bpf::files::{self, FilesWalk};
use taskdiag_bpf::pass::{Bpf, PassRequest, Standpoint};
use taskdiag_bpf::pin;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::{Group, Groups};
use taskdiag_core::plan::BpfWay;
use taskdiag_core::query::Scope;
use taskdiag_core::record::{attr, value, Base, KernelTest, Record, View};
use taskdiag_core::snapshot::Snapshot;
use taskdiag_protocol::access::Object;
use taskdiag_sys::host;

/// The groups that most requests ask for. A smaller program answers these.
const COMMON: Groups = Groups::NONE.with(Group::Base).with(Group::Cred);

/// How often a pass looks at a task whose record is uncertain: another task got its pid in between,
/// or what decides access changed, as in an exec.
const ATTEMPTS: usize = 4;

/// How long to wait before looking again.
const RETRY_PAUSE: Duration = Duration::from_micros(100);

/// The most time for all looks but the last together. A process that stays uncertain costs no more
/// than this for each pass, and for each request that it sends itself.
pub const RETRY_TIME: Duration = Duration::from_millis(1);

/// In a pass over threads, at most this many threads are looked at again.
const MAX_THREADS_AGAIN: usize = 256;

/// A buffer larger than this is kept for the next pass for a short time only.
const KEPT_MEMORY: usize = 256 << 10;

/// What a pass is to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PassSpec {
    /// Which tasks.
    pub tasks: Tasks,
    /// The groups of fields, as bits. Every record also has what decides access.
    pub groups: u32,
    /// The kernel's address of the task in whose namespaces records are made, from its [`View`]. 0
    /// for this process.
    pub as_task: u64,
    /// Pids have other values there than for this process.
    pub has_other_pids: bool,
    /// Whether to read Landlock domains, which decide access for a client in a domain.
    pub with_landlock: bool,
    /// The pass may end once it has read this many tasks.
    pub max_tasks: usize,
}

impl PassSpec {
    /// A pass of this process that reads only what decides access.
    pub fn of(tasks: Tasks) -> PassSpec {
        PassSpec {
            tasks,
            groups: 0,
            as_task: 0,
            has_other_pids: false,
            with_landlock: false,
            max_tasks: usize::MAX,
        }
    }
}

/// Which tasks a pass reads. Pids are those of the namespace that the pass is made in.
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

/// The loaded programs.
pub struct Programs {
    common: Bpf,
    all: Bpf,
    /// Reads open files. `None` if it needs something that this kernel has in another form.
    files: Option<FilesWalk>,
    /// One more than the word of a task's security data that points to its Landlock domain; 0 if it
    /// is not known.
    landlock: u32,
    snapshot: Snapshot,
}

/// The records of one pass, by ascending thread id.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
}

impl Records {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of them, one after the other.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Each of them.
    pub fn each(&self) -> impl Iterator<Item = Record<'_>> {
        Record::each(&self.bytes)
    }
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs").finish_non_exhaustive()
    }
}

impl Programs {
    /// Loads all programs, for passes of this thread. Passes need no capability. `count_network`:
    /// count network traffic, unless pinned programs do.
    pub fn load(count_network: bool) -> Result<Programs> {
        if host::kernel_version().is_some_and(|version| version < (6, 1)) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the broker needs Linux 6.1 or later",
            ));
        }
        let load = |groups: Groups, count_network: bool| -> Result<Bpf> {
            let mut bpf = Bpf::default();
            if count_network {
                bpf.count_network(&pin::directory())?;
            }
            let groups = groups.or(Groups::ACCESS).or(Groups::VIEW).or(Groups::TESTABLE);
            bpf.prepare(BpfWay::ToLoad, groups, &pin::directory())?;
            bpf.keep_to_this_thread()?;
            Ok(bpf)
        };
        let mut programs = Programs {
            common: load(COMMON, false)?,
            all: load(Groups::ALL, count_network)?,
            files: match FilesWalk::load() {
                Ok(walk) => Some(walk),
                Err(error) if error.kind() == ErrorKind::Unsupported => None,
                Err(error) => return Err(error),
            },
            landlock: 0,
            snapshot: Snapshot::default(),
        };
        // The first pass of each program also reads facts about this host, while files can still be
        // opened.
        let own = std::process::id();
        for groups in [Groups::NONE, Groups::ALL] {
            let spec = PassSpec {
                groups: groups.0,
                ..PassSpec::of(Tasks::Process(own))
            };
            let records = programs.run(&spec)?;
            if records.each().next().and_then(Object::of).is_none() {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "this kernel does not show this process to BPF iterators",
                ));
            }
        }
        Ok(programs)
    }

    /// Whether the programs find their tasks themselves. If not, the kernel calls them for each
    /// task, and a map written with bpf(2) tells them what to do.
    pub fn find_tasks_themselves(&self) -> bool {
        self.common.finds_tasks_itself() && self.all.finds_tasks_itself()
    }

    /// Whether somebody counts network traffic.
    pub fn count_network(&self) -> bool {
        self.all.network_table().is_some()
    }

    /// Whether open files can be read.
    pub fn read_open_files(&self) -> bool {
        self.files.is_some()
    }

    /// The program that reads open files.
    pub fn files_walk(&mut self) -> Option<&mut FilesWalk> {
        self.files.as_mut()
    }

    /// How many processes' facts are read together for a part of an answer about files: usually
    /// more than a part has, and few enough to be quick.
    pub fn listed_at_once(&self, as_task: u64) -> usize {
        match as_task {
            // Any number of them takes a visit to all tasks.
            1.. => files::LISTED,
            0 if self.find_tasks_themselves() => 256,
            // Each takes an iterator.
            0 => 64,
        }
    }

    /// Reads what decides access to some processes. From another task's place, there are records of
    /// other processes too.
    pub fn facts_of(&mut self, pids: &[u32], as_task: u64, with_landlock: bool) -> Result<Records> {
        if pids.is_empty() {
            return Ok(Records::default());
        }
        let tasks = match *pids {
            [pid] => Tasks::Process(pid),
            _ => Tasks::Processes,
        };
        let spec = PassSpec {
            as_task,
            has_other_pids: as_task != 0,
            with_landlock,
            ..PassSpec::of(tasks)
        };
        let pids = if as_task == 0 && pids.len() > 1 { pids } else { &[] };
        self.pass(&spec, pids, Groups::NONE, ATTEMPTS)
    }

    /// Tells the programs which word of a task's security data points to its Landlock domain.
    pub fn set_landlock_word(&mut self, word: usize) {
        self.landlock = word as u32 + 1;
    }

    /// Makes a pass.
    pub fn run(&mut self, spec: &PassSpec) -> Result<Records> {
        self.pass(spec, &[], Groups::NONE, ATTEMPTS)
    }

    /// Reads the threads of one process of this pid namespace, with their namespaces ([`View`]),
    /// each once. If there are more than `max` threads, the result has more than `max` records, but
    /// not necessarily all. From another task's place, only the first thread is read.
    pub fn threads_of(&mut self, pid: u32, groups: u32, as_task: u64, max: usize) -> Result<Records> {
        // A walk over threads continues at pids of this namespace, not of that task's namespace.
        let tasks = match as_task {
            0 => Tasks::ThreadsOf(pid),
            _ => Tasks::Process(pid),
        };
        let spec = PassSpec {
            groups,
            as_task,
            with_landlock: true,
            max_tasks: max.saturating_add(1),
            ..PassSpec::of(tasks)
        };
        self.pass(&spec, &[], Groups::VIEW, 1)
    }

    /// Whether a process of this pid namespace runs, or waits only for a processor.
    pub fn is_running(&mut self, pid: u32) -> bool {
        let spec = PassSpec {
            groups: 1 << Group::Base as u32,
            max_tasks: 1,
            ..PassSpec::of(Tasks::Process(pid))
        };
        let records = self.pass(&spec, &[], Groups::NONE, 1).unwrap_or_default();
        let state = |record: Record<'_>| Some(record.get::<Base>(attr::BASE)?.state);
        let state = records.each().find_map(state);
        state == Some(b'R')
    }

    /// Makes a pass. If `pids` is not empty, only over those processes.
    fn pass(&mut self, spec: &PassSpec, pids: &[u32], view: Groups, attempts: usize) -> Result<Records> {
        let fields = Groups(spec.groups).and(Groups::ALL);
        let bpf = if COMMON.covers(fields) {
            &mut self.common
        } else {
            &mut self.all
        };
        let (scope, test) = scope(spec);
        let request = PassRequest {
            scope,
            pids,
            groups: fields.or(Groups::ACCESS).or(view),
            tests: test.as_slice(),
            changed: false,
            standpoint: Standpoint {
                task: spec.as_task,
                landlock: if spec.with_landlock { self.landlock } else { 0 },
            },
            most: spec.max_tasks,
        };
        self.snapshot.clear(Default::default());
        bpf.read(&request, &mut self.snapshot)?;
        // A record that stays uncertain is shown only to clients that see all tasks.
        let began = Instant::now();
        for _ in 1..attempts {
            let uncertain = uncertain(&self.snapshot, scope);
            if uncertain.is_empty() || began.elapsed() >= RETRY_TIME {
                break;
            }
            spin_briefly();
            read_again(bpf, &request, &uncertain, &mut self.snapshot)?;
        }
        if self.snapshot.counters().malformed > 0 {
            return Err(Error::new(ErrorKind::Malformed, "records of the BPF program are torn"));
        }
        let records = &mut self.snapshot.records;
        let bytes = match records.len() {
            // The buffer for large passes stays here.
            ..=KEPT_MEMORY => records.clone(),
            _ => std::mem::take(records),
        };
        Ok(Records { bytes })
    }

    /// Takes back the memory of records that are no longer needed, so that the next pass need not
    /// grow a buffer to several megabytes.
    pub fn reuse(&mut self, records: Records) {
        if records.bytes.capacity() > self.snapshot.records.capacity() {
            self.snapshot.records = records.bytes;
        }
    }

    /// Whether much memory is kept for the next pass.
    pub fn keeps_memory(&self) -> bool {
        self.snapshot.records.capacity() > KEPT_MEMORY
    }

    /// Frees that memory.
    pub fn free_memory(&mut self) {
        self.snapshot = Snapshot::default();
    }
}

/// The tasks that the program visits, and the test that selects among them.
fn scope(spec: &PassSpec) -> (Scope, Option<KernelTest>) {
    // An iterator takes only pids of this namespace. In another namespace, the program must visit
    // all tasks and compare their pids.
    let is_sought = spec.has_other_pids;
    let has_pid = |pid: u32| {
        is_sought.then(|| KernelTest {
            what: value::PID.into(),
            value: [u64::from(pid).into(), 0.into()],
            ..KernelTest::default()
        })
    };
    match spec.tasks {
        Tasks::Processes => (Scope::Processes, None),
        Tasks::Threads => (Scope::Threads, None),
        Tasks::ChildrenOf(pid) => (Scope::ChildrenOf(pid), None),
        Tasks::Process(pid) if is_sought => (Scope::Processes, has_pid(pid)),
        Tasks::ThreadsOf(pid) if is_sought => (Scope::Threads, has_pid(pid)),
        Tasks::Process(pid) => (Scope::Process(pid), None),
        Tasks::ThreadsOf(pid) => (Scope::ThreadsOf(pid), None),
    }
}

/// Reads uncertain processes again, in place of their earlier records.
fn read_again(bpf: &mut Bpf, request: &PassRequest<'_>, uncertain: &[u32], snapshot: &mut Snapshot) -> Result<()> {
    if matches!(request.scope, Scope::Processes | Scope::Threads) && request.standpoint.task == 0 {
        let request = PassRequest {
            pids: uncertain,
            ..*request
        };
        let mut again = Snapshot::default();
        bpf.read(&request, &mut again)?;
        replace(snapshot, uncertain, again);
        return Ok(());
    }
    // Few tasks, or pids of another namespace.
    snapshot.clear(Default::default());
    bpf.read(request, snapshot)
}

/// Gives a task time to finish what it is doing. Sleeping would take longer.
pub fn spin_briefly() {
    let start = Instant::now();
    while start.elapsed() < RETRY_PAUSE {
        std::hint::spin_loop();
    }
}

/// The processes with uncertain records, by ascending pid. Of threads, at most
/// [`MAX_THREADS_AGAIN`] are worth another look.
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
        let mut left = MAX_THREADS_AGAIN;
        let mut threads = threads.into_iter();
        pids.retain(|_| {
            let rest = threads.next().and_then(|threads| left.checked_sub(threads));
            left = rest.unwrap_or(left);
            rest.is_some()
        });
    }
    pids
}

/// Replaces the records of some processes. `snapshot` stays sorted.
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

/// The namespaces of a record's task.
pub fn view(record: Record<'_>) -> Option<&View> {
    record.get(attr::VIEW)
}
