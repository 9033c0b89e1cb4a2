//! Sets of fields.

use super::{Field, Group, Groups};
use crate::set::{Member, Set};

/// A set of fields.
pub type Fields = Set<Field>;

impl Member for Field {
    fn place(self) -> usize {
        self as usize
    }

    fn at(place: usize) -> Option<Field> {
        Field::ALL.get(place).copied()
    }
}

crate::set_by_or!(Field);

impl Fields {
    /// All fields that are cheap to read: all except these, which must be named:
    ///
    /// - those of [`Group::Rollup`], for which the kernel walks page tables; this takes longer the
    ///   more memory a process has;
    /// - those of [`Group::Text`], which only `/proc` has, each in a file of its own for each task;
    /// - those of [`Group::Net`], which are there only where somebody counts;
    /// - [`Field::Environ`], which is in the memory of processes, is large, and may hold secrets;
    /// - [`Field::User`] and [`Field::Group`], for which the user database may query the network;
    /// - [`Field::ContainerName`] and [`Field::ContainerRuntime`], for which files of container
    ///   runtimes may be read.
    pub fn all() -> Fields {
        let has_to_be_named = |field: Field| {
            let is_dear = matches!(
                field,
                Field::Environ | Field::User | Field::Group | Field::ContainerName | Field::ContainerRuntime
            );
            is_dear || matches!(field.group(), Group::Rollup | Group::Text | Group::Net)
        };
        Field::ALL
            .iter()
            .copied()
            .filter(|&field| !has_to_be_named(field))
            .collect()
    }

    /// The fields of a group.
    pub fn of_group(group: Group) -> Fields {
        Field::ALL
            .iter()
            .copied()
            .filter(|field| field.group() == group)
            .collect()
    }
}

/// Whether some field belongs to `group`.
pub fn has_group(fields: Fields, group: Group) -> bool {
    fields.iter().any(|field| field.group() == group)
}

/// Some fields, and the fields that derived fields among them are made of.
pub fn with_made_of(fields: Fields) -> Fields {
    let made_of = |field: Field| field.info().made_of.iter().copied();
    fields.iter().flat_map(made_of).collect::<Fields>() | fields
}

impl Groups {
    /// The groups to read for some fields. [`Field::Pid`] and [`Field::Tid`], which every record
    /// has, need none, and derived fields need the groups of the fields they are made of.
    pub fn of(fields: Fields) -> Groups {
        with_made_of(fields)
            .iter()
            .filter(|field| !matches!(field, Field::Pid | Field::Tid) && field.group() != Group::Derived)
            .fold(Groups::NONE, |groups, field| groups.with(field.group()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that sets of fields know their groups.
    #[test]
    fn fields_need_their_groups() {
        assert_eq!(Groups::of(Field::Pid | Field::Tid), Groups::NONE);
        let groups = Groups::of(Field::Uid | Field::Cmdline | Field::Comm);
        assert_eq!(
            groups.iter().collect::<Vec<_>>(),
            [Group::Base, Group::Cred, Group::Args]
        );
        assert_eq!(Groups::of(Field::User.into()), Groups::NONE.with(Group::Cred));
        let stat = Groups::of(Field::Stat.into());
        assert_eq!(
            stat.iter().collect::<Vec<_>>(),
            [Group::Base, Group::Tty, Group::Cpu, Group::Mem]
        );
    }

    /// Check that all fields are there except those that must be named.
    #[test]
    fn dear_fields_have_to_be_named() {
        let all = Fields::all();
        for field in [
            Field::Cmdline,
            Field::Cgroup,
            Field::ElapsedNs,
            Field::Unit,
            Field::ContainerId,
        ] {
            assert!(all.contains(field), "{field}");
        }
        for field in [
            Field::PssBytes,
            Field::Environ,
            Field::User,
            Field::Group,
            Field::ContainerName,
        ] {
            assert!(!all.contains(field), "{field}");
        }
    }
}
