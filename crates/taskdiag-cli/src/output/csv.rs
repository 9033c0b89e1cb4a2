//! Comma-separated values after RFC 4180: lines end in CR LF, text that needs it stands in quotes.
//!
//! A missing value is an empty cell, an empty text `""`. The members of a list have a space between them. Bytes that are no
//! UTF-8 are written as they are; where that won't do, JSON has them losslessly.

use taskdiag::Value;

use super::cell::plain;
use super::named::Cell;
use super::names::{Named, Names};
use super::{Absences, Extras, HasValues, Key};

/// Appends the header: fields, and behind them what the extras of each row are.
pub fn header<K: Key>(out: &mut Vec<u8>, fields: &[K], extras: &[&str]) {
    let names = fields.iter().map(|field| field.name());
    for (index, name) in names.chain(extras.iter().copied()).enumerate() {
        separate(out, index);
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a row; with names, numbers that have one are written by it.
pub fn row<R: HasValues>(
    out: &mut Vec<u8>,
    fields: &[R::Key],
    row: &R,
    extras: Extras<'_>,
    mut names: Option<&mut Names>,
    absences: &mut Absences<R::Key>,
) {
    for (index, &field) in fields.iter().enumerate() {
        separate(out, index);
        let Ok(value) = absences.value(row, field) else {
            continue;
        };
        match names.as_deref_mut().and_then(|names| names.of(field.kind(), &value)) {
            None => write_value(out, value),
            Some(Named::One(name)) => write_value(out, Value::Text(&name)),
            Some(Named::Members(names)) => write_value(out, Value::Text(names.join(" ").as_bytes())),
        }
    }
    for (index, (_, extra)) in extras.iter().enumerate() {
        separate(out, fields.len() + index);
        if let Ok(extra) = extra {
            extra.write(out);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a row of named values.
pub fn named_row(out: &mut Vec<u8>, cells: &[Cell<'_>]) {
    for (index, value) in cells.iter().enumerate() {
        separate(out, index);
        if let Ok(value) = value {
            write_value(out, *value);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a value, in quotes if it needs them.
pub fn write_value(out: &mut Vec<u8>, value: Value<'_>) {
    let start = out.len();
    plain(out, value, b' ');
    if matches!(
        value,
        Value::Text(_) | Value::Texts(_) | Value::Cpus(_) | Value::Limits(_)
    ) {
        quote(out, start);
    }
}

/// Appends what stands before the cell of this index.
pub fn separate(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
}

/// Puts what was appended since `start` into quotes if it needs them.
fn quote(out: &mut Vec<u8>, start: usize) {
    let text = &out[start..];
    let outer_space = text.first() == Some(&b' ') || text.last() == Some(&b' ');
    let special = |byte: &u8| matches!(byte, b'"' | b',' | b'\r' | b'\n');
    if !text.is_empty() && !outer_space && !text.iter().any(special) {
        return;
    }
    let text = out.split_off(start);
    out.push(b'"');
    for byte in text {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use taskdiag::Arguments;
    use taskdiag::{Absent, Field};

    use super::super::tests::Made;
    use super::super::Extra;
    use super::*;

    /// Check that cells with separators are quoted, quotes doubled, and missing told from empty.
    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let made = Made(vec![
            (Field::Pid, Ok(Value::Unsigned(1))),
            (Field::Comm, Ok(Value::Text(b"a,\"b\"\n"))),
            (Field::Cgroup, Ok(Value::Text(b""))),
            (Field::RssBytes, Err(Absent::NoMemory)),
            (Field::Cmdline, Ok(Value::Texts(Arguments::new(b"sh\0-c\0x\0")))),
        ]);
        let fields = [Field::Pid, Field::Comm, Field::Cgroup, Field::RssBytes, Field::Cmdline];
        let mut out = Vec::new();
        header(&mut out, &fields, &["depth"]);
        let depth = [("depth", Ok(Extra::Count(3)))];
        row(&mut out, &fields, &made, &depth, None, &mut Absences::new());
        let expected = "pid,comm,cgroup,rss_bytes,cmdline,depth\r\n1,\"a,\"\"b\"\"\n\",\"\",,sh -c x,3\r\n";
        assert_eq!(String::from_utf8(out).expect("made of UTF-8"), expected);
    }
}
