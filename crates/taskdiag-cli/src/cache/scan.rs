//! One run of `taskdiag cache`: the questions, and what is missing from the answer.

use std::collections::{HashMap, HashSet};
use std::error::Error as _;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use taskdiag::pagecache::{Finder, Found, Quantity, Seen, Source, Totals, Usage, Walk};
use taskdiag::{Absent, Error, ErrorKind, Field, Identity, Known, Query};

use super::directories::Directories;
use super::names::names;
use super::report::{head, Cached, Report, Style};
use super::row::{self, Entry};
use super::sums::{Group, Held, Sum};
use super::Args;
use crate::grouping::{self, Name, SumLayout};
use crate::host::MemInfo;
use crate::listing::Answers;
use crate::outcome::{
    counted, is_thread, lacking, lacks, message, no_answer_from, say, say_denied, say_hidden, say_missing_denied,
    Failure, Outcome,
};
use crate::output::document::counts;
use crate::output::people;
use crate::output::relation::NONE;
use crate::output::text::escaped;
use crate::proc;

/// The maximum number of failures with a message each. The others are only counted.
const MAX_SAID: u64 = 20;

/// The questions of one run, and the results so far.
pub struct Scan<'a> {
    style: &'a Style,
    walk: Walk,
    /// The level of the deepest directories that have rows; `None` if files have rows.
    depth: Option<usize>,
    /// `None` when all rows are written, and if sums are.
    report: Option<Report<'a>>,
    /// Whether files are added up.
    adds_up: bool,
    held: Held,
    sums: Option<Sums<'a>>,
    /// The numbers of bytes that were chosen, if any were.
    chosen: Vec<Quantity>,
    totals: Totals,
    seen: Seen,
    cancel: Arc<AtomicBool>,
    progress: Progress,
    /// Set when no more work is to be done: the limit is reached, or the output can't be written.
    ended: Option<io::Result<()>>,
    outcome: Outcome,
    /// The number of files or directories that failed.
    failed: u64,
    /// The number of processes whose files the caller may not see.
    denied_processes: u64,
    /// `None` while it is in use.
    finder: Option<Finder>,
    /// Processes whose mappings could not be read because they gave no answer in time.
    silent: Vec<u32>,
    /// How many files gave no answer in time.
    silent_files: u64,
    /// Processes whose mappings could not be read because no thread could be started, and files.
    unread: u64,
    unread_files: u64,
    /// How many files are so large that counting their pages takes too long.
    large_files: u64,
    /// Whether to report the files' share of the machine's page cache.
    explains: bool,
}

/// The sums of groups, and of all files.
type Sums<'a> = (&'a SumLayout, HashMap<Vec<Name>, Sum>, Sum);

impl<'a> Scan<'a> {
    /// A run that has not started.
    pub fn new(args: &Args, style: &'a Style) -> Result<Scan<'a>, Failure> {
        let cancel = Arc::new(AtomicBool::new(false));
        // The first Ctrl-C sets the flag and the second ends the program: handlers run in the order
        // of their registration.
        signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, cancel.clone())?;
        signal_hook::flag::register(signal_hook::consts::SIGINT, cancel.clone())?;
        let depth = if args.summarize { Some(0) } else { args.depth };
        let chosen = style.layout.chosen.items.iter();
        let walk = Walk::new()
            .source(style.source)
            .range(style.range)
            .one_file_system(args.one_file_system)
            .each_file(depth.is_none());
        // Rows that are written continuously already show the progress.
        let streams = style.layout.sort.is_empty() && depth.is_none() && args.by.is_empty();
        Ok(Scan {
            finder: Some(
                Finder::new(style.source, style.range, args.options.patience.patience)
                    .with_proc(proc::chosen().clone()),
            ),
            silent: Vec::new(),
            silent_files: 0,
            unread: 0,
            unread_files: 0,
            large_files: 0,
            style,
            walk,
            depth,
            report: args.by.is_empty().then(|| Report::new(style)),
            adds_up: !args.by.is_empty(),
            held: Held::default(),
            sums: None,
            chosen: chosen.filter_map(|&column| row::quantity(column)).collect(),
            totals: Totals::default(),
            seen: Seen::default(),
            cancel,
            progress: Progress {
                enabled: io::stderr().is_terminal() && !(io::stdout().is_terminal() && streams),
                files_before: 0,
                shown: None,
            },
            ended: None,
            outcome: Outcome::Complete,
            failed: 0,
            denied_processes: 0,
            explains: args.top.is_some(),
        })
    }

    fn goes_on(&self) -> bool {
        self.ended.is_none() && !self.cancel.load(Ordering::Relaxed)
    }

    /// Reports something that makes the answer partial.
    fn complain(&mut self, message: std::fmt::Arguments<'_>) {
        self.progress.clear();
        say(message);
        self.outcome = Outcome::Partial;
    }

    /// Reports something that the caller may not see.
    fn denied(&mut self, message: std::fmt::Arguments<'_>) {
        self.progress.clear();
        self.outcome = self.outcome.and(say_denied(message));
    }

    /// Reports a file that can't be queried, or a directory that can't be read.
    fn failed(&mut self, path: &[u8], why: &str) {
        self.failed += 1;
        if self.failed <= MAX_SAID {
            self.complain(format_args!("{}: {why}", escaped(path)));
        }
        self.outcome = Outcome::Partial;
    }

    /// Asks about a file, or about all files below a directory.
    pub fn path(&mut self, path: &Path) {
        if !self.goes_on() {
            return;
        }
        if self.depth.is_some() {
            // Each PATH has its own sum, even if another PATH contains some of the same files.
            self.seen = Seen::default();
        }
        let cancel = self.cancel.clone();
        let mut seen = std::mem::take(&mut self.seen);
        let mut directories = Directories::new(path, self.depth.unwrap_or(0));
        let walk = self.walk;
        let result = walk.run(path, &mut seen, &cancel, &mut |found| {
            self.found(found, &mut directories)
        });
        self.seen = seen;
        match result {
            Ok(totals) => self.totals += totals,
            Err(error) => self.failed(path.as_os_str().as_encoded_bytes(), &why(&error)),
        }
        for (path, sum) in directories.add_up() {
            self.row(&Entry::directory(&path, &sum, self.style.source));
        }
        self.progress.files_before = self.totals.sum.files;
    }

    fn found(&mut self, found: Found<'_>, directories: &mut Directories) -> ControlFlow<()> {
        match found {
            Found::File(file) => self.row(&Entry::file(file.path, file.size_bytes, file.usage)),
            Found::Directory { path, depth, sum, .. } => directories.add(path, depth, sum),
            Found::Failed { path, error, .. } => self.failed(path, &why(error)),
            Found::Tick(files) => {
                if let Some(report) = self.report.as_mut().filter(|report| report.is_due()) {
                    self.progress.clear();
                    if let Err(error) = report.flush() {
                        self.ended = Some(Err(error));
                    }
                }
                self.progress.show(files);
            }
            _ => {}
        }
        match self.ended {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        }
    }

    fn row(&mut self, entry: &Entry<'_>) {
        if self.ended.is_some() {
            return;
        }
        let Some(report) = &mut self.report else { return };
        match report.row(entry) {
            ControlFlow::Continue(()) => {}
            // The report has the error of a row that could not be written.
            ControlFlow::Break(()) => self.ended = Some(Ok(())),
        }
    }

    /// Asks about the files and directories named in a list.
    pub fn list(&mut self, list: &Path) -> Result<(), Failure> {
        let failure = |error: io::Error| {
            let name = escaped(list.as_os_str().as_encoded_bytes());
            Failure::Unanswered(format!("{name}: {}", message(&error)))
        };
        let input: Box<dyn Read> = if list.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(list).map_err(failure)?)
        };
        for name in names(input).map_err(failure)? {
            if !self.goes_on() {
                break;
            }
            self.path(&name.map_err(failure)?);
        }
        Ok(())
    }

    /// Asks about the files of all processes that the caller may see.
    pub fn all_processes(&mut self) -> Result<(), Failure> {
        let pids = self.finder.as_ref().map_or_else(|| Ok(Vec::new()), Finder::pids)?;
        for pid in pids {
            if !self.goes_on() {
                break;
            }
            self.process(pid, false);
        }
        self.progress.clear();
        self.outcome = self.outcome.and(say_hidden());
        Ok(())
    }

    /// Asks about the files of a process, which an option may name.
    pub fn process(&mut self, pid: u32, is_named: bool) {
        if is_named && is_thread(pid) {
            return self.complain(format_args!("{}", lacking(pid)));
        }
        let Some(mut finder) = self.finder.take() else { return };
        let mut seen = std::mem::take(&mut self.seen);
        let result = finder.all_held_files(pid, &mut seen, &mut |id, file| match file {
            file if self.adds_up => self.progress.show(self.held.add(id, file)),
            Some(file) => {
                self.count(file.size_bytes, file.usage);
                self.progress.show(self.totals.sum.files);
                self.row(&Entry::file(file.path, file.size_bytes, file.usage));
            }
            None => {}
        });
        (self.finder, self.seen) = (Some(finder), seen);
        let Err(error) = result else { return };
        match error.kind() {
            ErrorKind::NoAnswer => self.silent.push(pid),
            ErrorKind::NoThread => self.unread += 1,
            ErrorKind::Denied if is_named => self.denied(format_args!("{error:#}")),
            ErrorKind::Denied => self.denied_processes += 1,
            ErrorKind::NoSuchTask if is_named => self.complain(format_args!("{}", lacking(pid))),
            // It may have ended in between.
            ErrorKind::NoSuchTask => {}
            _ => self.complain(format_args!("{error:#}")),
        }
    }

    /// Counts a file that processes hold.
    fn count(&mut self, size_bytes: Known<u64>, usage: Known<Usage>) {
        self.silent_files += u64::from(usage == Err(Absent::NoAnswer));
        self.unread_files += u64::from(usage == Err(Absent::NoThread));
        self.large_files += u64::from(usage == Err(Absent::OverBudget));
        self.totals.sum.add(size_bytes, usage);
    }

    /// Adds up the files of the processes that options name, or of all.
    pub fn add_up(&mut self, layout: &'a SumLayout, args: &Args) -> Result<(), Failure> {
        let query = match args.of_process.as_slice() {
            [] => Query::processes(),
            named => Query::these(named.iter().copied()),
        };
        let query = query.fields(grouping::fields(&layout.by) | Field::StartNs);
        let mut handle = proc::handle().with_patience(args.options.patience.patience);
        let processes = Answers::ask(&mut handle, &query)?;
        self.outcome = self.outcome.and(processes.report(&[]));
        let mut read = Vec::new();
        for task in processes.tasks() {
            let Ok(identity) = task.identity() else { continue };
            if !self.goes_on() {
                break;
            }
            self.process(identity.tid(), !args.of_process.is_empty());
            let files = std::mem::take(&mut self.held.of_process);
            if !files.is_empty() {
                read.push((identity, task, files));
            }
        }
        // A process may have ended in between, and its id may have passed to another one.
        let pids = read.iter().map(|(identity, ..)| identity.tid());
        let still = handle.query(&Query::these(pids).fields(Field::StartNs))?;
        let still: HashSet<Identity> = still.tasks().filter_map(|task| task.identity().ok()).collect();
        let (mut groups, mut total): (HashMap<Vec<Name>, Group>, Group) = Default::default();
        for (_, task, files) in read.iter().filter(|(identity, ..)| still.contains(identity)) {
            let names = layout.names(task, |_| Name::None(NONE));
            for (processes, all) in [groups.entry(names).or_default(), &mut total] {
                *processes += 1;
                all.extend(files);
            }
        }
        let held = std::mem::take(&mut self.held);
        for (size_bytes, usage) in held.known(&total) {
            self.count(size_bytes, usage);
        }
        let sum = |group| held.sum(&group, self.style.source);
        let sums = groups.into_iter().map(|(names, group)| (names, sum(group)));
        let sums = sums.filter(|(_, sum)| self.style.shows(&sum.entry())).collect();
        self.sums = Some((layout, sums, sum(total)));
        Ok(())
    }

    /// Writes the remaining rows, and reports what is missing.
    pub fn finish(mut self, started: Instant, stats: bool) -> Result<Outcome, Failure> {
        self.progress.clear();
        if let Some(Err(error)) = self.ended.take() {
            return Err(error.into());
        }
        let info = MemInfo::read().ok().filter(|_| self.explains);
        let machine = info.and_then(|info| info.bytes("Cached"));
        let mut counters = self.counters();
        if let Some(bytes) = machine {
            counters.push(("machine_cached_bytes", bytes));
        }
        let shown = self.report.take().map(|report| report.finish(&counters)).transpose()?;
        if let Some((layout, sums, total)) = self.sums.take() {
            let head = head(self.style.source);
            layout.write(sums, &total, self.style.form(), &head, |out| counts(out, counters))?;
        }
        self.say_missing();
        if self.explains {
            self.say_explained(machine, shown.unwrap_or_default());
        }
        if stats {
            self.say_stats(started);
        }
        Ok(self.outcome)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters: Vec<_> = self.totals.named().collect();
        counters.insert(3, ("unsupported", self.unsupported()));
        counters.extend([
            ("denied_processes", self.denied_processes),
            ("no_answer", self.silent_files + self.silent.len() as u64),
            ("no_thread", self.unread_files + self.unread),
            ("over_budget", self.large_files),
        ]);
        counters.extend(self.cached_bytes().map(|bytes| ("cached_bytes", bytes)));
        counters
    }

    /// How many files the kernel does not answer for.
    fn unsupported(&self) -> u64 {
        let sum = self.totals.sum;
        sum.files - sum.answered - sum.denied - self.silent_files - self.unread_files - self.large_files
    }

    /// The cached bytes of all files together, if any could be queried.
    fn cached_bytes(&self) -> Option<u64> {
        let usage = self.totals.sum.usage(self.style.source).ok()?;
        usage.bytes(Quantity::Cached).ok()
    }

    fn say_missing(&mut self) {
        let sum = self.totals.sum;
        let of_all = counted(sum.files, "file");
        if self.cancel.load(Ordering::Relaxed) {
            self.complain(format_args!("interrupted: only the results so far are shown"));
        }
        if self.failed > MAX_SAID {
            let more = self.failed - MAX_SAID;
            self.complain(format_args!("and {more} more that can't be read"));
        }
        if sum.denied > 0 {
            self.denied(format_args!(
                "{} of {of_all}: only the owner and those who may write can see what is cached",
                sum.denied
            ));
        }
        let silent = self.silent_files;
        if silent > 0 {
            self.complain(format_args!(
                "{silent} of {of_all}: the file system does not answer (--patience waits longer)"
            ));
        }
        if !self.silent.is_empty() {
            let from = no_answer_from(&self.silent);
            self.complain(format_args!("{from}: the files that they map are missing"));
        }
        let of_files = format!("{} of {of_all}", self.unread_files);
        let of_processes = format!("files mapped by {}", counted(self.unread, "process"));
        for (count, what) in [(self.unread_files, of_files), (self.unread, of_processes)] {
            if count > 0 {
                self.complain(format_args!("{what} not read: {}", Error::NO_THREAD));
            }
        }
        let large = "mincore(2) takes too long for their size (as a PATH, a file has all the time)";
        let unsupported = "on a file system for which the kernel has no answer, such as hugetlbfs";
        for (count, why) in [(self.large_files, large), (self.unsupported(), unsupported)] {
            if count > 0 {
                self.complain(format_args!("{count} of {of_all}: {why}"));
            }
        }
        self.outcome = self.outcome.and(say_missing_denied(lacks! {
            self.denied_processes, "process" => "you may not see the files of {}";
        }));
        // Chosen columns that are unknown although the kernel answered.
        let (source, usage) = (self.style.source, sum.usage(self.style.source));
        let is_lacking = |quantity: &Quantity| match *quantity {
            Quantity::Size => false,
            quantity => !source.gives(quantity) || usage.is_ok_and(|usage| usage.bytes(quantity).is_err()),
        };
        let lacking = self.chosen.iter().copied().filter(is_lacking);
        let lacking: Vec<&str> = lacking.map(Quantity::name).collect();
        if !lacking.is_empty() {
            let lacking = lacking.join(", ");
            match source {
                Source::Cachestat => self.complain(format_args!(
                    "{lacking}: unknown for files whose pages belong to other files, as with overlayfs"
                )),
                _ => self.complain(format_args!(
                    "{lacking}: {source} does not have it (see `taskdiag doctor`)"
                )),
            }
        }
    }

    /// Reports the files' share of the machine's page cache.
    fn say_explained(&self, machine: Option<u64>, shown: Cached) {
        let sum = self.totals.sum;
        let explained = |cached: Cached| {
            let of_machine = match machine {
                Some(machine @ 1..) => format!(" ({:.1} %)", cached.bytes as f64 * 100.0 / machine as f64),
                _ => String::new(),
            };
            match (cached.known, cached.files) {
                (0, 1..) => "what is cached is not known".to_owned(),
                (known, all) if known < all => format!(
                    "{} cached of {known} of them{of_machine}",
                    people::size_text(cached.bytes)
                ),
                _ => format!("{} cached{of_machine}", people::size_text(cached.bytes)),
            }
        };
        let all = Cached {
            files: sum.files,
            known: sum.answered,
            bytes: self.cached_bytes().unwrap_or(0),
        };
        say(format_args!(
            "the {} shown: {}; all {} looked at: {}; this machine's page cache: {}",
            counted(shown.files, "file"),
            explained(shown),
            counted(all.files, "file"),
            explained(all),
            machine.map_or("unknown".to_owned(), people::size_text),
        ));
    }

    fn say_stats(&self, started: Instant) {
        let Totals { sum, directories, .. } = self.totals;
        let plural = if directories == 1 { "y" } else { "ies" };
        let losses: String = self
            .counters()
            .into_iter()
            .filter(|(name, count)| matches!(*name, "gone" | "failed" | "linked" | "again") && *count > 0)
            .map(|(name, count)| format!(", {count} {name}"))
            .collect();
        say(format_args!(
            "{}, {directories} director{plural}{losses} in {:.1} ms ({})",
            counted(sum.files, "file"),
            started.elapsed().as_secs_f64() * 1e3,
            self.style.source.name()
        ));
    }
}

/// Why there is no answer about a path.
fn why(error: &Error) -> String {
    match error.source() {
        Some(cause) => message(cause),
        None => "neither a regular file nor a directory nor a block device".to_owned(),
    }
}

/// A line on a terminal that shows how many files have been visited.
struct Progress {
    enabled: bool,
    files_before: u64,
    /// When it was last written, if it is on the screen.
    shown: Option<Instant>,
}

impl Progress {
    fn show(&mut self, files: u64) {
        const INTERVAL: Duration = Duration::from_millis(100);
        if self.enabled && self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL) {
            let _ = write!(
                io::stderr(),
                "\r\x1b[K{}",
                self::counted(self.files_before + files, "file")
            );
            self.shown = Some(Instant::now());
        }
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
