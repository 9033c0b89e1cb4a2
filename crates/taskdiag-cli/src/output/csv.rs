//! Comma-separated values after RFC 4180: lines end in CR LF, text that needs it stands in quotes.
//!
//! A missing value is an empty cell, an empty text `""`. The members of a list have a space between them. Bytes that are no
//! UTF-8 are written as they are; where that won't do, JSON has them losslessly.

use taskdiag::{Field, Value};

use super::cell::plain;
use super::{people, Absences, Row};

/// Appends the header. With depths, there is one more column for them.
pub fn header(out: &mut Vec<u8>, fields: &[Field], depth: bool) {
    let names = fields.iter().map(|field| field.name());
    for (index, name) in names.chain(depth.then_some("depth")).enumerate() {
        separate(out, index);
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a row.
pub fn row(out: &mut Vec<u8>, fields: &[Field], row: &impl Row, depth: Option<u32>, absences: &mut Absences) {
    for (index, &field) in fields.iter().enumerate() {
        separate(out, index);
        match absences.value(row, field) {
            Ok(value @ (Value::Text(_) | Value::Texts(_) | Value::Cpus(_))) => {
                let start = out.len();
                plain(out, value, b' ');
                quote(out, start);
            }
            Ok(value) => plain(out, value, b' '),
            Err(_) => {}
        }
    }
    if let Some(depth) = depth {
        separate(out, fields.len());
        people::number(out, depth);
    }
    out.extend_from_slice(b"\r\n");
}

fn separate(out: &mut Vec<u8>, index: usize) {
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
    use super::super::tests::Made;
    use super::*;
    use taskdiag::value::Arguments;
    use taskdiag::Absent;

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
        header(&mut out, &fields, true);
        row(&mut out, &fields, &made, Some(3), &mut Absences::new());
        let expected = "pid,comm,cgroup,rss_bytes,cmdline,depth\r\n1,\"a,\"\"b\"\"\n\",\"\",,sh -c x,3\r\n";
        assert_eq!(String::from_utf8(out).expect("made of UTF-8"), expected);
    }
}
