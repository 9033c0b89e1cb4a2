//! The broker as a source: `taskdiagd` sends records of the tasks that this process may see. Whoever
//! listens at its socket is not trusted.

mod files;

use std::fmt;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::io::{retry_on_intr, Errno};
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::param::page_size;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::Groups;
use taskdiag_core::query::Scope;
use taskdiag_core::record::Record;
use taskdiag_core::snapshot::{Indexer, Snapshot};
use taskdiag_protocol::linger::Linger;
use taskdiag_protocol::wire::{self, attribute, show, Message, Messages, Request, Strategy};
use taskdiag_sys::host;
use taskdiag_sys::owner::Owner;
use zerocopy::FromBytes as _;

use super::{Source, TaskRequest};
pub(crate) use files::Records;

/// How long to wait for a packet; and for an answer, with a second more for each [`MIN_RATE`] bytes.
const PATIENCE: Duration = Duration::from_secs(30);

/// How fast an answer has to come once the patience is used up, in bytes a second.
const MIN_RATE: usize = 1 << 20;

/// An answer may take this machine's memory divided by this.
const MEMORY_DIVISOR: u64 = 4;

/// The most packets that are read for the answer about bits. The broker sends one.
const MAX_BITS_PACKETS: usize = 4;

/// How often a file is asked for again: after the connection ended, or the broker was busy.
const RETRIES: usize = 5;

/// How long to wait before that, where the broker was busy.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// The longest packet that may come with a file, or in its place.
const MAX_FILE_PACKET: usize = 4 << 10;

/// The longest packet that a client receives which is refused.
const MAX_REFUSAL: usize = 256;

/// A connection to the broker.
pub(crate) struct Broker {
    socket: OwnedFd,
    path: PathBuf,
    seq: u32,
    bits: wire::Bits,
    packet: Vec<u8>,
    linger: Linger,
    /// The process that connected. The broker answers no other.
    owner: Owner,
    /// An answer was not received to its end: the connection can't be used any more.
    is_broken: bool,
    /// Limits of an answer.
    limits: Limits,
}

/// Limits of an answer: any program may listen at the broker's path.
#[derive(Clone, Copy, Debug)]
struct Limits {
    patience: Duration,
    bytes: u64,
}

impl Limits {
    /// Fails if so many bytes are too many, or took too long.
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
    /// No packet, or not enough of them, in time.
    Silent,
    /// What the broker sent instead.
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
    /// Connects, and asks which bits there are.
    pub(crate) fn open(path: &Path) -> Result<Broker> {
        let failed = |errno: Errno| Error::io(format!("the broker's socket {}", path.display()), errno);
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)?;
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, which, Some(PATIENCE)).map_err(failed)?;
        }
        rustix::net::connect(&socket, &address).map_err(failed)?;
        let mut broker = Broker {
            socket,
            path: path.to_owned(),
            seq: 0,
            bits: wire::Bits::default(),
            packet: Vec::new(),
            linger: Linger::default(),
            owner: Owner::this_process(),
            is_broken: false,
            limits: Limits {
                patience: PATIENCE,
                bytes: host::total_pages() / MEMORY_DIVISOR * page_size() as u64,
            },
        };
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

    /// The groups that this process sees of every task.
    pub(crate) fn shows_of_all(&self) -> Groups {
        Groups((self.bits.of_all.get() >> show::GROUPS_SHIFT) as u32).and(Groups::ALL)
    }

    /// Appends records and rows with `groups`. If the connection has ended, it connects again.
    pub(crate) fn read(&mut self, strategy: Strategy, pid: u32, groups: Groups, snapshot: &mut Snapshot) -> Result<()> {
        let show = u64::from(groups.0) << show::GROUPS_SHIFT;
        let before = snapshot.mark();
        let result = match self.ask(show, strategy, pid, snapshot) {
            Err(Refusal::Errno(Errno::PIPE)) => {
                self.reconnect()?;
                snapshot.rewind(before);
                self.ask(show, strategy, pid, snapshot)
            }
            result => result,
        };
        result.map_err(|refusal| self.error(refusal, pid))
    }

    /// Connects again. The broker closes idle connections for other clients, and may have been
    /// restarted.
    fn reconnect(&mut self) -> Result<()> {
        *self = Broker::open(&self.path)?;
        Ok(())
    }

    /// Has the broker open a file of `/proc`: the one that `bit` stands for. `None` if the process has
    /// no memory.
    pub(crate) fn open_file(&mut self, bit: u64, strategy: Strategy, pid: u32) -> Result<Option<OwnedFd>> {
        if self.bits.bits.get() & bit == 0 {
            let message = format!("the broker at {} opens no files of processes", self.path.display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let mut attempts = 0..RETRIES;
        loop {
            match self.ask_file(bit, strategy, pid) {
                Err(Refusal::Errno(Errno::PIPE)) if attempts.next().is_some() => self.reconnect()?,
                // The process executed another program meanwhile, or the broker has too much to do.
                Err(Refusal::Errno(Errno::BUSY)) if attempts.next().is_some() => std::thread::sleep(RETRY_PAUSE),
                result => return result.map_err(|refusal| self.error(refusal, pid)),
            }
        }
    }

    fn ask_file(&mut self, bit: u64, strategy: Strategy, pid: u32) -> std::result::Result<Option<OwnedFd>, Refusal> {
        let seq = self.send(bit, strategy, pid)?;
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
        let path = self.path.display();
        match refusal {
            Refusal::Errno(Errno::SRCH) => Error::no_such_process(pid),
            Refusal::Errno(Errno::PERM) => Error::new(
                ErrorKind::Denied,
                format!(
                    "the broker at {path} can't tell what this process may see, and shows it nothing: \
                     use --source procfs"
                ),
            ),
            Refusal::Errno(Errno::ACCESS) => Error::new(
                ErrorKind::Denied,
                format!("pid {pid}: you may see it, but not its mappings (its user may, or CAP_SYS_PTRACE: try sudo)"),
            ),
            Refusal::Errno(Errno::BUSY) => Error::new(
                ErrorKind::System,
                format!("the broker at {path} is busy with this user's other requests: try again"),
            ),
            Refusal::Errno(Errno::PIPE) => {
                self.is_broken = true;
                Error::new(ErrorKind::System, format!("the broker at {path} ended the connection"))
            }
            Refusal::Errno(errno) => {
                self.is_broken = true;
                Error::io(format!("the broker at {path}"), errno)
            }
            Refusal::Silent => {
                self.is_broken = true;
                Error::new(ErrorKind::System, format!("the broker at {path} does not answer"))
            }
            Refusal::Malformed(what) => {
                self.is_broken = true;
                Error::new(ErrorKind::Malformed, format!("the broker at {path} sent {what}"))
            }
        }
    }

    fn send(&mut self, show: u64, strategy: Strategy, pid: u32) -> std::result::Result<u32, Refusal> {
        self.send_with(show, strategy, pid, None)
    }

    fn send_with(
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

    /// Why the broker ended the connection, if it refused this client and sent that.
    fn refusal(&self) -> Refusal {
        let mut packet = [0; MAX_REFUSAL];
        // The first call reports the end (`ECONNRESET`), if the broker left a request unread.
        for _ in 0..2 {
            if let Ok((len @ 1.., _)) = rustix::net::recv(&self.socket, &mut packet, RecvFlags::DONTWAIT) {
                return refusal(&packet[..len.min(MAX_REFUSAL)]);
            }
        }
        Refusal::Errno(Errno::PIPE)
    }

    fn ask_bits(&mut self) -> std::result::Result<wire::Bits, Refusal> {
        let seq = self.send(show::BITS, Strategy::All, 0)?;
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
                    // The error that a refused client gets has no request's number.
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
            let lingers = self.linger.goes_on();
            let waits = if lingers {
                RecvFlags::DONTWAIT
            } else {
                RecvFlags::empty()
            };
            // TRUNC: its whole length, also if there is more room.
            match rustix::net::recv(&self.socket, spare_capacity(bytes), RecvFlags::TRUNC | waits) {
                Err(Errno::AGAIN) if lingers => self.linger.give_way(),
                Ok((_, 0)) => return Err(Refusal::Errno(Errno::PIPE)),
                Err(Errno::CONNRESET) => return Err(self.refusal()),
                Ok((_, len)) if len > wire::PACKET => return Err(Refusal::Malformed("a packet that is too long")),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Receives one packet into `bytes`, and the file that may come with it.
    fn receive_with_file(&mut self, bytes: &mut Vec<u8>) -> std::result::Result<Option<OwnedFd>, Refusal> {
        bytes.resize(MAX_FILE_PACKET, 0);
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [IoSliceMut::new(bytes)];
            let received = match rustix::net::recvmsg(&self.socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => return Err(self.refusal()),
                Err(errno) => return Err(errno.into()),
            };
            let files = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut files) => files.next(),
                _ => None,
            });
            let file = files.last();
            if received.flags.contains(ReturnFlags::TRUNC) {
                return Err(Refusal::Malformed("a packet that is too long"));
            }
            if received.bytes == 0 {
                return Err(Refusal::Errno(Errno::PIPE));
            }
            bytes.truncate(received.bytes);
            return Ok(file);
        }
    }

    fn ask(
        &mut self,
        show: u64,
        strategy: Strategy,
        pid: u32,
        snapshot: &mut Snapshot,
    ) -> std::result::Result<(), Refusal> {
        let seq = self.send(show, strategy, pid)?;
        match strategy {
            Strategy::One | Strategy::Thread => self.linger.begin(),
            _ => self.linger.end(),
        }
        let (began, first) = (Instant::now(), snapshot.records.len());
        loop {
            let start = snapshot.records.len();
            self.receive(&mut snapshot.records)?;
            snapshot.counters.reads += 1;
            if add_rows(snapshot, start, seq)? {
                return Ok(());
            }
            self.limits.check(began, snapshot.records.len() - first)?;
        }
    }
}

/// The error in the packet that a refused client gets.
fn refusal(packet: &[u8]) -> Refusal {
    match Messages::new(packet, 0).next() {
        Some(Ok(Message::Error(errno))) => Refusal::Errno(Errno::from_raw_os_error(errno)),
        // The connection ended in the middle of an answer.
        _ => Refusal::Errno(Errno::PIPE),
    }
}

/// Whether a packet, which has to be a whole answer, says that the requested file comes with it.
fn opened(packet: &[u8], seq: u32, bit: u64) -> std::result::Result<bool, Refusal> {
    let mut is_opened = false;
    for message in Messages::new(packet, seq) {
        match message.map_err(|malformed| Refusal::Malformed(malformed.0))? {
            Message::Task { attributes, .. } => {
                let bits = bit.to_ne_bytes();
                is_opened |=
                    wire::attributes(attributes).any(|(kind, payload, _)| kind == attribute::OPENED && payload == bits);
            }
            Message::Done => return Ok(is_opened),
            Message::Error(errno) => return Err(Refusal::Errno(Errno::from_raw_os_error(errno))),
        }
    }
    Err(Refusal::Malformed("an answer without end"))
}

/// Makes rows of a packet: the messages in the snapshot's bytes from `start` on. Returns whether the
/// answer ends with it.
fn add_rows(snapshot: &mut Snapshot, start: usize, seq: u32) -> std::result::Result<bool, Refusal> {
    let (records, mut indexer) = Indexer::split(snapshot);
    for message in Messages::new(&records[start..], seq) {
        let (list, offset) = match message.map_err(|malformed| Refusal::Malformed(malformed.0))? {
            Message::Task { attributes, offset, .. } => (attributes, start + offset),
            Message::Done => return Ok(true),
            Message::Error(errno) => return Err(Refusal::Errno(Errno::from_raw_os_error(errno))),
        };
        for (kind, payload, at) in wire::attributes(list) {
            if kind != attribute::RECORD {
                continue;
            }
            match Record::split_first(payload) {
                Some((record, [])) => indexer.push(record, offset + at),
                _ => indexer.counters.malformed += 1,
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taskdiag_core::record;
    use taskdiag_protocol::wire::MessageWriter;
    use zerocopy::native_endian::U32;

    use super::Strategy;
    use super::*;

    /// A connection to a broker that gets each request, and a function that sends a packet, which says
    /// whether the connection lasts.
    pub(super) fn broker_that(mut answers: impl FnMut(&[u8], &dyn Fn(&[u8]) -> bool) + Send + 'static) -> Broker {
        let flags = SocketFlags::CLOEXEC;
        let (socket, other_end) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
        std::thread::spawn(move || {
            let mut request = [0; wire::FILES_REQUEST];
            while let Ok((len @ 1.., _)) = rustix::net::recv(&other_end, &mut request[..], RecvFlags::empty()) {
                answers(&request[..len], &|packet| {
                    rustix::net::send(&other_end, packet, SendFlags::NOSIGNAL).is_ok()
                });
            }
        });
        Broker {
            socket,
            path: "/test".into(),
            seq: 0,
            bits: wire::Bits::default(),
            packet: Vec::new(),
            linger: Linger::default(),
            owner: Owner::this_process(),
            is_broken: false,
            limits: Limits {
                patience: PATIENCE,
                bytes: u64::MAX,
            },
        }
    }

    /// One that sends an answer without end, a packet after each pause.
    fn endless(pause: Duration, limits: Limits) -> Broker {
        let broker = broker_that(move |request, send| {
            let seq = Request::parse(request).expect("a request").seq;
            let mut packet = Vec::new();
            let mut message = MessageWriter::task(&mut packet, seq, Default::default());
            message.attribute(attribute::CMDLINE, |out| out.resize(out.len() + 60_000, 1));
            message.finish();
            while send(&packet) {
                std::thread::sleep(pause);
            }
        });
        Broker { limits, ..broker }
    }

    /// Check that an answer without end is given up, whether it comes fast or slowly.
    #[test]
    fn an_answer_without_end_ends() {
        let limits = Limits {
            patience: Duration::from_millis(500),
            bytes: 4 << 20,
        };
        for (pause, message) in [
            (0, "larger than a quarter of this machine's memory"),
            (200, "does not answer"),
        ] {
            let mut broker = endless(Duration::from_millis(pause), limits);
            let mut snapshot = Snapshot::default();
            let error = broker
                .read(Strategy::All, 0, Groups(1), &mut snapshot)
                .expect_err("an end");
            assert!(error.to_string().contains(message), "{error}");
            assert!(!broker.is_ours(), "it would be used again");
        }
        let mut broker = endless(Duration::ZERO, limits);
        assert!(matches!(broker.ask_bits(), Err(Refusal::Malformed(_))));
    }

    fn answer() -> Vec<u8> {
        let mut bytes = Vec::new();
        for pid in 1..4_u32 {
            let task = wire::TaskHeader {
                pid: U32::new(pid),
                tgid: U32::new(pid),
                flags: U32::new(0),
            };
            let mut message = MessageWriter::task(&mut bytes, 5, task);
            message.attribute(attribute::RECORD, |out| {
                let writer = record::Writer::new(out);
                writer.finish(record::Header {
                    pid: U32::new(pid),
                    tid: U32::new(pid),
                    ..record::Header::default()
                });
            });
            message.finish();
        }
        wire::put_done(&mut bytes, 5);
        bytes
    }

    fn take(bytes: Vec<u8>) -> (Snapshot, std::result::Result<bool, Refusal>) {
        let mut snapshot = Snapshot {
            records: bytes,
            ..Snapshot::default()
        };
        let taken = add_rows(&mut snapshot, 0, 5);
        (snapshot, taken)
    }

    /// Check that each record becomes a row, and that an answer to another request is refused.
    #[test]
    fn records_become_rows() {
        let (snapshot, taken) = take(answer());
        assert!(matches!(taken, Ok(true)));
        let pids: Vec<u32> = snapshot.tasks().map(|task| task.record().header().pid.get()).collect();
        assert_eq!(pids, [1, 2, 3]);
        let mut other = answer();
        other[8] = 6;
        assert!(matches!(take(other).1, Err(Refusal::Malformed(_))));
    }

    /// Check that an error with a number that is no errno is refused.
    #[test]
    fn errors_are_errnos() {
        for (number, is_errno) in [(libc::EIO, true), (4095, true), (4096, false), (100_000, false)] {
            let mut packet = Vec::new();
            wire::put_error(&mut packet, 5, number);
            let is_malformed = matches!(take(packet).1, Err(Refusal::Malformed(_)));
            assert_eq!(is_malformed, !is_errno, "{number}");
        }
    }

    /// Check that a packet says whether the requested file comes with it, and that a packet without the
    /// end of the answer is refused.
    #[test]
    fn packets_say_whether_a_file_comes() {
        let packet = |bits: Option<u64>| {
            let mut bytes = Vec::new();
            let mut message = MessageWriter::task(&mut bytes, 5, wire::TaskHeader::default());
            if let Some(bit) = bits {
                message.attribute(attribute::OPENED, |out| out.extend_from_slice(&bit.to_ne_bytes()));
            }
            message.finish();
            let cut = bytes.len();
            wire::put_done(&mut bytes, 5);
            (bytes, cut)
        };
        let announced = |bits| opened(&packet(bits).0, 5, show::MAPS);
        assert!(matches!(announced(Some(show::MAPS)), Ok(true)));
        assert!(matches!(announced(Some(show::SMAPS)), Ok(false)));
        assert!(matches!(announced(None), Ok(false)));
        let (bytes, cut) = packet(Some(show::MAPS));
        assert!(matches!(
            opened(&bytes[..cut], 5, show::MAPS),
            Err(Refusal::Malformed(_))
        ));
        assert!(matches!(opened(&bytes, 6, show::MAPS), Err(Refusal::Malformed(_))));
        let mut error = Vec::new();
        wire::put_error(&mut error, 5, libc::ESRCH);
        assert!(matches!(
            opened(&error, 5, show::MAPS),
            Err(Refusal::Errno(Errno::SRCH))
        ));
    }

    proptest! {
        /// Check that an answer with bytes changed, cut off or appended leads to rows that can be read, or
        /// to none.
        #[test]
        fn broken_answers_are_handled(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..5), cut: usize, tail: Vec<u8>) {
            let mut bytes = answer();
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(cut % (bytes.len() + 1));
            bytes.extend(tail);
            let (snapshot, _) = take(bytes);
            for task in snapshot.tasks() {
                let _ = (task.pid(), task.comm(), task.uid(), task.cmdline());
            }
        }
    }
}
