//! Walks over mappings: runs the program of `bpf/vma.bpf.c`, which finds processes and mappings
//! itself.
//!
//! The program gives the name of each file an id; mappings with the same id have the same name. The
//! library looks up the name of each id.

use std::mem::offset_of;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_sys::bpf::{self, SharedMemory};
use taskdiag_sys::host;
use taskdiag_sys::owner::Owner;
use zerocopy::IntoBytes;

use crate::files::{Match, MATCHES};
use crate::named_records;
use crate::vma::{self, op, state, Arrays, Position, Record, Settings, ADDRESSES, RECORDS};

/// The offset of [`Position`] in the memory of the program.
pub const POSITION: usize = size_of::<Settings>();
const ARRAYS: usize = POSITION + size_of::<Position>();
/// The offset of `addresses` there.
pub const ADDRESSES_AT: usize = ARRAYS + offset_of!(Arrays, addresses);
/// The offset of `records` there.
pub const RECORDS_AT: usize = ARRAYS + offset_of!(Arrays, records);
/// The size of that memory.
pub const WALK_SIZE: usize = ARRAYS + size_of::<Arrays>();

/// The number of blocks of a run: some hundreds of processes, whose records fit into the memory.
const BLOCKS: u32 = 64;

/// How reading an address space ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer is complete, and was true at a single moment.
    Whole,
    /// Mappings changed during the read.
    Changed,
    /// The address space is gone.
    Gone,
}

/// Which mappings of an address space to read.
#[derive(Clone, Copy, Debug)]
pub enum MappingSelection<'a> {
    /// Those that have all these flags.
    Passing(u32),
    /// Those that contain these addresses, which must be ascending.
    At(&'a [u64]),
}

/// The loaded program of one handle.
#[derive(Debug)]
pub struct VmaWalk {
    program: OwnedFd,
    memory: SharedMemory,
    settings: Settings,
    /// The process that loaded it. A child shares its memory, so a child must not use the program.
    owner: Owner,
}

impl VmaWalk {
    /// Loads the program. `None` if it can't read the mappings of this kernel.
    pub fn load() -> Result<Option<VmaWalk>> {
        // Names need PROCMAP_QUERY (Linux 6.11). A first run shows whether everything else is as
        // the program expects.
        if host::kernel_version().is_none_or(|version| version < (6, 11)) {
            return Ok(None);
        }
        let (program, memory) = vma::load(WALK_SIZE)?;
        let mut walk = VmaWalk {
            program,
            memory,
            settings: vma::settings_of_this_host(),
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

    /// Begins a pass. The ids of names from earlier passes become invalid.
    pub fn begin_pass(&mut self, filter: u32, names: bool) {
        self.settings.begin(filter, names);
        self.write(0, self.settings);
    }

    /// Begins a pass that looks for the mappings of some files, at most [`MATCHES`]. Mappings of
    /// other files have no records. Each process that was read has a record with [`vma::NO_OTHER`]
    /// at its end.
    pub fn begin_search(&mut self, files: &[Match]) {
        self.settings.begin(vma::FILE.into(), false);
        let count = files.len().min(MATCHES);
        self.settings.matches_count = count as u32;
        self.settings.matches[..count].copy_from_slice(&files[..count]);
        self.write(0, self.settings);
    }

    /// Passes the mappings of all processes to `each`, by ascending pid and address. If the text of
    /// a process must be read, it has a record with the flag [`vma::DEFER`], after which more of
    /// its records may be missing. Returns whether the pass found process 1.
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
        Ok(settings.saw_init != 0)
    }

    /// Passes mappings of the address space of a maps file to `each`. They are valid only if the
    /// outcome is `Whole`.
    pub fn memory(
        &mut self,
        maps: BorrowedFd<'_>,
        which: MappingSelection<'_>,
        mut each: impl FnMut(&Record, &[u8]),
    ) -> Result<Outcome> {
        let (op, filter, mut addresses) = match which {
            MappingSelection::Passing(filter) => (op::LIST, filter, &[][..]),
            MappingSelection::At(addresses) => (op::LOOK_UP, 0, addresses),
        };
        self.write(offset_of!(Settings, filter), filter);
        let mut position = Position {
            op,
            blocks: 1,
            fd: maps.as_raw_fd() as u32,
            ..Position::default()
        };
        loop {
            let (now, later) = addresses.split_at(addresses.len().min(ADDRESSES));
            for (offset, &address) in (ADDRESSES_AT..).step_by(size_of::<u64>()).zip(now) {
                self.write(offset, address);
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
                    // Not 0, which is the start: the mappings must not have changed since then.
                    position.from = position.looked_up.max(1);
                }
                other => return incomplete(other),
            }
        }
    }

    /// The state after the last operation, for [`is_unchanged`](VmaWalk::is_unchanged).
    pub fn position(&self) -> Position {
        self.memory.read(POSITION).expect(LAID_OUT)
    }

    /// Whether the mappings of an address space are unchanged since the operation that left the
    /// program at `position`.
    pub fn is_unchanged(&mut self, maps: BorrowedFd<'_>, mut position: Position) -> Result<bool> {
        position.op = op::CHECK;
        position.blocks = 1;
        position.fd = maps.as_raw_fd() as u32;
        self.begin(position);
        match self.run()?.state {
            state::ENDED => Ok(true),
            other => incomplete(other).map(|_| false),
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
        // SAFETY: only our program writes there, and it runs only in run().
        let records = unsafe { self.memory.bytes(RECORDS_AT..RECORDS_AT + len) };
        named_records::decode(records.expect(LAID_OUT), each)
    }

    fn write<T: IntoBytes>(&mut self, offset: usize, value: T) {
        self.memory.write(offset, value).expect(LAID_OUT);
    }
}

const LAID_OUT: &str = "all offsets are aligned and less than WALK_SIZE, the size of the memory";

/// The outcome of an operation that did not complete.
fn incomplete(state: u32) -> Result<Outcome> {
    match state {
        state::CHANGED => Ok(Outcome::Changed),
        state::GONE => Ok(Outcome::Gone),
        other => Err(unknown(other)),
    }
}

fn unknown(state: u32) -> Error {
    Error::new(
        ErrorKind::Malformed,
        format!("the BPF program that reads mappings stopped in state {state}"),
    )
}
