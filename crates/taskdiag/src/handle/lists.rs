//! The lists of open files and of sockets, each with the other ends.

use std::ops::ControlFlow;

use taskdiag_core::error::{ErrorKind, Result};
#[cfg(doc)]
use taskdiag_core::field::Field;
use taskdiag_core::mapping::Device;
use taskdiag_core::set::Set;
use taskdiag_core::snapshot::{Snapshot, Task};

use super::Handle;
use crate::files::{self, FileField};
use crate::peers::Peers;
use crate::sockets::{self, Listing, SocketField};

impl Handle {
    /// Passes each file that the processes of a snapshot use to `each`, which ends the pass with
    /// [`ControlFlow::Break`]. Mapped files come first, of many processes at a time. Then the files of
    /// each process come together, in the order of the snapshot: working directory, root directory,
    /// program, descriptors by number. What threads have for themselves
    /// ([`OpenFile::tid`](files::OpenFile::tid)) follows later.
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
        if !request.may_have_sockets() {
            return self.read_files(processes, request, other_ends, &mut each);
        }
        let mut request = request.clone();
        let lists = self.find_bound_sockets(&mut request);
        let mut answer = self.read_files(processes, &request, other_ends, &mut each)?;
        match lists {
            Ok(lists) => {
                answer.namespaces_denied = lists.namespaces_denied;
                answer.namespaces_no_thread = lists.no_thread;
                answer.namespaces_unread = lists.failed + lists.silent + lists.unsupported.len() as u64;
            }
            Err(error) if error.kind() == ErrorKind::NoThread => answer.namespaces_no_thread = 1,
            Err(_) => answer.namespaces_unread = 1,
        }
        Ok(answer)
    }

    /// Finds the UNIX sockets that are bound to files of the request's paths. They keep the file
    /// system busy.
    fn find_bound_sockets(&mut self, request: &mut files::Request) -> Result<sockets::Answer> {
        let lists = sockets::Request {
            kinds: sockets::Kind::Unix.into(),
            fields: Set::NONE,
            ..sockets::Request::default()
        };
        let device = Device::from_raw(sockets::sockets_device()?);
        Listing::begin(self, &Snapshot::default(), &lists)?.pass_on(self, None, &mut |socket| {
            let is_about = request.is_about_socket(socket);
            if let Some(inode) = socket.inode.filter(|_| is_about != Ok(false)) {
                request.sockets.insert((device, inode), is_about);
            }
            ControlFlow::Continue(())
        })
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
            let known = listing.owners.as_ref().map(|owners| (processes, owners));
            Some(Peers::for_sockets(
                self,
                known,
                request.own_namespace,
                listing.sought.clone(),
            )?)
        } else {
            None
        };
        let other_ends = peers.as_ref().map(|peers| peers as &dyn sockets::OtherEnds);
        listing.pass_on(self, other_ends, &mut each)
    }
}
