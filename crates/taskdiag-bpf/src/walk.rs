//! Walks: passes of the program that goes from task to task itself, along the kernel's tree of numbers.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::snapshot::{Found, Snapshot};
use taskdiag_sys::bpf::{self, SharedMemory};
use taskdiag_sys::host;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::pass::{Config, BEFORE_SCRATCH};

/// Where a walk stands: `struct td_walk` of `bpf/record.h`, up to its arrays.
#[derive(Clone, Copy, Debug, Default, IntoBytes, FromBytes, Immutable)]
#[repr(C)]
#[allow(missing_docs)] // the header's
pub struct Position {
    pub state: u32,
    pub listed: u32,
    pub last: u32,
    pub filled: u32,
    pub met: u32,
    pub at: u32,
    pub tries: u32,
    pub gone: u32,
    pub behind: u32,
    pub spent: u32,
    pub every: u32,
    pub look: u32,
    pub stretch_ns: u64,
    pub began_ns: u64,
    pub longest_ns: u64,
    pub root: u64,
    pub head: u64,
    pub node: u64,
}

/// Tasks that are looked at together.
pub const BLOCK: usize = 64;

/// The most processes that one walk can be told to visit.
pub const LISTED: usize = 1024;

/// Where `struct td_reader` of the program that walks has its records.
pub const SCRATCH: usize = BEFORE_SCRATCH;
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

/// How long one run keeps RCU waiting, in nanoseconds. What it made is still in the processor's cache when it is fetched.
const STRETCH_NS: u64 = 400_000;

/// After so many visits the program looks at the clock.
const EVERY: u32 = 64;

/// How often a walk that lost its way begins again.
const ATTEMPTS: u32 = 16;

/// Whether this kernel may have what walks need (Linux 6.2).
pub fn is_possible() -> bool {
    host::kernel_version().is_some_and(|version| version >= (6, 2))
}

/// The memory of a program that walks: its `td_reader`.
#[derive(Debug)]
pub struct Walk {
    memory: SharedMemory,
    stretch_ns: u64,
    every: u32,
}

impl Walk {
    /// Of the memory that it shares with its program.
    pub fn new(memory: SharedMemory) -> Walk {
        Walk {
            memory,
            stretch_ns: STRETCH_NS,
            every: EVERY,
        }
    }

    /// Tells the program what to do with the tasks it visits.
    pub fn configure(&mut self, config: Config) {
        self.write(0, config);
    }

    /// Whether the program finds the tree of numbers.
    pub fn finds_tasks(&mut self, link: BorrowedFd<'_>) -> Result<bool> {
        self.begin(&[rustix::process::getpid().as_raw_nonzero().get() as u32]);
        Ok(self.run_once(link)?.state == state::ENDED)
    }

    /// Visits the processes of `pids`, or all if there are none, and appends their records and rows to `snapshot`, until that has `most`.
    pub fn run(
        &mut self,
        link: BorrowedFd<'_>,
        threads: bool,
        pids: &[u32],
        most: usize,
        snapshot: &mut Snapshot,
    ) -> Result<()> {
        if pids.is_empty() {
            return if self.run_listed(link, &[], most, snapshot)? {
                Ok(())
            } else {
                Err(malformed(state::LOST))
            };
        }
        pids.chunks(if threads { 1 } else { LISTED }).try_for_each(|listed| {
            let before = snapshot.mark();
            for _ in 0..ATTEMPTS {
                if self.run_listed(link, listed, most, snapshot)? {
                    return Ok(());
                }
                snapshot.go_back_to(before);
            }
            Err(Error::new(
                ErrorKind::System,
                "tasks end faster than they can be visited; procfs may answer",
            ))
        })
    }

    /// Makes one walk. False if it lost its way.
    fn run_listed(
        &mut self,
        link: BorrowedFd<'_>,
        listed: &[u32],
        most: usize,
        snapshot: &mut Snapshot,
    ) -> Result<bool> {
        self.begin(listed);
        loop {
            let position = self.run_once(link)?;
            snapshot.counters.reads += 1;
            let counters = &mut snapshot.counters;
            counters.gone += u64::from(position.gone);
            counters.longest_run_ns = counters.longest_run_ns.max(position.longest_ns);
            self.fetch(position, snapshot)?;
            match position.state {
                state::GOES_ON if snapshot.rows.len() >= most => return Ok(true),
                state::GOES_ON => {}
                state::ENDED => return Ok(true),
                state::LOST => return Ok(false),
                other => return Err(malformed(other)),
            }
        }
    }

    fn begin(&mut self, listed: &[u32]) {
        for (place, &pid) in (LIST..).step_by(size_of::<u32>()).zip(listed) {
            self.write(place, pid);
        }
        let place = Position {
            listed: listed.len() as u32,
            every: self.every,
            stretch_ns: self.stretch_ns,
            ..Position::default()
        };
        self.write(POSITION, place);
    }

    /// Runs the program once: reading to the end of an iterator of a single task runs it at that end.
    fn run_once(&mut self, link: BorrowedFd<'_>) -> Result<Position> {
        let pass = bpf::iterate(link).map_err(|error| Error::io("starting a BPF iterator", error))?;
        let mut nothing = [0; 8];
        loop {
            match rustix::io::read(&pass, &mut nothing) {
                Ok(_) => break,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(Error::io("reading a BPF iterator", error)),
            }
        }
        Ok(self.position())
    }

    /// Takes the records of the last run over.
    fn fetch(&self, position: Position, snapshot: &mut Snapshot) -> Result<()> {
        let filled = SCRATCH..SCRATCH + (position.filled as usize).min(SCRATCH_SIZE);
        // SAFETY: only our program writes there, and only when we run it.
        let fresh = unsafe { self.memory.bytes(filled) }.expect(LAID_OUT);
        let (records, mut found) = Found::of(snapshot);
        let offset = records.len();
        records.extend_from_slice(fresh);
        found.index(fresh, offset)
    }

    fn position(&self) -> Position {
        self.memory.read(POSITION).expect(LAID_OUT)
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
    use std::collections::BTreeMap;
    use std::mem::offset_of;
    use std::process::{self, Child, Command, Stdio};

    use taskdiag_core::field::Groups;
    use taskdiag_core::query::Scope;
    use taskdiag_core::record::{attr, Header, Record, View};

    use super::super::pass::WalkingProgram;
    use super::*;

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

    /// Check that a walk that pauses as often as it can finds what lives all the time, in order, and nothing twice.
    #[test]
    fn pauses_lose_nothing() {
        let mut program = WalkingProgram::load(Groups::NONE);
        let sleepers = Sleepers::start(100);
        for (stretch_ns, every) in [(0, 1), (0, 7), (0, EVERY), (STRETCH_NS, EVERY)] {
            let (walk, _) = program.walk();
            (walk.stretch_ns, walk.every) = (stretch_ns, every);
            let snapshot = program.pass(Scope::Processes, &[], Groups::NONE);
            let found = pids(&snapshot);
            assert!(
                found.is_sorted_by(|one, next| one < next),
                "{stretch_ns} {every} {found:?}"
            );
            for child in &sleepers.0 {
                assert!(found.contains(&child.id()), "{} {stretch_ns} {every}", child.id());
            }
            if stretch_ns == 0 {
                assert!(snapshot.counters.reads >= 100 / u64::from(every));
            }
        }
    }

    /// Check that more processes can be listed than fit in one list, and that those which are not there leave no trace.
    #[test]
    fn lists_can_be_long() {
        let mut program = WalkingProgram::load(Groups::NONE);
        let own = process::id();
        let mut listed: Vec<u32> = (0x3fff_0000..).take(LISTED * 2).collect();
        listed.insert(LISTED + 7, own);
        assert_eq!(pids(&program.pass(Scope::Processes, &listed, Groups::NONE)), [own]);
    }

    /// Check that a walk along a process's threads says that it is lost where the thread to go on from is gone, and that a new
    /// one finds them.
    #[test]
    fn lost_walks_begin_again() {
        let mut program = WalkingProgram::load(Groups::NONE);
        let all = program.pass(Scope::ThreadsOf(process::id()), &[], Groups::NONE);
        assert!(pids(&all).iter().all(|&pid| pid == process::id()) && !all.is_empty());

        let (walk, link) = program.walk();
        walk.begin(&[process::id()]);
        let gone = Position {
            every: EVERY,
            stretch_ns: STRETCH_NS,
            listed: 1,
            last: 0x3fff_ffff,
            ..Position::default()
        };
        walk.write(POSITION, gone);
        let position = walk.run_once(link).unwrap();
        assert_eq!((position.state, position.filled), (state::LOST, 0));
    }

    /// Check that all bytes of records are written for them: none of them is what lay in the program's memory before, whatever that was.
    #[test]
    fn records_have_nothing_of_what_was_there() {
        let groups = Groups::ALL.or(Groups::ACCESS).or(Groups::VIEW);
        let mut program = WalkingProgram::load(groups);
        let _sleepers = Sleepers::start(20);
        // So many that a value which moves is not all of them in turn.
        const POISONS: [u8; 5] = [0xa5, 0x5a, 0xc3, 0x96, 0x69];
        for scope in [Scope::Processes, Scope::Threads] {
            let poisoned = POISONS.map(|poison| {
                let (walk, _) = program.walk();
                let memory = vec![poison; SCRATCH_SIZE + PATH_AND_NAME_SIZE];
                walk.memory.write_bytes(SCRATCH, &memory).expect(LAID_OUT);
                program.pass(scope, &[], groups)
            });
            let records = |snapshot: &Snapshot| -> BTreeMap<u32, Vec<u8>> {
                let each = Record::each(&snapshot.records);
                each.map(|record| (record.header().tid.get(), record.as_bytes().to_vec()))
                    .collect()
            };
            let [first, others @ ..] = poisoned.each_ref().map(records);
            let mut compared = 0;
            for (tid, bytes) in &first {
                let others: Vec<&Vec<u8>> = others.iter().filter_map(|records| records.get(tid)).collect();
                if others.len() + 1 < POISONS.len() || others.iter().any(|other| other.len() != bytes.len()) {
                    continue;
                }
                compared += 1;
                // What is behind the security data of a task is whatever the kernel has there, and that may be this test's own
                // memory. The broker looks at it, and sends it to nobody.
                let (record, _) = Record::split_first(bytes).unwrap();
                let views = record.attributes().filter(|attribute| attribute.kind == attr::VIEW);
                let security = views.flat_map(|view| {
                    let begins = view.payload.as_ptr_range().start as usize - bytes.as_ptr() as usize;
                    begins + offset_of!(View, security)..begins + size_of::<View>()
                });
                let security: Vec<usize> = security.collect();
                let is_left = |at: &usize| {
                    bytes[*at] == POISONS[0]
                        && others
                            .iter()
                            .zip(&POISONS[1..])
                            .all(|(other, poison)| other[*at] == *poison)
                };
                let left: Vec<usize> = (0..bytes.len())
                    .filter(|at| is_left(at) && !security.contains(at))
                    .collect();
                assert!(left.is_empty(), "{tid}: bytes {left:?} of {bytes:02x?}");
            }
            assert!(compared > 20, "{compared} of {}", first.len());
            let longest = first.values().map(Vec::len).max();
            assert!(longest > Some(1000), "{longest:?}: all groups are more");
            for record in Record::each(&poisoned[0].records) {
                let mut at = size_of::<Header>();
                for attribute in record.attributes() {
                    let end = at + 8 + attribute.payload.len();
                    at = end.next_multiple_of(8);
                    let padding = &record.as_bytes()[end..at];
                    assert!(padding.iter().all(|&byte| byte == 0), "{attribute:02x?}");
                }
                assert_eq!(at, record.as_bytes().len());
            }
        }
    }
}
