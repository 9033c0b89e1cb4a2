//! Forks, execs and exits as they happen.

use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use taskdiag::events::{EventField, EventKind, EventSource, Events as Inner, Options};
use taskdiag_core::column::reason;
use taskdiag_core::setting;

use crate::column::{type_of, Column};
use crate::errors;
use crate::query;
use crate::table::{About, Row, Table};

/// How often a wait checks for signals.
const SLICE: Duration = Duration::from_millis(100);
/// The maximum number of events in a table.
const MAX_EVENTS: usize = 1 << 16;

/// A stream of events: an iterator over rows.
#[pyclass(frozen, module = "taskdiag")]
#[derive(Debug)]
pub struct Events {
    inner: Mutex<Option<Inner>>,
    // Other threads may ask for these while one reads.
    source: EventSource,
    fd: RawFd,
    /// The events lost when that was last looked at.
    lost: AtomicU64,
    is_closed: AtomicBool,
    /// The process that opened it.
    opener: u32,
}

fn closed() -> PyErr {
    errors::new(
        "Closed",
        "the stream of events is closed: open another taskdiag.events()",
    )
}

impl Events {
    /// The stream, unless another thread has it. This does not wait for the lock: in a child after
    /// fork(2), a thread that no longer exists may hold it.
    fn free(&self) -> Option<MutexGuard<'_, Option<Inner>>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn check(&self) -> PyResult<()> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(closed());
        }
        Ok(())
    }

    /// Remembers how many events were lost, for when the stream can't be asked.
    fn remember(&self, events: &Inner) {
        self.lost.store(events.lost().count, Ordering::Relaxed);
    }

    /// Reads at most `most` events that are there.
    fn table(&self, events: &mut Inner, most: usize) -> taskdiag::Result<Table> {
        let start = |field: &EventField| Column::new(field.name(), field.kind(), type_of(field.kind()), 0);
        let mut columns: Vec<Column> = EventField::ALL.iter().map(start).collect();
        let mut len = 0;
        for event in events.read()?.take(most) {
            for (column, &field) in columns.iter_mut().zip(EventField::ALL) {
                // The field does not apply to this kind of event, so there is no reason.
                let value = event.value(field).map_err(reason);
                column.memory.push(value);
            }
            len += 1;
        }
        // Events that were read count as unread for poll(2) until their memory is given back. An
        // error here is the next call's.
        let _ = events.wait(Some(Duration::ZERO), None);
        self.remember(events);
        let about = About {
            sources: vec![("events", events.source().name())],
            counters: vec![("events", len as u64), ("lost", self.lost.load(Ordering::Relaxed))],
            missing: Vec::new(),
        };
        Ok(Table::new(
            columns.into_iter().map(Column::finish).collect(),
            len,
            about,
        ))
    }

    /// Reads at most `most` events, perhaps after waiting up to `slice` for them. `None` if there
    /// are none.
    fn slice(&self, py: Python<'_>, slice: Option<Duration>, most: usize) -> PyResult<Option<Table>> {
        // Who takes the lock for longer holds the interpreter when taking it, as lost() does.
        let inner = self.free();
        self.check()?;
        let mut inner = inner.ok_or_else(|| errors::new("Error", "another thread reads these events"))?;
        let events = inner.as_mut().ok_or_else(closed)?;
        let read = py.detach(|| {
            if let Some(slice) = slice {
                events.wait(Some(slice), None)?;
                self.remember(events);
            }
            self.table(events, most)
        });
        let table = errors::checked(read)?;
        Ok(Some(table).filter(|table| !table.is_empty()))
    }

    /// Reads at most `most` events. Waits up to `timeout`, or without an end, for the first.
    fn wait(&self, py: Python<'_>, timeout: Option<Duration>, most: usize) -> PyResult<Option<Table>> {
        let start = Instant::now();
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            if let Some(table) = self.slice(py, Some(slice), most)? {
                return Ok(Some(table));
            }
            py.check_signals()?;
            if timeout.is_some_and(|timeout| start.elapsed() >= timeout) {
                return Ok(None);
            }
        }
    }
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
        ring_bytes: Option<&Bound<'_, PyAny>>,
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
            let bytes = query::bytes("ring_bytes", bytes)?;
            options = options.ring_bytes(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        let opened = errors::checked(py.detach(|| Inner::open(&options)))?;
        Ok(Events {
            source: opened.source(),
            fd: opened.as_fd().as_raw_fd(),
            inner: Mutex::new(Some(opened)),
            lost: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            opener: process::id(),
        })
    }

    /// Return waiting events; without any, wait up to `timeout` seconds, and return None if there
    /// are still none.
    #[pyo3(signature = (timeout = None))]
    fn read(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Table>> {
        let timeout = timeout.map(|timeout| query::seconds("timeout", timeout)).transpose()?;
        self.wait(py, timeout, MAX_EVENTS)
    }

    fn __iter__(slf: &Bound<'_, Self>) -> Py<Events> {
        slf.clone().unbind()
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Row> {
        // The others stay in the kernel's buffer, where read(), poll(2) and other threads find them.
        let table = match self.slice(py, None, 1)? {
            Some(table) => table,
            None => self.wait(py, None, 1)?.ok_or_else(closed)?,
        };
        Ok(Row::new(Py::new(py, table)?, 0))
    }

    /// The minimum number of events lost since the stream was opened.
    #[getter]
    fn lost(&self) -> u64 {
        if let Some(events) = self.free().as_deref().and_then(Option::as_ref) {
            self.remember(events);
        }
        self.lost.load(Ordering::Relaxed)
    }

    /// The source of the events: bpf or connector.
    #[getter]
    fn source(&self) -> &'static str {
        self.source.name()
    }

    /// Return a descriptor that poll(2) reports as readable while there are unread events.
    fn fileno(&self) -> PyResult<i32> {
        self.check()?;
        Ok(self.fd)
    }

    /// Close the stream. Reading from it then raises Closed, also in a thread that waits for events.
    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::SeqCst);
        py.detach(|| {
            // A thread that reads gives it back within a slice, except if fork(2) has not copied it.
            let inner = if self.opener == process::id() {
                Some(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
            } else {
                self.free()
            };
            if let Some(events) = inner.and_then(|mut inner| inner.take()) {
                self.remember(&events);
            }
        });
    }

    fn __enter__(slf: &Bound<'_, Self>) -> Py<Events> {
        slf.clone().unbind()
    }

    fn __exit__(&self, py: Python<'_>, _class: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) {
        self.close(py);
    }
}
