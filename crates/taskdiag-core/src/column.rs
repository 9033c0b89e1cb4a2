//! Columns: the values of one field for all rows, and the reasons for missing values. The clients in
//! C and Python keep answers in them.

use std::ops::Range;

use crate::absent::{Absent, Known};
use crate::field::Kind;
use crate::record::LIMITS;
use crate::value::Value;

/// Why a value is missing, as a number: that of an [`Absent`], or a larger one of a client's own. 0
/// means that it is present.
pub type Reason = u8;

/// The number of a reason.
pub fn reason(absent: Absent) -> Reason {
    absent as u16 as Reason
}

/// The type of values in memory. The numbers up to 7 are those of `td_type` in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Type {
    /// Unsigned numbers, masks and addresses.
    U64 = 1,
    /// Signed numbers.
    I64 = 2,
    /// Floating-point numbers.
    F64 = 3,
    /// Flags as 0 and 1, and letters.
    U8 = 4,
    /// Texts of any bytes. A list of texts, or a letter, becomes a text: a list with a NUL after each
    /// of its texts, as in the kernel.
    Text = 5,
    /// Lists of numbers.
    Ids = 6,
    /// The soft and the hard value of each resource limit; `u64::MAX` means no limit.
    Limits = 7,
    /// Lists of texts.
    Texts = 8,
    /// Lists of descriptors: a list of texts has the names of the processes.
    Owners = 9,
}

impl Type {
    /// The type of the values of a kind.
    pub const fn of(kind: Kind) -> Type {
        match kind {
            Kind::Id | Kind::User | Kind::GroupId | Kind::Count | Kind::Bytes | Kind::Nanoseconds | Kind::Mode => {
                Type::U64
            }
            Kind::Capabilities | Kind::Signals | Kind::Mask | Kind::Address => Type::U64,
            Kind::Signed => Type::I64,
            Kind::Percent => Type::F64,
            Kind::Flag | Kind::Letter => Type::U8,
            Kind::Text | Kind::Time | Kind::Cpus => Type::Text,
            Kind::Texts => Type::Texts,
            Kind::Ids => Type::Ids,
            Kind::Limits => Type::Limits,
        }
    }
}

/// The type of offsets.
pub trait Offset: Copy + Default + TryFrom<usize> + TryInto<usize> {}

impl Offset for i32 {}
impl Offset for u64 {}

/// The values of one field, in consecutive order. The value of a row without one has no meaning.
#[derive(Clone, Debug)]
pub struct Column<O> {
    /// The type of the values.
    pub of: Type,
    /// The bits of numbers, and the limits of all rows.
    pub numbers: Vec<u64>,
    /// Flags, letters, and the bytes of texts.
    pub bytes: Vec<u8>,
    /// The items of lists of numbers; for each descriptor its process and its number.
    pub ids: Vec<u32>,
    /// The text or list of row N has the items from `ends[N]` to `ends[N + 1]`.
    pub ends: Vec<O>,
    /// Text N of all lists of texts has the bytes from `texts[N]` to `texts[N + 1]`.
    pub texts: Vec<O>,
    /// For each row, why its value is missing, or 0.
    pub reasons: Vec<Reason>,
    /// The number of missing values.
    pub missing: usize,
}

impl<O: Offset> Column<O> {
    /// An empty column with room for about this many rows.
    pub fn new(of: Type, rows: usize) -> Column<O> {
        let (mut numbers, mut bytes, mut ends, mut texts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        match of {
            Type::U64 | Type::I64 | Type::F64 => numbers.reserve_exact(rows),
            Type::U8 => bytes.reserve_exact(rows),
            Type::Limits => {}
            Type::Text | Type::Ids | Type::Texts | Type::Owners => {
                ends.reserve_exact(rows + 1);
                ends.push(O::default());
                texts.push(O::default());
            }
        }
        Column {
            of,
            numbers,
            bytes,
            ids: Vec::new(),
            ends,
            texts,
            reasons: Vec::with_capacity(rows),
            missing: 0,
        }
    }

    /// Removes all rows, and keeps their memory.
    pub fn clear(&mut self) {
        self.numbers.clear();
        self.bytes.clear();
        self.ids.clear();
        self.ends.truncate(1);
        self.texts.truncate(1);
        self.reasons.clear();
        self.missing = 0;
    }

    /// Releases unused memory, and the reasons if no value is missing.
    pub fn shrink(&mut self) {
        if self.missing == 0 {
            self.reasons.clear();
        }
        self.numbers.shrink_to_fit();
        self.bytes.shrink_to_fit();
        self.ids.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.texts.shrink_to_fit();
        self.reasons.shrink_to_fit();
    }

    /// Appends a value, or the reason for its absence.
    pub fn push(&mut self, value: Result<Value<'_>, Reason>) {
        let put = value.and_then(|value| self.put(value).map_err(reason));
        if put.is_err() {
            self.missing += 1;
            match self.of {
                Type::U64 | Type::I64 | Type::F64 => self.numbers.push(0),
                Type::U8 => self.bytes.push(0),
                Type::Limits => self.numbers.extend([0; 2 * LIMITS]),
                Type::Text | Type::Ids | Type::Texts | Type::Owners => self.end(),
            }
        }
        self.reasons.push(put.err().unwrap_or(0));
    }

    fn put(&mut self, value: Value<'_>) -> Known<()> {
        match (self.of, value) {
            (Type::U64, Value::Unsigned(number) | Value::Mask(number)) => self.numbers.push(number),
            (Type::I64, Value::Signed(number)) => self.numbers.push(number as u64),
            (Type::F64, Value::Float(number)) => self.numbers.push(number.to_bits()),
            (Type::U8, Value::Flag(flag)) => self.bytes.push(flag.into()),
            // The kernel's states are ASCII letters.
            (Type::U8, Value::Letter(letter)) if letter.is_ascii() => self.bytes.push(letter as u8),
            (Type::Limits, Value::Limits(limits)) => {
                let start = self.numbers.len();
                self.numbers.resize(start + 2 * LIMITS, u64::MAX);
                for (place, (_, soft, hard)) in self.numbers[start..].chunks_exact_mut(2).zip(limits) {
                    place.copy_from_slice(&[soft.unwrap_or(u64::MAX), hard.unwrap_or(u64::MAX)]);
                }
            }
            (Type::Text | Type::Ids | Type::Texts | Type::Owners, value) => {
                self.put_items(value)?;
                self.end();
            }
            // The value is of another kind than the field table says.
            _ => return Err(Absent::Unsupported),
        }
        Ok(())
    }

    /// Appends the items of a text or list.
    fn put_items(&mut self, value: Value<'_>) -> Known<()> {
        let most = match value {
            Value::Text(text) => text.len(),
            Value::Texts(list) => list.as_bytes().len(),
            Value::Owners(owners) => owners
                .iter()
                .map(|owner| 2 + owner.comm.as_ref().map_or(0, Vec::len))
                .sum(),
            // Nobody is in more groups, and no set of processors takes more bytes.
            _ => 1 << 16,
        };
        if O::try_from(self.bytes.len().max(self.ids.len()) + most).is_err() {
            return Err(Absent::Truncated);
        }
        match (self.of, value) {
            (Type::Text, Value::Text(text)) => self.bytes.extend_from_slice(text),
            (Type::Text, Value::Texts(list)) => list.iter().for_each(|text| self.put_terminated(text)),
            (Type::Text, Value::Letter(letter)) => {
                self.bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            (Type::Text, Value::Cpus(cpus)) => self.bytes.extend_from_slice(cpus.to_string().as_bytes()),
            (Type::Ids, Value::Ids(list)) => self.ids.extend(list),
            (Type::Texts, Value::Texts(list)) => list.iter().for_each(|text| self.put_text(text)),
            (Type::Owners, Value::Owners(owners)) => {
                for owner in owners {
                    self.ids.extend([owner.pid, owner.fd]);
                    self.put_text(owner.comm.as_deref().unwrap_or_default());
                }
            }
            _ => return Err(Absent::Unsupported),
        }
        Ok(())
    }

    /// Appends a text to a list.
    fn put_text(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.texts.push(offset(self.bytes.len()));
    }

    /// Appends bytes and a NUL.
    pub fn put_terminated(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.bytes.push(0);
    }

    /// Ends the text or list of a row.
    pub fn end(&mut self) {
        self.ends.push(offset(match self.of {
            Type::Text => self.bytes.len(),
            Type::Ids => self.ids.len(),
            _ => self.texts.len() - 1,
        }));
    }

    /// Where the items of a row are.
    pub fn range(&self, row: usize) -> Range<usize> {
        range(&self.ends, row).unwrap_or_default()
    }

    /// The text of a row.
    pub fn text(&self, row: usize) -> &[u8] {
        self.bytes.get(self.range(row)).unwrap_or_default()
    }

    /// The list of a row.
    pub fn ids(&self, row: usize) -> &[u32] {
        self.ids.get(self.range(row)).unwrap_or_default()
    }

    /// A text of all lists of texts.
    pub fn item(&self, index: usize) -> &[u8] {
        let place = range(&self.texts, index).unwrap_or_default();
        self.bytes.get(place).unwrap_or_default()
    }

    /// The limits of a row.
    pub fn limits(&self, row: usize) -> Option<&[u64]> {
        let mut rows = self.numbers.chunks_exact(2 * LIMITS);
        (self.of == Type::Limits).then(|| rows.nth(row))?
    }
}

/// The room for it was checked.
fn offset<O: Offset>(len: usize) -> O {
    O::try_from(len).unwrap_or_default()
}

fn range<O: Offset>(ends: &[O], index: usize) -> Option<Range<usize>> {
    let end = |index: usize| (*ends.get(index)?).try_into().ok();
    Some(end(index)?..end(index.checked_add(1)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Owner;
    use crate::value::Arguments;

    impl Offset for i8 {}

    const TYPES: [Type; 9] = [
        Type::U64,
        Type::I64,
        Type::F64,
        Type::U8,
        Type::Text,
        Type::Ids,
        Type::Limits,
        Type::Texts,
        Type::Owners,
    ];

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
        for of in TYPES {
            let mut column = Column::<u64>::new(of, 0);
            for _ in 0..2 {
                for value in values {
                    column.push(Ok(value));
                }
                column.push(Err(reason(Absent::Denied)));
                column.push(Ok(Value::Letter('é')));
                let rows = match of {
                    Type::U64 | Type::I64 | Type::F64 => column.numbers.len(),
                    Type::U8 => column.bytes.len(),
                    Type::Limits => column.numbers.len() / 32,
                    Type::Text | Type::Ids | Type::Texts | Type::Owners => column.ends.len() - 1,
                };
                assert_eq!((rows, column.reasons.len()), (9, 9));
                let taken = column.reasons.iter().filter(|&&reason| reason == 0).count();
                let expected = match of {
                    // A letter can also be a text.
                    Type::Text => 3,
                    Type::U64 | Type::U8 => 2,
                    Type::I64 | Type::F64 => 1,
                    Type::Ids | Type::Limits | Type::Texts | Type::Owners => 0,
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
        let mut texts = Column::<u64>::new(Type::Text, 0);
        for list in [&b"a\0\0b\0"[..], b"title\0\0\0", b"title", b""] {
            texts.push(Ok(Value::Texts(Arguments::new(list))));
        }
        let lists: Vec<&[u8]> = (0..4).map(|row| texts.text(row)).collect();
        assert_eq!(lists, [&b"a\0\0b\0"[..], b"title\0", b"title\0", b""]);
    }

    /// Check that lists are where their offsets say, and empty where no row is.
    #[test]
    fn lists_are_where_offsets_say() {
        let mut texts = Column::<i32>::new(Type::Texts, 3);
        texts.push(Ok(Value::Texts(Arguments::new(b"a\0\0bc\0"))));
        texts.push(Err(reason(Absent::NotApplicable)));
        texts.push(Ok(Value::Texts(Arguments::new(b"d\0"))));
        let lists: Vec<Vec<&[u8]>> = (0..4)
            .map(|row| texts.range(row).map(|index| texts.item(index)).collect())
            .collect();
        assert_eq!(lists, [vec![&b"a"[..], b"", b"bc"], vec![], vec![&b"d"[..]], vec![]]);
        assert_eq!((texts.range(usize::MAX), texts.item(usize::MAX)), (0..0, &b""[..]));
        let mut owners = Column::<i32>::new(Type::Owners, 2);
        owners.push(Ok(Value::Owners(&[])));
        owners.push(Ok(Value::Owners(&[
            Owner::new(3, 4, Ok(b"a")),
            Owner::new(5, 6, Ok(b"")),
        ])));
        assert_eq!((owners.range(0), owners.range(1)), (0..0, 0..2));
        assert_eq!(
            (&owners.ids[..], owners.item(0), owners.item(1)),
            (&[3, 4, 5, 6][..], &b"a"[..], &b""[..])
        );
        assert_eq!(owners.reasons, [0, 0]);
        owners.shrink();
        assert!(owners.reasons.is_empty() && owners.limits(0).is_none());
    }

    /// Check that a text whose end no offset can say is truncated, and that those after it that fit
    /// are there.
    #[test]
    fn texts_have_room() {
        for of in [Type::Text, Type::Texts] {
            let mut texts = Column::<i8>::new(of, 0);
            for len in [100, 28, 27] {
                let bytes = vec![b'a'; len];
                texts.push(Ok(match of {
                    Type::Text => Value::Text(&bytes),
                    _ => Value::Texts(Arguments::new(&bytes)),
                }));
            }
            assert_eq!(texts.reasons, [0, reason(Absent::Truncated), 0]);
            let lens = (0..3).map(|row| match of {
                Type::Text => texts.text(row).len(),
                _ => texts.range(row).map(|index| texts.item(index).len()).sum(),
            });
            assert_eq!(lens.collect::<Vec<_>>(), [100, 0, 27]);
        }
    }
}
