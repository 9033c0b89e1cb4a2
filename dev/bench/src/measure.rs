//! Rounds: every contender runs in each of them, so that what disturbs the machine disturbs all of
//! them alike, and any two can be compared round by round.

use std::io::{self, IsTerminal as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::case::{timed, Case, Contender, Context, Counts, Run, Runner, Stage, Way};
use crate::served::Served;
use crate::tools::{first_line, words_of, Tools};
use crate::{report, Cli, Report, Result, Suite};

/// How long a contender runs per round. Fast ones run several times, and their mean counts.
const ROUND: Duration = Duration::from_millis(20);

/// The maximum number of runs per round.
const MAX_RUNS: u32 = 1000;

/// A number, or why it is missing.
pub type Count = std::result::Result<u64, String>;

/// The measurements of a contender.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Milliseconds, round by round.
    pub rounds: Vec<f64>,
    /// Bytes of an answer, round by round.
    pub bytes: Vec<f64>,
    /// The number of rows of an answer; 0 if unknown.
    pub rows: usize,
    /// System calls of one run.
    pub calls: Count,
    /// Peak memory of the process that runs it, in KiB.
    pub peak_kib: Count,
}

/// A contender and its result.
pub struct Entry {
    pub name: String,
    pub about: &'static str,
    /// Its figures, or why it could not take part.
    pub outcome: std::result::Result<Figures, String>,
}

/// The median; for an even number of values, the mean of the middle two.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    values
        .get(low)
        .zip(values.get(high))
        .map_or(f64::NAN, |(low, high)| (low + high) / 2.0)
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

/// Shows the progress on a terminal, replacing the previous line.
pub fn progress(what: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
    }
}

/// Measures a case, and reports it.
pub fn run(suite: Suite, case: &Case, cli: &Cli, tools: &Tools, report: &mut Report) -> Result<()> {
    let passes = |name: &str| cli.filter.is_empty() || cli.filter.iter().any(|part| name.contains(part.as_str()));
    let contenders = case.contenders.iter().filter(|contender| passes(&contender.name));
    let contenders: Vec<&Contender> = contenders.collect();
    if contenders.is_empty() {
        return Ok(());
    }
    progress(&case.title);
    let stage = (case.stage)()?;
    let context = Context {
        tools: tools.clone(),
        subject: stage.subject.clone(),
        serve: serve(suite, case, cli)?,
    };
    let counts = if cli.no_counts { Counts::Nothing } else { case.counts };
    let (mut entries, mut ready) = (Vec::new(), Vec::new());
    for (index, contender) in contenders.iter().enumerate() {
        progress(&format!("{}, warming up: {}", case.title, contender.name));
        let warm = contender.runner(&context).and_then(|runner| warm_up(runner, &stage));
        let outcome = match warm {
            Ok((runner, runs, mut figures)) => {
                ready.push((index, runner, if cli.quick { 1 } else { runs }));
                let argv = contender.argv(&context)?;
                let is_command = matches!(contender.way, Way::Command(_));
                if is_command && stage.rows > 0 {
                    figures.rows = 0;
                }
                if counts == Counts::All {
                    figures.calls = calls(&argv, is_command).map_err(|error| error.to_string());
                }
                if counts != Counts::Nothing {
                    figures.peak_kib = peak(&argv).map_err(|error| error.to_string());
                }
                Ok(figures)
            }
            Err(reason) => Err(reason.to_string()),
        };
        entries.push(Entry {
            name: contender.name.clone(),
            about: contender.about,
            outcome,
        });
    }
    let rounds = if cli.quick { 3 } else { usize::from(cli.rounds) };
    for round in 0..rounds {
        let len = ready.len().max(1);
        ready.rotate_left(round.min(1) % len);
        for (index, runner, runs) in &mut ready {
            progress(&format!(
                "{}, round {} of {rounds}: {}",
                case.title,
                round + 1,
                entries[*index].name
            ));
            let outcome = &mut entries[*index].outcome;
            let Ok(figures) = outcome else { continue };
            if let Err(error) = add_round(runner, *runs, figures) {
                *outcome = Err(error.to_string());
            }
        }
    }
    progress("");
    drop(ready);
    report::case(case, &stage, rounds, &entries, report);
    Ok(())
}

/// Runs a contender, again if the first run was short. Returns how often it runs in a round.
fn warm_up(mut runner: Runner, stage: &Stage) -> Result<(Runner, u32, Figures)> {
    let mut start = Instant::now();
    let mut warm = runner()?;
    if start.elapsed() < ROUND {
        start = Instant::now();
        warm = runner()?;
    }
    if warm.rows < stage.least && warm.rows > 0 {
        return Err(format!("{} rows instead of at least {}", warm.rows, stage.least).into());
    }
    let runs = ROUND.as_nanos().div_ceil(start.elapsed().as_nanos().max(1));
    let none = || Err("not counted".to_owned());
    let figures = Figures {
        rounds: Vec::new(),
        bytes: Vec::new(),
        rows: warm.rows,
        calls: none(),
        peak_kib: none(),
    };
    Ok((runner, runs.clamp(1, MAX_RUNS.into()) as u32, figures))
}

fn add_round(runner: &mut Runner, runs: u32, figures: &mut Figures) -> Result<()> {
    let (mut total, mut last) = (Duration::ZERO, Run::default());
    for _ in 0..runs {
        last = runner()?;
        total += last.took;
    }
    figures.rounds.push(total.as_secs_f64() * 1e3 / f64::from(runs));
    figures.bytes.push(last.bytes as f64);
    if figures.rows > 0 {
        figures.rows = last.rows;
    }
    if last.peak_kib > 0 {
        figures.peak_kib = Ok(last.peak_kib);
    }
    Ok(())
}

/// The command that runs a contender of a case, without the contender's name.
fn serve(suite: Suite, case: &Case, cli: &Cli) -> Result<Vec<String>> {
    let own = env::current_exe()?.display().to_string();
    let mut words = [&own, "--suite", &suite.name()].map(str::to_owned).to_vec();
    words.extend(cli.scale.iter().map(|scale| format!("--scale={scale}")));
    words.extend(["--serve".to_owned(), case.title.clone()]);
    Ok(words)
}

impl Contender {
    /// Prepares the contender. An error says why it can't take part.
    fn runner(&self, context: &Context) -> Result<Runner> {
        match &self.way {
            Way::Call(prepare) => prepare(context),
            Way::CallAs(..) | Way::Psutil(_) => {
                let user = if let Way::CallAs(user, _) = self.way {
                    Some(user)
                } else {
                    None
                };
                let mut served = Served::start(&self.argv(context)?, user)?;
                Ok(Box::new(move || served.run()))
            }
            Way::Command(_) => {
                let argv = self.argv(context)?;
                let text = run_command(&argv, Stdio::piped())?;
                // There is a heading.
                let rows = text.iter().filter(|&&byte| byte == b'\n').count().saturating_sub(1);
                timed(move || run_command(&argv, Stdio::null()).map(|_| rows))
            }
        }
    }

    /// The command that runs the contender; if it is none, once for each line of its input.
    fn argv(&self, context: &Context) -> Result<Vec<String>> {
        let Context { tools, subject, serve } = context;
        match &self.way {
            Way::Command(words) => words_of(words, tools, subject),
            Way::Psutil(what) => {
                let words = [
                    &tools.python()?,
                    "-c",
                    include_str!("psutil_contender.py"),
                    what,
                    subject,
                ];
                Ok(words.map(str::to_owned).to_vec())
            }
            Way::Call(_) | Way::CallAs(..) => {
                let own = [&self.name, "--subject", subject].map(str::to_owned);
                Ok(serve.iter().cloned().chain(own).collect())
            }
        }
    }
}

/// Runs a command whose answer may be partial, because processes come and go: then it exits with 1.
fn run_command(argv: &[String], output: Stdio) -> Result<Vec<u8>> {
    let mut command = Command::new(&argv[0]);
    command
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::null());
    let output = command
        .spawn()
        .map_err(|error| format!("{}: {error}", argv[0]))?
        .wait_with_output()?;
    match output.status.code() {
        Some(0 | 1) => Ok(output.stdout),
        _ => Err(format!("{}: {}", argv[0], output.status).into()),
    }
}

/// Counts the system calls of a run: all of a command's, and of others those that exceed the
/// preparation.
fn calls(argv: &[String], is_command: bool) -> Result<u64> {
    // A trace has a line for each call, and a second one if another thread's call interrupted it.
    // The table of `strace -c` would be shorter, but omits calls that strace does not know by name.
    let strace = [
        "strace",
        "-f",
        "-qq",
        "-e",
        "signal=none",
        "-e",
        "raw=all",
        "-o",
        "|grep -vc ' resumed>' >&2",
    ];
    let trace = |input: &str| -> Result<u64> {
        let said = with_input(&strace, argv, input)?.1;
        let count = said.lines().last().and_then(|line| line.parse().ok());
        Ok(count.ok_or_else(|| format!("strace: {said}"))?)
    };
    if is_command {
        return trace("");
    }
    // The line of input is read, and one of output is written.
    Ok(trace("\n")?.saturating_sub(trace("")? + 2))
}

/// The peak memory of a process that runs a contender once. A small process starts it: memory that a
/// process had before exec counts too.
fn peak(argv: &[String]) -> Result<u64> {
    let own = env::current_exe()?.display().to_string();
    let (said, complaint) = with_input(&[&own, "--peak", "--"], argv, "\n")?;
    let count = first_line(&said).and_then(|line| line.parse().ok());
    Ok(count.ok_or(complaint)?)
}

/// Runs a command that runs another one with this input. Returns its output and what it complained
/// about.
fn with_input(before: &[&str], argv: &[String], input: &str) -> Result<(String, String)> {
    use std::io::Write as _;
    let mut command = Command::new(before[0]);
    command.args(&before[1..]).args(argv);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", before[0]))?;
    // A command may not read it.
    let _ = child.stdin.take().ok_or("no pipe")?.write_all(input.as_bytes());
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout), text(&output.stderr)))
}

/// `--peak`: runs a command and prints its peak memory, in KiB.
pub fn print_peak(argv: &[String]) -> Result<()> {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()?.wait()?;
    // SAFETY: the kernel writes one `rusage`, a structure of numbers, for which zeros are valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    println!("{}", usage.ru_maxrss);
    Ok(())
}
