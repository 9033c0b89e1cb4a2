//! `taskdiag watch`: repeatedly lists the tasks that do something, with their rates.

pub mod net;
mod rates;
mod remotes;
mod screen;

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use clap::Args as ClapArgs;
use taskdiag::{Field, Fields, Filter, Group, Handle, Identity, Query, Scope, Task, Value};
use taskdiag_core::field::has_group;

use crate::choice::{Chosen, OrderOptions, SortBy};
use crate::grouping::{self, SumLayout};
use crate::history::RangeOptions;
use crate::listing::{Answers, Format, Options};
use crate::outcome::{self, say, Failure, Outcome};
use crate::output::listing::{headed, ListingColumn};
use crate::output::relation::{list_of, Cell, ColumnInfo, Row};
use crate::output::tasks::{self, shown_as};
use crate::output::{document, owned};
use crate::ps;
use crate::quantity;
use crate::rhythm::Rhythm;
use crate::selection::{self, Selection};
use crate::source;
pub use rates::{is_true_of, take_filter, LastSamples, Rate, Rates, SampleTime};
use remotes::RemoteSums;
use screen::Screen;

/// Watch what tasks do: processor time, page faults, input and output per second
///
/// Every two seconds, or as -d says, a table of the tasks that used processor time since the last
/// one, the busiest first. Without a filter, tasks that did nothing are not even read from the
/// kernel. The first sample is about a quarter of a second, and has all processes that -p names; the
/// others are about the time between two samples. A task that was not in the last sample, or did not
/// match then, has no rates yet, unless it started since: then all its life counts. It ends when all
/// processes that -p names have ended. -o and --sort also take the rates: cpu_percent,
/// min_faults_per_s, maj_faults_per_s, read_bytes_per_s and write_bytes_per_s. A sample whose time
/// has passed, because the one before took too long, is left out. With --history there is one table,
/// whose rates are of a period of a recording.
///
/// With --jsonl, a line {"sample": N, "time": …, "rows": K} comes before the K rows of each
/// sample. Rows of --csv have the number and the time of their sample; a sample without rows is a
/// line whose other cells are empty.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag watch -d 1 --limit 20\n  \
    taskdiag watch -u www-data -o pid,cpu_percent,read_bytes_per_s,comm --jsonl\n  \
    taskdiag watch -n 2 --csv")]
#[command(mut_arg("socket", |arg| arg.conflicts_with("RangeOptions")))]
pub struct Args {
    /// The time between two samples
    #[arg(short = 'd', long, visible_alias = "watch", value_name = "SECONDS", default_value = "2",
        value_parser = quantity::interval, conflicts_with = "RangeOptions")]
    delay: Duration,
    /// End after this many samples
    #[arg(short = 'n', long, value_name = "N", value_parser = quantity::count, conflicts_with = "RangeOptions")]
    count: Option<u64>,
    /// One row for each thread rather than for each process
    #[arg(short = 'T', long)]
    threads: bool,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    past: RangeOptions,
}

/// Which tasks are watched, and how they are shown.
#[derive(Debug, ClapArgs)]
pub struct RowArgs {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    order: OrderOptions,
    #[command(flatten)]
    options: Options,
}

struct Watch<'a> {
    query: Query,
    threads: bool,
    selection: &'a Selection,
    order: OrderOptions,
    delay: Duration,
    count: Option<u64>,
    options: &'a Options,
    preset: &'static Preset,
    /// Show sums of network traffic, not processes.
    sums: Option<SumLayout>,
    /// The period of a recording to show, not what happens now.
    past: Option<RangeOptions>,
}

/// What a command shows without options.
struct Preset {
    /// Its name.
    command: &'static str,
    /// The table, of processes or of threads.
    table: fn(bool) -> Vec<ListingColumn>,
    /// The fields and rates for programs.
    columns: fn() -> (Vec<Field>, Vec<Rate>),
    /// The order.
    sort: &'static str,
    /// It shows the tasks with network traffic, not those that used processor time.
    is_of_network: bool,
}

static WATCH: Preset = Preset {
    command: "watch",
    table: usual,
    columns: || (USUAL_FIELDS.to_vec(), USUAL_RATES.to_vec()),
    sort: "-cpu_percent",
    is_of_network: false,
};

pub fn run(args: Args) -> Result<Outcome, Failure> {
    run_watch(Watch::new(
        &args.rows,
        &args.past,
        (args.delay, args.count),
        args.threads,
    )?)
}

impl Watch<'_> {
    fn new<'a>(
        rows: &'a RowArgs,
        past: &RangeOptions,
        (delay, count): (Duration, Option<u64>),
        threads: bool,
    ) -> Result<Watch<'a>, Failure> {
        Ok(Watch {
            query: rows.selection.query(threads, past.is_given())?,
            threads,
            selection: &rows.selection,
            order: rows.order.clone(),
            delay,
            count,
            options: &rows.options,
            preset: &WATCH,
            sums: None,
            past: past.is_given().then(|| past.clone()),
        })
    }
}

/// Runs `taskdiag ps --watch`, and `ps` with rates, of a period. `None` if it is neither.
pub fn of_ps(args: &ps::Args) -> Option<Result<Outcome, Failure>> {
    let names = args.options.fields.iter().chain(&args.order.sort);
    let mut names = names.flat_map(|list| list.split(','));
    let rate =
        names.find_map(|name| Rate::named(name.trim_start_matches(['-', '+'])).filter(|rate| *rate != Rate::Cpu));
    let past = args.past.period().filter(RangeOptions::has_ends);
    if args.watch.is_none() && past.is_none() {
        let rate = rate?.name();
        let message = format!("{rate} is a rate: it needs --watch SECONDS, or --history DIR with --from TIME");
        return Some(Err(message.into()));
    }
    if args.watch.is_none() {
        rate?;
    }
    let watch = |query| Watch {
        query,
        threads: args.threads,
        selection: &args.selection,
        order: args.order.clone(),
        delay: args.watch.unwrap_or_default(),
        count: args.count,
        options: &args.options,
        preset: &WATCH,
        sums: None,
        past,
    };
    Some(ps::query(args).map(watch).and_then(run_watch))
}

/// The columns of tasks with their rates: the fields, then the rates.
static RELATION: LazyLock<Vec<ColumnInfo>> = LazyLock::new(|| {
    let rates = Rate::ALL.into_iter().map(Rate::info);
    tasks::RELATION.iter().copied().chain(rates).collect()
});

/// A task and its rates.
struct RatedTask<'a> {
    task: Task<'a>,
    rates: Rates,
}

impl Row for RatedTask<'_> {
    fn cell(&self, column: usize) -> Cell<'_> {
        match column.checked_sub(Field::ALL.len()) {
            // One decimal is as much as a sample can tell.
            Some(rate) => {
                let rate = self.rates.of(Rate::ALL[rate], &self.task)?;
                Ok(Value::Float((rate * 10.0).round() / 10.0))
            }
            None => self.task.cell(column),
        }
    }
}

/// The table without `-o`.
fn usual(threads: bool) -> Vec<ListingColumn> {
    let rate = |rate: Rate| ListingColumn::column(rate.heading(), rate.column());
    let mut shown = vec![
        ListingColumn::made("USER", &tasks::USER),
        shown_as("PID", Field::Pid),
        rate(Rate::Cpu),
        shown_as("RSS", Field::RssBytes),
        rate(Rate::ReadBytes),
        rate(Rate::WriteBytes),
        rate(Rate::MinFaults),
        ListingColumn::made("TIME", &tasks::TIME),
        ListingColumn::made("COMMAND", &tasks::COMMAND),
    ];
    if threads {
        shown.insert(2, shown_as("TID", Field::Tid));
        // The threads of a process have the same command line but their own names.
        shown.pop();
        shown.push(shown_as("NAME", Field::Comm));
    }
    shown
}

/// The fields for programs without `-o`.
const USUAL_FIELDS: [Field; 9] = list_of! { Field: Pid, Tid, StartNs, Euid, State, RssBytes, UtimeNs, StimeNs, Comm };

/// The rates for programs without `-o`.
const USUAL_RATES: [Rate; 5] = list_of! { Rate: Cpu, MinFaults, MajFaults, ReadBytes, WriteBytes };

/// The columns that a name of `-o` or `--sort` stands for.
fn named(name: &str, table: &[ListingColumn]) -> Result<Vec<usize>, Failure> {
    if let Some(column) = Rate::named(name).map(Rate::column).or_else(|| headed(name, table)) {
        return Ok(vec![column]);
    }
    let fields = selection::fields(&[name.to_owned()]).map_err(unknown)?;
    Ok(fields.into_iter().map(column).collect())
}

/// The column of a field. A group and names of ps(1) can stand for the share of a processor, which is
/// that since the previous sample here.
fn column(field: Field) -> usize {
    match field {
        Field::CpuPercent => Rate::Cpu.column(),
        field => field as usize,
    }
}

/// The columns that `-o` options name, or the default columns.
fn shown(request: &Watch<'_>) -> Result<Vec<ListingColumn>, Failure> {
    let Watch { options, preset, .. } = *request;
    let of = |column: usize| ListingColumn::column(RELATION[column].name, column);
    let table = (preset.table)(request.threads);
    let chosen = Chosen::parse(&options.fields, |name| named(name, &table))?;
    if options.format() == Format::Table {
        return Ok(chosen.columns(table, of));
    }
    let (fields, rates) = (preset.columns)();
    let fields = fields.into_iter().map(|field| field as usize);
    let usual: Vec<usize> = fields.chain(rates.into_iter().map(Rate::column)).collect();
    Ok(chosen.keys(&usual).into_iter().map(of).collect())
}

/// The keys that `--sort` options name, or the usual ones.
fn sort_keys(lists: &[String], usual: &str, table: &[ListingColumn]) -> Result<Vec<SortBy<usize>>, Failure> {
    let usual = [usual.to_owned()];
    let lists = if lists.is_empty() { &usual } else { lists };
    SortBy::parse(lists, |name| {
        match Rate::named(name).map(Rate::column).or_else(|| headed(name, table)) {
            Some(column) => Ok(column),
            None => selection::field(name).map(column).map_err(unknown),
        }
    })
}

/// The fields that a column needs: those of a rate are what it grows from.
fn fields_of(column: usize) -> Fields {
    match column.checked_sub(Field::ALL.len()) {
        Some(rate) => Rate::ALL[rate].fields().iter().copied().collect(),
        None => Field::ALL[column].into(),
    }
}

/// Adds the rates to the message about an unknown name.
fn unknown(failure: Failure) -> Failure {
    failure.with(&format!("\nrates are {}", Rate::ALL.map(Rate::name).join(", ")))
}

/// The time that the first sample is about, as in top.
const FIRST: Duration = Duration::from_millis(250);

/// After this many samples, what is remembered about tasks that ended is dropped.
const PRUNED_AFTER: u64 = 64;

/// Watches until the output can't be written, or until all samples have been shown.
fn run_watch(request: Watch<'_>) -> Result<Outcome, Failure> {
    let Watch {
        options,
        threads,
        preset,
        ..
    } = request;
    let count = if request.past.is_some() { Some(1) } else { request.count };
    options.check_endless(count)?;
    let shown = shown(&request)?;
    let sort = sort_keys(&request.order.sort, preset.sort, &(preset.table)(threads))?;
    let fields = sort.iter().filter_map(|by| Field::ALL.get(by.key).copied());
    selection::check_order(options.format(), fields);
    let needs = shown.iter().flat_map(|shown| shown.content.needs());
    let of_shown = needs.fold(Fields::NONE, |fields, column| fields | fields_of(column));
    let of_order = sort.iter().fold(Fields::NONE, |fields, by| fields | fields_of(by.key));
    let mut fields = of_shown | of_order;
    fields |= request
        .sums
        .as_ref()
        .map_or(Fields::NONE, |sums| grouping::fields(&sums.by));
    // These identify a task and show whether it did something.
    fields |= Field::StartNs | Field::UtimeNs | Field::StimeNs;
    if preset.is_of_network {
        fields |= Field::LoopbackSentBytes;
    }
    let mut query = request.query;
    let rated = take_filter(&mut query, &mut fields);
    let mut query = query.fields(fields);
    let is_fixed = matches!(query.scope, Scope::Processes | Scope::Threads);
    let is_of_all = query.scope == Scope::Processes && query.filter.is_none() && rated.is_none();
    // With a filter, a task that begins to match may have done anything before, so idle tasks must
    // be known.
    let lacks_idle = is_fixed && query.filter.is_none() && !preset.is_of_network && request.past.is_none();
    if lacks_idle {
        query = query.only_changed();
    }

    let mut answers = Answers::default();
    let mut history = LastSamples::new(lacks_idle);
    let mut end = None;
    let (mut since, mut restarts, mut is_quiet) = (None, 0_u64, true);
    let (mut handle, mut outcome) = match &request.past {
        Some(past) => past.handle(options.format(), &mut |now_ns, before_ns, snapshot| {
            let now = SampleTime::recorded(now_ns);
            history.begin(snapshot, now, before_ns.map(SampleTime::recorded));
            end = Some(now);
            restarts += u64::from(preset.is_of_network && net::began_again(&mut since, snapshot));
        })?,
        None => (options.from.handle_for_many(), Outcome::Complete),
    };
    // What -o names decides which rows there are; without, all formats have those of the table.
    let named = columns_of_network(&shown);
    let mut counted = if options.fields.is_empty() || named.is_empty() {
        columns_of_network(&(preset.table)(threads))
    } else {
        named
    };
    if request.past.is_some() {
        // Totals are of the time before the period, too: what they grew by counts.
        let fields = counted
            .iter()
            .fold(Fields::NONE, |fields, &column| fields | fields_of(column));
        let grows = |rate: &Rate| rate.fields().iter().any(|field| fields.contains(*field));
        counted = Rate::ALL.into_iter().filter(grows).map(Rate::column).collect();
    }
    match source::count_network_for(&mut handle, &query) {
        _ if request.past.is_some() => {}
        Err(error) if preset.is_of_network => return Err(error.into()),
        // If it fails, the values are absent.
        _ => {}
    }
    let mut remotes = match &request.sums {
        Some(layout) => RemoteSums::begin(layout, is_of_all)?,
        None => None,
    };
    let needs = shown.iter().flat_map(|shown| shown.content.needs());
    let mut columns = needs.chain(sort.iter().map(|by| by.key));
    let has_rates = columns.any(|column| column >= Field::ALL.len());
    // The messages would be the same for every sample.
    let tell = |handle: &mut Handle, answers: &Answers| {
        let found = request.selection.processes.check_found(handle, answers);
        answers.report(&[]).and(found)
    };
    let measures = (preset.is_of_network || has_rates) && request.past.is_none();
    if measures {
        let (asked, moment) = SampleTime::of(|| answers.ask_again(&mut handle, &query));
        asked?;
        history.add(&answers.snapshot, moment);
        outcome = outcome.and(tell(&mut handle, &answers));
        let wait = if preset.is_of_network { Duration::MAX } else { FIRST };
        std::thread::sleep(wait.min(request.delay));
    }
    let mut screen = Screen::new(preset.command, options, shown);
    let mut rhythm = Rhythm::new(request.delay);
    for sample in 0..count.unwrap_or(u64::MAX) {
        if sample > 0 {
            rhythm.wait();
        }
        let time = document::now();
        let (asked, moment) = SampleTime::of(|| answers.ask_again(&mut handle, &query));
        asked?;
        if preset.is_of_network {
            net::check(&answers.snapshot, request.past.is_some())?;
        }
        let rates = history.add(&answers.snapshot, end.unwrap_or(moment));
        let is_busy = |task: &RatedTask<'_>| {
            if preset.is_of_network {
                net::has_traffic(task, &counted)
            } else {
                // Processes that are named come once even if they are idle.
                task.rates.is_busy || request.past.is_some() || sample == 0 && query.scope.is_listed()
            }
        };
        let rows = wanted(&answers, &rates, rated.as_ref(), &is_busy);
        screen.count(0, of_order, &rows);
        let rows = owned::sorted(rows, &sort, request.order.limit());
        screen.count(1, of_shown.without(of_order), &rows);
        is_quiet &= rows.is_empty();
        if preset.is_of_network && is_quiet && options.format() == Format::Table {
            is_quiet = !net::say_loopback(&answers.snapshot, request.sums.is_some());
        }
        let sample = document::Sample {
            number: sample,
            time: &time,
        };
        let sums = match (&request.sums, &mut remotes) {
            (Some(layout), Some(remotes)) => Some(remotes.read(layout, &answers.snapshot)?),
            (Some(layout), None) => Some(net::sums(&rows, layout)),
            (None, _) => None,
        };
        let sums = request
            .sums
            .as_ref()
            .zip(sums)
            .map(|(layout, (sums, total))| (layout, sums, total));
        screen.show(sample, &answers, &rows, sums)?;
        if options.stats {
            answers.say_stats(rows.len());
        }
        if sample.number == 0 && !measures {
            outcome = outcome.and(tell(&mut handle, &answers));
        }
        if all_listed_ended(&query, &answers) {
            break;
        }
        if lacks_idle && sample.number % PRUNED_AFTER == PRUNED_AFTER - 1 {
            history.retain(&existing_tasks(&mut handle, threads)?);
        }
    }
    outcome = outcome
        .and(screen.finish()?)
        .and(remotes.map_or(Outcome::Complete, RemoteSums::report));
    if preset.is_of_network && is_of_all {
        net::say_unseen();
    }
    if restarts > 0 {
        say(format_args!(
            "counting began again {} in that period: what was counted before is missing in rates and totals",
            outcome::counted(restarts, "time")
        ));
        outcome = Outcome::Partial;
    }
    Ok(outcome)
}

/// Whether all processes that the query names have ended.
fn all_listed_ended(query: &Query, answers: &Answers) -> bool {
    query.scope.is_listed() && answers.snapshot.missing().len() == query.pids.len()
}

fn existing_tasks(handle: &mut Handle, threads: bool) -> Result<HashSet<Identity>, Failure> {
    let query = if threads { Query::threads() } else { Query::processes() };
    let snapshot = handle.query(&query.fields(Field::StartNs))?;
    Ok(snapshot
        .tasks()
        .map(|task| Identity::of(task.record().header()))
        .collect())
}

/// The columns whose values somebody has to count.
fn columns_of_network(shown: &[ListingColumn]) -> Vec<usize> {
    let columns = shown.iter().flat_map(|shown| shown.content.needs());
    let is_counted = |column: &usize| has_group(fields_of(*column), Group::Net);
    columns.filter(is_counted).collect()
}

/// The tasks that did something and for which a filter over rates is true.
fn wanted<'a>(
    answers: &'a Answers,
    rates: &[Rates],
    filter: Option<&Filter>,
    is_busy: &dyn Fn(&RatedTask<'_>) -> bool,
) -> Vec<RatedTask<'a>> {
    let is_true =
        |row: &RatedTask<'_>| filter.is_none_or(|filter| is_true_of(filter, &row.task, row.rates.get(Rate::Cpu)));
    let tasks = answers.snapshot.tasks().zip(rates);
    let rows = tasks.map(|(task, &rates)| RatedTask { task, rates });
    rows.filter(|row| is_busy(row) && is_true(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that rates have unique names, in `-o` and `--sort`.
    #[test]
    fn rates_have_names() {
        assert_eq!(Rate::named("cpu_percent"), Some(Rate::Cpu));
        assert_eq!(Rate::named("cpu"), None);
        let keys = sort_keys(&["-write_bytes_per_s,pid".to_owned()], "", &[]).expect("a rate and a field");
        let keys: Vec<(usize, bool)> = keys.iter().map(|by| (by.key, by.descending)).collect();
        assert_eq!(keys, [(Rate::WriteBytes.column(), true), (Field::Pid as usize, false)]);
        let wrong = format!("{:?}", sort_keys(&["cpu_percents".to_owned()], "", &[]));
        assert!(wrong.contains("rates are cpu_percent, min_faults_per_s"), "{wrong}");
    }
}
