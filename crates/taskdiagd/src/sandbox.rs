//! What the daemon gives up before it hears the first client.

use std::io;
use std::sync::mpsc;
use std::thread;

use landlock::{
    Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetStatus, Scope,
    ABI,
};
use rustix::thread::{capabilities, set_capabilities, CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::passes::{self, Passes};
use crate::sys;

/// What the loop keeps: nothing.
pub fn drop_capabilities() -> io::Result<()> {
    keep(CapabilitySet::empty())?;
    // No program can be executed, and if one were it would gain nothing.
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Becomes an unprivileged user, if this one is root. Capabilities stay until they are given up.
pub fn become_user(user: u32, group: u32) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    rustix::thread::set_keep_capabilities(true)?;
    sys::become_user(user, group)?;
    rustix::thread::set_keep_capabilities(false)?;
    // They are still permitted, and not in effect.
    let held = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: held.permitted,
            ..held
        },
    )?;
    Ok(())
}

/// What the process is left with that starts the helpers.
pub fn become_keeper(is_confined: bool) -> Result<(), Box<dyn std::error::Error>> {
    sys::ignore_ends();
    keep(CapabilitySet::SYS_PTRACE)?;
    rustix::thread::set_no_new_privs(true)?;
    if is_confined {
        filter(&[HELPERS, KEEPER, READER, SETTING_UP])?;
    }
    Ok(())
}

/// A reader: the right to look at all processes, as a user to whom nothing belongs. No Landlock: who is in a domain may not look at
/// processes outside of it.
pub fn become_reader(is_confined: bool) -> Result<(), Box<dyn std::error::Error>> {
    if is_confined {
        filter(&[HELPERS, READER])
    } else {
        Ok(())
    }
}

/// A closer: nothing at all.
pub fn become_closer(is_confined: bool) -> Result<(), Box<dyn std::error::Error>> {
    keep(CapabilitySet::empty())?;
    if is_confined {
        filter(&[HELPERS])
    } else {
        Ok(())
    }
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
    let records = passes.view(std::process::id(), 0, 0, usize::MAX).ok()?;
    let own = records.each().find(|record| record.header().tid.get() == tid)?;
    Some(passes::view(own)?.security.map(|word| word.get()))
}

/// Words of security data that are looked at.
const WORDS: usize = 32;

/// The words that were 0 and are a kernel's address now, as a set.
fn entered_words(before: &[u64; WORDS], after: &[u64; WORDS]) -> u64 {
    // Where the kernel's half begins with the widest addresses there are, of 57 bits.
    const LOWEST: u64 = 0xff00_0000_0000_0000;
    let words = before.iter().zip(after).enumerate();
    let entered = words.filter(|(_, (before, after))| **before == 0 && **after >= LOWEST);
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
        let entered = enter_domain().unwrap_or(false);
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

/// Enters a Landlock domain in which there is nothing. False if the kernel has no Landlock.
pub fn enter_domain() -> Result<bool, landlock::RulesetError> {
    let abi = ABI::V6;
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?;
    Ok(rules.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// Lets the loop make its system calls and no others from now on. Programs that do not find their tasks themselves have a map that
/// says what they are to do.
pub fn confine_loop(is_map_written: bool) -> Result<(), Box<dyn std::error::Error>> {
    filter_with(&[LOOP], is_map_written)
}

/// What of a system call's arguments has to be so.
fn conditions(call: i64, is_map_written: bool) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, MaskedEq};
    let rule = |argument, len, operation, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, len, operation, value)?])
    };
    match call {
        // To point programs that are loaded at tasks, and to run them: BPF_LINK_CREATE, BPF_ITER_CREATE; BPF_MAP_UPDATE_ELEM.
        libc::SYS_bpf => [28, 33]
            .into_iter()
            .chain(is_map_written.then_some(2))
            .map(|command| rule(0, Dword, Eq, command))
            .collect(),
        // How much waits in a socket.
        libc::SYS_ioctl => Ok(vec![rule(1, Dword, Eq, libc::TIOCOUTQ)?]),
        // Whether a descriptor is one, which builds for tests ask before they close it.
        libc::SYS_fcntl => Ok(vec![rule(1, Dword, Eq, libc::F_GETFD as u64)?]),
        // For reading only.
        libc::SYS_openat => {
            let accesses = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
            Ok(vec![rule(2, Dword, MaskedEq(accesses), 0)?])
        }
        // Memory that is not to be executed.
        libc::SYS_mmap | libc::SYS_mprotect => Ok(vec![rule(2, Dword, MaskedEq(libc::PROT_EXEC as u64), 0)?]),
        // Processes, not threads or namespaces.
        libc::SYS_clone => {
            let flags = (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD) as u64;
            Ok(vec![rule(0, Qword, Eq, flags)?])
        }
        _ => Ok(Vec::new()),
    }
}

/// Lets this process make the system calls of these lists from now on. Any other one ends it with a line that says which it was.
fn filter(lists: &[&[i64]]) -> Result<(), Box<dyn std::error::Error>> {
    filter_with(lists, false)
}

fn filter_with(lists: &[&[i64]], is_map_written: bool) -> Result<(), Box<dyn std::error::Error>> {
    let calls = lists.iter().flat_map(|list| list.iter());
    let rules: Result<Vec<_>, seccompiler::BackendError> = calls
        .map(|&call| Ok((call, conditions(call, is_map_written)?)))
        .collect();
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(
        rules?.into_iter().collect(),
        SeccompAction::Trap,
        SeccompAction::Allow,
        arch,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter_all_threads(&program)?;
    Ok(())
}

/// The system calls of the loop, none of which waits for anything that a client has a hand in: SECURITY.md says why.
const LOOP: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_bpf,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockopt,
    libc::SYS_ioctl,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_pidfd_open,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_write,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Those that all helpers make, closers no others.
const HELPERS: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_sigaltstack,
    libc::SYS_write,
];

/// Those that readers make besides.
const READER: &[i64] = &[
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_statx,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
];

/// Those of the keeper.
const KEEPER: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_kill,
    libc::SYS_ppoll,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_socketpair,
    libc::SYS_wait4,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Those with which a helper becomes one.
const SETTING_UP: &[i64] = &[
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_close_range,
    libc::SYS_prctl,
    libc::SYS_seccomp,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a kernel's address is known for one, however wide addresses are, and that only what was nothing counts.
    #[test]
    fn addresses_that_came_are_found() {
        let mut before = [0; WORDS];
        let mut after = [0; WORDS];
        after[1] = 0xffff_8880_0123_4560; // x86-64, 48 bits
        after[2] = 0xff11_cb8a_8136_7f60; // x86-64, 57 bits
        after[3] = 0xffff_0000_c012_3400; // arm64, 48 bits
        after[4] = 0xfff0_0000_c012_3400; // arm64, 52 bits
        after[5] = 0x0000_7fff_1234_5678; // not the kernel's
        before[6] = 0xffff_8880_0123_0000; // another one before
        after[6] = after[1];
        before[7] = 0xffff_8880_0123_0000; // no longer there
        assert_eq!(entered_words(&before, &after), 0b1_1110);
    }
}
