//! `taskdiag inspect`, run as a program: its numbers equal those of `/proc`.

mod common;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{
    check_closed_pipe, check_full_disk, command, free_pid, run, run_as_nobody, run_on_terminal,
    run_with_two_capabilities, run_without_proc, Sleeper,
};
use serde_json::{json, Value};
use taskdiag_testkit::cgroup_mount;
use unicode_width::UnicodeWidthStr as _;

/// The row of the document for a process.
#[track_caller]
fn inspect(args: &[&str]) -> Value {
    let run = run(&[&["inspect", "--json"], args].concat());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
    let document = run.json();
    assert_eq!(
        (&document["command"], &document["schema"]),
        (&json!("inspect"), &json!(1))
    );
    document["rows"][0].clone()
}

fn own() -> String {
    std::process::id().to_string()
}

/// The row of a list with this value under this key.
#[track_caller]
fn row<'a>(list: &'a Value, key: &str, value: impl Into<Value>) -> &'a Value {
    let value = value.into();
    let rows = list.as_array().expect("a list");
    let found = rows.iter().find(|row| row[key] == value);
    found.unwrap_or_else(|| panic!("no {key} {value}: {list}"))
}

/// The line of a file of `/proc` that starts with `begin`, split into words.
fn words(pid: &str, file: &str, begin: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process exists");
    let line = text.lines().find_map(|line| line.strip_prefix(begin));
    let line = line.unwrap_or_else(|| panic!("no {begin:?} in {text}"));
    line.split_whitespace().map(str::to_owned).collect()
}

fn kib(pid: &str, file: &str, key: &str) -> u64 {
    words(pid, file, key)[0].parse::<u64>().expect("a number") * 1024
}

/// Check limits and their use, memory, namespaces and threads against `/proc`, from each source.
#[test]
fn numbers_are_those_of_proc() {
    let sleeper = Sleeper::new("inspected");
    let pid = sleeper.pid();
    for source in ["bpf", "procfs"] {
        let page = inspect(&[&pid, "--source", source]);
        let process = &page["process"];
        assert_eq!(
            (&process["pid"], &process["comm"]),
            (&json!(pid.parse::<u32>().expect("a number")), &json!("sleep"))
        );
        assert_eq!(process["cmdline"][0], "inspected");
        let limit = |value: &str| {
            value
                .parse::<u64>()
                .map_or_else(|_| json!("unlimited"), |number| json!(number))
        };
        for (name, key) in [
            ("Max open files", "nofile"),
            ("Max stack size", "stack"),
            ("Max processes", "nproc"),
            ("Max locked memory", "memlock"),
            ("Max address space", "as"),
        ] {
            let [soft, hard] = [0, 1].map(|at| limit(&words(&pid, "limits", name)[at]));
            let found = row(&page["limits"], "limit", key);
            assert_eq!((&found["soft"], &found["hard"]), (&soft, &hard), "{source} {key}");
        }
        let used = |limit: &str| row(&page["limits"], "limit", limit)["used"].clone();
        let fds = fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("its descriptors")
            .count();
        assert_eq!(used("nofile"), json!(fds));
        assert_eq!(used("as"), json!(kib(&pid, "status", "VmSize:")));
        assert_eq!(used("stack"), json!(kib(&pid, "status", "VmStk:")));
        assert_eq!(used("data"), json!(kib(&pid, "status", "VmData:")));
        assert_eq!(page["memory"]["rss_bytes"], json!(kib(&pid, "status", "VmRSS:")));
        assert_eq!(
            page["rollup"]["pss_anon_bytes"],
            json!(kib(&pid, "smaps_rollup", "Pss_Anon:"))
        );
        for namespace in ["net", "mnt", "user"] {
            let link = fs::read_link(format!("/proc/{pid}/ns/{namespace}")).expect("a namespace");
            let number = link
                .to_str()
                .and_then(|link| link.split(['[', ']']).nth(1))
                .expect("a number")
                .to_owned();
            let found = row(&page["namespaces"], "namespace", namespace);
            assert_eq!(found["inode"].to_string(), number);
            assert_eq!(found["own"], true);
        }
        let threads = page["threads"].as_array().expect("threads");
        assert_eq!(threads.len(), 1);
        assert_eq!(
            (&threads[0]["state"], &threads[0]["tid"]),
            (&json!("S"), &process["pid"])
        );
        let wchan = fs::read_to_string(format!("/proc/{pid}/wchan")).expect("it is there");
        assert_eq!(threads[0]["wchan"], wchan);
        assert!(page.get("environ").is_none() && page["absent"].get("environ").is_none());
    }
}

/// Check that the resident size of each mapped file equals the sum in `smaps`, largest first.
#[test]
fn mappings_are_those_of_smaps() {
    let sleeper = Sleeper::new("mapped");
    let pid = sleeper.pid();
    let page = inspect(&[&pid]);
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("its mappings");
    let (mut name, mut rss) = ("", std::collections::BTreeMap::<&str, u64>::new());
    for line in text.lines() {
        if let Some(size) = line.strip_prefix("Rss:") {
            let size = size.trim().strip_suffix(" kB").expect("a size");
            *rss.entry(name).or_default() += size.parse::<u64>().expect("a number") * 1024;
        } else if line.split(' ').next().is_some_and(|first| first.contains('-')) {
            name = line.splitn(6, ' ').nth(5).map_or("", str::trim_start);
        }
    }
    let file = |name: &str| row(&page["mappings"], "name", name)["rss_bytes"].clone();
    let libc = rss.keys().find(|name| name.contains("libc")).expect("the library");
    assert_eq!(file(libc), json!(rss[libc]));
    assert_eq!(file("[stack]"), json!(rss["[stack]"]));
    assert_eq!(file("[anonymous]"), json!(rss[""]));
    let sizes = page["mappings"].as_array().expect("a list").iter();
    let sizes: Vec<u64> = sizes.map(|row| row["rss_bytes"].as_u64().expect("a size")).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
}

/// Check that the page has the units of limits, no use of what is no measure, and a line for each
/// hierarchy of cgroups.
#[test]
fn figures_are_read_without_doubt() {
    let mut sleeper = Command::new("sh");
    let sleeper = Sleeper::run(sleeper.args(["-c", "ulimit -t 1000; exec sleep 1000"]));
    let pid = sleeper.pid();
    let text = run(&["inspect", &pid]).text();
    let line = |name: &str| -> Vec<&str> {
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.find(|line| line.first() == Some(&name)).expect("a line")
    };
    assert_eq!(line("cpu")[1..4], ["1000s", "1000s", "0s"], "{text}");
    assert_eq!(line("nice")[3], "-", "{text}");
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("its cgroups");
    assert!(
        cgroups
            .lines()
            .all(|cgroup| text.lines().any(|line| line.ends_with(&format!(" {cgroup}")))),
        "{text}"
    );
}

/// Check that parents follow one another up to the first process.
#[test]
fn parents_lead_to_the_first_process() {
    let sleeper = Sleeper::new("child");
    let page = inspect(&[&sleeper.pid()]);
    let parents = page["parents"].as_array().expect("a list");
    let mut expected = Vec::new();
    let mut pid = own();
    while pid != "0" {
        expected.push(json!(pid.parse::<u32>().expect("a number")));
        pid = words(&pid, "status", "PPid:")[0].clone();
    }
    let found: Vec<Value> = parents.iter().map(|parent| parent["pid"].clone()).collect();
    assert_eq!(found, expected);
}

/// A user without processes of its own, other than those of this test.
const OTHER_USER: u32 = 61_234;

/// Check that the threads of a user are counted, which `nproc` limits.
#[test]
fn threads_of_the_user_are_counted() {
    let Some(run) = run_as_nobody(&["inspect", "1", "--json"]) else {
        return;
    };
    // The count may be hidden from the user nobody, but the command does not fail.
    assert!(matches!(run.code, Some(0..=2)), "{run:?}");
    // A user that nobody else has.
    let sleepers = [(); 3].map(|()| Sleeper::start(Command::new("sleep").uid(OTHER_USER)));
    let page = inspect(&[&sleepers[0].pid()]);
    assert_eq!(row(&page["limits"], "limit", "nproc")["used"], 3);
}

/// Check that threads of the same user in another user namespace are not counted, which the kernel
/// counts apart (Linux 5.14).
#[test]
fn threads_of_other_user_namespaces_are_not_counted() {
    let _outside = Sleeper::start(Command::new("sleep").uid(OTHER_USER + 1));
    let mut inside = Command::new("unshare");
    let inside = Sleeper::run(inside.args(["-U", "sleep", "1000"]).uid(OTHER_USER + 1));
    // Until unshare(1) has become sleep.
    let comm = format!("/proc/{}/comm", inside.pid());
    while fs::read_to_string(&comm).expect("it lives") != "sleep\n" {
        std::thread::yield_now();
    }
    for source in ["procfs", "bpf"] {
        let page = inspect(&[&inside.pid(), "--source", source]);
        assert_eq!(row(&page["limits"], "limit", "nproc")["used"], 1, "{source}");
    }
}

/// Check kinds of descriptors, and sockets with their peers.
#[test]
fn descriptors_and_sockets_are_there() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (server, _) = listener.accept().expect("the other end");
    let page = inspect(&[&own()]);
    let port = client.local_addr().expect("an address").port();
    let found = row(&page["sockets"], "local_port", port);
    assert_eq!((&found["state"], &found["protocol"]), (&json!("ESTAB"), &json!("tcp")));
    let has = |list: &Value, fd: i32| {
        let ends = list.as_array().expect("a list");
        ends.iter()
            .any(|end| end["fd"] == fd && end["pid"] == std::process::id())
    };
    assert!(
        has(&found["owners"], client.as_raw_fd()) && has(&found["peers"], server.as_raw_fd()),
        "{found}"
    );
    let sockets = row(&page["files"], "kind", "socket")["descriptors_count"].as_u64();
    assert!(sockets >= Some(3), "{}", page["files"]);
}

/// Check that the environment is shown only on request, and only the requested variables.
#[test]
fn the_environment_is_shown_on_request() {
    let mut sleep = Command::new("sleep");
    let sleeper = Sleeper::start(sleep.env_clear().env("SECRET", "a=b").env("OTHER", "\u{1b}[31m"));
    let pid = sleeper.pid();
    let page = run(&["inspect", &pid]).complete();
    assert!(!page.contains("SECRET") && !page.contains("Environment"));
    let all = inspect(&["--environ", &pid]);
    assert_eq!(all["environ"].as_array().map(Vec::len), Some(2));
    let some = inspect(&["--environ=SECRET,MISSING", &pid]);
    assert_eq!(
        some["environ"],
        json!([{"name": "SECRET", "value": "a=b"}, {"name": "MISSING", "absent": {"value": "none"}}])
    );
    let page = run(&["inspect", "--environ", &pid]).complete();
    assert!(
        page.contains("SECRET") && page.contains("\\x1b[31m") && !page.contains('\u{1b}'),
        "{page}"
    );
}

/// Check that hostile names are harmless, and that no line is too long for a terminal.
#[test]
fn hostile_names_are_harmless() {
    let sleeper = Sleeper::new("\u{1b}]0;x\u{7}\n| evil");
    for width in [80, 40, 20] {
        let mut inspect = command(&["inspect", &sleeper.pid(), "--color", "never"]);
        let run = run_on_terminal(&mut inspect, width, 24);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let text = run.text();
        assert!(text.contains("Process") && text.contains("Threads"), "{text}");
        for line in text.lines() {
            assert!(line.width() <= width.into(), "{width}: {line:?}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
    let page = inspect(&[&sleeper.pid()]);
    assert_eq!(page["process"]["cmdline"][0], "\u{1b}]0;x\u{7}\n| evil");
}

/// Check the messages and statuses if there is nothing to show: a missing process, a thread, text
/// that is not a number, wrong options; and that a source that needs no /proc still answers.
#[test]
fn what_is_no_process_is_an_error() {
    let said = |args: &[&str], said: &str| {
        let run = run(&[&["inspect"], args].concat());
        assert_eq!((run.code, run.stdout.len()), (Some(2), 0), "{args:?}: {run:?}");
        assert!(run.stderr.contains(said), "{args:?}: {}", run.stderr);
    };
    let free = free_pid();
    said(&[&free], &format!("pid {free}: no such process"));
    said(&["init"], "not a process id");
    said(&[], "<PID>");
    said(&[&own(), "--csv"], "--csv");
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: a system call without pointers.
        tell.send(unsafe { libc::gettid() }).expect("the test waits");
        let _ = ended.recv();
    });
    let tid = told.recv().expect("the thread lives").to_string();
    for source in ["bpf", "procfs"] {
        said(&[&tid, "--source", source], &format!("thread of process {}", own()));
    }
    // No other command has rows for it, either.
    for args in [
        &["ps", "-p", &tid][..],
        &["tree", &tid],
        &["mem", "-p", &tid],
        &["files", "-p", &tid],
        &["maps", &tid],
        &["maps", &tid, "--where", "euid >= 0"],
    ] {
        let run = run(args);
        let is_told = run.stderr.contains(&format!("thread of process {}", own()));
        assert!(run.code == Some(1) && is_told, "{args:?}: {run:?}");
    }
    drop(end);
    thread.join().expect("it ends");
    // BPF needs no /proc for the process itself, but nearly all else is missing.
    let run = run_without_proc(&["inspect", "1", "--json"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stderr.contains("/proc is not the kernel's procfs"),
        "{}",
        run.stderr
    );
    assert_eq!(run.json()["rows"][0]["absent"]["files"], "unsupported");
}

/// Check that a process without memory has a page, and that its sections say so.
#[test]
fn zombies_have_a_page() {
    let mut child = Command::new("true").spawn().expect("a process");
    let pid = child.id().to_string();
    while words(&pid, "status", "State:")[0] != "Z" {
        std::thread::yield_now();
    }
    let run = run(&["inspect", "--json", &pid]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let page = run.json()["rows"][0].clone();
    assert_eq!(page["process"]["state"], "Z");
    assert_eq!(page["memory"]["absent"]["rss_bytes"], "no memory");
    assert_eq!(page["absent"]["mappings"], "no memory");
    assert_eq!(page["files"], json!([]));
    child.wait().expect("our own child");
}

/// Check that a user sees everything about their own processes, that values of other users'
/// processes are denied, and that two capabilities show what BPF reads.
#[test]
fn what_is_denied_is_said() {
    let roots = Sleeper::new("of root");
    let args = ["inspect", &roots.pid(), "--json"];
    let Some(denied) = run_as_nobody(&args) else { return };
    assert_eq!(denied.code, Some(1), "{}", denied.stderr);
    assert!(
        denied.stderr.contains("files") && denied.stderr.contains("denied"),
        "{}",
        denied.stderr
    );
    let page = denied.json()["rows"][0].clone();
    assert_eq!(page["process"]["comm"], "sleep");
    for section in ["files", "sockets", "mappings"] {
        assert_eq!(page["absent"][section], "denied", "{page}");
    }
    assert_eq!(
        page["memory"]["rss_bytes"],
        json!(kib(&roots.pid(), "status", "VmRSS:"))
    );
    let found = row(&page["namespaces"], "namespace", "net");
    assert_eq!(
        (&found["absent"]["inode"], &found["absent"]["own"]),
        (&json!("denied"), &json!("denied"))
    );
    let more = run_with_two_capabilities(&args).expect("root");
    let page = more.json()["rows"][0].clone();
    assert!(page["process"]["exe"].is_string(), "{page}");
    assert!(row(&page["namespaces"], "namespace", "net")["inode"].is_u64(), "{page}");
    let stack = row(&page["mappings"], "name", "[stack]");
    assert!(stack["size_bytes"].is_u64(), "{stack}");
    assert!(page["files"].is_array());
}

/// Check that sockets in a namespace that the user may not enter are there, with the reason for
/// their missing values.
#[test]
fn sockets_of_hidden_namespaces_are_there() {
    let mut sleep = Command::new("sleep");
    // SAFETY: system calls that touch no memory, which may be called between fork and exec.
    let in_own_namespace = || unsafe {
        if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) != 0
            || libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) < 0
        {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // SAFETY: as above.
    unsafe { sleep.uid(65534).gid(65534).pre_exec(in_own_namespace) };
    let sleeper = Sleeper::start(&mut sleep);
    for flag in ["--json", "--all"] {
        let run = run_as_nobody(&["inspect", &sleeper.pid(), flag]).expect("we are root");
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.contains("sockets: denied"), "{run:?}");
        if flag == "--all" {
            assert!(run.text().contains("\n  - (denied) -"));
            continue;
        }
        let page = run.json()["rows"][0].clone();
        let sockets = page["sockets"].as_array().expect("a list");
        let pid = sleeper.pid().parse::<u32>().expect("a number");
        assert_eq!(sockets.len(), 1, "{page}");
        assert_eq!(sockets[0]["owners"][0]["pid"], pid, "{page}");
        assert_eq!(sockets[0]["absent"]["family"], "denied", "{page}");
    }
}

/// A cgroup of this test. `None` without a unified hierarchy.
struct Cgroup {
    path: PathBuf,
    members: Vec<Sleeper>,
}

impl Cgroup {
    fn new(name: &str) -> Option<Cgroup> {
        let path = cgroup_mount()?.join(name);
        fs::create_dir_all(&path).expect("a cgroup");
        Some(Cgroup {
            path,
            members: Vec::new(),
        })
    }

    fn start(&mut self) -> String {
        let member = Sleeper::new("member");
        let pid = member.pid();
        fs::write(self.path.join("cgroup.procs"), &pid).expect("a move into a cgroup");
        self.members.push(member);
        pid
    }

    fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.path.join(file)).ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.members.clear();
        // It is busy for a moment after its last process has been reaped.
        while fs::remove_dir(&self.path).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Check the figures of a cgroup against its files, and that missing ones are absent.
#[test]
fn cgroups_have_figures() {
    let Some(mut cgroup) = Cgroup::new(&format!("taskdiag-inspect-{}", own())) else {
        // The whole section is then absent.
        assert_eq!(inspect(&[&own()])["absent"]["cgroup_use"], "unsupported");
        return;
    };
    let pid = cgroup.start();
    let page = inspect(&[&pid]);
    let (used, absent) = (&page["cgroup_use"], &page["cgroup_use"]["absent"]);
    assert!(
        page["cgroup"]["cgroup"]
            .as_str()
            .is_some_and(|path| path.ends_with(&own())),
        "{page}"
    );
    for (file, key) in [
        ("memory.max", "memory_max_bytes"),
        ("pids.max", "tasks_max_count"),
        ("pids.current", "tasks_count"),
        ("memory.swap.current", "swap_bytes"),
    ] {
        match cgroup.text(file).as_deref().map(str::trim_end) {
            Some("max") => assert_eq!(used[key], "unlimited", "{key}"),
            Some(number) => assert_eq!(used[key].to_string(), number, "{key}"),
            // The controller may be in a hierarchy of version 1, which another test checks.
            None => assert!(
                used[key].is_number() || used[key] == "unlimited" || absent[key] == "unsupported",
                "{key}"
            ),
        }
    }
    let stat = cgroup.text("cpu.stat").expect("each cgroup has it");
    let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
    let usage: u64 = usage.and_then(|usage| usage.parse().ok()).expect("a number");
    // The member sleeps, so its time does not change.
    assert_eq!(used["cpu_ns"], json!(usage * 1000));
    match cgroup.text("cpu.pressure") {
        Some(_) => assert!(row(&page["pressure"], "resource", "cpu")["avg10_percent"].is_number()),
        None => assert_eq!(page["absent"]["pressure"], "unsupported"),
    }
}

/// Check the limits and the use of a cgroup of version 1 against its files. This machine may not have
/// that version.
#[test]
fn cgroups_of_version_1_have_figures() {
    let below = Path::new("/sys/fs/cgroup");
    let name = format!("taskdiag-inspect-{}", own());
    let member = Sleeper::new("member");
    let pid = member.pid();
    let mut cgroups = Vec::new();
    for (controller, limit, value, key, shown) in [
        (
            "memory",
            "memory.limit_in_bytes",
            "67108864",
            "memory_max_bytes",
            json!(67_108_864),
        ),
        ("pids", "pids.max", "7", "tasks_max_count", json!(7)),
        ("cpu", "cpu.cfs_quota_us", "50000", "cpu_max_percent", json!(50)),
    ] {
        if !below.join(controller).join("cgroup.procs").exists() {
            println!("no hierarchy of {controller}");
            continue;
        }
        let path = below.join(controller).join(&name);
        fs::create_dir(&path).expect("a cgroup");
        fs::write(path.join("cgroup.procs"), &pid).expect("a move into a cgroup");
        let key_before = inspect(&[&pid])["cgroup_use"][key].clone();
        fs::write(path.join(limit), value).expect("a limit");
        cgroups.push((path, key, key_before, shown));
    }
    let page = inspect(&[&pid]);
    let used = &page["cgroup_use"];
    for (path, key, before, shown) in &cgroups {
        assert_eq!(
            (before, &used[key]),
            (&json!("unlimited"), shown),
            "{}: {page}",
            path.display()
        );
    }
    let usage = fs::read_to_string(below.join("pids").join(&name).join("pids.current"));
    if let Ok(usage) = usage {
        assert_eq!(used["tasks_count"].to_string(), usage.trim());
        let line = format!(":pids:/{name}\n");
        assert!(fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .expect("it lives")
            .contains(&line));
        let found = run(&["ps", "--cgroup", &format!("/{name}"), "--no-header", "-o", "pid"]).complete();
        assert_eq!(found.trim(), pid);
    }
    drop(member);
    for (path, ..) in cgroups {
        // It is busy for a moment after its last process has been reaped.
        while fs::remove_dir(&path).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A frozen cgroup, until it is dropped: version 1 does not end a frozen process.
struct Frozen<'a>(&'a Path, &'a str);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        fs::write(self.0, self.1).expect("it thaws");
    }
}

/// Check that a process in a cgroup below a frozen one is frozen, in both versions. This machine
/// may not have both.
#[test]
fn frozen_cgroups_are_told() {
    let name = format!("taskdiag-frozen-{}", own());
    let [unified, other] = [cgroup_mount(), Some(PathBuf::from("/sys/fs/cgroup/freezer"))];
    for (mount, file, frozen, thawed, events, told) in [
        (unified, "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"),
        (other, "freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN"),
    ] {
        let Some(mount) = mount.filter(|mount| mount.join("cgroup.procs").exists()) else {
            println!("no hierarchy with {file}");
            continue;
        };
        let cgroup = |path: PathBuf| {
            fs::create_dir(&path).expect("a cgroup");
            let members = Vec::new();
            Cgroup { path, members }
        };
        let above = cgroup(mount.join(&name));
        let mut below = cgroup(above.path.join("below"));
        let pid = below.start();
        assert_eq!(inspect(&[&pid])["cgroup_use"]["frozen"], false, "{file}");
        let file = above.path.join(file);
        fs::write(&file, frozen).expect("it freezes");
        let ice = Frozen(&file, thawed);
        while !below.text(events).expect("it is there").contains(told) {
            std::thread::sleep(Duration::from_millis(5));
        }
        for source in ["bpf", "procfs"] {
            let page = inspect(&[&pid, "--source", source]);
            assert_eq!(page["cgroup_use"]["frozen"], true, "{file:?} {source}: {page}");
        }
        assert!(run(&["inspect", &pid]).complete().contains("frozen"));
        drop(ice);
        while below.text(events).expect("it is there").contains(told) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(inspect(&[&pid])["cgroup_use"]["frozen"], false, "{file:?}");
    }
}

/// The files of a unit, removed when dropped.
struct Unit(Vec<PathBuf>);

impl Unit {
    fn new(name: &str, text: &str, drop_in: &str) -> Unit {
        let directory = Path::new("/run/systemd/system");
        let below = directory.join(format!("{name}.d"));
        fs::create_dir_all(&below).expect("a directory");
        let files = [directory.join(name), below.join("50-test.conf")];
        fs::write(&files[0], text).expect("a unit");
        fs::write(&files[1], drop_in).expect("a drop-in");
        Unit(vec![files[0].clone(), files[1].clone(), below])
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        }
    }
}

/// Check that credentials are compared with the settings of the unit and its drop-ins, and that a
/// missing unit or unit file is reported.
#[test]
fn credentials_are_compared_with_the_unit() {
    let name = format!("taskdiag-inspect-{}.service", own());
    let Some(mut cgroup) = Cgroup::new(&name) else {
        assert!(inspect(&[&own()])["absent"]["unit"].is_string());
        return;
    };
    let pid = cgroup.start();
    assert_eq!(inspect(&[&pid])["absent"]["unit"], "no unit file");
    let text = "[Service]\nUser=nobody\nNoNewPrivileges=yes\nCapabilityBoundingSet=CAP_KILL\n";
    let unit = Unit::new(
        &name,
        text,
        "[Service]\nUser=\nUser=root\nCapabilityBoundingSet=CAP_CHOWN\n",
    );
    let page = inspect(&[&pid]);
    assert_eq!(page["cgroup"]["unit"], name);
    let setting = |key: &str| row(&page["unit"], "setting", key).clone();
    assert_eq!(
        setting("User"),
        json!({"setting": "User", "asked": "root", "actual": "root", "agrees": true})
    );
    let bounding = setting("CapabilityBoundingSet");
    assert_eq!(
        (&bounding["asked"], &bounding["agrees"]),
        (&json!("CAP_KILL CAP_CHOWN"), &json!(false))
    );
    assert!(bounding["actual"]
        .as_str()
        .is_some_and(|names| names.starts_with("CAP_CHOWN CAP_DAC_OVERRIDE ")));
    let privileges = setting("NoNewPrivileges");
    assert_eq!(
        (&privileges["actual"], &privileges["agrees"]),
        (&json!(false), &json!(false))
    );
    let page = run(&["inspect", &pid]).complete();
    assert!(page.contains("CAP_KILL CAP_CHOWN"), "{page}");
    drop(unit);
}

/// Check that `--jsonl` is only the row, and that long lists are cut only on the page.
#[test]
fn forms_have_the_same_rows() {
    let sleeper = Sleeper::new("lists");
    let lines = run(&["inspect", "--jsonl", &sleeper.pid()]).complete();
    assert_eq!(lines.lines().count(), 1);
    let page: Value = serde_json::from_str(&lines).expect("a row");
    let mappings = page["mappings"].as_array().expect("a list").len();
    assert!(mappings > 4, "{page}");
    let (short, long) = (
        run(&["inspect", &sleeper.pid()]).complete(),
        run(&["inspect", "--all", &sleeper.pid()]).complete(),
    );
    assert!(short.contains("--all shows them"), "{short}");
    assert!(long.lines().count() > short.lines().count());
    assert!(!long.contains("--all shows them"));
    check_closed_pipe(&["inspect", "1"]);
    check_full_disk(&["inspect", &sleeper.pid()]);
}

/// Check that sections which a source does not have are missing with a reason, and that the others
/// are there.
#[test]
fn a_broker_that_is_not_there_is_an_error() {
    let run = run(&["inspect", "1", "--socket", "/nonexistent"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("/nonexistent"), "{}", run.stderr);
}

/// Check that ports and names of files stay on a narrow terminal.
#[test]
fn ends_stay_on_narrow_terminals() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskdiag"));
    command.args(["inspect", &std::process::id().to_string(), "--all"]);
    let page = run_on_terminal(&mut command, 80, 24).text();
    assert!(page.contains(&format!(":{port} ")), "{page}");
    assert!(
        page.lines().any(|line| line.trim_end().ends_with("/libc.so.6")),
        "{page}"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskdiag"));
    command.args(["sockets", "--tcp", "--info", "--port", &port.to_string()]);
    let sockets = run_on_terminal(&mut command, 60, 24).text();
    assert!(sockets.contains(&format!(":{port} ")), "{sockets}");
}
