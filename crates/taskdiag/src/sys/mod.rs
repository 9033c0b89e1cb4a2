//! Raw system calls: all of the unsafe code.

pub mod bpf;
pub mod pages;
