//! Contenders that are other programs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use crate::run::{Run, Runner};
use crate::tools::Tools;
use crate::Result;

/// psutil's part: `serve|once WHAT [TIMES]`.
pub const PSUTIL: &str = include_str!("psutil_contender.py");

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// ps of procps.
    Ps,
    /// taskdiag.
    Taskdiag,
    /// A program found by name.
    Named(&'static str),
    /// A Python with psutil, running the benchmark's script.
    Python,
}

/// How to count the tasks in a command's output.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// One line per task, after a heading.
    Lines,
    /// One JSON object per task, with a pid.
    Json,
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Shell {
    /// The program.
    pub program: Program,
    /// Its arguments.
    pub args: &'static [&'static str],
    /// Whether to run `taskdiag pin` before it and `taskdiag unpin` after it, outside of the
    /// measured time.
    pub pinned: bool,
    /// How to count the tasks in its output.
    pub answer: Answer,
}

impl Shell {
    /// The command and its arguments.
    pub fn argv(self, tools: &Tools) -> Result<Vec<String>> {
        let mut argv = match self.program {
            Program::Ps => vec!["ps".to_owned()],
            Program::Taskdiag => vec![tools.taskdiag()?],
            Program::Named(name) => vec![name.to_owned()],
            Program::Python => vec![tools.python()?, "-c".into(), PSUTIL.into(), "once".into()],
        };
        argv.extend(self.args.iter().map(|&arg| arg.to_owned()));
        Ok(argv)
    }
}

/// A command from words.
pub fn command(argv: &[String]) -> Command {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).stdin(Stdio::null());
    command
}

/// Runs a command once, to check that it works and how many tasks it lists, and then once per call,
/// with output to `/dev/null`.
pub fn timed(shell: Shell, tools: &Tools) -> Result<Runner> {
    let argv = shell.argv(tools)?;
    let tools = tools.clone();
    let pins = Pins::hold(shell, &tools)?;
    let output = command(&argv)
        .output()
        .map_err(|error| format!("{}: {error}", argv[0]))?;
    drop(pins);
    let rows = rows(shell, &output)?;
    Ok(Box::new(move || {
        let _pins = Pins::hold(shell, &tools)?;
        Ok(Run::new(time(&argv)?, rows))
    }))
}

fn time(argv: &[String]) -> Result<Duration> {
    let mut command = command(argv);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let took = start.elapsed();
    check(argv, status)?;
    Ok(took)
}

/// taskdiag exits with 1 if a process ended while it was read.
fn check(argv: &[String], status: ExitStatus) -> Result<()> {
    match status.code() {
        Some(0 | 1) => Ok(()),
        _ => Err(format!("{}: {status}", argv[0]).into()),
    }
}

fn rows(shell: Shell, output: &Output) -> Result<usize> {
    if !matches!(output.status.code(), Some(0 | 1)) {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{:?}: {}, {}", shell.program, output.status, said.trim()).into());
    }
    let text = &output.stdout;
    Ok(match shell.answer {
        // The script prints no tasks.
        Answer::Lines if shell.program == Program::Python => 0,
        Answer::Lines => text.iter().filter(|&&byte| byte == b'\n').count().saturating_sub(1),
        Answer::Json => text.windows(6).filter(|&bytes| bytes == b"\"pid\":").count(),
    })
}

/// Programs that are pinned during a run.
#[derive(Debug)]
pub struct Pins(String);

impl Pins {
    /// Pins the programs if the command needs that.
    pub fn hold(shell: Shell, tools: &Tools) -> Result<Option<Pins>> {
        if !shell.pinned {
            return Ok(None);
        }
        let taskdiag = tools.taskdiag()?;
        let output = Command::new(&taskdiag).arg("pin").output()?;
        if !output.status.success() {
            return Err(format!("taskdiag pin: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
        }
        Ok(Some(Pins(taskdiag)))
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if let Err(error) = Command::new(&self.0).arg("unpin").output() {
            eprintln!("taskdiag unpin: {error}");
        }
    }
}

/// A Python process that waits for requests.
struct Psutil {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// Starts the Python process; each call runs the contender once.
pub fn psutil(what: &str, tools: &Tools) -> Result<Runner> {
    let mut child = Command::new(tools.python()?)
        .args(["-c", PSUTIL, "serve", what])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let input = child.stdin.take();
    let output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut psutil = Psutil { child, input, output };
    Ok(Box::new(move || psutil.run()))
}

impl Psutil {
    fn run(&mut self) -> Result<Run> {
        self.input.as_mut().ok_or("no input")?.write_all(b"\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let (took, rows) = line.trim().split_once(' ').ok_or("psutil: the script ended")?;
        Ok(Run::new(Duration::from_nanos(took.parse()?), rows.parse()?))
    }
}

impl Drop for Psutil {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
