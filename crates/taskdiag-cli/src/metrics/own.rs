//! Metrics about the exporter itself: its cost, its sources, and what it could not read.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use taskdiag::{Snapshot, Task};

use super::exposition::Single;
use super::families::{whole, Kind, Number};
use super::reading::Missing;
use super::state::State;

/// Metrics, a line for each: its type, its name, its help text, and its value if that is known. With
/// labels, their values, each time with a number.
macro_rules! singles {
    (@ $kind:ident $name:literal $help:literal, $value:expr) => {
        $value.map(|value| Single::new($name, Kind::$kind, $help, value))
    };
    (@ $kind:ident $name:literal $help:literal $labels:tt, $numbers:expr) => {
        Some(Single::labelled($name, Kind::$kind, $help, $labels, $numbers))
    };
    ($($kind:ident $name:literal, $help:literal $(, $labels:tt)? => $value:expr;)*) => {
        [$(singles!(@ $kind $name $help $($labels)?, $value)),*]
    };
}
pub(super) use singles;

/// Counters of samples.
#[derive(Debug, Default)]
pub struct Own {
    /// Samples that were taken.
    pub samples: u64,
    /// Samples that failed.
    pub failed: u64,
    /// Processes that ended while they were being read.
    pub gone: u64,
    /// Processes that may not be seen.
    pub denied: u64,
    /// How long the last sample took.
    pub took: Duration,
    process: Vec<Single>,
    sources: BTreeMap<&'static str, &'static str>,
}

impl Own {
    /// Records the exporter's own resource usage, under the names that Prometheus's client
    /// libraries use.
    pub fn note_process(&mut self, task: Option<Task<'_>>, boot: Timestamp) {
        self.process.clear();
        let Some(task) = task else { return };
        let time = task.utime_ns().and_then(|user| Ok(user + task.stime_ns()?));
        let start = task
            .start_ns()
            .map(|ns| Number::Real(boot.as_second() as f64 + (ns / 10_000_000) as f64 / 100.0));
        let whole = |value: Result<u64, _>| value.ok().map(Number::Whole);
        let known = singles! {
            Counter "process_cpu_seconds", "Processor time of this exporter" => time.ok().map(seconds);
            Gauge "process_resident_memory_bytes", "Resident memory of this exporter" => whole(task.rss_bytes());
            Gauge "process_virtual_memory_bytes", "Virtual memory of this exporter" => whole(task.vsize_bytes());
            Gauge "process_open_fds", "Open file descriptors of this exporter" =>
                whole(task.fd_count().map(u64::from));
            Gauge "process_start_time_seconds", "When this exporter started, in seconds since 1970" => start.ok();
        };
        self.process.extend(known.into_iter().flatten());
    }

    /// Records which sources answered.
    pub fn note_sources(&mut self, snapshot: &Snapshot) {
        self.sources.clear();
        for (group, answer) in snapshot.answers() {
            let who = answer.map_or_else(|reason| reason.as_str(), |source| source.name());
            self.sources.insert(group.name(), who);
        }
    }

    /// The metrics.
    pub fn singles(&self, state: &State, missing: &Missing) -> Vec<Single> {
        let tracker = &state.tracker;
        let displaced = tracker.groupings.iter().map(|grouping| grouping.displaced).sum();
        let took = Number::Real(self.took.as_secs_f64());
        let has_events = u64::from(state.events == Some(Ok(())));
        // process-exporter has the first three, too. It declares them as counters, without the suffix
        // _total.
        let known = singles! {
            Untyped "namedprocess_scrape_errors", "Samples that failed: the last good one was shown instead" =>
                whole(self.failed);
            Untyped "namedprocess_scrape_procread_errors", "Processes that ended while they were read" =>
                whole(self.gone);
            Untyped "namedprocess_scrape_partial_errors",
                "How often a value of a process in a group could not be read" => whole(tracker.partial);
            Counter "taskdiag_metrics_samples", "Samples that were taken" => whole(self.samples);
            Gauge "taskdiag_metrics_sample_seconds", "How long the last sample took" => Some(took);
            Gauge "taskdiag_metrics_undecided_processes",
                "Processes whose arguments could not be read, so that their group is not known" =>
                whole(tracker.undecided());
            Gauge "taskdiag_metrics_denied_processes",
                "Processes that this exporter may not see, so that they are in no group" => whole(self.denied);
            Counter "taskdiag_metrics_displaced_groups",
                "Groups that lost their series to others, and are among the other ones" => whole(displaced);
            Counter "taskdiag_metrics_unassigned_processes",
                "Processes that ended before they were read, and of which too little is known for a group" =>
                whole(tracker.unassigned);
            Counter "taskdiag_metrics_unassigned_cpu_seconds", "Processor time of unassigned processes" =>
                Some(seconds(tracker.unassigned_ns));
            Counter "taskdiag_metrics_lost_events", "Ends of processes that were not told" => whole(state.lost);
            Gauge "taskdiag_metrics_events", "Whether events tell of processes that end between two samples" =>
                whole(has_events);
            Gauge "taskdiag_metrics_missing_values", "Values that could not be read in the last sample", ["field", "reason"] =>
                missing.iter().map(|((field, reason), &count)| ([*field, *reason], count));
            Gauge "taskdiag_metrics_sources", "Who answered for each group of fields", ["group", "source"] =>
                self.sources.iter().map(|(&group, &source)| ([group, source], 1));
            Gauge "taskdiag_build_info", "The version of this exporter", ["version"] =>
                [([env!("CARGO_PKG_VERSION")], 1)];
        };
        known
            .into_iter()
            .flatten()
            .chain(self.process.iter().cloned())
            .collect()
    }
}

fn seconds(ns: u64) -> Number {
    Number::Real(ns as f64 / 1e9)
}

/// The number of series in a picture.
pub fn series(count: usize) -> Single {
    let help = "Series of the last sample, without those about the answer itself";
    let count = Number::Whole(count as u64);
    Single::new("taskdiag_metrics_series", Kind::Gauge, help, count)
}
