//! Rows as columns: a Parquet file, or a stream of Arrow, on standard output.
//!
//! A missing value is null; the column `absent` has the reasons by the names of columns.

use std::io;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float64Builder, Int64Builder, ListBuilder, MapBuilder, StringBuilder, UInt32Builder,
    UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Field as ArrowField, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use taskdiag::{Field, Kind, Value};

use super::cell::plain;
use super::format::Columnar;
use super::names::{NameKind, Named, Names};
use super::relation::{Cell, ColumnInfo};
use super::{terminal, text, Output};

/// How many rows make a batch. A stream is also cut where rows must not wait.
const BATCH: usize = 8192;

/// Collects rows as columns and writes them.
pub struct ColumnarWriter {
    columns: Vec<Column>,
    names: Names,
    absent: MapBuilder<StringBuilder, StringBuilder>,
    rows: usize,
    writer: Writer,
}

/// Collects the values of one column.
struct Column {
    name: String,
    values: Values,
    /// Set for a column of names, which are those of the values of the column before.
    names_of: Option<NameKind>,
}

enum Values {
    Unsigned(UInt64Builder),
    Signed(Int64Builder),
    Float(Float64Builder),
    Flag(BooleanBuilder),
    Text(StringBuilder),
    Texts(ListBuilder<StringBuilder>),
    Ids(ListBuilder<UInt32Builder>),
}

enum Writer {
    Parquet(Box<ArrowWriter<Output>>),
    Arrow(Box<StreamWriter<Output>>),
}

impl Values {
    fn new(column: &ColumnInfo) -> Values {
        match column.kind {
            // A task may be older than the zero of its reader's clock.
            Kind::Nanoseconds if column.name == Field::StartNs.name() => Values::Signed(Int64Builder::new()),
            // Rates have fractions, whatever they are of.
            _ if column.name.ends_with("_per_s") => Values::Float(Float64Builder::new()),
            Kind::Id | Kind::User | Kind::GroupId | Kind::Count | Kind::Mode | Kind::Bytes | Kind::Nanoseconds => {
                Values::Unsigned(UInt64Builder::new())
            }
            Kind::Mask | Kind::Capabilities | Kind::Signals | Kind::Address => Values::Unsigned(UInt64Builder::new()),
            Kind::Signed => Values::Signed(Int64Builder::new()),
            Kind::Percent => Values::Float(Float64Builder::new()),
            Kind::Flag => Values::Flag(BooleanBuilder::new()),
            Kind::Texts => Values::Texts(ListBuilder::default()),
            Kind::Ids => Values::Ids(ListBuilder::default()),
            Kind::Letter | Kind::Text | Kind::Time | Kind::Cpus | Kind::Limits => Values::Text(StringBuilder::new()),
        }
    }

    fn push(&mut self, value: Option<Value<'_>>) {
        match (self, value) {
            (Values::Unsigned(values), Some(Value::Unsigned(number) | Value::Mask(number))) => {
                values.append_value(number);
            }
            (Values::Unsigned(values), _) => values.append_null(),
            (Values::Signed(values), Some(Value::Signed(number))) => values.append_value(number),
            (Values::Signed(values), Some(Value::Unsigned(number))) => values.append_value(number as i64),
            (Values::Signed(values), _) => values.append_null(),
            (Values::Float(values), Some(Value::Float(number))) => values.append_value(number),
            (Values::Float(values), _) => values.append_null(),
            (Values::Flag(values), Some(Value::Flag(flag))) => values.append_value(flag),
            (Values::Flag(values), _) => values.append_null(),
            (Values::Text(values), Some(value)) => {
                let mut bytes = Vec::new();
                plain(&mut bytes, value, b',');
                values.append_value(as_text(&bytes));
            }
            (Values::Text(values), None) => values.append_null(),
            (Values::Texts(values), Some(Value::Texts(texts))) => {
                texts
                    .iter()
                    .for_each(|text| values.values().append_value(as_text(text)));
                values.append(true);
            }
            (Values::Texts(values), Some(Value::Owners(owners))) => {
                for owner in owners {
                    let mut bytes = Vec::new();
                    plain(&mut bytes, Value::Owners(std::slice::from_ref(owner)), b',');
                    values.values().append_value(as_text(&bytes));
                }
                values.append(true);
            }
            (Values::Texts(values), _) => values.append(false),
            (Values::Ids(values), Some(Value::Ids(ids))) => {
                ids.iter().for_each(|id| values.values().append_value(id));
                values.append(true);
            }
            (Values::Ids(values), _) => values.append(false),
        }
    }

    fn push_named(&mut self, named: Option<Named>) {
        match (self, named) {
            (Values::Text(values), Some(Named::One(name))) => values.append_value(as_text(&name)),
            (Values::Texts(values), Some(Named::Members(names))) => {
                names.iter().for_each(|name| values.values().append_value(name));
                values.append(true);
            }
            (Values::Texts(values), _) => values.append(false),
            (values, _) => values.push(None),
        }
    }

    fn builder(&mut self) -> &mut dyn ArrayBuilder {
        match self {
            Values::Unsigned(values) => values,
            Values::Signed(values) => values,
            Values::Float(values) => values,
            Values::Flag(values) => values,
            Values::Text(values) => values,
            Values::Texts(values) => values,
            Values::Ids(values) => values,
        }
    }
}

/// Bytes as text. Bytes that are not UTF-8 are escaped, as in tables.
fn as_text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap_or_else(|_| text::escaped(bytes))
}

impl ColumnarWriter {
    /// A writer of rows with these columns. With `named`, numbers that have names get another
    /// column for the names. Fails if standard output is a terminal.
    pub fn new(
        form: Columnar,
        columns: impl IntoIterator<Item = ColumnInfo>,
        named: bool,
    ) -> io::Result<ColumnarWriter> {
        if terminal::size().is_some() {
            return Err(io::Error::other(
                "a terminal can't show columns of bytes: redirect the output to a file or a program",
            ));
        }
        let mut all: Vec<Column> = Vec::new();
        for info in columns {
            all.push(Column {
                name: info.name.to_owned(),
                values: Values::new(&info),
                names_of: None,
            });
            let names = info.names().zip(info.names_column()).filter(|_| named);
            all.extend(names.map(|(kind, name)| Column {
                name,
                values: match kind {
                    NameKind::User | NameKind::Group => Values::Text(StringBuilder::new()),
                    NameKind::Groups | NameKind::Capabilities | NameKind::Signals => {
                        Values::Texts(ListBuilder::default())
                    }
                },
                names_of: Some(kind),
            }));
        }
        let mut absent = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
        // What a batch without rows has is what all have.
        let batch = batch(&mut all, &mut absent)?;
        let schema = batch.schema();
        let writer = match form {
            Columnar::Arrow => Writer::Arrow(Box::new(
                StreamWriter::try_new(Output::default(), &schema).map_err(failed)?,
            )),
            Columnar::Parquet => {
                let level = ZstdLevel::try_new(3).map_err(io::Error::other)?;
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(level))
                    .set_created_by(format!("taskdiag {}", env!("CARGO_PKG_VERSION")))
                    .build();
                let writer = ArrowWriter::try_new(Output::default(), schema, Some(properties));
                Writer::Parquet(Box::new(writer.map_err(io::Error::other)?))
            }
        };
        Ok(ColumnarWriter {
            columns: all,
            names: Names::default(),
            absent,
            rows: 0,
            writer,
        })
    }

    /// Takes a row. `cell` gives the value in each column.
    pub fn row<'a>(&mut self, mut cell: impl FnMut(usize) -> Cell<'a>) -> io::Result<()> {
        let mut index = 0;
        let mut last = None;
        for column in &mut self.columns {
            if let Some(kind) = column.names_of {
                let named = last.and_then(|value| self.names.of(kind, &value));
                column.values.push_named(named);
                continue;
            }
            let value = cell(index);
            index += 1;
            last = value.ok();
            column.values.push(last);
            if let Err(reason) = value {
                self.absent.keys().append_value(&column.name);
                self.absent.values().append_value(reason);
            }
        }
        self.absent.append(true).map_err(failed)?;
        self.rows += 1;
        if self.rows == BATCH {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        let batch = batch(&mut self.columns, &mut self.absent)?;
        match &mut self.writer {
            Writer::Parquet(writer) => writer.write(&batch).map_err(io::Error::other),
            Writer::Arrow(writer) => writer.write(&batch).map_err(failed),
        }
    }

    /// Writes the rows so far, of a stream.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Writer::Arrow(_) = self.writer {
            self.write()?;
        }
        match &mut self.writer {
            Writer::Arrow(writer) => writer.get_mut().flush(),
            Writer::Parquet(_) => Ok(()),
        }
    }

    /// Writes the end.
    pub fn finish(mut self) -> io::Result<()> {
        self.write()?;
        match self.writer {
            Writer::Parquet(writer) => writer.into_inner().map_err(io::Error::other)?.finish(),
            Writer::Arrow(mut writer) => {
                writer.finish().map_err(failed)?;
                writer.into_inner().map_err(failed)?.finish()
            }
        }
    }
}

/// The rows so far, which are then gone from the builders.
fn batch(columns: &mut [Column], absent: &mut MapBuilder<StringBuilder, StringBuilder>) -> io::Result<RecordBatch> {
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    let mut add = |name: &str, array: ArrayRef| {
        fields.push(ArrowField::new(name, array.data_type().clone(), true));
        arrays.push(array);
    };
    for column in columns {
        add(&column.name, column.values.builder().finish());
    }
    add("absent", Arc::new(absent.finish()));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(failed)
}

fn failed(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        self.row_ended()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Output::flush(self)
    }
}
