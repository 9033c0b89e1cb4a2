//! Walks: passes of the program that goes from task to task itself, along the kernel's tree of numbers.
//!
//! Most of a walk is waiting for memory. Two walkers on two processors wait at the same time: where there are many tasks, each
//! takes a stretch of numbers, visits those, and takes the next that nobody has taken.

use std::os::fd::BorrowedFd;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::pass::{Config, Taker, NEXT_SLOT};
use crate::error::{Error, ErrorKind, Result};
use crate::record::Access;
use crate::snapshot::{Counters, Found, Snapshot};
use crate::source::host;
use crate::sys::bpf::{self, SharedMemory};

/// Where a walk stands: `struct td_walk` of `bpf/record.h`, up to its arrays.
#[derive(Clone, Copy, Debug, Default, IntoBytes, FromBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs)] // the header's
pub struct Position {
    pub state: u32,
    pub budget: u32,
    pub spent: u32,
    pub listed: u32,
    pub last: u32,
    pub filled: u32,
    pub met: u32,
    pub behind: u32,
    pub shift: u32,
    pub walkers: u32,
    pub until: u32,
    pub runner: u32,
    pub turns: u64,
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

/// Walkers of a program.
pub const WALKERS: usize = 2;

/// Numbers that a walker takes at a time.
pub const TURN: u32 = 256;

/// Where `struct td_reader` of the program that walks has its records.
pub const SCRATCH: usize = size_of::<Config>() + 64 + size_of::<Access>() + 64;
const SCRATCH_SIZE: usize = (512 << 10) + 8192;
const PATH_AND_NAME_SIZE: usize = 1024 + 256 + 256;
/// Where it has the position.
pub const POSITION: usize = SCRATCH + SCRATCH_SIZE + PATH_AND_NAME_SIZE;
/// Where it has the list of processes.
pub const LIST: usize = POSITION + size_of::<Position>() + BLOCK * (8 + 8 + 8 + 4);
/// Its size, whole pages.
pub const READER_SIZE: usize = (LIST + LISTED * size_of::<u32>()).next_multiple_of(4096);
/// The size of those of all walkers.
pub(super) const MEMORY_SIZE: u32 = (WALKERS * READER_SIZE) as u32;

/// `enum td_walk_state`.
#[allow(missing_docs)]
pub mod state {
    pub const NOWHERE: u32 = 0;
    pub const GOES_ON: u32 = 1;
    pub const ENDED: u32 = 2;
    pub const LOST: u32 = 3;
}

/// Visits before a pause. The program runs under RCU meanwhile, for a fraction of a millisecond, and what it made is still in the
/// processor's cache when it is fetched.
const BUDGET: u32 = 1024;

/// So many visits are not worth sharing: to start a thread takes as long as some hundred.
const ALONE: u32 = 2048;

/// How often a walk that lost its way begins again.
const ATTEMPTS: u32 = 16;

/// Whether this kernel may have what walks need (Linux 6.2).
pub(super) fn is_possible() -> bool {
    host::kernel_version().is_some_and(|version| version >= (6, 2))
}

/// The memory of a program that walks.
#[derive(Debug)]
pub(super) struct Walk {
    /// The walker of all that is not shared, and the one that helps it.
    walkers: [Walker; WALKERS],
    budget: u32,
    /// Whether there is a processor for the second.
    is_shareable: bool,
    /// How many visits a walk over all will take, by the one before.
    expected: u32,
    /// Where the kernel has all memory mapped; 0: not known.
    page_offset: u64,
}

impl Walk {
    /// `memories` are the `td_reader`s of the walkers, each of [`READER_SIZE`].
    pub(super) fn new(memories: [SharedMemory; WALKERS]) -> Walk {
        Walk {
            walkers: memories.map(|memory| Walker { memory }),
            budget: BUDGET,
            is_shareable: host::usable_cpus() > 1,
            // More, if only processes are visited. The next walk will know.
            expected: host::threads().into(),
            page_offset: 0,
        }
    }

    /// Tells the program what to do with the tasks it visits.
    pub(super) fn configure(&mut self, config: Config, next_slot: u64) {
        for walker in &mut self.walkers {
            walker.write(0, config);
        }
        self.walkers[0].write(NEXT_SLOT, next_slot);
    }

    /// Has walks made by whoever asks alone.
    pub(super) fn stay_alone(&mut self) {
        self.is_shareable = false;
    }

    /// Whether the program finds the tree of numbers.
    pub(super) fn finds_tasks(&mut self, link: BorrowedFd<'_>) -> Result<bool> {
        self.begin(&[rustix::process::getpid().as_raw_nonzero().get() as u32], self.budget);
        Ok(self.walkers[0].go_on(link)?.state == state::ENDED)
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
        self.walkers[0].write(POSITION, place);
        self.page_offset = self.walkers[0].go_on(link)?.page_offset;
        Ok(())
    }

    /// Visits the processes of `pids`, or all if there are none, and appends their records and rows to `snapshot`. Those of all
    /// are handed to `taker` instead, if there is one.
    pub(super) fn run(
        &mut self,
        link: BorrowedFd<'_>,
        threads: bool,
        pids: &[u32],
        snapshot: &mut Snapshot,
        taker: Option<&mut Taker<'_>>,
    ) -> Result<()> {
        if pids.is_empty() {
            return self.run_over_all(link, snapshot, taker);
        }
        pids.chunks(if threads { 1 } else { LISTED })
            .try_for_each(|listed| self.run_listed(link, listed, snapshot))
    }

    fn run_listed(&mut self, link: BorrowedFd<'_>, listed: &[u32], snapshot: &mut Snapshot) -> Result<()> {
        let (rows, records, unsettled) = (snapshot.rows.len(), snapshot.records.len(), snapshot.unsettled.len());
        for _ in 0..ATTEMPTS {
            self.begin(listed, self.budget);
            loop {
                let position = self.walkers[0].go_on(link)?;
                let (records, mut found) = Found::of(snapshot);
                self.walkers[0].fetch(position, &Mutex::new(Destination::Memory(records)), &mut found)?;
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

    fn run_over_all(
        &mut self,
        link: BorrowedFd<'_>,
        snapshot: &mut Snapshot,
        taker: Option<&mut Taker<'_>>,
    ) -> Result<()> {
        let (records, mut found) = Found::of(snapshot);
        let pass = Pass {
            link,
            to: Mutex::new(match taker {
                Some(taker) => Destination::Taker(taker),
                None => Destination::Memory(records),
            }),
        };
        self.begin(&[], self.budget);
        if !self.is_shareable {
            return self.walkers[0].walk_on(&pass, &mut found).map(drop);
        }
        let mut place: Position = self.walkers[0].read(POSITION);
        let mut visits = 0;
        while self.expected.max(visits) <= ALONE {
            place = self.walkers[0].step(&pass, &mut found)?;
            visits += place.spent;
            if place.state == state::ENDED {
                return Ok(());
            }
        }
        let (mut rows, mut unsettled, mut counters) = (Vec::new(), Vec::new(), Counters::default());
        let mut others = Found {
            rows: &mut rows,
            unsettled: &mut unsettled,
            counters: &mut counters,
        };
        let [first, second] = &mut self.walkers;
        // They number in turn from here on.
        second.write(NEXT_SLOT, first.read::<u64>(NEXT_SLOT) + 1);
        // The first one's turn is the one that it is in.
        let turns = place.last / TURN + 1;
        let place = Position {
            walkers: WALKERS as u32,
            turns: turns.into(),
            ..place
        };
        first.place(Position {
            until: turns * TURN,
            ..place
        });
        let cpu = rustix::thread::sched_getcpu();
        let result = thread::scope(|scope| {
            let helper = thread::Builder::new().spawn_scoped(scope, || {
                // Else it may be left to wait behind us for most of the few milliseconds that this takes.
                host::leave_cpu(cpu);
                second.place(Position { until: 0, ..place });
                second.walk_on(&pass, &mut others)
            });
            // Without help, it takes all turns itself.
            let done = first.walk_on(&pass, &mut found);
            let helped = helper.map(|helper| helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
            Ok(done? + helped.unwrap_or(Ok(0))?)
        });
        // The thread's number may be another one's next.
        second.write(POSITION, Position::default());
        self.expected = visits + result?;
        let first = snapshot.rows.len();
        snapshot.rows.append(&mut rows);
        let unsettled = unsettled.into_iter().map(|index: usize| first + index);
        snapshot.unsettled.extend(unsettled);
        snapshot.counters.reads += counters.reads;
        snapshot.counters.record_bytes += counters.record_bytes;
        snapshot.counters.malformed += counters.malformed;
        Ok(())
    }

    fn begin(&mut self, listed: &[u32], budget: u32) {
        let place = Position {
            state: state::NOWHERE,
            budget,
            listed: listed.len() as u32,
            page_offset: self.page_offset,
            walkers: 1,
            until: u32::MAX,
            ..Position::default()
        };
        for (place, &pid) in (LIST..).step_by(size_of::<u32>()).zip(listed) {
            self.walkers[0].write(place, pid);
        }
        self.walkers[0].write(POSITION, place);
    }
}

/// What walkers share.
struct Pass<'p, 't> {
    link: BorrowedFd<'p>,
    to: Mutex<Destination<'p, 't>>,
}

/// Where records go.
enum Destination<'p, 't> {
    Memory(&'p mut Vec<u8>),
    Taker(&'p mut Taker<'t>),
}

/// One `td_reader` of the program.
#[derive(Debug)]
struct Walker {
    memory: SharedMemory,
}

impl Walker {
    /// Goes on to the end. Returns how many visits that took.
    fn walk_on(&mut self, pass: &Pass<'_, '_>, found: &mut Found<'_>) -> Result<u32> {
        let mut visits = 0;
        loop {
            let place = self.step(pass, found)?;
            visits += place.spent;
            if place.state == state::ENDED {
                return Ok(visits);
            }
        }
    }

    /// Goes on to the next pause, or to the end. Returns where it stands.
    fn step(&mut self, pass: &Pass<'_, '_>, found: &mut Found<'_>) -> Result<Position> {
        let place = self.go_on(pass.link)?;
        self.fetch(place, &pass.to, found)?;
        match place.state {
            state::GOES_ON | state::ENDED => Ok(place),
            other => Err(malformed(other)),
        }
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
        Ok(self.read(POSITION))
    }

    /// Takes the records of the last run over.
    fn fetch(&self, place: Position, to: &Mutex<Destination<'_, '_>>, found: &mut Found<'_>) -> Result<()> {
        let filled = SCRATCH..SCRATCH + (place.filled as usize).min(SCRATCH_SIZE);
        // SAFETY: only our program writes there, and when it is run as this walker, which only we do.
        let fresh = unsafe { self.memory.bytes(filled) }.expect(LAID_OUT);
        found.counters.reads += 1;
        let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
        let records = match &mut *to {
            Destination::Memory(records) => records,
            Destination::Taker(taker) => {
                taker(fresh);
                return Ok(());
            }
        };
        let offset = records.len();
        records.extend_from_slice(fresh);
        drop(to);
        found.index(fresh, offset)
    }

    /// Has it go on from a place. To be called by the thread that runs it.
    fn place(&mut self, place: Position) {
        let runner = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        self.write(POSITION, Position { runner, ..place });
    }

    fn read<T: FromBytes>(&self, place: usize) -> T {
        self.memory.read(place).expect(LAID_OUT)
    }

    fn write<T: IntoBytes>(&mut self, place: usize, value: T) {
        self.memory.write(place, value).expect(LAID_OUT);
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

    struct Sleepers(Vec<Child>);

    impl Sleepers {
        fn start(count: usize) -> Sleepers {
            let spawn = |_| {
                let mut command = Command::new("sleep");
                command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
                command.spawn().unwrap()
            };
            Sleepers((0..count).map(spawn).collect())
        }
    }

    impl Drop for Sleepers {
        fn drop(&mut self) {
            for child in &mut self.0 {
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }

    fn pids(snapshot: &Snapshot) -> Vec<u32> {
        snapshot.tasks().map(|task| task.record().header().pid.get()).collect()
    }

    /// Check that a walk that pauses often, or is shared from wherever, finds what lives all the time, and nothing twice.
    #[test]
    fn pauses_lose_nothing() {
        let mut program = WalkingProgram::load(Groups::NONE);
        let sleepers = Sleepers::start(100);
        let ways = [(false, 0), (true, 0), (true, ALONE + 1)];
        for (budget, (shareable, expected)) in [1, 200, BUDGET]
            .into_iter()
            .flat_map(|budget| ways.map(|way| (budget, way)))
        {
            let (walk, _) = program.walk();
            (walk.budget, walk.is_shareable, walk.expected) = (budget, shareable, expected);
            let snapshot = program.pass(Scope::Processes, &[]);
            let (walk, _) = program.walk();
            let place: Position = walk.walkers[0].read(POSITION);
            let shared = shareable && expected > ALONE;
            assert_eq!(place.walkers > 1, shared);
            if shared {
                // It knows better now.
                assert!((100..ALONE).contains(&walk.expected), "{}", walk.expected);
            }
            let mut found = pids(&snapshot);
            // Each walker finds them in order.
            assert!(shared || found.is_sorted());
            found.sort_unstable();
            assert!(found.is_sorted_by(|one, next| one < next));
            for child in &sleepers.0 {
                assert!(
                    found.contains(&child.id()),
                    "{} with a budget of {budget}, shared: {shared}",
                    child.id()
                );
            }
            assert!(snapshot.counters.reads >= 100 / (BLOCK as u64 + u64::from(budget)));
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
        walk.begin(&[process::id()], BUDGET);
        let gone = Position {
            budget: 1,
            listed: 1,
            last: 0x3fff_ffff,
            ..Position::default()
        };
        walk.walkers[0].write(POSITION, gone);
        let position = walk.walkers[0].go_on(link).unwrap();
        assert_eq!((position.state, position.filled), (state::LOST, 0));
    }
}
