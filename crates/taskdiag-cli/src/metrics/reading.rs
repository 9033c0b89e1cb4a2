//! The fields that are read for processes and threads, and their conversion to readings.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::time::ClockId;
use taskdiag::{Absent, Event, Field, Fields, Identity, Snapshot, Task, Value};
use taskdiag_sys::host::now_ns;

use super::template::label;
use super::totals::{state_index, Counter, Counts, Gauges};
use super::tracker::{Reading, ThreadReading};
use crate::output::relation::list_of;

/// The counters of processes and threads, and their fields.
const COUNTERS: [(Counter, Field); 8] = [
    (Counter::UserNs, Field::UtimeNs),
    (Counter::SystemNs, Field::StimeNs),
    (Counter::ReadBytes, Field::ReadBytes),
    (Counter::WriteBytes, Field::WriteBytes),
    (Counter::MajorFaults, Field::MajFaults),
    (Counter::MinorFaults, Field::MinFaults),
    (Counter::Voluntary, Field::VoluntarySwitches),
    (Counter::Nonvoluntary, Field::InvoluntarySwitches),
];

/// The counters of network traffic: of processes only.
const NETWORK: [(Counter, Field); 6] = [
    (Counter::NetSent, Field::NetSentBytes),
    (Counter::NetReceived, Field::NetReceivedBytes),
    (Counter::LoopbackSent, Field::LoopbackSentBytes),
    (Counter::LoopbackReceived, Field::LoopbackReceivedBytes),
    (Counter::UnixSent, Field::UnixSentBytes),
    (Counter::UnixReceived, Field::UnixReceivedBytes),
];

/// The other fields of processes.
const OF_PROCESSES: [Field; 10] = list_of! {
    Field: Ppid, State, StartNs, ThreadsCount, Euid, VsizeBytes, RssBytes, SwapBytes, FdCount, Limits,
};

/// The fields to query for processes. `in_cgroup`: include what groups by cgroup need.
pub fn of_processes(in_cgroup: bool, wchan: bool, network: bool) -> Fields {
    let mut fields: Fields = OF_PROCESSES
        .into_iter()
        .chain(COUNTERS.map(|(_, field)| field))
        .collect();
    if in_cgroup {
        fields |= Fields::from(Field::CgroupId);
    }
    if network {
        fields |= NETWORK.into_iter().map(|(_, field)| field).collect::<Fields>();
    }
    if wchan {
        fields |= Fields::from(Field::Wchan);
    }
    fields
}

/// The fields to query for threads.
pub fn of_threads(wchan: bool) -> Fields {
    let own = [Field::Comm, Field::State, Field::StartNs];
    let mut fields: Fields = own.into_iter().chain(COUNTERS.map(|(_, field)| field)).collect();
    if wchan {
        fields |= Fields::from(Field::Wchan);
    }
    fields
}

/// The number of missing values, by field and reason.
pub type Missing = BTreeMap<(&'static str, &'static str), u64>;

/// Counts a missing value, if the reason means that something is lost.
fn note<T>(missing: &mut Missing, field: Field, value: &Result<T, Absent>) -> bool {
    let Err(reason) = value else { return false };
    let is_lost = Absent::REMOVABLE.contains(reason);
    if is_lost {
        *missing.entry((field.name(), reason.as_str())).or_default() += 1;
    }
    is_lost
}

/// The readings of processes; counts missing values. `boot_s` is the boot time, in seconds since
/// 1970.
pub fn readings(snapshot: &Snapshot, boot_s: u64, missing: &mut Missing) -> Vec<Reading> {
    snapshot
        .tasks()
        .filter_map(|task| reading(&task, boot_s, missing))
        .collect()
}

/// Reads counters. Also returns whether something is lost.
fn counts(task: &Task<'_>, fields: impl Iterator<Item = (Counter, Field)>, missing: &mut Missing) -> (Counts, bool) {
    let (mut counts, mut is_partial) = (Counts::default(), false);
    for (counter, field) in fields {
        let value = task.value(field).map(|value| match value {
            Value::Unsigned(count) => count,
            _ => 0,
        });
        is_partial |= note(missing, field, &value);
        counts.set(counter, value);
    }
    (counts, is_partial)
}

/// What a process moved in all until it ended, as far as it was counted.
pub fn network_at_end(event: &Event<'_>) -> Counts {
    let mut counts = Counts::default();
    for (counter, field) in NETWORK {
        // Events have them by the same names.
        let value = field.name().parse().ok().map(|field| event.value(field));
        if let Some(Ok(Value::Unsigned(bytes))) = value {
            counts.set(counter, Ok(bytes));
        }
    }
    counts
}

fn reading(task: &Task<'_>, boot_s: u64, missing: &mut Missing) -> Option<Reading> {
    let (counts, mut is_partial) = counts(task, COUNTERS.into_iter().chain(NETWORK), missing);
    let mut now = Gauges {
        processes: 1,
        threads: task.threads_count().unwrap_or(1).into(),
        oldest_start_s: task
            .start_ns()
            .ok()
            .map(|ns| boot_s.saturating_add_signed(ns.div_euclid(1_000_000_000))),
        ..Gauges::default()
    };
    // A process without memory of its own counts as 0.
    let mut bytes = |field, value: Result<u64, Absent>| {
        is_partial |= note(missing, field, &value);
        value.unwrap_or(0)
    };
    now.resident_bytes = bytes(Field::RssBytes, task.rss_bytes());
    now.virtual_bytes = bytes(Field::VsizeBytes, task.vsize_bytes());
    now.swapped_bytes = bytes(Field::SwapBytes, task.swap_bytes());
    let descriptors = task.fd_count();
    is_partial |= note(missing, Field::FdCount, &descriptors);
    if let Ok(descriptors) = descriptors {
        now.descriptors = descriptors.into();
        now.with_descriptors = 1;
        let limits = task.limits();
        is_partial |= note(missing, Field::Limits, &limits);
        let soft = limits
            .ok()
            .and_then(|limits| limits.iter().find(|(name, ..)| *name == "nofile"));
        if let Some((_, Some(soft), _)) = soft {
            now.worst_fd_ratio = f64::from(descriptors) / soft.max(1) as f64;
        }
    }
    if let Ok(state) = task.state() {
        now.states[state_index(state)] = 1;
    }
    if let Ok(wchan) = task.wchan() {
        if !wchan.is_empty() {
            now.add_wchan(&label(wchan), 1);
        }
    }
    Some(Reading {
        id: task.identity().ok()?,
        ppid: task.ppid().unwrap_or(0),
        mark: (task.euid().ok(), task.cgroup_id().ok()),
        is_partial,
        counts,
        now,
    })
}

pub fn thread_readings(snapshot: &Snapshot, missing: &mut Missing) -> Vec<ThreadReading> {
    let reading = |task: Task<'_>, missing: &mut Missing| -> Option<ThreadReading> {
        Some(ThreadReading {
            process: task.pid().ok()?,
            id: task.identity().ok()?,
            name: label(task.comm().ok()?),
            counts: counts(&task, COUNTERS.into_iter(), missing).0,
            state: task.state().map_or(4, state_index),
            wchan: task.wchan().map(label).unwrap_or_default(),
        })
    };
    snapshot.tasks().filter_map(|task| reading(task, missing)).collect()
}

/// Adds proportional set sizes to readings. Processes that were not walked in time keep their last
/// known size for a while.
pub fn add_pss(readings: &mut [Reading], snapshot: &Snapshot, kept: &mut Pss) {
    let now_ns = now_ns(ClockId::Monotonic);
    let mut known = BTreeMap::new();
    for task in snapshot.tasks() {
        let Ok(id) = task.identity() else { continue };
        let size = || -> Result<Size, Absent> {
            Ok(Size {
                pss: task.pss_bytes()?,
                swap: task.swap_pss_bytes()?,
                at_ns: now_ns.saturating_sub(task.rollup_age_ns()?),
            })
        };
        known.extend(kept.or_kept(id, size(), now_ns).map(|size| (id, size)));
    }
    for reading in readings {
        if let Some(size) = known.get(&reading.id) {
            reading.now.pss_bytes = size.pss;
            reading.now.swap_pss_bytes = size.swap;
            reading.now.with_pss = 1;
        } else if reading.now.virtual_bytes > 0 {
            reading.now.without_pss = 1;
        }
    }
    kept.0 = known;
}

/// How old a proportional set size may be.
pub const PSS_AGE: Duration = Duration::from_secs(600);

/// The proportional set size of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    pss: u64,
    swap: u64,
    /// When it was read, in nanoseconds of `CLOCK_MONOTONIC`.
    at_ns: u64,
}

/// The last known proportional set sizes.
#[derive(Debug, Default)]
pub struct Pss(BTreeMap<Identity, Size>);

impl Pss {
    /// A size, or that of earlier if there was no time to read it. For other reasons it is unknown.
    fn or_kept(&self, id: Identity, size: Result<Size, Absent>, now_ns: u64) -> Option<Size> {
        match size {
            Ok(size) => Some(size),
            Err(Absent::OverBudget | Absent::NoAnswer) => {
                let is_recent = |size: &Size| u128::from(now_ns.saturating_sub(size.at_ns)) <= PSS_AGE.as_nanos();
                self.0.get(&id).copied().filter(is_recent)
            }
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a size is kept for a while if there was no time to read it again, and not if it
    /// may not be read.
    #[test]
    fn sizes_are_kept_for_a_while() {
        let id = Identity::new(1, 1);
        let second = 1_000_000_000;
        let [old, new] = [1, 2].map(|pss| Size {
            pss,
            swap: 0,
            at_ns: pss * second,
        });
        let kept = Pss([(id, old)].into());
        assert_eq!(kept.or_kept(id, Ok(new), 2 * second), Some(new));
        for (reason, at, size) in [
            (Absent::OverBudget, 601, Some(old)),
            (Absent::NoAnswer, 601, Some(old)),
            (Absent::OverBudget, 602, None),
            (Absent::Denied, 2, None),
            (Absent::Gone, 2, None),
        ] {
            assert_eq!(kept.or_kept(id, Err(reason), at * second), size, "{reason:?} {at}");
        }
        assert_eq!(Pss::default().or_kept(id, Err(Absent::OverBudget), 0), None);
    }
}
