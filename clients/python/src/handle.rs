//! The handle: makes queries about tasks, and keeps what it has loaded.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyString;
use taskdiag::{is_interrupted, Budget, Field, Handle as Inner, Query, Snapshot, SourceId};
use taskdiag_core::field::{MEMORY_FIELDS, PROCESS_FIELDS, THREAD_FIELDS, TREE_FIELDS};
use taskdiag_core::setting::{self, TASK_SOURCES};

use crate::errors;
use crate::files::{self, Asked};
use crate::fork;
use crate::query::{self, Chosen, State};
use crate::rows;
use crate::sockets;
use crate::table::Table;
use crate::tree;

/// How often a wait for another thread checks for signals.
const SLICE: Duration = Duration::from_millis(50);

/// Makes queries about processes, and keeps what it has loaded. Threads may share a handle; they
/// take turns.
#[pyclass(frozen, module = "taskdiag")]
#[derive(Debug)]
pub struct Handle {
    settings: Settings,
    state: Mutex<Option<State>>,
    /// The thread in a query. Meanwhile it may run signal handlers, which may make queries, too.
    asking: Mutex<Option<ThreadId>>,
    /// Notified when that thread is done.
    done: Condvar,
    /// Whether such a handler has closed the handle.
    is_closing: AtomicBool,
}

/// The arguments that a handle is made with.
#[derive(Debug)]
pub struct Settings {
    source: Option<SourceId>,
    socket: Option<PathBuf>,
    patience: Option<Duration>,
}

impl Settings {
    /// Settings from the arguments of a call. `patience` is in seconds.
    pub fn new(source: Option<SourceId>, socket: Option<PathBuf>, patience: Option<f64>) -> PyResult<Settings> {
        Ok(Settings {
            source,
            socket,
            patience: patience
                .map(|patience| query::seconds("patience", patience))
                .transpose()?,
        })
    }

    /// A handle of the library with nothing loaded.
    pub fn handle(&self) -> Inner {
        Inner::of_settings(self.source, self.socket.as_deref(), self.patience)
    }

    fn state(&self) -> State {
        State {
            handle: self.handle(),
            snapshot: Snapshot::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread's turn to use the handle, until it is dropped.
struct Turn<'a>(&'a Handle);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.asking) = None;
        self.0.done.notify_one();
    }
}

impl Handle {
    /// Calls `ask` with the handle, without holding the interpreter.
    ///
    /// # Errors
    ///
    /// `Closed`, `Forked`, and errors of the library.
    pub fn ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&mut State) -> taskdiag::Result<T> + Send,
    ) -> PyResult<T> {
        let answer = fork::ask(py, || {
            if self.is_asking() {
                return Some(ask(&mut self.settings.state()));
            }
            let _turn = self.turn()?;
            let mut state = lock(&self.state);
            let answer = state.as_mut().map(ask);
            // This may run a signal handler, which may use the handle.
            let is_interrupted = is_interrupted();
            if self.is_closing.load(Ordering::Relaxed) {
                *state = None;
            } else if is_interrupted && answer.is_some() {
                *state = Some(self.settings.state());
            }
            answer
        })?;
        match answer {
            Some(answer) => answer.map_err(|error| errors::of(&error)),
            None => Err(errors::new(
                "Closed",
                "the handle is closed: make another taskdiag.Handle()",
            )),
        }
    }

    /// Waits until no other thread uses the handle. `None` if a signal handler has raised an
    /// exception meanwhile.
    fn turn(&self) -> Option<Turn<'_>> {
        loop {
            let asking = lock(&self.asking);
            let waited = self.done.wait_timeout_while(asking, SLICE, |asking| asking.is_some());
            let (mut asking, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if !timeout.timed_out() {
                *asking = Some(thread::current().id());
                return Some(Turn(self));
            }
            drop(asking);
            if is_interrupted() {
                return None;
            }
        }
    }

    /// Whether this thread is in the middle of a query, and runs a signal handler.
    fn is_asking(&self) -> bool {
        *lock(&self.asking) == Some(thread::current().id())
    }

    fn table(&self, py: Python<'_>, query: &Query, fields: &[Field]) -> PyResult<Table> {
        self.ask(py, |state| {
            query::table(&mut state.handle, query, fields, &mut state.snapshot)
        })
    }
}

/// Applies a filter, a patience and a budget to a query.
fn narrowed(
    mut query: Query,
    filter: Option<&Bound<'_, PyString>>,
    patience: Option<f64>,
    budget: Budget,
) -> PyResult<Query> {
    if let Some(expression) = filter {
        query = query.filter(query::filter(expression)?);
    }
    if let Some(patience) = patience {
        query = query.patience(query::seconds("patience", patience)?);
    }
    Ok(query.budget(budget))
}

/// The query for the tasks that a call selects.
fn about(
    pids: Option<&Bound<'_, PyAny>>,
    children_of: Option<&Bound<'_, PyAny>>,
    descendants_of: Option<&Bound<'_, PyAny>>,
) -> PyResult<Query> {
    match (pids, children_of, descendants_of) {
        (None, None, None) => Ok(Query::processes()),
        (Some(pids), None, None) => Ok(Query::these(query::pids(pids)?)),
        (None, Some(pid), None) => Ok(Query::children_of(query::pid(pid)?)),
        (None, None, Some(pid)) => Ok(Query::descendants_of(query::pid(pid)?)),
        _ => Err(errors::invalid("only one of pids, children_of and descendants_of")),
    }
}

#[pymethods]
impl Handle {
    #[new]
    #[pyo3(signature = (*, source = "auto", socket = None, patience = None))]
    fn new(source: &str, socket: Option<PathBuf>, patience: Option<f64>) -> PyResult<Handle> {
        let source = errors::checked(setting::source(source, &TASK_SOURCES, SourceId::name))?;
        let settings = Settings::new(source, socket, patience)?;
        Ok(Handle {
            state: Mutex::new(Some(settings.state())),
            settings,
            asking: Mutex::new(None),
            done: Condvar::new(),
            is_closing: AtomicBool::new(false),
        })
    }

    /// Query processes, as taskdiag.processes() does.
    #[pyo3(signature = (fields = None, *, r#where = None, pids = None, children_of = None, descendants_of = None,
                        changed = false, budget = None, patience = None))]
    #[allow(clippy::too_many_arguments)] // They are Python's, each with its name.
    fn processes(
        &self,
        py: Python<'_>,
        fields: Option<&Bound<'_, PyAny>>,
        r#where: Option<&Bound<'_, PyString>>,
        pids: Option<&Bound<'_, PyAny>>,
        children_of: Option<&Bound<'_, PyAny>>,
        descendants_of: Option<&Bound<'_, PyAny>>,
        changed: bool,
        budget: Option<f64>,
        patience: Option<f64>,
    ) -> PyResult<Table> {
        let chosen = Chosen::new(fields, &PROCESS_FIELDS)?;
        let mut query = about(pids, children_of, descendants_of)?.fields(chosen.set());
        if changed {
            query = query.only_changed();
        }
        let query = narrowed(query, r#where, patience, query::budget(budget, None, None)?)?;
        self.table(py, &query, &chosen.0)
    }

    /// Query threads, as taskdiag.threads() does.
    #[pyo3(signature = (fields = None, *, r#where = None, pids = None, patience = None))]
    fn threads(
        &self,
        py: Python<'_>,
        fields: Option<&Bound<'_, PyAny>>,
        r#where: Option<&Bound<'_, PyString>>,
        pids: Option<&Bound<'_, PyAny>>,
        patience: Option<f64>,
    ) -> PyResult<Table> {
        let chosen = Chosen::new(fields, &THREAD_FIELDS)?;
        let query = match pids {
            None => Query::threads(),
            Some(pids) => Query::threads_of_these(query::pids(pids)?),
        };
        let query = narrowed(query.fields(chosen.set()), r#where, patience, Budget::default())?;
        self.table(py, &query, &chosen.0)
    }

    /// Query processes below their parents, as taskdiag.tree() does.
    #[pyo3(signature = (pid = None, fields = None, *, r#where = None, patience = None))]
    fn tree(
        &self,
        py: Python<'_>,
        pid: Option<&Bound<'_, PyAny>>,
        fields: Option<&Bound<'_, PyAny>>,
        r#where: Option<&Bound<'_, PyString>>,
        patience: Option<f64>,
    ) -> PyResult<Table> {
        let chosen = Chosen::new(fields, &TREE_FIELDS)?;
        let root = pid.map(query::pid).transpose()?;
        let query = Query::processes().fields(chosen.set() | Field::Ppid);
        let query = narrowed(query, r#where, patience, Budget::default())?;
        let table = self.ask(py, |state| {
            state.handle.query_into(&query, &mut state.snapshot)?;
            Ok(tree::table(&state.snapshot, &chosen.0, root))
        })?;
        table.ok_or_else(|| {
            let message = format!(
                "no process with pid {} (it may have ended, or be hidden from you)",
                root.unwrap_or(0)
            );
            errors::new("NoSuchProcess", message)
        })
    }

    /// Query the memory of processes, as taskdiag.memory() does.
    #[pyo3(signature = (fields = None, *, r#where = None, pids = None, budget = None, max_rss_bytes = None,
                        max_age = None, patience = None))]
    #[allow(clippy::too_many_arguments)]
    fn memory(
        &self,
        py: Python<'_>,
        fields: Option<&Bound<'_, PyAny>>,
        r#where: Option<&Bound<'_, PyString>>,
        pids: Option<&Bound<'_, PyAny>>,
        budget: Option<f64>,
        max_rss_bytes: Option<&Bound<'_, PyAny>>,
        max_age: Option<f64>,
        patience: Option<f64>,
    ) -> PyResult<Table> {
        let chosen = Chosen::new(fields, &MEMORY_FIELDS)?;
        let query = about(pids, None, None)?.fields(chosen.set());
        let query = narrowed(query, r#where, patience, query::budget(budget, max_rss_bytes, max_age)?)?;
        self.table(py, &query, &chosen.0)
    }

    /// Query the files that processes use, as taskdiag.files() does.
    #[pyo3(signature = (fields = None, *, r#where = None, pids = None, uses = None, kinds = None, deleted = false,
                        paths = None, patience = None))]
    #[allow(clippy::too_many_arguments)]
    fn files(
        &self,
        py: Python<'_>,
        fields: Option<&Bound<'_, PyAny>>,
        r#where: Option<&Bound<'_, PyString>>,
        pids: Option<&Bound<'_, PyAny>>,
        uses: Option<&Bound<'_, PyAny>>,
        kinds: Option<&Bound<'_, PyAny>>,
        deleted: bool,
        paths: Option<&Bound<'_, PyAny>>,
        patience: Option<f64>,
    ) -> PyResult<Table> {
        let chosen = rows::chosen(fields, &files::KEYS, &files::usual())?;
        let query = narrowed(about(pids, None, None)?, r#where, patience, Budget::default())?;
        let paths = paths.map_or(Ok(Vec::new()), query::paths)?;
        let asked = Asked::new(py, query, chosen, [uses, kinds], deleted, &paths)?;
        self.ask(py, |state| asked.ask(state))
    }

    /// Query the sockets of the machine, as taskdiag.sockets() does.
    #[pyo3(signature = (fields = None, *, r#where = None, pids = None, kinds = None, states = None, ports = None,
                        listening = false, info = false, own_netns = false, patience = None))]
    #[allow(clippy::too_many_arguments)]
    fn sockets(
        &self,
        py: Python<'_>,
        fields: Option<&Bound<'_, PyAny>>,
        r#where: Option<&Bound<'_, PyString>>,
        pids: Option<&Bound<'_, PyAny>>,
        kinds: Option<&Bound<'_, PyAny>>,
        states: Option<&Bound<'_, PyAny>>,
        ports: Option<&Bound<'_, PyAny>>,
        listening: bool,
        info: bool,
        own_netns: bool,
        patience: Option<f64>,
    ) -> PyResult<Table> {
        let chosen = rows::chosen(fields, &sockets::KEYS, &sockets::usual(info))?;
        let query = about(pids, None, None)?.fields(Field::StartNs | Field::Comm);
        let query = narrowed(query, None, patience, Budget::default())?;
        let narrowed = sockets::Narrowed {
            kinds,
            states,
            filter: r#where,
            ports: ports.map_or(Ok(Vec::new()), query::ports)?,
            listening,
            owned: pids.is_some(),
            own_netns,
        };
        let asked = sockets::Asked::new(query, chosen, narrowed)?;
        self.ask(py, |state| asked.ask(state))
    }

    /// Load the BPF programs for these fields now, or connect to the broker.
    #[pyo3(signature = (fields = None))]
    fn prepare(&self, py: Python<'_>, fields: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let fields = Chosen::new(fields, &PROCESS_FIELDS)?.set();
        self.ask(py, |state| state.handle.prepare(fields))
    }

    /// Release what is loaded. The handle cannot be used afterwards; tables can.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        fork::ask(py, || {
            if self.is_asking() {
                self.is_closing.store(true, Ordering::Relaxed);
            } else if let Some(_turn) = self.turn() {
                *lock(&self.state) = None;
            }
        })
    }

    fn __enter__(slf: &Bound<'_, Self>) -> Py<Handle> {
        slf.clone().unbind()
    }

    fn __exit__(&self, py: Python<'_>, _class: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        self.close(py)
    }
}
