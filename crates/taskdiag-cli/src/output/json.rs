//! JSON: values exactly, and for every missing one its reason.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use taskdiag::Value;

use super::cell::{formatted, plain};
use super::named::{Cell, Total};
use super::names::{Named, Names};
use super::text::all;
use super::{people, Absences, Extras, HasValues, Key};

/// Writes rows as objects: a key for each field that has a value, and `absent` with the reasons of the others.
#[derive(Debug)]
pub struct Rows<K> {
    /// The fields, each with its key as it stands in a row, colon included.
    keys: Vec<(K, Vec<u8>)>,
    /// If numbers that have names are to be written as these.
    names: Option<Names>,
    absent: Vec<(&'static str, &'static str)>,
}

impl<K: Key> Rows<K> {
    /// Writes these fields.
    pub fn new(fields: &[K], named: bool) -> Rows<K> {
        let key = |field: &K| format!("\"{}\":", field.name()).into_bytes();
        Rows {
            keys: fields.iter().map(|field| (*field, key(field))).collect(),
            names: named.then(Names::default),
            absent: Vec::new(),
        }
    }

    /// Appends a row. Extras stand in keys of their own, behind the fields.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        row: &impl HasValues<Key = K>,
        extras: Extras<'_>,
        absences: &mut Absences<K>,
    ) {
        self.absent.clear();
        let mut before = b'{';
        for (field, key) in &self.keys {
            match absences.value(row, *field) {
                Ok(value) => {
                    out.push(before);
                    before = b',';
                    out.extend_from_slice(key);
                    match self.names.as_mut().and_then(|names| names.of(field.kind(), &value)) {
                        None => write_value(out, value),
                        Some(Named::One(name)) => text(out, &name),
                        Some(Named::Members(names)) => list(out, names.iter(), |out, name| string(out, name)),
                    }
                }
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
                    extra.write(out);
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

/// Appends the end of a document, with what its rows add up to if that is known.
pub fn end_document(out: &mut Vec<u8>, total: Total<'_>) {
    out.extend_from_slice(b"\n]");
    if let Some((keys, cells)) = total {
        out.extend_from_slice(b",\"total\":");
        named_row(out, keys, cells);
    }
    out.extend_from_slice(b"}\n");
}

/// Appends a row of named values: a key for each that there is, and `absent` with the reasons of the others.
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
}
