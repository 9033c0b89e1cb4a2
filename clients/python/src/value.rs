//! Conversion of values to Python objects.

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use taskdiag_core::column::Type;

use crate::column::Column;

/// The form of values in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Natural for Python: masks are numbers, invalid UTF-8 becomes surrogates (as with
    /// os.fsdecode), limits are pairs.
    Native,
    /// As in the command's JSON.
    Json,
}

/// The value of a row; `None` if it is missing.
pub fn value<'py>(py: Python<'py>, column: &Column, row: usize, look: Look) -> PyResult<Option<Bound<'py, PyAny>>> {
    if column.is_absent(row) {
        return Ok(None);
    }
    let is_json = look == Look::Json;
    let memory = &column.memory;
    Ok(Some(match memory.of {
        Type::U64 if is_json && column.is_mask() => {
            PyString::new(py, &format!("{:#x}", memory.numbers[row])).into_any()
        }
        Type::U64 => memory.numbers[row].into_pyobject(py)?.into_any(),
        Type::I64 => (memory.numbers[row] as i64).into_pyobject(py)?.into_any(),
        Type::F64 => f64::from_bits(memory.numbers[row]).into_pyobject(py)?.into_any(),
        Type::U8 => (memory.bytes[row] != 0).into_pyobject(py)?.to_owned().into_any(),
        Type::Text => text(py, memory.text(row), look)?,
        Type::Texts => {
            let items = memory.range(row).map(|index| text(py, memory.item(index), look));
            PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Type::Ids => PyList::new(py, memory.ids(row))?.into_any(),
        Type::Limits => {
            let limits = PyDict::new(py);
            for (name, soft, hard) in column.limits(row) {
                if is_json {
                    let both = PyDict::new(py);
                    both.set_item("soft", limit(py, soft)?)?;
                    both.set_item("hard", limit(py, hard)?)?;
                    limits.set_item(name, both)?;
                } else {
                    limits.set_item(name, (soft, hard))?;
                }
            }
            limits.into_any()
        }
        Type::Owners => {
            let list = PyList::empty(py);
            for index in memory.range(row) {
                let owner = PyDict::new(py);
                owner.set_item("pid", memory.ids[2 * index])?;
                owner.set_item("comm", text(py, memory.item(index), look)?)?;
                owner.set_item("fd", memory.ids[2 * index + 1])?;
                list.append(owner)?;
            }
            list.into_any()
        }
    }))
}

fn limit(py: Python<'_>, limit: Option<u64>) -> PyResult<Bound<'_, PyAny>> {
    Ok(match limit {
        Some(limit) => limit.into_pyobject(py)?.into_any(),
        None => PyString::new(py, "unlimited").into_any(),
    })
}

/// Converts bytes to text.
pub fn text<'py>(py: Python<'py>, bytes: &[u8], look: Look) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(PyString::new(py, text).into_any());
    }
    if look == Look::Json {
        let encoded = PyDict::new(py);
        encoded.set_item("base64", STANDARD.encode(bytes))?;
        return Ok(encoded.into_any());
    }
    let bytes = PyBytes::new(py, bytes);
    Ok(PyString::from_encoded_object(&bytes, Some(c"utf-8"), Some(c"surrogateescape"))?.into_any())
}

/// A row as in the command's JSON.
pub fn row<'py: 'a, 'a>(
    py: Python<'py>,
    columns: impl Iterator<Item = (&'a Column, &'a Bound<'py, PyString>)>,
    row: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let made = PyDict::new(py);
    let mut absent: Option<Bound<'py, PyDict>> = None;
    for (column, key) in columns {
        if let Some(value) = value(py, column, row, Look::Json)? {
            made.set_item(key, value)?;
        } else if let Some(reason) = column.reason(row) {
            absent.get_or_insert_with(|| PyDict::new(py)).set_item(key, reason)?;
        }
    }
    if let Some(absent) = absent {
        made.set_item("absent", absent)?;
    }
    Ok(made)
}
