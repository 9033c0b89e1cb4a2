//! `Serialize` for open files, in the shape of the rows of `taskdiag files --json` without the
//! process. What was not asked for is left out.

use serde::ser::{Serialize, Serializer};
use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::serialize::{row, Cell};
use taskdiag_core::value::Value;

use super::{OpenFile, Owner};

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
        let cells: [Cell<'_>; 17] = [
            ("use", Ok(word(self.used_as.name()))),
            ("fd", of_descriptor(Ok(self.fd), Value::from)),
            ("kind", known(self.kind, |kind| word(kind.name()))),
            (
                "anon_kind",
                of_descriptor(self.kind.map(|kind| kind.anon()), |kind| word(kind.name())),
            ),
            ("access", of_descriptor(self.access(), |access| word(access.name()))),
            (
                "open_flags",
                of_descriptor(self.open_flags, |flags| Value::Mask(flags.into())),
            ),
            ("offset_bytes", of_descriptor(self.offset_bytes, Value::Signed)),
            ("size_bytes", known(self.size_bytes, Value::from)),
            ("allocated_bytes", known(self.allocated_bytes, Value::from)),
            ("dev_major", known(self.device, |device| device.major.into())),
            ("dev_minor", known(self.device, |device| device.minor.into())),
            ("inode", known(self.inode, Value::from)),
            ("nlink", known(self.nlink, Value::from)),
            ("deleted", known(self.is_deleted(), Value::from)),
            ("mnt_id", known(self.mnt_id, Value::from)),
            ("name", known(self.name, Value::Text)),
            ("detail", of_descriptor(self.detail, Value::Text)),
        ];
        let peers = match self.peers {
            Ok(peers) => peers.map(Shown::Descriptors).ok_or("none"),
            Err(reason) => Err(reason.as_str()),
        };
        let cells = cells.iter().map(|(name, value)| (*name, value.map(Shown::Plain)));
        let cells = cells.chain([("peers", peers)]);
        row(
            serializer,
            cells.filter(|(_, value)| *value != Err(Absent::NotAsked.as_str())),
        )
    }
}

fn word(word: &'static str) -> Value<'static> {
    Value::Text(word.as_bytes())
}

fn known<'a, T>(value: Known<T>, make: impl Fn(T) -> Value<'a>) -> Result<Value<'a>, &'static str> {
    value.map(make).map_err(Absent::as_str)
}

/// A value that only descriptors, or objects of the kernel, have.
fn of_descriptor<'a, T>(value: Known<Option<T>>, make: impl Fn(T) -> Value<'a>) -> Result<Value<'a>, &'static str> {
    match value {
        Ok(Some(value)) => Ok(make(value)),
        Ok(None) => Err("none"),
        Err(reason) => Err(reason.as_str()),
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
