//! Internal to taskdiag, and promises nothing to other programs: use the crate `taskdiag`.
//!
//! These are taskdiag's BPF programs, and the code that builds, loads, runs and pins them.
//!
//! | module | what it does |
//! |---|---|
//! | [`recipe`] | the compiled programs, as the build leaves them |
//! | [`btf`] | reads the kernel's type information |
//! | `relocate`, `load` | adapt a recipe to the kernel, and load it |
//! | [`pass`], [`walk`], [`reader`] | passes over tasks |
//! | [`vma`], [`vma_walk`] | passes over memory mappings |
//! | [`files`] | passes over open files |
//! | [`tracing`] | events of tracepoints |
//! | [`pin`] | pins a program for other processes |
//! | [`rights`] | whether this thread may load programs |

pub mod btf;
pub mod files;
mod instruction;
mod iterator;
mod load;
pub mod pass;
pub mod pin;
pub mod reader;
pub mod recipe;
mod records;
mod relocate;
pub mod rights;
pub mod tracing;
pub mod vma;
pub mod vma_walk;
pub mod walk;
