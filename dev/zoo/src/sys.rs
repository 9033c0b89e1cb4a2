//! System calls, as few and as thin as the animals need. All unsafe code of the crate is here,
//! except for tricks of single animals, such as rewriting argv.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::ptr;

use libc::{c_int, c_long, c_ulong, c_void, pid_t};
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::mount::{mount_change, MountPropagationFlags};
pub(crate) use rustix::param::page_size;
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{getrlimit, setrlimit, waitid, Pid, Resource, Rlimit, WaitId, WaitIdOptions};
use rustix::time::ClockId;

pub(crate) fn cvt(ret: c_long) -> io::Result<c_long> {
    if ret == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(ret)
}

/// Safe wrappers for calls that take only numbers, and so can't reach into our memory.
macro_rules! number_calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) = $call:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name($($arg: $type),*) -> io::Result<()> {
            // SAFETY: the call takes numbers only; it neither reads nor writes memory of ours.
            cvt(unsafe { $call } as c_long).map(drop)
        }
    )*};
}

number_calls! {
    /// Sends `signal` to one process.
    kill(pid: pid_t, signal: c_int) = libc::kill(pid, signal);
    /// Makes `to` another name of the descriptor `from`. It stays open across exec.
    dup_to(from: RawFd, to: RawFd) = libc::dup2(from, to);
    /// Sends `signal` to this thread alone.
    kill_own_thread(signal: c_int) =
        libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::syscall(libc::SYS_gettid), signal);
    /// Closes a descriptor that no object will close, in a process that never drops its objects.
    close(fd: RawFd) = libc::close(fd);
    setsid() = libc::setsid();
    setpgid(pid: pid_t, pgid: pid_t) = libc::setpgid(pid, pgid);
    setresuid(real: u32, effective: u32, saved: u32) = libc::setresuid(real, effective, saved);
    setresgid(real: u32, effective: u32, saved: u32) = libc::setresgid(real, effective, saved);
    unshare(flags: c_int) = libc::unshare(flags);
    set_nice(nice: c_int) = libc::setpriority(libc::PRIO_PROCESS, 0, nice);
    set_foreground_group(tty: RawFd, pgid: pid_t) = libc::tcsetpgrp(tty, pgid);
    set_controlling_tty(tty: RawFd) = libc::ioctl(tty, libc::TIOCSCTTY, 0);
    unlock_pty(master: RawFd) = libc::unlockpt(master);
    /// `prctl` for options whose arguments are plain numbers.
    prctl(option: c_int, a: c_ulong, b: c_ulong) = libc::prctl(option, a, b, 0 as c_ulong, 0 as c_ulong);
    ptrace_seize(pid: pid_t) = libc::ptrace(libc::PTRACE_SEIZE, pid, 0 as c_ulong, 0 as c_ulong);
    ptrace_interrupt(pid: pid_t) = libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0 as c_ulong, 0 as c_ulong);
}

pub(crate) fn getpid() -> pid_t {
    std::process::id() as pid_t
}

pub(crate) fn getppid() -> pid_t {
    std::os::unix::process::parent_id() as pid_t
}

pub(crate) fn gettid() -> pid_t {
    rustix::thread::gettid().as_raw_nonzero().get()
}

pub(crate) fn geteuid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Sleeps forever. Only a fatal signal ends it.
pub(crate) fn rest() -> ! {
    loop {
        // SAFETY: no arguments; returns after a handled signal only.
        unsafe { libc::pause() };
    }
}

/// Ends the process at once: no destructors, no buffers flushed.
pub(crate) fn exit(status: c_int) -> ! {
    // SAFETY: never returns, so nothing of ours is used afterwards.
    unsafe { libc::_exit(status) }
}

/// Ends only this thread, bypassing libc. A leader that calls this becomes a dead leader.
pub(crate) fn exit_thread() -> ! {
    // SAFETY: never returns. Nothing on this thread's stack is shared with threads that live on.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("exit(2) does not return")
}

/// `fork`: the child's id in the parent, None in the child.
///
/// Only single-threaded processes of this crate may call it, because the child continues to run
/// Rust code.
pub(crate) fn fork() -> io::Result<Option<pid_t>> {
    // SAFETY: the calling process has one thread, so no lock in the child is held by a thread that
    // it does not have.
    let pid = cvt(unsafe { libc::fork() }.into())? as pid_t;
    Ok((pid != 0).then_some(pid))
}

/// A pipe (reader, writer), closed by exec.
pub(crate) fn pipe() -> io::Result<(File, File)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((reader.into(), writer.into()))
}

/// Takes ownership of a descriptor that this process owns and that no other object holds.
pub(crate) fn file(fd: RawFd) -> File {
    // SAFETY: callers pass a descriptor that nothing else closes: one just opened by the kernel, or
    // one inherited for this use.
    unsafe { File::from_raw_fd(fd) }
}

/// Which descriptors are readable, or at their end. Waits until one is, for `timeout_ms` at most if
/// that is not -1; a signal ends the wait.
pub(crate) fn readable<const N: usize>(fds: [RawFd; N], timeout_ms: c_int) -> io::Result<[bool; N]> {
    let mut polls = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: so many pollfds, and they outlive the call.
    match cvt(unsafe { libc::poll(polls.as_mut_ptr(), N as libc::nfds_t, timeout_ms) }.into()) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(polls.map(|poll| poll.revents != 0)),
    }
}

/// Waits for a child (-1 for any). Returns its id, or 0 if WNOHANG found none ready.
pub(crate) fn wait(pid: pid_t, options: c_int) -> io::Result<pid_t> {
    // SAFETY: a null status pointer is allowed.
    cvt(unsafe { libc::waitpid(pid, ptr::null_mut(), options) }.into()).map(|pid| pid as pid_t)
}

/// Waits until the child has exited, and leaves it a zombie.
pub(crate) fn wait_for_zombie(pid: pid_t) -> io::Result<()> {
    let child = WaitId::Pid(Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?);
    Ok(waitid(child, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).map(drop)?)
}

/// Replaces the process image. Returns only if that failed.
pub(crate) fn exec(path: &CString, args: &[Vec<u8>], env: &[Vec<u8>]) -> io::Error {
    let strings =
        |list: &[Vec<u8>]| -> Result<Vec<CString>, _> { list.iter().map(|s| CString::new(s.clone())).collect() };
    let (Ok(args), Ok(env)) = (strings(args), strings(env)) else {
        return io::Error::new(io::ErrorKind::InvalidInput, "NUL inside an argument");
    };
    let pointers = |list: &[CString]| -> Vec<_> { list.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect() };
    let (args_ptr, env_ptr) = (pointers(&args), pointers(&env));
    // SAFETY: both arrays end with a null pointer; arrays and strings live until the call returns.
    unsafe { libc::execve(path.as_ptr(), args_ptr.as_ptr(), env_ptr.as_ptr()) };
    io::Error::last_os_error()
}

/// Requests SIGKILL when the parent dies. A change of credentials clears this, so call it again
/// afterwards.
pub(crate) fn die_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong, 0)
}

/// Raises the soft limit to `wanted`, or as near to it as the hard limit allows.
pub(crate) fn raise_limit(resource: Resource, wanted: u64) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(resource);
    if current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let current = Some(maximum.map_or(wanted, |maximum| wanted.min(maximum)));
    Ok(setrlimit(resource, Rlimit { current, maximum })?)
}

/// Sets the thread's name unchanged: any bytes, cut off by the kernel after 15.
pub(crate) fn set_comm(name: &[u8]) -> io::Result<()> {
    Ok(rustix::thread::set_name(&CString::new(name)?)?)
}

pub(crate) fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: pointer and length are those of one live slice.
    cvt(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) }.into()).map(drop)
}

/// Sets the file system ids. The calls report no failure, so second calls check whether the first
/// ones took effect.
pub(crate) fn set_fs_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: numbers only; -1 is an invalid id, which changes nothing and returns the present id.
    let now = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        (libc::setfsuid(u32::MAX) as u32, libc::setfsgid(u32::MAX) as u32)
    };
    if now == (uid, gid) {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// The bounding set, queried bit by bit.
pub(crate) fn bounding_set() -> u64 {
    let has = |cap: &u64| {
        // SAFETY: numbers only; an unknown capability is an error, not a danger.
        unsafe { libc::prctl(libc::PR_CAPBSET_READ, *cap) == 1 }
    };
    (0..64).filter(has).fold(0, |set, cap| set | 1 << cap)
}

/// Installs a seccomp filter that allows everything.
pub(crate) fn seccomp_allow_all() -> io::Result<()> {
    let mut filter = [libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    }];
    let program = libc::sock_fprog {
        len: 1,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program points at the one live instruction it counts; the kernel copies it.
    cvt(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER as c_ulong, &program) }.into()).map(drop)
}

/// Sets the policy and the priority of a thread of this process, 0 for the calling one.
pub(crate) fn set_scheduler(tid: pid_t, policy: c_int, rt_priority: c_int) -> io::Result<()> {
    let param = libc::sched_param {
        sched_priority: rt_priority,
    };
    // SAFETY: `param` outlives the call.
    cvt(unsafe { libc::sched_setscheduler(tid, policy, &param) }.into()).map(drop)
}

/// The number of the pty with this master: its slave is /dev/pts/N.
pub(crate) fn pty_number(master: RawFd) -> io::Result<u32> {
    let mut number = 0;
    // SAFETY: TIOCGPTN writes one unsigned int.
    cvt(unsafe { libc::ioctl(master, libc::TIOCGPTN, &mut number) }.into())?;
    Ok(number)
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    let any = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: the structure consists of numbers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`.
    cvt(unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) }.into()).map(drop)
}

/// Sends bytes from an address that the kernel reads. If there is no memory, the call fails.
pub(crate) fn send_from(socket: RawFd, at: usize, len: usize) -> io::Result<()> {
    // SAFETY: the kernel checks the address.
    cvt(unsafe { libc::send(socket, at as *const libc::c_void, len, libc::MSG_NOSIGNAL) } as c_long).map(drop)
}

pub(crate) fn block_signals(signals: &[c_int]) -> io::Result<()> {
    // SAFETY: sigemptyset initializes the set; sigaddset gets valid signal numbers and that set,
    // which outlives the calls. The old mask is not asked for.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        cvt(libc::sigprocmask(libc::SIG_SETMASK, &set, ptr::null_mut()).into()).map(drop)
    }
}

extern "C" fn do_nothing(_signal: c_int) {}

/// Installs a handler that does nothing.
pub(crate) fn catch_signal(signal: c_int) -> io::Result<()> {
    // SAFETY: the handler touches nothing, so it may run at any time.
    let old = unsafe { libc::signal(signal, do_nothing as extern "C" fn(c_int) as libc::sighandler_t) };
    cvt(old as c_long).map(drop)
}

pub(crate) fn ignore_signal(signal: c_int) -> io::Result<()> {
    // SAFETY: SIG_IGN runs no code of ours.
    cvt(unsafe { libc::signal(signal, libc::SIG_IGN) } as c_long).map(drop)
}

/// The signals that this process ignores and those that it catches, as bit masks (bit 0: signal 1).
pub(crate) fn signal_actions() -> io::Result<(u64, u64)> {
    let (mut ignored, mut caught) = (0, 0);
    for signal in (1..=64).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
        // The kernel's struct sigaction: the handler, and up to three more words. The system call
        // is used directly, because libc reserves two signals for itself, and whoever started this
        // process may have ignored them.
        let mut action = [0_usize; 4];
        // SAFETY: only queries; the kernel writes at most four words, the last of which is a mask
        // of 8 bytes.
        cvt(unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                ptr::null::<usize>(),
                action.as_mut_ptr(),
                8_usize,
            )
        })?;
        match action[0] {
            libc::SIG_DFL => {}
            libc::SIG_IGN => ignored |= 1 << (signal - 1),
            _ => caught |= 1 << (signal - 1),
        }
    }
    Ok((ignored, caught))
}

/// CPU time used by this thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Uses the CPU until this thread has used `ns` more of it.
pub(crate) fn burn_cpu(ns: u64) {
    let end = thread_cpu_ns() + ns;
    while thread_cpu_ns() < end {}
}

/// The minor faults of all children that were waited for.
pub(crate) fn child_min_faults() -> io::Result<u64> {
    // SAFETY: rusage is plain data for which all zeroes are valid.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `usage` outlives the call.
    cvt(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) }.into())?;
    Ok(usage.ru_minflt as u64)
}

/// `mmap`, of fresh memory or of a file from an offset on.
///
/// # Safety
///
/// With `MAP_FIXED`, nothing may rely on what was in the `len` bytes at `at`.
unsafe fn mmap(
    at: usize,
    len: usize,
    protection: c_int,
    flags: c_int,
    file: Option<(RawFd, usize)>,
) -> io::Result<*mut u8> {
    let (file, offset) = file.unwrap_or((-1, 0));
    // SAFETY: no mapping is replaced that the caller has not given up.
    let at = unsafe { libc::mmap(at as *mut c_void, len, protection, flags, file, offset as libc::off_t) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(at.cast())
}

/// A fresh mapping at an address chosen by the kernel. It is never unmapped unless `unmap` is
/// called.
pub(crate) fn map(len: usize, flags: c_int, file: Option<RawFd>) -> io::Result<*mut u8> {
    let protection = file.map_or(libc::PROT_READ | libc::PROT_WRITE, |_| libc::PROT_READ);
    // SAFETY: without MAP_FIXED (callers pass only sharing flags) no existing mapping is replaced.
    let at = unsafe { mmap(0, len, protection, flags, file.map(|file| (file, 0))) }?;
    if file.is_none() {
        // SAFETY: advice about a fresh mapping of this process. With small pages only, touching N
        // pages causes N faults. Where the kernel has no huge pages the call fails, and all pages
        // are small anyway.
        unsafe { libc::madvise(at.cast(), len, libc::MADV_NOHUGEPAGE) };
    }
    Ok(at)
}

/// A fresh mapping at an address that is not mapped yet.
pub(crate) fn map_at(
    at: usize,
    len: usize,
    protection: c_int,
    flags: c_int,
    file: Option<(RawFd, usize)>,
) -> io::Result<()> {
    // SAFETY: no existing mapping is replaced (MAP_FIXED_NOREPLACE).
    unsafe { mmap(at, len, protection, flags | libc::MAP_FIXED_NOREPLACE, file) }.map(drop)
}

/// A file without a name in any directory.
pub(crate) fn memory_file(name: &CStr) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// Gives private anonymous memory a name.
pub(crate) fn name_memory(at: usize, len: usize, name: &CStr) -> io::Result<()> {
    const PR_SET_VMA: c_int = 0x5356_4d41;
    const PR_SET_VMA_ANON_NAME: c_ulong = 0;
    // SAFETY: changes what /proc shows of a mapping; the name is a NUL-terminated string that
    // outlives the call.
    cvt(unsafe { libc::prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, len, name.as_ptr()) }.into()).map(drop)
}

/// Maps new System V shared memory, which is removed with the process.
pub(crate) fn system_v_memory(at: usize, len: usize) -> io::Result<()> {
    // SAFETY: numbers only.
    let id = cvt(unsafe { libc::shmget(libc::IPC_PRIVATE, len, libc::IPC_CREAT | 0o600) }.into())? as c_int;
    // SAFETY: without SHM_REMAP no existing mapping is replaced.
    let got = unsafe { libc::shmat(id, at as *const c_void, 0) };
    let error = io::Error::last_os_error();
    // SAFETY: removal takes no buffer; the memory remains as long as it is mapped.
    cvt(unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) }.into())?;
    if got as isize == -1 {
        return Err(error);
    }
    Ok(())
}

/// Changes the permissions of pages of [`map_at`].
pub(crate) fn protect(at: usize, len: usize, protection: c_int) -> io::Result<()> {
    // SAFETY: callers pass pages of `map_at`, which nothing refers to.
    cvt(unsafe { libc::mprotect(at as *mut c_void, len, protection) }.into()).map(drop)
}

/// Gives advice about pages of [`map_at`].
pub(crate) fn advise(at: usize, len: usize, advice: c_int) -> io::Result<()> {
    // SAFETY: callers pass pages of `map_at`, which nothing refers to.
    cvt(unsafe { libc::madvise(at as *mut c_void, len, advice) }.into()).map(drop)
}

/// Maps fresh memory, or a read-only page range of `file`, over the memory at `at`.
///
/// # Safety
///
/// Nothing may rely on the earlier content of the `len` bytes at `at`. With a file, nothing may use
/// them afterwards as anything but bytes of that file.
pub(crate) unsafe fn map_over(at: *mut u8, len: usize, file: Option<RawFd>) -> io::Result<()> {
    let (protection, kind) = match file {
        Some(_) => (libc::PROT_READ, 0),
        None => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_ANONYMOUS),
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | kind;
    // SAFETY: the caller has given up what was there.
    unsafe { mmap(at as usize, len, protection, flags, file.map(|file| (file, 0))) }.map(drop)
}

/// Maps a page and unmaps it.
pub(crate) fn map_and_unmap() -> io::Result<()> {
    map(page_size(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None).and_then(|at| unmap(at, page_size()))
}

/// Keeps mounts that are made from now on from being visible elsewhere.
pub(crate) fn keep_mounts_private() -> io::Result<()> {
    let flags = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    Ok(mount_change(c"/", flags)?)
}

/// Writes to (or, for a file, reads) every page of a mapping made by [`map`].
pub(crate) fn touch(at: *mut u8, len: usize, write: bool) {
    for offset in (0..len).step_by(page_size()) {
        // SAFETY: within the mapping, which is writable when the caller says so; no reference to it
        // exists.
        unsafe {
            if write {
                at.add(offset).write_volatile(1);
            } else {
                at.add(offset).read_volatile();
            }
        }
    }
}

/// Unmaps a mapping made by [`map`].
pub(crate) fn unmap(at: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: callers pass a mapping of `map` and don't use it afterwards.
    cvt(unsafe { libc::munmap(at.cast::<c_void>(), len) }.into()).map(drop)
}

pub(crate) fn lock_memory(at: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: locking changes no contents.
    cvt(unsafe { libc::mlock(at.cast::<c_void>(), len) }.into()).map(drop)
}

/// Starts a process that shares this process's memory, on a separate stack, and runs `body` there.
///
/// With `CLONE_VFORK` in `flags`, the call returns when that process has ended. `body` must neither
/// return nor unwind.
pub(crate) fn clone_sharing_memory<F: FnOnce()>(flags: c_int, body: F) -> io::Result<pid_t> {
    extern "C" fn run<F: FnOnce()>(body: *mut c_void) -> c_int {
        // SAFETY: the box leaked below, handed to this one call.
        let body = unsafe { Box::from_raw(body.cast::<F>()) };
        body();
        exit(0)
    }
    let len = 256 * 1024;
    let stack = map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None)?;
    let body = Box::into_raw(Box::new(body));
    // SAFETY: the stack is mapped, used by the new process only, and never unmapped; `body` is
    // owned by `run`.
    let pid = unsafe {
        libc::clone(
            run::<F>,
            stack.add(len).cast(),
            flags | libc::CLONE_VM | libc::SIGCHLD,
            body.cast(),
        )
    };
    cvt(pid.into()).map(|pid| pid as pid_t)
}
