//! The rows of the field tables: the source of a field's values, and their type.

use std::ffi::CStr;

use taskdiag::files::FileField;
use taskdiag::maps::MapField;
use taskdiag::pagecache::Quantity;
use taskdiag::sockets::{Owner, SocketField};
use taskdiag::{EventField, Field, Kind};
use taskdiag_core::column::Type;

use crate::table::Column;

/// A part of a list of descriptors. C has each part as a separate list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Pids,
    Comms,
    Fds,
}

impl Part {
    /// Appends this part of a list.
    pub fn push(self, owners: &[Owner], column: &mut Column) {
        for owner in owners {
            match self {
                Part::Pids => column.ids.push(owner.pid),
                // The queries always include names, so each owner has one.
                Part::Comms => column.put_terminated(owner.comm.as_deref().unwrap_or_default()),
                Part::Fds => column.ids.push(owner.fd),
            }
        }
        column.end();
        column.reasons.push(0);
    }
}

/// The source of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRef {
    /// A field of processes and threads.
    Task(Field),
    /// A field of sockets.
    Socket(SocketField),
    /// A field of open files.
    File(FileField),
    /// A field of mappings.
    Map(MapField),
    /// A quantity of the page cache of a file, or the file's path.
    Cache(Option<Quantity>),
    /// A field of events.
    Event(EventField),
}

/// The description of a field.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The source of its values.
    pub of: FieldRef,
    /// For a list of descriptors, the part of it.
    pub part: Option<Part>,
    /// Its name.
    pub name: &'static CStr,
    /// Its meaning.
    pub meaning: &'static CStr,
}

impl Row {
    /// The kind of its values.
    pub fn kind(&self) -> Kind {
        match (self.part, self.of) {
            (Some(Part::Comms), _) => Kind::Texts,
            (Some(_), _) => Kind::Ids,
            (None, FieldRef::Task(field)) => field.info().kind,
            (None, FieldRef::Socket(field)) => field.kind(),
            (None, FieldRef::File(field)) => field.kind(),
            (None, FieldRef::Map(field)) => field.kind(),
            (None, FieldRef::Cache(None)) => Kind::Text,
            (None, FieldRef::Cache(Some(_))) => Kind::Bytes,
            (None, FieldRef::Event(field)) => field.kind(),
        }
    }

    /// The type of its values in memory.
    pub fn value_type(&self) -> Type {
        match self.kind() {
            Kind::Texts => Type::Text,
            kind => Type::of(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use taskdiag::{Absent, Value};
    use taskdiag_core::column::reason;

    use super::*;

    const NONE: u8 = Absent::NotApplicable as u8;

    /// Check that each part of a list of descriptors is where its offsets say.
    #[test]
    fn lists_are_where_offsets_say() {
        let owners = [Owner::new(3, 5, Ok(b"a")), Owner::new(4, 6, Ok(b""))];
        let mut texts = Column::new(Type::Text, 0);
        Part::Comms.push(&owners, &mut texts);
        texts.push(Err(NONE));
        texts.push(Ok(Value::Owners(&owners)));
        assert_eq!(
            (texts.bytes.as_slice(), texts.ends.as_slice()),
            (b"a\0\0".as_slice(), [0, 3, 3, 3].as_slice())
        );
        assert_eq!(texts.reasons, [0, NONE, reason(Absent::Unsupported)]);
        for (part, numbers) in [(Part::Pids, [3, 4]), (Part::Fds, [5, 6])] {
            let mut ids = Column::new(Type::Ids, 0);
            part.push(&owners, &mut ids);
            ids.push(Err(NONE));
            assert_eq!((&ids.ids[..], &ids.ends[..]), (&numbers[..], &[0, 2, 2][..]));
            assert_eq!((ids.range(0), ids.range(2), ids.range(usize::MAX)), (0..2, 0..0, 0..0));
        }
    }
}
