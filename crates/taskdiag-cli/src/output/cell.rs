//! The cells of tables: values for people.

use std::io::Write as _;

use clap::ValueEnum;
use taskdiag::{Arguments, Kind, Value};

use super::names::{Named, Names};
use super::people::{self, Clock};
use super::relation::{Cell, ColumnInfo};
use super::text;

/// Whether values of a kind are numbers, which tables align right.
pub fn is_number(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Id
            | Kind::User
            | Kind::GroupId
            | Kind::Mode
            | Kind::Count
            | Kind::Signed
            | Kind::Bytes
            | Kind::Nanoseconds
            | Kind::Percent
    )
}

/// Writes the values of cells for people. A missing value is `-`.
#[derive(Debug)]
pub struct Cells {
    pub exact: bool,
    clock: Option<Clock>,
    /// Whether to write names in place of numbers that have names.
    named: bool,
    pub names: Names,
    scale: Option<Scale>,
}

/// A fixed unit for sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scale {
    /// Bytes
    #[value(name = "B")]
    Bytes,
    /// KiB: 1024 bytes
    #[value(name = "K")]
    Kibibytes,
    /// MiB
    #[value(name = "M")]
    Mebibytes,
    /// GiB
    #[value(name = "G")]
    Gibibytes,
    /// Pages, rounded up
    #[value(skip)]
    Pages,
}

impl Scale {
    /// Appends a number of bytes in this unit, with one decimal unless the unit is bytes.
    pub fn write(self, out: &mut Vec<u8>, bytes: u64) {
        let (shift, letter) = match self {
            Scale::Bytes => return people::number(out, bytes),
            Scale::Kibibytes => (10, b'K'),
            Scale::Mebibytes => (20, b'M'),
            Scale::Gibibytes => (30, b'G'),
            Scale::Pages => return people::number(out, bytes.div_ceil(rustix::param::page_size() as u64)),
        };
        let tenths = (u128::from(bytes) * 10 + (1 << (shift - 1))) >> shift;
        formatted(out, format_args!("{}.{}", tenths / 10, tenths % 10));
        out.push(letter);
    }
}

impl Cells {
    /// Writes sizes and times for people, or exactly as numbers of bytes and nanoseconds. With
    /// `named`, writes names in place of numbers that have names.
    pub fn new(exact: bool, named: bool) -> Cells {
        Cells {
            exact,
            clock: None,
            named,
            names: Names::default(),
            scale: None,
        }
    }

    /// Writes all sizes in one unit, if one is given.
    pub fn in_scale(mut self, scale: Option<Scale>) -> Cells {
        self.scale = scale;
        self
    }

    /// Appends a number of bytes.
    pub fn size(&self, out: &mut Vec<u8>, bytes: u64) {
        match self.scale {
            _ if self.exact => people::number(out, bytes),
            Some(scale) => scale.write(out, bytes),
            None => people::size(out, bytes),
        }
    }

    /// Appends what a row has in a column.
    #[inline]
    pub fn cell(&mut self, out: &mut Vec<u8>, column: &ColumnInfo, cell: Cell<'_>) {
        match cell {
            Ok(value) => self.value(out, column, value),
            Err(_) => out.push(b'-'),
        }
    }

    /// Appends a value of this column.
    pub fn value(&mut self, out: &mut Vec<u8>, column: &ColumnInfo, value: Value<'_>) {
        let before = out.len();
        if self.named {
            if let Some(named) = column.names().and_then(|kind| self.names.of(kind, &value)) {
                return name(out, &named);
            }
        }
        match value {
            Value::Unsigned(value) if self.exact => people::number(out, value),
            Value::Unsigned(value) => match column.kind {
                Kind::Bytes => self.size(out, value),
                Kind::Nanoseconds => self.time(out, column, value as i64),
                Kind::Mode => formatted(out, format_args!("{value:04o}")),
                _ => people::number(out, value),
            },
            Value::Signed(ns) if !self.exact && column.kind == Kind::Nanoseconds => self.time(out, column, ns),
            Value::Float(value) if !self.exact && column.kind == Kind::Bytes => self.size(out, value as u64),
            Value::Float(value) if !self.exact => formatted(out, format_args!("{value:.1}")),
            Value::Text(utc) if !self.exact && column.kind == Kind::Time => self.clock().local(out, utc),
            Value::Text(bytes) => text::escape(out, bytes),
            Value::Texts(arguments) => command_line(out, arguments),
            Value::Owners([]) => out.push(b'-'),
            Value::Owners(_) => {
                let mut owners = Vec::new();
                plain(&mut owners, value, b',');
                text::escape(out, &owners);
            }
            other => plain(out, other, b','),
        }
        if out.len() == before {
            out.extend_from_slice(column.empty.as_bytes());
        }
    }

    /// Appends a date, a time of day, or a time span.
    fn time(&mut self, out: &mut Vec<u8>, column: &ColumnInfo, ns: i64) {
        match column.name {
            "start_ns" => self.clock().date(out, ns),
            "time_ns" => self.clock().time_of_day(out, ns),
            _ => people::exact_duration(out, ns as u64),
        }
    }

    /// The wall clock.
    pub fn clock(&mut self) -> &mut Clock {
        self.clock.get_or_insert_with(Clock::new)
    }
}

/// Appends a name, or the names of the members of a set.
fn name(out: &mut Vec<u8>, named: &Named) {
    match named {
        Named::One(name) => text::escape(out, name),
        Named::Members(names) if names.is_empty() => out.extend_from_slice(b"\"\""),
        Named::Members(names) => out.extend_from_slice(names.join(",").as_bytes()),
    }
}

/// Appends arguments, escaped, separated by spaces.
pub fn command_line(out: &mut Vec<u8>, arguments: Arguments<'_>) {
    let start = out.len();
    arguments.join(out);
    // A space is not part of any escape, so escaping the whole equals escaping the parts.
    if !text::is_all_plain(&out[start..]) {
        let joined = out.split_off(start);
        text::escape(out, &joined);
    }
}

/// Appends a value exactly. Texts are appended unchanged; the ids or descriptors of a list are
/// joined with `separator`.
pub fn plain(out: &mut Vec<u8>, value: Value<'_>, separator: u8) {
    match value {
        Value::Unsigned(value) => people::number(out, value),
        Value::Signed(value) => people::number(out, value),
        Value::Float(value) => formatted(out, format_args!("{value}")),
        Value::Flag(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Value::Letter(letter) => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        Value::Mask(bits) => formatted(out, format_args!("{bits:#x}")),
        Value::Text(bytes) => out.extend_from_slice(bytes),
        Value::Texts(arguments) => arguments.join(out),
        Value::Ids(ids) => separated(out, separator, ids.iter(), people::number),
        Value::Owners(owners) => separated(out, separator, owners, |out, owner| {
            people::number(out, owner.pid);
            out.push(b'/');
            out.extend_from_slice(owner.comm.as_deref().unwrap_or_default());
            out.push(b':');
            people::number(out, owner.fd);
        }),
        Value::Cpus(cpus) => formatted(out, format_args!("{cpus}")),
        other => formatted(out, format_args!("{other}")),
    }
}

/// Appends items, with a separator between any two.
pub fn separated<T>(
    out: &mut Vec<u8>,
    separator: u8,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(separator);
        }
        write(out, item);
    }
}

/// Appends formatted text.
pub fn formatted(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(arguments);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all sizes are in the chosen unit, and are rounded once.
    #[test]
    fn units_are_kept() {
        let shown = |scale: Scale, bytes| {
            let mut out = Vec::new();
            scale.write(&mut out, bytes);
            String::from_utf8(out).expect("digits")
        };
        assert_eq!(shown(Scale::Bytes, 1_234_567), "1234567");
        assert_eq!(shown(Scale::Kibibytes, 1_234_567), "1205.6K");
        assert_eq!(shown(Scale::Mebibytes, 1_048_575), "1.0M");
        assert_eq!(shown(Scale::Gibibytes, 0), "0.0G");
        assert_eq!(shown(Scale::Gibibytes, u64::MAX), "17179869184.0G");
    }
}
