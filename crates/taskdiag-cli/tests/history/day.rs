//! A day of 10,000 processes: real samples, each a minute after the one before.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use taskdiag::{Field, Fields, Group, Handle, Query, Snapshot};
use taskdiag_history::directory::Keep;
use taskdiag_history::encode::Sample;
use taskdiag_history::events::{IntervalEvents, Sum};
use taskdiag_history::figures::{self, Figure, Figures, Part};
use taskdiag_history::piece::Time;
use taskdiag_history::recorder::Recorder;
use taskdiag_history::store::{RecordingFile, Space, Store};
use taskdiag_history::About;
use taskdiag_zoo::Farm;

use super::browser::Browser;
use super::common::{run, Recording, Sleeper};

/// Files in a directory.
struct Files(PathBuf);

impl Store for Files {
    type File = File;

    fn list(&self) -> io::Result<Vec<RecordingFile>> {
        Ok(Vec::new())
    }

    fn create(&mut self, name: &str) -> io::Result<File> {
        OpenOptions::new().append(true).create_new(true).open(self.0.join(name))
    }

    fn append(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&mut self, _: &mut File) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, file: &mut File, bytes: u64) -> io::Result<()> {
        file.set_len(bytes)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space {
            total: 1 << 40,
            available: 1 << 39,
        })
    }
}

/// What `taskdiag record` records without `-o`, but what is derived.
fn fields() -> Fields {
    let left_out = [Group::Env, Group::Text, Group::Layout, Group::Rollup, Group::Derived];
    let left_out = left_out.into_iter().map(Fields::of_group);
    Fields::all().without(left_out.fold(Fields::NONE, |all, group| all | group)) | Field::Cmdline | Field::Exe
}

const PROCESSES: usize = 10_000;
const MINUTES: u64 = 1440;
const MINUTE_NS: u64 = 60_000_000_000;

/// The begin of the day, as long after the boot as this machine is: for processes that are there.
fn begin() -> Time {
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Time {
        wall_ns: 1_795_651_200_000_000_000,
        boot_ns: up.tv_sec as u64 * 1_000_000_000 / MINUTE_NS * MINUTE_NS,
    }
}

/// The machine's figures: its memory, and clock ticks of two processors, one of them busy.
fn machine(minute: u64) -> Figures {
    let mut all = Figures::new();
    let mut set = |object: &str, key: &str, number| {
        figures::set(&mut all, object.as_bytes(), key.as_bytes(), Figure::Number(number));
    };
    set("meminfo", "MemTotal", 24 << 30);
    set(
        "meminfo",
        "MemAvailable",
        (8 << 30) + (minute * 7919 % 1000) * (8 << 20),
    );
    for (name, ticks) in [
        ("user", 4000),
        ("nice", 0),
        ("system", 2000),
        ("irq", 0),
        ("softirq", 10),
        ("idle", 6000),
        ("iowait", 0),
        ("steal", 0),
    ] {
        set("cpu", name, ticks * (minute + 1));
    }
    set("vmstat", "oom_kill", minute / 500);
    figures::set(&mut all, b"sources", b"events", Figure::Text((*b"bpf").into()));
    all
}

/// What began and ended in a minute: 300 programs of 40 units.
fn happened(minute: u64) -> IntervalEvents {
    let mut happened = IntervalEvents::default();
    for program in 0..300_u64 {
        let count = 1 + (program * 31 + minute * 17) % 60;
        let of = (
            format!("job-{}.service", program % 40).into_bytes(),
            format!("program-{program}").into_bytes(),
        );
        let sum = Sum {
            forks_count: count,
            execs_count: count,
            ended_count: count,
            unseen_count: count,
            runtime_ns: count * 3_000_000,
            peak_rss_bytes: 4 << 20,
            ..Sum::default()
        };
        happened.add_sum(of, sum, 4096);
    }
    happened
}

/// Records these minutes of a day, with the processes that are there at each.
fn record(
    directory: &Path,
    query: &Query,
    minutes: impl Iterator<Item = u64>,
    mut read: impl FnMut(u64, &mut Snapshot),
) {
    fs::create_dir(directory).expect("a directory");
    let about = About {
        host: "day".to_owned(),
        boot_id: "00000000-0000-0000-0000-000000000001".to_owned(),
        kernel: "6.12".to_owned(),
        version: "taskdiag".to_owned(),
        tier: String::new(),
        every_ns: MINUTE_NS,
        fields: query
            .fields_read()
            .iter()
            .map(|field| field.name().to_owned())
            .collect(),
        notes: Vec::new(),
    };
    let mut recorder = Recorder::new(Files(directory.to_owned()), about, Keep::Usual);
    let mut snapshot = Snapshot::default();
    let begin = begin();
    for minute in minutes {
        read(minute, &mut snapshot);
        let figures = machine(minute);
        let part = Part {
            figures: &figures,
            version: minute + 1,
        };
        let now = Time {
            wall_ns: begin.wall_ns + (minute * MINUTE_NS) as i64,
            boot_ns: begin.boot_ns + minute * MINUTE_NS,
        };
        let sample = Sample {
            time: now,
            tasks: &snapshot,
            others: None,
            figures: &[part],
            happened: &happened(minute),
        };
        let notices = recorder.record(&sample, minute + 1 == MINUTES);
        assert!(notices.is_empty(), "{notices:?}");
    }
}

/// Records a day of these processes, of which ten are others each minute.
fn record_day(directory: &Path) {
    let mut handle = Handle::new();
    let query = Query::processes().fields(fields());
    let _ = handle.prepare(query.fields_read());
    let mut others = VecDeque::new();
    record(directory, &query, 0..MINUTES, |minute, snapshot| {
        for number in 0..10 {
            let name = format!("job-{minute}-{number}");
            others.push_back(Sleeper::start(Command::new("sleep").arg0(name)));
        }
        while others.len() > 100 {
            others.pop_front();
        }
        handle.query_into(&query, snapshot).expect("processes");
    });
}

/// Check that a time in which nothing was recorded is a gap of the charts, also if it is not much longer
/// than the time between two of their points.
#[test]
fn short_gaps_are_shown() {
    let (recording, place) = (Recording::new("short-gap"), Recording::new("short-gap-page"));
    let query = Query::process(std::process::id()).fields(fields());
    let mut handle = Handle::new();
    let minutes = (0..700).chain(704..MINUTES);
    record(&recording.0, &query, minutes, |_, snapshot| {
        handle.query_into(&query, snapshot).expect("this process");
    });
    fs::create_dir(place.path()).expect("a directory");
    let page = place.0.join("page.html");
    let page_name = page.to_str().expect("a path");
    let made = run(&["report", "-o", page_name, "--history", recording.path()]);
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
    let data = super::report::data(&page);
    let list = |name: &str| data[name].as_array().expect("a list").clone();
    assert!(list("times").len() < 700);
    let unknown: Vec<usize> = (0..list("known").len())
        .filter(|&at| list("known")[at] == false)
        .collect();
    let minute_of = |at: usize| (data["times"][at].as_i64().expect("ms") - begin().wall_ns / 1_000_000) / 60_000;
    let around: Vec<[i64; 2]> = unknown
        .iter()
        .map(|&at| [minute_of(at - 1), minute_of(at + 1)])
        .collect();
    assert!(matches!(around[..], [[699, 704..=707]]), "{around:?}");
    let gaps = list("incidents").into_iter().filter(|one| one["kind"] == "gap").count();
    assert_eq!(gaps, 1);
}

/// Check that each command says if it shows another time than was asked for, and that nothing was
/// recorded in one.
#[test]
fn other_times_are_said() {
    let recording = Recording::new("other-times");
    let query = Query::process(std::process::id()).fields(fields());
    let mut handle = Handle::new();
    record(&recording.0, &query, (3..15).chain(25..33), |_, snapshot| {
        handle.query_into(&query, snapshot).expect("this process");
    });
    let at = |minute: u64| shown_time(begin().wall_ns + (minute * MINUTE_NS) as i64);
    let history = |command: &str, args: &[&str]| {
        let words = command.split(' ');
        run(&words
            .chain(["--history", recording.path()])
            .chain(args.iter().copied())
            .collect::<Vec<_>>())
    };
    let shows = |command: &str, format: &str| match format {
        "" => history(command, &["--at", &at(20)]),
        format => history(command, &["--at", &at(20), format]),
    };
    for command in ["ps", "ps aux", "tree", "mem", "mem --by user", "mem --system"] {
        let said = format!("is of {}, 00:06:00 earlier: nothing was recorded", at(14));
        let people = shows(command, "");
        assert!(people.stderr.contains(&said), "{command}: {people:?}");
        let programs = shows(command, "--json");
        assert!(!programs.stderr.contains("earlier"), "{command}: {programs:?}");
        let near = history(command, &["--at", &at(14)]);
        assert!(!near.stderr.contains("earlier"), "{command}: {near:?}");
    }
    for command in ["ps", "tree", "mem", "watch", "events"] {
        let period = |from, to| history(command, &["--from", &at(from), "--to", &at(to)]);
        for (from, to, said) in [
            (10, 30, format!("nothing was recorded from {} to {}\n", at(14), at(25))),
            (
                0,
                20,
                format!(
                    "nothing was recorded from {} to {}, from {} to {}\n",
                    at(0),
                    at(3),
                    at(14),
                    at(20)
                ),
            ),
            (5, 14, String::new()),
            (
                16,
                18,
                "nothing was recorded in that time: `taskdiag history`".to_owned(),
            ),
            (
                40,
                50,
                "nothing was recorded in that time: `taskdiag history`".to_owned(),
            ),
        ] {
            let run = period(from, to);
            assert!(run.stderr.contains(&said), "{command}: {run:?}");
            assert_eq!(
                run.stderr.contains("nothing was recorded"),
                !said.is_empty(),
                "{command}: {run:?}"
            );
            assert_eq!(run.code == Some(2), from > 15, "{command}: {run:?}");
        }
        let future = history(command, &["--from", &at(40)]);
        assert!(
            future.code == Some(2) && future.stderr.contains("in that time"),
            "{command}: {future:?}"
        );
        let whole = history(command, &["--from", "2020-01-01"]);
        assert!(whole.stderr.contains(" to "), "{command}: {whole:?}");
    }
}

/// A time as it is typed and shown, in UTC.
fn shown_time(wall_ns: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(wall_ns.into()).expect("a time");
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Check that the page of a day of 10,000 processes is made in bounded memory, is small, and is
/// soon there.
#[test]
#[ignore = "takes Chromium and minutes: cargo test --release -p taskdiag-cli --test history -- --ignored a_day"]
fn a_day_has_a_page() {
    let farm = Farm::start(PROCESSES, 1).expect("a farm");
    let recording = Recording::new("day");
    let began = Instant::now();
    record_day(&recording.0);
    let bytes: u64 = fs::read_dir(&*recording.0)
        .expect("it is ours")
        .map(|file| file.and_then(|file| file.metadata()).map_or(0, |found| found.len()))
        .sum();
    eprintln!(
        "{} processes, {MINUTES} samples recorded in {:?}, {bytes} bytes",
        farm.pids().len(),
        began.elapsed()
    );
    drop(farm);
    let pages = Recording::new("day-pages");
    fs::create_dir(&*pages.0).expect("a directory");
    let page = pages.0.join("day.html");
    let began = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_taskdiag"))
        .args(["report", "--history", recording.path(), "-o"])
        .arg(&page)
        .spawn()
        .expect("the binary runs");
    let peak = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok())
    };
    let mut most = 0;
    while let Some(kib) = peak() {
        most = most.max(kib);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(child.wait().expect("our own child").success());
    let bytes = fs::metadata(&page).expect("a page").len();
    eprintln!("a page of {bytes} bytes, made in {:?} with {most} KiB", began.elapsed());
    assert!(bytes < 5 << 20 && most < 1 << 20, "{bytes} bytes, {most} KiB");
    let mut browser = Browser::start();
    let began = Instant::now();
    browser.open(&page);
    let ms = browser.evaluate("Number(document.documentElement.dataset.drawn)");
    let opened = began.elapsed();
    let cpu_ms = browser.cpu_ms();
    browser.screenshot("report-day");
    eprintln!("open after {opened:?}, drawn {ms} ms after it began, {cpu_ms} ms of them on a processor");
    assert!(
        ms.as_f64() > Some(0.0) && cpu_ms > 0.0 && cpu_ms < 2000.0,
        "{ms} {cpu_ms}"
    );
    assert_eq!(browser.complaints(), &[] as &[String]);
}
