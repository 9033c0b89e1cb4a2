//! `taskdiag cache`.

mod bar;
mod directories;
mod names;
mod report;
mod row;
mod scan;
mod sums;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args as ClapArgs;
use taskdiag::pagecache::{ByteRange, Source};

use crate::choice::{distinct, OrderOptions, SortBy};
use crate::grouping::{self, Grouping, SumLayout};
use crate::listing::Formats;
use crate::outcome::{Failure, Outcome};
use crate::output::cell::Scale;
use crate::output::listing::{Layout, ListingColumn};
use crate::quantity;
use crate::source::{parser, sources, Choices, ForcedSource, Patience};
pub use bar::RUN_RELATION;
pub use directories::Directories;
use report::Style;
pub use row::RELATION;
use scan::Scan;
pub use sums::Sum;

/// Show how much of files and directories is in the page cache
///
/// Prints one row for each regular file below each PATH, unordered; with -d or -s one row for each
/// directory, with the sums over its files. A PATH may be a block device, too. Counts whole pages,
/// so more of a file can be cached than its size. A PATH may be a symbolic link; links below it are
/// not followed. A file with several names counts once, in one of its directories. Leaves out
/// /proc, /sys and other file systems that generate their files. The kernel answers only to the
/// owner of a file, to users who may write to it, and to root.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag cache -s /var /usr\n  \
    taskdiag cache -d 1 --sort -cached_bytes /var/lib\n  \
    taskdiag cache --sort -dirty_bytes --limit 10 .\n  \
    taskdiag cache --top 20\n  \
    taskdiag cache --by unit --limit 10\n  \
    taskdiag cache --map /var/lib/db/table\n  \
    find . -name '*.log' -print0 | taskdiag cache --files-from -")]
pub struct Args {
    /// Files, block devices and directories
    paths: Vec<PathBuf>,
    /// Read the names of files and directories from this file (- is standard input), each ending in
    /// a NUL or a newline
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// The files and block devices that these processes have open or mapped, including deleted
    /// files
    #[arg(long, value_name = "PID,…", value_delimiter = ',', value_parser = quantity::pid)]
    of_process: Vec<u32>,
    /// The N files with the most cached pages, among the files that any process has open or mapped
    /// and the files below each PATH
    #[arg(long, value_name = "N", conflicts_with_all = ["sort", "limit", "depth", "summarize", "of_process"])]
    top: Option<usize>,
    /// Add up the files that any process has open or mapped, or those of --of-process, by what the
    /// processes have in common. A file counts once in each group, and a file that processes of two
    /// groups hold counts in both
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', value_parser = grouping::by_parser(&grouping::OF_PROCESSES),
        conflicts_with_all = ["paths", "files_from", "top", "map", "depth", "summarize", "one_file_system"])]
    by: Vec<&'static Grouping>,
    /// Show which parts of this file are cached: a bar, or rows with --json, --jsonl or --csv
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["paths", "files_from", "of_process", "top", "depth", "summarize", "sort", "limit", "min",
            "fields"])]
    map: Option<PathBuf>,
    /// One row for each directory down to this many levels below each PATH, instead of one for each
    /// file
    #[arg(short = 'd', long, value_name = "N", conflicts_with = "summarize")]
    depth: Option<usize>,
    /// One row for each PATH
    #[arg(short = 's', long)]
    summarize: bool,
    /// Stay on the file system of each PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Only this part of each file, as in 1G:64M; either number may be left out
    #[arg(long, value_name = "OFF:LEN", value_parser = quantity::range)]
    range: Option<ByteRange>,
    /// Only rows with at least this much cached, as in 4K
    #[arg(long, value_name = "SIZE", value_parser = quantity::size, default_value = "0", hide_default_value = true)]
    min: u64,
    #[command(flatten)]
    order: OrderOptions,
    #[command(flatten)]
    options: Options,
}

/// Options for output and sources.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Output")]
struct Options {
    /// Fields to show, in this order, or `all`: path, size_bytes, cached_bytes, dirty_bytes,
    /// writeback_bytes, evicted_bytes, recently_evicted_bytes, files_count, missing_count; a plus
    /// in front adds to the default fields
    #[arg(short = 'o', long = "fields", value_name = "[+]FIELD,…")]
    fields: Vec<String>,
    /// The source to use; an error if it can't answer
    #[arg(long, value_name = "SOURCE", value_parser = parser(SOURCES), default_value = "auto")]
    source: ForcedSource<Source>,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    formats: Formats,
    /// Exact numbers of bytes in tables
    #[arg(long)]
    bytes: bool,
    /// Numbers of pages in tables
    #[arg(long, conflicts_with = "bytes")]
    pages: bool,
    /// No header above tables and CSV
    #[arg(long, visible_alias = "no-headers")]
    no_header: bool,
    /// Print the sources, the number of files and the elapsed time to standard error
    #[arg(long)]
    stats: bool,
}

const SOURCES: &Choices<ForcedSource<Source>> = sources! {
    "auto", "cachestat; mincore on kernels without it";
    "cachestat": Source::Cachestat, "cachestat(2), Linux 6.5";
    "mincore": Source::Mincore, "mincore(2): which pages are cached, and nothing else";
};

fn source(chosen: ForcedSource<Source>) -> Result<Source, Failure> {
    match (chosen.0, Source::of_this_host()) {
        (None, source) => Ok(source),
        (Some(Source::Cachestat), Source::Mincore) => {
            Err("this kernel has no cachestat(2), which came with Linux 6.5; --source mincore says what is cached")?
        }
        (Some(source), _) => Ok(source),
    }
}

pub fn run(args: Args) -> Result<Outcome, Failure> {
    let started = Instant::now();
    let is_named = !args.paths.is_empty() || !args.of_process.is_empty() || args.files_from.is_some();
    if !is_named && args.top.is_none() && args.map.is_none() && args.by.is_empty() {
        let message = "no file or directory is named: `taskdiag cache -d 1 .` is about this directory, \
                       `taskdiag cache --top 20` about the files that are cached most";
        return Err(message.into());
    }
    let options = &args.options;
    let source = source(options.source)?;
    let usual = row::usual(source, args.summarize || args.depth.is_some());
    let of = |column: usize| ListingColumn::column(RELATION[column].name, column);
    let sums = match args.by.as_slice() {
        [] => None,
        by => {
            grouping::only_sums(&options.fields, "files")?;
            Some(SumLayout::new::<Sum>(by, &args.order, "-cached_bytes")?)
        }
    };
    let order = match args.top {
        Some(_) => OrderOptions {
            limit: args.top,
            ..OrderOptions::sorted_by(&["-cached_bytes"])
        },
        None if sums.is_some() => OrderOptions::default(),
        None => args.order.clone(),
    };
    let mut layout = Layout::new(&RELATION, &options.fields, &order, usual, of)?;
    // Rows are found in no particular order, so equal ones are in the order of their paths.
    if !layout.sort.is_empty() {
        let (key, descending) = (row::PATH, false);
        layout.sort.push(SortBy { key, descending });
    }
    let style = Style {
        format: options.formats.format(),
        layout,
        scale: match options {
            Options { bytes: true, .. } => Some(Scale::Bytes),
            Options { pages: true, .. } => Some(Scale::Pages),
            _ => None,
        },
        header: !options.no_header,
        source,
        range: args.range.unwrap_or(ByteRange::ALL),
        min_cached: args.min,
    };
    if let Some(path) = &args.map {
        return bar::run(path, &style);
    }
    let mut scan = Scan::new(&args, &style)?;
    if args.top.is_some() {
        scan.all_processes()?;
    }
    match &sums {
        Some(layout) => scan.add_up(layout, &args)?,
        None => distinct(args.of_process.iter().copied())
            .into_iter()
            .for_each(|pid| scan.process(pid, true)),
    }
    for path in &args.paths {
        scan.path(path);
    }
    if let Some(list) = &args.files_from {
        scan.list(list)?;
    }
    scan.finish(started, options.stats)
}
