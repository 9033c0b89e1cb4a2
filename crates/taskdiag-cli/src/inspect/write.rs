//! Writes the page, for people and as JSON.

use std::io;

use taskdiag::sockets::SocketField;
use taskdiag::{Field, Handle, Kind, Value};

use super::cgroup::UNSUPPORTED;
use super::page::{Cell, PagePart};
use super::sections::{Section, Shape, SOCKET_FIELDS};
use super::OutputOptions;
use crate::output::cell::{formatted, is_number, Cells};
use crate::output::owned::OwnedValue;
use crate::output::relation::ColumnInfo;
use crate::output::rows::object;
use crate::output::table::{terminal_width, write_title, Align, Table};
use crate::output::{json, text, Output};

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

/// The units of other limits.
const UNITS: [(&[u8], &str); 2] = [(b"cpu", "s"), (b"rttime", "us")];

/// Writes the page for people.
pub fn for_people(parts: &[PagePart], options: OutputOptions) -> io::Result<()> {
    let mut output = Output::default();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            output.buffer.push(b'\n');
        }
        write_title(&mut output, part.section.info().title)?;
        let most = match part.section {
            Section::Parents | Section::Mappings | Section::Files | Section::Sockets | Section::Threads
                if !options.all =>
            {
                ROWS_SHOWN
            }
            _ => usize::MAX,
        };
        let rows = part.body.as_deref();
        let more = rows.map_or(0, <[_]>::len).saturating_sub(most);
        let rows = rows.map(|rows| &rows[..rows.len() - more]);
        let mut table = match (rows, part.section.info().shape) {
            (Err(reason), _) => line(&missing(reason)),
            (Ok([]), _) => line(&missing("none")),
            (Ok([row]), Shape::Fields(_) | Shape::Values(_)) => of_values(part.section, row, options.bytes),
            (Ok(rows), _) => of_list(&texts(part.section, rows, options.bytes)),
        };
        table.write(&mut output, terminal_width())?;
        if part.section == Section::CgroupUse && Handle::has_cgroup1() && part.body.is_ok() {
            let note = "each is of the cgroup that cgroups names for its controller: memory, cpu, cpuacct, pids";
            line(note).wrapping().write(&mut output, terminal_width())?;
        }
        if more > 0 {
            let mut note = line(&format!("and {more} more: --all shows them")).wrapping();
            note.write(&mut output, terminal_width())?;
        }
    }
    output.finish()
}

/// A line of text.
fn line(text: &str) -> Table {
    let mut table = Table::new([Align::Left], 1);
    table.cell(|out| formatted(out, format_args!("  {text}")));
    table
}

/// The text in place of a missing value.
fn missing(reason: &str) -> String {
    match reason {
        "none" => "-".to_owned(),
        reason => format!("- ({reason})"),
    }
}

/// Whether this kernel or this cgroup does not have a figure.
fn is_lacking(section: Section, cell: &Cell) -> bool {
    matches!(section.info().shape, Shape::Values(_)) && cell.as_ref().err() == Some(&UNSUPPORTED)
}

/// Values, one per line, followed by what this kernel or this cgroup does not have.
fn of_values(section: Section, row: &[Cell], exact: bool) -> Table {
    let mut table = Table::new([Align::Left; 2], row.len()).wrapping();
    let mut line = |name: &str, text: &str| {
        table.cell(|out| formatted(out, format_args!("  {name}")));
        table.cell(|out| out.extend_from_slice(text.as_bytes()));
    };
    for (name, text) in values(section, row, exact) {
        line(name, &text);
    }
    let columns = section.columns();
    let others = columns.iter().zip(row).filter(|(_, cell)| is_lacking(section, cell));
    let others: Vec<&str> = others.map(|(column, _)| column.name).collect();
    if !others.is_empty() {
        line("- (unsupported)", &others.join(", "));
    }
    table
}

/// The names and texts of values, except for what this kernel or this cgroup does not have.
fn values(section: Section, row: &[Cell], exact: bool) -> Vec<(&'static str, String)> {
    let mut forms = [true, false].map(|named| Cells::new(exact, named));
    let columns = section.columns();
    let known = columns.iter().zip(row).filter(|(_, cell)| !is_lacking(section, cell));
    known
        .flat_map(|(column, cell)| described(column, cell, &mut forms))
        .collect()
}

/// The name of a column with the text of its value; a line for each hierarchy of cgroups.
pub fn described(column: &ColumnInfo, cell: &Cell, [named, plain]: &mut [Cells; 2]) -> Vec<(&'static str, String)> {
    let name = written(column, cell, named);
    let text = match (column.kind, cell) {
        // Show both: names are not unique, and numbers alone say little.
        (Kind::User | Kind::GroupId, Ok(_)) => match written(column, cell, plain) {
            number if number == name => number,
            number => format!("{number} ({name})"),
        },
        // Long sets wrap between two of their members.
        (Kind::Capabilities | Kind::Signals, Ok(_)) => name.replace(',', ", "),
        (_, Ok(kept)) => match word(column, kept.value()) {
            Some(word) => format!("{name} ({word})"),
            None => name,
        },
        (_, Err(_)) => name,
    };
    if column.name != Field::Cgroups.name() {
        return vec![(column.name, text)];
    }
    let names = std::iter::once(column.name).chain(std::iter::repeat(""));
    names.zip(text.split("\\n").map(str::to_owned)).collect()
}

/// The word for a number, if the meaning of its column lists them, as in "mode: 0 off, 1 strict.".
fn word(column: &ColumnInfo, value: Value<'_>) -> Option<&'static str> {
    let Value::Unsigned(number) = value else { return None };
    let meaning = column.meaning.trim_end_matches('.');
    let list = &meaning[meaning.find(": 0 ")? + 2..];
    let number = format!("{number} ");
    list.split(", ").find_map(|item| item.strip_prefix(&number))
}

fn written(column: &ColumnInfo, cell: &Cell, cells: &mut Cells) -> String {
    match cell.as_ref().map(OwnedValue::value) {
        Err(reason) => missing(reason),
        Ok(Value::Float(number)) => format!("{number:.1}"),
        Ok(value) => text::written(|out| cells.value(out, column, value)),
    }
}

/// The last column of a list whose texts may be long paths, of which the ends tell most.
pub const PATHS: &str = "name";

/// The names of columns, with whether they are numbers, and the cells of rows.
pub type Texts = (Vec<(&'static str, bool)>, Vec<Vec<String>>);

/// The texts of a section's rows. Of one that is no list, a row for each value.
pub fn texts(section: Section, rows: &[Vec<Cell>], exact: bool) -> Texts {
    let is_of_tasks = match section.info().shape {
        Shape::Fields(_) | Shape::Values(_) => {
            let values = rows.iter().flat_map(|row| values(section, row, exact));
            let rows = values.map(|(name, text)| vec![name.to_owned(), text]);
            return (vec![(section.info().key, false), ("value", false)], rows.collect());
        }
        Shape::List(_) if section == Section::Sockets => return of_sockets(rows, exact),
        shape => matches!(shape, Shape::Tasks(_)),
    };
    let columns = section.columns();
    let mut cells = Cells::new(exact, true);
    let mut text = |row: &[Cell], (column, cell): (&ColumnInfo, &Cell)| {
        let mut column = *column;
        let name = row.first().map(|name| name.as_ref().map(OwnedValue::value));
        let is_of_bytes = || IN_BYTES.iter().any(|known| name == Some(Ok(Value::Text(known))));
        if section == Section::Limits && column.kind == Kind::Count && is_of_bytes() {
            column.kind = Kind::Bytes;
        }
        let unit = UNITS.iter().find(|(known, _)| name == Some(Ok(Value::Text(known))));
        let unit = unit.filter(|_| section == Section::Limits && column.kind == Kind::Count && !exact);
        match (cell, cell.as_ref().map(OwnedValue::value), unit) {
            (Err(_), ..) if is_of_tasks => "-".to_owned(),
            (_, Ok(Value::Unsigned(number)), Some((_, unit))) => format!("{number}{unit}"),
            _ => written(&column, cell, &mut cells),
        }
    };
    let mut of_row = |row: &Vec<Cell>| columns.iter().zip(row).map(|pair| text(row, pair)).collect();
    let rows = rows.iter().map(&mut of_row).collect();
    let columns = columns.iter().map(|column| (column.name, is_number(column.kind)));
    (columns.collect(), rows)
}

/// A table whose first column is indented a little.
fn of_list((columns, rows): &Texts) -> Table {
    let align = |(_, is_number): &(_, bool)| if *is_number { Align::Right } else { Align::Left };
    let mut table = Table::new(columns.iter().map(align), rows.len());
    let indent = |index: usize| if index == 0 { "  " } else { "" };
    let names = columns.iter().enumerate();
    let names: Vec<String> = names
        .map(|(index, (name, _))| format!("{}{name}", indent(index)))
        .collect();
    table.headings(names.iter().map(String::as_str));
    for (index, (name, _)) in columns.iter().enumerate().skip(1) {
        if ["local", "remote", PATHS].contains(name) {
            table.keep_end(index);
        }
    }
    for (index, text) in rows.iter().flat_map(|row| row.iter().enumerate()) {
        table.cell(|out| formatted(out, format_args!("{}{text}", indent(index))));
    }
    table
}

/// Sockets, in fewer columns than they have values.
fn of_sockets(rows: &[Vec<Cell>], exact: bool) -> Texts {
    use SocketField as Of;
    let columns = Section::Sockets.columns();
    let mut cells = Cells::new(exact, false);
    // The page is about one of the owners: only others are worth their room.
    let is_shared = |cell: &Cell| matches!(cell.as_ref().map(OwnedValue::value), Ok(Value::Owners([_, _, ..])));
    let is_shared = rows.iter().flatten().any(is_shared);
    let owners = is_shared.then_some(Of::Owners);
    let mut of_row = |row: &Vec<Cell>| -> Vec<String> {
        let mut of = |field: Of| {
            let at = SOCKET_FIELDS.iter().position(|other| *other == field);
            let known = at.and_then(|at| Some((&columns[at], row.get(at)?.as_ref().ok()?)));
            known.map_or_else(
                || "-".to_owned(),
                |(column, kept)| {
                    text::written(|out| match kept.value() {
                        Value::Text(bytes) => text::escape(out, bytes),
                        value => cells.value(out, column, value),
                    })
                },
            )
        };
        let protocol = match (row.first(), of(Of::Protocol)) {
            // It is in no list that could be read.
            (Some(Err(reason)), _) => missing(reason),
            (_, protocol) if protocol == "-" => format!("{}/{}", of(Of::Family), of(Of::Type)),
            (_, protocol) => protocol,
        };
        let local = match of(Of::Path) {
            path if path != "-" => path,
            // Any address, of IPv4 too.
            _ if (&*of(Of::LocalAddr), &*of(Of::Ipv6Only)) == ("::", "false") => format!("*:{}", of(Of::LocalPort)),
            _ => end(&of(Of::LocalAddr), &of(Of::LocalPort)),
        };
        let remote = end(&of(Of::RemoteAddr), &of(Of::RemotePort));
        let before = [
            Of::State,
            Of::RecvQueueBytes,
            Of::SendQueueBytes,
            Of::AckedBytes,
            Of::ReceivedBytes,
        ];
        let mut texts = vec![protocol];
        texts.extend(before.map(&mut of));
        texts.extend([local, remote]);
        texts.extend(owners.into_iter().chain([Of::Peers]).map(&mut of));
        texts
    };
    let rows = rows.iter().map(&mut of_row).collect();
    let numbers = ["recv-q", "send-q", "acked", "received"].map(|name| (name, true));
    let names = [("proto", false), ("state", false)].into_iter().chain(numbers);
    let ends = [("local", false), ("peer", false)];
    let others = owners.map(|_| ("owners", false)).into_iter().chain([("peers", false)]);
    (names.chain(ends).chain(others).collect(), rows)
}

/// One end of a socket.
fn end(addr: &str, port: &str) -> String {
    match (addr, port) {
        (addr, "-") => addr.to_owned(),
        ("-", port) => format!("*:{port}"),
        (addr, port) if addr.contains(':') => format!("[{addr}]:{port}"),
        (addr, port) => format!("{addr}:{port}"),
    }
}

/// Appends the page as a JSON object: a key for each section that exists, and the reasons for the
/// others.
pub fn as_json(out: &mut Vec<u8>, parts: &[PagePart]) {
    let mut before = b'{';
    for part in parts {
        let (Ok(rows), info) = (&part.body, part.section.info()) else {
            continue;
        };
        out.push(before);
        before = b',';
        json::string(out, info.key);
        out.push(b':');
        let columns = part.section.columns();
        let row = |out: &mut Vec<u8>, row: &Vec<Cell>| {
            object(out, &columns, |index| {
                Ok(row[index].as_ref().map_err(|reason| *reason)?.value())
            });
        };
        match info.shape {
            Shape::Fields(_) | Shape::Values(_) => rows.iter().for_each(|one| row(out, one)),
            Shape::Tasks(_) | Shape::List(_) => json::list(out, rows.iter(), row),
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
