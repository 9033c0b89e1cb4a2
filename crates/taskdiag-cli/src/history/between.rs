//! A time of a recording: every process that was there, as it was when it was seen last.

use std::collections::HashMap;
use std::ops::Range;

use taskdiag::{Field, Fields, Identity, Past, Snapshot, Task};
use taskdiag_core::derived::Context;
use taskdiag_history::decode::Decoder;
use taskdiag_history::figures::Figures;

use super::library::Library;
use super::past::Recorded;
use super::time;
use super::timeline::{Place, Timeline};
use crate::outcome::Failure;

/// What a process did in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// When it was seen last, in nanoseconds since boot.
    pub last_ns: u64,
    /// The processor time that it had used before: its own, and that of children that ended.
    pub before_ns: [u64; 2],
    /// How long the time was, in nanoseconds.
    pub of_ns: u64,
}

/// What processes did in a time.
#[derive(Debug, Default)]
pub struct Span {
    /// How long it was.
    of_ns: u64,
    lives: HashMap<Identity, (u64, [u64; 2])>,
}

impl Span {
    /// What a process did.
    pub fn life(&self, process: Identity) -> Option<Life> {
        let &(last_ns, before_ns) = self.lives.get(&process)?;
        Some(Life {
            last_ns,
            before_ns,
            of_ns: self.of_ns,
        })
    }

    /// Adds the processes of a sample. `before_ns` is when the sample before was taken.
    fn add(&mut self, snapshot: &Snapshot, now_ns: u64, before_ns: Option<u64>) {
        for task in snapshot.tasks() {
            let identity = Identity::of(task.record().header());
            // All that one used is of this time if it began since the sample before.
            let is_new = before_ns.is_some_and(|before_ns| identity.has_started_since(before_ns));
            let first = || if is_new { [0; 2] } else { used_ns(&task) };
            self.lives.entry(identity).or_insert_with(|| (0, first())).0 = now_ns;
        }
    }
}

/// The processor time of a process, and that of its children that ended. 0 for what was not recorded,
/// which has no percentage then.
fn used_ns(task: &Task<'_>) -> [u64; 2] {
    let sum =
        |one: Result<u64, _>, other: Result<u64, taskdiag::Absent>| one.unwrap_or(0).saturating_add(other.unwrap_or(0));
    [
        sum(task.utime_ns(), task.stime_ns()),
        sum(task.cutime_ns(), task.cstime_ns()),
    ]
}

/// The processes of a time, which a handle asks.
#[derive(Debug)]
pub struct Between {
    /// The last sample.
    end: Recorded,
    /// The records of those that are not in it, one after the other.
    ended: Vec<u8>,
}

impl Between {
    /// Reads the samples of a time, and the one before it, which processor time counts from. Returns what
    /// is missing, too.
    pub fn read(library: Library, times: &Range<i64>) -> Result<(Between, Vec<String>), Failure> {
        let path = library.path().display().to_string();
        let unanswered = |message: String| Failure::Unanswered(format!("{path}: {message}"));
        let mut timeline = Timeline::new(library);
        let (places, mut said) = places(&mut timeline, times);
        let Some(last) = places.last().filter(|last| last.time.wall_ns >= times.start) else {
            let message = "nothing was recorded in that time: `taskdiag history` shows what there is";
            return Err(unanswered(message.to_owned()));
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
            if let Err(damage) = reader.add(&mut timeline, place, is_before) {
                said.push(damage);
            }
        }
        said.extend(timeline.take_damages());
        let Reader {
            decoder: Some((at, decoder)),
            mut span,
            ended,
            first_ns: Some(first_ns),
            ..
        } = reader
        else {
            return Err(unanswered(said.join("\n")));
        };
        span.of_ns = at.time.boot_ns.saturating_sub(first_ns);
        let end = Recorded::at_end(decoder, span).map_err(|damage| unanswered(damage.to_string()))?;
        end.show();
        Ok((Between { end, ended }, said))
    }
}

/// The samples of a time, with the one before it, of the last boot of the machine among them; and what is
/// left out.
fn places(timeline: &mut Timeline, times: &Range<i64>) -> (Vec<Place>, Vec<String>) {
    let mut places: Vec<Place> = Vec::new();
    let mut said = Vec::new();
    let mut next = timeline
        .previous(times.start)
        .or_else(|| timeline.next(times.start.saturating_sub(1)));
    while let Some(place) = next.filter(|place| place.time.wall_ns < times.end) {
        next = timeline.next(place.time.wall_ns);
        let is_other = |last: &Place, timeline: &mut Timeline| {
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
    // What was used in a gap before the time is not of it.
    if let [before, first, ..] = &places[..] {
        let is_before = before.time.wall_ns < times.start && first.time.wall_ns >= times.start;
        if is_before && timeline.gap_ns(before, first).is_some() {
            places.remove(0);
        }
    }
    (places, said)
}

/// Reads sample after sample.
#[derive(Default)]
struct Reader {
    /// The sample that was read last.
    decoder: Option<(Place, Decoder)>,
    snapshot: Snapshot,
    before: Snapshot,
    /// Whether `before` is of the time.
    is_counted: bool,
    first_ns: Option<u64>,
    span: Span,
    ended: Vec<u8>,
}

impl Reader {
    /// Reads a sample. `is_before`: it is not of the time.
    fn add(&mut self, timeline: &mut Timeline, place: &Place, is_before: bool) -> Result<(), String> {
        let near = self.decoder.take();
        let before_ns = near.as_ref().map(|(near, _)| near.time.boot_ns);
        let decoder = timeline.decoder(place, near)?;
        self.snapshot.clear(Field::ALL.iter().copied().collect::<Fields>());
        decoder
            .tasks_into(&Figures::new(), &mut self.snapshot)
            .map_err(|damage| damage.to_string())?;
        self.span.add(&self.snapshot, place.time.boot_ns, before_ns);
        if self.is_counted {
            let ended = self
                .before
                .tasks()
                .filter(|task| !self.snapshot.has(Identity::of(task.record().header())));
            for task in ended {
                self.ended.extend_from_slice(task.record().as_bytes());
            }
        }
        self.first_ns.get_or_insert(place.time.boot_ns);
        self.is_counted = !is_before;
        std::mem::swap(&mut self.before, &mut self.snapshot);
        self.decoder = Some((place.clone(), decoder));
        Ok(())
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
