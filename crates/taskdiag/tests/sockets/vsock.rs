//! Sockets between a virtual machine and its host, as far as the kernel supports them: the family,
//! a list of them (`vsock_diag`), connections within the machine (`vsock_loopback`). CI's own
//! kernel may have none of these; the matrix has all.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use taskdiag::sockets::{Address, Endpoint, Family, Kind, State, Type};
use taskdiag::Query;

use super::{by_inode, handle, inode, list_with, network, request, turn};

/// A socket of the family. `None`: the kernel does not have the family.
fn socket() -> Option<OwnedFd> {
    // SAFETY: a system call without pointers, which returns a new descriptor or -1.
    let fd = unsafe { libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EAFNOSUPPORT), "{error}");
        return None;
    }
    // SAFETY: the descriptor is new, and nobody else's.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address(cid: u32, port: u32) -> libc::sockaddr_vm {
    // SAFETY: the structure is numbers, for which zeros are values.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    (address.svm_family, address.svm_cid, address.svm_port) = (libc::AF_VSOCK as _, cid, port);
    address
}

const ADDRESS: libc::socklen_t = size_of::<libc::sockaddr_vm>() as libc::socklen_t;

/// Makes a socket listen, and returns its port.
fn listen(socket: &OwnedFd) -> u32 {
    let mut bound = address(libc::VMADDR_CID_ANY, libc::VMADDR_PORT_ANY);
    let mut len = ADDRESS;
    let fd = socket.as_raw_fd();
    // SAFETY: the address is as long as it says.
    let made = unsafe {
        libc::bind(fd, (&raw const bound).cast(), len) == 0
            && libc::listen(fd, 8) == 0
            && libc::getsockname(fd, (&raw mut bound).cast(), &raw mut len) == 0
    };
    assert!(made, "{}", std::io::Error::last_os_error());
    bound.svm_port
}

/// Connects to a port of this machine. `None`: connections within it are not supported.
fn connect(port: u32) -> Option<OwnedFd> {
    let socket = socket()?;
    let patience = libc::timeval { tv_sec: 1, tv_usec: 0 };
    const SO_VM_SOCKETS_CONNECT_TIMEOUT: i32 = 6;
    let len = size_of_val(&patience) as libc::socklen_t;
    let (fd, to) = (socket.as_raw_fd(), address(libc::VMADDR_CID_LOCAL, port));
    // SAFETY: the values are as long as they say.
    let connected = unsafe {
        libc::setsockopt(
            fd,
            libc::AF_VSOCK,
            SO_VM_SOCKETS_CONNECT_TIMEOUT,
            (&raw const patience).cast(),
            len,
        ) == 0
            && libc::connect(fd, (&raw const to).cast(), ADDRESS) == 0
    };
    connected.then_some(socket)
}

/// Whether the kernel makes a list of them, found out with a message of the test's own.
fn has_list() -> bool {
    let netlink = network::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG);
    let mut asked = Vec::new();
    // struct nlmsghdr: length, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, sequence, port.
    asked.extend(40_u32.to_ne_bytes());
    asked.extend([20_u16, 0x301].map(u16::to_ne_bytes).concat());
    asked.extend([1_u32, 0].map(u32::to_ne_bytes).concat());
    // struct vsock_diag_req: family, protocol, states, inode, show, cookie.
    asked.extend([libc::AF_VSOCK as u8, 0, 0, 0]);
    asked.extend([u32::MAX, 0, 0, 0, 0].map(u32::to_ne_bytes).concat());
    let mut answer = [0_u8; 8192];
    // SAFETY: both places are as long as they say.
    let received = unsafe {
        let sent = libc::send(netlink.as_raw_fd(), asked.as_ptr().cast(), asked.len(), 0);
        assert_eq!(sent, asked.len() as isize, "{}", std::io::Error::last_os_error());
        libc::recv(netlink.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
    };
    assert!(received >= 20, "{}", std::io::Error::last_os_error());
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    let error = i32::from_ne_bytes(answer[16..20].try_into().expect("four bytes"));
    const NLMSG_ERROR: u16 = 2;
    assert!(kind != NLMSG_ERROR || error == -libc::ENOENT, "{error}");
    kind != NLMSG_ERROR
}

/// Check that a listening socket and both ends of a connection are listed with their owners, or
/// that the answer says that this kernel has no list.
#[test]
fn vsock_is_listed_or_unsupported() {
    let _turn = turn();
    network::enter_new();
    let listener = socket();
    let port = listener.as_ref().map(listen);
    let mut request = request(Kind::Vsock);
    request.own_namespace = true;
    let list = || list_with(&mut handle(), Query::these([std::process::id()]), &request);
    if !has_list() {
        let (seen, answer) = list();
        assert_eq!((seen.len(), &answer.unsupported[..]), (0, &["vsock"][..]));
        eprintln!(
            "this kernel has no list of vsock sockets; the family: {}",
            listener.is_some()
        );
        return;
    }
    let (Some(listener), Some(port)) = (listener, port) else {
        panic!("a list, and no such sockets");
    };
    let client = connect(port);
    let server = client.as_ref().map(|_| {
        // SAFETY: a system call without the other's address.
        let fd = unsafe {
            libc::accept4(
                listener.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_CLOEXEC,
            )
        };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new, and nobody else's.
        unsafe { OwnedFd::from_raw_fd(fd) }
    });
    let (seen, answer) = list();
    assert!(answer.unsupported.is_empty(), "{answer:?}");
    let at = |cid, port| (Some(Address::Cid(cid)), Some(port));
    let end = |end: Endpoint| (end.addr, end.port);
    let owner = |socket: &OwnedFd| Ok(Some(vec![(std::process::id(), socket.as_raw_fd() as u32)]));
    let found = by_inode(&seen, inode(&listener));
    assert_eq!(
        (found.family, found.kind, found.state),
        (Family::Vsock, Type::Stream, State::Listen)
    );
    assert_eq!(
        (end(found.local), found.owners.clone()),
        (at(libc::VMADDR_CID_ANY, port), owner(&listener))
    );
    let (Some(client), Some(server)) = (client, server) else {
        eprintln!("this kernel connects nobody within the machine");
        return;
    };
    let [client_seen, server_seen] = [&client, &server].map(|socket| by_inode(&seen, inode(socket)));
    for (socket, one, other) in [(&client, client_seen, server_seen), (&server, server_seen, client_seen)] {
        assert_eq!((one.state, one.owners.clone()), (State::Estab, owner(socket)));
        assert_eq!((one.local.port, one.remote.port), (other.remote.port, other.local.port));
    }
    assert_eq!(server_seen.local.port, Some(port));
}
