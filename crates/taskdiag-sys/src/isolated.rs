//! Work in a separate process, for system calls that may not return in time.
//!
//! A thread that waits in the kernel keeps its whole process from ending, even when the process is
//! killed. A child that shares only a socket with its parent does not keep the parent from
//! ending.

use std::ffi::CStr;
use std::io::{self, IoSliceMut};
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::{read, retry_on_intr, Errno};
use rustix::net::{
    recvmsg, socketpair, AddressFamily, RecvAncillaryBuffer, RecvFlags, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{kill_process, set_parent_process_death_signal, waitpid, Pid, Signal, WaitOptions};

use crate::descriptors::{receive_with_file, send_with_file};
use crate::signals::SignalsBlocked;

/// Forks a process that runs `child` and then ends.
///
/// # Safety
///
/// The child has only the calling thread, so `child` must not allocate, lock or panic.
unsafe fn fork(child: impl FnOnce()) -> io::Result<Child> {
    // The parent's signal handlers must not run in the child.
    let blocked = SignalsBlocked::begin();
    // SAFETY: without flags this is fork(2), except that the child's end sends no signal. The
    // caller guarantees what the child does.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if pid == 0 {
        child();
        end(1);
    }
    let error = io::Error::last_os_error();
    drop(blocked);
    // A negative result is an error.
    Pid::from_raw(pid.max(0) as libc::pid_t).map(Child).ok_or(error)
}

/// Ends the process at once, without running destructors.
fn end(status: i32) -> ! {
    // SAFETY: the call has no pointers.
    unsafe { libc::_exit(status) }
}

/// Makes the kernel kill this new process when its parent thread ends, and closes all its
/// descriptors but one. If it kept the write end of one of the parent's pipes open, the reader of
/// that pipe would wait for it. Kernels before 5.9 lack close_range(2); there only the standard
/// streams are closed.
fn keep_only(kept: RawFd) {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let number = kept as u32;
    // SAFETY: the descriptors belong to this process alone, and nothing in it uses them.
    unsafe {
        if number > 0 && libc::syscall(libc::SYS_close_range, 0, number - 1, 0) != 0 {
            (0..3).filter(|&fd| fd != kept).for_each(|fd| {
                libc::close(fd);
            });
        }
        libc::syscall(libc::SYS_close_range, number + 1, u32::MAX, 0);
    }
}

/// The options for waiting for a child made by [`fork`], which sends no signal when it ends.
const ANY_CHILD: WaitOptions = WaitOptions::from_bits_retain(libc::__WALL as u32);

/// A process made by [`fork`]. Dropping it kills the process and waits until it has ended.
#[derive(Debug)]
struct Child(Pid);

impl Child {
    fn id(&self) -> u32 {
        self.0.as_raw_nonzero().get() as u32
    }

    /// Kills the process without waiting until it has ended.
    fn abandon(self) -> Ending {
        let child = ManuallyDrop::new(self);
        child.kill();
        Ending(child.0)
    }

    fn kill(&self) {
        // This can't hit another process: the kernel does not reuse the id before the process has
        // been waited for.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        let _ = retry_on_intr(|| waitpid(Some(self.0), ANY_CHILD));
    }
}

/// A child that was killed, and that ends when the kernel lets it.
#[derive(Debug)]
pub struct Ending(Pid);

impl Ending {
    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        // An error means that something else has waited for it.
        !matches!(waitpid(Some(self.0), ANY_CHILD | WaitOptions::NOHANG), Ok(None))
    }
}

/// The files of a process that runs errands.
#[derive(Debug, Default)]
pub struct WorkFiles {
    /// A descriptor that identifies a file, but is not open for reading (`O_PATH`).
    pub path: Option<OwnedFd>,
    /// The same file, open for reading.
    pub file: Option<OwnedFd>,
    /// The descriptor that was sent along with the errand.
    pub given: Option<OwnedFd>,
}

/// An errand: work for the other process, with three numbers, a path, and a buffer for its result.
/// Returns the length of the result. It must not allocate, lock or panic: when the process was
/// forked, another thread of the parent may have held any lock.
pub type Work = fn(&mut WorkFiles, [u64; 3], &CStr, &mut [u8]) -> Result<usize, Errno>;

/// The maximum length of an errand's result, in bytes.
pub const MAX_RESULT_BYTES: usize = 32 << 10;

/// The size of an errand's message up to the path: the work and three numbers.
const ERRAND_HEAD_BYTES: usize = 4 * 8;

/// The maximum size of an errand's message. The kernel accepts no longer path.
const MAX_ERRAND_BYTES: usize = ERRAND_HEAD_BYTES + 4096;

/// The size of the working memory of a process that runs errands.
pub const MEMORY_BYTES: usize = MAX_ERRAND_BYTES + 8 + MAX_RESULT_BYTES;

/// A process that runs errands one by one. Dropping it kills the process and waits until it has
/// ended, which may take as long as the current errand.
#[derive(Debug)]
pub struct Runner {
    child: Child,
    socket: OwnedFd,
}

/// Why an errand has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The process did not finish before the deadline.
    Silent,
    /// The errand failed, or the process could not be reached.
    Errno(Errno),
}

/// Waits until there is something to receive.
fn wait_for(socket: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<(), Failed> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec::try_from(left).unwrap_or_default());
        match poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Err(Failed::Silent),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        Failed::Errno(errno)
    }
}

impl Runner {
    /// Starts the process.
    pub fn start() -> io::Result<Runner> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut room = vec![0; MEMORY_BYTES];
        // SAFETY: `serve` and every `Work` only make system calls.
        let child = unsafe { fork(|| serve(theirs.as_raw_fd(), &mut room)) }?;
        Ok(Runner { child, socket: ours })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The socket to it.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends an errand, with a descriptor for [`WorkFiles::given`].
    pub fn send(&self, work: Work, numbers: [u64; 3], path: &CStr, given: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        if path.count_bytes() + ERRAND_HEAD_BYTES >= MAX_ERRAND_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        let [first, second, third] = numbers;
        let head = [work as usize as u64, first, second, third].map(u64::to_ne_bytes);
        let packet = [head.as_flattened(), path.to_bytes_with_nul()].concat();
        send_with_file(&self.socket, &packet, given, SendFlags::empty())
    }

    /// Receives the result of the oldest errand whose result has not been received. Writes it to
    /// `room`, and returns its length.
    pub fn receive(&self, room: &mut [u8], deadline: Option<Instant>) -> Result<usize, Failed> {
        wait_for(self.socket.as_fd(), deadline)?;
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

    /// Kills the process without waiting until it has ended.
    pub fn abandon(self) -> Ending {
        self.child.abandon()
    }
}

/// Runs errands. This is the code of the other process.
fn serve(socket: RawFd, room: &mut [u8]) -> ! {
    keep_only(socket);
    // SAFETY: the socket is open as long as this process lives.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let (errand, answer) = room.split_at_mut(MAX_ERRAND_BYTES);
    let mut files = WorkFiles::default();
    loop {
        let received = match retry_on_intr(|| receive_with_file(socket, errand)) {
            Ok((received, given)) if received > ERRAND_HEAD_BYTES => {
                files.given = given;
                received
            }
            _ => end(0),
        };
        let number = |at: usize| {
            let bytes = errand.get(8 * at..).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        let path = errand.get(ERRAND_HEAD_BYTES..received).unwrap_or_default();
        let path = CStr::from_bytes_with_nul(path).unwrap_or_default();
        // SAFETY: only our parent has the other end of the socket, and its send() made the number
        // from a `Work`. We are a copy of it, so the address is the same.
        let work = unsafe { mem::transmute::<usize, Work>(number(0) as usize) };
        let (errno, rest) = answer.split_at_mut(4);
        let done = work(
            &mut files,
            [number(1), number(2), number(3)],
            path,
            &mut rest[..MAX_RESULT_BYTES],
        );
        let code = done.err().map_or(0, Errno::raw_os_error);
        errno.copy_from_slice(&code.to_ne_bytes());
        let len = 4 + done.unwrap_or(0).min(MAX_RESULT_BYTES);
        if rustix::net::send(socket, &answer[..len], SendFlags::NOSIGNAL).is_err() {
            end(0);
        }
    }
}

/// An errand: reads on in the file that was sent along.
pub fn read_given(files: &mut WorkFiles, _: [u64; 3], _: &CStr, room: &mut [u8]) -> Result<usize, Errno> {
    let file = files.given.as_ref().ok_or(Errno::BADF)?;
    retry_on_intr(|| read(file, &mut *room))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;
    use std::time::Duration;

    use rustix::pipe::{pipe_with, PipeFlags};

    use super::*;

    /// Check that the whole text arrives, and that the process ends with its runner.
    #[test]
    fn another_process_reads_a_file() {
        let file = File::open("/proc/self/smaps").expect("smaps opens");
        let runner = Runner::start().expect("a process starts");
        let (mut text, mut room) = (Vec::new(), [0; MAX_RESULT_BYTES]);
        loop {
            let sent = runner.send(read_given, [0; 3], c"", Some(file.as_fd()));
            sent.expect("it takes errands");
            match runner.receive(&mut room, None).expect("a piece of the text") {
                0 => break,
                len => text.extend_from_slice(&room[..len]),
            }
        }
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("VmFlags:"), "{text}");
        let pid = runner.pid();
        drop(runner);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    /// Check that reading a directory fails, and that dropping a runner that waits ends its process.
    #[test]
    fn errors_are_returned_and_runners_end() {
        let directory = File::open("/proc").expect("/proc opens");
        let runner = Runner::start().expect("a process starts");
        let ask = |file: BorrowedFd<'_>| {
            let sent = runner.send(read_given, [0; 3], c"", Some(file));
            sent.expect("it takes errands");
            runner.receive(&mut [0; 64], Some(Instant::now() + Duration::from_millis(100)))
        };
        assert_eq!(ask(directory.as_fd()), Err(Errno::ISDIR.into()));
        let (silent, _write_end) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe opens");
        assert_eq!(ask(silent.as_fd()), Err(Failed::Silent));
        let pid = runner.pid();
        drop(runner);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
