//! How C describes constants and structures.

use zerocopy::native_endian::{I32, I64, U16, U32, U64};

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
    /// The size in Rust.
    pub size: usize,
    /// The members.
    pub members: &'static [Member],
    pub(super) docs: &'static [&'static str],
}

/// A member of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The name.
    pub name: &'static str,
    /// The offset in Rust.
    pub offset: usize,
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

impl<const N: usize> InC for [U64; N] {
    const TYPE: &'static str = U64::TYPE;
    const COUNT: Option<usize> = Some(N);
}
