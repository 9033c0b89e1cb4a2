//! Why a task has no record, or one of its files no values.

use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind};
use taskdiag_core::snapshot::Snapshot;

use super::encode::NoRecord;

/// Why a task has no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskFailure {
    Gone,
    Denied,
    Malformed,
    /// It is not an intended task.
    Other,
    /// This process ran out of a resource.
    System(Errno),
}

impl From<NoRecord> for TaskFailure {
    fn from(reason: NoRecord) -> TaskFailure {
        match reason {
            NoRecord::Gone => TaskFailure::Gone,
            NoRecord::Malformed => TaskFailure::Malformed,
        }
    }
}

impl TaskFailure {
    /// The same as a reason for missing values of the task.
    pub(super) fn as_absent(self) -> Absent {
        match self {
            TaskFailure::Gone | TaskFailure::Other => Absent::Gone,
            TaskFailure::Denied => Absent::Denied,
            TaskFailure::Malformed | TaskFailure::System(_) => Absent::Unsupported,
        }
    }

    /// Counts one lost task among many. Fails if all others would be lost too.
    pub(super) fn count(self, snapshot: &mut Snapshot) -> Result<(), TaskFailure> {
        match self {
            TaskFailure::Gone => snapshot.counters.gone += 1,
            TaskFailure::Denied => snapshot.counters.denied += 1,
            TaskFailure::Malformed => snapshot.counters.malformed += 1,
            TaskFailure::Other => {}
            TaskFailure::System(_) => return Err(self),
        }
        Ok(())
    }

    /// The error if the query was about this task.
    pub(super) fn about(self, pid: u32) -> Error {
        match self {
            TaskFailure::Gone | TaskFailure::Other => Error::no_such_process(pid),
            TaskFailure::Denied => Error::new(
                ErrorKind::Denied,
                format!("process {pid} is hidden from you (its procfs is mounted with hidepid)"),
            ),
            TaskFailure::Malformed => Error::new(
                ErrorKind::Malformed,
                format!("a file of process {pid} in procfs is malformed"),
            ),
            TaskFailure::System(errno) => Error::io(format!("can't read process {pid} in procfs"), errno),
        }
    }
}

/// The reason that an errno gives for missing values of a file. Fails if this process ran out of a
/// resource.
pub(super) fn reason(errno: Errno) -> Result<Absent, TaskFailure> {
    match errno {
        Errno::NOENT | Errno::SRCH => Ok(Absent::Gone),
        Errno::ACCESS | Errno::PERM => Ok(Absent::Denied),
        Errno::NAMETOOLONG => Ok(Absent::Truncated),
        Errno::TIMEDOUT => Ok(Absent::NoAnswer),
        errno if is_exhausted(errno) => Err(TaskFailure::System(errno)),
        _ => Ok(Absent::Unsupported),
    }
}

/// Whether an error means that this process ran out of a resource. Such an error says nothing about
/// the task.
pub(crate) fn is_exhausted(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}
