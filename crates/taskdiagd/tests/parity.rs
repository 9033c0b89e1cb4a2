//! Check that a client gets from the broker what its own reading of `/proc`, mounted with `hidepid=2`, would have shown it: never
//! more, and no less.
//!
//! The oracle is the kernel: in each client's world `/proc` is mounted anew, and every value of every task is compared with what
//! the client itself reads there before and after.

mod daemon;

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use taskdiag::{maps, Absent, ErrorKind, Field, Fields, Group, Handle, Query, Scope, Snapshot, SourceId};
use taskdiag_testkit::{
    child::{self, Proc, World, NOBODY},
    compare::compare,
    scaled, test_name,
};

use daemon::{handle, Broker};

const USER: u32 = 1000;
const OBSERVERS: u32 = 3000;

const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
const CAP_SYS_PTRACE: u64 = 1 << 19;

const HIDEPID: Proc = Proc::New(c"hidepid=2");

fn user(user: u32, capabilities: u64) -> World {
    World {
        proc: HIDEPID,
        user: Some(user),
        capabilities,
        ..World::default()
    }
}

fn root() -> World {
    World {
        proc: HIDEPID,
        ..World::default()
    }
}

/// A process that ends with its guard.
struct Target(Child);

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process of some user and group, with some of a set-uid program's marks if it executes that.
fn sleeper(program: &str, user: u32, group: u32) -> Target {
    let mut command = Command::new(program);
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(move || {
            libc::setgroups(0, std::ptr::null());
            if libc::setresgid(group, group, group) != 0 || libc::setresuid(user, user, user) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })
    };
    Target(command.spawn().expect("a process"))
}

/// What is there to be seen.
struct Scene {
    /// Clients are told of one scene at a time.
    _turn: MutexGuard<'static, ()>,
    _broker: Broker,
    _set_uid: SetUid,
    _animals: Vec<taskdiag_zoo::Animal>,
    targets: Vec<Target>,
}

/// A program that makes its caller root.
struct SetUid(PathBuf);

impl SetUid {
    fn new() -> SetUid {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("set-uid-sleep-{}-{number}", std::process::id()));
        taskdiag_zoo::copy_program("/bin/sleep".as_ref(), &path).expect("a copy");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("set-uid");
        SetUid(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path of ours")
    }
}

impl Drop for SetUid {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Makes the scene in the first process, and nothing in clients.
fn scene() -> Option<Scene> {
    if child::part().is_some() {
        return None;
    }
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let broker = Broker::start(&["--observers", "3000"]);
    daemon::tell_clients(&broker);
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
    let scene = Scene {
        _turn: turn,
        _broker: broker,
        _set_uid: set_uid,
        _animals: taskdiag_testkit::everything(),
        targets,
    };
    let pids: Vec<String> = scene.targets.iter().map(|target| target.0.id().to_string()).collect();
    std::env::set_var("TASKDIAG_TEST_TARGETS", pids.join(","));
    let hides_first = std::fs::read_link("/proc/1/exe").is_err();
    std::env::set_var("TASKDIAG_TEST_HIDDEN", if hides_first { "1" } else { "" });
    Some(scene)
}

/// The pids of those that [`scene`] made of its own.
fn targets() -> Vec<u32> {
    let text = std::env::var("TASKDIAG_TEST_TARGETS").expect("targets");
    text.split(',').map(|pid| pid.parse().expect("a pid")).collect()
}

/// Whether the kernel keeps the first process from everybody: then only the group that sees all sees that it is there.
fn hides_first() -> bool {
    std::env::var("TASKDIAG_TEST_HIDDEN").is_ok_and(|text| !text.is_empty())
}

/// Process, thread and start, in ticks, of all that there is.
fn pids(handle: &mut Handle, query: Query) -> BTreeSet<(u32, u32, u64)> {
    let snapshot = handle
        .query(&query.fields(Field::Pid | Field::StartNs))
        .expect("an answer");
    let id = |task: taskdiag::Task<'_>| {
        let start = task.start_ns().unwrap() / 10_000_000;
        (task.pid().unwrap(), task.tid().unwrap(), start)
    };
    snapshot.tasks().map(id).collect()
}

/// Check that the broker shows the tasks that `/proc` shows, and no other.
fn same_tasks(broker: &mut Handle) -> usize {
    let mut procfs = taskdiag_testkit::handle(SourceId::Procfs);
    let mut seen = 0;
    for query in [Query::processes(), Query::threads()] {
        let before = pids(&mut procfs, query.clone());
        let shown = pids(broker, query.clone());
        let after = pids(&mut procfs, query.clone());
        let more: Vec<_> = shown
            .iter()
            .filter(|id| !before.contains(id) && !after.contains(id))
            .collect();
        // Who lived only for so long that neither list has it is none that is hidden.
        let is_hidden = |tid: u32| is_alive(tid) && std::fs::metadata(format!("/proc/{tid}")).is_err();
        // One whose privileges change meanwhile, as those of other tests' processes do around their exec, may be hidden now and
        // was not when it was shown: it is asked until it is seen, or has been hidden for long.
        let stays_hidden = |tid: u32| {
            (0..20).all(|_| {
                std::thread::sleep(Duration::from_millis(5));
                is_hidden(tid)
            })
        };
        let more: Vec<_> = more.into_iter().filter(|(_, tid, _)| stays_hidden(*tid)).collect();
        assert!(more.is_empty(), "the broker shows more: {more:?}");
        let mut less: Vec<_> = before.intersection(&after).filter(|id| !shown.contains(id)).collect();
        less.retain(|(pid, ..)| *pid != 1 || !hides_first());
        // The list of a process's threads does not look at these; the rule, and the directory that each has by its number, does.
        less.retain(|(_, tid, _)| std::fs::metadata(format!("/proc/{tid}")).is_ok());
        assert!(
            less.is_empty(),
            "the broker shows {} less: {:?}",
            less.len(),
            &less[..less.len().min(20)]
        );
        seen = shown.len();
    }
    seen
}

/// Whether there is a task of that number at all, as far as signals tell.
fn is_alive(pid: u32) -> bool {
    // SAFETY: signal 0 is none.
    let result = unsafe { libc::kill(pid as i32, 0) };
    result == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Check that values are those that `/proc` shows, or absent for its reasons.
fn same_values(broker: &mut Handle, scope: Scope) -> usize {
    let mut report = compare(broker, SourceId::Broker, scope);
    report
        .wrong
        .retain(|wrong| !hides_first() || !wrong.contains("Id { pid: 1, tid: 1,"));
    // Of itself: while it waits for the broker it does not run; and which of its threads asks, whose timer slack is open to it
    // alone, the broker does not know: it keeps all of them back.
    let own = format!(": {}/", std::process::id());
    let differs = |wrong: &String| {
        wrong.contains(") state: Letter('S')") || wrong.contains(") timer_slack_ns: absent (denied) instead of")
    };
    report.wrong.retain(|wrong| !(wrong.contains(&own) && differs(wrong)));
    assert!(report.wrong.is_empty(), "{scope:?}:\n{}", report.wrong.join("\n"));
    report.tasks
}

/// The text of a process's mappings, by this process's own opening of the file; empty if it has no memory.
fn own_maps(pid: u32) -> Result<Vec<u8>, ErrorKind> {
    std::fs::read(format!("/proc/{pid}/maps")).or_else(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(Vec::new()),
        Some(libc::ENOENT) => Err(ErrorKind::NoSuchTask),
        Some(libc::EACCES | libc::EPERM) => Err(ErrorKind::Denied),
        _ => panic!("/proc/{pid}/maps: {error}"),
    })
}

/// The same, by the file that the broker opens.
fn handed_maps(door: &maps::Broker, pid: u32) -> Result<Vec<u8>, ErrorKind> {
    let maps = door.open(pid).map_err(|error| error.kind())?;
    let Some(file) = maps.fd() else {
        return Ok(Vec::new());
    };
    let mut text = Vec::new();
    let mut file = std::fs::File::from(file.try_clone_to_owned().expect("a copy"));
    match file.read_to_end(&mut text) {
        Ok(_) => Ok(text),
        // Its memory went meanwhile.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(Vec::new()),
        Err(error) => panic!("the maps of {pid}: {error}"),
    }
}

/// Check that the broker opens the maps that this process could open itself, and no others. Returns how many have memory.
fn same_maps(broker: &mut Handle) -> usize {
    let door = maps::Broker::connect(Some(&daemon::socket())).expect("a connection");
    let own = std::process::id();
    let shown: BTreeSet<u32> = pids(broker, Query::processes()).iter().map(|id| id.0).collect();
    let mut read = 0;
    for pid in shown.into_iter().chain(targets()).filter(|&pid| pid != own) {
        // Others change their memory, or become others.
        let mut attempts = 0..50;
        let settled = loop {
            let (before, handed, after) = (own_maps(pid), handed_maps(&door, pid), own_maps(pid));
            if handed == before && handed == after {
                break handed;
            }
            assert!(
                attempts.next().is_some(),
                "process {pid}: {handed:?} instead of {before:?} or {after:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        read += usize::from(settled.is_ok_and(|text| !text.is_empty()));
    }
    read
}

/// Check all that a client can ask about the scene.
fn check(broker: &mut Handle, expected: usize) {
    let seen = same_tasks(broker);
    assert!(seen >= expected, "{seen} tasks are too few");
    let read = same_maps(broker);
    assert!(read + 1 >= expected.min(8), "maps of {read} processes are too few");
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

/// The same for clients who see few tasks, and for all of these.
fn check_all(broker: &mut Handle, expected: usize) {
    check(broker, expected);
    assert!(same_values(broker, Scope::Processes) >= expected);
    assert!(same_values(broker, Scope::Threads) >= expected);
}

/// Check plain users: who sees what is theirs alone, dumpable, and of their group.
#[test]
fn plain_users_see_their_own() {
    let _scene = scene();
    for (name, id) in [("nobody", NOBODY), ("user", USER)] {
        child::run(test_name!(), name, user(id, 0), || {
            check_all(&mut handle(&daemon::socket()), 2)
        });
    }
}

/// Check that a client at which nobody else of its user may look is told of itself where it asks at the same time as others of its
/// user, who share a pass with it.
#[test]
fn who_sees_itself_alone_is_told_of_itself() {
    let _farm = child::part()
        .is_none()
        .then(|| taskdiag_zoo::Farm::start(1000, 1).expect("a farm"));
    let _scene = scene();
    let test = test_name!();
    let asks = |is_dumpable: bool| {
        // SAFETY: numbers only.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, u64::from(is_dumpable)) }, 0);
        let own = std::process::id();
        let query = Query::processes().fields(Field::Pid | Field::Comm);
        let mut handles = [handle(&daemon::socket()), handle(&daemon::socket())];
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            for broker in &mut handles {
                let snapshot = broker.query(&query).expect("an answer");
                assert!(snapshot.tasks().any(|task| task.pid() == Ok(own)));
            }
        }
    };
    std::thread::scope(|scope| {
        for (name, is_dumpable) in [("hidden", false), ("open", true), ("open-too", true)] {
            scope.spawn(move || child::run(test, name, user(USER, 0), || asks(is_dumpable)));
        }
    });
}

/// Check clients that have capabilities: root, tracers, and root without any.
#[test]
fn capabilities_are_what_they_are() {
    let _scene = scene();
    child::run(test_name!(), "root", root(), || {
        check(&mut handle(&daemon::socket()), 20)
    });
    child::run(test_name!(), "tracer", user(USER, CAP_SYS_PTRACE), || {
        check(&mut handle(&daemon::socket()), 20)
    });
    child::run(
        test_name!(),
        "reader",
        user(USER, CAP_SYS_PTRACE | CAP_DAC_READ_SEARCH),
        || check(&mut handle(&daemon::socket()), 20),
    );
    // Without this option /proc takes group 0 for the one that may see all.
    let world = World {
        proc: Proc::New(c"hidepid=2,gid=4242"),
        ..World::default()
    };
    child::run(test_name!(), "bare-root", world, || {
        // Of this thread: the broker goes by what all threads of the process have.
        child::set_capabilities(0).expect("no capabilities");
        check(&mut handle(&daemon::socket()), 1);
    });
}

/// Check a client that gives up being root after it connected: its old connection shows what it sees now.
#[test]
fn giving_up_root_takes_effect() {
    let _scene = scene();
    child::run(test_name!(), "root", root(), || {
        let mut connected = handle(&daemon::socket());
        assert!(same_tasks(&mut connected) > 20);
        // SAFETY: numbers, and an empty list. The library sees to it that all threads change.
        unsafe {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setresgid(USER, USER, USER), 0);
            assert_eq!(libc::setresuid(USER, USER, USER), 0);
        }
        let old = pids(&mut connected, Query::processes());
        let new = pids(&mut handle(&daemon::socket()), Query::processes());
        assert!(old.is_subset(&new), "{old:?} {new:?}");
        check_all(&mut handle(&daemon::socket()), 1);
    });
    // Effective ids alone, and back: what it may come back to does not count, and nor does what it was.
    child::run(test_name!(), "effective", root(), || {
        // SAFETY: numbers only.
        unsafe {
            assert_eq!(libc::setegid(USER), 0);
            assert_eq!(libc::seteuid(USER), 0);
        }
        let mut connected = handle(&daemon::socket());
        same_tasks(&mut connected);
        let few = pids(&mut connected, Query::processes()).len();
        // SAFETY: numbers only.
        unsafe { assert_eq!(libc::seteuid(0), 0) };
        let now = pids(&mut connected, Query::processes()).len();
        assert!(now <= few, "an old connection shows no more: {now} instead of {few}");
    });
}

/// Check clients in other namespaces: ids are their own, and there is nothing but what is in them and below.
#[test]
fn namespaces_are_the_clients() {
    let _scene = scene();
    let inside = |user| World {
        pid_namespace: true,
        proc: HIDEPID,
        user,
        ..World::default()
    };
    for (name, world) in [("root-inside", inside(None)), ("user-inside", inside(Some(USER)))] {
        child::run(test_name!(), name, world, || {
            let _children = [sleep_here(), sleep_here()];
            let mut broker = handle(&daemon::socket());
            assert_eq!(std::process::id(), 1);
            let (before, seen, after) = (threads_here(), same_tasks(&mut broker), threads_here());
            // Readers of this process come and go.
            assert!((before.min(after) + 2..=before.max(after) + 2).contains(&seen));
            assert!(same_values(&mut broker, Scope::Processes) >= 3);
            assert!(same_values(&mut broker, Scope::Threads) >= 3);
            assert!(same_values(&mut broker, Scope::Process(1)) == 1);
            assert!(same_values(&mut broker, Scope::ChildrenOf(1)) >= 2);
            let error = broker.query(&Query::process(targets()[0])).expect_err("nobody there");
            assert_eq!(error.kind(), ErrorKind::NoSuchTask);
        });
    }
    let ahead = World {
        boottime_offset_s: 5000,
        ..user(USER, 0)
    };
    child::run(test_name!(), "time", ahead, || {
        let mut broker = handle(&daemon::socket());
        same_tasks(&mut broker);
        assert!(same_values(&mut broker, Scope::Processes) >= 1);
    });
}

fn sleep_here() -> Target {
    Target(
        Command::new("/bin/sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("a child"),
    )
}

fn threads_here() -> usize {
    std::fs::read_dir("/proc/self/task").expect("threads").count()
}

/// Runs `body` as [`child::run`] does, in a user namespace of its own below the world, in which it is root.
fn run_in_user_namespace(test: &str, name: &str, world: World, inside: u32, body: impl FnOnce()) {
    if child::part().is_some() {
        return child::run(test, name, world, body);
    }
    let outside = world.user.expect("a user");
    let mut command = child::command(test, name, world);
    // SAFETY: no threads yet; what allocates does so in a process that has just been forked from a thread that holds no lock.
    unsafe {
        command.pre_exec(move || {
            if libc::unshare(libc::CLONE_NEWUSER) != 0 {
                return Err(io::Error::last_os_error());
            }
            let put = |path: &std::ffi::CStr, text: &[u8]| {
                let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                let written = libc::write(file, text.as_ptr().cast(), text.len());
                libc::close(file);
                if written == text.len() as isize {
                    Ok(())
                } else {
                    Err(io::Error::last_os_error())
                }
            };
            // Or its files in /proc would be root's.
            libc::prctl(libc::PR_SET_DUMPABLE, 1);
            let map = format!("{inside} {outside} 1\n");
            put(c"/proc/self/setgroups", b"deny")?;
            put(c"/proc/self/uid_map", map.as_bytes())?;
            put(c"/proc/self/gid_map", map.as_bytes())
        });
    }
    let output = command.output().expect("a second process");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("---- {name}:\n{text}{}----", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && text.contains(&format!("part {name} is done")),
        "{name} failed"
    );
}

/// Check clients in a user namespace: capabilities there are none here, and ids are those that it knows.
#[test]
fn user_namespaces_are_the_clients() {
    let _scene = scene();
    for (name, world, inside) in [
        ("userns-root", user(USER, 0), 0),
        ("userns-user", user(USER, 0), 4321),
        (
            "userns-inside",
            World {
                pid_namespace: true,
                ..user(USER, 0)
            },
            0,
        ),
    ] {
        run_in_user_namespace(test_name!(), name, world, inside, || {
            let mut broker = handle(&daemon::socket());
            let _child = sleep_here();
            same_tasks(&mut broker);
            assert!(same_values(&mut broker, Scope::Processes) >= 2);
            assert!(same_values(&mut broker, Scope::Threads) >= 2);
            let own = broker
                .query(&Query::process(std::process::id()).fields(Fields::all()))
                .expect("itself");
            assert_eq!(own.task(0).uid(), Ok(inside));
        });
    }
}

/// Check a client in a Landlock domain: it sees what is in the domain with it.
#[test]
fn landlock_domains_are_borders() {
    let _scene = scene();
    child::run(test_name!(), "landlocked", user(USER, 0), || {
        let mut broker = handle(&daemon::socket());
        let before = pids(&mut broker, Query::processes()).len();
        let _outside = sleep_here();
        assert!(same_tasks(&mut broker) >= before);
        enter_domain();
        let _inside = sleep_here();
        let mut inside = handle(&daemon::socket());
        // Its other thread is outside: the broker can't tell which of them asks, and answers neither.
        let error = inside.query(&Query::processes()).expect_err("threads that differ");
        assert!(
            error.to_string().contains("can't tell what this process may see"),
            "{error}"
        );
        assert!(before > 1);
    });
    // A whole process in a domain: executed there.
    let mut command = child::command(test_name!(), "in-domain", user(USER, 0));
    if child::part().is_some() {
        return child::run(test_name!(), "in-domain", user(USER, 0), || {
            let _inside = sleep_here();
            let mut broker = handle(&daemon::socket());
            same_tasks(&mut broker);
            assert_eq!(pids(&mut broker, Query::processes()).len(), 2);
            assert!(same_values(&mut broker, Scope::Processes) >= 2);
        });
    }
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(|| {
            enter_domain();
            Ok(())
        })
    };
    let output = command.output().expect("a second process");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("part in-domain is done"));
}

/// Enters a domain that forbids to make block devices, and to trace what is outside.
fn enter_domain() {
    const MAKE_BLOCK: u64 = 1 << 11;
    // SAFETY: the attribute is one number, and the descriptor ours.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let ruleset = libc::syscall(444, [MAKE_BLOCK].as_ptr(), 8_usize, 0_u32);
        assert!(ruleset >= 0, "this test needs Landlock");
        assert_eq!(libc::syscall(446, ruleset, 0_u32), 0);
        libc::close(ruleset as i32);
    }
}

/// Check observers: they see base, cred, cpu, faults and mem of all, and of what is not theirs nothing else.
#[test]
fn observers_see_only_what_observers_may() {
    let _scene = scene();
    let world = World {
        proc: Proc::New(c"hidepid=2,gid=3000"),
        ..user(OBSERVERS, 0)
    };
    child::run(test_name!(), "by-group", world, observe);
    let world = World {
        proc: Proc::New(c"hidepid=2,gid=3000"),
        ..root()
    };
    child::run(test_name!(), "by-list", world, || {
        // SAFETY: numbers, and a list of one.
        unsafe {
            assert_eq!(libc::setgroups(1, [OBSERVERS].as_ptr()), 0);
            assert_eq!(libc::setresgid(USER, USER, USER), 0);
            assert_eq!(libc::setresuid(USER, USER, USER), 0);
        }
        observe();
    });
}

fn observe() {
    let mut broker = handle(&daemon::socket());
    assert!(same_tasks(&mut broker) > 20);
    let door = maps::Broker::connect(Some(&daemon::socket())).expect("a connection");
    let opened = targets()
        .into_iter()
        .map(|pid| door.open(pid).map_err(|error| error.kind()));
    let denied = opened.filter(|opened| matches!(opened, Err(ErrorKind::Denied))).count();
    assert!(denied >= 5, "{denied} of the targets have no mappings for observers");
    let observed = [Group::Base, Group::Cred, Group::Cpu, Group::Faults, Group::Mem];
    let mut snapshot = Snapshot::default();
    let query = Query::processes().fields(Fields::all());
    broker.query_into(&query, &mut snapshot).expect("an answer");
    // SAFETY: no arguments.
    let own = unsafe { libc::getuid() };
    let (mut others, mut values) = (0, 0);
    for task in snapshot.tasks() {
        let ids = [task.uid(), task.euid(), task.suid()];
        if ids.contains(&Ok(own)) {
            continue;
        }
        others += 1;
        // Those are read from /proc, whose rules are others.
        let of_memory = Field::Cmdline | Field::Environ;
        for field in Fields::all().without(of_memory).iter() {
            let value = task.value(field);
            let is_open = observed.contains(&field.group()) && field != Field::TimerSlackNs;
            match value {
                Ok(_) => assert!(is_open, "{field} of {:?}", task.pid()),
                Err(Absent::Denied) => assert!(!is_open, "{field} of {:?} is denied", task.pid()),
                Err(reason) => assert!(is_open && reason == Absent::NoMemory, "{field} is {reason}"),
            }
            values += usize::from(is_open);
        }
    }
    assert!(others > 10 && values > 100, "{others} tasks of others");
}

/// Check that a process that executes a set-uid program again and again never shows anything of that.
#[test]
fn nothing_leaks_while_a_task_becomes_another() {
    let _scene = scene();
    let program = child::part().is_none().then(SetUid::new);
    if let Some(program) = &program {
        std::env::set_var("TASKDIAG_TEST_PROGRAM", program.path());
    }
    child::run(test_name!(), "user", user(USER, 0), || {
        let path = std::env::var("TASKDIAG_TEST_PROGRAM").expect("a program");
        // The shell goes on as the program within the same process.
        let script = format!("while :; do (exec {path} 0.001); (exec {path} 0); done");
        let mut shells: Vec<Target> = (0..2)
            .map(|_| Target(Command::new("/bin/sh").args(["-c", &script]).spawn().expect("a shell")))
            .collect();
        let name = &b"set-uid-sleep-x"[..13];
        let mut broker = handle(&daemon::socket());
        let mut snapshot = Snapshot::default();
        let fields = [
            Fields::all(),
            Field::Exe | Field::Comm | Field::Cmdline | Field::Euid | Field::StartCode,
            Field::Exe | Field::Comm | Field::Euid | Field::StartCode | Field::Pid,
        ];
        let mut seen = 0;
        for round in 0..scaled(1500) {
            let query = Query::processes().fields(fields[round % fields.len()]);
            broker.query_into(&query, &mut snapshot).expect("an answer");
            for task in snapshot.tasks() {
                seen += 1;
                let shown = [task.comm(), task.exe()]
                    .into_iter()
                    .flatten()
                    .any(|text| text.windows(name.len()).any(|part| part == name));
                assert!(
                    !shown && task.euid() == Ok(USER),
                    "{:?}: {:?}",
                    task.comm(),
                    task.euid()
                );
            }
        }
        assert!(seen > scaled(1500), "{seen} tasks");
        // Files are asked for when a shell has just been forked that will become the program.
        let door = maps::Broker::connect(Some(&daemon::socket())).expect("a connection");
        let mut read = 0;
        for _ in 0..scaled(20_000) {
            let last = std::fs::read_to_string("/proc/sys/kernel/ns_last_pid").expect("a number");
            let last: u32 = last.trim().parse().expect("a number");
            for pid in last..last + 2 {
                if let Ok(text) = handed_maps(&door, pid) {
                    let is_program = text.windows(name.len()).any(|part| part == name);
                    assert!(!is_program, "{}", String::from_utf8_lossy(&text));
                    read += usize::from(!text.is_empty());
                }
            }
        }
        assert!(read > scaled(100).max(5), "{read} texts of mappings");
        shells.clear();
    });
}

/// Check that a connection answers nobody but the process that made it.
#[test]
fn a_connection_is_not_handed_on() {
    let broker = Broker::start(&[]);
    let connection = daemon::connect(&broker.socket);
    assert!(connection
        .ask(1 << 16, taskdiag_protocol::wire::Strategy::All, 0)
        .is_ok());
    use std::os::fd::AsRawFd as _;
    let fd = connection.socket.as_raw_fd();
    // SAFETY: the child makes system calls only, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let request = taskdiag_protocol::wire::Request {
                seq: 9,
                show: 1,
                strategy: taskdiag_protocol::wire::Strategy::All,
                pid: 0,
            };
            let packet = request.encode();
            let mut answer = [0_u8; 256];
            libc::send(fd, packet.as_ptr().cast(), packet.len(), libc::MSG_NOSIGNAL);
            let len = libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0);
            let refused = len >= 20 && answer[4] == 2 && answer[16..20] == (-libc::EPERM).to_ne_bytes();
            libc::_exit(if refused { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0, "the child was answered");
    }
    assert!(connection
        .ask(1 << 16, taskdiag_protocol::wire::Strategy::All, 0)
        .is_ok());
}
