//! What recording costs: `taskdiag record` beside `atop -w`, at the same time, on the same processes.
//!
//! Both take a sample every five seconds. Their processor time is that of the whole program between two moments, once
//! both have settled; their bytes are those by which what they write has grown.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use taskdiag_zoo::Farm;

use crate::loops;
use crate::measure::{progress, Effort};
use crate::report::{number, Table};
use crate::targets::Bound;
use crate::tools::Tools;
use crate::top::Kicker;
use crate::{Report, Result};

/// The time between two samples, in seconds.
const EVERY: u64 = 5;

/// A number of processes, and how many of them do something.
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

/// Processes that begin, work and end, beside those of the farm: what builds and scripts do.
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
            // SAFETY: no pointers. Each is the leader of a group.
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
        // One program has its files in a process of its own.
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let children = children.split_ascii_whitespace().map(str::parse);
        let mut seconds = 0.0;
        for pid in std::iter::once(Ok(pid)).chain(children) {
            seconds += processor_seconds(pid?).ok_or_else(|| format!("{}: it has ended", self.name))?;
        }
        Ok(Used {
            seconds,
            bytes: size(&self.path),
        })
    }
}

/// The processor time of a process.
fn processor_seconds(pid: u32) -> Option<f64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both results outlive the calls.
    let is_read =
        unsafe { libc::clock_getcpuclockid(pid as i32, &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0 };
    is_read.then_some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

fn size(path: &Path) -> u64 {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| size(&entry.path())).sum(),
        Err(_) => fs::metadata(path).map_or(0, |metadata| metadata.len()),
    }
}

/// Measures both.
pub fn run(effort: Effort, tools: &Tools, report: &mut Report) -> Result<()> {
    let samples = if effort.single { 2 } else { 24 };
    report.heading("Recording");
    report.line(&format!(
        "A sample every {EVERY} s, by both programs at the same time, while scripts start short-lived processes: processor \
         time of the whole program and bytes written, for each of {samples} samples, once both have settled. `taskdiag record` \
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
    let ours = directory.join("ours");
    let atop = directory.join("atop");
    let mut command = Command::new(tools.taskdiag()?);
    command
        .arg("record")
        .arg("--dir")
        .arg(&ours)
        .arg("--every")
        .arg(format!("{EVERY}s"));
    let start = |name, command: &mut Command, path: &Path| -> Result<Recorder> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Ok(Recorder {
            name,
            child: child.map_err(|error| format!("{name}: {error}"))?,
            path: path.to_owned(),
        })
    };
    let ours = start("taskdiag record", &mut command, &ours)?;
    let atop = start(
        "atop -w",
        Command::new("atop").arg("-w").arg(&atop).arg(EVERY.to_string()),
        &atop,
    );
    let recorders: Vec<Recorder> = match atop {
        Ok(atop) => vec![ours, atop],
        Err(error) => {
            report.line(&format!("not run, {error}"));
            vec![ours]
        }
    };
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
        each.push((ms, bytes));
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
    let ratio = |pick: fn(&(f64, f64)) -> f64| Some(pick(each.get(1)?) / pick(&each[0]));
    let mut targets = Table::new(&["target", "wanted", "measured", ""], 1);
    for (claim, bound, measured) in [
        (
            "processor time of atop as a multiple",
            Bound::AtLeast(5.0),
            ratio(|each| each.0),
        ),
        (
            "bytes of atop as a multiple",
            Bound::AtLeast(10.0),
            ratio(|each| each.1),
        ),
        (
            "% of a processor",
            Bound::AtMost(1.0),
            Some(each[0].0 / (EVERY as f64 * 10.0)),
        ),
    ] {
        let verdict = match measured {
            None => "not measured",
            Some(value) if bound.holds(value) => "met",
            Some(_) => "**not met**",
        };
        let measured = measured.map_or_else(|| "–".to_owned(), number);
        targets.row([claim.to_owned(), bound.text(), measured, verdict.to_owned()]);
    }
    report.table(&targets);
    drop(recorders);
    fs::remove_dir_all(&directory)?;
    Ok(())
}
