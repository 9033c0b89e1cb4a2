//! Where samples are shown: a table that replaces the previous one, or rows for programs.

use std::collections::HashMap;

use taskdiag::Fields;

use super::{net, RatedTask, RELATION};
use crate::grouping::{Name, SumLayout};
use crate::history;
use crate::host::Host;
use crate::listing::{report_absences, Answers, Format, Options};
use crate::outcome::{counted, Failure, Outcome};
use crate::output::cell::Cells;
use crate::output::document::{Head, Sample};
use crate::output::listing::{self, ListingColumn};
use crate::output::relation::{Absences, Row as _};
use crate::output::rows::{RowOptions, Rows};
use crate::output::table::{Align, Table};
use crate::output::{people, terminal, text, Output};

/// How sums are written, those of groups, and the total.
pub type Sums<'a> = (&'a SumLayout, HashMap<Vec<Name>, net::Sum>, net::Sum);

/// Where samples are shown.
pub struct Screen<'a> {
    command: &'static str,
    options: &'a Options,
    shown: Vec<ListingColumn>,
    /// What was missing in the order and in what was shown, of how many tasks: in the sample that lacked
    /// most.
    missing: [(Absences, usize); 2],
    cells: Cells,
    /// Set for programs.
    rows: Option<Rows>,
    samples: u64,
    /// The machine at the previous sample.
    before: Option<Host>,
}

impl<'a> Screen<'a> {
    /// A screen that shows these columns.
    pub fn new(command: &'static str, options: &'a Options, shown: Vec<ListingColumn>) -> Screen<'a> {
        Screen {
            command,
            options,
            missing: Default::default(),
            cells: Cells::new(options.bytes, options.names),
            rows: None,
            samples: 0,
            shown,
            before: None,
        }
    }

    /// Counts what these tasks of a sample lack: in the order, 0, or in what is shown, 1.
    pub fn count(&mut self, which: usize, fields: Fields, tasks: &[RatedTask<'_>]) {
        let mut missing = Absences::default();
        for row in tasks {
            fields
                .iter()
                .for_each(|field| _ = missing.value(&row.task, field as usize));
        }
        let all = |absences: &Absences| absences.summary().iter().map(|(.., count)| count).sum::<u32>();
        if all(&missing) > all(&self.missing[which].0) {
            self.missing[which] = (missing, tasks.len());
        }
    }

    /// Shows a sample: tasks, or sums of them.
    pub fn show(
        &mut self,
        sample: Sample<'_>,
        answers: &Answers,
        tasks: &[RatedTask<'_>],
        sums: Option<Sums<'_>>,
    ) -> Result<(), Failure> {
        self.samples += 1;
        let Format::Machine(machine) = self.options.format() else {
            let mut output = Output::default();
            self.table(sample, tasks, sums, &mut output)?;
            return Ok(output.finish()?);
        };
        if let Some((layout, sums, total)) = sums {
            let rows = self.rows.get_or_insert_with(|| {
                let head = Head::streaming(self.command, answers.sources().collect());
                layout.begin::<net::Sum>(machine, !self.options.no_header, &head, true)
            });
            layout.write_rows(sums, &total, rows, Some(sample))?;
            return Ok(rows.flush()?);
        }
        let columns: Vec<usize> = self.shown.iter().flat_map(|shown| shown.content.needs()).collect();
        let rows = self.rows.get_or_insert_with(|| {
            let options = RowOptions {
                header: !self.options.no_header,
                named: self.options.names,
                samples: true,
            };
            let head = Head::streaming(self.command, answers.sources().collect());
            Rows::begin(machine, &head, columns.iter().map(|&column| RELATION[column]), options)
        });
        rows.sample(sample, tasks.len())?;
        for row in tasks {
            rows.row(|index| row.cell(columns[index]))?;
        }
        Ok(rows.flush()?)
    }

    /// A table for each sample. On a terminal it replaces the previous one, and is no longer than
    /// the screen.
    fn table(
        &mut self,
        sample: Sample<'_>,
        rows: &[RatedTask<'_>],
        sums: Option<Sums<'_>>,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let size = terminal::size();
        // The summary, the heading, and the line of the cursor.
        let limit = size.map_or(usize::MAX, |size| size.rows.saturating_sub(3));
        let count = rows.len();
        match size {
            Some(_) => output.buffer.extend_from_slice(b"\x1b[H\x1b[2J"),
            None if sample.number > 0 => output.buffer.push(b'\n'),
            None => {}
        }
        if !self.options.no_header {
            let mut summary = Table::new([Align::Left], 1);
            summary.cell(|out| out.extend_from_slice(self.summary(sample, count).as_bytes()));
            summary.write(output, size.map(|size| size.columns))?;
        }
        if let Some((layout, sums, total)) = sums {
            let mut form = self.options.form(Cells::new(self.options.bytes, self.options.names));
            let mut sums = layout.sort(sums);
            // Below them is the total.
            sums.truncate(limit.saturating_sub(1));
            let mut table = layout.table(&sums, &total, &mut form);
            return Ok(table.write(output, size.map(|size| size.columns))?);
        }
        let rows = &rows[..count.min(limit)];
        let mut table = listing::table(&self.shown, &RELATION, rows.len(), !self.options.no_header);
        for row in rows {
            for shown in &self.shown {
                table.cell(|out| shown.write(out, &RELATION, row, &mut self.cells, &mut Absences::default()));
            }
        }
        Ok(table.write(output, size.map(|size| size.columns))?)
    }

    /// The state of the machine in one line: the time, load, processors since the previous sample,
    /// memory; of a recording, the period.
    fn summary(&mut self, sample: Sample<'_>, tasks: usize) -> String {
        let tasks = counted(tasks as u64, "task");
        if let Some(moment) = history::shown() {
            let end_ns = moment.time.wall_ns;
            let of_ns = moment.span.as_ref().map_or(0, |span| span.of_ns);
            let begin = history::precise(end_ns.saturating_sub_unsigned(of_ns));
            return format!("{begin} to {}  {tasks} shown", history::precise(end_ns));
        }
        let host = Host::read();
        let mut text = text::written(|out| self.cells.clock().local(out, sample.time.as_bytes()));
        if let Some(load) = &host.load {
            text.push_str(&format!("  load {}", load.averages.join(" ")));
        }
        if let Some(before) = &self.before {
            let busy = host.stat.all.since(&before.stat.all).busy();
            text.push_str(&format!("  cpu {:.1}%", busy * 100.0));
        }
        if let Some(memory) = host.memory {
            let (used, total) = (people::size_text(memory.used), people::size_text(memory.total));
            text.push_str(&format!("  memory {used}/{total}"));
        }
        text.push_str(&format!("  {tasks} shown"));
        self.before = Some(host);
        text
    }

    /// Writes the end, and reports the values that were missing.
    pub fn finish(self) -> Result<Outcome, Failure> {
        if let Some(rows) = self.rows {
            rows.finish_samples(self.samples)?;
        }
        let missing = self.missing.each_ref();
        Ok(report_absences(&missing.map(|(absences, tasks)| (absences, *tasks))))
    }
}
