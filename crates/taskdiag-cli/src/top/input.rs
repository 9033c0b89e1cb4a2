//! Converts the bytes that a terminal sends to keys.
//!
//! crossterm can read keys, but it waits within an incomplete escape sequence, and never returns if
//! the terminal goes away during the wait. This decoder uses the bytes that are there.

use std::str;

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    Char(char),
    F(u8),
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
    Insert,
    Delete,
    Backspace,
    Enter,
    Esc,
    Tab,
    BackTab,
    WheelUp,
    WheelDown,
    /// What follows is pasted, or is not any more.
    Paste(bool),
    /// A click of the left button: its column and its line.
    Click(u16, u16),
}

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its meaning.
    pub code: Code,
    /// Whether Ctrl was held.
    pub control: bool,
    /// Whether it was not pressed, but is part of a text that was pasted.
    pub pasted: bool,
}

impl Key {
    /// A key without modifiers.
    pub const fn plain(code: Code) -> Key {
        Key {
            code,
            control: false,
            pasted: false,
        }
    }

    /// A letter together with Ctrl.
    pub const fn control(letter: char) -> Key {
        Key {
            control: true,
            ..Key::plain(Code::Char(letter))
        }
    }
}

/// The most bytes that are read at once.
pub const READ_BYTES: usize = 4096;

/// Longer sequences do not come from a keyboard.
const MAX_SEQUENCE: usize = 64;

/// Converts bytes to keys.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The start of a sequence whose end has not arrived.
    pending: Vec<u8>,
    is_paste: bool,
}

impl Decoder {
    /// The keys for these bytes, continuing the previous ones. An escape byte at the end is the key
    /// Esc: terminals send sequences in one piece. But as many bytes as are read at once may end
    /// within one.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        // The end of a paste can be lost: these keys end it, too. They are pressed alone, and those in
        // what is pasted are not.
        self.is_paste &= !matches!(bytes, [0x03 | 0x1b]);
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut rest = self.pending.as_slice();
        while let Some(step) = next(rest).filter(|_| rest != [0x1b] || bytes.len() < READ_BYTES) {
            match step.key.map(|key| key.code) {
                Some(Code::Paste(is_paste)) => self.is_paste = is_paste,
                _ => keys.extend(step.key.map(|key| Key {
                    pasted: self.is_paste,
                    ..key
                })),
            }
            rest = &rest[step.taken..];
        }
        if rest.len() > MAX_SEQUENCE {
            rest = &[];
        }
        self.pending = rest.to_vec();
        keys
    }
}

/// The result of decoding the first bytes.
struct Step {
    /// `None` for a sequence without a meaning here.
    key: Option<Key>,
    taken: usize,
}

fn step(key: Option<Key>, taken: usize) -> Option<Step> {
    Some(Step { key, taken })
}

/// Decodes the first bytes. `None` if there are none, or only the start of a sequence.
fn next(bytes: &[u8]) -> Option<Step> {
    let plain = |code| Some(Key::plain(code));
    match *bytes.first()? {
        0x1b => escape(bytes),
        b'\r' | b'\n' => step(plain(Code::Enter), 1),
        b'\t' => step(plain(Code::Tab), 1),
        0x7f | 0x08 => step(plain(Code::Backspace), 1),
        byte @ 0x01..=0x1a => step(Some(Key::control(char::from(byte - 1 + b'a'))), 1),
        0x00..=0x1f => step(None, 1),
        _ => character(bytes),
    }
}

/// A character in UTF-8. A byte that is not part of one has no meaning.
fn character(bytes: &[u8]) -> Option<Step> {
    let first = &bytes[..bytes.len().min(4)];
    let (valid, is_incomplete) = match str::from_utf8(first) {
        Ok(text) => (text, false),
        Err(error) => (
            str::from_utf8(&first[..error.valid_up_to()]).unwrap_or_default(),
            error.error_len().is_none(),
        ),
    };
    match valid.chars().next() {
        Some(character) => step(Some(Key::plain(Code::Char(character))), character.len_utf8()),
        None if is_incomplete => None,
        None => step(None, 1),
    }
}

fn escape(bytes: &[u8]) -> Option<Step> {
    match bytes.get(1) {
        None => step(Some(Key::plain(Code::Esc)), 1),
        Some(b'[') => sequence(bytes),
        Some(b'O') => {
            let code = bytes.get(2).map(|&byte| last_letter(byte))?;
            step(code.map(Key::plain), 3)
        }
        Some(0x1b) => step(Some(Key::plain(Code::Esc)), 1),
        // A key pressed with Alt. It has no meaning here.
        Some(_) => step(None, 1 + next(&bytes[1..])?.taken),
    }
}

/// A control sequence: parameters, then a letter or a tilde.
fn sequence(bytes: &[u8]) -> Option<Step> {
    let parameters = &bytes[2..];
    // The function keys of the Linux console.
    if let Some(rest) = parameters.strip_prefix(b"[") {
        let number = rest.first()?.checked_sub(b'A').filter(|number| *number < 5);
        return step(number.map(|number| Key::plain(Code::F(number + 1))), 4);
    }
    let length = parameters.iter().position(|byte| !(0x20..=0x3f).contains(byte))?;
    // A control byte is a key of its own: the rest of the sequence does not come.
    if parameters[length] < 0x20 {
        return step(None, 2 + length);
    }
    let taken = 2 + length + 1;
    let code = match parameters[length] {
        b'~' => {
            let number = parameters[..length].split(|&byte| byte == b';').next();
            let number = number.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
            number.and_then(numbered)
        }
        b'Z' => Some(Code::BackTab),
        letter @ (b'M' | b'm') if parameters[0] == b'<' => mouse(&parameters[1..length], letter == b'M'),
        // What terminals send that do not know that form: three bytes follow.
        b'M' if length == 0 => {
            bytes.get(taken + 2)?;
            return step(None, taken + 3);
        }
        b'M' => None,
        letter => last_letter(letter),
    };
    step(code.map(Key::plain), taken)
}

/// A report of the mouse: button, column and line, which count from 1. The left button and the wheel
/// have a meaning, without modifiers.
fn mouse(report: &[u8], is_pressed: bool) -> Option<Code> {
    let mut numbers = str::from_utf8(report).ok()?.split(';').map(str::parse::<u16>);
    let mut number = || numbers.next()?.ok();
    match (number()?, number()?.checked_sub(1)?, number()?.checked_sub(1)?) {
        (0, x, y) if is_pressed => Some(Code::Click(x, y)),
        (64, ..) => Some(Code::WheelUp),
        (65, ..) => Some(Code::WheelDown),
        _ => None,
    }
}

fn last_letter(letter: u8) -> Option<Code> {
    Some(match letter {
        b'A' => Code::Up,
        b'B' => Code::Down,
        b'C' => Code::Right,
        b'D' => Code::Left,
        b'H' => Code::Home,
        b'F' => Code::End,
        b'M' => Code::Enter,
        letter @ b'P'..=b'S' => Code::F(letter - b'P' + 1),
        _ => return None,
    })
}

fn numbered(number: u8) -> Option<Code> {
    Some(match number {
        1 | 7 => Code::Home,
        2 => Code::Insert,
        3 => Code::Delete,
        4 | 8 => Code::End,
        5 => Code::PageUp,
        6 => Code::PageDown,
        11..=15 => Code::F(number - 10),
        17..=21 => Code::F(number - 11),
        23 | 24 => Code::F(number - 12),
        200 | 201 => Code::Paste(number == 200),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn codes(bytes: &[u8]) -> Vec<Code> {
        let keys = Decoder::default().feed(bytes);
        assert!(keys.iter().all(|key| !key.control));
        keys.into_iter().map(|key| key.code).collect()
    }

    /// Check letters, sequences from several kinds of terminals, and sequences without a meaning.
    #[test]
    fn bytes_are_keys() {
        assert_eq!(
            codes("qä日".as_bytes()),
            [Code::Char('q'), Code::Char('ä'), Code::Char('日')]
        );
        assert_eq!(codes(b"\r\t\x7f"), [Code::Enter, Code::Tab, Code::Backspace]);
        assert_eq!(codes(b"\x1b"), [Code::Esc]);
        assert_eq!(codes(b"\x1b\x1b"), [Code::Esc, Code::Esc]);
        assert_eq!(codes(b"\x1b[A\x1bOB\x1b[1;5C"), [Code::Up, Code::Down, Code::Right]);
        assert_eq!(
            codes(b"\x1b[5~\x1b[6~\x1b[3;2~"),
            [Code::PageUp, Code::PageDown, Code::Delete]
        );
        assert_eq!(codes(b"\x1b[H\x1b[1~\x1bOF"), [Code::Home, Code::Home, Code::End]);
        assert_eq!(
            codes(b"\x1bOP\x1b[[B\x1b[13~\x1b[24~"),
            [Code::F(1), Code::F(2), Code::F(3), Code::F(12)]
        );
        assert_eq!(codes(b"\x1b[Z"), [Code::BackTab]);
        assert_eq!(codes(b"\x1bx\x1b[99~\x1b[?1;2c\xff\x00q"), [Code::Char('q')]);
        assert_eq!(
            Decoder::default().feed(b"\x03\x1a"),
            [Key::control('c'), Key::control('z')]
        );
    }

    /// Check that a control byte ends a sequence, and is a key.
    #[test]
    fn sequences_end_at_keys() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.feed(b"\x1b["), []);
        assert_eq!(decoder.feed(b"\x03"), [Key::control('c')]);
    }

    /// Check that a text is pasted up to its end, or up to Ctrl-C or Esc that come alone.
    #[test]
    fn pastes_end() {
        for end in [&b"\x1b[201~"[..], b"\x03", b"\x1b"] {
            let mut decoder = Decoder::default();
            let mut is_pasted = |bytes| decoder.feed(bytes).last().is_some_and(|key| key.pasted);
            assert!(!is_pasted(b"a\x1b[200~"));
            assert!(is_pasted(b"a\r\x01") && is_pasted(b"b"));
            assert!(is_pasted(b"a\x03b") && is_pasted(b"\x1b\x1b[0mc"));
            assert!(!is_pasted(end) && !is_pasted(b"c"), "{end:?}");
        }
    }

    /// Check that reports of the mouse are clicks and turns of the wheel, and that neither other
    /// reports, nor pieces, nor what other terminals send are keys.
    #[test]
    fn the_mouse_is_no_key() {
        assert_eq!(
            codes(b"\x1b[<0;7;3M\x1b[<0;7;3m\x1b[<64;1;1M\x1b[<65;1;1M"),
            [Code::Click(6, 2), Code::WheelUp, Code::WheelDown]
        );
        for report in [
            &b"\x1b[<2;7;3M"[..],
            b"\x1b[<16;7;3M",
            b"\x1b[<35;7;3M",
            b"\x1b[<0;0;3M",
            b"\x1b[<0;7M",
            b"\x1b[<M",
            b"\x1b[<0;99999;1M",
            b"\x1b[<-1;?;1M",
            b"\x1b[M qk",
            b"\x1b[0;7;3M",
        ] {
            assert_eq!(codes(report), [], "{report:?}");
        }
        let mut decoder = Decoder::default();
        for piece in [&b"\x1b[<0"[..], b";7", b";", b"3"] {
            assert_eq!(decoder.feed(piece), []);
        }
        assert_eq!(
            decoder.feed(b"Mq"),
            [Key::plain(Code::Click(6, 2)), Key::plain(Code::Char('q'))]
        );
        // What is read at once may end anywhere.
        let mut full = vec![b'x'; READ_BYTES];
        full[READ_BYTES - 1] = 0x1b;
        assert_eq!(decoder.feed(&full).len(), READ_BYTES - 1);
        assert_eq!(decoder.feed(b"[<64;1;1M"), [Key::plain(Code::WheelUp)]);
    }

    /// Check that a sequence that arrives in pieces is put together.
    #[test]
    fn pieces_are_joined() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.feed(b"\x1b["), []);
        assert_eq!(decoder.feed(b"5~"), [Key::plain(Code::PageUp)]);
        assert_eq!(decoder.feed("ä".as_bytes().split_at(1).0), []);
        assert_eq!(
            decoder.feed("ä".as_bytes().split_at(1).1),
            [Key::plain(Code::Char('ä'))]
        );
        // A sequence that never ends is dropped.
        decoder.feed(b"\x1b[");
        decoder.feed(&[b'0'; 100]);
        assert_eq!(decoder.feed(b"q"), [Key::plain(Code::Char('q'))]);
    }

    proptest! {
        /// Check that no bytes cause a panic, and that few of them are kept.
        #[test]
        fn any_bytes_are_taken(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10)) {
            let mut decoder = Decoder::default();
            for piece in pieces {
                decoder.feed(&piece);
                prop_assert!(decoder.pending.len() <= MAX_SEQUENCE);
            }
        }
    }
}
