//! The closer: a process without any rights that closes connections for the loop.
//!
//! Before Linux 6.16 nobody can refuse descriptors that a client sends along. The last one who closes a socket waits for it, if whoever
//! made it said so. So the loop hands connections in which such may lie over, and a closer that does not come back is killed: a process
//! that ends waits for no socket.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::sys;

/// Closes what it gets until the loop has gone, and says so each time.
pub fn serve(channel: &OwnedFd) {
    loop {
        let mut nothing = [0; 8];
        match sys::receive_with_file(channel, &mut nothing) {
            Ok((0, _)) => return,
            Ok((_, connection)) => drop(connection),
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        if rustix::net::send(channel, &[1], rustix::net::SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}
