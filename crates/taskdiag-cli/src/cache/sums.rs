//! Sums of the files that processes hold, by what the processes have in common.

use std::collections::{HashMap, HashSet};

use taskdiag::pagecache::{self, ByteRange, File, Quantity, Source, Usage};
use taskdiag::Known;

use super::row::{quantity, Entry, EntryRow, CACHED, COUNT, FILES, MISSING, RELATION, SIZE};
use crate::grouping::{self, sum_columns};
use crate::output::listing::Form;
use crate::output::relation::ColumnInfo;

/// A sum of files, each once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    processes: u64,
    files: pagecache::Sum,
    /// The source that was asked about them.
    source: Option<Source>,
}

impl Sum {
    /// The files without the processes, as a row.
    pub fn entry(&self) -> Entry<'static> {
        Entry::directory(b"", &self.files, self.source.unwrap_or(Source::Cachestat))
    }
}

impl grouping::Sum for Sum {
    const COLUMNS: &'static [(ColumnInfo, &'static str)] = sum_columns! {
        "processes_count": Count, "PROCESSES", "The number of processes that have the files open or mapped.";
        column RELATION[FILES], "FILES";
        column RELATION[SIZE], "SIZE";
        column RELATION[CACHED], "CACHED";
        column RELATION[3], "DIRTY";
        column RELATION[4], "WRITEBACK";
        column RELATION[5], "EVICTED";
        column RELATION[6], "RECENTLY";
        column RELATION[MISSING], "";
    };

    fn numbers(&self) -> Vec<Known<u64>> {
        let (entry, files) = (self.entry(), &self.files);
        let counts = [self.processes, files.files].map(Ok);
        let bytes = Quantity::ALL.map(|quantity| entry.bytes(quantity));
        let missing = Ok(files.files - files.answered);
        counts.into_iter().chain(bytes).chain([missing]).collect()
    }

    fn write(&self, out: &mut Vec<u8>, column: usize, form: &mut Form) {
        let info = &Self::COLUMNS[column].0;
        if info.name == RELATION[FILES].name {
            return (COUNT.write)(out, &EntryRow(self.entry(), ByteRange::ALL), &mut form.cells);
        }
        form.cells.cell(out, info, self.cells()[column]);
    }

    fn has(&self, column: usize) -> bool {
        let gives = |quantity| self.source.is_none_or(|source| source.gives(quantity));
        // One column more than in a row precedes the sizes.
        !Self::COLUMNS[column].1.is_empty() && quantity(column.saturating_sub(1)).is_none_or(gives)
    }
}

/// The device and inode number of a file.
type FileId = (u64, u64);

/// What some processes hold: their number, and the files.
pub type Group = (u64, HashSet<FileId>);

/// The files that processes hold, while they are read.
#[derive(Debug, Default)]
pub struct Held {
    /// The size of each file, and what is known of its page cache.
    files: HashMap<FileId, (Known<u64>, Known<Usage>)>,
    /// The files of the process that is being read.
    pub of_process: HashSet<FileId>,
}

impl Held {
    /// Adds a file to the process that is being read; without what is known of it if it is held by
    /// an earlier one. Returns the number of files of all processes.
    pub fn add(&mut self, id: FileId, file: Option<File<'_>>) -> u64 {
        self.of_process.insert(id);
        if let Some(File { size_bytes, usage, .. }) = file {
            let known = self.files.entry(id).or_insert((size_bytes, usage));
            // What one process keeps out of reach another one may show.
            if known.1.is_err() {
                *known = (size_bytes, usage);
            }
        }
        self.files.len() as u64
    }

    /// What is known of the files of a group.
    pub fn known<'a>(&'a self, (_, files): &'a Group) -> impl Iterator<Item = (Known<u64>, Known<Usage>)> + 'a {
        files.iter().filter_map(|id| self.files.get(id).copied())
    }

    pub fn sum(&self, group: &Group, source: Source) -> Sum {
        let mut sum = Sum {
            processes: group.0,
            source: Some(source),
            ..Sum::default()
        };
        self.known(group).for_each(|(size, usage)| sum.files.add(size, usage));
        sum
    }
}
