//! The keeper: a process that starts the loop's helpers, and ends those that do not come back. It has what they need, and hears two
//! numbers from the loop.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::exit;
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};
use rustix::process::{kill_process, waitpid, Pid, Signal, WaitOptions};
use zerocopy::native_endian::U32;
use zerocopy::IntoBytes as _;

use crate::job::{word, Word};
use crate::log::{log, Level};
use crate::{closer, reader, sandbox, sys};

/// Helpers at a time, those that do not end included.
const MOST: usize = 40;

/// How often it is looked who has ended, while somebody is to.
const LOOK: Duration = Duration::from_millis(10);

/// The loop's side of it.
#[derive(Debug)]
pub struct Keeper {
    channel: OwnedFd,
}

/// What the keeper says.
#[derive(Debug)]
pub enum Said {
    /// A reader, or a closer, has been started, or none could be.
    Reader(Option<(u32, OwnedFd)>),
    /// See above.
    Closer(Option<(u32, OwnedFd)>),
    /// A helper has ended.
    Ended(u32),
}

impl Keeper {
    /// Starts it. To be called while this process has one thread and nothing that a helper must not have.
    pub fn start(is_confined: bool) -> io::Result<Keeper> {
        let (ours, theirs) = pair()?;
        match sys::fork()? {
            Some(_) => {
                rustix::io::ioctl_fionbio(&ours, true)?;
                Ok(Keeper { channel: ours })
            }
            None => {
                drop(ours);
                // The listening socket, for one, is to end with the loop.
                sys::close_all_but(&theirs);
                let prepared = sandbox::become_keeper(is_confined);
                if let Err(error) = prepared {
                    log(Level::Error, format_args!("the keeper: {error}"));
                    exit(1);
                }
                keep(theirs, is_confined);
                exit(0);
            }
        }
    }

    /// Asks for a helper, or that one is ended.
    pub fn ask(&self, what: u32, pid: u32) -> Result<(), Errno> {
        let asked = Word {
            what: U32::new(what),
            pid: U32::new(pid),
        };
        sys::send(self.channel.as_fd(), asked.as_bytes(), None, true)
    }

    /// What it says next, if it does now. An error is its end.
    pub fn hear(&self) -> Result<Option<Said>, Errno> {
        let mut said = Word::default();
        let (len, file) = match sys::receive_with_file(&self.channel, said.as_mut_bytes()) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            other => other?,
        };
        if len != size_of::<Word>() {
            return Err(Errno::PIPE);
        }
        let pid = said.pid.get();
        let helper = file.map(|file| (pid, file));
        match said.what.get() {
            word::READER => Ok(Some(Said::Reader(helper))),
            word::CLOSER => Ok(Some(Said::Closer(helper))),
            word::ENDED => Ok(Some(Said::Ended(pid))),
            _ => Err(Errno::PROTO),
        }
    }

    /// To be watched.
    pub fn channel(&self) -> &OwnedFd {
        &self.channel
    }
}

fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

fn keep(channel: OwnedFd, is_confined: bool) {
    let mut helpers: Vec<Pid> = Vec::new();
    let mut killed: Vec<Pid> = Vec::new();
    loop {
        let look = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK.subsec_nanos().into(),
        };
        let timeout = (!killed.is_empty()).then_some(&look);
        let heard = poll(&mut [PollFd::new(&channel, PollFlags::IN)], timeout);
        let mut ended = Vec::new();
        helpers.retain(|&helper| {
            let is_there = matches!(waitpid(Some(helper), WaitOptions::NOHANG), Ok(None));
            if !is_there {
                ended.push(helper);
            }
            is_there
        });
        killed.retain(|helper| !ended.contains(helper));
        for helper in ended {
            say(&channel, word::ENDED, Some(helper), None);
        }
        match heard {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        let mut asked = Word::default();
        match rustix::net::recv(&channel, asked.as_mut_bytes(), rustix::net::RecvFlags::empty()) {
            Ok((len, _)) if len == size_of::<Word>() => {}
            Err(Errno::INTR) => continue,
            _ => return,
        }
        match asked.what.get() {
            word::START_READER => start(&channel, &mut helpers, word::READER, is_confined),
            word::START_CLOSER => start(&channel, &mut helpers, word::CLOSER, is_confined),
            word::KILL => {
                let helper = Pid::from_raw(asked.pid.get() as i32);
                // Nobody else has its number before it was waited for.
                if let Some(helper) = helper.filter(|helper| helpers.contains(helper)) {
                    let _ = kill_process(helper, Signal::KILL);
                    killed.push(helper);
                }
            }
            _ => return,
        }
    }
}

/// Starts a helper and hands its socket over.
fn start(channel: &OwnedFd, helpers: &mut Vec<Pid>, what: u32, is_confined: bool) {
    let started = if helpers.len() < MOST {
        pair().map_err(io::Error::from).and_then(|(ours, theirs)| {
            match sys::fork()? {
                Some(pid) => Ok((pid, ours)),
                // The helper, which has its own end and nothing else of the keeper's.
                None => {
                    drop(ours);
                    sys::close_all_but(&theirs);
                    let is_ready = match what {
                        word::READER => sandbox::become_reader(is_confined),
                        _ => sandbox::become_closer(is_confined),
                    };
                    match (is_ready.is_ok(), what) {
                        (true, word::READER) => reader::serve(&theirs),
                        (true, _) => closer::serve(&theirs),
                        (false, _) => exit(1),
                    }
                    exit(0);
                }
            }
        })
    } else {
        Err(io::ErrorKind::ResourceBusy.into())
    };
    match started {
        Ok((pid, socket)) => {
            helpers.push(pid);
            say(channel, what, Some(pid), Some(&socket));
        }
        Err(_) => say(channel, what, None, None),
    }
}

fn say(channel: &OwnedFd, what: u32, pid: Option<Pid>, socket: Option<&OwnedFd>) {
    let said = Word {
        what: U32::new(what),
        pid: U32::new(pid.map_or(0, |pid| pid.as_raw_nonzero().get() as u32)),
    };
    if sys::send(channel.as_fd(), said.as_bytes(), socket.map(OwnedFd::as_fd), false).is_err() {
        exit(1);
    }
}
