//! The fields that names stand for, and the default fields of programs.

use super::{Field, Fields, Group, UnknownField};

/// The fields that a name stands for: a field, a group, or `all` for all fields that are cheap to
/// read. A field takes precedence over a group of the same name.
pub fn named(name: &str) -> Result<Fields, UnknownField> {
    let unknown = match name.parse::<Field>() {
        Ok(field) => return Ok(field.into()),
        Err(unknown) => unknown,
    };
    if name == "all" {
        return Ok(Fields::all());
    }
    let group = Group::ALL.into_iter().find(|group| group.name() == name);
    group.map(Fields::of_group).ok_or(unknown)
}

/// The default fields of processes.
pub const PROCESS_FIELDS: [Field; 13] = [
    Field::Uid,
    Field::Euid,
    Field::Pid,
    Field::Ppid,
    Field::State,
    Field::TtyNr,
    Field::StartNs,
    Field::UtimeNs,
    Field::StimeNs,
    Field::RssBytes,
    Field::VsizeBytes,
    Field::Comm,
    Field::Cmdline,
];

/// The default fields of threads.
pub const THREAD_FIELDS: [Field; 11] = [
    Field::Uid,
    Field::Euid,
    Field::Pid,
    Field::Tid,
    Field::State,
    Field::TtyNr,
    Field::StartNs,
    Field::UtimeNs,
    Field::StimeNs,
    Field::Comm,
    Field::Cmdline,
];

/// The default fields of processes in a tree.
pub const TREE_FIELDS: [Field; 5] = [Field::Pid, Field::Ppid, Field::State, Field::Comm, Field::Cmdline];

/// The default fields about the memory of processes.
pub const MEMORY_FIELDS: [Field; 11] = [
    Field::Pid,
    Field::Euid,
    Field::RollupSwapBytes,
    Field::UssBytes,
    Field::PssBytes,
    Field::RollupRssBytes,
    Field::PrivateHugetlbBytes,
    Field::SharedHugetlbBytes,
    Field::RollupAgeNs,
    Field::Comm,
    Field::Cmdline,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names of fields, of groups and `all` stand for fields, and that the error for
    /// another name has similar names.
    #[test]
    fn names_stand_for_fields() {
        assert_eq!(named("comm"), Ok(Field::Comm.into()));
        assert_eq!(named("cred"), Ok(Fields::of_group(Group::Cred)));
        assert_eq!(named("all"), Ok(Fields::all()));
        // A field and a group have this name.
        assert_eq!(named("cgroup"), Ok(Field::Cgroup.into()));
        let unknown = named("rss").expect_err("no field has this name");
        assert_eq!(unknown.name, "rss");
        assert!(unknown.near.contains(&"rss_bytes"), "{unknown:?}");
    }
}
