//! How C describes constants and structures.

use zerocopy::native_endian::{I32, I64, U16, U32, U64};

use super::files::Match;
use super::mappings::RecentName;
use super::KernelTest;

/// A constant.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// The name in C.
    pub name: &'static str,
    /// The value.
    pub value: u64,
    pub(super) suffix: &'static str,
    pub(super) docs: &'static [&'static str],
}

/// An enumeration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enumeration {
    pub name: &'static str,
    pub docs: &'static [&'static str],
    pub members: &'static [Constant],
}

/// A structure.
#[derive(Clone, Copy, Debug)]
pub struct Structure {
    /// The name in C.
    pub name: &'static str,
    pub(super) parts: &'static [Part],
    pub(super) docs: &'static [&'static str],
}

/// A part of a structure, which is a structure of its own in Rust.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub size: usize,
    pub members: &'static [Member],
}

impl Structure {
    /// The size.
    pub fn size(&self) -> usize {
        self.parts.iter().map(|part| part.size).sum()
    }

    /// The members, each with its offset.
    pub fn members(&self) -> impl Iterator<Item = (usize, &'static Member)> {
        let mut start = 0;
        self.parts.iter().flat_map(move |part| {
            let first = start;
            start += part.size;
            part.members.iter().map(move |member| (first + member.offset, member))
        })
    }
}

/// A member of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The name.
    pub name: &'static str,
    /// The offset in its part.
    pub(super) offset: usize,
    pub(super) ty: &'static str,
    pub(super) count: Option<usize>,
    pub(super) docs: &'static [&'static str],
}

/// How C writes the type of a member.
pub(super) trait InC {
    /// The type of the number, or of the elements of an array.
    const TYPE: &'static str;
    /// The length of an array.
    const COUNT: Option<usize> = None;
}

/// How C writes constants of a type.
pub(super) trait Suffixed {
    /// What follows the number.
    const SUFFIX: &'static str;
}

macro_rules! in_c {
    ($of:ident $constant:ident: $($ty:ty = $text:literal,)*) => {
        $(impl $of for $ty {
            const $constant: &'static str = $text;
        })*
    };
}

in_c! {
    InC TYPE:
    u8 = "__u8",
    I32 = "__s32",
    I64 = "__s64",
    U16 = "__u16",
    U32 = "__u32",
    U64 = "__u64",
    u16 = "__u16",
    u32 = "__u32",
    u64 = "__u64",
    i64 = "__s64",
}

in_c! {
    Suffixed SUFFIX:
    u16 = "",
    u32 = "u",
    u64 = "ull",
    usize = "",
}

/// Bytes, which are names.
impl<const N: usize> InC for [u8; N] {
    const TYPE: &'static str = "char";
    const COUNT: Option<usize> = Some(N);
}

macro_rules! arrays_in_c {
    ($($ty:ty),*) => {
        $(impl<const N: usize> InC for [$ty; N] {
            const TYPE: &'static str = <$ty>::TYPE;
            const COUNT: Option<usize> = Some(N);
        })*
    };
}

arrays_in_c!(u32, u64, U64, KernelTest, Match, RecentName);
