//! Sums of sockets: by program, unit, container, user, port or state.

use std::collections::{HashMap, HashSet};

use clap::ValueEnum;
use taskdiag::sockets::{Family, Queues, Socket, State};
use taskdiag::{Absent, Snapshot, Task, Value};

use crate::choice::{self, SortBy, SumKey};
use crate::grouping::{self, Grouping};
use crate::outcome::Failure;
use crate::output::Cell;

/// The ways to group sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// File name of the executable of their owner; the name of the process where that is denied
    Program,
    /// The systemd unit of their owner, of the system or of a user
    Unit,
    /// The container of their owner
    Container,
    /// Local port, with the protocol
    Port,
    /// State, with the family
    State,
}

impl By {
    /// How rows name their group.
    pub fn grouping(self) -> &'static Grouping {
        static PORT: Grouping = Grouping {
            name: "local_port",
            keys: &["protocol", "local_port"],
            heading: "PORT",
            fields: &[],
        };
        static STATE: Grouping = Grouping {
            name: "state",
            keys: &["family", "state"],
            heading: "STATE",
            fields: &[],
        };
        match self {
            By::Program => &grouping::PROGRAM,
            By::Unit => &grouping::UNIT,
            By::Container => &grouping::CONTAINER,
            By::Port => &PORT,
            By::State => &STATE,
        }
    }

    /// Whether the group depends on the owner.
    fn is_of_owner(self) -> bool {
        !self.grouping().fields.is_empty()
    }

    /// The group of an owner.
    fn of(self, task: &Task<'_>) -> Result<Name, Absent> {
        let text = match self {
            By::Unit => grouping::unit(task),
            By::Container => grouping::container(task),
            _ => grouping::program(task),
        };
        Ok(Name::Text(text?.to_vec()))
    }
}

/// The name of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// Arbitrary bytes.
    Text(Vec<u8>),
    /// A protocol and a port.
    Port(String, u32),
    /// A family and a state.
    State(Family, State),
    /// There is no name, or it is unknown; the reason.
    None(&'static str),
}

impl Name {
    /// The values for [`Grouping::keys`].
    pub fn cells(&self, by: By) -> Vec<Cell<'_>> {
        match self {
            Name::Text(name) => vec![Ok(Value::Text(name))],
            Name::Port(protocol, port) => vec![
                Ok(Value::Text(protocol.as_bytes())),
                Ok(Value::Unsigned((*port).into())),
            ],
            Name::State(family, state) => vec![
                Ok(Value::Text(family.name().as_bytes())),
                Ok(Value::Text(state.name().as_bytes())),
            ],
            Name::None(reason) => by.grouping().keys.iter().map(|_| Err(*reason)).collect(),
        }
    }
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
}

impl Sum {
    /// The keys of a sum's numbers.
    pub const KEYS: [&'static str; 6] = [
        "sockets_count",
        "processes_count",
        "listening_count",
        "connected_count",
        "recv_queue_bytes",
        "send_queue_bytes",
    ];

    /// Adds a socket, with those of its owners that are in this group.
    pub fn add(&mut self, socket: &Socket<'_>, owners: impl IntoIterator<Item = u32>) {
        self.sockets += 1;
        self.processes.extend(owners);
        self.listening += u64::from(socket.is_listening());
        self.connected += u64::from(socket.state == State::Estab);
        if let Ok(Queues::Data {
            recv_bytes, send_bytes, ..
        }) = socket.queues
        {
            self.recv_bytes += recv_bytes;
            self.send_bytes += send_bytes;
        }
    }

    /// The numbers for [`Sum::KEYS`].
    pub fn numbers(&self) -> [u64; 6] {
        [
            self.sockets,
            self.processes.len() as u64,
            self.listening,
            self.connected,
            self.recv_bytes,
            self.send_bytes,
        ]
    }

    /// The numbers as cells of machine-readable output.
    pub fn cells(&self) -> [Cell<'static>; 6] {
        self.numbers().map(|number| Ok(Value::Unsigned(number)))
    }
}

/// Sums by group.
pub struct Sums {
    by: By,
    groups: HashMap<Name, Sum>,
    /// The group of each process that may be an owner.
    names: HashMap<u32, Name>,
}

impl Sums {
    /// Creates empty sums.
    pub fn new(by: By, processes: &Snapshot) -> Sums {
        let mut names = HashMap::new();
        if by.is_of_owner() {
            for task in processes.tasks() {
                if let Ok(pid) = task.pid() {
                    let name = by.of(&task).unwrap_or_else(|reason| Name::None(reason.as_str()));
                    names.insert(pid, name);
                }
            }
        }
        Sums {
            by,
            groups: HashMap::new(),
            names,
        }
    }

    /// Adds a socket to its groups, once to each.
    pub fn add(&mut self, socket: &Socket<'_>) {
        let owners = match socket.owners {
            Ok(Some(owners)) => owners,
            _ => &[],
        };
        let pids = || owners.iter().map(|owner| owner.pid);
        match self.by {
            By::Port => {
                let protocol = socket.protocol.map(|protocol| protocol.to_string());
                let name = match (socket.family, protocol, socket.local.port) {
                    (Family::Inet | Family::Inet6, Some(protocol), Some(port)) => Name::Port(protocol, port),
                    _ => Name::None("none"),
                };
                self.groups.entry(name).or_default().add(socket, pids());
            }
            By::State => {
                let name = Name::State(socket.family, socket.state);
                self.groups.entry(name).or_default().add(socket, pids());
            }
            _ => self.add_to_owners(socket, pids().collect()),
        }
    }

    fn add_to_owners(&mut self, socket: &Socket<'_>, pids: Vec<u32>) {
        let reason = socket.owners.err().map_or("none", Absent::as_str);
        let mut groups: Vec<(Name, Vec<u32>)> = Vec::new();
        for pid in pids {
            let name = self.names.get(&pid).cloned().unwrap_or(Name::None("gone"));
            match groups.iter_mut().find(|(other, _)| *other == name) {
                Some((_, pids)) => pids.push(pid),
                None => groups.push((name, vec![pid])),
            }
        }
        if groups.is_empty() {
            groups.push((Name::None(reason), Vec::new()));
        }
        for (name, pids) in groups {
            self.groups.entry(name).or_default().add(socket, pids);
        }
    }

    /// The groups, sorted.
    pub fn sorted(self, orders: &[SortBy<SumKey>]) -> Vec<(Name, Sum)> {
        let mut sums: Vec<(Name, Sum)> = self.groups.into_iter().collect();
        choice::sort_sums(&mut sums, orders, |sum| sum.numbers().map(Ok::<_, Absent>));
        sums
    }
}

/// Parses `--sort` options. By default, the group with the most sockets comes first.
pub fn sort_keys(lists: &[String], by: By) -> Result<Vec<SortBy<SumKey>>, Failure> {
    choice::sum_keys(lists, "-sockets_count", by.grouping().name, &Sum::KEYS)
}
