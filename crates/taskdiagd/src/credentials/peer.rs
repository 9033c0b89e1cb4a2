//! The process at the other end of a connection.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::process::{pidfd_open, Pid, PidfdFlags};

use super::SecurityModules;
use crate::sys;

/// The process that connected.
#[derive(Debug)]
pub struct Peer {
    /// Its pid, in this process's pid namespace.
    pub pid: u32,
    /// Its effective user id when it connected.
    pub uid: u32,
    /// Its effective group id when it connected.
    pub gid: u32,
    pidfd: OwnedFd,
    /// Whether a security module confined it when it connected, or may have.
    pub is_confined: bool,
}

impl Peer {
    /// Asks the kernel who connected.
    pub fn of(socket: BorrowedFd<'_>, modules: &SecurityModules) -> Result<Peer, Errno> {
        let credentials = sys::peer_credentials(socket)?;
        // A process of a pid namespace above or beside this one has no pid here.
        let pid = Pid::from_raw(credentials.pid).ok_or(Errno::PERM)?;
        let pidfd = match sys::peer_pidfd(socket) {
            Ok(pidfd) => pidfd,
            // Before Linux 6.5. The pid may belong to another process by now, but each request
            // carries the pid of its sender: as long as the process of this pidfd lives, it is the
            // sender.
            Err(Errno::NOPROTOOPT) => pidfd_open(pid, PidfdFlags::empty())?,
            Err(errno) => return Err(errno),
        };
        Ok(Peer {
            pid: credentials.pid as u32,
            uid: credentials.uid,
            gid: credentials.gid,
            pidfd,
            is_confined: modules.may_confine(socket),
        })
    }

    /// Whether the process has not ended.
    pub fn is_alive(&self) -> bool {
        sys::poll_now(self.pidfd.as_fd(), PollFlags::IN).is_ok_and(|events| events.is_empty())
    }
}
