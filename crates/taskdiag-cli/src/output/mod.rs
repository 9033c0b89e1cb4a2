//! How answers are written: one buffer, filled by the formats and written in large pieces.

pub mod cell;
pub mod csv;
pub mod json;
pub mod named;
pub mod names;
pub mod people;
pub mod table;
pub mod text;

use std::io;
use std::marker::PhantomData;

use rustix::io::Errno;
use taskdiag::{Absent, Field, Kind, Task, Value};

/// A piece that is large enough for system calls not to matter, and small enough to stay in the processor's cache.
const PIECE: usize = 256 << 10;

/// A number in a row that is no field: how deep it is in a tree, how much a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extra {
    /// A number of things.
    Count(u64),
    /// A number per second, or in a hundred: with one decimal.
    Rate(f64),
}

impl Extra {
    /// Appends the number.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Extra::Count(count) => people::number(out, count),
            Extra::Rate(rate) => cell::formatted(out, format_args!("{rate:.1}")),
        }
    }
}

/// Extras with their names; in a word why, where there is no number.
pub type Extras<'a> = &'a [(&'static str, Result<Extra, &'static str>)];

/// What the values of a row are called by: a field of tasks, or what another command has instead.
pub trait Key: Copy + Eq + 'static {
    /// All there are, each at its index.
    const ALL: &'static [Self];

    /// Its place among them.
    fn index(self) -> usize;

    /// Its name: the key in JSON, the heading in CSV.
    fn name(self) -> &'static str;

    /// What its values are, if some of that kind have names.
    fn kind(self) -> Option<Kind> {
        None
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

    fn kind(self) -> Option<Kind> {
        Some(self.info().kind)
    }
}

/// Something with values: a task, or what a test puts in its place.
pub trait HasValues {
    /// What its values are called by.
    type Key: Key;

    /// A value, or why there is none.
    fn value(&self, key: Self::Key) -> Result<Value<'_>, Absent>;
}

impl HasValues for Task<'_> {
    type Key = Field;

    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        Task::value(self, field)
    }
}

/// Standard output.
#[derive(Debug)]
pub struct Output {
    buffer: Vec<u8>,
}

impl Output {
    /// An output into which nothing has been written.
    pub fn new() -> Output {
        Output { buffer: Vec::new() }
    }

    /// Where to append what is to be written.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes what has gathered, if it has become a large piece: to be called after each row.
    pub fn row_ended(&mut self) -> io::Result<()> {
        if self.buffer.len() >= PIECE {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes all that is left.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()
    }

    /// Writes all that has gathered. Past `std::io::stdout`, which looks for line ends in all that it is given.
    pub fn flush(&mut self) -> io::Result<()> {
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

/// Which values of the asked fields are missing, counted by field and reason while they are written.
#[derive(Clone, Debug)]
pub struct Absences<K = Field> {
    counts: Vec<[u32; REASONS.len()]>,
    keys: PhantomData<K>,
}

/// The reasons that are worth telling: the others are in a task's nature. A kernel thread has no memory, tasks end.
const REASONS: [Absent; 5] = [
    Absent::Denied,
    Absent::Unsupported,
    Absent::Truncated,
    Absent::OverBudget,
    Absent::NoAnswer,
];

impl<K: Key> Absences<K> {
    /// None so far.
    pub fn new() -> Absences<K> {
        Absences {
            counts: vec![[0; REASONS.len()]; K::ALL.len()],
            keys: PhantomData,
        }
    }

    /// The value of the field; if it is missing, it is counted.
    #[inline]
    pub fn value<'a, R: HasValues<Key = K>>(&mut self, row: &'a R, field: K) -> Result<Value<'a>, Absent> {
        let value = row.value(field);
        if let Err(reason) = value {
            self.count(field, reason);
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

    /// Adds what another one counted, but for some fields.
    pub fn add_others(&mut self, other: &Absences<K>, but: &[K]) {
        for (&field, (mine, theirs)) in K::ALL.iter().zip(self.counts.iter_mut().zip(&other.counts)) {
            if !but.contains(&field) {
                mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
            }
        }
    }

    /// The fields that miss values for the same reason in the same number of rows, with that reason and number.
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

    /// A row made of what a test says.
    pub struct Made<'a>(pub Vec<(Field, Result<Value<'a>, Absent>)>);

    impl HasValues for Made<'_> {
        type Key = Field;

        fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
            let found = self.0.iter().find(|(has, _)| *has == field);
            found.map_or(Err(Absent::NotAsked), |(_, value)| *value)
        }
    }

    /// Check that only failures are summarised, those of a kind together.
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
