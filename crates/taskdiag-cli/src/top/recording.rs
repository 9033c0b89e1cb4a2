//! Samples of a recording: the selected one, and those before it.

use std::collections::HashMap;
use std::sync::Arc;

use taskdiag::{answer_past, Query, Snapshot};
use taskdiag_history::decode::{text, Decoder};
use taskdiag_history::events::IntervalEvents;

use super::bursts::{News, Tally};
use super::column::TREND_WIDTH;
use super::details::{Details, Inquiry, Inspector, System};
use super::source::{RecordingPosition, Sample, Samples, Source, Step, Tag};
use crate::history;
use crate::history::library::Library;
use crate::history::past::{self, Recorded};
use crate::history::spikes::Spike;
use crate::history::timeline::{SampleId, Timeline};
use crate::host::{Host, Load, MemInfo, Memory, Stat, Times, PRESSURES};
use crate::limits::Limits;
use crate::outcome::Failure;
use crate::output::people;
use crate::output::text::written;
use crate::watch::SampleTime;

/// Moves through a recording.
pub struct Recording {
    timeline: Timeline,
    /// The selected sample.
    place: SampleId,
    /// The sample that was read last.
    recorded: Option<(SampleId, Recorded)>,
    /// The last survey: its tag, and its sample.
    shown: Option<(Tag, SampleId)>,
    said: Option<(String, bool)>,
    inspector: Inspector,
}

impl Recording {
    /// Starts at the sample that was read last. `damages` were found on the way there.
    pub fn new(library: Library, decoder: &Decoder, damages: &[String]) -> Result<Recording, Failure> {
        let path = library.path.display().to_string();
        let mut timeline = Timeline::new(library);
        let place = timeline
            .exactly(decoder.time.wall_ns)
            .ok_or_else(|| format!("{path}: the sample no longer exists"))?;
        Ok(Recording {
            timeline,
            place,
            recorded: None,
            shown: None,
            said: (!damages.is_empty()).then(|| (damages.join("; "), true)),
            inspector: Inspector::new(System::Recording),
        })
    }

    /// Reads the selected sample.
    fn read(&mut self, place: &SampleId) -> Result<&mut Recorded, String> {
        let near = self.recorded.take();
        let recorded = self.timeline.read(place, near)?;
        Ok(&mut self.recorded.insert((place.clone(), recorded)).1)
    }

    fn answer(&mut self, query: &Query, mut memory: Snapshot) -> (taskdiag::Result<Snapshot>, SampleTime) {
        let place = self.place.clone();
        let moment = SampleTime::recorded(place.time.boot_ns);
        let answer = match self.read(&place) {
            Ok(recorded) => answer_past(recorded, query, &mut memory).map(|()| memory),
            Err(damage) => Err(taskdiag::Error::new(taskdiag::ErrorKind::Malformed, damage)),
        };
        (answer, moment)
    }

    /// Whether times since boot of two samples can be compared.
    fn is_after(&mut self, before: &SampleId, after: &SampleId) -> bool {
        before.time.boot_ns < after.time.boot_ns && self.timeline.boot_id(before) == self.timeline.boot_id(after)
    }

    /// Whether the selected sample directly follows one that was shown.
    fn continues(&mut self, shown: &SampleId) -> bool {
        let place = self.place.clone();
        self.timeline.next(shown.time.wall_ns).as_ref() == Some(&place) && self.is_after(shown, &place)
    }

    /// The selected sample and the earlier ones that its rates and trends need, in order.
    fn window(&mut self) -> Vec<SampleId> {
        let mut places = vec![self.place.clone()];
        while places.len() <= TREND_WIDTH {
            let last = places[places.len() - 1].clone();
            match self.timeline.previous(last.time.wall_ns) {
                Some(before) if self.is_after(&before, &last) => places.push(before),
                _ => break,
            }
        }
        places.reverse();
        places
    }

    /// Remarks about the current position.
    fn notes(&mut self) -> Vec<String> {
        let place = self.place.clone();
        let (before, after) = (
            self.timeline.previous(place.time.wall_ns),
            self.timeline.next(place.time.wall_ns),
        );
        let mut notes = Vec::new();
        match before {
            None => notes.push("this is the first sample".to_owned()),
            Some(before) => {
                let gap_ns = self.timeline.gap_ns(&before, &place);
                notes.extend(gap_ns.map(|gap_ns| format!("a gap of {} before", duration(gap_ns))));
                if self.timeline.boot_id(&before) != self.timeline.boot_id(&place) {
                    notes.push("the first sample of its boot".to_owned());
                }
            }
        }
        match after {
            None => notes.push("this is the last sample".to_owned()),
            Some(after) => {
                let gap_ns = self.timeline.gap_ns(&place, &after);
                notes.extend(gap_ns.map(|gap_ns| format!("a gap of {} after", duration(gap_ns))));
            }
        }
        if let Some(damage) = self.timeline.damage_after(&place) {
            notes.push("what follows is damaged".to_owned());
            self.said.get_or_insert((damage, true));
        }
        notes
    }

    /// Moves a number of samples forward or back, as far as there are some.
    fn move_by(&mut self, samples: i64) {
        for _ in 0..samples.unsigned_abs() {
            let now_ns = self.place.time.wall_ns;
            let found = if samples > 0 {
                self.next(now_ns)
            } else {
                self.timeline.previous(now_ns)
            };
            match found {
                Some(place) => self.place = place,
                None => return self.lacks("sample", samples > 0),
            }
        }
    }

    /// The next sample, even if it has only just been written.
    fn next(&mut self, after: i64) -> Option<SampleId> {
        let next = self.timeline.next(after);
        next.or_else(|| {
            self.timeline.refresh();
            self.timeline.next(after)
        })
    }

    /// Says that there is no later one, or no earlier one.
    fn lacks(&mut self, what: &str, forward: bool) {
        let which = if forward { "later" } else { "earlier" };
        self.said = Some((format!("the recording has no {which} {what}"), true));
    }

    /// Moves an amount of time forward or back: to a different sample, if there is one.
    fn move_by_time(&mut self, seconds: i64) {
        let now_ns = self.place.time.wall_ns;
        let wanted_ns = now_ns.saturating_add(seconds.saturating_mul(1_000_000_000));
        let found = if seconds > 0 {
            let on = self.timeline.previous(wanted_ns.saturating_add(1));
            let on = on.filter(|place| place.time.wall_ns > now_ns);
            on.or_else(|| self.next(now_ns))
        } else {
            let back = self.timeline.previous(wanted_ns.saturating_add(1));
            back.or_else(|| self.first())
                .filter(|place| place.time.wall_ns < now_ns)
        };
        match found {
            Some(place) => self.place = place,
            None => self.lacks("sample", seconds > 0),
        }
    }

    fn first(&mut self) -> Option<SampleId> {
        self.timeline.next(i64::MIN)
    }

    fn last(&mut self) -> Option<SampleId> {
        self.timeline.refresh();
        self.timeline.previous(i64::MAX)
    }

    fn move_to(&mut self, wall_ns: i64) {
        self.timeline.refresh();
        // Moments are shown to the millisecond.
        let found = self.timeline.previous(wall_ns.saturating_add(1_000_000));
        let time = history::precise(wall_ns);
        let other = match &found {
            Some(place) => {
                let next = self.timeline.next(place.time.wall_ns);
                let gap_ns = next.and_then(|next| self.timeline.gap_ns(place, &next));
                gap_ns.map(|_| "the sample before")
            }
            None => Some("the first sample"),
        };
        if let Some(other) = other {
            self.said = Some((format!("nothing was recorded at {time}: this is {other}"), true));
        }
        self.place = found.or_else(|| self.first()).unwrap_or_else(|| self.place.clone());
    }

    fn move_to_spike(&mut self, forward: bool) {
        let here = self.place.clone();
        match self.timeline.spike(&here, forward) {
            Some((place, found)) => {
                self.said = Some((said(&found), false));
                self.place = place;
            }
            None => self.lacks("spike", forward),
        }
    }

    /// The moment of a place, if its sample was read last.
    fn moment_at(&self, place: &SampleId) -> Option<(SampleId, Arc<past::MachineState>)> {
        let (read, recorded) = self.recorded.as_ref().filter(|(read, _)| read == place)?;
        Some((read.clone(), recorded.moment.clone()))
    }

    /// The sample at a place, after an earlier one.
    fn sample(
        &mut self,
        place: &SampleId,
        before: Option<&(SampleId, Arc<past::MachineState>)>,
        (query, mut snapshot): (&Query, Snapshot),
    ) -> Result<Sample, String> {
        let is_whole = match before {
            Some((before, _)) => before.tier == place.tier && self.timeline.gap_ns(before, place).is_none(),
            None => false,
        };
        let recorded = self.read(place)?;
        answer_past(recorded, query, &mut snapshot).map_err(|error| format!("{error:#}"))?;
        let moment = &recorded.moment;
        Ok(Sample {
            snapshot,
            moment: SampleTime::recorded(place.time.boot_ns),
            host: host(moment, before.map(|(_, moment)| &**moment)),
            news: news(moment, &recorded.decoder.happened, is_whole),
        })
    }
}

fn said(found: &Spike) -> String {
    format!(
        "spike of {}: {:.1} % in use, {:.1} % before",
        found.of.name(),
        found.part * 100.0,
        found.usual * 100.0
    )
}

fn duration(ns: i64) -> String {
    if ns < 60_000_000_000 {
        return format!("{:.1} s", ns as f64 / 1e9);
    }
    written(|out| people::duration(out, u64::try_from(ns).unwrap_or(0)))
}

/// The machine at a moment. Pressures refer to the time since the previous moment.
fn host(moment: &past::MachineState, before: Option<&past::MachineState>) -> Host {
    let pressure = |name: &str| {
        let key = format!("{name}.some.total_us");
        let before = before?;
        let us = moment
            .figure("pressure", &key)?
            .saturating_sub(before.figure("pressure", &key)?);
        let ns = moment
            .time
            .boot_ns
            .checked_sub(before.time.boot_ns)
            .filter(|ns| *ns > 0)?;
        // The moments of the two samples are not exactly those of the figures.
        Some((us as f64 * 1000.0 / ns as f64 * 100.0).min(100.0))
    };
    Host {
        uptime_s: Some(moment.time.boot_ns / 1_000_000_000),
        load: load(moment),
        stat: Stat {
            all: Times::of(&moment.numbers("cpu")).unwrap_or_default(),
            each: Vec::new(),
            forks: moment.figure("stat", "processes"),
            boot_s: None,
        },
        memory: Memory::new(&MemInfo::of(moment.numbers("meminfo"))),
        pressure: PRESSURES.map(pressure),
        limits: Limits::default(),
        disks: None,
        interfaces: None,
    }
}

fn load(moment: &past::MachineState) -> Option<Load> {
    let average = |key: &str| {
        let hundredths = moment.figure("load", key)?;
        Some(format!("{:.2}", hundredths as f64 / 100.0))
    };
    Some(Load {
        averages: [average("1")?, average("5")?, average("15")?],
        runnable: moment.figure("stat", "procs_running")?,
        threads: None,
    })
}

/// What ran and ended before a sample. `is_whole` means: since the previously shown sample.
fn news(moment: &past::MachineState, happened: &IntervalEvents, is_whole: bool) -> News {
    if text(&moment.figures, b"sources", b"events").is_none() {
        let mut notes = moment.about.notes.iter();
        let why = notes.rfind(|note| note.starts_with("no events"));
        return News::None(why.map_or("no events were recorded", String::as_str).to_owned());
    }
    if !is_whole {
        return News::None("the sample before is not there".to_owned());
    }
    let mut ended: HashMap<Vec<u8>, (u64, u64)> = HashMap::new();
    let [mut forks, mut execs, mut exits] = [0; 3];
    for ((_, program), sum) in &happened.sums {
        forks += sum.forks_count;
        execs += sum.execs_count;
        exits += sum.ended_count;
        if sum.unseen_count > 0 {
            // The time includes everything that ended, even processes that are in samples.
            let is_of_these = sum.unseen_count == sum.ended_count;
            let of = ended.entry(program.clone()).or_default();
            of.0 += sum.unseen_count;
            of.1 += if is_of_these { sum.runtime_ns } else { 0 };
        }
    }
    News::Tally(Tally::of([forks, execs, exits], ended), 0)
}

impl Source for Recording {
    fn is_live(&self) -> bool {
        false
    }

    fn survey(&mut self, tag: Tag, query: &Query, memory: Snapshot) -> Result<Samples, String> {
        let shown = self.shown.take().filter(|(of, _)| *of == tag).map(|(_, place)| place);
        let shown = shown.filter(|shown| self.continues(shown));
        let continues = shown.is_some();
        let mut before = shown.and_then(|shown| self.moment_at(&shown));
        let places = if continues {
            vec![self.place.clone()]
        } else {
            self.inspector.forget();
            self.window()
        };
        let (mut samples, mut memory) = (Vec::with_capacity(places.len()), Some(memory));
        for place in &places {
            let memory = memory.take().unwrap_or_default();
            match self.sample(place, before.as_ref(), (query, memory)) {
                Ok(sample) => samples.push(sample),
                // A damaged sample says nothing about what was before it.
                Err(_) if *place != self.place => samples.clear(),
                Err(damage) => return Err(damage),
            }
            before = self.moment_at(place);
        }
        let (place, moment) = before.ok_or("there is no sample")?;
        let notes = self.notes();
        let damages = self.timeline.take_damages();
        let said = self.said.take();
        let at = RecordingPosition {
            moment,
            tier: place.tier.name,
            notes,
            said: said.or_else(|| (!damages.is_empty()).then(|| (damages.join("; "), true))),
        };
        self.shown = Some((tag, place));
        Ok(Samples {
            samples,
            restarts: !continues,
            at: Some(Box::new(at)),
        })
    }

    fn look(&mut self, query: &Query, memory: Snapshot) -> Result<Snapshot, String> {
        self.answer(query, memory).0.map_err(|error| format!("{error:#}"))
    }

    fn details(&mut self, inquiry: &Inquiry) -> Details {
        // It queries one process, whose answer needs no memory worth keeping.
        let mut inspector = std::mem::replace(&mut self.inspector, Inspector::new(System::Recording));
        let mut ask = |query: &Query| self.answer(query, Snapshot::default());
        let details = inspector.details(&mut ask, inquiry);
        self.inspector = inspector;
        details
    }

    fn go(&mut self, step: Step) {
        self.said = None;
        match step {
            Step::Samples(samples) => self.move_by(samples),
            Step::Seconds(seconds) => self.move_by_time(seconds),
            Step::Spike(forward) => self.move_to_spike(forward),
            Step::To(wall_ns) => self.move_to(wall_ns),
            Step::First => self.place = self.first().unwrap_or_else(|| self.place.clone()),
            Step::Last => self.place = self.last().unwrap_or_else(|| self.place.clone()),
        }
    }
}
