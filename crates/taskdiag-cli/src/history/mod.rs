//! Reading recordings: the options `--history` and `--at`, and `taskdiag history`.

mod between;
mod export;
pub mod library;
mod overview;
pub mod past;
mod span;
pub mod spikes;
mod time;
pub mod timeline;

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use taskdiag::Handle;

use crate::listing::Format;
use crate::outcome::{say, Failure, Outcome};
use crate::output::{people, text};
use between::{Between, Visit};
use library::Library;
use past::Recorded;
use taskdiag_history::decode::Decoder;

pub use overview::{run, Args};
pub use past::{show, shown, MachineState};
pub use span::Life;
pub use time::{exact, moment, precise, shown as shown_time};

/// Options for commands that can show one time of a recording.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Recordings")]
pub struct MomentOptions {
    /// Look at a recording (`taskdiag record`), not at the machine
    #[arg(long, visible_alias = "dir", value_name = "DIR", conflicts_with_all = ["source", "socket"])]
    history: Option<PathBuf>,
    /// The moment to look at: 2026-11-23T03:12:00Z, "2026-11-23 03:12", 03:12, or -2h for so long
    /// ago [default: the last one]
    #[arg(long, value_name = "TIME", requires = "history", allow_hyphen_values = true, value_parser = time::moment)]
    at: Option<i64>,
}

/// Options for commands that can show one time of a recording, or every process of a period.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Recordings")]
pub struct PastOptions {
    #[command(flatten)]
    moment: MomentOptions,
    /// Every process that was there from this time on, as it was when it was seen last. Percentages
    /// of processor time are of the time from here to --to
    #[arg(long, value_name = "TIME", requires = "history", conflicts_with = "at", allow_hyphen_values = true,
        value_parser = time::moment)]
    from: Option<i64>,
    /// The same until before this time
    #[arg(long, value_name = "TIME", requires = "history", conflicts_with = "at", allow_hyphen_values = true,
        value_parser = time::moment)]
    to: Option<i64>,
}

/// Options for commands that can show a period of a recording.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Recordings")]
pub struct RangeOptions {
    /// Look at a recording (`taskdiag record`), not at the machine
    #[arg(long, visible_alias = "dir", value_name = "DIR", conflicts_with = "source")]
    pub history: Option<PathBuf>,
    /// From this time: 2026-11-23T03:12:00Z, "2026-11-23 03:12", 03:12, or -2h for so long ago
    #[arg(long, value_name = "TIME", requires = "history", allow_hyphen_values = true, value_parser = time::moment)]
    from: Option<i64>,
    /// Until before this time
    #[arg(long, value_name = "TIME", requires = "history", allow_hyphen_values = true, value_parser = time::moment)]
    to: Option<i64>,
}

impl RangeOptions {
    /// Whether a recording was requested.
    pub fn is_given(&self) -> bool {
        self.history.is_some()
    }

    /// Whether a beginning or an end was requested.
    pub fn has_ends(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// A handle that answers with every process of the period. Each sample is given to `visit`.
    pub fn handle(&self, format: Format, visit: Visit<'_>) -> Result<(Handle, Outcome), Failure> {
        let path = self.history.as_deref().unwrap_or(Path::new(""));
        let (between, gaps, damages) = Between::read(Library::open(path)?, &self.times()?, visit)?;
        say_gaps(format, &gaps);
        Ok((Handle::of_past(Box::new(between)), say_all(path, damages)))
    }

    /// The period, in nanoseconds since 1970.
    pub fn times(&self) -> Result<Range<i64>, Failure> {
        times(self.from, self.to)
    }
}

/// Says in which parts of a period nothing was recorded, if `format` is for people.
pub fn say_gaps(format: Format, gaps: &[Range<i64>]) {
    let named = gaps.iter().take(3);
    let named = named.map(|gap| format!("from {} to {}", shown_time(gap.start), shown_time(gap.end)));
    let named: Vec<String> = named.collect();
    if format == Format::Table && !named.is_empty() {
        let others = if gaps.len() > 3 { ", and at other times" } else { "" };
        say(format_args!("nothing was recorded {}{others}", named.join(", ")));
    }
}

/// Reports what is missing in a recording.
fn say_all(path: &Path, damages: Vec<String>) -> Outcome {
    let outcome = Outcome::partial_if(!damages.is_empty());
    let damages = damages.into_iter();
    damages.for_each(|damage| say(format_args!("{}: {damage}", path.display())));
    outcome
}

/// The period between two options, in nanoseconds since 1970.
fn times(from: Option<i64>, to: Option<i64>) -> Result<Range<i64>, Failure> {
    let times = from.unwrap_or(i64::MIN)..to.unwrap_or(i64::MAX);
    if times.is_empty() {
        return Err("--from has to be before --to".into());
    }
    Ok(times)
}

impl MomentOptions {
    /// Opens the recording at the requested sample, if a recording was requested. Also returns
    /// damage found on the way. Says if `format` is for people and the sample is of another time.
    pub fn open(&self, format: Format) -> Result<Option<(Library, Decoder, Vec<String>)>, Failure> {
        let Some(path) = &self.history else {
            return Ok(None);
        };
        let library = Library::open(path)?;
        let (decoder, early_ns, damages) = match self.at {
            Some(moment) => library.at(moment)?,
            None => library.last().map(|(decoder, damages)| (decoder, None, damages))?,
        };
        if let Some(early_ns) = early_ns.filter(|_| format == Format::Table) {
            let time = time::shown(decoder.time.wall_ns);
            let early = text::written(|out| people::duration(out, early_ns));
            say(format_args!(
                "what is shown is of {time}, {early} earlier: nothing was recorded in between"
            ));
        }
        Ok(Some((library, decoder, damages)))
    }
}

impl PastOptions {
    /// Whether a recording was requested.
    pub fn is_given(&self) -> bool {
        self.moment.history.is_some()
    }

    /// The recording and its period, if requested.
    pub fn period(&self) -> Option<RangeOptions> {
        let history = Some(self.moment.history.clone()?);
        let PastOptions { from, to, .. } = *self;
        Some(RangeOptions { history, from, to })
    }

    /// A handle that answers from the recording, if requested, or otherwise `now`. The outcome is
    /// partial if something of the recording is missing, which is reported.
    pub fn handle(&self, format: Format, now: impl FnOnce() -> Handle) -> Result<(Handle, Outcome), Failure> {
        let Some(path) = &self.moment.history else {
            return Ok((now(), Outcome::Complete));
        };
        if let Some(period) = self.period().filter(RangeOptions::has_ends) {
            return period.handle(format, &mut |_, _, _| {});
        }
        let Some((_, decoder, damages)) = self.moment.open(format)? else {
            return Ok((now(), Outcome::Complete));
        };
        let outcome = say_all(path, damages);
        let recorded = Recorded::new(decoder, None);
        let recorded = recorded.map_err(|damage| format!("{}: {damage}", path.display()))?;
        recorded.show();
        Ok((Handle::of_past(Box::new(recorded)), outcome))
    }
}
