//! The reader: a process of its own that opens and reads files of `/proc` for the loop. It has `CAP_SYS_PTRACE` and no other
//! capability, is told numbers of tasks and nothing else, and may be killed at any time.
//!
//! What it reads a process can hold up for as long as it likes: its mappings, its arguments, an exec that does not end. Then the
//! reader is held up, and nobody else.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::RecvFlags;
use zerocopy::native_endian::{I32, U32};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::facts::Particulars;
use crate::job::{self, Job, Kind, PacketHead};
use crate::smaps::Payloads;
use crate::sys;

/// The longest command line: it fits into an attribute, beside all that a message may have besides.
const CMDLINE: usize = 32 << 10;

/// Does jobs until the loop has gone.
pub fn serve(channel: &OwnedFd) {
    let mut reader = Reader {
        channel,
        packet: Vec::with_capacity(job::PACKET),
        text: vec![0; 32 << 10],
    };
    loop {
        let mut asked = Job::default();
        match rustix::net::recv(channel, asked.as_mut_bytes(), RecvFlags::empty()) {
            Ok((len, _)) if len == size_of::<Job>() => {}
            Err(Errno::INTR) => continue,
            _ => return,
        }
        for (index, item) in asked.items.iter().enumerate() {
            let Some(kind) = Kind::from_wire(item.kind.get()) else {
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
    text: Vec<u8>,
}

/// Why an item is not told.
enum Failed {
    /// The loop has gone.
    Loop,
    /// A number of errno.
    Item(i32),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Item(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl Reader<'_> {
    /// Tells of one item. Fails if there is nobody to tell.
    fn read(&mut self, index: u32, kind: Kind, tid: u32) -> Result<(), ()> {
        let done = match kind {
            Kind::Maps => self.mappings(index, tid, "maps", false),
            Kind::Smaps => self.mappings(index, tid, "smaps", true),
            Kind::Cmdline => self.cmdline(index, tid),
            Kind::OpenMaps => self.opened(index, tid, "maps"),
            Kind::OpenSmaps => self.opened(index, tid, "smaps"),
            Kind::Client => self.client(index, tid),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Failed::Item(errno)) => self.tell(index, -errno, &[], None).map_err(drop),
            Err(Failed::Loop) => Err(()),
        }
    }

    fn mappings(&mut self, index: u32, tid: u32, name: &str, with_stat: bool) -> Result<(), Failed> {
        let mut file = File::open(format!("/proc/{tid}/{name}"))?;
        let mut payloads = Payloads::new(with_stat);
        let mut text = std::mem::take(&mut self.text);
        let result = loop {
            match file.read(&mut text) {
                Ok(0) => break Ok(()),
                Ok(len) => {
                    let taken = payloads.take(&text[..len], &mut |payload| self.tell(index, job::MORE, payload, None));
                    if let Err(failed) = taken {
                        break Err(failed);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error.into()),
            }
        };
        self.text = text;
        result?;
        payloads.finish(&mut |payload| self.tell(index, job::MORE, payload, None))?;
        self.tell(index, job::LAST, &[], None)
    }

    fn cmdline(&mut self, index: u32, tid: u32) -> Result<(), Failed> {
        let file = File::open(format!("/proc/{tid}/cmdline"))?;
        let mut text = Vec::new();
        file.take(CMDLINE as u64 + 1).read_to_end(&mut text)?;
        if text.len() > CMDLINE {
            return Err(Failed::Item(libc::E2BIG));
        }
        self.tell(index, job::LAST, &text, None)
    }

    fn opened(&mut self, index: u32, tid: u32, name: &str) -> Result<(), Failed> {
        let file = File::open(format!("/proc/{tid}/{name}"))?;
        self.tell(index, job::LAST, &[], Some(file.as_fd()))
    }

    fn client(&mut self, index: u32, tid: u32) -> Result<(), Failed> {
        let found = Particulars::read(tid).ok_or(Failed::Item(libc::EPERM))?;
        self.tell(index, job::LAST, &found.encode(), None)
    }

    fn tell(&mut self, index: u32, status: i32, payload: &[u8], file: Option<BorrowedFd<'_>>) -> Result<(), Failed> {
        let head = PacketHead {
            index: U32::new(index),
            status: I32::new(status),
        };
        self.packet.clear();
        self.packet.extend_from_slice(head.as_bytes());
        self.packet.extend_from_slice(payload);
        sys::send(self.channel.as_fd(), &self.packet, file, false).map_err(|_| Failed::Loop)
    }
}

/// A packet from a reader: what it is about, and the rest.
pub fn split_head(packet: &[u8]) -> Option<(PacketHead, &[u8])> {
    PacketHead::read_from_prefix(packet).ok()
}
