//! Internal to taskdiag, without any promise to other programs: use the crate `taskdiag`.
//!
//! The crate holds the unsafe code of taskdiag: system calls that rustix does not have, shared
//! memory, and work in other processes. It also reads a few facts about the host.

pub mod bpf;
pub mod descriptors;
pub mod host;
pub mod isolated;
pub mod lock;
pub mod lookup;
mod mapping;
pub mod owner;
pub mod pagecache;
pub mod pages;
pub mod procmap;
pub mod ring;
pub mod signals;
