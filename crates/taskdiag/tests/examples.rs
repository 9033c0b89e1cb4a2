//! The examples run, and print what they should.

use std::fs;
use std::hint::spin_loop;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::SystemTime;

/// An example as a command. `cargo test --package taskdiag` builds them all; with `--test examples`
/// it builds none.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("our own path");
    let directory = test.ancestors().nth(2).expect("the directory of the build");
    let path = directory.join("examples").join(name);
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = package.join("examples").join(name).with_extension("rs");
    let built = modified(&path);
    assert!(
        built > Some(last_change(&package.join("src"))) && built > modified(&source),
        "build it first: cargo build --package taskdiag --examples"
    );
    Command::new(path)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// When a file under a directory was last modified.
fn last_change(directory: &Path) -> SystemTime {
    let entries = fs::read_dir(directory).expect("a directory of sources");
    let changes = entries.map(|entry| {
        let path = entry.expect("a source").path();
        if path.is_dir() {
            last_change(&path)
        } else {
            modified(&path).expect("a source")
        }
    });
    changes.max().expect("a source")
}

/// Held by each test: an example that another test starts has copies of all descriptors until it is
/// executed, and examples print who has a file or a socket.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an example, and returns what it prints.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("an example");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("examples print text")
}

/// The name of this process, as the examples print it.
fn own_name() -> String {
    let name = fs::read("/proc/self/comm").expect("our own name");
    name.trim_ascii().escape_ascii().to_string()
}

/// Check that `ps` prints a line for each process, with the right values for this one.
#[test]
fn ps_lists_processes() {
    let _turn = turn();
    let printed = run(&mut example("ps"));
    let own = process::id().to_string();
    let line = printed.lines().map(str::trim).find(|line| line.starts_with(&own));
    let words: Vec<&str> = line.expect("this process").split_whitespace().collect();
    let uid = rustix::process::geteuid().as_raw().to_string();
    assert_eq!(
        (words[0], words[1], words[4..].join(" ")),
        (&own[..], &uid[..], own_name())
    );
    let rss_kib: u64 = words[3].parse().expect("a number");
    assert!(rss_kib > 100, "{rss_kib} KiB");
    assert!(printed.lines().count() > 2, "{printed}");
}

/// Check that `top` prints this process, which works all the time. It has enough threads to be
/// among the busiest even while other tests run.
#[test]
fn top_finds_busy_processes() {
    let _turn = turn();
    static STOP: AtomicBool = AtomicBool::new(false);
    let workers = [(); 8].map(|()| {
        thread::spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                spin_loop()
            }
        })
    });
    let printed = run(&mut example("top"));
    STOP.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("no panic");
    }
    let (own, name) = (process::id().to_string(), own_name());
    let is_own = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() >= 4 && words[1] == "%" && words[2] == own && words[3..].join(" ") == name
    };
    assert!(printed.lines().any(|line| is_own(&line)), "{printed}");
}

/// Check that `normalize` finds its own file, and the reason for an address without one.
#[test]
fn normalize_finds_files() {
    let _turn = turn();
    let printed = run(&mut example("normalize"));
    assert!(printed.contains("examples/normalize"), "{printed}");
    let own = process::id().to_string();
    let address = format!("{:#x}", &own as *const String as usize);
    let printed = run(example("normalize").args([&own, &address]));
    assert!(
        printed.starts_with(&address) && printed.contains("Anonymous"),
        "{printed}"
    );
}

/// Check that `file_cache` finds that a file of this process is in memory, and who has it open.
#[test]
fn file_cache_finds_who_holds_a_file() {
    let _turn = turn();
    let path = std::env::temp_dir().join(format!("taskdiag-example-{}", process::id()));
    fs::write(&path, [1; 10_000]).expect("a file");
    let file = fs::File::open(&path).expect("our own file");
    let printed = run(example("file_cache").arg(&path));
    fs::remove_file(&path).expect("our own file");
    drop(file);
    assert!(printed.contains("100 % of 10000 bytes"), "{printed}");
    let holder = format!("process {} has it open or mapped", process::id());
    assert!(printed.contains(&holder), "{printed}");
}

/// Check that `open_files` finds a file that this process has open.
#[test]
fn open_files_finds_who_has_a_path_open() {
    let _turn = turn();
    let path = std::env::temp_dir().join(format!("taskdiag-example-open-{}", process::id()));
    fs::write(&path, [1; 10]).expect("a file");
    let file = fs::File::open(&path).expect("our own file");
    let printed = run(example("open_files").arg(&path));
    fs::remove_file(&path).expect("our own file");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let words: Vec<&str> = printed.split_whitespace().take(3).collect();
    let (own, fd) = (process::id().to_string(), fd.to_string());
    assert_eq!(words, [&own[..], &fd, path.to_str().expect("UTF-8")], "{printed}");
}

/// Check that `sockets` finds a listening socket and its owner.
#[test]
fn sockets_finds_who_listens() {
    let _turn = turn();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let printed = run(&mut example("sockets"));
    let fd = std::os::fd::AsRawFd::as_raw_fd(&listener);
    let line = format!("tcp 127.0.0.1 {port} {}/{fd}", process::id());
    assert!(printed.lines().any(|printed| printed == line), "{printed}");
}

/// Check that `wait_for_exec` reports a program and its process.
#[test]
fn wait_for_exec_notices_a_program() {
    let _turn = turn();
    let name = format!("td-{}", process::id());
    let program = std::env::temp_dir().join(&name);
    taskdiag_zoo::copy_program(Path::new("/bin/true"), &program).expect("a copy");
    let mut waiting = example("wait_for_exec");
    let mut waiting = waiting.arg(&name).stdout(Stdio::piped()).spawn().expect("an example");
    let mut lines = BufReader::new(waiting.stdout.take().expect("a pipe")).lines();
    let first = lines.next().expect("a line").expect("text");
    assert_eq!(first, format!("waiting for {name}"));
    let mut child = Command::new(&program).spawn().expect("a process");
    let pid = child.id();
    child.wait().expect("our child");
    let second = lines.next().expect("a line").expect("text");
    fs::remove_file(&program).expect("our own file");
    assert_eq!(second, format!("process {pid} executes it"));
    assert!(waiting.wait().expect("our child").success());
}
