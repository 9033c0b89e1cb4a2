//! Rows about the page cache: files, and directories with the sums of their files.

use std::cmp::Ordering;

use taskdiag::pagecache::{ByteRange, Quantity, Source, Sum, Usage};
use taskdiag::{Absent, Value};

use crate::choice::{unknown, Chosen, SortBy};
use crate::outcome::Failure;
use crate::output::table::Align;
use crate::output::{HasValues, Key};

/// The keys of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The name of the file.
    Path,
    /// A number of bytes.
    Bytes(Quantity),
    /// The number of files in the row.
    Files,
    /// The number of those that are missing from the other numbers.
    Missing,
}

impl Key for Column {
    const ALL: &'static [Column] = &[
        Column::Path,
        Column::Bytes(Quantity::Size),
        Column::Bytes(Quantity::Cached),
        Column::Bytes(Quantity::Dirty),
        Column::Bytes(Quantity::Writeback),
        Column::Bytes(Quantity::Evicted),
        Column::Bytes(Quantity::RecentlyEvicted),
        Column::Files,
        Column::Missing,
    ];

    fn index(self) -> usize {
        match self {
            Column::Path => 0,
            Column::Bytes(quantity) => 1 + quantity as usize,
            Column::Files => 7,
            Column::Missing => 8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Column::Path => "path",
            Column::Bytes(quantity) => quantity.name(),
            Column::Files => "files_count",
            Column::Missing => "missing_count",
        }
    }
}

impl Column {
    /// The keys for programs without `-o`: for sums, or for files.
    pub fn usual(is_sum: bool) -> Vec<Column> {
        let is_usual = |column: &Column| is_sum || !matches!(column, Column::Files | Column::Missing);
        Column::ALL.iter().copied().filter(is_usual).collect()
    }

    /// The alignment of the column.
    pub fn align(self) -> Align {
        match self {
            Column::Path => Align::Left,
            _ => Align::Right,
        }
    }

    /// The columns that `-o` options name.
    pub fn chosen(lists: &[String]) -> Result<Chosen<Column>, Failure> {
        Chosen::parse(lists, |name| match name {
            "all" => Ok(Column::ALL.to_vec()),
            name => Ok(vec![Column::parse(name)?]),
        })
    }

    /// Its meaning.
    pub fn meaning(self) -> &'static str {
        match self {
            Column::Path => "The name as given or found; for a file that a process holds, as the kernel reports it.",
            Column::Bytes(Quantity::Size) => "The size of the file, or the sum of the sizes of the files.",
            Column::Bytes(Quantity::Cached) => "Pages in the cache, in any state.",
            Column::Bytes(Quantity::Dirty) => "Cached pages that are not yet written to disk.",
            Column::Bytes(Quantity::Writeback) => "Cached pages that are being written.",
            Column::Bytes(Quantity::Evicted) => "Pages that were in the cache and were evicted.",
            Column::Bytes(Quantity::RecentlyEvicted) => "Evicted pages that would be active at once if read again.",
            Column::Bytes(_) => "Bytes, as the library has them.",
            Column::Files => "The number of files in the row.",
            Column::Missing => "The number of files that are missing from the other numbers, except from the size.",
        }
    }

    fn parse(name: &str) -> Result<Column, Failure> {
        Column::ALL
            .iter()
            .copied()
            .find(|column| column.name() == name)
            .ok_or_else(|| unknown("field", name, Column::ALL.iter().map(|column| column.name())))
    }
}

/// A file or a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its path.
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
    /// A file.
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

    /// The number of files in the sums, and the number of all files if that differs.
    pub fn count(&self) -> String {
        match self.missing {
            0 => self.files.to_string(),
            missing => format!("{} of {}", self.files - missing, self.files),
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

impl HasValues for Entry<'_> {
    type Key = Column;

    fn value(&self, column: Column) -> Result<Value<'_>, Absent> {
        match column {
            Column::Path => Ok(Value::Text(self.path)),
            Column::Bytes(quantity) => self.bytes(quantity).map(Value::Unsigned),
            Column::Files => Ok(Value::Unsigned(self.files)),
            Column::Missing => Ok(Value::Unsigned(self.missing)),
        }
    }
}

/// An entry that owns its path.
#[derive(Clone, Debug)]
pub struct OwnedEntry {
    path: Vec<u8>,
    size_bytes: Result<u64, Absent>,
    usage: Result<Usage, Absent>,
    files: u64,
    missing: u64,
}

impl OwnedEntry {
    /// A copy of an entry.
    pub fn new(entry: &Entry<'_>) -> OwnedEntry {
        OwnedEntry {
            path: entry.path.to_vec(),
            size_bytes: entry.size_bytes,
            usage: entry.usage,
            files: entry.files,
            missing: entry.missing,
        }
    }

    /// The entry.
    pub fn entry(&self) -> Entry<'_> {
        Entry {
            path: &self.path,
            size_bytes: self.size_bytes,
            usage: self.usage,
            files: self.files,
            missing: self.missing,
        }
    }
}

/// A column to sort by.
pub type SortKey = SortBy<Column>;

/// Rows with the most cached bytes first.
pub const MOST_CACHED: SortKey = SortBy {
    key: Column::Bytes(Quantity::Cached),
    descending: true,
};

/// The columns that `--sort` options name.
pub fn sort_keys(lists: &[String]) -> Result<Vec<SortKey>, Failure> {
    SortBy::parse(lists, Column::parse)
}

/// The order of rows by these keys, and by path where those are equal, because rows are found in no
/// particular order.
pub fn compare(keys: &[SortKey], a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    let by_key = |by: &SortKey| match by.key {
        Column::Path => by.compare(Ok::<_, Absent>(a.path), Ok(b.path), Ord::cmp),
        Column::Bytes(quantity) => by.compare(a.bytes(quantity), b.bytes(quantity), Ord::cmp),
        Column::Files => by.compare(Ok::<_, Absent>(a.files), Ok(b.files), Ord::cmp),
        Column::Missing => by.compare(Ok::<_, Absent>(a.missing), Ok(b.missing), Ord::cmp),
    };
    keys.iter()
        .map(by_key)
        .find(|order| order.is_ne())
        .unwrap_or_else(|| a.path.cmp(b.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &[u8], size_bytes: Result<u64, Absent>) -> Entry<'_> {
        Entry::file(path, size_bytes, Err(Absent::Denied))
    }

    /// Check that columns are found by name, without duplicates, and that each has its index.
    #[test]
    fn columns_have_names() {
        let all = Column::chosen(&["cached_bytes,path".to_owned(), "all".to_owned()]).expect("names");
        assert_eq!(all.items().len(), Column::ALL.len());
        assert_eq!(all.items()[..2], [Column::Bytes(Quantity::Cached), Column::Path]);
        assert!(Column::chosen(&["cached".to_owned()]).is_err());
        for (index, column) in Column::ALL.iter().enumerate() {
            assert_eq!(column.index(), index);
        }
    }

    /// Check that a directory shows how many of its files are in its sums, and has no percentage if
    /// some are missing.
    #[test]
    fn sums_say_what_is_in_them() {
        let mut sum = Sum::default();
        let permille = |sum: &Sum| {
            let entry = Entry::directory(b"a", sum, Source::Cachestat);
            (entry.count(), entry.permille(ByteRange::ALL))
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

    /// Check that rows without a value come last in both directions, and that equal rows are in the
    /// order of their paths.
    #[test]
    fn rows_without_a_value_come_last() {
        let (small, large) = (entry(b"b", Ok(1)), entry(b"a", Ok(2)));
        let none = entry(b"0", Err(Absent::Denied));
        for (name, first) in [("size_bytes", Ordering::Less), ("-size_bytes", Ordering::Greater)] {
            let keys = sort_keys(&[name.to_owned()]).expect("a name");
            assert_eq!(compare(&keys, &small, &large), first);
            assert_eq!(compare(&keys, &none, &small), Ordering::Greater);
            assert_eq!(compare(&keys, &large, &none), Ordering::Less);
            assert_eq!(compare(&keys, &entry(b"a", Ok(1)), &small), Ordering::Less);
        }
    }
}
