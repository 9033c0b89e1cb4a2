//! Writes answers. The formats fill one buffer, which is written in large pieces.

pub mod cell;
mod closed;
pub mod csv;
pub mod document;
pub mod format;
pub mod json;
pub mod named;
pub mod names;
pub mod people;
pub mod table;
pub mod terminal;
pub mod text;

use std::io;
use std::marker::PhantomData;

use rustix::io::Errno;
use taskdiag::{Absent, Event, EventField, Field, Kind, Task, Value};

use names::NameKind;

/// How much to write at once: enough for the system calls not to matter, and little enough for the
/// processor's cache.
const PIECE: usize = 256 << 10;

/// A value in a row that is not a field, such as a depth in a tree, a rate, or the time of a
/// sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extra<'a> {
    /// A count.
    Count(u64),
    /// A number per second, or a percentage, with one decimal.
    Rate(f64),
    /// Text from this program. It needs no escaping.
    Text(&'a str),
}

impl Extra<'_> {
    /// Appends the value for tables and CSV.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Extra::Count(count) => people::number(out, count),
            Extra::Rate(rate) => cell::formatted(out, format_args!("{rate:.1}")),
            Extra::Text(text) => out.extend_from_slice(text.as_bytes()),
        }
    }

    /// Appends the value for JSON.
    pub fn write_json(self, out: &mut Vec<u8>) {
        match self {
            Extra::Text(text) => json::string(out, text),
            number => number.write(out),
        }
    }
}

/// Extras with their names. The error says in a word why a value is missing.
pub type Extras<'a> = &'a [(&'static str, Result<Extra<'a>, &'static str>)];

/// The key of a value in a row: a field of tasks, or the equivalent for other rows.
pub trait Key: Copy + Eq + 'static {
    /// All keys, each at its index.
    const ALL: &'static [Self];

    /// Its index.
    fn index(self) -> usize;

    /// Its name in JSON and CSV.
    fn name(self) -> &'static str;

    /// The kind of names that its values have, if they have names.
    fn named(self) -> Option<NameKind> {
        None
    }
}

/// The kind of names that values of this kind have.
fn named(kind: Kind) -> Option<NameKind> {
    match kind {
        Kind::User => Some(NameKind::User),
        Kind::GroupId => Some(NameKind::Group),
        Kind::Capabilities => Some(NameKind::Capabilities),
        Kind::Signals => Some(NameKind::Signals),
        _ => None,
    }
}

impl Key for Field {
    const ALL: &'static [Field] = Field::ALL;

    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        Field::name(self)
    }

    fn named(self) -> Option<NameKind> {
        if self == Field::Groups {
            Some(NameKind::Groups)
        } else {
            named(self.info().kind)
        }
    }
}

impl Key for EventField {
    const ALL: &'static [EventField] = EventField::ALL;

    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        EventField::name(self)
    }

    fn named(self) -> Option<NameKind> {
        named(self.kind())
    }
}

/// A value of a row that is not a task, or a word that says why it is missing.
pub type Cell<'a> = Result<Value<'a>, &'static str>;

/// A row: something that has values.
pub trait HasValues {
    /// The keys of its values.
    type Key: Key;

    /// A value, or why it is missing.
    fn value(&self, key: Self::Key) -> Result<Value<'_>, Absent>;

    /// Whether rows of this kind never have such a value, so that it does not count as missing.
    fn is_without(&self, _key: Self::Key) -> bool {
        false
    }
}

impl HasValues for Task<'_> {
    type Key = Field;

    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        Task::value(self, field)
    }
}

impl HasValues for Event<'_> {
    type Key = EventField;

    fn value(&self, field: EventField) -> Result<Value<'_>, Absent> {
        Event::value(self, field).unwrap_or(Err(Absent::Unsupported))
    }

    fn is_without(&self, field: EventField) -> bool {
        Event::value(self, field).is_none()
    }
}

/// A row without values.
#[derive(Debug)]
pub struct NoValues<K>(PhantomData<K>);

impl<K> Default for NoValues<K> {
    fn default() -> NoValues<K> {
        NoValues(PhantomData)
    }
}

impl<K: Key> HasValues for NoValues<K> {
    type Key = K;

    fn value(&self, _key: K) -> Result<Value<'_>, Absent> {
        Err(Absent::NotAsked)
    }
}

/// Fails if standard output was closed when the program started.
pub fn check_open() -> io::Result<()> {
    if closed::is_closed() {
        return Err(Errno::BADF.into());
    }
    Ok(())
}

/// Standard output.
#[derive(Debug)]
pub struct Output {
    buffer: Vec<u8>,
}

impl Output {
    /// An empty output.
    pub fn new() -> Output {
        Output { buffer: Vec::new() }
    }

    /// The buffer, for appending.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer if it is large enough. Call it after each row.
    pub fn row_ended(&mut self) -> io::Result<()> {
        if self.buffer.len() >= PIECE {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes the rest of the buffer.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()
    }

    /// Writes the buffer. This does not use `std::io::stdout`, which searches all of it for line
    /// ends.
    ///
    /// # Errors
    ///
    /// Those of write(2), and an error if standard output is closed and there is something to
    /// write.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            check_open()?;
        }
        let stdout = rustix::stdio::stdout();
        let mut rest = self.buffer.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(stdout, rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.buffer.clear();
        Ok(())
    }
}

/// Counts missing values by field and reason while rows are written.
#[derive(Clone, Debug)]
pub struct Absences<K = Field> {
    counts: Vec<[u32; REASONS.len()]>,
    keys: PhantomData<K>,
}

/// The reasons that are reported. The others are normal: kernel threads have no memory, and tasks
/// end.
const REASONS: [Absent; 6] = [
    Absent::Denied,
    Absent::Unsupported,
    Absent::Truncated,
    Absent::OverBudget,
    Absent::NoAnswer,
    Absent::NoThread,
];

impl<K: Key> Absences<K> {
    /// Nothing counted yet.
    pub fn new() -> Absences<K> {
        Absences {
            counts: vec![[0; REASONS.len()]; K::ALL.len()],
            keys: PhantomData,
        }
    }

    /// The value of a field. Counts a missing value.
    #[inline]
    pub fn value<'a, R: HasValues<Key = K>>(&mut self, row: &'a R, field: K) -> Result<Value<'a>, Absent> {
        let value = row.value(field);
        if let Err(reason) = value {
            if !row.is_without(field) {
                self.count(field, reason);
            }
        }
        value
    }

    /// Counts a missing value.
    #[cold]
    pub fn count(&mut self, field: K, reason: Absent) {
        if let Some(index) = REASONS.iter().position(|&told| told == reason) {
            self.counts[field.index()][index] += 1;
        }
    }

    /// Adds the counts of `other`, except for some fields.
    pub fn add_others(&mut self, other: &Absences<K>, but: &[K]) {
        for (&field, (mine, theirs)) in K::ALL.iter().zip(self.counts.iter_mut().zip(&other.counts)) {
            if !but.contains(&field) {
                mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
            }
        }
    }

    /// Fields that are missing for the same reason in the same number of rows, with that reason and
    /// number.
    pub fn summary(&self) -> Vec<(Vec<K>, Absent, u32)> {
        let mut summary: Vec<(Vec<K>, Absent, u32)> = Vec::new();
        for (&field, counts) in K::ALL.iter().zip(&self.counts) {
            for (reason, &count) in REASONS.into_iter().zip(counts) {
                if count == 0 {
                    continue;
                }
                match summary.iter_mut().find(|entry| (entry.1, entry.2) == (reason, count)) {
                    Some((fields, ..)) => fields.push(field),
                    None => summary.push((vec![field], reason, count)),
                }
            }
        }
        summary
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A row with values from a test.
    pub struct Made<'a>(pub Vec<(Field, Result<Value<'a>, Absent>)>);

    impl HasValues for Made<'_> {
        type Key = Field;

        fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
            let found = self.0.iter().find(|(has, _)| *has == field);
            found.map_or(Err(Absent::NotAsked), |(_, value)| *value)
        }
    }

    /// Check that a summary has only reasons that are reported, and joins fields with the same
    /// reason and number.
    #[test]
    fn absences_are_summarised_by_reason_and_count() {
        let mut absences = Absences::new();
        let row = Made(vec![
            (Field::NsNet, Err(Absent::Denied)),
            (Field::NsMnt, Err(Absent::Denied)),
            (Field::Cmdline, Err(Absent::NoMemory)),
            (Field::Pid, Ok(Value::Unsigned(1))),
        ]);
        for field in [Field::NsNet, Field::NsMnt, Field::Cmdline, Field::Pid] {
            let _ = absences.value(&row, field);
        }
        assert_eq!(
            absences.summary(),
            [(vec![Field::NsMnt, Field::NsNet], Absent::Denied, 1)]
        );
    }
}
