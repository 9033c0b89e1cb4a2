//! Common parts of commands that list tasks: options, the answer, and the report of missing values.

use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use taskdiag::{
    Absent, Error, ErrorKind, Explanation, Field, Group, Handle, Kind, Query, Scope, Snapshot, SourceId, Task, Value,
};
use taskdiag_core::plan::BpfWay;

use crate::history;
use crate::outcome::{
    counted, lacking, lacks, say, say_denied, say_hidden, say_missing, say_missing_denied, say_silent, say_undecided,
    Failure, Outcome, WhoMay,
};
use crate::output::cell::Cells;
use crate::output::document::{Head, Sample};
use crate::output::listing::{Form, ListingColumn};
use crate::output::relation::{column, Absences, ColumnInfo};
use crate::output::rows::{write_total, RowOptions, Rows, Total};
use crate::output::table::terminal_width;
use crate::output::{tasks, Output};
use crate::source::SourceOptions;

pub use crate::output::format::{Format, Formats, Machine};

/// The options of every listing.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct Options {
    /// Fields to show, in this order; a group stands for its fields, `all` for every cheap field.
    /// See `taskdiag fields`
    #[arg(short = 'o', long = "fields", value_name = "FIELD,…")]
    pub fields: Vec<String>,
    #[command(flatten)]
    pub from: SourceOptions,
    #[command(flatten)]
    formats: Formats,
    /// Exact numbers in tables: bytes and nanoseconds
    #[arg(long)]
    pub bytes: bool,
    /// Names of users, groups, capabilities and signals: instead of numbers in tables, beside
    /// numbers in JSON and CSV
    #[arg(long)]
    pub names: bool,
    /// No header above tables and CSV
    #[arg(long, visible_alias = "no-headers")]
    pub no_header: bool,
    /// Print the sources, the number of tasks and the elapsed time to standard error
    #[arg(long)]
    pub stats: bool,
}

impl Options {
    /// The output format.
    pub fn format(&self) -> Format {
        self.formats.format()
    }

    /// How rows are written, with these cells.
    pub fn form(&self, cells: Cells) -> Form {
        Form::new(self.format(), cells, !self.no_header)
    }

    /// Fails if there is no last sample, and the format is a single document or file, which needs an
    /// end.
    pub fn check_endless(&self, count: Option<u64>) -> Result<(), Failure> {
        let what = match self.format() {
            Format::Machine(machine) if !machine.is_endless() && count.is_none() => machine,
            _ => return Ok(()),
        };
        Err(if what == Machine::Json {
            "watching never ends, but a JSON document must: use --jsonl, or --count".into()
        } else {
            "watching never ends, but a Parquet file must: use --arrow, or --count".into()
        })
    }
}

/// The library's answer to a query.
#[derive(Debug, Default)]
pub struct Answers {
    pub snapshot: Snapshot,
    /// Process ids of the query that do not exist.
    missing: Vec<u32>,
    /// The procfs hides tasks from the source that answered.
    is_hiding: bool,
    elapsed: Duration,
}

impl Answers {
    /// Runs the query.
    pub fn ask(handle: &mut Handle, query: &Query) -> Result<Answers, Failure> {
        let mut answers = Answers::default();
        answers.ask_again(handle, query)?;
        Ok(answers)
    }

    /// Runs the query, and replaces an earlier answer.
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
        self.is_hiding = handle.lacks_hidden(query);
        self.elapsed = started.elapsed();
        Ok(())
    }

    /// The answered groups, each with its source.
    pub fn sources(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        let answers = self.snapshot.answers();
        answers.filter_map(|(group, answer)| Some((group.name(), answer.ok()?.name())))
    }

    pub fn tasks(&self) -> Vec<Task<'_>> {
        self.snapshot.tasks().collect()
    }

    /// Reports what was asked for but is missing. Each element of `absences` comes with the number
    /// of tasks that it counts.
    pub fn report(&self, absences: &[(&Absences, usize)]) -> Outcome {
        self.report_on(&self.tasks(), absences)
    }

    /// The same, if only these tasks were asked for.
    pub fn report_on(&self, tasks: &[Task<'_>], absences: &[(&Absences, usize)]) -> Outcome {
        let mut outcome = Outcome::Complete;
        for pid in &self.missing {
            say(lacking(*pid));
            outcome = Outcome::Partial;
        }
        let counters = self.snapshot.counters();
        // A process that the filter left out was not asked for, or it is counted above.
        let silent = if counters.no_answer > 0 {
            silent(tasks)
        } else {
            Vec::new()
        };
        let malformed = say_missing(lacks! {
            counters.malformed, "invalid answer" => "{} of the kernel left out: please report this";
        });
        let outcome = outcome.and(say_silent(&silent)).and(malformed);
        let denied = say_missing_denied(lacks! { counters.denied, "task" => "{} left out, which you may not see"; });
        let hidden = if self.is_hiding {
            say_hidden()
        } else {
            Outcome::Complete
        };
        let undecided = say_undecided(counters.undecided, "task");
        let outcome = outcome.and(undecided).and(denied).and(hidden);
        let outcome = outcome.and(report_absences(absences));
        match lacking_thread(tasks.iter().copied()) {
            // Values that only ps' columns show are in no absences.
            count @ 1.. if outcome == Outcome::Complete => {
                say(format_args!(
                    "values missing for {}: {}",
                    counted(count, "task"),
                    Error::NO_THREAD
                ));
                Outcome::Partial
            }
            _ => outcome,
        }
    }

    /// Prints where each part of the filter was evaluated, and what was read for which tasks.
    pub fn say_explanation(&self, explanation: &Explanation) {
        let (plan, first, last) = (explanation.plan(), explanation.decided_first(), explanation.filter());
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
            None if plan.broker.is_some() => ("the broker", "by the broker"),
            None => ("procfs", "first, from the few files that it needs"),
        };
        let way = if plan.one_by_one { ", one process at a time" } else { "" };
        say(format_args!("read by {source}{way}: {groups}"));
        if let Some(first) = first {
            say(format_args!("evaluated {place}: {first}"));
        }
        if let Some(last) = last {
            let whom = if first.is_some() {
                "the tasks that passed"
            } else {
                "all tasks"
            };
            say(format_args!(
                "evaluated here, on {whom} ({}): {last}",
                counters.candidates
            ));
        }
        say(format_args!("rows: {}", counters.tasks));
    }

    /// Prints the sources, the number of tasks and the elapsed time.
    pub fn say_stats(&self, tasks: usize) {
        let answers = self.snapshot.answers();
        let answers = answers.map(|(group, answer)| (group, answer.map_or_else(Absent::as_str, SourceId::name)));
        let by_source = groups_by_source(answers);
        let parts: Vec<String> = by_source
            .iter()
            .map(|(source, groups)| format!("{}: {source}", groups.join(", ")))
            .collect();
        let lost: String = self
            .snapshot
            .counters()
            .named()
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
        let tasks = counted(tasks as u64, "task");
        say(format_args!(
            "{tasks}{lost} in {:.1} ms{sources}",
            self.elapsed.as_secs_f64() * 1e3
        ));
    }

    /// Writes tasks for machine-readable output. With depths, each row has its depth.
    pub fn write(
        &self,
        command: &str,
        machine: Machine,
        listed: TaskRows<'_>,
        absences: &mut Absences,
        late: &mut LateTexts<'_>,
    ) -> io::Result<()> {
        let mut rows = self.begin(command, machine, listed);
        listed.write(&mut rows, absences, Some(late))?;
        rows.finish_with(|out| write_total(out, listed.total))
    }

    /// Begins to write such rows, of one sample or of several.
    pub fn begin(&self, command: &str, machine: Machine, listed: TaskRows<'_>) -> Rows {
        let sources = self.sources().collect();
        let head = match listed.sample {
            None => Head::new(command, sources, self.snapshot.counters().named()),
            Some(_) => Head::streaming(command, sources),
        };
        let columns = listed.fields.iter().map(|&field| tasks::RELATION[field as usize]);
        let options = RowOptions {
            header: !listed.options.no_header,
            named: listed.options.names,
            samples: listed.sample.is_some(),
        };
        Rows::begin(machine, &head, columns.chain(listed.depths.map(|_| DEPTH)), options)
    }
}

/// Reads again, one by one, the processes whose command line or environment had no room in the
/// answer. So a listing keeps little in memory, and has everything.
#[derive(Debug)]
pub struct LateTexts<'h> {
    handle: &'h mut Handle,
    query: Query,
    snapshot: Snapshot,
}

impl<'h> LateTexts<'h> {
    /// The memory for the answer, apart from texts that are short.
    pub const MAX_MEMORY: usize = 16 << 20;

    /// The maximum memory for what is written at the end only.
    const MAX_KEPT: usize = 128 << 20;

    /// For the answer to this query.
    pub fn new(handle: &'h mut Handle, query: &Query) -> LateTexts<'h> {
        LateTexts {
            handle,
            query: query.clone(),
            snapshot: Snapshot::default(),
        }
    }

    /// The task, read again if it lacks a long text. Threads are not: each has the text of its
    /// process, and they can be many. `kept` is how many bytes wait to be written.
    pub fn task<'s>(&'s mut self, task: &Task<'s>, kept: usize) -> Task<'s> {
        let is_cut = [Field::Cmdline, Field::Environ]
            .into_iter()
            .any(|field| task.value(field) == Err(Absent::Truncated));
        let header = task.record().header();
        if !is_cut || kept > Self::MAX_KEPT || header.pid != header.tid || self.query.scope.is_threads() {
            return *task;
        }
        self.query.scope = Scope::Listed;
        self.query.pids = vec![header.pid.get()];
        let answer = self.handle.query_into(&self.query, &mut self.snapshot);
        let again = answer.ok().and_then(|()| self.snapshot.tasks().next());
        let is_same = |again: &Task<'_>| again.record().header().start_ns == header.start_ns;
        again.filter(is_same).unwrap_or(*task)
    }
}

/// Writes tasks as a table of this project's own columns. `before` appends what is in front of the
/// text of a cell, by the row and the column.
pub fn write_table<'t, 's: 't>(
    options: &Options,
    columns: &[ListingColumn],
    tasks: impl ExactSizeIterator<Item = &'t Task<'s>>,
    missing: &mut Absences,
    late: &mut LateTexts<'_>,
    mut before: impl FnMut(&mut Vec<u8>, usize, &ListingColumn),
) -> Result<(), Failure> {
    let mut table = tasks::table(columns, tasks.len(), !options.no_header);
    let mut cells = Cells::new(options.bytes, options.names);
    for (row, task) in tasks.enumerate() {
        let task = late.task(task, table.kept());
        for shown in columns {
            table.cell(|out| {
                before(out, row, shown);
                shown.write(out, &tasks::RELATION, &task, &mut cells, missing);
            });
        }
    }
    let mut output = Output::default();
    table.write(&mut output, terminal_width())?;
    Ok(output.finish()?)
}

impl TaskRows<'_> {
    /// Writes the rows of one sample.
    pub fn write(
        &self,
        rows: &mut Rows,
        absences: &mut Absences,
        mut late: Option<&mut LateTexts<'_>>,
    ) -> io::Result<()> {
        if let Some(sample) = self.sample {
            rows.sample(sample, self.tasks.len())?;
        }
        for (index, task) in self.tasks.iter().enumerate() {
            let task = late.as_mut().map_or(*task, |late| late.task(task, 0));
            rows.row(|column| match self.fields.get(column) {
                Some(&field) => absences.value(&task, field as usize),
                None => Ok(Value::Unsigned(self.depths.map_or(0, |depths| depths[index].into()))),
            })?;
        }
        Ok(())
    }
}

/// The sources of an answer, each with the groups that it answered.
pub fn groups_by_source<S: PartialEq>(answers: impl Iterator<Item = (Group, S)>) -> Vec<(S, Vec<&'static str>)> {
    let mut by_source: Vec<(S, Vec<&str>)> = Vec::new();
    for (group, source) in answers {
        match by_source.iter_mut().find(|(of, _)| *of == source) {
            Some((_, groups)) => groups.push(group.name()),
            None => by_source.push((source, vec![group.name()])),
        }
    }
    by_source
}

/// The depth of a task in a tree.
pub const DEPTH: ColumnInfo = column("depth", Kind::Count, "The number of its ancestors in the tree.");

/// What to write in machine-readable output.
#[derive(Clone, Copy, Debug)]
pub struct TaskRows<'a> {
    /// The fields, in order.
    pub fields: &'a [Field],
    /// The tasks, in order.
    pub tasks: &'a [Task<'a>],
    /// The depth of each task, if the tasks form a tree.
    pub depths: Option<&'a [u32]>,
    /// The sample that the tasks belong to, if there are several samples.
    pub sample: Option<Sample<'a>>,
    /// Sums over the tasks, for the end of a JSON document.
    pub total: Total<'a>,
    /// The options that say how.
    pub options: &'a Options,
}

/// How many of these tasks lack a value because no thread could be started.
pub fn lacking_thread<'a>(tasks: impl Iterator<Item = Task<'a>>) -> u64 {
    tasks.filter(|task| task.gives(Absent::NoThread)).count() as u64
}

/// Reports missing values. Each element of `absences` comes with the number of tasks that it
/// counts, or 0 where that number means nothing.
pub fn report_absences(absences: &[(&Absences, usize)]) -> Outcome {
    let mut outcome = Outcome::Complete;
    for (absences, tasks) in absences {
        for (fields, reason, count) in absences.summary() {
            // Behind the fields are rates: what they lack is told by the fields that they grow from.
            let fields: Vec<Field> = fields
                .iter()
                .filter_map(|&field| Field::ALL.get(field).copied())
                .collect();
            if fields.is_empty() {
                continue;
            }
            let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
            let of = match (*tasks, count as usize) {
                (0 | 1, _) => String::new(),
                (tasks, count) if tasks == count => format!(" for all {tasks} tasks"),
                (tasks, count) => format!(" for {count} of {tasks} tasks"),
            };
            let what = format!("{}: {reason}{of}", names.join(", "));
            outcome = outcome.and(match next_step(reason, &fields) {
                None => say_denied(what),
                Some(step) => {
                    say(format_args!("{what} ({step})"));
                    Outcome::Partial
                }
            });
            let has_counter = reason == Absent::Denied && fields.contains(&Field::RollupRssBytes);
            if has_counter && history::shown().is_none() && WhoMay::see_denied() != WhoMay::Nobody {
                say("rss_bytes and swap_bytes are shown to all: `taskdiag ps -o pid,rss_bytes,swap_bytes,comm`; sums of RSS: \
                     `taskdiag top -b --by user`");
            }
        }
    }
    outcome
}

/// The processes of these for which a read made no progress.
pub fn silent(tasks: &[Task<'_>]) -> Vec<u32> {
    let silent = tasks.iter().filter(|task| task.gives(Absent::NoAnswer));
    let mut pids: Vec<u32> = silent.flat_map(|task| task.pid()).collect();
    pids.dedup();
    pids
}

/// What the user can do about values that are missing for this reason. `None`: that depends on who
/// may see the values.
fn next_step(reason: Absent, fields: &[Field]) -> Option<&'static str> {
    let is_past = history::shown().is_some();
    Some(match reason {
        // Whoever reads a recording, with whatever options, sees no more.
        Absent::Denied if is_past && WhoMay::see_denied() != WhoMay::Nobody => {
            "the recorder was not allowed to read it"
        }
        Absent::Unsupported if is_past && fields == [Field::Environ] => "environments are never recorded",
        Absent::Unsupported if is_past => "it was not recorded: `taskdiag record` has -o and --pss-budget",
        Absent::NoAnswer if is_past => "it kept the recorder waiting",
        Absent::OverBudget if is_past => "walking its memory would have taken too long: `taskdiag record --pss-budget`",
        Absent::NoAnswer if fields.iter().all(|field| field.group() == Group::Derived) => {
            "the user database, or a file of a container runtime: --patience waits longer"
        }
        Absent::Denied => return None,
        Absent::Unsupported => "this kernel, or the source that answered, does not have it: see `taskdiag doctor`",
        Absent::NoAnswer => "the process keeps its memory locked: --patience waits longer",
        Absent::NoThread if is_past => "the recorder could start no thread to read it",
        Absent::NoThread => Error::NO_THREAD,
        Absent::NotCounted if is_past => "the recorder did not count it",
        Absent::NotCounted => "`taskdiag pin --net` counts from then on, `taskdiag net` while it runs; both as root",
        Absent::OverBudget => "walking its memory would take too long: see `taskdiag mem`, --deadline and --max-rss",
        _ => "too large to be read whole",
    })
}
