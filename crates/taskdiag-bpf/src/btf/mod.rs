//! The kernel's type information (BTF), read in one pass.
//!
//! The BTF of vmlinux describes some 130,000 types in 3 MB, with 2 MB of names. A program that
//! adapts itself to the kernel (CO-RE) needs about 30 of them, and finding those takes most of the
//! time to start. So [`Types::scan`] copies and builds nothing: it walks over the bytes once,
//! remembers where every 16th type starts, and compares only eight bytes of each name. Everything
//! else is looked up in place when it is needed.
//!
//! Field paths have the meaning that they have in libbpf (`relo_core.c`), with the same rules of
//! compatibility. The bytes are untrusted, so no input may cause a panic, an endless loop or a
//! large allocation.

mod field;
mod kind;
mod names;
mod one_type;
mod sections;
#[cfg(test)]
pub(crate) mod tests;
mod types;

use std::fmt;

pub use field::{Base, Field, FieldFact, FieldPath, LoadClass, Location, Shape, Step};
pub use kind::{Kind, Kinds};
pub use names::{without_flavour, Wanted};
pub use one_type::{Member, Type};
pub use types::Types;

/// The id of a type within one BTF; 0 is `void`.
pub type TypeId = u32;

/// The maximum length of a chain of typedefs, qualifiers, array dimensions or anonymous members
/// (libbpf: `MAX_RESOLVE_DEPTH` 32, `BPF_CORE_SPEC_MAX_LEN` 64).
const MAX_DEPTH: u32 = 32;

/// Why type information could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BtfError {
    /// The header is not that of a BTF in this machine's byte order, or a section is not within the
    /// bytes.
    Header(&'static str),
    /// A type extends past the end of the type section.
    Truncated {
        /// The offset of the type in the type section.
        offset: usize,
    },
    /// A type is of a newer kind whose length the BTF does not give. So no type after it can be
    /// read.
    UnknownKind {
        /// The type.
        id: TypeId,
        /// Its `BTF_KIND_*`.
        kind: u32,
    },
    /// A reference to a type that does not exist.
    NoSuchType(TypeId),
    /// Types are nested too deeply or too widely to be real.
    TooComplex,
    /// A size or an offset is too large.
    TooLarge,
    /// A type has no size: it is a function, `void` or a forward declaration.
    Unsized(TypeId),
    /// An array element does not have this property; a named member does.
    NotAMember,
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(what) => write!(f, "invalid type information: {what}"),
            Self::Truncated { offset } => {
                write!(f, "invalid type information: the type at offset {offset} is incomplete")
            }
            Self::UnknownKind { id, kind } => {
                write!(
                    f,
                    "type {id} is of kind {kind}, which this version of taskdiag does not know"
                )
            }
            Self::NoSuchType(id) => write!(
                f,
                "invalid type information: it refers to type {id}, which does not exist"
            ),
            Self::TooComplex => write!(f, "invalid type information: types are nested too deeply"),
            Self::TooLarge => write!(f, "invalid type information: a size or an offset is too large"),
            Self::Unsized(id) => write!(f, "type {id} has no size"),
            Self::NotAMember => {
                write!(f, "an array element has no sign and no shifts")
            }
        }
    }
}

impl std::error::Error for BtfError {}

pub(crate) fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}
