//! The broker as a source: records that `taskdiagd` made, of the tasks that this process may see.

use std::fmt;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use zerocopy::FromBytes as _;

use crate::broker::wire::{self, attribute, show, Message, Messages, Request, Strategy};
use crate::error::{Error, ErrorKind, Result};
use crate::field::Groups;
use crate::record::{self, Record};
use crate::snapshot::{Row, Snapshot};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A file that is longer is none of the broker's.
const FILE_MAX: u64 = 4 << 30;

/// A connection.
pub(crate) struct Broker {
    socket: OwnedFd,
    path: PathBuf,
    seq: u32,
    bits: wire::Bits,
    packet: Vec<u8>,
    /// The process that connected: the broker answers nobody else.
    owner: rustix::process::Pid,
    /// An answer was given up half-way.
    is_torn: bool,
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
            owner: rustix::process::getpid(),
            is_torn: false,
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

    /// Whether this process can still use it.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner == rustix::process::getpid() && !self.is_torn
    }

    /// The groups that this process sees of every task.
    pub(crate) fn shows_of_all(&self) -> Groups {
        Groups((self.bits.of_all.get() >> show::GROUPS_SHIFT) as u32).and(Groups::ALL)
    }

    /// Appends records and rows with `groups`. With `as_file`, the broker is asked for a file, and for packets if it has none to
    /// give.
    pub(crate) fn read(
        &mut self,
        strategy: Strategy,
        pid: u32,
        groups: Groups,
        as_file: bool,
        snapshot: &mut Snapshot,
    ) -> Result<()> {
        let plain = u64::from(groups.0) << show::GROUPS_SHIFT;
        // Without groups, a record alone is wanted.
        let (rows, bytes) = (snapshot.rows.len(), snapshot.records.len());
        if as_file {
            match self.ask(plain | show::MEMFD, strategy, pid, snapshot) {
                Err(Refusal::Errno(Errno::BUSY)) => {
                    snapshot.rows.truncate(rows);
                    snapshot.records.truncate(bytes);
                }
                result => return result.map_err(|refusal| self.error(refusal, pid)),
            }
        }
        let result = self.ask(plain, strategy, pid, snapshot);
        result.map_err(|refusal| self.error(refusal, pid))
    }

    fn error(&mut self, refusal: Refusal, pid: u32) -> Error {
        let place = self.path.display();
        match refusal {
            Refusal::Errno(Errno::SRCH) => Error::new(
                ErrorKind::NoSuchTask,
                format!("no process with pid {pid} (it may have ended, or be hidden from you)"),
            ),
            Refusal::Errno(Errno::PERM) => Error::new(
                ErrorKind::Denied,
                format!("the broker at {place} can't tell what this process may see, and answers nothing"),
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
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn ask_bits(&mut self) -> std::result::Result<wire::Bits, Refusal> {
        let seq = self.send(show::BITS, Strategy::All, 0)?;
        let mut bytes = Vec::new();
        let mut bits = None;
        loop {
            let start = bytes.len();
            self.receive(&mut bytes)?;
            for message in Messages::new(&bytes[start..], seq) {
                match message {
                    Ok(Message::Task { attributes, .. }) => {
                        let told = wire::attributes(attributes).find(|(kind, ..)| *kind == attribute::BITS);
                        bits = told.and_then(|(_, payload, _)| Some(wire::Bits::read_from_prefix(payload).ok()?.0));
                    }
                    Ok(Message::Done) => return bits.ok_or(Refusal::Malformed("an answer without bits")),
                    Ok(Message::Error(errno)) => return Err(Refusal::Errno(Errno::from_raw_os_error(errno))),
                    // Errors that greet a client are about no request.
                    Err(_) => return Err(greeting(&bytes[start..])),
                }
            }
        }
    }

    /// Receives one packet behind what is in `bytes`, and the file that may come with it.
    fn receive(&mut self, bytes: &mut Vec<u8>) -> std::result::Result<Option<OwnedFd>, Refusal> {
        self.packet.resize(wire::PACKET, 0);
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [IoSliceMut::new(&mut self.packet)];
            let received = match rustix::net::recvmsg(&self.socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
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
            bytes.extend_from_slice(&self.packet[..received.bytes]);
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
        loop {
            let start = snapshot.records.len();
            let file = self.receive(&mut snapshot.records)?;
            snapshot.counters.reads += 1;
            match take_in(snapshot, start, seq)? {
                Taken::All => return Ok(()),
                Taken::Part => {}
                Taken::File(told) => {
                    let file = file.ok_or(Refusal::Malformed("no file where one was announced"))?;
                    snapshot.records.truncate(start);
                    read_file(&file, told, &mut snapshot.records)?;
                    // One answer may serve many: it has nobody's number.
                    match take_in(snapshot, start, 0)? {
                        Taken::Part | Taken::All => return Ok(()),
                        Taken::File(_) => return Err(Refusal::Malformed("a file that announces another")),
                    }
                }
            }
        }
    }
}

/// What a client that is not let in is told.
fn greeting(packet: &[u8]) -> Refusal {
    match Messages::new(packet, 0).next() {
        Some(Ok(Message::Error(errno))) => Refusal::Errno(Errno::from_raw_os_error(errno)),
        _ => Refusal::Malformed("an answer to another request"),
    }
}

/// What a packet had in it.
enum Taken {
    Part,
    All,
    File(wire::File),
}

/// Makes rows of the messages from `start` on.
fn take_in(snapshot: &mut Snapshot, start: usize, seq: u32) -> std::result::Result<Taken, Refusal> {
    let bytes = &snapshot.records[..];
    let mut taken = Taken::Part;
    for message in Messages::new(&bytes[start..], seq) {
        let (list, offset) = match message.map_err(|malformed| Refusal::Malformed(malformed.0))? {
            Message::Task { attributes, offset, .. } => (attributes, start + offset),
            Message::Done if matches!(taken, Taken::File(_)) => return Ok(taken),
            Message::Done => return Ok(Taken::All),
            Message::Error(errno) => return Err(Refusal::Errno(Errno::from_raw_os_error(errno))),
        };
        for (kind, payload, at) in wire::attributes(list) {
            match kind {
                attribute::RECORD => match Record::split_first(payload) {
                    Some((record, [])) => {
                        if record.has(record::DEFERRED | record::TITLE) {
                            snapshot.unsettled.push(snapshot.rows.len());
                        }
                        snapshot.rows.push(Row::new(offset + at));
                        snapshot.counters.record_bytes += payload.len() as u64;
                    }
                    _ => snapshot.counters.malformed += 1,
                },
                attribute::MEMFD => {
                    let (told, _) =
                        wire::File::read_from_prefix(payload).map_err(|_| Refusal::Malformed("half a file"))?;
                    taken = Taken::File(told);
                }
                _ => {}
            }
        }
    }
    Ok(taken)
}

/// Appends the whole file. The broker takes its bytes back after a while: then it is shorter than was told.
fn read_file(file: &OwnedFd, told: wire::File, out: &mut Vec<u8>) -> std::result::Result<(), Refusal> {
    let len = told.bytes.get();
    if len > FILE_MAX {
        return Err(Refusal::Malformed("a file that is too long"));
    }
    let end = out.len() + len as usize;
    out.reserve(len as usize);
    while out.len() < end {
        let offset = len - (end - out.len()) as u64;
        match rustix::io::pread(file.as_fd(), spare_capacity(out), offset) {
            Ok(0) => return Err(Refusal::Malformed("a file that is shorter than told")),
            Ok(_) => {}
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    out.truncate(end);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::native_endian::U32;

    use super::*;
    use crate::broker::wire::MessageWriter;

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

    fn take(bytes: Vec<u8>) -> (Snapshot, std::result::Result<Taken, Refusal>) {
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
        assert!(matches!(taken, Ok(Taken::All)));
        let pids: Vec<u32> = snapshot.tasks().map(|task| task.record().header().pid.get()).collect();
        assert_eq!(pids, [1, 2, 3]);
        let mut other = answer();
        other[8] = 6;
        assert!(matches!(take(other).1, Err(Refusal::Malformed(_))));
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
