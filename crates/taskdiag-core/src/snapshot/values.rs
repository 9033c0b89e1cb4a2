//! The values of a task: a method for each row of the field table.

use super::Task;
use crate::absent::Absent;
use crate::field::{with_rows, Field, Mask};
use crate::record::{self, attr};
use crate::value::{Arguments, CpuSet, Ids, Limits, Value};

/// Makes the methods. Each has the name of its field.
macro_rules! methods {
    (
        read {
            $($id:ident $name:ident: $ty:ty, $group:ident $kind:ident, $files:expr, $origin:literal, $since:literal,
                $meaning:literal, |$task:ident| $read:expr;)*
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
                #[doc = concat!("In `/proc`: ", $origin, ".")]
                pub fn $name(&self) -> Result<$ty, Absent> {
                    self.check(Field::$id)?;
                    let $task = self;
                    $read
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

macro_rules! part {
    ($task:ident, $field:ident, $kind:ident, $ty:ident) => {
        $task.part::<record::$ty>(Field::$field, attr::$kind)
    };
}

with_rows!(methods);
