//! Loops over `/proc` as plain C programs have them: raw system calls, buffers on the stack, no
//! allocation.
//!
//! They read the list of processes each time, as every such program must. They are the lower bound
//! for programs that read these files.

use std::ffi::CStr;
use std::hint::black_box;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{openat, readlinkat_raw, statat, AtFlags, Mode, OFlags, RawDir, CWD};
use rustix::io::Errno;

const FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = FILE.union(OFlags::DIRECTORY);

/// The operation on a file.
#[derive(Clone, Copy, Debug)]
pub enum Visit {
    /// open, read, close.
    Read(&'static str),
    /// readlink.
    Link(&'static str),
    /// stat.
    Look(&'static str),
}

/// Visits files of every process. Returns the number of processes.
pub fn processes(visits: &[Visit]) -> io::Result<usize> {
    let mut rows = 0;
    each_process(|proc, pid| {
        let mut seen = true;
        for &visit in visits {
            seen &= visit_file(proc, pid, visit)?;
        }
        rows += usize::from(seen);
        Ok(())
    })?;
    Ok(rows)
}

/// Visits a file of every thread of every process. Returns the number of threads.
pub fn threads(visit: Visit) -> io::Result<usize> {
    let mut rows = 0;
    each_process(|proc, pid| {
        let Some(tasks) = open_directory(proc, pid, "task")? else {
            return Ok(());
        };
        each_number(&tasks, |tid| {
            rows += usize::from(visit_file(&tasks, tid, visit)?);
            Ok(())
        })
    })?;
    Ok(rows)
}

/// The number of processes and threads.
pub fn census() -> io::Result<(usize, usize)> {
    Ok((processes(&[])?, threads(Visit::Look("comm"))?))
}

/// Reads a file of a process, whose lines must fit into the buffer. Returns false if the process is gone, or
/// has no such file.
pub fn each_line(
    proc: &OwnedFd,
    pid: &[u8],
    file: &str,
    buffer: &mut [u8],
    mut each: impl FnMut(&[u8]),
) -> io::Result<bool> {
    let opened = openat(proc, path(pid, file).as_c_str(), FILE, Mode::empty());
    let Some(file) = unless_missing(opened)? else {
        return Ok(false);
    };
    let mut kept = 0;
    loop {
        let len = match unless_missing(rustix::io::read(&file, &mut buffer[kept..]))? {
            None => return Ok(false),
            Some(0) => return Ok(true),
            Some(len) => kept + len,
        };
        let mut at = 0;
        while let Some(end) = buffer[at..len].iter().position(|&byte| byte == b'\n') {
            each(&buffer[at..at + end]);
            at += end + 1;
        }
        buffer.copy_within(at..len, 0);
        kept = len - at;
    }
}

/// Reads the links of all descriptors of all processes.
pub fn each_descriptor(mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut name = [0; 4096];
    each_process(|proc, pid| {
        let Some(directory) = open_directory(proc, pid, "fd")? else {
            return Ok(());
        };
        each_entry(&directory, |entry| {
            if let Ok(len) = readlinkat_raw(&directory, entry, &mut name[..]) {
                each(&name[..len]);
            }
            Ok(())
        })
    })
}

/// Calls `each` for every process, with the directory `/proc` and the process's name in it.
pub fn each_process(mut each: impl FnMut(&OwnedFd, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let proc = proc()?;
    each_number(&proc, |pid| each(&proc, pid))
}

/// The directory `/proc`.
pub fn proc() -> io::Result<OwnedFd> {
    Ok(openat(CWD, c"/proc", DIRECTORY, Mode::empty())?)
}

fn open_directory(proc: &OwnedFd, pid: &[u8], name: &str) -> io::Result<Option<OwnedFd>> {
    unless_missing(openat(proc, path(pid, name).as_c_str(), DIRECTORY, Mode::empty()))
}

/// Visits a file of a task. Returns false if the task is gone.
fn visit_file(directory: &OwnedFd, task: &[u8], visit: Visit) -> io::Result<bool> {
    let (Visit::Read(file) | Visit::Link(file) | Visit::Look(file)) = visit;
    let path = path(task, file);
    let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
    let seen = match visit {
        Visit::Read(_) => openat(directory, path.as_c_str(), FILE, Mode::empty())
            .and_then(|file| rustix::io::read(file, &mut buffer).map(drop)),
        Visit::Link(_) => readlinkat_raw(directory, path.as_c_str(), &mut buffer).map(drop),
        Visit::Look(_) => statat(directory, path.as_c_str(), AtFlags::empty()).map(drop),
    };
    black_box(&buffer);
    Ok(unless_missing(seen)?.is_some())
}

/// `TASK/FILE`, ending in a NUL.
struct Path {
    bytes: [u8; 64],
}

fn path(task: &[u8], file: &str) -> Path {
    let (mut path, mut len) = (Path { bytes: [0; 64] }, 0);
    for part in [task, b"/", file.as_bytes()] {
        path.bytes[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    path
}

impl Path {
    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).expect("names in /proc are short")
    }
}

fn unless_missing<T>(result: rustix::io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        // Gone, or unreadable for everybody, such as the first process of some sandboxes.
        Err(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Calls `each` for every name in the directory, except those of itself and its parent.
fn each_entry(directory: impl AsFd, mut each: impl FnMut(&CStr) -> io::Result<()>) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(directory, &mut room);
    while let Some(entry) = entries.next() {
        let Some(entry) = unless_missing(entry)? else { break };
        if entry.file_name().to_bytes()[0] != b'.' {
            each(entry.file_name())?;
        }
    }
    Ok(())
}

/// Calls `each` for every numeric name in the directory.
fn each_number(directory: impl AsFd, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    each_entry(directory, |name| match name.to_bytes() {
        name if name[0].is_ascii_digit() => each(name),
        _ => Ok(()),
    })
}
