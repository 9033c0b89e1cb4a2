//! bpf(2): maps, programs, links, iterators, and the kernel's type information.
//!
//! The structure of each command ends after the last member that is used here; all others are zero.
//! The kernel accepts structures that are shorter than its own, and Linux 5.8 accepts all of these.

mod btf;
mod map;
mod memory;
mod program;
mod task_iterator;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;

use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use btf::{btf_load, KernelBtf};
pub use map::{Map, MapFlags, MapKind, MapSpec};
pub use memory::SharedMemory;
pub use program::{attach_tracepoint, load, missed_runs, run, verifier_log, AttachType, FunctionInfo, ProgramSpec};
pub use task_iterator::{iterate, link_tasks, TaskScope};

/// Commands of bpf(2).
#[derive(Clone, Copy)]
#[repr(i32)]
enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    MapNextKey = 4,
    ProgramLoad = 5,
    ObjectPin = 6,
    ObjectGet = 7,
    ProgramRun = 10,
    ProgramById = 13,
    MapById = 14,
    ObjectInfo = 15,
    RawTracepointOpen = 17,
    BtfLoad = 18,
    BtfById = 19,
    MapFreeze = 22,
    LinkCreate = 28,
    IteratorCreate = 33,
}

const NAME_LEN: usize = 16;

/// Calls bpf(2). The result is never negative.
///
/// # Safety
///
/// `A` must be a prefix of the command's part of `union bpf_attr`, without padding. Every pointer
/// in it must be valid for the length that is next to it, for writing where the command writes.
unsafe fn bpf<A: IntoBytes + Immutable>(command: Command, attr: &A) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads `size_of::<A>()` bytes of `attr`, all of which are initialized. The
    // caller guarantees the pointers in it.
    unsafe { bpf_raw(command, ptr::from_ref(attr).cast_mut()) }
}

/// Calls bpf(2) for a command that may write to its structure.
///
/// # Safety
///
/// As for [`bpf`]. If the command writes to the structure, `attr` must be valid for that.
unsafe fn bpf_raw<A>(command: Command, attr: *mut A) -> io::Result<libc::c_int> {
    // SAFETY: the caller guarantees what the kernel reads and writes.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_int, attr, size_of::<A>()) };
    match libc::c_int::try_from(result) {
        Ok(value) if value >= 0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Calls a command of bpf(2) that returns a new descriptor.
///
/// # Safety
///
/// As for [`bpf`].
unsafe fn bpf_fd<A: IntoBytes + Immutable>(command: Command, attr: &A) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees the same.
    let fd = unsafe { bpf(command, attr)? };
    // SAFETY: the kernel has just opened this descriptor for us, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address<T: ?Sized>(of: &T) -> u64 {
    ptr::from_ref(of).cast::<u8>() as u64
}

fn fd_number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// The length of a buffer, for a 32-bit member.
fn len_u32<T>(items: &[T]) -> io::Result<u32> {
    u32::try_from(items.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// A name in the form that the kernel accepts: at most 15 bytes, without the bytes that it refuses.
fn object_name(name: &str) -> [u8; NAME_LEN] {
    let mut stored = [0; NAME_LEN];
    let accepted = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    for (to, from) in stored[..NAME_LEN - 1].iter_mut().zip(name.bytes().filter(accepted)) {
        *to = from;
    }
    stored
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ObjectPathAttr {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

/// Pins a map, program or link at a path in a bpf file system, which keeps it alive.
pub fn object_pin(object: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    let attr = ObjectPathAttr {
        pathname: path.as_ptr() as u64,
        bpf_fd: fd_number(object),
        file_flags: 0,
    };
    // SAFETY: the path ends with a NUL and lives until the call returns.
    unsafe { bpf(Command::ObjectPin, &attr) }.map(drop)
}

/// Opens the object that is pinned at `path`.
pub fn object_get(path: &CStr) -> io::Result<OwnedFd> {
    let attr = ObjectPathAttr {
        pathname: path.as_ptr() as u64,
        bpf_fd: 0,
        file_flags: 0,
    };
    // SAFETY: the path ends with a NUL and lives until the call returns.
    unsafe { bpf_fd(Command::ObjectGet, &attr) }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ObjectInfoAttr {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// Reads the kernel's description of an object.
fn object_info<I: FromBytes + IntoBytes>(object: BorrowedFd<'_>, info: &mut I) -> io::Result<()> {
    let attr = ObjectInfoAttr {
        bpf_fd: fd_number(object),
        info_len: size_of_val(info) as u32,
        info: ptr::from_mut(info) as u64,
    };
    // SAFETY: the kernel writes at most `info_len` bytes to `info`, which is borrowed mutably, and
    // any bytes are valid there. It writes through no pointer in `info`, because the lengths of
    // those are 0.
    unsafe { bpf(Command::ObjectInfo, &attr) }.map(drop)
}

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct ByIdAttr {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// A map or a program, by the number that the kernel gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // bpf(2) has the meanings
pub enum ObjectId {
    Map(u32),
    Program(u32),
}

impl ObjectId {
    /// The name that its creator gave it, of at most 15 bytes; empty without one. This needs
    /// `CAP_SYS_ADMIN`.
    pub fn name(self) -> io::Result<Vec<u8>> {
        const READ_ONLY: u32 = 1 << 3;
        // The last number is the place in `struct bpf_map_info` and `struct bpf_prog_info`.
        let (command, id, open_flags, place) = match self {
            Self::Map(id) => (Command::MapById, id, READ_ONLY, 24),
            Self::Program(id) => (Command::ProgramById, id, 0, 64),
        };
        let attr = ByIdAttr {
            id,
            next_id: 0,
            open_flags,
        };
        // SAFETY: the structure has no pointers.
        let object = unsafe { bpf_fd(command, &attr)? };
        let mut info = [0; 64 + NAME_LEN];
        object_info(object.as_fd(), &mut info)?;
        let name = info[place..][..NAME_LEN].split(|&byte| byte == 0).next();
        Ok(name.unwrap_or_default().to_vec())
    }
}
