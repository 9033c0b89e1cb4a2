//! Questions about mappings end in time, even if a process holds the lock of its memory, or maps a
//! file whose file system does not answer. All other processes are still answered.

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use taskdiag::maps::{Filter, MapField, Normalizer};
use taskdiag::pagecache::{self, ByteRange, Finder, Seen};
use taskdiag::{Absent, ErrorKind, Handle, Set, SourceId};
use taskdiag_testkit::animal;

const PATIENCE: Duration = Duration::from_millis(500);

/// The file that the animals map.
const AT: u64 = 0x2000_0000_0000;

/// A reader that waits for a process answers for all of this process. So a test that asks about all
/// processes must not meet one of which another test says that no reader waits for it yet.
static HOLDERS: Mutex<()> = Mutex::new(());

/// Fails if something takes longer than this many times the patience, plus a second.
#[track_caller]
fn in_time<T>(times: u32, what: impl FnOnce() -> T) -> T {
    let _turn = taskdiag_zoo::run_first();
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

fn handle() -> Handle {
    Handle::new().with_patience(PATIENCE)
}

fn everything() -> Set<MapField> {
    MapField::Name | MapField::BuildId
}

/// Check that a process that holds the lock of its memory is given up, for this question and at
/// once for later ones.
#[test]
fn a_held_lock_blocks_no_query() {
    let _turn = HOLDERS.lock();
    let holder = animal("holds-lock");
    let pid = holder.pid as u32;
    for source in [
        None,
        Some(SourceId::Procfs),
        Some(SourceId::Procmap),
        Some(SourceId::Bpf),
    ] {
        // Newer kernels answer without that lock.
        let listed = in_time(1, || {
            let mut handle = match source {
                Some(source) => handle().with_source(source),
                None => handle(),
            };
            handle.maps(pid)?.list(Filter::default(), MapField::Name)
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
    // Another process, for which no reader waits yet. Before Linux 6.18, readers wait for the first
    // one.
    let holder = animal("holds-lock");
    let pid = holder.pid as u32;
    let mut maps = handle().maps(pid).expect("opened without the lock");
    let error = in_time(1, || {
        maps.list(Filter::default(), MapField::RssBytes)
            .expect_err("sizes take the lock")
    });
    assert_eq!(error.kind(), ErrorKind::NoAnswer, "{error}");
    assert!(error.to_string().contains(&pid.to_string()), "{error}");
    let start = Instant::now();
    let error = maps
        .list(Filter::default(), MapField::Name)
        .expect_err("a reader has it");
    assert_eq!(error.kind(), ErrorKind::NoAnswer, "{error}");
    assert!(start.elapsed() < PATIENCE / 2, "asked again");
    // The build id of the vdso is in that memory.
    let mut maps = handle().maps(pid).expect("opened without the lock");
    if let Ok(listed) = in_time(3, || maps.list(Filter::default(), everything())) {
        let vdso = listed.iter().find(|mapping| mapping.name == Ok(b"[vdso]"));
        assert_eq!(vdso.map(|vdso| vdso.build_id), Some(Err(Absent::NoAnswer)));
        let silent = listed.iter().find(|mapping| mapping.start == AT).expect("the file");
        assert_eq!(silent.build_id, Err(Absent::NoAnswer));
    }
}

/// Check that all other processes are listed although one holds its lock and another maps a silent
/// file.
#[test]
fn machines_are_listed_beside_holders() {
    let _turn = HOLDERS.lock();
    let holders = [animal("holds-lock"), animal("silent-file")];
    let other = animal("comm-parens");
    for source in [SourceId::Procfs, SourceId::Bpf] {
        for fields in [MapField::Name.into(), everything()] {
            let mut machine = handle().with_source(source);
            // The readers, and a file for each silent device. Other tests have holders of their
            // own, of which at most sixteen are tried.
            let listed = in_time(20, || machine.all_maps(Filter::default(), fields));
            let listed = match listed {
                Err(error) if source == SourceId::Bpf && error.kind() == ErrorKind::Unsupported => continue,
                listed => listed.unwrap_or_else(|error| panic!("{source}: {error}")),
            };
            let of = |pid: i32| {
                let mappings = &listed.mappings;
                let of = mappings.iter().filter(|mapping| mapping.pid == Some(pid as u32));
                of.collect::<Vec<_>>()
            };
            for holder in &holders {
                let is_silent = listed.silent.contains(&(holder.pid as u32));
                let met = of(holder.pid);
                assert!(
                    is_silent || met.iter().any(|mapping| mapping.start == AT),
                    "{source} {}",
                    holder.name
                );
                for mapping in met
                    .iter()
                    .filter(|mapping| mapping.start == AT && fields == everything())
                {
                    assert_eq!(mapping.build_id, Err(Absent::NoAnswer), "{source} {}", holder.name);
                }
            }
            let whole = handle()
                .maps(other.pid as u32)
                .and_then(|mut maps| maps.list(Filter::default(), everything()));
            let whole = whole.expect("an animal that holds no reader");
            let met = of(other.pid);
            assert_eq!(met.len(), whole.len(), "{source}");
            for (met, mapping) in met.iter().zip(whole.iter()) {
                assert_eq!((met.start, met.name), (mapping.start, mapping.name), "{source}");
                let is_known = fields == MapField::Name.into() || met.build_id == mapping.build_id;
                assert!(is_known, "{source}: {met:?} {mapping:?}");
            }
        }
    }
}

/// Check that a mapped file whose file system does not answer has no build id and no page cache,
/// that all others have, and that none of our threads is left waiting for it.
#[test]
fn a_silent_file_blocks_no_query() {
    let holder = animal("silent-file");
    let pid = holder.pid as u32;
    let mut maps = handle().maps(pid).expect("a process");
    let listed = in_time(1, || maps.list(Filter::default(), everything())).expect("mappings");
    for mapping in &listed {
        let expected = mapping.start == AT;
        assert_eq!(mapping.build_id == Err(Absent::NoAnswer), expected, "{mapping:?}");
    }
    assert!(listed.iter().any(|mapping| matches!(mapping.build_id, Ok(Some(_)))));
    let of_go = in_time(1, || maps.list(Filter::default(), MapField::Name | MapField::GoBuildId));
    for mapping in &of_go.expect("mappings") {
        let expected = if mapping.start == AT {
            Err(Absent::NoAnswer)
        } else {
            Ok(None)
        };
        assert_eq!(mapping.go_build_id(), expected, "{mapping:?}");
    }
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
