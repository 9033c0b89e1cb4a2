//! Processes that do something for each line of their standard input and answer with a line: a
//! contender that runs in a process of its own, psutil, and the actors on a stage.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::case::{Run, Runner};
use crate::Result;

/// A process that ends when this is dropped.
pub struct Running(pub Child);

impl Running {
    /// Starts a program without input and output.
    pub fn start(command: &mut Command) -> Result<Running> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Running(quiet.spawn().map_err(|error| error.to_string())?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A new directory, which is removed when this is dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Makes the directory, in another one.
    pub fn make(within: &Path) -> Result<Scratch> {
        let directory = within.join(format!("taskdiag-bench-{}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(Scratch(directory))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

/// A process that serves. It ends when this is dropped.
pub struct Served {
    child: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Served {
    /// Starts a process, and waits until it is ready.
    pub fn start(argv: &[String], user: Option<u32>) -> Result<Served> {
        // The user may not be able to reach this program's directory.
        let program = if user.is_some() { "/proc/self/exe" } else { &argv[0] };
        let mut command = Command::new(program);
        command.args(&argv[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", argv[0]))?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut served = Served {
            child: Running(child),
            input,
            output,
        };
        match served.line()?.as_str() {
            "ready" => Ok(served),
            line => Err(line.to_owned().into()),
        }
    }

    /// Starts this program as an actor: see [`crate::actors`].
    pub fn actor(role: &str, size: usize, user: Option<u32>) -> Result<Served> {
        let argv = ["/proc/self/exe", "--actor", role, &size.to_string()];
        Served::start(&argv.map(str::to_owned), user)
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("the process ended".into()),
            _ => Ok(line.trim().to_owned()),
        }
    }

    /// Lets it do its work once.
    pub fn run(&mut self) -> Result<Run> {
        self.input.write_all(b"\n")?;
        let line = self.line()?;
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [ns, rows, bytes] => Ok(Run {
                took: Duration::from_nanos(ns),
                rows: rows as usize,
                bytes,
                peak_kib: 0,
            }),
            _ => Err(line.into()),
        }
    }
}

/// The main loop of such a process.
pub fn serve(mut runner: Runner) -> Result<()> {
    println!("ready");
    for line in io::stdin().lines() {
        line?;
        match runner() {
            Ok(run) => println!("{} {} {}", run.took.as_nanos(), run.rows, run.bytes),
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}
