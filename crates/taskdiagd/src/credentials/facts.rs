//! What the kernel reports about a client at one moment, from the records of its threads.

use std::fs;
use std::time::Instant;

use rustix::io::Errno;
use taskdiag_core::field::{Group, Groups};
use taskdiag_core::record::{attr, dumpable, has_namespaces, Record, View, AGAIN};
use taskdiag_protocol::access::{Object, OwnProcess, Subject, INITIAL_USER_NS};
use taskdiag_sys::host;

use super::{IdMap, Peer, ProcFacts, SecurityModules};
use crate::passes::{self, Programs};

/// How often to look again at a client that changes in between.
const TRIES: usize = 6;

/// A client with more threads is refused: looking at all of them would keep other clients waiting.
const MAX_THREADS: usize = 4096;

/// What a client's records say about it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its credentials. The pid is the one in its own pid namespace.
    pub subject: Subject,
    /// It is dumpable. If not, a program that it ran since it connected may have given it
    /// privileges.
    pub is_dumpable: bool,
    /// It is in the group of observers.
    pub is_observer: bool,
    /// User ids as its namespace shows them.
    pub users: IdMap,
    /// Group ids as its namespace shows them.
    pub groups: IdMap,
    /// Its effective user and group ids, as the initial user namespace shows them.
    pub effective: (u32, u32),
    /// The owner of its outermost user namespace, if it is not in the initial one.
    pub owner: Option<u32>,
    place: Place,
}

impl Facts {
    /// Whether the client is in the namespaces that it was in, and has the root that it had.
    pub fn is_same_place(&self, other: &Facts) -> bool {
        self.place == other.place && self.subject.user_ns == other.subject.user_ns
    }
}

/// The namespaces and the root directory of a task: numbers and paths are relative to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// The address of the task in the kernel.
    task: u64,
    pid_ns: u32,
    boottime_ns: i64,
    cgroup_ns: u32,
    root: (u64, u64),
}

impl Place {
    fn of(view: &View) -> Place {
        Place {
            task: view.task.get(),
            pid_ns: view.pid_ns.get(),
            boottime_ns: view.boottime_ns.get(),
            cgroup_ns: view.cgroup_ns.get(),
            root: (view.root_mount.get(), view.root_dentry.get()),
        }
    }

    /// Whether pids and times of `other` have the same values here.
    fn has_the_numbers_of(&self, other: &Place) -> bool {
        self.pid_ns == other.pid_ns && self.boottime_ns == other.boottime_ns
    }

    /// The groups whose values differ from those of `other` for any other reason.
    fn differing(&self, other: &Place) -> Groups {
        let mut groups = Groups::NONE;
        if self.cgroup_ns != other.cgroup_ns {
            groups = groups.with(Group::Cgroup);
        }
        if self.root != other.root {
            groups = groups.with(Group::Paths);
        }
        groups
    }
}

/// Finds the facts of clients.
#[derive(Debug)]
pub struct ClientFinder {
    own: Place,
    /// The security modules of this kernel.
    pub modules: SecurityModules,
    /// The group of observers.
    observers: Option<u32>,
    /// Records can be made from another task's place (Linux 6.2).
    can_act_as_task: bool,
    /// The kernel hides process 1 from everybody.
    hides_init: bool,
    /// The size of `/proc/PID/fd` is the number of open files (Linux 6.2).
    shows_file_count: bool,
}

impl ClientFinder {
    /// Looks at this process. `None` if the kernel does not show its namespaces.
    pub fn new(
        programs: &mut Programs,
        modules: SecurityModules,
        observers: Option<u32>,
    ) -> taskdiag_core::error::Result<Option<ClientFinder>> {
        let records = programs.threads_of(std::process::id(), 0, 0, 1)?;
        let own = records.each().next().and_then(passes::view).map(Place::of);
        let Some(own) = own else {
            return Ok(None);
        };
        // Seen from its own place, this process must look the same.
        let seen_as_itself = programs.threads_of(std::process::id(), 0, own.task, 1)?;
        let is_recent = host::kernel_version().is_some_and(|version| version >= (6, 2));
        Ok(Some(ClientFinder {
            own,
            modules,
            observers,
            can_act_as_task: is_recent && !seen_as_itself.is_empty(),
            hides_init: hides_init(),
            shows_file_count: is_recent,
        }))
    }

    /// Whether a reader must read a client's [`ProcFacts`].
    pub fn needs_proc_facts(&self, facts: &Facts) -> bool {
        facts.subject.user_ns != INITIAL_USER_NS || self.modules.has_labels()
    }

    /// Adds what a reader has read. `None` if it is needed and was not read, or was read in another
    /// user namespace. (A client can't return to a namespace that it has left.)
    pub fn with_proc_facts(&self, mut facts: Facts, proc: Option<&ProcFacts>) -> Option<Facts> {
        if !self.needs_proc_facts(&facts) {
            return Some(facts);
        }
        let proc = proc.filter(|proc| proc.user_ns == facts.subject.user_ns)?;
        facts.subject.confined |= self.modules.has_labels() && proc.is_confined();
        if facts.subject.user_ns != INITIAL_USER_NS {
            facts.users = proc.users.clone();
            facts.groups = proc.groups.clone();
        }
        Some(facts)
    }

    /// The current facts of a client. `ESRCH`: it has ended. `EPERM`: its threads differ, it has
    /// too many of them, or its namespaces can't be used. `EBUSY`: it kept changing.
    pub fn find(&self, programs: &mut Programs, peer: &Peer) -> Result<Facts, Errno> {
        let mut refusal = Errno::BUSY;
        let began = Instant::now();
        for _ in 0..TRIES {
            let found = self.find_once(programs, peer);
            if !peer.is_alive() {
                return Err(Errno::SRCH);
            }
            match found {
                Ok(Some(facts)) => return Ok(facts),
                Ok(None) => {}
                // A thread that is ending may differ from the others for a moment.
                Err(Errno::PERM) => refusal = Errno::PERM,
                Err(errno) => return Err(errno),
            }
            if began.elapsed() >= passes::RETRY_TIME {
                break;
            }
            passes::spin_briefly();
        }
        Err(refusal)
    }

    /// `None` if the client changed during the read.
    fn find_once(&self, programs: &mut Programs, peer: &Peer) -> Result<Option<Facts>, Errno> {
        let groups = 1 << Group::Groups as u32;
        let records = programs
            .threads_of(peer.pid, groups, 0, MAX_THREADS)
            .map_err(|_| Errno::IO)?;
        if records.each().count() > MAX_THREADS {
            return Err(Errno::PERM);
        }
        let mut all: Option<Facts> = None;
        for record in records.each() {
            if record.has(AGAIN) {
                return Ok(None);
            }
            let (Some(object), Some(view)) = (Object::of(record), passes::view(record)) else {
                return Err(Errno::IO);
            };
            if !object.is_stable() {
                return Ok(None);
            }
            match view.has_namespaces.get() {
                has_namespaces::WHOLE => {}
                // A thread that is ending; the process may have others.
                has_namespaces::NOWHERE => continue,
                _ => return Ok(None),
            }
            let facts = self.facts_of_thread(peer, record, &object, view);
            all = Some(match all {
                None => facts,
                Some(all) => merge_threads(all, &facts)?,
            });
        }
        let mut facts = all.ok_or(Errno::SRCH)?;
        if facts.place.pid_ns != self.own.pid_ns {
            match self.pid_inside(programs, peer, &facts.place)? {
                Some(pid) => facts.subject.pid = pid,
                None => return Ok(None),
            }
        }
        Ok(Some(facts))
    }

    /// The pid of a client in its own pid namespace. `None` if it changed during the read.
    fn pid_inside(&self, programs: &mut Programs, peer: &Peer, place: &Place) -> Result<Option<u32>, Errno> {
        if !self.can_act_as_task {
            return Err(Errno::PERM);
        }
        let records = programs.threads_of(peer.pid, 0, place.task, 1).map_err(|_| Errno::IO)?;
        let record = records.each().next().ok_or(Errno::SRCH)?;
        if record.has(AGAIN) {
            return Ok(None);
        }
        let view = passes::view(record).ok_or(Errno::IO)?;
        let is_whole = view.has_namespaces.get() == has_namespaces::WHOLE;
        let is_same = is_whole && Place::of(view).pid_ns == place.pid_ns;
        Ok(is_same.then(|| record.header().pid.get()))
    }

    fn facts_of_thread(&self, peer: &Peer, record: Record<'_>, object: &Object<'_>, view: &View) -> Facts {
        let access = object.access();
        let is_in_group = |group: u32| {
            let listed = record.attribute(attr::GROUPS).map_or(&[][..], |groups| groups.payload);
            let mut listed = listed.chunks_exact(4);
            access.fsgid.get() == group || listed.any(|id| id == group.to_ne_bytes())
        };
        let place = Place::of(view);
        // In another pid namespace, pid 1 is another process.
        let hides_init = self.hides_init && place.pid_ns == self.own.pid_ns;
        Facts {
            subject: Subject {
                pid: record.header().pid.get(),
                own: OwnProcess::of(access),
                fsuid: access.fsuid.get(),
                fsgid: access.fsgid.get(),
                euid: access.euid.get(),
                capabilities: access.cap_effective.get(),
                user_ns: access.user_ns.get(),
                user_ns_level: access.user_ns_level.get(),
                landlock: access.landlock.get(),
                hidden_pid: hides_init.into(),
                confined: peer.is_confined || self.modules.may_hide_landlock(),
                counts_files: self.shows_file_count,
                may_attach: self.modules.may_attach(),
            },
            is_dumpable: access.dumpable.get() == dumpable::USER,
            is_observer: self.observers.is_some_and(is_in_group),
            users: IdMap::default(),
            groups: IdMap::default(),
            effective: (access.euid.get(), access.egid.get()),
            owner: object.outermost_owner(),
            place,
        }
    }

    /// Where a pass with these groups must be made for a client. `EPERM` if this kernel can't do
    /// that for any of the groups.
    pub fn vantage(&self, facts: &Facts, groups: Groups) -> Result<Vantage, Errno> {
        let differing = facts.place.differing(&self.own).and(groups);
        let has_numbers = facts.place.has_the_numbers_of(&self.own);
        if has_numbers && differing == Groups::NONE {
            Ok(Vantage::default())
        } else if self.can_act_as_task {
            Ok(Vantage {
                task: facts.place.task,
                has_other_numbers: !has_numbers,
                lacks: Groups::NONE,
            })
        } else if has_numbers {
            Ok(Vantage {
                lacks: differing,
                ..Vantage::default()
            })
        } else {
            Err(Errno::PERM)
        }
    }
}

/// Where a pass is made for a client: numbers and paths are relative to a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vantage {
    /// The kernel's address of this task; 0 for the daemon.
    pub task: u64,
    /// Pids or times have other values there than for the daemon.
    pub has_other_numbers: bool,
    /// The groups that can't be read from there.
    pub lacks: Groups,
}

/// The facts of a process, from those of two of its threads. `EPERM` if they differ in more than
/// capabilities, because it is not known which thread asks.
fn merge_threads(mut all: Facts, one: &Facts) -> Result<Facts, Errno> {
    all.subject.capabilities &= one.subject.capabilities;
    // Each thread is the process itself.
    all.subject.own.cap_permitted |= one.subject.own.cap_permitted;
    all.is_observer &= one.is_observer;
    let alike = Subject {
        capabilities: all.subject.capabilities,
        own: OwnProcess {
            cap_permitted: all.subject.own.cap_permitted,
            ..one.subject.own
        },
        ..one.subject.clone()
    };
    let same_place = Place {
        task: all.place.task,
        ..one.place
    } == all.place;
    if alike == all.subject && same_place && one.effective == all.effective {
        Ok(all)
    } else {
        Err(Errno::PERM)
    }
}

/// Whether this kernel hides process 1 from everybody, even from root. This process may trace all
/// others, so nobody may see what it may not see.
fn hides_init() -> bool {
    std::process::id() != 1 && fs::read_link("/proc/1/exe").is_err()
}
