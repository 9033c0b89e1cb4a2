//! Walks: passes of the program that goes from task to task itself, along the kernel's list of processes.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::pass::{index, Config, NEXT_SLOT};
use crate::error::{Error, ErrorKind, Result};
use crate::record::Access;
use crate::snapshot::Snapshot;
use crate::source::host;
use crate::sys::bpf::{self, SharedMemory};

/// Where a walk stands: `struct td_walk` of `bpf/record.h`, up to its arrays.
#[derive(Clone, Copy, Debug, Default, IntoBytes, FromBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs)] // the header's
pub struct Position {
    pub state: u32,
    pub blocks: u32,
    pub listed: u32,
    pub last: u32,
    pub filled: u32,
    pub met: u32,
    pub behind: u32,
    pub shift: u32,
    pub root: u64,
    pub head: u64,
    pub node: u64,
    pub page_offset: u64,
    pub known_page: u64,
    pub known: [u64; 2],
}

/// Tasks that are looked at together.
pub const BLOCK: usize = 64;

/// The most processes that one walk can be told to visit.
pub const LISTED: usize = 1024;

/// Where `struct td_reader` of the program that walks has its records.
pub const SCRATCH: usize = size_of::<Config>() + 48 + size_of::<Access>();
const SCRATCH_SIZE: usize = (512 << 10) + 8192;
const PATH_AND_NAME_SIZE: usize = 1024 + 256 + 256;
/// Where it has the position.
pub const POSITION: usize = SCRATCH + SCRATCH_SIZE + PATH_AND_NAME_SIZE;
/// Where it has the list of processes.
pub const LIST: usize = POSITION + size_of::<Position>() + BLOCK * (8 + 8 + 8 + 4);
/// Its size.
pub const READER_SIZE: u32 = (LIST + LISTED * size_of::<u32>()) as u32;

/// `enum td_walk_state`.
#[allow(missing_docs)]
pub mod state {
    pub const NOWHERE: u32 = 0;
    pub const GOES_ON: u32 = 1;
    pub const ENDED: u32 = 2;
    pub const LOST: u32 = 3;
}

/// Blocks before a pause: some thousand tasks. The program runs under RCU meanwhile, for a millisecond or so.
const BLOCKS: u32 = 64;

/// How often a walk that lost its way begins again.
const ATTEMPTS: u32 = 16;

/// Whether this kernel may have what walks need (Linux 6.2).
pub(super) fn is_possible() -> bool {
    host::kernel_version().is_some_and(|version| version >= (6, 2))
}

/// The memory of a program that walks.
#[derive(Debug)]
pub(super) struct Walk {
    reader: SharedMemory,
    blocks: u32,
    /// Where the kernel has all memory mapped; 0: not known.
    page_offset: u64,
}

impl Walk {
    /// `reader` is its `td_reader`, of [`READER_SIZE`].
    pub(super) fn new(reader: SharedMemory) -> Walk {
        Walk {
            reader,
            blocks: BLOCKS,
            page_offset: 0,
        }
    }

    /// Tells the program what to do with the tasks it visits.
    pub(super) fn configure(&mut self, config: Config, next_slot: u64) {
        self.write(0, config);
        self.write(NEXT_SLOT, next_slot);
    }

    /// Whether the program finds the list of processes.
    pub(super) fn finds_tasks(&mut self, link: BorrowedFd<'_>) -> Result<bool> {
        self.begin(&[rustix::process::getpid().as_raw_nonzero().get() as u32]);
        Ok(self.go_on(link)?.state == state::ENDED)
    }

    /// Has the program find out where the kernel has all memory mapped, by a page of ours. That helps it to load page tables
    /// early; without the right to know physical addresses (CAP_SYS_ADMIN) it does without.
    pub(super) fn find_memory(&mut self, link: BorrowedFd<'_>) -> Result<()> {
        let page = host::KnownPage::new();
        let Some(address) = page.physical_address() else {
            return Ok(());
        };
        let place = Position {
            known_page: address,
            known: page.words(),
            ..Position::default()
        };
        self.write(POSITION, place);
        self.page_offset = self.go_on(link)?.page_offset;
        Ok(())
    }

    /// Visits the processes of `pids`, or all if there are none, and appends their records and rows to `snapshot`.
    pub(super) fn run(
        &mut self,
        link: BorrowedFd<'_>,
        threads: bool,
        pids: &[u32],
        snapshot: &mut Snapshot,
    ) -> Result<()> {
        if pids.is_empty() {
            return self.run_listed(link, pids, snapshot);
        }
        pids.chunks(if threads { 1 } else { LISTED })
            .try_for_each(|listed| self.run_listed(link, listed, snapshot))
    }

    fn run_listed(&mut self, link: BorrowedFd<'_>, listed: &[u32], snapshot: &mut Snapshot) -> Result<()> {
        let (rows, records, unsettled) = (snapshot.rows.len(), snapshot.records.len(), snapshot.unsettled.len());
        for _ in 0..ATTEMPTS {
            self.begin(listed);
            loop {
                let position = self.go_on(link)?;
                snapshot.counters.reads += 1;
                self.fetch(position.filled as usize, snapshot)?;
                match position.state {
                    state::GOES_ON => {}
                    state::ENDED => return Ok(()),
                    state::LOST => break,
                    other => return Err(malformed(other)),
                }
            }
            snapshot.rows.truncate(rows);
            snapshot.records.truncate(records);
            snapshot.unsettled.truncate(unsettled);
        }
        Err(Error::new(
            ErrorKind::System,
            "tasks end faster than they can be visited; procfs may answer",
        ))
    }

    fn begin(&mut self, listed: &[u32]) {
        for (place, &pid) in (LIST..).step_by(size_of::<u32>()).zip(listed) {
            self.write(place, pid);
        }
        self.write(
            POSITION,
            Position {
                state: state::NOWHERE,
                blocks: self.blocks,
                listed: listed.len() as u32,
                page_offset: self.page_offset,
                ..Position::default()
            },
        );
    }

    /// Runs the program once: reading to the end of an iterator of a single task runs it at that end.
    fn go_on(&mut self, link: BorrowedFd<'_>) -> Result<Position> {
        let pass = bpf::iterate(link).map_err(|error| Error::io("starting a BPF iterator", error))?;
        let mut nothing = [0; 8];
        loop {
            match rustix::io::read(&pass, &mut nothing) {
                Ok(_) => break,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(Error::io("reading a BPF iterator", error)),
            }
        }
        Ok(self.reader.read(POSITION).expect(LAID_OUT))
    }

    /// Takes the records over.
    fn fetch(&self, len: usize, snapshot: &mut Snapshot) -> Result<()> {
        // SAFETY: only our program writes there, which runs when we read its iterator; nobody else has that.
        let records = unsafe { self.reader.bytes(SCRATCH..SCRATCH + len.min(SCRATCH_SIZE)) };
        let start = snapshot.records.len();
        snapshot.records.extend_from_slice(records.expect(LAID_OUT));
        index(snapshot, start)
    }

    fn write<T: IntoBytes>(&mut self, place: usize, value: T) {
        self.reader.write(place, value).expect(LAID_OUT);
    }
}

const LAID_OUT: &str = "the memory is of READER_SIZE, and all places are within and aligned";

fn malformed(state: u32) -> Error {
    Error::new(
        ErrorKind::Malformed,
        format!("the BPF program stopped in state {state}"),
    )
}

#[cfg(test)]
mod tests {
    use std::process::{self, Child, Command, Stdio};

    use super::super::pass::WalkingProgram;
    use super::*;
    use crate::field::Groups;
    use crate::query::Scope;

    fn sleepers(count: usize) -> Vec<Child> {
        let spawn = |_| Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        (0..count).map(spawn).collect()
    }

    fn pids(snapshot: &Snapshot) -> Vec<u32> {
        snapshot.tasks().map(|task| task.record().header().pid.get()).collect()
    }

    /// Check that a walk that pauses after each block finds what lives all the time, once and in order.
    #[test]
    fn pauses_lose_nothing() {
        let mut program = WalkingProgram::load(Groups::NONE);
        let mut sleepers = sleepers(100);
        for blocks in [1, 3, BLOCKS] {
            program.walk().0.blocks = blocks;
            let snapshot = program.pass(Scope::Processes, &[]);
            let found = pids(&snapshot);
            assert!(found.is_sorted_by(|one, next| one < next));
            for child in &sleepers {
                assert!(found.contains(&child.id()), "{} with {blocks} blocks", child.id());
            }
            assert!(snapshot.counters.reads >= (100 / BLOCK as u64) / u64::from(blocks));
        }
        for child in &mut sleepers {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Check that more processes can be listed than fit in one list, and that those which are not there leave no trace.
    #[test]
    fn lists_can_be_long() {
        let mut program = WalkingProgram::load(Groups::NONE);
        let own = process::id();
        let mut listed: Vec<u32> = (0x3fff_0000..).take(LISTED * 2).collect();
        listed.insert(LISTED + 7, own);
        assert_eq!(pids(&program.pass(Scope::Processes, &listed)), [own]);
    }

    /// Check that a walk along a process's threads says that it is lost where the thread to go on from is gone, and that a new
    /// one finds them.
    #[test]
    fn lost_walks_begin_again() {
        let mut program = WalkingProgram::load(Groups::NONE);
        let all = program.pass(Scope::ThreadsOf(process::id()), &[]);
        assert!(pids(&all).iter().all(|&pid| pid == process::id()) && !all.is_empty());

        let (walk, link) = program.walk();
        walk.begin(&[process::id()]);
        let gone = Position {
            blocks: 1,
            listed: 1,
            last: 0x3fff_ffff,
            ..Position::default()
        };
        walk.write(POSITION, gone);
        let position = walk.go_on(link).unwrap();
        assert_eq!((position.state, position.filled), (state::LOST, 0));
    }
}
