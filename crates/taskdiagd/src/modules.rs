//! Security modules that have a say in who may look at whom. What they would say can't be known outside of the kernel, so all
//! but the plainest cases are taken for a no.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::sys;

/// The modules of this kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// `None`: they could not be found out.
    names: Option<Vec<String>>,
    landlock_word: bool,
}

/// Those that say nothing about looking. What TOMOYO restricts is names: who may connect to the broker's socket, among others.
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

/// Those that are known to say something, by the names that files have.
const LANDLOCK: &str = "landlock";
const APPARMOR: &str = "apparmor";

impl Modules {
    /// Those of a list as the kernel gives it: names with commas between them.
    pub fn parse(list: Option<&str>) -> Modules {
        let words = |list: &str| {
            list.trim()
                .split(',')
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect()
        };
        Modules {
            names: list.map(words),
            landlock_word: false,
        }
    }

    /// Asks the kernel.
    pub fn find() -> Modules {
        Modules::parse(sys::security_modules().as_deref())
    }

    /// The names, for the log.
    pub fn describe(&self) -> String {
        self.names
            .as_ref()
            .map_or("unknown".to_owned(), |names| names.join(","))
    }

    fn has(&self, name: &str) -> bool {
        self.names
            .as_ref()
            .is_none_or(|names| names.iter().any(|other| other == name))
    }

    /// Whether there is one whose decisions can't be known at all. Programs of the module `bpf` are not seen here: see
    /// docs/protocol.md.
    pub fn is_undecidable(&self) -> bool {
        let Some(names) = &self.names else {
            return true;
        };
        let known = |name: &String| {
            let name = name.as_str();
            HARMLESS.contains(&name) || [LANDLOCK, APPARMOR, "bpf"].contains(&name)
        };
        !names.iter().all(known)
    }

    /// Whether processes can be in domains of Landlock.
    pub fn has_landlock(&self) -> bool {
        self.has(LANDLOCK)
    }

    /// The programs now tell domains.
    pub fn landlock_is_known(&mut self) {
        self.landlock_word = true;
    }

    /// Whether a client may be in a domain that nobody sees.
    pub fn landlock_unknown(&self) -> bool {
        self.has_landlock() && !self.landlock_word
    }

    /// Whether to attach takes no more than to look.
    pub fn may_attach(&self) -> bool {
        !self.has("yama")
    }

    /// Whether the process at the other end was confined when it connected, or may have been. Where the kernel keeps no labels of
    /// connections, the one that the process has for each request decides alone.
    pub fn confine(&self, socket: BorrowedFd<'_>) -> bool {
        let is_labelled = || match sys::peer_label(socket) {
            Ok(label) => !is_unconfined(&label),
            Err(errno) => errno != Errno::NOPROTOOPT,
        };
        self.is_undecidable() || (self.has(APPARMOR) && is_labelled())
    }

    /// Whether processes have labels that can change while they are connected.
    pub fn has_labels(&self) -> bool {
        self.has(APPARMOR)
    }
}

/// Whether a label says that nothing is forbidden.
pub fn is_unconfined(label: &[u8]) -> bool {
    label.trim_ascii().strip_suffix(b"\0").unwrap_or(label.trim_ascii()) == b"unconfined"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a module that may forbid something in ways unknown leaves nothing to be decided, and an unknown list too.
    #[test]
    fn unknown_modules_decide_nothing() {
        for (list, undecidable, landlock) in [
            (Some("lockdown,capability,landlock,bpf\n"), false, true),
            (Some("capability,landlock,yama,apparmor,tomoyo,bpf"), false, true),
            (Some("capability,yama,apparmor"), false, false),
            (Some("capability,selinux"), true, false),
            (Some("capability,smack"), true, false),
            (Some("capability,something_new"), true, false),
            (None, true, true),
        ] {
            let modules = Modules::parse(list);
            assert_eq!(modules.is_undecidable(), undecidable, "{list:?}");
            assert_eq!(modules.landlock_unknown(), landlock, "{list:?}");
        }
        assert!(!Modules::parse(Some("yama")).may_attach());
        assert!(is_unconfined(b"unconfined\n") && is_unconfined(b"unconfined\0"));
        assert!(
            !is_unconfined(b"docker-default (enforce)\n") && !is_unconfined(b"") && !is_unconfined(b"unconfined (x)")
        );
    }
}
