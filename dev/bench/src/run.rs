//! One run of a contender.

use std::time::Duration;

use crate::Result;

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// How long it took, without the preparation.
    pub took: Duration,
    /// The number of tasks seen; 0 if unknown.
    pub rows: usize,
    /// Bytes of records that the library received.
    pub record_bytes: u64,
}

impl Run {
    /// A run that did not use the library.
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
