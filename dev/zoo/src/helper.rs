//! The test's side: starts the zoo binary as a helper, and talks to it through its standard input
//! and output.

use std::env;
use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::facts::Facts;
use crate::keeper::{self, Doing as _, ROLE};
use crate::Role;

/// Finds the zoo binary.
pub(crate) fn zoo_binary() -> io::Result<PathBuf> {
    const VARIABLE: &str = "TASKDIAG_ZOO";
    if let Some(path) = env::var_os(VARIABLE) {
        return Ok(path.into());
    }
    // Tests are in target/debug/deps, programs in target/debug.
    let exe = env::current_exe()?;
    let places = exe.ancestors().skip(1).take(3).map(|dir| dir.join("zoo"));
    places.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let text = format!(
            "no zoo binary at or above {exe:?}: build it with `cargo build -p taskdiag-zoo` \
             (in the same profile), or set {VARIABLE} to its path"
        );
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// A running helper. Its input ends when this is dropped or this process dies. The helper then ends
/// everything that it started.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts the zoo binary in a role, and waits until it is ready. `what` is what errors are about.
    /// The arguments are only for people to read in `ps`.
    pub(crate) fn start(what: &str, role: &Role, args: &[&str]) -> io::Result<(Helper, Facts)> {
        Helper::start_as(what, role, args, None)
    }

    /// Starts it as this user, with the group of the same id.
    pub(crate) fn start_as(what: &str, role: &Role, args: &[&str], user: Option<u32>) -> io::Result<(Helper, Facts)> {
        let binary = zoo_binary()?;
        let file = File::open(&binary)?;
        let mut command = match user {
            // The user may not be able to reach its directory.
            Some(_) => Command::new(format!("/proc/self/fd/{}", file.as_raw_fd())),
            None => Command::new(&binary),
        };
        command
            .arg0("zoo")
            .args(args)
            .env(ROLE, serde_json::to_string(role)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut child = command.spawn().doing(&format!("starting {}", binary.display()))?;
        let input = child.stdin.take();
        let output = child
            .stdout
            .take()
            .ok_or_else(|| io::Error::other("the helper has no output"))?;
        let mut helper = Helper {
            child,
            input,
            output: BufReader::new(output),
        };
        let facts = helper.hear().doing(what)?;
        Ok((helper, facts))
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until the helper reports that it is ready.
    pub(crate) fn hear(&mut self) -> io::Result<Facts> {
        keeper::hear(&mut self.output)
    }

    /// Sends a line. The caller must read the answer.
    pub(crate) fn send(&mut self, line: &str) -> io::Result<()> {
        let input = self
            .input
            .as_mut()
            .ok_or_else(|| io::Error::other("the helper has no input"))?;
        input.write_all(format!("{line}\n").as_bytes())
    }

    /// Reads one line.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        io::BufRead::read_line(&mut self.output, &mut line)?;
        Ok(line)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
