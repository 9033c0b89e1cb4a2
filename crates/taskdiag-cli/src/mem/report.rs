//! Writes the answers of `taskdiag mem`.

use taskdiag::{Absent, Field, Handle, Query, Task, Value};

use super::sums::{self, Sum};
use super::{progress, Args, RowKind, HUGETLB};
use crate::listing::{Answers, Format, Listing, Machine};
use crate::outcome::{Failure, Outcome};
use crate::output::cell::{Cells, Column, Show};
use crate::output::document::{self, Head, Sample};
use crate::output::named::{write_total, Rows, Total};
use crate::output::names::Names;
use crate::output::table::{Align, Table};
use crate::output::Cell;
use crate::output::{terminal, Absences, Output};
use crate::selection;

/// Runs queries and writes the answers.
pub struct Report<'a> {
    args: &'a Args,
    kind: RowKind,
    cells: Cells,
    names: Names,
}

impl Report<'_> {
    /// A report with rows of some kind.
    pub fn new(args: &Args, kind: RowKind) -> Report<'_> {
        Report {
            args,
            kind,
            cells: args.cells(),
            names: Names::default(),
        }
    }

    /// Runs the query once and writes the answer. `sample` is the number of the sample, if there
    /// are several.
    pub fn sample(&mut self, handle: &mut Handle, query: &Query, sample: Option<u64>) -> Result<Outcome, Failure> {
        let time = document::now();
        let sample = sample.map(|number| Sample { number, time: &time });
        let line = progress::ProgressLine::begin(handle.progress());
        let answers = Answers::ask(handle, query)?;
        drop(line);
        let mut tasks = answers.tasks();
        // Processes named on the command line are shown even if they have no memory.
        if self.args.selection.pids().is_empty() {
            tasks.retain(sums::has_memory);
        }
        let mut total = Sum::default();
        tasks.iter().for_each(|task| total.add(task));
        let mut missing = Absences::new();
        for task in &tasks {
            // Fields that are not shown may still be missing from the sums.
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
        // The messages would be the same for every sample.
        if sample.is_some_and(|sample| sample.number > 0) {
            return Ok(Outcome::Complete);
        }
        let cgroup = self.args.selection.check_cgroup(handle, &answers);
        Ok(answers.report(&[(&missing, count)]).and(cgroup))
    }

    fn limit(&self) -> usize {
        self.args.limit.unwrap_or(usize::MAX)
    }

    fn table(
        &mut self,
        tasks: &mut Vec<Task<'_>>,
        total: &Sum,
        sample: Option<Sample<'_>>,
        missing: &mut Absences,
    ) -> Result<(), Failure> {
        let mut output = Output::new();
        let size = terminal::size();
        let width = size.map(|size| size.columns);
        let mut limit = self.limit();
        match (sample, size) {
            (Some(_), Some(size)) => {
                // The heading, the total, the line with the cursor, and one for a message.
                limit = limit.min(size.rows.saturating_sub(4));
                output.buffer().extend_from_slice(b"\x1b[H\x1b[2J");
            }
            (Some(sample), None) if sample.number > 0 => output.buffer().push(b'\n'),
            _ => {}
        }
        let header = !self.args.options.no_header;
        match &self.kind {
            RowKind::Processes { columns, sort, .. } => {
                let mut columns = columns.clone();
                let rss = |column: &Column| matches!(column.show, Show::Field(Field::RollupRssBytes));
                if let (true, true, Some(rss)) = (
                    total.has_hugetlb(),
                    self.args.options.fields.is_empty(),
                    columns.iter().position(rss),
                ) {
                    columns.splice(rss + 1..rss + 1, HUGETLB);
                }
                // Missing values are counted when they are shown.
                selection::sort(tasks, sort, missing, |_| false);
                tasks.truncate(limit);
                let mut table = Column::table(&columns, tasks.len() + 1, header);
                let mut shown = Absences::new();
                for task in &*tasks {
                    for &column in &columns {
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
                self.total_row(&mut table, &columns, total);
                table.write(&mut output, width)?;
            }
            RowKind::Sums(by, orders) => {
                let mut sums = sums::sums(tasks, *by);
                sums::sort(&mut sums, orders);
                sums.truncate(limit);
                let mut table = sum_table(header, by.grouping().heading, total);
                for (name, sum) in &sums {
                    sum_cells(&self.cells, &mut table, sum, total);
                    table.cell(|out| name.write(out, &mut self.names));
                }
                sum_cells(&self.cells, &mut table, total, total);
                table.cell(|out| out.extend_from_slice(b"total"));
                table.write(&mut output, width)?;
            }
            RowKind::Total => {
                let mut table = sum_table(header, "", total);
                sum_cells(&self.cells, &mut table, total, total);
                table.cell(|out| out.extend_from_slice(b"total"));
                table.write(&mut output, width)?;
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
        sample: Option<Sample<'_>>,
        missing: &mut Absences,
    ) -> Result<(), Failure> {
        let header = !self.args.options.no_header && sample.is_none_or(|sample| sample.number == 0);
        let counters = answers.snapshot().counters().named();
        let head = Head::new("mem", answers.sources().collect(), counters);
        let (total_keys, total_cells) = (Sum::keys(), total.cells());
        let total_row = Some((&total_keys[..], &total_cells[..]));
        match &self.kind {
            RowKind::Processes { fields, sort, .. } => {
                selection::sort(tasks, sort, missing, |_| false);
                tasks.truncate(self.limit());
                let listing = Listing {
                    fields,
                    tasks,
                    depths: None,
                    sample,
                    total: total_row,
                    header,
                    names: self.args.options.names,
                };
                // The fields of the sums have been counted, for all processes.
                let mut shown = Absences::new();
                answers.write("mem", machine, listing, &mut shown)?;
                missing.add_others(&shown, &sums::FIELDS);
            }
            RowKind::Sums(by, sort) => {
                let mut sums = sums::sums(tasks, *by);
                sums::sort(&mut sums, sort);
                sums.truncate(self.limit());
                let mut rows = SumRows::begin(machine, &head, by.grouping().keys, sample, header, sums.len());
                for (name, sum) in &sums {
                    rows.row(&name.cells(by.grouping(), &mut self.names), sum)?;
                }
                rows.finish(total_row)?;
            }
            RowKind::Total => {
                let mut rows = SumRows::begin(machine, &head, &[], sample, header, 1);
                rows.row(&[], total)?;
                rows.finish(None)?;
            }
        }
        Ok(())
    }
}

/// Sums in machine-readable output.
struct SumRows<'a> {
    rows: Rows,
    /// The first cells of each row: the number and the time of the sample.
    sample: Vec<Cell<'a>>,
}

impl<'a> SumRows<'a> {
    fn begin(
        machine: Machine,
        head: &Head<'_>,
        names: &[&'static str],
        sample: Option<Sample<'a>>,
        header: bool,
        count: usize,
    ) -> SumRows<'a> {
        let mut keys = Vec::new();
        let mut cells: Vec<Cell<'a>> = Vec::new();
        if let Some(sample) = sample {
            keys.push("sample");
            cells.push(Ok(Value::Unsigned(sample.number)));
            // In JSON lines, the line that starts the sample has the time.
            if machine == Machine::Csv {
                keys.push("time");
                cells.push(Ok(Value::Text(sample.time.as_bytes())));
            }
        }
        keys.extend(names);
        keys.extend(Sum::keys());
        let mut rows = Rows::begin(machine, head, keys, header);
        if let Some(sample) = sample {
            rows.sample(sample, count);
        }
        SumRows { rows, sample: cells }
    }

    fn row(&mut self, names: &[Cell<'_>], sum: &Sum) -> std::io::Result<()> {
        let sum = sum.cells();
        let cells: Vec<Cell<'_>> = self.sample.iter().chain(names).chain(&sum).copied().collect();
        self.rows.row(&cells)
    }

    fn finish(self, total: Total<'_>) -> std::io::Result<()> {
        self.rows.finish_with(|out| write_total(out, total))
    }
}

/// Appends the age of a process's values, in seconds.
fn age(out: &mut Vec<u8>, task: &Task<'_>) {
    match task.rollup_age_ns() {
        Ok(ns) => out.extend_from_slice(format!("{:.1}s", ns as f64 / 1e9).as_bytes()),
        Err(_) => out.push(b'-'),
    }
}

/// The sizes in a table of sums: those of hugetlbfs only if a process has some.
fn shown_sizes(total: &Sum) -> usize {
    if total.has_hugetlb() {
        sums::FIELDS.len()
    } else {
        sums::SIZES
    }
}

fn sum_table(header: bool, heading: &str, total: &Sum) -> Table {
    let sizes = ["SWAP", "USS", "PSS", "RSS"]
        .into_iter()
        .chain(HUGETLB.map(|column| column.heading));
    let headings = ["COUNT"].into_iter().chain(sizes.take(shown_sizes(total)));
    let aligns = headings.clone().map(|_| Align::Right).chain([Align::Left]);
    let mut table = Table::new(aligns, 32);
    if header {
        table.headings(headings.chain([heading]));
    }
    table
}

fn sum_cells(cells: &Cells, table: &mut Table, sum: &Sum, total: &Sum) {
    table.cell(|out| out.extend_from_slice(sum.count().as_bytes()));
    for bytes in sum.bytes().into_iter().take(shown_sizes(total)) {
        table.cell(|out| sum_cell(cells, out, bytes));
    }
}

fn sum_cell(cells: &Cells, out: &mut Vec<u8>, bytes: Result<u64, Absent>) {
    match bytes {
        Ok(bytes) => cells.size(out, bytes),
        Err(_) => out.push(b'-'),
    }
}
