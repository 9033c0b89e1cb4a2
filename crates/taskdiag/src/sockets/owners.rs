//! Who has a descriptor of a socket.

use std::ops::{ControlFlow, Range};

use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::error::Result;
use taskdiag_core::open_file::Access;
use taskdiag_core::set::Set;
use taskdiag_core::snapshot::Snapshot;
use taskdiag_core::socket::Owner;

use crate::files::{self, FileField, OpenFile, PathMatch};
use crate::Handle;

/// The descriptors of sockets that processes have, to be found by inode number: there is one
/// numbering for all sockets of the machine, whatever namespace they are in.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// Ascending, one for each of `owners`.
    inodes: Vec<u64>,
    owners: Vec<Owner>,
    /// The descriptors of some processes may not be seen.
    pub(crate) is_partial: bool,
}

/// What was not seen of the descriptors of processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unseen {
    /// How many processes do not show their descriptors.
    pub(crate) denied: u64,
    pub(crate) malformed: u64,
    /// There may be more descriptors.
    pub(crate) is_partial: bool,
}

/// Whether stat(2) says that a file is a socket, but nothing can be sent or received through it: it was
/// opened with `O_PATH`. It may be the file that a UNIX socket is bound to, whose inode number is one of
/// another file system. Or a thread asks procfs about a descriptor of its own process, and so has a
/// second one for a moment.
fn is_no_end(file: &OpenFile<'_>) -> bool {
    file.kind == Ok(files::Kind::Socket) && file.access() == Ok(Some(Access::Path))
}

/// Passes on the descriptors that processes have of files of these kinds, each with its inode
/// number, stat and flags. If `file_systems` has some, only of files on these.
pub(crate) fn read_descriptors(
    handle: &mut Handle,
    processes: &Snapshot,
    kinds: Set<files::Kind>,
    file_systems: Vec<PathMatch>,
    fields: Set<FileField>,
    mut each: impl FnMut(&OpenFile<'_>, u64, Owner),
) -> Result<Unseen> {
    let mut request = files::Request::default();
    request.filter.uses = files::Use::Fd.into();
    request.filter.kinds = Some(kinds);
    request.filter.paths = file_systems;
    request.fields = FileField::Inode | FileField::OpenFlags | fields;
    let answer = handle.files(processes, &request, |task, file| {
        match (task.pid(), file.fd, file.inode) {
            (Ok(pid), Some(fd), Ok(inode)) if !is_no_end(file) => each(file, inode, Owner::new(pid, fd, task.comm())),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    let denied = answer.denied + answer.silent.len() as u64;
    Ok(Unseen {
        denied,
        malformed: answer.malformed,
        is_partial: denied > 0 || handle.hides_processes(answer.source),
    })
}

impl Owners {
    pub(crate) fn new(mut found: Vec<(u64, Owner)>, is_partial: bool) -> Owners {
        // Those of one process stay in the order of its descriptors.
        found.sort_by_key(|(inode, owner)| (*inode, owner.pid));
        let (inodes, owners) = found.into_iter().unzip();
        Owners {
            inodes,
            owners,
            is_partial,
        }
    }

    fn range(&self, inode: u64) -> Range<usize> {
        let start = self.inodes.partition_point(|&other| other < inode);
        let len = self.inodes[start..].iter().take_while(|&&other| other == inode).count();
        start..start + len
    }

    /// All that were found, each with the inode number of its socket.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Owner)> {
        self.inodes.iter().copied().zip(&self.owners)
    }

    /// The owners that were found of the socket with this inode number.
    pub(crate) fn known(&self, inode: u64) -> &[Owner] {
        &self.owners[self.range(inode)]
    }

    /// The owners of a socket; `None` if it has no inode number.
    pub(super) fn of(&self, inode: Option<u64>) -> Known<Option<&[Owner]>> {
        let Some(inode) = inode else { return Ok(None) };
        match self.known(inode) {
            [] if self.is_partial => Err(Absent::Denied),
            owners => Ok(Some(owners)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all owners of a socket are found, in the order of their numbers, and that one who
    /// may be hidden is not denied to exist.
    #[test]
    fn owners_are_found_by_inode() {
        let owner = |pid, fd| Owner::new(pid, fd, Ok(b"x"));
        let found = vec![(9, owner(2, 5)), (4, owner(1, 4)), (9, owner(1, 3))];
        let owners = Owners::new(found.clone(), false);
        let of = |owners: &Owners, inode| owners.of(inode).map(|owners| owners.map(<[Owner]>::to_vec));
        assert_eq!(of(&owners, Some(9)), Ok(Some(vec![owner(1, 3), owner(2, 5)])));
        assert_eq!(of(&owners, Some(5)), Ok(Some(vec![])));
        assert_eq!(of(&owners, Some(10)), Ok(Some(vec![])));
        assert_eq!(of(&owners, None), Ok(None));
        let partial = Owners::new(found, true);
        assert_eq!(of(&partial, Some(5)), Err(Absent::Denied));
        assert_eq!(of(&partial, Some(4)), Ok(Some(vec![owner(1, 4)])));
    }
}
