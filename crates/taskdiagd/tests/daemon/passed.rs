//! Descriptors to send to the broker: of sockets that make their last owner wait in close(2).

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use rustix::net::SendFlags;
use taskdiag_protocol::wire::{show, Strategy};
use taskdiag_sys::descriptors::send_with_file;

use super::{request, Connection};

/// A socket with unsent data, and its other end. Closing its last descriptor waits for 15 s, or
/// until the other end is closed.
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

/// Sends a request with a descriptor. Returns whether the kernel let it through.
pub fn send_descriptor(connection: &Connection, file: &OwnedFd) -> bool {
    let packet = request(1 << show::GROUPS_SHIFT, Strategy::One, std::process::id());
    send_with_file(&connection.socket, &packet, Some(file.as_fd()), SendFlags::DONTWAIT).is_ok()
}

/// Sends a request with the descriptor of a socket that can't be closed without waiting as long as
/// this process lives. Returns whether the kernel let the request through.
pub fn send_lingering(connection: &Connection) -> bool {
    let (file, other_end) = lingering();
    std::mem::forget(other_end);
    let is_sent = send_descriptor(connection, &file);
    if !is_sent {
        // This process has the last descriptor, and closing it would wait.
        std::mem::forget(file);
    }
    is_sent
}
