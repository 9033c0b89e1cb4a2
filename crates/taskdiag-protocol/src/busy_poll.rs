//! Polling for a short time before sleeping.

use std::time::{Duration, Instant};

/// How long to poll. Waking a sleeping processor takes about 30 µs in a virtual machine, and
/// answering for one process takes less. So a side that polls still receives the next packet if the
/// other side had to be woken first.
const POLL_TIME: Duration = Duration::from_micros(100);

/// A yield that takes longer than this ran another thread.
const YIELDED: Duration = Duration::from_micros(5);

/// The maximum number of waits without polling before polling is tried again.
const SLEEPS: u32 = 64;

/// Decides whether to poll for the next packet or to sleep.
///
/// After a packet about one process, client and broker each poll for a moment, because waking the
/// other side costs more than such an answer. If another thread wants the processor during that
/// time, polling is harmful: that thread may be the other side. The next waits then sleep at once,
/// twice as many each time this happens.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusyPoll {
    /// When to stop polling; `None` means to sleep.
    until: Option<Instant>,
    /// How many of the next waits sleep without polling.
    sleeps: u32,
    /// The value of `sleeps` after the next yield that runs another thread.
    next_sleeps: u32,
}

impl BusyPoll {
    /// Starts polling, unless this wait should sleep.
    pub fn begin(&mut self) {
        if self.until.is_some() {
            // The last poll received its packet, and no other thread wanted the processor.
            self.next_sleeps = 0;
        }
        self.until = match self.sleeps {
            0 => Some(Instant::now() + POLL_TIME),
            _ => None,
        };
        self.sleeps = self.sleeps.saturating_sub(1);
    }

    /// Stops polling.
    pub fn end(&mut self) {
        self.until = None;
    }

    /// Whether to poll once more.
    pub fn goes_on(&mut self) -> bool {
        self.until = self.until.filter(|until| Instant::now() < *until);
        self.until.is_some()
    }

    /// Yields the processor between two polls. Stops polling if another thread took it.
    pub fn yield_processor(&mut self) {
        let began = Instant::now();
        std::thread::yield_now();
        if began.elapsed() > YIELDED {
            self.until = None;
            self.sleeps = self.next_sleeps.max(1);
            self.next_sleeps = (self.sleeps * 2).min(SLEEPS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that polling ends by itself, that some waits sleep at once after a yield to another
    /// thread, and that a poll that receives its packet resets their number.
    #[test]
    fn polling_ends() {
        let mut busy_poll = BusyPoll::default();
        assert!(!busy_poll.goes_on());
        busy_poll.begin();
        while busy_poll.goes_on() {}
        (busy_poll.sleeps, busy_poll.next_sleeps) = (3, 6);
        for _ in 0..3 {
            busy_poll.begin();
            assert!(!busy_poll.goes_on());
        }
        busy_poll.begin();
        assert_eq!((busy_poll.until.is_some(), busy_poll.next_sleeps), (true, 6));
        busy_poll.begin();
        assert_eq!(busy_poll.next_sleeps, 0);
        busy_poll.end();
        assert!(!busy_poll.goes_on());
    }
}
