//! Counts processes that end between two readings, from events.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use taskdiag::events::{EventSource, Options};
use taskdiag::{Absent, Event, EventKind, Events, Identity, Value};

use super::by::By;
use super::facts::Facts;
use super::matcher::{Rules, Verdict};
use super::reading::network_at_end;
use super::state::Shared;
use super::tracker::Exit;
use crate::events::cgroups::{Cgroup, Cgroups};
use crate::events::listener::Listener;
use crate::outcome::lock;

/// How long events are batched before they are counted.
const GATHER: Duration = Duration::from_millis(100);

/// Options for exit events from tracepoints: the proc connector does not report processor times.
pub fn options() -> Options {
    Options::default()
        .kinds([EventKind::Exit])
        .source(EventSource::Bpf)
        .gather(GATHER)
        .ring_bytes(1 << 20)
}

/// Counts processes that end.
pub struct Ended {
    shared: Arc<Shared>,
    rules: Arc<Rules>,
    kinds: Vec<By>,
    boot: Timestamp,
    /// Cgroup lookups, if groups depend on cgroups.
    cgroups: Option<Cgroups>,
}

/// The end of a process, and what decides about its group.
struct End {
    exit: Exit,
    comm: Vec<u8>,
    euid: Option<u32>,
    kernel_thread: bool,
    start_ns: i64,
    /// The group of each kind; `None` for users.
    keys: Vec<Option<String>>,
}

impl Ended {
    /// Creates the counter.
    pub fn new(shared: Arc<Shared>, rules: Arc<Rules>, kinds: Vec<By>, boot: Timestamp) -> Ended {
        let in_cgroup = kinds.iter().any(|by| by.is_in_cgroup());
        Ended {
            shared,
            rules,
            kinds,
            boot,
            cgroups: if in_cgroup { Cgroups::new().ok() } else { None },
        }
    }

    fn end(&mut self, event: &Event<'_>) -> Option<End> {
        let start_ns = event.start_ns().ok()?;
        Some(End {
            exit: Exit {
                id: Identity::new(event.pid(), start_ns as u64),
                time_ns: event.time_ns(),
                ppid: event.ppid().ok(),
                runtime_ns: event.runtime_ns().ok(),
                network: network_at_end(event),
                verdict: Verdict::Unknown,
                keys: Vec::new(),
            },
            comm: event.comm().ok()?.to_vec(),
            euid: event.euid().ok(),
            kernel_thread: event.kernel_thread().unwrap_or(false),
            start_ns,
            keys: self.keys(event),
        })
    }

    /// The groups of each kind that follow from the cgroup.
    fn keys(&mut self, event: &Event<'_>) -> Vec<Option<String>> {
        let cgroup = self.cgroups.as_mut().and_then(|cgroups| cgroups.of(event));
        self.kinds.iter().map(|by| of_cgroup(*by, cgroup)).collect()
    }
}

/// The group that follows from a cgroup; `None` for users. The cgroup may be gone.
fn of_cgroup(by: By, cgroup: Option<&Cgroup>) -> Option<String> {
    let value = |field| cgroup.map_or(Err(Absent::Gone), |cgroup| cgroup.value(field));
    by.is_in_cgroup().then(|| by.group(value).name)
}

/// The group of a user.
fn of_user(user: Option<&str>) -> String {
    let value = |_| user.map(|user| Value::Text(user.as_bytes())).ok_or(Absent::Gone);
    By::User.group(value).name
}

impl Listener for Ended {
    fn opened(&mut self, _: EventSource) {
        lock(&self.shared).events = Some(Ok(()));
    }

    fn read(&mut self, events: &mut Events) -> taskdiag::Result<()> {
        let mut ends = Vec::new();
        for event in events.read()? {
            if event.kind() == EventKind::Exit && !event.is_thread() {
                ends.extend(self.end(&event));
            }
        }
        let mut state = lock(&self.shared);
        state.lost = events.lost().count;
        for mut end in ends {
            let user = end.euid.map(|euid| state.user(euid));
            end.exit.verdict = self.rules.group(&Facts {
                pid: end.exit.id.tid(),
                comm: &end.comm,
                arguments: end.kernel_thread.then_some(&[]),
                user: user.as_deref().map(str::as_bytes),
                start_ns: end.start_ns,
                boot: self.boot,
                cgroups: None,
            });
            let keys = end.keys.into_iter();
            end.exit.keys = keys
                .map(|key| key.unwrap_or_else(|| of_user(user.as_deref())))
                .collect();
            state.tracker.end(end.exit);
        }
        Ok(())
    }

    fn failed(&mut self, reason: String) {
        lock(&self.shared).events = Some(Err(reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what belonged to a cgroup that is gone is in no other's group, and not lost.
    #[test]
    fn a_cgroup_that_is_gone_is_unknown() {
        for by in [By::Unit, By::Container, By::Pod] {
            assert_eq!(of_cgroup(by, None).as_deref(), Some("(unknown)"));
        }
        assert_eq!(of_cgroup(By::User, None), None);
        assert_eq!(of_user(Some("www")), "www");
        assert_eq!(of_user(None), "(unknown)");
    }
}
