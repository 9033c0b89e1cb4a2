//! The cost of recording: `taskdiag record` compared with `atop -w` and, if it is installed, `below
//! record`, at the same time and for the same processes.
//!
//! All take a sample every five seconds. Their processor time is that of the whole program between
//! two moments after all have settled; their bytes are the growth of their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use taskdiag_zoo::Farm;

use crate::loops;
use crate::measure::{processor_time, progress, Effort};
use crate::report::{number, Table};
use crate::targets::Bound;
use crate::tools::Tools;
use crate::top::Kicker;
use crate::{Report, Result};

/// The time between two samples, in seconds.
const EVERY: u64 = 5;

/// A number of processes, and how many of them are active.
const LOADS: [(usize, usize); 2] = [(1000, 50), (10_000, 50)];

/// A program that records.
struct Recorder {
    name: &'static str,
    child: Child,
    path: PathBuf,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes that start, work and end, in addition to the farm: the work of builds and scripts.
struct Scripts(Vec<Child>);

impl Scripts {
    fn begin() -> Result<Scripts> {
        const SCRIPTS: [&str; 3] = [
            "while :; do /bin/true; sleep 0.05; done",
            "while :; do head -c 3000000 /dev/urandom | gzip >/dev/null; sleep 0.3; done",
            "while :; do find /usr/share/doc -name '*.gz' | wc -l; sleep 0.5; done",
        ];
        let start = |script: &&str| {
            Command::new("setsid")
                .args(["sh", "-c", script])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        };
        Ok(Scripts(SCRIPTS.iter().map(start).collect::<std::io::Result<_>>()?))
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // SAFETY: no pointers. Each child is the leader of a process group.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            let _ = child.wait();
        }
    }
}

/// Processor time and bytes so far.
#[derive(Clone, Copy)]
struct Used {
    seconds: f64,
    bytes: u64,
}

impl Recorder {
    fn used(&self) -> Result<Used> {
        let pid = self.child.id();
        // One program keeps its files in a separate process.
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let children = children.split_ascii_whitespace().map(str::parse);
        let mut seconds = 0.0;
        for pid in std::iter::once(Ok(pid)).chain(children) {
            seconds += processor_time(pid?)?.as_secs_f64();
        }
        Ok(Used {
            seconds,
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

/// Measures all.
pub fn run(effort: Effort, tools: &Tools, report: &mut Report) -> Result<()> {
    let samples = if effort.single { 2 } else { 24 };
    report.heading("Recording");
    report.line(&format!(
        "A sample every {EVERY} s, by all programs at the same time, while scripts start short-lived processes: processor \
         time of the whole program and bytes written, for each of {samples} samples, once all have settled. `taskdiag record` \
         writes all tiers."
    ));
    for (processes, active) in LOADS {
        progress(&format!("recording {processes} processes"));
        load(processes, active, samples, tools, report)?;
    }
    progress("");
    Ok(())
}

fn load(processes: usize, active: usize, samples: u64, tools: &Tools, report: &mut Report) -> Result<()> {
    let farm = Farm::start(processes, 1)?;
    let (all, _) = loops::census()?;
    let kicked = farm.pids().iter().step_by(processes / active).copied().collect();
    let _kicker = Kicker::begin(kicked);
    let _scripts = Scripts::begin()?;
    let directory = std::env::temp_dir().join(format!("taskdiag-bench-record-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory)?;
    let recorders = start(&directory, tools, report)?;
    // The first sample has everything.
    sleep(Duration::from_secs(2 * EVERY + 1));
    let before: Vec<Used> = recorders.iter().map(Recorder::used).collect::<Result<_>>()?;
    sleep(Duration::from_secs(samples * EVERY));
    let after: Vec<Used> = recorders.iter().map(Recorder::used).collect::<Result<_>>()?;
    let mut table = Table::new(
        &[
            "program",
            "ms a sample",
            "% of a processor",
            "bytes a sample",
            "bytes in all",
        ],
        1,
    );
    let mut each = Vec::new();
    for ((recorder, before), after) in recorders.iter().zip(before).zip(after) {
        let ms = (after.seconds - before.seconds) * 1e3 / samples as f64;
        let bytes = (after.bytes - before.bytes) as f64 / samples as f64;
        each.push((recorder.name, (ms, bytes)));
        table.row([
            recorder.name.to_owned(),
            number(ms),
            number(ms / (EVERY as f64 * 1e3) * 100.0),
            number(bytes),
            after.bytes.to_string(),
        ]);
    }
    report.line(&format!(
        "{processes} processes, {active} of them active ({all} processes in all):"
    ));
    report.table(&table);
    report.table(&targets(&each));
    drop(recorders);
    fs::remove_dir_all(&directory)?;
    Ok(())
}

/// Starts the programs, which record in a directory: ours first. One that can't be run is reported.
fn start(directory: &Path, tools: &Tools, report: &mut Report) -> Result<Vec<Recorder>> {
    let start = |name, command: &mut Command, path: PathBuf| -> Result<Recorder> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.map_err(|error| format!("{name}: {error}"))?;
        Ok(Recorder { name, child, path })
    };
    let (ours, atop) = (directory.join("ours"), directory.join("atop"));
    let mut command = Command::new(tools.taskdiag()?);
    command.arg("record").arg("--dir").arg(&ours);
    command.arg("--every").arg(format!("{EVERY}s"));
    let mut recorders = vec![start("taskdiag record", &mut command, ours)?];
    let mut command = Command::new("atop");
    command.arg("-w").arg(&atop).arg(EVERY.to_string());
    match start("atop -w", &mut command, atop) {
        Ok(atop) => recorders.push(atop),
        Err(error) => report.line(&format!("not run, {error}")),
    }
    let below = directory.join("below");
    match below_command(&below).and_then(|mut command| start("below record --compress", &mut command, below)) {
        Ok(below) => recorders.push(below),
        Err(error) => report.line(&format!("not run, {error}")),
    }
    Ok(recorders)
}

/// The command `below record`, which compresses with a dictionary of each 32 samples. Its package is
/// not in Debian: `cargo install below`.
fn below_command(directory: &Path) -> Result<Command> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let cgroups = mounts.find(|mount| mount.get(2) == Some(&"cgroup2"));
    let cgroups = cgroups.ok_or("below: the unified cgroup hierarchy is not mounted")?[1];
    let (logs, config) = (directory.with_extension("logs"), directory.with_extension("conf"));
    fs::create_dir(directory)?;
    fs::create_dir(&logs)?;
    fs::write(
        &config,
        format!("log_dir = {logs:?}\nstore_dir = {directory:?}\ncgroup_root = {cgroups:?}\n"),
    )?;
    let mut command = Command::new("below");
    command.arg("--config").arg(&config).arg("record");
    command.args(["--interval-s", &EVERY.to_string()]);
    command.args(["--compress", "--dict-compress-chunk-size", "32"]);
    Ok(command)
}

/// What was wanted and measured. `each` has the milliseconds and bytes of a sample of each program
/// that ran, ours first.
fn targets(each: &[(&str, (f64, f64))]) -> Table {
    let ours = each[0].1;
    let ratio = |program: &str, pick: fn(&(f64, f64)) -> f64| {
        let (_, theirs) = each.iter().find(|(name, _)| name.starts_with(program))?;
        Some(pick(theirs) / pick(&ours))
    };
    let mut table = Table::new(&["target", "wanted", "measured", ""], 1);
    for (claim, bound, measured) in [
        (
            "processor time of atop as a multiple",
            Bound::AtLeast(5.0),
            ratio("atop", |each| each.0),
        ),
        (
            "bytes of atop as a multiple",
            Bound::AtLeast(10.0),
            ratio("atop", |each| each.1),
        ),
        (
            "processor time of below as a multiple",
            Bound::AtLeast(1.0),
            ratio("below", |each| each.0),
        ),
        (
            "bytes of below as a multiple",
            Bound::AtLeast(1.0),
            ratio("below", |each| each.1),
        ),
        (
            "% of a processor",
            Bound::AtMost(1.0),
            Some(ours.0 / (EVERY as f64 * 10.0)),
        ),
    ] {
        table.row(bound.row(claim, measured));
    }
    table
}
