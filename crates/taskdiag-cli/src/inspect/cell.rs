//! The values of a page.

use taskdiag::Value;

pub use crate::output::owned::OwnedValue;

/// Why something is missing, as a word.
pub type Reason = &'static str;

/// A value, or why it is missing.
pub type Cell = Result<OwnedValue, Reason>;

/// A copy of a value.
pub fn cell(value: Value<'_>) -> OwnedValue {
    OwnedValue::new(value)
}

/// A limit; `None` is unlimited.
pub fn limit(limit: Option<u64>) -> OwnedValue {
    match limit {
        Some(limit) => cell(Value::Unsigned(limit)),
        None => cell(Value::Text(b"unlimited")),
    }
}

/// A number.
pub fn number(value: u64) -> Cell {
    Ok(cell(Value::Unsigned(value)))
}
