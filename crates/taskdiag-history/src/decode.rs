//! Decoding a segment.

use std::fmt;
use std::io::{self, Write};

use taskdiag_core::absent::Absent;
use taskdiag_core::field::{Fields, Group, Groups};
use taskdiag_core::snapshot::{Indexer, Snapshot, SourceId};

use crate::about::{self, About};
use crate::coder::Reader;
use crate::events::IntervalEvents;
use crate::figures::{Figure, FigureDecoder, Figures};
use crate::piece::{self, Next, Time, MAGIC, NOT_OURS};
use crate::table::{Changes, Numbers, Table};
use crate::tasks::{field, Reading};
use crate::texts::Texts;
use crate::varint::Input;
use crate::{Damage, MAX_BYTES};

/// A segment that is being read, and its state after the last sample that was read.
pub struct Decoder {
    /// The description of the segment.
    pub about: About,
    /// When the sample was taken.
    pub time: Time,
    /// What happened before the sample.
    pub happened: IntervalEvents,
    fields: Fields,
    reading: Reading,
    texts: Texts,
    table: Table,
    figures: FigureDecoder,
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

/// Why the samples ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The segment ends after a complete sample.
    Whole,
    /// The last sample is incomplete; it has this many bytes.
    Torn(usize),
}

/// What could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Why.
    pub damage: Damage,
    /// How many bytes of the segment are lost with it: none of another version or program.
    pub lost_bytes: usize,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lost_bytes {
            0 => self.damage.fmt(f),
            bytes => write!(f, "{}: {bytes} bytes are lost", self.damage),
        }
    }
}

impl Decoder {
    /// Opens a segment and reads its first piece, but no sample. `None` if the segment ends within
    /// its first piece, as it does when it was just created.
    ///
    /// # Errors
    ///
    /// If the bytes are not a segment, or have another version.
    pub fn open(bytes: Vec<u8>) -> Result<Option<Decoder>, Broken> {
        let bytes_count = bytes.len();
        Decoder::begin(bytes).map_err(|damage| {
            let is_other = [piece::EARLIER, piece::LATER, NOT_OURS].contains(&damage);
            let lost_bytes = if is_other { 0 } else { bytes_count };
            Broken { damage, lost_bytes }
        })
    }

    fn begin(bytes: Vec<u8>) -> Result<Option<Decoder>, Damage> {
        let Some((magic, rest)) = bytes.split_first_chunk::<8>() else {
            return if MAGIC.starts_with(&bytes) {
                Ok(None)
            } else {
                Err(NOT_OURS)
            };
        };
        piece::check_magic(*magic)?;
        let Next::Piece(time, body, rest) = piece::split(rest)? else {
            return Ok(None);
        };
        let decompressor = zstd::stream::write::Decoder::new(Limited {
            bytes: Vec::new(),
            most: about::MAX_BYTES,
        });
        let mut decompressor = decompressor.map_err(|_| Damage("there is no memory to decompress it"))?;
        let text = decompress(&mut decompressor, body)?;
        let (about, schema) = about::decode(Input(&text))?;
        decompressor.get_mut().most = MAX_BYTES;
        Ok(Some(Decoder {
            fields: about.fields.iter().filter_map(|name| field(name)).collect(),
            about,
            time,
            happened: IntervalEvents::default(),
            reading: Reading::new(&schema)?,
            texts: Texts::default(),
            table: Table::new(schema.columns.len()),
            figures: FigureDecoder::default(),
            decompressor,
            at: bytes.len() - rest.len(),
            bytes,
        }))
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// The time of the next sample; `None` if there is none.
    pub fn next_time(&self) -> Option<Time> {
        match piece::split(self.rest()) {
            Ok(Next::Piece(time, ..)) => Some(time),
            _ => None,
        }
    }

    /// Reads the next sample. Returns `None` if there was one, otherwise why the samples ended.
    ///
    /// # Errors
    ///
    /// If the sample is damaged. The rest of the segment is then lost.
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
        if time.boot_ns < self.time.boot_ns {
            return Err(Damage("its samples are not in order of time"));
        }
        let after = self.bytes.len() - rest.len();
        let body = decompress(&mut self.decompressor, body)?;
        let mut input = Input(&body);
        self.texts.decode(&mut input)?;
        let mut coder = Reader::new(input);
        self.table.code(Changes::default(), &mut coder)?;
        self.figures.decode(&mut coder)?;
        self.happened = IntervalEvents::decode(&self.texts, &mut coder)?;
        // Later versions may append data here.
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
    /// If a figure refers to a text that does not exist.
    pub fn figures(&self) -> Result<Figures, Damage> {
        self.figures.all(&self.texts)
    }

    /// The numbers of one object, with their keys. Cheaper than all [`figures`](Decoder::figures).
    pub fn numbers(&self, object: &[u8]) -> Vec<(&[u8], u64)> {
        self.figures.numbers(object, &self.texts)
    }

    /// Puts all processes into a snapshot. The snapshot's `fields` are the requested ones.
    ///
    /// # Errors
    ///
    /// If a row refers to a text that does not exist.
    pub fn tasks_into(&self, figures: &Figures, snapshot: &mut Snapshot) -> Result<(), Damage> {
        let asked: Fields = snapshot.fields.without(Fields::of_group(Group::Derived));
        let missing = asked.without(self.fields);
        let mut rows: Vec<&Numbers> = self.table.rows().collect();
        rows.sort_unstable_by_key(|row| self.reading.tid(row));
        let (records, mut indexer) = Indexer::split(snapshot);
        for row in rows {
            self.reading
                .put(row, self.time.boot_ns, missing, &self.texts, records)?;
        }
        indexer
            .index(records, 0)
            .map_err(|_| Damage("a process is malformed"))?;
        for group in Groups::of(asked).iter() {
            snapshot.answers[group as usize] = Some(answer(figures, group));
        }
        let counters = &mut snapshot.counters;
        // The others count all recorded fields, not only the requested ones.
        for (name, counter) in [
            ("gone", &mut counters.gone),
            ("denied", &mut counters.denied),
            ("hidden", &mut counters.hidden),
            ("malformed", &mut counters.malformed),
        ] {
            *counter = number(figures, b"counters", name.as_bytes()).unwrap_or(0);
        }
        Ok(())
    }
}

/// Looks up a number among figures.
pub fn number(figures: &Figures, object: &[u8], key: &[u8]) -> Option<u64> {
    match figures.get(&(object.into(), key.into()))? {
        Figure::Number(number) => Some(*number),
        Figure::Text(_) => None,
    }
}

/// Looks up a text among figures.
pub fn text<'f>(figures: &'f Figures, object: &[u8], key: &[u8]) -> Option<&'f [u8]> {
    match figures.get(&(object.into(), key.into()))? {
        Figure::Text(text) => Some(text),
        Figure::Number(_) => None,
    }
}

/// Which source answered a group.
fn answer(figures: &Figures, group: Group) -> Result<SourceId, Absent> {
    let name = text(figures, b"sources", group.name().as_bytes());
    let source = name.and_then(|name| {
        SourceId::ALL
            .into_iter()
            .find(|source| source.name().as_bytes() == name)
    });
    let reason = number(figures, b"absent", group.name().as_bytes());
    let reason = reason.map_or(Absent::Unsupported, |reason| Absent::from_wire(reason as u16));
    source.ok_or(reason)
}

/// The output of the decompressor, with a limit: a few bytes can decompress to very many.
#[derive(Debug)]
struct Limited {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(io::Error::other(Damage("a sample is larger than any that is written")));
        }
        self.bytes.extend_from_slice(bytes);
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
    Ok(std::mem::take(&mut decompressor.get_mut().bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coder::{Coder as _, Writer};
    use crate::encode::Encoder;
    use crate::events::Sum;
    use crate::figures::{FigureEncoder, Part};
    use crate::tasks::Layout;
    use crate::texts::Interned;
    use crate::{varint, MAX_VALUES};

    /// Makes a segment with one sample of these bytes, before compression.
    fn segment(body: &[u8]) -> Decoder {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::begin(&About::default(), Time::default(), &mut bytes).expect("memory");
        encoder.append_body(Time::default(), body, &mut bytes).expect("memory");
        Decoder::open(bytes).expect("a segment").expect("its first piece")
    }

    /// Makes a segment with one sample: these texts, an unchanged table, these figures, and what
    /// happened.
    fn segment_of(texts: &[u8], figures: &Figures, happened: &IntervalEvents) -> Decoder {
        let (mut coder, mut interned) = (Writer::default(), Interned::default());
        let table = Table::new(0).code(Changes::default(), &mut coder);
        let part = Part { figures, version: 1 };
        let coded = table
            .and_then(|()| FigureEncoder::default().encode(&[part], &mut interned, &mut coder))
            .and_then(|()| happened.encode(&mut interned, &mut coder));
        coded.expect("they are valid");
        segment(&[texts, &coder.finish()].concat())
    }

    /// Encodes a text of 1 MiB, followed by 300 short ones.
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

    /// Check that segments of other versions are refused, with the reason.
    #[test]
    fn other_versions_are_refused() {
        let mut bytes = Vec::new();
        Encoder::begin(&About::default(), Time::default(), &mut bytes).expect("memory");
        for (byte, said) in [
            (2, "an earlier development version"),
            (u8::MAX, "a later version"),
            (0, "not a file"),
        ] {
            let mut bytes = bytes.clone();
            bytes[if said == "not a file" { 0 } else { 7 }] = byte;
            check_damage(Decoder::open(bytes).map_err(|broken| broken.damage), said);
        }
    }

    /// Check that a short sample that refers to a long text very often is refused.
    #[test]
    fn long_texts_are_not_named_often() {
        // All figures have the object with the long name: texts are numbered in order of first use.
        let mut figures = Figures::new();
        for key in 0..300_u32 {
            crate::figures::set(&mut figures, b"", &key.to_be_bytes(), Figure::Number(1));
        }
        let mut decoder = segment_of(&texts(), &figures, &IntervalEvents::default());
        assert_eq!(decoder.advance(), Ok(None));
        check_damage(decoder.figures(), "named more often");
        // Sums of programs in the unit with the long name.
        let mut happened = IntervalEvents::default();
        for program in 0..300_u32 {
            let of = (Vec::new(), program.to_be_bytes().to_vec());
            happened.add_sum(of, Sum::default(), 300);
        }
        let read = segment_of(&texts(), &Figures::new(), &happened).advance();
        check_damage(read.map_err(|broken| broken.damage), "named more often");
    }

    /// Check that a short first piece with very long lists, or that decompresses to very much, is
    /// refused, and that samples have to be in order of time.
    #[test]
    fn first_pieces_are_bounded() {
        let first = |text: &[u8]| {
            let mut compressor = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("memory");
            compressor
                .write_all(text)
                .and_then(|()| compressor.flush())
                .expect("memory");
            let mut bytes = MAGIC.to_vec();
            piece::append(&mut bytes, Time::default(), compressor.get_ref());
            assert!(bytes.len() < 10_000);
            Decoder::open(bytes).map_err(|broken| broken.damage)
        };
        let list = |count: usize| {
            // Five empty texts, the interval, and a list of empty texts.
            let mut text = vec![0; 6];
            varint::number(&mut text, count as u64);
            text.resize(text.len() + count, 0);
            text
        };
        check_damage(first(&list(2 << 20)), "longer than any version writes");
        check_damage(first(&list(32 << 20)), "can't be decompressed");
        let mut bytes = Vec::new();
        let after = Time { wall_ns: 0, boot_ns: 5 };
        let mut encoder = Encoder::begin(&About::default(), after, &mut bytes).expect("memory");
        encoder.append_body(Time::default(), &[], &mut bytes).expect("memory");
        let mut decoder = Decoder::open(bytes).expect("a segment").expect("its first piece");
        check_damage(decoder.advance().map_err(|broken| broken.damage), "order of time");
    }

    /// Check that samples beyond the recorder's limits are refused.
    #[test]
    fn samples_are_bounded() {
        let sample = |numbers: &[u64]| {
            let mut coder = Writer::default();
            numbers.iter().for_each(|&number| _ = coder.number(number));
            let body = [&[0][..], &coder.finish()].concat();
            assert!(body.len() < 30);
            segment(&body).advance().map_err(|broken| broken.damage)
        };
        // No text, no process that ended or changed or is new, no figure, and nothing left out.
        check_damage(sample(&[0, 0, 0, 0, 0, 1 << 21]), "more events");
        check_damage(sample(&[0, 0, 0, 0, 0, 0, 1 << 21]), "more programs");
        check_damage(sample(&[0, 0, 0, 1 << 21]), "more figures");
        check_damage(sample(&[1 << 23]), "more processes than any kernel");
        let count = MAX_VALUES / Layout::new().schema().columns.len() + 1;
        let new = [&[0, 0, count as u64][..], &vec![0; count]].concat();
        check_damage(sample(&new), "more processes than can be recorded");
    }
}
