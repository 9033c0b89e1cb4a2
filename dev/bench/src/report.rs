//! Tables, for the terminal and for `docs/benchmarks.md`.

use std::fmt::Write as _;
use std::fs;

use crate::case::{Bound, Case, Stage, Target, Value};
use crate::measure::{least_and_most, median, Count, Entry, Figures};
use crate::tools::said;
use crate::Report;

const NONE: &str = "–";

/// A number with about three significant digits; a count as it is.
pub fn number(value: f64) -> String {
    let digits = (2.0 - value.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    let digits = if value.fract() == 0.0 { 0 } else { digits };
    format!("{value:.digits$}")
}

/// Reports a case: what it is about, the figures, who is missing, and the targets.
pub fn case(case: &Case, stage: &Stage, rounds: usize, entries: &[Entry], report: &mut Report) {
    report.heading(&format!("{}{}", case.title, stage.title));
    report.line(format!("{rounds} rounds. {}", case.note).trim_end());
    report.table(&figures(case, stage, entries));
    let missing = |entry: &Entry| {
        let reason = match &entry.outcome {
            Ok(figures) => figures.calls.as_ref().err().filter(|reason| *reason != "not counted"),
            Err(reason) => Some(reason),
        };
        let is_run = entry.outcome.is_ok();
        reason.map(|reason| {
            format!(
                "{}: not {}, {}",
                entry.name,
                if is_run { "counted" } else { "run" },
                reason.trim()
            )
        })
    };
    report.list(&entries.iter().filter_map(missing).collect::<Vec<_>>());
    if !case.targets.is_empty() {
        report.line("Targets: median of the ratios of each round.");
        let mut table = vec![["target", "wanted", "measured", "min – max of rounds", ""]
            .map(str::to_owned)
            .to_vec()];
        table.extend(case.targets.iter().map(|target| verdict(target, entries)));
        report.table(&table);
    }
}

/// A row for each contender. Columns in which nothing is said are left out.
fn figures(case: &Case, stage: &Stage, entries: &[Entry]) -> Vec<Vec<String>> {
    let row = case.row;
    let (each, bytes) = (format!("ns/{row}"), format!("bytes/{row}"));
    let headings = [
        "contender",
        "median ms",
        "min",
        "max",
        &each,
        "system calls",
        "peak RSS MiB",
        &bytes,
        "what",
    ];
    let mut table = vec![headings.map(str::to_owned).to_vec()];
    for Entry { name, about, outcome } in entries {
        // What is not known is not a number, or 0.
        let mut numbers = [f64::NAN; 7];
        if let Ok(figures) = outcome {
            let (least, most) = least_and_most(&figures.rounds);
            let (time, bytes) = (median(&figures.rounds), median(&figures.bytes));
            let rows = if figures.rows == 0 { stage.rows } else { figures.rows }.max(1) as f64;
            let count = |count: &Count| count.as_ref().map_or(f64::NAN, |&count| count as f64);
            let (calls, peak) = (count(&figures.calls), count(&figures.peak_kib) / 1024.0);
            numbers = [time, least, most, time * 1e6 / rows, calls, peak, bytes / rows];
            if row.is_empty() {
                (numbers[3], numbers[6]) = (f64::NAN, f64::NAN);
            }
        }
        let cells = numbers.map(|value| {
            if value.is_nan() || value == 0.0 {
                NONE.to_owned()
            } else {
                number(value)
            }
        });
        table.push([vec![name.clone()], cells.to_vec(), vec![(*about).to_owned()]].concat());
    }
    let is_shown = |&column: &usize| table[1..].iter().any(|cells| ![NONE, ""].contains(&&*cells[column]));
    let shown: Vec<usize> = (0..headings.len()).filter(is_shown).collect();
    table
        .iter()
        .map(|cells| shown.iter().map(|&column| cells[column].clone()).collect())
        .collect()
}

/// A target, and what was measured.
fn verdict(target: &Target, entries: &[Entry]) -> Vec<String> {
    let wanted = match target.bound {
        Bound::AtLeast(least) => format!("≥ {least}"),
        Bound::AtMost(most) => format!("≤ {most}"),
        Bound::Any => NONE.to_owned(),
    };
    let (measured, spread, verdict) = match measured(target, entries) {
        Err(reason) => (NONE.to_owned(), reason, "not measured".to_owned()),
        Ok(values) => {
            let (least, most) = least_and_most(&values);
            let spread = if values.len() > 1 {
                format!("{} – {}", number(least), number(most))
            } else {
                String::new()
            };
            let is_met = match target.bound {
                Bound::AtLeast(least) => median(&values) >= least,
                Bound::AtMost(most) => median(&values) <= most,
                Bound::Any => true,
            };
            let verdict = match (&target.elsewhere, target.bound) {
                (Some(place), _) => format!("wanted {place}"),
                (None, Bound::Any) => String::new(),
                (None, _) => if is_met { "met" } else { "NOT met" }.to_owned(),
            };
            (number(median(&values)), spread, verdict)
        }
    };
    vec![target.claim.clone(), wanted, measured, spread, verdict]
}

/// The figure of each round, or a single one. Of ratios, the median of those of the rounds counts,
/// not the ratio of the medians: a disturbance affects both contenders of a round.
fn measured(target: &Target, entries: &[Entry]) -> Result<Vec<f64>, String> {
    let of = value(target.value, fastest(&target.of, entries)?)?;
    if target.against.is_empty() {
        return Ok(of);
    }
    let against = value(target.value, fastest(&target.against, entries)?)?;
    Ok(of.iter().zip(&against).map(|(of, against)| of / against).collect())
}

fn value(value: Value, figures: &Figures) -> Result<Vec<f64>, String> {
    let count = |count: &Count| count.clone().map(|count| count as f64);
    let rows = figures.rows.max(1) as f64;
    Ok(match value {
        Value::Time => figures.rounds.clone(),
        Value::Slowest => vec![least_and_most(&figures.rounds).1 / median(&figures.rounds)],
        Value::Calls => vec![count(&figures.calls)?],
        Value::CallsPerRow => vec![count(&figures.calls)? / rows],
        Value::Rows => vec![figures.rows as f64],
        Value::Bytes => figures.bytes.clone(),
        Value::BytesPerRow => vec![median(&figures.bytes) / rows],
        Value::Peak => vec![count(&figures.peak_kib)? / 1024.0],
    })
}

/// The figures of the fastest of these contenders, or why there are none.
fn fastest<'a>(names: &[String], entries: &'a [Entry]) -> Result<&'a Figures, String> {
    let named = |entry: &&Entry| names.contains(&entry.name);
    let figures = entries
        .iter()
        .filter(named)
        .filter_map(|entry| entry.outcome.as_ref().ok());
    let fastest = figures.min_by(|a, b| median(&a.rounds).total_cmp(&median(&b.rounds)));
    fastest.ok_or_else(|| format!("no figures for {}", names.join(", ")))
}

/// The aligned table, in Markdown. The first column and those of words are aligned left.
pub fn aligned(table: &[Vec<String>]) -> String {
    let width = |column: usize| {
        table
            .iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
            .max(3)
    };
    let is_text = |column: usize| column == 0 || ["what", ""].contains(&table[0][column].as_str());
    let mut text = String::new();
    for (index, row) in table.iter().enumerate() {
        let (mut line, mut rule) = (String::new(), String::new());
        for (column, cell) in row.iter().enumerate() {
            let (width, dashes) = (width(column), "-".repeat(width(column) - 1));
            let _ = if is_text(column) {
                write!(line, "| {cell:width$} ").and(write!(rule, "| {dashes}- "))
            } else {
                write!(line, "| {cell:>width$} ").and(write!(rule, "| {dashes}: "))
            };
        }
        let _ = writeln!(text, "{line}|");
        if index == 0 {
            let _ = writeln!(text, "{rule}|");
        }
    }
    text
}

/// The host of the measurements.
pub fn host(versions: &[String]) -> Vec<String> {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpu_info = line("/proc/cpuinfo");
    let model = cpu_info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let load = line("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("0");
    let is_busy = load.parse::<f64>().is_ok_and(|load| load > 0.5);
    let noise = if is_busy {
        ". **Other work was going on: the figures are noisy.**"
    } else {
        ""
    };
    let release = line("/proc/sys/kernel/osrelease");
    vec![
        format!(
            "Date: {}",
            said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default()
        ),
        format!("Kernel: Linux {release} {}", std::env::consts::ARCH),
        format!(
            "Processors: {cpus}, {}",
            model.map_or("unknown model", |(_, name)| name)
        ),
        format!("Versions: {}", versions.join(", ")),
        format!("Load average at the start: {load}{noise}"),
    ]
}
