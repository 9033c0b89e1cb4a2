//! Check that what users can do to the broker costs nobody else anything, and shows nobody what is not theirs. Each of these attacks
//! succeeded once.

mod daemon;

use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::SendFlags;
use taskdiag::Group;
use taskdiag_core::record::{self, attr, Record};
use taskdiag_protocol::wire::{attribute, attributes, show, Message, Messages, Request, Strategy};
use taskdiag_testkit::{
    child::{self, World, NOBODY},
    scaled, test_name,
};

use daemon::passed::{lingering, pass_along};
use daemon::{connect, Broker, Limits};

const USER: u32 = 1000;
const OTHER: u32 = 1001;
const BASE: u64 = 1 << show::GROUPS_SHIFT;

/// One attack at a time: what is measured is what it costs, and clients are told of one broker.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a bystander's request may take: 250 ms, also on a machine that is busy with other tests; more where processors are emulated.
fn most() -> Duration {
    taskdiag_zoo::margin() / 4
}

fn user(user: u32) -> World {
    World {
        user: Some(user),
        ..World::default()
    }
}

/// Asks about itself for a while, and says how long that took at most.
fn worst(socket: &Path, lasts: Duration) -> Duration {
    let (until, mut worst) = (Instant::now() + lasts, Duration::ZERO);
    let connection = connect(socket);
    while Instant::now() < until {
        let began = Instant::now();
        let tasks = connection.ask(BASE, Strategy::One, std::process::id()).expect("itself");
        assert_eq!(tasks.len(), 1);
        worst = worst.max(began.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
    worst
}

/// A process of this test that does something, until its guard is dropped.
struct Doing(Child);

impl Doing {
    fn start(test: &str, name: &str, world: World) -> Doing {
        let mut command = child::command(test, name, world);
        command.stdin(Stdio::null());
        Doing(command.spawn().expect("a process"))
    }

    /// Checks that it has not ended.
    fn goes_on(mut self) -> Doing {
        self.check();
        self
    }

    fn check(&mut self) {
        let ended = self.0.try_wait().expect("a child");
        assert!(ended.is_none(), "{ended:?}");
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether this process is for that part of a test.
fn is(name: &str) -> bool {
    child::part().as_deref() == Some(name)
}

/// Passes a socket along whose closing waits as long as this process lives.
fn pass(connection: &daemon::Connection) -> bool {
    let (file, other_end) = lingering();
    std::mem::forget(other_end);
    let is_passed = pass_along(connection, &file);
    if !is_passed {
        // It is still ours alone: to close it would keep this process waiting.
        std::mem::forget(file);
    }
    is_passed
}

/// Check that a socket that is passed along, whose closing waits, keeps nobody waiting.
#[test]
fn passed_sockets_hold_nobody() {
    let _turn = turn();
    let broker = child::part().is_none().then(|| Broker::start(&[]));
    if let Some(broker) = &broker {
        daemon::tell_clients(broker);
    }
    for (name, id) in [("user", USER), ("other", OTHER), ("nobody", NOBODY)] {
        child::run(test_name!(), name, user(id), || {
            let socket = daemon::socket();
            for _ in 0..3 {
                let connection = connect(&socket);
                let passed = pass(&connection);
                // One that is not read: the connection is closed with it.
                let unread = connect(&socket);
                let _ = pass(&unread);
                drop(unread);
                let worst = worst(&socket, Duration::from_millis(500));
                assert!(worst < most(), "{worst:?}, passed: {passed}");
            }
        });
    }
}

/// Check the same where descriptors can't be refused: they were sent before the broker was there.
#[test]
fn sockets_that_were_passed_before_hold_nobody() {
    let _turn = turn();
    let directory = std::env::temp_dir().join(format!("taskdiagd-before-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("socket");
    let listener = daemon::listener(&path);
    let before: Vec<_> = (0..6)
        .map(|_| {
            let connection = connect(&path);
            assert!(pass(&connection));
            connection
        })
        .collect();
    let mut broker = daemon::activate(&listener);
    let first = connect(&path).ask(BASE, Strategy::One, std::process::id());
    assert!(first.is_ok());
    let while_open = worst(&path, Duration::from_millis(500));
    // They were not answered: their connections ended.
    assert!(before.iter().all(|connection| connection.receive().is_none()));
    let after = worst(&path, Duration::from_millis(500));
    assert!(while_open < most() && after < most(), "{while_open:?} {after:?}");
    let _ = broker.kill();
    let _ = broker.wait();
    let _ = std::fs::remove_dir_all(directory);
}

/// Check that processes whose exec does not end keep no client waiting but who asks about them; and that the mappings of all others are
/// told and opened meanwhile and afterwards. Such a process holds a lock that whoever looks at its memory takes.
#[test]
fn processes_that_never_answer_hold_nobody() {
    let _turn = turn();
    let test = test_name!();
    let file = || PathBuf::from(std::env::var_os("TASKDIAG_TEST_STALL").expect("a file"));
    if is("held") {
        // To be closed by exec, which then waits.
        let file = std::fs::File::open(file()).expect("the file");
        let mut command = Command::new("/bin/sleep");
        command.arg("1000");
        let error = std::os::unix::process::CommandExt::exec(&mut command);
        panic!("{error} {file:?}");
    }
    // Ended behind the file system, or they would not end.
    let mut held;
    let stall = daemon::stall::Stall::mount();
    std::env::set_var("TASKDIAG_TEST_STALL", stall.file());
    let broker = Broker::start(&[]);
    held = [(); 6].map(|()| Doing::start(test, "held", user(OTHER)));
    std::thread::sleep(Duration::from_secs(2));
    held.iter_mut().for_each(Doing::check);
    let own = std::process::id();
    let lasts = Duration::from_secs(scaled(10).max(4) as u64);
    std::thread::scope(|scope| {
        let until = Instant::now() + lasts;
        for (index, doing) in held.iter().enumerate() {
            let (broker, pid) = (&broker, doing.0.id());
            scope.spawn(move || {
                let mut asked = 0;
                while Instant::now() < until {
                    let show = [show::VMA | show::BASE, show::MAPS][index % 2];
                    let answer = connect(&broker.socket).ask(show, Strategy::One, pid);
                    let has_mappings = |task: &daemon::TaskMessage| {
                        let of_memory = [attribute::VMA, attribute::OPENED];
                        task.attributes.iter().any(|(kind, _)| of_memory.contains(kind))
                    };
                    match answer {
                        Ok(tasks) => assert!(!tasks.iter().any(has_mappings), "{tasks:?}"),
                        Err(errno) => assert!([libc::EBUSY, libc::ESRCH].contains(&errno), "{errno}"),
                    }
                    asked += 1;
                }
                asked
            });
        }
        let worst = worst(&broker.socket, lasts);
        assert!(worst < most(), "{worst:?}");
        // Those that can be read are, also while the others are asked about.
        for show in [show::MAPS, show::SMAPS, show::VMA, show::CMDLINE] {
            let began = Instant::now();
            connect(&broker.socket)
                .ask(show, Strategy::One, own)
                .expect("an answer");
            assert!(
                began.elapsed() < Duration::from_secs(3),
                "{show:#x}: {:?}",
                began.elapsed()
            );
        }
    });
    let connection = connect(&broker.socket);
    let all = connection
        .ask(show::CMDLINE, Strategy::All, 0)
        .expect("all command lines");
    let ours = all.iter().find(|task| task.tgid == own).expect("this process");
    assert_eq!(ours.attributes[0].0, attribute::CMDLINE);
    for _ in 0..50 {
        connection.ask(show::VMA, Strategy::One, own).expect("its mappings");
        connection.ask(show::MAPS, Strategy::One, own).expect("its file");
    }
}

/// Check that a process with as many mappings as it may have keeps nobody waiting, and is told whole.
#[test]
fn many_mappings_hold_nobody() {
    let _turn = turn();
    const MAPPINGS: usize = 50_000;
    let test = test_name!();
    if is("mapped") {
        let directory = std::env::temp_dir().join("long".repeat(50));
        let _ = std::fs::create_dir(&directory);
        let path = directory.join(format!("{}{}", "name".repeat(50), std::process::id()));
        let file = std::fs::File::create_new(&path).expect("a file");
        let _ = std::fs::remove_file(&path);
        for index in 0..MAPPINGS {
            let protection = if index % 2 == 0 {
                libc::PROT_READ
            } else {
                libc::PROT_NONE
            };
            // SAFETY: a new mapping, which nothing else uses.
            unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    protection,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    0,
                )
            };
        }
        std::thread::sleep(Duration::from_secs(1000));
    }
    let broker = Broker::start(&[]);
    let mapped = Doing::start(test, "mapped", user(USER));
    std::thread::sleep(Duration::from_secs(2));
    let mapped = mapped.goes_on();
    let pid = mapped.0.id();
    std::thread::scope(|scope| {
        let lasts = Duration::from_secs(4);
        let until = Instant::now() + lasts;
        for show in [show::VMA, show::VMA | show::VMA_STAT] {
            let broker = &broker;
            scope.spawn(move || {
                while Instant::now() < until {
                    let tasks = connect(&broker.socket)
                        .ask(show, Strategy::One, pid)
                        .expect("its mappings");
                    let payloads = tasks.iter().flat_map(|task| &task.attributes);
                    let bytes: usize = payloads.map(|(_, payload)| payload.len()).sum();
                    assert!(bytes > MAPPINGS * 64, "{bytes} bytes");
                }
            });
        }
        let worst = worst(&broker.socket, lasts);
        assert!(worst < most(), "{worst:?}");
    });
    connect(&broker.socket)
        .ask(show::MAPS, Strategy::One, pid)
        .expect("its file");
}

/// Check that what was asked about oneself before an exec of a set-uid program is not answered with what that is.
#[test]
fn an_exec_ends_what_one_sees_of_oneself() {
    let _turn = turn();
    let test = test_name!();
    let program = std::env::temp_dir().join(format!("set-uid-self-{}", std::process::id()));
    let broker = child::part().is_none().then(|| {
        taskdiag_zoo::copy_program("/bin/sleep".as_ref(), &program).expect("a copy");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("set-uid");
        std::env::set_var("TASKDIAG_TEST_PROGRAM", &program);
        Broker::start(&[])
    });
    if let Some(broker) = &broker {
        daemon::tell_clients(broker);
    }
    for (name, id) in [("user", USER), ("other", OTHER), ("nobody", NOBODY)] {
        child::run(test, name, user(id), || {
            // Before, one sees oneself.
            let own = connect(&daemon::socket()).ask(BASE, Strategy::One, std::process::id());
            assert_eq!(own.map(|tasks| tasks.len()), Ok(1));
            let (mut before, mut after) = (0, 0);
            for _ in 0..scaled(20).max(6) {
                let (shown, hidden) = ask_and_execute();
                before += shown;
                after += hidden;
            }
            println!("{before} answers before, {after} behind");
            assert!(after > 0, "the program was never asked about");
        });
    }
    let _ = std::fs::remove_file(&program);
}

/// A process asks about itself, and executes the program. Returns how many answers were about it before, and how many there were not
/// behind. None may be about the program.
fn ask_and_execute() -> (usize, usize) {
    let mut pipe = [0; 2];
    // SAFETY: two numbers are written.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: libc sees to it that its memory can be used in the child of one of several threads; the child does not come back.
    let asker = unsafe { libc::fork() };
    if asker == 0 {
        ask_fork_and_execute(pipe[1]);
    }
    let mut told = [0_u32; 3];
    // SAFETY: as many bytes as there are, and descriptors and a child of ours.
    unsafe {
        libc::close(pipe[1]);
        let read = libc::read(pipe[0], told.as_mut_ptr().cast(), size_of_val(&told));
        assert_eq!(read, size_of_val(&told) as isize, "what was read");
        libc::close(pipe[0]);
        libc::waitpid(asker, std::ptr::null_mut(), 0);
    }
    assert_eq!(told[2], 0, "{} answers about the program", told[2]);
    (told[0] as usize, told[1] as usize)
}

/// Connects, has a child read, asks, and goes on as the program.
fn ask_fork_and_execute(pipe: i32) -> ! {
    const REQUESTS: u32 = 150;
    let path = std::env::var("TASKDIAG_TEST_PROGRAM").expect("a program");
    let text = format!("{path}\0");
    let arguments = [text.as_ptr(), c"0.2".as_ptr().cast(), std::ptr::null()];
    let connection = connect(&daemon::socket());
    let groups = [Group::Base, Group::Cred, Group::Paths, Group::Layout];
    let groups = groups.iter().fold(0, |all, group| all | 1_u64 << *group as u32);
    // SAFETY: neither of both comes back.
    if unsafe { libc::fork() } == 0 {
        let told = count_answers(&connection, REQUESTS, &path);
        // SAFETY: bytes of ours.
        unsafe {
            libc::write(pipe, told.as_ptr().cast(), size_of_val(&told));
            libc::_exit(0);
        }
    }
    for seq in 1..=REQUESTS {
        let request = Request {
            seq,
            show: groups << show::GROUPS_SHIFT,
            strategy: Strategy::One,
            pid: std::process::id(),
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if rustix::net::send(&connection.socket, &request.encode(), flags).is_err() {
            break;
        }
    }
    // SAFETY: texts that end with a NUL.
    unsafe {
        libc::execv(arguments[0].cast(), arguments.as_ptr().cast());
        libc::_exit(1)
    }
}

/// How many answers are about a task, how many are errors, and how many are about that program.
fn count_answers(connection: &daemon::Connection, requests: u32, program: &str) -> [u32; 3] {
    let [mut shown, mut hidden, mut leaked] = [0; 3];
    let mut seq = 1;
    while seq <= requests {
        // Once the program has ended, nothing more comes.
        let Some(packet) = connection.receive() else { break };
        for message in Messages::new(&packet, seq) {
            match message {
                Ok(Message::Task { attributes: list, .. }) => {
                    let record = attributes(list).find(|(kind, ..)| *kind == attribute::RECORD);
                    let record = record.and_then(|(_, payload, _)| Record::split_first(payload));
                    let exe = record.and_then(|(record, _)| record.attribute(attr::EXE).map(|exe| exe.payload));
                    let uid = record.and_then(|(record, _)| record.get::<record::Cred>(attr::CRED));
                    let is_program = exe == Some(program.as_bytes()) || uid.is_some_and(|cred| cred.euid.get() == 0);
                    *(if is_program { &mut leaked } else { &mut shown }) += 1;
                }
                Ok(Message::Error(_)) => hidden += 1,
                _ => {}
            }
        }
        seq += 1;
    }
    [shown, hidden, leaked]
}

/// Check that users who connect as often as they can keep neither root nor others from their answers, that they are told so, and that
/// their idle connections end when others want the places.
#[test]
fn nobody_is_locked_out() {
    let _turn = turn();
    let test = test_name!();
    if is("greedy-1") || is("greedy-2") {
        let socket = daemon::socket();
        let mut connections = Vec::new();
        for _ in 0..150 {
            connections.extend(daemon::try_connect(&socket));
        }
        // Some have not asked anything, some have, and read nothing.
        for connection in connections.iter().step_by(2) {
            let request = Request {
                seq: 1,
                show: BASE,
                strategy: Strategy::All,
                pid: 0,
            };
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = rustix::net::send(&connection.socket, &request.encode(), flags);
        }
        std::thread::sleep(Duration::from_secs(1000));
    }
    if is("modest") {
        return child::run(test, "modest", user(NOBODY), modest);
    }
    let broker = Broker::start_within(
        Limits {
            descriptors: 600,
            ..Limits::default()
        },
        &[],
    );
    daemon::tell_clients(&broker);
    let greedy = [("greedy-1", USER), ("greedy-2", OTHER)].map(|(name, id)| Doing::start(test, name, user(id)));
    std::thread::sleep(Duration::from_secs(2));
    let _greedy = greedy.map(Doing::goes_on);
    modest();
    child::run(test, "modest", user(NOBODY), modest);
    // One who has all of its own places is told so where none is idle, and gets the oldest otherwise.
    let refused: Vec<i32> = (0..400)
        .map(|_| connect(&broker.socket))
        .collect::<Vec<_>>()
        .iter()
        .filter_map(|connection| connection.ask(BASE, Strategy::One, std::process::id()).err())
        .collect();
    assert!(
        refused
            .iter()
            .all(|errno| [libc::EBUSY, libc::EPIPE, libc::ECONNRESET].contains(errno)),
        "{refused:?}"
    );
    modest();
}

fn modest() {
    for _ in 0..20 {
        let connection = connect(&daemon::socket());
        let answer = connection.ask(BASE, Strategy::One, std::process::id());
        assert_eq!(answer.map(|tasks| tasks.len()), Ok(1));
    }
}

/// Starts threads that wait for the end of their process.
fn park(threads: usize) {
    for _ in 0..threads {
        let thread = std::thread::Builder::new().stack_size(32 << 10);
        let _ = thread.spawn(|| std::thread::sleep(Duration::from_secs(1000)));
    }
}

/// Asks about itself over a connection that stays and over new ones, and says how long either took at most.
fn worst_of_both(socket: &Path, lasts: Duration) -> Duration {
    let (until, mut worst_new) = (Instant::now() + lasts, Duration::ZERO);
    std::thread::scope(|scope| {
        let kept = scope.spawn(|| worst(socket, lasts));
        while Instant::now() < until {
            let began = Instant::now();
            let tasks = connect(socket).ask(BASE, Strategy::One, std::process::id());
            assert_eq!(tasks.map(|tasks| tasks.len()), Ok(1));
            worst_new = worst_new.max(began.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        worst_new.max(kept.join().expect("a thread"))
    })
}

/// Check that clients with many threads, all of which have to be looked at, cost nobody else anything: while they connect without end,
/// while they ask about themselves and about all, and while they change what decides about access.
#[test]
fn threads_of_clients_hold_nobody() {
    let _turn = turn();
    let test = test_name!();
    let (socket, own) = (daemon::socket, std::process::id());
    let all = |strategy, pid| Request {
        seq: 1,
        show: 0xffff << show::GROUPS_SHIFT,
        strategy,
        pid,
    };
    let flood = |request: Request| {
        park(1000);
        let connections: Vec<_> = (0..40).map(|_| connect(&socket())).collect();
        loop {
            for connection in &connections {
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                let _ = rustix::net::send(&connection.socket, &request.encode(), flags);
                let mut packet = [0; 64];
                let flags = rustix::net::RecvFlags::DONTWAIT;
                while matches!(
                    rustix::net::recv(&connection.socket, &mut packet[..], flags),
                    Ok((1.., _))
                ) {}
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    match child::part().as_deref() {
        Some("connects") => {
            park(1000);
            loop {
                let _ = daemon::try_connect(&socket());
            }
        }
        Some("asks") => flood(all(Strategy::One, own)),
        Some("dumps") => flood(all(Strategy::All, 0)),
        Some("changes") => {
            std::thread::spawn(|| loop {
                // SAFETY: this process's own attribute.
                unsafe {
                    libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
                    libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
                }
            });
            flood(all(Strategy::Thread, own))
        }
        _ => {}
    }
    let broker = child::part().is_none().then(|| Broker::start(&[]));
    if let Some(broker) = &broker {
        daemon::tell_clients(broker);
    }
    for attack in ["connects", "asks", "dumps", "changes"] {
        let attacker = child::part().is_none().then(|| {
            let attacker = Doing::start(test, attack, user(USER));
            std::thread::sleep(Duration::from_secs(1));
            attacker.goes_on()
        });
        child::run(test, &format!("beside-{attack}"), user(OTHER), || {
            let worst = worst_of_both(&socket(), Duration::from_secs(4));
            println!("{attack}: {worst:?}");
            assert!(worst < most(), "{attack}: {worst:?}");
        });
        drop(attacker);
    }
}

/// Check that one user does not get all places of a broker that has few.
#[test]
fn few_places_are_not_one_user_s() {
    let _turn = turn();
    let test = test_name!();
    if is("holds") {
        let all = Request {
            seq: 1,
            show: 0xffff << show::GROUPS_SHIFT,
            strategy: Strategy::AllThreads,
            pid: 0,
        };
        // Answers that are not read: connections over which something is asked are not ended.
        let _held: Vec<_> = (0..60)
            .map(|_| {
                let connection = connect(&daemon::socket());
                for _ in 0..100 {
                    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                    let _ = rustix::net::send(&connection.socket, &all.encode(), flags);
                }
                connection
            })
            .collect();
        std::thread::sleep(Duration::from_secs(1000));
    }
    let few = Limits {
        descriptors: 256,
        ..Limits::default()
    };
    let broker = child::part().is_none().then(|| Broker::start_within(few, &[]));
    if let Some(broker) = &broker {
        daemon::tell_clients(broker);
    }
    let _holder = child::part().is_none().then(|| {
        let holder = Doing::start(test, "holds", user(USER));
        std::thread::sleep(Duration::from_secs(2));
        holder.goes_on()
    });
    child::run(test, "beside", user(OTHER), modest);
}

/// Check that one who is not let in is told so, whether or not it asks first.
#[test]
fn who_is_not_let_in_is_told_so() {
    let _turn = turn();
    let broker = Broker::start(&["--max-clients", "2"]);
    daemon::tell_clients(&broker);
    let all = Request {
        seq: 1,
        show: BASE | (1 << Group::Cpu as u32 | 1 << Group::Signals as u32) << show::GROUPS_SHIFT,
        strategy: Strategy::AllThreads,
        pid: 0,
    };
    let _busy: Vec<_> = (0..2)
        .map(|_| {
            let connection = connect(&broker.socket);
            // More than its socket holds, which it does not read.
            for _ in 0..100 {
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                let _ = rustix::net::send(&connection.socket, &all.encode(), flags);
            }
            connection
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    for asks_first in [false, true] {
        let refused = connect(&broker.socket);
        if asks_first {
            std::thread::sleep(Duration::from_millis(100));
            refused.send(&all.encode());
        }
        let packet = refused.receive().expect("a word");
        let told = Messages::new(&packet, 0).next();
        assert!(matches!(told, Some(Ok(Message::Error(libc::EBUSY)))), "{told:?}");
    }
    // The library says it in words.
    let error = daemon::handle(&broker.socket).prepare_broker().expect_err("no place");
    assert!(error.to_string().contains("busy"), "{error}");
}

/// Check that no process of the broker is root's or has more than it says, and that its socket is made as it is to be.
#[test]
fn the_broker_has_little() {
    let _turn = turn();
    let broker = Broker::start(&[]);
    let own = std::process::id();
    let connection = connect(&broker.socket);
    connection.ask(show::VMA, Strategy::One, own).expect("its mappings");
    let status = |pid: u32, key: &str| -> String {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect(key);
        line.trim().to_owned()
    };
    let children = |pid: u32| -> Vec<u32> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
        text.split_ascii_whitespace()
            .map(|pid| pid.parse().expect("a pid"))
            .collect()
    };
    let keeper = children(broker.pid());
    assert_eq!(keeper.len(), 1, "the keeper");
    let readers = children(keeper[0]);
    assert!(!readers.is_empty(), "a reader");
    let traces = format!("{:016x}", 1_u64 << 19);
    let processes = [(broker.pid(), format!("{:016x}", 0))]
        .into_iter()
        .chain(keeper.iter().chain(&readers).map(|&pid| (pid, traces.clone())));
    for (pid, capabilities) in processes {
        for key in ["CapPrm:", "CapEff:"] {
            assert_eq!(status(pid, key), capabilities, "{pid} {key}");
        }
        assert_eq!(status(pid, "CapInh:").trim_matches('0'), "");
        assert!(!status(pid, "Uid:").split_ascii_whitespace().any(|id| id == "0"));
        assert!(!status(pid, "Gid:").split_ascii_whitespace().any(|id| id == "0"));
        assert_eq!(status(pid, "Groups:"), "");
        assert_eq!(
            (status(pid, "NoNewPrivs:"), status(pid, "Seccomp:")),
            ("1".to_owned(), "2".to_owned())
        );
        assert_eq!(status(pid, "Threads:"), "1");
    }
    let mode = std::fs::metadata(&broker.socket)
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o666);
}

/// Check that what is reserved in records, and the padding behind what is in them, is zero for whoever asks for whatever.
#[test]
fn nothing_else_lies_in_answers() {
    let _turn = turn();
    let broker = child::part().is_none().then(|| Broker::start(&["--observers", "1001"]));
    if let Some(broker) = &broker {
        daemon::tell_clients(broker);
    }
    for (name, world) in [
        ("root", World::default()),
        ("user", user(USER)),
        ("observer", user(OTHER)),
    ] {
        child::run(test_name!(), name, world, || {
            let connection = connect(&daemon::socket());
            let mut records = 0;
            for strategy in [Strategy::All, Strategy::AllThreads] {
                let groups = taskdiag_protocol::wire::GROUP_BITS;
                for show in [
                    groups,
                    groups | show::TASK_DIAG & !(show::MAPPINGS | show::CMDLINE),
                    BASE | 1 << 18,
                    1 << 20,
                ] {
                    for task in connection.ask(show, strategy, 0).expect("an answer") {
                        for (kind, payload) in &task.attributes {
                            if *kind == attribute::RECORD {
                                daemon::check_record(payload);
                                records += 1;
                            }
                        }
                    }
                }
            }
            assert!(records > 5, "{records} records");
        });
    }
}
