//! Rows about the page cache: files, and directories with the sums of their files.

use taskdiag::pagecache::{ByteRange, Quantity, Source, Sum, Usage};
use taskdiag::{Absent, Value};

use crate::output::cell::formatted;
use crate::output::listing::{CompositeCell, Content, DefaultColumns, ListingColumn};
use crate::output::people;
use crate::output::relation::{columns, Cell, ColumnInfo, Row, NONE};
use crate::output::table::Align;

/// The columns of a row.
pub const RELATION: [ColumnInfo; 9] = columns! {
    "path": Text, "The name as given or found; for a file that a process holds, as the kernel reports it.";
    "size_bytes": Bytes, "The size of the file, or the sum of the sizes of the files.";
    "cached_bytes": Bytes, "Pages in the cache, in any state.";
    "dirty_bytes": Bytes, "Cached pages that are not yet written to disk.";
    "writeback_bytes": Bytes, "Cached pages that are being written.";
    "evicted_bytes": Bytes, "Pages that were in the cache and were evicted.";
    "recently_evicted_bytes": Bytes, "Evicted pages that would be active at once if read again.";
    "files_count": Count, "The number of files in the row.";
    "missing_count": Count, "The number of files that are missing from the other numbers, except from the size.";
};

// The indexes of columns.
pub const PATH: usize = 0;
pub const SIZE: usize = 1;
pub const CACHED: usize = 2;
pub const FILES: usize = 7;
pub const MISSING: usize = 8;
/// The cached share in tenths of a percent, which only the table has.
const PERMILLE: usize = RELATION.len();

/// The number of bytes that a column has, if it has one.
pub fn quantity(column: usize) -> Option<Quantity> {
    Quantity::ALL.get(column.checked_sub(SIZE)?).copied()
}

/// What is shown without `-o`: of what `source` gives, for sums or for files.
pub fn usual(source: Source, sums: bool) -> DefaultColumns {
    let is_answered = |shown: &ListingColumn| match shown.content {
        Content::Column(column) => quantity(column).is_none_or(|quantity| source.gives(quantity)),
        content => sums || content != Content::Composite(&COUNT),
    };
    let table = [
        ListingColumn::column("CACHED", CACHED),
        ListingColumn::made("%", &PERCENT),
        ListingColumn::column("DIRTY", 3),
        ListingColumn::column("WRITEBACK", 4),
        ListingColumn::column("EVICTED", 5),
        ListingColumn::column("RECENTLY", 6),
        ListingColumn::made("FILES", &COUNT),
        ListingColumn::column("SIZE", SIZE),
        ListingColumn::column("PATH", PATH),
    ];
    DefaultColumns {
        table: table.into_iter().filter(is_answered).collect(),
        rows: (0..if sums { RELATION.len() } else { FILES }).collect(),
    }
}

/// The cached part of the file.
static PERCENT: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[PERMILLE],
    write: |out, row, _| match row.cell(PERMILLE) {
        Ok(Value::Unsigned(permille)) => {
            people::number(out, permille / 10);
            out.extend_from_slice(&[b'.', b'0' + (permille % 10) as u8]);
        }
        _ => out.push(b'-'),
    },
};

/// The number of files in the sums, and the number of all files if that differs.
pub static COUNT: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[FILES, MISSING],
    write: |out, row, _| match (row.cell(FILES), row.cell(MISSING)) {
        (Ok(Value::Unsigned(files)), Ok(Value::Unsigned(missing @ 1..))) => {
            formatted(out, format_args!("{} of {files}", files - missing));
        }
        (Ok(Value::Unsigned(files)), _) => people::number(out, files),
        _ => out.push(b'-'),
    },
};

/// A file or a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub path: &'a [u8],
    /// Its size; for a directory, the sum of the sizes of its files.
    pub size_bytes: Result<u64, Absent>,
    /// What is known about its page cache.
    pub usage: Result<Usage, Absent>,
    files: u64,
    /// How many of the files are missing from the sums.
    missing: u64,
}

impl<'a> Entry<'a> {
    pub fn file(path: &'a [u8], size_bytes: Result<u64, Absent>, usage: Result<Usage, Absent>) -> Entry<'a> {
        Entry {
            path,
            size_bytes,
            usage,
            files: 1,
            missing: usage.is_err().into(),
        }
    }

    /// A directory, with what `source` answered about its files.
    pub fn directory(path: &'a [u8], sum: &Sum, source: Source) -> Entry<'a> {
        Entry {
            path,
            size_bytes: Ok(sum.size_bytes),
            usage: sum.usage(source),
            files: sum.files,
            missing: sum.files - sum.answered,
        }
    }
}

impl Entry<'_> {
    /// A number of bytes.
    pub fn bytes(&self, quantity: Quantity) -> Result<u64, Absent> {
        match quantity {
            Quantity::Size => self.size_bytes,
            other => self.usage?.bytes(other),
        }
    }

    /// The cached share of the pages in `range`, in tenths of a percent: 1000 only if all are
    /// cached, 0 only if none is. `None` if some files are missing.
    pub fn permille(&self, range: ByteRange) -> Option<u64> {
        if self.missing > 0 {
            return None;
        }
        let (_, pages) = range.pages(self.size_bytes.ok()?);
        match (pages, self.usage.ok()?.cached_pages()) {
            (0, _) => None,
            (_, 0) => Some(0),
            (pages, cached) if cached >= pages => Some(1000),
            (pages, cached) => Some((cached * 1000 / pages).max(1)),
        }
    }
}

/// An entry, whose files were asked about this part.
pub struct EntryRow<'a>(pub Entry<'a>, pub ByteRange);

impl Row for EntryRow<'_> {
    fn cell(&self, column: usize) -> Cell<'_> {
        let EntryRow(entry, range) = self;
        match (column, quantity(column)) {
            (_, Some(quantity)) => entry.bytes(quantity).map(Value::Unsigned).map_err(Absent::as_str),
            (PATH, _) => Ok(Value::Text(entry.path)),
            (FILES, _) => Ok(Value::Unsigned(entry.files)),
            (MISSING, _) => Ok(Value::Unsigned(entry.missing)),
            _ => entry.permille(*range).map(Value::Unsigned).ok_or(NONE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::cell::Cells;

    /// Check that each column has its index, and that quantities are named as in the library.
    #[test]
    fn columns_have_names() {
        let columns = RELATION.iter().enumerate();
        let names = columns.filter_map(|(index, info)| Some((info.name, quantity(index)?.name())));
        let names: Vec<_> = names.collect();
        assert_eq!(names.len(), Quantity::ALL.len());
        assert!(names.iter().all(|(column, quantity)| column == quantity));
    }

    /// Check that a directory shows how many of its files are in its sums, and has no percentage if
    /// some are missing.
    #[test]
    fn sums_say_what_is_in_them() {
        let mut sum = Sum::default();
        let permille = |sum: &Sum| {
            let entry = Entry::directory(b"a", sum, Source::Cachestat);
            let permille = entry.permille(ByteRange::ALL);
            let mut count = Vec::new();
            (COUNT.write)(
                &mut count,
                &EntryRow(entry, ByteRange::ALL),
                &mut Cells::new(false, false),
            );
            (String::from_utf8(count).expect("digits"), permille)
        };
        assert_eq!(permille(&sum), ("0".to_owned(), None));
        for count in ["0 of 1", "0 of 2"] {
            sum.add(Ok(4096), Err(Absent::Denied));
            assert_eq!(permille(&sum), (count.to_owned(), None));
        }
        let file = std::fs::File::open("/proc/self/exe").expect("our own file");
        let known = Source::Cachestat
            .ask(&file, ByteRange::ALL)
            .or_else(|_| Source::Mincore.ask(&file, ByteRange::ALL));
        sum.add(Ok(4096), Ok(known.expect("it is ours")));
        assert_eq!(permille(&sum), ("1 of 3".to_owned(), None));
    }
}
