//! Values of rows that can be lists of descriptors: who has a socket, who is at the other end.

use taskdiag::files::Owner;
use taskdiag::Value;

use super::named;
use super::{csv, json, people, text, Written};

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown<'a> {
    /// A value as others.
    Plain(Value<'a>),
    /// Descriptors.
    Descriptors(&'a [Owner]),
}

/// A value of a row, or in a word why it is missing.
pub type Item<'a> = Result<Shown<'a>, &'static str>;

/// A value of a row that is kept, to be sorted.
#[derive(Clone, Debug)]
pub enum Kept {
    /// A value as others.
    Plain(named::Kept),
    /// Descriptors.
    Descriptors(Vec<Owner>),
}

impl Kept {
    /// Keeps a value.
    pub fn new(shown: Shown<'_>) -> Kept {
        match shown {
            Shown::Plain(value) => Kept::Plain(named::Kept::new(value)),
            Shown::Descriptors(owners) => Kept::Descriptors(owners.to_vec()),
        }
    }

    /// The value.
    pub fn shown(&self) -> Shown<'_> {
        match self {
            Kept::Plain(value) => Shown::Plain(value.value()),
            Kept::Descriptors(owners) => Shown::Descriptors(owners),
        }
    }
}

impl<'a> Shown<'a> {
    /// What it is compared by: of descriptors the first one's process.
    pub fn compared(self) -> named::Cell<'a> {
        match self {
            Shown::Plain(value) => Ok(value),
            Shown::Descriptors([first, ..]) => Ok(Value::Unsigned(first.pid.into())),
            Shown::Descriptors([]) => Err("none"),
        }
    }
}

impl Written for Shown<'_> {
    fn json(self, out: &mut Vec<u8>) {
        match self {
            Shown::Plain(value) => json::write_value(out, value),
            Shown::Descriptors(owners) => json::list(out, owners.iter(), owner_json),
        }
    }

    fn csv(self, out: &mut Vec<u8>) {
        match self {
            Shown::Plain(value) => csv::write_value(out, value),
            Shown::Descriptors([]) => {}
            Shown::Descriptors(owners) => {
                let start = out.len();
                write(out, owners, b' ');
                csv::quote(out, start);
            }
        }
    }
}

fn owner_json(out: &mut Vec<u8>, owner: &Owner) {
    out.extend_from_slice(b"{\"pid\":");
    people::number(out, owner.pid);
    if let Ok(comm) = &owner.comm {
        out.extend_from_slice(b",\"comm\":");
        json::text(out, comm);
    }
    out.extend_from_slice(b",\"fd\":");
    people::number(out, owner.fd);
    out.push(b'}');
}

/// Appends descriptors as text: `PID/COMM:FD` of each.
fn write(out: &mut Vec<u8>, owners: &[Owner], separator: u8) {
    for (index, owner) in owners.iter().enumerate() {
        if index > 0 {
            out.push(separator);
        }
        people::number(out, owner.pid);
        out.push(b'/');
        out.extend_from_slice(owner.comm.as_deref().unwrap_or_default());
        out.push(b':');
        people::number(out, owner.fd);
    }
}

/// Appends descriptors as people read them.
pub fn people(out: &mut Vec<u8>, owners: &[Owner]) {
    if owners.is_empty() {
        return out.push(b'-');
    }
    let mut plain = Vec::new();
    write(&mut plain, owners, b',');
    text::escape(out, &plain);
}
