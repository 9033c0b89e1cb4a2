//! Task data by BPF iterators.

mod instruction;
pub mod load;
pub mod pass;
pub mod recipe;
pub mod relocate;
pub(crate) mod tracing;
pub mod vma;
pub mod vma_walk;
pub mod walk;
