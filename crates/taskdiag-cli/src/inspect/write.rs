//! Writes the page, for people and as JSON.

use std::io;

use taskdiag::{Absent, Field, Kind, Task, Value};

use super::cgroup::UNSUPPORTED;
use super::page::{Body, Cell, PagePart};
use super::sections::{Section, Shape};
use crate::output::cell::{formatted, is_number, Cells};
use crate::output::listing::ListingColumn;
use crate::output::owned::OwnedValue;
use crate::output::relation::{column, Absences, ColumnInfo};
use crate::output::rows::object;
use crate::output::table::{terminal_width, write_title, Align, Table};
use crate::output::{json, people, tasks, text, Output};

/// How many rows of a list are shown to people.
const ROWS_SHOWN: usize = 12;

/// Limits that are in bytes.
const IN_BYTES: [&[u8]; 8] = [
    b"fsize",
    b"data",
    b"stack",
    b"core",
    b"rss",
    b"memlock",
    b"as",
    b"msgqueue",
];

/// How the page looks to people.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Show bytes and nanoseconds without units.
    pub exact: bool,
    /// Show all rows of lists.
    pub all: bool,
}

/// Writes the page for people.
pub fn for_people(parts: &[PagePart<'_>], look: Look) -> io::Result<()> {
    let mut output = Output::default();
    let mut writer = Writer {
        look,
        named: Cells::new(look.exact, true),
        plain: Cells::new(look.exact, false),
    };
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            output.buffer.push(b'\n');
        }
        write_title(&mut output, part.section.info().title)?;
        writer.part(part).write(&mut output, terminal_width())?;
        let more = part.rows().unwrap_or(0).saturating_sub(look.rows(part.section));
        if more > 0 {
            let mut note = Table::new([Align::Left], 1).wrapping();
            note.cell(|out| formatted(out, format_args!("  and {more} more: --all shows them")));
            note.write(&mut output, terminal_width())?;
        }
    }
    output.finish()
}

impl Look {
    /// How many rows of a section to show.
    fn rows(self, section: Section) -> usize {
        match section {
            Section::Parents | Section::Mappings | Section::Files | Section::Sockets | Section::Threads
                if !self.all =>
            {
                ROWS_SHOWN
            }
            _ => usize::MAX,
        }
    }
}

/// Makes the tables of the page's parts.
struct Writer {
    look: Look,
    /// Writes values as names, and as numbers.
    named: Cells,
    plain: Cells,
}

impl Writer {
    fn part(&mut self, part: &PagePart<'_>) -> Table {
        let look = self.look;
        let rows = part.rows().unwrap_or(0).min(look.rows(part.section));
        match (&part.body, part.section.info().shape) {
            (Err(reason), _) => missing(reason),
            (Ok(Body::Task(task)), Shape::Fields(fields)) => self.fields(task, fields),
            (Ok(Body::Values(values)), Shape::Values(keys)) => of_values(values, keys, look),
            (Ok(_), _) if rows == 0 => missing("none"),
            (Ok(Body::Tasks(tasks)), Shape::Tasks(fields)) => self.tasks(&tasks[..rows], fields),
            (Ok(Body::List(list)), _) if part.section == Section::Sockets => of_sockets(&list[..rows], look),
            (Ok(Body::List(list)), Shape::List(keys)) => of_list(&list[..rows], keys, part.section, look),
            _ => missing("none"),
        }
    }

    fn fields(&mut self, task: &Task<'_>, fields: &[Field]) -> Table {
        let mut table = Table::new([Align::Left; 2], fields.len()).wrapping();
        for &field in fields {
            label(&mut table, field.name());
            table.cell(|out| match task.value(field) {
                Ok(value) => self.value(out, field, value),
                Err(reason) => missing_text(out, reason.as_str()),
            });
        }
        table
    }

    fn value(&mut self, out: &mut Vec<u8>, field: Field, value: Value<'_>) {
        let mut named = Vec::new();
        self.named.value(&mut named, &tasks::RELATION[field as usize], value);
        match field.info().kind {
            // Show both: names are not unique, and numbers alone say little.
            Kind::User | Kind::GroupId => {
                let mut number = Vec::new();
                self.plain.value(&mut number, &tasks::RELATION[field as usize], value);
                out.extend_from_slice(&number);
                if named != number {
                    out.extend_from_slice(b" (");
                    out.extend_from_slice(&named);
                    out.push(b')');
                }
            }
            // Long sets wrap between two of their members.
            Kind::Capabilities | Kind::Signals => {
                for &byte in &named {
                    out.push(byte);
                    if byte == b',' {
                        out.push(b' ');
                    }
                }
            }
            _ => {
                out.extend_from_slice(&named);
                if let Some(word) = word(field, value) {
                    formatted(out, format_args!(" ({word})"));
                }
            }
        }
    }

    fn tasks(&mut self, rows: &[Task<'_>], fields: &[Field]) -> Table {
        let columns: Vec<ListingColumn> = fields.iter().map(|&field| tasks::shown(field)).collect();
        let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
        let mut table = indented(columns.iter().map(|shown| shown.align(&tasks::RELATION)), &names);
        let mut absences = Absences::default();
        for task in rows {
            for (index, shown) in columns.iter().enumerate() {
                table.cell(|out| {
                    if index == 0 {
                        out.extend_from_slice(b"  ");
                    }
                    shown.write(out, &tasks::RELATION, task, &mut self.named, &mut absences);
                });
            }
        }
        table
    }
}

/// The word for a number, if the meaning of its field lists them, as in "mode: 0 off, 1 strict.".
fn word(field: Field, value: Value<'_>) -> Option<&'static str> {
    let Value::Unsigned(number) = value else { return None };
    let meaning = field.info().meaning.trim_end_matches('.');
    let list = &meaning[meaning.find(": 0 ")? + 2..];
    let number = format!("{number} ");
    list.split(", ").find_map(|item| item.strip_prefix(&number))
}

impl PagePart<'_> {
    /// The number of rows, if the part is a list.
    fn rows(&self) -> Option<usize> {
        match self.body.as_ref().ok()? {
            Body::Tasks(tasks) => Some(tasks.len()),
            Body::List(rows) => Some(rows.len()),
            _ => None,
        }
    }
}

/// The text in place of a missing value.
fn missing_text(out: &mut Vec<u8>, reason: &str) {
    match reason {
        "none" => out.push(b'-'),
        reason => formatted(out, format_args!("- ({reason})")),
    }
}

fn missing(reason: &str) -> Table {
    let mut table = Table::new([Align::Left], 1);
    table.cell(|out| {
        out.extend_from_slice(b"  ");
        missing_text(out, reason);
    });
    table
}

fn label(table: &mut Table, name: &str) {
    table.cell(|out| formatted(out, format_args!("  {name}")));
}

/// A table whose first column is indented a little.
fn indented(aligns: impl IntoIterator<Item = Align>, names: &[&str]) -> Table {
    let mut table = Table::new(aligns, ROWS_SHOWN);
    let first = format!("  {}", names.first().copied().unwrap_or_default());
    let names: Vec<&str> = std::iter::once(first.as_str())
        .chain(names.iter().skip(1).copied())
        .collect();
    table.headings(names);
    table
}

fn write_cell(out: &mut Vec<u8>, key: &ColumnInfo, cell: &Cell, exact: bool) {
    match cell {
        Err(reason) => missing_text(out, reason),
        Ok(kept) => match kept.value() {
            Value::Float(number) => formatted(out, format_args!("{number:.1}")),
            value => Cells::new(exact, false).value(out, key, value),
        },
    }
}

/// Values, one per line, followed by what this kernel or this cgroup does not have.
fn of_values(values: &[Cell], keys: &[ColumnInfo], look: Look) -> Table {
    let mut table = Table::new([Align::Left; 2], keys.len()).wrapping();
    let mut others = Vec::new();
    for (key, value) in keys.iter().zip(values) {
        if value.as_ref().err() == Some(&UNSUPPORTED) {
            others.push(key.name);
            continue;
        }
        label(&mut table, key.name);
        table.cell(|out| write_cell(out, key, value, look.exact));
    }
    if !others.is_empty() {
        label(&mut table, "- (unsupported)");
        table.cell(|out| out.extend_from_slice(others.join(", ").as_bytes()));
    }
    table
}

fn align(key: &ColumnInfo) -> Align {
    if is_number(key.kind) {
        Align::Right
    } else {
        Align::Left
    }
}

/// Writes a value of a list, under a key of its section.
fn write_in_list(out: &mut Vec<u8>, section: Section, key: &ColumnInfo, (row, cell): (&[Cell], &Cell), exact: bool) {
    let mut key = *key;
    let name = row.first().map(|name| name.as_ref().map(OwnedValue::value));
    let is_of_bytes = || IN_BYTES.iter().any(|known| name == Some(Ok(Value::Text(known))));
    if section == Section::Limits && key.kind == Kind::Count && is_of_bytes() {
        key.kind = Kind::Bytes;
    }
    write_cell(out, &key, cell, exact);
}

/// The last column of a list whose texts may be long paths, of which the ends tell most.
pub const PATHS: &str = "name";

/// The names of columns, with whether they are numbers, and the cells of rows.
pub type Texts = (Vec<(&'static str, bool)>, Vec<Vec<String>>);

/// The texts of a list. Of values, those that this kernel or this cgroup has, a row for each.
pub fn texts(section: Section, rows: &[Vec<Cell>]) -> Texts {
    let keys = match section.info().shape {
        Shape::List(keys) => keys,
        Shape::Values(keys) => {
            let values = keys.iter().zip(rows.iter().flatten());
            let known = values.filter(|(_, value)| value.as_ref().err() != Some(&UNSUPPORTED));
            let row = |(key, value): (&ColumnInfo, &Cell)| {
                vec![
                    key.name.to_owned(),
                    text::written(|out| write_cell(out, key, value, false)),
                ]
            };
            return (
                vec![(section.info().key, false), ("value", false)],
                known.map(row).collect(),
            );
        }
        _ => return (Vec::new(), Vec::new()),
    };
    let text = |row: &[Cell], (key, cell): (&ColumnInfo, &Cell)| {
        text::written(|out| write_in_list(out, section, key, (row, cell), false))
    };
    let of_row = |row: &Vec<Cell>| keys.iter().zip(row).map(|pair| text(row, pair)).collect();
    let columns = keys.iter().map(|key| (key.name, is_number(key.kind)));
    (columns.collect(), rows.iter().map(of_row).collect())
}

fn of_list(rows: &[Vec<Cell>], keys: &[ColumnInfo], section: Section, look: Look) -> Table {
    let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
    let mut table = indented(keys.iter().map(align), &names);
    if let [others @ .., PATHS] = &names[..] {
        table.keep_end(others.len());
    }
    for row in rows {
        for (index, (key, cell)) in keys.iter().zip(row).enumerate() {
            table.cell(|out| {
                if index == 0 {
                    out.extend_from_slice(b"  ");
                }
                write_in_list(out, section, key, (row, cell), look.exact);
            });
        }
    }
    table
}

/// Sockets, in fewer columns than they have values.
fn of_sockets(rows: &[Vec<Cell>], look: Look) -> Table {
    use taskdiag::sockets::SocketField as Of;
    let names = [
        "proto", "state", "recv-q", "send-q", "acked", "received", "local", "peer", "owners", "peers",
    ];
    let aligns = names.map(|name| match name {
        "recv-q" | "send-q" | "acked" | "received" => Align::Right,
        _ => Align::Left,
    });
    let mut table = indented(aligns, &names);
    for row in rows {
        let put = |out: &mut Vec<u8>, field: Of| {
            let at = super::sections::SOCKET_FIELDS.iter().position(|other| *other == field);
            match at.and_then(|at| row.get(at)) {
                Some(Ok(kept)) => match kept.value() {
                    value @ Value::Owners(_) => {
                        Cells::new(false, false).value(out, &column("", field.kind(), ""), value)
                    }
                    Value::Text(bytes) => text::escape(out, bytes),
                    Value::Unsigned(bytes) if field.kind() == Kind::Bytes && !look.exact => {
                        people::size(out, bytes);
                    }
                    value => formatted(out, format_args!("{value}")),
                },
                _ => out.push(b'-'),
            }
        };
        let text_of = |field: Of| {
            let mut out = Vec::new();
            put(&mut out, field);
            out
        };
        let end = |out: &mut Vec<u8>, addr: Of, port: Of| {
            let (addr, port) = (text_of(addr), text_of(port));
            match (&addr[..], &port[..]) {
                (b"-", b"-") => out.push(b'-'),
                (addr, b"-") => out.extend_from_slice(addr),
                (addr, port) if addr.contains(&b':') => {
                    out.push(b'[');
                    out.extend_from_slice(addr);
                    out.extend_from_slice(b"]:");
                    out.extend_from_slice(port);
                }
                (addr, port) => {
                    out.extend_from_slice(if addr == b"-" { b"*" } else { addr });
                    out.push(b':');
                    out.extend_from_slice(port);
                }
            }
        };
        table.cell(|out| {
            out.extend_from_slice(b"  ");
            match (row.first(), &text_of(Of::Protocol)[..]) {
                // It is in no list that could be read.
                (Some(Err(reason)), _) => missing_text(out, reason),
                (_, b"-") => {
                    put(out, Of::Family);
                    out.push(b'/');
                    put(out, Of::Type);
                }
                (_, protocol) => out.extend_from_slice(protocol),
            }
        });
        table.cell(|out| put(out, Of::State));
        for bytes in [
            Of::RecvQueueBytes,
            Of::SendQueueBytes,
            Of::AckedBytes,
            Of::ReceivedBytes,
        ] {
            table.cell(|out| put(out, bytes));
        }
        table.cell(|out| match &text_of(Of::Path)[..] {
            // Any address, of IPv4 too.
            b"-" if (&text_of(Of::LocalAddr)[..], &text_of(Of::Ipv6Only)[..]) == (b"::", b"false") => {
                out.extend_from_slice(b"*:");
                put(out, Of::LocalPort);
            }
            b"-" => end(out, Of::LocalAddr, Of::LocalPort),
            path => out.extend_from_slice(path),
        });
        table.cell(|out| end(out, Of::RemoteAddr, Of::RemotePort));
        table.cell(|out| put(out, Of::Owners));
        table.cell(|out| put(out, Of::Peers));
    }
    // The page is about one of the owners: only others are worth their room.
    let is_shared = |cell: &Cell| matches!(cell.as_ref().map(OwnedValue::value), Ok(Value::Owners([_, _, ..])));
    let is_shared = rows.iter().flatten().any(is_shared);
    for (column, name) in names.into_iter().enumerate() {
        match name {
            "owners" if !is_shared => table.hide(column),
            "local" | "peer" => table.keep_end(column),
            _ => {}
        }
    }
    table
}

/// Appends the page as a JSON object: a key for each section that exists, and the reasons for the
/// others.
pub fn as_json(out: &mut Vec<u8>, parts: &[PagePart<'_>]) {
    let mut before = b'{';
    for part in parts {
        let (Ok(body), info) = (&part.body, part.section.info()) else {
            continue;
        };
        out.push(before);
        before = b',';
        json::string(out, info.key);
        out.push(b':');
        match (body, info.shape) {
            (Body::Task(task), Shape::Fields(fields)) => task_json(out, task, fields),
            (Body::Tasks(tasks), Shape::Tasks(fields)) => {
                json::list(out, tasks.iter(), |out, task| task_json(out, task, fields));
            }
            (Body::Values(values), Shape::Values(keys)) => row_json(out, keys, values),
            (Body::List(rows), Shape::List(keys)) => {
                json::list(out, rows.iter(), |out, row| row_json(out, keys, row));
            }
            _ => out.extend_from_slice(b"null"),
        }
    }
    let absent = parts
        .iter()
        .filter_map(|part| Some((part.section.info().key, part.body.as_ref().err()?)));
    let absent: Vec<(&str, &str)> = absent.map(|(key, reason)| (key, *reason)).collect();
    if !absent.is_empty() {
        out.push(before);
        out.extend_from_slice(b"\"absent\":");
        json::object(out, &absent, |&(key, reason)| {
            (key, move |out: &mut Vec<u8>| json::string(out, reason))
        });
    }
    out.push(b'}');
}

fn task_json(out: &mut Vec<u8>, task: &Task<'_>, fields: &[Field]) {
    let columns: Vec<ColumnInfo> = fields.iter().map(|&field| ColumnInfo::of_task(field)).collect();
    object(out, &columns, |index| task.value(fields[index]).map_err(Absent::as_str));
}

fn row_json(out: &mut Vec<u8>, keys: &[ColumnInfo], row: &[Cell]) {
    object(out, keys, |index| {
        Ok(row[index].as_ref().map_err(|reason| *reason)?.value())
    });
}
