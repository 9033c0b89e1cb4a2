//! `Serialize` for mappings, in the shape of the rows of `taskdiag maps --json`. What was not asked
//! for is left out.

use serde::ser::{Serialize, Serializer};
use taskdiag_core::absent::Absent;
use taskdiag_core::serialize::{cell, row};

use super::{BuildId, MapField, Mapping, Mappings, Row};

impl Serialize for BuildId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Mapping<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mapped = Row::new(*self);
        let of_field = |&field: &MapField| match (field, mapped.value(field)) {
            (MapField::Pid, Err(Absent::NotApplicable)) => None,
            // The addresses say it, and the command shows it on request.
            (MapField::SizeBytes, _) => None,
            (field, found) => cell(field.name(), found),
        };
        row(serializer, MapField::ALL.iter().filter_map(of_field))
    }
}

impl Serialize for Mappings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};
    use taskdiag_core::absent::Absent;

    use super::super::tests::mapping;
    use super::*;
    use taskdiag_core::snapshot::SourceId;

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
        (one.rss_bytes, one.dirty_bytes) = (Ok(4096), Ok(0));
        let mut list = Mappings::new(SourceId::Procfs);
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
