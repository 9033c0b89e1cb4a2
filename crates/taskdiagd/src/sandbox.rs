//! What the daemon gives up before it hears the first client.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use landlock::{
    Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope, ABI,
};
use rustix::thread::{capabilities, set_capabilities, CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use taskdiag::broker::passes::{self, Passes};

use crate::sys;

/// What the loop keeps: nothing, or what older kernels want for passes.
pub fn drop_capabilities() -> io::Result<()> {
    let kept = match sys::kernel_version() >= (6, 0) {
        true => CapabilitySet::empty(),
        false => CapabilitySet::BPF | CapabilitySet::PERFMON,
    };
    keep(kept)?;
    // No program can be executed, and if one were it would gain nothing.
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// What the readers of mappings keep.
pub fn keep_tracing() {
    let _ = keep(CapabilitySet::SYS_PTRACE);
}

fn keep(kept: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?;
    if held.permitted.contains(CapabilitySet::SETPCAP) {
        for number in 0..64 {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            if rustix::thread::capability_is_in_bounding_set(capability).unwrap_or(false) {
                rustix::thread::remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let kept = kept & held.permitted;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    Ok(())
}

/// The security data of the credentials of one of this process's threads.
fn security_words(passes: &mut Passes, tid: u32) -> Option<[u64; WORDS]> {
    let records = passes.view(std::process::id(), 0, 0).ok()?;
    let own = records.each().find(|record| record.header().tid.get() == tid)?;
    Some(passes::view(own)?.security.map(|word| word.get()))
}

/// Words of security data that are looked at.
const WORDS: usize = 32;

/// The words that were 0 and are a kernel's address now, as a set.
fn entered_words(before: &[u64; WORDS], after: &[u64; WORDS]) -> u64 {
    let words = before.iter().zip(after).enumerate();
    let entered = words.filter(|(_, (before, after))| **before == 0 && **after >= 0xffff_8000_0000_0000);
    entered.fold(0, |set, (word, _)| set | 1 << word)
}

/// Finds out where the kernel keeps the Landlock domain of a task: threads enter one, and what changes each time is it. What lies
/// behind the security data is other memory, which may change as well, but not every time in the same way.
pub fn find_landlock_word(passes: &mut Passes) -> Option<usize> {
    const LEAST: usize = 4;
    const MOST: usize = 32;
    let mut words = u64::MAX;
    for attempt in 1..=MOST {
        words &= enter_and_compare(passes).unwrap_or(u64::MAX);
        match words.count_ones() {
            0 => return None,
            1 if attempt >= LEAST => return Some(words.trailing_zeros() as usize),
            _ => {}
        }
    }
    None
}

fn enter_and_compare(passes: &mut Passes) -> Option<u64> {
    let (tell, told) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).ok()?;
        may_go.recv().ok()?;
        // Of this thread alone, as the domain is.
        rustix::thread::set_no_new_privs(true).ok()?;
        let entered = enter_domain(None).unwrap_or(false);
        tell.send(u32::from(entered)).ok()?;
        may_go.recv().ok()
    });
    let tid = told.recv().ok()?;
    let before = security_words(passes, tid);
    go.send(()).ok()?;
    let entered = told.recv().ok()? == 1;
    let after = security_words(passes, tid);
    drop(go);
    let _ = thread.join();
    Some(entered_words(&before.filter(|_| entered)?, &after?))
}

/// Enters a Landlock domain: reading `/proc` is left, and removing the socket. False if the kernel has no Landlock.
pub fn enter_domain(socket: Option<&Path>) -> Result<bool, landlock::RulesetError> {
    let abi = ABI::V6;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?;
    if let Ok(proc) = PathFd::new("/proc") {
        rules = rules.add_rule(PathBeneath::new(proc, AccessFs::ReadFile))?;
    }
    if let Some(Ok(directory)) = socket.and_then(Path::parent).map(PathFd::new) {
        rules = rules.add_rule(PathBeneath::new(directory, AccessFs::RemoveFile))?;
    }
    Ok(rules.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// Lets all threads make just these system calls from now on; any other one ends the process.
pub fn filter_system_calls() -> Result<(), Box<dyn std::error::Error>> {
    let mut rules: Vec<(i64, Vec<SeccompRule>)> = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    let equals = |argument, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    // bpf(2) to point programs that are loaded at tasks, and to run them: BPF_LINK_CREATE, BPF_ITER_CREATE.
    let bpf = [28, 33].map(|command| SeccompRule::new(vec![equals(0, command)?]));
    let bpf: Result<Vec<_>, seccompiler::BackendError> = bpf.into_iter().collect();
    rules.push((libc::SYS_bpf, bpf?));
    // How much waits in a socket.
    let of_sockets = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, libc::TIOCOUTQ)?;
    rules.push((libc::SYS_ioctl, vec![SeccompRule::new(vec![of_sockets])?]));
    // Opening for reading only.
    let accesses = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
    let reading = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(accesses), 0)?;
    rules.push((libc::SYS_openat, vec![SeccompRule::new(vec![reading])?]));
    // Memory that is not to be executed.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let plain = SeccompCondition::new(
            2,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64),
            0,
        )?;
        rules.push((call, vec![SeccompRule::new(vec![plain])?]));
    }
    // Threads, no processes. libc asks for them by clone3(2) first, whose flags lie in memory that no filter sees.
    let flags = (libc::CLONE_VM | libc::CLONE_THREAD) as u64;
    let thread = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flags), flags)?;
    rules.push((libc::SYS_clone, vec![SeccompRule::new(vec![thread])?]));
    rules.push((libc::SYS_clone3, Vec::new()));
    let no_clone3 = [(libc::SYS_clone3, Vec::new())];
    apply(
        no_clone3,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
    )?;
    apply(rules, SeccompAction::KillProcess, SeccompAction::Allow)
}

/// Adds a filter to those of all threads. Of what they say to a call, the strictest holds.
fn apply(
    rules: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<(), Box<dyn std::error::Error>> {
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules.into_iter().collect(), otherwise, matched, arch)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter_all_threads(&program)?;
    Ok(())
}

/// The system calls of the loop and of the reader, and those that libc may make for them.
const ALLOWED: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_memfd_create,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_pidfd_open,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];
