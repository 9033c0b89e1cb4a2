//! Processes for clients to see, and comparisons of what the broker shows a client with what the
//! client's own `/proc`, mounted with `hidepid=2`, shows. The kernel is the oracle.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use taskdiag::{ErrorKind, Field, Fields, Group, Handle, Query, Scope, SourceId};
use taskdiag_testkit::{
    child::{self, Proc, World, NOBODY},
    compare::compare,
};

use super::files::same_files;
use super::Broker;

/// A plain user.
pub const USER: u32 = 1000;

/// The group of observers, and a user of that group.
pub const OBSERVERS: u32 = 3000;

/// A `/proc` that hides what the client may not trace.
pub const HIDEPID: Proc = Proc::New(c"hidepid=2");

/// The world of a user with some capabilities.
pub fn user(user: u32, capabilities: u64) -> World {
    World {
        proc: HIDEPID,
        user: Some(user),
        capabilities,
        ..World::default()
    }
}

/// The world of root.
pub fn root() -> World {
    World {
        proc: HIDEPID,
        ..World::default()
    }
}

/// A process that is killed when this is dropped.
pub struct Target(pub Child);

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens descriptors of several kinds that stay open across an exec. System calls only.
fn open_descriptors() {
    let mut pair = [0; 2];
    // SAFETY: numbers, room for two numbers, and paths with their NUL.
    unsafe {
        libc::pipe(pair.as_mut_ptr());
        libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr());
        libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        libc::eventfd(3, 0);
        libc::epoll_create1(0);
        libc::memfd_create(c"memory".as_ptr(), 0);
        libc::open(c"/etc/passwd".as_ptr(), libc::O_RDONLY);
        libc::open(c"/tmp".as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600);
        libc::open(c"/usr".as_ptr(), libc::O_PATH);
    }
}

/// A process of a user and a group that executes a program and sleeps.
fn sleeper(program: &str, user: u32, group: u32) -> Target {
    let mut command = Command::new(program);
    // Not the standard error of the tests: if that is a file, its size changes.
    command
        .arg("1000")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(move || {
            libc::setgroups(0, std::ptr::null());
            if libc::setresgid(group, group, group) != 0 || libc::setresuid(user, user, user) != 0 {
                return Err(io::Error::last_os_error());
            }
            open_descriptors();
            Ok(())
        })
    };
    Target(command.spawn().expect("a process"))
}

/// A child of this process that sleeps, in its namespaces.
pub fn sleep_here() -> Target {
    Target(
        Command::new("/bin/sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("a child"),
    )
}

/// A set-uid program owned by root. It is removed when this is dropped.
pub struct SetUid(PathBuf);

impl SetUid {
    /// Makes a new one: a copy of sleep(1).
    pub fn new() -> SetUid {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("set-uid-sleep-{}-{number}", std::process::id()));
        taskdiag_zoo::copy_program("/bin/sleep".as_ref(), &path).expect("a copy");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("set-uid");
        SetUid(path)
    }

    /// Its path.
    pub fn path(&self) -> &str {
        self.0.to_str().expect("a path of ours")
    }
}

impl Drop for SetUid {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A broker, and processes of many kinds.
pub struct Scene {
    /// One scene exists at a time: the environment names it to clients.
    _turn: MutexGuard<'static, ()>,
    _broker: Broker,
    _set_uid: SetUid,
    _animals: [taskdiag_zoo::Animal; 2],
    _targets: Vec<Target>,
}

/// Makes the scene. `None` in clients, which run parts of a test.
pub fn scene() -> Option<Scene> {
    if child::part().is_some() {
        return None;
    }
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let broker = Broker::start(&["--observers", "3000"]);
    super::publish(&broker);
    let set_uid = SetUid::new();
    let targets = vec![
        sleeper("/bin/sleep", USER, USER),
        sleeper("/bin/sleep", USER, 2000),
        sleeper("/bin/sleep", NOBODY, NOBODY),
        sleeper("/bin/sleep", OBSERVERS, OBSERVERS),
        sleeper("/bin/sleep", 0, 0),
        sleeper("/bin/sleep", 0, USER),
        sleeper(set_uid.path(), USER, USER),
    ];
    let pids: Vec<String> = targets.iter().map(|target| target.0.id().to_string()).collect();
    std::env::set_var("TASKDIAG_TEST_TARGETS", pids.join(","));
    taskdiag_testkit::everything();
    let zoo = taskdiag_zoo::Zoo::new().expect("a zoo");
    // The files of a user's task without memory belong to root.
    let animals = ["zombie", "dead-leader"].map(|name| {
        zoo.start_as(name, Some(USER))
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    });
    let hides_init = std::fs::read_link("/proc/1/exe").is_err();
    std::env::set_var("TASKDIAG_TEST_HIDDEN", if hides_init { "1" } else { "" });
    Some(Scene {
        _turn: turn,
        _broker: broker,
        _set_uid: set_uid,
        _animals: animals,
        _targets: targets,
    })
}

/// The pids of the scene's own sleepers.
pub fn targets() -> Vec<u32> {
    let text = std::env::var("TASKDIAG_TEST_TARGETS").expect("targets");
    text.split(',').map(|pid| pid.parse().expect("a pid")).collect()
}

/// Whether this kernel hides process 1 from everybody. Then it is visible only to clients that see
/// every task.
pub fn hides_init() -> bool {
    std::env::var("TASKDIAG_TEST_HIDDEN").is_ok_and(|text| !text.is_empty())
}

/// The pid, thread id and start in clock ticks of each task that a query finds.
pub fn tasks(handle: &mut Handle, query: Query) -> BTreeSet<(u32, u32, u64)> {
    let snapshot = handle
        .query(&query.fields(Field::Pid | Field::StartNs))
        .expect("an answer");
    let id = |task: taskdiag::Task<'_>| {
        let start = task.start_ns().expect("a start") as u64 / 10_000_000;
        (task.pid().expect("a pid"), task.tid().expect("a tid"), start)
    };
    snapshot.tasks().map(id).collect()
}

/// Check that the broker shows exactly the tasks that `/proc` shows. Returns how many threads it
/// shows.
pub fn same_tasks(broker: &mut Handle) -> usize {
    let mut procfs = taskdiag_testkit::handle(SourceId::Procfs);
    let mut seen = 0;
    for query in [Query::processes(), Query::threads()] {
        let before = tasks(&mut procfs, query.clone());
        let shown = tasks(broker, query.clone());
        let after = tasks(&mut procfs, query.clone());
        let mut more: Vec<_> = shown.iter().collect();
        // A task that ended before the second list was read need not be hidden. A task whose
        // credentials change, as in an exec, may be hidden now and have been visible before.
        more.retain(|id| !before.contains(id) && !after.contains(id) && stays_hidden(id.1));
        assert!(more.is_empty(), "the broker shows more: {more:?}");
        let mut less: Vec<_> = before.intersection(&after).filter(|id| !shown.contains(id)).collect();
        less.retain(|(pid, ..)| *pid != 1 || !hides_init());
        // `/proc/PID/task` lists threads without checking each. The directories of threads, and the
        // broker, follow the rule.
        less.retain(|(_, tid, _)| std::fs::metadata(format!("/proc/{tid}")).is_ok());
        let some = &less[..less.len().min(20)];
        assert!(less.is_empty(), "the broker shows {} less: {some:?}", less.len());
        seen = shown.len();
    }
    seen
}

/// Whether a task is alive, and stays hidden for a tenth of a second.
fn stays_hidden(tid: u32) -> bool {
    (0..20).all(|_| {
        std::thread::sleep(Duration::from_millis(5));
        is_alive(tid) && std::fs::metadata(format!("/proc/{tid}")).is_err()
    })
}

/// Whether a task is alive, according to kill(2).
fn is_alive(pid: u32) -> bool {
    // SAFETY: the signal 0 is not sent.
    let result = unsafe { libc::kill(pid as i32, 0) };
    result == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Check that values are those of `/proc`, or absent for the same reasons. Returns the number of
/// tasks.
pub fn same_values(broker: &mut Handle, scope: Scope) -> usize {
    let mut report = compare(broker, SourceId::Broker, scope);
    report
        .wrong
        .retain(|wrong| !hides_init() || !wrong.contains("Id { pid: 1, tid: 1,"));
    // Two values of this process differ. Its state: it sleeps while it waits for the broker. Its
    // timer slack: `/proc` shows it to the thread itself, but the broker does not know which thread
    // asks.
    let own = format!(": {}/", std::process::id());
    // Before Linux 6.2 this process counts its descriptors by listing them, which adds the one that
    // lists.
    let counts_itself = taskdiag_testkit::kernel() < (6, 2);
    let differs = |wrong: &String| {
        wrong.contains(") state: Letter('S')")
            || (counts_itself && wrong.contains(") fd_count: Number("))
            || wrong.contains(") timer_slack_ns: absent (denied) instead of")
    };
    report.wrong.retain(|wrong| !(wrong.contains(&own) && differs(wrong)));
    // Before Linux 6.2 the broker reads no paths for clients with another root, as these have.
    let lacks_paths = taskdiag_testkit::kernel() < (6, 2);
    let is_path = |wrong: &String| {
        let mut paths = Field::ALL.iter().filter(|field| field.group() == Group::Paths);
        paths.any(|field| wrong.contains(&format!(" {field}: absent (unsupported) instead of")))
    };
    report.wrong.retain(|wrong| !(lacks_paths && is_path(wrong)));
    assert!(report.wrong.is_empty(), "{scope:?}:\n{}", report.wrong.join("\n"));
    report.tasks
}

/// The text of a process's `maps`, which this process opens itself. Empty if it has no memory.
fn own_maps(pid: u32) -> Result<Vec<u8>, ErrorKind> {
    std::fs::read(format!("/proc/{pid}/maps")).or_else(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(Vec::new()),
        Some(libc::ENOENT) => Err(ErrorKind::NoSuchTask),
        Some(libc::EACCES | libc::EPERM) => Err(ErrorKind::Denied),
        _ => panic!("/proc/{pid}/maps: {error}"),
    })
}

/// The text of a process's `maps`, which the broker opens.
pub fn broker_maps(broker: &mut Handle, pid: u32) -> Result<Vec<u8>, ErrorKind> {
    let maps = broker.maps(pid).map_err(|error| error.kind())?;
    let Some(file) = maps.fd() else {
        return Ok(Vec::new());
    };
    let mut text = Vec::new();
    let mut file = std::fs::File::from(file.try_clone_to_owned().expect("a copy"));
    match file.read_to_end(&mut text) {
        Ok(_) => Ok(text),
        // It has lost its memory since.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(Vec::new()),
        Err(error) => panic!("the maps of {pid}: {error}"),
    }
}

/// Check that the broker opens the maps that this process could open itself, and no others. Returns
/// how many processes have memory.
fn same_maps(broker: &mut Handle) -> usize {
    let own = std::process::id();
    let shown: BTreeSet<u32> = tasks(broker, Query::processes()).iter().map(|id| id.0).collect();
    let mut read = 0;
    for pid in shown.into_iter().chain(targets()).filter(|&pid| pid != own) {
        // Memory and credentials of others change. Retry until they do not change during the
        // comparison.
        let mut attempts = 0..50;
        let text = loop {
            let (before, opened, after) = (own_maps(pid), broker_maps(broker, pid), own_maps(pid));
            if opened == before && opened == after {
                break opened;
            }
            assert!(
                attempts.next().is_some(),
                "process {pid}: {opened:?} instead of {before:?} or {after:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        read += usize::from(text.is_ok_and(|text| !text.is_empty()));
    }
    read
}

/// Check everything that a client can ask about the scene. It sees at least `expected` threads.
pub fn check(broker: &mut Handle, expected: usize) {
    let seen = same_tasks(broker);
    assert!(seen >= expected, "{seen} tasks are too few");
    let read = same_maps(broker);
    assert!(read + 1 >= expected.min(8), "maps of {read} processes are too few");
    same_files(targets(), 0);
    let mut compared = 0;
    for pid in targets().into_iter().chain([std::process::id()]) {
        let is_shown = std::fs::metadata(format!("/proc/{pid}")).is_ok();
        let answer = broker.query(&Query::process(pid).fields(Fields::all()));
        assert_eq!(answer.is_ok(), is_shown, "process {pid}: {:?}", answer.err());
        if is_shown {
            compared += same_values(broker, Scope::Process(pid));
            compared += same_values(broker, Scope::ThreadsOf(pid));
        } else {
            for query in [Query::process(pid), Query::threads_of(pid), Query::children_of(pid)] {
                let error = broker.query(&query).expect_err("hidden");
                assert_eq!(error.kind(), ErrorKind::NoSuchTask, "{error}");
            }
        }
    }
    assert!(compared >= 2, "nothing was compared");
}

/// Check the same, and every value of every task: for clients that see few tasks.
pub fn check_all(broker: &mut Handle, expected: usize) {
    check(broker, expected);
    assert!(same_values(broker, Scope::Processes) >= expected);
    assert!(same_values(broker, Scope::Threads) >= expected);
}
