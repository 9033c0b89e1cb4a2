//! Raw system calls: all of the unsafe code.

pub mod bpf;
pub mod descriptors;
pub mod isolated;
pub mod pagecache;
pub mod pages;
pub mod procmap;
pub mod ring;
pub mod signals;
