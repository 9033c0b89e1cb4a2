//! Writes the answers of `taskdiag mem`.

use taskdiag::{Absent, Field, Fields, Handle, Query, Task, Value};

use super::sums::{self, Sum};
use super::{progress, Args, RowKind, HUGETLB};
use crate::grouping::Sum as _;
use crate::listing::{Answers, Format, Machine, TaskRows};
use crate::outcome::{counted, say, Failure, Outcome};
use crate::output::cell::Cells;
use crate::output::document::{self, Head, Sample};
use crate::output::listing::{Content, ListingColumn};
use crate::output::relation::Absences;
use crate::output::rows::{write_total, Rows};
use crate::output::table::Table;
use crate::output::{tasks, terminal, Output};
use crate::selection;

/// Runs queries and writes the answers.
pub struct Report<'a> {
    args: &'a Args,
    kind: RowKind,
    cells: Cells,
    /// Rows for programs, while more samples follow.
    rows: Option<Rows>,
}

impl Report<'_> {
    /// A report with rows of some kind.
    pub fn new(args: &Args, kind: RowKind) -> Report<'_> {
        Report {
            args,
            kind,
            cells: args.cells(),
            rows: None,
        }
    }

    /// Writes the end, after this many samples.
    pub fn finish(self, samples: u64) -> Result<(), Failure> {
        Ok(self.rows.map_or(Ok(()), |rows| rows.finish_samples(samples))?)
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
        if self.args.selection.processes.pids.is_empty() {
            tasks.retain(sums::has_memory);
        }
        let mut total = Sum::default();
        tasks.iter().for_each(|task| total.add(task));
        // What is not shown may still be missing from the sums and from the order.
        let mut of_all: Fields = total.fields().into_iter().collect();
        if let RowKind::Processes { sort, .. } = &self.kind {
            of_all |= sort.iter().map(|by| by.key).collect::<Fields>();
        }
        let of_all: Vec<Field> = of_all.iter().collect();
        let mut missing = Absences::default();
        for task in &tasks {
            for &field in &of_all {
                let _ = missing.value(task, field as usize);
            }
        }
        let count = tasks.len();
        let mut shown = Absences::default();
        match self.args.options.format() {
            Format::Table => self.table(&mut tasks, &total, sample, &mut shown)?,
            Format::Machine(machine) => self.machine(machine, &answers, &mut tasks, &total, sample, &mut shown)?,
        }
        let shown = shown.without(&of_all);
        if self.args.options.stats {
            answers.say_stats(count);
        }
        // The messages would be the same for every sample.
        if sample.is_some_and(|sample| sample.number > 0) {
            return Ok(Outcome::Complete);
        }
        let found = self.args.selection.processes.check_found(handle, &answers);
        // What ended is missing from the sums, but that is nothing wrong.
        let ended = tasks
            .iter()
            .filter(|task| task.pss_bytes() == Err(Absent::Gone))
            .count();
        if ended > 0 && self.args.options.format() == Format::Table {
            say(format_args!(
                "{} ended while being read",
                counted(ended as u64, "process")
            ));
        }
        Ok(answers.report(&[(&missing, count), (&shown, tasks.len())]).and(found))
    }

    fn table(
        &mut self,
        processes: &mut Vec<Task<'_>>,
        total: &Sum,
        sample: Option<Sample<'_>>,
        missing: &mut Absences,
    ) -> Result<(), Failure> {
        let mut output = Output::default();
        let size = terminal::size();
        let width = size.map(|size| size.columns);
        let mut limit = self.args.order.limit();
        match (sample, size) {
            (Some(_), Some(size)) => {
                // The heading, the total, the line with the cursor, and one for a message.
                limit = limit.min(size.rows.saturating_sub(4));
                output.buffer.extend_from_slice(b"\x1b[H\x1b[2J");
            }
            (Some(sample), None) if sample.number > 0 => output.buffer.push(b'\n'),
            _ => {}
        }
        let header = !self.args.options.no_header;
        let mut table = match &self.kind {
            RowKind::Processes { columns, sort, .. } => {
                let mut columns = columns.clone();
                let rss = tasks::shown_as("RSS", Field::RollupRssBytes);
                if let (true, true, Some(rss)) = (
                    total.has_hugetlb(),
                    self.args.options.fields.is_empty(),
                    columns.iter().position(|shown| *shown == rss),
                ) {
                    columns.splice(rss + 1..rss + 1, HUGETLB);
                }
                if self.args.options.fields.is_empty() && total.has_counters() {
                    for shown in &mut columns {
                        let place = |field| sums::FIELDS.iter().position(|&summed| summed == field);
                        if let Some(place) = tasks::field_of(shown).and_then(place) {
                            shown.content = Content::Column(sums::COUNTERS[place] as usize);
                        }
                    }
                }
                let bytes = |task: &Task<'_>, field| match task.value(field) {
                    Ok(Value::Unsigned(bytes)) => Some(bytes),
                    value => value.err().filter(|reason| *reason == Absent::NoMemory).map(|_| 0),
                };
                let counters = [Field::RssBytes, Field::SwapBytes];
                let counters = counters.map(|field| (field, processes.iter().map(|task| bytes(task, field)).sum()));
                selection::sort(processes, sort, &mut Absences::default());
                processes.truncate(limit);
                let mut table = tasks::table(&columns, processes.len() + 1, header);
                for task in &*processes {
                    for shown in &columns {
                        table.cell(|out| shown.write(out, &tasks::RELATION, task, &mut self.cells, missing));
                    }
                }
                self.total_row(&mut table, &columns, total, &counters);
                table
            }
            RowKind::Sums(layout) => {
                let mut sums = layout.sort(sums::sums(processes, layout));
                sums.truncate(limit);
                layout.table(&sums, total, &mut self.args.form())
            }
        };
        table.write(&mut output, width)?;
        Ok(output.finish()?)
    }

    /// The last row of a table of processes. `counters` are sums of the kernel's own sizes.
    fn total_row(&self, table: &mut Table, columns: &[ListingColumn], total: &Sum, counters: &[(Field, Option<u64>)]) {
        for (index, shown) in columns.iter().enumerate() {
            let place = |field| total.fields().iter().position(|&summed| summed == field);
            let field = tasks::field_of(shown);
            let bytes = field.and_then(place).map(|index| total.bytes()[index].ok());
            let of_counter = || counters.iter().find(|(counter, _)| Some(*counter) == field);
            let bytes = bytes.or_else(|| of_counter().map(|(_, sum)| *sum));
            table.cell(|out| match bytes {
                Some(Some(bytes)) => self.cells.size(out, bytes),
                Some(None) => out.push(b'-'),
                None if shown.content == Content::Composite(&tasks::COMMAND) => {
                    let (all, count) = (counted(total.processes, "process"), total.count());
                    let read = count.strip_suffix(&total.processes.to_string()).unwrap_or_default();
                    out.extend_from_slice(format!("{read}{all}").as_bytes());
                }
                None if index == 0 => out.extend_from_slice(b"total"),
                None => {}
            });
        }
    }

    fn machine(
        &mut self,
        machine: Machine,
        answers: &Answers,
        processes: &mut Vec<Task<'_>>,
        total: &Sum,
        sample: Option<Sample<'_>>,
        missing: &mut Absences,
    ) -> Result<(), Failure> {
        let header = !self.args.options.no_header;
        let begun = self.rows.take();
        let rows = match &self.kind {
            RowKind::Processes { fields, sort, .. } => {
                selection::sort(processes, sort, &mut Absences::default());
                processes.truncate(self.args.order.limit());
                let (columns, cells) = (Sum::columns(), total.cells());
                let listed = TaskRows {
                    fields,
                    tasks: processes,
                    depths: None,
                    sample,
                    total: Some((&columns, &cells)),
                    options: &self.args.options,
                };
                let mut rows = begun.unwrap_or_else(|| answers.begin("mem", machine, listed));
                listed.write(&mut rows, missing, None)?;
                if sample.is_none() {
                    return Ok(rows.finish_with(|out| write_total(out, listed.total))?);
                }
                rows
            }
            RowKind::Sums(layout) => {
                let begin = || {
                    let (sources, counters) = (answers.sources().collect(), answers.snapshot.counters());
                    let head = match sample {
                        None => Head::new("mem", sources, counters.named()),
                        Some(_) => Head::streaming("mem", sources),
                    };
                    layout.begin::<Sum>(machine, header, &head, sample.is_some())
                };
                let mut rows = begun.unwrap_or_else(begin);
                layout.write_rows(sums::sums(processes, layout), total, &mut rows, sample)?;
                if sample.is_none() {
                    return Ok(rows.finish_with(|out| layout.write_total(total, out))?);
                }
                rows
            }
        };
        self.rows.insert(rows).flush()?;
        Ok(())
    }
}
