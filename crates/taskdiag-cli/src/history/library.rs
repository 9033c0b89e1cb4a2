//! Finds and reads the segments of a recording.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use taskdiag_history::decode::{Broken, Decoder, End};
use taskdiag_history::directory::{parse, Tier, TIERS};
use taskdiag_history::piece::{self, Next, Time, MAGIC};
use taskdiag_history::store::RecordingFile;
use taskdiag_history::About;

use super::past::Recorded;
use crate::outcome::Failure;
use crate::record::disk;

/// A segment, as described by its name and size.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The name of its file.
    pub name: String,
    /// The tier of its samples.
    pub tier: &'static Tier,
    /// Its start by the wall clock, in nanoseconds since 1970.
    pub begin_ns: i64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A directory with a recording.
#[derive(Debug)]
pub struct Library {
    pub path: PathBuf,
    /// Sorted by tier, finest first, and by time.
    pub segments: Vec<Segment>,
}

/// What can be read from a segment without decompressing it.
#[derive(Debug, Default)]
pub struct Outline {
    /// Its description; `None` if the segment is damaged or ends before it is complete.
    pub about: Option<About>,
    /// The times of its samples.
    pub times: Vec<Time>,
    /// The damage, if any.
    pub damage: Option<String>,
}

impl Outline {
    /// Scans the pieces of a file.
    fn scan(&mut self, mut rest: &[u8]) {
        let mut is_first = true;
        loop {
            match piece::split(rest) {
                Ok(Next::Piece(time, _, after)) => {
                    // The first piece is not a sample.
                    if !std::mem::take(&mut is_first) {
                        self.times.push(time);
                    }
                    rest = after;
                }
                Ok(Next::End) => return,
                Ok(Next::Torn) => {
                    self.damage = Some(torn(rest.len()));
                    return;
                }
                Err(damage) => {
                    self.damage = Some(format!("{damage}: {} bytes are lost", rest.len()));
                    return;
                }
            }
        }
    }

    /// The distance between two samples above which others are missing between them.
    pub fn far_ns(&self) -> i64 {
        far_ns(self.about.as_ref().map_or(0, |about| about.every_ns))
    }
}

/// The same, for samples at this interval.
pub fn far_ns(every_ns: u64) -> i64 {
    i64::try_from(every_ns.saturating_mul(5) / 2).unwrap_or(i64::MAX)
}

/// The message about an incomplete last sample.
pub fn torn(bytes: usize) -> String {
    format!("its last sample was not written completely ({bytes} bytes): the recorder or the machine stopped then")
}

/// A message that nothing was found, and lines with the damage that may be why.
pub fn with_damages(message: &str, damages: &[String]) -> String {
    let lines = damages.iter().map(|damage| format!("\n{damage}"));
    message.to_owned() + &lines.collect::<String>()
}

impl Library {
    /// Opens the directory of a recording.
    pub fn open(path: &Path) -> Result<Library, Failure> {
        let mut library = Library {
            path: path.to_owned(),
            segments: Vec::new(),
        };
        library.refresh()?;
        Ok(library)
    }

    /// Lists the directory again. If that fails, the segments stay as they were.
    pub fn refresh(&mut self) -> Result<(), Failure> {
        let path = self.path.display();
        let files = disk::list(&self.path).map_err(|error| format!("{path}: reading the recording: {error}"))?;
        let segment = |file: RecordingFile| {
            let (tier, begin_ns) = parse(&file.name)?;
            let tier = TIERS.iter().find(|known| known.name == tier)?;
            Some(Segment {
                tier,
                begin_ns,
                bytes: file.bytes,
                name: file.name,
            })
        };
        let mut segments: Vec<Segment> = files.into_iter().filter_map(segment).collect();
        let rank = |tier: &Tier| TIERS.iter().position(|known| known.name == tier.name);
        segments.sort_by_key(|segment| (rank(segment.tier), segment.begin_ns));
        if segments.is_empty() {
            return Err(Failure::Unanswered(format!(
                "{path}: there is no recording in it; `taskdiag record --dir NEW` makes one in a new directory"
            )));
        }
        self.segments = segments;
        Ok(())
    }

    /// The segments of a tier that may have samples in a period.
    pub fn of_tier(&self, tier: &Tier, times: &Range<i64>) -> Vec<&Segment> {
        let of_tier: Vec<&Segment> = self.segments.iter().filter(|segment| segment.tier == tier).collect();
        let is_before = |index: usize| of_tier.get(index + 1).is_some_and(|next| next.begin_ns <= times.start);
        let may_have = |&(index, segment): &(usize, &Segment)| segment.begin_ns < times.end && !is_before(index);
        of_tier
            .iter()
            .copied()
            .enumerate()
            .filter(may_have)
            .map(|(_, segment)| segment)
            .collect()
    }

    /// The time of the last undamaged sample of a segment, without decompressing it.
    pub fn last_time(&self, segment: &Segment) -> Option<i64> {
        let bytes = self.bytes(segment).ok()?;
        let mut outline = Outline::default();
        outline.scan(bytes.get(MAGIC.len()..)?);
        outline.times.last().map(|time| time.wall_ns)
    }

    /// Opens a segment. `None` if it ends within its first piece. The error describes the damage.
    pub fn decoder(&self, segment: &Segment) -> Result<Option<Decoder>, String> {
        let bytes = self.bytes(segment).map_err(|error| error.to_string())?;
        Decoder::open(bytes).map_err(|broken| broken.to_string())
    }

    /// The same, as it is at its start.
    pub fn recorded(&self, segment: &Segment) -> Result<Option<Recorded>, String> {
        let decoder = self.decoder(segment)?;
        decoder.map(|decoder| Recorded::new(decoder, None)).transpose()
    }

    /// Reads a file; nothing if the recorder has just removed it, because it was too old.
    fn bytes(&self, segment: &Segment) -> io::Result<Vec<u8>> {
        match disk::read(&self.path.join(&segment.name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            result => result,
        }
    }

    /// The outline of a segment, and a decoder at its start, if it can be read.
    pub fn outline(&self, segment: &Segment) -> (Outline, Option<Decoder>) {
        let mut outline = Outline::default();
        let bytes = match self.bytes(segment) {
            Ok(bytes) => bytes,
            Err(error) => {
                outline.damage = Some(error.to_string());
                return (outline, None);
            }
        };
        outline.scan(bytes.get(MAGIC.len()..).unwrap_or_default());
        match Decoder::open(bytes) {
            Ok(Some(decoder)) => {
                outline.about = Some(decoder.about.clone());
                return (outline, Some(decoder));
            }
            // The recorder stopped before its first sample.
            Ok(None) => {}
            Err(broken) => {
                outline.times.clear();
                outline.damage = Some(broken.to_string());
            }
        }
        (outline, None)
    }

    /// The last sample at or before a time, from the finest tier that has one near enough, and by how
    /// much it is earlier if the next one is missing. Also returns damage found on the way.
    pub fn at(&self, wall_ns: i64) -> Result<(Decoder, Option<u64>, Vec<String>), Failure> {
        /// Times are printed to the millisecond, and a printed time must find its sample again.
        const MS: i64 = 1_000_000;
        let wall_ns = wall_ns.div_euclid(MS).saturating_mul(MS).saturating_add(MS - 1);
        let mut damages = Vec::new();
        let mut every_ns = u64::MAX;
        let mut best: Option<Decoder> = None;
        for tier in &TIERS {
            let Some(found) = self.last_of_tier(tier, wall_ns, &mut damages) else {
                continue;
            };
            every_ns = every_ns.min(found.about.every_ns);
            let early_ns = |decoder: &Decoder| wall_ns.saturating_sub(decoder.time.wall_ns);
            let is_near = early_ns(&found) <= near_ns(&found);
            // A finer one may be nearer, although it is far for its tier.
            let decoder = match best {
                Some(best) if best.time.wall_ns >= found.time.wall_ns => best,
                _ => found,
            };
            if is_near {
                // Samples may be a little late.
                let most_ns = (every_ns.saturating_mul(3) / 2).max(1000 * MS as u64);
                let early_ns = early_ns(&decoder).unsigned_abs();
                return Ok((decoder, Some(early_ns).filter(|&early_ns| early_ns > most_ns), damages));
            }
            best = Some(decoder);
        }
        let nearest = best.map(|decoder| decoder.time.wall_ns);
        Err(Failure::Unanswered(self.nothing_at(wall_ns, nearest, &damages)))
    }

    /// The last sample of the recording.
    pub fn last(&self) -> Result<(Decoder, Vec<String>), Failure> {
        let mut damages = Vec::new();
        let mut best: Option<Decoder> = None;
        for tier in &TIERS {
            let found = self.last_of_tier(tier, i64::MAX, &mut damages);
            let is_later = |found: &Decoder| best.as_ref().is_none_or(|best| best.time.wall_ns < found.time.wall_ns);
            best = found.filter(is_later).or(best);
        }
        match best {
            Some(decoder) => Ok((decoder, damages)),
            None => {
                let why = if damages.is_empty() {
                    "is there yet"
                } else {
                    "can be read"
                };
                let message = format!("{}: no sample {why}", self.path.display());
                Err(with_damages(&message, &damages).into())
            }
        }
    }

    /// The last sample of a tier at or before a time. Adds the damage found on the way.
    fn last_of_tier(&self, tier: &Tier, wall_ns: i64, damages: &mut Vec<String>) -> Option<Decoder> {
        let of_tier = self.segments.iter().rev().filter(|segment| segment.tier == tier);
        for segment in of_tier.filter(|segment| segment.begin_ns <= wall_ns) {
            let decoder = match self.decoder(segment) {
                Ok(Some(decoder)) => decoder,
                Ok(None) => continue,
                Err(damage) => {
                    damages.push(format!("{}: {damage}", segment.name));
                    continue;
                }
            };
            let (decoder, has_sample, rest) = seek(decoder, wall_ns);
            if let Err(broken) = rest {
                damages.push(format!("{}: {broken}", segment.name));
            }
            if has_sample {
                return Some(decoder);
            }
        }
        None
    }

    /// The message that there is no sample at a time.
    fn nothing_at(&self, wall_ns: i64, nearest: Option<i64>, damages: &[String]) -> String {
        let time = super::time::shown;
        let later = self
            .segments
            .iter()
            .map(|segment| segment.begin_ns)
            .filter(|&begin| begin > wall_ns)
            .min();
        let mut message = format!("{}: nothing was recorded at {}", self.path.display(), time(wall_ns));
        match (nearest, later) {
            (Some(before), Some(after)) => {
                message += &format!(", between {} and {}", time(before), time(after));
            }
            (Some(before), None) => message += &format!("; the last sample is of {}", time(before)),
            (None, Some(after)) => message += &format!("; the first sample is of {}", time(after)),
            (None, None) => {}
        }
        with_damages(&message, damages)
    }
}

/// The maximum age of a sample that stands for a time: the next one may be late, or still being
/// written.
fn near_ns(decoder: &Decoder) -> i64 {
    const MIN_NS: i64 = 2_000_000_000;
    far_ns(decoder.about.every_ns).max(MIN_NS)
}

/// Reads a segment up to the last sample at or before a time. Returns whether there was one, and how
/// reading ended.
pub fn seek(mut decoder: Decoder, wall_ns: i64) -> (Decoder, bool, Result<End, Broken>) {
    let mut has_sample = false;
    // Times ascend within a segment.
    while decoder.next_time().is_none_or(|next| next.wall_ns <= wall_ns) {
        if let Some(end) = decoder.advance().transpose() {
            return (decoder, has_sample, end);
        }
        has_sample = true;
    }
    (decoder, has_sample, Ok(End::Whole))
}
