//! Internal to taskdiag, and promises nothing to other programs: write clients from
//! `docs/protocol.md`.
//!
//! This is what the broker and its clients share: the messages, the rule of who may see which task,
//! and how both wait for each other.

pub mod access;
pub mod linger;
pub mod wire;
