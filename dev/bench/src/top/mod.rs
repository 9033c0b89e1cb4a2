//! The cost of watching processes: `taskdiag top` compared with other tops, each in its own
//! terminal, one after the other.
//!
//! Each takes one sample per second of the same processes, some of which are active. Its processor
//! time is that of the whole process between two moments after it has settled, including drawing.

mod terminal;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use taskdiag_zoo::Farm;

use crate::loops;
use crate::measure::{least_and_most, median, peak_kib, processor_time, progress, Effort};
use crate::report::{number, Table};
use crate::targets::Bound;
use crate::tools::Tools;
use crate::{Report, Result};
use terminal::Terminal;

const PROCESSES: usize = 10_000;

/// The number of active processes.
const ACTIVE: usize = 50;

/// Columns and rows of the terminals.
const SIZE: (u16, u16) = (120, 40);

/// How long a program may take until it only takes samples.
const SETTLE: Duration = Duration::from_secs(5);

/// The number of keys that are pressed to measure their latency.
const KEYS: usize = 40;

/// A program that watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    Top,
    Htop,
    Btop,
    Watch,
    Ours,
    Procfs,
}

const CONTENDERS: [Contender; 6] = [
    Contender::Top,
    Contender::Htop,
    Contender::Btop,
    Contender::Watch,
    Contender::Ours,
    Contender::Procfs,
];

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::Top => "top -d 1",
            Contender::Htop => "htop -d 10",
            Contender::Btop => "btop, 1000 ms",
            Contender::Watch => "taskdiag watch -d 1",
            Contender::Ours => "taskdiag top -d 1",
            Contender::Procfs => "taskdiag top -d 1 --source procfs",
        }
    }

    fn argv(self, tools: &Tools) -> Result<Vec<String>> {
        let words: &[&str] = match self {
            Contender::Top => &["top", "-d", "1"],
            Contender::Htop => &["htop", "-d", "10"],
            Contender::Btop => &["btop", "--utf-force"],
            Contender::Watch => &["watch", "-d", "1"],
            Contender::Ours => &["top", "-d", "1"],
            Contender::Procfs => &["top", "-d", "1", "--source", "procfs"],
        };
        let mut argv: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        if matches!(self, Contender::Watch | Contender::Ours | Contender::Procfs) {
            argv.insert(0, tools.taskdiag()?);
        }
        Ok(argv)
    }
}

/// Keeps processes active until dropped. Stopping and continuing a process counts as activity.
pub struct Kicker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kicker {
    /// Starts with these processes.
    pub fn begin(pids: Vec<i32>) -> Kicker {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                for signal in [libc::SIGSTOP, libc::SIGCONT] {
                    for &pid in &pids {
                        // SAFETY: no pointers.
                        unsafe { libc::kill(pid, signal) };
                    }
                }
                thread::sleep(Duration::from_millis(200));
            }
        });
        Kicker {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Kicker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The measurements of a contender.
#[derive(Debug, Default)]
struct Figures {
    /// Milliseconds of processor time per sample, round by round.
    rounds: Vec<f64>,
    peak_kib: u64,
    /// Milliseconds until a key takes effect.
    keys: Vec<f64>,
    /// Why it could not take part.
    refused: Option<String>,
}

/// Measures all contenders.
pub fn run(effort: Effort, tools: &Tools, report: &mut Report) -> Result<()> {
    let (rounds, time) = if effort.single {
        (1, Duration::from_secs(4))
    } else {
        (effort.rounds.div_ceil(3), Duration::from_secs(10))
    };
    let farm = Farm::start(PROCESSES, 1)?;
    let (all, _) = loops::census()?;
    let active = farm.pids().iter().step_by(PROCESSES / ACTIVE).copied().collect();
    let _kicker = Kicker::begin(active);
    let mut figures: Vec<Figures> = CONTENDERS.iter().map(|_| Figures::default()).collect();
    for round in 0..rounds {
        for turn in 0..CONTENDERS.len() {
            let index = (round + turn) % CONTENDERS.len();
            let name = CONTENDERS[index].name();
            progress(&format!("top, round {} of {rounds}: {name}", round + 1));
            if figures[index].refused.is_none() {
                if let Err(error) = measure(CONTENDERS[index], tools, time, &mut figures[index]) {
                    figures[index].refused = Some(format!("{name}: not run, {error}"));
                }
            }
        }
    }
    progress("");
    report.heading(&format!(
        "Watching {PROCESSES} processes, {ACTIVE} of them active ({all} processes in all)"
    ));
    report.line(&format!(
        "A sample a second on a terminal of {} by {}: processor time of the whole program for each, in {rounds} rounds of {} s \
         each, after {} s in which it settled. Keys: the time from a key that changes the order to the first byte of the \
         picture, {KEYS} times in each round.",
        SIZE.0,
        SIZE.1,
        time.as_secs(),
        SETTLE.as_secs()
    ));
    report.table(&table(&figures));
    report.list(
        &figures
            .iter()
            .flat_map(|figures| figures.refused.clone())
            .collect::<Vec<_>>(),
    );
    report.line("Targets: medians of the ratios of each round.");
    report.table(&targets(&figures));
    Ok(())
}

fn measure(contender: Contender, tools: &Tools, time: Duration, figures: &mut Figures) -> Result<()> {
    let mut terminal = Terminal::start(&contender.argv(tools)?, SIZE)?;
    thread::sleep(SETTLE);
    terminal.check()?;
    let before = processor_time(terminal.pid())?;
    let began = Instant::now();
    thread::sleep(time);
    let used = processor_time(terminal.pid())? - before;
    figures
        .rounds
        .push(used.as_secs_f64() * 1e3 / began.elapsed().as_secs_f64());
    figures.peak_kib = figures.peak_kib.max(peak_kib(terminal.pid())?);
    if contender == Contender::Ours {
        for key in 0..KEYS {
            let took = terminal.press(if key % 2 == 0 { b"T" } else { b"P" })?;
            figures.keys.push(took.as_secs_f64() * 1e3);
            thread::sleep(Duration::from_millis(130));
        }
    }
    terminal.check()
}

fn table(figures: &[Figures]) -> Table {
    let headings = [
        "program",
        "ms a sample",
        "min",
        "max",
        "peak RSS MiB",
        "ms to a key's effect, median",
        "most",
    ];
    let mut table = Table::new(&headings, 1);
    for (contender, figures) in CONTENDERS.iter().zip(figures) {
        if figures.rounds.is_empty() {
            continue;
        }
        let (least, most) = least_and_most(&figures.rounds);
        let keys = match figures.keys.as_slice() {
            [] => ["–".to_owned(), "–".to_owned()],
            keys => [number(median(keys)), number(least_and_most(keys).1)],
        };
        let numbers = [median(&figures.rounds), least, most, figures.peak_kib as f64 / 1024.0].map(number);
        let name = std::iter::once(contender.name().to_owned());
        table.row(name.chain(numbers).chain(keys));
    }
    table
}

fn targets(figures: &[Figures]) -> Table {
    let mut table = Table::new(&["target", "wanted", "measured", ""], 1);
    let of = |contender: Contender| {
        let index = CONTENDERS.iter().position(|&other| other == contender);
        index
            .map(|index| &figures[index])
            .filter(|figures| !figures.rounds.is_empty())
    };
    let ours = of(Contender::Ours);
    let ratio = |other: Contender| -> Option<f64> {
        let pairs = of(other)?.rounds.iter().zip(&ours?.rounds);
        Some(median(&pairs.map(|(other, ours)| other / ours).collect::<Vec<_>>()))
    };
    for (claim, bound, measured) in [
        (
            "processor time of top as a multiple",
            Bound::AtLeast(8.0),
            ratio(Contender::Top),
        ),
        (
            "processor time of btop as a multiple",
            Bound::AtLeast(8.0),
            ratio(Contender::Btop),
        ),
        (
            "processor time of htop as a multiple",
            Bound::AtLeast(12.0),
            ratio(Contender::Htop),
        ),
        (
            "peak RSS, MiB",
            Bound::AtMost(40.0),
            ours.map(|ours| ours.peak_kib as f64 / 1024.0),
        ),
        (
            "ms to a key's effect, the most",
            Bound::AtMost(50.0),
            ours.filter(|ours| !ours.keys.is_empty())
                .map(|ours| least_and_most(&ours.keys).1),
        ),
    ] {
        table.row(bound.row(claim, measured));
    }
    table
}
