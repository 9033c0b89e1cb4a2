//! The security modules that decide who may look at whom. Their decisions can't be queried from
//! outside the kernel, so a client that one of them may restrict sees only itself.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::sys;

/// The active security modules of this kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityModules {
    /// `None`: they could not be determined.
    names: Option<Vec<String>>,
    /// Records name the Landlock domain of a task.
    shows_landlock: bool,
}

/// Modules that do not decide who may look at whom. TOMOYO restricts names, such as who may connect
/// to the broker's socket. Yama restricts only attaching (`may_attach`).
const HARMLESS: [&str; 10] = [
    "lockdown",
    "capability",
    "yama",
    "tomoyo",
    "loadpin",
    "safesetid",
    "integrity",
    "ima",
    "evm",
    "ipe",
];

const LANDLOCK: &str = "landlock";
const APPARMOR: &str = "apparmor";
const BPF: &str = "bpf";

impl SecurityModules {
    /// Asks the kernel.
    pub fn find() -> SecurityModules {
        SecurityModules::parse(sys::security_modules().as_deref())
    }

    /// Parses the kernel's list of names, separated by commas. `None` if there is no list.
    pub fn parse(list: Option<&str>) -> SecurityModules {
        let words = |list: &str| {
            list.trim()
                .split(',')
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect()
        };
        SecurityModules {
            names: list.map(words),
            shows_landlock: false,
        }
    }

    /// The names, for the log.
    pub fn describe(&self) -> String {
        self.names
            .as_ref()
            .map_or("unknown".to_owned(), |names| names.join(","))
    }

    /// Whether a module may be active.
    fn has(&self, name: &str) -> bool {
        self.names
            .as_ref()
            .is_none_or(|names| names.iter().any(|other| other == name))
    }

    /// Whether an active module makes decisions that can't be known for any client. BPF programs of
    /// the module `bpf` are not seen here; docs/protocol.md says so.
    pub fn is_undecidable(&self) -> bool {
        let Some(names) = &self.names else {
            return true;
        };
        let known = |name: &String| {
            let name = name.as_str();
            HARMLESS.contains(&name) || [LANDLOCK, APPARMOR, BPF].contains(&name)
        };
        !names.iter().all(known)
    }

    /// Whether processes can be in Landlock domains.
    pub fn has_landlock(&self) -> bool {
        self.has(LANDLOCK)
    }

    /// Declares that records name Landlock domains from now on.
    pub fn set_landlock_shown(&mut self) {
        self.shows_landlock = true;
    }

    /// Whether a client may be in a Landlock domain that records do not name.
    pub fn may_hide_landlock(&self) -> bool {
        self.has_landlock() && !self.shows_landlock
    }

    /// Whether attaching to a process takes no more rights than looking at it.
    pub fn may_attach(&self) -> bool {
        !self.has("yama")
    }

    /// Whether the process at the other end of a connection was confined when it connected, or may
    /// have been. Where the kernel has no labels for local sockets, only the label at each request
    /// counts.
    pub fn may_confine(&self, socket: BorrowedFd<'_>) -> bool {
        let is_labelled = || match sys::peer_label(socket) {
            Ok(label) => !is_unconfined(&label),
            Err(errno) => errno != Errno::NOPROTOOPT,
        };
        self.is_undecidable() || (self.has(APPARMOR) && is_labelled())
    }

    /// Whether processes have labels that can change during a connection.
    pub fn has_labels(&self) -> bool {
        self.has(APPARMOR)
    }
}

/// Whether an AppArmor label says that nothing is restricted.
pub fn is_unconfined(label: &[u8]) -> bool {
    label.trim_ascii().strip_suffix(b"\0").unwrap_or(label.trim_ascii()) == b"unconfined"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an unknown module, a module whose decisions can't be known, and a missing list
    /// each make the list undecidable; and which labels say that nothing is restricted.
    #[test]
    fn unknown_modules_are_undecidable() {
        for (list, undecidable, landlock) in [
            (Some("lockdown,capability,landlock,bpf\n"), false, true),
            (Some("capability,landlock,yama,apparmor,tomoyo,bpf"), false, true),
            (Some("capability,yama,apparmor"), false, false),
            (Some("capability,selinux"), true, false),
            (Some("capability,smack"), true, false),
            (Some("capability,something_new"), true, false),
            (None, true, true),
        ] {
            let modules = SecurityModules::parse(list);
            assert_eq!(modules.is_undecidable(), undecidable, "{list:?}");
            assert_eq!(modules.may_hide_landlock(), landlock, "{list:?}");
        }
        assert!(!SecurityModules::parse(Some("yama")).may_attach());
        assert!(is_unconfined(b"unconfined\n") && is_unconfined(b"unconfined\0"));
        assert!(
            !is_unconfined(b"docker-default (enforce)\n") && !is_unconfined(b"") && !is_unconfined(b"unconfined (x)")
        );
    }
}
