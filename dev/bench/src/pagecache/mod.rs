//! The page cache: files and trees created for it, and the contenders.
//!
//! Contenders name their files relative to the working directory, which contains the files during
//! the measurement. So another process that runs a contender again also finds them.

mod files;
mod loops;
mod targets;

use std::fs;
use std::time::Instant;

use taskdiag::pagecache::{residency, ByteRange, Found, Seen, Source, Walk};

use crate::commands::Program::{Named, Taskdiag};
use crate::contenders::{call, command, Contender, Lists};
use crate::counts::{Count, Counters};
use crate::measure::{measure, Entry, Expected};
use crate::report::{self, number, Table};
use crate::run::{Run, Runner};
use crate::tools::Tools;
use crate::{Cli, Report, Result};
use files::Files;

/// The files that are examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// A sparse file of 2 TiB with one page in it.
    Sparse,
    /// A file of 8 GiB, all of it cached.
    Big,
    /// A tree of 100,000 files, made directory by directory.
    Tree,
    /// A tree in which files were created in each directory in turn.
    Scattered,
    /// A tree of a million files, in memory.
    Million,
}

const ALL_SCENES: [Scene; 5] = [Scene::Sparse, Scene::Big, Scene::Tree, Scene::Scattered, Scene::Million];

/// The part of the sparse file for which mincore is measured: the whole file takes too long.
const WINDOW: u64 = 16 << 30;

/// How many such parts the whole file has.
pub const WINDOWS: f64 = (files::SPARSE / WINDOW) as f64;

impl Scene {
    /// The prefix of its contenders' names.
    fn prefix(self) -> &'static str {
        match self {
            Scene::Sparse => "sparse/",
            Scene::Big => "big/",
            Scene::Tree => "tree/",
            Scene::Scattered => "scattered/",
            Scene::Million => "million/",
        }
    }

    fn title(self, directory: &str) -> String {
        match self {
            Scene::Sparse => format!("Page cache: a sparse file of 2 TiB with one page in it, {directory}"),
            Scene::Big => format!("Page cache: a file of 8 GiB, all of it cached, {directory}"),
            Scene::Tree => format!(
                "Page cache: 100,000 cached files of 4 to 12 KiB in 1,000 directories, filled one by one, {directory}"
            ),
            Scene::Scattered => format!("Page cache: the same files, but made in each directory in turn, {directory}"),
            Scene::Million => "Page cache: a million empty files in 1,000 directories, on tmpfs".to_owned(),
        }
    }

    fn files(self) -> usize {
        match self {
            Scene::Sparse | Scene::Big => 1,
            Scene::Tree | Scene::Scattered => files::TREE,
            Scene::Million => files::MILLION,
        }
    }
}

use Lists::Anything;

/// All contenders, with the scene in their names.
#[rustfmt::skip]
pub const ALL: &[Contender] = &[
    call("sparse/library", Anything, "cachestat of an open file",
        || ask_again("sparse", Source::Cachestat)),
    call("sparse/residency", Anything, "residency of an open file, in parts of the whole",
        || residency_of("sparse")),
    command("sparse/taskdiag", Anything, "taskdiag cache sparse", Taskdiag, &["cache", "sparse"]),
    command("sparse/taskdiag-map", Anything, "taskdiag cache --map sparse", Taskdiag, &["cache", "--map", "sparse"]),
    call("sparse/mincore-window", Anything, "mmap, mincore, munmap of the first 16 GiB",
        || loops::file("sparse", WINDOW)),
    command("sparse/vmtouch-window", Anything, "vmtouch -p 0-16G sparse", Named("vmtouch"), &["-p", "0-16G", "sparse"]),

    call("big/library", Anything, "cachestat of an open file",
        || ask_again("big", Source::Cachestat)),
    call("big/library-mincore", Anything, "the library's mincore of an open file",
        || ask_again("big", Source::Mincore)),
    command("big/taskdiag", Anything, "taskdiag cache big", Taskdiag, &["cache", "big"]),
    call("big/mincore", Anything, "mmap, mincore, munmap",
        || loops::file("big", u64::MAX)),
    command("big/fincore", Anything, "fincore big", Named("fincore"), &["big"]),
    command("big/vmtouch", Anything, "vmtouch big", Named("vmtouch"), &["big"]),

    call("tree/library", Anything, "a walk, each file reported",
        || walk("tree", Walk::new())),
    call("tree/library-sums", Anything, "a walk, directories reported",
        || walk("tree", Walk::new().each_file(false))),
    call("tree/library-1-thread", Anything, "a walk by one thread, each file reported",
        || walk("tree", Walk::new().threads(1))),
    call("tree/library-no-files", Anything, "a walk over the same directories without files",
        || walk("empty", Walk::new())),
    command("tree/taskdiag", Anything, "taskdiag cache tree", Taskdiag, &["cache", "tree"]),
    command("tree/taskdiag-sum", Anything, "taskdiag cache -s tree", Taskdiag, &["cache", "-s", "tree"]),
    command("tree/taskdiag-mincore", Anything, "taskdiag cache -s --source mincore tree", Taskdiag,
        &["cache", "-s", "--source", "mincore", "tree"]),
    call("tree/mincore-walk", Anything, "open, fstat, mmap, mincore, munmap, close of each",
        || loops::tree("tree")),
    command("tree/fincore", Anything, "fincore of all, named by xargs from a list", Named("xargs"),
        &["-0", "-a", "list", "fincore", "--bytes", "--noheadings"]),
    command("tree/vmtouch", Anything, "vmtouch tree", Named("vmtouch"), &["tree"]),

    call("scattered/library", Anything, "a walk, each file reported",
        || walk("scattered", Walk::new())),
    command("scattered/taskdiag", Anything, "taskdiag cache scattered", Taskdiag, &["cache", "scattered"]),
    call("scattered/mincore-walk", Anything, "open, fstat, mmap, mincore, munmap, close of each",
        || loops::tree("scattered")),

    command("million/taskdiag", Anything, "taskdiag cache million", Taskdiag, &["cache", "million"]),
    command("million/taskdiag-json", Anything, "taskdiag cache --json million", Taskdiag, &["cache", "--json", "million"]),
    command("million/taskdiag-top", Anything, "taskdiag cache --sort -cached_bytes --limit 100 million", Taskdiag,
        &["cache", "--sort", "-cached_bytes", "--limit", "100", "million"]),
    command("million/vmtouch", Anything, "vmtouch million", Named("vmtouch"), &["million"]),
];

/// Queries all of an open file.
fn ask_again(name: &str, source: Source) -> Result<Runner> {
    let file = fs::File::open(name)?;
    Ok(Box::new(move || {
        let start = Instant::now();
        source.ask(&file, ByteRange::ALL)?;
        Ok(Run::new(start.elapsed(), 1))
    }))
}

fn residency_of(name: &str) -> Result<Runner> {
    let file = fs::File::open(name)?;
    Ok(Box::new(move || {
        let start = Instant::now();
        std::hint::black_box(residency(&file, ByteRange::ALL)?.fraction());
        Ok(Run::new(start.elapsed(), 1))
    }))
}

fn walk(root: &'static str, walk: Walk) -> Result<Runner> {
    Ok(Box::new(move || {
        let start = Instant::now();
        let mut bytes = 0;
        let totals = walk.run(root.as_ref(), &mut Seen::default(), &Default::default(), &mut |found| {
            if let Found::File(file) = found {
                bytes += file.path.len();
            }
            std::ops::ControlFlow::Continue(())
        })?;
        std::hint::black_box(bytes);
        Ok(Run::new(start.elapsed(), totals.sum.files as usize))
    }))
}

/// Measures all scenes and compares them with the targets.
pub fn run(cli: &Cli, tools: &Tools, counters: &Counters, report: &mut Report) -> Result<()> {
    let tools = &tools.absolute()?;
    for scene in ALL_SCENES {
        let of_scene = |contender: &&Contender| contender.name.starts_with(scene.prefix()) && cli.passes(contender);
        let contenders: Vec<&Contender> = ALL.iter().filter(of_scene).collect();
        if contenders.is_empty() || (cli.quick && scene == Scene::Million) {
            continue;
        }
        let files = Files::make(scene)?;
        let expected = Expected {
            processes: 0,
            threads: 0,
        };
        let counters = match scene {
            Scene::Million => &counters.only_memory(),
            _ => counters,
        };
        let entries = measure(&contenders, expected, cli.effort(), tools, counters)?;
        report.heading(&scene.title(&files.place()));
        report.line(&format!("{} rounds.", cli.effort().rounds));
        report.table(&figures(scene, &entries));
        report.list(&report::missing(&entries, &counters.missing()));
        report.line("Targets: median of the ratios of each round.");
        report.table(&targets::table(scene, &entries));
    }
    Ok(())
}

fn figures(scene: Scene, entries: &[Entry]) -> Table {
    let headings = [
        "contender",
        "median ms",
        "min",
        "max",
        "ns/file",
        "system calls",
        "peak RSS MiB",
        "what",
    ];
    let mut table = Table::new(&headings, 1);
    let count = |count: &Count| count.as_ref().map_or_else(|_| "–".to_owned(), u64::to_string);
    for Entry { contender, outcome } in entries {
        let (name, about) = (contender.name.to_owned(), contender.about.to_owned());
        let Ok(figures) = outcome else {
            let none = || "–".to_owned();
            table.row([name, none(), none(), none(), none(), none(), none(), about]);
            continue;
        };
        let median = figures.median();
        let peak = figures.counts.peak_kib.as_ref();
        table.row([
            name,
            number(median),
            number(figures.rounds.iter().copied().fold(f64::INFINITY, f64::min)),
            number(figures.rounds.iter().copied().fold(0.0, f64::max)),
            format!("{:.0}", median * 1e6 / scene.files() as f64),
            count(&figures.counts.calls),
            peak.map_or_else(|_| "–".to_owned(), |&kib| number(kib as f64 / 1024.0)),
            about,
        ]);
    }
    table
}
