//! Walks: passes in which the BPF program finds the tasks itself, in the kernel's IDR of pid
//! numbers.

use std::mem::offset_of;
use std::os::fd::BorrowedFd;

use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::record::walk::{state, Arrays, Config, Position, LISTED};
use taskdiag_core::snapshot::{Indexer, Snapshot};
use taskdiag_sys::bpf::SharedMemory;
use taskdiag_sys::host;
use zerocopy::IntoBytes;

use crate::iterator;
use crate::reader::BEFORE_SCRATCH;

/// The offset of `scratch` in `struct td_reader` of a program that walks.
pub const SCRATCH: usize = BEFORE_SCRATCH;
const SCRATCH_SIZE: usize = (512 << 10) + 8192;
const PATH_AND_NAME_SIZE: usize = 1024 + 256 + 256;
/// The offset of `walk` there.
pub const POSITION: usize = SCRATCH + SCRATCH_SIZE + PATH_AND_NAME_SIZE;
/// The offset of `walk.list` there.
pub const LIST: usize = POSITION + size_of::<Position>() + offset_of!(Arrays, list);
/// The size of that structure.
pub const READER_SIZE: u32 = (POSITION + size_of::<Position>() + size_of::<Arrays>()) as u32;

/// How long one run may keep RCU waiting, in nanoseconds. After such a short run, the records are
/// still in the processor's cache when they are fetched.
const MAX_RUN_NS: u64 = 400_000;

/// The number of steps between two looks at the clock. A visit takes one step or more.
const CHECK_EVERY: u32 = 64;

/// How often a walk that got lost starts again.
const ATTEMPTS: u32 = 16;

/// Whether this kernel may support walks (Linux 6.2).
pub fn is_possible() -> bool {
    host::kernel_version().is_some_and(|version| version >= (6, 2))
}

/// A program that walks, accessed through the memory that it shares with this process: its
/// `td_reader`.
#[derive(Debug)]
pub struct Walk {
    memory: SharedMemory,
    max_run_ns: u64,
    check_every: u32,
}

impl Walk {
    /// A program that has this memory.
    pub fn new(memory: SharedMemory) -> Walk {
        Walk {
            memory,
            max_run_ns: MAX_RUN_NS,
            check_every: CHECK_EVERY,
        }
    }

    /// Sets what the program reads about tasks.
    pub fn configure(&mut self, config: Config) {
        self.write(0, config);
    }

    /// Whether the program can read this kernel's IDR.
    pub fn finds_tasks(&mut self, link: BorrowedFd<'_>) -> Result<bool> {
        self.begin(&[rustix::process::getpid().as_raw_nonzero().get() as u32]);
        Ok(self.run_once(link)?.state == state::ENDED)
    }

    /// Visits the processes in `pids`, or all if it is empty, and appends their records and rows to
    /// `snapshot`. Ends early once `snapshot` has at least `most` rows.
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
                snapshot.rewind(before);
            }
            Err(Error::new(
                ErrorKind::System,
                "threads end faster than BPF can visit them; use the source procfs",
            ))
        })
    }

    /// Makes one walk. False if it got lost: the thread after which to continue has ended.
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
            snapshot.counters.count_read();
            let counters = &mut snapshot.counters;
            counters.gone += u64::from(position.gone);
            counters.longest_run_ns = counters.longest_run_ns.max(Some(position.longest_run_ns));
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
        for (offset, &pid) in (LIST..).step_by(size_of::<u32>()).zip(listed) {
            self.write(offset, pid);
        }
        let start = Position {
            listed: listed.len() as u32,
            check_every: self.check_every,
            max_run_ns: self.max_run_ns,
            ..Position::default()
        };
        self.write(POSITION, start);
    }

    /// Runs the program once: reads an iterator over a single task to its end, where the program
    /// runs.
    fn run_once(&mut self, link: BorrowedFd<'_>) -> Result<Position> {
        iterator::run_at_end(link)?;
        Ok(self.position())
    }

    /// Copies the records of the last run to the snapshot.
    fn fetch(&self, position: Position, snapshot: &mut Snapshot) -> Result<()> {
        let filled = SCRATCH..SCRATCH + (position.filled as usize).min(SCRATCH_SIZE);
        // SAFETY: only our program writes there, and it runs only in run_once().
        let fresh = unsafe { self.memory.bytes(filled) }.expect(LAID_OUT);
        let (records, mut indexer) = Indexer::split(snapshot);
        let offset = records.len();
        records.extend_from_slice(fresh);
        indexer.index(fresh, offset)
    }

    fn position(&self) -> Position {
        self.memory.read(POSITION).expect(LAID_OUT)
    }

    fn write<T: IntoBytes>(&mut self, offset: usize, value: T) {
        self.memory.write(offset, value).expect(LAID_OUT);
    }
}

const LAID_OUT: &str = "all offsets are aligned and less than READER_SIZE, the size of the memory";

fn malformed(state: u32) -> Error {
    Error::new(
        ErrorKind::Malformed,
        format!("the BPF program that finds tasks stopped in state {state}; use the source procfs"),
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

    use super::*;
    use crate::pass::tests::WalkingProgram;

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

    /// Check that a walk in many short runs finds each process that exists throughout it, in order
    /// and once.
    #[test]
    fn pauses_lose_nothing() {
        let mut program = WalkingProgram::load(Groups::NONE);
        let sleepers = Sleepers::start(100);
        for (max_run_ns, check_every) in [(0, 1), (0, 7), (0, CHECK_EVERY), (MAX_RUN_NS, CHECK_EVERY)] {
            let (walk, _) = program.walk();
            (walk.max_run_ns, walk.check_every) = (max_run_ns, check_every);
            let snapshot = program.pass(Scope::Processes, &[], Groups::NONE);
            let found = pids(&snapshot);
            assert!(
                found.is_sorted_by(|one, next| one < next),
                "{max_run_ns} {check_every} {found:?}"
            );
            for child in &sleepers.0 {
                assert!(found.contains(&child.id()), "{} {max_run_ns} {check_every}", child.id());
            }
            if max_run_ns == 0 {
                assert!(snapshot.counters.reads >= Some(100 / u64::from(check_every)));
            }
        }
    }

    /// Check that more processes can be listed than fit into one walk, and that missing ones have
    /// no records.
    #[test]
    fn lists_can_be_long() {
        let mut program = WalkingProgram::load(Groups::NONE);
        let own = process::id();
        let mut listed: Vec<u32> = (0x3fff_0000..).take(LISTED * 2).collect();
        listed.insert(LISTED + 7, own);
        assert_eq!(pids(&program.pass(Scope::Processes, &listed, Groups::NONE)), [own]);
    }

    /// Check that a walk over threads gets lost if the thread after which to continue is gone.
    #[test]
    fn walks_get_lost() {
        let mut program = WalkingProgram::load(Groups::NONE);
        let all = program.pass(Scope::ThreadsOf(process::id()), &[], Groups::NONE);
        assert!(pids(&all).iter().all(|&pid| pid == process::id()) && !all.is_empty());

        let (walk, link) = program.walk();
        walk.begin(&[process::id()]);
        let gone = Position {
            check_every: CHECK_EVERY,
            max_run_ns: MAX_RUN_NS,
            listed: 1,
            cursor: 0x3fff_ffff,
            ..Position::default()
        };
        walk.write(POSITION, gone);
        let position = walk.run_once(link).unwrap();
        assert_eq!((position.state, position.filled), (state::LOST, 0));
    }

    /// Check that the program writes all bytes of records: none is left from its memory.
    #[test]
    fn records_have_no_stale_bytes() {
        let groups = Groups::ALL.or(Groups::ACCESS).or(Groups::VIEW);
        let mut program = WalkingProgram::load(groups);
        let _sleepers = Sleepers::start(20);
        // With this many, no changing value takes all of them in turn.
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
                // The kernel's memory after the security data of a task can hold anything, even
                // this test's bytes. The broker looks at it, and never sends it.
                let (record, _) = Record::split_first(bytes).unwrap();
                let views = record.attributes().filter(|attribute| attribute.kind == attr::VIEW);
                let security = views.flat_map(|view| {
                    let start = view.payload.as_ptr_range().start as usize - bytes.as_ptr() as usize;
                    start + offset_of!(View, security)..start + size_of::<View>()
                });
                let security: Vec<usize> = security.collect();
                let is_stale = |at: &usize| {
                    bytes[*at] == POISONS[0]
                        && others
                            .iter()
                            .zip(&POISONS[1..])
                            .all(|(other, poison)| other[*at] == *poison)
                };
                let stale: Vec<usize> = (0..bytes.len())
                    .filter(|at| is_stale(at) && !security.contains(at))
                    .collect();
                assert!(stale.is_empty(), "{tid}: bytes {stale:?} of {bytes:02x?}");
            }
            assert!(compared > 20, "{compared} of {}", first.len());
            let longest = first.values().map(Vec::len).max();
            assert!(longest > Some(1000), "{longest:?}: all groups need more bytes");
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
