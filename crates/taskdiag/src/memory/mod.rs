//! The real memory use of processes: the fields of [`Group::Rollup`], such as the proportional and
//! unique set sizes (PSS, USS).
//!
//! ```
//! use taskdiag::{Field, Handle, Query};
//!
//! let query = Query::processes().fields(Field::Comm | Field::PssBytes);
//! for task in &Handle::new().query(&query)? {
//!     println!("{} {:?}", task.pid()?, task.pss_bytes());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The kernel walks a process's page tables for these fields (`/proc/PID/smaps_rollup`, Linux 4.14,
//! `fs/proc/task_mmu.c`). A walk of more memory takes longer, and a process that wants to change
//! its mappings waits while one of them is walked. So these fields are read after all others, only
//! for the processes that pass the rest of the filter, and within a [`Budget`]. What exceeds the
//! budget is [`Absent::OverBudget`].
//!
//! - *Cheapest first.* The time of a walk is estimated from the resident and swapped-out pages,
//!   which other fields have, and from earlier walks on this host.
//! - *Never stuck.* Other threads read, and the calling thread waits no longer than the deadline.
//!   Walks that might take more than 10 ms are made in a separate process, so that not even the end
//!   of the program waits for them.
//! - *Not twice.* A handle remembers values. A process whose processor times, faults and sizes have
//!   not changed is not walked again until the values are [`Budget::max_age`] old.
//!   [`Field::RollupAgeNs`] is their age.
//!
//! `docs/memory.md` has measurements, and says how wrong remembered values can be.

mod job;
mod price;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, Result};
use taskdiag_core::field::{Field, Fields, Group};
use taskdiag_core::identity::Identity;
use taskdiag_core::record::{self, attr, Header, Rollup, Writer};
use taskdiag_core::snapshot::{Place, Snapshot, SourceId, Task};
use taskdiag_sys::pages::FreshPages;
use zerocopy::native_endian::U64;
use zerocopy::IntoBytes as _;

use crate::absences::Absences;
use crate::readers::{self, Wait};
use crate::source::procfs::{start_ticks, Procfs};
use job::{Missed, Outcome, Process, RollupJob, Walked};
use price::{Rate, Size};
use taskdiag_sys::host::{proc_file, resident_pages};

pub use taskdiag_core::budget::Budget;

/// The progress of a query with [`Group::Rollup`]. Other threads can look at it while the query
/// runs: [`Handle::progress`](crate::Handle::progress).
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicUsize,
    total: AtomicUsize,
}

impl Progress {
    /// How many processes have been read, and how many are to be read in total. Both are 0 before
    /// reading begins.
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

/// Numbers that change whenever a process runs, or others change its memory.
type Signs = [u64; 11];

/// The signs of a process. `None` if one of them is missing.
fn signs(task: &Task<'_>) -> Option<Signs> {
    let mem: &record::Mem = task.part(Field::RssBytes, attr::MEM).ok()?;
    let cpu: &record::Cpu = task.part(Field::UtimeNs, attr::CPU).ok()?;
    let faults: &record::Faults = task.part(Field::MinFaults, attr::FAULTS).ok()?;
    let signs = [
        cpu.utime_ns,
        cpu.stime_ns,
        // The values from which user and system time are computed, in case they have not been
        // computed yet.
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

/// The remembered values of a process.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    signs: Signs,
    rollup: Rollup,
    at: Instant,
    /// The pages that the walk met, and the time that it took.
    pages: u64,
    took_ns: u64,
}

/// A process to walk.
#[derive(Clone, Copy, Debug)]
struct Target {
    process: Process,
    identity: Identity,
    /// `None` if its values are not to be remembered.
    signs: Option<Signs>,
}

/// The origin of the values of a row.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// There are none.
    Absent(Absent),
    /// The remembered values of its process.
    Remembered(Identity),
    /// This target.
    Target(usize),
}

/// What a handle keeps for reading rollups.
#[derive(Debug, Default)]
pub(crate) struct Rollups {
    rate: Rate,
    is_measured: bool,
    known: HashMap<Identity, Remembered>,
    /// That of the running query.
    pub(crate) progress: Arc<Progress>,
}

/// A request to [`Rollups`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RollupRequest<'a> {
    pub source: SourceId,
    pub budget: &'a Budget,
    pub patience: Duration,
    /// When the whole query began.
    pub began: Instant,
    /// The rows are threads.
    pub is_threads: bool,
    /// Processes that [`StillThere`] does not list.
    pub hidden: &'a [u32],
}

/// Lists all processes, which takes less time than looking at each by its id. `None` where that
/// can't be done.
///
/// A process's id can pass to another process before its file is opened. If the intended process
/// still exists afterwards, that has not happened.
pub(crate) type StillThere<'a> = Option<&'a mut dyn FnMut() -> Option<Snapshot>>;

/// For fewer processes than this, listing all of them takes longer.
const MANY_TARGETS: usize = 50;

/// The maximum number of processes outside of an answer that are remembered, apart from as many as
/// it has.
const MAX_OTHERS: usize = 16 << 10;

/// The size of a page-table entry on all supported machines.
const ENTRY_BYTES: u64 = 8;

/// Before a process with more pages than this is walked for the first time, the rate is measured on
/// a known number of pages.
const MANY_PAGES: u64 = 16_384;

/// How long measuring may take on a busy machine.
const MEASURING: Duration = Duration::from_millis(20);

impl Rollups {
    /// Adds the rollup of each row, or the reason why it has none.
    pub(crate) fn read(
        &mut self,
        procfs: &Procfs,
        request: &RollupRequest<'_>,
        still_there: StillThere<'_>,
        snapshot: &mut Snapshot,
    ) -> Result<()> {
        let mut targets = Vec::new();
        let origins = self.origins(request, snapshot, &mut targets);
        let still_there = still_there.filter(|_| targets.len() >= MANY_TARGETS && !request.is_threads);
        if still_there.is_some() {
            let is_listed = |target: &&mut Target| !request.hidden.contains(&target.process.pid);
            targets
                .iter_mut()
                .filter(is_listed)
                .for_each(|target| target.process.start_ticks = None);
        }
        let mut outcomes = self.walk(procfs, request, &targets);
        for (target, outcome) in targets.iter().zip(&outcomes) {
            if let Err(Missed::Exhausted(errno)) = *outcome {
                let what = format!("can't read the memory of process {}", target.process.pid);
                return Err(Error::io(what, errno));
            }
        }
        if let Some(still_there) = still_there {
            let there = still_there();
            let is_there = |target: &Target| match &there {
                Some(there) => there.has(target.identity),
                None => std::fs::read(proc_file(&format!("{}/stat", target.process.pid)))
                    .is_ok_and(|stat| start_ticks(&stat) == Some(target.identity.start_ticks())),
            };
            for (target, outcome) in targets.iter().zip(&mut outcomes) {
                let is_sure = target.process.start_ticks.is_some() || is_there(target);
                if outcome.is_ok() && !is_sure {
                    *outcome = Err(Missed::Absent(Absent::Gone));
                }
            }
        }
        self.write(request, &origins, &targets, &outcomes, snapshot);
        Ok(())
    }

    /// Decides the origin of each row's values, before anything is read.
    fn origins(&self, request: &RollupRequest<'_>, snapshot: &mut Snapshot, targets: &mut Vec<Target>) -> Vec<Origin> {
        let page_bytes = rustix::param::page_size() as u64;
        let now = Instant::now();
        // Threads share their memory, so the values of one are the values of all.
        let mut of_process: HashMap<u32, Origin> = HashMap::new();
        let mut over_budget = 0;
        let mut unchanged = 0;
        let mut origins = Vec::with_capacity(snapshot.rows.len());
        for task in snapshot.tasks() {
            let header = task.record().header();
            let (pid, tid, identity) = (header.pid.get(), header.tid.get(), Identity::of(header));
            if let Some(&origin) = of_process.get(&pid) {
                origins.push(origin);
                continue;
            }
            let mem = match task.part::<record::Mem>(Field::RssBytes, attr::MEM) {
                _ if task.record().has(record::NO_MM) => Err(Absent::NoMemory),
                mem => mem,
            };
            let mem = match mem {
                Ok(mem) => mem,
                // A leader that has ended has no memory, but its other threads may have some.
                Err(reason) => {
                    origins.push(Origin::Absent(reason));
                    continue;
                }
            };
            let rss_bytes = mem.rss_bytes();
            let pages = rss_bytes.saturating_add(mem.swap_bytes.get()) / page_bytes;
            let before = self.known.get(&identity);
            // The signs of one thread say nothing about the others.
            let signs = if request.budget.max_age.is_zero() || request.is_threads {
                None
            } else {
                signs(&task)
            };
            let is_current = |known: &&Remembered| {
                Some(known.signs) == signs && now.saturating_duration_since(known.at) <= request.budget.max_age
            };
            let origin = if before.filter(is_current).is_some() {
                unchanged += 1;
                Origin::Remembered(identity)
            } else if request.budget.max_rss_bytes.is_some_and(|most| rss_bytes > most) {
                over_budget += 1;
                Origin::Absent(Absent::OverBudget)
            } else {
                targets.push(Target {
                    process: Process {
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
                Origin::Target(targets.len() - 1)
            };
            if request.is_threads {
                of_process.insert(pid, origin);
            }
            origins.push(origin);
        }
        snapshot.counters.over_budget = over_budget;
        snapshot.counters.unchanged = unchanged;
        origins
    }

    /// Walks the targets, the cheapest first, until the deadline. Outcomes are in the order of the
    /// targets.
    fn walk(&mut self, procfs: &Procfs, request: &RollupRequest<'_>, targets: &[Target]) -> Vec<Outcome> {
        let mut order: Vec<usize> = (0..targets.len()).collect();
        order.sort_by_cached_key(|&index| self.rate.expected_ns(&targets[index].process.size));
        let deadline = request
            .budget
            .deadline
            .and_then(|deadline| request.began.checked_add(deadline));
        // Large processes come last. Until the rate is known, they are expected to take long.
        let has_time = deadline.is_none_or(|deadline| deadline > Instant::now() + MEASURING);
        let is_worth_it = targets.iter().any(|target| target.process.size.pages > MANY_PAGES);
        if !self.is_measured && is_worth_it && has_time {
            self.rate = measured_rate().unwrap_or_default();
            self.is_measured = true;
        }
        self.progress.begin(order.len());
        let job = Arc::new(RollupJob {
            proc: procfs.directory(),
            source: request.source,
            deadline,
            processes: targets.iter().map(|target| target.process).collect(),
            rate: Mutex::new(self.rate),
            progress: self.progress.clone(),
        });
        let wait = Wait {
            patience: request.patience,
            deadline,
        };
        let expected = order.len();
        let done = readers::run(&job, order, expected, wait);
        self.rate = job.rate();
        let mut outcomes = vec![Err(Missed::Absent(Absent::OverBudget)); targets.len()];
        for (index, outcome) in done.into_iter().flatten() {
            outcomes[index] = outcome;
        }
        outcomes
    }

    /// Writes a record for each process, and adds it to the rows.
    fn write(
        &mut self,
        request: &RollupRequest<'_>,
        origins: &[Origin],
        targets: &[Target],
        outcomes: &[Outcome],
        snapshot: &mut Snapshot,
    ) {
        let now = Instant::now();
        let mut records = std::mem::take(&mut snapshot.records);
        let mut absences = Absences::default();
        let fields = Fields::of_group(Group::Rollup);
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
                            pages: target.process.size.pages,
                            took_ns,
                        };
                        self.known.insert(target.identity, known);
                    }
                    put(&mut records, rollup, now.saturating_duration_since(at))
                }
                Err(Missed::Absent(reason)) => {
                    snapshot.counters.over_budget += u64::from(reason == Absent::OverBudget);
                    snapshot.counters.no_answer += u64::from(reason == Absent::NoAnswer);
                    absences.offset(fields, reason, &mut records)
                }
                // If it was exhaustion, it has ended the answer.
                Err(Missed::Malformed | Missed::Exhausted(_)) => {
                    snapshot.counters.malformed += 1;
                    absences.offset(fields, Absent::Unsupported, &mut records)
                }
            })
            .collect();
        for (row, origin) in snapshot.rows.iter_mut().zip(origins) {
            let rollup = match origin {
                Origin::Absent(reason) => absences.offset(fields, *reason, &mut records),
                Origin::Target(index) => of_targets[*index],
                Origin::Remembered(identity) => match self.known.get(identity) {
                    Some(known) => put(&mut records, known.rollup, now.saturating_duration_since(known.at)),
                    None => absences.offset(fields, Absent::Gone, &mut records),
                },
            };
            row.more(&mut snapshot.more).rollup = Some(Place::own(rollup));
        }
        snapshot.records = records;
        // Processes that have ended are forgotten once they outnumber the others; if those that are
        // young enough are too many, all that are not in this answer.
        if self.known.len() > 2 * origins.len() + 64 {
            let max_age = request.budget.max_age;
            self.known
                .retain(|_, known| now.saturating_duration_since(known.at) <= max_age);
            if self.known.len() > 2 * origins.len() + MAX_OTHERS {
                let tasks = snapshot.tasks().map(|task| Identity::of(task.record().header()));
                let tasks: HashSet<Identity> = tasks.collect();
                self.known.retain(|identity, _| tasks.contains(identity));
            }
        }
    }
}

/// Appends a record, and returns its offset.
fn put(records: &mut Vec<u8>, mut rollup: Rollup, age: Duration) -> usize {
    let place = records.len();
    rollup.age_ns = U64::new(age.as_nanos().try_into().unwrap_or(u64::MAX));
    let mut writer = Writer::new(records);
    writer.put(attr::ROLLUP, 0, rollup.as_bytes());
    writer.finish(Header::default());
    place
}

/// Measures the time that a page takes on this host: how much longer this process's own rollup
/// takes with a known number of additional pages.
fn measured_rate() -> Option<Rate> {
    const PAGES: usize = 4096;
    const TRIES: usize = 3;
    /// A page that was just touched is in the processor's caches, unlike the pages of a sleeping
    /// process.
    const MARGIN: f64 = 2.0;
    if resident_pages()? > 4 * PAGES {
        return None;
    }
    let shortest = || {
        let walk = |_| {
            let began = Instant::now();
            std::fs::read(proc_file("self/smaps_rollup")).ok()?;
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
