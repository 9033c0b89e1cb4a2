//! The process that accesses the files of a recording for [`apart`](super::apart), and the messages
//! between the two.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{set_parent_process_death_signal, Signal};
use taskdiag_history::directory::parse;
use taskdiag_history::store::{Listed, Space, Store as _};
use taskdiag_sys::signals::SignalsBlocked;

use super::disk::{self, Disk};
use crate::outcome::{Failure, Outcome};

/// The types of messages.
pub mod what {
    /* Of the command: */
    /// Record to the directory `name`, on behalf of process `number`.
    pub const OPEN: u32 = 0;
    pub const LIST: u32 = 1;
    pub const CREATE: u32 = 2;
    /// Append `payload` to the file `name`, and synchronise it.
    pub const APPEND: u32 = 3;
    /// Truncate the file `name` to `number` bytes.
    pub const TRUNCATE: u32 = 4;
    pub const REMOVE: u32 = 5;
    pub const SPACE: u32 = 6;
    /// List the directory `name`.
    pub const LIST_OF: u32 = 7;
    /// Read the file `name`.
    pub const READ: u32 = 8;
    /// Close everything.
    pub const END: u32 = 9;
    /* Of the process: */
    /// Part of the answer.
    pub const PART: u32 = 100;
    /// The end of an answer.
    pub const DONE: u32 = 101;
    /// The request failed: errno in `number`, or the reason in `name`.
    pub const FAILED: u32 = 102;
}

/// A message.
#[derive(Debug)]
pub struct Message {
    pub what: u32,
    pub number: u64,
    pub name: Vec<u8>,
    pub payload: Vec<u8>,
}

/// The maximum length of a message. A sample with all its texts is shorter.
const MOST: u64 = 1 << 30;

impl Message {
    /// Waits for a message.
    pub fn receive(from: &mut impl Read) -> io::Result<Message> {
        let mut head = [0; 24];
        from.read_exact(&mut head)?;
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let mut take = |bytes: u64| {
            if bytes > MOST {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            let mut taken = vec![0; bytes as usize];
            from.read_exact(&mut taken).map(|()| taken)
        };
        Ok(Message {
            what: word(0),
            name: take(word(4).into())?,
            number: long(8),
            payload: take(long(16))?,
        })
    }
}

/// Sends a message.
pub fn send(to: &mut impl Write, what: u32, number: u64, name: &[u8], payload: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(24 + name.len());
    let low_first = |number: u64| [number as u32, (number >> 32) as u32].map(u32::to_ne_bytes).concat();
    bytes.extend_from_slice(&what.to_ne_bytes());
    bytes.extend_from_slice(&(name.len() as u32).to_ne_bytes());
    bytes.extend_from_slice(&low_first(number));
    bytes.extend_from_slice(&low_first(payload.len() as u64));
    bytes.extend_from_slice(name);
    to.write_all(&bytes)?;
    to.write_all(payload)
}

/// Sends everything that is written to it as parts of an answer.
struct Parts<'a>(&'a mut UnixStream);

impl Write for Parts<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.0, what::PART, 0, &[], bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The open files.
#[derive(Default)]
struct Files {
    disk: Option<Disk>,
    written: Written,
}

/// The current file of each tier.
#[derive(Default)]
struct Written(HashMap<String, File>);

impl Written {
    fn insert(&mut self, name: &str, file: File) {
        let tier = |name: &str| parse(name).map(|(tier, _)| tier.to_owned());
        self.0.retain(|other, _| tier(other) != tier(name));
        self.0.insert(name.to_owned(), file);
    }

    /// The file with this name. An earlier process may have created it.
    fn get(&mut self, name: &str, disk: &Disk) -> io::Result<&mut File> {
        if !self.0.contains_key(name) {
            self.insert(name, disk.reopen(name)?);
        }
        Ok(self.0.get_mut(name).ok_or(io::ErrorKind::NotFound)?)
    }
}

/// Runs the process: serves requests from standard input until it ends.
pub fn serve() -> Result<Outcome, Failure> {
    // Signals are for the command, which then writes a last sample. When the command ends, so does
    // this process.
    let _signals = SignalsBlocked::begin();
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut socket = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
    let mut files = Files::default();
    while let Ok(message) = Message::receive(&mut socket) {
        const ROOM: usize = 256 << 10;
        let mut parts = BufWriter::with_capacity(ROOM, Parts(&mut socket));
        let done = files.handle(&message, &mut parts).and_then(|()| parts.flush());
        // Discard the parts of a failed answer.
        let _ = parts.into_parts();
        let is_end = message.what == what::END;
        match done {
            Ok(()) => send(&mut socket, what::DONE, 0, &[], &[])?,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                send(
                    &mut socket,
                    what::FAILED,
                    errno as u64,
                    error.to_string().as_bytes(),
                    &[],
                )?;
            }
        }
        if is_end {
            break;
        }
    }
    Ok(Outcome::Complete)
}

impl Files {
    fn handle(&mut self, message: &Message, out: &mut impl Write) -> io::Result<()> {
        let path = Path::new(OsStr::from_bytes(&message.name));
        match message.what {
            what::OPEN => {
                // If an earlier answer came too late, this process already holds the lock.
                self.disk = None;
                let disk = Disk::open(path, message.number);
                self.disk = Some(disk.map_err(|failure| io::Error::other(failure.message()))?);
                return Ok(());
            }
            what::LIST_OF => return put_list(&disk::list(path)?, out),
            what::READ => return disk::copy(path, out),
            what::END => {
                *self = Files::default();
                return Ok(());
            }
            _ => {}
        }
        let name = std::str::from_utf8(&message.name).map_err(io::Error::other)?;
        let disk = self.disk.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        match message.what {
            what::LIST => put_list(&disk.list()?, out),
            what::CREATE => {
                self.written.insert(name, disk.create(name)?);
                Ok(())
            }
            what::APPEND => {
                disk.check_there(name)?;
                let file = self.written.get(name, disk)?;
                disk.append(file, &message.payload)?;
                disk.sync(file)
            }
            what::TRUNCATE => disk.truncate(self.written.get(name, disk)?, message.number),
            what::REMOVE => disk.remove(name),
            what::SPACE => {
                let Space { total, available } = disk.space()?;
                write!(out, "{total} {available}")
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

fn put_list(files: &[Listed], out: &mut impl Write) -> io::Result<()> {
    let mut files = files.iter();
    files.try_for_each(|file| write!(out, "{} {}\0", file.bytes, file.name))
}

#[cfg(test)]
mod tests {
    use taskdiag_testkit::temporary::Directory;

    use super::*;

    /// Check that a file can be continued after the process that created it has ended.
    #[test]
    fn files_outlive_the_process() {
        let place = Directory::new("served");
        let path = place.join("recording");
        let mut files = Files::default();
        let handle = |files: &mut Files, what, name: &[u8], number, payload: &[u8]| {
            let message = Message {
                what,
                number,
                name: name.to_vec(),
                payload: payload.to_vec(),
            };
            files.handle(&message, &mut Vec::new()).expect("it is done");
        };
        let name = b"full-1";
        handle(&mut files, what::OPEN, path.as_os_str().as_bytes(), 1, &[]);
        handle(&mut files, what::CREATE, name, 0, &[]);
        handle(&mut files, what::APPEND, name, 0, b"one");
        files = Files::default();
        handle(&mut files, what::OPEN, path.as_os_str().as_bytes(), 1, &[]);
        handle(&mut files, what::TRUNCATE, name, 2, &[]);
        handle(&mut files, what::APPEND, name, 0, b"ce");
        assert_eq!(std::fs::read(path.join("full-1")).expect("the file"), b"once");
    }
}
