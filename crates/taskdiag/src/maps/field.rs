//! The table of the fields of mappings: names, kinds and meanings, and how each is read.

use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::value::Value;

use super::{Mapping, Wants};

taskdiag_core::row_fields! {
    MapField: "A field of mappings: a key of a row.";
    Pid "pid" Id "The process.";
    Start "start" Address "The first address.";
    End "end" Address "The first address behind it.";
    SizeBytes "size_bytes" Bytes "Its length.";
    Perms "perms" Text "Permissions as /proc/PID/maps has them: r, w, x, and p (private) or s (shared).";
    OffsetBytes "offset_bytes" Bytes "Where it begins in its file.";
    DevMajor "dev_major" Id "Major number of the device of its file; 0 without a file.";
    DevMinor "dev_minor" Id "Minor number of that device.";
    Inode "inode" Id "Inode number of its file; 0 without a file.";
    Name "name" Text "The kernel's own text: a path, with \" (deleted)\" if it is gone, or a word in brackets.";
    BuildId "build_id" Text "Build id of its file, in hexadecimal.";
    GoBuildId "go_build_id" Text "Build id that Go's linker wrote into its file, as `go tool buildid` has it.";
    PageSizeBytes "page_size_bytes" Bytes "Size of its pages.";
    RssBytes "rss_bytes" Bytes "What of it is in memory, without pages of hugetlbfs.";
    DirtyBytes "dirty_bytes" Bytes "What of that is dirty.";
    HugetlbBytes "hugetlb_bytes" Bytes "What of it is in memory as pages of hugetlbfs.";
}

impl MapField {
    /// All fields.
    pub const ALL: &'static [MapField] = &MapField::EVERY;
}

/// What to read for the value of a field.
impl From<MapField> for Wants {
    fn from(field: MapField) -> Wants {
        match field {
            MapField::Name => Wants::NAMES,
            MapField::BuildId => Wants::BUILD_IDS,
            MapField::GoBuildId => Wants::GO_BUILD_IDS,
            MapField::PageSizeBytes => Wants::PAGE_SIZES,
            MapField::RssBytes | MapField::DirtyBytes | MapField::HugetlbBytes => Wants::USAGE,
            _ => Wants::empty(),
        }
    }
}

/// A mapping of a process as a row of values by field.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    mapping: Mapping<'a>,
    perms: [u8; 4],
    build_id: String,
}

impl<'a> Row<'a> {
    /// A mapping as a row.
    pub fn new(mapping: Mapping<'a>) -> Row<'a> {
        let id = mapping.build_id.ok().flatten();
        Row {
            perms: mapping.perms.letters(),
            build_id: id.map(|id| id.to_string()).unwrap_or_default(),
            mapping,
        }
    }

    /// The value of a field. [`Absent::NotApplicable`] if there is none: the file has no build id,
    /// or the process is not known.
    pub fn value(&self, field: MapField) -> Known<Value<'_>> {
        let mapping = &self.mapping;
        let value = match field {
            MapField::BuildId => mapping.build_id?.map(|_| Value::Text(self.build_id.as_bytes())),
            MapField::GoBuildId => mapping.go_build_id()?.map(Value::Text),
            MapField::Name => Some(Value::Text(mapping.name?)),
            MapField::PageSizeBytes => Some(mapping.page_size_bytes?.into()),
            MapField::RssBytes => Some(mapping.rss_bytes?.into()),
            MapField::DirtyBytes => Some(mapping.dirty_bytes?.into()),
            MapField::HugetlbBytes => Some(mapping.hugetlb_bytes?.into()),
            MapField::Pid => mapping.pid.map(Value::from),
            MapField::Start => Some(Value::Mask(mapping.start)),
            MapField::End => Some(Value::Mask(mapping.end)),
            MapField::SizeBytes => Some((mapping.end - mapping.start).into()),
            MapField::Perms => Some(Value::Text(&self.perms)),
            MapField::OffsetBytes => Some(mapping.offset_bytes.into()),
            MapField::DevMajor => Some(mapping.device.major.into()),
            MapField::DevMinor => Some(mapping.device.minor.into()),
            MapField::Inode => Some(mapping.inode.into()),
        };
        value.ok_or(Absent::NotApplicable)
    }
}

#[cfg(test)]
mod tests {
    use taskdiag_core::absent::Absent;

    use super::super::tests::mapping;
    use super::*;

    /// Check that names are unique, and that only what a field needs is read for it.
    #[test]
    fn fields_have_names_and_needs() {
        let row = Row::new(Mapping {
            name: Err(Absent::NotAsked),
            page_size_bytes: Err(Absent::NotAsked),
            ..mapping(0x1000, 0x3000, b"")
        });
        for (index, field) in MapField::ALL.iter().enumerate() {
            let before = &MapField::ALL[..index];
            assert_eq!(*field as usize, index);
            assert!(before.iter().all(|other| other.name() != field.name()), "{field}");
            let is_read = Wants::from(*field) != Wants::empty();
            assert_eq!(row.value(*field) == Err(Absent::NotAsked), is_read, "{field}");
        }
        assert_eq!(
            MapField::ALL.iter().copied().map(Wants::from).collect::<Wants>(),
            Wants::all()
        );
        assert_eq!(row.value(MapField::SizeBytes), Ok(Value::Unsigned(0x2000)));
        assert_eq!(row.value(MapField::Perms), Ok(Value::Text(b"r--p")));
    }
}
