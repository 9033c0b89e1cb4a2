//! A hostile soak: everything that users can do to the broker at once, while bystanders measure what that costs them. Not a part of the
//! suite: `make soak-broker` runs it, for 20 minutes or SECONDS.

mod daemon;

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::SendFlags;
use taskdiag_protocol::wire::{show, Strategy};
use taskdiag_testkit::{
    child::{self, World},
    test_name,
};
use taskdiag_zoo::Farm;

use daemon::passed::{lingering, pass_along};
use daemon::{request, try_connect, Broker, Limits};

const BASE: u64 = 1 << show::GROUPS_SHIFT;

/// So many processes there are beside those of the attack.
const FARM: usize = 3000;

/// What the broker's processes may take together, what the kernel keeps for them included, in bytes.
const MEMORY: u64 = 128 << 20;

/// A cgroup with that limit, until it is dropped. Where this process may not make one, there is none.
struct Limited {
    directory: PathBuf,
    /// Of version 1, or of the unified hierarchy.
    is_first: bool,
}

impl Limited {
    fn make() -> Option<Limited> {
        let name = format!("taskdiagd-soak-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let is_first = first.is_dir();
        let root = if is_first { first } else { Path::new("/sys/fs/cgroup") };
        let limit = if is_first {
            "memory.limit_in_bytes"
        } else {
            "memory.max"
        };
        let directory = root.join(name);
        std::fs::create_dir(&directory).ok()?;
        let limited = Limited { directory, is_first };
        std::fs::write(limited.directory.join(limit), MEMORY.to_string()).ok()?;
        Some(limited)
    }

    fn processes(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// The most that was used at a time, in bytes.
    fn peak(&self) -> Option<u64> {
        let file = if self.is_first {
            "memory.max_usage_in_bytes"
        } else {
            "memory.peak"
        };
        std::fs::read_to_string(self.directory.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.directory);
    }
}

fn user(user: u32) -> World {
    World {
        user: Some(user),
        ..World::default()
    }
}

struct Doing(Child);

impl Drop for Doing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What attackers do until they are killed. Whatever fails, they go on.
fn attack(name: &str) {
    let socket = daemon::socket();
    let own = std::process::id();
    let held: Vec<u32> = std::env::var("TASKDIAG_SOAK_HELD")
        .unwrap_or_default()
        .split(',')
        .filter_map(|pid| pid.parse().ok())
        .collect();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let all = request(BASE | 1 << 18 | 1 << 20, Strategy::AllThreads, 0);
    let (mut kept, mut passed) = (Vec::new(), Vec::new());
    for turn in 0_usize.. {
        let Ok(connection) = try_connect(&socket) else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        match name {
            // As many requests as fit, and nothing is read.
            "flood" => {
                for _ in 0..100 {
                    let _ = rustix::net::send(&connection.socket, &all, flags);
                }
                kept.push(connection);
            }
            // A packet now and then.
            "slow" => {
                let _ = rustix::net::send(&connection.socket, &all, flags);
                thread::sleep(Duration::from_millis(20));
                kept.push(connection);
                let connection = &kept[turn % kept.len()];
                let mut packet = [0; 4096];
                let _ = rustix::net::recv(&connection.socket, &mut packet[..], rustix::net::RecvFlags::DONTWAIT);
            }
            // Half messages, wrong ones, and leaving.
            "broken" => {
                let packet = request(BASE << (turn % 40), Strategy::One, own);
                let _ = rustix::net::send(&connection.socket, &packet[..turn % 41], flags);
            }
            // Sockets whose closing waits, along with requests.
            "passed" => {
                let (file, other_end) = lingering();
                pass_along(&connection, &file);
                // The other end goes first, so that nobody here waits.
                passed.push((other_end, file, connection));
                if passed.len() > 50 {
                    passed.clear();
                }
            }
            // Idle connections.
            "idle" => kept.push(connection),
            // What takes readers, of processes that hold them.
            _ => {
                let pid = if turn % 3 == 0 { own } else { held[turn % held.len()] };
                let show = [show::VMA, show::MAPS, show::VMA | show::VMA_STAT, show::CMDLINE][turn % 4];
                let _ = connection.ask(show, Strategy::One, pid);
            }
        }
        if kept.len() > 200 {
            kept.clear();
        }
    }
}

fn hold() {
    let file = std::fs::File::open(std::env::var_os("TASKDIAG_TEST_STALL").expect("a file")).expect("the file");
    let error = std::os::unix::process::CommandExt::exec(Command::new("/bin/sleep").arg("100000"));
    panic!("{error} {file:?}");
}

fn map() {
    let file = std::fs::File::open("/proc/self/exe").expect("a file");
    for index in 0..50_000 {
        let protection = if index % 2 == 0 {
            libc::PROT_READ
        } else {
            libc::PROT_NONE
        };
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping, which nothing else uses.
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE, fd, 0) };
    }
    thread::sleep(Duration::from_secs(100_000));
}

/// Execs and exits without end.
fn churn() {
    loop {
        let _ = Command::new("/bin/true").stdin(Stdio::null()).status();
    }
}

/// Median, 99.9 %, worst, in milliseconds.
fn quantiles(times: &mut [Duration]) -> [f64; 3] {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    [at(0.5), at(0.999), at(1.0)]
}

/// Resident memory of the broker's processes, MiB, and descriptors of the loop.
fn size(pid: u32) -> (f64, usize) {
    let children = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        text.split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect::<Vec<u32>>()
    };
    let mut all = vec![pid];
    for index in 0..2 {
        let more: Vec<u32> = all[index.min(all.len() - 1)..]
            .iter()
            .flat_map(|&pid| children(pid))
            .collect();
        all.extend(more);
    }
    let pss = |pid: &u32| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
            .unwrap_or(0)
    };
    all.sort_unstable();
    all.dedup();
    let bytes: u64 = all.iter().map(pss).sum();
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    (bytes as f64 / 1024.0, files)
}

#[test]
#[ignore = "takes 20 minutes: make soak-broker"]
fn a_hostile_soak() {
    let test = test_name!();
    if let Some(part) = child::part() {
        // What is measured is the broker, not who gets a processor.
        // SAFETY: numbers only.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
        match part.as_str() {
            "held" => hold(),
            "mapped" => map(),
            "churn" => churn(),
            part => attack(part.split_once('-').expect("a name").0),
        }
    }
    let seconds = std::env::var("SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1200);
    // So that a pass is longer than a moment in which somebody else has the processor.
    let _farm = Farm::start(FARM, 1).expect("a farm");
    // Ended behind the file system, or they would not end.
    let mut held = Vec::new();
    let stall = daemon::stall::Stall::mount();
    std::env::set_var("TASKDIAG_TEST_STALL", stall.file());
    let args = [
        "--memory",
        "36",
        "--patience",
        "3",
        "--max-clients",
        "160",
        "--max-user-clients",
        "48",
    ];
    let limited = Limited::make();
    let limits = Limits {
        cgroup: limited.as_ref().map(Limited::processes),
        ..Limits::default()
    };
    let mut broker = Broker::start_within(limits, &args);
    println!("{FARM} processes, and those of the attack");
    daemon::tell_clients(&broker);
    let start = |name: &str, id: u32| {
        let mut command = child::command(test, name, user(id));
        command.arg("--ignored").stdin(Stdio::null()).stdout(Stdio::null());
        Doing(command.spawn().expect("a process"))
    };
    held.extend((0..6).map(|_| start("held", 1001)));
    held.push(start("mapped", 1001));
    thread::sleep(Duration::from_secs(2));
    let pids: Vec<String> = held.iter().map(|doing| doing.0.id().to_string()).collect();
    std::env::set_var("TASKDIAG_SOAK_HELD", pids.join(","));
    let quiet = measure(&broker, Duration::from_secs(3), &mut Vec::new());
    let attackers: Vec<Doing> = ["flood-1", "slow-1", "broken-1", "idle-1", "passed-1", "held-1", "churn"]
        .into_iter()
        .flat_map(|name| [(name, 1000), (name, 1001)])
        .map(|(name, id)| start(name, id))
        .collect();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut sizes = Vec::new();
    let (mut small, mut large) = (Vec::new(), Vec::new());
    let mut restarts = 0;
    let mut next_restart = Instant::now() + Duration::from_secs(seconds / 3 + 1);
    while Instant::now() < until {
        let lasts = Duration::from_secs(5).min(until - Instant::now());
        let [some, more] = measure(&broker, lasts, &mut sizes);
        small.extend(some);
        large.extend(more);
        if Instant::now() > next_restart {
            broker.kill_and_restart();
            next_restart += Duration::from_secs(seconds / 3 + 1);
            restarts += 1;
        }
    }
    drop(attackers);
    drop(stall);
    drop(held);
    let [mut quiet_small, mut quiet_large] = quiet;
    let one = quantiles(&mut small);
    let dump = quantiles(&mut large);
    let (before_one, before_dump) = (quantiles(&mut quiet_small), quantiles(&mut quiet_large));
    let most = sizes.iter().map(|(memory, _)| *memory).fold(0.0, f64::max);
    let files = sizes.iter().map(|(_, files)| *files).max();
    println!(
        "{seconds} s, {} requests, {} dumps, {restarts} restarts",
        small.len(),
        large.len()
    );
    println!(
        "one process, ms: median {:.2}, 99.9 % {:.2}, worst {:.2}; before {before_one:.2?}",
        one[0], one[1], one[2]
    );
    println!(
        "all processes, ms: median {:.2}, 99.9 % {:.2}, worst {:.2}; before {before_dump:.2?}",
        dump[0], dump[1], dump[2]
    );
    println!("memory of all processes: at most {most:.1} MiB; descriptors: at most {files:?}");
    match limited.as_ref().and_then(Limited::peak) {
        Some(peak) => println!("at most {} MiB of a cgroup of {}", peak >> 20, MEMORY >> 20),
        None => println!("no cgroup to limit memory by"),
    }
    assert!(one[2] <= 250.0, "a trivial request took {:.1} ms", one[2]);
    // The median is one of a machine under attack: what waits longer waits for somebody.
    assert!(
        dump[2] <= 3.0 * dump[0],
        "a dump took {:.1} ms, {:.1} in the median",
        dump[2],
        dump[0]
    );
    assert!(most * 1024.0 * 1024.0 < MEMORY as f64, "{most} MiB");
    thread::sleep(Duration::from_secs(4));
    let (memory, files) = size(broker.pid());
    println!("afterwards: {memory:.1} MiB, {files} descriptors");
    assert!(files < 40 && memory < 40.0);
}

/// Asks for a while, as one who does nobody any harm: about one process, and about all. What it is when the broker is being started again does not count.
fn measure(broker: &Broker, lasts: Duration, sizes: &mut Vec<(f64, usize)>) -> [Vec<Duration>; 2] {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    IS_OVER.store(false, Ordering::Relaxed);
    let ask = |show: u64, strategy: Strategy, pause: Duration| {
        let mut times = Vec::new();
        let mut connection = try_connect(&broker.socket).ok();
        while !IS_OVER.load(Ordering::Relaxed) {
            let began = Instant::now();
            let answer = connection
                .as_ref()
                .map(|connection| connection.ask(show, strategy, std::process::id()));
            match answer {
                Some(Ok(tasks)) if !tasks.is_empty() => times.push(began.elapsed()),
                other => {
                    assert!(!matches!(other, Some(Ok(_))), "an answer without this process");
                    connection = try_connect(&broker.socket).ok();
                }
            }
            thread::sleep(pause);
        }
        times
    };
    thread::scope(|scope| {
        let small = scope.spawn(|| ask(BASE, Strategy::One, Duration::from_millis(3)));
        let large = scope.spawn(|| ask(BASE | 1 << 18, Strategy::All, Duration::from_millis(50)));
        thread::sleep(lasts);
        IS_OVER.store(true, Ordering::Relaxed);
        sizes.push(size(broker.pid()));
        [small, large].map(|asking| asking.join().expect("answers"))
    })
}
