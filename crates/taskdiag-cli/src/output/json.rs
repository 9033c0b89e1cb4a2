//! JSON: exact values, and a reason for every missing one.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use taskdiag::files::Owner;
use taskdiag::Value;

use super::cell::{formatted, plain};
use super::names::{name_key, NameKind, Named, Names};
use super::text::{all, changes_the_display};
use super::{people, Absences, Cell, Extras, HasValues, Key};

/// Writes rows as objects: a key for each field that has a value, and `absent` with the reasons for
/// the other fields.
#[derive(Debug)]
pub struct Rows<K> {
    keys: Vec<RowKey<K>>,
    /// Set if numbers are written with their names.
    names: Option<Names>,
    absent: Vec<(&'static str, &'static str)>,
}

/// A field and its key as written in a row, colon included.
#[derive(Debug)]
struct RowKey<K> {
    field: K,
    key: Vec<u8>,
    /// The key for the names of its values, with comma and colon.
    names: Option<(NameKind, Vec<u8>)>,
}

impl<K: Key> Rows<K> {
    /// A writer of rows with these fields.
    pub fn new(fields: &[K], named: bool) -> Rows<K> {
        let key = |&field: &K| RowKey {
            field,
            key: format!("\"{}\":", field.name()).into_bytes(),
            names: field
                .named()
                .zip(name_key(field))
                .filter(|_| named)
                .map(|(kind, key)| (kind, format!(",\"{key}\":").into_bytes())),
        };
        Rows {
            keys: fields.iter().map(key).collect(),
            names: named.then(Names::default),
            absent: Vec::new(),
        }
    }

    /// Appends a row. Extras have their own keys, after the fields.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        row: &impl HasValues<Key = K>,
        extras: Extras<'_>,
        absences: &mut Absences<K>,
    ) {
        self.absent.clear();
        let mut before = b'{';
        for RowKey { field, key, names } in &self.keys {
            match absences.value(row, *field) {
                Ok(value) => {
                    out.push(before);
                    before = b',';
                    out.extend_from_slice(key);
                    write_value(out, value);
                    if let (Some(known), Some((kind, key))) = (&mut self.names, names) {
                        if let Some(named) = known.of(*kind, &value) {
                            out.extend_from_slice(key);
                            write_named(out, &named);
                        }
                    }
                }
                Err(_) if row.is_without(*field) => {}
                Err(reason) => self.absent.push((field.name(), reason.as_str())),
            }
        }
        for &(name, extra) in extras {
            match extra {
                Ok(extra) => {
                    out.push(before);
                    before = b',';
                    string(out, name);
                    out.push(b':');
                    extra.write_json(out);
                }
                Err(reason) => self.absent.push((name, reason)),
            }
        }
        if !self.absent.is_empty() {
            out.push(before);
            before = b',';
            out.extend_from_slice(b"\"absent\":");
            object(out, &self.absent, |&(name, reason)| {
                (name, move |out: &mut Vec<u8>| string(out, reason))
            });
        }
        if before == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
    }
}

fn write_named(out: &mut Vec<u8>, named: &Named) {
    match named {
        Named::One(name) => text(out, name),
        Named::Members(names) => list(out, names.iter(), |out, name| string(out, name)),
    }
}

/// Appends a row of named values: a key for each existing value, and `absent` with the reasons for
/// the others.
pub fn named_row(out: &mut Vec<u8>, keys: &[&'static str], cells: &[Cell<'_>]) {
    let pairs = || keys.iter().zip(cells);
    let mut before = b'{';
    for (key, cell) in pairs() {
        if let Ok(value) = cell {
            out.push(before);
            before = b',';
            string(out, key);
            out.push(b':');
            write_value(out, *value);
        }
    }
    let absent = || pairs().filter_map(|(key, cell)| Some((*key, cell.err()?)));
    if absent().next().is_some() {
        out.push(before);
        before = b',';
        out.extend_from_slice(b"\"absent\":");
        object(out, absent(), |(key, reason)| {
            (key, move |out: &mut Vec<u8>| string(out, reason))
        });
    }
    if before == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
}

/// Appends a value.
pub fn write_value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Text(bytes) => text(out, bytes),
        Value::Texts(texts) => list(out, texts.iter(), text),
        Value::Ids(ids) => list(out, ids.iter(), people::number),
        Value::Owners(owners) => list(out, owners.iter(), owner),
        Value::Letter(letter) => string(out, letter.encode_utf8(&mut [0; 4])),
        Value::Mask(_) | Value::Cpus(_) => {
            out.push(b'"');
            plain(out, value, b',');
            out.push(b'"');
        }
        Value::Limits(limits) => object(out, limits.iter(), |(name, soft, hard)| {
            let both = [("soft", soft), ("hard", hard)];
            (name, move |out: &mut Vec<u8>| {
                object(out, both, |(which, value)| {
                    (which, move |out: &mut Vec<u8>| match value {
                        Some(value) => people::number(out, value),
                        None => string(out, "unlimited"),
                    })
                })
            })
        }),
        Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) | Value::Flag(_) => plain(out, value, b','),
        other => string(out, &other.to_string()),
    }
}

fn owner(out: &mut Vec<u8>, owner: &Owner) {
    out.extend_from_slice(b"{\"pid\":");
    people::number(out, owner.pid);
    if let Ok(comm) = &owner.comm {
        out.extend_from_slice(b",\"comm\":");
        text(out, comm);
    }
    out.extend_from_slice(b",\"fd\":");
    people::number(out, owner.fd);
    out.push(b'}');
}

/// Appends bytes: as a string if they are UTF-8, otherwise as `{"base64": …}`.
pub fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => string(out, text),
        Err(_) => formatted(
            out,
            format_args!("{{\"base64\":\"{}\"}}", Base64Display::new(bytes, &STANDARD)),
        ),
    }
}

/// Appends a string. Characters that could control a terminal are escaped, because people look at
/// JSON too.
pub fn string(out: &mut Vec<u8>, text: &str) {
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) & (byte != b'"') & (byte != b'\\');
    if all(text.as_bytes(), plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        out.push(b'"');
        text.chars().for_each(|character| push_char(out, character));
        out.push(b'"');
    }
}

/// Appends a character of a string.
fn push_char(out: &mut Vec<u8>, character: char) {
    match character {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\0'..='\x1f' | '\x7f' => formatted(out, format_args!("\\u{:04x}", u32::from(character))),
        _ if changes_the_display(character) => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                formatted(out, format_args!("\\u{unit:04x}"));
            }
        }
        _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Appends an array of items.
pub fn list<T>(out: &mut Vec<u8>, items: impl Iterator<Item = T>, write: impl Fn(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

/// Appends an object. `entry` makes a key of each item, and a function that appends its value.
pub fn object<'k, T, W>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, entry: impl Fn(T) -> (&'k str, W))
where
    W: FnOnce(&mut Vec<u8>),
{
    out.push(b'{');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let (key, write) = entry(item);
        string(out, key);
        out.push(b':');
        write(out);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use taskdiag::Arguments;
    use taskdiag::{Absent, Field};

    use super::super::tests::Made;
    use super::super::Extra;
    use super::*;

    fn written(made: Made<'_>, depth: Option<u32>) -> serde_json::Value {
        let fields: Vec<Field> = made.0.iter().map(|(field, _)| *field).collect();
        let mut out = Vec::new();
        let depth = depth.map(|depth| ("depth", Ok(Extra::Count(depth.into()))));
        Rows::new(&fields, false).write(&mut out, &made, depth.as_slice(), &mut Absences::new());
        serde_json::from_slice(&out).expect("rows are JSON")
    }

    /// Check the form of every kind of value, and that a missing value has a reason in place of a
    /// key.
    #[test]
    fn rows_have_values_or_reasons() {
        let made = Made(vec![
            (Field::Pid, Ok(Value::Unsigned(u64::MAX))),
            (Field::Nice, Ok(Value::Signed(-5))),
            (Field::KernelThread, Ok(Value::Flag(true))),
            (Field::State, Ok(Value::Letter('S'))),
            (Field::CapEffective, Ok(Value::Mask(0x1ff))),
            (Field::Comm, Ok(Value::Text(b"\xff\x00"))),
            (
                Field::Cmdline,
                Ok(Value::Texts(Arguments::new("é \"\\\n\0\0\u{1}\0".as_bytes()))),
            ),
            (Field::RssBytes, Err(Absent::NoMemory)),
            (Field::CpuPercent, Ok(Value::Float(12.345))),
        ]);
        let expected = serde_json::json!({
            "pid": u64::MAX, "nice": -5, "kernel_thread": true, "state": "S", "cap_effective": "0x1ff",
            "comm": {"base64": "/wA="}, "cmdline": ["é \"\\\n", "", "\u{1}"], "depth": 2,
            "absent": {"rss_bytes": "no memory"}, "cpu_percent": 12.345,
        });
        assert_eq!(written(made, Some(2)), expected);
        assert_eq!(written(Made(vec![]), None), serde_json::json!({}));
        let extras = [
            ("sample", Ok(Extra::Count(1))),
            ("cpu_percent", Err("no earlier sample")),
        ];
        let mut out = Vec::new();
        Rows::new(&[], false).write(&mut out, &Made(vec![]), &extras, &mut Absences::new());
        assert_eq!(
            out,
            b"{\"sample\":1,\"absent\":{\"cpu_percent\":\"no earlier sample\"}}"
        );
    }

    /// Check that no text can control a terminal, and that programs still decode the same text.
    #[test]
    fn strings_have_no_controls() {
        let text = "é\u{9b}31m\x1b[2J\x7f\u{202e}\u{e0001}日\\\"";
        let mut out = Vec::new();
        string(&mut out, text);
        let written = String::from_utf8(out).expect("text");
        let expected = r#"é\u009b31m\u001b[2J\u007f\u202e\udb40\udc01日\\\""#;
        assert_eq!(written, format!("\"{expected}\""));
        assert_eq!(serde_json::from_str::<String>(&written).expect("JSON"), text);
    }

    /// Check that names are written next to numbers, which keep their types, and that a number
    /// without a name has no such key.
    #[test]
    fn names_stand_beside_numbers() {
        let fields = [Field::Uid, Field::Gid, Field::CapEffective, Field::Pid];
        let made = Made(vec![
            (Field::Uid, Ok(Value::Unsigned(0))),
            (Field::Gid, Ok(Value::Unsigned(4_000_000_000))),
            (Field::CapEffective, Ok(Value::Mask(1))),
            (Field::Pid, Ok(Value::Unsigned(1))),
        ]);
        let mut out = Vec::new();
        Rows::new(&fields, true).write(&mut out, &made, &[], &mut Absences::new());
        let expected = serde_json::json!({
            "uid": 0, "uid_name": "root", "gid": 4_000_000_000_u32, "cap_effective": "0x1",
            "cap_effective_names": ["cap_chown"], "pid": 1,
        });
        assert_eq!(
            serde_json::from_slice::<serde_json::Value>(&out).expect("JSON"),
            expected
        );
    }
}
