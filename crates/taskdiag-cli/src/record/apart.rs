//! The files of a recording, in the hands of a process of their own.
//!
//! A file system may never answer: its server is gone, or its disk. Whoever asks it then waits, and
//! often not even SIGKILL ends that. So a command neither opens nor closes files of a recording: a
//! process that it starts does ([`serve`]). It is waited for as long as [`PATIENCE`]. Then the command
//! says so and does what it can without, and when it ends, it leaves that process behind.
//!
//! The two have a socket, and send each other a [`Message`] by turns.

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

/// How long a file system may take for one thing.
const PATIENCE: Duration = Duration::from_secs(10);

/// The files of one recording.
#[derive(Debug)]
pub struct Apart(Mutex<State>);

#[derive(Debug)]
struct State {
    path: PathBuf,
    /// Whether they are written, too.
    is_recorder: bool,
    process: Option<Process>,
    /// What is done first when the file system answers again: what came of the last thing that was asked
    /// is not known, so it is undone.
    undo: Vec<(u32, u64, String)>,
}

/// The process.
#[derive(Debug)]
struct Process {
    child: Child,
    socket: UnixStream,
    /// Whether it has locked the directory, to record to it.
    has_directory: bool,
    /// Whether the last answer has not come yet.
    is_late: bool,
}

impl Apart {
    /// Makes the directory if there is none, and locks it for this recorder.
    pub fn to_record(path: &Path) -> Result<Apart, Failure> {
        let apart = Apart::new(path, true);
        match apart.space() {
            Ok(_) => Ok(apart),
            Err(error) => Err(Failure::Unanswered(error.to_string())),
        }
    }

    /// For reading a recording.
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

    /// The bytes of a file of it.
    ///
    /// # Errors
    ///
    /// If it is no file, or larger than any that is written.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.state().path.join(name);
        self.state().call(what::READ, 0, path.as_os_str().as_bytes(), &[])
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what undoes something else: now, or when the file system answers again.
    fn undo(&mut self, what: u32, number: u64, name: &str) -> io::Result<()> {
        let mut state = self.state();
        let done = state.call(what, number, name.as_bytes(), &[]);
        if is_silent(&done) {
            state.undo.push((what, number, name.to_owned()));
        }
        done.map(drop)
    }
}

fn is_silent<T>(result: &io::Result<T>) -> bool {
    let kind = result.as_ref().err().map(io::Error::kind);
    kind == Some(io::ErrorKind::TimedOut)
}

/// Why there is no answer.
enum Lost {
    /// It has not come yet.
    Silent,
    /// The process has ended.
    Ended,
}

/// What the process says: the answer, or why it could not be done.
type Said = io::Result<Vec<u8>>;

impl State {
    /// Asks the process for something, once it has done what was asked before.
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
                Err(io::Error::other("the process that has its files has ended"))
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
                    return Ok(Err(io::Error::other(what)));
                }
            },
        };
        if process.is_late {
            // What came of it does not matter any more.
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
        // Who answers sends all of a message at once, and who is not late receives it.
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

    /// The answer, of which each part comes within the patience.
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

    /// Ends it. Returns its number if it waits for the file system and can't be ended.
    fn end(mut self) -> Option<u32> {
        if !self.is_late && self.ask(what::END, 0, &[], &[]).is_ok() {
            // It has closed everything.
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

    /// Appending has done it.
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
