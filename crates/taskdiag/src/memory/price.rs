//! Estimates how long walking a process's page tables takes. Pure: sizes and the times of earlier
//! walks in, nanoseconds out.

/// The time of a walk without pages on an ordinary machine: opening, reading and closing two files.
const FIXED_NS: f64 = 20_000.0;

/// The time for a page before anything was measured. It is more than on most machines, so that a
/// first query keeps its deadline.
const PAGE_NS: f64 = 60.0;

/// The least and the most time that a page can take, whatever was measured. The first is less than
/// a read from a cache; the second is that of an emulated machine.
const MIN_PAGE_NS: f64 = 2.0;
const MAX_PAGE_NS: f64 = 5_000.0;

/// The time for an empty page-table entry.
const ENTRY_NS: f64 = 4.0;

/// The weight of a walk relative to that of the next one.
const DECAY: f64 = 0.999;

/// A guess has the weight of a walk over this many pages: walks of small processes do not change
/// the estimates for large ones.
const GUESSED_PAGES: f64 = 262_144.0;

/// The size of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Resident and swapped-out pages.
    pub pages: u64,
    /// The number of its page-table entries. No walk can meet more pages.
    pub entries: u64,
    /// The number of pages that an earlier walk met, and the nanoseconds that it took.
    pub before: Option<(u64, u64)>,
}

/// The times of walks on this host: a line fitted to the measured ones by least squares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate::guessed(PAGE_NS)
    }
}

impl Rate {
    /// A rate of `page_ns` for each page, until large processes have been walked.
    pub(crate) fn guessed(page_ns: f64) -> Rate {
        let page_ns = page_ns.clamp(MIN_PAGE_NS, MAX_PAGE_NS);
        let mut rate = Rate {
            weight: 0.0,
            x: 0.0,
            y: 0.0,
            xx: 0.0,
            xy: 0.0,
        };
        rate.point(0.0, FIXED_NS);
        rate.point(GUESSED_PAGES, FIXED_NS + GUESSED_PAGES * page_ns);
        rate
    }

    fn point(&mut self, x: f64, y: f64) {
        self.weight += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    /// Learns from a walk.
    pub(crate) fn learn(&mut self, pages: u64, ns: u64) {
        for sum in [&mut self.weight, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy] {
            *sum *= DECAY;
        }
        self.point(pages as f64, ns as f64);
    }

    /// Nanoseconds for each page.
    pub(crate) fn page_ns(&self) -> f64 {
        let spread = self.weight * self.xx - self.x * self.x;
        let slope = (self.weight * self.xy - self.x * self.y) / spread;
        if slope.is_finite() {
            slope.clamp(MIN_PAGE_NS, MAX_PAGE_NS)
        } else {
            PAGE_NS
        }
    }

    fn fixed_ns(&self) -> f64 {
        ((self.y - self.page_ns() * self.x) / self.weight).clamp(1_000.0, 10_000_000.0)
    }

    /// The time, in nanoseconds, that walking a process is expected to take.
    pub(crate) fn expected_ns(&self, size: &Size) -> u64 {
        let line = self.fixed_ns() + self.page_ns() * size.pages as f64;
        let seen = match size.before {
            // A walk of the same process says more than walks of others.
            Some((pages, ns)) if pages > 0 => ns as f64 * (size.pages as f64 / pages as f64).max(1.0),
            _ => line,
        };
        seen as u64
    }

    /// The longest time, in nanoseconds, that it might take: if it has as many pages as its page
    /// tables have entries.
    pub(crate) fn worst_ns(&self, size: &Size) -> u64 {
        let empty = size.entries.saturating_sub(size.pages) as f64;
        let line = self.fixed_ns() + self.page_ns() * size.pages as f64 + ENTRY_NS * empty;
        self.expected_ns(size).max(line as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pages(pages: u64) -> Size {
        Size {
            pages,
            ..Size::default()
        }
    }

    /// Check that walks of large processes replace the guess, and walks of small ones do not.
    #[test]
    fn rates_are_learnt() {
        let mut rate = Rate::guessed(60.0);
        assert!((59.0..61.0).contains(&rate.page_ns()));
        (0..1000).for_each(|_| rate.learn(500, 12_000));
        assert!((50.0..70.0).contains(&rate.page_ns()), "{}", rate.page_ns());
        assert!(
            (5_000..60_000).contains(&rate.expected_ns(&pages(500))),
            "{}",
            rate.expected_ns(&pages(500))
        );
        (0..20).for_each(|_| rate.learn(1 << 20, 12_000 + (10 << 20)));
        assert!((8.0..15.0).contains(&rate.page_ns()), "{}", rate.page_ns());
    }

    /// Check that a process that was walked before is expected to take the same time, or longer if
    /// it has grown.
    #[test]
    fn the_same_process_takes_the_same() {
        let rate = Rate::default();
        let size = |pages| Size {
            pages,
            before: Some((1000, 5_000)),
            ..Size::default()
        };
        assert_eq!(rate.expected_ns(&size(1000)), 5_000);
        assert_eq!(rate.expected_ns(&size(500)), 5_000);
        assert_eq!(rate.expected_ns(&size(4000)), 20_000);
    }

    proptest! {
        /// Check that no walks, however strange, lead to an estimate that is not positive, and that
        /// more pages are never expected to take less time.
        #[test]
        fn estimates_are_sane(walks in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..50), size in 0..1u64 << 40) {
            let mut rate = Rate::default();
            for (pages, ns) in walks {
                rate.learn(pages.into(), ns.into());
            }
            let less = rate.expected_ns(&pages(size));
            let more = rate.expected_ns(&pages(size * 2));
            prop_assert!(0 < less && less <= more);
            prop_assert!(rate.worst_ns(&pages(size)) >= less);
        }
    }
}
