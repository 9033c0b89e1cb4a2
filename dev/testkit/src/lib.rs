//! Shared by the tests of several crates: comparisons of snapshots with the kernel's text,
//! processes with other rights, and cgroups. Tests that use it need root (with BPF), and fail
//! without it.

#![allow(missing_docs, missing_debug_implementations)] // its users are tests, which are near

pub mod cgroup;
pub mod child;
pub mod compare;
pub mod numbers;
pub mod storage;
pub mod temporary;
pub mod text;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::LazyLock;
use std::time::Duration;

use taskdiag::{Field, Fields, Group, Handle, Query, SourceId};
use taskdiag_zoo::{Animal, Zoo};

/// Every field except rollups: all fields that [`text`] knows.
pub fn fields() -> Fields {
    let named = Field::Environ | Field::User | Field::Group | Field::ContainerName | Field::ContainerRuntime;
    Fields::all() | named | Fields::of_group(Group::Text)
}

pub const SOURCES: [SourceId; 2] = [SourceId::Bpf, SourceId::Procfs];

/// A handle that answers through `source`, before its first query.
pub fn unasked(source: SourceId) -> Handle {
    // On a machine that is busy with more than these tests, even a process that holds no reader may
    // take long to answer.
    Handle::new().with_source(source).with_patience(Duration::from_secs(5))
}

/// A handle that answers through `source`. Fails the test if the source is missing: that is no
/// reason to skip a test.
///
/// Its readers have been started: threads started later would show in this process, which is among
/// the compared ones.
pub fn handle(source: SourceId) -> Handle {
    let mut handle = unasked(source);
    if source == SourceId::Bpf {
        let prepared = handle.prepare(Fields::all());
        prepared.unwrap_or_else(|error| panic!("these tests need BPF: {error}"));
    }
    let first = handle.query(&Query::processes().fields(Field::Cmdline));
    first.unwrap_or_else(|error| panic!("{source}: {error}"));
    handle
}

/// The start time of a task in clock ticks since boot: field 22 of a `stat` file.
pub fn start_ticks(path: &str) -> u64 {
    let stat = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    // The name before the last parenthesis may contain spaces.
    let behind_name = stat.rsplit(')').next();
    let ticks = behind_name.and_then(|rest| rest.split(' ').nth(20)?.parse().ok());
    ticks.expect("a start")
}

/// Where the unified cgroup hierarchy is mounted. `None` where it is not.
pub fn cgroup_mount() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let mount = taskdiag_zoo::cgroup_mount(&mounts);
    assert_eq!(mount.is_some(), mounts.contains(" - cgroup2 "), "{mounts}");
    mount
}

/// The first two numbers of this kernel's version. Needs no `/proc`.
pub fn kernel() -> (u32, u32) {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).flat_map(|word| word.parse().ok());
    (numbers.next().expect("a number"), numbers.next().expect("another"))
}

/// Sets a flag when it is dropped, also by a test that fails: the test then does not wait for
/// threads that run until the flag is set.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How often to do something that is done `count` times on an ordinary machine.
/// `TASKDIAG_TEST_SCALE` is a percentage.
pub fn scaled(count: usize) -> usize {
    let percent = match std::env::var("TASKDIAG_TEST_SCALE") {
        Ok(text) => text.parse().expect("TASKDIAG_TEST_SCALE is a percentage"),
        Err(_) => 100,
    };
    (count * percent / 100).max(1)
}

/// All animals of the zoo. They are shared, because starting them takes seconds: the tests of a
/// process only look at them, and they end with it. Prints which ones this host refused.
pub fn everything() -> &'static [Animal] {
    static ANIMALS: LazyLock<Vec<Animal>> = LazyLock::new(|| {
        let zoo = Zoo::new().expect("a zoo");
        let (animals, refused) = zoo.everything().expect("animals");
        for (name, why) in refused {
            println!("not on this host: {name}: {why}");
        }
        animals
    });
    &ANIMALS
}

pub fn animal(name: &str) -> Animal {
    let zoo = Zoo::new().expect("a zoo");
    zoo.start(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}
