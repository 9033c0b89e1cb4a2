//! Where samples are shown: a table that replaces the previous one, or rows for programs.

use taskdiag::Field;

use super::rates::{Rate, Rates};
use super::{RatedTask, WatchColumn};
use crate::host::Host;
use crate::listing::{report_absences, Format, Machine, Options};
use crate::outcome::{Failure, Outcome};
use crate::output::cell::{Cells, Column, Show};
use crate::output::document::{self, Sample};
use crate::output::names::Names;
use crate::output::table::{Align, Table};
use crate::output::{csv, json, people, terminal, Absences, Extra, NoValues, Output};

/// Where samples are shown.
pub struct Screen<'a> {
    options: &'a Options,
    shown: Vec<WatchColumn>,
    fields: Vec<Field>,
    rates: Vec<Rate>,
    missing: Absences,
    cells: Cells,
    names: Names,
    rows: json::Rows<Field>,
    /// The machine at the previous sample.
    before: Option<Host>,
}

impl<'a> Screen<'a> {
    /// A screen that shows these columns.
    pub fn new(options: &'a Options, shown: Vec<WatchColumn>) -> Screen<'a> {
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
            options,
            rates: rates.collect(),
            missing: Absences::new(),
            cells: Cells::new(options.bytes, options.names),
            names: Names::default(),
            rows: json::Rows::new(&fields, options.names),
            fields,
            shown,
            before: None,
        }
    }

    /// The extra cells of a row, after its fields: its sample, and the rates.
    fn extras<'b>(&self, sample: Sample<'b>, rates: &Rates) -> Vec<(&'static str, Result<Extra<'b>, &'static str>)> {
        let rate = |rate: &Rate| (rate.name(), rates[*rate as usize].map(Extra::Rate));
        sample.extras().into_iter().chain(self.rates.iter().map(rate)).collect()
    }

    /// Shows a sample.
    pub fn show(&mut self, sample: Sample<'_>, rows: &[RatedTask<'_>]) -> Result<(), Failure> {
        for field in self.rates.iter().flat_map(|rate| rate.fields()) {
            for (task, _) in rows {
                let _ = self.missing.value(task, *field);
            }
        }
        let mut output = Output::new();
        match self.options.format() {
            Format::Table => self.table(sample, rows, &mut output)?,
            Format::Machine(Machine::Csv) => self.csv(sample, rows, &mut output)?,
            Format::Machine(Machine::Json | Machine::Jsonl) => {
                document::sample(output.buffer(), sample, rows.len());
                for (task, rates) in rows {
                    let mut extras = self.extras(sample, rates);
                    // The line above contains the time.
                    extras.retain(|(name, _)| *name != "time");
                    self.rows.write(output.buffer(), task, &extras, &mut self.missing);
                    output.buffer().push(b'\n');
                    output.row_ended()?;
                }
            }
        }
        Ok(output.finish()?)
    }

    fn csv(&mut self, sample: Sample<'_>, rows: &[RatedTask<'_>], output: &mut Output) -> Result<(), Failure> {
        let named = self.options.names;
        if sample.number == 0 && !self.options.no_header {
            let fields = csv::columns(&self.fields, named);
            let extras = self.extras(sample, &[Err(""); Rate::ALL.len()]);
            let extras = extras.iter().map(|(name, _)| (*name).to_owned());
            csv::header(output.buffer(), fields.into_iter().chain(extras));
        }
        if rows.is_empty() {
            let extras = self.extras(sample, &[Err(""); Rate::ALL.len()]);
            let names = named.then_some(&mut self.names);
            let none = NoValues::<Field>::default();
            csv::row(output.buffer(), &self.fields, &none, &extras, names, &mut self.missing);
            output.buffer().push(b'\n');
        }
        for (task, rates) in rows {
            let extras = self.extras(sample, rates);
            let names = named.then_some(&mut self.names);
            csv::row(output.buffer(), &self.fields, task, &extras, names, &mut self.missing);
            output.buffer().push(b'\n');
            output.row_ended()?;
        }
        Ok(())
    }

    /// A table for each sample. On a terminal it replaces the previous one, and is no longer than
    /// the screen.
    fn table(&mut self, sample: Sample<'_>, rows: &[RatedTask<'_>], output: &mut Output) -> Result<(), Failure> {
        let size = terminal::size();
        // The summary, the heading, and the line of the cursor.
        let limit = size.map_or(usize::MAX, |size| size.rows.saturating_sub(3));
        let count = rows.len();
        let rows = &rows[..count.min(limit)];
        match size {
            Some(_) => output.buffer().extend_from_slice(b"\x1b[H\x1b[2J"),
            None if sample.number > 0 => output.buffer().push(b'\n'),
            None => {}
        }
        if !self.options.no_header {
            let summary = self.summary(sample, count);
            let width = size.map_or(usize::MAX, |size| size.columns);
            // It contains only ASCII.
            output
                .buffer()
                .extend_from_slice(&summary.as_bytes()[..summary.len().min(width)]);
            output.buffer().push(b'\n');
        }
        let aligns = self.shown.iter().map(|shown| match shown {
            WatchColumn::Column(column) => column.align(),
            WatchColumn::Rate(_) => Align::Right,
        });
        let mut table = Table::new(aligns, rows.len());
        if !self.options.no_header {
            let named = !self.options.fields.is_empty();
            table.headings(self.shown.iter().map(|shown| match shown {
                WatchColumn::Column(column) => column.heading,
                WatchColumn::Rate(rate) if named => rate.name(),
                WatchColumn::Rate(rate) => rate.heading(),
            }));
        }
        for (task, rates) in rows {
            for shown in &self.shown {
                table.cell(|out| match shown {
                    WatchColumn::Column(column) => self.cells.write(out, *column, task, &mut self.missing),
                    WatchColumn::Rate(rate) => write_rate(out, *rate, rates[*rate as usize].ok(), self.options.bytes),
                });
            }
        }
        Ok(table.write(output, size.map(|size| size.columns))?)
    }

    /// The state of the machine in one line: the time, load, processors since the previous sample,
    /// memory.
    fn summary(&mut self, sample: Sample<'_>, tasks: usize) -> String {
        let host = Host::read();
        let mut text = sample.time.to_owned();
        if let Some(load) = &host.load {
            text.push_str(&format!("  load {}", load.averages.join(" ")));
        }
        if let Some(before) = &self.before {
            let busy = host.stat.all.since(&before.stat.all).busy();
            text.push_str(&format!("  cpu {:.1}%", busy * 100.0));
        }
        if let Some(memory) = host.memory {
            let mut sizes = Vec::new();
            people::size(&mut sizes, memory.used);
            sizes.push(b'/');
            people::size(&mut sizes, memory.total);
            text.push_str(&format!("  memory {}", String::from_utf8_lossy(&sizes)));
        }
        text.push_str(&format!("  tasks {tasks}"));
        self.before = Some(host);
        text
    }

    /// Reports the values that were missing in any sample.
    pub fn outcome(&self) -> Outcome {
        report_absences(&[(&self.missing, 0)])
    }
}

/// Appends a rate; `-` if there is none.
pub fn write_rate(out: &mut Vec<u8>, rate: Rate, value: Option<f64>, exact: bool) {
    match value {
        None => out.push(b'-'),
        Some(bytes) if matches!(rate, Rate::ReadBytes | Rate::WriteBytes) && !exact => people::size(out, bytes as u64),
        Some(rate) => Extra::Rate(rate).write(out),
    }
}
