//! Names of capabilities and signals.

/// The capabilities by their numbers, without `cap_` (capabilities(7)).
pub const CAPABILITIES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// The signals by their numbers minus one, without `SIG` (signal(7)). The numbers are those of x86,
/// Arm, RISC-V and most other machines.
pub const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// The first real-time signal that programs may use: glibc uses the two before it (signal(7)).
const RTMIN: u32 = 34;

/// The last real-time signal.
const RTMAX: u32 = 64;

/// The number of a capability: by name, with or without `cap_`, or by number. Case does not matter.
pub fn capability(name: &str) -> Option<u32> {
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix("cap_").unwrap_or(&name);
    match CAPABILITIES.iter().position(|&known| known == name) {
        Some(number) => Some(number as u32),
        None => number(name).filter(|&number| number < u64::BITS),
    }
}

/// The number of a signal: by name, with or without `SIG`, by number, or as `RTMIN+1`, `RTMAX-1` or
/// `RT35`. Case does not matter.
pub fn signal(name: &str) -> Option<u32> {
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    if let Some(index) = SIGNALS.iter().position(|&known| known == name) {
        return Some(index as u32 + 1);
    }
    let found = match name {
        "RTMIN" => Some(RTMIN),
        "RTMAX" => Some(RTMAX),
        // Other names for signals above.
        "IOT" => Some(6),
        "CLD" => Some(17),
        "POLL" => Some(29),
        _ => {
            if let Some(above) = name.strip_prefix("RTMIN+") {
                number(above).and_then(|above| RTMIN.checked_add(above))
            } else if let Some(below) = name.strip_prefix("RTMAX-") {
                number(below).and_then(|below| RTMAX.checked_sub(below))
            } else {
                number(name.strip_prefix("RT").unwrap_or(name))
            }
        }
    };
    found.filter(|number| (1..=RTMAX).contains(number))
}

/// A decimal number without a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names, prefixes, numbers and case lead to the same numbers.
    #[test]
    fn names_lead_to_numbers() {
        for name in ["sys_admin", "CAP_SYS_ADMIN", "cap_sys_admin", "21"] {
            assert_eq!(capability(name), Some(21), "{name}");
        }
        assert_eq!(capability("cap_63"), Some(63));
        for name in ["", "sysadmin", "64", "-1", "+1"] {
            assert_eq!(capability(name), None, "{name}");
        }
        for name in ["TERM", "SIGTERM", "term", "15"] {
            assert_eq!(signal(name), Some(15), "{name}");
        }
        for (name, number) in [
            ("RTMIN", 34),
            ("rtmin+1", 35),
            ("SIGRTMAX-1", 63),
            ("RT40", 40),
            ("POLL", 29),
        ] {
            assert_eq!(signal(name), Some(number), "{name}");
        }
        for name in ["", "0", "65", "RTMIN+31", "RTMAX-64", "RTMIN+-1", "TERMINATE"] {
            assert_eq!(signal(name), None, "{name}");
        }
    }

    /// Check the numbers against those of the C library.
    #[test]
    fn numbers_are_those_of_the_system() {
        for (name, number) in [
            ("HUP", libc::SIGHUP),
            ("KILL", libc::SIGKILL),
            ("USR1", libc::SIGUSR1),
            ("TERM", libc::SIGTERM),
            ("CHLD", libc::SIGCHLD),
            ("WINCH", libc::SIGWINCH),
            ("SYS", libc::SIGSYS),
            ("RTMIN", libc::SIGRTMIN()),
            ("RTMAX", libc::SIGRTMAX()),
        ] {
            assert_eq!(signal(name), Some(number as u32), "{name}");
        }
    }
}
