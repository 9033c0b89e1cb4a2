//! The handle: makes queries, and keeps what it has loaded.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use taskdiag::maps::Filter;
use taskdiag::{Snapshot, SourceId};
use taskdiag_core::setting::{self, TASK_SOURCES};

use crate::error::{Code, Error, Result};
use crate::field::Scope;
use crate::fork::{self, Asking};
use crate::query::Query;
use crate::table::Table;

/// A handle: `td_handle`. Threads may share it; they take turns.
#[derive(Debug, Default)]
pub struct Handle {
    state: Mutex<State>,
}

/// A handle of the library, its options, and memory for answers.
#[derive(Debug, Default)]
struct State {
    inner: taskdiag::Handle,
    options: Options,
    snapshot: Snapshot,
}

impl State {
    fn tasks(&mut self, query: &Query, table: &mut Table) -> Result<()> {
        self.inner.query_into(&query.of_tasks(), &mut self.snapshot)?;
        table.fill(&self.snapshot, &query.fields);
        Ok(())
    }

    fn sockets(&mut self, query: &Query, table: &mut Table) -> Result<()> {
        let (request, tasks) = (query.of_sockets(), query.of_tasks());
        if request.has_owners() {
            self.inner.query_into(&tasks, &mut self.snapshot)?;
        } else {
            self.snapshot = Snapshot::default();
        }
        let snapshot = &self.snapshot;
        self.inner.with_patience_of(&tasks, |handle| {
            table.fill_with_sockets(handle, snapshot, &request, &query.fields)
        })
    }

    fn files(&mut self, query: &Query, table: &mut Table) -> Result<()> {
        let (request, tasks) = (query.of_files(self.options.patience)?, query.of_tasks());
        self.inner.query_into(&tasks, &mut self.snapshot)?;
        let snapshot = &self.snapshot;
        self.inner.with_patience_of(&tasks, |handle| {
            table.fill_with_files(handle, snapshot, &request, &query.fields)
        })
    }

    fn maps(&mut self, query: &Query, table: &mut Table) -> Result<()> {
        let (pid, fields) = query.of_maps()?;
        let patience = query.patience(self.options.patience);
        let mut handle = self.options.handle().with_patience(patience);
        let mappings = handle.maps(pid)?.list(Filter::default(), fields)?;
        table.fill_with_mappings(&mappings, &query.fields);
        Ok(())
    }
}

/// The options for a handle of the library.
#[derive(Debug, Default)]
struct Options {
    source: Option<SourceId>,
    socket: Option<PathBuf>,
    patience: Option<Duration>,
}

impl Options {
    fn handle(&self) -> taskdiag::Handle {
        taskdiag::Handle::of_settings(self.source, self.socket.as_deref(), self.patience)
    }
}

impl Handle {
    /// Calls `work` with exclusive access to the state.
    fn with<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let _asking = Asking::begin()?;
        match self.state.lock() {
            Ok(mut state) => work(&mut state),
            Err(_) => Err(Error::new(
                Code::Internal,
                "a query of this handle ended in a defect of libtaskdiag: make another handle",
            )),
        }
    }

    fn set(&self, change: impl FnOnce(&mut Options)) -> Result<()> {
        self.with(|state| {
            change(&mut state.options);
            state.inner = state.options.handle();
            Ok(())
        })
    }

    /// Lets only one source answer.
    ///
    /// # Errors
    ///
    /// If no source has this name.
    pub fn set_source(&self, name: &str) -> Result<()> {
        let source = setting::source(name, &TASK_SOURCES, SourceId::name)?;
        self.set(|options| options.source = source)
    }

    /// Sets the broker's socket.
    ///
    /// # Errors
    ///
    /// In a child that was forked during a query.
    pub fn set_socket(&self, path: PathBuf) -> Result<()> {
        self.set(|options| options.socket = Some(path))
    }

    /// Sets how long one process may keep its reader waiting.
    ///
    /// # Errors
    ///
    /// In a child that was forked during a query.
    pub fn set_patience(&self, patience: Duration) -> Result<()> {
        self.set(|options| options.patience = Some(patience))
    }

    /// Loads the BPF programs for this query, or connects to the broker.
    ///
    /// # Errors
    ///
    /// If they cannot be loaded. The message has what is missing.
    pub fn prepare(&self, query: &Query) -> Result<()> {
        self.with(|state| Ok(state.inner.prepare_query(&query.of_tasks())?))
    }

    /// Makes a query, and puts the answer into a table.
    ///
    /// # Errors
    ///
    /// Errors of the library, and [`Code::Forked`]. The table may then have any rows.
    pub fn ask(&self, query: &Query, table: &mut Table) -> Result<()> {
        match query.scope {
            Scope::Processes | Scope::Threads => self.with(|state| state.tasks(query, table)),
            Scope::Sockets => self.with(|state| state.sockets(query, table)),
            Scope::Files => self.with(|state| state.files(query, table)),
            Scope::Maps => self.with(|state| state.maps(query, table)),
            Scope::Cache => {
                // A child that was forked during a query gets that error from every question. Apart
                // from this, the walk needs nothing that threads share, and it waits for file
                // systems.
                drop(Asking::begin()?);
                table.fill_with_cache(query.of_cache()?, &query.fields)
            }
            Scope::Events => Err(Error::invalid(
                "events come one after the other: td_events_open() takes the query",
            )),
        }
    }

    /// Frees a handle, or leaks it where freeing is not possible.
    pub fn free(handle: Box<Handle>) {
        if fork::is_torn() {
            // A thread that this process does not have was using it.
            std::mem::forget(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field;

    /// Check that a query fills a table, and that the table can be used again.
    #[test]
    fn a_query_fills_a_table() {
        let handle = Handle::default();
        handle.set_source("procfs").expect("there is procfs");
        let mut query = Query::new(Scope::Processes);
        query.add_fields("pid,comm").expect("these are fields");
        query
            .these(&[std::process::id(), i32::MAX as u32])
            .expect("these are pids");
        let mut table = Table::default();
        for _ in 0..2 {
            handle.ask(&query, &mut table).expect("procfs answers");
            assert_eq!((table.len, &table.missing[..]), (1, [i32::MAX as u32].as_slice()));
            let pid = field::named(Scope::Processes, "pid").expect("it is a field");
            assert_eq!(table.source(pid), Some(c"procfs"));
            assert_eq!(table.counter("tasks"), Some(1));
        }
        assert!(handle.set_source("proc").is_err());
        handle.set_socket("/nonexistent/socket".into()).expect("it is a path");
        handle.set_source("auto").expect("it is a name");
        assert!(handle.ask(&query, &mut table).is_err());
    }
}
