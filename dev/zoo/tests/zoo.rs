//! Check that every animal is what it claims to be, as seen in /proc, and that nothing is left of
//! it afterwards.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use taskdiag_zoo::{Animal, Churn, Facts, Farm, Zoo};

fn exists(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn read(pid: i32, file: &str) -> Vec<u8> {
    let path = format!("/proc/{pid}/{file}");
    fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Reads /proc files of one process. Has its own simple parser, so that no code of the product is
/// trusted.
struct Proc {
    pid: i32,
    name: &'static str,
    status: String,
    /// The fields of stat; index 3 is field 3, the state.
    stat: Vec<String>,
}

impl Proc {
    fn new(animal: &Animal) -> Proc {
        let stat = read(animal.pid, "stat");
        let after = stat.iter().rposition(|&byte| byte == b')').unwrap();
        let fields = String::from_utf8(stat[after + 1..].to_vec()).unwrap();
        let stat = ["", "pid", "comm"]
            .into_iter()
            .chain(fields.split_ascii_whitespace())
            .map(str::to_owned)
            .collect();
        // A name that is not UTF-8 must not prevent reading the other lines.
        let status = String::from_utf8_lossy(&read(animal.pid, "status")).into_owned();
        Proc {
            pid: animal.pid,
            name: animal.name,
            status,
            stat,
        }
    }

    fn stat<T: std::str::FromStr>(&self, field: usize) -> T {
        self.stat[field]
            .parse()
            .unwrap_or_else(|_| panic!("{}: stat field {field}", self.name))
    }

    fn words(&self, key: &str) -> Vec<&str> {
        let prefix = format!("{key}:");
        let line = self.status.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("{}: no {key} in status", self.name))
            .split_ascii_whitespace()
            .collect()
    }

    fn numbers<T: std::str::FromStr>(&self, key: &str) -> Vec<T> {
        self.words(key)
            .iter()
            .map(|word| word.parse().unwrap_or_else(|_| panic!("{}: {key} {word}", self.name)))
            .collect()
    }

    fn hex(&self, key: &str) -> u64 {
        u64::from_str_radix(self.words(key)[0], 16).unwrap()
    }

    fn bytes(&self, key: &str) -> u64 {
        self.words(key)[0].parse::<u64>().unwrap() * 1024
    }

    fn tids(&self) -> Vec<i32> {
        let entries = fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap();
        let mut tids: Vec<i32> = entries
            .map(|e| e.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        tids.sort_unstable();
        tids
    }

    fn children(&self) -> Vec<i32> {
        let text = self
            .tids()
            .iter()
            .map(|tid| read(self.pid, &format!("task/{tid}/children")))
            .collect::<Vec<_>>()
            .concat();
        let text = String::from_utf8(text).unwrap();
        let mut children: Vec<i32> = text.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect();
        children.sort_unstable();
        children
    }

    /// CPU time of a task in nanoseconds, as the scheduler counts it.
    fn runtime_ns(&self, tid: i32) -> u64 {
        let text = String::from_utf8(read(self.pid, &format!("task/{tid}/schedstat"))).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }
}

fn split(strings: &[u8]) -> Vec<Vec<u8>> {
    let mut list: Vec<Vec<u8>> = strings.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    assert_eq!(list.pop(), Some(vec![]), "ends with NUL");
    list
}

/// A tick of utime and stime in nanoseconds.
const TICK_NS: u64 = 10_000_000;

/// Compares all known facts with /proc. Returns how many facts were compared.
fn check(animal: &Animal) -> usize {
    let p = Proc::new(animal);
    let name = animal.name;
    let mut checked = 0;
    macro_rules! same {
        ($fact:ident, $seen:expr) => {
            if let Some(fact) = $fact {
                assert_eq!($seen, *fact, "{name} {}: {}", p.pid, stringify!($fact));
                checked += 1;
            }
        };
    }
    macro_rules! at_least {
        ($fact:ident, $seen:expr) => {
            if let Some(fact) = $fact {
                let seen: u64 = $seen;
                assert!(
                    seen >= *fact,
                    "{name} {}: {} {seen} < {fact}",
                    p.pid,
                    stringify!($fact)
                );
                checked += 1;
            }
        };
    }
    // No `..`, so that a new fact must be checked here.
    let Facts {
        pid,
        comm,
        cmdline,
        cmdline_raw,
        environ,
        exe,
        state,
        ppid,
        pgid,
        sid,
        tty_nr,
        tpgid,
        tracer_pid,
        threads_count,
        tids,
        children,
        memory_shared_with,
        nspids,
        own_namespaces,
        boottime_offset_s,
        uids,
        gids,
        groups,
        cap_inheritable,
        cap_permitted,
        cap_effective,
        cap_bounding,
        cap_ambient,
        no_new_privs,
        seccomp,
        dumpable,
        nice,
        policy,
        rt_priority,
        affinity,
        oom_score_adj,
        loginuid,
        sig_blocked,
        sig_pending,
        sig_shared_pending,
        sig_ignored,
        sig_caught,
        anon_at_least_bytes,
        file_at_least_bytes,
        shmem_at_least_bytes,
        locked_bytes,
        peak_above_current_bytes,
        cpu_at_least_ns,
        thread_cpu_at_least_ns,
        child_cpu_at_least_ns,
        child_min_faults,
        fd_at_least_count,
        cgroup,
        mappings,
    } = &animal.facts;
    assert_eq!(*pid, animal.pid);
    assert_eq!(p.stat::<char>(3), state.unwrap_or('S'), "{name} is quiet");
    checked += usize::from(state.is_some());
    if let Some(comm) = comm {
        let seen = read(p.pid, "comm");
        assert_eq!(
            seen.strip_suffix(b"\n").unwrap().escape_ascii().to_string(),
            comm.escape_ascii().to_string(),
            "{name}"
        );
        checked += 1;
    }
    same!(cmdline_raw, read(p.pid, "cmdline"));
    same!(cmdline, split(&read(p.pid, "cmdline")));
    same!(environ, split(&read(p.pid, "environ")));
    same!(
        exe,
        fs::read_link(format!("/proc/{}/exe", p.pid))
            .unwrap()
            .as_os_str()
            .as_bytes()
    );
    same!(ppid, p.stat::<i32>(4));
    same!(pgid, p.stat::<i32>(5));
    same!(sid, p.stat::<i32>(6));
    same!(tty_nr, p.stat::<i32>(7));
    same!(tpgid, p.stat::<i32>(8));
    same!(tracer_pid, p.numbers::<i32>("TracerPid")[0]);
    same!(threads_count, p.stat::<u64>(20));
    same!(tids, p.tids());
    same!(children, p.children());
    if let Some(other) = memory_shared_with {
        assert!(!p.tids().contains(other), "{name}: another process, not a thread");
        assert_eq!(read(p.pid, "maps"), read(*other, "maps"), "{name}");
        checked += 1;
    }
    same!(nspids, p.numbers::<i32>("NSpid"));
    if let Some(own) = own_namespaces {
        let link = |pid: &str, ns: &str| fs::read_link(format!("/proc/{pid}/ns/{ns}")).unwrap();
        let all = fs::read_dir("/proc/self/ns")
            .unwrap()
            .map(|ns| ns.unwrap().file_name().into_string().unwrap());
        let differs: HashSet<String> = all
            .filter(|ns| link("self", ns) != link(&p.pid.to_string(), ns))
            .collect();
        let own = own.iter().map(|ns| String::from_utf8(ns.clone()).unwrap()).collect();
        assert_eq!(differs, own, "{name}");
        checked += 1;
    }
    if let Some(offset) = boottime_offset_s {
        let offsets = String::from_utf8(read(p.pid, "timens_offsets")).unwrap();
        let line = offsets.lines().find(|line| line.starts_with("boottime")).unwrap();
        assert_eq!(
            line.split_ascii_whitespace().nth(1).unwrap().parse::<i64>().unwrap(),
            *offset,
            "{name}"
        );
        checked += 1;
    }
    same!(uids, p.numbers::<u32>("Uid"));
    same!(gids, p.numbers::<u32>("Gid"));
    same!(groups, p.numbers::<u32>("Groups"));
    same!(cap_inheritable, p.hex("CapInh"));
    same!(cap_permitted, p.hex("CapPrm"));
    same!(cap_effective, p.hex("CapEff"));
    same!(cap_bounding, p.hex("CapBnd"));
    same!(cap_ambient, p.hex("CapAmb"));
    same!(no_new_privs, p.words("NoNewPrivs")[0] == "1");
    same!(seccomp, p.numbers::<u32>("Seccomp")[0]);
    // Files of an undumpable process belong to root, whoever runs it.
    same!(
        dumpable,
        fs::metadata(format!("/proc/{}/stat", p.pid)).unwrap().uid() != 0
    );
    same!(nice, p.stat::<i32>(19));
    same!(policy, p.stat::<u32>(41));
    same!(rt_priority, p.stat::<u32>(40));
    same!(affinity, p.numbers::<u32>("Cpus_allowed_list"));
    same!(
        loginuid,
        String::from_utf8(read(p.pid, "loginuid"))
            .unwrap()
            .parse::<u32>()
            .unwrap()
    );
    same!(
        oom_score_adj,
        String::from_utf8(read(p.pid, "oom_score_adj"))
            .unwrap()
            .trim()
            .parse::<i32>()
            .unwrap()
    );
    same!(sig_blocked, p.hex("SigBlk"));
    same!(sig_pending, p.hex("SigPnd"));
    same!(sig_shared_pending, p.hex("ShdPnd"));
    same!(sig_ignored, p.hex("SigIgn"));
    same!(sig_caught, p.hex("SigCgt"));
    at_least!(anon_at_least_bytes, p.bytes("RssAnon"));
    at_least!(file_at_least_bytes, p.bytes("RssFile"));
    at_least!(shmem_at_least_bytes, p.bytes("RssShmem"));
    same!(locked_bytes, p.bytes("VmLck"));
    at_least!(peak_above_current_bytes, p.bytes("VmHWM") - p.bytes("VmRSS"));
    at_least!(cpu_at_least_ns, (p.stat::<u64>(14) + p.stat::<u64>(15) + 2) * TICK_NS);
    if let Some(least) = thread_cpu_at_least_ns {
        for tid in p.tids().into_iter().filter(|&tid| tid != p.pid) {
            assert!(p.runtime_ns(tid) >= *least, "{name}: thread {tid}");
        }
        checked += 1;
    }
    at_least!(
        child_cpu_at_least_ns,
        (p.stat::<u64>(16) + p.stat::<u64>(17) + 2) * TICK_NS
    );
    same!(child_min_faults, p.stat::<u64>(11));
    if let Some(count) = fd_at_least_count {
        let open = fs::read_dir(format!("/proc/{}/fd", animal.pid)).unwrap().count() as u64;
        assert!((*count..count + 16).contains(&open), "{open} files are open");
        checked += 1;
    }
    if let Some(path) = cgroup {
        let text = read(p.pid, "cgroup");
        let line = text
            .split(|&byte| byte == b'\n')
            .find_map(|line| line.strip_prefix(b"0::"))
            .unwrap();
        assert_eq!(
            line.escape_ascii().to_string(),
            path.escape_ascii().to_string(),
            "{name}"
        );
        checked += 1;
    }
    for fact in mappings.iter().flatten() {
        assert!(
            has_mapping(&read(p.pid, "maps"), fact),
            "{name}: {}",
            fact.escape_ascii()
        );
        checked += 1;
    }
    checked
}

/// Whether a line of the text is that of a mapping: range, permissions, offset (without leading
/// zeros) and name.
fn has_mapping(maps: &[u8], fact: &[u8]) -> bool {
    maps.split(|&byte| byte == b'\n').any(|line| {
        let words: Vec<&[u8]> = line.splitn(6, |&byte| byte == b' ').collect();
        let [range, perms, offset, _, _, name] = words[..] else {
            return false;
        };
        let zeros = offset.iter().take_while(|&&byte| byte == b'0').count().min(7);
        let name = String::from_utf8_lossy(name.trim_ascii_start()).replace("\\012", "\n");
        [range, perms, &offset[zeros..], name.as_bytes()].join(&b' ') == fact
    })
}

#[test]
fn everything_is_what_it_claims_and_leaves_nothing() {
    let zoo = Zoo::new().unwrap();
    let (animals, refused) = zoo.everything().unwrap();
    for (name, reason) in &refused {
        eprintln!("refused by this host: {name}: {reason}");
    }
    assert_eq!(animals.len() + refused.len(), Zoo::list().count());
    let mut all = Vec::new();
    for animal in &animals {
        assert!(check(animal) > 0, "nothing is known of {}", animal.name);
        all.push(animal.pid);
        all.extend(animal.facts.tids.iter().flatten());
        all.extend(animal.facts.children.iter().flatten());
        all.extend(animal.facts.tracer_pid);
        all.extend(animal.facts.ppid);
    }
    all.retain(|&pid| pid != 0);
    let places = ["exe-deleted", "exe-renamed"].map(|name| {
        let exe = animals
            .iter()
            .find(|animal| animal.name == name)
            .and_then(|animal| animal.facts.exe.clone())
            .unwrap();
        Path::new(std::ffi::OsStr::from_bytes(&exe))
            .parent()
            .unwrap()
            .to_owned()
    });
    assert!(places.iter().all(|dir| dir.exists()));
    drop(animals);
    let left: Vec<i32> = all.into_iter().filter(|&pid| exists(pid)).collect();
    assert_eq!(left, [0_i32; 0], "processes left behind");
    assert!(!places.iter().any(|dir| dir.exists()), "files left behind");
}

#[test]
fn animals_are_quiet() {
    let zoo = Zoo::new().unwrap();
    for name in ["comm-parens", "args-4096", "threads-5", "title-changer", "memory-anon"] {
        let animal = zoo.start(name).unwrap();
        let p = Proc::new(&animal);
        let used = || p.tids().iter().map(|&tid| p.runtime_ns(tid)).sum::<u64>();
        let before = used();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(used(), before, "{name} used the CPU");
    }
}

#[test]
fn command_lines_have_their_sizes() {
    let zoo = Zoo::new().unwrap();
    for (name, size) in [
        ("args-4095", 4095),
        ("args-8193", 8193),
        ("args-100k", 100 << 10),
        ("args-2m", 2 << 20),
    ] {
        assert_eq!(read(zoo.start(name).unwrap().pid, "cmdline").len(), size, "{name}");
    }
    assert_eq!(read(zoo.start("title-long").unwrap().pid, "cmdline"), vec![b'x'; 4096]);
    let short = zoo.start("title-under-file").unwrap().facts.cmdline_raw.unwrap().len();
    assert!(short < 4096, "{short} bytes before the mapped file");
}

#[test]
fn title_changer_obeys() {
    let mut animal = Zoo::new().unwrap().start("title-changer").unwrap();
    let pid = animal.pid;
    let long = vec![b'L'; 130];
    let page = vec![b'P'; 5000];
    for title in [b"short".as_slice(), b"", &long, b"short again", &page] {
        animal.set_title(title).unwrap();
        let seen = read(pid, "cmdline");
        assert_eq!(animal.facts.cmdline_raw.as_ref(), Some(&seen));
        assert!(seen.starts_with(&title[..title.len().min(4096)]));
        assert_eq!(animal.facts.cmdline, None);
        check(&animal);
    }
    for args in [[b"a".as_slice(), b"", b"two\nlines"], [b"", b"", b""]] {
        animal.exec_with(&args).unwrap();
        assert_eq!(split(&read(pid, "cmdline")), args);
        assert_eq!(
            animal.facts.cmdline.as_deref(),
            Some(args.map(<[u8]>::to_vec).as_slice())
        );
        check(&animal);
    }
    animal.set_title(b"T").unwrap();
    assert!(check(&animal) > 0);
    let error = animal.set_title(&vec![b'x'; 1 << 20]).unwrap_err();
    assert!(error.to_string().contains("does not fit"), "{error}");
    let error = Zoo::new()
        .unwrap()
        .start("zombie")
        .unwrap()
        .set_title(b"x")
        .unwrap_err();
    assert!(error.to_string().contains("obeys no commands"), "{error}");
}

#[test]
fn unknown_animals_are_an_error() {
    let error = Zoo::new().unwrap().start("unicorn").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

fn wait_until_gone(pids: &[i32]) {
    let start = Instant::now();
    while pids.iter().any(|&pid| exists(pid)) {
        assert!(start.elapsed() < Duration::from_secs(10), "left behind: {pids:?}");
        std::thread::yield_now();
    }
}

#[test]
fn animals_die_with_their_keeper() {
    let zoo = Zoo::new().unwrap();
    for name in [
        "threads-5",
        "pid-namespace-deep",
        "args-one-empty",
        "user-65534",
        "family",
        "orphan-of-killed",
    ] {
        let animal = zoo.start(name).unwrap();
        let mut pids = vec![animal.pid];
        pids.extend(animal.facts.children.iter().flatten());
        // The keeper is the first ancestor that this process started.
        let mut keeper = animal.pid;
        loop {
            let stat = String::from_utf8_lossy(&read(keeper, "stat")).into_owned();
            let parent = stat
                .rsplit(')')
                .next()
                .unwrap()
                .split_ascii_whitespace()
                .nth(1)
                .unwrap()
                .parse()
                .unwrap();
            if parent == std::process::id() as i32 {
                break;
            }
            keeper = parent;
        }
        // SAFETY: numbers only. The keeper is a child of this process that nobody has waited for.
        assert_eq!(unsafe { libc::kill(keeper, libc::SIGKILL) }, 0);
        wait_until_gone(&pids);
    }
}

#[test]
fn farm_is_all_there_and_then_gone() {
    let farm = Farm::start(300, 3).unwrap();
    let pids = farm.pids().to_vec();
    assert_eq!(pids.iter().collect::<HashSet<_>>().len(), 300);
    for (index, &pid) in pids.iter().enumerate() {
        assert_eq!(
            read(pid, "cmdline"),
            format!("zoo\0farm\0--index\0{index:07}\0").as_bytes()
        );
        assert_eq!(fs::read_dir(format!("/proc/{pid}/task")).unwrap().count(), 3);
    }
    drop(farm);
    assert!(!pids.iter().any(|&pid| exists(pid)));
    assert_eq!(Farm::start(1, 0).unwrap().pids().len(), 1);
    assert_eq!(Farm::start(0, 1).unwrap().pids().len(), 0);
}

#[test]
fn mappings_are_as_many_as_wanted() {
    let animal = Zoo::new().unwrap().with_mappings(500).unwrap();
    let lines = read(animal.pid, "maps").iter().filter(|&&byte| byte == b'\n').count();
    assert!((500..520).contains(&lines), "{lines}");
    assert!(check(&animal) > 0);
}

#[test]
fn churn_makes_processes() {
    let mut churn = Churn::start(500).unwrap();
    let pid = churn.pid();
    let start = Instant::now();
    while churn.made().unwrap() < 100 {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(churn.stop().unwrap() >= 100);
    assert!(!exists(pid));
}

/// Whether reading a file of the process waits.
fn keeps_waiting(pid: i32, file: &str) -> bool {
    let mut reader = std::process::Command::new("cat")
        .arg(format!("/proc/{pid}/{file}"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        if reader.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    reader.kill().unwrap();
    // It may have ended while this test did not run.
    reader.wait().unwrap().signal() == Some(libc::SIGKILL)
}

/// Starts a process that waits for the mount of a deaf animal, and kills it, in vain.
fn start_unkillable(pid: i32) -> std::process::Child {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        let mut waits = std::process::Command::new("stat");
        let mut waits = waits.args(["-f", &format!("/proc/{pid}/cwd")]).spawn().unwrap();
        let is_in_the_call = |id| read(id, "syscall").starts_with(format!("{} ", libc::SYS_statfs).as_bytes());
        while !is_in_the_call(waits.id() as i32) {
            std::thread::sleep(Duration::from_millis(5));
        }
        waits.kill().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        // A process that is killed before the server has read its request does not wait.
        if waits.try_wait().unwrap().is_none() {
            return waits;
        }
    }
    panic!("nobody waits");
}

/// Check that holders hold, can be killed like any process, and leave nothing behind.
#[test]
fn holders_hold_until_they_are_killed() {
    for (name, _) in Zoo::holders() {
        let animal = match Zoo::new().unwrap().start(name) {
            Ok(animal) => animal,
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                // SAFETY: no arguments.
                assert_ne!(unsafe { libc::geteuid() }, 0, "{name}: {error}");
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        let pid = animal.pid;
        assert!(!keeps_waiting(pid, "stat"), "{name}");
        assert_eq!(keeps_waiting(pid, "cmdline"), name.starts_with("holds-lock"), "{name}");
        if name == "silent-file" {
            assert!(keeps_waiting(pid, "map_files/200000000000-200000004000"), "{name}");
        }
        let unkillable = (name == "deaf-mount").then(|| start_unkillable(pid));
        // SAFETY: numbers only.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
        let start = Instant::now();
        let is_dead = |pid| !exists(pid) || read(pid, "stat").windows(4).any(|part| part == b") Z ");
        while !is_dead(pid) {
            assert!(start.elapsed() < Duration::from_secs(10), "{name} does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(animal);
        assert!(!exists(pid), "{name}");
        if let Some(mut unkillable) = unkillable {
            unkillable.wait().unwrap();
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains("taskdiag-zoo"), "{mounts}");
    }
}
