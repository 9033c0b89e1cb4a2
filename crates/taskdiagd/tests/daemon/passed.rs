//! Sockets whose closing waits, sent to the broker along with requests.

use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use taskdiag_protocol::wire::{show, Strategy};

use super::{request, Connection};

/// A socket with something to send that nobody takes: who closes it last waits, as long as its other end is there.
pub fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut stream = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
    let (other_end, _) = listener.accept().expect("the other end");
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 15,
    };
    // SAFETY: the kernel reads one structure.
    unsafe {
        let (value, len) = ((&raw const linger).cast(), size_of::<libc::linger>() as u32);
        assert_eq!(
            libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, len),
            0
        );
    }
    stream.set_nonblocking(true).expect("a flag");
    while stream.write(&[0; 1 << 16]).is_ok() {}
    (stream.into(), other_end)
}

/// Sends a request and a descriptor with it, if that is let through.
pub fn pass_along(connection: &Connection, file: &OwnedFd) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    let packet = request(1 << show::GROUPS_SHIFT, Strategy::One, std::process::id());
    rustix::net::sendmsg(
        &connection.socket,
        &[IoSlice::new(&packet)],
        &mut control,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )
    .is_ok()
}
