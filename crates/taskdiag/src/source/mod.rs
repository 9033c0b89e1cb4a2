//! Sources of task data.

pub(crate) mod broker;
pub(crate) mod connector;
pub(crate) mod procfs;
