//! Loops over `/proc` as plain C programs have them: raw system calls, buffers on the stack, no
//! parsing, no allocation.
//!
//! They read the list of processes each time, as every such program must. They are the lower bound
//! for programs that read these files.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Instant;

use crate::run::{Run, Runner};

/// The operation on a file.
#[derive(Clone, Copy, Debug)]
pub enum Visit {
    /// open, close.
    Open(&'static str),
    /// open, read, close.
    Read(&'static str),
    /// readlink.
    Link(&'static str),
    /// stat.
    Look(&'static str),
}

/// Visits files of every process.
pub fn processes(visits: &'static [Visit]) -> Runner {
    timed(move || walk_processes(visits))
}

/// Visits a file of every thread of every process.
pub fn threads(visit: Visit) -> Runner {
    timed(move || walk_threads(visit))
}

fn timed(walk: impl Fn() -> io::Result<usize> + 'static) -> Runner {
    Box::new(move || {
        let start = Instant::now();
        let rows = walk()?;
        Ok(Run::new(start.elapsed(), rows))
    })
}

fn walk_processes(visits: &[Visit]) -> io::Result<usize> {
    let proc = open_at(libc::AT_FDCWD, c"/proc", libc::O_DIRECTORY)?;
    let mut rows = 0;
    each_number(&proc, |pid| {
        let mut seen = true;
        for &visit in visits {
            seen &= visit_file(&proc, pid, visit)?;
        }
        rows += usize::from(seen);
        Ok(())
    })?;
    Ok(rows)
}

fn walk_threads(visit: Visit) -> io::Result<usize> {
    let proc = open_at(libc::AT_FDCWD, c"/proc", libc::O_DIRECTORY)?;
    let mut rows = 0;
    each_number(&proc, |pid| {
        let mut path = Path::new(pid, "task");
        let Some(tasks) = unless_missing(open_at(proc.as_raw_fd(), path.as_c_str(), libc::O_DIRECTORY))? else {
            return Ok(());
        };
        each_number(&tasks, |tid| {
            rows += usize::from(visit_file(&tasks, tid, visit)?);
            Ok(())
        })
    })?;
    Ok(rows)
}

/// Visits a file of a task. Returns false if the task is gone.
fn visit_file(directory: &OwnedFd, task: &[u8], visit: Visit) -> io::Result<bool> {
    let (Visit::Open(file) | Visit::Read(file) | Visit::Link(file) | Visit::Look(file)) = visit;
    let mut path = Path::new(task, file);
    if let Visit::Link(_) | Visit::Look(_) = visit {
        let seen = look(directory.as_raw_fd(), path.as_c_str(), matches!(visit, Visit::Link(_)));
        return Ok(unless_missing(seen)?.is_some());
    }
    let Some(file) = unless_missing(open_at(directory.as_raw_fd(), path.as_c_str(), 0))? else {
        return Ok(false);
    };
    match visit {
        Visit::Read(_) => Ok(unless_missing(read(&file))?.is_some()),
        _ => Ok(true),
    }
}

/// `TASK/FILE`, ending in a NUL.
struct Path {
    bytes: [u8; 64],
    len: usize,
}

impl Path {
    fn new(task: &[u8], file: &str) -> Path {
        let mut path = Path { bytes: [0; 64], len: 0 };
        for part in [task, b"/", file.as_bytes()] {
            path.bytes[path.len..path.len + part.len()].copy_from_slice(part);
            path.len += part.len();
        }
        path
    }

    fn as_c_str(&mut self) -> &CStr {
        CStr::from_bytes_with_nul(&self.bytes[..=self.len]).expect("names in /proc have no NUL")
    }
}

fn open_at(directory: i32, path: &CStr, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the path ends with a NUL and lives until the call returns.
    let fd = unsafe { libc::openat(directory, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | flags) };
    match fd {
        0.. => {
            // SAFETY: just opened, and not used elsewhere.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads a link or the status of a file.
fn look(directory: i32, path: &CStr, is_link: bool) -> io::Result<()> {
    let mut target = std::mem::MaybeUninit::<[u8; 4096]>::uninit();
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path ends with a NUL, and the kernel writes at most the buffer's length, or one
    // `stat`.
    let result = unsafe {
        if is_link {
            libc::readlinkat(
                directory,
                path.as_ptr(),
                target.as_mut_ptr().cast(),
                size_of_val(&target),
            )
        } else {
            libc::fstatat(directory, path.as_ptr(), stat.as_mut_ptr(), 0) as isize
        }
    };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn read(file: &OwnedFd) -> io::Result<usize> {
    let mut buffer = std::mem::MaybeUninit::<[u8; 4096]>::uninit();
    // SAFETY: the kernel writes at most the buffer's length.
    let got = unsafe { libc::read(file.as_raw_fd(), buffer.as_mut_ptr().cast(), size_of_val(&buffer)) };
    std::hint::black_box(&buffer);
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

fn unless_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        // Gone, or unreadable for everybody, such as the first process of some sandboxes.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOENT | libc::ESRCH | libc::EACCES | libc::EPERM)
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A buffer for the directory entries of one call, aligned like them.
#[repr(C, align(8))]
struct Entries([u8; 32 << 10]);

/// Calls `each` for every numeric name in the directory.
fn each_number(directory: &OwnedFd, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    // Offsets in `struct linux_dirent64`.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut entries = Entries([0; 32 << 10]);
    loop {
        // SAFETY: the kernel writes at most the buffer's length.
        let got = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                directory.as_raw_fd(),
                entries.0.as_mut_ptr(),
                entries.0.len(),
            )
        };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        if got == 0 {
            return Ok(());
        }
        let mut rest = &entries.0[..got];
        while !rest.is_empty() {
            let len = usize::from(u16::from_ne_bytes([rest[LENGTH], rest[LENGTH + 1]]));
            let (entry, others) = rest.split_at(len);
            rest = others;
            if entry[NAME].is_ascii_digit() {
                let end = entry[NAME..].iter().position(|&byte| byte == 0).unwrap_or(0);
                each(&entry[NAME..NAME + end])?;
            }
        }
    }
}

/// The number of processes and threads.
pub fn census() -> io::Result<(usize, usize)> {
    Ok((walk_processes(&[])?, walk_threads(Visit::Open("comm"))?))
}
