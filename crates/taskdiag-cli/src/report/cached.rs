//! The page cache of directories.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use taskdiag::pagecache::{Found, Quantity, Seen, Source, Sum, Walk};

use crate::cache::Directories;

/// A directory, including everything below it.
#[derive(Clone, Debug)]
pub struct Cached {
    /// Its path.
    pub path: Vec<u8>,
    /// The cached bytes of its files; `None` if unknown.
    pub cached: Option<u64>,
    /// The dirty bytes of its files; `None` if unknown.
    pub dirty: Option<u64>,
    /// The sizes of its files.
    pub size: u64,
    /// The number of its files.
    pub files: u64,
    /// The number of files about which the kernel did not answer.
    pub missing: u64,
}

/// The results for one path.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The directory itself, and its subdirectories.
    pub rows: Vec<Cached>,
    /// The number of files and directories that could not be read.
    pub failed: u64,
}

/// Walks a directory, on the directory's own file system. The rows are the directory and its
/// subdirectories.
pub fn walk(path: &Path) -> taskdiag::Result<Tree> {
    let source = Source::of_this_host();
    let mut directories = Directories::new(path, 1);
    let walk = Walk::new().source(source).each_file(false).one_file_system(true);
    let mut visit = |found: Found<'_>| {
        if let Found::Directory { path, depth, sum, .. } = found {
            directories.add(path, depth, sum);
        }
        ControlFlow::Continue(())
    };
    let totals = walk.run(path, &mut Seen::default(), &AtomicBool::new(false), &mut visit)?;
    let rows = directories
        .add_up()
        .into_iter()
        .map(|(path, sum)| row(path, &sum, source));
    Ok(Tree {
        rows: rows.collect(),
        failed: totals.failed,
    })
}

fn row(path: Vec<u8>, sum: &Sum, source: Source) -> Cached {
    let bytes = |quantity| sum.usage(source).and_then(|usage| usage.bytes(quantity)).ok();
    Cached {
        path,
        cached: bytes(Quantity::Cached),
        dirty: bytes(Quantity::Dirty),
        size: sum.size_bytes,
        files: sum.files,
        missing: sum.files - sum.answered,
    }
}
