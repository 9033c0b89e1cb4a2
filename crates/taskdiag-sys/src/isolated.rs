//! Work in a process of its own, for what may take longer than its caller wants to live.
//!
//! A thread that is deep in the kernel keeps its whole process from ending, even when that is killed: whoever waits for
//! the process waits for the thread. A process that shares nothing with the caller but a pipe or socket does not.

use std::ffi::CStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    recvmsg, sendmsg, socketpair, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::pipe::{pipe_with, PipeFlags};

use crate::signals::Deferral;

/// Makes a process that runs `child`, and ends then.
///
/// # Safety
///
/// The child has the calling thread alone, so it must not allocate, lock or panic.
unsafe fn fork(child: impl FnOnce()) -> io::Result<libc::pid_t> {
    // The caller's handlers must not run in the new process.
    let deferral = Deferral::begin();
    // SAFETY: without flags this is fork(2), but that nobody is sent a signal when the child ends. The caller answers for the child.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if pid == 0 {
        child();
        end(1);
    }
    let error = io::Error::last_os_error();
    drop(deferral);
    if pid < 0 {
        Err(error)
    } else {
        Ok(pid as libc::pid_t)
    }
}

/// Ends the process at once; no destructor of the parent's runs.
fn end(status: i32) -> ! {
    // SAFETY: no pointers.
    unsafe { libc::_exit(status) }
}

/// Makes a new process end with the thread that made it, and closes all but two descriptors. Whoever reads what the parent writes waits
/// for all who could: so nothing else may be open. Kernels before 5.9 lack the call; there the usual three are closed.
fn keep_only(one: RawFd, other: RawFd) {
    let (low, high) = (one.min(other) as u32, one.max(other) as u32);
    // SAFETY: the descriptors belong to this process alone, in which nobody uses them any more.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if low > 0 && libc::syscall(libc::SYS_close_range, 0, low - 1, 0) != 0 {
            (0..3).filter(|&fd| fd != one && fd != other).for_each(|fd| {
                libc::close(fd);
            });
        }
        if high - low > 1 {
            libc::syscall(libc::SYS_close_range, low + 1, high - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, high + 1, u32::MAX, 0);
    }
}

/// Waits for a child of ours. `None`: it was killed.
fn wait_for(pid: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call. The process is our child, and stays until it was waited for.
        let result = unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
        if result == pid {
            return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
}

/// A child that was killed, and ends when the kernel lets it.
#[derive(Debug)]
pub struct Ending(libc::pid_t);

impl Ending {
    /// Whether it is gone.
    pub fn is_over(&self) -> bool {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let result = unsafe { libc::waitpid(self.0, &mut status, libc::__WALL | libc::WNOHANG) };
        // Also if somebody else has waited for it.
        result != 0
    }
}

/// What a process that runs errands has at hand.
#[derive(Debug, Default)]
pub struct WorkFiles {
    /// A descriptor that names a file, and is not open for reading.
    pub path: Option<OwnedFd>,
    /// That file, opened.
    pub file: Option<OwnedFd>,
    /// What was handed over with the errand.
    pub given: Option<OwnedFd>,
}

/// What is to be done in the other process: with some numbers and a path, into some room. It returns how much it put there. It must not
/// allocate, lock or panic: nobody would let go what other threads of the parent have locked.
pub type Work = fn(&mut WorkFiles, [u64; 3], &CStr, &mut [u8]) -> Result<usize, Errno>;

/// The most that an errand brings.
pub const MOST: usize = 32 << 10;

/// Room for an errand: what, numbers, a path. No path that the kernel takes is longer.
const ERRAND: usize = 4 * 8 + 4096;

/// Memory that a process which runs errands works in.
pub const ROOM: usize = ERRAND + 8 + MOST;

/// A process that runs errands, one after the other. It ends when it is dropped, which waits for what it is at.
#[derive(Debug)]
pub struct Runner {
    pid: libc::pid_t,
    socket: OwnedFd,
}

/// Why an errand brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The process is still at it.
    Silent,
    /// It failed, or the process could not be reached.
    Errno(Errno),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        Failed::Errno(errno)
    }
}

impl Runner {
    /// Starts it.
    pub fn start() -> io::Result<Runner> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut room = vec![0; ROOM];
        // SAFETY: `serve` and every `Work` make system calls only.
        let pid = unsafe { fork(|| serve(theirs.as_raw_fd(), &mut room)) }?;
        Ok(Runner { pid, socket: ours })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Sends it on an errand.
    pub fn send(&self, work: Work, numbers: [u64; 3], path: &CStr, given: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let [first, second, third] = numbers;
        let head = [work as usize as u64, first, second, third]
            .map(u64::to_ne_bytes)
            .concat();
        let parts = [IoSlice::new(&head), IoSlice::new(path.to_bytes_with_nul())];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let given = given.map(|given| [given]);
        if let Some(given) = &given {
            ancillary.push(SendAncillaryMessage::ScmRights(given));
        }
        if path.count_bytes() + 4 * 8 >= ERRAND {
            return Err(Errno::NAMETOOLONG);
        }
        sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL).map(drop)
    }

    /// What came of an errand, in the order in which they were sent: into `room`, how much that is.
    pub fn receive(&self, room: &mut [u8], deadline: Instant) -> Result<usize, Failed> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs() as _,
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Err(Failed::Silent),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let mut errno = [0; 4];
        let mut parts = [IoSliceMut::new(&mut errno), IoSliceMut::new(room)];
        let received = recvmsg(
            &self.socket,
            &mut parts,
            &mut RecvAncillaryBuffer::default(),
            RecvFlags::empty(),
        )?;
        match (received.bytes, i32::from_ne_bytes(errno)) {
            (0..4, _) => Err(Errno::PIPE.into()),
            (len, 0) => Ok(len - 4),
            (_, errno) => Err(Errno::from_raw_os_error(errno).into()),
        }
    }

    /// Kills it, and leaves it to end when it can.
    pub fn abandon(mut self) -> Ending {
        let pid = mem::take(&mut self.pid);
        kill(pid);
        Ending(pid)
    }
}

fn kill(pid: libc::pid_t) {
    // SAFETY: no pointers. Nobody else can have this number as long as our child was not waited for.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

impl Drop for Runner {
    fn drop(&mut self) {
        if self.pid != 0 {
            kill(self.pid);
            wait_for(self.pid);
        }
    }
}

/// What a process does that runs errands.
fn serve(socket: RawFd, room: &mut [u8]) -> ! {
    keep_only(socket, socket);
    // SAFETY: it is open for as long as this process lives.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let (errand, answer) = room.split_at_mut(ERRAND);
    let mut files = WorkFiles::default();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(errand)];
        let received = match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) if received.bytes > 4 * 8 => received.bytes,
            Err(Errno::INTR) => continue,
            _ => end(0),
        };
        files.given = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut rights) = message {
                files.given = rights.next();
            }
        }
        let number = |at: usize| {
            let bytes = errand.get(8 * at..).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        let path = CStr::from_bytes_with_nul(errand.get(4 * 8..received).unwrap_or_default()).unwrap_or_default();
        // SAFETY: the number was made of a `Work` by `send`, in the process that this one is a copy of: nobody else has the socket.
        let work = unsafe { mem::transmute::<usize, Work>(number(0) as usize) };
        let (errno, rest) = answer.split_at_mut(4);
        let done = work(&mut files, [number(1), number(2), number(3)], path, &mut rest[..MOST]);
        let code = done.err().map_or(0, Errno::raw_os_error);
        errno.copy_from_slice(&code.to_ne_bytes());
        let len = 4 + done.unwrap_or(0).min(MOST);
        if rustix::net::send(socket, &answer[..len], SendFlags::NOSIGNAL).is_err() {
            end(0);
        }
    }
}

/// A process that reads a file for us. Dropping it kills it and waits until it is gone, which may take as long as the read.
#[derive(Debug)]
pub struct Reader {
    pid: libc::pid_t,
    pipe: Option<OwnedFd>,
}

impl Reader {
    /// Starts a process that copies `file` into a pipe. `room` is what it reads into.
    pub fn start(file: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<Reader> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: `copy` makes system calls only, and ends the process.
        let pid = unsafe { fork(|| copy(file.as_raw_fd(), theirs.as_raw_fd(), room)) }?;
        Ok(Reader { pid, pipe: Some(ours) })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// The end of the pipe that the file's text comes out of. It ends when the whole text was read, or could not be.
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| std::os::fd::AsFd::as_fd(pipe))
    }

    /// Waits for the process, once its pipe has ended, and tells why the file could not be read if it could not.
    pub fn finish(mut self) -> Result<(), Errno> {
        self.pipe = None;
        match self.wait() {
            Some(0) => Ok(()),
            Some(errno) => Err(Errno::from_raw_os_error(errno)),
            None => Err(Errno::IO),
        }
    }

    /// The exit status; none if it was killed.
    fn wait(&mut self) -> Option<i32> {
        match mem::take(&mut self.pid) {
            0 => None,
            pid => wait_for(pid),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.pid != 0 {
            kill(self.pid);
            self.wait();
        }
    }
}

/// What the child does.
fn copy(file: RawFd, pipe: RawFd, room: &mut [u8]) -> ! {
    keep_only(file, pipe);
    loop {
        // SAFETY: `room` is as long as said. Raw calls: rustix's would do as well, but these are sure to touch nothing else.
        let read = unsafe { libc::read(file, room.as_mut_ptr().cast(), room.len()) };
        if read == 0 {
            end(0);
        }
        if read < 0 {
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => continue,
                errno => end(errno.unwrap_or(libc::EIO)),
            }
        }
        let mut written = 0;
        while written < read {
            // SAFETY: these bytes were just read into `room`.
            let wrote = unsafe {
                libc::write(
                    pipe,
                    room.as_ptr().add(written as usize).cast(),
                    (read - written) as usize,
                )
            };
            if wrote < 0 {
                end(libc::EPIPE);
            }
            written += wrote;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    use super::*;

    /// Check that the text comes through, and that the process is gone afterwards.
    #[test]
    fn a_file_is_read_by_another_process() {
        let file = File::open("/proc/self/smaps").expect("smaps");
        let reader = Reader::start(file.as_fd(), &mut [0; 4096]).expect("a reader");
        let pid = reader.pid;
        let mut text = String::new();
        let mut pipe = File::from(reader.pipe().expect("a pipe").try_clone_to_owned().expect("a copy"));
        pipe.read_to_string(&mut text).expect("text");
        assert_eq!(reader.finish(), Ok(()));
        assert!(text.contains("VmFlags:"), "{text}");
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    /// Check that a file which can't be read is an error, and that a reader which is no longer wanted ends.
    #[test]
    fn errors_come_back_and_readers_end() {
        let directory = File::open("/proc").expect("/proc");
        let reader = Reader::start(directory.as_fd(), &mut [0; 64]).expect("a reader");
        assert_eq!(reader.finish(), Err(Errno::ISDIR));
        let (held, _end) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let reader = Reader::start(held.as_fd(), &mut [0; 64]).expect("a reader");
        let pid = reader.pid;
        drop(reader);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
