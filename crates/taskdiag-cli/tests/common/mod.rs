//! Runs the built binary.

#![allow(dead_code)]

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{kill_process, Pid, Signal};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcsetwinsize, Winsize};
use taskdiag_testkit::child::{self, Proc, World};
use taskdiag_testkit::temporary::Directory;
pub use taskdiag_zoo::copy_program;

/// The result of a run of the binary.
#[derive(Clone, Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Run {
    pub fn new(output: Output) -> Run {
        Run {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        }
    }

    /// The standard output of a run that must succeed completely.
    #[track_caller]
    pub fn complete(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""));
        self.text()
    }

    pub fn text(self) -> String {
        String::from_utf8(self.stdout).expect("the output is UTF-8")
    }

    /// The standard output as one JSON document.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The binary with these arguments.
pub fn command(args: &[&str]) -> Command {
    let mut command = command_of(env!("CARGO_BIN_EXE_taskdiag"));
    command.args(args);
    command
}

fn command_of(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .env_remove("HOST_PROC");
    // On a busy machine, even a process that holds no lock may answer slowly.
    command.env("TASKDIAG_PATIENCE", "5");
    command
}

/// Starts a command with the default signal actions. Tests may run where some signals are ignored,
/// as under nohup(1) or in the background of a shell.
pub fn with_usual_signals(command: &mut Command) -> &mut Command {
    // SAFETY: a system call that touches no memory.
    let reset = || unsafe {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGPIPE, libc::SIGTERM] {
            libc::signal(signal, libc::SIG_DFL);
        }
        Ok(())
    };
    // SAFETY: signal(2) may be called between fork and exec.
    unsafe { command.pre_exec(reset) }
}

/// Runs the binary with these arguments.
pub fn run(args: &[&str]) -> Run {
    Run::new(command(args).output().expect("the binary runs"))
}

/// Starts the binary with these arguments, with pipes for both outputs.
pub fn start(args: &[&str]) -> Child {
    let mut command = command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

/// Runs the binary with a terminal of this size as standard output.
pub fn run_on_terminal(command: &mut Command, columns: u16, rows: u16) -> Run {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("it is ours");
    unlockpt(&terminal).expect("it is ours");
    let size = Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).expect("a size");
    let path = ptsname(&terminal, Vec::new()).expect("a name");
    let noctty = rustix::fs::OFlags::NOCTTY.bits() as i32;
    let stdout = OpenOptions::new()
        .write(true)
        .custom_flags(noctty)
        .open(path.to_str().expect("a path"));
    command.stdout(stdout.expect("the other end")).stderr(Stdio::piped());
    let child = command.spawn().expect("the binary runs");
    // Close this process's copy of the other end, so that reading ends with the child.
    command.stdout(Stdio::null());
    let mut stdout = Vec::new();
    let mut reader = File::from(terminal);
    let mut piece = [0; 65_536];
    // EIO once the other end is closed.
    while let Ok(count @ 1..) = reader.read(&mut piece) {
        stdout.extend_from_slice(&piece[..count]);
    }
    // The terminal turns LF into CR LF.
    stdout.retain(|&byte| byte != b'\r');
    let output = child.wait_with_output().expect("it ends");
    Run::new(Output { stdout, ..output })
}

/// Checks that a closed pipe causes no message.
#[track_caller]
pub fn check_closed_pipe(args: &[&str]) {
    let mut child = start(args);
    drop(child.stdout.take());
    let run = Run::new(child.wait_with_output().expect("it ends"));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
}

/// Checks that a full disk is reported.
#[track_caller]
pub fn check_full_disk(args: &[&str]) {
    let full = File::create("/dev/full").expect("/dev/full exists");
    let run = Run::new(command(args).stdout(full).output().expect("the binary runs"));
    let said = "taskdiag: writing the output: No space left on device\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(1), said), "{args:?}");
}

/// Runs the binary as the user nobody. `None` if the test is not root, and so can't change the
/// user.
pub fn run_as_nobody(args: &[&str]) -> Option<Run> {
    run_as(65534, args)
}

/// Runs the binary as this user, in the group of the same number.
pub fn run_as(user: u32, args: &[&str]) -> Option<Run> {
    run_copy(|command| command.args(args).uid(user).gid(user))
}

/// Runs the binary as nobody, with the capabilities that loading BPF programs needs.
pub fn run_with_two_capabilities(args: &[&str]) -> Option<Run> {
    run_with_capabilities(args, child::BOTH)
}

/// Runs the binary as nobody, with these capabilities.
pub fn run_with_capabilities(args: &[&str], capabilities: u64) -> Option<Run> {
    run_copy(|command| child::in_world(command.args(args), child::nobody(capabilities)))
}

/// Runs the binary as nobody where `/proc` is mounted with these options, through a link if it has a
/// name.
pub fn run_with_proc(options: &'static CStr, link: Option<&str>, args: &[&str]) -> Option<Run> {
    let world = World {
        proc: Proc::New(options),
        ..child::nobody(0)
    };
    run_copy(|command| {
        link.map(|link| command.arg0(link));
        child::in_world(command.args(args), world)
    })
}

/// Runs a copy of the binary that every user can execute: the build directory may not be
/// accessible. `None` if the test is not root.
fn run_copy(prepare: impl FnOnce(&mut Command) -> &mut Command) -> Option<Run> {
    if fs::metadata("/proc/self")
        .map(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata))
        .ok()?
        != 0
    {
        eprintln!("not root: nothing tested");
        return None;
    }
    let name = format!("taskdiag-test-{}-{:?}", std::process::id(), std::thread::current().id());
    let copy = std::env::temp_dir().join(name);
    copy_program(env!("CARGO_BIN_EXE_taskdiag").as_ref(), &copy).expect("the binary");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let output = prepare(&mut Command::new(&copy)).output();
    fs::remove_file(&copy).expect("it is ours");
    Some(Run::new(output.expect("the binary runs")))
}

/// Runs the binary where `/proc` is not mounted.
pub fn run_without_proc(args: &[&str]) -> Run {
    let world = World {
        proc: Proc::None,
        ..World::default()
    };
    let output = child::in_world(&mut command(args), world).output();
    Run::new(output.expect("the binary runs"))
}

/// A command that runs its arguments in a container: in a pid namespace with its own `/proc`, and
/// with the host's at `proc`. Since Linux 6.14 each pid namespace has a `kernel.pid_max` of its own,
/// which makes columns of ids wider: it gets the host's.
pub fn in_container(proc: &Path) -> Command {
    let script = r#"mount --bind /proc "$0" && mount -t proc proc /proc &&
        echo "$PID_MAX" >/proc/sys/kernel/pid_max && exec "$@""#;
    let mut command = command_of("unshare");
    let most = fs::read_to_string("/proc/sys/kernel/pid_max").expect("/proc is mounted");
    command.env("PID_MAX", most.trim());
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]);
    command.arg(proc);
    command
}

/// A process that waits until dropped.
#[derive(Debug)]
pub struct Sleeper(Child);

impl Sleeper {
    /// Starts `sleep` under this name, with an argument that identifies it.
    pub fn new(name: &str) -> Sleeper {
        Sleeper::start(Command::new("sleep").arg0(name))
    }

    /// Starts this `sleep`, and waits until it sleeps: from then on its figures stay as they are.
    pub fn start(command: &mut Command) -> Sleeper {
        let sleeper = Sleeper::run(command.arg("1000"));
        wait_until_it_sleeps(&sleeper.pid());
        sleeper
    }

    /// Starts any command; it ends when dropped.
    pub fn run(command: &mut Command) -> Sleeper {
        let mut child = command.stdin(Stdio::null()).spawn().expect("the command exists");
        // A new process exists before it has its arguments.
        let cmdline = PathBuf::from("/proc").join(child.id().to_string()).join("cmdline");
        let own = fs::read("/proc/self/cmdline").expect("/proc is mounted");
        let has_none = || fs::read(&cmdline).is_ok_and(|text| text.is_empty() || text == own);
        while has_none() && child.try_wait().is_ok_and(|ended| ended.is_none()) {
            std::thread::yield_now();
        }
        Sleeper(child)
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Waits for the process to end, and returns the signal that ended it.
    pub fn ended(&mut self) -> Option<i32> {
        self.0.wait().expect("our own child").signal()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A recording, created by the recorder and removed when dropped.
pub struct Recording(pub Directory);

impl Recording {
    pub fn new(name: &str) -> Recording {
        Recording(Directory::to_make(&place_for_recordings(), name))
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("a path")
    }
}

/// A recorder that goes on until it is told to end, so that a slow machine records as much as a quick
/// one.
pub struct Recorder<'a>(Sleeper, &'a Recording);

impl Recorder<'_> {
    /// Starts it, and waits for the first sample.
    pub fn start<'a>(recording: &'a Recording, args: &[&str]) -> Recorder<'a> {
        let mut command = command(&["record", "--dir", recording.path()]);
        let recorder = Recorder(Sleeper::run(command.args(args)), recording);
        recorder.wait_for_samples(1);
        recorder
    }

    /// Waits for this many more samples.
    pub fn wait_for_samples(&self, count: u64) {
        let until = recorded_samples(self.1) + count;
        while recorded_samples(self.1) < until {
            assert!(Path::new("/proc").join(self.0.pid()).join("exe").exists(), "it ended");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Tells it to take the last sample, and returns when it has ended.
    pub fn end(mut self) {
        kill_process(Pid::from_child(&self.0 .0), Signal::TERM).expect("it runs");
        assert_eq!(self.0 .0.wait().expect("our own child").code(), Some(0));
    }
}

/// The number of samples of the finest tier.
pub fn recorded_samples(recording: &Recording) -> u64 {
    let run = Run::new(
        command(&["history", "--json", recording.path()])
            .output()
            .expect("the binary runs"),
    );
    if run.code == Some(2) {
        return 0;
    }
    let document = run.json();
    let rows = document["rows"].as_array().expect("rows");
    let full = rows.iter().filter(|row| row["tier"] == "full");
    full.map(|row| row["samples_count"].as_u64().expect("a number")).sum()
}

/// The directory for recordings: in memory, because a recorder leaves the last part of a disk free,
/// and the disk of a build machine may be nearly full.
pub fn place_for_recordings() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    }
}

/// An unused process id.
pub fn free_pid() -> String {
    let max = fs::read_to_string("/proc/sys/kernel/pid_max").expect("/proc is mounted");
    let max: u32 = max.trim().parse().expect("pid_max is a number");
    (max + 1).to_string()
}

/// Waits until a process sleeps: then its figures stay as they are.
pub fn wait_until_it_sleeps(pid: &str) {
    taskdiag_zoo::settle(pid.parse().expect("a number"), 'S').expect("a process that sleeps");
}

/// The value of a line in `/proc/PID/status`.
pub fn status(pid: &str, key: &str) -> String {
    let text = fs::read_to_string(PathBuf::from("/proc").join(pid).join("status")).expect("the process exists");
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.expect("status has the line").trim().to_owned()
}
