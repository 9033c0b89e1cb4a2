//! Runs a part of a test in a process with other rights or namespaces: the test's own executable,
//! started again.

use std::ffi::{c_int, CStr};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    mount, mount_bind_recursive, mount_change, unmount, MountFlags, MountPropagationFlags, UnmountFlags,
};
use rustix::process::{chdir, chroot};
use rustix::thread::{CapabilitySet, CapabilitySets};
use taskdiag_zoo::TEST_PART;

pub const NOBODY: u32 = 65534;

pub const CAP_PERFMON: u32 = 38;
pub const CAP_BPF: u32 = 39;

/// All capabilities that are needed to load BPF programs.
pub const BOTH: u64 = 1 << CAP_BPF | 1 << CAP_PERFMON;

/// Sets of capabilities that do not suffice to load BPF programs, each with a name and the expected
/// message.
pub const TOO_FEW: [(&str, u64, &str); 3] = [
    ("bpf", 1 << CAP_BPF, "CAP_PERFMON is missing"),
    ("perfmon", 1 << CAP_PERFMON, "CAP_BPF is missing"),
    ("none", 0, "CAP_BPF and CAP_PERFMON are missing"),
];

/// The `/proc` of the second process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proc {
    /// The same as here.
    #[default]
    Same,
    /// A new mount with these options.
    New(&'static CStr),
    /// Not mounted.
    None,
}

/// How the second process differs from this one. The mounts of the host are never changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct World {
    /// It is process 1 of a new pid namespace.
    pub pid_namespace: bool,
    /// Its clock of time since boot is this many seconds ahead.
    pub boottime_offset_s: u64,
    /// Its `/proc`.
    pub proc: Proc,
    /// File systems to cover with an empty one.
    pub hidden: Option<&'static CStr>,
    /// It has its own BPF file system, with nothing pinned in it.
    pub own_bpf_fs: bool,
    /// Its user and group.
    pub user: Option<u32>,
    /// Its capabilities, as a set of bits, if it has another user.
    pub capabilities: u64,
}

/// The world of the first process of a pid namespace, with a `/proc` of that namespace.
pub fn first_of_namespace() -> World {
    World {
        pid_namespace: true,
        proc: Proc::New(c""),
        ..World::default()
    }
}

/// A world in which nothing is pinned, so that only programs that the caller may load or pin itself
/// can answer.
pub fn nothing_pinned() -> World {
    World {
        own_bpf_fs: true,
        ..World::default()
    }
}

/// The world of a user with exactly these capabilities.
pub fn nobody(capabilities: u64) -> World {
    World {
        user: Some(NOBODY),
        capabilities,
        ..World::default()
    }
}

/// The part to run, if this is a second process.
pub fn part() -> Option<String> {
    std::env::var(TEST_PART).ok()
}

/// Runs `body` in a second process. `test` is the name of the calling test. The second process runs
/// that test again up to this call. Whatever it must not do has to come after the call, or check
/// [`part`] first.
pub fn run(test: &str, name: &str, world: World, body: impl FnOnce()) {
    match part() {
        Some(part) if part == name => {
            body();
            println!("{}", done(name));
        }
        Some(_) => {}
        None => {
            let output = command(test, name, world)
                .output()
                .expect("starting the second process");
            let text = String::from_utf8_lossy(&output.stdout);
            println!("---- {name}:\n{text}{}----", String::from_utf8_lossy(&output.stderr));
            // A misspelt test name would run nothing and succeed.
            assert!(
                output.status.success() && text.contains(&done(name)),
                "{name} failed, {}",
                output.status
            );
        }
    }
}

fn done(name: &str) -> String {
    format!("part {name} is done")
}

/// The command that starts a second process for a part of a test.
pub fn command(test: &str, name: &str, world: World) -> Command {
    // Through the link, so that a user who can't reach its directory can start it.
    let path = match world.user {
        Some(_) => "/proc/self/exe".into(),
        None => std::env::current_exe().expect("the path of the test"),
    };
    let mut command = Command::new(path);
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(TEST_PART, name);
    in_world(&mut command, world);
    command
}

/// Makes a command run in a world.
pub fn in_world(command: &mut Command, world: World) -> &mut Command {
    // SAFETY: `enter` makes system calls only; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || enter(world)) }
}

/// Lets a command start neither threads nor processes, as an old filter of system calls does in a
/// container, or a limit of threads.
pub fn without_threads(command: &mut Command) -> &mut Command {
    without_calls(
        command,
        &[(libc::SYS_clone3, libc::EPERM), (libc::SYS_clone, libc::EAGAIN)],
    )
}

/// Lets these system calls of a command fail with these errors.
pub fn without_calls<'a>(command: &'a mut Command, calls: &[(i64, i32)]) -> &'a mut Command {
    let statement = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let end = |result: u32| statement(libc::BPF_RET | libc::BPF_K, 0, 0, result);
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for &(call, errno) in calls {
        program.push(statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            call as u32,
        ));
        program.push(end(libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    program.push(end(libc::SECCOMP_RET_ALLOW));
    let forbid = move || {
        let program = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: the kernel copies the program.
        match unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: it makes a system call only; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(forbid) }
}

/// The name of the test in which this is used.
#[macro_export]
macro_rules! test_name {
    () => {{
        fn here() {}
        let path = std::any::type_name_of_val(&here);
        path.trim_end_matches("::here").split_once("::").expect("a path").1
    }};
}

fn enter(world: World) -> io::Result<()> {
    let mut flags = libc::CLONE_NEWNS;
    if world.pid_namespace {
        flags |= libc::CLONE_NEWPID;
    }
    if world.boottime_offset_s != 0 {
        flags |= libc::CLONE_NEWTIME;
    }
    // SAFETY: no pointers.
    check(unsafe { libc::unshare(flags) })?;
    mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    if world.boottime_offset_s != 0 {
        set_boottime_offset(world.boottime_offset_s)?;
    }
    if world.pid_namespace || world.boottime_offset_s != 0 {
        continue_in_child()?;
    }
    if let Some(directory) = world.hidden {
        mount(c"tmpfs", directory, c"tmpfs", MountFlags::empty(), None)?;
    }
    if world.own_bpf_fs {
        mount(c"bpf", c"/sys/fs/bpf", c"bpf", MountFlags::empty(), None)?;
    }
    match world.proc {
        Proc::Same => {}
        Proc::New(options) => mount(c"proc", c"/proc", c"proc", MountFlags::empty(), options)?,
        Proc::None => unmount(c"/proc", UnmountFlags::DETACH)?,
    }
    match world.user {
        Some(user) => become_user(user, world.capabilities),
        None => Ok(()),
    }
}

/// Makes `directory` the root of this process, with all file systems mounted a second time and a
/// new `/proc`, as in a container.
pub fn enter_container(directory: &CStr) -> io::Result<()> {
    mount_bind_recursive(c"/", directory)?;
    chroot(directory)?;
    chdir(c"/")?;
    Ok(mount(c"proc", c"/proc", c"proc", MountFlags::empty(), None)?)
}

fn check(result: c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Sets the offset for processes that are forked from now on.
fn set_boottime_offset(seconds: u64) -> io::Result<()> {
    let mut line = *b"boottime 00000000 0\n";
    let mut left = seconds;
    for digit in line[9..17].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    let file = rustix::fs::open(
        c"/proc/self/timens_offsets",
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    match rustix::io::write(file, &line)? {
        written if written == line.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Continues in a child. This process only waits for the child, and ends in the same way. Only
/// children are in new pid and time namespaces.
fn continue_in_child() -> io::Result<()> {
    // SAFETY: this process has one thread, as it was forked itself; from here on it makes system
    // calls only.
    unsafe {
        let child = libc::fork();
        check(child)?;
        if child == 0 {
            // The child must not outlive a test that is killed.
            return check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL));
        }
        // Close everything, including pipes that the starter reads to their end.
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
        let mut status = 0;
        while libc::waitpid(child, &mut status, 0) == -1 && *libc::__errno_location() == libc::EINTR {}
        libc::_exit(if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            101
        })
    }
}

/// Becomes another user with exactly these capabilities, which are kept across exec.
fn become_user(user: u32, capabilities: u64) -> io::Result<()> {
    // SAFETY: no pointers but one to an empty list.
    unsafe {
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1))?;
        check(libc::setgroups(0, ptr::null()))?;
        check(libc::setresgid(user, user, user))?;
        check(libc::setresuid(user, user, user))?;
    }
    set_capabilities(capabilities)?;
    for capability in (0..64).filter(|bit| capabilities >> bit & 1 != 0) {
        // SAFETY: no pointers.
        check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0) })?;
    }
    Ok(())
}

/// Makes these the permitted, effective and inheritable capabilities of the calling thread.
pub fn set_capabilities(capabilities: u64) -> io::Result<()> {
    let set = CapabilitySet::from_bits_retain(capabilities);
    let sets = CapabilitySets {
        effective: set,
        permitted: set,
        inheritable: set,
    };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}
