//! The values of a page.

use taskdiag::Value;

pub use crate::output::descriptors::Kept;
use crate::output::descriptors::Shown;

/// Why something is missing, in a word.
pub type Reason = &'static str;

/// A value, or why it is missing.
pub type Cell = Result<Kept, Reason>;

/// A value that is kept.
pub fn cell(value: Value<'_>) -> Kept {
    Kept::new(Shown::Plain(value))
}

/// A limit; `None` is unlimited.
pub fn limit(limit: Option<u64>) -> Kept {
    match limit {
        Some(limit) => cell(Value::Unsigned(limit)),
        None => cell(Value::Text(b"unlimited")),
    }
}

/// A number.
pub fn number(value: u64) -> Cell {
    Ok(cell(Value::Unsigned(value)))
}
