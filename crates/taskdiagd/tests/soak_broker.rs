//! A long run of all attacks on the broker at once, while bystanders measure what that costs them.
//! `make soak-broker` runs it for 20 minutes, or for SECONDS.

mod daemon;

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use taskdiag_protocol::wire::{show, Strategy};
use taskdiag_testkit::{child, test_name};
use taskdiag_zoo::Farm;

use daemon::attack::{user, Attacker, BASE, OTHER, USER};
use daemon::passed::{lingering, send_descriptor};
use daemon::{request, try_connect, Broker, Limits};

/// How many idle processes there are beside the attackers.
const FARM: usize = 3000;

/// How much memory the broker's processes may use together, in bytes, including what the kernel
/// holds for them.
const MEMORY: u64 = 128 << 20;

/// The broker's arguments: limits that fit into that memory.
const ARGUMENTS: [&str; 8] = [
    "--memory",
    "36",
    "--patience",
    "3",
    "--max-clients",
    "160",
    "--max-user-clients",
    "48",
];

/// The attackers. Each is started for two users.
const ATTACKS: [&str; 7] = [
    "flood-1",
    "slow-1",
    "broken-1",
    "idle-1",
    "descriptors-1",
    "held-1",
    "churn",
];

/// A cgroup with that limit. It is removed when this is dropped.
struct Limited {
    directory: PathBuf,
    /// It belongs to cgroup v1, not to the unified hierarchy.
    is_v1: bool,
}

impl Limited {
    /// `None` where this process may not make cgroups.
    fn make() -> Option<Limited> {
        let name = format!("taskdiagd-soak-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let is_v1 = v1.is_dir();
        let root = if is_v1 { v1 } else { Path::new("/sys/fs/cgroup") };
        let limit = if is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
        let directory = root.join(name);
        std::fs::create_dir(&directory).ok()?;
        let limited = Limited { directory, is_v1 };
        std::fs::write(limited.directory.join(limit), MEMORY.to_string()).ok()?;
        Some(limited)
    }

    fn processes(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// The highest usage, in bytes.
    fn peak(&self) -> Option<u64> {
        let file = if self.is_v1 {
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

/// What attackers do until they are killed, ignoring every failure.
fn attack(name: &str) {
    let socket = daemon::socket();
    let own = std::process::id();
    let held: Vec<u32> = std::env::var("TASKDIAG_SOAK_HELD")
        .unwrap_or_default()
        .split(',')
        .filter_map(|pid| pid.parse().ok())
        .collect();
    let all = request(BASE | 1 << 18 | 1 << 20, Strategy::AllThreads, 0);
    let files = request(show::FILES, Strategy::All, 0);
    let (mut kept, mut sent) = (Vec::new(), Vec::new());
    for turn in 0_usize.. {
        let Ok(connection) = try_connect(&socket) else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        match name {
            // Sends as many requests as fit, and reads nothing.
            "flood" => {
                for _ in 0..100 {
                    connection.try_send(if turn % 2 == 0 { &all } else { &files });
                }
                kept.push(connection);
            }
            // Reads a packet now and then.
            "slow" => {
                connection.try_send(if turn % 2 == 0 { &all } else { &files });
                thread::sleep(Duration::from_millis(20));
                kept.push(connection);
                let connection = &kept[turn % kept.len()];
                let mut packet = [0; 4096];
                let _ = rustix::net::recv(&connection.socket, &mut packet[..], rustix::net::RecvFlags::DONTWAIT);
            }
            // Sends partial requests and invalid ones, and leaves.
            "broken" => {
                let packet = request(BASE << (turn % 40), Strategy::One, own);
                connection.try_send(&packet[..turn % 41]);
            }
            // Sends descriptors of sockets whose closing waits.
            "descriptors" => {
                let (file, other_end) = lingering();
                send_descriptor(&connection, &file);
                // The other end is dropped first, so that closing does not wait here.
                sent.push((other_end, file, connection));
                if sent.len() > 50 {
                    sent.clear();
                }
            }
            // Keeps idle connections.
            "idle" => kept.push(connection),
            // Asks about processes that hold their readers, for what readers read, and for files.
            _ => {
                let pid = if turn % 3 == 0 { own } else { held[turn % held.len()] };
                let kinds = [
                    show::VMA,
                    show::MAPS,
                    show::VMA | show::VMA_STAT,
                    show::CMDLINE,
                    show::FILES,
                ];
                let show = kinds[turn % kinds.len()];
                let _ = connection.ask(show, Strategy::One, pid);
            }
        }
        if kept.len() > 200 {
            kept.clear();
        }
    }
}

/// Executes a program, which never completes: `Stall`.
fn hold() {
    let file = std::fs::File::open(std::env::var_os("TASKDIAG_TEST_STALL").expect("a file")).expect("the file");
    let error = std::os::unix::process::CommandExt::exec(Command::new("/bin/sleep").arg("100000"));
    panic!("{error} {file:?}");
}

/// Maps a file 50,000 times, and sleeps.
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

/// Starts programs that end at once, without end.
fn churn() {
    loop {
        let _ = Command::new("/bin/true").stdin(Stdio::null()).status();
    }
}

/// Median, 99.9 % quantile and maximum, in milliseconds.
fn quantiles(times: &mut [Duration]) -> [f64; 3] {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    [at(0.5), at(0.999), at(1.0)]
}

/// Memory of the broker's processes (PSS) in MiB, and the loop's number of descriptors.
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

/// Starts a part of this test. The test is ignored by default.
fn start(test: &str, name: &str, id: u32) -> Attacker {
    let mut command = child::command(test, name, user(id));
    command.arg("--ignored").stdin(Stdio::null()).stdout(Stdio::null());
    Attacker(command.spawn().expect("a process"))
}

/// Runs a part of this test.
fn run_part(part: &str) {
    // Bystanders should wait for the broker, not for a processor. SAFETY: numbers only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    match part {
        "held" => hold(),
        "mapped" => map(),
        "churn" => churn(),
        part => attack(part.split_once('-').expect("a name").0),
    }
}

/// Measurements of bystanders and the broker during the attack.
#[derive(Default)]
struct Measured {
    /// Requests about one process.
    small: Vec<Duration>,
    /// Requests about all processes.
    large: Vec<Duration>,
    /// Memory and descriptors of the broker.
    sizes: Vec<(f64, usize)>,
    restarts: u32,
}

/// Measures for some time, and kills and restarts the broker twice in that time.
fn measure_under_attack(broker: &mut Broker, seconds: u64) -> Measured {
    let mut measured = Measured::default();
    let until = Instant::now() + Duration::from_secs(seconds);
    let period = Duration::from_secs(seconds / 3 + 1);
    let mut next_restart = Instant::now() + period;
    while Instant::now() < until {
        let lasts = Duration::from_secs(5).min(until - Instant::now());
        let [small, large] = measure(broker, lasts, &mut measured.sizes);
        measured.small.extend(small);
        measured.large.extend(large);
        if Instant::now() > next_restart {
            broker.kill_and_restart();
            next_restart += period;
            measured.restarts += 1;
        }
    }
    measured
}

/// Check that under all attacks at once a bystander's request about itself takes at most 250 ms,
/// that its request about all processes takes at most 3 times its median, and that the broker stays
/// within its memory and gives it back.
#[test]
#[ignore = "takes 20 minutes: make soak-broker"]
fn all_attacks_at_once() {
    let test = test_name!();
    if let Some(part) = child::part() {
        return run_part(&part);
    }
    let seconds = std::env::var("SECONDS").ok().and_then(|text| text.parse().ok());
    let seconds = seconds.unwrap_or(1200);
    // A pass then takes longer than a time slice given to somebody else.
    let _farm = Farm::start(FARM, 1).expect("a farm");
    // Declared before the file system, so that they are dropped after it: they end only when it is
    // unmounted.
    let mut held = Vec::new();
    let stall = daemon::stall::Stall::mount();
    std::env::set_var("TASKDIAG_TEST_STALL", stall.file());
    let limited = Limited::make();
    let limits = Limits {
        cgroup: limited.as_ref().map(Limited::processes),
        ..Limits::default()
    };
    let mut broker = Broker::start_within(limits, &ARGUMENTS);
    println!("{FARM} idle processes, and the attackers");
    daemon::publish(&broker);
    held.extend((0..6).map(|_| start(test, "held", OTHER)));
    stall.wait_until_closing(held.len());
    held.push(start(test, "mapped", OTHER));
    thread::sleep(Duration::from_secs(2));
    let pids: Vec<String> = held.iter().map(|attacker| attacker.0.id().to_string()).collect();
    std::env::set_var("TASKDIAG_SOAK_HELD", pids.join(","));
    let [mut small_before, mut large_before] = measure(&broker, Duration::from_secs(3), &mut Vec::new());
    let attackers: Vec<Attacker> = ATTACKS
        .into_iter()
        .flat_map(|name| [(name, USER), (name, OTHER)])
        .map(|(name, id)| start(test, name, id))
        .collect();
    let mut measured = measure_under_attack(&mut broker, seconds);
    drop(attackers);
    drop(stall);
    drop(held);
    let small = quantiles(&mut measured.small);
    let large = quantiles(&mut measured.large);
    let (small_before, large_before) = (quantiles(&mut small_before), quantiles(&mut large_before));
    let memory = measured.sizes.iter().map(|(memory, _)| *memory).fold(0.0, f64::max);
    let files = measured.sizes.iter().map(|(_, files)| *files).max();
    println!(
        "{seconds} s, {} requests, {} dumps, {} restarts",
        measured.small.len(),
        measured.large.len(),
        measured.restarts
    );
    println!("median, 99.9 % and worst in ms, in brackets before the attack");
    println!("one process: {small:.2?} ({small_before:.2?})");
    println!("all processes: {large:.2?} ({large_before:.2?})");
    println!("memory of all processes: at most {memory:.1} MiB; descriptors: at most {files:?}");
    match limited.as_ref().and_then(Limited::peak) {
        Some(peak) => println!("at most {} MiB of a cgroup of {}", peak >> 20, MEMORY >> 20),
        None => println!("no cgroup to limit memory by"),
    }
    assert!(small[2] <= 250.0, "a request about itself took {:.1} ms", small[2]);
    // Compared with the median under attack: a request that takes longer waited for somebody.
    assert!(
        large[2] <= 3.0 * large[0],
        "a dump took {:.1} ms, {:.1} in the median",
        large[2],
        large[0]
    );
    assert!(memory * 1024.0 * 1024.0 < MEMORY as f64, "{memory} MiB");
    thread::sleep(Duration::from_secs(4));
    let (memory, files) = size(broker.pid());
    println!("afterwards: {memory:.1} MiB, {files} descriptors");
    assert!(files < 40 && memory < 40.0);
}

/// Sends requests about one process and about all for some time, and measures each. Those that fail
/// while the broker is restarted do not count.
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
