//! Sends signals and sets nice values, for the selected process or thread and no other.

use std::os::fd::AsFd as _;

use rustix::io::Errno;
use rustix::process::{pidfd_open, setpriority_process, Pid, PidfdFlags};
use taskdiag::{Field, Filter, Query};
use taskdiag_sys::signals;

use super::rows::Target;
use crate::proc;

/// Sends a signal to the process. The descriptor is opened before the check, so that a process that
/// gets the same id later is not hit.
pub fn send(target: &Target, number: u32) -> Result<(), String> {
    proc::chosen()
        .check_ids("no signal")
        .map_err(|error| error.to_string())?;
    let pid = pid(target.pid)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(said)?;
    check(target)?;
    signals::send(process.as_fd(), number as i32, None).map_err(said)
}

/// Changes the nice value of the thread; for a process, that of its leader, like renice(1). No such
/// system call takes a descriptor, so the check can only be made before.
pub fn renice(target: &Target, nice: i32) -> Result<(), String> {
    proc::chosen()
        .check_ids("no nice value")
        .map_err(|error| error.to_string())?;
    let thread = pid(target.tid)?;
    check(target)?;
    setpriority_process(Some(thread), nice).map_err(|errno| match errno {
        Errno::ACCESS => "you may not lower nice values (CAP_SYS_NICE may)".to_owned(),
        errno => said(errno),
    })
}

fn pid(number: u32) -> Result<Pid, String> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| "it is not a process of this pid namespace".to_owned())
}

fn said(errno: Errno) -> String {
    match errno {
        Errno::SRCH => "it has ended".to_owned(),
        Errno::PERM => "you may not".to_owned(),
        errno => errno.to_string(),
    }
}

/// Fails if the id belongs to another task by now. One that started in the same tick has, at least,
/// the same name; those of kernel threads change with their work.
pub fn check(target: &Target) -> Result<(), String> {
    let query = if target.tid == target.pid {
        Query::these([target.pid])
    } else {
        Query::threads_of_these([target.pid]).filter(Filter::one_of(Field::Tid, &[target.tid]))
    };
    let snapshot = proc::handle()
        .one_shot()
        .query(&query.fields(Field::StartNs | Field::Comm | Field::KernelThread))
        .map_err(|error| format!("{error:#}"))?;
    let mut tasks = snapshot.tasks();
    let task = tasks.find(|task| task.identity() == Ok(target.identity));
    let task = task.ok_or_else(|| said(Errno::SRCH))?;
    if task.comm() == Ok(target.name.as_slice()) || task.kernel_thread() == Ok(true) {
        Ok(())
    } else {
        Err("it has another name by now: select it again".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::getpriority_process;

    use super::*;
    use taskdiag::Handle;

    fn sleeper() -> (Child, Target) {
        let child = Command::new("sleep").arg("1000").spawn().expect("sleep exists");
        let snapshot = Handle::new().query(&Query::process(child.id()).fields(Field::StartNs));
        let target = Target {
            pid: child.id(),
            tid: child.id(),
            identity: snapshot.expect("an answer").task(0).identity().expect("a start time"),
            name: b"sleep".to_vec(),
            user: Vec::new(),
            nice: None,
        };
        (child, target)
    }

    /// Check that actions reach the selected process, and not another process with the same id.
    #[test]
    fn only_the_one_that_is_meant() {
        let (mut child, target) = sleeper();
        let (mut other, another) = sleeper();
        let wrong = Target {
            identity: another.identity,
            ..target.clone()
        };
        let ended = Err("it has ended".to_owned());
        assert_eq!((send(&wrong, 15), renice(&wrong, 19)), (ended.clone(), ended.clone()));
        assert_eq!(renice(&target, 7), Ok(()));
        assert_eq!(getpriority_process(Some(Pid::from_child(&child))), Ok(7));
        assert!(child.try_wait().expect("a child").is_none());
        assert_eq!(send(&target, 15), Ok(()));
        child.wait().expect("it ends");
        assert_eq!((send(&target, 15), renice(&target, 7)), (ended.clone(), ended));
        let renamed = Target {
            name: b"slept".to_vec(),
            ..another
        };
        assert!(send(&renamed, 15).is_err_and(|said| said.contains("another name")));
        assert_eq!(other.try_wait().expect("a child"), None);
        other.kill().expect("it is ours");
        other.wait().expect("it ends");
    }
}
