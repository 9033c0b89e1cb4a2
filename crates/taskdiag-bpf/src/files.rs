//! Passes over open files: loads and runs the program of `bpf/files.bpf.c`, and decodes its
//! records.

use std::mem::offset_of;
use std::os::fd::{AsFd as _, OwnedFd};

use taskdiag_core::error::{Error, ErrorKind, Result};
pub use taskdiag_core::record::files::*;
use taskdiag_sys::bpf::{self, SharedMemory, TaskScope};
use taskdiag_sys::owner::Owner;

use crate::load::load_sharing;
use crate::{iterator, named_records, recipe};

/// Passes each record and its text to `each`.
///
/// # Errors
///
/// `Malformed` if the bytes are not whole records.
pub fn decode(bytes: &[u8], each: impl FnMut(&Record, &[u8])) -> Result<()> {
    named_records::decode(bytes, each)
}

/// The longest record that [`Record::put`] makes from a record of the program.
pub const MAX_RECORD_BYTES: usize = size_of::<Record>() + 1024;

impl named_records::Record for Record {
    const SUBJECT: &'static str = "an open file";

    fn len(&self) -> usize {
        self.len as usize
    }

    fn text_len(&self) -> usize {
        self.name_len as usize
    }
}

/// What to read, and of which files.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilesPassRequest {
    /// A bit for each of [`used_as`].
    pub uses: u32,
    /// Bits of [`wants`].
    pub wants: u32,
    /// A bit for each type of file, `st_mode >> 12`; 0 for all types.
    pub types: u32,
    /// Only files without a link.
    pub deleted: bool,
    /// The files to look for. The first entry with device and inode number 0 ends the list. An
    /// empty list means all files.
    pub matches: [Match; MATCHES],
    /// The kernel's address of the task from whose point of view pids, times and paths are given,
    /// from its [`View`](taskdiag_core::record::View) (Linux 6.2). 0 for this process.
    pub as_task: u64,
}

/// The place in a list of processes at which to begin or to continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The process, an index of the list.
    pub process: u32,
    /// Its next descriptor.
    pub fd: u32,
    /// Its other files have been read.
    pub has_links: bool,
}

/// The offset of `list` in the memory of the program.
pub const LIST_AT: usize = size_of::<Position>() + offset_of!(Arrays, list);
/// The offset of `records` there.
pub const RECORDS_AT: usize = size_of::<Position>() + offset_of!(Arrays, records);
/// The size of that memory.
pub const WALK_SIZE: usize = size_of::<Position>() + size_of::<Arrays>();

/// How long one run may keep RCU waiting, in nanoseconds.
const MAX_RUN_NS: u64 = 400_000;

/// The number of steps between two looks at the clock. A file takes one step or more.
const CHECK_EVERY: u32 = 64;

const LAID_OUT: &str = "all offsets are aligned and less than WALK_SIZE, the size of the memory";

/// The loaded program of one handle.
#[derive(Debug)]
pub struct FilesWalk {
    link: OwnedFd,
    _program: OwnedFd,
    memory: SharedMemory,
    /// The process that loaded it. A child shares its memory, so a child must not use the program.
    owner: Owner,
    max_run_ns: u64,
    check_every: u32,
}

impl FilesWalk {
    /// Loads the program.
    ///
    /// # Errors
    ///
    /// `Denied` or `Unsupported`, with the reason.
    pub fn load() -> Result<FilesWalk> {
        let (program, memory) = load_sharing(&recipe::FILES_WALK, "files_walk", WALK_SIZE, &[])?;
        let link = bpf::link_tasks(program.as_fd(), TaskScope::Thread(std::process::id()))
            .map_err(|error| Error::io("attaching a BPF iterator (it takes Linux 6.1)", error))?;
        let mut walk = FilesWalk {
            link,
            _program: program,
            memory,
            owner: Owner::this_process(),
            max_run_ns: MAX_RUN_NS,
            check_every: CHECK_EVERY,
        };
        walk.begin(&[], &FilesPassRequest::default());
        match walk.run()?.state {
            state::ENDED => Ok(walk),
            other => Err(Error::new(
                ErrorKind::Unsupported,
                format!("the BPF program can't read this kernel's IDR of pid numbers (state {other})"),
            )),
        }
    }

    /// Whether this process may use it.
    pub fn is_ours(&self) -> bool {
        self.owner.is_this_process()
    }

    /// Sets the list of processes, at most [`LISTED`], whose files to read.
    pub fn begin(&mut self, pids: &[u32], asked: &FilesPassRequest) {
        self.begin_at(pids, Cursor::default(), asked);
    }

    /// As [`begin`](FilesWalk::begin), starting at a place in the list.
    pub fn begin_at(&mut self, pids: &[u32], cursor: Cursor, asked: &FilesPassRequest) {
        let pids = &pids[..pids.len().min(LISTED)];
        for (offset, &pid) in (LIST_AT..).step_by(size_of::<u32>()).zip(pids) {
            self.memory.write(offset, pid).expect(LAID_OUT);
        }
        let is_last = |one: &Match| *one == Match::default();
        let matches = asked.matches.iter().position(is_last).unwrap_or(MATCHES);
        let start = Position {
            wants: asked.wants,
            uses: asked.uses,
            types: asked.types,
            deleted: asked.deleted.into(),
            matches_count: matches as u32,
            matches: asked.matches,
            listed: pids.len() as u32,
            check_every: self.check_every,
            max_run_ns: self.max_run_ns,
            next: cursor.process,
            fd: cursor.fd,
            has_links: cursor.has_links.into(),
            as_task: asked.as_task,
            ..Position::default()
        };
        self.memory.write(0, start).expect(LAID_OUT);
    }

    /// Where the next run continues.
    pub fn cursor(&self) -> Cursor {
        let position: Position = self.memory.read(0).expect(LAID_OUT);
        Cursor {
            process: position.next,
            fd: position.fd,
            has_links: position.has_links != 0,
        }
    }

    /// Makes one run, and passes its records to `each`. Returns whether there is more.
    ///
    /// # Errors
    ///
    /// `System`, or `Malformed` for an invalid record.
    pub fn more(&mut self, each: impl FnMut(&Record, &[u8])) -> Result<bool> {
        let position = self.run()?;
        let len = (position.filled as usize).min(RECORDS);
        // SAFETY: only our program writes there, and it runs only in run().
        let records = unsafe { self.memory.bytes(RECORDS_AT..RECORDS_AT + len) };
        decode(records.expect(LAID_OUT), each)?;
        match position.state {
            state::GOES_ON => Ok(true),
            state::ENDED => Ok(false),
            other => Err(Error::new(
                ErrorKind::Malformed,
                format!("the BPF program that reads open files stopped in state {other}; use the source procfs"),
            )),
        }
    }

    /// How long the longest run took, in nanoseconds.
    pub fn longest_run_ns(&self) -> u64 {
        self.memory.read::<Position>(0).expect(LAID_OUT).longest_run_ns
    }

    /// Runs the program once: reads an iterator over a single task to its end, where the program
    /// runs.
    fn run(&mut self) -> Result<Position> {
        iterator::run_at_end(self.link.as_fd())?;
        Ok(self.memory.read(0).expect(LAID_OUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a record is decoded with its text, and that a partial record is not.
    #[test]
    fn records_are_decoded() {
        named_records::tests::is_decoded(Record {
            len: 88,
            index: 1,
            fd: 2,
            used_as: used_as::CWD,
            flags: DEFER_STAT,
            open_flags: 3,
            mnt_id: 4,
            offset: -5,
            size: 6,
            inode: 7,
            dev_major: 8,
            dev_minor: 9,
            nlink: 10,
            mode: 11,
            name: name::WHOLE,
            reserved: 0,
            name_len: 3,
            reserved2: 0,
            start_ns: 12,
        });
    }

    /// Check that a pass in many short runs has each descriptor of a process once and in order, and
    /// its first and last record.
    #[cfg(feature = "programs")]
    #[test]
    fn pauses_lose_nothing() {
        let held: Vec<_> = (0..500)
            .map(|_| std::fs::File::open("/dev/null").expect("it exists"))
            .collect();
        let mut walk = FilesWalk::load().expect("these tests need BPF");
        for (max_run_ns, check_every) in [(0, 1), (0, 7), (MAX_RUN_NS, CHECK_EVERY)] {
            (walk.max_run_ns, walk.check_every) = (max_run_ns, check_every);
            let asked = FilesPassRequest {
                uses: 0xf,
                wants: wants::NAMES,
                ..FilesPassRequest::default()
            };
            walk.begin(&[std::process::id(), 0x3fff_ffff, 1], &asked);
            let (mut own, mut ends, mut runs) = (Vec::new(), Vec::new(), 0);
            let mut goes_on = true;
            while goes_on {
                runs += 1;
                goes_on = walk
                    .more(|record, _| match record.used_as {
                        used_as::FD if record.index == 0 => own.push(record.fd),
                        used_as::END => ends.push(record.index),
                        _ => {}
                    })
                    .expect("a run");
            }
            assert!(own.is_sorted_by(|one, next| one < next), "{own:?}");
            for file in &held {
                use std::os::fd::AsRawFd as _;
                assert!(own.contains(&(file.as_raw_fd() as u32)));
            }
            assert_eq!(ends, [0, 2], "{max_run_ns} {check_every}");
            assert!(max_run_ns > 0 || runs > 500 / check_every as usize, "{runs}");
        }
    }

    /// Check that all bytes of a record for another process were written for it: none is left from
    /// the program's memory.
    #[cfg(feature = "programs")]
    #[test]
    fn records_have_no_stale_bytes() {
        use std::collections::BTreeMap;

        let _held: Vec<_> = (0..7)
            .map(|len| {
                let path = std::env::temp_dir().join(format!("stale-{}-{}", std::process::id(), "x".repeat(len)));
                let file = std::fs::File::create(&path).expect("a file");
                std::fs::remove_file(&path).expect("its end");
                (file, std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket"))
            })
            .collect();
        let mut walk = FilesWalk::load().expect("these tests need BPF");
        // With this many, no changing value takes all of them in turn.
        const POISONS: [u8; 5] = [0xa5, 0x5a, 0xc3, 0x96, 0x69];
        let listed = [std::process::id(), 1, std::os::unix::process::parent_id()];
        for wants in [wants::NAMES | wants::FLAGS | wants::STAT | wants::SPACE, wants::STAT, 0] {
            let poisoned = POISONS.map(|poison| {
                let asked = FilesPassRequest {
                    uses: 0xf,
                    wants,
                    ..FilesPassRequest::default()
                };
                walk.begin(&listed, &asked);
                for memory in [
                    size_of::<Position>()..LIST_AT,
                    LIST_AT + size_of_val(&listed)..RECORDS_AT,
                    RECORDS_AT..WALK_SIZE,
                ] {
                    let bytes = vec![poison; memory.len()];
                    walk.memory.write_bytes(memory.start, &bytes).expect(LAID_OUT);
                }
                let mut records = BTreeMap::new();
                let mut goes_on = true;
                while goes_on {
                    let take = |record: &Record, text: &[u8]| {
                        let mut bytes = Vec::new();
                        record.put(text, &mut bytes);
                        records.insert((record.index, record.used_as, record.fd), bytes);
                    };
                    goes_on = walk.more(take).expect("a run");
                }
                records
            });
            let [first, others @ ..] = &poisoned;
            let mut compared = 0;
            for (file, bytes) in first {
                let others: Vec<&Vec<u8>> = others.iter().filter_map(|records| records.get(file)).collect();
                if others.len() + 1 < POISONS.len() || others.iter().any(|other| other.len() != bytes.len()) {
                    continue;
                }
                compared += 1;
                let is_stale = |at: &usize| {
                    let mut later = others.iter().zip(&POISONS[1..]);
                    bytes[*at] == POISONS[0] && later.all(|(other, poison)| other[*at] == *poison)
                };
                let stale: Vec<usize> = (0..bytes.len()).filter(is_stale).collect();
                assert!(stale.is_empty(), "{file:?}: bytes {stale:?} of {bytes:02x?}");
                assert_eq!(bytes.len() % 8, 0);
            }
            assert!(compared > 20, "{compared} of {}", first.len());
        }
    }
}
