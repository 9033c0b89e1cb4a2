//! Descriptors on their way through sockets (`SCM_RIGHTS`).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// Sends bytes with a descriptor over a socket. Does not wait.
pub fn send(over: impl AsFd, bytes: &[u8], file: impl AsFd) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(over, &[IoSlice::new(bytes)], &mut control, flags).map(drop)
}

/// Takes a descriptor that was sent with one byte.
pub fn receive(over: impl AsFd) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = recvmsg(
        over,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    assert_eq!(received.expect("a message").bytes, 1);
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    files.next().expect("a descriptor")
}
