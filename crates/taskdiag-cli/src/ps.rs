//! `taskdiag ps`.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use taskdiag::{Field, Fields, Handle, Query};

use crate::listing::{Answers, Format, Listing, Machine, Options};
use crate::outcome::{Failure, Outcome};
use crate::output::cell::{label, Cells, Column, Show};
use crate::output::table::terminal_width;
use crate::output::{Absences, Output};
use crate::selection::{self, SortKey};
use crate::watch;

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
    taskdiag ps --where \"uid == 0 and not kernel_thread and comm ~ '^ssh'\"\n  \
    taskdiag ps -T -p 1234 -o tid,comm,utime_ns,stime_ns")]
pub struct Args {
    /// Only these processes
    #[arg(short = 'p', long = "pid", value_name = "PID,…", value_delimiter = ',')]
    pids: Vec<u32>,
    /// A row for each thread rather than for each process
    #[arg(short = 'T', long)]
    pub threads: bool,
    /// Only the children of this process
    #[arg(long, value_name = "PID", conflicts_with_all = ["pids", "threads"])]
    children: Option<u32>,
    /// Only what descends from this process: its children, their children, and so on
    #[arg(long, value_name = "PID", conflicts_with_all = ["pids", "threads", "children"])]
    descendants: Option<u32>,
    /// Only tasks of these effective users, by name or number
    #[arg(short = 'u', long = "user", value_name = "USER,…", value_delimiter = ',')]
    users: Vec<String>,
    /// Only tasks in this cgroup of the unified hierarchy or one below it: a path as the field cgroup has it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<OsString>,
    /// Only tasks that this is true of: == != < <= > >= ~ (regular expression) ~* (glob), and, or, not, ( ), text in quotes.
    /// A comparison with a missing value is neither true nor false
    #[arg(long = "where", value_name = "EXPR")]
    filter: Option<String>,
    /// Say on standard error who read what, and which part of the filter was decided where
    #[arg(long)]
    explain: bool,
    /// Sort by these fields; a minus in front puts the largest first. Tasks without a value come last [default: by id; the
    /// busiest first when watching]
    #[arg(long, value_name = "[-]FIELD,…", allow_hyphen_values = true)]
    pub sort: Vec<String>,
    /// At most this many rows, after sorting
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Show those that do something every so many seconds, with what they do: see `taskdiag watch`
    #[arg(long, value_name = "SECONDS")]
    pub watch: Option<f64>,
    /// When watching: end after so many samples
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    #[command(flatten)]
    pub options: Options,
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
enum TaskLayout {
    Table(Vec<Column>),
    Machine(Machine, Vec<Field>),
}

impl TaskLayout {
    fn new(options: &Options, threads: bool) -> Result<TaskLayout, Failure> {
        let chosen = selection::fields(&options.fields)?;
        Ok(match options.format() {
            Format::Table if !chosen.is_empty() => TaskLayout::Table(chosen.into_iter().map(Column::of).collect()),
            Format::Table if threads => TaskLayout::Table(THREADS.to_vec()),
            Format::Table => TaskLayout::Table(PROCESSES.to_vec()),
            Format::Machine(machine) if !chosen.is_empty() => TaskLayout::Machine(machine, chosen),
            Format::Machine(machine) if threads => TaskLayout::Machine(machine, THREAD_FIELDS.to_vec()),
            Format::Machine(machine) => TaskLayout::Machine(machine, PROCESS_FIELDS.to_vec()),
        })
    }

    fn fields(&self) -> Fields {
        match self {
            TaskLayout::Table(columns) => columns.iter().flat_map(Column::fields).copied().collect(),
            TaskLayout::Machine(_, fields) => fields.iter().copied().collect(),
        }
    }
}

/// What the arguments mean.
#[derive(Debug)]
struct PsRequest {
    query: Query,
    sort: Vec<SortKey>,
    limit: usize,
    shown: TaskLayout,
}

impl PsRequest {
    fn new(args: &Args) -> Result<PsRequest, Failure> {
        let shown = TaskLayout::new(&args.options, args.threads)?;
        let sort = selection::sort_keys(&args.sort)?;
        let mut fields = shown.fields();
        sort.iter().for_each(|key| fields.insert(key.field));
        let query = query(args)?.fields(fields);
        Ok(PsRequest {
            query,
            sort,
            limit: args.limit.unwrap_or(usize::MAX),
            shown,
        })
    }
}

/// Which tasks the arguments ask about.
pub fn query(args: &Args) -> Result<Query, Failure> {
    let query = match (args.children, args.descendants, args.pids.as_slice(), args.threads) {
        (Some(pid), ..) => Query::children_of(pid),
        (_, Some(pid), ..) => Query::descendants_of(pid),
        (_, _, [], true) => Query::threads(),
        (_, _, [], false) => Query::processes(),
        (_, _, pids, true) => Query::threads_of_these(pids.iter().copied()),
        (_, _, pids, false) => Query::these(pids.iter().copied()),
    };
    selection::narrow(query, &args.users, args.cgroup.as_deref(), args.filter.as_deref())
}

/// Says of a cgroup without tasks if it is none.
pub fn check_cgroup(args: &Args, handle: &Handle, answers: &Answers) -> Outcome {
    selection::check_cgroup(handle, args.cgroup.as_deref(), answers)
}

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    if let Some(seconds) = args.watch {
        return watch::watch(&args, watch::duration(seconds)?);
    }
    if args.count.is_some() {
        let message =
            "--count is how many samples to watch, and goes with --watch SECONDS; --limit is how many rows to show";
        return Err(Failure::Unanswered(message.to_owned()));
    }
    let request = PsRequest::new(&args)?;
    let options = &args.options;
    let mut handle = options.from.handle();
    let explanation = args.explain.then(|| handle.explain(&request.query)).transpose()?;
    let answers = Answers::ask(&mut handle, &request.query)?;

    let mut tasks = answers.tasks();
    // What is shown is counted while it is written; what is only sorted by, here.
    let shown_fields = request.shown.fields();
    let mut hidden = Absences::new();
    let considered = tasks.len();
    selection::sort(&mut tasks, &request.sort, &mut hidden, |field| {
        !shown_fields.contains(field)
    });
    tasks.truncate(request.limit);

    let mut missing = Absences::new();
    match &request.shown {
        TaskLayout::Table(columns) => {
            let mut table = Column::table(columns, tasks.len(), !options.no_header);
            let mut cells = Cells::new(options.bytes, options.names);
            for task in &tasks {
                for &column in columns {
                    table.cell(|out| cells.write(out, column, task, &mut missing));
                }
            }
            let mut output = Output::new();
            table.write(&mut output, terminal_width())?;
            output.finish()?;
        }
        TaskLayout::Machine(machine, fields) => {
            let listing = Listing {
                fields,
                tasks: &tasks,
                depths: None,
                sample: None,
                total: None,
                header: !options.no_header,
                names: options.names,
            };
            answers.write("ps", *machine, listing, &mut missing)?;
        }
    }
    if let Some(explanation) = explanation {
        answers.say_explanation(&explanation);
    }
    if options.stats {
        answers.say_stats(tasks.len());
    }
    let outcome = answers.report(&[(&hidden, considered), (&missing, tasks.len())]);
    Ok(outcome.and(check_cgroup(&args, &handle, &answers)))
}
