//! `taskdiag mem`.

mod progress;
mod sums;
mod system;

use std::ffi::OsString;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use rustix::termios::{isatty, tcgetwinsize};
use taskdiag::{Absent, Budget, Field, Fields, Handle, Query, Task, Value};

use crate::cache::size::parse_size;
use crate::listing::{Answers, Format, Listing, Machine, Options};
use crate::outcome::{Failure, Outcome};
use crate::output::cell::{label, Cells, Column, Show, Unit};
use crate::output::named::{Cell, Head, Rows};
use crate::output::names::Names;
use crate::output::table::{terminal_width, Align, Table};
use crate::output::{text, Absences, Output};
use crate::selection::{self, SortKey};
use crate::watch;
use sums::{By, Name, Order, Sum};

/// Show what memory processes really cost: proportional (PSS) and unique (USS) sizes
///
/// RSS counts a page for every process that has it mapped; PSS divides it among them, so that the sizes of all processes add up;
/// USS is what nobody else has. The kernel walks a process's page tables for these, which takes longer the more memory it has:
/// the cheapest processes come first, and what does not fit into --deadline, or is larger than --max-rss, is left out and said.
/// All sizes of a row are of that walk: SWAP and RSS are the fields rollup_swap_bytes and rollup_rss_bytes. Sums say how many
/// processes are in them if that is not all. Kernel threads and zombies have no memory and are not listed.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag mem --limit 10\n  \
    taskdiag mem --by program --unit M\n  \
    taskdiag mem -u www-data --total --json\n  \
    taskdiag mem --watch 2 --limit 20\n  \
    taskdiag mem --system")]
pub struct Args {
    /// Only these processes
    #[arg(short = 'p', long = "pid", value_name = "PID,…", value_delimiter = ',')]
    pids: Vec<u32>,
    /// Only processes of these effective users, by name or number
    #[arg(short = 'u', long = "user", value_name = "USER,…", value_delimiter = ',')]
    users: Vec<String>,
    /// Only processes in this cgroup of the unified hierarchy or one below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<OsString>,
    /// Only processes that this is true of: see `taskdiag ps`
    #[arg(long = "where", value_name = "EXPR")]
    filter: Option<String>,
    /// A row for each program, user or cgroup rather than for each process
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "total")]
    by: Option<By>,
    /// Only what all add up to
    #[arg(long, conflicts_with_all = ["sort", "limit"])]
    total: bool,
    /// How the processes, the page cache and the kernel add up to the machine's memory, and what remains unexplained
    #[arg(long, conflicts_with_all = ["pids", "users", "cgroup", "filter", "by", "total", "limit", "watch"])]
    system: bool,
    /// Sort by these fields; a minus in front puts the largest first [default: -pss_bytes]
    #[arg(long, value_name = "[-]FIELD,…", allow_hyphen_values = true)]
    sort: Vec<String>,
    /// At most this many rows, after sorting
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Leave out what has not been read after so many seconds, or `none`
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    deadline: String,
    /// Leave out processes with more resident memory, or `none`
    #[arg(long, value_name = "SIZE", default_value = "16G")]
    max_rss: String,
    /// When watching: read a process without any sign of change again after so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    max_age: String,
    /// Show it again every so many seconds
    #[arg(long, value_name = "SECONDS")]
    watch: Option<f64>,
    /// End watching after so many samples
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,
    /// The unit of sizes in tables [default: whichever fits]
    #[arg(long, value_enum, conflicts_with = "bytes", help_heading = "Output")]
    unit: Option<Unit>,
    #[command(flatten)]
    options: Options,
}

impl Args {
    fn budget(&self) -> Result<Budget, Failure> {
        let max_rss = match self.max_rss.as_str() {
            "none" => None,
            size => {
                Some(parse_size(size).map_err(|error| Failure::Unanswered(format!("--max-rss: {error}, or none")))?)
            }
        };
        Ok(Budget {
            deadline: match self.deadline.as_str() {
                "none" => None,
                text => Some(seconds("--deadline", text, ", or none")?),
            },
            max_rss_bytes: max_rss,
            max_age: seconds("--max-age", &self.max_age, "")?,
        })
    }

    fn query(&self) -> Result<Query, Failure> {
        let query = match self.pids.as_slice() {
            [] => Query::processes(),
            pids => Query::these(pids.iter().copied()),
        };
        let query = selection::narrow(query, &self.users, self.cgroup.as_deref(), self.filter.as_deref())?;
        Ok(query.budget(self.budget()?))
    }

    fn cells(&self) -> Cells {
        Cells::new(self.options.bytes, self.options.names).in_unit(self.unit)
    }
}

fn seconds(option: &str, text: &str, or: &str) -> Result<Duration, Failure> {
    let parsed = text
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    parsed.ok_or_else(|| Failure::Unanswered(format!("{option} {text:?}: a number of seconds, like 0.5{or}")))
}

/// The table without `-o`.
const COLUMNS: [Column; 7] = [
    label("PID", Show::Field(Field::Pid)),
    label("USER", Show::User),
    label("SWAP", Show::Field(Field::RollupSwapBytes)),
    label("USS", Show::Field(Field::UssBytes)),
    label("PSS", Show::Field(Field::PssBytes)),
    label("RSS", Show::Field(Field::RollupRssBytes)),
    label("COMMAND", Show::Command),
];

/// In the table of `--watch`, before the command.
const AGE: Column = label("AGE", Show::Field(Field::RollupAgeNs));

/// The fields for programs without `-o`.
const USUAL_FIELDS: [Field; 9] = [
    Field::Pid,
    Field::Euid,
    Field::RollupSwapBytes,
    Field::UssBytes,
    Field::PssBytes,
    Field::RollupRssBytes,
    Field::RollupAgeNs,
    Field::Comm,
    Field::Cmdline,
];

/// What rows there are.
enum Rowed {
    /// Processes: columns of a table, or fields for programs.
    Processes {
        columns: Vec<Column>,
        fields: Vec<Field>,
        sort: Vec<SortKey>,
    },
    Sums(By, Vec<Order>),
    Total,
}

impl Rowed {
    fn new(args: &Args) -> Result<Rowed, Failure> {
        let chosen = selection::fields(&args.options.fields)?;
        if !chosen.is_empty() && (args.total || args.by.is_some()) {
            return Err(Failure::Unanswered(
                "-o chooses fields of processes: sums always have the same".to_owned(),
            ));
        }
        if args.total {
            return Ok(Rowed::Total);
        }
        if let Some(by) = args.by {
            return Ok(Rowed::Sums(by, Order::parse(&args.sort, by)?));
        }
        let sort = match args.sort.as_slice() {
            [] => vec![SortKey {
                field: Field::PssBytes,
                descending: true,
            }],
            lists => selection::sort_keys(lists)?,
        };
        let mut columns = COLUMNS.to_vec();
        if args.watch.is_some() {
            columns.insert(columns.len() - 1, AGE);
        }
        Ok(if chosen.is_empty() {
            Rowed::Processes {
                columns,
                fields: USUAL_FIELDS.to_vec(),
                sort,
            }
        } else {
            Rowed::Processes {
                columns: chosen.iter().copied().map(Column::of).collect(),
                fields: chosen,
                sort,
            }
        })
    }

    /// What has to be asked for, in this format.
    fn fields(&self, format: Format) -> Fields {
        let mut asked: Fields = sums::FIELDS.into_iter().collect();
        match self {
            Rowed::Processes { columns, fields, sort } => {
                match format {
                    Format::Table => asked |= columns.iter().flat_map(Column::fields).copied().collect::<Fields>(),
                    Format::Machine(_) => asked |= fields.iter().copied().collect::<Fields>(),
                }
                asked |= sort.iter().map(|key| key.field).collect::<Fields>();
            }
            Rowed::Sums(by, _) => asked |= by.fields().iter().copied().collect::<Fields>(),
            Rowed::Total => {}
        }
        asked
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    if args.system {
        return system::run(&args);
    }
    let rowed = Rowed::new(&args)?;
    let format = args.options.format();
    let query = args.query()?.fields(rowed.fields(format));
    let mut report = Report {
        args: &args,
        rowed,
        cells: args.cells(),
        names: Names::default(),
    };
    let Some(interval) = args.watch else {
        let mut handle = args.options.from.handle();
        return report.sample(&mut handle, &query, None);
    };
    let interval = watch::duration(interval)?;
    if format == Format::Machine(Machine::Json) {
        return Err(Failure::Unanswered(
            "watching has no end, and so makes no JSON document: use --jsonl".to_owned(),
        ));
    }
    let mut handle = args.options.from.handle_for_many();
    let mut outcome = Outcome::Complete;
    let mut next = Instant::now();
    for sample in 0..args.count.unwrap_or(u64::MAX) {
        sleep(next.saturating_duration_since(Instant::now()));
        next = (next + interval).max(Instant::now());
        if report.sample(&mut handle, &query, Some(sample))? == Outcome::Partial {
            outcome = Outcome::Partial;
        }
    }
    Ok(outcome)
}

/// Writes samples.
struct Report<'a> {
    args: &'a Args,
    rowed: Rowed,
    cells: Cells,
    names: Names,
}

impl Report<'_> {
    /// Asks once, and writes the answer.
    fn sample(&mut self, handle: &mut Handle, query: &Query, sample: Option<u64>) -> Result<Outcome, Failure> {
        let shown = progress::ProgressLine::begin(handle.progress());
        let answers = Answers::ask(handle, query)?;
        drop(shown);
        let mut tasks = answers.tasks();
        // Those that were asked for by number are shown whatever they are.
        if self.args.pids.is_empty() {
            tasks.retain(sums::has_memory);
        }
        let mut total = Sum::default();
        tasks.iter().for_each(|task| total.add(task));
        let mut missing = Absences::new();
        for task in &tasks {
            // What is not shown may be missing from the sums.
            for field in sums::FIELDS {
                let _ = missing.value(task, field);
            }
        }
        let count = tasks.len();
        match self.args.options.format() {
            Format::Table => self.table(&mut tasks, &total, sample, &mut missing)?,
            Format::Machine(machine) => self.machine(machine, &answers, &mut tasks, &total, sample, &mut missing)?,
        }
        if self.args.options.stats {
            answers.say_stats(count);
        }
        // In every sample it would be no news.
        if sample.is_some_and(|sample| sample > 0) {
            return Ok(Outcome::Complete);
        }
        let cgroup = selection::check_cgroup(handle, self.args.cgroup.as_deref(), &answers);
        Ok(answers.report(&[(&missing, count)]).and(cgroup))
    }

    fn limit(&self) -> usize {
        self.args.limit.unwrap_or(usize::MAX)
    }

    fn table(
        &mut self,
        tasks: &mut Vec<Task<'_>>,
        total: &Sum,
        sample: Option<u64>,
        missing: &mut Absences,
    ) -> Result<(), Failure> {
        let mut output = Output::new();
        let stdout = rustix::stdio::stdout();
        let mut limit = self.limit();
        match sample {
            Some(_) if isatty(stdout) => {
                let height = tcgetwinsize(stdout).map_or(24, |size| usize::from(size.ws_row));
                limit = limit.min(height.saturating_sub(4));
                output.buffer().extend_from_slice(b"\x1b[H\x1b[2J");
            }
            Some(1..) => output.buffer().push(b'\n'),
            _ => {}
        }
        let header = !self.args.options.no_header;
        match &self.rowed {
            Rowed::Processes { columns, sort, .. } => {
                // What is shown is counted already, or will be.
                selection::sort(tasks, sort, missing, |_| false);
                tasks.truncate(limit);
                let mut table = Column::table(columns, tasks.len() + 1, header);
                let mut shown = Absences::new();
                for task in &*tasks {
                    for &column in columns {
                        let is_counted = matches!(column.show, Show::Field(field) if sums::FIELDS.contains(&field));
                        let absences = if is_counted { &mut shown } else { &mut *missing };
                        table.cell(|out| match column {
                            Column {
                                show: Show::Field(Field::RollupAgeNs),
                                ..
                            } if !self.args.options.bytes => age(out, task),
                            _ => self.cells.write(out, column, task, absences),
                        });
                    }
                }
                self.total_row(&mut table, columns, total);
                table.write(&mut output, terminal_width())?;
            }
            Rowed::Sums(by, orders) => {
                let mut sums = sums::sums(tasks, *by);
                sums::sort(&mut sums, orders);
                sums.truncate(limit);
                let mut table = sum_table(header, by.heading());
                for (name, sum) in &sums {
                    sum_cells(&self.cells, &mut table, sum);
                    table.cell(|out| match name {
                        Name::User(uid) => text::escape(out, self.names.user(*uid)),
                        Name::Text(name) if name.is_empty() => out.extend_from_slice(b"\"\""),
                        Name::Text(name) => text::escape(out, name),
                        Name::None(_) => out.push(b'-'),
                    });
                }
                sum_cells(&self.cells, &mut table, total);
                table.cell(|out| out.extend_from_slice(b"total"));
                table.write(&mut output, terminal_width())?;
            }
            Rowed::Total => {
                let mut table = sum_table(header, "");
                sum_cells(&self.cells, &mut table, total);
                table.cell(|out| out.extend_from_slice(b"total"));
                table.write(&mut output, terminal_width())?;
            }
        }
        Ok(output.finish()?)
    }

    /// The last row of a table of processes.
    fn total_row(&self, table: &mut Table, columns: &[Column], total: &Sum) {
        for (index, column) in columns.iter().enumerate() {
            let place = |field| sums::FIELDS.iter().position(|&summed| summed == field);
            let bytes = match column.show {
                Show::Field(field) => place(field).map(|index| total.bytes()[index]),
                _ => None,
            };
            table.cell(|out| match (bytes, column.show) {
                (Some(bytes), _) => sum_cell(&self.cells, out, bytes),
                (None, Show::Command) => {
                    out.extend_from_slice(format!("total of {} processes", total.count()).as_bytes());
                }
                (None, _) if index == 0 => out.extend_from_slice(b"total"),
                _ => {}
            });
        }
    }

    fn machine(
        &mut self,
        machine: Machine,
        answers: &Answers,
        tasks: &mut Vec<Task<'_>>,
        total: &Sum,
        sample: Option<u64>,
        missing: &mut Absences,
    ) -> Result<(), Failure> {
        let header = !self.args.options.no_header && sample.unwrap_or(0) == 0;
        let limit = self.limit();
        let head = Head {
            command: "mem",
            sources: answers.sources().collect(),
            counters: answers.snapshot().counters().named().to_vec(),
        };
        let sample_key = sample.map(|_| "sample");
        let sample_cell = || sample.map(|sample| Ok(Value::Unsigned(sample)));
        let keys = |first: &[&'static str]| -> Vec<&'static str> {
            let first = sample_key.into_iter().chain(first.iter().copied());
            first.chain(Sum::keys()).collect()
        };
        let (total_keys, total_cells) = (Sum::keys(), total.cells());
        let total_row = Some((&total_keys[..], &total_cells[..]));
        match &self.rowed {
            Rowed::Processes { fields, sort, .. } => {
                selection::sort(tasks, sort, missing, |_| false);
                tasks.truncate(limit);
                let listing = Listing {
                    fields,
                    tasks,
                    depths: None,
                    sample,
                    total: total_row,
                    header,
                    names: self.args.options.names,
                };
                // Counted for all processes already, of which these may be a part.
                let mut shown = Absences::new();
                answers.write("mem", machine, listing, &mut shown)?;
                missing.add_others(&shown, &sums::FIELDS);
            }
            Rowed::Sums(by, orders) => {
                let mut sums = sums::sums(tasks, *by);
                sums::sort(&mut sums, orders);
                sums.truncate(limit);
                let first: &[&'static str] = match by {
                    By::User => &["euid", "user"],
                    By::Program => &["program"],
                    By::Cgroup => &["cgroup"],
                };
                let mut rows = Rows::begin(machine, &head, keys(first), header);
                for (name, sum) in &sums {
                    let user = match name {
                        Name::User(uid) => self.names.user(*uid).to_vec(),
                        _ => Vec::new(),
                    };
                    let mut cells: Vec<Cell<'_>> = sample_cell().into_iter().collect();
                    match name {
                        Name::User(uid) => {
                            cells.extend([Ok(Value::Unsigned((*uid).into())), Ok(Value::Text(&user))]);
                        }
                        Name::Text(name) => cells.push(Ok(Value::Text(name))),
                        Name::None(reason) => cells.extend(first.iter().map(|_| Err(reason.as_str()))),
                    }
                    cells.extend(sum.cells());
                    rows.row(&cells)?;
                }
                rows.finish_with(total_row)?;
            }
            Rowed::Total => {
                let mut rows = Rows::begin(machine, &head, keys(&[]), header);
                let cells: Vec<Cell<'_>> = sample_cell().into_iter().chain(total_cells).collect();
                rows.row(&cells)?;
                rows.finish()?;
            }
        }
        Ok(())
    }
}

/// Appends how old the values of a process are, in seconds.
fn age(out: &mut Vec<u8>, task: &Task<'_>) {
    match task.rollup_age_ns() {
        Ok(ns) => out.extend_from_slice(format!("{:.1}s", ns as f64 / 1e9).as_bytes()),
        Err(_) => out.push(b'-'),
    }
}

fn sum_table(header: bool, heading: &str) -> Table {
    let headings = ["COUNT", "SWAP", "USS", "PSS", "RSS"];
    let aligns = headings.iter().map(|_| Align::Right).chain([Align::Left]);
    let mut table = Table::new(aligns, 32);
    if header {
        for heading in headings.into_iter().chain([heading]) {
            table.cell(|out| out.extend_from_slice(heading.as_bytes()));
        }
    }
    table
}

fn sum_cells(cells: &Cells, table: &mut Table, sum: &Sum) {
    table.cell(|out| out.extend_from_slice(sum.count().as_bytes()));
    for bytes in sum.bytes() {
        table.cell(|out| sum_cell(cells, out, bytes));
    }
}

fn sum_cell(cells: &Cells, out: &mut Vec<u8>, bytes: Result<u64, Absent>) {
    match bytes {
        Ok(bytes) => cells.size(out, bytes),
        Err(_) => out.push(b'-'),
    }
}
