//! Check that answers show nothing that belongs to another program or process: while tasks execute
//! a set-uid program, and when a connection is inherited.

mod daemon;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::Barrier;

use taskdiag::{Field, Fields, Group, Query, Snapshot};
use taskdiag_protocol::wire::{self, Request, Strategy};
use taskdiag_testkit::{child, scaled, test_name};

use daemon::files;
use daemon::scene::{broker_maps, root, scene, user, SetUid, Target, USER};
use daemon::{handle, Broker};

/// Check that a process that repeatedly executes a set-uid program never shows anything of the
/// program.
#[test]
fn nothing_leaks_at_an_exec() {
    let _scene = scene();
    let program = child::part().is_none().then(SetUid::new);
    if let Some(program) = &program {
        std::env::set_var("TASKDIAG_TEST_PROGRAM", program.path());
    }
    child::run(test_name!(), "user", user(USER, 0), || {
        let path = std::env::var("TASKDIAG_TEST_PROGRAM").expect("a program");
        // A subshell becomes the program, in the same process.
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
        // Asks for files of subshells that were just forked and will become the program.
        let mut opener = handle(&daemon::socket());
        let mut read = 0;
        for _ in 0..scaled(20_000) {
            let last = std::fs::read_to_string("/proc/sys/kernel/ns_last_pid").expect("a number");
            let last: u32 = last.trim().parse().expect("a number");
            for pid in last..last + 2 {
                if let Ok(text) = broker_maps(&mut opener, pid) {
                    let is_program = text.windows(name.len()).any(|part| part == name);
                    assert!(!is_program, "{}", String::from_utf8_lossy(&text));
                    read += usize::from(!text.is_empty());
                }
            }
        }
        assert!(read > scaled(100).max(5), "{read} texts of mappings");
        check_files(name);
        shells.clear();
    });
}

/// Asks about files while subshells execute a set-uid program whose name contains `name`. A leak
/// would show in the program's link `exe`.
fn check_files(name: &[u8]) {
    let connection = daemon::connect(&daemon::socket());
    let (asked, mut shown, mut left) = (wire::Files::default(), 0, 0);
    let mut check = |processes: BTreeMap<u32, files::Process>| {
        for (pid, process) in processes {
            let is_program = |file: &Vec<u8>| file.windows(name.len()).any(|part| part == name);
            assert!(!process.files.values().flatten().any(is_program), "{pid}: {process:?}");
            shown += usize::from(process.is_whole);
            left += usize::from(process.is_left);
        }
    };
    for round in 0..scaled(20_000) {
        if round % 8 == 0 {
            check(connection.ask_files(Strategy::All, 0, &asked).expect("an answer"));
        }
        let last = std::fs::read_to_string("/proc/sys/kernel/ns_last_pid").expect("a number");
        let last: u32 = last.trim().parse().expect("a number");
        for pid in last..last + 2 {
            match connection.ask_files(Strategy::One, pid, &asked) {
                Ok(processes) => check(processes),
                Err(errno) => assert_eq!(errno, libc::ESRCH, "{pid}"),
            }
        }
    }
    println!("{shown} processes shown, {left} had changed");
    assert!(shown > scaled(5000), "{shown} processes");
}

/// A process that is dumpable in one directory, and not dumpable in another. It is killed when this
/// is dropped.
struct Hider(i32);

impl Hider {
    fn start(shown: &str, hidden: &str) -> Hider {
        let [shown, hidden] = [shown, hidden].map(|path| CString::new(path).expect("a path"));
        // SAFETY: this process has one thread, and the child makes only system calls.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::prctl(libc::PR_SET_DUMPABLE, 0);
                    libc::chdir(hidden.as_ptr());
                    libc::chdir(shown.as_ptr());
                    libc::prctl(libc::PR_SET_DUMPABLE, 1);
                    // Without a moment in which nothing changes, there are few answers.
                    libc::usleep(20);
                }
            }
            Hider(pid)
        }
    }
}

impl Drop for Hider {
    fn drop(&mut self) {
        // SAFETY: numbers and a null pointer only; the child has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Check that a working directory in which a process may not be traced is shown no more often than
/// by the kernel's own link, which decides and then reads (1 in 5000): in records and lists of files.
#[test]
fn a_hidden_directory_is_not_shown() {
    let _scene = scene();
    child::run(test_name!(), "user", user(USER, 0), || {
        let hidden = std::env::temp_dir().join(format!("hidden-{}", std::process::id()));
        std::fs::create_dir_all(&hidden).expect("a directory");
        let name = hidden.to_str().expect("a path");
        let hider = Hider::start("/", name);
        let pid = hider.0 as u32;
        let connection = daemon::connect(&daemon::socket());
        let paths = 1 << (wire::show::GROUPS_SHIFT + Group::Paths as u32);
        let files = wire::Files {
            uses: wire::uses::CWD.into(),
            ..wire::Files::default()
        };
        let is_hidden = |text: &[u8]| text.windows(name.len()).any(|part| part == name.as_bytes());
        let (mut leaks, mut answers) = ([0; 2], [0; 2]);
        for round in 0..scaled(60_000) {
            let texts: Vec<Vec<u8>> = if round % 3 == 0 {
                let listed = connection.ask_files(Strategy::One, pid, &files).unwrap_or_default();
                listed
                    .into_values()
                    .flat_map(|process| process.files.into_values().flatten())
                    .collect()
            } else {
                let record = connection.ask(paths, Strategy::One, pid).unwrap_or_default();
                let attributes = record.into_iter().flat_map(|task| task.attributes);
                attributes
                    .filter(|(kind, _)| *kind == wire::attribute::RECORD)
                    .map(|(_, payload)| payload)
                    .collect()
            };
            let of = usize::from(round % 3 == 0);
            answers[of] += usize::from(!texts.is_empty());
            leaks[of] += usize::from(texts.iter().any(|text| is_hidden(text)));
        }
        drop(hider);
        std::fs::remove_dir(&hidden).expect("it is empty");
        println!("hidden in {leaks:?} of {answers:?} records and lists");
        assert!(answers.iter().all(|&count| count > scaled(500)), "{answers:?}");
        assert!(
            leaks.iter().sum::<usize>() <= answers.iter().sum::<usize>() / 1500,
            "{leaks:?} of {answers:?}"
        );
    });
}

/// Check that only the process that connected is answered: its child gets `EPERM`.
#[test]
fn only_the_process_that_connected_is_answered() {
    let broker = Broker::start(&[]);
    let connection = daemon::connect(&broker.socket);
    assert!(connection.ask(1 << 16, Strategy::All, 0).is_ok());
    let fd = connection.socket.as_raw_fd();
    // SAFETY: the child makes only system calls, and does not return.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let request = Request {
                seq: 9,
                show: 1,
                strategy: Strategy::All,
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
    assert!(connection.ask(1 << 16, Strategy::All, 0).is_ok());
}

/// Check that a client that can't be looked at when it connects, because one of its threads has
/// other credentials, is answered on the same connection once it can.
#[test]
fn a_refusal_lasts_no_longer_than_its_reason() {
    let _scene = scene();
    child::run(test_name!(), "root", root(), || {
        let own = std::process::id();
        let differ = Barrier::new(2);
        let answers = std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: numbers only. Unlike libc's function, this changes only this thread.
                let set = |user: u32| unsafe { libc::syscall(libc::SYS_setfsuid, user) };
                set(USER);
                differ.wait();
                differ.wait();
                set(0);
                differ.wait();
            });
            differ.wait();
            let connection = daemon::connect(&daemon::socket());
            let ask = || connection.ask(1, Strategy::One, own).map(|tasks| tasks.len());
            let first = ask();
            differ.wait();
            differ.wait();
            [first, ask()]
        });
        assert_eq!(answers, [Err(libc::EPERM), Ok(1)]);
    });
}

/// Check that a handle opens files about mappings in a child of fork(2), too, through a connection
/// of the child's own.
#[test]
fn children_open_mappings_themselves() {
    let broker = Broker::start(&[]);
    let mut handle = handle(&broker.socket);
    let own = std::process::id();
    let text = broker_maps(&mut handle, own).expect("its maps");
    assert!(!text.is_empty());
    // SAFETY: the child only opens and reads, and does not return.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_read = broker_maps(&mut handle, own).is_ok_and(|text| !text.is_empty());
        // SAFETY: it cleans up nothing of the parent's.
        unsafe { libc::_exit(i32::from(!is_read)) };
    }
    let mut status = -1;
    // SAFETY: the kernel writes one integer.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child got no mappings");
    assert!(broker_maps(&mut handle, own).is_ok_and(|text| !text.is_empty()));
}
