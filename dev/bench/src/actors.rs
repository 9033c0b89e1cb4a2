//! The actors on a stage: this program, as processes with many descriptors, with much memory, or as
//! another user's farm.

use std::fs::File;
use std::mem::forget;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{epoll, eventfd, EventfdFlags};
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};
use rustix::process::{set_parent_process_death_signal, Signal};
use taskdiag_sys::pages::FreshPages;
use taskdiag_zoo::Farm;

use crate::case::{Run, Runner};
use crate::served::serve;
use crate::Result;

/// The number of descriptors that [`open`] opens.
pub const FILES: usize = 14;
/// The factor by which [`open_many`] opens more.
pub const MANY: usize = 10;
/// The number of TCP sockets that [`connect`] opens, and of its other descriptors.
pub const SOCKETS: usize = 5;
pub const OTHERS: usize = 9;

/// Plays a role until the input ends.
pub fn play(role: &str, size: usize) -> Result<()> {
    let idle: fn() -> Result<Run> = || Ok(Run::default());
    match role {
        "farm" => {
            let _farm = Farm::start(size, 1)?;
            serve(Box::new(idle))
        }
        "hoarder" => serve(hoard(size)?),
        _ => {
            let open = match role {
                "files" => open,
                "many-files" => open_many,
                "sockets" => connect,
                _ => return Err(format!("{role:?} is no role").into()),
            };
            (0..size).try_for_each(|_| fork(open))?;
            serve(Box::new(idle))
        }
    }
}

/// Forks a process that opens descriptors and waits until its parent ends.
fn fork(open: fn() -> Result<()>) -> Result<()> {
    let parent = std::process::id();
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => {
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            let is_orphan = std::os::unix::process::parent_id() != parent;
            if !is_orphan && open().is_ok() {
                loop {
                    // SAFETY: it waits for a signal.
                    unsafe { libc::pause() };
                }
            }
            // SAFETY: it ends this process.
            unsafe { libc::_exit(1) }
        }
        _ => Ok(()),
    }
}

/// Opens descriptors of the kinds that processes have: files, devices, sockets, kernel objects.
fn open() -> Result<()> {
    for path in [
        "/etc/passwd",
        "/etc/group",
        "/proc/self/exe",
        "/dev/null",
        "/dev/urandom",
        "/usr",
    ] {
        forget(File::open(path)?);
    }
    forget(UnixStream::pair()?);
    for _ in 0..4 {
        forget(UdpSocket::bind("127.0.0.1:0")?);
    }
    forget(eventfd(0, EventfdFlags::empty())?);
    forget(epoll::create(epoll::CreateFlags::empty())?);
    Ok(())
}

/// Opens the same descriptors, and additional files: processes do not have that many sockets.
fn open_many() -> Result<()> {
    open()?;
    let paths = ["/etc/group", "/dev/null", "/dev/urandom"].into_iter().cycle();
    for path in paths.take((MANY - 1) * FILES) {
        forget(File::open(path)?);
    }
    Ok(())
}

/// Opens a listening socket, two connections to it, and some files.
fn connect() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    for _ in 0..(SOCKETS - 1) / 2 {
        let client = TcpStream::connect(listener.local_addr()?)?;
        forget((client, listener.accept()?));
    }
    forget(listener);
    for _ in 0..OTHERS {
        forget(File::open("/dev/null")?);
    }
    Ok(())
}

/// Fills this many MiB of memory. A run returns how long a change of this process's mappings had to
/// wait at most since the previous run.
fn hoard(mib: usize) -> Result<Runner> {
    const PAGE: usize = 4096;
    forget(FreshPages::small((mib << 20) / PAGE)?);
    let longest = Arc::new(AtomicU64::new(0));
    let longest_seen = longest.clone();
    std::thread::spawn(move || loop {
        let start = Instant::now();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses, which nobody uses.
        let _ = unsafe { mmap_anonymous(ptr::null_mut(), PAGE, access, MapFlags::PRIVATE).map(|at| munmap(at, PAGE)) };
        longest_seen.fetch_max(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(200));
    });
    Ok(Box::new(move || {
        Ok(Run {
            took: Duration::from_nanos(longest.swap(0, Ordering::Relaxed)),
            ..Run::default()
        })
    }))
}
