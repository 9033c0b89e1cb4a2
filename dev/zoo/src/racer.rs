//! Processes that repeat one action, to race with whoever reads them.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::helper::Helper;
use crate::keeper::{environment, fork_child, keep_all, Doing as _, Report};
use crate::sys::{self, page_size};
use crate::Role;

/// The action of racers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Race {
    /// Two processes, each in its own network namespace, repeatedly enter a new UTS namespace.
    Unshares,
    /// In two processes, threads that are not the leader repeatedly execute the program.
    Execs,
    /// Two threads of a process use the processor, in kernel mode and in user mode.
    Computes,
    /// Two threads of a process map, use and unmap memory. The process always has [`Race::HELD`]
    /// bytes in addition.
    Faults,
    /// The first thread of a process has ended. Each other thread starts the next one, and ends a
    /// millisecond later. The process has [`Race::DESCRIPTORS`] more descriptors than it started
    /// with, and maps a file.
    Relays,
}

impl Race {
    /// How many descriptors a process of [`Relays`](Race::Relays) has opened.
    pub const DESCRIPTORS: usize = 40;

    /// How much memory a process of [`Faults`](Race::Faults) has at all times.
    pub const HELD: u64 = 16 << 20;
}

/// Running racers, until this is dropped.
#[derive(Debug)]
pub struct Racers {
    pids: Vec<i32>,
    _helper: Helper,
}

impl Racers {
    /// Starts them, and returns when they are running.
    pub fn start(race: Race) -> io::Result<Racers> {
        let name = format!("{race:?}");
        let (helper, facts) = Helper::start(&name, &Role::Racers(race), &["racers", &name])?;
        Ok(Racers {
            pids: facts.children.unwrap_or_default(),
            _helper: helper,
        })
    }

    /// The processes.
    pub fn pids(&self) -> &[i32] {
        &self.pids
    }
}

pub(crate) fn run(race: Race) -> ! {
    keep_all(start(race))
}

fn start(race: Race) -> io::Result<Vec<i32>> {
    sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0)?;
    let (count, body): (_, fn(&mut Report) -> io::Result<()>) = match race {
        Race::Unshares => (2, unshares),
        Race::Execs => (2, execs),
        Race::Computes => (1, compute_racer),
        Race::Faults => (1, fault_racer),
        Race::Relays => (1, relay_racer),
    };
    let racer = |_| fork_child(body).map(|Facts { pid, .. }| pid);
    (0..count).map(racer).collect()
}

fn unshares(report: &mut Report) -> io::Result<()> {
    sys::unshare(libc::CLONE_NEWNET).doing("unshare network namespace")?;
    report.ready()?;
    loop {
        sys::unshare(libc::CLONE_NEWUTS)?;
    }
}

fn execs(report: &mut Report) -> io::Result<()> {
    report.ready()?;
    Err(exec_again())
}

/// What such a process does after it has been executed.
pub(crate) fn exec_in_a_thread() -> ! {
    let executing = thread::Builder::new().stack_size(64 << 10).spawn(exec_again);
    let _ = executing.map(thread::JoinHandle::join);
    sys::exit(1)
}

/// Returns only if it failed.
fn exec_again() -> io::Error {
    // The thread that executes takes the place of the leader.
    if let Err(error) = sys::die_with_parent() {
        return error;
    }
    let path = CString::from(c"/proc/self/exe");
    let args = [b"zoo".to_vec(), b"racer".to_vec()];
    sys::exec(&path, &args, &environment(&Role::Executor, &[]))
}

fn compute_racer(report: &mut Report) -> io::Result<()> {
    thread::Builder::new().spawn(compute_forever)?;
    report.ready()?;
    compute_forever()
}

fn compute_forever() -> io::Result<()> {
    loop {
        sys::burn_cpu(100_000);
        for _ in 0..100 {
            thread::yield_now();
        }
    }
}

const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

fn fault_racer(report: &mut Report) -> io::Result<()> {
    let held = Race::HELD as usize;
    sys::touch(sys::map(held, ANONYMOUS, None)?, held, true);
    thread::Builder::new().spawn(fault_forever)?;
    report.ready()?;
    fault_forever()
}

fn relay_racer(report: &mut Report) -> io::Result<()> {
    let files: io::Result<Vec<File>> = (0..Race::DESCRIPTORS).map(|_| File::open("/proc/self/exe")).collect();
    std::mem::forget(files?);
    relay_forever()?;
    report.ready()?;
    sys::exit_thread()
}

fn relay_forever() -> io::Result<()> {
    let next = || {
        thread::sleep(Duration::from_millis(1));
        // Nobody is left who could be told.
        let _ = relay_forever();
    };
    thread::Builder::new().stack_size(64 << 10).spawn(next).map(drop)
}

fn fault_forever() -> io::Result<()> {
    const PAGES: usize = 64;
    loop {
        let at = sys::map(PAGES * page_size(), ANONYMOUS, None)?;
        sys::touch(at, PAGES * page_size(), true);
        sys::unmap(at, PAGES * page_size())?;
    }
}
