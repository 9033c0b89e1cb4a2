//! The two ways to read an open maps file: the ioctl, and the text.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::io::{retry_on_intr, Errno};
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::mapping::Usage;
use taskdiag_core::text::maps as text;
use taskdiag_sys::procmap::{self, QueryFlags, NAME_MAX};

use super::batch::Cursor;
use super::{Device, Filter, Mapping, Perms, Wants};
use crate::readers;

/// The error if the address space is gone, or never existed.
pub(super) fn no_memory() -> Error {
    Error::new(
        ErrorKind::NoMemory,
        "no memory: a kernel thread, a zombie, or the process has ended or replaced its memory by exec",
    )
}

/// `PROCMAP_QUERY`: one system call for each look-up.
#[derive(Debug)]
pub(super) struct IoctlCursor<'a> {
    file: BorrowedFd<'a>,
    wants: Wants,
    name: &'a mut Vec<u8>,
    /// The number of look-ups, and when the cursor was made.
    asked: u32,
    began: Instant,
}

/// The number of look-ups between two checks of the clock.
const LOOKUPS_PER_CHECK: u32 = 16;

/// Fails after a while even if each system call returned within the patience: such a process blocks
/// its reader, too.
fn check_time(began: Instant) -> Result<()> {
    if began.elapsed() > readers::MAX_TASK_TIME {
        Err(Error::no_answer(None))
    } else {
        Ok(())
    }
}

impl<'a> IoctlCursor<'a> {
    /// `name` is memory for names, to be reused.
    pub(super) fn new(file: BorrowedFd<'a>, wants: Wants, name: &'a mut Vec<u8>) -> IoctlCursor<'a> {
        if wants.contains(Wants::NAMES) {
            name.resize(NAME_MAX, 0);
        }
        IoctlCursor {
            file,
            wants,
            name,
            asked: 0,
            began: Instant::now(),
        }
    }

    /// The mapping at `address`; with [`QueryFlags::COVERING_OR_NEXT`], the next one if there is
    /// none.
    pub(super) fn query(&mut self, address: u64, flags: QueryFlags) -> Result<Option<Mapping<'_>>> {
        let wants = self.wants;
        readers::beat();
        self.asked += 1;
        if self.asked % LOOKUPS_PER_CHECK == 0 {
            check_time(self.began)?;
        }
        let name = if wants.contains(Wants::NAMES) {
            &mut self.name[..]
        } else {
            &mut []
        };
        let mut no_name = Absent::NotAsked;
        let mut answer = procmap::query(self.file, address, flags, name, &mut []);
        if answer == Err(Errno::NAMETOOLONG) {
            no_name = Absent::Truncated;
            answer = procmap::query(self.file, address, flags, &mut [], &mut []);
        }
        let vma = match answer {
            Ok(vma) => vma,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::SRCH) => return Err(no_memory()),
            Err(error) => return Err(Error::io("PROCMAP_QUERY", error)),
        };
        Ok(Some(Mapping {
            start: vma.start,
            end: vma.end,
            perms: Perms::from_bits_truncate(vma.flags.bits() as u8),
            offset_bytes: vma.offset,
            device: Device {
                major: vma.dev_major,
                minor: vma.dev_minor,
            },
            inode: vma.inode,
            name: if wants.contains(Wants::NAMES) && no_name == Absent::NotAsked {
                Ok(&self.name[..vma.name_len])
            } else {
                Err(no_name)
            },
            page_size_bytes: Ok(vma.page_size),
            ..Mapping::unread(wants)
        }))
    }
}

impl Cursor for IoctlCursor<'_> {
    fn seek(&mut self, address: u64, filter: Filter) -> Result<Option<Mapping<'_>>> {
        let flags = filter.flags() | QueryFlags::COVERING_OR_NEXT;
        self.query(address, flags)
    }
}

/// The text, line by line: a look-up continues where the previous one ended.
#[derive(Debug)]
pub(super) struct TextCursor<'a> {
    file: BorrowedFd<'a>,
    wants: Wants,
    buffer: &'a mut Vec<u8>,
    /// The part of the buffer that was read but not yet parsed.
    unread: std::ops::Range<usize>,
    offset: u64,
    name: Vec<u8>,
    is_alive: bool,
    began: Instant,
}

/// The kernel returns at most about a page at a time, unless a line is longer.
const BUFFER: usize = 16 << 10;

impl<'a> TextCursor<'a> {
    /// `buffer` is memory for the text, to be reused.
    pub(super) fn new(file: BorrowedFd<'a>, wants: Wants, buffer: &'a mut Vec<u8>) -> TextCursor<'a> {
        if buffer.len() < BUFFER {
            buffer.resize(BUFFER, 0);
        }
        TextCursor {
            file,
            wants,
            buffer,
            unread: 0..0,
            offset: 0,
            name: Vec::new(),
            is_alive: false,
            began: Instant::now(),
        }
    }

    /// Where the next line is in the buffer, without its newline.
    fn next_line(&mut self) -> Result<Option<std::ops::Range<usize>>> {
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.unread.clone()];
            if let Some(len) = unread[searched..].iter().position(|&byte| byte == b'\n') {
                let line = self.unread.start..self.unread.start + searched + len;
                self.unread.start = line.end + 1;
                return Ok(Some(line));
            }
            searched = unread.len();
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..searched;
            if searched == self.buffer.len() {
                // There is no longest name: directories can be nested without limit.
                self.buffer.resize(2 * searched, 0);
            }
            if !self.fill()? {
                return match searched {
                    0 => Ok(None),
                    _ => Err(malformed(&self.buffer[..searched.min(40)])),
                };
            }
        }
    }

    /// Reads more; false at the end.
    fn fill(&mut self) -> Result<bool> {
        check_time(self.began)?;
        readers::beat();
        let room = &mut self.buffer[self.unread.end..];
        match retry_on_intr(|| rustix::io::pread(self.file, &mut *room, self.offset)) {
            Ok(0) => Ok(false),
            Ok(len) => {
                self.offset += len as u64;
                self.unread.end += len;
                Ok(true)
            }
            Err(Errno::SRCH) => Err(no_memory()),
            Err(error) => Err(Error::io("reading the text of mappings", error)),
        }
    }

    /// Fails if the text ended early because the address space is gone: then its beginning can't be
    /// read any more.
    fn check_alive(&mut self) -> Result<()> {
        if self.is_alive {
            return Ok(());
        }
        match rustix::io::pread(self.file, &mut [0][..], 0) {
            Ok(1..) => Ok(()),
            Ok(0) | Err(Errno::SRCH) => Err(no_memory()),
            Err(error) => Err(Error::io("reading the text of mappings", error)),
        }
    }

    /// Reads the lines of `smaps` that follow the line of a mapping.
    fn details(&mut self) -> Result<(Usage, u64)> {
        let (mut usage, mut page_size_bytes) = (Usage::default(), 0);
        while let Some(line) = self.next_line()? {
            let text = &self.buffer[line.clone()];
            if !text.first().is_some_and(u8::is_ascii_uppercase) {
                // The line of the next mapping.
                self.unread.start = line.start;
                break;
            }
            if !text::detail(text, &mut usage, &mut page_size_bytes) {
                return Err(malformed(text));
            }
        }
        Ok((usage, page_size_bytes))
    }
}

fn malformed(line: &[u8]) -> Error {
    let line = &line[..line.len().min(100)];
    Error::new(
        ErrorKind::Malformed,
        format!("not a line of a maps file: {}", line.escape_ascii()),
    )
}

impl Cursor for TextCursor<'_> {
    fn seek(&mut self, address: u64, filter: Filter) -> Result<Option<Mapping<'_>>> {
        let has_details = self.wants.contains(Wants::USAGE);
        let (place, mut mapping) = loop {
            let Some(place) = self.next_line()? else {
                self.check_alive()?;
                return Ok(None);
            };
            let bytes = &self.buffer[place.clone()];
            if has_details && bytes.first().is_some_and(u8::is_ascii_uppercase) {
                continue;
            }
            let (_, end, _) = text::range(bytes).ok_or_else(|| malformed(bytes))?;
            if end <= address {
                continue;
            }
            let line = text::line(bytes).ok_or_else(|| malformed(bytes))?;
            if line.name == text::VSYSCALL {
                self.is_alive = true;
                continue;
            }
            let mapping = Mapping {
                start: line.start,
                end: line.end,
                perms: line.perms,
                offset_bytes: line.offset_bytes,
                device: line.device,
                inode: line.inode,
                ..Mapping::unread(self.wants)
            };
            if mapping.passes(filter) {
                break (place.end - line.name.len()..place.end, mapping);
            }
        };
        let is_wanted = self.wants.contains(Wants::NAMES);
        let is_plain = !self.buffer[place.clone()].contains(&b'\\');
        if is_wanted && (has_details || !is_plain) {
            self.name.clear();
            text::unescape(&self.buffer[place.clone()], &mut self.name);
        }
        if has_details {
            let (usage, page_size_bytes) = self.details()?;
            mapping.rss_bytes = Ok(usage.rss_bytes);
            mapping.dirty_bytes = Ok(usage.dirty_bytes);
            mapping.hugetlb_bytes = Ok(usage.hugetlb_bytes);
            mapping.page_size_bytes = match page_size_bytes {
                0 => Err(Absent::Unsupported),
                bytes => Ok(bytes),
            };
        }
        let name = if has_details || !is_plain {
            &self.name[..]
        } else {
            &self.buffer[place]
        };
        mapping.name = if !is_wanted {
            Err(Absent::NotAsked)
        } else if name.len() >= NAME_MAX {
            // Other sources have no longer names, and all must give the same answer.
            Err(Absent::Truncated)
        } else {
            Ok(name)
        };
        Ok(Some(mapping))
    }
}
