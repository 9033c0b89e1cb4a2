//! A client, as the loop sees it.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use taskdiag_protocol::wire::{self, Request};

use crate::answer::Answer;
use crate::credentials::{Facts, Peer, ProcFacts};
use crate::quotas::Account;

/// What a client waits for.
#[derive(Debug)]
pub(super) enum State {
    /// It has connected, and waits to be admitted.
    Arriving,
    /// It is admitted, and the loop holds no request of its.
    Idle,
    /// For this request, a reader reads what `/proc` says about it.
    LookingUp(Request),
    /// Its request is queued.
    Queued(Request),
    /// Its request is being answered.
    Answering(Box<Answer>),
    /// It was refused, and has been sent the error.
    Refused,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) socket: OwnedFd,
    pub(super) peer: Peer,
    /// Its facts when it connected, or why there are none yet.
    pub(super) before: Result<Facts, Errno>,
    /// What `/proc` says about it, kept for later requests unless it may change.
    pub(super) proc: Option<ProcFacts>,
    pub(super) account: Account,
    pub(super) state: State,
    /// Which files its request is about, if it is about files.
    pub(super) files: wire::Files,
    /// The events that its socket is watched for.
    pub(super) interest: EventFlags,
    /// When it is disconnected, unless it reads something.
    pub(super) deadline: Option<Instant>,
    pub(super) progress: Progress,
    pub(super) idle_since: Instant,
    /// The kernel may accept descriptors from it.
    pub(super) may_send_descriptors: bool,
}

impl Client {
    /// Counts the time that the loop has waited for it to read. The loop waits no longer.
    pub(super) fn stop_waiting(&mut self) {
        if let Some(since) = self.progress.waiting_since.take() {
            self.progress.waited += since.elapsed();
            self.deadline = None;
        }
    }
}

/// How fast a client reads its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Bytes that it was sent.
    pub(super) sent: usize,
    /// How long the loop has waited for it.
    pub(super) waited: Duration,
    /// Since when the loop has been waiting for it.
    pub(super) waiting_since: Option<Instant>,
}

/// How fast a client must read an answer once its patience is used up, in bytes a second. Otherwise
/// a client that reads a packet now and then would hold memory for ever.
const MIN_RATE: usize = 1 << 20;

impl Progress {
    /// How much longer to wait for the client.
    pub(super) fn time_left(&self, patience: Duration) -> Duration {
        let earned = Duration::from_secs_f64(self.sent as f64 / MIN_RATE as f64);
        (patience + earned).saturating_sub(self.waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a client that reads steadily may take long, and that one that reads a little now
    /// and then may not.
    #[test]
    fn reading_earns_time() {
        let patience = Duration::from_secs(10);
        let progress = |sent, waited| Progress {
            sent,
            waited: Duration::from_secs(waited),
            waiting_since: None,
        };
        assert_eq!(progress(0, 0).time_left(patience), patience);
        assert_eq!(progress(0, 4).time_left(patience), Duration::from_secs(6));
        assert_eq!(progress(5 * MIN_RATE, 12).time_left(patience), Duration::from_secs(3));
        assert_eq!(progress(MIN_RATE, 60).time_left(patience), Duration::ZERO);
    }
}
