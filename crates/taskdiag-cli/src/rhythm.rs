//! When samples are due.

use std::thread::sleep;
use std::time::Duration;

use rustix::time::ClockId;
use taskdiag_sys::host::now_ns;

/// When the next sample is due, if the last one was due at `due_ns`. Skips samples whose time has
/// passed, as the kernel's periodic timers do, so that a machine that is too slow is not kept busy.
/// A sample that was taken early starts a new interval.
pub fn next_due(due_ns: u64, every_ns: u64, now_ns: u64) -> u64 {
    match now_ns.checked_sub(due_ns) {
        Some(late_ns) => due_ns.saturating_add(every_ns.saturating_mul(late_ns / every_ns + 1)),
        None => now_ns.saturating_add(every_ns),
    }
}

/// Regular times for samples.
#[derive(Debug)]
pub struct Rhythm {
    every_ns: u64,
    /// When the next sample is due (`CLOCK_MONOTONIC`).
    due_ns: u64,
}

impl Rhythm {
    /// The first sample is due at once.
    pub fn new(every: Duration) -> Rhythm {
        Rhythm {
            every_ns: nanoseconds(every),
            due_ns: now_ns(ClockId::Monotonic),
        }
    }

    /// Changes the interval. This never delays the next sample: it is due after the new interval or
    /// when it was due before, whichever is earlier.
    pub fn set_interval(&mut self, every: Duration) {
        self.every_ns = nanoseconds(every);
        let due_ns = now_ns(ClockId::Monotonic).saturating_add(self.every_ns);
        self.due_ns = self.due_ns.min(due_ns);
    }

    /// The interval.
    pub fn every(&self) -> Duration {
        Duration::from_nanos(self.every_ns)
    }

    /// The time until the next sample is due.
    pub fn rest(&self) -> Duration {
        Duration::from_nanos(self.due_ns.saturating_sub(now_ns(ClockId::Monotonic)))
    }

    /// Moves to the next sample, after one was taken.
    pub fn advance(&mut self) {
        self.due_ns = next_due(self.due_ns, self.every_ns, now_ns(ClockId::Monotonic));
    }

    /// Moves to the next sample, after one was taken, and sleeps until it is due.
    pub fn wait(&mut self) {
        self.advance();
        sleep(self.rest());
    }
}

fn nanoseconds(every: Duration) -> u64 {
    u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Check that samples keep their rhythm, that those that are too late are left out, and that
    /// one that was taken early begins a new interval.
    #[test]
    fn late_samples_are_left_out() {
        for (now, then) in [(100, 110), (109, 110), (110, 120), (135, 140), (99, 109), (90, 100)] {
            assert_eq!(next_due(100, 10, now), then, "{now}");
        }
    }

    /// Check that the first sample is due at once, and that a sample that took longer than the
    /// interval is followed by a pause, not immediately by another one.
    #[test]
    fn a_late_sample_is_followed_by_a_pause() {
        let every = Duration::from_millis(50);
        let began = Instant::now();
        let mut rhythm = Rhythm::new(every);
        assert_eq!(rhythm.rest(), Duration::ZERO);
        sleep(every.mul_f64(2.2));
        rhythm.wait();
        let first = rhythm.due_ns;
        assert!(began.elapsed() >= every * 3, "{:?}", began.elapsed());
        rhythm.wait();
        let grown = rhythm.due_ns - first;
        assert!(grown > 0 && grown % 50_000_000 == 0, "{grown}");
    }

    /// Check that a shorter interval takes effect at once, and that a longer one does not delay the
    /// next sample.
    #[test]
    fn intervals_change_at_once() {
        let mut rhythm = Rhythm::new(Duration::from_secs(1000));
        rhythm.advance();
        rhythm.set_interval(Duration::from_secs(10));
        assert!(rhythm.rest() <= Duration::from_secs(10), "{rhythm:?}");
        rhythm.set_interval(Duration::from_secs(1000));
        assert!(rhythm.rest() <= Duration::from_secs(10), "{rhythm:?}");
    }
}
