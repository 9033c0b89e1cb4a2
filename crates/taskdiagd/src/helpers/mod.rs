//! The processes beside the loop. They do everything that may have to wait.
//!
//! The loop asks the *keeper* to start helpers and to kill those that do not come back. *Readers*
//! read and open files of `/proc`. *Closers* close connections that may hold descriptors. The loop
//! waits for none of them.

mod closer;
mod keeper;
pub mod messages;
pub mod pool;
pub mod reader;
mod vma;

pub use keeper::Keeper;
pub use pool::Pool;
pub use vma::VmaEncoder;
