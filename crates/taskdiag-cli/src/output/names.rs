//! Names for numbers: users, groups, capabilities, signals. Only where they are asked for, since numbers are exact.

use std::borrow::Cow;
use std::collections::HashMap;

use taskdiag::{Kind, Value};

/// By their numbers (capabilities(7)).
const CAPABILITIES: [&str; 41] = [
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

/// By their numbers less one (signal(7)), as they are on most machines.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// What stands for a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// One name.
    One(Vec<u8>),
    /// The names of a set's members.
    Members(Vec<Cow<'static, str>>),
}

/// Finds names, each once.
#[derive(Debug, Default)]
pub struct Names {
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
}

impl Names {
    /// What stands for the value, if it is of a kind that has names. A number without a name stands for itself.
    pub fn of(&mut self, kind: Option<Kind>, value: &Value<'_>) -> Option<Named> {
        match (kind?, value) {
            (Kind::User, Value::Unsigned(uid)) => Some(Named::One(self.user(*uid as u32).to_vec())),
            (Kind::GroupId, Value::Unsigned(gid)) => Some(Named::One(self.group(*gid as u32).to_vec())),
            (Kind::Capabilities, Value::Mask(set)) => Some(members(*set, |bit| match CAPABILITIES.get(bit) {
                Some(name) => format!("cap_{name}").into(),
                None => format!("cap_{bit}").into(),
            })),
            (Kind::Signals, Value::Mask(set)) => Some(members(*set, |bit| match SIGNALS.get(bit) {
                Some(&name) => name.into(),
                None => format!("RT{}", bit + 1).into(),
            })),
            _ => None,
        }
    }

    /// The name of a user, or the number if there is none.
    pub fn user(&mut self, uid: u32) -> &[u8] {
        let name = || uzers::get_user_by_uid(uid).map(|user| user.name().as_encoded_bytes().to_vec());
        self.users
            .entry(uid)
            .or_insert_with(|| name().unwrap_or_else(|| uid.to_string().into()))
    }

    fn group(&mut self, gid: u32) -> &[u8] {
        let name = || uzers::get_group_by_gid(gid).map(|group| group.name().as_encoded_bytes().to_vec());
        self.groups
            .entry(gid)
            .or_insert_with(|| name().unwrap_or_else(|| gid.to_string().into()))
    }
}

fn members(set: u64, name: impl Fn(usize) -> Cow<'static, str>) -> Named {
    let bits = (0..64).filter(|bit| set >> bit & 1 != 0);
    Named::Members(bits.map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that sets become their members' names, and that what has no name stays a number.
    #[test]
    fn sets_become_names() {
        let mut names = Names::default();
        let members = |list: &[&'static str]| Some(Named::Members(list.iter().map(|&name| name.into()).collect()));
        let capabilities = Value::Mask(1 | 1 << 39 | 1 << 50);
        assert_eq!(
            names.of(Some(Kind::Capabilities), &capabilities),
            members(&["cap_chown", "cap_bpf", "cap_50"])
        );
        let signals = Value::Mask(1 | 1 << 14 | 1 << 63);
        assert_eq!(
            names.of(Some(Kind::Signals), &signals),
            members(&["HUP", "TERM", "RT64"])
        );
        assert_eq!(names.of(Some(Kind::Mask), &signals), None);
        let one = |name: &str| Some(Named::One(name.into()));
        assert_eq!(names.of(Some(Kind::User), &Value::Unsigned(0)), one("root"));
        assert_eq!(
            names.of(Some(Kind::GroupId), &Value::Unsigned(123_456_789)),
            one("123456789")
        );
        assert_eq!(names.of(Some(Kind::Id), &Value::Unsigned(0)), None);
    }
}
