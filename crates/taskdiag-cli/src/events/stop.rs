//! When watching ends: at a signal, or when the output has no reader.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{epoll, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;

/// A descriptor that becomes readable when the command should end.
#[derive(Debug)]
pub struct Stop {
    epoll: OwnedFd,
    _signals: OwnedFd,
}

impl Stop {
    const SIGNAL: u64 = 0;
    const OUTPUT: u64 = 1;

    /// Waits for Ctrl-C, for SIGTERM, and for the reader of standard output to go away.
    pub fn new() -> io::Result<Stop> {
        let stop = Stop::at_signals()?;
        // Requests no events: EPOLLERR and EPOLLHUP are always reported (epoll_ctl(2)). epoll
        // refuses regular files, but they have no reader.
        let output = epoll::EventData::new_u64(Stop::OUTPUT);
        match epoll::add(&stop.epoll, rustix::stdio::stdout(), output, epoll::EventFlags::empty()) {
            Ok(()) | Err(Errno::PERM) => Ok(stop),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for Ctrl-C and SIGTERM, for a command that writes nothing.
    pub fn at_signals() -> io::Result<Stop> {
        let signals = taskdiag_sys::signals::signalfd(&[Signal::INT.as_raw(), Signal::TERM.as_raw()])?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &signals,
            epoll::EventData::new_u64(Stop::SIGNAL),
            epoll::EventFlags::IN,
        )?;
        Ok(Stop {
            epoll,
            _signals: signals,
        })
    }

    /// The descriptor.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether a signal arrived. An error if the output has no reader.
    pub fn was_asked(&self) -> io::Result<bool> {
        let mut buffer = Vec::with_capacity(2);
        let now = Timespec::default();
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut buffer), Some(&now))?;
        let has = |data: u64| buffer.iter().any(|event| event.data.u64() == data);
        if has(Stop::OUTPUT) {
            Err(io::ErrorKind::BrokenPipe.into())
        } else {
            Ok(has(Stop::SIGNAL))
        }
    }
}
