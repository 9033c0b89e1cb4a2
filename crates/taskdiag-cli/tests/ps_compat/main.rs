//! `taskdiag ps` beside Debian's ps.
//!
//! Compared are processes that these tests started and that rest (the zoo), and others that cannot
//! change: init, this test, kernel threads that live as long as the host. ps runs before and after
//! ours, as the time since a start moves: what we show is what ps showed before or after, and a
//! number that moves lies between the two. What differs always is in docs/ps.md.

mod beside;
#[path = "../common/mod.rs"]
mod common;
mod formats;
mod selection;
mod specifiers;
mod usage;
