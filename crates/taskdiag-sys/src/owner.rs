//! Which process may use an object. A child of fork(2) has a copy of everything.

use rustix::process::Pid;

/// The process that created an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(Pid);

impl Owner {
    /// The calling process.
    pub fn this_process() -> Owner {
        Owner(rustix::process::getpid())
    }

    /// Whether the calling process is the owner rather than a child of it.
    pub fn is_this_process(self) -> bool {
        self == Owner::this_process()
    }
}
