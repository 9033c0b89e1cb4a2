//! `taskdiag cache`.

mod bar;
mod names;
mod report;
mod row;
pub mod size;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, ValueEnum};
use rustix::io::Errno;
use taskdiag::pagecache::processes::{self, Finder, Held};
use taskdiag::pagecache::{self, ByteRange, Directory, Found, Quantity, Seen, Source, Sum, Totals, Walk};
use taskdiag::{Absent, ErrorKind};

use crate::library::Patience;
use crate::listing::Formats;
use crate::outcome::{no_answer_from, say, who_may, Failure, Outcome};
use crate::output::{people, text, Key as _};
use names::Names;
use report::{Cached, Report, Style, Unit};
use row::{Column, Entry, SortKey};

/// Show how much of files and directories is in the page cache
///
/// A row for each regular file below each PATH, in no certain order. With -d or -s, a row for each directory instead, in which
/// its files add up. Pages count as whole ones, so what is cached of a file can be more than its size. Symbolic links are
/// followed if they are a PATH, but not below; files with several names count once, in a directory that has one of them;
/// /proc, /sys and the like are passed over. Only owners of a file and those who may write to it are told (root is).
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag cache -s /var /usr\n  \
    taskdiag cache -d 1 --sort -cached_bytes /var/lib\n  \
    taskdiag cache --sort -dirty_bytes --limit 10 .\n  \
    taskdiag cache --top 20\n  \
    taskdiag cache --map /var/lib/db/table\n  \
    find . -name '*.log' -print0 | taskdiag cache --files-from -")]
pub struct Args {
    /// Files and directories
    #[arg(required_unless_present_any = ["files_from", "of_process", "top", "map"])]
    paths: Vec<PathBuf>,
    /// Files and directories named in this file (- is standard input), each ended by a NUL or a newline
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// The files that these processes have open or mapped, deleted ones too
    #[arg(long, value_name = "PID,…", value_delimiter = ',')]
    of_process: Vec<u32>,
    /// The N files with the most cache, among all that any process has open or mapped, and those below each PATH
    #[arg(long, value_name = "N", conflicts_with_all = ["sort", "limit", "depth", "summarize", "of_process"])]
    top: Option<usize>,
    /// Which parts of this one file are cached: a bar, or rows for programs
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["paths", "files_from", "of_process", "top", "depth", "summarize", "sort", "limit", "min",
            "fields"])]
    map: Option<PathBuf>,
    /// A row for each directory down to this many levels below each PATH, rather than for each file
    #[arg(short = 'd', long, value_name = "N", conflicts_with = "summarize")]
    depth: Option<usize>,
    /// A row for each PATH
    #[arg(short = 's', long)]
    summarize: bool,
    /// Stay on the file system of each PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Only this part of each file, like 1G:64M; either number may be left out
    #[arg(long, value_name = "OFF:LEN", value_parser = size::parse_range)]
    range: Option<ByteRange>,
    /// Only rows with at least so much cached, like 4K
    #[arg(long, value_name = "SIZE", value_parser = size::parse_size, default_value = "0", hide_default_value = true)]
    min: u64,
    /// Sort by these fields; a minus in front puts the largest first. Rows without a value come last
    #[arg(long, value_name = "[-]FIELD,…", allow_hyphen_values = true)]
    sort: Vec<String>,
    /// At most this many rows, after sorting
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    options: Options,
}

/// How the rows are to look.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Output")]
struct Options {
    /// Fields to show, in this order; `all` for all: path, size_bytes, cached_bytes, dirty_bytes, writeback_bytes,
    /// evicted_bytes, recently_evicted_bytes, files_count, missing_count
    #[arg(short = 'o', long = "fields", value_name = "FIELD,…")]
    fields: Vec<String>,
    /// What is to answer
    #[arg(long, value_enum, default_value_t)]
    source: Asked,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    formats: Formats,
    /// Bytes in tables
    #[arg(long)]
    bytes: bool,
    /// Pages in tables
    #[arg(long, conflicts_with = "bytes")]
    pages: bool,
    /// No header above tables and CSV
    #[arg(long)]
    no_header: bool,
    /// Say on standard error who answered, how many files, and in how long
    #[arg(long)]
    stats: bool,
}

/// What `--source` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Asked {
    /// cachestat; mincore on kernels without it
    #[default]
    Auto,
    /// cachestat(2), or fail
    Cachestat,
    /// mincore(2): which pages are cached, and nothing else
    Mincore,
}

impl Asked {
    fn source(self) -> Result<Source, Failure> {
        match (self, Source::of_this_host()) {
            (Asked::Auto, source) => Ok(source),
            (Asked::Mincore, _) => Ok(Source::Mincore),
            (Asked::Cachestat, Source::Cachestat) => Ok(Source::Cachestat),
            (Asked::Cachestat, Source::Mincore) => Err(Failure::Unanswered(
                "this kernel has no cachestat(2), which came with Linux 6.5; --source mincore tells what is cached"
                    .to_owned(),
            )),
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let started = Instant::now();
    let options = &args.options;
    let mut style = Style {
        format: options.formats.format(),
        columns: Column::parse_list(&options.fields)?,
        sums: args.summarize || args.depth.is_some(),
        unit: match options {
            Options { bytes: true, .. } => Unit::Bytes,
            Options { pages: true, .. } => Unit::Pages,
            _ => Unit::People,
        },
        header: !options.no_header,
        source: options.source.source()?,
        range: args.range.unwrap_or(ByteRange::ALL),
        sort: SortKey::parse_list(&args.sort)?,
        limit: args.limit.unwrap_or(usize::MAX),
        min_cached: args.min,
    };
    if let Some(path) = &args.map {
        return bar::run(path, &style);
    }
    if let Some(count) = args.top {
        style.sort = vec![SortKey::MOST_CACHED];
        style.limit = count;
    }
    let mut survey = Survey::new(&args, style)?;
    if args.top.is_some() {
        survey.all_processes()?;
    }
    for &pid in &args.of_process {
        survey.process(pid);
    }
    for path in &args.paths {
        survey.path(path);
    }
    if let Some(list) = &args.files_from {
        survey.list(list)?;
    }
    survey.finish(started, options.stats)
}

/// Failures that are said one by one; of more there is only the number.
const MOST_SAID: u64 = 20;

/// All that is asked in one run, and what has come of it.
struct Survey {
    walk: Walk,
    /// Directories down to this level have rows, if files have none.
    depth: Option<usize>,
    report: Report,
    columns: Vec<Column>,
    totals: Totals,
    seen: Seen,
    cancel: Arc<AtomicBool>,
    progress: Progress,
    /// Why nothing more is to be done: the limit is reached, or the output can't be written.
    ended: Option<io::Result<()>>,
    outcome: Outcome,
    said: u64,
    /// Processes whose files the caller may not see.
    denied_processes: u64,
    /// Lent out while it tells of files.
    finder: Option<Finder>,
    /// Processes that do not let their mappings be read, and how many files did not answer.
    silent: Vec<u32>,
    silent_files: u64,
    /// Whether it is said how much of the machine's page cache the files explain.
    explains: bool,
}

impl Survey {
    fn new(args: &Args, style: Style) -> Result<Survey, Failure> {
        let cancel = Arc::new(AtomicBool::new(false));
        // The first Ctrl-C asks to end, the second ends. They count in the order in which they are registered.
        signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, cancel.clone())?;
        signal_hook::flag::register(signal_hook::consts::SIGINT, cancel.clone())?;
        let depth = if args.summarize { Some(0) } else { args.depth };
        let columns = style.columns.clone();
        let walk = Walk {
            source: style.source,
            range: style.range,
            one_file_system: args.one_file_system,
            each_file: depth.is_none(),
            ..Walk::new()
        };
        // Rows that come all the time show on a terminal how far the work is.
        let streams = style.sort.is_empty() && depth.is_none();
        Ok(Survey {
            finder: Some(Finder::new(walk.source, walk.range, args.options.patience.patience)),
            silent: Vec::new(),
            silent_files: 0,
            walk,
            depth,
            report: Report::new(style),
            columns,
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
            said: 0,
            denied_processes: 0,
            explains: args.top.is_some(),
        })
    }

    fn goes_on(&self) -> bool {
        self.ended.is_none() && !self.cancel.load(Ordering::Relaxed)
    }

    /// Says something that makes the answer a partial one.
    fn complain(&mut self, message: std::fmt::Arguments<'_>) {
        self.progress.clear();
        say(message);
        self.outcome = Outcome::Partial;
    }

    /// A file that can't be asked about, or a directory that can't be read.
    fn failed(&mut self, path: &[u8], why: &str) {
        self.said += 1;
        if self.said <= MOST_SAID {
            self.complain(format_args!("{}: {why}", printable(path)));
        }
        self.outcome = Outcome::Partial;
    }

    fn path(&mut self, path: &Path) {
        if !self.goes_on() {
            return;
        }
        if self.depth.is_some() {
            // A sum is that of one PATH, whatever another one has in common with it.
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
            Err(errno) => self.failed(path.as_os_str().as_encoded_bytes(), &path_error(errno)),
        }
        for (path, sum) in directories.add_up() {
            self.row(&Entry::directory(&path, &sum, self.walk.source));
        }
        self.progress.files_before = self.totals.sum.files;
    }

    fn found(&mut self, found: Found<'_>, directories: &mut Directories) -> ControlFlow<()> {
        match found {
            Found::File(file) => self.row(&Entry::file(file.path, file.size_bytes, file.usage)),
            Found::Directory(directory) => directories.add(&directory),
            Found::Failed(failed) => self.failed(failed.path, &errno_text(failed.errno)),
            Found::Tick(files) => {
                if self.report.is_due() {
                    self.progress.clear();
                    if let Err(error) = self.report.flush() {
                        self.ended = Some(Err(error));
                    }
                }
                self.progress.show(files);
            }
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
        match self.report.row(entry) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => self.ended = Some(Ok(())),
            Err(error) => self.ended = Some(Err(error)),
        }
    }

    fn list(&mut self, list: &Path) -> Result<(), Failure> {
        let failure = |error: io::Error| Failure::Unanswered(format!("{}: {error}", list.display()));
        let input: Box<dyn Read> = if list.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(list).map_err(failure)?)
        };
        for name in Names::new(input) {
            if !self.goes_on() {
                break;
            }
            self.path(&name.map_err(failure)?);
        }
        Ok(())
    }

    /// The files of all processes that the caller may see.
    fn all_processes(&mut self) -> Result<(), Failure> {
        for pid in processes::all()? {
            if !self.goes_on() {
                break;
            }
            match self.held(pid) {
                // It ended meanwhile.
                Ok(()) | Err((ErrorKind::NoSuchTask, _)) => {}
                Err((ErrorKind::Denied, _)) => self.denied_processes += 1,
                Err((ErrorKind::NoAnswer, _)) => self.silent.push(pid),
                Err((_, message)) => self.complain(format_args!("{message}")),
            }
        }
        Ok(())
    }

    fn process(&mut self, pid: u32) {
        match self.held(pid) {
            Ok(()) => {}
            Err((ErrorKind::NoAnswer, _)) => self.silent.push(pid),
            Err((ErrorKind::Denied, message)) => self.complain(format_args!("{message} ({})", who_may())),
            Err((_, message)) => self.complain(format_args!("{message}")),
        }
    }

    fn held(&mut self, pid: u32) -> Result<(), (ErrorKind, String)> {
        let Some(mut finder) = self.finder.take() else {
            return Ok(());
        };
        let mut seen = std::mem::take(&mut self.seen);
        let result = finder.held_files(pid, &mut seen, &mut |held| self.held_file(&held));
        (self.finder, self.seen) = (Some(finder), seen);
        result.map_err(|error| (error.kind(), error.to_string()))
    }

    fn held_file(&mut self, held: &Held<'_>) {
        self.silent_files += u64::from(held.usage == Err(Absent::NoAnswer));
        self.totals.sum.add(held.size_bytes, held.usage);
        self.progress.show(self.totals.sum.files);
        self.row(&Entry::file(held.path, held.size_bytes, held.usage));
    }

    /// Writes what is left, and says what is missing.
    fn finish(mut self, started: Instant, stats: bool) -> Result<Outcome, Failure> {
        self.progress.clear();
        if let Some(Err(error)) = self.ended.take() {
            return Err(error.into());
        }
        let machine = pagecache::machine_cached_bytes().filter(|_| self.explains);
        let mut counters = self.counters();
        if let Some(bytes) = machine {
            counters.push(("machine_cached_bytes", bytes));
        }
        self.report.finish(&counters)?;
        self.say_missing();
        if self.explains {
            self.say_explained(machine);
        }
        if stats {
            self.say_stats(started);
        }
        Ok(self.outcome)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Totals {
            sum,
            directories,
            gone,
            failed,
            linked,
            again,
            other_file_systems,
        } = self.totals;
        let mut counters = vec![
            ("files", sum.files),
            ("directories", directories),
            ("denied", sum.denied),
            ("unsupported", sum.files - sum.answered - sum.denied - self.silent_files),
            ("gone", gone),
            ("failed", failed),
            ("linked", linked),
            ("again", again),
            ("other_file_systems", other_file_systems),
            ("denied_processes", self.denied_processes),
            ("no_answer", self.silent_files + self.silent.len() as u64),
        ];
        counters.extend(self.cached_bytes().map(|bytes| ("cached_bytes", bytes)));
        counters
    }

    /// What is cached of all files together, if any was told about.
    fn cached_bytes(&self) -> Option<u64> {
        let usage = self.totals.sum.usage(self.walk.source).ok()?;
        usage.bytes(Quantity::Cached).ok()
    }

    fn say_missing(&mut self) {
        let sum = self.totals.sum;
        if self.cancel.load(Ordering::Relaxed) {
            self.complain(format_args!("interrupted: this is what was known until then"));
        }
        if self.said > MOST_SAID {
            let more = self.said - MOST_SAID;
            self.complain(format_args!("and {more} more that can't be read"));
        }
        if sum.denied > 0 {
            self.complain(format_args!(
                "{} of {}: only the owner and who may write can see what is cached ({})",
                sum.denied,
                files(sum.files),
                who_may()
            ));
        }
        let silent = self.silent_files;
        if silent > 0 {
            self.complain(format_args!(
                "{silent} of {}: the file system does not answer (--patience waits longer)",
                files(sum.files)
            ));
        }
        if !self.silent.is_empty() {
            let from = no_answer_from(&self.silent);
            self.complain(format_args!("{from}: files that are mapped are missing"));
        }
        let unsupported = sum.files - sum.answered - sum.denied - self.silent_files;
        if unsupported > 0 {
            self.complain(format_args!(
                "{unsupported} of {}: of a kind that the kernel can't be asked about, such as hugetlbfs",
                files(sum.files)
            ));
        }
        if self.denied_processes > 0 {
            let count = self.denied_processes;
            let plural = if count == 1 { "" } else { "es" };
            self.complain(format_args!(
                "you may not see the files of {count} process{plural} ({})",
                who_may()
            ));
        }
        // What was chosen and is never there, rather than missing of single files.
        let source = self.walk.source;
        let lacking: Vec<&str> = self
            .columns
            .iter()
            .filter(|column| matches!(column, Column::Bytes(quantity) if !source.gives(*quantity)))
            .map(|column| column.name())
            .collect();
        if !lacking.is_empty() {
            self.complain(format_args!(
                "{}: {} does not tell (see `taskdiag doctor`)",
                lacking.join(", "),
                source.name()
            ));
        }
    }

    /// Says how much of the machine's page cache the files are.
    fn say_explained(&self, machine: Option<u64>) {
        let sum = self.totals.sum;
        let explained = |cached: Cached| {
            let of_machine = match machine {
                Some(machine @ 1..) => format!(" ({:.1} %)", cached.bytes as f64 * 100.0 / machine as f64),
                _ => String::new(),
            };
            match (cached.told, cached.files) {
                (0, 1..) => "what is cached may not be told".to_owned(),
                (told, all) if told < all => format!("{} cached of {told} of them{of_machine}", human(cached.bytes)),
                _ => format!("{} cached{of_machine}", human(cached.bytes)),
            }
        };
        let shown = self.report.written();
        let all = Cached {
            files: sum.files,
            told: sum.answered,
            bytes: self.cached_bytes().unwrap_or(0),
        };
        say(format_args!(
            "the {} shown: {}; all {} looked at: {}; this machine's page cache: {}",
            files(shown.files),
            explained(shown),
            files(all.files),
            explained(all),
            machine.map_or("unknown".to_owned(), human),
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
            files(sum.files),
            started.elapsed().as_secs_f64() * 1e3,
            self.walk.source.name()
        ));
    }
}

fn files(count: u64) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} file{plural}")
}

fn human(bytes: u64) -> String {
    let mut out = Vec::new();
    people::size(&mut out, bytes);
    String::from_utf8_lossy(&out).into_owned()
}

fn printable(path: &[u8]) -> String {
    let mut out = Vec::new();
    text::escape(&mut out, path);
    String::from_utf8_lossy(&out).into_owned()
}

fn errno_text(errno: Errno) -> String {
    let text = io::Error::from(errno).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Why there is no answer about a PATH.
fn path_error(errno: Errno) -> String {
    match errno {
        Errno::INVAL => "neither a regular file nor a directory".to_owned(),
        errno => errno_text(errno),
    }
}

/// The sums of the directories below a path, down to a level.
struct Directories {
    root: Vec<u8>,
    depth: usize,
    sums: BTreeMap<Vec<u8>, Sum>,
}

impl Directories {
    fn new(root: &Path, depth: usize) -> Directories {
        Directories {
            root: root.as_os_str().as_encoded_bytes().to_vec(),
            depth,
            sums: BTreeMap::new(),
        }
    }

    /// Adds a directory to itself, or to the one above it that has a row.
    fn add(&mut self, directory: &Directory<'_>) {
        let mut path = directory.path;
        for _ in self.depth..directory.depth {
            path = above(&self.root, path);
        }
        match self.sums.get_mut(path) {
            Some(sum) => *sum += directory.sum,
            None => {
                self.sums.insert(path.to_vec(), directory.sum);
            }
        }
    }

    /// The directories with what is in those below them, in the order of their paths.
    fn add_up(mut self) -> Vec<(Vec<u8>, Sum)> {
        let mut rows = Vec::with_capacity(self.sums.len());
        // From the end: what is below a directory comes after it.
        while let Some((path, sum)) = self.sums.pop_last() {
            if path != self.root {
                let above = above(&self.root, &path).to_vec();
                *self.sums.entry(above).or_default() += sum;
            }
            rows.push((path, sum));
        }
        rows.reverse();
        rows
    }
}

/// The path of the directory above, but not above the root.
fn above<'a>(root: &'a [u8], path: &'a [u8]) -> &'a [u8] {
    let below = &path[root.len().min(path.len())..];
    match below.iter().rposition(|&byte| byte == b'/') {
        Some(slash @ 1..) => &path[..root.len() + slash],
        _ => root,
    }
}

/// A line on a terminal that says how far the work has come.
struct Progress {
    enabled: bool,
    files_before: u64,
    /// When it was last written, if it stands there.
    shown: Option<Instant>,
}

impl Progress {
    fn show(&mut self, files: u64) {
        const INTERVAL: Duration = Duration::from_millis(100);
        if self.enabled && self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL) {
            let _ = write!(io::stderr(), "\r\x1b[K{} files", self.files_before + files);
            self.shown = Some(Instant::now());
        }
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use taskdiag::Absent;

    use super::*;

    fn sums(root: &str, depth: usize, directories: &[(&str, usize)]) -> Vec<(String, u64)> {
        let mut sums = Directories::new(Path::new(root), depth);
        for (path, depth) in directories {
            let mut sum = Sum::default();
            sum.add(Ok(1), Err(Absent::Denied));
            sums.add(&Directory {
                path: path.as_bytes(),
                depth: *depth,
                sum,
            });
        }
        sums.add_up()
            .into_iter()
            .map(|(path, sum)| (String::from_utf8(path).expect("made of UTF-8"), sum.files))
            .collect()
    }

    /// Check that directories have in them what is below, from whichever root and to whichever level.
    #[test]
    fn directories_add_up() {
        let tree = [("r", 0), ("r/a", 1), ("r/a.b", 1), ("r/a/c", 2), ("r/a/c/d", 3)];
        let expect = |rows: &[(&str, u64)]| {
            rows.iter()
                .map(|(path, files)| ((*path).to_owned(), *files))
                .collect::<Vec<_>>()
        };
        assert_eq!(sums("r", 0, &tree), expect(&[("r", 5)]));
        assert_eq!(sums("r", 1, &tree), expect(&[("r", 5), ("r/a", 3), ("r/a.b", 1)]));
        assert_eq!(
            sums("r", 9, &tree),
            expect(&[("r", 5), ("r/a", 3), ("r/a.b", 1), ("r/a/c", 2), ("r/a/c/d", 1)])
        );
        let tree = [("/a/b", 2), ("/", 0), ("/a", 1)];
        assert_eq!(sums("/", 1, &tree), expect(&[("/", 3), ("/a", 2)]));
        let tree = [("r/", 0), ("r/a/b", 2), ("r/a", 1)];
        assert_eq!(sums("r/", 1, &tree), expect(&[("r/", 3), ("r/a", 2)]));
    }
}
