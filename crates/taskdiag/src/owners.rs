//! The descriptors of sockets.

use std::borrow::Cow;
use std::ops::Range;

use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::socket::Owner;

/// The descriptors at the other end of a pipe or a socket. `None` if there is no other end that
/// could have descriptors.
pub(crate) type FoundOwners<'a> = Known<Option<Cow<'a, [Owner]>>>;

/// These descriptors, as a borrowed list.
pub(crate) fn borrowed<'a>(found: &'a FoundOwners<'_>) -> Known<Option<&'a [Owner]>> {
    match found {
        Ok(owners) => Ok(owners.as_deref()),
        Err(reason) => Err(*reason),
    }
}

/// The descriptors of sockets that processes have, by inode number. One numbering covers all
/// sockets of the machine, in every namespace.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// Ascending, one for each of `owners`.
    inodes: Vec<u64>,
    owners: Vec<Owner>,
    /// Why the descriptors of some processes are missing.
    pub(crate) missing: Option<Absent>,
}

impl Owners {
    pub(crate) fn new(mut found: Vec<(u64, Owner)>, missing: Option<Absent>) -> Owners {
        // A thread's own table may have the same.
        let number = |(inode, owner): &(u64, Owner)| (*inode, owner.pid, owner.fd);
        found.sort_by_key(number);
        found.dedup_by_key(|found| number(found));
        let (inodes, owners) = found.into_iter().unzip();
        Owners {
            inodes,
            owners,
            missing,
        }
    }

    fn range(&self, inode: u64) -> Range<usize> {
        let start = self.inodes.partition_point(|&other| other < inode);
        let len = self.inodes[start..].iter().take_while(|&&other| other == inode).count();
        start..start + len
    }

    /// All known owners, each with the inode number of its socket.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Owner)> {
        self.inodes.iter().copied().zip(&self.owners)
    }

    /// The known owners of the socket with this inode number.
    pub(crate) fn known(&self, inode: u64) -> &[Owner] {
        &self.owners[self.range(inode)]
    }

    /// The owners of a socket; `None` if it has no inode number.
    pub(crate) fn of(&self, inode: Option<u64>) -> Known<Option<&[Owner]>> {
        let Some(inode) = inode else { return Ok(None) };
        match (self.known(inode), self.missing) {
            ([], Some(reason)) => Err(reason),
            (owners, _) => Ok(Some(owners)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all owners of a socket are found, in the order of their ids and each once, and that an owner
    /// that may be hidden is not reported as missing.
    #[test]
    fn owners_are_found_by_inode() {
        let owner = |pid, fd| Owner::new(pid, fd, Ok(b"x"));
        let found = vec![(9, owner(2, 5)), (4, owner(1, 4)), (9, owner(1, 3)), (9, owner(2, 5))];
        let owners = Owners::new(found.clone(), None);
        let of = |owners: &Owners, inode| owners.of(inode).map(|owners| owners.map(<[Owner]>::to_vec));
        assert_eq!(of(&owners, Some(9)), Ok(Some(vec![owner(1, 3), owner(2, 5)])));
        assert_eq!(of(&owners, Some(5)), Ok(Some(vec![])));
        assert_eq!(of(&owners, Some(10)), Ok(Some(vec![])));
        assert_eq!(of(&owners, None), Ok(None));
        let partial = Owners::new(found, Some(Absent::Denied));
        assert_eq!(of(&partial, Some(5)), Err(Absent::Denied));
        assert_eq!(of(&partial, Some(4)), Ok(Some(vec![owner(1, 4)])));
    }
}
