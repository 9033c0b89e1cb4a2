//! Maps.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::memory::SharedMemory;
use super::{address, bpf, bpf_fd, fd_number, object_get, object_info, object_name, Command, NAME_LEN};

/// Types of maps: `enum bpf_map_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // bpf(2) has the meanings
pub enum MapKind {
    Hash = 1,
    Array = 2,
    PerCpuArray = 6,
    LruHash = 9,
    RingBuffer = 27,
}

/// Types with one value for each key rather than one for each processor.
const PLAIN_MAP_KINDS: [MapKind; 3] = [MapKind::Hash, MapKind::Array, MapKind::LruHash];

bitflags! {
    /// Flags of a new map.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MapFlags: u32 {
        /// Elements are allocated when they are added (`BPF_F_NO_PREALLOC`).
        const NO_PREALLOCATION = 1 << 0;
        /// Programs can't write to it (`BPF_F_RDONLY_PROG`).
        const READ_ONLY_PROGRAM = 1 << 7;
        /// It can be mapped into memory (`BPF_F_MMAPABLE`).
        const MMAPABLE = 1 << 10;
    }
}

/// Describes a new map.
#[derive(Clone, Copy, Debug)]
pub struct MapSpec<'a> {
    /// The type.
    pub kind: MapKind,
    /// The name, which bpftool shows.
    pub name: &'a str,
    /// The size of a key, in bytes.
    pub key_size: u32,
    /// The size of a value, in bytes.
    pub value_size: u32,
    /// The maximum number of elements; for a ring buffer, its size in bytes.
    pub max_entries: u32,
    /// The flags.
    pub flags: MapFlags,
}

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct MapCreateAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; NAME_LEN],
}

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct MapElementAttr {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The first members of `struct bpf_map_info`.
#[derive(Default, FromBytes, IntoBytes)]
#[repr(C)]
struct MapInfo {
    map_type: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// A map. It stores the sizes of its keys and values, because the kernel does not check the lengths
/// of the caller's buffers.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_size: usize,
    /// `None` for a map with a value for each processor.
    value_size: Option<usize>,
}

impl Map {
    /// Creates a map.
    pub fn create(spec: &MapSpec<'_>) -> io::Result<Self> {
        let attr = MapCreateAttr {
            map_type: spec.kind as u32,
            key_size: spec.key_size,
            value_size: spec.value_size,
            max_entries: spec.max_entries,
            map_flags: spec.flags.bits(),
            map_name: object_name(spec.name),
            ..Default::default()
        };
        // SAFETY: the structure has no pointers.
        let fd = unsafe { bpf_fd(Command::MapCreate, &attr)? };
        Ok(Self::with_sizes(fd, spec.kind as u32, spec.key_size, spec.value_size))
    }

    /// Opens a map that is pinned in a bpf file system.
    pub fn open(path: &CStr) -> io::Result<Self> {
        let fd = object_get(path)?;
        let mut info = MapInfo::default();
        object_info(fd.as_fd(), &mut info)?;
        Ok(Self::with_sizes(fd, info.map_type, info.key_size, info.value_size))
    }

    fn with_sizes(fd: OwnedFd, kind: u32, key_size: u32, value_size: u32) -> Self {
        let is_plain = PLAIN_MAP_KINDS.iter().any(|plain| *plain as u32 == kind);
        Self {
            fd,
            key_size: key_size as usize,
            value_size: is_plain.then_some(value_size as usize),
        }
    }

    /// Copies the value of `key` to `value`. False if the map does not have the key.
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        self.check_sizes(key, Some(value))?;
        let attr = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: check_sizes() has checked the lengths of key and value, and both are borrowed
        // until the call returns.
        found(unsafe { bpf(Command::MapLookup, &attr) })
    }

    /// Sets the value of `key`.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check_sizes(key, Some(value))?;
        let attr = self.element(key, address(value));
        // SAFETY: check_sizes() has checked the lengths of key and value, and the kernel only reads
        // them.
        unsafe { bpf(Command::MapUpdate, &attr) }.map(drop)
    }

    /// Removes `key`. False if the map does not have it.
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        self.check_sizes(key, None)?;
        let attr = self.element(key, 0);
        // SAFETY: check_sizes() has checked the length of the key, and the command uses no value.
        found(unsafe { bpf(Command::MapDelete, &attr) })
    }

    /// Replaces `key` by the one after it; without one, by the first. False after the last.
    pub fn next_key(&self, key: &mut Option<Vec<u8>>) -> io::Result<bool> {
        let mut next = vec![0; self.key_size];
        if let Some(key) = key.as_deref() {
            self.check_sizes(key, None)?;
        }
        let mut attr = self.element(key.as_deref().unwrap_or_default(), next.as_mut_ptr() as u64);
        if key.is_none() {
            attr.key = 0;
        }
        // SAFETY: both buffers have the size of a key, or there is none, and live until the call
        // returns.
        let is_there = found(unsafe { bpf(Command::MapNextKey, &attr) })?;
        *key = is_there.then_some(next);
        Ok(is_there)
    }

    /// Makes the map read-only for system calls.
    pub fn freeze(&self) -> io::Result<()> {
        // SAFETY: the structure is a descriptor and has no pointers.
        unsafe { bpf(Command::MapFreeze, &fd_number(self.fd.as_fd())) }.map(drop)
    }

    /// Maps the first `len` bytes of a [`MapFlags::MMAPABLE`] array. Its values follow one another,
    /// each padded to 8 bytes.
    pub fn share(&self, len: usize) -> io::Result<SharedMemory> {
        SharedMemory::map(self.fd.as_fd(), 0, len)
    }

    fn element(&self, key: &[u8], value: u64) -> MapElementAttr {
        MapElementAttr {
            map_fd: fd_number(self.fd.as_fd()),
            key: address(key),
            value,
            ..Default::default()
        }
    }

    fn check_sizes(&self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        let value_fits = value.is_none_or(|value| Some(value.len()) == self.value_size);
        if key.len() == self.key_size && value_fits {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn found(result: io::Result<libc::c_int>) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}
