//! The samples of a recording in order of time, across segments, each from the finest tier that has
//! it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use taskdiag_history::decode::Decoder;
use taskdiag_history::directory::{Tier, TIERS};
use taskdiag_history::piece::Time;

use super::library::{Library, Outline, Segment};
use super::past::Recorded;
use super::spikes::{spikes, Point, Spike, BEFORE};
use crate::host::{MemInfo, Memory, Times};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleId {
    /// The name of its segment.
    pub segment: Arc<str>,
    /// How fine it is.
    pub tier: &'static Tier,
    /// When it was taken.
    pub time: Time,
}

/// The cached facts about a segment.
struct SegmentFacts {
    /// Its size when it was examined.
    bytes: u64,
    name: Arc<str>,
    outline: Outline,
    /// The machine's state at each sample, if requested.
    readings: Option<Vec<Reading>>,
}

/// The machine's state at a sample.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    times: Option<Times>,
    memory: Option<f64>,
}

/// The samples of a recording.
pub struct Timeline {
    pub library: Library,
    known: HashMap<String, SegmentFacts>,
    /// Damage that was not reported yet.
    damages: Vec<String>,
}

/// The maximum duration of a segment, with a margin for inexact clocks.
fn span_ns(tier: &Tier) -> i64 {
    i64::try_from(tier.segment_ns.saturating_mul(2)).unwrap_or(i64::MAX)
}

impl Timeline {
    /// Creates the timeline of a recording.
    pub fn new(library: Library) -> Timeline {
        Timeline {
            library,
            known: HashMap::new(),
            damages: Vec::new(),
        }
    }

    /// Looks for new samples.
    pub fn refresh(&mut self) {
        // If this fails, the known samples remain.
        let _ = self.library.refresh();
    }

    /// Returns the damage found since the last call.
    pub fn take_damages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.damages)
    }

    /// The sample taken at this time, from the finest tier.
    pub fn exactly(&mut self, wall_ns: i64) -> Option<SampleId> {
        self.next(wall_ns.checked_sub(1)?)
            .filter(|place| place.time.wall_ns == wall_ns)
    }

    /// The first sample after a time, from the finest tier.
    pub fn next(&mut self, after: i64) -> Option<SampleId> {
        let candidates = TIERS.iter().filter_map(|tier| self.nearest(tier, after, true));
        // Of equal ones, this returns the first.
        candidates.min_by_key(|place| place.time.wall_ns)
    }

    /// The last sample before a time, from the finest tier.
    pub fn previous(&mut self, before: i64) -> Option<SampleId> {
        // Of equal ones, this returns the last.
        let candidates = TIERS.iter().rev().filter_map(|tier| self.nearest(tier, before, false));
        candidates.max_by_key(|place| place.time.wall_ns)
    }

    /// The sample of a tier that is nearest to a time: the first after it, or the last before it.
    fn nearest(&mut self, tier: &'static Tier, from: i64, forward: bool) -> Option<SampleId> {
        let segments = &self.library.segments;
        let mut of_tier: Vec<usize> = (0..segments.len())
            .filter(|&index| segments[index].tier == tier)
            .collect();
        if !forward {
            of_tier.reverse();
        }
        let mut best: Option<SampleId> = None;
        for index in of_tier {
            let segment = &self.library.segments[index];
            let (begin, end) = (segment.begin_ns, segment.begin_ns.saturating_add(span_ns(tier)));
            if if forward { end < from } else { begin >= from } {
                continue;
            }
            let is_farther = |best: &SampleId| match best.time.wall_ns {
                best if forward => begin > best,
                best => end < best,
            };
            if best.as_ref().is_some_and(is_farther) {
                break;
            }
            let segment = segment.clone();
            let known = self.known(&segment);
            let times = &known.outline.times;
            let time = if forward {
                times[times.partition_point(|time| time.wall_ns <= from)..].first()
            } else {
                times[..times.partition_point(|time| time.wall_ns < from)].last()
            };
            let Some(&time) = time else { continue };
            let is_nearer = |best: &SampleId| match best.time.wall_ns {
                best if forward => time.wall_ns < best,
                best => time.wall_ns > best,
            };
            if best.as_ref().is_none_or(is_nearer) {
                best = Some(known.place(tier, time));
            }
        }
        best
    }

    /// The facts about a segment. Examines it again if it has grown.
    fn known(&mut self, segment: &Segment) -> &mut SegmentFacts {
        let is_known = self
            .known
            .get(&segment.name)
            .is_some_and(|known| known.bytes == segment.bytes);
        if !is_known {
            let (outline, _) = self.library.outline(segment);
            let damage = outline.damage.as_ref();
            self.damages
                .extend(damage.map(|damage| format!("{}: {damage}", segment.name)));
            let known = SegmentFacts {
                bytes: segment.bytes,
                name: segment.name.as_str().into(),
                outline,
                readings: None,
            };
            self.known.insert(segment.name.clone(), known);
        }
        self.known.get_mut(&segment.name).expect("it is there")
    }

    fn segment(&self, place: &SampleId) -> Option<Segment> {
        let mut segments = self.library.segments.iter();
        segments.find(|segment| *segment.name == *place.segment).cloned()
    }

    fn outline(&mut self, place: &SampleId) -> Option<&Outline> {
        let segment = self.segment(place)?;
        Some(&self.known(&segment).outline)
    }

    /// The boot id of a sample; empty if unknown.
    pub fn boot_id(&mut self, place: &SampleId) -> String {
        let about = self.outline(place).and_then(|outline| outline.about.as_ref());
        about.map_or_else(String::new, |about| about.boot_id.clone())
    }

    /// The damage that follows a sample, if it is the last readable one of its segment.
    pub fn damage_after(&mut self, place: &SampleId) -> Option<String> {
        let outline = self.outline(place)?;
        let is_last = outline.times.last().map(|time| time.wall_ns) == Some(place.time.wall_ns);
        outline.damage.clone().filter(|_| is_last)
    }

    /// The time between two samples, if samples are missing between them.
    pub fn gap_ns(&mut self, before: &SampleId, after: &SampleId) -> Option<i64> {
        let far_ns = [before, after].map(|place| self.outline(place).map_or(0, Outline::far_ns));
        let gap_ns = after.time.wall_ns.saturating_sub(before.time.wall_ns);
        (gap_ns > far_ns[0].max(far_ns[1])).then_some(gap_ns)
    }

    /// The parts of a period in which nothing was recorded. None if some may have been, but is damaged.
    pub fn gaps(&mut self, times: &Range<i64>) -> Vec<Range<i64>> {
        let time = |place: &SampleId| place.time.wall_ns;
        let mut gaps = Vec::new();
        let mut before = self.previous(times.start.saturating_add(1));
        loop {
            let after = self.next(before.as_ref().map_or(i64::MIN, time));
            let begin = before.as_ref().map_or(times.start, time);
            let end = after.as_ref().map_or(times.end, time);
            let both = before.iter().chain(&after);
            let far_ns = both.filter_map(|place| Some(self.outline(place)?.far_ns())).max();
            let gap = begin.max(times.start)..end.min(times.end);
            // An end that nobody asked for is none.
            let is_asked = gap.start > i64::MIN && gap.end < i64::MAX || gap == *times;
            let is_far = end.saturating_sub(begin) > far_ns.unwrap_or(0);
            gaps.extend((is_far && is_asked && !gap.is_empty()).then_some(gap));
            before = after.filter(|place| time(place) < times.end);
            if before.is_none() {
                return if self.damages.is_empty() { gaps } else { Vec::new() };
            }
        }
    }

    /// Reads a sample. If `near` is an earlier sample of the same segment, reads only from there.
    pub fn read(&mut self, place: &SampleId, near: Option<(SampleId, Recorded)>) -> Result<Recorded, String> {
        let near = match near {
            Some((near, recorded)) if near == *place => return Ok(recorded),
            near => near.map(|(near, recorded)| (near, recorded.decoder)),
        };
        let decoder = self.decoder(place, near)?;
        Recorded::new(decoder, None).map_err(|damage| format!("{}: {damage}", place.segment))
    }

    /// As [`read`](Timeline::read), without the figures.
    pub fn decoder(&mut self, place: &SampleId, near: Option<(SampleId, Decoder)>) -> Result<Decoder, String> {
        let near = near.filter(|(near, _)| near.segment == place.segment && near.time.wall_ns <= place.time.wall_ns);
        let damaged = |what: &str| format!("{}: {what}", place.segment);
        let (mut decoder, mut has_sample) = match near {
            Some((_, decoder)) => (decoder, true),
            None => {
                let segment = self.segment(place).ok_or_else(|| damaged("it no longer exists"))?;
                let decoder = self.library.decoder(&segment).map_err(|damage| damaged(&damage))?;
                (
                    decoder.ok_or_else(|| damaged("it ends before its first sample"))?,
                    false,
                )
            }
        };
        // Damage after the sample does not matter.
        while !has_sample || decoder.time != place.time {
            match decoder.advance() {
                Ok(None) => has_sample = true,
                Ok(Some(_)) => return Err(damaged("it has changed")),
                Err(broken) => return Err(damaged(&broken.to_string())),
            }
        }
        Ok(decoder)
    }

    /// The next spike after a sample, or the previous one before it, and its place.
    pub fn spike(&mut self, from: &SampleId, forward: bool) -> Option<(SampleId, Spike)> {
        const FIRST: usize = 256;
        let mut wanted = FIRST;
        loop {
            // The baseline needs samples before the spike; a spike at the end of the range may go
            // on.
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
            found.retain(|spike| spike.index != here && (spike.index > here) == forward);
            let best = if forward { found.first() } else { found.last() };
            let is_all = if forward {
                places.len() - here <= after
            } else {
                here < before
            };
            match best {
                Some(spike) if is_all || !is_cut(spike) => return Some((places[spike.index].clone(), *spike)),
                None if is_all => return None,
                _ => wanted *= 4,
            }
        }
    }

    /// This many samples before and after one, and its index among them.
    fn around(&mut self, from: &SampleId, before: usize, after: usize) -> (Vec<SampleId>, usize) {
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

    fn points(&mut self, places: &[SampleId]) -> Vec<Point> {
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

    fn reading(&mut self, place: &SampleId) -> Option<Reading> {
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

impl SegmentFacts {
    fn place(&self, tier: &'static Tier, time: Time) -> SampleId {
        SampleId {
            segment: self.name.clone(),
            tier,
            time,
        }
    }
}

/// The machine's state at each sample of a segment, as far as they can be read.
fn readings(mut decoder: Decoder) -> Vec<Reading> {
    let mut readings = Vec::new();
    while let Ok(None) = decoder.advance() {
        let memory = Memory::new(&MemInfo::of(decoder.numbers(b"meminfo")));
        let part = |memory: Memory| memory.used as f64 / memory.total.max(1) as f64;
        readings.push(Reading {
            times: Times::of(&decoder.numbers(b"cpu")),
            memory: memory.map(part),
        });
    }
    readings
}
