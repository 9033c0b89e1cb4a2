//! `taskdiag maps`.

mod row;
mod sums;

use std::fmt;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::Args as ClapArgs;
use taskdiag::maps::{Broker, Filter, Machine, Mapping, Mappings, Maps, Row, Source, Wants};
use taskdiag::{Absent, ErrorKind, Field, Handle, Query, SourceId};

use crate::choice::{Chosen, SortBy};
use crate::listing::{self, Format};
use crate::outcome::{no_answer_from, say, say_denied, Failure, Outcome};
use crate::output::document::Head;
use crate::output::format::OutputOptions;
use crate::output::named;
use crate::quantity;
use crate::selection::Selection;
use crate::source::{parser, BrokerOptions, Choices, Patience};
pub use row::{build_id_cell, KEYS};
use row::{write_machine, write_table};
pub use sums::{by_file, FileSum};

/// The options that select processes.
const SELECTING: [&str; 9] = [
    "all",
    "pids",
    "children",
    "descendants",
    "users",
    "cgroup",
    "unit",
    "container",
    "filter",
];

/// List the memory mappings of processes: addresses, permissions, files
///
/// Names are the kernel's own text: a path, with " (deleted)" if the file is gone, or a word in
/// brackets. In tables, control characters are written as escapes. It takes root, or
/// CAP_SYS_PTRACE, to see the mappings of another user's process.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag maps $$\n  \
    taskdiag maps --exec --build-id --json 1234\n  \
    taskdiag maps --addr 0x7f0dcafe0000 1234\n  \
    taskdiag maps -x --sort -rss_bytes --limit 10 1234\n  \
    taskdiag maps --all --exec --jsonl\n  \
    taskdiag maps -u www-data --file")]
pub struct Args {
    /// The processes
    #[arg(value_name = "PID", value_parser = quantity::pid, required_unless_present_any = SELECTING,
        conflicts_with_all = SELECTING)]
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
    /// Only the mapping that has this address, decimal or hexadecimal with 0x; may be given several
    /// times
    #[arg(long = "addr", value_name = "ADDR", value_parser = address, conflicts_with_all = ["exec", "file"])]
    addresses: Vec<u64>,
    /// Show build ids
    #[arg(long)]
    build_id: bool,
    /// Show resident and dirty sizes, for which the kernel looks at every page
    #[arg(short = 'x', long)]
    usage: bool,
    /// Sort by these fields; a minus in front puts the largest first [default: by address]
    #[arg(long, value_name = "[-]FIELD,…", allow_hyphen_values = true)]
    sort: Vec<String>,
    /// At most this many rows, after sorting
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Fields to show, in this order; `all` for all: pid, start, end, size_bytes, perms,
    /// offset_bytes, dev_major, dev_minor, inode, name, build_id, page_size_bytes, rss_bytes,
    /// dirty_bytes; a plus in front adds to those shown without
    #[arg(short = 'o', long = "fields", value_name = "[+]FIELD,…", help_heading = "Output")]
    fields: Vec<String>,
    #[command(flatten)]
    from: SourceOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Options about sources.
#[derive(Clone, Debug, ClapArgs)]
pub struct SourceOptions {
    /// The source to ask. If it can't answer, that is an error
    #[arg(
        long,
        value_name = "SOURCE",
        value_parser = parser(SOURCES),
        default_value = "auto",
        default_value_if("socket", ArgPredicate::IsPresent, "broker")
    )]
    source: Choice,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    broker: BrokerOptions,
}

/// The sources.
const SOURCES: &Choices<Choice> = &[
    ("auto", Choice::Kernel(None), "Whichever is fastest here"),
    (
        "procmap",
        Choice::Kernel(Some(Source::Procmap)),
        "The PROCMAP_QUERY ioctl, Linux 6.11",
    ),
    (
        "bpf",
        Choice::Kernel(Some(Source::Bpf)),
        "BPF programs; needs CAP_BPF and CAP_PERFMON",
    ),
    ("procfs", Choice::Kernel(Some(Source::Procfs)), "The files of /proc"),
    (
        "broker",
        Choice::Broker,
        "The kernel, through files that taskdiagd opens",
    ),
];

/// What `--source` chose.
#[derive(Clone, Copy, Debug)]
enum Choice {
    Kernel(Option<Source>),
    Broker,
}

/// The source to ask, and how long to wait.
pub struct MapsSource {
    via: Via,
    patience: Duration,
}

enum Via {
    /// The kernel; by this source, if only that one may answer.
    Kernel(Option<Source>),
    /// The kernel, through files that the broker opens.
    Broker(Broker),
}

impl SourceOptions {
    /// A handle that says which processes there are.
    fn tasks(&self) -> Handle {
        let handle = Handle::new().with_patience(self.patience.patience);
        match (self.source, &self.broker.socket) {
            (Choice::Kernel(_), _) => handle,
            (Choice::Broker, Some(path)) => handle.with_source(SourceId::Broker).with_socket(path),
            (Choice::Broker, None) => handle.with_source(SourceId::Broker),
        }
    }

    /// The source to ask.
    pub fn source(&self) -> taskdiag::Result<MapsSource> {
        let via = match self.source {
            Choice::Kernel(source) => Via::Kernel(source),
            Choice::Broker => Via::Broker(Broker::connect(self.broker.socket.as_deref())?),
        };
        Ok(MapsSource {
            via,
            patience: self.patience.patience,
        })
    }
}

impl MapsSource {
    /// A handle on the mappings of a process.
    pub fn open(&self, pid: u32) -> taskdiag::Result<Maps> {
        match &self.via {
            Via::Kernel(None) => Maps::open_within(pid, self.patience),
            Via::Kernel(Some(source)) => Ok(Maps::open_within(pid, self.patience)?.with_source(*source)),
            Via::Broker(broker) => Ok(broker.open(pid)?.with_patience(self.patience)),
        }
    }

    /// A handle on the mappings of all processes.
    fn machine(&self) -> Machine {
        let machine = Machine::new().with_patience(self.patience);
        match &self.via {
            Via::Kernel(None) => machine,
            Via::Kernel(Some(source)) => machine.with_source(*source),
            Via::Broker(broker) => machine.with_broker(broker.clone()),
        }
    }

    /// The name of the source, where the kernel answered by `source`.
    pub fn name(&self, source: Source) -> &'static str {
        match self.via {
            Via::Kernel(_) => source.name(),
            Via::Broker(_) => "broker",
        }
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

/// What the options ask for.
struct Request {
    chosen: Chosen<usize>,
    sort: Vec<SortBy<usize>>,
    filter: Filter,
    wants: Wants,
}

/// What was answered, and what was not.
struct Answers {
    lists: Vec<Mappings>,
    counters: Vec<(&'static str, u64)>,
    outcome: Outcome,
}

impl Request {
    fn new(args: &Args) -> Result<Request, Failure> {
        let chosen = named::chosen(&args.fields, &KEYS)?;
        let sort = named::sort_keys(&args.sort, &KEYS)?;
        let is_asked = |key: usize| chosen.contains(key) || sort.iter().any(|by| by.key == key);
        let usage = args.usage || is_asked(row::RSS) || is_asked(row::DIRTY);
        if args.is_all() && usage {
            return Err(Failure::Unanswered(
                "--all has no rss_bytes and dirty_bytes: name or select the processes".to_owned(),
            ));
        }
        if args.is_all() && !args.addresses.is_empty() {
            return Err(Failure::Unanswered(
                "--all does not look for addresses: name or select the processes".to_owned(),
            ));
        }
        let for_programs = args.output.format() != Format::Table;
        let keys = chosen.keys(&row::usual_keys(args));
        let page_sizes = is_asked(row::PAGE_SIZE) || for_programs && keys.contains(&row::PAGE_SIZE);
        let mut wants = Wants::NAMES;
        wants.set(Wants::BUILD_IDS, args.build_id || is_asked(row::BUILD_ID));
        wants.set(Wants::USAGE, usage);
        // The text that has the usage has page sizes too; asking for them would only rule it out.
        wants.set(Wants::PAGE_SIZES, page_sizes && !usage);
        let mut filter = Filter::empty();
        filter.set(Filter::EXECUTABLE, args.exec);
        filter.set(Filter::FILE_BACKED, args.file);
        Ok(Request {
            chosen,
            sort,
            filter,
            wants,
        })
    }
}

impl Args {
    fn ask(&self, source: &MapsSource, request: &Request) -> Result<Answers, Failure> {
        let mut answers = Answers {
            lists: Vec::new(),
            counters: Vec::new(),
            outcome: Outcome::Complete,
        };
        if self.is_all() {
            ask_all(source, request, &mut answers)?;
        } else if self.named.is_empty() {
            self.ask_selected(source, request, &mut answers)?;
        } else {
            self.ask_each(source, request, &mut answers)?;
        }
        let mappings = answers.lists.iter().map(Mappings::len).sum::<usize>();
        answers.counters.insert(0, ("mappings", mappings as u64));
        Ok(answers)
    }

    /// Whether all processes are asked for, and no option selects some of them.
    fn is_all(&self) -> bool {
        self.all && !self.selection.is_given()
    }

    fn ask_each(&self, source: &MapsSource, request: &Request, answers: &mut Answers) -> Result<(), Failure> {
        for &pid in &self.named {
            match self.ask_one(pid, source, request, answers) {
                Ok(mappings) => answers.lists.push(mappings),
                Err(error) => match error.kind() {
                    ErrorKind::NoSuchTask => answers.lacks(&format!("pid {pid}: no such process")),
                    ErrorKind::Denied if matches!(source.via, Via::Kernel(_)) => {
                        answers.denied(format_args!("pid {pid}: you may not see its mappings"))
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
        source: &MapsSource,
        request: &Request,
        answers: &mut Answers,
    ) -> taskdiag::Result<Mappings> {
        let mut maps = source.open(pid)?;
        if self.addresses.is_empty() {
            return maps.list(request.filter, request.wants);
        }
        let found = maps.at_each(&self.addresses, request.wants)?;
        for (address, place) in self.addresses.iter().zip(&found.places) {
            if place.is_none() {
                answers.lacks(&format!("pid {pid}: nothing is mapped at {address:#x}"));
            }
        }
        Ok(found.mappings)
    }

    fn ask_selected(&self, source: &MapsSource, request: &Request, answers: &mut Answers) -> Result<(), Failure> {
        let query = self.selection.query(false)?.fields(Field::StartNs);
        let mut handle = self.from.tasks();
        let selected = listing::Answers::ask(&mut handle, &query)?;
        let outcome = selected
            .report(&[])
            .and(self.selection.check_cgroup(&handle, &selected));
        answers.outcome = answers.outcome.and(outcome);
        let (mut denied, mut gone, mut silent) = (0, 0, Vec::new());
        let mut found = Vec::new();
        for task in selected.tasks() {
            let Ok(identity) = task.identity() else {
                gone += 1;
                continue;
            };
            match self.ask_one(identity.tid(), source, request, answers) {
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
        // A process may have ended meanwhile, and its id be that of another one.
        let pids = found.iter().map(|(identity, _)| identity.tid());
        let still = handle.query(&Query::these(pids).fields(Field::StartNs))?;
        for (identity, mappings) in found {
            if still.tasks().any(|task| task.identity() == Ok(identity)) {
                answers.lists.push(mappings);
            } else {
                gone += 1;
            }
        }
        answers.left_out(denied, &silent);
        answers.counters = vec![("denied", denied), ("gone", gone), ("no_answer", silent.len() as u64)];
        Ok(())
    }
}

fn ask_all(source: &MapsSource, request: &Request, answers: &mut Answers) -> Result<(), Failure> {
    let all = source.machine().list(request.filter, request.wants)?;
    answers.left_out(all.denied, &all.silent);
    if all.malformed > 0 {
        answers.lacks(&format!(
            "{} answers of the kernel made no sense and were left out: please report this",
            all.malformed
        ));
    }
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

impl Answers {
    fn lacks(&mut self, message: &str) {
        say(message);
        self.outcome = Outcome::Partial;
    }

    fn denied(&mut self, message: fmt::Arguments<'_>) {
        self.outcome = self.outcome.and(say_denied(message));
    }

    /// Says how many processes may not be seen, and which do not answer.
    fn left_out(&mut self, denied: u64, silent: &[u32]) {
        match denied {
            0 => {}
            1 => self.denied(format_args!("1 process left out: you may not see its mappings")),
            count => self.denied(format_args!(
                "{count} processes left out: you may not see their mappings"
            )),
        }
        if !silent.is_empty() {
            self.lacks(&no_answer_from(silent));
        }
    }

    /// All mappings, each with its process.
    fn rows(&self) -> impl Iterator<Item = (u32, Mapping<'_>)> + '_ {
        self.lists.iter().flat_map(|list| {
            list.iter()
                .enumerate()
                .map(|(index, mapping)| (list.pid(index), mapping))
        })
    }

    /// Reports for how many mappings a name or build id could not be read.
    fn report_missing(&mut self) {
        let nameless = self.rows().filter(|(_, mapping)| mapping.name == Err(Absent::Denied));
        let nameless = nameless.count();
        if nameless > 0 {
            self.denied(format_args!("names: denied for {nameless} mappings"));
        }
        let count = |reason| {
            let is_missing = |(_, mapping): &(u32, Mapping<'_>)| mapping.build_id == Err(reason);
            self.rows().filter(is_missing).count()
        };
        let (denied, silent) = (count(Absent::Denied), count(Absent::NoAnswer));
        if denied > 0 {
            self.denied(format_args!("build ids: denied for {denied} mappings"));
        }
        if silent > 0 {
            self.lacks(&format!(
                "build ids: no answer for {silent} mappings (--patience waits longer)"
            ));
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let request = Request::new(&args)?;
    let source = args.from.source()?;
    let mut answers = args.ask(&source, &request)?;
    let limit = args.limit.unwrap_or(usize::MAX);
    let rows = answers.rows().map(|(pid, mapping)| Row::new(pid, mapping));
    if request.sort.is_empty() {
        write(&args, &source, &request, &answers, rows.take(limit))?;
    } else {
        let mut rows: Vec<Row<'_>> = rows.collect();
        rows.sort_by(|a, b| named::compare(&request.sort, a, b, row::found));
        write(&args, &source, &request, &answers, rows.into_iter().take(limit))?;
    }
    answers.report_missing();
    Ok(answers.outcome)
}

fn write<'a>(
    args: &Args,
    source: &MapsSource,
    request: &Request,
    answers: &Answers,
    rows: impl Iterator<Item = Row<'a>>,
) -> std::io::Result<()> {
    let Format::Machine(machine) = args.output.format() else {
        return write_table(args, &request.chosen, rows);
    };
    let name = answers.lists.first().map(|list| ("maps", source.name(list.source())));
    let head = Head::new("maps", name.into_iter().collect(), answers.counters.iter().copied());
    let keys = request.chosen.keys(&row::usual_keys(args));
    write_machine(machine, &head, &keys, rows, !args.output.no_header)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that addresses are decimal, or hexadecimal with 0x, and that a forgotten 0x is pointed
    /// out.
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
