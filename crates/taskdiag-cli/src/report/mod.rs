//! `taskdiag report`: one page with charts.

mod commands;
mod document;
mod incidents;
mod kernel_log;
mod page;
mod present;
mod reading;
mod series;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

use clap::Args as ClapArgs;
use rustix::time::ClockId;
use taskdiag::pagecache::{Found, Seen, Walk};
use taskdiag::{Budget, Field, Query, Snapshot};
use taskdiag_history::decode::Decoder;
use taskdiag_sys::host::now_ns;

use crate::cache::Directories;
use crate::file::{self, Unfinished};
use crate::grouping::{self, Grouping};
use crate::history::library::Library;
use crate::history::past::{MachineState, Recorded};
use crate::history::{exact, shown_time, RangeOptions};
use crate::host::MemInfo;
use crate::listing::Answers;
use crate::outcome::{counted, message, say, Failure, Outcome};
use crate::output::document::boot_id;
use crate::output::relation::Absences;
use crate::output::Output;
use crate::source::SourceOptions;
use document::{Contents, Tree};
use incidents::{Incident, IncidentKind};
use present::{Present, GROUPINGS};
use reading::Read;

/// Make a page with charts: processor time and memory over time, where the memory is, what happened
///
/// The page is one file that needs no other files and no network. With --history it shows a period
/// of a recording (see `taskdiag record`), by program, unit or container; otherwise it shows the
/// current state. Each chart lists the commands that print its numbers.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag report -o now.html\n  \
    taskdiag report --history /var/lib/taskdiag --from -2h -o report.html\n  \
    taskdiag report --history /var/lib/taskdiag --from '2026-11-23 03:00' --to '2026-11-23 04:00' --by unit -o report.html\n  \
    taskdiag report --cache /var --cache /usr -o now.html")]
pub struct Args {
    /// The page; - is standard output. The file is written completely or not at all, readable only
    /// by its owner
    #[arg(short = 'o', long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    past: RangeOptions,
    /// The initial grouping of processes; the page offers all three
    #[arg(long, value_name = "WHAT", default_value = "program", value_parser = grouping::by_parser(&GROUPINGS))]
    by: &'static Grouping,
    /// Also show the current page cache of the files below this directory and of the directories in
    /// it
    #[arg(long, value_name = "DIR")]
    cache: Vec<PathBuf>,
    #[command(flatten)]
    from: SourceOptions,
}

/// How long to walk the page tables of processes for their proportional set sizes.
const DEADLINE: Duration = Duration::from_secs(5);

pub fn run(args: &Args) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::Complete;
    let ((mut contents, title), answers) = match &args.past.history {
        Some(directory) => (of_recording(args, directory, &mut outcome)?, None),
        None => of_now(args).map(|(page, answers)| (page, Some(answers)))?,
    };
    for path in &args.cache {
        let tree = walk(path).map_err(|error| format!("{}: {error:#}", path.display()))?;
        if tree.failed > 0 {
            let note = format!("{}: {} could not be read", path.display(), counted(tree.failed, "file"));
            say(&note);
            contents.notes.push(note);
            outcome = Outcome::Partial;
        }
        contents.caches.push(tree);
    }
    let page = page::page(&title, &document::document(contents));
    let page = page.map_err(|error| format!("random numbers: {error}"))?;
    write(&args.output, page.as_bytes())?;
    Ok(outcome.and(answers.map_or(Outcome::Complete, |answers| lacks(&answers))))
}

/// Walks a directory, on the directory's own file system. The rows are the directory and its
/// subdirectories.
fn walk(path: &Path) -> taskdiag::Result<Tree> {
    let mut directories = Directories::new(path, 1);
    let walk = Walk::new().each_file(false).one_file_system(true);
    let mut visit = |found: Found<'_>| {
        if let Found::Directory { path, depth, sum, .. } = found {
            directories.add(path, depth, sum);
        }
        ControlFlow::Continue(())
    };
    let totals = walk.run(path, &mut Seen::default(), &AtomicBool::new(false), &mut visit)?;
    Ok(Tree {
        rows: directories.add_up(),
        failed: totals.failed,
    })
}

/// Reports what the page about the present moment lacks.
fn lacks(answers: &Answers) -> Outcome {
    let tasks = answers.tasks();
    let mut missing = Absences::default();
    for task in &tasks {
        let _ = missing.value(task, Field::PssBytes as usize);
    }
    answers.report(&[(&missing, tasks.len())])
}

/// A page about the present moment.
fn of_now(args: &Args) -> Result<((Contents, String), Answers), Failure> {
    let mut handle = args.from.handle();
    let query = Query::processes()
        .fields(present::fields())
        .budget(Budget::default().deadline(Some(DEADLINE)));
    let answers = Answers::ask(&mut handle, &query)?;
    let info = MemInfo::read().ok();
    let wall_ns = now_ns(ClockId::Realtime) as i64;
    let present = Present::new(&answers.snapshot, info.as_ref(), wall_ns);
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy().into_owned();
    let mut notes = Vec::new();
    let logged = logged(i64::MIN..i64::MAX, &mut notes);
    let about = format!(
        "{}, {}, Linux {}.",
        shown_time(wall_ns),
        counted(present.processes.len() as u64, "process"),
        system.release().to_string_lossy()
    );
    let contents = Contents {
        about,
        notes,
        by: args.by.name,
        read: None,
        commands: commands::of(None, present.memory, &args.cache),
        present,
        caches: Vec::new(),
        logged,
    };
    Ok(((contents, format!("{host}: processes and memory")), answers))
}

/// A page about a time of a recording.
fn of_recording(args: &Args, directory: &Path, outcome: &mut Outcome) -> Result<(Contents, String), Failure> {
    let times = args.past.times()?;
    let library = Library::open(directory)?;
    let read = reading::read(&library, &times)?;
    let mut notes = read.notes.clone();
    for damage in &read.damages {
        say(format_args!("{}: {damage}", directory.display()));
        notes.push(format!("damaged: {damage}"));
        *outcome = Outcome::Partial;
    }
    let known: Vec<i64> = read
        .points
        .iter()
        .filter(|point| point.is_known)
        .map(|point| point.wall_ns)
        .collect();
    let (first, last) = (known[0], known[known.len() - 1]);
    let (decoder, ..) = library.at(last)?;
    let (present, moment) = of_moment(decoder).map_err(|why| format!("{}: {why}", directory.display()))?;
    let is_this_boot = boot_id().is_some_and(|id| id == read.boot_id);
    if !args.cache.is_empty() && !is_this_boot {
        let message =
            "--cache shows this machine now, but the recording is of another machine or boot: leave out one of them";
        return Err(message.into());
    }
    let logged = if is_this_boot {
        logged(first..last.saturating_add(1), &mut notes)
    } else {
        notes.push("the kernel's log is from another boot than the recording, and was not read".to_owned());
        Vec::new()
    };
    if !read.has_events {
        notes.push(
            "no events were recorded: bursts of forks and processes that existed only between samples are not known"
                .to_owned(),
        );
    }
    let most = |of: fn(&reading::Point) -> u64| read.points.iter().map(of).max().unwrap_or(0);
    for (count, what) in [
        (
            most(|point| point.missing),
            "missing from a sample, because their memory is not known",
        ),
        (
            most(|point| point.resident),
            "in a sample with resident size, because the proportional one is not known",
        ),
    ] {
        if count == 0 {
            continue;
        }
        let note = format!("memory: up to {} {what}", counted(count, "process"));
        say(&note);
        notes.push(note);
        *outcome = Outcome::Partial;
    }
    let past = commands::Past {
        directory,
        tier: read.tier,
        from: exact(first),
        // The last sample must be before the end.
        to: exact(last.saturating_add(1_000_000)),
        at: exact(present.wall_ns),
    };
    let contents = Contents {
        about: about(&read, &known, &moment),
        notes,
        by: args.by.name,
        commands: commands::of(Some(&past), present.memory, &args.cache),
        present,
        caches: Vec::new(),
        logged,
        read: Some(read),
    };
    Ok((
        contents,
        format!("{}: processes and memory over time", moment.about.host),
    ))
}

fn about(read: &Read, known: &[i64], moment: &MachineState) -> String {
    format!(
        "{} to {}, {} of the tier {}, {} in the charts; Linux {}, recorded by {}.",
        shown_time(known[0]),
        shown_time(known[known.len() - 1]),
        counted(read.samples, "sample"),
        read.tier,
        counted(known.len() as u64, "point"),
        moment.about.kernel,
        moment.about.version
    )
}

/// The processes of the last sample that was read.
fn of_moment(decoder: Decoder) -> Result<(Present, Arc<MachineState>), String> {
    let mut recorded = Recorded::new(decoder, None)?;
    let mut snapshot = Snapshot::default();
    let query = Query::processes().fields(present::fields());
    taskdiag::answer_past(&mut recorded, &query, &mut snapshot).map_err(|error| format!("{error:#}"))?;
    let moment = recorded.moment.clone();
    let info = MemInfo::of(moment.numbers("meminfo"));
    let has_info = info.bytes("MemTotal").is_some();
    let present = Present::new(&snapshot, has_info.then_some(&info), moment.time.wall_ns);
    Ok((present, moment))
}

/// Incidents from the kernel's log in a time range.
fn logged(times: Range<i64>, notes: &mut Vec<String>) -> Vec<Incident> {
    let log = match kernel_log::read() {
        Ok(log) => log,
        Err(error) => {
            notes.push(format!("the kernel's log could not be read: {}", message(&error)));
            return Vec::new();
        }
    };
    // Its clock stops while the machine sleeps.
    let wall_ns = now_ns(ClockId::Realtime) as i64;
    let begin_ns = wall_ns.saturating_sub_unsigned(now_ns(ClockId::Monotonic));
    let wall = |since_boot_ns: u64| begin_ns.saturating_add_unsigned(since_boot_ns);
    if let Some(first) = log
        .first_ns
        .map(wall)
        .filter(|first| *first > times.start && times.start > i64::MIN)
    {
        // The first messages are those of the boot itself, a moment after it.
        if log.first_ns > Some(1_000_000_000) {
            notes.push(format!("the kernel's log goes back only to {}", shown_time(first)));
        }
    }
    let incident = |(since_boot_ns, kill)| Incident {
        wall_ns: wall(since_boot_ns),
        what: IncidentKind::OomKill(kill),
    };
    let incidents = log.kills.into_iter().map(incident);
    incidents.filter(|incident| times.contains(&incident.wall_ns)).collect()
}

/// Writes a page either completely or not at all.
fn write(path: &Path, page: &[u8]) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        let mut output = Output::default();
        output.buffer.extend_from_slice(page);
        return Ok(output.finish()?);
    }
    let wrong =
        |error: io::Error| Failure::Unanswered(format!("{}: writing the page: {}", path.display(), message(&error)));
    // A symbolic link remains a link.
    let path = &file::target(path).map_err(wrong)?;
    // A path that is not a regular file, such as a pipe, can't be replaced.
    if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        let options = OpenOptions::new().write(true).truncate(true).open(path);
        let mut file = options.map_err(wrong)?;
        return file.write_all(page).map_err(wrong);
    }
    let (mut file, unfinished) = Unfinished::create(path).map_err(wrong)?;
    file.write_all(page)
        .and_then(|()| file.sync_all())
        .and_then(|()| unfinished.finish(path))
        .map_err(wrong)
}
