//! Looking for a while instead of sleeping at once.

use std::time::{Duration, Instant};

/// How long it is looked. To wake a processor that sleeps takes a virtual machine some thirty microseconds, and the broker tells of one
/// process in less: so who stays awake meets the other one even if that had to be woken.
const LINGER: Duration = Duration::from_micros(100);

/// Giving way takes longer than that if there is somebody to give way to.
const GIVEN_WAY: Duration = Duration::from_micros(5);

/// How often it is slept at once, at most, before it is tried again whether the processor is still wanted.
const SLEEPS: u32 = 64;

/// Client and broker each look for what the other one says of a single process before they sleep: unless somebody else wants the
/// processor meanwhile, who may be the other one. Then they sleep at once for some time, each time for twice as long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linger {
    until: Option<Instant>,
    /// How often it is slept at once from now on, and from when it gives way the next time.
    sleeps: u32,
    next_sleeps: u32,
}

impl Linger {
    /// Begins, unless it is better to sleep.
    pub fn begin(&mut self) {
        if self.until.is_some() {
            // What was looked for came, and nobody else did.
            self.next_sleeps = 0;
        }
        self.until = match self.sleeps {
            0 => Some(Instant::now() + LINGER),
            _ => None,
        };
        self.sleeps = self.sleeps.saturating_sub(1);
    }

    /// Ends.
    pub fn end(&mut self) {
        self.until = None;
    }

    /// Whether to look once more.
    pub fn goes_on(&mut self) -> bool {
        self.until = self.until.filter(|until| Instant::now() < *until);
        self.until.is_some()
    }

    /// Between two looks.
    pub fn give_way(&mut self) {
        let began = Instant::now();
        std::thread::yield_now();
        if began.elapsed() > GIVEN_WAY {
            self.until = None;
            self.sleeps = self.next_sleeps.max(1);
            self.next_sleeps = (self.sleeps * 2).min(SLEEPS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that it ends by itself, and that who gave way sleeps at once for some time, until somebody comes.
    #[test]
    fn lingering_ends() {
        let mut linger = Linger::default();
        assert!(!linger.goes_on());
        linger.begin();
        while linger.goes_on() {}
        (linger.sleeps, linger.next_sleeps) = (3, 6);
        for _ in 0..3 {
            linger.begin();
            assert!(!linger.goes_on());
        }
        linger.begin();
        assert_eq!((linger.until.is_some(), linger.next_sleeps), (true, 6));
        linger.begin();
        assert_eq!(linger.next_sleeps, 0);
        linger.end();
        assert!(!linger.goes_on());
    }
}
