//! The interior of taskdiag that does no I/O. It promises nothing to anybody but the crates of taskdiag: use the crate `taskdiag`.
//!
//! Fields and values, records (the bytes that sources make and snapshots keep), the filter, the planner that decides who answers,
//! and the parsers of the kernel's texts, one for each file.

pub mod absent;
pub mod budget;
pub mod error;
pub mod event;
pub mod field;
pub mod filter;
pub mod identity;
pub mod kept;
pub mod mapping;
pub mod plan;
pub mod proc_values;
pub mod query;
pub mod record;
pub mod snapshot;
pub mod support;
pub mod text;
pub mod value;
