//! The lists of open files and of sockets, each with the other ends.

use std::ops::ControlFlow;

#[cfg(doc)]
use taskdiag_core::error::ErrorKind;
use taskdiag_core::error::Result;
#[cfg(doc)]
use taskdiag_core::field::Field;
use taskdiag_core::snapshot::{Snapshot, Task};

use super::Handle;
use crate::files::{self, FileField};
use crate::peers::Peers;
use crate::sockets::{self, Listing, SocketField};

impl Handle {
    /// Passes each file that the processes of a snapshot use to `each`, which ends the pass with
    /// [`ControlFlow::Break`]. The files of one process come together, in the order of the
    /// snapshot: mapped files, working directory, root directory, program, descriptors by number.
    /// `each` also gets the process, with the fields that its query asked for.
    ///
    /// The memory that this takes does not depend on the number of files.
    ///
    /// # Errors
    ///
    /// - [`InvalidInput`](ErrorKind::InvalidInput) if the query for the processes did not ask for
    ///   [`Field::StartNs`], which distinguishes processes with the same id.
    /// - [`Denied`](ErrorKind::Denied) or [`Unsupported`](ErrorKind::Unsupported) if the source of
    ///   [`with_source`](Handle::with_source) can't answer. Older brokers can't.
    /// - [`Unsupported`](ErrorKind::Unsupported) or [`System`](ErrorKind::System) if `/proc` is not
    ///   mounted: BPF and the broker leave to it what they can't answer exactly.
    ///
    /// A process that has ended or that the caller may not see is no error: the
    /// [`Answer`](files::Answer) counts it.
    pub fn files(
        &mut self,
        processes: &Snapshot,
        request: &files::Request,
        mut each: impl FnMut(&Task<'_>, &files::OpenFile<'_>) -> ControlFlow<()>,
    ) -> Result<files::Answer> {
        let peers = if request.fields.contains(FileField::Peers) {
            Some(Peers::for_files(self, processes)?)
        } else {
            None
        };
        let other_ends = peers.as_ref().map(|peers| peers as &dyn files::OtherEnds);
        self.read_files(processes, request, other_ends, &mut each)
    }

    /// Passes each socket of the machine to `each`, which ends the pass with
    /// [`ControlFlow::Break`]. The sockets of one network namespace come together, the caller's own
    /// namespace first. Owners are found only among `processes`.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the request asks for owners and the query for
    /// the processes did not ask for [`Field::StartNs`]; [`Unsupported`](ErrorKind::Unsupported) if
    /// the source of [`with_source`](Handle::with_source) can't read descriptors; otherwise as for
    /// [`files`](Handle::files).
    ///
    /// A namespace that the caller may not enter, or a list that the kernel does not have, is no
    /// error: the [`Answer`](sockets::Answer) counts it.
    pub fn sockets(
        &mut self,
        processes: &Snapshot,
        request: &sockets::Request,
        mut each: impl FnMut(&sockets::Socket<'_>) -> ControlFlow<()>,
    ) -> Result<sockets::Answer> {
        let listing = Listing::begin(self, processes, request)?;
        let peers = if request.fields.contains(SocketField::Peers) {
            let known = listing.owners().map(|owners| (processes, owners));
            Some(Peers::for_sockets(
                self,
                known,
                request.own_namespace,
                listing.sought(),
            )?)
        } else {
            None
        };
        let other_ends = peers.as_ref().map(|peers| peers as &dyn sockets::OtherEnds);
        listing.pass_on(self, other_ends, &mut each)
    }
}
