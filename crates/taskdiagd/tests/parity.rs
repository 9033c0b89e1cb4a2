//! Check that the broker shows a client what the client's own `/proc`, mounted with `hidepid=2`,
//! shows: for users, capabilities and observers.

mod daemon;

use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::SendFlags;
use taskdiag::{
    files, sockets, Absent, ErrorKind, Field, Fields, Filter, Group, Handle, Query, Set, Snapshot, SourceId,
};
use taskdiag_protocol::wire::Strategy;
use taskdiag_sys::descriptors::send_with_file;
use taskdiag_testkit::{
    child::{self, Proc, World, NOBODY},
    test_name,
};

use daemon::files::same_files;
use daemon::handle;
use daemon::scene::{check, check_all, root, same_tasks, scene, targets, tasks, user, OBSERVERS, USER};

const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
const CAP_SYS_PTRACE: u64 = 1 << 19;

/// Check plain users: they see the dumpable processes of their own user and group.
#[test]
fn plain_users_see_their_own() {
    let _scene = scene();
    for (name, id) in [("nobody", NOBODY), ("user", USER)] {
        child::run(test_name!(), name, user(id, 0), || {
            check_all(&mut handle(&daemon::socket()), 2);
            same_files(targets(), 16);
        });
    }
}

/// Check that filters over derived fields choose the same tasks from the broker and from `/proc`.
#[test]
fn filters_over_derived_fields_choose_the_same() {
    let _scene = scene();
    for (name, world) in [("nobody", user(NOBODY, 0)), ("user", user(USER, 0)), ("root", root())] {
        child::run(test_name!(), name, world, || {
            let mut broker = handle(&daemon::socket());
            let mut procfs = taskdiag_testkit::handle(SourceId::Procfs);
            let list: Vec<String> = targets().iter().map(u32::to_string).collect();
            let mut found = 0;
            for expression in [
                "user in ('nobody', '1000') and group != 'root'",
                "user == 'root' or group in ('nogroup', 'nobody', '2000')",
                "stat ~ '^S' and tty == ''",
                "elapsed_ns < 1d and cpu_percent < 50 and mem_percent < 50",
                "start_time > '2020-01-01' and start_time < '2100-01-01T00:00:00Z'",
                "slice != '' and user_unit == ''",
                "container_id == '' or container_runtime != '' or pod_uid != ''",
                "not (user == 'nobody' and stat ~ 'l')",
                "user == 'nobody there'",
            ] {
                let text = format!("pid in ({}) and ({expression})", list.join(", "));
                let filter = Filter::parse(&text).unwrap_or_else(|error| panic!("{error}"));
                let query = Query::processes().filter(filter);
                let [ours, theirs] = [&mut broker, &mut procfs].map(|handle| tasks(handle, query.clone()));
                assert_eq!(ours, theirs, "{expression}");
                found += ours.len();
            }
            assert!(found >= 5, "{found} tasks are too few");
        });
    }
}

/// Check that a client that is not dumpable, and therefore hidden from the rest of its user's
/// processes, sees itself while it shares passes with clients of the same user.
#[test]
fn a_hidden_client_sees_itself() {
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

/// Check clients with capabilities: root, tracers, and root without capabilities.
#[test]
fn capabilities_decide() {
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
    // Without gid=, group 0 would see everything in /proc.
    let world = World {
        proc: Proc::New(c"hidepid=2,gid=4242"),
        ..World::default()
    };
    child::run(test_name!(), "bare-root", world, || {
        // This thread's alone. The broker uses only the capabilities that all threads have.
        child::set_capabilities(0).expect("no capabilities");
        check(&mut handle(&daemon::socket()), 1);
    });
}

/// Check a client that stops being root after it connected: its old connection shows only what it
/// may see now.
#[test]
fn giving_up_root_takes_effect() {
    let _scene = scene();
    child::run(test_name!(), "root", root(), || {
        let mut connected = handle(&daemon::socket());
        assert!(same_tasks(&mut connected) > 20);
        // SAFETY: numbers, and an empty list. libc changes all threads.
        unsafe {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setresgid(USER, USER, USER), 0);
            assert_eq!(libc::setresuid(USER, USER, USER), 0);
        }
        // Processes of that user may end in between.
        let shows_more = |_| {
            let old = tasks(&mut connected, Query::processes());
            !old.is_subset(&tasks(&mut handle(&daemon::socket()), Query::processes()))
        };
        assert!(!(0..20).all(shows_more), "the old connection shows more");
        check_all(&mut handle(&daemon::socket()), 1);
    });
    // Changes only the effective ids, and back to root: an old connection shows no more than at its
    // start.
    child::run(test_name!(), "effective", root(), || {
        // SAFETY: numbers only.
        let become_user = |user| unsafe { assert_eq!(libc::seteuid(user), 0) };
        // SAFETY: numbers only.
        unsafe { assert_eq!(libc::setegid(USER), 0) };
        become_user(USER);
        let mut connected = handle(&daemon::socket());
        same_tasks(&mut connected);
        // Processes of that user may begin in between.
        let shows_more = |_| {
            become_user(USER);
            let few = tasks(&mut connected, Query::processes()).len();
            become_user(0);
            tasks(&mut connected, Query::processes()).len() > few
        };
        assert!(!(0..20).all(shows_more), "an old connection shows more");
    });
}

/// Check observers: of tasks that they may not trace they see base, cred, cpu, faults and mem, and
/// nothing else.
#[test]
fn observers_see_some_groups_of_all() {
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
    let opened = targets()
        .into_iter()
        .map(|pid| broker.maps(pid).map_err(|error| error.kind()));
    let denied = opened.filter(|opened| matches!(opened, Err(ErrorKind::Denied))).count();
    assert!(denied >= 5, "{denied} of the targets have no mappings for observers");
    same_files(targets(), 0);
    let connection = daemon::connect(&daemon::socket());
    let ask = |pid| connection.ask_files(Strategy::One, pid, &Default::default());
    let denied = targets()
        .into_iter()
        .filter(|&pid| ask(pid) == Err(libc::EACCES))
        .count();
    assert!(denied >= 5, "{denied} of the targets have no files for observers");
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
        // The library reads these from /proc, with the client's own rights.
        let of_memory = Field::Cmdline | Field::Environ;
        let fields = Fields::all().without(of_memory | Fields::of_group(Group::Text));
        for field in fields.without(Fields::of_group(Group::Derived)).iter() {
            let value = task.value(field);
            let is_shown = observed.contains(&field.group()) && field != Field::TimerSlackNs;
            match value {
                Ok(_) => assert!(is_shown, "{field} of {:?}", task.pid()),
                Err(Absent::Denied) => assert!(!is_shown, "{field} of {:?} is denied", task.pid()),
                Err(reason) => assert!(is_shown && reason == Absent::NoMemory, "{field} is {reason}"),
            }
            values += usize::from(is_shown);
        }
    }
    assert!(others > 10 && values > 100, "{others} tasks of others");
}

/// What a source reports about the files of the scene's processes.
fn files_by(handle: &mut Handle, request: &files::Request) -> (Vec<String>, files::Answer) {
    let query = Query::these(targets()).fields(Field::StartNs);
    let snapshot = handle.query(&query).expect("processes");
    let mut found = Vec::new();
    let answer = handle.files(&snapshot, request, |task, file| {
        found.push(format!("{:?} {file:?}", task.pid()));
        ControlFlow::Continue(())
    });
    (found, answer.expect("files"))
}

/// Check that the files that the library gets from the broker are those of `/proc`, value by value,
/// for any request, and that filters select the same.
#[test]
fn files_have_the_same_values() {
    let _scene = scene();
    // Why a peer is not known depends on what else is hidden.
    let all = Set::from_iter(files::FileField::ALL.iter().copied()).without(files::FileField::Peers);
    for (name, world, expected) in [("user", user(USER, 0), 13), ("root", root(), 60)] {
        child::run(test_name!(), name, world, || {
            let mut request = files::Request::default();
            request.uses = files::Use::ALL.into();
            request.fields = all;
            let mut requests = vec![request.clone()];
            for fields in [files::FileField::Name.into(), files::FileField::Inode.into(), Set::NONE] {
                request.fields = fields;
                requests.push(request.clone());
            }
            request.fields = all;
            request.kinds = Some(files::Kind::Socket | files::Kind::Fifo);
            requests.push(request.clone());
            request.kinds = None;
            request.deleted = true;
            requests.push(request.clone());
            request.deleted = false;
            for path in ["/etc/passwd", "/usr"] {
                let path = files::PathMatch::new(path, Duration::from_secs(5));
                request.paths = vec![path.expect("a path")];
                requests.push(request.clone());
            }
            let mut procfs = taskdiag_testkit::handle(SourceId::Procfs);
            for (index, request) in requests.iter().enumerate() {
                let (theirs, _) = files_by(&mut procfs, request);
                let (ours, answer) = files_by(&mut handle(&daemon::socket()), request);
                assert_eq!(ours, theirs, "{request:?}");
                assert_eq!((answer.source, answer.malformed), (SourceId::Broker, 0), "{answer:?}");
                assert!(!ours.is_empty() && (index > 0 || ours.len() >= expected), "{ours:?}");
            }
        });
    }
}

/// Check that the broker names the owners of sockets that the client may see, and that all other
/// sockets are listed, with their owners denied.
#[test]
fn sockets_have_owners() {
    let _scene = scene();
    let roots = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = |socket: &TcpListener| socket.local_addr().expect("an address").port();
    if child::part().is_none() {
        std::env::set_var("TASKDIAG_TEST_PORT", port(&roots).to_string());
    }
    child::run(test_name!(), "user", user(USER, 0), || {
        let other: u16 = std::env::var("TASKDIAG_TEST_PORT")
            .expect("a port")
            .parse()
            .expect("a number");
        let own = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let mut request = sockets::Request::default();
        request.kinds = sockets::Kind::Tcp.into();
        request.fields = sockets::SocketField::Owners.into();
        request.ports = vec![port(&own), other];
        let mut broker = handle(&daemon::socket());
        let query = Query::processes().fields(Field::StartNs | Field::Comm);
        let processes = broker.query(&query).expect("processes");
        let mut owners = std::collections::BTreeMap::new();
        let answer = broker.sockets(&processes, &request, |socket| {
            let found = socket.owners.map(|owners| {
                let owners = owners.expect("a list").iter();
                owners.map(|owner| (owner.pid, owner.fd)).collect::<Vec<_>>()
            });
            owners.insert(socket.local.port, found);
            ControlFlow::Continue(())
        });
        let answer = answer.expect("sockets");
        let itself = vec![(std::process::id(), own.as_raw_fd() as u32)];
        assert_eq!(owners.get(&Some(port(&own).into())), Some(&Ok(itself)), "{answer:?}");
        assert_eq!(
            owners.get(&Some(other.into())),
            Some(&Err(Absent::Denied)),
            "{answer:?}"
        );
    });
}

/// Check that the broker does not report a socket as unowned to root while a process is hidden from
/// root: this socket is in flight and owned by nobody, but the hidden process might own one like
/// it.
#[test]
fn owners_may_be_hidden_from_root() {
    let _scene = scene();
    child::run(test_name!(), "root", root(), || {
        let is_hidden = std::fs::read_link("/proc/1/exe").is_err();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        let (way, _other_end) = UnixStream::pair().expect("sockets");
        send_with_file(&way, b"x", Some(listener.as_fd()), SendFlags::DONTWAIT).expect("it is sent");
        drop(listener);
        let mut request = sockets::Request::default();
        request.kinds = sockets::Kind::Tcp.into();
        request.fields = sockets::SocketField::Owners.into();
        request.ports = vec![port];
        let mut broker = handle(&daemon::socket());
        let query = Query::processes().fields(Field::StartNs | Field::Comm);
        let processes = broker.query(&query).expect("processes");
        assert_eq!(processes.tasks().all(|task| task.pid() != Ok(1)), is_hidden);
        let mut owners = Vec::new();
        let answer = broker.sockets(&processes, &request, |socket| {
            owners.push(socket.owners.map(|owners| owners.map(<[_]>::len)));
            ControlFlow::Continue(())
        });
        let expected = if is_hidden { Err(Absent::Denied) } else { Ok(Some(0)) };
        assert_eq!(owners, [expected], "{answer:?}");
    });
}
