//! Asks a Linux kernel about its processes, their memory and mappings, and the page cache: in binary, and in one request.
//!
//! A [`Query`] says which tasks and which [`Field`]s; a [`Handle`] chooses who answers it; a [`Snapshot`] is the answer.
//!
//! ```
//! use taskdiag::{Absent, Field, Handle, Query};
//!
//! let mut handle = Handle::new();
//! let query = Query::processes().fields(Field::Comm | Field::RssBytes);
//! for task in &handle.query(&query)? {
//!     match task.rss_bytes() {
//!         Ok(bytes) => println!("{} uses {bytes} bytes", task.pid()?),
//!         Err(Absent::NoMemory) => println!("{} is a kernel thread, or a zombie", task.pid()?),
//!         Err(reason) => println!("{}: {reason}", task.pid()?),
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Values
//!
//! A value is equal to the kernel's own, or it is absent for a reason: [`Absent`]. It is never 0 instead of "not known". Bytes are
//! bytes, times are nanoseconds, and both say so in the name of the field: `docs/fields.md` lists all fields with units, sources and kernel
//! versions. Names, paths and arguments are bytes, not text: processes choose them.
//!
//! Only what is asked for costs anything: a query for `pid` and `comm` does not make the kernel add up memory.
//!
//! # Sources
//!
//! | who asks | who answers |
//! |---|---|
//! | root, or `CAP_BPF` and `CAP_PERFMON` | BPF programs, which this library loads; procfs what they can't |
//! | others, where `taskdiagd` runs | the broker, which shows what `/proc` mounted with `hidepid=2` would |
//! | others | procfs |
//!
//! The values are the same. [`Handle::explain`] says who would answer a query, [`Handle::support`] what this host offers and what is
//! missing. Loading takes some ten milliseconds; a handle loads when its queries so far would have been faster with it, or at
//! [`Handle::prepare`].
//!
//! # Time
//!
//! Nothing that a process does can hold a query. What waits for another process's memory or locks is read by threads that are given
//! up after [`Query::patience`]; the value is then [`Absent::NoAnswer`], and all others are there.
//!
//! # Which process it is
//!
//! Numbers come back. [`Task::identity`] compares a task of one answer with one of another.
//!
//! ```
//! use std::collections::HashSet;
//! use taskdiag::{Absent, Field, Handle, Identity, Query};
//!
//! let snapshot = Handle::new().query(&Query::processes().fields(Field::StartNs))?;
//! let seen: Result<HashSet<Identity>, Absent> = snapshot.tasks().map(|task| task.identity()).collect();
//! assert_eq!(seen?.len(), snapshot.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads and fork(2)
//!
//! A handle is [`Send`], and belongs to one thread at a time; several do not disturb each other. In a child after fork(2) a handle
//! begins afresh.
//!
//! # More
//!
//! - [`maps`]: mappings of processes, and in which file an address lies.
//! - [`memory`]: budgets for what is slow to add up (PSS), and where the machine's memory went.
//! - [`pagecache`]: what of files is in memory.
//! - [`events`]: processes as they begin, execute and end.
//!
//! `examples/` has a ps, a top, and one program for each of these.

mod errands;
pub mod events;
mod handle;
pub mod maps;
pub mod memory;
pub mod pagecache;
mod probe;
mod readers;
mod source;

pub use taskdiag_bpf::pin;
pub use taskdiag_core::absent::Absent;
pub use taskdiag_core::budget::Budget;
pub use taskdiag_core::error::{Error, ErrorKind, Result};
pub use taskdiag_core::field::{Field, Fields, Group, Kind, UnknownField};
pub use taskdiag_core::filter::{Filter, ParseError};
pub use taskdiag_core::identity::Identity;
pub use taskdiag_core::query::{Query, Scope};
pub use taskdiag_core::snapshot::{Snapshot, SourceId, Task, Tasks};
pub use taskdiag_core::support::{Fact, Support, Verdict};
pub use taskdiag_core::value::{Arguments, CpuSet, Ids, Limits, Value};

pub use events::{Event, EventField, EventKind, Events};
pub use handle::Handle;

/// Handles and answers can go to other threads.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Handle>();
    is_send::<Snapshot>();
    is_send::<Events>();
    is_send::<maps::Maps>();
    is_send::<maps::Normalizer>();
};
