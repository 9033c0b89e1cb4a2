//! `taskdiag mem --system`: what the machine's memory is used for.

use std::collections::BTreeMap;

use taskdiag::{Absent, Fields, Query, Task, Value};

use super::account::{Account, FIELDS};
use super::{progress, Args};
use crate::history;
use crate::host::MemInfo;
use crate::listing::{Answers, Format};
use crate::outcome::{Failure, Outcome};
use crate::output::cell::Cells;
use crate::output::document::Head;
use crate::output::relation::{columns, Absences, ColumnInfo};
use crate::output::rows::{RowOptions, Rows};
use crate::output::table::{terminal_width, Align, Table};
use crate::output::Output;
use crate::proc;

/// The keys of rows.
pub const RELATION: [ColumnInfo; 3] = columns! {
    "item": Text, "What the memory is used for; the first row is total_bytes.";
    "bytes": Signed, "The size; the unexplained part can be negative.";
    "part_of": Text, "The item that contains this one; empty for the first row, and for what free(1) adds up otherwise.";
};

/// The processes of the account.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// The sums of [`FIELDS`].
    processes: [u64; FIELDS.len()],
    read: u64,
    /// The number of processes with memory that could not be read.
    missing: u64,
    /// Why the first of those could not be read.
    why: Option<Absent>,
}

impl Tally {
    /// Adds a process.
    pub fn add(&mut self, task: &Task<'_>, missing: &mut Absences) {
        for field in FIELDS {
            let _ = missing.value(task, field as usize);
        }
        match FIELDS.map(|field| task.value(field)) {
            [Ok(Value::Unsigned(anon)), Ok(Value::Unsigned(file)), Ok(Value::Unsigned(shmem))] => {
                self.read += 1;
                for (sum, bytes) in self.processes.iter_mut().zip([anon, file, shmem]) {
                    *sum += bytes;
                }
            }
            [Err(Absent::NoMemory), ..] => {}
            [anon, ..] => {
                self.missing += 1;
                self.why = self.why.or(anon.err());
            }
        }
    }

    /// The account. `None` if `MemTotal` is missing. If no process could be read, the lines about them
    /// have the reason.
    pub fn account(&self, info: &MemInfo) -> Option<Account> {
        let mut account = Account::new(info, self.processes)?;
        for line in &mut account.lines {
            let is_of_processes = [line.name, line.part_of].contains(&Account::PROCESSES);
            if let Some(why) = self.why.filter(|_| self.read == 0 && is_of_processes) {
                line.bytes = Err(why);
            }
            if self.missing > 0 && line.name == Account::PROCESSES {
                let all = self.read + self.missing;
                line.meaning = match self.why {
                    Some(Absent::Unsupported) if self.read == 0 => {
                        "PSS of processes, which the kernel or the recording does not have".into()
                    }
                    _ => format!("PSS of the {} of {all} processes that could be read", self.read).into(),
                };
            }
        }
        Some(account)
    }
}

pub fn run(args: &Args) -> Result<Outcome, Failure> {
    if !args.options.fields.is_empty() || !args.order.sort.is_empty() {
        return Err("--system has fixed rows in a fixed order: leave out -o and --sort".into());
    }
    let (mut handle, whole) = args.past.handle(args.options.format(), || args.options.from.handle())?;
    let query = Query::processes()
        .fields(FIELDS.into_iter().collect::<Fields>())
        .budget(args.budget());
    let shown = progress::ProgressLine::begin(handle.progress());
    let answers = Answers::ask(&mut handle, &query)?;
    // Read after the processes, so that memory which they freed in between counts as free.
    let path = proc::path("meminfo");
    let path = path.display();
    let info = match history::shown() {
        Some(moment) => MemInfo::of(moment.numbers("meminfo")),
        None => MemInfo::read().map_err(|error| format!("{path}: {error}"))?,
    };
    drop(shown);

    let mut missing = Absences::default();
    let mut counts = Tally::default();
    let tasks = answers.tasks();
    tasks.iter().for_each(|task| counts.add(task, &mut missing));
    let account = counts.account(&info).ok_or_else(|| format!("{path} has no MemTotal"))?;
    match args.options.format() {
        Format::Table => table(args, &account)?,
        Format::Machine(machine) => {
            let counters = answers.snapshot.counters().named().chain([
                ("processes_count", counts.read + counts.missing),
                ("missing_count", counts.missing),
            ]);
            let sources = answers.sources().chain([("system", "meminfo")]).collect();
            let head = Head::new("mem", sources, counters);
            let options = RowOptions {
                header: !args.options.no_header,
                ..RowOptions::default()
            };
            let mut rows = Rows::begin(machine, &head, RELATION, options);
            let total = [
                Ok(Value::Text(b"total_bytes")),
                Ok(Value::Unsigned(account.total_bytes)),
                Ok(Value::Text(b"")),
            ];
            rows.row(|column| total[column])?;
            let lines = account.lines.iter().map(|line| (line, "total_bytes"));
            let free = account.free.iter().map(|line| (line, ""));
            for (line, whole) in lines.chain(free) {
                let part_of = if line.part_of.is_empty() { whole } else { line.part_of };
                let cells = [
                    Ok(Value::Text(line.name.as_bytes())),
                    line.bytes.map(Value::Signed).map_err(Absent::as_str),
                    Ok(Value::Text(part_of.as_bytes())),
                ];
                rows.row(|column| cells[column])?;
            }
            rows.finish()?;
        }
    }
    if args.options.stats {
        answers.say_stats(tasks.len());
    }
    let with_memory = (counts.read + counts.missing) as usize;
    Ok(whole.and(answers.report(&[(&missing, with_memory)])))
}

fn table(args: &Args, account: &Account) -> Result<(), Failure> {
    let cells = args.cells();
    let mut table = Table::new(
        [Align::Right, Align::Right, Align::Left, Align::Left],
        account.lines.len() + account.free.len(),
    )
    .wrapping();
    let mut row = |bytes: Result<i64, Absent>, whole: i64, depth: usize, name: &str, meaning: &str| {
        table.cell(|out| match bytes {
            Ok(bytes) => size(out, &cells, bytes),
            Err(_) => out.push(b'-'),
        });
        table.cell(|out| {
            let Ok(bytes) = bytes else {
                return out.push(b'-');
            };
            // Rounded, without a minus in front of nothing.
            let permille = (bytes as f64 * 1000.0 / whole.max(1) as f64).round() + 0.0;
            out.extend_from_slice(format!("{:.1}", permille / 10.0).as_bytes());
        });
        table.cell(|out| out.extend_from_slice(format!("{:1$}{name}", "", 2 * depth).as_bytes()));
        table.cell(|out| out.extend_from_slice(meaning.as_bytes()));
    };
    let mut depths: BTreeMap<&str, usize> = BTreeMap::new();
    let total = account.total_bytes as i64;
    row(Ok(total), total, 0, "total", "MemTotal");
    let swap = account.free.iter().find(|line| line.name == "swap_total_bytes");
    let swap = swap.map_or(0, |line| line.bytes.unwrap_or(0));
    let lines = account.lines.iter().map(|line| (line, 1));
    for (line, top) in lines.chain(account.free.iter().map(|line| (line, 0))) {
        let depth = depths.get(line.part_of).map_or(top, |depth| depth + 1);
        depths.insert(line.name, depth);
        let name = line.name.trim_end_matches("_bytes").replace('_', " ");
        let is_swap = top == 0 && line.name.starts_with("swap_");
        let whole = if is_swap { swap } else { total };
        row(line.bytes, whole, depth, &name, &line.meaning);
    }
    let mut output = Output::default();
    table.write(&mut output, terminal_width())?;
    Ok(output.finish()?)
}

fn size(out: &mut Vec<u8>, cells: &Cells, bytes: i64) {
    if bytes < 0 {
        out.push(b'-');
    }
    cells.size(out, bytes.unsigned_abs());
}
