//! The events of a recording.

use std::ops::Range;
use std::path::Path;

use taskdiag::events::{EventSource, Lost};
use taskdiag::{Event, EventKind};
use taskdiag_history::decode::text;
use taskdiag_history::directory::TIERS;

use super::filter::Filter;
use super::{report, writer, Args};
use crate::history::library::{with_damages, Library, Segment};
use crate::history::past::Recorded;
use crate::history::say_gaps;
use crate::history::timeline::Timeline;
use crate::outcome::{say, Failure, Outcome};
use crate::output::listing::Listing;
use crate::output::text::escaped;

/// Says why a recording counts more events than it has: a sample holds a maximum number of them.
const NOT_RECORDED: &str = "not recorded (lost, or too many at once)";

/// The state of the output.
struct Shown<'a> {
    filter: Filter,
    listing: Listing<'a>,
    told: u64,
    most: u64,
    lost: Lost,
    times: Range<i64>,
}

/// Shows the recorded events of a period.
pub fn run(args: &Args, path: &Path) -> Result<Outcome, Failure> {
    let layout = writer::layout(args)?;
    let filter = Filter::new(args)?;
    if filter.looks_at_machine() {
        let message = "events of a recording are selected by --kind, --from, --to, and --where with fields of \
                       events: leave out options that need processes of this machine";
        return Err(message.into());
    }
    if args.threads || !args.kinds.is_empty() && args.kinds.iter().all(|kind| *kind == EventKind::Fork) {
        let message = "a recording has each exec and exit of a process, but no single forks, and none of threads: \
                       `taskdiag report` and the table `programs` of `taskdiag history export` have how many processes \
                       began";
        return Err(message.into());
    }
    let mut library = Library::open(path)?;
    let times = args.past.times()?;
    library.segments.retain(|segment| *segment.tier == TIERS[0]);
    let mut timeline = Timeline::new(library);
    let gaps = timeline.gaps(&times);
    let is_nothing = gaps == [times.clone()];
    let library = timeline.library;
    let segments = library.of_tier(&TIERS[0], &times);
    // The last ones may be damaged, or not have a sample yet.
    let mut first = None;
    let mut damages = Vec::new();
    for segment in segments.iter().rev() {
        match first_sample(&library, segment) {
            Ok(found) => first = found,
            Err(damage) => damages.push(format!("{}: {damage}", segment.name)),
        }
        if first.is_some() {
            break;
        }
    }
    let Some(first) = first.filter(|_| !is_nothing) else {
        let what = if damages.is_empty() {
            "nothing was recorded in that time: `taskdiag history` shows what there is"
        } else {
            "no sample of that time can be read"
        };
        return Err(with_damages(&format!("{}: {what}", path.display()), &damages).into());
    };
    let boot_id = first.moment.about.boot_id.clone();
    first.show();
    let source = text(&first.moment.figures, b"sources", b"events");
    let Some(source) = EventSource::ALL
        .into_iter()
        .find(|known| source == Some(known.to_string().as_bytes()))
    else {
        let notes = escaped(&first.moment.about.notes.join("; "));
        return Err(format!("{}: it has no events: {notes}", path.display()).into());
    };
    say_gaps(args.formats.format(), &gaps);
    let mut shown = Shown {
        listing: writer::begin(args, &layout, source)?,
        filter,
        told: 0,
        most: args.count.unwrap_or(u64::MAX),
        lost: Lost::default(),
        times,
    };
    shown.lost.is_exact = true;
    let mut outcome = Outcome::Complete;
    for segment in segments {
        if let Err(what) = shown.segment(&library, segment, &boot_id)? {
            say(format_args!("{}: {what}", segment.name));
            outcome = Outcome::Partial;
        }
    }
    let Shown {
        filter,
        listing,
        told,
        lost,
        ..
    } = shown;
    let absences = writer::end(listing, told, lost)?;
    Ok(outcome.and(report(told, lost, NOT_RECORDED, &filter, &absences)))
}

/// The first sample of a segment, if there is one.
fn first_sample(library: &Library, segment: &Segment) -> Result<Option<Recorded>, String> {
    let Some(mut decoder) = library.decoder(segment)? else {
        return Ok(None);
    };
    match decoder.advance() {
        Ok(None) => Recorded::new(decoder, None).map(Some),
        Ok(Some(_)) => Ok(None),
        Err(broken) => Err(broken.to_string()),
    }
}

impl Shown<'_> {
    /// Shows the events of a segment. The inner error says what is missing.
    fn segment(&mut self, library: &Library, segment: &Segment, boot_id: &str) -> Result<Result<(), String>, Failure> {
        let mut recorded = match library.recorded(segment) {
            Ok(Some(recorded)) => recorded,
            Ok(None) => return Ok(Ok(())),
            Err(damage) => return Ok(Err(damage)),
        };
        if recorded.decoder.about.boot_id != boot_id {
            // Times since boot can't be compared between boots.
            return Ok(Err(
                "left out, because it is of an earlier boot: --to ends before the last one".to_owned(),
            ));
        }
        loop {
            let next = recorded.advance();
            if next != Ok(true) {
                return Ok(next.map(drop));
            }
            let (happened, boot_ns) = (&recorded.decoder.happened, recorded.moment.boot_ns());
            if self.times.contains(&recorded.moment.time.wall_ns) {
                self.lost.count += happened.left_out;
            }
            for event in happened.events.iter().filter_map(|bytes| Event::decode(bytes)) {
                let wall_ns = boot_ns.saturating_add_unsigned(event.time_ns());
                if self.told < self.most && self.times.contains(&wall_ns) && self.filter.admits(&event) {
                    writer::row(&mut self.listing, &event)?;
                    self.told += 1;
                }
            }
            self.listing.flush()?;
            // What follows happened after this sample.
            if recorded.moment.time.wall_ns >= self.times.end {
                return Ok(Ok(()));
            }
        }
    }
}
