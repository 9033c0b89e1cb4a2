//! The keeper: a process that starts helpers for the loop, and kills them. It has the rights that
//! helpers need, and accepts only messages of two numbers.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::exit;
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::{retry_on_intr, Errno};
use rustix::net::{socketpair, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{kill_process, waitpid, Pid, Signal, WaitOptions};
use zerocopy::native_endian::U32;
use zerocopy::{IntoBytes as _, TryFromBytes as _};

use super::messages::{KeeperMessage, Role, ENDED, KILL};
use super::{closer, reader};
use crate::log::{log, Level};
use crate::{sandbox, sys};

/// The most helpers at a time, killed ones that have not ended included.
const MAX_HELPERS: usize = 40;

/// How often the keeper checks which helpers have ended, while it waits for a killed one.
const REAP_PERIOD: Duration = Duration::from_millis(10);

/// The loop's end of the channel to the keeper.
#[derive(Debug)]
pub struct Keeper {
    /// It becomes readable with a report.
    pub channel: OwnedFd,
}

/// What the keeper reports.
#[derive(Debug)]
pub enum Report {
    /// A helper was started: its pid and socket. `None`: it could not be started.
    Started(Role, Option<(u32, OwnedFd)>),
    /// A helper has ended.
    Ended(u32),
}

impl Keeper {
    /// Starts the keeper. This process must have one thread, and no descriptor or right that a
    /// helper must not have.
    pub fn start(is_confined: bool) -> io::Result<Keeper> {
        let (ours, theirs) = channel()?;
        match sys::fork()? {
            Some(_) => {
                rustix::io::ioctl_fionbio(&ours, true)?;
                Ok(Keeper { channel: ours })
            }
            None => {
                drop(ours);
                // For example, the listening socket must be closed when the loop ends.
                sys::close_all_but(&theirs);
                if let Err(error) = sandbox::become_keeper(is_confined) {
                    log(
                        Level::Error,
                        format_args!("the keeper can't give up its rights: {error}"),
                    );
                    exit(1);
                }
                serve(&theirs, is_confined);
                exit(0);
            }
        }
    }

    /// Sends a request: a kind of [`KeeperMessage`], and the pid of a helper or 0. Does not wait.
    pub fn send(&self, kind: u32, pid: u32) -> Result<(), Errno> {
        let message = KeeperMessage {
            kind: U32::new(kind),
            pid: U32::new(pid),
        };
        sys::send_with_file(self.channel.as_fd(), message.as_bytes(), None, SendFlags::DONTWAIT)
    }

    /// The next report, if there is one. An error means that the keeper has ended.
    pub fn receive(&self) -> Result<Option<Report>, Errno> {
        let mut message = KeeperMessage::default();
        let (len, file) = match sys::receive_with_file(&self.channel, message.as_mut_bytes()) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            other => other?,
        };
        if len != size_of::<KeeperMessage>() {
            return Err(Errno::PIPE);
        }
        let pid = message.pid.get();
        match (message.kind.get(), Role::try_read_from_bytes(message.kind.as_bytes())) {
            (_, Ok(role)) => Ok(Some(Report::Started(role, file.map(|file| (pid, file))))),
            (ENDED, _) => Ok(Some(Report::Ended(pid))),
            _ => Err(Errno::PROTO),
        }
    }
}

fn channel() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Starts and kills helpers until the loop has ended.
fn serve(channel: &OwnedFd, is_confined: bool) {
    let mut helpers: Vec<Pid> = Vec::new();
    let mut killed: Vec<Pid> = Vec::new();
    loop {
        let period = Timespec {
            tv_sec: 0,
            tv_nsec: REAP_PERIOD.subsec_nanos().into(),
        };
        let timeout = (!killed.is_empty()).then_some(&period);
        let polled = poll(&mut [PollFd::new(channel, PollFlags::IN)], timeout);
        for ended in reap(&mut helpers) {
            killed.retain(|helper| *helper != ended);
            report(channel, ENDED, Some(ended), None);
        }
        match polled {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        let mut message = KeeperMessage::default();
        match retry_on_intr(|| rustix::net::recv(channel, message.as_mut_bytes(), RecvFlags::empty())) {
            Ok((len, _)) if len == size_of::<KeeperMessage>() => {}
            _ => return,
        }
        match (message.kind.get(), Role::try_read_from_bytes(message.kind.as_bytes())) {
            (_, Ok(role)) => start(channel, &mut helpers, role, is_confined),
            (KILL, _) => {
                let helper = i32::try_from(message.pid.get()).ok().and_then(Pid::from_raw);
                // Its pid can't belong to another process: it has not been waited for.
                if let Some(helper) = helper.filter(|helper| helpers.contains(helper)) {
                    let _ = kill_process(helper, Signal::KILL);
                    killed.push(helper);
                }
            }
            _ => return,
        }
    }
}

/// Removes the helpers that have ended, and returns them.
fn reap(helpers: &mut Vec<Pid>) -> Vec<Pid> {
    let mut ended = Vec::new();
    helpers.retain(|&helper| {
        let is_running = matches!(waitpid(Some(helper), WaitOptions::NOHANG), Ok(None));
        if !is_running {
            ended.push(helper);
        }
        is_running
    });
    ended
}

/// Starts a helper, and reports it with its socket.
fn start(channel: &OwnedFd, helpers: &mut Vec<Pid>, role: Role, is_confined: bool) {
    let started = if helpers.len() < MAX_HELPERS {
        fork_helper(role, is_confined)
    } else {
        Err(io::ErrorKind::ResourceBusy.into())
    };
    match started {
        Ok((pid, socket)) => {
            helpers.push(pid);
            report(channel, role as u32, Some(pid), Some(&socket));
        }
        Err(_) => report(channel, role as u32, None, None),
    }
}

fn fork_helper(role: Role, is_confined: bool) -> io::Result<(Pid, OwnedFd)> {
    let (ours, theirs) = channel()?;
    if let Some(pid) = sys::fork()? {
        return Ok((pid, ours));
    }
    // The helper. It keeps its own end of the channel and nothing else of the keeper's.
    drop(ours);
    sys::close_all_but(&theirs);
    let confined = match role {
        Role::Reader => sandbox::become_reader(is_confined),
        Role::Closer => sandbox::become_closer(is_confined),
    };
    if confined.is_err() {
        exit(1);
    }
    match role {
        Role::Reader => reader::serve(&theirs),
        Role::Closer => closer::serve(&theirs),
    }
    exit(0)
}

fn report(channel: &OwnedFd, kind: u32, pid: Option<Pid>, socket: Option<&OwnedFd>) {
    let message = KeeperMessage {
        kind: U32::new(kind),
        pid: U32::new(pid.map_or(0, |pid| pid.as_raw_nonzero().get() as u32)),
    };
    let file = socket.map(OwnedFd::as_fd);
    if sys::send_with_file(channel.as_fd(), message.as_bytes(), file, SendFlags::empty()).is_err() {
        exit(1);
    }
}
