//! Tables, for the terminal and for `docs/benchmarks.md`.

use std::fmt::Write as _;
use std::fs;

use crate::counts::Count;
use crate::measure::Entry;
use crate::tools::said;

/// Rows of text with headings.
#[derive(Clone, Debug)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// This many columns on the left are text; so is the last one.
    texts: usize,
}

impl Table {
    /// A table whose first `texts` columns are aligned left.
    pub fn new(headings: &[&'static str], texts: usize) -> Table {
        Table {
            headings: headings.to_vec(),
            rows: Vec::new(),
            texts,
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn is_text(&self, column: usize) -> bool {
        column < self.texts || column + 1 == self.headings.len()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.chain([self.headings[column].chars().count()]).max().unwrap_or(0)
    }

    /// The aligned table, for a terminal.
    pub fn text(&self) -> String {
        let widths: Vec<usize> = (0..self.headings.len()).map(|column| self.width(column)).collect();
        let headings: Vec<String> = self.headings.iter().map(|&heading| heading.to_owned()).collect();
        let mut text = String::new();
        for row in [&headings].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                let _ = if self.is_text(column) {
                    write!(line, "{cell:width$}  ")
                } else {
                    write!(line, "{cell:>width$}  ")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let rule = |column| if self.is_text(column) { "---" } else { "---:" };
        let rules = (0..self.headings.len()).map(rule).collect::<Vec<_>>().join(" | ");
        let mut text = format!("| {} |\n| {rules} |\n", self.headings.join(" | "));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text
    }
}

/// A number with about three significant digits.
pub fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Times and counts of all contenders. `tasks` is the number of tasks for contenders that do not
/// report it.
pub fn figures(entries: &[Entry], tasks: usize) -> Table {
    let headings = [
        "contender",
        "median ms",
        "min",
        "max",
        "ns/task",
        "system calls",
        "kernel allocations",
        "peak RSS MiB",
        "record bytes/task",
        "what",
    ];
    let mut table = Table::new(&headings, 1);
    for entry in entries {
        table.row(cells(entry, tasks));
    }
    table
}

fn cells(entry: &Entry, tasks: usize) -> [String; 10] {
    let (name, about) = (entry.contender.name.to_owned(), entry.contender.about.to_owned());
    let Ok(figures) = &entry.outcome else {
        let none = || "–".to_owned();
        return [
            name,
            none(),
            none(),
            none(),
            none(),
            none(),
            none(),
            none(),
            none(),
            about,
        ];
    };
    let median = figures.median();
    let rows = if figures.rows == 0 { tasks } else { figures.rows };
    let record_bytes = match figures.record_bytes {
        0 => "–".to_owned(),
        bytes => number(bytes as f64 / rows.max(1) as f64),
    };
    [
        name,
        number(median),
        number(figures.rounds.iter().copied().fold(f64::INFINITY, f64::min)),
        number(figures.rounds.iter().copied().fold(0.0, f64::max)),
        format!("{:.0}", median * 1e6 / rows.max(1) as f64),
        count(&figures.counts.calls),
        count(&figures.counts.allocations),
        figures
            .counts
            .peak_kib
            .as_ref()
            .map_or_else(|_| "–".to_owned(), |&kib| number(kib as f64 / 1024.0)),
        record_bytes,
        about,
    ]
}

fn count(count: &Count) -> String {
    count.as_ref().map_or_else(|_| "–".to_owned(), u64::to_string)
}

/// Why figures are missing, for each contender, unless the reason is among `known`.
pub fn missing(entries: &[Entry], known: &[String]) -> Vec<String> {
    let mut missing = Vec::new();
    for Entry { contender, outcome } in entries {
        let (what, reasons) = match outcome {
            Ok(figures) => {
                let counts = [
                    &figures.counts.calls,
                    &figures.counts.allocations,
                    &figures.counts.peak_kib,
                ];
                (
                    "not counted",
                    counts.into_iter().filter_map(|count| count.as_ref().err()).collect(),
                )
            }
            Err(reason) => ("not run", vec![reason]),
        };
        let is_news = |reason: &&String| !known.iter().any(|known| known.ends_with(reason.as_str()));
        for reason in reasons.into_iter().filter(is_news) {
            let reason = reason.lines().next().unwrap_or_default();
            missing.push(format!("{}: {what}, {reason}", contender.name));
        }
    }
    missing
}

/// The host of the measurements.
pub fn host(versions: &[String]) -> Vec<String> {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpu_info = line("/proc/cpuinfo");
    let model = cpu_info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, name)| name);
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let load = line("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("0").to_owned();
    let mut facts = vec![
        format!(
            "Date: {}",
            said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default()
        ),
        format!(
            "Kernel: Linux {} {}",
            line("/proc/sys/kernel/osrelease"),
            std::env::consts::ARCH
        ),
        format!("Processors: {cpus}, {}", model.unwrap_or("unknown model")),
        format!("Versions: {}", versions.join(", ")),
    ];
    let is_busy = load.parse::<f64>().is_ok_and(|load| load > 0.5);
    facts.push(if is_busy {
        format!("Load average at the start: {load}. **Other work was going on: the figures are noisy.**")
    } else {
        format!("Load average at the start: {load}")
    });
    facts
}
