//! Check that processes that are asked about make no other client wait, and that answers show
//! nothing of a program that they execute in between.

mod daemon;

use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use taskdiag::Group;
use taskdiag_core::record::{self, attr, Record};
use taskdiag_protocol::wire::{
    self, attribute, attributes, show, Message, Messages, Request, Strategy, CONTINUED, INCOMPLETE,
};
use taskdiag_testkit::{child, scaled, test_name};

use daemon::attack::{attack_time, is_part, max_wait, slowest_request, user, Attacker, BASE, OTHER, USER, USERS};
use daemon::{connect, Broker};

/// Whether a process's memory is locked now.
fn is_held(pid: u32) -> bool {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = std::fs::read(format!("/proc/{pid}/maps"));
        let _ = done.send(());
    });
    is_done.recv_timeout(Duration::from_secs(2)).is_err()
}

/// Asks about a process whose exec does not end, until `until`. There must be an answer or an
/// error. While the memory is locked, the answer must hold nothing of it.
fn ask_about_stuck(broker: &Broker, show: u64, pid: u32, until: Instant) {
    let is_held = is_held(pid);
    // Debian's 6.1 and 6.12 close files before they take the lock, and show the old memory.
    assert!(is_held || taskdiag_testkit::kernel() < (6, 13), "nothing holds {pid}");
    while Instant::now() < until {
        let has_mappings = |task: &daemon::TaskMessage| {
            let of_memory = [attribute::VMA, attribute::OPENED];
            task.attributes.iter().any(|(kind, _)| of_memory.contains(kind))
        };
        match connect(&broker.socket).ask(show, Strategy::One, pid) {
            Ok(tasks) => assert!(!is_held || !tasks.iter().any(has_mappings), "{tasks:?}"),
            Err(errno) => assert!([libc::EBUSY, libc::ESRCH].contains(&errno), "{errno}"),
        }
    }
}

/// Check that processes whose exec does not end delay nobody but clients that ask about them, and
/// that all other mappings can be read and opened during that time and afterwards. Such a process
/// holds a lock (`exec_update_lock`) that every reader of its memory takes.
#[test]
fn execs_that_do_not_end_delay_nobody() {
    let _turn = taskdiag_zoo::run_first();
    let test = test_name!();
    let file = || PathBuf::from(std::env::var_os("TASKDIAG_TEST_STALL").expect("a file"));
    if is_part("stuck") {
        // exec closes it, and waits for the file system.
        let file = std::fs::File::open(file()).expect("the file");
        let mut command = Command::new("/proc/self/exe");
        command.arg("--list");
        let error = std::os::unix::process::CommandExt::exec(&mut command);
        panic!("{error} {file:?}");
    }
    // Declared before the file system, to be dropped after it: they end only when it is unmounted.
    let mut stuck;
    let stall = daemon::stall::Stall::mount();
    std::env::set_var("TASKDIAG_TEST_STALL", stall.file());
    let broker = Broker::start(&[]);
    stuck = [(); 6].map(|()| Attacker::start(test, "stuck", user(OTHER)));
    stall.wait_until_closing(stuck.len());
    stuck.iter_mut().for_each(Attacker::check_runs);
    let own = std::process::id();
    let lasts = Duration::from_secs(scaled(10).max(4) as u64);
    std::thread::scope(|scope| {
        let until = Instant::now() + lasts;
        for (index, attacker) in stuck.iter().enumerate() {
            let (broker, pid) = (&broker, attacker.0.id());
            let show = [show::VMA | show::BASE, show::MAPS][index % 2];
            scope.spawn(move || ask_about_stuck(broker, show, pid, until));
        }
        let slowest = slowest_request(&broker.socket, lasts);
        assert!(slowest < max_wait(), "{slowest:?}");
        // Other processes can be read, even while these are asked about.
        for show in [show::MAPS, show::SMAPS, show::VMA, show::CMDLINE] {
            let began = Instant::now();
            connect(&broker.socket)
                .ask(show, Strategy::One, own)
                .expect("an answer");
            let took = began.elapsed();
            assert!(took < Duration::from_secs(3), "{show:#x}: {took:?}");
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

/// Maps a file with a long name `mappings` times.
fn map(mappings: usize) {
    let own = std::process::id();
    let directory = std::env::temp_dir().join(format!("{}{own}", "long".repeat(50)));
    std::fs::create_dir(&directory).expect("a directory");
    let path = directory.join("name".repeat(50));
    let file = std::fs::File::create_new(&path).expect("a file");
    let _ = std::fs::remove_file(&path).and_then(|()| std::fs::remove_dir(&directory));
    for index in 0..mappings {
        // Neighbours with the same protection would become one mapping.
        let protection = if index % 2 == 0 {
            libc::PROT_READ
        } else {
            libc::PROT_NONE
        };
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping, which nothing else uses.
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, fd, 0) };
    }
}

fn sleep() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

/// Starts the part of a test that maps files, and waits until it has.
fn start_and_map(test: &str, count: usize) -> Attacker {
    let mut mapped = Attacker::start(test, "mapped", user(USER));
    let maps = format!("/proc/{}/maps", mapped.0.id());
    let until = Instant::now() + Duration::from_secs(60);
    while std::fs::read_to_string(&maps).is_ok_and(|text| text.lines().count() <= count) {
        assert!(Instant::now() < until, "it has not mapped {count} files");
        std::thread::sleep(Duration::from_millis(100));
    }
    mapped.check_runs();
    mapped
}

/// Check that a process with nearly the maximum number of mappings delays nobody, and that all of
/// them are in the answer.
#[test]
fn many_mappings_delay_nobody() {
    let _turn = taskdiag_zoo::run_first();
    const MAPPINGS: usize = 50_000;
    if is_part("mapped") {
        map(MAPPINGS);
        sleep();
    }
    let broker = Broker::start(&[]);
    let mapped = start_and_map(test_name!(), MAPPINGS);
    let pid = mapped.0.id();
    std::thread::scope(|scope| {
        let lasts = attack_time();
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
        let slowest = slowest_request(&broker.socket, lasts);
        assert!(slowest < max_wait(), "{slowest:?}");
    });
    connect(&broker.socket)
        .ask(show::MAPS, Strategy::One, pid)
        .expect("its file");
}

/// How long a request takes that needs a reader, in the median, beside clients with these user ids
/// who ask for many mappings without end, and do not read them.
fn median_beside(test: &str, broker: &Broker, users: impl Iterator<Item = u32>) -> Duration {
    let mut attackers: Vec<Attacker> = users.map(|id| Attacker::start(test, "lazy", user(id))).collect();
    std::thread::sleep(Duration::from_secs(3));
    attackers.iter_mut().for_each(Attacker::check_runs);
    let connection = connect(&broker.socket);
    let mut took: Vec<Duration> = (0..15)
        .map(|_| {
            let began = Instant::now();
            let own = connection.ask(show::CMDLINE, Strategy::One, std::process::id());
            assert_eq!(own.map(|tasks| tasks.len()), Ok(1));
            began.elapsed()
        })
        .collect();
    took.sort();
    took[took.len() / 2]
}

/// Check that a user's many subordinate ids get no more than the user: beside them, a request takes
/// no longer than beside as many clients of one user. Set-uid programs have these ids, outside of
/// any user namespace.
#[test]
fn subordinate_ids_get_what_one_user_gets() {
    const CLIENTS: u32 = 30;
    let _turn = taskdiag_zoo::run_first();
    let test = test_name!();
    if is_part("lazy") {
        map(5000);
        loop {
            let connection = connect(&daemon::socket());
            connection.try_send(&daemon::request(show::VMA, Strategy::One, std::process::id()));
            let mut polled = [PollFd::new(&connection.socket, PollFlags::RDHUP)];
            let _ = poll(&mut polled, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
        }
    }
    let broker = Broker::start(&[]);
    daemon::publish(&broker);
    let of_one = median_beside(test, &broker, (0..CLIENTS).map(|_| USER));
    let of_many = median_beside(test, &broker, (0..CLIENTS).map(|index| 100_000 + index));
    println!("beside one user {of_one:?}, beside {CLIENTS} ids {of_many:?}");
    assert!(
        of_many < 3 * of_one,
        "beside one user {of_one:?}, beside {CLIENTS} ids {of_many:?}"
    );
}

/// Check that an answer says that mappings are missing if its reader is lost in the middle of them,
/// and that the next answer is complete.
#[test]
fn missing_mappings_are_announced() {
    let _turn = taskdiag_zoo::run_first();
    const MAPPINGS: usize = 50_000;
    const SIZE: usize = 64 + 80;
    const SHOW: u64 = show::VMA | show::VMA_STAT;
    if is_part("mapped") {
        map(MAPPINGS);
        sleep();
    }
    let broker = Broker::start(&[]);
    let mapped = start_and_map(test_name!(), MAPPINGS);
    let pid = mapped.0.id();
    let connection = connect(&broker.socket);
    connection.send(&daemon::request(SHOW, Strategy::One, pid));
    // The client does not read, so the reader waits in the middle of the mappings.
    let mut polled = [PollFd::new(&connection.socket, PollFlags::IN)];
    let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(poll(&mut polled, Some(&patience)), Ok(1), "no answer");
    let [keeper] = daemon::children(broker.pid())[..] else {
        panic!("a keeper");
    };
    let readers = daemon::children(keeper);
    daemon::wait_until_they_sleep(&[&[broker.pid()], &readers[..]].concat());
    for reader in readers {
        // SAFETY: numbers only, and the process belongs to the broker.
        assert_eq!(unsafe { libc::kill(reader as i32, libc::SIGKILL) }, 0);
    }
    let flags_and_size = |tasks: &[daemon::TaskMessage]| {
        let attributes = tasks.iter().flat_map(|task| &task.attributes);
        let bytes: usize = attributes.map(|(_, payload)| payload.len()).sum();
        let (last, others) = tasks.split_last().expect("a message");
        assert!(others.iter().all(|task| task.flags == CONTINUED));
        (last.flags, bytes)
    };
    let (flags, size) = flags_and_size(&connection.receive_answer().expect("some of its mappings"));
    assert!(flags == INCOMPLETE && size < MAPPINGS * SIZE, "{flags}, {size} bytes");
    let (flags, size) = flags_and_size(&connection.ask(SHOW, Strategy::One, pid).expect("its mappings"));
    assert!(flags == 0 && size > MAPPINGS * SIZE, "{flags}, {size} bytes");
}

/// Check that a request that a process sent about itself before it executed a set-uid program is
/// not answered with facts about that program.
#[test]
fn an_exec_ends_what_a_process_sees_of_itself() {
    let _turn = taskdiag_zoo::run_first();
    let program = std::env::temp_dir().join(format!("set-uid-self-{}", std::process::id()));
    let broker = child::part().is_none().then(|| {
        taskdiag_zoo::copy_program("/bin/sleep".as_ref(), &program).expect("a copy");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("set-uid");
        std::env::set_var("TASKDIAG_TEST_PROGRAM", &program);
        Broker::start(&[])
    });
    if let Some(broker) = &broker {
        daemon::publish(broker);
    }
    for (name, id) in USERS {
        child::run(test_name!(), name, user(id), || {
            // Without an exec, a process sees itself.
            let own = connect(&daemon::socket()).ask(BASE, Strategy::One, std::process::id());
            assert_eq!(own.map(|tasks| tasks.len()), Ok(1));
            let (mut before, mut after) = (0, 0);
            for _ in 0..scaled(20).max(6) {
                let (shown, hidden) = ask_and_execute();
                before += shown;
                after += hidden;
            }
            println!("{before} answers before the exec, {after} errors after it");
            assert!(after > 0, "the program was never asked about");
        });
    }
    let _ = std::fs::remove_file(&program);
}

/// Starts a process that asks about itself and executes the program. Returns how many answers were
/// about the process before the exec, and how many were errors. None may be about the program.
fn ask_and_execute() -> (usize, usize) {
    let mut pipe = [0; 2];
    // SAFETY: two numbers are written.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: libc makes its memory usable in the child of a process with threads, which does not
    // return.
    let asker = unsafe { libc::fork() };
    if asker == 0 {
        ask_fork_and_execute(pipe[1]);
    }
    let mut counts = [0_u32; 3];
    // SAFETY: the buffer has the given length; the descriptors and the child belong to this
    // function.
    unsafe {
        libc::close(pipe[1]);
        let read = libc::read(pipe[0], counts.as_mut_ptr().cast(), size_of_val(&counts));
        assert_eq!(read, size_of_val(&counts) as isize, "what was read");
        libc::close(pipe[0]);
        libc::waitpid(asker, std::ptr::null_mut(), 0);
    }
    assert_eq!(counts[2], 0, "{} answers about the program", counts[2]);
    (counts[0] as usize, counts[1] as usize)
}

/// Connects, lets a child receive the answers, sends requests, and executes the program.
fn ask_fork_and_execute(pipe: i32) -> ! {
    const REQUESTS: u32 = 150;
    let path = std::env::var("TASKDIAG_TEST_PROGRAM").expect("a program");
    let text = format!("{path}\0");
    let arguments = [text.as_ptr(), c"0.2".as_ptr().cast(), std::ptr::null()];
    let connection = connect(&daemon::socket());
    let groups = [Group::Base, Group::Cred, Group::Paths, Group::Layout];
    let groups = groups.iter().fold(0, |all, group| all | 1_u64 << *group as u32);
    // SAFETY: neither process returns.
    if unsafe { libc::fork() } == 0 {
        let counts = count_answers(&connection, REQUESTS, &path);
        // SAFETY: the bytes are in this process's memory.
        unsafe {
            libc::write(pipe, counts.as_ptr().cast(), size_of_val(&counts));
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
        if !connection.try_send(&request.encode()) {
            break;
        }
    }
    // SAFETY: texts that end with a NUL.
    unsafe {
        libc::execv(arguments[0].cast(), arguments.as_ptr().cast());
        libc::_exit(1)
    }
}

/// How many answers are about a task, how many are errors, and how many are about the program.
fn count_answers(connection: &daemon::Connection, requests: u32, program: &str) -> [u32; 3] {
    let [mut shown, mut hidden, mut leaked] = [0; 3];
    let mut seq = 1;
    while seq <= requests {
        // The broker ends the connection once the program has ended.
        let Some(packet) = connection.receive() else { break };
        for message in Messages::new(&packet, seq) {
            match message {
                Ok(Message::Task { attributes: list, .. }) => {
                    let record = attributes(list).find(|(kind, ..)| *kind == attribute::RECORD);
                    let record = record.and_then(|(_, payload, _)| Record::split_first(payload));
                    let exe = record.and_then(|(record, _)| record.attribute(attr::EXE).map(|exe| exe.payload));
                    let cred = record.and_then(|(record, _)| record.get::<record::Cred>(attr::CRED));
                    let is_program = exe == Some(program.as_bytes()) || cred.is_some_and(|cred| cred.euid.get() == 0);
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

/// The most descriptors that a process may have, up to what these tests use.
fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit
        .maximum
        .map_or(60_000, |maximum| (maximum as usize).saturating_sub(256).min(60_000))
}

/// Opens as many descriptors as it may, and sleeps.
fn hold() -> ! {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("the limit");
    let file = std::fs::File::open("/dev/null").expect("a file");
    for _ in 0..descriptors() {
        // SAFETY: a number.
        let fd = unsafe { libc::dup(file.as_raw_fd()) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    }
    sleep()
}

/// Check that processes with very many descriptors delay nobody, however often their user asks
/// about them, that each descriptor is in each answer once, and that the broker keeps no memory of
/// it.
#[test]
fn many_descriptors_delay_nobody() {
    let _turn = taskdiag_zoo::run_first();
    if is_part("holder") {
        hold();
    }
    let (test, descriptors) = (test_name!(), descriptors());
    assert!(descriptors > 4000, "this test needs a higher hard limit (ulimit -Hn)");
    let broker = Broker::start(&[]);
    let mut holders = [(); 3].map(|()| Attacker::start(test, "holder", user(USER)));
    let pids = holders.each_ref().map(|holder| holder.0.id());
    for (holder, pid) in holders.iter_mut().zip(pids) {
        let opened = || std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        let until = Instant::now() + Duration::from_secs(60);
        while opened() < descriptors {
            assert!(Instant::now() < until, "{pid} has {} descriptors", opened());
            holder.check_runs();
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let asked = wire::Files::default();
    std::thread::scope(|scope| {
        let lasts = attack_time();
        let until = Instant::now() + lasts;
        for index in 0..2 {
            let (broker, pid, asked) = (&broker, pids[index % pids.len()], &asked);
            scope.spawn(move || {
                let mut answers = 0;
                while Instant::now() < until {
                    let (strategy, of) = [(Strategy::One, pid), (Strategy::All, 0)][index % 2];
                    let answer = connect(&broker.socket).ask_files(strategy, of, asked);
                    let process = &answer.expect("its files")[&pid];
                    let count = process.files.keys().filter(|(used_as, _)| *used_as == 0).count();
                    assert!(process.is_whole && count >= descriptors, "{count}");
                    answers += 1;
                }
                println!("{answers} answers");
            });
        }
        let slowest = slowest_request(&broker.socket, lasts);
        println!("the slowest request of a bystander took {slowest:?}");
        assert!(slowest < max_wait(), "{slowest:?}");
    });
    let status = std::fs::read_to_string(format!("/proc/{}/status", broker.pid())).expect("a status");
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).expect("a line");
    println!("the broker's loop: {peak}");
    let peak: u64 = peak
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .expect("a number");
    assert!(peak < 64 << 10, "{peak} KiB: an answer has 7 MB");
}
