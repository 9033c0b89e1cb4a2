//! Kinds of types.

use zerocopy::TryFromBytes;

/// What a type is: the kernel's `BTF_KIND_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u8)]
#[allow(missing_docs)] // Documentation/bpf/btf.rst has the meanings
pub enum Kind {
    Integer = 1,
    Pointer = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Enum = 6,
    Forward = 7,
    Typedef = 8,
    Volatile = 9,
    Const = 10,
    Restrict = 11,
    Function = 12,
    FunctionPrototype = 13,
    Variable = 14,
    DataSection = 15,
    Float = 16,
    DeclarationTag = 17,
    TypeTag = 18,
    Enum64 = 19,
}

impl Kind {
    pub(super) fn from_number(number: u32) -> Option<Self> {
        Self::try_read_from_bytes(&[u8::try_from(number).ok()?]).ok()
    }

    /// The number of bytes that follow a type's header, and the number for each of its elements.
    pub(super) fn trailer(self) -> (u32, u32) {
        match self {
            Self::Integer | Self::Variable | Self::DeclarationTag => (4, 0),
            Self::Array => (12, 0),
            Self::Struct | Self::Union | Self::DataSection | Self::Enum64 => (0, 12),
            Self::Enum | Self::FunctionPrototype => (0, 8),
            Self::Pointer
            | Self::Forward
            | Self::Typedef
            | Self::Volatile
            | Self::Const
            | Self::Restrict
            | Self::Function
            | Self::Float
            | Self::TypeTag => (0, 0),
        }
    }

    pub(super) fn is_composite(self) -> bool {
        matches!(self, Self::Struct | Self::Union)
    }

    pub(super) fn is_enum(self) -> bool {
        matches!(self, Self::Enum | Self::Enum64)
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// The empty set.
    pub(super) const NONE: Self = Self(0);

    /// The kinds that match `kind`: itself, and for enumerations both widths.
    pub const fn compatible_with(kind: Kind) -> Self {
        match kind {
            Kind::Enum | Kind::Enum64 => Self(1 << Kind::Enum as u32 | 1 << Kind::Enum64 as u32),
            other => Self(1 << other as u32),
        }
    }

    pub(super) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn has_number(self, kind: u32) -> bool {
        self.0.checked_shr(kind).is_some_and(|bits| bits & 1 != 0)
    }
}
