//! Columns: the values of one field for all rows, and the reasons for missing values.

use std::ops::Range;

use taskdiag::{Absent, Known, Value};

use crate::row::{Part, Type};

/// The length of a row of limits: two numbers for each of 16 resource limits.
pub const LIMITS: usize = 32;

/// Why a value is missing, as a number for C. 0 means that it is present.
pub type Reason = u8;

/// The field does not apply to the row, as a port does not to a UNIX socket: `TD_ABSENT_NONE`.
pub const NONE: Reason = 100;

/// The number of a reason.
pub fn reason(absent: Absent) -> Reason {
    absent as u16 as Reason
}

/// Values in consecutive order. The list of row N has the items from `offsets[N]` to `offsets[N +
/// 1]`.
#[derive(Debug)]
pub enum Values {
    /// Unsigned numbers, masks and addresses.
    U64(Vec<u64>),
    /// Signed numbers.
    I64(Vec<i64>),
    /// Floating-point numbers.
    F64(Vec<f64>),
    /// Flags as 0 and 1, and letters.
    U8(Vec<u8>),
    /// Texts of any bytes. A list of texts has a NUL after each, as in the kernel.
    Text(Vec<u64>, Vec<u8>),
    /// Lists of numbers.
    Ids(Vec<u64>, Vec<u32>),
    /// The soft and the hard value of each limit; `u64::MAX` means no limit.
    Limits(Vec<[u64; LIMITS]>),
}

/// Functions that return all values of a type.
macro_rules! values_of {
    ($($(#[$doc:meta])* $name:ident: $variant:ident of $type:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self) -> Option<&[$type]> {
            match self {
                Values::$variant(values) => Some(values),
                _ => None,
            }
        }
    )*};
}

impl Values {
    values_of! {
        /// The unsigned numbers.
        u64s: U64 of u64;
        /// The signed numbers.
        i64s: I64 of i64;
        /// The floating-point numbers.
        f64s: F64 of f64;
        /// The flags and letters.
        u8s: U8 of u8;
        /// The resource limits.
        limits: Limits of [u64; LIMITS];
    }

    /// The text of a row.
    pub fn text(&self, row: usize) -> Option<&[u8]> {
        match self {
            Values::Text(offsets, bytes) => bytes.get(range(offsets, row)?),
            _ => None,
        }
    }

    /// The list of a row.
    pub fn ids(&self, row: usize) -> Option<&[u32]> {
        match self {
            Values::Ids(offsets, ids) => ids.get(range(offsets, row)?),
            _ => None,
        }
    }
}

/// The values of one field.
#[derive(Debug)]
pub struct Column {
    /// The id of the field.
    pub field: u32,
    /// The values. That of a row without one has no meaning.
    pub values: Values,
    /// For each row, why its value is missing, or 0.
    pub reasons: Vec<Reason>,
    /// The number of missing values.
    pub missing: usize,
}

impl Column {
    /// An empty column.
    pub fn new(field: u32, of: Type) -> Column {
        let values = match of {
            Type::U64 => Values::U64(Vec::new()),
            Type::I64 => Values::I64(Vec::new()),
            Type::F64 => Values::F64(Vec::new()),
            Type::U8 => Values::U8(Vec::new()),
            Type::Text => Values::Text(vec![0], Vec::new()),
            Type::Ids => Values::Ids(vec![0], Vec::new()),
            Type::Limits => Values::Limits(Vec::new()),
        };
        Column {
            field,
            values,
            reasons: Vec::new(),
            missing: 0,
        }
    }

    /// Removes all rows, and keeps their memory.
    pub fn clear(&mut self) {
        match &mut self.values {
            Values::U64(values) => values.clear(),
            Values::I64(values) => values.clear(),
            Values::F64(values) => values.clear(),
            Values::U8(values) => values.clear(),
            Values::Text(offsets, bytes) => {
                offsets.truncate(1);
                bytes.clear();
            }
            Values::Ids(offsets, ids) => {
                offsets.truncate(1);
                ids.clear();
            }
            Values::Limits(values) => values.clear(),
        }
        self.reasons.clear();
        self.missing = 0;
    }

    /// Appends a value, or the reason for its absence.
    pub fn push(&mut self, value: Result<Value<'_>, Reason>) {
        let reason = match value {
            Ok(value) if self.put(value) => 0,
            // The value is of another kind than the field table says.
            Ok(_) => reason(Absent::Unsupported),
            Err(reason) => reason,
        };
        if reason != 0 {
            self.put_nothing();
            self.missing += 1;
        }
        self.reasons.push(reason);
    }

    /// Appends what a row has: a value, or one part of a list of descriptors. `Ok(None)`: the field
    /// does not apply to the row.
    pub fn push_found(&mut self, found: Known<Option<Value<'_>>>, part: Option<Part>) {
        let found = found.map_err(reason).and_then(|found| found.ok_or(NONE));
        match (found, part) {
            (Ok(Value::Owners(owners)), Some(Part::Pids)) => self.push_ids(Ok(owners.iter().map(|owner| owner.pid))),
            (Ok(Value::Owners(owners)), Some(Part::Fds)) => self.push_ids(Ok(owners.iter().map(|owner| owner.fd))),
            // The queries always include names, so each owner has one.
            (Ok(Value::Owners(owners)), Some(Part::Comms)) => {
                let comms = owners.iter().map(|owner| owner.comm.as_deref().unwrap_or_default());
                self.push_texts(Ok(comms));
            }
            (Ok(value), None) => self.push(Ok(value)),
            (Ok(_), _) => self.push(Err(reason(Absent::Unsupported))),
            (Err(reason), _) => self.push(Err(reason)),
        }
    }

    /// Appends a list of numbers to a column of lists of numbers.
    fn push_ids(&mut self, list: Result<impl Iterator<Item = u32>, Reason>) {
        match (list, &mut self.values) {
            (Ok(list), Values::Ids(offsets, ids)) => {
                ids.extend(list);
                offsets.push(ids.len() as u64);
                self.reasons.push(0);
            }
            (list, _) => self.push(Err(list.err().unwrap_or(reason(Absent::Unsupported)))),
        }
    }

    /// Appends a list of texts to a column of texts, with a NUL after each.
    fn push_texts<'a>(&mut self, list: Result<impl Iterator<Item = &'a [u8]>, Reason>) {
        match (list, &mut self.values) {
            (Ok(list), Values::Text(offsets, bytes)) => {
                for text in list {
                    bytes.extend_from_slice(text);
                    bytes.push(0);
                }
                offsets.push(bytes.len() as u64);
                self.reasons.push(0);
            }
            (list, _) => self.push(Err(list.err().unwrap_or(reason(Absent::Unsupported)))),
        }
    }

    fn put(&mut self, value: Value<'_>) -> bool {
        match (&mut self.values, value) {
            (Values::U64(values), Value::Unsigned(value) | Value::Mask(value)) => values.push(value),
            (Values::I64(values), Value::Signed(value)) => values.push(value),
            (Values::F64(values), Value::Float(value)) => values.push(value),
            (Values::U8(values), Value::Flag(value)) => values.push(value.into()),
            // The kernel's states are ASCII letters.
            (Values::U8(values), Value::Letter(letter)) if letter.is_ascii() => values.push(letter as u8),
            (Values::Text(offsets, bytes), value) => {
                match value {
                    Value::Text(text) => bytes.extend_from_slice(text),
                    Value::Texts(list) => {
                        for text in list {
                            bytes.extend_from_slice(text);
                            bytes.push(0);
                        }
                    }
                    Value::Cpus(cpus) => bytes.extend_from_slice(cpus.to_string().as_bytes()),
                    _ => return false,
                }
                offsets.push(bytes.len() as u64);
            }
            (Values::Ids(offsets, ids), Value::Ids(list)) => {
                ids.extend(list);
                offsets.push(ids.len() as u64);
            }
            (Values::Limits(values), Value::Limits(limits)) => {
                let mut row = [u64::MAX; LIMITS];
                for (place, (_, soft, hard)) in row.chunks_exact_mut(2).zip(limits) {
                    place.copy_from_slice(&[soft.unwrap_or(u64::MAX), hard.unwrap_or(u64::MAX)]);
                }
                values.push(row);
            }
            _ => return false,
        }
        true
    }

    fn put_nothing(&mut self) {
        match &mut self.values {
            Values::U64(values) => values.push(0),
            Values::I64(values) => values.push(0),
            Values::F64(values) => values.push(0.0),
            Values::U8(values) => values.push(0),
            Values::Text(offsets, bytes) => offsets.push(bytes.len() as u64),
            Values::Ids(offsets, ids) => offsets.push(ids.len() as u64),
            Values::Limits(values) => values.push([0; LIMITS]),
        }
    }
}

/// The range of a row's items.
fn range(offsets: &[u64], row: usize) -> Option<Range<usize>> {
    Some(*offsets.get(row)? as usize..*offsets.get(row.checked_add(1)?)? as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every push adds one row, and that clear() leaves an empty column.
    #[test]
    fn columns_have_a_place_for_each_row() {
        let values = [
            Value::Unsigned(7),
            Value::Mask(9),
            Value::Signed(-7),
            Value::Float(0.5),
            Value::Flag(true),
            Value::Letter('S'),
            Value::Text(b"a\0b"),
        ];
        for of in [
            Type::U64,
            Type::I64,
            Type::F64,
            Type::U8,
            Type::Text,
            Type::Ids,
            Type::Limits,
        ] {
            let mut column = Column::new(1, of);
            for _ in 0..2 {
                for value in values {
                    column.push(Ok(value));
                }
                column.push(Err(reason(Absent::Denied)));
                column.push(Ok(Value::Letter('é')));
                let rows = match &column.values {
                    Values::U64(values) => values.len(),
                    Values::I64(values) => values.len(),
                    Values::F64(values) => values.len(),
                    Values::U8(values) => values.len(),
                    Values::Text(offsets, _) | Values::Ids(offsets, _) => offsets.len() - 1,
                    Values::Limits(values) => values.len(),
                };
                assert_eq!((rows, column.reasons.len()), (9, 9));
                let taken = column.reasons.iter().filter(|&&reason| reason == 0).count();
                let expected = match of {
                    Type::U64 | Type::U8 => 2,
                    Type::I64 | Type::F64 | Type::Text => 1,
                    Type::Ids | Type::Limits => 0,
                };
                assert_eq!((taken, column.missing), (expected, 9 - expected));
                assert_eq!(column.reasons[7], reason(Absent::Denied));
                column.clear();
            }
        }
    }

    /// Check that each text of a list has a NUL after it, and that a title has no more.
    #[test]
    fn lists_of_texts_end_in_nuls() {
        let mut texts = Column::new(1, Type::Text);
        for list in [&b"a\0\0b\0"[..], b"title\0\0\0", b"title", b""] {
            texts.push(Ok(Value::Texts(taskdiag::Arguments::new(list))));
        }
        let Values::Text(offsets, bytes) = &texts.values else {
            panic!("{texts:?}")
        };
        let lists: Vec<&[u8]> = offsets
            .windows(2)
            .map(|at| &bytes[at[0] as usize..at[1] as usize])
            .collect();
        assert_eq!(lists, [&b"a\0\0b\0"[..], b"title\0", b"title\0", b""]);
    }

    /// Check that lists are where their offsets say.
    #[test]
    fn lists_are_where_offsets_say() {
        let mut texts = Column::new(1, Type::Text);
        texts.push_texts(Ok([b"a".as_slice(), b""].into_iter()));
        texts.push_texts(Err::<std::iter::Empty<&[u8]>, Reason>(NONE));
        texts.push_ids(Ok([1].into_iter()));
        let mut ids = Column::new(1, Type::Ids);
        ids.push_ids(Ok([3, 4].into_iter()));
        ids.push_ids(Err::<std::iter::Empty<u32>, Reason>(NONE));
        let (Values::Text(offsets, bytes), Values::Ids(places, numbers)) = (&texts.values, &ids.values) else {
            panic!("these are other columns");
        };
        assert_eq!(
            (bytes.as_slice(), offsets.as_slice()),
            (b"a\0\0".as_slice(), [0, 3, 3, 3].as_slice())
        );
        assert_eq!(
            (numbers.as_slice(), places.as_slice()),
            ([3, 4].as_slice(), [0, 2, 2].as_slice())
        );
        assert_eq!(texts.reasons, [0, NONE, reason(Absent::Unsupported)]);
        assert_eq!(range(places, 0), Some(0..2));
        assert_eq!(range(places, 2), None);
        assert_eq!(range(places, usize::MAX), None);
    }
}
