//! `taskdiag events`.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, ValueEnum};
use rustix::event::{epoll, Timespec};
use rustix::io::Errno;
use rustix::process::{test_kill_process, Pid, Signal};
use taskdiag::events::{EventSource, Lost, Options};
use taskdiag::{Absent, Event, EventField, EventKind, Events, Value};

use crate::listing::{Format, Formats, Machine};
use crate::outcome::{say, Failure, Outcome};
use crate::output::cell::{self, Cells};
use crate::output::names::Names;
use crate::output::people::Clock;
use crate::output::table::Align;
use crate::output::{csv, json, text, Output};
use crate::selection;

/// Tell of processes as they begin (fork), become other programs (exec) and end (exit), until Ctrl-C
///
/// However short-lived a process is, it is told of, or counted as lost: the last line on standard error says how many were,
/// and the exit status is 1 if any. Rows come out within some hundredths of a second, in the order in which things happened on
/// each processor. Scripts should use -o with --jsonl or --csv: the default columns may change.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag events --kind exec\n  \
    taskdiag events -p $$ --for 60\n  \
    taskdiag events -o pid,start_ns,exit_code,runtime_ns --kind exit --jsonl | jq …")]
pub struct Args {
    /// Only these kinds of events
    #[arg(long = "kind", value_enum, value_name = "KIND,…", value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Events about threads too
    #[arg(short = 'T', long)]
    threads: bool,
    /// Only these processes, and those that descend from them from now on; ends when none of them is left
    #[arg(short = 'p', long = "pid", value_name = "PID,…", value_delimiter = ',')]
    pids: Vec<u32>,
    /// Only tasks of these effective users, by name or number
    #[arg(short = 'u', long = "user", value_name = "USER,…", value_delimiter = ',')]
    users: Vec<String>,
    /// End after so many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Fields to show, in this order, or `all`. See docs/events.md
    #[arg(short = 'o', long = "fields", value_name = "FIELD,…", help_heading = "Output")]
    fields: Vec<String>,
    /// What is to tell
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    source: Source,
    #[command(flatten, next_help_heading = "Output")]
    formats: Formats,
    /// Exact numbers in tables: bytes and nanoseconds
    #[arg(long, help_heading = "Output")]
    bytes: bool,
    /// No header above tables and CSV
    #[arg(long, help_heading = "Output")]
    no_header: bool,
}

/// What `--kind` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A process, or a thread, began
    Fork,
    /// A process became another program
    Exec,
    /// A process, or a thread, ended
    Exit,
}

impl From<Kind> for EventKind {
    fn from(kind: Kind) -> EventKind {
        match kind {
            Kind::Fork => EventKind::Fork,
            Kind::Exec => EventKind::Exec,
            Kind::Exit => EventKind::Exit,
        }
    }
}

/// What `--source` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Source {
    /// Whatever tells most on this host
    #[default]
    Auto,
    /// BPF programs on tracepoints, or fail
    Bpf,
    /// The proc connector, or fail
    Connector,
}

impl From<Source> for Option<EventSource> {
    fn from(source: Source) -> Option<EventSource> {
        match source {
            Source::Auto => None,
            Source::Bpf => Some(EventSource::Bpf),
            Source::Connector => Some(EventSource::Connector),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// The fields for programs without `-o`.
const FIELDS: [EventField; 13] = [
    EventField::Event,
    EventField::TimeNs,
    EventField::Pid,
    EventField::Tid,
    EventField::Ppid,
    EventField::StartNs,
    EventField::Uid,
    EventField::Comm,
    EventField::Filename,
    EventField::ExitCode,
    EventField::TermSignal,
    EventField::RuntimeNs,
    EventField::PeakRssBytes,
];

fn fields(lists: &[String]) -> Result<Vec<EventField>, Failure> {
    let mut fields = Vec::new();
    for name in lists.iter().flat_map(|list| list.split(',')) {
        let named = match name {
            "all" => EventField::ALL.to_vec(),
            name => vec![name.parse().map_err(|error| Failure::Unanswered(format!("{error}")))?],
        };
        for field in named {
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
    }
    Ok(fields)
}

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let chosen = fields(&args.fields)?;
    let mut filter = Filter::new(&args)?;
    let mut writer = Writer::new(&args, chosen);
    let stop = Stop::new()?;
    if filter.has_nobody() {
        return Ok(Outcome::Partial);
    }
    let mut events = Events::open(&Options {
        kinds: filter.kinds_to_watch(),
        threads: args.threads,
        source: args.source.into(),
        ..Options::default()
    })?;
    let end = args.duration.and_then(|duration| Instant::now().checked_add(duration));
    let most = args.count.unwrap_or(u64::MAX);
    let mut output = Output::new();
    let mut told = 0;
    writer.begin(&mut output, events.source());
    output.flush()?;
    loop {
        // Before the last batch, so that what happened until then is in it.
        let is_over = stop.was_asked()? || end.is_some_and(|end| end <= Instant::now());
        for event in events.read()? {
            if filter.admits(&event) {
                writer.row(&mut output, &event);
                output.row_ended()?;
                told += 1;
            }
            if told == most || filter.has_nobody() {
                break;
            }
        }
        output.flush()?;
        if is_over || told == most || filter.has_nobody() {
            break;
        }
        let rest = end.map(|end| end.saturating_duration_since(Instant::now()));
        events.wait(rest, Some(stop.as_fd()))?;
    }
    let lost = events.lost();
    writer.end(&mut output, told, lost);
    output.finish()?;
    Ok(report(told, lost, events.source(), &filter, &writer))
}

fn report(told: u64, lost: Lost, source: EventSource, filter: &Filter, writer: &Writer) -> Outcome {
    let mut outcome = filter.outcome;
    for (field, reason, count) in &writer.absent {
        let next_step = match reason {
            Absent::Unsupported => "the tracepoints tell it: --source bpf says why they don't",
            _ => "longer than there was room for",
        };
        say(format_args!(
            "{field}: {reason} for {count} of {told} events ({next_step})"
        ));
        outcome = Outcome::Partial;
    }
    if filter.undecided > 0 {
        say(format_args!(
            "{} events left out: the user was not to be found out any more",
            filter.undecided
        ));
        outcome = Outcome::Partial;
    }
    if lost.count > 0 {
        outcome = Outcome::Partial;
    }
    let plural = if told == 1 { "" } else { "s" };
    let at_least = if lost.is_exact { "" } else { "at least " };
    say(format_args!(
        "{told} event{plural}, {at_least}{} lost ({source})",
        lost.count
    ));
    outcome
}

/// Which events are shown.
#[derive(Debug)]
struct Filter {
    kinds: Vec<EventKind>,
    users: Vec<u32>,
    /// Processes to watch, and those that have come of them.
    family: Option<HashSet<u32>>,
    outcome: Outcome,
    /// Events of which the user is not known.
    undecided: u64,
}

impl Filter {
    fn new(args: &Args) -> Result<Filter, Failure> {
        let mut filter = Filter {
            kinds: args.kinds.iter().map(|&kind| kind.into()).collect(),
            users: selection::users(&args.users)?,
            family: None,
            outcome: Outcome::Complete,
            undecided: 0,
        };
        if !args.pids.is_empty() {
            let mut family = HashSet::new();
            for &pid in &args.pids {
                if exists(pid) {
                    family.insert(pid);
                } else {
                    say(format_args!("pid {pid}: no such process"));
                    filter.outcome = Outcome::Partial;
                }
            }
            filter.family = Some(family);
        }
        Ok(filter)
    }

    /// A family is known only by its forks and exits.
    fn kinds_to_watch(&self) -> taskdiag::events::EventKinds {
        if self.kinds.is_empty() || self.family.is_some() {
            EventKind::ALL.into_iter().collect()
        } else {
            self.kinds.iter().copied().collect()
        }
    }

    /// Whether no process is left to be watched.
    fn has_nobody(&self) -> bool {
        self.family.as_ref().is_some_and(HashSet::is_empty)
    }

    fn admits(&mut self, event: &Event<'_>) -> bool {
        if !self.is_of_family(event) || !(self.kinds.is_empty() || self.kinds.contains(&event.kind())) {
            return false;
        }
        match event.euid() {
            _ if self.users.is_empty() => true,
            Ok(euid) => self.users.contains(&euid),
            Err(_) => {
                self.undecided += 1;
                false
            }
        }
    }

    fn is_of_family(&mut self, event: &Event<'_>) -> bool {
        let Some(family) = &mut self.family else { return true };
        let pid = event.pid();
        if event.kind() == EventKind::Fork && !event.is_thread() {
            let caller = event.caller_pid().and_then(Result::ok);
            let elders = [caller, event.ppid().ok()];
            if elders.into_iter().flatten().any(|elder| family.contains(&elder)) {
                family.insert(pid);
            }
        }
        if event.kind() == EventKind::Exit && !event.is_thread() {
            family.remove(&pid)
        } else {
            family.contains(&pid)
        }
    }
}

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Becomes readable when somebody wants an end: a signal, or nobody reads the output any more.
#[derive(Debug)]
struct Stop {
    epoll: OwnedFd,
    _signals: OwnedFd,
}

impl Stop {
    const SIGNAL: u64 = 0;
    const OUTPUT: u64 = 1;

    fn new() -> io::Result<Stop> {
        let signals = taskdiag_sys::signals::hold_back(&[Signal::INT.as_raw(), Signal::TERM.as_raw()])?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &signals,
            epoll::EventData::new_u64(Stop::SIGNAL),
            epoll::EventFlags::IN,
        )?;
        // Nothing is asked for: that nobody reads is always told. Of files it can't be, and they have no readers to go away.
        let output = epoll::EventData::new_u64(Stop::OUTPUT);
        match epoll::add(&epoll, rustix::stdio::stdout(), output, epoll::EventFlags::empty()) {
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(Stop {
            epoll,
            _signals: signals,
        })
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether a signal asked for an end. An error if nobody reads any more.
    fn was_asked(&self) -> io::Result<bool> {
        let mut buffer = Vec::with_capacity(2);
        let now = Timespec::default();
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut buffer), Some(&now))?;
        let has = |data: u64| buffer.iter().any(|event| event.data.u64() == data);
        if has(Stop::OUTPUT) {
            Err(io::ErrorKind::BrokenPipe.into())
        } else {
            Ok(has(Stop::SIGNAL))
        }
    }
}

/// A column of the table. The rows come one by one, so widths are known before; a longer cell moves the rest of its line.
#[derive(Clone, Copy, Debug)]
struct EventColumn {
    heading: &'static str,
    show: Show,
    width: usize,
}

/// What a column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    Field(EventField),
    /// The time of day.
    Time,
    /// The name of the effective user.
    User,
    /// What there is to say of an event of its kind.
    Detail,
}

const fn column(heading: &'static str, show: Show, width: usize) -> EventColumn {
    EventColumn { heading, show, width }
}

/// The table without `-o`. Only with `--threads` it has thread ids.
const COLUMNS: [EventColumn; 8] = [
    column("TIME", Show::Time, 12),
    column("EVENT", Show::Field(EventField::Event), 5),
    column("PID", Show::Field(EventField::Pid), 7),
    column("TID", Show::Field(EventField::Tid), 7),
    column("PPID", Show::Field(EventField::Ppid), 7),
    column("USER", Show::User, 8),
    column("NAME", Show::Field(EventField::Comm), 15),
    column("DETAIL", Show::Detail, 0),
];

impl EventColumn {
    fn of(field: EventField) -> EventColumn {
        let width = match field.kind() {
            taskdiag::Kind::Nanoseconds => 19,
            taskdiag::Kind::Text => 15,
            taskdiag::Kind::Bytes => 9,
            _ => 7,
        };
        column(field.name(), Show::Field(field), width.max(field.name().len()))
    }

    fn align(&self) -> Align {
        match self.show {
            Show::Field(field) if field.kind().is_number() => Align::Right,
            _ => Align::Left,
        }
    }
}

/// Writes rows as they come.
#[derive(Debug)]
struct Writer {
    shown: EventLayout,
    has_header: bool,
    exact: bool,
    clock: Clock,
    cells: Cells,
    users: Names,
    rows: u64,
    /// How often fields were missing, and why, where that is worth telling.
    absent: Vec<(EventField, Absent, u64)>,
}

#[derive(Debug)]
enum EventLayout {
    Table(Vec<EventColumn>),
    Machine(Machine, Vec<EventField>),
}

impl Writer {
    fn new(args: &Args, chosen: Vec<EventField>) -> Writer {
        let is_meant = |column: &EventColumn| args.threads || column.show != Show::Field(EventField::Tid);
        Writer {
            shown: match args.formats.format() {
                Format::Table if chosen.is_empty() => {
                    EventLayout::Table(COLUMNS.into_iter().filter(is_meant).collect())
                }
                Format::Table => EventLayout::Table(chosen.into_iter().map(EventColumn::of).collect()),
                Format::Machine(machine) if chosen.is_empty() => EventLayout::Machine(machine, FIELDS.to_vec()),
                Format::Machine(machine) => EventLayout::Machine(machine, chosen),
            },
            has_header: !args.no_header,
            exact: args.bytes,
            clock: Clock::new(),
            cells: Cells::new(args.bytes, false),
            users: Names::default(),
            rows: 0,
            absent: Vec::new(),
        }
    }

    /// Writes what stands above the rows.
    fn begin(&self, output: &mut Output, source: EventSource) {
        let out = output.buffer();
        match &self.shown {
            EventLayout::Table(columns) if self.has_header => {
                line(out, columns, |out, column| {
                    out.extend_from_slice(column.heading.as_bytes())
                });
            }
            EventLayout::Machine(Machine::Csv, fields) if self.has_header => {
                for (index, field) in fields.iter().enumerate() {
                    csv::separate(out, index);
                    out.extend_from_slice(field.name().as_bytes());
                }
                out.extend_from_slice(b"\r\n");
            }
            EventLayout::Machine(Machine::Json, _) => cell::formatted(
                out,
                format_args!(
                    "{{\"schema\":1,\"command\":\"events\",\"sources\":{{\"events\":\"{source}\"}},\"rows\":["
                ),
            ),
            _ => {}
        }
    }

    fn row(&mut self, output: &mut Output, event: &Event<'_>) {
        let out = output.buffer();
        match &self.shown {
            EventLayout::Table(columns) => {
                let (clock, cells, users, absent) =
                    (&mut self.clock, &mut self.cells, &mut self.users, &mut self.absent);
                line(out, columns, |out, column| match column.show {
                    Show::Time if self.exact => cell::plain(out, Value::Unsigned(event.time_ns()), b','),
                    Show::Time => clock.time_of_day(out, event.time_ns()),
                    Show::User => match value(event, EventField::Euid, absent) {
                        Some(Ok(Value::Unsigned(uid))) => text::escape(out, users.user(uid as u32)),
                        _ => out.push(b'-'),
                    },
                    Show::Detail => detail(out, event, absent),
                    Show::Field(field) => match value(event, field, absent) {
                        Some(Ok(value)) => show(out, field, value, clock, cells, self.exact),
                        _ => out.push(b'-'),
                    },
                });
            }
            EventLayout::Machine(Machine::Csv, fields) => {
                for (index, &field) in fields.iter().enumerate() {
                    csv::separate(out, index);
                    if let Some(Ok(value)) = value(event, field, &mut self.absent) {
                        csv::write_value(out, value);
                    }
                }
                out.extend_from_slice(b"\r\n");
            }
            EventLayout::Machine(Machine::Json, fields) => {
                out.extend_from_slice(if self.rows > 0 { b",\n" } else { b"\n" });
                object(out, event, fields, &mut self.absent);
            }
            EventLayout::Machine(Machine::Jsonl, fields) => {
                object(out, event, fields, &mut self.absent);
                out.push(b'\n');
            }
        }
        self.rows += 1;
    }

    /// Writes what stands below the rows.
    fn end(&self, output: &mut Output, told: u64, lost: Lost) {
        if let EventLayout::Machine(Machine::Json, _) = self.shown {
            let Lost { count, is_exact } = lost;
            cell::formatted(
                output.buffer(),
                format_args!(
                    "\n],\"counters\":{{\"events\":{told},\"lost\":{count},\"lost_is_exact\":{is_exact}}}}}\n"
                ),
            );
        }
    }
}

/// The value of a field. One that is missing is counted, unless that is in the nature of things.
fn value<'a>(
    event: &Event<'a>,
    field: EventField,
    absent: &mut Vec<(EventField, Absent, u64)>,
) -> Option<Result<Value<'a>, Absent>> {
    let value = event.value(field);
    if let Some(Err(reason @ (Absent::Denied | Absent::Unsupported | Absent::Truncated))) = value {
        match absent.iter_mut().find(|entry| (entry.0, entry.1) == (field, reason)) {
            Some(entry) => entry.2 += 1,
            None => absent.push((field, reason, 1)),
        }
    }
    value
}

/// Appends a line of cells.
fn line(out: &mut Vec<u8>, columns: &[EventColumn], mut write: impl FnMut(&mut Vec<u8>, &EventColumn)) {
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        let start = out.len();
        write(out, column);
        let text = std::str::from_utf8(&out[start..]).map_or(0, unicode_width::UnicodeWidthStr::width);
        let padding = column.width.saturating_sub(text);
        match column.align() {
            Align::Right => drop(out.splice(start..start, std::iter::repeat_n(b' ', padding))),
            Align::Left if index + 1 < columns.len() => out.resize(out.len() + padding, b' '),
            Align::Left => {}
        }
    }
    // A last cell that is empty.
    while out.last() == Some(&b' ') {
        out.pop();
    }
    out.push(b'\n');
}

/// Appends a value as people read it.
fn show(out: &mut Vec<u8>, field: EventField, value: Value<'_>, clock: &mut Clock, cells: &mut Cells, exact: bool) {
    match (field, value, field.of_tasks()) {
        (EventField::TimeNs, Value::Unsigned(ns), _) if !exact => clock.time_of_day(out, ns),
        (_, value, Some(field)) => cells.value(out, field, value),
        (_, Value::Text(bytes), None) => text::escape(out, bytes),
        (_, value, None) => cell::plain(out, value, b','),
    }
}

/// Appends what there is to say of an event of its kind.
fn detail(out: &mut Vec<u8>, event: &Event<'_>, absent: &mut Vec<(EventField, Absent, u64)>) {
    match event.kind() {
        EventKind::Fork => {
            if let (Some(Ok(caller)), Ok(ppid)) = (event.caller_pid(), event.ppid()) {
                if caller != ppid && !event.is_thread() {
                    cell::formatted(out, format_args!("called by {caller}"));
                }
            }
        }
        EventKind::Exec => match value(event, EventField::Filename, absent) {
            Some(Ok(Value::Text(name))) => text::escape(out, name),
            _ => out.push(b'-'),
        },
        EventKind::Exit => match (event.exit_code(), event.term_signal(), event.core_dumped()) {
            (Some(code), ..) => cell::formatted(out, format_args!("code {code}")),
            (None, Some(signal), Some(true)) => cell::formatted(out, format_args!("signal {signal}, core dumped")),
            (None, Some(signal), _) => cell::formatted(out, format_args!("signal {signal}")),
            (None, None, _) => out.push(b'-'),
        },
    }
}

/// Appends a row as an object: a key for each field that has a value, and `absent` with the reasons of those that should.
fn object(out: &mut Vec<u8>, event: &Event<'_>, fields: &[EventField], absent: &mut Vec<(EventField, Absent, u64)>) {
    let mut before = b'{';
    let mut missing = Vec::new();
    for &field in fields {
        match value(event, field, absent) {
            Some(Ok(value)) => {
                out.push(before);
                before = b',';
                json::string(out, field.name());
                out.push(b':');
                json::write_value(out, value);
            }
            Some(Err(reason)) => missing.push((field, reason)),
            None => {}
        }
    }
    if !missing.is_empty() {
        out.push(before);
        before = b',';
        json::string(out, "absent");
        out.push(b':');
        json::object(out, missing, |(field, reason)| {
            (field.name(), move |out: &mut Vec<u8>| {
                json::string(out, reason.as_str())
            })
        });
    }
    if before == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
}
