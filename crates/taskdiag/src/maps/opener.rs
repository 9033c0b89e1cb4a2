//! Opens the files of `/proc` about a process's memory: by their paths, or through the broker.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags, CWD};
use rustix::io::Errno;
use taskdiag_bpf::rights;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::Groups;
use taskdiag_core::snapshot::Snapshot;
use taskdiag_core::support::Verdict;
use taskdiag_protocol::wire::{show, Strategy};
use taskdiag_sys::host::is_initial_user_namespace;
use taskdiag_sys::owner::Owner;

use crate::mutex::lock;
use crate::source::broker::Broker as Connection;
use crate::source::procfs::{self, ask_threads, Proc};

/// A file about an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryFile {
    /// `/proc/PID/maps`.
    Maps,
    /// `/proc/PID/smaps`.
    Smaps,
}

/// How to open such files, and through which thread. All threads of a process share its memory, but
/// a thread that has ended has none.
#[derive(Clone, Debug)]
pub(super) enum Opener {
    /// By their paths in a procfs; through this thread, or the first one.
    Path(Proc, Option<u32>),
    /// By the broker, through the first thread.
    Broker(Broker),
    /// By the broker, through any thread that has memory.
    BrokerOfAny(Broker),
}

impl Opener {
    /// Whether the broker opens files.
    pub(super) fn is_broker(&self) -> bool {
        matches!(self, Opener::Broker(_) | Opener::BrokerOfAny(_))
    }

    /// Opens a file of a process; `None` if it has no memory.
    pub(super) fn open(&self, pid: u32, file: MemoryFile) -> Result<Option<OwnedFd>> {
        match self {
            Opener::Path(proc, thread) => open_path(proc, pid, *thread, file),
            Opener::Broker(broker) => broker.open_file(pid, Strategy::One, file),
            Opener::BrokerOfAny(broker) => broker.open_file(pid, Strategy::Thread, file),
        }
    }

    /// The maps file of another thread that has memory, and the way to open its files. `None` if there
    /// is no such thread.
    pub(super) fn live(&self, pid: u32) -> Result<Option<(Opener, OwnedFd)>> {
        let opened = |opener: Opener| match opener.open(pid, MemoryFile::Maps) {
            Ok(Some(file)) if has_memory(file.as_fd()) => Some(Ok((opener, file))),
            Err(error) if error.kind() == ErrorKind::Denied => Some(Err(error)),
            Ok(_) | Err(_) => None,
        };
        match self {
            Opener::Path(proc, _) => {
                let live = ask_threads(proc.open()?.as_fd(), pid, |tid| {
                    opened(Opener::Path(proc.clone(), Some(tid)))
                });
                live.unwrap_or_default().transpose()
            }
            Opener::Broker(broker) | Opener::BrokerOfAny(broker) => (0..ATTEMPTS)
                .find_map(|_| opened(Opener::BrokerOfAny(broker.clone())))
                .transpose(),
        }
    }
}

/// How often the broker is asked for a thread that has memory: it may end before its file is read.
const ATTEMPTS: u32 = 64;

/// Whether the address space of a maps file exists. If not, data read by process id may be of another
/// address space.
pub(super) fn has_memory(maps: BorrowedFd<'_>) -> bool {
    matches!(rustix::io::pread(maps, &mut [0][..], 0), Ok(1..))
}

fn open_path(proc: &Proc, pid: u32, thread: Option<u32>, file: MemoryFile) -> Result<Option<OwnedFd>> {
    let name = match file {
        MemoryFile::Maps => "maps",
        MemoryFile::Smaps => "smaps",
    };
    let path = proc.join(match thread {
        Some(tid) => format!("{pid}/task/{tid}/{name}"),
        None => format!("{pid}/{name}"),
    });
    match rustix::fs::openat(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::SRCH) => Ok(None),
        Err(Errno::NOENT) => Err(procfs::missing(proc, pid)),
        Err(Errno::ACCESS | Errno::PERM) => Err(Error::new(
            ErrorKind::Denied,
            format!("pid {pid}: you may not see its mappings ({})", who_may()),
        )),
        Err(errno) => Err(Error::io(path.display().to_string(), errno)),
    }
}

/// Who may see the mappings that this caller may not see.
fn who_may() -> &'static str {
    match rights::may_trace().verdict {
        _ if !is_initial_user_namespace() => "its user may, or who has CAP_SYS_PTRACE in its user namespace",
        Verdict::No => "its user may, or who has CAP_SYS_PTRACE: try sudo",
        _ => "the kernel keeps them from those with CAP_SYS_PTRACE too",
    }
}

/// A connection to the broker, `taskdiagd`, which opens the files of processes for callers that do
/// not see them in their own `/proc`. This needs the same right as opening them directly. Clones
/// share the connection.
#[derive(Clone, Debug)]
pub(crate) struct Broker {
    connection: Arc<Mutex<Connection>>,
    /// The process that connected.
    owner: Owner,
}

impl Broker {
    /// Connects to a socket.
    pub(crate) fn connect(path: &Path) -> Result<Broker> {
        Ok(Broker {
            connection: Arc::new(Mutex::new(Connection::open(path)?)),
            owner: Owner::this_process(),
        })
    }

    /// Whether this process connected. In a child of fork(2), the lock may be that of a thread that
    /// the child does not have.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner.is_this_process()
    }

    /// The processes that it shows, ascending.
    pub(super) fn processes(&self) -> Result<Vec<u32>> {
        let mut snapshot = Snapshot::default();
        self.with(|connection| connection.read(Strategy::All, 0, Groups::NONE, &mut snapshot))?;
        let mut pids: Vec<u32> = snapshot.tasks().map(|task| task.record().header().pid.get()).collect();
        pids.sort_unstable();
        Ok(pids)
    }

    fn open_file(&self, pid: u32, strategy: Strategy, file: MemoryFile) -> Result<Option<OwnedFd>> {
        let bit = match file {
            MemoryFile::Maps => show::MAPS,
            MemoryFile::Smaps => show::SMAPS,
        };
        self.with(|connection| connection.open_file(bit, strategy, pid))
    }

    fn with<T>(&self, ask: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let mut connection = lock(&self.connection);
        if !connection.is_ours() {
            *connection = connection.reopened()?;
        }
        ask(&mut connection)
    }
}
