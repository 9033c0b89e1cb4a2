//! `PROCMAP_QUERY`, the ioctl of `/proc/PID/maps` (Linux 6.11): one mapping at a time, in binary.

use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use bitflags::bitflags;
use rustix::io::Errno;

/// The longest build id that the kernel gives (`BUILD_ID_SIZE_MAX`).
pub const BUILD_ID_MAX: usize = 20;

/// Room for any name that the kernel gives (`PATH_MAX`), its NUL included.
pub const NAME_MAX: usize = 4096;

bitflags! {
    /// Which mapping is meant: it must have all of these, and the last one changes where it may be.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QueryFlags: u64 {
        /// It can be read.
        const READABLE = 0x01;
        /// It can be written to.
        const WRITABLE = 0x02;
        /// It can be executed.
        const EXECUTABLE = 0x04;
        /// Changes are seen by others who map the same (`VM_MAYSHARE`).
        const SHARED = 0x08;
        /// The one that covers the address, or else the next one after it.
        const COVERING_OR_NEXT = 0x10;
        /// It is of a file.
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

const REQUEST: libc::Ioctl = libc::_IOWR::<ProcmapQuery>(b'f' as u32, 17);

// The kernel knows the call by its size too: a structure of another one would be another call.
const _: () = assert!(size_of::<ProcmapQuery>() == 104);

/// A mapping as the kernel gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    /// Its first address.
    pub start: u64,
    /// The address after its last one.
    pub end: u64,
    /// Of [`QueryFlags`], the first four.
    pub flags: QueryFlags,
    /// Size of its pages.
    pub page_size: u64,
    /// Where it begins in its file.
    pub offset: u64,
    /// Inode number of its file, 0 if it has none.
    pub inode: u64,
    /// Major number of the file's device.
    pub dev_major: u32,
    /// Minor number of the file's device.
    pub dev_minor: u32,
    /// Bytes of the name, without NUL.
    pub name_len: usize,
    /// Bytes of the build id; 0 if the kernel finds none.
    pub build_id_len: usize,
}

/// Asks for a mapping. `name` and `build_id` are filled unless they are empty, in which case they are not asked for.
///
/// `ENOENT`: no mapping is meant by that. `ESRCH`: the address space is gone, or there never was one. `ENAMETOOLONG`: `name`
/// is too short. `ENOTTY`: not a maps file, or a kernel that lacks the call.
///
/// A build id buffer shorter than [`BUILD_ID_MAX`] is refused with `EINVAL`: some kernels corrupt their memory on one
/// (before 61dc9f776705, "procfs: fix possible double mmput() in do_procmap_query()").
pub fn query(
    maps: BorrowedFd<'_>,
    address: u64,
    flags: QueryFlags,
    name: &mut [u8],
    build_id: &mut [u8],
) -> Result<Vma, Errno> {
    if !build_id.is_empty() && build_id.len() < BUILD_ID_MAX {
        return Err(Errno::INVAL);
    }
    let place = |buffer: &mut [u8]| {
        if buffer.is_empty() {
            0
        } else {
            buffer.as_mut_ptr() as u64
        }
    };
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_flags: flags.bits(),
        query_addr: address,
        vma_name_size: name.len().min(NAME_MAX) as u32,
        vma_name_addr: place(name),
        build_id_size: build_id.len().min(BUILD_ID_MAX) as u32,
        build_id_addr: place(build_id),
        ..ProcmapQuery::default()
    };
    // SAFETY: the kernel reads and writes `query`, which has the size that its `size` says, and writes no more than the
    // sizes beside their addresses to the buffers, which are borrowed mutably. A descriptor of another kind of file
    // takes this number for no call of its own: it carries type and size.
    let result = unsafe { libc::ioctl(maps.as_raw_fd(), REQUEST, &mut query) };
    if result != 0 {
        // SAFETY: the address of this thread's own errno, which lives as long as the thread.
        return Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }));
    }
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
