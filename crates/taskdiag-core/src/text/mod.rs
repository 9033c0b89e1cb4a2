//! Parsers of the kernel's text files, which take any bytes.

/// Makes an enum whose variants have the names that a file of procfs has, in its order.
macro_rules! names {
    ($(#[$meta:meta])* $of:ident: $($name:ident)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, non_camel_case_types)]
        pub enum $of { $($name),* }

        impl $of {
            /// All, in order.
            pub const ALL: [$of; [$($of::$name),*].len()] = [$($of::$name),*];
            /// Their names.
            pub const NAMES: [&'static str; $of::ALL.len()] = [$(stringify!($name)),*];
        }
    };
}

pub mod cgroup;
pub mod fdinfo;
pub mod maps;
pub mod net;
mod number;
pub mod process;
pub mod smaps;
pub mod terminals;
pub mod unit;
