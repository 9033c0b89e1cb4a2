//! Who may see a task.
//!
//! The rule is the kernel's own, `__ptrace_may_access()` with `PTRACE_MODE_READ_FSCREDS`, as far as
//! it can be evaluated outside the kernel. It is a pure function of facts, and all facts come from
//! the kernel: facts about a task come from the record that is about to be sent, facts about a
//! client from a record of the client's process. What can't be decided is refused.

#[cfg(test)]
mod tests;

use taskdiag_core::record::{attr, dumpable, Access, Record, UserNs, ACCESS_STABLE};
use zerocopy::FromBytes as _;

/// The inode number of the initial user namespace (`PROC_USER_INIT_INO`).
pub const INITIAL_USER_NS: u32 = 0xEFFF_FFFD;

const CAP_DAC_OVERRIDE: u64 = 1 << 1;
const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
const CAP_SYS_PTRACE: u64 = 1 << 19;
const CAP_SYS_NICE: u64 = 1 << 23;

/// What a subject may see of a task that it may trace. Some files in `/proc/PID` need more than
/// that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// The files of mode 0400, which only the task's owner may open: `environ` and `io`.
    pub owned: bool,
    /// The number of open files, from listing `/proc/PID/fd` or, where the kernel gives it, from the
    /// size of that directory.
    pub files: bool,
    /// The open files themselves. `/proc/PID/fd` has the mode 0500; a process may always list its
    /// own.
    pub descriptors: bool,
    /// The files that need permission to attach to the task: `personality`.
    pub attach: bool,
    /// The files that need `CAP_SYS_NICE`: `timerslack_ns`.
    pub nice: bool,
}

impl Sight {
    /// What both sights allow.
    pub fn and(self, other: Sight) -> Sight {
        Sight {
            owned: self.owned && other.owned,
            files: self.files && other.files,
            descriptors: self.descriptors && other.descriptors,
            attach: self.attach && other.attach,
            nice: self.nice && other.nice,
        }
    }
}

/// What identifies a client's own process, besides its pid. A process may see more of itself than
/// of others, but only until it executes another program or its credentials change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnProcess {
    /// The kernel's `self_exec_id`: the number of execs of the process and its ancestors.
    pub exec_id: u64,
    /// The real, effective, saved and file-system user ids, then the group ids.
    pub ids: [u32; 8],
    /// The permitted capabilities of all its threads together. It may have dropped some since.
    pub cap_permitted: u64,
    /// The inode number of its user namespace.
    pub user_ns: u32,
}

impl OwnProcess {
    /// What identifies the process that `access` describes.
    pub fn of(access: &Access) -> OwnProcess {
        let ids = [
            access.uid,
            access.euid,
            access.suid,
            access.fsuid,
            access.gid,
            access.egid,
            access.sgid,
            access.fsgid,
        ];
        OwnProcess {
            exec_id: access.exec_id.get(),
            ids: ids.map(|id| id.get()),
            cap_permitted: access.cap_permitted.get(),
            user_ns: access.user_ns.get(),
        }
    }

    /// Whether a task belongs to the same process, with no more capabilities than before.
    fn is_still(&self, access: &Access) -> bool {
        let task = OwnProcess::of(access);
        let comparable = OwnProcess {
            cap_permitted: self.cap_permitted,
            ..task
        };
        comparable == *self && task.cap_permitted & !self.cap_permitted == 0
    }
}

/// A client that wants to see tasks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Its process id, in the pid namespace of the records that it is sent.
    pub pid: u32,
    /// What a task with that process id must match to be the subject's own.
    pub own: OwnProcess,
    /// Its file-system user id.
    pub fsuid: u32,
    /// Its file-system group id.
    pub fsgid: u32,
    /// Its effective user id, which owns the user namespaces that it created.
    pub euid: u32,
    /// Its effective capabilities.
    pub capabilities: u64,
    /// The inode number of its user namespace.
    pub user_ns: u32,
    /// The level of its user namespace: 0 is the initial one.
    pub user_ns_level: u32,
    /// Its Landlock domain, 0 for none.
    pub landlock: u64,
    /// The id of a process that this kernel hides from everybody by an extra rule; 0 for none.
    pub hidden_pid: u32,
    /// Whether a security module confines it in a way that can't be evaluated here. It then sees
    /// only itself.
    pub confined: bool,
    /// Whether the kernel shows the number of open files as the size of `/proc/PID/fd` (Linux 6.2).
    pub counts_files: bool,
    /// Whether it may attach to tasks that it may read. Yama may forbid that.
    pub may_attach: bool,
}

/// A task that a subject wants to see.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    pid: u32,
    access: &'a Access,
    /// The task's user namespace and its ancestors, innermost first, without the initial one.
    user_ns: &'a [UserNs],
    /// The same for the user namespace that owns the task's address space.
    mm_user_ns: &'a [UserNs],
}

impl<'a> Object<'a> {
    /// The task that a record describes. `None` if the record lacks the facts for a decision.
    pub fn of(record: Record<'a>) -> Option<Object<'a>> {
        let mut attributes = record.attributes();
        let first = attributes.next().filter(|first| first.kind == attr::ACCESS)?;
        let (access, _) = Access::ref_from_prefix(first.payload).ok()?;
        let mut object = Object {
            pid: record.header().pid.get(),
            access,
            user_ns: &[],
            mm_user_ns: &[],
        };
        // Only tasks outside the initial user namespace have these lists, as the last attributes.
        // The namespace of an address space is that of its task or an ancestor of it.
        if access.user_ns_level.get() > 0 {
            for attribute in attributes {
                match attribute.kind {
                    attr::USER_NS => object.user_ns = list(attribute.payload),
                    attr::MM_USER_NS => object.mm_user_ns = list(attribute.payload),
                    _ => {}
                }
            }
            if access.mm_user_ns == access.user_ns {
                object.mm_user_ns = object.user_ns;
            }
        }
        Some(object)
    }

    /// Its credentials, and the other facts that decide access.
    pub fn access(&self) -> &'a Access {
        self.access
    }

    /// The owner of the outermost user namespace that it is in, below the initial one.
    pub fn outermost_owner(&self) -> Option<u32> {
        self.user_ns.last().map(|ns| ns.owner.get())
    }

    /// Whether the facts did not change while the record was written.
    pub fn is_stable(&self) -> bool {
        self.access.flags.get() & ACCESS_STABLE != 0
    }
}

fn list(payload: &[u8]) -> &[UserNs] {
    <[UserNs]>::ref_from_bytes(payload).unwrap_or_default()
}

impl Subject {
    /// What it may see of a task. `None` if it may not see the task.
    ///
    /// This follows `__ptrace_may_access()` of `kernel/ptrace.c` and `cap_ptrace_access_check()` of
    /// `security/commoncap.c` step by step. If a task executed a program or changed otherwise while
    /// its record was written, only subjects that may see every task see it.
    pub fn sight(&self, object: &Object<'_>) -> Option<Sight> {
        if !object.is_stable() {
            return (self.sees_all() && object.pid != self.hidden_pid).then(|| self.sight_of_any());
        }
        let access = object.access;
        let is_self = object.pid == self.pid && self.own.is_still(access);
        let capable = |capability| {
            let (inode, level) = (access.user_ns.get(), access.user_ns_level.get());
            self.is_capable(capability, inode, level, object.user_ns)
        };
        if !is_self {
            let is_hidden = self.confined || object.pid == self.hidden_pid;
            if is_hidden || !self.may_trace(object, capable(CAP_SYS_PTRACE)) {
                return None;
            }
        }
        let owned = self.owns_files(access);
        Some(Sight {
            owned,
            files: owned || is_self || self.counts_files,
            descriptors: owned || is_self,
            attach: owned && (is_self || self.may_attach),
            // A thread may read its own value, but the broker does not know which thread asks.
            nice: capable(CAP_SYS_NICE),
        })
    }

    /// What it may see of any task, whatever its credentials, if it may see every task.
    fn sight_of_any(&self) -> Sight {
        let owned = self.overrides_modes();
        Sight {
            owned,
            files: owned || self.counts_files,
            descriptors: owned,
            attach: owned && self.may_attach,
            nice: self.capabilities & CAP_SYS_NICE != 0,
        }
    }

    fn may_trace(&self, object: &Object<'_>, has_capability: bool) -> bool {
        let access = object.access;
        let is_same_user = [access.uid, access.euid, access.suid]
            .iter()
            .all(|id| id.get() == self.fsuid)
            && [access.gid, access.egid, access.sgid]
                .iter()
                .all(|id| id.get() == self.fsgid);
        if !is_same_user && !has_capability {
            return false;
        }
        let is_dumpable = match access.dumpable.get() {
            dumpable::USER | dumpable::NO_MM => true,
            dumpable::NO_MM_INIT => self.is_capable(CAP_SYS_PTRACE, INITIAL_USER_NS, 0, &[]),
            _ => {
                let (inode, level) = (access.mm_user_ns.get(), access.mm_user_ns_level.get());
                self.is_capable(CAP_SYS_PTRACE, inode, level, object.mm_user_ns)
            }
        };
        let is_subset = access.user_ns.get() == self.user_ns && access.cap_permitted.get() & !self.capabilities == 0;
        let is_within_domain = self.landlock == 0 || self.landlock == access.landlock.get();
        is_dumpable && (is_subset || has_capability) && is_within_domain
    }

    /// Whether it may open files of mode 0400 in a task's directory. Their owner is decided by
    /// `task_dump_owner()` of `fs/proc/base.c`: root for a task without an address space, such as a
    /// zombie, and for a task that is not dumpable the root user of the user namespace of its
    /// address space. Only the initial namespace's root is recognized here.
    fn owns_files(&self, access: &Access) -> bool {
        let owner = match access.dumpable.get() {
            _ if access.mm.get() == 0 => Some(0),
            dumpable::USER => Some(access.euid.get()),
            _ if access.mm_user_ns_level.get() == 0 => Some(0),
            _ => None,
        };
        owner == Some(self.fsuid) || self.overrides_modes()
    }

    /// Whether it may open files whatever their mode.
    fn overrides_modes(&self) -> bool {
        self.user_ns_level == 0 && self.capabilities & (CAP_DAC_OVERRIDE | CAP_DAC_READ_SEARCH) != 0
    }

    /// Whether it may see every task, whatever the task's credentials are or become.
    pub fn sees_all(&self) -> bool {
        !self.confined && self.landlock == 0 && self.is_capable(CAP_SYS_PTRACE, INITIAL_USER_NS, 0, &[])
    }

    /// Whether it has a capability in the user namespace `inode`, which is `level` levels below the
    /// initial one: the kernel's `cap_capable()`. `outward` lists that namespace and its ancestors.
    fn is_capable(&self, capability: u64, inode: u32, level: u32, outward: &[UserNs]) -> bool {
        let is_own = |inode: u32, level: u32| inode == self.user_ns && level == self.user_ns_level;
        if level == 0 {
            return is_own(inode, 0) && self.capabilities & capability != 0;
        }
        if outward.len() != level as usize || outward[0].inode.get() != inode {
            return false;
        }
        for (index, ns) in outward.iter().enumerate() {
            let level = level - index as u32;
            if is_own(ns.inode.get(), level) {
                return self.capabilities & capability != 0;
            }
            if level <= self.user_ns_level {
                return false;
            }
            let parent = outward
                .get(index + 1)
                .map_or(INITIAL_USER_NS, |parent| parent.inode.get());
            if is_own(parent, level - 1) && ns.owner.get() == self.euid {
                return true;
            }
        }
        is_own(INITIAL_USER_NS, 0) && self.capabilities & capability != 0
    }
}
