//! Scheduling, sessions and terminals, and the score of the out-of-memory killer.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use rustix::thread::{sched_setaffinity, CpuSet};

use super::Species;
use crate::facts::Facts;
use crate::keeper::{fork_child, Doing as _, Report};
use crate::sys;

pub(super) const SPECIES: &[Species] = species! {
    "nice-7": "nice 7" => |_| fork_child(|report| nice(report, 7));
    "sched-fifo-10": "real-time scheduling, first in first out, priority 10" => |_| policy(libc::SCHED_FIFO, 10);
    "sched-rr-3": "real-time scheduling, round robin, priority 3" => |_| policy(libc::SCHED_RR, 3);
    "sched-batch": "batch scheduling" => |_| policy(libc::SCHED_BATCH, 0);
    "sched-idle": "idle scheduling" => |_| policy(libc::SCHED_IDLE, 0);
    "affinity-cpu-0": "may run on processor 0 only" => |_| fork_child(affinity);
    "session-leader": "leads a session and a process group" => |_| fork_child(session_leader);
    "group-member": "in a process group whose leader is another process" => |_| group_member();
    "terminal": "has a controlling terminal; its child is the foreground process group" => |_| fork_child(terminal);
    "logged-in": "has a login uid and an audit session" => |_| fork_child(|report| {
        report.facts.loginuid = Some(1000);
        fs::write("/proc/self/loginuid", "1000").doing("writing loginuid")
    });
    "oom-score-adj-500": "oom_score_adj 500" => |_| fork_child(|report| oom_score_adj(report, 500));
    "oom-score-adj-minus-1000": "oom_score_adj -1000" => |_| fork_child(|report| oom_score_adj(report, -1000));
};

fn nice(report: &mut Report, nice: i32) -> io::Result<()> {
    report.facts.nice = Some(nice);
    sys::set_nice(nice)
}

fn policy(policy: i32, rt_priority: i32) -> io::Result<Facts> {
    fork_child(|report| {
        report.facts.policy = Some(policy as u32);
        report.facts.rt_priority = Some(rt_priority as u32);
        sys::set_scheduler(0, policy, rt_priority).doing("sched_setscheduler")
    })
}

fn affinity(report: &mut Report) -> io::Result<()> {
    report.facts.affinity = Some(vec![0]);
    let mut processors = CpuSet::new();
    processors.set(0);
    Ok(sched_setaffinity(None, &processors)?)
}

fn session_leader(report: &mut Report) -> io::Result<()> {
    let pid = sys::getpid();
    report.facts.sid = Some(pid);
    report.facts.pgid = Some(pid);
    report.facts.tty_nr = Some(0);
    report.facts.tpgid = Some(-1);
    sys::setsid()
}

fn group_member() -> io::Result<Facts> {
    let leader = fork_child(|_| sys::setpgid(0, 0))?.pid;
    fork_child(|report| {
        report.facts.pgid = Some(leader);
        sys::setpgid(0, leader)
    })
}

fn terminal(report: &mut Report) -> io::Result<()> {
    let open = |path: &str| {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(path);
        file.doing(&format!("opening {path}"))
    };
    let master = open("/dev/ptmx")?;
    sys::unlock_pty(master.as_raw_fd())?;
    let slave = open(&format!("/dev/pts/{}", sys::pty_number(master.as_raw_fd())?))?;
    session_leader(report)?;
    sys::set_controlling_tty(slave.as_raw_fd()).doing("TIOCSCTTY")?;
    let child = fork_child(|_| sys::setpgid(0, 0))?.pid;
    sys::set_foreground_group(slave.as_raw_fd(), child).doing("tcsetpgrp")?;
    let (major, minor) = (
        libc::major(slave.metadata()?.rdev()),
        libc::minor(slave.metadata()?.rdev()),
    );
    // The kernel's new_encode_dev().
    report.facts.tty_nr = Some(((minor & 0xff) | major << 8 | (minor & !0xff) << 12) as i32);
    report.facts.tpgid = Some(child);
    report.facts.children = Some(vec![child]);
    // A terminal whose master is closed hangs up.
    std::mem::forget(master);
    Ok(())
}

fn oom_score_adj(report: &mut Report, value: i32) -> io::Result<()> {
    report.facts.oom_score_adj = Some(value);
    fs::write("/proc/self/oom_score_adj", value.to_string()).doing("writing oom_score_adj")
}
