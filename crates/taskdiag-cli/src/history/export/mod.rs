//! `taskdiag history export`: a recording as Parquet files, which other programs can query.

mod sheet;
pub mod tables;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use jiff::Timestamp;
use taskdiag::{Fields, Query, Snapshot};
use taskdiag_history::directory::TIERS;

use super::library::{Library, Segment};
use super::past::Recorded;
use super::time;
use crate::events::Stop;
use crate::outcome::{counted, say, Failure, Outcome};
use sheet::{period, Sheet};
use tables::{TableInfo, CGROUPS, EVENTS, MEMORY, PROCESSES, PROGRAMS};

/// Write a recording as Parquet files: OUT/TABLE/host=…/date=…/….parquet
///
/// The tables are processes, events, programs, cgroups and memory: see docs/history.md. Several
/// hosts can be exported to one directory or bucket. Values that are absent are NULL.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The directory of the recording
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Where to write
    #[arg(long, value_name = "OUT")]
    parquet: PathBuf,
    /// Which samples: full, 1min or 10min
    #[arg(long, value_name = "TIER", default_value = "full", value_parser = TIERS.map(|tier| tier.name))]
    tier: String,
    /// Only samples of this time or later
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::moment)]
    from: Option<i64>,
    /// Only samples before this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::moment)]
    to: Option<i64>,
}

/// The files being written, by table, host and day.
struct Export {
    out: PathBuf,
    /// The file name, which identifies the exported samples: a second export replaces the first.
    name: String,
    sheets: BTreeMap<(&'static str, String, String), Sheet>,
    snapshot: Snapshot,
    query: Query,
    samples: u64,
    /// When the figures of cgroups in the last sample of this file were read.
    cgroups_read_ns: Option<u64>,
}

pub fn run(args: &Args) -> Result<Outcome, Failure> {
    let times = super::times(args.from, args.to)?;
    let library = Library::open(&args.dir)?;
    let mut export = Export {
        out: args.parquet.clone(),
        name: String::new(),
        sheets: BTreeMap::new(),
        snapshot: Snapshot::default(),
        query: Query::processes().fields(tables::FIELDS.into_iter().collect::<Fields>()),
        samples: 0,
        cgroups_read_ns: None,
    };
    let mut outcome = Outcome::Complete;
    let stop = Stop::at_signals()?;
    let tier = TIERS.iter().find(|tier| tier.name == args.tier).unwrap_or(&TIERS[0]);
    for segment in library.of_tier(tier, &times) {
        if let Err(damage) = export.segment(&library, segment, &times, &stop)? {
            say(format_args!("{}: {damage}", library.path.join(&segment.name).display()));
            outcome = Outcome::Partial;
        }
    }
    if export.samples == 0 {
        return Err(Failure::Unanswered(format!(
            "{}: it has no samples of the tier {} in that time: `taskdiag history` shows what it has",
            args.dir.display(),
            args.tier
        )));
    }
    say(format_args!(
        "{} exported to {}",
        counted(export.samples, "sample"),
        args.parquet.display()
    ));
    Ok(outcome)
}

impl Export {
    /// Exports a segment. The inner error is damage.
    fn segment(
        &mut self,
        library: &Library,
        segment: &Segment,
        times: &Range<i64>,
        stop: &Stop,
    ) -> Result<Result<(), String>, Failure> {
        let mut recorded = match library.recorded(segment) {
            Ok(Some(recorded)) => recorded,
            Ok(None) => return Ok(Ok(())),
            Err(damage) => return Ok(Err(damage)),
        };
        self.cgroups_read_ns = None;
        self.name = segment.name.trim_end_matches(".tdh").to_owned();
        let out = self.out.display().to_string();
        let wrong = |error: io::Error| Failure::Unanswered(format!("{out}: writing the export: {error}"));
        let all_times = self.with_exported(&recorded.moment.about.host, segment, times);
        let result = loop {
            if stop.was_asked()? {
                return Err(format!("{out}: ended by a signal: it has a part of the samples").into());
            }
            let next = recorded.advance();
            if next != Ok(true) {
                break next.map(drop);
            }
            let wall_ns = recorded.moment.time.wall_ns;
            if wall_ns >= all_times.end {
                break Ok(());
            }
            if wall_ns < all_times.start {
                continue;
            }
            if let Err(error) = taskdiag::answer_past(&mut recorded, &self.query, &mut self.snapshot) {
                break Err(format!("{error:#}"));
            }
            self.samples += u64::from(times.contains(&wall_ns));
            self.sample(&recorded).map_err(wrong)?;
        };
        for (_, sheet) in std::mem::take(&mut self.sheets) {
            sheet.finish().map_err(wrong)?;
        }
        Ok(result)
    }

    /// The period to export of a segment: the requested one, extended to what an earlier export has
    /// of the segment. The file replaces the earlier one, and must not have less.
    fn with_exported(&self, host: &str, segment: &Segment, times: &Range<i64>) -> Range<i64> {
        const DAY_NS: i64 = 86_400_000_000_000;
        // A segment covers at most a day, and a little more if the machine slept.
        let days = (0..3).map(|day| segment.begin_ns.saturating_add(day * DAY_NS));
        let exported = days.filter_map(|wall_ns| period(&self.path(&PROCESSES, host, &date(wall_ns))));
        exported.fold(times.clone(), |all, one| all.start.min(one.start)..all.end.max(one.end))
    }

    /// The name of a file.
    fn path(&self, table: &TableInfo, host: &str, date: &str) -> PathBuf {
        let directory = self.out.join(table.name);
        let directory = directory.join(format!("host={}", as_directory(host)));
        directory
            .join(format!("date={date}"))
            .join(format!("{}.parquet", self.name))
    }

    /// Adds the sample that was read.
    fn sample(&mut self, recorded: &Recorded) -> io::Result<()> {
        let moment = recorded.moment.clone();
        let happened = &recorded.decoder.happened;
        let processes = self
            .snapshot
            .tasks()
            .map(|task| tables::process(&task, &moment))
            .collect();
        let host = moment.about.host.clone();
        for (table, rows) in [
            (&PROCESSES, processes),
            (&EVENTS, tables::events(happened, &moment)),
            (&PROGRAMS, tables::programs(happened, &moment)),
            (&CGROUPS, tables::cgroups(&moment, &mut self.cgroups_read_ns)),
            (&MEMORY, tables::machine(&moment)),
        ] {
            if rows.is_empty() {
                continue;
            }
            let sheet = self.sheet(table, &host, moment.time.wall_ns)?;
            rows.into_iter().try_for_each(|row| sheet.add(row))?;
        }
        Ok(())
    }

    /// The file of a table for a host and a day (UTC).
    fn sheet(&mut self, table: &TableInfo, host: &str, wall_ns: i64) -> io::Result<&mut Sheet> {
        let date = date(wall_ns);
        let path = self.path(table, host, &date);
        match self.sheets.entry((table.name, host.to_owned(), date)) {
            std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let sheet = Sheet::create(&path, table.name, (table.columns)(), table.order);
                Ok(entry.insert(sheet?))
            }
        }
    }
}

/// The day of a time in UTC.
fn date(wall_ns: i64) -> String {
    let timestamp = Timestamp::from_nanosecond(wall_ns.into()).unwrap_or_default();
    timestamp.strftime("%Y-%m-%d").to_string()
}

/// A host name as a path component. Recordings may come from anyone.
fn as_directory(host: &str) -> String {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let name: String = host
        .chars()
        .map(|character| if allowed(character) { character } else { '_' })
        .collect();
    match name.trim_start_matches('.') {
        "" => "unknown".to_owned(),
        name => name.chars().take(200).collect(),
    }
}
