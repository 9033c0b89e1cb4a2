//! One run of a contender.

use std::time::Duration;

use crate::Result;

/// What one run has shown.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// How long it took, without what it has to make ready.
    pub took: Duration,
    /// Tasks seen; 0 if it doesn't tell.
    pub rows: usize,
    /// Bytes of records that the library got.
    pub record_bytes: u64,
}

impl Run {
    /// A run of something else than the library.
    pub fn new(took: Duration, rows: usize) -> Run {
        Run {
            took,
            rows,
            record_bytes: 0,
        }
    }
}

/// Runs a contender once.
pub type Runner = Box<dyn FnMut() -> Result<Run>>;
