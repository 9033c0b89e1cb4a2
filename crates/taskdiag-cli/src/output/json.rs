//! JSON: values exactly, and for every missing one its reason.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use taskdiag::{Absent, Field, Value};

use super::cell::{formatted, plain};
use super::text::all;
use super::{people, Absences, Row};

/// Writes rows as objects: a key for each field that has a value, and `absent` with the reasons of the others.
#[derive(Debug)]
pub struct Rows {
    /// The fields, each with its key as it stands in a row, colon included.
    keys: Vec<(Field, Vec<u8>)>,
    absent: Vec<(Field, Absent)>,
}

impl Rows {
    /// Writes these fields.
    pub fn new(fields: &[Field]) -> Rows {
        let key = |field: &Field| format!("\"{}\":", field.name()).into_bytes();
        Rows {
            keys: fields.iter().map(|field| (*field, key(field))).collect(),
            absent: Vec::new(),
        }
    }

    /// Appends a row. A depth stands in a key of its own.
    pub fn write(&mut self, out: &mut Vec<u8>, row: &impl Row, depth: Option<u32>, absences: &mut Absences) {
        self.absent.clear();
        let mut before = b'{';
        for (field, key) in &self.keys {
            match absences.value(row, *field) {
                Ok(value) => {
                    out.push(before);
                    before = b',';
                    out.extend_from_slice(key);
                    write_value(out, value);
                }
                Err(reason) => self.absent.push((*field, reason)),
            }
        }
        if let Some(depth) = depth {
            out.push(before);
            before = b',';
            out.extend_from_slice(b"\"depth\":");
            people::number(out, depth);
        }
        if !self.absent.is_empty() {
            out.push(before);
            before = b',';
            out.extend_from_slice(b"\"absent\":");
            object(out, &self.absent, |&(field, reason)| {
                (field.name(), move |out: &mut Vec<u8>| string(out, reason.as_str()))
            });
        }
        if before == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
    }
}

fn write_value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Text(bytes) => text(out, bytes),
        Value::Texts(texts) => list(out, texts.iter(), text),
        Value::Ids(ids) => list(out, ids.iter(), people::number),
        Value::Letter(letter) => string(out, letter.encode_utf8(&mut [0; 4])),
        Value::Mask(_) | Value::Cpus(_) => {
            out.push(b'"');
            plain(out, value, b',');
            out.push(b'"');
        }
        Value::Unsigned(_) | Value::Signed(_) | Value::Flag(_) => plain(out, value, b','),
    }
}

/// Appends bytes: as a string if they are UTF-8, else as `{"base64": …}`.
fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => string(out, text),
        Err(_) => formatted(
            out,
            format_args!("{{\"base64\":\"{}\"}}", Base64Display::new(bytes, &STANDARD)),
        ),
    }
}

/// Appends a string.
pub fn string(out: &mut Vec<u8>, text: &str) {
    let plain = |byte: u8| (byte >= b' ') & (byte != b'"') & (byte != b'\\');
    if all(text.as_bytes(), plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        serde_json::to_writer(out, text).expect("writing a string into memory can't fail");
    }
}

fn list<T>(out: &mut Vec<u8>, items: impl Iterator<Item = T>, write: impl Fn(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

/// Appends an object of what `entry` makes of the items: a key, and what appends its value.
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
    use super::super::tests::Made;
    use super::*;
    use taskdiag::value::Arguments;

    fn written(made: Made<'_>, depth: Option<u32>) -> serde_json::Value {
        let fields: Vec<Field> = made.0.iter().map(|(field, _)| *field).collect();
        let mut out = Vec::new();
        Rows::new(&fields).write(&mut out, &made, depth, &mut Absences::new());
        serde_json::from_slice(&out).expect("rows are JSON")
    }

    /// Check the form of every kind of value, and that a missing one has a reason instead of a key.
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
        ]);
        let expected = serde_json::json!({
            "pid": u64::MAX, "nice": -5, "kernel_thread": true, "state": "S", "cap_effective": "0x1ff",
            "comm": {"base64": "/wA="}, "cmdline": ["é \"\\\n", "", "\u{1}"], "depth": 2, "absent": {"rss_bytes": "no memory"},
        });
        assert_eq!(written(made, Some(2)), expected);
        assert_eq!(written(Made(vec![]), None), serde_json::json!({}));
    }
}
