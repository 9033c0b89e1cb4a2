//! The batches that the threads of a walk send to the caller.

use std::mem;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::Error;

use super::found::{File, Found, Sum};
use crate::pagecache::Usage;

/// A batch is sent when it has this many items, this many bytes of paths, or this age.
const MAX_ITEMS: usize = 2048;
const MAX_BYTES: usize = 64 << 10;
const MAX_AGE: Duration = Duration::from_millis(50);

/// How many items are added between two looks at the clock.
const ITEMS_PER_LOOK: usize = 32;

/// Found items, with their paths in one piece of memory.
#[derive(Default)]
pub(super) struct Batch {
    paths: Vec<u8>,
    items: Vec<Item>,
    since: Option<Instant>,
}

struct Item {
    /// Where its path ends in `paths`. It begins where the previous item's path ends.
    path_end: usize,
    what: What,
}

pub(super) enum What {
    /// A file's size and page cache.
    File(Result<u64, Absent>, Result<Usage, Absent>),
    /// A directory's depth and sum.
    Directory(usize, Sum),
    Failed(Errno),
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn is_old(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > MAX_AGE)
    }

    /// Adds an item. Returns whether the batch should be sent.
    pub(super) fn add(&mut self, path: &[u8], what: What) -> bool {
        self.paths.extend_from_slice(path);
        self.items.push(Item {
            path_end: self.paths.len(),
            what,
        });
        self.since.get_or_insert_with(Instant::now);
        self.items.len() >= MAX_ITEMS
            || self.paths.len() >= MAX_BYTES
            || self.items.len() % ITEMS_PER_LOOK == 0 && self.is_old()
    }

    /// Calls `visit` with each item, until it breaks.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut start = 0;
        for item in &self.items {
            let path = &self.paths[mem::replace(&mut start, item.path_end)..item.path_end];
            match item.what {
                What::File(size_bytes, usage) => visit(Found::File(File {
                    path,
                    size_bytes,
                    usage,
                })),
                What::Directory(depth, sum) => visit(Found::Directory { path, depth, sum }),
                What::Failed(errno) => visit(Found::Failed {
                    path,
                    error: &Error::io(String::from_utf8_lossy(path), errno),
                }),
            }?;
        }
        ControlFlow::Continue(())
    }
}
