//! Who may see a task: the kernel's own rule, `__ptrace_may_access()` with `PTRACE_MODE_READ_FSCREDS`, as far as it can be
//! known outside of the kernel. Pure: facts in, decision out.
//!
//! Every fact comes from the kernel: those of a task from the record that is to be handed on, those of whoever asks from a
//! record of its own process. What can't be decided is refused.

use taskdiag_core::record::{attr, dumpable, Access, Record, UserNs, ACCESS_STABLE};
use zerocopy::FromBytes as _;

/// The inode number of the initial user namespace (`PROC_USER_INIT_INO`).
const INITIAL_USER_NS: u32 = 0xEFFF_FFFD;

const CAP_DAC_OVERRIDE: u64 = 1 << 1;
const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
const CAP_SYS_PTRACE: u64 = 1 << 19;
const CAP_SYS_NICE: u64 = 1 << 23;

/// What of a task somebody may see that may see it at all: not all that `/proc` has of it is open to all who may trace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// What is in files of mode 0400 of the task's owner: environ and io.
    pub owned: bool,
    /// How many files it has open: a process itself may always list its directory of them.
    pub files: bool,
    /// What takes the right to attach to it: personality.
    pub attach: bool,
    /// What takes `CAP_SYS_NICE`: timerslack_ns.
    pub nice: bool,
}

impl Sight {
    /// What both may see.
    pub fn and(self, other: Sight) -> Sight {
        Sight {
            owned: self.owned && other.owned,
            files: self.files && other.files,
            attach: self.attach && other.attach,
            nice: self.nice && other.nice,
        }
    }
}

/// What makes a process the one that connected, beside its number: a process sees more of itself than others do, until it executes
/// another program or its credentials change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Own {
    /// How many programs it and its ancestors have executed.
    pub exec_id: u64,
    /// User and group ids: real, effective, saved, of file systems.
    pub ids: [u32; 8],
    /// Of all of its threads together. It may have lost some since.
    pub cap_permitted: u64,
    /// The inode number of its user namespace.
    pub user_ns: u32,
}

impl Own {
    /// That of a task.
    pub fn of(access: &Access) -> Own {
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
        Own {
            exec_id: access.exec_id.get(),
            ids: ids.map(|id| id.get()),
            cap_permitted: access.cap_permitted.get(),
            user_ns: access.user_ns.get(),
        }
    }

    /// Whether a task is one of a process that is still the same.
    fn is_still(&self, access: &Access) -> bool {
        let task = Own::of(access);
        let alike = Own {
            cap_permitted: self.cap_permitted,
            ..task
        };
        alike == *self && task.cap_permitted & !self.cap_permitted == 0
    }
}

/// One who asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Its process, in the numbers of the records that it is shown.
    pub pid: u32,
    /// What a task of that number has to be, to be its own.
    pub own: Own,
    /// Its user and group for access to files.
    pub fsuid: u32,
    /// See above.
    pub fsgid: u32,
    /// Its effective user, who owns the user namespaces that it made.
    pub euid: u32,
    /// Its effective capabilities.
    pub capabilities: u64,
    /// The inode number of its user namespace.
    pub user_ns: u32,
    /// How far that is from the initial one.
    pub user_ns_level: u32,
    /// Its Landlock domain, 0 for none.
    pub landlock: u64,
    /// A process that this kernel keeps from everybody by a rule of its own; 0 if there is none.
    pub kept: u32,
    /// A security module confines it in a way that we can't tell: it sees itself alone.
    pub confined: bool,
    /// The kernel gives the number of open files away as the size of the directory (Linux 6.2).
    pub counts_files: bool,
    /// To attach may take more than to look (Yama), or may not.
    pub may_attach: bool,
}

/// A task that somebody wants to see.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    pid: u32,
    access: &'a Access,
    /// From the task's user namespace outward, without the initial one.
    user_ns: &'a [UserNs],
    mm_user_ns: &'a [UserNs],
}

impl<'a> Object<'a> {
    /// The one that a record is of; `None` if the record does not say what decides.
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
        // Only tasks of other user namespaces than the initial one have these, behind all else. An address space is never further in than
        // its task.
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

    /// Its credentials and what else decides.
    pub fn access(&self) -> &'a Access {
        self.access
    }

    /// Who made the user namespace that it is in, or the one around that, below the initial one.
    pub fn outermost_owner(&self) -> Option<u32> {
        self.user_ns.last().map(|ns| ns.owner.get())
    }

    /// Whether nothing that decides changed while the record was written.
    pub fn is_stable(&self) -> bool {
        self.access.flags.get() & ACCESS_STABLE != 0
    }
}

fn list(payload: &[u8]) -> &[UserNs] {
    <[UserNs]>::ref_from_bytes(payload).unwrap_or_default()
}

impl Subject {
    /// What it may see of a task; `None` if nothing. Of one that is in the middle of an exec, or changed while it was looked at, only
    /// who sees all tasks anyhow sees something. `__ptrace_may_access()` of `kernel/ptrace.c` and
    /// `cap_ptrace_access_check()` of `security/commoncap.c`, step by step.
    pub fn sight(&self, object: &Object<'_>) -> Option<Sight> {
        if !object.is_stable() {
            return (self.sees_all() && object.pid != self.kept).then(|| self.sight_of_any());
        }
        let access = object.access;
        let is_self = object.pid == self.pid && self.own.is_still(access);
        let capable = |capability| {
            let (inode, level) = (access.user_ns.get(), access.user_ns_level.get());
            self.is_capable(capability, inode, level, object.user_ns)
        };
        if !is_self {
            let may_see = !self.confined && object.pid != self.kept && self.may_trace(object, capable(CAP_SYS_PTRACE));
            if !may_see {
                return None;
            }
        }
        let owned = self.owns_files(access);
        Some(Sight {
            owned,
            files: owned || is_self || self.counts_files,
            attach: owned && (is_self || self.may_attach),
            // A thread may look at its own, but which one asks is not known.
            nice: capable(CAP_SYS_NICE),
        })
    }

    /// What it may see of every task, whatever that becomes, for one that sees all tasks.
    fn sight_of_any(&self) -> Sight {
        let owned = self.overrides_modes();
        Sight {
            owned,
            files: owned || self.counts_files,
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

    /// Whether it may open files of mode 0400 in a task's directory: `task_dump_owner()` of `fs/proc/base.c` says whose they
    /// are. The owner of the files of tasks that are not dumpable is the root of some user namespace: we look no further
    /// than to the initial one's.
    fn owns_files(&self, access: &Access) -> bool {
        let owner = match access.dumpable.get() {
            dumpable::USER | dumpable::NO_MM => access.euid.get(),
            _ => 0,
        };
        let is_owner =
            self.fsuid == owner && (owner != 0 || access.mm_user_ns_level.get() == 0 || access.euid.get() == 0);
        is_owner || self.overrides_modes()
    }

    /// Whether modes of files say nothing to it.
    fn overrides_modes(&self) -> bool {
        self.user_ns_level == 0 && self.capabilities & (CAP_DAC_OVERRIDE | CAP_DAC_READ_SEARCH) != 0
    }

    /// Whether it may see every task there is, however that changes.
    pub fn sees_all(&self) -> bool {
        !self.confined && self.landlock == 0 && self.is_capable(CAP_SYS_PTRACE, INITIAL_USER_NS, 0, &[])
    }

    /// `cap_capable()` in a user namespace that lies `level` below the initial one.
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

#[cfg(test)]
mod tests {
    use taskdiag_core::record::{Header, Writer};
    use zerocopy::native_endian::{U32, U64};
    use zerocopy::IntoBytes as _;

    use super::*;

    const USER: u32 = 1000;

    fn subject(user: u32, capabilities: u64) -> Subject {
        Subject {
            pid: 1,
            own: Own::of(&of(user)),
            fsuid: user,
            fsgid: user,
            euid: user,
            capabilities,
            user_ns: INITIAL_USER_NS,
            user_ns_level: 0,
            landlock: 0,
            kept: 0,
            confined: false,
            counts_files: false,
            may_attach: true,
        }
    }

    fn of(user: u32) -> Access {
        let [id, ns] = [user, INITIAL_USER_NS].map(U32::new);
        Access {
            uid: id,
            euid: id,
            suid: id,
            fsuid: id,
            gid: id,
            egid: id,
            sgid: id,
            fsgid: id,
            mm: U64::new(1),
            user_ns: ns,
            mm_user_ns: ns,
            dumpable: U32::new(dumpable::USER),
            flags: U32::new(ACCESS_STABLE),
            ..Access::default()
        }
    }

    fn sight(subject: &Subject, pid: u32, access: &Access, outward: &[(u32, u32)]) -> Option<Sight> {
        sight_with_memory(subject, pid, access, outward, &[])
    }

    /// The same with the namespaces of the address space, where that is of another one than the task.
    fn sight_with_memory(
        subject: &Subject,
        pid: u32,
        access: &Access,
        outward: &[(u32, u32)],
        of_memory: &[(u32, u32)],
    ) -> Option<Sight> {
        let bytes = bytes(pid, access, outward, of_memory);
        let (record, _) = Record::split_first(&bytes).unwrap();
        subject.sight(&Object::of(record).unwrap())
    }

    /// A record.
    fn bytes(pid: u32, access: &Access, outward: &[(u32, u32)], of_memory: &[(u32, u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.put(attr::ACCESS, 0, access.as_bytes());
        for (kind, list) in [(attr::USER_NS, outward), (attr::MM_USER_NS, of_memory)] {
            let list: Vec<u32> = list.iter().flat_map(|&(inode, owner)| [inode, owner]).collect();
            if kind == attr::USER_NS || !list.is_empty() {
                writer.put(kind, 0, list.as_bytes());
            }
        }
        writer.finish(Header {
            pid: U32::new(pid),
            ..Header::default()
        });
        bytes
    }

    fn sees(subject: &Subject, access: &Access) -> bool {
        sight(subject, 2, access, &[]).is_some()
    }

    /// Check that each of the six ids decides, and that file-system ids of the task do not.
    #[test]
    fn all_ids_have_to_be_the_same() {
        let user = subject(USER, 0);
        assert!(sees(&user, &of(USER)));
        let fields: [fn(&mut Access) -> &mut U32; 6] = [
            |access| &mut access.uid,
            |access| &mut access.euid,
            |access| &mut access.suid,
            |access| &mut access.gid,
            |access| &mut access.egid,
            |access| &mut access.sgid,
        ];
        for field in fields {
            let mut access = of(USER);
            *field(&mut access) = U32::new(0);
            assert!(!sees(&user, &access), "{access:?}");
            assert!(sees(&subject(USER, CAP_SYS_PTRACE), &access));
        }
        let mut access = of(USER);
        access.fsuid = U32::new(0);
        assert!(sees(&user, &access));
        // Root without capabilities is a user like others.
        assert!(!sees(&subject(0, 0), &of(USER)));
    }

    /// Check that capabilities have the numbers of capabilities(7).
    #[test]
    fn capabilities_are_the_kernels() {
        let ours = [CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_SYS_NICE];
        assert_eq!(ours, [0x2, 0x4, 0x8_0000, 0x80_0000]);
    }

    /// Check that it is told who made the outermost user namespace that a task is in.
    #[test]
    fn namespaces_have_owners() {
        let child = Access {
            user_ns: U32::new(12),
            user_ns_level: U32::new(2),
            ..of(100_000)
        };
        for (access, outward, owner) in [
            (child, &[(12, 100_000), (11, USER)][..], Some(USER)),
            (of(7), &[], None),
        ] {
            let bytes = bytes(2, &access, outward, &[]);
            let object = Object::of(Record::split_first(&bytes).unwrap().0).unwrap();
            assert_eq!(object.outermost_owner(), owner);
            assert_eq!(object.access().uid, access.uid);
        }
    }

    /// Check that two sights show what both show, one by one.
    #[test]
    fn both_have_to_show_it() {
        let of = |bits: u8| Sight {
            owned: bits & 1 != 0,
            files: bits & 2 != 0,
            attach: bits & 4 != 0,
            nice: bits & 8 != 0,
        };
        for (one, other) in (0..16).flat_map(|one| (0..16).map(move |other| (one, other))) {
            assert_eq!(of(one).and(of(other)), of(one & other));
        }
    }

    /// Check that a task that can't be dumped, has capabilities that the subject lacks, or changed meanwhile is not seen, but by who sees
    /// all of them.
    #[test]
    fn dumpable_capable_and_stable() {
        let user = subject(USER, 0);
        for (state, plain) in [
            (dumpable::NOT, false),
            (dumpable::ROOT, false),
            (dumpable::NO_MM, true),
            (dumpable::NO_MM_INIT, false),
        ] {
            let access = Access {
                dumpable: U32::new(state),
                ..of(USER)
            };
            assert_eq!(sees(&user, &access), plain, "{state}");
            assert!(sees(&subject(7, CAP_SYS_PTRACE), &access));
        }
        let access = Access {
            cap_permitted: U64::new(1 << 13),
            ..of(USER)
        };
        assert!(!sees(&user, &access));
        assert!(sees(&subject(USER, 1 << 13), &access));
        let access = Access {
            flags: U32::new(0),
            ..of(USER)
        };
        assert!(!sees(&user, &access) && sight(&user, 1, &access, &[]).is_none());
        let equal = |value| {
            Some(Sight {
                owned: value,
                files: value,
                attach: value,
                nice: value,
            })
        };
        assert_eq!(sight(&subject(0, u64::MAX), 2, &access, &[]), equal(true));
        // Nobody knows whose files they are: not its own.
        assert_eq!(sight(&subject(USER, CAP_SYS_PTRACE), 2, &access, &[]), equal(false));
        for sees_less in [
            Subject {
                landlock: 5,
                ..subject(0, u64::MAX)
            },
            Subject {
                confined: true,
                ..subject(0, u64::MAX)
            },
            Subject {
                kept: 2,
                ..subject(0, u64::MAX)
            },
            Subject {
                user_ns: 11,
                user_ns_level: 1,
                ..subject(0, u64::MAX)
            },
        ] {
            assert!(sight(&sees_less, 2, &access, &[]).is_none(), "{sees_less:?}");
        }
    }

    /// Check that a process sees itself as itself until it executes something or its credentials change, and as others do from then on.
    #[test]
    fn oneself_is_who_connected() {
        let hidden = Access {
            dumpable: U32::new(dumpable::ROOT),
            ..of(USER)
        };
        let user = subject(USER, 0);
        assert!(sight(&user, 1, &hidden, &[]).is_some());
        let changes: [fn(&mut Access); 11] = [
            |access| access.exec_id = U64::new(1),
            |access| access.uid = U32::new(0),
            |access| access.euid = U32::new(0),
            |access| access.suid = U32::new(0),
            |access| access.fsuid = U32::new(0),
            |access| access.gid = U32::new(0),
            |access| access.egid = U32::new(0),
            |access| access.sgid = U32::new(0),
            |access| access.fsgid = U32::new(0),
            |access| access.cap_permitted = U64::new(1),
            |access| access.user_ns = U32::new(7),
        ];
        for change in changes {
            let mut access = hidden;
            change(&mut access);
            assert!(sight(&user, 1, &access, &[]).is_none(), "{access:?}");
        }
        let had_more = Subject {
            own: Own {
                cap_permitted: 1,
                ..user.own
            },
            ..user
        };
        assert!(sight(&had_more, 1, &hidden, &[]).is_some());
    }

    /// Check that capabilities count in the subject's user namespace and those below, and that the owner of one has them all.
    #[test]
    fn user_namespaces_are_a_tree() {
        let below = |level: u32, inode: u32| Access {
            user_ns: U32::new(inode),
            user_ns_level: U32::new(level),
            mm_user_ns: U32::new(inode),
            mm_user_ns_level: U32::new(level),
            cap_permitted: U64::new(u64::MAX),
            ..of(100_000)
        };
        let (child, grandchild) = (below(1, 11), below(2, 12));
        let (chain, longer) = ([(11, USER)], [(12, 100_000), (11, USER)]);
        for (asks, sees) in [
            (subject(USER, 0), true),
            (subject(2000, 0), false),
            (subject(0, CAP_SYS_PTRACE), true),
        ] {
            assert_eq!(sight(&asks, 2, &child, &chain).is_some(), sees, "{asks:?}");
            assert_eq!(sight(&asks, 2, &grandchild, &longer).is_some(), sees, "{asks:?}");
        }
        let inside = |capabilities| Subject {
            user_ns: 11,
            user_ns_level: 1,
            ..subject(100_001, capabilities)
        };
        assert!(sight(&inside(CAP_SYS_PTRACE), 2, &child, &chain).is_some());
        assert!(sight(&inside(CAP_SYS_PTRACE), 2, &grandchild, &longer).is_some());
        assert!(sight(&inside(0), 2, &child, &chain).is_none());
        // Outward, and in another one beside it.
        assert!(sight(&inside(u64::MAX), 2, &of(USER), &[]).is_none());
        assert!(sight(&inside(u64::MAX), 2, &below(1, 13), &[(13, USER)]).is_none());
        // Memory that can't be dumped is of its own namespace's capable: whoever is further in than that is not enough.
        let not_dumpable = |access: Access| Access {
            dumpable: U32::new(dumpable::ROOT),
            ..access
        };
        assert!(sight(&inside(CAP_SYS_PTRACE), 2, &not_dumpable(grandchild), &longer).is_some());
        let of_child = Access {
            mm_user_ns: U32::new(11),
            mm_user_ns_level: U32::new(1),
            ..not_dumpable(grandchild)
        };
        let of_initial = Access {
            mm_user_ns: U32::new(INITIAL_USER_NS),
            mm_user_ns_level: U32::new(0),
            ..of_child
        };
        let innermost = Subject {
            user_ns: 12,
            user_ns_level: 2,
            ..inside(CAP_SYS_PTRACE)
        };
        for (asks, of_child_too) in [(inside(CAP_SYS_PTRACE), true), (innermost, false)] {
            let sees = sight_with_memory(&asks, 2, &of_child, &longer, &chain).is_some();
            assert_eq!(sees, of_child_too, "{asks:?}");
            assert!(sight(&asks, 2, &of_initial, &longer).is_none(), "{asks:?}");
        }
        // A list that is cut says nothing.
        assert!(sight(&subject(0, u64::MAX), 2, &grandchild, &[(12, 100_000)]).is_none());
    }

    /// Check that a domain of Landlock and an unknown confinement leave only what is within.
    #[test]
    fn confinement_hides_others() {
        let confined = Subject {
            confined: true,
            ..subject(0, u64::MAX)
        };
        assert!(!sees(&confined, &of(0)) && sight(&confined, 1, &of(0), &[]).is_some());
        let kept = Subject {
            kept: 2,
            ..subject(0, u64::MAX)
        };
        assert!(!sees(&kept, &of(0)));
        let landlocked = Subject {
            landlock: 5,
            ..subject(USER, 0)
        };
        assert!(!sees(&landlocked, &of(USER)));
        let access = Access {
            landlock: U64::new(5),
            ..of(USER)
        };
        assert!(sees(&landlocked, &access) && sees(&subject(USER, 0), &access));
    }

    /// Check that the right to trace does not open files of the owner, and that it is not the right to renice.
    #[test]
    fn tracing_is_not_all() {
        let tracer = sight(&subject(7, CAP_SYS_PTRACE), 2, &of(USER), &[]).unwrap();
        assert!(!tracer.owned && !tracer.files && !tracer.nice);
        let reader = sight(&subject(7, CAP_SYS_PTRACE | CAP_DAC_READ_SEARCH), 2, &of(USER), &[]).unwrap();
        assert!(reader.owned && reader.files);
        let own = sight(&subject(USER, 0), 2, &of(USER), &[]).unwrap();
        assert!(own.owned && own.files && !own.nice && own.attach);
        let hidden = Access {
            dumpable: U32::new(dumpable::NOT),
            ..of(USER)
        };
        let own = sight(&subject(USER, 0), 1, &hidden, &[]).unwrap();
        assert!(!own.owned && own.files && !own.nice && !own.attach);
    }

    /// Check whose the files of a task are: its effective user's, and of one that can't be dumped root's, of the namespace of its memory.
    #[test]
    fn files_have_owners() {
        let (dumpable, not) = (dumpable::USER, dumpable::ROOT);
        for (asks, state, euid, level, owned) in [
            (0, not, USER, 0, true),
            (0, not, USER, 1, false),
            (0, dumpable, USER, 0, false),
            (0, dumpable, 0, 1, true),
            (USER, dumpable, USER, 1, true),
            (USER, not, USER, 0, false),
            (USER, dumpable, 0, 0, false),
        ] {
            let access = Access {
                dumpable: U32::new(state),
                euid: U32::new(euid),
                mm_user_ns_level: U32::new(level),
                ..of(USER)
            };
            let owns = subject(asks, CAP_SYS_PTRACE).owns_files(&access);
            assert_eq!(owns, owned, "{asks} {state} {euid} {level}");
        }
        // Capabilities of a namespace say nothing about files outside.
        let inside = Subject {
            user_ns: 11,
            user_ns_level: 1,
            ..subject(7, u64::MAX)
        };
        assert!(!inside.owns_files(&of(USER)) && subject(7, CAP_DAC_OVERRIDE).owns_files(&of(USER)));
    }

    /// Check that who has the capability sees a task without memory that the kernel takes for one of the initial namespace.
    #[test]
    fn tasks_without_memory() {
        let access = Access {
            dumpable: U32::new(dumpable::NO_MM_INIT),
            mm_user_ns: U32::new(0),
            ..of(USER)
        };
        assert!(sees(&subject(7, CAP_SYS_PTRACE), &access) && !sees(&subject(USER, 0), &access));
    }
}
