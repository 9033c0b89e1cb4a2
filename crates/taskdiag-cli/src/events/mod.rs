//! `taskdiag events`.

pub mod cgroups;
mod filter;
pub mod listener;
#[cfg(feature = "history")]
mod recorded;
pub mod stop;
mod writer;

use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use taskdiag::events::{EventSource, Lost, Options};
use taskdiag::{Absent, EventField, EventKind};

use crate::history::RangeOptions;
use crate::listing::Formats;
use crate::outcome::{counted, lacks, say, say_missing, Failure, Outcome};
use crate::output::relation::Absences;
use crate::proc;
use crate::quantity;
use crate::selection::{Selection, ONLY_IF};
use crate::source::{parser, sources, Choices, ForcedSource};
pub use cgroups::Cgroups;
use filter::Filter;
pub use stop::Stop;
pub use writer::RELATION;

/// Show processes as they start (fork), run another program (exec) and end (exit), until Ctrl-C
///
/// With -p, --children or --descendants, shows only those processes and their new descendants, and
/// ends when none of them is left. All other selecting options are evaluated for each event with
/// the process's values at that moment, so they also select processes that start later.
///
/// Even the events of very short-lived processes are shown, or counted as lost: the last line on
/// standard error has the number of lost events, and the exit status is 1 if there are any. Rows
/// appear within some hundredths of a second, in the order of the events on each processor. Scripts
/// should use -o with --jsonl or --csv: the default columns may change.
#[derive(Debug, ClapArgs)]
#[command(mut_arg("filter", |arg| arg.help(format!("Only events {ONLY_IF} that tasks have, too"))))]
#[command(after_help = "Examples:\n  \
    taskdiag events --kind exec\n  \
    taskdiag events -p $$ --for 60\n  \
    taskdiag events -o pid,start_ns,exit_code,runtime_ns --kind exit --jsonl | jq …\n  \
    taskdiag events --history /var/lib/taskdiag --from -2h --to -1h --kind exit")]
pub struct Args {
    /// Only these kinds of events
    #[arg(long = "kind", value_parser = parser(KINDS), value_name = "KIND,…", value_delimiter = ',')]
    kinds: Vec<EventKind>,
    /// Also show events of threads
    #[arg(short = 'T', long)]
    threads: bool,
    #[command(flatten)]
    selection: Selection,
    /// End after this many events
    #[arg(short = 'n', long, visible_alias = "limit", value_name = "N", value_parser = quantity::count)]
    count: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "SECONDS", value_parser = quantity::duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    past: RangeOptions,
    /// Fields to show, in this order, or `all`; a plus in front adds to the default fields. See
    /// docs/events.md
    #[arg(short = 'o', long = "fields", value_name = "[+]FIELD,…", help_heading = "Output")]
    fields: Vec<String>,
    /// The source to use; an error if it can't answer
    #[arg(long, value_name = "SOURCE", value_parser = parser(SOURCES), default_value = "auto")]
    source: ForcedSource<EventSource>,
    #[command(flatten, next_help_heading = "Output")]
    formats: Formats,
    /// Exact numbers in tables: bytes and nanoseconds
    #[arg(long, help_heading = "Output")]
    bytes: bool,
    /// Names of users: instead of numbers in tables, beside them in JSON and CSV
    #[arg(long, help_heading = "Output")]
    names: bool,
    /// No header above tables and CSV
    #[arg(long, visible_alias = "no-headers", help_heading = "Output")]
    no_header: bool,
}

/// The values of `--kind`.
const KINDS: &Choices<EventKind> = &[
    ("fork", EventKind::Fork, "A process or thread started"),
    ("exec", EventKind::Exec, "A process runs another program"),
    ("exit", EventKind::Exit, "A process or thread ended"),
];

const SOURCES: &Choices<ForcedSource<EventSource>> = sources! {
    "auto", "Tracepoints if allowed, else the proc connector";
    "bpf": EventSource::Bpf, "BPF programs on tracepoints; needs CAP_BPF and CAP_PERFMON";
    "connector": EventSource::Connector, "The proc connector";
};

pub fn run(args: Args) -> Result<Outcome, Failure> {
    #[cfg(feature = "history")]
    if let Some(path) = &args.past.history {
        return recorded::run(&args, path);
    }
    let layout = writer::layout(&args)?;
    let mut filter = Filter::new(&args)?;
    let stop = Stop::new()?;
    let options = Options::default()
        .kinds(filter.kinds_to_watch())
        .threads(args.threads)
        .source(args.source.0);
    let mut handle = proc::handle();
    let mut events = proc::events(&if writer::has_network(&layout) {
        // If it fails, the values are absent.
        let _ = handle.count_network();
        handle.events_with_network(options)?
    } else {
        options
    })?;
    filter.find_family()?;
    args.selection
        .processes
        .say_empty_groups(&mut proc::handle().one_shot());
    let end = args.duration.and_then(|duration| Instant::now().checked_add(duration));
    let most = args.count.unwrap_or(u64::MAX);
    let mut told = 0;
    let mut listing = writer::begin(&args, &layout, events.source())?;
    loop {
        // Read before the last batch, so that the batch contains all events up to now.
        let is_over = stop.was_asked()? || end.is_some_and(|end| end <= Instant::now());
        for event in events.read()? {
            if filter.admits(&event) {
                writer::row(&mut listing, &event)?;
                told += 1;
            }
            if told == most || filter.has_nobody() {
                break;
            }
        }
        listing.flush()?;
        if is_over || told == most || filter.has_nobody() {
            break;
        }
        let rest = end.map(|end| end.saturating_duration_since(Instant::now()));
        events.wait(rest, Some(stop.as_fd()))?;
    }
    let lost = events.lost();
    let absences = writer::end(listing, told, lost)?;
    let lost_by = format!("lost ({})", events.source());
    Ok(report(told, lost, &lost_by, &filter, &absences))
}

/// Reports how many events were shown, and what is missing. `lost_by` says what the lost ones are.
fn report(told: u64, lost: Lost, lost_by: &str, filter: &Filter, absences: &Absences) -> Outcome {
    let mut outcome = filter.outcome;
    for (fields, reason, count) in absences.summary() {
        let names: Vec<&str> = fields.iter().map(|&field| EventField::ALL[field].name()).collect();
        let next_step = match reason {
            Absent::Unsupported => " (only tracepoints have it: --source bpf says why they can't be used)",
            Absent::Truncated => " (longer than there was room for)",
            _ => "",
        };
        say(format_args!(
            "{}: {reason} for {count} of {}{next_step}",
            names.join(", "),
            counted(told, "event")
        ));
        outcome = Outcome::Partial;
    }
    let undecided = say_missing(lacks! {
        filter.undecided, "event" => "{} left out: a value that selects them was no longer available";
    });
    let at_least = if lost.is_exact { "" } else { "at least " };
    let (events, count) = (counted(told, "event"), lost.count);
    say(format_args!("{events}, {at_least}{count} {lost_by}"));
    outcome.and(undecided).and(Outcome::partial_if(count > 0))
}
