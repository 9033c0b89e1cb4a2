//! `taskdiag ps`, with the options and formats of ps(1).
//!
//! [`args`] and [`options`] parse the arguments, [`columns`] resolves the names of columns,
//! [`layout`] and [`select`] make the query. After the query, [`rows`] and [`lines`] lay out the
//! cells that [`specifiers`] and [`cell`] make. A table in which every column is taskdiag's own goes
//! through `output::table`, JSON and CSV through `listing`. Names such as `pid` and `comm`, which ps
//! has too, are not taskdiag's own in tables.

mod args;
mod cell;
pub mod columns;
mod forest;
mod host;
mod layout;
mod lines;
pub mod options;
mod presets;
mod rows;
mod select;
mod sessions;
mod sort;
pub mod specifiers;

use taskdiag::{Field, Fields, Query, Task};
use taskdiag_core::identity::TICK_NS;

use crate::listing::{write_table, Answers, Format, LateTexts, TaskRows};
use crate::outcome::{print, Failure, Outcome};
use crate::output::relation::Absences;
use crate::selection::within_cgroup;
use crate::version;
pub use cell::plain;
pub use host::pid_digits;

pub use args::{command_at, position_of, Args, CommandLine, PsArgs};
pub use options::{terminal, PsOptions};

use forest::Tree;
use host::{Host, Modifiers};
use layout::{PsRequest, TaskLayout};
use options::{Instead, Threads};
use specifiers::{Specifier, TABLE};

/// The query that the arguments ask for.
pub fn query(args: &Args) -> Result<Query, Failure> {
    let Args {
        selection, ps_options, ..
    } = args;
    let query = match selection.processes.scope(args.threads)? {
        Some(query) => ps_options.narrow(query, select::Caller::new)?,
        None => ps_options.query(args.threads, select::Caller::new)?,
    };
    selection.narrow(query, args.past.is_given(), within_cgroup)
}

/// Runs the command. `ps_options` holds the options that [`CommandLine`] took from the command line.
/// `watch` runs it if there are rates in it.
pub fn run(
    args: PsArgs,
    ps_options: PsOptions,
    watch: impl FnOnce(&Args) -> Option<Result<Outcome, Failure>>,
) -> Result<Outcome, Failure> {
    let PsArgs(mut args) = args;
    args.threads |= ps_options.threads == Threads::Rows;
    args.ps_options = ps_options;
    match args.ps_options.instead {
        Some(Instead::Specifiers) => return list_specifiers(),
        Some(Instead::Version) => return print(version::text()),
        None => check(&args)?,
    }
    if let Some(outcome) = watch(&args) {
        return outcome;
    }
    if args.count.is_some() {
        let message =
            "--count is how many samples to watch, and goes with --watch SECONDS; --limit is how many rows to show";
        return Err(message.into());
    }
    list(&args)
}

/// Lists tasks.
fn list(args: &Args) -> Result<Outcome, Failure> {
    let request = PsRequest::new(args)?;
    let (mut handle, whole) = args.past.handle(args.options.format(), || args.options.from.handle())?;
    if !request.has_texts_in_tests() {
        handle = handle.with_max_memory(LateTexts::MAX_MEMORY);
    }
    let explanation = args.explain.then(|| handle.explain(&request.query)).transpose()?;
    let answers = Answers::ask(&mut handle, &request.query)?;
    let mut host = Host::new(Modifiers {
        named: args.options.names,
        ..args.ps_options.modifiers
    });
    let mut tasks = answers.tasks();
    let considered = tasks.len();
    // What is only shown is counted while it is written.
    let mut sorted_by = Absences::default();
    let tree = arrange(&mut tasks, args, &request, &mut host, &mut sorted_by);
    tasks.truncate(request.limit);

    let mut missing = Absences::default();
    let threads = match args.ps_options.threads {
        Threads::Below => Some(Answers::ask(&mut handle, &threads_of(&tasks, request.query.fields))?),
        Threads::No | Threads::Rows => None,
    };
    let mut late = LateTexts::new(&mut handle, &request.query);
    match &request.shown {
        TaskLayout::Table(columns) => {
            write_table(
                &args.options,
                columns,
                tasks.iter(),
                &mut missing,
                &mut late,
                |_, _, _| {},
            )?;
        }
        TaskLayout::Lines(columns) => {
            let rows = rows::rows(&tasks, threads.as_ref(), tree.as_ref());
            rows::write_lines(args, columns, &rows, (&mut host, &mut late), &mut missing)?;
        }
        TaskLayout::Machine(machine, fields) => {
            let listing = TaskRows {
                fields,
                tasks: &tasks,
                depths: tree.as_ref().map(|tree| tree.depths.as_slice()),
                sample: None,
                total: None,
                options: &args.options,
            };
            answers.write("ps", *machine, listing, &mut missing, &mut late)?;
        }
    }
    if let Some(explanation) = explanation {
        answers.say_explanation(&explanation);
    }
    if args.options.stats {
        answers.say_stats(tasks.len());
    }
    if args.ps_options.is_called_ps {
        // As in ps, the exit status says whether any process matched, and nothing else is reported.
        return Ok(Outcome::partial_if(considered == 0));
    }
    let keys: Vec<Field> = request
        .sort
        .iter()
        .flat_map(|by| by.key.needs().iter().collect::<Vec<_>>())
        .collect();
    let shown = missing.without(&keys);
    let outcome = whole.and(answers.report(&[(&sorted_by, considered), (&shown, tasks.len())]));
    // Scripts rely on this: ps ends with status 1 if no process matches its options.
    let is_missing = considered == 0 && args.ps_options.is_given && !args.selection.is_narrowed();
    Ok(outcome
        .and(Outcome::partial_if(is_missing))
        .and(args.selection.processes.check_found(&mut handle, &answers)))
}

/// Puts tasks in their order, and below their parents if there is a forest.
fn arrange(
    tasks: &mut Vec<Task<'_>>,
    args: &Args,
    request: &PsRequest,
    host: &mut Host,
    missing: &mut Absences,
) -> Option<Tree> {
    if args.threads {
        // BPF returns all threads in the order of their ids.
        tasks.sort_by_key(|task| (task.record().header().pid.get(), task.record().header().tid.get()));
    }
    in_listed_order(tasks, &args.ps_options.choice.quick);
    sort::sort(tasks, &request.sort, host, missing);
    args.ps_options.forest.map(|branches| {
        if request.sort.is_empty() {
            let start = |task: &Task<'_>| task.start_ns().unwrap_or(0).div_euclid(TICK_NS as i64);
            tasks.sort_by_key(|task| (task.ppid().unwrap_or(0), start(task), task.record().header().pid.get()));
        }
        Tree::new(tasks, branches, request.sort.is_empty())
    })
}

/// Rejects arguments that exclude each other.
fn check(args: &Args) -> Result<(), Failure> {
    let Args {
        ps_options, options, ..
    } = args;
    let wrong = |message: &str| Err(message.into());
    if args.threads && ps_options.forest.is_some() {
        return wrong("a forest has processes only: leave out either the forest or the threads");
    }
    if ps_options.threads == Threads::Below && options.format() != Format::Table {
        return wrong("threads below their processes make no rows for programs: -L has a row for each thread");
    }
    let shows_format =
        ps_options.preset.is_format() || ps_options.preset.preloaded.is_some() || ps_options.forest.is_some();
    if args.watch.is_some() && (shows_format || ps_options.threads == Threads::Below) {
        return wrong(
            "watching shows columns of its own: choose them with -o, and leave out formats and forests of ps",
        );
    }
    Ok(())
}

/// Puts tasks in the order of a list of processes, each as often as it is listed.
fn in_listed_order(tasks: &mut Vec<Task<'_>>, pids: &[u32]) {
    if !pids.is_empty() {
        let of = |&pid: &u32| {
            tasks
                .iter()
                .filter(move |task| task.record().header().pid.get() == pid)
                .copied()
        };
        *tasks = pids.iter().flat_map(of).collect();
    }
}

/// The threads of these processes.
fn threads_of(tasks: &[Task<'_>], fields: Fields) -> Query {
    Query::threads_of_these(tasks.iter().map(|task| task.record().header().pid.get())).fields(fields)
}

/// Lists the format specifiers with their headers.
fn list_specifiers() -> Result<Outcome, Failure> {
    let line = |Specifier { name, header, .. }: &Specifier| format!("{name:<12} {header:<8}\n");
    print(TABLE.iter().map(line).collect::<String>())
}
