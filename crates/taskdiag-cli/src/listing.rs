//! What is common to commands that list tasks: formats, the answer, the report of what is missing.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use taskdiag::snapshot::Answer;
use taskdiag::{Absent, ErrorKind, Field, Group, Handle, Query, Scope, Snapshot, Task};

use crate::library::{self, Source};
use crate::outcome::{say, Failure, Outcome};
use crate::output::{cell, csv, json, Absences, Output};

/// The options of every listing.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct Options {
    /// Fields to show, in this order; a group stands for its fields, `all` for all fields. See `taskdiag fields`
    #[arg(short = 'o', long = "fields", value_name = "FIELD,…")]
    pub fields: Vec<String>,
    /// What is to answer
    #[arg(long, value_enum, default_value_t)]
    pub source: Source,
    #[command(flatten)]
    formats: Formats,
    /// Exact numbers in tables: bytes and nanoseconds
    #[arg(long)]
    pub bytes: bool,
    /// No header above tables and CSV
    #[arg(long)]
    pub no_header: bool,
    /// Say on standard error who answered, how many tasks, and in how long
    #[arg(long)]
    pub stats: bool,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
struct Formats {
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
        match self.formats {
            Formats { json: true, .. } => Format::Machine(Machine::Json),
            Formats { jsonl: true, .. } => Format::Machine(Machine::Jsonl),
            Formats { csv: true, .. } => Format::Machine(Machine::Csv),
            _ => Format::Table,
        }
    }
}

/// With more processes than these, asking once about all costs less than asking about each.
const FEW: usize = 64;

/// What the library answered.
#[derive(Debug)]
pub struct Answers {
    snapshots: Vec<Snapshot>,
    /// If not all tasks of the snapshots were asked about: the processes that were.
    only: Option<HashSet<u32>>,
    /// Processes that were asked about and don't exist.
    missing: Vec<u32>,
    elapsed: Duration,
}

impl Answers {
    /// Asks one question.
    pub fn ask(source: Source, query: &Query) -> Result<Answers, Failure> {
        let started = Instant::now();
        let mut answers = Answers::none();
        match library::handle(source).query(query) {
            Ok(snapshot) => answers.snapshots.push(snapshot),
            Err(error) => match (error.kind(), query.scope) {
                (ErrorKind::NoSuchTask, Scope::Process(pid) | Scope::ThreadsOf(pid) | Scope::ChildrenOf(pid)) => {
                    answers.missing.push(pid);
                }
                _ => return Err(error.into()),
            },
        }
        answers.elapsed = started.elapsed();
        Ok(answers)
    }

    /// Asks about some processes, or all of their threads. `pids` are ascending and different.
    pub fn ask_about(source: Source, query: &Query, pids: &[u32], threads: bool) -> Result<Answers, Failure> {
        let started = Instant::now();
        let mut answers = Answers::none();
        let mut handle = library::handle(source);
        match pids.len() <= FEW {
            true => answers.ask_each(&mut handle, query, pids, threads)?,
            false => answers.pick(&mut handle, query, pids, threads)?,
        }
        answers.elapsed = started.elapsed();
        Ok(answers)
    }

    fn none() -> Answers {
        Answers {
            snapshots: Vec::new(),
            only: None,
            missing: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    fn ask_each(&mut self, handle: &mut Handle, query: &Query, pids: &[u32], threads: bool) -> Result<(), Failure> {
        for &pid in pids {
            let scope = if threads {
                Scope::ThreadsOf(pid)
            } else {
                Scope::Process(pid)
            };
            match handle.query(&Query { scope, ..*query }) {
                Ok(snapshot) if snapshot.is_empty() => self.missing.push(pid),
                Ok(snapshot) => self.snapshots.push(snapshot),
                Err(error) if error.kind() == ErrorKind::NoSuchTask => self.missing.push(pid),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn pick(&mut self, handle: &mut Handle, query: &Query, pids: &[u32], threads: bool) -> Result<(), Failure> {
        let scope = if threads { Scope::Threads } else { Scope::Processes };
        let snapshot = handle.query(&Query { scope, ..*query })?;
        let there: HashSet<u32> = snapshot.tasks().map(|task| task.record().header().pid.get()).collect();
        self.missing = pids.iter().copied().filter(|pid| !there.contains(pid)).collect();
        self.only = Some(pids.iter().copied().collect());
        self.snapshots.push(snapshot);
        Ok(())
    }

    /// The tasks.
    pub fn tasks(&self) -> Vec<Task<'_>> {
        let tasks = self.snapshots.iter().flat_map(Snapshot::tasks);
        match &self.only {
            Some(only) => tasks
                .filter(|task| only.contains(&task.record().header().pid.get()))
                .collect(),
            None => tasks.collect(),
        }
    }

    /// The groups that were asked for, each with who answered it in any of the snapshots, or why nobody did.
    fn sources(&self) -> impl Iterator<Item = (Group, Answer)> + '_ {
        let answer = |group| {
            let answers = self.snapshots.iter().flat_map(Snapshot::answers);
            answers
                .filter(|(of, _)| *of == group)
                .map(|(_, answer)| answer)
                .max_by_key(|answer| answer.is_ok())
        };
        Group::ALL
            .into_iter()
            .filter_map(move |group| Some((group, answer(group)?)))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut sums = taskdiag::snapshot::Counters::default().named().to_vec();
        for snapshot in &self.snapshots {
            for (sum, (_, count)) in sums.iter_mut().zip(snapshot.counters().named()) {
                sum.1 += count;
            }
        }
        sums
    }

    fn counter(&self, name: &str) -> u64 {
        self.counters()
            .into_iter()
            .find(|(has, _)| *has == name)
            .map_or(0, |(_, count)| count)
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
        match self.counter("denied") {
            0 => {}
            1 => partial(format_args!("1 task left out: you may not see it (root may)")),
            count => partial(format_args!("{count} tasks left out: you may not see them (root may)")),
        }
        match self.counter("malformed") {
            0 => {}
            count => partial(format_args!(
                "{count} answers of the kernel made no sense and were left out: please report this"
            )),
        }
        for (absences, tasks) in absences {
            for (fields, reason, count) in absences.summary() {
                let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
                let of = match (*tasks, count as usize) {
                    (1, _) => String::new(),
                    (tasks, count) if tasks == count => format!(" for all {tasks} tasks"),
                    (tasks, count) => format!(" for {count} of {tasks} tasks"),
                };
                partial(format_args!(
                    "{}: {reason}{of} ({})",
                    names.join(", "),
                    next_step(reason)
                ));
            }
        }
        outcome
    }

    /// Says who answered, how many tasks, and in how long.
    pub fn say_stats(&self, tasks: usize) {
        let mut by_source: Vec<(&str, Vec<&str>)> = Vec::new();
        for (group, answer) in self.sources() {
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
        let lost: String = ["gone", "denied", "deferred", "malformed"]
            .into_iter()
            .filter(|name| self.counter(name) > 0)
            .map(|name| format!(", {} {name}", self.counter(name)))
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
                    csv::header(output.buffer(), listing.fields, listing.depths.is_some());
                }
                for (index, task) in listing.tasks.iter().enumerate() {
                    csv::row(output.buffer(), listing.fields, task, listing.depth(index), absences);
                    output.row_ended()?;
                }
            }
            Machine::Jsonl => {
                let mut rows = json::Rows::new(listing.fields);
                for (index, task) in listing.tasks.iter().enumerate() {
                    rows.write(output.buffer(), task, listing.depth(index), absences);
                    output.buffer().push(b'\n');
                    output.row_ended()?;
                }
            }
            Machine::Json => {
                self.begin_document(output.buffer(), command);
                let mut rows = json::Rows::new(listing.fields);
                for (index, task) in listing.tasks.iter().enumerate() {
                    output
                        .buffer()
                        .extend_from_slice(if index > 0 { b",\n" } else { b"\n" });
                    rows.write(output.buffer(), task, listing.depth(index), absences);
                    output.row_ended()?;
                }
                output.buffer().extend_from_slice(b"\n]}\n");
            }
        }
        output.finish()
    }

    /// Appends all of a document that stands before its rows.
    fn begin_document(&self, out: &mut Vec<u8>, command: &str) {
        let answered: Vec<_> = self
            .sources()
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
        json::object(out, self.counters(), |(name, count)| {
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
    /// Whether there is a header above CSV.
    pub header: bool,
}

impl Listing<'_> {
    fn depth(&self, index: usize) -> Option<u32> {
        self.depths.map(|depths| depths[index])
    }
}

/// What to do about values that are missing for this reason.
fn next_step(reason: Absent) -> &'static str {
    match reason {
        Absent::Denied => "root may read it: try sudo",
        Absent::Unsupported => "this kernel, or the source that answered, does not have it: see `taskdiag doctor`",
        _ => "too large to be read whole",
    }
}
