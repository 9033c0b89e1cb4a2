//! bpf(2), the maps it shares with us, and the kernel's type information.
//!
//! Each command's structure is cut off after the last member used, and zero but for those: the kernel takes shorter ones
//! than its own, and Linux 5.8 takes all of these.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;
use std::ptr::NonNull;
use std::slice;

use bitflags::bitflags;
use rustix::mm::{mmap, mmap_anonymous, munmap, MapFlags as MmapFlags, ProtFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::signals::Deferral;

/// Commands of bpf(2).
#[derive(Clone, Copy)]
#[repr(i32)]
enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgramLoad = 5,
    ObjectPin = 6,
    ObjectGet = 7,
    ProgramRun = 10,
    ObjectInfo = 15,
    RawTracepointOpen = 17,
    BtfLoad = 18,
    BtfById = 19,
    MapFreeze = 22,
    LinkCreate = 28,
    IteratorCreate = 33,
}

const PROGRAM_TYPE_TRACING: u32 = 26;
const PROGRAM_TYPE_SYSCALL: u32 = 31;
const PROGRAM_SLEEPABLE: u32 = 1 << 4;
const NAME_LEN: usize = 16;

/// Calls bpf(2). A descriptor it returns is negative never, and ours to close.
///
/// # Safety
///
/// `A` must begin like the command's part of `union bpf_attr` and have no padding, and every pointer in it must be valid
/// for the length that stands beside it, for writing where the command writes.
unsafe fn bpf<A: IntoBytes + Immutable>(command: Command, attr: &A) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads `size_of::<A>()` bytes of `attr`, all of them initialised; the pointers in it are
    // the caller's to answer for.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_int,
            ptr::from_ref(attr),
            mem::size_of::<A>(),
        )
    };
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
    // SAFETY: passed on to our caller.
    let fd = unsafe { bpf(command, attr)? };
    // SAFETY: the kernel has just opened this descriptor for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address<T: ?Sized>(of: &T) -> u64 {
    ptr::from_ref(of).cast::<u8>() as u64
}

fn fd_number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// Length of a buffer, for a member of 32 bits.
fn len_u32<T>(items: &[T]) -> io::Result<u32> {
    u32::try_from(items.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// A name as the kernel stores it: 15 bytes at most, and only those it accepts.
fn object_name(name: &str) -> [u8; NAME_LEN] {
    let mut stored = [0; NAME_LEN];
    let accepted = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    for (to, from) in stored[..NAME_LEN - 1].iter_mut().zip(name.bytes().filter(accepted)) {
        *to = from;
    }
    stored
}

/// Types of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // the kernel's names
pub enum MapKind {
    Hash = 1,
    Array = 2,
    PerCpuArray = 6,
    LruHash = 9,
    RingBuffer = 27,
}

/// Those with one value for a key, not one for each processor.
const PLAIN_MAP_KINDS: [MapKind; 3] = [MapKind::Hash, MapKind::Array, MapKind::LruHash];

bitflags! {
    /// How a map is made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MapFlags: u32 {
        /// Elements are allocated when they are added.
        const NO_PREALLOCATION = 1 << 0;
        /// Programs can't write to it.
        const READ_ONLY_PROGRAM = 1 << 7;
        /// It can be mapped into memory.
        const MMAPABLE = 1 << 10;
    }
}

/// A map to be made.
#[derive(Clone, Copy, Debug)]
pub struct MapSpec<'a> {
    /// Its type.
    pub kind: MapKind,
    /// Name shown by bpftool.
    pub name: &'a str,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Most elements.
    pub max_entries: u32,
    /// How it is made.
    pub flags: MapFlags,
}

#[derive(IntoBytes, Immutable)]
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

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct MapElementAttr {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A map with the sizes of its keys and values: the kernel trusts our buffers to have them.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_size: usize,
    /// `None` for maps with a value for each processor.
    value_size: Option<usize>,
}

impl Map {
    /// Makes a map.
    pub fn create(spec: &MapSpec<'_>) -> io::Result<Self> {
        let attr = MapCreateAttr {
            map_type: spec.kind as u32,
            key_size: spec.key_size,
            value_size: spec.value_size,
            max_entries: spec.max_entries,
            map_flags: spec.flags.bits(),
            inner_map_fd: 0,
            numa_node: 0,
            map_name: object_name(spec.name),
        };
        // SAFETY: the structure has no pointers.
        let fd = unsafe { bpf_fd(Command::MapCreate, &attr)? };
        Ok(Self::with_sizes(fd, spec.kind as u32, spec.key_size, spec.value_size))
    }

    /// Opens a map pinned in a bpf file system.
    pub fn open(path: &CStr) -> io::Result<Self> {
        let fd = object_get(path)?;
        let mut info = MapInfo::default();
        object_info(fd.as_fd(), &mut info)?;
        Ok(Self::with_sizes(fd, info.map_type, info.key_size, info.value_size))
    }

    fn with_sizes(fd: OwnedFd, kind: u32, key_size: u32, value_size: u32) -> Self {
        let one_value = PLAIN_MAP_KINDS.iter().any(|plain| *plain as u32 == kind);
        Self {
            fd,
            key_size: key_size as usize,
            value_size: one_value.then_some(value_size as usize),
        }
    }

    /// Copies the value of `key` to `value`; false if there is none.
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        self.check_sizes(key, Some(value))?;
        let attr = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: key and value have the map's sizes (check_sizes()), and live and borrowed until the call returns.
        found(unsafe { bpf(Command::MapLookup, &attr) })
    }

    /// Sets the value of `key`.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check_sizes(key, Some(value))?;
        let attr = self.element(key, address(value));
        // SAFETY: key and value have the map's sizes (check_sizes()), and the kernel only reads them.
        unsafe { bpf(Command::MapUpdate, &attr) }.map(drop)
    }

    /// Removes `key`; false if it was not there.
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        self.check_sizes(key, None)?;
        let attr = self.element(key, 0);
        // SAFETY: the key has the map's size (check_sizes()); no value is used.
        found(unsafe { bpf(Command::MapDelete, &attr) })
    }

    /// Lets nobody change the map through its descriptor any more.
    pub fn freeze(&self) -> io::Result<()> {
        // SAFETY: the structure is a descriptor alone.
        unsafe { bpf(Command::MapFreeze, &fd_number(self.fd.as_fd())) }.map(drop)
    }

    /// Maps `len` bytes of a [`MapFlags::MMAPABLE`] array, values following one another, each padded to 8 bytes.
    pub fn share(&self, len: usize) -> io::Result<SharedMemory> {
        SharedMemory::map(self.fd.as_fd(), 0, len)
    }

    /// The same of `len` bytes from `offset` on, a multiple of the size of a page (Linux 5.5).
    pub fn share_part(&self, offset: usize, len: usize) -> io::Result<SharedMemory> {
        SharedMemory::map(self.fd.as_fd(), offset, len)
    }

    fn element(&self, key: &[u8], value: u64) -> MapElementAttr {
        MapElementAttr {
            map_fd: fd_number(self.fd.as_fd()),
            padding: 0,
            key: address(key),
            value,
            flags: 0,
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

/// Memory of an array map, shared with the programs that use it; or of a file, shared with the processes that have it.
///
/// A program may change it at any time it runs, so single values are read and written as volatile. Use of what is no more in a file
/// that has become shorter ends this process.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and to no particular thread. (It is not `Sync`: writes are not atomic.)
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Maps a part of a map or file, which begins at a whole page.
    pub fn map(fd: BorrowedFd<'_>, offset: usize, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address of the kernel's choice; it touches no memory in use.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MmapFlags::SHARED,
                fd,
                offset as u64,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, len })
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes, which the kernel does not allow.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Where a `T` at `offset` is; `None` if it would not be within, or not be aligned.
    fn place<T>(&self, offset: usize) -> Option<*mut T> {
        let end = offset.checked_add(mem::size_of::<T>())?;
        if end > self.len || offset % mem::align_of::<T>() != 0 {
            return None;
        }
        Some(self.start.as_ptr().wrapping_add(offset).cast())
    }

    /// Reads the value at `offset`.
    pub fn read<T: FromBytes>(&self, offset: usize) -> Option<T> {
        let place = self.place(offset)?;
        // SAFETY: within the mapping and aligned (place(); the start is page-aligned); any bytes make a `T`.
        Some(unsafe { ptr::read_volatile(place) })
    }

    /// Writes a value at `offset`; `None` if there is no place for it.
    pub fn write<T: IntoBytes>(&mut self, offset: usize, value: T) -> Option<()> {
        let place = self.place(offset)?;
        // SAFETY: within the mapping and aligned (place()); `T` has no padding that would leak bytes of ours.
        unsafe { ptr::write_volatile(place, value) };
        Some(())
    }

    /// Writes bytes at `offset`: all, or none if there is no room.
    pub fn write_bytes(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        if offset > self.len || bytes.len() > self.len - offset {
            return None;
        }
        // SAFETY: within the mapping, and no slice of it is lent while it is borrowed for writing.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len()) };
        Some(())
    }

    /// The bytes of `range`; `None` if it is not within.
    ///
    /// # Safety
    ///
    /// No program may write to that range as long as the slice lives: the caller knows that none runs, or that those
    /// which run write elsewhere.
    pub unsafe fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        // SAFETY: within the mapping, which lives as long as `self`; nobody writes to it, says our caller.
        Some(unsafe { slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        unmap(self.start, self.len);
    }
}

/// Ends a mapping of ours.
fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: called once for each mapping, from the `drop` of its only owner, who lends nothing beyond its own life.
    let result = unsafe { munmap(start.as_ptr().cast(), len) };
    debug_assert!(result.is_ok(), "munmap: {result:?}");
}

/// What programs are attached to: `enum bpf_attach_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AttachType {
    /// None: a program that a system call runs ([`run`], Linux 5.14).
    Nothing = 0,
    /// A tracepoint, with its arguments as the kernel's own code has them.
    RawTracepoint = 23,
    /// An iterator.
    TraceIterator = 28,
}

/// A program to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct ProgramSpec<'a> {
    /// Name shown by bpftool.
    pub name: &'a str,
    /// Its licence, as the kernel knows them.
    pub licence: &'a CStr,
    /// Its instructions.
    pub instructions: &'a [u64],
    /// What kind of thing it is attached to.
    pub attach: AttachType,
    /// The type that stands for that.
    pub attach_to: u32,
    /// What functions it is made of, if the verifier needs to know.
    pub functions: Option<FunctionInfo<'a>>,
}

/// The functions of a program.
#[derive(Clone, Copy, Debug)]
pub struct FunctionInfo<'a> {
    /// A BTF with their types.
    pub btf: BorrowedFd<'a>,
    /// First instruction and type of each.
    pub records: &'a [[u32; 2]],
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ProgramLoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; NAME_LEN],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

/// Loads a program.
pub fn load(spec: &ProgramSpec<'_>) -> io::Result<OwnedFd> {
    load_with_log(spec, &mut [])
}

/// Longest log that every kernel since 5.8 agrees to write.
const LOG_LEN: usize = (u32::MAX >> 8) as usize;

/// What the verifier says of a program that does not load. Empty if it has nothing to say, or does load now.
pub fn verifier_log(spec: &ProgramSpec<'_>) -> String {
    let mut log = vec![0; LOG_LEN];
    let _refused_again = load_with_log(spec, &mut log);
    let len = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    log.truncate(len);
    String::from_utf8_lossy(&log).into_owned()
}

/// The verifier gives up with EAGAIN when a signal arrives. Signals are kept away then, all that can be; it is tried so many
/// times in all, as libbpf does.
const LOAD_ATTEMPTS: u32 = 5;

fn load_with_log(spec: &ProgramSpec<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let functions = spec.functions;
    // The kernel takes programs of system calls only if they may sleep.
    let (prog_type, prog_flags) = match spec.attach {
        AttachType::Nothing => (PROGRAM_TYPE_SYSCALL, PROGRAM_SLEEPABLE),
        _ => (PROGRAM_TYPE_TRACING, 0),
    };
    let attr = ProgramLoadAttr {
        prog_type,
        insn_cnt: len_u32(spec.instructions)?,
        insns: address(spec.instructions),
        license: spec.licence.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: len_u32(log)?,
        log_buf: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kern_version: 0,
        prog_flags,
        prog_name: object_name(spec.name),
        prog_ifindex: 0,
        expected_attach_type: spec.attach as u32,
        prog_btf_fd: functions.map_or(0, |functions| fd_number(functions.btf)),
        func_info_rec_size: functions.map_or(0, |_| mem::size_of::<[u32; 2]>() as u32),
        func_info: functions.map_or(0, |functions| address(functions.records)),
        func_info_cnt: match functions {
            Some(functions) => len_u32(functions.records)?,
            None => 0,
        },
        line_info_rec_size: 0,
        line_info: 0,
        line_info_cnt: 0,
        attach_btf_id: spec.attach_to,
    };
    let mut attempts = LOAD_ATTEMPTS;
    let mut deferral = None;
    loop {
        attempts -= 1;
        // SAFETY: instructions, licence, log and function records live in `spec` and `log` until the call returns, each
        // with its own length beside it, the licence ended by a zero byte; the kernel writes to the log only, which is
        // borrowed mutably.
        match unsafe { bpf_fd(Command::ProgramLoad, &attr) } {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && attempts > 0 => {
                deferral.get_or_insert_with(Deferral::begin);
            }
            result => return result,
        }
    }
}

/// The command's structure as far as these programs use it, and to its end in Linux 5.14.
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct ProgramRunAttr {
    prog_fd: u32,
    retval: u32,
    unused: [u64; 8],
}

/// Runs a program that is attached to nothing, once, for this thread.
pub fn run(program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = ProgramRunAttr {
        prog_fd: fd_number(program),
        ..ProgramRunAttr::default()
    };
    // SAFETY: the structure has no pointers, its lengths are zero; the kernel writes the program's result into it, for which it
    // is ours alone.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            Command::ProgramRun as libc::c_int,
            ptr::from_mut(&mut attr),
            mem::size_of::<ProgramRunAttr>(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct BtfLoadAttr {
    btf: u64,
    btf_log_buf: u64,
    btf_size: u32,
    btf_log_size: u32,
    btf_log_level: u32,
    padding: u32,
}

/// Gives the kernel type information of ours.
pub fn btf_load(btf: &[u8]) -> io::Result<OwnedFd> {
    let attr = BtfLoadAttr {
        btf: address(btf),
        btf_log_buf: 0,
        btf_size: len_u32(btf)?,
        btf_log_size: 0,
        btf_log_level: 0,
        padding: 0,
    };
    // SAFETY: `btf` lives until the call returns, and its length stands beside it.
    unsafe { bpf_fd(Command::BtfLoad, &attr) }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ObjectPathAttr {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

/// Gives a map, program or link a name in a bpf file system, which keeps it alive.
pub fn object_pin(object: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    let attr = ObjectPathAttr {
        pathname: path.as_ptr() as u64,
        bpf_fd: fd_number(object),
        file_flags: 0,
    };
    // SAFETY: the path ends with a zero byte and lives until the call returns.
    unsafe { bpf(Command::ObjectPin, &attr) }.map(drop)
}

/// Opens what is pinned at `path`.
pub fn object_get(path: &CStr) -> io::Result<OwnedFd> {
    let attr = ObjectPathAttr {
        pathname: path.as_ptr() as u64,
        bpf_fd: 0,
        file_flags: 0,
    };
    // SAFETY: the path ends with a zero byte and lives until the call returns.
    unsafe { bpf_fd(Command::ObjectGet, &attr) }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ObjectInfoAttr {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// The first part of `struct bpf_map_info`.
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

/// `struct bpf_prog_info` up to the last member that we ask for.
#[derive(Default, FromBytes, IntoBytes)]
#[repr(C)]
struct ProgramInfo {
    before: [u64; 26],
    recursion_misses: u64,
}

/// How often a program was not run because it was running already, on the same processor (Linux 5.12).
pub fn missed_runs(program: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = ProgramInfo::default();
    object_info(program, &mut info)?;
    Ok(info.recursion_misses)
}

/// Asks what an object is.
fn object_info<I: FromBytes + IntoBytes>(object: BorrowedFd<'_>, info: &mut I) -> io::Result<()> {
    let attr = ObjectInfoAttr {
        bpf_fd: fd_number(object),
        info_len: mem::size_of_val(info) as u32,
        info: ptr::from_mut(info) as u64,
    };
    // SAFETY: the kernel writes at most `info_len` bytes to `info`, which is borrowed mutably; any bytes are valid there.
    // It writes through no pointer in it, as the lengths beside those are zero.
    unsafe { bpf(Command::ObjectInfo, &attr) }.map(drop)
}

/// The tasks an iterator visits.
#[derive(Clone, Copy, Debug)]
pub enum TaskScope<'a> {
    /// All threads of the opener's pid namespace.
    All,
    /// One thread (Linux 6.1; before 6.12 and its back-ports only thread-group leaders are found).
    Thread(u32),
    /// All threads of a process (Linux 6.1).
    Process(u32),
    /// All threads of a process (Linux 6.1).
    PidFd(BorrowedFd<'a>),
}

/// `union bpf_iter_link_info`, as far as tasks use it.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct TaskLinkInfo {
    tid: u32,
    pid: u32,
    pid_fd: u32,
}

#[derive(IntoBytes, Immutable)]
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

/// Attaches an iterator program to the tasks it is to visit.
pub fn link_tasks(program: BorrowedFd<'_>, scope: TaskScope<'_>) -> io::Result<OwnedFd> {
    let nothing = TaskLinkInfo {
        tid: 0,
        pid: 0,
        pid_fd: 0,
    };
    let info = match scope {
        TaskScope::All => None,
        TaskScope::Thread(tid) => Some(TaskLinkInfo { tid, ..nothing }),
        TaskScope::Process(pid) => Some(TaskLinkInfo { pid, ..nothing }),
        TaskScope::PidFd(pid_fd) => Some(TaskLinkInfo {
            pid_fd: fd_number(pid_fd),
            ..nothing
        }),
    };
    let attr = LinkCreateAttr {
        prog_fd: fd_number(program),
        target_fd: 0,
        attach_type: AttachType::TraceIterator as u32,
        flags: 0,
        iter_info: info.as_ref().map_or(0, address),
        iter_info_len: info.as_ref().map_or(0, |info| mem::size_of_val(info) as u32),
        padding: 0,
    };
    // SAFETY: `info` lives until the call returns, and its length stands beside it.
    unsafe { bpf_fd(Command::LinkCreate, &attr) }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct RawTracepointOpenAttr {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

/// Attaches a program to the tracepoint that it was loaded for, until what is returned is closed.
pub fn attach_tracepoint(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attr = RawTracepointOpenAttr {
        name: 0,
        prog_fd: fd_number(program),
        padding: 0,
    };
    // SAFETY: the structure has no pointers: a program that was loaded for a tracepoint wants no name.
    unsafe { bpf_fd(Command::RawTracepointOpen, &attr) }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct IteratorCreateAttr {
    link_fd: u32,
    flags: u32,
}

/// Starts a pass: reading the file runs the program.
pub fn iterate(link: BorrowedFd<'_>) -> io::Result<File> {
    let attr = IteratorCreateAttr {
        link_fd: fd_number(link),
        flags: 0,
    };
    // SAFETY: the structure has no pointers.
    unsafe { bpf_fd(Command::IteratorCreate, &attr) }.map(File::from)
}

/// `struct bpf_btf_info`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct BtfInfo {
    btf: u64,
    btf_size: u32,
    id: u32,
    name: u64,
    name_len: u32,
    kernel_btf: u32,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ByIdAttr {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// The running kernel's type information.
#[derive(Debug)]
pub struct KernelBtf(BtfBytes);

#[derive(Debug)]
enum BtfBytes {
    Mapped { start: NonNull<u8>, len: usize },
    Read(Vec<u8>),
}

// SAFETY: the mapping belongs to this value alone and to no particular thread.
unsafe impl Send for BtfBytes {}
// SAFETY: once made, nobody writes to it, neither we nor the kernel.
unsafe impl Sync for BtfBytes {}

impl KernelBtf {
    /// Gets it in the quickest way this kernel has: mapped (6.16), copied by one system call (5.11 and CAP_SYS_ADMIN), or
    /// read from sysfs, which hands out a page at a time and takes several milliseconds.
    pub fn open() -> io::Result<Self> {
        let mut file = File::open("/sys/kernel/btf/vmlinux")?;
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Self::map(file.as_fd(), len)
            .or_else(|_| Self::copy(len))
            .or_else(|_| Self::read(&mut file, len))
    }

    fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address of the kernel's choice; it touches no memory in use.
        let start = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MmapFlags::PRIVATE, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self(BtfBytes::Mapped { start, len }))
    }

    /// Asks for the BTF object numbered 1, which is vmlinux's: it is the first the kernel makes.
    pub fn copy(len: usize) -> io::Result<Self> {
        const NAME: &[u8] = b"vmlinux\0";
        let attr = ByIdAttr {
            id: 1,
            next_id: 0,
            open_flags: 0,
        };
        // SAFETY: the structure has no pointers.
        let object = unsafe { bpf_fd(Command::BtfById, &attr)? };
        // All its pages at once, which is quicker than one after the other when first touched.
        // SAFETY: a new mapping, at an address of the kernel's choice; it touches no memory in use.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MmapFlags::PRIVATE | MmapFlags::POPULATE,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let copied = Self(BtfBytes::Mapped { start, len });
        let mut name = [0; NAME.len()];
        let mut info = BtfInfo {
            btf: start.as_ptr() as u64,
            btf_size: u32::try_from(len).map_err(io::Error::other)?,
            id: 0,
            name: name.as_mut_ptr() as u64,
            name_len: NAME.len() as u32,
            kernel_btf: 0,
        };
        let attr = ObjectInfoAttr {
            bpf_fd: fd_number(object.as_fd()),
            info_len: mem::size_of::<BtfInfo>() as u32,
            info: ptr::from_mut(&mut info) as u64,
        };
        // SAFETY: the kernel writes to `info`, and at most the lengths in there to the mapping and to `name`.
        unsafe { bpf(Command::ObjectInfo, &attr)? };
        if name != NAME || info.kernel_btf != 1 || info.btf_size as usize != len {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(copied)
    }

    /// Reads it from sysfs.
    pub fn read(file: &mut File, len: usize) -> io::Result<Self> {
        let mut bytes = Vec::with_capacity(len + 1);
        file.read_to_end(&mut bytes)?;
        Ok(Self(BtfBytes::Read(bytes)))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: mapped for reading with this length until we are dropped; the kernel never changes it.
            BtfBytes::Mapped { start, len } => unsafe { slice::from_raw_parts(start.as_ptr(), *len) },
            BtfBytes::Read(bytes) => bytes,
        }
    }
}

impl Drop for BtfBytes {
    fn drop(&mut self) {
        if let Self::Mapped { start, len } = self {
            unmap(*start, *len);
        }
    }
}
