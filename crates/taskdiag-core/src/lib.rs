//! Internal to taskdiag, without any promise to other programs: use the crate `taskdiag`.
//!
//! The crate holds the parts that do no I/O: fields and values, records (the bytes that sources
//! write and snapshots keep), the filter, the planner that chooses the sources, and a parser for
//! each text file of the kernel.

pub mod absent;
pub mod budget;
pub mod cgroup;
pub mod column;
pub mod counters;
pub mod derived;
pub mod error;
pub mod escape;
pub mod event;
pub mod field;
pub mod filter;
pub mod forest;
pub mod identity;
pub mod kept;
pub mod mapping;
pub mod named_enum;
pub mod names;
pub mod open_file;
pub mod plan;
pub mod proc_values;
pub mod query;
pub mod record;
pub mod room;
#[cfg(feature = "serde")]
pub mod serialize;
pub mod set;
pub mod setting;
pub mod snapshot;
pub mod socket;
pub mod support;
pub mod text;
pub mod value;
