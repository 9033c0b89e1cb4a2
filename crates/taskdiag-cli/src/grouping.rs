//! Grouping of sums: by user, program, unit, container or cgroup.

use taskdiag::{Absent, Field, Task, Value};

use crate::output::names::Names;
use crate::output::text;
use crate::output::Cell;

/// A grouping of sums.
#[derive(Debug)]
pub struct Grouping {
    /// The name for `--sort`.
    pub name: &'static str,
    /// The keys in JSON and CSV.
    pub keys: &'static [&'static str],
    /// The heading in tables.
    pub heading: &'static str,
    /// The fields of processes that determine the group; none if something else does.
    pub fields: &'static [Field],
}

/// Effective user: [`Name::User`].
pub static USER: Grouping = Grouping {
    name: "user",
    keys: &["euid", "user"],
    heading: "USER",
    fields: &[Field::Euid],
};

/// [`program`].
pub static PROGRAM: Grouping = Grouping {
    name: "program",
    keys: &["program"],
    heading: "PROGRAM",
    fields: &[Field::Exe, Field::Comm],
};

/// [`unit()`].
pub static UNIT: Grouping = Grouping {
    name: "unit",
    keys: &["unit"],
    heading: "UNIT",
    fields: &[Field::Unit, Field::UserUnit],
};

/// [`container`].
pub static CONTAINER: Grouping = Grouping {
    name: "container",
    keys: &["container"],
    heading: "CONTAINER",
    fields: &[Field::ContainerName, Field::ContainerId],
};

/// Cgroup of the unified hierarchy.
pub static CGROUP: Grouping = Grouping {
    name: "cgroup",
    keys: &["cgroup"],
    heading: "CGROUP",
    fields: &[Field::Cgroup],
};

/// The file name of a process's executable; the name of the process where that is denied.
pub fn program<'a>(task: &Task<'a>) -> Result<&'a [u8], Absent> {
    let path = match task.exe() {
        Ok(path) => path.strip_suffix(b" (deleted)").unwrap_or(path),
        // It may contain slashes that are not part of a path: kworker/0:1.
        Err(_) => return task.comm(),
    };
    Ok(path.rsplit(|&byte| byte == b'/').next().unwrap_or(path))
}

/// The user unit or system unit of a process.
pub fn unit<'a>(task: &Task<'a>) -> Result<&'a [u8], Absent> {
    first_text([task.user_unit(), task.unit()])
}

/// The name of the container of a process, or its id.
pub fn container<'a>(task: &Task<'a>) -> Result<&'a [u8], Absent> {
    first_text([task.container_name(), task.container_id()])
}

/// The first text that is known and not empty; otherwise the second.
fn first_text(texts: [Result<&[u8], Absent>; 2]) -> Result<&[u8], Absent> {
    let known = texts.iter().find(|text| text.is_ok_and(|text| !text.is_empty()));
    known.copied().unwrap_or(texts[1])
}

/// The name of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// A user id.
    User(u32),
    /// Any bytes.
    Text(Vec<u8>),
    /// The name is not known.
    None(Absent),
}

impl Name {
    /// The values under the keys of `grouping`, for machine-readable output.
    pub fn cells<'a>(&'a self, grouping: &Grouping, names: &'a mut Names) -> Vec<Cell<'a>> {
        match self {
            Name::User(uid) => {
                let name = names.user_name(*uid).map(Value::Text).ok_or("no name");
                vec![Ok(Value::Unsigned((*uid).into())), name]
            }
            Name::Text(name) => vec![Ok(Value::Text(name))],
            Name::None(reason) => grouping.keys.iter().map(|_| Err(reason.as_str())).collect(),
        }
    }

    /// Appends the name for people.
    pub fn write(&self, out: &mut Vec<u8>, names: &mut Names) {
        match self {
            Name::User(uid) => text::escape(out, names.user(*uid)),
            Name::Text(name) => write_text(out, name),
            Name::None(_) => out.push(b'-'),
        }
    }
}

/// Appends the name of a group that is a text, for people.
pub fn write_text(out: &mut Vec<u8>, name: &[u8]) {
    if name.is_empty() {
        out.extend_from_slice(b"\"\"");
    } else {
        text::escape(out, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the first known text that is not empty names the group.
    #[test]
    fn empty_names_give_way() {
        let name = |texts| first_text(texts).map(|name| name == b"x");
        assert_eq!(name([Ok(b"x"), Ok(b"y")]), Ok(true));
        assert_eq!(name([Ok(b""), Ok(b"x")]), Ok(true));
        assert_eq!(name([Err(Absent::Denied), Ok(b"x")]), Ok(true));
        assert_eq!(first_text([Ok(b""), Ok(b"")]), Ok(&b""[..]));
        assert_eq!(
            first_text([Err(Absent::Gone), Err(Absent::Denied)]),
            Err(Absent::Denied)
        );
    }
}
