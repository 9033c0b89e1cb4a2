//! System calls that no library has, and what is to be known of a kernel: the unsafe code of taskdiag is here. It promises nothing to
//! anybody but the crates of taskdiag.

pub mod bpf;
pub mod descriptors;
pub mod host;
pub mod isolated;
pub mod owner;
pub mod pagecache;
pub mod pages;
pub mod procmap;
pub mod ring;
pub mod signals;
