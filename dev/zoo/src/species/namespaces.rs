//! Animals in their own namespaces.

use std::fs;
use std::io;

use super::Species;
use crate::facts::Facts;
use crate::keeper::{fork_child, only_child_of, settle, Doing as _};
use crate::sys;

pub(super) const SPECIES: &[Species] = species! {
    "pid-namespace": "first process of a pid namespace, with a child in it" => |_| pid_namespace(false);
    "pid-namespace-child": "second process of a pid namespace" => |_| pid_namespace(true);
    "pid-namespace-deep": "in the third of three nested pid namespaces" => |_| pid_namespace_deep();
    "user-namespace": "root of a user namespace that maps ids from 100000 on" => |_| user_namespace();
    "all-namespaces": "in its own namespace of every kind" => |_| all_namespaces();
    "time-namespace": "its clock of time since boot is a day and a second ahead" => |_| time_namespace();
};

/// The user and group outside to which id 0 of a namespace maps, if root makes the namespace.
const FIRST_ID: u32 = 100_000;

fn names(names: &[&str]) -> Option<Vec<Vec<u8>>> {
    Some(names.iter().map(|name| name.as_bytes().to_vec()).collect())
}

fn pid_namespace(child_wanted: bool) -> io::Result<Facts> {
    fork_child(|report| {
        sys::unshare(libc::CLONE_NEWPID).doing("unshare pid namespace")?;
        let first = fork_child(|_| fork_child(|_| Ok(())).map(drop))?.pid;
        let child = only_child_of(first)?;
        report.facts.own_namespaces = names(&["pid", "pid_for_children"]);
        if child_wanted {
            report.facts.pid = child;
            report.facts.nspids = Some(vec![child, 2]);
            report.facts.ppid = Some(first);
        } else {
            report.facts.pid = first;
            report.facts.nspids = Some(vec![first, 1]);
            report.facts.ppid = Some(sys::getpid());
            report.facts.children = Some(vec![child]);
        }
        settle(child, 'S')
    })
}

fn pid_namespace_deep() -> io::Result<Facts> {
    fork_child(|report| {
        let unshare = || sys::unshare(libc::CLONE_NEWPID).doing("unshare pid namespace");
        unshare()?;
        let first = fork_child(|_| {
            unshare()?;
            fork_child(|_| {
                unshare()?;
                fork_child(|_| Ok(())).map(drop)
            })
            .map(drop)
        })?
        .pid;
        let second = only_child_of(first)?;
        let third = only_child_of(second)?;
        report.facts.pid = third;
        report.facts.ppid = Some(second);
        report.facts.nspids = Some(vec![third, 3, 2, 1]);
        report.facts.own_namespaces = names(&["pid", "pid_for_children"]);
        Ok(())
    })
}

/// Moves into a new user namespace (and others) as its root. If it is root outside, it can map a
/// whole range of ids.
fn enter_user_namespace(other_flags: i32) -> io::Result<()> {
    let flags = libc::CLONE_NEWUSER | other_flags;
    if sys::geteuid() != 0 {
        let uid = sys::geteuid();
        sys::unshare(flags).doing("unshare user namespace")?;
        return fs::write("/proc/self/uid_map", format!("0 {uid} 1")).doing("writing uid_map");
    }
    // Only a process outside may map more than one id: a child made beforehand.
    let animal = sys::getpid();
    let (go_read, go_write) = sys::pipe()?;
    let Some(mapper) = sys::fork()? else {
        drop(go_write);
        let map = |file: &str| fs::write(format!("/proc/{animal}/{file}"), format!("0 {FIRST_ID} 65536"));
        let go = io::Read::read_exact(&mut &go_read, &mut [0]);
        let result = go.and_then(|()| map("uid_map")).and_then(|()| map("gid_map"));
        sys::exit(result.is_err().into())
    };
    drop(go_read);
    sys::unshare(flags).doing("unshare user namespace")?;
    io::Write::write_all(&mut &go_write, &[0])?;
    sys::wait(mapper, 0)?;
    // If the mapper failed, no id is mapped yet: then this fails and says why.
    sys::set_groups(&[]).doing("no groups in the user namespace")?;
    sys::setresgid(0, 0, 0).doing("becoming group 0 of the user namespace")?;
    sys::setresuid(0, 0, 0).doing("becoming user 0 of the user namespace")
}

/// The ids outside of such a process.
fn ids_outside() -> Option<Vec<u32>> {
    let uid = sys::geteuid();
    Some(vec![if uid == 0 { FIRST_ID } else { uid }; 4])
}

fn user_namespace() -> io::Result<Facts> {
    let mut facts = fork_child(|_| enter_user_namespace(0))?;
    facts.own_namespaces = names(&["user"]);
    facts.uids = ids_outside();
    Ok(facts)
}

fn all_namespaces() -> io::Result<Facts> {
    const CLONE_NEWTIME: i32 = 0x80;
    let mut facts = fork_child(|report| {
        enter_user_namespace(
            libc::CLONE_NEWPID
                | libc::CLONE_NEWNS
                | libc::CLONE_NEWUTS
                | libc::CLONE_NEWIPC
                | libc::CLONE_NEWNET
                | libc::CLONE_NEWCGROUP
                | CLONE_NEWTIME,
        )?;
        // Only children enter the pid and the time namespace.
        let child = fork_child(|_| Ok(()))?;
        report.facts.pid = child.pid;
        report.facts.nspids = Some(vec![child.pid, 1]);
        Ok(())
    })?;
    facts.uids = ids_outside();
    facts.own_namespaces = names(&[
        "cgroup",
        "ipc",
        "mnt",
        "net",
        "pid",
        "pid_for_children",
        "time",
        "time_for_children",
        "user",
        "uts",
    ]);
    Ok(facts)
}

fn time_namespace() -> io::Result<Facts> {
    const CLONE_NEWTIME: i32 = 0x80;
    const AHEAD_S: i64 = 86_401;
    fork_child(|report| {
        sys::unshare(CLONE_NEWTIME).doing("unshare time namespace")?;
        fs::write("/proc/self/timens_offsets", format!("boottime {AHEAD_S} 0\n")).doing("writing timens_offsets")?;
        report.facts = fork_child(|_| Ok(()))?;
        report.facts.boottime_offset_s = Some(AHEAD_S);
        report.facts.own_namespaces = names(&["time", "time_for_children"]);
        Ok(())
    })
}
