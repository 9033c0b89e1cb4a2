//! A process with descriptors of every kind.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::event::{epoll, eventfd, EventfdFlags};
use rustix::fs::{inotify, mknodat, FileType, Mode, CWD};
use rustix::io::Errno;
use rustix::mount::{mount_bind, unmount, UnmountFlags};
use rustix::net::{socket, AddressFamily, SendFlags, SocketType};
use rustix::process::{getpid, pidfd_open, PidfdFlags};
use rustix::time::{timerfd_create, TimerfdClockId, TimerfdFlags};
use taskdiag_sys::descriptors::{receive_with_file, send_with_file};
use taskdiag_sys::signals::signalfd;

use super::Species;
use crate::keeper::{fork_child, Doing as _};
use crate::sys;

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
    sys::dup_to(null.as_raw_fd(), libc::STDERR_FILENO)
}

/// Leaves a descriptor open until the process ends.
fn keep<T>(descriptor: T) {
    std::mem::forget(descriptor);
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
    let mut moved = OpenOptions::new().read(true).write(true).open(new("moved")?)?;
    moved.seek(SeekFrom::Start(1 << 40))?;
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
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
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
    send_with_file(&ours, &[0], Some(passed.as_fd()), SendFlags::DONTWAIT)?;
    keep(receive_with_file(&theirs, &mut [0])?);
    keep((ours, theirs, passed));
    for (family, kind) in [
        (AddressFamily::INET6, SocketType::STREAM),
        (AddressFamily::NETLINK, SocketType::RAW),
        (AddressFamily::UNIX, SocketType::DGRAM),
    ] {
        match socket(family, kind, None) {
            // Not every host has IPv6.
            Err(Errno::AFNOSUPPORT) => {}
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
    let counter = eventfd(3, EventfdFlags::NONBLOCK)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, &counter, epoll::EventData::new_u64(7), epoll::EventFlags::IN)?;
    let watch = inotify::init(inotify::CreateFlags::empty())?;
    inotify::add_watch(&watch, c"/", inotify::WatchFlags::CREATE)?;
    keep((counter, poll, watch));
    keep(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty())?);
    keep(pidfd_open(getpid(), PidfdFlags::empty())?);
    keep(signalfd(&[libc::SIGUSR1])?);
    // SAFETY: the calls get numbers and pointers to memory that lives.
    unsafe {
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
    mount_bind(dir, &place)?;
    keep(File::open(place.join("plain"))?);
    // Another one, from a mount that is gone.
    let gone = File::open(place.join("appended"))?;
    unmount(&place, UnmountFlags::DETACH)?;
    keep(gone);
    std::env::set_current_dir(dir)
}
