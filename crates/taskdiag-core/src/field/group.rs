//! Groups of fields that are read together.

crate::named_enum! {
    /// Fields that cost the kernel about the same and are read together.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    #[allow(missing_docs)]
    pub enum Group {
        Base => "base",
        Tty => "tty",
        Cred => "cred",
        Groups => "groups",
        Cpu => "cpu",
        Faults => "faults",
        Mem => "mem",
        Args => "args",
        Oom => "oom",
        Namespaces => "namespaces",
        Cgroup => "cgroup",
        Io => "io",
        Signals => "signals",
        Limits => "limits",
        Env => "env",
        Paths => "paths",
        Fds => "fds",
        Audit => "audit",
        Layout => "layout",
        Rollup => "rollup",
        Text => "text",
        Net => "net",
        Derived => "derived",
    }
    /// All groups, in the order of their bits in `td_config.groups`. [`Group::Derived`] has no bit
    /// there.
    pub const ALL;
    /// The name, as in a report's `sources`.
    pub fn name;
}

impl Group {
    /// Whether only tasks with an address space have values of this group.
    pub(super) fn needs_memory(self) -> bool {
        matches!(
            self,
            Group::Mem | Group::Args | Group::Env | Group::Layout | Group::Rollup
        )
    }
}

/// A set of groups. The bits are those of `td_config.groups` in `bpf/record.h`, where some bits do
/// not stand for a group of fields: that is why it does not use a library's set type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Groups(pub u32);

impl Groups {
    /// No group.
    pub const NONE: Groups = Groups(0);

    /// Every group that sources read. [`Group::Derived`], the last one, is not in it: the library
    /// computes its values from those of others.
    pub const ALL: Groups = Groups((1 << Group::Derived as u32) - 1);

    /// Not a group: tests of tasks can be passed to the program.
    pub const TESTABLE: Groups = Groups(crate::record::TESTABLE);

    /// Not a group of fields: the values that decide who may see a task.
    pub const ACCESS: Groups = Groups(crate::record::GROUP_ACCESS);

    /// Not a group of fields: the namespaces and root directory through which a task sees the
    /// system.
    pub const VIEW: Groups = Groups(crate::record::GROUP_VIEW);

    /// The groups that only procfs answers. The values of two are in the memory of processes, which
    /// BPF programs never read, because a process can block the reader. The third has texts that
    /// the kernel makes.
    pub const ONLY_PROCFS: Groups = Groups(1 << Group::Args as u32 | 1 << Group::Env as u32 | 1 << Group::Text as u32);

    /// The groups with values that `/proc` shows only to callers who may trace the task
    /// (ptrace(2)).
    pub const TRACED: Groups = Groups(
        1 << Group::Paths as u32
            | 1 << Group::Namespaces as u32
            | 1 << Group::Io as u32
            | 1 << Group::Fds as u32
            | 1 << Group::Layout as u32,
    );

    /// Whether the set has all groups of `other`.
    pub fn covers(self, other: Groups) -> bool {
        other.without(self).is_empty()
    }

    /// Whether `group` is in the set.
    pub fn contains(self, group: Group) -> bool {
        self.0 & 1 << group as u32 != 0
    }

    /// Whether some group is in both sets.
    pub fn intersects(self, other: Groups) -> bool {
        !self.and(other).is_empty()
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of groups in the set.
    pub fn len(self) -> u64 {
        self.0.count_ones().into()
    }

    /// The set with `group`.
    pub const fn with(self, group: Group) -> Groups {
        Groups(self.0 | 1 << group as u32)
    }

    /// The set without the groups of `other`.
    pub fn without(self, other: Groups) -> Groups {
        Groups(self.0 & !other.0)
    }

    /// The groups in either set.
    pub fn or(self, other: Groups) -> Groups {
        Groups(self.0 | other.0)
    }

    /// The groups in both sets.
    pub fn and(self, other: Groups) -> Groups {
        Groups(self.0 & other.0)
    }

    /// The groups in the set.
    pub fn iter(self) -> impl Iterator<Item = Group> {
        Group::ALL.into_iter().filter(move |&group| self.contains(group))
    }
}
