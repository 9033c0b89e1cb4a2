//! Asks a Linux kernel about its processes, their memory and mappings, and the page cache: in
//! binary, and in one request.
//!
//! A [`Query`] says which tasks and which [`Field`]s. A [`Handle`] chooses the source that answers
//! it. A [`Snapshot`] is the answer.
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
//! # Queries
//!
//! A query can be about all processes or threads, about one process, its threads, its children, or
//! its descendants, or about listed processes. A [`Filter`] is an expression; only tasks for which
//! it is true are in the answer. The kernel leaves out most of the others:
//!
//! ```
//! use taskdiag::{Field, Filter, Handle, Query};
//!
//! let filter = Filter::parse("uid == 0 and not kernel_thread and comm ~ '^ssh'")?;
//! let query = Query::processes().fields(Field::Cmdline).filter(filter);
//! let snapshot = Handle::new().query(&query)?;
//! println!("{} processes, {} looked at", snapshot.len(), snapshot.counters().candidates);
//! # Ok::<(), taskdiag::Error>(())
//! ```
//!
//! Only the requested fields cost anything: a query for `pid` and `comm` does not make the kernel
//! add up memory. Keep the handle, which keeps what it has loaded. Pass an old snapshot to
//! [`Handle::query_into`], which reuses its memory.
//!
//! # Values
//!
//! A value equals the kernel's own, or it is absent for a reason: [`Absent`]. It is never 0 in
//! place of "not known". Sizes are in bytes and times in nanoseconds, and the names of fields say
//! so: `rss_bytes`, `start_ns`. [`Field::info`] has the unit, the place in `/proc`, and the first
//! kernel version of each field; `docs/fields.md` lists all fields. Names, paths and arguments are
//! bytes, not text, because processes choose them. `Display` of a [`Value`] escapes control
//! characters.
//!
//! # Sources
//!
//! | caller | source |
//! |---|---|
//! | root, or `CAP_BPF` and `CAP_PERFMON` | BPF programs (Linux 5.17), which this library loads; procfs answers what they can't |
//! | others, where `taskdiagd` runs | the broker, which shows what `/proc` mounted with `hidepid=2` would |
//! | others | procfs |
//!
//! All sources give the same values. [`Handle::explain`] says which source would answer a query,
//! [`Handle::support`] what this host has and what is missing, [`Snapshot::answers`] which source
//! answered. Loading BPF programs takes some ten milliseconds. A handle loads them once its queries
//! would have been faster with them, or at [`Handle::prepare`].
//!
//! # Time
//!
//! No process can hold up a query. Reader threads read the values that may wait for another
//! process's memory or locks; after [`Query::patience`] the query goes on without them. Such a
//! value is then [`Absent::NoAnswer`]; all other values are there.
//!
//! # Which process it is
//!
//! The kernel reuses process ids. [`Task::identity`] tells whether a task of one answer is the same
//! as a task of another answer.
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
//! # Errors
//!
//! [`Error`] is the only error type of this library. [`Error::kind`] is for programs, `{:#}` prints
//! the message and its causes for people, and [`source`](std::error::Error::source) returns the
//! error of the system call.
//!
//! # Threads and fork(2)
//!
//! Handles and snapshots are [`Send`]. Only one thread at a time can use a handle; several handles
//! do not disturb each other. In a child after fork(2), a handle starts afresh.
//!
//! # More
//!
//! - [`files`]: the open files of processes.
//! - [`sockets`]: the sockets of the machine, and the processes that have them open.
//! - [`maps`]: mappings of processes, and the file that an address belongs to.
//! - [`memory`]: the true cost of memory (PSS), and budgets for adding it up.
//! - [`pagecache`]: how much of files is in memory.
//! - [`events`]: processes as they start, execute programs, and end.
//! - [`pin`]: BPF programs that are loaded once for many processes.
//!
//! `examples/` has a ps, a top, and a program for most of these.
//!
//! # Cargo features
//!
//! - `bpf` (default): builds and links the BPF programs. This needs clang and libbpf's headers;
//!   without them, taskdiag is built without the programs. Without the feature or the programs,
//!   procfs and the broker answer, and [`Handle::prepare`] fails with
//!   [`Unsupported`](ErrorKind::Unsupported).
//! - `serde`: `Serialize` for tasks, values, absences, events, open files, sockets and mappings, in
//!   the shape of the command's JSON: a row is a map of its values; the reasons of missing values
//!   are under `absent`.

mod absences;
mod descriptors;
mod errands;
pub mod events;
pub mod files;
mod handle;
mod interrupt;
pub mod maps;
pub mod memory;
mod mutex;
mod names;
pub mod network {
    //! What goes to other machines and comes from them, by the other end. What each process moves is in
    //! [`Group::Net`](crate::Group::Net).
    pub use taskdiag_bpf::remotes::{Remote, RemoteParts, Remotes};
}
mod owners;
pub mod pagecache;
mod peers;
pub mod pin;
mod probe;
mod readers;
pub mod sockets;
mod source;

pub use taskdiag_core::absent::{Absent, Known};
pub use taskdiag_core::budget::Budget;
pub use taskdiag_core::counters::Undecided;
pub use taskdiag_core::error::{Error, ErrorKind, Result};
pub use taskdiag_core::field::{Field, Fields, Group, Info, Kind, Mask, UnknownField};
pub use taskdiag_core::filter::{Filter, ParseError};
pub use taskdiag_core::identity::Identity;
pub use taskdiag_core::query::Query;
#[doc(hidden)]
pub use taskdiag_core::query::Scope;
pub use taskdiag_core::set::{Member, Set};
pub use taskdiag_core::snapshot::{Counters, Snapshot, SourceId, Task, Tasks};
pub use taskdiag_core::support::{Fact, Support, Verdict};
pub use taskdiag_core::value::{Arguments, ArgumentsIter, CpuSet, CpuSetIter, Ids, IdsIter, Limits, LimitsIter, Value};

pub use events::{Event, EventField, EventKind, Events};
#[doc(hidden)]
pub use handle::{answer_past, Past};
pub use handle::{Explanation, Handle};
#[doc(hidden)]
pub use interrupt::{interruptible, is_interrupted};
pub use source::procfs::Proc;

/// Types that can move to other threads, and types that several threads can use at once.
const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_sync<T: Sync>() {}
    is_send::<Handle>();
    is_send::<Events>();
    is_send::<Snapshot>();
    is_sync::<Snapshot>();
    is_send::<Task<'_>>();
    is_sync::<Task<'_>>();
    is_send::<Query>();
    is_sync::<Query>();
    is_send::<Error>();
    is_sync::<Error>();
    is_send::<Support>();
    is_sync::<Support>();
    is_send::<memory::Progress>();
    is_sync::<memory::Progress>();
    is_send::<maps::Maps>();
    is_send::<maps::Normalizer>();
    is_send::<maps::Mappings>();
    is_sync::<maps::Mappings>();
    is_send::<files::OpenFile<'_>>();
    is_sync::<files::OpenFile<'_>>();
    is_send::<files::Request>();
    is_sync::<files::Request>();
    is_send::<sockets::Socket<'_>>();
    is_sync::<sockets::Socket<'_>>();
    is_send::<sockets::Request>();
    is_sync::<sockets::Request>();
    is_send::<pagecache::Walk>();
    is_sync::<pagecache::Walk>();
    is_send::<pagecache::Seen>();
    is_send::<pagecache::Finder>();
};
