//! `taskdiag maps`.

mod row;
mod sums;

use std::collections::HashMap;

use clap::Args as ClapArgs;
use taskdiag::maps::{Filter, MapField, Mapping, Mappings, Perms, Row};
use taskdiag::{
    Absent, ErrorKind, Field, Fields, Filter as Expression, Handle, Query, Set, Snapshot, SourceId, Task, Undecided,
    Value,
};
use taskdiag_core::filter::HasFields;

use crate::choice::{distinct, OrderOptions};
use crate::listing::{self, Format};
use crate::outcome::{
    is_thread, lacking, lacks, say, say_denied, say_hidden, say_missing, say_missing_denied, say_silent, say_undecided,
    Failure, Outcome,
};
use crate::output::cell::Cells;
use crate::output::document::Head;
use crate::output::format::OutputOptions;
use crate::output::listing::{Content, Form, Layout, Listing, ListingColumn};
use crate::output::table::Table;
use crate::proc;
use crate::quantity;
use crate::selection::{Selection, OF_PROCESSES, ONLY_IF, SELECTING};
use crate::source::{parser, sources, Choices, ForcedSource, SourceOptions};
pub use row::RELATION;
pub use sums::{by_file, FileSum};

/// List the memory mappings of processes: addresses, permissions, files
///
/// Names are as the kernel writes them: a path, with " (deleted)" if the file was deleted, or a
/// word in brackets. In tables, control characters are escaped. Seeing the mappings of another
/// user's process needs root or CAP_SYS_PTRACE. --where chooses mappings, too, by their fields and those
/// of their processes. Rows are in the order of processes and addresses.
#[derive(Debug, ClapArgs)]
#[command(mut_arg("source", |arg| arg.value_parser(parser(SOURCES))))]
#[command(mut_arg("filter", |arg| arg.help(format!("Only mappings {ONLY_IF} of mappings and of their processes"))))]
#[command(after_help = "Examples:\n  \
    taskdiag maps $$\n  \
    taskdiag maps --exec --build-id --json 1234\n  \
    taskdiag maps --addr 0x7f0dcafe0000 1234\n  \
    taskdiag maps -x --sort -rss_bytes --limit 10 1234\n  \
    taskdiag maps --all --exec --jsonl\n  \
    taskdiag maps -u www-data --file")]
pub struct Args {
    /// The processes
    #[arg(value_name = "PID", value_parser = quantity::pid, required_unless_present = "all",
        required_unless_present_any = SELECTING, conflicts_with_all = ["all", "ignore_ancestors"],
        conflicts_with_all = OF_PROCESSES)]
    named: Vec<u32>,
    /// All processes
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    selection: Selection,
    /// Only executable mappings
    #[arg(long)]
    exec: bool,
    /// Only mappings of files
    #[arg(long)]
    file: bool,
    /// Only the mapping that contains this address, decimal or hexadecimal with 0x; can be repeated
    #[arg(long = "addr", value_name = "ADDR", value_parser = address, conflicts_with_all = ["exec", "file"])]
    addresses: Vec<u64>,
    /// Show build ids
    #[arg(long)]
    build_id: bool,
    /// Show resident and dirty sizes; the kernel examines every page for them
    #[arg(short = 'x', long)]
    usage: bool,
    #[command(flatten)]
    order: OrderOptions,
    /// Fields to show, in this order, or `all`: pid, start, end, size_bytes, perms, offset_bytes,
    /// dev_major, dev_minor, inode, name, build_id, go_build_id, page_size_bytes, rss_bytes,
    /// dirty_bytes, hugetlb_bytes; a plus in front adds to the default fields
    #[arg(short = 'o', long = "fields", value_name = "[+]FIELD,…", help_heading = "Output")]
    fields: Vec<String>,
    #[command(flatten)]
    from: SourceOptions,
    #[command(flatten)]
    output: OutputOptions,
}

pub const SOURCES: &Choices<ForcedSource<SourceId>> = sources! {
    "auto", "Whichever is fastest here";
    "procmap": SourceId::Procmap, "The PROCMAP_QUERY ioctl, Linux 6.11";
    "bpf": SourceId::Bpf, "BPF programs; needs CAP_BPF and CAP_PERFMON";
    "procfs": SourceId::Procfs, "The files of /proc";
    "broker": SourceId::Broker, "The kernel, through files that taskdiagd opens";
};

/// A handle for mappings. A source that was chosen is loaded or connected.
pub fn handle(from: &SourceOptions) -> taskdiag::Result<Handle> {
    let mut handle = from.handle_for_many();
    if !from.is_choice_free() {
        handle.prepare_maps()?;
    }
    Ok(handle)
}

/// A handle that finds processes.
fn tasks(from: &SourceOptions) -> Handle {
    if from.is_broker() {
        from.handle_for_many()
    } else {
        proc::handle().with_patience(from.patience())
    }
}

/// Parses an address: decimal, or hexadecimal with `0x`.
pub fn address(word: &str) -> Result<u64, String> {
    let number = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16),
        Some(_) => return Err(format!("{word:?} is not an address")),
        None => word.trim_start_matches('+').parse(),
    };
    number.map_err(|_| {
        let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hint = if is_hex {
            format!(": 0x{word}, perhaps?")
        } else {
            String::new()
        };
        format!("{word:?} is neither a decimal number nor a hexadecimal one with 0x{hint}")
    })
}

/// The request that the options describe.
struct Request {
    layout: Layout,
    /// The processes, unless they are named, or all.
    query: Query,
    /// Which mappings, in the kernel.
    filter: Filter,
    /// Which of these.
    only: Option<Expression>,
    fields: Set<MapField>,
}

/// The answers, and what is missing.
struct Answers {
    lists: Vec<Mappings>,
    /// The processes, if they were selected or the filter reads their fields.
    tasks: Snapshot,
    undecided: Undecided,
    counters: Vec<(&'static str, u64)>,
    outcome: Outcome,
}

impl Request {
    fn new(args: &Args) -> Result<Request, Failure> {
        let layout = Layout::new(&RELATION, &args.fields, &args.order, row::usual(args), row::shown)?;
        let is_asked = |column: usize| layout.names(column);
        let (query, only) = args.selection.query_for_mappings(&args.named)?;
        let tested = only.as_ref().map_or(Vec::new(), Expression::columns);
        let of_usage = [row::RSS, row::DIRTY, row::HUGETLB];
        let usage = args.usage
            || of_usage
                .into_iter()
                .any(|column| is_asked(column) || tested.contains(&column));
        if args.is_all() && usage {
            return Err("--all has no rss_bytes, dirty_bytes and hugetlb_bytes: name or select the processes".into());
        }
        if args.is_all() && !args.addresses.is_empty() {
            return Err("--all does not look for addresses: name or select the processes".into());
        }
        let for_programs = args.output.format() != Format::Table;
        let page_sizes = is_asked(row::PAGE_SIZE) || for_programs && layout.rows.contains(&row::PAGE_SIZE);
        let mut fields = Set::from(MapField::Name);
        let has_build_ids = args.build_id || is_asked(row::BUILD_ID);
        fields.extend(has_build_ids.then_some(MapField::BuildId));
        fields.extend(is_asked(row::GO_BUILD_ID).then_some(MapField::GoBuildId));
        fields.extend(usage.then_some(MapField::RssBytes));
        // The text that has the usage has page sizes too; asking for them would only rule it out.
        fields.extend((page_sizes && !usage).then_some(MapField::PageSizeBytes));
        let mut filter = Filter::default();
        filter.perms.set(Perms::EXEC, args.exec);
        filter.file_backed = args.file;
        let read = tested.into_iter().map(|column| MapField::ALL[column]);
        fields.extend(read.filter(|&field| !(usage && field == MapField::PageSizeBytes)));
        Ok(Request {
            query: query.fields(Field::StartNs | only.as_ref().map_or(Fields::NONE, Expression::fields)),
            layout,
            filter,
            only,
            fields,
        })
    }
}

impl Args {
    fn ask(&self, handle: &mut Handle, request: &Request) -> Result<Answers, Failure> {
        let mut answers = Answers {
            lists: Vec::new(),
            tasks: Snapshot::default(),
            undecided: Undecided::default(),
            counters: Vec::new(),
            outcome: Outcome::Complete,
        };
        let reads_tasks = request.only.as_ref().is_some_and(|only| only.fields() != Fields::NONE);
        if self.is_all() && !reads_tasks {
            ask_all(handle, request, &mut answers)?;
        } else if self.named.is_empty() {
            self.ask_selected(handle, request, &mut answers)?;
        } else {
            if reads_tasks {
                let query = Query::these(self.named.iter().copied()).fields(request.query.fields);
                answers.tasks = tasks(&self.from).query(&query)?;
                let silent = listing::silent(&answers.tasks.tasks().collect::<Vec<_>>());
                answers.outcome = answers.outcome.and(say_silent(&silent));
            }
            self.ask_each(handle, request, &mut answers)?;
        }
        if let Some(only) = &request.only {
            answers.retain(only);
            let undecided = answers.undecided.named().into_iter();
            answers
                .counters
                .extend(undecided.map(|(name, count)| (name, count.unwrap_or(0))));
        }
        let mappings = answers.lists.iter().map(Mappings::len).sum::<usize>();
        answers.counters.insert(0, ("mappings", mappings as u64));
        Ok(answers)
    }

    /// Whether all processes are asked for, without a selection of them.
    fn is_all(&self) -> bool {
        self.all && !self.selection.selects_processes()
    }

    fn ask_each(&self, handle: &mut Handle, request: &Request, answers: &mut Answers) -> Result<(), Failure> {
        for pid in distinct(self.named.iter().copied()) {
            match self.ask_one(pid, handle, request, answers) {
                _ if is_thread(pid) => answers.lacks(&lacking(pid)),
                Ok(mappings) => answers.lists.push(mappings),
                Err(error) => match error.kind() {
                    ErrorKind::NoSuchTask => answers.lacks(&lacking(pid)),
                    ErrorKind::Denied if !self.from.is_broker() => {
                        let denied = say_denied(format_args!("pid {pid}: you may not see its mappings"));
                        answers.outcome = answers.outcome.and(denied);
                    }
                    ErrorKind::Denied | ErrorKind::NoMemory | ErrorKind::NoAnswer => {
                        answers.lacks(&format!("{error:#}"));
                    }
                    _ => return Err(error.into()),
                },
            }
        }
        Ok(())
    }

    fn ask_one(
        &self,
        pid: u32,
        handle: &mut Handle,
        request: &Request,
        answers: &mut Answers,
    ) -> taskdiag::Result<Mappings> {
        let mut maps = handle.maps(pid)?;
        if self.addresses.is_empty() {
            return maps.list(request.filter, request.fields);
        }
        let found = maps.at_each(&self.addresses, request.fields)?;
        for (address, place) in self.addresses.iter().zip(&found.places) {
            if place.is_none() {
                answers.lacks(&format!("pid {pid}: nothing is mapped at {address:#x}"));
            }
        }
        Ok(found.mappings)
    }

    fn ask_selected(&self, handle: &mut Handle, request: &Request, answers: &mut Answers) -> Result<(), Failure> {
        let mut tasks = tasks(&self.from);
        let selected = listing::Answers::ask(&mut tasks, &request.query)?;
        let outcome = selected
            .report(&[])
            .and(self.selection.processes.check_found(&mut tasks, &selected));
        answers.outcome = answers.outcome.and(outcome);
        let (mut denied, mut gone, mut silent) = (0, 0, Vec::new());
        let mut found = Vec::new();
        for task in selected.tasks() {
            let Ok(identity) = task.identity() else {
                gone += 1;
                continue;
            };
            match self.ask_one(identity.tid(), handle, request, answers) {
                Ok(mappings) => found.push((identity, mappings)),
                Err(error) => match error.kind() {
                    ErrorKind::NoMemory => {}
                    ErrorKind::NoSuchTask => gone += 1,
                    ErrorKind::Denied => denied += 1,
                    ErrorKind::NoAnswer => silent.push(identity.tid()),
                    _ => return Err(error.into()),
                },
            }
        }
        // A process may have ended in between, and its id may be reused.
        let pids = found.iter().map(|(identity, _)| identity.tid());
        let still = tasks.query(&Query::these(pids).fields(Field::StartNs))?;
        for (identity, mappings) in found {
            if still.tasks().any(|task| task.identity() == Ok(identity)) {
                answers.lists.push(mappings);
            } else {
                gone += 1;
            }
        }
        answers.left_out(denied, &silent);
        let no_answer = silent.len() as u64 + selected.snapshot.counters().no_answer;
        answers.counters = vec![("denied", denied), ("gone", gone), ("no_answer", no_answer)];
        answers.tasks = selected.snapshot;
        Ok(())
    }
}

fn ask_all(handle: &mut Handle, request: &Request, answers: &mut Answers) -> Result<(), Failure> {
    let all = handle.all_maps(request.filter, request.fields)?;
    answers.left_out(all.denied, &all.silent);
    if all.mappings.source() != SourceId::Bpf {
        answers.outcome = answers.outcome.and(say_hidden());
    }
    answers.outcome = answers.outcome.and(say_missing(lacks! {
        all.malformed, "invalid answer" => "{} of the kernel left out: please report this";
    }));
    answers.counters = vec![
        ("denied", all.denied),
        ("gone", all.gone),
        ("malformed", all.malformed),
        ("hidden", all.hidden),
        ("deferred", all.deferred),
        ("no_answer", all.silent.len() as u64),
    ];
    answers.lists.push(all.mappings);
    Ok(())
}

/// A mapping with its process, for filters.
struct Candidate<'a> {
    mapping: Row<'a>,
    task: Option<Task<'a>>,
}

impl HasFields for Candidate<'_> {
    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        self.task.as_ref().ok_or(Absent::NotAsked)?.value(field)
    }

    fn column_value(&self, index: usize) -> Result<Value<'_>, Absent> {
        self.mapping.value(MapField::ALL[index])
    }
}

impl Answers {
    /// Keeps the mappings for which a filter is true.
    fn retain(&mut self, only: &Expression) {
        let Answers {
            lists,
            tasks,
            undecided,
            ..
        } = self;
        let by_pid: HashMap<_, _> = tasks.tasks().map(|task| (task.pid().ok(), task)).collect();
        for list in lists {
            list.retain(|mapping| {
                let candidate = Candidate {
                    task: by_pid.get(&mapping.pid).copied(),
                    mapping: Row::new(mapping),
                };
                only.admits(&candidate, undecided)
            });
        }
    }

    fn lacks(&mut self, message: &str) {
        say(message);
        self.outcome = Outcome::Partial;
    }

    /// Reports how many processes are not visible, and which ones do not answer.
    fn left_out(&mut self, denied: u64, silent: &[u32]) {
        let denied = say_missing_denied(lacks! { denied, "process" => "{} left out, whose mappings you may not see"; });
        self.outcome = self.outcome.and(denied).and(say_silent(silent));
    }

    fn rows(&self) -> impl Iterator<Item = Mapping<'_>> + '_ {
        self.lists.iter().flatten()
    }

    /// The last row of a table with usage: sums over all mappings.
    fn total_row(&self, table: &mut Table, columns: &[ListingColumn], cells: &mut Cells) {
        let mut is_labelled = false;
        for shown in columns {
            table.cell(|out| match shown.content {
                Content::Column(column @ (row::SIZE | row::RSS | row::DIRTY | row::HUGETLB)) => {
                    let bytes = self
                        .rows()
                        .map(|mapping| match Row::new(mapping).value(MapField::ALL[column])? {
                            Value::Unsigned(bytes) => Ok(bytes),
                            _ => Err(Absent::Unsupported),
                        });
                    let sum = bytes.sum::<Result<u64, Absent>>().map(Value::Unsigned);
                    cells.cell(out, &RELATION[column], sum.map_err(Absent::as_str));
                }
                _ if !std::mem::replace(&mut is_labelled, true) => out.extend_from_slice(b"total"),
                _ => {}
            });
        }
    }

    /// Reports the number of mappings whose name or build id is shown and could not be read.
    fn report_missing(&mut self, shown: &[usize]) {
        let count = |reason, columns: &[usize]| {
            let columns = columns.iter().filter(|column| shown.contains(column));
            let lacks = |row: Row<'_>| {
                columns
                    .clone()
                    .any(|&column| row.value(MapField::ALL[column]) == Err(reason))
            };
            self.rows().filter(|&mapping| lacks(Row::new(mapping))).count() as u64
        };
        let nameless = |reason| count(reason, &[row::NAME]);
        let count = |reason| count(reason, &[row::BUILD_ID, row::GO_BUILD_ID]);
        let denied = say_missing_denied(lacks! {
            nameless(Absent::Denied), "mapping" => "names: denied for {}";
            count(Absent::Denied), "mapping" => "build ids: denied for {}";
        });
        let missing = say_missing(lacks! {
            nameless(Absent::Truncated), "mapping" => "no names of {}: too long to be read";
            count(Absent::Truncated), "mapping" => "build ids: too long for {}";
            count(Absent::NoAnswer), "mapping" => "build ids: no answer for {} (--patience waits longer)";
        });
        let undecided = say_undecided(self.undecided, "mapping");
        self.outcome = self.outcome.and(denied).and(missing).and(undecided);
    }
}

pub fn run(args: Args) -> Result<Outcome, Failure> {
    let request = Request::new(&args)?;
    let mut handle = handle(&args.from)?;
    let mut answers = args.ask(&mut handle, &request)?;
    let name = answers.lists.first().map(|list| ("maps", list.source().name()));
    let head = Head::new("maps", name.into_iter().collect(), answers.counters.iter().copied());
    let mut listing = Listing::begin(&request.layout, Form::from(args.output), &head);
    for mapping in answers.rows() {
        if listing.row(&Row::new(mapping)).is_break() {
            break;
        }
    }
    if let (true, Some(table)) = (args.usage, listing.end_rows(|_| {})?) {
        answers.total_row(table, &request.layout.table, &mut Form::from(args.output).cells);
    }
    listing.finish(|_| {})?;
    answers.report_missing(&request.layout.needs(args.output.format()));
    Ok(answers.outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that addresses are decimal, or hexadecimal with 0x, and that the message points out a
    /// missing 0x.
    #[test]
    fn addresses_are_numbers() {
        assert_eq!(address("0x7fFf"), Ok(0x7fff));
        assert_eq!(address("0XA"), Ok(10));
        assert_eq!(address("18446744073709551615"), Ok(u64::MAX));
        assert!(address("7fff").is_err_and(|error| error.contains("0x7fff, perhaps?")));
        for word in ["", "0x", "0x+1", "-1", "0x10000000000000000", "1 ", "x"] {
            assert!(address(word).is_err(), "{word:?}");
        }
    }
}
