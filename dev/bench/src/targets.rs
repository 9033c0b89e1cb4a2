//! The targets, and the measurements.

use crate::measure::{least_and_most, median, Entry, Figures};
use crate::report::{number, Table};
use crate::scale::Scale;

/// The range in which a figure must lie.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Bound {
    /// Whether a figure is within the range.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
        }
    }

    /// The range, for the report.
    pub fn text(self) -> String {
        match self {
            Bound::AtLeast(least) => format!("≥ {least}"),
            Bound::AtMost(most) => format!("≤ {most}"),
        }
    }

    /// Whether it was met, for the report.
    pub fn verdict(self, measured: Option<f64>) -> &'static str {
        match measured {
            None => "not measured",
            Some(value) if self.holds(value) => "met",
            Some(_) => "NOT met",
        }
    }

    /// A row of the report: the claim, the target, the measurement, and whether the target was met.
    pub fn row(self, claim: &str, measured: Option<f64>) -> [String; 4] {
        let value = measured.map_or_else(|| "–".to_owned(), number);
        [claim.to_owned(), self.text(), value, self.verdict(measured).to_owned()]
    }

    /// The end of a row of the report: the target, the measurement, its spread, and whether the
    /// target was met.
    pub fn cells(self, measured: Option<Measured>) -> [String; 4] {
        let verdict = self
            .verdict(measured.as_ref().map(|measured| measured.middle))
            .to_owned();
        let (value, spread) = match measured {
            Some(measured) => (number(measured.middle), measured.spread()),
            None => ("–".to_owned(), String::new()),
        };
        [self.text(), value, spread, verdict]
    }
}

/// A comparison.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// The time of the fastest of the first ones, relative to the other's time.
    Times(&'static [&'static str], &'static str),
    /// System calls.
    Calls(&'static str),
    /// Bytes of records per task.
    BytesPerTask(&'static str),
    /// The bytes of records of the first, relative to the other's.
    Bytes(&'static str, &'static str),
    /// Microseconds.
    Microseconds(&'static str),
    /// The slowest round, relative to the median.
    Slowest(&'static str),
}

/// Where a target applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// With this many processes; elsewhere the figure is shown for comparison.
    Processes(usize),
    /// With any number of processes.
    AnyProcesses,
    /// With many threads.
    Threads,
}

/// A target.
#[derive(Debug)]
struct Target {
    claim: &'static str,
    at: At,
    figure: Figure,
    bound: Bound,
}

const fn target(at: At, claim: &'static str, figure: Figure, bound: Bound) -> Target {
    Target {
        claim,
        at,
        figure,
        bound,
    }
}

use At::{AnyProcesses, Processes, Threads};
use Bound::{AtLeast, AtMost};
use Figure::{Bytes, BytesPerTask, Calls, Microseconds, Slowest, Times};

const PROCFS_CRATE: &[&str] = &["procfs-crate/all_processes", "procfs-crate/from_file"];

#[rustfmt::skip]
const TARGETS: &[Target] = &[
    target(Processes(30_000), "base+cred: times as fast as the status loop", Times(&["loop/status"], "library/bpf"), AtLeast(20.0)),
    target(Processes(30_000), "base+cred: times as fast as the stat loop", Times(&["loop/stat"], "library/bpf"), AtLeast(14.0)),
    target(Processes(30_000), "base+cred: times as long as the empty iterator", Times(&["library/bpf"], "iterator/empty"), AtMost(2.0)),
    target(Processes(30_000), "base+cred: the slowest of 40 rounds as a multiple of the median (--rounds 40)", Slowest("library/bpf"), AtMost(1.6)),
    target(Processes(30_000), "base+cred, new snapshot: times as fast as the status loop", Times(&["loop/status"], "library/bpf-fresh"), AtLeast(20.0)),
    target(Processes(30_000), "base+cred, new snapshot: times as fast as the stat loop", Times(&["loop/stat"], "library/bpf-fresh"), AtLeast(14.0)),
    target(Processes(30_000), "base+cred, new snapshot: times as long as the empty iterator", Times(&["library/bpf-fresh"], "iterator/empty"), AtMost(2.0)),
    target(Processes(30_000), "with args, cold: times as fast as the status+cmdline loop", Times(&["loop/status+cmdline"], "library/bpf+args-cold"), AtLeast(2.0)),
    target(Processes(30_000), "with args, again: times as fast as the status+cmdline loop", Times(&["loop/status+cmdline"], "library/bpf+args-again"), AtLeast(15.0)),
    target(Processes(30_000), "base+cred: system calls", Calls("library/bpf"), AtMost(250.0)),
    target(Processes(30_000), "base+cred: bytes a task", BytesPerTask("library/bpf"), AtMost(400.0)),
    target(Processes(10_000), "all groups: times as fast as a loop over the same files", Times(&["loop/all-files"], "library/bpf-all"), AtLeast(10.0)),
    target(Processes(30_000), "1 % by uid, with command lines and io: times as long as base of all", Times(&["library/bpf-where-uid"], "library/bpf-base"), AtMost(1.5)),
    target(Processes(30_000), "ten processes by pid: microseconds", Microseconds("library/bpf-ten"), AtMost(10.0)),
    target(Processes(30_000), "watching 200 active ones: bytes of all as a multiple of those of changed ones", Bytes("library/bpf-watch-all", "library/bpf-watch-changed"), AtLeast(20.0)),
    target(Processes(30_000), "watching 200 active ones: times as fast as all", Times(&["library/bpf-watch-all"], "library/bpf-watch-changed"), AtLeast(1.5)),
    target(Threads, "threads, base+cred: times as fast as the status loop", Times(&["loop/thread-status"], "library/bpf-threads"), AtLeast(20.0)),
    target(Processes(100), "taskdiag ps, nothing pinned: times as fast as ps aux", Times(&["command/ps-aux"], "command/taskdiag"), AtLeast(1.0)),
    target(Processes(30_000), "taskdiag ps, nothing pinned: times as fast as ps aux", Times(&["command/ps-aux"], "command/taskdiag"), AtLeast(6.0)),
    target(AnyProcesses, "procfs source: times as fast as the procfs crate", Times(PROCFS_CRATE, "library/procfs"), AtLeast(1.3)),
    target(AnyProcesses, "taskdiag ps --source procfs: times as fast as ps aux", Times(&["command/ps-aux"], "command/taskdiag-procfs"), AtLeast(1.0)),
    target(AnyProcesses, "procfs source, as a call: times as fast as ps -eo", Times(&["command/ps-eo"], "library/procfs"), AtLeast(1.0)),
];

/// Compares the measurements with the targets.
pub fn table(scale: Scale, entries: &[Entry]) -> Table {
    let mut table = Table::new(&["target", "wanted", "measured", "min – max of rounds", ""], 1);
    for target in TARGETS {
        let verdict = match (target.at, scale) {
            (Processes(target), Scale::Processes(scale)) if target != scale => Some(target),
            (Processes(_) | AnyProcesses, Scale::Processes(_)) | (Threads, Scale::Threads) => None,
            _ => continue,
        };
        // Targets for 100 are not shown elsewhere, nor targets whose claim has its own at this
        // scale.
        if verdict == Some(100) || (verdict.is_some() && has_own(target, scale)) {
            continue;
        }
        let (measured, spread, holds) = match measured(target.figure, entries) {
            Ok(ratios) => (
                number(ratios.middle),
                ratios.spread(),
                Some(target.bound.holds(ratios.middle)),
            ),
            Err(reason) => ("–".to_owned(), reason, None),
        };
        let verdict = match (verdict, holds) {
            (_, None) => "not measured".to_owned(),
            (Some(elsewhere), _) => format!("wanted at {elsewhere}"),
            (None, Some(true)) => "met".to_owned(),
            (None, Some(false)) => "NOT met".to_owned(),
        };
        table.row([target.claim.to_owned(), target.bound.text(), measured, spread, verdict]);
    }
    table
}

/// Whether the same claim has a target for this scale.
fn has_own(target: &Target, scale: Scale) -> bool {
    TARGETS.iter().any(|other| match other.at {
        Processes(processes) => other.claim == target.claim && scale == Scale::Processes(processes),
        _ => false,
    })
}

/// A figure and its spread.
pub struct Measured {
    /// The median of all rounds.
    pub middle: f64,
    /// The minimum and the maximum.
    pub ends: Option<(f64, f64)>,
}

impl Measured {
    /// The median of the rounds' ratios, not the ratio of the medians: a disturbance affects both
    /// contenders of a round.
    pub fn ratio(slow: &[f64], fast: &[f64]) -> Measured {
        let ratios: Vec<f64> = slow.iter().zip(fast).map(|(slow, fast)| slow / fast).collect();
        Measured {
            middle: median(&ratios),
            ends: Some(least_and_most(&ratios)),
        }
    }

    /// The spread, for the report.
    pub fn spread(&self) -> String {
        self.ends.map_or_else(String::new, |(least, most)| {
            format!("{} – {}", number(least), number(most))
        })
    }
}

fn measured(figure: Figure, entries: &[Entry]) -> Result<Measured, String> {
    let single = |middle| Measured { middle, ends: None };
    match figure {
        Times(slow, fast) => {
            let candidates = slow.iter().filter_map(|name| figures(entries, name).ok());
            let slow = candidates
                .min_by(|a, b| a.median().total_cmp(&b.median()))
                .ok_or_else(|| format!("no figures for {}", slow.join(", ")))?;
            Ok(Measured::ratio(&slow.rounds, &figures(entries, fast)?.rounds))
        }
        Calls(name) => Ok(single(figures(entries, name)?.counts.calls.clone()? as f64)),
        Bytes(many, few) => {
            let bytes = |name| figures(entries, name).map(|figures| figures.record_bytes.max(1) as f64);
            Ok(single(bytes(many)? / bytes(few)?))
        }
        Microseconds(name) => {
            let figures = figures(entries, name)?;
            let (least, most) = least_and_most(&figures.rounds);
            Ok(Measured {
                middle: figures.median() * 1e3,
                ends: Some((least * 1e3, most * 1e3)),
            })
        }
        Slowest(name) => {
            let figures = figures(entries, name)?;
            Ok(single(least_and_most(&figures.rounds).1 / figures.median()))
        }
        BytesPerTask(name) => {
            let figures = figures(entries, name)?;
            Ok(single(figures.record_bytes as f64 / figures.rows.max(1) as f64))
        }
    }
}

/// The figures of a contender, or why there are none.
pub fn figures<'a>(entries: &'a [Entry], name: &str) -> Result<&'a Figures, String> {
    let entry = entries.iter().find(|entry| entry.contender.name == name);
    match entry.map(|entry| &entry.outcome) {
        Some(Ok(figures)) => Ok(figures),
        Some(Err(_)) => Err(format!("{name} could not run")),
        None => Err(format!("{name} was not run")),
    }
}
