//! What a client may see. Its credentials when it connected and its credentials now must both allow
//! it.

use taskdiag_core::field::{Group, Groups};
use taskdiag_protocol::access::{Object, Sight, Subject};
use taskdiag_protocol::wire::{self, show};

use super::{Facts, IdMap};

/// The groups of fields that observers see of every task.
const OBSERVED: [Group; 5] = [Group::Base, Group::Cred, Group::Cpu, Group::Faults, Group::Mem];

/// The attributes of task_diag that observers see of every task.
pub const OBSERVED_BITS: u64 = show::BASE | show::CRED | show::STAT | show::STATM;

/// The groups of fields that observers see of every task, as a set.
pub fn observed_groups() -> Groups {
    OBSERVED.into_iter().fold(Groups::NONE, Groups::with)
}

/// A client's credentials: when it connected, and now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Viewer {
    /// When it connected.
    pub before: Subject,
    /// Now.
    pub now: Subject,
    /// Whether it is in the group of observers, and was when it connected.
    pub is_observer: bool,
    /// User ids as its namespace shows them.
    pub users: IdMap,
    /// Group ids as its namespace shows them.
    pub groups: IdMap,
    /// The groups that this kernel can't read from the client's namespaces and root.
    pub lacks: Groups,
}

impl Viewer {
    /// Makes a viewer of a client's facts when it connected and now, and of the groups that can't
    /// be read for it.
    pub fn new(before: &Facts, now: &Facts, lacks: Groups) -> Viewer {
        Viewer {
            before: Subject {
                pid: now.subject.pid,
                ..before.subject.clone()
            },
            now: now.subject.clone(),
            is_observer: before.is_observer && now.is_observer,
            users: now.users.clone(),
            groups: now.groups.clone(),
            lacks,
        }
    }

    /// A viewer that sees nothing, for answers without tasks.
    pub fn nobody() -> Viewer {
        let nobody = Subject {
            pid: 0,
            own: Default::default(),
            fsuid: u32::MAX,
            fsgid: u32::MAX,
            euid: u32::MAX,
            capabilities: 0,
            user_ns: 0,
            user_ns_level: u32::MAX,
            landlock: 0,
            hidden_pid: 0,
            confined: true,
            counts_files: false,
            may_attach: false,
        };
        Viewer {
            before: nobody.clone(),
            now: nobody,
            is_observer: false,
            users: IdMap::default(),
            groups: IdMap::default(),
            lacks: Groups::NONE,
        }
    }

    /// Whether it is in a Landlock domain, or was: it sees no task outside of it.
    pub fn is_in_landlock_domain(&self) -> bool {
        self.before.landlock != 0 || self.now.landlock != 0
    }

    /// What it may see of a task that it may trace. `None` if it may not trace it.
    pub fn sight(&self, object: &Object<'_>) -> Option<Sight> {
        let now = self.now.sight(object)?;
        if self.before == self.now {
            Some(now)
        } else {
            Some(now.and(self.before.sight(object)?))
        }
    }

    /// Whether it sees every task, and the bits that it sees of every task.
    pub fn sees_of_all(&self) -> (bool, u64) {
        if self.before.sees_all() && self.now.sees_all() {
            return (true, wire::ALL_BITS);
        }
        if self.is_observer {
            let groups = u64::from(observed_groups().0) << show::GROUPS_SHIFT;
            (false, OBSERVED_BITS | groups)
        } else {
            (false, 0)
        }
    }
}
