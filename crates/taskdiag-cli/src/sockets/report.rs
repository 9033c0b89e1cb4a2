//! The output of `taskdiag sockets`: rows or sums, and what is missing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use taskdiag::sockets::{Answer, Request, Row, Socket, SocketField};
use taskdiag::{Absent, Handle};

use super::row::{self, KEYS};
use super::sums::{By, Name, Sum, Sums};
use super::{Args, Column};
use crate::choice::{InOrder, SortBy, SumKey};
use crate::grouping::write_text;
use crate::listing::{Answers, Format, Machine};
use crate::outcome::{counted, say, say_denied, Failure, Outcome, WhoMay};
use crate::output::document::{self, Head};
use crate::output::named::{self, write_row, write_total, OwnedValue, Rows};
use crate::output::table::{terminal_width, Align, Table};
use crate::output::Cell;
use crate::output::{people, Output};

/// The values by which a row is sorted.
type Keys = Vec<Result<OwnedValue, &'static str>>;

/// The output for a socket: the cells of a table, or a single one with the whole row.
#[derive(Default)]
struct Cells {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Cells {
    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Appends a cell, whose text `write` appends.
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.text);
        self.ends.push(self.text.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.text[start..end])
    }
}

/// Writes an answer.
pub(super) struct Report<'a> {
    args: &'a Args,
    request: &'a Request,
    processes: &'a Answers,
    /// The number of sockets without all requested TCP information.
    without_info: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new(args: &'a Args, request: &'a Request, processes: &'a Answers) -> Report<'a> {
        Report {
            args,
            request,
            processes,
            without_info: 0,
        }
    }

    /// Renders each socket and passes on the result: in the kernel's order, or sorted.
    fn each_row(
        &mut self,
        handle: &mut Handle,
        sort: &[SortBy<usize>],
        render: impl Fn(&Row<'_>, &Socket<'_>, &mut Cells),
        mut each: impl FnMut(&Cells) -> std::io::Result<()>,
    ) -> Result<Answer, Failure> {
        let mut rows = InOrder::<(Keys, Cells)>::new(!sort.is_empty(), self.args.limit);
        let mut one = Cells::default();
        let answer = handle.sockets(self.processes.snapshot(), self.request, |socket| {
            self.without_info += u64::from(socket.info.is_err_and(|reason| reason != Absent::NotAsked));
            let row = Row::new(socket);
            let keep = || {
                let mut cells = Cells::default();
                render(&row, socket, &mut cells);
                let keys = sort.iter().map(|by| row::sorted_by(&row, SocketField::ALL[by.key]));
                (keys.collect(), cells)
            };
            rows.take(keep, || {
                one.clear();
                render(&row, socket, &mut one);
                each(&one)
            })
        })?;
        // A row's keys are in the order of the sort options.
        let by: Vec<SortBy<usize>> = sort.iter().enumerate().map(|(key, by)| SortBy { key, ..*by }).collect();
        rows.finish(
            |a, b| named::compare(&by, a, b, |(keys, _), key| row::kept_cell(&keys[key])),
            |(_, cells)| each(&cells),
        )?;
        Ok(answer)
    }

    pub(super) fn table(
        &mut self,
        handle: &mut Handle,
        columns: &[Column],
        sort: &[SortBy<usize>],
    ) -> Result<Answer, Failure> {
        let exact = self.args.output.bytes;
        let mut table = Table::new(columns.iter().map(Column::align), 0);
        if !self.args.output.no_header {
            table.headings(columns.iter().map(|column| column.heading));
        }
        let answer = self.each_row(
            handle,
            sort,
            |row, socket, cells| {
                for column in columns {
                    cells.add(|out| column.write(out, row, socket, exact));
                }
            },
            |cells| {
                for text in cells.iter() {
                    table.cell(|out| out.extend_from_slice(text));
                }
                Ok(())
            },
        )?;
        // With a single network namespace, its number is of no use.
        for (index, _) in columns.iter().enumerate().filter(|(_, column)| column.is_for_many) {
            if answer.namespaces <= 1 {
                table.hide(index);
            }
        }
        let mut output = Output::new();
        table.write(&mut output, terminal_width())?;
        output.finish()?;
        Ok(answer)
    }

    pub(super) fn rows(
        &mut self,
        handle: &mut Handle,
        machine: Machine,
        keys: &[usize],
        sort: &[SortBy<usize>],
    ) -> Result<Answer, Failure> {
        let names: Vec<&'static str> = keys.iter().map(|&key| KEYS[key].name).collect();
        let head = self.head(handle)?;
        let mut output = Rows::begin(machine, &head, names.clone(), !self.args.output.no_header);
        let answer = self.each_row(
            handle,
            sort,
            |row, _, cells| {
                let cell = |&key: &usize| row::cell(row, SocketField::ALL[key]);
                let row: Vec<Cell<'_>> = keys.iter().map(cell).collect();
                cells.add(|out| write_row(out, machine, &names, &row));
            },
            |cells| output.written_row(&cells.text),
        )?;
        output.finish_with(|out| document::counts(out, answer.named()))?;
        Ok(answer)
    }

    fn head(&self, handle: &mut Handle) -> Result<Head<'static>, Failure> {
        let mut sources = vec![("sockets", "sock_diag")];
        if self.request.fields.contains(SocketField::Owners) {
            sources.push(("owners", handle.prepare_files(self.processes.snapshot())?.name()));
        }
        Ok(Head::streaming("sockets", sources))
    }

    pub(super) fn sums(
        &mut self,
        handle: &mut Handle,
        format: Format,
        by: By,
        sort: &[SortBy<SumKey>],
    ) -> Result<Answer, Failure> {
        let head = self.head(handle)?;
        let mut sums = Sums::new(by, self.processes.snapshot());
        let mut total = Sum::default();
        let answer = handle.sockets(self.processes.snapshot(), self.request, |socket| {
            let owners = socket.owners.ok().flatten().unwrap_or_default();
            total.add(socket, owners.iter().map(|owner| owner.pid));
            sums.add(socket);
            ControlFlow::Continue(())
        })?;
        let mut sums = sums.sorted(sort);
        sums.truncate(self.args.limit.unwrap_or(usize::MAX));
        match format {
            Format::Table => self.sum_table(by, &sums, &total)?,
            Format::Machine(machine) => {
                let keys = by.grouping().keys.iter().copied().chain(Sum::KEYS).collect();
                let mut rows = Rows::begin(machine, &head, keys, !self.args.output.no_header);
                for (name, sum) in &sums {
                    let mut cells = name.cells(by);
                    cells.extend(sum.cells());
                    rows.row(&cells)?;
                }
                let total = total.cells();
                rows.finish_with(|out| {
                    document::counts(out, answer.named());
                    write_total(out, Some((&Sum::KEYS, &total)));
                })?;
            }
        }
        Ok(answer)
    }

    fn sum_table(&self, by: By, sums: &[(Name, Sum)], total: &Sum) -> Result<(), Failure> {
        let headings = ["SOCKETS", "PROCESSES", "LISTENING", "CONNECTED", "RECV-Q", "SEND-Q"];
        let aligns = headings.iter().map(|_| Align::Right).chain([Align::Left]);
        let mut table = Table::new(aligns, sums.len() + 1);
        if !self.args.output.no_header {
            table.headings(headings.into_iter().chain([by.grouping().heading]));
        }
        let exact = self.args.output.bytes;
        let numbers = |table: &mut Table, sum: &Sum| {
            let [counts @ .., recv, send] = sum.numbers();
            for count in counts {
                table.cell(|out| people::number(out, count));
            }
            for bytes in [recv, send] {
                table.cell(|out| {
                    if exact {
                        people::number(out, bytes);
                    } else {
                        people::size(out, bytes);
                    }
                });
            }
        };
        for (name, sum) in sums {
            numbers(&mut table, sum);
            table.cell(|out| match name {
                Name::Text(name) => write_text(out, name),
                Name::Port(protocol, port) => out.extend_from_slice(format!("{protocol}:{port}").as_bytes()),
                Name::State(family, state) => out.extend_from_slice(format!("{state} {family}").as_bytes()),
                Name::None(_) => out.push(b'-'),
            });
        }
        numbers(&mut table, total);
        table.cell(|out| out.extend_from_slice(b"total"));
        let mut output = Output::new();
        table.write(&mut output, terminal_width())?;
        Ok(output.finish()?)
    }

    /// Reports what is missing.
    pub(super) fn report(&self, answer: &Answer) -> Outcome {
        let verb = |count: u64, one: &'static str, many: &'static str| if count == 1 { one } else { many };
        let mut outcome = Outcome::Complete;
        let (namespaces, hidden) = (answer.namespaces_denied, answer.processes_hidden);
        if namespaces > 0 {
            outcome = outcome.and(say_denied(format_args!(
                "{} left out: you may not enter them",
                counted(namespaces, "network namespace")
            )));
        }
        if hidden > 0 {
            outcome = outcome.and(say_denied(format_args!(
                "{} {} not show which network namespace is theirs: there may be more",
                counted(hidden, "process"),
                verb(hidden, "does", "do")
            )));
        }
        let denied = answer.processes_denied;
        if denied > 0 && self.request.fields.contains(SocketField::Owners) {
            outcome = outcome.and(say_denied(format_args!(
                "{} {} not show their descriptors: owners may be missing",
                counted(denied, "process"),
                verb(denied, "does", "do")
            )));
        }
        let undecided = format!(
            "left out: what they are filtered by may not be seen ({}), or did not come in time",
            WhoMay::see_denied()
        );
        let without_info = format!(
            "{} no values of TCP: they no longer existed, did not answer in time, or needed a process that can't be started",
            verb(self.without_info, "has", "have")
        );
        for (count, one, rest) in [
            (answer.undecided, "socket", undecided.as_str()),
            (answer.silent, "list", "did not come in time (--patience waits longer)"),
            (answer.no_thread, "list", "not read: can't start a thread or a process"),
            (self.without_info, "socket", &without_info),
            (answer.failed, "list", "ended with an error: sockets may be missing"),
            (
                answer.interrupted,
                "list",
                "changed each time that the kernel made them: sockets may be missing",
            ),
            (
                answer.malformed,
                "invalid answer",
                "of the kernel left out: please report this",
            ),
        ] {
            if count > 0 {
                say(format_args!("{} {rest}", counted(count, one)));
                outcome = Outcome::Partial;
            }
        }
        if let (Some(unlisted @ [_, ..]), true) = (answer.unlisted.as_deref(), self.request.owned) {
            let mut protocols: BTreeMap<&str, u64> = BTreeMap::new();
            for socket in unlisted {
                *protocols
                    .entry(socket.protocol.as_deref().unwrap_or("unknown"))
                    .or_default() += 1;
            }
            let protocols: Vec<String> = protocols
                .iter()
                .map(|(name, count)| format!("{count} {name}"))
                .collect();
            say(format_args!(
                "{} left out: in no list of the kernel ({}); `taskdiag files --kind socket` has the descriptors",
                counted(unlisted.len() as u64, "socket"),
                protocols.join(", ")
            ));
            outcome = Outcome::Partial;
        }
        for name in self.args.asked_and_unsupported(&answer.unsupported) {
            say(format_args!(
                "{name}: this kernel can't list such sockets ({name}_diag is missing)"
            ));
            outcome = Outcome::Partial;
        }
        outcome
    }
}
