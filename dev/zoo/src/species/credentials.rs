//! Users, groups, capabilities and confinement.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{chown, PermissionsExt as _};

use rustix::thread::{
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities, CapabilitySet,
    CapabilitySets,
};

use super::Species;
use crate::facts::Facts;
use crate::keeper::{exec, fork_child, Doing as _, Keeper, Report};
use crate::sys;

pub(super) const SPECIES: &[Species] = species! {
    "ids-all-different": "real, effective, saved and file system ids all differ" => |_| fork_child(all_ids_different);
    "user-65534": "run as user and group 65534" => |_| fork_child(nobody);
    "groups-0": "no supplementary groups" => |_| fork_child(|report| groups(report, 0));
    "groups-3": "3 supplementary groups" => |_| fork_child(|report| groups(report, 3));
    "groups-100": "100 supplementary groups" => |_| fork_child(|report| groups(report, 100));
    "capabilities": "each of its five capability sets is another one" => |_| fork_child(capabilities);
    "no-new-privs": "no_new_privs is set" => |_| fork_child(no_new_privs);
    "seccomp-filter": "confined by a seccomp filter" => |_| fork_child(seccomp_filter);
    "undumpable": "not dumpable" => |_| fork_child(undumpable);
    "set-uid": "run by a user with the rights of another, its executable's owner" => set_uid;
};

fn all_ids_different(report: &mut Report) -> io::Result<()> {
    const SECBIT_NO_SETUID_FIXUP: u64 = 1 << 2;
    // This keeps the capabilities for the last step.
    sys::prctl(libc::PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0).doing("keeping capabilities")?;
    sys::setresgid(2001, 2002, 2003)?;
    sys::setresuid(1001, 1002, 1003)?;
    sys::set_fs_ids(1004, 2004).doing("file system ids")?;
    report.facts.uids = Some(vec![1001, 1002, 1003, 1004]);
    report.facts.gids = Some(vec![2001, 2002, 2003, 2004]);
    Ok(())
}

/// Becomes a user, with the group of the same id and no others.
fn become_user(id: u32) -> io::Result<()> {
    sys::set_groups(&[]).doing("dropping groups")?;
    sys::setresgid(id, id, id)?;
    sys::setresuid(id, id, id)
}

fn nobody(report: &mut Report) -> io::Result<()> {
    const ID: u32 = 65534;
    become_user(ID)?;
    report.facts.uids = Some(vec![ID; 4]);
    report.facts.gids = Some(vec![ID; 4]);
    report.facts.groups = Some(vec![]);
    Ok(())
}

fn groups(report: &mut Report, count: u32) -> io::Result<()> {
    // Far apart, with the largest beyond 31 bits, and in descending order: the kernel sorts them.
    let groups: Vec<u32> = (0..count).map(|i| 1000 + i * 40_000_000).collect();
    let backwards: Vec<u32> = groups.iter().rev().copied().collect();
    sys::set_groups(&backwards).doing("setting groups")?;
    report.facts.groups = Some(groups);
    Ok(())
}

fn capabilities(report: &mut Report) -> io::Result<()> {
    const CHOWN: CapabilitySet = CapabilitySet::CHOWN;
    const NET_BIND_SERVICE: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;
    const SYS_PTRACE: CapabilitySet = CapabilitySet::SYS_PTRACE;
    remove_capability_from_bounding_set(CapabilitySet::SYS_TIME)
        .doing("dropping a capability from the bounding set")?;
    let caps = CapabilitySets {
        permitted: CHOWN | NET_BIND_SERVICE | SYS_PTRACE,
        effective: SYS_PTRACE,
        inheritable: NET_BIND_SERVICE | CHOWN,
    };
    set_capabilities(None, caps).doing("setting capabilities")?;
    configure_capability_in_ambient_set(NET_BIND_SERVICE, true).doing("raising an ambient capability")?;
    report.facts.cap_permitted = Some(caps.permitted.bits());
    report.facts.cap_effective = Some(caps.effective.bits());
    report.facts.cap_inheritable = Some(caps.inheritable.bits());
    report.facts.cap_ambient = Some(NET_BIND_SERVICE.bits());
    report.facts.cap_bounding = Some(sys::bounding_set());
    Ok(())
}

fn no_new_privs(report: &mut Report) -> io::Result<()> {
    report.facts.no_new_privs = Some(true);
    report.facts.seccomp = Some(0);
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)
}

fn seccomp_filter(report: &mut Report) -> io::Result<()> {
    report.facts.no_new_privs = Some(true);
    report.facts.seccomp = Some(2);
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)?;
    sys::seccomp_allow_all().doing("seccomp filter")
}

fn undumpable(report: &mut Report) -> io::Result<()> {
    // Root's files under /proc belong to root in any case. Another user's show the effect.
    become_user(1000)?;
    report.facts.uids = Some(vec![1000; 4]);
    report.facts.dumpable = Some(false);
    sys::prctl(libc::PR_SET_DUMPABLE, 0, 0)
}

/// Runs a set-uid and set-gid copy of this executable as a plain user.
fn set_uid(keeper: &mut Keeper) -> io::Result<Facts> {
    const USER: u32 = 1000;
    const OWNER: u32 = 4321;
    let directory = keeper.dir()?;
    let copy = directory.join("zoo set-uid");
    fs::copy("/proc/self/exe", &copy).doing("copying the executable")?;
    chown(&copy, Some(OWNER), Some(OWNER)).doing("giving it away")?;
    fs::set_permissions(&copy, Permissions::from_mode(0o6755))?;
    fs::set_permissions(directory, Permissions::from_mode(0o711))?;
    let mut facts = fork_child(|report| {
        become_user(USER)?;
        Err(exec(report, "rest", Some(&copy), &[b"zoo".to_vec()], &[])).doing("exec")
    })?;
    facts.uids = Some(vec![USER, OWNER, OWNER, OWNER]);
    facts.gids = Some(vec![USER, OWNER, OWNER, OWNER]);
    facts.groups = Some(vec![]);
    facts.dumpable = Some(false);
    Ok(facts)
}
