//! Sockets in all network namespaces of the machine, and the processes that have them open.
//!
//! [`Handle::sockets`] passes each socket to a closure, with the values that `ss` shows: addresses,
//! state, queues, timers, and the processes that have descriptors of it.
//!
//! ```
//! use std::ops::ControlFlow;
//! use taskdiag::sockets::{Kind, Request};
//! use taskdiag::{Field, Handle, Query};
//!
//! let mut handle = Handle::new();
//! let processes = handle.query(&Query::processes().fields(Field::StartNs | Field::Comm))?;
//! let mut request = Request::default();
//! request.kinds = Kind::Tcp | Kind::Udp;
//! request.listening = true;
//! let answer = handle.sockets(&processes, &request, |socket| {
//!     for owner in socket.owners.ok().flatten().unwrap_or_default() {
//!         println!("{:?} is open in process {}", socket.local, owner.pid);
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! println!("{} sockets in {} network namespaces", answer.sockets, answer.namespaces);
//! # Ok::<(), taskdiag::Error>(())
//! ```
//!
//! The kernel makes the lists (sock_diag(7)), one for each protocol and namespace. Entering another
//! namespace needs `CAP_SYS_ADMIN`: without it, only the caller's own namespace is read, and the
//! others that were found are counted. Reading the descriptors of a process needs the right to
//! trace it.
//!
//! A list does not show a single moment. A socket that exists all the time is in it, except that a
//! TCP socket whose state changes while the list is made may be missing. No socket is in it twice.

mod dump;
mod info;
mod namespaces;
mod work;

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use bitflags::bitflags;
use rustix::fs::{fstat, getxattr, readlink};
use rustix::io::Errno;
use rustix::net::{socket_with, AddressFamily, SocketFlags, SocketType};
use rustix::thread::{capabilities, CapabilitySet};
use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::counters::{counts, Undecided};
use taskdiag_core::error::{Error, Result};
use taskdiag_core::field::Field;
use taskdiag_core::identity::Identity;
use taskdiag_core::plan::choose;
use taskdiag_core::query::Query;
use taskdiag_core::set::Set;
use taskdiag_core::snapshot::{Snapshot, SourceId};
use taskdiag_core::socket::diag::List;
use taskdiag_core::socket::has_port;
use taskdiag_sys::isolated::Failed;

use crate::descriptors::{self, Unseen};
use crate::errands::Errands;
use crate::files::{self, PathMatch};
use crate::owners::{borrowed, FoundOwners, Owners};
use crate::source::procfs::{is_exhausted, Proc};
use crate::Handle;
use dump::{Dumper, End, Interfaces, SocketSelection};
use info::Infos;
use namespaces::{Mounts, Namespace, Namespaces};

pub use taskdiag_core::filter::SocketFilter as Filter;
pub use taskdiag_core::socket::{
    Address, Endpoint, Family, Kind, NetlinkGroups, Owner, Protocol, Queues, Row, Shutdown, Socket, SocketField, State,
    TcpInfo, Timer, TimerKind, Type,
};

bitflags! {
    /// What to read about sockets besides what the kernel provides at once.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Wants: u8 {
        /// The descriptors of them.
        const OWNERS = 1;
        /// TCP's information about the connections.
        const INFO = 2;
        /// The other ends. This reads the descriptors of all processes.
        const PEERS = 4;
    }
}

/// What to read for the value of a field.
impl From<SocketField> for Wants {
    fn from(field: SocketField) -> Wants {
        match field {
            SocketField::Owners | SocketField::Pid | SocketField::Comm | SocketField::Fd => Wants::OWNERS,
            SocketField::Peers => Wants::PEERS,
            field if field.is_of_tcp() => Wants::INFO,
            _ => Wants::empty(),
        }
    }
}

/// Selects sockets, which must pass all of these tests, and the values to read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The kinds of the sockets.
    pub kinds: Set<Kind>,
    /// The states of the sockets.
    pub states: Set<State>,
    /// Only sockets that wait for a peer: [`Socket::is_listening`].
    pub listening: bool,
    /// Only sockets of IP with one of these ports at either end; all sockets if there are none.
    pub ports: Vec<u16>,
    /// Only sockets of which one of the processes has a descriptor.
    pub owned: bool,
    /// Only sockets for which this is true.
    pub filter: Option<Filter>,
    /// Only sockets in the caller's own network namespace, not in all namespaces that processes,
    /// mounts and descriptors keep alive.
    pub own_namespace: bool,
    /// The values to read. Those that the kernel provides at once are always there.
    pub fields: Set<SocketField>,
}

/// All sockets of the machine, with their owners.
impl Default for Request {
    fn default() -> Request {
        Request {
            kinds: Kind::ALL.into(),
            states: State::ALL.into(),
            listening: false,
            ports: Vec::new(),
            owned: false,
            filter: None,
            own_namespace: false,
            fields: SocketField::usual(),
        }
    }
}

impl Request {
    /// Whether the request asks for owners, so that [`Handle::sockets`] needs processes.
    pub fn has_owners(&self) -> bool {
        self.needs().contains(Wants::OWNERS)
    }

    /// Whether it is about all sockets of some kinds that the processes have.
    fn is_about_all(&self) -> bool {
        let has_tests = self.listening || self.own_namespace || self.filter.is_some() || !self.ports.is_empty();
        self.has_owners() && !has_tests && self.states == State::ALL.into()
    }

    /// What to read for the answer.
    fn wants(&self) -> Wants {
        self.fields.iter().map(Wants::from).collect()
    }

    /// What to read for the answer and for the filter.
    fn needs(&self) -> Wants {
        let fields = self.filter.as_ref().map(Filter::fields).unwrap_or_default();
        let mut needs = self.wants() | fields.into_iter().map(Wants::from).collect();
        if self.owned {
            needs |= Wants::OWNERS;
        }
        needs
    }
}

/// The number of sockets, and what is missing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Answer {
    /// Sockets that were passed on.
    pub sockets: u64,
    /// Network namespaces that were read.
    pub namespaces: u64,
    /// Network namespaces that the caller may not enter.
    pub namespaces_denied: u64,
    /// Processes that hide their network namespace: there may be more namespaces.
    pub processes_hidden: u64,
    /// Processes that hide their descriptors. They may own sockets.
    pub processes_denied: u64,
    /// Sockets left out because a value that the filter tests is not known.
    pub undecided: Undecided,
    /// Lists that may be incomplete, according to the kernel, at every attempt.
    pub interrupted: u64,
    /// Lists that ended with an error, and namespaces that could not be entered although they were
    /// found repeatedly.
    pub failed: u64,
    /// Lists or namespaces that did not answer within the patience.
    pub silent: u64,
    /// Network namespaces that were not entered, and mount namespaces and processes that were not
    /// read, because no thread or process could be started.
    pub no_thread: u64,
    /// Invalid answers of the kernel. Anything but 0 is a defect.
    pub malformed: u64,
    /// Lists that this kernel can't make, by kind: `raw`, `vsock`.
    pub unsupported: Vec<&'static str>,
    /// Sockets of the processes that are in no list. `None` if this was not found out, because the
    /// request asks for no owners, or tests more of a socket than its kind.
    pub unlisted: Option<Vec<Unlisted>>,
}

/// A socket that is in none of the kernel's lists that could be read, such as a TCP socket that is
/// neither bound nor connected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unlisted {
    /// Its inode number.
    pub inode: u64,
    /// The kernel's name of its protocol, such as `TCP`, `UDPv6`, `XDP` or `AF_VSOCK`.
    pub protocol: Known<String>,
    /// Its descriptors in the processes.
    pub owners: Vec<Owner>,
}

impl Answer {
    /// The counters with their names, in the order of a report. Those that nobody counted are left
    /// out.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let before = counts!(self: sockets, namespaces, namespaces_denied, processes_hidden, processes_denied);
        let named = before.into_iter().chain(self.undecided.named());
        let named = named.chain(counts!(self: interrupted, failed));
        let named = named.chain([
            ("no_answer", Some(self.silent)),
            ("no_thread", Some(self.no_thread)),
            ("malformed", Some(self.malformed)),
            ("unsupported", Some(self.unsupported.len() as u64)),
            ("unlisted", self.unlisted.as_ref().map(|sockets| sockets.len() as u64)),
        ]);
        named.filter_map(|(name, count)| Some((name, count?)))
    }
}

/// The maximum number of searches for namespaces. Another search follows if no way leads to a
/// namespace any more when it is to be entered.
const ROUNDS: usize = 4;

/// The sockets of few processes: once all are found, no more namespaces are read. Anybody can make
/// many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sought {
    processes: Vec<u32>,
    inodes: HashSet<u64>,
}

impl Sought {
    /// The sockets that these processes own. `None` if these are many.
    pub(crate) fn of(processes: &Snapshot, owners: &Owners) -> Option<Sought> {
        const MAX_PROCESSES: usize = 16;
        if processes.len() > MAX_PROCESSES {
            return None;
        }
        let processes: Vec<u32> = processes.tasks().filter_map(|task| task.pid().ok()).collect();
        let owned = owners.iter().filter(|(_, owner)| processes.contains(&owner.pid));
        let inodes = owned.map(|(inode, _)| inode).collect();
        Some(Sought { processes, inodes })
    }
}

/// Receives sockets.
pub(crate) type Each<'e> = dyn FnMut(&Socket<'_>) -> ControlFlow<()> + 'e;

/// Finds the other ends of sockets.
pub(crate) trait OtherEnds {
    /// The other end of a socket of a list.
    fn of_socket(&self, socket: &Socket<'_>) -> FoundOwners<'_>;
}

/// Answers [`Handle::sockets`]: first finds the owners, then passes on the lists.
#[derive(Debug)]
pub(crate) struct Listing<'a> {
    request: &'a Request,
    namespaces: Namespaces,
    seen: Seen,
    /// The owners that were found, if the request asks for them.
    pub(crate) owners: Option<Owners>,
    /// The sockets that are looked for, if these are few: the listing ends once they are found.
    pub(crate) sought: Option<Sought>,
    answer: Answer,
}

impl<'a> Listing<'a> {
    /// Finds the owners among the processes, if the request asks for them.
    pub(crate) fn begin(handle: &mut Handle, processes: &Snapshot, request: &'a Request) -> Result<Listing<'a>> {
        check(handle.only_source())?;
        let mut listing = Listing {
            request,
            namespaces: Namespaces::own(handle.proc().clone()),
            seen: Seen::default(),
            owners: None,
            sought: None,
            answer: Answer::default(),
        };
        if request.has_owners() {
            let has_others = !request.own_namespace && may_enter();
            let others = has_others.then_some((&listing.namespaces, &mut listing.seen));
            let owners = find_owners(handle, processes, others, &mut listing.answer)?;
            if request.owned {
                listing.sought = Sought::of(processes, &owners);
            }
            listing.owners = Some(owners);
        }
        Ok(listing)
    }

    /// Reads the lists, and passes on the sockets. `other_ends` is given if the request asks for
    /// them.
    pub(crate) fn pass_on(
        self,
        handle: &mut Handle,
        other_ends: Option<&dyn OtherEnds>,
        each: &mut Each<'_>,
    ) -> Result<Answer> {
        let Listing {
            request,
            mut namespaces,
            mut seen,
            owners,
            sought,
            answer,
        } = self;
        let patience = handle.patience_of_calls();
        let mut pass = Pass {
            request,
            wants: request.wants(),
            needs: request.needs(),
            owners,
            other_ends,
            answer,
            listed: HashSet::new(),
            sought,
            unsupported: Vec::new(),
            failure: None,
            each,
        };
        let mut dumper = Dumper::new(patience);
        let mut is_ended = false;
        if let (Some(sought), false) = (&pass.sought, request.own_namespace) {
            let query = Query::threads_of_these(sought.processes.iter().copied());
            namespaces.add_of_tasks(&handle.query(&query.fields(Field::NsNet))?);
            is_ended = pass.dump_all(&mut dumper, &mut namespaces, false).is_break();
        }
        for round in 0..ROUNDS {
            if is_ended || pass.has_all_sought() {
                break;
            }
            if !request.own_namespace {
                find_namespaces(handle, &mut namespaces, std::mem::take(&mut seen), patience)?;
                pass.answer.processes_hidden = namespaces.hidden.len() as u64 + namespaces.denied;
            }
            let is_last = round + 1 == ROUNDS;
            // The closure may have ended the pass.
            is_ended = pass.dump_all(&mut dumper, &mut namespaces, is_last).is_break();
            if is_ended || !namespaces.forget_ways() {
                break;
            }
        }
        if request.is_about_all() && !is_ended && may_enter() {
            is_ended = pass.dump_namespaces_of_sockets(&mut dumper, &mut namespaces).is_break();
        }
        if let Some(failure) = pass.failure {
            return Err(failure);
        }
        let mut answer = pass.answer;
        answer.no_thread += namespaces.unread;
        if request.is_about_all() && !is_ended {
            answer.unlisted = pass
                .owners
                .map(|owners| unlisted(&namespaces.proc, &owners, &pass.listed, request.kinds));
        }
        answer.malformed += dumper.malformed;
        answer.interrupted += dumper.interrupted;
        answer.unsupported = pass.unsupported.iter().map(|list| list.name()).collect();
        answer.unsupported.dedup();
        Ok(answer)
    }
}

/// The sockets of these kinds with owners that are in no list, and that their owners still have.
fn unlisted(proc: &Proc, owners: &Owners, listed: &HashSet<u64>, kinds: Set<Kind>) -> Vec<Unlisted> {
    let mut found: Vec<Unlisted> = Vec::new();
    for (inode, owner) in owners.iter().filter(|(inode, _)| !listed.contains(inode)) {
        let path = proc.join(format!("{}/fd/{}", owner.pid, owner.fd));
        let name = format!("socket:[{inode}]");
        if !readlink(&path, Vec::new()).is_ok_and(|link| link.to_bytes() == name.as_bytes()) {
            continue;
        }
        if let Some(last) = found.last_mut().filter(|last| last.inode == inode) {
            last.owners.push(owner.clone());
            continue;
        }
        let protocol = protocol_name(&path);
        let kind = protocol.as_deref().ok().and_then(kind_of);
        if kinds == Kind::ALL.into() || kind.is_some_and(|kind| kinds.contains(kind)) {
            found.push(Unlisted {
                inode,
                protocol,
                owners: vec![owner.clone()],
            });
        }
    }
    found
}

/// The kind of the sockets of a protocol, by the kernel's name of it.
fn kind_of(protocol: &str) -> Option<Kind> {
    Some(match protocol.strip_suffix("v6").unwrap_or(protocol) {
        "TCP" | "MPTCP" => Kind::Tcp,
        "UDP" | "UDP-Lite" | "UDPLITE" => Kind::Udp,
        "RAW" => Kind::Raw,
        "UNIX" | "UNIX-STREAM" => Kind::Unix,
        "NETLINK" => Kind::Netlink,
        "PACKET" => Kind::Packet,
        "AF_VSOCK" => Kind::Vsock,
        _ => return None,
    })
}

/// The kernel's name of the protocol of a descriptor's socket.
fn protocol_name(path: &Path) -> Known<String> {
    let mut name = [0; 64];
    match getxattr(path, "system.sockprotoname", &mut name[..]) {
        Ok(len) => Ok(String::from_utf8_lossy(&name[..len]).trim_end_matches('\0').to_owned()),
        Err(errno) if is_denied(errno) => Err(Absent::Denied),
        Err(Errno::NOENT | Errno::SRCH) => Err(Absent::Gone),
        Err(_) => Err(Absent::Unsupported),
    }
}

/// Fails if a forced source can't answer about sockets.
fn check(source: Option<SourceId>) -> Result<()> {
    let candidates = [SourceId::Bpf, SourceId::Procfs, SourceId::Broker].map(|owners| (owners, Ok(0)));
    choose("answer about sockets and their owners", source, &candidates).map(drop)
}

fn is_denied(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM)
}

/// Whether this is one of the sockets that send our requests.
fn is_ours(socket: &Socket<'_>, own: &[u64]) -> bool {
    let is_own = |inode: Option<u64>| inode.is_some_and(|inode| own.contains(&inode));
    is_own(socket.inode) || is_own(socket.peer_inode)
}

/// Processes whose descriptors of namespaces have been read.
#[derive(Debug, Default)]
struct Seen {
    processes: HashSet<Identity>,
    /// Their descriptors: process, descriptor, name.
    descriptors: Vec<(u32, u32, Vec<u8>)>,
}

impl Seen {
    /// Reads the descriptors of processes: keeps those of files on the file system of namespaces,
    /// and passes those of sockets to the closure, if there is one.
    fn read(
        &mut self,
        handle: &mut Handle,
        processes: &Snapshot,
        namespaces: &Namespaces,
        mut each_socket: Option<&mut dyn FnMut(u64, Owner)>,
    ) -> Result<Unseen> {
        self.processes
            .extend(processes.tasks().filter_map(|task| task.identity().ok()));
        // A file that leads to a namespace is a regular file.
        let mut kinds = Set::from(files::Kind::File);
        let mut file_systems = vec![PathMatch::file_system(namespaces.device())];
        if each_socket.is_some() {
            kinds |= files::Kind::Socket;
            file_systems.push(PathMatch::file_system(sockets_device()?));
        }
        descriptors::read(
            handle,
            processes,
            kinds,
            file_systems,
            files::FileField::Name.into(),
            |file, inode, owner| match (file.kind, file.name, &mut each_socket) {
                (Ok(files::Kind::Socket), _, Some(each)) => each(inode, owner),
                (_, Ok(name), _) => self
                    .descriptors
                    .push((file.tid.unwrap_or(owner.pid), owner.fd, name.to_vec())),
                _ => {}
            },
        )
    }
}

/// Finds the descriptors of sockets that processes have. If other namespaces are wanted, also finds
/// the descriptors of these.
fn find_owners(
    handle: &mut Handle,
    processes: &Snapshot,
    namespaces: Option<(&Namespaces, &mut Seen)>,
    answer: &mut Answer,
) -> Result<Owners> {
    let mut found = Vec::new();
    let mut each = |inode, owner| found.push((inode, owner));
    let unseen = match namespaces {
        Some((namespaces, seen)) => seen.read(handle, processes, namespaces, Some(&mut each))?,
        None => {
            let (kinds, wants) = (files::Kind::Socket.into(), Set::NONE);
            descriptors::read(handle, processes, kinds, Vec::new(), wants, |_, inode, owner| {
                each(inode, owner)
            })?
        }
    };
    answer.processes_denied = unseen.denied;
    answer.no_thread += unseen.no_thread;
    answer.malformed += unseen.malformed;
    Ok(Owners::new(found, unseen.missing))
}

/// Whether the caller may enter other namespaces. If not, descriptors of them are not searched for:
/// that would only count namespaces that can't be entered.
fn may_enter() -> bool {
    capabilities(None).is_ok_and(|held| held.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// The device of the file system that all sockets are on.
pub(crate) fn sockets_device() -> Result<u64> {
    let device = || -> rustix::io::Result<u64> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(fstat(socket)?.st_dev)
    };
    device().map_err(|errno| Error::io("can't make a socket", errno))
}

/// Finds the network namespaces that tasks, mounts and descriptors keep alive. Does not read the
/// descriptors of the processes in `seen` again.
fn find_namespaces(handle: &mut Handle, namespaces: &mut Namespaces, mut seen: Seen, patience: Duration) -> Result<()> {
    let mut tasks = handle.query(&Query::threads().fields(Field::StartNs | Field::NsNet | Field::NsMnt))?;
    namespaces.add_of_tasks(&tasks);
    namespaces.denied = tasks.counters().denied;
    let mounts = Mounts::of_tasks(&tasks);
    let mut unread = 0;
    if may_enter() {
        tasks.retain(|task| {
            let is_seen = task.identity().is_ok_and(|identity| seen.processes.contains(&identity));
            task.tid() == task.pid() && !is_seen
        });
        if !tasks.is_empty() {
            unread = seen.read(handle, &tasks, namespaces, None)?.no_thread;
        }
        for (pid, fd, name) in &seen.descriptors {
            namespaces.add_of_descriptor(*pid, *fd, name);
        }
    }
    // The paths of mounts lead through file systems, which may not answer.
    namespaces.unread = unread + namespaces.add_of_mounts(mounts, patience);
    Ok(())
}

/// The state of a pass, through which sockets reach the closure.
struct Pass<'a> {
    request: &'a Request,
    wants: Wants,
    needs: Wants,
    owners: Option<Owners>,
    /// Given if the request asks for other ends.
    other_ends: Option<&'a dyn OtherEnds>,
    answer: Answer,
    /// The inode numbers of the sockets in lists.
    listed: HashSet<u64>,
    /// What is looked for and not found yet, if that is little.
    sought: Option<Sought>,
    /// Lists that this kernel does not have.
    unsupported: Vec<List>,
    /// The error that ended the pass.
    failure: Option<Error>,
    each: &'a mut Each<'a>,
}

impl Pass<'_> {
    /// Whether nothing is left to be looked for.
    fn has_all_sought(&self) -> bool {
        self.sought.as_ref().is_some_and(|sought| sought.inodes.is_empty())
    }

    /// Passes on the sockets of the namespaces that are not done yet. If no way leads to a
    /// namespace any more, it is left for another round, or counted in the last round.
    fn dump_all(&mut self, dumper: &mut Dumper, namespaces: &mut Namespaces, is_last: bool) -> ControlFlow<()> {
        let mut lists: Vec<List> = List::of(self.request.kinds).collect();
        lists.retain(|list| self.request.ports.is_empty() || list.has_ports());
        let netlink: Vec<List> = lists
            .iter()
            .copied()
            .filter(|list| list.family == Family::Netlink)
            .collect();
        for namespace in namespaces.found.iter_mut().filter(|namespace| !namespace.is_done) {
            if self.has_all_sought() {
                break;
            }
            // If nothing leads there at all, nothing keeps it alive.
            namespace.is_done = !namespace.is_own && namespace.ways.is_empty() && namespace.socket.is_none();
            if namespace.is_done {
                continue;
            }
            let entered = dumper.enter(namespace);
            let entered = entered.and_then(|()| Ok(!namespace.is_own && dumper.is_alone()?));
            let is_final = |errno| is_denied(errno) || errno == Errno::AGAIN;
            namespace.is_done = !matches!(entered, Err(Failed::Errno(errno)) if !is_final(errno));
            match entered {
                Ok(is_alone) => {
                    self.answer.namespaces += 1;
                    // The kernel walks the tables of all namespaces for each list of one. Anybody can
                    // make many that have nothing.
                    self.dump_namespace(dumper, namespace, if is_alone { &netlink } else { &lists })?;
                }
                Err(Failed::Silent) => self.answer.silent += 1,
                // Then no other namespace can be read either.
                Err(Failed::Errno(errno)) if namespace.is_own || is_exhausted(errno) => {
                    self.failure = Some(match errno {
                        Errno::AGAIN => Error::not_read(None, Absent::NoThread),
                        errno => Error::io("can't ask the kernel about sockets (sock_diag)", errno),
                    });
                    return ControlFlow::Break(());
                }
                Err(Failed::Errno(errno)) if is_denied(errno) => self.answer.namespaces_denied += 1,
                Err(Failed::Errno(Errno::AGAIN)) => self.answer.no_thread += 1,
                // The task behind the way has left or ended. Other ways may still exist.
                Err(Failed::Errno(_)) => self.answer.failed += u64::from(is_last),
            }
        }
        ControlFlow::Continue(())
    }

    /// Passes on the sockets of the namespaces that nothing but sockets of the processes is known to
    /// keep alive.
    fn dump_namespaces_of_sockets(&mut self, dumper: &mut Dumper, namespaces: &mut Namespaces) -> ControlFlow<()> {
        let Some(owners) = &self.owners else {
            return ControlFlow::Continue(());
        };
        let mut is_found = false;
        for socket in unlisted(&namespaces.proc, owners, &self.listed, self.request.kinds) {
            let Some(Owner { pid, fd, .. }) = socket.owners.first() else {
                continue;
            };
            match dumper.namespace_of(socket.inode, *pid, *fd) {
                Ok(namespace) => is_found |= namespaces.add_of_socket(namespace, *pid, *fd),
                Err(Failed::Silent) => {
                    self.answer.silent += 1;
                    break;
                }
                Err(Failed::Errno(errno)) if is_denied(errno) => self.answer.namespaces_denied += 1,
                // The process has ended or closed it, or another procfs has other ids.
                Err(Failed::Errno(_)) => {}
            }
        }
        if is_found {
            return self.dump_all(dumper, namespaces, true);
        }
        ControlFlow::Continue(())
    }

    fn dump_namespace(&mut self, dumper: &mut Dumper, namespace: &Namespace, lists: &[List]) -> ControlFlow<()> {
        let mut interfaces = Interfaces::default();
        for &list in lists {
            if self.unsupported.contains(&list) && !list.has_text() {
                continue;
            }
            let wants_info = self.needs.contains(Wants::INFO) && list.is_tcp();
            let which = SocketSelection {
                states: self.states(),
                ports: &self.request.ports,
            };
            let is_known = self.unsupported.contains(&list);
            let seen = RefCell::new(HashSet::new());
            let is_about_all = self.request.is_about_all();
            let mut each = |errands: &mut Errands, mut socket: Socket<'_>, own: &[u64], infos: Option<&Infos>| {
                socket.netns = namespace.inode;
                if is_about_all {
                    self.listed.extend(socket.inode);
                }
                if let (Some(sought), Some(inode)) = (&mut self.sought, socket.inode) {
                    sought.inodes.remove(&inode);
                }
                // The text has no cookies.
                let is_new = socket.cookie == 0 || seen.borrow_mut().insert(socket.cookie);
                if !is_new || !self.may_want(&socket) || is_ours(&socket, own) {
                    return ControlFlow::Continue(());
                }
                self.complete(socket, errands, &mut interfaces, infos)
            };
            let mut end = End::Unsupported;
            let has_info = wants_info && !dumper.errands.is_here();
            let mut infos = (wants_info && !has_info).then(|| Infos::none(Absent::NoThread));
            if has_info && !is_known {
                let own = dumper.own();
                end = dumper.dump(list, which, true, |errands, socket, _| {
                    each(errands, socket, &own, None)
                })?;
                if end == End::Silent {
                    infos = Some(Infos::one_by_one(dumper, list, which, namespace, &seen.borrow()));
                }
            }
            let own = dumper.own();
            let mut each = |errands: &mut Errands, socket: Socket<'_>| each(errands, socket, &own, infos.as_ref());
            if !is_known && (!has_info || end == End::Silent) {
                end = dumper.dump(list, which, false, |errands, socket, _| each(errands, socket))?;
            }
            if end == End::Unsupported && list.has_text() {
                end = dumper.dump_text(list, each)?;
            }
            match end {
                End::Whole => {}
                End::Unsupported => self.unsupported.push(list),
                End::Failed => self.answer.failed += 1,
                End::Silent => {
                    self.answer.silent += 1;
                    // The process that had entered is lost.
                    if dumper.enter(namespace).is_err() {
                        break;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Adds what the list lacks to a socket, and passes it on.
    fn complete<'s>(
        &'s mut self,
        mut socket: Socket<'s>,
        errands: &mut Errands,
        interfaces: &'s mut Interfaces,
        infos: Option<&Infos>,
    ) -> ControlFlow<()> {
        if let Some(index) = socket.interface_index {
            socket.interface = interfaces.name(errands, index).map(Some);
        }
        if let Some(infos) = infos {
            socket.info = infos.of(&socket);
        }
        self.deliver(socket)
    }

    /// The states to request from the kernel.
    fn states(&self) -> Set<State> {
        let states = self.request.states;
        if !self.request.listening {
            return states;
        }
        let listening = [State::Listen, State::Unconn].into_iter();
        listening.filter(|&state| states.contains(state)).collect()
    }

    /// Whether a socket passes the tests that need no further values.
    fn may_want(&self, socket: &Socket<'_>) -> bool {
        let request = self.request;
        request.states.contains(socket.state)
            && (!request.listening || socket.is_listening())
            && (request.ports.is_empty() || request.ports.iter().any(|&port| has_port(socket, port)))
    }

    /// Passes on a socket.
    fn deliver<'s>(&'s mut self, mut socket: Socket<'s>) -> ControlFlow<()> {
        let Pass {
            request,
            wants,
            owners,
            other_ends,
            answer,
            each,
            ..
        } = self;
        socket.owners = match owners {
            Some(owners) => owners.of(socket.inode),
            None => Err(Absent::NotAsked),
        };
        if request.owned
            && !socket
                .owners
                .is_ok_and(|owners| owners.is_some_and(|owners| !owners.is_empty()))
        {
            return ControlFlow::Continue(());
        }
        let filter = request.filter.as_ref();
        if filter.is_some_and(|filter| !filter.admits(&socket, &mut answer.undecided)) {
            return ControlFlow::Continue(());
        }
        if !wants.contains(Wants::OWNERS) {
            socket.owners = Err(Absent::NotAsked);
        }
        if !wants.contains(Wants::INFO) {
            socket.info = Err(Absent::NotAsked);
        }
        let found = other_ends.map(|ends| ends.of_socket(&socket));
        let mut socket = socket;
        if let Some(found) = &found {
            socket.peers = borrowed(found);
        }
        answer.sockets += 1;
        each(&socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what the fields at the ends of the table's parts need.
    #[test]
    fn fields_say_what_has_to_be_found_out() {
        for (field, wants) in [
            (SocketField::CgroupId, Wants::empty()),
            (SocketField::RttNs, Wants::INFO),
            (SocketField::Congestion, Wants::INFO),
            (SocketField::Peers, Wants::PEERS),
            (SocketField::Owners, Wants::OWNERS),
            (SocketField::Pid, Wants::OWNERS),
            (SocketField::Fd, Wants::OWNERS),
        ] {
            assert_eq!(Wants::from(field), wants, "{field}");
        }
    }
}
