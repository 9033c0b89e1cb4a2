//! Whether this thread may load BPF programs.

use std::path::Path;

use rustix::fs::readlink;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{capabilities, CapabilitySet};
use taskdiag_core::support::Fact;
use taskdiag_sys::host::{is_initial_user_namespace, owns_pid_namespace};

/// The capabilities for loading programs that this thread lacks.
pub fn missing_capabilities() -> Vec<&'static str> {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    if held.contains(CapabilitySet::SYS_ADMIN) {
        return Vec::new();
    }
    [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")]
        .into_iter()
        .filter_map(|(capability, name)| (!held.contains(capability)).then_some(name))
        .collect()
}

/// The effective capabilities of this thread. `None` if they can't be read.
pub fn effective_capabilities() -> Option<CapabilitySet> {
    Some(capabilities(None).ok()?.effective)
}

/// What to do about a missing capability. `others` is the remedy for users other than root.
pub fn capability_remedy(others: &'static str) -> &'static str {
    match (geteuid().is_root(), is_initial_user_namespace()) {
        (true, true) => "root lacks it here; in containers, --cap-add adds it",
        (true, false) => "run outside the container",
        _ => others,
    }
}

/// Whether a procfs denies this thread no value of a task: it may trace every task, and no security
/// module keeps the first process from it, whose link `1/exe` whoever may trace it can read
/// (proc_pid_exe(5)).
pub fn sees_values(first_program: &Path) -> Fact {
    let fact = may_trace();
    if fact.is_yes() && readlink(first_program, Vec::new()) == Err(Errno::ACCESS) {
        return Fact::no(
            "procfs denies some values of process 1 despite CAP_SYS_PTRACE, as a security module may; BPF shows most",
            "",
        );
    }
    fact
}

/// Whether this thread may trace every task, judging by its capabilities.
pub fn may_trace() -> Fact {
    match effective_capabilities() {
        None => Fact::unknown("the capabilities of this thread can't be read"),
        Some(held) if held.contains(CapabilitySet::SYS_PTRACE) => {
            if is_initial_user_namespace() || owns_pid_namespace() {
                Fact::yes("this thread has CAP_SYS_PTRACE")
            } else {
                Fact::no(
                    "CAP_SYS_PTRACE is needed in the user namespaces of tasks, and counts in this one only: procfs denies \
                     some values of tasks outside of it",
                    "run outside the container",
                )
            }
        }
        Some(_) => Fact::no(
            "CAP_SYS_PTRACE is missing: procfs denies some values of other users' tasks",
            capability_remedy("run as root"),
        ),
    }
}

/// Whether this thread may load programs, judging by its capabilities.
pub fn bpf_load() -> Fact {
    if effective_capabilities().is_none() {
        return Fact::unknown("the capabilities of this thread can't be read");
    }
    // Capabilities of a file show everything to everybody who may run it.
    let remedy = capability_remedy(
        "run as root, or ask the broker (taskdiagd); on a machine of one user also: setcap cap_bpf,cap_perfmon+ep",
    );
    let missing = missing_capabilities();
    if !missing.is_empty() {
        let verb = if missing.len() == 1 { "is" } else { "are" };
        return Fact::denied(format!("{} {verb} missing", missing.join(" and ")), remedy);
    }
    if !is_initial_user_namespace() {
        return Fact::denied(
            "CAP_BPF and CAP_PERFMON are needed in the initial user namespace",
            "run outside the container",
        );
    }
    Fact::yes("this thread has CAP_BPF and CAP_PERFMON")
}
