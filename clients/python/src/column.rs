//! Columns: the values of one field for all rows, and the reasons for missing values.

use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use taskdiag::{Absent, Kind, Known, Value};

/// The values of a column in memory.
#[derive(Clone, Debug)]
pub enum Data {
    /// Unsigned numbers.
    Unsigned(ScalarBuffer<u64>),
    /// Bit masks and addresses, which JSON shows in hexadecimal.
    Mask(ScalarBuffer<u64>),
    /// Signed numbers.
    Signed(ScalarBuffer<i64>),
    /// Floating-point numbers.
    Float(ScalarBuffer<f64>),
    /// 1 for true, 0 for false.
    Flag(ScalarBuffer<u8>),
    /// Byte strings, usually text.
    Text(Texts),
    /// Lists of byte strings: for each row the end of its texts.
    TextLists(OffsetBuffer<i32>, Texts),
    /// Lists of numbers.
    NumberLists(OffsetBuffer<i32>, ScalarBuffer<u32>),
    /// Resource limits: for each row the end of its limits; their names; their soft and hard
    /// values.
    LimitLists(OffsetBuffer<i32>, Vec<&'static str>, [Vec<Option<u64>>; 2]),
    /// Descriptors of processes: for each row the end of its list; all descriptors.
    OwnerLists(OffsetBuffer<i32>, Owners),
}

/// Descriptors of processes, in consecutive order.
#[derive(Clone, Debug)]
pub struct Owners {
    /// Their processes.
    pub pids: ScalarBuffer<u32>,
    /// The names of these processes.
    pub comms: Texts,
    /// The descriptors.
    pub fds: ScalarBuffer<u32>,
}

/// Byte strings, in consecutive order.
#[derive(Clone, Debug)]
pub struct Texts {
    /// Where each begins and ends.
    pub offsets: OffsetBuffer<i32>,
    /// All their bytes.
    pub bytes: Buffer,
}

impl Texts {
    /// The text at an index.
    pub fn get(&self, index: usize) -> &[u8] {
        &self.bytes[self.offsets[index] as usize..self.offsets[index + 1] as usize]
    }
}

/// The values of one field.
#[derive(Clone, Debug)]
pub struct Column {
    /// The name of the field.
    pub name: &'static str,
    /// The kind of the values.
    pub kind: Kind,
    /// The values. That of a row without one has no meaning.
    pub data: Data,
    /// Why values are missing.
    pub reasons: Option<Reasons>,
    /// The number of rows.
    pub len: usize,
}

/// Why values of a column are missing.
#[derive(Clone, Debug)]
pub struct Reasons {
    /// For each row, 0 if it has a value, otherwise an index in `words` plus one.
    pub codes: Buffer,
    /// The reasons that occur.
    pub words: Vec<&'static str>,
    /// The number of missing values.
    pub count: usize,
}

impl Column {
    /// Whether the value of a row is missing.
    pub fn is_absent(&self, row: usize) -> bool {
        self.reasons.as_ref().is_some_and(|reasons| reasons.codes[row] != 0)
    }

    /// Why the value of a row is missing; `None` if it is not, or if the field does not apply to
    /// the row: for example, the executable's name of a fork.
    pub fn reason(&self, row: usize) -> Option<&'static str> {
        let reasons = self.reasons.as_ref()?;
        let word = reasons.words[usize::from(reasons.codes[row]).checked_sub(1)?];
        (!word.is_empty()).then_some(word)
    }

    /// The number of missing values.
    pub fn absent_count(&self) -> usize {
        self.reasons.as_ref().map_or(0, |reasons| reasons.count)
    }

    /// Which rows have a value; `None` if all have one.
    pub fn validity(&self) -> Option<NullBuffer> {
        let reasons = self.reasons.as_ref()?;
        Some(reasons.codes.iter().map(|&code| code == 0).collect())
    }
}

/// A column under construction.
#[derive(Debug)]
pub struct Builder {
    name: &'static str,
    kind: Kind,
    values: Values,
    codes: Vec<u8>,
    words: Vec<&'static str>,
    absent: usize,
    len: usize,
    capacity: usize,
}

#[derive(Debug)]
enum Values {
    Unsigned(Vec<u64>),
    Mask(Vec<u64>),
    Signed(Vec<i64>),
    Float(Vec<f64>),
    Flag(Vec<u8>),
    Text(TextsBuilder),
    TextLists(Vec<i32>, TextsBuilder),
    NumberLists(Vec<i32>, Vec<u32>),
    LimitLists(Vec<i32>, Vec<&'static str>, [Vec<Option<u64>>; 2]),
    OwnerLists(Vec<i32>, Vec<[u32; 2]>, TextsBuilder),
}

#[derive(Debug)]
struct TextsBuilder {
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl TextsBuilder {
    fn new(capacity: usize) -> TextsBuilder {
        let mut ends = Vec::with_capacity(capacity + 1);
        ends.push(0);
        TextsBuilder {
            ends,
            bytes: Vec::new(),
        }
    }

    /// Whether this many more bytes fit: Arrow's offsets have 31 bits.
    fn has_room(&self, len: usize) -> bool {
        self.bytes.len() + len <= i32::MAX as usize
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len() as i32);
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.end();
    }

    fn finish(self) -> Texts {
        Texts {
            offsets: offsets(self.ends),
            bytes: Buffer::from_vec(shrunk(self.bytes)),
        }
    }
}

fn offsets(ends: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(shrunk(ends)))
}

/// Releases unused memory.
fn shrunk<T>(mut values: Vec<T>) -> Vec<T> {
    values.shrink_to_fit();
    values
}

impl Builder {
    /// A column with room for about this many rows.
    pub fn new(name: &'static str, kind: Kind, capacity: usize) -> Builder {
        let ends = || {
            let mut ends = Vec::with_capacity(capacity + 1);
            ends.push(0);
            ends
        };
        let values = match kind {
            Kind::Id | Kind::User | Kind::GroupId | Kind::Count | Kind::Bytes | Kind::Nanoseconds | Kind::Mode => {
                Values::Unsigned(Vec::with_capacity(capacity))
            }
            Kind::Capabilities | Kind::Signals | Kind::Mask | Kind::Address => {
                Values::Mask(Vec::with_capacity(capacity))
            }
            Kind::Signed => Values::Signed(Vec::with_capacity(capacity)),
            Kind::Percent => Values::Float(Vec::with_capacity(capacity)),
            Kind::Flag => Values::Flag(Vec::with_capacity(capacity)),
            Kind::Letter | Kind::Text | Kind::Time | Kind::Cpus => Values::Text(TextsBuilder::new(capacity)),
            Kind::Texts => Values::TextLists(ends(), TextsBuilder::new(capacity)),
            Kind::Ids => Values::NumberLists(ends(), Vec::new()),
            Kind::Limits => Values::LimitLists(ends(), Vec::new(), [Vec::new(), Vec::new()]),
        };
        Builder::with_values(name, kind, values, capacity)
    }

    /// A column of lists of descriptors.
    pub fn of_owners(name: &'static str) -> Builder {
        let values = Values::OwnerLists(vec![0], Vec::new(), TextsBuilder::new(0));
        Builder::with_values(name, Kind::Texts, values, 0)
    }

    fn with_values(name: &'static str, kind: Kind, values: Values, capacity: usize) -> Builder {
        Builder {
            name,
            kind,
            values,
            codes: Vec::new(),
            words: Vec::new(),
            absent: 0,
            len: 0,
            capacity,
        }
    }

    /// Appends what a row has for a field. `Ok(None)`: the field does not apply to the row.
    pub fn push_found(&mut self, found: Known<Option<Value<'_>>>) {
        self.push(found.map_err(Absent::as_str).and_then(|value| value.ok_or("none")));
    }

    /// Appends a value, or the reason for its absence.
    pub fn push(&mut self, value: Result<Value<'_>, &'static str>) {
        match value {
            Ok(value) if self.put(value) => {
                if self.absent > 0 {
                    self.codes.push(0);
                }
            }
            // It is negative, which such a number rarely is.
            Ok(Value::Signed(_)) => self.put_absent(Absent::Unsupported.as_str()),
            // The value does not fit, or is of another kind than the field table says.
            Ok(_) => self.put_absent(Absent::Truncated.as_str()),
            Err(reason) => self.put_absent(reason),
        }
        self.len += 1;
    }

    fn put(&mut self, value: Value<'_>) -> bool {
        match (&mut self.values, value) {
            (Values::Unsigned(values), Value::Unsigned(value)) => values.push(value),
            (Values::Mask(values), Value::Mask(value)) => values.push(value),
            (Values::Signed(values), Value::Signed(value)) => values.push(value),
            (Values::Float(values), Value::Float(value)) => values.push(value),
            (Values::Flag(values), Value::Flag(value)) => values.push(value.into()),
            (Values::Text(texts), Value::Text(text)) if texts.has_room(text.len()) => texts.push(text),
            (Values::Text(texts), Value::Letter(letter)) => texts.push(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            (Values::Text(texts), Value::Cpus(cpus)) => texts.push(cpus.to_string().as_bytes()),
            (Values::TextLists(ends, texts), Value::Texts(list)) if texts.has_room(list.as_bytes().len()) => {
                list.iter().for_each(|text| texts.push(text));
                ends.push(texts.ends.len() as i32 - 1);
            }
            (Values::NumberLists(ends, numbers), Value::Ids(list)) => {
                numbers.extend(list.iter());
                ends.push(numbers.len() as i32);
            }
            (Values::OwnerLists(ends, numbers, comms), Value::Owners(owners)) => {
                for owner in owners {
                    numbers.push([owner.pid, owner.fd]);
                    comms.push(owner.comm.as_deref().unwrap_or_default());
                }
                ends.push(numbers.len() as i32);
            }
            (Values::LimitLists(ends, names, [softs, hards]), Value::Limits(limits)) => {
                for (name, soft, hard) in limits {
                    names.push(name);
                    softs.push(soft);
                    hards.push(hard);
                }
                ends.push(names.len() as i32);
            }
            _ => return false,
        }
        true
    }

    fn put_absent(&mut self, reason: &'static str) {
        if self.absent == 0 {
            self.codes.reserve(self.capacity.max(self.len + 1));
            self.codes.resize(self.len, 0);
        }
        let known = self.words.iter().position(|&word| word == reason);
        let index = known.unwrap_or_else(|| {
            self.words.push(reason);
            self.words.len() - 1
        });
        self.codes.push(index as u8 + 1);
        self.absent += 1;
        let repeat = |ends: &mut Vec<i32>| ends.push(ends.last().copied().unwrap_or(0));
        match &mut self.values {
            Values::Unsigned(values) | Values::Mask(values) => values.push(0),
            Values::Signed(values) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Flag(values) => values.push(0),
            Values::Text(texts) => texts.end(),
            Values::TextLists(ends, _) | Values::NumberLists(ends, _) => repeat(ends),
            Values::LimitLists(ends, ..) | Values::OwnerLists(ends, ..) => repeat(ends),
        }
    }

    /// Completes the column.
    pub fn finish(self) -> Column {
        let data = match self.values {
            Values::Unsigned(values) => Data::Unsigned(shrunk(values).into()),
            Values::Mask(values) => Data::Mask(shrunk(values).into()),
            Values::Signed(values) => Data::Signed(shrunk(values).into()),
            Values::Float(values) => Data::Float(shrunk(values).into()),
            Values::Flag(values) => Data::Flag(shrunk(values).into()),
            Values::Text(texts) => Data::Text(texts.finish()),
            Values::TextLists(ends, texts) => Data::TextLists(offsets(ends), texts.finish()),
            Values::NumberLists(ends, numbers) => Data::NumberLists(offsets(ends), shrunk(numbers).into()),
            Values::LimitLists(ends, names, limits) => Data::LimitLists(offsets(ends), names, limits),
            Values::OwnerLists(ends, numbers, comms) => {
                let part = |index: usize| numbers.iter().map(|pair| pair[index]).collect::<Vec<u32>>().into();
                let owners = Owners {
                    pids: part(0),
                    comms: comms.finish(),
                    fds: part(1),
                };
                Data::OwnerLists(offsets(ends), owners)
            }
        };
        let reasons = (self.absent > 0).then(|| Reasons {
            codes: Buffer::from_vec(shrunk(self.codes)),
            words: self.words,
            count: self.absent,
        });
        Column {
            name: self.name,
            kind: self.kind,
            data,
            reasons,
            len: self.len,
        }
    }
}

impl Column {
    /// The size of a number; 0 if the values are not numbers of one size.
    pub fn item_size(&self) -> isize {
        match &self.data {
            Data::Unsigned(_) | Data::Mask(_) | Data::Signed(_) | Data::Float(_) => 8,
            Data::Flag(_) => 1,
            Data::Text(_)
            | Data::TextLists(..)
            | Data::NumberLists(..)
            | Data::LimitLists(..)
            | Data::OwnerLists(..) => 0,
        }
    }

    /// The number of bytes that the column takes.
    pub fn bytes(&self) -> usize {
        let texts = |texts: &Texts| texts.offsets.len() * 4 + texts.bytes.len();
        let data = match &self.data {
            Data::Unsigned(values) | Data::Mask(values) => values.inner().len(),
            Data::Signed(values) => values.inner().len(),
            Data::Float(values) => values.inner().len(),
            Data::Flag(values) => values.inner().len(),
            Data::Text(values) => texts(values),
            Data::TextLists(offsets, values) => offsets.len() * 4 + texts(values),
            Data::NumberLists(offsets, numbers) => offsets.len() * 4 + numbers.inner().len(),
            Data::LimitLists(offsets, names, _) => offsets.len() * 4 + names.len() * 48,
            Data::OwnerLists(offsets, owners) => offsets.len() * 4 + owners.pids.len() * 8 + texts(&owners.comms),
        };
        data + self.reasons.as_ref().map_or(0, |reasons| reasons.codes.len())
    }

    /// The name and the value of a row, for people.
    pub fn written(&self, row: usize) -> String {
        let name = self.name;
        if self.is_absent(row) {
            return format!("{name}=<{}>", self.reason(row).unwrap_or_default());
        }
        let quoted = |bytes: &[u8]| format!("{:?}", String::from_utf8_lossy(bytes));
        match &self.data {
            Data::Unsigned(values) => format!("{name}={}", values[row]),
            Data::Mask(values) => format!("{name}={:#x}", values[row]),
            Data::Signed(values) => format!("{name}={}", values[row]),
            Data::Float(values) => format!("{name}={}", values[row]),
            Data::Flag(values) => format!("{name}={}", if values[row] != 0 { "True" } else { "False" }),
            Data::Text(texts) => format!("{name}={}", quoted(texts.get(row))),
            Data::TextLists(offsets, _)
            | Data::NumberLists(offsets, _)
            | Data::LimitLists(offsets, ..)
            | Data::OwnerLists(offsets, _) => {
                format!("{name}=[{}]", offsets[row + 1] - offsets[row])
            }
        }
    }
}
