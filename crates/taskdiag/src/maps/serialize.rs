//! `Serialize` for mappings, in the shape of the rows of `taskdiag maps --json`. What was not asked
//! for is left out.

use serde::ser::{Serialize, SerializeSeq as _, Serializer};
use taskdiag_core::absent::Absent;
use taskdiag_core::serialize::row;

use super::{BuildId, MapField, Mapping, Mappings, Row};

impl Serialize for BuildId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Mapping<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(serializer, None, self)
    }
}

/// The mappings, each with the process that it is of, as `pid`.
impl Serialize for Mappings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// A mapping of a process.
        struct Of<'a>(u32, Mapping<'a>);

        impl Serialize for Of<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serialize(serializer, Some(self.0), &self.1)
            }
        }

        let mut rows = serializer.serialize_seq(Some(self.len()))?;
        for (index, mapping) in self.iter().enumerate() {
            rows.serialize_element(&Of(self.pid(index), mapping))?;
        }
        rows.end()
    }
}

fn serialize<S: Serializer>(serializer: S, pid: Option<u32>, mapping: &Mapping<'_>) -> Result<S::Ok, S::Error> {
    let mapped = Row::new(pid.unwrap_or(0), *mapping);
    let cell = |&field: &MapField| match (field, mapped.value(field)) {
        (MapField::Pid, _) if pid.is_none() => None,
        // The addresses say it, and the command shows it on request.
        (MapField::SizeBytes, _) | (_, Err(Absent::NotAsked)) => None,
        (field, found) => Some((
            field.name(),
            found.map_err(Absent::as_str).and_then(|found| found.ok_or("none")),
        )),
    };
    row(serializer, MapField::ALL.iter().filter_map(cell))
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::super::tests::mapping;
    use super::super::{Source, Usage};
    use super::*;

    /// Check the shape of a mapping alone, and of one in a list, with what was not asked for and
    /// what is missing.
    #[test]
    fn mappings_have_the_shape_of_the_commands_json() {
        let mut one = mapping(0x1000, 0x3000, b"/a");
        let expected = json!({
            "start": "0x1000", "end": "0x3000", "perms": "r--p", "offset_bytes": 0x1000, "dev_major": 8, "dev_minor": 1,
            "inode": 42, "name": "/a", "page_size_bytes": 4096,
        });
        assert_eq!(to_value(one).expect("mappings are JSON"), expected);
        one.build_id = Ok(BuildId::new(&[0xab, 1]));
        one.page_size_bytes = Err(Absent::Unsupported);
        let mut usage = Usage::default();
        usage.rss_bytes = 4096;
        one.usage = Ok(usage);
        let mut list = Mappings::new(Source::Procfs);
        list.push(7, &one);
        one.build_id = Ok(None);
        list.push(8, &one);
        let rows = to_value(&list).expect("mappings are JSON");
        assert_eq!((&rows[0]["pid"], &rows[1]["pid"]), (&json!(7), &json!(8)));
        assert_eq!(
            (&rows[0]["build_id"], &rows[0]["rss_bytes"]),
            (&json!("ab01"), &json!(4096))
        );
        assert_eq!(rows[0]["absent"], json!({"page_size_bytes": "unsupported"}));
        assert_eq!(
            rows[1]["absent"],
            json!({"build_id": "none", "page_size_bytes": "unsupported"})
        );
    }
}
