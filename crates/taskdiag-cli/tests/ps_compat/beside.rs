//! Runs ps and taskdiag ps, and the processes that both list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use taskdiag_zoo::{Animal, Zoo};

use crate::common::{self, Run};

/// ps keeps at most this many bytes of a line.
const LONGEST: usize = 60_000;

/// The zoo, started once for all tests. All its processes are idle.
pub fn zoo() -> &'static [Animal] {
    &zoo_with_age().0
}

/// The zoo, and the time when its last animal was ready.
pub fn zoo_with_age() -> &'static (Vec<Animal>, Instant) {
    static ANIMALS: OnceLock<(Vec<Animal>, Instant)> = OnceLock::new();
    ANIMALS.get_or_init(|| {
        let zoo = Zoo::new().expect("a zoo");
        let (animals, _refused) = zoo.everything().expect("animals");
        assert!(animals.len() > 40, "{} animals", animals.len());
        // An animal is announced just before it goes to sleep; its other threads follow.
        for animal in &animals {
            while is_running(animal.pid.unsigned_abs()) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        (animals, Instant::now())
    })
}

/// Whether a thread of the process is running.
fn is_running(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    let mut threads = threads.map(|thread| thread.expect("it is there").path().join("stat"));
    threads.any(|path| words(&path)[0] == "R")
}

/// The words of `/proc/PID/stat`, starting with the state.
pub fn stat(pid: u32) -> Vec<String> {
    words(format!("/proc/{pid}/stat").as_ref())
}

fn words(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).expect("it is there");
    let text = String::from_utf8_lossy(&bytes);
    let (_, rest) = text.rsplit_once(')').expect("a name in parentheses");
    rest.split_whitespace().map(str::to_owned).collect()
}

pub fn parent(pid: u32) -> u32 {
    stat(pid)[1].parse().expect("a number")
}

/// All but the process whose first thread has ended: ps does not look at its other threads.
pub fn animals() -> BTreeSet<u32> {
    let alike = zoo().iter().filter(|animal| !animal.name.ends_with("dead-leader"));
    alike.map(|animal| animal.pid.unsigned_abs()).collect()
}

/// The animals and their keepers, without this test.
pub fn family() -> BTreeSet<u32> {
    let mut family = animals();
    for mut pid in animals() {
        loop {
            pid = parent(pid);
            if pid == std::process::id() || pid <= 1 {
                break;
            }
            family.insert(pid);
        }
    }
    family
}

/// This test, init, and kernel threads that live as long as their processor, and so change only
/// with the host.
pub fn fixtures() -> BTreeSet<u32> {
    let lives_on = |pid: &u32| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        ["kthreadd", "ksoftirqd/", "migration/", "cpuhp/"]
            .iter()
            .any(|name| comm.starts_with(name))
    };
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(lives_on).chain([1, std::process::id()]).collect()
}

pub fn list(pids: impl IntoIterator<Item = u32>) -> String {
    let pids: Vec<String> = pids.into_iter().map(|pid| pid.to_string()).collect();
    pids.join(",")
}

pub fn ps(args: &[&str]) -> Run {
    let mut command = Command::new("/usr/bin/ps");
    command.args(args).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    command.env_remove("COLUMNS").env_remove("PS_FORMAT");
    let run = Run::new(command.output().expect("Debian's ps is installed"));
    assert_eq!(run.stderr, "", "{args:?}");
    run
}

pub fn ours(args: &[&str]) -> Run {
    let mut command = common::command(&[&["ps"], args].concat());
    command.env_remove("COLUMNS").env_remove("PS_FORMAT");
    Run::new(command.output().expect("the binary runs"))
}

/// The lines of an answer, with marks for text that is not UTF-8.
pub fn lines(run: &Run) -> Vec<String> {
    let text = String::from_utf8_lossy(&run.stdout);
    text.lines().map(str::to_owned).collect()
}

/// The text after the id, by id.
pub fn by_pid(run: &Run) -> BTreeMap<u32, String> {
    let cells = lines(run).into_iter().map(|line| {
        let trimmed = line.trim_start();
        let digits = trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let pid = trimmed[..digits]
            .parse()
            .unwrap_or_else(|_| panic!("{line:?} begins with an id"));
        let text = trimmed[digits..].strip_prefix(' ').unwrap_or_default();
        (pid, text.to_owned())
    });
    cells.collect()
}

/// Removes the intended differences between ps and taskdiag.
pub fn normalized(specifier: &str, text: &str) -> String {
    let text = text.get(..LONGEST).unwrap_or(text);
    match specifier {
        // After bytes that are not UTF-8, ps shows dots for control characters.
        _ if text.contains('?') => text.replace('.', "?"),
        _ => text.to_owned(),
    }
}

/// Whether everything was answered except values that may not be read.
pub fn is_answered(run: &Run) -> bool {
    // Not every host has a security module with labels.
    let is_known = |line: &str| line.contains(": denied for ") || line.contains("security_label: unsupported");
    run.code == Some(0) || run.code == Some(1) && run.stderr.lines().all(is_known)
}
