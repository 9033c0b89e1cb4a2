//! A process with descriptors of every kind.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use libc::c_long;

use super::Species;
use crate::keeper::{fork_child, Doing as _};
use crate::{passing, sys};

pub(super) const SPECIES: &[Species] = species! {
    "descriptors": "descriptors of every kind, deleted and renamed files, long names, another mount namespace" =>
        |keeper| {
            let dir = keeper.dir()?.to_owned();
            fork_child(|report| {
                open_all(&dir)?;
                report.facts.tids = Some(vec![sys::getpid()]);
                Ok(())
            })
        };
};

fn open_all(dir: &Path) -> io::Result<()> {
    files(dir).doing("opening files")?;
    sockets(dir).doing("opening sockets")?;
    objects().doing("opening objects of the kernel")?;
    bind_mounted(dir).doing("a file of another mount namespace")?;
    // The inherited one may be a log, which grows while it is compared.
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    // SAFETY: numbers only, and nothing here owns standard error.
    checked(unsafe { libc::dup2(null.as_raw_fd(), libc::STDERR_FILENO) }.into()).map(drop)
}

/// Leaves a descriptor open until the process ends.
fn keep<T>(descriptor: T) {
    std::mem::forget(descriptor);
}

fn checked(result: c_long) -> io::Result<RawFd> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        fd => Ok(fd as RawFd),
    }
}

fn path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

fn files(dir: &Path) -> io::Result<()> {
    let new = |name: &str| {
        let path = dir.join(name);
        fs::write(&path, b"contents")?;
        Ok::<_, io::Error>(path)
    };
    let open = |name: &str| File::open(new(name)?);
    keep(open("plain")?);
    keep(open("a name\nwith a newline \\ and \x1b")?);
    keep(open("not gone (deleted)")?);
    keep(open("anon_inode:[eventfd]")?);
    keep(OpenOptions::new().append(true).open(new("appended")?)?);
    let moved = OpenOptions::new().read(true).write(true).open(new("moved")?)?;
    // SAFETY: the descriptor is ours.
    checked(unsafe { libc::lseek(moved.as_raw_fd(), 1 << 40, libc::SEEK_SET) as c_long }.min(0))?;
    keep(moved);
    // Deleted, deleted with another name left, renamed, and never named.
    keep(open("deleted")?);
    fs::remove_file(dir.join("deleted"))?;
    keep(open("linked")?);
    fs::hard_link(dir.join("linked"), dir.join("other link"))?;
    fs::remove_file(dir.join("linked"))?;
    keep(open("renamed")?);
    fs::rename(dir.join("renamed"), dir.join("new name"))?;
    keep(OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(dir)?);
    keep(sys::memory_file(c"a memfd")?);
    // Directories, one deleted, and one with a name of more than a thousand bytes.
    keep(File::open(dir)?);
    let gone = dir.join("gone");
    fs::create_dir(&gone)?;
    keep(File::open(&gone)?);
    fs::remove_dir(&gone)?;
    let mut long = dir.to_owned();
    for _ in 0..8 {
        long.push("two hundred bytes ".repeat(11));
        fs::create_dir(&long)?;
    }
    keep(File::open(&long)?);
    // Opened only as places: a file, and a symbolic link.
    let place = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(dir.join("plain"))?;
    keep(place);
    std::os::unix::fs::symlink("plain", dir.join("link"))?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    keep(
        OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(dir.join("link"))?,
    );
    for name in [
        "/dev/null",
        "/dev/zero",
        "/proc/self/status",
        "/proc/self/ns/mnt",
        "/proc/self/ns/net",
        "/sys/kernel/mm",
    ] {
        keep(File::open(name).doing(name)?);
    }
    let fifo = dir.join("fifo");
    // SAFETY: the path ends with a NUL.
    checked(unsafe { libc::mkfifo(path(&fifo)?.as_ptr(), 0o600) }.into())?;
    keep(OpenOptions::new().read(true).write(true).open(&fifo)?);
    keep(sys::pipe()?);
    Ok(())
}

fn sockets(dir: &Path) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    keep(TcpStream::connect(listener.local_addr()?)?);
    keep(listener.accept()?);
    keep(listener);
    keep(UdpSocket::bind("127.0.0.1:0")?);
    keep(UnixListener::bind(dir.join("socket"))?);
    let (ours, theirs) = UnixStream::pair()?;
    // A file that is in flight in a message, and is then received, which opens it a second time.
    let passed = File::open(dir.join("plain"))?;
    passing::send(&ours, &[0], &passed)?;
    keep(passing::receive(&theirs)?);
    keep((ours, theirs, passed));
    for (family, kind) in [
        (libc::AF_INET6, libc::SOCK_STREAM),
        (libc::AF_NETLINK, libc::SOCK_RAW),
        (libc::AF_UNIX, libc::SOCK_DGRAM),
    ] {
        // SAFETY: no pointers.
        match checked(unsafe { libc::socket(family, kind, 0) }.into()) {
            // Not every host has IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
            result => keep(result?),
        }
    }
    Ok(())
}

/// `struct perf_event_attr` of the first version: type, size, config, and the rest.
#[repr(C)]
#[derive(Default)]
struct PerfAttributes {
    kind: u32,
    size: u32,
    config: u64,
    rest: [u64; 6],
}

/// Objects that have only a descriptor. A host may refuse the last four.
fn objects() -> io::Result<()> {
    let mut signals = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the calls fill the set, or get numbers and pointers to memory that lives.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGUSR1);
        let eventfd = checked(libc::eventfd(3, libc::EFD_NONBLOCK).into())?;
        let epoll = checked(libc::epoll_create1(libc::EPOLL_CLOEXEC).into())?;
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 7,
        };
        checked(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, eventfd, &mut event).into())?;
        checked(libc::timerfd_create(libc::CLOCK_MONOTONIC, 0).into())?;
        checked(libc::signalfd(-1, signals.as_ptr(), 0).into())?;
        let inotify = checked(libc::inotify_init1(0).into())?;
        checked(libc::inotify_add_watch(inotify, c"/".as_ptr(), libc::IN_CREATE).into())?;
        checked(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0))?;
        let mut parameters = [0_u64; 30];
        let ring = libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr());
        let fault = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
        let attributes = PerfAttributes {
            kind: 1,
            size: size_of::<PerfAttributes>() as u32,
            ..PerfAttributes::default()
        };
        let perf = libc::syscall(libc::SYS_perf_event_open, &attributes, 0, -1, -1, 0);
        // BPF_MAP_CREATE: an array of one number.
        let map: [u32; 12] = [2, 4, 8, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let map = libc::syscall(libc::SYS_bpf, 0, map.as_ptr(), size_of_val(&map));
        let _ = (ring, fault, perf, map);
    }
    Ok(())
}

/// Opens a file through a mount that only this process sees.
fn bind_mounted(dir: &Path) -> io::Result<()> {
    let place = dir.join("mounted");
    fs::create_dir(&place)?;
    sys::unshare(libc::CLONE_NEWNS)?;
    sys::keep_mounts_private()?;
    sys::bind(dir, &place)?;
    keep(File::open(place.join("plain"))?);
    // Another one, from a mount that is gone.
    let gone = File::open(place.join("appended"))?;
    sys::detach(&place)?;
    keep(gone);
    std::env::set_current_dir(dir)
}
