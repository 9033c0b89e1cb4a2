//! The page cache of directories.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use taskdiag::pagecache::{Found, Quantity, Seen, Source, Sum, Walk};

use crate::cache::Directories;

/// A directory, with what is below it.
#[derive(Clone, Debug)]
pub struct Cached {
    /// Its path.
    pub path: Vec<u8>,
    /// The sums over its files; `None`: not known.
    pub cached: Option<u64>,
    /// See `cached`.
    pub dirty: Option<u64>,
    /// Their sizes.
    pub size: u64,
    /// How many there are.
    pub files: u64,
    /// Those of which the kernel did not answer.
    pub missing: u64,
}

/// What was found below one path.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The directory itself, and those in it.
    pub rows: Vec<Cached>,
    /// Files and directories that could not be read.
    pub failed: u64,
}

/// Looks at a directory and at those in it, on the directory's own file system.
pub fn walk(path: &Path) -> taskdiag::Result<Tree> {
    let source = Source::of_this_host();
    let mut directories = Directories::new(path, 1);
    let walk = Walk::new().source(source).each_file(false).one_file_system(true);
    let mut visit = |found: Found<'_>| {
        if let Found::Directory(directory) = found {
            directories.add(directory.path, directory.depth, directory.sum);
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
