//! The values of a task: a method for each row of the field table.

use super::Task;
use crate::absent::Absent;
use crate::field::{origin, with_rows, Field, Mask};
use crate::record::{self, attr};
use crate::value::{Arguments, CpuSet, Ids, Limits, Value};

use std::ops::Not;

use zerocopy::native_endian::{I32, U32, U64};

/// Makes the methods. Each has the name of its field.
macro_rules! methods {
    (
        read {
            $($id:ident $name:ident: $ty:ty, $group:ident $kind:ident, $place:tt $(since $since:literal)?,
                $meaning:literal $(, $read:tt)?;)*
        }
        derived {
            $($derived_id:ident $derived_name:ident: $derived_ty:ty, $derived_kind:ident [$($made_of:ident)*],
                $derived_meaning:literal;)*
        }
    ) => {
        impl<'a> Task<'a> {
            $(
                #[doc = $meaning]
                #[doc = ""]
                #[doc = concat!("In `/proc`: ", origin!($place), ".")]
                pub fn $name(&self) -> Result<$ty, Absent> {
                    self.check(Field::$id)?;
                    read!(self $id $group $name $($read)?)
                }
            )*

            $(
                #[doc = $derived_meaning]
                #[doc = ""]
                #[doc = concat!("Made of", $(" [`Field::", stringify!($made_of), "`]",)* ".")]
                pub fn $derived_name(&self) -> Result<$derived_ty, Absent> {
                    self.derived(Field::$derived_id)
                }
            )*

            /// The value of any field.
            pub fn value(&self, field: Field) -> Result<Value<'a>, Absent> {
                match field {
                    $(Field::$id => Ok(Value::from(self.$name()?)),)*
                    $(Field::$derived_id => Ok(Value::from(self.$derived_name()?)),)*
                }
            }
        }
    };
}

/// Reads a value as the last brackets of its row say.
macro_rules! read {
    ($t:ident $id:ident $group:ident $name:ident [attr $attr:ident]) => { $t.payload(Field::$id, attr::$attr) };
    ($t:ident $id:ident $group:ident $name:ident [attr $attr:ident as $ty:ident]) => {
        Ok($ty::new($t.payload(Field::$id, attr::$attr)?))
    };
    ($t:ident $id:ident $group:ident $name:ident [$($place:ident)* |$task:ident| $read:expr]) => {{
        let $task = $t;
        $read
    }};
    ($t:ident $id:ident $group:ident $name:ident [namespace]) => { $t.namespace(Field::$id, |part| part.$name) };
    ($t:ident $id:ident $group:ident $name:ident [maybe]) => { read!($t $id $group $name [maybe $name]) };
    ($t:ident $id:ident $group:ident $name:ident [maybe $member:ident]) => {
        known(read!($t $id record::$group::KIND, $group $member), Absent::Unsupported)
    };
    ($t:ident $id:ident $group:ident $name:ident [none]) => {
        known(read!($t $id record::$group::KIND, $group $name), Absent::NotApplicable)
    };
    ($t:ident $id:ident $group:ident $name:ident [$attr:ident $part:ident.$member:ident]) => {
        Ok(read!($t $id attr::$attr, $part $member))
    };
    ($t:ident $id:ident $group:ident $name:ident [$member:ident]) => {
        Ok(read!($t $id record::$group::KIND, $group $member))
    };
    ($t:ident $id:ident $group:ident $name:ident) => { read!($t $id $group $name [$name]) };
    ($t:ident $id:ident $kind:expr, $part:ident $member:ident) => {
        $t.part::<record::$part>(Field::$id, $kind)?.$member.value()
    };
}

/// A member of a record as a value.
trait Number<T> {
    fn value(self) -> T;
}

macro_rules! numbers {
    ($($member:ty => $ty:ty = $value:expr;)*) => { $(
        impl Number<$ty> for $member {
            fn value(self) -> $ty {
                $value(self)
            }
        }
    )* };
}

numbers! {
    u8 => char = char::from;
    I32 => i32 = I32::get;
    U32 => u32 = U32::get;
    U32 => bool = |number: U32| number.get() != 0;
    U32 => Mask = |number: U32| Mask(number.get().into());
    U64 => u64 = U64::get;
    U64 => Mask = |number: U64| Mask(number.get());
}

/// A number, unless it is all ones: then there is none, for this reason.
pub(super) fn known<T: PartialEq + From<bool> + Not<Output = T>>(number: T, reason: Absent) -> Result<T, Absent> {
    if number == !T::from(false) {
        return Err(reason);
    }
    Ok(number)
}

with_rows!(methods);
