//! The thread that queries the kernel, so that a scrape can stop waiting for it.

use std::cell::Cell;
use std::io;
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::time::ClockId;
use taskdiag::{Absent, Budget, Field, Fields, Handle, Query, Snapshot, Task};
use taskdiag_sys::host::now_ns;
use tokio::sync::watch;

use super::by::{self, By};
use super::exposition::{Groups, Picture};
use super::facts::Facts;
use super::matcher::{Rules, Verdict};
use super::own::{self, Own};
use super::pagecache::Directories;
use super::reading::{self, Missing, Pss};
use super::state::Shared;
use super::tracker::{GroupFacts, Reading, ThreadReading};
use crate::outcome::{lock, say};
use crate::proc;

/// What to sample.
#[derive(Debug)]
pub struct Plan {
    pub rules: Arc<Rules>,
    pub kinds: Vec<By>,
    pub threads: bool,
    pub wchan: bool,
    pub network: bool,
    pub pss: Option<PssBudget>,
    /// How long a scrape waits for a sample.
    pub deadline: Duration,
    pub boot: Timestamp,
}

/// How long the sampler may walk page tables for one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PssBudget {
    /// This share of the time since the last sample.
    Share(f64),
    Time(Duration),
}

impl PssBudget {
    /// The time for a sample: at most half of what a scrape waits for it. `None`: this is the first
    /// one.
    fn time(self, since_last: Option<Duration>, deadline: Duration) -> Duration {
        let time = match (self, since_last) {
            (PssBudget::Time(time), _) => time,
            (PssBudget::Share(share), Some(since_last)) => since_last.mul_f64(share),
            (PssBudget::Share(_), None) => Duration::from_millis(100),
        };
        time.min(deadline / 2).max(Duration::from_millis(1))
    }
}

/// The state of sampling.
#[derive(Debug)]
pub struct Sampled {
    /// How many ordered samples were taken.
    pub count: u64,
    /// The last good one.
    pub picture: Arc<Picture>,
    /// Why the last one failed.
    pub failure: Option<String>,
}

/// The server's end of the sampling thread.
#[derive(Debug)]
pub struct Sampler {
    orders: Sender<()>,
    ordered: Cell<u64>,
    /// Closed when the thread has ended, which only a panic causes.
    pub sampled: watch::Receiver<Sampled>,
}

impl Sampler {
    /// Starts the thread.
    pub fn start(mut worker: Worker, picture: Arc<Picture>) -> io::Result<Sampler> {
        let (orders, ordered) = channel();
        let (sender, sampled) = watch::channel(Sampled {
            count: 0,
            picture,
            failure: None,
        });
        let run = move || {
            while ordered.recv().is_ok() {
                let sample = worker.sample();
                let failure = sample.as_ref().err().cloned();
                if let Some(reason) = failure.as_ref().filter(|_| failure != sender.borrow().failure) {
                    say(format_args!("a sample failed, the last good one is shown: {reason}"));
                }
                sender.send_modify(|sampled| {
                    sampled.count += 1;
                    sampled.failure = failure;
                    sampled.picture = sample.unwrap_or_else(|_| sampled.picture.clone());
                });
            }
        };
        thread::Builder::new().name("sampler".to_owned()).spawn(run)?;
        Ok(Sampler {
            orders,
            ordered: Cell::new(0),
            sampled,
        })
    }

    /// Orders a sample, unless one is outstanding. If the thread has ended, none arrives.
    pub fn order(&self) {
        let count = self.sampled.borrow().count;
        if self.ordered.get() == count {
            self.ordered.set(count + 1);
            let _ = self.orders.send(());
        }
    }
}

/// The state of the thread.
#[derive(Debug)]
pub struct Worker {
    pub handle: Handle,
    pub plan: Plan,
    pub shared: Arc<Shared>,
    pub directories: Directories,
    pub own: Own,
    processes: Snapshot,
    others: Snapshot,
    pss: Pss,
    last: Option<Instant>,
}

impl Worker {
    /// Creates a worker that queries `handle`.
    pub fn new(handle: Handle, plan: Plan, shared: Arc<Shared>, directories: Directories) -> Worker {
        Worker {
            handle,
            plan,
            shared,
            directories,
            own: Own::default(),
            processes: Snapshot::default(),
            others: Snapshot::default(),
            pss: Pss::default(),
            last: None,
        }
    }

    /// The fields of the largest query.
    pub fn fields(plan: &Plan) -> Fields {
        let in_cgroup = plan.kinds.iter().any(|by| by.is_in_cgroup());
        reading::of_processes(in_cgroup, plan.wchan, plan.network)
    }

    /// Takes a sample.
    pub fn sample(&mut self) -> Result<Arc<Picture>, String> {
        let began = Instant::now();
        let sample = self.try_sample(began).map_err(|error| format!("{error:#}"));
        if sample.is_err() {
            self.own.failed += 1;
        }
        sample
    }

    fn try_sample(&mut self, began: Instant) -> taskdiag::Result<Arc<Picture>> {
        let mut missing = Missing::new();
        let began_ns = now_ns(ClockId::Boottime);
        let boot_s = self.plan.boot.as_second().unsigned_abs();
        let query = Query::processes().fields(Worker::fields(&self.plan));
        self.handle.query_into(&query, &mut self.processes)?;
        let mut readings = reading::readings(&self.processes, boot_s, &mut missing);
        let wanted = lock(&self.shared).tracker.begin(began_ns, &readings);
        if !wanted.is_empty() {
            let found = self.find_out(&wanted)?;
            lock(&self.shared).tracker.learn(found);
        }
        let threads = self.read_threads(&readings, &mut missing)?;
        self.read_pss(&mut readings, began)?;
        let own = self.processes.tasks().find(|task| task.pid() == Ok(proc::own_pid()));
        self.own.note_process(own, self.plan.boot);
        self.own.note_sources(&self.processes);
        self.own.gone += self.processes.counters().gone;
        self.own.denied = self.processes.counters().denied;
        let mut state = lock(&self.shared);
        state.tracker.update(&readings, &threads);
        let mut groups = Vec::new();
        for (index, grouping) in state.tracker.groupings.iter_mut().enumerate() {
            let (usual_prefix, prefix, label) = match index.checked_sub(1) {
                None => ("namedprocess_namegroup_", "taskdiag_namegroup_", "groupname"),
                Some(index) => {
                    let by = self.plan.kinds[index];
                    (by.prefix(), by.prefix(), by.label())
                }
            };
            groups.push(Groups {
                usual_prefix,
                prefix,
                label,
                groups: grouping.picture(),
            });
        }
        self.own.samples += 1;
        self.own.took = began.elapsed();
        self.last = Some(began);
        let mut singles = self.own.singles(&state, &missing);
        drop(state);
        singles.extend(self.directories.singles());
        let mut picture = Picture {
            at: began,
            groups,
            singles,
        };
        let series = picture.series();
        picture.singles.push(own::series(series));
        Ok(Arc::new(picture))
    }

    /// Reads what decides about the groups of these processes, some at a time: the arguments of each
    /// can have megabytes.
    fn find_out(&mut self, pids: &[u32]) -> taskdiag::Result<Vec<GroupFacts>> {
        const AT_A_TIME: usize = 64;
        let mut found = Vec::with_capacity(pids.len());
        for pids in pids.chunks(AT_A_TIME) {
            found.extend(self.find_out_some(pids)?);
        }
        // Their memory is not kept either.
        self.others = Snapshot::default();
        Ok(found)
    }

    fn find_out_some(&mut self, pids: &[u32]) -> taskdiag::Result<Vec<GroupFacts>> {
        let mut fields = Field::StartNs | Field::Comm | Field::Cmdline | Field::User | Field::Euid;
        fields |= by::fields(&self.plan.kinds);
        if self.plan.rules.need_cgroup() {
            fields |= Fields::from(Field::Cgroups);
        }
        let query = Query::these(pids.iter().copied()).fields(fields);
        self.handle.query_into(&query, &mut self.others)?;
        let mut users = Vec::new();
        let found = self.others.tasks().filter_map(|task| {
            users.extend(task.euid().ok().zip(task.user().ok().map(super::template::label)));
            let verdict = verdict(&self.plan, &task);
            let groups = self.plan.kinds.iter().map(|by| by.group(|field| task.value(field)));
            let groups: Vec<by::Group> = groups.collect();
            Some(GroupFacts {
                id: task.identity().ok()?,
                verdict,
                is_late: groups.iter().any(|group| group.is_late),
                keys: groups.into_iter().map(|group| group.name).collect(),
            })
        });
        let found: Vec<GroupFacts> = found.collect();
        let mut state = lock(&self.shared);
        // Bound the memory: there may be very many users.
        if state.users.len() > 1 << 16 {
            state.users.clear();
        }
        state.users.extend(users);
        Ok(found)
    }

    fn read_threads(&mut self, readings: &[Reading], missing: &mut Missing) -> taskdiag::Result<Vec<ThreadReading>> {
        if !self.plan.threads {
            return Ok(Vec::new());
        }
        let pids = lock(&self.shared).tracker.with_threads(readings);
        if pids.is_empty() {
            return Ok(Vec::new());
        }
        let query = Query::threads_of_these(pids).fields(reading::of_threads(self.plan.wchan));
        self.handle.query_into(&query, &mut self.others)?;
        Ok(reading::thread_readings(&self.others, missing))
    }

    fn read_pss(&mut self, readings: &mut [Reading], began: Instant) -> taskdiag::Result<()> {
        let Some(budget) = self.plan.pss else { return Ok(()) };
        let since_last = self.last.map(|last| began.duration_since(last));
        let time = budget.time(since_last, self.plan.deadline);
        let pids = lock(&self.shared).tracker.in_groups(readings);
        let budget = Budget::default().deadline(Some(time)).max_age(reading::PSS_AGE);
        let fields = Field::StartNs | Field::PssBytes | Field::SwapPssBytes | Field::RollupAgeNs;
        let query = Query::these(pids).fields(fields).budget(budget);
        self.handle.query_into(&query, &mut self.others)?;
        reading::add_pss(readings, &self.others, &mut self.pss);
        Ok(())
    }
}

/// Applies the rules to a process.
fn verdict(plan: &Plan, task: &Task<'_>) -> Verdict {
    let Ok(comm) = task.comm() else { return Verdict::Unknown };
    let arguments: Vec<&[u8]> = match task.cmdline() {
        Ok(arguments) => {
            let all: Vec<&[u8]> = arguments.iter().collect();
            let end = all.iter().rposition(|argument| !argument.is_empty());
            // As in Go's procfs package: trailing empty arguments do not count, unless all are
            // empty.
            let end = end.map_or(all.len().min(1), |last| last + 1);
            all[..end].to_vec()
        }
        // A kernel thread or a zombie.
        Err(Absent::NoMemory) => Vec::new(),
        Err(_) => return Verdict::Unknown,
    };
    plan.rules.group(&Facts {
        pid: task.pid().unwrap_or(0),
        comm,
        arguments: Some(&arguments),
        user: task.user().ok(),
        start_ns: task.start_ns().unwrap_or(0),
        boot: plan.boot,
        cgroups: task.cgroups().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that sizes leave time for the rest of a sample, whatever the budget is.
    #[test]
    fn a_budget_is_within_the_deadline() {
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        let share = PssBudget::Share(0.02);
        assert_eq!(share.time(None, second), Duration::from_millis(100));
        assert_eq!(share.time(Some(10 * second), 8 * second), Duration::from_millis(200));
        assert_eq!(share.time(Some(hour), 8 * second), 4 * second);
        assert_eq!(PssBudget::Time(hour).time(None, 8 * second), 4 * second);
        assert_eq!(
            PssBudget::Time(Duration::ZERO).time(None, second),
            Duration::from_millis(1)
        );
    }
}
