//! `taskdiag doctor`.

use std::fmt::Write as _;

use clap::Args as ClapArgs;
use rustix::thread::{capabilities, CapabilitySet};
use taskdiag::{Absent, Fact, Field, Fields, Group, Handle, Query, Snapshot, SourceId, Verdict};

use crate::library::SourceOptions;
use crate::outcome::{Failure, Outcome};
use crate::output::table::{Align, Table};
use crate::output::{cell, json, Output};

/// Say what this host can answer with, why, and what to do about what it can't
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    from: SourceOptions,
    /// As a JSON document
    #[arg(long)]
    json: bool,
}

/// All that there is to say.
#[derive(Debug)]
struct Report {
    /// The host and the caller, as names and values.
    host: Vec<(&'static str, String)>,
    facts: Vec<(&'static str, Fact)>,
    /// Who would answer each group, asked for all processes now.
    plan: Vec<(Group, Result<SourceId, String>)>,
}

impl Report {
    fn new(mut handle: Handle) -> Report {
        // In a pid namespace, /proc/loadavg has the tasks of the whole machine.
        let threads = Handle::new().one_shot().query(&Query::threads().fields(Field::Tid));
        let plan = Group::ALL.into_iter().map(|group| {
            let fields: Fields = Field::ALL
                .iter()
                .copied()
                .filter(|field| field.group() == group)
                .collect();
            let answer = match handle.plan(&Query::processes().fields(fields)) {
                Ok(plan) => match plan.answer(group).unwrap_or(Err(Absent::Unsupported)) {
                    Ok(source) => Ok(source),
                    Err(reason) => Err(reason.to_string()),
                },
                Err(error) => Err(error.to_string()),
            };
            (group, answer)
        });
        let plan: Vec<_> = plan.collect();
        // What only trying can tell. It comes after the plan, which is about a command that has nothing loaded.
        if handle.support().bpf_load.verdict != Verdict::No {
            let _ = handle.prepare(Fields::all());
        }
        if handle.support().broker.verdict == Verdict::Unknown {
            let _ = handle.prepare_broker();
        }
        let events = taskdiag::events::support();
        let support = handle.support();
        let facts = support
            .facts()
            .into_iter()
            .map(|(name, fact)| (name, fact.clone()))
            .chain(events.facts().map(|(name, fact)| (name, fact.clone())))
            .collect();
        Report {
            host: host(threads.map(|threads| tasks(&threads)).ok()),
            facts,
            plan,
        }
    }

    /// Why processes can't be asked about at all, if that is so.
    fn why_not(&self) -> Option<&str> {
        let of_base = self.plan.iter().find(|(group, _)| *group == Group::Base);
        of_base?.1.as_ref().err().map(String::as_str)
    }
}

/// How many there are, without the threads that read for this command: of itself there is one.
fn tasks(threads: &Snapshot) -> usize {
    let own = std::process::id();
    1 + threads.tasks().filter(|task| task.pid() != Ok(own)).count()
}

/// The host and the caller, with the tasks that it can ask about, if that is known.
fn host(tasks: Option<usize>) -> Vec<(&'static str, String)> {
    let system = rustix::system::uname();
    let mut host = vec![
        ("taskdiag", env!("CARGO_PKG_VERSION").to_owned()),
        ("kernel", system.release().to_string_lossy().into_owned()),
        ("machine", system.machine().to_string_lossy().into_owned()),
    ];
    if let Some(tasks) = tasks {
        host.push(("tasks", tasks.to_string()));
    }
    host.push(("euid", rustix::process::geteuid().as_raw().to_string()));
    let names = [
        ("CAP_BPF", CapabilitySet::BPF),
        ("CAP_PERFMON", CapabilitySet::PERFMON),
        ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN),
        ("CAP_SYS_PTRACE", CapabilitySet::SYS_PTRACE),
    ];
    let effective = match capabilities(None) {
        Ok(sets) => {
            let held: Vec<&str> = names
                .into_iter()
                .filter(|(_, set)| sets.effective.contains(*set))
                .map(|(name, _)| name)
                .collect();
            if held.is_empty() {
                "none that matter here".to_owned()
            } else {
                held.join(" ")
            }
        }
        Err(errno) => format!("unknown: {errno}"),
    };
    host.push(("capabilities", effective));
    host
}

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let report = Report::new(args.from.handle());
    let mut output = Output::new();
    if args.json {
        as_json(&report, output.buffer())
    } else {
        as_text(&report, &mut output)?
    }
    output.finish()?;
    match report.why_not() {
        None => Ok(Outcome::Complete),
        Some(why) => Err(Failure::Unanswered(format!("processes can't be asked about: {why}"))),
    }
}

fn as_text(report: &Report, output: &mut Output) -> std::io::Result<()> {
    let mut rows: Vec<[String; 2]> = Vec::new();
    for (name, value) in &report.host {
        rows.push([(*name).to_owned(), value.clone()]);
    }
    two_columns(output, &rows)?;

    output.buffer().extend_from_slice(b"\nWhat this host has:\n");
    let mut table = Table::new([Align::Left; 3], report.facts.len());
    for (name, fact) in &report.facts {
        let mut why = fact.why.clone().into_owned();
        if !fact.remedy.is_empty() {
            let _ = write!(why, " -> {}", fact.remedy);
        }
        for text in [&format!("  {name}"), fact.verdict.as_str(), &why] {
            table.cell(|out| out.extend_from_slice(text.as_bytes()));
        }
    }
    table.write(output, None)?;

    output
        .buffer()
        .extend_from_slice(b"\nWho would answer now, asked once about all processes:\n");
    let mut by_source: Vec<(String, Vec<&str>)> = Vec::new();
    for (group, answer) in &report.plan {
        let source = match answer {
            Ok(source) => source.name().to_owned(),
            Err(why) => format!("nobody: {why}"),
        };
        match by_source.iter_mut().find(|(of, _)| *of == source) {
            Some((_, groups)) => groups.push(group.name()),
            None => by_source.push((source, vec![group.name()])),
        }
    }
    let rows: Vec<[String; 2]> = by_source
        .into_iter()
        .map(|(source, groups)| [format!("  {source}"), groups.join(" ")])
        .collect();
    two_columns(output, &rows)
}

fn two_columns(output: &mut Output, rows: &[[String; 2]]) -> std::io::Result<()> {
    let mut table = Table::new([Align::Left; 2], rows.len());
    for text in rows.iter().flatten() {
        table.cell(|out| out.extend_from_slice(text.as_bytes()));
    }
    table.write(output, None)
}

fn as_json(report: &Report, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"schema\":1,\"command\":\"doctor\",\"host\":");
    json::object(out, &report.host, |(name, value)| {
        (name, move |out: &mut Vec<u8>| json::string(out, value))
    });
    out.extend_from_slice(b",\"sources\":");
    let answered = report
        .plan
        .iter()
        .filter_map(|(group, answer)| Some((group, answer.as_ref().ok()?)));
    json::object(out, answered, |(group, source)| {
        (group.name(), move |out: &mut Vec<u8>| json::string(out, source.name()))
    });
    out.extend_from_slice(b",\"unanswered\":");
    let unanswered = report
        .plan
        .iter()
        .filter_map(|(group, answer)| Some((group, answer.as_ref().err()?)));
    json::object(out, unanswered, |(group, why)| {
        (group.name(), move |out: &mut Vec<u8>| json::string(out, why))
    });
    out.extend_from_slice(b",\"counters\":{},\"rows\":[");
    for (index, (name, fact)) in report.facts.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b",\n" } else { b"\n" });
        let parts = [
            ("fact", *name),
            ("verdict", fact.verdict.as_str()),
            ("why", &fact.why),
            ("remedy", &fact.remedy),
        ];
        let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
        json::object(out, parts, |(name, text)| {
            (name, move |out: &mut Vec<u8>| json::string(out, text))
        });
    }
    cell::formatted(out, format_args!("\n]}}\n"));
}
