//! Rows for programs: JSON, lines of JSON, or CSV.

use std::io;

use taskdiag::{Kind, Value};

#[cfg(feature = "arrow")]
use super::columnar::ColumnarWriter;
use super::document::{self, member, Document, Head, Sample};
use super::format::Machine;
use super::names::{NameKind, Named, Names};
use super::owned::OwnedValue;
use super::relation::{column, Cell, ColumnInfo, NONE};
use super::{csv, json, Output};

/// The number of a sample, before the other columns of its rows.
const SAMPLE: ColumnInfo = column("sample", Kind::Count, "The number of the sample, from 0.");

/// The time of a sample, in CSV. In JSON, the line before the sample has it.
const TIME: ColumnInfo = column("time", Kind::Text, "When the sample was taken.");

/// The totals of rows: columns and their values.
pub type Total<'a> = Option<(&'a [ColumnInfo], &'a [Cell<'a>])>;

/// Writes single rows.
#[derive(Debug)]
pub struct RowWriter {
    machine: Machine,
    columns: Vec<RowColumn>,
    /// Set if names stand beside numbers that have names.
    names: Option<Names>,
    absent: Vec<(&'static str, &'static str)>,
}

#[derive(Debug)]
struct RowColumn {
    name: &'static str,
    /// The name as a key of JSON, colon included.
    key: Vec<u8>,
    /// The column for the names of the values.
    names: Option<(NameKind, String)>,
}

impl RowWriter {
    /// A writer of rows with these columns. With `named`, numbers that have names get another
    /// column for the names.
    pub fn new(machine: Machine, columns: impl IntoIterator<Item = ColumnInfo>, named: bool) -> RowWriter {
        let column = |info: ColumnInfo| RowColumn {
            name: info.name,
            key: format!("\"{}\":", info.name).into_bytes(),
            names: info.names().zip(info.names_column()).filter(|_| named),
        };
        RowWriter {
            machine,
            columns: columns.into_iter().map(column).collect(),
            names: named.then(Names::default),
            absent: Vec::new(),
        }
    }

    /// The names of the columns.
    fn header(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().flat_map(|column| {
            let names = column.names.as_ref().map(|(_, name)| name.as_str());
            std::iter::once(column.name).chain(names)
        })
    }

    /// Appends a row. `cell` gives the value in each column, by the index among the written ones.
    #[inline]
    pub fn write<'a>(&mut self, out: &mut Vec<u8>, cell: impl FnMut(usize) -> Cell<'a>) {
        match self.machine {
            Machine::Csv => self.write_csv(out, cell),
            _ => self.write_json(out, cell),
        }
    }

    /// Appends a key for each value, and `absent` with the reasons for the others.
    fn write_json<'a>(&mut self, out: &mut Vec<u8>, mut cell: impl FnMut(usize) -> Cell<'a>) {
        self.absent.clear();
        let mut before = b'{';
        for (index, column) in self.columns.iter().enumerate() {
            let value = match cell(index) {
                Ok(value) => value,
                Err(reason) => {
                    self.absent.push((column.name, reason));
                    continue;
                }
            };
            out.push(before);
            before = b',';
            out.extend_from_slice(&column.key);
            json::write_value(out, value);
            let named = self.names.as_mut().zip(column.names.as_ref());
            if let Some((names, (kind, key))) = named {
                match names.of(*kind, &value) {
                    Some(Named::One(name)) => member(out, key, |out| json::text(out, &name)),
                    Some(Named::Members(names)) => member(out, key, |out| {
                        json::list(out, names.iter(), |out, name| json::string(out, name));
                    }),
                    None => {}
                }
            }
        }
        if !self.absent.is_empty() {
            out.push(before);
            before = b',';
            out.extend_from_slice(b"\"absent\":");
            json::object(out, &self.absent, |&(name, reason)| {
                (name, move |out: &mut Vec<u8>| json::string(out, reason))
            });
        }
        if before == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
    }

    /// Appends the cells. The cell of a number is followed by one with its name.
    fn write_csv<'a>(&mut self, out: &mut Vec<u8>, mut cell: impl FnMut(usize) -> Cell<'a>) {
        for (index, column) in self.columns.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let value = cell(index).ok();
            if let Some(value) = value {
                csv::write_value(out, value);
            }
            let (Some(names), Some((kind, _))) = (&mut self.names, &column.names) else {
                continue;
            };
            out.push(b',');
            match value.and_then(|value| names.of(*kind, &value)) {
                None => {}
                Some(Named::One(name)) => csv::write_value(out, Value::Text(&name)),
                Some(Named::Members(names)) => csv::write_value(out, Value::Text(names.join(" ").as_bytes())),
            }
        }
    }
}

/// How rows are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowOptions {
    /// Whether CSV has a header.
    pub header: bool,
    /// Whether names are written beside numbers.
    pub named: bool,
    /// Whether the rows belong to samples: [`Rows::sample`] comes before those of each.
    pub samples: bool,
}

/// Rows while they are being written to standard output.
pub struct Rows {
    machine: Machine,
    sink: Sink,
    /// The values of the first columns, which all rows of a sample share.
    sample: Vec<OwnedValue>,
}

enum Sink {
    Text {
        writer: Box<RowWriter>,
        document: Document,
        output: Output,
    },
    #[cfg(feature = "arrow")]
    Columns(io::Result<Box<ColumnarWriter>>),
}

impl Rows {
    /// Begins to write rows with these columns.
    pub fn begin(
        machine: Machine,
        head: &Head<'_>,
        columns: impl IntoIterator<Item = ColumnInfo>,
        options: RowOptions,
    ) -> Rows {
        let of_sample: &[ColumnInfo] = match machine {
            _ if !options.samples => &[],
            Machine::Jsonl => &[SAMPLE],
            _ => &[SAMPLE, TIME],
        };
        let columns = of_sample.iter().copied().chain(columns);
        #[cfg(feature = "arrow")]
        if let Machine::Columnar(form) = machine {
            let writer = ColumnarWriter::new(form, columns, options.named);
            return Rows {
                machine,
                sink: Sink::Columns(writer.map(Box::new)),
                sample: Vec::new(),
            };
        }
        let writer = RowWriter::new(machine, columns, options.named);
        let mut output = Output::default();
        let header = options.header.then(|| writer.header());
        let document = Document::begin(&mut output.buffer, machine, head, header);
        Rows {
            machine,
            sink: Sink::Text {
                writer: Box::new(writer),
                document,
                output,
            },
            sample: Vec::new(),
        }
    }

    /// Begins a sample with this many rows. A sample without rows is a line of CSV.
    pub fn sample(&mut self, sample: Sample<'_>, rows: usize) -> io::Result<()> {
        self.sample = vec![OwnedValue::Unsigned(sample.number)];
        if let (Machine::Jsonl, Sink::Text { output, .. }) = (self.machine, &mut self.sink) {
            document::sample(&mut output.buffer, sample, rows);
        }
        if self.machine != Machine::Jsonl {
            self.sample.push(OwnedValue::Text(sample.time.into()));
            if rows == 0 && self.machine != Machine::Json {
                self.row(|_| Err(NONE))?;
            }
        }
        Ok(())
    }

    /// Writes a row. `cell` gives the value in each column.
    #[inline]
    pub fn row<'a>(&mut self, cell: impl FnMut(usize) -> Cell<'a>) -> io::Result<()> {
        let sample = &self.sample;
        match &mut self.sink {
            Sink::Text {
                writer,
                document,
                output,
            } => {
                document.row(&mut output.buffer, |out| match sample.len() {
                    0 => writer.write(out, cell),
                    _ => writer.write(out, with_sample(sample, cell)),
                });
                output.row_ended()
            }
            #[cfg(feature = "arrow")]
            Sink::Columns(Ok(writer)) => writer.row(with_sample(sample, cell)),
            #[cfg(feature = "arrow")]
            Sink::Columns(failed) => take(failed),
        }
    }

    /// Writes what has been collected.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Text { output, .. } => output.flush(),
            #[cfg(feature = "arrow")]
            Sink::Columns(Ok(writer)) => writer.flush(),
            #[cfg(feature = "arrow")]
            Sink::Columns(failed) => take(failed),
        }
    }

    /// Writes the end of the output.
    pub fn finish(self) -> io::Result<()> {
        self.finish_with(|_| {})
    }

    /// Writes the end, after this many samples.
    pub fn finish_samples(self, samples: u64) -> io::Result<()> {
        self.finish_with(|out| document::counts(out, [("samples", samples)]))
    }

    /// Writes the end. `write` appends more members of a JSON document, each preceded by a comma.
    pub fn finish_with(self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        match self.sink {
            Sink::Text {
                document, mut output, ..
            } => {
                document.end(&mut output.buffer, write);
                output.finish()
            }
            #[cfg(feature = "arrow")]
            Sink::Columns(writer) => writer?.finish(),
        }
    }
}

/// The cells of a row, behind those of its sample.
fn with_sample<'s, 'a: 's>(
    sample: &'s [OwnedValue],
    mut cell: impl FnMut(usize) -> Cell<'a>,
) -> impl FnMut(usize) -> Cell<'s> {
    move |index| match sample.get(index) {
        Some(own) => Ok(own.value()),
        None => cell(index - sample.len()),
    }
}

/// The error of a writer that could not begin.
#[cfg(feature = "arrow")]
fn take(failed: &mut io::Result<Box<ColumnarWriter>>) -> io::Result<()> {
    match failed {
        Ok(_) => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}

/// Appends the totals of rows as a member of their document.
pub fn write_total(out: &mut Vec<u8>, total: Total<'_>) {
    if let Some((columns, cells)) = total {
        member(out, "total", |out| object(out, columns, |index| cells[index]));
    }
}

/// Appends a single row as an object of JSON.
pub fn object<'a>(out: &mut Vec<u8>, columns: &[ColumnInfo], cell: impl FnMut(usize) -> Cell<'a>) {
    RowWriter::new(Machine::Json, columns.iter().copied(), false).write(out, cell);
}

#[cfg(test)]
mod tests {
    use taskdiag::{Absent, Arguments, Field, Ids};

    use super::super::relation::tests::TestRow;
    use super::super::relation::Row as _;
    use super::*;

    /// The row of a task, with all of its fields.
    fn written(machine: Machine, made: &TestRow<'_>, named: bool) -> (String, String) {
        let fields: Vec<Field> = made.0.iter().map(|(field, _)| *field).collect();
        let columns = fields.iter().map(|&field| ColumnInfo::of_task(field));
        let mut writer = RowWriter::new(machine, columns, named);
        let mut out = Vec::new();
        writer.write(&mut out, |index| made.cell(fields[index] as usize));
        let header: Vec<&str> = writer.header().collect();
        (header.join(","), String::from_utf8(out).expect("made of UTF-8"))
    }

    fn parsed(text: &str) -> serde_json::Value {
        serde_json::from_str(text).expect("JSON")
    }

    /// Check the form of every kind of value, and that a missing value has a reason in place of a
    /// key.
    #[test]
    fn rows_have_values_or_reasons() {
        let made = TestRow(vec![
            (Field::Pid, Ok(Value::Unsigned(u64::MAX))),
            (Field::Nice, Ok(Value::Signed(-5))),
            (Field::KernelThread, Ok(Value::Flag(true))),
            (Field::State, Ok(Value::Letter('S'))),
            (Field::CapEffective, Ok(Value::Mask(0x1ff))),
            (Field::Comm, Ok(Value::Text(b"\xff\x00"))),
            (
                Field::Cmdline,
                Ok(Value::Texts(Arguments::new("é \"\\\n\0\0\u{1}\0".as_bytes()))),
            ),
            (Field::RssBytes, Err(Absent::NoMemory)),
            (Field::CpuPercent, Ok(Value::Float(12.345))),
        ]);
        let expected = serde_json::json!({
            "pid": u64::MAX, "nice": -5, "kernel_thread": true, "state": "S", "cap_effective": "0x1ff",
            "comm": {"base64": "/wA="}, "cmdline": ["é \"\\\n", "", "\u{1}"],
            "absent": {"rss_bytes": "no memory"}, "cpu_percent": 12.345,
        });
        assert_eq!(parsed(&written(Machine::Json, &made, false).1), expected);
        assert_eq!(written(Machine::Jsonl, &TestRow(vec![]), false).1, "{}");
    }

    /// Check that cells with separators are quoted, that quotes are doubled, and that missing
    /// values differ from empty ones.
    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let made = TestRow(vec![
            (Field::Pid, Ok(Value::Unsigned(1))),
            (Field::Comm, Ok(Value::Text(b"a,\"b\"\n"))),
            (Field::Cgroup, Ok(Value::Text(b""))),
            (Field::RssBytes, Err(Absent::NoMemory)),
            (Field::Cmdline, Ok(Value::Texts(Arguments::new(b"sh\0-c\0x\0")))),
            (Field::Groups, Ok(Value::Ids(Ids::new(b"")))),
        ]);
        let (header, row) = written(Machine::Csv, &made, false);
        assert_eq!(header, "pid,comm,cgroup,rss_bytes,cmdline,groups");
        assert_eq!(row, "1,\"a,\"\"b\"\"\n\",\"\",,sh -c x,\"\"");
    }

    /// Check that names stand beside numbers, which keep their types, in JSON only where a number
    /// has one, and in CSV always as a cell.
    #[test]
    fn names_stand_beside_numbers() {
        let made = TestRow(vec![
            (Field::Uid, Ok(Value::Unsigned(0))),
            (Field::Gid, Ok(Value::Unsigned(4_000_000_000))),
            (Field::Euid, Err(Absent::Denied)),
            (Field::CapEffective, Ok(Value::Mask(0b11))),
        ]);
        let expected = serde_json::json!({
            "uid": 0, "uid_name": "root", "gid": 4_000_000_000_u32, "cap_effective": "0x3",
            "cap_effective_names": ["cap_chown", "cap_dac_override"], "absent": {"euid": "denied"},
        });
        assert_eq!(parsed(&written(Machine::Json, &made, true).1), expected);
        let (header, row) = written(Machine::Csv, &made, true);
        assert_eq!(
            header,
            "uid,uid_name,gid,gid_name,euid,euid_name,cap_effective,cap_effective_names"
        );
        assert_eq!(row, "0,root,4000000000,,,,0x3,cap_chown cap_dac_override");
    }

    /// Check that the rows of a sample begin with its number, in CSV with its time too, and that
    /// a sample without rows is seen.
    #[test]
    fn rows_begin_with_their_sample() {
        let written = |machine| {
            let columns = [column("a", Kind::Count, "")];
            let options = RowOptions {
                header: true,
                samples: true,
                ..RowOptions::default()
            };
            let mut rows = Rows::begin(machine, &Head::streaming("watch", Vec::new()), columns, options);
            for (number, values) in [(0, &[5][..]), (1, &[])] {
                let sample = Sample { number, time: "now" };
                rows.sample(sample, values.len()).expect("nothing is written yet");
                for value in values {
                    rows.row(|_| Ok(Value::Unsigned(*value)))
                        .expect("nothing is written yet");
                }
            }
            let Sink::Text { output, .. } = &mut rows.sink else {
                panic!("it is text");
            };
            String::from_utf8(std::mem::take(&mut output.buffer)).expect("made of UTF-8")
        };
        assert_eq!(written(Machine::Csv), "sample,time,a\n0,now,5\n1,now,\n");
        let lines = "{\"sample\":0,\"time\":\"now\",\"rows\":1}\n{\"sample\":0,\"a\":5}\n\
                     {\"sample\":1,\"time\":\"now\",\"rows\":0}\n";
        assert_eq!(written(Machine::Jsonl), lines);
    }
}
