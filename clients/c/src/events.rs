//! Events as they happen.

use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use taskdiag::events::EventSource;
use taskdiag_core::setting;

use crate::error::{Code, Error, Result};
use crate::fork::{self, Asking};
use crate::query::Query;
use crate::table::Table;

/// The maximum number of events in a table.
const MAX_EVENTS: usize = 1 << 16;

/// A stream of events: `td_events`.
#[derive(Debug)]
pub struct Events {
    inner: Mutex<taskdiag::Events>,
    fd: RawFd,
    fields: Vec<u32>,
    process: u32,
}

impl Events {
    /// Opens an event stream.
    ///
    /// # Errors
    ///
    /// If no source, or not the requested one, can report events, and if the query is not about
    /// events.
    pub fn open(query: &Query, source: &str) -> Result<Events> {
        let options = query
            .of_events()?
            .source(setting::source(source, &EventSource::ALL, EventSource::name)?);
        let _asking = Asking::begin()?;
        let inner = taskdiag::Events::open(&options)?;
        Ok(Events {
            fd: inner.as_fd().as_raw_fd(),
            inner: Mutex::new(inner),
            fields: query.fields.clone(),
            process: std::process::id(),
        })
    }

    /// Puts waiting events into a table; without any, waits up to the timeout.
    ///
    /// # Errors
    ///
    /// Errors of the library, and [`Code::Forked`] in a child. The table may then have any rows.
    pub fn next(&self, timeout: Option<Duration>, table: &mut Table) -> Result<()> {
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
        // A thread that waits here holds nothing that a child of fork(2) needs.
        inner.wait(timeout, None)?;
        let _asking = Asking::begin()?;
        table.fill_with_events(&mut inner, MAX_EVENTS, &self.fields)
    }

    /// A descriptor that is readable while there are events.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Frees a stream, or leaks it where freeing is not possible.
    pub fn free(events: Box<Events>) {
        if fork::is_torn() {
            std::mem::forget(events);
        }
    }
}
