//! The arguments of a call: fields, processes, limits.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use taskdiag::{Budget, Field, Fields, Filter, Handle, Known, Query, Snapshot, SourceId, Task};
use taskdiag_core::column::reason;
use taskdiag_core::field::named;
use taskdiag_core::setting;

use crate::column::{type_of, Column};
use crate::errors;
use crate::table::{About, Table};

/// The fields of a call, in order, each once.
#[derive(Clone, Debug)]
pub struct Chosen(pub Vec<Field>);

impl Chosen {
    /// Parses names of fields, names of groups, or `all`: a list, or a text separated by commas.
    pub fn new(names: Option<&Bound<'_, PyAny>>, usual: &[Field]) -> PyResult<Chosen> {
        let Some(names) = names else {
            return Ok(Chosen(usual.to_vec()));
        };
        let mut fields = Vec::new();
        for name in self::names(names)? {
            let named = named(&name).map_err(|error| errors::unknown(&error))?;
            for field in named.iter() {
                if !fields.contains(&field) {
                    fields.push(field);
                }
            }
        }
        if fields.is_empty() {
            return Err(errors::invalid(
                "fields: name at least one; taskdiag.FIELDS has all names",
            ));
        }
        Ok(Chosen(fields))
    }

    /// The fields as a set.
    pub fn set(&self) -> Fields {
        self.0.iter().copied().collect()
    }
}

/// Parses a list of names, or a text separated by commas.
pub fn names(names: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(text) = names.cast::<PyString>() {
        return Ok(text.to_str()?.split(',').map(|name| name.trim().to_owned()).collect());
    }
    names.try_iter()?.map(|name| name?.extract::<String>()).collect()
}

/// Parses a process id.
pub fn pid(pid: &Bound<'_, PyAny>) -> PyResult<u32> {
    let known = pid.extract::<u32>().ok().filter(|&pid| pid <= i32::MAX as u32);
    known.ok_or_else(|| errors::invalid(format!("{pid} is not a process id")))
}

/// Parses process ids: one number, or a list.
pub fn pids(pids: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    match pids.try_iter() {
        Ok(list) => list.map(|each| pid(&each?)).collect(),
        Err(_) => Ok(vec![pid(pids)?]),
    }
}

/// Parses a path: text, bytes, or anything else that os.fsencode() accepts.
pub fn path(path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let bytes = path.py().import("os")?.call_method1("fsencode", (path,))?;
    Ok(PathBuf::from(OsString::from_vec(bytes.extract()?)))
}

/// Parses paths: one, or a list.
pub fn paths(paths: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    let is_one = paths.is_instance_of::<PyString>() || paths.is_instance_of::<PyBytes>();
    if is_one || paths.hasattr("__fspath__")? {
        return Ok(vec![path(paths)?]);
    }
    paths.try_iter()?.map(|each| path(&each?)).collect()
}

/// Parses ports: one number, or a list.
pub fn ports(ports: &Bound<'_, PyAny>) -> PyResult<Vec<u16>> {
    let port = |port: &Bound<'_, PyAny>| {
        let known = port.extract::<u16>();
        known.map_err(|_| errors::invalid(format!("ports: {port} is not a port")))
    };
    match ports.try_iter() {
        Ok(list) => list.map(|each| port(&each?)).collect(),
        Err(_) => Ok(vec![port(ports)?]),
    }
}

/// Parses a duration in seconds.
pub fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    errors::checked(setting::seconds(name, seconds))
}

/// Parses a number of bytes.
pub fn bytes(name: &str, bytes: &Bound<'_, PyAny>) -> PyResult<u64> {
    bytes.extract::<u64>().map_err(|error| {
        if error.is_instance_of::<PyOverflowError>(bytes.py()) {
            errors::invalid(format!("{name}: {bytes} is not a number of bytes"))
        } else {
            error
        }
    })
}

/// The text of a filter.
pub fn expression<'a>(text: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    let known = text.to_str();
    known.map_err(|_| errors::invalid("where: it has surrogates, which no filter can have"))
}

/// Parses a filter.
pub fn filter(text: &Bound<'_, PyString>) -> PyResult<Filter> {
    Filter::parse(expression(text)?).map_err(|error| errors::not_a_filter(&error))
}

/// The limits on walking page tables. `time` is in seconds; infinite values mean no limit.
pub fn budget(time: Option<f64>, max_rss_bytes: Option<&Bound<'_, PyAny>>, max_age: Option<f64>) -> PyResult<Budget> {
    let mut budget = Budget::default();
    match time {
        Some(time) if time == f64::INFINITY => budget = budget.deadline(None).max_rss_bytes(None),
        Some(time) => budget = budget.deadline(Some(seconds("budget", time)?)),
        None => {}
    }
    if let Some(bytes) = max_rss_bytes {
        budget = budget.max_rss_bytes(Some(self::bytes("max_rss_bytes", bytes)?));
    }
    if let Some(age) = max_age {
        budget = budget.max_age(seconds("max_age", age)?);
    }
    Ok(budget)
}

/// Makes a query, and stores the answer in columns. Uses the snapshot's memory again.
///
/// # Errors
///
/// Errors of the library.
pub fn table(handle: &mut Handle, query: &Query, fields: &[Field], snapshot: &mut Snapshot) -> taskdiag::Result<Table> {
    handle.query_into(query, snapshot)?;
    Ok(of_snapshot(snapshot, fields))
}

/// Converts a snapshot to columns of these fields.
pub fn of_snapshot(snapshot: &Snapshot, fields: &[Field]) -> Table {
    let columns = columns(snapshot.tasks(), snapshot.len(), fields);
    Table::new(columns, snapshot.len(), about(snapshot))
}

/// Converts tasks to columns of these fields.
pub fn columns<'a>(tasks: impl Iterator<Item = Task<'a>>, len: usize, fields: &[Field]) -> Vec<Column> {
    let start = |&field: &Field| {
        let kind = field.info().kind;
        Column::new(field.name(), kind, type_of(kind), len)
    };
    let mut columns: Vec<Column> = fields.iter().map(start).collect();
    for task in tasks {
        for (column, &field) in columns.iter_mut().zip(fields) {
            column.memory.push(task.value(field).map_err(reason));
        }
    }
    columns.into_iter().map(Column::finish).collect()
}

/// A handle of the library, and the memory of its last answer.
#[derive(Debug, Default)]
pub struct State {
    /// The handle.
    pub handle: Handle,
    /// Memory for answers.
    pub snapshot: Snapshot,
}

/// The facts about a snapshot besides its rows.
pub fn about(snapshot: &Snapshot) -> About {
    let answer = |answer: Known<SourceId>| match answer {
        Ok(source) => source.name(),
        Err(reason) => reason.as_str(),
    };
    About {
        sources: snapshot
            .answers()
            .map(|(group, source)| (group.name(), answer(source)))
            .collect(),
        counters: snapshot.counters().named().collect(),
        missing: snapshot.missing().to_vec(),
    }
}
