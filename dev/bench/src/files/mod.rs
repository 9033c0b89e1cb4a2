//! The suite for open files: of the machine, of one path, of one process.

pub mod holders;

use std::hint::black_box;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use taskdiag::files::{FileField, PathMatch, Request, Use};
use taskdiag::{Field, Handle, Query, Set, SourceId};

use crate::measure::{median, Effort};
use crate::report::{number, Table};
use crate::targets::{Bound, Measured};
use crate::tools::{self, Tools};
use crate::{Report, Result};
use holders::{Holders, EACH, MANY};

/// Processes with open files.
const PROCESSES: usize = 5_000;

/// Runs a contender once.
pub type Run = Box<dyn FnMut() -> Result<()>>;

/// A contender, and its times in milliseconds, round by round.
pub struct Entry {
    name: &'static str,
    run: Run,
    rounds: Vec<f64>,
}

/// A contender.
pub fn entry(name: &'static str, run: impl FnMut() -> Result<()> + 'static) -> Entry {
    Entry {
        name,
        run: Box::new(run),
        rounds: Vec::new(),
    }
}

/// Measures all cases.
pub fn run(effort: Effort, tools: &Tools, report: &mut Report) -> Result<()> {
    let (holders, title) = begin("--file-holders", EACH)?;
    let mut all = contenders(tools)?;
    measure(&mut all, effort)?;
    report.heading(&format!("Open files: {title}"));
    report.table(&table(&all));
    let mut path = path_contenders(tools)?;
    measure(&mut path, effort)?;
    report.heading(&format!("Who has one file open: {title}"));
    report.table(&table(&path));
    let mut one = one_contenders(tools)?;
    measure(&mut one, effort)?;
    drop(holders);
    report.heading("Open files of one process");
    report.table(&table(&one));
    let (holders, title) = begin("--many-file-holders", MANY * EACH)?;
    let mut many = path_contenders(tools)?;
    measure(&mut many, effort)?;
    drop(holders);
    report.heading(&format!("Who has one file open: {title}"));
    report.table(&table(&many));
    report.heading("Targets for open files");
    report.line("Median of the ratios of each round.");
    let targets: [Target<'_>; 6] = [
        ("all files, times as fast as lsof -nP", &all, "lsof -nP", COMMAND, 15.0),
        ("all files, times as fast as lsfd", &all, "lsfd", COMMAND, 20.0),
        (
            "names of all descriptors, times as fast as a readlink walk",
            &all,
            "readlink walk",
            "taskdiag bpf, loaded, names",
            4.0,
        ),
        (
            "one file among many, times as fast as fuser",
            &many,
            "fuser FILE",
            PATH_COMMAND,
            50.0,
        ),
        (
            "one file among many, times as fast as lsof",
            &many,
            "lsof FILE",
            PATH_COMMAND,
            50.0,
        ),
        (
            "one process, times as fast as ls -l",
            &one,
            "ls -l /proc/PID/fd",
            ONE_COMMAND,
            1.0,
        ),
    ];
    report.table(&targets_table(&targets));
    Ok(())
}

/// A target: the claim, the contenders, the slower and the faster one, and the required ratio.
pub type Target<'a> = (&'a str, &'a [Entry], &'a str, &'a str, f64);

/// One row per target: the median of the rounds' ratios.
pub fn targets_table(targets: &[Target<'_>]) -> Table {
    let mut table = Table::new(&["target", "wanted", "measured", "min – max of rounds", ""], 1);
    for &(claim, entries, slow, fast, least) in targets {
        let rounds = |name: &str| {
            entries
                .iter()
                .find(|entry| entry.name == name)
                .map(|entry| &entry.rounds)
        };
        let (Some(slow), Some(fast)) = (rounds(slow), rounds(fast)) else {
            continue;
        };
        let cells = Bound::AtLeast(least).cells(Some(Measured::ratio(slow, fast)));
        table.row(std::iter::once(claim.to_owned()).chain(cells));
    }
    table
}

/// Starts processes with this many descriptors each, and describes what there is.
fn begin(option: &str, each: usize) -> Result<(Holders, String)> {
    let holders = Holders::start(option, PROCESSES)?;
    let walked = walk(None)?;
    if walked < PROCESSES * each {
        return Err(format!("only {walked} descriptors are open").into());
    }
    let title = format!("{PROCESSES} processes with {each} descriptors each, {walked} descriptors in all");
    Ok((holders, title))
}

const COMMAND: &str = "command: taskdiag files --jsonl";
const PATH_COMMAND: &str = "command: taskdiag files --path FILE";
const ONE_COMMAND: &str = "command: taskdiag files PID";

fn contenders(tools: &Tools) -> Result<Vec<Entry>> {
    let taskdiag = tools.taskdiag()?;
    let command = |name, args: &'static [&'static str]| {
        let taskdiag = taskdiag.clone();
        entry(name, move || tools::answer(&taskdiag, args))
    };
    let ours = |name, source, fields| {
        let mut handle = Handle::new().with_source(source);
        entry(name, move || list(&mut handle, &request(fields)))
    };
    let usual = Request::default().fields;
    let names = Set::from(FileField::Name);
    Ok(vec![
        entry("readlink walk", || walk(None).map(drop)),
        ours("taskdiag bpf, loaded, names", SourceId::Bpf, names),
        ours("taskdiag bpf, loaded, all values", SourceId::Bpf, usual),
        ours("taskdiag bpf, loaded, numbers alone", SourceId::Bpf, Set::NONE),
        ours("taskdiag procfs, names", SourceId::Procfs, names),
        ours("taskdiag procfs, all values", SourceId::Procfs, usual),
        command(COMMAND, &["files", "--jsonl"]),
        command("command: taskdiag files", &["files"]),
        command(
            "command: taskdiag files --jsonl --source procfs",
            &["files", "--jsonl", "--source", "procfs"],
        ),
        entry("lsof -nP", || tools::answer("lsof", &["-nP", "-w"])),
        entry("lsfd", || tools::answer("lsfd", &[])),
    ])
}

fn path_contenders(tools: &Tools) -> Result<Vec<Entry>> {
    const FILE: &str = "/etc/passwd";
    let taskdiag = tools.taskdiag()?;
    let mut handle = Handle::new().with_source(SourceId::Bpf);
    let mut request = request(FileField::Name.into());
    request.uses = Set::from(Use::ALL).without(Use::Map);
    request.paths = vec![PathMatch::new(FILE, Duration::from_secs(1))?];
    Ok(vec![
        entry("readlink walk", || walk(Some(Path::new(FILE))).map(drop)),
        entry("taskdiag bpf, loaded, without mapped files", move || {
            list(&mut handle, &request)
        }),
        entry(PATH_COMMAND, move || {
            tools::answer(&taskdiag, &["files", "--path", FILE])
        }),
        entry("lsof FILE", || tools::answer("lsof", &["-w", FILE])),
        entry("fuser FILE", || tools::answer("fuser", &[FILE])),
    ])
}

fn one_contenders(tools: &Tools) -> Result<Vec<Entry>> {
    let taskdiag = tools.taskdiag()?;
    let pid = std::process::id();
    let directory = format!("/proc/{pid}/fd");
    Ok(vec![
        entry(ONE_COMMAND, move || {
            tools::answer(&taskdiag, &["files", &pid.to_string()])
        }),
        entry("ls -l /proc/PID/fd", move || tools::answer("ls", &["-l", &directory])),
        entry("lsof -nP -p PID", move || {
            tools::answer("lsof", &["-nP", "-p", &pid.to_string()])
        }),
    ])
}

fn request(fields: Set<FileField>) -> Request {
    let mut request = Request::default();
    request.fields = fields;
    request
}

/// Queries the files of all processes.
fn list(handle: &mut Handle, request: &Request) -> Result<()> {
    let processes = handle.query(&Query::processes().fields(Field::StartNs))?;
    handle.files(&processes, request, |_, file| {
        black_box(file);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// Reads the link of each descriptor. Returns how many there are, or how many lead to a path.
fn walk(path: Option<&Path>) -> Result<usize> {
    let (mut count, mut name) = (0, vec![0; 4096]);
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if !entry.file_name().as_bytes()[0].is_ascii_digit() {
            continue;
        }
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let opened = rustix::fs::open(entry.path().join("fd"), flags, rustix::fs::Mode::empty());
        let Ok(directory) = opened else { continue };
        let mut room = Vec::with_capacity(32 << 10);
        let mut entries = rustix::fs::RawDir::new(&directory, room.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else { break };
            let read = rustix::fs::readlinkat_raw(&directory, entry.file_name(), &mut name[..]);
            let is_meant = |len: usize| path.is_none_or(|path| path.as_os_str().as_bytes() == &name[..len]);
            count += usize::from(read.is_ok_and(is_meant));
        }
    }
    Ok(count)
}

/// Runs each contender once per round, starting with a different one each time.
pub fn measure(entries: &mut [Entry], effort: Effort) -> Result<()> {
    for entry in &mut *entries {
        (entry.run)().map_err(|error| io::Error::other(format!("{}: {error}", entry.name)))?;
    }
    let count = entries.len();
    for round in 0..effort.rounds {
        for turn in 0..count {
            let entry = &mut entries[(round + turn) % count];
            let start = Instant::now();
            (entry.run)()?;
            entry.rounds.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(())
}

/// One row per contender.
pub fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(&["contender", "ms: median (min – max)", ""], 1);
    for entry in entries {
        let least = entry.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = entry.rounds.iter().copied().fold(0.0, f64::max);
        let cell = format!(
            "{} ({} – {})",
            number(median(&entry.rounds)),
            number(least),
            number(most)
        );
        table.row([entry.name.to_owned(), cell, String::new()]);
    }
    table
}
