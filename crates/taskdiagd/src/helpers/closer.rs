//! A closer: a process without rights that closes connections for the loop.
//!
//! Before Linux 6.16 a client can send descriptors along with a request, and no receiver can refuse
//! them. Closing the last descriptor of a socket may wait, if the socket's owner wants that
//! (`SO_LINGER`). So a closer closes connections that may hold descriptors, and the loop has the
//! closer killed if it does not come back: a killed process waits for no socket.
//!
//! The closer must be the last to close a connection. So it keeps the connection until the loop has
//! closed its own descriptor and says so.

use std::os::fd::OwnedFd;

use rustix::io::retry_on_intr;
use rustix::net::SendFlags;

use super::messages::{CLOSE, CLOSED, CONNECTION};
use crate::sys;

/// Closes connections and confirms each, until the loop has ended.
pub fn serve(channel: &OwnedFd) {
    let mut connection = None;
    loop {
        let mut message = [0; 1];
        match retry_on_intr(|| sys::receive_with_file(channel, &mut message)) {
            Ok((1, Some(received))) if message == [CONNECTION] => connection = Some(received),
            Ok((1, None)) if message == [CLOSE] => {
                drop(connection.take());
                if rustix::net::send(channel, &[CLOSED], SendFlags::NOSIGNAL).is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::event::PollFlags;
    use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};

    use super::*;

    /// Check that a closer keeps a connection until it is told to close it: before that, the loop's
    /// descriptor could be the last one, and the loop would have to wait.
    #[test]
    fn a_connection_is_kept_until_the_loop_has_closed_it() {
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair().expect("a channel");
        let (connection, client) = pair().expect("a connection");
        let closer = std::thread::spawn(move || serve(&theirs));
        let is_open = || {
            !sys::poll_now(client.as_fd(), PollFlags::IN)
                .unwrap()
                .contains(PollFlags::HUP)
        };
        let file = Some(connection.as_fd());
        sys::send_with_file(ours.as_fd(), &[CONNECTION], file, SendFlags::empty()).expect("sending");
        drop(connection);
        // Give it time to close too early.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(is_open());
        sys::send_with_file(ours.as_fd(), &[CLOSE], None, SendFlags::empty()).expect("sending");
        let mut message = [0; 8];
        let received = sys::receive_with_file(&ours, &mut message).expect("an answer");
        assert!(received.0 == 1 && message[0] == CLOSED && !is_open());
        drop(ours);
        closer.join().expect("its end");
    }
}
