//! A long run of all sources beside processes that come and go, execute, unshare, compute, map
//! memory and hold their readers. No value may be wrong, no process missing, and neither memory nor
//! descriptors may grow. `make soak` runs it, for `TASKDIAG_SOAK_SECONDS`.

mod daemon;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use taskdiag::{Absent, Field, Fields, Handle, Query, SourceId};
use taskdiag::{Snapshot, Task};
use taskdiag_zoo::{Animal, Churn, Farm, Race, Racers, Zoo};

use daemon::Broker;

const TICK_NS: u64 = 10_000_000;

const FORKS_PER_SECOND: u32 = 2000;
const FARM: usize = 100;
const THREADS_EACH: usize = 2;

/// How long a process may keep its reader waiting. This is enough on a machine this busy.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long holders exist, and how long they do not.
const HOLDERS_FOR: Duration = Duration::from_secs(6);
const HOLDERS: usize = 2;

/// How much the memory of a process may grow after the first quarter. Each reader thread keeps a
/// buffer as long as the longest command line that it has read, which is megabytes long.
const MAX_GROWTH: u64 = 24 << 20;

/// How many more descriptors a process may have.
const MAX_MORE_DESCRIPTORS: usize = 8;

/// The processes that the queries are about.
struct Scene {
    farm: Farm,
    churn: Churn,
    racers: Vec<(Race, Racers)>,
    /// The network namespaces of the processes that unshare other namespaces.
    networks: BTreeMap<u32, u64>,
    zoo: Zoo,
    _long: Animal,
    holders: Vec<Animal>,
    changed: Instant,
}

impl Scene {
    fn new() -> Scene {
        let races = [Race::Unshares, Race::Execs, Race::Computes, Race::Faults, Race::Relays];
        let racers: Vec<(Race, Racers)> = races
            .into_iter()
            .map(|race| (race, Racers::start(race).expect("racers")))
            .collect();
        let network = |&pid: &i32| {
            let metadata = fs::metadata(format!("/proc/{pid}/ns/net")).expect("a namespace");
            (pid as u32, metadata.ino())
        };
        let zoo = Zoo::new().expect("a zoo");
        let long = zoo.start("args-2m");
        Scene {
            farm: Farm::start(FARM, THREADS_EACH).expect("a farm"),
            churn: Churn::start(FORKS_PER_SECOND).expect("churn"),
            networks: racers[0].1.pids().iter().map(network).collect(),
            racers,
            zoo,
            _long: long.expect("a long command line"),
            holders: Vec::new(),
            changed: Instant::now(),
        }
    }

    /// Starts or ends the holders when it is time.
    fn change_holders(&mut self) {
        if self.changed.elapsed() < HOLDERS_FOR {
            return;
        }
        if self.holders.is_empty() {
            let start = |_| self.zoo.start("holds-lock").expect("a holder");
            self.holders = (0..HOLDERS).map(start).collect();
        } else {
            self.holders.clear();
        }
        self.changed = Instant::now();
    }
}

/// A handle, and the results of its queries.
struct Way {
    name: &'static str,
    handle: Handle,
    fields: Fields,
    /// The start of each process that stays, in clock ticks.
    starts: BTreeMap<u32, u64>,
    /// User and system time of the processes that compute.
    times: BTreeMap<u32, [u64; 2]>,
    asked: u64,
    rows: u64,
    lost: u64,
    wrong: u64,
    /// Missing command lines of processes that do not hold their readers.
    silent: u64,
    /// Queries that found a holder.
    held: u64,
    slowest: Duration,
    stories: Vec<String>,
}

impl Way {
    fn new(name: &'static str, handle: Handle, fields: Fields) -> Way {
        Way {
            name,
            handle: handle.with_patience(PATIENCE),
            fields,
            starts: BTreeMap::new(),
            times: BTreeMap::new(),
            asked: 0,
            rows: 0,
            lost: 0,
            wrong: 0,
            silent: 0,
            held: 0,
            slowest: Duration::ZERO,
            stories: Vec::new(),
        }
    }

    fn note(&mut self, story: String) {
        if self.stories.len() < 10 {
            self.stories.push(story);
        }
    }

    fn expect(&mut self, holds: bool, story: impl FnOnce() -> String) {
        if !holds {
            self.wrong += 1;
            self.note(story());
        }
    }

    fn ask(&mut self, scene: &Scene, snapshot: &mut Snapshot) {
        let query = Query::processes().fields(self.fields);
        let began = Instant::now();
        let asked = self.handle.query_into(&query, snapshot);
        asked.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        self.slowest = self.slowest.max(began.elapsed());
        self.asked += 1;
        self.rows += snapshot.len() as u64;
        self.expect(snapshot.counters().malformed == 0, || "malformed records".to_owned());
        let mut rows: BTreeMap<u32, Task<'_>> = BTreeMap::new();
        for task in snapshot.tasks() {
            let pid = task.pid().expect("a pid");
            let is_twice = rows.insert(pid, task).is_some();
            self.expect(!is_twice, || format!("{pid} is there twice"));
            self.expect(task.state() != Ok('X') && task.threads_count() != Ok(0), || {
                format!("{pid} was released: {:?} {:?}", task.state(), task.threads_count())
            });
        }
        for (index, &pid) in scene.farm.pids().iter().enumerate() {
            let Some(task) = self.find(&rows, "of the farm", pid) else {
                continue;
            };
            let cmdline = task.cmdline().map(|args| args.as_bytes().to_vec());
            let expected = format!("zoo\0farm\0--index\0{index:07}\0").into_bytes();
            match cmdline {
                Err(Absent::NoAnswer) => self.silent += 1,
                cmdline => self.expect(cmdline.as_ref() == Ok(&expected), || format!("{pid}: {cmdline:?}")),
            }
            self.expect(task.threads_count() == Ok(THREADS_EACH as u32), || {
                format!("{pid}: {:?} threads", task.threads_count())
            });
        }
        for (race, racers) in &scene.racers {
            for &pid in racers.pids() {
                let Some(task) = self.find(&rows, &format!("{race:?}"), pid) else {
                    continue;
                };
                self.check_racer(*race, scene, task);
            }
        }
        for holder in &scene.holders {
            let Some(task) = self.find(&rows, "a holder", holder.pid) else {
                continue;
            };
            self.held += 1;
            let cmdline = task.cmdline().map(|args| args.as_bytes().to_vec());
            // The value may be known from before it held its readers.
            self.expect(matches!(cmdline, Ok(_) | Err(Absent::NoAnswer)), || {
                format!("{cmdline:?}")
            });
        }
    }

    fn find<'s>(&mut self, rows: &BTreeMap<u32, Task<'s>>, who: &str, pid: i32) -> Option<Task<'s>> {
        let Some(&task) = rows.get(&(pid as u32)) else {
            self.lost += 1;
            self.note(format!("{pid}, {who}, is missing"));
            return None;
        };
        // procfs gives whole clock ticks.
        let start = task.start_ns().unwrap_or_default() as u64 / TICK_NS;
        let first = *self.starts.entry(pid as u32).or_insert(start);
        self.expect(first == start, || format!("{pid} started at {first}, then at {start}"));
        self.expect(
            task.pgid().is_ok_and(|pgid| pgid > 0) && task.sid().is_ok_and(|sid| sid > 0),
            || format!("{pid}: group {:?}, session {:?}", task.pgid(), task.sid()),
        );
        Some(task)
    }

    fn check_racer(&mut self, race: Race, scene: &Scene, task: Task<'_>) {
        let pid = task.pid().expect("a pid");
        match race {
            Race::Unshares => {
                let found = task.ns_net();
                let is_asked = self.fields.contains(Field::NsNet);
                self.expect(!is_asked || found.ok() == scene.networks.get(&pid).copied(), || {
                    format!("{pid}: network namespace {found:?}")
                });
            }
            Race::Relays => {
                let found = task.fd_count();
                let is_asked = self.fields.contains(Field::FdCount);
                let has_all = found.is_ok_and(|count| count as usize >= Race::DESCRIPTORS);
                self.expect(!is_asked || has_all, || format!("{pid}: {found:?} descriptors"));
            }
            Race::Computes => {
                let now = [task.utime_ns().unwrap_or(0), task.stime_ns().unwrap_or(0)];
                let before = self.times.insert(pid, now).unwrap_or_default();
                let falls = now.iter().zip(before).any(|(&now, before)| now < before);
                self.expect(!falls, || format!("{pid}: times {before:?}, then {now:?}"));
            }
            Race::Faults => {
                let found = task.rss_bytes();
                self.expect(found.is_ok_and(|bytes| bytes >= Race::HELD), || {
                    format!("{pid}: {found:?} resident")
                });
            }
            Race::Execs => {}
        }
    }
}

/// Resident anonymous memory of a process in bytes, and its number of descriptors.
fn size(pid: u32) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let open = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"));
    (kib.expect("a size") << 10, open.expect("descriptors").count())
}

/// The handles, which are used in turn.
fn ways(broker: &Broker) -> [Way; 4] {
    let common = Field::State
        | Field::Ppid
        | Field::Pgid
        | Field::Sid
        | Field::ThreadsCount
        | Field::StartNs
        | Field::Uid
        | Field::UtimeNs
        | Field::StimeNs
        | Field::RssBytes
        | Field::Cmdline;
    let all = common | Field::NsNet | Field::Cgroup | Field::ReadChars | Field::FdCount | Field::Exe;
    let bpf = |fields: Fields| {
        let mut handle = Handle::new().with_source(SourceId::Bpf);
        handle.prepare(fields).expect("the soak needs BPF");
        handle
    };
    [
        Way::new("auto", Handle::new(), common),
        Way::new("bpf", bpf(all), all),
        Way::new(
            "procfs",
            Handle::new().with_source(SourceId::Procfs),
            common | Field::NsNet,
        ),
        Way::new("broker", daemon::handle(&broker.socket), common),
    ]
}

/// Prints the results of the queries.
fn print(ways: &[Way]) {
    println!("source      asked       rows   wrong    lost  silent    held  slowest ms");
    for way in ways {
        let Way {
            name,
            asked,
            rows,
            wrong,
            lost,
            silent,
            held,
            slowest,
            ..
        } = way;
        let slowest = slowest.as_millis();
        println!("{name:<8} {asked:>8} {rows:>10} {wrong:>7} {lost:>7} {silent:>7} {held:>7} {slowest:>11}");
        way.stories.iter().for_each(|story| println!("         {story}"));
    }
}

/// Check that a process has not grown between two sizes.
fn check_growth(name: &str, before: (u64, usize), after: (u64, usize)) {
    let ((bytes_before, files_before), (bytes, files)) = (before, after);
    println!(
        "{name}: {} KiB, then {} KiB; {files_before} descriptors, then {files}",
        bytes_before >> 10,
        bytes >> 10
    );
    assert!(bytes <= bytes_before + MAX_GROWTH, "the memory of {name} grows");
    assert!(
        files <= files_before + MAX_MORE_DESCRIPTORS,
        "the descriptors of {name} grow"
    );
}

/// Check all sources for a long time.
#[test]
#[ignore = "takes a quarter of an hour: make soak"]
fn soak() {
    let seconds = std::env::var("TASKDIAG_SOAK_SECONDS").map_or(900, |text| text.parse().expect("seconds"));
    let whole = Duration::from_secs(seconds);
    let broker = Broker::start(&[]);
    let mut scene = Scene::new();
    let mut ways = ways(&broker);
    let mut snapshot = Snapshot::default();
    let processes = [("this process", std::process::id()), ("the broker", broker.pid())];
    let mut sizes_before = None;
    let began = Instant::now();
    let forks = scene.churn.made().expect("a count");
    while began.elapsed() < whole {
        scene.change_holders();
        for way in &mut ways {
            way.ask(&scene, &mut snapshot);
        }
        if sizes_before.is_none() && began.elapsed() > whole / 4 {
            sizes_before = Some(processes.map(|(_, pid)| size(pid)));
        }
    }
    scene.holders.clear();
    let sizes = processes.map(|(_, pid)| size(pid));
    let forks = scene.churn.made().expect("a count") - forks;
    let took = began.elapsed();
    println!("{} s, {forks} forks", took.as_secs());
    print(&ways);
    let sizes_before = sizes_before.expect("more than a quarter of the time has passed");
    for ((name, _), (before, after)) in processes.iter().zip(sizes_before.into_iter().zip(sizes)) {
        check_growth(name, before, after);
    }
    for way in &ways {
        assert!(way.asked > 10, "{} was asked {} times only", way.name, way.asked);
        assert_eq!((way.wrong, way.lost), (0, 0), "{}", way.name);
        // On a machine this busy, even a process that holds nobody may be late, but rarely.
        assert!(
            way.silent * 1000 <= way.asked * FARM as u64,
            "{}: {} silent",
            way.name,
            way.silent
        );
        // A holder is waited for when it is first found, and once more after all others.
        assert!(way.slowest < 10 * PATIENCE, "{}: {:?}", way.name, way.slowest);
    }
    assert!(
        scene.networks.len() == 2 && forks > 100 * took.as_secs(),
        "{forks} forks"
    );
}
