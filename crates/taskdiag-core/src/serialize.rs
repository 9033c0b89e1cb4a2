//! `Serialize`, with the feature `serde`, in the shape of the command's JSON.
//!
//! A row is a map from the names of fields to their values. A missing value has no key; its reason
//! is in a map under the key `absent`. Text that is not UTF-8 is a map `{"base64": …}`. Bit masks
//! are strings in hexadecimal.

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::absent::{Absent, Known};
use crate::event::{Event, EventField, EventKind};
use crate::field::{Field, Group, Mask};
use crate::snapshot::{Counters, Snapshot, SourceId, Task};
use crate::value::{Arguments, CpuSet, Ids, Limits, Value};

/// A value of a row with its name, or why it is missing.
pub type Cell<'a> = (&'static str, Result<Value<'a>, &'static str>);

/// The value for a name, or why it is missing; `None` if it was not asked for.
pub fn cell<V>(name: &'static str, found: Known<V>) -> Option<(&'static str, Result<V, &'static str>)> {
    match found {
        Err(Absent::NotAsked) => None,
        found => Some((name, found.map_err(Absent::as_str))),
    }
}

/// Serializes a row.
pub fn row<S: Serializer, V: Serialize>(
    serializer: S,
    cells: impl Iterator<Item = (&'static str, Result<V, &'static str>)> + Clone,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (name, value) in cells.clone() {
        if let Ok(value) = value {
            map.serialize_entry(name, &value)?;
        }
    }
    let absent = cells.filter_map(|(name, value)| Some((name, value.err()?)));
    if absent.clone().next().is_some() {
        map.serialize_entry("absent", &Entries(absent))?;
    }
    map.end()
}

/// A map of these entries.
struct Entries<I>(I);

impl<I, V> Serialize for Entries<I>
where
    I: Iterator<Item = (&'static str, V)> + Clone,
    V: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone())
    }
}

/// Bytes that are usually text.
struct Text<'a>(&'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_map([("base64", STANDARD.encode(self.0))]),
        }
    }
}

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Value::Unsigned(value) => serializer.serialize_u64(value),
            Value::Signed(value) => serializer.serialize_i64(value),
            Value::Float(value) => serializer.serialize_f64(value),
            Value::Flag(value) => serializer.serialize_bool(value),
            Value::Letter(letter) => serializer.serialize_char(letter),
            Value::Mask(bits) => Mask(bits).serialize(serializer),
            Value::Text(bytes) => Text(bytes).serialize(serializer),
            Value::Texts(texts) => texts.serialize(serializer),
            Value::Ids(ids) => ids.serialize(serializer),
            Value::Cpus(cpus) => cpus.serialize(serializer),
            Value::Limits(limits) => limits.serialize(serializer),
            Value::Owners(owners) => owners.serialize(serializer),
        }
    }
}

impl Serialize for Mask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#x}", self.0))
    }
}

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Text))
    }
}

impl Serialize for Ids<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl Serialize for CpuSet<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Limits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// A number, or `unlimited`.
        #[derive(Clone, Copy)]
        struct Limit(Option<u64>);

        impl Serialize for Limit {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self.0 {
                    Some(value) => serializer.serialize_u64(value),
                    None => serializer.serialize_str("unlimited"),
                }
            }
        }

        let both = |soft, hard| Entries([("soft", Limit(soft)), ("hard", Limit(hard))].into_iter());
        serializer.collect_map(self.iter().map(|(name, soft, hard)| (name, both(soft, hard))))
    }
}

impl Serialize for Task<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cell = |field: Field| (field.name(), self.value(field).map_err(Absent::as_str));
        let fields: Vec<Field> = self.fields().iter().collect();
        row(serializer, fields.iter().copied().map(cell))
    }
}

/// The tasks.
impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl Serialize for Event<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cell = |&field: &EventField| (field.name(), self.value(field).map_err(Absent::as_str));
        row(serializer, EventField::ALL.iter().map(cell))
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.named())
    }
}

macro_rules! by_name {
    ($($ty:ty: $name:ident;)*) => { $(
        impl Serialize for $ty {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.$name())
            }
        }
    )* };
}

by_name! {
    Absent: as_str;
    Field: name;
    Group: name;
    SourceId: name;
    EventField: name;
    EventKind: name;
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;

    /// Check the shape of every kind of value.
    #[test]
    fn values_have_the_shape_of_the_commands_json() {
        let limits = [7_u64, u64::MAX].map(u64::to_ne_bytes).concat();
        let ids = [5_u32, 6].map(u32::to_ne_bytes).concat();
        for (value, expected) in [
            (Value::Unsigned(u64::MAX), json!(u64::MAX)),
            (Value::Signed(-5), json!(-5)),
            (Value::Float(12.5), json!(12.5)),
            (Value::Flag(true), json!(true)),
            (Value::Letter('S'), json!("S")),
            (Value::Mask(0x1ff), json!("0x1ff")),
            (Value::Text("é\"\\\n".as_bytes()), json!("é\"\\\n")),
            (Value::Text(b"\xff\x00"), json!({"base64": "/wA="})),
            (
                Value::Texts(Arguments::new(b"a\0\0\xff\0")),
                json!(["a", "", {"base64": "/w=="}]),
            ),
            (Value::Ids(Ids::new(&ids)), json!([5, 6])),
            (Value::Cpus(CpuSet::new(&11_u64.to_ne_bytes())), json!("0-1,3")),
            (
                Value::Limits(Limits::new(&limits)),
                json!({"cpu": {"soft": 7, "hard": "unlimited"}}),
            ),
        ] {
            assert_eq!(to_value(value).expect("values are JSON"), expected);
        }
    }

    /// Check that a row has its values, and the reasons of those that are missing.
    #[test]
    fn rows_have_values_and_reasons() {
        struct Row(Vec<Cell<'static>>);

        impl Serialize for Row {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                row(serializer, self.0.iter().copied())
            }
        }

        let cells = vec![
            ("pid", Ok(Value::Unsigned(7))),
            ("rss_bytes", Err(Absent::NoMemory.as_str())),
            ("comm", Ok(Value::Text(b"x"))),
        ];
        let expected = json!({"pid": 7, "comm": "x", "absent": {"rss_bytes": "no memory"}});
        assert_eq!(to_value(Row(cells)).expect("rows are JSON"), expected);
        let whole = vec![("pid", Ok(Value::Unsigned(7)))];
        assert_eq!(to_value(Row(whole)).expect("rows are JSON"), json!({"pid": 7}));
    }
}
