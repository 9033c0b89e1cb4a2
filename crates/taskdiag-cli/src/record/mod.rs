//! `taskdiag record`.

mod cgroups;
pub mod disk;
mod machine;
mod names;
mod tally;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::time::ClockId;
use taskdiag::{Budget, Error, Field, Fields, Group, Handle, Query, Snapshot};
use taskdiag_core::field::{has_group, with_made_of};
use taskdiag_history::directory::Keep;
use taskdiag_history::encode::{add_answers, Sample};
use taskdiag_history::figures::{self, Figure, Figures, Part};
use taskdiag_history::piece::Time;
use taskdiag_history::recorder::{Notice, Recorder};
use taskdiag_history::About;
use taskdiag_sys::host::now_ns;
use taskdiag_sys::signals::signalfd;

use crate::events::Stop;
use crate::listing::lacking_thread;
use crate::outcome::{counted, hidden, say, Failure, Outcome, WhoMay};
use crate::output::document::boot_id;
use crate::output::relation::list_of;
use crate::quantity;
use crate::rhythm::next_due;
use crate::selection;
use crate::source::{self, SourceOptions};
use cgroups::CgroupFigures;
use disk::Disk;
use names::Names;
use tally::Tally;

/// Record what processes do, until Ctrl-C: commands with --history look at it later
///
/// Every five seconds, or as --every says, what has changed is appended to files in DIR. A process
/// that does nothing costs nothing. What is on the disk stays readable whatever happens to the
/// recorder or the machine: a crash loses the last sample at most. Samples are kept for a day, one
/// of each minute for two weeks, one of each ten minutes for a year.
///
/// The directory may be looked at by its owner only. Environments are never recorded.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag record --dir /var/lib/taskdiag\n  \
    taskdiag record --dir here --every 1s --keep 2G --no-cmdline\n  \
    taskdiag ps --history here --at -2h")]
pub struct Args {
    /// Where to record: a directory, which is made if there is none
    #[arg(long, alias = "history", value_name = "DIR", required_unless_present = "place")]
    dir: Option<PathBuf>,
    /// The same
    #[arg(value_name = "DIR", hide = true, conflicts_with = "dir")]
    place: Option<PathBuf>,
    /// The time between two samples
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = quantity::interval)]
    every: Duration,
    /// End after so many samples
    #[arg(short = 'n', long, value_name = "N", value_parser = quantity::count)]
    count: Option<u64>,
    /// Fields to record, or groups of them [default: those that are cheap]
    #[arg(short = 'o', long = "fields", value_name = "FIELD,…")]
    fields: Vec<String>,
    /// Leave out command lines, which may have secrets in them
    #[arg(long)]
    no_cmdline: bool,
    /// Leave out network traffic, and do not count it
    #[arg(long)]
    no_network: bool,
    /// Record PSS too, and walk page tables for it for at most this part of the time
    #[arg(long, value_name = "PERCENT", value_parser = quantity::percentage)]
    pss_budget: Option<f64>,
    /// Keep samples for so long (14d), or as many as fit into so much (20G); of these the finest go
    /// first
    #[arg(long, value_name = "TIME|SIZE", value_parser = keep)]
    keep: Option<Keep>,
    #[command(flatten)]
    from: SourceOptions,
}

/// The groups that are recorded without `-o`: all but those that are read from separate files for
/// each task, that are of no use later, or that hold secrets.
const GROUPS: [Group; 18] = list_of! {
    Group: Base, Tty, Cred, Groups, Cpu, Faults, Mem, Args, Oom, Namespaces, Cgroup, Io, Net, Signals, Limits, Paths,
    Fds, Audit,
};

fn keep(text: &str) -> Result<Keep, String> {
    let is_time = text.ends_with(['s', 'm', 'h', 'd']);
    let keep = if is_time {
        let time = quantity::duration(text)?;
        Keep::Time(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    } else if text.parse::<f64>().is_ok() {
        return Err(format!(
            "{text:?} says neither how long nor how much: give a time like 14d or a size like 20G"
        ));
    } else {
        Keep::Bytes(quantity::size(text)?)
    };
    // It would remove what is recorded already, too.
    if matches!(keep, Keep::Time(0) | Keep::Bytes(0)) {
        return Err(format!("{text:?} keeps nothing"));
    }
    Ok(keep)
}

/// The query for a sample.
fn query(args: &Args) -> Result<Query, Failure> {
    let mut fields: Fields = if args.fields.is_empty() {
        GROUPS
            .into_iter()
            .map(Fields::of_group)
            .fold(Fields::NONE, |all, group| all | group)
    } else {
        selection::fields(&args.fields)?.into_iter().collect()
    };
    if fields.contains(Field::Environ) {
        let message = "environments are never recorded, because they hold secrets: leave out environ";
        return Err(message.into());
    }
    // Derived values are computed when the recording is read.
    fields = with_made_of(fields).without(Fields::of_group(Group::Derived));
    fields |= Field::StartNs | Field::Ppid | Field::Comm;
    if fields.contains(Field::Cgroup) && Handle::has_cgroup1() {
        fields |= Field::Cgroups;
    }
    fields |= names::NEEDED.into_iter().collect::<Fields>();
    if args.no_cmdline {
        fields = fields.without(Field::Cmdline);
    }
    if args.no_network {
        fields = fields.without(Fields::of_group(Group::Net));
    }
    let mut query = Query::processes();
    match args.pss_budget {
        Some(percent) => {
            fields |= Fields::of_group(Group::Rollup);
            let deadline = args.every.mul_f64(percent / 100.0);
            query = query.budget(
                Budget::default()
                    .deadline(Some(deadline))
                    .max_age(Duration::from_secs(600)),
            );
        }
        None => fields = fields.without(Fields::of_group(Group::Rollup)),
    }
    Ok(query.fields(fields))
}

/// The groups whose values can change while a process does not run, because of other processes or
/// the kernel: its parent ends, memory is reclaimed, signals arrive, it is moved to another cgroup.
const CHANGED_BY_OTHERS: [Group; 6] = list_of! { Group: Base, Tty, Mem, Oom, Cgroup, Signals };

/// The queries for a light sample: everything about the processes that ran, and for all processes
/// the values that can change without running.
struct Light {
    ran: Query,
    all: Query,
    others: Snapshot,
}

impl Light {
    /// `None` unless BPF reports which processes ran. Other sources must read all values to find
    /// out.
    fn new(query: &Query, handle: &mut Handle) -> Option<Light> {
        let fields = query.fields_read();
        let has_rollup = has_group(fields, Group::Rollup);
        let all = CHANGED_BY_OTHERS.into_iter().map(Fields::of_group);
        let all: Fields = all.fold(Fields::NONE, |all, group| all | group);
        let all: Fields = fields.iter().filter(|field| all.contains(*field)).collect();
        let light = Light {
            ran: query.clone().only_changed(),
            all: Query::processes().fields(all | Field::StartNs),
            others: Snapshot::default(),
        };
        (!has_rollup && handle.knows_changes(&light.ran)).then_some(light)
    }
}

/// A recording in progress.
struct Recording {
    recorder: Recorder<Disk>,
    handle: Handle,
    query: Query,
    light: Option<Light>,
    /// The sources and counters of the last full sample.
    answers: Figures,
    names: Names,
    cgroups: CgroupFigures,
    tally: Option<Tally>,
    snapshot: Snapshot,
    is_unread_said: bool,
}

pub fn run(args: Args) -> Result<Outcome, Failure> {
    let mut query = query(&args)?;
    let stop = Stop::at_signals()?;
    // Where files have a limit (RLIMIT_FSIZE), writing fails, which does not end the recorder.
    let _limit = signalfd(&[Signal::XFSZ.as_raw()])?;
    let directory = args.dir.as_ref().or(args.place.as_ref());
    let directory = directory.map_or(Path::new(""), PathBuf::as_path);
    let files = Disk::open(directory)?;
    let mut handle = args.from.handle_for_many();
    let uncounted = source::count_network_for(&mut handle, &query).err();
    if uncounted.is_some() && args.fields.is_empty() {
        query.fields = query.fields.without(Fields::of_group(Group::Net));
    }
    // This pays off for more than one sample. If it fails, another source answers.
    let _ = handle.prepare(query.fields_read());
    let light = Light::new(&query, &mut handle);
    let mut about = about(&args, &query);
    if let Some(reason) = uncounted {
        about.notes.push(format!("no network traffic: {reason:#}"));
    }
    if let Some(note) = hidden().filter(|_| handle.lacks_hidden(&query)) {
        say(&note);
        about.notes.push(note);
    }
    let tally = match Tally::open(&mut handle) {
        Ok(tally) => Some(tally),
        Err(reason) => {
            let note =
                format!("no events, so processes that began and ended between two samples are missing: {reason}");
            say(&note);
            about.notes.push(note);
            None
        }
    };
    let mut recording = Recording {
        recorder: Recorder::new(files, about, args.keep.unwrap_or(Keep::Usual)),
        handle,
        query,
        light,
        answers: Figures::new(),
        names: Names::default(),
        cgroups: CgroupFigures::default(),
        tally,
        snapshot: Snapshot::default(),
        is_unread_said: false,
    };
    let most = args.count.unwrap_or(u64::MAX);
    if io::stderr().is_terminal() {
        say(format_args!(
            "recording to {directory:?} until Ctrl-C: `taskdiag history DIR` shows what it has"
        ));
    }
    let mut outcome = Outcome::Complete;
    let mut next_ns = now_ns(ClockId::Monotonic);
    for number in 1..=most {
        let was_asked = recording.wait(&stop, next_ns)?;
        let is_last = was_asked || number == most;
        outcome = outcome.and(recording.sample(is_last)?);
        if is_last {
            break;
        }
        next_ns = next_due(next_ns, args.every.as_nanos() as u64, now_ns(ClockId::Monotonic));
    }
    Ok(outcome)
}

impl Recording {
    fn sample(&mut self, is_last: bool) -> Result<Outcome, Failure> {
        // As near to the time of the sample as can be: reading the tasks may take long.
        let mut figures = Figures::new();
        machine::add(&mut figures);
        let (time, is_light) = self.ask(is_last)?;
        let others = self.light.as_ref().map(|light| &light.others).filter(|_| is_light);
        // Processes that ran may be in other cgroups now, and others may have been moved.
        for tasks in [Some(&self.snapshot), others].into_iter().flatten() {
            self.names.learn(tasks, &mut self.handle);
        }
        figures.extend(self.answers.clone());
        if let Some(tally) = &self.tally {
            let source = Figure::Text(tally.source().to_string().into_bytes().into());
            figures::set(&mut figures, b"sources", b"events", source);
        }
        let all = others.unwrap_or(&self.snapshot);
        let machine = Part {
            figures: &figures,
            version: time.boot_ns,
        };
        let of_cgroups = self.cgroups.part(all, &self.handle, time.boot_ns);
        let parts = [machine, self.names.part(), of_cgroups];
        let happened = self.tally.as_mut().map(|tally| tally.take(time.boot_ns));
        let happened = happened.unwrap_or_default();
        let sample = Sample {
            time,
            tasks: &self.snapshot,
            others,
            figures: &parts,
            happened: &happened,
        };
        let notices = self.recorder.record(&sample, is_last);
        let mut outcome = Outcome::partial_if(self.is_unread_said);
        for notice in notices {
            outcome = outcome.and(tell(&notice));
        }
        Ok(outcome)
    }

    /// Takes a sample. Returns its time, and whether it is light.
    fn ask(&mut self, is_last: bool) -> Result<(Time, bool), Failure> {
        if let Some(light) = self.light.as_mut().filter(|_| !self.recorder.needs_all(now(), is_last)) {
            self.handle.query_into(&light.ran, &mut self.snapshot)?;
            self.handle.query_into(&light.all, &mut light.others)?;
            let time = time_of(&self.snapshot);
            // By now a full sample may be needed.
            if !self.recorder.needs_all(time, is_last) {
                return Ok((time, true));
            }
        }
        self.handle.query_into(&self.query, &mut self.snapshot)?;
        self.answers.clear();
        add_answers(&self.snapshot, &mut self.answers);
        self.say_unread();
        Ok((time_of(&self.snapshot), false))
    }

    /// Says once that no thread could be started to read some values, or that tasks may not be seen, and
    /// notes it in the recording.
    fn say_unread(&mut self) {
        if self.is_unread_said {
            return;
        }
        let is_unread = lacking_thread(self.snapshot.tasks()) > 0;
        let is_denied = self.snapshot.counters().denied > 0;
        let is_net = self.query.fields.contains(Field::NetSentBytes);
        let is_uncounted = is_net && self.snapshot.tasks().all(|task| task.net_sent_bytes().is_err());
        let note = match is_denied.then(WhoMay::see_denied) {
            _ if is_uncounted => Some("network traffic is missing: nobody counts it now".to_owned()),
            _ if is_unread => Some(format!("values are missing: {}", Error::NO_THREAD)),
            Some(who) if who != WhoMay::Nobody => Some(format!("tasks are missing: you may not see them ({who})")),
            _ => None,
        };
        if let Some(note) = note {
            say(&note);
            self.recorder.add_note(note);
            self.is_unread_said = true;
        }
    }

    /// Waits until a time of the monotonic clock, and counts events meanwhile. Returns whether a
    /// stop was requested.
    fn wait(&mut self, stop: &Stop, until_ns: u64) -> Result<bool, Failure> {
        loop {
            let rest = Duration::from_nanos(until_ns.saturating_sub(now_ns(ClockId::Monotonic)));
            match &mut self.tally {
                Some(tally) => {
                    if let Err(reason) = tally.wait(rest, stop) {
                        say(format_args!("events are no longer recorded: {reason}"));
                        self.recorder.add_note(format!("no events: {reason}"));
                        self.tally = None;
                    }
                }
                None => sleep(rest, stop)?,
            }
            if stop.was_asked()? {
                return Ok(true);
            }
            if now_ns(ClockId::Monotonic) >= until_ns {
                return Ok(false);
            }
        }
    }
}

/// Reports a notice to the user.
fn tell(notice: &Notice) -> Outcome {
    match notice {
        Notice::Stopped(reason) => say(format_args!("nothing is recorded until it is possible again: {reason}")),
        Notice::GoesOn(count) => say("recording goes on; not recorded: ".to_owned() + &counted(*count, "sample")),
        Notice::ClockSet(jump_ns) => {
            say(format_args!(
                "the clock was set by {:.1} seconds",
                *jump_ns as f64 / 1e9
            ));
            return Outcome::Complete;
        }
        Notice::NotRemoved(reason) => say(format_args!("old samples could not be removed: {reason}")),
    }
    Outcome::Partial
}

/// Sleeps for this time, or until a stop is requested.
fn sleep(rest: Duration, stop: &Stop) -> Result<(), Failure> {
    let timeout = Timespec::try_from(rest).unwrap_or_default();
    match poll(
        &mut [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)],
        Some(&timeout),
    ) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(format!("waiting for the next sample: {errno}").into()),
    }
}

fn now() -> Time {
    Time {
        wall_ns: now_ns(ClockId::Realtime) as i64,
        boot_ns: now_ns(ClockId::Boottime),
    }
}

/// When the tasks were read. What is read after them may take seconds.
fn time_of(snapshot: &Snapshot) -> Time {
    let Time { wall_ns, boot_ns } = now();
    Time {
        wall_ns: wall_ns - boot_ns.saturating_sub(snapshot.read_ns) as i64,
        boot_ns: snapshot.read_ns,
    }
}

fn about(args: &Args, query: &Query) -> About {
    let system = rustix::system::uname();
    let mut notes = Vec::new();
    if args.no_cmdline {
        notes.push("command lines were left out".to_owned());
    }
    let version = format!("taskdiag {}", env!("CARGO_PKG_VERSION"));
    About {
        host: system.nodename().to_string_lossy().into_owned(),
        boot_id: boot_id().unwrap_or_default(),
        kernel: system.release().to_string_lossy().into_owned(),
        version,
        tier: String::new(),
        every_ns: args.every.as_nanos() as u64,
        fields: query
            .fields_read()
            .iter()
            .map(|field| field.name().to_owned())
            .collect(),
        notes,
    }
}
