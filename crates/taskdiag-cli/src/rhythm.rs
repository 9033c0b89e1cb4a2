//! When samples are due.

use std::thread::sleep;
use std::time::Duration;

use rustix::time::ClockId;
use taskdiag_sys::host::now_ns;

/// When the sample after the one that was due at `due_ns` is due. Samples whose time has passed are
/// left out, as the kernel's periodic timers do, so that a machine that is too slow for them is not
/// kept busy.
pub fn next_due(due_ns: u64, every_ns: u64, now_ns: u64) -> u64 {
    let late_ns = now_ns.saturating_sub(due_ns);
    due_ns.saturating_add(every_ns.saturating_mul(late_ns / every_ns + 1))
}

/// Regular times for samples.
#[derive(Debug)]
pub struct Rhythm {
    every_ns: u64,
    /// When the last sample was due (`CLOCK_MONOTONIC`).
    due_ns: Option<u64>,
}

impl Rhythm {
    /// The first sample is due at once.
    pub fn new(every: Duration) -> Rhythm {
        Rhythm {
            every_ns: u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1),
            due_ns: None,
        }
    }

    /// Sleeps until the next sample is due.
    pub fn wait(&mut self) {
        let now = now_ns(ClockId::Monotonic);
        let due = self.due_ns.map_or(now, |due| next_due(due, self.every_ns, now));
        sleep(Duration::from_nanos(due - now));
        self.due_ns = Some(due);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Check that samples keep their rhythm, and that those that are too late are left out.
    #[test]
    fn late_samples_are_left_out() {
        for (now, then) in [(100, 110), (109, 110), (110, 120), (135, 140), (90, 110)] {
            assert_eq!(next_due(100, 10, now), then, "{now}");
        }
    }

    /// Check that nothing waits for the first sample, and that one that took longer than the interval
    /// is followed by a pause, not by another one at once.
    #[test]
    fn a_late_sample_is_followed_by_a_pause() {
        let every = Duration::from_millis(50);
        let mut rhythm = Rhythm::new(every);
        let began = Instant::now();
        rhythm.wait();
        sleep(every.mul_f64(2.2));
        rhythm.wait();
        let first = rhythm.due_ns;
        assert!(
            began.elapsed() >= every * 3 - Duration::from_millis(1),
            "{:?}",
            began.elapsed()
        );
        rhythm.wait();
        let grown = rhythm.due_ns.zip(first).map(|(now, before)| now - before);
        assert!(
            grown.is_some_and(|grown| grown > 0 && grown % 50_000_000 == 0),
            "{grown:?}"
        );
    }
}
