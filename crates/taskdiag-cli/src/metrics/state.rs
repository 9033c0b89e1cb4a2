//! What the threads of the exporter share.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::tracker::Tracker;

/// What is known of processes and groups.
#[derive(Debug)]
pub struct State {
    pub tracker: Tracker,
    /// Names of users that processes had which were read.
    pub users: HashMap<u32, String>,
    /// Whether events come, or why not; `None` before that is known.
    pub events: Option<Result<(), String>>,
    /// Events that were lost.
    pub lost: u64,
}

impl State {
    /// The name of a user, or the number if no process that was read told the name.
    pub fn user(&self, euid: u32) -> String {
        self.users.get(&euid).cloned().unwrap_or_else(|| euid.to_string())
    }
}

/// The state, which one thread at a time uses.
#[derive(Debug)]
pub struct Shared(Mutex<State>);

impl Shared {
    /// Begins to follow processes.
    pub fn new(tracker: Tracker) -> Shared {
        Shared(Mutex::new(State {
            tracker,
            users: HashMap::new(),
            events: None,
            lost: 0,
        }))
    }

    /// The state. A thread that panicked leaves one that can still be used.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
