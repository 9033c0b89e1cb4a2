//! Internal to taskdiag, without any promise to other programs: write clients from
//! `docs/protocol.md`.
//!
//! The crate holds what the broker and its clients share: the messages, the rule of who may see
//! which task, and how each waits for the other.

pub mod access;
pub mod busy_poll;
pub mod wire;
