//! `taskdiag maps`.

use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args as ClapArgs, ValueEnum};
use taskdiag::maps::{Broker, BuildId, Filter, Known, Machine, Mapping, Mappings, Maps, Source, Wants};
use taskdiag::{Absent, ErrorKind, Value};

use crate::library::{BrokerOptions, Patience};
use crate::listing::{Format, Formats};
use crate::outcome::{no_answer_from, say, who_may, Failure, Outcome};
use crate::output::named::{Cell, Head, Rows};
use crate::output::table::{terminal_width, Align, Table};
use crate::output::{cell, people, text, Output};

/// List the memory mappings of processes: addresses, permissions, files
///
/// The kernel's names are shown as they are: a path, with " (deleted)" behind it if it is gone, or a word in brackets. In tables,
/// control characters stand as escapes. Seeing another user's mappings takes root.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag maps $$\n  \
    taskdiag maps --exec --build-id --json 1234\n  \
    taskdiag maps --addr 0x7f0dcafe0000 1234\n  \
    taskdiag maps -x 1234\n  \
    taskdiag maps --all --exec --jsonl")]
pub struct Args {
    /// The processes
    #[arg(value_name = "PID", required_unless_present = "all")]
    pids: Vec<u32>,
    /// All processes
    #[arg(long, conflicts_with_all = ["pids", "addresses", "usage"])]
    all: bool,
    /// Only what can be executed
    #[arg(long)]
    exec: bool,
    /// Only what is of a file
    #[arg(long)]
    file: bool,
    /// Only what covers this address, decimal or hexadecimal with 0x; may be said several times
    #[arg(long = "addr", value_name = "ADDR", value_parser = address, conflicts_with_all = ["exec", "file"])]
    addresses: Vec<u64>,
    /// Show build ids
    #[arg(long)]
    build_id: bool,
    /// Show resident and dirty sizes, for which the kernel looks at every page
    #[arg(short = 'x', long)]
    usage: bool,
    #[command(flatten)]
    from: SourceOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Options that are about who answers.
#[derive(Clone, Debug, ClapArgs)]
pub struct SourceOptions {
    /// What is to answer
    #[arg(
        long,
        value_enum,
        default_value_t,
        default_value_if("socket", ArgPredicate::IsPresent, "broker")
    )]
    source: Choice,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    broker: BrokerOptions,
}

/// Options that are about output alone.
#[derive(Clone, Copy, Debug, ClapArgs)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    #[command(flatten)]
    pub formats: Formats,
    /// Exact numbers in tables
    #[arg(long)]
    pub bytes: bool,
    /// No header above tables and CSV
    #[arg(long)]
    pub no_header: bool,
}

/// What `--source` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// Whatever answers best on this host
    #[default]
    Auto,
    /// The PROCMAP_QUERY ioctl, or fail
    Procmap,
    /// BPF, or fail
    Bpf,
    /// The files of /proc
    Procfs,
    /// The broker, taskdiagd, opens the files
    Broker,
}

/// Who is asked, and how long that may take.
pub struct Asked {
    whom: Whom,
    patience: Duration,
}

enum Whom {
    /// The kernel, by a source if only that one may answer.
    Kernel(Option<Source>),
    /// The kernel, by files that the broker opens.
    Broker(Broker),
}

impl SourceOptions {
    /// Who is to be asked.
    pub fn asked(&self) -> taskdiag::Result<Asked> {
        let whom = match self.source {
            Choice::Auto => Whom::Kernel(None),
            Choice::Procmap => Whom::Kernel(Some(Source::Procmap)),
            Choice::Bpf => Whom::Kernel(Some(Source::Bpf)),
            Choice::Procfs => Whom::Kernel(Some(Source::Procfs)),
            Choice::Broker => Whom::Broker(Broker::connect(self.broker.socket.as_deref())?),
        };
        Ok(Asked {
            whom,
            patience: self.patience.patience,
        })
    }
}

impl Asked {
    /// A handle on the mappings of a process.
    pub fn open(&self, pid: u32) -> taskdiag::Result<Maps> {
        match &self.whom {
            Whom::Kernel(None) => Maps::open_within(pid, self.patience),
            Whom::Kernel(Some(source)) => Ok(Maps::open_within(pid, self.patience)?.with_source(*source)),
            Whom::Broker(broker) => Ok(broker.open(pid)?.with_patience(self.patience)),
        }
    }

    /// A handle on the mappings of all processes.
    fn machine(&self) -> Machine {
        let machine = Machine::new().with_patience(self.patience);
        match &self.whom {
            Whom::Kernel(None) => machine,
            Whom::Kernel(Some(source)) => machine.with_source(*source),
            Whom::Broker(broker) => machine.with_broker(broker.clone()),
        }
    }

    /// Who answered, where the kernel did so by `source`.
    pub fn name(&self, source: Source) -> &'static str {
        match self.whom {
            Whom::Kernel(_) => source.name(),
            Whom::Broker(_) => "broker",
        }
    }
}

/// An address: decimal, or hexadecimal with `0x`.
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

/// What was answered, and what was not.
struct Answers {
    lists: Vec<Mappings>,
    counters: Vec<(&'static str, u64)>,
    outcome: Outcome,
}

impl Args {
    fn filter(&self) -> Filter {
        let mut filter = Filter::empty();
        filter.set(Filter::EXECUTABLE, self.exec);
        filter.set(Filter::FILE_BACKED, self.file);
        filter
    }

    fn wants(&self) -> Wants {
        let mut wants = Wants::NAMES;
        wants.set(Wants::BUILD_IDS, self.build_id);
        wants.set(Wants::USAGE, self.usage);
        // Tables do not show them. What has to be read as text for another reason has none.
        let shows_page_sizes = self.output.formats.format() != Format::Table && !self.usage;
        wants.set(Wants::PAGE_SIZES, shows_page_sizes);
        wants
    }

    fn ask(&self, asked: &Asked) -> Result<Answers, Failure> {
        let mut answers = Answers {
            lists: Vec::new(),
            counters: Vec::new(),
            outcome: Outcome::Complete,
        };
        if self.all {
            self.ask_all(asked, &mut answers)?;
        } else {
            self.ask_each(asked, &mut answers)?;
        }
        let mappings = answers.lists.iter().map(Mappings::len).sum::<usize>();
        answers.counters.insert(0, ("mappings", mappings as u64));
        Ok(answers)
    }

    fn ask_all(&self, asked: &Asked, answers: &mut Answers) -> Result<(), Failure> {
        let all = asked.machine().list(self.filter(), self.wants())?;
        match all.denied {
            0 => {}
            1 => answers.lacks(&format!(
                "1 process left out: you may not see its mappings ({})",
                who_may()
            )),
            count => answers.lacks(&format!(
                "{count} processes left out: you may not see their mappings ({})",
                who_may()
            )),
        }
        if all.malformed > 0 {
            answers.lacks(&format!(
                "{} answers of the kernel made no sense and were left out: please report this",
                all.malformed
            ));
        }
        if !all.silent.is_empty() {
            answers.lacks(&no_answer_from(&all.silent));
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

    fn ask_each(&self, asked: &Asked, answers: &mut Answers) -> Result<(), Failure> {
        for &pid in &self.pids {
            let result = asked.open(pid).and_then(|mut maps| {
                if self.addresses.is_empty() {
                    maps.list(self.filter(), self.wants())
                } else {
                    let found = maps.at_each(&self.addresses, self.wants())?;
                    for (address, place) in self.addresses.iter().zip(&found.places) {
                        if place.is_none() {
                            answers.lacks(&format!("pid {pid}: nothing is mapped at {address:#x}"));
                        }
                    }
                    Ok(found.mappings)
                }
            });
            match result {
                Ok(mappings) => answers.lists.push(mappings),
                Err(error) => match error.kind() {
                    ErrorKind::NoSuchTask => answers.lacks(&format!("pid {pid}: no such process")),
                    ErrorKind::NoMemory | ErrorKind::Denied | ErrorKind::NoAnswer => answers.lacks(&error.to_string()),
                    _ => return Err(error.into()),
                },
            }
        }
        Ok(())
    }
}

impl Answers {
    fn lacks(&mut self, message: &str) {
        say(message);
        self.outcome = Outcome::Partial;
    }

    /// All mappings, each with its process.
    fn rows(&self) -> impl Iterator<Item = (u32, Mapping<'_>)> + '_ {
        self.lists.iter().flat_map(|list| {
            list.iter()
                .enumerate()
                .map(|(index, mapping)| (list.pid(index), mapping))
        })
    }

    /// Says for how many mappings a name or build id could not be read.
    fn report_missing(&mut self) {
        let nameless = self.rows().filter(|(_, mapping)| mapping.name == Err(Absent::Denied));
        let nameless = nameless.count();
        if nameless > 0 {
            self.lacks(&format!("names: denied for {nameless} mappings ({})", who_may()));
        }
        let count = |reason| {
            let is_missing = |(_, mapping): &(u32, Mapping<'_>)| mapping.build_id == Err(reason);
            self.rows().filter(is_missing).count()
        };
        let (denied, silent) = (count(Absent::Denied), count(Absent::NoAnswer));
        if denied > 0 {
            self.lacks(&format!("build ids: denied for {denied} mappings ({})", who_may()));
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
    let asked = args.from.asked()?;
    let mut answers = args.ask(&asked)?;
    match args.output.formats.format() {
        Format::Table => write_table(&args, &answers)?,
        Format::Machine(machine) => {
            let head = Head {
                command: "maps",
                sources: answers
                    .lists
                    .first()
                    .map(|list| ("maps", asked.name(list.source())))
                    .into_iter()
                    .collect(),
                counters: answers.counters.clone(),
            };
            let columns = columns(&args);
            let keys = columns.iter().map(|column| column.key).collect();
            let mut rows = Rows::begin(machine, &head, keys, !args.output.no_header);
            let mut texts = Texts::default();
            for (pid, mapping) in answers.rows() {
                texts.fill(&mapping);
                let cells: Vec<Cell<'_>> = columns
                    .iter()
                    .map(|column| (column.cell)(pid, &mapping, &texts))
                    .collect();
                rows.row(&cells)?;
            }
            rows.finish()?;
        }
    }
    answers.report_missing();
    Ok(answers.outcome)
}

/// Values that have to be written out before a cell can borrow them.
#[derive(Debug, Default)]
struct Texts {
    perms: String,
    build_id: String,
}

impl Texts {
    fn fill(&mut self, mapping: &Mapping<'_>) {
        self.perms = mapping.perms.to_string();
        self.build_id = match mapping.build_id {
            Ok(Some(id)) => id.to_string(),
            _ => String::new(),
        };
    }
}

/// A column for programs.
struct MapKey {
    key: &'static str,
    cell: for<'a> fn(u32, &Mapping<'a>, &'a Texts) -> Cell<'a>,
}

fn known<'a>(value: Known<u64>) -> Cell<'a> {
    value.map(Value::Unsigned).map_err(Absent::as_str)
}

/// A build id as text, `written` being it written out.
pub fn build_id_cell(id: Known<Option<BuildId>>, written: &str) -> Cell<'_> {
    match id {
        Ok(Some(_)) => Ok(Value::Text(written.as_bytes())),
        Ok(None) => Err("none"),
        Err(reason) => Err(reason.as_str()),
    }
}

/// The columns for programs, in order.
fn columns(args: &Args) -> Vec<MapKey> {
    let column = |key, cell| MapKey { key, cell };
    let mut columns = vec![
        column("pid", |pid, _, _| Ok(Value::Unsigned(pid.into()))),
        column("start", |_, mapping, _| Ok(Value::Mask(mapping.start))),
        column("end", |_, mapping, _| Ok(Value::Mask(mapping.end))),
        column("perms", |_, _, texts| Ok(Value::Text(texts.perms.as_bytes()))),
        column("offset_bytes", |_, mapping, _| {
            Ok(Value::Unsigned(mapping.offset_bytes))
        }),
        column("dev_major", |_, mapping, _| {
            Ok(Value::Unsigned(mapping.device.major.into()))
        }),
        column("dev_minor", |_, mapping, _| {
            Ok(Value::Unsigned(mapping.device.minor.into()))
        }),
        column("inode", |_, mapping, _| Ok(Value::Unsigned(mapping.inode))),
        column("name", |_, mapping, _| {
            mapping.name.map(Value::Text).map_err(Absent::as_str)
        }),
    ];
    if args.build_id {
        columns.push(column("build_id", |_, mapping, texts| {
            build_id_cell(mapping.build_id, &texts.build_id)
        }));
    }
    columns.push(column("page_size_bytes", |_, mapping, _| {
        known(mapping.page_size_bytes)
    }));
    if args.usage {
        columns.push(column("rss_bytes", |_, mapping, _| {
            known(mapping.usage.map(|usage| usage.rss_bytes))
        }));
        columns.push(column("dirty_bytes", |_, mapping, _| {
            known(mapping.usage.map(|usage| usage.dirty_bytes))
        }));
    }
    columns
}

/// The table for people.
fn write_table(args: &Args, answers: &Answers) -> std::io::Result<()> {
    let mut headings = Vec::new();
    if args.all || args.pids.len() > 1 {
        headings.push(("PID", Align::Right));
    }
    headings.extend([("START", Align::Right), ("END", Align::Right), ("SIZE", Align::Right)]);
    if args.usage {
        headings.extend([("RSS", Align::Right), ("DIRTY", Align::Right)]);
    }
    headings.extend([
        ("PERMS", Align::Left),
        ("OFFSET", Align::Right),
        ("DEV", Align::Right),
        ("INODE", Align::Right),
    ]);
    if args.build_id {
        headings.push(("BUILD-ID", Align::Left));
    }
    headings.push(("NAME", Align::Left));

    let has_pid = headings[0].0 == "PID";
    let mut table = Table::new(headings.iter().map(|(_, align)| *align), 0);
    if !args.output.no_header {
        for (heading, _) in &headings {
            table.cell(|out| out.extend_from_slice(heading.as_bytes()));
        }
    }
    let size = |out: &mut Vec<u8>, bytes: u64| {
        if args.output.bytes {
            people::number(out, bytes)
        } else {
            people::size(out, bytes)
        }
    };
    for (pid, mapping) in answers.rows() {
        if has_pid {
            table.cell(|out| people::number(out, pid));
        }
        for address in [mapping.start, mapping.end] {
            table.cell(|out| cell::formatted(out, format_args!("{address:#x}")));
        }
        table.cell(|out| size(out, mapping.end - mapping.start));
        if args.usage {
            for bytes in [
                mapping.usage.map(|usage| usage.rss_bytes),
                mapping.usage.map(|usage| usage.dirty_bytes),
            ] {
                table.cell(|out| match bytes {
                    Ok(bytes) => size(out, bytes),
                    Err(_) => out.push(b'-'),
                });
            }
        }
        table.cell(|out| cell::formatted(out, format_args!("{}", mapping.perms)));
        table.cell(|out| cell::formatted(out, format_args!("{:#x}", mapping.offset_bytes)));
        let device = mapping.device;
        table.cell(|out| cell::formatted(out, format_args!("{}:{}", device.major, device.minor)));
        table.cell(|out| people::number(out, mapping.inode));
        if args.build_id {
            table.cell(|out| match mapping.build_id {
                Ok(Some(id)) => cell::formatted(out, format_args!("{id}")),
                _ => out.push(b'-'),
            });
        }
        table.cell(|out| match mapping.name {
            Ok(name) => text::escape(out, name),
            Err(_) => out.push(b'-'),
        });
    }
    let mut output = Output::new();
    table.write(&mut output, terminal_width())?;
    output.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that addresses are decimal, or hexadecimal with a mark, and that a forgotten mark is pointed out.
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
