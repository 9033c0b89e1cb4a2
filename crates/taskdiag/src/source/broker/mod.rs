//! The broker as a source: `taskdiagd` sends records of the tasks that this process may see. The
//! program that listens at its socket is not trusted.

mod connect;
mod files;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::io::{retry_on_intr, Errno};
use rustix::net::{RecvFlags, SendFlags};
use rustix::param::page_size;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::{Group, Groups};
use taskdiag_core::query::Scope;
use taskdiag_core::record::Record;
use taskdiag_core::snapshot::{Indexer, Snapshot};
use taskdiag_protocol::busy_poll::BusyPoll;
use taskdiag_protocol::wire::{self, attribute, show, Message, Messages, Request, Strategy, TaskHeader};
use taskdiag_sys::descriptors::receive_with_file;
use taskdiag_sys::host;
use taskdiag_sys::owner::Owner;
use zerocopy::FromBytes as _;

use super::{Source, TaskRequest};
use crate::interrupt::is_interrupted_now;
use connect::connect;
pub(crate) use connect::{fact_of, nobody_at};
pub(crate) use files::Records;

/// How long to wait for a packet. Also how long to wait for an answer, plus a second for each
/// [`MIN_RATE`] bytes.
const PATIENCE: Duration = Duration::from_secs(30);

/// How fast an answer must arrive once the patience is used up, in bytes a second.
const MIN_RATE: usize = 1 << 20;

/// An answer may use at most this machine's memory divided by this number.
const MEMORY_DIVISOR: u64 = 4;

/// What an answer may have before the number of tasks is looked up.
const SMALL_ANSWER: u64 = 1 << 20;

/// The most bytes of an answer about so many tasks: the fixed values of a task take less than 4 KiB,
/// a path at most 1 KiB, and a record at most 32 KiB.
fn most_bytes(groups: Groups, tasks: u64) -> u64 {
    let texts = [
        (Group::Groups, 2),
        (Group::Cgroup, 2),
        (Group::Paths, 4),
        (Group::Args, 28),
        (Group::Text, 28),
    ];
    let of_texts = texts
        .iter()
        .filter(|(group, _)| groups.contains(*group))
        .map(|(_, kib)| kib);
    tasks * (4 + of_texts.sum::<u64>()) * 1024 + SMALL_ANSWER
}

/// The most packets to read for the answer about bits. The broker sends one.
const MAX_BITS_PACKETS: usize = 4;

/// How often to ask for a file again after the connection ended or while the broker was busy.
const RETRIES: usize = 5;

/// How long to wait before asking again while the broker was busy.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// The longest packet that may come with a file or in place of one.
const MAX_FILE_PACKET: usize = 4 << 10;

/// The longest packet that a refused client receives.
const MAX_REFUSAL: usize = 256;

/// A connection to the broker.
pub(crate) struct Broker {
    socket: OwnedFd,
    path: PathBuf,
    seq: u32,
    bits: wire::Bits,
    packet: Vec<u8>,
    busy_poll: BusyPoll,
    /// The process that connected. The broker answers no other process.
    owner: Owner,
    /// An answer was not received to its end, so the connection can't be used any more.
    is_broken: bool,
    /// Limits of an answer.
    limits: Limits,
}

/// Limits of an answer. They are needed because any program may listen at the broker's path.
#[derive(Clone, Copy, Debug)]
struct Limits {
    patience: Duration,
    bytes: u64,
}

impl Limits {
    /// Fails if this many bytes are too many, or took too long.
    fn check(self, began: Instant, bytes: usize) -> std::result::Result<(), Refusal> {
        let earned = Duration::from_secs_f64(bytes as f64 / MIN_RATE as f64);
        match bytes as u64 {
            _ if began.elapsed() > self.patience + earned => Err(Refusal::Silent),
            bytes if bytes > self.bytes => Err(Refusal::Malformed(
                "an answer that is larger than a quarter of this machine's memory",
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Debug)]
enum Refusal {
    /// The broker sent this error; or receiving failed with it.
    Errno(Errno),
    /// No packets, or not enough of them, arrived in time.
    Silent,
    /// The broker sent something else instead.
    Malformed(&'static str),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        match errno {
            Errno::AGAIN => Refusal::Silent,
            errno => Refusal::Errno(errno),
        }
    }
}

impl Source for Broker {
    fn read_tasks(&mut self, asked: &TaskRequest<'_>, snapshot: &mut Snapshot) -> Result<bool> {
        let (query, groups) = (asked.query, asked.groups);
        if query.scope.is_listed() && asked.one_by_one {
            let strategy = if query.scope.is_threads() {
                Strategy::Thread
            } else {
                Strategy::One
            };
            for &pid in &query.pids {
                match self.read(strategy, pid, groups, snapshot) {
                    // The caller notices that it is missing.
                    Err(error) if error.kind() == ErrorKind::NoSuchTask => {}
                    result => result?,
                }
            }
            return Ok(false);
        }
        let (strategy, pid) = match query.scope {
            Scope::Process(pid) => (Strategy::One, pid),
            Scope::ThreadsOf(pid) => (Strategy::Thread, pid),
            Scope::ChildrenOf(pid) => (Strategy::Children, pid),
            Scope::Threads | Scope::ThreadsOfListed => (Strategy::AllThreads, 0),
            Scope::Processes | Scope::Listed | Scope::DescendantsOf(_) => (Strategy::All, 0),
        };
        self.read(strategy, pid, groups, snapshot)?;
        Ok(false)
    }
}

impl Broker {
    /// Connects, and asks which bits the broker knows.
    pub(crate) fn open(path: &Path) -> Result<Broker> {
        let socket = connect(path, PATIENCE)?;
        let limits = Limits {
            patience: PATIENCE,
            bytes: host::total_pages() / MEMORY_DIVISOR * page_size() as u64,
        };
        let mut broker = Broker::new(socket, path.to_owned(), limits);
        let bits = broker.ask_bits();
        broker.bits = bits.map_err(|refusal| broker.error(refusal, 0))?;
        if broker.bits.version.get() != wire::VERSION {
            let message = format!(
                "the broker at {} sends records of version {}, but this library reads version {}: \
                 install both in the same version",
                path.display(),
                broker.bits.version,
                wire::VERSION
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(broker)
    }

    /// A connection of which the bits are not known yet.
    fn new(socket: OwnedFd, path: PathBuf, limits: Limits) -> Broker {
        Broker {
            socket,
            path,
            seq: 0,
            bits: wire::Bits::default(),
            packet: Vec::new(),
            busy_poll: BusyPoll::default(),
            owner: Owner::this_process(),
            is_broken: false,
            limits,
        }
    }

    /// A new connection to the same socket.
    pub(crate) fn reopened(&self) -> Result<Broker> {
        Broker::open(&self.path)
    }

    /// Whether this process can still use it.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner.is_this_process() && !self.is_broken
    }

    /// Whether this process sees every task.
    pub(crate) fn sees_all(&self) -> bool {
        self.bits.flags.get() & wire::SEES_ALL != 0
    }

    /// Whether it knows network traffic.
    pub(crate) fn counts_network(&self) -> bool {
        self.bits.bits.get() & wire::NETWORK_BIT != 0
    }

    /// The groups that this process sees of every task.
    pub(crate) fn shows_of_all(&self) -> Groups {
        Groups((self.bits.of_all.get() >> show::GROUPS_SHIFT) as u32).and(Groups::ALL)
    }

    /// Appends records and rows with `groups`. Reconnects if the connection has ended.
    pub(crate) fn read(&mut self, strategy: Strategy, pid: u32, groups: Groups, snapshot: &mut Snapshot) -> Result<()> {
        let show = u64::from(groups.0) << show::GROUPS_SHIFT;
        self.check_groups(show)?;
        let before = snapshot.mark();
        let result = match self.ask(groups, strategy, pid, snapshot) {
            Err(Refusal::Errno(Errno::PIPE)) => {
                self.reconnect()?;
                self.check_groups(show)?;
                snapshot.rewind(before);
                self.ask(groups, strategy, pid, snapshot)
            }
            result => result,
        };
        result.map_err(|refusal| self.error(refusal, pid))
    }

    /// Fails if the broker does not know all groups that were asked for.
    fn check_groups(&self, asked: u64) -> Result<()> {
        let unknown = asked & !self.bits.bits.get();
        if unknown == 0 {
            return Ok(());
        }
        let groups: Vec<&str> = Groups((unknown >> show::GROUPS_SHIFT) as u32)
            .iter()
            .map(Group::name)
            .collect();
        let message = format!(
            "the broker at {} does not know the fields of {}: install it in the same version as this program, or use \
             --source procfs",
            self.path.display(),
            groups.join(", ")
        );
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// Connects again. The broker closes idle connections for other clients, and may have been
    /// restarted.
    fn reconnect(&mut self) -> Result<()> {
        *self = Broker::open(&self.path)?;
        Ok(())
    }

    /// Has the broker open a file of `/proc`: the one for `bit`. `None` if the process has no
    /// memory.
    pub(crate) fn open_file(&mut self, bit: u64, strategy: Strategy, pid: u32) -> Result<Option<OwnedFd>> {
        if self.bits.bits.get() & bit == 0 {
            let message = format!("the broker at {} opens no files of processes", self.path.display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let mut attempts = 0..RETRIES;
        loop {
            match self.ask_file(bit, strategy, pid) {
                Err(Refusal::Errno(Errno::PIPE)) if attempts.next().is_some() => self.reconnect()?,
                // The process executed another program in between, or the broker has too much to
                // do.
                Err(Refusal::Errno(Errno::BUSY)) if attempts.next().is_some() => std::thread::sleep(RETRY_PAUSE),
                result => return result.map_err(|refusal| self.error(refusal, pid)),
            }
        }
    }

    fn ask_file(&mut self, bit: u64, strategy: Strategy, pid: u32) -> std::result::Result<Option<OwnedFd>, Refusal> {
        let seq = self.send(bit, strategy, pid, None)?;
        let mut packet = std::mem::take(&mut self.packet);
        let file = self.receive_with_file(&mut packet)?;
        let opened = opened(&packet, seq, bit)?;
        self.packet = packet;
        match (opened, file) {
            (true, None) => Err(Refusal::Malformed("an answer without its file")),
            (true, file) => Ok(file),
            (false, _) => Ok(None),
        }
    }

    fn error(&mut self, refusal: Refusal, pid: u32) -> Error {
        // Otherwise the rest of an answer may still be on its way.
        self.is_broken |= !matches!(
            refusal,
            Refusal::Errno(Errno::SRCH | Errno::PERM | Errno::ACCESS | Errno::BUSY)
        );
        let path = self.path.display();
        let (kind, message) = match refusal {
            Refusal::Errno(Errno::SRCH) => return Error::no_such_process(pid),
            Refusal::Errno(Errno::PERM) => (
                ErrorKind::Denied,
                format!(
                    "the broker at {path} can't tell what this process may see, and shows it nothing: \
                     use --source procfs"
                ),
            ),
            Refusal::Errno(Errno::ACCESS) => (
                ErrorKind::Denied,
                format!("pid {pid}: you may see it, but not its mappings (its user may, or CAP_SYS_PTRACE: try sudo)"),
            ),
            Refusal::Errno(Errno::BUSY) => (
                ErrorKind::System,
                format!(
                    "the broker at {path} is busy (too many clients or unread answers, or a process that changed \
                     or did not answer): try again"
                ),
            ),
            Refusal::Errno(Errno::PIPE) => (ErrorKind::System, format!("the broker at {path} ended the connection")),
            Refusal::Errno(errno) => return Error::io(format!("the broker at {path}"), errno),
            Refusal::Silent => (ErrorKind::System, format!("the broker at {path} does not answer")),
            Refusal::Malformed(what) => (ErrorKind::Malformed, format!("the broker at {path} sent {what}")),
        };
        Error::new(kind, message)
    }

    fn send(
        &mut self,
        show: u64,
        strategy: Strategy,
        pid: u32,
        files: Option<&wire::Files>,
    ) -> std::result::Result<u32, Refusal> {
        self.seq = self.seq.wrapping_add(1).max(1);
        let request = Request {
            seq: self.seq,
            show,
            strategy,
            pid,
        };
        let (plain, with_files);
        let packet: &[u8] = match files {
            Some(files) => {
                with_files = request.encode_with(files);
                &with_files
            }
            None => {
                plain = request.encode();
                &plain
            }
        };
        match retry_on_intr(|| rustix::net::send(&self.socket, packet, SendFlags::NOSIGNAL)) {
            Ok(_) => Ok(self.seq),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(self.refusal()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Why the broker ended the connection, if it refused this client and sent a reason.
    fn refusal(&self) -> Refusal {
        let mut packet = [0; MAX_REFUSAL];
        // If the broker left a request unread, the first call reports the end (`ECONNRESET`).
        for _ in 0..2 {
            if let Ok((len @ 1.., _)) = rustix::net::recv(&self.socket, &mut packet, RecvFlags::DONTWAIT) {
                return refusal(&packet[..len.min(MAX_REFUSAL)]);
            }
        }
        Refusal::Errno(Errno::PIPE)
    }

    fn ask_bits(&mut self) -> std::result::Result<wire::Bits, Refusal> {
        let seq = self.send(show::BITS, Strategy::All, 0, None)?;
        let mut bytes = Vec::new();
        let mut bits = None;
        for _ in 0..MAX_BITS_PACKETS {
            bytes.clear();
            self.receive(&mut bytes)?;
            for message in Messages::new(&bytes, seq) {
                match message {
                    Ok(Message::Task { attributes, .. }) => {
                        let told = wire::attributes(attributes).find(|(kind, ..)| *kind == attribute::BITS);
                        bits = told.and_then(|(_, payload, _)| Some(wire::Bits::read_from_prefix(payload).ok()?.0));
                    }
                    Ok(Message::Done) => return bits.ok_or(Refusal::Malformed("an answer without bits")),
                    Ok(Message::Error(errno)) => return Err(Refusal::Errno(Errno::from_raw_os_error(errno))),
                    // The error sent to a refused client does not have the number of a request.
                    Err(_) => {
                        return match refusal(&bytes) {
                            Refusal::Errno(Errno::PIPE) => Err(Refusal::Malformed("an answer to another request")),
                            refusal => Err(refusal),
                        }
                    }
                }
            }
        }
        Err(Refusal::Malformed("an answer without end"))
    }

    /// Appends one packet to `bytes`.
    fn receive(&mut self, bytes: &mut Vec<u8>) -> std::result::Result<(), Refusal> {
        bytes.reserve(wire::PACKET);
        loop {
            let polls = self.busy_poll.goes_on();
            let waits = if polls { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
            // With TRUNC, recv returns the packet's whole length, even if there is more room.
            match rustix::net::recv(&self.socket, spare_capacity(bytes), RecvFlags::TRUNC | waits) {
                Err(Errno::AGAIN) if polls => self.busy_poll.yield_processor(),
                Ok((_, 0)) => return Err(Refusal::Errno(Errno::PIPE)),
                Err(Errno::CONNRESET) => return Err(self.refusal()),
                Ok((_, len)) if len > wire::PACKET => return Err(Refusal::Malformed("a packet that is too long")),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) if !is_interrupted_now() => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Receives one packet into `bytes`, and the file that may come with it.
    fn receive_with_file(&mut self, bytes: &mut Vec<u8>) -> std::result::Result<Option<OwnedFd>, Refusal> {
        // A longer packet does not fit, and has this length.
        bytes.resize(MAX_FILE_PACKET + 1, 0);
        loop {
            match receive_with_file(&self.socket, bytes) {
                Ok((0, _)) => return Err(Refusal::Errno(Errno::PIPE)),
                Ok((len, _)) if len > MAX_FILE_PACKET => return Err(Refusal::Malformed("a packet that is too long")),
                Ok((len, file)) => {
                    bytes.truncate(len);
                    return Ok(file);
                }
                Err(Errno::INTR) if !is_interrupted_now() => {}
                Err(Errno::CONNRESET) => return Err(self.refusal()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn ask(
        &mut self,
        groups: Groups,
        strategy: Strategy,
        pid: u32,
        snapshot: &mut Snapshot,
    ) -> std::result::Result<(), Refusal> {
        let seq = self.send(u64::from(groups.0) << show::GROUPS_SHIFT, strategy, pid, None)?;
        match strategy {
            Strategy::One | Strategy::Thread => self.busy_poll.begin(),
            _ => self.busy_poll.end(),
        }
        let (began, first) = (Instant::now(), snapshot.records.len());
        let mut most = SMALL_ANSWER;
        loop {
            let start = snapshot.records.len();
            self.receive(&mut snapshot.records)?;
            snapshot.counters.count_read();
            if add_rows(snapshot, start, seq)? {
                return Ok(());
            }
            let received = snapshot.records.len() - first;
            self.limits.check(began, received)?;
            if received as u64 > most {
                // More tasks may start meanwhile.
                most = most_bytes(groups, if strategy == Strategy::One { 1 } else { most_tasks() });
                if received as u64 > most {
                    return Err(Refusal::Malformed("more than all tasks of this machine can have"));
                }
            }
        }
    }
}

/// The most tasks that an answer may be about.
fn most_tasks() -> u64 {
    2 * u64::from(host::tasks().unwrap_or(u32::MAX)) + 1000
}

/// The error in the packet that is sent to a refused client.
fn refusal(packet: &[u8]) -> Refusal {
    match Messages::new(packet, 0).next() {
        Some(Ok(Message::Error(errno))) => Refusal::Errno(Errno::from_raw_os_error(errno)),
        // The connection ended in the middle of an answer.
        _ => Refusal::Errno(Errno::PIPE),
    }
}

/// Whether a packet, which must be a whole answer, says that the requested file comes with it.
fn opened(packet: &[u8], seq: u32, bit: u64) -> std::result::Result<bool, Refusal> {
    let mut is_opened = false;
    let is_whole = each_task(packet, seq, |_, attributes, _| {
        let bits = bit.to_ne_bytes();
        is_opened |=
            wire::attributes(attributes).any(|(kind, payload, _)| kind == attribute::OPENED && payload == bits);
    })?;
    let end = is_whole.then_some(is_opened);
    end.ok_or(Refusal::Malformed("an answer without end"))
}

/// Calls `each` with the process, the attributes and their place for each message about a task in a
/// packet. Returns whether the packet ends the answer.
fn each_task<'p>(
    packet: &'p [u8],
    seq: u32,
    mut each: impl FnMut(&TaskHeader, &'p [u8], usize),
) -> std::result::Result<bool, Refusal> {
    for message in Messages::new(packet, seq) {
        match message.map_err(|malformed| Refusal::Malformed(malformed.0))? {
            Message::Task {
                header,
                attributes,
                offset,
            } => each(header, attributes, offset),
            Message::Done => return Ok(true),
            Message::Error(errno) => return Err(Refusal::Errno(Errno::from_raw_os_error(errno))),
        }
    }
    Ok(false)
}

/// Makes rows from a packet: the messages in the snapshot's bytes from `start` on. Returns whether
/// the packet ends the answer.
fn add_rows(snapshot: &mut Snapshot, start: usize, seq: u32) -> std::result::Result<bool, Refusal> {
    let (records, mut indexer) = Indexer::split(snapshot);
    each_task(&records[start..], seq, |_, attributes, offset| {
        for (kind, payload, at) in wire::attributes(attributes) {
            if kind != attribute::RECORD {
                continue;
            }
            match Record::split_first(payload) {
                Some((record, [])) => indexer.push(record, start + offset + at),
                _ => indexer.counters.malformed += 1,
            }
        }
    })
}
