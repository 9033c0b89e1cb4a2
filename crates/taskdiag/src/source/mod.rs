//! Sources of task data.

pub mod bpf;
pub(crate) mod broker;
pub(crate) mod connector;
pub(crate) mod host;
pub(crate) mod procfs;
