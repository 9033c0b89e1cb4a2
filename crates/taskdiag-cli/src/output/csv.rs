//! Comma-separated values with the quoting of RFC 4180. Lines end in LF.
//!
//! A missing value is an empty cell, an empty text is `""`. Members of a list are separated by
//! spaces. Bytes that are not UTF-8 are written unchanged; JSON represents them without loss. On a
//! terminal, texts are escaped as in a table.

use std::sync::atomic::{AtomicBool, Ordering};

use taskdiag::Value;

use super::cell::{plain, separated};
use super::terminal;
use super::text;

/// Appends the header.
pub fn header(out: &mut Vec<u8>, names: impl IntoIterator<Item = impl AsRef<str>>) {
    separated(out, b',', names, |out, name| {
        out.extend_from_slice(name.as_ref().as_bytes());
    });
    out.push(b'\n');
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
        Value::Text(_) | Value::Texts(_) | Value::Ids(_) | Value::Cpus(_) | Value::Limits(_) | Value::Owners(_)
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

/// Quotes the text since `start` if it needs quoting.
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
