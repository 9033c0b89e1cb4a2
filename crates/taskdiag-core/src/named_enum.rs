//! The macro for enums whose values have names.

/// Makes an enum from a list of its variants with their names. Behind the enum is what to make from
/// the list: a constant with all values in the order of the list, the method that returns the name,
/// [`Display`](std::fmt::Display) by name, and [`Member`](crate::set::Member), with the constant that
/// has the members.
///
/// ```
/// taskdiag_core::named_enum! {
///     /// What a traffic light shows.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Light {
///         /// Stop.
///         Red => "red",
///         /// Go.
///         Green = 7 => "green",
///     }
///     /// All of them.
///     pub const ALL;
///     /// The name.
///     pub fn name;
///     impl Display;
/// }
/// assert_eq!(Light::ALL, [Light::Red, Light::Green]);
/// assert_eq!((Light::Green as u8, Light::Green.name()), (7, "green"));
/// assert_eq!(format!("{:>6}", Light::Red), "   red");
/// ```
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        $vis:vis enum $of:ident {
            $($(#[$about:meta])* $variant:ident $(= $number:expr)? => $name:expr,)*
        }
        $($items:tt)*
    ) => {
        $(#[$attribute])*
        $vis enum $of {
            $($(#[$about])* $variant $(= $number)?,)*
        }

        $crate::named_enum! { @items $of [$($variant => $name,)*] $($items)* }
    };
    (@items $of:ident $list:tt) => {};
    (@items $of:ident [$($variant:ident => $name:expr,)*] $(#[$doc:meta])* $vis:vis const fn $get:ident; $($items:tt)*) => {
        impl $of {
            $(#[$doc])*
            $vis const fn $get(self) -> &'static str {
                match self {
                    $($of::$variant => $name,)*
                }
            }
        }

        $crate::named_enum! { @items $of [$($variant => $name,)*] $($items)* }
    };
    (@items $of:ident [$($variant:ident => $name:expr,)*] $(#[$doc:meta])* $vis:vis fn $get:ident; $($items:tt)*) => {
        impl $of {
            $(#[$doc])*
            $vis fn $get(self) -> &'static str {
                match self {
                    $($of::$variant => $name,)*
                }
            }
        }

        $crate::named_enum! { @items $of [$($variant => $name,)*] $($items)* }
    };
    (@items $of:ident [$($variant:ident => $name:expr,)*] $(#[$doc:meta])* $vis:vis const $all:ident; $($items:tt)*) => {
        impl $of {
            $(#[$doc])*
            $vis const $all: [$of; [$($name),*].len()] = [$($of::$variant),*];
        }

        $crate::named_enum! { @items $of [$($variant => $name,)*] $($items)* }
    };
    (@items $of:ident [$($variant:ident => $name:expr,)*] impl Display; $($items:tt)*) => {
        impl ::std::fmt::Display for $of {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(match self {
                    $($of::$variant => $name,)*
                })
            }
        }

        $crate::named_enum! { @items $of [$($variant => $name,)*] $($items)* }
    };
    (@items $of:ident $list:tt impl Member($all:ident); $($items:tt)*) => {
        impl $crate::set::Member for $of {
            fn place(self) -> usize {
                self as usize
            }

            fn at(place: usize) -> Option<$of> {
                $of::$all.into_iter().find(|value| *value as usize == place)
            }
        }

        $crate::named_enum! { @items $of $list $($items)* }
    };
}
