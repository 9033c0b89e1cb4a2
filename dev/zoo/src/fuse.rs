//! A file system that does not answer. It has one file, and a server that speaks the kernel's
//! protocol on `/dev/fuse` directly.
//!
//! It is mounted in the animal's own mount namespace, and its server is a child that dies with the
//! animal. So it goes away with the animal, however that ends. A process that waits for an answer
//! can be killed: the server releases those that the kernel reports as interrupted. If the server
//! ignores these reports too, only the end of the animal ends the wait.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use rustix::mount::{mount, MountFlags};

use crate::keeper::Doing as _;
use crate::sys::{self, page_size};

/// The name of its file, or the end of the name: any name that ends like this leads to it.
const NAME: &str = "silent";
/// The length of its file.
const SIZE: u64 = 1 << 20;

/// The kernel's requests that a server leaves unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Silence {
    /// Reads of a file's contents.
    OfReads,
    /// All requests.
    OfAll,
    /// All requests, even after the kernel reports that a waiting process was killed. Only closing
    /// is answered, so that the animal itself can end.
    EvenIfInterrupted,
}

/// A file that can be opened and mapped, but never read.
#[derive(Debug)]
pub(crate) struct SilentFile {
    pub(crate) file: File,
    to_server: File,
    from_server: File,
}

impl SilentFile {
    /// Mounts it at a directory, for this process and those that it starts. Call this before there
    /// are other threads.
    pub(crate) fn mount(at: &Path) -> io::Result<SilentFile> {
        sys::unshare(libc::CLONE_NEWNS).doing("a mount namespace")?;
        sys::keep_mounts_private()?;
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.doing("opening /dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        let options = CString::new(options)?;
        mount(c"zoo", at, c"fuse", MountFlags::empty(), &*options).doing("mounting it")?;
        let (commands, to_server) = sys::pipe()?;
        let (from_server, answers) = sys::pipe()?;
        if sys::fork()?.is_none() {
            drop((to_server, from_server));
            let served = sys::die_with_parent().and_then(|()| serve(&device, &commands, answers));
            sys::exit(served.is_err().into());
        }
        drop(device);
        Ok(SilentFile {
            file: File::open(at.join(NAME)).doing("opening a file of it")?,
            to_server,
            from_server,
        })
    }

    /// Waits until a process waits for the contents.
    pub(crate) fn wait_for_reader(&mut self) -> io::Result<()> {
        self.from_server.read_exact(&mut [0])
    }

    /// Leaves these requests unanswered from now on.
    pub(crate) fn be_silent(&mut self, silence: Silence) -> io::Result<()> {
        self.to_server.write_all(&[silence as u8])?;
        self.from_server.read_exact(&mut [0])
    }
}

// The protocol, linux/fuse.h: a request is a header of 40 bytes and its payload, an answer a header
// of 16 bytes and its payload.

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const IN_HEADER: usize = 40;
const ROOT: u64 = 1;
const ONLY_FILE: u64 = 2;

/// The header of a request: its kind, its number, and its file.
fn header(request: &[u8]) -> (u32, u64, u64) {
    (word(request, 4), long(request, 8), long(request, 16))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn answer(device: &mut &File, number: u64, error: i32, payload: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(16 + payload.len());
    bytes.extend((16 + payload.len() as u32).to_ne_bytes());
    bytes.extend((-error).to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend(payload);
    match device.write(&bytes) {
        // Nobody waits for it any more.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map(drop),
    }
}

/// `struct fuse_attr`.
fn attributes(file: u64) -> Vec<u8> {
    let (mode, size) = match file {
        ROOT => (libc::S_IFDIR | 0o755, 0),
        _ => (libc::S_IFREG | 0o755, SIZE),
    };
    let mut bytes = Vec::new();
    // Inode, size, blocks, three times.
    bytes.extend([file, size, size / 512, 0, 0, 0].map(u64::to_ne_bytes).concat());
    // Their nanoseconds, mode, links, user, group, device, block size, flags.
    let words = [0, 0, 0, mode, 1, 0, 0, 0, page_size() as u32, 0];
    bytes.extend(words.map(u32::to_ne_bytes).concat());
    bytes
}

/// Answers requests until the file system is gone. Reports with one byte that somebody reads, and
/// with another that it is silent from now on.
fn serve(mut device: &File, commands: &File, mut answers: File) -> io::Result<()> {
    let mut silence = Silence::OfReads;
    let mut unanswered = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let [has_command, has_request] = sys::readable([commands.as_raw_fd(), device.as_raw_fd()], -1)?;
        if has_command && silence == Silence::OfReads {
            let (mut commands, mut command) = (commands, [0]);
            commands.read_exact(&mut command)?;
            silence = match command[0] {
                all if all == Silence::OfAll as u8 => Silence::OfAll,
                _ => Silence::EvenIfInterrupted,
            };
            answers.write_all(&[0])?;
        }
        if !has_request {
            continue;
        }
        let len = match device.read(&mut buffer) {
            Ok(len) => len,
            // The request was withdrawn in between.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let request = &buffer[..len];
        if len < IN_HEADER {
            return Err(io::Error::other("a request without a header"));
        }
        let (what, number, file) = header(request);
        match what {
            INTERRUPT if silence == Silence::EvenIfInterrupted => {}
            INTERRUPT => {
                let interrupted = long(request, IN_HEADER);
                if let Some(at) = unanswered.iter().position(|&waiting| waiting == interrupted) {
                    unanswered.swap_remove(at);
                    answer(&mut device, interrupted, libc::EINTR, &[])?;
                }
            }
            FORGET | BATCH_FORGET => {}
            FLUSH | RELEASE if silence != Silence::OfAll => answer(&mut device, number, 0, &[])?,
            _ if what == READ || silence > Silence::OfReads => {
                unanswered.push(number);
                if what == READ {
                    answers.write_all(&[0])?;
                }
            }
            INIT => {
                // The version. Nothing is read ahead, and every process waits for its own requests.
                // The room for writes.
                let version_and_flags = [7, 31, 0, 0];
                let mut payload = version_and_flags.map(u32::to_ne_bytes).concat();
                payload.extend([0; 4]);
                payload.extend(4096_u32.to_ne_bytes());
                payload.resize(64, 0);
                answer(&mut device, number, 0, &payload)?;
            }
            LOOKUP => {
                let name = request[IN_HEADER..].split(|&byte| byte == 0).next();
                match name {
                    Some(name) if name.ends_with(NAME.as_bytes()) => {
                        // Its number and generation, and how long this may be cached: not at all.
                        let mut payload = [ONLY_FILE, 0, 0, 0, 0].map(u64::to_ne_bytes).concat();
                        payload.extend(attributes(ONLY_FILE));
                        answer(&mut device, number, 0, &payload)?;
                    }
                    _ => answer(&mut device, number, libc::ENOENT, &[])?,
                }
            }
            GETATTR => {
                let mut payload = vec![0; 16];
                payload.extend(attributes(file));
                answer(&mut device, number, 0, &payload)?;
            }
            OPEN => answer(&mut device, number, 0, &[0; 16])?,
            _ => answer(&mut device, number, libc::ENOSYS, &[])?,
        }
    }
}
