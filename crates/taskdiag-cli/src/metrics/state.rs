//! The state shared by the exporter's threads.

use std::collections::HashMap;
use std::sync::Mutex;

use super::tracker::Tracker;

/// What is known of processes and groups.
#[derive(Debug, Default)]
pub struct State {
    pub tracker: Tracker,
    /// The names of users, as far as processes that were read had them.
    pub users: HashMap<u32, String>,
    /// Whether events are available, or why not; `None` until this is known.
    pub events: Option<Result<(), String>>,
    /// The number of lost events.
    pub lost: u64,
}

impl State {
    /// The name of a user; the number if the name is unknown.
    pub fn user(&self, euid: u32) -> String {
        self.users.get(&euid).cloned().unwrap_or_else(|| euid.to_string())
    }
}

/// The state, for use by one thread at a time.
pub type Shared = Mutex<State>;
