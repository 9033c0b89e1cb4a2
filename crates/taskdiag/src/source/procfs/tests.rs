//! Tests of the source on the `/proc` of the host.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use rustix::fs::CWD;
use taskdiag_core::error::ErrorKind;
use taskdiag_core::field::Group;
use taskdiag_core::record::{attr, Header, Record, KERNEL_THREAD, NO_MM};
use taskdiag_core::value::Value;
use zerocopy::native_endian::U64;

use super::place::Place;
use super::task::is_in_use;
use super::*;

const PATIENCE: Duration = Duration::from_secs(5);

fn ask(scope: Scope, fields: impl Into<Fields>) -> Result<Snapshot, Error> {
    let fields = fields.into() | Field::Pid | Field::Tid;
    let mut snapshot = Snapshot::default();
    snapshot.clear(fields);
    Procfs::open(&Proc::default())?.read(&Query::new(scope), fields, PATIENCE, &mut snapshot)?;
    Ok(snapshot)
}

fn own(fields: impl Into<Fields>) -> Snapshot {
    ask(Scope::Process(std::process::id()), fields).unwrap()
}

/// A child that ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        // It has its own name before it has its memory. Once it sleeps, everything is loaded.
        let stat = format!("/proc/{}/stat", child.id());
        while !fs::read_to_string(&stat).unwrap().contains("(sleep) S ") {
            std::thread::yield_now();
        }
        Sleeper(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The words of a line of `/proc/PID/status`.
fn line(pid: u32, key: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap().split_whitespace().map(str::to_owned).collect()
}

/// Check that values that do not change equal those of a plain reading of the files.
#[test]
fn fixed_values_are_those_of_the_files() {
    let child = Sleeper::start();
    let pid = child.pid();
    let snapshot = ask(Scope::Process(pid), Fields::all()).unwrap();
    assert_eq!(snapshot.len(), 1);
    let task = snapshot.task(0);

    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let stat: Vec<&str> = stat.split_whitespace().collect();
    let number = |index: usize| stat[index - 1].parse::<u64>().unwrap();
    assert_eq!(task.comm().unwrap(), b"sleep");
    assert_eq!(task.ppid().unwrap(), std::process::id());
    assert_eq!(u64::from(task.pgid().unwrap()), number(5));
    assert_eq!(u64::from(task.sid().unwrap()), number(6));
    assert_eq!(task.start_ns().unwrap() as u64, number(22) * 10_000_000);
    assert_eq!(task.exit_signal().unwrap(), 17);
    assert_eq!(task.min_faults().unwrap(), number(10));
    assert_eq!(task.priority().unwrap().to_string(), stat[17]);
    assert_eq!(task.utime_ns().unwrap(), number(14) * 10_000_000);
    assert!(!task.kernel_thread().unwrap());

    let kib = |key: &str| line(pid, key)[0].parse::<u64>().unwrap() * 1024;
    assert_eq!(task.vsize_bytes().unwrap(), kib("VmSize"));
    assert_eq!(task.rss_bytes().unwrap(), kib("VmRSS"));
    assert_eq!(task.page_table_bytes().unwrap(), kib("VmPTE"));
    assert_eq!(task.lib_bytes().unwrap(), kib("VmLib"));
    assert_eq!(task.uid().unwrap().to_string(), line(pid, "Uid")[0]);
    assert_eq!(task.fsgid().unwrap().to_string(), line(pid, "Gid")[3]);
    assert_eq!(
        format!("{:016x}", task.cap_bounding().unwrap().0),
        line(pid, "CapBnd")[0]
    );
    assert_eq!(task.affinity().unwrap().to_string(), line(pid, "Cpus_allowed_list")[0]);
    let ids = |ids: taskdiag_core::value::Ids| ids.iter().map(|id| id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(task.groups().unwrap()), line(pid, "Groups"));
    assert_eq!(ids(task.nspids().unwrap()), line(pid, "NSpid"));

    assert_eq!(
        task.cmdline().unwrap().iter().collect::<Vec<_>>(),
        [&b"sleep"[..], b"1000"]
    );
    let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    assert_eq!(task.oom_score_adj().unwrap().to_string(), score.trim());
    for field in Field::ALL.iter().copied() {
        let Some(name) = field.info().origin.strip_prefix("ns/") else {
            continue;
        };
        let Ok(namespace) = fs::metadata(format!("/proc/{pid}/ns/{name}")) else {
            assert_eq!(task.value(field), Err(Absent::Unsupported));
            continue;
        };
        assert_eq!(task.value(field), Ok(Value::Unsigned(namespace.ino())), "{name}");
    }
    let runtime = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    let runtime = runtime.split(' ').next().unwrap();
    assert_eq!(task.runtime_ns().unwrap().to_string(), runtime);
}

/// Check that every field has a value or a reason, and that a field that was not asked for has
/// neither.
#[test]
fn every_field_is_answered() {
    let fields = Fields::all().without(Fields::of_group(Group::Derived)) | Field::Environ;
    let snapshot = own(fields);
    for field in fields.iter() {
        let value = snapshot.task(0).value(field);
        assert!(
            !matches!(value, Err(Absent::NotAsked | Absent::Gone | Absent::NoMemory)),
            "{field}: {value:?}"
        );
    }
    let snapshot = own(Field::Uid);
    assert_eq!(snapshot.task(0).ppid(), Err(Absent::NotAsked));
    assert_eq!(snapshot.task(0).uid(), Ok(rustix::process::getuid().as_raw()));
}

/// Check that all processes are there, each once and by ascending id, and that kernel threads have
/// no memory.
#[test]
fn processes_ascend() {
    let child = Sleeper::start();
    let snapshot = ask(Scope::Processes, Field::Comm | Field::RssBytes | Field::Cmdline).unwrap();
    let pids: Vec<u32> = snapshot.tasks().map(|task| task.pid().unwrap()).collect();
    assert!(pids.is_sorted_by(|a, b| a < b));
    assert!(pids.contains(&std::process::id()) && pids.contains(&child.pid()));
    assert_eq!(snapshot.counters().malformed, 0);
    for task in snapshot.tasks() {
        if task.record().has(KERNEL_THREAD) {
            assert!(task.record().has(NO_MM));
            assert_eq!(task.rss_bytes(), Err(Absent::NoMemory));
            assert_eq!(task.cmdline(), Err(Absent::NoMemory));
        }
        // Longer names have a separate attribute.
        let name = task.record().attribute(attr::NAME);
        assert!(name.is_none_or(|name| name.payload.len() > 15));
    }
    let names = ask(Scope::Processes, Field::Pid).unwrap();
    let record = names.task(0).record();
    assert_eq!(record.attributes().count(), 0);
}

/// Check that an empty command line is told from a missing one even if `cmdline` is the only file
/// asked for.
#[test]
fn command_lines_alone() {
    let mut zombie = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", zombie.id());
    while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    for fields in [
        Field::Cmdline.into(),
        Field::Cmdline | Field::Uid,
        Field::Cmdline | Field::Comm,
    ] {
        let snapshot = ask(Scope::ChildrenOf(std::process::id()), fields).unwrap();
        let task = snapshot.tasks().find(|task| task.pid() == Ok(zombie.id())).unwrap();
        assert_eq!(task.cmdline(), Err(Absent::NoMemory));
        let snapshot = ask(Scope::Processes, fields).unwrap();
        let task = snapshot.tasks().find(|task| task.pid() == Ok(zombie.id())).unwrap();
        assert_eq!(task.cmdline(), Err(Absent::NoMemory));
    }
    let snapshot = ask(Scope::Process(zombie.id()), Fields::all()).unwrap();
    let task = snapshot.task(0);
    assert_eq!(task.state(), Ok('Z'));
    assert_eq!(task.rss_bytes(), Err(Absent::NoMemory));
    assert_eq!(task.ns_net(), Err(Absent::Gone));
    assert!(task.ns_user().is_ok() && task.uid().is_ok() && task.oom_score().is_ok());
    zombie.wait().unwrap();
}

/// Check that a thread is found among those of its process, whatever its name is, and never as a
/// process.
#[test]
fn threads_are_no_processes() {
    let (send_tid, tid) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        rustix::thread::set_name(c"a) (b\n \xff").unwrap();
        send_tid
            .send(rustix::thread::gettid().as_raw_nonzero().get() as u32)
            .unwrap();
        let _ = ended.recv();
    });
    let tid = tid.recv().unwrap();
    let pid = std::process::id();
    for scope in [Scope::ThreadsOf(pid), Scope::Threads] {
        let snapshot = ask(scope, Field::Comm | Field::ExitSignal | Field::Uid).unwrap();
        let tids: Vec<u32> = snapshot.tasks().map(|task| task.tid().unwrap()).collect();
        assert!(tids.is_sorted_by(|a, b| a < b));
        let task = snapshot.tasks().find(|task| task.tid() == Ok(tid)).unwrap();
        assert_eq!(task.pid(), Ok(pid));
        assert_eq!(task.comm(), Ok(&b"a) (b\n \xff"[..]));
        assert_eq!(task.exit_signal(), Ok(-1));
    }
    for fields in [Field::Pid, Field::Uid, Field::Comm] {
        for scope in [Scope::Process(tid), Scope::ThreadsOf(tid), Scope::ChildrenOf(tid)] {
            let error = ask(scope, fields).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSuchTask, "{error}");
        }
    }
    drop(end);
    thread.join().unwrap();
}

/// Check that a missing process is an error that names it.
#[test]
fn missing_processes_are_errors() {
    for pid in [0, u32::MAX] {
        for scope in [Scope::Process(pid), Scope::ThreadsOf(pid), Scope::ChildrenOf(pid)] {
            let error = ask(scope, Field::Pid).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSuchTask);
            assert!(error.to_string().contains(&pid.to_string()), "{error}");
        }
    }
}

/// Check that the id of a task is in use until the task is reaped, and that other ids are not.
#[test]
fn numbers_in_use() {
    let mut child = Sleeper::start();
    // The thread of a test is not the leader.
    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    assert!([own, std::process::id(), child.pid(), 1].into_iter().all(is_in_use));
    // It is in use until it is reaped.
    child.0.kill().unwrap();
    assert!(is_in_use(child.pid()));
    child.0.wait().unwrap();
    assert!(!is_in_use(child.pid()) && !is_in_use(i32::MAX as u32));
    // Numbers that can't be ids are left to /proc.
    assert!(is_in_use(0) && is_in_use(u32::MAX));
}

/// Check that the children are exactly those of the given process.
#[test]
fn children_are_of_their_parent() {
    let child = Sleeper::start();
    for fields in [Field::Pid.into(), Field::Ppid.into(), Field::Ppid | Field::Uid] {
        let fields: Fields = fields;
        let snapshot = ask(Scope::ChildrenOf(std::process::id()), fields | Field::Ppid).unwrap();
        assert!(snapshot.tasks().any(|task| task.pid() == Ok(child.pid())));
        assert!(snapshot.tasks().all(|task| task.ppid() == Ok(std::process::id())));
    }
    assert!(ask(Scope::ChildrenOf(child.pid()), Field::Pid).unwrap().is_empty());
}

/// Check that a task is found only if its start time matches to the tick.
#[test]
fn one_task_by_its_start() {
    let child = Sleeper::start();
    let snapshot = ask(Scope::Process(child.pid()), Field::StartNs).unwrap();
    let start = snapshot.task(0).start_ns().unwrap() as u64;
    let mut procfs = Procfs::open(&Proc::default()).unwrap();
    for is_thread in [false, true] {
        let mut one = |start_ns| {
            let wanted = [SupplementTarget {
                row: 0,
                pid: child.pid(),
                task: Identity::of(&Header {
                    tid: child.pid().into(),
                    start_ns: U64::new(start_ns),
                    ..Header::default()
                }),
                is_thread,
                fields: Field::Cmdline.into(),
                is_sure: false,
            }];
            let mut parts = procfs.supplement(&wanted, PATIENCE).unwrap();
            assert_eq!((parts.len(), parts[0].of.len()), (1, 1));
            let part = parts.remove(0);
            part.of[0].1.map(|offset| part.records[offset..].to_vec())
        };
        let bytes = one(start + 9_999_999).unwrap();
        assert_eq!(one(start + 10_000_000), Err(Absent::Gone));
        assert_eq!(one(start - 1), Err(Absent::Gone));
        let (record, rest) = Record::split_first(&bytes).unwrap();
        assert_eq!(record.attribute(attr::ARGS).unwrap().payload, b"sleep\x001000\0");
        assert!(rest.is_empty());
    }
}

/// Check that the longest paths fit.
#[test]
fn paths_fit() {
    let thread = Place::thread(CWD, u32::MAX, u32::MAX);
    let path = thread.path(format_args!("../../../{}/timerslack_ns", u32::MAX));
    assert_eq!(
        path.as_c_str(),
        c"4294967295/task/4294967295/../../../4294967295/timerslack_ns"
    );
    assert_eq!(Place::process(CWD, 0).path("").as_c_str(), c"0/");
}
