//! Type information (BTF): the kernel's, and that of the programs.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::ptr;
use std::slice;

use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{Immutable, IntoBytes};

use super::{address, bpf, bpf_fd, fd_number, len_u32, ByIdAttr, Command, ObjectInfoAttr};
use crate::mapping::OwnMapping;

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct BtfLoadAttr {
    btf: u64,
    btf_log_buf: u64,
    btf_size: u32,
    btf_log_size: u32,
    btf_log_level: u32,
    padding: u32,
}

/// Loads the type information of a program into the kernel.
pub fn btf_load(btf: &[u8]) -> io::Result<OwnedFd> {
    let attr = BtfLoadAttr {
        btf: address(btf),
        btf_size: len_u32(btf)?,
        ..Default::default()
    };
    // SAFETY: `btf` lives until the call returns, and its length is next to its pointer.
    unsafe { bpf_fd(Command::BtfLoad, &attr) }
}

/// `struct bpf_btf_info`.
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct BtfInfo {
    btf: u64,
    btf_size: u32,
    id: u32,
    name: u64,
    name_len: u32,
    kernel_btf: u32,
}

/// The type information of the running kernel.
#[derive(Debug)]
pub struct KernelBtf(BtfBytes);

#[derive(Debug)]
enum BtfBytes {
    Mapped(OwnMapping),
    Read(Vec<u8>),
}

// SAFETY: nothing changes the mapping, so threads can read it at the same time.
unsafe impl Sync for BtfBytes {}

impl KernelBtf {
    /// Reads it in the fastest way that works on this kernel: mapped from sysfs (6.16), copied by
    /// one system call (5.11, with `CAP_SYS_ADMIN`), or read from sysfs, which returns one page at
    /// a time and takes several milliseconds.
    pub fn open() -> io::Result<Self> {
        let mut file = File::open("/sys/kernel/btf/vmlinux")?;
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Self::map(file.as_fd(), len)
            .or_else(|_| Self::copy(len))
            .or_else(|_| Self::read(&mut file, len))
    }

    fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let mapping = OwnMapping::of_file(file, 0, len, ProtFlags::READ, MapFlags::PRIVATE)?;
        Ok(Self(BtfBytes::Mapped(mapping)))
    }

    /// Copies the BTF object with id 1, which is that of vmlinux: the kernel creates it first.
    pub fn copy(len: usize) -> io::Result<Self> {
        const NAME: &[u8] = b"vmlinux\0";
        let attr = ByIdAttr {
            id: 1,
            ..Default::default()
        };
        // SAFETY: the structure has no pointers.
        let object = unsafe { bpf_fd(Command::BtfById, &attr)? };
        // Populating all pages at once is faster than a page fault for each.
        let mapping = OwnMapping::anonymous(len, MapFlags::POPULATE)?;
        let mut name = [0; NAME.len()];
        let mut info = BtfInfo {
            btf: mapping.as_ptr() as u64,
            btf_size: u32::try_from(len).map_err(io::Error::other)?,
            name: name.as_mut_ptr() as u64,
            name_len: NAME.len() as u32,
            ..Default::default()
        };
        let attr = ObjectInfoAttr {
            bpf_fd: fd_number(object.as_fd()),
            info_len: size_of::<BtfInfo>() as u32,
            info: ptr::from_mut(&mut info) as u64,
        };
        // SAFETY: the kernel writes to `info`, and to the mapping and `name` at most as many bytes
        // as `info` says.
        unsafe { bpf(Command::ObjectInfo, &attr)? };
        if name != NAME || info.kernel_btf != 1 || info.btf_size as usize != len {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self(BtfBytes::Mapped(mapping)))
    }

    /// Reads it from sysfs.
    pub fn read(file: &mut File, len: usize) -> io::Result<Self> {
        let mut bytes = Vec::with_capacity(len + 1);
        file.read_to_end(&mut bytes)?;
        Ok(Self(BtfBytes::Read(bytes)))
    }

    /// The bytes of the BTF.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: the mapping is readable, has this length, and lives as long as `self`.
            // Nothing changes it.
            BtfBytes::Mapped(mapping) => unsafe { slice::from_raw_parts(mapping.as_ptr(), mapping.len()) },
            BtfBytes::Read(bytes) => bytes,
        }
    }
}
