//! A reader: a process that reads and opens files of `/proc` for the loop. It has `CAP_SYS_PTRACE`
//! and no other capability, receives only numbers, and may be killed at any time.
//!
//! A process can keep a reader waiting for as long as it likes: through locks on its memory, its
//! arguments, or an exec that does not end. Then only that reader is stuck.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags};
use zerocopy::native_endian::{I32, U32};
use zerocopy::{IntoBytes as _, TryFromBytes as _};

use super::messages::{Job, Kind, PacketHeader, LAST, MAX_PACKET, MORE};
use super::vma::VmaEncoder;
use crate::credentials::RawProcFacts;
use crate::sys;

/// The longest command line that is sent. It fits into a message with all other attributes.
const MAX_CMDLINE: usize = 32 << 10;

/// Does jobs until the loop ends.
pub fn serve(channel: &OwnedFd) {
    let mut reader = Reader {
        channel,
        packet: Vec::with_capacity(MAX_PACKET),
    };
    loop {
        let mut job = Job::default();
        match retry_on_intr(|| rustix::net::recv(channel, job.as_mut_bytes(), RecvFlags::empty())) {
            Ok((len, _)) if len == size_of::<Job>() => {}
            _ => return,
        }
        for (index, item) in job.items.iter().enumerate() {
            let Ok(kind) = Kind::try_read_from_bytes(item.kind.as_bytes()) else {
                break;
            };
            if reader.read(index as u32, kind, item.tid.get()).is_err() {
                return;
            }
        }
    }
}

struct Reader<'c> {
    channel: &'c OwnedFd,
    packet: Vec<u8>,
}

/// Why an item was not read.
enum Failed {
    /// The loop has ended.
    Channel,
    /// An errno.
    Item(i32),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Item(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl Reader<'_> {
    /// Reads one item and sends it. Fails only if the loop has ended.
    fn read(&mut self, item: u32, kind: Kind, tid: u32) -> Result<(), ()> {
        let done = match kind {
            Kind::Maps => self.mappings(item, tid, "maps", false),
            Kind::Smaps => self.mappings(item, tid, "smaps", true),
            Kind::Cmdline => self.cmdline(item, tid),
            Kind::OpenMaps => self.open(item, tid, "maps"),
            Kind::OpenSmaps => self.open(item, tid, "smaps"),
            Kind::ProcFacts => self.proc_facts(item, tid),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Failed::Item(errno)) => self.send(item, -errno, &[], None).map_err(drop),
            Err(Failed::Channel) => Err(()),
        }
    }

    fn mappings(&mut self, item: u32, tid: u32, name: &str, with_stat: bool) -> Result<(), Failed> {
        let mut file = File::open(format!("/proc/{tid}/{name}"))?;
        let mut encoder = VmaEncoder::new(with_stat);
        let mut text = [0; 32 << 10];
        let mut emit = |payload: &[u8]| self.send(item, MORE, payload, None);
        loop {
            match file.read(&mut text) {
                Ok(0) => break,
                Ok(len) => encoder.push(&text[..len], &mut emit)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        encoder.finish(&mut emit)?;
        self.send(item, LAST, &[], None)
    }

    fn cmdline(&mut self, item: u32, tid: u32) -> Result<(), Failed> {
        let file = File::open(format!("/proc/{tid}/cmdline"))?;
        let mut text = Vec::new();
        file.take(MAX_CMDLINE as u64 + 1).read_to_end(&mut text)?;
        if text.len() > MAX_CMDLINE {
            return Err(Failed::Item(libc::E2BIG));
        }
        self.send(item, LAST, &text, None)
    }

    fn open(&mut self, item: u32, tid: u32, name: &str) -> Result<(), Failed> {
        let file = File::open(format!("/proc/{tid}/{name}"))?;
        self.send(item, LAST, &[], Some(file.as_fd()))
    }

    fn proc_facts(&mut self, item: u32, tid: u32) -> Result<(), Failed> {
        let facts = RawProcFacts::read(tid).ok_or(Failed::Item(libc::EPERM))?;
        self.send(item, LAST, &facts.encode(), facts.label())
    }

    fn send(&mut self, item: u32, status: i32, payload: &[u8], file: Option<BorrowedFd<'_>>) -> Result<(), Failed> {
        let header = PacketHeader {
            item: U32::new(item),
            status: I32::new(status),
        };
        self.packet.clear();
        self.packet.extend_from_slice(header.as_bytes());
        self.packet.extend_from_slice(payload);
        sys::send_with_file(self.channel.as_fd(), &self.packet, file, SendFlags::empty()).map_err(|_| Failed::Channel)
    }
}
