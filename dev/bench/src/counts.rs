//! System calls, kernel allocations and memory. They are counted in separate runs, because counting
//! takes time.
//!
//! To count a run within this process, another process of this program is run with one run and with
//! none. The difference is the run.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{command, Pins, PSUTIL};
use crate::contenders::{Contender, Way};
use crate::tools::{runs, Tools};
use crate::Result;

/// A count, or why it is missing.
pub type Count = std::result::Result<u64, String>;

/// The counts of one run.
#[derive(Clone, Debug)]
pub struct Counts {
    /// System calls of one run.
    pub calls: Count,
    /// Allocations by the kernel in one run.
    pub allocations: Count,
    /// The peak resident memory of the process that runs it, in KiB.
    pub peak_kib: Count,
}

impl Counts {
    /// Nothing counted yet.
    pub fn none() -> Counts {
        let none = || Err("not counted".to_owned());
        Counts {
            calls: none(),
            allocations: none(),
            peak_kib: none(),
        }
    }
}

/// What can be counted on this host.
#[derive(Clone, Debug)]
pub struct Counters {
    strace: std::result::Result<(), String>,
    tracepoints: std::result::Result<Vec<String>, String>,
}

const TRACEPOINTS: &str = "/sys/kernel/tracing/events/kmem";

impl Counters {
    /// Finds out what can be counted; nothing, unless `wanted`.
    pub fn find(wanted: bool) -> Counters {
        if !wanted {
            let unwanted = || "--no-counts was said".to_owned();
            return Counters {
                strace: Err(unwanted()),
                tracepoints: Err(unwanted()),
            };
        }
        let strace = if runs("strace", &["-V"]) {
            Ok(())
        } else {
            Err("no strace".to_owned())
        };
        Counters {
            strace,
            tracepoints: tracepoints(),
        }
    }

    /// Counts only memory: with very many system calls, the other counts would take too long.
    pub fn only_memory(&self) -> Counters {
        let reason = || "so many take too long to count".to_owned();
        Counters {
            strace: Err(reason()),
            tracepoints: Err(reason()),
        }
    }

    /// What can't be counted, with reasons.
    pub fn missing(&self) -> Vec<String> {
        let calls = self
            .strace
            .as_ref()
            .err()
            .map(|why| format!("system calls: not available, {why}"));
        let allocations = self
            .tracepoints
            .as_ref()
            .err()
            .map(|why| format!("kernel allocations: not available, {why}"));
        [calls, allocations].into_iter().flatten().collect()
    }

    /// Counts for one contender.
    pub fn count(&self, contender: &Contender, tools: &Tools) -> Counts {
        let calls = self.strace.clone().and_then(|()| difference(contender, tools, traced));
        let allocations = self
            .tracepoints
            .clone()
            .and_then(|events| difference(contender, tools, |argv| with_perf(&events, argv)));
        Counts {
            calls,
            allocations,
            peak_kib: peak(contender, tools).map_err(|error| error.to_string()),
        }
    }
}

fn tracepoints() -> std::result::Result<Vec<String>, String> {
    let named = ["kmalloc", "kmalloc_node", "kmem_cache_alloc", "kmem_cache_alloc_node"];
    let there: Vec<String> = named
        .into_iter()
        .filter(|name| Path::new(TRACEPOINTS).join(name).is_dir())
        .map(|name| format!("kmem:{name}"))
        .collect();
    if there.is_empty() {
        return Err(format!("this kernel has no {TRACEPOINTS} (or tracefs is not mounted)"));
    }
    if runs("perf", &["stat", "-e", &there.join(","), "true"]) {
        Ok(there)
    } else {
        Err("perf can't count kmem tracepoints".to_owned())
    }
}

/// The command that runs a contender this many times.
fn argv(contender: &Contender, tools: &Tools, times: u32) -> Result<Vec<String>> {
    if let Way::Psutil(what) = contender.way {
        let words = [&tools.python()?, "-c", PSUTIL, "once", what, &times.to_string()];
        return Ok(words.map(str::to_owned).to_vec());
    }
    let mut argv = vec![
        env::current_exe()?.display().to_string(),
        "--once".into(),
        contender.name.into(),
    ];
    argv.extend(["--times".into(), times.to_string()]);
    if let Ok(taskdiag) = tools.taskdiag() {
        argv.extend(["--taskdiag".into(), taskdiag]);
    }
    Ok(argv)
}

/// The count of one run: for a command the total, for others what exceeds the preparation.
fn difference(contender: &Contender, tools: &Tools, count: impl Fn(&[String]) -> Result<u64>) -> Count {
    let counted = || match contender.way {
        Way::Command(shell) => {
            let _pins = Pins::hold(shell, tools)?;
            count(&shell.argv(tools)?)
        }
        _ => Ok(count(&argv(contender, tools, 1)?)?.saturating_sub(count(&argv(contender, tools, 0)?)?)),
    };
    counted().map_err(|error| error.to_string())
}

/// A private directory for a counter's output.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        let path = env::temp_dir().join(format!("taskdiag-bench.{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Scratch(path))
    }

    fn file(&self) -> PathBuf {
        self.0.join("counted")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `counter … -o FILE … argv` and returns what `read` finds in the counter's file.
fn counted(counter: &[&str], argv: &[String], read: impl Fn(File) -> Result<u64>) -> Result<u64> {
    let scratch = Scratch::new()?;
    let output = Command::new(counter[0])
        .args(&counter[1..])
        .arg("-o")
        .arg(scratch.file())
        .args(argv)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let file = File::open(scratch.file()).map_err(|error| format!("{}: {error} {}", counter[0], said.trim()))?;
    match output.status.code() {
        Some(0 | 1) => read(file),
        _ => Err(format!("{}: {} {}", counter[0], output.status, said.trim()).into()),
    }
}

/// Counts system calls. A trace has a line for each call, and a second one if another thread's call
/// interrupted it. The table of `strace -c` would be shorter, but omits calls that strace does not
/// know by name.
fn traced(argv: &[String]) -> Result<u64> {
    let strace = ["strace", "-f", "-qq", "-e", "signal=none", "-e", "raw=all"];
    counted(&strace, argv, |file| {
        let mut calls = 0;
        for line in BufReader::new(file).lines() {
            calls += u64::from(!line?.contains(" resumed>"));
        }
        Ok(calls)
    })
}

fn with_perf(events: &[String], argv: &[String]) -> Result<u64> {
    counted(&["perf", "stat", "-x,", "-e", &events.join(",")], argv, |file| {
        // Columns: value, unit, event, ...
        let table = std::io::read_to_string(file)?;
        Ok(table
            .lines()
            .filter_map(|line| line.split(',').next()?.parse::<u64>().ok())
            .sum())
    })
}

fn peak(contender: &Contender, tools: &Tools) -> Result<u64> {
    let output = command(&argv(contender, tools, 1)?).output()?;
    let text = String::from_utf8(output.stdout)?;
    let said = String::from_utf8_lossy(&output.stderr);
    text.trim()
        .parse()
        .map_err(|_| format!("--once {}: {}", contender.name, said.trim()).into())
}

/// `--once`: runs a contender and returns its peak resident memory, in KiB.
pub fn once(contender: &Contender, tools: &Tools, times: u32) -> Result<u64> {
    if let Way::Command(shell) = contender.way {
        let _pins = Pins::hold(shell, tools)?;
        let argv = shell.argv(tools)?;
        return (0..times).try_fold(0, |peak, _| Ok(peak.max(peak_of_child(&argv)?)));
    }
    let mut runner = contender.prepare(tools)?;
    for _ in 0..times {
        runner()?;
    }
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .ok_or("no VmHWM")?;
    Ok(peak.trim().trim_end_matches(" kB").parse()?)
}

/// The peak memory of the child alone. The child is forked, not spawned: memory that a process had
/// before exec counts too.
fn peak_of_child(argv: &[String]) -> Result<u64> {
    let mut command = command(argv);
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    // SAFETY: the closure does nothing. It makes the standard library fork: after vfork, this
    // process's memory would count for the child.
    unsafe { command.pre_exec(|| Ok(())) };
    let child = command.spawn()?;
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both may be written to; an all-zero rusage is valid in any case.
    let (waited, usage) = unsafe {
        (
            libc::wait4(child.id() as i32, &mut status, 0, usage.as_mut_ptr()),
            usage.assume_init(),
        )
    };
    match waited {
        -1 => Err(std::io::Error::last_os_error().into()),
        _ => Ok(usage.ru_maxrss.try_into()?),
    }
}
