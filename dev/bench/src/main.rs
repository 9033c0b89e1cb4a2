//! The benchmarks of taskdiag: every contender in the same run, compared round by round.
//!
//! `make bench` runs the whole matrix. Figures are reported as measured. The exit status only says
//! whether they could be measured, not whether targets were met.

mod broker;
mod commands;
mod contenders;
mod counts;
mod events;
mod files;
mod floor;
mod library;
mod loops;
mod maps;
mod measure;
mod mem;
mod metrics;
mod pagecache;
mod planner;
mod procfs_crate;
mod record;
mod report;
mod run;
mod scale;
mod sockets;
mod targets;
mod tools;
mod top;

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use taskdiag_zoo::Farm;

use contenders::{Contender, Lists};
use counts::Counters;
use measure::{measure, Effort, Expected};
use scale::Scale;
use tools::Tools;

/// Errors are only shown to people.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A subject of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Lists of processes and threads
    Tasks,
    /// The page cache of files and trees
    Pagecache,
    /// Watching short-lived processes
    Events,
    /// Memory maps
    Maps,
    /// Open files
    Files,
    /// Sockets
    Sockets,
    /// Proportional sizes of processes
    Mem,
    /// The planner's choice of a source
    Planner,
    /// The broker
    Broker,
    /// Interactive views of processes
    Top,
    /// Metrics for Prometheus
    Metrics,
    /// Recording what processes do
    Record,
}

/// Compares taskdiag with other ways to the same answers
#[derive(Debug, Parser)]
struct Cli {
    /// What to compare [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    suite: Vec<Suite>,
    /// How many processes: 100, 1000, 10000, 30000 or any other number; `threads` for 2000 x 5
    /// threads; `all`
    #[arg(long, value_delimiter = ',', default_value = "all")]
    scale: Vec<String>,
    /// How often each contender runs, in turn with the others
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Only contenders whose name contains one of these
    #[arg(long, value_name = "SUBSTR", value_delimiter = ',')]
    filter: Vec<String>,
    /// Also write the report to a file, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Three rounds of one run each: shows that everything works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Measure only time and memory: counting system calls takes longer than everything else
    #[arg(long)]
    no_counts: bool,
    /// The command to measure [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    taskdiag: Option<PathBuf>,
    /// List the contenders
    #[arg(long)]
    list: bool,
    /// Prepare one contender, run it as often as --times says, and print its peak resident memory,
    /// in KiB
    #[arg(long, value_name = "NAME")]
    once: Option<String>,
    /// How often --once runs the contender
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// Run as the process that creates short-lived ones
    #[arg(long, hide = true)]
    forker: bool,
    /// Run as a process with this many bytes of memory
    #[arg(long, hide = true)]
    hoarder: Option<usize>,
    /// Run as this many processes with open files
    #[arg(long, hide = true)]
    file_holders: Option<usize>,
    /// Run as this many processes with many open files
    #[arg(long, hide = true)]
    many_file_holders: Option<usize>,
    /// Run as this many processes with sockets
    #[arg(long, hide = true)]
    socket_holders: Option<usize>,
    /// Run as the client of a broker, with this many idle processes
    #[arg(long, hide = true)]
    broker_client: Option<usize>,
}

impl Cli {
    fn measures(&self, suite: Suite) -> bool {
        self.suite.is_empty() || self.suite.contains(&suite)
    }

    fn effort(&self) -> Effort {
        Effort {
            rounds: if self.quick { 3 } else { self.rounds.into() },
            single: self.quick,
        }
    }

    /// Whether a contender takes part.
    fn passes(&self, contender: &Contender) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|part| contender.name.contains(part.as_str()))
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("taskdiag-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn all_contenders() -> impl Iterator<Item = &'static Contender> {
    contenders::ALL.iter().chain(pagecache::ALL)
}

fn run(cli: &Cli) -> Result<()> {
    if cli.list {
        all_contenders().for_each(|contender| println!("{:30}  {}", contender.name, contender.about));
        return Ok(());
    }
    if cli.forker {
        return events::forker::serve();
    }
    if let Some(bytes) = cli.hoarder {
        return mem::hoarder::serve(bytes);
    }
    if let Some(processes) = cli.file_holders {
        return files::holders::serve(processes, files::holders::open);
    }
    if let Some(processes) = cli.many_file_holders {
        return files::holders::serve(processes, files::holders::open_many);
    }
    if let Some(processes) = cli.socket_holders {
        return files::holders::serve(processes, sockets::open);
    }
    if let Some(processes) = cli.broker_client {
        return broker::client::serve(processes);
    }
    let tools = Tools::find(cli.taskdiag.as_deref())?;
    if let Some(name) = &cli.once {
        let contender = all_contenders()
            .find(|contender| contender.name == name)
            .ok_or_else(|| format!("no contender is called {name:?}"))?;
        println!("{}", counts::once(contender, &tools, cli.times)?);
        return Ok(());
    }
    let scales = scales(&cli.scale)?;
    let mut report = Report::new();
    let counters = Counters::find(!cli.no_counts);
    report.facts(&report::host(&tools.versions()), &counters);
    if cli.measures(Suite::Tasks) {
        refuse_pinned_programs()?;
        for scale in scales {
            run_scale(scale, cli, &tools, &counters, &mut report)?;
        }
    }
    if cli.measures(Suite::Pagecache) {
        pagecache::run(cli, &tools, &counters, &mut report)?;
    }
    if cli.measures(Suite::Events) {
        events::run(cli.effort(), &tools, &mut report)?;
    }
    if cli.measures(Suite::Maps) {
        maps::run(cli.effort(), &tools, &mut report)?;
    }
    if cli.measures(Suite::Files) {
        files::run(cli.effort(), &tools, &mut report)?;
    }
    if cli.measures(Suite::Sockets) {
        sockets::run(cli.effort(), &tools, &mut report)?;
    }
    if cli.measures(Suite::Mem) {
        mem::run(cli.effort(), &tools, &mut report)?;
    }
    if cli.measures(Suite::Planner) {
        planner::run(cli.effort(), &tools, &mut report)?;
    }
    if cli.measures(Suite::Broker) {
        broker::run(cli.effort(), &mut report)?;
    }
    if cli.measures(Suite::Top) {
        top::run(cli.effort(), &tools, &mut report)?;
    }
    if cli.measures(Suite::Metrics) {
        metrics::run(cli.effort(), &tools, &mut report)?;
    }
    if cli.measures(Suite::Record) {
        record::run(cli.effort(), &tools, &mut report)?;
    }
    match &cli.markdown {
        Some(path) => Ok(fs::write(path, report.markdown).map_err(|error| format!("{}: {error}", path.display()))?),
        None => Ok(()),
    }
}

fn scales(words: &[String]) -> Result<Vec<Scale>> {
    if words.iter().any(|word| word == "all") {
        return Ok(Scale::ALL.to_vec());
    }
    Ok(words
        .iter()
        .map(|word| word.parse())
        .collect::<std::result::Result<_, _>>()?)
}

/// Fails if programs are pinned: then nothing would be measured cold.
fn refuse_pinned_programs() -> Result<()> {
    let Ok(entries) = fs::read_dir("/sys/fs/bpf") else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("taskdiag-"))
        {
            return Err(format!("programs are pinned in {}: run `taskdiag unpin` first", path.display()).into());
        }
    }
    Ok(())
}

fn run_scale(scale: Scale, cli: &Cli, tools: &Tools, counters: &Counters, report: &mut Report) -> Result<()> {
    let (present, _) = settled_census()?;
    let (processes, threads_each) = scale.farm(present);
    let _farm = match processes {
        0 => None,
        _ => Some(Farm::start(processes, threads_each)?),
    };
    let (all_processes, all_threads) = settled_census()?;
    let effort = cli.effort();
    let expected = Expected {
        processes,
        threads: processes * threads_each,
    };
    let entries = measure(&chosen(scale, cli), expected, effort, tools, counters)?;
    let tasks = match scale {
        Scale::Processes(_) => all_processes,
        Scale::Threads => all_threads,
    };
    report.heading(&format!(
        "{} ({all_processes} processes, {all_threads} threads in all)",
        scale.title()
    ));
    report.line(&format!("{} rounds.", effort.rounds));
    report.table(&report::figures(&entries, tasks));
    report.list(&report::missing(&entries, &counters.missing()));
    report.line("Targets: median of the ratios of each round.");
    report.table(&targets::table(scale, &entries));
    Ok(())
}

fn chosen(scale: Scale, cli: &Cli) -> Vec<&'static Contender> {
    let is_meant = |contender: &&Contender| match contender.lists {
        Lists::Anything => true,
        Lists::Processes => scale != Scale::Threads,
        Lists::Threads => scale == Scale::Threads,
    };
    let passes = |contender: &&Contender| cli.passes(contender);
    contenders::ALL.iter().filter(is_meant).filter(passes).collect()
}

/// Counts processes and threads once an earlier farm is gone, or after some seconds.
fn settled_census() -> Result<(usize, usize)> {
    let mut before = loops::census()?;
    for _ in 0..20 {
        sleep(Duration::from_millis(250));
        let now = loops::census()?;
        if now.0.abs_diff(before.0) <= 1 {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}

/// The report: printed, and kept as Markdown.
#[derive(Debug)]
struct Report {
    markdown: String,
}

impl Report {
    fn new() -> Report {
        Report {
            markdown: "# Benchmarks\n\nWritten by `make bench`: figures as they were seen.\n\n".to_owned(),
        }
    }

    fn facts(&mut self, host: &[String], counters: &Counters) {
        self.list(host);
        self.list(&counters.missing());
        self.line(
            "Peak RSS is that of a whole process that runs the contender once: of the command, of the Python \
             interpreter, or of this program. System calls and kernel allocations are those of one run; for commands, of \
             the whole command.",
        );
    }

    fn heading(&mut self, text: &str) {
        println!("\n{text}\n");
        let _ = writeln!(self.markdown, "\n## {text}\n");
    }

    fn line(&mut self, text: &str) {
        println!("{text}");
        let _ = writeln!(self.markdown, "\n{text}\n");
    }

    fn list(&mut self, lines: &[String]) {
        for line in lines {
            println!("{line}");
            let _ = writeln!(self.markdown, "- {line}");
        }
    }

    fn table(&mut self, table: &report::Table) {
        print!("{}", table.text());
        self.markdown.push_str(&table.markdown());
    }
}
