//! The broker: what `taskdiagd` and its clients have in common. See `docs/protocol.md`.

pub mod access;
pub mod passes;
pub mod wire;

mod linger;

pub use linger::Linger;
