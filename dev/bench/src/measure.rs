//! Rounds: every contender runs once in each, so that what disturbs the machine disturbs all of
//! them alike, and any two can be compared round by round.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use crate::contenders::{Contender, Lists};
use crate::counts::{Counters, Counts};
use crate::run::Runner;
use crate::tools::Tools;
use crate::Result;

/// How long a contender runs per round. Fast ones run several times, and their mean counts.
const ROUND: Duration = Duration::from_millis(20);

/// The maximum number of runs per round.
const MOST_RUNS: u32 = 200;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds.
    pub rounds: usize,
    /// Run each contender only once per round.
    pub single: bool,
}

/// The measurements of a contender.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Milliseconds, round by round.
    pub rounds: Vec<f64>,
    /// The number of tasks that it listed; 0 if unknown.
    pub rows: usize,
    /// Bytes of records.
    pub record_bytes: u64,
    /// The counts other than time.
    pub counts: Counts,
}

impl Figures {
    /// The median of the rounds.
    pub fn median(&self) -> f64 {
        median(&self.rounds)
    }
}

/// The median; for an even number of values, the mean of the middle two.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let (low, high) = ((values.len() - 1) / 2, values.len() / 2);
    (values[low] + values[high]) / 2.0
}

/// The minimum and maximum of some values.
pub fn least_and_most(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(0.0, f64::max))
}

/// The processor time of all threads of a process, including those that have ended.
pub fn processor_time(pid: u32) -> Result<Duration> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both results outlive the calls.
    let is_read =
        unsafe { libc::clock_getcpuclockid(pid as i32, &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0 };
    if !is_read {
        return Err("its processor time can't be read".into());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// The peak resident memory of a process, in KiB.
pub fn peak_kib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmHWM")?;
    Ok(number.parse()?)
}

/// A contender and its result.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The contender.
    pub contender: &'static Contender,
    /// Its figures, or why it could not take part.
    pub outcome: std::result::Result<Figures, String>,
}

/// A contender that has warmed up.
struct Ready {
    /// Its index among the entries.
    index: usize,
    run: Runner,
    /// The number of runs per round.
    runs: u32,
}

/// The minimum that must be listed: the whole farm.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Processes.
    pub processes: usize,
    /// Threads.
    pub threads: usize,
}

/// Measures these contenders.
pub fn measure(
    contenders: &[&'static Contender],
    expected: Expected,
    effort: Effort,
    tools: &Tools,
    counters: &Counters,
) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut ready = Vec::new();
    for (index, &contender) in contenders.iter().enumerate() {
        progress(&format!("warming up and counting: {}", contender.name));
        let outcome = match contender.prepare(tools) {
            Ok(run) => {
                let (runner, figures) = warm_up(index, contender, run, expected, effort)?;
                ready.push(runner);
                Ok(Figures {
                    counts: counters.count(contender, tools),
                    ..figures
                })
            }
            Err(reason) => Err(reason.to_string()),
        };
        entries.push(Entry { contender, outcome });
    }
    for round in 0..effort.rounds {
        progress(&format!("round {} of {}", round + 1, effort.rounds));
        let from = round % ready.len().max(1);
        let (last, first) = ready.split_at_mut(from);
        for runner in first.iter_mut().chain(last) {
            if let Ok(figures) = &mut entries[runner.index].outcome {
                let runs = (0..runner.runs).map(|_| Ok((runner.run)()?.took));
                let total: Duration = runs.sum::<Result<Duration>>()?;
                figures.rounds.push(total.as_secs_f64() * 1e3 / f64::from(runner.runs));
            }
        }
    }
    progress("");
    Ok(entries)
}

/// Shows the progress on a terminal, replacing the previous line.
pub fn progress(what: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
    }
}

fn warm_up(
    index: usize,
    contender: &Contender,
    mut run: Runner,
    expected: Expected,
    effort: Effort,
) -> Result<(Ready, Figures)> {
    run()?;
    let warm = run()?;
    let least = match contender.lists {
        Lists::Processes => expected.processes,
        Lists::Threads => expected.threads,
        Lists::Anything => 0,
    };
    if warm.rows < least && warm.rows > 0 {
        return Err(format!("{}: {} tasks instead of at least {least}", contender.name, warm.rows).into());
    }
    let runs = ROUND
        .as_nanos()
        .div_ceil(warm.took.as_nanos().max(1))
        .min(MOST_RUNS.into()) as u32;
    let runs = if effort.single { 1 } else { runs.max(1) };
    let figures = Figures {
        rounds: Vec::new(),
        rows: warm.rows,
        record_bytes: warm.record_bytes,
        counts: Counts::none(),
    };
    Ok((Ready { index, run, runs }, figures))
}
