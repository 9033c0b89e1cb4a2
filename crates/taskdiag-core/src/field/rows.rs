//! The macro for tables of the fields of rows that are not tasks: sockets, open files, mappings.

/// Makes an enum of fields, in the order of the table: `Name: "What they are."; Variant "name" Kind
/// "Meaning."; …`. `EVERY` has all of them, for the `ALL` of the type.
#[macro_export]
macro_rules! row_fields {
    ($fields:ident: $doc:literal; $($variant:ident $name:literal $kind:ident $meaning:literal;)*) => {
        $crate::named_enum! {
            #[doc = $doc]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            #[non_exhaustive]
            pub enum $fields {
                $(#[doc = $meaning] $variant => $name,)*
            }
            const EVERY;
            /// The name: the key in JSON, the heading in CSV, the name in options and filters.
            pub const fn name;
            impl Display;
            impl Member(EVERY);
        }

        $crate::set_by_or!($fields);

        impl From<$fields> for $crate::filter::Column {
            fn from(field: $fields) -> Self {
                Self {
                    index: field as usize,
                    name: field.name(),
                    kind: field.kind(),
                }
            }
        }

        impl $fields {
            /// What its values are.
            pub const fn kind(self) -> $crate::field::Kind {
                match self {
                    $($fields::$variant => $crate::field::Kind::$kind,)*
                }
            }

            /// The field with this index.
            #[doc(hidden)]
            pub fn of_index(index: usize) -> $fields {
                $fields::EVERY[index]
            }

            /// What it means.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $($fields::$variant => $meaning,)*
                }
            }
        }
    };
}
