//! Why a task has no record, or one of its files no values.

use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind};
use taskdiag_core::snapshot::Snapshot;

use super::encode::NoRecord;

/// Why a task has no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    Gone,
    Denied,
    Malformed,
    /// It is not an intended task.
    Other,
    /// This process ran out of a resource.
    System(Errno),
}

impl From<NoRecord> for Lost {
    fn from(reason: NoRecord) -> Lost {
        match reason {
            NoRecord::Gone => Lost::Gone,
            NoRecord::Malformed => Lost::Malformed,
        }
    }
}

impl Lost {
    /// The same as a reason for missing values of the task.
    pub(super) fn as_absent(self) -> Absent {
        match self {
            Lost::Gone | Lost::Other => Absent::Gone,
            Lost::Denied => Absent::Denied,
            Lost::Malformed | Lost::System(_) => Absent::Unsupported,
        }
    }

    /// Counts one lost task among many. Fails if all others would be lost too.
    pub(super) fn count(self, snapshot: &mut Snapshot) -> Result<(), Lost> {
        match self {
            Lost::Gone => snapshot.counters.gone += 1,
            Lost::Denied => snapshot.counters.denied += 1,
            Lost::Malformed => snapshot.counters.malformed += 1,
            Lost::Other => {}
            Lost::System(_) => return Err(self),
        }
        Ok(())
    }

    /// The error if the query was about this task.
    pub(super) fn about(self, pid: u32) -> Error {
        match self {
            Lost::Gone | Lost::Other => Error::no_such_process(pid),
            Lost::Denied => Error::new(
                ErrorKind::Denied,
                format!("process {pid} is hidden from you (its procfs is mounted with hidepid)"),
            ),
            Lost::Malformed => Error::new(
                ErrorKind::Malformed,
                format!("a file of process {pid} in procfs is malformed"),
            ),
            Lost::System(errno) => Error::io(format!("can't read process {pid} in procfs"), errno),
        }
    }
}

/// The reason that an errno gives for missing values of a file. Fails if this process ran out of a
/// resource.
pub(super) fn reason(errno: Errno) -> Result<Absent, Lost> {
    match errno {
        Errno::NOENT | Errno::SRCH => Ok(Absent::Gone),
        Errno::ACCESS | Errno::PERM => Ok(Absent::Denied),
        Errno::NAMETOOLONG => Ok(Absent::Truncated),
        Errno::TIMEDOUT => Ok(Absent::NoAnswer),
        errno if is_exhausted(errno) => Err(Lost::System(errno)),
        _ => Ok(Absent::Unsupported),
    }
}

/// Whether an error means that this process ran out of a resource. Such an error says nothing about
/// the task.
pub(crate) fn is_exhausted(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}
