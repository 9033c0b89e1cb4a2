//! The `procfs` crate: two ways to read the same fields. The faster one counts.

use std::hint::black_box;
use std::time::Instant;

use procfs::process::{Process, Stat, Status};
use procfs::{FromRead as _, ProcResult};

use crate::run::{Run, Runner};

/// `all_processes()`, with stat and status of each process, and with `args` the command line.
pub fn all_processes(args: bool) -> Runner {
    timed(move || {
        walk(|process| {
            black_box((process.stat()?, process.status()?));
            if args {
                black_box(process.cmdline()?);
            }
            Ok(1)
        })
    })
}

/// The crate's parsers on files opened by path, with the standard library's directory listing:
/// avoids the crate's directory look-ups.
pub fn from_file() -> Runner {
    timed(|| {
        let mut rows = 0;
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name
                .to_str()
                .filter(|name| name.starts_with(|first: char| first.is_ascii_digit()))
            else {
                continue;
            };
            rows += stat_and_status(pid).unwrap_or(0);
        }
        Ok(rows)
    })
}

fn stat_and_status(pid: &str) -> ProcResult<usize> {
    black_box(Stat::from_file(format!("/proc/{pid}/stat"))?);
    black_box(Status::from_file(format!("/proc/{pid}/status"))?);
    Ok(1)
}

/// stat and status of every thread.
pub fn threads() -> Runner {
    timed(|| {
        walk(|process| {
            let mut rows = 0;
            for task in process.tasks()? {
                let task = task?;
                black_box((task.stat()?, task.status()?));
                rows += 1;
            }
            Ok(rows)
        })
    })
}

fn timed(walk: impl Fn() -> ProcResult<usize> + 'static) -> Runner {
    Box::new(move || {
        let start = Instant::now();
        let rows = walk()?;
        Ok(Run::new(start.elapsed(), rows))
    })
}

/// Adds up what `each` returns for all processes. Ignores processes that end in between, and those
/// that the crate can't read: it treats names that are not UTF-8 as errors.
fn walk(each: impl Fn(Process) -> ProcResult<usize>) -> ProcResult<usize> {
    let processes = procfs::process::all_processes()?;
    Ok(processes.map(|process| process.and_then(&each).unwrap_or(0)).sum())
}
