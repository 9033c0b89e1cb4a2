//! `taskdiag watch`: the tasks that do something, again and again, with what they do in a second.

mod rates;

use std::collections::{HashMap, HashSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::termios::{isatty, tcgetwinsize};
use taskdiag::{Field, Fields, Handle, Identity, Query, Scope, Task};

use crate::listing::{report_absences, Answers, Format, Machine};
use crate::outcome::{Failure, Outcome};
use crate::output::cell::{Cells, Column, Show};
use crate::output::names::Names;
use crate::output::table::{terminal_width, Align, Table};
use crate::output::{csv, json, Absences, Extra, Output};
use crate::ps;
use crate::selection;
use rates::{Activity, History, Moment, Rate, Rates};

/// How often `taskdiag watch` looks unless it is said.
const INTERVAL: f64 = 2.0;

/// Runs the command.
pub fn run(args: ps::Args) -> Result<Outcome, Failure> {
    watch(&args, duration(args.watch.unwrap_or(INTERVAL))?)
}

/// The interval of `--watch`.
pub fn duration(seconds: f64) -> Result<Duration, Failure> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration >= Duration::from_millis(10) => Ok(duration),
        _ => Err(Failure::Unanswered(format!(
            "--watch {seconds}: the interval is in seconds, 0.01 at least"
        ))),
    }
}

/// Something that `-o` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchColumn {
    Column(Column),
    Rate(Rate),
}

/// The table without `-o`.
fn usual(threads: bool) -> Vec<WatchColumn> {
    let label = |heading, show| WatchColumn::Column(Column { heading, show });
    let mut shown = vec![
        label("USER", Show::User),
        label("PID", Show::Field(Field::Pid)),
        WatchColumn::Rate(Rate::Cpu),
        label("RSS", Show::Field(Field::RssBytes)),
        WatchColumn::Rate(Rate::ReadBytes),
        WatchColumn::Rate(Rate::WriteBytes),
        WatchColumn::Rate(Rate::MinFaults),
        label("TIME", Show::Time),
        label("COMMAND", Show::Command),
    ];
    if threads {
        shown.insert(2, label("TID", Show::Field(Field::Tid)));
    }
    shown
}

/// The fields for programs without `-o`; all rates go with them.
const USUAL_FIELDS: [Field; 9] = [
    Field::Pid,
    Field::Tid,
    Field::StartNs,
    Field::Euid,
    Field::State,
    Field::RssBytes,
    Field::UtimeNs,
    Field::StimeNs,
    Field::Comm,
];

fn shown(args: &ps::Args) -> Result<Vec<WatchColumn>, Failure> {
    let mut shown = Vec::new();
    for name in args.options.fields.iter().flat_map(|list| list.split(',')) {
        match Rate::named(name) {
            Some(rate) => shown.push(WatchColumn::Rate(rate)),
            None => {
                let fields = selection::fields(&[name.to_owned()])?;
                shown.extend(fields.into_iter().map(|field| WatchColumn::Column(Column::of(field))));
            }
        }
    }
    match (args.options.format(), shown.is_empty()) {
        (_, false) => {}
        (Format::Table, true) => shown = usual(args.threads),
        (Format::Machine(_), true) => {
            shown.extend(USUAL_FIELDS.map(|field| WatchColumn::Column(Column::of(field))));
            shown.extend(Rate::ALL.map(WatchColumn::Rate));
        }
    }
    Ok(shown)
}

/// By what rows are ordered: one rate, or fields.
enum Order {
    Rate { rate: Rate, descending: bool },
    Fields(Vec<selection::SortKey>),
}

impl Order {
    fn new(sort: &[String]) -> Result<Order, Failure> {
        let name = match sort {
            [] => "-cpu_percent",
            [one] => one,
            _ => "",
        };
        match Rate::named(name.trim_start_matches(['-', '+'])) {
            Some(rate) => Ok(Order::Rate {
                rate,
                descending: name.starts_with('-'),
            }),
            None => Ok(Order::Fields(selection::sort_keys(sort)?)),
        }
    }

    fn fields(&self) -> Fields {
        match self {
            Order::Rate { rate, .. } => rate.fields().iter().copied().collect(),
            Order::Fields(keys) => keys.iter().map(|key| key.field).collect(),
        }
    }
}

/// After so many samples what is known of ended tasks is forgotten.
const PRUNED_AFTER: u64 = 64;

/// Watches until nobody reads, or `--count` samples were shown.
pub fn watch(args: &ps::Args, interval: Duration) -> Result<Outcome, Failure> {
    let format = args.options.format();
    if format == Format::Machine(Machine::Json) {
        return Err(Failure::Unanswered(
            "watching has no end, and so makes no JSON document: use --jsonl".to_owned(),
        ));
    }
    let shown = shown(args)?;
    let order = Order::new(&args.sort)?;
    let mut fields: Fields = shown.iter().fold(Fields::NONE, |fields, shown| match shown {
        WatchColumn::Column(column) => fields | column.fields().iter().copied().collect::<Fields>(),
        WatchColumn::Rate(rate) => fields | rate.fields().iter().copied().collect::<Fields>(),
    });
    // Those that tell which task it is, and whether it did something.
    fields |= order.fields() | Field::StartNs | Field::UtimeNs | Field::StimeNs;
    let mut query = ps::query(args)?.fields(fields);
    let is_fixed = matches!(
        query.scope,
        Scope::Processes | Scope::Threads | Scope::Listed | Scope::ThreadsOfListed
    );
    // Where tasks come to be meant and cease to be, one that is left out may have done something.
    let lacks_idle = is_fixed && query.filter.is_none();
    if lacks_idle {
        query = query.only_changed();
    }

    let mut handle = args.options.from.handle_for_many();
    let mut answers = Answers::default();
    let mut history = History::new(lacks_idle);
    let mut screen = Screen::new(args, shown);
    let count = args.count.unwrap_or(u64::MAX);
    let mut outcome = Outcome::Complete;
    let mut next = Instant::now();
    for sample in 0..count {
        sleep(next.saturating_duration_since(Instant::now()));
        next = (next + interval).max(Instant::now());
        let (asked, moment) = Moment::of(|| answers.ask_again(&mut handle, &query));
        asked?;
        let activities = history.add(answers.snapshot(), moment);
        let rows = ordered(&answers, &activities, &order, args.limit.unwrap_or(usize::MAX));
        screen.show(sample, &rows)?;
        // In every sample it would be no news.
        if sample == 0 {
            outcome = answers.report(&[]).and(ps::check_cgroup(args, &handle, &answers));
        }
        if lacks_idle && sample % PRUNED_AFTER == PRUNED_AFTER - 1 {
            history.retain(&there(&mut handle, args.threads)?);
        }
    }
    Ok(outcome.and(screen.outcome()))
}

/// All tasks that there are.
fn there(handle: &mut Handle, threads: bool) -> Result<HashSet<Identity>, Failure> {
    let query = if threads { Query::threads() } else { Query::processes() };
    let snapshot = handle.query(&query.fields(Field::StartNs))?;
    Ok(snapshot
        .tasks()
        .map(|task| Identity::of(task.record().header()))
        .collect())
}

/// A task and what it does.
type RatedTask<'a> = (Task<'a>, Rates);

/// The tasks that did something, in order.
fn ordered<'a>(answers: &'a Answers, activities: &[Activity], order: &Order, limit: usize) -> Vec<RatedTask<'a>> {
    let busy = answers
        .snapshot()
        .tasks()
        .zip(activities)
        .filter(|(_, activity)| activity.is_busy);
    let mut rows: Vec<RatedTask<'a>> = match order {
        Order::Rate { rate, descending } => {
            let mut rows: Vec<RatedTask<'a>> = busy.map(|(task, activity)| (task, activity.rates)).collect();
            let key = |row: &RatedTask<'_>| row.1[*rate as usize];
            rows.sort_by(|a, b| match (key(a), key(b)) {
                (Ok(a), Ok(b)) if *descending => b.total_cmp(&a),
                (Ok(a), Ok(b)) => a.total_cmp(&b),
                // Whichever way the others go.
                (a, b) => b.is_ok().cmp(&a.is_ok()),
            });
            rows
        }
        Order::Fields(keys) => {
            let (mut tasks, activities): (Vec<Task<'a>>, Vec<&Activity>) = busy.unzip();
            let tids = tasks.iter().map(|task| task.record().header().tid.get());
            let rates_of: HashMap<u32, Rates> = tids.zip(activities.iter().map(|activity| activity.rates)).collect();
            selection::sort(&mut tasks, keys, &mut Absences::new(), |_| false);
            let rates_of = |task: &Task<'_>| rates_of[&task.record().header().tid.get()];
            tasks.into_iter().map(|task| (task, rates_of(&task))).collect()
        }
    };
    rows.truncate(limit);
    rows
}

/// Where samples are shown.
struct Screen<'a> {
    args: &'a ps::Args,
    shown: Vec<WatchColumn>,
    fields: Vec<Field>,
    rates: Vec<Rate>,
    missing: Absences,
    cells: Cells,
    names: Names,
    rows: json::Rows<Field>,
}

impl<'a> Screen<'a> {
    fn new(args: &'a ps::Args, shown: Vec<WatchColumn>) -> Screen<'a> {
        let fields: Vec<Field> = shown
            .iter()
            .filter_map(|shown| match shown {
                WatchColumn::Column(Column {
                    show: Show::Field(field),
                    ..
                }) => Some(*field),
                _ => None,
            })
            .collect();
        let rates = shown.iter().filter_map(|shown| match shown {
            WatchColumn::Rate(rate) => Some(*rate),
            WatchColumn::Column(_) => None,
        });
        Screen {
            args,
            rates: rates.collect(),
            missing: Absences::new(),
            cells: Cells::new(args.options.bytes, args.options.names),
            names: Names::default(),
            rows: json::Rows::new(&fields, args.options.names),
            fields,
            shown,
        }
    }

    fn extras(&self, sample: u64, rates: &Rates) -> Vec<(&'static str, Result<Extra, &'static str>)> {
        let number = |rate: &Rate| (rate.name(), rates[*rate as usize].map(Extra::Rate));
        let sample = ("sample", Ok(Extra::Count(sample)));
        [sample].into_iter().chain(self.rates.iter().map(number)).collect()
    }

    fn show(&mut self, sample: u64, rows: &[RatedTask<'_>]) -> Result<(), Failure> {
        for field in self.rates.iter().flat_map(|rate| rate.fields()) {
            for (task, _) in rows {
                let _ = self.missing.value(task, *field);
            }
        }
        let mut output = Output::new();
        match self.args.options.format() {
            Format::Table => self.table(sample, rows, &mut output)?,
            Format::Machine(Machine::Csv) => {
                if sample == 0 && !self.args.options.no_header {
                    let names: Vec<&str> = ["sample"]
                        .into_iter()
                        .chain(self.rates.iter().map(|rate| rate.name()))
                        .collect();
                    csv::header(output.buffer(), &self.fields, &names);
                }
                for (task, rates) in rows {
                    let extras = self.extras(sample, rates);
                    let names = self.args.options.names.then_some(&mut self.names);
                    csv::row(output.buffer(), &self.fields, task, &extras, names, &mut self.missing);
                    output.row_ended()?;
                }
            }
            Format::Machine(_) => {
                for (task, rates) in rows {
                    let extras = self.extras(sample, rates);
                    self.rows.write(output.buffer(), task, &extras, &mut self.missing);
                    output.buffer().push(b'\n');
                    output.row_ended()?;
                }
            }
        }
        Ok(output.finish()?)
    }

    /// A table for each sample: on a terminal in the place of the one before, and no longer than fits.
    fn table(&mut self, sample: u64, rows: &[RatedTask<'_>], output: &mut Output) -> Result<(), Failure> {
        let stdout = rustix::stdio::stdout();
        let height = isatty(stdout).then(|| tcgetwinsize(stdout).map_or(24, |size| usize::from(size.ws_row)));
        let rows = &rows[..rows
            .len()
            .min(height.map_or(usize::MAX, |height| height.saturating_sub(2)))];
        match height {
            Some(_) => output.buffer().extend_from_slice(b"\x1b[H\x1b[2J"),
            None if sample > 0 => output.buffer().push(b'\n'),
            None => {}
        }
        let aligns = self.shown.iter().map(|shown| match shown {
            WatchColumn::Column(column) => column.align(),
            WatchColumn::Rate(_) => Align::Right,
        });
        let mut table = Table::new(aligns, rows.len());
        if !self.args.options.no_header {
            let named = !self.args.options.fields.is_empty();
            for shown in &self.shown {
                let heading = match shown {
                    WatchColumn::Column(column) => column.heading,
                    WatchColumn::Rate(rate) if named => rate.name(),
                    WatchColumn::Rate(rate) => rate.heading(),
                };
                table.cell(|out| out.extend_from_slice(heading.as_bytes()));
            }
        }
        for (task, rates) in rows {
            for shown in &self.shown {
                match shown {
                    WatchColumn::Column(column) => {
                        table.cell(|out| self.cells.write(out, *column, task, &mut self.missing))
                    }
                    WatchColumn::Rate(rate) => table.cell(|out| match rates[*rate as usize] {
                        Err(_) => out.push(b'-'),
                        Ok(bytes) if matches!(rate, Rate::ReadBytes | Rate::WriteBytes) && !self.args.options.bytes => {
                            crate::output::people::size(out, bytes as u64);
                        }
                        Ok(rate) => Extra::Rate(rate).write(out),
                    }),
                }
            }
        }
        Ok(table.write(output, terminal_width())?)
    }

    /// Values that may not be seen are no news in every sample, but make the whole partial.
    fn outcome(&self) -> Outcome {
        report_absences(&[(&self.missing, 0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that intervals are those that somebody can mean.
    #[test]
    fn intervals_are_times() {
        assert_eq!(duration(0.5).expect("a time"), Duration::from_millis(500));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    /// Check that rates have names of their own, in `-o` and `--sort`.
    #[test]
    fn rates_have_names() {
        assert_eq!(Rate::named("cpu_percent"), Some(Rate::Cpu));
        assert_eq!(Rate::named("cpu"), None);
        let order = Order::new(&["-write_bytes_per_s".to_owned()]).expect("a rate");
        assert!(matches!(
            order,
            Order::Rate {
                rate: Rate::WriteBytes,
                descending: true
            }
        ));
        assert!(Order::new(&["cpu_percents".to_owned()]).is_err());
    }
}
