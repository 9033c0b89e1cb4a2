//! Rows of named values, for commands whose rows are not tasks.

use std::cmp::Ordering;
use std::io;

use taskdiag::files::Owner;
use taskdiag::{Kind, Value};

use super::cell::{self, is_number};
use super::document::{self, member, Document, Head, Sample};
use super::format::Machine;
use super::table::{terminal_width, Align, Table};
use super::{csv, json, people, text, Cell, Output};
use crate::choice::{unknown, Chosen, SortBy};
use crate::outcome::Failure;

/// The totals of rows, as a row with its own keys.
pub type Total<'a> = Option<(&'a [&'static str], &'a [Cell<'a>])>;

/// What is known about the values under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKey {
    /// The key in JSON, the heading in CSV and with `-o`, the name for `-o` and `--sort`.
    pub name: &'static str,
    /// The kind of the values.
    pub kind: Kind,
    /// Their meaning.
    pub meaning: &'static str,
}

/// A copy of a value of a row, for sorting.
#[derive(Clone, Debug)]
pub enum OwnedValue {
    /// [`Value::Unsigned`].
    Unsigned(u64),
    /// [`Value::Signed`].
    Signed(i64),
    /// [`Value::Mask`].
    Mask(u64),
    /// [`Value::Flag`].
    Flag(bool),
    /// [`Value::Float`].
    Float(f64),
    /// [`Value::Owners`].
    Owners(Vec<Owner>),
    /// [`Value::Text`], and all other kinds.
    Text(Vec<u8>),
}

impl OwnedValue {
    /// Copies a value.
    pub fn new(value: Value<'_>) -> OwnedValue {
        match value {
            Value::Unsigned(number) => OwnedValue::Unsigned(number),
            Value::Signed(number) => OwnedValue::Signed(number),
            Value::Mask(bits) => OwnedValue::Mask(bits),
            Value::Flag(flag) => OwnedValue::Flag(flag),
            Value::Float(number) => OwnedValue::Float(number),
            Value::Owners(owners) => OwnedValue::Owners(owners.to_vec()),
            Value::Text(text) => OwnedValue::Text(text.to_vec()),
            other => OwnedValue::Text(other.to_string().into_bytes()),
        }
    }

    /// The value.
    pub fn value(&self) -> Value<'_> {
        match self {
            OwnedValue::Unsigned(number) => Value::Unsigned(*number),
            OwnedValue::Signed(number) => Value::Signed(*number),
            OwnedValue::Mask(bits) => Value::Mask(*bits),
            OwnedValue::Flag(flag) => Value::Flag(*flag),
            OwnedValue::Float(number) => Value::Float(*number),
            OwnedValue::Owners(owners) => Value::Owners(owners),
            OwnedValue::Text(text) => Value::Text(text),
        }
    }
}

/// What a value is sorted by: itself, or the process of its first descriptor.
pub fn sorted_by(value: Value<'_>) -> Cell<'_> {
    match value {
        Value::Owners([first, ..]) => Ok(Value::Unsigned(first.pid.into())),
        Value::Owners([]) => Err("none"),
        value => Ok(value),
    }
}

/// A key.
pub const fn key(name: &'static str, kind: Kind, meaning: &'static str) -> RowKey {
    RowKey { name, kind, meaning }
}

/// The keys of rows whose fields are in a table of the library.
macro_rules! keys_of {
    ($fields:ident) => {{
        let mut keys = [$crate::output::named::key("", $fields::ALL[0].kind(), ""); $fields::ALL.len()];
        let mut index = 0;
        while index < keys.len() {
            let field = $fields::ALL[index];
            keys[index] = $crate::output::named::key(field.name(), field.kind(), field.meaning());
            index += 1;
        }
        keys
    }};
}
pub(crate) use keys_of;

/// The keys that `-o` options name, as indices.
pub fn chosen(lists: &[String], keys: &[RowKey]) -> Result<Chosen<usize>, Failure> {
    Chosen::parse(lists, |name| match name {
        "all" => Ok((0..keys.len()).collect()),
        name => Ok(vec![index(name, keys)?]),
    })
}

/// The keys that `--sort` options name, as indices.
pub fn sort_keys(lists: &[String], keys: &[RowKey]) -> Result<Vec<SortBy<usize>>, Failure> {
    SortBy::parse(lists, |name| index(name, keys))
}

fn index(name: &str, keys: &[RowKey]) -> Result<usize, Failure> {
    let found = keys.iter().position(|key| key.name == name);
    found.ok_or_else(|| unknown("field", name, keys.iter().map(|key| key.name)))
}

/// The order of two rows. `cell` returns their values.
pub fn compare<R>(by: &[SortBy<usize>], a: &R, b: &R, cell: impl for<'a> Fn(&'a R, usize) -> Cell<'a>) -> Ordering {
    by.iter()
        .map(|by| by.compare(cell(a, by.key), cell(b, by.key), order))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Compares two values of the same kind.
fn order(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    let number = |value: &Value<'_>| match *value {
        Value::Unsigned(number) | Value::Mask(number) => Some(i128::from(number)),
        Value::Signed(number) => Some(number.into()),
        Value::Flag(flag) => Some(flag.into()),
        _ => None,
    };
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (a, b) => number(a).cmp(&number(b)),
    }
}

/// Writes a table of the chosen keys, with their names as headings.
pub fn write_table<'a>(
    keys: &[RowKey],
    rows: impl Iterator<Item = Vec<Cell<'a>>>,
    exact: bool,
    header: bool,
) -> io::Result<()> {
    let align = |key: &RowKey| {
        let is_right = is_number(key.kind) || key.kind == Kind::Address;
        if is_right {
            Align::Right
        } else {
            Align::Left
        }
    };
    let mut table = Table::new(keys.iter().map(align), 0);
    if header {
        table.headings(keys.iter().map(|key| key.name));
    }
    for row in rows {
        for (key, value) in keys.iter().zip(row) {
            table.cell(|out| write_value(out, key, value, exact));
        }
    }
    let mut output = Output::new();
    table.write(&mut output, terminal_width())?;
    output.finish()
}

/// Appends a value for people.
pub fn write_value(out: &mut Vec<u8>, key: &RowKey, value: Cell<'_>, exact: bool) {
    match value {
        Err(_) => out.push(b'-'),
        Ok(Value::Text(b"")) => out.extend_from_slice(b"\"\""),
        Ok(Value::Text(bytes)) => text::escape(out, bytes),
        Ok(Value::Unsigned(bytes)) if key.kind == Kind::Bytes && !exact => people::size(out, bytes),
        Ok(Value::Owners(owners)) => write_owners(out, owners),
        Ok(value) => cell::plain(out, value, b','),
    }
}

/// Appends descriptors for people.
pub fn write_owners(out: &mut Vec<u8>, owners: &[Owner]) {
    if owners.is_empty() {
        return out.push(b'-');
    }
    let mut plain = Vec::new();
    cell::plain(&mut plain, Value::Owners(owners), b',');
    text::escape(out, &plain);
}

/// Rows for programs, all with the same keys, while they are being written.
#[derive(Debug)]
pub struct Rows {
    machine: Machine,
    keys: Vec<&'static str>,
    document: Document,
    output: Output,
}

impl Rows {
    /// Begins to write. `header` says whether CSV has a header.
    pub fn begin(machine: Machine, head: &Head<'_>, keys: Vec<&'static str>, header: bool) -> Rows {
        let mut output = Output::new();
        let document = Document::begin(output.buffer(), machine, head, header.then_some(&keys));
        Rows {
            machine,
            keys,
            document,
            output,
        }
    }

    /// Writes the line that precedes the rows of a sample in JSON lines.
    pub fn sample(&mut self, sample: Sample<'_>, rows: usize) {
        if self.machine == Machine::Jsonl {
            document::sample(self.output.buffer(), sample, rows);
        }
    }

    /// Writes a row: a cell for each key.
    pub fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        let (machine, keys) = (self.machine, &self.keys);
        let write = |out: &mut Vec<u8>| write_row(out, machine, keys, cells);
        self.document.row(self.output.buffer(), write);
        self.output.row_ended()
    }

    /// Writes a row made by [`write_row`].
    pub fn written_row(&mut self, row: &[u8]) -> io::Result<()> {
        self.document
            .row(self.output.buffer(), |out| out.extend_from_slice(row));
        self.output.row_ended()
    }

    /// Writes the end of the output.
    pub fn finish(self) -> io::Result<()> {
        self.finish_with(|_| {})
    }

    /// Writes the end. `write` appends more members of a JSON document, each preceded by a comma.
    pub fn finish_with(mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.document.end(self.output.buffer(), write);
        self.output.finish()
    }
}

/// Appends a row for programs, without the separators between rows.
pub fn write_row(out: &mut Vec<u8>, machine: Machine, keys: &[&'static str], cells: &[Cell<'_>]) {
    match machine {
        Machine::Csv => csv::named_row(out, cells),
        Machine::Json | Machine::Jsonl => json::named_row(out, keys, cells),
    }
}

/// Appends the totals of rows as a member of their document.
pub fn write_total(out: &mut Vec<u8>, total: Total<'_>) {
    if let Some((keys, cells)) = total {
        member(out, "total", |out| json::named_row(out, keys, cells));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(machine: Machine) -> String {
        let head = Head::new("maps", vec![("maps", "procfs")], [("denied", 2)]);
        let mut rows = Rows::begin(machine, &head, vec!["start", "name", "inode"], true);
        rows.row(&[Ok(Value::Mask(0x1000)), Ok(Value::Text(b"a,\"b\"")), Err("denied")])
            .expect("nothing is written yet");
        rows.row(&[Ok(Value::Mask(0)), Ok(Value::Text(b"\xff")), Ok(Value::Unsigned(3))])
            .expect("nothing is written yet");
        rows.document.end(rows.output.buffer(), |_| {});
        String::from_utf8_lossy(rows.output.buffer()).into_owned()
    }

    /// Check the three forms, with values that are missing, need quoting, or are not UTF-8.
    #[test]
    fn rows_have_three_forms() {
        assert_eq!(
            written(Machine::Csv),
            "start,name,inode\n0x1000,\"a,\"\"b\"\"\",\n0x0,\u{fffd},3\n"
        );
        let lines = "{\"start\":\"0x1000\",\"name\":\"a,\\\"b\\\"\",\"absent\":{\"inode\":\"denied\"}}\n\
                     {\"start\":\"0x0\",\"name\":{\"base64\":\"/w==\"},\"inode\":3}\n";
        assert_eq!(written(Machine::Jsonl), lines);
        let document: serde_json::Value = serde_json::from_str(&written(Machine::Json)).expect("JSON");
        let rows: Vec<serde_json::Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(
            (&document["command"], &document["rows"]),
            (&"maps".into(), &rows.into())
        );
    }

    const KEYS: [RowKey; 2] = [key("size_bytes", Kind::Bytes, ""), key("name", Kind::Text, "")];

    /// Check that keys are found by name, and that rows are sorted by key.
    #[test]
    fn rows_are_sorted_by_their_keys() {
        assert_eq!(chosen(&["name".to_owned()], &KEYS).expect("a key").keys(&[0, 1]), [1]);
        assert!(chosen(&["size".to_owned()], &KEYS).is_err());
        let mut rows = [(3, "b"), (10, "a"), (3, "c")];
        fn cell<'a>(row: &'a (u64, &str), index: usize) -> Cell<'a> {
            match index {
                0 => Ok(Value::Unsigned(row.0)),
                _ => Ok(Value::Text(row.1.as_bytes())),
            }
        }
        let by = sort_keys(&["size_bytes,-name".to_owned()], &KEYS).expect("keys");
        rows.sort_by(|a, b| compare(&by, a, b, cell));
        assert_eq!(rows, [(3, "c"), (3, "b"), (10, "a")]);
    }
}
