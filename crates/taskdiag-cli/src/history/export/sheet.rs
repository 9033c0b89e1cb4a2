//! The writer of a Parquet table: collects rows, and writes them as row groups.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rustix::fs::OFlags;
use taskdiag::Kind;

use crate::file::Unfinished;
use crate::output::relation::ColumnInfo;

/// The type of a column. Every value may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Number,
    /// A text. Invalid UTF-8 is replaced.
    Text,
    /// A time in UTC, to the microsecond.
    Time,
}

impl Type {
    /// The type of values of a kind.
    pub fn of(kind: Kind) -> Type {
        match kind {
            Kind::Letter | Kind::Text | Kind::Texts => Type::Text,
            Kind::Time => Type::Time,
            _ => Type::Number,
        }
    }

    /// The column's declaration in a Parquet schema.
    fn schema(self, name: &str) -> String {
        match self {
            Type::Number => format!("optional int64 {name}"),
            Type::Text => format!("optional binary {name} (UTF8)"),
            Type::Time => format!("optional int64 {name} (TIMESTAMP(MICROS,true))"),
        }
    }

    /// The type in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            Type::Number => "BIGINT",
            Type::Text => "VARCHAR",
            Type::Time => "TIMESTAMPTZ",
        }
    }
}

/// A value in a row.
///
/// Values are in this order: missing ones come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// It is missing.
    None,
    /// A number, or a time in microseconds since 1970.
    Number(i64),
    Text(String),
}

impl From<Option<i64>> for Cell {
    fn from(number: Option<i64>) -> Cell {
        number.map_or(Cell::None, Cell::Number)
    }
}

impl From<u64> for Cell {
    /// No counter of the kernel reaches 63 bits.
    fn from(number: u64) -> Cell {
        Cell::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// A row.
pub type Cells = Vec<Cell>;

/// The maximum number of rows in memory before they are written, and the size of their texts.
const GROUP: usize = 200_000;
const GROUP_BYTES: usize = 64 << 20;

/// The table of one host and one day.
pub struct Sheet {
    columns: Vec<ColumnInfo>,
    rows: Vec<Cells>,
    /// The size of the texts in `rows`.
    bytes: usize,
    writer: SerializedFileWriter<BufWriter<File>>,
    path: PathBuf,
    unfinished: Unfinished,
    /// The columns by which the rows of a group are sorted.
    order: &'static [usize],
}

impl Sheet {
    /// Creates a file under a temporary name, until [`finish`](Sheet::finish).
    pub fn create(path: &Path, name: &str, columns: Vec<ColumnInfo>, order: &'static [usize]) -> io::Result<Sheet> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut text = format!("message {name} {{ ");
        for column in &columns {
            let _ = write!(text, "{}; ", Type::of(column.kind).schema(column.name));
        }
        text.push('}');
        let schema = parse_message_type(&text).map_err(failed)?;
        let level = ZstdLevel::try_new(3).map_err(failed)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_created_by(format!("taskdiag {}", env!("CARGO_PKG_VERSION")))
            .build();
        let (file, unfinished) = Unfinished::create(path)?;
        let writer = SerializedFileWriter::new(BufWriter::new(file), Arc::new(schema), Arc::new(properties));
        Ok(Sheet {
            columns,
            rows: Vec::new(),
            bytes: 0,
            writer: writer.map_err(failed)?,
            path: path.to_owned(),
            unfinished,
            order,
        })
    }

    /// Adds a row, with a cell for each column.
    pub fn add(&mut self, row: Cells) -> io::Result<()> {
        debug_assert_eq!(row.len(), self.columns.len());
        let bytes = |cell: &Cell| match cell {
            Cell::Text(text) => text.len(),
            _ => 0,
        };
        self.bytes += row.iter().map(bytes).sum::<usize>();
        self.rows.push(row);
        if self.rows.len() >= GROUP || self.bytes >= GROUP_BYTES {
            self.write()?;
        }
        Ok(())
    }

    /// Writes the remaining rows, and renames the file to its final name.
    pub fn finish(mut self) -> io::Result<()> {
        self.write()?;
        let file = self
            .writer
            .into_inner()
            .map_err(failed)?
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        self.unfinished.finish(&self.path)
    }

    /// Writes the rows as a sorted group. Sorting puts similar rows together, which compresses
    /// best.
    fn write(&mut self) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let order = self.order;
        self.rows
            .sort_by(|a, b| order.iter().map(|&key| &a[key]).cmp(order.iter().map(|&key| &b[key])));
        self.write_group().map_err(failed)?;
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for (index, column) in self.columns.iter().enumerate() {
            let Some(mut writer) = group.next_column()? else {
                break;
            };
            let cells = || self.rows.iter().map(|row| &row[index]);
            let is_there: Vec<i16> = cells().map(|cell| (*cell != Cell::None).into()).collect();
            match Type::of(column.kind) {
                Type::Number | Type::Time => {
                    let number = |cell: &Cell| match cell {
                        Cell::Number(number) => Some(*number),
                        _ => None,
                    };
                    let values: Vec<i64> = cells().filter_map(number).collect();
                    writer
                        .typed::<Int64Type>()
                        .write_batch(&values, Some(&is_there), None)?;
                }
                Type::Text => {
                    let text = |cell: &Cell| match cell {
                        Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                        _ => None,
                    };
                    let values: Vec<ByteArray> = cells().filter_map(text).collect();
                    writer
                        .typed::<ByteArrayType>()
                        .write_batch(&values, Some(&is_there), None)?;
                }
            }
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }
}

/// The period of the rows in a file, whose first column is their time; `None` if it is not a table.
pub fn period(path: &Path) -> Option<Range<i64>> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let reader = SerializedFileReader::new(file).ok()?;
    let mut period: Option<Range<i64>> = None;
    for group in reader.metadata().row_groups() {
        let Some(Statistics::Int64(times)) = group.columns().first()?.statistics() else {
            return None;
        };
        let (first, last) = (*times.min_opt()?, *times.max_opt()?);
        // In microseconds, rounded down.
        let times = first.saturating_mul(1000)..last.saturating_add(1).saturating_mul(1000);
        period = Some(match period {
            Some(period) => period.start.min(times.start)..period.end.max(times.end),
            None => times,
        });
    }
    period
}

fn failed(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use taskdiag_testkit::temporary::Directory;

    use super::*;
    use crate::output::relation::columns;

    const COLUMNS: [ColumnInfo; 2] = columns! {
        "time": Time, "";
        "number": Count, "";
    };

    /// Check that rows are sorted although values are missing, and that a file tells its period.
    #[test]
    fn missing_values_have_an_order() {
        let place = Directory::new("sheet");
        let path = place.join("table.parquet");
        let mut sheet = Sheet::create(&path, "table", COLUMNS.to_vec(), &[1, 0]).expect("a file");
        for number in 0..5000_i64 {
            let value = number * 7919 % 5000;
            let value = Some(value).filter(|value| value % 3 != 0);
            sheet.add(vec![Cell::Number(number), value.into()]).expect("room");
        }
        sheet.write().expect("it is sorted");
        sheet.finish().expect("room");
        assert_eq!(period(&path), Some(0..5_000_000));
        assert_eq!(period(&place), None);
    }
}
