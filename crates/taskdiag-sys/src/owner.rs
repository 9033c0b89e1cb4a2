//! Who may use what a process made: after fork(2) the child has a copy of it.

use rustix::process::Pid;

/// The process that made something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(Pid);

impl Owner {
    /// The calling process.
    pub fn this_process() -> Owner {
        Owner(rustix::process::getpid())
    }

    /// Whether it is the calling process, and not its parent.
    pub fn is_this_process(self) -> bool {
        self == Owner::this_process()
    }
}
