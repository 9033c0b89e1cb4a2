//! The rows of the field tables: the source of a field's values, and their type.

use std::ffi::CStr;

use taskdiag::files::FileField;
use taskdiag::maps::MapField;
use taskdiag::pagecache::Quantity;
use taskdiag::sockets::SocketField;
use taskdiag::{EventField, Field, Kind};

/// The type of values in memory: `td_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Type {
    U64 = 1,
    I64 = 2,
    F64 = 3,
    U8 = 4,
    Text = 5,
    Ids = 6,
    Limits = 7,
}

impl Type {
    /// The type of the values of a kind.
    pub fn of(kind: Kind) -> Type {
        match kind {
            Kind::Id
            | Kind::User
            | Kind::GroupId
            | Kind::Count
            | Kind::Bytes
            | Kind::Nanoseconds
            | Kind::Mode
            | Kind::Capabilities
            | Kind::Signals
            | Kind::Mask
            | Kind::Address => Type::U64,
            Kind::Signed => Type::I64,
            Kind::Percent => Type::F64,
            Kind::Flag | Kind::Letter => Type::U8,
            Kind::Text | Kind::Time | Kind::Texts | Kind::Cpus => Type::Text,
            Kind::Ids => Type::Ids,
            Kind::Limits => Type::Limits,
        }
    }
}

/// A part of a list of descriptors. C has each part as a separate list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Pids,
    Comms,
    Fds,
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
        Type::of(self.kind())
    }
}
