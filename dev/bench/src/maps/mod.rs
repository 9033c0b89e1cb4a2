//! The suite for memory maps: look-ups, normalization, lists of one process and of all.

mod contenders;
mod targets;

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use taskdiag_zoo::{Animal, Farm, Zoo};

use crate::measure::{median, Effort};
use crate::report::{number, Table};
use crate::tools::Tools;
use crate::{Report, Result};
use contenders::Contender;

/// The numbers of mappings of the examined processes.
const SIZES: [usize; 5] = [30, 300, 2_700, 5_000, 40_000];

/// The numbers of addresses per request.
const BATCHES: [usize; 4] = [1, 16, 64, 1_024];

/// The number of processes whose mappings are all listed.
const PROCESSES: usize = 2_000;

/// How long a contender runs per round. Fast ones run several times.
const ROUND: Duration = Duration::from_millis(10);

/// The maximum number of runs per round.
const MOST_RUNS: u32 = 2_000;

/// A case. Targets refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Looking up the mappings at addresses, in an open file.
    LookUp { size: usize, batch: usize },
    /// From addresses to places in files, including everything.
    Normalize { size: usize, batch: usize },
    /// The executable mappings of a process, with names, including everything.
    List { size: usize },
    /// The executable mappings of all processes, with names.
    Machine,
}

/// The times of a contender in a case: microseconds, round by round.
#[derive(Clone, Debug)]
struct Entry {
    case: Case,
    name: &'static str,
    rounds: Vec<f64>,
}

/// Measures all cases.
pub fn run(effort: Effort, tools: &Tools, report: &mut Report) -> Result<()> {
    let mut entries = Vec::new();
    let zoo = Zoo::new()?;
    for size in SIZES {
        let animal = zoo.with_mappings(size)?;
        let addresses = addresses(&animal)?;
        for (heading, case) in [
            (
                "Look-ups",
                (|size, batch| Case::LookUp { size, batch }) as fn(usize, usize) -> Case,
            ),
            ("Normalization", |size, batch| Case::Normalize { size, batch }),
        ] {
            let mut measured = Vec::new();
            for batch in BATCHES {
                let batch_addresses = take(&addresses, batch);
                let contenders = match case(size, batch) {
                    Case::LookUp { .. } => contenders::look_ups(&animal, &batch_addresses)?,
                    _ => contenders::normalizers(&animal, &batch_addresses)?,
                };
                measured.extend(measure(case(size, batch), contenders, effort)?);
            }
            report.heading(&format!("{heading} in {size} mappings"));
            report.table(&by_batch(&measured));
            entries.extend(measured);
        }
        let measured = measure(Case::List { size }, contenders::lists(&animal)?, effort)?;
        report.heading(&format!("Executable mappings of a process with {size} mappings"));
        report.table(&plain(&measured));
        entries.extend(measured);
    }
    let farm = Farm::start(PROCESSES, 1)?;
    let measured = measure(Case::Machine, contenders::machine(tools)?, effort)?;
    drop(farm);
    report.heading(&format!(
        "Executable mappings of all processes, {PROCESSES} of them idle"
    ));
    report.table(&plain(&measured));
    entries.extend(measured);
    report.heading("Targets for memory maps");
    report.line("Median of the ratios of each round.");
    report.table(&targets::table(&entries));
    Ok(())
}

/// An address in each executable file mapping.
fn addresses(animal: &Animal) -> Result<Vec<u64>> {
    let text = std::fs::read_to_string(format!("/proc/{}/maps", animal.pid))?;
    let starts = text
        .lines()
        .filter(|line| line.contains(" r-xp ") && line.contains(" /"))
        .map(|line| Ok(u64::from_str_radix(line.split('-').next().unwrap_or_default(), 16)?));
    starts.collect()
}

/// This many addresses, spread over the mappings and unordered; several per mapping if there are
/// too few.
fn take(starts: &[u64], count: usize) -> Vec<u64> {
    let mut addresses: Vec<u64> = (0..count)
        .map(|index| {
            let place = if count < starts.len() {
                index * starts.len() / count
            } else {
                index % starts.len()
            };
            starts[place] + (index / starts.len()) as u64 + 16
        })
        .collect();
    // The same order every time.
    addresses.sort_by_key(|address| address.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    addresses
}

/// Runs each contender once per round, starting with a different one each time.
fn measure(case: Case, mut contenders: Vec<Contender>, effort: Effort) -> Result<Vec<Entry>> {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{case:?}");
    }
    let mut runs = Vec::new();
    let mut entries = Vec::new();
    for contender in &mut contenders {
        (contender.run)()?;
        let start = Instant::now();
        (contender.run)()?;
        let fitting = ROUND.as_nanos().div_ceil(start.elapsed().as_nanos().max(1));
        runs.push(if effort.single {
            1
        } else {
            fitting.min(MOST_RUNS.into()) as u32
        });
        entries.push(Entry {
            case,
            name: contender.name,
            rounds: Vec::new(),
        });
    }
    for round in 0..effort.rounds {
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            let start = Instant::now();
            for _ in 0..runs[index] {
                (contenders[index].run)()?;
            }
            let took = start.elapsed().as_secs_f64() * 1e6 / f64::from(runs[index]);
            entries[index].rounds.push(took);
        }
    }
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    Ok(entries)
}

fn cell(entry: &Entry) -> String {
    let least = entry.rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = entry.rounds.iter().copied().fold(0.0, f64::max);
    format!(
        "{} ({} – {})",
        number(median(&entry.rounds)),
        number(least),
        number(most)
    )
}

/// One row per contender, one column per batch.
fn by_batch(entries: &[Entry]) -> Table {
    let headings = ["µs: median (min – max)", "1 address", "16", "64", "1024", ""];
    let mut table = Table::new(&headings, 1);
    let names = entries
        .iter()
        .take(entries.len() / BATCHES.len())
        .map(|entry| entry.name);
    for name in names {
        let cells = entries.iter().filter(|entry| entry.name == name).map(cell);
        table.row([name.to_owned()].into_iter().chain(cells).chain([String::new()]));
    }
    table
}

/// One row per contender.
fn plain(entries: &[Entry]) -> Table {
    let mut table = Table::new(&["contender", "µs: median (min – max)", ""], 1);
    for entry in entries {
        table.row([entry.name.to_owned(), cell(entry), String::new()]);
    }
    table
}
