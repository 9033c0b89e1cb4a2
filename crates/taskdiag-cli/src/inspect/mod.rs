//! `taskdiag inspect`: everything about one process on one page.
//!
//! `facts` queries the process, `page` decides without I/O what the page shows, and `write` writes
//! it.

mod cgroup;
mod facts;
mod page;
mod sections;
mod unit;
mod write;

use clap::Args as ClapArgs;

use crate::listing::{self, Machine};
use crate::outcome::{lacking, say, say_denied, Failure, Outcome};
use crate::output::document::{Document, Head};
use crate::output::relation::Absences;
use crate::output::Output;
use crate::source::SourceOptions;
use crate::{proc, quantity};
use cgroup::UNSUPPORTED;
pub use cgroup::{files as cgroup_files, pressures, used as cgroup_use};
pub use facts::user_threads;
use facts::Inspector;
pub use page::{limits, mappings, variables};
use page::{page, Facts, PagePart};
pub use sections::{Info, Section, Shape, LIMITED, NAMESPACES, SECTIONS};
pub use write::{described, texts, Texts, PATHS};

/// Show everything about one process on one page
///
/// Identity, parents, credentials next to those that its systemd unit requests, limits and their
/// use, cgroup, namespaces, memory, descriptors, sockets with their peers, and threads with what
/// each waits for.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag inspect $$\n  \
    taskdiag inspect 1234 --json | jq '.rows[0].limits'\n  \
    taskdiag inspect 1234 --environ=PATH,HOME")]
pub struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = quantity::pid)]
    pid: u32,
    /// Also show the environment that the process was started with, or only these variables. It may
    /// contain passwords
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', num_args = 0.., require_equals = true)]
    environ: Option<Vec<String>>,
    #[command(flatten)]
    from: SourceOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Options about output.
#[derive(Clone, Copy, Debug, ClapArgs)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// One JSON document with one row, which has one member per section
    #[arg(long, conflicts_with = "jsonl")]
    json: bool,
    /// Only the row, on one line
    #[arg(long)]
    jsonl: bool,
    /// Exact numbers on the page: bytes and nanoseconds
    #[arg(long)]
    bytes: bool,
    /// Show all rows of long lists
    #[arg(long)]
    all: bool,
}

impl OutputOptions {
    fn machine(self) -> Option<Machine> {
        match (self.json, self.jsonl) {
            (true, _) => Some(Machine::Json),
            (_, true) => Some(Machine::Jsonl),
            _ => None,
        }
    }
}

pub fn run(args: Args) -> Result<Outcome, Failure> {
    let facts = Inspector::new(&args.from, args.pid).facts(args.environ)?;
    let parts = page(&facts).ok_or_else(|| lacking(args.pid))?;
    match args.output.machine() {
        Some(machine) => write_document(machine, &facts, &parts)?,
        None => write::for_people(&parts, args.output)?,
    }
    let outcome = report(&parts);
    // Then nearly all of the page is unsupported.
    match proc::chosen().check() {
        Err(error) => {
            say(format_args!("{error:#}"));
            Ok(Outcome::Partial)
        }
        Ok(()) => Ok(outcome),
    }
}

fn write_document(machine: Machine, facts: &Facts, parts: &[PagePart]) -> std::io::Result<()> {
    let answers = facts.process.answers();
    let sources = answers.filter_map(|(group, answer)| Some((group.name(), answer.ok()?.name())));
    let head = Head::new("inspect", sources.collect(), facts.process.counters().named());
    let mut output = Output::default();
    let mut document = Document::begin(&mut output.buffer, machine, &head, None::<[&str; 0]>);
    document.row(&mut output.buffer, |out| write::as_json(out, parts));
    document.end(&mut output.buffer, |_| {});
    output.finish()
}

/// Reports what is missing. What this kernel does not have is mentioned only on the page.
fn report(parts: &[PagePart]) -> Outcome {
    let mut absences = Absences::default();
    let mut outcome = Outcome::Complete;
    for part in parts {
        let key = part.section.info().key;
        let rows = part.body.as_deref().unwrap_or_default();
        let fields = rows.iter().flat_map(|row| part.section.fields().iter().zip(row));
        for (&field, cell) in fields {
            if let Err(reason) = cell.as_ref().map_err(|reason| *reason) {
                if reason != UNSUPPORTED {
                    absences.count(field as usize, reason);
                }
            }
        }
        let reason = match &part.body {
            // The kind of a file or the family of a socket: without it, nothing is known.
            Ok(rows) if matches!(part.section, Section::Files | Section::Sockets) => {
                rows.iter().find_map(|row| row.first()?.as_ref().err())
            }
            Ok(_) => None,
            Err(reason) => Some(reason),
        };
        match reason {
            Some(&"denied") => outcome = outcome.and(say_denied(format_args!("{key}: denied"))),
            Some(&"no answer") => {
                say(format_args!("{key}: no answer (--patience waits longer)"));
                outcome = Outcome::Partial;
            }
            Some(&"truncated") => {
                say(format_args!("{key}: the kernel's lists are incomplete"));
                outcome = Outcome::Partial;
            }
            _ => {}
        }
    }
    listing::report_absences(&[(&absences, 0)]).and(outcome)
}
