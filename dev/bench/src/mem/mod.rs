//! The suite for proportional sizes: one process, all processes, a deadline, and the error of
//! remembered sizes.

mod contenders;
pub mod hoarder;

use std::io::{self, IsTerminal as _};
use std::process::Command;
use std::time::{Duration, Instant};

use taskdiag::{Budget, Field, Handle, Query};
use taskdiag_zoo::{Farm, Zoo};

use crate::measure::{least_and_most, median, Effort};
use crate::report::{number, Table};
use crate::targets::{Bound, Measured};
use crate::tools::Tools;
use crate::{Report, Result};
use contenders::Contender;
use hoarder::Hoarder;

/// The numbers of mappings of the examined processes.
const SIZES: [usize; 3] = [2_700, 5_000, 20_000];

/// The number of processes whose sizes are all read.
const PROCESSES: usize = 2_000;

/// The number of small processes next to a large one, and the deadline for all of them.
const SMALL: usize = 500;
const LARGE_BYTES: usize = 4 << 30;
const DEADLINE: &str = "0.05";

/// How long a contender runs per round. Fast ones run several times.
const ROUND: Duration = Duration::from_millis(10);

/// The maximum number of runs per round.
const MOST_RUNS: u32 = 500;

/// The times of a contender: milliseconds, round by round.
struct Entry {
    name: &'static str,
    rounds: Vec<f64>,
}

/// Measures all cases.
pub fn run(effort: Effort, tools: &Tools, report: &mut Report) -> Result<()> {
    let mut targets = Table::new(&["target", "case", "wanted", "measured", "min – max of rounds", ""], 2);
    let zoo = Zoo::new()?;
    for (size, wanted) in SIZES.into_iter().zip([12.0, 12.0, 15.0]) {
        let animal = zoo.with_mappings(size)?;
        let entries = measure(contenders::one(animal.pid as u32, tools)?, effort)?;
        report.heading(&format!("Proportional size of a process with {size} mappings"));
        report.table(&figures(&entries));
        let case = format!("{size} mappings");
        targets.row(target(
            "times as fast as summing smaps",
            &case,
            wanted,
            &entries,
            "smaps summed",
            "taskdiag",
        ));
    }
    let farm = Farm::start(PROCESSES, 1)?;
    let entries = measure(contenders::machine(tools)?, effort)?;
    drop(farm);
    report.heading(&format!(
        "Proportional sizes of all processes, {PROCESSES} of them idle"
    ));
    report.table(&figures(&entries));
    let case = format!("all of {PROCESSES}");
    let rival = fastest_rival(&entries);
    let claim = format!("times as fast as the fastest competitor ({rival})");
    targets.row(target(&claim, &case, 3.0, &entries, rival, "taskdiag"));
    let claim = "again, with nothing changed, as the fastest competitor";
    targets.row(target(claim, &case, 20.0, &entries, rival, "taskdiag, nothing changed"));
    let mut hoarder = Hoarder::start(LARGE_BYTES)?;
    with_deadline(effort, tools, &hoarder, report, &mut targets)?;
    without_deadline(effort, &mut hoarder, report)?;
    drop(hoarder);
    remembered(report)?;
    report.heading("Targets for proportional sizes");
    report.line("Median of the ratios of each round.");
    report.table(&targets);
    Ok(())
}

/// The fastest of the programs that people use. Bare reading of rollups in a loop is not a
/// competitor, but the kernel's own cost.
fn fastest_rival(entries: &[Entry]) -> &'static str {
    let is_rival = |entry: &&Entry| !entry.name.contains("taskdiag") && entry.name != "smaps_rollup read";
    let rivals = entries.iter().filter(is_rival);
    let fastest = rivals.min_by(|a, b| median(&a.rounds).total_cmp(&median(&b.rounds)));
    fastest.map_or("", |entry| entry.name)
}

/// Runs each contender once per round, starting with a different one each time.
fn measure(mut contenders: Vec<Contender>, effort: Effort) -> Result<Vec<Entry>> {
    let mut runs = Vec::new();
    for contender in &mut contenders {
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K{}", contender.name);
        }
        (contender.run)()?;
        let took = (contender.run)()?;
        let fitting = ROUND.as_nanos().div_ceil(took.as_nanos().max(1));
        runs.push(if effort.single {
            1
        } else {
            fitting.min(MOST_RUNS.into()) as u32
        });
    }
    let mut entries: Vec<Entry> = contenders
        .iter()
        .map(|contender| Entry {
            name: contender.name,
            rounds: Vec::new(),
        })
        .collect();
    for round in 0..effort.rounds {
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            let times = (0..runs[index]).map(|_| (contenders[index].run)());
            let total = times.sum::<Result<Duration>>()?;
            entries[index]
                .rounds
                .push(total.as_secs_f64() * 1e3 / f64::from(runs[index]));
        }
    }
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    Ok(entries)
}

fn figures(entries: &[Entry]) -> Table {
    let mut table = Table::new(&["contender", "median ms", "min", "max", ""], 1);
    for entry in entries {
        let (least, most) = least_and_most(&entry.rounds);
        let numbers = [median(&entry.rounds), least, most].map(number);
        table.row(
            [entry.name.to_owned()]
                .into_iter()
                .chain(numbers)
                .chain([String::new()]),
        );
    }
    table
}

fn target(claim: &str, case: &str, wanted: f64, entries: &[Entry], slow: &str, fast: &str) -> Vec<String> {
    let rounds = |name: &str| {
        entries
            .iter()
            .find(|entry| entry.name == name)
            .map(|entry| &entry.rounds)
    };
    let measured = rounds(slow).zip(rounds(fast));
    let measured = measured.map(|(slow, fast)| Measured::ratio(slow, fast));
    let begin = [claim.to_owned(), case.to_owned()];
    begin
        .into_iter()
        .chain(Bound::AtLeast(wanted).cells(measured))
        .collect()
}

/// The result for many small processes and a large one with a short deadline.
fn with_deadline(
    effort: Effort,
    tools: &Tools,
    hoarder: &Hoarder,
    report: &mut Report,
    targets: &mut Table,
) -> Result<()> {
    let farm = Farm::start(SMALL, 1)?;
    let taskdiag = tools.taskdiag()?;
    let mut rounds = Vec::new();
    let mut answered = usize::MAX;
    let mut was_left_out = 0;
    for _ in 0..effort.rounds {
        let mut command = Command::new(&taskdiag);
        command.args([
            "mem",
            "--deadline",
            DEADLINE,
            "--max-rss",
            "none",
            "--csv",
            "-o",
            "pid,pss_bytes",
        ]);
        let start = Instant::now();
        let output = command.output()?;
        rounds.push(start.elapsed().as_secs_f64() * 1e3);
        let text = String::from_utf8(output.stdout)?;
        let has_value = |pid: i32| {
            text.lines()
                .any(|line| matches!(line.split_once(','), Some((of, pss)) if of == pid.to_string() && !pss.is_empty()))
        };
        answered = answered.min(farm.pids().iter().filter(|&&pid| has_value(pid)).count());
        was_left_out += usize::from(!has_value(hoarder.pid() as i32));
    }
    let (least, most) = least_and_most(&rounds);
    report.heading(&format!("{SMALL} small processes and one of 4 GiB, in 50 ms"));
    report.line(&format!(
        "`taskdiag mem --deadline {DEADLINE}`, all of the command: {} ms ({} – {}); of the small processes {answered} were \
         answered at least; the large one was left out {was_left_out} times of {}.",
        number(median(&rounds)),
        number(least),
        number(most),
        rounds.len()
    ));
    for (claim, wanted, measured, is_met) in [
        (
            "small ones answered",
            SMALL.to_string(),
            answered.to_string(),
            answered == SMALL,
        ),
        (
            "ms until the command has ended, at most",
            "≤ 100".to_owned(),
            number(most),
            most <= 100.0,
        ),
    ] {
        let verdict = if is_met { "met" } else { "NOT met" };
        let spread = if wanted.starts_with('≤') {
            format!("{} – {}", number(least), number(most))
        } else {
            String::new()
        };
        targets.row([
            claim.to_owned(),
            "4 GiB and small ones, 50 ms".to_owned(),
            wanted,
            measured,
            spread,
            verdict.to_owned(),
        ]);
    }
    Ok(())
}

/// How long a walk makes the large process wait.
fn without_deadline(effort: Effort, hoarder: &mut Hoarder, report: &mut Report) -> Result<()> {
    hoarder.longest_wait()?;
    std::thread::sleep(Duration::from_millis(300));
    let idle = hoarder.longest_wait()?;
    let query = Query::process(hoarder.pid())
        .fields(Field::PssBytes)
        .budget(Budget::UNLIMITED);
    let mut handle = Handle::new();
    let mut walks = Vec::new();
    for _ in 0..effort.rounds {
        let start = Instant::now();
        handle.query(&query)?.task(0).pss_bytes()?;
        walks.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let waited = hoarder.longest_wait()?;
    report.line(&format!(
        "Walking the 4 GiB takes {} ms ({:.1} ns for each page). Meanwhile mmap and munmap in that process took {} ms at most, \
         without a walk {} ms.",
        number(median(&walks)),
        median(&walks) * 1e6 / (LARGE_BYTES / 4096) as f64,
        number(waited.as_secs_f64() * 1e3),
        number(idle.as_secs_f64() * 1e3)
    ));
    Ok(())
}

/// The error of remembered values after processes that shared memory have ended.
fn remembered(report: &mut Report) -> Result<()> {
    let ended = Farm::start(SMALL, 1)?;
    let staying = Farm::start(SMALL, 1)?;
    let pids = || staying.pids().iter().map(|&pid| pid as u32);
    let budget = |max_age| Budget::UNLIMITED.max_age(max_age);
    let mut handle = Handle::new();
    let mut ask = |max_age: Duration| -> Result<Vec<u64>> {
        let query = Query::these(pids()).fields(Field::PssBytes).budget(budget(max_age));
        let snapshot = handle.query(&query)?;
        Ok(snapshot.tasks().filter_map(|task| task.pss_bytes().ok()).collect())
    };
    ask(Duration::from_secs(3600))?;
    drop(ended);
    let known = ask(Duration::from_secs(3600))?;
    let truth = ask(Duration::ZERO)?;
    let errors = known.iter().zip(&truth).map(|(known, truth)| truth.abs_diff(*known));
    let worst = errors.clone().max().unwrap_or(0);
    let (known, truth): (u64, u64) = (known.iter().sum(), truth.iter().sum());
    report.heading("Remembered values when others have ended");
    report.line(&format!(
        "{SMALL} of {} processes that share their program's memory ended; those that stayed did not run. Their remembered PSS \
         adds up to {} KiB, the true one to {} KiB: {:.2} % off, for no process more than {} KiB.",
        2 * SMALL,
        known / 1024,
        truth / 1024,
        (truth as f64 - known as f64).abs() * 100.0 / truth.max(1) as f64,
        worst / 1024
    ));
    Ok(())
}
