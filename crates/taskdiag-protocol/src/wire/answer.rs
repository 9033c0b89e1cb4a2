//! Answers: the messages about tasks, and the message that ends them.

use std::fmt;

use zerocopy::native_endian::{U16, U32};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{
    AttributeHeader, MessageHeader, TaskHeader, CONTINUED, DONE, ERROR, FLAG_MULTI, FLAG_REQUEST, INCOMPLETE, PACKET,
    TASK_DIAG,
};

/// Appends a message to a buffer.
#[derive(Debug)]
pub struct MessageWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> MessageWriter<'a> {
    /// Begins a message about a task.
    pub fn task(out: &'a mut Vec<u8>, seq: u32, task: TaskHeader) -> MessageWriter<'a> {
        let mut writer = MessageWriter::begin(out, TASK_DIAG, seq);
        writer.out.extend_from_slice(task.as_bytes());
        writer.flags(FLAG_MULTI);
        writer
    }

    fn begin(out: &'a mut Vec<u8>, kind: u16, seq: u32) -> MessageWriter<'a> {
        let start = out.len();
        let header = MessageHeader {
            kind: U16::new(kind),
            seq: U32::new(seq),
            ..MessageHeader::default()
        };
        out.extend_from_slice(header.as_bytes());
        MessageWriter { out, start }
    }

    fn flags(&mut self, flags: u16) {
        self.out[self.start + 6..self.start + 8].copy_from_slice(&flags.to_ne_bytes());
    }

    /// Appends an attribute whose payload `write` appends. A payload has at most 65,531 bytes: the
    /// 16-bit length includes the header.
    pub fn attribute(&mut self, kind: u16, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.out.len();
        self.out.extend_from_slice(&[0; size_of::<AttributeHeader>()]);
        write(self.out);
        let header = AttributeHeader {
            len: U16::new((self.out.len() - at) as u16),
            kind: U16::new(kind),
        };
        self.out[at..at + size_of::<AttributeHeader>()].copy_from_slice(header.as_bytes());
        let len = self.out.len() - self.start;
        self.out.resize(self.start + len.next_multiple_of(4), 0);
    }

    /// Sets [`CONTINUED`]: the next message continues the task.
    pub fn continued(&mut self) {
        self.task_flag(CONTINUED);
    }

    /// Sets [`INCOMPLETE`]: some of the task's mappings or its command line are missing.
    pub fn incomplete(&mut self) {
        self.task_flag(INCOMPLETE);
    }

    fn task_flag(&mut self, flag: u32) {
        let at = self.start + size_of::<MessageHeader>() + 8;
        self.out[at..at + 4].copy_from_slice(&flag.to_ne_bytes());
    }

    /// The length of the message so far, in bytes.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Whether it has no attributes.
    pub fn is_empty(&self) -> bool {
        self.len() <= size_of::<MessageHeader>() + size_of::<TaskHeader>()
    }

    /// Fills in the length. This ends the message.
    pub fn finish(self) {
        let len = (self.out.len() - self.start) as u32;
        self.out[self.start..self.start + 4].copy_from_slice(&len.to_ne_bytes());
    }
}

/// Appends the message that ends an answer.
pub fn put_done(out: &mut Vec<u8>, seq: u32) {
    let mut writer = MessageWriter::begin(out, DONE, seq);
    writer.flags(FLAG_MULTI);
    writer.out.extend_from_slice(&0_i32.to_ne_bytes());
    writer.finish();
}

/// Appends the message that ends an answer with an error.
pub fn put_error(out: &mut Vec<u8>, seq: u32, errno: i32) {
    let writer = MessageWriter::begin(out, ERROR, seq);
    writer.out.extend_from_slice(&(-errno).to_ne_bytes());
    // `struct nlmsgerr` also has the header of the request.
    let request = MessageHeader {
        kind: U16::new(TASK_DIAG),
        flags: U16::new(FLAG_REQUEST),
        seq: U32::new(seq),
        ..MessageHeader::default()
    };
    writer.out.extend_from_slice(request.as_bytes());
    writer.finish();
}

/// Writes the sequence number of a request into the first messages of `messages`, as many as fit
/// into one packet, and returns these messages. Stops before a message with an impossible length.
pub fn number_packet(messages: &mut [u8], seq: u32) -> &[u8] {
    let mut end = 0;
    while let Ok((header, rest)) = MessageHeader::mut_from_prefix(&mut messages[end..]) {
        let len = header.len.get() as usize;
        let max = (PACKET - end).min(size_of::<MessageHeader>() + rest.len());
        if len < size_of::<MessageHeader>() || len % 4 != 0 || len > max {
            break;
        }
        header.seq = U32::new(seq);
        end += len;
    }
    &messages[..end]
}

/// A message of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// Describes a task, or the broker if the header names no task.
    Task {
        /// The ids of the task, and whether the next message continues it.
        header: &'a TaskHeader,
        /// The attributes, for [`attributes`].
        attributes: &'a [u8],
        /// The offset of the attributes in the decoded bytes.
        offset: usize,
    },
    /// Ends the answer.
    Done,
    /// Ends the answer with an error, which is a number of errno(3).
    Error(i32),
}

/// A message that can't be decoded, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The messages of a packet or a file. Ends after the first that can't be decoded.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    bytes: &'a [u8],
    at: usize,
    seq: u32,
}

impl<'a> Messages<'a> {
    /// Decodes `bytes`. All messages must have the sequence number `seq`.
    pub fn new(bytes: &'a [u8], seq: u32) -> Messages<'a> {
        Messages { bytes, at: 0, seq }
    }

    fn take(&mut self) -> Result<Message<'a>, Malformed> {
        let bytes: &'a [u8] = &self.bytes[self.at..];
        let (header, _) =
            MessageHeader::ref_from_prefix(bytes).map_err(|_| Malformed("a message is shorter than its header"))?;
        let len = header.len.get() as usize;
        if len < size_of::<MessageHeader>() || len > bytes.len() {
            return Err(Malformed("a message has an impossible length"));
        }
        if header.seq.get() != self.seq {
            return Err(Malformed("a message answers another request"));
        }
        let body: &'a [u8] = &bytes[size_of::<MessageHeader>()..len];
        let at = self.at + size_of::<MessageHeader>();
        self.at = (self.at + len.next_multiple_of(4)).min(self.bytes.len());
        let number = || Some(i32::from_ne_bytes(body.get(..4)?.try_into().ok()?));
        match header.kind.get() {
            TASK_DIAG => {
                let (task, attributes) =
                    TaskHeader::ref_from_prefix(body).map_err(|_| Malformed("a message about a task is too short"))?;
                Ok(Message::Task {
                    header: task,
                    attributes,
                    offset: at + size_of::<TaskHeader>(),
                })
            }
            DONE => Ok(Message::Done),
            ERROR => match number() {
                // The kernel's range: MAX_ERRNO in include/linux/err.h.
                Some(errno @ -4095..=-1) => Ok(Message::Error(-errno)),
                _ => Err(Malformed("an error message has no error number")),
            },
            _ => Err(Malformed("a message has an unknown type")),
        }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.at = self.bytes.len();
        }
        Some(taken)
    }
}

/// The attributes of a message: the type and payload of each, and the payload's offset in `bytes`.
/// Ends before the first truncated one.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8], usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (header, _) = AttributeHeader::ref_from_prefix(bytes.get(at..)?).ok()?;
        let len = usize::from(header.len.get());
        let start = at + size_of::<AttributeHeader>();
        let payload = bytes.get(start..at + len)?;
        at += len.next_multiple_of(4);
        Some((header.kind.get(), payload, start))
    })
}
