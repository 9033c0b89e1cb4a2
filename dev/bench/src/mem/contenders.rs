//! The contenders of the suite for proportional sizes.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use taskdiag::{Budget, Field, Fields, Handle, Query, Snapshot};

use crate::tools::{self, Tools};
use crate::Result;

/// A contender. A run does all the work once and returns how long it took.
pub struct Contender {
    pub name: &'static str,
    pub run: Box<dyn FnMut() -> Result<Duration>>,
}

fn contender(name: &'static str, mut run: impl FnMut() -> Result<()> + 'static) -> Contender {
    Contender {
        name,
        run: Box::new(move || {
            let start = Instant::now();
            run()?;
            Ok(start.elapsed())
        }),
    }
}

/// What a C program would read and add up, with one buffer, no copies and no allocations.
#[derive(Default)]
struct Sums {
    rss: u64,
    pss: u64,
    private: u64,
    swap: u64,
}

/// Adds up the lines of a text. Returns the length of the complete lines.
fn add_up(text: &[u8], sums: &mut Sums) -> usize {
    let mut at = 0;
    while let Some(len) = text[at..].iter().position(|&byte| byte == b'\n') {
        let line = &text[at..at + len];
        at += len + 1;
        let place = match line {
            [b'R', b's', b's', b':', ..] => &mut sums.rss,
            [b'P', b's', b's', b':', ..] => &mut sums.pss,
            [b'P', b'r', b'i', b'v', b'a', b't', b'e', b'_', ..] => &mut sums.private,
            [b'S', b'w', b'a', b'p', b':', ..] => &mut sums.swap,
            _ => continue,
        };
        let digits = line.iter().filter(|byte| byte.is_ascii_digit());
        *place += digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    }
    at
}

/// Reads and adds up one file. Returns false if the process has no memory, has ended, or may not be
/// seen.
fn sum_file(path: &str, buffer: &mut [u8]) -> Result<bool> {
    let Ok(mut file) = File::open(path) else {
        return Ok(false);
    };
    let mut sums = Sums::default();
    let mut kept = 0;
    loop {
        let len = match file.read(&mut buffer[kept..]) {
            Ok(0) => break,
            Ok(len) => kept + len,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let used = add_up(&buffer[..len], &mut sums);
        buffer.copy_within(used..len, 0);
        kept = len - used;
    }
    let is_there = sums.pss > 0;
    black_box((sums.rss, sums.private, sums.swap));
    Ok(is_there)
}

fn sum_all(name: &str, buffer: &mut [u8]) -> Result<()> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?.file_name();
        if let Some(pid) = entry.to_str().filter(|name| name.as_bytes()[0].is_ascii_digit()) {
            count += usize::from(sum_file(&format!("/proc/{pid}/{name}"), buffer)?);
        }
    }
    match count {
        0 => Err("no process has memory".into()),
        _ => Ok(()),
    }
}

const ROOM: usize = 256 << 10;

/// The fields that all contenders add up.
fn fields() -> Fields {
    Field::RssBytes | Field::SwapBytes | Field::PssBytes | Field::UssBytes
}

/// A handle that has already run a query.
fn ours(query: Query, budget: Budget) -> Result<impl FnMut() -> Result<()>> {
    let mut handle = Handle::new();
    handle.prepare(fields() | Field::UtimeNs | Field::MinFaults)?;
    let query = query.fields(fields()).budget(budget);
    let mut snapshot = Snapshot::default();
    Ok(move || {
        handle.query_into(&query, &mut snapshot)?;
        if snapshot.tasks().any(|task| task.pss_bytes().is_ok()) {
            Ok(())
        } else {
            Err("no process has memory".into())
        }
    })
}

/// Values of unchanged processes are remembered.
const REMEMBERING: Budget = Budget::UNLIMITED.max_age(Duration::from_secs(3600));

/// The sizes of one process.
pub fn one(pid: u32, tools: &Tools) -> Result<Vec<Contender>> {
    let (mut room, mut other) = (vec![0; ROOM], vec![0; ROOM]);
    let (smaps, rollup) = (format!("/proc/{pid}/smaps"), format!("/proc/{pid}/smaps_rollup"));
    let mut contenders = vec![
        contender("smaps summed", move || sum_file(&smaps, &mut room).map(drop)),
        contender("smaps_rollup read", move || sum_file(&rollup, &mut other).map(drop)),
        contender("taskdiag", ours(Query::process(pid), Budget::UNLIMITED)?),
    ];
    contenders.extend(psutil("psutil memory_full_info", &pid.to_string(), tools)?);
    Ok(contenders)
}

/// The sizes of all processes.
pub fn machine(tools: &Tools) -> Result<Vec<Contender>> {
    let (mut room, mut other) = (vec![0; ROOM], vec![0; ROOM]);
    let mut contenders = vec![
        contender("smaps summed", move || sum_all("smaps", &mut room)),
        contender("smaps_rollup read", move || sum_all("smaps_rollup", &mut other)),
        contender("taskdiag", ours(Query::processes(), Budget::UNLIMITED)?),
        contender("taskdiag, nothing changed", ours(Query::processes(), REMEMBERING)?),
    ];
    contenders.extend(psutil("psutil memory_full_info", "all", tools)?);
    contenders.push(command("command: taskdiag mem", &tools.taskdiag()?, &["mem"]));
    for (name, program) in [("command: smem", "smem"), ("command: ps_mem", "ps_mem")] {
        if tools::runs(program, &["--help"]) {
            contenders.push(command(name, program, &[]))
        } else {
            eprintln!("{name}: not installed")
        }
    }
    Ok(contenders)
}

fn command(name: &'static str, program: &str, args: &'static [&'static str]) -> Contender {
    let program = program.to_owned();
    contender(name, move || tools::answer(&program, args))
}

/// Uses psutil's own clock in a running interpreter: the time to start one is not compared.
fn psutil(name: &'static str, what: &str, tools: &Tools) -> Result<Option<Contender>> {
    let python = match tools.python() {
        Ok(python) => python,
        Err(why) => {
            eprintln!("{name}: {why}");
            return Ok(None);
        }
    };
    let mut psutil = Psutil::start(&python)?;
    let what = what.to_owned();
    Ok(Some(Contender {
        name,
        run: Box::new(move || psutil.ask(&what)),
    }))
}

struct Psutil {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Psutil {
    fn start(python: &str) -> Result<Psutil> {
        let mut child = Command::new(python)
            .args(["-c", include_str!("psutil_mem.py")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        Ok(Psutil { child, input, output })
    }

    fn ask(&mut self, what: &str) -> Result<Duration> {
        writeln!(self.input, "{what}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let (took, rows) = line.trim().split_once(' ').ok_or("psutil: the script ended")?;
        match rows {
            "0" => Err("psutil saw nothing".into()),
            _ => Ok(Duration::from_nanos(took.parse()?)),
        }
    }
}

impl Drop for Psutil {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
