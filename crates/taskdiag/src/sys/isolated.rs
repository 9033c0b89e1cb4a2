//! Reading a file in a process of its own, for reads that may take longer than their caller wants to live.
//!
//! A thread that is deep in the kernel keeps its whole process from ending, even when that is killed: whoever waits for
//! the process waits for the thread. A process that shares nothing with the caller but the file and a pipe does not.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::pipe::{pipe_with, PipeFlags};

use super::signals::Deferral;

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
        // The caller's handlers must not run in the new process.
        let deferral = Deferral::begin();
        // SAFETY: without flags this is fork(2), but that nobody is sent a signal when the child ends. The child has this
        // thread alone, so it must not allocate, lock or panic: `copy` makes system calls only, and ends it.
        let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
        if pid == 0 {
            copy(file.as_raw_fd(), theirs.as_raw_fd(), room);
        }
        let error = io::Error::last_os_error();
        drop(deferral);
        if pid < 0 {
            return Err(error);
        }
        Ok(Reader {
            pid: pid as libc::pid_t,
            pipe: Some(ours),
        })
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
        let pid = mem::take(&mut self.pid);
        if pid == 0 {
            return None;
        }
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
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.pid != 0 {
            // SAFETY: no pointers. Nobody else can have this number as long as our child was not waited for.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.wait();
        }
    }
}

/// What the child does.
fn copy(file: RawFd, pipe: RawFd, room: &mut [u8]) -> ! {
    let end = |status: i32| -> ! {
        // SAFETY: ends the process at once; no destructor of the parent's runs.
        unsafe { libc::_exit(status) }
    };
    let (low, high) = (file.min(pipe) as u32, file.max(pipe) as u32);
    // Whoever reads what the parent writes waits for all who could: keep nothing open but these two. Kernels before 5.9
    // lack the call; there the usual three are closed.
    // SAFETY: the descriptors belong to this process alone, in which nobody uses them any more.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if low > 0 && libc::syscall(libc::SYS_close_range, 0, low - 1, 0) != 0 {
            (0..3).filter(|&fd| fd != file && fd != pipe).for_each(|fd| {
                libc::close(fd);
            });
        }
        if high - low > 1 {
            libc::syscall(libc::SYS_close_range, low + 1, high - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, high + 1, u32::MAX, 0);
    }
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
    use super::*;
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

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
