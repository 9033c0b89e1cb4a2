//! Makes any bytes harmless for a terminal, reversibly.
//!
//! A process chooses its name and its arguments. In a table, everything that a terminal might not
//! show as a visible character is written as an escape: `\n`, `\t`, `\x1b`, `\u{202e}`, and `\\`
//! for a backslash, so that different texts stay different.

use std::io::Write;

/// Appends `bytes`, escaped.
pub fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    if is_all_plain(bytes) {
        return out.extend_from_slice(bytes);
    }
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|character| escape_char(out, character));
        chunk.invalid().iter().for_each(|&byte| hex(out, byte));
    }
}

/// A text of others, escaped.
pub fn escaped<T: AsRef<[u8]> + ?Sized>(text: &T) -> String {
    let mut escaped = Vec::new();
    escape(&mut escaped, text.as_ref());
    String::from_utf8_lossy(&escaped).into_owned()
}

/// A message, whose lines and backslashes stay as they are, without anything else that could control
/// a terminal: it may quote names of others.
pub fn message(text: &str) -> String {
    let mut message = Vec::new();
    for character in text.chars() {
        match character {
            '\n' | '\\' => message.push(character as u8),
            _ => escape_char(&mut message, character),
        }
    }
    String::from_utf8_lossy(&message).into_owned()
}

/// The same as one line, for a log.
pub fn line(text: &str) -> String {
    message(text).replace('\n', "\\n")
}

/// Whether the bytes need no escape.
pub fn is_all_plain(bytes: &[u8]) -> bool {
    all(bytes, is_plain)
}

/// Whether `test` is true for all bytes. It looks at 16 at once, which is faster for most texts.
#[inline]
pub fn all(bytes: &[u8], test: impl Fn(u8) -> bool) -> bool {
    let chunks = bytes.chunks_exact(16);
    let rest = chunks.remainder().iter().all(|&byte| test(byte));
    rest && chunks
        .into_iter()
        .all(|chunk| chunk.iter().fold(true, |so_far, &byte| so_far & test(byte)))
}

/// Whether the byte never needs an escape: visible ASCII or a space, but not a backslash.
fn is_plain(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) & (byte != b'\\')
}

fn escape_char(out: &mut Vec<u8>, character: char) {
    match character {
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        ' '..='~' => out.push(character as u8),
        '\0'..='\x1f' | '\x7f' => hex(out, character as u8),
        _ if changes_the_display(character) => {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
        }
        _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Characters beyond ASCII that control the terminal: C1 controls, line separators, marks that
/// change the text direction, and invisible characters.
pub fn changes_the_display(character: char) -> bool {
    matches!(
        character,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

fn hex(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(&[
        b'\\',
        b'x',
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        escape(&mut out, bytes);
        String::from_utf8(out).expect("escaped text is UTF-8")
    }

    /// Check that nothing that controls a terminal is left, and that different bytes stay
    /// different.
    #[test]
    fn hostile_bytes_become_escapes() {
        assert_eq!(escaped(b"plain (name)"), "plain (name)");
        assert_eq!(escaped(b"\x1b[31mred\x07"), "\\x1b[31mred\\x07");
        assert_eq!(escaped(b"a\nb\tc\\n"), "a\\nb\\tc\\\\n");
        assert_eq!(escaped("größe 日本".as_bytes()), "größe 日本");
        assert_eq!(escaped(b"\xff\xc3"), "\\xff\\xc3");
        assert_eq!(escaped("\u{202e}\u{9b}".as_bytes()), "\\u{202e}\\u{9b}");
    }
}
