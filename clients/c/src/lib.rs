//! The C library of taskdiag. `include/taskdiag.h` says what its functions do.
//!
//! Every function is a thin one: it turns pointers into references, calls a module of this crate,
//! and turns what comes back into a code and a text. No panic leaves it.

mod api;
mod column;
mod error;
mod events;
mod field;
mod fields_gen;
mod fork;
mod handle;
mod query;
mod table;
