//! Forks, execs and exits as they happen.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use taskdiag::events::{EventField, EventKind, EventSource, Events as Inner, Options};
use taskdiag::Absent;
use taskdiag_core::setting;

use crate::column::Builder;
use crate::errors;
use crate::query;
use crate::table::{About, Row, Table};

/// How often a wait checks for signals.
const SLICE: Duration = Duration::from_millis(100);
/// The maximum number of events in a table.
const MOST: usize = 1 << 16;

/// A stream of events: an iterator over rows.
#[pyclass(frozen, module = "taskdiag")]
#[derive(Debug)]
pub struct Events {
    inner: Mutex<Option<Inner>>,
    /// Events that were read, but not returned yet.
    batch: Mutex<Option<(Py<Table>, usize)>>,
}

fn closed() -> PyErr {
    errors::new(
        "Closed",
        "the stream of events is closed: open another taskdiag.events()",
    )
}

impl Events {
    /// The stream. This does not wait for the lock: in a child after fork(2), a thread that no
    /// longer exists may hold it.
    fn inner(&self) -> PyResult<MutexGuard<'_, Option<Inner>>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(errors::new("Error", "another thread reads these events")),
        }
    }

    /// Waits up to `slice` for events. `None` if there are none.
    fn slice(&self, py: Python<'_>, slice: Duration) -> PyResult<Option<Table>> {
        py.detach(|| {
            let mut inner = self.inner()?;
            let events = inner.as_mut().ok_or_else(closed)?;
            let read = events
                .wait(Some(slice), None)
                .and_then(|()| table(events))
                .map_err(|error| errors::of(&error))?;
            Ok(Some(read).filter(|table| !table.is_empty()))
        })
    }
}

fn table(events: &mut Inner) -> taskdiag::Result<Table> {
    let start = |field: &EventField| Builder::new(field.name(), field.kind(), 0);
    let mut columns: Vec<Builder> = EventField::ALL.iter().map(start).collect();
    let mut len = 0;
    for event in events.read()?.take(MOST) {
        for (column, &field) in columns.iter_mut().zip(EventField::ALL) {
            // The field does not apply to this kind of event, so there is no reason.
            let value = event
                .value(field)
                .map_or(Err(""), |value| value.map_err(Absent::as_str));
            column.push(value);
        }
        len += 1;
    }
    // Events that were read count as unread for poll(2) until their memory is given back. An error
    // here is the next call's.
    let _ = events.wait(Some(Duration::ZERO), None);
    let lost = events.lost();
    let about = About {
        sources: vec![("events", events.source().name())],
        counters: vec![("events", len as u64), ("lost", lost.count)],
        missing: Vec::new(),
    };
    Ok(Table::new(
        columns.into_iter().map(Builder::finish).collect(),
        len,
        about,
    ))
}

#[pymethods]
impl Events {
    #[new]
    #[pyo3(signature = (kinds = None, *, threads = false, source = "auto", ring_bytes = None))]
    fn new(
        py: Python<'_>,
        kinds: Option<&Bound<'_, PyAny>>,
        threads: bool,
        source: &str,
        ring_bytes: Option<u32>,
    ) -> PyResult<Events> {
        let mut options = Options::default()
            .threads(threads)
            .source(errors::checked(setting::source(
                source,
                &EventSource::ALL,
                EventSource::name,
            ))?);
        if let Some(names) = kinds {
            let kinds = query::names(names)?
                .iter()
                .map(|name| errors::checked(setting::known("kinds", name, str::parse::<EventKind>)))
                .collect::<PyResult<Vec<_>>>()?;
            options = options.kinds(kinds);
        }
        if let Some(bytes) = ring_bytes {
            options = options.ring_bytes(bytes);
        }
        let opened = py.detach(|| Inner::open(&options));
        Ok(Events {
            inner: Mutex::new(Some(opened.map_err(|error| errors::of(&error))?)),
            batch: Mutex::new(None),
        })
    }

    /// Return waiting events; without any, wait up to `timeout` seconds, and return None if there
    /// are still none.
    #[pyo3(signature = (timeout = None))]
    fn read(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Table>> {
        let timeout = timeout.map(|timeout| query::seconds("timeout", timeout)).transpose()?;
        let start = Instant::now();
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            if let Some(table) = self.slice(py, slice)? {
                return Ok(Some(table));
            }
            py.check_signals()?;
            if timeout.is_some_and(|timeout| start.elapsed() >= timeout) {
                return Ok(None);
            }
        }
    }

    fn __iter__(slf: &Bound<'_, Self>) -> Py<Events> {
        slf.clone().unbind()
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Row> {
        loop {
            {
                let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((table, next)) = &mut *batch {
                    let index = *next;
                    if index < table.get().rows() {
                        *next += 1;
                        return Ok(Row::new(table.clone_ref(py), index));
                    }
                }
                *batch = None;
            }
            if let Some(table) = self.read(py, None)? {
                let table = Py::new(py, table)?;
                *self.batch.lock().unwrap_or_else(PoisonError::into_inner) = Some((table, 0));
            }
        }
    }

    /// The minimum number of events lost since the stream was opened.
    #[getter]
    fn lost(&self) -> PyResult<u64> {
        Ok(self.inner()?.as_ref().ok_or_else(closed)?.lost().count)
    }

    /// The source of the events: bpf or connector.
    #[getter]
    fn source(&self) -> PyResult<&'static str> {
        Ok(self.inner()?.as_ref().ok_or_else(closed)?.source().name())
    }

    /// Return a descriptor that poll(2) reports as readable while there are unread events. Read them
    /// with read(): an iteration reads more events than it has returned.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.inner()?.as_ref().ok_or_else(closed)?.as_fd().as_raw_fd())
    }

    /// Close the stream. Reading from it then raises Closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner()?.take();
        py.detach(|| drop(inner));
        // Events that were read, but not yet returned.
        *self.batch.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    fn __enter__(slf: &Bound<'_, Self>) -> Py<Events> {
        slf.clone().unbind()
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }
}
