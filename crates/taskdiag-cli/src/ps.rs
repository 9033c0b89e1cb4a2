//! `taskdiag ps`.

use clap::Args as ClapArgs;
use taskdiag::{Field, Fields, Query, Scope, Value};

use crate::listing::{Answers, Format, Listing, Machine, Options};
use crate::outcome::{Failure, Outcome};
use crate::output::cell::{Cells, Column, Show};
use crate::output::table::{terminal_width, Table};
use crate::output::{Absences, Output};
use crate::selection::{self, SortKey};

/// List processes or threads
///
/// Without -o, a table shows what ps users expect; JSON and CSV have the fields it is made of. With -o, only what is shown,
/// sorted by or filtered by is read from the kernel. In tables, control characters stand as escapes like \n and \x1b, a
/// missing value is a dash, and nothing is cut unless the table goes to a terminal. Scripts should use -o with --json,
/// --jsonl or --csv: the default columns may change.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag ps --sort -rss_bytes --limit 10\n  \
    taskdiag ps -u www-data -o pid,rss_bytes,cmdline\n  \
    taskdiag ps -p 1,$$ -o cred --json\n  \
    taskdiag ps -T -p 1234 -o tid,comm,utime_ns,stime_ns")]
pub struct Args {
    /// Only these processes
    #[arg(short = 'p', long = "pid", value_name = "PID,…", value_delimiter = ',')]
    pids: Vec<u32>,
    /// A row for each thread rather than for each process
    #[arg(short = 'T', long)]
    threads: bool,
    /// Only the children of this process
    #[arg(long, value_name = "PID", conflicts_with_all = ["pids", "threads"])]
    children: Option<u32>,
    /// Only tasks of these effective users, by name or number
    #[arg(short = 'u', long = "user", value_name = "USER,…", value_delimiter = ',')]
    users: Vec<String>,
    /// Sort by these fields; a minus in front puts the largest first. Tasks without a value come last [default: by id]
    #[arg(long, value_name = "[-]FIELD,…", allow_hyphen_values = true)]
    sort: Vec<String>,
    /// At most this many rows, after sorting
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    options: Options,
}

const fn label(heading: &'static str, show: Show) -> Column {
    Column { heading, show }
}

/// The table without `-o`.
const PROCESSES: [Column; 10] = [
    label("USER", Show::User),
    label("PID", Show::Field(Field::Pid)),
    label("PPID", Show::Field(Field::Ppid)),
    label("STATE", Show::Field(Field::State)),
    label("TTY", Show::Terminal),
    label("START", Show::Start),
    label("TIME", Show::Time),
    label("RSS", Show::Field(Field::RssBytes)),
    label("VSIZE", Show::Field(Field::VsizeBytes)),
    label("COMMAND", Show::Command),
];

/// The table of threads without `-o`.
const THREADS: [Column; 9] = [
    label("USER", Show::User),
    label("PID", Show::Field(Field::Pid)),
    label("TID", Show::Field(Field::Tid)),
    label("STATE", Show::Field(Field::State)),
    label("TTY", Show::Terminal),
    label("START", Show::Start),
    label("TIME", Show::Time),
    label("NAME", Show::Field(Field::Comm)),
    label("COMMAND", Show::Command),
];

/// The fields for programs without `-o`.
const PROCESS_FIELDS: [Field; 13] = [
    Field::Uid,
    Field::Euid,
    Field::Pid,
    Field::Ppid,
    Field::State,
    Field::TtyNr,
    Field::StartNs,
    Field::UtimeNs,
    Field::StimeNs,
    Field::RssBytes,
    Field::VsizeBytes,
    Field::Comm,
    Field::Cmdline,
];

/// The fields of threads for programs without `-o`.
const THREAD_FIELDS: [Field; 11] = [
    Field::Uid,
    Field::Euid,
    Field::Pid,
    Field::Tid,
    Field::State,
    Field::TtyNr,
    Field::StartNs,
    Field::UtimeNs,
    Field::StimeNs,
    Field::Comm,
    Field::Cmdline,
];

/// What is to be shown.
#[derive(Debug)]
enum Shown {
    Table(Vec<Column>),
    Machine(Machine, Vec<Field>),
}

impl Shown {
    fn new(options: &Options, threads: bool) -> Result<Shown, Failure> {
        let chosen = selection::fields(&options.fields)?;
        Ok(match options.format() {
            Format::Table if !chosen.is_empty() => Shown::Table(chosen.into_iter().map(Column::of).collect()),
            Format::Table if threads => Shown::Table(THREADS.to_vec()),
            Format::Table => Shown::Table(PROCESSES.to_vec()),
            Format::Machine(machine) if !chosen.is_empty() => Shown::Machine(machine, chosen),
            Format::Machine(machine) if threads => Shown::Machine(machine, THREAD_FIELDS.to_vec()),
            Format::Machine(machine) => Shown::Machine(machine, PROCESS_FIELDS.to_vec()),
        })
    }

    fn fields(&self) -> Fields {
        match self {
            Shown::Table(columns) => columns.iter().flat_map(Column::fields).copied().collect(),
            Shown::Machine(_, fields) => fields.iter().copied().collect(),
        }
    }
}

/// What the arguments mean.
#[derive(Debug)]
struct Request {
    query: Query,
    /// Ascending, each once. Empty: what the query's scope says.
    pids: Vec<u32>,
    users: Vec<u32>,
    sort: Vec<SortKey>,
    limit: usize,
    shown: Shown,
}

impl Request {
    fn new(args: &Args) -> Result<Request, Failure> {
        let shown = Shown::new(&args.options, args.threads)?;
        let sort = selection::sort_keys(&args.sort)?;
        let users = selection::users(&args.users)?;
        let mut fields = shown.fields();
        sort.iter().for_each(|key| fields.insert(key.field));
        if !users.is_empty() {
            fields.insert(Field::Euid);
        }
        let scope = match args.children {
            Some(pid) => Scope::ChildrenOf(pid),
            None if args.threads => Scope::Threads,
            None => Scope::Processes,
        };
        let mut pids = args.pids.clone();
        pids.sort_unstable();
        pids.dedup();
        Ok(Request {
            query: Query::new(scope).fields(fields),
            pids,
            users,
            sort,
            limit: args.limit.unwrap_or(usize::MAX),
            shown,
        })
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let request = Request::new(&args)?;
    let options = &args.options;
    let answers = match request.pids.is_empty() {
        true => Answers::ask(options.source, &request.query)?,
        false => Answers::ask_about(options.source, &request.query, &request.pids, args.threads)?,
    };

    let mut tasks = answers.tasks();
    // What is shown is counted while it is written; what is only sorted or filtered by, here.
    let shown_fields = request.shown.fields();
    let mut hidden = Absences::new();
    let considered = tasks.len();
    if !request.users.is_empty() {
        tasks.retain(|task| match task.value(Field::Euid) {
            Ok(Value::Unsigned(uid)) => request.users.iter().any(|&user| u64::from(user) == uid),
            _ => {
                let _ = hidden.value(task, Field::Euid);
                false
            }
        });
    }
    selection::sort(&mut tasks, &request.sort, &mut hidden, |field| {
        !shown_fields.contains(field)
    });
    tasks.truncate(request.limit);

    let mut missing = Absences::new();
    match &request.shown {
        Shown::Table(columns) => {
            let mut table = Table::new(columns.iter().map(Column::align), tasks.len());
            if !options.no_header {
                columns
                    .iter()
                    .for_each(|column| table.cell(|out| out.extend_from_slice(column.heading.as_bytes())));
            }
            let mut cells = Cells::new(options.bytes);
            for task in &tasks {
                for &column in columns {
                    table.cell(|out| cells.write(out, column, task, &mut missing));
                }
            }
            let mut output = Output::new();
            table.write(&mut output, terminal_width())?;
            output.finish()?;
        }
        Shown::Machine(machine, fields) => {
            let listing = Listing {
                fields,
                tasks: &tasks,
                depths: None,
                header: !options.no_header,
            };
            answers.write("ps", *machine, listing, &mut missing)?;
        }
    }
    if options.stats {
        answers.say_stats(tasks.len());
    }
    Ok(answers.report(&[(&hidden, considered), (&missing, tasks.len())]))
}
