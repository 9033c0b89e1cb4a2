//! Comma-separated values with the quoting of RFC 4180. Lines end in LF.
//!
//! A missing value is an empty cell, an empty text is `""`. Members of a list are separated by
//! spaces. Bytes that are not UTF-8 are written unchanged; JSON represents them without loss. On a
//! terminal, texts are escaped as in a table.

use std::sync::atomic::{AtomicBool, Ordering};

use taskdiag::Value;

use super::cell::plain;
use super::names::{name_key, Named, Names};
use super::terminal;
use super::text;
use super::{Absences, Cell, Extras, HasValues, Key};

/// The columns of these fields. With `named`, numbers that have names get another column for the
/// names.
pub fn columns<K: Key>(fields: &[K], named: bool) -> Vec<String> {
    let mut columns = Vec::new();
    for field in fields {
        columns.push(field.name().to_owned());
        columns.extend(name_key(*field).filter(|_| named));
    }
    columns
}

/// Appends the header.
pub fn header(out: &mut Vec<u8>, names: impl IntoIterator<Item = impl AsRef<str>>) {
    for (index, name) in names.into_iter().enumerate() {
        separate(out, index);
        out.extend_from_slice(name.as_ref().as_bytes());
    }
    out.push(b'\n');
}

/// Appends the cells of a row. With names, the cell of a number is followed by one with its name.
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
        let value = absences.value(row, field);
        if let Ok(value) = value {
            write_value(out, value);
        }
        let (Some(names), Some(kind)) = (names.as_deref_mut(), field.named()) else {
            continue;
        };
        out.push(b',');
        match value.ok().and_then(|value| names.of(kind, &value)) {
            None => {}
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
}

/// Appends the cells of a row of named values.
pub fn named_row(out: &mut Vec<u8>, cells: &[Cell<'_>]) {
    for (index, value) in cells.iter().enumerate() {
        separate(out, index);
        if let Ok(value) = value {
            write_value(out, *value);
        }
    }
}

static HAS_SAFE_TEXTS: AtomicBool = AtomicBool::new(false);

/// Decides, once at the start of the command, whether a text that a spreadsheet would take for a
/// formula begins with an apostrophe: anybody can give a process such a name.
pub fn choose_safe_texts(safe: bool) {
    HAS_SAFE_TEXTS.store(safe, Ordering::Relaxed);
}

/// Appends a value, quoted if necessary.
pub fn write_value(out: &mut Vec<u8>, value: Value<'_>) {
    let start = out.len();
    plain(out, value, b' ');
    if matches!(
        value,
        Value::Text(_) | Value::Texts(_) | Value::Cpus(_) | Value::Limits(_) | Value::Owners([_, ..])
    ) {
        if !text::is_all_plain(&out[start..]) && terminal::size().is_some() {
            let value = out.split_off(start);
            text::escape(out, &value);
        }
        if HAS_SAFE_TEXTS.load(Ordering::Relaxed)
            && matches!(out.get(start), Some(b'=' | b'+' | b'-' | b'@' | b'\t' | b'\r'))
        {
            out.insert(start, b'\'');
        }
        quote(out, start);
    }
}

/// Appends the separator before the cell of this index.
pub fn separate(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
}

/// Quotes the text since `start` if it needs quoting.
pub fn quote(out: &mut Vec<u8>, start: usize) {
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

    /// Check that cells with separators are quoted, that quotes are doubled, and that missing
    /// values differ from empty ones.
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
        header(
            &mut out,
            columns(&fields, false).iter().map(String::as_str).chain(["depth"]),
        );
        let depth = [("depth", Ok(Extra::Count(3)))];
        row(&mut out, &fields, &made, &depth, None, &mut Absences::new());
        let expected = "pid,comm,cgroup,rss_bytes,cmdline,depth\n1,\"a,\"\"b\"\"\n\",\"\",,sh -c x,3";
        assert_eq!(String::from_utf8(out).expect("made of UTF-8"), expected);
    }

    /// Check that names have separate cells, even where a number is missing or has no name.
    #[test]
    fn names_stand_behind_numbers() {
        let made = Made(vec![
            (Field::Uid, Ok(Value::Unsigned(0))),
            (Field::Gid, Ok(Value::Unsigned(4_000_000_000))),
            (Field::Euid, Err(Absent::Denied)),
            (Field::CapEffective, Ok(Value::Mask(0b11))),
        ]);
        let fields = [Field::Uid, Field::Gid, Field::Euid, Field::CapEffective];
        let expected = [
            "uid",
            "uid_name",
            "gid",
            "gid_name",
            "euid",
            "euid_name",
            "cap_effective",
            "cap_effective_names",
        ];
        assert_eq!(columns(&fields, true), expected);
        let mut out = Vec::new();
        row(
            &mut out,
            &fields,
            &made,
            &[],
            Some(&mut Names::default()),
            &mut Absences::new(),
        );
        let expected = "0,root,4000000000,,,,0x3,cap_chown cap_dac_override";
        assert_eq!(String::from_utf8(out).expect("made of UTF-8"), expected);
    }
}
