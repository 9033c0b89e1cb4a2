//! The benchmarks of taskdiag: every contender in the same run, compared round by round.
//!
//! `make bench` runs the whole matrix. Figures are reported as measured. The exit status only says
//! whether they could be measured, not whether targets were met.

mod actors;
mod broker;
mod case;
mod files;
mod loops;
mod maps;
mod measure;
mod mem;
mod metrics;
mod network;
mod pagecache;
mod planner;
mod record;
mod report;
mod served;
mod tasks;
mod tools;
mod top;

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use case::{Case, Context, Way};
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
    /// Memory maps
    Maps,
    /// Proportional sizes of processes
    Mem,
    /// The planner's choice of a source
    Planner,
    /// The broker
    Broker,
    /// Open files and sockets
    Files,
    /// Interactive views of processes
    Top,
    /// Metrics for Prometheus
    Metrics,
    /// Recording what processes do
    Record,
    /// What counting network traffic costs
    Network,
}

impl Suite {
    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn cases(self, sizes: &Sizes) -> Vec<Case> {
        match self {
            Suite::Tasks => tasks::cases(sizes),
            Suite::Pagecache => pagecache::cases(sizes),
            Suite::Maps => maps::cases(sizes),
            Suite::Mem => mem::cases(sizes),
            Suite::Planner => planner::cases(sizes),
            Suite::Broker => broker::cases(sizes),
            Suite::Files => files::cases(sizes),
            Suite::Top => top::cases(sizes),
            Suite::Metrics => metrics::cases(sizes),
            Suite::Record => record::cases(sizes),
            Suite::Network => network::cases(),
        }
    }
}

/// How many processes the cases of a suite have.
struct Sizes(Vec<usize>);

impl Sizes {
    /// The suite's own sizes, unless others were asked for.
    fn or(&self, usual: &[usize]) -> Vec<usize> {
        if self.0.is_empty() { usual } else { &self.0 }.to_vec()
    }
}

/// Compares taskdiag with other ways to the same answers
#[derive(Debug, Parser)]
struct Cli {
    /// What to compare [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    suite: Vec<Suite>,
    /// How many processes, instead of the numbers of each suite
    #[arg(long, value_delimiter = ',')]
    scale: Vec<usize>,
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
    /// Do not count system calls and memory: that takes longer than everything else
    #[arg(long)]
    no_counts: bool,
    /// Run a contender for each line of the standard input: the title of a case, and a name
    #[arg(long, hide = true, num_args = 2)]
    serve: Vec<String>,
    /// What that contender looks at
    #[arg(long, hide = true, default_value = "")]
    subject: String,
    /// Play a role of this size
    #[arg(long, hide = true, num_args = 2)]
    actor: Vec<String>,
    /// Run a command and print its peak memory
    #[arg(long, hide = true)]
    peak: bool,
    #[arg(hide = true, last = true)]
    argv: Vec<String>,
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

fn run(cli: &Cli) -> Result<()> {
    if let [role, size] = &cli.actor[..] {
        return actors::play(role, size.parse()?);
    }
    if cli.peak {
        return measure::print_peak(&cli.argv);
    }
    let sizes = Sizes(cli.scale.clone());
    let suites = if cli.suite.is_empty() {
        Suite::value_variants()
    } else {
        &cli.suite
    };
    let tools = Tools::find()?;
    if let [title, name] = &cli.serve[..] {
        let cases = suites.iter().flat_map(|suite| suite.cases(&sizes));
        return serve(title, name, cases, tools, &cli.subject);
    }
    refuse_pinned_programs()?;
    let mut report = Report::default();
    report.list(&report::host(&tools.versions()));
    report.line(
        "Peak RSS is that of a whole process that runs the contender once: of the command, of the Python interpreter, or \
         of this program. System calls are those of one run; for commands, of the whole command.",
    );
    for suite in suites {
        for case in suite.cases(&sizes) {
            measure::run(*suite, &case, cli, &tools, &mut report)?;
        }
    }
    match &cli.markdown {
        Some(path) => Ok(fs::write(path, report.0).map_err(|error| format!("{}: {error}", path.display()))?),
        None => Ok(()),
    }
}

/// Runs a contender in this process, for another one that counts or has fewer rights.
fn serve(title: &str, name: &str, cases: impl Iterator<Item = Case>, tools: Tools, subject: &str) -> Result<()> {
    let mut contenders = cases
        .filter(|case| case.title == title)
        .flat_map(|case| case.contenders);
    let contender = contenders.find(|contender| contender.name == name);
    let context = Context {
        tools,
        subject: subject.to_owned(),
        serve: Vec::new(),
    };
    match contender.ok_or_else(|| format!("no contender is called {name:?}"))?.way {
        Way::Call(prepare) | Way::CallAs(_, prepare) => served::serve(prepare(&context)?),
        Way::Command(_) | Way::Psutil(_) => Err(format!("{name:?} is another program").into()),
    }
}

/// Fails if programs are pinned: then nothing would be measured cold.
fn refuse_pinned_programs() -> Result<()> {
    for entry in fs::read_dir("/sys/fs/bpf").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("taskdiag-") {
            let path = entry.path();
            return Err(format!("programs are pinned in {}: run `taskdiag unpin` first", path.display()).into());
        }
    }
    Ok(())
}

/// The report: printed, and kept as Markdown.
struct Report(String);

impl Default for Report {
    fn default() -> Report {
        Report("# Benchmarks\n\nWritten by `make bench`: figures as they were seen.\n\n".to_owned())
    }
}

impl Report {
    fn heading(&mut self, text: &str) {
        println!("\n{text}\n");
        let _ = writeln!(self.0, "\n## {text}");
    }

    fn line(&mut self, text: &str) {
        println!("{text}");
        let _ = writeln!(self.0, "\n{text}\n");
    }

    fn list(&mut self, lines: &[String]) {
        for line in lines {
            println!("{line}");
            let _ = writeln!(self.0, "- {line}");
        }
    }

    /// The first row has the headings.
    fn table(&mut self, rows: &[Vec<String>]) {
        let text = report::aligned(rows);
        print!("{text}");
        self.0.push_str(&text);
    }
}
