//! Ask a Linux kernel about its processes, in binary and in one request.

pub mod absent;
pub mod broker;
pub mod btf;
pub mod error;
pub mod events;
pub mod field;
pub mod filter;
pub mod handle;
pub mod maps;
pub mod memory;
pub mod pagecache;
pub mod pin;
pub mod plan;
pub mod proc_values;
pub mod query;
pub mod record;
pub mod snapshot;
pub mod source;
pub mod support;
pub mod sys;
pub mod value;

pub use absent::Absent;
pub use error::{Error, ErrorKind, Result};
pub use events::{Event, EventField, EventKind, Events};
pub use field::{Field, Fields, Group, Kind};
pub use filter::Filter;
pub use handle::Handle;
pub use memory::Budget;
pub use query::{Query, Scope};
pub use snapshot::{Snapshot, SourceId, Task};
pub use support::{Fact, Support, Verdict};
pub use value::Value;
