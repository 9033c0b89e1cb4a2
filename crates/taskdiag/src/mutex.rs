//! Mutexes whose last holder may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, even if the last holder panicked: no lock here guards anything that can be half done.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
