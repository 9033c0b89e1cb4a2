//! The cells of tables: values for people.

use std::fmt::Write as _;

use clap::ValueEnum;
use taskdiag::{Arguments, Field, Group, Kind, Value};

use super::names::{Named, Names};
use super::people::{self, Clock};
use super::table::{Align, Table};
use super::terminal::Style;
use super::{text, Absences, HasValues, Key as _};

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading: the name of the field, or a word in capitals for a column of a table without
    /// `-o`.
    pub heading: &'static str,
    /// Its content.
    pub show: Show,
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// One field.
    Field(Field),
    /// The name of the effective user.
    User,
    /// The name of the controlling terminal.
    Terminal,
    /// The start time, in five characters.
    Start,
    /// Processor time.
    Time,
    /// The command line, or the name in brackets if there is none.
    Command,
}

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

/// A column with a heading of its own.
pub const fn label(heading: &'static str, show: Show) -> Column {
    Column { heading, show }
}

impl Column {
    /// A column for a field, with the field's name as heading.
    pub fn of(field: Field) -> Column {
        Column {
            heading: field.name(),
            show: Show::Field(field),
        }
    }

    /// A table of these columns with room for about `rows` rows, with headings if `header`.
    pub fn table(columns: &[Column], rows: usize, header: bool) -> Table {
        let mut table = Table::new(columns.iter().map(Column::align), rows);
        if header {
            table.headings(columns.iter().map(|column| column.heading));
        }
        for (index, column) in columns.iter().enumerate() {
            if column.show == Show::Field(Field::State) {
                table.style(index, Style::of_state);
            }
        }
        table
    }

    /// The fields that the column needs.
    pub fn fields(&self) -> &'static [Field] {
        match self.show {
            Show::Field(field) => &Field::ALL[field as usize..=field as usize],
            Show::User => &[Field::Euid],
            Show::Terminal => &[Field::TtyNr],
            Show::Start => &[Field::StartNs],
            Show::Time => &[Field::UtimeNs, Field::StimeNs],
            Show::Command => &[Field::Cmdline, Field::Comm, Field::State],
        }
    }

    /// The alignment of the column.
    pub fn align(&self) -> Align {
        match self.show {
            Show::Field(field) if is_number(field.info().kind) => Align::Right,
            Show::Start | Show::Time => Align::Right,
            _ => Align::Left,
        }
    }
}

/// Writes cells. A missing value is `-`, an empty text `""`.
#[derive(Debug)]
pub struct Cells {
    exact: bool,
    clock: Option<Clock>,
    /// Whether to write names in place of numbers that have names.
    named: bool,
    names: Names,
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
}

impl Scale {
    /// Appends a number of bytes in this unit, with one decimal unless the unit is bytes.
    pub fn write(self, out: &mut Vec<u8>, bytes: u64) {
        let (shift, letter) = match self {
            Scale::Bytes => return people::number(out, bytes),
            Scale::Kibibytes => (10, b'K'),
            Scale::Mebibytes => (20, b'M'),
            Scale::Gibibytes => (30, b'G'),
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

    /// Appends the cell of `row` in `column`.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        column: Column,
        row: &impl HasValues<Key = Field>,
        absences: &mut Absences,
    ) {
        match column.show {
            Show::Field(field) => match absences.value(row, field) {
                Ok(value) => self.value(out, field, value),
                Err(_) => out.push(b'-'),
            },
            Show::User => match absences.value(row, Field::Euid) {
                Ok(Value::Unsigned(uid)) => text::escape(out, self.names.user(uid as u32)),
                _ => out.push(b'-'),
            },
            Show::Terminal => match absences.value(row, Field::TtyNr) {
                Ok(Value::Unsigned(device)) => people::terminal(out, device as u32),
                _ => out.push(b'-'),
            },
            Show::Start => match absences.value(row, Field::StartNs) {
                Ok(Value::Unsigned(ns)) if self.exact => people::number(out, ns),
                Ok(Value::Unsigned(ns)) => self.clock().short_date(out, ns as i64),
                Ok(Value::Signed(ns)) => self.clock().short_date(out, ns),
                _ => out.push(b'-'),
            },
            Show::Time => match (absences.value(row, Field::UtimeNs), absences.value(row, Field::StimeNs)) {
                (Ok(Value::Unsigned(user)), Ok(Value::Unsigned(system))) => {
                    if self.exact {
                        people::number(out, user.saturating_add(system))
                    } else {
                        people::duration(out, user.saturating_add(system))
                    }
                }
                _ => out.push(b'-'),
            },
            Show::Command => command(out, row, absences),
        }
    }

    /// Appends a value of this field. An empty text is written as `""`.
    pub fn value(&mut self, out: &mut Vec<u8>, field: Field, value: Value<'_>) {
        let before = out.len();
        if self.named {
            if let Some(named) = field.named().and_then(|kind| self.names.of(kind, &value)) {
                return name(out, &named);
            }
        }
        match value {
            Value::Unsigned(value) if self.exact => people::number(out, value),
            Value::Unsigned(value) => match field.info().kind {
                Kind::Bytes => self.size(out, value),
                Kind::Nanoseconds if field == Field::StartNs => self.clock().date(out, value as i64),
                Kind::Nanoseconds => people::exact_duration(out, value),
                Kind::Mode => formatted(out, format_args!("{value:04o}")),
                _ => people::number(out, value),
            },
            Value::Signed(ns) if !self.exact && field == Field::StartNs => self.clock().date(out, ns),
            Value::Float(value) if !self.exact => formatted(out, format_args!("{value:.1}")),
            Value::Text(bytes) => text::escape(out, bytes),
            Value::Texts(arguments) => command_line(out, arguments),
            other => plain(out, other, b','),
        }
        if out.len() == before {
            // A derived field has an empty text for a task without a terminal, unit or container.
            let is_derived = field.group() == Group::Derived;
            out.extend_from_slice(if is_derived { b"-" } else { b"\"\"" });
        }
    }

    fn clock(&mut self) -> &mut Clock {
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

/// Appends the command line; for a task without one, the name in brackets, like ps.
pub fn command(out: &mut Vec<u8>, row: &impl HasValues<Key = Field>, absences: &mut Absences) {
    if let Ok(Value::Texts(arguments)) = absences.value(row, Field::Cmdline) {
        if arguments.as_bytes().iter().any(|&byte| byte != 0) {
            return command_line(out, arguments);
        }
    }
    out.push(b'[');
    match absences.value(row, Field::Comm) {
        Ok(Value::Text(name)) => text::escape(out, name),
        _ => out.push(b'?'),
    }
    out.push(b']');
    if matches!(row.value(Field::State), Ok(Value::Letter('Z'))) {
        out.extend_from_slice(b" <defunct>");
    }
}

/// Appends arguments, escaped, separated by spaces.
fn command_line(out: &mut Vec<u8>, arguments: Arguments<'_>) {
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
        Value::Ids(ids) => {
            for (index, id) in ids.iter().enumerate() {
                if index > 0 {
                    out.push(separator);
                }
                people::number(out, id);
            }
        }
        Value::Owners(owners) => {
            for (index, owner) in owners.iter().enumerate() {
                if index > 0 {
                    out.push(separator);
                }
                people::number(out, owner.pid);
                out.push(b'/');
                out.extend_from_slice(owner.comm.as_deref().unwrap_or_default());
                out.push(b':');
                people::number(out, owner.fd);
            }
        }
        Value::Cpus(cpus) => formatted(out, format_args!("{cpus}")),
        other => formatted(out, format_args!("{other}")),
    }
}

/// Appends formatted text.
pub fn formatted(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    struct Bytes<'a>(&'a mut Vec<u8>);
    impl std::fmt::Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    let _ = Bytes(out).write_fmt(arguments);
}

#[cfg(test)]
mod tests {
    use taskdiag::Absent;

    use super::super::tests::Made;
    use super::*;

    fn shown(column: Column, exact: bool, row: &Made<'_>) -> String {
        let mut out = Vec::new();
        Cells::new(exact, false).write(&mut out, column, row, &mut Absences::new());
        String::from_utf8(out).expect("cells are UTF-8")
    }

    /// Check that sizes and times are for people unless exact values are asked for, and that a
    /// missing value is not a number.
    #[test]
    fn values_are_for_people_or_exact() {
        let row = Made(vec![
            (Field::RssBytes, Ok(Value::Unsigned(12_900_000))),
            (Field::UtimeNs, Ok(Value::Unsigned(1_500_000_000))),
            (Field::CapEffective, Ok(Value::Mask(0x1ff))),
            (Field::Comm, Ok(Value::Text(b"\x1b]0;owned\x07"))),
            (Field::Cgroup, Ok(Value::Text(b""))),
            (Field::SwapBytes, Err(Absent::NoMemory)),
            (Field::CpuPercent, Ok(Value::Float(12.345))),
            (Field::Unit, Ok(Value::Text(b""))),
            (Field::StartTime, Ok(Value::Text(b"2026-11-23T03:12:05Z"))),
        ]);
        for (field, people, exact) in [
            (Field::RssBytes, "12.3M", "12900000"),
            (Field::UtimeNs, "00:00:01.500", "1500000000"),
            (Field::CapEffective, "0x1ff", "0x1ff"),
            (Field::Comm, "\\x1b]0;owned\\x07", "\\x1b]0;owned\\x07"),
            (Field::Cgroup, "\"\"", "\"\""),
            (Field::SwapBytes, "-", "-"),
            (Field::CpuPercent, "12.3", "12.345"),
            (Field::Unit, "-", "-"),
            (Field::StartTime, "2026-11-23T03:12:05Z", "2026-11-23T03:12:05Z"),
        ] {
            assert_eq!(shown(Column::of(field), false, &row), people);
            assert_eq!(shown(Column::of(field), true, &row), exact);
        }
    }

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

    /// Check what is shown for tasks with a command line, without one, and with an erased one.
    #[test]
    fn commands_are_like_those_of_ps() {
        let column = Column {
            heading: "COMMAND",
            show: Show::Command,
        };
        let mut row = Made(vec![
            (Field::Cmdline, Ok(Value::Texts(Arguments::new(b"cat\0a b\0\n\0")))),
            (Field::Comm, Ok(Value::Text(b"cat"))),
            (Field::State, Ok(Value::Letter('S'))),
        ]);
        assert_eq!(shown(column, false, &row), "cat a b \\n");
        row.0[0].1 = Ok(Value::Texts(Arguments::new(b"\0\0\0")));
        assert_eq!(shown(column, false, &row), "[cat]");
        row.0[0].1 = Err(Absent::NoMemory);
        row.0[2].1 = Ok(Value::Letter('Z'));
        assert_eq!(shown(column, false, &row), "[cat] <defunct>");
    }
}
