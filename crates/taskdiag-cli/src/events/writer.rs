//! Writes events, row by row as they arrive.

use std::io;

use taskdiag::events::{EventSource, Lost};
use taskdiag::{Event, EventField, EventKind, Kind, Value};

use super::Args;
use crate::choice::Chosen;
use crate::listing::{Format, Machine};
use crate::output::cell::{self, is_number, Cells};
use crate::output::document::{counters, Document, Head};
use crate::output::names::Names;
use crate::output::people::Clock;
use crate::output::table::{terminal_width, Align, Table};
use crate::output::terminal::Style;
use crate::output::{csv, json, text, Absences, Output};

/// A column of the table. Rows are written before later ones are known, so a column starts with a
/// typical width.
#[derive(Clone, Copy, Debug)]
struct EventColumn {
    heading: &'static str,
    show: Show,
    width: usize,
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    Field(EventField),
    /// The time of day.
    Time,
    /// The name of the effective user.
    User,
    /// The main values of this kind of event.
    Detail,
}

const fn column(heading: &'static str, show: Show, width: usize) -> EventColumn {
    EventColumn { heading, show, width }
}

/// The table without `-o`. With `--threads`, it also has thread ids.
const COLUMNS: [EventColumn; 8] = [
    column("TIME", Show::Time, 12),
    column("EVENT", Show::Field(EventField::Event), 5),
    column("PID", Show::Field(EventField::Pid), 7),
    column("TID", Show::Field(EventField::Tid), 7),
    column("PPID", Show::Field(EventField::Ppid), 7),
    column("USER", Show::User, 8),
    column("NAME", Show::Field(EventField::Comm), 15),
    column("DETAIL", Show::Detail, 0),
];

/// The fields for programs without `-o`.
const FIELDS: [EventField; 14] = [
    EventField::Event,
    EventField::TimeNs,
    EventField::Pid,
    EventField::Tid,
    EventField::Ppid,
    EventField::StartNs,
    EventField::Uid,
    EventField::Comm,
    EventField::Filename,
    EventField::ExitCode,
    EventField::TermSignal,
    EventField::OomKilled,
    EventField::RuntimeNs,
    EventField::PeakRssBytes,
];

impl EventColumn {
    fn of(field: EventField) -> EventColumn {
        let width = match field.kind() {
            Kind::Nanoseconds => 19,
            Kind::Text => 15,
            Kind::Bytes => 9,
            _ => 7,
        };
        column(field.name(), Show::Field(field), width.max(field.name().len()))
    }

    fn align(&self) -> Align {
        match self.show {
            Show::Field(field) if is_number(field.kind()) => Align::Right,
            // Like numbers, times are never cut.
            Show::Time => Align::Right,
            _ => Align::Left,
        }
    }

    fn style(&self) -> fn(&[u8]) -> Style {
        match self.show {
            Show::Field(EventField::Event) => |kind| match kind {
                b"fork" => Style::Green,
                b"exec" => Style::Cyan,
                _ => Style::Dim,
            },
            Show::Detail => |detail| match detail {
                b"code 0" => Style::Plain,
                _ if detail.starts_with(b"code ") => Style::Yellow,
                _ if detail.starts_with(b"signal ") => Style::Red,
                _ => Style::Plain,
            },
            _ => |_| Style::Plain,
        }
    }
}

/// Writes rows as they arrive.
pub struct Writer {
    form: Form,
    /// Missing values of fields that this kind of event has.
    pub absences: Absences<EventField>,
}

enum Form {
    Table(Box<TableWriter>),
    Machine(Box<MachineWriter>),
}

struct TableWriter {
    table: Table,
    columns: Vec<EventColumn>,
    /// The number of rows that are not written yet.
    waiting: usize,
    exact: bool,
    clock: Clock,
    cells: Cells,
    users: Names,
}

struct MachineWriter {
    machine: Machine,
    fields: Vec<EventField>,
    rows: json::Rows<EventField>,
    names: Option<Names>,
    header: bool,
    document: Option<Document>,
}

impl Writer {
    /// A writer for the chosen fields.
    pub fn new(args: &Args, chosen: &Chosen<EventField>) -> Writer {
        let form = match args.formats.format() {
            Format::Table => Form::Table(Box::new(TableWriter::new(args, chosen))),
            Format::Machine(machine) => {
                let fields = chosen.keys(&FIELDS);
                Form::Machine(Box::new(MachineWriter {
                    machine,
                    rows: json::Rows::new(&fields, args.names),
                    fields,
                    names: args.names.then(Names::default),
                    header: !args.no_header,
                    document: None,
                }))
            }
        };
        Writer {
            form,
            absences: Absences::new(),
        }
    }

    /// Writes the text before the rows.
    pub fn begin(&mut self, output: &mut Output, source: EventSource) -> io::Result<()> {
        if let Form::Machine(writer) = &mut self.form {
            let name = source.to_string();
            let head = Head::streaming("events", vec![("events", name.as_str())]);
            let header = writer
                .header
                .then(|| csv::columns(&writer.fields, writer.names.is_some()));
            writer.document = Some(Document::begin(output.buffer(), writer.machine, &head, header));
        }
        self.flush(output)
    }

    /// Takes a row.
    pub fn row(&mut self, output: &mut Output, event: &Event<'_>) -> io::Result<()> {
        match &mut self.form {
            Form::Table(writer) => writer.row(output, event, &mut self.absences),
            Form::Machine(writer) => writer.row(output, event, &mut self.absences),
        }
    }

    /// Writes the pending rows.
    pub fn flush(&mut self, output: &mut Output) -> io::Result<()> {
        if let Form::Table(writer) = &mut self.form {
            writer.write(output)?;
        }
        output.flush()
    }

    /// Writes the text after the rows.
    pub fn end(mut self, output: &mut Output, told: u64, lost: Lost) -> io::Result<Absences<EventField>> {
        self.flush(output)?;
        if let Form::Machine(writer) = self.form {
            if let Some(document) = writer.document {
                let counted = [
                    ("events", Value::Unsigned(told)),
                    ("lost", Value::Unsigned(lost.count)),
                    ("lost_is_exact", Value::Flag(lost.is_exact)),
                ];
                document.end(output.buffer(), |out| counters(out, &counted));
            }
        }
        output.flush()?;
        Ok(self.absences)
    }
}

impl MachineWriter {
    fn row(&mut self, output: &mut Output, event: &Event<'_>, absences: &mut Absences<EventField>) -> io::Result<()> {
        let Some(document) = &mut self.document else {
            return Ok(());
        };
        document.row(output.buffer(), |out| match self.machine {
            Machine::Csv => csv::row(out, &self.fields, event, &[], self.names.as_mut(), absences),
            Machine::Json | Machine::Jsonl => self.rows.write(out, event, &[], absences),
        });
        output.row_ended()
    }
}

impl TableWriter {
    fn new(args: &Args, chosen: &Chosen<EventField>) -> TableWriter {
        let is_meant = |column: &EventColumn| args.threads || column.show != Show::Field(EventField::Tid);
        let columns = chosen.columns(COLUMNS.into_iter().filter(is_meant), EventColumn::of);
        let mut table = Table::new(columns.iter().map(EventColumn::align), 64);
        for (index, column) in columns.iter().enumerate() {
            table.widen(index, column.width);
            table.style(index, column.style());
        }
        if !args.no_header {
            table.headings(columns.iter().map(|column| column.heading));
        }
        TableWriter {
            table,
            columns,
            waiting: 0,
            exact: args.bytes,
            clock: Clock::new(),
            cells: Cells::new(args.bytes, args.names),
            users: Names::default(),
        }
    }

    fn row(&mut self, output: &mut Output, event: &Event<'_>, absences: &mut Absences<EventField>) -> io::Result<()> {
        /// The number of rows that are written together.
        const PIECE: usize = 1000;

        let (clock, cells, users) = (&mut self.clock, &mut self.cells, &mut self.users);
        for column in &self.columns {
            self.table.cell(|out| match column.show {
                Show::Time if self.exact => cell::plain(out, Value::Unsigned(event.time_ns()), b','),
                Show::Time => clock.time_of_day(out, event.time_ns() as i64),
                Show::User => match absences.value(event, EventField::Euid) {
                    Ok(Value::Unsigned(uid)) => text::escape(out, users.user(uid as u32)),
                    _ => out.push(b'-'),
                },
                Show::Detail => detail(out, event, absences),
                Show::Field(field) => match absences.value(event, field) {
                    Ok(value) => show(out, field, value, clock, cells, self.exact),
                    _ => out.push(b'-'),
                },
            });
        }
        self.waiting += 1;
        if self.waiting == PIECE {
            self.write(output)?;
        }
        Ok(())
    }

    fn write(&mut self, output: &mut Output) -> io::Result<()> {
        self.waiting = 0;
        self.table.write(output, terminal_width())?;
        self.table.clear();
        Ok(())
    }
}

/// Appends a value for people.
fn show(out: &mut Vec<u8>, field: EventField, value: Value<'_>, clock: &mut Clock, cells: &mut Cells, exact: bool) {
    match (field, value, field.of_tasks()) {
        (EventField::TimeNs, Value::Unsigned(ns), _) if !exact => clock.time_of_day(out, ns as i64),
        (_, value, Some(field)) => cells.value(out, field, value),
        (_, Value::Text(bytes), None) => text::escape(out, bytes),
        (_, value, None) => cell::plain(out, value, b','),
    }
}

/// Appends the main values of this kind of event.
fn detail(out: &mut Vec<u8>, event: &Event<'_>, absences: &mut Absences<EventField>) {
    match event.kind() {
        EventKind::Fork => {
            if let (Some(Ok(caller)), Ok(ppid)) = (event.caller_pid(), event.ppid()) {
                if caller != ppid && !event.is_thread() {
                    cell::formatted(out, format_args!("called by {caller}"));
                }
            }
        }
        EventKind::Exec => match absences.value(event, EventField::Filename) {
            Ok(Value::Text(name)) => text::escape(out, name),
            _ => out.push(b'-'),
        },
        EventKind::Exit => match (event.exit_code(), event.term_signal(), event.core_dumped()) {
            (Some(code), ..) => cell::formatted(out, format_args!("code {code}")),
            (None, Some(signal), Some(true)) => cell::formatted(out, format_args!("signal {signal}, core dumped")),
            (None, Some(signal), _) if event.oom_killed() == Some(Ok(true)) => {
                cell::formatted(out, format_args!("signal {signal} of the OOM killer"));
            }
            (None, Some(signal), _) => cell::formatted(out, format_args!("signal {signal}")),
            (None, None, _) => out.push(b'-'),
        },
        _ => out.push(b'-'),
    }
}
