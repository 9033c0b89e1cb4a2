//! The relation of tasks: its columns, and what tables of tasks make of them.

use std::sync::LazyLock;

use taskdiag::{Arguments, Field, Fields, Value};

use super::cell::command_line;
use super::listing::{self, CompositeCell, Content, ListingColumn};
use super::relation::{ColumnInfo, Row};
use super::table::{Align, Table};
use super::terminal::Style;
use super::{people, text};

/// The columns: [`Field::ALL`].
pub static RELATION: LazyLock<Vec<ColumnInfo>> =
    LazyLock::new(|| Field::ALL.iter().map(|&field| ColumnInfo::of_task(field)).collect());

/// The column of a field, with its name as heading.
pub fn shown(field: Field) -> ListingColumn {
    shown_as(field.name(), field)
}

/// The column of a field under another heading.
pub const fn shown_as(heading: &'static str, field: Field) -> ListingColumn {
    let shown = ListingColumn::column(heading, field as usize);
    match field {
        Field::State => ListingColumn {
            style: Style::of_state,
            ..shown
        },
        _ => shown,
    }
}

/// The fields that columns need.
pub fn fields<'a>(columns: impl IntoIterator<Item = &'a ListingColumn>) -> Fields {
    let needs = columns.into_iter().flat_map(|shown| shown.content.needs());
    needs.map(|column| Field::ALL[column]).collect()
}

/// The field that a column shows, if it shows one.
pub fn field_of(shown: &ListingColumn) -> Option<Field> {
    match shown.content {
        Content::Column(column) => Some(Field::ALL[column]),
        Content::Composite(_) => None,
    }
}

/// A table of these columns with room for about `rows` rows, with headings if `header`.
pub fn table(columns: &[ListingColumn], rows: usize, header: bool) -> Table {
    listing::table(columns, &RELATION, rows, header)
}

/// The value of a field, if there is one.
fn value(row: &dyn Row, field: Field) -> Option<Value<'_>> {
    row.cell(field as usize).ok()
}

/// The name of the effective user.
pub static USER: CompositeCell = CompositeCell {
    align: Align::Left,
    needs: &[Field::Euid as usize],
    write: |out, row, cells| match value(row, Field::Euid) {
        Some(Value::Unsigned(uid)) => text::escape(out, cells.names.user(uid as u32)),
        _ => out.push(b'-'),
    },
};

/// The name of the controlling terminal.
pub static TERMINAL: CompositeCell = CompositeCell {
    align: Align::Left,
    needs: &[Field::TtyNr as usize],
    write: |out, row, _| match value(row, Field::TtyNr) {
        Some(Value::Unsigned(device)) => people::terminal(out, device as u32),
        _ => out.push(b'-'),
    },
};

/// The start time, in five characters.
pub static START: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[Field::StartNs as usize],
    write: |out, row, cells| match value(row, Field::StartNs) {
        Some(Value::Unsigned(ns)) => cells.clock().short_date(out, ns as i64),
        Some(Value::Signed(ns)) => cells.clock().short_date(out, ns),
        _ => out.push(b'-'),
    },
};

/// Processor time.
pub static TIME: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[Field::UtimeNs as usize, Field::StimeNs as usize],
    write: |out, row, cells| match (value(row, Field::UtimeNs), value(row, Field::StimeNs)) {
        (Some(Value::Unsigned(user)), Some(Value::Unsigned(system))) => {
            let sum = user.saturating_add(system);
            if cells.exact {
                people::number(out, sum)
            } else {
                people::duration(out, sum)
            }
        }
        _ => out.push(b'-'),
    },
};

/// The command line, or the name in brackets if there is none.
pub static COMMAND: CompositeCell = CompositeCell {
    align: Align::Left,
    needs: &[Field::Cmdline as usize, Field::Comm as usize, Field::State as usize],
    write: |out, row, _| command(out, row),
};

/// Appends the command line; for a task without one, the name in brackets, like ps.
fn command(out: &mut Vec<u8>, row: &dyn Row) {
    let has_text = |arguments: &Arguments<'_>| arguments.as_bytes().iter().any(|&byte| byte != 0);
    match value(row, Field::Cmdline) {
        Some(Value::Texts(arguments)) if has_text(&arguments) => return command_line(out, arguments),
        _ => {}
    }
    out.push(b'[');
    match value(row, Field::Comm) {
        Some(Value::Text(name)) => text::escape(out, name),
        _ => out.push(b'?'),
    }
    out.push(b']');
    if value(row, Field::State) == Some(Value::Letter('Z')) {
        out.extend_from_slice(b" <defunct>");
    }
}

#[cfg(test)]
mod tests {
    use taskdiag::Absent;

    use super::super::cell::Cells;
    use super::super::relation::tests::TestRow;
    use super::super::relation::Absences;
    use super::*;

    fn text(shown: &ListingColumn, exact: bool, row: &TestRow<'_>) -> String {
        let mut out = Vec::new();
        let (cells, absences) = (&mut Cells::new(exact, false), &mut Absences::default());
        shown.write(&mut out, &RELATION, row, cells, absences);
        String::from_utf8(out).expect("cells are UTF-8")
    }

    /// Check that sizes and times are for people unless exact values are asked for, and that a
    /// missing value is not a number.
    #[test]
    fn values_are_for_people_or_exact() {
        let row = TestRow(vec![
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
        let local = people::Clock::new();
        let local = crate::output::text::written(|out| local.local(out, b"2026-11-23T03:12:05Z"));
        for (field, people, exact) in [
            (Field::RssBytes, "12.3M", "12900000"),
            (Field::UtimeNs, "00:00:01.500", "1500000000"),
            (Field::CapEffective, "0x1ff", "0x1ff"),
            (Field::Comm, "\\x1b]0;owned\\x07", "\\x1b]0;owned\\x07"),
            (Field::Cgroup, "\"\"", "\"\""),
            (Field::SwapBytes, "-", "-"),
            (Field::CpuPercent, "12.3", "12.345"),
            (Field::Unit, "(none)", "(none)"),
            (Field::StartTime, &local, "2026-11-23T03:12:05Z"),
        ] {
            assert_eq!(text(&shown(field), false, &row), people);
            assert_eq!(text(&shown(field), true, &row), exact);
        }
    }

    /// Check what is shown for tasks with a command line, without one, and with an erased one.
    #[test]
    fn commands_are_like_those_of_ps() {
        let column = ListingColumn::made("COMMAND", &COMMAND);
        let mut row = TestRow(vec![
            (Field::Cmdline, Ok(Value::Texts(Arguments::new(b"cat\0a b\0\n\0")))),
            (Field::Comm, Ok(Value::Text(b"cat"))),
            (Field::State, Ok(Value::Letter('S'))),
        ]);
        assert_eq!(text(&column, false, &row), "cat a b \\n");
        row.0[0].1 = Ok(Value::Texts(Arguments::new(b"\0\0\0")));
        assert_eq!(text(&column, false, &row), "[cat]");
        row.0[0].1 = Err(Absent::NoMemory);
        row.0[2].1 = Ok(Value::Letter('Z'));
        assert_eq!(text(&column, false, &row), "[cat] <defunct>");
    }
}
