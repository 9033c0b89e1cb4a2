//! The events of a recording.

use std::ops::Range;
use std::path::Path;

use taskdiag::events::{EventSource, Lost};
use taskdiag::Event;
use taskdiag_history::decode::{text, End};

use super::filter::Filter;
use super::writer::Writer;
use super::{chosen, report, Args};
use crate::history::library::{Library, Segment};
use crate::history::past::Recorded;
use crate::outcome::{say, Failure, Outcome};
use crate::output::Output;

/// What is being shown.
struct Shown {
    filter: Filter,
    writer: Writer,
    output: Output,
    told: u64,
    most: u64,
    lost: Lost,
    times: Range<i64>,
}

/// Shows the events that were recorded in a time.
pub fn run(args: &Args, path: &Path) -> Result<Outcome, Failure> {
    let chosen = chosen(&args.fields)?;
    let filter = Filter::new(args)?;
    if filter.looks_at_machine() {
        return Err(Failure::Unanswered(
            "events of a recording are selected by --kind, --from, --to, and --where on what events have: leave out what \
             looks at processes of now"
                .to_owned(),
        ));
    }
    let library = Library::open(path)?;
    let times = args.past.times()?;
    let segments = library.in_times(&times);
    let last = segments.last().map(|segment| library.decoder(segment));
    let Some(Ok(Some(decoder))) = last else {
        return Err(Failure::Unanswered(format!(
            "{}: nothing was recorded in that time: `taskdiag history` shows what there is",
            path.display()
        )));
    };
    let boot_id = decoder.about.boot_id.clone();
    let mut first = Recorded::quiet(decoder).map_err(|damage| Failure::Unanswered(damage.to_string()))?;
    first.advance().map_err(Failure::Unanswered)?;
    first.show();
    let source = text(&first.moment().figures, b"sources", b"events");
    let Some(source) = EventSource::ALL
        .into_iter()
        .find(|known| source == Some(known.to_string().as_bytes()))
    else {
        return Err(Failure::Unanswered(format!(
            "{}: it has no events: {}",
            path.display(),
            first.moment().about.notes.join("; ")
        )));
    };
    let mut shown = Shown {
        writer: Writer::new(args, &chosen),
        filter,
        output: Output::new(),
        told: 0,
        most: args.count.unwrap_or(u64::MAX),
        lost: Lost::default(),
        times,
    };
    shown.lost.is_exact = true;
    shown.writer.begin(&mut shown.output, source)?;
    let mut outcome = Outcome::Complete;
    for segment in segments {
        if let Err(what) = shown.segment(&library, segment, &boot_id)? {
            say(format_args!("{}: {what}", segment.name));
            outcome = Outcome::Partial;
        }
    }
    let Shown {
        filter,
        writer,
        mut output,
        told,
        lost,
        ..
    } = shown;
    let absences = writer.end(&mut output, told, lost)?;
    Ok(outcome.and(report(told, lost, source, &filter, &absences)))
}

impl Shown {
    /// Shows what is in a segment. The inner error says what is missing.
    fn segment(&mut self, library: &Library, segment: &Segment, boot_id: &str) -> Result<Result<(), String>, Failure> {
        let decoder = match library.decoder(segment) {
            Ok(Some(decoder)) => decoder,
            Ok(None) => return Ok(Ok(())),
            Err(damage) => return Ok(Err(damage)),
        };
        if decoder.about.boot_id != boot_id {
            // Times since boot could not be compared.
            return Ok(Err(
                "left out, because it is of an earlier boot: --to ends before the last one".to_owned(),
            ));
        }
        let mut recorded = match Recorded::quiet(decoder) {
            Ok(recorded) => recorded,
            Err(damage) => return Ok(Err(damage.to_string())),
        };
        loop {
            match recorded.advance() {
                Ok(None) => {}
                Ok(Some(End::Whole | End::Torn(_))) => return Ok(Ok(())),
                Err(damage) => return Ok(Err(damage)),
            }
            let (happened, boot_ns) = (recorded.happened(), recorded.moment().boot_ns());
            if self.times.contains(&recorded.moment().time.wall_ns) {
                self.lost.count += happened.left_out;
            }
            for event in happened.events.iter().filter_map(|bytes| Event::decode(bytes)) {
                let wall_ns = boot_ns.saturating_add_unsigned(event.time_ns());
                if self.told < self.most && self.times.contains(&wall_ns) && self.filter.admits(&event) {
                    self.writer.row(&mut self.output, &event)?;
                    self.told += 1;
                }
            }
            self.writer.flush(&mut self.output)?;
        }
    }
}
