//! What the kernel says of a client: who it is, where it stands, what it may see.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use taskdiag::Group;
use taskdiag_core::record::{attr, Record, View};
use taskdiag_protocol::access::{Object, Own, Subject};
use zerocopy::native_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::IdMap;
use crate::modules::{self, Modules};
use crate::passes::{self, Passes};
use crate::sys;

/// Why a client has no answer, as a number of errno.
pub type Errno32 = i32;

/// The inode number of the initial user namespace (`PROC_USER_INIT_INO`).
const INITIAL_USER_NS: u32 = 0xEFFF_FFFD;

/// How often facts are asked for that change while they are looked at.
const TRIES: usize = 6;

/// A client with more threads than this is not told apart: to look at them all would keep other clients waiting.
const MOST_THREADS: usize = 4096;

/// A place to look from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standpoint {
    task: u64,
    pid_ns: u32,
    boottime_ns: u64,
    cgroup_ns: u32,
    root: (u64, u64),
}

impl Standpoint {
    fn of(view: &View) -> Standpoint {
        Standpoint {
            task: view.task.get(),
            pid_ns: view.pid_ns.get(),
            boottime_ns: view.boottime_ns.get(),
            cgroup_ns: view.cgroup_ns.get(),
            root: (view.root_mount.get(), view.root_dentry.get()),
        }
    }

    /// The task to look as, for groups of fields: 0 where all would be the same as from `other`.
    fn seen_from(&self, other: &Standpoint, groups: u32) -> u64 {
        let asks = |group: Group| groups & 1 << group as u32 != 0;
        let is_same = self.pid_ns == other.pid_ns
            && self.boottime_ns == other.boottime_ns
            && (self.cgroup_ns == other.cgroup_ns || !asks(Group::Cgroup))
            && (self.root == other.root || !asks(Group::Paths));
        if is_same {
            0
        } else {
            self.task
        }
    }
}

/// What is known of a client at one moment.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Who it is. Its number is that of its own pid namespace.
    pub subject: Subject,
    /// It may execute nothing that is dumped, or did so: its privileges may be newer than its connection.
    pub is_dumpable: bool,
    /// It is in the group of observers.
    pub observer: bool,
    /// Its user ids.
    pub users: IdMap,
    /// Its group ids.
    pub groups: IdMap,
    /// Its effective user and group, as the kernel has them.
    pub effective: (u32, u32),
    /// Who made the user namespaces that it is in, if it is in one.
    pub owner: Option<u32>,
    standpoint: Standpoint,
}

/// What of a client stands in files of `/proc` alone. A reader looks them up: to read some of them takes locks of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Particulars {
    /// The inode number of its user namespace, whose maps these are.
    user_ns: u32,
    /// AppArmor does not confine it.
    is_unconfined: bool,
    users: IdMap,
    groups: IdMap,
}

/// What they are encoded with.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    user_ns: U32,
    is_unconfined: U32,
    users_len: U32,
}

/// As they were read, and as they travel.
#[derive(Debug)]
pub struct RawParticulars {
    user_ns: u32,
    is_unconfined: bool,
    users: Vec<u8>,
    groups: Vec<u8>,
}

impl Particulars {
    /// Reads them.
    pub fn read(pid: u32) -> Option<RawParticulars> {
        let user_ns = || Some(fs::metadata(format!("/proc/{pid}/ns/user")).ok()?.ino() as u32);
        let map = |name| fs::read(format!("/proc/{pid}/{name}")).ok();
        let before = user_ns()?;
        let (users, groups) = (map("uid_map")?, map("gid_map")?);
        let label = fs::read(format!("/proc/{pid}/attr/apparmor/current")).unwrap_or_default();
        (user_ns()? == before).then(|| RawParticulars {
            user_ns: before,
            is_unconfined: modules::is_unconfined(&label),
            users,
            groups,
        })
    }

    /// What a reader brought.
    pub fn parse(bytes: &[u8]) -> Option<Particulars> {
        let (head, maps) = Head::ref_from_prefix(bytes).ok()?;
        let (users, groups) = maps.split_at_checked(head.users_len.get() as usize)?;
        let map = |text| IdMap::parse(std::str::from_utf8(text).ok()?);
        Some(Particulars {
            user_ns: head.user_ns.get(),
            is_unconfined: head.is_unconfined.get() == 1,
            users: map(users)?,
            groups: map(groups)?,
        })
    }
}

impl RawParticulars {
    /// What [`Particulars::parse`] takes.
    pub fn encode(&self) -> Vec<u8> {
        let head = Head {
            user_ns: U32::new(self.user_ns),
            is_unconfined: U32::new(self.is_unconfined.into()),
            users_len: U32::new(self.users.len() as u32),
        };
        [head.as_bytes(), &self.users, &self.groups].concat()
    }
}

/// Finds facts.
#[derive(Debug)]
pub struct Finder {
    own: Standpoint,
    modules: Modules,
    observers: Option<u32>,
    /// Namespaces of others can be looked from (Linux 6.2).
    looks_as_others: bool,
    /// The first process can't be looked at by anybody.
    keeps_first: bool,
    /// How many files a process has open is what the size of its directory of them says (Linux 6.2).
    counts_files: bool,
}

/// The process at the other end of a socket.
#[derive(Debug)]
pub struct Peer {
    /// Its number here.
    pub pid: u32,
    /// Its effective user and group when it connected.
    pub user: u32,
    /// See above.
    pub group: u32,
    pidfd: OwnedFd,
    is_confined: bool,
}

impl Peer {
    /// Who connected, by the kernel's word.
    pub fn of(socket: BorrowedFd<'_>, modules: &Modules) -> Result<Peer, Errno> {
        let credentials = sys::peer_credentials(socket)?;
        // One that has no number here is in a pid namespace above or beside ours.
        let pid = rustix::process::Pid::from_raw(credentials.pid).ok_or(Errno::PERM)?;
        let pidfd = match sys::peer_pidfd(socket) {
            Ok(pidfd) => pidfd,
            // Before Linux 6.5. That it is the same process is then known by its requests, each of which has the number of
            // its sender, as long as this descriptor says that the process lives.
            Err(Errno::NOPROTOOPT) => rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?,
            Err(errno) => return Err(errno),
        };
        Ok(Peer {
            pid: credentials.pid as u32,
            user: credentials.uid,
            group: credentials.gid,
            pidfd,
            is_confined: modules.confine(socket),
        })
    }

    /// Whether AppArmor, where it says so of connections, confines it.
    pub fn is_confined(&self) -> bool {
        self.is_confined
    }

    /// Whether the process has not ended.
    pub fn is_alive(&self) -> bool {
        sys::events_now(self.pidfd.as_fd(), PollFlags::IN).is_ok_and(|events| events.is_empty())
    }
}

impl Finder {
    /// Looks at this process itself.
    pub fn new(passes: &mut Passes, modules: Modules, observers: Option<u32>) -> taskdiag::Result<Option<Finder>> {
        let records = passes.view(std::process::id(), 0, 0, 1)?;
        let own = records.each().next().and_then(passes::view).map(Standpoint::of);
        let Some(own) = own else {
            return Ok(None);
        };
        // From this process's own place all has to be as without one.
        let looks = passes.view(std::process::id(), 0, own.task, 1)?;
        let is_recent = sys::kernel_version() >= (6, 2);
        Ok(Some(Finder {
            own,
            modules,
            observers,
            looks_as_others: is_recent && !looks.is_empty(),
            keeps_first: keeps_first(),
            counts_files: is_recent,
        }))
    }

    /// What security modules there are.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Whether a reader has to look a client up.
    pub fn wants_particulars(&self, facts: &Facts) -> bool {
        facts.subject.user_ns != INITIAL_USER_NS || self.modules.has_labels()
    }

    /// Facts with what a reader found. `None` if they take a reader, and there was none.
    pub fn complete(&self, mut facts: Facts, particulars: Option<&Particulars>) -> Result<Option<Facts>, Errno32> {
        if !self.wants_particulars(&facts) {
            return Ok(Some(facts));
        }
        let Some(found) = particulars else {
            return Ok(None);
        };
        // It went to another namespace meanwhile: the next request is answered.
        if found.user_ns != facts.subject.user_ns {
            return Err(libc::EBUSY);
        }
        facts.subject.confined |= self.modules.has_labels() && !found.is_unconfined;
        if facts.subject.user_ns != INITIAL_USER_NS {
            facts.users = found.users.clone();
            facts.groups = found.groups.clone();
        }
        Ok(Some(facts))
    }

    /// What the kernel says of a client now.
    pub fn find(&self, passes: &mut Passes, peer: &Peer) -> Result<Facts, Errno32> {
        let mut refusal = libc::EBUSY;
        let began = Instant::now();
        for _ in 0..TRIES {
            let found = self.try_find(passes, peer);
            if !peer.is_alive() {
                return Err(libc::ESRCH);
            }
            match found {
                Ok(Some(facts)) => return Ok(facts),
                Ok(None) => {}
                // A thread that is ending may have given up what it is compared by.
                Err(libc::EPERM) => refusal = libc::EPERM,
                Err(errno) => return Err(errno),
            }
            if began.elapsed() >= passes::LOOKING_AGAIN {
                break;
            }
            passes::wait_a_little();
        }
        Err(refusal)
    }

    /// `None` if it changed meanwhile.
    fn try_find(&self, passes: &mut Passes, peer: &Peer) -> Result<Option<Facts>, Errno32> {
        let groups = 1 << Group::Groups as u32;
        let records = passes.view(peer.pid, groups, 0, MOST_THREADS).map_err(|_| libc::EIO)?;
        if records.each().count() > MOST_THREADS {
            return Err(libc::EPERM);
        }
        let mut all: Option<Facts> = None;
        for record in records.each() {
            let (Some(object), Some(view)) = (Object::of(record), passes::view(record)) else {
                return Err(libc::EIO);
            };
            if !object.is_stable() {
                return Ok(None);
            }
            // A thread that is ending. Its process may have others.
            if view.has_namespaces.get() == 0 {
                continue;
            }
            let facts = self.of_thread(peer, record, &object, view);
            all = Some(match all {
                None => facts,
                Some(all) => both(all, &facts)?,
            });
        }
        let mut facts = all.ok_or(libc::ESRCH)?;
        // Its number in its own namespace.
        let task = facts.standpoint.task;
        if facts.standpoint.pid_ns != self.own.pid_ns {
            if !self.looks_as_others {
                return Err(libc::EPERM);
            }
            let records = passes.view(peer.pid, 0, task, 1).map_err(|_| libc::EIO)?;
            let record = records.each().next().ok_or(libc::ESRCH)?;
            facts.subject.pid = record.header().pid.get();
            let view = passes::view(record).ok_or(libc::EIO)?;
            if Standpoint::of(view).pid_ns != facts.standpoint.pid_ns {
                return Ok(None);
            }
        }
        Ok(Some(facts))
    }

    fn of_thread(&self, peer: &Peer, record: Record<'_>, object: &Object<'_>, view: &View) -> Facts {
        let access = object.access();
        let in_group = |group: u32| {
            let listed = record.attribute(attr::GROUPS).map_or(&[][..], |groups| groups.payload);
            let mut listed = listed.chunks_exact(4);
            access.fsgid.get() == group || listed.any(|id| id == group.to_ne_bytes())
        };
        let landlock_unknown = self.modules.landlock_unknown();
        let standpoint = Standpoint::of(view);
        Facts {
            subject: Subject {
                pid: record.header().pid.get(),
                own: Own::of(access),
                fsuid: access.fsuid.get(),
                fsgid: access.fsgid.get(),
                euid: access.euid.get(),
                capabilities: access.cap_effective.get(),
                user_ns: access.user_ns.get(),
                user_ns_level: access.user_ns_level.get(),
                landlock: access.landlock.get(),
                // Numbers of other namespaces are others' numbers.
                kept: if self.keeps_first && standpoint.pid_ns == self.own.pid_ns {
                    1
                } else {
                    0
                },
                confined: peer.is_confined || landlock_unknown,
                counts_files: self.counts_files,
                may_attach: self.modules.may_attach(),
            },
            is_dumpable: access.dumpable.get() == taskdiag_core::record::dumpable::USER,
            observer: self.observers.is_some_and(in_group),
            users: IdMap::default(),
            groups: IdMap::default(),
            effective: (access.euid.get(), access.egid.get()),
            owner: object.outermost_owner(),
            standpoint,
        }
    }

    /// The task that a pass for a client is to look as.
    pub fn look_as(&self, facts: &Facts, groups: u32) -> Result<u64, Errno32> {
        match facts.standpoint.seen_from(&self.own, groups) {
            0 => Ok(0),
            task if self.looks_as_others => Ok(task),
            _ => Err(libc::EPERM),
        }
    }
}

impl Facts {
    /// Whether it stands where it stood.
    pub fn same_place(&self, other: &Facts) -> bool {
        self.standpoint == other.standpoint && self.subject.user_ns == other.subject.user_ns
    }
}

/// What two threads of a process both are. Threads that differ in more than capabilities can't be told apart.
fn both(mut all: Facts, one: &Facts) -> Result<Facts, Errno32> {
    all.subject.capabilities &= one.subject.capabilities;
    // Itself is each of its threads.
    all.subject.own.cap_permitted |= one.subject.own.cap_permitted;
    all.observer &= one.observer;
    let alike = Subject {
        capabilities: all.subject.capabilities,
        own: Own {
            cap_permitted: all.subject.own.cap_permitted,
            ..one.subject.own
        },
        ..one.subject.clone()
    };
    let same_place = Standpoint {
        task: all.standpoint.task,
        ..one.standpoint
    } == all.standpoint;
    if alike == all.subject && same_place && one.effective == all.effective {
        Ok(all)
    } else {
        Err(libc::EPERM)
    }
}

/// Some kernels keep the first process from everybody, root too. This process may trace everything, as far as the rule goes that we
/// know: what it may not see nobody may.
fn keeps_first() -> bool {
    std::process::id() != 1 && fs::read_link("/proc/1/exe").is_err()
}
