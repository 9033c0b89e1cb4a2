//! What memory really costs: the fields of [`Group::Rollup`], proportional and unique sizes among them.
//!
//! The kernel makes these by walking a process's page tables (`/proc/PID/smaps_rollup`, `fs/proc/task_mmu.c`), so they cost
//! more the more memory it has, and while one mapping is walked the process waits if it wants to change its mappings. So they
//! are read after all other fields, of those processes that are left when the rest of the filter has been decided, within a
//! [`Budget`]. What does not fit is absent, [`OverBudget`](crate::Absent::OverBudget).
//!
//! - *Cheapest first.* What a walk will take is estimated from the resident and swapped-out pages, which the other fields
//!   have told, and from what walks took before on this host.
//! - *Never stuck.* Threads do the reading; the one who asks waits no longer than the deadline. Walks that might take more
//!   than 10 ms are made by a process of their own, so that not even the end of the program waits for them.
//! - *Not again.* A handle remembers values. A process whose processor times, faults and sizes are what they were is not
//!   walked again until the values are [`Budget::max_age`] old. [`Field::RollupAgeNs`] has the age.
//!
//! `docs/memory.md` has measurements, and how far remembered values can be wrong.

mod price;
mod readers;
pub mod system;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use taskdiag_core::absent::Absent;
use taskdiag_core::error::Result;
use taskdiag_core::field::{Field, Fields, Group};
use taskdiag_core::identity::Identity;
use taskdiag_core::record::{self, attr, AbsentField, Header, Rollup, Writer};
use taskdiag_core::snapshot::{Place, Snapshot, SourceId, Task};
use taskdiag_sys::pages::FreshPages;
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::IntoBytes as _;

use crate::readers::Wait;
use crate::source::procfs::Procfs;
use price::{Rate, Size};
use readers::{Batch, Job, Missed, Outcome, Walked};

pub use taskdiag_core::budget::Budget;

/// How far a query has come with [`Group::Rollup`]: for other threads to look at while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicUsize,
    total: AtomicUsize,
}

impl Progress {
    /// How many processes have been read, and how many are to be read. Both are 0 before reading begins.
    pub fn now(&self) -> (usize, usize) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    fn begin(&self, total: usize) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// What stands still while a process does not change: it does not run, and nobody changes its memory from outside.
type Signs = [u64; 11];

/// The signs of a process; none if something of them is missing.
fn signs(task: &Task<'_>) -> Option<Signs> {
    let mem: &record::Mem = task.part(Field::RssBytes, attr::MEM).ok()?;
    let cpu: &record::Cpu = task.part(Field::UtimeNs, attr::CPU).ok()?;
    let faults: &record::Faults = task.part(Field::MinFaults, attr::FAULTS).ok()?;
    let signs = [
        cpu.utime_ns,
        cpu.stime_ns,
        // What the two were made of, if they were not made yet.
        cpu.sum_exec_runtime,
        faults.min_faults,
        faults.maj_faults,
        mem.vsize_bytes,
        mem.rss_anon_bytes,
        mem.rss_file_bytes,
        mem.rss_shmem_bytes,
        mem.swap_bytes,
        mem.hugetlb_bytes,
    ];
    Some(signs.map(U64::get))
}

/// What is remembered of a process.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    signs: Signs,
    rollup: Rollup,
    at: Instant,
    /// What the walk met, and what it took.
    pages: u64,
    took_ns: u64,
}

/// A process that is to be walked.
#[derive(Clone, Copy, Debug)]
struct Target {
    job: Job,
    identity: Identity,
    /// None if it is not to be remembered.
    signs: Option<Signs>,
}

/// What becomes of a row.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Absent(Absent),
    /// It has the values that are remembered of its process.
    Remembered(Identity),
    /// It has what comes of this target.
    Target(usize),
}

/// All that a handle keeps for reading rollups.
#[derive(Debug, Default)]
pub(crate) struct Rollups {
    rate: Rate,
    is_measured: bool,
    known: HashMap<Identity, Remembered>,
    progress: Arc<Progress>,
}

/// What is asked of [`Rollups`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RollupRequest<'a> {
    pub source: SourceId,
    pub budget: &'a Budget,
    pub patience: Duration,
    /// When the whole query began.
    pub began: Instant,
    /// Whether the rows are threads.
    pub is_threads: bool,
    /// Processes that [`StillThere`] does not know.
    pub hidden: &'a [u32],
}

/// Lists the processes that there are, much cheaper than looking at each by its number. None where that can't be done.
///
/// A number can pass from the process that was meant to another one before its file is opened. If the one that was meant
/// is there afterwards, that has not happened.
pub(crate) type StillThere<'a> = Option<&'a mut dyn FnMut() -> Option<Snapshot>>;

/// For fewer processes than this a list of all is no gain.
const MANY_TARGETS: usize = 50;

/// The size of an entry of a page table on all machines that we support.
const ENTRY_BYTES: u64 = 8;

/// Before a process with more pages than this is walked for the first time, a known number of pages is.
const MANY_PAGES: u64 = 16_384;

/// What that may take on a busy machine.
const MEASURING: Duration = Duration::from_millis(20);

impl Rollups {
    /// How far the query that is being answered has come.
    pub(crate) fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// Adds the rollup of each row, or why it has none.
    pub(crate) fn read(
        &mut self,
        procfs: &Procfs,
        request: &RollupRequest<'_>,
        still_there: StillThere<'_>,
        snapshot: &mut Snapshot,
    ) -> Result<()> {
        let mut targets = Vec::new();
        let fates = self.fates(request, snapshot, &mut targets);
        let still_there = still_there.filter(|_| targets.len() >= MANY_TARGETS && !request.is_threads);
        if still_there.is_some() {
            let is_listed = |target: &&mut Target| !request.hidden.contains(&target.job.pid);
            targets
                .iter_mut()
                .filter(is_listed)
                .for_each(|target| target.job.start_ticks = None);
        }
        let mut outcomes = self.walk(procfs, request, &targets);
        if let Some(still_there) = still_there {
            let there = still_there().unwrap_or_default();
            for (target, outcome) in targets.iter().zip(&mut outcomes) {
                let is_sure = target.job.start_ticks.is_some() || there.has(target.identity);
                if outcome.is_ok() && !is_sure {
                    *outcome = Err(Missed::Absent(Absent::Gone));
                }
            }
        }
        self.write(request, &fates, &targets, &outcomes, snapshot);
        Ok(())
    }

    /// Decides what becomes of each row, before anything is read.
    fn fates(&self, request: &RollupRequest<'_>, snapshot: &mut Snapshot, targets: &mut Vec<Target>) -> Vec<Fate> {
        let page_bytes = rustix::param::page_size() as u64;
        let now = Instant::now();
        // Threads share their memory: what is read of one is true of all.
        let mut of_process: HashMap<u32, Fate> = HashMap::new();
        let mut over_budget = 0;
        let mut unchanged = 0;
        let mut fates = Vec::with_capacity(snapshot.rows.len());
        for task in snapshot.tasks() {
            let header = task.record().header();
            let (pid, tid, identity) = (header.pid.get(), header.tid.get(), Identity::of(header));
            if let Some(&fate) = of_process.get(&pid) {
                fates.push(fate);
                continue;
            }
            let mem = match task.part::<record::Mem>(Field::RssBytes, attr::MEM) {
                _ if task.record().has(record::NO_MM) => Err(Absent::NoMemory),
                mem => mem,
            };
            let mem = match mem {
                Ok(mem) => mem,
                // That of a dead leader is not that of the other threads.
                Err(reason) => {
                    fates.push(Fate::Absent(reason));
                    continue;
                }
            };
            let rss_bytes = mem.rss_anon_bytes.get() + mem.rss_file_bytes.get() + mem.rss_shmem_bytes.get();
            let pages = (rss_bytes + mem.swap_bytes.get()) / page_bytes;
            let before = self.known.get(&identity);
            // What a thread shows does not tell what the others did.
            let signs = if request.budget.max_age.is_zero() || request.is_threads {
                None
            } else {
                signs(&task)
            };
            let is_current = |known: &&Remembered| {
                Some(known.signs) == signs && now.saturating_duration_since(known.at) <= request.budget.max_age
            };
            let fate = if before.filter(is_current).is_some() {
                unchanged += 1;
                Fate::Remembered(identity)
            } else if request.budget.max_rss_bytes.is_some_and(|most| rss_bytes > most) {
                over_budget += 1;
                Fate::Absent(Absent::OverBudget)
            } else {
                targets.push(Target {
                    job: Job {
                        pid,
                        tid,
                        start_ticks: Some(Identity::of(header).start_ticks()),
                        size: Size {
                            pages,
                            entries: mem.page_table_bytes.get() / ENTRY_BYTES,
                            before: before.map(|known| (known.pages, known.took_ns)),
                        },
                    },
                    identity,
                    signs,
                });
                Fate::Target(targets.len() - 1)
            };
            if request.is_threads {
                of_process.insert(pid, fate);
            }
            fates.push(fate);
        }
        snapshot.counters.over_budget = over_budget;
        snapshot.counters.unchanged = unchanged;
        fates
    }

    /// Walks the targets, the cheapest first, as far as time allows. Outcomes are in the order of the targets.
    fn walk(&mut self, procfs: &Procfs, request: &RollupRequest<'_>, targets: &[Target]) -> Vec<Outcome> {
        let mut order: Vec<usize> = (0..targets.len()).collect();
        order.sort_by_cached_key(|&index| self.rate.expected_ns(&targets[index].job.size));
        let deadline = request
            .budget
            .deadline
            .and_then(|deadline| request.began.checked_add(deadline));
        // The large ones come last, and are thought to take long until this is known.
        let has_time = deadline.is_none_or(|deadline| deadline > Instant::now() + MEASURING);
        let is_worth_it = targets.iter().any(|target| target.job.size.pages > MANY_PAGES);
        if !self.is_measured && is_worth_it && has_time {
            self.rate = measured_rate().unwrap_or_default();
            self.is_measured = true;
        }
        self.progress.begin(order.len());
        let batch = Arc::new(Batch {
            proc: procfs.directory(),
            source: request.source,
            deadline,
            jobs: targets.iter().map(|target| target.job).collect(),
            rate: Mutex::new(self.rate),
            progress: self.progress.clone(),
        });
        let wait = Wait {
            patience: request.patience,
            deadline,
        };
        let expected = order.len();
        let done = crate::readers::run(&batch, order, expected, wait);
        self.rate = batch.rate();
        let mut outcomes = vec![Err(Missed::Absent(Absent::OverBudget)); targets.len()];
        for (index, outcome) in done.into_iter().flatten() {
            outcomes[index] = outcome;
        }
        outcomes
    }

    /// Writes a record for each process, and tells rows of them.
    fn write(
        &mut self,
        request: &RollupRequest<'_>,
        fates: &[Fate],
        targets: &[Target],
        outcomes: &[Outcome],
        snapshot: &mut Snapshot,
    ) {
        let now = Instant::now();
        let mut records = std::mem::take(&mut snapshot.records);
        let mut places = Places::default();
        let of_targets: Vec<usize> = targets
            .iter()
            .zip(outcomes)
            .map(|(target, outcome)| match *outcome {
                Ok(Walked { rollup, at, took_ns }) => {
                    snapshot.counters.walked += 1;
                    if let Some(signs) = target.signs {
                        let known = Remembered {
                            signs,
                            rollup,
                            at,
                            pages: target.job.size.pages,
                            took_ns,
                        };
                        self.known.insert(target.identity, known);
                    }
                    put(&mut records, rollup, now.saturating_duration_since(at))
                }
                Err(Missed::Absent(reason)) => {
                    snapshot.counters.over_budget += u64::from(reason == Absent::OverBudget);
                    snapshot.counters.no_answer += u64::from(reason == Absent::NoAnswer);
                    places.absent(&mut records, reason)
                }
                Err(Missed::Malformed) => {
                    snapshot.counters.malformed += 1;
                    places.absent(&mut records, Absent::Unsupported)
                }
            })
            .collect();
        for (row, fate) in snapshot.rows.iter_mut().zip(fates) {
            let rollup = match fate {
                Fate::Absent(reason) => places.absent(&mut records, *reason),
                Fate::Target(index) => of_targets[*index],
                Fate::Remembered(identity) => match self.known.get(identity) {
                    Some(known) => put(&mut records, known.rollup, now.saturating_duration_since(known.at)),
                    None => places.absent(&mut records, Absent::Gone),
                },
            };
            row.more(&mut snapshot.more).rollup = Some(Place::own(rollup));
        }
        snapshot.records = records;
        // Those that ended are forgotten once they are more than those that are there.
        if self.known.len() > 2 * fates.len() + 64 {
            let max_age = request.budget.max_age;
            self.known
                .retain(|_, known| now.saturating_duration_since(known.at) <= max_age);
        }
    }
}

/// Appends a record; returns its place.
fn put(records: &mut Vec<u8>, mut rollup: Rollup, age: Duration) -> usize {
    let place = records.len();
    rollup.age_ns = U64::new(age.as_nanos().try_into().unwrap_or(u64::MAX));
    let mut writer = Writer::new(records);
    writer.put(attr::ROLLUP, 0, rollup.as_bytes());
    writer.finish(Header::default());
    place
}

/// Where the records are that say why there are no values: one for each reason.
#[derive(Debug, Default)]
struct Places(HashMap<Absent, usize>);

impl Places {
    fn absent(&mut self, records: &mut Vec<u8>, reason: Absent) -> usize {
        *self
            .0
            .entry(reason)
            .or_insert_with(|| absent_record(Fields::of_group(Group::Rollup), reason, records))
    }
}

/// Appends a record that says of all `fields` why they are absent; returns its place.
pub(crate) fn absent_record(fields: Fields, reason: Absent, records: &mut Vec<u8>) -> usize {
    let place = records.len();
    let entries: Vec<AbsentField> = fields
        .iter()
        .filter(|field| !matches!(field, Field::Pid | Field::Tid))
        .map(|field| AbsentField {
            field: U16::new(field as u16),
            reason: U16::new(reason as u16),
        })
        .collect();
    let mut writer = Writer::new(records);
    writer.put(attr::ABSENT, 0, entries.as_bytes());
    writer.finish(Header {
        flags: U32::new(record::HAS_ABSENT),
        ..Header::default()
    });
    place
}

/// What a page takes on this host: how much longer our own rollup takes with a known number of pages more.
fn measured_rate() -> Option<Rate> {
    const PAGES: usize = 4096;
    const TRIES: usize = 3;
    /// A page that was just touched is nearer to the processor than one of a process that sleeps.
    const MARGIN: f64 = 2.0;
    let resident = std::fs::read_to_string("/proc/self/statm").ok()?;
    let resident: u64 = resident.split_whitespace().nth(1)?.parse().ok()?;
    if resident > 4 * PAGES as u64 {
        return None;
    }
    let shortest = || {
        let walk = |_| {
            let began = Instant::now();
            std::fs::read("/proc/self/smaps_rollup").ok()?;
            Some(began.elapsed())
        };
        (0..TRIES).map(walk).collect::<Option<Vec<_>>>()?.into_iter().min()
    };
    let without = shortest()?;
    let _pages = FreshPages::small(PAGES).ok()?;
    let with = shortest()?;
    let page_ns = with.saturating_sub(without).as_nanos() as f64 / PAGES as f64;
    Some(Rate::guessed(page_ns * MARGIN))
}
