//! Programs: loading, running and attaching them.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{address, bpf_fd, bpf_raw, fd_number, len_u32, object_info, object_name, Command, NAME_LEN};
use crate::signals::SignalsBlocked;

const PROGRAM_TYPE_TRACING: u32 = 26;
const PROGRAM_TYPE_SYSCALL: u32 = 31;
const PROGRAM_SLEEPABLE: u32 = 1 << 4;

/// What a program is attached to: `enum bpf_attach_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AttachType {
    /// Nothing: a system call runs it ([`run`], Linux 5.14).
    Nothing = 0,
    /// A tracepoint, whose arguments it gets as typed pointers (`BPF_TRACE_RAW_TP`).
    RawTracepoint = 23,
    /// An iterator (`BPF_TRACE_ITER`).
    TraceIterator = 28,
}

/// Describes a program to load.
#[derive(Clone, Copy, Debug)]
pub struct ProgramSpec<'a> {
    /// The name, which bpftool shows.
    pub name: &'a str,
    /// The licence, as MODULE_LICENSE() spells it.
    pub licence: &'a CStr,
    /// The instructions.
    pub instructions: &'a [u64],
    /// What it is attached to.
    pub attach: AttachType,
    /// The kernel's BTF type that identifies the tracepoint or iterator.
    pub attach_to: u32,
    /// Its functions, which the verifier must know if any is global.
    pub functions: Option<FunctionInfo<'a>>,
}

/// The functions of a program.
#[derive(Clone, Copy, Debug)]
pub struct FunctionInfo<'a> {
    /// The BTF with their types.
    pub btf: BorrowedFd<'a>,
    /// The first instruction and the type of each.
    pub records: &'a [[u32; 2]],
}

#[derive(Default, IntoBytes, Immutable)]
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

/// The maximum length of a log that every kernel since 5.8 accepts.
const LOG_LEN: usize = (u32::MAX >> 8) as usize;

/// Loads a refused program again, for the verifier's log. Empty if there is no log, or if the
/// program loads this time.
pub fn verifier_log(spec: &ProgramSpec<'_>) -> String {
    let mut log = vec![0; LOG_LEN];
    let _refused_again = load_with_log(spec, &mut log);
    let len = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    log.truncate(len);
    String::from_utf8_lossy(&log).into_owned()
}

/// How often to try to load a program: the verifier fails with `EAGAIN` when a signal arrives.
/// Signals are blocked after the first failure. libbpf tries as often.
const LOAD_ATTEMPTS: u32 = 5;

fn load_with_log(spec: &ProgramSpec<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let functions = spec.functions;
    // The kernel accepts programs for system calls only if they may sleep.
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
        prog_flags,
        prog_name: object_name(spec.name),
        expected_attach_type: spec.attach as u32,
        prog_btf_fd: functions.map_or(0, |functions| fd_number(functions.btf)),
        func_info_rec_size: functions.map_or(0, |_| size_of::<[u32; 2]>() as u32),
        func_info: functions.map_or(0, |functions| address(functions.records)),
        func_info_cnt: match functions {
            Some(functions) => len_u32(functions.records)?,
            None => 0,
        },
        attach_btf_id: spec.attach_to,
        ..Default::default()
    };
    let mut attempts = LOAD_ATTEMPTS;
    let mut signals_blocked = None;
    loop {
        attempts -= 1;
        // SAFETY: `spec` and `log` own the instructions, licence, function records and log, and
        // live until the call returns. Each length is next to its pointer, and the licence ends
        // with a NUL. The kernel writes only to the log, which is borrowed mutably.
        match unsafe { bpf_fd(Command::ProgramLoad, &attr) } {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && attempts > 0 => {
                signals_blocked.get_or_insert_with(SignalsBlocked::begin);
            }
            result => return result,
        }
    }
}

/// The structure of `BPF_PROG_TEST_RUN`, up to its end in Linux 5.14.
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct ProgramRunAttr {
    prog_fd: u32,
    retval: u32,
    unused: [u64; 8],
}

/// Runs a program that is attached to nothing, once, in this thread.
pub fn run(program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = ProgramRunAttr {
        prog_fd: fd_number(program),
        ..ProgramRunAttr::default()
    };
    // SAFETY: the structure has no pointers, and its lengths are 0. The kernel writes the program's
    // result to it, and it is borrowed mutably.
    unsafe { bpf_raw(Command::ProgramRun, &mut attr) }.map(drop)
}

/// `struct bpf_prog_info` up to the last member that is used here.
#[derive(Default, FromBytes, IntoBytes)]
#[repr(C)]
struct ProgramInfo {
    before: [u64; 26],
    recursion_misses: u64,
}

/// How often a program was not run because it was already running on the same processor (Linux
/// 5.12).
pub fn missed_runs(program: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = ProgramInfo::default();
    object_info(program, &mut info)?;
    Ok(info.recursion_misses)
}

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct RawTracepointOpenAttr {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

/// Attaches a program to the tracepoint that it was loaded for, until the returned link is closed.
pub fn attach_tracepoint(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attr = RawTracepointOpenAttr {
        prog_fd: fd_number(program),
        ..Default::default()
    };
    // SAFETY: the name is a null pointer, which is right for a program that was loaded for a
    // tracepoint.
    unsafe { bpf_fd(Command::RawTracepointOpen, &attr) }
}
