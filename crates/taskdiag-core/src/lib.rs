//! Internal to taskdiag, and promises nothing to other programs: use the crate `taskdiag`.
//!
//! This is the part that does no I/O: fields and values, records (the bytes that sources write and
//! snapshots keep), the filter, the planner that chooses the sources, and one parser for each text
//! file of the kernel.

pub mod absent;
pub mod budget;
pub mod cgroup;
pub mod counters;
pub mod derived;
pub mod error;
pub mod event;
pub mod field;
pub mod filter;
pub mod forest;
pub mod identity;
pub mod kept;
pub mod mapping;
pub mod names;
pub mod open_file;
pub mod plan;
pub mod proc_values;
pub mod query;
pub mod record;
#[cfg(feature = "serde")]
pub mod serialize;
pub mod set;
pub mod snapshot;
pub mod socket;
pub mod support;
pub mod text;
pub mod value;
