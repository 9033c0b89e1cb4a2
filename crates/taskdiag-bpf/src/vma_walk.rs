//! Walks over mappings: the program of `bpf/vma.bpf.c` that finds processes and mappings itself, run by a system call.
//!
//! It tells the numbers of names: what has the same number has the same name. The names are the library's to find out.

use std::mem::offset_of;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_sys::bpf::{self, SharedMemory};
use taskdiag_sys::host;
use taskdiag_sys::owner::Owner;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::vma::{self, torn, Record, Settings};

/// `struct td_vma_walk` up to its arrays.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs)] // the header's
pub struct Position {
    pub question: u32,
    pub fd: u32,
    pub count: u32,
    pub blocks: u32,
    pub state: u32,
    pub filled: u32,
    pub last: u32,
    pub met: u32,
    pub behind: u32,
    pub begun: u32,
    pub leaf_end: u32,
    pub has_branch: u32,
    pub leaves: u32,
    pub has_leaf: u32,
    pub slot: u32,
    pub slots_count: u32,
    pub address: u64,
    pub task: u64,
    pub mm: u64,
    pub start_ns: u64,
    pub exec_id: u64,
    pub sequence: u64,
    pub from: u64,
    pub root: u64,
    pub branch_max: u64,
    pub leaf_max: u64,
    pub looked_up: u64,
}

/// Processes that are looked at together.
pub const BLOCK: usize = 64;
/// The most addresses of one run.
pub const ADDRESSES: usize = 4096;
/// Room for records.
pub const RECORDS: usize = 512 << 10;

/// The size of its memory of names.
const RECENT_SIZE: usize = 128 * (vma::KEY_SIZE + vma::NAME_SIZE) as usize;

/// Where `struct td_vma_walk` has its position.
pub const POSITION: usize = size_of::<Settings>();
/// Where it has addresses.
pub const ADDRESSES_AT: usize = POSITION + size_of::<Position>() + BLOCK * (8 + 8 + 4) + 2 * 256 + RECENT_SIZE;
/// Where it has records.
pub const RECORDS_AT: usize = ADDRESSES_AT + ADDRESSES * 8;
/// Its size.
pub const WALK_SIZE: usize = RECORDS_AT + RECORDS;

/// `enum td_vma_question`.
#[allow(missing_docs)]
pub mod question {
    pub const MACHINE: u32 = 0;
    pub const LIST: u32 = 1;
    pub const LOOK_UP: u32 = 2;
    pub const CHECK: u32 = 3;
}

/// `enum td_vma_state`.
#[allow(missing_docs)]
pub mod state {
    pub const NOWHERE: u32 = 0;
    pub const GOES_ON: u32 = 1;
    pub const ENDED: u32 = 2;
    pub const CHANGED: u32 = 3;
    pub const GONE: u32 = 4;
}

/// Blocks before a pause: some hundred processes, as many as there is room for.
const BLOCKS: u32 = 64;

/// How a question about one memory ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer is whole, and was true at one time.
    Whole,
    /// The memory was mapped anew meanwhile.
    Changed,
    /// There is no memory any more.
    Gone,
}

/// Which mappings of a memory are meant.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    /// Those that have all these flags.
    Passing(u32),
    /// Those that these addresses lie in, which are in order.
    At(&'a [u64]),
}

/// The program in the kernel, for one handle.
#[derive(Debug)]
pub struct VmaWalk {
    program: OwnedFd,
    memory: SharedMemory,
    settings: Settings,
    /// The process that loaded it; a child has the same memory, but not for itself.
    owner: Owner,
}

impl VmaWalk {
    /// Loads the program. `None` if this kernel is not one whose mappings can be walked.
    pub fn load() -> Result<Option<VmaWalk>> {
        // Names are asked for by PROCMAP_QUERY (Linux 6.11); there are other reasons, and they are tried.
        if host::kernel_version().is_none_or(|version| version < (6, 11)) {
            return Ok(None);
        }
        let (program, memory) = vma::load(WALK_SIZE)?;
        let mut walk = VmaWalk {
            program,
            memory,
            settings: Settings::of_this_host(),
            owner: Owner::this_process(),
        };
        walk.begin(Position::default());
        let is_possible = walk.run()?.state != state::NOWHERE;
        Ok(is_possible.then_some(walk))
    }

    /// Whether this process may use it.
    pub fn is_ours(&self) -> bool {
        self.owner.is_this_process()
    }

    /// Begins a pass: numbers of names from before mean nothing any more.
    pub fn begin_pass(&mut self, filter: u32, names: bool) {
        self.settings.begin(filter, names);
        self.write(0, self.settings);
    }

    /// Gives the mappings of all processes to `each`, in the order of processes and addresses. A process of which the text has to be
    /// asked has a record that says so, which may be its last one. Returns whether process 1 was met.
    pub fn machine(&mut self, mut each: impl FnMut(&Record, &[u8])) -> Result<bool> {
        self.begin(Position {
            blocks: BLOCKS,
            ..Position::default()
        });
        loop {
            let position = self.run()?;
            self.fetch(position, &mut each)?;
            match position.state {
                state::GOES_ON => {}
                state::ENDED => break,
                other => return Err(unknown(other)),
            }
        }
        let settings: Settings = self.memory.read(0).expect(LAID_OUT);
        Ok(settings.saw_first != 0)
    }

    /// Gives mappings of the memory that a maps file of ours is of to `each`. What it was given means nothing if the memory changed.
    pub fn memory(
        &mut self,
        maps: BorrowedFd<'_>,
        which: Which<'_>,
        mut each: impl FnMut(&Record, &[u8]),
    ) -> Result<Outcome> {
        let (question, filter, mut addresses) = match which {
            Which::Passing(filter) => (question::LIST, filter, &[][..]),
            Which::At(addresses) => (question::LOOK_UP, 0, addresses),
        };
        self.write(offset_of!(Settings, filter), filter);
        let mut position = Position {
            question,
            blocks: 1,
            fd: maps.as_raw_fd() as u32,
            ..Position::default()
        };
        loop {
            let (now, later) = addresses.split_at(addresses.len().min(ADDRESSES));
            for (place, &address) in (ADDRESSES_AT..).step_by(size_of::<u64>()).zip(now) {
                self.write(place, address);
            }
            position.count = now.len() as u32;
            self.begin(position);
            position = self.run()?;
            self.fetch(position, &mut each)?;
            match position.state {
                state::GOES_ON => {}
                state::ENDED => {
                    addresses = &later[later.partition_point(|&address| address < position.looked_up)..];
                    if addresses.is_empty() {
                        return Ok(Outcome::Whole);
                    }
                    // Not at the beginning: the memory has to be as it was.
                    position.from = position.looked_up.max(1);
                }
                other => return settled(other),
            }
        }
    }

    /// Where the last question about a memory left the program.
    pub fn position(&self) -> Position {
        self.memory.read(POSITION).expect(LAID_OUT)
    }

    /// Whether a memory is still mapped as it was when a question about it was answered, which left the program at `position`.
    pub fn is_unchanged(&mut self, maps: BorrowedFd<'_>, mut position: Position) -> Result<bool> {
        position.question = question::CHECK;
        position.blocks = 1;
        position.fd = maps.as_raw_fd() as u32;
        self.begin(position);
        match self.run()?.state {
            state::ENDED => Ok(true),
            other => settled(other).map(|_| false),
        }
    }

    fn begin(&mut self, position: Position) {
        self.write(POSITION, position);
    }

    fn run(&mut self) -> Result<Position> {
        bpf::run(self.program.as_fd()).map_err(|error| Error::io("running a BPF program", error))?;
        Ok(self.memory.read(POSITION).expect(LAID_OUT))
    }

    fn fetch(&self, position: Position, each: &mut impl FnMut(&Record, &[u8])) -> Result<()> {
        let len = (position.filled as usize).min(RECORDS);
        // SAFETY: only our program writes there, and only when we run it; nobody else has that.
        let records = unsafe { self.memory.bytes(RECORDS_AT..RECORDS_AT + len) };
        let mut bytes = records.expect(LAID_OUT);
        while !bytes.is_empty() {
            let (record, name, rest) = Record::split_first(bytes).ok_or_else(torn)?;
            each(&record, name);
            bytes = rest;
        }
        Ok(())
    }

    fn write<T: IntoBytes>(&mut self, place: usize, value: T) {
        self.memory.write(place, value).expect(LAID_OUT);
    }
}

const LAID_OUT: &str = "the memory is of WALK_SIZE, and all places are within and aligned";

fn settled(state: u32) -> Result<Outcome> {
    match state {
        state::CHANGED => Ok(Outcome::Changed),
        state::GONE => Ok(Outcome::Gone),
        other => Err(unknown(other)),
    }
}

fn unknown(state: u32) -> Error {
    Error::new(
        ErrorKind::Malformed,
        format!("the BPF program stopped in state {state}"),
    )
}
