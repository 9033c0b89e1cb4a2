//! Reads the descriptors of files of some kinds that processes have.

use std::ops::ControlFlow;

use taskdiag_core::absent::Absent;
use taskdiag_core::error::Result;
use taskdiag_core::open_file::Access;
use taskdiag_core::set::Set;
use taskdiag_core::snapshot::{Snapshot, Task};
use taskdiag_core::socket::Owner;

use crate::files::{self, FileField, OpenFile, PathMatch};
use crate::Handle;

/// The descriptors of processes that could not be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unseen {
    /// Processes that hide their descriptors.
    pub(crate) denied: u64,
    /// Processes that no thread could read.
    pub(crate) no_thread: u64,
    pub(crate) malformed: u64,
    /// Why there may be more descriptors.
    pub(crate) missing: Option<Absent>,
}

/// Whether stat(2) reports a socket, but nothing can be sent or received through it: it was opened
/// with `O_PATH`. It may be the file that a UNIX socket is bound to, whose inode number belongs to
/// another file system. Or a thread reads a descriptor of its own process from procfs, and so has a
/// second one for a moment.
fn is_no_end(file: &OpenFile<'_>) -> bool {
    file.kind == Ok(files::Kind::Socket) && file.access() == Ok(Some(Access::Path))
}

/// Passes on the descriptors of files of these kinds that processes have, each with its inode
/// number, stat and flags. If `file_systems` is not empty, only files on these.
pub(crate) fn read(
    handle: &mut Handle,
    processes: &Snapshot,
    kinds: Set<files::Kind>,
    file_systems: Vec<PathMatch>,
    fields: Set<FileField>,
    mut pass_on: impl FnMut(&OpenFile<'_>, u64, Owner),
) -> Result<Unseen> {
    let request = files::Request {
        uses: files::Use::Fd.into(),
        kinds: Some(kinds),
        paths: file_systems,
        fields: FileField::Inode | FileField::OpenFlags | fields,
        ..files::Request::default()
    };
    let mut each = |task: &Task<'_>, file: &OpenFile<'_>| {
        match (task.pid(), file.fd, file.inode) {
            (Ok(pid), Some(fd), Ok(inode)) if !is_no_end(file) => {
                pass_on(file, inode, Owner::new(pid, fd, task.comm()))
            }
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let answer = handle.read_files(processes, &request, None, &mut each)?;
    let denied = answer.denied + answer.silent.len() as u64;
    Ok(Unseen {
        denied,
        no_thread: answer.no_thread,
        malformed: answer.malformed,
        missing: if answer.no_thread > 0 {
            Some(Absent::NoThread)
        } else {
            (denied > 0 || handle.hides_processes(answer.source)).then_some(Absent::Denied)
        },
    })
}
