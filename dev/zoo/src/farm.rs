//! Many idle processes.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use rustix::process::Resource;

use crate::arg_area::ArgArea;
use crate::helper::Helper;
use crate::keeper::{keep_all, settle, Doing as _};
use crate::sys;
use crate::Role;

/// Many idle processes, each with the command line `zoo farm --index NNNNNNN`. If started by root,
/// one in a hundred belongs to the user [`Farm::OTHER_USER`]. Dropping the farm ends them all.
#[derive(Debug)]
pub struct Farm {
    pids: Vec<i32>,
    _helper: Helper,
}

impl Farm {
    /// The user of one process in a hundred.
    pub const OTHER_USER: u32 = 54_321;

    /// Starts `processes` processes with `threads_each` threads each (including the leader; 0
    /// counts as 1), and returns when all of them sleep.
    ///
    /// If kernel.pid_max, kernel.threads-max or vm.max_map_count is too low it raises the limit,
    /// which needs root, and leaves it raised, because another farm may need it.
    pub fn start(processes: usize, threads_each: usize) -> io::Result<Farm> {
        let role = Role::Farm(processes, threads_each.max(1));
        let (helper, facts) = Helper::start("farm", &role, &["farm", "--index", "-------"])?;
        let pids = facts.children.unwrap_or_default();
        if pids.len() != processes {
            return Err(io::Error::other(format!(
                "farm: {} processes instead of {processes}",
                pids.len()
            )));
        }
        Ok(Farm { pids, _helper: helper })
    }

    /// The processes in the order of their `--index`.
    pub fn pids(&self) -> &[i32] {
        &self.pids
    }
}

/// Ensures that a kernel-wide limit leaves room for `more` tasks.
fn make_room(sysctl: &str, more: usize) -> io::Result<()> {
    // Ids and threads that are in use, and some spare ones for everybody else.
    const SPARE: usize = 4096;
    let present = fs::read_to_string("/proc/loadavg")?;
    let present = present
        .split(['/', ' '])
        .nth(4)
        .and_then(|tasks| tasks.parse().ok())
        .unwrap_or(0);
    raise("kernel", sysctl, present + more + SPARE)
}

/// Raises a kernel-wide limit to `wanted` if it is lower.
fn raise(family: &str, sysctl: &str, wanted: usize) -> io::Result<()> {
    let path = format!("/proc/sys/{family}/{sysctl}");
    let now = fs::read_to_string(&path).doing(&format!("reading {path}"))?;
    if now.trim().parse::<usize>().is_ok_and(|limit| limit >= wanted) {
        return Ok(());
    }
    fs::write(&path, wanted.to_string()).doing(&format!("raising {family}.{sysctl} to {wanted}"))
}

/// The root process of the farm. It forks some branches, and each branch forks its share. All
/// processors take part in this tree.
pub(crate) fn run(processes: usize, threads_each: usize) -> ! {
    keep_all(grow(processes, threads_each))
}

fn grow(processes: usize, threads_each: usize) -> io::Result<Vec<i32>> {
    make_room("pid_max", processes * threads_each)?;
    make_room("threads-max", processes * threads_each)?;
    // A thread has two stacks, one of them for signals, each preceded by a guard page.
    raise("vm", "max_map_count", threads_each * 4 + 1000)?;
    sys::raise_limit(Resource::Nproc, (processes * threads_each + 4096) as u64)?;
    sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0)?;
    let farm = Field {
        pids: shared_numbers(processes)?,
        threads_each,
        done: sys::pipe()?,
    };
    let branches = processes.isqrt();
    for branch in 0..branches {
        let (from, to) = (processes * branch / branches, processes * (branch + 1) / branches);
        if sys::fork().doing("fork")?.is_none() {
            farm.plant(from, to)
        }
    }
    let mut done = vec![0; processes];
    let Field {
        pids,
        done: (mut reader, writer),
        ..
    } = farm;
    drop(writer);
    let mut read = 0;
    while read < processes {
        let got = reader.read(&mut done[read..])?;
        if let Some(&errno) = done[read..read + got].iter().find(|&&errno| errno != 0) {
            return Err(io::Error::from_raw_os_error(errno.into())).doing("starting a farm process");
        }
        if got == 0 {
            return Err(io::Error::other("a farm process was killed"));
        }
        read += got;
    }
    let pids: Vec<i32> = pids.iter().map(|pid| pid.load(Ordering::Relaxed)).collect();
    for &pid in &pids {
        settle(pid, 'S')?;
    }
    Ok(pids)
}

/// Numbers that all processes forked from now on share with this one.
fn shared_numbers(count: usize) -> io::Result<&'static [AtomicI32]> {
    let len = (count * size_of::<AtomicI32>()).max(1);
    let at = sys::map(len, libc::MAP_SHARED | libc::MAP_ANONYMOUS, None)?;
    // SAFETY: zeroed, aligned to a page, never unmapped, and only ever used as these atomics.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), count) })
}

/// Shared by all processes of the farm.
struct Field {
    pids: &'static [AtomicI32],
    threads_each: usize,
    /// Each process writes one byte here when it is done: 0, or an errno.
    done: (fs::File, fs::File),
}

impl Field {
    /// The life of a branch: it is process `from` itself, and forks the others up to `to`.
    fn plant(&self, from: usize, to: usize) -> ! {
        let _ = sys::die_with_parent();
        for index in from + 1..to {
            match sys::fork() {
                Ok(Some(_)) => {}
                Ok(None) => {
                    let _ = sys::die_with_parent();
                    self.live(index)
                }
                Err(error) => self.tell(Err(error)),
            }
        }
        self.live(from)
    }

    fn live(&self, index: usize) -> ! {
        self.pids[index].store(sys::getpid(), Ordering::Relaxed);
        self.tell(self.prepare(index));
        sys::rest()
    }

    fn tell(&self, result: io::Result<()>) {
        let errno = result
            .err()
            .map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO) as u8);
        let _ = (&self.done.1).write_all(&[errno]);
    }

    fn prepare(&self, index: usize) -> io::Result<()> {
        let area = ArgArea::of_this_process()?;
        // SAFETY: farm processes never look at their arguments or environment.
        let args = &mut unsafe { area.bytes() }[..area.arg_end - area.arg_start];
        // The last argument is seven dashes and a NUL.
        let at = args.len() - 8;
        args[at..at + 7].copy_from_slice(format!("{index:07}").as_bytes());
        for _ in 1..self.threads_each {
            thread::Builder::new().stack_size(16 << 10).spawn(|| sys::rest())?;
        }
        if index % 100 == 99 && sys::geteuid() == 0 {
            let user = Farm::OTHER_USER;
            sys::setresuid(user, user, user)?;
            // A change of credentials undoes this.
            sys::die_with_parent()?;
        }
        Ok(())
    }
}
