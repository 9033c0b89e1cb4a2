//! The table of group metrics: names, types, help texts, and the origin of the values.
//!
//! Names, labels and their values are those of process-exporter for metrics that it has. Other
//! names begin with `taskdiag_`.

use super::totals::{Counter, Counts, Gauges, Group, STATES};

/// A value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Whole(u64),
    Real(f64),
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never falls while the exporter runs. Its name ends with `_total`, which the table omits.
    Counter,
    Gauge,
    /// A metric of process-exporter whose name does not fit its type. promtool accepts such a name
    /// only if the metric has no type.
    Untyped,
}

/// The origin of a series' value.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    Count(Counter),
    /// A counter in nanoseconds, shown in seconds.
    Seconds(Counter),
    Now(fn(&Gauges) -> Option<Number>),
}

/// A metric of groups.
#[derive(Debug)]
pub struct Family {
    /// The name without its prefix.
    pub name: &'static str,
    pub kind: Kind,
    /// One sentence, without the full stop.
    pub help: &'static str,
    /// The labels that distinguish the series of a group. None if there is only one.
    pub labels: &'static [&'static str],
    /// The series: values of the labels, and origin.
    pub series: &'static [(&'static [&'static str], Origin)],
    /// Whether process-exporter has it.
    pub is_usual: bool,
}

pub const fn whole(value: u64) -> Option<Number> {
    Some(Number::Whole(value))
}

/// A value that is known if it is known for some process, or if there is no process.
fn known(value: u64, of: u64, gauges: &Gauges) -> Option<Number> {
    (of > 0 || gauges.processes == 0).then_some(Number::Whole(value))
}

/// Metrics: the name, the type, the help text, and the origin of the value. With labels, an origin for
/// each of their values. What process-exporter does not have is `own`.
macro_rules! families {
    ($($($own:ident)? $name:literal: $kind:ident, $help:literal $(, $label:literal)* =>
        $($([$($value:expr),*])? $origin:ident($of:expr)),*;)*) => {
        &[$(Family {
            name: $name,
            kind: Kind::$kind,
            help: $help,
            labels: &[$($label),*],
            series: &[$((&[$($($value),*)?], Origin::$origin($of))),*],
            is_usual: concat!($(stringify!($own))?).is_empty(),
        }),*]
    };
}

/// The metrics of groups.
pub const GROUPS: &[Family] = families! {
    "num_procs": Gauge, "Processes in the group" => Now(|now| whole(now.processes));
    "cpu_seconds": Counter,
        "Processor time of the group; unsampled is that of processes which ended, after they were last read", "mode" =>
        ["user"] Seconds(Counter::UserNs),
        ["system"] Seconds(Counter::SystemNs),
        ["unsampled"] Seconds(Counter::UnsampledNs);
    "read_bytes": Counter, "Bytes that the group read from storage" => Count(Counter::ReadBytes);
    "write_bytes": Counter, "Bytes that the group caused to be written to storage" => Count(Counter::WriteBytes);
    "major_page_faults": Counter, "Page faults of the group with I/O" => Count(Counter::MajorFaults);
    "minor_page_faults": Counter, "Page faults of the group without I/O" => Count(Counter::MinorFaults);
    "context_switches": Counter, "Context switches of the group", "ctxswitchtype" =>
        ["voluntary"] Count(Counter::Voluntary),
        ["nonvoluntary"] Count(Counter::Nonvoluntary);
    "memory_bytes": Gauge,
        "Memory of the group; what is shared counts for each process, but in proportional sizes once", "memtype" =>
        ["resident"] Now(|now| whole(now.resident_bytes)),
        ["virtual"] Now(|now| whole(now.virtual_bytes)),
        ["swapped"] Now(|now| whole(now.swapped_bytes)),
        ["proportionalResident"] Now(|now| pss(now, now.pss_bytes)),
        ["proportionalSwapped"] Now(|now| pss(now, now.swap_pss_bytes));
    "open_filedesc": Gauge, "Open file descriptors of the group" =>
        Now(|now| known(now.descriptors, now.with_descriptors, now));
    "worst_fd_ratio": Gauge,
        "The largest ratio of open file descriptors to their soft limit of the processes in the group" =>
        Now(|now| known(0, now.with_descriptors, now).map(|_| Number::Real(now.worst_fd_ratio)));
    "oldest_start_time_seconds": Gauge, "When the oldest process of the group started, in seconds since 1970" =>
        Now(|now| now.oldest_start_s.map(Number::Whole));
    "num_threads": Gauge, "Threads of the processes in the group" => Now(|now| whole(now.threads));
    "states": Gauge, "Threads of the group by state, or processes if threads are not read", "state" =>
        [STATES[0]] Now(|now| whole(now.states[0])),
        [STATES[1]] Now(|now| whole(now.states[1])),
        [STATES[2]] Now(|now| whole(now.states[2])),
        [STATES[3]] Now(|now| whole(now.states[3])),
        [STATES[4]] Now(|now| whole(now.states[4]));
    own "network_bytes": Counter,
        "Payload that processes of the group moved through sockets; scope is net for other machines, loopback or unix",
        "scope", "direction" =>
        ["net", "sent"] Count(Counter::NetSent),
        ["net", "received"] Count(Counter::NetReceived),
        ["loopback", "sent"] Count(Counter::LoopbackSent),
        ["loopback", "received"] Count(Counter::LoopbackReceived),
        ["unix", "sent"] Count(Counter::UnixSent),
        ["unix", "received"] Count(Counter::UnixReceived);
    own "ended_processes": Counter, "Processes of the group that ended, as events told" => Count(Counter::Ended);
    own "pss_missing_processes": Gauge,
        "Processes of the group whose proportional size is not known, and not in the sum" =>
        Now(|now| match (now.with_pss, now.without_pss) {
            (0, 0) => None,
            (_, missing) => whole(missing),
        });
};

fn pss(now: &Gauges, value: u64) -> Option<Number> {
    (now.with_pss > 0).then_some(Number::Whole(value))
}

/// The metrics of threads by name, except their number.
pub const THREADS: &[Family] = families! {
    "thread_cpu_seconds": Counter, "Processor time of threads of this name", "mode" =>
        ["user"] Seconds(Counter::UserNs),
        ["system"] Seconds(Counter::SystemNs);
    "thread_io_bytes": Counter,
        "Bytes that threads of this name read from storage or caused to be written there", "iomode" =>
        ["read"] Count(Counter::ReadBytes),
        ["write"] Count(Counter::WriteBytes);
    "thread_major_page_faults": Counter, "Page faults of threads of this name with I/O" =>
        Count(Counter::MajorFaults);
    "thread_minor_page_faults": Counter, "Page faults of threads of this name without I/O" =>
        Count(Counter::MinorFaults);
    "thread_context_switches": Counter, "Context switches of threads of this name", "ctxswitchtype" =>
        ["voluntary"] Count(Counter::Voluntary),
        ["nonvoluntary"] Count(Counter::Nonvoluntary);
};

/// The number of threads with a name. It comes last among the metrics of threads.
pub const THREAD_COUNT: (&str, Kind, &str) = ("thread_count", Kind::Untyped, "Threads of this name in the group");

/// The number of threads that wait in a kernel function.
pub const WCHANS: (&str, Kind, &str) = (
    "threads_wchan",
    Kind::Gauge,
    "Threads of the group that wait in this kernel function",
);

impl Origin {
    /// The value for a group.
    pub fn of_group(self, group: &Group) -> Option<Number> {
        match self {
            Origin::Now(value) => value(&group.now),
            from => from.of_counts(&group.counts),
        }
    }

    /// The value from counters.
    pub fn of_counts(self, counts: &Counts) -> Option<Number> {
        match self {
            Origin::Count(counter) => counts.get(counter).map(Number::Whole),
            Origin::Seconds(counter) => counts.get(counter).map(|ns| Number::Real(ns as f64 / 1e9)),
            Origin::Now(_) => None,
        }
    }
}

/// The number of series per group, and per thread name.
pub fn series() -> (usize, usize) {
    let sum = |families: &[Family]| families.iter().map(|family| family.series.len()).sum::<usize>();
    (sum(GROUPS), sum(THREADS) + 1)
}
