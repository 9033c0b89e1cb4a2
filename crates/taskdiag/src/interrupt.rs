//! Lets a caller abandon a query that waits. A language such as Python needs this: it runs signal
//! handlers only between its own instructions.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// How long to continue before the caller is asked again.
const PAUSE: Duration = Duration::from_millis(50);

struct Check {
    is_over: Box<dyn FnMut() -> bool>,
    last: Instant,
    has_ended: bool,
}

thread_local! {
    /// The check for queries of this thread. It is taken out while it runs, so that what it calls
    /// may query, too.
    static CHECK: RefCell<Option<Check>> = const { RefCell::new(None) };
}

/// Restores the check of the outer call, even if `work` panics.
struct Outer(Option<Check>);

impl Drop for Outer {
    fn drop(&mut self) {
        CHECK.with(|check| check.replace(self.0.take()));
    }
}

/// Runs `work`, which queries in this thread. While a query waits, calls `is_over` twenty times a
/// second, and at once after a signal. Once that returns true, `work` returns soon, and its result,
/// which is incomplete, is replaced by `None`. Then drop the handle that it used: it may have
/// remembered incomplete data.
pub fn interruptible<T>(is_over: impl FnMut() -> bool + 'static, work: impl FnOnce() -> T) -> Option<T> {
    let check = Check {
        is_over: Box::new(is_over),
        last: Instant::now(),
        has_ended: false,
    };
    let _outer = Outer(CHECK.with(|place| place.replace(Some(check))));
    let done = work();
    (!has_ended()).then_some(done)
}

fn has_ended() -> bool {
    CHECK.with(|check| check.borrow().as_ref().is_some_and(|check| check.has_ended))
}

/// Whether the caller has abandoned its query. Loops that wait call this often.
pub fn is_interrupted() -> bool {
    ask(PAUSE)
}

/// The same, where a signal has just interrupted a system call.
pub(crate) fn is_interrupted_now() -> bool {
    ask(Duration::ZERO)
}

fn ask(pause: Duration) -> bool {
    let is_due = |check: &mut Check| !check.has_ended && check.last.elapsed() >= pause;
    let due = CHECK.with(|check| check.borrow_mut().take_if(is_due));
    let Some(mut check) = due else {
        return has_ended();
    };
    check.has_ended = (check.is_over)();
    check.last = Instant::now();
    let has_ended = check.has_ended;
    CHECK.with(|place| place.replace(Some(check)));
    has_ended
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// Check that interrupted work has no result, that queries made by the check are not
    /// interrupted with it, and that nothing is left behind.
    #[test]
    fn interrupted_work_has_no_result() {
        assert!(!is_interrupted_now());
        assert_eq!(interruptible(|| true, || 1), Some(1));
        assert_eq!(
            interruptible(|| true, || is_interrupted_now() && is_interrupted()),
            None
        );
        let calls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&calls);
        let ends_later = move || {
            counted.set(counted.get() + 1);
            assert_eq!(interruptible(|| false, is_interrupted_now), Some(false));
            counted.get() == 2
        };
        let work = || {
            // It is not called more often than that.
            while !is_interrupted() {
                std::hint::spin_loop();
            }
        };
        let began = Instant::now();
        assert_eq!(interruptible(ends_later, work), None);
        assert!(began.elapsed() >= 2 * PAUSE);
        assert_eq!(calls.get(), 2);
        assert!(!is_interrupted_now());
    }
}
