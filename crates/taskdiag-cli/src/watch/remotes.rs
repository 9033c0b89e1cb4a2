//! Sums of network traffic by the other end.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use taskdiag::network::{Remote, RemoteParts, Remotes};
use taskdiag::sockets::Protocol;
use taskdiag::{Absent, Identity, Snapshot};
use taskdiag_sys::host::is_initial_pid_namespace;

use super::net::Sum;
use crate::grouping::{Grouping, Name, SumLayout};
use crate::outcome::{counted, say, Failure, Outcome};
use crate::sockets::{of_end, OF_REMOTES, REMOTE_ADDR, REMOTE_PORT};

/// Why a socket has no other end.
const NOT_CONNECTED: &str = "not connected";

/// What tells one end from another.
type Key = (Option<Identity>, u16, Option<Ipv6Addr>, Option<u16>);

/// What is counted, and what was at the last sample.
pub struct RemoteSums {
    counting: Remotes,
    since: Instant,
    last: HashMap<Key, [u64; 2]>,
    /// The groups of the processes that have traffic.
    names: HashMap<Identity, Vec<Name>>,
    /// Which processes count: all, or those that samples have.
    is_of_all: bool,
    uncounted: u64,
}

impl RemoteSums {
    /// Begins to count, if something is added up by the other end.
    pub fn begin(layout: &SumLayout, is_of_all: bool) -> Result<Option<RemoteSums>, Failure> {
        let has = |grouping: &'static Grouping| layout.by.contains(&grouping);
        if !is_of_remotes(&layout.by) {
            return Ok(None);
        }
        let process = !is_of_all || layout.by.iter().any(|by| by.is_of_process());
        if process && !is_initial_pid_namespace() {
            let message = "the other ends of a process are known by its id on the host, which differs in this PID namespace: leave out what selects processes, and their keys of --by";
            return Err(message.into());
        }
        let (address, port) = (has(&REMOTE_ADDR), has(&REMOTE_PORT));
        let counting = Remotes::count(RemoteParts { process, address, port });
        let counting = counting.map_err(|error| {
            format!(
                "{error:#}\nprotocol, remote_addr and remote_port are counted by this command itself, not by the \
                 broker"
            )
        })?;
        Ok(Some(RemoteSums {
            counting,
            since: Instant::now(),
            last: HashMap::new(),
            names: HashMap::new(),
            is_of_all,
            uncounted: 0,
        }))
    }

    /// The sums since the last sample, and since counting began. `snapshot` has the processes.
    pub fn read(&mut self, layout: &SumLayout, snapshot: &Snapshot) -> Result<(HashMap<Vec<Name>, Sum>, Sum), Failure> {
        let (remotes, uncounted) = self.counting.read()?;
        self.uncounted = uncounted;
        let seconds = std::mem::replace(&mut self.since, Instant::now())
            .elapsed()
            .as_secs_f64();
        let with_traffic: HashSet<Identity> = remotes.iter().filter_map(|remote| remote.process).collect();
        for task in snapshot.tasks() {
            let identity = task.identity().ok().filter(|identity| with_traffic.contains(identity));
            if let Some(identity) = identity {
                self.names
                    .insert(identity, layout.names(&task, |_| Name::None(NOT_CONNECTED)));
            }
        }
        let (mut sums, mut total) = (HashMap::<Vec<Name>, Sum>::new(), Sum::default());
        let mut processes: HashMap<Vec<Name>, HashSet<Identity>> = HashMap::new();
        for remote in remotes {
            let names = remote.process.and_then(|process| self.names.get(&process));
            if names.is_none() && !self.is_of_all {
                continue;
            }
            let name = |(index, by): (usize, &&Grouping)| match names {
                _ if !by.is_of_process() => own_name(by, &remote),
                Some(names) => names[index].clone(),
                None => Name::None(Absent::Gone.as_str()),
            };
            let names: Vec<Name> = layout.by.iter().enumerate().map(name).collect();
            let key = (remote.process, remote.protocol, remote.address, remote.port);
            let moved = [remote.sent_bytes, remote.received_bytes];
            let last = self.last.insert(key, moved).unwrap_or_default();
            if let Some(process) = remote.process {
                processes.entry(names.clone()).or_default().insert(process);
            }
            for sum in [sums.entry(names).or_default(), &mut total] {
                for index in 0..2 {
                    // Divided below: what each end loses would add up.
                    sum.per_s[index] += moved[index].saturating_sub(last[index]);
                    sum.total[index] += moved[index];
                }
            }
        }
        let rates = sums.values_mut().chain([&mut total]).flat_map(|sum| &mut sum.per_s);
        rates.for_each(|rate| *rate = (*rate as f64 / seconds) as u64);
        total.processes =
            (!processes.is_empty()).then(|| processes.values().flatten().collect::<HashSet<_>>().len() as u64);
        for (names, processes) in processes {
            sums.entry(names).or_default().processes = Some(processes.len() as u64);
        }
        Ok((sums, total))
    }

    /// Reports what was not counted.
    pub fn report(self) -> Outcome {
        if self.uncounted == 0 {
            return Outcome::Complete;
        }
        say(format_args!(
            "{} not counted: too many other ends; fewer keys of --by have more room",
            counted(self.uncounted, "call")
        ));
        Outcome::Partial
    }
}

/// Whether something is added up by the other end.
pub fn is_of_remotes(by: &[&Grouping]) -> bool {
    OF_REMOTES.iter().any(|(_, of_remotes, _)| by.contains(of_remotes))
}

/// The name of a group that is not of a process.
fn own_name(by: &Grouping, remote: &Remote) -> Name {
    let address = remote
        .address
        .filter(|address| !address.to_canonical().is_unspecified());
    let port = remote.port.filter(|&port| port != 0);
    let name = of_end(
        by,
        Some(Protocol::Ip(remote.protocol)),
        address.map(IpAddr::V6),
        port.map(u32::from),
    );
    name.unwrap_or(Name::None(NOT_CONNECTED))
}
