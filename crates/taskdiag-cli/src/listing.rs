//! What is common to commands that list tasks: formats, the answer, the report of what is missing.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use taskdiag::{Absent, ErrorKind, Field, Handle, Query, Scope, Snapshot, Task};
use taskdiag_core::plan::{BpfWay, Explanation};

use crate::library::SourceOptions;
use crate::outcome::{no_answer_from, say, who_may, Failure, Outcome};
use crate::output::named::Total;
use crate::output::names::Names;
use crate::output::{cell, csv, json, Absences, Extra, Output};

/// The options of every listing.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct Options {
    /// Fields to show, in this order; a group stands for its fields, `all` for all fields but
    /// those of group rollup. See `taskdiag fields`
    #[arg(short = 'o', long = "fields", value_name = "FIELD,…")]
    pub fields: Vec<String>,
    #[command(flatten)]
    pub from: SourceOptions,
    #[command(flatten)]
    formats: Formats,
    /// Exact numbers in tables: bytes and nanoseconds
    #[arg(long)]
    pub bytes: bool,
    /// Users, groups, capabilities and signals by their names
    #[arg(long)]
    pub names: bool,
    /// No header above tables and CSV
    #[arg(long)]
    pub no_header: bool,
    /// Say on standard error who answered, how many tasks, and in how long
    #[arg(long)]
    pub stats: bool,
}

/// The options that choose a format.
#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
pub struct Formats {
    /// One JSON document: rows, sources, counters. A missing value has no key but a reason under "absent"
    #[arg(long)]
    json: bool,
    /// The rows alone as JSON, one a line
    #[arg(long)]
    jsonl: bool,
    /// Comma-separated values (RFC 4180): missing values are empty cells, members of lists have a space between them
    #[arg(long)]
    csv: bool,
}

/// How the rows are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An aligned table.
    Table,
    /// For programs.
    Machine(Machine),
}

/// How rows are written for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// One document.
    Json,
    /// A document a row.
    Jsonl,
    /// Comma-separated values.
    Csv,
}

impl Options {
    /// How the rows are to be written.
    pub fn format(&self) -> Format {
        self.formats.format()
    }
}

impl Formats {
    /// How the rows are to be written.
    pub fn format(self) -> Format {
        match self {
            Formats { json: true, .. } => Format::Machine(Machine::Json),
            Formats { jsonl: true, .. } => Format::Machine(Machine::Jsonl),
            Formats { csv: true, .. } => Format::Machine(Machine::Csv),
            _ => Format::Table,
        }
    }
}

/// What the library answered.
#[derive(Debug, Default)]
pub struct Answers {
    snapshot: Snapshot,
    /// Processes that were asked about and don't exist.
    missing: Vec<u32>,
    elapsed: Duration,
}

impl Answers {
    /// Asks.
    pub fn ask(handle: &mut Handle, query: &Query) -> Result<Answers, Failure> {
        let mut answers = Answers::default();
        answers.ask_again(handle, query)?;
        Ok(answers)
    }

    /// Asks, and puts the answer into the place of an earlier one.
    pub fn ask_again(&mut self, handle: &mut Handle, query: &Query) -> Result<(), Failure> {
        let started = Instant::now();
        self.missing.clear();
        match (handle.query_into(query, &mut self.snapshot), query.scope) {
            (Ok(()), _) => self.missing.extend(self.snapshot.missing()),
            (Err(error), Scope::ChildrenOf(pid) | Scope::DescendantsOf(pid))
                if error.kind() == ErrorKind::NoSuchTask =>
            {
                self.snapshot = Snapshot::default();
                self.missing.push(pid);
            }
            (Err(error), _) => return Err(error.into()),
        }
        self.elapsed = started.elapsed();
        Ok(())
    }

    /// The answer itself.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The groups that were answered, each with who answered it.
    pub fn sources(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        let answers = self.snapshot.answers();
        answers.filter_map(|(group, answer)| Some((group.name(), answer.ok()?.name())))
    }

    /// The tasks.
    pub fn tasks(&self) -> Vec<Task<'_>> {
        self.snapshot.tasks().collect()
    }

    /// Says what was asked for and is not among the answers. `absences` come with the number of tasks they are of.
    pub fn report(&self, absences: &[(&Absences, usize)]) -> Outcome {
        let mut outcome = Outcome::Complete;
        let mut partial = |message: fmt::Arguments<'_>| {
            say(message);
            outcome = Outcome::Partial;
        };
        for pid in &self.missing {
            partial(format_args!("pid {pid}: no such process"));
        }
        let counters = self.snapshot.counters();
        match counters.denied {
            0 => {}
            1 => partial(format_args!("1 task left out: you may not see it ({})", who_may())),
            count => partial(format_args!(
                "{count} tasks left out: you may not see them ({})",
                who_may()
            )),
        }
        match counters.undecided {
            0 => {}
            count => partial(format_args!(
                "{count} task{} left out: what they are filtered by may not be seen ({}), or is not there (`taskdiag doctor` \
                 says what is)",
                if count == 1 { "" } else { "s" },
                who_may()
            )),
        }
        if counters.no_answer > 0 {
            partial(format_args!("{}", no_answer_from(&self.silent())));
        }
        match counters.malformed {
            0 => {}
            count => partial(format_args!(
                "{count} answers of the kernel made no sense and were left out: please report this"
            )),
        }
        outcome.and(report_absences(absences))
    }

    /// The processes that held who read them.
    fn silent(&self) -> Vec<u32> {
        let fields = self.snapshot.fields();
        let is_silent = |task: &Task<'_>| fields.iter().any(|field| task.value(field) == Err(Absent::NoAnswer));
        let pids = self.snapshot.tasks().filter(is_silent).flat_map(|task| task.pid());
        let mut pids: Vec<u32> = pids.collect();
        pids.dedup();
        pids
    }

    /// Says which part of the filter was decided where, and what was read for whom.
    pub fn say_explanation(&self, explanation: &Explanation) {
        let Explanation { plan, first, last } = explanation;
        let counters = self.snapshot.counters();
        let groups: Vec<&str> = self.snapshot.answers().map(|(group, _)| group.name()).collect();
        let groups = if groups.is_empty() {
            "ids alone".to_owned()
        } else {
            groups.join(", ")
        };
        let (source, place) = match plan.bpf {
            Some((BpfWay::ToLoad, _)) => ("BPF, loaded for this", "in the kernel"),
            Some((BpfWay::Pinned, _)) => ("BPF, pinned", "in the kernel"),
            Some((BpfWay::Loaded, _)) => ("BPF", "in the kernel"),
            None if plan.broker.is_some() => ("the broker", "there"),
            None => ("procfs", "first, on the few files that it takes"),
        };
        let way = if plan.one_by_one { ", one process at a time" } else { "" };
        say(format_args!("read by {source}{way}: {groups}"));
        if let Some(first) = first {
            say(format_args!("decided {place}: {first}"));
        }
        if let Some(last) = last {
            let whom = if first.is_some() {
                "tasks that passed"
            } else {
                "all tasks"
            };
            say(format_args!(
                "decided here, on what was read of {whom} ({}): {last}",
                counters.candidates
            ));
        }
        say(format_args!("rows: {}", counters.tasks));
    }

    /// Says who answered, how many tasks, and in how long.
    pub fn say_stats(&self, tasks: usize) {
        let mut by_source: Vec<(&str, Vec<&str>)> = Vec::new();
        for (group, answer) in self.snapshot.answers() {
            let source = answer.map_or_else(Absent::as_str, |source| source.name());
            match by_source.iter_mut().find(|(of, _)| *of == source) {
                Some((_, groups)) => groups.push(group.name()),
                None => by_source.push((source, vec![group.name()])),
            }
        }
        let parts: Vec<String> = by_source
            .iter()
            .map(|(source, groups)| format!("{}: {source}", groups.join(", ")))
            .collect();
        let lost: String = self
            .snapshot
            .counters()
            .named()
            .into_iter()
            .filter(|(name, count)| {
                matches!(
                    *name,
                    "gone" | "denied" | "deferred" | "no_answer" | "over_budget" | "unchanged" | "malformed"
                ) && *count > 0
            })
            .map(|(name, count)| format!(", {count} {name}"))
            .collect();
        let sources = if parts.is_empty() {
            String::new()
        } else {
            format!(" ({})", parts.join("; "))
        };
        let plural = if tasks == 1 { "" } else { "s" };
        say(format_args!(
            "{tasks} task{plural}{lost} in {:.1} ms{sources}",
            self.elapsed.as_secs_f64() * 1e3
        ));
    }

    /// Writes tasks for programs. With depths, each row has its own.
    pub fn write(
        &self,
        command: &str,
        machine: Machine,
        listing: Listing<'_>,
        absences: &mut Absences,
    ) -> io::Result<()> {
        let mut output = Output::new();
        match machine {
            Machine::Csv => {
                if listing.header {
                    csv::header(output.buffer(), listing.fields, listing.extra_name().as_slice());
                }
                let mut names = listing.names.then(Names::default);
                for (index, task) in listing.tasks.iter().enumerate() {
                    let extra = listing.extra(index);
                    csv::row(
                        output.buffer(),
                        listing.fields,
                        task,
                        extra.as_slice(),
                        names.as_mut(),
                        absences,
                    );
                    output.row_ended()?;
                }
            }
            Machine::Jsonl => {
                let mut rows = json::Rows::new(listing.fields, listing.names);
                for (index, task) in listing.tasks.iter().enumerate() {
                    rows.write(output.buffer(), task, listing.extra(index).as_slice(), absences);
                    output.buffer().push(b'\n');
                    output.row_ended()?;
                }
            }
            Machine::Json => {
                self.begin_document(output.buffer(), command);
                let mut rows = json::Rows::new(listing.fields, listing.names);
                for (index, task) in listing.tasks.iter().enumerate() {
                    output
                        .buffer()
                        .extend_from_slice(if index > 0 { b",\n" } else { b"\n" });
                    rows.write(output.buffer(), task, listing.extra(index).as_slice(), absences);
                    output.row_ended()?;
                }
                json::end_document(output.buffer(), listing.total);
            }
        }
        output.finish()
    }

    /// Appends all of a document that stands before its rows.
    fn begin_document(&self, out: &mut Vec<u8>, command: &str) {
        let answered: Vec<_> = self
            .snapshot
            .answers()
            .filter_map(|(group, answer)| Some((group, answer.ok()?)))
            .collect();
        cell::formatted(
            out,
            format_args!("{{\"schema\":1,\"command\":\"{command}\",\"sources\":"),
        );
        json::object(out, answered, |(group, source)| {
            (group.name(), move |out: &mut Vec<u8>| json::string(out, source.name()))
        });
        out.extend_from_slice(b",\"counters\":");
        json::object(out, self.snapshot.counters().named(), |(name, count)| {
            (name, move |out: &mut Vec<u8>| {
                cell::formatted(out, format_args!("{count}"))
            })
        });
        out.extend_from_slice(b",\"rows\":[");
    }
}

/// What to write for programs.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// The fields, in order.
    pub fields: &'a [Field],
    /// The tasks, in order.
    pub tasks: &'a [Task<'a>],
    /// How deep each task is in the tree, if it is one.
    pub depths: Option<&'a [u32]>,
    /// Which sample it is, if there are several.
    pub sample: Option<u64>,
    /// What the tasks add up to, which a JSON document has behind its rows.
    pub total: Total<'a>,
    /// Whether there is a header above CSV.
    pub header: bool,
    /// Whether numbers that have names are written by them.
    pub names: bool,
}

impl Listing<'_> {
    fn extra(&self, index: usize) -> Option<(&'static str, Result<Extra, &'static str>)> {
        let number = match (self.sample, self.depths) {
            (Some(sample), _) => sample,
            (None, depths) => depths?[index].into(),
        };
        Some((self.extra_name()?, Ok(Extra::Count(number))))
    }

    fn extra_name(&self) -> Option<&'static str> {
        match (self.sample, self.depths) {
            (Some(_), _) => Some("sample"),
            (None, depths) => depths.map(|_| "depth"),
        }
    }
}

/// Says which values are missing. `absences` come with the number of tasks they are of, 0 where that says nothing.
pub fn report_absences(absences: &[(&Absences, usize)]) -> Outcome {
    let mut outcome = Outcome::Complete;
    for (absences, tasks) in absences {
        for (fields, reason, count) in absences.summary() {
            let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
            let of = match (*tasks, count as usize) {
                (0 | 1, _) => String::new(),
                (tasks, count) if tasks == count => format!(" for all {tasks} tasks"),
                (tasks, count) => format!(" for {count} of {tasks} tasks"),
            };
            say(format_args!(
                "{}: {reason}{of} ({})",
                names.join(", "),
                next_step(reason)
            ));
            outcome = Outcome::Partial;
        }
    }
    outcome
}

/// What to do about values that are missing for this reason.
fn next_step(reason: Absent) -> &'static str {
    match reason {
        Absent::Denied => who_may(),
        Absent::Unsupported => "this kernel, or the source that answered, does not have it: see `taskdiag doctor`",
        Absent::NoAnswer => "the process keeps its memory locked: --patience waits longer",
        Absent::OverBudget => "walking its memory would take too long: see `taskdiag mem`, --deadline and --max-rss",
        _ => "too large to be read whole",
    }
}
