//! Access to the files of a recording through a separate process.
//!
//! A file system may never answer: its server or its disk is gone. Then a process that accesses it
//! waits, and often not even SIGKILL ends it. So a command neither opens nor closes files of a
//! recording; it starts a process that does ([`serve`]). The command waits for this process up to
//! [`PATIENCE`]. After that it reports the problem, continues without the files as far as it can,
//! and leaves the process behind when it ends.
//!
//! The two share a socket, over which they take turns to send a [`Message`].

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use taskdiag_history::store::{Listed, Space, Store};
use taskdiag_sys::isolated::{wait_for, Failed};

use super::served::{self, what, Message};
use crate::outcome::{say, Failure};

pub use super::served::serve;

/// The hidden command that the process runs.
pub const COMMAND: &str = "recording-files";

/// How long the file system may take for one operation.
const PATIENCE: Duration = Duration::from_secs(10);

/// The files of one recording.
#[derive(Debug)]
pub struct Apart(Mutex<State>);

#[derive(Debug)]
struct State {
    path: PathBuf,
    /// Whether this is for writing, too.
    is_recorder: bool,
    process: Option<Process>,
    /// Operations to do first when the file system answers again. They undo requests whose outcome
    /// is unknown.
    undo: Vec<(u32, u64, String)>,
}

/// The process that accesses the files.
#[derive(Debug)]
struct Process {
    child: Child,
    socket: UnixStream,
    /// Whether it has locked the directory for recording.
    has_directory: bool,
    /// Whether the last answer is still outstanding.
    is_late: bool,
}

impl Apart {
    /// Creates the directory if it does not exist, and locks it for this recorder.
    pub fn to_record(path: &Path) -> Result<Apart, Failure> {
        let apart = Apart::new(path, true);
        match apart.space() {
            Ok(_) => Ok(apart),
            Err(error) => Err(Failure::Unanswered(error.to_string())),
        }
    }

    /// Accesses a recording for reading.
    pub fn to_read(path: &Path) -> Apart {
        Apart::new(path, false)
    }

    fn new(path: &Path, is_recorder: bool) -> Apart {
        Apart(Mutex::new(State {
            path: path.to_owned(),
            is_recorder,
            process: None,
            undo: Vec::new(),
        }))
    }

    /// Reads a file of the recording.
    ///
    /// # Errors
    ///
    /// If it is not a regular file, or larger than any that a recorder writes.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.state().path.join(name);
        self.state().call(what::READ, 0, path.as_os_str().as_bytes(), &[])
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request that undoes an earlier one: now, or when the file system answers again.
    fn undo(&mut self, what: u32, number: u64, name: &str) -> io::Result<()> {
        let mut state = self.state();
        let done = state.call(what, number, name.as_bytes(), &[]);
        if is_silent(&done) {
            state.undo.push((what, number, name.to_owned()));
        }
        done.map(drop)
    }
}

/// Whether an error says that no file can be accessed now, and nothing about one of them.
pub fn is_lost(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::ConnectionAborted)
}

/// An error that is lost in this sense: the process that has the files is not there.
fn without_process(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, what)
}

fn is_silent<T>(result: &io::Result<T>) -> bool {
    let kind = result.as_ref().err().map(io::Error::kind);
    kind == Some(io::ErrorKind::TimedOut)
}

/// Why there is no answer.
enum Lost {
    /// It has not arrived yet.
    Silent,
    /// The process has ended.
    Ended,
}

/// An answer of the process: the result, or why the request failed.
type Said = io::Result<Vec<u8>>;

impl State {
    /// Sends a request, after the outstanding ones are done, and waits for the answer.
    fn call(&mut self, what: u32, number: u64, name: &[u8], payload: &[u8]) -> Said {
        let said = self.try_call(what, number, name, payload);
        said.unwrap_or_else(|lost| match lost {
            Lost::Silent => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "the file system of {} has not answered for {} seconds",
                    self.path.display(),
                    PATIENCE.as_secs()
                ),
            )),
            Lost::Ended => {
                self.end();
                Err(without_process("the process that has its files has ended".to_owned()))
            }
        })
    }

    fn try_call(&mut self, what: u32, number: u64, name: &[u8], payload: &[u8]) -> Result<Said, Lost> {
        let process = match &mut self.process {
            Some(process) => process,
            none => match Process::start() {
                Ok(process) => none.insert(process),
                Err(error) => {
                    let what = format!("starting the process that has its files: {error}");
                    return Ok(Err(without_process(what)));
                }
            },
        };
        if process.is_late {
            // The outcome does not matter any more.
            let _ = process.answer(Duration::ZERO)?;
        }
        if self.is_recorder && !process.has_directory {
            let path = self.path.as_os_str().as_bytes();
            if let Err(error) = process.ask(what::OPEN, std::process::id().into(), path, &[])? {
                return Ok(Err(error));
            }
            process.has_directory = true;
        }
        while let Some((what, number, name)) = self.undo.last() {
            let _ = process.ask(*what, *number, name.as_bytes(), &[])?;
            self.undo.pop();
        }
        process.ask(what, number, name, payload)
    }

    fn end(&mut self) {
        let waiting = self.process.take().and_then(Process::end);
        if let Some(pid) = waiting {
            say(format_args!(
                "process {pid} waits for the file system of {}, and ends when that answers",
                self.path.display()
            ));
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.end();
    }
}

impl Process {
    fn start() -> io::Result<Process> {
        let (socket, its_socket) = UnixStream::pair()?;
        // The process sends a whole message at once, and it also receives one at once unless it is
        // late.
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let child = Command::new("/proc/self/exe")
            .arg0("taskdiag")
            .arg(COMMAND)
            .stdin(OwnedFd::from(its_socket))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Process {
            child,
            socket,
            has_directory: false,
            is_late: false,
        })
    }

    fn ask(&mut self, what: u32, number: u64, name: &[u8], payload: &[u8]) -> Result<Said, Lost> {
        served::send(&mut self.socket, what, number, name, payload).map_err(|_| Lost::Ended)?;
        self.is_late = true;
        self.answer(PATIENCE)
    }

    /// Receives the answer. Each part must arrive within the patience.
    fn answer(&mut self, patience: Duration) -> Result<Said, Lost> {
        let mut bytes = Vec::new();
        loop {
            self.wait(patience)?;
            let message = Message::receive(&mut self.socket).map_err(|_| Lost::Ended)?;
            if message.what == what::PART {
                bytes.extend_from_slice(&message.payload);
                continue;
            }
            self.is_late = false;
            return Ok(match (message.what, i32::try_from(message.number)) {
                (what::DONE, _) => Ok(bytes),
                (_, Ok(errno @ 1..)) => Err(io::Error::from_raw_os_error(errno)),
                _ => Err(io::Error::other(String::from_utf8_lossy(&message.name).into_owned())),
            });
        }
    }

    fn wait(&self, patience: Duration) -> Result<(), Lost> {
        match wait_for(self.socket.as_fd(), Instant::now() + patience) {
            Ok(()) => Ok(()),
            Err(Failed::Silent) => Err(Lost::Silent),
            Err(Failed::Errno(_)) => Err(Lost::Ended),
        }
    }

    /// Ends the process. Returns its pid if it waits for the file system and cannot be ended.
    fn end(mut self) -> Option<u32> {
        if !self.is_late && self.ask(what::END, 0, &[], &[]).is_ok() {
            // By now it has closed everything.
            let _ = self.child.wait();
            return None;
        }
        let _ = self.child.kill();
        let deadline = Instant::now() + Duration::from_millis(200);
        while Instant::now() < deadline {
            if let Ok(Some(_)) = self.child.try_wait() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(self.child.id())
    }
}

impl Store for Apart {
    type File = String;

    fn list(&self) -> io::Result<Vec<Listed>> {
        let mut state = self.state();
        let path = state.path.as_os_str().as_bytes().to_owned();
        let what = if state.is_recorder { what::LIST } else { what::LIST_OF };
        let bytes = state.call(what, 0, &path, &[])?;
        let text = String::from_utf8_lossy(&bytes);
        let listed = text.split_terminator('\0').filter_map(|entry| entry.split_once(' '));
        let listed = listed.filter_map(|(bytes, name)| {
            Some(Listed {
                name: name.to_owned(),
                bytes: bytes.parse().ok()?,
            })
        });
        Ok(listed.collect())
    }

    fn create(&mut self, name: &str) -> io::Result<String> {
        let created = self.state().call(what::CREATE, 0, name.as_bytes(), &[]);
        if is_silent(&created) {
            self.state().undo.push((what::REMOVE, 0, name.to_owned()));
        }
        created.map(|_| name.to_owned())
    }

    fn append(&mut self, file: &mut String, bytes: &[u8]) -> io::Result<()> {
        self.state().call(what::APPEND, 0, file.as_bytes(), bytes).map(drop)
    }

    /// Appending already synchronises.
    fn sync(&mut self, _: &mut String) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, file: &mut String, bytes: u64) -> io::Result<()> {
        self.undo(what::TRUNCATE, bytes, file)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.undo(what::REMOVE, 0, name)
    }

    fn space(&self) -> io::Result<Space> {
        let bytes = self.state().call(what::SPACE, 0, &[], &[])?;
        let text = String::from_utf8_lossy(&bytes);
        let numbers = text
            .split_once(' ')
            .and_then(|(total, available)| Some((total.parse().ok()?, available.parse().ok()?)));
        let (total, available) = numbers.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Space { total, available })
    }
}
