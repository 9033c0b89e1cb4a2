//! Metrics about the exporter itself: its cost, its sources, and what it could not read.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use taskdiag::{Snapshot, Task};

use super::exposition::Single;
use super::families::{Kind, Number};
use super::reading::Missing;
use super::state::State;
use super::tracker::Tracker;

/// Counters of samples.
#[derive(Debug, Default)]
pub struct Own {
    /// Samples that were taken.
    pub samples: u64,
    /// Samples that failed.
    pub failed: u64,
    /// Processes that ended while they were being read.
    pub gone: u64,
    /// How long the last sample took.
    pub took: Duration,
    process: Vec<Single>,
    sources: BTreeMap<&'static str, String>,
}

impl Own {
    /// Records the exporter's own resource usage, under the names that Prometheus's client
    /// libraries use.
    pub fn note_process(&mut self, task: Option<Task<'_>>, boot: Timestamp) {
        self.process.clear();
        let Some(task) = task else { return };
        let mut put = |name, kind, help, value: Option<Number>| {
            self.process
                .extend(value.map(|value| Single::new(name, kind, help, value)));
        };
        let time = task.utime_ns().and_then(|user| Ok(user + task.stime_ns()?));
        let seconds = |ns: u64| Number::Real(ns as f64 / 1e9);
        put(
            "process_cpu_seconds",
            Kind::Counter,
            "Processor time of this exporter",
            time.ok().map(seconds),
        );
        let whole = |value: Result<u64, _>| value.ok().map(Number::Whole);
        let help = "Resident memory of this exporter";
        put(
            "process_resident_memory_bytes",
            Kind::Gauge,
            help,
            whole(task.rss_bytes()),
        );
        let help = "Virtual memory of this exporter";
        put(
            "process_virtual_memory_bytes",
            Kind::Gauge,
            help,
            whole(task.vsize_bytes()),
        );
        let help = "Open file descriptors of this exporter";
        put(
            "process_open_fds",
            Kind::Gauge,
            help,
            whole(task.fd_count().map(u64::from)),
        );
        let start = task
            .start_ns()
            .map(|ns| Number::Real(boot.as_second() as f64 + (ns / 10_000_000) as f64 / 100.0));
        let help = "When this exporter started, in seconds since 1970";
        put("process_start_time_seconds", Kind::Gauge, help, start.ok());
    }

    /// Records which sources answered.
    pub fn note_sources(&mut self, snapshot: &Snapshot) {
        self.sources.clear();
        for (group, answer) in snapshot.answers() {
            let who = answer.map_or_else(|reason| reason.as_str(), |source| source.name());
            self.sources.insert(group.name(), who.to_owned());
        }
    }

    /// The metrics.
    pub fn singles(&self, state: &State, missing: &Missing) -> Vec<Single> {
        let mut singles = self.errors(&state.tracker);
        singles.extend(self.of_samples(state));
        singles.push(labelled(
            "taskdiag_metrics_missing_values",
            "Values that could not be read in the last sample",
            missing
                .iter()
                .map(|((field, reason), &count)| {
                    let labels = vec![("field", (*field).to_owned()), ("reason", (*reason).to_owned())];
                    (labels, Number::Whole(count))
                })
                .collect(),
        ));
        singles.push(labelled(
            "taskdiag_metrics_sources",
            "Who answered for each group of fields",
            self.sources
                .iter()
                .map(|(group, source)| {
                    let labels = vec![("group", (*group).to_owned()), ("source", source.clone())];
                    (labels, Number::Whole(1))
                })
                .collect(),
        ));
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        let help = "The version of this exporter";
        singles.push(labelled("taskdiag_build_info", help, vec![(version, Number::Whole(1))]));
        singles.extend(self.process.iter().cloned());
        singles
    }

    /// Metrics that process-exporter has, too. It declares them as counters, without the suffix
    /// _total.
    fn errors(&self, tracker: &Tracker) -> Vec<Single> {
        vec![
            whole(
                "namedprocess_scrape_errors",
                Kind::Untyped,
                "Samples that failed: the last good one was shown instead",
                self.failed,
            ),
            whole(
                "namedprocess_scrape_procread_errors",
                Kind::Untyped,
                "Processes that ended while they were read",
                self.gone,
            ),
            whole(
                "namedprocess_scrape_partial_errors",
                Kind::Untyped,
                "How often a value of a process in a group could not be read",
                tracker.partial,
            ),
        ]
    }

    /// Counters of samples, and of processes whose group is unknown.
    fn of_samples(&self, state: &State) -> Vec<Single> {
        let tracker = &state.tracker;
        let displaced = tracker.groupings.iter().map(|grouping| grouping.displaced).sum();
        vec![
            whole(
                "taskdiag_metrics_samples",
                Kind::Counter,
                "Samples that were taken",
                self.samples,
            ),
            Single::new(
                "taskdiag_metrics_sample_seconds",
                Kind::Gauge,
                "How long the last sample took",
                Number::Real(self.took.as_secs_f64()),
            ),
            whole(
                "taskdiag_metrics_undecided_processes",
                Kind::Gauge,
                "Processes whose arguments could not be read, so that their group is not known",
                tracker.undecided(),
            ),
            whole(
                "taskdiag_metrics_displaced_groups",
                Kind::Counter,
                "Groups that lost their series to others, and are among the other ones",
                displaced,
            ),
            whole(
                "taskdiag_metrics_unassigned_processes",
                Kind::Counter,
                "Processes that ended before they were read, and of which too little is known for a group",
                tracker.unassigned,
            ),
            Single::new(
                "taskdiag_metrics_unassigned_cpu_seconds",
                Kind::Counter,
                "Processor time of unassigned processes",
                Number::Real(tracker.unassigned_ns as f64 / 1e9),
            ),
            whole(
                "taskdiag_metrics_lost_events",
                Kind::Counter,
                "Ends of processes that were not told",
                state.lost,
            ),
            whole(
                "taskdiag_metrics_events",
                Kind::Gauge,
                "Whether events tell of processes that end between two samples",
                u64::from(state.events == Some(Ok(()))),
            ),
        ]
    }
}

/// A metric with one whole number.
pub fn whole(name: &'static str, kind: Kind, help: &'static str, value: u64) -> Single {
    Single::new(name, kind, help, Number::Whole(value))
}

fn labelled(name: &'static str, help: &'static str, series: Vec<(Vec<(&'static str, String)>, Number)>) -> Single {
    let kind = Kind::Gauge;
    Single {
        name,
        kind,
        help,
        series,
    }
}

/// The number of series in a picture.
pub fn series(count: usize) -> Single {
    Single::new(
        "taskdiag_metrics_series",
        Kind::Gauge,
        "Series of the last sample, without those about the answer itself",
        Number::Whole(count as u64),
    )
}
