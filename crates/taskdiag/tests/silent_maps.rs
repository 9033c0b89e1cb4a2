//! Questions about mappings end in time, also if a process holds the lock of its memory, or maps a
//! file whose file system does not answer. All other processes are still answered.

use std::fs;
use std::time::{Duration, Instant};
use taskdiag::maps::{Filter, Machine, Maps, Normalizer, Source, Wants};
use taskdiag::pagecache::{self, ByteRange, Finder, Seen};
use taskdiag::{Absent, ErrorKind};
use taskdiag_testkit::animal;

const PATIENCE: Duration = Duration::from_millis(500);

/// The file that the animals map.
const AT: u64 = 0x2000_0000_0000;

/// Fails if something takes longer than so many times the patience, and a second.
#[track_caller]
fn in_time<T>(times: u32, what: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = what();
    let taken = start.elapsed();
    assert!(taken < times * PATIENCE + taskdiag_zoo::margin(), "{taken:?}");
    result
}

/// Threads of this process that wait for a file system's server, and would keep the process from
/// ending.
fn stuck() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("our threads");
    let stacks = tasks.flat_map(|task| fs::read_to_string(task.expect("a thread").path().join("wchan")));
    stacks.filter(|function| function.contains("wait_answer")).count()
}

const EVERYTHING: Wants = Wants::NAMES.union(Wants::BUILD_IDS);

/// Check that a process that holds the lock of its memory is given up, for this question and at
/// once for later ones.
#[test]
fn a_held_lock_blocks_no_query() {
    let holder = animal("holds-lock");
    let pid = holder.pid as u32;
    for source in [None, Some(Source::Procfs), Some(Source::Procmap), Some(Source::Bpf)] {
        // Newer kernels answer without that lock.
        let listed = in_time(1, || {
            let maps = Maps::open_within(pid, PATIENCE)?;
            let mut maps = match source {
                Some(source) => maps.with_source(source),
                None => maps,
            };
            maps.list(Filter::empty(), Wants::NAMES)
        });
        match listed {
            Ok(listed) => assert!(listed.iter().any(|mapping| mapping.start == AT)),
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::NoAnswer | ErrorKind::Unsupported),
                "{source:?}: {error}"
            ),
        }
    }
    drop(holder);
    // Another one, which no reader waits for yet. Before Linux 6.18 readers wait for the first one.
    let holder = animal("holds-lock");
    let pid = holder.pid as u32;
    let mut maps = Maps::open_within(pid, PATIENCE).expect("opened without the lock");
    let error = in_time(1, || {
        maps.list(Filter::empty(), Wants::USAGE)
            .expect_err("sizes take the lock")
    });
    assert_eq!(error.kind(), ErrorKind::NoAnswer, "{error}");
    assert!(error.to_string().contains(&pid.to_string()), "{error}");
    let start = Instant::now();
    let error = maps.list(Filter::empty(), Wants::NAMES).expect_err("a reader has it");
    assert_eq!(error.kind(), ErrorKind::NoAnswer, "{error}");
    assert!(start.elapsed() < PATIENCE / 2, "asked again");
    // The build id of the vdso is in that memory.
    let mut maps = Maps::open_within(pid, PATIENCE).expect("opened without the lock");
    if let Ok(listed) = in_time(3, || maps.list(Filter::empty(), EVERYTHING)) {
        let vdso = listed.iter().find(|mapping| mapping.name == Ok(b"[vdso]"));
        assert_eq!(vdso.map(|vdso| vdso.build_id), Some(Err(Absent::NoAnswer)));
        let silent = listed.iter().find(|mapping| mapping.start == AT).expect("the file");
        assert_eq!(silent.build_id, Err(Absent::NoAnswer));
    }
}

/// Check that all others are listed beside a process that holds its lock and one that maps a silent
/// file.
#[test]
fn machines_are_listed_beside_holders() {
    let holders = [animal("holds-lock"), animal("silent-file")];
    let other = animal("comm-parens");
    for source in [Source::Procfs, Source::Bpf] {
        for wants in [Wants::NAMES, EVERYTHING] {
            let mut machine = Machine::new().with_source(source).with_patience(PATIENCE);
            // The readers, and a file for each silent device. Other tests have holders of their
            // own, of which sixteen are tried at most.
            let listed = in_time(20, || machine.list(Filter::empty(), wants));
            let listed = match listed {
                Err(error) if source == Source::Bpf && error.kind() == ErrorKind::Unsupported => continue,
                listed => listed.unwrap_or_else(|error| panic!("{source}: {error}")),
            };
            let of = |pid: i32| {
                let mappings = &listed.mappings;
                let of = (0..mappings.len()).filter(move |&at| mappings.pid(at) == pid as u32);
                of.map(|at| mappings.get(at)).collect::<Vec<_>>()
            };
            for holder in &holders {
                let is_silent = listed.silent.contains(&(holder.pid as u32));
                let met = of(holder.pid);
                assert!(
                    is_silent || met.iter().any(|mapping| mapping.start == AT),
                    "{source} {}",
                    holder.name
                );
                for mapping in met.iter().filter(|mapping| mapping.start == AT && wants == EVERYTHING) {
                    assert_eq!(mapping.build_id, Err(Absent::NoAnswer), "{source} {}", holder.name);
                }
            }
            let whole = Maps::open_within(other.pid as u32, PATIENCE)
                .and_then(|mut maps| maps.list(Filter::empty(), EVERYTHING));
            let whole = whole.expect("an animal that holds no reader");
            let met = of(other.pid);
            assert_eq!(met.len(), whole.len(), "{source}");
            for (met, mapping) in met.iter().zip(whole.iter()) {
                assert_eq!((met.start, met.name), (mapping.start, mapping.name), "{source}");
                let is_known = wants == Wants::NAMES || met.build_id == mapping.build_id;
                assert!(is_known, "{source}: {met:?} {mapping:?}");
            }
        }
    }
}

/// Check that a mapped file whose file system does not answer has no build id and no page cache,
/// that all others have, and that no thread of ours is left waiting for it.
#[test]
fn a_silent_file_blocks_no_query() {
    let holder = animal("silent-file");
    let pid = holder.pid as u32;
    let mut maps = Maps::open_within(pid, PATIENCE).expect("a process");
    let listed = in_time(1, || maps.list(Filter::empty(), EVERYTHING)).expect("mappings");
    for mapping in &listed {
        let expected = mapping.start == AT;
        assert_eq!(mapping.build_id == Err(Absent::NoAnswer), expected, "{mapping:?}");
    }
    assert!(listed.iter().any(|mapping| matches!(mapping.build_id, Ok(Some(_)))));
    let normalized = in_time(1, || Normalizer::new().normalize(&mut maps, &[AT + 1]));
    let normalized = normalized.expect("mappings");
    assert_eq!(normalized.files[0].build_id, Err(Absent::NoAnswer));

    let mut finder = Finder::new(pagecache::Source::of_this_host(), ByteRange::ALL, PATIENCE);
    let (mut silent, mut told) = (0, 0);
    let found = in_time(1, || {
        finder.held_files(pid, &mut Seen::default(), &mut |held| match held.usage {
            Ok(_) => told += 1,
            Err(reason) => {
                assert_eq!(reason, Absent::NoAnswer, "{held:?}");
                silent += 1;
            }
        })
    });
    found.expect("files");
    assert_eq!(silent, 1);
    assert!(told > 0);
    assert_eq!(stuck(), 0);
}
