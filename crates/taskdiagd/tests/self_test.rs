//! The self-test of task_diag, with the broker in the kernel's place.

mod daemon;

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use taskdiag_testkit::scaled;
use taskdiag_zoo::copy_program;

use daemon::Broker;

/// A user without other processes: everything that it sees belongs to the test.
const USER: u32 = 61_234;

/// A copy of a program of `dev/task_diag` that every user can reach.
fn program(broker: &Broker, name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_taskdiagd")).with_file_name(name);
    let copy = broker.socket.with_file_name(name);
    copy_program(&built, &copy).expect("a program that `cargo build --workspace --bins` makes");
    copy
}

/// Processes that end when this is dropped.
struct Forked(Child);

impl Forked {
    fn start(fork: &Path, processes: usize, threads: usize) -> Forked {
        let mut command = Command::new(fork);
        command.args([processes.to_string(), threads.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).uid(USER).gid(USER);
        let mut child = command.spawn().expect("fork");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), processes.to_string());
        Forked(child)
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The output of `task_diag_all` for the user.
fn run(tool: &Path, broker: &Broker, args: &[&str]) -> String {
    let mut command = Command::new(tool);
    command
        .args(args)
        .env("TASKDIAG_SOCKET", &broker.socket)
        .uid(USER)
        .gid(USER);
    let output = command.output().expect("task_diag_all");
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How many lines begin a task, and how many tasks are named fork.
fn count(text: &str) -> (usize, usize) {
    let starts = text.lines().filter(|line| line.starts_with("Start getting"));
    let forks = text
        .lines()
        .filter(|line| line.starts_with("pid ") && line.ends_with("comm fork"));
    (starts.count(), forks.count())
}

/// Check its five assertions: all processes, all threads, children, one process, and the threads of
/// one process. Each is run with some of mappings, sizes, credentials and command lines.
#[test]
fn task_diag_passes_its_own_test() {
    let broker = Broker::start(&[]);
    let (fork, tool) = (program(&broker, "fork"), program(&broker, "task_diag_all"));
    let (processes, threads) = (scaled(1000), 10);
    {
        let forked = Forked::start(&fork, processes, threads);
        let parent = forked.0.id().to_string();
        // The program that forked is one more, and the tool itself another.
        let text = run(&tool, &broker, &["all", "--maps"]);
        assert_eq!(count(&text), (processes + 2, processes + 1));
        assert!(text.lines().filter(|line| line.ends_with("[vdso]")).count() > processes);
        let text = run(&tool, &broker, &["All", "--smaps", "--cred"]);
        assert_eq!(count(&text), (processes * threads + 2, processes * threads + 1));
        let owned = format!("uid: {USER} {USER} {USER} {USER}");
        assert_eq!(
            text.lines().filter(|line| **line == owned).count(),
            processes * threads + 2
        );
        // Only leaders have mappings.
        assert!(text.lines().filter(|line| line.ends_with("[vdso]")).count() <= processes + 2);
        assert!(text
            .lines()
            .filter(|line| line.starts_with("Rss:"))
            .any(|line| !line.ends_with(" 0 kB")));
        let text = run(&tool, &broker, &["children", "--pid", &parent]);
        assert_eq!(count(&text), (processes, processes));
        let text = run(&tool, &broker, &["one", "--pid", &parent, "-x", "-l"]);
        assert!(
            text.contains("threads: 1") && text.contains(&format!("cmdline: {}", fork.display())),
            "{text}"
        );
        assert_eq!(
            run(&tool, &broker, &["children", "-q", "--pid", &parent]),
            format!("tasks: {processes}\n")
        );
    }
    let forked = Forked::start(&fork, 1, 1234);
    let text = run(&tool, &broker, &["children", "--pid", &forked.0.id().to_string()]);
    let pid = text
        .split_ascii_whitespace()
        .skip_while(|word| *word != "pid")
        .nth(1)
        .expect("a pid");
    let text = run(&tool, &broker, &["thread", "--maps", "--cred", "--smaps", "--pid", pid]);
    assert_eq!(count(&text), (1234, 1234));
    assert!(text.lines().filter(|line| line.ends_with("[vdso]")).count() == 1);
}
