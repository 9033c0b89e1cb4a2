//! The broker as a source: records that `taskdiagd` made, of the tasks that this process may see.

use std::fmt;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
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
use taskdiag_core::snapshot::{Found, Snapshot};
use taskdiag_protocol::linger::Linger;
use taskdiag_protocol::wire::{self, attribute, show, Message, Messages, Request, Strategy};
use taskdiag_sys::host;
use taskdiag_sys::owner::Owner;
use zerocopy::FromBytes as _;

use super::{Source, TaskRequest};

/// How long a packet is waited for, and an answer, if it comes more slowly than [`PACE`].
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes in a second.
const PACE: usize = 1 << 20;

/// The part of this machine's memory that an answer may take.
const PART_OF_MEMORY: u64 = 4;

/// Packets that the answer about bits may have: it has one.
const BITS_PACKETS: usize = 4;

/// How often it is asked again for what was busy, and when.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(1);

/// A packet that comes with a file, and what may come in its place, is shorter.
const ANNOUNCEMENT_MAX: usize = 4 << 10;

/// A message that is no answer is shorter.
const LAST_WORDS_MAX: usize = 256;

/// A connection.
pub(crate) struct Broker {
    socket: OwnedFd,
    path: PathBuf,
    seq: u32,
    bits: wire::Bits,
    packet: Vec<u8>,
    linger: Linger,
    /// The process that connected: the broker answers nobody else.
    owner: Owner,
    /// An answer was given up half-way.
    is_torn: bool,
    /// What an answer may take.
    most: Most,
}

/// Bounds of an answer: whoever listens at that path may be anybody.
#[derive(Clone, Copy, Debug)]
struct Most {
    patience: Duration,
    bytes: u64,
}

impl Most {
    /// Fails if so many bytes are too many, or have taken too long.
    fn check(self, began: Instant, bytes: usize) -> std::result::Result<(), Refusal> {
        let earned = Duration::from_secs_f64(bytes as f64 / PACE as f64);
        match bytes as u64 {
            _ if began.elapsed() > self.patience + earned => Err(Refusal::Silent),
            bytes if bytes > self.bytes => Err(Refusal::Malformed("more than a quarter of this machine's memory")),
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
    Errno(Errno),
    Silent,
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
                    // The caller sees that it is missing.
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
    /// Connects, and asks what there is to be asked.
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
            is_torn: false,
            most: Most {
                patience: PATIENCE,
                bytes: host::total_pages() / PART_OF_MEMORY * page_size() as u64,
            },
        };
        let bits = broker.ask_bits();
        broker.bits = bits.map_err(|refusal| broker.error(refusal, 0))?;
        if broker.bits.version.get() != wire::VERSION {
            let message = format!(
                "the broker at {} has version {} of the records, this library {}",
                path.display(),
                broker.bits.version,
                wire::VERSION
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(broker)
    }

    /// Another connection to the same place.
    pub(crate) fn reopened(&self) -> Result<Broker> {
        Broker::open(&self.path)
    }

    /// Whether this process can still use it.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner.is_this_process() && !self.is_torn
    }

    /// The groups that this process sees of every task.
    pub(crate) fn shows_of_all(&self) -> Groups {
        Groups((self.bits.of_all.get() >> show::GROUPS_SHIFT) as u32).and(Groups::ALL)
    }

    /// Appends records and rows with `groups`. Without any, records alone are wanted.
    pub(crate) fn read(&mut self, strategy: Strategy, pid: u32, groups: Groups, snapshot: &mut Snapshot) -> Result<()> {
        let show = u64::from(groups.0) << show::GROUPS_SHIFT;
        let before = snapshot.mark();
        let result = match self.ask(show, strategy, pid, snapshot) {
            Err(Refusal::Errno(Errno::PIPE)) => {
                self.reconnect()?;
                snapshot.go_back_to(before);
                self.ask(show, strategy, pid, snapshot)
            }
            result => result,
        };
        result.map_err(|refusal| self.error(refusal, pid))
    }

    /// Connects once more: the broker ends connections that nothing is asked over where others need their places, and may have been
    /// started again.
    fn reconnect(&mut self) -> Result<()> {
        *self = Broker::open(&self.path)?;
        Ok(())
    }

    /// Has a file of `/proc` opened, the one that `bit` stands for; `None` if the process has no memory.
    pub(crate) fn open_file(&mut self, bit: u64, strategy: Strategy, pid: u32) -> Result<Option<OwnedFd>> {
        if self.bits.bits.get() & bit == 0 {
            let message = format!("the broker at {} opens no files", self.path.display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let mut attempts = 0..ATTEMPTS;
        loop {
            match self.ask_file(bit, strategy, pid) {
                Err(Refusal::Errno(Errno::PIPE)) if attempts.next().is_some() => self.reconnect()?,
                // It became another program meanwhile.
                Err(Refusal::Errno(Errno::BUSY)) if attempts.next().is_some() => std::thread::sleep(PAUSE),
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
            (true, None) => Err(Refusal::Malformed("no file where one was announced")),
            (true, file) => Ok(file),
            (false, _) => Ok(None),
        }
    }

    fn error(&mut self, refusal: Refusal, pid: u32) -> Error {
        let place = self.path.display();
        match refusal {
            Refusal::Errno(Errno::SRCH) => Error::no_such_process(pid),
            Refusal::Errno(Errno::PERM) => Error::new(
                ErrorKind::Denied,
                format!("the broker at {place} can't tell what this process may see, and answers nothing"),
            ),
            Refusal::Errno(Errno::ACCESS) => Error::new(
                ErrorKind::Denied,
                format!("pid {pid}: you may see it, but not its mappings (its user may, or who has CAP_SYS_PTRACE)"),
            ),
            Refusal::Errno(Errno::BUSY) => Error::new(
                ErrorKind::System,
                format!("the broker at {place} is busy with this user's other requests: try again"),
            ),
            Refusal::Errno(errno) => {
                self.is_torn = true;
                Error::io(format!("the broker at {place}"), errno)
            }
            Refusal::Silent => {
                self.is_torn = true;
                Error::new(ErrorKind::System, format!("the broker at {place} does not answer"))
            }
            Refusal::Malformed(what) => {
                self.is_torn = true;
                Error::new(ErrorKind::Malformed, format!("the broker at {place} sent {what}"))
            }
        }
    }

    fn send(&mut self, show: u64, strategy: Strategy, pid: u32) -> std::result::Result<u32, Refusal> {
        self.seq = self.seq.wrapping_add(1).max(1);
        let request = Request {
            seq: self.seq,
            show,
            strategy,
            pid,
        };
        loop {
            match rustix::net::send(&self.socket, &request.encode(), SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(self.seq),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(self.last_words()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// What the broker said before it ended the connection: to one that it does not let in, why.
    fn last_words(&self) -> Refusal {
        let mut packet = [0; LAST_WORDS_MAX];
        // That it ended the connection with something unread is told first.
        for _ in 0..2 {
            if let Ok((len @ 1.., _)) = rustix::net::recv(&self.socket, &mut packet, RecvFlags::DONTWAIT) {
                return greeting(&packet[..len.min(LAST_WORDS_MAX)]);
            }
        }
        Refusal::Errno(Errno::PIPE)
    }

    fn ask_bits(&mut self) -> std::result::Result<wire::Bits, Refusal> {
        let seq = self.send(show::BITS, Strategy::All, 0)?;
        let mut bytes = Vec::new();
        let mut bits = None;
        for _ in 0..BITS_PACKETS {
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
                    // Errors that greet a client are about no request.
                    Err(_) => {
                        return match greeting(&bytes) {
                            Refusal::Errno(Errno::PIPE) => Err(Refusal::Malformed("an answer to another request")),
                            refusal => Err(refusal),
                        }
                    }
                }
            }
        }
        Err(Refusal::Malformed("an answer without its end"))
    }

    /// Receives one packet behind what is in `bytes`.
    fn receive(&mut self, bytes: &mut Vec<u8>) -> std::result::Result<(), Refusal> {
        bytes.reserve(wire::PACKET);
        loop {
            let lingers = self.linger.goes_on();
            let waits = if lingers {
                RecvFlags::DONTWAIT
            } else {
                RecvFlags::empty()
            };
            // The length that it has, though there may be more room.
            match rustix::net::recv(&self.socket, spare_capacity(bytes), RecvFlags::TRUNC | waits) {
                Err(Errno::AGAIN) if lingers => self.linger.give_way(),
                Ok((_, 0)) => return Err(Refusal::Errno(Errno::PIPE)),
                Err(Errno::CONNRESET) => return Err(self.last_words()),
                Ok((_, len)) if len > wire::PACKET => return Err(Refusal::Malformed("a packet that is too long")),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Receives one packet in place of what is in `bytes`, and the file that may come with it.
    fn receive_with_file(&mut self, bytes: &mut Vec<u8>) -> std::result::Result<Option<OwnedFd>, Refusal> {
        bytes.resize(ANNOUNCEMENT_MAX, 0);
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [IoSliceMut::new(bytes)];
            let received = match rustix::net::recvmsg(&self.socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => return Err(self.last_words()),
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
            if take_in(snapshot, start, seq)? {
                return Ok(());
            }
            self.most.check(began, snapshot.records.len() - first)?;
        }
    }
}

/// What a client that is not let in is told.
fn greeting(packet: &[u8]) -> Refusal {
    match Messages::new(packet, 0).next() {
        Some(Ok(Message::Error(errno))) => Refusal::Errno(Errno::from_raw_os_error(errno)),
        // It was ended while an answer was under way.
        _ => Refusal::Errno(Errno::PIPE),
    }
}

/// Whether a packet, which is a whole answer, says that the file comes with it that was asked for.
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
    Err(Refusal::Malformed("an answer without its end"))
}

/// Makes rows of the messages that stand in the snapshot's bytes from `start` on, which is a packet. Whether the end was among them.
fn take_in(snapshot: &mut Snapshot, start: usize, seq: u32) -> std::result::Result<bool, Refusal> {
    let (records, mut found) = Found::of(snapshot);
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
                Some((record, [])) => found.push(record, offset + at),
                _ => found.counters.malformed += 1,
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

    /// A connection to one who answers without end, a packet at a time, until nobody listens.
    fn endless(pause: Duration, most: Most) -> Broker {
        let flags = SocketFlags::CLOEXEC;
        let (socket, other_end) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
        std::thread::spawn(move || {
            let mut request = [0; wire::REQUEST_MAX];
            rustix::net::recv(&other_end, &mut request[..], RecvFlags::empty()).expect("a request");
            let seq = Request::parse(&request).expect("a request").seq;
            let mut packet = Vec::new();
            let mut message = MessageWriter::task(&mut packet, seq, Default::default());
            message.attribute(attribute::CMDLINE, |out| out.resize(out.len() + 60_000, 1));
            message.finish();
            while rustix::net::send(&other_end, &packet, SendFlags::NOSIGNAL).is_ok() {
                std::thread::sleep(pause);
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
            is_torn: false,
            most,
        }
    }

    /// Check that who answers without end is left, whether it does so fast or slowly.
    #[test]
    fn an_answer_without_end_ends() {
        let most = Most {
            patience: Duration::from_millis(500),
            bytes: 4 << 20,
        };
        for (pause, said) in [
            (0, "more than a quarter of this machine's memory"),
            (200, "does not answer"),
        ] {
            let mut broker = endless(Duration::from_millis(pause), most);
            let mut snapshot = Snapshot::default();
            let error = broker
                .read(Strategy::All, 0, Groups(1), &mut snapshot)
                .expect_err("an end");
            assert!(error.to_string().contains(said), "{error}");
            assert!(!broker.is_ours(), "asked again");
        }
        let mut broker = endless(Duration::ZERO, most);
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
        let taken = take_in(&mut snapshot, 0, 5);
        (snapshot, taken)
    }

    /// Check that records are found where they lie.
    #[test]
    fn records_are_taken_in() {
        let (snapshot, taken) = take(answer());
        assert!(matches!(taken, Ok(true)));
        let pids: Vec<u32> = snapshot.tasks().map(|task| task.record().header().pid.get()).collect();
        assert_eq!(pids, [1, 2, 3]);
        let mut other = answer();
        other[8] = 6;
        assert!(matches!(take(other).1, Err(Refusal::Malformed(_))));
    }

    /// Check that a packet says whether the file comes with it that was asked for, and that one without an end is refused.
    #[test]
    fn opened_files_are_announced() {
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
        /// Check that an answer with bytes changed, cut or made up leads to rows that can be read, or to none.
        #[test]
        fn broken_answers_are_survived(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..5), cut: usize, tail: Vec<u8>) {
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
