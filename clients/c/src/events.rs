//! Events as they happen.

use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use taskdiag::events::EventSource;

use crate::error::{Code, Error, Result};
use crate::fork::{self, Asking};
use crate::query::Query;
use crate::table::Table;

/// So many events are in a table at most.
const MOST: usize = 1 << 16;

/// A stream of events: `td_events`.
#[derive(Debug)]
pub struct Events {
    inner: Mutex<taskdiag::Events>,
    fd: RawFd,
    fields: Vec<u32>,
    process: u32,
}

/// A source of this name. `None` is the library's own choice.
fn source(name: &str) -> Result<Option<EventSource>> {
    let known = EventSource::ALL;
    match known.into_iter().find(|source| source.name() == name) {
        None if name != "auto" => Err(Error::invalid(format!(
            "source: {name:?} is none; sources of events are auto, {} and {}",
            known[0], known[1]
        ))),
        source => Ok(source),
    }
}

impl Events {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// If no source, or not this one, can report events, and for a query of something else.
    pub fn open(query: &Query, source: &str) -> Result<Events> {
        let options = query.of_events()?.source(self::source(source)?);
        let _asking = Asking::begin()?;
        let inner = taskdiag::Events::open(&options)?;
        Ok(Events {
            fd: inner.as_fd().as_raw_fd(),
            inner: Mutex::new(inner),
            fields: query.fields().to_vec(),
            process: std::process::id(),
        })
    }

    /// Puts the events that have come, or come within the timeout, into a table.
    ///
    /// # Errors
    ///
    /// Those of the library, and [`Code::Forked`] in a child. The table has no rows then.
    pub fn next(&self, timeout: Option<Duration>, table: &mut Table) -> Result<()> {
        table.clear(&self.fields);
        if self.process != std::process::id() {
            return Err(Error::new(
                Code::Forked,
                "events are of the process that opened them: a child opens its own",
            ));
        }
        let mut inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::WouldBlock) => return Err(Error::invalid("another thread waits for these events")),
            Err(TryLockError::Poisoned(_)) => {
                return Err(Error::new(
                    Code::Internal,
                    "these events ended in a defect of libtaskdiag: open others",
                ))
            }
        };
        // A thread that waits here has nothing that a child of fork(2) needs.
        inner.wait(timeout, None)?;
        let _asking = Asking::begin()?;
        let read = table.fill_with_events(&mut inner, MOST, &self.fields);
        if read.is_err() {
            table.clear(&self.fields);
        }
        read
    }

    /// The descriptor that is readable while there are events.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Ends what the stream has, or leaves it alone where that can't be done.
    pub fn free(events: Box<Events>) {
        if fork::is_torn() {
            std::mem::forget(events);
        }
    }
}
