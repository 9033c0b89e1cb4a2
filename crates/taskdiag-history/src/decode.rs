//! Reading a segment.

use std::fmt;
use std::io::{self, Write};

use taskdiag_core::absent::Absent;
use taskdiag_core::field::{Fields, Group, Groups};
use taskdiag_core::snapshot::{Indexer, Snapshot, SourceId};

use crate::about::{self, About};
use crate::encode::COUNTED;
use crate::events::{self, Happened};
use crate::figures::{Figure, Figures, Read};
use crate::piece::{self, Next, Time, MAGIC};
use crate::table::{Row, Table};
use crate::tasks::Reading;
use crate::texts::Texts;
use crate::varint::Input;
use crate::{Damage, MOST_BYTES};

/// A segment that is being read: what is known after the last sample that was read.
pub struct Decoder {
    /// What it says of itself.
    pub about: About,
    /// When the sample was taken.
    pub time: Time,
    /// What happened before it.
    pub happened: Happened,
    fields: Fields,
    reading: Reading,
    expected: Vec<Vec<usize>>,
    texts: Texts,
    table: Table,
    figures: Read,
    decompressor: zstd::stream::write::Decoder<'static, Limited>,
    bytes: Vec<u8>,
    /// Where the next piece begins.
    at: usize,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("about", &self.about)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

/// Why reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There is nothing more.
    Whole,
    /// The last sample was not written completely: so many bytes.
    Torn(usize),
}

/// What could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Why.
    pub damage: Damage,
    /// How many bytes of the segment are lost with it.
    pub lost_bytes: usize,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} bytes are lost", self.damage, self.lost_bytes)
    }
}

impl Decoder {
    /// Begins to read a segment: its first piece, no sample yet. `None` if it ends within that, as one
    /// does that was just begun.
    ///
    /// # Errors
    ///
    /// If the bytes are no segment, or one of a later version.
    pub fn open(bytes: Vec<u8>) -> Result<Option<Decoder>, Broken> {
        let lost_bytes = bytes.len();
        Decoder::begin(bytes).map_err(|damage| Broken { damage, lost_bytes })
    }

    fn begin(bytes: Vec<u8>) -> Result<Option<Decoder>, Damage> {
        let Some((magic, rest)) = bytes.split_first_chunk::<8>() else {
            return if MAGIC.starts_with(&bytes) {
                Ok(None)
            } else {
                Err(NOT_OURS)
            };
        };
        if *magic != MAGIC {
            return Err(if magic[..7] == MAGIC[..7] {
                Damage("it is of a later version of taskdiag")
            } else {
                NOT_OURS
            });
        }
        let Next::Piece(time, body, rest) = piece::split(rest)? else {
            return Ok(None);
        };
        let decompressor = zstd::stream::write::Decoder::new(Limited::default());
        let mut decompressor = decompressor.map_err(|_| Damage("there is no memory to decompress it"))?;
        let body = decompress(&mut decompressor, body)?;
        let (about, schema) = about::decode(Input(&body))?;
        Ok(Some(Decoder {
            fields: about
                .fields
                .iter()
                .filter_map(|name| name.parse::<taskdiag_core::field::Field>().ok())
                .collect(),
            about,
            time,
            happened: Happened::default(),
            reading: Reading::new(&schema)?,
            expected: schema.columns.into_iter().map(|(_, from)| from).collect(),
            texts: Texts::default(),
            table: Table::default(),
            figures: Read::default(),
            decompressor,
            at: bytes.len() - rest.len(),
            bytes,
        }))
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// When the next sample was taken; `None` if there is none.
    pub fn next_time(&self) -> Option<Time> {
        match piece::split(self.rest()) {
            Ok(Next::Piece(time, ..)) => Some(time),
            _ => None,
        }
    }

    /// Reads the next sample. `None` if there was one.
    ///
    /// # Errors
    ///
    /// If it is damaged. Nothing behind it can be read.
    pub fn advance(&mut self) -> Result<Option<End>, Broken> {
        let lost_bytes = self.rest().len();
        self.read_next().map_err(|damage| {
            self.at = self.bytes.len();
            Broken { damage, lost_bytes }
        })
    }

    fn read_next(&mut self) -> Result<Option<End>, Damage> {
        let all = &self.bytes[self.at..];
        let (time, body, rest) = match piece::split(all)? {
            Next::End => return Ok(Some(End::Whole)),
            Next::Torn => return Ok(Some(End::Torn(all.len()))),
            Next::Piece(time, body, rest) => (time, body, rest),
        };
        let after = self.bytes.len() - rest.len();
        let body = decompress(&mut self.decompressor, body)?;
        let mut input = Input(&body);
        self.texts.decode(&mut input)?;
        self.table.decode(&mut input, &self.expected)?;
        self.figures.decode(&mut input)?;
        self.happened = events::decode(&mut input, &self.texts)?;
        // A later version may have more here.
        (self.time, self.at) = (time, after);
        Ok(None)
    }

    /// The fields that were recorded.
    pub fn fields(&self) -> Fields {
        self.fields
    }

    /// The number of processes.
    pub fn tasks_count(&self) -> usize {
        self.table.rows().count()
    }

    /// The figures of the machine and of cgroups, and names.
    ///
    /// # Errors
    ///
    /// If one of them is named by a text that is not there.
    pub fn figures(&self) -> Result<Figures, Damage> {
        self.figures.all(&self.texts)
    }

    /// The numbers of one object, with their keys: cheaper than all [`figures`](Decoder::figures).
    pub fn numbers(&self, object: &[u8]) -> Vec<(&[u8], u64)> {
        self.figures.numbers(object, &self.texts)
    }

    /// Puts all processes into a snapshot, whose fields say what is asked for.
    ///
    /// # Errors
    ///
    /// If a row has a text that is not there.
    pub fn tasks_into(&self, figures: &Figures, snapshot: &mut Snapshot) -> Result<(), Damage> {
        let asked: Fields = snapshot.fields.without(Fields::of_group(Group::Derived));
        let missing = asked.without(self.fields);
        let mut rows: Vec<&Row> = self.table.rows().collect();
        rows.sort_unstable_by_key(|row| self.reading.tid(row));
        let (records, mut indexer) = Indexer::split(snapshot);
        for row in rows {
            self.reading
                .put(row, self.time.boot_ns, missing, &self.texts, records)?;
        }
        indexer
            .index(records, 0)
            .map_err(|_| Damage("a process makes no sense"))?;
        for group in Groups::of(asked).iter() {
            snapshot.answers[group as usize] = Some(answer(figures, group));
        }
        for name in COUNTED {
            let count = number(figures, b"counters", name.as_bytes()).unwrap_or(0);
            let counters = &mut snapshot.counters;
            match name {
                "gone" => counters.gone = count,
                "denied" => counters.denied = count,
                "hidden" => counters.hidden = count,
                "malformed" => counters.malformed = count,
                // They are counted of all fields that were recorded, not of those that are asked for.
                _ => {}
            }
        }
        Ok(())
    }
}

const NOT_OURS: Damage = Damage("it is no file of a recording");

/// A number among figures.
pub fn number(figures: &Figures, object: &[u8], key: &[u8]) -> Option<u64> {
    match figures.get(&(object.into(), key.into()))? {
        Figure::Number(number) => Some(*number),
        Figure::Text(_) => None,
    }
}

/// A text among figures.
pub fn text<'f>(figures: &'f Figures, object: &[u8], key: &[u8]) -> Option<&'f [u8]> {
    match figures.get(&(object.into(), key.into()))? {
        Figure::Text(text) => Some(text),
        Figure::Number(_) => None,
    }
}

/// Who answered a group.
fn answer(figures: &Figures, group: Group) -> Result<SourceId, Absent> {
    const SOURCES: [SourceId; 5] = [
        SourceId::Bpf,
        SourceId::Procfs,
        SourceId::SmapsRollup,
        SourceId::Smaps,
        SourceId::Broker,
    ];
    let name = text(figures, b"sources", group.name().as_bytes());
    let source = name.and_then(|name| SOURCES.into_iter().find(|source| source.name().as_bytes() == name));
    let reason = number(figures, b"absent", group.name().as_bytes());
    let reason = reason.map_or(Absent::Unsupported, |reason| Absent::from_wire(reason as u16));
    source.ok_or(reason)
}

/// Memory for a body that is being decompressed: a few bytes can stand for very many.
#[derive(Debug, Default)]
struct Limited(Vec<u8>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_BYTES {
            return Err(io::Error::other(Damage("a sample is larger than any that is written")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn decompress(
    decompressor: &mut zstd::stream::write::Decoder<'static, Limited>,
    body: &[u8],
) -> Result<Vec<u8>, Damage> {
    let done = decompressor.write_all(body).and_then(|()| decompressor.flush());
    done.map_err(|_| Damage("a sample can't be decompressed"))?;
    Ok(std::mem::take(&mut decompressor.get_mut().0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Encoder;
    use crate::tasks::Layout;
    use crate::{varint, MOST_VALUES};

    /// A segment with a sample of these bytes.
    fn segment(body: &[u8]) -> Decoder {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::begin(&About::default(), Time::default(), &mut bytes).expect("memory");
        encoder.append_body(Time::default(), body, &mut bytes).expect("memory");
        Decoder::open(bytes).expect("a segment").expect("its first piece")
    }

    /// The number of rows that ended, changed and began: none.
    const NO_ROWS: [u8; 4] = [0; 4];

    /// A text of 1 MiB, and 300 short ones behind it.
    fn texts() -> Vec<u8> {
        let mut out = Vec::new();
        varint::number(&mut out, 301);
        varint::text(&mut out, &vec![b'x'; 1 << 20]);
        (0..300).for_each(|_| varint::text(&mut out, b"y"));
        out
    }

    #[track_caller]
    fn check_damage<T>(result: Result<T, Damage>, said: &str) {
        match result {
            Err(Damage(damage)) => assert!(damage.contains(said), "{damage}"),
            Ok(_) => panic!("it is read"),
        }
    }

    /// Check that a short sample that names a long text very often is not made of it.
    #[test]
    fn long_texts_are_not_named_often() {
        // Figures, all of the object with the long name.
        let mut body = [&texts()[..], &NO_ROWS].concat();
        body.push(0);
        varint::number(&mut body, 300);
        (0..300).for_each(|_| body.extend_from_slice(&[0, 1]));
        (0..300).for_each(|_| body.extend_from_slice(&[0, 2]));
        body.extend_from_slice(&[0; 3]);
        let mut decoder = segment(&body);
        assert_eq!(decoder.advance(), Ok(None));
        check_damage(decoder.figures(), "named more often");
        // Sums of programs in the unit with the long name.
        let mut body = [&texts()[..], &NO_ROWS].concat();
        body.extend_from_slice(&[0, 0, 0]);
        varint::number(&mut body, 300);
        (1..=300_u64).for_each(|program| {
            body.push(0);
            varint::number(&mut body, program);
            body.extend_from_slice(&[0; 7]);
        });
        body.push(0);
        let read = segment(&body).advance();
        check_damage(read.map_err(|broken| broken.damage), "named more often");
    }

    /// Check that no sample is read that has more than any recorder writes.
    #[test]
    fn samples_are_bounded() {
        let mut events = vec![0];
        events.extend_from_slice(&NO_ROWS);
        events.extend_from_slice(&[0, 0, 0, 0]);
        varint::number(&mut events, 1 << 21);
        events.resize(events.len() + (1 << 21), 0);
        let mut rows = vec![0, 0, 0, 0];
        let count = MOST_VALUES / Layout::new().schema().columns.len() + 1;
        varint::number(&mut rows, count as u64);
        rows.resize(rows.len() + count + MOST_VALUES + count, 0);
        for (body, said) in [(events, "more events"), (rows, "more processes")] {
            check_damage(segment(&body).advance().map_err(|broken| broken.damage), said);
        }
    }
}
