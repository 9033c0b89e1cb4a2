//! Exceptions. Their classes are in Python: `taskdiag._errors`.

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use taskdiag::{Error, ErrorKind, Field, ParseError, UnknownField};

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import("taskdiag._errors")?.getattr(name)?.cast_into::<PyType>()?)
}

/// An exception of a class of `taskdiag._errors`.
pub fn new(name: &str, message: impl Into<String>) -> PyErr {
    let message = message.into();
    Python::attach(|py| match class(py, name) {
        Ok(class) => PyErr::from_type(class, (message,)),
        Err(error) => error,
    })
}

/// An exception of a class of `taskdiag._errors` with attributes.
fn with<'py>(
    py: Python<'py>,
    name: &str,
    message: String,
    set: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<()>,
) -> PyErr {
    let make = || {
        let error = class(py, name)?.call1((message,))?;
        set(&error)?;
        Ok(PyErr::from_value(error))
    };
    make().unwrap_or_else(|error| error)
}

/// The exception for an error of the library.
pub fn of(error: &Error) -> PyErr {
    let name = match error.kind() {
        ErrorKind::NoSuchTask => "NoSuchProcess",
        ErrorKind::NoMemory => "NoMemory",
        ErrorKind::Denied => "Denied",
        ErrorKind::Unsupported => "Unsupported",
        ErrorKind::NoAnswer => "NoAnswer",
        ErrorKind::NoThread => "NoThread",
        ErrorKind::Malformed => "Malformed",
        ErrorKind::InvalidInput => "InvalidInput",
        _ => "Error",
    };
    new(name, format!("{error:#}"))
}

/// The result with the exception for its error.
pub fn checked<T>(result: taskdiag::Result<T>) -> PyResult<T> {
    result.map_err(|error| of(&error))
}

/// The exception for an invalid argument.
pub fn invalid(message: impl Into<String>) -> PyErr {
    new("InvalidInput", message)
}

/// The exception for an unknown field name.
pub fn unknown(error: &UnknownField) -> PyErr {
    let message = format!("{error}. taskdiag.FIELDS has all names");
    unknown_field(message, &error.name, &error.near)
}

fn unknown_field(message: String, name: &str, near: &[&str]) -> PyErr {
    Python::attach(|py| {
        with(py, "UnknownField", message, |made| {
            made.setattr("field", name)?;
            made.setattr("near", PyTuple::new(py, near)?)
        })
    })
}

/// The exception for an invalid filter.
pub fn not_a_filter(error: &ParseError) -> PyErr {
    Python::attach(|py| {
        with(py, "NotAFilter", format!("not a filter: {error}"), |made| {
            made.setattr("column", error.column())
        })
    })
}

/// The message about an unknown column name.
fn no_such_name(name: &str, columns: impl Iterator<Item = &'static str>) -> (String, Vec<&'static str>) {
    let columns: Vec<&str> = columns.collect();
    let known = format!("the columns are: {}", columns.join(", "));
    match name.parse::<Field>() {
        Ok(field) => (
            format!("the table has no {field}, which was not asked for; {known}"),
            vec![],
        ),
        Err(error) => (format!("there is no column {name:?}; {known}"), error.near),
    }
}

/// The exception for an unknown column name.
pub fn no_column(name: &str, columns: impl Iterator<Item = &'static str>) -> PyErr {
    let (message, near) = no_such_name(name, columns);
    unknown_field(message, name, &near)
}

/// The exception for an unknown attribute of a row.
pub fn no_attribute(name: &str, columns: impl Iterator<Item = &'static str>) -> PyErr {
    PyAttributeError::new_err(no_such_name(name, columns).0)
}
