//! `taskdiag history`: shows the contents of a recording.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use taskdiag::Value;
use taskdiag_history::decode::End;
use taskdiag_history::About;

use super::export;
use super::library::{far_ns, seek, torn, Library, Segment};
use super::time;
use crate::outcome::{counted, print, say, Failure, Outcome};
use crate::output::document::{Document, Head};
use crate::output::format::Machine;
use crate::output::table::fitted;
use crate::output::text::escaped;
use crate::output::{json, people, Output};

/// Show what a recording has: from when to when, gaps, sizes; --verify checks all of it
///
/// Checksums of all that was written are checked. What is damaged is said on standard error, and
/// the exit status is 1.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag history /var/lib/taskdiag\n  \
    taskdiag history --verify here && echo whole\n  \
    taskdiag history --json here | jq '.rows[] | select(.tier == \"full\")'")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// The directory of the recording
    #[arg(value_name = "DIR", required_unless_present = "history")]
    dir: Option<PathBuf>,
    /// The same, as other commands name it
    #[arg(long, alias = "dir", value_name = "DIR", hide = true, conflicts_with = "dir")]
    history: Option<PathBuf>,
    /// Read every sample too, not its checksum alone
    #[arg(long)]
    verify: bool,
    /// One JSON document, with a row for each file
    #[arg(long)]
    json: bool,
}

/// Other actions.
#[derive(Debug, Subcommand)]
enum Other {
    Export(export::Args),
    /// Print the tables and columns of an export, as Markdown
    Tables,
}

/// The contents of a file.
#[derive(Debug, Default)]
struct Contents {
    samples_count: u64,
    /// The times of the first and the last sample.
    times: Option<(i64, i64)>,
    /// Periods in which samples are missing.
    gaps: Vec<(i64, i64)>,
    about: About,
    damage: Option<String>,
}

pub fn run(args: Args) -> Result<Outcome, Failure> {
    match &args.other {
        Some(Other::Export(args)) => return export::run(args),
        Some(Other::Tables) => return print(export::tables::markdown()),
        None => {}
    }
    let library = Library::open(&args.dir.or(args.history).unwrap_or_default())?;
    let look = |segment| (segment, contents(&library, segment, args.verify));
    let looked_at: Vec<(&Segment, Contents)> = library.segments.iter().map(look).collect();
    let mut output = Output::default();
    if args.json {
        write_json(&looked_at, &mut output.buffer);
    } else {
        let mut text = overview(&looked_at);
        if args.verify && looked_at.iter().all(|(_, contents)| contents.damage.is_none()) {
            text += "verified  all samples were read, and are whole\n";
        }
        output.buffer.extend_from_slice(fitted(&text).as_bytes());
    }
    output.finish()?;
    let mut outcome = Outcome::Complete;
    for (segment, contents) in &looked_at {
        if let Some(damage) = &contents.damage {
            say(format_args!("{}: {damage}", library.path.join(&segment.name).display()));
            outcome = Outcome::Partial;
        }
    }
    Ok(outcome)
}

fn contents(library: &Library, segment: &Segment, verify: bool) -> Contents {
    let (outline, decoder) = library.outline(segment);
    let far_ns = outline.far_ns();
    let times: Vec<i64> = outline.times.iter().map(|time| time.wall_ns).collect();
    let pairs = times.iter().copied().zip(times.iter().copied().skip(1));
    let mut contents = Contents {
        samples_count: times.len() as u64,
        times: times.first().copied().zip(times.last().copied()),
        gaps: pairs
            .filter(|(before, after)| after.saturating_sub(*before) > far_ns)
            .collect(),
        damage: outline.damage,
        ..Contents::default()
    };
    let path = library.path.join(&segment.name);
    // The recorder may have just removed it.
    if outline.about.is_none() && contents.damage.is_none() && path.exists() {
        contents.damage = Some("it has no sample: the recorder or the machine stopped when it was begun".to_owned());
    }
    contents.about = outline.about.unwrap_or_default();
    if let Some(decoder) = decoder.filter(|_| verify) {
        contents.damage = match seek(decoder, i64::MAX).2 {
            Ok(End::Whole) => contents.damage,
            Ok(End::Torn(bytes)) => Some(torn(bytes)),
            Err(broken) => Some(broken.to_string()),
        };
    }
    contents
}

/// Formats the overview.
fn overview(looked_at: &[(&Segment, Contents)]) -> String {
    /// What the files say, each once. Those that can't be read say nothing.
    fn distinct<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
        let texts = texts.map(String::as_str).filter(|text| !text.is_empty());
        texts.collect::<BTreeSet<&str>>().into_iter().collect()
    }
    let mut text = String::new();
    let all = || looked_at.iter().map(|(_, contents)| contents);
    let hosts = distinct(all().map(|contents| &contents.about.host));
    let boots = distinct(all().map(|contents| &contents.about.boot_id));
    let _ = writeln!(
        text,
        "host      {} ({})",
        escaped(&hosts.join(", ")),
        counted(boots.len() as u64, "boot")
    );
    let mut tiers: Vec<&str> = looked_at.iter().map(|(segment, _)| segment.tier.name).collect();
    tiers.dedup();
    let mut all_gaps: Vec<(i64, i64, &str)> = Vec::new();
    for tier in tiers {
        let of_tier = looked_at.iter().filter(|(segment, _)| segment.tier.name == tier);
        let of_tier: Vec<&(&Segment, Contents)> = of_tier.collect();
        let samples: u64 = of_tier.iter().map(|(_, contents)| contents.samples_count).sum();
        let bytes: u64 = of_tier.iter().map(|(segment, _)| segment.bytes).sum();
        let times = || of_tier.iter().filter_map(|(_, contents)| contents.times);
        let first = times().map(|(first, _)| first).min();
        let last = times().map(|(_, last)| last).max();
        let _ = write!(text, "{tier:<8}  ");
        if let (Some(first), Some(last)) = (first, last) {
            let _ = write!(text, "{} to {}, ", time::shown(first), time::shown(last));
        }
        let each = bytes.checked_div(samples).unwrap_or(0);
        let _ = writeln!(
            text,
            "{} in {}, {}, {} each",
            counted(samples, "sample"),
            counted(of_tier.len() as u64, "file"),
            people::size_text(bytes),
            people::size_text(each)
        );
        // A gap is told for the finest tier that has it.
        let mut gaps = gaps(&of_tier);
        gaps.retain(|(before, after)| !all_gaps.iter().any(|told| before < &told.1 && &told.0 < after));
        all_gaps.extend(gaps.into_iter().map(|(before, after)| (before, after, tier)));
    }
    all_gaps.sort_unstable();
    for (before, after, tier) in all_gaps {
        let seconds = after.saturating_sub(before) / 1_000_000_000;
        let _ = writeln!(
            text,
            "gap       {} to {} ({seconds} s) in {tier}",
            time::shown(before),
            time::shown(after)
        );
    }
    for note in distinct(all().flat_map(|contents| &contents.about.notes)) {
        let _ = writeln!(text, "note      {}", escaped(note));
    }
    text
}

/// The gaps in a tier, within and between files.
fn gaps(of_tier: &[&(&Segment, Contents)]) -> Vec<(i64, i64)> {
    let mut gaps = Vec::new();
    let mut before = None;
    for (_, contents) in of_tier {
        let Some((first, last)) = contents.times else { continue };
        let far = far_ns(contents.about.every_ns);
        gaps.extend(
            before
                .filter(|&before| first.saturating_sub(before) > far)
                .map(|before| (before, first)),
        );
        gaps.extend(&contents.gaps);
        before = Some(last);
    }
    gaps
}

fn text(text: &str) -> Value<'_> {
    Value::Text(text.as_bytes())
}

fn write_json(looked_at: &[(&Segment, Contents)], out: &mut Vec<u8>) {
    let head = Head::streaming("history", Vec::new());
    let mut document = Document::begin(out, Machine::Json, &head, None::<[&str; 0]>);
    for (segment, contents) in looked_at {
        document.row(out, |out| {
            let times = contents.times.map(|(first, last)| [first, last].map(time::exact));
            let mut members = vec![
                ("name", text(&segment.name)),
                ("tier", text(segment.tier.name)),
                ("host", text(&contents.about.host)),
                ("boot_id", text(&contents.about.boot_id)),
                ("samples_count", Value::Unsigned(contents.samples_count)),
                ("every_ns", Value::Unsigned(contents.about.every_ns)),
                ("size_bytes", Value::Unsigned(segment.bytes)),
            ];
            let keys = ["first_time", "last_time"];
            members.extend(keys.into_iter().zip(times.iter().flatten().map(|time| text(time))));
            members.extend(contents.damage.iter().map(|damage| ("damage", text(damage))));
            json::object(out, members, |(name, value)| {
                (name, move |out: &mut Vec<u8>| json::write_value(out, value))
            });
        });
    }
    document.end(out, |_| {});
}

#[cfg(test)]
mod tests {
    use taskdiag_history::directory::TIERS;

    use super::*;

    /// Check that gaps of all tiers are told, each for the finest tier that has it.
    #[test]
    fn gaps_are_of_all_tiers() {
        let hour = |hour: i64| hour * 3_600_000_000_000;
        let files = [(0, 5, 6), (0, 8, 9), (1, 0, 1), (1, 3, 6), (1, 8, 9)];
        let segments = files.map(|(tier, begin, _): (usize, i64, i64)| Segment {
            name: String::new(),
            tier: &TIERS[tier],
            begin_ns: hour(begin),
            bytes: 1,
        });
        let contents = files.map(|(_, begin, end)| Contents {
            times: Some((hour(begin), hour(end))),
            about: About {
                every_ns: 60_000_000_000,
                ..About::default()
            },
            ..Contents::default()
        });
        let looked_at: Vec<(&Segment, Contents)> = segments.iter().zip(contents).collect();
        let text = overview(&looked_at);
        let gaps: Vec<&str> = text.lines().filter(|line| line.starts_with("gap")).collect();
        let ends: Vec<&str> = gaps.iter().filter_map(|gap| gap.split('(').nth(1)).collect();
        assert_eq!(ends, ["7200 s) in 1min", "7200 s) in full"], "{text}");
    }
}
