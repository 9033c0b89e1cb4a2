//! Open files from each source are equal to the kernel's own text and to stat(2).

mod churn;
mod exhausted;
mod lsfd;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use taskdiag::files::{AnonKind, Answer, FileField, Kind, PathMatch, Request, Use};
use taskdiag::{Absent, ErrorKind, Field, Handle, Query, Set, SourceId};
use taskdiag_testkit::{animal, child, test_name};
use taskdiag_zoo::Farm;

const SOURCES: [SourceId; 2] = [SourceId::Bpf, SourceId::Procfs];

fn handle(source: SourceId) -> Handle {
    Handle::new().with_source(source).with_patience(Duration::from_secs(5))
}

/// A file as it was passed on, with memory of its own.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    pid: u32,
    used_as: Use,
    fd: Option<u32>,
    tid: Option<u32>,
    open_flags: Result<Option<u32>, Absent>,
    offset: Result<Option<i64>, Absent>,
    mnt_id: Result<u32, Absent>,
    kind: Result<Kind, Absent>,
    size: Result<u64, Absent>,
    space: Result<u64, Absent>,
    device: Result<u64, Absent>,
    inode: Result<u64, Absent>,
    nlink: Result<u32, Absent>,
    name: Result<Vec<u8>, Absent>,
    detail: Result<Option<Vec<u8>>, Absent>,
}

fn list(handle: &mut Handle, query: &Query, request: &Request) -> (Vec<Row>, Answer) {
    let processes = handle.query(&query.clone().fields(Field::StartNs)).expect("processes");
    let mut rows = Vec::new();
    let answer = handle.files(&processes, request, |task, file| {
        rows.push(Row {
            pid: task.pid().expect("a pid"),
            used_as: file.used_as,
            fd: file.fd,
            tid: file.tid,
            open_flags: file.open_flags,
            offset: file.offset_bytes,
            mnt_id: file.mnt_id,
            kind: file.kind,
            size: file.size_bytes,
            space: file.allocated_bytes,
            device: file.device.map(|device| device.to_raw()),
            inode: file.inode,
            nlink: file.nlink,
            name: file.name.map(<[u8]>::to_vec),
            detail: file.detail.map(|detail| detail.map(<[u8]>::to_vec)),
        });
        ControlFlow::Continue(())
    });
    (rows, answer.expect("files"))
}

fn request(fields: Set<FileField>) -> Request {
    let mut request = Request::default();
    request.fields = fields;
    request
}

/// What `/proc` and stat(2) report about the descriptors of a process.
fn expected(pid: u32) -> BTreeMap<u32, Row> {
    let mut rows = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).expect("the descriptors") {
        let fd: u32 = entry
            .expect("an entry")
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .expect("a number");
        let path = format!("/proc/{pid}/fd/{fd}");
        let Ok(name) = fs::read_link(&path) else { continue };
        let stat = fs::metadata(&path).expect("its stat");
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).expect("its fdinfo");
        let value = |key: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_else(|| panic!("{fd}: no {key} in {info}"))
                .trim()
                .to_owned()
        };
        let name = name.as_os_str().as_bytes().to_vec();
        let known = ["pos:", "flags:", "mnt_id:", "ino:"];
        let rest = info
            .lines()
            .filter(|line| !known.iter().any(|key| line.starts_with(key)));
        let detail: String = rest.map(|line| format!("{line}\n")).collect();
        let row = Row {
            pid,
            used_as: Use::Fd,
            fd: Some(fd),
            tid: None,
            open_flags: Ok(Some(u32::from_str_radix(&value("flags:"), 8).expect("flags"))),
            offset: Ok(Some(value("pos:").parse().expect("an offset"))),
            mnt_id: Ok(value("mnt_id:").parse().expect("a mount")),
            kind: Ok(kind_of(stat.mode(), &name)),
            size: Ok(stat.size()),
            space: Ok(stat.blocks() * 512),
            device: Ok(stat.dev()),
            inode: Ok(stat.ino()),
            nlink: Ok(stat.nlink() as u32),
            name: Ok(name),
            detail: Ok(Some(detail.into_bytes())),
        };
        rows.insert(fd, row);
    }
    rows
}

/// The kind by the first letter of `ls -l`, and the kernel's word.
fn kind_of(mode: u32, name: &[u8]) -> Kind {
    use taskdiag::files::AnonKind;

    let objects = [
        ("anon_inode:[eventfd]", AnonKind::Eventfd),
        ("anon_inode:[eventpoll]", AnonKind::Epoll),
        ("anon_inode:[timerfd]", AnonKind::Timerfd),
        ("anon_inode:[signalfd]", AnonKind::Signalfd),
        ("anon_inode:inotify", AnonKind::Inotify),
        ("anon_inode:[pidfd]", AnonKind::Pidfd),
        ("anon_inode:bpf-map", AnonKind::Bpf),
        ("anon_inode:[io_uring]", AnonKind::IoUring),
        ("anon_inode:[userfaultfd]", AnonKind::Userfaultfd),
        ("anon_inode:[perf_event]", AnonKind::Perf),
    ];
    if let Some((_, kind)) = objects.iter().find(|(word, _)| word.as_bytes() == name) {
        return Kind::Anon(*kind);
    }
    match mode >> 12 {
        0o10 => Kind::File,
        0o4 => Kind::Dir,
        0o2 => Kind::Char,
        0o6 => Kind::Block,
        0o1 => Kind::Fifo,
        0o14 => Kind::Socket,
        0o12 => Kind::Link,
        other => panic!("{}: type {other:o}", name.escape_ascii()),
    }
}

/// Check that every value of every kind of descriptor equals that of `/proc` and stat(2).
#[test]
fn descriptors_equal_text() {
    let animal = animal("descriptors");
    let pid = animal.pid as u32;
    let expected = expected(pid);
    let kinds: Vec<&str> = expected.values().flat_map(|row| row.kind).map(Kind::name).collect();
    for kind in ["file", "dir", "char", "fifo", "socket", "link", "anon"] {
        assert!(kinds.contains(&kind), "the animal has no {kind}: {kinds:?}");
    }
    let object = |row: &Row| match row.kind {
        Ok(Kind::Anon(kind)) => Some(kind.name()),
        _ => None,
    };
    let objects: Vec<&str> = expected.values().filter_map(object).collect();
    println!("objects: {objects:?}");
    for kind in ["eventfd", "epoll", "timerfd", "signalfd", "inotify", "pidfd"] {
        assert!(objects.contains(&kind), "the animal has no {kind}: {objects:?}");
    }
    let longest = expected.values().flat_map(|row| row.name.as_ref().map(Vec::len)).max();
    assert!(longest > Some(1024), "{longest:?}");
    for source in SOURCES {
        let (rows, answer) = list(
            &mut handle(source),
            &Query::these([pid]),
            &request(FileField::ALL.iter().copied().collect()),
        );
        assert_eq!((answer.source, answer.denied, answer.gone), (source, 0, 0));
        let found: BTreeMap<u32, Row> = rows.iter().filter_map(|row| Some((row.fd?, row.clone()))).collect();
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>(),
            "{source}"
        );
        for (fd, row) in &found {
            assert_eq!(
                row,
                &expected[fd],
                "{source}: {fd}, {:?}",
                row.name.as_ref().map(|name| name.escape_ascii().to_string())
            );
        }
        let fds: Vec<u32> = rows.iter().filter_map(|row| row.fd).collect();
        assert!(fds.is_sorted(), "{source}: {fds:?}");
        for (used_as, link) in [(Use::Cwd, "cwd"), (Use::Root, "root"), (Use::Exe, "exe")] {
            let path = format!("/proc/{pid}/{link}");
            let row = rows.iter().find(|row| row.used_as == used_as).expect("a row");
            let name = fs::read_link(&path).expect("a link");
            let stat = fs::metadata(&path).expect("a stat");
            assert_eq!(row.name.as_deref(), Ok(name.as_os_str().as_bytes()), "{source}: {link}");
            assert_eq!(
                (row.device, row.inode),
                (Ok(stat.dev()), Ok(stat.ino())),
                "{source}: {link}"
            );
            assert_eq!(
                (row.size, row.nlink),
                (Ok(stat.size()), Ok(stat.nlink() as u32)),
                "{source}: {link}"
            );
            assert_eq!(
                (row.open_flags, row.offset, &row.detail),
                (Ok(None), Ok(None), &Ok(None))
            );
        }
    }
}

/// Check that both sources report the same for each combination of values, and nothing that was not
/// asked for.
#[test]
fn only_what_is_asked_is_there() {
    let animal = animal("descriptors");
    let query = Query::these([animal.pid as u32]);
    let each = [
        FileField::Name,
        FileField::OpenFlags,
        FileField::Inode,
        FileField::AllocatedBytes,
        FileField::Detail,
    ];
    for bits in 0..32 {
        let is_chosen = |&(place, _): &(usize, FileField)| bits >> place & 1 != 0;
        let chosen = each.into_iter().enumerate().filter(is_chosen);
        let wants: Set<FileField> = chosen.map(|(_, field)| field).collect();
        let [bpf, procfs] = SOURCES.map(|source| list(&mut handle(source), &query, &request(wants)).0);
        assert!(bpf.len() > 40, "{wants:?}: {}", bpf.len());
        assert_eq!(bpf, procfs, "{wants:?}");
        let row = bpf.iter().find(|row| row.fd.is_some()).expect("a descriptor");
        let asked =
            |wanted: FileField, is_there: bool| assert_eq!(wants.contains(wanted), is_there, "{wants:?} {row:?}");
        asked(FileField::Name, row.name != Err(Absent::NotAsked));
        asked(FileField::OpenFlags, row.open_flags != Err(Absent::NotAsked));
        asked(FileField::Inode, row.inode != Err(Absent::NotAsked));
        asked(FileField::AllocatedBytes, row.space != Err(Absent::NotAsked));
        asked(FileField::Detail, row.detail != Err(Absent::NotAsked));
    }
}

/// Check that both sources answer alike about all processes, and that descriptors of idle processes
/// equal those of `/proc`.
#[test]
fn machines_are_answered_about() {
    let animals = taskdiag_testkit::everything();
    let wants = Request::default().fields;
    for source in SOURCES {
        let mut handle = handle(source);
        let (rows, answer) = list(&mut handle, &Query::processes(), &request(wants));
        assert_eq!((answer.source, answer.malformed), (source, 0));
        assert_eq!(answer.files, rows.len() as u64);
        println!("{source}: the longest run took {:?} ns", answer.longest_run_ns);
        assert_eq!(answer.longest_run_ns > Some(0), source == SourceId::Bpf);
        let mut compared = 0;
        for animal in animals {
            let pid = animal.pid as u32;
            if fs::read_dir(format!("/proc/{pid}/fd")).is_err() {
                continue;
            }
            let expected = expected(pid);
            // The first thread has ended: /proc shows nothing of the process's files there.
            if expected.is_empty() {
                continue;
            }
            let is_meant = |row: &&Row| row.pid == pid && row.fd.is_some() && row.tid.is_none();
            let found = rows.iter().filter(is_meant);
            let found: BTreeMap<u32, &Row> = found.map(|row| (row.fd.expect("a descriptor"), row)).collect();
            let names = |name: &Result<Vec<u8>, Absent>| name.clone();
            for (fd, row) in &expected {
                let found = found
                    .get(fd)
                    .unwrap_or_else(|| panic!("{source}: {} has no {fd}", animal.name));
                assert_eq!(names(&found.name), names(&row.name), "{source}: {}", animal.name);
                assert_eq!(
                    (found.kind, found.inode),
                    (row.kind, row.inode),
                    "{source}: {}",
                    animal.name
                );
                assert_eq!(found.open_flags, row.open_flags, "{source}: {}", animal.name);
                compared += 1;
            }
            assert_eq!(found.len(), expected.len(), "{source}: {}", animal.name);
        }
        // One animal has 10,000 open files.
        assert!(compared > 10_000, "{source}: {compared}");
    }
}

/// Check that lsof sees the same descriptors, inode numbers and names.
#[test]
fn lsof_sees_the_same() {
    let animal = animal("descriptors");
    let pid = animal.pid as u32;
    let lsof = Command::new("lsof")
        .args(["-nP", "-w", "-F", "fin", "-p", &pid.to_string()])
        .output()
        .expect("lsof: dev/setup.sh installs it");
    let text = String::from_utf8_lossy(&lsof.stdout).into_owned();
    let mut theirs: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    let mut fd = None;
    for line in text.lines() {
        match line.split_at(1) {
            ("f", number) => {
                fd = number.parse().ok();
                theirs.extend(fd.map(|fd| (fd, None)));
            }
            ("i", inode) => {
                if let Some(fd) = fd {
                    theirs.insert(fd, inode.parse().ok());
                }
            }
            _ => {}
        }
    }
    assert!(theirs.len() > 40, "{text}");
    for source in SOURCES {
        let (rows, _) = list(
            &mut handle(source),
            &Query::these([pid]),
            &request(FileField::Inode.into()),
        );
        let ours: BTreeMap<u32, Option<u64>> = rows.iter().filter_map(|row| Some((row.fd?, row.inode.ok()))).collect();
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            theirs.keys().collect::<Vec<_>>(),
            "{source}"
        );
        let mut compared = 0;
        for (fd, inode) in &theirs {
            // For some files lsof shows no inode number.
            if inode.is_some() {
                compared += 1;
                assert_eq!(ours[fd], *inode, "{source}: {fd}");
            }
        }
        assert!(compared > 20, "{source}: {compared}");
    }
}

/// Check the filters: kinds, deleted files, uses, and paths.
#[test]
fn filters_choose_files() {
    let animal = animal("descriptors");
    let pid = animal.pid as u32;
    let query = Query::these([pid]);
    let names = |rows: &[Row]| -> Vec<String> {
        let name = |row: &Row| String::from_utf8_lossy(row.name.as_deref().unwrap_or_default()).into_owned();
        rows.iter().map(name).collect()
    };
    let dir = fs::read_link(format!("/proc/{pid}/cwd")).expect("a directory");
    for source in SOURCES {
        let mut handle = handle(source);
        let mut ask = |change: &dyn Fn(&mut Request)| {
            let mut request = request(FileField::Name.into());
            change(&mut request);
            list(&mut handle, &query, &request).0
        };
        let sockets = ask(&|request| request.kinds = Some(Kind::Socket.into()));
        assert!(sockets.len() >= 8, "{source}: {sockets:?}");
        assert!(
            names(&sockets).iter().all(|name| name.starts_with("socket:[")),
            "{source}: {sockets:?}"
        );
        assert!(sockets.iter().all(|row| row.kind == Err(Absent::NotAsked)));
        let objects = ask(&|request| request.kinds = Some(AnonKind::ALL.map(Kind::Anon).into()));
        assert!(objects.len() >= 6, "{source}: {objects:?}");
        let epolls = ask(&|request| request.kinds = Some(Kind::Anon(AnonKind::Epoll).into()));
        assert_eq!(names(&epolls), ["anon_inode:[eventpoll]"], "{source}");
        let deleted = ask(&|request| request.deleted = true);
        let deleted = names(&deleted);
        for gone in ["/deleted (deleted)", "/gone (deleted)", "/memfd:a memfd (deleted)"] {
            assert!(
                deleted.iter().any(|name| name.ends_with(gone)),
                "{source}: {gone}: {deleted:?}"
            );
        }
        // It has another name left.
        assert!(
            !deleted.iter().any(|name| name.ends_with("/linked (deleted)")),
            "{source}: {deleted:?}"
        );
        let cwd = ask(&|request| request.uses = Use::Cwd.into());
        assert_eq!(cwd.len(), 1, "{source}");
        let at = |path: &std::path::Path| PathMatch::new(path, Duration::from_secs(5)).expect("it exists");
        let plain = at(&dir.join("plain"));
        let by_path = ask(&|request| request.paths = vec![plain.clone()]);
        // Opened, as a place, twice through a socket, and through another mount.
        assert_eq!(by_path.len(), 5, "{source}: {by_path:?}");
        let tree = at(&dir);
        let below = ask(&|request| request.paths = vec![tree.clone()]);
        let below = names(&below);
        assert!(below.len() >= 15, "{source}: {below:?}");
        let start = dir.to_str().expect("UTF-8");
        let outside: Vec<&String> = below.iter().filter(|name| !name.starts_with(start)).collect();
        // From the unmounted file system; such a name has no place any more.
        assert!(outside.len() <= 1, "{source}: {outside:?}");
        let none = at(std::path::Path::new("/proc/version"));
        assert_eq!(ask(&|request| request.paths = vec![none.clone()]), [], "{source}");
    }
}

/// Check that mapped files are listed once for each process, with the stat of the mapped file.
#[test]
fn mapped_files_are_listed() {
    let animal = animal("threads-5");
    let pid = animal.pid as u32;
    let mut request = request(FileField::Name | FileField::Inode);
    request.uses = Use::Map.into();
    for source in SOURCES {
        let (rows, answer) = list(&mut handle(source), &Query::these([pid]), &request);
        assert_eq!(answer.denied, 0);
        let exe = fs::read_link(format!("/proc/{pid}/exe")).expect("a program");
        let mapped = rows
            .iter()
            .filter(|row| row.name.as_deref() == Ok(exe.as_os_str().as_bytes()));
        let mapped: Vec<&Row> = mapped.collect();
        assert_eq!(mapped.len(), 1, "{source}: {rows:?}");
        let stat = fs::metadata(format!("/proc/{pid}/exe")).expect("a stat");
        assert_eq!(
            (mapped[0].device, mapped[0].inode),
            (Ok(stat.dev()), Ok(stat.ino())),
            "{source}"
        );
        assert!(
            rows.iter()
                .any(|row| row.name.as_ref().is_ok_and(|name| name.ends_with(b"libc.so.6"))),
            "{source}: {rows:?}"
        );
    }
}

/// Check that both sources find the same processes that map a file, among so many that BPF is used
/// to exclude others.
#[test]
fn many_processes_map_a_file() {
    let farm = Farm::start(450, 1).expect("a farm");
    let program = format!("/proc/{}/exe", farm.pids()[0]);
    let mut request = request(FileField::Name | FileField::Inode);
    request.uses = Use::Map.into();
    request.paths = vec![PathMatch::new(&program, Duration::from_secs(5)).expect("it exists")];
    let query = Query::processes();
    let [bpf, procfs] = SOURCES.map(|source| {
        let began = Instant::now();
        let (rows, answer) = list(&mut handle(source), &query, &request);
        println!("{source}: {:?}", began.elapsed());
        assert_eq!(answer.source, source);
        let of_farm = rows.into_iter().filter(|row| farm.pids().contains(&(row.pid as i32)));
        of_farm.collect::<Vec<_>>()
    });
    assert_eq!(bpf.len(), farm.pids().len());
    assert_eq!(bpf, procfs);
}

/// Check that a file system that does not answer blocks nothing, and that everything that the
/// kernel knows is reported.
#[test]
fn silent_file_systems_hold_nobody() {
    let animal = animal("silent-file");
    let pid = animal.pid as u32;
    for source in SOURCES {
        let mut request = request(Request::default().fields | FileField::AllocatedBytes);
        request.uses = Use::ALL.into();
        let began = Instant::now();
        let (rows, answer) = list(&mut handle(source), &Query::these([pid]), &request);
        assert!(
            began.elapsed() < Duration::from_secs(4),
            "{source}: {:?}",
            began.elapsed()
        );
        let silent: Vec<&Row> = rows
            .iter()
            .filter(|row| row.name.as_ref().is_ok_and(|name| name.ends_with(b"/silent")))
            .collect();
        assert_eq!(silent.len(), 2, "{source}: {rows:?}");
        for row in silent {
            assert_eq!((row.kind, row.size), (Ok(Kind::File), Ok(1 << 20)), "{source}: {row:?}");
        }
        assert_eq!(answer.silent, [] as [u32; 0], "{source}");
    }
}

/// Check that many descriptors of one inode have its space, as it is, while another thread closes and
/// opens some: the file system may be asked about the inode through any of them.
#[test]
fn many_descriptors_share_an_inode() {
    let place = taskdiag_testkit::temporary::Directory::new("inode");
    let (path, other) = (place.join("file"), place.join("other"));
    std::fs::write(&path, vec![1; 300_000]).expect("a file");
    std::fs::write(&other, "x").expect("a file");
    let open = || std::fs::File::open(&path).expect("it is ours");
    let kept: Vec<std::fs::File> = (0..500).map(|_| open()).collect();
    let space = kept[0].metadata().expect("it is open").blocks() * 512;
    let is_ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_ended.load(std::sync::atomic::Ordering::Relaxed) {
                let first = open();
                drop(first);
                drop(std::fs::File::open(&other).expect("it is ours"));
            }
        });
        for source in SOURCES {
            let request = request(FileField::AllocatedBytes | FileField::Name);
            for _ in 0..20 {
                let (rows, _) = list(&mut handle(source), &Query::these([std::process::id()]), &request);
                let name = path.as_os_str().as_encoded_bytes();
                let of_file: Vec<&Row> = rows.iter().filter(|row| row.name.as_deref() == Ok(name)).collect();
                assert!(of_file.len() >= kept.len(), "{source}: {}", of_file.len());
                let kept = of_file.iter().filter(|row| {
                    let fd = row.fd.map(|fd| fd as i32);
                    kept.iter().any(|file| Some(file.as_raw_fd()) == fd)
                });
                let spaces: Vec<_> = kept.map(|row| row.space).collect();
                assert_eq!(spaces, vec![Ok(space); 500], "{source}");
            }
        }
        is_ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Check that a process whose first thread has ended shows the files of its other threads.
#[test]
fn leaders_that_ended_have_files() {
    let animal = animal("dead-leader");
    let pid = animal.pid as u32;
    for source in SOURCES {
        let (rows, _) = list(
            &mut handle(source),
            &Query::these([pid]),
            &request(FileField::Name.into()),
        );
        assert!(rows.iter().any(|row| row.used_as == Use::Fd), "{source}: {rows:?}");
        assert!(rows.iter().any(|row| row.used_as == Use::Cwd), "{source}: {rows:?}");
    }
}

/// Check that a snapshot without start times, a missing broker, and processes that have ended are
/// distinguished.
#[test]
fn what_can_not_be_answered_is_said() {
    let mut handle = Handle::new();
    let snapshot = handle
        .query(&Query::processes().fields(Field::Comm))
        .expect("processes");
    let stop = |_: &taskdiag::Task<'_>, _: &taskdiag::files::OpenFile<'_>| ControlFlow::Break(());
    let error = handle
        .files(&snapshot, &Request::default(), stop)
        .expect_err("no start times");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let snapshot = handle
        .query(&Query::processes().fields(Field::StartNs))
        .expect("processes");
    let mut broker = Handle::new()
        .with_source(SourceId::Broker)
        .with_socket("/nonexistent/socket");
    let error = broker
        .files(&snapshot, &Request::default(), stop)
        .expect_err("no broker");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(format!("{error:#}").contains("/nonexistent/socket"), "{error:#}");
    for source in SOURCES {
        let animal = animal("threads-5");
        let pid = animal.pid as u32;
        let mut handle = self::handle(source);
        let one = handle
            .query(&Query::these([pid]).fields(Field::StartNs))
            .expect("a process");
        drop(animal);
        let answer = handle.files(&one, &Request::default(), stop).expect("an answer");
        assert_eq!((answer.files, answer.gone), (0, 1), "{source}");
        // The closure ends the pass.
        let answer = handle.files(&snapshot, &Request::default(), stop).expect("an answer");
        assert_eq!(answer.files, 1, "{source}");
    }
}

/// Check that a user sees the files of their own processes, and that other processes are counted.
#[test]
fn users_see_their_own() {
    child::run(test_name!(), "nobody", child::nobody(0), || {
        let own = std::process::id();
        for source in [None, Some(SourceId::Procfs)] {
            let mut handle = source.map_or_else(Handle::new, |source| Handle::new().with_source(source));
            let (rows, answer) = list(
                &mut handle,
                &Query::processes(),
                &request(FileField::Name | FileField::Inode),
            );
            assert_eq!(answer.source, SourceId::Procfs);
            assert!(answer.denied > 1, "{answer:?}");
            assert!(rows.iter().any(|row| row.pid == own && row.fd == Some(1)), "{rows:?}");
            assert!(!rows.iter().any(|row| row.pid == 1), "{rows:?}");
        }
        let mut bpf = Handle::new().with_source(SourceId::Bpf);
        let processes = Handle::new()
            .query(&Query::these([own]).fields(Field::StartNs))
            .expect("processes");
        let denied = bpf.files(&processes, &Request::default(), |_, _| ControlFlow::Continue(()));
        assert_eq!(denied.expect_err("it may not load").kind(), ErrorKind::Denied);
    });
}

/// Check that a process whose descriptors can be listed, but not read, is denied, whatever the
/// request asks for.
#[test]
fn listing_is_not_seeing() {
    // This allows opening directories of other users, but not following links of their processes.
    const DAC_READ_SEARCH: u64 = 1 << 2;
    child::run(test_name!(), "lists", child::nobody(DAC_READ_SEARCH), || {
        let parent = std::os::unix::process::parent_id();
        assert!(fs::read_dir(format!("/proc/{parent}/fd")).expect("a list").count() > 0);
        let null = PathMatch::new("/dev/null", Duration::from_secs(5)).expect("it exists");
        for field in [
            FileField::Name,
            FileField::OpenFlags,
            FileField::Inode,
            FileField::Detail,
            FileField::AllocatedBytes,
        ] {
            for paths in [Vec::new(), vec![null.clone()]] {
                let mut request = request(field.into());
                request.uses = Use::Fd.into();
                request.paths = paths;
                let (rows, answer) = list(&mut handle(SourceId::Procfs), &Query::these([parent]), &request);
                assert_eq!(rows, [], "{field}");
                assert_eq!((answer.denied, answer.undecided.total()), (1, 0), "{field}: {answer:?}");
            }
        }
    });
}

/// Check that two capabilities are enough for BPF, and that values only procfs has are denied.
#[test]
fn two_capabilities_see_descriptors() {
    // Of the process that the second one looks at.
    let dir = std::env::temp_dir().join(format!("taskdiag-files-{}", std::process::id()));
    let long = (0..8).fold(dir.clone(), |path, _| path.join("two hundred ".repeat(16)));
    fs::create_dir_all(&long).expect("a directory");
    let held = ["/dev/null", "/proc/version", long.to_str().expect("UTF-8")];
    let held = held.map(|path| fs::File::open(path).expect(path));
    let own = rustix::process::getpid();
    let pidfd = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).expect("a pidfd");
    child::run(test_name!(), "both", child::nobody(child::BOTH), || {
        let parent = std::os::unix::process::parent_id();
        let mut handle = handle(SourceId::Bpf);
        let (rows, answer) = list(
            &mut handle,
            &Query::these([parent]),
            &request(FileField::Name | FileField::Inode),
        );
        assert_eq!(
            (answer.source, answer.denied, answer.maps_denied),
            (SourceId::Bpf, 0, 0)
        );
        // From Linux 6.13 on CAP_PERFMON shows mappings, too.
        let may_not_map = fs::read(format!("/proc/{parent}/maps")).is_err();
        let mut with_maps = request(FileField::Name.into());
        with_maps.uses = Use::ALL.into();
        let (_, answer) = list(&mut handle, &Query::these([parent]), &with_maps);
        assert_eq!((answer.denied, answer.maps_denied), (0, u64::from(may_not_map)));
        with_maps.uses = Use::Map.into();
        let (_, answer) = list(&mut handle, &Query::these([parent]), &with_maps);
        assert_eq!((answer.denied, answer.maps_denied), (u64::from(may_not_map), 0));
        let named = |name: &str| rows.iter().find(|row| row.name.as_deref() == Ok(name.as_bytes()));
        let null = named("/dev/null").unwrap_or_else(|| panic!("{rows:?}"));
        let stat = fs::metadata("/dev/null").expect("its stat");
        assert_eq!((null.kind, null.inode), (Ok(Kind::Char), Ok(stat.ino())));
        // The file system of /proc reports numbers of its own, but the kernel's type.
        let version = named("/proc/version").unwrap_or_else(|| panic!("{rows:?}"));
        assert_eq!((version.kind, version.inode), (Ok(Kind::File), Err(Absent::Denied)));
        // A name that is too long for the program tells nothing about the kind. That of a pidfd
        // does.
        let is_unnamed = |row: &&Row| row.name == Err(Absent::Denied);
        let kinds: Vec<_> = rows.iter().filter(is_unnamed).map(|row| row.kind).collect();
        assert!(kinds.contains(&Ok(Kind::Dir)), "{kinds:?}");
        assert!(!kinds.contains(&Ok(Kind::File)), "{kinds:?}");
    });
    drop((held, pidfd));
    fs::remove_dir_all(&dir).expect("it is ours");
}
