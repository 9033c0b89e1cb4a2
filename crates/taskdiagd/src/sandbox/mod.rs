//! What each process of the broker gives up before it serves a client: capabilities, its user,
//! files and the network (Landlock), and system calls (seccomp).

mod seccomp;

use std::io;

use landlock::{
    Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetStatus, Scope,
    ABI,
};
use rustix::thread::{capabilities, set_capabilities, CapabilitySet, CapabilitySets};

use crate::sys;

pub use seccomp::confine_loop;

/// Becomes an unprivileged user, if this process is root. It keeps its capabilities.
pub fn become_user(user: u32, group: u32) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    rustix::thread::set_keep_capabilities(true)?;
    sys::become_user(user, group)?;
    rustix::thread::set_keep_capabilities(false)?;
    // They are still permitted, but no longer effective.
    let held = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: held.permitted,
            ..held
        },
    )?;
    Ok(())
}

/// Drops all capabilities of the loop.
pub fn drop_capabilities() -> io::Result<()> {
    keep_only(CapabilitySet::empty())?;
    // The loop can't execute programs. If it could, they would gain nothing.
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Turns this process into the keeper, which has a reader's rights and may start processes.
pub fn become_keeper(is_confined: bool) -> Result<(), Box<dyn std::error::Error>> {
    sys::ignore_termination();
    keep_only(CapabilitySet::SYS_PTRACE)?;
    rustix::thread::set_no_new_privs(true)?;
    if is_confined {
        seccomp::confine_keeper()?;
    }
    Ok(())
}

/// Turns a child of the keeper into a reader. It keeps `CAP_SYS_PTRACE`. It enters no Landlock
/// domain, because a process in a domain may not look at processes outside it.
pub fn become_reader(is_confined: bool) -> Result<(), Box<dyn std::error::Error>> {
    if is_confined {
        seccomp::confine_reader()?;
    }
    Ok(())
}

/// Turns a child of the keeper into a closer, without capabilities.
pub fn become_closer(is_confined: bool) -> Result<(), Box<dyn std::error::Error>> {
    keep_only(CapabilitySet::empty())?;
    if is_confined {
        seccomp::confine_closer()?;
    }
    Ok(())
}

/// Drops all capabilities but these, in every set.
fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?;
    if held.permitted.contains(CapabilitySet::SETPCAP) {
        for number in 0..64 {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            if rustix::thread::capability_is_in_bounding_set(capability).unwrap_or(false) {
                rustix::thread::remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let kept = kept & held.permitted;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    Ok(())
}

/// Enters a Landlock domain that allows nothing. Returns false if the kernel has no Landlock.
pub fn enter_empty_domain() -> Result<bool, landlock::RulesetError> {
    let abi = ABI::V6;
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?;
    Ok(rules.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}
