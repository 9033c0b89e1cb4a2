//! Running out of descriptors is an error; it must not make files disappear.

use std::fs;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use taskdiag::files::{Request, Use};
use taskdiag::{ErrorKind, Field, Query, Set, SourceId};
use taskdiag_testkit::temporary::Killed;
use taskdiag_testkit::{child, test_name};

use super::{handle, SOURCES};

/// A process with a few descriptors.
fn sleeper() -> Killed {
    let mut sleep = Command::new("sleep");
    let sleep = sleep.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
    Killed(sleep.spawn().expect("sleep"))
}

/// Lets this process open this many more descriptors, and calls `body`.
fn with_room_for<T>(more: u64, body: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    // The lowest free number, because nothing else opens files here.
    let free = fs::File::open("/dev/null").expect("it exists").as_raw_fd() as u64;
    let limit = |current| Rlimit {
        current: Some(current),
        ..before
    };
    setrlimit(Resource::Nofile, limit(free + more)).expect("a lower limit");
    let result = body();
    setrlimit(Resource::Nofile, before).expect("the limit from before");
    result
}

/// Check that a caller without free descriptors gets an error for every query: no process seems to
/// have ended, and no file is left out.
#[test]
fn too_few_descriptors_are_an_error() {
    child::run(test_name!(), "few", child::World::default(), || {
        let sleeper = sleeper();
        for source in SOURCES {
            let mut handle = handle(source);
            let query = Query::these([sleeper.0.id()]).fields(Field::StartNs);
            let processes = handle.query(&query).expect("processes");
            let all = Set::from(Use::ALL);
            for uses in [all, all.without(Use::Map), Use::Map.into()] {
                let mut request = Request::default();
                request.uses = uses;
                let mut ask = || {
                    let answer = handle.files(&processes, &request, |_, _| ControlFlow::Continue(()));
                    answer.map(|answer| answer.files).map_err(|error| error.kind())
                };
                let all = ask().expect("files");
                assert!(all > 0);
                let found: Vec<_> = (0..8).map(|more| with_room_for(more, &mut ask)).collect();
                let is_told = |found: &Result<u64, ErrorKind>| [Ok(all), Err(ErrorKind::System)].contains(found);
                assert!(found.iter().all(is_told), "{source} {uses:?}: {all}, {found:?}");
                // The program needs no descriptors, except for mappings.
                if source == SourceId::Procfs || uses.contains(Use::Map) {
                    assert_eq!(found[0], Err(ErrorKind::System), "{source} {uses:?}");
                }
                assert_eq!(found[7], Ok(all), "{source} {uses:?}");
            }
        }
    });
}

/// Check that a caller without free descriptors gets an error for command lines, too, which procfs
/// adds to the answers of other sources.
#[test]
fn too_few_descriptors_hide_no_arguments() {
    child::run(test_name!(), "few", child::World::default(), || {
        let sleeper = sleeper();
        for source in SOURCES {
            let mut handle = handle(source).one_shot();
            let query = Query::these([sleeper.0.id()]).fields(Field::Cmdline);
            let mut ask = || {
                let answer = handle.query(&query);
                let has_all = answer.map(|answer| answer.tasks().all(|task| task.cmdline().is_ok()));
                has_all.map_err(|error| error.kind())
            };
            assert_eq!(ask(), Ok(true));
            let found: Vec<_> = (0..8).map(|more| with_room_for(more, &mut ask)).collect();
            let is_told = |found: &Result<bool, ErrorKind>| [Ok(true), Err(ErrorKind::System)].contains(found);
            assert!(found.iter().all(is_told), "{source}: {found:?}");
            assert_eq!((found[0], found[7]), (Err(ErrorKind::System), Ok(true)), "{source}");
        }
    });
}
