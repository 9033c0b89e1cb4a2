//! Columns: the values of one field for all rows, and the reasons for missing values.

use arrow_buffer::{NullBuffer, ToByteSlice as _};
use taskdiag::{Absent, Kind, Limits};
use taskdiag_core::column::{Column as Memory, Reason, Type};

/// Why an address is in no file: reasons of Python's own tables.
pub const VDSO: Reason = 102;
/// Nothing is mapped there.
pub const UNMAPPED: Reason = 103;
/// The memory has no file.
pub const ANONYMOUS: Reason = 104;
/// The mapping is another one of the kernel.
pub const SPECIAL: Reason = 105;

fn word(reason: Reason) -> &'static str {
    match reason {
        VDSO => "vdso",
        UNMAPPED => "unmapped",
        ANONYMOUS => "anonymous",
        SPECIAL => "special",
        known => Absent::from_wire(known.into()).as_str(),
    }
}

/// The type of the values of a kind: letters are texts here.
pub const fn type_of(kind: Kind) -> Type {
    match kind {
        Kind::Letter => Type::Text,
        kind => Type::of(kind),
    }
}

/// The values of one field.
#[derive(Clone, Debug)]
pub struct Column {
    /// The name of the field.
    pub name: &'static str,
    /// The kind of the values.
    pub kind: Kind,
    /// The values, and the reasons for missing ones. Arrow's offsets have 31 bits.
    pub memory: Memory<i32>,
    /// The number of rows, when the column is complete.
    pub len: usize,
}

impl Column {
    /// An empty column with room for about this many rows.
    pub fn new(name: &'static str, kind: Kind, of: Type, rows: usize) -> Column {
        Column {
            name,
            kind,
            memory: Memory::new(of, rows),
            len: 0,
        }
    }

    /// Completes the column.
    pub fn finish(mut self) -> Column {
        self.len = self.memory.reasons.len();
        self.memory.shrink();
        self
    }

    /// Whether the value of a row is missing.
    pub fn is_absent(&self, row: usize) -> bool {
        self.memory.reasons.get(row).is_some_and(|&reason| reason != 0)
    }

    /// Why the value of a row is missing; `None` if it is not, or if the field does not apply to
    /// the row: for example, the executable's name of a fork.
    pub fn reason(&self, row: usize) -> Option<&'static str> {
        let reason = self.memory.reasons.get(row).filter(|&&reason| reason != 0)?;
        Some(word(*reason)).filter(|word| !word.is_empty())
    }

    /// Which rows have a value; `None` if all have one.
    pub fn validity(&self) -> Option<NullBuffer> {
        let has_value = |reason: &Reason| *reason == 0;
        (self.memory.missing > 0).then(|| self.memory.reasons.iter().map(has_value).collect())
    }

    /// Whether JSON shows the values in hexadecimal.
    pub fn is_mask(&self) -> bool {
        matches!(
            self.kind,
            Kind::Capabilities | Kind::Signals | Kind::Mask | Kind::Address
        )
    }

    /// The limits of a row.
    pub fn limits(&self, row: usize) -> Limits<'_> {
        Limits::new(self.memory.limits(row).unwrap_or_default().to_byte_slice())
    }

    /// The number of bytes that the column takes.
    pub fn bytes(&self) -> usize {
        let memory = &self.memory;
        let ends = memory.ends.len() + memory.texts.len();
        memory.numbers.len() * 8 + (memory.ids.len() + ends) * 4 + memory.bytes.len() + memory.reasons.len()
    }

    /// The name and the value of a row, for people.
    pub fn written(&self, row: usize) -> String {
        let (name, memory) = (self.name, &self.memory);
        if self.is_absent(row) {
            return format!("{name}=<{}>", self.reason(row).unwrap_or_default());
        }
        match memory.of {
            Type::U64 if self.is_mask() => format!("{name}={:#x}", memory.numbers[row]),
            Type::U64 => format!("{name}={}", memory.numbers[row]),
            Type::I64 => format!("{name}={}", memory.numbers[row] as i64),
            Type::F64 => format!("{name}={}", f64::from_bits(memory.numbers[row])),
            Type::U8 => format!("{name}={}", if memory.bytes[row] != 0 { "True" } else { "False" }),
            Type::Text => format!("{name}={:?}", String::from_utf8_lossy(memory.text(row))),
            Type::Limits => format!("{name}=[{}]", self.limits(row).iter().count()),
            Type::Ids | Type::Texts | Type::Owners => format!("{name}=[{}]", memory.range(row).len()),
        }
    }
}
