//! Internal to taskdiag, without any promise to other programs: use the crate `taskdiag`.
//!
//! These are taskdiag's BPF programs, and the code that builds, loads, runs and pins them.
//!
//! | module | what it does |
//! |---|---|
//! | [`recipe`] | the compiled programs, as the build leaves them |
//! | [`btf`] | reads the kernel's type information |
//! | `relocate`, `load` | adapt a recipe to the kernel, and load it |
//! | [`pass`], [`walk`] | passes over tasks |
//! | [`reader`] | the memory in which a program finds its settings: `struct td_reader` |
//! | `iterator` | opens and reads the kernel's iterators |
//! | [`vma`], [`vma_walk`] | passes over memory mappings |
//! | [`files`] | passes over open files |
//! | `named_records` | decodes records of mappings and open files; those of tasks: `taskdiag-core` |
//! | [`network`], [`remotes`] | count what processes send and receive, and by the other end |
//! | [`tracing`] | events of tracepoints |
//! | [`pin`] | pins a program for other processes |
//! | [`rights`] | whether this thread may load programs |

pub mod btf;
pub mod files;
mod instruction;
mod iterator;
mod load;
mod named_records;
pub mod network;
pub mod pass;
pub mod pin;
pub mod reader;
pub mod recipe;
mod relocate;
pub mod remotes;
pub mod rights;
pub mod tracing;
pub mod vma;
pub mod vma_walk;
pub mod walk;
