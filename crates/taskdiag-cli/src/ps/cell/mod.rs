//! The cells of ps(1), made from fields.
//!
//! Units, rounding and placeholders are those of ps from procps-ng 4.0.2, with one exception: where
//! ps shows 0 for a value that it could not read, the cell is a dash. Some numbers begin with
//! spaces, because ps keeps these spaces in a row that has shifted to the right.

mod command;
mod control_group;
mod memory;
mod scheduling;
#[cfg(test)]
mod tests;
mod times;
mod users;

use taskdiag::{Field, Kind, Value};

use super::host::Host;
use crate::output::cell::formatted;
use crate::output::people;
use crate::output::relation::{Absences, Row, NONE};
use crate::output::text::{all, changes_the_display};

const SECOND: u64 = 1_000_000_000;

/// A cell while it is being made.
pub struct Cell<'a> {
    /// The buffer to append its text to.
    pub out: &'a mut Vec<u8>,
    /// The task.
    pub task: &'a dyn Row,
    /// Facts about the host, and the modifiers.
    pub host: &'a mut Host,
    /// Counts missing values, if they are to be reported.
    pub missing: Option<&'a mut Absences>,
    /// The branches before names and commands in a forest.
    pub branches: &'a [u8],
}
impl<'a> Cell<'a> {
    fn value(&mut self, field: Field) -> Result<Value<'a>, &'static str> {
        let value = self.task.cell(field as usize);
        if let (Err(reason), Some(missing)) = (value, self.missing.as_deref_mut()) {
            missing.count(field as usize, reason);
        }
        value
    }

    fn unsigned(&mut self, field: Field) -> Result<u64, &'static str> {
        match self.value(field)? {
            Value::Unsigned(value) | Value::Mask(value) => Ok(value),
            _ => Err(NONE),
        }
    }

    fn signed(&mut self, field: Field) -> Result<i64, &'static str> {
        match self.value(field)? {
            Value::Signed(value) => Ok(value),
            Value::Unsigned(value) => Ok(value as i64),
            _ => Err(NONE),
        }
    }

    fn letter(&mut self, field: Field) -> Result<char, &'static str> {
        match self.value(field)? {
            Value::Letter(letter) => Ok(letter),
            _ => Err(NONE),
        }
    }

    /// Appends a dash, which stands for a missing value.
    pub fn dash(&mut self) {
        self.out.push(b'-');
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        formatted(self.out, arguments);
    }

    /// Appends a value with `write`, or a dash if it is missing.
    fn write_or_dash<T, E>(&mut self, value: Result<T, E>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Ok(value) => write(self, value),
            Err(_) => self.dash(),
        }
    }

    fn number_or_dash(&mut self, value: Result<impl itoa::Integer, &'static str>) {
        self.write_or_dash(value, |cell, value| people::number(cell.out, value));
    }

    /// A number, unchanged.
    pub fn number(&mut self, field: Field) {
        match self.value(field) {
            Ok(Value::Unsigned(value)) => match field.info().kind {
                kind @ (Kind::User | Kind::GroupId) if self.host.modifiers.named => self.name_of(kind, value as u32),
                _ => people::number(self.out, value),
            },
            Ok(Value::Signed(value)) => people::number(self.out, value),
            _ => self.dash(),
        }
    }

    /// A set of signals. Where there is no room, the first 32, after a mark if there are others.
    pub fn mask(&mut self, field: Field) {
        match self.unsigned(field) {
            Ok(bits) if !self.host.has_wide_sets => {
                let mark = if bits >> 32 == 0 { "" } else { "<" };
                self.write(format_args!("{mark}{:08x}", bits as u32));
            }
            Ok(bits) => self.write(format_args!("{bits:016x}")),
            Err(_) => self.dash(),
        }
    }

    fn text_or_dash(&mut self, text: Option<&[u8]>) {
        self.write_or_dash(text.ok_or(()), Cell::plain);
    }

    /// A text, which may be empty.
    pub fn text(&mut self, field: Field) {
        match self.value(field) {
            Ok(Value::Text(text)) if !text.is_empty() => self.plain(text),
            _ => self.dash(),
        }
    }

    /// Appends text that the process chose.
    fn plain(&mut self, bytes: &[u8]) {
        plain(self.out, bytes, self.host.is_utf8);
    }
}

/// Appends text, with `?` for control characters, invisible characters and bytes that are not UTF-8.
/// As in ps, what follows such a byte is ASCII, in which control characters are dots, and so is all
/// where the locale is not UTF-8.
pub fn plain(out: &mut Vec<u8>, bytes: &[u8], is_utf8: bool) {
    if all(bytes, |byte| (b' '..=b'~').contains(&byte)) {
        return out.extend_from_slice(bytes);
    }
    let valid = match bytes.utf8_chunks().next() {
        Some(chunk) if is_utf8 => chunk.valid(),
        _ => "",
    };
    for character in valid.chars() {
        if character.is_control() || changes_the_display(character) {
            out.push(b'?');
        } else {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    out.extend(bytes[valid.len()..].iter().map(|&byte| match byte {
        b' '..=b'~' => byte,
        _ if byte.is_ascii() => b'.',
        _ => b'?',
    }));
}
