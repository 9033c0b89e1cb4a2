//! taskdiag's BPF programs, and what builds, loads, asks and pins them. It promises nothing to anybody but the crates of taskdiag.

pub mod btf;
mod instruction;
pub mod load;
pub mod pass;
pub mod pin;
pub mod recipe;
pub mod relocate;
pub mod rights;
pub mod tracing;
pub mod vma;
pub mod vma_walk;
pub mod walk;
