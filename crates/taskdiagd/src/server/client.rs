//! A client, as the loop knows it.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use taskdiag_protocol::wire::Request;

use crate::accounts::Account;
use crate::answer::Answer;
use crate::facts::{Facts, Particulars, Peer};

#[derive(Debug)]
pub(super) enum State {
    /// It has connected, and waits for being looked at.
    Arriving,
    Idle,
    /// A reader looks up who it is.
    Asking(Request),
    /// In the queue of its account.
    Waiting(Request),
    Answering(Box<Answer>),
    /// It is not let in, and has been told so.
    Refused,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) socket: OwnedFd,
    pub(super) peer: Peer,
    /// As it was when it connected.
    pub(super) before: Result<Facts, i32>,
    /// What a reader found out for the request that is being answered.
    pub(super) particulars: Option<Particulars>,
    pub(super) account: Account,
    pub(super) state: State,
    pub(super) interest: EventFlags,
    /// Until when it has to take something.
    pub(super) deadline: Option<Instant>,
    /// What it has taken of an answer, and how long it was waited for.
    pub(super) progress: Progress,
    pub(super) idle_since: Instant,
    /// There may be descriptors in what it sends.
    pub(super) is_guarded: bool,
    pub(super) generation: u32,
}

/// How a client takes an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) sent: usize,
    pub(super) waited: Duration,
    pub(super) since: Option<Instant>,
}

/// An answer has to be taken so fast, bytes in a second, once patience is over: one who takes a packet now and then holds memory too.
const PACE: usize = 1 << 20;

impl Progress {
    /// How long the client may be waited for from now on.
    pub(super) fn allowed(&self, patience: Duration) -> Duration {
        let earned = Duration::from_secs_f64(self.sent as f64 / PACE as f64);
        (patience + earned).saturating_sub(self.waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that who takes an answer steadily may take its time, and that who takes a little of it now and then may not.
    #[test]
    fn patience_is_earned() {
        let patience = Duration::from_secs(10);
        let progress = |sent, waited| Progress {
            sent,
            waited: Duration::from_secs(waited),
            since: None,
        };
        assert_eq!(progress(0, 0).allowed(patience), patience);
        assert_eq!(progress(0, 4).allowed(patience), Duration::from_secs(6));
        assert_eq!(progress(5 * PACE, 12).allowed(patience), Duration::from_secs(3));
        assert_eq!(progress(PACE, 60).allowed(patience), Duration::ZERO);
    }
}
