//! The handle: it asks, and keeps what it has loaded.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use taskdiag::maps::{self, Maps};
use taskdiag::{Fields, Snapshot, SourceId};

use crate::error::{Code, Error, Result};
use crate::field::{self, Of, Scope};
use crate::fork::{self, Asking};
use crate::query::Query;
use crate::table::Table;

/// A handle: `td_handle`. Threads may share it: one at a time asks.
#[derive(Debug, Default)]
pub struct Handle {
    state: Mutex<State>,
}

/// A handle of the library, how it was made, and memory for its answers.
#[derive(Debug, Default)]
struct State {
    inner: taskdiag::Handle,
    options: Options,
    snapshot: Snapshot,
}

impl State {
    fn ask(&mut self, query: &Query, table: &mut Table) -> Result<()> {
        let (handle, ids) = (&mut self.inner, query.fields());
        match query.scope() {
            Scope::Processes | Scope::Threads => {
                handle.query_into(&query.of_tasks(), &mut self.snapshot)?;
                table.fill(&self.snapshot, ids);
                Ok(())
            }
            Scope::Sockets => {
                let request = query.of_sockets();
                if request.has_owners() {
                    handle.query_into(&query.of_tasks(), &mut self.snapshot)?;
                } else {
                    self.snapshot = Snapshot::default();
                }
                table.fill_with_sockets(handle, &self.snapshot, &request, ids)
            }
            Scope::Files => {
                let request = query.of_files(self.options.patience)?;
                handle.query_into(&query.of_tasks(), &mut self.snapshot)?;
                table.fill_with_files(handle, &self.snapshot, &request, ids)
            }
            Scope::Maps => {
                let (pid, wants) = query.of_maps()?;
                let (mut maps, is_broker) = self.options.open_maps(pid, query.patience(self.options.patience))?;
                let mappings = maps.list(maps::Filter::empty(), wants)?;
                table.fill_with_mappings(&mappings, pid, is_broker.then_some(SourceId::Broker), ids);
                Ok(())
            }
            Scope::Cache => table.fill_with_cache(query.of_cache()?, ids),
            Scope::Events => Err(Error::invalid(
                "events come one after the other: td_events_open() takes the query",
            )),
        }
    }
}

/// How a handle of the library is made.
#[derive(Debug, Default)]
struct Options {
    source: Option<SourceId>,
    socket: Option<PathBuf>,
    patience: Option<Duration>,
}

impl Options {
    /// A handle on the mappings of a process, and whether the broker opened it.
    fn open_maps(&self, pid: u32, patience: Duration) -> Result<(Maps, bool)> {
        let source = match (self.source, &self.socket) {
            (Some(SourceId::Broker), _) | (None, Some(_)) => {
                let broker = maps::Broker::connect(self.socket.as_deref())?;
                return Ok((broker.open(pid)?.with_patience(patience), true));
            }
            (Some(SourceId::Bpf), _) => Some(maps::Source::Bpf),
            (Some(_), _) => Some(maps::Source::Procfs),
            (None, None) => None,
        };
        let maps = Maps::open_within(pid, patience)?;
        Ok(match source {
            Some(source) => (maps.with_source(source), false),
            None => (maps, false),
        })
    }

    fn handle(&self) -> taskdiag::Handle {
        let mut handle = taskdiag::Handle::new();
        // A socket alone means the broker.
        match (self.source, &self.socket) {
            (Some(source), _) => handle = handle.with_source(source),
            (None, Some(_)) => handle = handle.with_source(SourceId::Broker),
            (None, None) => {}
        }
        if let Some(socket) = &self.socket {
            handle = handle.with_socket(socket);
        }
        match self.patience {
            Some(patience) => handle.with_patience(patience),
            None => handle,
        }
    }
}

/// A source of this name. `None` is the library's own choice.
fn source(name: &str) -> Result<Option<SourceId>> {
    Ok(match name {
        "auto" => None,
        "bpf" => Some(SourceId::Bpf),
        "procfs" => Some(SourceId::Procfs),
        "broker" => Some(SourceId::Broker),
        _ => {
            let message = format!("source: {name:?} is none; sources are auto, bpf, procfs and broker");
            return Err(Error::invalid(message));
        }
    })
}

impl Handle {
    /// Works with the state, while no other thread does.
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
    /// For a name that no source has.
    pub fn set_source(&self, name: &str) -> Result<()> {
        let source = source(name)?;
        self.set(|options| options.source = source)
    }

    /// Where the broker listens.
    ///
    /// # Errors
    ///
    /// In a child that was forked at the wrong moment.
    pub fn set_socket(&self, path: PathBuf) -> Result<()> {
        self.set(|options| options.socket = Some(path))
    }

    /// How long one process may keep its reader waiting.
    ///
    /// # Errors
    ///
    /// In a child that was forked at the wrong moment.
    pub fn set_patience(&self, patience: Duration) -> Result<()> {
        self.set(|options| options.patience = Some(patience))
    }

    /// Loads the BPF programs for these fields.
    ///
    /// # Errors
    ///
    /// If they can't be loaded, with what is missing.
    pub fn prepare(&self, query: &Query) -> Result<()> {
        let field = |&id: &u32| match field::row(id)?.of {
            Of::Task(field) => Some(field),
            _ => None,
        };
        let fields: Fields = query.fields().iter().filter_map(field).collect();
        self.with(|state| Ok(state.inner.prepare(fields)?))
    }

    /// Asks, and puts the answer into a table.
    ///
    /// # Errors
    ///
    /// Those of the library, and [`Code::Forked`]. The table has no rows then.
    pub fn ask(&self, query: &Query, table: &mut Table) -> Result<()> {
        table.clear(query.fields());
        let asked = self.with(|state| state.ask(query, table));
        if asked.is_err() {
            table.clear(query.fields());
        }
        asked
    }

    /// Ends what the handle has, or leaves it alone where that can't be done.
    pub fn free(handle: Box<Handle>) {
        if fork::is_torn() {
            // Another thread, which this process does not have, was in the middle of it.
            std::mem::forget(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a query fills a table, that the table is used again, and that errors empty it.
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
            assert_eq!((table.len(), table.missing()), (1, [i32::MAX as u32].as_slice()));
            let pid = field::named(Scope::Processes, "pid").expect("it is a field");
            assert_eq!(table.source(pid), Some(c"procfs"));
            assert_eq!(table.counter("tasks"), Some(1));
        }
        assert!(handle.set_source("proc").is_err());
        handle.set_socket("/nonexistent/socket".into()).expect("it is a path");
        handle.set_source("auto").expect("it is a name");
        assert!(handle.ask(&query, &mut table).is_err());
        assert_eq!((table.len(), table.ids().len()), (0, 2));
    }
}
