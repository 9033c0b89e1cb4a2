//! Ask a Linux kernel about its processes, in binary and in one request.
//!
//! ```
//! use std::collections::HashSet;
//! use taskdiag::{Field, Handle, Identity, Query};
//!
//! let snapshot = Handle::new().query(&Query::processes().fields(Field::Comm | Field::StartNs))?;
//! for task in snapshot.tasks() {
//!     // An absent value says why.
//!     println!("{} {:?}", task.pid()?, task.comm());
//! }
//! // Numbers come back; who is who is told by these.
//! let seen: HashSet<Identity> = snapshot.tasks().map(|task| Identity::of(task.record().header())).collect();
//! assert_eq!(seen.len(), snapshot.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
pub use taskdiag_core::snapshot::{Snapshot, SourceId, Task};
pub use taskdiag_core::support::{Fact, Support, Verdict};
pub use taskdiag_core::value::{Arguments, CpuSet, Ids, Limits, Value};

pub use events::{Event, EventField, EventKind, Events};
pub use handle::Handle;
