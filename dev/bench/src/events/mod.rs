//! What it costs short-lived processes that somebody is told of them.
//!
//! In each round every contender watches once while the same number of processes is made, and every time is compared with that
//! of the same round in which nobody watched. A second round without a watcher shows how much of a difference is chance.

pub mod forker;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use forker::{Forker, Life, Took};
use taskdiag::events::{EventSource, Options};
use taskdiag::Events;

use crate::measure::{median, progress, Effort};
use crate::report::{number, Table};
use crate::tools::Tools;
use crate::{Report, Result};

/// The most that watching may cost, in percent.
const TARGET: f64 = 3.0;

/// Rounds of this suite for one of the others: its differences are small, and short rounds meet the same weather.
const ROUNDS: usize = 20;

/// Who watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    Nobody,
    NobodyAgain,
    Library(EventSource),
    Command,
}

const CONTENDERS: [Contender; 5] = [
    Contender::Nobody,
    Contender::NobodyAgain,
    Contender::Library(EventSource::Bpf),
    Contender::Command,
    Contender::Library(EventSource::Connector),
];

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::Nobody => "nobody",
            Contender::NobodyAgain => "nobody, once more",
            Contender::Library(EventSource::Bpf) => "library, tracepoints",
            Contender::Library(EventSource::Connector) => "library, proc connector",
            Contender::Command => "taskdiag events --jsonl",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Contender::Nobody => "what the others are compared with",
            Contender::NobodyAgain => "what difference chance makes",
            Contender::Library(EventSource::Bpf) => "a thread of another process takes every event",
            Contender::Library(EventSource::Connector) => "the same, and looks into /proc for what messages lack",
            Contender::Command => "every event written, to /dev/null",
        }
    }

    fn watch(self, tools: &Tools) -> Result<Option<Watcher>> {
        Ok(match self {
            Contender::Nobody | Contender::NobodyAgain => None,
            Contender::Library(source) => Some(Watcher::of_library(source)?),
            Contender::Command => Some(Watcher::of_command(tools)?),
        })
    }
}

/// Somebody who watches.
enum Watcher {
    Thread {
        stop: Arc<AtomicBool>,
        thread: JoinHandle<taskdiag::Result<Watched>>,
    },
    Process(Child),
}

/// What was told.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    told: u64,
    lost: u64,
}

impl Watcher {
    fn of_library(source: EventSource) -> Result<Watcher> {
        let mut events = Events::open(&Options {
            source: Some(source),
            ..Options::default()
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let mut told = 0;
            loop {
                let is_over = stopped.load(Ordering::SeqCst);
                told += events.read()?.count() as u64;
                if is_over {
                    let lost = events.lost().count;
                    return Ok(Watched { told, lost });
                }
                events.wait(Some(Duration::from_millis(100)), None)?;
            }
        });
        Ok(Watcher::Thread { stop, thread })
    }

    fn of_command(tools: &Tools) -> Result<Watcher> {
        let child = Command::new(tools.taskdiag()?)
            .args(["events", "--jsonl"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        // Nothing tells that it has begun; its programs are attached long before.
        thread::sleep(Duration::from_millis(300));
        Ok(Watcher::Process(child))
    }

    fn stop(self) -> Result<Watched> {
        match self {
            Watcher::Thread { stop, thread } => {
                stop.store(true, Ordering::SeqCst);
                Ok(thread.join().map_err(|_| "the reader failed")??)
            }
            Watcher::Process(child) => {
                // SAFETY: numbers only, and the child has not been waited for, so the number is still its own.
                unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
                let output = child.wait_with_output()?;
                let text = String::from_utf8(output.stderr)?;
                let line = text.lines().last().unwrap_or_default();
                let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
                match numbers[..] {
                    [told, lost] => Ok(Watched { told, lost }),
                    _ => Err(format!("taskdiag events: {line:?}").into()),
                }
            }
        }
    }
}

/// What one contender came to.
#[derive(Debug, Default)]
struct Figures {
    took: Vec<Took>,
    lost: u64,
    /// Why it could not watch.
    refused: Option<String>,
}

/// Measures everything.
pub fn run(effort: Effort, tools: &Tools, report: &mut Report) -> Result<()> {
    let rounds = if effort.single {
        effort.rounds
    } else {
        effort.rounds * ROUNDS
    };
    report.heading("The cost of being told of short-lived processes");
    for (life, count, title) in [
        (Life::Exit, 500, "processes that end at once (fork, exit, wait)"),
        (
            Life::Exec,
            100,
            "processes that become /bin/true (fork, exec, exit, wait)",
        ),
    ] {
        let figures = measure(life, count, rounds, tools)?;
        report.line(&format!(
            "{rounds} rounds of {count} {title}, one after the other. The cost is the median of what each round took more than \
             the one of the same turn in which nobody watched, with its quartiles; processor time is that of the forking \
             process and its children. Target: at most {TARGET} % of the time."
        ));
        report.table(&table(&figures, count));
        report.list(&refusals(&figures));
    }
    Ok(())
}

fn measure(life: Life, count: u32, rounds: usize, tools: &Tools) -> Result<Vec<Figures>> {
    let mut forker = Forker::start()?;
    let mut figures: Vec<Figures> = CONTENDERS.iter().map(|_| Figures::default()).collect();
    forker.make(count, life)?;
    for round in 0..rounds {
        progress(&format!("events, round {} of {rounds}", round + 1));
        for turn in 0..CONTENDERS.len() {
            let index = (round + turn) % CONTENDERS.len();
            let figures = &mut figures[index];
            if figures.refused.is_some() {
                continue;
            }
            let watcher = match CONTENDERS[index].watch(tools) {
                Ok(watcher) => watcher,
                Err(error) => {
                    figures.refused = Some(error.to_string());
                    continue;
                }
            };
            figures.took.push(forker.make(count, life)?);
            if let Some(watcher) = watcher {
                let watched = watcher.stop()?;
                let least = u64::from(count) * if life == Life::Exec { 3 } else { 2 };
                if watched.told + watched.lost < least {
                    let name = CONTENDERS[index].name();
                    return Err(format!("{name}: {watched:?} of {least} events").into());
                }
                figures.lost += watched.lost;
            }
        }
    }
    progress("");
    Ok(figures)
}

fn table(figures: &[Figures], count: u32) -> Table {
    let headings = [
        "who watches",
        "µs/process",
        "min",
        "max",
        "cost %",
        "quartiles",
        "processor time, cost %",
        "quartiles",
        "lost",
        "target",
        "what",
    ];
    let mut table = Table::new(&headings, 1);
    let base = &figures[0].took;
    for (contender, figures) in CONTENDERS.iter().zip(figures) {
        if figures.refused.is_some() {
            continue;
        }
        let each: Vec<f64> = figures
            .took
            .iter()
            .map(|took| took.wall.as_secs_f64() * 1e6 / f64::from(count))
            .collect();
        let costs = |time: fn(&Took) -> Duration| -> Vec<f64> {
            let pairs = figures.took.iter().zip(base);
            pairs
                .map(|(with, without)| (time(with).as_secs_f64() / time(without).as_secs_f64() - 1.0) * 100.0)
                .collect()
        };
        let (wall, cpu) = (costs(|took| took.wall), costs(|took| took.cpu));
        let is_judged = matches!(contender, Contender::Library(EventSource::Bpf) | Contender::Command);
        let verdict = match (is_judged, median(&wall) <= TARGET) {
            (false, _) => "–",
            (true, true) => "met",
            (true, false) => "**not met**",
        };
        table.row([
            contender.name().to_owned(),
            number(median(&each)),
            number(each.iter().copied().fold(f64::INFINITY, f64::min)),
            number(each.iter().copied().fold(0.0, f64::max)),
            format!("{:.1}", median(&wall)),
            quartiles(&wall),
            format!("{:.1}", median(&cpu)),
            quartiles(&cpu),
            figures.lost.to_string(),
            verdict.to_owned(),
            contender.about().to_owned(),
        ]);
    }
    table
}

fn quartiles(values: &[f64]) -> String {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = |part: usize| values.get(values.len() * part / 4).copied().unwrap_or(f64::NAN);
    format!("{:.1} … {:.1}", at(1), at(3))
}

fn refusals(figures: &[Figures]) -> Vec<String> {
    let pairs = CONTENDERS.iter().zip(figures);
    pairs
        .filter_map(|(contender, figures)| {
            Some(format!("{}: not run, {}", contender.name(), figures.refused.as_ref()?))
        })
        .collect()
}
