//! `taskdiag doctor`.

use std::fmt::Write as _;

use clap::Args as ClapArgs;
use rustix::thread::{capabilities, CapabilitySet};
use taskdiag::events::{self, EventSource};
use taskdiag::{Absent, Fact, Field, Fields, Group, Query, Snapshot, SourceId, Verdict};

use crate::listing::{groups_by_source, Format, Formats, Machine};
use crate::outcome::{Failure, Outcome};
use crate::output::document::{member, Head};
use crate::output::relation::{columns, text_or_none, ColumnInfo};
use crate::output::rows::{RowOptions, Rows};
use crate::output::table::{terminal_width, write_title, Align, Table};
use crate::output::terminal::Style;
use crate::output::{json, people, Output};
use crate::proc;
use crate::source::SourceOptions;

/// Show what works on this host, what does not and why, and what to do about it
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    from: SourceOptions,
    #[command(flatten, next_help_heading = "Output")]
    formats: Formats,
    /// No header above CSV
    #[arg(long, visible_alias = "no-headers", help_heading = "Output")]
    no_header: bool,
}

/// The columns of rows.
pub const RELATION: [ColumnInfo; 4] = columns! {
    "fact": Text, "A fact about this host.";
    "verdict": Text, "`yes`, `no` or `unknown`.";
    "why": Text, "How this is known, or why it does not hold.";
    "remedy": Text, "What to do about it; absent if there is nothing to do.";
};

/// The findings.
#[derive(Debug)]
struct Report {
    facts: Vec<(&'static str, Fact)>,
    /// Which source would answer each group in a query about all processes now.
    plan: Vec<(Group, Result<SourceId, String>)>,
    /// The number of tasks, if known.
    tasks: Option<usize>,
    machine: String,
    kernel: String,
    euid: u32,
    /// The effective capabilities that matter here.
    capabilities: Result<Vec<&'static str>, String>,
}

impl Report {
    fn new(from: &SourceOptions) -> Report {
        let mut handle = from.handle();
        // In a pid namespace, /proc/loadavg has the tasks of the whole machine.
        let threads = proc::handle().one_shot().query(&Query::threads().fields(Field::Tid));
        // Derived fields need no source.
        let read = Group::ALL.into_iter().filter(|group| *group != Group::Derived);
        let plan = read.map(|group| {
            let answer = match handle.explain(&Query::processes().fields(Fields::of_group(group))) {
                Ok(explanation) => {
                    let answer = explanation.plan().answer(group).unwrap_or(Err(Absent::Unsupported));
                    answer.map_err(|reason| reason.to_string())
                }
                Err(error) => Err(format!("{error:#}")),
            };
            (group, answer)
        });
        let plan: Vec<_> = plan.collect();
        // Some facts can only be found by trying. That comes after the plan, which describes a
        // command that has loaded nothing.
        if handle.support().bpf_load.verdict != Verdict::No {
            let _ = handle.prepare(Fields::all());
        }
        let mut support = handle.support().clone();
        if support.broker.verdict == Verdict::Unknown {
            let mut broker = from.handle().with_source(SourceId::Broker);
            let _ = broker.prepare(Fields::all());
            support.broker = broker.support().broker.clone();
        }
        let no_events = proc::check_events().err();
        let of_events = events::support().map(|(source, fact)| {
            let no = no_events.as_ref().map(|error| Fact::no(error.to_string(), ""));
            let name = match source {
                EventSource::Connector => "event-connector",
                _ => "event-tracepoints",
            };
            (name, no.unwrap_or(fact))
        });
        let facts = support
            .facts()
            .map(|(name, fact)| (name, fact.clone()))
            .chain(of_events)
            .collect();
        let system = rustix::system::uname();
        Report {
            facts,
            plan,
            tasks: threads.map(|threads| tasks(&threads)).ok(),
            machine: system.machine().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
            euid: rustix::process::geteuid().as_raw(),
            capabilities: held_capabilities(),
        }
    }

    /// Why no process can be read, if that is so.
    fn why_not(&self) -> Option<&str> {
        let of_base = self.plan.iter().find(|(group, _)| *group == Group::Base);
        of_base?.1.as_ref().err().map(String::as_str)
    }
}

/// The number of tasks. This command counts as one: its reading threads are left out.
fn tasks(threads: &Snapshot) -> usize {
    let own = proc::own_pid();
    1 + threads.tasks().filter(|task| task.pid() != Ok(own)).count()
}

/// The caller's effective capabilities that matter here.
fn held_capabilities() -> Result<Vec<&'static str>, String> {
    let names = [
        ("CAP_BPF", CapabilitySet::BPF),
        ("CAP_PERFMON", CapabilitySet::PERFMON),
        ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN),
        ("CAP_SYS_PTRACE", CapabilitySet::SYS_PTRACE),
    ];
    let sets = capabilities(None).map_err(|errno| errno.to_string())?;
    let held = names.into_iter().filter(|(_, set)| sets.effective.contains(*set));
    Ok(held.map(|(name, _)| name).collect())
}

pub fn run(args: Args) -> Result<Outcome, Failure> {
    let report = Report::new(&args.from);
    match args.formats.format() {
        Format::Table => write_text(&report)?,
        Format::Machine(machine) => write_rows(&report, machine, !args.no_header)?,
    }
    match report.why_not() {
        None => Ok(Outcome::Complete),
        Some(why) => Err(format!("processes can't be read: {why}").into()),
    }
}

fn write_text(report: &Report) -> std::io::Result<()> {
    let mut output = Output::default();
    let mut about = vec![
        ["taskdiag".to_owned(), env!("CARGO_PKG_VERSION").to_owned()],
        ["kernel".to_owned(), report.kernel.clone()],
        ["machine".to_owned(), report.machine.clone()],
    ];
    if let Some(tasks) = report.tasks {
        about.push(["tasks".to_owned(), tasks.to_string()]);
    }
    about.push(["euid".to_owned(), report.euid.to_string()]);
    let capabilities = match &report.capabilities {
        Ok(held) if held.is_empty() => "none that matter here".to_owned(),
        Ok(held) => held.join(" "),
        Err(why) => format!("unknown: {why}"),
    };
    about.push(["capabilities".to_owned(), capabilities]);
    two_columns(&mut output, &about)?;

    output.buffer.push(b'\n');
    write_title(&mut output, "What this host has:")?;
    let mut table = Table::new([Align::Left; 3], report.facts.len()).wrapping();
    table.style(1, |verdict| match verdict {
        b"yes" => Style::Green,
        b"no" => Style::Red,
        _ => Style::Yellow,
    });
    for (name, fact) in &report.facts {
        let mut why = fact.why.clone().into_owned();
        if !fact.remedy.is_empty() {
            let _ = write!(why, " -> {}", fact.remedy);
        }
        for text in [&format!("  {name}"), fact.verdict.as_str(), &why] {
            table.cell(|out| out.extend_from_slice(text.as_bytes()));
        }
    }
    table.write(&mut output, terminal_width())?;

    output.buffer.push(b'\n');
    write_title(&mut output, "The sources for a single query about all processes now:")?;
    let answers = report.plan.iter().map(|(group, answer)| match answer {
        Ok(source) => (*group, source.name().to_owned()),
        Err(why) => (*group, format!("none ({why})")),
    });
    let rows: Vec<[String; 2]> = groups_by_source(answers)
        .into_iter()
        .map(|(source, groups)| [format!("  {source}"), groups.join(" ")])
        .collect();
    two_columns(&mut output, &rows)?;
    output.finish()
}

fn two_columns(output: &mut Output, rows: &[[String; 2]]) -> std::io::Result<()> {
    let mut table = Table::new([Align::Left; 2], rows.len()).wrapping();
    for text in rows.iter().flatten() {
        table.cell(|out| out.extend_from_slice(text.as_bytes()));
    }
    table.write(output, terminal_width())
}

fn write_rows(report: &Report, machine: Machine, header: bool) -> std::io::Result<()> {
    let answered = report.plan.iter();
    let answered = answered.filter_map(|(group, answer)| Some((group.name(), answer.as_ref().ok()?.name())));
    let tasks = report.tasks.map(|tasks| ("tasks", tasks as u64));
    let head = Head::new("doctor", answered.collect(), tasks);
    let options = RowOptions {
        header,
        ..RowOptions::default()
    };
    let mut rows = Rows::begin(machine, &head, RELATION, options);
    for (name, fact) in &report.facts {
        let cells = [name, fact.verdict.as_str(), &fact.why, &fact.remedy].map(text_or_none);
        rows.row(|column| cells[column])?;
    }
    rows.finish_with(|out| {
        member(out, "version", |out| json::string(out, env!("CARGO_PKG_VERSION")));
        member(out, "machine", |out| json::string(out, &report.machine));
        member(out, "euid", |out| people::number(out, report.euid));
        if let Ok(held) = &report.capabilities {
            member(out, "capabilities", |out| {
                json::list(out, held.iter(), |out, name| json::string(out, name))
            });
        }
        let unanswered = report.plan.iter();
        let unanswered = unanswered.filter_map(|(group, answer)| Some((group.name(), answer.as_ref().err()?)));
        member(out, "unanswered", |out| {
            json::object(out, unanswered, |(group, why)| {
                (group, move |out: &mut Vec<u8>| json::string(out, why))
            });
        });
    })
}
