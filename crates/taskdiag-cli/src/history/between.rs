//! A period of a recording: every process that existed in it, as it was when last seen.

use std::collections::HashMap;
use std::ops::Range;

use taskdiag::{Event, Field, Fields, Identity, Past, Snapshot};
use taskdiag_core::derived::Context;
use taskdiag_core::record::{attr, part_mut, Net};
use taskdiag_history::decode::Decoder;
use taskdiag_history::events::IntervalEvents;
use taskdiag_history::figures::Figures;

use super::library::{with_damages, Library};
use super::past::Recorded;
use super::span::{Span, Unseen};
use super::time;
use super::timeline::{SampleId, Timeline};
use crate::outcome::{counted, Failure};

/// The records of processes that ended take at most this much memory: enough for some 300,000.
const MAX_ENDED_BYTES: usize = 512 << 20;

/// What is done with each sample: its time since boot, that of the sample before, and its processes.
pub type Visit<'a> = &'a mut dyn FnMut(u64, Option<u64>, &Snapshot);

/// What [`Between::read`] returns.
type BetweenRead = (Between, Vec<Range<i64>>, Vec<String>);

/// The processes of a period, for a handle to query.
#[derive(Debug)]
pub struct Between {
    /// The last sample of the period.
    end: Recorded,
    /// The records of processes that ended before the last sample, one after the other.
    ended: Vec<u8>,
}

impl Between {
    /// Reads the samples of a period and the one before it, which is the base of what grows. Each is
    /// given to `visit`. Also returns the parts of the period without samples, and what can't be read.
    pub fn read(library: Library, times: &Range<i64>, visit: Visit<'_>) -> Result<BetweenRead, Failure> {
        let path = library.path.display().to_string();
        let unanswered = |message: String| Failure::Unanswered(format!("{path}: {message}"));
        let mut timeline = Timeline::new(library);
        let (places, mut said) = places(&mut timeline, times);
        let Some(last) = places.last().filter(|last| last.time.wall_ns >= times.start) else {
            let message = "nothing was recorded in that time: `taskdiag history` shows what there is";
            return Err(unanswered(with_damages(message, &timeline.take_damages())));
        };
        if places.len() < 2 {
            let at = time::precise(last.time.wall_ns);
            return Err(unanswered(format!(
                "the only sample of that time is of {at}: --at shows it"
            )));
        }
        let mut reader = Reader::default();
        for place in &places {
            let is_before = place.time.wall_ns < times.start;
            if let Err(damage) = reader.add(&mut timeline, place, is_before, visit) {
                said.push(damage);
            }
        }
        let gaps = timeline.gaps(times);
        said.extend(timeline.take_damages());
        let Reader {
            decoder: Some((at, decoder)),
            mut span,
            ended,
            left_out,
            first_ns: Some(first_ns),
            ..
        } = reader
        else {
            return Err(unanswered(said.join("\n")));
        };
        if left_out > 0 {
            said.push(format!(
                "{} that ended later are left out, because there are too many: choose a shorter period",
                counted(left_out, "process")
            ));
        }
        span.of_ns = at.time.boot_ns.saturating_sub(first_ns);
        let end = Recorded::new(decoder, Some(span)).map_err(unanswered)?;
        end.show();
        Ok((Between { end, ended }, gaps, said))
    }
}

/// The samples of a period in the latest boot, the sample before the period, and what was left out.
fn places(timeline: &mut Timeline, times: &Range<i64>) -> (Vec<SampleId>, Vec<String>) {
    let mut places: Vec<SampleId> = Vec::new();
    let mut said = Vec::new();
    let mut next = timeline
        .previous(times.start)
        .or_else(|| timeline.next(times.start.saturating_sub(1)));
    while let Some(place) = next.filter(|place| place.time.wall_ns < times.end) {
        next = timeline.next(place.time.wall_ns);
        let is_other = |last: &SampleId, timeline: &mut Timeline| {
            last.time.boot_ns >= place.time.boot_ns || timeline.boot_id(last) != timeline.boot_id(&place)
        };
        if places.last().is_some_and(|last| is_other(last, timeline)) {
            let had_some = places.iter().any(|place| place.time.wall_ns >= times.start);
            places.clear();
            if had_some {
                said = vec!["samples of an earlier boot, or of before the clock was set, are left out".to_owned()];
            }
        }
        places.push(place);
    }
    // If there is a gap before the period, processor time used in it must not count.
    if let [before, first, ..] = &places[..] {
        let is_before = before.time.wall_ns < times.start && first.time.wall_ns >= times.start;
        if is_before && timeline.gap_ns(before, first).is_some() {
            places.remove(0);
        }
    }
    (places, said)
}

/// Reads samples in order.
#[derive(Default)]
struct Reader {
    /// The last sample read.
    decoder: Option<(SampleId, Decoder)>,
    snapshot: Snapshot,
    before: Snapshot,
    /// Whether `before` is in the period.
    is_counted: bool,
    first_ns: Option<u64>,
    span: Span,
    ended: Vec<u8>,
    /// How many processes that ended are not in `ended`.
    left_out: u64,
}

impl Reader {
    /// Reads a sample. `is_before`: it is before the period.
    fn add(
        &mut self,
        timeline: &mut Timeline,
        place: &SampleId,
        is_before: bool,
        visit: Visit<'_>,
    ) -> Result<(), String> {
        let near = self.decoder.take();
        let before_ns = near.as_ref().map(|(near, _)| near.time.boot_ns);
        let decoder = timeline.decoder(place, near)?;
        self.snapshot.clear(Field::ALL.iter().copied().collect::<Fields>());
        decoder
            .tasks_into(&Figures::new(), &mut self.snapshot)
            .map_err(|damage| format!("{}: {damage}", place.segment))?;
        self.span.add(&self.snapshot, place.time.boot_ns, before_ns);
        visit(place.time.boot_ns, before_ns, &self.snapshot);
        if let Some(before_ns) = before_ns {
            self.span.unseen.add(&decoder.happened, before_ns);
        }
        if self.is_counted {
            let ended = self
                .before
                .tasks()
                .filter(|task| !self.snapshot.has(Identity::of(task.record().header())));
            let exits = exits(&decoder.happened);
            for task in ended {
                let record = task.record().as_bytes();
                if self.ended.len() + record.len() > MAX_ENDED_BYTES {
                    self.left_out += 1;
                } else {
                    let begin = self.ended.len();
                    self.ended.extend_from_slice(record);
                    // Its exit has what it moved after that.
                    let exit = exits.get(&Identity::of(task.record().header()));
                    let last = part_mut::<Net>(&mut self.ended[begin..], attr::NET);
                    if let Some((last, exit)) = last.zip(exit) {
                        *last = Net {
                            net_since_ns: last.net_since_ns,
                            ..*exit
                        };
                    }
                }
            }
        }
        self.first_ns.get_or_insert(place.time.boot_ns);
        self.is_counted = !is_before;
        std::mem::swap(&mut self.before, &mut self.snapshot);
        self.decoder = Some((place.clone(), decoder));
        Ok(())
    }
}

/// The single events before a sample.
fn events(happened: &IntervalEvents) -> impl Iterator<Item = Event<'_>> {
    happened.events.iter().filter_map(|bytes| Event::decode(bytes))
}

/// What the processes that ended before a sample moved in all.
fn exits(happened: &IntervalEvents) -> HashMap<Identity, Net> {
    let exit = |event: Event<'_>| {
        let identity = Identity::new(event.pid(), event.start_ns().ok()? as u64);
        Some((identity, *event.traffic()?))
    };
    let of_processes = events(happened).filter(|event| !event.is_thread());
    of_processes.filter_map(exit).collect()
}

impl Unseen {
    /// Adds those that began and ended since the previous sample.
    fn add(&mut self, happened: &IntervalEvents, before_ns: u64) {
        for event in events(happened).filter(|event| event.start_ns().is_ok_and(|start_ns| start_ns > before_ns as i64))
        {
            let moved = [event.net_sent_bytes(), event.net_received_bytes()];
            let moved: u64 = moved.into_iter().flatten().sum();
            self.count += u64::from(moved > 0);
            self.moved += moved;
        }
        self.left_out += happened.left_out;
    }
}

impl Past for Between {
    fn read(&mut self, snapshot: &mut Snapshot) -> taskdiag::Result<()> {
        self.end.read(snapshot)?;
        let mut at = snapshot.records.len();
        snapshot.records.extend_from_slice(&self.ended);
        for record in taskdiag_core::record::Record::each(&self.ended) {
            snapshot.add_row(at);
            at += record.as_bytes().len();
        }
        Ok(())
    }

    fn context(&self, process: Identity) -> Context<'_> {
        self.end.context(process)
    }
}
