//! JSON: exact values, and a reason for every missing one.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use taskdiag::files::Owner;
use taskdiag::Value;

use super::cell::{formatted, plain, separated};
use super::people;
use super::text::{all, changes_the_display};

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
    out.push(b'"');
    if all(text.as_bytes(), plain) {
        out.extend_from_slice(text.as_bytes());
    } else {
        text.chars().for_each(|character| push_char(out, character));
    }
    out.push(b'"');
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
    separated(out, b',', items, write);
    out.push(b']');
}

/// Appends an object. `entry` makes a key of each item, and a function that appends its value.
pub fn object<'k, T, W>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, entry: impl Fn(T) -> (&'k str, W))
where
    W: FnOnce(&mut Vec<u8>),
{
    out.push(b'{');
    separated(out, b',', items, |out, item| {
        let (key, write) = entry(item);
        string(out, key);
        out.push(b':');
        write(out);
    });
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
