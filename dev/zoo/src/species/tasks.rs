//! Names, threads, and the stages of life and death.

use std::io;
use std::sync::{mpsc, Arc, Barrier};
use std::thread;

use libc::pid_t;

use super::Species;
use crate::facts::Facts;
use crate::keeper::{fork_child, settle, Doing as _, Report};
use crate::sys;

pub(super) const NAMES: &[Species] = species! {
    "comm-parens": "named `a) (b`" => |_| named(b"a) (b");
    "comm-stat": "named like the middle of a stat line, `x) R 1 (`" => |_| named(b"x) R 1 (");
    "comm-newline": "a newline in the name" => |_| named(b"two\nlines");
    "comm-not-utf8": "a name that is no UTF-8" => |_| named(b"\xff\xfe\xc3(");
    "comm-backslash": "a backslash in the name, and what looks like an escape" => |_| named(b"a\\b\\n\\012");
    "comm-empty": "no name" => |_| named(b"");
    "comm-15": "a name of 15 bytes, the longest" => |_| named(b"fifteen-bytes-x");
    "comm-control": "terminal control sequences in the name" => |_| named(b"\x1b[31mred\x07\x08\t\r");
    "comm-spaces": "spaces around the name" => |_| named(b"  spaces  ");
};

pub(super) const SPECIES: &[Species] = species! {
    "threads-5": "5 threads, one with a name of its own" => |_| threads_5();
    "threads-500": "500 threads that have used the CPU, and 100 more that have ended" => |_| threads_500();
    "dead-leader": "first thread ended, 3 others live" => |_| dead_leader();
    "own-files": "one of 4 threads has directories and descriptors of its own" => |_| own_files(false);
    "own-files-dead-leader": "the same, and the first thread ended" => |_| own_files(true);
    "zombie": "exited, and its parent doesn't wait for it" => |_| zombie();
    "stopped": "stopped by SIGSTOP" => |_| stopped();
    "traced": "stopped by a tracer" => |_| traced();
    "vfork-parent": "waits in vfork for its child" => |_| vfork_parent();
    "memory-shared": "shares its memory with another process" => |_| memory_shared();
    "orphan-of-subreaper": "its parent exited, a subreaper adopted it" => |_| orphan_of_subreaper();
    "orphan-of-killed": "its parent was killed" => |_| orphan_of_killed();
    "family": "three children, one of them a zombie" => |_| family();
    "signals": "signals blocked, pending, ignored, caught" => |_| signals();
    "burner-parent": "has waited for children that used the CPU and faulted" => |_| burner_parent();
};

fn named(name: &[u8]) -> io::Result<Facts> {
    fork_child(|report| report.set_comm(name))
}

/// Starts `count` threads that run `work` and then sleep. Returns their ids when all have done so.
fn start_threads(count: usize, work: fn()) -> io::Result<Vec<pid_t>> {
    let (sender, receiver) = mpsc::channel();
    for _ in 0..count {
        let sender = sender.clone();
        thread::Builder::new().stack_size(64 << 10).spawn(move || {
            work();
            let sent = sender.send(sys::gettid());
            // Nothing is left to drop, so these threads never run again.
            drop(sender);
            if sent.is_ok() {
                sys::rest()
            }
        })?;
    }
    Ok(receiver.into_iter().take(count).collect())
}

/// Records the threads other than the calling one.
fn note_threads(report: &mut Report, mut others: Vec<pid_t>) {
    others.push(sys::getpid());
    others.sort_unstable();
    report.facts.threads_count = Some(others.len() as u64);
    report.facts.tids = Some(others);
}

fn threads_5() -> io::Result<Facts> {
    fork_child(|report| {
        let mut tids = start_threads(3, || {})?;
        tids.extend(start_threads(1, || drop(sys::set_comm(b"a) thread (")))?);
        note_threads(report, tids);
        Ok(())
    })
}

fn threads_500() -> io::Result<Facts> {
    const LIVE: usize = 500;
    const ENDED: usize = 100;
    const BURN_NS: u64 = 2_000_000;
    fork_child(|report| {
        let burn = || sys::burn_cpu(BURN_NS);
        // All of the threads exist at the same time before they end.
        let together = Arc::new(Barrier::new(ENDED));
        let ended: Vec<_> = (0..ENDED)
            .map(|_| {
                let together = Arc::clone(&together);
                thread::Builder::new().stack_size(64 << 10).spawn(move || {
                    together.wait();
                    burn();
                    sys::gettid()
                })
            })
            .collect::<io::Result<_>>()?;
        for thread in ended {
            let tid = thread.join().map_err(|_| io::Error::other("a thread panicked"))?;
            // A thread is joined a moment before it is gone.
            while std::path::Path::new(&format!("/proc/self/task/{tid}")).exists() {
                thread::yield_now();
            }
        }
        let tids = start_threads(LIVE, || sys::burn_cpu(BURN_NS))?;
        note_threads(report, tids);
        report.facts.thread_cpu_at_least_ns = Some(BURN_NS);
        report.facts.cpu_at_least_ns = Some((LIVE + ENDED) as u64 * BURN_NS);
        Ok(())
    })
}

fn dead_leader() -> io::Result<Facts> {
    let facts = fork_child(|report| {
        let tids = start_threads(3, || {})?;
        note_threads(report, tids);
        report.facts.state = Some('Z');
        report.ready()?;
        sys::exit_thread()
    })?;
    Ok(facts)
}

fn own_files(leader_ends: bool) -> io::Result<Facts> {
    fork_child(|report| {
        let mut tids = start_threads(2, || {})?;
        tids.extend(start_threads(1, || {
            // SAFETY: nothing of this thread is used by another.
            let is_alone = unsafe { libc::unshare(libc::CLONE_FS | libc::CLONE_FILES) } == 0;
            let opened = std::env::set_current_dir("/sys").and_then(|()| std::fs::File::open("/dev/zero"));
            if let (true, Ok(file)) = (is_alone, opened) {
                std::mem::forget(file);
                drop(sys::set_comm(b"alone"));
            }
        })?);
        note_threads(report, tids);
        if leader_ends {
            report.facts.state = Some('Z');
            report.ready()?;
            sys::exit_thread()
        }
        Ok(())
    })
}

/// A child that, after reporting its facts, ends otherwise than by resting.
fn child_that(end: impl FnOnce()) -> io::Result<Facts> {
    fork_child(|report| {
        report.ready()?;
        end();
        sys::rest()
    })
}

fn zombie() -> io::Result<Facts> {
    let facts = child_that(|| sys::exit(3))?;
    sys::wait_for_zombie(facts.pid)?;
    Ok(Facts {
        state: Some('Z'),
        ppid: Some(sys::getpid()),
        threads_count: Some(1),
        ..facts
    })
}

fn stopped() -> io::Result<Facts> {
    let facts = fork_child(|_| Ok(()))?;
    sys::kill(facts.pid, libc::SIGSTOP)?;
    sys::wait(facts.pid, libc::WUNTRACED)?;
    Ok(Facts {
        state: Some('T'),
        ..facts
    })
}

fn traced() -> io::Result<Facts> {
    let tracee = fork_child(|_| {
        // Only the Yama security module knows, and needs, this permission.
        let _ = sys::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0);
        Ok(())
    })?;
    settle(tracee.pid, 'S')?;
    let tracer = fork_child(|_| {
        sys::ptrace_seize(tracee.pid).doing("ptrace")?;
        sys::ptrace_interrupt(tracee.pid)?;
        sys::wait(tracee.pid, libc::__WALL).map(drop)
    })?;
    Ok(Facts {
        state: Some('t'),
        tracer_pid: Some(tracer.pid),
        ..tracee
    })
}

fn vfork_parent() -> io::Result<Facts> {
    fork_child(|report| {
        report.facts.pid = sys::getpid();
        report.facts.state = Some('D');
        // The parent stands still from here on, so its child can report in its place.
        let shared = &mut *report;
        sys::clone_sharing_memory(libc::CLONE_VFORK, move || {
            shared.facts.children = Some(vec![sys::getpid()]);
            shared.facts.memory_shared_with = Some(sys::getpid());
            shared.rest(Ok(()))
        })?;
        Err(io::Error::other("the vfork child ended"))
    })
}

fn memory_shared() -> io::Result<Facts> {
    fork_child(|report| {
        let child = sys::clone_sharing_memory(0, || {
            // Both processes share their memory (and one errno), so the child does as little as
            // possible.
            let _ = sys::die_with_parent();
            sys::rest()
        })?;
        settle(child, 'S')?;
        report.facts.children = Some(vec![child]);
        report.facts.memory_shared_with = Some(child);
        Ok(())
    })
}

/// Forks a grandchild through a child that `dies` at once. The grandchild reports after it has been
/// adopted.
fn orphan(report: &mut Report, dies: fn()) -> io::Result<()> {
    let grandparent = sys::getpid();
    if let Some(middle) = sys::fork()? {
        return sys::wait(middle, 0).map(drop);
    }
    let middle = sys::getpid();
    if sys::fork()?.is_some() {
        dies();
        sys::exit(1);
    }
    while sys::getppid() == middle {
        thread::yield_now();
    }
    report.facts.pid = sys::getpid();
    report.facts.ppid = Some(grandparent);
    report.rest(if sys::getppid() == grandparent {
        Ok(())
    } else {
        Err(io::Error::other("adopted by a stranger"))
    })
}

fn orphan_of_subreaper() -> io::Result<Facts> {
    fork_child(|report| {
        sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0)?;
        orphan(report, || sys::exit(0))?;
        // The orphan reports the facts. This process must remain as its parent and report nothing.
        sys::rest()
    })
}

fn orphan_of_killed() -> io::Result<Facts> {
    fork_child(|report| {
        sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0)?;
        orphan(report, || drop(sys::kill(sys::getpid(), libc::SIGKILL)))?;
        sys::rest()
    })
}

fn family() -> io::Result<Facts> {
    fork_child(|report| {
        let mut children = Vec::new();
        for _ in 0..2 {
            children.push(fork_child(|_| Ok(()))?.pid);
        }
        let zombie = child_that(|| sys::exit(0))?.pid;
        sys::wait_for_zombie(zombie)?;
        children.push(zombie);
        children.sort_unstable();
        report.facts.children = Some(children);
        Ok(())
    })
}

fn signals() -> io::Result<Facts> {
    let bit = |signal: i32| 1u64 << (signal - 1);
    fork_child(|report| {
        let (to_process, to_thread) = (libc::SIGUSR1, libc::SIGRTMIN() + 5);
        sys::block_signals(&[to_process, to_thread, libc::SIGCHLD])?;
        sys::catch_signal(libc::SIGHUP)?;
        sys::ignore_signal(libc::SIGUSR2)?;
        sys::kill(sys::getpid(), to_process)?;
        sys::kill_own_thread(to_thread)?;
        let (ignored, caught) = sys::signal_actions()?;
        report.facts.sig_blocked = Some(bit(to_process) | bit(to_thread) | bit(libc::SIGCHLD));
        report.facts.sig_shared_pending = Some(bit(to_process));
        report.facts.sig_pending = Some(bit(to_thread));
        report.facts.sig_ignored = Some(ignored);
        report.facts.sig_caught = Some(caught);
        Ok(())
    })
}

fn burner_parent() -> io::Result<Facts> {
    const CHILDREN: usize = 3;
    const BURN_NS: u64 = 40_000_000;
    const MEMORY: usize = 4 << 20;
    fork_child(|report| {
        for _ in 0..CHILDREN {
            let Some(child) = sys::fork()? else {
                let memory = sys::map(MEMORY, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None);
                if let Ok(at) = memory {
                    sys::touch(at, MEMORY, true);
                    sys::burn_cpu(BURN_NS);
                }
                sys::exit(memory.is_err().into())
            };
            sys::wait(child, 0)?;
        }
        let faults = sys::child_min_faults()?;
        let touched = (CHILDREN * MEMORY / sys::page_size()) as u64;
        if faults < touched {
            return Err(io::Error::other(format!("{faults} faults for {touched} pages")));
        }
        report.facts.child_min_faults = Some(faults);
        report.facts.child_cpu_at_least_ns = Some(CHILDREN as u64 * BURN_NS);
        Ok(())
    })
}
