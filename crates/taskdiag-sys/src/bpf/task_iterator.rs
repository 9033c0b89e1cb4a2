//! Iterators over tasks.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use zerocopy::{Immutable, IntoBytes};

use super::program::AttachType;
use super::{address, bpf_fd, fd_number, Command};

/// The tasks that an iterator visits.
#[derive(Clone, Copy, Debug)]
pub enum TaskScope {
    /// All threads in the opener's pid namespace.
    All,
    /// One thread (Linux 6.1). Kernels before 6.12, without its back-ports, find thread-group
    /// leaders only.
    Thread(u32),
    /// All threads of a process (Linux 6.1).
    Process(u32),
}

/// The part of `union bpf_iter_link_info` that is about tasks.
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct TaskLinkInfo {
    tid: u32,
    pid: u32,
    pid_fd: u32,
}

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct LinkCreateAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    iter_info: u64,
    iter_info_len: u32,
    padding: u32,
}

/// Attaches an iterator program to the tasks that it will visit.
pub fn link_tasks(program: BorrowedFd<'_>, scope: TaskScope) -> io::Result<OwnedFd> {
    let unset = TaskLinkInfo::default();
    let info = match scope {
        TaskScope::All => None,
        TaskScope::Thread(tid) => Some(TaskLinkInfo { tid, ..unset }),
        TaskScope::Process(pid) => Some(TaskLinkInfo { pid, ..unset }),
    };
    let attr = LinkCreateAttr {
        prog_fd: fd_number(program),
        attach_type: AttachType::TraceIterator as u32,
        iter_info: info.as_ref().map_or(0, address),
        iter_info_len: info.as_ref().map_or(0, |info| size_of_val(info) as u32),
        ..Default::default()
    };
    // SAFETY: `info` lives until the call returns, and its length is next to its pointer.
    unsafe { bpf_fd(Command::LinkCreate, &attr) }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct IteratorCreateAttr {
    link_fd: u32,
    flags: u32,
}

/// Opens an iterator for one pass. Reading the file runs the program.
pub fn iterate(link: BorrowedFd<'_>) -> io::Result<File> {
    let attr = IteratorCreateAttr {
        link_fd: fd_number(link),
        flags: 0,
    };
    // SAFETY: the structure has no pointers.
    unsafe { bpf_fd(Command::IteratorCreate, &attr) }.map(File::from)
}
