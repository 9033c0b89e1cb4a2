//! The page cache of directories.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use taskdiag::pagecache::{Found, Seen, Sum, Walk};

use crate::cache::Directories;

/// The results for one path.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The directory itself, and its subdirectories: the path of each, and the sum of the files below.
    pub rows: Vec<(Vec<u8>, Sum)>,
    /// The number of files and directories that could not be read.
    pub failed: u64,
}

/// Walks a directory, on the directory's own file system. The rows are the directory and its
/// subdirectories.
pub fn walk(path: &Path) -> taskdiag::Result<Tree> {
    let mut directories = Directories::new(path, 1);
    let walk = Walk::new().each_file(false).one_file_system(true);
    let mut visit = |found: Found<'_>| {
        if let Found::Directory { path, depth, sum, .. } = found {
            directories.add(path, depth, sum);
        }
        ControlFlow::Continue(())
    };
    let totals = walk.run(path, &mut Seen::default(), &AtomicBool::new(false), &mut visit)?;
    Ok(Tree {
        rows: directories.add_up(),
        failed: totals.failed,
    })
}
