//! The other ends of pipes, of UNIX sockets, and of connections within a network namespace.
//!
//! [`Peers`] reads the descriptors of all processes and the lists of sockets once. The rest is
//! pure: it finds the descriptors at the other end of one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::ControlFlow;

use taskdiag_core::absent::Absent;
use taskdiag_core::error::Result;
use taskdiag_core::field::Field;
use taskdiag_core::identity::Identity;
use taskdiag_core::mapping::Device;
use taskdiag_core::open_file::{Access, Kind};
use taskdiag_core::query::Query;
use taskdiag_core::set::Set;
use taskdiag_core::snapshot::Snapshot;
use taskdiag_core::socket::{Address, Endpoint, Family, Owner, Protocol, Socket, State, Type};

use crate::descriptors;
use crate::files::{self, OpenFile};
use crate::owners::{FoundOwners, Owners};
use crate::sockets::{self, Listing, Sought};
use crate::Handle;

/// Finds other ends.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// The descriptors of sockets.
    owners: Owners,
    pipes: HashMap<(Device, u64), Pipe>,
    /// Sockets that are connected by IP, sorted, each with its inode number.
    connections: Vec<(Connection, Option<u64>)>,
    /// The sockets that have an inode number, by that number.
    ends: HashMap<u64, OtherEnd>,
    /// Why a socket with a descriptor may be in no list: a namespace is denied, or a list is
    /// missing.
    unlisted: Option<Absent>,
}

/// The descriptors of a pipe or a fifo. Those for both directions are in both lists.
#[derive(Debug, Default)]
struct Pipe {
    readers: Vec<Owner>,
    writers: Vec<Owner>,
}

/// A connection of IP, as one end sees it. IPv4 within IPv6 counts as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Connection {
    netns: u64,
    protocol: u16,
    local: (IpAddr, u32),
    remote: (IpAddr, u32),
}

/// What a socket is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OtherEnd {
    /// To nothing, or to nothing in the lists of this machine.
    None,
    /// To a UNIX socket. Without a number nobody has it: it was not accepted, or is closed.
    Unix(Option<u64>),
    Connection(Connection, State),
}

impl Connection {
    fn of(socket: &Socket<'_>) -> Option<Connection> {
        let protocol = match socket.protocol? {
            Protocol::Ip(number) if is_connected(number) => number,
            _ => return None,
        };
        let end = |end: Endpoint| match (end.addr?, end.port?) {
            (Address::Ip(addr), port) => Some((addr.to_canonical(), port)),
            _ => None,
        };
        Some(Connection {
            netns: socket.netns,
            protocol,
            local: end(socket.local)?,
            remote: end(socket.remote)?,
        })
    }

    fn seen_from_the_other_end(self) -> Connection {
        Connection {
            local: self.remote,
            remote: self.local,
            ..self
        }
    }
}

/// Whether sockets of this protocol of IP are connected by addresses and ports.
fn is_connected(protocol: u16) -> bool {
    [
        libc::IPPROTO_TCP,
        libc::IPPROTO_MPTCP,
        libc::IPPROTO_UDP,
        libc::IPPROTO_UDPLITE,
    ]
    .contains(&protocol.into())
}

impl OtherEnd {
    fn of(socket: &Socket<'_>) -> OtherEnd {
        match socket.family {
            Family::Unix => match (socket.peer_inode, socket.socket_type, socket.state) {
                (Some(inode), ..) => OtherEnd::Unix(Some(inode)),
                // Datagram sockets are in this state, too, if another socket is connected to them.
                (None, Type::Stream | Type::Seqpacket, State::Estab) => OtherEnd::Unix(None),
                _ => OtherEnd::None,
            },
            _ => match Connection::of(socket) {
                Some(connection) => OtherEnd::Connection(connection, socket.state),
                None => OtherEnd::None,
            },
        }
    }
}

impl Peers {
    /// Reads what is needed to find the other ends of the pipes and sockets of processes. That of a
    /// socket is in its own namespace or, of UNIX sockets, named by its list.
    pub(crate) fn for_files(handle: &mut Handle, of: &Snapshot) -> Result<Peers> {
        let mut peers = Peers::default();
        let processes = handle.query(&Query::processes().fields(Field::StartNs | Field::Comm))?;
        let (kinds, wants) = (files::Kind::Socket | files::Kind::Fifo, Set::NONE);
        let mut sockets = Vec::new();
        let unseen = descriptors::read(
            handle,
            &processes,
            kinds,
            Vec::new(),
            wants,
            |file, inode, owner| match (file.kind, file.device, file.access()) {
                (Ok(Kind::Socket), ..) => sockets.push((inode, owner)),
                (Ok(Kind::Fifo), Ok(device), Ok(Some(access))) => peers.add_pipe((device, inode), access, owner),
                _ => {}
            },
        )?;
        for pipe in peers.pipes.values_mut() {
            for end in [&mut pipe.readers, &mut pipe.writers] {
                // A thread's own table may have the same.
                end.sort_by_key(|owner| (owner.pid, owner.fd));
                end.dedup_by_key(|owner| (owner.pid, owner.fd));
            }
        }
        peers.owners = Owners::new(sockets, unseen.missing);
        let sought = Sought::of(of, &peers.owners);
        peers.read_lists(handle, false, sought)?;
        Ok(peers)
    }

    /// Reads what is needed to find the other ends of sockets. Does not read the descriptors of
    /// processes again if they are `known`.
    pub(crate) fn for_sockets(
        handle: &mut Handle,
        known: Option<(&Snapshot, &Owners)>,
        own_namespace: bool,
        sought: Option<Sought>,
    ) -> Result<Peers> {
        let mut peers = Peers::default();
        let mut processes = handle.query(&Query::processes().fields(Field::StartNs | Field::Comm))?;
        // Other ends have names, whatever the request about owners asked for.
        let known = known.filter(|(snapshot, _)| snapshot.fields().contains(Field::Comm));
        let mut sockets = Vec::new();
        let mut missing = None;
        if let Some((snapshot, owners)) = known {
            let seen: HashSet<Identity> = snapshot.tasks().filter_map(|task| task.identity().ok()).collect();
            processes.retain(|task| !task.identity().is_ok_and(|identity| seen.contains(&identity)));
            sockets.extend(owners.iter().map(|(inode, owner)| (inode, owner.clone())));
            missing = owners.missing;
        }
        // With no processes another source may answer, which does not show every process.
        if !processes.is_empty() || known.is_none() {
            let (kinds, wants) = (files::Kind::Socket.into(), Set::NONE);
            let unseen = descriptors::read(handle, &processes, kinds, Vec::new(), wants, |_, inode, owner| {
                sockets.push((inode, owner));
            })?;
            missing = missing.or(unseen.missing);
        }
        peers.owners = Owners::new(sockets, missing);
        peers.read_lists(handle, own_namespace, sought)?;
        Ok(peers)
    }

    /// Reads the lists of sockets, after the descriptors.
    fn read_lists(&mut self, handle: &mut Handle, own_namespace: bool, sought: Option<Sought>) -> Result<()> {
        let request = sockets::Request {
            own_namespace,
            fields: Set::NONE,
            ..sockets::Request::default()
        };
        let nobody = Snapshot::default();
        let mut listing = Listing::begin(handle, &nobody, &request)?;
        listing.sought = sought;
        let answer = listing.pass_on(handle, None, &mut |socket| {
            self.add_socket(socket);
            ControlFlow::Continue(())
        })?;
        self.connections.sort_unstable();
        // A hidden process may keep a namespace alive.
        let is_hidden =
            answer.namespaces_denied + answer.processes_hidden > 0 || self.owners.missing == Some(Absent::Denied);
        self.unlisted = if answer.no_thread > 0 || self.owners.missing == Some(Absent::NoThread) {
            Some(Absent::NoThread)
        } else if is_hidden {
            Some(Absent::Denied)
        } else if answer.silent + answer.failed > 0 {
            Some(Absent::NoAnswer)
        } else {
            None
        };
        Ok(())
    }

    fn add_pipe(&mut self, number: (Device, u64), access: Access, owner: Owner) {
        let pipe = self.pipes.entry(number).or_default();
        if matches!(access, Access::Read | Access::ReadWrite) {
            pipe.readers.push(owner.clone());
        }
        if matches!(access, Access::Write | Access::ReadWrite) {
            pipe.writers.push(owner);
        }
    }

    fn add_socket(&mut self, socket: &Socket<'_>) {
        let end = OtherEnd::of(socket);
        if let OtherEnd::Connection(connection, _) = end {
            self.connections.push((connection, socket.inode));
        }
        if let Some(inode) = socket.inode {
            self.ends.insert(inode, end);
        }
    }

    fn of_pipe(&self, number: (Device, u64), access: Option<Access>, own: (u32, u32)) -> FoundOwners<'_> {
        let is_end = matches!(access, Some(Access::Read | Access::Write | Access::ReadWrite));
        if !is_end {
            return Ok(None);
        }
        // A process opened it meanwhile, and it is not known which.
        let pipe = self.pipes.get(&number).ok_or(Absent::Gone)?;
        let found = match access {
            Some(Access::Read) => Cow::Borrowed(&pipe.writers[..]),
            Some(Access::Write) => Cow::Borrowed(&pipe.readers[..]),
            _ => Cow::Owned(pipe.others(own)),
        };
        self.unless_hidden(found)
    }

    fn of_end(&self, end: OtherEnd) -> FoundOwners<'_> {
        const NOBODY: FoundOwners<'_> = Ok(Some(Cow::Borrowed(&[])));
        match end {
            OtherEnd::None => Ok(None),
            OtherEnd::Unix(None) => NOBODY,
            OtherEnd::Unix(Some(inode)) => self.of_sockets(&[Some(inode)]),
            OtherEnd::Connection(connection, state) => {
                let sockets = self.connected(connection.seen_from_the_other_end());
                match (&sockets[..], state) {
                    // Another machine or namespace.
                    ([], _) if !connection.remote.0.is_loopback() => Ok(None),
                    // Whichever socket is bound to that port receives it.
                    ([], _) if is_datagram(connection.protocol) => Ok(None),
                    // It is connected, but to other addresses (NAT), or it was closed meanwhile.
                    ([], State::Estab) => Err(Absent::Gone),
                    // It has not been accepted, or is closed.
                    ([], _) => NOBODY,
                    (sockets, _) => self.of_sockets(sockets),
                }
            }
        }
    }

    /// The inode numbers of the sockets with this connection.
    fn connected(&self, connection: Connection) -> Vec<Option<u64>> {
        let start = self.connections.partition_point(|(other, _)| *other < connection);
        let found = self.connections[start..].iter();
        found
            .take_while(|(other, _)| *other == connection)
            .map(|(_, inode)| *inode)
            .collect()
    }

    fn of_sockets(&self, sockets: &[Option<u64>]) -> FoundOwners<'_> {
        let inodes: Vec<u64> = sockets.iter().copied().flatten().collect();
        match inodes[..] {
            [] => Ok(Some(Cow::Borrowed(&[]))),
            [inode] => self.unless_hidden(Cow::Borrowed(self.owners.known(inode))),
            _ => {
                let owners = inodes.iter().flat_map(|&inode| self.owners.known(inode));
                self.unless_hidden(owners.cloned().collect())
            }
        }
    }

    /// Nobody, unless the owner may be a process whose descriptors are hidden.
    fn unless_hidden<'a>(&self, found: Cow<'a, [Owner]>) -> FoundOwners<'a> {
        match self.owners.missing {
            Some(reason) if found.is_empty() => Err(reason),
            _ => Ok(Some(found)),
        }
    }
}

impl files::OtherEnds for Peers {
    fn of_file(&self, pid: u32, file: &OpenFile<'_>) -> FoundOwners<'_> {
        let Some(fd) = file.fd else { return Ok(None) };
        match file.kind? {
            // It may also be the file that a socket is bound to.
            Kind::Socket if file.access()? == Some(Access::Path) => Ok(None),
            Kind::Fifo => self.of_pipe((file.device?, file.inode?), file.access()?, (pid, fd)),
            Kind::Socket => match (self.ends.get(&file.inode?), self.unlisted) {
                (Some(&end), _) => self.of_end(end),
                (None, Some(reason)) => Err(reason),
                // It is bound to nothing, of a family that has no lists, or in a network namespace
                // that only sockets keep alive.
                (None, None) => Err(Absent::Unsupported),
            },
            _ => Ok(None),
        }
    }
}

impl sockets::OtherEnds for Peers {
    fn of_socket(&self, socket: &Socket<'_>) -> FoundOwners<'_> {
        self.of_end(OtherEnd::of(socket))
    }
}

fn is_datagram(protocol: u16) -> bool {
    [libc::IPPROTO_UDP, libc::IPPROTO_UDPLITE].contains(&protocol.into())
}

impl Pipe {
    /// All descriptors except this one of a process: those that can read, then those that can only
    /// write.
    fn others(&self, (pid, fd): (u32, u32)) -> Vec<Owner> {
        let only_writes = |owner: &&Owner| !self.readers.contains(owner);
        let all = self.readers.iter().chain(self.writers.iter().filter(only_writes));
        all.filter(|owner| (owner.pid, owner.fd) != (pid, fd))
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use taskdiag_core::absent::Known;

    use super::*;
    use crate::files::{OtherEnds as _, Use};

    const PIPE: (Device, u64) = (Device { major: 0, minor: 14 }, 7);

    fn owner(pid: u32, fd: u32) -> Owner {
        Owner::new(pid, fd, Ok(b"x"))
    }

    fn pids(found: FoundOwners<'_>) -> Known<Option<Vec<(u32, u32)>>> {
        Ok(found?.map(|owners| owners.iter().map(|owner| (owner.pid, owner.fd)).collect()))
    }

    fn end_of_pipe(fd: u32, flags: i32) -> OpenFile<'static> {
        OpenFile {
            fd: Some(fd),
            kind: Ok(Kind::Fifo),
            device: Ok(PIPE.0),
            inode: Ok(PIPE.1),
            open_flags: Ok(Some(flags as u32)),
            ..OpenFile::bare(Use::Fd)
        }
    }

    /// Check that the ends of a pipe are those of the other direction, that a descriptor for both
    /// directions is at both ends, and that none is at its own other end.
    #[test]
    fn pipes_have_two_ends() {
        let mut peers = Peers::default();
        peers.add_pipe(PIPE, Access::Read, owner(1, 3));
        peers.add_pipe(PIPE, Access::Write, owner(1, 4));
        peers.add_pipe(PIPE, Access::Write, owner(2, 4));
        let of = |peers: &Peers, pid, fd, flags| pids(peers.of_file(pid, &end_of_pipe(fd, flags)));
        assert_eq!(of(&peers, 1, 3, libc::O_RDONLY), Ok(Some(vec![(1, 4), (2, 4)])));
        assert_eq!(of(&peers, 2, 4, libc::O_WRONLY), Ok(Some(vec![(1, 3)])));
        assert_eq!(of(&peers, 9, 9, libc::O_PATH), Ok(None));
        peers.add_pipe(PIPE, Access::ReadWrite, owner(3, 5));
        assert_eq!(of(&peers, 1, 4, libc::O_WRONLY), Ok(Some(vec![(1, 3), (3, 5)])));
        assert_eq!(of(&peers, 3, 5, libc::O_RDWR), Ok(Some(vec![(1, 3), (1, 4), (2, 4)])));
    }

    /// Check that nobody is distinguished from a hidden process, and from what was not read.
    #[test]
    fn nobody_is_not_somebody_hidden() {
        let mut peers = Peers::default();
        let reader = end_of_pipe(3, libc::O_RDONLY);
        assert_eq!(pids(peers.of_file(1, &reader)), Err(Absent::Gone));
        peers.add_pipe(PIPE, Access::Read, owner(1, 3));
        assert_eq!(pids(peers.of_file(1, &reader)), Ok(Some(vec![])));
        peers.owners.missing = Some(Absent::Denied);
        assert_eq!(pids(peers.of_file(1, &reader)), Err(Absent::Denied));
        let socket = OpenFile {
            kind: Ok(Kind::Socket),
            ..reader
        };
        let path = OpenFile {
            open_flags: Ok(Some(libc::O_PATH as u32)),
            ..socket
        };
        assert_eq!(pids(peers.of_file(1, &path)), Ok(None));
        assert_eq!(pids(peers.of_file(1, &socket)), Err(Absent::Unsupported));
        peers.unlisted = Some(Absent::Denied);
        assert_eq!(pids(peers.of_file(1, &socket)), Err(Absent::Denied));
    }

    fn connection(local: (&str, u32), remote: (&str, u32)) -> Connection {
        let end = |(addr, port): (&str, u32)| (addr.parse::<IpAddr>().expect("an address").to_canonical(), port);
        Connection {
            netns: 1,
            protocol: libc::IPPROTO_TCP as u16,
            local: end(local),
            remote: end(remote),
        }
    }

    /// Check that connections are found from either end, even if one is IPv6 and the other IPv4,
    /// and only in the same namespace, and what a missing other end means.
    #[test]
    fn connections_have_two_ends() {
        let client = connection(("127.0.0.1", 5000), ("127.0.0.1", 80));
        let server = connection(("::ffff:127.0.0.1", 80), ("::ffff:127.0.0.1", 5000));
        let mut peers = Peers {
            owners: Owners::new(vec![(11, owner(1, 3)), (12, owner(2, 4)), (12, owner(3, 4))], None),
            connections: vec![(client, Some(11)), (server, Some(12))],
            ..Peers::default()
        };
        peers.connections.sort_unstable();
        let of = |connection, state| pids(peers.of_end(OtherEnd::Connection(connection, state)));
        assert_eq!(of(client, State::Estab), Ok(Some(vec![(2, 4), (3, 4)])));
        assert_eq!(of(server, State::Estab), Ok(Some(vec![(1, 3)])));
        let elsewhere = Connection { netns: 2, ..client };
        assert_eq!(of(elsewhere, State::Estab), Err(Absent::Gone));
        assert_eq!(of(elsewhere, State::CloseWait), Ok(Some(vec![])));
        let udp = Connection {
            protocol: libc::IPPROTO_UDP as u16,
            ..elsewhere
        };
        assert_eq!(of(udp, State::Estab), Ok(None));
        let far = connection(("10.0.0.1", 5000), ("10.0.0.2", 80));
        assert_eq!(of(far, State::Estab), Ok(None));
    }
}
