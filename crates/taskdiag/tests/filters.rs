//! Which tasks an answer contains: filters, lists of processes, descendants, changed tasks. Whether
//! the kernel or the library decides, the result is the same as that of plain code over all tasks.

use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use taskdiag::{Absent, ErrorKind, Field, Fields, Filter, Query, Snapshot, SourceId, Task, Value};
use taskdiag_testkit::{animal, cgroup_mount, child, everything, handle, test_name, SOURCES};

fn pids(snapshot: &Snapshot) -> Vec<u32> {
    snapshot.tasks().map(|task| task.pid().expect("a pid")).collect()
}

type Plain = fn(&Task<'_>) -> bool;

/// Expressions, and plain code with the same meaning.
const EXPRESSIONS: &[(&str, Plain)] = &[
    ("uid == 0 and not kernel_thread", |t| {
        t.uid() == Ok(0) && t.kernel_thread() == Ok(false)
    }),
    ("kernel_thread", |t| t.kernel_thread() == Ok(true)),
    // Only ids need be read.
    ("pid not in (1, 2) and pid == tid", |t| t.pid().is_ok_and(|pid| pid > 2)),
    ("kernel_thread and comm ~ '^kworker/'", |t| {
        t.kernel_thread() == Ok(true) && t.comm().is_ok_and(|comm| comm.starts_with(b"kworker/"))
    }),
    ("uid == 1001 or euid == 1002 or suid == 1003", |t| {
        t.uid() == Ok(1001) || t.euid() == Ok(1002) || t.suid() == Ok(1003)
    }),
    ("comm == 'zoo' and state == 'S'", |t| {
        t.comm() == Ok(b"zoo") && t.state() == Ok('S')
    }),
    ("comm ~ '^z' and comm ~* '*oo'", |t| {
        t.comm()
            .is_ok_and(|comm| comm.starts_with(b"z") && comm.ends_with(b"oo"))
    }),
    ("state == 'Z' or state ~ '[Tt]'", |t| {
        matches!(t.state(), Ok('Z' | 'T' | 't'))
    }),
    ("nice > 0", |t| t.nice().is_ok_and(|nice| nice > 0)),
    ("nice < 0 and policy == 0", |t| {
        t.nice().is_ok_and(|nice| nice < 0) && t.policy() == Ok(0)
    }),
    ("threads_count > 4 and threads_count <= 500", |t| {
        t.threads_count().is_ok_and(|count| count > 4 && count <= 500)
    }),
    ("not (uid == 0 or nice != 0)", |t| {
        t.uid().is_ok_and(|uid| uid != 0) && t.nice() == Ok(0)
    }),
    ("oom_score_adj > 0", |t| t.oom_score_adj().is_ok_and(|adj| adj > 0)),
    ("vsize_bytes > 1M and cmdline ~ 'zoo'", |t| {
        t.vsize_bytes().is_ok_and(|bytes| bytes > 1 << 20)
            && t.cmdline()
                .is_ok_and(|args| args.as_bytes().windows(3).any(|window| window == b"zoo"))
    }),
    ("not vsize_bytes > 1M", |t| {
        t.vsize_bytes().is_ok_and(|bytes| bytes <= 1 << 20)
    }),
    ("groups == 1004 or tty_nr != 0", |t| {
        t.groups().is_ok_and(|groups| groups.iter().any(|gid| gid == 1004)) || t.tty_nr().is_ok_and(|tty| tty != 0)
    }),
    ("uid != euid", |t| {
        t.uid().is_ok_and(|uid| t.euid().is_ok_and(|euid| uid != euid))
    }),
    ("uid in (1001, 4242) or nice in (7, -3)", |t| {
        t.uid() == Ok(1001) || matches!(t.nice(), Ok(7 | -3))
    }),
    ("uid not in (0, 1001) and comm in ('zoo', 'sleep')", |t| {
        t.uid().is_ok_and(|uid| uid != 0 && uid != 1001) && matches!(t.comm(), Ok(b"zoo" | b"sleep"))
    }),
    ("cap_effective has sys_admin and not kernel_thread", |t| {
        t.cap_effective().is_ok_and(|set| set.0 >> 21 & 1 != 0) && t.kernel_thread() == Ok(false)
    }),
    ("sig_blocked has USR1 or sig_caught has TERM", |t| {
        t.sig_blocked().is_ok_and(|set| set.0 >> 9 & 1 != 0) || t.sig_caught().is_ok_and(|set| set.0 >> 14 & 1 != 0)
    }),
    (
        "limits.nofile.soft <= limits.nofile.hard and limits.as.soft == unlimited",
        |t| {
            let limit = |of: &str| {
                t.limits()
                    .ok()
                    .and_then(|limits| limits.iter().find(|(name, ..)| *name == of))
            };
            limit("nofile").is_some_and(|(_, soft, hard)| soft.unwrap_or(u64::MAX) <= hard.unwrap_or(u64::MAX))
                && limit("as").is_some_and(|(_, soft, _)| soft.is_none())
        },
    ),
    ("vsize_bytes > 1.5M and elapsed_ns < 2h and utime_ns >= 0.5ms", |t| {
        t.vsize_bytes().is_ok_and(|bytes| bytes > 3 << 19)
            && t.elapsed_ns().is_ok_and(|ns| ns < 7_200_000_000_000)
            && t.utime_ns().is_ok_and(|ns| ns >= 500_000)
    }),
    ("stat ~ 's' and uid == 0", |t| {
        t.stat().is_ok_and(|stat| stat.contains(&b's')) && t.uid() == Ok(0)
    }),
    ("user == 'root' and tty != ''", |t| {
        t.user() == Ok(b"root") && t.tty().is_ok_and(|tty| !tty.is_empty())
    }),
    (
        "start_time > '2020-01-01' and start_time < '2100-01-01T00:00:00Z' and mem_percent >= 0.5",
        |t| t.mem_percent().is_ok_and(|percent| percent >= 0.5),
    ),
    ("cpu_percent >= 0 and not cpu_percent < 0", |t| t.cpu_percent().is_ok()),
    ("pid >= 0 and comm ~ '.'", |t| {
        t.comm().is_ok_and(|comm| !comm.is_empty())
    }),
];

/// Check that each source finds the animals that plain code finds, and no others.
#[test]
fn filters_find_what_plain_code_finds() {
    let animals = everything();
    let steady: BTreeSet<u32> = animals.iter().map(|animal| animal.pid as u32).collect();
    for source in SOURCES {
        let mut handle = handle(source);
        let all = handle
            .query(&Query::processes().fields(Fields::all() | Field::User))
            .expect("all tasks");
        let mut picked = 0;
        for (text, plain) in EXPRESSIONS {
            let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let expected: Vec<u32> = all
                .tasks()
                .filter(plain)
                .map(|task| task.pid().expect("a pid"))
                .filter(|pid| steady.contains(pid))
                .collect();
            let snapshot = handle
                .query(&Query::processes().filter(filter))
                .unwrap_or_else(|error| panic!("{source} {text}: {error}"));
            assert!(snapshot.tasks().all(|task| plain(&task)), "{source} {text}");
            let mut found = pids(&snapshot);
            found.retain(|pid| steady.contains(pid));
            assert_eq!(found, expected, "{source} {text}");
            picked += found.len();
        }
        println!("{source}: {picked} animals picked");
        assert!(picked > 100);
    }
}

/// Check that workqueue workers are found by their whole names: the kernel adds to `comm` what they
/// work on. They work meanwhile, so not each is found.
#[test]
fn workers_are_found_by_their_names() {
    for source in SOURCES {
        let mut handle = handle(source);
        let mut named = |filter: &str| {
            let filter = Filter::parse(filter).expect("a filter");
            let query = Query::processes().fields(Field::Comm).filter(filter);
            let snapshot = handle.query(&query).expect("an answer");
            let names = snapshot.tasks().map(|task| task.comm().expect("a name").to_vec());
            names.collect::<Vec<_>>()
        };
        let names = named("kernel_thread and comm ~ '^kworker/[0-9]+:[0-9]+[-+][a-z_]+$'");
        assert!(!names.is_empty(), "{source}");
        let found = names.iter().filter(|name| {
            let name = String::from_utf8_lossy(name);
            !named(&format!("comm == '{name}'")).is_empty() && !named(&format!("comm ~ '^{name}'")).is_empty()
        });
        assert!(found.count() > 0, "{source}: none of {names:?}");
    }
}

/// Check that a test in the kernel compares the exact value of the field: equality is true,
/// inequality is not.
#[test]
fn single_values_are_compared_exactly() {
    const FIELDS: [Field; 19] = [
        Field::Pid,
        Field::Tid,
        Field::Ppid,
        Field::Pgid,
        Field::Sid,
        Field::ThreadsCount,
        Field::KernelThread,
        Field::TtyNr,
        Field::Uid,
        Field::Euid,
        Field::Suid,
        Field::Fsuid,
        Field::Gid,
        Field::Egid,
        Field::Sgid,
        Field::Fsgid,
        Field::Nice,
        Field::Policy,
        Field::OomScoreAdj,
    ];
    let zoo = ["ids-all-different", "terminal", "threads-5", "dead-leader"].map(animal);
    for source in SOURCES {
        let mut handle = handle(source);
        for pid in zoo.iter().map(|animal| animal.pid as u32).chain([2]) {
            let one = handle
                .query(&Query::process(pid).fields(Fields::all()))
                .expect("an animal");
            // With the pid, as many tests as a program accepts.
            for fields in FIELDS.chunks(15) {
                let tests = |relation: &str, word: &str| {
                    let test = |field: &Field| {
                        let value = match one.task(0).value(*field) {
                            Ok(Value::Unsigned(value)) => value.to_string(),
                            Ok(Value::Signed(value)) => value.to_string(),
                            Ok(Value::Flag(value)) => value.to_string(),
                            other => panic!("{field} is {other:?}"),
                        };
                        format!("{field} {relation} {value}")
                    };
                    fields.iter().map(test).collect::<Vec<_>>().join(word)
                };
                let all = format!("pid == {pid} and {}", tests("==", " and "));
                let none = format!("pid == {pid} and ({})", tests("!=", " or "));
                for (text, expected) in [(all, 1), (none, 0)] {
                    let filter = Filter::parse(&text).expect(&text);
                    let snapshot = handle.query(&Query::processes().filter(filter)).expect("an answer");
                    assert_eq!(snapshot.len(), expected, "{source} {text}");
                    // The kernel decided: it returned this one record, or none.
                    let bytes = snapshot.counters().record_bytes;
                    assert_eq!(bytes.is_some(), source == SourceId::Bpf, "{source} {text}");
                    assert!(
                        bytes <= Some(expected as u64 * 2048),
                        "{source} {text}: {bytes:?} bytes"
                    );
                }
            }
        }
    }
}

/// Check that a task is left out and counted if the caller may not see a value that the filter
/// looks at.
#[test]
fn undecided_tasks_are_counted() {
    child::run(test_name!(), "nobody", child::nobody(0), || {
        let filter = Filter::parse("read_chars >= 0").expect("a filter");
        let snapshot = taskdiag::Handle::new()
            .query(&Query::processes().filter(filter))
            .expect("an answer");
        assert!(snapshot.tasks().all(|task| task.read_chars().is_ok()));
        assert!(pids(&snapshot).contains(&std::process::id()));
        assert!(snapshot.counters().undecided.total() > 0, "{:?}", snapshot.counters());
        // Not those for which a derived value, which comes later, makes it false.
        for (text, is_open) in [
            ("read_chars >= 0 and unit == 'no-such.service'", false),
            ("read_chars >= 0 and cpu_percent > 1000000", false),
            ("read_chars >= 0 and not user == 'no-such-user'", true),
        ] {
            let filter = Filter::parse(text).expect("a filter");
            let snapshot = taskdiag::Handle::new()
                .query(&Query::processes().filter(filter))
                .expect("an answer");
            let undecided = snapshot.counters().undecided.total();
            assert_eq!(undecided > 0, is_open, "{text}: {undecided}");
        }
    });
}

/// Check that listed processes are returned once each, sorted, that those that do not exist are
/// reported as missing, and that few processes are not searched for among all.
#[test]
fn listed_processes_are_returned_alone() {
    let animals = ["threads-5", "dead-leader", "nice-7"].map(animal);
    let mut wanted: Vec<u32> = animals.iter().map(|animal| animal.pid as u32).collect();
    wanted.sort_unstable();
    let nobody = 4_194_303;
    let thread = *animals[0]
        .facts
        .tids
        .as_ref()
        .expect("threads")
        .last()
        .expect("a thread") as u32;
    for source in SOURCES {
        let mut handle = handle(source);
        let asked = wanted.iter().rev().copied().chain([nobody, wanted[0], thread]);
        let query = Query::these(asked.clone()).fields(Field::Comm | Field::Uid);
        let snapshot = handle.query(&query).expect("listed processes");
        assert_eq!(pids(&snapshot), wanted, "{source}");
        let mut missing = vec![thread, nobody];
        missing.sort_unstable();
        assert_eq!(snapshot.missing(), missing, "{source}");
        assert!(snapshot.tasks().all(|task| task.uid().is_ok()));

        // A filter does not make a process missing.
        let filtered = handle
            .query(&query.clone().filter(Filter::parse("nice == 7").expect("a filter")))
            .expect("listed processes");
        assert_eq!(pids(&filtered), [animals[2].pid as u32], "{source}");
        assert_eq!(filtered.missing(), missing, "{source}");

        let threads = handle
            .query(&Query::threads_of_these(asked).fields(Field::Comm))
            .expect("threads");
        let counts = animals.each_ref().map(|animal| {
            let of = |task: &Task<'_>| task.pid() == Ok(animal.pid as u32);
            (
                threads.tasks().filter(of).count(),
                animal.facts.tids.as_ref().map_or(1, Vec::len),
            )
        });
        assert!(counts.iter().all(|(found, made)| found == made), "{source}: {counts:?}");

        assert!(handle.query(&Query::these([])).expect("nothing asked").is_empty());
        // More than are worth visiting one by one.
        let range = wanted[0]..wanted[wanted.len() - 1] + 50_000;
        let snapshot = handle.query(&Query::these(range.clone())).expect("all");
        assert!(wanted.iter().all(|pid| pids(&snapshot).contains(pid)), "{source}");
        assert_eq!(snapshot.len() + snapshot.missing().len(), range.len(), "{source}");
    }
}

/// Check that all descendants of a process are found, and nothing else.
#[test]
fn all_descendants_are_found() {
    let animals = ["family", "pid-namespace", "nice-7"].map(animal);
    for source in SOURCES {
        let mut handle = handle(source);
        for animal in &animals {
            let mut expected = Vec::new();
            let mut left = vec![animal.pid as u32];
            while let Some(pid) = left.pop() {
                let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
                let children = text
                    .split_ascii_whitespace()
                    .map(|word| word.parse::<u32>().expect("a pid"));
                children.for_each(|child| {
                    expected.push(child);
                    left.push(child);
                });
            }
            expected.sort_unstable();
            let query = Query::descendants_of(animal.pid as u32).fields(Field::Comm | Field::Cmdline);
            let snapshot = handle.query(&query).expect("descendants");
            assert_eq!(pids(&snapshot), expected, "{source} {}", animal.name);
            assert!(snapshot.missing().is_empty());
        }
        let error = handle.query(&Query::descendants_of(4_194_303)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSuchTask);
    }
}

/// Check that members of a cgroup and of those below it are found.
#[test]
fn members_of_cgroups_are_found() {
    let animals = everything();
    let steady: BTreeSet<u32> = animals.iter().map(|animal| animal.pid as u32).collect();
    for source in SOURCES {
        let mut handle = handle(source);
        let all = handle
            .query(&Query::processes().fields(Field::Cgroup))
            .expect("all tasks");
        let Some(Ok(_)) = all.answers().next().map(|(_, answer)| answer) else {
            assert_eq!(cgroup_mount(), None, "{source}: there are cgroups");
            println!("{source}: no unified cgroups on this host");
            continue;
        };
        let mut paths: BTreeSet<Vec<u8>> = BTreeSet::from([b"/".to_vec()]);
        paths.extend(animals.iter().filter_map(|animal| animal.facts.cgroup.clone()));
        for path in paths.iter().filter(|path| !path.ends_with(b" (deleted)")) {
            let is_member = |cgroup: Result<&[u8], Absent>| {
                cgroup.is_ok_and(|cgroup| {
                    let below = [path.strip_suffix(b"/").unwrap_or(path), b"/"].concat();
                    cgroup == &path[..] || cgroup.starts_with(&below)
                })
            };
            let expected: Vec<u32> = all
                .tasks()
                .filter(|task| is_member(task.cgroup()))
                .map(|task| task.pid().expect("a pid"))
                .filter(|pid| steady.contains(pid))
                .collect();
            let snapshot = handle
                .query(&Query::processes().filter(Filter::within_cgroup(path)))
                .expect("members");
            let mut found = pids(&snapshot);
            found.retain(|pid| steady.contains(pid));
            assert_eq!(found, expected, "{source} {}", path.escape_ascii());
        }
    }
}

/// Uses enough processor time to show in clock ticks. Waiting is not enough: on a busy machine
/// others get most of the processor.
fn burn_ticks() {
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let as_ns = |time: rustix::time::Timespec| time.tv_sec * 1_000_000_000 + time.tv_nsec;
    let end = as_ns(used()) + 60_000_000;
    while as_ns(used()) < end {}
}

/// Check that after a first answer only tasks that have run, and new ones, are returned.
#[test]
fn only_changed_tasks_are_returned_again() {
    let idle = ["nice-7", "threads-5", "args-none"].map(animal);
    for source in SOURCES {
        for scope in [Query::processes(), Query::threads()] {
            let [mut handle, mut other] = [handle(source), handle(source)];
            let query = scope.fields(Field::Comm | Field::UtimeNs).only_changed();
            let mut all = || {
                let all = Query::new(query.scope).fields(Field::Comm | Field::StartNs);
                let snapshot = other.query(&all).expect("all tasks");
                let id = |task: Task<'_>| (task.tid().ok(), task.start_ns().ok());
                snapshot.tasks().map(id).collect::<BTreeSet<_>>()
            };
            let before = all();
            let first = handle.query(&query).expect("a first answer");
            let met: BTreeSet<Option<u32>> = first.tasks().map(|task| task.tid().ok()).collect();
            for stayed in before.intersection(&all()) {
                assert!(met.contains(&stayed.0), "{source}: {stayed:?}");
            }
            let idle_pids: BTreeSet<u32> = idle.iter().map(|animal| animal.pid as u32).collect();
            assert!(idle_pids.iter().all(|pid| pids(&first).contains(pid)), "{source}");

            let fresh = animal("nice-7");
            burn_ticks();
            sleep(Duration::from_millis(20));
            let second = handle.query(&query).expect("a second answer");
            let (few, many) = (second.counters().record_bytes, first.counters().record_bytes);
            // Before 6.2 the library compares.
            let decides = source == SourceId::Bpf && handle.support().task_walk.is_yes();
            assert!(few < many || !decides, "{few:?} of {many:?} bytes");
            let second = pids(&second);
            assert!(second.contains(&std::process::id()), "{source}: this process ran");
            assert!(second.contains(&(fresh.pid as u32)), "{source}: a new process");
            assert!(!idle_pids.iter().any(|pid| second.contains(pid)), "{source}: idle ones");

            // Filters and changes can be combined.
            let only = query
                .clone()
                .filter(Filter::one_of(Field::Pid, &[std::process::id(), fresh.pid as u32]));
            burn_ticks();
            let third = handle.query(&only).expect("a third answer");
            assert!(
                third.tasks().all(|task| task.pid() == Ok(std::process::id())),
                "{source}"
            );
            assert!(!third.is_empty(), "{source}");
        }
    }
}
