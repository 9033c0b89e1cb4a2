//! `Serialize` for open files, in the shape of the rows of `taskdiag files --json` without the
//! process. What was not asked for is left out.

use serde::ser::{Serialize, Serializer};
use taskdiag_core::absent::Absent;
use taskdiag_core::serialize::row;
use taskdiag_core::value::Value;

use super::{FileField, OpenFile, Owner};

/// A value of a row.
#[derive(Clone, Copy, PartialEq)]
enum Shown<'a> {
    Plain(Value<'a>),
    Descriptors(&'a [Owner]),
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Shown::Plain(value) => value.serialize(serializer),
            Shown::Descriptors(owners) => owners.serialize(serializer),
        }
    }
}

impl Serialize for OpenFile<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cell = |&field: &FileField| {
            let found = match field {
                field if field.of_tasks().is_some() => return None,
                FileField::Peers => self.peers.map(|peers| peers.map(Shown::Descriptors)),
                field => self.value(field).map(|value| value.map(Shown::Plain)),
            };
            match found {
                Err(Absent::NotAsked) => None,
                found => Some((
                    field.name(),
                    found.map_err(Absent::as_str).and_then(|found| found.ok_or("none")),
                )),
            }
        };
        row(serializer, FileField::ALL.iter().filter_map(cell))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::super::tests::file;
    use super::super::{OpenFile, Use};
    use super::*;

    /// Check the shape of a descriptor, and of a directory of which something is missing.
    #[test]
    fn files_have_the_shape_of_the_commands_json() {
        let expected = json!({
            "use": "fd", "fd": 3, "kind": "file", "access": "w", "open_flags": "0x8001", "offset_bytes": 0, "size_bytes": 4,
            "allocated_bytes": 4096, "dev_major": 8, "dev_minor": 1, "inode": 42, "nlink": 1, "deleted": false, "mnt_id": 1,
            "name": "/a\u{1b}", "absent": {"anon_kind": "none"},
        });
        assert_eq!(to_value(file()).expect("files are JSON"), expected);
        let owners = [Owner::new(7, 4, Ok(b"sh"))];
        let pipe = OpenFile {
            peers: Ok(Some(&owners)),
            ..file()
        };
        let value = to_value(pipe).expect("files are JSON");
        assert_eq!(value["peers"], json!([{"pid": 7, "comm": "sh", "fd": 4}]));
        let directory = OpenFile {
            used_as: Use::Cwd,
            fd: None,
            kind: Err(Absent::NoAnswer),
            size_bytes: Err(Absent::NotAsked),
            ..file()
        };
        let value = to_value(directory).expect("files are JSON");
        assert_eq!((&value["use"], &value["absent"]["fd"]), (&json!("cwd"), &json!("none")));
        assert_eq!(value["absent"]["kind"], json!("no answer"));
        assert!(value.get("size_bytes").is_none() && value["absent"].get("size_bytes").is_none());
    }
}
