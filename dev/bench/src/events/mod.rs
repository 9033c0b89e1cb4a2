//! What a watcher of events costs short-lived processes.
//!
//! The cost is a few percent, but the speed of a busy or virtual machine changes by more from one
//! second to the next. So each contender is measured in turns that last a fraction of a second:
//! processes are created without the watcher, twice with it, and without it again, so that a steady
//! change of speed cancels out. Each turn gives one ratio. The cost is the median of many ratios,
//! with its 95 % confidence interval. All processes are created on one processor: otherwise the
//! kernel's choice of a processor for each child would dominate. A contender that does not watch
//! shows the effect of chance. In addition, the kernel reports how long the BPF programs themselves
//! run, which is free of noise.

pub mod forker;

use std::fs;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use forker::{Forker, Life, Took};
use taskdiag::events::{EventSource, Options};
use taskdiag::Events;

use crate::measure::{median, progress, Effort};
use crate::report::{number, Table};
use crate::tools::Tools;
use crate::{Report, Result};

/// The maximum cost of watching, in percent.
const TARGET: f64 = 3.0;

/// Turns per contender, for one round of the other suites.
const TURNS: usize = 20;

/// How long the kernel may be busy after programs were attached or detached.
const SETTLE: Duration = Duration::from_millis(20);

/// The number of programs of `taskdiag events`: fork, exec and exit.
const PROGRAMS: usize = 3;

/// A contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    Nobody,
    Library(EventSource),
    Command,
}

const CONTENDERS: [Contender; 4] = [
    Contender::Nobody,
    Contender::Library(EventSource::Bpf),
    Contender::Command,
    Contender::Library(EventSource::Connector),
];

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::Nobody => "nobody",
            Contender::Library(EventSource::Connector) => "library, proc connector",
            Contender::Library(_) => "library, tracepoints",
            Contender::Command => "taskdiag events --jsonl",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Contender::Nobody => "what difference chance makes",
            Contender::Library(EventSource::Connector) => "the same, and looks into /proc for what messages lack",
            Contender::Library(_) => "a thread of another process takes every event",
            Contender::Command => "every event written, to /dev/null",
        }
    }

    fn watch(self, tools: &Tools) -> Result<Option<Watcher>> {
        Ok(match self {
            Contender::Nobody => None,
            Contender::Library(source) => Some(Watcher::of_library(source)?),
            Contender::Command => Some(Watcher::of_command(tools)?),
        })
    }
}

/// A watcher.
enum Watcher {
    Thread {
        stop: Arc<AtomicBool>,
        thread: JoinHandle<taskdiag::Result<Watched>>,
        id: i32,
    },
    Process(Child),
}

/// What a watcher received.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    told: u64,
    lost: u64,
}

impl Watcher {
    fn of_library(source: EventSource) -> Result<Watcher> {
        let mut events = Events::open(&Options::default().source(source))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            // SAFETY: no arguments.
            let _ = tell.send(unsafe { libc::gettid() });
            let mut told = 0;
            loop {
                let is_over = stopped.load(Ordering::SeqCst);
                told += events.read()?.count() as u64;
                if is_over {
                    let lost = events.lost().count;
                    return Ok(Watched { told, lost });
                }
                events.wait(Some(Duration::from_millis(20)), None)?;
            }
        });
        let id = told.recv()?;
        Ok(Watcher::Thread { stop, thread, id })
    }

    fn of_command(tools: &Tools) -> Result<Watcher> {
        let mut child = Command::new(tools.taskdiag()?)
            .args(["events", "--jsonl"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        // Only its programs show that it has started.
        let directory = format!("/proc/{}/fd", child.id());
        for _ in 0..1000 {
            let files = fs::read_dir(&directory)?.flatten();
            let links = files.filter_map(|file| fs::read_link(file.path()).ok());
            if links.filter(|link| link.as_os_str() == "anon_inode:bpf_link").count() >= PROGRAMS {
                return Ok(Watcher::Process(child));
            }
            thread::sleep(Duration::from_millis(2));
        }
        child.kill()?;
        child.wait()?;
        Err("taskdiag events attaches no programs".into())
    }

    /// Its processor time.
    fn runtime(&self) -> Duration {
        let path = match self {
            Watcher::Thread { id, .. } => format!("/proc/self/task/{id}/schedstat"),
            Watcher::Process(child) => format!("/proc/{}/schedstat", child.id()),
        };
        let text = fs::read_to_string(path).unwrap_or_default();
        Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
    }

    fn stop(self) -> Result<Watched> {
        match self {
            Watcher::Thread { stop, thread, .. } => {
                stop.store(true, Ordering::SeqCst);
                Ok(thread.join().map_err(|_| "the reader failed")??)
            }
            Watcher::Process(child) => {
                // SAFETY: only numbers. The child has not been waited for, so its id has not been
                // reused.
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

/// The times of one turn, with and without the watcher, and the watcher's own time.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    without: Took,
    with: Took,
    reader: Duration,
}

impl Turn {
    /// The cost of watching, as a percentage of a time.
    fn cost(&self, time: fn(&Took) -> Duration) -> f64 {
        (time(&self.with).as_secs_f64() / time(&self.without).as_secs_f64() - 1.0) * 100.0
    }
}

/// The results of a contender.
#[derive(Debug, Default)]
struct Figures {
    turns: Vec<Turn>,
    lost: u64,
    /// Why it could not watch.
    refused: Option<String>,
}

/// Measures everything.
pub fn run(effort: Effort, tools: &Tools, report: &mut Report) -> Result<()> {
    let turns = if effort.single {
        effort.rounds
    } else {
        effort.rounds * TURNS
    };
    report.heading("The cost of being told of short-lived processes");
    for (life, count, title) in [
        (Life::Exit, 200, "processes that end at once (fork, exit, wait)"),
        (
            Life::Exec,
            25,
            "processes that become /bin/true (fork, exec, exit, wait)",
        ),
    ] {
        let figures = measure(life, count, turns, tools)?;
        report.line(&format!(
            "{turns} turns of four times {count} {title}, one after the other on one processor: without a watcher, twice with it, \
             without it. The cost is the median of what each turn took more with than without, with the interval that holds \
             the true median in 95 of 100 cases; processor time is that of the forking process and its children, the reader's \
             own is beside it. Target: at most {TARGET} % of the time."
        ));
        report.table(&table(&figures, count));
        report.line(&programs(life, count)?);
        report.list(&refusals(&figures));
    }
    Ok(())
}

fn measure(life: Life, count: u32, turns: usize, tools: &Tools) -> Result<Vec<Figures>> {
    let mut forker = Forker::start()?;
    let mut figures: Vec<Figures> = CONTENDERS.iter().map(|_| Figures::default()).collect();
    for turn in 0..turns {
        progress(&format!("events, turn {} of {turns}", turn + 1));
        for place in 0..CONTENDERS.len() {
            let index = (turn + place) % CONTENDERS.len();
            if figures[index].refused.is_some() {
                continue;
            }
            // The first processes after other work are slower.
            let mut make = || {
                forker.make(count / 8, life)?;
                forker.make(count, life)
            };
            let first = make()?;
            let watcher = match CONTENDERS[index].watch(tools) {
                Ok(watcher) => watcher,
                Err(error) => {
                    figures[index].refused = Some(format!("{error:#}"));
                    continue;
                }
            };
            let runtime = |watcher: &Option<Watcher>| watcher.as_ref().map_or(Duration::ZERO, Watcher::runtime);
            thread::sleep(SETTLE);
            let before = runtime(&watcher);
            let with = make()? + make()?;
            let reader = runtime(&watcher) - before;
            if let Some(watcher) = watcher {
                let watched = watcher.stop()?;
                let least = 2 * u64::from(count) * if life == Life::Exec { 3 } else { 2 };
                if watched.told + watched.lost < least {
                    let name = CONTENDERS[index].name();
                    return Err(format!("{name}: {watched:?} of {least} events").into());
                }
                figures[index].lost += watched.lost;
            }
            thread::sleep(SETTLE);
            let without = first + make()?;
            figures[index].turns.push(Turn { without, with, reader });
        }
    }
    progress("");
    Ok(figures)
}

fn table(figures: &[Figures], count: u32) -> Table {
    let headings = [
        "who watches",
        "µs/process without",
        "with",
        "cost %",
        "95 of 100",
        "processor time, cost %",
        "95 of 100",
        "reader, % of a processor",
        "lost",
        "target",
        "what",
    ];
    let mut table = Table::new(&headings, 1);
    for (contender, figures) in CONTENDERS.iter().zip(figures) {
        if figures.turns.is_empty() {
            continue;
        }
        let all = |value: &dyn Fn(&Turn) -> f64| figures.turns.iter().map(value).collect::<Vec<_>>();
        let each = |took: &Took| took.wall.as_secs_f64() * 1e6 / f64::from(2 * count);
        let reader = |turn: &Turn| turn.reader.as_secs_f64() / turn.with.wall.as_secs_f64() * 100.0;
        let wall = all(&|turn| turn.cost(|took| took.wall));
        let cpu = all(&|turn| turn.cost(|took| took.cpu));
        let (low, high) = interval(&wall);
        let is_judged = matches!(contender, Contender::Library(EventSource::Bpf) | Contender::Command);
        let verdict = if !is_judged {
            "–"
        } else if high <= TARGET {
            "met"
        } else if low > TARGET {
            "**not met**"
        } else {
            "not certain"
        };
        let between = |(low, high): (f64, f64)| format!("{low:.1} … {high:.1}");
        table.row([
            contender.name().to_owned(),
            number(median(&all(&|turn| each(&turn.without)))),
            number(median(&all(&|turn| each(&turn.with)))),
            format!("{:.1}", median(&wall)),
            between((low, high)),
            format!("{:.1}", median(&cpu)),
            between(interval(&cpu)),
            format!("{:.1}", median(&all(&reader))),
            figures.lost.to_string(),
            verdict.to_owned(),
            contender.about().to_owned(),
        ]);
    }
    table
}

/// How long the tracepoints' programs run per process, as the kernel measures it.
fn programs(life: Life, count: u32) -> Result<String> {
    let Some(_statistics) = statistics() else {
        return Ok("How long the programs run: not counted, the kernel does not let us.".to_owned());
    };
    let mut forker = Forker::start()?;
    let watcher = match Watcher::of_library(EventSource::Bpf) {
        Ok(watcher) => watcher,
        Err(error) => return Ok(format!("How long the programs run: not counted, {error:#}.")),
    };
    forker.make(count, life)?;
    let before = time_of_programs()?;
    let took = forker.make(10 * count, life)?;
    let ran = time_of_programs()? - before;
    watcher.stop()?;
    Ok(format!(
        "Of {:.1} µs of processor time for each process, {:.2} µs ({:.1} %) were spent in the programs on the tracepoints, as the \
         kernel counts it, the counting included.",
        took.cpu.as_secs_f64() * 1e6 / f64::from(10 * count),
        ran.as_secs_f64() * 1e6 / f64::from(10 * count),
        ran.as_secs_f64() / took.cpu.as_secs_f64() * 100.0
    ))
}

/// Makes the kernel measure the run time of BPF programs until this is dropped. `None` if it
/// refuses.
fn statistics() -> Option<OwnedFd> {
    const BPF_ENABLE_STATS: libc::c_long = 32;
    const RUN_TIME: u32 = 0;
    // SAFETY: the attributes of this command are one number of the given length; it returns a new
    // descriptor.
    unsafe {
        let fd = libc::syscall(libc::SYS_bpf, BPF_ENABLE_STATS, &RUN_TIME, size_of_val(&RUN_TIME));
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// The run time of the BPF programs of this process.
fn time_of_programs() -> Result<Duration> {
    let mut sum = 0;
    for entry in fs::read_dir("/proc/self/fdinfo")?.flatten() {
        // The descriptor of the directory that is being read is gone.
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let times = text.lines().filter_map(|line| line.strip_prefix("run_time_ns:"));
        sum += times.filter_map(|ns| ns.trim().parse::<u64>().ok()).sum::<u64>();
    }
    Ok(Duration::from_nanos(sum))
}

/// The 95 % confidence interval of the median, for any distribution: each value is above or below
/// the true median with equal probability, so the number of values below it follows a binomial
/// distribution.
fn interval(values: &[f64]) -> (f64, f64) {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let len = values.len() as f64;
    let low = (len / 2.0 - 0.98 * len.sqrt()).floor().max(0.0) as usize;
    (values[low], values[values.len() - 1 - low])
}

fn refusals(figures: &[Figures]) -> Vec<String> {
    let pairs = CONTENDERS.iter().zip(figures);
    pairs
        .filter_map(|(contender, figures)| {
            Some(format!("{}: not run, {}", contender.name(), figures.refused.as_ref()?))
        })
        .collect()
}
