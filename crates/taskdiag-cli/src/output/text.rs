//! Texts of others, made harmless for a terminal.

pub use taskdiag_core::escape::*;
use unicode_width::UnicodeWidthStr as _;

/// The text that `write` appends.
pub fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// A text in lines of this width, broken between words. A line that begins with spaces stays as it is:
/// below it there may be a mark.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    if text.starts_with(' ') {
        return vec![text.to_owned()];
    }
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if lines[last].is_empty() {
            lines[last].push_str(word);
        } else if lines[last].width() + 1 + word.width() <= width {
            lines[last] = format!("{} {word}", lines[last]);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Appends a word in quotes for a shell, if it needs some: `'…'` as in pgrep, and `$'…'` with escapes
/// for what a terminal might not show.
pub fn quote_for_shell(out: &mut Vec<u8>, word: &[u8]) {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+:,./-".contains(byte);
    if !word.is_empty() && word.iter().all(is_safe) {
        return out.extend_from_slice(word);
    }
    let escaped = escaped(word);
    let backslashes = word.iter().filter(|&&byte| byte == b'\\').count();
    let is_plain = escaped.len() == word.len() + backslashes;
    out.extend_from_slice(if is_plain { b"'" } else { b"$'" });
    for &byte in word {
        match byte {
            b'\'' if is_plain => out.extend_from_slice(b"'\\''"),
            b'\'' | b'\\' if !is_plain => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ if is_plain => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'\'');
}

/// Whether the locale says that the terminal supports UTF-8.
pub fn locale_is_utf8() -> bool {
    let variables = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = variables
        .into_iter()
        .filter_map(std::env::var_os)
        .find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
