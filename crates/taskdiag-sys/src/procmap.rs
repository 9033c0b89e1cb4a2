//! `PROCMAP_QUERY`, the ioctl of `/proc/PID/maps` (Linux 6.11): one mapping at a time, in binary.

use std::os::fd::BorrowedFd;

use bitflags::bitflags;
use rustix::io::Errno;
use rustix::ioctl::{ioctl, opcode, Opcode, Updater};

/// The maximum length of a build id (`BUILD_ID_SIZE_MAX`).
pub const BUILD_ID_MAX: usize = 20;

/// The maximum length of a name, with its NUL (`PATH_MAX`).
pub const NAME_MAX: usize = 4096;

bitflags! {
    /// `enum procmap_query_flags`: the properties that the mapping must have, all of them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QueryFlags: u64 {
        /// It can be read.
        const READABLE = 0x01;
        /// It can be written to.
        const WRITABLE = 0x02;
        /// It can be executed.
        const EXECUTABLE = 0x04;
        /// It is shared (`VM_MAYSHARE`).
        const SHARED = 0x08;
        /// Not a property. If no mapping covers the address, the query returns the next one.
        const COVERING_OR_NEXT = 0x10;
        /// It maps a file.
        const FILE_BACKED = 0x20;
    }
}

/// `struct procmap_query` of `linux/fs.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct ProcmapQuery {
    size: u64,        // in
    query_flags: u64, // in
    query_addr: u64,  // in
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32, // in and out
    build_id_size: u32, // in and out
    vma_name_addr: u64, // in
    build_id_addr: u64, // in
}

/// `PROCFS_IOCTL_MAGIC` and the number of the call.
const REQUEST: Opcode = opcode::read_write::<ProcmapQuery>(b'f', 17);

// The size is a part of the ioctl's number.
const _: () = assert!(size_of::<ProcmapQuery>() == 104);

/// A mapping, as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    /// The first address.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
    /// The first four of [`QueryFlags`].
    pub flags: QueryFlags,
    /// The page size, in bytes.
    pub page_size: u64,
    /// The offset of `start` in the file, in bytes.
    pub offset: u64,
    /// The inode number of the file; 0 if it maps no file.
    pub inode: u64,
    /// The major number of the file's device.
    pub dev_major: u32,
    /// The minor number of the file's device.
    pub dev_minor: u32,
    /// The length of the name, without its NUL.
    pub name_len: usize,
    /// The length of the build id; 0 if the kernel finds none.
    pub build_id_len: usize,
}

/// Looks up a mapping, and writes its name and build id to `name` and `build_id`. An empty buffer
/// leaves that out.
///
/// # Errors
///
/// - `ENOENT`: no mapping matches.
/// - `ESRCH`: the process has no address space, or it is gone.
/// - `ENAMETOOLONG`: `name` is too short.
/// - `ENOTTY`: `maps` is not a maps file, or the kernel lacks the call.
/// - `EINVAL`: `build_id` is shorter than [`BUILD_ID_MAX`]. The ioctl is not called, because some
///   kernels would then corrupt their memory (before 61dc9f776705, "procfs: fix possible double
///   mmput() in do_procmap_query()").
pub fn query(
    maps: BorrowedFd<'_>,
    at: u64,
    flags: QueryFlags,
    name: &mut [u8],
    build_id: &mut [u8],
) -> Result<Vma, Errno> {
    if !build_id.is_empty() && build_id.len() < BUILD_ID_MAX {
        return Err(Errno::INVAL);
    }
    let address = |buffer: &mut [u8]| {
        if buffer.is_empty() {
            0
        } else {
            buffer.as_mut_ptr() as u64
        }
    };
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_flags: flags.bits(),
        query_addr: at,
        vma_name_size: name.len().min(NAME_MAX) as u32,
        vma_name_addr: address(name),
        build_id_size: build_id.len().min(BUILD_ID_MAX) as u32,
        build_id_addr: address(build_id),
        ..ProcmapQuery::default()
    };
    // SAFETY: the kernel reads and writes `query`, whose size is in `size`. It writes to the
    // buffers at most as many bytes as the sizes next to their addresses say, and they are borrowed
    // mutably. No other kind of file has an ioctl with this number, which includes the size of the
    // structure.
    unsafe { ioctl(maps, Updater::<REQUEST, ProcmapQuery>::new(&mut query))? };
    Ok(Vma {
        start: query.vma_start,
        end: query.vma_end,
        flags: QueryFlags::from_bits_truncate(query.vma_flags),
        page_size: query.vma_page_size,
        offset: query.vma_offset,
        inode: query.inode,
        dev_major: query.dev_major,
        dev_minor: query.dev_minor,
        name_len: (query.vma_name_size as usize).saturating_sub(1).min(name.len()),
        build_id_len: (query.build_id_size as usize).min(build_id.len()),
    })
}
