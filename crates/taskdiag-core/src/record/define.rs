//! Definitions of constants and structures, once for Rust and C.

/// Defines constants. C has each as a macro, whose name has the prefix.
macro_rules! constants {
    (prefix $prefix:literal; $($(#[doc = $doc:literal])* $name:ident: $ty:ty = $value:expr;)*) => {
        $($(#[doc = $doc])* pub const $name: $ty = $value;)*

        pub(super) const CONSTANTS: &[$crate::record::c::Constant] = &[$($crate::record::c::Constant {
            name: concat!($prefix, stringify!($name)),
            value: $name as u64,
            suffix: <$ty as $crate::record::c::Suffixed>::SUFFIX,
            docs: &[$($doc),*],
        }),*];
    };
}

/// Defines modules of constants. C has each as an enumeration, whose constants have a prefix.
macro_rules! enumerations {
    ($(
        $(#[doc = $doc:literal])*
        enum $c:ident $prefix:literal as $module:ident: $ty:ty {
            $($(#[doc = $member_doc:literal])* $name:ident = $value:literal,)*
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[allow(missing_docs)]
            pub mod $module {
                $($(#[doc = $member_doc])* pub const $name: $ty = $value;)*
            }
        )*

        pub(super) const ENUMERATIONS: &[$crate::record::c::Enumeration] = &[$($crate::record::c::Enumeration {
            name: stringify!($c),
            docs: &[$($doc),*],
            members: &[$($crate::record::c::Constant {
                name: concat!($prefix, stringify!($name)),
                value: $value,
                suffix: "",
                docs: &[$($member_doc),*],
            }),*],
        }),*];
    };
}

/// Defines structures. C has them with the same members.
macro_rules! structures {
    ($(
        $(#[doc = $doc:literal])*
        struct $c:ident as $name:ident $(= $attr:ident)? {
            $($(#[doc = $member_doc:literal])* $field:ident: $ty:ty),* $(,)?
        }
    )*) => {
        crate::wire! { $(
            $(#[doc = $doc])*
            #[doc = concat!("\n\n`struct ", stringify!($c), "` in C.")]
            $name { $($(#[doc = $member_doc])* $field: $ty),* }
        )* }

        $($(impl $name {
            /// The type of the attribute.
            pub const KIND: u16 = $crate::record::attr::$attr;
        })?)*

        pub(super) const STRUCTURES: &[$crate::record::c::Structure] = &[$($crate::record::c::Structure {
            name: stringify!($c),
            docs: &[$($doc),*],
            parts: &[$crate::record::define::part!($name { $($(#[doc = $member_doc])* $field: $ty),* })],
        }),*];

        $(impl $crate::record::c::InC for $name {
            const TYPE: &'static str = concat!("struct ", stringify!($c));
        })*
    };
}

/// A part of a structure, as [`c`](super::c) describes it.
macro_rules! part {
    ($name:ident { $($(#[doc = $doc:literal])* $field:ident: $ty:ty),* }) => {
        $crate::record::c::Part {
            size: size_of::<$name>(),
            members: &[$($crate::record::c::Member {
                name: stringify!($field),
                offset: std::mem::offset_of!($name, $field),
                ty: <$ty as $crate::record::c::InC>::TYPE,
                count: <$ty as $crate::record::c::InC>::COUNT,
                docs: &[$($doc),*],
            }),*],
        }
    };
}

/// Defines structures of the memory that programs share with this process, each in one or more
/// parts. C has the parts as one structure.
macro_rules! memory {
    ($(
        $(#[doc = $doc:literal])*
        struct $c:ident as $($name:ident { $($(#[doc = $member_doc:literal])* $field:ident: $ty:ty),* $(,)? })then+
    )*) => {
        $($(
            #[doc = concat!("`struct ", stringify!($c), "` in C, or a part of it.")]
            #[derive(
                Clone, Copy, Debug, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
            )]
            #[repr(C)]
            #[allow(missing_docs)]
            pub struct $name { $($(#[doc = $member_doc])* pub $field: $ty),* }

            /// All zeros.
            impl Default for $name {
                fn default() -> $name {
                    zerocopy::FromZeros::new_zeroed()
                }
            }

            impl $crate::record::c::InC for $name {
                const TYPE: &'static str = concat!("struct ", stringify!($c));
            }
        )+)*

        pub(super) const STRUCTURES: &[$crate::record::c::Structure] = &[$($crate::record::c::Structure {
            name: stringify!($c),
            docs: &[$($doc),*],
            parts: &[$($crate::record::define::part!($name { $($(#[doc = $member_doc])* $field: $ty),* })),+],
        }),*];
    };
}

pub(super) use {constants, enumerations, memory, part, structures};
