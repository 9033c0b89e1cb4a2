//! Which tasks have changed since the answer before.

use std::collections::HashMap;

use taskdiag_core::identity::Identity;
use taskdiag_core::snapshot::Snapshot;

/// The processor times of an earlier answer, to tell which tasks have changed where the kernel's side does not.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// In nanoseconds.
    seen: HashMap<Identity, u64>,
}

impl Changes {
    /// Drops the tasks that are as they were in the answer before, and remembers this one.
    pub(super) fn retain_changed(&mut self, snapshot: &mut Snapshot) {
        let before = std::mem::take(&mut self.seen);
        snapshot.retain(|task| {
            let (Ok(utime), Ok(stime)) = (task.utime_ns(), task.stime_ns()) else {
                return true;
            };
            let (identity, now) = (Identity::of(task.record().header()), utime.saturating_add(stime));
            self.seen.insert(identity, now);
            before.get(&identity) != Some(&now)
        });
    }
}
