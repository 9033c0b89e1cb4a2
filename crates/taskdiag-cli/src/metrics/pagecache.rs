//! The page cache of named directories, which a thread of its own walks: a file system may not
//! answer for long.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use taskdiag::pagecache::{Quantity, Seen, Source, Totals, Walk};

use super::exposition::Single;
use super::families::{Kind, Number};
use super::template::label;

/// What is known of a directory.
#[derive(Clone, Debug)]
struct Known {
    totals: Totals,
    at: Instant,
    took: Duration,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    known: Mutex<Option<Known>>,
}

/// The directories. Walks end with the program.
#[derive(Clone, Debug, Default)]
pub struct Directories(Arc<Vec<Directory>>);

impl Directories {
    /// Walks directories from now on, each at most once in this time.
    pub fn begin(paths: Vec<PathBuf>, every: Duration) -> io::Result<Directories> {
        let of = |path| Directory {
            path,
            known: Mutex::new(None),
        };
        let directories = Directories(Arc::new(paths.into_iter().map(of).collect()));
        for index in 0..directories.0.len() {
            let all = directories.0.clone();
            thread::Builder::new()
                .name("page-cache".to_owned())
                .spawn(move || loop {
                    let began = Instant::now();
                    walk(&all[index]);
                    thread::sleep(every.saturating_sub(began.elapsed()));
                })?;
        }
        Ok(directories)
    }

    /// The metrics.
    pub fn singles(&self) -> Vec<Single> {
        let source = Source::of_this_host();
        let mut singles: Vec<Single> = METRICS
            .iter()
            .map(|&(name, help, _)| Single {
                name,
                kind: Kind::Gauge,
                help,
                series: Vec::new(),
            })
            .collect();
        for directory in &*self.0 {
            let known = directory.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(known) = known else { continue };
            let path = label(std::os::unix::ffi::OsStrExt::as_bytes(directory.path.as_os_str()));
            for (single, (.., value)) in singles.iter_mut().zip(METRICS) {
                let value = value(&known, source);
                let labels = vec![("directory", path.clone())];
                single.series.extend(value.map(|value| (labels, value)));
            }
        }
        singles.retain(|single| !single.series.is_empty());
        singles
    }
}

type Value = fn(&Known, Source) -> Option<Number>;

/// Names and meanings of metrics, and their values.
const METRICS: &[(&str, &str, Value)] = &[
    (
        "taskdiag_directory_files",
        "Regular files below the directory",
        |known, _| Some(Number::Whole(known.totals.sum.files)),
    ),
    (
        "taskdiag_directory_size_bytes",
        "Sizes of the files below the directory",
        |known, _| Some(Number::Whole(known.totals.sum.size_bytes)),
    ),
    (
        "taskdiag_directory_cached_bytes",
        "Page cache of the files below the directory",
        |known, source| quantity(known, source, Quantity::Cached),
    ),
    (
        "taskdiag_directory_dirty_bytes",
        "Dirty page cache of the files below the directory",
        |known, source| quantity(known, source, Quantity::Dirty),
    ),
    (
        "taskdiag_directory_missing_files",
        "Files below the directory whose page cache is not in the sum",
        |known, _| {
            let sum = known.totals.sum;
            Some(Number::Whole(sum.files - sum.answered + known.totals.failed))
        },
    ),
    (
        "taskdiag_directory_age_seconds",
        "Time since the directory was last walked to its end",
        |known, _| Some(Number::Real(known.at.elapsed().as_secs_f64())),
    ),
    (
        "taskdiag_directory_walk_seconds",
        "How long the last walk through the directory took",
        |known, _| Some(Number::Real(known.took.as_secs_f64())),
    ),
];

fn quantity(known: &Known, source: Source, quantity: Quantity) -> Option<Number> {
    let usage = known.totals.sum.usage(source).ok()?;
    usage.bytes(quantity).ok().map(Number::Whole)
}

/// Walks a directory. If that fails, what was known before gets older.
fn walk(directory: &Directory) {
    let began = Instant::now();
    let run = |path: &Path| {
        let walk = Walk::new().each_file(false).one_file_system(true).threads(1);
        walk.run(path, &mut Seen::default(), &AtomicBool::new(false), &mut |_| {
            ControlFlow::Continue(())
        })
    };
    if let Ok(totals) = run(&directory.path) {
        let known = Known {
            totals,
            at: Instant::now(),
            took: began.elapsed(),
        };
        *directory.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
    }
}
