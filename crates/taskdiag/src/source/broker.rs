//! The broker as a source: records that `taskdiagd` made, of the tasks that this process may see.

use std::fmt;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::ops::Range;
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
use crate::broker::Linger;
use crate::error::{Error, ErrorKind, Result};
use crate::field::Groups;
use crate::record::Record;
use crate::snapshot::{Found, Snapshot};
use crate::sys::shared_file::SharedFile;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is asked again for what was busy, and when.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(1);

/// A file that is longer is none of the broker's.
const FILE_MAX: u64 = 4 << 30;

/// A packet that comes with a file, and what may come in its place, is shorter.
const ANNOUNCEMENT_MAX: usize = 4 << 10;

/// So much of a file is read at once: it is still in the processor's cache when it is looked at.
const CHUNK: u64 = 256 << 10;

/// A connection.
pub(crate) struct Broker {
    socket: OwnedFd,
    path: PathBuf,
    seq: u32,
    bits: wire::Bits,
    packet: Vec<u8>,
    /// Files of the answer before, which the broker may write again.
    files: Vec<KnownFile>,
    linger: Linger,
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
            files: Vec::new(),
            linger: Linger::default(),
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

    /// Another connection to the same place.
    pub(crate) fn reopened(&self) -> Result<Broker> {
        Broker::open(&self.path)
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
        if as_file && self.bits.bits.get() & show::BARE != 0 {
            match self.ask(plain | show::MEMFD | show::BARE, strategy, pid, snapshot) {
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

    /// Has a file of `/proc` opened, the one that `bit` stands for; `None` if the process has no memory.
    pub(crate) fn open_file(&mut self, bit: u64, strategy: Strategy, pid: u32) -> Result<Option<OwnedFd>> {
        if self.bits.bits.get() & bit == 0 {
            let message = format!("the broker at {} opens no files", self.path.display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let mut attempts = 0..ATTEMPTS;
        loop {
            match self.ask_file(bit, strategy, pid) {
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

    /// Receives one packet behind what is in `bytes`.
    fn receive(&mut self, bytes: &mut Vec<u8>) -> std::result::Result<(), Refusal> {
        bytes.reserve(wire::PACKET);
        loop {
            let lingers = self.linger.goes_on();
            let waits = match lingers {
                true => RecvFlags::DONTWAIT,
                false => RecvFlags::empty(),
            };
            // The length that it has, though there may be more room.
            match rustix::net::recv(&self.socket, spare_capacity(bytes), RecvFlags::TRUNC | waits) {
                Err(Errno::AGAIN) if lingers => self.linger.give_way(),
                Ok((_, 0)) => return Err(Refusal::Errno(Errno::PIPE)),
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
        match show & show::MEMFD {
            0 => self.take_packets(seq, snapshot),
            _ => self.take_files(seq, snapshot),
        }
    }

    fn take_packets(&mut self, seq: u32, snapshot: &mut Snapshot) -> std::result::Result<(), Refusal> {
        loop {
            let start = snapshot.records.len();
            self.receive(&mut snapshot.records)?;
            snapshot.counters.reads += 1;
            if take_in(snapshot, start, seq)? {
                return Ok(());
            }
        }
    }

    /// Takes in an answer that comes in files.
    fn take_files(&mut self, seq: u32, snapshot: &mut Snapshot) -> std::result::Result<(), Refusal> {
        let mut packet = std::mem::take(&mut self.packet);
        loop {
            let file = self.receive_with_file(&mut packet)?;
            let (told, is_over) = announced(&packet, seq)?;
            if let Some(told) = told {
                let file = file.ok_or(Refusal::Malformed("no file where one was announced"))?;
                take_file(self.known_file(told.id.get()), &file, told.bytes.get(), snapshot)?;
            }
            match (is_over, told) {
                (true, _) => break,
                (false, Some(_)) => {}
                (false, None) => return Err(Refusal::Malformed("an answer without the file")),
            }
        }
        self.packet = packet;
        self.files.retain_mut(|file| std::mem::take(&mut file.is_of_answer));
        Ok(())
    }

    /// The file with this number, which an answer has.
    fn known_file(&mut self, id: u64) -> &mut KnownFile {
        let place = self.files.iter().position(|file| file.id == id).unwrap_or_else(|| {
            self.files.push(KnownFile {
                id,
                ..KnownFile::default()
            });
            self.files.len() - 1
        });
        let file = &mut self.files[place];
        file.is_of_answer = true;
        file
    }
}

/// A file that the broker may write again. One that was written again is likely to be so once more: it is mapped, for the kernel takes
/// longer to copy from it than we do.
#[derive(Debug, Default)]
struct KnownFile {
    id: u64,
    mapped: Option<SharedFile>,
    is_known: bool,
    is_of_answer: bool,
}

impl KnownFile {
    /// Appends the bytes of `range` that the file has. Says how many there were.
    fn append_to(&mut self, file: &OwnedFd, range: Range<u64>, out: &mut Vec<u8>) -> std::result::Result<usize, Errno> {
        let most = (range.end - range.start) as usize;
        match &self.mapped {
            Some(mapped) => {
                let within = mapped.append_to(range.start as usize..range.end as usize, out);
                Ok(within.map_or(0, |()| most))
            }
            None => crate::sys::append_from(file.as_fd(), out, most, range.start),
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

/// The file that a packet announces, and whether the end of the answer is in the packet.
fn announced(packet: &[u8], seq: u32) -> std::result::Result<(Option<wire::File>, bool), Refusal> {
    let mut told = None;
    for message in Messages::new(packet, seq) {
        match message.map_err(|malformed| Refusal::Malformed(malformed.0))? {
            Message::Task { attributes, .. } => {
                let file = wire::attributes(attributes).find(|(kind, ..)| *kind == attribute::MEMFD);
                told = file.and_then(|(_, payload, _)| Some(wire::File::read_from_prefix(payload).ok()?.0));
            }
            Message::Done => return Ok((told, true)),
            Message::Error(errno) => return Err(Refusal::Errno(Errno::from_raw_os_error(errno))),
        }
    }
    Ok((told, false))
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

/// Makes rows of the records that stand in the snapshot's bytes from `start` on, the last of which may not be whole. Returns where what
/// is left begins.
fn take_in_bare(snapshot: &mut Snapshot, start: usize) -> usize {
    let (records, mut found) = Found::of(snapshot);
    let mut end = start;
    for record in Record::each(&records[start..]) {
        found.push(record, end);
        end += record.as_bytes().len();
    }
    end
}

/// Takes in a whole file of records. The broker takes its bytes back after a while: then there is none of what was told.
fn take_file(
    known: &mut KnownFile,
    file: &OwnedFd,
    len: u64,
    snapshot: &mut Snapshot,
) -> std::result::Result<(), Refusal> {
    if len > FILE_MAX {
        return Err(Refusal::Malformed("a file that is too long"));
    }
    if known.is_known && known.mapped.is_none() {
        known.mapped = SharedFile::map(file.as_fd()).ok();
    }
    known.is_known = true;
    let (mut offset, mut start) = (0, snapshot.records.len());
    snapshot.records.reserve(len as usize);
    while offset < len {
        let end = len.min(offset + CHUNK);
        match known.append_to(file, offset..end, &mut snapshot.records) {
            Ok(0) => return Err(Refusal::Malformed("a file that is shorter than told")),
            Ok(read) => offset += read as u64,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        snapshot.counters.reads += 1;
        // While they are in the cache.
        start = take_in_bare(snapshot, start);
    }
    match start == snapshot.records.len() {
        true => Ok(()),
        false => Err(Refusal::Malformed("a file that ends within a record")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::native_endian::U32;

    use super::*;
    use crate::broker::wire::MessageWriter;
    use crate::record;

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

    fn file(bytes: &[u8]) -> OwnedFd {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let written = rustix::io::write(&file, bytes).unwrap();
        assert_eq!(written, bytes.len());
        file
    }

    fn records(count: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for pid in 1..=count {
            let header = record::Header {
                pid: U32::new(pid),
                tid: U32::new(pid),
                ..record::Header::default()
            };
            record::Writer::new(&mut bytes).finish(header);
        }
        bytes
    }

    /// Check that a file is taken in whole, also where records go from one part that is read to the next, and that one that is
    /// shorter than told, ends within a record or has something else in it is refused.
    #[test]
    fn files_are_taken_in() {
        let bytes = records(60_000);
        assert!(bytes.len() as u64 > 2 * CHUNK && CHUNK % records(1).len() as u64 != 0);
        let read = |bytes: &[u8], told: usize| {
            let mut snapshot = Snapshot::default();
            let result = take_file(&mut KnownFile::default(), &file(bytes), told as u64, &mut snapshot);
            result.map(|()| snapshot)
        };
        let snapshot = read(&bytes, bytes.len()).unwrap();
        assert_eq!((snapshot.len(), &snapshot.records), (60_000, &bytes));
        for (file, told) in [
            (&bytes[..], bytes.len() + 1),
            (&bytes, bytes.len() - 4),
            (&answer(), answer().len()),
        ] {
            assert!(matches!(read(file, told), Err(Refusal::Malformed(_))));
        }
    }

    /// Check that a file that comes again is mapped and tells what it has then; that nothing is told once the broker has taken its bytes
    /// back; and that one which may become shorter is not mapped.
    #[test]
    fn files_that_come_again_are_mapped() {
        use rustix::fs::{fallocate, fcntl_add_seals, memfd_create, FallocateFlags, MemfdFlags, SealFlags};
        for seals in [SealFlags::SHRINK, SealFlags::empty()] {
            let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&file, 1 << 20).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            let mut known = KnownFile::default();
            let mut read = |len: usize| {
                let mut snapshot = Snapshot::default();
                let result = take_file(&mut known, &file, len as u64, &mut snapshot);
                (result.map(|()| snapshot.len()), known.mapped.is_some())
            };
            for count in [300, 6000, 3] {
                let bytes = records(count);
                assert_eq!(rustix::io::pwrite(&file, &bytes, 0).unwrap(), bytes.len());
                let (rows, is_mapped) = read(bytes.len());
                assert_eq!(rows.unwrap() as u32, count);
                assert_eq!(is_mapped, count != 300 && !seals.is_empty());
            }
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, flags, 0, 1 << 20).unwrap();
            assert!(matches!(read(100).0, Err(Refusal::Malformed(_))));
            assert!(matches!(read((1 << 20) + 4).0, Err(Refusal::Malformed(_))));
        }
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
