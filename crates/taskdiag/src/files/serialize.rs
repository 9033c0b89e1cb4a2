//! `Serialize` for open files, in the shape of the rows of `taskdiag files --json` without the
//! process. What was not asked for is left out.

use serde::ser::{Serialize, Serializer};
use taskdiag_core::serialize::{cell, row};

use super::{FileField, OpenFile};

impl Serialize for OpenFile<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let of_field = |&field: &FileField| match field.of_tasks() {
            Some(_) => None,
            None => cell(field.name(), self.value(field)),
        };
        row(serializer, FileField::ALL.iter().filter_map(of_field))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};
    use taskdiag_core::absent::Absent;

    use super::super::tests::file;
    use super::super::{OpenFile, Owner, Use};

    /// Check the shape of a descriptor, and of a directory with missing values.
    #[test]
    fn files_have_the_shape_of_the_commands_json() {
        let expected = json!({
            "use": "fd", "fd": 3, "kind": "file", "access": "w", "open_flags": "0x8001", "offset_bytes": 0, "size_bytes": 4,
            "allocated_bytes": 4096, "dev_major": 8, "dev_minor": 1, "inode": 42, "nlink": 1, "deleted": false, "mnt_id": 1,
            "name": "/a\u{1b}", "absent": {"anon_kind": "none", "tid": "none"},
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
