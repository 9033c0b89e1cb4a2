//! The C library of taskdiag. `include/taskdiag.h` documents its functions.
//!
//! Every function is thin: it converts pointers to references, calls a module of this crate, and
//! converts the result to a code and a text. No panic leaves it.

mod api;
mod error;
mod events;
mod field;
mod fields_gen;
mod fork;
mod handle;
mod query;
mod row;
mod table;
