//! Recording: `taskdiag record` compared with `atop -w` and, if it is installed, `below record`, at
//! the same time and for the same processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use taskdiag_zoo::Farm;

use crate::case::{call, ratio, single, times, Bound, Case, Contender, Context, Counts, Run, Stage, Value};
use crate::measure::{peak_kib, processor_time};
use crate::served::{Running, Scratch};
use crate::top::activity;
use crate::{loops, Result, Sizes};

/// The time between two samples.
const EVERY: Duration = Duration::from_secs(5);

/// How long each program is waited for in a round. What it used since the previous round counts, so
/// that of three programs, all are measured for six samples.
const WAIT: Duration = Duration::from_secs(10);

pub fn cases(sizes: &Sizes) -> Vec<Case> {
    sizes.or(&[1_000, 10_000]).into_iter().map(of_processes).collect()
}

fn of_processes(processes: usize) -> Case {
    let title = format!("Recording {processes} processes, 50 of them active");
    let mut case = Case::new(title, move || {
        let farm = Farm::start(processes, 1)?;
        let directory = Scratch::make(&std::env::temp_dir())?;
        let stage = Stage {
            title: format!(" ({} processes in all)", loops::census()?.0),
            ..Stage::default()
        };
        let stage = stage.subject(directory.0.display()).keep(directory);
        Ok(stage.keep(activity(&farm)?).keep(scripts()?).keep(farm))
    });
    case.note = format!(
        "A sample every {} s, by all programs at the same time, while scripts start short-lived processes: processor time of the \
         whole program and bytes written, for each sample, once all have settled. `taskdiag record` writes all tiers. Peak RSS is \
         that of the program that was measured.",
        EVERY.as_secs()
    );
    case.counts = Counts::Nothing;
    case.row = "sample";
    let (ours, atop, below) = ("taskdiag record", "atop -w", "below record --compress");
    case.contenders = vec![
        recording(ours, |context, path| {
            let mut command = Command::new(context.tools.taskdiag()?);
            command
                .arg("record")
                .arg("--dir")
                .arg(path)
                .arg("--every")
                .arg(format!("{}s", EVERY.as_secs()));
            Ok(command)
        }),
        recording(atop, |_, path| {
            let mut command = Command::new("atop");
            command.arg("-w").arg(path).arg(EVERY.as_secs().to_string());
            Ok(command)
        }),
        recording(below, |_, path| below_command(path)),
    ];
    let bytes = |claim, program, least| ratio(claim, Value::Bytes, program, &[ours], Bound::AtLeast(least));
    case.targets = vec![
        times("processor time of atop as a multiple", atop, ours, 5.0),
        bytes("bytes of atop as a multiple", atop, 10.0),
        times("processor time of below as a multiple", below, ours, 1.0),
        bytes("bytes of below as a multiple", below, 1.0),
        single(
            "milliseconds for a sample: 1 % of a processor",
            Value::Time,
            ours,
            Bound::AtMost(50.0),
        ),
    ];
    case
}

/// A program that records: its processor time and bytes for a sample.
fn recording(name: &'static str, command: fn(&Context, &Path) -> Result<Command>) -> Contender {
    call(name, "", move |context| {
        let path = Path::new(&context.subject).join(&name[..4]);
        let mut command = command(context, &path)?;
        let child = Running::start(&mut command)?;
        let recorder = Recorder { child, path };
        // The first sample has everything.
        sleep(2 * EVERY + Duration::from_secs(1));
        let mut before = recorder.used()?;
        Ok(Box::new(move || {
            sleep(WAIT);
            let now = recorder.used()?;
            let samples = (now.at - before.at).div_duration_f64(EVERY);
            let run = Run {
                took: (now.time - before.time).div_f64(samples),
                rows: 1,
                bytes: ((now.bytes - before.bytes) as f64 / samples) as u64,
                peak_kib: peak_kib(recorder.child.0.id())?,
            };
            before = now;
            Ok(run)
        }))
    })
}

/// A program that records.
struct Recorder {
    child: Running,
    path: PathBuf,
}

/// Processor time and bytes so far.
struct Used {
    at: Instant,
    time: Duration,
    bytes: u64,
}

impl Recorder {
    fn used(&self) -> Result<Used> {
        let pid = self.child.0.id();
        // One program keeps its files in a separate process.
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let mut time = processor_time(pid)?;
        for child in children.split_ascii_whitespace() {
            time += processor_time(child.parse()?)?;
        }
        Ok(Used {
            at: Instant::now(),
            time,
            bytes: size(&self.path),
        })
    }
}

fn size(path: &Path) -> u64 {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| size(&entry.path())).sum(),
        Err(_) => fs::metadata(path).map_or(0, |metadata| metadata.len()),
    }
}

/// Starts processes that start, work and end, in addition to the farm: the work of builds and
/// scripts.
fn scripts() -> Result<Vec<Running>> {
    let start = |script| Running::start(Command::new("sh").args(["-c", script]));
    let scripts = [
        "while :; do /bin/true; sleep 0.05; done",
        "while :; do head -c 3000000 /dev/urandom | gzip >/dev/null; sleep 0.3; done",
        "while :; do find /usr/share/doc -name '*.gz' | wc -l; sleep 0.5; done",
    ];
    scripts.into_iter().map(start).collect()
}

/// The command `below record`, which compresses with a dictionary of each 32 samples. Its package is
/// not in Debian: `cargo install below`.
fn below_command(directory: &Path) -> Result<Command> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let cgroups = mounts.find(|mount| mount.get(2) == Some(&"cgroup2"));
    let cgroups = cgroups.ok_or("the unified cgroup hierarchy is not mounted")?[1];
    let (logs, config) = (directory.with_extension("logs"), directory.with_extension("conf"));
    fs::create_dir(directory)?;
    fs::create_dir(&logs)?;
    fs::write(
        &config,
        format!("log_dir = {logs:?}\nstore_dir = {directory:?}\ncgroup_root = {cgroups:?}\n"),
    )?;
    let mut command = Command::new("below");
    command.arg("--config").arg(&config).arg("record");
    command.args(["--interval-s", &EVERY.as_secs().to_string()]);
    command.args(["--compress", "--dict-compress-chunk-size", "32"]);
    Ok(command)
}
