//! Sums of sockets: by what their owners have in common, port or state.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use taskdiag::sockets::{Address, Family, Protocol, Queues, Socket, SocketField, State};
use taskdiag::{Absent, Known, Snapshot};

use super::RELATION;
use crate::grouping::{self, sum_columns, Grouping, GroupingChoice, Name, SumLayout};
use crate::output::relation::{ColumnInfo, NONE};

const fn of(field: SocketField) -> ColumnInfo {
    RELATION[field as usize]
}

/// Local port, with the protocol.
pub static PORT: Grouping = Grouping::own("PORT", &[of(SocketField::Protocol), of(SocketField::LocalPort)]);

/// State, with the family.
pub static STATE: Grouping = Grouping::own("STATE", &[of(SocketField::Family), of(SocketField::State)]);

static PROTOCOL: Grouping = Grouping::own("PROTO", &[of(SocketField::Protocol)]);

/// The address at the other end.
pub static REMOTE_ADDR: Grouping = Grouping::own("PEER", &[of(SocketField::RemoteAddr)]);

/// The port at the other end, with the protocol.
pub static REMOTE_PORT: Grouping =
    Grouping::own("PEER PORT", &[of(SocketField::Protocol), of(SocketField::RemotePort)]);

/// What the other ends of connections are added up by.
pub const OF_REMOTES: [GroupingChoice; 3] = [
    ("protocol", &PROTOCOL, "Protocol"),
    ("remote_addr", &REMOTE_ADDR, "Address at the other end"),
    ("remote_port", &REMOTE_PORT, "Port at the other end, with the protocol"),
];

/// The group of a socket that is not of a process.
fn own_name(by: &Grouping, socket: &Socket<'_>) -> Name {
    if by == &STATE {
        return Name::State(socket.state, socket.family);
    }
    let is_ip = matches!(socket.family, Family::Inet | Family::Inet6);
    let end = if by == &PORT { &socket.local } else { &socket.remote };
    let address = match end.addr {
        Some(Address::Ip(address)) => Some(address),
        _ => None,
    };
    of_end(by, socket.protocol, address, end.port.filter(|_| is_ip)).unwrap_or(Name::None(NONE))
}

/// The group of an end of a connection: its protocol, its address, or else its port.
pub fn of_end(by: &Grouping, protocol: Option<Protocol>, address: Option<IpAddr>, port: Option<u32>) -> Option<Name> {
    if by == &REMOTE_ADDR {
        return Some(Name::Text(address?.to_canonical().to_string().into_bytes()));
    }
    let protocol = protocol?.to_string();
    if by == &PROTOCOL {
        return Some(Name::Text(protocol.into_bytes()));
    }
    Some(Name::Port(protocol, port?))
}

/// A sum of sockets.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    sockets: u64,
    processes: HashSet<u32>,
    listening: u64,
    connected: u64,
    recv_bytes: u64,
    send_bytes: u64,
    /// What TCP has sent and received, if that was asked for.
    moved: Option<[u64; 2]>,
}

impl Sum {
    /// Adds a socket, with those of its owners that are in this group.
    pub fn add(&mut self, socket: &Socket<'_>, owners: impl IntoIterator<Item = u32>) {
        self.sockets += 1;
        self.processes.extend(owners);
        self.listening += u64::from(socket.state == State::Listen);
        self.connected += u64::from(socket.state == State::Estab);
        if let Ok(Queues::Data {
            recv_bytes, send_bytes, ..
        }) = socket.queues
        {
            self.recv_bytes += recv_bytes;
            self.send_bytes += send_bytes;
        }
        if let Ok(Some(info)) = socket.info {
            if let (Some(acked), Some(received)) = (info.acked_bytes, info.received_bytes) {
                let moved = self.moved.get_or_insert([0; 2]);
                moved[0] += acked;
                moved[1] += received;
            }
        }
    }
}

impl grouping::Sum for Sum {
    const COLUMNS: &'static [(ColumnInfo, &'static str)] = sum_columns! {
        "sockets_count": Count, "SOCKETS", "The number of sockets.";
        "processes_count": Count, "PROCESSES", "The number of processes that have them.";
        "listening_count": Count, "LISTENING", "The number of sockets in the state LISTEN. --listening also shows those that receive from anybody.";
        "connected_count": Count, "CONNECTED", "The number of connected sockets.";
        column of(SocketField::RecvQueueBytes), "RECV-Q";
        column of(SocketField::SendQueueBytes), "SEND-Q";
        column of(SocketField::AckedBytes), "ACKED";
        column of(SocketField::ReceivedBytes), "RECEIVED";
    };

    fn numbers(&self) -> Vec<Known<u64>> {
        let numbers = [
            self.sockets,
            self.processes.len() as u64,
            self.listening,
            self.connected,
            self.recv_bytes,
            self.send_bytes,
        ];
        let moved = self.moved.map_or([Err(Absent::NotAsked); 2], |moved| moved.map(Ok));
        numbers.map(Ok).into_iter().chain(moved).collect()
    }

    fn has(&self, column: usize) -> bool {
        self.numbers()[column].is_ok()
    }
}

/// Sums by group.
pub struct Sums<'a> {
    layout: &'a SumLayout,
    /// The sums.
    pub groups: HashMap<Vec<Name>, Sum>,
    /// The groups of each process that may be an owner.
    names: HashMap<u32, Vec<Name>>,
}

impl<'a> Sums<'a> {
    /// Creates empty sums.
    pub fn new(layout: &'a SumLayout, processes: &Snapshot) -> Sums<'a> {
        // What is not of a process is put in for each socket.
        let names = |task: taskdiag::Task<'_>| Some((task.pid().ok()?, layout.names(&task, |_| Name::None(NONE))));
        Sums {
            layout,
            groups: HashMap::new(),
            names: processes.tasks().filter_map(names).collect(),
        }
    }

    /// Adds a socket to its groups, once to each.
    pub fn add(&mut self, socket: &Socket<'_>) {
        let owners = match socket.owners {
            Ok(Some(owners)) => owners,
            _ => &[],
        };
        let mut groups: HashMap<Vec<Name>, Vec<u32>> = HashMap::new();
        for owner in owners {
            let names = self.names.get(&owner.pid).map(Vec::as_slice);
            let names = self.names_of(socket, |index| match names {
                Some(names) => names[index].clone(),
                None => Name::None(Absent::Gone.as_str()),
            });
            groups.entry(names).or_default().push(owner.pid);
        }
        if groups.is_empty() {
            let reason = socket.owners.err().map_or(NONE, Absent::as_str);
            groups.insert(self.names_of(socket, |_| Name::None(reason)), Vec::new());
        }
        for (name, pids) in groups {
            self.groups.entry(name).or_default().add(socket, pids);
        }
    }

    /// The groups of a socket; `of_process` gives those of an owner.
    fn names_of(&self, socket: &Socket<'_>, of_process: impl Fn(usize) -> Name) -> Vec<Name> {
        let by = self.layout.by.iter().enumerate();
        by.map(|(index, by)| {
            if by.is_of_process() {
                of_process(index)
            } else {
                own_name(by, socket)
            }
        })
        .collect()
    }
}
