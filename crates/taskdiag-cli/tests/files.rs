//! `taskdiag files`, run as a program.

mod common;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{
    check_closed_pipe, check_full_disk, command, free_pid, run, run_as_nobody, run_with_capabilities,
    run_with_two_capabilities, run_without_proc, Run, Sleeper,
};
use serde_json::{json, Value};
use taskdiag_testkit::child::without_calls;
use taskdiag_zoo::{margin, run_first, Zoo};

/// The rows of a JSON document.
fn rows(args: &[&str]) -> Vec<Value> {
    let run = run(args);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
    run.json()["rows"].as_array().expect("rows").clone()
}

fn own() -> String {
    std::process::id().to_string()
}

/// A directory of this test, with open files.
struct Scratch {
    path: PathBuf,
    files: Vec<File>,
}

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("taskdiag-cli-files-{}-{name}", own()));
        fs::create_dir_all(&path).expect("a directory");
        Scratch {
            path,
            files: Vec::new(),
        }
    }

    fn open(&mut self, name: &str, len: usize) -> &File {
        let path = self.path.join(name);
        fs::write(&path, vec![b'x'; len]).expect("a file");
        self.files.push(File::open(path).expect("the file"));
        self.files.last().expect("it was pushed")
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn row_of<'a>(rows: &'a [Value], file: &File) -> &'a Value {
    let fd = json!(file.as_raw_fd());
    let found = rows.iter().find(|row| row["fd"] == fd);
    found.unwrap_or_else(|| panic!("no row of {fd}: {rows:?}"))
}

/// Check that a row agrees with stat(2) and `/proc`, from each source, and that missing values have
/// reasons.
#[test]
fn rows_are_those_of_proc() {
    let mut scratch = Scratch::new("rows");
    let file = scratch
        .open("a \u{1b}[31m\nname", 10)
        .try_clone()
        .expect("a descriptor");
    let stat = file.metadata().expect("its stat");
    for source in ["auto", "procfs", "bpf"] {
        let rows = rows(&["files", "--json", "--source", source, &own()]);
        let row = row_of(&rows, &file);
        let expected = json!({
            "pid": std::process::id(), "comm": row["comm"], "use": "fd", "fd": file.as_raw_fd(), "kind": "file",
            "access": "r", "open_flags": "0x88000", "offset_bytes": 0, "size_bytes": 10,
            "dev_major": libc::major(stat.dev()), "dev_minor": libc::minor(stat.dev()), "inode": stat.ino(), "nlink": 1,
            "deleted": false, "mnt_id": row["mnt_id"],
            "name": scratch.path.join("a \u{1b}[31m\nname").to_str().expect("UTF-8"),
            "absent": {"anon_kind": "none", "tid": "none"},
        });
        assert_eq!(row, &expected, "{source}");
        assert!(row["mnt_id"].is_u64());
        let cwd = rows.iter().find(|row| row["use"] == "cwd").expect("a directory");
        let none = json!({"fd": "none", "anon_kind": "none", "access": "none", "open_flags": "none", "offset_bytes": "none",
                   "tid": "none"});
        assert_eq!((&cwd["kind"], &cwd["absent"]), (&json!("dir"), &none), "{source}");
    }
}

/// Check the machine-readable formats, and that control characters are harmless in tables.
#[test]
fn files_have_all_forms() {
    let mut scratch = Scratch::new("forms");
    scratch.open("a \u{1b}[31m\nname", 10);
    let scratch = &scratch;
    let pid = own();
    let args = [
        "files",
        "-p",
        &pid,
        "--path",
        scratch.path(),
        "-o",
        "pid,fd,size_bytes,name",
    ];
    let with = |more: &[&str]| run(&[&args[..], more].concat()).complete();
    let name = scratch.path.join("a \u{1b}[31m\nname");
    let name = name.to_str().expect("UTF-8");
    let fd = scratch.files[0].as_raw_fd();
    let line: Value = serde_json::from_str(&with(&["--jsonl"])).expect("one line");
    assert_eq!(
        line,
        json!({"pid": std::process::id(), "fd": fd, "size_bytes": 10, "name": name})
    );
    let csv = with(&["--csv"]);
    assert_eq!(csv, format!("pid,fd,size_bytes,name\n{},{fd},10,\"{name}\"\n", own()));
    let table = with(&[]);
    assert!(
        table.contains("a \\x1b[31m\\nname") && !table.contains('\u{1b}'),
        "{table}"
    );
    assert_eq!(table.lines().count(), 2, "{table}");
    let bare = with(&["--csv", "--no-header"]);
    assert_eq!(
        bare.lines().next(),
        Some(format!("{},{fd},10,\"{}", own(), name.lines().next().expect("a line")).as_str())
    );
}

/// Check that deleted files are found, and that the space that they hold counts each file only
/// once.
#[test]
fn deleted_files_hold_space() {
    let mut scratch = Scratch::new("deleted");
    let file = scratch.open("gone", 1 << 20);
    // The kernel may not have decided yet how much space the file occupies.
    file.sync_all().expect("it is written");
    let again = [
        file.try_clone().expect("a descriptor"),
        file.try_clone().expect("a descriptor"),
    ];
    let kept = scratch.open("kept", 10).try_clone().expect("a descriptor");
    fs::remove_file(scratch.path.join("gone")).expect("it is ours");
    for source in ["procfs", "bpf"] {
        let pid = own();
        let args = [
            "files",
            "-p",
            &pid,
            "--deleted",
            "--path",
            scratch.path(),
            "--source",
            source,
        ];
        let document = run(&[&args[..], &["--json"]].concat()).json();
        let rows = document["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 3, "{source}: {rows:?}");
        assert!(rows
            .iter()
            .all(|row| row["deleted"] == json!(true) && row["nlink"] == json!(0)));
        let space = rows[0]["allocated_bytes"].as_u64().expect("a number");
        assert!((1 << 20..2 << 20).contains(&space), "{source}: {space}");
        let total = json!({
            "opens_count": 3, "processes_count": 1, "files_count": 1, "deleted_count": 1, "deleted_bytes": space,
        });
        assert_eq!(document["total"], total, "{source}");
        assert_eq!(document["counters"]["files"], json!(3), "{source}");
        let table = run(&[&args[..], &["--bytes", "--limit", "1"]].concat()).complete();
        let last = table.lines().last().expect("a total");
        assert!(
            last.trim_start().starts_with("total") && last.ends_with("1 file, held by 1 process"),
            "{table}"
        );
        assert!(last.contains(&space.to_string()), "{table}");
        assert_eq!(table.lines().count(), 3, "{table}");
    }
    drop((again, kept));
}

/// Check which processes have a path open: a file with another name, a directory, and a missing
/// file.
#[test]
fn paths_are_looked_for() {
    let mut scratch = Scratch::new("paths");
    scratch.open("first", 1);
    scratch.open("second", 1);
    let other = scratch.path.join("other name");
    fs::hard_link(scratch.path.join("first"), &other).expect("a link");
    for source in ["procfs", "bpf"] {
        let ask = |path: &str| rows(&["files", "--json", "--source", source, "-p", &own(), "--path", path]);
        let names = |rows: &[Value]| -> BTreeSet<String> {
            rows.iter()
                .map(|row| row["name"].as_str().expect("a name").to_owned())
                .collect()
        };
        let of_file = names(&ask(other.to_str().expect("UTF-8")));
        let first = scratch.path.join("first").to_str().expect("UTF-8").to_owned();
        assert_eq!(of_file, BTreeSet::from([first.clone()]), "{source}");
        let below = names(&ask(scratch.path()));
        assert!(below.len() == 2 && below.contains(&first), "{source}: {below:?}");
        let both = run(&[
            "files",
            "--jsonl",
            "--source",
            source,
            "-p",
            &own(),
            "--path",
            &first,
            "/no/such/path",
        ]);
        assert_eq!(both.code, Some(1), "{both:?}");
        assert!(both.stderr.contains("/no/such/path: No such file"), "{both:?}");
        assert_eq!(both.stdout.split(|&byte| byte == b'\n').count(), 2, "{both:?}");
    }
    let none = run(&["files", "--path", "/no/such/path"]);
    assert_eq!(none.code, Some(2), "{none:?}");
}

/// Mounts an empty file system at a directory while it lives.
struct Mounted<'a>(&'a str);

impl Mounted<'_> {
    fn new(at: &str) -> Mounted<'_> {
        let status = Command::new("mount").args(["-t", "tmpfs", "taskdiag", at]).status();
        assert!(status.expect("mount runs").success(), "{at}");
        Mounted(at)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", self.0]).status();
    }
}

/// The processes that fuser finds.
fn fuser(args: &[&str]) -> BTreeSet<String> {
    let fuser = Command::new("fuser").args(args).stderr(Stdio::null()).output();
    let found = String::from_utf8(fuser.expect("fuser runs").stdout).expect("numbers");
    found.split_whitespace().map(str::to_owned).collect()
}

/// Check that the sockets bound to a path are found, in each process that has them and in another
/// network namespace, as fuser finds those of its own, and that one with a relative name counts as
/// unknown where the name decides.
#[test]
fn sockets_bound_to_paths_are_found() {
    let scratch = Scratch::new("sockets");
    let mounted = Mounted::new(scratch.path());
    let path = scratch.path.join("socket");
    let path = path.to_str().expect("UTF-8");
    let listener = UnixListener::bind(path).expect("a socket");
    let _client = UnixStream::connect(path).expect("a connection");
    let (accepted, _) = listener.accept().expect("a connection");
    // These are in another network namespace.
    let elsewhere = CString::new(format!("{path} elsewhere")).expect("no NUL");
    let directory = CString::new(scratch.path()).expect("no NUL");
    let mut sleep = Command::new("sleep");
    // SAFETY: only system calls are made between fork and exec.
    unsafe {
        sleep.pre_exec(move || {
            let checked = |result: i32| {
                if result < 0 {
                    Err(std::io::Error::last_os_error())
                } else {
                    Ok(result)
                }
            };
            checked(libc::unshare(libc::CLONE_NEWNET))?;
            checked(libc::chdir(directory.as_ptr()))?;
            for name in [elsewhere.as_c_str(), c"relative"] {
                let mut address: libc::sockaddr_un = std::mem::zeroed();
                address.sun_family = libc::AF_UNIX as u16;
                for (to, from) in address.sun_path.iter_mut().zip(name.to_bytes()) {
                    *to = *from as libc::c_char;
                }
                let socket = checked(libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0))?;
                let len = size_of::<libc::sockaddr_un>() as u32;
                checked(libc::bind(socket, (&raw const address).cast(), len))?;
            }
            checked(libc::chdir(c"/".as_ptr())).map(drop)
        })
    };
    let sleeper = Sleeper::start(&mut sleep);
    let (own, other) = (own(), sleeper.pid());
    let ends = [listener.as_raw_fd(), accepted.as_raw_fd()].map(|fd| json!(fd));
    for source in ["procfs", "bpf"] {
        let ask = |path: &str| {
            run(&[
                "files", "--json", "--source", source, "-p", &own, "-p", &other, "--path", path,
            ])
        };
        let all = ask(scratch.path());
        let of = |run: &Run, pid: &str| -> BTreeSet<String> {
            let rows = run.json()["rows"].as_array().expect("rows").clone();
            let pid = json!(pid.parse::<u32>().expect("a number"));
            let of_pid = rows.iter().filter(|row| row["pid"] == pid);
            of_pid.map(|row| row["fd"].to_string()).collect()
        };
        let ends: BTreeSet<String> = ends.iter().map(Value::to_string).collect();
        assert_eq!(
            (all.code, of(&all, &own), of(&all, &other).len()),
            (Some(0), ends.clone(), 2),
            "{source}"
        );
        let one = ask(path);
        assert_eq!(
            (one.code, of(&one, &own), of(&one, &other).len()),
            (Some(0), ends, 0),
            "{source}"
        );
        let relative = ask(scratch.path.join("relative").to_str().expect("UTF-8"));
        assert_eq!((relative.code, of(&relative, &other).len()), (Some(0), 1), "{source}");
        // Until it executes its program, a child of another test has the files of this process.
        let by_fuser = || fuser(&[path]) == BTreeSet::from([own.clone()]);
        assert!((0..100).any(|_| by_fuser()), "{:?}", fuser(&[path]));
        assert!(fuser(&["-m", scratch.path()]).contains(&own));
        let below = scratch.path.join("below");
        fs::create_dir_all(&below).expect("a directory");
        let below = ask(below.to_str().expect("UTF-8"));
        assert_eq!(
            (below.code, below.json()["counters"]["undecided"].as_u64()),
            (Some(0), Some(1)),
            "{source}"
        );
        let said = "1 UNIX socket left out, bound by a relative name";
        assert!(below.stderr.contains(said), "{}", below.stderr);
    }
    drop(mounted);
}

/// Check that loop devices, swap files and mounts below a path are told, and of a file only its own.
#[test]
fn uses_by_the_kernel_are_told() {
    let scratch = Scratch::new("kernel");
    let path = scratch.path();
    let image = format!("{path}/disk image");
    fs::write(&image, vec![0; 1 << 20]).expect("a file");
    let below = format!("{path}/below");
    fs::create_dir_all(&below).expect("a directory");
    let ask = |path: &str| run(&["files", "-p", &own(), "--path", path]);
    assert_eq!(ask(path).stderr, "");
    let mounted = Mounted::new(&below);
    let device = Command::new("losetup")
        .args(["--find", "--show", &image])
        .output()
        .expect("losetup runs");
    let device = String::from_utf8(device.stdout).expect("a path");
    let name = device.trim().strip_prefix("/dev/").expect("a device").to_owned();
    let told = [path, &image, &below].map(ask);
    let ended = Command::new("losetup").args(["--detach", device.trim()]).status();
    assert!(ended.expect("losetup runs").success());
    let said = |of: &str, uses: &str| format!("taskdiag: {of}: also in use by the kernel: {uses}\n");
    let expected = [
        said(path, &format!("{name} {image}, mount {below}")),
        said(&image, &format!("{name} {image}")),
        String::new(),
    ];
    assert_eq!(told.each_ref().map(|run| run.stderr.clone()), expected);
    assert!(told.iter().all(|run| run.code == Some(0)));
    drop(mounted);
    // A swap file has no holes.
    let swap = CString::new(format!("{path}/swap")).expect("no NUL");
    let name = swap.to_str().expect("UTF-8");
    fs::write(name, vec![0; 1 << 20]).expect("a file");
    File::open(name)
        .and_then(|file| file.sync_all())
        .expect("it is written");
    let made = Command::new("mkswap").arg(name).output().expect("mkswap runs");
    assert!(made.status.success(), "{made:?}");
    // SAFETY: the path ends with a NUL.
    if unsafe { libc::swapon(swap.as_ptr(), 0) } != 0 {
        eprintln!("swapon(2): {}: swap files not tested", std::io::Error::last_os_error());
        return;
    }
    let told = ask(path);
    // SAFETY: the path ends with a NUL.
    assert_eq!(unsafe { libc::swapoff(swap.as_ptr()) }, 0);
    assert_eq!(told.stderr, said(path, &format!("swap {name}")));
}

/// Check that what a thread has for itself is found, in each form, as lsof finds it, also where the
/// first thread has ended or the kernel compares no threads, and that other threads have no rows.
#[test]
fn threads_have_files_of_their_own() {
    let zoo = Zoo::new().expect("a zoo");
    for name in ["own-files", "own-files-dead-leader"] {
        let animal = zoo.start(name).expect("an animal");
        let comm = |tid: &&i32| fs::read_to_string(format!("/proc/{tid}/comm")).expect("a name");
        let tids = animal.facts.tids.as_ref().expect("threads");
        let tid = *tids.iter().find(|tid| comm(tid) == "alone\n").expect("a thread alone");
        let pid = animal.pid.to_string();
        // The thread's table began as a copy of that of the process: it has the same pipes.
        let ends = rows(&["files", "--json", "--kind", "fifo", "-o", "peers", &own()]);
        let ends: Vec<&Vec<Value>> = ends.iter().filter_map(|row| row["peers"].as_array()).collect();
        let of_animal = |ends: &&Vec<Value>| ends.iter().filter(|end| end["pid"] == json!(animal.pid)).count();
        assert_eq!(ends.iter().map(of_animal).max(), Some(1), "{ends:?}");
        let lsof = Command::new("lsof").args(["-K", "-a", "-p", &pid, "-F", "Kf"]).output();
        let lsof = String::from_utf8(lsof.expect("lsof runs").stdout).expect("text");
        let of_thread = lsof.lines().skip_while(|line| *line != format!("K{tid}")).skip(1);
        let uses = of_thread
            .take_while(|line| !line.starts_with('p'))
            .map(|line| line[1..].replace("rtd", "root"));
        let expected: BTreeSet<String> = uses.filter(|what| !["txt", "mem"].contains(&what.as_str())).collect();
        assert!(expected.contains("cwd") && expected.len() > 3, "{lsof}");
        for source in ["procfs", "bpf"] {
            for refused in [&[][..], &[(libc::SYS_kcmp, libc::EPERM)]] {
                let ask = |more: &[&str]| {
                    let mut command = command(&[&["files", &pid, "--source", source], more].concat());
                    Run::new(without_calls(&mut command, refused).output().expect("the binary runs"))
                };
                let document = ask(&["--json"]).json();
                let rows = document["rows"].as_array().expect("rows");
                let of_threads = || rows.iter().filter(|row| row["tid"].is_u64());
                assert!(of_threads().all(|row| row["tid"] == json!(tid) && row["pid"] == json!(animal.pid)));
                let fd_or_use = |row: &Value| match row["fd"].as_u64() {
                    Some(fd) => fd.to_string(),
                    None => row["use"].as_str().expect("a word").to_owned(),
                };
                let found: BTreeSet<String> = of_threads().map(fd_or_use).collect();
                assert_eq!(found, expected, "{name} {source} {document}");
                assert!(
                    rows.iter().any(|row| row["absent"]["tid"] == json!("none")),
                    "{document}"
                );
                let paths = ["--path", "/dev/zero", "/sys"];
                let csv = ask(&[&paths[..], &["-o", "tid,name", "--csv", "--no-header"]].concat()).text();
                assert_eq!(csv, format!("{tid},/sys\n{tid},/dev/zero\n"), "{name} {source}");
                let table = ask(&paths).text();
                assert!(table.contains(&format!(" {tid}/cwd ")), "{table}");
            }
        }
    }
}

/// Check that a file below a directory is left out with a message if its path is too long to be
/// read.
#[test]
fn names_that_are_too_long_are_counted() {
    let scratch = Scratch::new("long");
    let name = CString::new("x".repeat(250)).expect("no NUL");
    let mut sleep = Command::new("sleep");
    sleep.current_dir(&scratch.path);
    // No single path leads there.
    // SAFETY: mkdir(2) and chdir(2) may be called between fork and exec.
    unsafe {
        sleep.pre_exec(move || {
            for _ in 0..20 {
                if libc::mkdir(name.as_ptr(), 0o700) != 0 || libc::chdir(name.as_ptr()) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        })
    };
    let sleeper = Sleeper::start(&mut sleep);
    for source in ["procfs", "bpf"] {
        let pid = sleeper.pid();
        let args = [
            "files",
            "--json",
            "--use",
            "cwd",
            "-p",
            &pid,
            "--path",
            scratch.path(),
            "--source",
            source,
        ];
        let run = run(&args);
        assert_eq!(run.code, Some(1), "{source}: {run:?}");
        assert!(run.stderr.contains("1 file left out"), "{source}: {run:?}");
        assert_eq!(run.json()["counters"]["undecided"], json!(1), "{source}: {run:?}");
    }
}

/// Check the options that select and sort rows.
#[test]
fn rows_are_chosen_and_ordered() {
    let mut scratch = Scratch::new("orders");
    for (name, len) in [("a", 30), ("b", 10), ("c", 20)] {
        scratch.open(name, len);
    }
    let sizes = |more: &[&str]| -> Vec<u64> {
        let pid = own();
        let args = ["files", "--json", "-p", &pid, "--path", scratch.path()];
        let rows = rows(&[&args[..], more].concat());
        rows.iter()
            .map(|row| row["size_bytes"].as_u64().expect("a size"))
            .collect()
    };
    assert_eq!(sizes(&["--sort", "size_bytes"]), [10, 20, 30]);
    assert_eq!(sizes(&["--sort", "-size_bytes", "--limit", "2"]), [30, 20]);
    assert_eq!(sizes(&["--limit", "1"]).len(), 1);
    assert!(sizes(&["--kind", "dir,socket"]).is_empty());
    assert_eq!(sizes(&["--kind", "file", "--use", "fd"]).len(), 3);
    assert!(sizes(&["--use", "cwd"]).is_empty());
    let own_rows = rows(&["files", "--json", "-p", &own(), "--kind", "file"]);
    assert!(own_rows.len() >= 3, "{own_rows:?}");
    let none = rows(&["files", "--json", "-p", &own(), "--where", "pid == 0"]);
    assert_eq!(none, [] as [Value; 0]);
    let missing = run(&["files", "--jsonl", &free_pid()]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("no such process"), "{missing:?}");
    for wrong in [
        &["files", "--kind", "sock"][..],
        &["files", "--use", "mem"],
        &["files", "-o", "sizes"],
        &["files", "--by", "path", "-o", "pid"],
        &["files", "--by", "path", "--sort", "pid"],
        &["files", "1", "-u", "root"],
    ] {
        let run = run(wrong);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{wrong:?}: {run:?}");
    }
}

/// Check that the rows of a process come together, by its id and then by what it has them for, also
/// where mapped files are among them and whichever source answers.
#[test]
fn rows_have_an_order() {
    let sleepers = [(); 3].map(|()| common::Sleeper::new("ordered"));
    let pids = sleepers.each_ref().map(common::Sleeper::pid);
    let uses = ["map", "cwd", "root", "exe", "fd"];
    for source in ["bpf", "procfs"] {
        let places = |pids: &[String]| -> Vec<_> {
            let mut args = vec!["files", "--use", "all", "--jsonl", "--source", source];
            args.extend(pids.iter().map(String::as_str));
            let lines = run(&args).text();
            let rows = lines
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).expect("a row"));
            let place = |row: Value| {
                let used = uses.iter().position(|name| row["use"] == *name);
                (row["pid"].as_u64(), row["tid"].as_u64(), used, row["fd"].as_u64())
            };
            rows.map(place).collect()
        };
        for places in [places(&pids), places(&[])] {
            assert!(places.len() > 12 && places.is_sorted(), "{source}: {places:?}");
        }
    }
}

/// Check the sums of each grouping, and that the total is the sum of all groups.
#[test]
fn files_are_added_up() {
    let mut scratch = Scratch::new("sums");
    scratch.open("a", 1);
    let again = scratch.open("b", 1).try_clone().expect("a descriptor");
    for by in ["user", "program", "unit", "container", "path"] {
        for source in ["procfs", "bpf"] {
            let document = run(&[
                "files",
                "--json",
                "--by",
                by,
                // A child that another test starts has copies of all descriptors until it calls
                // exec.
                "-p",
                &own(),
                "--path",
                scratch.path(),
                "--source",
                source,
            ])
            .json();
            assert_eq!(
                (&document["total"]["opens_count"], &document["total"]["files_count"]),
                (&json!(3), &json!(2)),
                "{by}"
            );
            let rows = document["rows"].as_array().expect("rows");
            let opens: u64 = rows
                .iter()
                .map(|row| row["opens_count"].as_u64().expect("a number"))
                .sum();
            assert_eq!(opens, 3, "{by}");
            assert_eq!(rows.len(), if by == "path" { 2 } else { 1 }, "{by}: {rows:?}");
        }
    }
    let by_path = run(&["files", "--by", "path", "-p", &own(), "--path", scratch.path(), "--csv"]).complete();
    let first = by_path.lines().nth(1).expect("a row");
    assert_eq!(first, format!("{}/b,2,1,1,0,0", scratch.path()));
    let by_kind = run(&[
        "files",
        "--by",
        "kind,access,anon_kind",
        "-p",
        &own(),
        "--path",
        scratch.path(),
        "--jsonl",
    ]);
    for row in by_kind.complete().lines() {
        let row: Value = serde_json::from_str(row).expect("a sum");
        assert!(row["kind"] == "file" && row["absent"]["anon_kind"] == "none", "{row}");
    }
    let table = run(&["files", "--by", "path", "-p", &own(), "--path", scratch.path()]).complete();
    assert!(
        table.lines().last().is_some_and(|line| line.ends_with("total")),
        "{table}"
    );
    drop(again);
}

/// Check that details agree with fdinfo, and are shown only on request.
#[test]
fn details_are_those_of_fdinfo() {
    let zoo = Zoo::new().expect("a zoo");
    let animal = zoo.start("descriptors").expect("an animal");
    let pid = animal.pid.to_string();
    for source in ["procfs", "bpf"] {
        let rows = rows(&[
            "files",
            "--json",
            "--kind",
            "eventfd",
            "-o",
            "fd,anon_kind,detail",
            "--source",
            source,
            &pid,
        ]);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0]["anon_kind"], json!("eventfd"));
        let detail = rows[0]["detail"].as_str().expect("text");
        assert!(detail.starts_with("eventfd-count:                3\n"), "{detail}");
    }
}

/// Check that a table has words for the details of objects of the kernel, and JSON their lines.
#[test]
fn details_have_words() {
    let new = |fd: i32| {
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    // SAFETY: a system call without pointers.
    let pidfd = |pid: u32| new(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32);
    let mut child = Command::new("true").spawn().expect("a process");
    let of_child = pidfd(child.id());
    child.wait().expect("it ends");
    // SAFETY: everything lives as long as the calls that use it, and signal sets are initialized.
    let (event, epoll, signal, inotify, timer) = unsafe {
        let (event, epoll) = (new(libc::eventfd(26, 0)), new(libc::epoll_create1(0)));
        let mut target = libc::epoll_event { events: 1, u64: 0 };
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, event.as_raw_fd(), &mut target);
        let mut signals = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGUSR1);
        libc::sigaddset(&mut signals, libc::SIGTERM);
        let inotify = new(libc::inotify_init1(0));
        for path in [c"/", c"/proc"] {
            libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), libc::IN_CREATE);
        }
        let timer = new(libc::timerfd_create(libc::CLOCK_BOOTTIME, 0));
        let time = |tv_sec| libc::timespec { tv_sec, tv_nsec: 0 };
        let times = libc::itimerspec {
            it_interval: time(5),
            it_value: time(90_000),
        };
        libc::timerfd_settime(timer.as_raw_fd(), 0, &times, std::ptr::null_mut());
        (event, epoll, new(libc::signalfd(-1, &signals, 0)), inotify, timer)
    };
    let targets = format!("targets 1: {}", event.as_raw_fd());
    let own_pid = format!("pid {}", own());
    // SAFETY: a system call without pointers.
    let idle = new(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, 0) });
    let expected = [
        (&event, "count 26"),
        (&epoll, &targets),
        (&signal, "signals USR1,TERM"),
        (&inotify, "watches 2"),
        (&idle, "monotonic, off"),
        (&pidfd(std::process::id()), &own_pid),
        (&of_child, "gone"),
    ];
    let args = ["files", "--kind", "anon", "-o", "fd,detail", &own()];
    let table = run(&args).text();
    let cell = |fd: &OwnedFd| {
        let mut lines = table.lines().filter_map(|line| line.trim_start().split_once(' '));
        let line = lines.find(|line| line.0 == fd.as_raw_fd().to_string());
        line.expect("the descriptor").1.trim()
    };
    for (fd, words) in expected {
        assert_eq!(cell(fd), words, "{table}");
    }
    let left = cell(&timer)
        .strip_prefix("boottime, ")
        .and_then(|words| words.strip_suffix("s left, every 5s"));
    let left: f64 = left.and_then(|left| left.parse().ok()).expect("a time");
    assert!((80_000.0..=90_000.0).contains(&left), "{table}");
    for args in [["--json"], ["--csv"]].map(|form| [&args[..], &form].concat()) {
        let text = run(&args).text();
        assert!(text.contains("sigmask:") && !text.contains("USR1"), "{text}");
    }
}

/// Check that a file system that never answers does not block the command.
#[test]
fn silent_file_systems_hold_nobody() {
    let _turn = run_first();
    let zoo = Zoo::new().expect("a zoo");
    let animal = zoo.start("silent-file").expect("an animal");
    let pid = animal.pid.to_string();
    for source in ["auto", "procfs", "bpf"] {
        let began = Instant::now();
        let rows = rows(&["files", "--json", "--use", "all", "--source", source, &pid]);
        assert!(
            began.elapsed() < Duration::from_secs(3) + margin(),
            "{:?}",
            began.elapsed()
        );
        let silent = rows
            .iter()
            .filter(|row| row["name"].as_str().is_some_and(|name| name.ends_with("/silent")));
        assert_eq!(silent.count(), 2, "{source}: {rows:?}");
    }
}

/// Runs the command. Fails unless it ends in time.
fn run_in_time(args: &[&str]) -> Run {
    let mut command = common::command(args);
    command
        .env_remove("TASKDIAG_PATIENCE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let began = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        if began.elapsed() > Duration::from_secs(3) + margin() {
            let _ = child.kill();
            panic!("it does not end: {args:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Run::new(child.wait_with_output().expect("its output"))
}

/// Check that the command ends even if paths are on a file system whose server never answers, so
/// that a process that waits for it can't be killed.
#[test]
fn deaf_servers_hold_nobody() {
    let _turn = run_first();
    let zoo = Zoo::new().expect("a zoo");
    let animal = zoo.start("deaf-mount").expect("an animal");
    let pid = animal.pid.to_string();
    let mount = fs::read_link(format!("/proc/{pid}/cwd")).expect("a link");
    let mount = format!("/proc/{pid}/root{}", mount.to_str().expect("UTF-8"));
    let name = format!("{mount}/silent");
    for source in ["auto", "procfs", "bpf"] {
        let ask = |more: &[&str]| run_in_time(&[&["files", "--jsonl", "--source", source, "-p", &pid], more].concat());
        // It also has a file open whose name looks like a buffer of devices.
        let all = ask(&["--use", "all", "-o", "use,kind,name"]).complete();
        let buffer = r#"{"use":"fd","kind":"file","name":"/dmabuf:silent"}"#;
        assert!(all.contains(buffer), "{source}: {all}");
        let found = ask(&["-o", "use", "--path", &mount]).complete();
        assert!(
            found.contains(r#"{"use":"cwd"}"#) && found.contains(r#"{"use":"fd"}"#),
            "{source}: {found}"
        );
        // The name must be looked up, and its server does not answer.
        let none = ask(&["--path", &name]);
        assert_eq!((none.code, none.stdout.len()), (Some(2), 0), "{source}: {none:?}");
        let said = format!("{name}: no answer from its file system");
        assert!(none.stderr.contains(&said), "{source}: {none:?}");
        let one = ask(&["--path", &name, "/dev/null"]);
        assert_eq!(one.code, Some(1), "{source}: {one:?}");
    }
}

/// Check that a caller that may load BPF programs but not trace others gets the values that BPF
/// reads, without asking for BPF.
#[test]
fn two_capabilities_are_used() {
    let pid = own();
    let ask = |source: &str| run_with_two_capabilities(&["files", "--jsonl", "-o", "use,fd", "--source", source, &pid]);
    let (Some(auto), Some(bpf), Some(procfs)) = (ask("auto"), ask("bpf"), ask("procfs")) else {
        return;
    };
    assert!(bpf.clone().complete().contains(r#"{"use":"exe"#), "{bpf:?}");
    assert_eq!(auto.code, Some(0), "{auto:?}");
    assert!(auto.text().contains(r#"{"use":"exe"#));
    assert_eq!((procfs.code, procfs.stdout.len()), (Some(1), 0), "{procfs:?}");
    let ps = ["ps", "-p", &pid, "--json", "-o", "pid,exe,cwd,root"];
    let ps = run_with_two_capabilities(&ps).expect("we are root").json();
    let exe = std::env::current_exe().expect("a path");
    assert_eq!(ps["rows"][0]["exe"], json!(exe.to_str().expect("UTF-8")), "{ps}");
}

/// Check that the user nobody is informed of missing values, and that sources that can't answer are
/// errors.
#[test]
fn what_is_missing_is_said() {
    if let Some(run) = run_as_nobody(&["files", "--json"]) {
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(
            run.stderr
                .contains("processes missing: you may not see them (root may: try sudo)"),
            "{run:?}"
        );
        assert!(run.json()["counters"]["denied"].as_u64() > Some(1));
    }
    if let Some(run) = run_as_nobody(&["files", "--json", "--source", "bpf"]) {
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains("CAP_BPF"), "{run:?}");
    }
    // BPF shows everything except mapped files. From Linux 6.13 on, two capabilities show those
    // too.
    let args = ["files", "--json", "--use", "all", "-p", &own(), "--source", "bpf"];
    if let Some(run) = run_with_two_capabilities(&args) {
        let rows = run.json()["rows"].as_array().expect("rows").clone();
        let has_maps = rows.iter().any(|row| row["use"] == json!("map"));
        let said = "mapped files of 1 process left out: you may not see them (root may: try sudo)";
        assert_eq!(run.stderr.contains(said), !has_maps, "{}", run.stderr);
        assert!(!run.stderr.contains("1 process left out"), "{}", run.stderr);
        let counters = &run.json()["counters"];
        let denied = (&counters["denied"], &counters["maps_denied"]);
        assert_eq!(denied, (&json!(0), &json!(u64::from(!has_maps))), "{}", run.stderr);
    }
    let broker = run(&["files", "--source", "broker", "--socket", "/nonexistent"]);
    assert_eq!((broker.code, broker.stdout.len()), (Some(2), 0), "{broker:?}");
    assert!(broker.stderr.contains("/nonexistent"), "{broker:?}");
}

/// Check that space that may not be seen is absent from sums too, and said.
#[test]
fn unknown_space_is_not_zero() {
    let mut scratch = Scratch::new("space");
    scratch.open("a", 10);
    fs::remove_file(scratch.path.join("a")).expect("it is ours");
    let files = |more: &[&str]| {
        let pid = own();
        let args = ["files", "-p", &pid, "--use", "fd", "--kind", "file", "--source", "bpf"];
        run_with_two_capabilities(&[&args[..], more].concat())
    };
    let (Some(rows), Some(sums), Some(table)) = (
        files(&["--deleted", "--json"]),
        files(&["--by", "user", "--json"]),
        files(&["--deleted"]),
    ) else {
        return;
    };
    for run in [&rows, &sums] {
        let total = &run.json()["total"];
        let bytes = (&total["deleted_bytes"], &total["absent"]["deleted_bytes"]);
        assert_eq!(bytes, (&Value::Null, &json!("denied")), "{run:?}");
    }
    for run in [rows, sums, table] {
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.contains("values denied for "), "{run:?}");
    }
}

/// Check that without `/proc`, which every answer needs, the command fails with a message.
#[test]
fn nothing_is_answered_without_proc() {
    for args in [
        &["files", "1"][..],
        &["files", "--source", "bpf", "1"],
        &["files", "--source", "procfs", "1"],
        &["files", "--deleted"],
        &["files", "--use", "map", "--json"],
        &["files", "--path", "/tmp"],
        &["files", "--by", "user"],
    ] {
        let run = run_without_proc(args);
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{args:?}: {run:?}");
        assert!(run.stderr.contains("mount -t proc proc /proc"), "{args:?}: {run:?}");
    }
}

/// Check that values that nobody may see, such as those of a shielded process 1, do not make sums
/// partial either.
#[test]
fn sums_lack_what_lists_lack() {
    let [list, sums] = [&["files", "1"][..], &["files", "--by", "path", "1"]].map(run);
    assert_eq!(list.code, sums.code, "{list:?} {sums:?}");
}

/// Check that a closed pipe is silent, and a full disk is not.
#[test]
fn output_errors_are_reported() {
    check_closed_pipe(&["files", "--jsonl"]);
    check_full_disk(&["files", "--jsonl"]);
}

/// Check that the user of the process is shown only on request.
#[test]
fn users_are_shown_on_request() {
    let id = Command::new("id").arg("-un").output().expect("id");
    let name = String::from_utf8(id.stdout).expect("UTF-8");
    for source in ["procfs", "bpf"] {
        let rows = rows(&["files", "--json", "-o", "use,user", "--source", source, &own()]);
        assert!(
            !rows.is_empty() && rows.iter().all(|row| row["user"] == name.trim_end()),
            "{rows:?}"
        );
    }
    assert!(rows(&["files", "--json", &own()])
        .iter()
        .all(|row| row.get("user").is_none()));
}

/// Check that peers are shown in each format, and only on request.
#[test]
fn peers_have_three_forms() {
    let mut child = Command::new("cat");
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
    let (pid, fd) = (
        child.id().to_string(),
        child.stdin.as_ref().expect("a pipe").as_raw_fd(),
    );
    let with = |args: &[&str]| run(&[&["files", "--kind", "fifo", &pid, "-o", "fd,peers"], args].concat());
    let document = with(&["--json"]).json();
    let row = |rows: &Value| {
        rows.as_array()
            .expect("rows")
            .iter()
            .find(|row| row["fd"] == 0)
            .cloned()
    };
    let peers = row(&document["rows"]).expect("the pipe")["peers"].clone();
    let has = |peers: &Value| {
        peers
            .as_array()
            .is_some_and(|peers| peers.iter().any(|end| end["fd"] == fd))
    };
    assert!(has(&peers), "{document}");
    assert_eq!(peers[0]["pid"], std::process::id());
    let as_text = format!("0,{}/", std::process::id());
    assert!(with(&["--csv"]).text().contains(&as_text));
    assert!(with(&[])
        .text()
        .lines()
        .any(|line| line.trim_start().starts_with("0 ") && line.contains(&format!(":{fd}"))));
    assert!(row(&run(&["files", &pid, "--json"]).json()["rows"])
        .expect("the pipe")
        .get("peers")
        .is_none());
    let sorted = with(&["--json", "--sort", "-peers"]).json();
    assert!(has(&row(&sorted["rows"]).expect("the pipe")["peers"]), "{sorted}");
    child.kill().expect("our own child");
    child.wait().expect("our own child");
}

/// Check that maps and programs of bpf(2) say what they are and have their names, from each source,
/// and that names are denied without `CAP_SYS_ADMIN`.
#[test]
fn bpf_objects_say_what_they_are() {
    let bpf = |command: i32, attributes: &[u64]| {
        // SAFETY: the attributes are as long as they say, and what they point to lives long enough.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(attributes)) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new.
        unsafe { OwnedFd::from_raw_fd(fd as i32) }
    };
    let pair = |low: u32, high: u32| {
        let [a, b, c, d] = low.to_ne_bytes();
        let [e, f, g, h] = high.to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    };
    let words =
        |name: &[u8; 16]| [0, 4, 8, 12].map(|at| u32::from_ne_bytes(*name[at..].first_chunk().expect("a word")));
    // Arrays of one word, and a filter that returns 0.
    let [a, b, c, d] = words(b"named_15_bytes_\0");
    let map = bpf(0, &[pair(2, 4), pair(4, 1), 0, pair(0, a), pair(b, c), pair(d, 0)]);
    let nameless = bpf(0, &[pair(2, 4), pair(4, 1)]);
    let code: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let [a, b, c, d] = words(b"filter.0\0\0\0\0\0\0\0\0");
    let load = [pair(1, 2), code.as_ptr() as u64, c"GPL".as_ptr() as u64, 0, 0, 0];
    let program = bpf(5, &[&load[..], &[pair(a, b), pair(c, d)]].concat());
    let own = std::process::id().to_string();
    for source in ["procfs", "bpf"] {
        let args = [
            "files",
            "-p",
            &own,
            "--kind",
            "bpf",
            "-o",
            "fd,bpf_type,bpf_name",
            "--jsonl",
            "--source",
            source,
        ];
        let row = |run: &Run, file: &OwnedFd| -> Value {
            let mut rows = run.stdout.split(|&byte| byte == b'\n').flat_map(serde_json::from_slice);
            let is_of = |row: &Value| row["fd"] == file.as_raw_fd();
            rows.find(is_of).expect("the descriptor")
        };
        let all = run(&args);
        for (file, kind, name) in [
            (&map, "array", json!("named_15_bytes_")),
            (&nameless, "array", Value::Null),
            (&program, "socket_filter", json!("filter.0")),
        ] {
            let found = row(&all, file);
            assert_eq!(
                (&found["bpf_type"], &found["bpf_name"]),
                (&json!(kind), &name),
                "{source}: {found}"
            );
        }
        assert_eq!(row(&all, &nameless)["absent"]["bpf_name"], "none", "{source}");
        // CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH
        const SEES_DESCRIPTORS: u64 = 1 << 19 | 1 << 2;
        if source == "procfs" {
            let denied = row(&run_with_capabilities(&args, SEES_DESCRIPTORS).expect("root"), &map);
            assert_eq!(
                (&denied["bpf_type"], &denied["absent"]["bpf_name"]),
                (&json!("array"), &json!("denied")),
                "{denied}"
            );
        }
    }
}

/// Check that a filter is over the fields of files and of their processes, for each source, in rows
/// and in sums, with processes that are named.
#[test]
fn files_are_filtered() {
    let scratch = Scratch::new("filter");
    let path = scratch.path.join("read by a sleeper");
    fs::write(&path, "12345").expect("a file");
    let file = fs::File::open(&path).expect("it is ours");
    let sleeper = Sleeper::start(Command::new("sleep").arg0("a-filtered").stdout(file));
    let (own, pid) = (own(), sleeper.pid());
    let pids = format!("{own},{pid}");
    for source in ["procfs", "bpf"] {
        let rows = |filter: &str| {
            let run = run(&["files", "--json", "--source", source, "-p", &pids, "--where", filter]);
            assert_eq!(run.code, Some(0), "{filter}: {run:?}");
            let document = run.json();
            let rows = document["rows"].as_array().expect("rows").clone();
            assert_eq!(document["counters"]["files"], json!(rows.len()), "{filter}");
            rows
        };
        let found = rows("kind == 'file' and access == 'r' and size_bytes == 5 and comm == 'sleep'");
        assert_eq!((found.len(), &found[0]["fd"]), (1, &json!(1)), "{source}: {found:?}");
        assert_eq!(rows("fd == 1 and name ~ 'read by a sleeper$'").len(), 1);
        // A part of a process, in one expression with what a file has.
        let found = rows(&format!("fd == 1 and (ppid == {own} or name == 'nothing')"));
        assert_eq!(
            (found.len(), &found[0]["pid"]),
            (1, &json!(pid.parse::<u32>().expect("a number")))
        );
        // What a file has not is neither true nor false.
        assert!(rows("use == 'cwd' and fd != 7").is_empty());
        assert_eq!(rows("use == 'cwd'").len(), 2);
        assert_eq!(rows("bpf_name == 'nothing'").len(), 0);
        let filter = "fd == 1 and size_bytes == 5";
        let by = run(&[
            "files", "--json", "--source", source, "--by", "program", "-p", &pids, "--where", filter,
        ]);
        assert_eq!(
            (by.code, &by.json()["rows"][0]["opens_count"]),
            (Some(0), &json!(1)),
            "{by:?}"
        );
        let named = run(&[
            "files",
            "--source",
            source,
            &pid,
            "--where",
            "fd == 1",
            "-o",
            "fd",
            "--no-header",
        ]);
        assert_eq!(
            (named.code, named.stdout.trim_ascii()),
            (Some(0), &b"1"[..]),
            "{named:?}"
        );
    }
    let wrong = run(&["files", "--where", "knd == 'file'"]);
    assert!(
        wrong.code == Some(2) && wrong.stderr.contains("near it are: kind"),
        "{wrong:?}"
    );
}

/// Check that a filter over what files are used for finds all uses.
#[test]
fn filters_over_uses_look_at_all() {
    let own = std::process::id().to_string();
    let document = run(&["files", "--where", "use == 'map'", "--json", &own]).json();
    assert!(
        document["rows"].as_array().is_some_and(|rows| !rows.is_empty()),
        "{document}"
    );
}
