//! Processes that make those who look at their memory or files wait, for as long as they live.

use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::thread;

use libc::{MAP_PRIVATE, PROT_EXEC, PROT_READ};
use rustix::mount::{mount_bind, unmount, UnmountFlags};

use super::Species;
use crate::arg_area::move_args;
use crate::facts::Facts;
use crate::fuse::{Silence, SilentFile};
use crate::keeper::{fork_child, settle, settle_one_of, Keeper};
use crate::sys::{self, page_size};

pub(super) const SPECIES: &[Species] = species! {
    "holds-lock": "holds the lock of its memory: a thread reads a page that never comes, another wants to map memory" =>
        |keeper| holds_lock(keeper, None);
    "holds-lock-of-nobody": "the same, of the user nobody" => |keeper| holds_lock(keeper, Some(NOBODY));
    "holds-socket":
        "holds the lock of a socket, in a network namespace of its own: a thread sends a page that never comes" =>
        holds_socket;
    "silent-args": "maps a file that never answers over its arguments, and memory again, all the time" => silent_args;
    "silent-file": "has a file open and mapped whose file system does not answer any more, whatever it is asked" =>
        silent_file;
    "deaf-mount":
        "its directory is a mount whose server answers nothing, so that who waits for it can't be killed; has a file called \
         /dmabuf:silent open there" =>
        deaf_mount;
};

const NOBODY: u32 = 65534;

/// Where the silent file is mapped.
const AT: usize = 0x2000_0000_0000;

/// Readers of its memory, its arguments or its mappings wait for the lock. One thread holds it as a
/// reader while it waits for the silent file, and another waits for it as a writer. Later readers
/// queue behind the writer.
fn holds_lock(keeper: &mut Keeper, user: Option<u32>) -> io::Result<Facts> {
    let dir = keeper.dir()?.to_owned();
    let (go, let_go) = sys::pipe()?;
    let facts = fork_child(|report| {
        // When the keeper drops its copy of this end, the other one becomes readable.
        sys::close(let_go.as_raw_fd())?;
        let mut silent = SilentFile::mount(&dir)?;
        sys::map_at(
            AT,
            page_size(),
            PROT_READ,
            MAP_PRIVATE,
            Some((silent.file.as_raw_fd(), 0)),
        )?;
        let memory = File::open("/proc/self/mem")?;
        if let Some(user) = user {
            sys::setresuid(user, user, user)?;
        }
        let go = go.as_raw_fd();
        thread::Builder::new().spawn(move || {
            let _ = sys::readable([go], -1);
            loop {
                // Returns when the thread gets a signal.
                let _ = memory.read_at(&mut [0], AT as u64);
            }
        })?;
        thread::Builder::new().spawn(move || {
            let _ = silent.wait_for_reader();
            loop {
                let _ = sys::map_and_unmap();
            }
        })?;
        report.set_comm(b"holds-lock")
    })?;
    // The leader rests once the lock is taken.
    settle(facts.pid, 'S')?;
    drop(let_go);
    settle_one_of(facts.pid, 'D')?;
    Ok(facts)
}

/// Whoever asks for TCP's information about its connection waits.
fn holds_socket(keeper: &mut Keeper) -> io::Result<Facts> {
    let dir = keeper.dir()?.to_owned();
    fork_child(|report| {
        let mut silent = SilentFile::mount(&dir)?;
        sys::unshare(libc::CLONE_NEWNET)?;
        sys::loopback_up()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let server = listener.accept()?;
        let file = Some((silent.file.as_raw_fd(), 0));
        sys::map_at(AT, page_size(), PROT_READ, MAP_PRIVATE, file)?;
        report.set_comm(b"holds-socket")?;
        let socket = client.as_raw_fd();
        thread::Builder::new().spawn(move || loop {
            // Returns when the thread gets a signal.
            let _ = sys::send_from(socket, AT, page_size());
        })?;
        silent.wait_for_reader()?;
        std::mem::forget((silent, listener, client, server));
        Ok(())
    })
}

fn silent_args(keeper: &mut Keeper) -> io::Result<Facts> {
    let dir = keeper.dir()?.to_owned();
    fork_child(|report| {
        let silent = SilentFile::mount(&dir)?;
        let at = sys::map(page_size(), MAP_PRIVATE | libc::MAP_ANONYMOUS, None)?;
        let args = b"silent\0args\0";
        // SAFETY: the page is ours and there is room.
        unsafe { std::ptr::copy_nonoverlapping(args.as_ptr(), at, args.len()) };
        move_args(at as usize, at as usize + args.len())?;
        let at = at as usize;
        thread::Builder::new().spawn(move || loop {
            // SAFETY: nobody else uses the page, and its content does not matter.
            let _ = unsafe { sys::map_over(at as *mut u8, page_size(), Some(silent.file.as_raw_fd())) };
            // SAFETY: as above.
            if unsafe { sys::map_over(at as *mut u8, page_size(), None) }.is_ok() {
                // SAFETY: the page is ours and there is room.
                unsafe { std::ptr::copy_nonoverlapping(args.as_ptr(), at as *mut u8, args.len()) };
            }
        })?;
        report.set_comm(b"silent-args")
    })
}

fn silent_file(keeper: &mut Keeper) -> io::Result<Facts> {
    let dir = keeper.dir()?.to_owned();
    fork_child(|report| {
        let mut silent = SilentFile::mount(&dir)?;
        let file = Some((silent.file.as_raw_fd(), 0));
        sys::map_at(AT, 4 * page_size(), PROT_READ | PROT_EXEC, MAP_PRIVATE, file)?;
        report.set_comm(b"silent-file")?;
        silent.be_silent(Silence::OfAll)?;
        std::mem::forget(silent);
        Ok(())
    })
}

/// The file's name begins at the root of a detached mount, so that it looks like the name of a
/// buffer shared between devices.
fn deaf_mount(keeper: &mut Keeper) -> io::Result<Facts> {
    let dir = keeper.dir()?.to_owned();
    fork_child(|report| {
        let [mount, detached] = ["mount", "detached"].map(|name| dir.join(name));
        fs::create_dir(&mount)?;
        fs::create_dir(&detached)?;
        let mut silent = SilentFile::mount(&mount)?;
        mount_bind(&mount, &detached)?;
        let file = File::open(detached.join("dmabuf:silent"))?;
        unmount(&detached, UnmountFlags::DETACH)?;
        std::env::set_current_dir(&mount)?;
        report.set_comm(b"deaf-mount")?;
        silent.be_silent(Silence::EvenIfInterrupted)?;
        std::mem::forget((silent, file));
        Ok(())
    })
}
