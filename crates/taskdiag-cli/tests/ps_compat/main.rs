//! `taskdiag ps` compared with Debian's ps.
//!
//! The compared processes are those that the tests started and that are idle (the zoo), and others
//! that do not change: init, this test, and kernel threads that live as long as the host. ps runs
//! before and after taskdiag, because times since a start move: each value must equal what ps
//! showed before or after, and a moving number must lie between the two. Permanent differences are
//! in docs/ps.md.

mod beside;
#[path = "../common/mod.rs"]
mod common;
mod formats;
mod selection;
mod specifiers;
mod usage;
