//! The system calls that each process of the broker may make. Any other call ends the process,
//! after a line on standard error that names the call.

use std::error::Error;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Commands of bpf(2) (`enum bpf_cmd`).
const BPF_MAP_UPDATE_ELEM: u64 = 2;
const BPF_LINK_CREATE: u64 = 28;
const BPF_ITER_CREATE: u64 = 33;

/// Confines the loop. Set `writes_map` if the programs do not find their tasks themselves and a map
/// tells them what to do.
pub fn confine_loop(writes_map: bool) -> Result<(), Box<dyn Error>> {
    let mut bpf = vec![BPF_LINK_CREATE, BPF_ITER_CREATE];
    bpf.extend(writes_map.then_some(BPF_MAP_UPDATE_ELEM));
    apply(&[LOOP], &bpf)
}

/// Confines the keeper to its own calls and those of the helpers that it becomes.
pub fn confine_keeper() -> Result<(), Box<dyn Error>> {
    apply(&[HELPERS, KEEPER, READER, SETTING_UP], &[])
}

/// Confines a reader.
pub fn confine_reader() -> Result<(), Box<dyn Error>> {
    apply(&[HELPERS, READER], &[])
}

/// Confines a closer.
pub fn confine_closer() -> Result<(), Box<dyn Error>> {
    apply(&[HELPERS], &[])
}

/// Allows the system calls of these lists, and these commands of bpf(2). Ends the process at any
/// other call.
fn apply(lists: &[&[i64]], bpf: &[u64]) -> Result<(), Box<dyn Error>> {
    let calls = lists.iter().flat_map(|list| list.iter());
    let rules: Result<Vec<_>, BackendError> = calls.map(|&call| Ok((call, conditions(call, bpf)?))).collect();
    let filter = SeccompFilter::new(
        rules?.into_iter().collect(),
        SeccompAction::Trap,
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter_all_threads(&program)?;
    Ok(())
}

/// The rules for the arguments of a system call: one of them must match. Without a rule, any
/// arguments are allowed.
fn conditions(call: i64, bpf: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, MaskedEq};
    let rule = |argument, len, operation, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, len, operation, value)?])
    };
    match call {
        libc::SYS_bpf => bpf.iter().map(|&command| rule(0, Dword, Eq, command)).collect(),
        // The amount of unread data in a socket.
        libc::SYS_ioctl => Ok(vec![rule(1, Dword, Eq, libc::TIOCOUTQ)?]),
        // Debug builds check that a descriptor is open before they close it.
        libc::SYS_fcntl => Ok(vec![rule(1, Dword, Eq, libc::F_GETFD as u64)?]),
        // For reading only.
        libc::SYS_openat => {
            let flags = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
            Ok(vec![rule(2, Dword, MaskedEq(flags), 0)?])
        }
        // Memory that can't be executed.
        libc::SYS_mmap | libc::SYS_mprotect => Ok(vec![rule(2, Dword, MaskedEq(libc::PROT_EXEC as u64), 0)?]),
        // New processes, but no threads and no namespaces.
        libc::SYS_clone => {
            let flags = (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD) as u64;
            Ok(vec![rule(0, Qword, Eq, flags)?])
        }
        _ => Ok(Vec::new()),
    }
}

/// The loop's calls. None waits for anything that a client influences: SECURITY.md says why.
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
    libc::SYS_pread64,
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

/// The calls of every helper. Closers have no others.
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

/// More calls, of readers.
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

/// More calls, of the keeper.
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

/// The calls with which a child of the keeper becomes a helper.
const SETTING_UP: &[i64] = &[
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_close_range,
    libc::SYS_prctl,
    libc::SYS_seccomp,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Check that SECURITY.md explains for exactly the loop's system calls why they do not wait.
    #[test]
    fn security_md_has_the_calls_of_the_loop() {
        let between = |text: &'static str, start, end| {
            let (_, rest) = text.split_once(start).expect(start);
            rest.split_once(end).expect(end).0
        };
        let list = between(include_str!("seccomp.rs"), "const LOOP: &[i64] = &[", "];");
        let name = |line: &'static str| line.trim().strip_prefix("libc::SYS_")?.strip_suffix(',');
        let calls: BTreeSet<&str> = list.lines().filter_map(name).collect();
        let document = include_str!("../../../../SECURITY.md");
        let section = between(document, "## The loop's system calls", "\n## ");
        let first_columns = section
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        let words = first_columns.flat_map(|column| column.split('`').skip(1).step_by(2));
        let is_call = |word: &&str| word.bytes().all(|byte| !byte.is_ascii_uppercase());
        assert_eq!(words.filter(is_call).collect::<BTreeSet<_>>(), calls);
        assert!(
            document.contains(&format!("| {} on x86-64 ", calls.len())),
            "{} calls",
            calls.len()
        );
    }
}
