//! Which parts of a file are cached.

use std::os::fd::{AsFd, BorrowedFd};

use taskdiag_core::absent::Absent;
use taskdiag_core::error::Result;

use super::{page_size, size, ByteRange, Quantity, Refusal, Source, Usage};

taskdiag_core::named_enum! {
    /// The state of all pages of a part of a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum State {
        /// Not cached.
        Uncached => "uncached",
        /// Cached, and nothing more is known: mincore(2) answered.
        Cached => "cached",
        /// Cached, and neither dirty nor under writeback.
        Clean => "clean",
        /// Changed since it was last written to disk, or since that write began.
        Dirty => "dirty",
        /// Being written to disk.
        Writeback => "writeback",
        /// Not all pages have the same state.
        Mixed => "mixed",
    }
    /// The name, as in reports: `uncached`, `cached`, `clean`, `dirty`, `writeback`, `mixed`.
    pub fn name;
    impl Display;
}

impl State {
    fn of(usage: &Usage, pages: u64) -> State {
        let dirty_and_writeback = usage.all.map(|all| (all.nr_dirty, all.nr_writeback));
        match (usage.cached, dirty_and_writeback) {
            (0, _) => State::Uncached,
            (cached, _) if cached != pages => State::Mixed,
            (_, None) => State::Cached,
            (_, Some((0, 0))) => State::Clean,
            (_, Some((dirty, _))) if dirty == pages => State::Dirty,
            (_, Some((0, writeback))) if writeback == pages => State::Writeback,
            _ => State::Mixed,
        }
    }
}

/// Adjacent pages in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The index of the first page in the file.
    pub first_page: u64,
    /// The number of pages.
    pub pages: u64,
    /// Their state.
    pub state: State,
    usage: Usage,
}

impl Run {
    /// A quantity in bytes.
    pub fn bytes(&self, quantity: Quantity) -> std::result::Result<u64, Absent> {
        match quantity {
            Quantity::Size => Ok(self.pages * page_size()),
            other => self.usage.bytes(other),
        }
    }
}

/// Calls `each` with the runs of pages in `range` of a file, in order, up to the end of the file.
///
/// It asks the kernel about the whole range, and about halves only where pages have different
/// states: one question is enough for a file that is cached completely or not at all. Parts of
/// `grain` pages are not divided. With a grain above 1, a part whose pages differ is
/// [`State::Mixed`].
///
/// # Errors
///
/// As [`Source::ask`]. `each` may already have been called.
pub fn map(source: Source, file: impl AsFd, range: ByteRange, grain: u64, each: &mut dyn FnMut(Run)) -> Result<()> {
    let file: BorrowedFd<'_> = file.as_fd();
    let page_size = page_size();
    let stat = rustix::fs::fstat(file).map_err(Refusal::from)?;
    let (first_page, pages) = range.pages(size(file, &stat).map_err(Refusal::from)?);
    let mut runs = Runs {
        first_page,
        pages,
        grain: grain.max(1),
        // The offsets of a file's pages fit into 64 bits.
        ask: |first: u64, pages: u64| {
            let range = ByteRange::new(first * page_size, pages * page_size).unwrap_or(ByteRange::ALL);
            source.usage(file, range)
        },
        open: None,
        each,
    };
    if pages > 0 {
        runs.divide(0, pages.div_ceil(runs.grain))?;
    }
    runs.end();
    Ok(())
}

/// Asks about a range, given as the index of the first page and the number of pages, and divides
/// it.
struct Runs<'a, A> {
    first_page: u64,
    pages: u64,
    grain: u64,
    ask: A,
    /// The last run, which more pages may extend.
    open: Option<Run>,
    each: &'a mut dyn FnMut(Run),
}

impl<A: FnMut(u64, u64) -> std::result::Result<Usage, Refusal>> Runs<'_, A> {
    /// Asks about the grains in `from..to`.
    fn divide(&mut self, from: u64, to: u64) -> std::result::Result<(), Refusal> {
        let first = from * self.grain;
        let pages = self.pages.min(to * self.grain) - first;
        let usage = (self.ask)(self.first_page + first, pages)?;
        let state = State::of(&usage, pages);
        if state == State::Mixed && to - from > 1 {
            let middle = middle(from, to);
            self.divide(from, middle)?;
            return self.divide(middle, to);
        }
        self.add(Run {
            first_page: self.first_page + first,
            pages,
            state,
            usage,
        });
        Ok(())
    }

    /// Joins a run to the previous one if both have the same state.
    fn add(&mut self, run: Run) {
        match &mut self.open {
            Some(open) if open.state == run.state && run.state != State::Mixed => {
                open.pages += run.pages;
                open.usage.add(run.usage);
            }
            _ => {
                self.end();
                self.open = Some(run);
            }
        }
    }

    fn end(&mut self) {
        if let Some(run) = self.open.take() {
            (self.each)(run);
        }
    }
}

/// Where to divide: at the multiple of the highest power of two. Large pages start at multiples of
/// their size.
fn middle(from: u64, to: u64) -> u64 {
    let last = to - 1;
    last & (u64::MAX << (from ^ last).ilog2())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use taskdiag_sys::pagecache::Cachestat;

    use super::*;

    /// The runs of an invented file, and the number of questions that they took.
    fn runs(cached: &[bool], dirty: &BTreeSet<u64>, first_page: u64, grain: u64) -> (Vec<Run>, usize) {
        let (mut found, mut asked) = (Vec::new(), 0);
        let mut runs = Runs {
            first_page,
            pages: cached.len() as u64,
            grain,
            ask: |first: u64, pages: u64| {
                asked += 1;
                let first = first - first_page;
                let is_cached = |page: &u64| cached[*page as usize];
                let pages = first..first + pages;
                Ok(Usage {
                    cached: pages.clone().filter(is_cached).count() as u64,
                    all: Some(Cachestat {
                        nr_dirty: pages.filter(is_cached).filter(|page| dirty.contains(page)).count() as u64,
                        ..Cachestat::default()
                    }),
                })
            },
            open: None,
            each: &mut |run| found.push(run),
        };
        runs.divide(0, runs.pages.div_ceil(grain)).expect("an answer");
        runs.end();
        (found, asked)
    }

    /// Check that one question is enough if all pages have the same state, and that few are enough
    /// if one page differs.
    #[test]
    fn only_what_differs_is_divided() {
        let none = BTreeSet::new();
        for all in [true, false] {
            let (found, asked) = runs(&[all; 1000], &none, 7, 1);
            assert_eq!((found.len(), asked, found[0].pages), (1, 1, 1000));
        }
        let mut cached = [false; 1024];
        cached[700] = true;
        let (found, asked) = runs(&cached, &none, 0, 1);
        assert_eq!(found.iter().map(|run| run.pages).collect::<Vec<_>>(), [700, 1, 323]);
        assert_eq!(asked, 21);
    }

    proptest! {
        /// Check that runs follow each other without a gap, are as long as possible, and have the
        /// state of each page.
        #[test]
        fn runs_are_exact(
            cached in prop::collection::vec(any::<bool>(), 1..300),
            dirty in prop::collection::btree_set(0_u64..300, 0..60),
            first_page in 0_u64..1000,
            grain in 1_u64..9,
        ) {
            let (found, _) = runs(&cached, &dirty, first_page, grain);
            let mut next = first_page;
            let mut before = None;
            for run in found {
                prop_assert_eq!(run.first_page, next);
                next += run.pages;
                let pages = run.first_page - first_page..next - first_page;
                let is_cached = |page: u64| cached[page as usize];
                let is_dirty = |page: u64| is_cached(page) && dirty.contains(&page);
                let is_so = |page| match run.state {
                    State::Uncached => !is_cached(page),
                    State::Clean => is_cached(page) && !is_dirty(page),
                    State::Dirty => is_dirty(page),
                    State::Writeback | State::Cached => false,
                    State::Mixed => true,
                };
                prop_assert!(pages.clone().all(is_so));
                prop_assert!(run.state != State::Mixed || (run.pages <= grain && grain > 1));
                prop_assert!(before != Some(run.state) || run.state == State::Mixed);
                before = Some(run.state);
                prop_assert_eq!(run.usage.cached, pages.clone().filter(|&page| is_cached(page)).count() as u64);
                prop_assert_eq!(run.usage.all.expect("all counts").nr_dirty, pages.filter(|&page| is_dirty(page)).count() as u64);
            }
            prop_assert_eq!(next, first_page + cached.len() as u64);
        }
    }
}
