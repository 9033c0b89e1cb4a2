//! What the broker and its clients have in common: messages, the rule of who sees what, and how both wait for each other. It promises
//! nothing to anybody but the crates of taskdiag; docs/protocol.md is what clients can be written from.

pub mod access;
pub mod linger;
pub mod wire;
