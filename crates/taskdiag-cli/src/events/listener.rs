//! A thread that listens to events while the command does other work.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::event::{eventfd, EventfdFlags, PollFd, PollFlags, Timespec};
use taskdiag::events::{EventSource, Options};
use taskdiag::Events;

use crate::proc;

/// A receiver of events.
pub trait Listener: Send + 'static {
    /// Events are open.
    fn opened(&mut self, source: EventSource);

    /// Called when there may be events.
    ///
    /// # Errors
    ///
    /// Fails if events can't be read. No more events follow.
    fn read(&mut self, events: &mut Events) -> taskdiag::Result<()>;

    /// Events could not be opened, or reading them failed.
    fn failed(&mut self, reason: String);
}

/// A thread that reads events until this value is dropped.
#[derive(Debug)]
pub struct Listening {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Starts opening events, which takes some tens of milliseconds.
    pub fn begin(options: Options, mut listener: impl Listener) -> io::Result<Listening> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("events".to_owned()).spawn(move || {
            if let Err(error) = listen(&options, &mut listener, &stopped) {
                listener.failed(format!("{error:#}"));
            }
        })?;
        Ok(Listening {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads events until asked to stop.
fn listen(options: &Options, listener: &mut impl Listener, stop: &OwnedFd) -> taskdiag::Result<()> {
    let mut events = proc::events(options)?;
    listener.opened(events.source());
    loop {
        listener.read(&mut events)?;
        let is_over = rustix::event::poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&Timespec::default()));
        if is_over != Ok(0) {
            return Ok(());
        }
        events.wait(None, Some(stop.as_fd()))?;
    }
}
