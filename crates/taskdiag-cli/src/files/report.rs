//! The output of `taskdiag files`: rows or sums, and what is missing.

use std::ops::ControlFlow;

use taskdiag::files::{Answer, OpenFile, Request};
use taskdiag::{Absent, Handle, Value};

use super::row::{self, Cells, OwnedCells, KEYS};
use super::sums::{By, Sum, Sums};
use super::{Args, Column, Show};
use crate::choice::{InOrder, SortBy, SumKey};
use crate::grouping::Name;
use crate::listing::{Answers, Format, Machine};
use crate::outcome::{counted, no_answer_from, say, say_denied, Failure, Outcome, WhoMay};
use crate::output::document::{self, Head};
use crate::output::named::{self, write_total, write_value, Rows, Total};
use crate::output::names::Names;
use crate::output::table::{terminal_width, Align, Table};
use crate::output::Cell;
use crate::output::{cell, people, Output};

/// The number of values missing in the written rows, by reason.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    denied: u64,
    silent: u64,
    no_thread: u64,
    truncated: u64,
}

impl Missing {
    fn count(&mut self, file: &OpenFile<'_>) {
        let values = [
            file.name.err(),
            file.kind.err(),
            file.nlink.err(),
            file.allocated_bytes.err(),
            file.open_flags.err(),
            file.detail.err(),
            file.peers.err(),
        ];
        let has = |reason: Absent| values.contains(&Some(reason));
        self.denied += u64::from(has(Absent::Denied));
        self.silent += u64::from(has(Absent::NoAnswer));
        self.no_thread += u64::from(has(Absent::NoThread));
        self.truncated += u64::from(has(Absent::Truncated));
    }
}

/// Writes an answer.
pub(super) struct Report<'a> {
    args: &'a Args,
    request: &'a Request,
    processes: &'a Answers,
    /// The sum of all files, including those beyond `--limit`.
    total: Sum,
    missing: Missing,
}

impl<'a> Report<'a> {
    pub(super) fn new(args: &'a Args, request: &'a Request, processes: &'a Answers) -> Report<'a> {
        Report {
            args,
            request,
            processes,
            total: Sum::default(),
            missing: Missing::default(),
        }
    }

    /// Passes rows to `each` until it stops: in the order of processes, or sorted.
    fn each_row(
        &mut self,
        handle: &mut Handle,
        sort: &[SortBy<usize>],
        mut each: impl FnMut(&Cells<'_>) -> std::io::Result<()>,
    ) -> Result<Answer, Failure> {
        let needs_total = self.args.deleted;
        let mut rows = InOrder::new(!sort.is_empty(), self.args.limit);
        let answer = handle.files(self.processes.snapshot(), self.request, |task, file| {
            if needs_total {
                self.total.add(task, file);
            }
            self.missing.count(file);
            let cells = row::cells(task, file);
            match rows.take(|| OwnedCells::new(&cells), || each(&cells)) {
                ControlFlow::Break(()) if needs_total && !rows.has_failed() => ControlFlow::Continue(()),
                flow => flow,
            }
        })?;
        rows.finish(
            |a, b| named::compare(sort, a, b, OwnedCells::compared),
            |row| each(&row.cells()),
        )?;
        Ok(answer)
    }

    pub(super) fn table(
        &mut self,
        handle: &mut Handle,
        columns: &[Column],
        sort: &[SortBy<usize>],
    ) -> Result<Answer, Failure> {
        let (exact, header, deleted) = (self.args.output.bytes, !self.args.output.no_header, self.args.deleted);
        let mut table = Table::new(columns.iter().map(Column::align), 0);
        if header {
            table.headings(columns.iter().map(|column| column.heading));
        }
        let answer = self.each_row(handle, sort, |cells| {
            for column in columns {
                table.cell(|out| column.write(out, cells, exact));
            }
            Ok(())
        })?;
        if deleted {
            self.total_row(&mut table, columns);
        }
        let mut output = Output::new();
        table.write(&mut output, terminal_width())?;
        output.finish()?;
        Ok(answer)
    }

    /// The last row of a table of deleted files. Each file counts once, no matter how often it is
    /// open.
    fn total_row(&self, table: &mut Table, columns: &[Column]) {
        let [_, processes, _, files] = self.total.counts();
        for (index, column) in columns.iter().enumerate() {
            table.cell(|out| match column.show {
                Show::Key(row::ALLOCATED) => self.deleted_bytes(out, &self.total),
                Show::Key(row::NAME) => {
                    cell::formatted(
                        out,
                        format_args!("{}, held by {}", counted(files, "file"), counted(processes, "process")),
                    );
                }
                _ if index == 0 => out.extend_from_slice(b"total"),
                _ => {}
            });
        }
    }

    /// Appends the space of deleted files.
    fn deleted_bytes(&self, out: &mut Vec<u8>, sum: &Sum) {
        let bytes = sum.deleted_bytes().map(Value::Unsigned).map_err(Absent::as_str);
        write_value(out, &KEYS[row::ALLOCATED], bytes, self.args.output.bytes);
    }

    pub(super) fn rows(
        &mut self,
        handle: &mut Handle,
        machine: Machine,
        keys: &[usize],
        sort: &[SortBy<usize>],
    ) -> Result<Answer, Failure> {
        let names = keys.iter().map(|&key| KEYS[key].name).collect();
        let head = self.head(handle)?;
        let mut output = Rows::begin(machine, &head, names, !self.args.output.no_header);
        let answer = self.each_row(handle, sort, |cells| {
            let row: Vec<Cell<'_>> = keys.iter().map(|&key| cells[key]).collect();
            output.row(&row)
        })?;
        let total = self.args.deleted.then(|| self.total.cells());
        let total: Total<'_> = total.as_ref().map(|cells| (&Sum::KEYS[..], &cells[..]));
        output.finish_with(|out| {
            document::counts(out, answer.named());
            write_total(out, total);
        })?;
        Ok(answer)
    }

    fn head(&self, handle: &mut Handle) -> Result<Head<'static>, Failure> {
        let source = handle.prepare_files(self.processes.snapshot())?;
        Ok(Head::streaming("files", vec![("files", source.name())]))
    }

    pub(super) fn sums(
        &mut self,
        handle: &mut Handle,
        format: Format,
        by: By,
        sort: &[SortBy<SumKey>],
    ) -> Result<Answer, Failure> {
        let head = self.head(handle)?;
        let mut sums = Sums::new(by);
        let answer = handle.files(self.processes.snapshot(), self.request, |task, file| {
            self.total.add(task, file);
            self.missing.count(file);
            sums.add(task, file);
            ControlFlow::Continue(())
        })?;
        let mut sums = sums.sorted(sort);
        sums.truncate(self.args.limit.unwrap_or(usize::MAX));
        let mut names = Names::default();
        match format {
            Format::Table => self.sum_table(by, &sums, &mut names)?,
            Format::Machine(machine) => {
                let keys = by.grouping().keys.iter().copied().chain(Sum::KEYS).collect();
                let mut rows = Rows::begin(machine, &head, keys, !self.args.output.no_header);
                for (name, sum) in &sums {
                    let mut cells = name.cells(by.grouping(), &mut names);
                    cells.extend(sum.cells());
                    rows.row(&cells)?;
                }
                let total = self.total.cells();
                rows.finish_with(|out| {
                    document::counts(out, answer.named());
                    write_total(out, Some((&Sum::KEYS, &total)));
                })?;
            }
        }
        Ok(answer)
    }

    fn sum_table(&self, by: By, sums: &[(Name, Sum)], names: &mut Names) -> Result<(), Failure> {
        let headings = ["OPEN", "PROCESSES", "FILES", "DELETED", "HELD"];
        let aligns = headings.iter().map(|_| Align::Right).chain([Align::Left]);
        let mut table = Table::new(aligns, sums.len() + 1);
        if !self.args.output.no_header {
            table.headings(headings.into_iter().chain([by.grouping().heading]));
        }
        let numbers = |table: &mut Table, sum: &Sum| {
            for count in sum.counts() {
                table.cell(|out| people::number(out, count));
            }
            table.cell(|out| self.deleted_bytes(out, sum));
        };
        for (name, sum) in sums {
            numbers(&mut table, sum);
            table.cell(|out| name.write(out, names));
        }
        numbers(&mut table, &self.total);
        table.cell(|out| out.extend_from_slice(b"total"));
        let mut output = Output::new();
        table.write(&mut output, terminal_width())?;
        Ok(output.finish()?)
    }

    /// Reports what is missing.
    pub(super) fn report(&self, answer: &Answer) -> Outcome {
        let mut outcome = Outcome::Complete;
        let mut lacks = |message: String| {
            say(message);
            outcome = Outcome::Partial;
        };
        if !answer.silent.is_empty() {
            lacks(no_answer_from(&answer.silent));
        }
        if answer.no_thread > 0 {
            let processes = counted(answer.no_thread, "process");
            lacks(format!(
                "files of {processes} missing: can't start a thread to read them"
            ));
        }
        if answer.undecided > 0 {
            lacks(format!(
                "{} left out: what the filter tests may not be seen ({}), is too long, or did not come in time",
                counted(answer.undecided, "file"),
                WhoMay::see_denied()
            ));
        }
        if answer.namespaces_unread > 0 {
            let lists = counted(answer.namespaces_unread, "list");
            lacks(format!(
                "{lists} of UNIX sockets not read: those bound to these paths are missing"
            ));
        }
        if answer.changed > 0 {
            let descriptors = counted(answer.changed, "descriptor");
            lacks(format!(
                "{descriptors} left out: each led to one file after the other while it was read"
            ));
        }
        if answer.malformed > 0 {
            let answers = counted(answer.malformed, "invalid answer");
            lacks(format!("{answers} of the kernel left out: please report this"));
        }
        let Missing {
            denied,
            silent,
            no_thread,
            truncated,
        } = self.missing;
        if no_thread > 0 {
            let files = counted(no_thread, "file");
            lacks(format!("values missing for {files}: can't start a thread to read them"));
        }
        if silent > 0 {
            let files = counted(silent, "file");
            lacks(format!(
                "values without an answer for {files} (--patience waits longer)"
            ));
        }
        if truncated > 0 {
            lacks(format!(
                "no names of {}: too long to be read",
                counted(truncated, "file")
            ));
        }
        if self.total.unknown() > 0 {
            let uses = counted(self.total.unknown(), "use");
            let message = format!("{uses} of files that are not known, in no count of files");
            // For denied values, a message below decides whether the answer is incomplete.
            if self.total.unknown() <= denied {
                say(message);
            } else {
                lacks(message);
            }
        }
        let whose = if answer.denied == 1 { "its" } else { "their" };
        for (count, message) in [
            (
                answer.denied,
                format!(
                    "{} left out: you may not see {whose} files",
                    counted(answer.denied, "process")
                ),
            ),
            (
                answer.maps_denied,
                format!(
                    "mapped files of {} left out: you may not see them",
                    counted(answer.maps_denied, "process")
                ),
            ),
            (
                answer.namespaces_denied,
                format!(
                    "UNIX sockets of {} left out: you may not enter them",
                    counted(answer.namespaces_denied, "network namespace")
                ),
            ),
            (denied, format!("values denied for {}", counted(denied, "file"))),
        ] {
            if count > 0 {
                outcome = outcome.and(say_denied(message));
            }
        }
        outcome
    }
}
