//! The samples of a recording one after the other, as someone goes through them: those of the finest
//! tier that has some, whatever segments they are in.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use taskdiag_history::decode::Decoder;
use taskdiag_history::directory::{Tier, TIERS};
use taskdiag_history::piece::Time;

use super::library::{seek, Library, Outline, Rest, Segment};
use super::past::Recorded;
use super::spikes::{spikes, Of, Point, Spike, BEFORE};
use crate::host::{MemInfo, Memory, Times};

/// A sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of its segment.
    segment: Arc<str>,
    /// How fine it is.
    pub tier: &'static Tier,
    /// When it was taken.
    pub time: Time,
}

/// A spike, and where it is.
#[derive(Clone, Debug)]
pub struct Found {
    pub place: Place,
    pub of: Of,
    pub part: f64,
    pub usual: f64,
}

/// What is known of a segment.
struct Known {
    /// How large it was when it was looked at.
    bytes: u64,
    name: Arc<str>,
    outline: Outline,
    /// What its samples say of the machine, if that was asked for.
    readings: Option<Vec<Reading>>,
}

/// What a sample says of the machine.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    times: Option<Times>,
    memory: Option<f64>,
}

/// The samples of a recording.
pub struct Timeline {
    library: Library,
    known: HashMap<String, Known>,
    /// Damage that nobody was told about.
    damages: Vec<String>,
}

/// Segments are no longer than their tier says, but for clocks that are not exact.
fn span_ns(tier: &Tier) -> i64 {
    i64::try_from(tier.segment_ns.saturating_mul(2)).unwrap_or(i64::MAX)
}

impl Timeline {
    /// Goes through a recording.
    pub fn new(library: Library) -> Timeline {
        Timeline {
            library,
            known: HashMap::new(),
            damages: Vec::new(),
        }
    }

    /// Looks for samples that were written meanwhile.
    pub fn refresh(&mut self) {
        // What is known already is shown, if this fails.
        let _ = self.library.refresh();
    }

    /// Damage that was found since this was last called.
    pub fn take_damages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.damages)
    }

    /// The sample that was taken at this time; of several the finest.
    pub fn exactly(&mut self, wall_ns: i64) -> Option<Place> {
        self.next(wall_ns.checked_sub(1)?)
            .filter(|place| place.time.wall_ns == wall_ns)
    }

    /// The first sample after a time; of several the finest.
    pub fn next(&mut self, after: i64) -> Option<Place> {
        let candidates = TIERS.iter().filter_map(|tier| self.next_in(tier, after));
        // The first of equal ones.
        candidates.min_by_key(|place| place.time.wall_ns)
    }

    /// The last sample before a time; of several the finest.
    pub fn previous(&mut self, before: i64) -> Option<Place> {
        let mut candidates: Vec<Place> = TIERS.iter().filter_map(|tier| self.previous_in(tier, before)).collect();
        // The last of equal ones.
        candidates.reverse();
        candidates.into_iter().max_by_key(|place| place.time.wall_ns)
    }

    /// Where the segments of a tier are among all.
    fn of_tier(&self, tier: &Tier) -> Range<usize> {
        let segments = self.library.segments();
        let begin = segments.iter().position(|segment| segment.tier == tier).unwrap_or(0);
        let count = segments[begin..].iter().take_while(|segment| segment.tier == tier);
        begin..begin + count.count()
    }

    fn next_in(&mut self, tier: &'static Tier, after: i64) -> Option<Place> {
        let mut best: Option<Place> = None;
        for index in self.of_tier(tier) {
            let segment = &self.library.segments()[index];
            if segment.begin_ns.saturating_add(span_ns(tier)) < after {
                continue;
            }
            if best.as_ref().is_some_and(|best| segment.begin_ns > best.time.wall_ns) {
                break;
            }
            let segment = segment.clone();
            let known = self.known(&segment);
            let times = &known.outline.times;
            let Some(&time) = times.get(times.partition_point(|time| time.wall_ns <= after)) else {
                continue;
            };
            if best.as_ref().is_none_or(|best| time.wall_ns < best.time.wall_ns) {
                best = Some(known.place(tier, time));
            }
        }
        best
    }

    fn previous_in(&mut self, tier: &'static Tier, before: i64) -> Option<Place> {
        let mut best: Option<Place> = None;
        for index in self.of_tier(tier).rev() {
            let segment = &self.library.segments()[index];
            if segment.begin_ns >= before {
                continue;
            }
            let end = segment.begin_ns.saturating_add(span_ns(tier));
            if best.as_ref().is_some_and(|best| end < best.time.wall_ns) {
                break;
            }
            let segment = segment.clone();
            let known = self.known(&segment);
            let times = &known.outline.times;
            let index = times.partition_point(|time| time.wall_ns < before);
            let Some(&time) = index.checked_sub(1).map(|index| &times[index]) else {
                continue;
            };
            if best.as_ref().is_none_or(|best| time.wall_ns > best.time.wall_ns) {
                best = Some(known.place(tier, time));
            }
        }
        best
    }

    /// What is known of a segment, which is looked at if it has grown.
    fn known(&mut self, segment: &Segment) -> &mut Known {
        let is_known = self
            .known
            .get(&segment.name)
            .is_some_and(|known| known.bytes == segment.bytes);
        if !is_known {
            let (outline, _) = self.library.outline(segment);
            let damage = outline.damage.as_ref();
            self.damages
                .extend(damage.map(|damage| format!("{}: {damage}", segment.name)));
            let known = Known {
                bytes: segment.bytes,
                name: segment.name.as_str().into(),
                outline,
                readings: None,
            };
            self.known.insert(segment.name.clone(), known);
        }
        self.known.get_mut(&segment.name).expect("it is there")
    }

    fn segment(&self, place: &Place) -> Option<Segment> {
        let mut segments = self.library.segments().iter();
        segments.find(|segment| *segment.name == *place.segment).cloned()
    }

    fn outline(&mut self, place: &Place) -> Option<&Outline> {
        let segment = self.segment(place)?;
        Some(&self.known(&segment).outline)
    }

    /// Which boot of the machine a sample is of. Empty if that is not known.
    pub fn boot_id(&mut self, place: &Place) -> String {
        let about = self.outline(place).and_then(|outline| outline.about.as_ref());
        about.map_or_else(String::new, |about| about.boot_id.clone())
    }

    /// What is damaged behind a sample, if it is the last that can be read of its segment.
    pub fn damage_after(&mut self, place: &Place) -> Option<String> {
        let outline = self.outline(place)?;
        let is_last = outline.times.last().map(|time| time.wall_ns) == Some(place.time.wall_ns);
        outline.damage.clone().filter(|_| is_last)
    }

    /// The time between two samples, if more passed than between two that none is missing of.
    pub fn gap_ns(&mut self, before: &Place, after: &Place) -> Option<i64> {
        let far_ns = [before, after].map(|place| self.outline(place).map_or(0, Outline::far_ns));
        let gap_ns = after.time.wall_ns.saturating_sub(before.time.wall_ns);
        (gap_ns > far_ns[0].max(far_ns[1])).then_some(gap_ns)
    }

    /// Reads a sample. `near` is another one: if it is of the same segment and was before, only what
    /// is between both is read.
    pub fn read(&mut self, place: &Place, near: Option<(Place, Recorded)>) -> Result<Recorded, String> {
        let near = match near {
            Some((near, recorded)) if near == *place => return Ok(recorded),
            near => near.map(|(near, recorded)| (near, recorded.into_decoder())),
        };
        let decoder = self.decoder(place, near)?;
        Recorded::quiet(decoder).map_err(|damage| format!("{}: {damage}", place.segment))
    }

    /// The same, without its figures.
    pub fn decoder(&mut self, place: &Place, near: Option<(Place, Decoder)>) -> Result<Decoder, String> {
        let near = near.filter(|(near, _)| near.segment == place.segment && near.time.wall_ns <= place.time.wall_ns);
        let decoder = match near {
            Some((_, decoder)) => decoder,
            None => {
                let segment = self
                    .segment(place)
                    .ok_or_else(|| format!("{}: it is not there any more", place.segment))?;
                let decoder = self.library.decoder(&segment)?;
                decoder.ok_or_else(|| format!("{}: it ends before its first sample", place.segment))?
            }
        };
        let (decoder, _, rest) = seek(decoder, place.time.wall_ns);
        if let Rest::Broken(broken) = rest {
            return Err(format!("{}: {broken}", place.segment));
        }
        if decoder.time != place.time {
            return Err(format!("{}: it has changed", place.segment));
        }
        Ok(decoder)
    }

    /// The spike that comes next after a sample, or before it.
    pub fn spike(&mut self, from: &Place, forward: bool) -> Option<Found> {
        const FIRST: usize = 256;
        let mut wanted = FIRST;
        loop {
            // Those before the spike say what is usual; a spike that is going on may not be over.
            let (before, after) = if forward {
                (BEFORE, wanted)
            } else {
                (wanted + BEFORE, BEFORE)
            };
            let (places, here) = self.around(from, before, after);
            let points = self.points(&places);
            let is_cut = |spike: &Spike| {
                spike.run.1 + 1 == places.len() && here + after < places.len() || spike.run.0 < BEFORE && here >= before
            };
            let mut found: Vec<Spike> = spikes(&points);
            found.retain(|spike| {
                if forward {
                    spike.index > here
                } else {
                    spike.index < here
                }
            });
            let best = if forward { found.first() } else { found.last() };
            let is_all = if forward {
                places.len() - here <= after
            } else {
                here < before
            };
            match best {
                Some(spike) if is_all || !is_cut(spike) => {
                    return Some(Found {
                        place: places[spike.index].clone(),
                        of: spike.of,
                        part: spike.part,
                        usual: spike.usual,
                    })
                }
                None if is_all => return None,
                _ => wanted *= 4,
            }
        }
    }

    /// So many samples before one and after it, and where it is among them.
    fn around(&mut self, from: &Place, before: usize, after: usize) -> (Vec<Place>, usize) {
        let mut places = vec![from.clone()];
        while places.len() <= before {
            match self.previous(places[places.len() - 1].time.wall_ns) {
                Some(place) => places.push(place),
                None => break,
            }
        }
        places.reverse();
        let here = places.len() - 1;
        while places.len() - here <= after {
            match self.next(places[places.len() - 1].time.wall_ns) {
                Some(place) => places.push(place),
                None => break,
            }
        }
        (places, here)
    }

    fn points(&mut self, places: &[Place]) -> Vec<Point> {
        let mut before: Option<(Times, String)> = None;
        let mut points = Vec::with_capacity(places.len());
        for place in places {
            let reading = self.reading(place).unwrap_or_default();
            let now = reading.times.map(|times| (times, self.boot_id(place)));
            let processors = match (&before, &now) {
                (Some((before, boot)), Some((now, same))) if boot == same => Some(now.since(before).busy()),
                _ => None,
            };
            points.push(Point {
                processors,
                memory: reading.memory,
            });
            before = now;
        }
        points
    }

    fn reading(&mut self, place: &Place) -> Option<Reading> {
        let segment = self.segment(place)?;
        if self.known(&segment).readings.is_none() {
            let decoder = self.library.decoder(&segment).ok().flatten();
            let readings = decoder.map(readings).unwrap_or_default();
            self.known(&segment).readings = Some(readings);
        }
        let known = self.known(&segment);
        let times = &known.outline.times;
        let index = times.partition_point(|time| time.wall_ns < place.time.wall_ns);
        known.readings.as_ref()?.get(index).copied()
    }
}

impl Known {
    fn place(&self, tier: &'static Tier, time: Time) -> Place {
        Place {
            segment: self.name.clone(),
            tier,
            time,
        }
    }
}

/// What all samples of a segment say of the machine, as far as they can be read.
fn readings(mut decoder: Decoder) -> Vec<Reading> {
    let mut readings = Vec::new();
    while let Ok(None) = decoder.advance() {
        let memory = Memory::new(&MemInfo::of(decoder.numbers(b"meminfo")));
        let part = |memory: Memory| memory.total.saturating_sub(memory.available) as f64 / memory.total.max(1) as f64;
        readings.push(Reading {
            times: Times::of(&decoder.numbers(b"cpu")),
            memory: memory.map(part),
        });
    }
    readings
}
